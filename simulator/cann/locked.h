// Data that all threads of a process share.
#pragma once

#include <mutex>

namespace simulated_cann {

// Access to the process's only T, with its lock held. The T is never destroyed, because torch_npu frees memory and
// calls operators while the process ends.
template <class T>
class Locked {
public:
    Locked() : lock_(shared().mutex) {}
    T* operator->() const { return &shared().data; }
    T& operator*() const { return shared().data; }
    std::unique_lock<std::mutex>& lock() { return lock_; }
    static std::mutex& mutex() { return shared().mutex; }

private:
    struct Shared {
        std::mutex mutex;
        T data;
    };
    static Shared& shared() {
        static auto* const one = new Shared;
        return *one;
    }
    std::unique_lock<std::mutex> lock_;
};

}  // namespace simulated_cann
