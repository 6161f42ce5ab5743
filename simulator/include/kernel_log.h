// Logging of device code does nothing here.
#pragma once

#define KERNEL_LOG(level, format, ...) ((void)0)
