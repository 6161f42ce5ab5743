"""Programs with one race each, and the same programs with the missing wait.

usage: races.py NAME        the program with the race
       races.py with-waits  every program with the missing wait

Prints JSON: whether the result equals that of the program with the wait. For with-waits this is a dictionary
by the programs' names.
"""

from __future__ import annotations

import ctypes
import json
import sys

import torch
import torch_npu  # noqa: F401
from graphs import capture

COUNT = 4096
CANN = ctypes.CDLL("libascend_sim_cann.so")
WITH_WAITS = sys.argv[1] == "with-waits"
TO_DEVICE, TO_HOST, IN_DEVICE = 1, 2, 3

first, second = torch.npu.Stream(), torch.npu.Stream()


def device_ones():
    """A tensor that every stream may use."""
    x = torch.ones(COUNT, device="npu")
    torch.npu.synchronize()
    return x


def handle(stream):
    return ctypes.c_void_p(stream.npu_stream)


def address(tensor):
    return ctypes.c_void_p(tensor.data_ptr())


def assert_success(status):
    assert status == 0, status


def all_equal(tensor, value):
    torch.npu.synchronize()
    return bool((tensor.cpu() == value).all())


# ---- missing and wrong waits -------------------------------------------------------------------------


def missing_wait_after_a_stand_in():
    x, y = device_ones(), device_ones()
    with torch.npu.stream(first):
        x.mul_(3)
    if WITH_WAITS:
        second.wait_stream(first)
    with torch.npu.stream(second):
        y.copy_(x)
    return all_equal(y, 3)


def event_on_the_wrong_stream():
    x, y = device_ones(), device_ones()
    event = torch.npu.Event()
    with torch.npu.stream(first):
        x.mul_(3)
    event.record(first if WITH_WAITS else second)
    second.wait_event(event)
    with torch.npu.stream(second):
        y.copy_(x)
    return all_equal(y, 3)


def event_before_the_producer():
    x, y = device_ones(), device_ones()
    event = torch.npu.Event()
    if not WITH_WAITS:
        event.record(first)
    with torch.npu.stream(first):
        x.mul_(3)
    if WITH_WAITS:
        event.record(first)
    second.wait_event(event)
    with torch.npu.stream(second):
        y.copy_(x)
    return all_equal(y, 3)


def wait_on_the_wrong_stream():
    third = torch.npu.Stream()
    x, y = device_ones(), device_ones()
    event = torch.npu.Event()
    with torch.npu.stream(first):
        x.mul_(3)
        event.record()
    (second if WITH_WAITS else third).wait_event(event)
    with torch.npu.stream(second):
        y.copy_(x)
    return all_equal(y, 3)


def wait_after_the_consumer():
    x, y = device_ones(), device_ones()
    event = torch.npu.Event()
    with torch.npu.stream(first):
        x.mul_(3)
        event.record()
    if WITH_WAITS:
        second.wait_event(event)
    with torch.npu.stream(second):
        y.copy_(x)
    if not WITH_WAITS:
        second.wait_event(event)
    return all_equal(y, 3)


def event_that_is_recorded_again_too_late():
    """A wait binds to the last record before the wait."""
    x, y = device_ones(), device_ones()
    event = torch.npu.Event()
    event.record(first)
    if not WITH_WAITS:
        second.wait_event(event)
    with torch.npu.stream(first):
        x.mul_(3)
        event.record()
    if WITH_WAITS:
        second.wait_event(event)
    with torch.npu.stream(second):
        y.copy_(x)
    return all_equal(y, 3)


def wait_for_an_event_that_nothing_recorded():
    x, y = device_ones(), device_ones()
    event = torch.npu.Event()
    with torch.npu.stream(first):
        x.mul_(3)
    if WITH_WAITS:
        event.record(first)
    second.wait_event(event)
    with torch.npu.stream(second):
        y.copy_(x)
    return all_equal(y, 3)


# ---- writes ------------------------------------------------------------------------------------------


def write_after_read():
    x, y = device_ones(), device_ones()
    with torch.npu.stream(first):
        y.copy_(x)
    if WITH_WAITS:
        second.wait_stream(first)
    with torch.npu.stream(second):
        x.mul_(3)
    return all_equal(y, 1)


