#include "cann/host/call_tensors.h"

#include <algorithm>

#include "cann/host/cann_types.h"
#include "cann/host/op_call.h"
#include "cann/runtime/objects.h"
#include "include/ascend_sim.h"

namespace simulated_cann {
namespace {

// Capacity of gert::Shape: a tensor with more dimensions cannot be passed to a tiling.
constexpr size_t kMaxDims = 25;

}  // namespace

void CallTensors::refuse(aclnnStatus status, const std::string& text) const {
    throw Failure{status, "[" + def_.type + "] " + text};
}

// The generated code checks for NULL first, inputs before outputs (asc-devkit tools/build/opbuild
// op_aclnn_generator.cpp, AclnnOpGenCodeParamCheck).
CallTensors::CallTensors(const OpRecord& def, const std::vector<const aclTensor*>& inputs,
                         const std::vector<const aclTensor*>& outputs)
    : def_(def) {
    auto add = [&](const ParamRecord& param, const aclTensor* tensor, bool is_input) {
        Item item;
        item.param = &param;
        item.is_input = is_input;
        if (!tensor && param.param_type != ops::OPTIONAL)
            refuse(kNullPointer, param.name + " must be a tensor but got NULL.");
        item.is_given = tensor != nullptr;
        if (tensor) {
            item.dtype = tensor->dtype;
            item.format = tensor->format;
            item.offset = tensor->offset;
            item.accepts_view = is_input && param.ignore_contiguous;
            item.view.name = param.name;
            item.view.shape = tensor->shape;
            item.view.strides = tensor->strides;
            const TypeRow* row = find_type(tensor->dtype);
            item.view.item_bytes = row ? row->bytes : 1;
            item.view.first = static_cast<char*>(tensor->data) + tensor->offset * item.view.item_bytes;
        }
        items_.push_back(std::move(item));
    };
    for (size_t i = 0; i < def_.inputs.size(); ++i) add(def_.inputs[i], inputs.at(i), true);
    size_t next_output = 0;
    for (size_t i = 0; i < def_.outputs.size(); ++i)
        if (def_.input_of_output(i) < 0) add(def_.outputs[i], outputs.at(next_output++), false);
    for (const Item& item : items_)
        if (item.is_given && item.view.shape.size() > kMaxDims)
            refuse(kBadArgument, item.param->name + " must have at most " + std::to_string(kMaxDims) +
                                     " dimensions but got " + std::to_string(item.view.shape.size()) + ".");
}

size_t CallTensors::item_of_output(size_t output) const {
    if (const int input = def_.input_of_output(output); input >= 0) return static_cast<size_t>(input);
    size_t item = def_.inputs.size();
    for (size_t i = 0; i < output; ++i) item += def_.input_of_output(i) < 0;
    return item;
}

// If any input has AutoContiguous(), the generated code calls aclnnContiguous for all inputs that lack
// IgnoreContiguous() (op_aclnn_generator.cpp, CheckAutoContiguousWarning).
bool CallTensors::is_packed_if_strided(const Item& item) const {
    const bool has_auto_contiguous = std::any_of(def_.inputs.begin(), def_.inputs.end(),
                                                 [](const ParamRecord& input) { return input.auto_contiguous; });
    return has_auto_contiguous && item.is_input && !item.param->ignore_contiguous;
}

// An output that is NULL counts as empty (opbase indv_executor_tensor.cpp, NnopbaseExecutorAddTensor;
// indv_executor.cpp, NnopbaseExecutorMatchCache).
bool CallTensors::are_outputs_empty() const {
    for (size_t output = 0; output < def_.outputs.size(); ++output) {
        const Item& item = items_[item_of_output(output)];
        if (item.is_given && !item.view.empty()) return false;
    }
    return true;
}

// CANN checks only inputs (opbase indv_executor_tensor.cpp, NnopbaseExecutorAddTensor).
std::string CallTensors::find_refused_view() const {
    for (const Item& item : items_)
        if (item.is_given && item.is_input && !item.accepts_view && !is_packed_if_strided(item) &&
            !item.view.is_contiguous())
            return item.param->name;
    return "";
}

void CallTensors::check_memory() {
    for (Item& item : items_) {
        if (!item.is_given) continue;
        DeviceView& view = item.view;
        if (!find_type(item.dtype))
            refuse(kBadArgument,
                   view.name + " must have a simulated type but got type " + std::to_string(item.dtype) + ".");
        if (!view.find_span())
            refuse(kBadArgument, view.name + " must fit into memory but got shape " + list_text(view.shape) + ".");
        if (!view.is_in_one_allocation())
            refuse(kBadArgument, view.name + " must lie inside one allocation of device memory but got other memory.");
    }
    for (size_t out = 0; out < items_.size(); ++out) {
        if (!items_[out].is_given || (items_[out].is_input && !def_.is_output(items_[out].param->name))) continue;
        for (size_t i = 0; i < items_.size(); ++i) {
            if (i == out || !items_[i].is_given || (i > out && !items_[out].is_input)) continue;
            const DeviceView &output = items_[out].view, &other = items_[i].view;
            const bool may_be_same = !items_[out].is_input && items_[i].is_input;
            if (may_be_same && output.is_same_as(other)) continue;
            if (output.shares_memory_with(other))
                refuse(kBadArgument, output.name + " must " + (may_be_same ? "be " + other.name + " itself or " : "") +
                                         "share no memory with " + other.name + " but got overlapping memory.");
        }
    }
}

// The kernel's arguments are all inputs, then all outputs. An input that is also an output has one memory and two
// arguments.
void CallTensors::set_arguments(OpLaunch* launch) const {
    launch->memories.clear();
    launch->arguments.clear();
    std::vector<int> memory_indices(items_.size(), -1);  // each item's index in the launch's memories
    auto add_memory = [&](size_t item, int32_t role) {
        const Item& tensor = items_[item];
        memory_indices[item] = static_cast<int>(launch->memories.size());
        launch->memories.push_back({tensor.view, role, !tensor.view.is_contiguous() && is_packed_if_strided(tensor)});
    };
    for (size_t i = 0; i < input_count(); ++i) {
        if (items_[i].is_given) add_memory(i, ASCEND_SIM_IN);
        launch->arguments.push_back(memory_indices[i]);
    }
    for (size_t output = 0; output < def_.outputs.size(); ++output) {
        const size_t item = item_of_output(output);
        int input = def_.input_of_output(output);
        // A definition does not say whether cores add atomically to an input that is written; the role SUM allows it.
        // In deterministic mode the result must not depend on the order of the cores.
        const ascend_sim_role role = input < 0 || launch->deterministic ? ASCEND_SIM_INOUT : ASCEND_SIM_SUM;
        for (size_t i = 0; i < input_count() && input < 0 && items_[item].is_given; ++i)
            if (items_[i].is_given && items_[item].view.is_same_as(items_[i].view)) input = static_cast<int>(i);
        if (input < 0 && items_[item].is_given) {
            add_memory(item, ASCEND_SIM_OUT);
        } else if (input >= 0) {
            memory_indices[item] = memory_indices[static_cast<size_t>(input)];
            if (memory_indices[item] >= 0) launch->memories[static_cast<size_t>(memory_indices[item])].role = role;
        }
        launch->arguments.push_back(memory_indices[item]);
    }
}

bool CallTensors::set_address(bool is_input, size_t index, void* first) {
    const size_t item = is_input ? index : item_of_output(index);
    if (!items_[item].is_given) return false;
    items_[item].view.first = static_cast<char*>(first);
    return true;
}

}  // namespace simulated_cann
