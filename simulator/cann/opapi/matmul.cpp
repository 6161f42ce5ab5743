// Mm, Matmul, BatchMatMul and Mv: out = self @ mat2. cube.h describes the arithmetic.
#include <algorithm>
#include <functional>
#include <numeric>

#include "cann/opapi/cube.h"

namespace simulated_cann {
namespace {

using Shape = std::vector<int64_t>;

// The documents list the format ND only. The sources also accept mat2 in the format FRACTAL_NZ, which
// aclnnTransMatmulWeight produces, if its type is float16 or bfloat16 and neither of its last two dimensions is 1
// (hicann/ops-nn matmul/mat_mul_v3/op_host/op_api/aclnn_matmul.cpp, CheckWeightNzShapeValid).
void check_nz(FirstPhase* call, const PackedWeight& mat2) {
    if (!call->is_valid() || !mat2.is_nz) return;
    call->report_beyond_document(true, "its document does not list the format FRACTAL_NZ for mat2");
    const int64_t k = mat2.shape[mat2.shape.size() - 2], n = mat2.shape.back();
    call->require(k != 1 && n != 1, "mat2", "have no 1 in its last two dimensions in the format FRACTAL_NZ",
                  shape_text(mat2.shape));
}

// The source casts mat2 as if its memory had the shape of its view, and then sets the shape of the blocks again
// (matmul_util.cpp, MatmulCommonProcess). So a cast of FRACTAL_NZ has no defined result.
void require_nz_type(FirstPhase* call, const PackedWeight& mat2, const CubeTypes& types) {
    if (!call->is_valid() || !mat2.is_nz) return;
    call->require(
        mat2.dtype == types.compute, "mat2",
        std::string("be ") + dtype_name(types.compute) + ", the type of the product, in the format FRACTAL_NZ",
        dtype_name(mat2.dtype));
}

// The operands of out = self @ mat2, and the checks that Mm, Matmul and BatchMatMul share.
struct Product {
    Product(FirstPhase* call_, const aclTensor* self_tensor, const aclTensor* mat2_tensor, const aclTensor* out_tensor,
            RankRange ranks, RankRange out_ranks)
        : call(call_),
          self(call->input("self", self_tensor, with_bf16_except_310p(kHalfAndFloatTypes), ranks)),
          mat2(call->weight("mat2", mat2_tensor, with_bf16_except_310p(kHalfAndFloatTypes), ranks)),
          out(call->output("out", out_tensor, with_bf16_except_310p(kHalfAndFloatTypes), out_ranks)) {
        check_nz(call, mat2);
    }

    // Checks the shapes of two matrices or batches of matrices, and out's shape. A batch dimension broadcasts if its
    // size is 1 or if one operand lacks it. If `reshapes`, out may have another shape than the product.
    void check_shapes(bool reshapes = false) const {
        if (!call->is_valid()) return;
        const Shape a = as_matrices(self.shape, true), b = as_matrices(mat2.shape, false);
        call->require(a.back() == b[b.size() - 2], "mat2", "have " + std::to_string(a.back()) + " rows",
                      b[b.size() - 2]);
        Shape shape(std::max(a.size(), b.size()));
        for (size_t i = 0; i + 2 < shape.size(); ++i) {
            const int64_t a_size = size_from_end(a, shape.size() - i), b_size = size_from_end(b, shape.size() - i);
            call->require(a_size == b_size || a_size == 1 || b_size == 1, "mat2",
                          "broadcast to the batch of self " + shape_text(self.shape), shape_text(mat2.shape));
            shape[i] = a_size == 1 ? b_size : a_size;
        }
        shape[shape.size() - 2] = a[a.size() - 2];
        shape.back() = b.back();
        if (mat2.shape.size() == 1) shape.pop_back();
        if (self.shape.size() == 1) shape.erase(shape.end() - (mat2.shape.size() == 1 ? 1 : 2));
        if (!reshapes) return call->require_shape("out", out, shape);
        call->report_beyond_document(out.shape != shape, "its document does not mention an out of another shape");
        call->require_inner(kAclnnInnerNullptr, is_empty() || out.count() == count_of(shape), "out",
                            "have the shape " + shape_text(shape) + " or as many elements", shape_text(out.shape));
    }

