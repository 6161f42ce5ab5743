// The host's header for tiling structs, so that a kernel can include the host's file of structs.
#pragma once

#include "ascendc/tiling_class.h"
