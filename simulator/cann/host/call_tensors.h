// A call's tensors beside the operator's definition: which are given, what a kernel gets of them, and the rules of
// memory.
#pragma once

#include <string>
#include <vector>

#include "aclnn/acl_meta.h"
#include "simulator/cann/host/def_reader.h"
#include "simulator/cann/host/device_view.h"
#include "simulator/cann/host/op_launch.h"

namespace npu_cann {

// What a phase of aclnn returns, with the sentence for aclGetRecentErrMsg.
struct Failure {
    aclnnStatus status = OK;
    std::string text;
};

class CallTensors {
public:
    struct Item {
        const ParamRecord* param = nullptr;
        bool is_input = false, given = false;
        int32_t dtype = 0, format = 0;
        int64_t offset = 0;
        bool reads_view = false;  // through IgnoreContiguous()
        DeviceView view;
    };

    // The tensors in the definition's order. An output with an input's name is that input.
    // Throws Failure where a tensor that must be there is NULL.
    CallTensors(const OpRecord& def, const std::vector<const aclTensor*>& inputs,
                const std::vector<const aclTensor*>& outputs);
    CallTensors(const CallTensors&) = delete;
    CallTensors& operator=(const CallTensors&) = delete;

    const OpRecord& def() const { return def_; }
    const std::vector<Item>& items() const { return items_; }
    size_t inputs() const { return def_.inputs.size(); }
    // Of the definition's output: its item.
    size_t item_of_output(size_t output) const;
    // Whether an input that is no run of elements is copied into one before the kernel reads it.
    bool packs(const Item& item) const;
    // Whether nothing is to be written.
    bool outputs_are_empty() const;
    // The name of the first input that is no run of elements although its definition does not allow that; or "".
    std::string refused_view() const;

    // Finds each view's bytes, and refuses memory that is no device's or that is shared.
    void check_memory();
    // The kernel's arguments and memories.
    void arrange(OpLaunch* launch) const;
    // Makes a tensor of the definition's inputs or outputs begin at another address. False where it is not given.
    bool set_address(bool is_input, size_t index, void* first);

    [[noreturn]] void refuse(aclnnStatus status, const std::string& text) const;

private:
    bool is_written(const Item& input) const;

    const OpRecord def_;
    std::vector<Item> items_;  // inputs, then outputs that are no inputs
};

}  // namespace npu_cann
