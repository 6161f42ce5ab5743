// The simulator implements none of CANN's library functions: a kernel that calls one does not compile.
#pragma once

#include "kernel_operator.h"
