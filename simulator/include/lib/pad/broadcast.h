// CANN declares library functions in this header. The simulator declares those that it supports in kernel_operator.h.
#include "kernel_operator.h"
