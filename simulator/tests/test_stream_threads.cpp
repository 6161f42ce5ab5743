// The simulated runtime with several threads: streams of each thread, a shared stream, events between threads, queries,
// callbacks and forks. Under ThreadSanitizer (CMake preset tsan), there is also no race: the order of a stream and of
// events also orders the memory accesses of the work.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <thread>

#include "acl/acl.h"
#include "include/ascend_sim_cann.h"
#include "instruction_bench.h"

using namespace AscendC;
using bench::check;

namespace {

// ThreadSanitizer supports no thread that begins after a fork of several. In such a fork, the address sanitizer's
// allocator waits for its own locks, which other threads held.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr bool kTestsForks = false;
#else
constexpr bool kTestsForks = true;
#endif
constexpr int64_t kCores = 2;
constexpr uint32_t kPart = 64, kCount = kCores * kPart;
constexpr size_t kBytes = kCount * sizeof(float);

std::atomic<int> g_failed_calls{0};

// Counts a status that is not ACL_SUCCESS. Threads may call it.
void call(const char* name, aclError status) {
    if (status == ACL_SUCCESS) return;
    const char* text = aclGetRecentErrMsg();
    std::printf("%s: %d %s\n", name, status, text ? text : "");
    ++g_failed_calls;
}
#define CALL(function, ...) call(#function, function(__VA_ARGS__))

// x = x + 1, in place.
void add_one(uint8_t* const* addresses, const void*) {
    GlobalTensor<float> x;
    x.SetGlobalBuffer(reinterpret_cast<float*>(addresses[0]) + GetBlockIdx() * kPart, kPart);
    TPipe pipe;
    TBuf<TPosition::VECCALC> buffer;
    pipe.InitBuffer(buffer, kPart * sizeof(float));
    LocalTensor<float> t = buffer.Get<float>();
    DataCopy(t, x, kPart);
    PipeBarrier<PIPE_ALL>();
    Adds(t, t, 1.0f, kPart);
    PipeBarrier<PIPE_ALL>();
    DataCopy(x, t, kPart);
    PipeBarrier<PIPE_ALL>();
}

void launch_add_one(void* x, aclrtStream stream) {
    ascend_sim_kernel kernel{};
    kernel.name = "add_one";
    kernel.arch = __CCE_AICORE__;
    kernel.blocks = kCores;
    kernel.stream = stream;
    kernel.call = add_one;
    kernel.release = [](void*) {};
    kernel.pointers = &x;
    kernel.pointer_count = 1;
    CALL(ascend_sim_launch_kernel, &kernel);
}

// Device memory with kCount floats, all 0.
class Buffer {
public:
    Buffer() {
        CALL(aclrtMalloc, &memory_, kBytes, ACL_MEM_MALLOC_HUGE_FIRST);
        CALL(aclrtMemset, memory_, kBytes, 0, kBytes);
    }
    Buffer(const Buffer&) = delete;
    ~Buffer() { CALL(aclrtFree, memory_); }
    void* get() const { return memory_; }
    // Whether every element has this value.
    bool holds(float value) const {
        std::vector<float> values(kCount);
        CALL(aclrtMemcpy, values.data(), kBytes, memory_, kBytes, ACL_MEMCPY_DEVICE_TO_HOST);
        return values == std::vector<float>(kCount, value);
    }

private:
    void* memory_ = nullptr;
};

class Stream {
public:
    Stream() { CALL(aclrtCreateStream, &stream_); }
    Stream(const Stream&) = delete;
    ~Stream() { CALL(aclrtDestroyStream, stream_); }
    operator aclrtStream() const { return stream_; }
    void synchronize() const { CALL(aclrtSynchronizeStream, stream_); }

private:
    aclrtStream stream_ = nullptr;
};

class Event {
public:
    Event() { CALL(aclrtCreateEventExWithFlag, &event_, ACL_EVENT_SYNC); }
    Event(const Event&) = delete;
    ~Event() { CALL(aclrtDestroyEvent, event_); }
    operator aclrtEvent() const { return event_; }

private:
    aclrtEvent event_ = nullptr;
};

// Runs body(index) on threads of which each has set the device, all at once.
void on_threads(int count, const std::function<void(int)>& body) {
    std::atomic<int> missing{count};
    std::vector<std::thread> threads;
    for (int i = 0; i < count; ++i)
        threads.emplace_back([&, i] {
            for (--missing; missing > 0;) std::this_thread::sleep_for(std::chrono::milliseconds(1));
            CALL(aclrtSetDevice, 0);
            body(i);
        });
    for (std::thread& thread : threads) thread.join();
}

// ---- tests -----------------------------------------------------------------------------------------------

// The first calls of the process. Each thread has its own streams, with an event between them.
void test_streams_of_each_thread() {
    std::atomic<int> wrong{0};
    on_threads(4, [&](int index) {
        Stream first, second;
        Event event;
        Buffer x;
        std::vector<float> from(kCount, float(index)), to(kCount, -1);
        for (int repeat = 0; repeat < 3; ++repeat) {
            CALL(aclrtMemcpyAsync, x.get(), kBytes, from.data(), kBytes, ACL_MEMCPY_HOST_TO_DEVICE, first);
            launch_add_one(x.get(), first);
            CALL(aclrtRecordEvent, event, first);
            CALL(aclrtStreamWaitEvent, second, event);
            launch_add_one(x.get(), second);
            CALL(aclrtMemcpyAsync, to.data(), kBytes, x.get(), kBytes, ACL_MEMCPY_DEVICE_TO_HOST, second);
            second.synchronize();
            wrong += to != std::vector<float>(kCount, float(index + 2));
        }
    });
    check(wrong == 0, "streams of each thread");
}

// All threads queue work on one stream. The stream runs it one after the other, so host_calls needs no lock.
void test_a_shared_stream() {
    constexpr int kThreads = 4, kLaunches = 5;
    CALL(aclrtSetDevice, 0);
    Stream stream;
    Buffer x;
    int host_calls = 0;
    on_threads(kThreads, [&](int index) {
        for (int i = 0; i < kLaunches; ++i) {
            launch_add_one(x.get(), stream);
            CALL(aclrtLaunchHostFunc, stream, [](void* count) { ++*static_cast<int*>(count); }, &host_calls);
        }
        if (index % 2) stream.synchronize();
    });
    stream.synchronize();
    check(host_calls == kThreads * kLaunches, "host functions of a shared stream: " + std::to_string(host_calls));
    check(x.holds(kThreads * kLaunches), "kernels of a shared stream");
}

// One thread's stream waits for the event of another thread's stream, while a third thread queries and waits.
void test_events_between_threads() {
    CALL(aclrtSetDevice, 0);
    Buffer x;
    for (int repeat = 0; repeat < 5; ++repeat) {
        Stream writer, reader;
        Event written;
        std::atomic<bool> is_recorded{false};
        std::atomic<int> wrong{0};
        on_threads(3, [&](int index) {
            if (index == 0) {
                launch_add_one(x.get(), writer);
                CALL(aclrtRecordEvent, written, writer);
                is_recorded = true;
                return;
            }
            while (!is_recorded) std::this_thread::sleep_for(std::chrono::milliseconds(1));
            if (index == 1) {
                CALL(aclrtStreamWaitEvent, reader, written);
                launch_add_one(x.get(), reader);
                reader.synchronize();
                return;
            }
            aclrtEventRecordedStatus status = ACL_EVENT_RECORDED_STATUS_NOT_READY;
            CALL(aclrtQueryEventStatus, written, &status);
            CALL(aclrtSynchronizeEvent, written);
            CALL(aclrtQueryEventStatus, written, &status);
            wrong += status != ACL_EVENT_RECORDED_STATUS_COMPLETE;
        });
        check(wrong == 0, "an event is complete after the wait for it");
        check(x.holds(float(2 * repeat + 2)), "kernels on both sides of an event");
    }
}

// Threads create, use and destroy streams, events and memory, while another one synchronizes the device.
void test_objects_come_and_go() {
    std::thread waiting([] {
        CALL(aclrtSetDevice, 0);
        for (int i = 0; i < 20; ++i) CALL(aclrtSynchronizeDevice);
    });
    on_threads(3, [&](int) {
        for (int i = 0; i < 5; ++i) {
            Buffer x;
            Stream stream;
            Event event;
            launch_add_one(x.get(), stream);
            CALL(aclrtRecordEvent, event, stream);
            aclrtStreamStatus status = ACL_STREAM_STATUS_NOT_READY;
            CALL(aclrtStreamQuery, stream, &status);
            CALL(aclrtSynchronizeEvent, event);
            check(x.holds(1), "a kernel on a new stream");
        }
    });
    waiting.join();
}

// A thread processes the callbacks of a stream on which other threads launch. The callbacks run on that thread only.
void test_callbacks() {
    constexpr int kThreads = 3, kCallbacks = 4;
    CALL(aclrtSetDevice, 0);
    Stream stream;
    Buffer x;
    int callbacks = 0;
    std::atomic<bool> is_subscribed{false}, ends{false};
    std::thread processing([&] {
        CALL(aclrtSetDevice, 0);
        const auto self = uint64_t(pthread_self());
        CALL(aclrtSubscribeReport, self, stream);
        is_subscribed = true;
        while (!ends) aclrtProcessReport(10);
        CALL(aclrtUnSubscribeReport, self, stream);
    });
    while (!is_subscribed) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    on_threads(kThreads, [&](int) {
        for (int i = 0; i < kCallbacks; ++i) {
            launch_add_one(x.get(), stream);
            CALL(
                aclrtLaunchCallback, [](void* count) { ++*static_cast<int*>(count); }, &callbacks, ACL_CALLBACK_BLOCK,
                stream);
        }
        stream.synchronize();
    });
    ends = true;
    processing.join();
    check(callbacks == kThreads * kCallbacks, "callbacks of a stream: " + std::to_string(callbacks));
    check(x.holds(kThreads * kCallbacks), "kernels beside callbacks");
}

// Forks while other threads allocate and launch. A child does not wait for a lock that a thread of its parent held:
// neither one that uses the NPU, nor one that only ends.
void test_forks() {
    std::atomic<bool> ends{false};
    std::atomic<int> launches{0};
    std::vector<std::thread> threads;
    for (int i = 0; i < 2; ++i)
        threads.emplace_back([&] {
            CALL(aclrtSetDevice, 0);
            Stream stream;
            for (; !ends; ++launches) {
                Buffer x;
                launch_add_one(x.get(), stream);
                stream.synchronize();
            }
        });
    // These threads hold the locks of the memory and of the streams for most of their time.
    threads.emplace_back([&] {
        CALL(aclrtSetDevice, 0);
        while (!ends) {
            void* memory = nullptr;
            CALL(aclrtMalloc, &memory, size_t(4) << 20, ACL_MEM_MALLOC_HUGE_FIRST);
            CALL(aclrtFree, memory);
        }
    });
    threads.emplace_back([&] {
        CALL(aclrtSetDevice, 0);
        Stream stream;
        aclrtStreamStatus status = ACL_STREAM_STATUS_NOT_READY;
        while (!ends) CALL(aclrtStreamQuery, stream, &status);
    });
    while (launches < 2) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    for (int i = 0; i < 32; ++i) {
        const pid_t child = fork();
        if (child == 0) {
            alarm(60);
            CALL(aclrtSetDevice, 0);
            for (int launch = 0; i % 2 && launch < 3; ++launch) {
                Buffer x;
                Stream stream;
                launch_add_one(x.get(), stream);
                stream.synchronize();
                if (!x.holds(1)) ++g_failed_calls;
            }
            _exit(g_failed_calls ? 6 : 7);
        }
        int status = -1;
        const bool ended = waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 7;
        check(ended, "a forked child ended with status " + std::to_string(status));
    }
    ends = true;
    for (std::thread& thread : threads) thread.join();
}

}  // namespace

int main() {
    test_streams_of_each_thread();
    test_a_shared_stream();
    test_events_between_threads();
    test_objects_come_and_go();
    test_callbacks();
    if (kTestsForks) test_forks();
    check(g_failed_calls == 0, std::to_string(g_failed_calls) + " calls failed");
    return bench::finish("threads of the runtime");
}
