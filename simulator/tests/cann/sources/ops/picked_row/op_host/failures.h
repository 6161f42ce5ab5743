// The ways in which a tiling can fail.
#pragma once

#include "exe_graph/runtime/tiling_context.h"

namespace optiling {

// Fails in the given way, or returns true if the text is empty or "output".
bool Succeeds(const gert::TilingContext* context, const char* how_it_fails);

}  // namespace optiling
