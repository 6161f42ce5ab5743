"""Guarantees of the runtime's stream, event and memory calls, through C and without torch. Each check runs in
a separate process.

usage: stream_rules.py LIBRARY [CHECK ...]
"""

import ctypes as C
import json
import os
import sys
import threading
import time

from forked_checks import run_checks

CANN = C.CDLL(sys.argv[1])
CANN.aclGetRecentErrMsg.restype = C.c_char_p
CANN.aclCreateTensor.restype = C.c_void_p
assert CANN.aclrtSetDevice(0) == 0

OK, INVALID, RT_INVALID, LAUNCH_REFUSED = 0, 100000, 107000, 361001
CONTEXT_NULL, CONTEXT_RELEASED, NOT_SUPPORTED, NO_HANDLE = 107002, 507007, 207000, 107017
NO_DEVICE, STREAM_CAPTURED, MODEL_RUNNING, REPORT_TIMEOUT = 107001, 107027, 107037, 507012
STREAM_SUBSCRIBE, THREAD_SUBSCRIBE, NOT_SUBSCRIBED = 107011, 107012, 107015
TO_DEVICE, TO_HOST, IN_DEVICE = 1, 2, 3
CONTINUE, STOP = 0, 1
SYNC, PROGRESS, DEVICE_SYNC, TIME_LINE, DEVICE_USE_ONLY, EXTERNAL, IPC = 1, 2, 4, 8, 16, 32, 64
NO_MEMORY, NOT_SIMULATED, COPY_ENGINE = 207001, 200001, 507013
IS_310P = os.environ.get("ASCEND_SIM_SOC", "").startswith("Ascend310P")
IS_950 = os.environ.get("ASCEND_SIM_SOC", "").startswith("Ascend950")
# The status of a kernel's exception: that of the vector core if the chip has separate vector cores, else that
# of the AI core.
KERNEL = 507015 if IS_310P else 507035
FREED, FRESH = 0xFB, 0xFF
COUNT = 64
FUNCTION = C.CFUNCTYPE(None, C.c_void_p)


def size(count=COUNT):
    return C.c_size_t(count)


def make_stream(mode=CONTINUE):
    made = C.c_void_p()
    assert CANN.aclrtCreateStream(C.byref(made)) == OK
    assert CANN.aclrtSetStreamFailureMode(made, mode) == OK
    return made


def make_event(is_extended=True, flags=SYNC):
    """Create an extended event or, by the older function, an older one."""
    made = C.c_void_p()
    create = CANN.aclrtCreateEventExWithFlag if is_extended else CANN.aclrtCreateEventWithFlag
    assert create(C.byref(made), flags) == OK
    return made


def make_memory(count=COUNT, value=None):
    made = C.c_void_p()
    assert CANN.aclrtMalloc(C.byref(made), size(count), 0) == OK
    if value is not None:
        assert CANN.aclrtMemset(made, size(count), value, size(count)) == OK
    return made


def content(address, count=COUNT):
    """The set of byte values in memory now, read without a call of the runtime."""
    return set(C.string_at(address, count))


def fill(address, value, stream, count=COUNT):
    return CANN.aclrtMemsetAsync(address, size(count), value, size(count), stream)


def copy(to, source, stream, kind=IN_DEVICE):
    return CANN.aclrtMemcpyAsync(to, size(), source, size(), kind, stream)


def error_text():
    return (CANN.aclGetRecentErrMsg() or b"").decode()


def event_status(event):
    status = C.c_int32(-1)
    return CANN.aclrtQueryEventStatus(event, C.byref(status)), status.value


def calls_beyond_documents():
    """The numbers of calls that CANN's sources accept and its documents exclude."""
    CANN.simulated_cann_calls_beyond_documents.restype = C.c_char_p
    return json.loads(CANN.simulated_cann_calls_beyond_documents())


def fail_on(stream):
    """Queue work on the stream that fails when it runs, because its memory has been freed."""
    gone, target = make_memory(), make_memory()
    assert copy(target, gone, stream) == OK
    assert CANN.aclrtFree(gone) == OK


# ---- streams -----------------------------------------------------------------------------------------


def check_work_waits_until_something_forces_it():
    one, at = make_stream(), make_memory(value=1)
    assert fill(at, 2, one) == OK
    assert content(at) == {1}
    assert CANN.aclrtSynchronizeStream(one) == OK
    assert content(at) == {2}


def check_synchronizing_one_stream_need_not_run_another():
    one, two = make_stream(), make_stream()
    a, b = make_memory(value=1), make_memory(value=1)
    fill(a, 2, one)
    fill(b, 2, two)
    assert CANN.aclrtSynchronizeStream(one) == OK
    assert (content(a), content(b)) == ({2}, {1})


def check_a_stream_keeps_its_order():
    one, at = make_stream(), make_memory(value=0)
    for value in range(1, 100):
        fill(at, value, one)
    assert CANN.aclrtSynchronizeDevice() == OK
    assert content(at) == {99}


def check_a_full_queue_waits_for_the_device():
    one, at = make_stream(), make_memory(value=0)
    for _ in range(1023):
        fill(at, 7, one)
    assert content(at) == {0}
    fill(at, 7, one)
    assert content(at) == {7}


def check_a_synchronous_copy_waits_for_no_stream():
    one, at, host = make_stream(), make_memory(value=1), C.create_string_buffer(COUNT)
    fill(at, 2, one)
    assert CANN.aclrtMemcpy(host, size(), at, size(), TO_HOST) == OK
    assert set(host.raw) == {1}


def check_a_wait_for_an_event_that_nothing_recorded_passes():
    one, at, early = make_stream(), make_memory(value=1), make_event()
    assert CANN.aclrtStreamWaitEvent(one, early) == OK
    fill(at, 2, one)
    assert CANN.aclrtSynchronizeStream(one) == OK
    assert content(at) == {2}


def check_a_wait_for_an_older_event_waits_for_the_next_record():
    one, two, older = make_stream(), make_stream(), make_event(False)
    at, copied = make_memory(value=1), make_memory(value=0)
    assert CANN.aclrtStreamWaitEvent(two, older) == OK
    copy(copied, at, two)
    fill(at, 2, one)
    assert CANN.aclrtRecordEvent(older, one) == OK
    assert CANN.aclrtSynchronizeStream(two) == OK
    assert content(copied) == {2}


def check_a_wait_for_an_event_without_the_sync_flag_needs_its_record():
    one, two, default = make_stream(), make_stream(), C.c_void_p()
    assert CANN.aclrtCreateEvent(C.byref(default)) == OK
    for event in (default, make_event(False, DEVICE_SYNC)):
        assert CANN.aclrtStreamWaitEvent(two, event) == RT_INVALID
        assert "event must have been recorded, or have the flag 1, ACL_EVENT_SYNC" in error_text()
        assert CANN.aclrtRecordEvent(event, one) == OK
        assert CANN.aclrtStreamWaitEvent(two, event) == OK
        assert CANN.aclrtSynchronizeStream(two) == OK


def check_an_older_event_that_nothing_records_never_ends():
    one, older = make_stream(), make_event(False)
    assert CANN.aclrtStreamWaitEvent(one, older) == OK
    assert CANN.aclrtSynchronizeStream(one) == 507046
    assert "an event that nothing records" in error_text()


def check_a_wait_binds_to_the_record_before_it():
    one, two, again = make_stream(), make_stream(), make_event()
    at, copied = make_memory(value=1), make_memory(value=0)
    CANN.aclrtRecordEvent(again, one)
    CANN.aclrtStreamWaitEvent(two, again)
    fill(at, 2, one)
    CANN.aclrtRecordEvent(again, one)
    copy(copied, at, two)
    assert CANN.aclrtSynchronizeStream(two) == OK
    assert content(copied) == {1}


def check_synchronizing_an_event_runs_what_is_before_it():
    one, at, behind, event = make_stream(), make_memory(value=1), make_memory(value=1), make_event()
    fill(at, 2, one)
    CANN.aclrtRecordEvent(event, one)
    fill(behind, 2, one)
    assert CANN.aclrtSynchronizeEvent(event) == OK
    assert (content(at), content(behind)) == ({2}, {1})


def check_the_time_between_events_needs_both():
    one, start, end = make_stream(), make_event(flags=TIME_LINE), make_event(flags=TIME_LINE | SYNC)
    elapsed = C.c_float()
    times = (C.byref(elapsed), start, end)
    assert CANN.aclrtEventElapsedTime(*times) == 507000
    CANN.aclrtRecordEvent(start, one)
    CANN.aclrtRecordEvent(end, one)
    assert CANN.aclrtEventElapsedTime(*times) == 107006
    assert CANN.aclrtSynchronizeEvent(end) == OK
    assert CANN.aclrtEventElapsedTime(*times) == OK
    assert elapsed.value >= 0


def check_an_event_without_the_time_line_flag_has_no_time():
    for flags in ((SYNC, TIME_LINE), (TIME_LINE, SYNC)):
        one, times = make_stream(), [make_event(flags=one_flag) for one_flag in flags]
        for each in times:
            CANN.aclrtRecordEvent(each, one)
        assert CANN.aclrtSynchronizeStream(one) == OK
        assert CANN.aclrtEventElapsedTime(C.byref(C.c_float()), *times) == 107006
        assert "event must be made with the flag 8, ACL_EVENT_TIME_LINE" in error_text()
    default = C.c_void_p()
    assert CANN.aclrtCreateEvent(C.byref(default)) == OK
    CANN.aclrtRecordEvent(default, one)
    assert CANN.aclrtSynchronizeStream(one) == OK
    assert CANN.aclrtEventElapsedTime(C.byref(C.c_float()), default, default) == OK


def check_the_status_of_an_event_that_nothing_recorded():
    assert event_status(make_event(True)) == (OK, 1)
    assert event_status(make_event(False)) == (OK, 0)


def check_the_status_of_waits_for_an_event():
    """They are complete if no wait of a stream is left, whether or not the last record has happened."""
    one, two, event, status = make_stream(), make_stream(), make_event(False), C.c_int32(-1)

    def wait_status():
        assert CANN.aclrtQueryEventWaitStatus(event, C.byref(status)) == OK
        return status.value

    complete, not_ready = 0, 1
    assert wait_status() == complete
    assert CANN.aclrtStreamWaitEvent(two, event) == OK
    assert wait_status() == not_ready
    assert CANN.aclrtRecordEvent(event, one) == OK
    assert wait_status() == not_ready
    assert CANN.aclrtSynchronizeStream(two) == OK
    assert wait_status() == complete
    assert CANN.aclrtResetEvent(event, two) == OK
    assert CANN.aclrtRecordEvent(event, one) == OK
    assert wait_status() == complete
    assert CANN.aclrtStreamWaitEvent(two, event) == OK
    assert wait_status() == not_ready
    assert CANN.aclrtDestroyStreamForce(two) == OK
    assert wait_status() == complete
    assert CANN.aclrtQueryEventWaitStatus(make_event(True), C.byref(status)) == NOT_SUPPORTED
    assert CANN.aclrtQueryEventWaitStatus(None, C.byref(status)) == INVALID
    assert CANN.aclrtQueryEventWaitStatus(event, None) == INVALID
    stops = make_stream(STOP)
    fail_on(stops)
    assert CANN.aclrtSynchronizeStream(stops) == KERNEL
    assert CANN.aclrtQueryEventWaitStatus(event, C.byref(status)) == KERNEL


