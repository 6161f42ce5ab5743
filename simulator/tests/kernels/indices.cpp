// Offsets of gathers, and work tensors.
#include "mini.h"

namespace {

// The offsets step * i + first, for 64 lanes.
__aicore__ inline LocalTensor<uint32_t> offsets(LocalTensor<int32_t> at, int32_t first, int32_t step) {
    CreateVecIndex(at, int32_t(0), 64);
    PipeBarrier<PIPE_V>();
    Muls(at, at, step, 64);
    PipeBarrier<PIPE_V>();
    Adds(at, at, first, 64);
    PipeBarrier<PIPE_V>();
    return at.ReinterpretCast<uint32_t>();
}

}  // namespace

KERNEL(gather_every_second_float) {
    Ub ub(2048);
    LocalTensor<uint32_t> o = offsets(ub.at<int32_t>(1024, 64), 0, 8);
    Gather(ub.at<float>(1280, 64), ub.at<float>(0, 128), o, 0, 64);  // keeps SIM-INDEX-01
}

KERNEL(gather_past_the_end) {
    Ub ub(2048);
    LocalTensor<uint32_t> o = offsets(ub.at<int32_t>(1024, 64), 0, 8);
    Gather(ub.at<float>(1280, 64), ub.at<float>(0, 126), o, 0, 64);  // breaks SIM-INDEX-01: 504
}

KERNEL(gather_from_inside_an_element) {
    Ub ub(2048);
    LocalTensor<uint32_t> o = offsets(ub.at<int32_t>(1024, 64), 2, 4);
    Gather(ub.at<float>(1280, 64), ub.at<float>(0, 128), o, 0, 64);  // breaks SIM-INDEX-01
}

KERNEL(gather_with_element_numbers) {
    Ub ub(2048);
    LocalTensor<uint32_t> o = offsets(ub.at<int32_t>(1024, 64), 0, 1);
    Gather(ub.at<float>(1280, 64), ub.at<float>(0, 128), o, 0, 64);  // breaks SIM-INDEX-01
}

KERNEL(gather_from_a_base_past_the_end) {
    Ub ub(2048);
    LocalTensor<uint32_t> o = offsets(ub.at<int32_t>(1024, 64), 0, 4);
    Gather(ub.at<float>(1280, 64), ub.at<float>(0, 64), o, 256, 64);  // breaks SIM-INDEX-01
}

KERNEL(gather_before_the_start) {
    Ub ub(2048);
    LocalTensor<uint32_t> o = offsets(ub.at<int32_t>(1024, 64), -4, 4);
    Gather(ub.at<float>(1280, 64), ub.at<float>(0, 64), o, 0, 64);  // breaks SIM-INDEX-01
}

// One element per repeat of the source, rounded up to a block: 3 repeats, 8 floats.
KERNEL(sum_with_enough_work_memory) {
    Ub ub(4096);
    ReduceSum(ub.at<float>(1024, 8), ub.at<float>(0, 192), ub.at<float>(2048, 8), 64, 3, 8);  // keeps SIM-WORK-01
}

KERNEL(sum_with_too_little_work_memory) {
    Ub ub(4096);
    ReduceSum(ub.at<float>(1024, 8), ub.at<float>(0, 192), ub.at<float>(2048, 4), 64, 3, 8);  // breaks SIM-WORK-01
}

// A library function takes its temporary memory above the buffers. The last 256 bytes of UB are for messages.
KERNEL(function_with_memory_above_the_buffers) {
    Ub ub(196608 - 8192);
    Sigmoid(ub.at<float>(0, 64), ub.at<float>(256, 64), 64);  // keeps SIM-WORK-01
}

KERNEL(function_with_little_memory_above_the_buffers) {
    Ub ub(196608 - 256 - 32);
    Sin(ub.at<float>(0, 64), ub.at<float>(256, 64), 64);  // breaks SIM-WORK-01: Sin: the memory above the TPipe's buffers must have at least 768 bytes but has 32.
}

KERNEL(function_whose_buffers_fill_ub) {
    Ub ub(196608 - 256);
    Sigmoid(ub.at<float>(0, 64), ub.at<float>(256, 64), 64);  // breaks SIM-WORK-01: Sigmoid: its temporary memory is above the TPipe's buffers, but they fill UB.
}
