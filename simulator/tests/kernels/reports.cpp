// Kernels whose reports, results and traces the tests check.
#include "mini.h"

KERNEL(unordered_in_a_loop) {
    Ub ub(1024);
    LocalTensor<float> t = ub.at<float>(0, 256);
    for (int32_t i = 0; i < 5; ++i) Adds(t, t, 1.0f, 64);
}

KERNEL(copy_with_a_tail) {
    Ub ub(1024);
    LocalTensor<float> t = ub.at<float>(0, 256);
    DataCopy(t, global<float>(x), 16);
    order<HardEvent::MTE2_MTE3>();
    DataCopy(global<float>(y), t, 12);
}

// y is written before a rule is broken.
KERNEL(broken_after_its_output) {
    Ub ub(1024);
    LocalTensor<float> t = ub.at<float>(0, 256);
    DataCopy(global<float>(y), t, 64);
    SetFlag<HardEvent::MTE3_S>(EVENT_ID0);
}

// Only the third core breaks a rule.
KERNEL(broken_on_core_two) {
    Ub ub(1024);
    LocalTensor<float> t = ub.at<float>(0, 256);
    if (GetBlockIdx() == 2) t = t[4];
    Adds(t, t, 1.0f, 8);
}

// Two instructions break a rule; the launch ends at the first.
KERNEL(broken_twice) {
    Ub ub(1024);
    LocalTensor<float> t = ub.at<float>(0, 256);
    Adds(t[12], t, 1.0f, 8);
    Adds(t[36], t, 1.0f, 8);
}

// The largest half is 65504.
KERNEL(half_overflow) {
    Ub ub(1024);
    LocalTensor<half> t = ub.at<half>(0, 128);
    Duplicate(t, half(40000.0f), 128);
    PipeBarrier<PIPE_V>();
    Muls(t, t, half(-2.0f), 64);
    order<HardEvent::V_MTE3>();
    DataCopy(global<half>(y), t, 128);
}

KERNEL(two_reads_of_the_system_counter) {
    (void)GetSystemCycle();
    (void)GetSystemCycle();
}

// Each core writes core + 1 to its own eight floats of y.
KERNEL(number_of_each_core) {
    Ub ub(1024);
    LocalTensor<float> t = ub.at<float>(0, 8);
    Duplicate(t, float(GetBlockIdx() + 1), 8);
    order<HardEvent::V_MTE3>();
    DataCopy(global<float>(y, GetBlockNum() * 8)[GetBlockIdx() * 8], t, 8);
}

// y = x + x in three steps, then y[0] = y[1] + 100. The kernel does not order the steps: the compiler has to insert the
// synchronisation.
KERNEL(written_for_auto_sync) {
    Ub ub(1024);
    LocalTensor<float> t = ub.at<float>(0, 192);
    DataCopy(t, global<float>(x), 64);
    order<HardEvent::MTE2_V>();
    Muls(t[64], t, 0.5f, 64);
    Add(t[128], t[64], t, 64);
    Add(t[128], t[128], t[64], 64);
    t[128].SetValue(0, t[128].GetValue(1) + 100.0f);
    order<HardEvent::V_MTE3>();
    DataCopy(global<float>(y), t[128], 64);
}

// The core ends before the reference is used.
KERNEL(reference_past_what_the_buffer_was_given) {
    TPipe pipe;
    float& value = global<float>(x, 8)(8);
    (void)value;
    SetFlag<HardEvent::V_S>(8);
}

KERNEL(reference_to_gm) {
    float value = global<float>(x)(0);
    (void)value;
}
