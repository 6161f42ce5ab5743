// aclrt's calls for memory. Simulated device memory is host memory (allocations.h). A copy must stay inside the
// allocation; CANN checks only destMax. Calls without Async in their name do not wait for a stream, because the driver
// copies (hicann/runtime src/runtime/api/impl/api_impl.cc, MemCopySync).
#include <cstdlib>
#include <cstring>

#include "cann/runtime/allocations.h"
#include "cann/runtime/api.h"
#include "cann/runtime/contexts.h"
#include "cann/runtime/graphs.h"
#include "cann/runtime/host_memory.h"
#include "cann/runtime/races.h"
#include "cann/runtime/report.h"
#include "cann/runtime/scheduler.h"

namespace simulated_cann {
namespace {

// aclrtMemcpyKind: 0 host to host, 1 host to device, 2 device to host, 3 device to device, 4 selected by the addresses,
// 5 host to device through a buffer.
constexpr int kHostToHost = 0, kDeviceToHost = 2, kDeviceToDevice = 3, kByAddress = 4, kLastKind = 5;
constexpr size_t kMaxBytes = size_t(1) << 50;

// Without its cache, torch_npu allocates 32 bytes more than a tensor needs, for kernels that write whole 32-byte
// blocks. The simulated kernels must not write this padding, so it belongs to the guard zone. On Ascend950 with
// CANN 9.1, torch_npu adds no bytes (Ascend/pytorch torch_npu/csrc/core/npu/NPUCachingAllocator.cpp, AddPadSize).
size_t torch_padding(size_t bytes) {
    static const bool is_cache_off = [] {
        const char* value = std::getenv("PYTORCH_NO_NPU_MEMORY_CACHING");
        return value && *value && std::strcmp(value, "0") != 0;
    }();
    return is_cache_off && !is_ascend950() && bytes > 32 ? 32 : 0;
}

// aclrtMemMallocPolicy.
constexpr int kNormalPages = 2, kHuge1GPages = 6, kHuge1GPagesOfPeers = 7;
// The most that hicann/runtime src/acl/aclrt_impl/memory.cpp, GetAlignedAndPaddingSize, adds to a size.
constexpr size_t kAlignmentBytes = 64;

aclError check_allocation(const void* out, size_t bytes, const char* call) {
    if (!out) return fail(kInvalidParam, call, "devPtr must not be null.");
    if (bytes == 0) return fail(kInvalidParam, call, "size must be greater than 0.");
    if (bytes > SIZE_MAX - kAlignmentBytes) return fail(kInvalidParam, call, "size must be less than 2^64 - 64", bytes);
    return kSuccess;
}

aclError allocate(void** out, size_t bytes, size_t padding, int policy, const char* call) {
    if (aclError error = check_allocation(out, bytes, call)) return error;
    if (aclError error = check_context(call)) return error;
    note_call_in_host_function(call);
    // hicann/runtime src/runtime/driver/npu_driver_mem.cc, CheckIfSupport1GHugePage.
    if ((policy == kHuge1GPages || policy == kHuge1GPagesOfPeers) && is_ascend310p())
        return fail(kRtNotSupported, call, "policy must not be 6 or 7, a huge page of 1 GiB, on this chip", policy);
    const int32_t device = current_device();
    *out = allocate_device(device, bytes - padding, padding);
    if (*out) return kSuccess;
    // The only status that torch_npu treats as a lack of memory: it frees its cache, tries again, and then raises
    // OutOfMemoryError (Ascend/pytorch torch_npu/csrc/core/npu/NPUCachingAllocator.cpp, alloc_block).
    return fail(kRtOutOfMemory, call,
                "no memory left for " + std::to_string(bytes) + " bytes; " +
                    std::to_string(device_bytes_in_use(device)) + " are in use.");
}

// Returns "" or the error that the device memory at the address has fewer bytes or was freed. Host memory is not
// checked.
std::string allocation_error(const char* call, const char* argument, const void* address, size_t bytes) {
    void* first = nullptr;
    uint64_t allocation_bytes = 0;
    if (!find_allocation(address, &first, &allocation_bytes)) {
        const std::string freed = describe_freed(address);
        if (freed.empty()) return "";
        return std::string(call) + ": " + argument + " must not be device memory that was freed (" + freed + ").";
    }
    auto offset = uint64_t(static_cast<const char*>(address) - static_cast<const char*>(first));
    if (bytes <= allocation_bytes - offset) return "";
    return std::string(call) + ": " + argument + " must stay inside its allocation of " +
           std::to_string(allocation_bytes) + " bytes but got " + std::to_string(bytes) + " bytes from byte " +
           std::to_string(offset) + ".";
}

struct Copy {
    void* to;
    size_t to_bytes;
    const void* from;
    size_t bytes;
};

// The order of the checks is CANN's: hicann/runtime src/acl/aclrt_impl/memory.cpp, aclrtMemcpyImpl and
// MemcpyKindTranslate; then the stream's handle (src/runtime/api/api_c.cc, rtMemcpyAsync); then
// src/runtime/api/impl/api_error.cc, ApiErrorDecorator::MemCopySync and ::MemcpyAsync.
aclError check_copy_arguments(const char* call, const Copy& copy, int kind) {
    if (!copy.to || !copy.from) return fail(kInvalidParam, call, "dst and src must not be null.");
    if (kind < 0 || kind > kLastKind) return fail(kInvalidParam, call, "kind must be 0 to 5", kind);
    return kSuccess;
}
aclError check_copy_size(const char* call, const Copy& copy) {
    if (copy.bytes <= copy.to_bytes) return kSuccess;
    return fail(kRtInvalid, call, "count must be at most destMax " + std::to_string(copy.to_bytes), copy.bytes);
}
aclError check_copy_memory(const char* call, const Copy& copy) {
    if (aclError error = check_context(call)) return error;
    std::string error = allocation_error(call, "dst", copy.to, copy.bytes);
    if (error.empty()) error = allocation_error(call, "src", copy.from, copy.bytes);
    return error.empty() ? kSuccess : fail(kInvalidParam, error);
}

aclError check_fill(const char* call, void* to, size_t to_bytes, size_t bytes) {
    if (bytes > to_bytes)
        return fail(kRtInvalid, call, "count must be at most maxCount " + std::to_string(to_bytes), bytes);
    if (aclError error = check_context(call)) return error;
    const std::string error = allocation_error(call, "devPtr", to, bytes);
    return error.empty() ? kSuccess : fail(kInvalidParam, error);
}

bool is_device_memory(const void* address) {
    void* first = nullptr;
    uint64_t bytes = 0;
    return find_allocation(address, &first, &bytes);
}

MemoryAccess access_of(const char* argument, const void* first, size_t bytes, bool writes) {
    return {argument, static_cast<char*>(const_cast<void*>(first)), {int64_t(bytes)}, {1}, 1, !writes, writes};
}

// Checks the kind of an asynchronous copy (hicann/runtime src/runtime/api/impl/api_error.cc, MemcpyAsync,
// MemcpyKindReviseMap and MemcpyAsyncCheckExLocation). The runtime corrects a wrong kind if the driver detects pinned
// memory and both addresses are of pinned or device memory. Otherwise it refuses the kind, or passes it to the device.
// Here a wrong kind is always refused. A synchronous copy ignores its kind
// (docs/zh/api_ref/11-03_memory_copy_and_set.md, aclrtMemcpy).
aclError check_copy_kind(const char* call, const Copy& copy, int kind) {
    const bool from_device = is_device_memory(copy.from), to_device = is_device_memory(copy.to);
    if (!from_device && !to_device)
        return fail(kRtNotSupported, call, "dst or src must be device memory but got host memory for both.");
    if (kind == kHostToHost) return fail(kRtNotSupported, call, "kind must not be 0, ACL_MEMCPY_HOST_TO_HOST.");
    if (kind == kByAddress) return kSuccess;
    const bool is_from_device = kind == kDeviceToHost || kind == kDeviceToDevice, is_to_device = kind != kDeviceToHost;
    if (from_device == is_from_device && to_device == is_to_device) return kSuccess;
    return fail(kRtInvalid, call, "kind must match the memory of dst and src", kind);
}

// Whether the copy is one between two devices, and which.
bool is_between_devices(const Copy& copy, int32_t* from, int32_t* to) {
    return device_of_address(copy.to, to) && device_of_address(copy.from, from) && *to != *from;
}

// hicann/runtime docs/zh/api_ref/11-03_memory_copy_and_set.md, aclrtMemcpy: a copy between two devices needs
// aclrtDeviceEnablePeerAccess first.
aclError check_peer_access(const char* call, const Copy& copy) {
    int32_t to = 0, from = 0;
    if (!is_between_devices(copy, &from, &to) || can_copy_between(from, to)) return kSuccess;
    return fail(kRtInvalid, call,
                "devices of src and dst must have access to each other (aclrtDeviceEnablePeerAccess on both) but got "
                "devices " +
                    std::to_string(from) + " and " + std::to_string(to) + ".");
}

// hicann/runtime docs/zh/api_ref/11-04_virtual_memory_management.md, aclrtReserveMemAddress: only aclrtMemcpyAsync
// copies this memory between two devices. The source does not check it.
void note_copy_between_devices(const char* call, const Copy& copy) {
    int32_t to = 0, from = 0;
    if (is_between_devices(copy, &from, &to) && (is_mapping(copy.to) || is_mapping(copy.from)))
        count_beyond_document(std::string(call) + " between two devices with memory of aclrtReserveMemAddress");
}

aclError copy_synchronously(const char* call, const Copy& copy) {
    auto lock = lock_streams();
    if (aclError error = check_capture_mode(call)) return error;
    note_host_access(call, copy.from, copy.bytes, false);
    note_host_access(call, copy.to, copy.bytes, true);
    std::memmove(copy.to, copy.from, copy.bytes);
    return kSuccess;
}

// Returns the work of an asynchronous copy. The work accesses host memory by a system call, which refuses unmapped
// memory.
Work make_copy_work(const char* call, const Copy& copy) {
    const bool to_device = is_device_memory(copy.to), from_device = is_device_memory(copy.from);
    Work work(Work::Kind::kDevice, call);
    work.is_copy = true;
    if (from_device)
        work.accesses.push_back(access_of("src", copy.from, copy.bytes, false));
    else
        work.host_source = {copy.from, copy.bytes};
    if (to_device)
        work.accesses.push_back(access_of("dst", copy.to, copy.bytes, true));
    else
        work.host_target = {copy.to, copy.bytes};
    const std::string name = call;
    work.run = [copy, name, to_device, from_device]() -> int32_t {
        if (to_device == from_device) {
            std::memmove(copy.to, copy.from, copy.bytes);
            return kSuccess;
        }
        if (to_device ? read_host(copy.to, copy.from, copy.bytes) : write_host(copy.to, copy.from, copy.bytes))
            return kSuccess;
        const std::string text = name + ": the host's memory was freed before the copy ran.";
        report_freed(text);
        return fail(kCopyEngine, text);
    };
    return work;
}

// Drops the recorded accesses to pinned memory that is freed. No work uses the memory any more.
void forget_pinned_accesses(const void* first) {
    uint64_t number = 0;
    auto lock = lock_streams();
    if (number_of_pinned(first, &number)) forget_accesses(number, nullptr);
}

// Checks whether a capture allows a copy of pageable host memory. A graph cannot contain such a copy. On a stream that
// is not captured, CANN makes the copy synchronous, which the mode of another capture may forbid (hicann/runtime
// src/runtime/api/impl/api_error.cc, MemcpyAsync).
aclError check_host_memory(const char* call, const StreamPtr& stream, const Copy& copy) {
    auto lock = lock_streams();
    for (const void* address : {static_cast<const void*>(copy.to), copy.from}) {
        if (is_device_memory(address) || is_pinned(address, copy.bytes)) continue;
        if (!is_capturing(*stream)) return check_capture_mode(call, kCaptureModeRefusesAsync);
        return fail(kRtInvalid, call, "host memory must come from aclrtMallocHost during a capture.");
    }
    return kSuccess;
}

}  // namespace
}  // namespace simulated_cann

