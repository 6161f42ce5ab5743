// CANN's header of this name makes these names global, and sources of operators rely on it.
#pragma once

#include <map>
#include <string>
#include <vector>

using std::map;
using std::string;
using std::vector;
