// Messages of kernels that fault.
#pragma once

namespace ascend_sim {

struct Machine;
struct RunningThread;

// From construction to destruction, a kernel of this name runs on this thread, on the cores of this machine, one after
// the other. A fault of it ends the process after a message, unless the program handles, ignores or blocks the signal.
class RunningKernel {
public:
    RunningKernel(const char* name, const Machine& machine);
    ~RunningKernel();
    RunningKernel(const RunningKernel&) = delete;
    RunningKernel& operator=(const RunningKernel&) = delete;

private:
    RunningThread* thread_ = nullptr;
    bool has_stack_ = false;
};

}  // namespace ascend_sim
