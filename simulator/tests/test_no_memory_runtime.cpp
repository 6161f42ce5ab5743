// Every allocation of a program of the simulated runtime fails alone, and every fifth one together with all later ones:
// of a program with streams, of one with communicators, and of one with a configuration file of aclInit. A call of CANN
// returns an error, or throws std::bad_alloc, or needs no memory there. The program can release the objects that it
// has, and the next program on the same device is right. A thread that a launch cannot create has the same effect.
#include <filesystem>
#include <fstream>
#include <new>

#include "acl/acl.h"
#include "aclnn/acl_meta.h"
#include "failing_memory.h"
#include "hccl/hccl.h"
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
const char* configuration_file = nullptr;  // of aclInit

// x = x + 1, in place.
void add_one(uint8_t* const* addresses, const void*) {
    const auto core = uint32_t(GetBlockIdx());
    const bench::PartAndNumber<kPart> sum(addresses[0], core, 1);
    DataCopy(bench::part_of<kPart>(addresses[0], core), sum.values, kPart);
    PipeBarrier<PIPE_ALL>();
}

struct Refused {
    const char* call;
    int status;
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
    HcclComm communicator = nullptr;
    bool captures = false, groups = false, is_initialized = false;
    std::vector<float> values = std::vector<float>(kCount, 1);

