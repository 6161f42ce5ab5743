// aclnnArange: element i of out, which has any shape, is start + i * step. Arguments and types: hicann/ops-math
// math/range/docs/aclnnArange.md and op_api/aclnn_arange.cpp.
// Integers are computed in int64. Other types are computed in float64 and rounded once.
#include <cmath>
#include <cstdio>
#include <string>

#include "cann/opapi/argument_types.h"

namespace simulated_cann {
namespace {

template <class Compute>
void write_range(const Operand& out, Compute start, Compute step) {
    Compute run[kMaxRunElements];
    int64_t done = 0;
    for_each_run({&out}, [&](int64_t count, char* const* addresses) {
        for (int64_t i = 0; i < count; ++i)
            run[i] = Compute(to_wrapping(start) + to_wrapping(static_cast<Compute>(done + i)) * to_wrapping(step));
        store(out.dtype, addresses[0], out.run_stride(), count, run);
        done += count;
    });
}

// Converts a scalar as CheckStepCorrect in the source does: to float for 16-bit and float32 outputs, to int64_t for
// integers.
double as_checked(const aclScalar& scalar, int32_t out) {
    if (!is_floating(out)) return static_cast<double>(scalar_as<int64_t>(scalar));
    return out == kDouble ? scalar_as<double>(scalar) : static_cast<double>(scalar_as<float>(scalar));
}

// Returns "" or the reason why these bounds have no direction after their conversion to the type of the check.
std::string direction_error(double start, double end, double step, int32_t out) {
    if (step == 0 || std::isnan(step))
        return is_floating(out) ? "step must not be 0." : "step must not be 0 after its conversion to int64.";
    return (step > 0 && start > end) || (step < 0 && start < end) ? "end must lie in step's direction from start." : "";
}

// Returns "" or the reason why these bounds do not describe `count` numbers.
std::string count_error(double start, double end, double step, int64_t count) {
    const double expected = std::ceil((end - start) / step);
    if (expected == static_cast<double>(count)) return "";
    char text[320];  // up to 309 digits, "inf" or "nan"
    std::snprintf(text, sizeof text, "%.0f", expected);
    return std::string("out must have ") + text + " elements but got " + std::to_string(count) + ".";
}

}  // namespace
}  // namespace simulated_cann

NPU_CANN_API aclError aclnnArangeGetWorkspaceSize(const aclScalar* start, const aclScalar* end, const aclScalar* step,
                                                  aclTensor* tensor, uint64_t* bytes, aclOpExecutor** executor) {
    using namespace simulated_cann;
    Operand out;
    std::string error = read_argument("aclnnArange", Role::kOutput, tensor, "out", &out);
    const struct {
        const aclScalar* scalar;
        const char* name;
    } bounds[] = {{start, "start"}, {end, "end"}, {step, "step"}};
    for (const auto& bound : bounds)
        if (error.empty()) error = read_argument("aclnnArange", bound.scalar, bound.name);
    for (const auto& bound : bounds)
        if (error.empty()) error = argument_error("aclnnArange", bound.name, *bound.scalar);
    if (error.empty()) error = argument_error("aclnnArange", Role::kOutput, "out", out);
    if (!error.empty()) return refuse("aclnnArange", error);
    const auto real_start = scalar_as<double>(*start), real_step = scalar_as<double>(*step);
    error = direction_error(as_checked(*start, out.dtype), as_checked(*end, out.dtype), as_checked(*step, out.dtype),
                            out.dtype);
    if (error.empty()) error = count_error(real_start, scalar_as<double>(*end), real_step, out.count());
    if (!error.empty()) return refuse("aclnnArange", error);
    const auto int_start = scalar_as<int64_t>(*start), int_step = scalar_as<int64_t>(*step);
    auto body = [out, real_start, real_step, int_start, int_step] {
        if (is_floating(out.dtype))
            write_range(out, real_start, real_step);
        else
            write_range(out, int_start, int_step);
    };
    const aclError status = finish_first_phase("aclnnArange", {write_access("out", out)}, body, bytes, executor);
    BeyondDocument beyond;
    beyond.add(out.shape.size() != 1, "its document describes an out of one dimension");
    if (status == kSuccess) beyond.report("aclnnArange");
    return status;
}
NPU_CANN_SECOND_PHASE(aclnnArange)
