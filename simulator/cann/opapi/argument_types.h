// The data types and ranks that the aclnn functions of elementwise arithmetic, comparison, copy and fill accept. For
// other types and ranks, the first phase of a stand-in returns 161002. The other functions pass the types and ranks
// that they accept to FirstPhase.
#pragma once

#include <string>

#include "cann/opapi/first_phase.h"

namespace simulated_cann {

enum class Role { kInput, kOutput };

// Like the functions of elements.h. A type that is not simulated is refused as CANN refuses it if `function` lacks it.
std::string read_argument(const char* function, Role role, const aclTensor* tensor, const char* argument_name,
                          Operand* out);
std::string read_argument(const char* function, const aclScalar* scalar, const char* argument_name);

// Returns "" or the reason why `function`, such as "aclnnInplaceAdd", refuses this argument's type or rank on this
// chip.
std::string argument_error(const char* function, Role role, const char* argument_name, const Operand& argument);
std::string argument_error(const char* function, const char* argument_name, const aclScalar& argument);

// Adds how the type of an argument that is accepted goes beyond the function's document.
void add_undocumented_type(BeyondDocument* beyond, const char* function, Role role, const char* argument_name,
                           int32_t dtype);

// Whether CANN converts a result of the type `from` to an output of the type `to`.
bool can_cast(int32_t from, int32_t to);

// Returns "" or the reason why two inputs of these types have no common type.
std::string promotion_error(int32_t self, int32_t other, const char* other_name = "other");

// The types of a call with two inputs. alpha is -1 if the call has none.
struct CallTypes {
    int32_t self = 0, other = 0, alpha = -1, out = 0;
    bool is_other_scalar = false;
};

// Adds how the types of an accepted call go beyond the document: a result that does not convert to the type of out.
void add_undocumented_result(BeyondDocument* beyond, const char* function, const CallTypes& types);

// Returns "" or the reason why `function` cannot convert alpha to the type of its result, or the result to out's type.
std::string cast_error(const char* function, const CallTypes& types);

}  // namespace simulated_cann
