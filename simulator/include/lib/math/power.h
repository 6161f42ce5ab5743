// CANN has library functions in this header; kernel_operator.h declares those that the simulator has.
#include "kernel_operator.h"
