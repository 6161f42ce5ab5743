// Flags between pipes, set explicitly.
#include "mini.h"

KERNEL(set_wait_set_wait) {
    TPipe pipe;
    SetFlag<HardEvent::MTE2_V>(EVENT_ID0);
    WaitFlag<HardEvent::MTE2_V>(EVENT_ID0);
    SetFlag<HardEvent::MTE2_V>(EVENT_ID0);  // keeps SIM-EVENT-01
    WaitFlag<HardEvent::MTE2_V>(EVENT_ID0);
}

KERNEL(set_twice) {
    TPipe pipe;
    SetFlag<HardEvent::MTE2_V>(EVENT_ID0);
    SetFlag<HardEvent::MTE2_V>(EVENT_ID0);  // breaks SIM-EVENT-01: MTE2_V event 0 is set at @-1 already
    WaitFlag<HardEvent::MTE2_V>(EVENT_ID0);
}

// FetchEventID returns a free id without allocating it.
KERNEL(two_fetched_ids_at_a_time) {
    TPipe pipe;
    const TEventID a = pipe.FetchEventID(HardEvent::MTE2_V);
    SetFlag<HardEvent::MTE2_V>(a);
    const TEventID b = pipe.FetchEventID(HardEvent::MTE2_V);
    SetFlag<HardEvent::MTE2_V>(b);  // breaks SIM-EVENT-01: MTE2_V event 0 is set at @-2 already
    WaitFlag<HardEvent::MTE2_V>(a);
    WaitFlag<HardEvent::MTE2_V>(b);
}

KERNEL(two_allocated_ids_at_a_time) {
    TPipe pipe;
    const TEventID a = pipe.AllocEventID<HardEvent::MTE2_V>();
    SetFlag<HardEvent::MTE2_V>(a);
    const TEventID b = pipe.AllocEventID<HardEvent::MTE2_V>();
    SetFlag<HardEvent::MTE2_V>(b);  // keeps SIM-EVENT-01
    WaitFlag<HardEvent::MTE2_V>(a);
    WaitFlag<HardEvent::MTE2_V>(b);
    pipe.ReleaseEventID<HardEvent::MTE2_V>(a);
    pipe.ReleaseEventID<HardEvent::MTE2_V>(b);
}

// The queue allocates the first id that is not allocated yet.
KERNEL(own_id_that_a_queue_allocates) {
    Queues<> q;
    LocalTensor<float> a = q.in.AllocTensor<float>();
    SetFlag<HardEvent::MTE2_V>(EVENT_ID0);
    q.in.EnQue(a);  // breaks SIM-EVENT-01: EnQue: MTE2_V event 0 is set at @-1 already
    WaitFlag<HardEvent::MTE2_V>(EVENT_ID0);
    LocalTensor<float> b = q.in.DeQue<float>();
    q.in.FreeTensor(b);
}

KERNEL(wait_for_what_was_set) {
    TPipe pipe;
    SetFlag<HardEvent::V_MTE3>(EVENT_ID2);
    WaitFlag<HardEvent::V_MTE3>(EVENT_ID2);  // keeps SIM-EVENT-02
}

KERNEL(wait_for_another_id) {
    TPipe pipe;
    SetFlag<HardEvent::V_MTE3>(EVENT_ID2);
    WaitFlag<HardEvent::V_MTE3>(EVENT_ID1);  // breaks SIM-EVENT-02: waits for V_MTE3 event 1, which was not set before
}

KERNEL(wait_for_another_kind) {
    TPipe pipe;
    SetFlag<HardEvent::V_MTE3>(EVENT_ID2);
    WaitFlag<HardEvent::V_MTE2>(EVENT_ID2);  // breaks SIM-EVENT-02: V_MTE2 event 2
}

KERNEL(wait_twice) {
    TPipe pipe;
    SetFlag<HardEvent::S_V>(EVENT_ID0);
    WaitFlag<HardEvent::S_V>(EVENT_ID0);
    WaitFlag<HardEvent::S_V>(EVENT_ID0);  // breaks SIM-EVENT-02: S_V event 0
}

KERNEL(last_id) {
    TPipe pipe;
    for (int32_t i = 0; i < 8; ++i) pipe.AllocEventID<HardEvent::V_S>();
    SetFlag<HardEvent::V_S>(7);  // keeps SIM-EVENT-03
    WaitFlag<HardEvent::V_S>(7);
    for (int32_t i = 0; i < 8; ++i) pipe.ReleaseEventID<HardEvent::V_S>(i);
}

KERNEL(id_past_the_last) {
    TPipe pipe;
    SetFlag<HardEvent::V_S>(8);  // breaks SIM-EVENT-03: event id must be 0 .. 7 but got 8
}

KERNEL(negative_id) {
    TPipe pipe;
    WaitFlag<HardEvent::V_S>(-1);  // breaks SIM-EVENT-03: -1
}

KERNEL(release_of_an_allocated_id) {
    TPipe pipe;
    const TEventID id = pipe.AllocEventID<HardEvent::V_S>();
    pipe.ReleaseEventID<HardEvent::V_S>(id);  // keeps SIM-EVENT-03
}

KERNEL(release_of_another_id) {
    TPipe pipe;
    const TEventID id = pipe.AllocEventID<HardEvent::V_S>();
    pipe.ReleaseEventID<HardEvent::V_S>(id + 1);  // breaks SIM-EVENT-03: V_S event 1 was not allocated
}

