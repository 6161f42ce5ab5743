"""Ranks of HCCL and memory of devices through C and without torch, for scripts of checks.

A rank is a process, or a device of one process. The first argument of a script is the library, the others are
the checks to run.
"""

import ctypes as C
import json
import os
import sys
import traceback

import numpy as np

CANN = C.CDLL(sys.argv[1])
CANN.aclGetRecentErrMsg.restype = C.c_char_p
CANN.HcclGetErrorString.restype = C.c_char_p

OK, PARA, PTR, NOT_SUPPORTED, TIMEOUT, RUNTIME, REMOTE = 0, 1, 2, 5, 9, 15, 21
RANK_FAILED, KERNEL, STREAM_CONTEXT, NO_DEVICE = 507048, 507035, 107003, 107001
SUM, PROD, MAX, MIN = range(4)
TO_DEVICE, TO_HOST, IN_DEVICE = 1, 2, 3
INT8, INT16, INT32, FLOAT16, FLOAT32, INT64, UINT64, UINT8 = range(8)
FLOAT64, BFLOAT16 = 10, 11
NUMPY_TYPES = {INT8: np.int8, INT16: np.int16, INT32: np.int32, FLOAT16: np.float16, FLOAT32: np.float32,
               INT64: np.int64, UINT64: np.uint64, UINT8: np.uint8, FLOAT64: np.float64}  # fmt: skip
ROOT_BYTES = 4108
SEND, RECEIVE = 0, 1
IMMEDIATE = os.environ.get("ASCEND_SIM_STREAMS") == "immediate"


class Item(C.Structure):
    _fields_ = (
        ("kind", C.c_int), ("buffer", C.c_void_p), ("count", C.c_uint64), ("type", C.c_int),
        ("rank", C.c_uint32),
    )  # fmt: skip


def error_text():
    return (CANN.aclGetRecentErrMsg() or b"").decode()


def set_device(device):
    assert CANN.aclrtSetDevice(device) == OK, error_text()


def make_stream():
    stream = C.c_void_p()
    assert CANN.aclrtCreateStream(C.byref(stream)) == OK
    return stream


def on_device(array):
    """Return device memory with the contents of the array."""
    array = np.ascontiguousarray(array)
    made = C.c_void_p()
    assert CANN.aclrtMalloc(C.byref(made), C.c_size_t(max(array.nbytes, 1)), 0) == OK
    if array.nbytes:
        copied = CANN.aclrtMemcpy(made, C.c_size_t(array.nbytes), array.ctypes.data_as(C.c_void_p),
                                  C.c_size_t(array.nbytes), TO_DEVICE)  # fmt: skip
        assert copied == OK, error_text()
    return made


def on_host(address, like):
    """Return the contents of device memory as an array of this shape and dtype."""
    array = np.empty_like(like)
    size = C.c_size_t(array.nbytes)
    assert CANN.aclrtMemcpy(array.ctypes.data_as(C.c_void_p), size, address, size, TO_HOST) == OK
    return array


def after(address, bytes_count):
    return C.c_void_p(address.value + bytes_count)


def counts(*numbers):
    return (C.c_uint64 * len(numbers))(*numbers)


class Rank:
    """A rank: its communicator and a stream of its device."""

    def __init__(self, rank, size, comm, device):
        self.rank, self.size, self.comm, self.device = rank, size, comm, device
        self.stream = make_stream()

    def call(self, name, *arguments):
        return getattr(CANN, name)(*arguments, self.comm, self.stream)

    def run(self, name, *arguments):
        assert self.call(name, *arguments) == OK, error_text()

    def synchronize(self):
        return CANN.aclrtSynchronizeStream(self.stream)

    def all_reduce(self, value, op=SUM, kind=FLOAT32):
        """Reduce an array and return the result."""
        sent, received = on_device(value), on_device(np.zeros_like(value))
        self.run("HcclAllReduce", sent, received, C.c_uint64(value.size), kind, op)
        assert self.synchronize() == OK, error_text()
        return on_host(received, value)


def root_info():
    root = (C.c_char * ROOT_BYTES)()
    assert CANN.HcclGetRootInfo(root) == OK, error_text()
    return root


def join(root, rank, size, device=None):
    """Return the status of joining, and the rank."""
    set_device(rank if device is None else device)
    comm = C.c_void_p()
    status = CANN.HcclCommInitRootInfo(size, root, rank, C.byref(comm))
    return status, Rank(rank, size, comm, rank) if status == OK else None


def in_processes(size, work):
    """Run ``work(rank)`` for each rank in a process of its own. Return the results, or tracebacks."""
    set_device(0)
    root = root_info()
    readers = []
    for rank in range(size):
        reader, writer = os.pipe()
        if os.fork() == 0:
            try:
                status, joined = join(root, rank, size)
                assert status == OK, error_text()
                result = work(joined)
            except BaseException:
                result = traceback.format_exc()
            os.write(writer, json.dumps(result).encode())
            os._exit(0)
        os.close(writer)
        readers.append(reader)
    results = []
    for reader in readers:
        with os.fdopen(reader) as file:
            text = file.read()
        results.append(json.loads(text) if text else None)
    for _ in range(size):
        os.wait()
    return results


def in_one_process(size):
    """Return ranks that are devices of this process."""
    comms = (C.c_void_p * size)()
    set_device(0)
    assert CANN.HcclCommInitAll(size, (C.c_int32 * size)(*range(size)), comms) == OK, error_text()
    ranks = []
    for rank in range(size):
        set_device(rank)
        ranks.append(Rank(rank, size, C.c_void_p(comms[rank]), rank))
    return ranks


def on_all(ranks, name, arguments):
    """Call a function on every rank with its arguments, then wait for all of them."""
    for rank in ranks:
        set_device(rank.device)
        rank.run(name, *arguments[rank])
    for rank in ranks:
        set_device(rank.device)
        assert rank.synchronize() == OK, error_text()


def value_of(rank, kind, *shape):
    """Return numbers that differ by rank; sums and products of four of them are exact."""
    generator = np.random.default_rng(rank)
    low = 0 if kind in (UINT8, UINT64) else -3
    return generator.integers(low, 4, shape).astype(NUMPY_TYPES[kind])
