"""Several devices and HCCL: through C in processes and devices, and torch.distributed with backend hccl."""

import json
import os
import signal
import subprocess
import sys
import time
from functools import cache

import pytest
from ascend_sim import folders
from full_disk import run_with_pages
from simulated_npu import SCRIPTS, checks_of

RESULTS, RULES, DEVICES, COLLECTIVES = (
    SCRIPTS / f"{name}.py" for name in ("hccl_results", "hccl_rules", "device_rules", "collectives")
)
SYSTEM_CALL, COMMUNICATION_FAILED = 8, 507048  # HCCL_E_SYSCALL, and the status of the stream
TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node")


# ---- through C ---------------------------------------------------------------------------------------


def results(folder, script, *checks, **variables):
    """Run a script of checks with four devices and return the result of each check by name."""
    command = [sys.executable, str(script), str(folders.library("ascend_sim_cann")), *checks]
    environment = {**os.environ, "ASCEND_SIM_DEVICES": "4", "TMPDIR": str(folder), **variables}
    environment.pop("ASCEND_SIM_REPORT_DIR", None)
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return json.loads(done.stdout) | {"stderr": done.stderr}


@pytest.fixture(scope="module")
def all_results(tmp_path_factory):
    """Return the results of a script, which runs once."""
    return cache(lambda script: results(tmp_path_factory.mktemp("hccl"), script, ASCEND_SIM_SEED="0"))


@pytest.mark.long
@pytest.mark.parametrize("check", checks_of(RESULTS))
def test_result_of_collectives(all_results, check):
    assert all_results(RESULTS)[check] == "ok"


@pytest.mark.parametrize("check", checks_of(RULES))
def test_rule_of_collectives(all_results, check):
    assert all_results(RULES)[check] == "ok"


def test_a_folder_that_no_rank_joins_is_removed_at_the_end(tmp_path):
    """A fork that ends before its parent leaves the folder, so that the parent can still join."""
    program = (
        "import ctypes as C, os, sys\n"
        "cann = C.CDLL(sys.argv[1])\n"
        "cann.aclrtSetDevice(0)\n"
        "root = (C.c_char * 4108)()\n"
        "assert cann.HcclGetRootInfo(root) == 0\n"
        "if os.fork() == 0: sys.exit()\n"
        "os.wait()\n"
        "assert len(os.listdir(os.environ['TMPDIR'])) == 1\n"
        "os.environ['HCCL_EXEC_TIMEOUT'] = 'soon'\n"
        "assert cann.HcclCommInitRootInfo(1, root, 0, C.byref(C.c_void_p())) == 1\n"
    )
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    environment.pop("ASCEND_SIM_REPORT_DIR", None)
    command = [sys.executable, "-c", program, str(folders.library("ascend_sim_cann"))]
    subprocess.run(command, env=environment, check=True, capture_output=True)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("pages", [0, 1, 2, 3, 5])
def test_a_full_disk_is_an_error_and_leaves_no_file(tmp_path, pages):
    """Each file takes a page: counters of all, table of ranks, counters of a pair, two messages."""
    script = SCRIPTS / "hccl_full_disk.py"
    variables = ("ASCEND_SIM_DEVICES=2", "HCCL_EXEC_TIMEOUT=60", f"TMPDIR={tmp_path}")
    command = (
        "env",
        "-u",
        "ASCEND_SIM_REPORT_DIR",
        *variables,
        sys.executable,
        str(script),
        str(folders.library("ascend_sim_cann")),
    )
    done = run_with_pages(tmp_path, pages, command)
    assert (done.returncode, done.files) == (0, {}), done
    found = json.loads(done.stdout)
    expected = {
        0: ["join"],
        1: ["join"],
        2: ["send", "receive"],
        3: ["wait of the sender", "wait of the receiver"],
        5: [],
    }
    full = {name: text for name, (status, text) in found.items() if status}
    assert list(full) == expected[pages], found
    assert {status for status, _ in found.values() if status} <= {SYSTEM_CALL, COMMUNICATION_FAILED}
    assert all("/hccl-" in text and "No space left on device." in text for text in full.values()), full


@pytest.mark.parametrize("check", checks_of(DEVICES))
def test_rule_of_devices(all_results, check):
    assert all_results(DEVICES)[check] == "ok"


def test_a_stream_of_the_310p_does_not_wait_for_another_device(tmp_path):
    check = "check_a_wait_for_an_event_of_another_device"
    found = results(tmp_path, DEVICES, check, ASCEND_SIM_SEED="0", ASCEND_SIM_SOC="Ascend310P3")
    assert found[check] == "ok", found


def test_a_race_with_a_collective_is_reported(all_results):
    race = "stream 1's aclrtMemsetAsync writes memory that stream 0's HcclAllReduce writes"
    assert race in all_results(RESULTS)["stderr"]


def test_a_rank_that_ends_is_named_on_standard_error(all_results):
    text = "simulated CANN: HcclAllReduce of 4 float32, sum on rank 0 of hccl-"
    assert text in all_results(RULES)["stderr"]


