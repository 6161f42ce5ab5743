"""HCCL and several devices through C and without torch: collectives compared with NumPy, wrong calls, ranks
that end. Each check runs in a separate process. A rank is a process, or a device of one process.

usage: hccl_rules.py LIBRARY
"""

import ctypes as C
import json
import os
import sys
import time
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


# ---- collectives, in one process and in several ------------------------------------------------------


def check_all_reduce_of_every_type_and_operation():
    operations = {SUM: np.sum, PROD: np.prod, MAX: np.max, MIN: np.min}
    for size in (1, 2, 4):
        ranks = in_one_process(size)
        for kind in (INT8, INT16, INT32, INT64, FLOAT16, FLOAT32):
            for op, reduce in operations.items():
                if kind == INT16 and op == PROD:
                    continue
                for length in (1, 5, 300):
                    values = [value_of(rank, kind, length) for rank in range(size)]
                    sent, received = {}, {}
                    for rank in ranks:
                        set_device(rank.device)
                        sent[rank] = on_device(values[rank.rank])
                        received[rank] = on_device(np.zeros_like(values[0]))
                    count = C.c_uint64(length)
                    on_all(
                        ranks, "HcclAllReduce", {r: (sent[r], received[r], count, kind, op) for r in ranks}
                    )
                    expected = reduce(np.stack(values), axis=0).astype(values[0].dtype)
                    for rank in ranks:
                        assert np.array_equal(on_host(received[rank], expected), expected), (kind, op, length)
                        set_device(rank.device)
                        assert CANN.aclrtFree(sent[rank]) == OK
                        assert CANN.aclrtFree(received[rank]) == OK


def check_a_sum_of_halves_is_rounded_after_each_step():
    values = [np.array([value], np.float16) for value in (2048, 1, 1, -2048)]
    found = in_processes(4, lambda rank: rank.all_reduce(values[rank.rank], kind=FLOAT16).tolist())
    assert found == [[0.0]] * 4, found


def check_bfloat16_is_rounded_to_nearest_even():
    def work(rank):
        value = np.array([0x3F80 if rank.rank == 0 else 0x3B80, 0x4000], np.uint16)  # 1 + 2^-8, 2 + 2
        return rank.all_reduce(value, kind=BFLOAT16).tolist()

    found = in_processes(2, work)
    assert found == [[0x3F80, 0x4080]] * 2, found


def check_not_a_number_stays():
    def work(rank):
        value = np.array([np.nan if rank.rank == 1 else 1.0, 2.0], np.float32)
        return [np.isnan(rank.all_reduce(value, op)).tolist() for op in (SUM, PROD, MAX, MIN)]

    assert in_processes(2, work) == [[[True, False]] * 4] * 2


def check_operations_that_move_data():
    size, length, kinds = 4, 6, (INT8, UINT8, INT16, INT32, INT64, UINT64, FLOAT16, FLOAT32, FLOAT64)

    def work(rank):
        for kind in kinds:
            all_values = np.stack([value_of(other, kind, size * length) for other in range(size)])
            value, part = all_values[rank.rank], all_values[rank.rank, :length]
            count = C.c_uint64(length)

            def run(name, sent, like, *arguments, kind=kind, count=count):
                source, target = on_device(sent), on_device(np.zeros_like(like))
                rank.run(name, source, target, count, kind, *arguments)
                assert rank.synchronize() == OK, error_text()
                return on_host(target, like)

            gathered = run("HcclAllGather", part, np.concatenate([part] * size))
            assert np.array_equal(gathered, all_values[:, :length].reshape(-1)), kind
            scattered = run("HcclScatter", value, part, 2)
            assert np.array_equal(scattered, all_values[2].reshape(size, length)[rank.rank]), kind
            data = on_device(part)
            rank.run("HcclBroadcast", data, count, kind, 1)
            assert rank.synchronize() == OK
            assert np.array_equal(on_host(data, part), all_values[1, :length]), kind
            source, target = on_device(value), on_device(np.zeros_like(value))
            rank.run("HcclAlltoAll", source, count, kind, target, count, kind)
            assert rank.synchronize() == OK
            expected = all_values.reshape(size, size, length)[:, rank.rank].reshape(-1)
            assert np.array_equal(on_host(target, value), expected), kind
        return "ok"

    assert in_processes(size, work) == ["ok"] * size


