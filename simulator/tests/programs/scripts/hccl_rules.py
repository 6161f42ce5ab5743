"""Wrong calls of HCCL, communicators, and ranks that end.

usage: hccl_rules.py LIBRARY [CHECK ...]
"""

import ctypes as C
import os
import time

import numpy as np
from forked_checks import run_checks
from hccl_ranks import (
    BFLOAT16,
    CANN,
    FLOAT32,
    FLOAT64,
    IMMEDIATE,
    INT16,
    INT32,
    NOT_SUPPORTED,
    OK,
    PARA,
    PROD,
    PTR,
    RANK_FAILED,
    REMOTE,
    ROOT_BYTES,
    RUNTIME,
    SUM,
    TIMEOUT,
    UINT8,
    after,
    counts,
    error_text,
    in_one_process,
    in_processes,
    join,
    on_device,
    on_host,
    root_info,
    set_device,
)

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
    assert "root must be less than the number of ranks, 2, but got 2." in found[1]
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
    assert "nRanks must be 1, as on another rank of the communicator, but got 2." in error_text()
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


def check_a_timeout_that_is_no_number_of_seconds_is_refused():
    """hicann/hccl src/common/alg_env_config.cc, IsValidNumberFormat() and ParseExecTimeout()."""
    refused = {
        "HCCL_EXEC_TIMEOUT": [
            "soon",
            "-1",
            "1.",
            ".5",
            "1.234",
            "1 ",
            "1e3",
            "2147483648",
            "99999999999999999999",
        ],
        "HCCL_CONNECT_TIMEOUT": ["soon", "119", "7201", "120.5", "-120", "0x100"],
    }
    accepted = {"HCCL_EXEC_TIMEOUT": ["", "0", "7200", "1.25"], "HCCL_CONNECT_TIMEOUT": ["", "120", "7200"]}
    root, comm = (C.c_char * ROOT_BYTES)(), C.c_void_p()
    set_device(0)
    for values, expected in ((refused, PARA), (accepted, OK)):
        for name in values:
            for text in values[name]:
                os.environ[name] = text
                assert CANN.HcclGetRootInfo(root) == OK
                status = CANN.HcclCommInitRootInfo(1, root, 0, C.byref(comm))
                assert status == expected, (name, text, status)
                if status == OK:
                    assert CANN.HcclCommDestroy(comm) == OK
                else:
                    reason = error_text()
                    assert f"{name} must be a number of seconds from " in reason, reason
                    assert reason.rstrip().endswith(f"but got {text}."), reason
            del os.environ[name]


if __name__ == "__main__":
    run_checks(globals())
