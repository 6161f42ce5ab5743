// Operators as nodes of a graph, which are not simulated: this header exists for the files that only include it.
#pragma once

#include "graph/ascend_string.h"
#include "graph/tensor.h"
#include "graph/types.h"
