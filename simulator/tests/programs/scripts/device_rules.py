"""Several devices in one process.

usage: device_rules.py LIBRARY [CHECK ...]
"""

import ctypes as C
import os

import numpy as np
from forked_checks import run_checks
from hccl_ranks import (
    CANN,
    IN_DEVICE,
    KERNEL,
    NO_DEVICE,
    OK,
    STREAM_CONTEXT,
    error_text,
    make_stream,
    on_device,
    on_host,
    set_device,
)

RT_INVALID = 107000


def size(count):
    return C.c_size_t(count)


def map_memory(address, handle):
    return CANN.aclrtMapMem(address, size(2 << 20), size(0), handle, C.c_uint64(0))


def check_the_number_of_devices():
    found = C.c_uint32()
    assert CANN.aclrtGetDeviceCount(C.byref(found)) == OK
    assert found.value == 4
    assert CANN.aclrtSetDevice(4) == NO_DEVICE
    assert "deviceId must be 0 to 3 but got 4." in error_text()


# Only the devices before the first character or number that is none count
# (hicann/runtime docs/zh/env_vars/ASCEND_RT_VISIBLE_DEVICES.md).
NONSENSE = (
    ("-1", 0),
    ("9" * 30, 0),
    ("0," + "9" * 30, 1),
    ("\udcff", 0),
    ("0,\udcff", 1),
    ("0,,1", 1),
    ("all", 0),
)


def check_visible_devices():
    CANN.aclrtGetDeviceCount(C.byref(C.c_uint32()))  # a fork reads the environment again
    for text, devices in (
        ("1", 1),
        ("1,2,3", 3),
        ("1, 2,3", 1),
        ("1,3,8", 2),
        ("2,1", 1),
        ("", 0),
        ("x", 0),
        *NONSENSE,
    ):
        reader, writer = os.pipe()
        os.environ["ASCEND_RT_VISIBLE_DEVICES"] = text
        if os.fork() == 0:
            found = C.c_uint32()
            CANN.aclrtGetDeviceCount(C.byref(found))
            os.write(writer, bytes([found.value]))
            os._exit(0)
        os.wait()
        assert os.read(reader, 1)[0] == devices, text


def check_devices_that_can_access_each_other():
    """They need not be set. One beyond 63 is refused, unless the process sees only some devices."""
    can = C.c_int32()
    for visible, devices in ((None, (1, 2, 4, 63, 64)), ("1,2,3", (1, 2, 3, 64))):
        found = [CANN.aclrtDeviceCanAccessPeer(C.byref(can), device, 0) for device in devices]
        beyond = NO_DEVICE if visible else RT_INVALID
        assert found == [OK, OK, *[NO_DEVICE] * (len(devices) - 3), beyond], (visible, found)
        os.environ["ASCEND_RT_VISIBLE_DEVICES"] = "1,2,3"
        if visible is None and os.fork():  # a fork reads the environment again
            assert os.wait()[1] == 0
            return
    os._exit(0)


def check_the_peer_in_a_status_is_a_physical_device():
    """The device itself is one of the process."""
    status = C.c_int32(-1)

    def statuses():
        return [(CANN.aclrtDevicePeerAccessStatus(0, peer, C.byref(status)), status.value) for peer in (1, 2)]

    os.environ["ASCEND_RT_VISIBLE_DEVICES"] = "1,2,3"
    set_device(0)
    assert statuses() == [(OK, 0), (OK, 0)]
    assert CANN.aclrtDeviceEnablePeerAccess(1, 0) == OK
    assert statuses() == [(OK, 0), (OK, 1)]  # device 1 of the process is the physical device 2


def check_memory_belongs_to_a_device():
    free, total, found = C.c_size_t(), C.c_size_t(), []
    set_device(1)
    on_device(np.zeros(1 << 20, np.uint8))
    for device in (0, 1):
        set_device(device)
        assert CANN.aclrtGetMemInfo(1, C.byref(free), C.byref(total)) == OK
        found.append(total.value - free.value)
    assert found == [0, 1 << 20]


def check_a_thread_has_a_device_of_its_own():
    import threading

    set_device(2)
    found = []

    def work():
        device = C.c_int32(-1)
        found.append(CANN.aclrtGetDevice(C.byref(device)))
        CANN.aclrtSetDevice(1)
        CANN.aclrtGetDevice(C.byref(device))
        found.append(device.value)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    device = C.c_int32(-1)
    assert CANN.aclrtGetDevice(C.byref(device)) == OK
    assert (found, device.value) == ([107002, 1], 2)