def check_a_null_argument_of_an_event():
    one, event, value, time = make_stream(), make_event(), C.c_int32(), C.c_uint64()
    for status in (
        CANN.aclrtCreateEvent(None),
        CANN.aclrtCreateEventWithFlag(None, SYNC),
        CANN.aclrtCreateEventExWithFlag(None, SYNC),
        CANN.aclrtDestroyEvent(None),
        CANN.aclrtRecordEvent(None, one),
        CANN.aclrtStreamWaitEvent(one, None),
        CANN.aclrtResetEvent(None, one),
        CANN.aclrtSynchronizeEvent(None),
        CANN.aclrtQueryEventStatus(None, C.byref(value)),
        CANN.aclrtQueryEventStatus(event, None),
        CANN.aclrtEventElapsedTime(None, event, event),
        CANN.aclrtEventElapsedTime(C.byref(C.c_float()), None, event),
        CANN.aclrtEventElapsedTime(C.byref(C.c_float()), event, None),
        CANN.aclrtEventGetTimestamp(None, C.byref(time)),
        CANN.aclrtEventGetTimestamp(event, None),
    ):
        assert status == INVALID


def check_times_of_events():
    """A time stamp is in microseconds, and the difference of two in milliseconds."""
    one, two = make_stream(), make_stream()
    first, last = (make_event(flags=TIME_LINE | SYNC) for _ in range(2))
    stamps, elapsed = [C.c_uint64(), C.c_uint64()], C.c_float()
    assert CANN.aclrtEventGetTimestamp(first, C.byref(stamps[0])) == 507000
    assert "event must have been recorded but nothing recorded it." in error_text()
    assert CANN.aclrtRecordEvent(first, one) == OK
    assert CANN.aclrtEventGetTimestamp(first, C.byref(stamps[0])) == 107006
    assert CANN.aclrtSynchronizeStream(one) == OK
    time.sleep(0.02)
    assert CANN.aclrtRecordEvent(last, two) == OK
    assert CANN.aclrtSynchronizeStream(two) == OK
    for event, stamp in zip((first, last), stamps, strict=True):
        assert CANN.aclrtEventGetTimestamp(event, C.byref(stamp)) == OK
    now = time.monotonic_ns() // 1000
    assert 0 <= now - stamps[1].value < 60_000_000
    assert CANN.aclrtEventElapsedTime(C.byref(elapsed), first, last) == OK
    milliseconds = (stamps[1].value - stamps[0].value) / 1000
    assert milliseconds >= 20
    assert abs(elapsed.value - milliseconds) < 0.01
    assert CANN.aclrtEventElapsedTime(C.byref(elapsed), last, first) == OK
    assert abs(elapsed.value + milliseconds) < 0.01


def check_queries_come_to_an_end():
    one, at, event = make_stream(), make_memory(value=1), make_event()
    fill(at, 2, one)
    CANN.aclrtRecordEvent(event, one)
    for _ in range(100):
        if event_status(event) == (OK, 1):
            break
    assert event_status(event) == (OK, 1)
    assert content(at) == {2}
    status = C.c_int32()
    assert CANN.aclrtStreamQuery(one, C.byref(status)) == OK
    assert status.value == 0


def check_a_query_runs_at_most_three_pieces_of_work():
    """Their number is random."""
    counts, pieces = set(), [make_memory(value=1) for _ in range(5)]
    for _ in range(100):
        one = make_stream()
        for at in pieces:
            assert CANN.aclrtMemset(at, size(), 1, size()) == OK
        for at in pieces:
            assert fill(at, 2, one) == OK
        CANN.aclrtStreamQuery(one, C.byref(C.c_int32()))
        counts.add(sum(content(at) == {2} for at in pieces))
        assert CANN.aclrtSynchronizeStream(one) == OK
    assert counts == {0, 1, 2, 3}


def check_an_extended_event_is_not_reset():
    one = make_stream()
    assert CANN.aclrtResetEvent(make_event(True), one) == 207000
    assert CANN.aclrtResetEvent(make_event(False), one) == OK


def check_an_event_of_the_oldest_call_is_not_reset():
    one, oldest = make_stream(), C.c_void_p()
    assert CANN.aclrtCreateEvent(C.byref(oldest)) == OK
    assert CANN.aclrtRecordEvent(oldest, one) == OK
    assert CANN.aclrtResetEvent(oldest, one) == NOT_SUPPORTED
    assert "event must have the flag 1, ACL_EVENT_SYNC, but got 14." in error_text()


def check_a_reset_of_an_event_is_work_of_its_stream():
    """A wait that runs before it passes, and one that runs later waits for the next record."""
    one, two, event = make_stream(), make_stream(), make_event(False)
    assert CANN.aclrtRecordEvent(event, one) == OK
    assert CANN.aclrtSynchronizeStream(one) == OK
    assert CANN.aclrtResetEvent(event, one) == OK
    assert CANN.aclrtStreamWaitEvent(two, event) == OK
    assert CANN.aclrtSynchronizeStream(two) == OK
    assert CANN.aclrtSynchronizeStream(one) == OK
    assert CANN.aclrtStreamWaitEvent(two, event) == OK
    assert CANN.aclrtSynchronizeStream(two) == 507046
    assert CANN.aclrtRecordEvent(event, one) == OK
    assert CANN.aclrtSynchronizeStream(two) == OK


def check_an_event_that_is_reset_keeps_its_record():
    """Its status and its time stay, and its synchronization ends."""
    one, event, elapsed = make_stream(), make_event(False, SYNC | TIME_LINE), C.c_float(-1)
    for call in (CANN.aclrtRecordEvent, CANN.aclrtResetEvent):
        assert call(event, one) == OK
        assert CANN.aclrtSynchronizeEvent(event) == OK
        assert CANN.aclrtSynchronizeStream(one) == OK
        assert event_status(event) == (OK, 1)
        assert CANN.aclrtEventElapsedTime(C.byref(elapsed), event, event) == OK
        assert elapsed.value == 0


def check_a_wait_for_an_event_that_was_recorded_again_is_reported():
    """Unless it is extended, is of the oldest call, or was reset."""
    one, oldest = make_stream(), C.c_void_p()
    assert CANN.aclrtCreateEvent(C.byref(oldest)) == OK
    text = "aclrtStreamWaitEvent for an event that was recorded again without aclrtResetEvent"
    for event, is_reported in (
        (make_event(True), False),
        (oldest, False),
        (make_event(False), True),
        (make_event(False, EXTERNAL), True),
        (make_event(False, DEVICE_SYNC), True),
    ):
        before = calls_beyond_documents().get(text, 0)
        assert CANN.aclrtRecordEvent(event, one) == OK
        assert CANN.aclrtStreamWaitEvent(one, event) == OK
        assert calls_beyond_documents().get(text, 0) == before
        assert CANN.aclrtRecordEvent(event, one) == OK
        assert CANN.aclrtStreamWaitEvent(one, event) == OK
        assert calls_beyond_documents().get(text, 0) == before + is_reported
        if CANN.aclrtResetEvent(event, one) == OK:
            assert CANN.aclrtRecordEvent(event, one) == OK
            assert CANN.aclrtStreamWaitEvent(one, event) == OK
            assert calls_beyond_documents()[text] == before + 1
        assert CANN.aclrtSynchronizeStream(one) == OK


def check_a_timeout_of_zero_is_refused():
    assert CANN.aclrtSynchronizeStreamWithTimeout(make_stream(), 0) == RT_INVALID
    assert CANN.aclrtSynchronizeStreamWithTimeout(make_stream(), -2) == RT_INVALID
    assert CANN.aclrtSynchronizeDeviceWithTimeout(0) == RT_INVALID
    assert CANN.aclrtSynchronizeStreamWithTimeout(make_stream(), -1) == OK


def check_a_destroyed_stream_ends_its_work():
    """Unless it is destroyed by force: then its work does not run."""
    for destroy, value in ((CANN.aclrtDestroyStream, 2), (CANN.aclrtDestroyStreamForce, 1)):
        one, at = make_stream(), make_memory(value=1)
        assert fill(at, 2, one) == OK
        assert destroy(one) == OK
        assert CANN.aclrtSynchronizeDevice() == OK
        assert content(at) == {value}
        assert destroy(one) == NO_HANDLE


def check_the_end_of_a_stream_with_work_is_reported():
    """The host waits for the stream's work first, unless it destroys the stream by force."""
    at, event, status = make_memory(), make_event(), C.c_int32()

    def run_until_done(stream):
        while CANN.aclrtStreamQuery(stream, C.byref(status)) == OK and status.value:
            pass
        return OK

    for wait, is_reported in (
        (lambda _: OK, True),
        (CANN.aclrtSynchronizeStream, False),
        (lambda _: CANN.aclrtSynchronizeDevice(), False),
        (lambda _: CANN.aclrtSynchronizeEvent(event), False),
        (run_until_done, False),
    ):
        one, before = make_stream(), sum(calls_beyond_documents().values())
        assert fill(at, 1, one) == OK
        assert CANN.aclrtRecordEvent(event, one) == OK
        assert wait(one) == OK
        assert CANN.aclrtDestroyStream(one) == OK
        assert sum(calls_beyond_documents().values()) == before + is_reported
    text = "aclrtDestroyStream of a stream with work for which the host has not waited"
    assert calls_beyond_documents() == {text: 1}
    one = make_stream()
    assert fill(at, 1, one) == OK
    assert CANN.aclrtDestroyStreamForce(one) == OK
    assert CANN.aclrtDestroyStream(make_stream()) == OK
    assert calls_beyond_documents() == {text: 1}


def check_a_null_argument_of_a_stream():
    one, made = make_stream(), C.c_void_p()
    for status in (
        CANN.aclrtCreateStream(None),
        CANN.aclrtCreateStreamWithConfig(None, 0, 0),
        CANN.aclrtDestroyStream(None),
        CANN.aclrtDestroyStreamForce(None),
        CANN.aclrtStreamGetId(one, None),
        CANN.aclrtStreamQuery(one, None),
    ):
        assert status == INVALID
    assert CANN.aclrtCreateStreamWithConfig(C.byref(made), 0, 1) == OK
    numbers = []
    for stream in (one, made, make_stream()):
        number = C.c_int32(-1)
        assert CANN.aclrtStreamGetId(stream, C.byref(number)) == OK
        numbers.append(number.value)
    assert numbers == [numbers[0] + i for i in range(3)]
    assert CANN.aclrtSetStreamOverflowSwitch(one, 1) == OK
    assert CANN.aclrtSetStreamOverflowSwitch(one, 2) == INVALID


def check_the_status_of_a_stream():
    one, two, event, status = make_stream(), make_stream(), make_event(False), C.c_int32(-1)
    assert CANN.aclrtStreamWaitEvent(one, event) == OK
    for _ in range(20):
        assert CANN.aclrtStreamQuery(one, C.byref(status)) == OK
        assert status.value == 1
    assert CANN.aclrtRecordEvent(event, two) == OK
    assert CANN.aclrtSynchronizeStream(one) == OK
    assert CANN.aclrtStreamQuery(one, C.byref(status)) == OK
    assert status.value == 0
    stops = make_stream(STOP)
    fail_on(stops)
    assert CANN.aclrtSynchronizeStream(stops) == KERNEL
    assert CANN.aclrtStreamQuery(stops, C.byref(status)) == KERNEL
    assert CANN.aclrtStreamQuery(one, C.byref(status)) == KERNEL


