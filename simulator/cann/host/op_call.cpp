#include "cann/host/op_call.h"

#include <dlfcn.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <utility>

#include "cann/host/call_tensors.h"
#include "cann/host/cann_types.h"
#include "cann/host/def_reader.h"
#include "cann/host/executors.h"
#include "cann/host/kernel_names.h"
#include "cann/host/node.h"
#include "cann/host/package_files.h"
#include "cann/host/tiling_cache.h"
#include "cann/runtime/objects.h"
#include "include/ascend_sim.h"
#include "src/chips.h"
#include "tiling/platform/platform_ascendc.h"

namespace simulated_cann {

// The SoC's name in definitions, and the profile of the chip; null if the chip is not simulated.
struct SimulatedSoc {
    std::string name;
    const ascend_sim::Profile* profile;
};

namespace {

std::vector<int64_t> sizes_of(const gert::Shape& shape) {
    std::vector<int64_t> sizes;
    for (size_t d = 0; d < shape.GetDimNum(); ++d) sizes.push_back(shape.GetDim(d));
    return sizes;
}

// Returns a chip's profile with another number of cores. The profile is never freed, because calls keep its address.
const ascend_sim::Profile* profile_with_cores(const ascend_sim::Profile& chip, int32_t cores) {
    static std::mutex mutex;
    static std::map<std::pair<std::string, int32_t>, ascend_sim::Profile> profiles;
    const std::lock_guard<std::mutex> lock(mutex);
    const auto [entry, is_new] = profiles.try_emplace({chip.name, cores}, chip);
    if (is_new) entry->second.cores = cores;  // other threads read the profile of an earlier call
    return &entry->second;
}

// Returns the SoC of a chip. If src/chips.h lacks the chip, uses the profile of the family's first chip. The number of
// cores comes from the runtime.
SimulatedSoc find_soc(const std::string& name) {
    const ascend_sim::Family* family = ascend_sim::find_family(name.c_str());
    if (!family) return {name, nullptr};
    const char* const profile_name = ascend_sim::find_chip(name.c_str()) ? name.c_str() : family->soc;
    return {family->soc, profile_with_cores(*ascend_sim::find_profile(profile_name), soc_kernel_cores())};
}

// Returns the format that the runtime compares with the definition's format. The runtime treats some formats as ND
// (opbase indv_executor_tensor.cpp, FormatsLikeND).
int32_t canonical_format(int32_t format) {
    constexpr int32_t kFormatsLikeNd[] = {ge::FORMAT_NCHW, ge::FORMAT_NHWC, ge::FORMAT_NCDHW, ge::FORMAT_DHWCN,
                                          ge::FORMAT_NCL};
    return std::find(std::begin(kFormatsLikeNd), std::end(kFormatsLikeNd), format) == std::end(kFormatsLikeNd)
               ? format
               : ge::FORMAT_ND;
}

std::string format_name(int32_t format) { return format == ge::FORMAT_ND ? "ND" : "format " + std::to_string(format); }

}  // namespace

struct OpCall::Implementation {
    std::string type;
    std::vector<const aclTensor*> given_inputs, given_outputs;
    Failure attr_failure;    // the error of the first attribute that CANN refuses
    size_t failed_attr = 0;  // the attribute's index in the definition

    Node node;  // OpCall::attr() adds the attributes, fill_node() the rest

    // Set by OpCall::prepare().
    SimulatedSoc soc;
    std::unique_ptr<CallTensors> tensors;