def check_reduce_and_reduce_scatter():
    size, length = 4, 6

    def work(rank):
        all_values = np.stack([value_of(other, INT32, size * length) for other in range(size)])
        source, part = on_device(all_values[rank.rank]), np.zeros(length, np.int32)
        target = on_device(part)
        rank.run("HcclReduceScatter", source, target, C.c_uint64(length), INT32, SUM)
        assert rank.synchronize() == OK
        expected = all_values.sum(0, dtype=np.int32).reshape(size, length)
        assert np.array_equal(on_host(target, part), expected[rank.rank])
        kept = on_device(part + 9)
        rank.run("HcclReduce", source, kept, C.c_uint64(length), INT32, SUM, 2)
        assert rank.synchronize() == OK
        assert np.array_equal(on_host(kept, part), expected[0] if rank.rank == 2 else part + 9)
        return "ok"

    assert in_processes(size, work) == ["ok"] * size


def check_counts_that_differ_by_rank():
    def work(rank):
        sent = [rank.rank + 1, rank.rank + 3]  # to rank 0, to rank 1
        received = [rank.rank * 2 + 1, rank.rank * 2 + 2]
        value = np.arange(sum(sent), dtype=np.float32) + 100 * rank.rank
        source, target = on_device(value), on_device(np.zeros(sum(received), np.float32))
        sending = (counts(*sent), counts(0, sent[0]), FLOAT32)
        receiving = (counts(*received), counts(0, received[0]), FLOAT32)
        rank.run("HcclAlltoAllV", source, *sending, target, *receiving)
        matrix_target = on_device(np.zeros(sum(received), np.float32))
        rank.run("HcclAlltoAllVC", source, counts(1, 3, 2, 4), FLOAT32, matrix_target, FLOAT32)
        assert rank.synchronize() == OK, error_text()
        found = [on_host(at, np.zeros(sum(received), np.float32)).tolist() for at in (target, matrix_target)]
        return found

    expected = [[0.0, 100.0, 101.0], [1.0, 2.0, 3.0, 102.0, 103.0, 104.0, 105.0]]
    assert in_processes(2, work) == [[expected[0]] * 2, [expected[1]] * 2]


def check_counts_that_do_not_match():
    def work(rank):
        source, target = on_device(np.zeros(4, np.float32)), on_device(np.zeros(4, np.float32))
        received = counts(2, 1) if rank.rank == 0 else counts(2, 2)
        rank.run("HcclAlltoAllV", source, counts(2, 2), counts(0, 2), FLOAT32, target, received, counts(0, 2),
                 FLOAT32)  # fmt: skip
        return [rank.synchronize(), error_text()]

    status, text = in_processes(2, work)[0]
    assert status == RANK_FAILED
    assert "recvCounts[1] of rank 0 must be the 2 elements that rank 1 sends but got 1." in text, text


def check_sends_and_receives():
    def work(rank):
        value, other = np.arange(8, dtype=np.float32) + 10 * rank.rank, 1 - rank.rank
        sent, received = on_device(value), on_device(np.zeros_like(value))
        for kind in (SEND, RECEIVE) if rank.rank == 0 else (RECEIVE, SEND):
            name, at = ("HcclSend", sent) if kind == SEND else ("HcclRecv", received)
            rank.run(name, at, C.c_uint64(8), FLOAT32, other)
        assert rank.synchronize() == OK
        first = on_host(received, value).tolist()
        both = (Item * 2)(
            Item(SEND, sent.value, 8, FLOAT32, other), Item(RECEIVE, received.value, 4, FLOAT32, other)
        )
        both[0].count = 4
        CANN.aclrtMemset(received, C.c_size_t(32), 0, C.c_size_t(32))
        rank.run("HcclBatchSendRecv", both, 2)
        assert rank.synchronize() == OK
        return [first, on_host(received, value).tolist()]

    found = in_processes(2, work)
    for rank in range(2):
        value = [float(10 * (1 - rank) + i) for i in range(8)]
        assert found[rank] == [value, value[:4] + [0.0] * 4], found


