// Messages of kernels that fault.
#pragma once

namespace ascend_sim {

// From now on, a fault of this thread while kernel_runs() ends the process after a message with this name.
void report_faults_of(const char* kernel);

// Whether a kernel runs on this thread.
bool kernel_runs();

}  // namespace ascend_sim
