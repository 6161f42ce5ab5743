// Order between the pipes of one core, with and without synchronisation. In the names, the past tense means that the
// earlier access is complete (mte2_wrote), the present tense that it may be in progress (mte2_writes).
#include "mini.h"

// ---- MTE2 and V -----------------------------------------------------------------------------------

KERNEL(v_reads_what_mte2_wrote) {
    Ub ub(1024);
    LocalTensor<float> t = ub.at<float>(0, 256);
    DataCopy(t, global<float>(x), 64);
    order<HardEvent::MTE2_V>();
    Add(t[64], t, t, 64);  // keeps SIM-HAZARD-01
}

KERNEL(v_reads_what_mte2_writes) {
    Ub ub(1024);
    LocalTensor<float> t = ub.at<float>(0, 256);
    DataCopy(t, global<float>(x), 64);
    Add(t[64], t, t, 64);  // breaks SIM-HAZARD-01: V read of `src0` (UB bytes [0, 256)) at @ is not ordered after the MTE2 write by DataCopy at @-1: MTE2_V event missing.
}

KERNEL(v_writes_over_what_mte2_writes) {
    Ub ub(1024);
    LocalTensor<float> t = ub.at<float>(0, 256);
    DataCopy(t, global<float>(x), 64);
    Duplicate(t, 2.0f, 64);  // breaks SIM-HAZARD-01: V write of `dst` (UB bytes [0, 256))
}

KERNEL(mte2_writes_over_what_v_reads) {
    Ub ub(1024);
    LocalTensor<float> t = ub.at<float>(0, 256);
    Add(t[64], t, t, 64);
    DataCopy(t, global<float>(x), 64);  // breaks SIM-HAZARD-01: MTE2 write of `dst` (UB bytes [0, 256)) at @ is not ordered after the V read by Add at @-1: V_MTE2 event missing.
}

KERNEL(mte2_writes_over_what_v_read) {
    Ub ub(1024);
    LocalTensor<float> t = ub.at<float>(0, 256);
    Add(t[64], t, t, 64);
    order<HardEvent::V_MTE2>();
    DataCopy(t, global<float>(x), 64);  // keeps SIM-HAZARD-01
}

KERNEL(mte2_writes_over_what_v_writes) {
    Ub ub(1024);
    LocalTensor<float> t = ub.at<float>(0, 256);
    Add(t[64], t, t, 64);
    DataCopy(t[64], global<float>(x), 64);  // breaks SIM-HAZARD-01: V write by Add
}

// The report asks for the event only. The event also orders the copies of the two rounds, so they need no barrier.
KERNEL(mte2_fills_again_what_v_reads) {
    Ub ub(1024);
    LocalTensor<float> t = ub.at<float>(0, 256);
    for (int32_t i = 0; i < 2; ++i) {
        DataCopy(t, global<float>(x)[i * 64], 64);  // breaks SIM-HAZARD-01: MTE2 write of `dst` (UB bytes [0, 256)) at @ is not ordered after the V read by Adds at @+2: V_MTE2 event missing.
        order<HardEvent::MTE2_V>();
        Adds(t[64], t, 1.0f, 64);
        PipeBarrier<PIPE_V>();
    }
}

KERNEL(mte2_fills_again_what_v_has_read) {
    Ub ub(1024);
    LocalTensor<float> t = ub.at<float>(0, 256);
    for (int32_t i = 0; i < 2; ++i) {
        DataCopy(t, global<float>(x)[i * 64], 64);  // keeps SIM-HAZARD-01
        order<HardEvent::MTE2_V>();
        Adds(t[64], t, 1.0f, 64);
        PipeBarrier<PIPE_V>();
        order<HardEvent::V_MTE2>();
    }
}

// The report names the later of two readers, because a wait for the later one also waits for the first.
KERNEL(mte2_fills_again_what_v_read_and_mte3_reads) {
    Ub ub(1024);
    LocalTensor<float> t = ub.at<float>(0, 256);
    Adds(t[64], t, 1.0f, 64);
    order<HardEvent::V_MTE3>();
    DataCopy(global<float>(y), t, 64);
    DataCopy(t, global<float>(x), 64);  // breaks SIM-HAZARD-01: after the MTE3 read by DataCopy at @-1: MTE3_MTE2 event missing.
}

