// Destination and source in the same memory.
#include "mini.h"

KERNEL(add_in_place) {
    Ub ub(4096);
    LocalTensor<float> t = ub.at<float>(0, 1024);
    Add(t, t, t[512], 256);  // keeps SIM-OVERLAP-01
}

KERNEL(add_onto_a_part_of_its_source) {
    Ub ub(4096);
    LocalTensor<float> t = ub.at<float>(0, 1024);
    Add(t[8], t, t[512], 64, 1, {1, 1, 1, 8, 8, 8});  // breaks SIM-OVERLAP-01: `dst` and `src0` overlap in repeat 0
}

KERNEL(add_to_the_lanes_after_its_source) {
    Ub ub(4096);
    LocalTensor<float> t = ub.at<float>(0, 1024);
    Add(t[64], t, t[512], 64, 1, {1, 1, 1, 8, 8, 8});  // keeps SIM-OVERLAP-01
}

// From a narrow to a wide type in place, a repeat's results overlap its own sources and those of the next repeat.
KERNEL(widen_in_place) {
    Ub ub(4096);
    Cast(ub.at<float>(0, 512), ub.at<half>(0, 512), RoundMode::CAST_NONE, 512);  // breaks SIM-OVERLAP-02: repeat 1 reads UB byte 128 of `src`, which repeat 0 wrote
}

KERNEL(widen_one_repeat_in_place) {
    Ub ub(4096);
    Cast(ub.at<float>(0, 64), ub.at<half>(0, 64), RoundMode::CAST_NONE, 64);  // warns SIM-OVERLAP-03: the wider `dst` overlaps a part of `src`
}

KERNEL(widen_one_repeat_in_place_by_repeats) {
    Ub ub(4096);
    Cast(ub.at<float>(0, 64), ub.at<half>(0, 64), RoundMode::CAST_NONE, 64, 1, {1, 1, 8, 4});  // breaks SIM-OVERLAP-01: `dst` and `src`
}

// The source is the upper half of the result: only the last repeat's result overlaps its own source.
KERNEL(widen_from_the_upper_half) {
    Ub ub(4096);
    Cast(ub.at<float>(0, 512), ub.at<half>(1024, 512), RoundMode::CAST_NONE, 512);  // warns SIM-OVERLAP-03: the wider `dst` overlaps a part of `src`
}

KERNEL(widen_from_the_upper_half_by_repeats) {
    Ub ub(4096);
    Cast(ub.at<float>(0, 512), ub.at<half>(1024, 512), RoundMode::CAST_NONE, 64, 8, {1, 1, 8, 4});  // breaks SIM-OVERLAP-01: `dst` and `src`
}

KERNEL(widen_into_a_later_source) {
    Ub ub(4096);
    Cast(ub.at<float>(0, 512), ub.at<half>(512, 512), RoundMode::CAST_NONE, 512);  // breaks SIM-OVERLAP-02: which repeat
}

// From a wide to a narrow type in place, no result lies in data that is read later.
KERNEL(narrow_in_place) {
    Ub ub(4096);
    Cast(ub.at<half>(0, 512), ub.at<float>(0, 512), RoundMode::CAST_RINT, 512);  // warns SIM-OVERLAP-03: the narrower `dst` overlaps a part of `src`
}

KERNEL(narrow_beside_the_source) {
    Ub ub(4096);
    Cast(ub.at<half>(64, 512), ub.at<float>(0, 512), RoundMode::CAST_RINT, 512);  // warns SIM-OVERLAP-03: the narrower `dst` overlaps a part of `src`
}

KERNEL(narrow_beside_the_source_by_repeats) {
    Ub ub(4096);
    Cast(ub.at<half>(64, 512), ub.at<float>(0, 512), RoundMode::CAST_RINT, 64, 8, {1, 1, 4, 8});  // breaks SIM-OVERLAP-01: `dst` and `src`
}

KERNEL(narrow_into_a_later_source) {
    Ub ub(4096);
    Cast(ub.at<half>(1024, 512), ub.at<float>(0, 512), RoundMode::CAST_RINT, 512);  // breaks SIM-OVERLAP-02: which repeat
}

KERNEL(sum_at_its_source) {
    Ub ub(4096);
    LocalTensor<float> t = ub.at<float>(0, 128);
    WholeReduceSum(t, t, 64, 2, 1, 1, 8);  // warns SIM-OVERLAP-03: `dst` overlaps a part of the `src` of its own repeat
}

KERNEL(sums_in_a_later_source) {
    Ub ub(4096);
    LocalTensor<float> t = ub.at<float>(0, 128);
    WholeReduceSum(t[64], t, 64, 2, 1, 1, 8);  // breaks SIM-OVERLAP-02: repeat 0 writes UB bytes [256, 260) of `dst`, which repeat 1 reads
}

