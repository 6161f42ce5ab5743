// The data types and ranks that CANN's own aclnn functions accept. In the stand-ins, other types and ranks give 161002
// in the first phase.
#pragma once

#include <string>

#include "cann/opapi/elements.h"

namespace simulated_cann {

const char* dtype_name(int32_t dtype);  // torch's name

enum class Role { kInput, kOutput };

// "" or the reason why `function`, such as "aclnnInplaceAdd", refuses this argument's type or rank on this chip.
std::string argument_rule(const char* function, Role role, const char* what, const Operand& argument);
std::string argument_rule(const char* function, const char* what, const aclScalar& argument);

// "" or the reason why two inputs of these types have no common type.
std::string promotion_rule(int32_t self, int32_t other);

// The types of a call with two inputs. alpha is -1 if the call has none.
struct CallTypes {
    int32_t self = 0, other = 0, alpha = -1, out = 0;
    bool other_is_scalar = false;
};

// "" or the reason why `function` cannot convert alpha to the type of its result, or the result to out's type.
std::string cast_rule(const char* function, const CallTypes& types);

}  // namespace simulated_cann
