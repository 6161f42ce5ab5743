// CANN generates a kernel's tiling structs here; the host's macros define them.
#pragma once

#include "ascendc/tiling_class.h"
