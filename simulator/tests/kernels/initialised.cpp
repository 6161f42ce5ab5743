// SIM-INIT-01 and -06: reads of unwritten UB. SIM-INIT-02 and -07: reads of unwritten outputs or workspace.
// SIM-INIT-03: outputs that stay unwritten. SIM-INIT-04: results that depend on data that an earlier copy left in UB.
#include "mini.h"

KERNEL(add_of_written_memory) {
    TPipe pipe;
    TBuf<> buffer;
    pipe.InitBuffer(buffer, 512);
    LocalTensor<float> t = buffer.Get<float>();
    Duplicate(t, 1.0f, 64);
    PipeBarrier<PIPE_V>();
    Add(t, t, t, 64);  // keeps SIM-INIT-01
}

KERNEL(add_of_unwritten_memory) {
    TPipe pipe;
    TBuf<> buffer;
    pipe.InitBuffer(buffer, 512);
    LocalTensor<float> t = buffer.Get<float>();
    Duplicate(t, 1.0f, 63);
    PipeBarrier<PIPE_V>();
    Add(t, t, t, 64);  // breaks SIM-INIT-01: `src0` is read at UB bytes [252, 256) (from byte 252 of the tensor on): not written since the buffer was allocated, and a result depends on it.
    PipeBarrier<PIPE_ALL>();
    DataCopy(global<float>(y), t, 64);
}

// Max hides a small undefined number, and a clamp hides large ones too, so the simulator fills undefined bytes with three
// values in turn.
KERNEL(maximum_of_unwritten_memory) {
    Ub ub(1024);
    LocalTensor<int32_t> t = ub.at<int32_t>(0, 64);
    TPipe* pipe = GetTPipePtr();
    TBuf<> buffer;
    pipe->InitBuffer(buffer, 256);
    Max(t, t, buffer.Get<int32_t>(), 64);  // breaks SIM-INIT-01: `src1`
    PipeBarrier<PIPE_ALL>();
    DataCopy(global<int32_t>(y), t, 64);
}

KERNEL(minimum_of_unwritten_memory_and_a_number) {
    TPipe pipe;
    TBuf<> buffer;
    pipe.InitBuffer(buffer, 256);
    LocalTensor<float> t = buffer.Get<float>();
    Mins(t, t, 0.8f, 64);  // breaks SIM-INIT-01: `src`
    PipeBarrier<PIPE_ALL>();
    DataCopy(global<float>(y), t, 64);
}

// 64 lanes are added, 8 are results.
KERNEL(unwritten_lanes_that_are_dropped) {
    TPipe pipe;
    TBuf<> buffer;
    pipe.InitBuffer(buffer, 512);
    LocalTensor<float> t = buffer.Get<float>();
    Duplicate(t, 1.0f, 8);
    PipeBarrier<PIPE_V>();
    Add(t, t, t, 64);  // warns SIM-INIT-06: `src0` is read at UB bytes [32, 256) (from byte 32 of the tensor on): not written since the buffer was allocated.
    PipeBarrier<PIPE_ALL>();
    DataCopy(global<float>(y), t, 8);
}

// Two instructions read unwritten lanes; the result depends on those of the second instruction.
KERNEL(the_second_of_two_reads) {
    TPipe pipe;
    TBuf<> buffer;
    pipe.InitBuffer(buffer, 512);
    LocalTensor<float> t = buffer.Get<float>();
    Duplicate(t, 1.0f, 8);
    PipeBarrier<PIPE_V>();
    Add(t, t, t, 16);
    Add(t[64], t[64], t[64], 8);  // breaks SIM-INIT-01: `src0`
    PipeBarrier<PIPE_ALL>();
    DataCopy(global<float>(y), t, 8);
    DataCopy(global<float>(y)[8], t[64], 8);
}

KERNEL(copy_out_of_unwritten_memory) {
    Queues<> q;
    LocalTensor<float> a = q.out.AllocTensor<float>();
    q.out.EnQue(a);
    LocalTensor<float> b = q.out.DeQue<float>();
    DataCopy(global<float>(y), b, 64);  // breaks SIM-INIT-01: `src`
    q.out.FreeTensor(b);
}

KERNEL(scalar_of_unwritten_memory) {
    TPipe pipe;
    TBuf<> buffer;
    pipe.InitBuffer(buffer, 512);
    float value = buffer.Get<float>().GetValue(3);  // breaks SIM-INIT-01: UB bytes [12, 16)
    (void)value;
}

