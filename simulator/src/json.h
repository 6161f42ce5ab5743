// Writers of JSON strings, arrays and objects.
#pragma once

#include <cstdio>
#include <string>

namespace ascend_sim {

inline std::string json_string(const std::string& text) {
    std::string quoted = "\"";
    for (char c : text) {
        if (c == '"' || c == '\\') quoted += '\\';
        if (static_cast<unsigned char>(c) < 0x20) {
            char code[8];
            std::snprintf(code, sizeof code, "\\u%04x", c);
            quoted += code;
        } else {
            quoted += c;
        }
    }
    return quoted + "\"";
}

// An array with the JSON text item(e) for each element e of the list.
template <class List, class F>
std::string json_list(const List& list, F item) {
    std::string text;
    for (const auto& one : list) text += (text.empty() ? "" : ",") + item(one);
    return "[" + text + "]";
}

// An array of elements that are JSON already.
template <class List>
std::string json_list(const List& items) {
    return json_list(items, [](const std::string& item) { return item; });
}

class Json {
public:
    Json& field(const std::string& name, const std::string& text) { return raw(name, json_string(text)); }
    Json& field(const std::string& name, double value) {
        char text[40];
        std::snprintf(text, sizeof text, "%.17g", value);
        return raw(name, text);
    }
    // `value` is JSON already.
    Json& raw(const std::string& name, const std::string& value) {
        text_ += (text_.empty() ? "{\"" : ",\"") + name + "\":" + value;
        return *this;
    }
    std::string done() const { return text_.empty() ? "{}" : text_ + "}"; }

private:
    std::string text_;
};

}  // namespace ascend_sim
