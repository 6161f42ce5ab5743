// Reader of JSON documents, as far as CANN's runtime needs it for an operator package's files.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace simulated_cann {

struct JsonValue {
    enum class Kind { kNull, kBool, kNumber, kString, kList, kObject };
    Kind kind = Kind::kNull;
    std::string text;  // a string with its escapes decoded, except \uXXXX; or a number as written
    std::vector<JsonValue> items;
    std::vector<std::pair<std::string, JsonValue>> members;

    // The member of that name, or nullptr if it is absent or of another kind.
    const JsonValue* find(const std::string& name, Kind wanted) const;
};

// The first document of the text; nullopt if it is malformed or nested deeper than 100 levels. Text after the document
// is ignored, as by operator>> of nlohmann::json, which CANN uses. The value of a bool is not kept.
std::optional<JsonValue> read_json(const std::string& text);

}  // namespace simulated_cann