// A conflict in one block breaks the rule, wherever the block lies in the range that is read.
KERNEL(v_reads_one_block_that_mte2_writes) {
    Ub ub(1024);
    LocalTensor<float> t = ub.at<float>(0, 256);
    DataCopy(t[40], global<float>(x), 8);
    Add(t[64], t, t, 64);  // breaks SIM-HAZARD-01: V read of `src0` (UB bytes [160, 192))
}

// ---- V and MTE3, MTE2 and MTE3 ----------------------------------------------------------------------

KERNEL(mte3_reads_what_v_wrote) {
    Ub ub(1024);
    LocalTensor<float> t = ub.at<float>(0, 256);
    Duplicate(t, 2.0f, 64);
    order<HardEvent::V_MTE3>();
    DataCopy(global<float>(y), t, 64);  // keeps SIM-HAZARD-01
}

KERNEL(mte3_reads_what_v_writes) {
    Ub ub(1024);
    LocalTensor<float> t = ub.at<float>(0, 256);
    Duplicate(t, 2.0f, 64);
    DataCopy(global<float>(y), t, 64);  // breaks SIM-HAZARD-01: V_MTE3 event missing
}

KERNEL(v_writes_over_what_mte3_read) {
    Ub ub(1024);
    LocalTensor<float> t = ub.at<float>(0, 256);
    DataCopy(global<float>(y), t, 64);
    order<HardEvent::MTE3_V>();
    Duplicate(t, 2.0f, 64);  // keeps SIM-HAZARD-01
}

KERNEL(v_writes_over_what_mte3_reads) {
    Ub ub(1024);
    LocalTensor<float> t = ub.at<float>(0, 256);
    DataCopy(global<float>(y), t, 64);
    Duplicate(t, 2.0f, 64);  // breaks SIM-HAZARD-01: MTE3_V event missing
}

KERNEL(v_reads_what_mte3_reads) {
    Ub ub(1024);
    LocalTensor<float> t = ub.at<float>(0, 256);
    DataCopy(global<float>(y), t, 64);
    Add(t[64], t, t, 64);  // keeps SIM-HAZARD-01
}

KERNEL(mte3_reads_what_mte2_wrote) {
    Ub ub(1024);
    LocalTensor<float> t = ub.at<float>(0, 256);
    DataCopy(t, global<float>(x), 64);
    order<HardEvent::MTE2_MTE3>();
    DataCopy(global<float>(y), t, 64);  // keeps SIM-HAZARD-01
}

KERNEL(mte3_reads_what_mte2_writes) {
    Ub ub(1024);
    LocalTensor<float> t = ub.at<float>(0, 256);
    DataCopy(t, global<float>(x), 64);
    DataCopy(global<float>(y), t, 64);  // breaks SIM-HAZARD-01: MTE2_MTE3 event missing
}

KERNEL(mte2_writes_over_what_mte3_reads) {
    Ub ub(1024);
    LocalTensor<float> t = ub.at<float>(0, 256);
    DataCopy(global<float>(y), t, 64);
    DataCopy(t, global<float>(x), 64);  // breaks SIM-HAZARD-01: MTE3_MTE2 event missing
}

KERNEL(mte2_writes_over_what_mte3_read) {
    Ub ub(1024);
    LocalTensor<float> t = ub.at<float>(0, 256);
    DataCopy(global<float>(y), t, 64);
    order<HardEvent::MTE3_MTE2>();
    DataCopy(t, global<float>(x), 64);  // keeps SIM-HAZARD-01
}

// ---- sufficient and insufficient synchronisation ---------------------------------------------------

KERNEL(order_through_a_third_pipe) {
    Ub ub(1024);
    LocalTensor<float> t = ub.at<float>(0, 256);
    DataCopy(t, global<float>(x), 64);
    order<HardEvent::MTE2_V>();
    Add(t[64], t, t, 64);
    order<HardEvent::V_MTE3>();
    DataCopy(global<float>(y), t, 64);  // keeps SIM-HAZARD-01
}

KERNEL(order_through_the_scalar_unit) {
    Ub ub(1024);
    LocalTensor<float> t = ub.at<float>(0, 256);
    DataCopy(t, global<float>(x), 64);
    order<HardEvent::MTE2_S>();
    Add(t[64], t, t, 64);  // keeps SIM-HAZARD-01
}

