// A program that generates an operator package's sources from its definitions. Like CANN's op_build, it writes to
// FOLDER:
// - for each operator, the two functions of aclnn and their header;
// - for each SoC, the operators' descriptions as JSON.
// Unlike CANN's op_build, it also writes kernels_<soc>.cpp, the source of the kernels, for each simulated SoC that has
// kernels of its own. If PACKAGE is given, it writes the kernels' files and their lists to that folder.
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

// A parameter of the first phase's function.
struct Parameter {
    std::string type, name, kind;
    const char* call_method;  // method of OpCall
    const AttrRecord* attr = nullptr;
};

// An attribute's type as text: in a parameter of the interface, and in a description.
struct AttrTexts {
    const char *in_interface, *in_description;
};
const AttrTexts& attr_texts(const AttrRecord& attr) {
    // In the order of AttrDataType.
    static constexpr AttrTexts kTexts[] = {{"bool ", "bool"},
                                           {"double ", "float"},
                                           {"int64_t ", "int"},
                                           {"char *", "str"},
                                           {"const aclBoolArray *", "listBool"},
                                           {"const aclFloatArray *", "listFloat"},
                                           {"const aclIntArray *", "listInt"}};
    return kTexts[static_cast<size_t>(attr.type)];
}

// Returns inputs, then attributes, then outputs. An input that the operator writes in place occurs once, as an input.
// Names and types follow asc-devkit tools/build/opbuild op_aclnn_generator.cpp (AclnnOpGenCodeFunInputComment and the
// functions after it): "Optional" comes after "Ref", and a tensor is const unless its name ends in "Ref".
std::vector<Parameter> interface_parameters(const OpRecord& def) {
    std::vector<Parameter> interface;
    for (const ParamRecord& param : def.inputs) {
        if (param.param_type == ops::DYNAMIC)
            throw std::runtime_error(def.type + ": lists of tensors are not generated");
        const bool is_optional = param.param_type == ops::OPTIONAL, is_written = def.is_output(param.name);
        interface.push_back({is_written && !is_optional ? "aclTensor *" : "const aclTensor *",
                             camel_case(param.name) + (is_written ? "Ref" : "") + (is_optional ? "Optional" : ""),
                             is_optional ? "optional" : "required", "input"});
    }
    for (const AttrRecord& attr : def.attrs)
        interface.push_back({attr_texts(attr).in_interface,
                             camel_case(attr.name) + (!attr.required && attr.is_pointer() ? "Optional" : ""),
                             attr.required ? "required" : "optional", "attr", &attr});
    for (size_t i = 0; i < def.outputs.size(); ++i) {
        if (def.input_of_output(i) >= 0) continue;
        const bool is_optional = def.outputs[i].param_type == ops::OPTIONAL;
        const std::string name = def.outputs.size() == 1 ? "out" : camel_case(def.outputs[i].name) + "Out";
        interface.push_back({"const aclTensor *", name + (is_optional ? "Optional" : ""),
                             is_optional ? "optional" : "required", "output"});
    }
    return interface;
}

std::string first_phase_signature(const OpRecord& def) {
    std::string text = "aclnnStatus aclnn" + def.type + "GetWorkspaceSize(\n";
    for (const Parameter& param : interface_parameters(def)) text += "    " + param.type + param.name + ",\n";
    return text + "    uint64_t *workspaceSize,\n    aclOpExecutor **executor)";
}

std::string second_phase_signature(const OpRecord& def) {
    return "aclnnStatus aclnn" + def.type +
           "(\n    void *workspace,\n    uint64_t workspaceSize,\n    aclOpExecutor *executor,\n    aclrtStream "
           "stream)";
}

