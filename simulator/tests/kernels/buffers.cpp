// TPipe, InitBuffer, and the scratch memory of Select.
#include "mini.h"

KERNEL(buffer_of_a_byte) {
    TPipe pipe;
    TBuf<> buffer;
    pipe.InitBuffer(buffer, 1);  // keeps SIM-BUFFER-01
}

KERNEL(buffer_of_nothing) {
    TPipe pipe;
    TBuf<> buffer;
    pipe.InitBuffer(buffer, 0);  // breaks SIM-BUFFER-01: length must be > 0 but got 0
}

// The report of the reference comes before that of the buffer.
KERNEL(scalar_reference_before_a_buffer_of_nothing) {
    Ub ub(1024);
    LocalTensor<float> t = ub.at<float>(0, 256);
    Adds(t[64], t, 1.0f, 64);
    float value = t(64);  // breaks SIM-HAZARD-03: V_S event missing
    (void)value;
    TBuf<> buffer;
    GetTPipePtr()->InitBuffer(buffer, 0);
}

KERNEL(queue_of_no_buffers) {
    TPipe pipe;
    TQue<TPosition::VECIN, 1> q;
    pipe.InitBuffer(q, 0, 256);  // breaks SIM-BUFFER-01: must be 1 .. 64 but got 0
}

KERNEL(buffer_twice) {
    TPipe pipe;
    TBuf<> buffer;
    pipe.InitBuffer(buffer, 256);
    pipe.InitBuffer(buffer, 256);  // breaks SIM-BUFFER-01: called twice
}

KERNEL(queue_twice) {
    TPipe pipe;
    TQue<TPosition::VECIN, 1> q;
    pipe.InitBuffer(q, 1, 256);
    pipe.InitBuffer(q, 1, 256);  // breaks SIM-BUFFER-01: called twice
}

KERNEL(buffer_without_memory) {
    TPipe pipe;
    TBuf<> buffer;
    LocalTensor<float> t = buffer.Get<float>();  // breaks SIM-BUFFER-01: InitBuffer missing
}

KERNEL(buffers_that_fill_ub) {
    TPipe pipe;
    TBuf<> a, b;
    pipe.InitBuffer(a, 98304);
    pipe.InitBuffer(b, 98304);  // keeps SIM-BUFFER-02
}

KERNEL(buffers_that_exceed_ub) {
    TPipe pipe;
    TBuf<> a, b;
    pipe.InitBuffer(a, 98304);
    pipe.InitBuffer(b, 98305);  // breaks SIM-BUFFER-02: 98305 bytes do not fit: 98304 of UB's 196608 are taken
}

KERNEL(tensor_of_a_buffer_that_exceeds_ub) {
    TPipe pipe;
    TBuf<> buffer;
    pipe.InitBuffer(buffer, 196609);  // breaks SIM-BUFFER-02: 196609 bytes do not fit
    LocalTensor<float> t = buffer.Get<float>();
}

KERNEL(queue_that_exceeds_ub) {
    TPipe pipe;
    TQue<TPosition::VECIN, 1> q;
    pipe.InitBuffer(q, 2, 98305);  // breaks SIM-BUFFER-02: 98305 bytes do not fit
}

KERNEL(as_many_buffers_as_a_pipe_holds) {
    TPipe pipe;
    TQue<TPosition::VECIN, 1> q;
    pipe.InitBuffer(q, 64, 32);  // keeps SIM-BUFFER-03
}

KERNEL(one_buffer_more_than_a_pipe_holds) {
    TPipe pipe;
    TQue<TPosition::VECIN, 1> q;
    TBuf<> buffer;
    pipe.InitBuffer(q, 64, 32);
    pipe.InitBuffer(buffer, 32);  // breaks SIM-BUFFER-03: at most 64 buffers but got one more
}

