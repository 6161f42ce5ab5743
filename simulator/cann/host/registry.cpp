// The definitions and host functions of this library's operators, by name.
#include <algorithm>
#include <cctype>
#include <map>

#include "cann/host/def_reader.h"

namespace simulated_cann {
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
        records.push_back({p.name_, p.param_type_, p.types_, p.formats_, p.ignore_contiguous_, p.auto_contiguous_,
                           p.value_depend_, p.lists_types_, p.lists_formats_});
    for (const ops::OpParamDef& p : of_soc) {
        ParamRecord* known = nullptr;
        for (ParamRecord& r : records)
            if (r.name == p.name_) known = &r;
        if (!known) {
            records.push_back({p.name_, p.param_type_, {}, {}, false, false});
            known = &records.back();
        }
        known->param_type = p.param_type_;
        if (!p.types_.empty()) {
            known->types = p.types_;
            known->lists_types = p.lists_types_;
        }
        if (!p.formats_.empty()) {
            known->formats = p.formats_;
            known->lists_formats = p.lists_formats_;
        }
        known->value_depend = known->value_depend || p.value_depend_;
        known->ignore_contiguous = p.ignore_contiguous_;
        known->auto_contiguous = p.auto_contiguous_;
    }
    return records;
}

// Combines the entries of lists with every column, in CANN's order (metadef base/asc/opdef/op_def_impl.cc,
// DfsFullPermutation): the columns outermost, then each parameter's types and formats.
void expand_lists(OpRecord* record) {
    std::vector<ParamRecord*> all;
    for (ParamRecord& p : record->inputs) all.push_back(&p);
    for (ParamRecord& p : record->outputs) all.push_back(&p);
    const bool any = std::any_of(all.begin(), all.end(), [](const ParamRecord* p) {
        return p->lists_types || (p->lists_formats && p->formats.size() > 1);
    });
    if (!any) return;
    size_t columns = 1;
    for (const ParamRecord* p : all)
        if (!p->lists_types) columns = p->types.size();
    std::vector<size_t> choices;  // of each parameter: types, formats
    for (const ParamRecord* p : all) {
        choices.push_back(p->lists_types ? p->types.size() : 1);
        choices.push_back(p->lists_formats && !p->formats.empty() ? p->formats.size() : 1);
    }
    std::vector<ParamRecord> made(all.size());
    for (size_t column = 0; column < columns; ++column) {
        std::vector<size_t> chosen(choices.size(), 0);
        for (bool more = true; more;) {
            for (size_t i = 0; i < all.size(); ++i) {
                const ParamRecord& p = *all[i];
                made[i].types.push_back(p.types.at(p.lists_types ? chosen[2 * i] : column));
                if (!p.formats.empty())
                    made[i].formats.push_back(p.formats.at(p.lists_formats ? chosen[2 * i + 1] : column));
            }
            size_t last = chosen.size();
            while (last > 0 && ++chosen[last - 1] == choices[last - 1]) chosen[--last] = 0;
            more = last > 0;
        }
    }
    for (size_t i = 0; i < all.size(); ++i) {
        all[i]->types = made[i].types;
        all[i]->formats = made[i].formats;
        all[i]->lists_types = all[i]->lists_formats = false;
    }
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
    expand_lists(record);
    return true;
}

gert::OpImplRegisterV2::TilingKernelFunc DefReader::tiling(const std::string& op_type) {
    auto found = creators().find(op_type);
    return found == creators().end() ? nullptr : found->second(op_type.c_str()).AICore().GetTiling();
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

}  // namespace simulated_cann

namespace ops {

int OpDefFactory::OpDefRegister(const char* name, OpDefCreator creator) {
    simulated_cann::creators()[name] = std::move(creator);
    return 0;
}

}  // namespace ops

namespace gert {

OpImplRegisterV2::OpImplRegisterV2(const ge::char_t* op_type) : op_type_(op_type) {}
OpImplRegisterV2& OpImplRegisterV2::InferShape(InferShapeKernelFunc function) {
    simulated_cann::functions()[op_type_].infer_shape = function;
    return *this;
}
OpImplRegisterV2& OpImplRegisterV2::InferDataType(InferDataTypeKernelFunc function) {
    simulated_cann::functions()[op_type_].infer_data_type = function;
    return *this;
}
OpImplRegisterV2& OpImplRegisterV2::Tiling(TilingKernelFunc function, size_t) {
    simulated_cann::functions()[op_type_].tiling = function;
    return *this;
}
OpImplRegisterV2& OpImplRegisterV2::TilingParse(TilingParseFunc function, CompileInfoCreatorFunc creator,
                                                CompileInfoDeleterFunc deleter) {
    simulated_cann::OpFunctions& all = simulated_cann::functions()[op_type_];
    all.tiling_parse = function;
    all.create_compile_info = creator;
    all.delete_compile_info = deleter;
    return *this;
}
OpImplRegisterV2& OpImplRegisterV2::InputsDataDependency(std::initializer_list<int32_t> inputs) {
    return TilingInputsDataDependency(inputs);
}
OpImplRegisterV2& OpImplRegisterV2::TilingInputsDataDependency(std::initializer_list<int32_t> inputs) {
    std::vector<int32_t>& all = simulated_cann::functions()[op_type_].value_inputs;
    all.insert(all.end(), inputs.begin(), inputs.end());
    return *this;
}

}  // namespace gert
