// Locks that a fork takes before it copies the process. So in the child no thread of the parent holds them, and the
// data behind them is whole.
#pragma once

#include <mutex>

namespace simulated_cann {

// A thread that holds a lock may take those of higher ranks. It takes no second lock of the last rank.
enum class LockRank { kStreams, kTables, kContexts, kReport, kLast };

// Makes forks take a lock. Only for objects that exist as long as the library.
class ForkLock {
public:
    ForkLock(LockRank rank, std::mutex* mutex);
    ForkLock(const ForkLock&) = delete;
};

// Whether another thread runs work of a stream. Needs the lock of the streams.
bool is_work_running_elsewhere();

// ---- what a child does after a fork, without locks -------------------------------------------------------

// scheduler.cpp: work that another thread was running at the fork never ends.
void reset_streams_in_fork(bool was_running_elsewhere);
// callbacks.cpp: no thread waits for a callback. A condition variable on which a thread of the parent waited would
// block.
void reset_callbacks_in_fork();
// report.cpp: the child reports only its own work.
void reset_report_in_fork();

}  // namespace simulated_cann
