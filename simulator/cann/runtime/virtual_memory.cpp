// aclrt's calls for virtual memory: physical memory, reserved addresses, and mappings of one to the other. The checks
// are those of hicann/runtime src/acl/aclrt_impl/memory.cpp. The checks of the driver are not public; here, a call is
// refused if it could not have a meaning.
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <map>

#include "acl/acl_rt.h"
#include "cann/locked.h"
#include "cann/runtime/allocations.h"
#include "cann/runtime/api.h"
#include "cann/runtime/contexts.h"
#include "cann/runtime/forks.h"
#include "cann/runtime/scheduler.h"

namespace simulated_cann {
namespace {

constexpr size_t kGranularity = size_t(2) << 20;  // of huge pages: hicann/runtime, page "11-04 虚拟内存管理"
constexpr uint8_t kFreshByte = 0xFF;              // gives NaN in every floating-point type

struct Physical {
    int file;
    size_t bytes;
    int32_t device;
    uint64_t number;  // sequence number in the process, from 1
    int mappings = 0;
    bool is_freed = false;  // by the program; the memory lives until its last mapping ends
};

struct Mapped {
    Physical* physical;
    size_t bytes;
};

struct VirtualMemory {
    std::map<Physical*, Physical*> physical;  // a handle is the address of its Physical
    std::map<char*, size_t> reserved;         // bytes, by first address
    std::map<char*, Mapped> mapped;           // by first address
    uint64_t count = 0;                       // of all physical memory
};

const ForkLock virtual_memory_lock(LockRank::kTables, &Locked<VirtualMemory>::mutex());

// The order is that of hicann/runtime src/acl/aclrt_impl/memory.cpp, aclrtMallocPhysicalImpl.
aclError check_properties(const char* call, const aclrtPhysicalMemProp* prop) {
    const auto type = prop->location.type;
    if (type == ACL_MEM_LOCATION_TYPE_UNREGISTERED || type == ACL_MEM_LOCATION_TYPE_MANAGED)
        return fail(kInvalidParam, call, "location.type must not be 2 or 3", int(type));
    if (type != ACL_MEM_LOCATION_TYPE_DEVICE)
        return fail(kNotSupported, call, "location.type must be that of a device: others are not simulated.");
    switch (prop->memAttr) {
        case ACL_HBM_MEM_HUGE:
        case ACL_HBM_MEM_NORMAL:
        case ACL_MEM_NORMAL:
        case ACL_MEM_HUGE:
            return check_device(call, static_cast<int32_t>(prop->location.id));
        case ACL_HBM_MEM_HUGE1G:
        case ACL_MEM_HUGE1G:
        case ACL_MEM_P2P_NORMAL:
        case ACL_MEM_P2P_HUGE:
        case ACL_MEM_P2P_HUGE1G:
            return fail(kNotSupported, call, "memAttr must be a huge page of 2 MiB: others are not simulated.");
        default:
            return fail(kInvalidParam, call, "memAttr must be one of device memory", prop->memAttr);
    }
}

void release(Physical* physical, VirtualMemory& memory) {
    if (!physical->is_freed || physical->mappings) return;
    close(physical->file);
    memory.physical.erase(physical);
    delete physical;
}

// The reserved range that contains [first, first + bytes), or the end.
auto find_reserved(char* first, size_t bytes, VirtualMemory& memory) {
    auto found = memory.reserved.upper_bound(first);
    if (found == memory.reserved.begin()) return memory.reserved.end();
    --found;
    return first + bytes <= found->first + found->second ? found : memory.reserved.end();
}

bool overlaps_mapping(const char* first, size_t bytes, const VirtualMemory& memory) {
    for (const auto& [start, mapped] : memory.mapped)
        if (first < start + mapped.bytes && start < first + bytes) return true;
    return false;
}

// Work that still uses the memory then ends the process, as an access of unmapped memory does on a device.
void unmap(std::map<char*, Mapped>::iterator found, FreedBy by, VirtualMemory& memory) {
    const auto [first, mapped] = *found;
    remove_mapping(first, by);
    mmap(first, mapped.bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
    memory.mapped.erase(found);
    --mapped.physical->mappings;
    release(mapped.physical, memory);
}

}  // namespace

uint64_t last_physical_memory() { return Locked<VirtualMemory>()->count; }

void free_physical_memory(int32_t device, uint64_t last) {
    Locked<VirtualMemory> memory;
    const auto ends = [&](const Physical* physical) { return physical->device == device && physical->number <= last; };
    for (auto next = memory->mapped.begin(); next != memory->mapped.end();)
        if (auto found = next++; ends(found->second.physical)) unmap(found, FreedBy::kDevice, *memory);
    for (auto next = memory->physical.begin(); next != memory->physical.end();)
        if (Physical* physical = next++->second; ends(physical)) {
            physical->is_freed = true;
            release(physical, *memory);
        }
}

}  // namespace simulated_cann

using namespace simulated_cann;

NPU_CANN_API aclError aclrtMemGetAllocationGranularity(aclrtPhysicalMemProp* prop, aclrtMemGranularityOptions option,
                                                       size_t* granularity) {
    if (!prop || !granularity) return fail(kInvalidParam, __func__, "prop and granularity must not be null.");
    if (option != ACL_RT_MEM_ALLOC_GRANULARITY_MINIMUM && option != ACL_RT_MEM_ALLOC_GRANULARITY_RECOMMENDED)
        return fail(kInvalidParam, __func__, "option must be 0 or 1", option);
    if (aclError error = check_properties(__func__, prop)) return error;
    *granularity = kGranularity;
    return kSuccess;
}

NPU_CANN_API aclError aclrtMallocPhysical(aclrtDrvMemHandle* handle, size_t size, const aclrtPhysicalMemProp* prop,
                                          uint64_t flags) {
    if (!handle || !prop) return fail(kInvalidParam, __func__, "handle and prop must not be null.");
    if (!size) return fail(kInvalidParam, __func__, "size must be greater than 0.");
    if (flags) return fail(kInvalidParam, __func__, "flags must be 0", flags);
    if (prop->handleType != ACL_MEM_HANDLE_TYPE_NONE)
        return fail(kInvalidParam, __func__, "handleType must be 0", prop->handleType);
    if (prop->allocationType != ACL_MEM_ALLOCATION_TYPE_PINNED)
        return fail(kInvalidParam, __func__, "allocationType must be 0", prop->allocationType);
    if (aclError error = check_properties(__func__, prop)) return error;
    if (size % kGranularity)
        return fail(kRtInvalid, __func__, "size must be a multiple of " + std::to_string(kGranularity), size);
    const auto device = static_cast<int32_t>(prop->location.id);
    if (size > kDeviceBytes - device_bytes_in_use(device))
        return fail(kRtOutOfMemory, __func__, "no memory left for " + std::to_string(size) + " bytes.");
    const int file = memfd_create("simulated device memory", MFD_CLOEXEC);
    void* bytes = MAP_FAILED;
    if (file >= 0 && ftruncate(file, static_cast<off_t>(size)) == 0)
        bytes = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (bytes == MAP_FAILED) {
        if (file >= 0) close(file);
        return fail(kRtOutOfMemory, __func__, "the host has no memory left for " + std::to_string(size) + " bytes.");
    }
    std::memset(bytes, kFreshByte, size);
    munmap(bytes, size);
    Locked<VirtualMemory> memory;
    auto* physical = new Physical{file, size, device, ++memory->count};
    memory->physical[physical] = physical;
    *handle = physical;
    return kSuccess;
}

NPU_CANN_API aclError aclrtFreePhysical(aclrtDrvMemHandle handle) {
    if (!handle) return fail(kInvalidParam, __func__, "handle must not be null.");
    Locked<VirtualMemory> memory;
    auto found = memory->physical.find(static_cast<Physical*>(handle));
    if (found == memory->physical.end() || found->second->is_freed)
        return fail(kRtInvalid, __func__, "handle must be one of aclrtMallocPhysical that was not freed.");
    found->second->is_freed = true;
    release(found->second, *memory);
    return kSuccess;
}

NPU_CANN_API aclError aclrtReserveMemAddress(void** out, size_t size, size_t alignment, void* expected,
                                             uint64_t flags) {
    if (!out) return fail(kInvalidParam, __func__, "virPtr must not be null.");
    if (!size) return fail(kInvalidParam, __func__, "size must be greater than 0.");
    if (flags > 1) return fail(kInvalidParam, __func__, "flags must be 0 or 1", flags);
    if (alignment) return fail(kRtInvalid, __func__, "alignment must be 0", alignment);
    if (expected) return fail(kNotSupported, __func__, "expectPtr must be null: others are not simulated.");
    // Two pages more: one for the alignment, and one so that two ranges never touch.
    void* pages = mmap(nullptr, size + 2 * kGranularity, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (pages == MAP_FAILED)
        return fail(kRtOutOfMemory, __func__, "no addresses left for " + std::to_string(size) + " bytes.");
    const auto address = reinterpret_cast<uintptr_t>(pages);
    *out = reinterpret_cast<void*>((address + kGranularity - 1) / kGranularity * kGranularity);
    Locked<VirtualMemory>()->reserved[static_cast<char*>(*out)] = size;
    return kSuccess;
}

NPU_CANN_API aclError aclrtReleaseMemAddress(void* first) {
    if (!first) return fail(kInvalidParam, __func__, "virPtr must not be null.");
    Locked<VirtualMemory> memory;
    auto found = memory->reserved.find(static_cast<char*>(first));
    if (found == memory->reserved.end())
        return fail(kRtInvalid, __func__, "virPtr must be an address of aclrtReserveMemAddress.");
    if (has_mappings(first)) return fail(kRtInvalid, __func__, "virPtr must have no mapped memory.");
    munmap(first, found->second);
    memory->reserved.erase(found);
    return kSuccess;
}

NPU_CANN_API aclError aclrtMapMem(void* address, size_t size, size_t offset, aclrtDrvMemHandle handle, uint64_t flags) {
    if (!address || !handle) return fail(kInvalidParam, __func__, "virPtr and handle must not be null.");
    if (!size) return fail(kInvalidParam, __func__, "size must be greater than 0.");
    if (flags) return fail(kInvalidParam, __func__, "flags must be 0", flags);
    Locked<VirtualMemory> memory;
    auto* const first = static_cast<char*>(address);
    auto found = memory->physical.find(static_cast<Physical*>(handle));
    if (found == memory->physical.end() || found->second->is_freed)
        return fail(kRtInvalid, __func__, "handle must be one of aclrtMallocPhysical that was not freed.");
    if (offset) return fail(kRtInvalid, __func__, "offset must be 0", offset);
    if (size != found->second->bytes)
        return fail(kRtInvalid, __func__, "size must be the handle's, " + std::to_string(found->second->bytes) + ",",
                    size);
    auto range = find_reserved(first, size, *memory);
    if (range == memory->reserved.end())
        return fail(kRtInvalid, __func__, "the bytes from virPtr on must lie inside one reserved range.");
    if (reinterpret_cast<uintptr_t>(address) % kGranularity)
        return fail(kRtInvalid, __func__, "virPtr must be a multiple of 2 MiB.");
    // hicann/runtime docs/zh/api_ref/11-04_virtual_memory_management.md, aclrtMapMem.
    for (const auto& [start, mapped] : memory->mapped)
        if (start >= range->first && start < range->first + range->second &&
            mapped.physical->device != found->second->device)
            return fail(kRtInvalid, __func__, "handle must be memory of the device of the range's other mappings.");
    if (overlaps_mapping(first, size, *memory)) return fail(kRtInvalid, __func__, "virPtr must not be mapped already.");
    if (mmap(first, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, found->second->file, 0) == MAP_FAILED)
        return fail(kRtOutOfMemory, __func__, "the host cannot map " + std::to_string(size) + " bytes.");
    ++found->second->mappings;
    memory->mapped[first] = {found->second, size};
    add_mapping(found->second->device, range->first, first, size);
    return kSuccess;
}

NPU_CANN_API aclError aclrtUnmapMem(void* address) {
    if (!address) return fail(kInvalidParam, __func__, "virPtr must not be null.");
    Locked<VirtualMemory> memory;
    auto found = memory->mapped.find(static_cast<char*>(address));
    if (found == memory->mapped.end()) return fail(kRtInvalid, __func__, "virPtr must be an address of aclrtMapMem.");
    unmap(found, FreedBy::kProgram, *memory);
    return kSuccess;
}
