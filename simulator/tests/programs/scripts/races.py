"""Programs with one race each, and the same programs with the missing wait. Both run with several seeds.

usage: races.py NAME   the program with the race
       races.py right  every program without its race, by name

Prints JSON: whether a program's result equals the result with every wait.
"""

from __future__ import annotations

import ctypes
import json
import sys

import torch
import torch_npu  # noqa: F401
from graphs import captured

COUNT = 4096
CANN = ctypes.CDLL("libascend_sim_cann.so")
WITH_WAITS = sys.argv[1] == "right"
TO_DEVICE, TO_HOST, IN_DEVICE = 1, 2, 3

first, second = torch.npu.Stream(), torch.npu.Stream()


def ones():
    """A tensor that every stream may use."""
    x = torch.ones(COUNT, device="npu")
    torch.npu.synchronize()
    return x


def handle(stream):
    return ctypes.c_void_p(stream.npu_stream)


def address(tensor):
    return ctypes.c_void_p(tensor.data_ptr())


def succeeds(status):
    assert status == 0, status


def is_all(tensor, value):
    torch.npu.synchronize()
    return bool((tensor.cpu() == value).all())


# ---- missing and wrong waits -------------------------------------------------------------------------


def missing_wait_after_a_stand_in():
    x, y = ones(), ones()
    with torch.npu.stream(first):
        x.mul_(3)
    if WITH_WAITS:
        second.wait_stream(first)
    with torch.npu.stream(second):
        y.copy_(x)
    return is_all(y, 3)


def event_on_the_wrong_stream():
    x, y = ones(), ones()
    event = torch.npu.Event()
    with torch.npu.stream(first):
        x.mul_(3)
    event.record(first if WITH_WAITS else second)
    second.wait_event(event)
    with torch.npu.stream(second):
        y.copy_(x)
    return is_all(y, 3)


def event_before_the_producer():
    x, y = ones(), ones()
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
    return is_all(y, 3)


def wait_on_the_wrong_stream():
    third = torch.npu.Stream()
    x, y = ones(), ones()
    event = torch.npu.Event()
    with torch.npu.stream(first):
        x.mul_(3)
        event.record()
    (second if WITH_WAITS else third).wait_event(event)
    with torch.npu.stream(second):
        y.copy_(x)
    return is_all(y, 3)


def wait_after_the_consumer():
    x, y = ones(), ones()
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
    return is_all(y, 3)


def event_that_is_recorded_again_too_late():
    """A wait binds to the last record before the wait."""
    x, y = ones(), ones()
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
    return is_all(y, 3)


def wait_for_an_event_that_nothing_recorded():
    x, y = ones(), ones()
    event = torch.npu.Event()
    with torch.npu.stream(first):
        x.mul_(3)
    if WITH_WAITS:
        event.record(first)
    second.wait_event(event)
    with torch.npu.stream(second):
        y.copy_(x)
    return is_all(y, 3)


# ---- writes ------------------------------------------------------------------------------------------


def write_after_read():
    x, y = ones(), ones()
    with torch.npu.stream(first):
        y.copy_(x)
    if WITH_WAITS:
        second.wait_stream(first)
    with torch.npu.stream(second):
        x.mul_(3)
    return is_all(y, 1)


def two_writes_in_place():
    x = ones()
    with torch.npu.stream(first):
        x.add_(1)
    if WITH_WAITS:
        second.wait_stream(first)
    with torch.npu.stream(second):
        x.mul_(3)
    return is_all(x, 6)


def overlapping_halves():
    """The slices share one element."""
    x = ones()
    middle = COUNT // 2
    with torch.npu.stream(first):
        x[: middle + (0 if WITH_WAITS else 1)].mul_(3)
    with torch.npu.stream(second):
        x[middle:].add_(4)
    torch.npu.synchronize()
    return x.cpu()[middle].item() == 5


# ---- copies and the host -----------------------------------------------------------------------------


def source_that_the_host_changes_too_early():
    x = ones()
    host = torch.full((COUNT,), 5.0).pin_memory()
    with torch.npu.stream(first):
        x.copy_(host, non_blocking=True)
    if WITH_WAITS:
        first.synchronize()
    host.fill_(9)
    return is_all(x, 5)


def pageable_source_that_is_gone():
    x = ones()
    host = (ctypes.c_float * COUNT)(*[5.0] * COUNT)
    size = ctypes.c_size_t(COUNT * 4)
    succeeds(CANN.aclrtMemcpyAsync(address(x), size, host, size, TO_DEVICE, handle(first)))
    if WITH_WAITS:
        first.synchronize()
    ctypes.memset(host, 0, COUNT * 4)
    return is_all(x, 5)


def source_that_the_host_changes_after_a_replay():
    """A host fallback writes no host memory, not even in a graph, so the source is still compared."""
    x, y = ones(), ones()
    graph, _ = captured(lambda: y.exp_())
    torch.npu.synchronize()
    host = (ctypes.c_float * COUNT)(*[5.0] * COUNT)
    size = ctypes.c_size_t(COUNT * 4)
    succeeds(CANN.aclrtMemcpyAsync(address(x), size, host, size, TO_DEVICE, handle(first)))
    graph.replay()
    handle(torch.npu.current_stream())  # behind torch_npu's queue
    if WITH_WAITS:
        first.synchronize()
    ctypes.memset(host, 0, COUNT * 4)
    return is_all(x, 5)


def pinned_memory_that_is_freed_too_early():
    x = ones()
    host, size = ctypes.c_void_p(), ctypes.c_size_t(COUNT * 4)
    succeeds(CANN.aclrtMallocHost(ctypes.byref(host), size))
    ctypes.memset(host, 0, COUNT * 4)
    succeeds(CANN.aclrtMemcpyAsync(address(x), size, host, size, TO_DEVICE, handle(first)))
    if WITH_WAITS:
        first.synchronize()
    succeeds(CANN.aclrtFreeHost(host))
    return is_all(x, 0)


