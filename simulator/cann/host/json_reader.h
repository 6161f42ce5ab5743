// Reader of JSON documents, as far as CANN's runtime needs it for the files of an operator package.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace npu_cann {

struct JsonValue {
    enum class Kind { kNull, kBool, kNumber, kString, kList, kObject };
    Kind kind = Kind::kNull;
    std::string text;  // a string with its escapes decoded, except \uXXXX; or a number as written
    std::vector<JsonValue> items;
    std::vector<std::pair<std::string, JsonValue>> members;

    // The member of that name and kind, or null.
    const JsonValue* find(const std::string& name, Kind of) const;
};

// The first document of the text; nothing if it is malformed or nested deeper than 100 levels. Text after the document
// is ignored, as by operator>> of nlohmann::json, which CANN uses. The value of a bool is not kept.
std::optional<JsonValue> read_json(const std::string& text);

}  // namespace npu_cann
