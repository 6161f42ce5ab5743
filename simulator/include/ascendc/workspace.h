// The kernel's workspace argument: the simulator's has no system part.
#pragma once

#include "ascendc/types.h"

namespace AscendC {

inline GM_ADDR GetUserWorkspace(GM_ADDR workspace) { return workspace; }
inline void SetSysWorkSpace(GM_ADDR) {}
inline void SetSysWorkspace(GM_ADDR) {}

}  // namespace AscendC
