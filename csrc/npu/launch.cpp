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

// No operator takes the types from kChar on; error messages name them.
struct {
    at::ScalarType type;
    int32_t code;
} constexpr kTypes[] = {{at::kFloat, NPU_ROPE_FLOAT32},
                        {at::kHalf, NPU_ROPE_FLOAT16},
                        {at::kBFloat16, NPU_ROPE_BFLOAT16},
                        {at::kDouble, NPU_ROPE_FLOAT64},
                        {at::kInt, NPU_ROPE_INT32},
                        {at::kLong, NPU_ROPE_INT64},
                        {at::kChar, NPU_ROPE_INT8},
                        {at::kShort, NPU_ROPE_INT16},
                        {at::kByte, NPU_ROPE_UINT8},
                        {at::kBool, NPU_ROPE_BOOL},
                        {at::kComplexFloat, NPU_ROPE_COMPLEX64},
                        {at::kComplexDouble, NPU_ROPE_COMPLEX128}};

int32_t dtype_code(at::ScalarType type) {
    for (const auto& row : kTypes)
        if (row.type == type) return row.code;
    return -1;
}

// Whether the kernel can read the tensor's layout without a copy.
bool is_readable(const LaunchTensor& t) {
    if (t.form == LaunchTensor::kContiguous) return t.tensor->is_contiguous();
    const int64_t last = t.tensor->dim() - 1;
    return t.form != LaunchTensor::kUnitStride || t.tensor->is_same(*t.out) || last < 0 || t.tensor->size(last) <= 1 ||
           t.tensor->stride(last) == 1;
}

npu_rope_tensor view_as_is(const at::Tensor& t) {
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

// The view of the contiguous copy of t that copy_inputs() will make, at an address that no other tensor has.
npu_rope_tensor view_of_copy(const at::Tensor& t, size_t number) {
    // Addresses that no process has, so far apart that copies do not overlap.
    constexpr uintptr_t kFirstCopyAddress = uintptr_t(1) << 62, kCopyDistance = uintptr_t(1) << 58;
    npu_rope_tensor view = view_as_is(t);
    if (view.data != nullptr) view.data = reinterpret_cast<void*>(kFirstCopyAddress + number * kCopyDistance);
    int64_t stride = 1;
    for (int32_t k = std::min<int32_t>(view.ndim, NPU_ROPE_MAX_NDIM) - 1; k >= 0; --k) {
        view.stride[k] = stride;
        stride *= view.shape[k];
    }
    return view;
}

// Returns the numbers as int32. For contiguous int64 numbers, the result is a view of their low words.
at::Tensor int32_of(const at::Tensor& t) {
    if (t.scalar_type() == at::kInt) return t;
    if (!t.is_contiguous()) return t.to(at::kInt);
    return t.view(at::kInt).slice(t.dim() - 1, 0, std::nullopt, 2);
}

}  // namespace

void raise_on(const Check& c) {
    if (c.ok()) return;
    g_last_error = named_as_in_schema(c);
    TORCH_CHECK_TYPE(c.kind != Check::kType, g_last_error.message());
    TORCH_CHECK_VALUE(c.kind != Check::kValue, g_last_error.message());
    TORCH_CHECK(false, g_last_error.message());
}

namespace {

// Returns the number of cores of this kind on this device, from CANN's platform files, or 0 if CANN does not return it.
int32_t cores_of_device(aclDeviceInfo kind) {
    int32_t device = 0;
    int64_t cores = 0;
    if (aclrtGetDevice(&device) != ACL_SUCCESS) device = 0;
    if (aclGetDeviceCapability(uint32_t(device), kind, &cores) != ACL_SUCCESS) return 0;
    return int32_t(std::clamp<int64_t>(cores, 0, 1 << 16));
}

// Finds the chip of this process. If find_platform() does not know the chip, the number of cores comes from CANN.
Check find_this_platform(const char* op, Platform* found) {
    static const std::string name = [] {
        const char* soc = aclrtGetSocName();
        return std::string(soc ? soc : "");
    }();
    const Family* family = family_of(name.c_str());
    if (family == nullptr)
        return bad_value(op, "soc", "be an Ascend910B, Ascend910_93, Ascend950 or Ascend310P",
                         name.empty() ? "none" : name);
    if (const std::optional<Platform> known = find_platform(name.c_str())) {
        *found = *known;
        return {};
    }
    const bool on_ai_cores = family->arch == kArch310p;  // its AI cores execute vector instructions
    const int32_t cores = cores_of_device(on_ai_cores ? ACL_DEVICE_INFO_AI_CORE_NUM : ACL_DEVICE_INFO_VECTOR_CORE_NUM);
    if (cores < 1)
        return bad_value(op, "soc", "be a chip whose number of cores CANN reports",
                         formatted("%s, for which CANN reports none", name.c_str()));
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

LaunchTensors::LaunchTensors(const char* op, std::vector<LaunchTensor> tensors)
    : guard_(tensors[0].tensor->device()), tensors_(std::move(tensors)) {
    const at::Device device = tensors_[0].tensor->device();
    for (size_t i = 0; i < tensors_.size(); ++i) {
        const LaunchTensor& t = tensors_[i];
        if (t.tensor && t.tensor->device() != device)
            raise_on(bad_value(op, t.name, formatted("be on %s's device %s", tensors_[0].name, device.str().c_str()),
                               t.tensor->device().str()));
        launched_.push_back(t.tensor ? OptionalTensor(*t.tensor) : std::nullopt);
        views_.push_back(!t.tensor        ? npu_rope_tensor{}
                         : is_readable(t) ? view_as_is(*t.tensor)
                                          : view_of_copy(*t.tensor, i));
    }
}

void LaunchTensors::copy_inputs() {
    for (size_t i = 0; i < tensors_.size(); ++i) {
        const LaunchTensor& t = tensors_[i];
        if (!t.tensor) continue;
        if (!is_readable(t)) launched_[i] = t.tensor->contiguous();
        if (t.form == LaunchTensor::kInt64) launched_[i] = t.tensor->to(at::kLong);
        if (t.form == LaunchTensor::kInt32) launched_[i] = int32_of(*t.tensor);
    }
}

at::IntArrayRef LaunchTensors::strides() {
    bool contiguous = true;
    for (size_t i = 0; i < tensors_.size(); ++i) {
        if (!launched_[i].has_value() || tensors_[i].form == LaunchTensor::kContiguous) continue;
        strides_.insert(strides_.end(), launched_[i]->strides().begin(), launched_[i]->strides().end());
        contiguous = contiguous && launched_[i]->is_contiguous();
    }
    // aclnn rejects an empty list (561103): one 0 means that all tensors are contiguous, see op_host/cann.h.
    if (contiguous) strides_ = {0};
    return strides_;
}

}  // namespace npu_rope

// The last error that this library raised in this thread, in parts, for npu_rope/native.py.
extern "C" NPU_ROPE_API npu_rope_error npu_rope_torch_npu_last_error_parts(void) {
    return npu_rope::parts_of(npu_rope::g_last_error);
}
