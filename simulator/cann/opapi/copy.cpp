// aclnnInplaceCopy broadcasts and converts src. aclnnCast converts without broadcasting. aclnnComplex copies real and
// imag to the two parts of out.
#include <cstring>

#include "cann/opapi/argument_types.h"
#include "cann/opapi/views.h"

namespace simulated_cann {
namespace {

// hicann/ops-math math/cast/docs/aclnnCast.md and conversion/view_copy/docs/aclnnInplaceCopy.md. The sources accept
// these calls.
BeyondDocument beyond_document(const char* name, const Operand& out, const Operand& source) {
    BeyondDocument beyond;
    if (std::strcmp(name, "aclnnCast") == 0) {
        beyond.add((source.dtype == kBool || is_complex(source.dtype)) && !is_contiguous(source.shape, source.strides),
                   std::string("its document requires a contiguous self of ") + dtype_name(source.dtype));
        return beyond;
    }
    beyond.add(out.shape.empty() || source.shape.empty(), "its document requires 1 to 8 dimensions");
    beyond.add(is_complex(out.dtype) && is_complex(source.dtype) && !is_contiguous(out.shape, out.strides),
               "its document requires a contiguous selfRef for complex numbers");
    beyond.add(!can_cast(source.dtype, out.dtype), std::string("its document does not convert ") +
                                                       dtype_name(source.dtype) + " to " + dtype_name(out.dtype));
    return beyond;
}

aclError prepare_copy(const char* name, const char* from_name, const aclTensor* to, const aclTensor* from,
                      uint64_t* workspace_bytes, aclOpExecutor** executor) {
    Operand out, source;
    std::string error = read_argument(name, Role::kOutput, to, "out", &out);
    if (error.empty()) error = read_argument(name, Role::kInput, from, from_name, &source);
    if (error.empty()) error = argument_error(name, Role::kInput, from_name, source);
    if (error.empty()) error = argument_error(name, Role::kOutput, "out", out);
    // hicann/ops-math math/cast/op_api/aclnn_cast.cpp and conversion/view_copy/op_api/aclnn_copy.cpp, CheckShape.
    if (error.empty())
        error = std::strcmp(name, "aclnnCast") == 0 ? result_shape_error(source, from_name, source, from_name, out)
                                                    : broadcast_error(source, out, from_name);
    if (!error.empty()) return refuse(name, error);
    const aclError status = finish_first_phase(
        name, {read_access(from_name, source), write_access("out", out)}, [out, source] { copy_elements(out, source); },
        workspace_bytes, executor, 0, MayOverlap::kYes);
    if (status == kSuccess) beyond_document(name, out, source).report(name);
    return status;
}

}  // namespace
}  // namespace simulated_cann

NPU_CANN_API aclError aclnnInplaceCopyGetWorkspaceSize(aclTensor* self, const aclTensor* src, uint64_t* workspace_bytes,
                                                       aclOpExecutor** executor) {
    return simulated_cann::prepare_copy("aclnnInplaceCopy", "src", self, src, workspace_bytes, executor);
}
NPU_CANN_SECOND_PHASE(aclnnInplaceCopy)

NPU_CANN_API aclError aclnnCastGetWorkspaceSize(const aclTensor* self, int32_t dtype, aclTensor* out,
                                                uint64_t* workspace_bytes, aclOpExecutor** executor) {
    if (out && out->dtype != dtype)
        return simulated_cann::refuse("aclnnCast", "out must have the data type of the argument dtype.");
    return simulated_cann::prepare_copy("aclnnCast", "self", out, self, workspace_bytes, executor);
}
NPU_CANN_SECOND_PHASE(aclnnCast)

// The real and the imaginary parts of out are views with doubled strides.
NPU_CANN_API aclError aclnnComplexGetWorkspaceSize(const aclTensor* real, const aclTensor* imag, aclTensor* out,
                                                   uint64_t* workspace_bytes, aclOpExecutor** executor) {
    using namespace simulated_cann;
    Operand result, real_operand, imag_operand;
    std::string error = read_argument("aclnnComplex", Role::kOutput, out, "out", &result);
    if (error.empty()) error = read_argument("aclnnComplex", Role::kInput, real, "real", &real_operand);
    if (error.empty()) error = read_argument("aclnnComplex", Role::kInput, imag, "imag", &imag_operand);
    if (error.empty()) error = argument_error("aclnnComplex", Role::kInput, "real", real_operand);
    if (error.empty()) error = argument_error("aclnnComplex", Role::kInput, "imag", imag_operand);
    if (error.empty()) error = argument_error("aclnnComplex", Role::kOutput, "out", result);
    const int32_t part_dtype = result.dtype == kComplex64 ? kFloat : kDouble;
    // hicann/ops-math math/complex/op_api/aclnn_complex.cpp, CheckDtypeValid.
    if (error.empty() && (real_operand.dtype != part_dtype || imag_operand.dtype != part_dtype))
        error = std::string("real and imag must be ") + dtype_name(part_dtype) + ", as the parts of out, but got " +
                dtype_name(real_operand.dtype) + " and " + dtype_name(imag_operand.dtype) + ".";
    // CheckFormat of the same file.
    if (error.empty() && (real->format != out->format || imag->format != out->format))
        error = "real, imag and out must have one format but got " + std::to_string(real->format) + ", " +
                std::to_string(imag->format) + " and " + std::to_string(out->format) + ".";
    if (error.empty()) error = result_shape_error(real_operand, "real", imag_operand, "imag", result);
    if (!error.empty()) return refuse("aclnnComplex", error);
    Operand real_part = result;
    real_part.dtype = part_dtype;
    for (int64_t& stride : real_part.strides) stride *= 2;
    Operand imag_part = real_part;
    imag_part.first += dtype_bytes(part_dtype);
    auto body = [real_part, imag_part, real_operand, imag_operand] {
        copy_elements(real_part, real_operand);
        copy_elements(imag_part, imag_operand);
    };
    std::vector<MemoryAccess> accesses{read_access("real", real_operand), read_access("imag", imag_operand),
                                       write_access("out", real_part), write_access("out", imag_part)};
    return finish_first_phase("aclnnComplex", std::move(accesses), body, workspace_bytes, executor);
}
NPU_CANN_SECOND_PHASE(aclnnComplex)
