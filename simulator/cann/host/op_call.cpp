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
namespace {

std::vector<int64_t> sizes_of(const gert::Shape& shape) {
    std::vector<int64_t> sizes;
    for (size_t d = 0; d < shape.GetDimNum(); ++d) sizes.push_back(shape.GetDim(d));
    return sizes;
}

// A chip's SoC, by its name in definitions, and its profile.
struct SimulatedSoc {
    std::string soc;
    const ascend_sim::Profile* profile;
};

// A chip's profile with another number of cores. It is kept, because calls keep its address.
const ascend_sim::Profile* with_cores(const ascend_sim::Profile& chip, int32_t cores) {
    static std::mutex mutex;
    static std::map<std::pair<std::string, int32_t>, ascend_sim::Profile> profiles;
    const std::lock_guard<std::mutex> lock(mutex);
    ascend_sim::Profile& profile = profiles.try_emplace({chip.name, cores}, chip).first->second;
    profile.cores = cores;
    return &profile;
}

// A chip that src/chips.h lacks has the profile of its family's first chip. The runtime gives the number of cores.
SimulatedSoc find_soc(const std::string& name) {
    const ascend_sim::Family* family = ascend_sim::find_family(name.c_str());
    if (!family || family->arch == ascend_sim::kArch950) return {name, nullptr};
    const char* const profile = ascend_sim::find_chip(name.c_str()) ? name.c_str() : family->soc;
    return {family->soc, with_cores(*ascend_sim::find_profile(profile), soc_kernel_cores())};
}

// The format that the runtime compares with the definition's. It treats some formats as ND (opbase
// indv_executor_tensor.cpp, FormatsLikeND).
int32_t compared_format(int32_t format) {
    constexpr int32_t kNd = 2, kLikeNd[] = {0, 1, 30, 31, 47};  // NCHW, NHWC, NCDHW, DHWCN, NCL
    return std::find(std::begin(kLikeNd), std::end(kLikeNd), format) == std::end(kLikeNd) ? format : kNd;
}

std::string format_name(int32_t format) { return format == 2 ? "ND" : "format " + std::to_string(format); }

}  // namespace

struct OpCall::Parts {
    std::string type;
    std::vector<const aclTensor*> given_inputs, given_outputs;
    Failure attr_failure;  // of the first attribute that CANN refuses
    size_t failed_attr = 0;

    Node node;  // OpCall::attr() adds the attributes, make_node() the rest

    // Found while the call is prepared.
    SimulatedSoc chip;
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
    size_t find_column() const;
    void* find_entry(size_t column) const;
    std::string cache_key() const;
    void make_node();
    std::shared_ptr<const TilingResult> tile();
    void infer();
    void check_stride_attributes() const;
    OpLaunch make_launch(size_t column);
};

OpCall::OpCall(const char* op_type) : parts_(new Parts) { parts_->type = op_type; }
OpCall::~OpCall() = default;
void OpCall::input(const aclTensor* tensor) { parts_->given_inputs.push_back(tensor); }
void OpCall::output(const aclTensor* tensor) { parts_->given_outputs.push_back(tensor); }
void OpCall::attr(int64_t value) { parts_->node.add_attr(value); }
void OpCall::attr(double value) { parts_->node.add_attr(static_cast<float>(value)); }
void OpCall::attr(bool value) { parts_->node.add_attr(value); }
void OpCall::attr(const char* value) {
    if (!value) parts_->fail_attr(kNullPointer, "must be given but got NULL.");
    parts_->node.add_attr_text(value ? value : "");
}
void OpCall::attr(const aclIntArray* values) { parts_->add_list(values); }
void OpCall::attr(const aclFloatArray* values) { parts_->add_list(values); }
void OpCall::attr(const aclBoolArray* values) { parts_->add_list(values); }
void OpCall::attr(const int64_t* values, size_t count) { parts_->node.add_attr_list(values, count); }
void OpCall::attr(const float* values, size_t count) { parts_->node.add_attr_list(values, count); }
void OpCall::attr(const bool* values, size_t count) { parts_->node.add_attr_list(values, count); }

