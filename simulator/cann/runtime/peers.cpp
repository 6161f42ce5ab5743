// The devices that a process sees, and the access of one device to another.
#include <unistd.h>

#include <cstdlib>
#include <set>
#include <utility>
#include <vector>

#include "cann/locked.h"
#include "cann/runtime/contexts.h"
#include "cann/runtime/forks.h"
#include "cann/runtime/report.h"

namespace simulated_cann {
namespace {

constexpr int32_t kMaxDevices = 16;     // of one server
constexpr int32_t kDriverDevices = 64;  // RT_MAX_DEV_NUM of hicann/runtime

int32_t read_device_count() {
    const char* text = std::getenv("ASCEND_SIM_DEVICES");
    if (!text || !*text) return 1;
    char* end = nullptr;
    const long count = std::strtol(text, &end, 10);
    if (*end == 0 && count >= 1 && count <= kMaxDevices) return static_cast<int32_t>(count);
    print_message({"ASCEND_SIM_DEVICES must be 1 to ", std::to_string(kMaxDevices), " but got ", text, "."});
    std::_Exit(2);
}

// The devices before the first character or number that is not valid. A number is not valid if no device has it, or if
// it is not greater than the number before it (hicann/runtime docs/zh/env_vars/ASCEND_RT_VISIBLE_DEVICES.md). All
// devices if the variable is not set.
std::vector<int32_t> read_visible_devices() {
    const int32_t count = read_device_count();
    const char* text = std::getenv("ASCEND_RT_VISIBLE_DEVICES");
    std::vector<int32_t> devices;
    if (!text) {
        for (int32_t device = 0; device < count; ++device) devices.push_back(device);
        return devices;
    }
    while (*text >= '0' && *text <= '9') {
        char* end = nullptr;
        const long device = std::strtol(text, &end, 10);
        if (device >= count || (!devices.empty() && device <= devices.back())) break;
        devices.push_back(static_cast<int32_t>(device));
        if (*end != ',') break;
        text = end + 1;
    }
    return devices;
}

std::mutex visible_mutex;
const ForkLock visible_lock(LockRank::kLast, &visible_mutex);

// The environment, read again after a fork: tests fork a process that has loaded the library.
const std::vector<int32_t>& visible_devices() {
    struct Visible {
        pid_t process = getpid();
        std::vector<int32_t> devices = read_visible_devices();
    };
    static Visible* current = new Visible;
    std::lock_guard<std::mutex> lock(visible_mutex);
    if (current->process != getpid()) *current = Visible();
    return current->devices;
}

// Pairs of a device and a peer, in the direction of aclrtDeviceEnablePeerAccess.
struct PeerAccess {
    std::set<std::pair<int32_t, int32_t>> enabled;
};

const ForkLock peers_lock(LockRank::kLast, &Locked<PeerAccess>::mutex());

// hicann/runtime src/acl/aclrt_impl/memory.cpp, aclrtDeviceEnablePeerAccessImpl and aclrtDeviceDisablePeerAccessImpl.
aclError check_peer(const char* call, int32_t device, int32_t peer) {
    if (device == kNoDevice) return check_context(call);
    if (device == peer) return fail(kInvalidParam, call, "peerDeviceId must not be the current device", peer);
    return check_device(call, peer);
}

}  // namespace

int32_t device_count() { return static_cast<int32_t>(visible_devices().size()); }
int32_t physical_device(int32_t device) { return visible_devices().at(static_cast<size_t>(device)); }

// hicann/runtime docs/zh/api_ref/04_device_management.md, aclrtDeviceEnablePeerAccess: a call allows one direction. The
// page does not say which direction a copy needs; torch_npu enables both ("A two-way enable is required",
// NPUPeerToPeerAccess.cpp). The stricter reading is simulated.
bool can_copy_between(int32_t device, int32_t peer) {
    Locked<PeerAccess> access;
    return device == peer || (access->enabled.count({device, peer}) && access->enabled.count({peer, device}));
}

}  // namespace simulated_cann

using namespace simulated_cann;

NPU_CANN_API aclError aclrtGetDeviceCount(uint32_t* count) {
    if (!count) return fail(kInvalidParam, __func__, "count must not be null.");
    *count = static_cast<uint32_t>(device_count());
    return kSuccess;
}

// hicann/runtime src/acl/aclrt_impl/memory.cpp, aclrtDeviceCanAccessPeerImpl, then src/runtime/api/impl/api_error.cc
// and api_impl.cc, DeviceCanAccessPeer. With ASCEND_RT_VISIBLE_DEVICES, the device must be one of them (runtime.cc,
// ChgUserDevIdToDeviceId). The simulated devices belong to one server, and each device can access every other one.
NPU_CANN_API aclError aclrtDeviceCanAccessPeer(int32_t* can, int32_t device, int32_t peer) {
    const std::string call = __func__, got = " but got " + std::to_string(device) + ".";
    if (device == peer) return fail(kInvalidParam, call, "deviceId must not be peerDeviceId" + got);
    if (aclError error = check_device(call.c_str(), peer)) return error;
    if (!std::getenv("ASCEND_RT_VISIBLE_DEVICES") && (device < 0 || device >= kDriverDevices))
        return fail(kRtInvalid, call, "deviceId must be 0 to 63" + got);
    if (aclError error = check_device(call.c_str(), device)) return error;
    if (!can) return fail(kRtInvalid, call, "canAccessPeer must not be null.");
    *can = 1;
    return kSuccess;
}
NPU_CANN_API aclError aclrtDeviceEnablePeerAccess(int32_t peer, uint32_t flags) {
    if (flags) return fail(kNotSupported, __func__, "flags must be 0", flags);
    const int32_t device = current_device();
    if (aclError error = check_peer(__func__, device, peer)) return error;
    Locked<PeerAccess>()->enabled.insert({device, peer});
    return kSuccess;
}
NPU_CANN_API aclError aclrtDeviceDisablePeerAccess(int32_t peer) {
    const int32_t device = current_device();
    if (aclError error = check_peer(__func__, device, peer)) return error;
    Locked<PeerAccess>()->enabled.erase({device, peer});
    return kSuccess;
}
// hicann/runtime src/acl/aclrt_impl/memory.cpp, aclrtDevicePeerAccessStatusImpl, takes `peer` as a physical device,
// unlike `device`. The document (04_device_management.md) excludes devices of which the process has no number.
NPU_CANN_API aclError aclrtDevicePeerAccessStatus(int32_t device, int32_t peer, int32_t* status) {
    if (!status) return fail(kInvalidParam, __func__, "status must not be null.");
    for (int32_t each : {device, peer})
        if (each < 0 || each >= device_count())
            return fail(kRtInvalid, __func__, "deviceId must be a device that is simulated", each);
    int32_t seen = kNoDevice;  // the process's number of the peer
    for (int32_t each = 0; each < device_count(); ++each)
        if (physical_device(each) == peer) seen = each;
    *status = Locked<PeerAccess>()->enabled.count({device, seen}) > 0;
    return kSuccess;
}
