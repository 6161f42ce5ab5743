// The host's functions for the tiling of library functions. The functions for matrix products,
// convolutions and communication are absent, and those for the functions that docs/kernels.md names.
#pragma once

#include "tiling/library_sizes.h"
#include "tiling/library_tilings.h"
#include "tiling/platform/platform_ascendc.h"
