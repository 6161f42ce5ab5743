// Writes an operator package's sources from its definitions, as CANN's op_build does: for each operator the two
// functions of aclnn with their header, and for each SoC the operators' description as JSON; beyond CANN's op_build,
// for each simulated SoC the source <operator>__<soc>.cpp of its kernels. If PACKAGE is given, also writes the files of
// these kernels and their lists there.
//
// usage: op_build FOLDER [PACKAGE]
#include <algorithm>
#include <cstdio>
#include <map>
#include <stdexcept>

#include "cann/host/kernel_names.h"
#include "cann/host/package_writer.h"

namespace npu_cann {
namespace {

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
    const char* handed_to;  // method of OpCall
    const AttrRecord* attr = nullptr;
};

// In the order of AttrDataType.
struct AttrTexts {
    const char *argument, *described;
};
const AttrTexts& texts_of(const AttrRecord& a) {
    static constexpr AttrTexts kTexts[] = {{"bool ", "bool"},
                                           {"double ", "float"},
                                           {"int64_t ", "int"},
                                           {"char *", "str"},
                                           {"const aclBoolArray *", "listBool"},
                                           {"const aclFloatArray *", "listFloat"},
                                           {"const aclIntArray *", "listInt"}};
    return kTexts[static_cast<size_t>(a.type)];
}

bool is_output_too(const OpRecord& def, const std::string& input) {
    for (const ParamRecord& o : def.outputs)
        if (o.name == input) return true;
    return false;
}

// Inputs, attributes, outputs; an input that is written occurs once, as an input. Names and types follow
// asc-devkit tools/build/opbuild op_aclnn_generator.cpp (AclnnOpGenCodeFunInputComment and its neighbours): "Optional"
// follows "Ref", and a tensor whose name does not end in "Ref" is const.
std::vector<Parameter> parameters(const OpRecord& def) {
    std::vector<Parameter> all;
    for (const ParamRecord& p : def.inputs) {
        if (p.param_type == ops::DYNAMIC) throw std::runtime_error(def.type + ": lists of tensors are not generated");
        const bool optional = p.param_type == ops::OPTIONAL, written = is_output_too(def, p.name);
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

std::string first_phase(const OpRecord& def) {
    std::string text = "aclnnStatus aclnn" + def.type + "GetWorkspaceSize(\n";
    for (const Parameter& p : parameters(def)) text += "    " + p.type + p.name + ",\n";
    return text + "    uint64_t *workspaceSize,\n    aclOpExecutor **executor)";
}

std::string second_phase(const OpRecord& def) {
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
    for (const ParamRecord& o : def.outputs)  // once more, as an output
        if (def.input_of_output(&o - def.outputs.data()) >= 0)
            text += " * " + camel_case(o.name) + "Ref : " + (o.param_type == ops::OPTIONAL ? "optional" : "required") +
                    "\n";
    text += " * workspaceSize : output, bytes\n * executor : output, for the second phase\n */\n";
    const std::string visible = "__attribute__((visibility(\"default\")))\n";
    text += visible + first_phase(def) + ";\n\n/* aclnn" + def.type + ": runs what the first phase prepared */\n" +
            visible + second_phase(def) + ";\n\n#ifdef __cplusplus\n}\n#endif\n\n#endif\n";
    return text;
}

// A default as a C++ literal. CANN's generator writes the definition's numbers between braces and counts the commas,
// so an empty default becomes an array without elements and a length of 1: the runtime reads the memory after it
// (asc-devkit tools/build/opbuild op_aclnn_generator.cpp, AclnnoOpGenCodeAttrValue). Here this memory holds a fixed
// wrong value.
std::string default_list(const AttrRecord& a, const std::string& name) {
    const bool bools = a.type == ops::AttrDataType::ATTR_DT_LIST_BOOL;
    const bool floats = a.type == ops::AttrDataType::ATTR_DT_LIST_FLOAT;
    const std::string inner = a.default_text.size() > 2 ? a.default_text.substr(1, a.default_text.size() - 2) : "";
    const std::string behind = bools ? "Bools" : floats ? "Floats" : "Ints";
    const auto commas = std::count(inner.begin(), inner.end(), ',');
    return std::string("        static const ") +
           (bools    ? "bool "
            : floats ? "float "
                     : "int64_t ") +
           name + "Def[] = {" + (inner.empty() ? "npu_cann::kBehindEmpty" + behind : inner) + "};\n        call.attr(" +
           name + "Def, " + std::to_string(commas + 1) + ");\n";
}

// The code that passes a parameter to OpCall. An optional attribute that is NULL has the literal of its default.
std::string hand_over(const Parameter& p) {
    const std::string call = std::string("call.") + p.handed_to + "(" + p.name + ");\n";
    if (!p.attr || p.attr->required || !p.attr->is_pointer()) return "    " + call;
    return "    if (" + p.name + ") {\n        " + call + "    } else {\n" +
           (p.attr->is_list() ? default_list(*p.attr, p.name)
                              : "        call.attr(\"" + p.attr->default_text + "\");\n") +
           "    }\n";
}

std::string source(const OpRecord& def) {
    std::string text = "// Generated from the operator's definition.\n#include \"aclnn_" + snake_case(def.type) +
                       ".h\"\n\n#include \"cann/host/op_call.h\"\n\nextern \"C\" {\n\n" + first_phase(def) +
                       "\n{\n    npu_cann::OpCall call(\"" + def.type + "\");\n";
    for (const Parameter& p : parameters(def)) text += hand_over(p);
    text += "    return call.prepare(workspaceSize, executor);\n}\n\n" + second_phase(def) +
            "\n{\n    return npu_cann::run_prepared(workspace, workspaceSize, executor, stream);\n}\n\n}\n";
    return text;
}

const char* type_text(ge::DataType type) {
    static const std::map<ge::DataType, const char*> texts = {
        {ge::DT_FLOAT, "float32"}, {ge::DT_FLOAT16, "float16"}, {ge::DT_BF16, "bfloat16"},
        {ge::DT_DOUBLE, "double"}, {ge::DT_INT8, "int8"},       {ge::DT_UINT8, "uint8"},
        {ge::DT_INT32, "int32"},   {ge::DT_INT64, "int64"},     {ge::DT_BOOL, "bool"}};
    const auto found = texts.find(type);
    if (found == texts.end()) throw std::runtime_error("a type that is not described");
    return found->second;
}

std::string format_text(ge::Format format) {
    return format == ge::FORMAT_NCHW ? "NCHW" : format == ge::FORMAT_NHWC ? "NHWC" : "ND";
}

// Sections of "key": "value", in the order in which they are added.
class Json {
public:
    void add(const std::string& section, const std::string& key, const std::string& value) {
        if (sections_.empty() || sections_.back().first != section) sections_.push_back({section, ""});
        std::string& body = sections_.back().second;
        body += (body.empty() ? "" : ", ") + quoted(key) + ": " + quoted(value);
    }
    std::string text(const std::string& indent) const {
        std::string all;
        for (const auto& [name, body] : sections_)
            all += (all.empty() ? "" : ",\n") + indent + quoted(name) + ": {" + body + "}";
        return all;
    }
    static std::string quoted(const std::string& s) { return "\"" + s + "\""; }

private:
    std::vector<std::pair<std::string, std::string>> sections_;
};

void describe(const std::string& section, const ParamRecord& p, Json* json) {
    std::string types, formats;
    for (size_t i = 0; i < p.types.size(); ++i) {
        types += (i ? "," : "") + std::string(type_text(p.types[i]));
        formats += (i ? "," : "") + format_text(format_of(p, i));
    }
    json->add(section, "name", p.name);
    json->add(section, "dtype", types);
    json->add(section, "format", formats);
    json->add(section, "shape", "all");
    json->add(section, "paramType", p.param_type == ops::OPTIONAL ? "optional" : "required");
}

std::string description(const OpRecord& def) {
    Json json;
    for (size_t i = 0; i < def.inputs.size(); ++i) describe("input" + std::to_string(i), def.inputs[i], &json);
    for (size_t i = 0; i < def.outputs.size(); ++i) describe("output" + std::to_string(i), def.outputs[i], &json);
    std::string names;
    for (const AttrRecord& a : def.attrs) names += (names.empty() ? "" : ",") + a.name;
    if (!names.empty()) json.add("attr", "list", names);
    for (const AttrRecord& a : def.attrs) {
        json.add("attr_" + a.name, "type", texts_of(a).described);
        json.add("attr_" + a.name, "value", "all");
        json.add("attr_" + a.name, "paramType", a.required ? "required" : "optional");
        if (a.has_default) json.add("attr_" + a.name, "defaultValue", a.default_text);
    }
    for (const auto& [item, value] : def.items) {
        size_t dot = item.find('.');
        json.add(item.substr(0, dot), dot == std::string::npos ? "value" : item.substr(dot + 1), value);
    }
    auto says = [&](const std::string& section) {
        return std::any_of(def.items.begin(), def.items.end(),
                           [&](const auto& item) { return item.first == section + ".value"; });
    };
    // Defaults of operators whose definition does not set them (asc-devkit tools/build/opbuild op_cfg_generator.cpp).
    if (!says("coreType")) json.add("coreType", "value", "AiCore");
    if (!says("prebuildPattern")) json.add("prebuildPattern", "value", "Opaque");
    json.add("opFile", "value", snake_case(def.type));
    json.add("opInterface", "value", snake_case(def.type));
    return Json::quoted(def.type) + ": {\n" + json.text("    ") + "\n  }";
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

struct Soc {
    std::string name, descriptions, kernels;  // of its operators
};

void write_all(const std::string& folder, const std::string& package) {
    std::vector<Soc> socs;
    std::map<std::string, std::string> kernel_sources;  // by the name of the library
    for (const std::string& type : DefReader::op_types()) {
        OpRecord def;
        DefReader::read(type, "", &def);
        write_file(folder + "/aclnn_" + snake_case(type) + ".h", header(def));
        write_file(folder + "/aclnn_" + snake_case(type) + ".cpp", source(def));
        for (const std::string& soc : DefReader::socs(type)) {
            DefReader::read(type, soc, &def);
            check(def);
            size_t at = 0;
            while (at < socs.size() && socs[at].name != soc) ++at;
            if (at == socs.size()) socs.push_back({soc, "", ""});
            auto add = [](std::string* all, const std::string& one) { *all += (all->empty() ? "" : ",\n  ") + one; };
            add(&socs[at].descriptions, description(def));
            if (!is_simulated(soc)) continue;
            add_kernels_to_source(def, &kernel_sources[kernel_library(type, soc)]);
            if (!package.empty()) add(&socs[at].kernels, write_kernels(package, def));
        }
    }
    // The build declares a library for each operator and SoC. An operator without the SoC has no kernel in it.
    for (const std::string& type : DefReader::op_types())
        for (const Soc& soc : socs)
            if (is_simulated(soc.name)) kernel_sources[kernel_library(type, soc.name)];
    for (const auto& [library, text] : kernel_sources)
        write_file(folder + "/" + library + ".cpp", "// Generated from the operator's definition.\n" + text);
    for (const Soc& soc : socs) {
        write_file(folder + "/aic-" + soc.name + "-ops-info.json", "{\n  " + soc.descriptions + "\n}\n");
        if (!soc.kernels.empty()) write_kernel_list(package, soc.name, soc.kernels);
    }
}

}  // namespace
}  // namespace npu_cann

int main(int argc, char** argv) {
    if (argc != 2 && argc != 3) {
        std::fprintf(stderr, "usage: op_build FOLDER [PACKAGE]\n");
        return 2;
    }
    try {
        npu_cann::write_all(argv[1], argc == 3 ? argv[2] : "");
    } catch (const std::exception& e) {
        std::fprintf(stderr, "op_build: %s\n", e.what());
        return 1;
    }
    return 0;
}
