// Messages of kernels that fault.
#pragma once

namespace ascend_sim {

struct Machine;

// Lets a fault of a running kernel end the process after a message. Call it on the kernel's thread before each pass.
void prepare_to_report_faults();

// From construction to destruction, a kernel of this name runs on this thread, on the cores of this machine.
class RunningKernel {
public:
    RunningKernel(const char* name, const Machine& machine);
    ~RunningKernel();
    RunningKernel(const RunningKernel&) = delete;
    RunningKernel& operator=(const RunningKernel&) = delete;

    const char* const name;
    const Machine& machine;
};

// The kernel that runs on this thread, or NULL. A signal handler may call it.
const RunningKernel* running_kernel();

}  // namespace ascend_sim