KERNEL(order_by_a_barrier_of_all_pipes) {
    Ub ub(1024);
    LocalTensor<float> t = ub.at<float>(0, 256);
    DataCopy(t, global<float>(x), 64);
    PipeBarrier<PIPE_ALL>();
    Add(t[64], t, t, 64);  // keeps SIM-HAZARD-01
}

KERNEL(no_order_by_a_barrier_of_one_pipe) {
    Ub ub(1024);
    LocalTensor<float> t = ub.at<float>(0, 256);
    DataCopy(t, global<float>(x), 64);
    PipeBarrier<PIPE_MTE2>();
    PipeBarrier<PIPE_V>();
    Add(t[64], t, t, 64);  // breaks SIM-HAZARD-01: MTE2_V event missing
}

KERNEL(no_order_by_the_opposite_event) {
    Ub ub(1024);
    LocalTensor<float> t = ub.at<float>(0, 256);
    DataCopy(t, global<float>(x), 64);
    order<HardEvent::V_MTE2>();
    Add(t[64], t, t, 64);  // breaks SIM-HAZARD-01: MTE2_V event missing
}

KERNEL(no_order_by_a_flag_set_too_early) {
    Ub ub(1024);
    LocalTensor<float> t = ub.at<float>(0, 256);
    SetFlag<HardEvent::MTE2_V>(EVENT_ID0);
    DataCopy(t, global<float>(x), 64);
    WaitFlag<HardEvent::MTE2_V>(EVENT_ID0);
    Add(t[64], t, t, 64);  // breaks SIM-HAZARD-01: MTE2_V event missing
}

// The flag was set between the copies, so it does not order the second copy.
KERNEL(no_order_of_the_copy_after_the_flag) {
    Ub ub(1024);
    LocalTensor<float> t = ub.at<float>(0, 256);
    DataCopy(t, global<float>(x), 64);
    SetFlag<HardEvent::MTE2_V>(EVENT_ID0);
    DataCopy(t[64], global<float>(x), 64);
    WaitFlag<HardEvent::MTE2_V>(EVENT_ID0);
    Add(t[128], t, t, 64);
    Add(t[192], t[64], t[64], 64);  // breaks SIM-HAZARD-01: V read of `src0` (UB bytes [256, 512))
}

// A wait blocks only its own pipe.
KERNEL(no_order_of_a_pipe_that_did_not_wait) {
    Ub ub(1024);
    LocalTensor<float> t = ub.at<float>(0, 256);
    DataCopy(t, global<float>(x), 64);
    order<HardEvent::MTE2_V>();
    DataCopy(global<float>(y), t, 64);  // breaks SIM-HAZARD-01: MTE2_MTE3 event missing
}

// ---- queues ----------------------------------------------------------------------------------------

KERNEL(queues_with_two_buffers) {
    Queues<> q;
    for (int32_t i = 0; i < 6; ++i) {
        LocalTensor<float> a = q.in.AllocTensor<float>();
        DataCopy(a, global<float>(x)[i * 64], 64);
        q.in.EnQue(a);
        LocalTensor<float> b = q.in.DeQue<float>();
        LocalTensor<float> c = q.out.AllocTensor<float>();
        Add(c, b, b, 64);  // keeps SIM-HAZARD-01
        q.in.FreeTensor(b);
        q.out.EnQue(c);
        LocalTensor<float> d = q.out.DeQue<float>();
        DataCopy(global<float>(y)[i * 64], d, 64);
        q.out.FreeTensor(d);
    }
}

KERNEL(queue_from_mte2_to_mte3) {
    TPipe pipe;
    TQueBind<TPosition::VECIN, TPosition::VECOUT, 1> q;
    pipe.InitBuffer(q, 2, 256);
    for (int32_t i = 0; i < 4; ++i) {
        LocalTensor<float> a = q.AllocTensor<float>();
        DataCopy(a, global<float>(x)[i * 64], 64);
        q.EnQue(a);
        LocalTensor<float> b = q.DeQue<float>();
        DataCopy(global<float>(y)[i * 64], b, 64);  // keeps SIM-HAZARD-01
        q.FreeTensor(b);
    }
}

