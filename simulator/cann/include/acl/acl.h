// CANN's acl: initialization, devices, streams, memory, graphs, error messages. Its models (acl_mdl.h) are not
// simulated.
#pragma once

#include "acl/acl_op.h"
#include "acl/acl_rt.h"
