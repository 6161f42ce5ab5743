#include "cann/host/kernel_names.h"

#include "cann/host/cann_types.h"
#include "src/chips.h"
#include "src/profile.h"

namespace simulated_cann {

ge::Format format_of(const ParamRecord& param, size_t column) {
    return param.formats.empty() ? ge::FORMAT_ND : param.formats[param.formats.size() == 1 ? 0 : column];
}

std::string simplified_key(const OpRecord& def, size_t column) {
    std::string key = def.type + "/d=0,p=0";
    for (const auto* params : {&def.inputs, &def.outputs})
        for (const ParamRecord& param : *params)
            if (param.param_type != ops::OPTIONAL)
                key += "/" + std::to_string(static_cast<int>(param.types.at(column))) + "," +
                       std::to_string(static_cast<int>(format_of(param, column)));
    return key;
}

std::vector<const ParamRecord*> distinct_parameters(const OpRecord& def) {
    std::vector<const ParamRecord*> params;
    for (const ParamRecord& param : def.inputs) params.push_back(&param);
    for (size_t i = 0; i < def.outputs.size(); ++i)
        if (def.input_of_output(i) < 0) params.push_back(&def.outputs[i]);
    return params;
}

std::string column_name(const OpRecord& def, size_t column) {
    std::string name;
    for (const ParamRecord* param : distinct_parameters(def)) {
        const TypeRow* row = find_type(param->types.at(column));
        name += (name.empty() ? "" : "_") + std::string(row ? row->kernel_type : "unknown");
    }
    return name;
}

bool is_simulated(const std::string& soc) { return ascend_sim::find_profile(soc.c_str()) != nullptr; }

std::string kernel_soc(const std::string& soc) {
    const ascend_sim::Profile* profile = ascend_sim::find_profile(soc.c_str());
    return profile && profile->arch == ascend_sim::kArch910b ? "ascend910b" : soc;
}

std::string kernel_entry(const OpRecord& def, size_t column) {
    return snake_case(def.type) + "__" + kernel_soc(def.soc) + "__" + column_name(def, column);
}

}  // namespace simulated_cann
