// A call of an operator through aclnn. Every generated interface passes its arguments to OpCall.
//
// The first phase checks the arguments, finds the kernel and runs the operator's registered tiling. The second phase
// launches the kernel on the simulator. The statuses and the order of the checks are aclnn's (opbase
// include/nnopbase/opdev/op_errno.h). aclGetRecentErrMsg returns the message of a failure.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "aclnn/acl_meta.h"

namespace simulated_cann {

constexpr aclnnStatus kNullPointer = 161001;    // a required argument is missing
constexpr aclnnStatus kBadArgument = 161002;    // an argument violates the definition, or its memory is invalid
constexpr aclnnStatus kKernelFailed = 361001;   // the kernel broke a rule of the device
constexpr aclnnStatus kRuntimeFailed = 361001;  // CANN could not start, or could not load the kernel's file
constexpr aclnnStatus kInner = 561000;          // an input is a view, and the definition does not allow views
constexpr aclnnStatus kInferShapeFailed = 561001;
constexpr aclnnStatus kTilingFailed = 561002;  // the tiling is missing, or refuses the call
constexpr aclnnStatus kNoKernel = 561003;
constexpr aclnnStatus kInnerNullPointer = 561103;  // a null pointer inside the runtime
constexpr aclnnStatus kBadJson = 561108;           // a description in the package that cannot be read
constexpr aclnnStatus kBadKernelFile = 561113;     // a kernel in the package that cannot be read

// The value that a call reads after the empty default of a list attribute (default_list() of op_build.cpp).
constexpr int64_t kAfterEmptyInts = 0x5a5a5a5a5a5a5a5a;
constexpr float kAfterEmptyFloats = -1.5e38f;
constexpr bool kAfterEmptyBools = true;

class OpCall {
public:
    explicit OpCall(const char* op_type);
    ~OpCall();
    // Call these in the order of the definition. An output that is also an input is passed as the input only.
    void input(const aclTensor* tensor);
    void output(const aclTensor* tensor);
    void attr(int64_t value);
    void attr(double value);
    void attr(bool value);
    void attr(const char* value);
    void attr(const aclIntArray* values);
    void attr(const aclFloatArray* values);
    void attr(const aclBoolArray* values);
    // The default of a list attribute, a literal in the generated code.
    void attr(const int64_t* values, size_t count);
    void attr(const float* values, size_t count);
    void attr(const bool* values, size_t count);
    // Runs the first phase with the arguments that were passed.
    aclnnStatus prepare(uint64_t* workspace_bytes, aclOpExecutor** executor);

private:
    struct Implementation;
    std::unique_ptr<Implementation> impl_;
};

// Runs the second phase.
aclnnStatus run_prepared(void* workspace, uint64_t workspace_bytes, aclOpExecutor* executor, aclrtStream stream);

}  // namespace simulated_cann
