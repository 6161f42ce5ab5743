// The host's header of tiling structs. A kernel needs it to include a file of the host that defines such structs.
#pragma once

#include "ascendc/tiling_class.h"
