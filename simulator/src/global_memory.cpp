// Global memory: its tensors, the writers and readers of each byte, and the scalar unit's cache.
#include <algorithm>
#include <cstring>
#include <utility>

#include "src/core.h"
#include "src/stretches.h"

namespace ascend_sim {
namespace {

uint32_t* page_of(std::vector<std::unique_ptr<uint32_t[]>>& pages, uint64_t index) {
    if (!pages[index]) pages[index] = std::make_unique<uint32_t[]>(kPageBytes);
    return pages[index].get();
}

// Calls f(index of the page, first byte in the page, byte after the last) for each page of [offset, offset + bytes).
template <class F>
void for_each_page(uint64_t offset, uint64_t bytes, F f) {
    for (uint64_t end = offset + bytes; offset < end;) {
        const uint64_t index = offset / kPageBytes, begin = offset % kPageBytes;
        const uint64_t stop = std::min(kPageBytes, begin + (end - offset));
        f(index, begin, stop);
        offset += stop - begin;
    }
}

// Bytes of one tensor.
struct GmBytes {
    const GmTensor& tensor;
    uint64_t begin, end;
};

// Reports an access that is not ordered after this core's earlier access `before` to the same bytes.
void report_unordered(const char* verb, const GmBytes& bytes, const char* operand, uint32_t before,
                      const char* verb_before) {
    Machine& m = machine();
    const Record old = m.record(before);
    const Pipe now = m.current.pipe;
    if (m.options.auto_sync && now != old.pipe && (now == Pipe::S || old.pipe == Pipe::S))
        return m.insert_synchronisation(old.pipe);
    const Rule rule = now == old.pipe && now == Pipe::MTE3 ? Rule::Hazard04 : Rule::Hazard05;
    const std::string missing = now == old.pipe ? std::string("PipeBarrier<PIPE_") + pipe_name(now) + ">"
                                                : std::string(pipe_name(old.pipe)) + "_" + pipe_name(now) + " event";
    broken(rule, "%s %s of `%s` (GM `%s`, bytes [%llu, %llu)) is not ordered after the %s %s by %s at %s: %s missing.",
           pipe_name(now), verb, operand, bytes.tensor.name.c_str(), static_cast<unsigned long long>(bytes.begin),
           static_cast<unsigned long long>(bytes.end), pipe_name(old.pipe), verb_before, old.api,
           where(old.site).c_str(), missing.c_str());
}

// Reports a violation by the operand's access to bytes of GM. `words` follow the tensor's name: ", which core 0 wrote".
void report_access(Rule rule, const char* operand, const char* verb, const GmBytes& bytes, const std::string& words) {
    broken(rule, "`%s` %s bytes [%llu, %llu) of GM `%s`%s.", operand, verb,
           static_cast<unsigned long long>(bytes.begin), static_cast<unsigned long long>(bytes.end),
           bytes.tensor.name.c_str(), words.c_str());
}

void note_loaded_lines(uintptr_t address, uint64_t bytes) {
    Machine& m = machine();
    for (uint64_t line = address / kLineBytes; line <= (address + bytes - 1) / kLineBytes; ++line)
        m.missed_cache |= m.loaded_lines.try_emplace(line, m.number).second;
}

void note_access() {
    Machine& m = machine();
    if (m.gm_accesses.empty() || m.gm_accesses.back().number != m.number)
        m.gm_accesses.push_back({m.number, m.core, m.current});
}
// Describes an earlier access to GM by any core, for example "core 0 wrote by DataCopy at npu_add.cpp:12".
std::string describe_access(uint32_t number, const char* verb) {
    const GmAccess& a = *find_access(machine().gm_accesses, number);
    return "core " + std::to_string(a.core) + " " + verb + " by " + a.record.api + " at " + where(a.record.site);
}

uint64_t distance_of(const GmTensor& t, uintptr_t address, uint64_t bytes) {
    if (address + bytes <= t.base) return t.base - (address + bytes);
    return address >= t.base + t.bytes ? address - (t.base + t.bytes) : 0;
}

}  // namespace

// Checks an access against the size that the kernel gave its tensor, which may be smaller than the launch's tensor.
void check_view(const char* operand, const GmView& view, const GmTensor& t, uintptr_t address, uint64_t bytes) {
    if (!view.end || (address >= view.begin && address + bytes <= view.end)) return;
    const auto from_base = [&t](uintptr_t a) { return static_cast<long long>(a - t.base); };
    broken(Rule::Bounds05, "`%s` touches bytes [%lld, %lld) of GM `%s` but SetGlobalBuffer was given [%lld, %lld).",
           operand, from_base(address), from_base(address + bytes), t.name.c_str(), from_base(view.begin),
           from_base(view.end));
}

GmTensor* require_gm(const char* operand, uintptr_t address, uint64_t bytes) {
    Machine& m = machine();
    GmTensor* t = m.find_gm(address, bytes);
    if (t) return t;
    constexpr uint64_t kFar = 65536;
    const GmTensor* near = nullptr;
    for (const GmTensor& g : m.gm)
        if (distance_of(g, address, bytes) < (near ? distance_of(*near, address, bytes) : kFar)) near = &g;
    if (!near)
        fatal_at(Rule::Bounds03, m.current.api, m.current.site,
                 "`%s` touches %llu bytes of GM that belong to no tensor of the launch.", operand,
                 static_cast<unsigned long long>(bytes));
    const auto from = static_cast<long long>(address - near->base);
    const auto to = static_cast<long long>(address + bytes - near->base);
    const auto size = static_cast<unsigned long long>(near->bytes);
    constexpr const char* kText = "`%s` touches bytes [%lld, %lld) of GM tensor `%s`, which has %llu.";
    constexpr auto kGuard = static_cast<long long>(kGuardBytes);
    if (from < -kGuard || to > static_cast<long long>(near->bytes) + kGuard)  // outside the arena
        fatal_at(Rule::Bounds03, m.current.api, m.current.site, kText, operand, from, to, near->name.c_str(), size);
    broken(Rule::Bounds03, kText, operand, from, to, near->name.c_str(), size);
    return nullptr;
}

namespace {

// The scalar unit reads through its cache, which may hold older data than a copy wrote to GM.
void check_fresh(const GmTensor& t, uint64_t offset, uint32_t writer) {
    Machine& m = machine();
    if (m.record(writer).pipe == Pipe::S) return;
    auto line = m.cleaned_lines.find((t.base + offset) / kLineBytes);
    const uint32_t cleaned = std::max(m.cleaned_all, line == m.cleaned_lines.end() ? 0u : line->second);
    if (cleaned < writer)
        broken(Rule::Gm03, "byte %llu of GM `%s` was written at %s; DataCacheCleanAndInvalid missing before this read.",
               static_cast<unsigned long long>(offset), t.name.c_str(), where(m.record(writer).site).c_str());
}

// A copy reads GM directly. Data of a scalar write may still be in the cache.
void check_clean(const char* operand, uintptr_t address, uint64_t bytes) {
    const auto& dirty = machine().dirty_lines;
    const auto line = dirty.lower_bound(address / kLineBytes);
    if (line != dirty.end() && line->first * kLineBytes < address + bytes)
        broken(Rule::Gm02, "`%s` reads GM, but the cache holds what %s wrote: DataCacheCleanAndInvalid missing.",
               operand, where(line->second).c_str());
}

// Whether another core's write is complete and has left that core's cache.
bool is_in_memory(uint32_t writer, uint64_t line) {
    const Machine& m = machine();
    const GmAccess& a = *find_access(m.gm_accesses, writer);
    return m.has_seen(a) && (a.record.pipe != Pipe::S || !m.unclean_lines.count(line));
}

// Reports a read of data that another core wrote, unless a signal orders the write before it and the data have left
// that core's cache. A scalar load also needs a cache line that was loaded after the write.
void check_read_of_other(const char* operand, const GmBytes& touched, uint32_t writer) {
    Machine& m = machine();
    const uint64_t line = (touched.tensor.base + touched.begin) / kLineBytes;
    if (!m.has_seen(*find_access(m.gm_accesses, writer)))
        return report_access(Rule::Core02, operand, "reads", touched, ", which " + describe_access(writer, "wrote"));
    if (!is_in_memory(writer, line))
        return report_access(
            Rule::Gm02, operand, "reads", touched,
            ", which " + describe_access(writer, "wrote") + " into its cache: DataCacheCleanAndInvalid missing there");
    if (m.current.pipe != Pipe::S) return;
    const auto loaded = m.loaded_lines.find(line);
    if (loaded != m.loaded_lines.end() && loaded->second < writer)
        report_access(Rule::Gm03, operand, "reads", touched,
                      ", which " + describe_access(writer, "wrote") +
                          " after this core loaded the line: DataCacheCleanAndInvalid missing before this read");
}

// Reports a write to bytes that another core read or wrote, unless a signal orders that access before it.
// verb_before is "read" or "wrote".
void check_write_after_other(const char* operand, const GmBytes& touched, uint32_t before, const char* verb_before) {
    Machine& m = machine();
    if (m.has_seen(*find_access(m.gm_accesses, before))) return;
    const std::string words = ", which " + describe_access(before, verb_before);
    if (verb_before[0] == 'r') return report_access(Rule::Core02, operand, "writes", touched, words);
    // A store through a reference is noticed by its new value, so the two values are known to differ.
    if (m.reference.open) return report_access(Rule::Core01, operand, "writes", touched, words);
    const auto* bytes = reinterpret_cast<const uint8_t*>(touched.tensor.base);
    m.doubtful_writes.push_back(
        {operand, &touched.tensor, touched.begin, touched.end, words, {bytes + touched.begin, bytes + touched.end}});
}

// Reports a write into a line of GM that another core's cache may still write back.
void check_line_owner(uintptr_t address, uint64_t bytes) {
    Machine& m = machine();
    if (m.scalar_lines.empty()) return;
    for (uint64_t line = address / kLineBytes; line <= (address + bytes - 1) / kLineBytes; ++line) {
        auto owner = m.scalar_lines.find(line);
        if (owner != m.scalar_lines.end() && !m.owns(owner->second) && !is_in_memory(owner->second, line))
            broken(Rule::Core03, "this 64-byte line of GM has bytes that %s.",
                   describe_access(owner->second, "wrote").c_str());
    }
}

}  // namespace

const GmAccess* find_access(const std::vector<GmAccess>& all, uint32_t number) {
    if (!number) return nullptr;
    return &*std::lower_bound(all.begin(), all.end(), number,
                              [](const GmAccess& a, uint32_t wanted) { return a.number < wanted; });
}

GmTensor* Machine::find_gm(uintptr_t address, uint64_t bytes) {
    auto contains = [&](const GmTensor& t) { return address >= t.base && address + bytes <= t.base + t.bytes; };
    if (last_gm < gm.size() && contains(gm[last_gm])) return &gm[last_gm];
    for (last_gm = 0; last_gm < gm.size(); ++last_gm)
        if (contains(gm[last_gm])) return &gm[last_gm];
    return nullptr;
}

void Machine::note_unwritten_gm(uintptr_t begin, uintptr_t end) {
    if (!unwritten_gm.empty() && unwritten_gm.front().instruction != number) unwritten_gm.clear();
    unwritten_gm.push_back({number, begin, end});
}

void reads_gm(const char* operand, uintptr_t address, uint64_t bytes, const GmView& view) {
    if (!bytes) return;
    Machine& m = machine();
    GmTensor* t = require_gm(operand, address, bytes);
    if (!t) return;
    check_view(operand, view, *t, address, bytes);
    if (m.current.pipe != Pipe::S) m.totals.bytes_read += bytes;
    if (t->role == Role::In || t->role == Role::Tiling) {
        if (m.current.pipe == Pipe::S) note_loaded_lines(address, bytes);
        return;
    }
    note_access();
    if (m.current.pipe != Pipe::S) check_clean(operand, address, bytes);
    const bool starts_empty = t->role != Role::InOut;
    for_each_page(address - t->base, bytes, [&](uint64_t page, uint64_t begin, uint64_t end) {
        const uint64_t page_begin = page * kPageBytes;
        for_each_stretch(page_of(t->writer, page), begin, end, [&](uint64_t first, uint64_t last, uint32_t before) {
            const GmBytes touched{*t, page_begin + first, page_begin + last};
            if (!before) {
                if (!starts_empty) return;
                const bool is_copy = m.current.pipe != Pipe::S;
                if (is_copy) m.note_unwritten_gm(t->base + touched.begin, t->base + touched.end);
                report_access(is_copy ? Rule::Init07 : Rule::Init02, operand, "reads", touched,
                              " before anything was written there");
            } else if (!m.owns(before)) {
                check_read_of_other(operand, touched, before);
            } else if (!m.is_ordered(before)) {
                report_unordered("read", touched, operand, before, "write");
            } else if (m.current.pipe == Pipe::S) {
                check_fresh(*t, page_begin + first, before);
            }
        });
        uint32_t* reader = page_of(m.current.pipe == Pipe::S ? t->scalar_reader : t->copy_reader, page);
        std::fill(reader + begin, reader + end, m.number);
    });
    if (m.current.pipe == Pipe::S) note_loaded_lines(address, bytes);
}

void take_gm(uintptr_t address, Site site) {
    GmTensor* t = machine().find_gm(address, 1);
    if (t && !t->taken_by.api) t->taken_by = {"SetGlobalBuffer", site};
}

void writes_gm(const char* operand, uintptr_t address, uint64_t bytes, const GmView& view) {
    if (!bytes) return;
    Machine& m = machine();
    GmTensor* t = require_gm(operand, address, bytes);
    if (!t) return;
    check_view(operand, view, *t, address, bytes);
    if (m.current.pipe != Pipe::S) m.totals.bytes_written += bytes;
    if (t->role == Role::In || t->role == Role::Tiling) {
        broken(Rule::Gm01, "`%s` writes into GM `%s`, which is an input.", operand, t->name.c_str());
        return;
    }
    note_access();
    check_line_owner(address, bytes);
    const bool is_atomic = m.atomic != Atomic::None && m.current.pipe == Pipe::MTE3;
    const bool starts_empty = t->role != Role::InOut;
    m.records.back().is_atomic = m.gm_accesses.back().record.is_atomic = is_atomic;
    for_each_page(address - t->base, bytes, [&](uint64_t page, uint64_t begin, uint64_t end) {
        const uint64_t page_begin = page * kPageBytes;
        uint32_t* writer = page_of(t->writer, page);
        for_each_stretch(writer, begin, end, [&](uint64_t first, uint64_t last, uint32_t before) {
            const GmBytes touched{*t, page_begin + first, page_begin + last};
            if (!before) {
                if (is_atomic && starts_empty)
                    report_access(Rule::Init02, operand, "adds to", touched, " before anything was written there");
                return;
            }
            if (is_atomic && (!m.owns(before) || m.record(before).is_atomic)) return;  // atomic copies need no order
            if (!m.owns(before))
                check_write_after_other(operand, touched, before, "wrote");
            else if (!m.is_ordered(before))
                report_unordered("write", touched, operand, before, "write");
        });
        for (const auto* readers : {&t->copy_reader, &t->scalar_reader}) {
            if (!(*readers)[page]) continue;
            for_each_stretch((*readers)[page].get(), begin, end, [&](uint64_t first, uint64_t last, uint32_t before) {
                const GmBytes touched{*t, page_begin + first, page_begin + last};
                if (!before) return;
                if (!m.owns(before))
                    check_write_after_other(operand, touched, before, "read");
                else if (!m.is_ordered(before))
                    report_unordered("write", touched, operand, before, "read");
            });
        }
        std::fill(writer + begin, writer + end, m.number);
    });
}

void gm_reference(uintptr_t address, uint64_t bytes, const GmView& view, Site site) {
    Machine& m = machine();
    start(Pipe::S, "GlobalTensor()", site);
    if (const GmTensor* t = require_gm("tensor", address, bytes)) {
        check_view("tensor", view, *t, address, bytes);
        m.reference = {};
        m.reference.open = m.reference.is_gm = true;
        m.reference.gm_view = view;
        m.reference.address = address;
        m.reference.bytes = bytes;
        auto* element = reinterpret_cast<void*>(address);
        const auto& page = t->writer[(address - t->base) / kPageBytes];
        m.reference.is_new = t->role == Role::Out && !(page && page[(address - t->base) % kPageBytes]);
        if (m.reference.is_new) {
            std::memcpy(m.reference.output, element, bytes);
            fill_unwritten(element, bytes);
        }
        std::memcpy(m.reference.before, element, bytes);
    }
    note_loaded_lines(address, bytes);
    finish_scalar(scalar_gm_cycles());
}

void Machine::settle_doubtful_writes() {
    for (const WriteOfTwoCores& write : std::exchange(doubtful_writes, {})) {
        const auto* bytes = reinterpret_cast<const uint8_t*>(write.tensor->base) + write.begin;
        const bool same = std::equal(write.before.begin(), write.before.end(), bytes);
        report_access(same ? Rule::Core07 : Rule::Core01, write.operand, "writes",
                      {*write.tensor, write.begin, write.end}, write.words);
    }
}

void Machine::settle_gm_reference() {
    const uint64_t bytes = reference.bytes;
    auto* element = reinterpret_cast<void*>(reference.address);
    running = true;
    if (std::memcmp(reference.before, element, bytes)) {
        ascend_sim::writes_gm("tensor", reference.address, bytes, reference.gm_view);
        ascend_sim::write_to_cache(reference.address, bytes);
    } else {
        if (reference.is_new) std::memcpy(element, reference.output, bytes);
        ascend_sim::reads_gm("tensor", reference.address, bytes, reference.gm_view);
    }
    running = reference.open = false;
}

void write_to_cache(uintptr_t address, uint64_t bytes) {
    Machine& m = machine();
    for (uint64_t line = address / kLineBytes; line <= (address + bytes - 1) / kLineBytes; ++line) {
        m.dirty_lines.emplace(line, m.current.site);
        m.unclean_lines.insert(line);
        m.scalar_lines[line] = m.number;
        m.missed_cache |= m.loaded_lines.try_emplace(line, m.number).second;
        // Cleaning the cache writes the whole line back and overwrites data of other cores.
        for (GmTensor& t : m.gm) {
            const uint64_t begin = std::max<uint64_t>(line * kLineBytes, t.base);
            const uint64_t end = std::min<uint64_t>((line + 1) * kLineBytes, t.base + t.bytes);
            for (uint64_t a = begin; a < end; ++a) {
                const auto& page = t.writer[(a - t.base) / kPageBytes];
                const uint32_t w = page ? page[(a - t.base) % kPageBytes] : 0;
                if (w && !m.owns(w) && !is_in_memory(w, line)) {
                    broken(Rule::Core03, "this 64-byte line of GM `%s` has bytes that %s.", t.name.c_str(),
                           describe_access(w, "wrote").c_str());
                    return;
                }
            }
        }
    }
}

void clean_cache(uintptr_t address, bool whole, Site site) {
    Machine& m = machine();
    start(Pipe::S, "DataCacheCleanAndInvalid", site);
    const uint64_t line = address / kLineBytes;
    if (whole) {
        for (const auto& [dirty, site_of_write] : m.dirty_lines) m.unclean_lines.erase(dirty);
        m.dirty_lines.clear();
        m.loaded_lines.clear();
        m.cleaned_all = m.number;
    } else {
        if (m.dirty_lines.erase(line)) m.unclean_lines.erase(line);
        m.loaded_lines.erase(line);
        m.cleaned_lines[line] = m.number;
    }
    finish_scalar(m.profile->scalar_ub_cycles);
}

}  // namespace ascend_sim
