"""Captures of streams into graphs, through C and without torch. Each check runs in a separate process.

usage: capture_rules.py LIBRARY [CHECK ...]
"""

import ctypes as C
import json
import tempfile
import threading
from pathlib import Path

from forked_checks import run_checks
from stream_rules import (
    CANN,
    COUNT,
    FUNCTION,
    INVALID,
    KERNEL,
    LAUNCH_REFUSED,
    NO_HANDLE,
    NOT_SUPPORTED,
    OK,
    RT_INVALID,
    STREAM_CAPTURED,
    TIME_LINE,
    content,
    copy,
    error_text,
    fill,
    make_event,
    make_memory,
    make_stream,
    set_to_one,
    size,
    statuses_of,
)

CANN.aclCreateScalar.restype = C.c_void_p
GLOBAL, THREAD_LOCAL, RELAXED = 0, 1, 2
NONE, ACTIVE, INVALIDATED = 0, 1, 2
DEPENDENCY, UNJOINED, EVENT_CAPTURED, NOT_CAPTURED, MODE_REFUSES = 107024, 107025, 107028, 107029, 107030
IMPLICIT, CONFLICT, TASK_GROUP, UNMATCHED, WRONG_THREAD = 107031, 107032, 107033, 107036, 107038
MODEL_CAPTURED, ASYNC_REFUSES, CAPTURE_INVALIDATED, INTERNAL = 107026, 107041, 507903, 507000
GROUP_INTERRUPTED, TASK_NOT_SUPPORTED = 107034, 507009


def begin(mode=GLOBAL):
    """Begin a capture; return its stream."""
    one = make_stream()
    assert CANN.aclmdlRICaptureBegin(one, mode) == OK
    return one


def end(stream):
    """End a capture; return the status and the graph."""
    graph = C.c_void_p(7)
    return CANN.aclmdlRICaptureEnd(stream, C.byref(graph)), graph


def ended(stream):
    """End a capture; return its graph."""
    status, graph = end(stream)
    assert status == OK, error_text()
    assert graph
    return graph


def state_of(stream):
    state, graph = C.c_int32(-1), C.c_void_p()
    assert CANN.aclmdlRICaptureGetInfo(stream, C.byref(state), C.byref(graph)) == OK
    assert bool(graph) == (state.value != NONE)
    return state.value


def replay(graph, stream=None):
    stream = stream or make_stream()
    assert CANN.aclmdlRIExecuteAsync(graph, stream) == OK
    assert CANN.aclrtSynchronizeStream(stream) == OK


def fork(origin, other):
    """Let another stream join the capture of a stream."""
    event = make_event()
    assert CANN.aclrtRecordEvent(event, origin) == OK
    assert CANN.aclrtStreamWaitEvent(other, event) == OK


def in_another_thread(work, is_device_set=True):
    found = []

    def run():
        if is_device_set:
            assert CANN.aclrtSetDevice(0) == OK
        found.append(work())

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return found[0]


# ---- captures ----------------------------------------------------------------------------------------


def check_captured_work_runs_at_each_replay():
    at, one = make_memory(value=1), begin()
    assert state_of(one) == ACTIVE
    assert fill(at, 2, one) == OK
    graph = ended(one)
    assert state_of(one) == NONE
    assert content(at) == {1}
    for _ in range(2):
        replay(graph)
        assert content(at) == {2}
        assert CANN.aclrtMemset(at, size(), 1, size()) == OK
    assert fill(at, 3, one) == OK
    assert CANN.aclrtSynchronizeStream(one) == OK
    assert content(at) == {3}


def check_arguments_of_a_capture():
    one = make_stream()
    assert CANN.aclmdlRICaptureBegin(None, GLOBAL) == INVALID
    for mode in (-1, 3):
        assert CANN.aclmdlRICaptureBegin(one, mode) == RT_INVALID
        assert f"mode must be 0, 1 or 2 but got {mode}." in error_text()
    for mode in (GLOBAL, THREAD_LOCAL, RELAXED):
        assert CANN.aclmdlRICaptureBegin(one, mode) == OK
        assert CANN.aclmdlRICaptureBegin(one, mode) == STREAM_CAPTURED
        assert CANN.aclrtDestroyStream(one) == STREAM_CAPTURED
        assert CANN.aclmdlRICaptureEnd(one, None) == RT_INVALID
        ended(one)
    assert CANN.aclmdlRICaptureGetInfo(one, None, None) == INVALID
    status, graph = end(one)
    assert (status, graph.value) == (NOT_CAPTURED, None)
    assert end(None)[0] == INVALID


