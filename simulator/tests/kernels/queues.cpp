// A tensor's states in a queue: AllocTensor, EnQue, DeQue, FreeTensor.
#include "mini.h"

KERNEL(alloc_enque_deque_free) {
    Queues<> q;
    LocalTensor<float> a = q.in.AllocTensor<float>();
    DataCopy(a, global<float>(x), 64);
    q.in.EnQue(a);
    LocalTensor<float> b = q.in.DeQue<float>();
    q.in.FreeTensor(b);  // keeps SIM-QUEUE-01
}

KERNEL(enque_twice) {
    Queues<2> q;
    LocalTensor<float> a = q.in.AllocTensor<float>();
    DataCopy(a, global<float>(x), 64);
    q.in.EnQue(a);
    q.in.EnQue(a);  // breaks SIM-QUEUE-01: must be allocated or dequeued but is enqueued
}

KERNEL(enque_after_free) {
    Queues<> q;
    LocalTensor<float> a = q.in.AllocTensor<float>();
    q.in.FreeTensor(a);
    q.in.EnQue(a);  // breaks SIM-QUEUE-01: is freed
}

// The buffer is taken, but by another tensor.
KERNEL(enque_after_free_and_alloc) {
    Queues<> q(1);
    LocalTensor<float> a = q.in.AllocTensor<float>();
    q.in.FreeTensor(a);
    LocalTensor<float> b = q.in.AllocTensor<float>();
    q.in.EnQue(a);  // breaks SIM-QUEUE-01: is freed
}

KERNEL(deque_of_an_empty_queue) {
    Queues<> q;
    LocalTensor<float> a = q.in.AllocTensor<float>();
    LocalTensor<float> b = q.in.DeQue<float>();  // breaks SIM-QUEUE-01: the queue is empty: EnQue missing
    q.in.FreeTensor(a);
}

KERNEL(free_twice) {
    Queues<> q;
    LocalTensor<float> a = q.in.AllocTensor<float>();
    q.in.FreeTensor(a);
    q.in.FreeTensor(a);  // breaks SIM-QUEUE-01: freed already
}

KERNEL(free_twice_with_alloc_between) {
    Queues<> q(1);
    LocalTensor<float> a = q.in.AllocTensor<float>();
    q.in.FreeTensor(a);
    LocalTensor<float> b = q.in.AllocTensor<float>();
    q.in.FreeTensor(a);  // breaks SIM-QUEUE-01: freed already
}

KERNEL(free_of_an_enqueued_tensor) {
    Queues<> q;
    LocalTensor<float> a = q.in.AllocTensor<float>();
    DataCopy(a, global<float>(x), 64);
    q.in.EnQue(a);
    q.in.FreeTensor(a);  // breaks SIM-QUEUE-01: still in the queue: DeQue missing
}

// A queue of depth 0 allocates into an existing tensor.
KERNEL(alloc_and_deque_into_a_tensor) {
    Queues<0> q;
    LocalTensor<float> a, b;
    q.in.AllocTensor<float>(a);
    DataCopy(a, global<float>(x), 64);
    q.in.EnQue(a);
    q.in.DeQue<float>(b);
    Add(b, b, b, 64);
    q.in.FreeTensor(b);  // keeps SIM-QUEUE-01
}

// In-place use: the tensor is enqueued again after a step.
KERNEL(enque_of_a_dequeued_tensor) {
    Queues<> q;
    LocalTensor<float> a = q.in.AllocTensor<float>();
    DataCopy(a, global<float>(x), 64);
    q.in.EnQue(a);
    LocalTensor<float> b = q.in.DeQue<float>();
    q.in.EnQue(b);  // keeps SIM-QUEUE-01
    LocalTensor<float> c = q.in.DeQue<float>();
    q.in.FreeTensor(c);
}

KERNEL(two_in_a_queue_of_two) {
    Queues<2> q;
    LocalTensor<float> a = q.in.AllocTensor<float>();
    LocalTensor<float> b = q.in.AllocTensor<float>();
    q.in.EnQue(a);
    q.in.EnQue(b);  // keeps SIM-QUEUE-02
    LocalTensor<float> c = q.in.DeQue<float>();
    LocalTensor<float> d = q.in.DeQue<float>();
    q.in.FreeTensor(c);
    q.in.FreeTensor(d);
}

KERNEL(two_in_a_queue_of_one) {
    Queues<> q;
    LocalTensor<float> a = q.in.AllocTensor<float>();
    LocalTensor<float> b = q.in.AllocTensor<float>();
    q.in.EnQue(a);
    q.in.EnQue(b);  // breaks SIM-QUEUE-02: the queue of depth 1 is full: DeQue missing
}

