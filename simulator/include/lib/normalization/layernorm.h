// The simulator implements none of CANN's library functions: a kernel that calls one does not compile.
#include "kernel_operator.h"
