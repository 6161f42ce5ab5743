// Rotates one tensor on an NPU without torch. Uses CANN's acl and the operator's aclnn interface.
//
// With CANN and the operator package installed (scripts/build_npu.sh, docs/npu.md):
//
//   source $ASCEND_HOME_PATH/set_env.sh
//   OPP=$ASCEND_OPP_PATH/vendors/npu_rope/op_api
//   INCLUDE="-I$ASCEND_HOME_PATH/include -I$OPP/include"
//   LINK="-L$ASCEND_HOME_PATH/lib64 -lascendcl -lnnopbase -L$OPP/lib -lcust_opapi"
//   g++ -std=c++17 examples/aclnn_rope.cpp $INCLUDE $LINK -o aclnn_rope
//
// Without CANN, on the simulated runtime of an npu_rope built on Linux, from its source folder:
//
//   CANN=$(ascend-sim toolkit)
//   OPP=$(python -c "from npu_rope import simulated_package; print(simulated_package.find() / 'op_api')")
//   INCLUDE="-I$CANN/include -I$OPP/include"
//   LINK="-L$CANN/lib64 -lascendcl -lnnopbase -L$OPP/lib -lcust_opapi"
//   g++ -std=c++17 examples/aclnn_rope.cpp $INCLUDE $LINK -o aclnn_rope
//   npu-rope sim -- ./aclnn_rope
//
// CANN finds the operator's kernels by ASCEND_CUSTOM_OPP_PATH, or in the folder where a .run file installed the
// package. Linking the package's library is not sufficient.
#include <cmath>
#include <cstdio>
#include <vector>

#include "acl/acl.h"
#include "aclnn/acl_meta.h"
#include "aclnn_npu_rope.h"

namespace {

constexpr int64_t kTokens = 4, kHeads = 2, kHeadSize = 8;

bool failed(const char* what, int status) {
    if (status == ACL_SUCCESS) return false;
    const char* why = aclGetRecentErrMsg();
    std::fprintf(stderr, "%s: status %d\n%s\n", what, status, why ? why : "");
    return true;
}

// Returns a contiguous tensor with these values in device memory.
template <typename T>
aclTensor* upload(const std::vector<T>& values, const std::vector<int64_t>& shape, aclDataType type, void** memory) {
    const size_t bytes = values.size() * sizeof(T);
    if (failed("aclrtMalloc", aclrtMalloc(memory, bytes, ACL_MEM_MALLOC_HUGE_FIRST))) return nullptr;
    if (failed("aclrtMemcpy", aclrtMemcpy(*memory, bytes, values.data(), bytes, ACL_MEMCPY_HOST_TO_DEVICE)))
        return nullptr;
    std::vector<int64_t> strides(shape.size(), 1);
    for (size_t d = shape.size() - 1; d-- > 0;) strides[d] = strides[d + 1] * shape[d + 1];
    return aclCreateTensor(shape.data(), shape.size(), type, strides.data(), 0, ACL_FORMAT_ND, shape.data(),
                           shape.size(), *memory);
}

// Runs both phases of the aclnn call and waits for the device.
int rotate(const aclTensor* x, const aclTensor* positions, const aclTensor* out, aclrtStream stream) {
    uint64_t workspace_bytes = 0;
    aclOpExecutor* executor = nullptr;
    // The call has no freq_factors and no sections. All tensors are contiguous, so strides is NULL; aclnn refuses an
    // empty aclIntArray.
    int status = aclnnNpuRopeGetWorkspaceSize(x, positions, nullptr, /*nDims=*/kHeadSize, /*mode: neox*/ 2,
                                              /*nCtxOrig=*/0, /*freqBase=*/10000.0, /*freqScale=*/1.0,
                                              /*extFactor=*/0.0, /*attnFactor=*/1.0, /*betaFast=*/32.0,
                                              /*betaSlow=*/1.0, /*sections=*/nullptr, /*forward=*/true, /*nOffs=*/0,
                                              /*strides=*/nullptr, out, &workspace_bytes, &executor);
    if (failed("aclnnNpuRopeGetWorkspaceSize", status)) return status;
    void* workspace = nullptr;
    if (workspace_bytes > 0) {
        status = aclrtMalloc(&workspace, workspace_bytes, ACL_MEM_MALLOC_HUGE_FIRST);
        if (failed("aclrtMalloc", status)) return status;
    }
    status = aclnnNpuRope(workspace, workspace_bytes, executor, stream);
    if (!failed("aclnnNpuRope", status)) status = aclrtSynchronizeStream(stream);
    if (workspace) aclrtFree(workspace);
    return status;
}

// Returns the largest error against the formula, in double.
double largest_error(const std::vector<float>& x, const std::vector<int32_t>& positions,
                     const std::vector<float>& out) {
    double worst = 0;
    for (int64_t t = 0; t < kTokens; ++t)
        for (int64_t h = 0; h < kHeads; ++h)
            for (int64_t i = 0; i < kHeadSize / 2; ++i) {
                const double angle = positions[t] * std::pow(10000.0, -2.0 * i / kHeadSize);
                const size_t at = (t * kHeads + h) * kHeadSize + i, other = at + kHeadSize / 2;
                const double c = std::cos(angle), s = std::sin(angle);
                worst = std::fmax(worst, std::fabs(x[at] * c - x[other] * s - out[at]));
                worst = std::fmax(worst, std::fabs(x[at] * s + x[other] * c - out[other]));
            }
    return worst;
}

}  // namespace

int main() {
    aclrtStream stream = nullptr;
    if (failed("aclInit", aclInit(nullptr)) || failed("aclrtSetDevice", aclrtSetDevice(0)) ||
        failed("aclrtCreateStream", aclrtCreateStream(&stream)))
        return 1;

    std::vector<float> x(kTokens * kHeads * kHeadSize), out(x.size());
    for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 7) - 3;
    const std::vector<int32_t> positions = {0, 1, 1000, 1000000};
    void *x_memory = nullptr, *positions_memory = nullptr, *out_memory = nullptr;
    const std::vector<int64_t> shape = {1, kTokens, kHeads, kHeadSize};
    const aclTensor* x_tensor = upload(x, shape, ACL_FLOAT, &x_memory);
    const aclTensor* positions_tensor = upload(positions, {kTokens}, ACL_INT32, &positions_memory);
    const aclTensor* out_tensor = upload(out, shape, ACL_FLOAT, &out_memory);
    if (!x_tensor || !positions_tensor || !out_tensor) return 1;

    if (rotate(x_tensor, positions_tensor, out_tensor, stream) != ACL_SUCCESS) return 1;
    const size_t bytes = out.size() * sizeof(float);
    if (failed("aclrtMemcpy", aclrtMemcpy(out.data(), bytes, out_memory, bytes, ACL_MEMCPY_DEVICE_TO_HOST))) return 1;
    const double error = largest_error(x, positions, out);
    std::printf("%lld elements rotated, largest error %.2g\n", static_cast<long long>(out.size()), error);

    for (const aclTensor* t : {x_tensor, positions_tensor, out_tensor}) aclDestroyTensor(t);
    for (void* memory : {x_memory, positions_memory, out_memory}) aclrtFree(memory);
    aclrtDestroyStream(stream);
    aclrtResetDevice(0);
    aclFinalize();
    return error < 1e-5 ? 0 : 1;
}