using namespace simulated_cann;

NPU_CANN_API aclError aclrtMalloc(void** out, size_t bytes, int policy) {
    return allocate(out, bytes, 0, policy, __func__);
}
NPU_CANN_API aclError aclrtMallocAlign32(void** out, size_t bytes, int policy) {
    return allocate(out, bytes, torch_padding(bytes), policy, __func__);
}
// hicann/runtime src/runtime/api/impl/api_impl.cc, DevMallocCached, compares the aligned size;
// src/runtime/driver/npu_driver_mem.cc, DevMemAllocCached, compares the policy.
NPU_CANN_API aclError aclrtMallocCached(void** out, size_t bytes, int policy) {
    if (aclError error = check_allocation(out, bytes, __func__)) return error;
    if (bytes > kMaxBytes - kAlignmentBytes / 2)
        return fail(kRtInvalid, __func__, "size must be at most 2^50 - 32", bytes);
    if (aclError error = check_context(__func__)) return error;
    if (policy != kNormalPages)
        return fail(kRtNotSupported, __func__, "policy must be 2, ACL_MEM_MALLOC_NORMAL_ONLY,", policy);
    return allocate(out, bytes, 0, policy, __func__);
}

namespace simulated_cann {

bool free_and_report(void* first, FreedBy by) {
    FreedAllocation freed;
    if (!find_allocation_start(first, &freed)) return false;
    {
        auto lock = lock_streams();
        note_device_free(freed.number, freed.is_padded);
    }
    if (!free_device(first, by, &freed)) return false;
    if (!freed.damage.empty())
        report_damage(freed.damage, by == FreedBy::kProgram ? "when it was freed" : "when its device was closed");
    return true;
}

}  // namespace simulated_cann

