// The earlier name of CANN's log header, which sources of vllm-ascend include.
#pragma once

#include "base/dlog_pub.h"
