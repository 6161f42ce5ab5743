// The executors of generated operators, which carry a call from the first phase to the second.
//
// CANN keeps them in one pool for each operator and never frees them (opbase individual_op_api.cpp,
// NnopbaseGetExecutor). A second phase that is refused for its arguments leaves its executor as it is. Every other
// second phase returns the executor to the pool, even if it fails, unless the executor was made repeatable
// (indv_executor.cpp, NnopbaseExecutorRunWithWorkspace).
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
    // Sets the second phase's launch, which has no entry if all outputs are empty.
    void prepare(std::unique_ptr<CallTensors> tensors, const OpLaunch& launch);
    // Stores the reason why the first phase failed, for the message of the second phase, which torch_npu's
    // EXEC_NPU_CMD_EXT also calls after a failure (Ascend/op-plugin op_plugin/utils/op_api_common_base.h).
    void fail(const std::string& why) { failure_ = why; }
    aclnnStatus run(void* workspace, uint64_t workspace_bytes, aclrtStream stream);

    int32_t set_repeatable() override;
    int32_t release() override;
    int32_t set_address(Side side, size_t index, void* first) override;

private:
    enum class State { kIdle, kTaken, kPrepared };

    explicit Executor(const std::string& op_type);
    aclnnStatus refused(aclnnStatus status, const std::string& text) const;

    aclOpExecutor handle_;
    State state_ = State::kIdle;
    bool repeatable_ = false, has_new_address_ = false;
    std::string failure_;
    std::unique_ptr<CallTensors> tensors_;
    OpLaunch launch_;
};

}  // namespace simulated_cann
