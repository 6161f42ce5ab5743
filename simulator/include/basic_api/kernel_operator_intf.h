// A header of CANN that kernels include. kernel_operator.h has all that the simulator supports.
#pragma once

#include "kernel_operator.h"
