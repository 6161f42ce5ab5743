// The lock of the thread that runs work, for threads that may hold Python's global interpreter lock (GIL). Work can
// be a Python function, so a thread releases the GIL while it waits for the lock.
#pragma once

#include <mutex>

namespace simulated_cann {

// Releases the GIL until the end of the scope if this thread holds it.
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

}  // namespace simulated_cann