    bool is_empty() const { return self.count() == 0 || count_of(mat2.shape) == 0; }

    // Ends the first phase. The kernel's result needs a workspace if its type is not that of out.
    aclError finish(const CubeTypes& types, uint64_t* bytes, aclOpExecutor** executor) const {
        if (types.result != out.dtype) call->ask_workspace(out.count() * dtype_bytes(types.result));
        auto body = [self = self, mat2 = mat2, out = out, types] {
            std::vector<char> storage;
            const Operand unpacked = mat2.unpacked(&storage);
            const size_t rank = std::max<size_t>({self.shape.size(), mat2.shape.size(), 2});
            std::vector<float> values =
                batched_product(matrices(self, true, rank), matrices(unpacked, false, rank), types.rounding);
            if (types.result != out.dtype) round_to(types.result, &values);
            values.resize(static_cast<size_t>(out.count()));  // an empty product fills every out with 0
            set_values(out, values);
        };
        return call->finish(body, bytes, executor);
    }

    static int64_t count_of(const Shape& shape) {
        return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
    }

    static int64_t size_from_end(const Shape& shape, size_t distance) {
        return distance > shape.size() ? 1 : shape[shape.size() - distance];
    }

    // A vector becomes a row as the first operand and a column as the second operand.
    static Shape as_matrices(Shape shape, bool is_first) {
        if (shape.size() == 1) shape.insert(is_first ? shape.begin() : shape.end(), 1);
        return shape;
    }

    static Operand matrices(Operand operand, bool is_first, size_t rank) {
        if (operand.shape.size() == 1) {
            operand.shape = as_matrices(operand.shape, is_first);
            operand.strides.insert(is_first ? operand.strides.begin() : operand.strides.end(), 0);
        }
        operand.shape.insert(operand.shape.begin(), rank - operand.shape.size(), 1);
        operand.strides.insert(operand.strides.begin(), rank - operand.strides.size(), 0);
        return operand;
    }

