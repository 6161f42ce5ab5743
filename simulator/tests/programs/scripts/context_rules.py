"""Contexts and what belongs to them, through C and without torch. Each check runs in a separate process.

usage: context_rules.py LIBRARY [CHECK ...]
"""

import ctypes as C
import json
import threading

from capture_rules import (
    ACTIVE,
    CAPTURE_INVALIDATED,
    GLOBAL,
    MODE_REFUSES,
    NOT_CAPTURED,
    begin,
    end,
    ended,
    group_begin,
    group_end,
    replay,
    set_by_kernel,
    state_of,
    update_begin,
    update_end,
)
from forked_checks import run_checks
from stream_rules import (
    CANN,
    CONTEXT_NULL,
    COUNT,
    FUNCTION,
    IN_DEVICE,
    INVALID,
    KERNEL,
    NO_HANDLE,
    OK,
    RT_INVALID,
    STOP,
    STREAM_CAPTURED,
    content,
    copy,
    error_text,
    fail_on,
    fill,
    make_event,
    make_memory,
    make_stream,
    size,
)

STREAM_CONTEXT, MODEL_CONTEXT, SYNC_TIMEOUT = 107003, 107004, 507046
CANN.simulated_cann_calls_beyond_documents.restype = C.c_char_p


def current_context():
    found = C.c_void_p()
    assert CANN.aclrtGetCurrentContext(C.byref(found)) == OK
    return found


def make_context():
    """Create a context, which becomes the context of this thread."""
    made = C.c_void_p()
    assert CANN.aclrtCreateContext(C.byref(made), 0) == OK
    return made


def use(context):
    assert CANN.aclrtSetCurrentContext(context) == OK


def two_contexts():
    """The primary context, which this thread then has, and a created one."""
    primary, made = current_context(), make_context()
    use(primary)
    return primary, made


# ---- streams and graphs of another context -------------------------------------------------------------


def check_calls_with_a_stream_of_another_context():
    one, at, event, function = make_stream(), make_memory(value=1), make_event(), FUNCTION(lambda _: None)
    source = make_memory(value=2)
    _, made = two_contexts()
    use(made)
    value = C.c_int32()
    for call in (
        lambda: fill(at, 2, one),
        lambda: copy(at, source, one),
        lambda: CANN.aclrtRecordEvent(event, one),
        lambda: CANN.aclrtStreamWaitEvent(one, event),
        lambda: CANN.aclrtLaunchHostFunc(one, function, None),
        lambda: CANN.aclrtSetStreamFailureMode(one, C.c_uint64(STOP)),
        lambda: CANN.aclrtSetStreamOverflowSwitch(one, 1),
        lambda: CANN.aclrtGetStreamOverflowSwitch(one, C.byref(value)),
        lambda: CANN.aclrtDestroyStream(one),
    ):
        assert call() == STREAM_CONTEXT
        text = "stream must be one of this thread's context but got stream 0 of another context of device 0."
        assert text in error_text()
    assert set_by_kernel(at, 2, one) == 361001
    assert CANN.aclrtSynchronizeStream(one) == OK  # the runtime does not compare the contexts here
    assert CANN.aclrtStreamQuery(one, C.byref(value)) == OK
    assert content(at) == {1}


def check_captures_with_a_stream_of_another_context():
    primary, made = two_contexts()
    one, idle, graph_made = make_stream(), make_stream(), C.c_void_p()
    assert CANN.aclmdlRICaptureBegin(one, GLOBAL) == OK
    use(made)
    assert CANN.aclmdlRICaptureBegin(idle, GLOBAL) == STREAM_CONTEXT
    assert end(one)[0] == end(idle)[0] == STREAM_CONTEXT
    assert CANN.aclmdlRICaptureEnd(idle, None) == STREAM_CONTEXT
    assert CANN.aclmdlRICaptureEnd(one, None) == RT_INVALID
    assert group_begin(one) == group_end(one)[0] == STREAM_CONTEXT
    assert group_begin(idle) == group_end(idle)[0] == NOT_CAPTURED
    assert update_begin(idle, C.c_void_p(64)) == update_end(idle) == STREAM_CONTEXT
    assert update_begin(one, C.c_void_p(64)) == update_end(one) == STREAM_CAPTURED
    assert state_of(one) == ACTIVE
    use(primary)
    assert CANN.aclmdlRICaptureEnd(idle, None) == NOT_CAPTURED
    assert CANN.aclmdlRICaptureEnd(idle, C.byref(graph_made)) == NOT_CAPTURED
    ended(one)