KERNEL(one_pipe) {
    TPipe pipe;
    TBuf<> buffer;
    pipe.InitBuffer(buffer, 32);  // keeps SIM-BUFFER-04
}

KERNEL(two_pipes) {
    TPipe pipe;
    TPipe another;  // breaks SIM-BUFFER-04: another TPipe exists
}

KERNEL(buffer_of_a_destroyed_pipe) {
    TPipe pipe;
    TBuf<> buffer;
    pipe.Destroy();
    pipe.InitBuffer(buffer, 32);  // breaks SIM-BUFFER-04: there is no TPipe
}

KERNEL(no_pipe) {
    TEventID id = GetTPipePtr()->FetchEventID(HardEvent::V_S);  // breaks SIM-BUFFER-04: there is no TPipe
    (void)id;
}

KERNEL(tensor_of_a_destroyed_pipe) {
    TPipe pipe;
    TBuf<> buffer;
    pipe.InitBuffer(buffer, 256);
    LocalTensor<float> t = buffer.Get<float>();
    pipe.Destroy();
    Duplicate(t, 1.0f, 64);  // breaks SIM-BUFFER-04: `dst`
}

// The next pipe starts with an empty UB.
KERNEL(pipe_after_pipe) {
    for (int32_t i = 0; i < 3; ++i) {
        TPipe pipe;
        TBuf<> buffer;
        pipe.InitBuffer(buffer, 196608);  // keeps SIM-BUFFER-04
        Duplicate(buffer.Get<float>(), 1.0f, 64);
        PipeBarrier<PIPE_ALL>();
    }
}

// A reset pipe can allocate UB and its 64 buffers again, to the same objects.
KERNEL(pipe_reset) {
    TPipe pipe;
    TBuf<> buffer;
    TQue<TPosition::VECIN, 1> q;
    for (int32_t i = 0; i < 3; ++i) {
        pipe.InitBuffer(q, 63, 32);
        pipe.InitBuffer(buffer, 131072);  // keeps SIM-BUFFER-03
        pipe.Reset();
    }
}

KERNEL(tensor_of_a_reset_pipe) {
    TPipe pipe;
    TBuf<> buffer;
    pipe.InitBuffer(buffer, 256);
    LocalTensor<float> t = buffer.Get<float>();
    pipe.Reset();
    Duplicate(t, 1.0f, 64);  // breaks SIM-QUEUE-06: `dst`
}

KERNEL(select_below_the_scratch) {
    Ub ub(188416);
    LocalTensor<float> t = ub.at<float>(0, 4096);
    LocalTensor<uint8_t> bits = ub.at<uint8_t>(16384, 32);
    Select(t[256], bits, t, 0.0f, SELMODE::VSEL_TENSOR_SCALAR_MODE, 64);  // keeps SIM-BUFFER-05
}

KERNEL(select_with_an_unused_buffer_over_the_scratch) {
    Ub ub(128);
    TPipe& pipe = *GetTPipePtr();
    TBuf<> buffer;
    pipe.InitBuffer(buffer, 188416);
    LocalTensor<float> t = buffer.Get<float>();
    LocalTensor<uint8_t> bits = buffer.GetWithOffset<uint8_t>(32, 16384);
    Duplicate(t, 1.0f, 8192);
    PipeBarrier<PIPE_V>();
    Select(t[256], bits, t, 0.0f, SELMODE::VSEL_TENSOR_SCALAR_MODE, 64);  // keeps SIM-BUFFER-05
}

KERNEL(select_over_the_scratch) {
    Ub ub(188448);
    LocalTensor<float> t = ub.at<float>(0, 4096);
    LocalTensor<uint8_t> bits = ub.at<uint8_t>(16384, 32);
    Select(t[256], bits, t, 0.0f, SELMODE::VSEL_TENSOR_SCALAR_MODE, 64);  // breaks SIM-BUFFER-05: Select: uses UB from byte 188416 on as scratch but tensors use it up to byte 188448
}
