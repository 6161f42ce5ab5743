// The ways in which a tiling can fail.
#pragma once

#include "exe_graph/runtime/tiling_context.h"

namespace optiling {

bool Succeeds(const gert::TilingContext* context, const char* how_it_fails);

}  // namespace optiling
