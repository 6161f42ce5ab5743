// What op_kernel/memory/tiles.h needs of CANN's kernel header where the host compiles it.
#pragma once

#include <cstdint>

#define __aicore__
