// A call of an operator through aclnn: what every generated interface hands its arguments to.
//
// The first phase checks the arguments, runs the operator's registered tiling and finds its kernel; the
// second launches that on the simulator. Statuses are aclnn's, the sentence goes to aclGetRecentErrMsg.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "aclnn/acl_meta.h"

namespace npu_cann {

constexpr aclnnStatus kNullPointer = 161001;   // an argument that must be there is not
constexpr aclnnStatus kBadArgument = 161002;   // what the definition, or a rule of memory, does not allow
constexpr aclnnStatus kKernelFailed = 361001;  // the kernel broke a rule of the device
constexpr aclnnStatus kInferShapeFailed = 561001;
constexpr aclnnStatus kTilingFailed = 561002;  // the operator refuses the call: its own words
constexpr aclnnStatus kNoKernel = 561003;
constexpr aclnnStatus kNoExecutor = 561103;  // the operator is in no package that CANN read

class OpCall {
public:
    explicit OpCall(const char* op_type);
    ~OpCall();
    // In the order of the definition. An output that is an input, written, is named as the input alone.
    void input(const aclTensor* tensor);
    void output(const aclTensor* tensor);
    void attr(int64_t value);
    void attr(double value);
    void attr(bool value);
    void attr(const char* value);  // null: the default
    void attr(const aclIntArray* values);
    void attr(const aclFloatArray* values);
    void attr(const aclBoolArray* values);
    aclnnStatus prepare(uint64_t* workspace_bytes, aclOpExecutor** executor);

private:
    struct Parts;
    std::unique_ptr<Parts> parts_;
};

// The second phase.
aclnnStatus run_prepared(void* workspace, uint64_t workspace_bytes, aclOpExecutor* executor, aclrtStream stream);

}  // namespace npu_cann
