// Levels, types and modules of CANN's log (hicann/runtime pkg_inc/base/log_types.h). Of the modules, only the number of
// operators is used.
#pragma once

#define DLOG_DEBUG 0
#define DLOG_INFO 1
#define DLOG_WARN 2
#define DLOG_ERROR 3
#define MSG_LENGTH 1024

enum { DLOG_TYPE_DEBUG = 0, DLOG_TYPE_RUN = 1 };
enum { OP = 63 };
