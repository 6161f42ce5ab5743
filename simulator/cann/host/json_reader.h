// Parser of JSON: the files of an operator package, the requests to op_sources.cpp, and the file of aclInit.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace simulated_cann {

struct JsonValue {
    enum class Kind { kNull, kBool, kNumber, kString, kList, kObject };
    Kind kind = Kind::kNull;
    // kString: the string, with all escapes decoded except \uXXXX. kNumber: the digits as the document has them.
    // Empty for a kBool: its value is not stored.
    std::string text;
    std::vector<JsonValue> items;                            // of a kList
    std::vector<std::pair<std::string, JsonValue>> members;  // of a kObject: names and values

    // Returns null if there is no member with this name, or if the member has another kind.
    const JsonValue* find(const std::string& name, Kind expected_kind) const;
};

// Parses the first JSON document in `text` and ignores the rest, like operator>> of nlohmann::json, which CANN uses.
// Returns nullopt if the document is malformed or nested deeper than 100 levels.
std::optional<JsonValue> parse_json(const std::string& text);

// Like parse_json, but only spaces may follow the document, as in json::parse() of nlohmann::json.
std::optional<JsonValue> parse_whole_json(const std::string& text);

}  // namespace simulated_cann