KERNEL(as_many_tensors_as_buffers) {
    Queues<> q;
    LocalTensor<float> a = q.in.AllocTensor<float>();
    LocalTensor<float> b = q.in.AllocTensor<float>();  // keeps SIM-QUEUE-03
    q.in.FreeTensor(a);
    q.in.FreeTensor(b);
}

KERNEL(idle_buffers_and_queued_tensors) {
    TPipe pipe;
    TQue<TPosition::VECIN, 1> q;
    assert(!q.HasIdleBuffer() && !q.HasTensorInQue() && q.GetTensorCountInQue() == 0);
    pipe.InitBuffer(q, 1, 256);
    assert(q.HasIdleBuffer() && !q.HasTensorInQue());
    LocalTensor<float> a = q.AllocTensor<float>();
    assert(!q.HasIdleBuffer());
    q.EnQue(a);
    assert(q.HasTensorInQue() && q.GetTensorCountInQue() == 1);
    LocalTensor<float> b = q.DeQue<float>();
    q.FreeTensor(b);  // keeps SIM-QUEUE-03
}

KERNEL(more_tensors_than_buffers) {
    Queues<> q;
    LocalTensor<float> a = q.in.AllocTensor<float>();
    LocalTensor<float> b = q.in.AllocTensor<float>();
    LocalTensor<float> c = q.in.AllocTensor<float>();  // breaks SIM-QUEUE-03: all 2 buffers are taken
}

// No round frees its buffer, so the third round finds no free one.
KERNEL(round_without_free) {
    Queues<> q;
    for (int32_t i = 0; i < 3; ++i) {
        LocalTensor<float> a = q.in.AllocTensor<float>();  // breaks SIM-QUEUE-03: FreeTensor missing
        DataCopy(a, global<float>(x), 64);
        q.in.EnQue(a);
        LocalTensor<float> b = q.in.DeQue<float>();
    }
}

KERNEL(freed_at_the_end) {
    Queues<> q;
    LocalTensor<float> a = q.in.AllocTensor<float>();
    q.in.FreeTensor(a);  // keeps SIM-QUEUE-04
}

KERNEL(left_at_the_end) {
    Queues<> q;
    LocalTensor<float> a = q.in.AllocTensor<float>();  // breaks SIM-QUEUE-04: FreeTensor missing
}

KERNEL(freed_to_its_own_queue) {
    Queues<> q;
    LocalTensor<float> a = q.in.AllocTensor<float>();
    LocalTensor<float> b = q.out.AllocTensor<float>();
    q.in.FreeTensor(a);
    q.out.FreeTensor(b);  // keeps SIM-QUEUE-05
}

KERNEL(freed_to_another_queue) {
    Queues<> q;
    LocalTensor<float> a = q.in.AllocTensor<float>();
    q.out.FreeTensor(a);  // breaks SIM-QUEUE-05: this queue but belongs to another queue, allocated at @-1
}

KERNEL(enqueued_to_another_queue) {
    Queues<> q;
    LocalTensor<float> a = q.in.AllocTensor<float>();
    q.out.EnQue(a);  // breaks SIM-QUEUE-05: this queue but belongs to another queue, allocated at @-1
}

KERNEL(used_before_free) {
    Queues<> q;
    LocalTensor<float> a = q.out.AllocTensor<float>();
    Duplicate(a, 1.0f, 64);  // keeps SIM-QUEUE-06
    q.out.FreeTensor(a);
}

KERNEL(used_after_free) {
    Queues<> q;
    LocalTensor<float> a = q.out.AllocTensor<float>();
    q.out.FreeTensor(a);
    Duplicate(a, 1.0f, 64);  // breaks SIM-QUEUE-06: `dst` was freed before this use
}

// The tensor has the same buffer as before, but it is a new tensor.
KERNEL(used_after_free_and_alloc) {
    Queues<> q(1);
    LocalTensor<float> a = q.out.AllocTensor<float>();
    q.out.FreeTensor(a);
    LocalTensor<float> b = q.out.AllocTensor<float>();
    Duplicate(a, 1.0f, 64);  // breaks SIM-QUEUE-06: `dst`
    q.out.FreeTensor(b);
}

KERNEL(queue_without_memory) {
    TPipe pipe;
    TQue<TPosition::VECIN, 1> q;
    LocalTensor<float> a = q.AllocTensor<float>();  // breaks SIM-BUFFER-01: InitBuffer missing
}
