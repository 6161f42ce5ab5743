// The classes of a definition, which store their arguments.
#include "register/op_def.h"

#include <cstdio>

namespace ops {
namespace {

template <typename Def>
Def& find_or_add(std::deque<Def>* all, const std::string& name, std::string Def::* member) {
    for (Def& def : *all)
        if (def.*member == name) return def;
    all->emplace_back(name.c_str());
    return all->back();
}

// Six digits, as a C++ stream writes a float (metadef base/asc/opdef/op_def_impl.cc, GetAttrDefaultVal): a default
// that needs more digits differs from the definition's number.
std::string number_text(double value) {
    char text[32];
    std::snprintf(text, sizeof text, "%g", value);
    return text;
}

template <typename T, typename Spell>
std::string list_text(const std::vector<T>& values, Spell spell) {
    std::string text = "[";
    for (size_t i = 0; i < values.size(); ++i) text += (i ? "," : "") + spell(values[i]);
    return text + "]";
}

const char* bool_text(bool value) { return value ? "true" : "false"; }

}  // namespace

OpParamDef::OpParamDef(const char* name) : name_(name) {}
OpParamDef& OpParamDef::ParamType(Option param_type) {
    param_type_ = param_type;
    return *this;
}
OpParamDef& OpParamDef::DataType(std::vector<ge::DataType> types) {
    types_ = std::move(types);
    return *this;
}
OpParamDef& OpParamDef::Format(std::vector<ge::Format> formats) {
    formats_ = std::move(formats);
    return *this;
}
OpParamDef& OpParamDef::FormatList(std::vector<ge::Format> formats) { return Format(std::move(formats)); }
OpParamDef& OpParamDef::UnknownShapeFormat(std::vector<ge::Format>) { return *this; }
OpParamDef& OpParamDef::IgnoreContiguous(void) {
    ignore_contiguous_ = true;
    return *this;
}
OpParamDef& OpParamDef::AutoContiguous() {
    auto_contiguous_ = true;
    return *this;
}

OpAttrDef::OpAttrDef(const char* name) : name_(name) {}
OpAttrDef& OpAttrDef::AttrType(Option attr_type) {
    required_ = attr_type != Option::OPTIONAL;
    return *this;
}
OpAttrDef& OpAttrDef::set(AttrDataType type) {
    type_ = type;
    return *this;
}
OpAttrDef& OpAttrDef::set(AttrDataType type, std::string default_text) {
    has_default_ = true;
    default_text_ = std::move(default_text);
    return set(type);
}
OpAttrDef& OpAttrDef::Bool(void) { return set(AttrDataType::ATTR_DT_BOOL); }
OpAttrDef& OpAttrDef::Bool(bool value) { return set(AttrDataType::ATTR_DT_BOOL, bool_text(value)); }
OpAttrDef& OpAttrDef::Float(void) { return set(AttrDataType::ATTR_DT_FLOAT); }
OpAttrDef& OpAttrDef::Float(float value) { return set(AttrDataType::ATTR_DT_FLOAT, number_text(value)); }
OpAttrDef& OpAttrDef::Int(void) { return set(AttrDataType::ATTR_DT_INT); }
OpAttrDef& OpAttrDef::Int(int64_t value) { return set(AttrDataType::ATTR_DT_INT, std::to_string(value)); }
OpAttrDef& OpAttrDef::String(void) { return set(AttrDataType::ATTR_DT_STR); }
OpAttrDef& OpAttrDef::String(const char* value) { return set(AttrDataType::ATTR_DT_STR, value); }
OpAttrDef& OpAttrDef::ListBool(void) { return set(AttrDataType::ATTR_DT_LIST_BOOL); }
OpAttrDef& OpAttrDef::ListBool(std::vector<bool> value) {
    return set(AttrDataType::ATTR_DT_LIST_BOOL, list_text(value, [](bool v) { return std::string(bool_text(v)); }));
}
OpAttrDef& OpAttrDef::ListFloat(void) { return set(AttrDataType::ATTR_DT_LIST_FLOAT); }
OpAttrDef& OpAttrDef::ListFloat(std::vector<float> value) {
    return set(AttrDataType::ATTR_DT_LIST_FLOAT, list_text(value, [](float v) { return number_text(v); }));
}
OpAttrDef& OpAttrDef::ListInt(void) { return set(AttrDataType::ATTR_DT_LIST_INT); }
OpAttrDef& OpAttrDef::ListInt(std::vector<int64_t> value) {
    return set(AttrDataType::ATTR_DT_LIST_INT, list_text(value, [](int64_t v) { return std::to_string(v); }));
}

OpParamDef& OpAICoreConfig::Input(const char* name) { return find_or_add(&inputs_, name, &OpParamDef::name_); }
OpParamDef& OpAICoreConfig::Output(const char* name) { return find_or_add(&outputs_, name, &OpParamDef::name_); }
OpAICoreConfig& OpAICoreConfig::ExtendCfgInfo(const char* key, const char* value) {
    items_[key] = value;
    return *this;
}
OpAICoreConfig& OpAICoreConfig::DynamicCompileStaticFlag(bool flag) {
    return ExtendCfgInfo("dynamicCompileStatic.flag", bool_text(flag));
}
OpAICoreConfig& OpAICoreConfig::DynamicFormatFlag(bool flag) {
    return ExtendCfgInfo("dynamicFormat.flag", bool_text(flag));
}
OpAICoreConfig& OpAICoreConfig::DynamicRankSupportFlag(bool flag) {
    return ExtendCfgInfo("dynamicRankSupport.flag", bool_text(flag));
}
OpAICoreConfig& OpAICoreConfig::DynamicShapeSupportFlag(bool flag) {
    return ExtendCfgInfo("dynamicShapeSupport.flag", bool_text(flag));
}
OpAICoreConfig& OpAICoreConfig::NeedCheckSupportFlag(bool flag) {
    return ExtendCfgInfo("needCheckSupport.flag", bool_text(flag));
}
OpAICoreConfig& OpAICoreConfig::PrecisionReduceFlag(bool flag) {
    return ExtendCfgInfo("precision_reduce.flag", bool_text(flag));
}

OpAICoreDef& OpAICoreDef::SetTiling(gert::OpImplRegisterV2::TilingKernelFunc function) {
    tiling_ = function;
    return *this;
}
// The defaults of a SoC without its own configuration, which include kernels for static shapes.
OpAICoreDef& OpAICoreDef::AddConfig(const char* soc) {
    OpAICoreConfig config;
    config.DynamicCompileStaticFlag(true)
        .DynamicFormatFlag(true)
        .DynamicRankSupportFlag(true)
        .DynamicShapeSupportFlag(true)
        .NeedCheckSupportFlag(false)
        .PrecisionReduceFlag(true);
    return AddConfig(soc, config);
}
OpAICoreDef& OpAICoreDef::AddConfig(const char* soc, OpAICoreConfig& aicore_config) {
    configs_[soc] = aicore_config;
    return *this;
}

OpDef::OpDef(const char* type) : type_(type) {}
OpParamDef& OpDef::Input(const char* name) { return find_or_add(&inputs_, name, &OpParamDef::name_); }
OpParamDef& OpDef::Output(const char* name) { return find_or_add(&outputs_, name, &OpParamDef::name_); }
OpAttrDef& OpDef::Attr(const char* name) { return find_or_add(&attrs_, name, &OpAttrDef::name_); }
OpDef& OpDef::SetInferShape(gert::OpImplRegisterV2::InferShapeKernelFunc function) {
    infer_shape_ = function;
    return *this;
}
OpDef& OpDef::SetInferDataType(gert::OpImplRegisterV2::InferDataTypeKernelFunc function) {
    infer_data_type_ = function;
    return *this;
}

}  // namespace ops