// Adds a list attribute. In CANN, a NULL list and a list without elements fail when the attribute is added, before
// other checks of the call: a NULL list in the generated code, an empty list in the runtime, because an array of size 0
// keeps no memory (opbase src/nnopbase/common/utils/common_types.cpp, aclArray) and an attribute's address must not
// be null (src/nnopbase/individual_op/executor/indv_executor_tensor.cpp, NnopbaseExecutorAddAttr).
template <typename List>
void OpCall::Parts::add_list(const List* list) {
    if (!list)
        fail_attr(kNullPointer, "must be given but got NULL.");
    else if (list->values.empty())
        fail_attr(kInnerNullPointer, "must have elements but got an empty list.");
    const List given = list ? *list : List();
    node.add_attr_list(given.values.data(), given.values.size());
}

// CANN reports only the first failure, because its generated code returns there.
void OpCall::Parts::fail_attr(aclnnStatus status, const std::string& rule) {
    if (!attr_failure.text.empty()) return;
    attr_failure = {status, rule};
    failed_attr = node.attrs.size();
}

// The generated code checks for NULL before it gets an executor.
void OpCall::Parts::require_tensors() const {
    OpRecord base;
    if (!DefReader::read(type, "", &base)) refuse(kNullPointer, "operator must be defined but is not.");
    CallTensors(base, given_inputs, given_outputs);
}

// An operator of a package that CANN did not read has no executor: NnopbaseExecutorSetRegInfo fails, and in the
// generated code NnopbaseGetExecutor returns null (opbase src/nnopbase/individual_op/executor/indv_executor_ext.cpp).
// If CANN found no package, NnopbaseInit fails and is repeated at the next call
// (src/nnopbase/individual_op/api/individual_op_api.cpp).
void OpCall::Parts::require_package() const {
    const OperatorPackages& packages = operator_packages();
    if (packages.folders.empty() && !packages.has_built_in)
        refuse(kRuntimeFailed,
               "operator package must be in ASCEND_CUSTOM_OPP_PATH or installed into CANN but got none.");
    const std::string own = resolved_package();
    if (std::find(packages.folders.begin(), packages.folders.end(), own) == packages.folders.end())
        refuse(kNullPointer,
               "operator package must be one that CANN read at the process's first operator of a package "
               "but got " +
                   own + ", which is not among them.");
}

// Without kernels for this chip an operator has no executor, which the generated code reports as a null pointer
// (opbase indv_executor_ext.cpp, NnopbaseExecutorSetRegInfo; op_aclnn_generator.cpp, AclnnOpGenCodeExecutor).
OpRecord OpCall::Parts::definition_for_chip() {
    const char* name = soc_name();
    chip = find_soc(name ? name : "");
    OpRecord def;
    if (!chip.profile) refuse(kNullPointer, "soc must be a simulated chip but got " + chip.soc + ".");
    if (!DefReader::read(type, chip.soc, &def))
        refuse(kNullPointer, "soc must be one that the operator is defined for but got " + chip.soc + ".");
    return def;
}

// CANN registers only the operators in a package's list of kernels for this chip. It skips an absent, truncated or
// malformed list with a warning. If no package has a readable list and CANN's own operators are absent, CANN cannot
// start (opbase indv_collector.cpp, NnopbaseCollectorGetDynamicKernelPathAndReadConfig and NnopbaseCollectorWork).
void OpCall::Parts::require_kernel_list() const {
    const KernelList& list = KernelList::own(chip.soc);
    if (list.has_operator(type)) return;
    const OperatorPackages& packages = operator_packages();
    const bool any = packages.has_built_in ||
                     std::any_of(packages.folders.begin(), packages.folders.end(),
                                 [&](const std::string& folder) { return KernelList(folder, chip.soc).is_readable(); });
    refuse(any ? kNullPointer : kRuntimeFailed,
           "operator package must list the operator's kernels for " + chip.soc + " but got " + list.path() +
               (list.is_readable() ? ", which lists none of them." : ", which is absent or no JSON."));
}

