// The kernel's workspace argument. It has no system part in the simulator, so all of it is the user's.
#pragma once

#include "ascendc/types.h"

namespace AscendC {

inline GM_ADDR GetUserWorkspace(GM_ADDR workspace) { return workspace; }
inline void SetSysWorkspace(GM_ADDR workspace) { ascend_sim::set_system_workspace(workspace); }
inline void SetSysWorkSpace(GM_ADDR workspace) { SetSysWorkspace(workspace); }
inline GM_ADDR GetSysWorkSpacePtr() { return ascend_sim::system_workspace(); }  // null before SetSysWorkspace

}  // namespace AscendC