KERNEL(tensor_used_without_a_queue_step) {
    Queues<> q;
    LocalTensor<float> a = q.in.AllocTensor<float>();
    DataCopy(a, global<float>(x), 64);
    Add(a, a, a, 64);  // breaks SIM-HAZARD-01: EnQue/DeQue or MTE2_V event missing.
    q.in.FreeTensor(a);
}

// EnQue comes before the instruction that fills the tensor.
KERNEL(enqueued_too_early) {
    Queues<> q;
    LocalTensor<float> a = q.in.AllocTensor<float>();
    q.in.EnQue(a);
    DataCopy(a, global<float>(x), 64);
    LocalTensor<float> b = q.in.DeQue<float>();
    Add(b, b, b, 64);  // breaks SIM-HAZARD-01: EnQue/DeQue
    q.in.FreeTensor(b);
}

// FreeTensor comes before the last instruction that uses the buffer.
KERNEL(freed_too_early) {
    Queues<> q(1);
    TBuf<> buffer;
    q.pipe.InitBuffer(buffer, 256);
    LocalTensor<float> kept = buffer.Get<float>();
    for (int32_t i = 0; i < 2; ++i) {
        LocalTensor<float> a = q.in.AllocTensor<float>();
        DataCopy(a, global<float>(x), 64);
        q.in.EnQue(a);
        LocalTensor<float> b = q.in.DeQue<float>();
        q.in.FreeTensor(b);
        Add(kept, b, b, 64);  // breaks SIM-QUEUE-06: `src0` was freed before this use
    }
}

// The queue of MTE2 and V orders no copy of MTE3, so MTE2 fills the buffer again without a wait for MTE3.
KERNEL(out_through_the_in_queue) {
    Queues<> q(1);
    for (int32_t i = 0; i < 2; ++i) {
        LocalTensor<float> a = q.in.AllocTensor<float>();
        DataCopy(a, global<float>(x), 64);  // breaks SIM-HAZARD-01: MTE3_MTE2 event missing
        q.in.EnQue(a);
        LocalTensor<float> b = q.in.DeQue<float>();
        Add(b, b, b, 64);
        order<HardEvent::V_MTE3>();
        DataCopy(global<float>(y), b, 64);
        q.in.FreeTensor(b);
    }
}

// ---- V and V -----------------------------------------------------------------------------------------

KERNEL(v_reads_what_v_wrote) {
    Ub ub(1024);
    LocalTensor<float> t = ub.at<float>(0, 256);
    Adds(t[64], t, 1.0f, 64);
    PipeBarrier<PIPE_V>();
    Adds(t[128], t[64], 1.0f, 64);  // keeps SIM-HAZARD-02
}

KERNEL(v_reads_what_v_writes) {
    Ub ub(1024);
    LocalTensor<float> t = ub.at<float>(0, 256);
    Adds(t[64], t, 1.0f, 64);
    Adds(t[128], t[64], 1.0f, 64);  // breaks SIM-HAZARD-02: V read of `src` (UB bytes [256, 512)) at @ is not ordered after the V write by Adds at @-1: PipeBarrier<PIPE_V> missing.
}

KERNEL(v_writes_what_v_writes) {
    Ub ub(1024);
    LocalTensor<float> t = ub.at<float>(0, 256);
    Adds(t[64], t, 1.0f, 64);
    Adds(t[64], t[128], 1.0f, 64);  // breaks SIM-HAZARD-02: V write of `dst` (UB bytes [256, 512))
}

KERNEL(v_writes_what_v_reads) {
    Ub ub(1024);
    LocalTensor<float> t = ub.at<float>(0, 256);
    Adds(t[64], t, 1.0f, 64);
    Adds(t, t[128], 1.0f, 64);  // breaks SIM-HAZARD-02: V read by Adds
}

// The second instruction's own reads do not hide those of the first.
KERNEL(v_in_place_over_what_v_reads) {
    Ub ub(1024);
    LocalTensor<float> t = ub.at<float>(0, 256);
    Adds(t[64], t, 1.0f, 64);
    Adds(t, t, 1.0f, 64);  // breaks SIM-HAZARD-02: V write of `dst` (UB bytes [0, 256)) at @ is not ordered after the V read by Adds at @-1
}

KERNEL(v_reads_what_v_reads) {
    Ub ub(1024);
    LocalTensor<float> t = ub.at<float>(0, 256);
    Adds(t[64], t, 1.0f, 64);
    Adds(t[128], t, 1.0f, 64);  // keeps SIM-HAZARD-02
}

