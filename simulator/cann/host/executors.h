// The executors of generated operators, which carry a call from the first phase to the second.
//
// CANN keeps the executors in one pool for each operator and never frees them (opbase individual_op_api.cpp,
// NnopbaseGetExecutor). If the second phase refuses its arguments, the executor does not change. Otherwise the second
// phase returns the executor to the pool, even after a failure, unless the executor is repeatable (indv_executor.cpp,
// NnopbaseExecutorRunWithWorkspace).
#pragma once

#include <memory>
#include <string>

#include "cann/host/call_tensors.h"
#include "cann/runtime/objects.h"

namespace simulated_cann {

class Executor : public PooledExecutor {
public:
    // Returns an executor of this operator that no call uses; creates one if necessary.
    static Executor* take(const std::string& op_type);

    aclOpExecutor* handle() { return &handle_; }
    // Stores the launch for the second phase. The launch has no entry if all outputs are empty.
    void prepare(std::unique_ptr<CallTensors> tensors, const OpLaunch& launch);
    // Stores why the first phase failed. The second phase adds it to its message: torch_npu's EXEC_NPU_CMD_EXT calls
    // the second phase even after a failure (Ascend/op-plugin op_plugin/utils/op_api_common_base.h).
    void store_failure(const std::string& reason) { failure_ = reason; }
    // The second phase.
    aclnnStatus run(void* workspace, uint64_t workspace_bytes, aclrtStream stream);

    int32_t set_repeatable() override;
    int32_t release() override;
    int32_t set_address(Side side, size_t index, void* first) override;

private:
    enum class State { kIdle, kTaken, kPrepared };

    explicit Executor(const std::string& op_type);
    // Passes the message to set_error() and returns the status.
    aclnnStatus refuse(aclnnStatus status, const std::string& text) const;

    aclOpExecutor handle_;
    State state_ = State::kIdle;
    bool is_repeatable_ = false, has_new_address_ = false;
    std::string failure_;
    std::unique_ptr<CallTensors> tensors_;
    OpLaunch launch_;
};

}  // namespace simulated_cann
