// CANN's helpers of kernels: they come with kernel_operator.h.
#pragma once

#include "kernel_operator.h"
