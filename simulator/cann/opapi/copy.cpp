// aclnnInplaceCopy broadcasts and converts src. aclnnCast converts without broadcasting. aclnnComplex copies real and
// imag to the two parts of out.
#include <cstring>

#include "cann/opapi/argument_types.h"

namespace simulated_cann {
namespace {

// Sets the first byte of a view and the byte after its last one.
void extent(const Operand& a, const char** begin, const char** end) {
    const int64_t bytes = dtype_bytes(a.dtype);
    *begin = a.first;
    *end = a.first + bytes;
    for (size_t i = 0; i < a.shape.size(); ++i) {
        int64_t reach = (a.shape[i] - 1) * a.strides[i] * bytes;
        (reach < 0 ? *begin : *end) += reach;
    }
}

// Converts elements through the type C.
template <class C>
void convert(const Operand& out, const Operand& from) {
    C run[kRun];
    for_each_run({&out, &from}, [&](int64_t count, char* const* at) {
        load(from.dtype, at[1], from.step(), count, run);
        store(out.dtype, at[0], out.step(), count, run);
    });
}

// Copies bytes unchanged, so the payload of NaNs is kept.
void move(const Operand& out, const Operand& from) {
    const int64_t bytes = dtype_bytes(out.dtype);
    const int64_t to_step = bytes * out.step(), from_step = bytes * from.step();
    for_each_run({&out, &from}, [&](int64_t count, char* const* at) {
        if (to_step == bytes && from_step == bytes) {
            std::memcpy(at[0], at[1], size_t(count * bytes));
            return;
        }
        for (int64_t i = 0; i < count; ++i) std::memcpy(at[0] + i * to_step, at[1] + i * from_step, size_t(bytes));
    });
}

void copy(const Operand& out, const Operand& source) {
    if (out.count() == 0) return;
    Operand from = source.broadcast_to(out.shape);
    // If source and target overlap, the source must be read before the target is written.
    const char *a, *a_end, *b, *b_end;
    extent(out, &a, &a_end);
    extent(source, &b, &b_end);
    std::vector<char> source_copy;
    if (a < b_end && b < a_end) {
        source_copy.assign(b, b_end);
        from.first = source_copy.data() + (source.first - b);
    }
    if (out.dtype == source.dtype)
        move(out, from);
    else if (is_complex(out.dtype) || is_complex(source.dtype))
        convert<std::complex<double>>(out, from);
    else if (out.dtype == kDouble || source.dtype == kDouble)
        convert<double>(out, from);
    else if (is_floating(source.dtype))
        convert<float>(out, from);
    else
        convert<int64_t>(out, from);
}

aclError prepare_copy(const char* name, const char* from_name, const aclTensor* to, const aclTensor* from,
                      uint64_t* workspace_bytes, aclOpExecutor** executor) {
    Operand out, source;
    std::string error = read_argument(to, "out", &out);
    if (error.empty()) error = read_argument(from, from_name, &source);
    if (error.empty()) error = argument_rule(name, Role::kInput, from_name, source);
    if (error.empty()) error = argument_rule(name, Role::kOutput, "out", out);
    // hicann/ops-math math/cast/op_api/aclnn_cast.cpp and conversion/view_copy/op_api/aclnn_copy.cpp, CheckShape.
    if (error.empty())
        error = std::strcmp(name, "aclnnCast") == 0 ? result_shape_rule(source, from_name, source, from_name, out)
                                                    : broadcast_rule(source, out, from_name);
    if (!error.empty()) return refused(name, error);
    return prepared(
        name, {reads(from_name, source), writes("out", out)}, [out, source] { copy(out, source); }, workspace_bytes,
        executor);
}

}  // namespace
}  // namespace simulated_cann

NPU_CANN_API aclError aclnnInplaceCopyGetWorkspaceSize(aclTensor* self, const aclTensor* src, uint64_t* workspace_bytes,
                                                       aclOpExecutor** executor) {
    return simulated_cann::prepare_copy("aclnnInplaceCopy", "src", self, src, workspace_bytes, executor);
}
NPU_CANN_PHASE_TWO(aclnnInplaceCopy)

NPU_CANN_API aclError aclnnCastGetWorkspaceSize(const aclTensor* self, int32_t dtype, aclTensor* out,
                                                uint64_t* workspace_bytes, aclOpExecutor** executor) {
    if (out && out->dtype != dtype)
        return simulated_cann::refused("aclnnCast", "out must have the data type of the argument dtype.");
    return simulated_cann::prepare_copy("aclnnCast", "self", out, self, workspace_bytes, executor);
}
NPU_CANN_PHASE_TWO(aclnnCast)

// The real and the imaginary parts of out are views with doubled strides.
NPU_CANN_API aclError aclnnComplexGetWorkspaceSize(const aclTensor* real, const aclTensor* imag, aclTensor* out,
                                                   uint64_t* workspace_bytes, aclOpExecutor** executor) {
    using namespace simulated_cann;
    Operand result, re, im;
    std::string error = read_argument(out, "out", &result);
    if (error.empty()) error = read_argument(real, "real", &re);
    if (error.empty()) error = read_argument(imag, "imag", &im);
    if (error.empty()) error = argument_rule("aclnnComplex", Role::kInput, "real", re);
    if (error.empty()) error = argument_rule("aclnnComplex", Role::kInput, "imag", im);
    if (error.empty()) error = argument_rule("aclnnComplex", Role::kOutput, "out", result);
    const int32_t part = result.dtype == kComplex64 ? kFloat : kDouble;
    // hicann/ops-math math/complex/op_api/aclnn_complex.cpp, CheckDtypeValid.
    if (error.empty() && (re.dtype != part || im.dtype != part))
        error = std::string("real and imag must be ") + dtype_name(part) + ", as the parts of out, but got " +
                dtype_name(re.dtype) + " and " + dtype_name(im.dtype) + ".";
    if (error.empty()) error = result_shape_rule(re, "real", im, "imag", result);
    if (!error.empty()) return refused("aclnnComplex", error);
    Operand real_part = result;
    real_part.dtype = part;
    for (int64_t& stride : real_part.strides) stride *= 2;
    Operand imag_part = real_part;
    imag_part.first += dtype_bytes(part);
    auto body = [real_part, imag_part, re, im] {
        copy(real_part, re);
        copy(imag_part, im);
    };
    std::vector<MemoryAccess> accesses{reads("real", re), reads("imag", im), writes("out", real_part),
                                       writes("out", imag_part)};
    return prepared("aclnnComplex", std::move(accesses), body, workspace_bytes, executor);
}
NPU_CANN_PHASE_TWO(aclnnComplex)
