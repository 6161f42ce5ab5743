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

CONTEXT_NULL = 107002


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


def check_a_device_that_accesses_another_one_is_set():
    can = C.c_int32()
    set_device(1)
    assert CANN.aclrtDeviceCanAccessPeer(C.byref(can), 1, 0) == OK
    assert CANN.aclrtDeviceCanAccessPeer(C.byref(can), 2, 0) == CONTEXT_NULL
    assert CANN.aclrtDeviceCanAccessPeer(C.byref(can), 4, 0) == CONTEXT_NULL


def check_memory_belongs_to_a_device():
    free, total, found = C.c_size_t(), C.c_size_t(), []
    set_device(1)
    on_device(np.zeros(1 << 20, np.uint8))
    for device in (0, 1):
        set_device(device)
        assert CANN.aclrtGetMemInfo(0, C.byref(free), C.byref(total)) == OK
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
