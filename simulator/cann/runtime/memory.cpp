// aclrt's memory calls. Device memory is host memory (allocations.h). A copy to or from it must stay inside the
// allocation; CANN checks only destMax. The calls without Async in their name do not wait for a stream
// (hicann/runtime src/runtime/api/impl/api_impl.cc, MemCopySync: the driver copies).
#include <cstdlib>
#include <cstring>

#include "cann/runtime/allocations.h"
#include "cann/runtime/api.h"
#include "cann/runtime/graphs.h"
#include "cann/runtime/host_memory.h"
#include "cann/runtime/races.h"
#include "cann/runtime/report.h"
#include "cann/runtime/scheduler.h"

namespace simulated_cann {
namespace {

// aclrtMemcpyKind: 0 host to host, 1 host to device, 2 device to host, 3 device to device, 4 selected by the addresses,
// 5 host to device through a buffer.
constexpr int kInHost = 0, kDeviceToHost = 2, kInDevice = 3, kByAddress = 4, kLastKind = 5;
constexpr size_t kMostBytes = size_t(1) << 50;

// Without its cache, torch_npu allocates 32 bytes more than a tensor needs, for kernels that write whole 32-byte
// blocks. The simulated kernels must not write this padding, so it belongs to the guard zone.
size_t torch_padding(size_t bytes) {
    static const bool uncached = [] {
        const char* value = std::getenv("PYTORCH_NO_NPU_MEMORY_CACHING");
        return value && *value && std::strcmp(value, "0") != 0;
    }();
    return uncached && bytes > 32 ? 32 : 0;
}

aclError allocate(void** out, size_t bytes, size_t padding, const char* call) {
    if (!out) return failed(kInvalidParam, call, "devPtr must not be null.");
    if (bytes == 0) return failed(kInvalidParam, call, "size must be greater than 0.");
    if (aclError refused = no_context(call)) return refused;
    if (bytes > kMostBytes) return failed(kRtInvalid, call, "size must be at most 2^50", bytes);
    *out = allocate_device(bytes - padding, padding);
    if (*out) return kSuccess;
    // The only status that torch_npu treats as a lack of memory: it frees its cache, tries again, and then raises
    // OutOfMemoryError (Ascend/pytorch torch_npu/csrc/core/npu/NPUCachingAllocator.cpp, alloc_block).
    return failed(kRtOutOfMemory, call,
                  "no memory left for " + std::to_string(bytes) + " bytes; " + std::to_string(device_bytes_in_use()) +
                      " are in use.");
}

// "" or the error that device memory at the address has fewer bytes; host memory is not checked.
std::string allocation_error(const char* call, const char* what, const void* address, size_t bytes) {
    void* first = nullptr;
    uint64_t allocation_bytes = 0;
    if (!find_allocation(address, &first, &allocation_bytes)) return "";
    auto offset = uint64_t(static_cast<const char*>(address) - static_cast<const char*>(first));
    if (bytes <= allocation_bytes - offset) return "";
    return std::string(call) + ": " + what + " must stay inside its allocation of " + std::to_string(allocation_bytes) +
           " bytes but got " + std::to_string(bytes) + " bytes from byte " + std::to_string(offset) + ".";
}

struct Copy {
    void* to;
    size_t to_bytes;
    const void* from;
    size_t bytes;
};

// Checks in CANN's order: hicann/runtime src/acl/aclrt_impl/memory.cpp, aclrtMemcpyImpl and
// MemcpyKindTranslate; then src/runtime/api/impl/api_error.cc, ApiErrorDecorator::MemCopySync and ::MemcpyAsync.
aclError refuse_copy(const char* call, const Copy& c, int kind) {
    if (!c.to || !c.from) return failed(kInvalidParam, call, "dst and src must not be null.");
    if (kind < 0 || kind > kLastKind) return failed(kInvalidParam, call, "kind must be 0 to 5", kind);
    if (c.bytes > c.to_bytes)
        return failed(kRtInvalid, call, "count must be at most destMax " + std::to_string(c.to_bytes), c.bytes);
    if (aclError refused = no_context(call)) return refused;
    std::string error = allocation_error(call, "dst", c.to, c.bytes);
    if (error.empty()) error = allocation_error(call, "src", c.from, c.bytes);
    return error.empty() ? kSuccess : failed(kInvalidParam, error);
}

aclError refuse_fill(const char* call, void* to, size_t to_bytes, size_t bytes) {
    if (!to) return failed(kInvalidParam, call, "devPtr must not be null.");
    if (bytes > to_bytes)
        return failed(kRtInvalid, call, "count must be at most maxCount " + std::to_string(to_bytes), bytes);
    if (aclError refused = no_context(call)) return refused;
    const std::string error = allocation_error(call, "devPtr", to, bytes);
    return error.empty() ? kSuccess : failed(kInvalidParam, error);
}

bool is_device(const void* address) {
    void* first = nullptr;
    uint64_t bytes = 0;
    return find_allocation(address, &first, &bytes);
}

MemoryAccess access_of(const char* argument, const void* first, size_t bytes, bool writes) {
    return {argument, static_cast<char*>(const_cast<void*>(first)), {int64_t(bytes)}, {1}, 1, !writes, writes};
}

// The runtime corrects the kind of an asynchronous copy by the addresses (hicann/runtime
// src/runtime/api/impl/api_error.cc, ApiErrorDecorator::MemcpyKindAutoUpdate). It passes the kind of a synchronous copy
// to the driver. How the driver treats a wrong kind is unknown, so such a kind is refused.
aclError refuse_other_kind(const char* call, const Copy& c, int kind) {
    if (kind == kByAddress) return kSuccess;
    const bool from_device = kind == kDeviceToHost || kind == kInDevice;
    const bool to_device = kind != kDeviceToHost && kind != kInHost;
    if (is_device(c.from) == from_device && is_device(c.to) == to_device) return kSuccess;
    return failed(kInvalidParam, call, "kind must match the memory of dst and src", kind);
}

aclError copy_now(const char* call, const Copy& c) {
    auto lock = lock_streams();
    if (aclError refused = refuse_while_capturing(call)) return refused;
    note_host_access(call, c.from, c.bytes, false);
    note_host_access(call, c.to, c.bytes, true);
    std::memmove(c.to, c.from, c.bytes);
    return kSuccess;
}

// The work of an asynchronous copy. Host memory is accessed by a call of the operating system, which refuses
// unmapped memory.
Work copy_work(const char* call, const Copy& c) {
    const bool to_device = is_device(c.to), from_device = is_device(c.from);
    Work work(Work::Kind::kDevice, call);
    if (from_device)
        work.accesses.push_back(access_of("src", c.from, c.bytes, false));
    else
        work.source = {c.from, c.bytes};
    if (to_device)
        work.accesses.push_back(access_of("dst", c.to, c.bytes, true));
    else
        work.target = {c.to, c.bytes};
    const std::string name = call;
    work.run = [c, name, to_device, from_device]() -> int32_t {
        if (to_device == from_device) {
            std::memmove(c.to, c.from, c.bytes);
            return kSuccess;
        }
        if (to_device ? read_host(c.to, c.from, c.bytes) : write_host(c.to, c.from, c.bytes)) return kSuccess;
        const std::string text = name + ": the host's memory was freed before the copy ran.";
        report_freed(text);
        return failed(kCopyEngine, text);
    };
    return work;
}

// Drops the recorded accesses to memory that is freed. No work uses the memory any more: user_of_host returned "".
void forget_pinned(const void* first) {
    uint64_t number = 0;
    auto lock = lock_streams();
    if (number_of_pinned(first, &number)) note_free(number, nullptr);
}

// hicann/runtime src/runtime/api/impl/api_error.cc, MemcpyAsync: a graph cannot contain a copy of pageable memory. On
// a stream that is not captured, CANN makes the copy synchronous, which the mode of a capture may forbid.
aclError refuse_pageable(const char* call, const StreamPtr& stream, const Copy& c) {
    auto lock = lock_streams();
    for (const void* side : {static_cast<const void*>(c.to), c.from}) {
        if (is_device(side) || is_pinned(side, c.bytes)) continue;
        if (!is_capturing(*stream)) return refuse_while_capturing(call, kCaptureModeRefusesAsync);
        return failed(kRtInvalid, call, "host memory must be of aclrtMallocHost during a capture.");
    }
    return kSuccess;
}

}  // namespace
}  // namespace simulated_cann

