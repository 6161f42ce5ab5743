// A call's tensors, matched with the operator's definition. Checks the tensors and their memory, and arranges them as
// the kernel's arguments.
#pragma once

#include <string>
#include <vector>

#include "aclnn/acl_meta.h"
#include "cann/host/def_reader.h"
#include "cann/host/device_view.h"
#include "cann/host/op_launch.h"

namespace simulated_cann {

// Exception for a phase of aclnn that fails: its status, and the message for aclGetRecentErrMsg.
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
        bool reads_view = false;  // the definition has IgnoreContiguous()
        DeviceView view;
    };

    // Takes the tensors in the definition's order; `outputs` lacks those that are inputs. Throws Failure if a required
    // tensor is NULL or a tensor has too many dimensions.
    CallTensors(const OpRecord& def, const std::vector<const aclTensor*>& inputs,
                const std::vector<const aclTensor*>& outputs);
    CallTensors(const CallTensors&) = delete;
    CallTensors& operator=(const CallTensors&) = delete;

    const OpRecord& def() const { return def_; }
    const std::vector<Item>& items() const { return items_; }
    size_t inputs() const { return def_.inputs.size(); }
    // The index in items() of one of the definition's outputs.
    size_t item_of_output(size_t output) const;
    // Whether the item, if it is not contiguous, is copied to contiguous memory before the kernel reads it.
    bool packs(const Item& item) const;
    // Whether all outputs are empty.
    bool outputs_are_empty() const;
    // The name of the first input that is not contiguous although its definition requires it; or "".
    std::string refused_view() const;

    // Finds each view's bytes. Refuses a type that is not simulated, memory outside one allocation, and a written
    // tensor that shares memory with another. An output may be an input itself.
    void check_memory();
    // Sets the launch's arguments and memories.
    void arrange(OpLaunch* launch) const;
    // Sets the address of the first element of an input or output. Returns false if that tensor is NULL.
    bool set_address(bool is_input, size_t index, void* first);

    [[noreturn]] void refuse(aclnnStatus status, const std::string& text) const;

private:
    const OpRecord def_;
    std::vector<Item> items_;  // inputs, then outputs that are not inputs
};

}  // namespace simulated_cann