def check_calls_of_a_group_do_not_wait_for_each_other():
    def work(rank):
        value, other = np.arange(8, dtype=np.float32) + 10 * rank.rank, 1 - rank.rank
        sent, received = on_device(value), on_device(np.zeros_like(value))
        assert CANN.HcclGroupStart() == OK
        assert CANN.HcclGroupStart() == OK
        rank.run("HcclSend", sent, C.c_uint64(8), FLOAT32, other)  # outside of a group this waits for ever
        assert CANN.HcclGroupEnd() == OK
        rank.run("HcclRecv", received, C.c_uint64(8), FLOAT32, other)
        assert CANN.HcclGroupEnd() == OK
        assert CANN.HcclGroupEnd() == PARA
        assert rank.synchronize() == OK
        return on_host(received, value).tolist()

    expected = [[float(10 * (1 - rank) + i) for i in range(8)] for rank in range(2)]
    assert in_processes(2, work) == expected


def check_a_send_waits_for_the_receive():
    def work(rank):
        at = on_device(np.ones(4, np.float32))
        if rank.rank == 0:
            rank.run("HcclSend", at, C.c_uint64(4), FLOAT32, 1)
            assert rank.synchronize() == OK
        else:
            time.sleep(0.5)
            rank.run("HcclRecv", at, C.c_uint64(4), FLOAT32, 0)
            began = time.monotonic()
            assert rank.synchronize() == OK
            return [began]
        return [time.monotonic()]

    ended, began = in_processes(2, work)
    assert ended[0] > began[0] - 0.05, (ended, began)


# ---- order -------------------------------------------------------------------------------------------


def check_a_collective_runs_in_the_order_of_its_stream():
    def work(rank):
        at = on_device(np.zeros(4, np.int8))
        size = C.c_size_t(4)
        for value in range(20):
            CANN.aclrtMemsetAsync(at, size, value, size, rank.stream)
            rank.run("HcclAllReduce", at, at, C.c_uint64(4), INT8, SUM)
        assert rank.synchronize() == OK
        return on_host(at, np.zeros(4, np.int8)).tolist()

    assert in_processes(2, work) == [[38] * 4] * 2


def check_another_stream_without_a_wait_is_a_race():
    def work(rank):
        at, other, size = on_device(np.zeros(4, np.int8)), make_stream(), C.c_size_t(4)
        rank.run("HcclAllReduce", at, at, C.c_uint64(4), INT8, SUM)
        CANN.aclrtMemsetAsync(at, size, 1, size, other)
        assert rank.synchronize() == OK
        assert CANN.aclrtSynchronizeStream(other) == OK
        return "ok"

    assert in_processes(2, work) == ["ok"] * 2


def check_communicators_on_different_streams_do_not_block_each_other():
    """Rank 0 waits for its operations in one order, rank 1 in the other one."""
    set_device(0)
    root = root_info()

    def work(rank):
        status, second = join(root, rank.rank, 2)
        assert status == OK, error_text()
        pairs = [(rank, on_device(np.ones(4, np.float32))), (second, on_device(np.ones(4, np.float32)))]
        for one, at in pairs:
            one.run("HcclAllReduce", at, at, C.c_uint64(4), FLOAT32, SUM)
        for one, _ in pairs if rank.rank == 0 else pairs[::-1]:
            assert one.synchronize() == OK
        return [on_host(at, np.zeros(4, np.float32)).tolist() for _, at in pairs]

    assert in_processes(2, work) == [[[2.0] * 4] * 2] * 2


