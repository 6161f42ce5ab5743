// Classes of tiling data, and their registration by the operator's name.
#include <map>

#include "register/tilingdata_base.h"

namespace optiling {
namespace {

std::map<std::string, TilingDataConstructor>& constructors() {
    static std::map<std::string, TilingDataConstructor> all;
    return all;
}

}  // namespace

void TilingDef::align(const char* name, size_t bytes) {
    const size_t gap = (bytes - data_size_ % bytes) % bytes;
    if (!gap) return;
    fields_.push_back({"uint8_t", std::string(name) + "PH", gap, ""});
    data_size_ += gap;
}

size_t TilingDef::add_number(const char* type, const char* name, size_t bytes, size_t elements) {
    align(name, bytes);
    const size_t offset = data_size_;
    fields_.push_back({type, name, elements, ""});
    data_size_ += bytes * (elements ? elements : 1);
    return offset;
}

size_t TilingDef::add_struct(const char* type, const char* name, TilingDef* part) {
    align(name, 8);
    const size_t offset = data_size_;
    fields_.push_back({"struct", name, 0, type});
    data_size_ += part->GetDataSize();
    parts_.emplace_back(part, offset);
    return offset;
}

void TilingDef::finish(const char* class_name, bool owns_data) {
    class_name_ = class_name;
    align(class_name, 8);
    if (!owns_data) return;
    own_.assign(data_size_, 0);
    SetDataPtr(own_.data());
}

void TilingDef::SetDataPtr(void* data) {
    data_ptr_ = static_cast<uint8_t*>(data);
    for (const auto& [part, offset] : parts_) part->SetDataPtr(data_ptr_ + offset);
}

void TilingDef::SaveToBuffer(void* to, size_t capacity) {
    if (own_.empty() || data_ptr_ != own_.data()) return;
    memcpy_s(to, capacity, data_ptr_, data_size_);
}

CTilingDataClassFactory& CTilingDataClassFactory::GetInstance() {
    static CTilingDataClassFactory factory;
    return factory;
}

// The first class of a name stays, as in CANN.
void CTilingDataClassFactory::RegisterTilingData(const char* op_type, TilingDataConstructor constructor) {
    constructors().emplace(op_type, constructor);
}

std::shared_ptr<TilingDef> CTilingDataClassFactory::CreateTilingDataInstance(const char* op_type) {
    const auto found = constructors().find(op_type);
    return found == constructors().end() ? nullptr : found->second();
}

std::vector<std::string> CTilingDataClassFactory::names() const {
    std::vector<std::string> all;
    for (const auto& [name, constructor] : constructors()) all.push_back(name);
    return all;
}

}  // namespace optiling
