// The errors that an operator's host functions log: the reasons why they refuse a call.
#pragma once

#include <string>
#include <vector>

namespace simulated_cann {

// Return and clear the last error that a host function logged on this thread, or all of them in order.
std::string take_logged_error();
std::vector<std::string> take_logged_errors();

}  // namespace simulated_cann
