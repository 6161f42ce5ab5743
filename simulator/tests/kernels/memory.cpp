// Memory without queues: pools, tensors at addresses, shapes, and the initialisation of GM.
#include "mini.h"

// ---- queues and TBuf ---------------------------------------------------------------------------------------

KERNEL(queue_of_a_tbuf) {
    TPipe pipe;
    TBuf<> buffer;
    pipe.InitBuffer(buffer, 256);
    LocalTensor<float> t = buffer.AllocTensor<float>();
    buffer.EnQue(t);  // breaks SIM-QUEUE-01: a TBuf has no queue
}

KERNEL(paths_that_fit) {
    TPipe pipe;
    TQueBind<TPosition::VECIN, TPosition::VECOUT, 1> q;
    pipe.InitBuffer(q, 1, 256);
    LocalTensor<float> t = q.AllocTensor<float>();
    q.EnQue<TPosition::GM, TPosition::VECIN, float>(t);
    t = q.DeQue<TPosition::GM, TPosition::VECIN, float>();  // keeps SIM-QUEUE-01
    q.FreeTensor(t);
}

KERNEL(paths_that_do_not_fit) {
    TPipe pipe;
    TQueBind<TPosition::VECIN, TPosition::VECOUT, 1> q;
    pipe.InitBuffer(q, 1, 256);
    LocalTensor<float> t = q.AllocTensor<float>();
    q.EnQue<TPosition::GM, TPosition::VECIN, float>(t);
    t = q.DeQue<float>();  // breaks SIM-QUEUE-01: it waits for a MTE2_MTE3 event but EnQue set a MTE2_V event
}

// ---- the end of a TPipe ------------------------------------------------------------------------------------

KERNEL(pipe_that_ends_with_a_barrier) {
    TPipe pipe;
    TBuf<> buffer;
    pipe.InitBuffer(buffer, 256);
    Duplicate(buffer.Get<float>(), 1.0f, 64);
    pipe.Destroy();
    pipe.Init();
    pipe.InitBuffer(buffer, 256);
    DataCopy(buffer.Get<float>(), global<float>(x), 64);  // keeps SIM-HAZARD-01
}

KERNEL(pipe_that_ends_without_a_barrier) {
    TPipe pipe;
    TBuf<> buffer;
    pipe.InitBuffer(buffer, 256);
    Duplicate(buffer.Get<float>(), 1.0f, 64);
    pipe.DestroyWithoutPipeAll();
    pipe.Init();
    pipe.InitBuffer(buffer, 256);
    DataCopy(buffer.Get<float>(), global<float>(x), 64);  // breaks SIM-HAZARD-01: Duplicate
}

// The end of a TPipe's scope has the effect of Destroy.
KERNEL(write_to_gm_after_a_pipe) {
    {
        Ub ub(256);
        DataCopy(global<float>(y), ub.at<float>(0, 64), 64);
    }
    Ub ub(256);
    DataCopy(ub.at<float>(0, 64), global<float>(y), 64);  // keeps SIM-HAZARD-05
}

// ---- pools -------------------------------------------------------------------------------------------------

struct Pools {
    __aicore__ inline Pools() {
        pipe.InitBufPool(a, 512);
        pipe.InitBufPool(b, 512, a);
        a.InitBuffer(in_a, 1, 256);
    }
    TPipe pipe;
    TBufPool<TPosition::VECCALC, 2> a, b;
    TQue<TPosition::VECIN, 1> in_a;
    TBuf<> in_b;
};

KERNEL(pools_in_turn) {
    Pools p;
    p.a.Reset();
    p.b.InitBuffer(p.in_b, 256);  // keeps SIM-BUFFER-06
}

KERNEL(pools_without_reset) {
    Pools p;
    p.b.InitBuffer(p.in_b, 256);  // breaks SIM-BUFFER-06: a pool with the same memory has buffers since memory.cpp:73: its Reset is missing
}

KERNEL(pools_behind_a_buffer_without_reset) {
    TPipe pipe;
    TBuf<> before, in_a, in_b;
    TBufPool<TPosition::VECCALC> a, b;
    pipe.InitBuffer(before, 1024);
    pipe.InitBufPool(a, 512);
    pipe.InitBufPool(b, 512, a);
    a.InitBuffer(in_a, 256);
    b.InitBuffer(in_b, 256);  // breaks SIM-BUFFER-06: a pool with the same memory has buffers since @-1
}

KERNEL(pool_used_again_without_reset) {
    Pools p;
    p.a.Reset();
    p.b.InitBuffer(p.in_b, 256);
    p.in_a.AllocTensor<float>();  // breaks SIM-BUFFER-06: a pool with the same memory has buffers since @-1
}

KERNEL(pool_that_is_full) {
    Pools p;
    TBuf<> more;
    p.a.InitBuffer(more, 288);  // breaks SIM-BUFFER-02: 288 bytes do not fit: 256 of the pool's 512 are taken
}

