// Of CANN's library functions the simulator has none: a kernel that calls one does not compile.
#pragma once

#include "kernel_operator.h"
