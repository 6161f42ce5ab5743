// A program that executes the definition and the tiling of an operator. It links with their objects, and with
// libascend_sim_host. ascend_sim/operator_sources.py builds and uses it.
//
// It reads requests from standard input and writes replies to standard output, one JSON object a line:
//   {"do": "describe", "soc": "ascend910b"}   the definitions of the library's operators for an SoC
//   {"do": "tile", "op": "RmsNorm", ...}      the tiling of a call, see tile()
//   {"do": "header", "op": "RmsNorm", "tiling_key": "10"}   the kernel's tiling structs
// What the operator's own code prints goes to standard error. A reply to a request that cannot be served has "error".
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
constexpr size_t kOwnTilingCapacity = 800 * 1024;
// Tiling data that a tiling does not set are undefined on a device; here their bytes have this value.
constexpr uint8_t kJunk = 0xD7;

const JsonValue& member(const JsonValue& v, const std::string& name, Kind kind) {
    const JsonValue* found = v.find(name, kind);
    if (!found) throw std::runtime_error("request must have " + name);
    return *found;
}
std::string text_of(const JsonValue& v, const std::string& name) { return member(v, name, Kind::kString).text; }
int64_t number_of(const JsonValue& v, const std::string& name) {
    return std::strtoll(member(v, name, Kind::kNumber).text.c_str(), nullptr, 10);
}
const std::vector<JsonValue>& list_of(const JsonValue& v, const std::string& name) {
    return member(v, name, Kind::kList).items;
}

std::string hex(const uint8_t* bytes, size_t count) {
    static constexpr char kDigits[] = "0123456789abcdef";
    std::string text;
    for (size_t i = 0; i < count; ++i) text += {kDigits[bytes[i] >> 4], kDigits[bytes[i] & 15]};
    return text;
}
std::vector<uint8_t> bytes_of(const std::string& text) {
    std::vector<uint8_t> bytes;
    for (size_t i = 0; i + 1 < text.size(); i += 2)
        bytes.push_back(static_cast<uint8_t>(std::strtol(text.substr(i, 2).c_str(), nullptr, 16)));
    return bytes;
}

// ---- the definition ------------------------------------------------------------------------------------

std::string described(const OpRecord& def, const ParamRecord& p) {
    const OpFunctions& functions = find_functions(def.type);
    const int32_t position = static_cast<int32_t>(&p - def.inputs.data());
    const auto& values = functions.value_inputs;
    const bool depends = p.value_depend || std::find(values.begin(), values.end(), position) != values.end();
    std::vector<std::string> types, formats;
    for (size_t column = 0; column < p.types.size(); ++column) {
        types.push_back(std::to_string(p.types[column]));
        formats.push_back(std::to_string(format_of(p, column)));
    }
    Json json;
    json.field("name", p.name).field("kind", static_cast<double>(p.param_type));
    json.raw("types", json_list(types)).raw("formats", json_list(formats));
    return json.raw("reads_values", depends ? "true" : "false").done();
}

std::string described(const AttrRecord& a) {
    static constexpr const char* kTypes[] = {"bool", "float", "int", "str", "listBool", "listFloat", "listInt"};
    Json json;
    json.field("name", a.name).field("type", kTypes[static_cast<size_t>(a.type)]);
    json.raw("required", a.required ? "true" : "false");
    json.raw("default", a.has_default ? json_string(a.default_text) : "null");
    return json.done();
}

std::string describe(const JsonValue& request) {
    const std::string soc = text_of(request, "soc");
    Json ops;
    for (const std::string& type : DefReader::op_types()) {
        Json json;
        json.raw("socs", json_list(DefReader::socs(type), json_string)).field("kernel", snake_case(type));
        json.raw("tiling", find_functions(type).tiling || DefReader::tiling(type) ? "true" : "false");
        OpRecord def;
        if (DefReader::read(type, soc, &def)) {
            auto parameter = [&](const ParamRecord& p) { return described(def, p); };
            json.raw("inputs", json_list(def.inputs, parameter)).raw("outputs", json_list(def.outputs, parameter));
            json.raw("attrs", json_list(def.attrs, [](const AttrRecord& a) { return described(a); }));
            Json items;
            for (const auto& [key, value] : def.items) items.field(key, value);
            json.raw("items", items.done());
        }
        ops.raw(type, json.done());
    }
    return ops.done();
}

// ---- a call --------------------------------------------------------------------------------------------

// The bytes of inputs whose values the tiling reads; they must outlive the call.
using Values = std::vector<std::vector<uint8_t>>;

