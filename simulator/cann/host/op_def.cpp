// Implementation of the classes of a definition. They store the values that the definition sets.
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

// Returns the number rounded to six digits, as a C++ stream writes a float (metadef base/asc/opdef/op_def_impl.cc,
// GetAttrDefaultVal).
std::string number_text(double value) {
    char text[32];
    std::snprintf(text, sizeof text, "%g", value);
    return text;
}

template <typename T, typename ToText>
std::string list_text(const std::vector<T>& values, ToText to_text) {
    std::string text = "[";
    for (size_t i = 0; i < values.size(); ++i) text += (i ? "," : "") + to_text(values[i]);
    return text + "]";
}

const char* bool_text(bool value) { return value ? "true" : "false"; }

// Sets a member of a definition; returns the definition, for chains of calls.
template <typename Def, typename Member>
Def& assign(Def& def, Member& member, Member value) {
    member = std::move(value);
    return def;
}

}  // namespace

OpParamDef::OpParamDef(const char* name) : name_(name) {}
OpParamDef& OpParamDef::ParamType(Option param_type) { return assign(*this, param_type_, param_type); }
OpParamDef& OpParamDef::DataType(std::vector<ge::DataType> types) {
    lists_types_ = false;
    return assign(*this, types_, std::move(types));
}
OpParamDef& OpParamDef::DataTypeList(std::vector<ge::DataType> types) {
    lists_types_ = true;
    return assign(*this, types_, std::move(types));
}
OpParamDef& OpParamDef::Format(std::vector<ge::Format> formats) {
    lists_formats_ = false;
    return assign(*this, formats_, std::move(formats));
}
OpParamDef& OpParamDef::FormatList(std::vector<ge::Format> formats) {
    lists_formats_ = true;
    return assign(*this, formats_, std::move(formats));
}
OpParamDef& OpParamDef::UnknownShapeFormat(std::vector<ge::Format>) { return *this; }
OpParamDef& OpParamDef::ValueDepend(Option value_depend) { return ValueDepend(value_depend, DependScope::ALL); }
OpParamDef& OpParamDef::ValueDepend(Option, DependScope) { return assign(*this, value_depend_, true); }
OpParamDef& OpParamDef::Version(uint32_t) { return *this; }
OpParamDef& OpParamDef::Comment(const char*) { return *this; }
OpParamDef& OpParamDef::IgnoreContiguous(void) { return assign(*this, ignore_contiguous_, true); }
OpParamDef& OpParamDef::AutoContiguous() { return assign(*this, auto_contiguous_, true); }

OpAttrDef::OpAttrDef(const char* name) : name_(name) {}
OpAttrDef& OpAttrDef::AttrType(Option attr_type) { return assign(*this, required_, attr_type != Option::OPTIONAL); }
OpAttrDef& OpAttrDef::set(AttrDataType type) { return assign(*this, type_, type); }
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
    return set(AttrDataType::ATTR_DT_LIST_BOOL,
               list_text(value, [](bool element) { return std::string(bool_text(element)); }));
}
OpAttrDef& OpAttrDef::ListFloat(void) { return set(AttrDataType::ATTR_DT_LIST_FLOAT); }
OpAttrDef& OpAttrDef::ListFloat(std::vector<float> value) {
    return set(AttrDataType::ATTR_DT_LIST_FLOAT, list_text(value, [](float element) { return number_text(element); }));
}
OpAttrDef& OpAttrDef::ListInt(void) { return set(AttrDataType::ATTR_DT_LIST_INT); }
OpAttrDef& OpAttrDef::ListInt(std::vector<int64_t> value) {
    return set(AttrDataType::ATTR_DT_LIST_INT,
               list_text(value, [](int64_t element) { return std::to_string(element); }));
}

OpAttrDef& OpAttrDef::Version(uint32_t) { return *this; }
OpAttrDef& OpAttrDef::Comment(const char*) { return *this; }

OpParamDef& OpAICoreConfig::Input(const char* name) { return find_or_add(&inputs_, name, &OpParamDef::name_); }
OpParamDef& OpAICoreConfig::Output(const char* name) { return find_or_add(&outputs_, name, &OpParamDef::name_); }
OpAICoreConfig& OpAICoreConfig::ExtendCfgInfo(const char* key, const char* value) {
    items_[key] = value;
    return *this;
}
OpAICoreConfig& OpAICoreConfig::set_flag(const char* name, bool flag) {
    return ExtendCfgInfo((std::string(name) + ".flag").c_str(), bool_text(flag));
}
OpAICoreConfig& OpAICoreConfig::DynamicCompileStaticFlag(bool flag) { return set_flag("dynamicCompileStatic", flag); }
OpAICoreConfig& OpAICoreConfig::DynamicFormatFlag(bool flag) { return set_flag("dynamicFormat", flag); }
OpAICoreConfig& OpAICoreConfig::DynamicRankSupportFlag(bool flag) { return set_flag("dynamicRankSupport", flag); }
OpAICoreConfig& OpAICoreConfig::DynamicShapeSupportFlag(bool flag) { return set_flag("dynamicShapeSupport", flag); }
OpAICoreConfig& OpAICoreConfig::NeedCheckSupportFlag(bool flag) { return set_flag("needCheckSupport", flag); }
OpAICoreConfig& OpAICoreConfig::PrecisionReduceFlag(bool flag) { return set_flag("precision_reduce", flag); }

OpAICoreDef& OpAICoreDef::SetTiling(gert::OpImplRegisterV2::TilingKernelFunc function) {
    return assign(*this, tiling_, function);
}
// Adds an SoC with CANN's default flags.
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
    return assign(*this, infer_shape_, function);
}
OpDef& OpDef::SetInferDataType(gert::OpImplRegisterV2::InferDataTypeKernelFunc function) {
    return assign(*this, infer_data_type_, function);
}

}  // namespace ops
