// The host's header of tiling structs: a file of them serves host and kernel.
#pragma once

#include "ascendc/tiling_class.h"
