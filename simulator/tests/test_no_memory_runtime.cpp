// Every allocation of a program of the simulated runtime fails alone, and every fifth one together with all later ones.
// A call of CANN returns an error, or throws std::bad_alloc, or needs no memory there. The program can release
// the objects that it has, and the next program on the same device is right.
#include <new>

#include "acl/acl.h"
#include "aclnn/acl_meta.h"
#include "failing_memory.h"
#include "include/ascend_sim_cann.h"
#include "instruction_bench.h"

using namespace AscendC;
using namespace failing_memory;
using bench::check;

extern "C" {
aclnnStatus aclnnAddGetWorkspaceSize(const aclTensor*, const aclTensor*, const aclScalar*, const aclTensor*, uint64_t*,
                                     aclOpExecutor**);
aclnnStatus aclnnAdd(void*, uint64_t, aclOpExecutor*, aclrtStream);
}

namespace {

constexpr int64_t kCores = 2;
constexpr uint32_t kPart = 64, kCount = kCores * kPart;
constexpr size_t kBytes = kCount * sizeof(float);

// x = x + 1, in place.
void add_one(uint8_t* const* addresses, const void*) {
    const auto core = uint32_t(GetBlockIdx());
    const bench::PartAndNumber<kPart> sum(addresses[0], core, 1);
    DataCopy(bench::part_of<kPart>(addresses[0], core), sum.values, kPart);
    PipeBarrier<PIPE_ALL>();
}

struct Refused {
    const char* call;
    aclError status;
};

// The objects of a program. Its destructor releases them.
struct Program {
    void *x = nullptr, *y = nullptr, *workspace = nullptr;
    aclrtStream first = nullptr, second = nullptr;
    aclrtEvent event = nullptr, older = nullptr;
    aclTensor *x_tensor = nullptr, *y_tensor = nullptr;
    aclScalar* alpha = nullptr;
    aclOpExecutor* executor = nullptr;
    aclmdlRI graph = nullptr;
    bool captures = false;
    std::vector<float> values = std::vector<float>(kCount, 1);

    Program() = default;
    Program(const Program&) = delete;
    ~Program() {
        is_armed = false;
        if (captures) aclmdlRICaptureEnd(first, &graph);
        for (aclrtStream stream : {first, second}) {
            if (!stream) continue;
            aclrtSynchronizeStream(stream);  // may return the error of work that had no memory
            release("aclrtSynchronizeStream", aclrtSynchronizeStream(stream));
        }
        if (graph) aclmdlRIDestroy(graph);
        if (executor) aclDestroyAclOpExecutor(executor);
        for (aclTensor* tensor : {x_tensor, y_tensor})
            if (tensor) release("aclDestroyTensor", aclDestroyTensor(tensor));
        if (alpha) release("aclDestroyScalar", aclDestroyScalar(alpha));
        for (aclrtEvent each : {event, older})
            if (each) release("aclrtDestroyEvent", aclrtDestroyEvent(each));
        for (aclrtStream stream : {first, second})
            if (stream) release("aclrtDestroyStream", aclrtDestroyStream(stream));
        for (void* memory : {x, y, workspace})
            if (memory) release("aclrtFree", aclrtFree(memory));
    }

    static void release(const char* name, int status) {
        const char* text = status ? aclGetRecentErrMsg() : nullptr;
        check(status == 0, std::string(name) + " returned " + std::to_string(status) + " " + (text ? text : ""));
    }
    static void call(const char* name, aclError status) {
        if (status != ACL_SUCCESS) throw Refused{name, status};
    }
#define CALL(function, ...) call(#function, function(__VA_ARGS__))

    void launch_add_one() {
        ascend_sim_kernel kernel{};
        kernel.name = "add_one";
        kernel.arch = __CCE_AICORE__;
        kernel.blocks = kCores;
        kernel.stream = first;
        kernel.call = add_one;
        kernel.release = [](void*) {};
        kernel.pointers = &x;
        kernel.pointer_count = 1;
        CALL(ascend_sim_launch_kernel, &kernel);
    }

