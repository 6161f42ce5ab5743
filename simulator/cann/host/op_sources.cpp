// A program that executes the definition and the tiling of an operator. It is linked with the objects of the operator's
// host code and with libascend_sim_host. ascend_sim/operator_sources.py builds and uses it.
//
// The program reads requests from standard input and writes replies to standard output, one JSON object on each line:
//   {"do": "describe", "soc": "ascend910b"}   the definitions of the library's operators for an SoC
//   {"do": "tile", "op": "RmsNorm", ...}      the tiling of a call, see tile()
//   {"do": "header", "op": "RmsNorm"}         the kernel's tiling structs
// Output of the operator's own code goes to standard error. If a request fails, the reply has the member "error".
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <map>
#include <stdexcept>

#include "cann/host/def_reader.h"
#include "cann/host/json_reader.h"
#include "cann/host/kernel_header.h"
#include "cann/host/kernel_names.h"
#include "cann/host/node.h"
#include "src/json.h"
#include "tiling/platform/platform_ascendc.h"

namespace simulated_cann {
namespace {

using ascend_sim::Json;
using ascend_sim::json_list;
using ascend_sim::json_string;
using Kind = JsonValue::Kind;

// Capacity for tiling data of CANN's own operators (opbase src/nnopbase/composite_op/aclnn_engine/op_ctx_def.h).
constexpr size_t kBuiltInTilingCapacity = 800 * 1024;
// On a device, tiling data that the tiling does not set are undefined. Here each such byte has this value.
constexpr uint8_t kUnsetByte = 0xD7;

const JsonValue& member(const JsonValue& object, const std::string& name, Kind kind) {
    const JsonValue* found = object.find(name, kind);
    if (!found) throw std::runtime_error("request must have " + name);
    return *found;
}
std::string text_of(const JsonValue& object, const std::string& name) {
    return member(object, name, Kind::kString).text;
}
int64_t number_of(const JsonValue& object, const std::string& name) {
    return std::strtoll(member(object, name, Kind::kNumber).text.c_str(), nullptr, 10);
}
const std::vector<JsonValue>& list_of(const JsonValue& object, const std::string& name) {
    return member(object, name, Kind::kList).items;
}

std::string to_hex(const uint8_t* bytes, size_t count) {
    static constexpr char kDigits[] = "0123456789abcdef";
    std::string text;
    for (size_t i = 0; i < count; ++i) text += {kDigits[bytes[i] >> 4], kDigits[bytes[i] & 15]};
    return text;
}
std::vector<uint8_t> from_hex(const std::string& text) {
    std::vector<uint8_t> bytes;
    for (size_t i = 0; i + 1 < text.size(); i += 2)
        bytes.push_back(static_cast<uint8_t>(std::strtol(text.substr(i, 2).c_str(), nullptr, 16)));
    return bytes;
}

// ---- the definition ------------------------------------------------------------------------------------

std::string describe_param(const OpRecord& def, const ParamRecord& param) {
    const OpFunctions& functions = find_functions(def.type);
    const int32_t index = static_cast<int32_t>(&param - def.inputs.data());
    const auto& value_inputs = functions.value_inputs;
    const bool reads_values =
        param.value_depend || std::find(value_inputs.begin(), value_inputs.end(), index) != value_inputs.end();
    std::vector<std::string> types, formats;
    for (size_t column = 0; column < param.types.size(); ++column) {
        types.push_back(std::to_string(param.types[column]));
        formats.push_back(std::to_string(format_of(param, column)));
    }
    Json json;
    json.field("name", param.name).field("kind", static_cast<double>(param.param_type));
    json.raw("types", json_list(types)).raw("formats", json_list(formats));
    return json.raw("reads_values", reads_values ? "true" : "false").done();
}

std::string describe_attr(const AttrRecord& attr) {
    static constexpr const char* kTypeNames[] = {"bool", "float", "int", "str", "listBool", "listFloat", "listInt"};
    Json json;
    json.field("name", attr.name).field("type", kTypeNames[static_cast<size_t>(attr.type)]);
    json.raw("required", attr.required ? "true" : "false");
    json.raw("default", attr.has_default ? json_string(attr.default_text) : "null");
    return json.done();
}

std::string describe_operators(const JsonValue& request) {
    const std::string soc = text_of(request, "soc");
    Json ops;
    for (const std::string& type : DefReader::op_types()) {
        Json json;
        json.raw("socs", json_list(DefReader::socs(type), json_string)).field("kernel", snake_case(type));
        json.raw("tiling", find_functions(type).tiling || DefReader::tiling(type) ? "true" : "false");
        OpRecord def;
        if (DefReader::read(type, soc, &def)) {
            auto describe_one = [&](const ParamRecord& param) { return describe_param(def, param); };
            json.raw("inputs", json_list(def.inputs, describe_one))
                .raw("outputs", json_list(def.outputs, describe_one));
            json.raw("attrs", json_list(def.attrs, describe_attr));
            Json items;
            for (const auto& [key, value] : def.items) items.field(key, value);
            json.raw("items", items.done());
        }
        ops.raw(type, json.done());
    }
    return ops.done();
}

// ---- a call --------------------------------------------------------------------------------------------

// The bytes of each input whose values the tiling reads. They must outlive the call.
using InputValues = std::vector<std::vector<uint8_t>>;

std::vector<Node::Parameter> read_parameters(const std::vector<JsonValue>& listed, InputValues* values) {
    std::vector<Node::Parameter> parameters;
    for (const JsonValue& parameter : listed) {
        parameters.emplace_back();
        for (const JsonValue& tensor : parameter.items) {
            std::vector<int64_t> shape;
            for (const JsonValue& size : list_of(tensor, "shape"))
                shape.push_back(std::strtoll(size.text.c_str(), nullptr, 10));
            parameters.back().push_back(Node::make_tensor(static_cast<ge::DataType>(number_of(tensor, "type")), shape,
                                                          static_cast<ge::Format>(number_of(tensor, "format"))));
            const JsonValue* given = tensor.find("values", Kind::kString);
            if (!given) continue;
            values->push_back(from_hex(given->text));
            Node::set_values(&parameters.back().back(), values->back().data(), values->back().size());
        }
    }
    return parameters;
}

template <typename T, typename Convert>
void add_list(Node* node, const JsonValue& list, Convert convert) {
    std::vector<T> values;
    for (const JsonValue& item : list.items) values.push_back(static_cast<T>(convert(item)));
    node->add_attr_list(values.data(), values.size());
}

void add_attr(Node* node, const JsonValue& attr) {
    const std::string type = text_of(attr, "type");
    auto to_int = [](const JsonValue& number) { return std::strtoll(number.text.c_str(), nullptr, 10); };
    auto to_float = [](const JsonValue& number) {
        return static_cast<float>(std::strtod(number.text.c_str(), nullptr));
    };
    // A bool is passed as a number, because the reader keeps no value of a bool.
    if (type == "bool") return node->add_attr(number_of(attr, "value") != 0);
    if (type == "int") return node->add_attr(static_cast<int64_t>(to_int(member(attr, "value", Kind::kNumber))));
    // A float is passed as text, because JSON has no infinity.
    if (type == "float") return node->add_attr(to_float(member(attr, "value", Kind::kString)));
    if (type == "str") return node->add_attr_text(text_of(attr, "value"));
    const JsonValue& list = member(attr, "value", Kind::kList);
    if (type == "listInt") return add_list<int64_t>(node, list, to_int);
    if (type == "listFloat") return add_list<float>(node, list, to_float);
    std::vector<uint8_t> bools;
    for (const JsonValue& item : list.items) bools.push_back(to_int(item) != 0);
    node->add_attr_list(bools.data(), bools.size());
}

std::string refusal(const std::string& default_text) {
    std::string text;
    for (const std::string& line : take_logged_errors()) text += (text.empty() ? "" : "\n") + line;
    return Json().field("refused", text.empty() ? default_text : text).done();
}

// Returns a chip's profile with another number of cores. The profile is never freed, because compile information may
// point to it.
const ascend_sim::Profile* profile_with_cores(const std::string& chip, int32_t cores) {
    static std::map<std::pair<std::string, int32_t>, ascend_sim::Profile> profiles;
    const ascend_sim::Profile* known = ascend_sim::find_profile(chip.c_str());
    if (!known) throw std::runtime_error("chip must be simulated but got " + chip);
    ascend_sim::Profile& profile = profiles.try_emplace({chip, cores}, *known).first->second;
    profile.cores = cores;
    return &profile;
}

// Sets `info` to the compile information of an operator and a chip, and fills it on the first call, as CANN does for
// its own operators (opbase src/nnopbase/composite_op/aclnn_engine/tiling_parse_ctx_holder.cpp). Returns false if the
// operator refuses the chip.
bool find_compile_info(const std::string& type, const ascend_sim::Profile* profile, void** info) {
    constexpr size_t kDefaultInfoBytes = 32 * 1024;  // zeros, for an operator without a creator
    static std::map<std::pair<std::string, const ascend_sim::Profile*>, void*> info_by_chip;
    if (const auto found = info_by_chip.find({type, profile}); found != info_by_chip.end()) {
        *info = found->second;
        return true;
    }
    const OpFunctions& functions = find_functions(type);
    Node node;
    node.type = type;
    node.platform.profile = profile;
    node.compile_info =
        functions.create_compile_info ? functions.create_compile_info() : std::calloc(1, kDefaultInfoBytes);
    if (functions.tiling_parse && node.parse(functions.tiling_parse) != ge::GRAPH_SUCCESS) return false;
    info_by_chip[{type, profile}] = *info = node.compile_info;
    return true;
}

// Runs the tiling of a call. Members of the request: op, chip, cores, deterministic (0 or 1), generated_aclnn (0 or 1:
// whether the call comes from a function that CANN generated), inputs, outputs, attrs. `inputs` and `outputs` have a
// list of tensors for each parameter of the definition. A tensor is
// {"type": 1, "format": 2, "shape": [4, 8], "values": "hexadecimal"}; its type and format are CANN's numbers. Each
// attribute has a type and a value.
std::string tile(const JsonValue& request) {
    const std::string type = text_of(request, "op");
    const OpFunctions& functions = find_functions(type);
    auto* const tiling = functions.tiling ? functions.tiling : DefReader::tiling(type);
    if (!tiling)
        throw std::runtime_error("operator " + type +
                                 " must have a tiling but registers none: name the files that register it");
    const auto* profile =
        profile_with_cores(text_of(request, "chip"), static_cast<int32_t>(number_of(request, "cores")));
    take_logged_errors();
    void* info = nullptr;
    if (!find_compile_info(type, profile, &info)) return refusal("TilingParse failed without a message");

    InputValues values;
    values.reserve(1024);
    Node node(kBuiltInTilingCapacity);
    std::fill(node.tiling_bytes.begin(), node.tiling_bytes.end(), kUnsetByte);
    node.type = type;
    node.platform.profile = profile;
    node.compile_info = info;
    node.deterministic = static_cast<int32_t>(number_of(request, "deterministic"));
    node.absent_inputs_have_slots = number_of(request, "generated_aclnn") != 0;
    node.inputs = read_parameters(list_of(request, "inputs"), &values);
    node.outputs = read_parameters(list_of(request, "outputs"), &values);
    for (const JsonValue& attr : list_of(request, "attrs")) add_attr(&node, attr);
    if (node.tile(tiling) != ge::GRAPH_SUCCESS) return refusal("the tiling failed without a message");
    if (node.block_dim == 0) return refusal("the tiling set no block count");

    std::vector<std::string> workspaces;
    for (size_t bytes : node.workspaces) workspaces.push_back(json_string(std::to_string(bytes)));
    const size_t library_workspace_bytes = platform_ascendc::PlatformAscendC(&node.platform).GetLibApiWorkSpaceSize();
    Json json;
    json.field("tiling", to_hex(node.tiling_bytes.data(), node.tiling.GetDataSize()));
    json.field("tiling_key", std::to_string(node.tiling_key)).field("block_dim", std::to_string(node.block_dim));
    json.raw("workspaces", json_list(workspaces)).field("library_workspace", std::to_string(library_workspace_bytes));
    json.raw("schedule_mode", std::to_string(node.schedule_mode));
    return json.raw("need_atomic", node.need_atomic ? "true" : "false").done();
}

std::string reply_to(const std::string& line) {
    try {
        const std::optional<JsonValue> request = parse_json(line);
        if (!request) throw std::runtime_error("request must be JSON");
        const std::string action = text_of(*request, "do");
        if (action == "describe") return describe_operators(*request);
        if (action == "tile") return tile(*request);
        if (action == "header") return Json().field("header", kernel_header(text_of(*request, "op"))).done();
        throw std::runtime_error("request must be describe, tile or header but got " + action);
    } catch (const std::exception& e) {
        return Json().field("error", e.what()).done();
    }
}

}  // namespace
}  // namespace simulated_cann

int main() {
    std::FILE* const replies = fdopen(dup(STDOUT_FILENO), "w");
    if (!replies || dup2(STDERR_FILENO, STDOUT_FILENO) < 0) return 1;
    for (std::string line; std::getline(std::cin, line);) {
        const std::string reply = simulated_cann::reply_to(line) + "\n";
        std::fflush(stdout);  // the output of a call comes before its reply
        std::fputs(reply.c_str(), replies);
        std::fflush(replies);
    }
    // Skip the destructors of static objects: a failing destructor of the operator's code must not change the exit
    // status.
    std::_Exit(0);
}
