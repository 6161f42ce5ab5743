#include "csrc/npu/launch.h"

#include <algorithm>
#include <mutex>
#include <optional>
#include <string>

#include "acl/acl_base.h"
#include "acl/acl_rt.h"

namespace npu_rope {
namespace {

thread_local Check g_last_error;

int32_t dtype_code(at::ScalarType type) {
    switch (type) {
        case at::kFloat:
            return NPU_ROPE_FLOAT32;
        case at::kHalf:
            return NPU_ROPE_FLOAT16;
        case at::kBFloat16:
            return NPU_ROPE_BFLOAT16;
        case at::kDouble:
            return NPU_ROPE_FLOAT64;
        case at::kInt:
            return NPU_ROPE_INT32;
        case at::kLong:
            return NPU_ROPE_INT64;
        case at::kChar:  // no operator takes this type or those below; they are known for error messages
            return NPU_ROPE_INT8;
        case at::kShort:
            return NPU_ROPE_INT16;
        case at::kByte:
            return NPU_ROPE_UINT8;
        case at::kBool:
            return NPU_ROPE_BOOL;
        case at::kComplexFloat:
            return NPU_ROPE_COMPLEX64;
        case at::kComplexDouble:
            return NPU_ROPE_COMPLEX128;
        default:
            return -1;
    }
}

bool is_readable(const at::Tensor& x) {
    const int64_t last = x.dim() - 1;
    return last < 0 || x.size(last) <= 1 || x.stride(last) == 1;
}

npu_rope_tensor view_of_own(const at::Tensor& t) {
    npu_rope_tensor view = {};
    view.data = t.numel() == 0 ? nullptr : const_cast<void*>(t.const_data_ptr());
    view.dtype = dtype_code(t.scalar_type());
    view.ndim = static_cast<int32_t>(t.dim());
    for (int64_t k = 0; k < t.dim() && k < NPU_ROPE_MAX_NDIM; ++k) {
        view.shape[k] = t.size(k);
        view.stride[k] = t.stride(k);
    }
    return view;
}

// The view of a later copy of t, which the kernel reads: contiguous, in memory that holds nothing else.
npu_rope_tensor view_of_copy(const at::Tensor& t, size_t number) {
    constexpr uintptr_t kElsewhere = uintptr_t(1) << 62, kApart = uintptr_t(1) << 58;  // no address of a process
    npu_rope_tensor view = view_of_own(t);
    if (view.data != nullptr) view.data = reinterpret_cast<void*>(kElsewhere + number * kApart);
    int64_t stride = 1;
    for (int32_t k = std::min<int32_t>(view.ndim, NPU_ROPE_MAX_NDIM) - 1; k >= 0; --k) {
        view.stride[k] = stride;
        stride *= view.shape[k];
    }
    return view;
}

bool all_contiguous(const std::vector<LaunchTensor>& tensors) {
    return std::all_of(tensors.begin(), tensors.end(), [](const LaunchTensor& n) { return n.tensor->is_contiguous(); });
}

}  // namespace

// Raises the exceptions that Python's checks raise.
void raise_on(const Check& c) {
    if (!c.ok()) g_last_error = c;
    TORCH_CHECK_TYPE(c.kind != Check::kType, c.message());
    TORCH_CHECK_VALUE(c.kind != Check::kValue, c.message());
    TORCH_CHECK(c.ok(), c.message());
}

namespace {

// A number of this device from CANN's platform files; 0 if CANN does not return it.
int32_t cores_of_device(aclDeviceInfo kind) {
    int32_t device = 0;
    int64_t cores = 0;
    if (aclrtGetDevice(&device) != ACL_SUCCESS) device = 0;
    if (aclGetDeviceCapability(uint32_t(device), kind, &cores) != ACL_SUCCESS) return 0;
    return int32_t(std::clamp<int64_t>(cores, 0, 1 << 16));
}

// Finds the chip of this process. CANN returns the number of cores of a chip that is not in the table.
Check find_this_platform(const char* op, Platform* found) {
    static const std::string name = [] {
        const char* soc = aclrtGetSocName();
        return std::string(soc ? soc : "");
    }();
    const Family* family = family_of(name.c_str());
    if (family == nullptr || family->arch == kArch950)
        return bad_value(op, "soc", "be an Ascend910B, Ascend910_93 or Ascend310P", name.empty() ? "none" : name);
    if (const std::optional<Platform> known = find_platform(name.c_str())) {
        *found = *known;
        return {};
    }
    const bool on_ai_cores = family->arch == kArch310p;  // which execute vector instructions there
    const int32_t cores = cores_of_device(on_ai_cores ? ACL_DEVICE_INFO_AI_CORE_NUM : ACL_DEVICE_INFO_VECTOR_CORE_NUM);
    if (cores < 1)
        return bad_value(op, "soc", "be a chip whose cores CANN knows",
                         formatted("%s, for which it has none", name.c_str()));
    *found = {name.c_str(), family->arch, cores, family->ub_bytes};
    return {};
}

}  // namespace

const Platform& platform(const char* op) {
    static std::mutex mutex;
    static std::optional<Platform> known;  // kept only on success, because an error names the called operator
    const std::lock_guard<std::mutex> lock(mutex);
    if (!known.has_value()) {
        Platform found = {};
        raise_on(find_this_platform(op, &found));
        known = found;
    }
    return *known;
}

at::Tensor readable(const at::Tensor& x, const at::Tensor& out) {
    return x.is_same(out) || is_readable(x) ? x : x.contiguous();
}

OptionalTensor contiguous(const OptionalTensor& factors) {
    return factors.has_value() ? OptionalTensor(factors->contiguous()) : factors;
}

npu_rope_tensor view_for_launch(const at::Tensor& t, bool copied, size_t number) {
    return copied ? view_of_copy(t, number) : view_of_own(t);
}

bool will_be_copied(const at::Tensor& x, const at::Tensor& out) { return !is_readable(x) && !x.is_same(out); }

void check_devices(const char* op, const std::vector<LaunchTensor>& tensors) {
    const LaunchTensor& first = tensors[0];
    const at::Device device = first.tensor->device();
    for (const LaunchTensor& n : tensors)
        if (n.tensor->device() != device)
            raise_on(bad_value(op, n.name, formatted("be on %s's device %s", first.name, device.str().c_str()),
                               n.tensor->device().str()));
}

std::vector<int64_t> strides_of(const std::vector<LaunchTensor>& tensors) {
    // aclnn rejects an empty list (561103): one 0 means that all tensors are contiguous, see op_host/cann.h.
    if (all_contiguous(tensors)) return {0};
    std::vector<int64_t> all;
    for (const LaunchTensor& n : tensors) all.insert(all.end(), n.tensor->strides().begin(), n.tensor->strides().end());
    return all;
}

}  // namespace npu_rope

// The last error that this thread raised here, in parts: npu_rope/ops/registrar.py.
extern "C" NPU_ROPE_API npu_rope_error npu_rope_torch_npu_last_error_parts(void) {
    return npu_rope::parts_of(npu_rope::g_last_error);
}