def check_the_bounds_of_fills_and_copies():
    """No bytes: no rule. NULL and the sizes are checked before the allocation."""
    one, at, host = make_stream(), make_memory(64, value=1), C.create_string_buffer(64)
    past = C.c_void_p(at.value + 1)
    for call, more in ((CANN.aclrtMemset, ()), (CANN.aclrtMemsetAsync, (one,))):
        assert call(None, size(0), 2, size(0), *more) == OK
        assert call(None, size(8), 2, size(8), *more) == INVALID
        assert "devPtr must not be null." in error_text()
        assert call(at, size(7), 2, size(8), *more) == RT_INVALID
        assert "count must be at most maxCount 7 but got 8." in error_text()
        assert call(past, size(64), 2, size(64), *more) == INVALID
        assert (
            "devPtr must stay inside its allocation of 64 bytes but got 64 bytes from byte 1." in error_text()
        )
        assert call(past, size(64), 2, size(63), *more) == OK
        assert call(at, size(8), 3, size(8), *more) == OK
        assert CANN.aclrtSynchronizeStream(one) == OK
        assert C.string_at(at, 64) == b"\3" * 8 + b"\2" * 56
        assert CANN.aclrtMemset(at, size(64), 1, size(64)) == OK
    for call, more in ((CANN.aclrtMemcpy, ()), (CANN.aclrtMemcpyAsync, (one,))):
        assert call(None, size(0), None, size(0), 99, *more) == OK
        for to, source in ((None, host), (at, None)):
            assert call(to, size(8), source, size(8), TO_DEVICE, *more) == INVALID
            assert "dst and src must not be null." in error_text()
        for to, source, name in ((past, host, "dst"), (host, past, "src")):
            kind = TO_DEVICE if name == "dst" else TO_HOST
            assert call(to, size(64), source, size(64), kind, *more) == INVALID
            assert f"{name} must stay inside its allocation of 64 bytes" in error_text()
            assert call(to, size(64), source, size(63), kind, *more) == OK
        assert CANN.aclrtSynchronizeStream(one) == OK


def check_kinds_of_copies():
    """A synchronous copy ignores its kind; that of an asynchronous copy matches the addresses."""
    one, here, there = make_stream(), make_memory(16, value=1), make_memory(16, value=2)
    host, other = (C.create_string_buffer(16) for _ in range(2))
    pinned = C.c_void_p()
    assert CANN.aclrtMallocHost(C.byref(pinned), size(16)) == OK
    for to, source, kinds in (
        (here, there, (3, 4)),
        (here, host, (1, 4, 5)),
        (here, pinned, (1, 4, 5)),
        (host, here, (2, 4)),
        (pinned, here, (2, 4)),
        (host, other, ()),
    ):
        for kind in range(6):
            assert CANN.aclrtMemcpy(to, size(16), source, size(16), kind) == OK
            status = CANN.aclrtMemcpyAsync(to, size(16), source, size(16), kind, one)
            refused = NOT_SUPPORTED if kind == 0 or not kinds else RT_INVALID
            assert status == (OK if kind in kinds else refused), (to, source, kind)
            if status == RT_INVALID:
                assert f"kind must match the memory of dst and src but got {kind}." in error_text()
    assert CANN.aclrtSynchronizeStream(one) == OK
    assert CANN.aclrtMemcpy(host, size(16), there, size(16), TO_DEVICE) == OK
    assert set(host.raw) == {2}


def check_a_copy_to_its_source():
    """It succeeds and has no effect, where a synchronous one needs a context and no capture forbids it."""
    one, graph, at, host = make_stream(), C.c_void_p(), make_memory(16, value=1), C.create_string_buffer(16)
    found = []

    def copies(memory, kind=IN_DEVICE):
        arguments = (memory, size(16), memory, size(16), kind)
        return CANN.aclrtMemcpy(*arguments), CANN.aclrtMemcpyAsync(*arguments, one)

    assert copies(at) == (OK, OK)
    assert copies(host, TO_DEVICE) == (OK, NOT_SUPPORTED)
    assert CANN.aclrtMemcpy(at, size(15), at, size(16), IN_DEVICE) == RT_INVALID
    assert CANN.aclmdlRICaptureBegin(one, 0) == OK
    assert copies(at) == (OK, OK)
    assert CANN.aclmdlRICaptureEnd(one, C.byref(graph)) == OK
    thread = threading.Thread(target=lambda: found.extend(copies(at)))
    thread.start()
    thread.join()
    assert found == [OK, CONTEXT_NULL]


def check_fills_of_host_memory():
    """A synchronous fill needs memory of aclrtMallocHost. An asynchronous one happens at the call."""
    one, pinned, host = make_stream(), C.c_void_p(), C.create_string_buffer(COUNT)
    text = "aclrtMemsetAsync with host memory that is not of aclrtMallocHost"
    assert CANN.aclrtMallocHost(C.byref(pinned), size()) == OK
    for memory, status in ((pinned, OK), (host, RT_INVALID)):
        assert CANN.aclrtMemset(memory, size(), 3, size()) == status
        assert content(memory) == ({3} if status == OK else {0})
    assert "devPtr must be memory of the device or of aclrtMallocHost." in error_text()
    assert fill(pinned, 4, one) == OK
    assert content(pinned) == {4}
    assert calls_beyond_documents() == {}
    assert fill(host, 5, one) == OK
    assert content(host) == {5}
    assert calls_beyond_documents() == {text: 1}
    assert CANN.aclrtSynchronizeStream(one) == OK


def check_an_asynchronous_call_checks_the_stream_before_sizes():
    at, gone = make_memory(), make_stream()
    assert CANN.aclrtDestroyStream(gone) == OK
    assert CANN.aclrtMemsetAsync(at, size(1), 0, size(2), gone) == NO_HANDLE
    assert CANN.aclrtMemcpyAsync(at, size(1), at, size(2), IN_DEVICE, gone) == NO_HANDLE


def check_the_memory_in_use():
    free, total = C.c_size_t(), C.c_size_t()

    def used():
        assert CANN.aclrtGetMemInfo(1, C.byref(free), C.byref(total)) == OK
        assert total.value == 64 << 30
        return total.value - free.value

    assert used() == 0
    one, two = make_memory(100), C.c_void_p()
    for allocate, count in ((CANN.aclrtMalloc, 7), (CANN.aclrtMallocCached, 8), (CANN.aclrtMallocAlign32, 9)):
        assert allocate(C.byref(two), size(count), 2) == OK
        assert used() == 100 + count
        assert CANN.aclrtFree(two) == OK
        assert allocate(None, size(count), 0) == allocate(C.byref(two), size(0), 0) == INVALID
    assert CANN.aclrtFree(one) == OK
    assert used() == 0
    assert CANN.aclrtGetMemInfo(0, None, C.byref(total)) == INVALID
    assert CANN.aclrtGetMemInfo(0, C.byref(free), None) == INVALID


def calls_of_a_stream(one):
    """The name and the arguments of each call that takes a stream."""
    at, event, made, number = make_memory(), make_event(), C.c_void_p(), C.c_uint32()
    function = FUNCTION(lambda _: None)
    yield "aclrtSynchronizeStream", (one,)
    yield "aclrtSynchronizeStreamWithTimeout", (one, 100)
    yield "aclrtStreamQuery", (one, C.byref(number))
    yield "aclrtStreamGetId", (one, C.byref(number))
    yield "aclrtSetStreamFailureMode", (one, C.c_uint64(CONTINUE))
    yield "aclrtSetStreamAttribute", (one, 2, C.byref(number))
    yield "aclrtSetStreamOverflowSwitch", (one, 1)
    yield "aclrtGetStreamOverflowSwitch", (one, C.byref(number))
    yield "aclrtGetStreamResLimit", (one, 0, C.byref(number))
    yield "aclrtMemsetAsync", (at, size(), 1, size(), one)
    yield "aclrtRecordEvent", (event, one)
    yield "aclrtStreamWaitEvent", (one, event)
    yield "aclrtResetEvent", (make_event(False), one)
    yield "aclrtLaunchHostFunc", (one, function, None)
    yield "aclrtLaunchCallback", (function, None, 1, one)
    yield "aclrtSubscribeReport", (C.c_uint64(1), one)
    yield "aclrtUnSubscribeReport", (C.c_uint64(1), one)
    yield "aclmdlRICaptureBegin", (one, 0)
    yield "aclmdlRICaptureEnd", (one, C.byref(made))
    yield "aclmdlRICaptureGetInfo", (one, C.byref(number), None)
    yield "aclrtDestroyStream", (one,)
    yield "aclrtDestroyStreamForce", (one,)


def check_a_stream_that_does_not_exist_is_refused():
    gone = make_stream()
    assert CANN.aclrtDestroyStream(gone) == OK
    statuses = {name: getattr(CANN, name)(*arguments) for name, arguments in calls_of_a_stream(gone)}
    assert statuses == dict.fromkeys(statuses, NO_HANDLE), statuses
    assert CANN.aclrtSynchronizeStream(make_event()) == NO_HANDLE
    assert error_text() == "simulated CANN: aclrtSynchronizeStream: stream must be one that exists."


def calls_of_an_event(event):
    """The name and the arguments of each call that takes an event."""
    one, number, time = make_stream(), C.c_uint32(), C.c_uint64()
    yield "aclrtRecordEvent", (event, one)
    yield "aclrtStreamWaitEvent", (one, event)
    yield "aclrtResetEvent", (event, one)
    yield "aclrtSynchronizeEvent", (event,)
    yield "aclrtQueryEventStatus", (event, C.byref(number))
    yield "aclrtQueryEventWaitStatus", (event, C.byref(number))
    yield "aclrtEventElapsedTime", (C.byref(C.c_float()), event, make_event())
    yield "aclrtEventElapsedTime", (C.byref(C.c_float()), make_event(), event)
    yield "aclrtEventGetTimestamp", (event, C.byref(time))
    yield "aclrtDestroyEvent", (event,)


def check_an_event_that_does_not_exist_is_refused():
    """The handles are those of destroyed events, of a stream, and of memory that was never an event."""
    junk = C.create_string_buffer(256)
    for destroyed, is_extended in ((make_event(), True), (make_event(False), False)):
        CANN.aclrtRecordEvent(destroyed, make_stream())
        assert CANN.aclrtDestroyEvent(destroyed) == OK, is_extended
    for handle in (destroyed, make_stream(), C.cast(junk, C.c_void_p)):
        statuses = [getattr(CANN, name)(*arguments) for name, arguments in calls_of_an_event(handle)]
        assert set(statuses) == {NO_HANDLE}, statuses
    assert error_text() == "simulated CANN: aclrtDestroyEvent: event must be one that exists."


def check_a_graph_that_does_not_exist_is_refused():
    one, graph, number = make_stream(), C.c_void_p(), C.c_uint32()
    assert CANN.aclmdlRICaptureBegin(one, 0) == OK
    assert CANN.aclmdlRICaptureGetInfo(one, None, C.byref(graph)) == OK
    assert CANN.aclmdlRIExecuteAsync(graph, make_stream()) == 107026
    assert CANN.aclmdlRIDestroy(graph) == 107026
    assert CANN.aclmdlRICaptureEnd(one, C.byref(graph)) == OK
    assert CANN.aclmdlRIExecuteAsync(graph, one) == OK
    assert CANN.aclrtSynchronizeStream(one) == OK
    assert CANN.aclmdlRIDestroy(graph) == OK
    for handle, status in ((graph, NO_HANDLE), (one, NO_HANDLE), (None, INVALID)):
        assert CANN.aclmdlRIExecuteAsync(handle, one) == status
        assert CANN.aclmdlRIDestroy(handle) == status
        assert CANN.aclmdlRIGetId(handle, C.byref(number)) == status
        assert CANN.aclmdlRIDebugPrint(handle) == status
        assert CANN.aclmdlRIDebugJsonPrint(handle, b"/dev/null", 0) == status
        assert CANN.aclmdlRIDebugJsonPrint(handle, None, 0) == INVALID