KERNEL(pool_that_is_not_full) {
    Pools p;
    TBuf<> more;
    p.a.InitBuffer(more, 256);  // keeps SIM-BUFFER-02
}

KERNEL(pool_of_too_many_buffers) {
    Pools p;
    TBuf<> more[2];
    p.a.InitBuffer(more[0], 32);
    p.a.InitBuffer(more[1], 32);  // breaks SIM-BUFFER-03: the pool must have at most 2 buffers but got one more
}

struct OuterPool {
    __aicore__ inline explicit OuterPool(int32_t buffers) {
        pipe.InitBufPool(outer, 1024);
        for (int32_t i = 0; i < buffers; ++i) outer.InitBuffer(buffer[i], 32);
    }
    TPipe pipe;
    TBufPool<TPosition::VECCALC, 4> outer;
    TBufPool<TPosition::VECCALC, 2> inner;
    TBuf<> buffer[3];
};

KERNEL(pool_in_a_pool_that_has_its_buffers) {
    OuterPool p(2);
    p.outer.InitBufPool(p.inner, 256);  // keeps SIM-BUFFER-03
}

KERNEL(pool_in_a_pool_of_fewer_buffers) {
    OuterPool p(3);
    p.outer.InitBufPool(p.inner, 256);  // breaks SIM-BUFFER-03: the outer pool has fewer than the 2 buffers of this one
}

KERNEL(shared_pool_that_is_longer) {
    Pools p;
    TBufPool<TPosition::VECCALC> c;
    p.pipe.InitBufPool(c, 513, p.a);  // breaks SIM-BUFFER-02: 513 bytes do not fit the 512 of the pool whose memory it shares
}

KERNEL(pool_without_memory) {
    TPipe pipe;
    TBufPool<TPosition::VECCALC> pool;
    TBuf<> buffer;
    pool.InitBuffer(buffer, 32);  // breaks SIM-BUFFER-01: the pool has no memory: InitBufPool missing
}

KERNEL(reset_of_a_pool_with_a_tensor) {
    Pools p;
    LocalTensor<float> t = p.in_a.AllocTensor<float>();
    p.a.Reset();  // breaks SIM-QUEUE-04: a tensor allocated at @-1 was not freed
}

KERNEL(data_of_a_reset_pool) {
    TPipe pipe;
    TBufPool<TPosition::VECCALC> pool;
    TBuf<> buffer;
    pipe.InitBufPool(pool, 512);
    pool.InitBuffer(buffer, 512);
    LocalTensor<float> t = buffer.Get<float>();
    Duplicate(t, 1.0f, 64);
    pool.Reset();
    PipeBarrier<PIPE_V>();
    Add(t, t, t, 64);  // breaks SIM-INIT-01: not written since the buffer was allocated
    PipeBarrier<PIPE_ALL>();
    DataCopy(global<float>(y), t, 64);
}

// ---- tensors at addresses ------------------------------------------------------------------------------------

KERNEL(tensors_at_addresses) {
    InitSocState();
    LocalMemAllocator<> allocator;  // keeps SIM-BUFFER-08
    LocalTensor<float> t = allocator.Alloc<float>(64);  // keeps SIM-STATE-03
    Duplicate(t, 1.0f, 64);  // keeps SIM-STATE-05
    PipeBarrier<PIPE_ALL>();
}

KERNEL(tensor_at_an_address_beside_a_pipe) {
    TPipe pipe;
    LocalTensor<float> t(TPosition::VECCALC, 0, 64);  // breaks SIM-BUFFER-08: the kernel has a TPipe
}

KERNEL(pipe_beside_a_tensor_at_an_address) {
    InitSocState();
    LocalTensor<float> t(TPosition::VECCALC, 0, 64);
    TPipe pipe;  // breaks SIM-BUFFER-08: the kernel has tensors at addresses
}

KERNEL(two_allocators) {
    InitSocState();
    LocalMemAllocator<> a;
    LocalMemAllocator<> b;  // breaks SIM-BUFFER-08: another LocalMemAllocator exists
}

KERNEL(tensor_at_an_address_without_the_initial_state) {
    LocalTensor<float> t(TPosition::VECCALC, 0, 64);  // breaks SIM-STATE-03: InitSocState is missing before it
    PipeBarrier<PIPE_ALL>();
}

KERNEL(tensor_at_an_address_without_the_last_barrier) {
    InitSocState();
    LocalTensor<float> t(TPosition::VECCALC, 0, 64);
    PipeBarrier<PIPE_ALL>();
    Duplicate(t, 1.0f, 64);  // breaks SIM-STATE-05: PipeBarrier<PIPE_ALL> is missing after it
}

KERNEL(tensor_at_an_unaligned_address) {
    InitSocState();
    LocalTensor<float> t(TPosition::VECCALC, 16, 64);  // breaks SIM-ALIGN-01: starts at UB byte 16, which is no multiple of 32
}