def check_a_graph_of_another_context():
    primary, made = two_contexts()
    graph, one, captured = ended(begin()), make_stream(), C.c_void_p()
    capturing = begin()
    assert CANN.aclmdlRICaptureGetInfo(capturing, None, C.byref(captured)) == OK
    use(made)
    other = make_stream()
    for model in (graph, captured):
        for name, arguments in (
            ("aclmdlRIExecuteAsync", (one,)),
            ("aclmdlRIExecuteAsync", (other,)),
            ("aclmdlRIExecuteAsync", (None,)),
            ("aclmdlRIDebugPrint", ()),
            ("aclmdlRIDebugJsonPrint", (b"/no folder/graph.json", 0)),
            ("aclmdlRIDestroy", ()),
        ):
            assert getattr(CANN, name)(model, *arguments) == MODEL_CONTEXT
            assert "modelRI must be a graph of this thread's context." in error_text()
        assert CANN.aclmdlRIDebugJsonPrint(model, None, 0) == INVALID
    use(primary)
    assert CANN.aclmdlRIExecuteAsync(graph, other) == STREAM_CONTEXT
    replay(graph, one)
    assert CANN.aclmdlRIDestroy(graph) == OK


def check_a_context_has_its_default_stream():
    primary, made = two_contexts()
    ids, number, at = [], C.c_int32(), make_memory(value=1)
    for context in (primary, made, primary):
        use(context)
        assert CANN.aclrtStreamGetId(None, C.byref(number)) == OK
        ids.append(number.value)
    assert ids[0] == ids[2] != ids[1]
    assert fill(at, 2, None) == OK
    use(made)
    assert CANN.aclrtSynchronizeStream(None) == CANN.aclrtSynchronizeDevice() == OK
    assert content(at) == {1}
    use(primary)
    assert CANN.aclrtSynchronizeDevice() == OK
    assert content(at) == {2}


def check_an_event_orders_two_contexts():
    _, made = two_contexts()
    at, event, one = make_memory(value=1), make_event(), make_stream()
    assert fill(at, 2, one) == OK
    assert CANN.aclrtRecordEvent(event, one) == OK
    use(made)
    other = make_stream()
    assert CANN.aclrtStreamWaitEvent(other, event) == OK
    assert CANN.aclrtSynchronizeStream(other) == OK
    assert content(at) == {2}


# ---- errors and captures of one context ----------------------------------------------------------------


def check_an_error_stays_in_its_context():
    primary, made = two_contexts()
    one = make_stream(STOP)
    fail_on(one)
    assert CANN.aclrtSynchronizeStream(one) == KERNEL
    assert CANN.aclrtSynchronizeDevice() == KERNEL
    use(made)
    two, at = make_stream(STOP), make_memory(value=1)
    assert fill(at, 2, two) == OK
    assert CANN.aclrtSynchronizeDevice() == OK
    assert content(at) == {2}
    use(primary)
    assert CANN.aclrtSynchronizeDevice() == KERNEL


def check_a_context_continues_after_an_error_until_its_stream_stops():
    """The mode of a stream of one context does not stop another one."""
    _, made = two_contexts()
    make_stream(STOP)
    use(made)
    one = make_stream()
    fail_on(one)
    assert CANN.aclrtSynchronizeStream(one) == KERNEL
    assert CANN.aclrtSynchronizeStream(one) == OK


def check_a_capture_concerns_its_context():
    primary, made = two_contexts()
    at, one = make_memory(value=1), begin()
    use(made)
    assert CANN.aclrtMemset(at, C.c_size_t(16), 2, C.c_size_t(16)) == OK
    assert fill(at, 3, None) == OK  # the default stream of this context
    assert CANN.aclrtSynchronizeDevice() == OK
    assert content(at) == {3}
    assert state_of(one) == ACTIVE
    own = begin()
    assert CANN.aclrtMemset(at, C.c_size_t(16), 2, C.c_size_t(16)) == MODE_REFUSES
    assert (state_of(own), state_of(one)) == (2, ACTIVE)
    assert end(own)[0] == CAPTURE_INVALIDATED
    use(primary)
    assert CANN.aclrtMemset(at, C.c_size_t(16), 2, C.c_size_t(16)) == MODE_REFUSES
    assert end(one)[0] == CAPTURE_INVALIDATED


# ---- the end of a context ------------------------------------------------------------------------------


def end_by_reset(_):
    status = CANN.aclrtResetDevice(0)
    assert CANN.aclrtSetDevice(0) == OK
    return status


def end_by_destruction(context):
    status = CANN.aclrtDestroyContext(context)
    assert CANN.aclrtSetDevice(0) == OK
    return status


def both_ends():
    """Yield twice: the context of this thread, and how it ends. Another context keeps the device open."""
    use(two_contexts()[0])
    yield end_by_reset, current_context()
    yield end_by_destruction, make_context()


