// A lock for the thread that runs queued work. The work can be a Python function, which needs Python's global
// interpreter lock (GIL). So a thread that waits for this lock releases the GIL.
#pragma once

#include <mutex>

namespace simulated_cann {

// Releases the GIL until the end of the scope if this thread holds it.
class GilRelease {
public:
    GilRelease();
    ~GilRelease();
    GilRelease(const GilRelease&) = delete;
    GilRelease& operator=(const GilRelease&) = delete;

private:
    void* thread_state_ = nullptr;
};

// Holds the mutex until the end of the scope. With kTry it may fail to get the mutex; see is_held().
class RunLock {
public:
    enum Mode { kWait, kTry };
    RunLock(std::recursive_mutex* mutex, Mode mode);
    ~RunLock();
    RunLock(const RunLock&) = delete;
    RunLock& operator=(const RunLock&) = delete;
    bool is_held() const { return is_held_; }

private:
    std::recursive_mutex* mutex_;
    bool is_held_;
};

}  // namespace simulated_cann