// The report of the reference comes before that of the tensor.
KERNEL(scalar_reference_before_a_tensor_at_an_unaligned_address) {
    InitSocState();
    LocalTensor<float> t(TPosition::VECCALC, 0, 64);
    Duplicate(t, 1.0f, 64);
    float value = t(0);  // breaks SIM-HAZARD-03: V_S event missing
    (void)value;
    LocalTensor<float> unaligned(TPosition::VECCALC, 16, 64);
    PipeBarrier<PIPE_ALL>();
}

KERNEL(tensor_at_an_address_past_ub) {
    InitSocState();
    LocalTensor<float> t(TPosition::VECCALC, 196608 - 32, 9);  // breaks SIM-BOUNDS-02: the tensor covers UB bytes [196576, 196612) but UB has 196608
}

KERNEL(tensor_of_another_core) {
    InitSocState();
    LocalTensor<float> t(TPosition::A1, 0, 64);  // breaks SIM-BOUNDS-02: the position is no memory of a vector core
}

// Instructions that fetch an event need a TPipe.
KERNEL(event_of_an_instruction_without_a_pipe) {
    InitSocState();
    LocalMemAllocator<> allocator;
    LocalTensor<float> t = allocator.Alloc<float>(1024);
    Duplicate(t, 1.0f, 1024);
    PipeBarrier<PIPE_V>();
    ReduceSum(t[768], t, t[512], 128);  // breaks SIM-BUFFER-04: there is no TPipe, but the instruction needs its events
}

// ---- shapes ----------------------------------------------------------------------------------------------------

KERNEL(shape_that_was_set) {
    GlobalTensor<float> t = global<float>(x);
    const uint32_t shape[] = {4, 4};
    t.SetShapeInfo(ShapeInfo(2, shape));
    t.GetShapeInfo();  // keeps SIM-INIT-05
}

KERNEL(shape_that_was_not_set) {
    global<float>(x).GetShapeInfo();  // breaks SIM-INIT-05: SetShapeInfo was not called for the tensor
}

// ---- the initialisation of GM ------------------------------------------------------------------------------------

KERNEL(fill_before_buffers) {
    TPipe pipe;
    TBuf<> buffer;
    GlobalTensor<float> t = global<float>(y);
    Fill(t, 100, 1.0f);  // keeps SIM-BUFFER-07
    pipe.InitBuffer(buffer, 1024);
}

KERNEL(fill_after_buffers) {
    TPipe pipe;
    TBuf<> buffer;
    pipe.InitBuffer(buffer, 1024);
    GlobalTensor<float> t = global<float>(y);
    Fill(t, 100, 1.0f);  // breaks SIM-BUFFER-07: it must come before InitBuffer
}

KERNEL(fill_without_memory) {
    TPipe pipe;
    TBuf<> buffer;
    pipe.InitBuffer(buffer, 196608);
    InitOutput<float>(global<float>(y), 100, 1.0f);  // breaks SIM-BUFFER-02: the buffers left nothing of UB
}

KERNEL(two_values_in_order) {
    TPipe pipe;
    GlobalTensor<float> t = global<float>(y);
    Fill(t, 100, 1.0f);
    order<HardEvent::MTE3_V>();
    GlobalTensor<float> rest = t[100];
    Fill(rest, 100, 2.0f);  // keeps SIM-HAZARD-01
}

KERNEL(two_values_without_an_event) {
    TPipe pipe;
    GlobalTensor<float> t = global<float>(y);
    Fill(t, 100, 1.0f);
    GlobalTensor<float> rest = t[100];
    Fill(rest, 100, 2.0f);  // breaks SIM-HAZARD-01: V write of `dst`
}

KERNEL(copy_after_a_fill_without_an_event) {
    TPipe pipe;
    TBuf<> buffer;
    GlobalTensor<float> t = global<float>(y);
    Fill(t, 100, 1.0f);
    pipe.InitBuffer(buffer, 1024);
    DataCopy(buffer.Get<float>(), global<float>(x), 64);  // breaks SIM-HAZARD-01: MTE2 write of `dst`
}

KERNEL(atomic_maximum_of_another_type) {
    Ub ub(512);
    SetAtomicMax<half>();
    DataCopy(global<float>(y), ub.at<float>(0, 64), 64);  // breaks SIM-STATE-02: SetAtomicMax is on for half, the copy's elements are float
    SetAtomicNone();
}

KERNEL(atomic_minimum_at_exit) {
    Ub ub(512);
    DataCopy(global<float>(y), ub.at<float>(0, 64), 64);
    PipeBarrier<PIPE_MTE3>();
    SetAtomicMin<float>();  // breaks SIM-STATE-01: is still on
    DataCopy(global<float>(y), ub.at<float>(0, 64), 64);
}