// A buffer that is allocated again is uninitialised, whatever it contained before.
KERNEL(reallocated_buffer) {
    Queues<> q(1);  // one buffer: b has a's memory
    LocalTensor<float> a = q.out.AllocTensor<float>();
    Duplicate(a, 1.0f, 64);
    q.out.FreeTensor(a);
    LocalTensor<float> b = q.out.AllocTensor<float>();
    PipeBarrier<PIPE_V>();
    Add(b, b, b, 64);  // breaks SIM-INIT-01: `src0`
    PipeBarrier<PIPE_ALL>();
    DataCopy(global<float>(y), b, 64);
    q.out.FreeTensor(b);
}

KERNEL(dequeued_memory) {
    Queues<> q(1);
    LocalTensor<float> a = q.in.AllocTensor<float>();
    DataCopy(a, global<float>(x), 64);
    q.in.EnQue(a);
    LocalTensor<float> b = q.in.DeQue<float>();
    Add(b, b, b, 64);  // keeps SIM-INIT-06
    q.in.FreeTensor(b);
}

KERNEL(filler_of_a_padded_copy) {
    Ub ub(512);
    LocalTensor<float> t = ub.at<float>(0, 64);
    DataCopyPad(t, global<float>(x), {1, 12, 0, 0, 0}, {false, 0, 1, 0});
    order<HardEvent::MTE2_V>();
    Add(t[32], t, t, 8);  // breaks SIM-INIT-01: UB bytes [12, 32) (from byte 12 of the tensor on): bytes that the copy at @-2 left undefined
    PipeBarrier<PIPE_ALL>();
    DataCopy(global<float>(y), t[32], 8);
}

KERNEL(filler_of_the_first_copy) {
    TPipe pipe;
    TBuf<> buffer;
    pipe.InitBuffer(buffer, 512);
    LocalTensor<float> t = buffer.Get<float>();
    DataCopyPad(t, global<float>(x), {1, 12, 0, 0, 0}, {false, 0, 1, 0});
    order<HardEvent::MTE2_V>();
    Add(t[32], t, t, 8);  // breaks SIM-INIT-01: UB bytes [12, 32) (from byte 12 of the tensor on): bytes that the copy at @-2 left undefined
    PipeBarrier<PIPE_ALL>();
    DataCopy(global<float>(y), t[32], 8);
}

KERNEL(filler_after_a_copy_that_replaced_the_padding_value) {
    Ub ub(512);
    LocalTensor<float> t = ub.at<float>(0, 64);
    SetPadValue(2.0f);
    DataCopyPad(t[16], global<float>(x), {1, 12, 0, 0, 0}, {true, 0, 1, 3.0f});
    DataCopyPad(t, global<float>(x), {1, 12, 0, 0, 0}, {false, 0, 1, 0});
    order<HardEvent::MTE2_V>();
    Add(t[32], t, t, 8);  // breaks SIM-INIT-01: bytes that the copy at @-2 left undefined
    PipeBarrier<PIPE_ALL>();
    DataCopy(global<float>(y), t[32], 8);
}

// isPad replaces the value even if the copy has no padding.
KERNEL(filler_after_an_unpadded_copy_that_replaced_the_padding_value) {
    Ub ub(512);
    LocalTensor<float> t = ub.at<float>(0, 64);
    SetPadValue(2.0f);
    DataCopyPad(t[16], global<float>(x), {1, 32, 0, 0, 0}, {true, 0, 0, 3.0f});
    DataCopyPad(t, global<float>(x), {1, 12, 0, 0, 0}, {false, 0, 1, 0});
    order<HardEvent::MTE2_V>();
    Add(t[32], t, t, 8);  // breaks SIM-INIT-01: bytes that the copy at @-2 left undefined
    PipeBarrier<PIPE_ALL>();
    DataCopy(global<float>(y), t[32], 8);
}

KERNEL(filler_of_a_copy_without_padding) {
    Ub ub(512);
    LocalTensor<float> t = ub.at<float>(0, 64);
    DataCopyPad(t, global<float>(x), {1, 12, 0, 0, 0}, {false, 0, 0, 0});
    order<HardEvent::MTE2_V>();
    Add(t[32], t, t, 8);  // keeps SIM-INIT-01
}

KERNEL(padding_of_a_padded_copy) {
    Ub ub(512);
    LocalTensor<float> t = ub.at<float>(0, 64);
    DataCopyPad(t, global<float>(x), {1, 12, 0, 0, 0}, {true, 0, 5, 0.0f});
    order<HardEvent::MTE2_V>();
    Add(t[32], t, t, 8);  // keeps SIM-INIT-01
}

// Elements outside the mask are not read.
KERNEL(filler_outside_the_mask) {
    Ub ub(512);
    LocalTensor<float> t = ub.at<float>(0, 64);
    DataCopyPad(t, global<float>(x), {1, 12, 0, 0, 0}, {false, 0, 1, 0});
    order<HardEvent::MTE2_V>();
    Add(t[32], t, t, 3, 1, {1, 1, 1, 8, 8, 8});  // keeps SIM-INIT-01
}