def check_a_graph_that_runs_is_not_destroyed():
    """aclmdlRIDestroy waits for replays that queued work can end, and refuses if one cannot end."""
    one, two, late = make_stream(), make_stream(), make_event(False)
    at, graph = make_memory(value=1), C.c_void_p()
    for is_blocked in (False, True):
        assert CANN.aclmdlRICaptureBegin(one, 0) == OK
        assert fill(at, 3 if is_blocked else 2, one) == OK
        assert CANN.aclmdlRICaptureEnd(one, C.byref(graph)) == OK
        if is_blocked:
            assert CANN.aclrtStreamWaitEvent(two, late) == OK
        assert CANN.aclmdlRIExecuteAsync(graph, two) == OK
        if not is_blocked:
            assert content(at) == {1}
            assert CANN.aclmdlRIDestroy(graph) == OK
            assert content(at) == {2}
    assert CANN.aclmdlRIDestroy(graph) == MODEL_RUNNING
    assert "modelRI must not be running" in error_text()
    assert content(at) == {2}
    assert CANN.aclrtRecordEvent(late, one) == OK
    assert CANN.aclmdlRIDestroy(graph) == OK
    assert content(at) == {3}


def statuses_of(event, stream):
    """Record the event, wait for it and reset it on the stream; return the three statuses."""
    recorded = CANN.aclrtRecordEvent(event, stream)
    waited = CANN.aclrtStreamWaitEvent(stream, event)
    return recorded, waited, CANN.aclrtResetEvent(event, stream)


def check_flags_that_allow_no_wait():
    one = make_stream()
    for flags in (TIME_LINE, PROGRESS, TIME_LINE | PROGRESS):
        assert statuses_of(make_event(True, flags), one) == (OK, NOT_SUPPORTED, NOT_SUPPORTED), flags
        assert statuses_of(make_event(False, flags), one) == (OK, NOT_SUPPORTED, NOT_SUPPORTED), flags
        assert f"event must have the flag 1, ACL_EVENT_SYNC, but got {flags}." in error_text()
        assert statuses_of(make_event(True, flags | SYNC), one) == (OK, OK, NOT_SUPPORTED), flags
        assert statuses_of(make_event(False, flags | DEVICE_SYNC), one) == (OK, OK, NOT_SUPPORTED), flags
        assert statuses_of(make_event(False, flags | SYNC), one) == (OK, OK, OK), flags
    assert CANN.aclrtSynchronizeStream(one) == OK


def check_events_that_are_only_for_the_device():
    statuses = statuses_of(make_event(False, DEVICE_USE_ONLY), make_stream())
    assert statuses == (RT_INVALID, RT_INVALID, RT_INVALID)
    assert "event must not have the flag 16, ACL_EVENT_DEVICE_USE_ONLY." in error_text()


def check_events_between_processes_and_external_ones():
    one, time, status = make_stream(), C.c_uint64(), C.c_int32()
    ipc, external, plain = make_event(True, IPC), make_event(False, EXTERNAL), make_event(True, TIME_LINE)
    for each in (ipc, external, plain):
        assert CANN.aclrtRecordEvent(each, one) == OK
    assert CANN.aclrtSynchronizeStream(one) == OK
    for each in (ipc, external):
        assert CANN.aclrtEventGetTimestamp(each, C.byref(time)) == NOT_SUPPORTED
        assert CANN.aclrtEventElapsedTime(C.byref(C.c_float()), plain, each) == NOT_SUPPORTED
        assert CANN.aclrtEventElapsedTime(C.byref(C.c_float()), each, plain) == NOT_SUPPORTED
    assert CANN.aclrtSynchronizeEvent(external) == NOT_SUPPORTED
    assert event_status(external)[0] == NOT_SUPPORTED
    assert CANN.aclrtQueryEventWaitStatus(external, C.byref(status)) == NOT_SUPPORTED
    assert CANN.aclrtSynchronizeEvent(ipc) == OK
    assert event_status(ipc) == (OK, 1)


def check_flags_of_events_in_a_capture():
    """The record of an event that nothing can wait for succeeds and is not captured."""
    one, graph = make_stream(), C.c_void_p()
    ipc, times = make_event(True, IPC), make_event(True, TIME_LINE)
    assert CANN.aclmdlRICaptureBegin(one, 0) == OK
    assert CANN.aclrtRecordEvent(ipc, one) == NOT_SUPPORTED
    assert CANN.aclrtStreamWaitEvent(one, ipc) == NOT_SUPPORTED
    assert CANN.aclrtRecordEvent(times, one) == OK
    assert event_status(times) == (OK, 1)
    assert CANN.aclrtResetEvent(make_event(False), one) == NOT_SUPPORTED
    assert CANN.aclrtResetEvent(make_event(False, EXTERNAL), one) == OK
    assert CANN.aclmdlRICaptureEnd(one, C.byref(graph)) == OK


def check_a_host_function_keeps_the_streams_order():
    one, at, seen = make_stream(), make_memory(value=1), []
    function = FUNCTION(lambda _: seen.append(content(at)))
    fill(at, 2, one)
    assert CANN.aclrtLaunchHostFunc(one, function, None) == OK
    fill(at, 3, one)
    assert not seen
    assert CANN.aclrtSynchronizeStream(one) == OK
    assert seen == [{2}]


def check_a_callback_runs_on_the_thread_that_subscribed():
    one, threads = make_stream(), []
    function = FUNCTION(lambda _: threads.append(threading.get_ident()))
    assert CANN.aclrtLaunchCallback(function, None, 1, one) == NOT_SUBSCRIBED
    ready, done = threading.Event(), threading.Event()

    def process():
        assert CANN.aclrtSetDevice(0) == OK
        assert CANN.aclrtSubscribeReport(C.c_uint64(threading.get_ident()), one) == OK
        ready.set()
        while not done.is_set():
            CANN.aclrtProcessReport(5)

    thread = threading.Thread(target=process)
    thread.start()
    ready.wait()
    assert CANN.aclrtLaunchCallback(function, None, 1, one) == OK
    assert CANN.aclrtSynchronizeStream(one) == OK
    done.set()
    thread.join()
    assert threads == [thread.ident]


def this_thread():
    return C.c_uint64(threading.get_ident())


def check_a_callback_runs_only_in_the_report():
    """If this thread subscribed, another call of it that waits for a blocking callback never ends."""
    one, two, at, seen = make_stream(), make_stream(), make_memory(value=1), []
    function = FUNCTION(lambda _: seen.append(content(at)))
    assert CANN.aclrtSubscribeReport(this_thread(), one) == OK
    fill(at, 2, one)
    assert CANN.aclrtLaunchCallback(function, None, 1, one) == OK
    fill(at, 3, one)
    for wait in (lambda: CANN.aclrtSynchronizeStream(one), CANN.aclrtSynchronizeDevice):
        assert wait() == REPORT_TIMEOUT
        assert "call aclrtProcessReport first, in this thread." in error_text()
    assert fill(make_memory(), 1, two) == OK
    assert CANN.aclrtSynchronizeStream(two) == OK
    assert not seen
    assert CANN.aclrtProcessReport(1000) == OK
    assert seen == [{2}]
    assert CANN.aclrtProcessReport(5) == REPORT_TIMEOUT
    assert CANN.aclrtSynchronizeStream(one) == OK
    assert content(at) == {3}


def check_a_callback_waits_for_no_other_callback():
    """The report of its thread runs one callback."""
    one, two, seen = make_stream(), make_stream(), []
    inner = FUNCTION(lambda _: seen.append("inner"))

    def run_outer(_):
        seen.append(CANN.aclrtLaunchCallback(inner, None, 1, two))
        seen.append(CANN.aclrtSynchronizeStream(two))
        seen.append("outer")

    outer = FUNCTION(run_outer)
    for stream in (one, two):
        assert CANN.aclrtSubscribeReport(this_thread(), stream) == OK
    assert CANN.aclrtLaunchCallback(outer, None, 1, one) == OK
    assert CANN.aclrtProcessReport(1000) == OK
    assert seen == [OK, REPORT_TIMEOUT, "outer"]
    assert CANN.aclrtProcessReport(1000) == OK
    assert seen[3:] == ["inner"]
    assert CANN.aclrtProcessReport(5) == REPORT_TIMEOUT


def check_a_report_without_a_timeout_waits_for_its_callback():
    one, seen = make_stream(), []
    function = FUNCTION(lambda _: seen.append(1))
    ready = threading.Event()

    def process():
        assert CANN.aclrtSetDevice(0) == OK
        assert CANN.aclrtSubscribeReport(this_thread(), one) == OK
        ready.set()
        seen.append(CANN.aclrtProcessReport(-1))

    thread = threading.Thread(target=process)
    thread.start()
    ready.wait()
    time.sleep(1.1)
    assert not seen
    assert CANN.aclrtLaunchCallback(function, None, 1, one) == OK
    thread.join()
    assert seen == [1, OK]


def check_calls_in_host_functions_are_reported():
    """The document excludes calls that allocate, free, launch or wait."""
    one, two, seen = make_stream(), make_stream(), []
    CANN.simulated_cann_calls_beyond_documents.restype = C.c_char_p

    def reported():
        counts = json.loads(CANN.simulated_cann_calls_beyond_documents())
        assert all(
            text.endswith(" in a host function: it must not allocate, free, launch or wait")
            for text in counts
        )
        return {text.split()[0]: count for text, count in counts.items()}

    def run_in_function(_):
        seen.append(1)
        host = C.c_void_p()
        assert CANN.aclrtMallocHost(C.byref(host), size()) == CANN.aclrtFreeHost(host) == OK
        at, stream = make_memory(), make_stream()
        assert fill(at, 1, stream) == CANN.aclrtSynchronizeStream(stream) == OK
        assert CANN.aclrtDestroyStream(stream) == CANN.aclrtFree(at) == OK
        assert CANN.aclrtGetDevice(C.byref(C.c_int32())) == OK

    function = FUNCTION(run_in_function)
    names = (
        "aclrtMalloc aclrtFree aclrtMallocHost aclrtFreeHost aclrtCreateStream aclrtDestroyStream "
        "aclrtMemsetAsync aclrtSynchronizeStream"
    )
    run_in_function(None)
    assert reported() == {}
    assert CANN.aclrtLaunchHostFunc(one, function, None) == OK
    assert CANN.aclrtSynchronizeStream(one) == OK
    assert reported() == dict.fromkeys(names.split(), 1)
    assert CANN.aclrtSubscribeReport(this_thread(), two) == OK
    for blocks in (1, 0):
        assert CANN.aclrtLaunchCallback(function, None, blocks, two) == OK
        assert CANN.aclrtProcessReport(1000) == OK
    assert len(seen) == 4
    assert reported() == dict.fromkeys(names.split(), 3)
    run_in_function(None)
    assert reported() == dict.fromkeys(names.split(), 3)


def check_the_number_of_threads_with_subscriptions():
    streams = [make_stream() for _ in range(1026)]
    for thread in range(1024):
        assert CANN.aclrtSubscribeReport(C.c_uint64(1 + thread), streams[thread]) == OK
    assert CANN.aclrtSubscribeReport(C.c_uint64(1025), streams[1024]) == 507000
    assert "at most 1024 threads may have streams." in error_text()
    assert CANN.aclrtSubscribeReport(C.c_uint64(1), streams[1024]) == OK
    assert CANN.aclrtUnSubscribeReport(C.c_uint64(7), streams[6]) == OK
    assert CANN.aclrtSubscribeReport(C.c_uint64(1025), streams[1025]) == OK


def check_a_subscription_needs_a_context():
    """On Ascend310P only for a null stream. A stream with host functions is refused before."""
    one, two, found = make_stream(), make_stream(), []
    function = FUNCTION(lambda _: None)
    assert CANN.aclrtLaunchHostFunc(two, function, None) == OK

    def without_context():
        found.extend(CANN.aclrtSubscribeReport(this_thread(), stream) for stream in (one, two))
        found.append(CANN.aclrtUnSubscribeReport(this_thread(), one))

    thread = threading.Thread(target=without_context)
    thread.start()
    thread.join()
    subscribed = [OK, STREAM_SUBSCRIBE, OK]
    assert found == (subscribed if IS_310P else [CONTEXT_NULL, STREAM_SUBSCRIBE, STREAM_SUBSCRIBE])


