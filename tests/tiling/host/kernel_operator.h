// The part of CANN's kernel header that op_kernel/memory/tiles.h needs in a host program.
#pragma once

#include <cstdint>

#define __aicore__