KERNEL(output_read_after_its_write) {
    Ub ub(512);
    DataCopy(global<float>(y), ub.at<float>(0, 8), 8);
    order<HardEvent::MTE3_MTE2>();
    DataCopy(ub.at<float>(256, 8), global<float>(y), 8);  // keeps SIM-INIT-07
}

KERNEL(output_read_before_its_write) {
    Ub ub(512);
    DataCopy(ub.at<float>(256, 8), global<float>(y), 8);  // warns SIM-INIT-07: `src` reads bytes [0, 32) of GM `y` before anything was written there
}

KERNEL(workspace_read_before_its_write) {
    Ub ub(512);
    DataCopy(ub.at<float>(256, 8), global<float>(workspace), 8);  // warns SIM-INIT-07: bytes [0, 32) of GM `workspace`
}

// Eight floats of sixteen were written. The copy warns, and the sum that depends on the others is an error.
KERNEL(sum_of_unwritten_workspace) {
    Ub ub(512);
    LocalTensor<float> t = ub.at<float>(256, 64);
    DataCopy(global<float>(workspace), ub.at<float>(0, 8), 8);
    order<HardEvent::MTE3_MTE2>();
    DataCopy(t, global<float>(workspace), 16);
    order<HardEvent::MTE2_V>();
    Adds(t, t, 1.0f, 16);  // breaks SIM-INIT-01: UB bytes [288, 320) (from byte 32 of the tensor on): bytes that the copy at @-2 left undefined, and a result depends on it.
    order<HardEvent::V_MTE3>();
    DataCopy(global<float>(y), t, 16);
}

KERNEL(sum_of_the_first_of_two_unwritten_rows) {
    Ub ub(512);
    LocalTensor<float> t = ub.at<float>(256, 64);
    DataCopyPad(t, global<float>(workspace), {2, 32, 32, 0, 0}, {false, 0, 0, 0.0f});
    order<HardEvent::MTE2_V>();
    Adds(t, t, 1.0f, 8);  // breaks SIM-INIT-01: UB bytes [256, 288)
    order<HardEvent::V_MTE3>();
    DataCopy(global<float>(y), t, 8);
}

KERNEL(sum_of_the_second_of_two_unwritten_copies) {
    Ub ub(512);
    LocalTensor<float> t = ub.at<float>(256, 64);
    for (uint32_t i = 0; i < 2; ++i) DataCopy(t[i * 8], global<float>(workspace)[i * 8], 8);
    order<HardEvent::MTE2_V>();
    Adds(t, t[8], 1.0f, 8);  // breaks SIM-INIT-01: UB bytes [288, 320)
    order<HardEvent::V_MTE3>();
    DataCopy(global<float>(y), t, 8);
}

// As above, but the sum of unwritten bytes is no result.
KERNEL(sum_of_unwritten_workspace_that_is_dropped) {
    Ub ub(512);
    LocalTensor<float> t = ub.at<float>(256, 64);
    DataCopy(global<float>(workspace), ub.at<float>(0, 8), 8);
    order<HardEvent::MTE3_MTE2>();
    DataCopyPad(t, global<float>(workspace), {1, 64, 0, 0, 0}, {false, 0, 0, 0.0f});
    order<HardEvent::MTE2_V>();
    Adds(t, t, 1.0f, 16);  // keeps SIM-INIT-01
    order<HardEvent::V_MTE3>();
    DataCopy(global<float>(y), t, 8);
}

// An atomic sum reads its destination.
KERNEL(atomic_add_to_unwritten_output) {
    Ub ub(512);
    SetAtomicAdd<float>();
    DataCopy(global<float>(y), ub.at<float>(0, 8), 8);  // breaks SIM-INIT-02: GM `y`
    SetAtomicNone();
}

KERNEL(atomic_add_to_written_output) {
    Ub ub(512);
    DataCopy(global<float>(y), ub.at<float>(0, 8), 8);
    PipeBarrier<PIPE_MTE3>();
    SetAtomicAdd<float>();
    DataCopy(global<float>(y), ub.at<float>(0, 8), 8);  // keeps SIM-INIT-02
    SetAtomicNone();
}

KERNEL(work_space_of_a_reduction) {
    Ub ub(1024);
    LocalTensor<float> work = ub.at<float>(768, 8);
    ReduceMax(ub.at<float>(512, 8), ub.at<float>(0, 100), work, 100);
    Add(ub.at<float>(640, 8), work, work, 8);  // breaks SIM-INIT-01: work space that a vector instruction left undefined
    PipeBarrier<PIPE_ALL>();
    DataCopy(global<float>(y), ub.at<float>(640, 8), 8);
}

