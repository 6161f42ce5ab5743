// Implementation of PlatformAscendCManager: tiling functions of library functions get the chip from it.
#include "cann/host/node.h"
#include "cann/host/tiling_chip.h"
#include "src/chips.h"
#include "tiling/platform/platform_ascendc.h"

namespace simulated_cann {

// A function of the simulated CANN runtime. Its address is null in a program without the runtime.
const char* soc_name() __attribute__((weak));

namespace {
thread_local const ascend_sim::Profile* g_tiling_profile = nullptr;

const ascend_sim::Profile* profile_of_process() {
    if (!soc_name) return nullptr;
    const char* const name = soc_name();
    const ascend_sim::Family* const family = ascend_sim::find_family(name);
    return family ? ascend_sim::find_profile(ascend_sim::find_chip(name) ? name : family->soc) : nullptr;
}
}  // namespace

TilingChipScope::TilingChipScope(const ascend_sim::Profile* profile) : previous_(g_tiling_profile) {
    g_tiling_profile = profile;
}
TilingChipScope::~TilingChipScope() { g_tiling_profile = previous_; }

}  // namespace simulated_cann

namespace platform_ascendc {

PlatformAscendC* PlatformAscendCManager::GetInstance() {
    thread_local fe::PlatFormInfos infos(nullptr);
    thread_local PlatformAscendC platform(&infos);
    infos.profile =
        simulated_cann::g_tiling_profile ? simulated_cann::g_tiling_profile : simulated_cann::profile_of_process();
    return infos.profile ? &platform : nullptr;
}

}  // namespace platform_ascendc
