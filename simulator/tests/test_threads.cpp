// Launches from several threads at once, from threads that end, and after a fork: each has its own results, report and
// count. Under ThreadSanitizer (CMake preset tsan), there is also no race.
#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <thread>

#include "instruction_bench.h"

using namespace AscendC;
using namespace bench;

namespace {

constexpr uint32_t kCores = 4, kPart = 64, kBytes = kCores * kPart * sizeof(float);

struct Settings {
    float addend;
    bool waits;              // whether the cores wait for each other, as they must
    bool one_order = false;  // the simulator starts no thread for the second order
};

// y = x + addend; then each core copies the part of y that the next core wrote to z.
void pass_to_neighbour(uint8_t* const* addresses, const void* context) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_MIX_AIV_1_0);
    const auto& settings = *static_cast<const Settings*>(context);
    const auto core = uint32_t(GetBlockIdx());
    const PartAndNumber<kPart> sum(addresses[0], core, settings.addend);
    const LocalTensor<float>& t = sum.values;
    DataCopy(part_of<kPart>(addresses[1], core), t, kPart);
    PipeBarrier<PIPE_ALL>();
    if (settings.waits) SyncAll();
    DataCopy(t, part_of<kPart>(addresses[1], (core + 1) % kCores), kPart);
    PipeBarrier<PIPE_ALL>();
    DataCopy(part_of<kPart>(addresses[2], core), t, kPart);
    PipeBarrier<PIPE_ALL>();
}

// Returns "" or what is wrong about a launch with these settings.
std::string launch_and_check(const Settings& settings) {
    std::vector<float> x(kCores * kPart), y(x.size(), -1), z(x.size(), -1);
    for (size_t i = 0; i < x.size(); ++i) x[i] = float(i);
    const ascend_sim_memory memories[] = {{"x", x.data(), kBytes, ASCEND_SIM_IN},
                                          {"y", y.data(), kBytes, ASCEND_SIM_OUT},
                                          {"z", z.data(), kBytes, ASCEND_SIM_OUT}};
    const ascend_sim_arg args[] = {{0, 0}, {1, 0}, {2, 0}};
    ascend_sim_launch launch{};
    launch.soc = soc();
    launch.block_dim = kCores;
    launch.one_order = settings.one_order;
    const uint64_t launches_before = ascend_sim_launches();
    const int32_t status = ascend_sim_run_call(pass_to_neighbour, &settings, memories, 3, args, 3, &launch);
    if (ascend_sim_launches() != launches_before + 1) return "the count of launches is that of other threads";
    const std::string report = ascend_sim_report(), message = ascend_sim_message();
    if (!settings.waits) {
        const bool is_refused = status == ASCEND_SIM_BROKEN_RULE && message.find("SIM-INIT-01") == 0;
        return is_refused && z[0] == -1 ? "" : "expected SIM-INIT-01 but got " + report;
    }
    if (status != ASCEND_SIM_OK || !message.empty()) return report;
    for (size_t i = 0; i < z.size(); ++i)
        if (z[i] != float((i + kPart) % z.size()) + settings.addend) return "wrong results";
    return "";
}

// Waits until all threads are here, so that they launch at once.
class Start {
public:
    explicit Start(int threads) : missing_(threads) {}
    void wait() {
        for (--missing_; missing_ > 0;) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }

private:
    std::atomic<int> missing_;
};

// The first launches of the process, by threads of which every second one breaks a rule.
void check_launches_at_once() {
    constexpr int kThreads = 4, kLaunches = 5;
    Start start(kThreads);
    std::vector<std::string> wrong(kThreads);
    std::vector<std::thread> threads;
    for (int i = 0; i < kThreads; ++i)
        threads.emplace_back([&, i] {
            start.wait();
            for (int n = 0; n < kLaunches && wrong[i].empty(); ++n)
                wrong[i] = launch_and_check({float(100 * i + n), i % 2 == 0});
            if (ascend_sim_launches() != kLaunches) wrong[i] += " launches of other threads are counted";
        });
    for (std::thread& thread : threads) thread.join();
    for (const std::string& text : wrong) check(text.empty(), "launches at once: " + text);
}

// Each thread finds one entry in a library of ASCEND_SIM_KERNELS and misses another.
void check_replaced_kernels() {
    constexpr int kThreads = 4;
    Dl_info info = {};
    dladdr(reinterpret_cast<void*>(&ascend_sim_find_kernel), &info);
    setenv("ASCEND_SIM_KERNELS", info.dli_fname, 1);
    Start start(kThreads);
    std::atomic<int> found{0};
    std::vector<std::thread> threads;
    for (int i = 0; i < kThreads; ++i)
        threads.emplace_back([&] {
            start.wait();
            for (const char* entry : {"ascend_sim_launches", "no_entry"})
                found += ascend_sim_find_kernel("/nonexistent", entry) != nullptr;
        });
    for (std::thread& thread : threads) thread.join();
    unsetenv("ASCEND_SIM_KERNELS");
    check(found == kThreads, "replaced kernels: " + std::to_string(found) + " entries were found");
}

// Each thread launches once and ends, while the next one starts.
void check_threads_that_end() {
    constexpr int kThreads = 12;
    std::vector<std::string> wrong(kThreads);
    std::thread before;
    for (int i = 0; i < kThreads; ++i) {
        std::thread next([&, i] { wrong[i] = launch_and_check({float(i), true}); });
        if (before.joinable()) before.join();
        before = std::move(next);
    }
    before.join();
    for (const std::string& text : wrong) check(text.empty(), "threads that end: " + text);
}

// Forks while another thread launches. Both processes continue to launch; the child does so without a new
// thread, which ThreadSanitizer does not allow there.
void check_fork() {
    std::atomic<bool> ends{false};
    std::atomic<int> launches{0};
    std::string wrong;
    std::thread other([&] {
        for (; !ends; ++launches)
            if (const std::string text = launch_and_check({3, true}); !text.empty()) wrong = text;
    });
    while (launches < 2) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    const pid_t child = fork();
    if (child == 0) {
        alarm(120);  // a child that waits for a lock of a missing thread ends here
        _exit(launch_and_check({5, true, true}).empty() ? 0 : 1);
    }
    const int launches_at_fork = launches;
    while (launches < launches_at_fork + 2) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    ends = true;
    other.join();
    int status = -1;
    check(waitpid(child, &status, 0) == child && status == 0, "the child ended with " + std::to_string(status));
    check(wrong.empty(), "beside a fork: " + wrong);
    check(launch_and_check({4, true}).empty(), "the parent after the fork");
}

}  // namespace

int main() {
    check_launches_at_once();
    check_replaced_kernels();
    check_threads_that_end();
    check_fork();
    return finish("threads");
}
