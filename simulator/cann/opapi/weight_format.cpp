// TransMatmulWeight converts a weight to the format FRACTAL_NZ in its own memory, and CalculateMatmulWeightSize returns
// the number of elements that the weight then has. Sources: hicann/ops-math
// conversion/trans_data/docs/aclnnTransMatmulWeight.md, aclnnCalculateMatmulWeightSizeV2.md and
// op_api/aclnn_trans_matmul_weight.cpp.
#include <algorithm>
#include <cstring>

#include "cann/opapi/first_phase.h"

namespace simulated_cann {
namespace {

constexpr uint32_t kWeightTypes = type_set({kFloat16, kInt8});

int64_t padded_elements(const std::vector<int64_t>& shape, int32_t dtype) {
    return nz_bytes(shape, dtype_bytes(dtype)) / dtype_bytes(dtype);
}

aclError calculate_size(const char* name, const aclIntArray* shape, int32_t dtype, size_t most_dims, uint64_t* size) {
    if (!shape) return refuse(name, std::string("tensorShape") + kMustNotBeNull);
    if (!size) return refuse(name, std::string("weightTensorSize") + kMustNotBeNull);
    const std::vector<int64_t>& sizes = shape->values;
    if (sizes.size() < 2 || sizes.size() > most_dims)
        return refuse(name, "tensorShape must have 2 to " + std::to_string(most_dims) + " elements but got " +
                                std::to_string(sizes.size()) + ".");
    if (std::any_of(sizes.begin(), sizes.end(), [](int64_t dim) { return dim <= 0; }))
        return refuse(name, "tensorShape must contain positive sizes but got " + shape_text(sizes) + ".");
    const std::string error = type_error("dataType", with_bf16_except_310p(kWeightTypes), dtype);
    if (!error.empty()) return refuse(name, error);
    *size = static_cast<uint64_t>(padded_elements(sizes, dtype));
    return kSuccess;
}

// Returns the packed elements of an operand, of 1 or 2 bytes each.
std::vector<char> packed_elements(const Operand& operand) {
    const auto item_bytes = static_cast<size_t>(dtype_bytes(operand.dtype));
    std::vector<char> packed(static_cast<size_t>(operand.count()) * item_bytes);
    char* next = packed.data();
    for_each_run({&operand}, [&](int64_t count, char* const* addresses) {
        for (int64_t i = 0; i < count; ++i, next += item_bytes)
            std::memcpy(next, addresses[0] + i * operand.run_stride() * static_cast<int64_t>(item_bytes), item_bytes);
    });
    return packed;
}

aclError prepare_trans_weight(aclTensor* tensor, uint64_t* bytes, aclOpExecutor** executor) {
    FirstPhase call("aclnnTransMatmulWeight");
    const Operand weight = call.in_place("mmWeightRef", tensor, with_bf16_except_310p(kWeightTypes));
    if (call.is_valid()) {
        call.require(tensor->format == 2, "mmWeightRef", "be in the format ND", tensor->format);
        const size_t most_dims = is_ascend310p() && weight.dtype != kInt8 ? 2 : 6;
        call.require(weight.shape.size() >= 2 && weight.shape.size() <= most_dims, "mmWeightRef",
                     "have 2 to " + std::to_string(most_dims) + " dimensions",
                     static_cast<int64_t>(weight.shape.size()));
        call.require(weight.count() != 0, "mmWeightRef", "have elements", shape_text(weight.shape));
    }
    if (!call.is_valid()) return call.finish(nullptr, bytes, executor);
    const int64_t size = nz_bytes(weight.shape, dtype_bytes(weight.dtype));
    const std::string error = allocation_error(weight.first, size, "mmWeightRef");
    if (!error.empty()) return refuse("aclnnTransMatmulWeight", error);
    call.writes("mmWeightRef", weight.first, size);
    call.ask_workspace(size);
    const aclError status = call.finish(
        [weight] {
            const std::vector<char> nz = to_nz(packed_elements(weight), weight.shape, dtype_bytes(weight.dtype));
            std::memcpy(weight.first, nz.data(), nz.size());
        },
        bytes, executor);
    // Later calls with the same aclTensor find the weight in the new format. The view's shape and strides stay.
    if (status == kSuccess) tensor->format = kFormatNz;
    return status;
}

}  // namespace
}  // namespace simulated_cann

NPU_CANN_API aclError aclnnTransMatmulWeightGetWorkspaceSize(aclTensor* mmWeightRef, uint64_t* bytes,
                                                             aclOpExecutor** executor) {
    return simulated_cann::prepare_trans_weight(mmWeightRef, bytes, executor);
}
NPU_CANN_SECOND_PHASE(aclnnTransMatmulWeight)

NPU_CANN_API aclError aclnnCalculateMatmulWeightSize(const aclIntArray* tensorShape, uint64_t* weightTensorSize) {
    return simulated_cann::calculate_size("aclnnCalculateMatmulWeightSize", tensorShape, simulated_cann::kFloat16,
                                          simulated_cann::is_ascend310p() ? 2 : 6, weightTensorSize);
}

NPU_CANN_API aclError aclnnCalculateMatmulWeightSizeV2(const aclIntArray* tensorShape, int32_t dataType,
                                                       uint64_t* weightTensorSize) {
    return simulated_cann::calculate_size("aclnnCalculateMatmulWeightSizeV2", tensorShape, dataType, 6,
                                          weightTensorSize);
}
