// The definitions and host functions of this library's operators, by name.
#include <algorithm>
#include <cctype>
#include <map>
#include <new>
#include <stdexcept>

#include "cann/host/def_reader.h"

namespace simulated_cann {
namespace {

// Created on first use, because registrations are static initializers, whose order is unspecified.
std::map<std::string, ops::OpDefCreator>& definition_creators() {
    static std::map<std::string, ops::OpDefCreator> creators;
    return creators;
}

std::map<std::string, OpFunctions>& registered_functions() {
    static std::map<std::string, OpFunctions> functions;
    return functions;
}

// Whether a registration found too little memory. It may not throw, because dlopen runs it: an exception would leave
// the lock of the loader taken.
bool is_incomplete = false;

// Changes the registered functions of the operator.
template <class Change>
void change_functions(const char* op_type, Change change) {
    try {
        change(&registered_functions()[op_type]);
    } catch (const std::bad_alloc&) {
        is_incomplete = true;
    }
}

}  // namespace

int OpRecord::input_of_output(size_t output) const {
    for (size_t i = 0; i < inputs.size(); ++i)
        if (inputs[i].name == outputs[output].name) return static_cast<int>(i);
    return -1;
}

bool OpRecord::is_output(const std::string& parameter) const {
    return std::any_of(outputs.begin(), outputs.end(),
                       [&](const ParamRecord& output) { return output.name == parameter; });
}

std::vector<std::string> DefReader::op_types() {
    std::vector<std::string> types;
    for (const auto& [type, creator] : definition_creators()) types.push_back(type);
    return types;
}

std::vector<std::string> DefReader::socs(const std::string& op_type) {
    std::vector<std::string> names;
    auto found = definition_creators().find(op_type);
    if (found == definition_creators().end()) return names;
    ops::OpDef def = found->second(op_type.c_str());
    for (const auto& [soc, config] : def.AICore().configs_) names.push_back(soc);
    return names;
}

// Merges the parameters that all SoCs share with those of one SoC. The SoC's values replace the shared ones, but an
// empty list replaces nothing.
std::vector<ParamRecord> DefReader::merge_params(const std::deque<ops::OpParamDef>& shared_params,
                                                 const std::deque<ops::OpParamDef>& soc_params) {
    std::vector<ParamRecord> records;
    for (const ops::OpParamDef& param : shared_params)
        records.push_back({param.name_, param.param_type_, param.types_, param.formats_, param.ignore_contiguous_,
                           param.auto_contiguous_, param.value_depend_, param.lists_types_, param.lists_formats_});
    for (const ops::OpParamDef& param : soc_params) {
        ParamRecord* known = nullptr;
        for (ParamRecord& record : records)
            if (record.name == param.name_) known = &record;
        if (!known) {
            records.push_back({param.name_, param.param_type_, {}, {}, false, false});
            known = &records.back();
        }
        known->param_type = param.param_type_;
        if (!param.types_.empty()) {
            known->types = param.types_;
            known->lists_types = param.lists_types_;
        }
        if (!param.formats_.empty()) {
            known->formats = param.formats_;
            known->lists_formats = param.lists_formats_;
        }
        known->value_depend = known->value_depend || param.value_depend_;
        known->ignore_contiguous = param.ignore_contiguous_;
        known->auto_contiguous = param.auto_contiguous_;
    }
    return records;
}

// A column is the types and formats of all parameters at one index of their lists. Replaces each column by all
// combinations of it with the entries of DataTypeList() and FormatList(). As in CANN (metadef
// base/asc/opdef/op_def_impl.cc, DfsFullPermutation), the column changes slowest, the last parameter's format fastest.
void expand_lists(OpRecord* record) {
    std::vector<ParamRecord*> params;
    for (ParamRecord& param : record->inputs) params.push_back(&param);
    for (ParamRecord& param : record->outputs) params.push_back(&param);
    const bool has_lists = std::any_of(params.begin(), params.end(), [](const ParamRecord* param) {
        return param->lists_types || (param->lists_formats && param->formats.size() > 1);
    });
    if (!has_lists) return;
    size_t columns = 1;
    for (const ParamRecord* param : params)
        if (!param->lists_types) columns = param->types.size();
    std::vector<size_t> choice_counts;  // for each parameter: the number of types, then of formats
    for (const ParamRecord* param : params) {
        choice_counts.push_back(param->lists_types ? param->types.size() : 1);
        choice_counts.push_back(param->lists_formats && !param->formats.empty() ? param->formats.size() : 1);
    }
    std::vector<ParamRecord> expanded(params.size());
    for (size_t column = 0; column < columns; ++column) {
        std::vector<size_t> chosen(choice_counts.size(), 0);
        for (bool has_next = true; has_next;) {
            for (size_t i = 0; i < params.size(); ++i) {
                const ParamRecord& param = *params[i];
                expanded[i].types.push_back(param.types.at(param.lists_types ? chosen[2 * i] : column));
                if (!param.formats.empty())
                    expanded[i].formats.push_back(param.formats.at(param.lists_formats ? chosen[2 * i + 1] : column));
            }
            // Advance to the next combination: the last choice changes first.
            size_t last = chosen.size();
            while (last > 0 && ++chosen[last - 1] == choice_counts[last - 1]) chosen[--last] = 0;
            has_next = last > 0;
        }
    }
    for (size_t i = 0; i < params.size(); ++i) {
        params[i]->types = expanded[i].types;
        params[i]->formats = expanded[i].formats;
        params[i]->lists_types = params[i]->lists_formats = false;
    }
}

bool DefReader::read(const std::string& op_type, const std::string& soc, OpRecord* record) {
    auto found = definition_creators().find(op_type);
    if (found == definition_creators().end()) return false;
    ops::OpDef def = found->second(op_type.c_str());
    const auto& configs = def.AICore().configs_;
    auto config = configs.find(soc);
    if (!soc.empty() && config == configs.end()) return false;
    ops::OpAICoreConfig none;
    const ops::OpAICoreConfig& soc_config = soc.empty() ? none : config->second;
    *record = {
        op_type, soc, merge_params(def.inputs_, soc_config.inputs_), merge_params(def.outputs_, soc_config.outputs_),
        {},      {}};
    for (const ops::OpAttrDef& attr : def.attrs_)
        record->attrs.push_back({attr.name_, attr.required_, attr.type_, attr.has_default_, attr.default_text_});
    record->items.assign(soc_config.items_.begin(), soc_config.items_.end());
    expand_lists(record);
    return true;
}

gert::OpImplRegisterV2::TilingKernelFunc DefReader::tiling(const std::string& op_type) {
    auto found = definition_creators().find(op_type);
    return found == definition_creators().end() ? nullptr : found->second(op_type.c_str()).AICore().GetTiling();
}

const OpFunctions& find_functions(const std::string& op_type) {
    static const OpFunctions none;
    if (is_incomplete)
        throw std::runtime_error(
            "too little memory when the package's operators were registered: start the process again");
    auto found = registered_functions().find(op_type);
    return found == registered_functions().end() ? none : found->second;
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

int register_operator(void (*registration)()) {
    try {
        registration();
    } catch (const std::bad_alloc&) {
        is_incomplete = true;
    }
    return 0;
}

}  // namespace simulated_cann

namespace ops {

int OpDefFactory::OpDefRegister(const char* name, OpDefCreator creator) {
    simulated_cann::definition_creators()[name] = std::move(creator);
    return 0;
}

}  // namespace ops

namespace gert {

OpImplRegisterV2::OpImplRegisterV2(const ge::char_t* op_type) : op_type_(op_type) {}
OpImplRegisterV2& OpImplRegisterV2::InferShape(InferShapeKernelFunc function) {
    simulated_cann::change_functions(op_type_, [=](auto* functions) { functions->infer_shape = function; });
    return *this;
}
OpImplRegisterV2& OpImplRegisterV2::InferDataType(InferDataTypeKernelFunc function) {
    simulated_cann::change_functions(op_type_, [=](auto* functions) { functions->infer_data_type = function; });
    return *this;
}
OpImplRegisterV2& OpImplRegisterV2::Tiling(TilingKernelFunc function, size_t) {
    simulated_cann::change_functions(op_type_, [=](auto* functions) { functions->tiling = function; });
    return *this;
}
OpImplRegisterV2& OpImplRegisterV2::TilingParse(TilingParseFunc function, CompileInfoCreatorFunc creator,
                                                CompileInfoDeleterFunc deleter) {
    simulated_cann::change_functions(op_type_, [=](auto* functions) {
        functions->tiling_parse = function;
        functions->create_compile_info = creator;
        functions->delete_compile_info = deleter;
    });
    return *this;
}
OpImplRegisterV2& OpImplRegisterV2::InputsDataDependency(std::initializer_list<int32_t> inputs) {
    return TilingInputsDataDependency(inputs);
}
OpImplRegisterV2& OpImplRegisterV2::TilingInputsDataDependency(std::initializer_list<int32_t> inputs) {
    simulated_cann::change_functions(op_type_, [&](auto* functions) {
        functions->value_inputs.insert(functions->value_inputs.end(), inputs.begin(), inputs.end());
    });
    return *this;
}

}  // namespace gert
