// A placeholder: the simulator has no library functions, so a kernel that calls one does not compile.
#include "kernel_operator.h"
