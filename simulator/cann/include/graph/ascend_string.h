// The string class of CANN's interfaces. A string that was made from NULL differs from an empty one, and sorts before
// it.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "graph/types.h"

namespace ge {

class AscendString {
public:
    AscendString() = default;
    AscendString(const char_t* const name) {
        if (name != nullptr) name_ = std::make_shared<std::string>(name);
    }
    AscendString(const char_t* const name, size_t length) {
        if (name != nullptr) name_ = std::make_shared<std::string>(name, length);
    }
    const char_t* GetString() const { return name_ ? name_->c_str() : ""; }
    size_t GetLength() const { return name_ ? name_->size() : 0; }
    size_t Hash() const { return std::hash<std::string>()(GetString()); }
    bool operator<(const AscendString& other) const {
        return name_ && other.name_ ? *name_ < *other.name_ : !name_ && other.name_ != nullptr;
    }
    bool operator==(const AscendString& other) const {
        return name_ && other.name_ ? *name_ == *other.name_ : !name_ && !other.name_;
    }
    bool operator!=(const AscendString& other) const { return !(*this == other); }

private:
    std::shared_ptr<std::string> name_;
};

}  // namespace ge

namespace std {
template <>
struct hash<ge::AscendString> {
    size_t operator()(const ge::AscendString& name) const { return name.Hash(); }
};
}  // namespace std
