// The host's functions for the tiling of library functions. Those of matrix products, convolutions and communication,
// and of the functions that docs/kernels.md names, are absent.
#pragma once

#include "tiling/library_sizes.h"
#include "tiling/library_tilings.h"
#include "tiling/platform/platform_ascendc.h"