def check_a_queued_collective_runs_while_the_host_does_something_else():
    """Rank 1 does not wait for its stream before rank 0 has its result."""
    reader, writer = os.pipe()

    def work(rank):
        at = on_device(np.ones(4, np.float32))
        rank.run("HcclAllReduce", at, at, C.c_uint64(4), FLOAT32, SUM)
        if rank.rank == 0:
            assert rank.synchronize() == OK
            os.write(writer, b"done")
        else:
            assert os.read(reader, 4) == b"done"
        assert rank.synchronize() == OK
        return on_host(at, np.zeros(4, np.float32)).tolist()

    assert in_processes(2, work) == [[2.0] * 4] * 2


# ---- wrong calls -------------------------------------------------------------------------------------


def refusal(rank, name, *arguments):
    return rank.call(name, *arguments), error_text()


def check_arguments_that_are_refused():
    rank = in_one_process(2)[0]
    set_device(0)
    at, other = on_device(np.zeros(16, np.float32)), on_device(np.zeros(16, np.float32))
    on_the_host = np.zeros(16, np.float32).ctypes.data_as(C.c_void_p)
    count, reduce = C.c_uint64(8), "HcclAllReduce"
    for arguments, status, rule in (
        ((None, other, count, FLOAT32, SUM), PTR, "sendBuf must not be null."),
        ((at, None, count, FLOAT32, SUM), PTR, "recvBuf must not be null."),
        ((at, on_the_host, count, FLOAT32, SUM), PARA, "recvBuf must be device memory."),
        (
            (at, other, C.c_uint64(17), FLOAT32, SUM),
            PARA,
            "sendBuf must stay inside its allocation of 64 bytes",
        ),
        (
            (after(at, 2), other, count, FLOAT32, SUM),
            PARA,
            "sendBuf must be aligned to the 4 bytes of float32.",
        ),
        ((at, after(at, 4), count, FLOAT32, SUM), PARA, "sendBuf and recvBuf must not overlap."),
        ((at, other, count, UINT8, SUM), NOT_SUPPORTED, "dataType must be one that the operation has on"),
        ((at, other, count, FLOAT64, SUM), NOT_SUPPORTED, "but got float64 (10)."),
        ((at, other, count, 99, SUM), NOT_SUPPORTED, "but got a type that does not exist (99)."),
        ((at, other, count, INT16, PROD), NOT_SUPPORTED, "op must be one that int16 has on"),
        ((at, other, count, BFLOAT16, PROD), NOT_SUPPORTED, "but got prod."),
        ((at, other, count, FLOAT32, 4), NOT_SUPPORTED, "op must be 0 to 3 but got 4."),
    ):
        found = refusal(rank, reduce, *arguments)
        assert found[0] == status, (arguments, found)
        assert rule in found[1], (rule, found)
    found = refusal(rank, "HcclBroadcast", at, count, FLOAT32, 2)
    assert found[0] == PARA
    assert "root must be less than the 2 ranks but got 2." in found[1]
    assert refusal(rank, "HcclSend", at, count, FLOAT32, 0)[0] == PARA
    assert refusal(rank, "HcclAlltoAll", at, count, FLOAT32, at, count, FLOAT32)[0] == PARA
    assert refusal(rank, "HcclAlltoAll", at, count, FLOAT32, other, C.c_uint64(4), FLOAT32)[0] == PARA
    assert rank.synchronize() == OK


def check_a_null_stream_or_communicator_is_refused():
    rank = in_one_process(2)[0]
    set_device(0)
    at, count = on_device(np.zeros(8, np.float32)), C.c_uint64(8)
    assert CANN.HcclAllReduce(at, at, count, FLOAT32, SUM, rank.comm, None) == PTR
    assert CANN.HcclAllReduce(at, at, count, FLOAT32, SUM, None, rank.stream) == PTR
    assert CANN.HcclAllReduce(at, at, count, FLOAT32, SUM, at, rank.stream) == PARA
    assert CANN.HcclAllReduce(at, at, count, FLOAT32, SUM, rank.comm, at) == RUNTIME
    assert CANN.HcclAllReduce(None, None, C.c_uint64(0), 99, 99, None, None) == OK


