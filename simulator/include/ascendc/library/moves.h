// Instructions of library functions that move elements: each checks the bytes that it reads and writes, moves
// them, and has a cost.
#pragma once

#include "ascendc/library/call.h"
#include "ascendc/sync.h"

namespace ascend_sim {

struct Moved {
    const char* operand;
    const UbView& view;
    Range range;
};

template <class T>
Range bytes_of(const AscendC::LocalTensor<T>& t, uint64_t elements) {
    return {t.view().addr, int64_t(t.view().addr + elements * sizeof(T))};
}
template <class T>
Moved first_of(const char* operand, const AscendC::LocalTensor<T>& t, uint64_t elements) {
    return {operand, t.view(), bytes_of(t, elements)};
}

constexpr uint32_t repeats_of(uint64_t bytes) { return uint32_t((bytes + kRepeatBytes - 1) / kRepeatBytes); }

// One vector instruction, and the barrier that the function puts after it.
template <class F>
void move_elements(const char* api, Site site, const Moved& to, const Moved& from, uint32_t repeats, Cost cost,
                   F move) {
    start(Pipe::V, api, site);
    reads(from.operand, from.view, &from.range, from.range.end > from.range.begin ? 1 : 0);
    writes(to.operand, to.view, &to.range, to.range.end > to.range.begin ? 1 : 0);
    move();
    finish_vector(repeats, cycles_of(cost));
    if (!kIs950) barrier(int32_t(Pipe::V), site);
}

}  // namespace ascend_sim
