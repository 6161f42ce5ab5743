// The functions of libc_sec, for a program that was built against CANN's own header.
#define ASCEND_SIM_SECUREC extern "C" __attribute__((visibility("default")))
#include "securec.h"
