// A call's tensors, each with its parameter of the operator's definition. The class checks the tensors and their
// memory, and makes the kernel's arguments from them.
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
        bool is_input = false, is_given = false;
        int32_t dtype = 0, format = 0;
        int64_t offset = 0;
        bool accepts_view = false;  // whether the definition has IgnoreContiguous()
        DeviceView view;
    };

    // The tensors are in the definition's order. `outputs` excludes the outputs that are also inputs. Throws Failure if
    // a required tensor is NULL or a tensor has too many dimensions.
    CallTensors(const OpRecord& def, const std::vector<const aclTensor*>& inputs,
                const std::vector<const aclTensor*>& outputs);
    CallTensors(const CallTensors&) = delete;
    CallTensors& operator=(const CallTensors&) = delete;

    const OpRecord& def() const { return def_; }
    const std::vector<Item>& items() const { return items_; }
    size_t input_count() const { return def_.inputs.size(); }
    // The index in items() of one of the definition's outputs.
    size_t item_of_output(size_t output) const;
    // Whether the item, if it is not contiguous, is copied to contiguous memory before the kernel reads it.
    bool is_packed_if_strided(const Item& item) const;
    // Whether all outputs are empty.
    bool are_outputs_empty() const;
    // Returns the name of the first input that is not contiguous although the definition requires contiguous tensors;
    // "" if there is none.
    std::string find_refused_view() const;

    // Finds the bytes of each view. Refuses types that are not simulated, and memory outside one allocation. Refuses a
    // written tensor that shares memory with another tensor. Exception: an output that is not also an input may be the
    // same view as an input.
    void check_memory();
    // Sets the members `arguments` and `memories` of the launch.
    void set_arguments(OpLaunch* launch) const;
    // Sets the address of the first element of an input or output. Returns false if that tensor is NULL.
    bool set_address(bool is_input, size_t index, void* first);

    // Throws Failure.
    [[noreturn]] void refuse(aclnnStatus status, const std::string& text) const;

private:
    const OpRecord def_;
    std::vector<Item> items_;  // inputs, then outputs that are not inputs
};

}  // namespace simulated_cann