// If a guard zone is damaged, this is reported, but the call succeeds, because the caller is often a destructor. The
// call does not wait for stream work that uses the memory.
// Other memory goes to the driver, which finds an invalid value (hicann/runtime src/runtime/driver/npu_driver_mem.cc,
// DevMemFree; src/runtime/core/src/common/errcode_manage.cc, DRV_ERROR_INVALID_VALUE).
NPU_CANN_API aclError aclrtFree(void* first) {
    note_call_in_host_function(__func__);
    if (!first) return fail(kInvalidParam, __func__, "devPtr must not be null.");
    if (free_and_report(first, FreedBy::kProgram)) return kSuccess;
    return fail(
        kRtInvalid, __func__,
        "devPtr must be an allocation of aclrtMalloc and not be freed twice. A device's memory is freed when its "
        "last context ends.");
}

NPU_CANN_API aclError aclrtMallocHost(void** out, size_t bytes) {
    if (!out || bytes == 0) return fail(kInvalidParam, __func__, "hostPtr must not be null, and size must not be 0.");
    if (aclError error = check_context(__func__)) return error;
    note_call_in_host_function(__func__);
    *out = allocate_host(bytes);
    return *out ? kSuccess : fail(kRtOutOfMemory, __func__, "no memory left.");
}
NPU_CANN_API aclError aclrtFreeHost(void* first) {
    if (!first) return fail(kInvalidParam, __func__, "hostPtr must not be null.");
    note_call_in_host_function(__func__);
    const size_t bytes = pinned_bytes(first);
    // hicann/runtime src/runtime/api/impl/api_impl.cc, HostFree: memory of the device. Other memory goes to the driver.
    if (bytes == 0) return fail(kRtInvalid, __func__, "hostPtr must be an allocation of aclrtMallocHost.");
    std::string user;
    {
        auto lock = lock_streams();
        user = find_user_of_host_memory({first, bytes});
    }
    if (user.empty()) {
        forget_pinned_accesses(first);
        free_host(first);
        return kSuccess;
    }
    // Keep the memory allocated, so that the copy does not access another allocation.
    report_freed("aclrtFreeHost frees memory that " + user + " uses, and the host has not waited for it.");
    return kSuccess;
}

