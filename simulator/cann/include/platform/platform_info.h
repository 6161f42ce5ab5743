// CANN's manager of all chips' data is not simulated: a tiling gets its chip's data from its context.
#pragma once

#include "platform/platform_infos_def.h"