def check_streams_and_graphs_end_with_their_context():
    value = C.c_int32()
    for end_context, context in both_ends():
        one, at, event = make_stream(), make_memory(value=1), make_event()
        graph, capturing, captured = ended(begin()), begin(), C.c_void_p()
        assert CANN.aclmdlRICaptureGetInfo(capturing, None, C.byref(captured)) == OK
        assert fill(at, 2, one) == fill(at, 3, one) == OK
        assert end_context(context) == OK
        assert content(at) == {3}  # the end waits for the work
        for status in (
            fill(at, 2, one),
            CANN.aclrtRecordEvent(event, one),
            CANN.aclrtSynchronizeStream(one),
            CANN.aclrtStreamQuery(one, C.byref(value)),
            CANN.aclrtStreamGetId(one, C.byref(value)),
            CANN.aclrtSetStreamFailureMode(one, C.c_uint64(STOP)),
            CANN.aclmdlRICaptureEnd(capturing, C.byref(captured)),
            CANN.aclrtDestroyStream(one),
            CANN.aclmdlRIExecuteAsync(graph, None),
            CANN.aclmdlRIDestroy(graph),
            CANN.aclmdlRIDestroy(captured),
        ):
            assert status == NO_HANDLE
        assert CANN.aclrtMemset(at, C.c_size_t(64), 5, C.c_size_t(64)) == OK  # no capture is left
        assert CANN.aclrtRecordEvent(event, None) == CANN.aclrtSynchronizeEvent(event) == OK


def check_an_end_does_not_wait_for_what_never_happens():
    for end_context, context in both_ends():
        one, at = make_stream(), make_memory(value=1)
        assert CANN.aclrtStreamWaitEvent(one, make_event(is_extended=False)) == OK
        assert fill(at, 2, one) == OK
        assert end_context(context) == SYNC_TIMEOUT
        assert "the stream waits for an event that nothing records." in error_text()
        assert content(at) == {1}
        assert CANN.aclrtDestroyStream(one) == NO_HANDLE


def check_a_context_with_an_error_ends():
    for end_context, context in both_ends():
        one = make_stream(STOP)
        fail_on(one)
        assert CANN.aclrtSynchronizeStream(one) == KERNEL
        assert end_context(context) == OK
        assert CANN.aclrtSynchronizeStream(make_stream()) == OK


def check_the_subscription_of_a_stream_ends_with_its_context():
    """A number of a stream is not used again, so only the thread's subscription shows it."""
    for end_context, context in both_ends():
        one, thread = make_stream(), C.c_uint64(threading.get_ident())
        assert CANN.aclrtSubscribeReport(thread, one) == OK
        assert end_context(context) == OK
        assert CANN.aclrtProcessReport(10) == 107012


def check_a_destroyed_context_is_that_of_no_thread():
    made, found = make_context(), []
    has_context, is_destroyed = threading.Event(), threading.Event()

    def in_another_thread():
        use(made)
        has_context.set()
        is_destroyed.wait()
        found.append(CANN.aclrtSynchronizeDevice())

    thread = threading.Thread(target=in_another_thread)
    thread.start()
    has_context.wait()
    assert CANN.aclrtDestroyContext(made) == OK
    is_destroyed.set()
    thread.join()
    assert found == [CONTEXT_NULL]


def check_a_context_of_a_device_that_was_reset():
    """The document excludes it, the source accepts it: the call is counted."""
    name = "aclrtSetCurrentContext with a context whose device was reset"
    made = make_context()
    one = make_stream()
    assert CANN.aclrtResetDevice(0) == OK
    assert CANN.aclrtSynchronizeStream(one) == OK
    assert name not in json.loads(CANN.simulated_cann_calls_beyond_documents())
    use(made)
    assert json.loads(CANN.simulated_cann_calls_beyond_documents())[name] == 1
    use(make_context())
    assert json.loads(CANN.simulated_cann_calls_beyond_documents())[name] == 1


def check_the_memory_of_a_device_ends_with_its_last_context():
    """hicann/driver src/ascend_hal/svm/v2/devmm/devmm_svm.c, drvMemDeviceClose."""
    _, made = two_contexts()
    at, count, left = make_memory(value=1), C.c_size_t(), C.c_size_t()
    assert CANN.aclrtResetDevice(0) == OK
    use(made)
    assert CANN.aclrtMemset(at, size(COUNT), 2, size(COUNT)) == OK  # the device is still open
    assert content(at) == {2}
    assert CANN.aclrtDestroyContext(made) == OK
    freed = content(at)
    assert len(freed) == 1
    assert not freed & {1, 2}
    assert CANN.aclrtSetDevice(0) == OK
    other = make_memory(value=3)
    assert CANN.aclrtFree(at) == RT_INVALID
    assert "A device's memory is freed when its last context ends." in error_text()
    assert CANN.aclrtMemset(at, size(COUNT), 4, size(COUNT)) == INVALID
    for to, source in ((at, other), (other, at)):
        assert CANN.aclrtMemcpy(to, size(COUNT), source, size(COUNT), IN_DEVICE) == INVALID
        assert "must not be device memory that was freed (allocation" in error_text()
    assert content(other) == {3}
    assert CANN.aclrtGetMemInfo(1, C.byref(left), C.byref(count)) == OK
    assert count.value - left.value == size(COUNT).value
    assert CANN.aclrtFree(other) == OK


def check_the_default_streams_of_contexts_count():
    """A device has at most 1984 streams, and each context has one."""
    count, made = 0, C.c_void_p()
    make_context()
    while CANN.aclrtCreateStream(C.byref(made)) == OK:
        count += 1
    assert count == 1984 - 2


if __name__ == "__main__":
    run_checks(globals())
