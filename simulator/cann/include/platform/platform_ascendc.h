// CANN has the header at two paths; this is the second one.
#pragma once

#include "tiling/platform/platform_ascendc.h"