def check_graphs_have_numbers():
    number = C.c_uint32()
    graphs = [ended(begin()) for _ in range(3)]
    for index, graph in enumerate(graphs):
        assert CANN.aclmdlRIGetId(graph, C.byref(number)) == OK
        assert number.value == index + 1
        assert CANN.aclmdlRIGetId(graph, None) == INVALID


def check_a_captured_stream_is_not_waited_for():
    state = C.c_int32()
    for wait in (
        CANN.aclrtSynchronizeStream,
        lambda one: CANN.aclrtSynchronizeStreamWithTimeout(one, 5),
        lambda one: CANN.aclrtStreamQuery(one, C.byref(state)),
        lambda _: CANN.aclrtSynchronizeDevice(),
    ):
        one = begin()
        assert wait(one) == STREAM_CAPTURED
        assert state_of(one) == INVALIDATED
        assert fill(make_memory(), 1, one) == CAPTURE_INVALIDATED
        status, graph = end(one)
        assert (status, graph.value) == (CAPTURE_INVALIDATED, None)
        assert state_of(one) == NONE
        assert CANN.aclrtSynchronizeStream(one) == OK


def check_a_captured_event_is_not_waited_for():
    value, number = C.c_int32(), C.c_uint64()
    plain = make_event(flags=TIME_LINE | 1)
    assert CANN.aclrtRecordEvent(plain, make_stream()) == OK
    assert CANN.aclrtSynchronizeEvent(plain) == OK
    for wait in (
        CANN.aclrtSynchronizeEvent,
        lambda event: CANN.aclrtQueryEventStatus(event, C.byref(value)),
        lambda event: CANN.aclrtEventGetTimestamp(event, C.byref(number)),
        lambda event: CANN.aclrtEventElapsedTime(C.byref(C.c_float()), plain, event),
        lambda event: CANN.aclrtEventElapsedTime(C.byref(C.c_float()), event, plain),
    ):
        one, event = begin(), make_event(flags=TIME_LINE | 1)
        assert CANN.aclrtRecordEvent(event, one) == OK
        assert wait(event) == EVENT_CAPTURED
        assert "must not be in a capture: its record does not happen." in error_text()
        assert end(one)[0] == CAPTURE_INVALIDATED
        assert CANN.aclrtRecordEvent(event, one) == OK  # outside the capture
        assert CANN.aclrtSynchronizeStream(one) == OK
        assert wait(event) == OK


def check_the_default_stream_is_not_captured():
    at, one, event = make_memory(value=1), begin(), make_event()
    assert fill(at, 2, None) == IMPLICIT
    assert "stream must not be the default stream during a capture." in error_text()
    assert CANN.aclrtRecordEvent(event, one) == OK
    assert CANN.aclrtStreamWaitEvent(None, event) == IMPLICIT
    ended(one)
    assert fill(at, 2, None) == OK
    assert CANN.aclrtSynchronizeStream(None) == OK
    assert content(at) == {2}


# ---- branches ----------------------------------------------------------------------------------------


def check_streams_join_a_capture():
    """The graph keeps the order of its branches."""
    at, copied = make_memory(value=1), make_memory(value=0)
    one, two, joined = begin(), make_stream(), make_event()
    assert fill(at, 2, one) == OK
    fork(one, two)
    assert state_of(two) == ACTIVE
    assert copy(copied, at, two) == OK
    assert CANN.aclrtRecordEvent(joined, two) == OK
    assert CANN.aclrtStreamWaitEvent(one, joined) == OK
    assert fill(at, 3, one) == OK
    assert end(two)[0] == UNMATCHED
    graph = ended(one)
    assert (state_of(one), state_of(two)) == (NONE, NONE)
    for _ in range(3):
        replay(graph)
        assert (content(at), content(copied)) == ({3}, {2})
        assert CANN.aclrtMemset(copied, size(), 0, size()) == OK
    assert fill(at, 4, two) == OK
    assert CANN.aclrtSynchronizeDevice() == OK
    assert content(at) == {4}