// Returns the column of the tensors' types. CANN finds the kernel before the tiling runs, by the required tensors only
// (opbase indv_executor_ext.cpp, NnopbaseAppendDynamicTensorsKey; indv_executor.cpp, CheckSocVersionAndParam).
size_t OpCall::Parts::find_column() const {
    const std::vector<CallTensors::Item>& items = tensors->items();
    for (size_t column = 0; column < def().columns(); ++column) {
        const bool fits = std::all_of(items.begin(), items.end(), [&](const CallTensors::Item& item) {
            const ParamRecord& p = *item.param;
            return p.param_type == ops::OPTIONAL ||
                   (item.dtype == p.types.at(column) && compared_format(item.format) == format_of(p, column));
        });
        if (fits) return column;
    }
    std::string got;
    for (const CallTensors::Item& item : items) {
        if (!item.given) continue;
        const int32_t format = compared_format(item.format);
        got += (got.empty() ? "" : ", ") + item.param->name + " " + type_name(item.dtype) +
               (format == 2 ? "" : " in " + format_name(format));
    }
    refuse(kBadArgument, "tensors must have the types of one of its kernels on " + chip.soc + " but got " + got + ".");
}

// The package's list names the kernel's file, and the file names the simulator's kernel.
void* OpCall::Parts::find_entry(size_t column) const {
    const KernelList& list = KernelList::own(chip.soc);
    const std::string key = simplified_key(def(), column), object = list.find(type, key);
    if (object.empty())
        refuse(kNoKernel, "operator package must list a kernel for these types but got " + list.path() +
                              ", which has no simplifiedKey " + key + ".");
    const std::string entry = kernel_entry_name(type, object);
    if (void* found = ascend_sim_find_kernel(kernel_folder().c_str(), entry.c_str())) return found;
    const char* why = dlerror();
    refuse(kNoKernel, "kernel " + entry + " must be compiled but got none (" + (why ? why : "no reason") + ").");
}

// The key has a tensor's storage format: NCHW and ND select the same kernel but are tiled separately (opbase
// indv_cache_key_builder.cpp, AppendShapeInfo).
std::string OpCall::Parts::cache_key() const {
    TilingKey key(type, chip.profile->name + (":" + std::to_string(chip.profile->cores)));
    auto add = [&](const CallTensors::Item& item) {
        if (item.given)
            key.tensor(item.dtype, item.format, item.view.shape, item.view.strides, item.offset);
        else
            key.no_tensor();
    };
    for (size_t i = 0; i < tensors->inputs(); ++i) add(tensors->items()[i]);
    key.separator();
    for (size_t i = 0; i < def().attrs.size(); ++i) {
        const AttrRecord& attr = def().attrs[i];
        const size_t header = attr.is_list() ? sizeof(gert::ContinuousVector) : 0, stored = node.attrs[i].size();
        const size_t bytes = attr.type == ops::AttrDataType::ATTR_DT_BOOL    ? sizeof(bool)
                             : attr.type == ops::AttrDataType::ATTR_DT_FLOAT ? sizeof(float)
                                                                             : stored - header;
        key.attribute(node.attrs[i].data() + header, bytes);
    }
    key.separator();
    for (size_t o = 0; o < def().outputs.size(); ++o) add(tensors->items()[tensors->item_of_output(o)]);
    return key.text();
}

// Origin and storage shape are those of the view, independently of the tensor's storage (opbase
// indv_executor_tensor.cpp, NnopbaseSaveTensor).
void OpCall::Parts::make_node() {
    node.type = type;
    node.platform.profile = chip.profile;
    auto description = [](const CallTensors::Item& item) {
        return item.given ? Node::tensor(static_cast<ge::DataType>(item.dtype), item.view.shape) : Node::Tensor();
    };
    // An absent input is left out; an absent output is an empty description.
    for (size_t i = 0; i < tensors->inputs(); ++i) {
        const CallTensors::Item& item = tensors->items()[i];
        node.inputs.push_back(item.given ? Node::Parameter{description(item)} : Node::Parameter());
    }
    for (size_t o = 0; o < def().outputs.size(); ++o)
        node.outputs.push_back({description(tensors->items()[tensors->item_of_output(o)])});
}

