// Checks of instructions' accesses to UB: bounds, undefined data, and the order of accesses to the same byte.
#include <algorithm>
#include <cstdio>
#include <cstring>

#include "src/chips.h"
#include "src/core.h"

namespace ascend_sim {
namespace {

// The lowest bit of a word of the shadow of writers: the instruction left the byte undefined.
constexpr uint32_t kPoisoned = 1;

Rule hazard_rule(Pipe now, Pipe before) {
    if (now == Pipe::S || before == Pipe::S) return Rule::Hazard03;
    if (now != before) return Rule::Hazard01;
    return now == Pipe::V ? Rule::Hazard02 : Rule::Hazard04;
}

// The synchronisation that orders the two accesses: the tensor's queue if its events join these pipes in this
// direction, else a barrier or an event.
std::string missing_synchronisation(Pipe now, Pipe before, const UbView& view) {
    const std::string event = std::string(pipe_name(before)) + "_" + pipe_name(now) + " event";
    if (now == before) return std::string("PipeBarrier<PIPE_") + pipe_name(now) + ">";
    const Machine& m = machine();
    const int32_t queue = m.buffers[view.buffer].queue;
    if (queue < 0) return event;
    const QueueKind& kind = m.queues[queue].kind;
    if (before == kind.producer && now == kind.consumer) return "EnQue/DeQue or " + event;
    if (before == kind.consumer && now == kind.producer) return "FreeTensor/AllocTensor or " + event;
    return event;
}

// An earlier access to UB bytes that is not ordered before the running instruction.
struct Conflict {
    Range bytes;
    uint32_t before;  // instruction
    const char* verb_before;
};

void report(const char* verb, const char* operand, const UbView& view, const Conflict& c) {
    Machine& m = machine();
    const Record old = m.record(c.before);
    const Pipe now = m.current.pipe;
    const Rule rule = hazard_rule(now, old.pipe);
    if (m.options.auto_sync && (rule == Rule::Hazard02 || rule == Rule::Hazard03))
        return m.insert_synchronisation(old.pipe);
    broken(rule, "%s %s of `%s` (UB bytes [%lld, %lld)) at %s is not ordered after the %s %s by %s at %s: %s missing.",
           pipe_name(now), verb, operand, static_cast<long long>(c.bytes.begin), static_cast<long long>(c.bytes.end),
           where(m.current.site).c_str(), pipe_name(old.pipe), c.verb_before, old.api, where(old.site).c_str(),
           missing_synchronisation(now, old.pipe, view).c_str());
}

// Reports conflicts with other pipes first, the latest one first, because their repair may resolve more conflicts. An
// event from a pipe that had waited for this pipe also orders this pipe's own accesses. A barrier of this pipe never
// orders accesses of another pipe.
void report_all(const char* verb, const char* operand, const UbView& view, std::vector<Conflict>& conflicts) {
    Machine& m = machine();
    const auto same_pipe = [&m](const Conflict& c) { return m.record(c.before).pipe == m.current.pipe; };
    std::stable_sort(conflicts.begin(), conflicts.end(), [&](const Conflict& a, const Conflict& b) {
        return same_pipe(a) != same_pipe(b) ? same_pipe(b) : a.before > b.before;
    });
    for (const Conflict& c : conflicts)
        if (!m.is_ordered(c.before)) report(verb, operand, view, c);
}

void check_ranges(const char* operand, const UbView& view, const Range* ranges, size_t n) {
    Machine& m = machine();
    if (view.buffer < 0 || view.buffer >= int32_t(m.buffers.size()))
        fatal_at(Rule::Bounds02, m.current.api, m.current.site, "`%s` is no tensor of this core's buffers.", operand);
    const Buffer& b = m.buffers[view.buffer];
    if (b.released && !m.pipe) broken(Rule::Buffer04, "`%s` is used after its TPipe was destroyed.", operand);
    if (view.generation != b.generation) broken(Rule::Queue06, "`%s` was freed before this use.", operand);
    const int64_t end = int64_t(view.addr) + view.bytes;
    if (view.addr < b.addr || end > int64_t(b.addr) + b.bytes) {
        const bool before = view.addr > UINT32_MAX / 2;  // a negative offset
        const int64_t shift = before ? int64_t(UINT32_MAX) + 1 : 0;
        const long long first = view.addr - shift, last = end - shift;
        if (first == last)  // a result of operator[] that begins outside its tensor
            broken(Rule::Bounds02, "`%s` begins at UB byte %lld but its buffer is [%u, %u).", operand, first, b.addr,
                   b.addr + b.bytes);
        else
            broken(Rule::Bounds02, "`%s` covers UB bytes [%lld, %lld) but its buffer is [%u, %u).", operand, first,
                   last, b.addr, b.addr + b.bytes);
    }
    for (size_t i = 0; i < n; ++i) {
        const Range& r = ranges[i];
        if (view.buffer != m.memory_above_buffers) m.touched_end = std::max(m.touched_end, r.end);
        if (r.begin >= view.addr && r.end <= end && r.end <= int64_t(m.profile->ub_bytes)) continue;
        const bool is_copy = m.current.pipe == Pipe::MTE2 || m.current.pipe == Pipe::MTE3;
        const int64_t end_of_block = (end + 31) / 32 * 32;
        if (is_copy && r.begin >= view.addr && r.end <= std::min(end_of_block, int64_t(b.addr) + b.bytes)) {
            broken(Rule::Bounds07, "`%s` is touched at UB bytes [%lld, %lld) but covers [%u, %lld).", operand,
                   static_cast<long long>(r.begin), static_cast<long long>(r.end), view.addr,
                   static_cast<long long>(end));
            continue;
        }
        char text[200];
        std::snprintf(text, sizeof text, "touched at UB bytes [%lld, %lld) but covers [%u, %lld): %lld bytes %s",
                      static_cast<long long>(r.begin), static_cast<long long>(r.end), view.addr,
                      static_cast<long long>(end),
                      static_cast<long long>(r.end > end ? r.end - end : view.addr - r.begin),
                      r.end > end ? "too far" : "before its start");
        if (r.end > int64_t(m.profile->ub_bytes) || r.begin < 0)  // outside UB
            fatal_at(Rule::Bounds01, m.current.api, m.current.site, "`%s` is %s.", operand, text);
        broken(Rule::Bounds01, "`%s` is %s.", operand, text);
    }
}

}  // namespace

bool Machine::is_ordered(uint32_t instruction) const {
    if (instruction < core_first || instruction == number) return true;
    const Record& old = record(instruction);
    if (old.pipe == Pipe::S && current.pipe == Pipe::S) return true;
    if (old.pipe == Pipe::V && current.pipe == Pipe::V && profile->arch == kArch950) return true;  // by the hardware
    return clock[int(current.pipe)].complete[int(old.pipe)] >= old.seq;
}

bool Machine::is_written(const Range& range, int32_t buffer) const {
    const uint32_t valid_from = buffers[buffer].valid_from;
    bool all = true;
    writer.for_each(range.begin, range.end, [&](uint32_t, uint32_t, uint32_t word) {
        all = all && (word >> 1) >= valid_from && !(word & kPoisoned);
    });
    return all;
}

void Machine::mark_reads() {
    for (const Range& r : reads) reader[int(current.pipe)].fill(r.begin, r.end, number);
    reads.clear();
}

void reads(const char* operand, const UbView& view, const Range* ranges, size_t n) {
    Machine& m = machine();
    check_ranges(operand, view, ranges, n);
    m.note_ub_use(view, false);
    const uint32_t valid_from = m.buffers[view.buffer].valid_from;
    const auto note_undefined = [&](const Range& range, const std::string& cause) {
        char text[300];
        const auto begin = static_cast<long long>(range.begin), end = static_cast<long long>(range.end);
        std::snprintf(text, sizeof text, "`%s` is read at UB bytes [%lld, %lld) (from byte %lld of the tensor on): %s",
                      operand, begin, end, begin - view.addr, cause.c_str());
        if (m.current.pipe == Pipe::V)
            m.note_undefined_read(range, text);
        else
            broken(Rule::Init01, "%s.", text);
    };
    for (size_t i = 0; i < n; ++i) {
        Range unwritten{0, 0};  // joined, because its parts depend on earlier uses of the memory
        const auto note_unwritten = [&] {
            if (unwritten.begin < unwritten.end)
                note_undefined(unwritten, "not written since the buffer was allocated");
            unwritten = {0, 0};
        };
        m.writer.for_each(ranges[i].begin, ranges[i].end, [&](uint32_t first, uint32_t end, uint32_t word) {
            if ((word >> 1) < valid_from) {
                if (unwritten.begin == unwritten.end) unwritten.begin = first;
                unwritten.end = end;
                return;
            }
            note_unwritten();
            if (word & kPoisoned) {
                const Record source = m.record(word >> 1);
                note_undefined({first, end}, source.pipe == Pipe::V
                                                 ? "work space that a vector instruction left undefined"
                                                 : "bytes that the copy at " + where(source.site) + " left undefined");
            } else if (!m.is_ordered(word >> 1))
                report("read", operand, view, {{first, end}, word >> 1, "write"});
        });
        note_unwritten();
    }
    if (m.has_leftovers)
        for (size_t i = 0; i < n; ++i) m.note_reads_of_leftovers(ranges[i]);
    m.reads.insert(m.reads.end(), ranges, ranges + n);
}

void writes(const char* operand, const UbView& view, const Range* ranges, size_t n) {
    Machine& m = machine();
    check_ranges(operand, view, ranges, n);
    m.note_ub_use(view, true);
    std::vector<Conflict> conflicts;  // nearly always empty
    for (size_t i = 0; i < n; ++i) {
        const Range r = ranges[i];
        m.writer.for_each(r.begin, r.end, [&](uint32_t first, uint32_t end, uint32_t word) {
            if (!m.is_ordered(word >> 1)) conflicts.push_back({{first, end}, word >> 1, "write"});
        });
        for (Pipe p : {Pipe::S, Pipe::V, Pipe::MTE3})
            m.reader[int(p)].for_each(r.begin, r.end, [&](uint32_t first, uint32_t end, uint32_t number) {
                if (!m.is_ordered(number)) conflicts.push_back({{first, end}, number, "read"});
            });
        m.writer.fill(r.begin, r.end, m.number << 1);
    }
    if (!conflicts.empty()) report_all("write", operand, view, conflicts);
    if (m.current.pipe == Pipe::MTE2 && n) m.note_copy({ranges[0].begin, ranges[n - 1].end});
}

void fill_unwritten(void* element, uint64_t bytes) {
    constexpr uint8_t kUnwritten[8] = {0xA7, 0xFF, 0xA7, 0xFF, 0xA7, 0xFF, 0xA7, 0xFF};
    std::memcpy(element, kUnwritten, bytes);
}

void scalar_reference(const UbView& view, Range range, Site site) {
    Machine& m = machine();
    start(Pipe::S, "LocalTensor()", site);
    check_ranges("tensor", view, &range, 1);
    const uint32_t bytes = range.end - range.begin;
    m.reference = {};
    m.reference.open = true;
    m.reference.view = view;
    m.reference.range = range;
    const uint32_t valid_from = m.buffers[view.buffer].valid_from;
    bool is_new = true;
    m.writer.for_each(range.begin, range.end, [&](uint32_t, uint32_t, uint32_t word) {
        is_new &= (word >> 1) < valid_from || (word & kPoisoned);
    });
    if (is_new) fill_unwritten(m.ub.get() + range.begin, bytes);
    std::memcpy(m.reference.before, m.ub.get() + range.begin, bytes);
    finish_scalar(cycles_of(Cost::ScalarUb));
}

// Call this before the core's next action, while the current instruction is still the one that took the reference.
void Machine::settle_reference() {
    if (barrier_is_due) {
        barrier_is_due = false;
        barrier(kAllPipes, pipe_created_at);
    }
    if (!reference.open) return;
    if (reference.is_gm) return settle_gm_reference();
    reference.open = false;
    const Range r = reference.range;
    running = true;
    if (std::memcmp(reference.before, ub.get() + r.begin, r.end - r.begin))
        ascend_sim::writes("tensor", reference.view, &r, 1);
    else
        ascend_sim::reads("tensor", reference.view, &r, 1);
    note_ub_time(pipe_free[int(Pipe::S)].time, pipe_free[int(Pipe::S)].time);
    running = false;
}

void poison(const Range& range) {
    Machine& m = machine();
    m.writer.fill(range.begin, range.end, m.number << 1 | kPoisoned);
}

void poison_unwritten(uintptr_t gm, uint64_t bytes, int64_t to) {
    Machine& m = machine();
    if (m.unwritten_gm.empty()) return;
    if (m.unwritten_gm.front().instruction != m.number) return m.unwritten_gm.clear();
    for (const auto& unwritten : m.unwritten_gm) {
        const uintptr_t begin = std::max(gm, unwritten.begin), end = std::min(gm + bytes, unwritten.end);
        if (begin < end) poison({to + int64_t(begin - gm), to + int64_t(end - gm)});
    }
}

uint8_t* ub() { return machine().ub.get(); }

}  // namespace ascend_sim
