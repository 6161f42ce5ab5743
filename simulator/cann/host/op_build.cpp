// Writes an operator package's sources to FOLDER from its definitions, as CANN's op_build does:
// - for each operator, the two functions of aclnn and their header;
// - for each SoC, the operators' descriptions as JSON;
// - beyond CANN's op_build, for each simulated SoC with kernels of its own, their source kernels_<soc>.cpp.
// If PACKAGE is given, also writes the files of these kernels and their lists there.
//
// usage: op_build FOLDER [PACKAGE]
#include <algorithm>
#include <cstdio>
#include <map>
#include <stdexcept>

#include "cann/host/kernel_names.h"
#include "cann/host/package_writer.h"
#include "src/json.h"

namespace simulated_cann {
namespace {

using ascend_sim::Json;

// "freq_factors" becomes "freqFactors"; the first letter is always lower case.
std::string camel_case(const std::string& name) {
    std::string camel;
    for (size_t i = 0; i < name.size(); ++i) {
        if (name[i] == '_' && i + 1 < name.size())
            camel += static_cast<char>(std::toupper(static_cast<unsigned char>(name[++i])));
        else
            camel += name[i];
    }
    if (!camel.empty()) camel[0] = static_cast<char>(std::tolower(static_cast<unsigned char>(camel[0])));
    return camel;
}

struct Parameter {
    std::string type, name, kind;
    const char* call_method;  // method of OpCall
    const AttrRecord* attr = nullptr;
};

// The texts of an attribute's type: in a parameter of the interface, and in a description.
struct AttrTexts {
    const char *argument, *described;
};
const AttrTexts& texts_of(const AttrRecord& a) {
    // In the order of AttrDataType.
    static constexpr AttrTexts kTexts[] = {{"bool ", "bool"},
                                           {"double ", "float"},
                                           {"int64_t ", "int"},
                                           {"char *", "str"},
                                           {"const aclBoolArray *", "listBool"},
                                           {"const aclFloatArray *", "listFloat"},
                                           {"const aclIntArray *", "listInt"}};
    return kTexts[static_cast<size_t>(a.type)];
}

// Inputs, then attributes, then outputs. An input that is written occurs once, as an input. Names and types follow
// asc-devkit tools/build/opbuild op_aclnn_generator.cpp (AclnnOpGenCodeFunInputComment and its neighbours): "Optional"
// follows "Ref", and a tensor whose name does not end in "Ref" is const.
std::vector<Parameter> parameters(const OpRecord& def) {
    std::vector<Parameter> all;
    for (const ParamRecord& p : def.inputs) {
        if (p.param_type == ops::DYNAMIC) throw std::runtime_error(def.type + ": lists of tensors are not generated");
        const bool optional = p.param_type == ops::OPTIONAL, written = def.is_output(p.name);
        all.push_back({written && !optional ? "aclTensor *" : "const aclTensor *",
                       camel_case(p.name) + (written ? "Ref" : "") + (optional ? "Optional" : ""),
                       optional ? "optional" : "required", "input"});
    }
    for (const AttrRecord& a : def.attrs)
        all.push_back({texts_of(a).argument, camel_case(a.name) + (!a.required && a.is_pointer() ? "Optional" : ""),
                       a.required ? "required" : "optional", "attr", &a});
    for (size_t i = 0; i < def.outputs.size(); ++i) {
        if (def.input_of_output(i) >= 0) continue;
        const bool optional = def.outputs[i].param_type == ops::OPTIONAL;
        const std::string name = def.outputs.size() == 1 ? "out" : camel_case(def.outputs[i].name) + "Out";
        all.push_back(
            {"const aclTensor *", name + (optional ? "Optional" : ""), optional ? "optional" : "required", "output"});
    }
    return all;
}

std::string first_phase_signature(const OpRecord& def) {
    std::string text = "aclnnStatus aclnn" + def.type + "GetWorkspaceSize(\n";
    for (const Parameter& p : parameters(def)) text += "    " + p.type + p.name + ",\n";
    return text + "    uint64_t *workspaceSize,\n    aclOpExecutor **executor)";
}

std::string second_phase_signature(const OpRecord& def) {
    return "aclnnStatus aclnn" + def.type +
           "(\n    void *workspace,\n    uint64_t workspaceSize,\n    aclOpExecutor *executor,\n    aclrtStream "
           "stream)";
}

std::string header(const OpRecord& def) {
    std::string guard = "ACLNN_";
    for (char c : snake_case(def.type)) guard += static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    guard += "_H_";
    std::string text = "/* Generated from the operator's definition. */\n#ifndef " + guard + "\n#define " + guard +
                       "\n\n#include \"aclnn/acl_meta.h\"\n\n#ifdef __cplusplus\nextern \"C\" {\n#endif\n\n/* aclnn" +
                       def.type + "GetWorkspaceSize\n";
    for (const Parameter& p : parameters(def)) text += " * " + p.name + " : " + p.kind + "\n";
    for (const ParamRecord& o : def.outputs)  // lists the inputs that are written again, as outputs
        if (def.input_of_output(&o - def.outputs.data()) >= 0)
            text += " * " + camel_case(o.name) + "Ref : " + (o.param_type == ops::OPTIONAL ? "optional" : "required") +
                    "\n";
    text += " * workspaceSize : output, bytes\n * executor : output, for the second phase\n */\n";
    const std::string visible = "__attribute__((visibility(\"default\")))\n";
    text += visible + first_phase_signature(def) + ";\n\n/* aclnn" + def.type +
            ": runs what the first phase prepared */\n" + visible + second_phase_signature(def) +
            ";\n\n#ifdef __cplusplus\n}\n#endif\n\n#endif\n";
    return text;
}

// The code that passes a list attribute's default. CANN's generator writes the definition's numbers between braces and
// counts the commas, so an empty default becomes an array without elements and a length of 1: the runtime reads the
// memory after it (asc-devkit tools/build/opbuild op_aclnn_generator.cpp, AclnnoOpGenCodeAttrValue). Here this memory
// holds a fixed wrong value.
std::string default_list(const AttrRecord& a, const std::string& name) {
    const bool bools = a.type == ops::AttrDataType::ATTR_DT_LIST_BOOL;
    const bool floats = a.type == ops::AttrDataType::ATTR_DT_LIST_FLOAT;
    const std::string inner = a.default_text.size() > 2 ? a.default_text.substr(1, a.default_text.size() - 2) : "";
    const std::string suffix = bools ? "Bools" : floats ? "Floats" : "Ints";
    const auto commas = std::count(inner.begin(), inner.end(), ',');
    return std::string("        static const ") +
           (bools    ? "bool "
            : floats ? "float "
                     : "int64_t ") +
           name + "Def[] = {" + (inner.empty() ? "simulated_cann::kBehindEmpty" + suffix : inner) +
           "};\n        call.attr(" + name + "Def, " + std::to_string(commas + 1) + ");\n";
}

// The code that passes a parameter to OpCall. If an optional attribute is NULL, the code passes its default.
std::string code_of_argument(const Parameter& p) {
    const std::string call = std::string("call.") + p.call_method + "(" + p.name + ");\n";
    if (!p.attr || p.attr->required || !p.attr->is_pointer()) return "    " + call;
    return "    if (" + p.name + ") {\n        " + call + "    } else {\n" +
           (p.attr->is_list() ? default_list(*p.attr, p.name)
                              : "        call.attr(\"" + p.attr->default_text + "\");\n") +
           "    }\n";
}

std::string source(const OpRecord& def) {
    std::string text = "// Generated from the operator's definition.\n#include \"aclnn_" + snake_case(def.type) +
                       ".h\"\n\n#include \"cann/host/op_call.h\"\n\nextern \"C\" {\n\n" + first_phase_signature(def) +
                       "\n{\n    simulated_cann::OpCall call(\"" + def.type + "\");\n";
    for (const Parameter& p : parameters(def)) text += code_of_argument(p);
    text += "    return call.prepare(workspaceSize, executor);\n}\n\n" + second_phase_signature(def) +
            "\n{\n    return simulated_cann::run_prepared(workspace, workspaceSize, executor, stream);\n}\n\n}\n";
    return text;
}

const char* type_text(ge::DataType type) {
    static const std::map<ge::DataType, const char*> texts = {
        {ge::DT_FLOAT, "float32"}, {ge::DT_FLOAT16, "float16"}, {ge::DT_BF16, "bfloat16"},
        {ge::DT_DOUBLE, "double"}, {ge::DT_INT8, "int8"},       {ge::DT_UINT8, "uint8"},
        {ge::DT_INT32, "int32"},   {ge::DT_INT64, "int64"},     {ge::DT_BOOL, "bool"}};
    const auto found = texts.find(type);
    if (found == texts.end()) throw std::runtime_error("type " + std::to_string(type) + " has no name in descriptions");
    return found->second;
}

std::string format_text(ge::Format format) {
    return format == ge::FORMAT_NCHW ? "NCHW" : format == ge::FORMAT_NHWC ? "NHWC" : "ND";
}

std::string description(const ParamRecord& p) {
    std::string types, formats;
    for (size_t i = 0; i < p.types.size(); ++i) {
        types += (i ? "," : "") + std::string(type_text(p.types[i]));
        formats += (i ? "," : "") + format_text(format_of(p, i));
    }
    Json json;
    json.field("name", p.name).field("dtype", types).field("format", formats).field("shape", "all");
    return json.field("paramType", p.param_type == ops::OPTIONAL ? "optional" : "required").done();
}

std::string description(const OpRecord& def) {
    Json json;
    for (size_t i = 0; i < def.inputs.size(); ++i) json.raw("input" + std::to_string(i), description(def.inputs[i]));
    for (size_t i = 0; i < def.outputs.size(); ++i) json.raw("output" + std::to_string(i), description(def.outputs[i]));
    std::string names;
    for (const AttrRecord& a : def.attrs) names += (names.empty() ? "" : ",") + a.name;
    if (!names.empty()) json.raw("attr", Json().field("list", names).done());
    for (const AttrRecord& a : def.attrs) {
        Json attr;
        attr.field("type", texts_of(a).described).field("value", "all");
        attr.field("paramType", a.required ? "required" : "optional");
        if (a.has_default) attr.field("defaultValue", a.default_text);
        json.raw("attr_" + a.name, attr.done());
    }
    std::map<std::string, Json> items;
    for (const auto& [item, value] : def.items) {
        const size_t dot = item.find('.');
        items[item.substr(0, dot)].field(dot == std::string::npos ? "value" : item.substr(dot + 1), value);
    }
    // Defaults of operators whose definition does not set them (asc-devkit tools/build/opbuild op_cfg_generator.cpp).
    items.try_emplace("coreType", Json().field("value", "AiCore"));
    items.try_emplace("prebuildPattern", Json().field("value", "Opaque"));
    for (const char* file : {"opFile", "opInterface"}) items[file].field("value", snake_case(def.type));
    for (const auto& [section, item] : items) json.raw(section, item.done());
    return json.done();
}

// The types and formats by which CANN chooses a kernel: those of the required tensors (opbase
// indv_executor_ext.cpp, NnopbaseAppendDynamicTensorsKey).
std::string kernel_key(const OpRecord& def, size_t column) {
    std::string key;
    for (const auto* params : {&def.inputs, &def.outputs})
        for (const ParamRecord& p : *params) {
            if (p.param_type == ops::OPTIONAL) continue;
            key += p.name + " " + type_text(p.types[column]) + " " + format_text(format_of(p, column)) + ", ";
        }
    return key;
}

// Checks that a definition's columns are complete and that CANN can choose each of them. The generator refuses
// contradictory policies for views (op_aclnn_generator.cpp, ValidateInputContiguousConflict).
void check(const OpRecord& def) {
    for (const ParamRecord& p : def.inputs)
        if (p.auto_contiguous && p.ignore_contiguous)
            throw std::runtime_error(def.type + ": " + p.name + " must not have both AutoContiguous() and " +
                                     "IgnoreContiguous()");
    for (const auto* params : {&def.inputs, &def.outputs})
        for (const ParamRecord& p : *params)
            if (p.types.empty() || p.types.size() != def.columns())
                throw std::runtime_error(def.type + ": " + p.name + " must have " + std::to_string(def.columns()) +
                                         " types on " + def.soc + " but got " + std::to_string(p.types.size()));
    for (size_t column = 0; column < def.columns(); ++column)
        for (size_t before = 0; before < column; ++before)
            if (kernel_key(def, column) == kernel_key(def, before))
                throw std::runtime_error(def.type + ": columns must differ in a required tensor on " + def.soc +
                                         " but got two of " + kernel_key(def, column) + "of which CANN finds one");
}

// The JSON of an SoC's two files, with one member for each operator.
struct Soc {
    Json descriptions, kernels;
};

void write_all(const std::string& folder, const std::string& package) {
    std::map<std::string, Soc> socs;
    std::map<std::string, std::string> kernel_sources;  // by kernel_soc()
    for (const std::string& type : DefReader::op_types()) {
        OpRecord def;
        DefReader::read(type, "", &def);
        write_file(folder + "/aclnn_" + snake_case(type) + ".h", header(def));
        write_file(folder + "/aclnn_" + snake_case(type) + ".cpp", source(def));
        for (const std::string& soc : DefReader::socs(type)) {
            DefReader::read(type, soc, &def);
            check(def);
            socs[soc].descriptions.raw(type, description(def));
            if (!is_simulated(soc)) continue;
            add_kernels_to_source(def, &kernel_sources[kernel_soc(soc)]);
            if (!package.empty()) socs[soc].kernels.raw(type, write_kernels(package, def));
        }
    }
    for (const auto& [soc, text] : kernel_sources)
        write_file(folder + "/kernels_" + soc + ".cpp", "// Generated from the operators' definitions.\n" + text);
    for (const auto& [soc, files] : socs) {
        write_file(folder + "/aic-" + soc + "-ops-info.json", files.descriptions.done() + "\n");
        if (!package.empty() && is_simulated(soc)) write_kernel_list(package, soc, files.kernels.done());
    }
}

}  // namespace
}  // namespace simulated_cann

int main(int argc, char** argv) {
    if (argc != 2 && argc != 3) {
        std::fprintf(stderr, "usage: op_build FOLDER [PACKAGE]\n");
        return 2;
    }
    try {
        simulated_cann::write_all(argv[1], argc == 3 ? argv[2] : "");
    } catch (const std::exception& e) {
        std::fprintf(stderr, "op_build: %s\n", e.what());
        return 1;
    }
    return 0;
}
