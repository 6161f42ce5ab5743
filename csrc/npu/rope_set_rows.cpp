// rope_set_rows for NPU tensors, through torch_npu and aclnn. The schemas and fakes are in
// npu_rope/ops/rope_set_rows.py; the functions here call the kernel.
#include "csrc/npu/rope_call.h"

namespace {

using namespace npu_rope;

void launch(const at::Tensor& given, const at::Tensor& positions, const at::Tensor& rows, const at::Tensor& cache,
            const OptionalTensor& given_factors, const Attributes& a) {
    const c10::OptionalDeviceGuard guard(given.device());
    if (!RopeLaunchCheck::rope_set_rows(given, positions, rows, given_factors, cache).accepts(a)) return;
    const at::Tensor x = readable(given, cache);
    const OptionalTensor factors = contiguous(given_factors);
    // The operator package supports int64 rows only, which halves its number of kernels.
    const at::Tensor wide_rows = rows.to(at::kLong);
    const std::vector<int64_t> all_strides =
        RopeLaunchCheck::rope_set_rows(x, positions, wide_rows, factors, cache).strides();
    at::IntArrayRef sections(a.sections), strides(all_strides);
    NPU_ROPE_LAUNCH(aclnnNpuRopeSetRows, x, positions, wide_rows, factors, cache,
                    NPU_ROPE_ACLNN_ATTRIBUTES(a, sections, strides));
}

void rope_set_rows(const at::Tensor& x, const at::Tensor& positions, const at::Tensor& rows, const at::Tensor& cache,
                   const OptionalTensor& freq_factors, NPU_ROPE_ATTRIBUTE_PARAMETERS) {
    launch(x, positions, rows, cache, freq_factors, NPU_ROPE_ATTRIBUTES);
}

}  // namespace

TORCH_LIBRARY_IMPL(npu_rope, PrivateUse1, m) { m.impl("rope_set_rows", &rope_set_rows); }