def check_streams_that_do_not_join_again():
    for what in ("no work", "no record", "no wait", "a wait of its own", "another stream's wait"):
        one, two, three, event = begin(), make_stream(), make_stream(), make_event()
        fork(one, two)
        if what != "no work":
            assert fill(make_memory(), 1, two) == OK
        rule = "joined the capture, and its last work is not the record of an event."
        if what not in ("no work", "no record"):
            assert CANN.aclrtRecordEvent(event, two) == OK
            rule = "joined the capture, and no stream waits for its last event."
        if what == "a wait of its own":
            assert CANN.aclrtStreamWaitEvent(two, event) == OK
            assert CANN.aclrtRecordEvent(event, two) == OK
        if what == "another stream's wait":
            # Each of the two streams waits for the other.
            fork(one, three)
            assert CANN.aclrtStreamWaitEvent(three, event) == OK
            last = make_event()
            assert CANN.aclrtRecordEvent(last, three) == OK
            assert CANN.aclrtStreamWaitEvent(two, last) == OK
            assert CANN.aclrtRecordEvent(event, two) == OK
            assert CANN.aclrtStreamWaitEvent(three, event) == OK
            assert CANN.aclrtRecordEvent(last, three) == OK
        status, graph = end(one)
        assert (status, graph.value) == (UNJOINED, None), what
        assert rule in error_text(), what
        assert (state_of(one), state_of(two)) == (NONE, NONE)
        assert CANN.aclrtSynchronizeEvent(event) == OK  # it is in no capture


def check_the_origin_waits_for_a_stream_that_joined():
    one, two, three = begin(), make_stream(), make_stream()
    events = [make_event() for _ in range(2)]
    fork(one, two)
    fork(one, three)
    assert CANN.aclrtRecordEvent(events[0], two) == OK
    assert CANN.aclrtStreamWaitEvent(three, events[0]) == OK
    assert CANN.aclrtRecordEvent(events[1], three) == OK
    assert CANN.aclrtStreamWaitEvent(one, events[1]) == OK
    ended(one)


def check_events_of_another_capture_and_from_outside():
    one, two, event, outside = begin(RELAXED), begin(RELAXED), make_event(), make_event()
    assert CANN.aclrtRecordEvent(event, two) == OK
    assert CANN.aclrtStreamWaitEvent(one, event) == CONFLICT
    assert "event and stream must belong to one capture." in error_text()
    assert (state_of(one), state_of(two)) == (INVALIDATED, INVALIDATED)
    assert (end(one)[0], end(two)[0]) == (CAPTURE_INVALIDATED,) * 2
    one, two = begin(RELAXED), begin(RELAXED)
    assert CANN.aclrtRecordEvent(event, one) == OK
    assert CANN.aclrtRecordEvent(event, two) == CONFLICT
    assert (end(one)[0], end(two)[0]) == (CAPTURE_INVALIDATED,) * 2
    assert CANN.aclrtRecordEvent(outside, one) == OK
    assert CANN.aclrtSynchronizeStream(one) == OK
    three = begin()
    assert CANN.aclrtStreamWaitEvent(three, outside) == DEPENDENCY
    assert CANN.aclrtStreamWaitEvent(three, make_event()) == OK  # not recorded: no effect
    for call in (
        lambda older: CANN.aclrtStreamWaitEvent(three, older),
        lambda older: CANN.aclrtRecordEvent(older, three),
    ):
        assert call(make_event(False)) == NOT_SUPPORTED
        assert "event must be created by aclrtCreateEventExWithFlag." in error_text()
    ended(three)


# ---- modes -------------------------------------------------------------------------------------------


def memset(address):
    return CANN.aclrtMemset(address, size(16), 0, size(16))


def check_modes():
    """Whether this thread, which began the capture, and another one may make a synchronous call, by the modes
    of the capture and of the calling thread."""
    at = make_memory(16)
    here = {THREAD_LOCAL: (RELAXED,), GLOBAL: (RELAXED,), RELAXED: (GLOBAL, THREAD_LOCAL, RELAXED)}
    there = {GLOBAL: (THREAD_LOCAL, RELAXED), THREAD_LOCAL: (GLOBAL, THREAD_LOCAL, RELAXED)}
    there[RELAXED] = there[THREAD_LOCAL]
    for captured in (GLOBAL, THREAD_LOCAL, RELAXED):
        for of_thread in (GLOBAL, THREAD_LOCAL, RELAXED):

            def call(of_thread=of_thread):
                mode = C.c_int32(of_thread)
                assert CANN.aclmdlRICaptureThreadExchangeMode(C.byref(mode)) == OK
                assert mode.value == GLOBAL
                status = memset(at)
                mode.value = GLOBAL
                assert CANN.aclmdlRICaptureThreadExchangeMode(C.byref(mode)) == OK
                assert mode.value == of_thread
                return status

            for run, allowed in ((lambda call: call(), here), (in_another_thread, there)):
                one = begin(captured)
                is_allowed = captured in allowed[of_thread]
                assert run(call) == (OK if is_allowed else MODE_REFUSES), (captured, of_thread)
                assert end(one)[0] == (OK if is_allowed else CAPTURE_INVALIDATED)


