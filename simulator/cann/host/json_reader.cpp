#include "cann/host/json_reader.h"

#include <cctype>
#include <cstring>

namespace simulated_cann {
namespace {

constexpr int kMaxDepth = 100;

class Parser {
public:
    explicit Parser(const std::string& text) : next_(text.data()), end_(text.data() + text.size()) {}

    bool parse_value(JsonValue* result, int depth = 0) {
        skip_space();
        if (next_ == end_ || depth > kMaxDepth) return false;
        switch (*next_) {
            case '{':
                return parse_object(result, depth);
            case '[':
                return parse_list(result, depth);
            case '"':
                result->kind = JsonValue::Kind::kString;
                return parse_string(&result->text);
            case 't':
                result->kind = JsonValue::Kind::kBool;
                return skip_word("true");
            case 'f':
                result->kind = JsonValue::Kind::kBool;
                return skip_word("false");
            case 'n':
                return skip_word("null");
            default:
                result->kind = JsonValue::Kind::kNumber;
                return parse_number(&result->text);
        }
    }

    bool has_ended() {
        skip_space();
        return next_ == end_;
    }

private:
    void skip_space() {
        while (next_ != end_ && std::strchr(" \t\r\n", *next_) && *next_) ++next_;
    }
    // Skips spaces and then this character. Returns false if another character follows.
    bool skip_character(char expected) {
        skip_space();
        if (next_ == end_ || *next_ != expected) return false;
        ++next_;
        return true;
    }
    bool skip_word(const char* expected) {
        const size_t length = std::strlen(expected);
        if (static_cast<size_t>(end_ - next_) < length || std::strncmp(next_, expected, length) != 0) return false;
        next_ += length;
        return true;
    }
    bool append_digits(std::string* text) {
        const size_t length_before = text->size();
        while (next_ != end_ && std::isdigit(static_cast<unsigned char>(*next_))) *text += *next_++;
        return text->size() > length_before;
    }
    bool parse_number(std::string* text) {
        if (next_ != end_ && *next_ == '-') *text += *next_++;
        const size_t first_digit = text->size();
        if (!append_digits(text)) return false;
        if (text->size() > first_digit + 1 && (*text)[first_digit] == '0') return false;
        if (next_ != end_ && *next_ == '.') {
            *text += *next_++;
            if (!append_digits(text)) return false;
        }
        if (next_ != end_ && (*next_ == 'e' || *next_ == 'E')) {
            *text += *next_++;
            if (next_ != end_ && (*next_ == '+' || *next_ == '-')) *text += *next_++;
            return append_digits(text);
        }
        return true;
    }
    // A code point \uXXXX is kept as written, because names in packages have none.
    bool parse_string(std::string* text) {
        if (!skip_character('"')) return false;
        while (next_ != end_ && *next_ != '"') {
            if (static_cast<unsigned char>(*next_) < 0x20) return false;  // a control character
            if (*next_ != '\\') {
                *text += *next_++;
                continue;
            }
            if (++next_ == end_) return false;
            const std::string escapes = "\"\\/bfnrt", characters = "\"\\/\b\f\n\r\t";
            const size_t escape_index = escapes.find(*next_);
            if (escape_index == std::string::npos && *next_ != 'u') return false;
            *text += escape_index == std::string::npos ? std::string("\\u") : std::string(1, characters[escape_index]);
            ++next_;
        }
        return skip_character('"');
    }
    bool parse_list(JsonValue* result, int depth) {
        result->kind = JsonValue::Kind::kList;
        ++next_;
        if (skip_character(']')) return true;
        do {
            result->items.emplace_back();
            if (!parse_value(&result->items.back(), depth + 1)) return false;
        } while (skip_character(','));
        return skip_character(']');
    }
    bool parse_object(JsonValue* result, int depth) {
        result->kind = JsonValue::Kind::kObject;
        ++next_;
        if (skip_character('}')) return true;
        do {
            result->members.emplace_back();
            skip_space();
            if (!parse_string(&result->members.back().first) || !skip_character(':')) return false;
            if (!parse_value(&result->members.back().second, depth + 1)) return false;
        } while (skip_character(','));
        return skip_character('}');
    }

    const char *next_, *end_;
};

}  // namespace

const JsonValue* JsonValue::find(const std::string& name, Kind expected_kind) const {
    for (const auto& [key, value] : members)
        if (key == name) return value.kind == expected_kind ? &value : nullptr;
    return nullptr;
}

std::optional<JsonValue> parse_json(const std::string& text) {
    JsonValue result;
    if (!Parser(text).parse_value(&result)) return std::nullopt;
    return result;
}

std::optional<JsonValue> parse_whole_json(const std::string& text) {
    JsonValue result;
    Parser parser(text);
    if (!parser.parse_value(&result) || !parser.has_ended()) return std::nullopt;
    return result;
}

}  // namespace simulated_cann
