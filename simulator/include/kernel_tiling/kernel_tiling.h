// CANN generates a kernel's tiling structs in this header. Here, the host's macros define them. The structs of library
// functions are CANN's own.
#pragma once

#include "ascendc/absent.h"
#include "ascendc/library/tiling_names.h"
#include "ascendc/tiling_class.h"
