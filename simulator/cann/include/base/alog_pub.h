// CANN's log for applications (hicann/runtime include/dfx/base/alog_pub.h). Only errors are recorded.
#pragma once

#include <cstdint>

#include "base/log_types.h"

extern "C" {
int32_t AlogCheckDebugLevel(uint32_t moduleId, int32_t level);
int32_t AlogRecord(uint32_t moduleId, uint32_t logType, int32_t level, const char* fmt, ...)
    __attribute__((format(printf, 4, 5)));
}
