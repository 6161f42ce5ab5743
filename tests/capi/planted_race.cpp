// A program with a race, which ThreadSanitizer must report: two threads rotate into the same output at once, which no
// caller may do. The report shows that the library's kernels are instrumented.
#include <thread>
#include <vector>

#include "include/npu_rope.h"
#include "tests/capi/check.h"

int main() {
    const int64_t shape[] = {64, 4, 64}, tokens[] = {64};
    std::vector<float> x(64 * 4 * 64), out(x.size());
    std::vector<int32_t> positions(64);
    const npu_rope_tensor from = view(x.data(), NPU_ROPE_FLOAT32, 3, shape);
    const npu_rope_tensor to = view(out.data(), NPU_ROPE_FLOAT32, 3, shape);
    const npu_rope_tensor by = view(positions.data(), NPU_ROPE_INT32, 1, tokens);
    const npu_rope_params params = npu_rope_default_params(64, NPU_ROPE_MODE_NEOX);
    const auto rotate = [&] {
        CHECK(npu_rope_rope(&from, &by, nullptr, &params, 1, NPU_ROPE_ANGLE_EXACT, &to) == NPU_ROPE_OK, "%s",
              npu_rope_last_error());
    };
    std::thread other(rotate);
    rotate();
    other.join();
    return failures;
}