def check_memory_and_streams_of_another_device_are_refused():
    first, second = in_one_process(2)
    set_device(0)
    here = on_device(np.zeros(8, np.float32))
    set_device(1)
    there, count = on_device(np.zeros(8, np.float32)), C.c_uint64(8)
    status, text = refusal(second, "HcclAllReduce", here, there, count, FLOAT32, SUM)
    assert status == PARA
    assert "sendBuf must be memory of device 1, that of comm, but got device 0." in text
    assert CANN.HcclAllReduce(there, there, count, FLOAT32, SUM, second.comm, first.stream) == RUNTIME
    assert CANN.HcclAllReduce(here, here, count, FLOAT32, SUM, first.comm, second.stream) == RUNTIME


def check_variable_gathers_need_several_servers_on_910b():
    rank = in_one_process(2)[0]
    set_device(0)
    at, other, one = on_device(np.zeros(8, np.float32)), on_device(np.zeros(8, np.float32)), C.c_uint64(1)
    gather = (at, one, other, counts(1, 1), counts(0, 1), FLOAT32)
    scatter = (at, counts(1, 1), counts(0, 1), other, one, FLOAT32, SUM)
    for name, arguments in (("HcclAllGatherV", gather), ("HcclReduceScatterV", scatter)):
        status, text = refusal(rank, name, *arguments)
        assert status == NOT_SUPPORTED
        assert "several servers" in text


def check_calls_that_differ_by_rank_fail_with_both_calls():
    def work(rank):
        at = on_device(np.zeros(16, np.float32))
        rank.run("HcclAllReduce", at, at, C.c_uint64(8 + rank.rank), FLOAT32, SUM)
        status, text, error = rank.synchronize(), error_text(), C.c_int(-1)
        assert CANN.HcclGetCommAsyncError(rank.comm, C.byref(error)) == OK
        rank.call("HcclAllReduce", at, at, C.c_uint64(8), FLOAT32, SUM)
        return [status, text, error.value, rank.synchronize()]

    for status, text, error, later in in_processes(2, work):
        assert (status, error, later) == (RANK_FAILED, PARA, RANK_FAILED)
        assert "ranks must make the same call but got HcclAllReduce of" in text, text
        assert "8 float32, sum on rank 0" in text, text
        assert "9 float32, sum on rank 1" in text, text


def check_a_receive_of_another_size_fails():
    def work(rank):
        at = on_device(np.zeros(16, np.float32))
        if rank.rank == 0:
            rank.run("HcclSend", at, C.c_uint64(8), FLOAT32, 1)
        else:
            rank.run("HcclRecv", at, C.c_uint64(8), INT32, 0)
        return [rank.synchronize(), error_text()]

    for status, text in in_processes(2, work):
        assert status == RANK_FAILED
        assert "a send of 8 float32 on rank 0" in text, text
        assert "a receive of 8 int32 on rank 1" in text, text


def check_functions_that_are_not_simulated_name_themselves():
    rank = in_one_process(1)[0]
    assert CANN.HcclCommSuspend(rank.comm) == NOT_SUPPORTED
    assert "HcclCommSuspend is not simulated." in error_text()


# ---- communicators -----------------------------------------------------------------------------------


def check_the_properties_of_a_communicator():
    first, second = in_one_process(2)
    rank, size, names = C.c_uint32(9), C.c_uint32(9), []
    for one in (first, second):
        assert CANN.HcclGetRankId(one.comm, C.byref(rank)) == OK
        assert CANN.HcclGetRankSize(one.comm, C.byref(size)) == OK
        assert (rank.value, size.value) == (one.rank, 2)
        name = (C.c_char * 128)()
        assert CANN.HcclGetCommName(one.comm, name) == OK
        names.append(name.value)
    assert names[0] == names[1] != b""
    assert CANN.HcclCommDestroy(first.comm) == OK
    assert CANN.HcclGetRankId(first.comm, C.byref(rank)) == PARA
    assert CANN.HcclCommDestroy(first.comm) == PARA
    assert CANN.HcclCommDestroy(None) == PTR
    assert CANN.HcclGetErrorString(PARA) == b"parameter error"