using namespace simulated_cann;

NPU_CANN_API aclError aclrtMalloc(void** out, size_t bytes, int /*policy*/) {
    return allocate(out, bytes, 0, __func__);
}
NPU_CANN_API aclError aclrtMallocAlign32(void** out, size_t bytes, int /*policy*/) {
    return allocate(out, bytes, torch_padding(bytes), __func__);
}
NPU_CANN_API aclError aclrtMallocCached(void** out, size_t bytes, int /*policy*/) {
    return allocate(out, bytes, 0, __func__);
}

// Damage is reported but does not fail the call, because the caller is often a destructor. The call does not wait for
// stream work that uses the memory.
NPU_CANN_API aclError aclrtFree(void* first) {
    Freed freed;
    if (!find_start(first, &freed))
        return failed(kInvalidParam, __func__, "devPtr must be an allocation of aclrtMalloc and not be freed twice.");
    {
        auto lock = lock_streams();
        note_freed(freed.number, freed.is_padded);
    }
    if (!free_device(first, &freed))
        return failed(kInvalidParam, __func__, "devPtr must be an allocation of aclrtMalloc and not be freed twice.");
    if (!freed.damage.empty()) report_damage(freed.damage, "when it was freed");
    return kSuccess;
}

NPU_CANN_API aclError aclrtMallocHost(void** out, size_t bytes) {
    if (!out || bytes == 0) return failed(kInvalidParam, __func__, "hostPtr must not be null, size not 0.");
    if (aclError refused = no_context(__func__)) return refused;
    *out = allocate_host(bytes);
    return *out ? kSuccess : failed(kRtOutOfMemory, __func__, "no memory left.");
}
NPU_CANN_API aclError aclrtFreeHost(void* first) {
    if (!first) return failed(kInvalidParam, __func__, "hostPtr must not be null.");
    const size_t bytes = pinned_bytes(first);
    if (bytes == 0) return failed(kInvalidParam, __func__, "hostPtr must be an allocation of aclrtMallocHost.");
    std::string user;
    {
        auto lock = lock_streams();
        user = user_of_host({first, bytes});
    }
    if (user.empty()) {
        forget_pinned(first);
        free_host(first);
        return kSuccess;
    }
    // Keep the memory allocated, so that the copy does not access another allocation.
    report_freed("aclrtFreeHost frees memory that " + user + " uses, and the host has not waited for it.");
    return kSuccess;
}