def check_a_mode_that_does_not_exist():
    for mode in (-1, 3):
        assert CANN.aclmdlRICaptureThreadExchangeMode(C.byref(C.c_int32(mode))) == RT_INVALID
    assert CANN.aclmdlRICaptureThreadExchangeMode(None) == INVALID


def check_a_copy_of_pageable_memory():
    """It is not captured. On another stream, it is a synchronous call with a status of its own."""
    host, at, other = C.create_string_buffer(64), make_memory(), make_stream()
    for mode, status in ((GLOBAL, ASYNC_REFUSES), (THREAD_LOCAL, ASYNC_REFUSES), (RELAXED, OK)):
        one = begin(mode)
        assert copy(at, host, one, 1) == RT_INVALID
        assert "host memory must come from aclrtMallocHost during a capture." in error_text()
        assert copy(at, host, other, 1) == status
        assert end(one)[0] == (CAPTURE_INVALIDATED if status else OK)
    pinned, one = C.c_void_p(), begin()
    assert CANN.aclrtMallocHost(C.byref(pinned), size()) == OK
    assert copy(at, pinned, one, 1) == OK
    ended(one)


def check_the_end_in_another_thread():
    for mode, status in ((GLOBAL, WRONG_THREAD), (THREAD_LOCAL, WRONG_THREAD), (RELAXED, OK)):
        one = begin(mode)
        assert in_another_thread(lambda one=one: end(one)[0]) == status
        assert state_of(one) == NONE


# ---- task groups -------------------------------------------------------------------------------------


def group_begin(stream):
    return CANN.aclmdlRICaptureTaskGrpBegin(stream)


def group_end(stream):
    group = C.c_void_p(7)
    return CANN.aclmdlRICaptureTaskGrpEnd(stream, C.byref(group)), group


def update_begin(stream, group):
    return CANN.aclmdlRICaptureTaskUpdateBegin(stream, group)


def update_end(stream):
    return CANN.aclmdlRICaptureTaskUpdateEnd(stream)


def set_by_kernel(at, value, stream):
    """Set the bytes of memory by aclnn and return the status of the second phase."""
    dims, steps, one_dim = (C.c_int64 * 1)(COUNT), (C.c_int64 * 1)(1), C.c_uint64(1)
    int8 = 2
    tensor = C.c_void_p(CANN.aclCreateTensor(dims, one_dim, int8, steps, C.c_int64(0), 2, dims, one_dim, at))
    scalar = C.c_void_p(CANN.aclCreateScalar((C.c_int8 * 1)(value), int8))
    bytes_, executor = C.c_uint64(), C.c_void_p()
    prepare = CANN.aclnnInplaceFillScalarGetWorkspaceSize
    assert prepare(tensor, scalar, C.byref(bytes_), C.byref(executor)) == OK, error_text()
    return CANN.aclnnInplaceFillScalar(None, bytes_, executor, stream)


