// The chip that the tiling functions of library functions read without an argument: PlatformAscendCManager.
#include "cann/host/node.h"
#include "cann/host/tiled_chip.h"
#include "src/chips.h"
#include "tiling/platform/platform_ascendc.h"

namespace simulated_cann {

// A function of the simulated CANN runtime. Its address is null in a program without the runtime.
const char* soc_name() __attribute__((weak));

namespace {
thread_local const ascend_sim::Profile* g_tiled_profile = nullptr;

const ascend_sim::Profile* profile_of_process() {
    if (!soc_name) return nullptr;
    const char* const name = soc_name();
    const ascend_sim::Family* const family = ascend_sim::find_family(name);
    return family ? ascend_sim::find_profile(ascend_sim::find_chip(name) ? name : family->soc) : nullptr;
}
}  // namespace

TiledChip::TiledChip(const ascend_sim::Profile* profile) : before_(g_tiled_profile) { g_tiled_profile = profile; }
TiledChip::~TiledChip() { g_tiled_profile = before_; }

}  // namespace simulated_cann

namespace platform_ascendc {

PlatformAscendC* PlatformAscendCManager::GetInstance() {
    thread_local fe::PlatFormInfos infos(nullptr);
    thread_local PlatformAscendC platform(&infos);
    infos.profile =
        simulated_cann::g_tiled_profile ? simulated_cann::g_tiled_profile : simulated_cann::profile_of_process();
    return infos.profile ? &platform : nullptr;
}

}  // namespace platform_ascendc
