#include "cann/runtime/gil.h"

#include <dlfcn.h>

namespace simulated_cann {
namespace {

// Python's functions, if the process contains Python.
struct PythonFunctions {
    int (*is_initialized)() = nullptr;
    int (*has_gil)() = nullptr;
    void* (*save_thread)() = nullptr;
    void (*restore_thread)(void*) = nullptr;
};

template <class Function>
void find_function(const char* name, Function* function) {
    *function = reinterpret_cast<Function>(dlsym(RTLD_DEFAULT, name));
}

const PythonFunctions& python_functions() {
    static const PythonFunctions loaded = [] {
        PythonFunctions functions;
        find_function("Py_IsInitialized", &functions.is_initialized);
        find_function("PyGILState_Check", &functions.has_gil);
        find_function("PyEval_SaveThread", &functions.save_thread);
        find_function("PyEval_RestoreThread", &functions.restore_thread);
        return functions;
    }();
    return loaded;
}

}  // namespace

GilRelease::GilRelease() {
    const PythonFunctions& functions = python_functions();
    if (functions.is_initialized && functions.has_gil && functions.save_thread && functions.restore_thread &&
        functions.is_initialized() && functions.has_gil())
        thread_state_ = functions.save_thread();
}

GilRelease::~GilRelease() {
    if (thread_state_) python_functions().restore_thread(thread_state_);
}

// The destructor of `release` takes the GIL back. There is no deadlock: the thread that holds the GIL releases it
// before it waits for the mutex.
RunLock::RunLock(std::recursive_mutex* mutex, Mode mode) : mutex_(mutex), is_held_(mutex->try_lock()) {
    if (is_held_ || mode == kTry) return;
    GilRelease release;
    mutex_->lock();
    is_held_ = true;
}

RunLock::~RunLock() {
    if (is_held_) mutex_->unlock();
}

}  // namespace simulated_cann
