// CANN's helpers of kernels, which kernel_operator.h defines here.
#pragma once

#include "kernel_operator.h"