ORDERED = (
    "check_a_collective_runs_in_the_order_of_its_stream",
    "check_communicators_on_different_streams_do_not_block_each_other",
    "check_a_queued_collective_runs_while_the_host_does_something_else",
)


@pytest.mark.parametrize("seed", ["1", "2", "3", "5"])
def test_the_order_of_work_does_not_change_results(tmp_path, seed):
    found = results(tmp_path, RESULTS, *ORDERED, ASCEND_SIM_SEED=seed)
    assert [found[check] for check in ORDERED] == ["ok"] * 3


def test_immediate_streams_wait_at_the_call(tmp_path):
    checks = ("check_operations_that_move_data", "check_sends_and_receives")
    found = results(tmp_path, RESULTS, *checks, ASCEND_SIM_STREAMS="immediate")
    assert [found[check] for check in checks] == ["ok"] * 2
    found = results(tmp_path, RULES, "check_a_rank_that_ends_is_named", ASCEND_SIM_STREAMS="immediate")
    assert found["check_a_rank_that_ends_is_named"] == "ok"


def run_on(soc, folder, source):
    """Run Python source with the names of hccl_ranks.py on two devices of a chip."""
    start = f"import sys\nsys.path.insert(0, {str(SCRIPTS)!r})\nimport ctypes as C\nimport numpy as np\n"
    library = str(folders.library("ascend_sim_cann"))
    environment = {**os.environ, "ASCEND_SIM_DEVICES": "2", "ASCEND_SIM_SOC": soc, "TMPDIR": str(folder)}
    command = [sys.executable, "-c", start + "from hccl_ranks import *\n" + source, library]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_310p_has_fewer_operations(tmp_path):
    source = """
rank = in_one_process(2)[0]
set_device(0)
at, other, count = on_device(np.zeros(8, np.float32)), on_device(np.zeros(8, np.float32)), C.c_uint64(2)
found = [
    rank.call("HcclBroadcast", at, count, FLOAT32, 0),
    rank.call("HcclReduce", at, other, count, FLOAT32, SUM, 0),
    rank.call("HcclScatter", at, other, count, FLOAT32, 0),
    rank.call("HcclSend", at, count, FLOAT32, 1),
    rank.call("HcclRecv", at, count, FLOAT32, 1),
    rank.call("HcclAllReduce", at, other, count, INT64, SUM),
    rank.call("HcclAllReduce", at, other, count, BFLOAT16, SUM),
    rank.call("HcclAllReduce", at, other, count, INT16, MAX),
    rank.call("HcclReduceScatterV", at, counts(1, 1), counts(0, 1), other, C.c_uint64(1), FLOAT32, MAX),
]
assert found == [NOT_SUPPORTED] * 9, found
assert rank.call("HcclAllReduce", at, other, count, FLOAT32, SUM) == OK, error_text()
"""
    run_on("Ascend310P3", tmp_path, source)


def test_counts_that_differ_by_rank_on_the_910_93(tmp_path):
    source = """
def work(rank):
    value = np.arange(2 + rank.rank, dtype=np.float32) + 10 * rank.rank
    gathered, like = on_device(np.zeros(5, np.float32)), np.zeros(5, np.float32)
    parts, size = (counts(2, 3), counts(0, 2)), C.c_uint64(value.size)
    rank.run("HcclAllGatherV", on_device(value), size, gathered, *parts, FLOAT32)
    terms = np.arange(5, dtype=np.float32) * (rank.rank + 1)
    part = np.zeros(2 + rank.rank, np.float32)
    reduced = on_device(part)
    rank.run("HcclReduceScatterV", on_device(terms), *parts, reduced, size, FLOAT32, SUM)
    assert rank.synchronize() == OK, error_text()
    wrong = rank.call("HcclReduceScatterV", gathered, *parts, reduced, size, FLOAT32, PROD)
    return [on_host(gathered, like).tolist(), on_host(reduced, part).tolist(), wrong]

found = in_processes(2, work)
gathered = [0.0, 1.0, 10.0, 11.0, 12.0]
assert found == [[gathered, [0.0, 3.0], NOT_SUPPORTED], [gathered, [6.0, 9.0, 12.0], NOT_SUPPORTED]], found
"""
    run_on("Ascend910_9391", tmp_path, source)


@pytest.mark.parametrize("count", ["0", "17", "two"])
def test_a_wrong_number_of_devices_ends_the_process(count):
    source = "import ctypes as C, sys; C.CDLL(sys.argv[1]).aclrtGetDeviceCount(C.byref(C.c_uint32()))"
    command = [sys.executable, "-c", source, str(folders.library("ascend_sim_cann"))]
    environment = {**os.environ, "ASCEND_SIM_DEVICES": count}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert f"ASCEND_SIM_DEVICES must be 1 to 16 but got {count}." in done.stderr


# ---- torch.distributed -------------------------------------------------------------------------------


def torchrun(simulated, size, *arguments, **variables):
    """Run a script with torchrun and a device for each process. torch_npu's cache of memory is on."""
    variables = {
        "ASCEND_SIM_DEVICES": str(size),
        "PYTORCH_NO_NPU_MEMORY_CACHING": "0",
        "OMP_NUM_THREADS": "1",
    } | variables
    return simulated.run(*TORCHRUN, str(size), *arguments, fresh=True, **variables)


