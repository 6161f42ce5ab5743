#include "cann/host/executors.h"

#include <map>
#include <vector>

#include "cann/host/op_call.h"
#include "cann/locked.h"

namespace simulated_cann {
namespace {

struct Pools {
    std::map<std::string, std::vector<Executor*>> by_operator;
};

}  // namespace

Executor::Executor(const std::string& op_type) { handle_ = {op_type, nullptr, this, {}}; }

Executor* Executor::take(const std::string& op_type) {
    Locked<Pools> pools;
    std::vector<Executor*>& pool = pools->by_operator[op_type];
    for (Executor* e : pool)
        if (e->state_ == State::kIdle) {
            e->state_ = State::kTaken;
            return e;
        }
    pool.push_back(new Executor(op_type));
    pool.back()->state_ = State::kTaken;
    return pool.back();
}

void Executor::prepare(std::unique_ptr<CallTensors> tensors, const OpLaunch& launch) {
    tensors_ = std::move(tensors);
    launch_ = launch;
    state_ = State::kPrepared;
}

aclnnStatus Executor::refused(aclnnStatus status, const std::string& text) const {
    set_error("[" + handle_.name + "] " + text);
    return status;
}

// The generated code's checks are first (asc-devkit op_aclnn_generator.cpp, AclnnOpGenCodeRunUnContWithWorkspaceImpl),
// then the runtime's (opbase individual_op_api.cpp, NnopbaseRunWithWorkspace).
aclnnStatus Executor::run(void* workspace, uint64_t workspace_bytes, aclrtStream stream) {
    const auto bytes_text = std::to_string(workspace_bytes);
    if (workspace_bytes < launch_.packed_bytes)
        return refused(kBadArgument, "workspace must have " + std::to_string(launch_.workspace_bytes) +
                                         " bytes but got " + bytes_text + ".");
    if (workspace_bytes > 0 && !workspace)
        return refused(kNullPointer, "workspace must be memory but got NULL for " + bytes_text + " bytes.");
    if (workspace_bytes < launch_.workspace_bytes)
        return refused(kBadArgument, "workspace must have " + std::to_string(launch_.workspace_bytes) +
                                         " bytes but got " + bytes_text + ".");
    // CANN reads the arguments of the first phase, which do not exist if that phase failed. A second run of a
    // released executor is undefined in CANN: it may launch another call's kernel.
    if (state_ != State::kPrepared)
        return refused(kNullPointer,
                       std::string("executor must come from a first phase that succeeded, and run once, but got "
                                   "another.") +
                           (failure_.empty() ? "" : " Its first phase failed: " + failure_));
    aclnnStatus status = OK;
    const std::string view = tensors_->refused_view();
    if (!view.empty()) {
        // The second phase refuses views, as in CANN (indv_executor.cpp, NnopbaseExecutorPrintErrMsg).
        status = refused(kInner, view +
                                     " must be contiguous, or declared AutoContiguous() or IgnoreContiguous(), but "
                                     "got a view.");
    } else if (launch_.entry) {
        try {
            if (has_new_address_) tensors_->check_memory();
            tensors_->arrange(&launch_);
            auto launched = std::make_shared<const OpLaunch>(launch_);
            auto run = [launched](void* w, uint64_t bytes) { return launched->run(w, bytes); };
            status = launch(workspace, workspace_bytes,
                            new aclOpExecutor{handle_.name, std::move(run), nullptr, launched->accesses()}, stream);
        } catch (const Failure& failure) {
            set_error(failure.text);
            status = failure.status;
        }
    }
    if (!repeatable_) release();
    return status;
}

int32_t Executor::set_repeatable() {
    repeatable_ = true;
    return OK;
}

int32_t Executor::release() {
    Locked<Pools> pools;
    tensors_.reset();
    launch_ = OpLaunch();
    repeatable_ = has_new_address_ = false;
    failure_.clear();
    state_ = State::kIdle;
    return OK;
}

// The index counts the definition's inputs or outputs, with Side::kAny the inputs and then the outputs. It includes
// NULL tensors (opbase indv_executor.cpp, NnopbaseIsInput; individual_op_api.cpp, NnopbaseSetInputTensorAddr). An input
// that is written and its output share an address here; in CANN, a new address of the output is not the input's.
int32_t Executor::set_address(Side side, size_t index, void* first) {
    if (state_ != State::kPrepared)
        return refused(kNullPointer, "executor must come from a first phase that succeeded but got another.");
    const size_t inputs = tensors_->def().inputs.size(), outputs = tensors_->def().outputs.size();
    bool is_input = side == Side::kInput;
    if (side == Side::kAny) {
        is_input = index < inputs;
        if (!is_input) index -= inputs;
    }
    if (index >= (is_input ? inputs : outputs))
        return refused(kBadArgument, "index must be less than " + std::to_string(is_input ? inputs : outputs) +
                                         " but got " + std::to_string(index) + ".");
    if (!tensors_->set_address(is_input, index, first))
        return refused(kBadArgument, "index must be of a tensor that was given but got that of a NULL.");
    has_new_address_ = true;
    return OK;
}

aclnnStatus run_prepared(void* workspace, uint64_t workspace_bytes, aclOpExecutor* executor, aclrtStream stream) {
    if (!executor) {
        set_error("[aclnn] executor must come from a first phase that succeeded but got NULL.");
        return kNullPointer;
    }
    if (!executor->pooled) {
        set_error("[aclnn] executor must be a generated operator's but got " + executor->name + "'s.");
        return kBadArgument;
    }
    return static_cast<Executor*>(executor->pooled)->run(workspace, workspace_bytes, stream);
}

}  // namespace simulated_cann
