// Calls of several threads: their results are those of one thread, also at the first call of a process, while threads
// end, and in a forked process. Under ThreadSanitizer (CMake preset tsan), there is also no race.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "include/npu_rope.h"
#include "tests/capi/check.h"

namespace {

// In a fork of several threads, the address sanitizer's allocator waits for its own locks, which other threads held.
#if defined(__SANITIZE_ADDRESS__)
constexpr bool kTestsFork = false;
#else
constexpr bool kTestsFork = true;
#endif
// kElements is enough for kPoolThreads threads (csrc/cpu/parallel.h, threads_for).
constexpr int64_t kTokens = 128, kHeads = 8, kHead = 128, kElements = kTokens * kHeads * kHead;
constexpr int kPoolThreads = 4;

// ---- a thread pool ---------------------------------------------------------------------------------------

std::atomic<int> g_parts{0};
std::function<void()> g_while_waiting;  // what the calling thread does again and again until the parts have ended

// Starts a thread for each part. ThreadSanitizer knows these threads, but not those of OpenMP.
void run_parts(int64_t n, int32_t threads, npu_rope_range_fn body, void* ctx) {
    std::vector<std::thread> workers;
    std::atomic<size_t> ended{0};
    std::atomic<int32_t> ready{0};
    for (int32_t part = 0; part < threads; ++part) {
        const int64_t begin = n * part / threads, end = n * (part + 1) / threads;
        if (begin == end) continue;
        workers.emplace_back([=, &ended, &ready] {
            for (++ready; g_while_waiting && ready < threads;) std::this_thread::yield();  // the parts begin at once
            body(begin, end, ctx);
            ++ended;
        });
    }
    g_parts += static_cast<int>(workers.size());
    while (g_while_waiting && ended < workers.size()) g_while_waiting();
    for (std::thread& worker : workers) worker.join();
}
int32_t g_pool_size = kPoolThreads;
int32_t pool_size() { return g_pool_size; }

// ---- the operators ---------------------------------------------------------------------------------------

struct Inputs {
    std::vector<float> q, k, v, grad, scale, cos, sin;
    std::vector<int32_t> positions;
    std::vector<int64_t> slots;

    Inputs() : q(kElements), k(kElements), v(kElements), grad(kElements), scale(kHead) {
        for (int64_t i = 0; i < kElements; ++i) {
            q[i] = static_cast<float>(i % 31) - 15;
            k[i] = static_cast<float>(i % 29) - 14.5f;
            v[i] = static_cast<float>(i % 23);
            grad[i] = static_cast<float>(i % 19) - 9.25f;
        }
        for (int64_t i = 0; i < kHead; ++i) scale[i] = 0.5f + static_cast<float>(i % 5);
        for (int32_t token = 0; token < kTokens; ++token) {
            positions.push_back(3 * token);
            slots.push_back(kTokens - 1 - token);
            for (int64_t pair = 0; pair < kHead / 2; ++pair) {
                cos.push_back(std::cos(static_cast<float>(token * pair)));
                sin.push_back(std::sin(static_cast<float>(token * pair)));
            }
        }
    }
};

template <class T>
npu_rope_tensor tensor(const std::vector<T>& values, std::vector<int64_t> shape) {
    const npu_rope_dtype dtype = sizeof(T) == 8                  ? NPU_ROPE_INT64
                                 : std::is_same<T, float>::value ? NPU_ROPE_FLOAT32
                                                                 : NPU_ROPE_INT32;
    return view(const_cast<T*>(values.data()), dtype, static_cast<int32_t>(shape.size()), shape.data());
}

// The inputs as tensors, and three outputs that lie one after the other.
struct Call {
    npu_rope_tensor q, k, v, grad, scale, cos, sin, positions, slots, outs[3], dscale, sums;
    npu_rope_params params = npu_rope_default_params(kHead, NPU_ROPE_MODE_NEOX);