def check_a_null_stream_has_callbacks():
    """The default stream is not checked for host functions."""
    seen = []
    function = FUNCTION(lambda _: seen.append(1))
    assert CANN.aclrtSubscribeReport(this_thread(), None) == OK
    assert CANN.aclrtLaunchCallback(function, None, 1, None) == OK
    assert CANN.aclrtLaunchCallback(None, None, 1, None) == RT_INVALID
    assert CANN.aclrtProcessReport(1000) == OK
    assert seen == [1]
    assert CANN.aclrtLaunchHostFunc(None, function, None) == OK
    assert CANN.aclrtSynchronizeStream(None) == OK
    assert seen == [1, 1]
    assert CANN.aclrtUnSubscribeReport(this_thread(), None) == OK
    assert CANN.aclrtLaunchCallback(function, None, 1, None) == NOT_SUBSCRIBED
    assert CANN.aclrtSubscribeReport(this_thread(), None) == OK
    assert CANN.aclrtUnSubscribeReport(this_thread(), None) == OK
    assert CANN.aclrtLaunchHostFunc(None, function, None) == OK
    assert CANN.aclrtSubscribeReport(this_thread(), None) == STREAM_SUBSCRIBE
    assert CANN.aclrtUnSubscribeReport(this_thread(), None) == THREAD_SUBSCRIBE
    assert CANN.aclrtSynchronizeStream(None) == OK


def check_a_captured_host_function_leaves_its_stream_to_callbacks():
    """The function runs at each replay. The runtime does not subscribe to a stream in a capture."""
    one, graph, seen = make_stream(), C.c_void_p(), []
    function = FUNCTION(lambda _: seen.append(1))
    assert CANN.aclmdlRICaptureBegin(one, 0) == OK
    assert CANN.aclrtLaunchHostFunc(one, function, None) == OK
    assert CANN.aclmdlRICaptureEnd(one, C.byref(graph)) == OK
    assert CANN.aclrtSubscribeReport(this_thread(), one) == OK
    for count in range(3):
        assert len(seen) == count
        assert CANN.aclmdlRIExecuteAsync(graph, one) == OK
        assert CANN.aclrtSynchronizeStream(one) == OK


def check_a_callback_that_does_not_block_lets_its_stream_continue():
    one, at, seen = make_stream(), make_memory(value=1), []
    function = FUNCTION(lambda _: seen.append(content(at)))
    assert CANN.aclrtSubscribeReport(this_thread(), one) == OK
    assert CANN.aclrtLaunchCallback(function, None, 0, one) == OK
    fill(at, 2, one)
    assert CANN.aclrtSynchronizeStream(one) == OK
    assert (content(at), seen) == ({2}, [])
    assert CANN.aclrtProcessReport(1000) == OK
    assert seen == [{2}]


def check_a_stream_is_subscribed_once():
    one, other = make_stream(), C.c_uint64(threading.get_ident() + 1)
    assert CANN.aclrtProcessReport(5) == THREAD_SUBSCRIBE
    assert CANN.aclrtUnSubscribeReport(this_thread(), one) == STREAM_SUBSCRIBE
    assert CANN.aclrtSubscribeReport(this_thread(), one) == OK
    for thread in (this_thread(), other):
        assert CANN.aclrtSubscribeReport(thread, one) == STREAM_SUBSCRIBE
    assert CANN.aclrtUnSubscribeReport(other, one) == THREAD_SUBSCRIBE
    assert CANN.aclrtProcessReport(5) == REPORT_TIMEOUT
    assert CANN.aclrtUnSubscribeReport(this_thread(), one) == OK
    assert CANN.aclrtProcessReport(5) == THREAD_SUBSCRIBE
    assert CANN.aclrtSubscribeReport(other, one) == OK
    assert CANN.aclrtDestroyStream(one) == OK


def check_host_functions_and_callbacks_need_streams_of_their_own():
    function = FUNCTION(lambda _: None)
    one, two = make_stream(), make_stream()
    assert CANN.aclrtSubscribeReport(this_thread(), one) == OK
    assert CANN.aclrtLaunchHostFunc(one, function, None) == STREAM_SUBSCRIBE
    assert CANN.aclrtUnSubscribeReport(this_thread(), one) == OK
    assert CANN.aclrtLaunchHostFunc(one, function, None) == OK
    assert CANN.aclrtLaunchHostFunc(two, function, None) == OK
    for each in (one, two):
        assert CANN.aclrtSubscribeReport(this_thread(), each) == STREAM_SUBSCRIBE
        assert CANN.aclrtUnSubscribeReport(this_thread(), each) == STREAM_SUBSCRIBE
        assert CANN.aclrtLaunchCallback(function, None, 1, each) == STREAM_SUBSCRIBE
        assert CANN.aclrtLaunchHostFunc(each, function, None) == OK


def check_a_fork_does_not_have_the_work_of_another_thread():
    """The work that runs in another thread during the fork has failed in the child."""
    one, two, at = make_stream(), make_stream(), make_memory(value=1)
    started, done, status = threading.Event(), threading.Event(), os.pipe()

    def run_in_thread(_):
        started.set()
        done.wait()

    function = FUNCTION(run_in_thread)
    assert CANN.aclrtLaunchHostFunc(one, function, None) == OK
    assert fill(at, 2, one) == OK
    found = []
    thread = threading.Thread(
        target=lambda: found.extend([CANN.aclrtSetDevice(0), CANN.aclrtSynchronizeStream(one)])
    )
    thread.start()
    started.wait()
    if os.fork() == 0:
        statuses = [CANN.aclrtSynchronizeStream(one), error_text(), CANN.aclrtSynchronizeStream(one)]
        statuses += [CANN.aclrtSynchronizeStream(two), sorted(content(at))]
        os.write(status[1], repr(statuses).encode())
        os._exit(0)
    os.wait()
    text = "simulated CANN: the process was forked while another thread ran work of the stream."
    assert os.read(status[0], 4096).decode() == repr([KERNEL, text, OK, OK, [2]])
    assert content(at) == {1}
    done.set()
    thread.join()
    assert found == [OK, OK]
    assert content(at) == {2}


# ---- freed memory ------------------------------------------------------------------------------------


def check_freed_memory_is_overwritten():
    at = make_memory(value=1)
    assert CANN.aclrtFree(at) == OK
    assert content(at) == {FREED}


def check_freed_memory_is_not_reused_soon():
    at = make_memory()
    CANN.aclrtFree(at)
    assert at.value not in [make_memory().value for _ in range(50)]


def check_fresh_memory_differs_from_freed_memory():
    assert content(make_memory()) == {FRESH}


def check_work_on_freed_memory_fails_and_is_named():
    one = make_stream()
    fail_on(one)
    assert CANN.aclrtSynchronizeStream(one) == KERNEL
    assert (
        "aclrtMemcpyAsync: src is read from memory that was freed before the work ran (allocation 1 of"
        in error_text()
    )


def prepare_ones(at, step=1):
    """Prepare to set four floats to 1 by aclnn; return the size of the workspace and the executor."""
    dims, steps, storage = (C.c_int64 * 1)(4), (C.c_int64 * 1)(step), (C.c_int64 * 1)(4 * step)
    one_dim = C.c_uint64(1)
    tensor = CANN.aclCreateTensor(dims, one_dim, 0, steps, C.c_int64(0), 2, storage, one_dim, at)
    workspace, executor = C.c_uint64(), C.c_void_p()
    prepare = CANN.aclnnInplaceOneGetWorkspaceSize
    assert prepare(C.c_void_p(tensor), C.byref(workspace), C.byref(executor)) == OK
    return workspace, executor


def set_to_one(at, stream):
    """Set four floats to 1 by aclnn and return the status of the second phase."""
    _, executor = prepare_ones(at)
    return CANN.aclnnInplaceOne(None, C.c_uint64(0), executor, stream)


def check_a_stand_in_on_freed_memory_fails():
    one, at = make_stream(), make_memory(16, value=0)
    assert set_to_one(at, one) == OK
    CANN.aclrtFree(at)
    assert CANN.aclrtSynchronizeStream(one) == KERNEL
    assert "aclnnInplaceOne: self is written to memory that was freed" in error_text()
    assert content(at, 16) == {FREED}


def check_only_a_workspace_of_torch_is_freed_before_its_work():
    """Without its cache, torch_npu allocates the workspace with a padding."""
    os.environ["PYTORCH_NO_NPU_MEMORY_CACHING"] = "1"
    padded, plain = CANN.aclrtMallocAlign32, CANN.aclrtMalloc
    for allocate, freed, name in (
        (padded, "workspace", ""),
        (padded, "self", "self"),
        (plain, "workspace", "workspace"),
    ):
        one, memory = make_stream(), {"self": C.c_void_p(), "workspace": C.c_void_p()}
        assert allocate(C.byref(memory["self"]), size(96), 0) == OK
        count, executor = prepare_ones(memory["self"], 2)
        assert count.value > 0
        assert allocate(C.byref(memory["workspace"]), size(count.value + 32), 0) == OK
        assert CANN.aclnnInplaceOne(memory["workspace"], count, executor, one) == OK
        assert CANN.aclrtFree(memory[freed]) == OK
        assert CANN.aclrtSynchronizeStream(one) == (KERNEL if name else OK), error_text()
        if name:
            assert f"{name} is written to memory that was freed before the work ran" in error_text()


def copy_from_unmapped_memory(stream):
    """Queue a copy that fails when it runs, because its host memory is not mapped any more."""
    import mmap

    host = mmap.mmap(-1, 4096)
    first = C.c_char.from_buffer(host)
    assert copy(make_memory(), C.c_void_p(C.addressof(first)), stream, TO_DEVICE) == OK
    del first
    host.close()


def check_unmapped_host_memory_fails():
    one = make_stream()
    copy_from_unmapped_memory(one)
    assert CANN.aclrtSynchronizeStream(one) == COPY_ENGINE
    assert "the host's memory was freed before the copy ran" in error_text()


def check_only_memory_of_the_call_is_freed():
    host = C.c_void_p()
    assert CANN.aclrtMallocHost(C.byref(host), size()) == OK
    assert CANN.aclrtFree(host) == RT_INVALID
    freed = make_memory()
    assert [CANN.aclrtFree(each) for each in (freed, freed, None)] == [OK, RT_INVALID, INVALID]
    assert CANN.aclrtFreeHost(make_memory()) == RT_INVALID
    assert CANN.aclrtFreeHost(host) == OK
    assert CANN.aclrtFreeHost(host) == RT_INVALID


def check_the_target_of_a_copy_is_filled_until_it_runs():
    """An early read gives NaN, but the bytes that other queued work uses stay."""
    one, at, host = make_stream(), make_memory(4 * COUNT, value=1), C.create_string_buffer(4 * COUNT)

    def copy_out(offset, count=COUNT):
        to = C.c_void_p(C.addressof(host) + offset)
        assert CANN.aclrtMemcpyAsync(to, size(count), at, size(count), TO_HOST, one) == OK

    copy_out(COUNT)
    assert host.raw == b"\0" * COUNT + b"\xff" * COUNT + b"\0" * 2 * COUNT
    copy_out(0)
    copy_out(2 * COUNT)  # beside the others
    assert host.raw == b"\xff" * 3 * COUNT + b"\0" * COUNT
    copy_out(3 * COUNT - 1)  # shares a byte
    assert host.raw == b"\xff" * 3 * COUNT + b"\0" * COUNT
    assert CANN.aclrtSynchronizeStream(one) == OK
    assert host.raw == b"\1" * (4 * COUNT - 1) + b"\0"


