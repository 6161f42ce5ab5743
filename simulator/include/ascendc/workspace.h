// The kernel's workspace argument: the simulator's has no system part, so the user's is all of it.
#pragma once

#include "ascendc/types.h"

namespace AscendC {

inline GM_ADDR GetUserWorkspace(GM_ADDR workspace) { return workspace; }
inline void SetSysWorkspace(GM_ADDR workspace) { ascend_sim::set_system_workspace(workspace); }
inline void SetSysWorkSpace(GM_ADDR workspace) { SetSysWorkspace(workspace); }
inline GM_ADDR GetSysWorkSpacePtr() { return ascend_sim::system_workspace(); }  // null until one of them was called

}  // namespace AscendC
