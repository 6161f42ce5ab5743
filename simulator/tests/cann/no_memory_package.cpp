// Every allocation of a process's first call of an operator of a package fails alone, and every fifth one together with
// all later ones. The call returns an error and leaves the output as it was, or throws std::bad_alloc, or is right. The
// next call, in another thread, is right, or returns an error with a text: the registrations of a library of tilings,
// one of which failed, do not run again. Stream and memory stay usable. Each failure has a process of its own, because
// the first call reads the package's files. The program is linked with the package of the folder foreign/.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "../failing_memory.h"
#include "acl/acl.h"
#include "aclnn/acl_meta.h"

using namespace failing_memory;

extern "C" {
aclnnStatus aclnnWeightedAddGetWorkspaceSize(const aclTensor* x, const aclTensor* y, double alpha, char* kind,
                                             const aclFloatArray* weights, const aclBoolArray* flags,
                                             const aclIntArray* axes, bool adds, const aclIntArray* shift,
                                             int64_t copies, const aclTensor* out, uint64_t* bytes,
                                             aclOpExecutor** executor);
aclnnStatus aclnnWeightedAdd(void* workspace, uint64_t bytes, aclOpExecutor* executor, aclrtStream stream);
}

namespace {

constexpr int64_t kCount = 21;
constexpr size_t kBytes = kCount * sizeof(float);
// glibc ends a process that finds no memory for the thread-local variables of a library (elf/dl-tls.c, oom).
constexpr int kEndedByGlibc = 127;
constexpr unsigned kSeconds = 60;  // in which a process ends, unless it waits for a lock that was not released
enum ExitStatus { kRight = 0, kWrong = 1, kNothingFailed = 2, kNextFails = 4 };  // flags

// The objects of a call: out = 0.5 * x + 1.5 * y.
struct Call {
    void *x = nullptr, *y = nullptr, *out = nullptr, *workspace = nullptr;
    aclrtStream stream = nullptr;
    aclTensor *x_tensor = nullptr, *y_tensor = nullptr, *out_tensor = nullptr;
    aclIntArray *axes = nullptr, *shift = nullptr;

    bool make() {
        const std::vector<float> values(kCount, 2);
        const int64_t size = kCount, stride = 1, zero = 0;
        bool is_made = aclrtCreateStream(&stream) == ACL_SUCCESS &&
                       aclrtMalloc(&workspace, size_t{17} << 20, ACL_MEM_MALLOC_HUGE_FIRST) == ACL_SUCCESS;
        for (void** memory : {&x, &y, &out})
            is_made = is_made && aclrtMalloc(memory, kBytes, ACL_MEM_MALLOC_HUGE_FIRST) == ACL_SUCCESS &&
                      aclrtMemcpy(*memory, kBytes, values.data(), kBytes, ACL_MEMCPY_HOST_TO_DEVICE) == ACL_SUCCESS;
        const auto tensor = [&](void* memory) {
            return aclCreateTensor(&size, 1, ACL_FLOAT, &stride, 0, ACL_FORMAT_ND, &size, 1, memory);
        };
        x_tensor = tensor(x);
        y_tensor = tensor(y);
        out_tensor = tensor(out);
        axes = aclCreateIntArray(&zero, 1);
        shift = aclCreateIntArray(&zero, 1);
        return is_made && x_tensor && y_tensor && out_tensor && axes && shift;
    }
    bool has(float value) const {
        std::vector<float> values(kCount);
        return aclrtMemcpy(values.data(), kBytes, out, kBytes, ACL_MEMCPY_DEVICE_TO_HOST) == ACL_SUCCESS &&
               values == std::vector<float>(kCount, value);
    }
    // Returns "" or the error.
    std::string run() const {
        uint64_t bytes = 0;
        aclOpExecutor* executor = nullptr;
        try {
            int status = aclnnWeightedAddGetWorkspaceSize(x_tensor, y_tensor, 0.5, nullptr, nullptr, nullptr, axes,
                                                          true, shift, 1, out_tensor, &bytes, &executor);
            if (!status) status = aclnnWeightedAdd(workspace, bytes, executor, stream);
            if (!status) status = aclrtSynchronizeStream(stream);
            allocations.is_armed = false;
            if (!status) return "";
            const char* text = aclGetRecentErrMsg();
            return "status " + std::to_string(status) + " " + (text ? text : "");
        } catch (const std::bad_alloc&) {
            allocations.is_armed = false;
            return "std::bad_alloc";
        }
    }
};

int fail(const std::string& place, const std::string& text) {
    std::printf("FAILED: %s: %s\n", place.c_str(), text.c_str());
    std::fflush(stdout);
    return kWrong;
}

// Lets this allocation of the process's first call fail, then calls again.
int run_process(long number, const std::string& place) {
    Call call;
    if (aclrtSetDevice(0) != ACL_SUCCESS || !call.make()) return fail(place, "the objects of the call");
    allocations.arm(number);
    const std::string error = call.run();
    const bool nothing_failed = allocations.count < number;
    aclrtSynchronizeStream(call.stream);  // may return the error of work that had no memory
    if (!call.has(4) && (error.empty() || !call.has(2))) return fail(place, "wrong results");
    if (nothing_failed) return kNothingFailed | (error.empty() ? kRight : fail(place, "without a failure: " + error));
    const bool was_right = call.has(4);
    std::string next;
    std::thread([&] {
        if (aclrtSetDevice(0) == ACL_SUCCESS) next = call.run();
    }).join();
    if (!call.has(next.empty() || was_right ? 4 : 2)) return fail(place, "wrong results of the next call");
    if (next.empty()) return kRight;
    std::printf("%s: the next call: %s\n", place.c_str(), next.c_str());
    std::fflush(stdout);
    const bool says_why =
        next.find("got too little memory when the package's operators were registered") != std::string::npos;
    return says_why ? kNextFails : fail(place, "the text of the next call");
}

}  // namespace

int main() {
    int failures = 0;
    for (const bool later : {false, true}) {
        fails_later = later;
        long places = 0, number = 1, next_fails = 0;
        for (int status = kRight; !(status & kNothingFailed) && number < 100000; number += later ? 5 : 1, ++places) {
            const std::string place = "allocation " + std::to_string(number) + (later ? " and later ones" : "");
            std::fflush(stdout);
            const pid_t process = fork();
            if (process == 0) {
                alarm(kSeconds);
                std::exit(run_process(number, place));
            }
            waitpid(process, &status, 0);
            if (!WIFEXITED(status)) std::printf("FAILED: %s: signal %d\n", place.c_str(), WTERMSIG(status));
            status = WIFEXITED(status) ? WEXITSTATUS(status) : kWrong;
            if (status == kEndedByGlibc) status = kRight;
            failures += status & kWrong;
            next_fails += (status & kNextFails) != 0;
        }
        std::printf("%ld failed allocations; after %ld of them, the next call fails\n", places - 1, next_fails);
        if (places < 50) failures += fail("the call", "too few allocations fail");
    }
    return failures != 0;
}
