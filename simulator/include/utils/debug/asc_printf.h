// A header of CANN that kernels include. AscendC::printf prints nothing. printf without AscendC:: is the host's
// function, which prints.
#pragma once

#include <cstdio>

#include "kernel_operator.h"
