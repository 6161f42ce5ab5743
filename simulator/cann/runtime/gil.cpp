#include "cann/runtime/gil.h"

#include <dlfcn.h>

namespace npu_cann {
namespace {

// Python's functions, if the process contains Python.
struct Python {
    int (*is_initialized)() = nullptr;
    int (*holds)() = nullptr;
    void* (*give_up)() = nullptr;
    void (*take_back)(void*) = nullptr;
};

template <class F>
void find(const char* name, F* function) {
    *function = reinterpret_cast<F>(dlsym(RTLD_DEFAULT, name));
}

const Python& python() {
    static const Python found = [] {
        Python p;
        find("Py_IsInitialized", &p.is_initialized);
        find("PyGILState_Check", &p.holds);
        find("PyEval_SaveThread", &p.give_up);
        find("PyEval_RestoreThread", &p.take_back);
        return p;
    }();
    return found;
}

}  // namespace

InterpreterPause::InterpreterPause() {
    const Python& p = python();
    if (p.is_initialized && p.holds && p.give_up && p.take_back && p.is_initialized() && p.holds())
        thread_ = p.give_up();
}

InterpreterPause::~InterpreterPause() {
    if (thread_) python().take_back(thread_);
}

// There is no deadlock when `pause` takes the GIL back: its holder releases the GIL before it waits for the mutex.
RunningLock::RunningLock(std::recursive_mutex* mutex, How how) : mutex_(mutex), is_held_(mutex->try_lock()) {
    if (is_held_ || how == kTry) return;
    InterpreterPause pause;
    mutex_->lock();
    is_held_ = true;
}

RunningLock::~RunningLock() {
    if (is_held_) mutex_->unlock();
}

}  // namespace npu_cann
