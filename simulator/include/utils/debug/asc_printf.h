// A header of CANN that kernels include. printf without AscendC:: is the host's, which prints.
#pragma once

#include <cstdio>

#include "kernel_operator.h"
