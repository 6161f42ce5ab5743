#include "kernel_operator.h"  // has no library functions: a kernel that calls one does not compile