def check_a_stream_of_another_device_is_refused():
    set_device(0)
    stream, event, size = make_stream(), C.c_void_p(), C.c_size_t(8)
    set_device(1)
    at = on_device(np.zeros(8, np.uint8))
    assert CANN.aclrtCreateEventExWithFlag(C.byref(event), 1) == OK
    assert CANN.aclrtMemsetAsync(at, size, 1, size, stream) == STREAM_CONTEXT
    assert "stream must be one of device 1, the current one, but got stream" in error_text()
    assert CANN.aclrtRecordEvent(event, stream) == STREAM_CONTEXT
    assert CANN.aclrtResetEvent(event, stream) == 207000  # an extended event, checked first
    assert CANN.aclrtDestroyStream(stream) == STREAM_CONTEXT
    value = (C.c_uint32 * 4)(1)
    assert CANN.aclrtSetStreamOverflowSwitch(stream, 1) == STREAM_CONTEXT
    assert CANN.aclrtGetStreamOverflowSwitch(stream, value) == STREAM_CONTEXT
    for attribute in (1, 2, 3):
        assert CANN.aclrtSetStreamAttribute(stream, attribute, value) == STREAM_CONTEXT, attribute


def check_the_streams_of_a_subscribed_thread_have_one_device():
    streams, thread, other = [], C.c_uint64(7), C.c_uint64(8)
    for device in (0, 1):
        set_device(device)
        streams.append(make_stream())
    subscribe = CANN.aclrtSubscribeReport
    assert [subscribe(thread, stream) for stream in streams] == [OK, 107012]
    assert subscribe(other, streams[1]) == OK
    assert subscribe(thread, streams[1]) == 107011  # is checked first
    assert [CANN.aclrtUnSubscribeReport(*pair) for pair in zip((thread, other), streams, strict=True)] == [
        OK
    ] * 2
    assert subscribe(thread, streams[1]) == OK


def check_work_on_memory_of_another_device_fails():
    set_device(0)
    here, size = on_device(np.zeros(8, np.uint8)), C.c_size_t(8)
    set_device(1)
    stream = make_stream()
    assert CANN.aclrtMemsetAsync(here, size, 1, size, stream) == OK
    assert CANN.aclrtSynchronizeStream(stream) == KERNEL
    text = error_text()
    assert "devPtr must be in the memory of device 1, which runs it, but got memory of device 0." in text, (
        text
    )
    assert on_host(here, np.zeros(8, np.uint8)).tolist() == [0] * 8


def check_a_copy_between_devices_needs_peer_access():
    set_device(0)
    here, size = on_device(np.full(8, 7, np.uint8)), C.c_size_t(8)
    set_device(1)
    there, can = on_device(np.zeros(8, np.uint8)), C.c_int32(-1)
    stream = make_stream()

    def statuses():
        copy = (there, size, here, size, IN_DEVICE)
        return CANN.aclrtMemcpy(*copy), CANN.aclrtMemcpyAsync(*copy, stream)

    assert statuses() == (107000, 107000)
    assert "aclrtDeviceEnablePeerAccess on both" in error_text()
    assert CANN.aclrtDeviceCanAccessPeer(C.byref(can), 0, 1) == OK
    assert can.value == 1
    assert CANN.aclrtDeviceEnablePeerAccess(1, 0) == 100000
    assert CANN.aclrtDeviceEnablePeerAccess(0, 0) == OK
    assert statuses() == (107000, 107000)
    set_device(0)
    assert CANN.aclrtDeviceEnablePeerAccess(1, 0) == OK
    set_device(1)
    assert statuses() == (OK, OK)
    assert CANN.aclrtSynchronizeStream(stream) == OK
    assert on_host(there, np.zeros(8, np.uint8)).tolist() == [7] * 8
    assert CANN.aclrtDeviceDisablePeerAccess(0) == OK
    assert statuses() == (107000, 107000)


class PhysicalMemory(C.Structure):
    """aclrtPhysicalMemProp."""

    _fields_ = (
        ("handle", C.c_int), ("allocation", C.c_int), ("attribute", C.c_int), ("device", C.c_uint32),
        ("place", C.c_int), ("reserved", C.c_uint64),
    )  # fmt: skip