    // values = 2 * (values + 1) + 1 on two streams, then captured: + 1 in each of two replays.
    void run() {
        for (void** memory : {&x, &y}) CALL(aclrtMalloc, memory, kBytes, ACL_MEM_MALLOC_HUGE_FIRST);
        for (aclrtStream* stream : {&first, &second}) CALL(aclrtCreateStream, stream);
        CALL(aclrtCreateEventExWithFlag, &event, ACL_EVENT_SYNC);
        CALL(aclrtCreateEventWithFlag, &older, ACL_EVENT_SYNC);
        CALL(aclrtMemcpyAsync, x, kBytes, values.data(), kBytes, ACL_MEMCPY_HOST_TO_DEVICE, first);
        launch_add_one();
        CALL(aclrtRecordEvent, event, first);
        CALL(aclrtStreamWaitEvent, second, event);
        const int64_t size = kCount, stride = 1;
        const float one = 1;
        x_tensor = aclCreateTensor(&size, 1, ACL_FLOAT, &stride, 0, ACL_FORMAT_ND, &size, 1, x);
        y_tensor = aclCreateTensor(&size, 1, ACL_FLOAT, &stride, 0, ACL_FORMAT_ND, &size, 1, y);
        alpha = aclCreateScalar(const_cast<float*>(&one), ACL_FLOAT);
        uint64_t bytes = 0;
        CALL(aclnnAddGetWorkspaceSize, x_tensor, x_tensor, alpha, y_tensor, &bytes, &executor);
        if (bytes) CALL(aclrtMalloc, &workspace, bytes, ACL_MEM_MALLOC_HUGE_FIRST);
        aclOpExecutor* const runs = executor;
        executor = nullptr;
        CALL(aclnnAdd, workspace, bytes, runs, second);
        CALL(aclrtRecordEvent, older, second);
        CALL(aclrtStreamWaitEvent, first, older);
        CALL(aclrtResetEvent, older, first);
        CALL(aclrtSynchronizeStream, second);
        CALL(aclrtMemcpyAsync, x, kBytes, y, kBytes, ACL_MEMCPY_DEVICE_TO_DEVICE, first);
        launch_add_one();
        CALL(aclmdlRICaptureBegin, first, ACL_MODEL_RI_CAPTURE_MODE_GLOBAL);
        captures = true;
        launch_add_one();
        captures = false;
        CALL(aclmdlRICaptureEnd, first, &graph);
        for (int i = 0; i < 2; ++i) CALL(aclmdlRIExecuteAsync, graph, first);
        CALL(aclrtMemcpyAsync, values.data(), kBytes, x, kBytes, ACL_MEMCPY_DEVICE_TO_HOST, first);
        CALL(aclrtSynchronizeStream, first);
    }
#undef CALL
    bool is_right() const { return values == std::vector<float>(kCount, 7); }
};

// Runs a program; returns "" if it is right.
std::string run_program(long failing_allocation) {
    std::string error;
    Program program;
    if (failing_allocation) arm(failing_allocation);
    try {
        program.run();
        is_armed = false;
        if (!program.is_right()) error = "wrong results";
    } catch (const Refused& refused) {
        is_armed = false;
        const char* text = aclGetRecentErrMsg();
        error = std::string(refused.call) + " returned " + std::to_string(refused.status) + " " + (text ? text : "");
    } catch (const std::bad_alloc&) {
        is_armed = false;
        error = "std::bad_alloc";
    }
    return error;
}

long fail_each_allocation() {
    const long step = fails_later ? 5 : 1;
    for (long n = 1; n < 100000; n += step) {
        const std::string error = run_program(n);
        const std::string place = "allocation " + std::to_string(n) + (fails_later ? " and later ones" : "");
        check(error != "wrong results", place + ": wrong results");
        if (count < n) return n / step;
        const std::string next = run_program(0);
        check(next.empty(), place + ": the next program: " + next);
    }
    check(false, "no end");
    return 0;
}

}  // namespace

int main() {
    check(aclrtSetDevice(0) == ACL_SUCCESS, "aclrtSetDevice");
    check(run_program(0).empty(), "without a failure");
    long all = 0;
    for (const bool later : {false, true}) {
        fails_later = later;
        const long places = fail_each_allocation();
        check(places > 100, "allocations fail");
        all += places;
    }
    std::printf("%ld failed allocations\n", all);
    return bench::finish("a runtime without memory");
}
