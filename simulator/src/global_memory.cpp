// Global memory: whose tensor, who wrote, who read, and the scalar unit's cache.
#include <algorithm>

#include "simulator/src/core.h"

namespace npu_sim {
namespace {

uint32_t* page_of(std::vector<std::unique_ptr<uint32_t[]>>& pages, uint64_t index) {
    if (!pages[index]) pages[index] = std::make_unique<uint32_t[]>(kPageBytes);
    return pages[index].get();
}

// f(page or nullptr, first byte in page, past the last, offset of the page) over [offset, offset + bytes).
template <class F>
void for_each_page(uint64_t offset, uint64_t bytes, F f) {
    for (uint64_t end = offset + bytes; offset < end;) {
        const uint64_t index = offset / kPageBytes, begin = offset % kPageBytes;
        const uint64_t stop = std::min(kPageBytes, begin + (end - offset));
        f(index, begin, stop);
        offset += stop - begin;
    }
}

void gm_unordered(const char* verb, const GmTensor& t, const char* operand, uint64_t offset, uint32_t before,
                  const char* verb_before) {
    Machine& m = machine();
    const Record old = m.record(before);
    const Pipe now = m.current.pipe;
    const Rule rule = now == old.pipe && now == Pipe::MTE3 ? Rule::Hazard04 : Rule::Hazard05;
    broken(rule, "%s %s of `%s` (GM `%s`, byte %llu) is not ordered after the %s %s by %s at %s: %s%s%s missing.",
           pipe_name(now), verb, operand, t.name.c_str(), static_cast<unsigned long long>(offset), pipe_name(old.pipe),
           verb_before, old.api, where(old.site).c_str(), now == old.pipe ? "PipeBarrier<PIPE_" : pipe_name(old.pipe),
           now == old.pipe ? pipe_name(now) : "_", now == old.pipe ? ">" : pipe_name(now));
}

GmTensor* require_gm(const char* operand, uintptr_t address, uint64_t bytes) {
    Machine& m = machine();
    GmTensor* t = m.find_gm(address, bytes);
    if (t) return t;
    const GmTensor* near = nullptr;
    for (const GmTensor& g : m.gm)
        if (address + bytes > g.base - 65536 && address < g.base + g.bytes + 65536 && (!near || address >= g.base))
            near = &g;
    if (near)
        broken(Rule::Bounds03, "`%s` touches bytes [%lld, %lld) of GM tensor `%s`, which has %llu.", operand,
               static_cast<long long>(address - near->base), static_cast<long long>(address + bytes - near->base),
               near->name.c_str(), static_cast<unsigned long long>(near->bytes));
    else
        broken(Rule::Bounds03, "`%s` touches %llu bytes of GM that belong to no tensor of the launch.", operand,
               static_cast<unsigned long long>(bytes));
    return nullptr;
}

// The scalar unit reads through its cache: what a copy wrote meanwhile it does not see.
void check_fresh(const GmTensor& t, uint64_t offset, uint32_t writer) {
    Machine& m = machine();
    if (m.record(writer).pipe == Pipe::S) return;
    auto line = m.cleaned_lines.find((t.base + offset) / kLineBytes);
    const uint32_t cleaned = std::max(m.cleaned_all, line == m.cleaned_lines.end() ? 0u : line->second);
    if (cleaned < writer)
        broken(Rule::Gm03, "byte %llu of GM `%s` was written at %s; DataCacheCleanAndInvalid missing before this read.",
               static_cast<unsigned long long>(offset), t.name.c_str(), where(m.record(writer).site).c_str());
}

void check_line_owner(uintptr_t address, uint64_t bytes) {
    Machine& m = machine();
    if (m.scalar_lines.empty()) return;
    for (uint64_t line = address / kLineBytes; line <= (address + bytes - 1) / kLineBytes; ++line) {
        auto owner = m.scalar_lines.find(line);
        if (owner != m.scalar_lines.end() && owner->second != m.core)
            broken(Rule::Core03, "this 64-byte line of GM was written by scalars of core %lld.",
                   static_cast<long long>(owner->second));
    }
}

}  // namespace

GmTensor* Machine::find_gm(uintptr_t address, uint64_t bytes) {
    auto holds = [&](const GmTensor& t) { return address >= t.base && address + bytes <= t.base + t.bytes; };
    if (last_gm < gm.size() && holds(gm[last_gm])) return &gm[last_gm];
    for (last_gm = 0; last_gm < gm.size(); ++last_gm)
        if (holds(gm[last_gm])) return &gm[last_gm];
    return nullptr;
}

void reads_gm(const char* operand, uintptr_t address, uint64_t bytes) {
    if (!bytes) return;
    Machine& m = machine();
    GmTensor* t = require_gm(operand, address, bytes);
    if (!t) return;
    if (m.current.pipe != Pipe::S) m.totals.bytes_read += bytes;
    if (t->role == Role::In || t->role == Role::Tiling) return;
    const bool starts_empty = t->role != Role::InOut;
    for_each_page(address - t->base, bytes, [&](uint64_t page, uint64_t begin, uint64_t end) {
        const uint64_t at = page * kPageBytes;
        const uint32_t* writer = page_of(t->writer, page);
        for (uint64_t i = begin; i < end; ++i) {
            const uint32_t w = writer[i];
            if (i > begin && w == writer[i - 1]) continue;
            if (!w) {
                if (starts_empty)
                    broken(Rule::Init02, "`%s` reads byte %llu of GM `%s` before anything was written there.", operand,
                           static_cast<unsigned long long>(at + i), t->name.c_str());
            } else if (w < m.core_first) {
                broken(Rule::Core02, "`%s` reads byte %llu of GM `%s`, which another core writes.", operand,
                       static_cast<unsigned long long>(at + i), t->name.c_str());
            } else if (!m.is_ordered(w)) {
                gm_unordered("read", *t, operand, at + i, w, "write");
            } else if (m.current.pipe == Pipe::S) {
                check_fresh(*t, at + i, w);
            }
        }
        uint32_t* reader = page_of(t->reader, page);
        std::fill(reader + begin, reader + end, m.number);
    });
}

void writes_gm(const char* operand, uintptr_t address, uint64_t bytes) {
    if (!bytes) return;
    Machine& m = machine();
    GmTensor* t = require_gm(operand, address, bytes);
    if (!t) return;
    if (m.current.pipe != Pipe::S) m.totals.bytes_written += bytes;
    if (t->role == Role::In || t->role == Role::Tiling) {
        broken(Rule::Gm01, "`%s` writes into GM `%s`, which is an input.", operand, t->name.c_str());
        return;
    }
    check_line_owner(address, bytes);
    const bool adds = m.atomic != Atomic::None && m.current.pipe == Pipe::MTE3;
    for_each_page(address - t->base, bytes, [&](uint64_t page, uint64_t begin, uint64_t end) {
        const uint64_t at = page * kPageBytes;
        uint32_t* writer = page_of(t->writer, page);
        for (uint64_t i = begin; i < end; ++i) {
            const uint32_t w = writer[i];
            if (!w || (i > begin && w == writer[i - 1]) || adds) continue;
            if (w < m.core_first)
                broken(Rule::Core01, "`%s` writes byte %llu of GM `%s`, which another core wrote.", operand,
                       static_cast<unsigned long long>(at + i), t->name.c_str());
            else if (!m.is_ordered(w))
                gm_unordered("write", *t, operand, at + i, w, "write");
        }
        if (t->reader[page]) {
            const uint32_t* reader = t->reader[page].get();
            for (uint64_t i = begin; i < end; ++i) {
                const uint32_t r = reader[i];
                if (!r || (i > begin && r == reader[i - 1])) continue;
                if (r < m.core_first)
                    broken(Rule::Core02, "`%s` writes byte %llu of GM `%s`, which another core read.", operand,
                           static_cast<unsigned long long>(at + i), t->name.c_str());
                else if (!m.is_ordered(r))
                    gm_unordered("write", *t, operand, at + i, r, "read");
            }
        }
        std::fill(writer + begin, writer + end, m.number);
    });
}

void write_through_cache(uintptr_t address, uint64_t bytes) {
    Machine& m = machine();
    for (uint64_t line = address / kLineBytes; line <= (address + bytes - 1) / kLineBytes; ++line) {
        m.dirty_lines.insert(line);
        m.scalar_lines.emplace(line, m.core);
        // Cleaning the cache writes the whole line back, over whatever other cores put there.
        for (GmTensor& t : m.gm) {
            const uint64_t begin = std::max<uint64_t>(line * kLineBytes, t.base);
            const uint64_t end = std::min<uint64_t>((line + 1) * kLineBytes, t.base + t.bytes);
            for (uint64_t a = begin; a < end; ++a) {
                const auto& page = t.writer[(a - t.base) / kPageBytes];
                const uint32_t w = page ? page[(a - t.base) % kPageBytes] : 0;
                if (w && w < m.core_first) {
                    broken(Rule::Core03, "this 64-byte line of GM `%s` was also written by another core.",
                           t.name.c_str());
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
        m.dirty_lines.clear();
        m.cleaned_all = m.number;
    } else {
        m.dirty_lines.erase(line);
        m.cleaned_lines[line] = m.number;
    }
    finish_scalar(m.profile->scalar_access_cycles);
}

}  // namespace npu_sim
