#include "cann/runtime/forks.h"

#include <pthread.h>

#include <map>

namespace simulated_cann {
namespace {

// All locks in the order in which threads take them.
std::multimap<LockRank, std::mutex*>& fork_locks() {
    static auto* const locks = new std::multimap<LockRank, std::mutex*>;
    return *locks;
}

bool g_was_running_elsewhere = false;  // at the last fork

void lock_before_fork() {
    for (const auto& [rank, mutex] : fork_locks()) mutex->lock();
    g_was_running_elsewhere = is_work_running_elsewhere();
}

void unlock_after_fork() {
    for (auto lock = fork_locks().rbegin(); lock != fork_locks().rend(); ++lock) lock->second->unlock();
}

void reset_in_fork() {
    unlock_after_fork();
    reset_streams_in_fork(g_was_running_elsewhere);
    reset_callbacks_in_fork();
    reset_report_in_fork();
}

[[maybe_unused]] const int g_at_fork = pthread_atfork(lock_before_fork, unlock_after_fork, reset_in_fork);

}  // namespace

ForkLock::ForkLock(LockRank rank, std::mutex* mutex) { fork_locks().insert({rank, mutex}); }

}  // namespace simulated_cann
