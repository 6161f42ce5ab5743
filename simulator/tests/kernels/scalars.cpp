// References to single elements, and the register of ReduceSum.
#include "mini.h"

KERNEL(reference_to_a_written_element) {
    Ub ub(256);
    LocalTensor<float> t = ub.at<float>(0, 64);
    float value = t(3);  // keeps SIM-INIT-01
    (void)value;
}

KERNEL(reference_to_an_unwritten_element) {
    TPipe pipe;
    TBuf<> buffer;
    pipe.InitBuffer(buffer, 512);
    float value = buffer.Get<float>()(3);  // breaks SIM-INIT-01: UB bytes [12, 16)
    (void)value;
}

KERNEL(unwritten_element_written_by_a_reference) {
    TPipe pipe;
    TBuf<> buffer;
    pipe.InitBuffer(buffer, 512);
    LocalTensor<float> t = buffer.Get<float>();
    t(3) = 1.0f;
    float value = t(3);  // keeps SIM-INIT-01
    (void)value;
}

KERNEL(reference_past_the_tensors_end) {
    Ub ub(256);
    ub.at<float>(0, 32)(32) = 1.0f;  // breaks SIM-BOUNDS-01: UB bytes [128, 132)
}

KERNEL(v_reads_what_a_reference_wrote) {
    Ub ub(512);
    LocalTensor<float> t = ub.at<float>(0, 128);
    t(3) = 2.0f;
    order<HardEvent::S_V>();
    Adds(t[64], t, 1.0f, 64);  // keeps SIM-HAZARD-03
}

KERNEL(v_reads_what_a_reference_writes) {
    Ub ub(512);
    LocalTensor<float> t = ub.at<float>(0, 128);
    t(3) = 2.0f;
    Adds(t[64], t, 1.0f, 64);  // breaks SIM-HAZARD-03: S write by LocalTensor() at @-1: S_V event missing.
}

KERNEL(reference_to_what_v_writes) {
    Ub ub(512);
    LocalTensor<float> t = ub.at<float>(0, 128);
    Adds(t[64], t, 1.0f, 64);
    float value = t(64);  // breaks SIM-HAZARD-03: V_S event missing.
    (void)value;
}

KERNEL(v_writes_what_a_reference_reads) {
    Ub ub(512);
    LocalTensor<float> t = ub.at<float>(0, 128);
    float value = t(0);
    Adds(t, t[64], value, 64);  // breaks SIM-HAZARD-03: S read by LocalTensor() at @-1: S_V event missing.
}

KERNEL(sum_in_the_register) {
    Ub ub(1024);
    ReduceSum(ub.at<float>(512, 8), ub.at<float>(0, 64), ub.at<float>(768, 8), 64);
    int64_t bits = GetReduceRepeatSumSpr();  // keeps SIM-INIT-01
    (void)bits;
}

KERNEL(no_sum_in_the_register) {
    int64_t bits = GetAccVal();  // breaks SIM-INIT-01: before a ReduceSum left a sum there
    (void)bits;
}

// y[0, 8): results that references and the register of ReduceSum give for sixteen ones.
KERNEL(scalars_of_all_sorts) {
    Ub ub(1024);
    LocalTensor<float> t = ub.at<float>(0, 16);
    LocalTensor<half> h = ub.at<half>(512, 16);
    t(1) = t(0) + 1.0f;
    t(2) += t(1);
    auto copied = t(2);
    t(2) = 0.0f;
    t(3) = copied;
    h(0) = half(0.5f);
    t(4) = h(0) * 3.0f;
    order<HardEvent::S_V>();
    Muls(t[8], t[8], t(3), 8);
    PipeBarrier<PIPE_V>();
    ReduceSum(ub.at<float>(256, 8), t[8], ub.at<float>(768, 8), 8);
    const int64_t bits = GetAccVal();
    float sum;
    memcpy(&sum, &bits, 4);
    t(5) = sum;
    t(6) = float(GetSubBlockIdx());
    SetSysWorkspace(workspace);
    t(7) = float(GetSysWorkSpacePtr() == workspace);
    order<HardEvent::S_MTE3>();
    DataCopy(global<float>(y), t, 8);
}

