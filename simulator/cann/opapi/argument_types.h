// The data types and ranks that the real aclnn functions behind the stand-ins take. What they do not take gives 161002
// in the first phase.
#pragma once

#include <string>

#include "simulator/cann/opapi/elements.h"

namespace npu_cann {

const char* dtype_name(int32_t dtype);  // as torch names it

enum class Role { kInput, kOutput };

// "" or why `function`, such as "aclnnInplaceAdd", refuses an argument of this type, or of this rank, on this chip.
std::string argument_rule(const char* function, Role role, const char* what, const Operand& argument);
std::string argument_rule(const char* function, const char* what, const aclScalar& argument);
std::string type_rule(const char* function, Role role, const char* what, int32_t dtype);

// "" or why two inputs of these types have no common type.
std::string promotion_rule(int32_t self, int32_t other);

}  // namespace npu_cann
