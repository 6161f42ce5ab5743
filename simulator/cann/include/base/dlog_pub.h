// CANN's log (hicann/runtime pkg_inc/base/dlog_pub.h). Only errors are recorded.
#pragma once

#include <cstdint>

#include "base/log_types.h"

extern "C" {
int32_t CheckLogLevel(int32_t moduleId, int32_t logLevel);
void DlogRecord(int32_t moduleId, int32_t level, const char* fmt, ...) __attribute__((format(printf, 3, 4)));
}