def check_wrong_arguments_of_joining():
    set_device(0)
    root, comm = root_info(), C.c_void_p()
    assert CANN.HcclCommInitRootInfo(2, root, 2, C.byref(comm)) == PARA
    assert CANN.HcclCommInitRootInfo(0, root, 0, C.byref(comm)) == PARA
    assert CANN.HcclCommInitRootInfo(1, None, 0, C.byref(comm)) == PTR
    assert CANN.HcclCommInitRootInfo(1, (C.c_char * ROOT_BYTES)(), 0, C.byref(comm)) == PARA
    assert CANN.HcclCommInitRootInfo(1, root, 0, C.byref(comm)) == OK
    assert CANN.HcclCommInitRootInfo(2, root, 1, C.byref(comm)) == PARA
    assert "nRanks must be the 1 of another rank of the communicator but got 2." in error_text()
    assert CANN.HcclCommInitRootInfo(1, root, 0, C.byref(comm)) == PARA
    assert "rank must be one that has not joined the communicator but got 0." in error_text()


def check_two_ranks_need_two_devices():
    set_device(0)
    comms = (C.c_void_p * 2)()
    assert CANN.HcclCommInitAll(2, (C.c_int32 * 2)(1, 1), comms) == PARA
    assert "ranks must use different devices but ranks 0 and 1 use device 1" in error_text()
    assert CANN.HcclCommInitAll(2, (C.c_int32 * 2)(0, 99), comms) == PARA


def check_the_folder_of_a_communicator_is_removed():
    base = os.environ["TMPDIR"]
    earlier = set(os.listdir(base))

    def work(rank):
        for _ in range(20):
            rank.all_reduce(np.ones(64, np.float32))
        files = sum(len(os.listdir(os.path.join(base, name))) for name in set(os.listdir(base)) - earlier)
        assert CANN.HcclCommDestroy(rank.comm) == OK
        return files

    files = in_processes(2, work)
    assert max(files) < 12, files
    assert set(os.listdir(base)) == earlier


# ---- ranks that end ----------------------------------------------------------------------------------


def check_a_rank_that_ends_is_named():
    def work(rank):
        rank.all_reduce(np.ones(4, np.float32))
        if rank.rank == 1:
            os._exit(3)
        at, began, error = on_device(np.zeros(4, np.float32)), time.monotonic(), C.c_int(-1)
        status = rank.call("HcclAllReduce", at, at, C.c_uint64(4), FLOAT32, SUM)
        status, text = status or rank.synchronize(), error_text()
        assert CANN.HcclGetCommAsyncError(rank.comm, C.byref(error)) == OK
        return [status, text, error.value, time.monotonic() - began]

    status, text, error, seconds = in_processes(2, work)[0]
    assert (status, error) == (RUNTIME if IMMEDIATE else RANK_FAILED, REMOTE)
    assert "rank 1 (process " in text, text
    assert "has ended, and this rank waits for it." in text, text
    assert seconds < 20


def check_a_rank_that_ends_while_others_join_is_named():
    """Rank 1 joins and ends. Rank 2 never joins, so rank 0 waits for it."""
    set_device(0)
    root = root_info()
    process = os.fork()
    if process == 0:
        CANN.aclrtSetDevice(1)
        CANN.HcclCommInitRootInfo(3, root, 1, C.byref(C.c_void_p()))
        os._exit(0)
    if os.fork() == 0:
        time.sleep(0.5)
        os.kill(process, 9)
        os._exit(0)
    assert join(root, 0, 3)[0] == TIMEOUT
    assert f"rank 1 (process {process}) has ended" in error_text()