std::shared_ptr<const TilingResult> OpCall::Parts::tile() {
    // Without ASCEND_OPP_PATH the last package counts as the built-in one, whose tiling library has another name
    // (opbase indv_collector.cpp, NnopbaseLoadTilingSo).
    const OperatorPackages& packages = operator_packages();
    if (!packages.has_built_in && packages.folders.back() == resolved_package())
        refuse(kTilingFailed,
               "ASCEND_OPP_PATH must be set, so that CANN loads the tiling of the last package, but got nothing.");
    const TilingLibrary* library = tiling_library();
    if (!library)
        refuse(kTilingFailed, "operator package must have a library of tilings that loads but got " +
                                  tiling_library_path() + ", which is absent or truncated.");
    auto function = library->find(type);
    if (!function) refuse(kTilingFailed, "tiling must be registered but got none.");
    library->take_logged_error();
    if (node.tile(function) != ge::GRAPH_SUCCESS) {
        std::string logged = library->take_logged_error();
        if (logged.empty()) refuse(kTilingFailed, "tiling must succeed but got a failure that it does not explain.");
        throw Failure{kTilingFailed, logged};
    }
    if (node.block_dim == 0 || node.tiling.GetDataSize() == 0)
        refuse(kTilingFailed, "tiling must set a block count and data but got at most one of them.");
    auto tiled = std::make_shared<TilingResult>();
    tiled->tiling_key = node.tiling_key;
    tiled->block_dim = node.block_dim;
    const auto* data = static_cast<const uint8_t*>(node.tiling.GetData());
    tiled->tiling.assign(data, data + node.tiling.GetDataSize());
    tiled->workspaces = node.workspaces;
    return tiled;
}

// Checks that the outputs have the shapes and types that the operator infers. CANN does not compare them in this call;
// this rule is stricter.
void OpCall::Parts::infer() {
    const OpFunctions& functions = find_functions(type);
    if (!functions.infer_shape || !functions.infer_data_type)
        refuse(kInferShapeFailed, "shape and type of the outputs must be registered but got none.");
    std::vector<Node::Parameter> given = node.outputs;
    for (Node::Parameter& p : node.outputs) p = {Node::tensor(ge::DT_UNDEFINED, {})};
    bool ok = node.infer_shape(functions.infer_shape) == ge::GRAPH_SUCCESS &&
              node.infer_data_type(functions.infer_data_type) == ge::GRAPH_SUCCESS;
    if (!ok) refuse(kInferShapeFailed, "shape and type of the outputs must follow from the inputs but got a failure.");
    for (size_t i = 0; i < given.size(); ++i) {
        const Node::Tensor &tensor = given[i][0], &found = node.outputs[i][0];
        if (!tensor.present) continue;
        const gert::Shape &inferred = found.value.GetOriginShape(), &actual = tensor.value.GetOriginShape();
        const std::string& name = def().outputs[i].name;
        if (inferred != actual)
            refuse(kBadArgument, name + " must have shape " + list_text(sizes_of(inferred)) + " but got " +
                                     list_text(sizes_of(actual)) + ".");
        if (found.desc.GetDataType() != tensor.desc.GetDataType())
            refuse(kBadArgument, name + " must be " + type_name(found.desc.GetDataType()) + " but got " +
                                     type_name(tensor.desc.GetDataType()) + ".");
    }
    node.outputs = std::move(given);
}

