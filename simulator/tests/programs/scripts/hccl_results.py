"""Collectives of HCCL: their results, compared with NumPy, and their order.

usage: hccl_results.py LIBRARY [CHECK ...]
"""

import ctypes as C
import os
import time

import numpy as np
from forked_checks import run_checks
from hccl_ranks import (
    BFLOAT16,
    CANN,
    FLOAT16,
    FLOAT32,
    FLOAT64,
    INT8,
    INT16,
    INT32,
    INT64,
    MAX,
    MIN,
    OK,
    PARA,
    PROD,
    RANK_FAILED,
    RECEIVE,
    SEND,
    SUM,
    UINT8,
    UINT64,
    Item,
    counts,
    error_text,
    in_one_process,
    in_processes,
    join,
    make_stream,
    on_all,
    on_device,
    on_host,
    root_info,
    set_device,
    value_of,
)

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


def check_an_empty_part_may_begin_inside_another_part():
    def work(rank):
        value = np.arange(3, dtype=np.float32)
        source, target = on_device(value), on_device(np.zeros(3, np.float32))
        sent = counts(3, 0) if rank.rank == 0 else counts(0, 3)  # to itself only
        begins = counts(0, 1) if rank.rank == 0 else counts(1, 0)
        rank.run("HcclAlltoAllV", source, sent, begins, FLOAT32, target, sent, begins, FLOAT32)
        assert rank.synchronize() == OK, error_text()
        return on_host(target, np.zeros(3, np.float32)).tolist()

    assert in_processes(2, work) == [[0.0, 1.0, 2.0]] * 2


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


def check_a_graph_replays_a_collective():
    def work(rank):
        at, graph, value = on_device(np.ones(4, np.float32)), C.c_void_p(), np.zeros(4, np.float32)
        assert CANN.aclmdlRICaptureBegin(rank.stream, 0) == OK
        rank.run("HcclAllReduce", at, at, C.c_uint64(4), FLOAT32, SUM)
        assert CANN.aclmdlRICaptureEnd(rank.stream, C.byref(graph)) == OK, error_text()
        assert on_host(at, value).tolist() == [1.0] * 4
        for _ in range(3):
            assert CANN.aclmdlRIExecuteAsync(graph, rank.stream) == OK
        assert rank.synchronize() == OK, error_text()
        return on_host(at, value).tolist()

    assert in_processes(2, work) == [[8.0] * 4] * 2


if __name__ == "__main__":
    run_checks(globals())
