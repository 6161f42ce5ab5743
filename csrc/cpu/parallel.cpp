#include "csrc/cpu/parallel.h"

#include <algorithm>
#include <mutex>
#include <new>
#include <thread>
#include <utility>
#include <vector>

#if defined(_OPENMP)
#include <omp.h>
#endif
#if defined(__unix__) || defined(__APPLE__)
#include <pthread.h>
#define NPU_ROPE_HAS_FORK
#endif

namespace npu_rope {
namespace {

// The host framework's thread pool. If both are NULL, OpenMP runs the parts.
npu_rope_run_fn g_run = nullptr;
npu_rope_num_threads_fn g_num_threads = nullptr;

// A forked child has a copy of the thread pool's state (OpenMP's or the host framework's), but only the thread that
// called fork(). Parallel work would wait forever for the missing threads, so the child computes on its one thread.
bool g_is_forked = false;
#if defined(NPU_ROPE_HAS_FORK)
[[maybe_unused]] const int g_at_fork = pthread_atfork(nullptr, nullptr, [] { g_is_forked = true; });
#endif

void free_memory(char* memory) { ::operator delete(memory, std::align_val_t{PartMemory::kAlignment}); }

struct Block {
    char* address;
    size_t bytes;
};

// A small block that a thread keeps for its next call. It has no destructor, so that reading it needs no test.
struct Kept {
    Block block;
    bool thread_has_ended;
};
thread_local Kept g_kept;

struct FreeAtEndOfThread {
    ~FreeAtEndOfThread() {
        free_memory(std::exchange(g_kept.block, {}).address);
        g_kept.thread_has_ended = true;
    }
};

[[gnu::noinline]] Block allocate(size_t bytes) {
    thread_local FreeAtEndOfThread at_end;
    static_cast<void>(at_end);
    return {static_cast<char*>(::operator new(bytes, std::align_val_t{PartMemory::kAlignment})), bytes};
}

constexpr size_t kMostKeptBytes = size_t{256} << 10;

// Returns the block that this thread keeps. It has `bytes` bytes or more.
Block& kept_block(size_t bytes) {
    Block& kept = g_kept.block;
    if (bytes > kept.bytes) free_memory(std::exchange(kept, allocate(bytes)).address);
    return kept;
}

// The memory of several parts, or a large one. A small block is taken from the thread until the call ends, because a
// pool may run another call on a thread that waits for its parts.
class Parts {
public:
    explicit Parts(size_t bytes)
        : block_(bytes > kMostKeptBytes ? allocate(bytes) : std::exchange(kept_block(bytes), {})) {}
    Parts(const Parts&) = delete;
    ~Parts() {
        if (block_.bytes > kMostKeptBytes || g_kept.block.address || g_kept.thread_has_ended)
            free_memory(block_.address);
        else
            g_kept.block = block_;
    }
    char* address() const { return block_.address; }

private:
    const Block block_;
};

// A call on the host framework's thread pool, which may run more ranges than it has threads.
struct PooledCall {
    PartBody body;
    const void* job;
    std::mutex mutex;
    std::vector<char*> free;  // memory that no range uses

    char* take() {
        for (;; std::this_thread::yield()) {
            const std::lock_guard<std::mutex> lock(mutex);
            if (free.empty()) continue;
            char* const memory = free.back();
            free.pop_back();
            return memory;
        }
    }
    void give_back(char* memory) {
        const std::lock_guard<std::mutex> lock(mutex);
        free.push_back(memory);  // within its capacity
    }
    static void run(int64_t begin, int64_t end, void* ctx) {
        auto& call = *static_cast<PooledCall*>(ctx);
        char* const memory = call.take();
        call.body(begin, end, PartMemory(memory), call.job);
        call.give_back(memory);
    }
};

}  // namespace

void set_thread_pool(npu_rope_run_fn run, npu_rope_num_threads_fn pool_size) {
    g_run = run && pool_size ? run : nullptr;
    g_num_threads = run && pool_size ? pool_size : nullptr;
}

int num_threads() {
    if (g_is_forked) return 1;
    if (g_num_threads) {
        int threads = g_num_threads();
        return threads > 1 ? threads : 1;
    }
#if defined(_OPENMP)
    return omp_in_parallel() ? 1 : omp_get_max_threads();
#else
    return 1;
#endif
}

int threads_for(int64_t elements) {
    constexpr int64_t kElementsPerThread = 32 * 1024;
    const int64_t useful_threads = elements / kElementsPerThread;
    return useful_threads <= 1 ? 1 : static_cast<int>(std::min<int64_t>(num_threads(), useful_threads));
}

void parallel_ranges(int64_t n, int threads, size_t bytes, PartBody body, const void* job) {
    if (n <= 0) return;
    threads = static_cast<int>(std::min<int64_t>(threads, n));
    if (threads <= 1 && bytes <= kMostKeptBytes) return body(0, n, PartMemory(kept_block(bytes).address), job);
    if (threads <= 1) return body(0, n, PartMemory(Parts(bytes).address()), job);
    const Parts parts(bytes * static_cast<size_t>(threads));
    if (g_run) {
        PooledCall call{body, job, {}, {}};
        call.free.reserve(static_cast<size_t>(threads));
        for (int part = 0; part < threads; ++part)
            call.free.push_back(parts.address() + bytes * static_cast<size_t>(part));
        g_run(n, threads, PooledCall::run, &call);
        return;
    }
#if defined(_OPENMP)
#pragma omp parallel num_threads(threads)
    {
        const int64_t count = omp_get_num_threads(), part = omp_get_thread_num();
        const int64_t begin = n * part / count, end = n * (part + 1) / count;
        if (begin < end) body(begin, end, PartMemory(parts.address() + bytes * static_cast<size_t>(part)), job);
    }
#else
    body(0, n, PartMemory(parts.address()), job);
#endif
}

}  // namespace npu_rope