std::vector<Node::Parameter> parameters_of(const std::vector<JsonValue>& all, Values* values) {
    std::vector<Node::Parameter> parameters;
    for (const JsonValue& parameter : all) {
        parameters.emplace_back();
        for (const JsonValue& t : parameter.items) {
            std::vector<int64_t> shape;
            for (const JsonValue& size : list_of(t, "shape"))
                shape.push_back(std::strtoll(size.text.c_str(), nullptr, 10));
            parameters.back().push_back(Node::tensor(static_cast<ge::DataType>(number_of(t, "type")), shape,
                                                     static_cast<ge::Format>(number_of(t, "format"))));
            const JsonValue* given = t.find("values", Kind::kString);
            if (!given) continue;
            values->push_back(bytes_of(given->text));
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
    auto to_int = [](const JsonValue& v) { return std::strtoll(v.text.c_str(), nullptr, 10); };
    auto to_float = [](const JsonValue& v) { return static_cast<float>(std::strtod(v.text.c_str(), nullptr)); };
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

std::string refused(const std::string& what) {
    std::string text;
    for (const std::string& line : take_logged_errors()) text += (text.empty() ? "" : "\n") + line;
    return Json().field("refused", text.empty() ? what : text).done();
}

// A chip with a number of cores; kept, because compile information may point to it.
const ascend_sim::Profile* profile_of(const std::string& chip, int32_t cores) {
    static std::map<std::pair<std::string, int32_t>, ascend_sim::Profile> all;
    const ascend_sim::Profile* known = ascend_sim::find_profile(chip.c_str());
    if (!known) throw std::runtime_error("chip must be simulated but got " + chip);
    ascend_sim::Profile& profile = all.try_emplace({chip, cores}, *known).first->second;
    profile.cores = cores;
    return &profile;
}

// The compile information of an operator, once for each chip, as CANN parses it for its own operators (opbase
// src/nnopbase/composite_op/aclnn_engine/tiling_parse_ctx_holder.cpp). False if the operator refuses the chip.
bool parse(const std::string& type, const ascend_sim::Profile* profile, void** info) {
    constexpr size_t kWithoutCreator = 32 * 1024;  // bytes of zeros
    static std::map<std::pair<std::string, const ascend_sim::Profile*>, void*> parsed;
    if (const auto found = parsed.find({type, profile}); found != parsed.end()) {
        *info = found->second;
        return true;
    }
    const OpFunctions& functions = find_functions(type);
    Node node;
    node.type = type;
    node.platform.profile = profile;
    node.compile_info =
        functions.create_compile_info ? functions.create_compile_info() : std::calloc(1, kWithoutCreator);
    if (functions.tiling_parse && node.parse(functions.tiling_parse) != ge::GRAPH_SUCCESS) return false;
    parsed[{type, profile}] = *info = node.compile_info;
    return true;
}

// The request has op, chip, cores, deterministic (0 or 1); inputs and outputs, each a list of tensors for every
// parameter of the definition, {"type": 1, "format": 2, "shape": [4, 8], "values": "hexadecimal"}; and attrs with their
// types and values. Types and formats are CANN's numbers.
std::string tile(const JsonValue& request) {
    const std::string type = text_of(request, "op");
    const OpFunctions& functions = find_functions(type);
    auto* const tiling = functions.tiling ? functions.tiling : DefReader::tiling(type);
    if (!tiling) throw std::runtime_error("operator " + type + " must have a tiling but registers none");
    const auto* profile = profile_of(text_of(request, "chip"), static_cast<int32_t>(number_of(request, "cores")));
    take_logged_errors();
    void* info = nullptr;
    if (!parse(type, profile, &info)) return refused("TilingParse failed without a message");

    Values values;
    values.reserve(1024);
    Node node(kOwnTilingCapacity);
    std::fill(node.tiling_bytes.begin(), node.tiling_bytes.end(), kJunk);
    node.type = type;
    node.platform.profile = profile;
    node.compile_info = info;
    node.deterministic = static_cast<int32_t>(number_of(request, "deterministic"));
    node.inputs = parameters_of(list_of(request, "inputs"), &values);
    node.outputs = parameters_of(list_of(request, "outputs"), &values);
    for (const JsonValue& attr : list_of(request, "attrs")) add_attr(&node, attr);
    if (node.tile(tiling) != ge::GRAPH_SUCCESS) return refused("the tiling failed without a message");
    if (node.block_dim == 0) return refused("the tiling set no block count");

    std::vector<std::string> workspaces;
    for (size_t bytes : node.workspaces) workspaces.push_back(json_string(std::to_string(bytes)));
    const size_t library = platform_ascendc::PlatformAscendC(&node.platform).GetLibApiWorkSpaceSize();
    Json json;
    json.field("tiling", hex(node.tiling_bytes.data(), node.tiling.GetDataSize()));
    json.field("tiling_key", std::to_string(node.tiling_key)).field("block_dim", std::to_string(node.block_dim));
    json.raw("workspaces", json_list(workspaces)).field("library_workspace", std::to_string(library));
    json.raw("schedule_mode", std::to_string(node.schedule_mode));
    return json.raw("need_atomic", node.need_atomic ? "true" : "false").done();
}

std::string answer(const std::string& line) {
    try {
        const std::optional<JsonValue> request = read_json(line);
        if (!request) throw std::runtime_error("request must be JSON");
        const std::string what = text_of(*request, "do");
        if (what == "describe") return describe(*request);
        if (what == "tile") return tile(*request);
        if (what == "header")
            return Json()
                .field("header", kernel_header(text_of(*request, "op"), text_of(*request, "tiling_key")))
                .done();
        throw std::runtime_error("request must be describe, tile or header but got " + what);
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
        const std::string reply = simulated_cann::answer(line) + "\n";
        std::fputs(reply.c_str(), replies);
        std::fflush(replies);
    }
    // Without the destructors of static objects: those of an operator's code must not decide about the exit status.
    std::_Exit(0);
}
