// Host fallbacks: operators that run on the host (ascend_sim/programs/startup/ascend_sim_fallback.py). A fallback
// counts as work of its stream. It begins when the stream's earlier work is done, and its memory accesses are compared
// with those of other streams. A fallback is no synchronization: later accesses of the host still need one.
#include "cann/runtime/api.h"
#include "cann/runtime/graphs.h"
#include "cann/runtime/scheduler.h"

namespace simulated_cann {
namespace {

// `words` holds for each access: first byte, bytes of an element, 1 if written (else 0), number of dimensions, sizes,
// strides in elements.
std::vector<MemoryAccess> accesses_of(const int64_t* words, int64_t count) {
    std::vector<MemoryAccess> all;
    for (int64_t i = 0; i < count; ++i) {
        MemoryAccess access;
        access.argument = "argument";
        access.first = reinterpret_cast<char*>(*words++);
        access.item_bytes = *words++;
        access.writes = *words++ != 0;
        access.reads = !access.writes;
        const int64_t dims = *words++;
        access.shape.assign(words, words + dims);
        access.strides.assign(words + dims, words + 2 * dims);
        words += 2 * dims;
        all.push_back(std::move(access));
    }
    return all;
}

}  // namespace
}  // namespace simulated_cann

using namespace simulated_cann;

// Runs the stream's earlier work, and the work of other streams that it waits for.
NPU_CANN_API aclError simulated_cann_host_kernel_begin(void* handle, const char* name) {
    StreamPtr stream;
    StreamPosition target;
    {
        auto lock = lock_streams();
        stream = stream_of(handle);
        if (!stream) return refuse_unknown_stream(name);
        if (is_capturing(*stream)) return refuse_captured_stream(*stream, name);
        if (aclError error = check_stream_context(name, *stream)) return error;
        if (aclError error = context_error(stream->context)) return error;
        target = {stream, stream->last_queued};
    }
    if (!run_until({target}))
        return fail(kStreamSyncTimeout, name, "the stream waits for an event that nothing records.");
    auto lock = lock_streams();
    return context_error(stream->context);
}

// Reports the accesses of an operator that has run.
NPU_CANN_API aclError simulated_cann_host_kernel_end(void* handle, const char* name, const int64_t* words,
                                                     int64_t count) {
    StreamPtr stream = find_stream(handle);
    if (!stream) return refuse_unknown_stream(name);
    Work work(Work::Kind::kDevice, name);
    work.accesses = accesses_of(words, count);
    return submit(stream, std::move(work));
}

// Returns 1 if the stream is in a capture, even an invalid one; else 0.
NPU_CANN_API int32_t simulated_cann_is_capturing(void* handle) {
    auto lock = lock_streams();
    StreamPtr stream = stream_of(handle);
    return stream && is_capturing(*stream);
}

// Captures the operator as a node: each replay calls `run` with `argument`. `run` returns 0 for success; otherwise it
// calls simulated_cann_set_error and returns another number.
NPU_CANN_API aclError simulated_cann_host_kernel_capture(void* handle, const char* name, const int64_t* words,
                                                         int64_t count, int32_t (*run)(int64_t), int64_t argument) {
    auto lock = lock_streams();
    StreamPtr stream = stream_of(handle);
    if (!stream) return refuse_unknown_stream(name);
    if (!is_capturing(*stream)) return fail(kStreamNotCaptured, name, "stream must be in a capture.");
    Work work(Work::Kind::kDevice, name);  // not host code: on a device it writes no host memory
    work.is_kernel = true;                 // of the operator, on a device
    work.accesses = accesses_of(words, count);
    work.run = [run, argument] { return run(argument) == 0 ? int32_t(kSuccess) : int32_t(kernel_exception()); };
    return capture_work(stream, std::move(work));
}

NPU_CANN_API void simulated_cann_set_error(const char* text) { set_error(text); }