NPU_CANN_API aclError aclrtMemcpy(void* to, size_t to_bytes, const void* from, size_t bytes, int kind) {
    if (kind == kDeviceToHost) count_host_wait("aclrtMemcpy to the host");
    if (bytes == 0) return kSuccess;
    const Copy c{to, to_bytes, from, bytes};
    if (aclError refused = refuse_copy(__func__, c, kind)) return refused;
    if (aclError refused = refuse_other_kind(__func__, c, kind)) return refused;
    return copy_now(__func__, c);
}
NPU_CANN_API aclError aclrtMemcpyAsync(void* to, size_t to_bytes, const void* from, size_t bytes, int kind,
                                       void* handle) {
    if (kind == kDeviceToHost) count_host_wait("aclrtMemcpyAsync to the host");
    if (bytes == 0) return kSuccess;
    const Copy c{to, to_bytes, from, bytes};
    if (aclError refused = refuse_copy(__func__, c, kind)) return refused;
    if (!is_device(to) && !is_device(from))
        return failed(kRtNotSupported, __func__, "dst or src must be device memory but got host memory for both.");
    StreamPtr stream = find_stream(handle);
    if (!stream) return no_stream(__func__);
    if (aclError refused = refuse_pageable(__func__, stream, c)) return refused;
    return submit(stream, copy_work(__func__, c));
}
NPU_CANN_API aclError aclrtMemset(void* to, size_t to_bytes, int32_t value, size_t bytes) {
    if (bytes == 0) return kSuccess;
    if (aclError refused = refuse_fill(__func__, to, to_bytes, bytes)) return refused;
    auto lock = lock_streams();
    if (aclError refused = refuse_while_capturing(__func__)) return refused;
    note_host_access(__func__, to, bytes, true);
    std::memset(to, value, bytes);
    return kSuccess;
}
NPU_CANN_API aclError aclrtMemsetAsync(void* to, size_t to_bytes, int32_t value, size_t bytes, void* handle) {
    if (bytes == 0) return kSuccess;
    if (aclError refused = refuse_fill(__func__, to, to_bytes, bytes)) return refused;
    StreamPtr stream = find_stream(handle);
    if (!stream) return no_stream(__func__);
    Work work(Work::Kind::kDevice, __func__);
    work.accesses.push_back(access_of("devPtr", to, bytes, true));
    work.run = [to, value, bytes] {
        std::memset(to, value, bytes);
        return int32_t(kSuccess);
    };
    return submit(stream, std::move(work));
}

// Kinds of memory: hicann/runtime src/runtime/api/impl/api_error.cc, MemGetInfoEx; pkg_inc/runtime/runtime/mem.h.
NPU_CANN_API aclError aclrtGetMemInfo(int attribute, size_t* free_bytes, size_t* total) {
    constexpr int kKindsOfMemory = 18;
    if (!free_bytes || !total) return failed(kInvalidParam, __func__, "free and total must not be null.");
    if (attribute < 0 || attribute >= kKindsOfMemory)
        return failed(kInvalidMemoryType, __func__, "attr must be 0 to 17", attribute);
    if (aclError refused = no_context(__func__)) return refused;
    *total = kDeviceBytes;
    *free_bytes = kDeviceBytes - device_bytes_in_use();
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
    if (!out || !address) return failed(kInvalidParam, __func__, "ptr and attributes must not be null.");
    void* first = nullptr;
    uint64_t bytes = 0;
    *out = PointerAttributes{};
    out->kind = find_allocation(address, &first, &bytes) ? 1 : is_pinned(address, 1) ? 0 : 2;
    return kSuccess;
}