NPU_CANN_API aclError aclrtMemcpy(void* to, size_t to_bytes, const void* from, size_t bytes, int kind) {
    if (is_device_memory(from) && !is_device_memory(to)) count_host_wait("aclrtMemcpy to the host");
    if (bytes == 0) return kSuccess;
    const Copy copy{to, to_bytes, from, bytes};
    if (aclError error = check_copy_arguments(__func__, copy, kind)) return error;
    if (aclError error = check_copy_size(__func__, copy)) return error;
    if (to == from) return kSuccess;  // without a context too
    if (aclError error = check_copy_memory(__func__, copy)) return error;
    if (aclError error = check_peer_access(__func__, copy)) return error;
    note_copy_between_devices(__func__, copy);
    return copy_synchronously(__func__, copy);
}
NPU_CANN_API aclError aclrtMemcpyAsync(void* to, size_t to_bytes, const void* from, size_t bytes, int kind,
                                       void* handle) {
    if (kind == kDeviceToHost) count_host_wait("aclrtMemcpyAsync to the host");
    if (bytes == 0) return kSuccess;
    const Copy copy{to, to_bytes, from, bytes};
    if (aclError error = check_copy_arguments(__func__, copy, kind)) return error;
    StreamPtr stream = find_stream(handle);
    if (!stream) return refuse_unknown_stream(__func__);
    if (aclError error = check_copy_size(__func__, copy)) return error;
    if (aclError error = check_copy_memory(__func__, copy)) return error;
    if (aclError error = check_copy_kind(__func__, copy, kind)) return error;
    if (to == from) return kSuccess;
    if (aclError error = check_stream_context(__func__, *stream)) return error;
    if (aclError error = check_peer_access(__func__, copy)) return error;
    if (aclError error = check_host_memory(__func__, stream, copy)) return error;
    return submit(stream, make_copy_work(__func__, copy));
}
// hicann/runtime docs/zh/api_ref/11-03_memory_copy_and_set.md: a fill of host memory that is not of aclrtMallocHost is
// undefined. aclrtMemset gives the memory to the driver, whose checks are not public. aclrtMemsetAsync fills memory of
// the host at the call (src/runtime/core/src/launch/memory_common.cc, MemSetAsync).
NPU_CANN_API aclError aclrtMemset(void* to, size_t to_bytes, int32_t value, size_t bytes) {
    if (bytes == 0) return kSuccess;
    if (!to) return fail(kInvalidParam, __func__, "devPtr must not be null.");
    if (aclError error = check_fill(__func__, to, to_bytes, bytes)) return error;
    auto lock = lock_streams();
    if (aclError error = check_capture_mode(__func__)) return error;
    if (!is_device_memory(to) && !is_pinned(to, bytes))
        return fail(kRtInvalid, __func__, "devPtr must be memory of the device or of aclrtMallocHost.");
    note_host_access(__func__, to, bytes, true);
    std::memset(to, value, bytes);
    return kSuccess;
}
NPU_CANN_API aclError aclrtMemsetAsync(void* to, size_t to_bytes, int32_t value, size_t bytes, void* handle) {
    if (bytes == 0) return kSuccess;
    if (!to) return fail(kInvalidParam, __func__, "devPtr must not be null.");
    StreamPtr stream = find_stream(handle);  // first (hicann/runtime src/runtime/api/api_c.cc, rtMemsetAsync)
    if (!stream) return refuse_unknown_stream(__func__);
    if (aclError error = check_fill(__func__, to, to_bytes, bytes)) return error;
    if (aclError error = check_stream_context(__func__, *stream)) return error;
    if (!is_device_memory(to)) {
        if (!is_pinned(to, bytes))
            count_beyond_document("aclrtMemsetAsync with host memory that is not of aclrtMallocHost");
        std::memset(to, value, bytes);
        return kSuccess;
    }
    Work work(Work::Kind::kDevice, __func__);
    work.accesses.push_back(access_of("devPtr", to, bytes, true));
    work.run = [to, value, bytes] {
        std::memset(to, value, bytes);
        return int32_t(kSuccess);
    };
    return submit(stream, std::move(work));
}

