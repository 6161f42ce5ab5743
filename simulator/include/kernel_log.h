// Logging of device code, which does nothing in the simulator.
#pragma once

#define KERNEL_LOG(level, format, ...) ((void)0)