    FirstPhase* call;
    Operand self;
    PackedWeight mat2;
    Operand out;
};

// hicann/ops-nn matmul/mat_mul_v3/docs/aclnnMm.md and op_host/op_api/aclnn_mm.cpp. The document's table of parameters
// says that out has the type to which the inputs are promoted; its table of errors and the source refuse only types to
// which that type does not convert.
aclError prepare_mm(const aclTensor* self, const aclTensor* mat2, const aclTensor* out, int8_t math_type,
                    uint64_t* bytes, aclOpExecutor** executor) {
    FirstPhase call("aclnnMm");
    const Product product(&call, self, mat2, out, {2, 2}, {2, 2});
    report_ignored_option(&call, product.self.dtype, product.mat2.dtype, math_type);
    const CubeTypes types =
        cube_types(&call, product.self.dtype, product.mat2.dtype, product.out.dtype, math_type, true);
    require_nz_type(&call, product.mat2, types);
    product.check_shapes();
    return product.finish(types, bytes, executor);
}

// hicann/ops-nn matmul/mat_mul_v3/docs/aclnnMatmul.md and op_host/op_api/aclnn_matmul.cpp. Two vectors are promoted and
// multiplied by the function Dot, without regard to cubeMathType. The document does not support bfloat16 beside another
// type; the source computes it (matmul_util.cpp, Dav2201MatMulRule::GetUpperDtypeByLookUpTable). The source reshapes
// the product to the shape of out (MatmulGraphImpl::CommonPostProcessWithReshape), and fills out with 0 if an input is
// empty (MatMulEmptyTensorGraph).
aclError prepare_matmul(const aclTensor* self, const aclTensor* mat2, const aclTensor* out, int8_t math_type,
                        uint64_t* bytes, aclOpExecutor** executor) {
    FirstPhase call("aclnnMatmul");
    const Product product(&call, self, mat2, out, {1, 6}, {0, 6});
    const int32_t a = product.self.dtype, b = product.mat2.dtype;
    call.report_beyond_document(a != b && (a == kBfloat16 || b == kBfloat16),
                                "its document does not support bfloat16 beside another type");
    report_ignored_option(&call, a, b, math_type);
    if (call.is_valid() && product.mat2.is_nz && product.self.dtype != kFloat)
        call.require(product.self.dtype == product.mat2.dtype, "mat2",
                     std::string("be ") + dtype_name(product.self.dtype) + " in the format FRACTAL_NZ",
                     dtype_name(product.mat2.dtype));
    CubeTypes types = cube_types(&call, product.self.dtype, product.mat2.dtype, product.out.dtype, math_type, true);
    require_nz_type(&call, product.mat2, types);
    product.check_shapes(true);
    if (product.self.shape.size() == 1 && product.mat2.shape.size() == 1)
        types = {CubeRounding::kNone, promoted_dtype(product.self.dtype, true, product.mat2.dtype, true)};
    return product.finish(types, bytes, executor);
}

// hicann/ops-nn matmul/batch_mat_mul_v3/docs/aclnnBatchMatMul.md and op_host/op_api/aclnn_batch_matmul.cpp.
aclError prepare_batch_matmul(const aclTensor* self, const aclTensor* mat2, const aclTensor* out, int8_t math_type,
                              uint64_t* bytes, aclOpExecutor** executor) {
    FirstPhase call("aclnnBatchMatMul");
    const Product product(&call, self, mat2, out, {3, 3}, {3, 3});
    const CubeTypes types =
        cube_types(&call, product.self.dtype, product.mat2.dtype, product.out.dtype, math_type, false);
    product.check_shapes();
    call.report_beyond_document(math_type == kUseFp32Add, kUnlistedFp32Add);
    return product.finish(types, bytes, executor);
}

// hicann/ops-nn matmul/mv/docs/aclnnMv.md and op_host/op_api/aclnn_mv.cpp.
aclError prepare_mv(const aclTensor* self_tensor, const aclTensor* vec_tensor, const aclTensor* out_tensor,
                    int8_t math_type, uint64_t* bytes, aclOpExecutor** executor) {
    FirstPhase call("aclnnMv");
    const TypesByChip types_allowed = with_bf16_except_310p(kHalfAndFloatTypes);
    const Operand self = call.input("self", self_tensor, types_allowed, {2, 2});
    const Operand vec = call.input("vec", vec_tensor, types_allowed, {1, 1});
    const Operand out = call.output("out", out_tensor, types_allowed, {1, 1});
    call.require_dtype("vec", vec, self.dtype);
    call.require_dtype("out", out, self.dtype);
    report_ignored_option(&call, self.dtype, vec.dtype, math_type);
    call.report_beyond_document(math_type == kUseFp32Add, kUnlistedFp32Add);
    const CubeTypes types = cube_types(&call, self.dtype, vec.dtype, out.dtype, math_type, false);
    if (call.is_valid()) {
        call.require_shape("vec", vec, {self.shape[1]});
        call.require_shape("out", out, {self.shape[0]});
    }
    if (types.result != out.dtype) call.ask_workspace(out.count() * dtype_bytes(types.result));
    auto body = [self, vec, out, types] {
        std::vector<float> values = batched_product(self, Product::matrices(vec, false, 2), types.rounding);
        if (types.result != out.dtype) round_to(types.result, &values);
        set_values(out, values);
    };
    return call.finish(body, bytes, executor);
}

}  // namespace
}  // namespace simulated_cann

#define NPU_CANN_PRODUCT(name, prepare, second)                                                               \
    NPU_CANN_API aclError aclnn##name##GetWorkspaceSize(const aclTensor* self, const aclTensor* second,       \
                                                        aclTensor* out, int8_t cubeMathType, uint64_t* bytes, \
                                                        aclOpExecutor** executor) {                           \
        return simulated_cann::prepare(self, second, out, cubeMathType, bytes, executor);                     \
    }                                                                                                         \
    NPU_CANN_SECOND_PHASE(aclnn##name)

NPU_CANN_PRODUCT(Mm, prepare_mm, mat2)
NPU_CANN_PRODUCT(Matmul, prepare_matmul, mat2)
NPU_CANN_PRODUCT(BatchMatMul, prepare_batch_matmul, mat2)
NPU_CANN_PRODUCT(Mv, prepare_mv, vec)
