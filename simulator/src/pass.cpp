#include "src/pass.h"

#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <mutex>
#include <new>
#include <thread>
#include <vector>

#include "src/faults.h"
#include "src/fiber.h"
#include "src/stretches.h"

namespace ascend_sim {
namespace {

constexpr uint32_t kLargestNumber = 1u << 30;  // beyond it, the next pass numbers instructions from 1 again

thread_local Machine* g_machine = nullptr;

template <size_t... I>
void call_with(void* entry, uint8_t* const* addresses, std::index_sequence<I...>) {
    using Address = uint8_t*;
    reinterpret_cast<void (*)(decltype((void)I, Address())...)>(entry)(addresses[I]...);
}

// Calls the entry with `count` addresses. N: the number of parameters that this instance tries, from 2 on.
template <int N>
void call_entry(void* entry, uint8_t* const* addresses, int count) {
    if constexpr (N <= kMaxArgs) {
        if (count == N) return call_with(entry, addresses, std::make_index_sequence<N>());
        call_entry<N + 1>(entry, addresses, count);
    }
}

constexpr size_t kLargestUb = 262144;

// Memory of a core's UB, at a multiple of 4 GiB.
uint8_t* map_ub() {
    constexpr size_t kAlignment = size_t(1) << 32;
    void* reserved = MAP_FAILED;
    // Each thread reserves 4 GiB for a moment. With a limit of addresses (ulimit -v), this may be too much for two.
    for (int attempt = 0; reserved == MAP_FAILED && attempt < 1000; ++attempt) {
        if (attempt > 0) std::this_thread::sleep_for(std::chrono::microseconds(100));
        reserved =
            mmap(nullptr, kAlignment + kLargestUb, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    }
    if (reserved == MAP_FAILED) throw std::bad_alloc();
    const uintptr_t begin = uintptr_t(reserved);
    const uintptr_t aligned = (begin + kAlignment - 1) / kAlignment * kAlignment;
    uint8_t* const ub = reinterpret_cast<uint8_t*>(aligned);
    if (aligned > begin) munmap(reserved, aligned - begin);
    if (begin + kAlignment > aligned) munmap(ub + kLargestUb, begin + kAlignment - aligned);
    if (mprotect(ub, kLargestUb, PROT_READ | PROT_WRITE) != 0) {
        munmap(ub, kLargestUb);
        throw std::bad_alloc();
    }
    return ub;
}

// UB memory that no core uses. Each launch has a thread that ends with it: in an emulated process, each reservation of
// map_ub() costs the emulator 24 MB that it never frees. A fork may copy the mutex while it is locked, so nobody waits.
struct FreeUb {
    std::mutex mutex;
    std::vector<uint8_t*> memory;
};

FreeUb& free_ub() {
    static FreeUb& free = *new FreeUb;  // threads may end after static objects are destroyed
    return free;
}

uint8_t* take_ub() {
    std::unique_lock<std::mutex> lock(free_ub().mutex, std::try_to_lock);
    if (!lock || free_ub().memory.empty()) return map_ub();
    uint8_t* const ub = free_ub().memory.back();
    free_ub().memory.pop_back();
    return ub;
}

std::string kernel_name(const Job& job) {
    Dl_info info = {};
    const bool is_known = job.entry && dladdr(job.entry, &info) && info.dli_saddr == job.entry && info.dli_sname;
    return is_known ? "the kernel " + std::string(info.dli_sname) : "the kernel";
}

thread_local const Job* g_running_job = nullptr;  // while its kernel runs on this thread

// Other cores and the caller of a kernel that ends the process have not finished. The process must not end as if they
// had, so it ends here, unless this thread runs no kernel.
void end_if_kernel_calls(const char* function) {
    if (!g_running_job) return;
    const Machine& m = machine();
    const std::string text = kernel_name(*g_running_job) + " calls " + function + ": the process ends.";
    const Report report = report_of(Rule::End01, m.current.api, m.current.site, m.core, text.c_str());
    std::fprintf(stderr, "[sim] %s\n", report.text.c_str());
    std::_Exit(1);
}

// exit() destroys the objects of its thread first.
struct ExitOfKernel {
    ~ExitOfKernel() { end_if_kernel_calls("exit"); }
};

CoreMemory new_memory() {
    CoreMemory memory;
    memory.ub.reset(take_ub());
    memory.writer.reset(kLargestUb);
    for (Shadow& r : memory.reader) r.reset(kLargestUb);
    return memory;
}

}  // namespace

void CoreMemory::GiveBack::operator()(uint8_t* p) const {
    std::unique_lock<std::mutex> lock(free_ub().mutex, std::try_to_lock);
    try {
        if (lock) return free_ub().memory.push_back(p);
    } catch (const std::bad_alloc&) {
    }
    munmap(p, kLargestUb);
}

Machine& machine() { return *g_machine; }

std::set<std::string> split_list(const char* list) {
    std::set<std::string> out;
    for (const char* p = list ? list : ""; *p;) {
        const size_t n = std::strcspn(p, ", ");
        if (n) out.emplace(p, n);
        p += n + (p[n] != 0);
    }
    return out;
}

// A core that has begun. While it waits for other cores, `context` holds its state.
struct Pass::RunningCore {
    int64_t index;
    std::unique_ptr<Fiber> fiber;
    CoreWait wait{};
    CoreContext context{};
};

void Pass::run() {
    Machine& m = prepare();
    {
        const RunningKernel running(kernel_name_.c_str(), m);
        run_cores(m);
    }
    if (m.errors.empty()) check_launch(m);
    errors = std::move(m.errors);
    warnings = std::move(m.warnings);
    leftover_read = m.leftover_read;
    undefined_reads = std::move(m.undefined_reads);
    // The spans of cores that waited for each other are interleaved.
    std::stable_sort(m.spans.begin(), m.spans.end(), [](const Span& a, const Span& b) { return a.core < b.core; });
    timeline = {std::move(m.spans), std::move(m.ub_contents), std::move(m.per_core), std::move(m.critical_path),
                m.critical_core};
    gm_ = std::move(m.gm);
    accesses_ = std::move(m.gm_accesses);
    m.pause = nullptr;
}

Machine& Pass::prepare() {
    static thread_local Machine own;
    static thread_local ExitOfKernel exit_of_kernel;  // after `own`, so that it is destroyed first
    (void)exit_of_kernel;
    kernel_name_ = kernel_name(job_);
    g_machine = &own;
    Machine& m = own;
    const ascend_sim_launch& launch = *job_.launch;
    if (m.next_number > kLargestNumber) {
        m.ub.reset();
        m.next_number = 1;
    }
    static_cast<LaunchState&>(m) = {};
    m.profile = job_.profile;
    const int64_t traced = !launch.trace_path || kind_ != PassKind::Ascending ? 0
                           : launch.trace_cores > 0                           ? launch.trace_cores
                                                                              : int64_t(launch.block_dim);
    m.options.auto_sync = launch.auto_sync != 0;
    m.options.saturate = launch.saturate != 0;
    m.options.keeps_steps = kind_ == PassKind::Ascending;
    m.options.spoiling = spoiling_;
    m.options.traced_cores = traced;
    m.options.lenient = split_list(launch.lenient);
    m.blocks = launch.block_dim;
    m.tiling_key = launch.tiling_key;
    m.per_core.resize(size_t(m.blocks));
    place_memory(m);
    return m;
}

void Pass::place_memory(Machine& m) {
    arenas_.reserve(size_t(job_.memory_count) + 2);
    for (int32_t i = 0; i < job_.memory_count; ++i) {
        const ascend_sim_memory& mem = job_.memories[i];
        const Role role = mem.role == ASCEND_SIM_SUM    ? Role::InOut
                          : mem.role == ASCEND_SIM_PART ? Role::Out
                                                        : Role(mem.role);
        add_memory(m, mem.name, mem.data, mem.bytes, role);
        m.gm.back().must_be_filled = mem.role == ASCEND_SIM_OUT;
    }
    const ascend_sim_launch& launch = *job_.launch;
    // On a device, a fresh workspace holds bytes of the memory's earlier use. Here each order of the cores fills it
    // with another byte, so that an output that depends on these bytes differs.
    add_memory(m, "workspace", nullptr, launch.workspace_bytes, Role::Workspace,
               kind_ == PassKind::Descending ? 0x7F : 0xFF);
    add_memory(m, "tiling", launch.tiling, launch.tiling_bytes, Role::Tiling);
    for (int32_t i = 0; i < job_.arg_count; ++i) {
        const ascend_sim_arg& a = job_.args[i];
        addresses_[i] = a.memory < 0 ? nullptr : arenas_[size_t(a.memory)].base() + a.offset;
    }
    addresses_[job_.arg_count] = arenas_[size_t(job_.memory_count)].base();
    addresses_[job_.arg_count + 1] = arenas_[size_t(job_.memory_count) + 1].base();
}

void Pass::add_memory(Machine& m, const char* name, const void* data, uint64_t bytes, Role role, int fill) {
    arenas_.emplace_back(data, bytes, fill);
    GmTensor t;
    t.name = name ? name : "?";
    t.base = reinterpret_cast<uintptr_t>(arenas_.back().base());
    t.bytes = bytes;
    t.role = role;
    const size_t pages = bytes / kPageBytes + 1;
    t.writer.resize(pages);
    t.copy_reader.resize(pages);
    t.scalar_reader.resize(pages);
    m.gm.push_back(std::move(t));
}

void Pass::call_kernel() {
    if (job_.call)
        job_.call(addresses_, job_.context);
    else
        call_entry<2>(job_.entry, addresses_, job_.arg_count + 2);
}

// Runs every core up to its end or its first wait for other cores, then the waiting ones in turns.
void Pass::run_cores(Machine& m) {
    Waiting waiting;
    waiting.reserve(size_t(m.blocks));
    try {
        for (int64_t i = 0; i < m.blocks && m.errors.empty(); ++i) {
            waiting.push_back(std::make_unique<RunningCore>());
            waiting.back()->index = kind_ == PassKind::Descending ? m.blocks - 1 - i : i;
            run_core(m, *waiting.back());
            if (waiting.back()->fiber->has_ended()) waiting.pop_back();
        }
        run_waiting(m, &waiting);
    } catch (...) {
        end_waiting(m, waiting);
        m.pause = nullptr;
        throw;
    }
}

// Lets the bodies of the fibers return, because a failure ends the pass.
void Pass::end_waiting(Machine& m, const Waiting& waiting) {
    ends_waits_ = true;
    for (const auto& core : waiting) {
        if (!core->fiber || core->fiber->has_ended()) continue;
        static_cast<CoreContext&>(m) = std::move(core->context);
        core->fiber->resume();
    }
    g_running_job = nullptr;
}

// The line is that of the core's last instruction.
void Pass::report_exception(Machine& m, const char* what) const {
    try {
        fatal_at(Rule::End01, m.current.api, m.current.site, "an exception leaves %s: %s.", kernel_name_.c_str(), what);
    } catch (const Stop&) {
    }
}

void Pass::run_core(Machine& m, RunningCore& core) {
    if (!m.ub && !spare_memories_.empty()) {
        static_cast<CoreMemory&>(m) = std::move(spare_memories_.back());
        spare_memories_.pop_back();
    }
    if (!m.ub) static_cast<CoreMemory&>(m) = new_memory();
    m.begin_core(core.index);
    core.fiber = std::make_unique<Fiber>([this, &m] {
        try {
            try {
                call_kernel();
                m.end_core();
            } catch (const Stop&) {
            } catch (const std::bad_alloc&) {  // the simulator's: kernels allocate nothing
                throw;
            } catch (const std::exception& error) {
                report_exception(m, error.what());
            } catch (...) {
                report_exception(m, "it is no std::exception");
            }
            m.per_core[size_t(m.core)] = m.totals;
        } catch (...) {
            failure_ = std::current_exception();
        }
    });
    resume(m, core);
}

// Runs the core up to its end or its next wait. If it waits, its state moves to `core`.
void Pass::resume(Machine& m, RunningCore& core) {
    m.pause = [this, &core](const CoreWait& wait) {
        if (ends_waits_) throw Stop{};
        core.wait = wait;
        core.fiber->pause();
        if (ends_waits_) throw Stop{};
    };
    g_running_job = &job_;
    core.fiber->resume();
    g_running_job = nullptr;
    if (failure_) std::rethrow_exception(failure_);
    if (core.fiber->has_ended()) return;
    const Machine::Numbers numbers{m.resumed_first, m.next_number, m.resumed_record};
    core.context = std::move(static_cast<CoreContext&>(m));
    core.context.earlier_numbers.push_back(numbers);
}

void Pass::run_waiting(Machine& m, Waiting* waiting) {
    while (!waiting->empty()) {
        if (!m.errors.empty()) ends_waits_ = true;
        const auto next = std::find_if(waiting->begin(), waiting->end(),
                                       [this](const auto& core) { return ends_waits_ || core->wait.missing() < 0; });
        if (next == waiting->end()) {
            report_missing_signal(m, *waiting->front(), *waiting);
            continue;
        }
        // The chosen core goes to the end, so that all cores that may run do so in turns.
        std::rotate(next, next + 1, waiting->end());
        RunningCore& core = *waiting->back();
        if (m.ub) spare_memories_.push_back(std::move(static_cast<CoreMemory&>(m)));
        static_cast<CoreContext&>(m) = std::move(core.context);
        m.resumed_first = m.next_number;
        m.resumed_record = m.records.size();
        resume(m, core);
        if (core.fiber->has_ended()) waiting->pop_back();
    }
}

// Ends the waits, because no core can continue.
void Pass::report_missing_signal(Machine& m, RunningCore& core, const Waiting& waiting) {
    const int64_t missing = core.wait.missing();
    const auto other = std::find_if(waiting.begin(), waiting.end(), [&](const auto& w) { return w->index == missing; });
    const std::string state = missing == core.index    ? "which it must raise itself"
                              : other == waiting.end() ? "which has ended"
                                                       : "which waits in " + std::string((*other)->wait.api) + " at " +
                                                             where((*other)->wait.site);
    ends_waits_ = true;
    try {
        m.core = core.index;
        m.running = false;
        fatal_at(Rule::Sync01, core.wait.api, core.wait.site,
                 "the signal of core %lld is missing, %s: the launch would hang.", static_cast<long long>(missing),
                 state.c_str());
    } catch (const Stop&) {
    }
}

// The report names the first stretch of bytes that no core wrote. Its line is that of the last write before them, or
// else the line that took the output's address.
void Pass::check_unwritten(Machine& m) const {
    for (const GmTensor& t : m.gm) {
        if (!t.must_be_filled) continue;
        uint64_t unwritten = 0, first = 0, end = 0;
        uint32_t before = 0;
        for (uint64_t at = 0; at < t.bytes; at += kPageBytes) {
            const uint64_t bytes = std::min(kPageBytes, t.bytes - at);
            const auto note = [&](uint64_t from, uint64_t to, uint32_t writer) {
                if (writer) {
                    if (!unwritten) before = writer;
                    return;
                }
                if (!unwritten) first = end = at + from;
                if (end == at + from) end = at + to;
                unwritten += to - from;
            };
            if (const auto& page = t.writer[at / kPageBytes])
                for_each_stretch(page.get(), 0, bytes, note);
            else
                note(0, bytes, 0);
        }
        if (!unwritten) continue;
        const GmAccess* last = find_access(m.gm_accesses, before);
        const Call place = last             ? Call{last->record.api, last->record.site}
                           : t.taken_by.api ? t.taken_by
                                            : Call{"kernel end", {"kernel", 0}};
        m.core = last ? last->core : 0;
        broken_at(Rule::Init03, place.api, place.site,
                  "%llu of the %llu bytes of GM `%s`, an output, were not written, first [%llu, %llu)%s.",
                  static_cast<unsigned long long>(unwritten), static_cast<unsigned long long>(t.bytes), t.name.c_str(),
                  static_cast<unsigned long long>(first), static_cast<unsigned long long>(end),
                  last ? "; this was the last write before them" : "");
    }
}

void Pass::check_launch(Machine& m) {
    try {
        m.current.site = {"kernel", 0};
        m.running = false;
        if (m.last_key_check.file && !m.key_matched)
            broken_at(Rule::Tiling02, "TILING_KEY_IS", m.last_key_check, "no TILING_KEY_IS(%llu) branch was taken.",
                      static_cast<unsigned long long>(m.tiling_key));
        for (size_t i = 0; i < arenas_.size(); ++i)
            if (const int64_t at = arenas_[i].broken_guard(); at != INT64_MIN)
                broken(Rule::Bounds04, "byte %lld of GM `%s`, outside of it, changed: a raw pointer wrote it.",
                       static_cast<long long>(at), m.gm[i].name.c_str());
        check_flags_between_cores();
        if (kind_ == PassKind::Ascending) check_unwritten(m);
    } catch (const Stop&) {
    }
}

}  // namespace ascend_sim

// A library of kernels calls these functions instead of _exit, _Exit and quick_exit, which run no destructors of a
// thread: it is linked with --wrap.
extern "C" {
[[noreturn]] ASCEND_SIM_EXPORT void __wrap__exit(int status) {
    ascend_sim::end_if_kernel_calls("_exit");
    ::_exit(status);
}

[[noreturn]] ASCEND_SIM_EXPORT void __wrap__Exit(int status) {
    ascend_sim::end_if_kernel_calls("_Exit");
    ::_exit(status);
}

[[noreturn]] ASCEND_SIM_EXPORT void __wrap_quick_exit(int status) {
    ascend_sim::end_if_kernel_calls("quick_exit");
    std::quick_exit(status);
}
}
