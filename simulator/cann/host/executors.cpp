#include "cann/host/executors.h"

#include <map>
#include <memory>
#include <new>
#include <utility>
#include <vector>

#include "cann/host/op_call.h"
#include "cann/locked.h"

namespace simulated_cann {
namespace {

struct ExecutorPools {
    std::map<std::string, std::vector<std::unique_ptr<Executor>>> by_operator;
};

}  // namespace

Executor::Executor(const std::string& op_type) { handle_ = {op_type, nullptr, this, {}}; }

Executor* Executor::take(const std::string& op_type) {
    Locked<ExecutorPools> pools;
    std::vector<std::unique_ptr<Executor>>& pool = pools->by_operator[op_type];
    for (const std::unique_ptr<Executor>& executor : pool)
        if (executor->state_ == State::kIdle) {
            executor->state_ = State::kTaken;
            return executor.get();
        }
    pool.push_back(std::unique_ptr<Executor>(new Executor(op_type)));
    pool.back()->state_ = State::kTaken;
    return pool.back().get();
}

void Executor::prepare(std::unique_ptr<CallTensors> tensors, const OpLaunch& launch) {
    tensors_ = std::move(tensors);
    launch_ = launch;
    Locked<ExecutorPools> pools;  // take() of other threads reads the states of all executors
    state_ = State::kPrepared;
}

aclnnStatus Executor::refuse(aclnnStatus status, const std::string& text) const {
    set_error("[" + handle_.name + "] " + text);
    return status;
}

// The checks of the generated code come first (asc-devkit op_aclnn_generator.cpp,
// AclnnOpGenCodeRunUnContWithWorkspaceImpl), then those of the runtime (opbase individual_op_api.cpp,
// NnopbaseRunWithWorkspace).
aclnnStatus Executor::run(void* workspace, uint64_t workspace_bytes, aclrtStream stream) {
    const auto bytes_text = std::to_string(workspace_bytes);
    if (workspace_bytes < launch_.packed_bytes)
        return refuse(kBadArgument, "workspace must have " + std::to_string(launch_.workspace_bytes) +
                                        " bytes but got " + bytes_text + ".");
    if (workspace_bytes > 0 && !workspace)
        return refuse(kNullPointer, "workspace must be memory but got NULL for " + bytes_text + " bytes.");
    if (workspace_bytes < launch_.workspace_bytes)
        return refuse(kBadArgument, "workspace must have " + std::to_string(launch_.workspace_bytes) +
                                        " bytes but got " + bytes_text + ".");
    // CANN reads the arguments of the first phase, which do not exist if that phase failed. A second run of a
    // released executor is undefined in CANN: it may launch another call's kernel.
    if (state_ != State::kPrepared)
        return refuse(kNullPointer,
                      std::string("executor must come from a first phase that succeeded, and run once, but got "
                                  "another.") +
                          (failure_.empty() ? "" : " Its first phase failed: " + failure_));
    aclnnStatus status = OK;
    const std::string view_name = tensors_->find_refused_view();
    if (!view_name.empty()) {
        // The second phase refuses views, as in CANN (indv_executor.cpp, NnopbaseExecutorPrintErrMsg).
        status = refuse(kInner, view_name +
                                    " must be contiguous, or declared AutoContiguous() or IgnoreContiguous(), but "
                                    "got a view.");
    } else if (launch_.entry) {
        try {
            if (has_new_address_) tensors_->check_memory();
            tensors_->set_arguments(&launch_);
            auto launched = std::make_shared<const OpLaunch>(launch_);
            auto executor = std::make_unique<aclOpExecutor>();
            executor->name = handle_.name;
            executor->run = [launched](void* given, uint64_t bytes) { return launched->run(given, bytes); };
            executor->accesses = launched->accesses();
            status = launch(workspace, workspace_bytes, std::move(executor), stream);
        } catch (const Failure& failure) {
            set_error(failure.text);
            status = failure.status;
        } catch (const std::bad_alloc&) {
            if (!is_repeatable_) release();
            throw;
        }
    }
    if (!is_repeatable_) release();
    return status;
}

int32_t Executor::set_repeatable() {
    is_repeatable_ = true;
    return OK;
}

int32_t Executor::release() {
    Locked<ExecutorPools> pools;
    tensors_.reset();
    launch_ = OpLaunch();
    is_repeatable_ = has_new_address_ = false;
    failure_.clear();
    state_ = State::kIdle;
    return OK;
}

// `index` is a position among the definition's inputs or outputs; Side::kAny counts the inputs, then the outputs. NULL
// tensors count too (opbase indv_executor.cpp, NnopbaseIsInput; individual_op_api.cpp, NnopbaseSetInputTensorAddr).
// For an input that the operator writes in place, the new address applies to the input and the output. In CANN, it
// applies to one of them.
int32_t Executor::set_address(Side side, size_t index, void* first) {
    if (state_ != State::kPrepared)
        return refuse(kNullPointer, "executor must come from a first phase that succeeded but got another.");
    const size_t input_count = tensors_->def().inputs.size(), output_count = tensors_->def().outputs.size();
    bool is_input = side == Side::kInput;
    if (side == Side::kAny) {
        is_input = index < input_count;
        if (!is_input) index -= input_count;
    }
    if (index >= (is_input ? input_count : output_count))
        return refuse(kBadArgument, "index must be less than " + std::to_string(is_input ? input_count : output_count) +
                                        " but got " + std::to_string(index) + ".");
    if (!tensors_->set_address(is_input, index, first))
        return refuse(kBadArgument, "index must be the index of a tensor that is not NULL.");
    has_new_address_ = true;
    return OK;
}

aclnnStatus run_prepared(void* workspace, uint64_t workspace_bytes, aclOpExecutor* executor, aclrtStream stream) {
    if (!executor) {
        set_error("[aclnn] executor must come from a first phase that succeeded but got NULL.");
        return kNullPointer;
    }
    if (!executor->pooled) {
        set_error("[aclnn] executor must belong to a generated operator but got that of " + executor->name + ".");
        return kBadArgument;
    }
    return static_cast<Executor*>(executor->pooled)->run(workspace, workspace_bytes, stream);
}

}  // namespace simulated_cann
