// CANN generates a kernel's tiling structs in this header. Here, the host's macros define them.
#pragma once

#include "ascendc/absent.h"
#include "ascendc/tiling_class.h"