def two_writes_in_place():
    x = device_ones()
    with torch.npu.stream(first):
        x.add_(1)
    if WITH_WAITS:
        second.wait_stream(first)
    with torch.npu.stream(second):
        x.mul_(3)
    return all_equal(x, 6)


def overlapping_halves():
    """The slices share one element."""
    x = device_ones()
    middle = COUNT // 2
    with torch.npu.stream(first):
        x[: middle + (0 if WITH_WAITS else 1)].mul_(3)
    with torch.npu.stream(second):
        x[middle:].add_(4)
    torch.npu.synchronize()
    return x.cpu()[middle].item() == 5


# ---- copies and the host -----------------------------------------------------------------------------


def source_that_the_host_changes_too_early():
    x = device_ones()
    host = torch.full((COUNT,), 5.0).pin_memory()
    with torch.npu.stream(first):
        x.copy_(host, non_blocking=True)
    if WITH_WAITS:
        first.synchronize()
    host.fill_(9)
    return all_equal(x, 5)


def pageable_source_that_the_host_changes_too_early():
    x = device_ones()
    host = (ctypes.c_float * COUNT)(*[5.0] * COUNT)
    size = ctypes.c_size_t(COUNT * 4)
    assert_success(CANN.aclrtMemcpyAsync(address(x), size, host, size, TO_DEVICE, handle(first)))
    if WITH_WAITS:
        first.synchronize()
    ctypes.memset(host, 0, COUNT * 4)
    return all_equal(x, 5)


def source_that_the_host_changes_after_a_replay():
    """A replayed host fallback writes no host memory, so the source of an earlier copy is still compared."""
    x, y = device_ones(), device_ones()
    graph, _ = capture(lambda: y.exp_())
    torch.npu.synchronize()
    host = (ctypes.c_float * COUNT)(*[5.0] * COUNT)
    size = ctypes.c_size_t(COUNT * 4)
    assert_success(CANN.aclrtMemcpyAsync(address(x), size, host, size, TO_DEVICE, handle(first)))
    graph.replay()
    handle(torch.npu.current_stream())  # reading the handle empties torch_npu's queue
    if WITH_WAITS:
        first.synchronize()
    ctypes.memset(host, 0, COUNT * 4)
    return all_equal(x, 5)


def pinned_memory_that_is_freed_too_early():
    x = device_ones()
    host, size = ctypes.c_void_p(), ctypes.c_size_t(COUNT * 4)
    assert_success(CANN.aclrtMallocHost(ctypes.byref(host), size))
    ctypes.memset(host, 0, COUNT * 4)
    assert_success(CANN.aclrtMemcpyAsync(address(x), size, host, size, TO_DEVICE, handle(first)))
    if WITH_WAITS:
        first.synchronize()
    assert_success(CANN.aclrtFreeHost(host))
    return all_equal(x, 0)


def pinned_memory_between_streams():
    x, y, host = device_ones() * 3, device_ones(), torch.zeros(COUNT).pin_memory()
    torch.npu.synchronize()
    with torch.npu.stream(first):
        host.copy_(x, non_blocking=True)
    if WITH_WAITS:
        second.wait_stream(first)
    with torch.npu.stream(second):
        y.copy_(host, non_blocking=True)
    return all_equal(y, 3)


def pinned_memory_that_two_streams_write():
    x, y, host = device_ones(), device_ones() * 3, torch.zeros(COUNT).pin_memory()
    torch.npu.synchronize()
    with torch.npu.stream(first):
        host.copy_(x, non_blocking=True)
    if WITH_WAITS:
        second.wait_stream(first)
    with torch.npu.stream(second):
        host.copy_(y, non_blocking=True)
    return all_equal(host, 3)


def read_of_the_host_without_synchronization():
    x = device_ones()
    host = torch.zeros(COUNT).pin_memory()
    with torch.npu.stream(first):
        x.mul_(3)
        host.copy_(x, non_blocking=True)
    if WITH_WAITS:
        first.synchronize()
    return bool((host == 3).all())


def synchronous_copy_without_synchronization():
    """aclrtMemcpy does not wait for a stream."""
    x = device_ones()
    host = (ctypes.c_float * COUNT)()
    with torch.npu.stream(first):
        x.mul_(3)
    handle(first)  # reading the handle empties torch_npu's queue
    if WITH_WAITS:
        first.synchronize()
    size = ctypes.c_size_t(COUNT * 4)
    assert_success(CANN.aclrtMemcpy(host, size, address(x), size, TO_HOST))
    return all(value == 3 for value in host)


