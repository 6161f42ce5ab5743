// Rules on Ascend310P.
#include "mini.h"

KERNEL(copy_of_one_block) {
    Ub ub(1024);
    DataCopy(ub.at<float>(0, 64), global<float>(x), {1, 1, 0, 0});  // keeps SIM-COUNT-02
}

KERNEL(copy_of_no_block) {
    Ub ub(1024);
    DataCopy(ub.at<float>(0, 64), global<float>(x), {0, 1, 0, 0});  // breaks SIM-COUNT-02
}

KERNEL(copy_of_no_length) {
    Ub ub(1024);
    DataCopy(ub.at<float>(0, 64), global<float>(x), {1, 0, 0, 0});  // breaks SIM-COUNT-02
}

KERNEL(one_repeat) {
    Ub ub(1024);
    Adds(ub.at<float>(0, 64), ub.at<float>(256, 64), 1.0f, 64, 1, {1, 1, 8, 8});  // keeps SIM-COUNT-05
}

KERNEL(no_repeat) {
    Ub ub(1024);
    Adds(ub.at<float>(0, 64), ub.at<float>(256, 64), 1.0f, 64, 0, {1, 1, 8, 8});  // warns SIM-COUNT-05: the instruction does nothing
}

KERNEL(one_lane) {
    Ub ub(1024);
    Adds(ub.at<float>(0, 64), ub.at<float>(256, 64), 1.0f, 1, 1, {1, 1, 8, 8});  // keeps SIM-MASK-01
}

KERNEL(no_lane) {
    Ub ub(1024);
    const uint64_t lanes = 0;
    Adds(ub.at<float>(0, 64), ub.at<float>(256, 64), 1.0f, lanes, 1, {1, 1, 8, 8});  // breaks SIM-MASK-01: mask must be 1 .. 64 but got 0
}

KERNEL(half_without_a_mode) {
    Ub ub(4096);
    Cast(ub.at<half>(2048, 64), ub.at<float>(0, 64), RoundMode::CAST_NONE, 64);  // keeps SIM-ROUND-01
}

KERNEL(half_to_nearest) {
    Ub ub(4096);
    Cast(ub.at<half>(2048, 64), ub.at<float>(0, 64), RoundMode::CAST_RINT, 64);  // breaks SIM-ROUND-01
}

KERNEL(float_of_an_integer_without_a_mode) {
    Ub ub(4096);
    Cast(ub.at<float>(2048, 64), ub.at<int32_t>(0, 64), RoundMode::CAST_NONE, 64);  // keeps SIM-ROUND-01
}

KERNEL(float_of_an_integer_to_nearest) {
    Ub ub(4096);
    Cast(ub.at<float>(2048, 64), ub.at<int32_t>(0, 64), RoundMode::CAST_RINT, 64);  // breaks SIM-ROUND-01
}

// On this SoC a gather's destination need not be aligned to a block.
KERNEL(gather_into_a_block) {
    Ub ub(2048);
    LocalTensor<int32_t> offsets = ub.at<int32_t>(1024, 64);
    Duplicate(offsets, 0, 64);
    PipeBarrier<PIPE_V>();
    Gather(ub.at<float>(1284, 32), ub.at<float>(0, 64), offsets.ReinterpretCast<uint32_t>(), 0, 32);  // keeps SIM-ALIGN-02
}

KERNEL(gather_with_offsets_inside_a_block) {
    Ub ub(2048);
    LocalTensor<int32_t> offsets = ub.at<int32_t>(1024, 64);
    Duplicate(offsets, 0, 64);
    PipeBarrier<PIPE_V>();
    Gather(ub.at<float>(1536, 32), ub.at<float>(0, 64), offsets.ReinterpretCast<uint32_t>()[4], 0, 32);  // breaks SIM-ALIGN-01: `offsets`
}

KERNEL(scatter_inside) {
    Ub ub(2048);
    LocalTensor<int32_t> offsets = ub.at<int32_t>(1024, 64);
    CreateVecIndex(offsets, int32_t(0), 64);
    PipeBarrier<PIPE_V>();
    Muls(offsets, offsets, 4, 64);
    PipeBarrier<PIPE_V>();
    Scatter(ub.at<float>(1536, 64), ub.at<float>(0, 64), offsets.ReinterpretCast<uint32_t>(), 0, 64);  // keeps SIM-INDEX-01
}

KERNEL(scatter_twice_to_one_place) {
    Ub ub(2048);
    LocalTensor<int32_t> offsets = ub.at<int32_t>(1024, 64);
    Duplicate(offsets, 0, 64);
    PipeBarrier<PIPE_V>();
    Scatter(ub.at<float>(1536, 64), ub.at<float>(0, 64), offsets.ReinterpretCast<uint32_t>(), 0, 64);  // breaks SIM-INDEX-01
}

KERNEL(broadcast_below_the_scratch) {
    Ub ub(253952);
    Brcb(ub.at<float>(1024, 64), ub.at<float>(0, 8), 1, {1, 8});  // keeps SIM-BUFFER-05
}

KERNEL(broadcast_over_the_scratch) {
    Ub ub(253984);
    Brcb(ub.at<float>(1024, 64), ub.at<float>(0, 8), 1, {1, 8});  // breaks SIM-BUFFER-05: Brcb
}

KERNEL(all_of_ub) {
    TPipe pipe;
    TBuf<> buffer;
    pipe.InitBuffer(buffer, 262144);  // keeps SIM-BUFFER-02
}