KERNEL(gather_in_place) {
    Ub ub(4096);
    LocalTensor<float> t = ub.at<float>(0, 64);
    LocalTensor<int32_t> offsets = ub.at<int32_t>(1024, 64);
    Duplicate(offsets, 0, 64);
    PipeBarrier<PIPE_V>();
    Gather(t, t, offsets.ReinterpretCast<uint32_t>(), 0, 64);  // breaks SIM-OVERLAP-01
}

KERNEL(gather_apart) {
    Ub ub(4096);
    LocalTensor<float> t = ub.at<float>(0, 64);
    LocalTensor<int32_t> offsets = ub.at<int32_t>(1024, 64);
    Duplicate(offsets, 0, 64);
    PipeBarrier<PIPE_V>();
    Gather(ub.at<float>(2048, 64), t, offsets.ReinterpretCast<uint32_t>(), 0, 64);  // keeps SIM-OVERLAP-01
}

KERNEL(repeats_that_do_not_meet) {
    Ub ub(4096);
    LocalTensor<float> t = ub.at<float>(0, 1024);
    Add(t[128], t, t[512], 64, 2, {1, 1, 1, 8, 8, 8});  // keeps SIM-OVERLAP-02
}

KERNEL(repeat_reads_an_earlier_result) {
    Ub ub(4096);
    LocalTensor<float> t = ub.at<float>(0, 1024);
    Add(t[64], t, t[512], 64, 2, {1, 1, 1, 8, 8, 8});  // breaks SIM-OVERLAP-02: repeat 1 reads UB byte 256 of `src0`, which repeat 0 wrote as `dst`
}

// A later repeat overwrites data that an earlier one has already read.
KERNEL(repeat_overwrites_an_earlier_source) {
    Ub ub(4096);
    LocalTensor<float> t = ub.at<float>(0, 1024);
    Add(t, t[64], t[512], 64, 2, {1, 1, 1, 8, 8, 8});  // keeps SIM-OVERLAP-02
}

// The documentation of Add permits a sum over repeats: dst == src1, both with repeat stride 0. That of Div does not.
KERNEL(sum_in_place) {
    Ub ub(4096);
    LocalTensor<float> t = ub.at<float>(0, 1024);
    Add(t, t[512], t, 64, 4, {1, 1, 1, 0, 8, 0});  // keeps SIM-OVERLAP-02
}

KERNEL(quotient_in_place) {
    Ub ub(4096);
    LocalTensor<float> t = ub.at<float>(0, 1024);
    Div(t, t[512], t, 64, 4, {1, 1, 1, 0, 8, 0});  // breaks SIM-OVERLAP-02: `src1`
}

// In a count form, the result of a reduction or selection should not overlap its source.
KERNEL(largest_beside_its_source) {
    Ub ub(1024);
    ReduceMax(ub.at<float>(512, 8), ub.at<float>(0, 100), ub.at<float>(768, 8), 100);  // keeps SIM-OVERLAP-03
}

KERNEL(selection_in_place) {
    Ub ub(1024);
    uint64_t count;
    GatherMask(ub.at<float>(0, 128), ub.at<float>(0, 128), 1, false, 0, {1, 2, 8, 0}, count);  // warns SIM-OVERLAP-03: `dst` overlaps `src0`
}

KERNEL(selection_beside_its_source) {
    Ub ub(1024);
    uint64_t count;
    GatherMask(ub.at<float>(512, 128), ub.at<float>(0, 128), 1, false, 0, {1, 2, 8, 0}, count);  // keeps SIM-OVERLAP-03
}

KERNEL(selection_in_place_from_equal_repeats) {
    Ub ub(1024);
    uint64_t count;
    GatherMask(ub.at<float>(0, 128), ub.at<float>(0, 128), 1, false, 0, {1, 2, 0, 0}, count);  // breaks SIM-OVERLAP-01: `dst`
}

KERNEL(selection_behind_the_start_of_its_source) {
    Ub ub(1024);
    uint64_t count;
    GatherMask(ub.at<float>(32, 128), ub.at<float>(0, 128), 1, false, 0, {1, 2, 8, 0}, count);  // breaks SIM-OVERLAP-01: `dst`
}

KERNEL(total_in_its_source) {
    Ub ub(1024);
    ReduceSum(ub.at<float>(0, 8), ub.at<float>(0, 100), ub.at<float>(768, 8), 100);  // warns SIM-OVERLAP-03: `dst` (UB
}

KERNEL(total_in_its_source_by_repeats) {
    Ub ub(1024);
    ReduceSum(ub.at<float>(0, 8), ub.at<float>(0, 128), ub.at<float>(768, 8), 64, 2, 8);  // breaks SIM-OVERLAP-01: `dst` (UB
}

KERNEL(largest_in_its_source) {
    Ub ub(1024);
    ReduceMax(ub.at<float>(0, 8), ub.at<float>(0, 100), ub.at<float>(768, 8), 100);  // warns SIM-OVERLAP-03: `dst` (UB
}