def copy_before_a_memset_ends():
    x, y = device_ones(), device_ones()
    size = ctypes.c_size_t(COUNT * 4)
    assert_success(CANN.aclrtMemsetAsync(address(x), size, 0, size, handle(first)))
    if WITH_WAITS:
        second.wait_stream(first)
    with torch.npu.stream(second):
        y.copy_(x)
    return all_equal(y, 0)


# ---- memory that is used again -----------------------------------------------------------------------


def free_while_another_stream_reads():
    """Without record_stream, the next tensor on the stream that allocated x gets the memory of x."""
    y = device_ones()
    with torch.npu.stream(first):
        x = torch.full((COUNT,), 3.0, device="npu")
    second.wait_stream(first)
    with torch.npu.stream(second):
        y.copy_(x)
    if WITH_WAITS:
        x.record_stream(second)
    del x
    with torch.npu.stream(first):
        z = torch.full((COUNT,), 8.0, device="npu")
    torch.npu.synchronize()
    return all_equal(y, 3) and all_equal(z, 8)


def device_memory_that_is_freed_too_early():
    y = device_ones()
    memory, size = ctypes.c_void_p(), ctypes.c_size_t(COUNT * 4)
    assert_success(CANN.aclrtMalloc(ctypes.byref(memory), size, 0))
    assert_success(CANN.aclrtMemset(memory, size, 0, size))
    assert_success(CANN.aclrtMemcpyAsync(address(y), size, memory, size, IN_DEVICE, handle(first)))
    if WITH_WAITS:
        first.synchronize()
    assert_success(CANN.aclrtFree(memory))
    try:
        return all_equal(y, 0)
    except RuntimeError:
        return False


def one_workspace_for_two_streams():
    workspace = device_ones()
    y, z = device_ones(), device_ones()
    with torch.npu.stream(first):
        workspace.fill_(3)
        y.copy_(workspace)
    if WITH_WAITS:
        second.wait_stream(first)
    with torch.npu.stream(second):
        workspace.fill_(5)
        z.copy_(workspace)
    return all_equal(y, 3) and all_equal(z, 5)


# ---- host code and host fallbacks --------------------------------------------------------------------

HOST_FUNCTION = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


def callback_that_nothing_waited_for():
    """The host reads the effect of a stream's host function without a wait."""
    done = []
    function = HOST_FUNCTION(lambda _: done.append(1))
    x = device_ones()
    with torch.npu.stream(first):
        x.mul_(3)
    assert_success(CANN.aclrtLaunchHostFunc(handle(first), function, None))
    if WITH_WAITS:
        first.synchronize()
    was_done = bool(done)
    torch.npu.synchronize()
    return was_done


def fallback_that_reads_too_early():
    """exp has no stand-in and runs on the host, which must not hide the missing wait."""
    x = device_ones()
    with torch.npu.stream(first):
        x.mul_(0)
    if WITH_WAITS:
        second.wait_stream(first)
    with torch.npu.stream(second):
        y = x.exp()
    return all_equal(y, 1)


def fallback_that_writes_too_early():
    x, y = device_ones(), device_ones()
    with torch.npu.stream(first):
        x.exp_()
    if WITH_WAITS:
        second.wait_stream(first)
    with torch.npu.stream(second):
        y.copy_(x)
    return all_equal(y, float(torch.ones(1).exp()))


def two_fallbacks():
    x = device_ones()
    with torch.npu.stream(first):
        x.exp_()
    if WITH_WAITS:
        second.wait_stream(first)
    with torch.npu.stream(second):
        y = x.log()
    torch.npu.synchronize()
    return torch.allclose(y.cpu(), torch.ones(COUNT))


# ---- all programs ------------------------------------------------------------------------------------

HELPERS = (device_ones, handle, address, assert_success, all_equal)


def run(programs):
    """Run the program that the command line names, or all, and print the results."""
    by_name = {program.__name__: program for program in programs}
    if WITH_WAITS:
        print(json.dumps({name: bool(program()) for name, program in by_name.items()}))
    else:
        print(json.dumps(bool(by_name[sys.argv[1]]())))


if __name__ == "__main__":
    own = [value for value in list(globals().values()) if getattr(value, "__module__", "") == __name__]
    run(value for value in own if callable(value) and value not in (*HELPERS, run))