def check_the_tasks_of_a_group_are_replaced():
    a, b, c = (make_memory(value=0) for _ in range(3))
    one, updating, other = begin(), make_stream(), make_stream()
    assert fill(a, 1, one) == OK
    assert group_begin(one) == OK
    assert group_begin(one) == TASK_GROUP
    assert "must not have an open group." in error_text()
    assert set_by_kernel(b, 2, one) == OK
    assert set_by_kernel(c, 3, one) == OK
    status, group = group_end(one)
    assert status == OK
    assert update_begin(updating, group) == INVALID  # the graph is not ready
    assert fill(a, 4, one) == OK
    graph = ended(one)

    assert update_begin(updating, group) == OK
    assert update_begin(updating, group) == TASK_GROUP
    assert "must not update another group." in error_text()
    assert update_begin(other, group) == TASK_GROUP
    assert "handle must not be updated by another stream." in error_text()
    assert set_to_one(b, updating) == LAUNCH_REFUSED
    assert "aclnnInplaceOne: the task of the group must be aclnnInplaceFillScalar." in error_text()
    for call in (lambda: fill(b, 1, updating), lambda: CANN.aclrtRecordEvent(make_event(), updating)):
        assert call() == TASK_NOT_SUPPORTED
        assert "only kernels can replace the tasks of a group." in error_text()
    assert set_by_kernel(b, 5, updating) == OK
    assert update_end(updating) == INTERNAL
    assert "every task of the group must be updated but got 1 of 2." in error_text()

    assert update_begin(updating, group) == OK
    assert set_by_kernel(b, 6, updating) == OK
    assert set_by_kernel(c, 7, updating) == OK
    assert set_by_kernel(c, 8, updating) == LAUNCH_REFUSED
    assert "aclnnInplaceFillScalar: the group has only 2 task(s)." in error_text()
    assert update_end(updating) == OK
    assert [content(each) for each in (a, b, c)] == [{0}] * 3
    replay(graph)
    assert [content(each) for each in (a, b, c)] == [{4}, {6}, {7}]
    assert fill(a, 9, updating) == OK
    assert CANN.aclrtSynchronizeStream(updating) == OK
    assert content(a) == {9}


def check_calls_of_task_groups_that_are_refused():
    one, other, junk = make_stream(), make_stream(), C.c_void_p(64)
    assert (group_begin(None), group_end(None)[0]) == (INVALID, INVALID)
    assert (update_begin(None, junk), update_end(None)) == (INVALID, INVALID)
    assert group_begin(one) == NOT_CAPTURED
    status, group = group_end(one)
    assert (status, group.value) == (NOT_CAPTURED, None)
    assert update_end(one) == TASK_GROUP
    for handle, rule in ((None, "not be null."), (junk, "be a group of a graph that exists.")):
        assert update_begin(one, handle) == INVALID
        assert f"handle must {rule}" in error_text()
    assert CANN.aclmdlRICaptureBegin(one, GLOBAL) == OK
    assert group_end(one)[0] == TASK_GROUP
    assert update_begin(one, None) == INVALID
    assert (update_begin(one, junk), update_end(one)) == (STREAM_CAPTURED, STREAM_CAPTURED)
    assert group_begin(one) == OK
    assert CANN.aclmdlRICaptureTaskGrpEnd(one, None) == INVALID
    assert CANN.aclrtSynchronizeStream(one) == STREAM_CAPTURED  # invalidates the capture
    status, group = group_end(one)
    assert (status, group.value) == (CAPTURE_INVALIDATED, None)
    assert end(one)[0] == CAPTURE_INVALIDATED
    assert CANN.aclmdlRICaptureBegin(other, GLOBAL) == OK
    assert group_begin(other) == OK
    status, graph = end(other)
    assert (status, graph.value) == (TASK_GROUP, None)
    assert "a task group is open." in error_text()


def check_a_group_has_kernels_only():
    """Another task in the group, and a task of another stream during the group, invalidate the capture."""
    event, at, host = make_event(), make_memory(value=1), FUNCTION(lambda _: None)
    source = make_memory(value=2)
    for status, work in (
        (OK, lambda one, _: set_to_one(at, one)),
        (TASK_NOT_SUPPORTED, lambda one, _: fill(at, 2, one)),
        (TASK_NOT_SUPPORTED, lambda one, _: copy(at, source, one)),
        (TASK_NOT_SUPPORTED, lambda one, _: CANN.aclrtRecordEvent(event, one)),
        (TASK_NOT_SUPPORTED, lambda one, _: CANN.aclrtLaunchHostFunc(one, host, None)),
        (GROUP_INTERRUPTED, lambda _, other: fill(at, 2, other)),
        (GROUP_INTERRUPTED, lambda _, other: CANN.aclrtRecordEvent(event, other)),
    ):
        one, other = begin(), make_stream()
        fork(one, other)
        assert group_begin(one) == OK
        assert work(one, other) == status
        rule = "stream must be the one of" if status == GROUP_INTERRUPTED else "only kernels can be tasks of"
        assert not status or rule in error_text()
        ended_status, group = group_end(one)
        assert (ended_status, bool(group)) == (status, status == OK)
        assert not status or "is invalid." in error_text()
        assert state_of(one) == (INVALIDATED if status else ACTIVE)
        assert end(one)[0] == (CAPTURE_INVALIDATED if status else UNJOINED)
        assert content(at) == {1}


