#include "simulator/cann/host/op_call.h"

#include <dlfcn.h>

#include <algorithm>
#include <filesystem>

#include "simulator/cann/host/cann_types.h"
#include "simulator/cann/host/def_reader.h"
#include "simulator/cann/host/node.h"
#include "simulator/cann/host/op_launch.h"
#include "simulator/cann/runtime/objects.h"
#include "simulator/include/npu_sim.h"
#include "tiling/platform/platform_ascendc.h"

namespace npu_cann {
namespace {

std::vector<int64_t> sizes_of(const gert::Shape& shape) {
    std::vector<int64_t> sizes;
    for (size_t d = 0; d < shape.GetDimNum(); ++d) sizes.push_back(shape.GetDim(d));
    return sizes;
}

gert::Shape shape_of(const std::vector<int64_t>& sizes) {
    gert::Shape shape;
    for (int64_t size : sizes) shape.AppendDim(size);
    return shape;
}

// The package that this code is a part of: <package>/op_api/lib/libcust_opapi.so.
std::string own_package() {
    Dl_info found;
    if (!dladdr(reinterpret_cast<const void*>(&own_package), &found) || !found.dli_fname) return "";
    std::error_code none;
    const auto library = std::filesystem::canonical(found.dli_fname, none);
    return none ? "" : library.parent_path().parent_path().parent_path().string();
}

// Another part of its storage than all of it, in order.
bool is_view(const aclTensor& t) {
    int64_t step = 1;
    for (size_t d = t.shape.size(); d-- > 0; step *= t.shape[d])
        if (t.shape[d] != 1 && t.strides[d] != step) return true;
    return false;
}

// A chip's name, and the SoC that definitions call it.
struct Chip {
    std::string soc;
    const npu_sim::Profile* profile;
};

Chip find_chip(const std::string& name) {
    constexpr const char* kFamilies[][2] = {
        {"Ascend910_93", "ascend910_93"}, {"Ascend910B", "ascend910b"}, {"Ascend310P", "ascend310p"}};
    for (const auto& family : kFamilies) {
        if (name.rfind(family[0], 0) != 0) continue;
        const npu_sim::Profile* own = npu_sim::find_profile(name.c_str());
        return {family[1], own ? own : npu_sim::find_profile(family[1])};
    }
    return {name, nullptr};
}

// One instruction set and one UB: their kernels are compiled once.
std::string kernel_soc(const Chip& chip) { return chip.profile->arch == 220 ? "ascend910b" : chip.soc; }

struct Failure {
    aclnnStatus status;
    std::string text;
};

}  // namespace

struct OpCall::Parts {
    std::string type;
    std::vector<const aclTensor*> inputs, outputs;
    struct Attr {
        std::vector<double> reals;
        std::vector<int64_t> integers;
        std::string text;
    };
    std::vector<Attr> attrs;
    Failure attr_failure = {OK, ""};  // of the first attribute that CANN does not take
    size_t failed_attr = 0;

    // Found while the call is prepared.
    OpRecord def;
    Chip chip;
    Node node;
    std::vector<const aclTensor*> tensors;  // inputs, then outputs that are no inputs
    std::vector<const ParamRecord*> params;

