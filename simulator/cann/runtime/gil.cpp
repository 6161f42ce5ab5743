#include "cann/runtime/gil.h"

#include <dlfcn.h>

namespace simulated_cann {
namespace {

// Python's functions, if the process contains Python.
struct Python {
    int (*is_initialized)() = nullptr;
    int (*has_gil)() = nullptr;
    void* (*save_thread)() = nullptr;
    void (*restore_thread)(void*) = nullptr;
};

template <class F>
void find(const char* name, F* function) {
    *function = reinterpret_cast<F>(dlsym(RTLD_DEFAULT, name));
}

const Python& python() {
    static const Python found = [] {
        Python p;
        find("Py_IsInitialized", &p.is_initialized);
        find("PyGILState_Check", &p.has_gil);
        find("PyEval_SaveThread", &p.save_thread);
        find("PyEval_RestoreThread", &p.restore_thread);
        return p;
    }();
    return found;
}

}  // namespace

InterpreterPause::InterpreterPause() {
    const Python& p = python();
    if (p.is_initialized && p.has_gil && p.save_thread && p.restore_thread && p.is_initialized() && p.has_gil())
        thread_ = p.save_thread();
}

InterpreterPause::~InterpreterPause() {
    if (thread_) python().restore_thread(thread_);
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

}  // namespace simulated_cann
