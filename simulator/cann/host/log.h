// Errors that an operator's host functions log. They are the reasons why a function refuses a call.
#pragma once

#include <string>
#include <vector>

namespace simulated_cann {

// Clear the errors that host functions logged on this thread. Return the last one ("" if there is none), or all in
// order.
std::string take_logged_error();
std::vector<std::string> take_logged_errors();

}  // namespace simulated_cann