    [[noreturn]] void refuse(aclnnStatus status, const std::string& text) const {
        throw Failure{status, "[" + type + "] " + text};
    }
    void require_package() const;
    template <typename List>
    void add_list(const List* list);
    void fail_attr(aclnnStatus status, const std::string& rule);
    void read_definition();
    void require_tensors();
    void make_node();
    void add_attrs();
    void tile();
    void infer();
    std::string find_column() const;
    void check_strides_told() const;
    std::vector<DeviceView> views() const;
    bool packs(const ParamRecord& p) const;
    bool is_written(const ParamRecord& input) const;
    aclOpExecutor* executor(const std::string& column, uint64_t workspace_bytes) const;
    void add_arguments(OpLaunch* launch) const;
};

OpCall::OpCall(const char* op_type) : parts_(new Parts) { parts_->type = op_type; }
OpCall::~OpCall() = default;
void OpCall::input(const aclTensor* tensor) { parts_->inputs.push_back(tensor); }
void OpCall::output(const aclTensor* tensor) { parts_->outputs.push_back(tensor); }
void OpCall::attr(int64_t value) { parts_->attrs.push_back({{}, {value}, {}}); }
void OpCall::attr(double value) { parts_->attrs.push_back({{value}, {}, {}}); }
void OpCall::attr(bool value) { parts_->attrs.push_back({{}, {value}, {}}); }
void OpCall::attr(const char* value) {
    if (!value) parts_->fail_attr(kNullPointer, "must be given but got NULL.");
    parts_->attrs.push_back({{}, {}, value ? value : ""});
}
void OpCall::attr(const aclIntArray* values) { parts_->add_list(values); }
void OpCall::attr(const aclFloatArray* values) { parts_->add_list(values); }
void OpCall::attr(const aclBoolArray* values) { parts_->add_list(values); }
void OpCall::attr(const int64_t* values, size_t count) { parts_->attrs.push_back({{}, {values, values + count}, {}}); }
void OpCall::attr(const float* values, size_t count) { parts_->attrs.push_back({{values, values + count}, {}, {}}); }
void OpCall::attr(const bool* values, size_t count) { parts_->attrs.push_back({{}, {values, values + count}, {}}); }

// The list's elements. Both cases fail in CANN when the attribute is added, before anything else of the call is
// looked at: a NULL list in the generated code, a list without elements in the runtime, because an array of size 0
// keeps no memory (opbase src/nnopbase/common/utils/common_types.cpp, aclArray) and an attribute's address must not
// be null (src/nnopbase/individual_op/executor/indv_executor_tensor.cpp, NnopbaseExecutorAddAttr).
template <typename List>
void OpCall::Parts::add_list(const List* list) {
    if (!list)
        fail_attr(kNullPointer, "must be given but got NULL.");
    else if (list->values.empty())
        fail_attr(kInnerNullPointer, "must have elements but got an empty list.");
    Attr a;
    if (list && std::is_same<List, aclFloatArray>::value)
        a.reals.assign(list->values.begin(), list->values.end());
    else if (list)
        a.integers.assign(list->values.begin(), list->values.end());
    attrs.push_back(std::move(a));
}

// Only the first failure is CANN's answer: its generated code returns there.
void OpCall::Parts::fail_attr(aclnnStatus status, const std::string& rule) {
    if (!attr_failure.text.empty()) return;
    attr_failure = {status, rule};
    failed_attr = attrs.size();
}

// An operator of a package that CANN did not read has no executor: NnopbaseExecutorSetRegInfo fails,
// NnopbaseGetExecutor gives null, and the generated code returns ACLNN_ERR_INNER_NULLPTR (hicann/opbase
// src/nnopbase/individual_op/executor/indv_executor_ext.cpp; asc-devkit tools/build/opbuild/op_aclnn_generator.cpp).
void OpCall::Parts::require_package() const {
    const std::string own = own_package();
    std::string read;
    for (const std::string& folder : operator_packages()) {
        if (folder == own) return;
        read += (read.empty() ? "" : ", ") + folder;
    }
    refuse(kNoExecutor,
           "operator package must be in ASCEND_CUSTOM_OPP_PATH, or installed into CANN, at the process's "
           "first operator of a package but got " +
               (read.empty() ? std::string("none") : read) + ", and not " + own + ".");
}

void OpCall::Parts::read_definition() {
    const char* name = soc_name();
    chip = find_chip(name ? name : "");
    if (!chip.profile) refuse(kBadArgument, "soc must be a simulated chip but got " + chip.soc + ".");
    if (!DefReader::read(type, chip.soc, &def))
        refuse(kNoKernel, "soc must be one that the operator is defined for but got " + chip.soc + ".");
}

void OpCall::Parts::require_tensors() {
    auto take = [&](const ParamRecord& p, const aclTensor* t) {
        if (!t && p.param_type != ops::OPTIONAL) refuse(kNullPointer, p.name + " must be a tensor but got NULL.");
        if (t && t->shape.size() != t->strides.size())
            refuse(kBadArgument, p.name + " must have a stride a dimension but got " + list_text(t->strides) +
                                     " for shape " + list_text(t->shape) + ".");
        if (t && t->shape.size() > gert::Shape::kMaxDimNum)
            refuse(kBadArgument,
                   p.name + " must have at most 25 dimensions but got " + std::to_string(t->shape.size()) + ".");
        tensors.push_back(t);
        params.push_back(&p);
    };
    for (size_t i = 0; i < def.inputs.size(); ++i) take(def.inputs[i], inputs.at(i));
    size_t given = 0;
    for (size_t i = 0; i < def.outputs.size(); ++i)
        if (def.input_of_output(i) < 0) take(def.outputs[i], outputs.at(given++));
    if (!attr_failure.text.empty())
        refuse(attr_failure.status, def.attrs.at(failed_attr).name + " " + attr_failure.text);
}

void OpCall::Parts::make_node() {
    node.type = type;
    node.platform.profile = chip.profile;
    auto of = [](const aclTensor* t) {
        if (!t) return Node::Tensor();
        Node::Tensor made = Node::tensor(static_cast<ge::DataType>(t->dtype), t->shape);
        if (is_view(*t)) made.shape.MutableStorageShape() = shape_of(t->storage_shape);
        return made;
    };
    for (size_t i = 0; i < def.inputs.size(); ++i) node.inputs.push_back(of(tensors[i]));
    size_t given = def.inputs.size();
    for (size_t i = 0; i < def.outputs.size(); ++i) {
        int same = def.input_of_output(i);
        node.outputs.push_back(of(same < 0 ? tensors[given++] : tensors[static_cast<size_t>(same)]));
    }
    add_attrs();
}

void OpCall::Parts::add_attrs() {
    for (size_t i = 0; i < def.attrs.size(); ++i) {
        const AttrRecord& a = def.attrs[i];
        const std::vector<int64_t>& integers = attrs.at(i).integers;
        std::vector<float> floats(attrs[i].reals.begin(), attrs[i].reals.end());
        std::vector<uint8_t> bools(integers.begin(), integers.end());
        switch (a.type) {
            case ops::AttrDataType::ATTR_DT_BOOL:
                node.add_attr(integers.at(0) != 0);
                break;
            case ops::AttrDataType::ATTR_DT_FLOAT:
                node.add_attr(floats.at(0));
                break;
            case ops::AttrDataType::ATTR_DT_INT:
                node.add_attr(integers.at(0));
                break;
            case ops::AttrDataType::ATTR_DT_STR:
                node.add_attr_text(attrs[i].text);
                break;
            case ops::AttrDataType::ATTR_DT_LIST_BOOL:
                node.add_attr_list(bools.data(), bools.size());
                break;
            case ops::AttrDataType::ATTR_DT_LIST_FLOAT:
                node.add_attr_list(floats.data(), floats.size());
                break;
            case ops::AttrDataType::ATTR_DT_LIST_INT:
                node.add_attr_list(integers.data(), integers.size());
                break;
        }
    }
}

// CANN looks for a kernel of these types first. Here the operator speaks first, whose own words say more.
void OpCall::Parts::tile() {
    auto function = find_functions(type).tiling;
    if (!function) refuse(kTilingFailed, "tiling must be registered but got none.");
    take_logged_error();
    if (node.tile(function) == ge::GRAPH_SUCCESS) {
        if (node.block_dim == 0 || node.tiling.GetDataSize() == 0)
            refuse(kTilingFailed, "tiling must set a block count and data but got neither or one of them.");
        return;
    }
    std::string said = take_logged_error();
    if (said.empty()) refuse(kTilingFailed, "tiling must succeed but got a failure that it does not explain.");
    throw Failure{kTilingFailed, said};
}

// What the operator says of its outputs must be what they are.
void OpCall::Parts::infer() {
    const OpFunctions& functions = find_functions(type);
    if (!functions.infer_shape || !functions.infer_data_type)
        refuse(kInferShapeFailed, "shape and type of the outputs must be registered but got none.");
    std::vector<Node::Tensor> given = node.outputs;
    for (Node::Tensor& t : node.outputs) t = Node::tensor(ge::DT_UNDEFINED, {});
    bool ok = node.infer_shape(functions.infer_shape) == ge::GRAPH_SUCCESS &&
              node.infer_data_type(functions.infer_data_type) == ge::GRAPH_SUCCESS;
    if (!ok) refuse(kInferShapeFailed, "shape and type of the outputs must follow from the inputs but got a failure.");
    for (size_t i = 0; i < given.size(); ++i) {
        const gert::Shape &says = node.outputs[i].shape.GetOriginShape(), &is = given[i].shape.GetOriginShape();
        std::string name = def.outputs[i].name;
        if (says != is)
            refuse(kBadArgument, name + " must have shape " + list_text(sizes_of(says)) + " but got " +
                                     list_text(sizes_of(is)) + ".");
        if (node.outputs[i].desc.GetDataType() != given[i].desc.GetDataType())
            refuse(kBadArgument, name + " must be " + type_name(node.outputs[i].desc.GetDataType()) + " but got " +
                                     type_name(given[i].desc.GetDataType()) + ".");
    }
    node.outputs = std::move(given);
}

// The types of a kernel's arguments, as its name has them.
std::string OpCall::Parts::find_column() const {
    for (size_t column = 0; column < def.columns(); ++column) {
        std::string name;
        bool fits = true;
        for (size_t i = 0; i < tensors.size(); ++i) {
            ge::DataType type_of_column = params[i]->types.at(column);
            fits = fits && (!tensors[i] || tensors[i]->dtype == type_of_column);
            const TypeRow* row = find_type(type_of_column);
            name += (i ? "_" : "") + std::string(row ? row->kernel : "unknown");
        }
        if (fits) return name;
    }
    std::string got;
    for (size_t i = 0; i < tensors.size(); ++i)
        if (tensors[i]) got += (got.empty() ? "" : ", ") + params[i]->name + " " + type_name(tensors[i]->dtype);
    refuse(kBadArgument, "tensors must have the types of one of its kernels on " + chip.soc + " but got " + got + ".");
}

// Framework's rule: where one input is made contiguous, all are that do not say otherwise.
bool OpCall::Parts::packs(const ParamRecord& p) const {
    bool any =
        std::any_of(def.inputs.begin(), def.inputs.end(), [](const ParamRecord& i) { return i.auto_contiguous; });
    bool is_input = std::any_of(def.inputs.begin(), def.inputs.end(), [&](const ParamRecord& i) { return &i == &p; });
    return any && is_input && !p.ignore_contiguous;
}

bool OpCall::Parts::is_written(const ParamRecord& input) const {
    return std::any_of(def.outputs.begin(), def.outputs.end(),
                       [&](const ParamRecord& o) { return o.name == input.name; });
}

// A tiling does not see strides. An operator that takes them as an attribute `strides` is told the truth
// or nothing: those of every input that may be a view, then of every output that is no input.
void OpCall::Parts::check_strides_told() const {
    for (size_t a = 0; a < def.attrs.size(); ++a) {
        if (def.attrs[a].name != "strides" || def.attrs[a].type != ops::AttrDataType::ATTR_DT_LIST_INT) continue;
        size_t at = 0;
        std::vector<int64_t> told = attrs[a].integers;
        if (told == std::vector<int64_t>{0}) told.clear();  // every tensor is contiguous
        for (size_t i = 0; i < tensors.size(); ++i) {
            bool is_input = i < def.inputs.size();
            if (!tensors[i] || (is_input && !params[i]->ignore_contiguous)) continue;
            const std::vector<int64_t>& shape = tensors[i]->shape;
            std::vector<int64_t> expected(shape.size());
            int64_t step = 1;
            for (size_t d = shape.size(); d-- > 0; step *= shape[d]) expected[d] = step;
            for (size_t d = 0; d < shape.size() && !told.empty(); ++d) expected[d] = told.at(at++);
            for (size_t d = 0; d < shape.size(); ++d)
                if (shape[d] != 1 && expected[d] != tensors[i]->strides[d])
                    refuse(kBadArgument, "strides must be those of " + params[i]->name + ", " +
                                             list_text(tensors[i]->strides) + ", but got " + list_text(expected) + ".");
        }
    }
}

std::vector<DeviceView> OpCall::Parts::views() const {
    std::vector<DeviceView> all(tensors.size());
    for (size_t i = 0; i < tensors.size(); ++i) {
        if (!tensors[i]) continue;
        const aclTensor& t = *tensors[i];
        DeviceView& v = all[i];
        v.name = params[i]->name;
        v.shape = t.shape;
        v.strides = t.strides;
        v.item_bytes = find_type(t.dtype)->bytes;
        v.first = static_cast<char*>(t.data) + t.offset * v.item_bytes;
        if (!v.find_span())
            refuse(kBadArgument, v.name + " must fit into memory but got shape " + list_text(t.shape) + ".");
        void* begin = nullptr;
        uint64_t bytes = 0;
        bool inside = v.empty() || (find_allocation(v.low, &begin, &bytes) && v.low >= begin &&
                                    v.high <= static_cast<char*>(begin) + bytes);
        if (!inside)
            refuse(kBadArgument, v.name + " must lie inside one allocation of device memory but got other memory.");
        if (!v.contiguous() && !params[i]->ignore_contiguous && !packs(*params[i]) && i < def.inputs.size())
            refuse(kBadArgument, v.name + " must be contiguous but got strides " + list_text(t.strides) + ".");
    }
    for (size_t out = 0; out < all.size(); ++out) {
        bool is_output = out >= def.inputs.size();
        if (!is_output && !is_written(*params[out])) continue;
        for (size_t i = 0; i < all.size(); ++i) {
            if (i == out || (i > out && is_output)) continue;
            bool is_itself = is_output && i < def.inputs.size() && all[out].same_as(all[i]);
            if (!is_itself && all[out].shares_memory_with(all[i]))
                refuse(kBadArgument, all[out].name + " must be an input itself or share no memory with " + all[i].name +
                                         " but got memory that they share.");
        }
    }
    return all;
}

aclOpExecutor* OpCall::Parts::executor(const std::string& column, uint64_t workspace_bytes) const {
    auto launch = std::make_shared<OpLaunch>();
    const std::string entry = snake_case(type) + "__" + kernel_soc(chip) + "__" + column;
    launch->entry = npu_sim_find_kernel(entry.c_str());
    if (!launch->entry) {
        const char* why = dlerror();
        refuse(kNoKernel, "kernel must be compiled but got none (" + std::string(why ? why : entry) + ").");
    }
    launch->type = type;
    launch->chip = chip.profile->name;
    launch->workspace_bytes = workspace_bytes;
    fe::PlatFormInfos platform(chip.profile);
    const uint64_t of_library = platform_ascendc::PlatformAscendC(&platform).GetLibApiWorkSpaceSize();
    launch->kernel_workspace_bytes = workspace_bytes - std::min(workspace_bytes, of_library);
    launch->block_dim = node.block_dim;
    launch->tiling_key = node.tiling_key;
    const auto* data = static_cast<const uint8_t*>(node.tiling.GetData());
    launch->tiling.assign(data, data + node.tiling.GetDataSize());
    add_arguments(launch.get());
    return new aclOpExecutor{type, [launch](void* workspace, uint64_t bytes) { return launch->run(workspace, bytes); }};
}

// The kernel's arguments are the definition's inputs and outputs; one memory where both are the same.
void OpCall::Parts::add_arguments(OpLaunch* launch) const {
    std::vector<DeviceView> all = views();
    std::vector<int> place(all.size(), -1);  // of a tensor among the launch's memories
    auto add = [&](size_t tensor, int32_t role) {
        place[tensor] = static_cast<int>(launch->memories.size());
        launch->memories.push_back({all[tensor], role, !all[tensor].contiguous() && packs(*params[tensor])});
    };
    for (size_t i = 0; i < def.inputs.size(); ++i) {
        if (tensors[i]) add(i, NPU_SIM_IN);
        launch->arguments.push_back(place[i]);
    }
    size_t given = def.inputs.size();
    for (size_t o = 0; o < def.outputs.size(); ++o) {
        int same = def.input_of_output(o);
        // Of an input that is written the definition does not tell whether cores add to it.
        const npu_sim_role role = same < 0 ? NPU_SIM_INOUT : NPU_SIM_SUM;
        size_t tensor = same < 0 ? given++ : static_cast<size_t>(same);
        for (size_t i = 0; i < def.inputs.size() && same < 0; ++i)
            if (tensors[i] && all[tensor].same_as(all[i])) same = static_cast<int>(i);
        if (same < 0) {
            add(tensor, NPU_SIM_OUT);
        } else {
            place[tensor] = place[static_cast<size_t>(same)];
            launch->memories[static_cast<size_t>(place[tensor])].role = role;
        }
        launch->arguments.push_back(place[tensor]);
    }
}

aclnnStatus OpCall::prepare(uint64_t* workspace_bytes, aclOpExecutor** executor) {
    Parts& p = *parts_;
    if (executor) *executor = nullptr;
    try {
        if (!workspace_bytes) p.refuse(kNullPointer, "workspaceSize must be given but got NULL.");
        if (!executor) p.refuse(kNullPointer, "executor must be given but got NULL.");
        *workspace_bytes = 0;
        p.require_package();
        p.read_definition();
        p.require_tensors();
        p.make_node();
        p.tile();
        p.infer();
        std::string column = p.find_column();
        p.check_strides_told();
        uint64_t needed = p.node.workspaces.empty() ? 0 : p.node.workspaces[0];
        *executor = p.executor(column, needed);
        *workspace_bytes = needed;
        return OK;
    } catch (const Failure& failure) {
        set_error(failure.text);
        return failure.status;
    } catch (const std::exception& e) {
        set_error("[" + p.type + "] call must succeed but got " + e.what() + ".");
        return kBadArgument;
    }
}

aclnnStatus run_prepared(void* workspace, uint64_t workspace_bytes, aclOpExecutor* executor, aclrtStream stream) {
    if (!executor) {
        set_error("[aclnn] executor must come from a first phase that succeeded but got NULL.");
        return kNullPointer;
    }
    return launch(workspace, workspace_bytes, executor, stream);
}

}  // namespace npu_cann
