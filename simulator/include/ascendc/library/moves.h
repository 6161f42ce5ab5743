// Single instructions of library functions. Each checks the bytes that it reads and writes, computes, and has a cost.
#pragma once

#include "ascendc/library/call.h"
#include "ascendc/sync.h"

namespace ascend_sim {

// The bytes of one operand that an instruction reads or writes.
struct AccessedElements {
    const char* operand;  // the name in reports
    const UbView& view;
    Range range;
};

template <class T>
Range bytes_of(const AscendC::LocalTensor<T>& t, uint64_t elements) {
    return {t.view().addr, int64_t(t.view().addr + elements * sizeof(T))};
}
template <class T>
AccessedElements first_elements(const char* operand, const AscendC::LocalTensor<T>& t, uint64_t elements) {
    return {operand, t.view(), bytes_of(t, elements)};
}

constexpr uint32_t repeats_of(uint64_t bytes) { return uint32_t((bytes + kRepeatBytes - 1) / kRepeatBytes); }

// Runs one vector instruction with one source, and the barrier that a library function puts after it.
template <class Function>
void run_instruction(const char* api, Site site, const AccessedElements& to, const AccessedElements& from,
                     uint32_t repeats, Cost cost, Function compute) {
    start(Pipe::V, api, site);
    reads(from.operand, from.view, &from.range, from.range.end > from.range.begin ? 1 : 0);
    writes(to.operand, to.view, &to.range, to.range.end > to.range.begin ? 1 : 0);
    compute();
    finish_vector(repeats, cycles_of(cost));
    if (!kIs950) barrier(int32_t(Pipe::V), site);
}

}  // namespace ascend_sim