std::string header_text(const OpRecord& def) {
    std::string guard = "ACLNN_";
    for (char character : snake_case(def.type))
        guard += static_cast<char>(std::toupper(static_cast<unsigned char>(character)));
    guard += "_H_";
    std::string text = "/* Generated from the operator's definition. */\n#ifndef " + guard + "\n#define " + guard +
                       "\n\n#include \"aclnn/acl_meta.h\"\n\n#ifdef __cplusplus\nextern \"C\" {\n#endif\n\n/* aclnn" +
                       def.type + "GetWorkspaceSize\n";
    for (const Parameter& param : interface_parameters(def)) text += " * " + param.name + " : " + param.kind + "\n";
    for (const ParamRecord& output : def.outputs)  // the written inputs occur a second time, as outputs
        if (def.input_of_output(&output - def.outputs.data()) >= 0)
            text += " * " + camel_case(output.name) +
                    "Ref : " + (output.param_type == ops::OPTIONAL ? "optional" : "required") + "\n";
    text += " * workspaceSize : output, bytes\n * executor : output, for the second phase\n */\n";
    const std::string visible = "__attribute__((visibility(\"default\")))\n";
    text += visible + first_phase_signature(def) + ";\n\n/* aclnn" + def.type +
            ": runs what the first phase prepared */\n" + visible + second_phase_signature(def) +
            ";\n\n#ifdef __cplusplus\n}\n#endif\n\n#endif\n";
    return text;
}

// Returns the code that passes a list attribute's default. CANN's generator writes the definition's numbers between
// braces and computes the length as the number of commas plus 1. So an empty default becomes an array without elements
// with the length 1, and the runtime reads the memory after the array (asc-devkit tools/build/opbuild
// op_aclnn_generator.cpp, AclnnoOpGenCodeAttrValue). Here the array has one element with a fixed wrong value.
std::string default_list(const AttrRecord& attr, const std::string& name) {
    const bool is_bool = attr.type == ops::AttrDataType::ATTR_DT_LIST_BOOL;
    const bool is_float = attr.type == ops::AttrDataType::ATTR_DT_LIST_FLOAT;
    const std::string values =
        attr.default_text.size() > 2 ? attr.default_text.substr(1, attr.default_text.size() - 2) : "";
    const std::string suffix = is_bool ? "Bools" : is_float ? "Floats" : "Ints";
    const auto comma_count = std::count(values.begin(), values.end(), ',');
    return std::string("        static const ") +
           (is_bool    ? "bool "
            : is_float ? "float "
                       : "int64_t ") +
           name + "Def[] = {" + (values.empty() ? "simulated_cann::kAfterEmpty" + suffix : values) +
           "};\n        call.attr(" + name + "Def, " + std::to_string(comma_count + 1) + ");\n";
}

// Returns the code that passes a parameter to OpCall. If an optional attribute is NULL, the code passes its default.
std::string argument_code(const Parameter& param) {
    const std::string call = std::string("call.") + param.call_method + "(" + param.name + ");\n";
    if (!param.attr || param.attr->required || !param.attr->is_pointer()) return "    " + call;
    return "    if (" + param.name + ") {\n        " + call + "    } else {\n" +
           (param.attr->is_list() ? default_list(*param.attr, param.name)
                                  : "        call.attr(\"" + param.attr->default_text + "\");\n") +
           "    }\n";
}

std::string source_text(const OpRecord& def) {
    std::string text = "// Generated from the operator's definition.\n#include \"aclnn_" + snake_case(def.type) +
                       ".h\"\n\n#include \"cann/host/op_call.h\"\n\nextern \"C\" {\n\n" + first_phase_signature(def) +
                       "\n{\n    simulated_cann::OpCall call(\"" + def.type + "\");\n";
    for (const Parameter& param : interface_parameters(def)) text += argument_code(param);
    text += "    return call.prepare(workspaceSize, executor);\n}\n\n" + second_phase_signature(def) +
            "\n{\n    return simulated_cann::run_prepared(workspace, workspaceSize, executor, stream);\n}\n\n}\n";
    return text;
}

const char* type_text(ge::DataType type) {
    static const std::map<ge::DataType, const char*> texts = {
        {ge::DT_FLOAT, "float32"}, {ge::DT_FLOAT16, "float16"}, {ge::DT_BF16, "bfloat16"}, {ge::DT_DOUBLE, "double"},
        {ge::DT_INT8, "int8"},     {ge::DT_UINT8, "uint8"},     {ge::DT_INT16, "int16"},   {ge::DT_UINT16, "uint16"},
        {ge::DT_INT32, "int32"},   {ge::DT_UINT32, "uint32"},   {ge::DT_INT64, "int64"},   {ge::DT_UINT64, "uint64"},
        {ge::DT_BOOL, "bool"}};
    const auto found = texts.find(type);
    if (found == texts.end()) throw std::runtime_error("type " + std::to_string(type) + " has no name in descriptions");
    return found->second;
}