def check_a_stream_that_updates_a_group_begins_none():
    at, one, updating = make_memory(16), begin(), make_stream()
    assert group_begin(one) == OK
    assert set_to_one(at, one) == OK
    _, group = group_end(one)
    graph = ended(one)
    assert update_begin(updating, group) == OK
    assert CANN.aclmdlRICaptureBegin(updating, GLOBAL) == OK
    assert group_begin(updating) == TASK_GROUP
    assert "must not update a group." in error_text()
    assert set_to_one(at, updating) == OK  # replaces the task
    ended(updating)
    assert update_end(updating) == OK
    assert CANN.aclmdlRIDestroy(graph) == OK


# ---- fallbacks to the host ---------------------------------------------------------------------------


def words_of(address, writes, sizes=(COUNT,), strides=(1,)):
    """Describe an access: first byte, bytes of an element, whether it writes, rank, sizes, strides."""
    return (C.c_int64 * (4 + 2 * len(sizes)))(address, 1, writes, len(sizes), *sizes, *strides)


def host_kernel_end(stream, words, count=1):
    return CANN.simulated_cann_host_kernel_end(stream, b"fallback", words, C.c_int64(count))


def check_a_fallback_begins_after_the_earlier_work():
    one, at, gone, stuck = make_stream(), make_memory(value=1), make_stream(), make_stream()
    assert fill(at, 2, one) == OK
    assert CANN.simulated_cann_host_kernel_begin(one, b"fallback") == OK
    assert content(at) == {2}
    assert CANN.aclrtDestroyStream(gone) == OK
    assert CANN.simulated_cann_host_kernel_begin(gone, b"fallback") == NO_HANDLE
    assert host_kernel_end(gone, words_of(at.value, 1)) == NO_HANDLE
    assert error_text() == "simulated CANN: fallback: stream must be one that exists."
    assert CANN.aclrtStreamWaitEvent(stuck, make_event(False)) == OK
    assert CANN.simulated_cann_host_kernel_begin(stuck, b"fallback") == 507046
    assert "fallback: the stream waits for an event that nothing records." in error_text()


def check_a_fallback_on_freed_memory_fails():
    """An access is written or read, and has as many bytes as its elements and strides span."""
    for offset, sizes, strides, is_freed in (
        (0, (COUNT,), (1,), True),
        (-COUNT, (COUNT,), (1,), False),
        (0, (0,), (1,), False),
        (0, (2, 3), (4, 1), True),
    ):
        for writes, what in ((0, "is read from"), (1, "is written to")):
            one, at = make_stream(), make_memory(2 * COUNT)
            kept = make_memory(value=1)
            first = at.value if is_freed or not all(sizes) else kept.value
            words = words_of(first, writes, sizes, strides)
            assert CANN.aclrtFree(at) == OK
            assert host_kernel_end(one, words) == OK
            assert CANN.aclrtSynchronizeStream(one) == (KERNEL if is_freed else OK), (offset, sizes)
            if is_freed:
                assert f"fallback: argument {what} memory that was freed before the work ran" in error_text()


def check_each_access_of_a_fallback_is_read():
    one, kept, at = make_stream(), make_memory(), make_memory()
    both = [*words_of(kept.value, 1, (2, 3), (3, 1)), *words_of(at.value, 0)]
    words = (C.c_int64 * len(both))(*both)
    assert CANN.aclrtFree(at) == OK
    assert host_kernel_end(one, words, 1) == OK
    assert CANN.aclrtSynchronizeStream(one) == OK
    assert host_kernel_end(one, words, 2) == OK
    assert CANN.aclrtSynchronizeStream(one) == KERNEL
    assert "fallback: argument is read from memory that was freed" in error_text()