    Program() = default;
    Program(const Program&) = delete;
    ~Program() {
        allocations.is_armed = false;
        if (captures) aclmdlRICaptureEnd(first, &graph);
        if (groups) release("HcclGroupEnd", HcclGroupEnd());
        for (aclrtStream stream : {first, second}) {
            if (!stream) continue;
            aclrtSynchronizeStream(stream);  // may return the error of work that had no memory
            release("aclrtSynchronizeStream", aclrtSynchronizeStream(stream));
        }
        if (communicator) release("HcclCommDestroy", HcclCommDestroy(communicator));
        if (is_initialized) release("aclFinalize", aclFinalize());
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
    static void call(const char* name, int status) {
        if (status != 0) throw Refused{name, status};
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

    // values = values + 1 after a sum over the only rank, a gathering and copies, on a communicator of each kind.
    void communicate() {
        for (void** memory : {&x, &y}) CALL(aclrtMalloc, memory, kBytes, ACL_MEM_MALLOC_HUGE_FIRST);
        CALL(aclrtCreateStream, &first);
        CALL(aclrtMemcpyAsync, x, kBytes, values.data(), kBytes, ACL_MEMCPY_HOST_TO_DEVICE, first);
        int32_t device = 0;
        CALL(HcclCommInitAll, 1, &device, &communicator);
        launch_add_one();
        CALL(HcclAllReduce, x, y, kCount, HCCL_DATA_TYPE_FP32, HCCL_REDUCE_SUM, communicator, first);
        CALL(HcclAlltoAll, y, kCount, HCCL_DATA_TYPE_FP32, x, kCount, HCCL_DATA_TYPE_FP32, communicator, first);
        CALL(aclrtSynchronizeStream, first);
        CALL(HcclCommDestroy, communicator);
        communicator = nullptr;
        HcclRootInfo root;
        HcclCommConfig config;
        HcclCommConfigInit(&config);
        const char own_name[] = "the only rank of the communicator";
        std::memcpy(config.hcclCommName, own_name, sizeof own_name);
        CALL(HcclGetRootInfo, &root);
        CALL(HcclCommInitRootInfoConfig, 1, &root, 0, &config, &communicator);
        char name[COMM_NAME_MAX_LENGTH] = "";
        CALL(HcclGetCommName, communicator, name);
        check(!std::strcmp(name, own_name), "the communicator's name");
        CALL(HcclGroupStart);
        groups = true;
        CALL(HcclAllGather, x, y, kCount, HCCL_DATA_TYPE_FP32, communicator, first);
        CALL(HcclBroadcast, y, kCount, HCCL_DATA_TYPE_FP32, 0, communicator, first);
        CALL(HcclBarrier, communicator, first);
        groups = false;
        CALL(HcclGroupEnd);
        CALL(aclrtMemcpyAsync, values.data(), kBytes, y, kBytes, ACL_MEMCPY_DEVICE_TO_HOST, first);
        CALL(aclrtSynchronizeStream, first);
        HcclResult error = HCCL_SUCCESS;
        CALL(HcclGetCommAsyncError, communicator, &error);
        CALL(HcclGetCommAsyncError, communicator, &error);
        check(error == HCCL_SUCCESS, "the communicator has an error");
    }

    // values = values + 1, between aclInit and aclFinalize.
    void initialize() {
        CALL(aclInit, configuration_file);
        is_initialized = true;
        CALL(aclrtMalloc, &x, kBytes, ACL_MEM_MALLOC_HUGE_FIRST);
        CALL(aclrtCreateStream, &first);
        CALL(aclrtMemcpy, x, kBytes, values.data(), kBytes, ACL_MEMCPY_HOST_TO_DEVICE);
        launch_add_one();
        CALL(aclrtSynchronizeStream, first);
        CALL(aclrtMemcpy, values.data(), kBytes, x, kBytes, ACL_MEMCPY_DEVICE_TO_HOST);
    }
#undef CALL
    bool has(float value) const { return values == std::vector<float>(kCount, value); }
};

struct Kind {
    const char* name;
    void (Program::*run)();
    float result;
};

// Runs a program; returns "" if it is right.
std::string run_program(const Kind& kind, long failing_allocation, long failing_thread = 0) {
    std::string error;
    Program program;
    if (failing_allocation) allocations.arm(failing_allocation);
    if (failing_thread) thread_creations.arm(failing_thread);
    try {
        (program.*kind.run)();
        allocations.is_armed = false;
        if (!program.has(kind.result)) error = "wrong results";
    } catch (const Refused& refused) {
        allocations.is_armed = false;
        const char* text = aclGetRecentErrMsg();
        error = std::string(refused.call) + " returned " + std::to_string(refused.status) + " " + (text ? text : "");
    } catch (const std::bad_alloc&) {
        allocations.is_armed = false;
        error = "std::bad_alloc";
    }
    thread_creations.is_armed = false;
    return error;
}

bool ends_with(const std::string& text, const std::string& end) {
    return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

const std::string kKernelFailed =
    "add_one: kernel must keep the simulator's rules but got too little memory or too few threads: ";

long fail_each_allocation(const Kind& kind) {
    const long step = fails_later ? 5 : 1;
    bool kernel_fails = false;
    for (long n = 1; n < 100000; n += step) {
        const std::string error = run_program(kind, n);
        const std::string place =
            kind.name + (", allocation " + std::to_string(n)) + (fails_later ? " and later ones" : "");
        check(error != "wrong results", place + ": wrong results");
        check(fails_later || !ends_with(error, " "), place + ": an error without a text: " + error);
        kernel_fails |= ends_with(error, kKernelFailed + "std::bad_alloc");
        if (allocations.count < n) {
            check(error.empty(), place + ": without a failure: " + error);
            check(kernel_fails || fails_later, kind.name + std::string(": no call returns the message of a kernel"));
            return n / step;
        }
        const std::string next = run_program(kind, 0);
        check(next.empty(), place + ": the next program: " + next);
    }
    check(false, kind.name + std::string(" has no end"));
    return 0;
}

// Each thread of a launch fails. The call that waits for the launch returns the kernel's message.
void fail_each_thread(const Kind& kind) {
    for (long n = 1; n < 1000; ++n) {
        const std::string error = run_program(kind, 0, n);
        const std::string place = kind.name + (", thread " + std::to_string(n));
        if (thread_creations.count < n) {
            check(n > 1, place + ": no launch creates a thread");
            return check(error.empty(), place + ": without a failure: " + error);
        }
        check(ends_with(error, kKernelFailed + "Resource temporarily unavailable"), place + ": " + error);
        const std::string next = run_program(kind, 0);
        check(next.empty(), place + ": the next program: " + next);
    }
    check(false, kind.name + std::string(" has no end"));
}

// The first communicator of a process starts a thread.
void fail_thread_of_communicators() {
    int32_t device = 0;
    HcclComm communicator = nullptr;
    thread_creations.arm(1);
    const HcclResult status = HcclCommInitAll(1, &device, &communicator);
    thread_creations.is_armed = false;
    const std::string text = aclGetRecentErrMsg();
    check(status == HCCL_E_SYSCALL &&
              ends_with(text, "HcclCommInitAll: thread must be created but got: Resource temporarily unavailable."),
          "a communicator without a thread: status " + std::to_string(status) + " " + text);
    check(HcclCommInitAll(1, &device, &communicator) == HCCL_SUCCESS && HcclCommDestroy(communicator) == HCCL_SUCCESS,
          "the communicator after one without a thread");
}

// The process has no file of a communicator open or mapped.
void check_files(const std::string& folder) {
    for (const char* table : {"/proc/self/maps", "/proc/self/fd"}) {
        std::string found;
        if (std::filesystem::is_directory(table)) {
            for (const auto& file : std::filesystem::directory_iterator(table)) {
                std::error_code closed;  // the iterator's own file
                found += std::filesystem::read_symlink(file, closed).string() + "\n";
            }
        } else {
            std::ifstream text(table);
            found.assign(std::istreambuf_iterator<char>(text), {});
        }
        check(found.find(folder + "/hccl-") == std::string::npos, std::string(table) + " has a file of a communicator");
    }
}

// Makes the folder of the communicators, with the file of aclInit.
std::string make_folder() {
    std::string folder = (std::filesystem::temp_directory_path() / "no-memory-XXXXXX").string();
    check(mkdtemp(folder.data()) != nullptr, "no temporary folder");
    setenv("TMPDIR", folder.c_str(), 1);
    unsetenv("ASCEND_SIM_REPORT_DIR");
    std::ofstream(folder + "/acl.json")
        << R"({"err_msg_mode": "1", "StackSize": {"aicore_stack_size": 32768}, "acl_graph": {"event_mode": "0"},
               "defaultDevice": {"default_device": "0"}, "dump": {"dump_scene": "lite_exception"},
               "profiler": {"switch": "off"}})";
    return folder;
}

}  // namespace

int main() {
    const std::string folder = make_folder(), file = folder + "/acl.json";
    configuration_file = file.c_str();
    check(aclrtSetDevice(0) == ACL_SUCCESS, "aclrtSetDevice");
    // The first communicator starts a thread, which needs memory, too.
    fail_thread_of_communicators();
    const Kind kinds[] = {{"streams", &Program::run, 7},
                          {"aclInit", &Program::initialize, 2},
                          {"communicators", &Program::communicate, 2}};
    for (const Kind& kind : kinds) {
        const std::string error = run_program(kind, 0);
        check(error.empty(), kind.name + (" without a failure: " + error));
        for (const bool later : {false, true}) {
            fails_later = later;
            const long places = fail_each_allocation(kind);
            check(places > (later ? 20 : 100), kind.name + std::string(": allocations fail"));
            std::printf("%s%s: %ld failed allocations\n", kind.name, later ? ", later ones too" : "", places);
        }
        fail_each_thread(kind);
    }
    check_files(folder);
    std::filesystem::remove_all(folder);
    return bench::finish("a runtime without memory");
}
