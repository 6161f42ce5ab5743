#include "cann/host/kernel_names.h"

#include "cann/host/cann_types.h"
#include "src/profile.h"

namespace simulated_cann {

ge::Format format_of(const ParamRecord& p, size_t column) {
    return p.formats.empty() ? ge::FORMAT_ND : p.formats[p.formats.size() == 1 ? 0 : column];
}

std::string simplified_key(const OpRecord& def, size_t column) {
    std::string key = def.type + "/d=0,p=0";
    for (const auto* params : {&def.inputs, &def.outputs})
        for (const ParamRecord& p : *params)
            if (p.param_type != ops::OPTIONAL)
                key += "/" + std::to_string(static_cast<int>(p.types.at(column))) + "," +
                       std::to_string(static_cast<int>(format_of(p, column)));
    return key;
}

std::vector<const ParamRecord*> distinct_parameters(const OpRecord& def) {
    std::vector<const ParamRecord*> all;
    for (const ParamRecord& p : def.inputs) all.push_back(&p);
    for (size_t o = 0; o < def.outputs.size(); ++o)
        if (def.input_of_output(o) < 0) all.push_back(&def.outputs[o]);
    return all;
}

std::string column_name(const OpRecord& def, size_t column) {
    std::string name;
    for (const ParamRecord* p : distinct_parameters(def)) {
        const TypeRow* row = find_type(p->types.at(column));
        name += (name.empty() ? "" : "_") + std::string(row ? row->kernel : "unknown");
    }
    return name;
}

bool is_simulated(const std::string& soc) { return ascend_sim::find_profile(soc.c_str()) != nullptr; }

std::string kernel_soc(const std::string& soc) {
    const ascend_sim::Profile* profile = ascend_sim::find_profile(soc.c_str());
    return profile && profile->arch == 220 ? "ascend910b" : soc;
}

std::string kernel_entry(const OpRecord& def, size_t column) {
    return snake_case(def.type) + "__" + kernel_soc(def.soc) + "__" + column_name(def, column);
}

}  // namespace simulated_cann