// The copy waited for the first Adds, and the second Adds for the copy.
KERNEL(v_after_v_through_another_pipe) {
    Ub ub(1024);
    LocalTensor<float> t = ub.at<float>(0, 256);
    Adds(t[64], t, 1.0f, 64);
    order<HardEvent::V_MTE3>();
    DataCopy(global<float>(y), t[64], 64);
    order<HardEvent::MTE3_V>();
    Adds(t[128], t[64], 1.0f, 64);  // keeps SIM-HAZARD-02
}

KERNEL(copy_in_ub_is_a_vector_instruction) {
    Ub ub(1024);
    LocalTensor<float> t = ub.at<float>(0, 256);
    DataCopy(t[64], t, 64);
    Adds(t[128], t[64], 1.0f, 64);  // breaks SIM-HAZARD-02: V write by DataCopy
}

// ---- S ------------------------------------------------------------------------------------------------

KERNEL(v_reads_what_a_scalar_wrote) {
    Ub ub(1024);
    LocalTensor<float> t = ub.at<float>(0, 256);
    t.SetValue(0, 2.0f);
    order<HardEvent::S_V>();
    Adds(t[64], t, 1.0f, 64);  // keeps SIM-HAZARD-03
}

KERNEL(v_reads_what_a_scalar_writes) {
    Ub ub(1024);
    LocalTensor<float> t = ub.at<float>(0, 256);
    t.SetValue(0, 2.0f);
    Adds(t[64], t, 1.0f, 64);  // breaks SIM-HAZARD-03: V read of `src` (UB bytes [0, 4)) at @ is not ordered after the S write by SetValue at @-1: S_V event missing.
}

KERNEL(scalar_reads_what_v_wrote) {
    Ub ub(1024);
    LocalTensor<float> t = ub.at<float>(0, 256);
    Adds(t[64], t, 1.0f, 64);
    order<HardEvent::V_S>();
    float value = t.GetValue(64);  // keeps SIM-HAZARD-03
    (void)value;
}

KERNEL(scalar_reads_what_v_writes) {
    Ub ub(1024);
    LocalTensor<float> t = ub.at<float>(0, 256);
    Adds(t[64], t, 1.0f, 64);
    float value = t.GetValue(64);  // breaks SIM-HAZARD-03: V_S event missing
    (void)value;
}

KERNEL(scalar_reference_before_the_wait) {
    Ub ub(1024);
    LocalTensor<float> t = ub.at<float>(0, 256);
    Adds(t[64], t, 1.0f, 64);
    SetFlag<HardEvent::V_S>(EVENT_ID0);
    float value = t(64);  // breaks SIM-HAZARD-03: V_S event missing
    (void)value;
    WaitFlag<HardEvent::V_S>(EVENT_ID0);
}

KERNEL(scalar_writes_what_v_reads) {
    Ub ub(1024);
    LocalTensor<float> t = ub.at<float>(0, 256);
    Adds(t[64], t, 1.0f, 64);
    t.SetValue(0, 2.0f);  // breaks SIM-HAZARD-03: V_S event missing
}

KERNEL(scalar_reads_what_mte2_wrote) {
    Ub ub(1024);
    LocalTensor<float> t = ub.at<float>(0, 256);
    DataCopy(t, global<float>(x), 64);
    order<HardEvent::MTE2_S>();
    float value = t.GetValue(0);  // keeps SIM-HAZARD-03
    (void)value;
}

KERNEL(scalar_reads_what_mte2_writes) {
    Ub ub(1024);
    LocalTensor<float> t = ub.at<float>(0, 256);
    DataCopy(t, global<float>(x), 64);
    float value = t.GetValue(0);  // breaks SIM-HAZARD-03: MTE2_S event missing
    (void)value;
}

KERNEL(mte3_reads_what_a_scalar_wrote) {
    Ub ub(1024);
    LocalTensor<float> t = ub.at<float>(0, 256);
    t.SetValue(0, 2.0f);
    order<HardEvent::S_MTE3>();
    DataCopy(global<float>(y), t, 64);  // keeps SIM-HAZARD-03
}

