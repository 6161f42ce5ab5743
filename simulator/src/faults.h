// Messages of kernels that fault.
#pragma once

namespace ascend_sim {

struct Machine;
struct RunningThread;

// Lets a fault of a running kernel end the process after a message. Call it on the kernel's thread before each pass.
void prepare_to_report_faults();

// From construction to destruction, a kernel of this name runs on this thread, on the cores of this machine, one after
// the other.
class RunningKernel {
public:
    RunningKernel(const char* name, const Machine& machine);
    ~RunningKernel();
    RunningKernel(const RunningKernel&) = delete;
    RunningKernel& operator=(const RunningKernel&) = delete;

private:
    RunningThread* thread_ = nullptr;
};

}  // namespace ascend_sim
