// Every allocation of a launch fails alone, and every fifth one together with all later ones. The launch returns
// ASCEND_SIM_BAD_CALL with a message and leaves the results as they were, or it is right. The next launch is right. A
// thread that cannot be created has the same effect.
#include "failing_memory.h"
#include "instruction_bench.h"

using namespace AscendC;
using namespace bench;
using namespace failing_memory;

namespace {

constexpr uint32_t kCores = 2, kPart = 64, kBytes = kCores * kPart * sizeof(float);

// y = x + 1. With SyncAll, the first cores wait when an allocation of the last one fails.
void add_one(uint8_t* const* addresses, const void* waits) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_MIX_AIV_1_0);
    const auto core = uint32_t(GetBlockIdx());
    const PartAndNumber<kPart> sum(addresses[0], core, 1);
    if (*static_cast<const bool*>(waits)) SyncAll();
    DataCopy(part_of<kPart>(addresses[1], core), sum.values, kPart);
    PipeBarrier<PIPE_ALL>();
}

struct Launch {
    bool waits = false, one_order = false;
    const char* soc = bench::soc();
    std::vector<float> x = std::vector<float>(kCores * kPart, 2), y = std::vector<float>(kCores * kPart, -1);

    int32_t run() {
        const ascend_sim_memory memories[] = {{"x", x.data(), kBytes, ASCEND_SIM_IN},
                                              {"y", y.data(), kBytes, ASCEND_SIM_OUT}};
        const ascend_sim_arg args[] = {{0, 0}, {1, 0}};
        ascend_sim_launch launch{};
        launch.soc = soc;
        launch.block_dim = kCores;
        launch.one_order = one_order;
        return ascend_sim_run_call(add_one, &waits, memories, 2, args, 2, &launch);
    }
    bool has(float value) const { return y == std::vector<float>(y.size(), value); }
};

void check_launch_after(const Launch& failed, const std::string& place) {
    Launch next = failed;
    check(next.run() == ASCEND_SIM_OK && next.has(3), place + ": the next launch: " + ascend_sim_report());
}

long fail_each_allocation(const Launch& launch, const std::string& name) {
    const long step = fails_later ? 5 : 1;
    for (long n = 1; n < 100000; n += step) {
        const std::string place = name + ", allocation " + std::to_string(n);
        Launch failed = launch;
        allocations.arm(n);
        const int32_t status = failed.run();
        allocations.is_armed = false;
        const std::string message = ascend_sim_message();
        if (status == ASCEND_SIM_OK) {
            check(failed.has(3), place + ": wrong results");
        } else {
            check(status == ASCEND_SIM_BAD_CALL, place + ": " + ascend_sim_report());
            check(message.find("memory") != std::string::npos, place + ": the message: " + message);
            check(failed.has(-1), place + ": the results changed");
        }
        if (allocations.count < n) return n / step;
        check_launch_after(launch, place);
    }
    check(false, name + " has no end");
    return 0;
}

// Each thread that a launch creates fails. Returns how many there are.
long fail_each_thread(const Launch& launch, const std::string& name) {
    for (long n = 1; n < 1000; ++n) {
        const std::string place = name + ", thread " + std::to_string(n);
        Launch failed = launch;
        thread_creations.arm(n);
        const int32_t status = failed.run();
        thread_creations.is_armed = false;
        if (thread_creations.count < n) {
            check(status == ASCEND_SIM_OK && failed.has(3), place + ": without a failure: " + ascend_sim_report());
            return n - 1;
        }
        const std::string message = ascend_sim_message(), report = ascend_sim_report();
        check(status == ASCEND_SIM_BAD_CALL, place + ": " + report);
        check(message == "too little memory or too few threads: Resource temporarily unavailable",
              place + ": the message: " + message);
        check(report.find(message) != std::string::npos, place + ": the report: " + report);
        check(failed.has(-1), place + ": the results changed");
        check_launch_after(launch, place);
    }
    check(false, name + " has no end");
    return 0;
}

}  // namespace

int main() {
    long all = 0, threads = 0;
    for (const bool later : {false, true}) {
        fails_later = later;
        for (const bool both : {false, true}) {  // cores that wait for each other, in both orders
            Launch launch;
            launch.waits = both;
            launch.one_order = !both;
            check_launch_after(launch, "without a failure");
            const char* name = both ? "two passes" : "one pass";
            const long places = fail_each_allocation(launch, std::string(name) + (later ? ", later ones too" : ""));
            check(places > 10, "allocations fail");
            all += places;
            const long created = fail_each_thread(launch, name);
            check(both ? created > 0 : created == 0, std::string(name) + ": threads: " + std::to_string(created));
            threads += created;
        }
    }
    std::printf("%ld failed allocations, %ld failed threads\n", all, threads);
    return failures != 0;
}