def check_collectives(simulated, size, *checks, **variables):
    done = torchrun(simulated, size, COLLECTIVES, *checks, **variables)
    assert done.status == 0, done.stdout + done.stderr
    lines = [line for line in done.stdout.splitlines() if line.startswith("check_")]
    assert lines == [f"{check} ok" for check in checks or checks_of(COLLECTIVES)], done.stdout
    assert done.report.is_clean, done.stderr


@pytest.mark.long
def test_two_processes_of_torch_communicate(simulated):
    check_collectives(
        simulated, 2, "check_all_gather", "check_reduce_scatter", "check_batch_of_sends_and_receives",
        "check_asynchronous_work_is_ordered_by_wait", "check_coalesced", "check_barrier",
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    ("size", "queue", "seed"), [(2, "0", "1"), (2, "1", "3"), (4, "1", "0"), (4, "2", "5")]
)
def test_collectives_of_torch_agree_with_gloo(simulated, size, queue, seed):
    check_collectives(simulated, size, TASK_QUEUE_ENABLE=queue, ASCEND_SIM_SEED=seed)


RANK_THAT_ENDS = """
import os, sys, time
import torch, torch_npu, torch.distributed as dist
rank = int(os.environ["RANK"])
torch.npu.set_device(rank)
dist.init_process_group("hccl")
x = torch.ones(4).npu()
# No rank passes the collective alone, so torchrun ends no rank that has not printed.
print("process", os.getpid(), flush=True)
dist.all_reduce(x)
torch.npu.synchronize()
if rank == 1:
    os._exit(7)
dist.all_reduce(x)
torch.npu.synchronize()
print("not reached", flush=True)
"""


def is_running(process):
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.long
def test_a_rank_that_dies_ends_the_run_with_a_sentence(simulated, tmp_path):
    """Without torchrun, which would end the other rank itself."""
    script = tmp_path / "rank_that_ends.py"
    script.write_text(RANK_THAT_ENDS)
    environment = simulated.environment("Ascend910B2") | {
        "ASCEND_SIM_DEVICES": "2",
        "ASCEND_SIM_REPORT_DIR": str(tmp_path),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(20000 + os.getpid() % 20000),
        "WORLD_SIZE": "2",
        "PYTORCH_NO_NPU_MEMORY_CACHING": "0",
    }
    ranks = [
        subprocess.Popen(
            [simulated.python, script], env={**environment, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for rank in range(2)
    ]  # fmt: skip
    try:
        assert ranks[1].wait(timeout=120) == 7
        ended = time.monotonic()
        output, errors = ranks[0].communicate(timeout=120)
        assert time.monotonic() - ended < 60
        assert ranks[0].returncode != 0
        assert "not reached" not in output
        sentence = f"rank 1 (process {ranks[1].pid}) has ended, and this rank waits for it."
        assert sentence in errors, errors
    finally:
        for rank in ranks:
            rank.send_signal(signal.SIGKILL)
            rank.communicate()


@pytest.mark.slow
def test_torchrun_leaves_no_process_of_a_rank_that_dies(simulated, tmp_path):
    script = tmp_path / "rank_that_ends.py"
    script.write_text(RANK_THAT_ENDS)
    done = torchrun(simulated, 2, script)
    assert done.status != 0
    assert "exitcode  : 7" in done.stderr, done.stderr
    processes = [int(line.split()[1]) for line in done.stdout.splitlines() if line.startswith("process ")]
    assert len(processes) == 2
    assert not any(is_running(process) for process in processes)


@pytest.mark.long
def test_several_devices_in_one_process_of_torch(simulated):
    source = """
import torch, torch_npu, json
x = torch.arange(6.0)
here, there = x.npu(), (2 * x).to("npu:1")
moved = here.to("npu:1") + there
with torch.npu.device(1):
    y = torch.ones(3, device="npu") * 2
    stream = torch.npu.Stream()
    stream.wait_stream(torch.npu.current_stream())
    with torch.npu.stream(stream):
        z = (moved * 2).cumsum(0)
    torch.npu.current_stream().wait_stream(stream)
assert torch.npu.current_device() == 0
moved.cumsum_(0)  # the tensor's device is not the current one
try:
    torch.cumsum(here, 0, out=there)
    raise SystemExit("tensors of two devices were accepted")
except RuntimeError as error:
    assert "found at least two devices, npu:0 and npu:1!" in str(error), error
used = [torch.npu.memory_allocated(device) > 0 for device in range(3)]
print(json.dumps([torch.npu.device_count(), moved.tolist(), str(y.device), z.tolist(), str(z.device), used]))
"""
    variables = {"ASCEND_SIM_DEVICES": "3", "PYTORCH_NO_NPU_MEMORY_CACHING": "0"}
    done = simulated.run("-c", source, fresh=True, **variables)
    sums = [sum(3.0 * j for j in range(i + 1)) for i in range(6)]
    assert done.json() == [3, sums, "npu:1", [2 * value for value in sums], "npu:1", [True, True, False]]
    assert done.report.is_clean, done.stderr