KERNEL(mte3_reads_what_a_scalar_writes) {
    Ub ub(1024);
    LocalTensor<float> t = ub.at<float>(0, 256);
    t.SetValue(0, 2.0f);
    DataCopy(global<float>(y), t, 64);  // breaks SIM-HAZARD-03: S_MTE3 event missing
}

KERNEL(mte2_writes_what_a_scalar_reads) {
    Ub ub(1024);
    LocalTensor<float> t = ub.at<float>(0, 256);
    float value = t.GetValue(0);
    (void)value;
    DataCopy(t, global<float>(x), 64);  // breaks SIM-HAZARD-03: S_MTE2 event missing
}

KERNEL(mte2_writes_what_a_scalar_read) {
    Ub ub(1024);
    LocalTensor<float> t = ub.at<float>(0, 256);
    float value = t.GetValue(0);
    (void)value;
    order<HardEvent::S_MTE2>();
    DataCopy(t, global<float>(x), 64);  // keeps SIM-HAZARD-03
}

KERNEL(scalar_reads_what_a_scalar_wrote) {
    Ub ub(1024);
    LocalTensor<float> t = ub.at<float>(0, 256);
    t.SetValue(0, 2.0f);
    float value = t.GetValue(0);  // keeps SIM-HAZARD-03
    (void)value;
}

// Adds waited for the scalar store, and the scalar unit waited for Adds before it issued the copy.
KERNEL(mte3_after_what_waited_for_a_scalar) {
    Ub ub(1024);
    LocalTensor<float> t = ub.at<float>(0, 256);
    t.SetValue(0, 2.0f);
    order<HardEvent::S_V>();
    Adds(t[64], t, 1.0f, 64);
    order<HardEvent::V_S>();
    DataCopy(global<float>(y), t, 64);  // keeps SIM-HAZARD-03
}

// ---- copies of one pipe ------------------------------------------------------------------------------

KERNEL(two_separate_copies_in) {
    Ub ub(1024);
    LocalTensor<float> t = ub.at<float>(0, 256);
    DataCopy(t, global<float>(x), 64);
    DataCopy(t[64], global<float>(x), 64);  // keeps SIM-HAZARD-04
}

KERNEL(two_overlapping_copies_in) {
    Ub ub(1024);
    LocalTensor<float> t = ub.at<float>(0, 256);
    DataCopy(t, global<float>(x), 64);
    DataCopy(t[56], global<float>(x), 64);  // breaks SIM-HAZARD-04: MTE2 write of `dst` (UB bytes [224, 256)) at @ is not ordered after the MTE2 write by DataCopy at @-1: PipeBarrier<PIPE_MTE2> missing.
}

KERNEL(two_overlapping_copies_in_with_a_barrier) {
    Ub ub(1024);
    LocalTensor<float> t = ub.at<float>(0, 256);
    DataCopy(t, global<float>(x), 64);
    PipeBarrier<PIPE_MTE2>();
    DataCopy(t[56], global<float>(x), 64);  // keeps SIM-HAZARD-04
}

KERNEL(two_overlapping_copies_out) {
    Ub ub(1024);
    LocalTensor<float> t = ub.at<float>(0, 256);
    DataCopy(global<float>(y), t, 64);
    DataCopy(global<float>(y)[56], t, 64);  // breaks SIM-HAZARD-04: MTE3 write of `dst` (GM `y`, bytes [224, 256)) is not ordered after the MTE3 write by DataCopy at @-1: PipeBarrier<PIPE_MTE3> missing.
}

KERNEL(two_overlapping_copies_out_with_a_barrier) {
    Ub ub(1024);
    LocalTensor<float> t = ub.at<float>(0, 256);
    DataCopy(global<float>(y), t, 64);
    PipeBarrier<PIPE_MTE3>();
    DataCopy(global<float>(y)[56], t, 64);  // keeps SIM-HAZARD-04
}

KERNEL(atomic_sums_in_any_order) {
    Ub ub(1024);
    LocalTensor<float> t = ub.at<float>(0, 256);
    DataCopy(global<float>(y), t, 64);
    PipeBarrier<PIPE_MTE3>();
    SetAtomicAdd<float>();
    DataCopy(global<float>(y), t, 64);
    DataCopy(global<float>(y), t, 64);  // keeps SIM-HAZARD-04
    SetAtomicNone();
}

