// A JSON document, read: what CANN's runtime needs of the files in an operator package.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace npu_cann {

struct JsonValue {
    enum class Kind { kNull, kBool, kNumber, kString, kList, kObject };
    Kind kind = Kind::kNull;
    std::string text;  // of a string, or a number as it is written
    std::vector<JsonValue> items;
    std::vector<std::pair<std::string, JsonValue>> members;

    // The member of that name and kind; null where there is none.
    const JsonValue* find(const std::string& name, Kind of) const;
};

// The first document of the text; nothing where it is no JSON. Text behind the document is ignored, as by the operator
// >> of the parser that CANN uses.
std::optional<JsonValue> read_json(const std::string& text);

}  // namespace npu_cann
