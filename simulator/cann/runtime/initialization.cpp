// aclInit and aclFinalize, and the configuration file of aclInit. Source: hicann/runtime src/acl/aclrt_impl/acl.cpp,
// aclInitImpl, and src/acl/common/json_parser.cpp.
#include <algorithm>
#include <filesystem>
#include <optional>

#include "cann/files.h"
#include "cann/host/json_reader.h"
#include "cann/locked.h"
#include "cann/runtime/api.h"
#include "cann/runtime/contexts.h"
#include "cann/runtime/forks.h"
#include "cann/runtime/report.h"

namespace simulated_cann {
namespace {

constexpr aclError kParseFile = 100006, kInvalidDump = 100009, kFailure = 500001;
constexpr uintmax_t kMaxFileBytes = 10 << 20;
constexpr int kMaxDepth = 10;  // of objects, and of lists

struct Initialization {
    bool is_initialized = false, is_finalized = false;
    std::optional<std::string> first_content;  // of the file of the first aclInit that succeeded; "" without a file
};

const ForkLock initialization_lock(LockRank::kTables, &Locked<Initialization>::mutex());

aclError refuse_file(aclError status, const std::string& rule) { return fail(status, "aclInit", "configPath " + rule); }

// Returns the last member with this name, as nlohmann::json does, or null.
const JsonValue* find_member(const JsonValue* object, const std::string& name) {
    const JsonValue* found = nullptr;
    if (!object) return found;
    for (const auto& [key, value] : object->members)
        if (key == name) found = &value;
    return found;
}

bool is_whole_number(const std::string& text, bool may_be_zero) {
    if (text.empty() || text.find_first_not_of("0123456789") != std::string::npos) return false;
    return text[0] != '0' || (may_be_zero && text == "0");
}

bool is_text(const JsonValue& value, const char* text) {
    return value.kind == JsonValue::Kind::kString && value.text == text;
}

bool is_zero_or_one(const JsonValue& value) { return is_text(value, "0") || is_text(value, "1"); }

// acl_rt_impl_base.cpp, GetStrFromConfigPath. Reads a little more than a file may have at most.
aclError read_content(const char* path, std::string* content) {
    const File file(path, O_RDONLY);
    if (!file.is_open())
        return refuse_file(kInvalidFile, std::string("must be a file that can be read but got ") + path + ".");
    *content = read_from(file, kMaxFileBytes).value_or("");  // a folder can be opened
    return kSuccess;
}

// JsonParser::GetMaxNestedLayers counts the characters, also those in strings.
bool is_nested_too_deep(const std::string& text) {
    int objects = 0, lists = 0;
    for (char c : text) {
        if (c == '{' && ++objects > kMaxDepth) return true;
        if (c == '[' && ++lists > kMaxDepth) return true;
        if (c == '}') objects = std::max(objects - 1, 0);
        if (c == ']') lists = std::max(lists - 1, 0);
    }
    return false;
}

// JsonParser::GetConfigStrFromFile and ::ParseJson. An empty file has no members.
aclError parse_file(const char* path, const std::string& content, JsonValue* root) {
    std::error_code error;
    if (!std::filesystem::is_regular_file(path, error) || content.size() > kMaxFileBytes)
        return refuse_file(kInvalidFile, "must be a regular file of at most 10 MiB.");
    const std::string text = content.c_str();  // up to the first null character
    if (text.empty()) return kSuccess;
    if (is_nested_too_deep(text))
        return refuse_file(kParseFile, "must have at most 10 levels of objects and 10 levels of lists.");
    std::optional<JsonValue> parsed = parse_whole_json(text);
    if (!parsed) return refuse_file(kParseFile, "must be JSON.");
    *root = std::move(*parsed);
    return kSuccess;
}

// HandleDefaultDeviceAndStackSize, SetPrintFifoSizes. The sizes have no effect here.
aclError check_sizes(const JsonValue& root) {
    for (const char* name : {"aicore_stack_size", "simt_stack_size", "simt_divergence_stack_size"}) {
        const JsonValue* size = find_member(find_member(&root, "StackSize"), name);
        if (size && size->kind != JsonValue::Kind::kNumber && size->kind != JsonValue::Kind::kBool)
            return refuse_file(kFailure, std::string("must have a number as ") + name + ".");
    }
    for (const char* name : {"simd_printf_fifo_size_per_core", "simt_printf_fifo_size"}) {
        const JsonValue* size = find_member(&root, name);
        if (size && (size->kind != JsonValue::Kind::kNumber || !is_whole_number(size->text, false)))
            return refuse_file(kFailure, std::string("must have a positive integer as ") + name + ".");
    }
    return kSuccess;
}

// JsonParser::GetDefaultDeviceIdFromFile.
aclError apply_default_device(const JsonValue& root) {
    const JsonValue* device = find_member(find_member(&root, "defaultDevice"), "default_device");
    if (!device) return kSuccess;
    if (device->kind != JsonValue::Kind::kString || !is_whole_number(device->text, true))
        return refuse_file(kFailure, "must have a text of a number as default_device.");
    constexpr size_t kMaxDigits = 9;
    const int32_t number = device->text.size() > kMaxDigits ? INT32_MAX : std::atoi(device->text.c_str());
    if (aclError error = check_device("aclInit", number)) return error;
    set_default_device(number);
    return kSuccess;
}

aclError refuse_unsimulated(const std::string& rule) { return refuse_file(kNotSupported, rule + " is not simulated."); }

// Checks that a member of the file is an object without other members than the one that is simulated.
aclError check_object(const JsonValue& object, const std::string& name, const char* simulated, aclError status) {
    if (object.kind != JsonValue::Kind::kObject) return refuse_file(status, "must have an object as " + name + ".");
    for (const auto& [member, value] : object.members)
        if (member != simulated) return refuse_unsimulated("must have no " + member + " in " + name + ": it");
    return kSuccess;
}

// hicann/runtime src/dfx/adump/adump/impl/dump_config_converter.cpp, DumpConfigConverter::Convert. A dump of a fault
// writes nothing as long as there is none. CANN has more kinds of dumps.
aclError check_dump(const JsonValue* dump) {
    if (!dump) return kSuccess;
    if (aclError error = check_object(*dump, "dump", "dump_scene", kInvalidDump)) return error;
    const JsonValue* scene = find_member(dump, "dump_scene");
    if (!scene) return kSuccess;
    if (is_text(*scene, "watcher")) return refuse_unsimulated("must not have watcher as dump_scene: it");
    for (const char* fault : {"lite_exception", "aic_err_brief_dump", "aic_err_norm_dump", "aic_err_detail_dump"})
        if (is_text(*scene, fault)) return kSuccess;
    return refuse_file(kInvalidDump,
                       "must have lite_exception, aic_err_brief_dump, aic_err_norm_dump or aic_err_detail_dump as "
                       "dump_scene.");
}

// hicann/runtime src/dfx/msprof/collector/dvvp/msprof/engine/src/prof_acl_mgr.cpp, CheckAclJsonConfigInvalid. The
// profiler is off unless the switch is "on". PROFILER_SAMPLECONFIG comes before the file (src/acl/aclrt_impl/toolchain/
// profiling.cpp, AclProfiling::HandleProfilingConfig).
aclError check_profiler(const JsonValue* profiler) {
    const char* settings = std::getenv("PROFILER_SAMPLECONFIG");
    if (settings && *settings)
        return fail(kNotSupported, "aclInit", "PROFILER_SAMPLECONFIG must not be set: the profiler is not simulated.");
    if (!profiler) return kSuccess;
    if (aclError error = check_object(*profiler, "profiler", "switch", kInvalidParam)) return error;
    const JsonValue* is_on = find_member(profiler, "switch");
    if (!is_on || is_text(*is_on, "off")) return kSuccess;
    if (is_text(*is_on, "on")) return refuse_unsimulated(R"(must not have "on" as switch of profiler: the profiler)");
    return refuse_file(kInvalidParam, R"(must have "on" or "off" as switch of profiler.)");
}

aclError apply_file(const char* path, const std::string& content) {
    JsonValue root;
    if (aclError error = parse_file(path, content, &root)) return error;
    if (const JsonValue* mode = find_member(&root, "err_msg_mode"); mode && !is_zero_or_one(*mode))
        return refuse_file(kInvalidParam, R"(must have "0" or "1" as err_msg_mode.)");
    if (aclError error = check_dump(find_member(&root, "dump"))) return error;
    if (aclError error = check_sizes(root)) return error;
    // CANN ends the process if event_mode is no text.
    if (const JsonValue* mode = find_member(find_member(&root, "acl_graph"), "event_mode");
        mode && !is_zero_or_one(*mode))
        return refuse_file(kInvalidParam, R"(must have "0" or "1" as event_mode.)");
    if (aclError error = apply_default_device(root)) return error;
    return check_profiler(find_member(&root, "profiler"));
}

}  // namespace
}  // namespace simulated_cann

using namespace simulated_cann;

NPU_CANN_API aclError aclInit(const char* config_path) {
    announce_simulation();
    Locked<Initialization> state;
    if (state->is_initialized) return fail(kRepeatInitialize, "aclInit must be called once.");
    const bool has_file = config_path && *config_path;
    std::string content;
    if (has_file)
        if (aclError error = read_content(config_path, &content)) return error;
    if (state->first_content && *state->first_content != content)
        return refuse_file(kInvalidParam, "must be a file with the content of the first aclInit of the process.");
    if (aclError error = has_file ? apply_file(config_path, content) : check_profiler(nullptr)) return error;
    state->is_initialized = true;
    state->is_finalized = false;
    if (!state->first_content) state->first_content = content;
    return kSuccess;
}
// hicann/runtime src/acl/aclrt_impl/acl.cpp, aclFinalizeImpl: may be called once, even without aclInit.
NPU_CANN_API aclError aclFinalize() {
    Locked<Initialization> state;
    if (state->is_finalized) return fail(kRepeatFinalize, "aclFinalize must be called once.");
    state->is_finalized = true;
    state->is_initialized = false;
    set_default_device(kNoDevice);
    return kSuccess;
}
