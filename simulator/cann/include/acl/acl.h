// CANN's acl: initialization, devices, streams, memory, graphs, error messages.
#pragma once

#include "acl/acl_rt.h"
