// aclnn from several threads at once, from the first call on: the library of the package reads the package, its lists
// and tilings once, and each thread gets its own results and errors. Under ThreadSanitizer (CMake preset tsan), there
// is also no race.
#include <atomic>
#include <cmath>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include "acl/acl.h"
#include "aclnn/acl_meta.h"
#include "aclnn_npu_rope.h"

// A function of CANN's own operators, which the simulated CANN replaces.
extern "C" aclnnStatus aclnnReluGetWorkspaceSize(const aclTensor* self, aclTensor* out, uint64_t* workspace_bytes,
                                                 aclOpExecutor** executor);
extern "C" aclnnStatus aclnnRelu(void* workspace, uint64_t workspace_bytes, aclOpExecutor* executor,
                                 aclrtStream stream);

namespace {

constexpr int64_t kTokens = 4, kHeads = 2, kHeadSize = 8;

std::atomic<int> g_failures{0};

void check(bool holds, const std::string& what) {
    if (holds) return;
    std::fprintf(stderr, "FAILED: %s\n", what.c_str());
    ++g_failures;
}

void check_call(int status, const char* name) {
    const char* text = status ? aclGetRecentErrMsg() : nullptr;
    check(status == 0, std::string(name) + ": " + std::to_string(status) + " " + (text ? text : ""));
}

// A contiguous tensor in device memory.
template <typename T>
class Tensor {
public:
    Tensor(const std::vector<T>& values, const std::vector<int64_t>& shape, aclDataType type) : values_(values) {
        std::vector<int64_t> strides(shape.size(), 1);
        for (size_t d = shape.size() - 1; d-- > 0;) strides[d] = strides[d + 1] * shape[d + 1];
        check_call(aclrtMalloc(&memory_, bytes(), ACL_MEM_MALLOC_HUGE_FIRST), "aclrtMalloc");
        check_call(aclrtMemcpy(memory_, bytes(), values_.data(), bytes(), ACL_MEMCPY_HOST_TO_DEVICE), "aclrtMemcpy");
        tensor_ = aclCreateTensor(shape.data(), shape.size(), type, strides.data(), 0, ACL_FORMAT_ND, shape.data(),
                                  shape.size(), memory_);
    }
    Tensor(const Tensor&) = delete;
    ~Tensor() {
        aclDestroyTensor(tensor_);
        aclrtFree(memory_);
    }
    aclTensor* get() const { return tensor_; }
    const std::vector<T>& download() {
        check_call(aclrtMemcpy(values_.data(), bytes(), memory_, bytes(), ACL_MEMCPY_DEVICE_TO_HOST), "aclrtMemcpy");
        return values_;
    }

private:
    size_t bytes() const { return values_.size() * sizeof(T); }
    std::vector<T> values_;
    void* memory_ = nullptr;
    aclTensor* tensor_ = nullptr;
};

int64_t first_phase(const aclTensor* x, const aclTensor* positions, int64_t mode, const aclTensor* out,
                    uint64_t* workspace_bytes, aclOpExecutor** executor) {
    return aclnnNpuRopeGetWorkspaceSize(x, positions, nullptr, kHeadSize, mode, 0, 10000.0, 1.0, 0.0, 1.0, 32.0, 1.0,
                                        nullptr, true, 0, nullptr, out, workspace_bytes, executor);
}

// out = relu(rotated x), by an operator of the package and one of CANN. `tokens` differs, so tilings differ.
void rotate_and_check(int64_t tokens, aclrtStream stream) {
    std::vector<float> x(tokens * kHeads * kHeadSize);
    std::vector<int32_t> positions(tokens);
    for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 7) - 3;
    for (int64_t t = 0; t < tokens; ++t) positions[t] = static_cast<int32_t>(5 * t);
    const std::vector<int64_t> shape{1, tokens, kHeads, kHeadSize};
    Tensor<float> in(x, shape, ACL_FLOAT), rotated(x, shape, ACL_FLOAT), out(x, shape, ACL_FLOAT);
    Tensor<int32_t> by(positions, {tokens}, ACL_INT32);
    uint64_t bytes = 0;
    aclOpExecutor* executor = nullptr;
    check_call(first_phase(in.get(), by.get(), 2, rotated.get(), &bytes, &executor), "aclnnNpuRopeGetWorkspaceSize");
    void* workspace = nullptr;
    check_call(aclrtMalloc(&workspace, bytes, ACL_MEM_MALLOC_HUGE_FIRST), "aclrtMalloc");
    check_call(aclnnNpuRope(workspace, bytes, executor, stream), "aclnnNpuRope");
    check_call(aclnnReluGetWorkspaceSize(rotated.get(), out.get(), &bytes, &executor), "aclnnReluGetWorkspaceSize");
    check_call(aclnnRelu(nullptr, 0, executor, stream), "aclnnRelu");
    check_call(aclrtSynchronizeStream(stream), "aclrtSynchronizeStream");
    check_call(aclrtFree(workspace), "aclrtFree");
    const std::vector<float>& got = out.download();
    double worst = 0;
    for (size_t at = 0; at < got.size(); ++at) {
        const size_t lane = at % kHeadSize, pair = lane % (kHeadSize / 2), first = at - lane + pair;
        const double angle = positions[at / (kHeads * kHeadSize)] * std::pow(10000.0, -2.0 * pair / kHeadSize);
        const double a = x[first], b = x[first + kHeadSize / 2], c = std::cos(angle), s = std::sin(angle);
        const double want = lane == pair ? a * c - b * s : a * s + b * c;
        worst = std::fmax(worst, std::fabs(std::fmax(want, 0.0) - got[at]));
    }
    check(worst < 1e-5, "error of " + std::to_string(worst));
}

void call_on_thread(int index, std::atomic<int>* missing) {
    for (--*missing; *missing > 0;) std::this_thread::yield();
    aclrtStream stream = nullptr;
    check_call(aclrtSetDevice(0), "aclrtSetDevice");
    check_call(aclrtCreateStream(&stream), "aclrtCreateStream");
    Tensor<float> x(std::vector<float>(kTokens * kHeads * kHeadSize), {1, kTokens, kHeads, kHeadSize}, ACL_FLOAT);
    Tensor<int32_t> positions(std::vector<int32_t>(kTokens), {kTokens}, ACL_INT32);
    for (int repeat = 0; repeat < 4; ++repeat) {
        rotate_and_check(kTokens + (index + repeat) % 3, stream);
        uint64_t bytes = 0;
        aclOpExecutor* executor = nullptr;
        check(first_phase(x.get(), positions.get(), 99, x.get(), &bytes, &executor) != 0, "a wrong mode is refused");
    }
    check_call(aclrtDestroyStream(stream), "aclrtDestroyStream");
}

}  // namespace

int main() {
    constexpr int kThreads = 4;
    check_call(aclInit(nullptr), "aclInit");
    std::atomic<int> missing{kThreads};
    std::vector<std::thread> threads;
    for (int i = 0; i < kThreads; ++i) threads.emplace_back(call_on_thread, i, &missing);
    for (std::thread& thread : threads) thread.join();
    return g_failures != 0;
}
