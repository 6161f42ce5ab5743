#include "cann/host/json_reader.h"

#include <cctype>
#include <cstring>

namespace simulated_cann {
namespace {

constexpr int kMaxDepth = 100;

class Reader {
public:
    explicit Reader(const std::string& text) : at_(text.data()), end_(text.data() + text.size()) {}

    bool value(JsonValue* v, int depth = 0) {
        skip_space();
        if (at_ == end_ || depth > kMaxDepth) return false;
        switch (*at_) {
            case '{':
                return object(v, depth);
            case '[':
                return list(v, depth);
            case '"':
                v->kind = JsonValue::Kind::kString;
                return string(&v->text);
            case 't':
                v->kind = JsonValue::Kind::kBool;
                return word("true");
            case 'f':
                v->kind = JsonValue::Kind::kBool;
                return word("false");
            case 'n':
                return word("null");
            default:
                v->kind = JsonValue::Kind::kNumber;
                return number(&v->text);
        }
    }

private:
    void skip_space() {
        while (at_ != end_ && std::strchr(" \t\r\n", *at_) && *at_) ++at_;
    }
    bool take(char c) {
        skip_space();
        if (at_ == end_ || *at_ != c) return false;
        ++at_;
        return true;
    }
    bool word(const char* expected) {
        const size_t n = std::strlen(expected);
        if (static_cast<size_t>(end_ - at_) < n || std::strncmp(at_, expected, n) != 0) return false;
        at_ += n;
        return true;
    }
    bool digits(std::string* text) {
        const size_t before = text->size();
        while (at_ != end_ && std::isdigit(static_cast<unsigned char>(*at_))) *text += *at_++;
        return text->size() > before;
    }
    bool number(std::string* text) {
        if (at_ != end_ && *at_ == '-') *text += *at_++;
        if (!digits(text)) return false;
        if (at_ != end_ && *at_ == '.') {
            *text += *at_++;
            if (!digits(text)) return false;
        }
        if (at_ != end_ && (*at_ == 'e' || *at_ == 'E')) {
            *text += *at_++;
            if (at_ != end_ && (*at_ == '+' || *at_ == '-')) *text += *at_++;
            return digits(text);
        }
        return true;
    }
    // A code point \uXXXX is kept as written, because names in packages have none.
    bool string(std::string* text) {
        if (!take('"')) return false;
        while (at_ != end_ && *at_ != '"') {
            if (static_cast<unsigned char>(*at_) < 0x20) return false;
            if (*at_ != '\\') {
                *text += *at_++;
                continue;
            }
            if (++at_ == end_) return false;
            const std::string escapes = "\"\\/bfnrt", characters = "\"\\/\b\f\n\r\t";
            const size_t known = escapes.find(*at_);
            if (known == std::string::npos && *at_ != 'u') return false;
            *text += known == std::string::npos ? std::string("\\u") : std::string(1, characters[known]);
            ++at_;
        }
        return take('"');
    }
    bool list(JsonValue* v, int depth) {
        v->kind = JsonValue::Kind::kList;
        ++at_;
        if (take(']')) return true;
        do {
            v->items.emplace_back();
            if (!value(&v->items.back(), depth + 1)) return false;
        } while (take(','));
        return take(']');
    }
    bool object(JsonValue* v, int depth) {
        v->kind = JsonValue::Kind::kObject;
        ++at_;
        if (take('}')) return true;
        do {
            v->members.emplace_back();
            skip_space();
            if (!string(&v->members.back().first) || !take(':')) return false;
            if (!value(&v->members.back().second, depth + 1)) return false;
        } while (take(','));
        return take('}');
    }

    const char *at_, *end_;
};

}  // namespace

const JsonValue* JsonValue::find(const std::string& name, Kind wanted) const {
    for (const auto& [key, value] : members)
        if (key == name) return value.kind == wanted ? &value : nullptr;
    return nullptr;
}

std::optional<JsonValue> read_json(const std::string& text) {
    JsonValue v;
    if (!Reader(text).value(&v)) return std::nullopt;
    return v;
}

}  // namespace simulated_cann