std::string format_text(ge::Format format) {
    return format == ge::FORMAT_NCHW ? "NCHW" : format == ge::FORMAT_NHWC ? "NHWC" : "ND";
}

std::string description(const ParamRecord& param) {
    std::string types, formats;
    for (size_t i = 0; i < param.types.size(); ++i) {
        types += (i ? "," : "") + std::string(type_text(param.types[i]));
        formats += (i ? "," : "") + format_text(format_of(param, i));
    }
    Json json;
    json.field("name", param.name).field("dtype", types).field("format", formats).field("shape", "all");
    return json.field("paramType", param.param_type == ops::OPTIONAL ? "optional" : "required").done();
}

std::string description(const OpRecord& def) {
    Json json;
    for (size_t i = 0; i < def.inputs.size(); ++i) json.raw("input" + std::to_string(i), description(def.inputs[i]));
    for (size_t i = 0; i < def.outputs.size(); ++i) json.raw("output" + std::to_string(i), description(def.outputs[i]));
    std::string names;
    for (const AttrRecord& attr_record : def.attrs) names += (names.empty() ? "" : ",") + attr_record.name;
    if (!names.empty()) json.raw("attr", Json().field("list", names).done());
    for (const AttrRecord& attr_record : def.attrs) {
        Json attr;
        attr.field("type", attr_texts(attr_record).in_description).field("value", "all");
        attr.field("paramType", attr_record.required ? "required" : "optional");
        if (attr_record.has_default) attr.field("defaultValue", attr_record.default_text);
        json.raw("attr_" + attr_record.name, attr.done());
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

// Returns the types and formats by which CANN chooses a column's kernel. Only required tensors count (opbase
// indv_executor_ext.cpp, NnopbaseAppendDynamicTensorsKey).
std::string kernel_choice_text(const OpRecord& def, size_t column) {
    std::string key;
    for (const auto* params : {&def.inputs, &def.outputs})
        for (const ParamRecord& param : *params) {
            if (param.param_type == ops::OPTIONAL) continue;
            key +=
                param.name + " " + type_text(param.types[column]) + " " + format_text(format_of(param, column)) + ", ";
        }
    return key;
}

// Throws if a definition's columns are incomplete, if CANN cannot choose one of them, or if an input has both
// AutoContiguous() and IgnoreContiguous() (op_aclnn_generator.cpp, ValidateInputContiguousConflict).
void check_definition(const OpRecord& def) {
    for (const ParamRecord& param : def.inputs)
        if (param.auto_contiguous && param.ignore_contiguous)
            throw std::runtime_error(def.type + ": " + param.name + " must not have both AutoContiguous() and " +
                                     "IgnoreContiguous()");
    for (const auto* params : {&def.inputs, &def.outputs})
        for (const ParamRecord& param : *params)
            if (param.types.empty() || param.types.size() != def.columns())
                throw std::runtime_error(def.type + ": " + param.name + " must have " + std::to_string(def.columns()) +
                                         " types on " + def.soc + " but got " + std::to_string(param.types.size()));
    for (size_t column = 0; column < def.columns(); ++column)
        for (size_t earlier = 0; earlier < column; ++earlier)
            if (kernel_choice_text(def, column) == kernel_choice_text(def, earlier))
                throw std::runtime_error(def.type + ": columns must differ in a required tensor on " + def.soc +
                                         " but got two of " + kernel_choice_text(def, column) +
                                         "of which CANN finds one");
}

// The JSON of an SoC's two files. Each file has one member for each operator.
struct SocFiles {
    Json descriptions, kernels;
};

void write_all(const std::string& folder, const std::string& package) {
    std::map<std::string, SocFiles> socs;
    std::map<std::string, std::string> kernel_sources;  // by kernel_soc()
    for (const std::string& type : DefReader::op_types()) {
        OpRecord def;
        DefReader::read(type, "", &def);
        write_file(folder + "/aclnn_" + snake_case(type) + ".h", header_text(def));
        write_file(folder + "/aclnn_" + snake_case(type) + ".cpp", source_text(def));
        for (const std::string& soc : DefReader::socs(type)) {
            DefReader::read(type, soc, &def);
            check_definition(def);
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
