// CANN generates a kernel's tiling structs in this header. Here, the host's macros define them. As in CANN, the header
// also has the tiling structs of library functions.
#pragma once

#include "ascendc/absent.h"
#include "ascendc/library/tiling_names.h"
#include "ascendc/tiling_class.h"