KERNEL(atomic_sum_onto_a_copy_under_way) {
    Ub ub(1024);
    LocalTensor<float> t = ub.at<float>(0, 256);
    DataCopy(global<float>(y), t, 64);
    SetAtomicAdd<float>();
    DataCopy(global<float>(y), t, 64);  // breaks SIM-HAZARD-04: PipeBarrier<PIPE_MTE3> missing
    SetAtomicNone();
}

// ---- through GM -------------------------------------------------------------------------------------

KERNEL(read_back_after_the_write) {
    Ub ub(1024);
    LocalTensor<float> t = ub.at<float>(0, 256);
    DataCopy(global<float>(workspace), t, 64);
    order<HardEvent::MTE3_MTE2>();
    DataCopy(t[64], global<float>(workspace), 64);  // keeps SIM-HAZARD-05
}

KERNEL(read_back_during_the_write) {
    Ub ub(1024);
    LocalTensor<float> t = ub.at<float>(0, 256);
    DataCopy(global<float>(workspace), t, 64);
    DataCopy(t[64], global<float>(workspace), 64);  // breaks SIM-HAZARD-05: MTE2 read of `src` (GM `workspace`, bytes [0, 256)) is not ordered after the MTE3 write by DataCopy at @-1: MTE3_MTE2 event missing.
}

KERNEL(written_after_the_read) {
    Ub ub(1024);
    LocalTensor<float> t = ub.at<float>(0, 256);
    DataCopy(t, global<float>(y), 64);
    order<HardEvent::MTE2_MTE3>();
    DataCopy(global<float>(y), t[64], 64);  // keeps SIM-HAZARD-05
}

KERNEL(written_during_the_read) {
    Ub ub(1024);
    LocalTensor<float> t = ub.at<float>(0, 256);
    DataCopy(t, global<float>(y), 64);
    DataCopy(global<float>(y), t[64], 64);  // breaks SIM-HAZARD-05: MTE2_MTE3 event missing
}

KERNEL(written_during_the_copy_and_after_the_scalar_read) {
    Ub ub(1024);
    LocalTensor<float> t = ub.at<float>(0, 256);
    DataCopy(t, global<float>(y), 64);
    float value = global<float>(y).GetValue(0);
    (void)value;
    order<HardEvent::S_MTE3>();
    DataCopy(global<float>(y), t[64], 64);  // breaks SIM-HAZARD-05: MTE2_MTE3 event missing
}

KERNEL(written_during_the_copy_and_the_scalar_read) {
    Ub ub(1024);
    LocalTensor<float> t = ub.at<float>(0, 256);
    DataCopy(t, global<float>(y), 64);
    float value = global<float>(y).GetValue(0);
    (void)value;
    DataCopy(global<float>(y), t[64], 64);  // breaks SIM-HAZARD-05: after the MTE2 read by DataCopy at @-3: MTE2_MTE3 event missing
}

KERNEL(read_of_what_a_scalar_writes) {
    Ub ub(1024);
    for (int32_t i = 0; i < 8; ++i) global<float>(y).SetValue(i, 1.0f);
    DataCacheCleanAndInvalid<float, CacheLine::ENTIRE_DATA_CACHE>(global<float>(y));
    DataCopy(ub.at<float>(0, 8), global<float>(y), 8);  // breaks SIM-HAZARD-05: S_MTE2 event missing
}

KERNEL(read_of_what_a_scalar_wrote) {
    Ub ub(1024);
    for (int32_t i = 0; i < 8; ++i) global<float>(y).SetValue(i, 1.0f);
    DataCacheCleanAndInvalid<float, CacheLine::ENTIRE_DATA_CACHE>(global<float>(y));
    order<HardEvent::S_MTE2>();
    DataCopy(ub.at<float>(0, 8), global<float>(y), 8);  // keeps SIM-HAZARD-05
}

// A copy reads GM, not the scalar unit's cache.
KERNEL(read_of_what_is_in_the_cache) {
    Ub ub(1024);
    for (int32_t i = 0; i < 8; ++i) global<float>(y).SetValue(i, 1.0f);
    order<HardEvent::S_MTE2>();
    DataCopy(ub.at<float>(0, 8), global<float>(y), 8);  // breaks SIM-GM-02: DataCacheCleanAndInvalid missing
    DataCacheCleanAndInvalid<float, CacheLine::ENTIRE_DATA_CACHE>(global<float>(y));
}