def check_the_memory_of_a_device_that_was_closed():
    """The other device's memory stays, and the reserved addresses."""
    page, allocated, handles, ranges = C.c_size_t(2 << 20), [], [], []
    for device in (0, 1):
        set_device(device)
        made, handle, reserved = C.c_void_p(), C.c_void_p(), C.c_void_p()
        assert CANN.aclrtMalloc(C.byref(made), size(8), 0) == OK
        memory = PhysicalMemory(0, 0, 4, device, 1, 0)
        assert CANN.aclrtMallocPhysical(C.byref(handle), page, C.byref(memory), C.c_uint64(0)) == OK
        assert CANN.aclrtReserveMemAddress(C.byref(reserved), page, size(0), None, 0) == OK
        assert map_memory(reserved, handle) == OK
        allocated.append(made), handles.append(handle), ranges.append(reserved)
    while CANN.aclrtResetDevice(1) == OK:
        pass
    assert CANN.aclrtFree(allocated[1]) == RT_INVALID
    assert CANN.aclrtUnmapMem(ranges[1]) == CANN.aclrtFreePhysical(handles[1]) == RT_INVALID
    assert CANN.aclrtReleaseMemAddress(ranges[1]) == OK
    set_device(0)
    for at in (allocated[0], ranges[0]):
        assert CANN.aclrtMemset(at, size(8), 1, size(8)) == OK
    assert CANN.aclrtFree(allocated[0]) == CANN.aclrtUnmapMem(ranges[0]) == OK
    assert CANN.aclrtFreePhysical(handles[0]) == CANN.aclrtReleaseMemAddress(ranges[0]) == OK
    free, total = C.c_size_t(), C.c_size_t()
    set_device(1)
    assert CANN.aclrtGetMemInfo(1, C.byref(free), C.byref(total)) == OK
    assert free.value == total.value


def check_virtual_memory_of_two_devices():
    """A reserved range holds memory of one device. Only aclrtMemcpyAsync copies it to another device."""
    page, handles, ranges = C.c_size_t(2 << 20), [C.c_void_p(), C.c_void_p()], [C.c_void_p(), C.c_void_p()]
    counts = CANN.simulated_cann_calls_beyond_documents
    counts.restype = C.c_char_p
    for device, (handle, reserved) in enumerate(zip(handles, ranges, strict=True)):
        set_device(device)
        memory = PhysicalMemory(0, 0, 4, device, 1, 0)
        assert CANN.aclrtMallocPhysical(C.byref(handle), page, C.byref(memory), C.c_uint64(0)) == OK
        assert CANN.aclrtReserveMemAddress(C.byref(reserved), C.c_size_t(4 << 20), size(0), None, 0) == OK
        assert CANN.aclrtDeviceEnablePeerAccess(1 - device, 0) == OK
    assert map_memory(ranges[0], handles[0]) == OK
    second = C.c_void_p(ranges[0].value + page.value)
    assert map_memory(second, handles[1]) == RT_INVALID
    assert "handle must be memory of the device of the range's other mappings." in error_text()
    assert map_memory(ranges[1], handles[1]) == OK
    copy = (ranges[1], size(8), ranges[0], size(8), IN_DEVICE)
    assert CANN.aclrtMemcpyAsync(*copy, None) == OK
    assert CANN.aclrtMemcpy(ranges[1], size(8), second, size(0), IN_DEVICE) == OK
    assert counts() == b"{}"
    assert CANN.aclrtMemcpy(*copy) == OK
    assert counts() == b'{"aclrtMemcpy between two devices with memory of aclrtReserveMemAddress":1}'
    assert CANN.aclrtUnmapMem(ranges[0]) == OK
    assert map_memory(second, handles[1]) == OK


def check_a_wait_for_an_event_of_another_device():
    """Ascend310P accepts it and does not wait."""
    set_device(0)
    here, event, size = make_stream(), C.c_void_p(), C.c_size_t(8)
    source = on_device(np.zeros(8, np.uint8))
    assert CANN.aclrtCreateEventExWithFlag(C.byref(event), 1) == OK
    assert CANN.aclrtMemsetAsync(source, size, 7, size, here) == OK
    assert CANN.aclrtRecordEvent(event, here) == OK
    set_device(1)
    there, target = make_stream(), on_device(np.zeros(8, np.uint8))
    assert CANN.aclrtStreamWaitEvent(there, event) == OK
    assert CANN.aclrtMemsetAsync(target, size, 1, size, there) == OK
    assert CANN.aclrtSynchronizeStream(there) == OK
    waits = not os.environ.get("ASCEND_SIM_SOC", "").startswith("Ascend310P")
    assert C.string_at(source, 8) == (b"\7" if waits else b"\0") * 8


def check_an_error_stays_on_its_device():
    set_device(1)
    failing, size = make_stream(), C.c_size_t(8)
    assert CANN.aclrtSetStreamFailureMode(failing, 1) == OK
    gone = on_device(np.zeros(8, np.uint8))
    assert CANN.aclrtMemsetAsync(gone, size, 1, size, failing) == OK
    assert CANN.aclrtFree(gone) == OK
    assert CANN.aclrtSynchronizeStream(failing) != OK
    set_device(0)
    stream, at = make_stream(), on_device(np.zeros(8, np.uint8))
    assert CANN.aclrtMemsetAsync(at, size, 1, size, stream) == OK
    assert CANN.aclrtSynchronizeStream(stream) == OK
    set_device(1)
    assert CANN.aclrtSynchronizeDevice() != OK


if __name__ == "__main__":
    run_checks(globals())
