// Launches in a kernel file. An operator library may keep a host function there that launches the kernel; the simulator
// launches the kernel itself and never calls that function.
#pragma once

#include <cstdio>
#include <cstdlib>

namespace ascend_sim {

template <class... A>
[[noreturn]] void launch(const char* kernel, A&&...) {
    std::fprintf(stderr, "[sim] the launch of %s must be in a program that `ascend-sim program` builds.\n", kernel);
    std::abort();
}

}  // namespace ascend_sim
