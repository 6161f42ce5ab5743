// The older name of runtime_tensor.h.
#pragma once

#include "exe_graph/runtime/runtime_tensor.h"