    [[noreturn]] void refuse(aclnnStatus status, const std::string& text) const {
        throw Failure{status, "[" + type + "] " + text};
    }
    const OpRecord& def() const { return tensors->def(); }
    template <typename List>
    void add_list(const List* list);
    void fail_attr(aclnnStatus status, const std::string& rule);
    void require_tensors() const;
    void require_package() const;
    OpRecord definition_for_chip();
    void require_kernel_list() const;
    size_t find_kernel_column() const;
    void* find_kernel_entry(size_t column) const;
    std::string cache_key() const;
    void fill_node();
    std::shared_ptr<const TilingResult> run_tiling();
    void check_inferred_outputs();
    void check_stride_attributes() const;
    OpLaunch make_launch(size_t column);
};

OpCall::OpCall(const char* op_type) : impl_(new Implementation) { impl_->type = op_type; }
OpCall::~OpCall() = default;
void OpCall::input(const aclTensor* tensor) { impl_->given_inputs.push_back(tensor); }
void OpCall::output(const aclTensor* tensor) { impl_->given_outputs.push_back(tensor); }
void OpCall::attr(int64_t value) { impl_->node.add_attr(value); }
void OpCall::attr(double value) { impl_->node.add_attr(static_cast<float>(value)); }
void OpCall::attr(bool value) { impl_->node.add_attr(value); }
void OpCall::attr(const char* value) {
    if (!value) impl_->fail_attr(kNullPointer, "must be given but got NULL.");
    impl_->node.add_attr_text(value ? value : "");
}
void OpCall::attr(const aclIntArray* values) { impl_->add_list(values); }
void OpCall::attr(const aclFloatArray* values) { impl_->add_list(values); }
void OpCall::attr(const aclBoolArray* values) { impl_->add_list(values); }
void OpCall::attr(const int64_t* values, size_t count) { impl_->node.add_attr_list(values, count); }
void OpCall::attr(const float* values, size_t count) { impl_->node.add_attr_list(values, count); }
void OpCall::attr(const bool* values, size_t count) { impl_->node.add_attr_list(values, count); }

// Adds a list attribute. In CANN, a NULL list and an empty list fail when the attribute is added, before other checks
// of the call. The generated code refuses a NULL list. The runtime refuses an empty list: an array of size 0 has no
// memory (opbase src/nnopbase/common/utils/common_types.cpp, aclArray), and an attribute's address must not be null
// (src/nnopbase/individual_op/executor/indv_executor_tensor.cpp, NnopbaseExecutorAddAttr).
template <typename List>
void OpCall::Implementation::add_list(const List* list) {
    if (!list)
        fail_attr(kNullPointer, "must be given but got NULL.");
    else if (list->values.empty())
        fail_attr(kInnerNullPointer, "must have elements but got an empty list.");
    const List given_or_empty = list ? *list : List();
    node.add_attr_list(given_or_empty.values.data(), given_or_empty.values.size());
}

// Stores the first failure. CANN reports only the first one, because its generated code returns after it.
void OpCall::Implementation::fail_attr(aclnnStatus status, const std::string& rule) {
    if (!attr_failure.text.empty()) return;
    attr_failure = {status, rule};
    failed_attr = node.attrs.size();
}

// The generated code checks for NULL before it gets an executor.
void OpCall::Implementation::require_tensors() const {
    OpRecord base;
    if (!DefReader::read(type, "", &base)) refuse(kNullPointer, "operator must be defined but is not.");
    CallTensors(base, given_inputs, given_outputs);
}

// An operator has no executor if CANN did not read its package: NnopbaseExecutorSetRegInfo fails, and
// NnopbaseGetExecutor returns null to the generated code (opbase
// src/nnopbase/individual_op/executor/indv_executor_ext.cpp). If CANN found no package, NnopbaseInit fails, and the
// next call repeats it (src/nnopbase/individual_op/api/individual_op_api.cpp).
void OpCall::Implementation::require_package() const {
    const OperatorPackages& packages = operator_packages();
    if (packages.folders.empty() && !packages.has_built_in)
        refuse(kRuntimeFailed,
               "operator package must be in ASCEND_CUSTOM_OPP_PATH or installed into CANN but got none.");
    const std::string own_package = resolved_package();
    if (std::find(packages.folders.begin(), packages.folders.end(), own_package) == packages.folders.end())
        refuse(kNullPointer,
               "operator package must be one that CANN read when the process first called an operator of a package "
               "but got " +
                   own_package + ", which CANN did not read then.");
}

// An operator without kernels for this chip has no executor. The generated code reports this as a null pointer (opbase
// indv_executor_ext.cpp, NnopbaseExecutorSetRegInfo; op_aclnn_generator.cpp, AclnnOpGenCodeExecutor).
OpRecord OpCall::Implementation::definition_for_chip() {
    const char* name = soc_name();
    soc = find_soc(name ? name : "");
    OpRecord def;
    if (!soc.profile) refuse(kNullPointer, "soc must be a simulated chip but got " + soc.name + ".");
    if (!DefReader::read(type, soc.name, &def))
        refuse(kNullPointer, "soc must be one that the operator is defined for but got " + soc.name + ".");
    return def;
}

// CANN registers only the operators in a package's list of kernels for this chip. It skips an absent, truncated or
// malformed list with a warning. If no package has a readable list and CANN's own operators are absent, CANN cannot
// start (opbase indv_collector.cpp, NnopbaseCollectorGetDynamicKernelPathAndReadConfig and NnopbaseCollectorWork).
void OpCall::Implementation::require_kernel_list() const {
    const KernelList& list = KernelList::of_own_package(soc.name);
    if (list.has_operator(type)) return;
    const OperatorPackages& packages = operator_packages();
    const bool is_any_readable =
        packages.has_built_in ||
        std::any_of(packages.folders.begin(), packages.folders.end(),
                    [&](const std::string& folder) { return KernelList(folder, soc.name).is_readable(); });
    refuse(is_any_readable ? kNullPointer : kRuntimeFailed,
           "operator package must list the operator's kernels for " + soc.name + " but got " + list.path() +
               (list.is_readable() ? ", which lists none of them." : ", which is absent or not JSON."));
}

// Returns the column with the tensors' types. CANN selects the kernel before the tiling runs, by the required tensors
// only (opbase indv_executor_ext.cpp, NnopbaseAppendDynamicTensorsKey; indv_executor.cpp, CheckSocVersionAndParam).
size_t OpCall::Implementation::find_kernel_column() const {
    const std::vector<CallTensors::Item>& items = tensors->items();
    for (size_t column = 0; column < def().columns(); ++column) {
        const bool fits = std::all_of(items.begin(), items.end(), [&](const CallTensors::Item& item) {
            const ParamRecord& param = *item.param;
            return param.param_type == ops::OPTIONAL ||
                   (item.dtype == param.types.at(column) && canonical_format(item.format) == format_of(param, column));
        });
        if (fits) return column;
    }
    std::string got_types;
    for (const CallTensors::Item& item : items) {
        if (!item.is_given) continue;
        const int32_t format = canonical_format(item.format);
        got_types += (got_types.empty() ? "" : ", ") + item.param->name + " " + type_name(item.dtype) +
                     (format == ge::FORMAT_ND ? "" : " in " + format_name(format));
    }
    refuse(kBadArgument,
           "tensors must have the types of one of its kernels on " + soc.name + " but got " + got_types + ".");
}

// The package's list names the kernel's file, and the file names the simulator's kernel.
void* OpCall::Implementation::find_kernel_entry(size_t column) const {
    const KernelList& list = KernelList::of_own_package(soc.name);
    const std::string key = simplified_key(def(), column), object_path = list.find(type, key);
    if (object_path.empty())
        refuse(kNoKernel, "operator package must list a kernel for these types but got " + list.path() +
                              ", which has no simplifiedKey " + key + ".");
    const std::string entry = kernel_entry_name(type, object_path);
    if (void* found = ascend_sim_find_kernel(kernel_folder().c_str(), entry.c_str())) return found;
    const char* reason = dlerror();
    refuse(kNoKernel, "kernel " + entry + " must be in a library of simulated kernels but got " +
                          (reason ? reason : "a library that is truncated") + ".");
}

// The key contains each tensor's storage format. So NCHW and ND have separate cache entries, although they select the
// same kernel (opbase indv_cache_key_builder.cpp, AppendShapeInfo). The key also contains the level of deterministic
// mode (AppendDeterministicLevel).
std::string OpCall::Implementation::cache_key() const {
    TilingCacheKey key(type, soc.profile->name + (":" + std::to_string(soc.profile->cores)) + ":" +
                                 std::to_string(node.deterministic));
    auto add_tensor = [&](const CallTensors::Item& item) {
        if (item.is_given)
            key.add_tensor(item.dtype, item.format, item.view.shape, item.view.strides, item.offset);
        else
            key.add_no_tensor();
    };
    for (size_t i = 0; i < tensors->input_count(); ++i) add_tensor(tensors->items()[i]);
    key.add_separator();
    for (size_t i = 0; i < def().attrs.size(); ++i) {
        const AttrRecord& attr = def().attrs[i];
        const size_t header_bytes = attr.is_list() ? sizeof(gert::ContinuousVector) : 0,
                     stored_bytes = node.attrs[i].size();
        const size_t bytes = attr.type == ops::AttrDataType::ATTR_DT_BOOL    ? sizeof(bool)
                             : attr.type == ops::AttrDataType::ATTR_DT_FLOAT ? sizeof(float)
                                                                             : stored_bytes - header_bytes;
        key.add_attribute(node.attrs[i].data() + header_bytes, bytes);
    }
    key.add_separator();
    for (size_t output = 0; output < def().outputs.size(); ++output)
        add_tensor(tensors->items()[tensors->item_of_output(output)]);
    return key.text();
}

// Origin shape and storage shape are both the shape of the view; the shape of the tensor's storage is not used (opbase
// indv_executor_tensor.cpp, NnopbaseSaveTensor).
void OpCall::Implementation::fill_node() {
    node.type = type;
    node.platform.profile = soc.profile;
    node.deterministic = deterministic_level();
    auto describe = [](const CallTensors::Item& item) {
        return item.is_given ? Node::make_tensor(static_cast<ge::DataType>(item.dtype), item.view.shape)
                             : Node::Tensor();
    };
    node.absent_inputs_have_slots = true;  // every call of this class comes from a generated function
    // For an absent input, the parameter has no tensor. For an absent output, it has one empty description.
    for (size_t i = 0; i < tensors->input_count(); ++i) {
        const CallTensors::Item& item = tensors->items()[i];
        node.inputs.push_back(item.is_given ? Node::Parameter{describe(item)} : Node::Parameter());
    }
    for (size_t output = 0; output < def().outputs.size(); ++output)
        node.outputs.push_back({describe(tensors->items()[tensors->item_of_output(output)])});
}

std::shared_ptr<const TilingResult> OpCall::Implementation::run_tiling() {
    // Without ASCEND_OPP_PATH the last package counts as the built-in one, whose tiling library has another name
    // (opbase indv_collector.cpp, NnopbaseLoadTilingSo).
    const OperatorPackages& packages = operator_packages();
    if (!packages.has_built_in && packages.folders.back() == resolved_package())
        refuse(kTilingFailed,
               "ASCEND_OPP_PATH must be set, so that CANN loads the tiling of the last package, but got nothing.");
    const TilingLibrary& library = tiling_library(type);
    auto function = library.find(type);
    if (!function) refuse(kTilingFailed, "tiling must be registered but got none.");
    library.take_logged_error();
    if (node.tile(function) != ge::GRAPH_SUCCESS) {
        std::string logged = library.take_logged_error();
        if (logged.empty()) refuse(kTilingFailed, "tiling must succeed but got a failure that it does not explain.");
        throw Failure{kTilingFailed, logged};
    }
    if (node.block_dim == 0 || node.tiling.GetDataSize() == 0)
        refuse(kTilingFailed, "tiling must set a block count and data but got at most one of them.");
    auto result = std::make_shared<TilingResult>();
    result->tiling_key = node.tiling_key;
    result->block_dim = node.block_dim;
    const auto* data = static_cast<const uint8_t*>(node.tiling.GetData());
    result->tiling.assign(data, data + node.tiling.GetDataSize());
    result->workspaces = node.workspaces;
    return result;
}

// Checks that the outputs have the shapes and types that the operator infers. CANN does not check this in an aclnn
// call.
void OpCall::Implementation::check_inferred_outputs() {
    const OpFunctions& functions = find_functions(type);
    if (!functions.infer_shape || !functions.infer_data_type)
        refuse(kInferShapeFailed, "shape and type of the outputs must be registered but got none.");
    std::vector<Node::Parameter> given_outputs = node.outputs;
    for (Node::Parameter& parameter : node.outputs) parameter = {Node::make_tensor(ge::DT_UNDEFINED, {})};
    bool is_inferred = node.infer_shape(functions.infer_shape) == ge::GRAPH_SUCCESS &&
                       node.infer_data_type(functions.infer_data_type) == ge::GRAPH_SUCCESS;
    if (!is_inferred)
        refuse(kInferShapeFailed, "shape and type of the outputs must follow from the inputs but got a failure.");
    for (size_t i = 0; i < given_outputs.size(); ++i) {
        const Node::Tensor &given_tensor = given_outputs[i][0], &inferred_tensor = node.outputs[i][0];
        if (!given_tensor.present) continue;
        const gert::Shape &inferred_shape = inferred_tensor.value.GetOriginShape(),
                          &given_shape = given_tensor.value.GetOriginShape();
        const std::string& name = def().outputs[i].name;
        if (inferred_shape != given_shape)
            refuse(kBadArgument, name + " must have shape " + list_text(sizes_of(inferred_shape)) + " but got " +
                                     list_text(sizes_of(given_shape)) + ".");
        if (inferred_tensor.desc.GetDataType() != given_tensor.desc.GetDataType())
            refuse(kBadArgument, name + " must be " + type_name(inferred_tensor.desc.GetDataType()) + " but got " +
                                     type_name(given_tensor.desc.GetDataType()) + ".");
    }
    node.outputs = std::move(given_outputs);
}

// Checks the attribute `strides` if the operator has it. The attribute must list the strides of each input that may be
// a view, then those of each output that is not an input. A single 0 means that all these tensors are contiguous. CANN
// does not check this.
void OpCall::Implementation::check_stride_attributes() const {
    for (size_t attr_index = 0; attr_index < def().attrs.size(); ++attr_index) {
        const AttrRecord& attr = def().attrs[attr_index];
        if (attr.name != "strides" || attr.type != ops::AttrDataType::ATTR_DT_LIST_INT) continue;
        size_t next_listed = 0;
        const gert::TypedContinuousVector<int64_t>& list = *node.runtime_attrs()->GetListInt(attr_index);
        std::vector<int64_t> listed(list.GetData(), list.GetData() + list.GetSize());
        if (listed == std::vector<int64_t>{0}) listed.clear();
        for (const CallTensors::Item& item : tensors->items()) {
            if (!item.is_given || (item.is_input && !item.accepts_view)) continue;
            const std::vector<int64_t>& shape = item.view.shape;
            std::vector<int64_t> attr_strides(shape.size());
            int64_t step = 1;
            for (size_t dim = shape.size(); dim-- > 0; step *= shape[dim]) attr_strides[dim] = step;
            for (size_t dim = 0; dim < shape.size() && !listed.empty(); ++dim)
                attr_strides[dim] = listed.at(next_listed++);
            if (item.view.empty()) continue;  // the strides are not used
            for (size_t dim = 0; dim < shape.size(); ++dim)
                if (shape[dim] != 1 && attr_strides[dim] != item.view.strides[dim])
                    refuse(kBadArgument, "strides must be those of " + item.param->name + ", " +
                                             list_text(item.view.strides) + ", but got " + list_text(attr_strides) +
                                             ".");
        }
    }
}

OpLaunch OpCall::Implementation::make_launch(size_t column) {
    OpLaunch launch;
    launch.type = type;
    launch.chip = soc.profile->name;
    launch.entry = find_kernel_entry(column);
    // If every output is empty, CANN neither tiles nor launches (opbase indv_executor.h, NnopbaseSkipKernelLaunch).
    if (tensors->are_outputs_empty()) {
        launch.entry = nullptr;
        return launch;
    }
    const std::string key = cache_key();
    std::shared_ptr<const TilingResult> tiling = find_tiling(key);
    if (!tiling) {
        tiling = run_tiling();
        store_tiling(key, tiling);
    }
    check_inferred_outputs();
    check_stride_attributes();
    tensors->check_memory();
    launch.block_dim = tiling->block_dim;
    launch.tiling_key = tiling->tiling_key;
    launch.tiling = tiling->tiling;
    uint64_t tiling_workspace_bytes = 0;
    for (size_t bytes : tiling->workspaces) tiling_workspace_bytes += bytes;
    fe::PlatFormInfos platform(soc.profile);
    const uint64_t library_bytes = platform_ascendc::PlatformAscendC(&platform).GetLibApiWorkSpaceSize();
    launch.kernel_workspace_bytes = tiling_workspace_bytes - std::min(tiling_workspace_bytes, library_bytes);
    launch.deterministic = node.deterministic != 0;
    tensors->set_arguments(&launch);
    launch.packed_bytes = launch.count_packed_bytes();
    launch.workspace_bytes = tiling_workspace_bytes + launch.packed_bytes;
    return launch;
}

// The checks have the order of the generated code (asc-devkit tools/build/opbuild op_aclnn_generator.cpp,
// AclopGenCodeCommon) and of the runtime (opbase indv_executor.cpp, NnopbaseExecutorTilingAndUpdateBinInfo). If a check
// fails after the executor was taken from the pool, the executor stays out of the pool, because the caller has it.
aclnnStatus OpCall::prepare(uint64_t* workspace_bytes, aclOpExecutor** executor) {
    Implementation& call = *impl_;
    Executor* pooled_executor = nullptr;
    auto report_failure = [&](aclnnStatus status, const std::string& text) {
        set_error(text);
        if (pooled_executor) pooled_executor->store_failure(text);
        return status;
    };
    try {
        call.require_tensors();
        call.require_package();
        OpRecord def = call.definition_for_chip();
        call.require_kernel_list();
        if (!executor) call.refuse(kNullPointer, "executor must be given but got NULL.");
        pooled_executor = Executor::take(call.type);
        *executor = pooled_executor->handle();
        call.tensors = std::make_unique<CallTensors>(def, call.given_inputs, call.given_outputs);
        if (!call.attr_failure.text.empty())
            call.refuse(call.attr_failure.status, def.attrs.at(call.failed_attr).name + " " + call.attr_failure.text);
        // Without this pointer, NnopbaseMatchArgs returns the status 161001, which CANN's generated code treats as
        // `true`. So the first phase succeeds and the second phase fails.
        if (!workspace_bytes) return OK;
        call.fill_node();
        const OpLaunch launch = call.make_launch(call.find_kernel_column());
        *workspace_bytes = launch.workspace_bytes;
        pooled_executor->prepare(std::move(call.tensors), launch);
        return OK;
    } catch (const Failure& failure) {
        return report_failure(failure.status, failure.text);
    } catch (const std::exception& e) {
        return report_failure(kBadArgument, "[" + call.type + "] call must succeed but got " + e.what() + ".");
    }
}

}  // namespace simulated_cann
