// aclnnTriangularSolve solves A X = b for X, where A is a triangular matrix, by substitution in the type of the
// operands.
#include "cann/opapi/first_phase.h"
#include "cann/opapi/views.h"

namespace simulated_cann {
namespace {

struct Solve {
    bool upper = true, transpose = false, unit = false;
};

// Element (i, j) of a packed matrix of n rows, or of its transpose.
template <class Compute>
Compute element(const Compute* a, int64_t n, bool transpose, int64_t i, int64_t j) {
    return transpose ? a[j * n + i] : a[i * n + j];
}

// Replaces b, of n rows and `columns` columns, by X.
template <class Compute>
void solve_matrix(const Solve& options, const Compute* a, int64_t n, int64_t columns, Compute* b) {
    const bool backwards = options.upper != options.transpose;
    for (int64_t step = 0; step < n; ++step) {
        const int64_t i = backwards ? n - 1 - step : step;
        for (int64_t done = 0; done < step; ++done) {
            const int64_t j = backwards ? n - 1 - done : done;
            const Compute factor = element(a, n, options.transpose, i, j);
            for (int64_t column = 0; column < columns; ++column)
                b[i * columns + column] -= factor * b[j * columns + column];
        }
        if (options.unit) continue;
        const Compute diagonal = element(a, n, options.transpose, i, i);
        for (int64_t column = 0; column < columns; ++column) b[i * columns + column] /= diagonal;
    }
}

template <class Compute>
void solve(const Solve& options, const Operand& a, const Operand& b, const Operand& x, const Operand& m) {
    const int64_t n = m.shape.back(), columns = x.shape.back();
    std::vector<Compute> triangles = values_of<Compute>(a), result = values_of<Compute>(b);
    for (size_t i = 0; i < triangles.size(); ++i) {
        const auto column = static_cast<int64_t>(i) % n, row = static_cast<int64_t>(i) / n % n;
        if (options.upper ? column < row : column > row) triangles[i] = 0;
    }
    for (int64_t matrix = 0; n && matrix < m.count() / (n * n); ++matrix)
        solve_matrix(options, triangles.data() + matrix * n * n, n, columns, result.data() + matrix * n * columns);
    set_values(m, triangles);
    set_values(x, result);
}

// hicann/ops-math math/triangular_solve/docs/aclnnTriangularSolve.md and op_host/op_api/triangular_solve.cpp. The
// document does not list Ascend310P; the source runs the operator MatrixTriangularSolve on the AI CPU of every chip.
aclError prepare_triangular_solve(const Solve& options, const aclTensor* self_tensor, const aclTensor* a_tensor,
                                  const aclTensor* x_tensor, const aclTensor* m_tensor, uint64_t* bytes,
                                  aclOpExecutor** executor) {
    FirstPhase call("aclnnTriangularSolve");
    const uint32_t all = options.unit ? type_set({kFloat}) : type_set({kFloat, kDouble, kComplex64, kComplex128});
    const TypesByChip types = undocumented_on_310p(all, all);
    const RankRange ranks{2, 8};
    const Operand self = call.input("self", self_tensor, types, ranks);
    const Operand a = call.input("A", a_tensor, types, ranks);
    const Operand x = call.output("xOut", x_tensor, types, ranks);
    const Operand m = call.output("mOut", m_tensor, types, ranks);
    call.require_dtype("A", a, self.dtype);
    call.require_dtype("xOut", x, self.dtype);
    call.require_dtype("mOut", m, self.dtype);
    if (!call.is_valid()) return call.finish(nullptr, bytes, executor);
    const int64_t n = a.shape.back(), columns = self.shape.back();
    call.require(a.shape[a.shape.size() - 2] == n, "A", "be square", shape_text(a.shape));
    call.require(self.shape[self.shape.size() - 2] == n, "self", "have " + std::to_string(n) + " rows",
                 shape_text(self.shape));
    Operand batch_a = a, batch_self = self, batch_x = x;
    for (Operand* operand : {&batch_a, &batch_self, &batch_x}) operand->shape.resize(operand->shape.size() - 2);
    const std::string error = result_shape_error(batch_self, "self", batch_a, "A", batch_x);
    call.require(error.empty(), "xOut", "have the batch to which self and A broadcast", shape_text(x.shape));
    std::vector<int64_t> x_shape = batch_x.shape, m_shape = batch_x.shape;
    x_shape.insert(x_shape.end(), {n, columns});
    m_shape.insert(m_shape.end(), {n, n});
    call.require_shape("xOut", x, x_shape);
    call.require_shape("mOut", m, m_shape);
    if (!call.is_valid()) return call.finish(nullptr, bytes, executor);
    const Operand all_a = a.broadcast_to(m_shape), all_b = self.broadcast_to(x_shape);
    auto body = [options, all_a, all_b, x, m] {
        call_with_compute_type(m.dtype, [&](auto type) { solve<decltype(type)>(options, all_a, all_b, x, m); });
    };
    return call.finish(body, bytes, executor);
}

}  // namespace
}  // namespace simulated_cann

NPU_CANN_API aclError aclnnTriangularSolveGetWorkspaceSize(const aclTensor* self, const aclTensor* a, bool upper,
                                                           bool transpose, bool unitriangular, aclTensor* x,
                                                           aclTensor* m, uint64_t* bytes, aclOpExecutor** executor) {
    return simulated_cann::prepare_triangular_solve({upper, transpose, unitriangular}, self, a, x, m, bytes, executor);
}
NPU_CANN_SECOND_PHASE(aclnnTriangularSolve)
