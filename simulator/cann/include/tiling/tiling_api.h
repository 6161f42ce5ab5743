// The host's functions for the tiling of library functions. The functions for matrix products, convolutions and
// communication are absent. docs/kernels.md, "Library functions", names the other functions that are absent.
#pragma once

#include "tiling/library_sizes.h"
#include "tiling/library_tilings.h"
#include "tiling/platform/platform_ascendc.h"
