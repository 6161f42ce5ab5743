// The same header by its second path in CANN.
#pragma once

#include "tiling/platform/platform_ascendc.h"