// Checks that an attribute `strides` has the tensors' strides: those of every input that may be a view, then of every
// output that is not an input; or a single 0 if all of them are contiguous. CANN does not compare them; this rule is
// stricter.
void OpCall::Parts::check_stride_attributes() const {
    for (size_t a = 0; a < def().attrs.size(); ++a) {
        const AttrRecord& attr = def().attrs[a];
        if (attr.name != "strides" || attr.type != ops::AttrDataType::ATTR_DT_LIST_INT) continue;
        size_t next = 0;
        const gert::TypedContinuousVector<int64_t>& list = *node.runtime_attrs()->GetListInt(a);
        std::vector<int64_t> listed(list.GetData(), list.GetData() + list.GetSize());
        if (listed == std::vector<int64_t>{0}) listed.clear();
        for (const CallTensors::Item& item : tensors->items()) {
            if (!item.given || (item.is_input && !item.reads_view)) continue;
            const std::vector<int64_t>& shape = item.view.shape;
            std::vector<int64_t> given(shape.size());
            int64_t step = 1;
            for (size_t d = shape.size(); d-- > 0; step *= shape[d]) given[d] = step;
            for (size_t d = 0; d < shape.size() && !listed.empty(); ++d) given[d] = listed.at(next++);
            if (item.view.empty()) continue;  // the strides are not used
            for (size_t d = 0; d < shape.size(); ++d)
                if (shape[d] != 1 && given[d] != item.view.strides[d])
                    refuse(kBadArgument, "strides must be those of " + item.param->name + ", " +
                                             list_text(item.view.strides) + ", but got " + list_text(given) + ".");
        }
    }
}

OpLaunch OpCall::Parts::make_launch(size_t column) {
    OpLaunch launch;
    launch.type = type;
    launch.chip = chip.profile->name;
    launch.entry = find_entry(column);
    // If every output is empty, CANN neither tiles nor launches (opbase indv_executor.h, NnopbaseSkipKernelLaunch).
    if (tensors->outputs_are_empty()) {
        launch.entry = nullptr;
        return launch;
    }
    const std::string key = cache_key();
    std::shared_ptr<const TilingResult> tiled = find_tiled(key);
    if (!tiled) {
        tiled = tile();
        store_tiling(key, tiled);
    }
    infer();
    check_stride_attributes();
    tensors->check_memory();
    launch.block_dim = tiled->block_dim;
    launch.tiling_key = tiled->tiling_key;
    launch.tiling = tiled->tiling;
    uint64_t needed = 0;
    for (size_t bytes : tiled->workspaces) needed += bytes;
    fe::PlatFormInfos platform(chip.profile);
    const uint64_t library_bytes = platform_ascendc::PlatformAscendC(&platform).GetLibApiWorkSpaceSize();
    launch.kernel_workspace_bytes = needed - std::min(needed, library_bytes);
    tensors->arrange(&launch);
    launch.packed_bytes = launch.bytes_to_pack();
    launch.workspace_bytes = needed + launch.packed_bytes;
    return launch;
}

// The order is that of the generated code (asc-devkit tools/build/opbuild op_aclnn_generator.cpp, AclopGenCodeCommon)
// and of the runtime (opbase indv_executor.cpp, NnopbaseExecutorTilingAndUpdateBinInfo). After the executor is taken,
// a failure leaves it with the caller.
aclnnStatus OpCall::prepare(uint64_t* workspace_bytes, aclOpExecutor** executor) {
    Parts& p = *parts_;
    Executor* taken = nullptr;
    auto failed = [&](aclnnStatus status, const std::string& text) {
        set_error(text);
        if (taken) taken->fail(text);
        return status;
    };
    try {
        p.require_tensors();
        p.require_package();
        OpRecord def = p.definition_for_chip();
        p.require_kernel_list();
        if (!executor) p.refuse(kNullPointer, "executor must be given but got NULL.");
        taken = Executor::take(p.type);
        *executor = taken->handle();
        p.tensors = std::make_unique<CallTensors>(def, p.given_inputs, p.given_outputs);
        if (!p.attr_failure.text.empty())
            p.refuse(p.attr_failure.status, def.attrs.at(p.failed_attr).name + " " + p.attr_failure.text);
        // CANN's generated code treats the status 161001 of NnopbaseMatchArgs as true, so this call succeeds and its
        // second phase fails.
        if (!workspace_bytes) return OK;
        p.make_node();
        const OpLaunch launch = p.make_launch(p.find_column());
        *workspace_bytes = launch.workspace_bytes;
        taken->prepare(std::move(p.tensors), launch);
        return OK;
    } catch (const Failure& failure) {
        return failed(failure.status, failure.text);
    } catch (const std::exception& e) {
        return failed(kBadArgument, "[" + p.type + "] call must succeed but got " + e.what() + ".");
    }
}

}  // namespace simulated_cann
