// The lock of whoever runs work, for threads that may hold Python's global interpreter lock: work can be a
// Python function, so that a thread which waits for the lock gives up the interpreter meanwhile.
#pragma once

#include <mutex>

namespace npu_cann {

// Gives up the interpreter, where this thread holds it, until the end of the scope.
class InterpreterPause {
public:
    InterpreterPause();
    ~InterpreterPause();
    InterpreterPause(const InterpreterPause&) = delete;
    InterpreterPause& operator=(const InterpreterPause&) = delete;

private:
    void* thread_ = nullptr;
};

class RunningLock {
public:
    enum How { kWait, kTry };
    RunningLock(std::recursive_mutex* mutex, How how);
    ~RunningLock();
    RunningLock(const RunningLock&) = delete;
    RunningLock& operator=(const RunningLock&) = delete;
    bool is_held() const { return is_held_; }

private:
    std::recursive_mutex* mutex_;
    bool is_held_;
};

}  // namespace npu_cann