KERNEL(output_with_every_byte_written) {
    Ub ub(kBytes);
    DataCopy(global<float>(y), ub.at<float>(0, kBytes / 4), kBytes / 4);  // keeps SIM-INIT-03
}

KERNEL(output_with_a_gap) {
    Ub ub(kBytes);
    DataCopy(global<float>(y), ub.at<float>(0, 64), 64);  // warns SIM-INIT-03: 64 of the 16384 bytes of GM `y`, an output, were not written, first [256, 320); this was the last write before them.
    DataCopy(global<float>(y)[80], ub.at<float>(0, kBytes / 4), kBytes / 4 - 80);
}

KERNEL(output_that_no_core_writes) {
    GlobalTensor<float> out;
    out.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(y));  // warns SIM-INIT-03: 16384 of the 16384 bytes of GM `y`, an output, were not written, first [0, 16384).
}

KERNEL(output_whose_address_no_core_takes) {
    Ub ub(256);  // warns SIM-INIT-03 (no line): kernel:0, core 0, kernel end: 16384 of the 16384 bytes of GM `y`, an output, were not written, first [0, 16384).
}

// Core 1 writes 96 of its 128 floats.
KERNEL(gap_of_one_core) {
    Ub ub(kBytes);
    const uint32_t core = uint32_t(GetBlockIdx()), first[] = {0, 128, 256, 320};
    DataCopy(global<float>(y)[first[core]], ub.at<float>(0, 128), core == 1 ? 96 : first[core + 1] - first[core]);
}

// x and y are outputs.
KERNEL(part_of_two_outputs) {
    Ub ub(kBytes);
    for (GM_ADDR out : {x, y}) DataCopy(global<float>(out), ub.at<float>(0, 64), 64);
}

// A tile of 64 floats and one of 40; both sums cover 64. Of the second sum, 40 elements are results.
KERNEL(leftovers_that_are_dropped) {
    Ub ub(1024);
    LocalTensor<float> t = ub.at<float>(0, 64), sum = ub.at<float>(512, 64);
    for (uint32_t tile = 0; tile < 2; ++tile) {
        DataCopy(t, global<float>(x)[tile * 64], tile ? 40 : 64);
        order<HardEvent::MTE2_V>();
        Adds(sum, t, 1.0f, 64);  // keeps SIM-INIT-04
        order<HardEvent::V_MTE3>();
        DataCopy(global<float>(y)[tile * 64], sum, tile ? 40 : 64);
        PipeBarrier<PIPE_ALL>();
    }
}

// As above, but 48 results are used.
KERNEL(leftovers_that_are_used) {
    Ub ub(1024);
    LocalTensor<float> t = ub.at<float>(0, 64), sum = ub.at<float>(512, 64);
    for (uint32_t tile = 0; tile < 2; ++tile) {
        DataCopy(t, global<float>(x)[tile * 64], tile ? 40 : 64);
        order<HardEvent::MTE2_V>();
        Adds(sum, t, 1.0f, 64);  // warns SIM-INIT-04: reads data that an earlier, longer copy at @-2 left in UB, and a result depends on it.
        order<HardEvent::V_MTE3>();
        DataCopy(global<float>(y)[tile * 64], sum, tile ? 48 : 64);
        PipeBarrier<PIPE_ALL>();
    }
}

// As above, with two rows, of 32 floats and then of 16.
KERNEL(leftovers_of_two_rows) {
    Ub ub(1024);
    LocalTensor<float> t = ub.at<float>(0, 128), sum = ub.at<float>(512, 128);
    for (uint32_t tile = 0; tile < 2; ++tile) {
        DataCopy(t, global<float>(x)[tile * 64], {2, uint16_t(tile ? 2 : 4), 0, 1});
        order<HardEvent::MTE2_V>();
        Adds(sum, t, 1.0f, 72);  // warns SIM-INIT-04: reads data that an earlier, longer copy at @-2 left in UB
        order<HardEvent::V_MTE3>();
        DataCopy(global<float>(y)[tile * 72], sum, 72);
        PipeBarrier<PIPE_ALL>();
    }
}

// The second instruction of the line is no copy.
KERNEL(copy_and_shorter_fill_of_one_line) {
    Ub ub(1024);
    LocalTensor<float> t = ub.at<float>(0, 64), sum = ub.at<float>(512, 64);
    DataCopy(t, global<float>(x), 64), order<HardEvent::MTE2_V>(), Duplicate(t, 1.0f, 32);
    PipeBarrier<PIPE_V>();
    Adds(sum, t, 1.0f, 64);  // keeps SIM-INIT-04
    order<HardEvent::V_MTE3>();
    DataCopy(global<float>(y), sum, 64);
}
