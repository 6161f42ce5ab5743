// Classes of tiling data, and their registration by the operator's name.
#include <map>

#include "register/tilingdata_base.h"

namespace optiling {
namespace {

std::map<std::string, TilingDataConstructor>& constructors() {
    static std::map<std::string, TilingDataConstructor> by_name;
    return by_name;
}

}  // namespace

void TilingDef::align(const char* name, size_t bytes) {
    const size_t gap_bytes = (bytes - data_size_ % bytes) % bytes;
    if (!gap_bytes) return;
    fields_.push_back({"uint8_t", std::string(name) + "PH", gap_bytes, ""});
    data_size_ += gap_bytes;
}

size_t TilingDef::add_number(const char* type, const char* name, size_t bytes, size_t elements) {
    align(name, bytes);
    const size_t offset = data_size_;
    fields_.push_back({type, name, elements, ""});
    data_size_ += bytes * (elements ? elements : 1);
    return offset;
}

size_t TilingDef::add_struct(const char* type, const char* name, TilingDef* struct_field) {
    align(name, 8);
    const size_t offset = data_size_;
    fields_.push_back({"struct", name, 0, type});
    data_size_ += struct_field->GetDataSize();
    struct_fields_.emplace_back(struct_field, offset);
    return offset;
}

void TilingDef::finish(const char* class_name, bool owns_data) {
    class_name_ = class_name;
    align(class_name, 8);
    if (!owns_data) return;
    own_data_.assign(data_size_, 0);
    SetDataPtr(own_data_.data());
}

void TilingDef::SetDataPtr(void* data) {
    data_ptr_ = static_cast<uint8_t*>(data);
    for (const auto& [struct_field, offset] : struct_fields_) struct_field->SetDataPtr(data_ptr_ + offset);
}

void TilingDef::SaveToBuffer(void* to, size_t capacity) {
    if (own_data_.empty() || data_ptr_ != own_data_.data()) return;
    memcpy_s(to, capacity, data_ptr_, data_size_);
}

CTilingDataClassFactory& CTilingDataClassFactory::GetInstance() {
    static CTilingDataClassFactory factory;
    return factory;
}

// As in CANN, a second class with the same name does not replace the first one.
void CTilingDataClassFactory::RegisterTilingData(const char* op_type, TilingDataConstructor constructor) {
    constructors().emplace(op_type, constructor);
}

std::shared_ptr<TilingDef> CTilingDataClassFactory::CreateTilingDataInstance(const char* op_type) {
    const auto found = constructors().find(op_type);
    return found == constructors().end() ? nullptr : found->second();
}

std::vector<std::string> CTilingDataClassFactory::names() const {
    std::vector<std::string> class_names;
    for (const auto& [name, constructor] : constructors()) class_names.push_back(name);
    return class_names;
}

}  // namespace optiling