def pinned_memory_between_streams():
    x, y, host = ones() * 3, ones(), torch.zeros(COUNT).pin_memory()
    torch.npu.synchronize()
    with torch.npu.stream(first):
        host.copy_(x, non_blocking=True)
    if WITH_WAITS:
        second.wait_stream(first)
    with torch.npu.stream(second):
        y.copy_(host, non_blocking=True)
    return is_all(y, 3)


def pinned_memory_that_two_streams_write():
    x, y, host = ones(), ones() * 3, torch.zeros(COUNT).pin_memory()
    torch.npu.synchronize()
    with torch.npu.stream(first):
        host.copy_(x, non_blocking=True)
    if WITH_WAITS:
        second.wait_stream(first)
    with torch.npu.stream(second):
        host.copy_(y, non_blocking=True)
    return is_all(host, 3)


def read_of_the_host_without_synchronization():
    x = ones()
    host = torch.zeros(COUNT).pin_memory()
    with torch.npu.stream(first):
        x.mul_(3)
        host.copy_(x, non_blocking=True)
    if WITH_WAITS:
        first.synchronize()
    return bool((host == 3).all())


def synchronous_copy_beside_a_stream():
    """aclrtMemcpy does not wait for a stream."""
    x = ones()
    host = (ctypes.c_float * COUNT)()
    with torch.npu.stream(first):
        x.mul_(3)
    stream = handle(first)  # behind torch_npu's queue
    if WITH_WAITS:
        first.synchronize()
    size = ctypes.c_size_t(COUNT * 4)
    succeeds(CANN.aclrtMemcpy(host, size, address(x), size, TO_HOST))
    assert stream
    return all(value == 3 for value in host)


def memset_beside_a_stream():
    x, y = ones(), ones()
    size = ctypes.c_size_t(COUNT * 4)
    succeeds(CANN.aclrtMemsetAsync(address(x), size, 0, size, handle(first)))
    if WITH_WAITS:
        second.wait_stream(first)
    with torch.npu.stream(second):
        y.copy_(x)
    return is_all(y, 0)


# ---- memory that is used again -----------------------------------------------------------------------


def free_while_another_stream_reads():
    """Without record_stream, the next tensor of the block's stream gets the block."""
    y = ones()
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
    return is_all(y, 3) and is_all(z, 8)


def device_memory_that_is_freed_too_early():
    y = ones()
    memory, size = ctypes.c_void_p(), ctypes.c_size_t(COUNT * 4)
    succeeds(CANN.aclrtMalloc(ctypes.byref(memory), size, 0))
    succeeds(CANN.aclrtMemset(memory, size, 0, size))
    succeeds(CANN.aclrtMemcpyAsync(address(y), size, memory, size, IN_DEVICE, handle(first)))
    if WITH_WAITS:
        first.synchronize()
    succeeds(CANN.aclrtFree(memory))
    try:
        return is_all(y, 0)
    except RuntimeError:
        return False


def one_workspace_for_two_streams():
    workspace = ones()
    y, z = ones(), ones()
    with torch.npu.stream(first):
        workspace.fill_(3)
        y.copy_(workspace)
    if WITH_WAITS:
        second.wait_stream(first)
    with torch.npu.stream(second):
        workspace.fill_(5)
        z.copy_(workspace)
    return is_all(y, 3) and is_all(z, 5)


# ---- host code and host fallbacks --------------------------------------------------------------------

HOST_FUNCTION = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


def callback_that_nothing_waited_for():
    """The host reads the effect of a stream's host function without a wait."""
    done = []
    function = HOST_FUNCTION(lambda _: done.append(1))
    x = ones()
    with torch.npu.stream(first):
        x.mul_(3)
    succeeds(CANN.aclrtLaunchHostFunc(handle(first), function, None))
    if WITH_WAITS:
        first.synchronize()
    was_done = bool(done)
    torch.npu.synchronize()
    return was_done


def fallback_that_reads_too_early():
    """exp has no stand-in and runs on the host, which must not hide the missing wait."""
    x = ones()
    with torch.npu.stream(first):
        x.mul_(0)
    if WITH_WAITS:
        second.wait_stream(first)
    with torch.npu.stream(second):
        y = x.exp()
    return is_all(y, 1)


def fallback_that_writes_too_early():
    x, y = ones(), ones()
    with torch.npu.stream(first):
        x.exp_()
    if WITH_WAITS:
        second.wait_stream(first)
    with torch.npu.stream(second):
        y.copy_(x)
    return is_all(y, float(torch.ones(1).exp()))


def two_fallbacks():
    x = ones()
    with torch.npu.stream(first):
        x.exp_()
    if WITH_WAITS:
        second.wait_stream(first)
    with torch.npu.stream(second):
        y = x.log()
    torch.npu.synchronize()
    return torch.allclose(y.cpu(), torch.ones(COUNT))


# ---- all programs ------------------------------------------------------------------------------------

HELPERS = (ones, handle, address, succeeds, is_all)


def run(programs):
    """Run the program that the command line names, or all, and print the results."""
    by_name = {program.__name__: program for program in programs}
    found = {name: bool(program()) for name, program in by_name.items() if WITH_WAITS or name == sys.argv[1]}
    print(json.dumps(found if WITH_WAITS else found[sys.argv[1]]))


if __name__ == "__main__":
    own = [one for one in list(globals().values()) if getattr(one, "__module__", "") == __name__]
    run(one for one in own if callable(one) and one not in (*HELPERS, run))