def check_pinned_memory_stays_while_a_copy_uses_it():
    one, at, host, attributes = make_stream(), make_memory(), C.c_void_p(), (C.c_uint32 * 7)()
    assert CANN.aclrtMallocHost(C.byref(host), size()) == OK
    C.memset(host, 7, COUNT)
    assert copy(at, host, one, TO_DEVICE) == OK
    assert CANN.aclrtFreeHost(host) == OK
    assert CANN.aclrtPointerGetAttributes(host, attributes) == OK
    assert attributes[1] == 0
    assert CANN.aclrtSynchronizeStream(one) == OK
    assert content(at) == {7}
    assert CANN.aclrtFreeHost(host) == OK
    assert CANN.aclrtPointerGetAttributes(host, attributes) == OK
    assert attributes[1] == 2
    for status in (
        CANN.aclrtFreeHost(None),
        CANN.aclrtMallocHost(None, size()),
        CANN.aclrtMallocHost(C.byref(host), size(0)),
    ):
        assert status == INVALID


def check_copies_of_many_bytes():
    """The runtime compares and fills the host's memory in chunks."""
    for count in (1 << 16, 3 * (1 << 16) + 5):
        one, at = make_stream(), make_memory(count)
        host, back = C.create_string_buffer(os.urandom(count), count), C.create_string_buffer(count)
        assert CANN.aclrtMemcpyAsync(at, size(count), host, size(count), TO_DEVICE, one) == OK
        assert CANN.aclrtMemcpyAsync(back, size(count), at, size(count), TO_HOST, one) == OK
        assert set(back.raw) == {0xFF}
        assert CANN.aclrtSynchronizeStream(one) == OK
        assert back.raw == host.raw


def check_pinned_memory_is_of_kind_host():
    host, attributes = C.c_void_p(), (C.c_uint32 * 7)()
    CANN.aclrtMallocHost(C.byref(host), size())
    kinds = []
    for address in (host, make_memory(), C.c_void_p(C.addressof(attributes))):
        assert CANN.aclrtPointerGetAttributes(address, attributes) == OK
        kinds.append(attributes[1])
    assert kinds == [0, 1, 2]  # host, device, unregistered


# ---- after an error ----------------------------------------------------------------------------------


def check_the_next_synchronization_returns_the_error():
    one = make_stream()
    fail_on(one)
    assert fill(make_memory(), 1, one) == OK
    assert CANN.aclrtSynchronizeStream(one) == KERNEL


def check_a_fault_of_the_device_is_described():
    def described(device=0):
        info = (C.c_uint8 * 4096)()
        status = CANN.aclrtGetErrorVerbose(device, info)
        return status, info[1], int.from_bytes(bytes(info[4:8]), "little")

    assert CANN.aclrtGetErrorVerbose(0, None) == INVALID
    one = make_stream(STOP)
    if IS_310P:
        assert described() == (NOT_SUPPORTED, 0, 0)
        return
    assert described() == (OK, 0, 0)
    assert described(9) == (NO_DEVICE, 0, 0)
    fail_on(one)
    assert CANN.aclrtSynchronizeStream(one) == KERNEL
    # Ascend950: an error of the cores, with a detail. The others describe no errors of kernels.
    assert described() == ((OK, 1, 3) if IS_950 else (OK, 0, 0))


def check_a_stream_that_continues_returns_its_error_once():
    one, at = make_stream(CONTINUE), make_memory(value=1)
    fail_on(one)
    fill(at, 2, one)
    assert CANN.aclrtSynchronizeStream(one) == KERNEL
    assert content(at) == {2}
    assert CANN.aclrtSynchronizeStream(one) == OK


def check_the_device_returns_the_first_error_of_its_streams():
    one, two = make_stream(CONTINUE), make_stream(CONTINUE)
    fail_on(one)
    copy_from_unmapped_memory(two)
    assert CANN.aclrtSynchronizeDevice() == KERNEL
    assert "the host's memory" not in error_text()
    assert CANN.aclrtPeekAtLastError(0) == KERNEL
    assert CANN.aclrtSynchronizeDevice() == OK


def check_a_stream_that_stops_runs_nothing_more():
    one, at = make_stream(STOP), make_memory(value=1)
    fail_on(one)
    fill(at, 2, one)
    assert CANN.aclrtSynchronizeStream(one) == KERNEL
    assert content(at) == {1}
    assert CANN.aclrtSynchronizeStream(one) == KERNEL


def check_an_error_stops_the_streams_of_the_context():
    one, two, at, event = make_stream(STOP), make_stream(STOP), make_memory(value=1), make_event()
    CANN.aclrtRecordEvent(event, two)
    fail_on(one)
    assert CANN.aclrtSynchronizeStream(one) == KERNEL
    assert "was freed before the work ran" in error_text()
    for call in (
        lambda: fill(at, 2, two),
        lambda: CANN.aclrtRecordEvent(event, two),
        lambda: CANN.aclrtSynchronizeStream(two),
        lambda: CANN.aclrtSynchronizeEvent(event),
        lambda: event_status(event)[0],
        CANN.aclrtSynchronizeDevice,
    ):
        assert call() == KERNEL
        assert "was freed before the work ran" in error_text()
    assert CANN.aclrtMemset(at, size(), 3, size()) == OK  # the driver fills the memory even after an error
    assert CANN.aclrtFree(at) == OK


def check_each_stream_keeps_its_own_error():
    """The other streams return the first error of the context."""
    one, two, three = (make_stream(STOP) for _ in range(3))
    texts = []
    for stream in (one, two):
        fail_on(stream)
    for stream in (two, one, two, one, three):
        assert CANN.aclrtSynchronizeStream(stream) == KERNEL
        texts.append(error_text())
    assert "(allocation 3 of" in texts[0]
    assert "(allocation 1 of" in texts[1]
    assert texts[2:4] == texts[:2]
    assert texts[4] in texts[:2]


def check_a_launch_that_the_runtime_refuses():
    """aclnn returns its own status for a refused launch, independent of the runtime's status."""
    gone, one, at = make_stream(), make_stream(STOP), make_memory(16, value=0)
    assert CANN.aclrtDestroyStream(gone) == OK
    assert set_to_one(at, gone) == LAUNCH_REFUSED
    assert "aclnnInplaceOne: stream must be one that exists." in error_text()
    fail_on(one)
    assert CANN.aclrtSynchronizeStream(one) == KERNEL
    assert set_to_one(at, one) == LAUNCH_REFUSED
    assert fill(at, 1, one, 16) == KERNEL
    assert content(at, 16) == {0}


def check_records_behind_an_error_do_not_happen():
    one, two, at, event = make_stream(STOP), make_stream(STOP), make_memory(value=1), make_event()
    fail_on(one)
    CANN.aclrtRecordEvent(event, one)
    CANN.aclrtStreamWaitEvent(two, event)
    fill(at, 2, two)
    assert CANN.aclrtSynchronizeStream(two) == KERNEL
    assert content(at) == {1}
    assert CANN.aclrtSynchronizeDevice() == KERNEL
    assert CANN.aclrtSynchronizeEvent(event) == KERNEL


def check_a_reset_of_the_device_ends_the_error():
    one = make_stream(STOP)
    fail_on(one)
    assert CANN.aclrtSynchronizeStream(one) == KERNEL
    assert CANN.aclrtResetDevice(0) == OK
    assert CANN.aclrtSetDevice(0) == OK
    assert CANN.aclrtSynchronizeStream(make_stream()) == OK


def check_a_device_is_reset_as_often_as_it_is_set():
    """Calls of all threads count. A thread that sets and resets the device ends no work of another thread."""
    one, at = make_stream(), make_memory(value=1)
    assert fill(at, 7, one) == OK
    found = []

    def in_another_thread():
        found.extend([CANN.aclrtSetDevice(0), CANN.aclrtResetDevice(0)])

    thread = threading.Thread(target=in_another_thread)
    thread.start()
    thread.join()
    assert found == [OK, OK]
    assert CANN.aclrtSynchronizeStream(one) == OK
    assert content(at) == {7}
    assert CANN.aclrtSetDevice(0) == OK
    assert CANN.aclrtResetDevice(0) == OK
    assert CANN.aclrtSynchronizeDevice() == OK
    assert CANN.aclrtResetDevice(0) == OK
    assert CANN.aclrtSynchronizeDevice() == CONTEXT_NULL
    assert CANN.aclrtResetDevice(0) == CONTEXT_RELEASED
    assert CANN.aclrtSetDevice(0) == OK


def check_the_failure_mode_does_not_return_to_continue():
    one = make_stream(STOP)
    assert CANN.aclrtSetStreamFailureMode(one, CONTINUE) == 207000
    assert CANN.aclrtSetStreamFailureMode(one, 2) == RT_INVALID
    assert calls_beyond_documents() == {}


def check_a_failure_mode_that_is_set_again_is_reported():
    """Only the first call of a stream is documented."""
    text = "{} for a stream whose failure mode was set before"
    one, value = make_stream(), (C.c_uint32 * 4)(STOP)
    make_stream()
    assert calls_beyond_documents() == {}
    assert CANN.aclrtSetStreamFailureMode(one, CONTINUE) == OK
    assert calls_beyond_documents() == {text.format("aclrtSetStreamFailureMode"): 1}
    assert CANN.aclrtSetStreamAttribute(one, 1, value) == OK
    assert calls_beyond_documents()[text.format("aclrtSetStreamAttribute")] == 1


# ---- arguments ---------------------------------------------------------------------------------------


