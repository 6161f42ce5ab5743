"""Check the calls that a capture refuses, with the codes of hicann/runtime. torch_npu's task queue is off,
because with it errors appear later and persist."""

import ctypes
import threading

import torch
import torch_npu  # noqa: F401
from run_checks import refusal, run

CANN = ctypes.CDLL("libascend_sim_cann.so")
GLOBAL, THREAD_LOCAL, RELAXED = 0, 1, 2


# ---- calls that a capture refuses --------------------------------------------------------------------


class Capture:
    """A capture: the error that work() returns as text, and the error at the capture's end ("" if none)."""

    def __init__(self, work, *, mode="global"):
        self.graph = torch.npu.NPUGraph()
        self.stream = torch.npu.Stream()
        torch.npu.synchronize()
        with torch.npu.stream(self.stream):
            self.graph.capture_begin(capture_error_mode=mode)
            self.error = work()
            try:
                self.graph.capture_end()
                self.end_error = ""
            except RuntimeError as error:
                self.end_error = str(error)


def require_refusal(work, code):
    """Check that the call gives this code and that the capture is invalid: 507903."""
    capture = Capture(lambda: refusal(work))
    assert f"error code is {code}" in capture.error, capture.error
    assert "error code is 507903" in capture.end_error, capture.end_error
    assert (torch.ones(3).npu() + 1).cpu().tolist() == [2.0, 2.0, 2.0]  # the device still works


def check_reading_an_item():
    x = torch.ones(1).npu()
    require_refusal(lambda: (x * 2).item(), 107027)


def check_a_copy_to_the_host():
    x = torch.ones(4).npu()
    require_refusal(lambda: (x * 2).cpu(), 107030)


def check_a_shape_that_depends_on_data():
    x, mask = torch.ones(4).npu(), torch.ones(4).npu() > 0
    for work in (x.nonzero, lambda: x[mask]):
        capture = Capture(lambda work=work: refusal(work))
        assert "107027" in capture.error, capture.error
        assert "507903" in capture.end_error


def check_synchronizing_the_stream():
    require_refusal(lambda: torch.npu.current_stream().synchronize(), 107027)


def check_synchronizing_the_device():
    require_refusal(torch.npu.synchronize, 107027)


def check_synchronizing_an_event():
    event = torch.npu.Event()

    def work():
        event.record()
        event.synchronize()

    require_refusal(work, 107028)


def check_querying_an_event():
    event = torch.npu.Event()

    def work():
        event.record()
        event.query()

    require_refusal(work, 107028)


def check_a_capture_of_the_default_stream():
    graph = torch.npu.NPUGraph()
    assert "non-default stream" in refusal(graph.capture_begin)


def check_an_event_from_outside():
    event = torch.npu.Event()
    event.record()
    torch.npu.synchronize()
    capture = Capture(lambda: refusal(lambda: torch.npu.current_stream().wait_event(event)))
    assert "error code is 107024" in capture.error, capture.error


def check_a_stream_that_does_not_join_again():
    x = torch.ones(4).npu()
    side = torch.npu.Stream()

    def work():
        side.wait_stream(torch.npu.current_stream())
        with torch.npu.stream(side):
            x.mul_(2)
        return ""

    assert "error code is 107025" in Capture(work).end_error


def check_a_copy_from_pageable_memory():
    x, host = torch.ones(4).npu(), torch.ones(4)
    capture = Capture(lambda: refusal(lambda: x.copy_(host, non_blocking=True)))
    assert "error code is 107000" in capture.error, capture.error


def copy_on_another_stream(mode):
    """Copy pageable memory asynchronously on a stream outside a capture; return the capture and the copy."""
    x, host = torch.ones(4).npu(), torch.full((4,), 3.0)
    other = torch.npu.Stream()

    def work():
        try:
            with torch.npu.stream(other):
                x.copy_(host, non_blocking=True)
        except RuntimeError as error:
            return str(error)
        return ""

    return Capture(work, mode=mode), x


