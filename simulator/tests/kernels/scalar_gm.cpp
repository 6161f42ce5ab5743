// Scalars in GM, through the core's cache; unchanged inputs; atomic mode.
#include "mini.h"

KERNEL(output_written) {
    Ub ub(256);
    DataCopy(global<float>(y), ub.at<float>(0, 64), 64);  // keeps SIM-GM-01
}

KERNEL(input_written) {
    Ub ub(256);
    DataCopy(global<float>(x), ub.at<float>(0, 64), 64);  // breaks SIM-GM-01: `dst` writes into GM `x`, which is an input
}

KERNEL(tiling_written) {
    global<uint32_t>(tiling).SetValue(0, 1);  // breaks SIM-GM-01: GM `tiling`, which is an input
}

KERNEL(scalar_write_cleaned) {
    global<float>(y).SetValue(0, 1.0f);  // keeps SIM-GM-02
    DataCacheCleanAndInvalid<float, CacheLine::SINGLE_CACHE_LINE>(global<float>(y));
}

KERNEL(scalar_write_not_cleaned) {
    global<float>(y).SetValue(0, 1.0f);  // breaks SIM-GM-02: DataCacheCleanAndInvalid missing
}

KERNEL(another_line_cleaned) {
    global<float>(y).SetValue(0, 1.0f);
    global<float>(y).SetValue(16, 1.0f);  // breaks SIM-GM-02: DataCacheCleanAndInvalid missing
    DataCacheCleanAndInvalid<float, CacheLine::SINGLE_CACHE_LINE>(global<float>(y));
}

KERNEL(whole_cache_cleaned) {
    for (int32_t i = 0; i < 64; ++i) global<float>(y).SetValue(i, 1.0f);
    DataCacheCleanAndInvalid<float, CacheLine::ENTIRE_DATA_CACHE>(global<float>(y));  // keeps SIM-GM-02
}

KERNEL(scalar_read_of_an_input) {
    float value = global<float>(x).GetValue(3);  // keeps SIM-GM-03
    (void)value;
}

KERNEL(scalar_read_after_invalidating) {
    Ub ub(256);
    DataCopy(global<float>(y), ub.at<float>(0, 64), 64);
    order<HardEvent::MTE3_S>();
    DataCacheCleanAndInvalid<float, CacheLine::SINGLE_CACHE_LINE>(global<float>(y));
    float value = global<float>(y).GetValue(3);  // keeps SIM-GM-03
    (void)value;
}

KERNEL(scalar_read_after_invalidating_the_whole_cache) {
    Ub ub(256);
    DataCopy(global<float>(y), ub.at<float>(0, 64), 64);
    order<HardEvent::MTE3_S>();
    DataCacheCleanAndInvalid<float, CacheLine::ENTIRE_DATA_CACHE>(global<float>(y));
    float value = global<float>(y).GetValue(3);  // keeps SIM-GM-03
    (void)value;
}

KERNEL(scalar_read_without_invalidating) {
    Ub ub(256);
    DataCopy(global<float>(y), ub.at<float>(0, 64), 64);
    order<HardEvent::MTE3_S>();
    float value = global<float>(y).GetValue(3);  // breaks SIM-GM-03: byte 12 of GM `y` was written at @-2; DataCacheCleanAndInvalid missing before this read
    (void)value;
}

// The copy is the core's first instruction.
KERNEL(scalar_read_of_a_copy_of_unwritten_memory) {
    TPipe pipe;
    TBuf<> buffer;
    pipe.InitBuffer(buffer, 256);
    DataCopy(global<float>(y), buffer.Get<float>(), 64);
    order<HardEvent::MTE3_S>();
    float value = global<float>(y).GetValue(3);
    (void)value;
}

KERNEL(scalar_read_after_invalidating_too_early) {
    Ub ub(256);
    DataCacheCleanAndInvalid<float, CacheLine::ENTIRE_DATA_CACHE>(global<float>(y));
    DataCopy(global<float>(y), ub.at<float>(0, 64), 64);
    order<HardEvent::MTE3_S>();
    float value = global<float>(y).GetValue(3);  // breaks SIM-GM-03: byte 12
    (void)value;
}

KERNEL(scalar_reads_its_own_write) {
    global<float>(y).SetValue(0, 1.0f);
    float value = global<float>(y).GetValue(0);  // keeps SIM-GM-03
    (void)value;
    DataCacheCleanAndInvalid<float, CacheLine::SINGLE_CACHE_LINE>(global<float>(y));
}

KERNEL(atomic_mode_off) {
    SetAtomicAdd<float>();
    SetAtomicNone();  // keeps SIM-STATE-01
}

KERNEL(atomic_sum_of_its_type) {
    Ub ub(256);
    DataCopy(global<float>(y), ub.at<float>(0, 64), 64);
    PipeBarrier<PIPE_MTE3>();
    SetAtomicAdd<float>();
    DataCopy(global<float>(y), ub.at<float>(0, 64), 64);  // keeps SIM-STATE-02
    SetAtomicNone();
}

KERNEL(atomic_sum_of_another_type) {
    Ub ub(256);
    DataCopy(global<float>(y), ub.at<float>(0, 64), 64);
    PipeBarrier<PIPE_MTE3>();
    SetAtomicAdd<half>();
    DataCopy(global<float>(y), ub.at<float>(0, 64), 64);  // breaks SIM-STATE-02
    SetAtomicNone();
}

KERNEL(atomic_mode_left_on) {
    SetAtomicAdd<float>();  // breaks SIM-STATE-01
}