// y[0, 8) = 2 * x[0, 8) by reference; y[8]: twice the sum in the register; y[9]: whether GetPosition() gives VECCALC;
// y[10]: the halves 3 and 0.
KERNEL(global_elements_by_reference) {
    Ub ub(1024);
    GlobalTensor<float> in = global<float>(x), out = global<float>(y);
    GlobalTensor<half> halves = global<half>(y);
    for (uint64_t i = 0; i < 8; ++i) out(i) = in(i) * 2.0f;
    out(0) += 0.0f;
    LocalTensor<float> t = ub.at<float>(0, 64);
    Duplicate(t, 0.5f, 64);
    PipeBarrier<PIPE_V>();
    ReduceSum(ub.at<float>(512, 8), t, ub.at<float>(768, 8), 64);
    out(8) = GetAccVal<float>() + GetReduceRepeatSumSpr<float>();
    const int32_t position = t.GetPosition();
    event_t event = static_cast<event_t>(GetTPipePtr()->FetchEventID(HardEvent::V_S));
    SetFlag<HardEvent::V_S>(event);
    WaitFlag<HardEvent::V_S>(event);
    out(9) = float(position == int32_t(TPosition::VECCALC));
    halves(20) = half(3.0f);
    halves(21) = half(0.0f);
    DataCacheCleanAndInvalid<float, CacheLine::ENTIRE_DATA_CACHE>(out);  // keeps SIM-GM-02
}

// Stores by reference the values that the memory already has: ones in all bits of UB, zeros in y.
KERNEL(references_to_fresh_elements) {
    TPipe pipe;
    TBuf<TPosition::VECCALC> buffer;
    pipe.InitBuffer(buffer, 64);
    LocalTensor<int32_t> t = buffer.Get<int32_t>();
    LocalTensor<int8_t> bytes = buffer.GetWithOffset<int8_t>(32, 32);
    for (uint32_t i = 0; i < 8; ++i) t(i) = -1;  // keeps SIM-INIT-01
    for (uint32_t i = 0; i < 32; ++i) bytes(i) = int8_t(-1);
    GlobalTensor<int32_t> out = global<int32_t>(y);
    for (uint32_t i = 0; i < 8; ++i) out(i) = t(i) + (bytes(4 * i) == -1);
    int32_t sum = 0;
    for (uint32_t i = 0; i < 8; ++i) sum += out(i);  // keeps SIM-INIT-02
    out(8) = sum;
    DataCacheCleanAndInvalid<int32_t, CacheLine::ENTIRE_DATA_CACHE>(out);
}

KERNEL(reference_to_an_element_that_nothing_wrote) {
    TPipe pipe;
    TBuf<TPosition::VECCALC> buffer;
    pipe.InitBuffer(buffer, 64);
    LocalTensor<float> t = buffer.Get<float>();
    t(1) = 1.0f;
    float value = t(0);  // breaks SIM-INIT-01: not written since the buffer was allocated
    (void)value;
    t(2) = 1.0f;
}

KERNEL(reference_to_an_output_that_nothing_wrote) {
    GlobalTensor<float> out = global<float>(y);
    float value = out(1);  // breaks SIM-INIT-02
    out(0) = value;
}

KERNEL(global_element_by_reference_left_in_the_cache) {
    global<half>(y)(3) = half(5.0f);  // breaks SIM-GM-02: the scalar cache still holds data written here
}

KERNEL(global_reference_beyond_the_tensor) {
    GlobalTensor<float> out;
    out.SetGlobalBuffer((__gm__ float*)y, 8);
    out(8) = 1.0f;  // warns SIM-BOUNDS-05: touches bytes [32, 36)
    DataCacheCleanAndInvalid<float, CacheLine::ENTIRE_DATA_CACHE>(global<float>(y));
}

KERNEL(input_written_by_reference) {
    global<float>(x)(0) = 3.0f;  // breaks SIM-GM-01: which is an input
}