    Call(const Inputs& in, float* out) {
        const std::vector<int64_t> heads{kTokens, kHeads, kHead};
        q = tensor(in.q, heads);
        k = tensor(in.k, heads);
        v = tensor(in.v, heads);
        grad = tensor(in.grad, heads);
        scale = tensor(in.scale, {kHead});
        cos = tensor(in.cos, {kTokens, kHead / 2});
        sin = tensor(in.sin, {kTokens, kHead / 2});
        positions = tensor(in.positions, {kTokens});
        slots = tensor(in.slots, {kTokens});
        for (int i = 0; i < 3; ++i) outs[i] = view(out + i * kElements, NPU_ROPE_FLOAT32, 3, heads.data());
        const int64_t of_sums[] = {kTokens, 2}, of_scale[] = {kHead};
        sums = view(out, NPU_ROPE_FLOAT32, 2, of_sums);
        dscale = view(out + kElements, NPU_ROPE_FLOAT32, 1, of_scale);
    }
};

// Rotates the first tokens, one in each batch. A thread keeps the tables of at most kBatch such tokens.
constexpr int64_t kBatch = 64;
npu_rope_status rotate_batch(const Call& c, int64_t tokens, const npu_rope_params& params) {
    npu_rope_tensor heads[] = {c.q, c.k, c.outs[0], c.outs[1]};
    for (npu_rope_tensor& t : heads) {
        const int64_t shape[] = {tokens, 1, kHeads, kHead};
        t = view(t.data, NPU_ROPE_FLOAT32, 4, shape);
    }
    const int64_t of_positions[] = {tokens, 1};
    const npu_rope_tensor positions = view(c.positions.data, NPU_ROPE_INT32, 2, of_positions);
    return npu_rope_rope_qk(&heads[0], &heads[1], &positions, nullptr, &params, 1, NPU_ROPE_ANGLE_EXACT, &heads[2],
                            &heads[3]);
}

struct Operator {
    const char* name;
    npu_rope_status (*run)(const Call& call);
};

// One operator for each loop over ranges and each of its kinds of sources.
const Operator kOperators[] = {
    {"rope_qk",
     [](const Call& c) {
         return npu_rope_rope_qk(&c.q, &c.k, &c.positions, nullptr, &c.params, 1, NPU_ROPE_ANGLE_EXACT, &c.outs[0],
                                 &c.outs[1]);
     }},
    {"rope_set_rows",
     [](const Call& c) {
         return npu_rope_rope_set_rows(&c.q, &c.positions, &c.slots, nullptr, &c.params, 1, NPU_ROPE_ANGLE_F32,
                                       &c.outs[0]);
     }},
    {"rotary_mul_qk",
     [](const Call& c) {
         return npu_rope_rotary_mul_qk(&c.q, &c.k, &c.cos, &c.sin, 0, 0, 0, 1, &c.outs[0], &c.outs[1]);
     }},
    {"add_rms_norm",
     [](const Call& c) { return npu_rope_add_rms_norm(&c.q, &c.k, &c.scale, -1, 1e-6, 1, &c.outs[0], &c.outs[1]); }},
    {"rms_norm_backward",
     [](const Call& c) {
         return npu_rope_rms_norm_backward(&c.grad, &c.q, &c.scale, -1, 1e-6, 1, &c.outs[0], &c.dscale);
     }},
    {"rms_norm_rope",
     [](const Call& c) {
         return npu_rope_rms_norm_rope(&c.q, &c.k, &c.scale, &c.scale, &c.positions, nullptr, &c.params, 1e-6, 0,
                                       NPU_ROPE_ANGLE_EXACT, &c.outs[0], &c.outs[1]);
     }},
    {"qk_square_sums", [](const Call& c) { return npu_rope_qk_square_sums(&c.q, &c.k, &c.sums); }},
    {"qkv_norm_rope_cache",
     [](const Call& c) {
         npu_rope_qkv_inputs inputs{};
         inputs.q = &c.q;
         inputs.k = &c.k;
         inputs.v = &c.v;
         inputs.q_scale = inputs.k_scale = &c.scale;
         inputs.positions = &c.positions;
         inputs.slots = &c.slots;
         const npu_rope_qkv_outputs outputs{&c.outs[0], &c.outs[1], &c.outs[2]};
         return npu_rope_qkv_norm_rope_cache(&inputs, &c.params, 1e-6, 1.0, 1, NPU_ROPE_ANGLE_EXACT, &outputs);
     }},
    {"rope_qk of a decoded batch", [](const Call& c) { return rotate_batch(c, kBatch, c.params); }},
};

using Results = std::vector<float>;

Results results_of(const Operator& op, const Inputs& inputs) {
    Results out(3 * kElements);
    if (op.run(Call(inputs, out.data())) != NPU_ROPE_OK) out.clear();
    return out;
}

std::vector<Results> all_results(const Inputs& inputs) {
    std::vector<Results> results;
    for (const Operator& op : kOperators) results.push_back(results_of(op, inputs));
    return results;
}

// ---- tests -----------------------------------------------------------------------------------------------

// The process has called nothing before: all threads select the instruction set and fill their caches at once.
std::vector<Results> test_first_calls(const Inputs& inputs) {
    constexpr int kThreads = 4;
    std::atomic<int> ready{0};
    std::vector<Results> results[kThreads];
    std::vector<std::thread> threads;
    for (auto& result : results)
        threads.emplace_back([&ready, &result, &inputs] {
            for (++ready; ready < kThreads;) std::this_thread::yield();
            result = all_results(inputs);
        });
    for (std::thread& thread : threads) thread.join();
    for (int i = 0; i < kThreads; ++i) CHECK(results[i] == results[0], "results of thread %d", i);
    for (size_t op = 0; op < results[0].size(); ++op) CHECK(!results[0][op].empty(), "%s fails", kOperators[op].name);
    return results[0];
}

void test_every_operator_divides_its_work(const Inputs& inputs, const std::vector<Results>& expected) {
    for (size_t op = 0; op < expected.size(); ++op) {
        g_parts = 0;
        const Results got = results_of(kOperators[op], inputs);
        CHECK(g_parts == kPoolThreads, "%s: %d parts", kOperators[op].name, g_parts.load());
        CHECK(got == expected[op], "%s on %d threads", kOperators[op].name, kPoolThreads);
    }
}

// A pool may run other work on the thread that waits for the parts, also small calls, which are not divided.
void test_calls_of_a_thread_that_waits(const Inputs& inputs, const std::vector<Results>& expected) {
    constexpr int64_t kSmall = 16;  // tokens
    constexpr int kParams = 12;     // more than a thread caches constants of
    Results small(3 * kElements), given_expected, computed_expected[kParams];
    Call call(inputs, small.data()), batch(inputs, small.data());
    for (npu_rope_tensor* t : {&call.q, &call.cos, &call.sin, &call.positions, &call.outs[0]}) t->shape[0] = kSmall;
    std::vector<int32_t> positions;
    for (int32_t i = 0; i < kBatch; ++i) positions.push_back(1000 - i);
    batch.positions.data = positions.data();
    int wrong = 0, calls = 0;
    const auto is_same = [&](Results& first) {
        if (first.empty()) first.assign(small.begin(), small.begin() + kSmall * kHeads * kHead);
        return std::equal(first.begin(), first.end(), small.begin());
    };
    const auto call_small = [&] {
        wrong += npu_rope_rotary_mul(&call.q, &call.cos, &call.sin, 0, 0, 0, 1, &call.outs[0]) != NPU_ROPE_OK;
        wrong += !is_same(given_expected);
        // The first parameters are those of the call that waits.
        const int which = ++calls % kParams;
        npu_rope_params params = batch.params;
        params.freq_base += which;
        wrong += rotate_batch(batch, kSmall, params) != NPU_ROPE_OK;
        wrong += !is_same(computed_expected[which]);
    };
    while (calls < kParams) call_small();
    g_pool_size = 2;  // so that the parts use all memory at the same time on two cores
    for (size_t op = 0; op < expected.size(); ++op)
        for (int repeat = 0; repeat < 5; ++repeat) {
            g_while_waiting = call_small;
            const Results got = results_of(kOperators[op], inputs);
            g_while_waiting = nullptr;
            CHECK(got == expected[op], "%s beside calls of its thread", kOperators[op].name);
        }
    g_pool_size = kPoolThreads;
    CHECK(wrong == 0, "%d small calls are wrong", wrong);
}

// Each thread makes one call and ends, while the next one starts.
void test_threads_that_end(const Inputs& inputs, const std::vector<Results>& expected) {
    constexpr int kThreads = 16;
    std::atomic<int> wrong{0};
    std::thread before;
    for (int i = 0; i < kThreads; ++i) {
        std::thread next([&, op = static_cast<size_t>(i) % expected.size()] {
            wrong += results_of(kOperators[op], inputs) != expected[op];
        });
        if (before.joinable()) before.join();
        before = std::move(next);
    }
    before.join();
    CHECK(wrong == 0, "%d threads got other results", wrong.load());
}

// Every thread has its own last error, beside threads whose calls succeed.
void test_errors_of_threads(const Inputs& inputs) {
    constexpr int kThreads = 4;
    std::atomic<int> wrong{0};
    std::vector<std::thread> threads;
    for (int i = 0; i < kThreads; ++i)
        threads.emplace_back([&, i] {
            Results out(3 * kElements);
            Call call(inputs, out.data());
            call.params.mode = 100 + i;
            for (int repeat = 0; repeat < 20; ++repeat) {
                const bool succeeds = i == 0;
                const npu_rope_status status = kOperators[succeeds ? 6 : 0].run(call);
                const std::string message = npu_rope_last_error();
                const bool names_mode = message.find("but got " + std::to_string(100 + i)) != std::string::npos;
                wrong += succeeds ? status != NPU_ROPE_OK || !message.empty()
                                  : status != NPU_ROPE_INVALID_VALUE || !names_mode;
            }
        });
    for (std::thread& thread : threads) thread.join();
    CHECK(wrong == 0, "%d messages are those of another thread", wrong.load());
}

// Forks while other threads call. The child has one thread and the same results; the parent continues.
void test_fork(const Inputs& inputs, const std::vector<Results>& expected) {
    std::atomic<bool> ends{false};
    std::atomic<int> calls{0}, wrong{0};
    std::vector<std::thread> threads;
    for (size_t op : {size_t{0}, size_t{3}})
        threads.emplace_back([&, op] {
            for (; !ends; ++calls) wrong += results_of(kOperators[op], inputs) != expected[op];
        });
    while (calls < 2) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    const pid_t child = fork();
    if (child == 0) {
        alarm(120);  // a child that waits for missing threads ends here
        g_parts = 0;
        const bool is_right = all_results(inputs) == expected && npu_rope_num_threads() == 1 && g_parts == 0;
        _exit(is_right ? 0 : 1);
    }
    const int calls_at_fork = calls;
    while (calls < calls_at_fork + 2) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    ends = true;
    for (std::thread& thread : threads) thread.join();
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child && status == 0, "the child ended with status %d", status);
    CHECK(wrong == 0, "%d calls of the parent have other results", wrong.load());
    CHECK(all_results(inputs) == expected, "the parent's results after the fork");
}

}  // namespace

int main() {
    const Inputs inputs;
    const std::vector<Results> expected = test_first_calls(inputs);
    npu_rope_set_thread_pool(run_parts, pool_size);
    test_every_operator_divides_its_work(inputs, expected);
    test_calls_of_a_thread_that_waits(inputs, expected);
    test_threads_that_end(inputs, expected);
    test_errors_of_threads(inputs);
    if (kTestsFork) test_fork(inputs, expected);
    if (failures) std::fprintf(stderr, "%d checks failed\n", failures);
    return failures != 0;
}