def check_a_captured_fallback_runs_at_each_replay():
    at, seen = make_memory(value=1), []
    one, words = begin(), words_of(at.value, 1)

    @C.CFUNCTYPE(C.c_int32, C.c_int64)
    def run(argument):
        seen.append(argument)
        if len(seen) == 3:
            CANN.simulated_cann_set_error(b"the third call")
        return len(seen) == 3

    def capture(stream):
        number = C.c_int64(42)
        call = CANN.simulated_cann_host_kernel_capture
        return call(stream, b"fallback", words, C.c_int64(1), run, number)

    def is_capturing(stream):
        return CANN.simulated_cann_is_capturing(stream)

    other, gone = make_stream(), make_stream()
    assert CANN.aclrtDestroyStream(gone) == OK
    assert [is_capturing(stream) for stream in (one, other, gone)] == [1, 0, 0]
    assert (capture(other), capture(gone)) == (NOT_CAPTURED, NO_HANDLE)
    assert capture(one) == OK
    graph = ended(one)
    assert seen == []
    for count in (1, 2):
        replay(graph)
        assert seen == [42] * count
    assert CANN.aclmdlRIExecuteAsync(graph, one) == OK
    assert CANN.aclrtSynchronizeStream(one) == KERNEL
    assert error_text() == "the third call"
    assert CANN.aclrtFree(at) == OK
    assert CANN.aclmdlRIExecuteAsync(graph, one) == OK
    assert CANN.aclrtSynchronizeStream(one) == KERNEL
    assert "fallback: argument is written to memory that was freed" in error_text()
    two = begin()
    assert CANN.simulated_cann_host_kernel_begin(two, b"fallback") == STREAM_CAPTURED
    assert is_capturing(two) == 1  # although the capture is invalid
    assert capture(two) == CAPTURE_INVALIDATED
    assert end(two)[0] == CAPTURE_INVALIDATED


def check_events_wait_for_no_work_of_another_thread():
    """With asynchronous and with immediate streams."""
    at, one, event = make_memory(), begin(), make_event(False)
    started, done, found = threading.Event(), threading.Event(), []

    @C.CFUNCTYPE(C.c_int32, C.c_int64)
    def run(_):
        started.set()
        done.wait()
        return 0

    capture, words = CANN.simulated_cann_host_kernel_capture, words_of(at.value, 1)
    assert capture(one, b"fallback", words, C.c_int64(1), run, C.c_int64(0)) == OK
    graph = ended(one)

    def replay_and_wait():
        found.append(CANN.aclrtSetDevice(0))
        found.append(CANN.aclmdlRIExecuteAsync(graph, one))
        found.append(CANN.aclrtSynchronizeStream(one))

    thread = threading.Thread(target=replay_and_wait)
    thread.start()
    started.wait()
    assert statuses_of(event, make_stream()) == (OK, OK, OK)
    done.set()
    thread.join()
    assert found == [OK, OK, OK]


# ---- graphs as text ----------------------------------------------------------------------------------


def check_a_graph_as_a_trace():
    one, two, joined, at = begin(), make_stream(), make_event(), make_memory()
    assert fill(at, 2, one) == OK
    fork(one, two)
    assert CANN.aclrtRecordEvent(joined, two) == OK
    assert CANN.aclrtStreamWaitEvent(one, joined) == OK
    graph = ended(one)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "graph.json"
        assert CANN.aclmdlRIDebugJsonPrint(graph, str(path).encode(), 0) == OK
        nodes = json.loads(path.read_text())
    names = ["aclrtMemsetAsync", "EVENT_RECORD_1", "EVENT_WAIT_1", "EVENT_RECORD_3", "EVENT_WAIT_3"]
    assert [node["name"] for node in nodes] == names
    assert [node["tid"] for node in nodes] == [f"stream{branch}" for branch in (0, 0, 1, 1, 0)]
    assert [(node["ts"], node["dur"], node["ph"]) for node in nodes] == [(i, 1, "X") for i in range(5)]
    assert {node["pid"] for node in nodes} == {"simulated graph 1"}
    for path, status in ((None, INVALID), (b"/no folder/graph.json", RT_INVALID)):
        assert CANN.aclmdlRIDebugJsonPrint(graph, path, 0) == status
    assert CANN.aclmdlRIDebugPrint(graph) == OK


def check_a_graph_is_not_replayed_during_a_capture():
    graph, one = ended(begin()), begin()
    assert CANN.aclmdlRIExecuteAsync(graph, one) == STREAM_CAPTURED
    assert state_of(one) == ACTIVE
    captured = C.c_void_p()
    assert CANN.aclmdlRICaptureGetInfo(one, None, C.byref(captured)) == OK
    assert CANN.aclmdlRIExecuteAsync(captured, make_stream()) == MODEL_CAPTURED
    assert CANN.aclmdlRIDestroy(captured) == MODEL_CAPTURED
    ended(one)


if __name__ == "__main__":
    run_checks(globals())