def check_every_thread_sets_its_device():
    """Calls that work on the memory, streams and events of a device need the thread's context."""
    one, at, event, graph = make_stream(), make_memory(16, value=1), make_event(), C.c_void_p()
    assert CANN.aclmdlRICaptureBegin(one, 0) == OK
    assert CANN.aclmdlRICaptureEnd(one, C.byref(graph)) == OK
    host, made, status = C.create_string_buffer(16), C.c_void_p(), C.c_int32()
    number = C.c_int32()
    function = FUNCTION(lambda _: None)
    copy_arguments = (at, size(16), host, size(16), TO_DEVICE)
    calls_with_context = {
        "aclrtMalloc": (C.byref(made), size(16), 0),
        "aclrtMallocHost": (C.byref(made), size(16)),
        "aclrtMemcpy": copy_arguments,
        "aclrtMemcpyAsync": (*copy_arguments, one),
        "aclrtMemset": (at, size(16), 1, size(16)),
        "aclrtMemsetAsync": (at, size(16), 1, size(16), one),
        "aclrtGetMemInfo": (0, C.byref(size()), C.byref(size())),
        "aclrtCreateStream": (C.byref(made),),
        "aclrtCreateStreamWithConfig": (C.byref(made), 0, 0),
        "aclrtStreamQuery": (one, C.byref(status)),
        "aclrtSynchronizeStream": (one,),
        "aclrtSynchronizeStreamWithTimeout": (one, 100),
        "aclrtSetStreamFailureMode": (one, C.c_uint64(CONTINUE)),
        "aclrtSetStreamOverflowSwitch": (one, 1),
        "aclrtGetStreamOverflowSwitch": (one, C.byref(status)),
        "aclrtSynchronizeDevice": (),
        "aclrtCreateEvent": (C.byref(made),),
        "aclrtCreateEventWithFlag": (C.byref(made), SYNC),
        "aclrtCreateEventExWithFlag": (C.byref(made), SYNC),
        "aclrtRecordEvent": (event, one),
        "aclrtStreamWaitEvent": (one, event),
        "aclrtLaunchHostFunc": (one, function, None),
        "aclmdlRICaptureBegin": (one, 0),
        "aclmdlRICaptureEnd": (one, C.byref(made)),
        "aclmdlRICaptureTaskUpdateBegin": (one, C.c_void_p(64)),
        "aclmdlRICaptureTaskUpdateEnd": (one,),
        "aclmdlRICaptureThreadExchangeMode": (C.byref(number),),
        "aclmdlRIExecuteAsync": (graph, one),
        "aclmdlRIDebugPrint": (graph,),
        "aclmdlRIDebugJsonPrint": (graph, b"/no folder/graph.json", 0),
        "aclmdlRIDestroy": (graph,),
        "aclrtDestroyStream": (one,),
    }
    calls_without_context = {
        "aclrtSynchronizeEvent": (event,),
        "aclrtQueryEventStatus": (event, C.byref(status)),
        "aclrtStreamGetId": (one, C.byref(number)),
        "aclrtPointerGetAttributes": (at, (C.c_uint32 * 7)()),
        "aclrtSetStreamAttribute": (one, 4, (C.c_uint32 * 4)(1)),
        "aclrtFree": (at,),
    }
    found, other = {}, make_memory(16, value=1)

    def without_a_device():
        found["aclnn"] = set_to_one(other, one)
        found["default stream"] = CANN.aclrtStreamGetId(None, C.byref(number))
        for name, arguments in (calls_with_context | calls_without_context).items():
            found[name] = getattr(CANN, name)(*arguments)
            found.setdefault("text", error_text())

    thread = threading.Thread(target=without_a_device)
    thread.start()
    thread.join()
    assert found.pop("text").endswith("a device must be set on this thread first (aclrtSetDevice).")
    assert found.pop("aclnn") == LAUNCH_REFUSED
    assert found.pop("default stream") == CONTEXT_NULL
    refused = dict.fromkeys(calls_with_context, CONTEXT_NULL)
    assert found == refused | dict.fromkeys(calls_without_context, OK)


def check_arguments_that_are_refused():
    """Statuses of the outer layer, acl, and of the runtime below it."""
    one, at, there = make_stream(), make_memory(16, value=1), make_memory(16, value=1)
    host, made = C.create_string_buffer(16), C.c_void_p()
    function = FUNCTION(lambda _: None)
    for call, more in ((CANN.aclrtMemcpy, ()), (CANN.aclrtMemcpyAsync, (one,))):
        for kind in (-1, 6, 99):
            assert call(at, size(16), there, size(16), kind, *more) == INVALID, kind
            assert f"kind must be 0 to 5 but got {kind}." in error_text()
        assert call(at, size(8), there, size(16), IN_DEVICE, *more) == RT_INVALID
    assert CANN.aclrtMemcpyAsync(host, size(16), host, size(16), 0, one) == NOT_SUPPORTED
    for create, known, unknown in (
        (CANN.aclrtCreateEventWithFlag, 0x20, (0x40,)),
        (CANN.aclrtCreateEventExWithFlag, 0x40, (0x10, 0x20)),
    ):
        for flags in (0, 0x1000, 0xFFFFFFFF, known | SYNC, *unknown):
            assert create(C.byref(made), C.c_uint32(flags)) == RT_INVALID, flags
        assert create(C.byref(made), known) == OK
    assert CANN.aclrtSetStreamOverflowSwitch(one, 5) == INVALID
    assert CANN.aclrtGetStreamOverflowSwitch(one, None) == INVALID
    assert CANN.aclrtSetStreamAttribute(one, 1, None) == INVALID
    assert CANN.aclrtPointerGetAttributes(None, (C.c_uint32 * 7)()) == INVALID
    assert CANN.aclrtLaunchCallback(function, None, 17, one) == INVALID
    assert CANN.aclrtLaunchHostFunc(one, None, None) == RT_INVALID
    for timeout in (0, -5):
        assert CANN.aclrtProcessReport(timeout) == INVALID
    for call in (CANN.aclrtSetDevice, CANN.aclrtResetDevice):
        for device in (-1, 5):
            assert call(device) == 107001
            assert f"deviceId must be 0, the one device that is simulated, but got {device}." in error_text()
    assert CANN.aclrtMalloc(C.byref(made), size(0), 0) == INVALID
    for count in (1 << 45, (1 << 50) + 1, 1 << 63):
        assert CANN.aclrtMalloc(C.byref(made), size(count), 0) == NO_MEMORY
    assert CANN.aclrtMalloc(C.byref(made), size(2**64 - 1), 0) == INVALID


def check_policies_of_allocations():
    made, huge = C.c_void_p(), NOT_SUPPORTED if IS_310P else OK
    for call in (CANN.aclrtMalloc, CANN.aclrtMallocAlign32):
        statuses = [call(C.byref(made), size(), policy) for policy in range(8)]
        assert statuses == [OK] * 6 + [huge] * 2
    cached = CANN.aclrtMallocCached
    statuses = [cached(C.byref(made), size(), policy) for policy in range(8)]
    assert statuses == [NOT_SUPPORTED] * 2 + [OK] + [NOT_SUPPORTED] * 5
    assert cached(C.byref(made), size((1 << 50) - 31), 0) == RT_INVALID
    assert cached(C.byref(made), size((1 << 50) - 32), 2) == NO_MEMORY
    assert cached(C.byref(made), size(2**64 - 1), 0) == cached(None, size(), 2) == INVALID


def check_flags_of_streams():
    made = C.c_void_p()
    assert CANN.aclrtCreateStreamWithConfig(None, 0, 0x28) == INVALID
    for flags, status in (
        (0x3, OK),
        (0x40, OK),  # unknown
        (0x8, NOT_SUPPORTED if IS_310P else OK),
        (0x28, NOT_SUPPORTED if IS_310P else RT_INVALID),
        (0x21, RT_INVALID),
        (0x30, RT_INVALID),
        (0x4, NOT_SIMULATED),
        (0x10, NOT_SIMULATED),
        (0x20, NOT_SIMULATED),
    ):
        assert CANN.aclrtCreateStreamWithConfig(C.byref(made), 0, flags) == status, flags


def check_descriptors_of_tensors_keep_their_values():
    """aclop's descriptors only store values, because the simulator does not run aclop's operators."""
    CANN.aclCreateTensorDesc.restype = CANN.aclCreateDataBuffer.restype = C.c_void_p
    CANN.aclGetTensorDescNumDims.restype = C.c_size_t
    value, sizes = C.c_int64(), (C.c_int64 * 3)(5, 6, 7)
    assert CANN.aclCreateTensorDesc(1, -1, sizes, 2) is None
    assert CANN.aclCreateTensorDesc(1, 3, None, 2) is None
    scalar = C.c_void_p(CANN.aclCreateTensorDesc(1, 0, None, 2))
    assert scalar
    assert CANN.aclGetTensorDescNumDims(scalar) == 0
    CANN.aclDestroyTensorDesc(scalar)
    desc = C.c_void_p(CANN.aclCreateTensorDesc(1, 3, sizes, 2))

    def shape():
        found = []
        for index in range(CANN.aclGetTensorDescNumDims(desc)):
            assert CANN.aclGetTensorDescDimV2(desc, size(index), C.byref(value)) == OK
            found.append(value.value)
        assert CANN.aclGetTensorDescDimV2(desc, size(len(found)), C.byref(value)) == INVALID
        return found

    assert shape() == [5, 6, 7]
    assert CANN.aclGetTensorDescDimV2(desc, size(0), None) == INVALID
    assert CANN.aclSetTensorShape(desc, 2, sizes) == OK
    assert shape() == [5, 6]
    for dims, given in ((-1, sizes), (1, None)):
        assert CANN.aclSetTensorShape(desc, dims, given) == INVALID
    assert CANN.aclSetTensorShape(desc, 0, None) == OK
    assert shape() == []
    assert (CANN.aclGetTensorDescType(desc), CANN.aclGetTensorDescFormat(desc)) == (1, 2)
    assert CANN.aclSetTensorFormat(desc, 30) == OK
    assert CANN.aclGetTensorDescFormat(desc) == 30
    assert (CANN.aclGetTensorDescType(None), CANN.aclGetTensorDescFormat(None)) == (-1, -1)
    assert CANN.aclGetTensorDescNumDims(None) == 0
    for status in (
        CANN.aclSetTensorFormat(None, 2),
        CANN.aclSetTensorShape(None, 3, sizes),
        CANN.aclSetTensorPlaceMent(None, 1),
        CANN.aclSetTensorConst(None, None, size(0)),
        CANN.aclGetTensorDescDimV2(None, size(0), C.byref(value)),
    ):
        assert status == INVALID
    assert CANN.aclSetTensorPlaceMent(desc, 1) == CANN.aclSetTensorConst(desc, None, size(0)) == OK
    CANN.aclDestroyTensorDesc(desc)


def check_the_primary_context_is_active_while_the_device_is_set():
    active, flags = C.c_int32(7), C.c_uint32()
    assert CANN.aclrtGetPrimaryCtxState(0, None, C.byref(active)) == OK
    assert active.value == 1
    assert CANN.aclrtResetDevice(0) == OK
    assert CANN.aclrtGetPrimaryCtxState(0, None, C.byref(active)) == OK
    assert active.value == 0
    assert CANN.aclrtGetPrimaryCtxState(0, C.byref(flags), C.byref(active)) == INVALID
    assert CANN.aclrtGetPrimaryCtxState(0, None, None) == INVALID
    assert CANN.aclrtGetPrimaryCtxState(5, None, C.byref(active)) == NO_DEVICE


def check_kernels_may_use_all_cores():
    cubes, vectors, stream = C.c_uint32(), C.c_uint32(), make_stream()
    for call, of in ((CANN.aclrtGetDeviceResLimit, 0), (CANN.aclrtGetStreamResLimit, stream)):
        assert call(of, 0, C.byref(cubes)) == call(of, 1, C.byref(vectors)) == OK
        assert (cubes.value, vectors.value) == (24, 48)
        assert call(of, 0, None) == INVALID
        for kind in (-1, 2):
            assert call(of, kind, C.byref(cubes)) == RT_INVALID
    found = []

    def without_context():
        found.append(CANN.aclrtGetStreamResLimit(None, 0, C.byref(cubes)))
        found.append(CANN.aclrtGetStreamResLimit(stream, 0, C.byref(cubes)))
        found.append(CANN.aclrtGetResInCurrentThread(0, C.byref(cubes)))

    thread = threading.Thread(target=without_context)
    thread.start()
    thread.join()
    assert found == [CONTEXT_NULL, OK, CONTEXT_NULL]
    assert CANN.aclrtGetResInCurrentThread(0, C.byref(cubes)) == CANN.aclrtResetDevice(0) == OK
    cubes.value = 7
    assert CANN.aclrtGetDeviceResLimit(0, 0, C.byref(cubes)) == 507033  # the device is not set
    assert cubes.value == 7
    context = C.c_void_p()
    assert CANN.aclrtCreateContext(C.byref(context), 0) == OK
    assert CANN.aclrtGetDeviceResLimit(0, 0, C.byref(cubes)) == OK
    assert cubes.value == 24
    assert CANN.aclrtDestroyContext(context) == OK


def check_the_deterministic_level_of_a_tiling():
    """Strong consistency raises level 1 to 2. The function is that which the library gives to tilings."""
    deterministic, consistency = 0, 2
    level = CANN._ZN14simulated_cann19deterministic_levelEv
    for values, expected in (((0, 0), 0), ((1, 0), 1), ((0, 1), 0), ((1, 1), 2), ((3, 1), 3)):
        for option, value in ((deterministic, values[0]), (consistency, values[1])):
            assert CANN.aclrtSetSysParamOpt(option, C.c_int64(value)) == OK
        assert level() == expected, values


