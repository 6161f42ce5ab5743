// The classes of tiling data that an operator's host code defines by macros. A class lists its fields; the kernel's
// struct is generated from this list. A field is aligned to its type. A struct inside another one, and the end of a
// struct, are aligned to 8 bytes. Each gap is a field of its own. Source: hicann/metadef
// inc/external/register/tilingdata_base.h, base/asc/tilingdata_base_impl.cc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "securec.h"

namespace optiling {

// A field. `elements` is 0 for a single value; `struct_type` is empty for a number.
struct TilingField {
    std::string type, name;
    size_t elements = 0;
    std::string struct_type;
};

class TilingDef {
public:
    virtual ~TilingDef() = default;
    TilingDef(const TilingDef&) = delete;
    TilingDef& operator=(const TilingDef&) = delete;

    size_t GetDataSize() const { return data_size_; }
    const char* GetTilingClassName() const { return class_name_; }
    const std::vector<TilingField>& fields() const { return fields_; }
    // Copies the data; nothing if the data lies in the caller's memory already.
    void SaveToBuffer(void* to, size_t capacity);
    // Uses the caller's memory, with its contents, from now on.
    void SetDataPtr(void* data);

protected:
    TilingDef() = default;
    size_t add_number(const char* type, const char* name, size_t bytes, size_t elements);
    size_t add_struct(const char* type, const char* name, TilingDef* struct_field);
    // Called by the constructor of a class, after those of its fields.
    void finish(const char* class_name, bool owns_data);
    uint8_t* data_ptr_ = nullptr;
    size_t data_size_ = 0;

private:
    void align(const char* name, size_t bytes);
    const char* class_name_ = nullptr;
    std::vector<TilingField> fields_;
    std::vector<std::pair<TilingDef*, size_t>> struct_fields_;
    std::vector<uint8_t> own_data_;
};

using TilingDataConstructor = std::shared_ptr<TilingDef> (*)();

class CTilingDataClassFactory {
public:
    static CTilingDataClassFactory& GetInstance();
    void RegisterTilingData(const char* op_type, TilingDataConstructor constructor);
    std::shared_ptr<TilingDef> CreateTilingDataInstance(const char* op_type);
    // The names under which classes are registered.
    std::vector<std::string> names() const;
};

}  // namespace optiling

#define BEGIN_TILING_DATA_DEF(class_name)             \
    class class_name : public ::optiling::TilingDef { \
    public:                                           \
        class_name() { finish(#class_name, true); }   \
        explicit class_name(void* data) {             \
            finish(#class_name, false);               \
            if (data != nullptr) SetDataPtr(data);    \
        }

#define TILING_DATA_FIELD_DEF(data_type, field_name)                                                                \
public:                                                                                                             \
    void set_##field_name(data_type value) { std::memcpy(data_ptr_ + field_name##_offset_, &value, sizeof value); } \
    data_type get_##field_name() {                                                                                  \
        data_type value;                                                                                            \
        std::memcpy(&value, data_ptr_ + field_name##_offset_, sizeof value);                                        \
        return value;                                                                                               \
    }                                                                                                               \
                                                                                                                    \
private:                                                                                                            \
    size_t field_name##_offset_ = add_number(#data_type, #field_name, sizeof(data_type), 0);

#define TILING_DATA_FIELD_DEF_ARR(arr_type, arr_size, field_name)                                          \
public:                                                                                                    \
    void set_##field_name(arr_type* values) {                                                              \
        std::memmove(data_ptr_ + field_name##_offset_, values, (arr_size) * sizeof(arr_type));             \
    }                                                                                                      \
    arr_type* get_##field_name() { return reinterpret_cast<arr_type*>(data_ptr_ + field_name##_offset_); } \
                                                                                                           \
private:                                                                                                   \
    size_t field_name##_offset_ = add_number(#arr_type, #field_name, sizeof(arr_type), arr_size);

#define TILING_DATA_FIELD_DEF_STRUCT(struct_type, field_name) \
public:                                                       \
    struct_type field_name{nullptr};                          \
                                                              \
private:                                                      \
    size_t field_name##_offset_ = add_struct(#struct_type, #field_name, &field_name);

#define END_TILING_DATA_DEF \
    }                       \
    ;

#define REGISTER_TILING_DATA_CLASS(op_type, class_name)                                                           \
    namespace {                                                                                                   \
    [[maybe_unused]] const bool g_##op_type##class_name##_registered = [] {                                       \
        ::optiling::CTilingDataClassFactory::GetInstance().RegisterTilingData(                                    \
            #op_type, []() -> std::shared_ptr<::optiling::TilingDef> { return std::make_shared<class_name>(); }); \
        return true;                                                                                              \
    }();                                                                                                          \
    }