def check_a_copy_from_pageable_memory_on_another_stream():
    for mode in ("global", "thread_local"):
        capture, _ = copy_on_another_stream(mode)
        assert "error code is 107041" in capture.error, capture.error
        assert capture.end_error
    capture, x = copy_on_another_stream("relaxed")
    assert (capture.error, capture.end_error) == ("", "")
    assert x.tolist() == [3.0] * 4


# ---- modes, through C --------------------------------------------------------------------------------


def capture_begin(mode):
    stream = ctypes.c_void_p()
    assert CANN.aclrtCreateStream(ctypes.byref(stream)) == 0
    assert CANN.aclmdlRICaptureBegin(stream, mode) == 0
    return stream


def capture_end(stream):
    model = ctypes.c_void_p()
    return CANN.aclmdlRICaptureEnd(stream, ctypes.byref(model)), model


def memset(address):
    return CANN.aclrtMemset(address, ctypes.c_size_t(16), 0, ctypes.c_size_t(16))


def in_another_thread(work):
    """Return the result of work in another thread, which must select the device first."""
    results = []
    thread = threading.Thread(target=lambda: results.append(CANN.aclrtSetDevice(0) or work()))
    thread.start()
    thread.join()
    return results[0]


def check_the_modes_of_a_capture():
    """Check the status of a synchronous call in this thread and in another one, and of the capture's end."""
    memory = torch.ones(16).npu()
    torch.npu.synchronize()
    address = ctypes.c_void_p(memory.data_ptr())
    expected = {GLOBAL: (107030, 107030, 507903), THREAD_LOCAL: (107030, 0, 507903), RELAXED: (0, 0, 0)}
    for mode, (here, there, end) in expected.items():
        stream = capture_begin(mode)
        assert in_another_thread(lambda: memset(address)) == there, mode
        assert memset(address) == here, mode
        assert capture_end(stream)[0] == end, mode


def check_a_thread_that_exchanges_its_mode():
    memory = torch.ones(16).npu()
    torch.npu.synchronize()
    stream = capture_begin(GLOBAL)
    mode = ctypes.c_int32(RELAXED)
    assert CANN.aclmdlRICaptureThreadExchangeMode(ctypes.byref(mode)) == 0
    assert mode.value == GLOBAL
    assert memset(ctypes.c_void_p(memory.data_ptr())) == 0
    assert CANN.aclmdlRICaptureThreadExchangeMode(ctypes.byref(mode)) == 0
    assert capture_end(stream)[0] == 0


def check_the_end_in_another_thread():
    stream = capture_begin(GLOBAL)
    assert in_another_thread(lambda: capture_end(stream)[0]) == 107038
    stream = capture_begin(RELAXED)
    assert in_another_thread(lambda: capture_end(stream)[0]) == 0


def check_memory_may_be_allocated():
    stream, memory = capture_begin(GLOBAL), ctypes.c_void_p()
    assert CANN.aclrtMalloc(ctypes.byref(memory), ctypes.c_size_t(64), 0) == 0
    assert CANN.aclrtFree(memory) == 0
    assert capture_end(stream)[0] == 0


def check_wrong_handles_and_states():
    assert CANN.aclmdlRICaptureBegin(None, GLOBAL) == 100000
    stream = capture_begin(GLOBAL)
    assert CANN.aclmdlRICaptureBegin(stream, GLOBAL) == 107027
    assert CANN.aclrtDestroyStream(stream) == 107027
    assert CANN.aclmdlRIExecuteAsync(stream, stream) == 107017
    assert capture_end(stream)[0] == 0
    assert capture_end(stream)[0] == 107029


def check_a_task_group_that_stays_open():
    def work():
        torch.npu.graph_task_group_begin(torch.npu.current_stream())
        return ""

    assert "error code is 107033" in Capture(work).end_error


if __name__ == "__main__":
    run(globals())
