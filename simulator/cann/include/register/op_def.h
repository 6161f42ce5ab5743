// An operator's definition: its arguments, their types on each SoC, and its host functions.
#pragma once

#include <deque>
#include <map>
#include <string>
#include <vector>

#include "graph/types.h"
#include "register/op_impl_registry.h"

namespace simulated_cann {
struct DefReader;
}

namespace ops {

enum Option { IGNORE = 0, OPTIONAL = 1, REQUIRED = 2, DYNAMIC = 3, VIRTUAL = 4 };

// The functions that read the values of an input.
enum class DependScope : uint32_t { ALL = 0, TILING = 1, INVALID_SCOPE };

enum class AttrDataType {
    ATTR_DT_BOOL = 0,
    ATTR_DT_FLOAT = 1,
    ATTR_DT_INT = 2,
    ATTR_DT_STR = 3,
    ATTR_DT_LIST_BOOL = 4,
    ATTR_DT_LIST_FLOAT = 5,
    ATTR_DT_LIST_INT = 6,
};

// An input or an output. DataType() and Format() have one entry for each column. DataTypeList() and FormatList() have
// entries that combine with every column.
class OpParamDef {
public:
    explicit OpParamDef(const char* name);
    OpParamDef& ParamType(Option param_type);
    OpParamDef& DataType(std::vector<ge::DataType> types);
    OpParamDef& DataTypeList(std::vector<ge::DataType> types);
    OpParamDef& Format(std::vector<ge::Format> formats);
    OpParamDef& FormatList(std::vector<ge::Format> formats);
    OpParamDef& UnknownShapeFormat(std::vector<ge::Format> formats);
    // The operator's host functions read the values of this input.
    OpParamDef& ValueDepend(Option value_depend);
    OpParamDef& ValueDepend(Option value_depend, DependScope scope);
    // The version of the interface to which the parameter was added.
    OpParamDef& Version(uint32_t version);
    OpParamDef& Comment(const char* comment);
    OpParamDef& IgnoreContiguous(void);
    OpParamDef& AutoContiguous();

private:
    friend struct simulated_cann::DefReader;
    friend class OpDef;
    friend class OpAICoreConfig;
    std::string name_;
    Option param_type_ = Option::REQUIRED;
    std::vector<ge::DataType> types_;
    std::vector<ge::Format> formats_;
    bool lists_types_ = false, lists_formats_ = false;  // DataTypeList(), FormatList()
    bool value_depend_ = false;
    bool ignore_contiguous_ = false;
    bool auto_contiguous_ = false;
};

class OpAttrDef {
public:
    explicit OpAttrDef(const char* name);
    OpAttrDef& AttrType(Option attr_type);
    OpAttrDef& Bool(void);
    OpAttrDef& Bool(bool value);
    OpAttrDef& Float(void);
    OpAttrDef& Float(float value);
    OpAttrDef& Int(void);
    OpAttrDef& Int(int64_t value);
    OpAttrDef& String(void);
    OpAttrDef& String(const char* value);
    OpAttrDef& ListBool(void);
    OpAttrDef& ListBool(std::vector<bool> value);
    OpAttrDef& ListFloat(void);
    OpAttrDef& ListFloat(std::vector<float> value);
    OpAttrDef& ListInt(void);
    OpAttrDef& ListInt(std::vector<int64_t> value);
    OpAttrDef& Version(uint32_t version);
    OpAttrDef& Comment(const char* comment);

private:
    friend struct simulated_cann::DefReader;
    friend class OpDef;
    OpAttrDef& set(AttrDataType type);
    OpAttrDef& set(AttrDataType type, std::string default_text);
    std::string name_;
    bool required_ = true;
    AttrDataType type_ = AttrDataType::ATTR_DT_INT;
    bool has_default_ = false;
    std::string default_text_;  // in the format of CANN's description of an operator
};

class OpAICoreConfig {
public:
    OpAICoreConfig() = default;
    OpParamDef& Input(const char* name);
    OpParamDef& Output(const char* name);
    OpAICoreConfig& DynamicCompileStaticFlag(bool flag);
    OpAICoreConfig& DynamicFormatFlag(bool flag);
    OpAICoreConfig& DynamicRankSupportFlag(bool flag);
    OpAICoreConfig& DynamicShapeSupportFlag(bool flag);
    OpAICoreConfig& NeedCheckSupportFlag(bool flag);
    OpAICoreConfig& PrecisionReduceFlag(bool flag);
    OpAICoreConfig& ExtendCfgInfo(const char* key, const char* value);

private:
    friend struct simulated_cann::DefReader;
    OpAICoreConfig& set_flag(const char* name, bool flag);
    std::deque<OpParamDef> inputs_, outputs_;  // parameters that the SoC's configuration redefines
    std::map<std::string, std::string> items_;
};

class OpAICoreDef {
public:
    OpAICoreDef() = default;
    OpAICoreDef& SetTiling(gert::OpImplRegisterV2::TilingKernelFunc function);
    gert::OpImplRegisterV2::TilingKernelFunc& GetTiling(void) { return tiling_; }
    OpAICoreDef& AddConfig(const char* soc);
    OpAICoreDef& AddConfig(const char* soc, OpAICoreConfig& aicore_config);

private:
    friend struct simulated_cann::DefReader;
    gert::OpImplRegisterV2::TilingKernelFunc tiling_ = nullptr;
    std::map<std::string, OpAICoreConfig> configs_;
};

class OpDef {
public:
    explicit OpDef(const char* type);
    // The argument of that name, which is created if it does not exist.
    OpParamDef& Input(const char* name);
    OpParamDef& Output(const char* name);
    OpAttrDef& Attr(const char* name);
    OpDef& SetInferShape(gert::OpImplRegisterV2::InferShapeKernelFunc function);
    OpDef& SetInferDataType(gert::OpImplRegisterV2::InferDataTypeKernelFunc function);
    gert::OpImplRegisterV2::InferShapeKernelFunc& GetInferShape(void) { return infer_shape_; }
    gert::OpImplRegisterV2::InferDataTypeKernelFunc& GetInferDataType(void) { return infer_data_type_; }
    OpAICoreDef& AICore(void) { return aicore_; }

private:
    friend struct simulated_cann::DefReader;
    std::string type_;
    std::deque<OpParamDef> inputs_, outputs_;
    std::deque<OpAttrDef> attrs_;
    gert::OpImplRegisterV2::InferShapeKernelFunc infer_shape_ = nullptr;
    gert::OpImplRegisterV2::InferDataTypeKernelFunc infer_data_type_ = nullptr;
    OpAICoreDef aicore_;
};

}  // namespace ops