def check_options_of_the_system():
    """The process has one set of options. aclrtCtxSetSysParamOpt needs a context."""
    value, results = C.c_int64(), []

    def set_to(call, option, wanted):
        return call(option, C.c_int64(wanted))

    for call in (CANN.aclrtSetSysParamOpt, CANN.aclrtCtxSetSysParamOpt):
        assert [set_to(call, 0, one) for one in (-1, 0, 3, 4, 77)] == [
            RT_INVALID,
            OK,
            OK,
            RT_INVALID,
            RT_INVALID,
        ]
        assert [set_to(call, 1, one) for one in (-1, 0, 1, 2)] == [RT_INVALID, OK, OK, RT_INVALID]
        assert set_to(call, -1, 0) == set_to(call, 4, 0) == INVALID
    assert set_to(CANN.aclrtSetSysParamOpt, 3, 1) == OK
    assert set_to(CANN.aclrtCtxSetSysParamOpt, 3, 1) == INVALID
    assert CANN.aclrtGetSysParamOpt(4, C.byref(value)) == CANN.aclrtGetSysParamOpt(0, None) == INVALID

    def in_another_thread():
        results.append(set_to(CANN.aclrtCtxSetSysParamOpt, 1, 0))
        results.append(set_to(CANN.aclrtSetSysParamOpt, 2, 1))
        assert CANN.aclrtGetSysParamOpt(0, C.byref(value)) == OK
        results.append(value.value)

    thread = threading.Thread(target=in_another_thread)
    thread.start()
    thread.join()
    assert results == [CONTEXT_NULL, OK, 3]
    assert CANN.aclrtGetSysParamOpt(2, C.byref(value)) == OK
    assert value.value == 1


def check_devices_that_do_not_exist():
    number, signed = C.c_uint32(), C.c_int32()
    assert CANN.aclrtGetDeviceResLimit(0, 0, C.byref(number)) == OK
    assert CANN.aclrtGetDeviceResLimit(9, 0, C.byref(number)) == NO_DEVICE
    assert CANN.aclrtGetDeviceResLimit(9, 2, C.byref(number)) == RT_INVALID
    assert CANN.aclrtGetDeviceResLimit(-1, 2, C.byref(number)) == NO_DEVICE
    assert CANN.aclrtGetDeviceResLimit(-1, 2, None) == INVALID
    assert CANN.aclrtGetStreamResLimit(None, -1, C.byref(number)) == RT_INVALID
    assert CANN.aclrtGetResInCurrentThread(2, C.byref(number)) == RT_INVALID
    assert CANN.aclrtGetResInCurrentThread(0, None) == INVALID
    assert CANN.aclrtGetLogicDevIdByUserDevId(0, C.byref(signed)) == OK
    assert CANN.aclrtGetLogicDevIdByUserDevId(7, C.byref(signed)) == NO_DEVICE
    assert CANN.aclrtGetLogicDevIdByUserDevId(-1, C.byref(signed)) == RT_INVALID
    assert CANN.aclrtGetPrimaryCtxState(0, None, C.byref(signed)) == OK
    assert CANN.aclrtGetPrimaryCtxState(0, C.byref(number), C.byref(signed)) == INVALID
    assert CANN.aclrtGetPrimaryCtxState(0, None, None) == INVALID
    assert CANN.aclrtGetPrimaryCtxState(7, None, C.byref(signed)) == NO_DEVICE
    assert CANN.aclrtDeviceCanAccessPeer(C.byref(signed), 0, 0) == INVALID
    assert CANN.aclrtDeviceCanAccessPeer(C.byref(signed), 0, 1) == NO_DEVICE
    assert CANN.aclrtDeviceCanAccessPeer(C.byref(signed), 9, 0) == NO_DEVICE
    assert CANN.aclrtDeviceCanAccessPeer(C.byref(signed), 99, 0) == RT_INVALID


def check_the_mode_of_overflow():
    """Ascend310P only has mode 0, Ascend950 only mode 1."""
    assert [CANN.aclrtSetDeviceSatMode(mode) for mode in (-1, 2, 7)] == [RT_INVALID] * 3
    assert CANN.aclrtSetDeviceSatMode(0) == (NOT_SUPPORTED if IS_950 else OK)
    assert CANN.aclrtSetDeviceSatMode(1) == (NOT_SUPPORTED if IS_310P else OK)


def check_kinds_of_memory():
    free, total = C.c_size_t(), C.c_size_t()
    statuses = [CANN.aclrtGetMemInfo(kind, C.byref(free), C.byref(total)) for kind in (-1, 0, 1, 17, 18, 99)]
    assert statuses == [107016, OK, OK, OK, 107016, 107016]
    of_ddr = {0, 2, 3, 6, 7}
    for kind in range(18):
        assert CANN.aclrtGetMemInfo(kind, C.byref(free), C.byref(total)) == OK
        wanted = 0 if kind in of_ddr and not IS_310P else 64 << 30
        assert (free.value, total.value) == (wanted, wanted), kind


def check_attributes_of_a_stream():
    one, captured, graph = make_stream(), make_stream(), C.c_void_p()
    assert CANN.aclmdlRICaptureBegin(captured, 0) == OK

    def set_to(kind, value, stream=one):
        return CANN.aclrtSetStreamAttribute(stream, kind, (C.c_uint32 * 4)(value))

    assert [set_to(kind, 1) for kind in (0, 6, 99)] == [RT_INVALID] * 3
    assert [set_to(kind, 1) for kind in (1, 2, 3, 4, 5)] == [OK] * 5
    assert [set_to(kind, 2) for kind in (1, 2, 3, 4)] == [RT_INVALID, RT_INVALID, OK, RT_INVALID]
    assert set_to(1, CONTINUE) == NOT_SUPPORTED
    fail_on(one)
    assert [CANN.aclrtSynchronizeStream(one) for _ in range(2)] == [KERNEL, KERNEL]
    assert [set_to(kind, 1, captured) for kind in (2, 3)] == [STREAM_CAPTURED] * 2
    assert CANN.aclrtSetStreamOverflowSwitch(captured, 1) == STREAM_CAPTURED
    assert CANN.aclmdlRICaptureEnd(captured, C.byref(graph)) == OK


def check_the_overflow_switch_of_a_stream_is_stored():
    """Ascend310P always returns 1."""
    one, flag, value = make_stream(), C.c_uint32(7), (C.c_uint32 * 4)

    def switch(stream=one):
        assert CANN.aclrtGetStreamOverflowSwitch(stream, C.byref(flag)) == OK
        return flag.value

    assert switch() == switch(None) == IS_310P
    assert CANN.aclrtSetStreamOverflowSwitch(one, 1) == OK
    assert (switch(), switch(None)) == (1, IS_310P)
    assert CANN.aclrtSetStreamAttribute(one, 2, value(0)) == OK
    assert CANN.aclrtSetStreamOverflowSwitch(None, 1) == OK
    assert (switch(), switch(None)) == (IS_310P, 1)


def check_what_ascend310p_ignores_of_a_stream():
    """It has no overflow switch and no tag, whose calls succeed. The switch alone needs no stream."""
    one, gone, captured, graph = make_stream(), make_stream(), make_stream(), C.c_void_p()
    assert CANN.aclmdlRICaptureBegin(captured, 0) == OK
    assert CANN.aclrtDestroyStream(gone) == OK

    def set_to(kind, value, stream):
        return CANN.aclrtSetStreamAttribute(stream, kind, (C.c_uint32 * 4)(value))

    for kind in (2, 3):
        assert set_to(kind, 1, gone) == NO_HANDLE
        assert set_to(kind, 1, captured) == (OK if IS_310P else STREAM_CAPTURED)
    assert set_to(2, 2, one) == (OK if IS_310P else RT_INVALID)
    assert calls_beyond_documents() == {}
    assert CANN.aclrtSetStreamOverflowSwitch(gone, 1) == (OK if IS_310P else NO_HANDLE)
    assert CANN.aclrtSetStreamOverflowSwitch(gone, 2) == INVALID
    assert sum(calls_beyond_documents().values()) == IS_310P
    assert CANN.aclmdlRICaptureEnd(captured, C.byref(graph)) == OK


def check_attributes_of_a_null_stream():
    """It is the default stream, but the priority needs another one. Ascend310P accepts fewer."""

    def set_to(kind, value):
        return CANN.aclrtSetStreamAttribute(None, kind, (C.c_uint32 * 4)(value))

    refused = RT_INVALID if IS_310P else OK
    assert [set_to(kind, 1) for kind in (1, 2, 3, 4, 5)] == [refused, OK, OK, refused, RT_INVALID]
    assert CANN.aclrtSetStreamFailureMode(None, STOP) == refused
    set_to(4, 2)
    assert ("stream must not be null on this chip." in error_text()) == IS_310P


def check_the_number_of_streams():
    most = 1024 if IS_310P else 1984
    streams = [make_stream() for _ in range(most - 1)]  # beside the default one
    made = C.c_void_p()
    assert CANN.aclrtCreateStream(C.byref(made)) == 207008
    assert CANN.aclrtCreateStreamWithConfig(C.byref(made), 0, 3) == 207008
    assert f"a device must have at most {most} streams." in error_text()
    assert CANN.aclrtDestroyStream(streams.pop()) == OK
    assert CANN.aclrtSynchronizeStream(None) == OK  # uses the default stream
    assert CANN.aclrtCreateStream(C.byref(made)) == OK
    assert CANN.aclrtCreateStream(C.byref(made)) == 207008


def check_the_number_of_events():
    most, made = 1023 if IS_310P else 65536, C.c_void_p()
    events = [make_event(False, (SYNC, EXTERNAL)[i % 2]) for i in range(most)]
    for flags in (SYNC, EXTERNAL, SYNC | TIME_LINE):
        assert CANN.aclrtCreateEventWithFlag(C.byref(made), flags) == 207007
    assert f"a device must have at most {most} events with the flag 1 or 32." in error_text()
    make_event(False, TIME_LINE)
    make_event(True)
    assert CANN.aclrtDestroyEvent(events.pop()) == OK
    make_event(False)


def check_the_order_of_checks_of_a_stream():
    """First the handle, then the capture, then the context."""
    gone, captured, graph, found = make_stream(), make_stream(), C.c_void_p(), []
    assert CANN.aclrtDestroyStream(gone) == OK
    assert CANN.aclrtSynchronizeStreamWithTimeout(gone, 0) == NO_HANDLE
    assert CANN.aclmdlRICaptureBegin(captured, 2) == OK

    def without_context():
        found.append(CANN.aclrtDestroyStream(captured))
        found.append(CANN.aclrtSynchronizeStream(captured))
        found.append(CANN.aclrtStreamQuery(captured, C.byref(C.c_int32())))

    thread = threading.Thread(target=without_context)
    thread.start()
    thread.join()
    assert found == [STREAM_CAPTURED] * 3
    CANN.aclmdlRICaptureEnd(captured, C.byref(graph))


def check_events_between_processes_depend_on_the_chip():
    is_refused = IS_310P or os.environ.get("ASCEND_SIM_SOC", "").startswith("Ascend950DT")
    status = CANN.aclrtCreateEventExWithFlag(C.byref(C.c_void_p()), IPC)
    assert status == (NOT_SUPPORTED if is_refused else OK)


def check_finalization_succeeds_once():
    assert CANN.aclFinalize() == OK
    assert CANN.aclFinalize() == 100037
    assert CANN.aclInit(None) == OK
    assert CANN.aclInit(None) == 100002
    assert CANN.aclFinalize() == OK


if __name__ == "__main__":
    run_checks(globals())
