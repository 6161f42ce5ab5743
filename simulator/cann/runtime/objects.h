// What aclnn's opaque handles are in the simulated CANN: aclCreateTensor and its like make them, the
// simulated operator libraries read them. All of one process is one library's, libnpu_rope_cann.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

// Numbers as aclDataType and aclFormat have them.
struct aclTensor {
    std::vector<int64_t> shape, strides;  // of the view, in elements
    int64_t offset = 0;                   // of the view's first element in the storage
    std::vector<int64_t> storage_shape;
    int32_t dtype = 0;
    int32_t format = 2;    // ND
    void* data = nullptr;  // the storage's first byte, in simulated device memory
};

struct aclScalar {
    alignas(16) uint8_t value[16] = {};
    int32_t dtype = 0;
};

struct aclIntArray {
    std::vector<int64_t> values;
};
struct aclFloatArray {
    std::vector<float> values;
};
struct aclBoolArray {
    std::vector<uint8_t> values;
};
struct aclScalarList {
    std::vector<const aclScalar*> values;
};
struct aclTensorList {
    std::vector<const aclTensor*> values;
};

namespace npu_cann {

// The executor of a generated operator, which its pool owns; simulator/cann/host/executors.h.
class PooledExecutor {
public:
    enum class Side { kInput, kOutput, kAny };
    virtual ~PooledExecutor() = default;
    // aclnn's statuses.
    virtual int32_t set_repeatable() = 0;
    virtual int32_t release() = 0;
    virtual int32_t set_address(Side side, size_t index, void* first) = 0;
};

// Memory that a piece of stream work reads or writes: a view, with strides in elements.
struct MemoryAccess {
    std::string argument;  // the operator's name for it
    char* first = nullptr;
    std::vector<int64_t> shape, strides;
    int64_t item_bytes = 1;
    bool reads = false, writes = false;
};

}  // namespace npu_cann

// What GetWorkspaceSize prepared. The second phase of a stand-in moves it into the stream's queue and deletes it.
// `run` is called when the stream gets there, and once a replay where a graph captured it; it gets the workspace and
// returns aclnn's status, 0 for success. `accesses` lists the memory that `run` touches. A generated operator's
// executor belongs to `pooled` instead.
struct aclOpExecutor {
    std::string name;
    std::function<int32_t(void* workspace, uint64_t workspace_bytes)> run;
    npu_cann::PooledExecutor* pooled = nullptr;
    std::vector<npu_cann::MemoryAccess> accesses = {};
};

#pragma GCC visibility push(default)
namespace npu_cann {

// Queues the executor's work on the stream and deletes the executor: what every second phase of aclnn does.
// The status is that of queueing; an error of the work comes from a later call that waits for it.
int32_t launch(void* workspace, uint64_t workspace_bytes, aclOpExecutor* executor, void* stream);

// aclGetRecentErrMsg's text.
void set_error(const std::string& text);

// A device's allocation that holds this address, with its guard zones known to the simulator: first
// byte and size; false where no allocation does.
bool find_allocation(const void* address, void** first, uint64_t* bytes);

// The chip of this process, such as "Ascend910B2".
const char* soc_name();

// The operator packages that CANN knows: those that were named when this was first called and found any, CANN's own
// too. An operator of another package does not exist for CANN.
struct OperatorPackages {
    std::vector<std::string> folders;
    std::vector<std::string> named;  // the folders as CANN keeps them: links are not resolved
    bool has_built_in = false;       // CANN's own operators, behind the folders
};
const OperatorPackages& operator_packages();

// The cores of that chip among which tilings divide a kernel's work.
int32_t soc_kernel_cores();

// For the report: one launch of an operator. `simulator_report` is npu_sim's JSON, or "".
void record_launch(const std::string& operator_name, const std::string& simulator_report);

}  // namespace npu_cann
#pragma GCC visibility pop
