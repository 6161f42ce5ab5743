// Prototypes of operators as nodes of a graph (REG_OP). Graphs are not simulated, so a prototype does nothing.
#pragma once

#include "graph/operator.h"

namespace simulated_cann {

struct Prototype {
    const Prototype& part() const { return *this; }
    bool end() const { return true; }
};

}  // namespace simulated_cann

#define REG_OP(x) [[maybe_unused]] static const bool simulated_cann_prototype_of_##x = simulated_cann::Prototype()
#define INPUT(x, ...) part()
#define OPTIONAL_INPUT(x, ...) part()
#define DYNAMIC_INPUT(x, ...) part()
#define OUTPUT(x, ...) part()
#define DYNAMIC_OUTPUT(x, ...) part()
#define ATTR(x, ...) part()
#define REQUIRED_ATTR(x, ...) part()
#define DATATYPE(x, ...) part()
#define OP_END_FACTORY_REG(x) end();
