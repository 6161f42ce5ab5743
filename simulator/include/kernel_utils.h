// CANN's header of helpers for kernels. kernel_operator.h has all that the simulator supports.
#pragma once

#include "kernel_operator.h"