def check_a_rank_that_ends_after_its_part_leaves_it():
    def work(rank):
        at = on_device(np.full(4, 1.0 + rank.rank, np.float32))
        rank.run("HcclBroadcast", at, C.c_uint64(4), FLOAT32, 1)
        assert rank.synchronize() == OK
        if rank.rank == 1:
            os._exit(0)
        return on_host(at, np.zeros(4, np.float32)).tolist()

    assert in_processes(2, work)[0] == [2.0] * 4


def check_a_rank_that_destroys_its_communicator_is_named():
    def work(rank):
        if rank.rank == 1:
            assert CANN.HcclCommDestroy(rank.comm) == OK
            return "ok"
        at = on_device(np.zeros(4, np.float32))
        rank.run("HcclAllReduce", at, at, C.c_uint64(4), FLOAT32, SUM)
        return [rank.synchronize(), error_text()]

    status, text = in_processes(2, work)[0]
    assert status == RANK_FAILED
    assert "has destroyed its communicator" in text, text


def check_destroying_a_communicator_waits_for_no_rank():
    """Rank 0 destroys its communicator with a queued collective that rank 1 has not called."""
    reader, writer = os.pipe()

    def work(rank):
        at = on_device(np.ones(4, np.float32))
        if rank.rank == 0:
            rank.run("HcclAllReduce", at, at, C.c_uint64(4), FLOAT32, SUM)
            began = time.monotonic()
            assert CANN.HcclCommDestroy(rank.comm) == OK
            os.write(writer, b"done")
            return time.monotonic() - began
        assert os.read(reader, 4) == b"done"
        rank.run("HcclAllReduce", at, at, C.c_uint64(4), FLOAT32, SUM)
        assert rank.synchronize() == OK, error_text()
        return on_host(at, np.zeros(4, np.float32)).tolist()

    seconds, result = in_processes(2, work)
    assert seconds < 5
    assert result == [2.0] * 4


def check_the_execution_timeout_is_kept():
    os.environ["HCCL_EXEC_TIMEOUT"] = "1"

    def work(rank):
        if rank.rank == 1:
            time.sleep(3)
            return "ok"
        at = on_device(np.zeros(4, np.float32))
        rank.run("HcclAllReduce", at, at, C.c_uint64(4), FLOAT32, SUM)
        return [rank.synchronize(), error_text()]

    status, text = in_processes(2, work)[0]
    assert status == RANK_FAILED
    assert "rank 1 has not made the call within 1 seconds (HCCL_EXEC_TIMEOUT)." in text, text


# ---- several devices ---------------------------------------------------------------------------------


def check_the_number_of_devices():
    found = C.c_uint32()
    assert CANN.aclrtGetDeviceCount(C.byref(found)) == OK
    assert found.value == 4
    assert CANN.aclrtSetDevice(4) == NO_DEVICE
    assert "deviceId must be 0 to 3 but got 4." in error_text()


def check_visible_devices():
    for text, devices in (("1", 1), ("1,2,3", 3), ("1, 2,3", 1), ("1,3,8", 2), ("2,1", 1), ("", 0), ("x", 0)):
        reader, writer = os.pipe()
        os.environ["ASCEND_RT_VISIBLE_DEVICES"] = text
        if os.fork() == 0:
            found = C.c_uint32()
            CANN.aclrtGetDeviceCount(C.byref(found))
            os.write(writer, bytes([found.value]))
            os._exit(0)
        os.wait()
        assert os.read(reader, 1)[0] == devices, text


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
    assert CANN.aclrtDestroyStream(stream) == STREAM_CONTEXT


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


# ---- one process per check ---------------------------------------------------------------------------


def result_in_child(check):
    """Run the check in a forked process and return "ok" or its traceback."""
    reader, writer = os.pipe()
    if os.fork() == 0:
        try:
            check()
            text = "ok"
        except BaseException:
            text = traceback.format_exc()
        os.write(writer, text.encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as file:
        text = file.read()
    os.wait()
    return text


if __name__ == "__main__":
    checks = {name: value for name, value in list(globals().items()) if name.startswith("check_")}
    names = sys.argv[2:] or list(checks)
    print(json.dumps({name: result_in_child(checks[name]) for name in names}))
