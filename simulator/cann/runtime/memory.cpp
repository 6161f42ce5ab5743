// aclrt's memory calls. Device memory is host memory (allocations.h); a copy to or from it is bounded by
// the allocation it lies in, where CANN's is bounded by destMax alone.
#include <cstdlib>
#include <cstring>

#include "simulator/cann/runtime/allocations.h"
#include "simulator/cann/runtime/api.h"
#include "simulator/cann/runtime/report.h"

namespace npu_cann {
namespace {

constexpr int kDeviceToHost = 2;  // of aclrtMemcpyKind

// Without its cache torch_npu asks for 32 bytes more than a tensor has, for kernels that write whole 32-byte
// blocks. Ours must not: the padding is watched, too.
size_t torch_padding(size_t bytes) {
    static const bool uncached = [] {
        const char* set = std::getenv("PYTORCH_NO_NPU_MEMORY_CACHING");
        return set && *set && std::strcmp(set, "0") != 0;
    }();
    return uncached && bytes > 32 ? 32 : 0;
}

aclError allocate(void** out, size_t bytes, size_t padding, const char* call) {
    if (!out) return failed(kInvalidParam, std::string(call) + ": devPtr must not be null.");
    if (bytes == 0) return failed(kInvalidParam, std::string(call) + ": size must be greater than 0.");
    *out = allocate_device(bytes - padding, padding);
    if (*out) return kSuccess;
    return failed(kBadAlloc, std::string(call) + ": no memory left for " + std::to_string(bytes) + " bytes; " +
                                 std::to_string(device_bytes_in_use()) + " are in use.");
}

// "" or why these bytes are not inside one allocation; memory that is not the device's passes.
std::string outside(const char* call, const char* what, const void* address, size_t bytes) {
    void* first = nullptr;
    uint64_t whole = 0;
    if (!find_allocation(address, &first, &whole)) return "";
    auto offset = uint64_t(static_cast<const char*>(address) - static_cast<const char*>(first));
    if (bytes <= whole - offset) return "";
    return std::string(call) + ": " + what + " must stay inside its allocation of " + std::to_string(whole) +
           " bytes but got " + std::to_string(bytes) + " bytes from byte " + std::to_string(offset) + ".";
}

aclError copy(const char* call, void* to, size_t to_bytes, const void* from, size_t bytes) {
    if (bytes == 0) return kSuccess;
    if (!to || !from) return failed(kInvalidParam, std::string(call) + ": dst and src must not be null.");
    if (bytes > to_bytes)
        return failed(kInvalidParam, std::string(call) + ": count must be at most destMax " + std::to_string(to_bytes) +
                                         " but got " + std::to_string(bytes) + ".");
    for (const std::string& wrong : {outside(call, "dst", to, bytes), outside(call, "src", from, bytes)})
        if (!wrong.empty()) return failed(kInvalidParam, wrong);
    std::memmove(to, from, bytes);
    return kSuccess;
}

aclError fill(const char* call, void* to, size_t to_bytes, int32_t value, size_t bytes) {
    if (bytes == 0) return kSuccess;
    if (!to) return failed(kInvalidParam, std::string(call) + ": devPtr must not be null.");
    if (bytes > to_bytes)
        return failed(kInvalidParam, std::string(call) + ": count must be at most maxCount " +
                                         std::to_string(to_bytes) + " but got " + std::to_string(bytes) + ".");
    std::string wrong = outside(call, "devPtr", to, bytes);
    if (!wrong.empty()) return failed(kInvalidParam, wrong);
    std::memset(to, value, bytes);
    return kSuccess;
}

}  // namespace
}  // namespace npu_cann

using namespace npu_cann;

NPU_CANN_API aclError aclrtMalloc(void** out, size_t bytes, int /*policy*/) {
    return allocate(out, bytes, 0, "aclrtMalloc");
}
NPU_CANN_API aclError aclrtMallocAlign32(void** out, size_t bytes, int /*policy*/) {
    return allocate(out, bytes, torch_padding(bytes), "aclrtMallocAlign32");
}
NPU_CANN_API aclError aclrtMallocCached(void** out, size_t bytes, int /*policy*/) {
    return allocate(out, bytes, 0, "aclrtMallocCached");
}

// Damage is reported and does not fail the call: what frees is a destructor more often than not.
NPU_CANN_API aclError aclrtFree(void* first) {
    std::string damage;
    if (!free_device(first, &damage))
        return failed(kInvalidParam, "aclrtFree: devPtr must be what aclrtMalloc gave and not be freed twice.");
    if (!damage.empty()) report_damage(damage, "when it was freed");
    return kSuccess;
}

NPU_CANN_API aclError aclrtMallocHost(void** out, size_t bytes) {
    if (!out || bytes == 0) return failed(kInvalidParam, "aclrtMallocHost: hostPtr must not be null, size not 0.");
    *out = std::aligned_alloc(64, (bytes + 63) / 64 * 64);
    return *out ? kSuccess : failed(kBadAlloc, "aclrtMallocHost: no memory left.");
}
NPU_CANN_API aclError aclrtFreeHost(void* pointer) {
    std::free(pointer);
    return kSuccess;
}

NPU_CANN_API aclError aclrtMemcpy(void* to, size_t to_bytes, const void* from, size_t bytes, int kind) {
    if (kind == kDeviceToHost) count_host_wait("aclrtMemcpy to the host");
    return copy("aclrtMemcpy", to, to_bytes, from, bytes);
}
NPU_CANN_API aclError aclrtMemcpyAsync(void* to, size_t to_bytes, const void* from, size_t bytes, int kind,
                                       void* /*stream*/) {
    if (kind == kDeviceToHost) count_host_wait("aclrtMemcpyAsync to the host");
    return copy("aclrtMemcpyAsync", to, to_bytes, from, bytes);
}
NPU_CANN_API aclError aclrtMemset(void* to, size_t to_bytes, int32_t value, size_t bytes) {
    return fill("aclrtMemset", to, to_bytes, value, bytes);
}
NPU_CANN_API aclError aclrtMemsetAsync(void* to, size_t to_bytes, int32_t value, size_t bytes, void* /*stream*/) {
    return fill("aclrtMemsetAsync", to, to_bytes, value, bytes);
}

NPU_CANN_API aclError aclrtGetMemInfo(int /*attribute*/, size_t* free_bytes, size_t* total) {
    if (!free_bytes || !total) return failed(kInvalidParam, "aclrtGetMemInfo: free and total must not be null.");
    *total = kDeviceBytes;
    *free_bytes = kDeviceBytes - device_bytes_in_use();
    return kSuccess;
}

// location {device id, 0 host | 1 device | 2 unregistered}, page size, reserved.
struct PointerAttributes {
    uint32_t id;
    int32_t kind;
    uint32_t page_bytes;
    uint32_t reserved[4];
};
NPU_CANN_API aclError aclrtPointerGetAttributes(const void* address, PointerAttributes* out) {
    if (!out) return failed(kInvalidParam, "aclrtPointerGetAttributes: attributes must not be null.");
    void* first = nullptr;
    uint64_t bytes = 0;
    *out = PointerAttributes{};
    out->kind = find_allocation(address, &first, &bytes) ? 1 : 2;
    return kSuccess;
}
