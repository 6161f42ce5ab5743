// The definitions and host functions of this library's operators, by name.
#include <algorithm>
#include <cctype>
#include <map>

#include "cann/host/def_reader.h"

namespace npu_cann {
namespace {

// Created on first use, because registrations are static initializers, whose order is unspecified.
std::map<std::string, ops::OpDefCreator>& creators() {
    static std::map<std::string, ops::OpDefCreator> all;
    return all;
}

std::map<std::string, OpFunctions>& functions() {
    static std::map<std::string, OpFunctions> all;
    return all;
}

}  // namespace

int OpRecord::input_of_output(size_t output) const {
    for (size_t i = 0; i < inputs.size(); ++i)
        if (inputs[i].name == outputs[output].name) return static_cast<int>(i);
    return -1;
}

bool OpRecord::is_output(const std::string& parameter) const {
    return std::any_of(outputs.begin(), outputs.end(), [&](const ParamRecord& o) { return o.name == parameter; });
}

std::vector<std::string> DefReader::op_types() {
    std::vector<std::string> types;
    for (const auto& [type, creator] : creators()) types.push_back(type);
    return types;
}

std::vector<std::string> DefReader::socs(const std::string& op_type) {
    std::vector<std::string> names;
    auto found = creators().find(op_type);
    if (found == creators().end()) return names;
    ops::OpDef def = found->second(op_type.c_str());
    for (const auto& [soc, config] : def.AICore().configs_) names.push_back(soc);
    return names;
}

// Merges the parameters for all SoCs with those of one SoC. The SoC's values replace the others, except empty lists.
std::vector<ParamRecord> DefReader::merged(const std::deque<ops::OpParamDef>& all,
                                           const std::deque<ops::OpParamDef>& of_soc) {
    std::vector<ParamRecord> records;
    for (const ops::OpParamDef& p : all)
        records.push_back({p.name_, p.param_type_, p.types_, p.formats_, p.ignore_contiguous_, p.auto_contiguous_});
    for (const ops::OpParamDef& p : of_soc) {
        ParamRecord* known = nullptr;
        for (ParamRecord& r : records)
            if (r.name == p.name_) known = &r;
        if (!known) {
            records.push_back({p.name_, p.param_type_, {}, {}, false, false});
            known = &records.back();
        }
        known->param_type = p.param_type_;
        if (!p.types_.empty()) known->types = p.types_;
        if (!p.formats_.empty()) known->formats = p.formats_;
        known->ignore_contiguous = p.ignore_contiguous_;
        known->auto_contiguous = p.auto_contiguous_;
    }
    return records;
}

bool DefReader::read(const std::string& op_type, const std::string& soc, OpRecord* record) {
    auto found = creators().find(op_type);
    if (found == creators().end()) return false;
    ops::OpDef def = found->second(op_type.c_str());
    const auto& configs = def.AICore().configs_;
    auto config = configs.find(soc);
    if (!soc.empty() && config == configs.end()) return false;
    ops::OpAICoreConfig none;
    const ops::OpAICoreConfig& of_soc = soc.empty() ? none : config->second;
    *record = {op_type, soc, merged(def.inputs_, of_soc.inputs_), merged(def.outputs_, of_soc.outputs_), {}, {}};
    for (const ops::OpAttrDef& a : def.attrs_)
        record->attrs.push_back({a.name_, a.required_, a.type_, a.has_default_, a.default_text_});
    record->items.assign(of_soc.items_.begin(), of_soc.items_.end());
    return true;
}

const OpFunctions& find_functions(const std::string& op_type) {
    static const OpFunctions none;
    auto found = functions().find(op_type);
    return found == functions().end() ? none : found->second;
}

// A capital begins a word if no capital precedes it or a lower-case letter follows it (asc-devkit tools/build/opbuild
// op_generator.cpp, ConvertToSnakeCase).
std::string snake_case(const std::string& op_type) {
    auto is_upper = [&](size_t i) { return std::isupper(static_cast<unsigned char>(op_type[i])) != 0; };
    std::string name;
    for (size_t i = 0; i < op_type.size(); ++i) {
        const bool is_before_lower = i + 1 < op_type.size() && std::islower(static_cast<unsigned char>(op_type[i + 1]));
        if (i > 0 && is_upper(i) && op_type[i - 1] != '_' && (!is_upper(i - 1) || is_before_lower)) name += '_';
        name += static_cast<char>(std::tolower(static_cast<unsigned char>(op_type[i])));
    }
    return name;
}

}  // namespace npu_cann

namespace ops {

int OpDefFactory::OpDefRegister(const char* name, OpDefCreator creator) {
    npu_cann::creators()[name] = std::move(creator);
    return 0;
}

}  // namespace ops

namespace gert {

OpImplRegisterV2::OpImplRegisterV2(const ge::char_t* op_type) : op_type_(op_type) {}
OpImplRegisterV2& OpImplRegisterV2::InferShape(InferShapeKernelFunc function) {
    npu_cann::functions()[op_type_].infer_shape = function;
    return *this;
}
OpImplRegisterV2& OpImplRegisterV2::InferDataType(InferDataTypeKernelFunc function) {
    npu_cann::functions()[op_type_].infer_data_type = function;
    return *this;
}
OpImplRegisterV2& OpImplRegisterV2::Tiling(TilingKernelFunc function, size_t) {
    npu_cann::functions()[op_type_].tiling = function;
    return *this;
}

}  // namespace gert
