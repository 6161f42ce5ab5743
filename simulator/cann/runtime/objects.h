// Structs behind aclnn's opaque handles in the simulated CANN. aclCreateTensor and similar functions create them; the
// simulated operator libraries read them. One library, libascend_sim_cann, owns all handles of a process.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "include/ascend_sim.h"

// `dtype` and `format` are values of aclDataType and aclFormat.
struct aclTensor {
    std::vector<int64_t> shape, strides;  // of the view, in elements
    int64_t offset = 0;                   // of the view's first element in the storage
    std::vector<int64_t> storage_shape;
    int32_t dtype = 0;
    int32_t format = 2;    // ND
    void* data = nullptr;  // the storage's first byte, in simulated device memory or in that of host calls
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

namespace simulated_cann {

// The executor of a generated operator. The operator's pool owns it (cann/host/executors.h). The functions return
// aclnn's status.
class PooledExecutor {
public:
    enum class Side { kInput, kOutput, kAny };
    virtual ~PooledExecutor() = default;
    virtual int32_t set_repeatable() = 0;
    virtual int32_t release() = 0;
    virtual int32_t set_address(Side side, size_t index, void* first) = 0;
};

// Memory that a piece of stream work reads or writes: a view, with strides in elements.
struct MemoryAccess {
    std::string argument;  // name of the operator's argument
    char* first = nullptr;
    std::vector<int64_t> shape, strides;
    int64_t item_bytes = 1;
    bool reads = false, writes = false;
};

}  // namespace simulated_cann

// A call that the first phase prepared. The second phase of a stand-in queues it on the stream, which then owns it. The
// stream calls `run` when it reaches this work, and at each replay if a graph captured the work. `run` receives the
// workspace and returns aclnn's status, 0 for success. `accesses` lists the memory that `run` accesses, without the
// workspace. The executor of a generated operator has only `name` and `pooled`; its second phase queues another
// executor.
struct aclOpExecutor {
    std::string name;
    std::function<int32_t(void* workspace, uint64_t workspace_bytes)> run;
    simulated_cann::PooledExecutor* pooled = nullptr;
    std::vector<simulated_cann::MemoryAccess> accesses = {};
    uint64_t workspace_bytes = 0;  // that the first phase of a stand-in asked for
};

#pragma GCC visibility push(default)
namespace simulated_cann {

// Takes the executor and queues its work on the stream. Returns the status of queueing; a later wait
// returns an error of the work. In host calls, runs the work and returns its status.
int32_t launch(void* workspace, uint64_t workspace_bytes, std::unique_ptr<const aclOpExecutor> executor, void* stream);

// Sets the text of aclGetRecentErrMsg, or in host calls the text of ascend_sim_end_host_calls.
void set_error(const std::string& text);

// Sets the first byte and the size of the device allocation that contains the address. Returns false if none contains
// it. In host calls (include/ascend_sim_cann.h), searches the memory of the calls instead.
bool find_allocation(const void* address, void** first, uint64_t* bytes);

// The chip of this process, or of this thread's host calls, such as "Ascend910B2".
const char* soc_name();
// The level of CANN's deterministic mode: of this process, or of this thread's host calls. 0: off.
int32_t deterministic_level();

// The operator packages that CANN has read. CANN reads the environment at each call until a call finds a package.
// Operators of packages that were not read are not supported.
struct OperatorPackages {
    std::vector<std::string> folders;
    // The paths of the same folders in the environment or in vendors/config.ini. Links are not resolved.
    std::vector<std::string> configured_paths;
    bool has_built_in = false;  // whether CANN's own operators are also a package, after the folders
};
const OperatorPackages& operator_packages();

// Number of cores of the chip among which a tiling divides the work of a kernel.
int32_t soc_kernel_cores();

// The options of this thread's kernels; null for the default ones.
const ascend_sim_launch* launch_options();

// Adds one launch of an operator to the report, except in host calls. `simulator_report` is ascend_sim's JSON, or "".
void record_launch(const std::string& operator_name, const std::string& simulator_report);

}  // namespace simulated_cann
#pragma GCC visibility pop
