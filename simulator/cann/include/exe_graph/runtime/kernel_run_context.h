// CANN's memory layout of a context is not simulated, so its C structs are absent.
#pragma once

#include <cstdlib>