// Kinds of memory: hicann/runtime src/runtime/api/impl/api_error.cc, MemGetInfoEx; pkg_inc/runtime/runtime/mem.h.
// Only Ascend310P has DDR memory; every kind is one of DDR there (src/runtime/driver/npu_driver_mem.cc, MemGetInfoEx,
// g_memInfoTypeMap). On other chips the sizes of DDR memory are 0
// (docs/zh/api_ref/11-01_device_memory_malloc_and_free.md, aclrtGetMemInfo).
NPU_CANN_API aclError aclrtGetMemInfo(int attribute, size_t* free_bytes, size_t* total) {
    constexpr int kKindsOfMemory = 18;
    if (!free_bytes || !total) return fail(kInvalidParam, __func__, "free and total must not be null.");
    if (attribute < 0 || attribute >= kKindsOfMemory)
        return fail(kInvalidMemoryType, __func__, "attr must be 0 to 17", attribute);
    if (aclError error = check_context(__func__)) return error;
    const bool is_ddr = attribute == 0 || attribute == 2 || attribute == 3 || attribute == 6 || attribute == 7;
    const bool has_memory = is_ascend310p() || !is_ddr;
    *total = has_memory ? kDeviceBytes : 0;
    *free_bytes = has_memory ? kDeviceBytes - device_bytes_in_use(current_device()) : 0;
    return kSuccess;
}

// aclrtPtrAttributes: the location (device and kind: 0 host, 1 device, 2 unregistered), page size, reserved.
struct PointerAttributes {
    uint32_t device;
    int32_t kind;
    uint32_t page_bytes;
    uint32_t reserved[4];
};
NPU_CANN_API aclError aclrtPointerGetAttributes(const void* address, PointerAttributes* out) {
    if (!out || !address) return fail(kInvalidParam, __func__, "ptr and attributes must not be null.");
    void* first = nullptr;
    uint64_t bytes = 0;
    *out = PointerAttributes{};
    int32_t device = 0;
    if (find_allocation(address, &first, &bytes) && device_of_address(address, &device)) {
        out->kind = 1;
        out->device = static_cast<uint32_t>(device);
    } else {
        out->kind = is_pinned(address, 1) ? 0 : 2;
    }
    return kSuccess;
}