KERNEL(eight_events) {
    TPipe pipe;
    for (int32_t i = 0; i < 8; ++i) pipe.AllocEventID<HardEvent::V_S>();  // keeps SIM-EVENT-04
    for (int32_t i = 0; i < 8; ++i) pipe.ReleaseEventID<HardEvent::V_S>(i);
}

KERNEL(nine_events) {
    TPipe pipe;
    for (int32_t i = 0; i < 9; ++i) pipe.AllocEventID<HardEvent::V_S>();  // breaks SIM-EVENT-04: all eight V_S events
}

KERNEL(eight_events_of_another_kind) {
    TPipe pipe;
    for (int32_t i = 0; i < 8; ++i) pipe.AllocEventID<HardEvent::V_S>();
    pipe.ReleaseEventID<HardEvent::S_V>(pipe.AllocEventID<HardEvent::S_V>());  // keeps SIM-EVENT-04
    for (int32_t i = 0; i < 8; ++i) pipe.ReleaseEventID<HardEvent::V_S>(i);
}

// FreeTensor holds an event of the queue's kind until its buffer is allocated again.
KERNEL(nine_freed_buffers) {
    TPipe pipe;
    TQue<TPosition::VECIN, 1> q;
    pipe.InitBuffer(q, 9, 256);
    for (int32_t i = 0; i < 9; ++i) {
        LocalTensor<float> a = q.AllocTensor<float>();
        DataCopy(a, global<float>(x), 64);
        q.FreeTensor(a);  // breaks SIM-EVENT-04: all eight V_MTE2 events
    }
}

KERNEL(flag_waited_for) {
    TPipe pipe;
    SetFlag<HardEvent::MTE3_V>(EVENT_ID0);
    WaitFlag<HardEvent::MTE3_V>(EVENT_ID0);  // keeps SIM-EVENT-05
}

KERNEL(flag_left_set) {
    TPipe pipe;
    SetFlag<HardEvent::MTE3_V>(EVENT_ID0);  // breaks SIM-EVENT-05: MTE3_V event 0, set here, was not waited for
}

KERNEL(event_of_two_pipes) {
    TPipe pipe;
    order<HardEvent::S_MTE3>();  // keeps SIM-EVENT-06
}

// The compiler refuses every such call of AscendC; this call bypasses AscendC.
KERNEL(event_of_one_pipe) {
    TPipe pipe;
    ascend_sim::set_flag(ascend_sim::Pipe::V, ascend_sim::Pipe::V, 0, "SetFlag", ascend_sim::Site::here());  // breaks SIM-EVENT-06: V_V is no event
}

KERNEL(own_id) {
    TPipe pipe;
    SetFlag<HardEvent::MTE2_V>(EVENT_ID5);  // keeps SIM-EVENT-07
    WaitFlag<HardEvent::MTE2_V>(EVENT_ID5);
}

KERNEL(id_of_the_compiler) {
    TPipe pipe;
    SetFlag<HardEvent::MTE2_V>(EVENT_ID6);  // warns SIM-EVENT-07: event ids 6 and 7 are the compiler's, but this is 6.
    WaitFlag<HardEvent::MTE2_V>(EVENT_ID6);
}

// The queue's events are V_MTE2 and MTE2_V.
KERNEL(own_id_before_that_of_a_queue) {
    Queues<> q;
    SetFlag<HardEvent::V_MTE2>(EVENT_ID3);  // warns SIM-EVENT-07: TPipe also assigns V_MTE2 event ids
    WaitFlag<HardEvent::V_MTE2>(EVENT_ID3);
    LocalTensor<float> a = q.in.AllocTensor<float>();
    q.in.FreeTensor(a);
}

KERNEL(own_id_after_a_fetched_one) {
    TPipe pipe;
    order<HardEvent::V_MTE3>();
    SetFlag<HardEvent::V_MTE3>(EVENT_ID1);  // warns SIM-EVENT-07: TPipe also assigns V_MTE3 event ids
    WaitFlag<HardEvent::V_MTE3>(EVENT_ID1);
}

// FetchEventID does not reserve the id, and the kernel may use it again.
KERNEL(fetched_id_that_is_used_twice) {
    TPipe pipe;
    const TEventID id = pipe.FetchEventID(HardEvent::V_S);
    for (int i = 0; i < 2; ++i) {
        SetFlag<HardEvent::V_S>(id);  // keeps SIM-EVENT-07
        WaitFlag<HardEvent::V_S>(id);
    }
}

KERNEL(ids_that_tpipe_assigned) {
    Queues<> q;
    const TEventID id = q.pipe.AllocEventID<HardEvent::V_MTE2>();
    SetFlag<HardEvent::V_MTE2>(id);  // keeps SIM-EVENT-07
    WaitFlag<HardEvent::V_MTE2>(id);
    q.pipe.ReleaseEventID<HardEvent::V_MTE2>(id);
    order<HardEvent::V_MTE2>();
    LocalTensor<float> a = q.in.AllocTensor<float>();
    q.in.FreeTensor(a);
}

KERNEL(event_released) {
    TPipe pipe;
    const TEventID id = pipe.AllocEventID<HardEvent::V_MTE2>();
    SetFlag<HardEvent::V_MTE2>(id);
    WaitFlag<HardEvent::V_MTE2>(id);
    pipe.ReleaseEventID<HardEvent::V_MTE2>(id);  // keeps SIM-EVENT-08
}

KERNEL(event_not_released) {
    TPipe pipe;
    const TEventID id = pipe.AllocEventID<HardEvent::V_MTE2>();  // warns SIM-EVENT-08: allocated here, was not released
    SetFlag<HardEvent::V_MTE2>(id);
    WaitFlag<HardEvent::V_MTE2>(id);
}
