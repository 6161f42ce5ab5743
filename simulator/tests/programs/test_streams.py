"""Streams, events, freed memory and the state after an error: the simulated runtime alone, through C."""

import json
import os
import select
import socket
import subprocess
import sys

import pytest
from ascend_sim import folders
from ascend_sim.programs import session
from simulated_npu import SCRIPTS, checks_of

RULES = [SCRIPTS / f"{name}_rules.py" for name in ("stream", "capture", "handle", "context")]


def results(script, *checks, **variables):
    """Run checks of a script of rules, by default all, and return the result of each by name."""
    command = [sys.executable, str(script), str(folders.library("ascend_sim_cann")), *checks]
    environment = {**os.environ, "ASCEND_SIM_SEED": "0", **variables}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def results_of_seed_0():
    return {script: results(script) for script in RULES}


@pytest.mark.parametrize(
    ("script", "check"),
    [pytest.param(script, check, id=check) for script in RULES for check in checks_of(script)],
)
def test_rule_of_streams_events_and_memory(results_of_seed_0, script, check):
    assert results_of_seed_0[script][check] == "ok"


def test_statuses_of_the_310p():
    checks = (
        "check_the_next_synchronization_returns_the_error",
        "check_an_error_stops_the_streams_of_the_context",
        "check_a_fault_of_the_device_is_described",
        "check_the_mode_of_overflow",
        "check_policies_of_allocations",
        "check_flags_of_streams",
        "check_the_overflow_switch_of_a_stream_is_stored",
        "check_attributes_of_a_null_stream",
        "check_what_ascend310p_ignores_of_a_stream",
        "check_kinds_of_memory",
        "check_the_number_of_streams",
        "check_the_number_of_events",
        "check_events_between_processes_depend_on_the_chip",
        "check_a_subscription_needs_a_context",
    )
    found = results(RULES[0], *checks, ASCEND_SIM_SOC="Ascend310P3")
    assert found == dict.fromkeys(checks, "ok")
    checks = (
        "check_features_of_the_chip",
        "check_the_uuid_of_a_device",
        "check_faults_of_memory",
        "check_timeouts_of_operators",
    )
    found = results(RULES[2], *checks, ASCEND_SIM_SOC="Ascend310P3")
    assert found == dict.fromkeys(checks, "ok")


def test_statuses_of_the_950dt():
    checks = (
        "check_events_between_processes_depend_on_the_chip",
        "check_a_fault_of_the_device_is_described",
        "check_the_mode_of_overflow",
    )
    found = results(RULES[0], *checks, ASCEND_SIM_SOC="Ascend950DT_9591:36")
    assert found == dict.fromkeys(checks, "ok")


def test_immediate_streams_run_work_at_its_launch():
    waits, order = "check_work_waits_until_something_forces_it", "check_a_stream_keeps_its_order"
    found = results(RULES[0], waits, order, ASCEND_SIM_STREAMS="immediate")
    assert "AssertionError" in found[waits]
    assert found[order] == "ok"


def test_events_of_immediate_streams_wait_for_no_work():
    check = "check_events_wait_for_no_work_of_another_thread"
    assert results(RULES[1], check, ASCEND_SIM_STREAMS="immediate") == {check: "ok"}


@pytest.mark.parametrize("count", [5, 3900, 4096, 5000], ids="{} characters".format)
def test_an_unknown_kind_of_streams_ends_the_process_with_one_line(count):
    """A packet is one write. Up to PIPE_BUF bytes, the writes of several processes do not mix."""
    source = "import ctypes as C, sys; cann = C.CDLL(sys.argv[1]); cann.aclrtSetDevice(0);"
    source += " cann.aclrtCreateStream(C.byref(C.c_void_p()))"
    value = ("eager" * 1000)[:count]
    environment = {**os.environ, "ASCEND_SIM_STREAMS": value}
    command = [sys.executable, "-c", source, str(folders.library("ascend_sim_cann"))]
    received, errors = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with received, subprocess.Popen(command, env=environment, stderr=errors) as process:
        errors.close()
        packets = list(iter(lambda: received.recv(8192).decode(), ""))
    assert process.returncode == 2
    message = f"simulated CANN: ASCEND_SIM_STREAMS must be asynchronous or immediate but got {value}.\n"
    assert message in (packets if len(message) <= select.PIPE_BUF else "".join(packets))


TWO_STREAMS = """
import ctypes as C, sys
cann = C.CDLL(sys.argv[1])
cann.aclrtSetDevice(0)
one, two, at = C.c_void_p(), C.c_void_p(), C.c_void_p()
cann.aclrtCreateStream(C.byref(one)); cann.aclrtCreateStream(C.byref(two))
cann.aclrtMalloc(C.byref(at), C.c_size_t(64), 0)
"""
FILLS_OF_TWO_STREAMS = f"""{TWO_STREAMS}
for value in range(8):
    cann.aclrtMemsetAsync(at, C.c_size_t(64), value, C.c_size_t(64), one if value % 2 else two)
cann.aclrtSynchronizeDevice()
print(C.string_at(at, 1)[0])
"""


def run_reported(source, folder, seed=0):
    """Run a script with the runtime's library. Return its output and the report."""
    environment = {**os.environ, "ASCEND_SIM_SEED": str(seed), "ASCEND_SIM_REPORT_DIR": str(folder)}
    command = [sys.executable, "-c", source, str(folders.library("ascend_sim_cann"))]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return done.stdout, session.read_reports(folder, "Ascend910B2")


def last_fill(seed, folder):
    folder.mkdir()
    printed, report = run_reported(FILLS_OF_TWO_STREAMS, folder, seed)
    return int(printed), report


def test_a_seed_gives_one_order_and_every_order_reports_the_race(tmp_path):
    values = set()
    for seed in range(10):
        value, report = last_fill(seed, tmp_path / f"{seed}-first")
        value_again, _ = last_fill(seed, tmp_path / f"{seed}-again")
        assert value == value_again
        assert report.seed == seed
        assert report.race_count > 0
        assert not report.is_clean
        values.add(value)
    assert values == {6, 7}  # the last fill of either stream


PINNED_BETWEEN_FILLS = f"""{TWO_STREAMS}
cann.aclrtMemsetAsync(at, C.c_size_t(64), 1, C.c_size_t(64), one)
for _ in range(4):
    pinned = C.c_void_p()
    assert cann.aclrtMallocHost(C.byref(pinned), C.c_size_t(64)) == cann.aclrtFreeHost(pinned) == 0
cann.aclrtMemsetAsync(at, C.c_size_t(64), 2, C.c_size_t(64), two)
cann.aclrtSynchronizeDevice()
"""


def test_freed_memory_of_the_host_hides_no_race_of_the_device_s(tmp_path):
    _, report = run_reported(PINNED_BETWEEN_FILLS, tmp_path)
    assert report.race_count == 1


RACE_OF_A_GRAPH = """
import ctypes as C, sys
cann = C.CDLL(sys.argv[1])
where = sys.argv[2]
cann.aclrtSetDevice(0)
def create(call, *more):
    one = C.c_void_p()
    assert call(C.byref(one), *more) == 0
    return one
def fill(value, on):
    assert cann.aclrtMemsetAsync(at, C.c_size_t(64), value, C.c_size_t(64), on) == 0
def wait(waiting, other, event):
    assert cann.aclrtRecordEvent(event, other) == 0
    assert cann.aclrtStreamWaitEvent(waiting, event) == 0
one, two, other = (create(cann.aclrtCreateStream) for _ in range(3))
fork, join, last = (create(cann.aclrtCreateEventExWithFlag, 1) for _ in range(3))
at, graph = create(cann.aclrtMalloc, C.c_size_t(64), 0), C.c_void_p()
assert cann.aclmdlRICaptureBegin(one, 0) == 0
wait(two, one, fork)
fill(1, two)
if where == "inside":
    fill(2, one)
wait(one, two, join)
assert cann.aclmdlRICaptureEnd(one, C.byref(graph)) == 0
assert cann.aclmdlRIExecuteAsync(graph, one) == 0
if where == "behind":
    fill(2, other)
if where == "ordered":
    wait(other, one, last)
    fill(2, other)
assert cann.aclrtSynchronizeDevice() == 0
"""
FILL_IN_GRAPH = "aclrtMemsetAsync, which graph 1 captured on stream {} and replays on stream 0,"
RACES_OF_GRAPHS = {
    "inside": f"{FILL_IN_GRAPH.format(0)} writes memory that {FILL_IN_GRAPH.format(1)} writes, and nothing "
    "orders them: while they are captured, record an event on stream 1 after aclrtMemsetAsync and let "
    "stream 0 wait for it.",
    "behind": f"stream 2's aclrtMemsetAsync writes memory that {FILL_IN_GRAPH.format(1)} writes, and nothing "
    "orders them: record an event on stream 0 after the replay and let stream 2 wait for it.",
    "ordered": None,
}


@pytest.mark.parametrize("where", RACES_OF_GRAPHS)
def test_the_race_of_a_graph_names_streams_of_the_program(tmp_path, where):
    environment = {**os.environ, "ASCEND_SIM_SEED": "0", "ASCEND_SIM_REPORT_DIR": str(tmp_path)}
    command = [sys.executable, "-c", RACE_OF_A_GRAPH, str(folders.library("ascend_sim_cann")), where]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    report = session.read_reports(tmp_path, "Ascend910B2")
    text = RACES_OF_GRAPHS[where]
    assert report.race_count == (text is not None), done.stderr
    assert text is None or text in done.stderr, done.stderr


REPLAY_IN_A_STOPPED_CONTEXT = """
import sys
from capture_rules import CANN, KERNEL, OK, begin, ended, fill, fork, make_event, make_memory, make_stream
from stream_rules import STOP, fail_on
one, two, joined = begin(), make_stream(), make_event()
fork(one, two)
assert fill(make_memory(), 2, two) == OK
assert CANN.aclrtRecordEvent(joined, two) == OK
assert CANN.aclrtStreamWaitEvent(one, joined) == OK
graph = ended(one)
assert CANN.aclrtStreamWaitEvent(one, make_event(False)) == OK
assert CANN.aclmdlRIExecuteAsync(graph, one) == OK
stops = make_stream(STOP)
fail_on(stops)
assert CANN.aclrtSynchronizeStream(stops) == KERNEL
if sys.argv[2] == "destroyed":
    assert CANN.aclmdlRIDestroy(graph) == OK
"""


@pytest.mark.parametrize(("what", "work_left"), [("kept", 1), ("destroyed", 0)])
def test_a_graph_ends_with_its_replay_if_the_context_has_stopped(tmp_path, what, work_left):
    environment = {
        **os.environ,
        "ASCEND_SIM_SEED": "0",
        "ASCEND_SIM_REPORT_DIR": str(tmp_path),
        "PYTHONPATH": str(SCRIPTS),
    }
    library = str(folders.library("ascend_sim_cann"))
    command = [sys.executable, "-c", REPLAY_IN_A_STOPPED_CONTEXT, library, what]
    subprocess.run(command, env=environment, capture_output=True, check=True)
    assert session.read_reports(tmp_path, "Ascend910B2").work_left == work_left


WORK_OF_TWO_STREAMS = """
import ctypes as C, sys
cann = C.CDLL(sys.argv[1])
cann.aclrtSetDevice(0)
def create(call, *more):
    made = C.c_void_p()
    assert call(C.byref(made), *more) == 0
    return made
one, two, three = (create(cann.aclrtCreateStream) for _ in range(3))
event = create(cann.aclrtCreateEventExWithFlag, 1)
older = create(cann.aclrtCreateEventWithFlag, 1)
at, other, third = (create(cann.aclrtMalloc, C.c_size_t(64), 0) for _ in range(3))
host, pinned = C.create_string_buffer(64), create(cann.aclrtMallocHost, C.c_size_t(64))
for memory in (at, other, third):
    assert cann.aclrtMemset(memory, C.c_size_t(64), 1, C.c_size_t(64)) == 0
def place(memory, offset):
    return C.c_void_p(memory.value + offset)
def fill(stream, memory=at, offset=0, count=64):
    size = C.c_size_t(count)
    assert cann.aclrtMemsetAsync(place(memory, offset), size, 2, size, stream) == 0
def read(stream, to, offset=0, count=64):
    size = C.c_size_t(count)
    assert cann.aclrtMemcpyAsync(place(to, offset), size, place(at, offset), size, 3, stream) == 0
def record(stream, event=event):
    assert cann.aclrtRecordEvent(event, stream) == 0
def wait(stream, event=event):
    assert cann.aclrtStreamWaitEvent(stream, event) == 0
def reset(stream):
    assert cann.aclrtResetEvent(older, stream) == 0
def reset_behind_wait():
    record(one, older)
    wait(two, older)
    reset(two)
    record(two)
    wait(one)
def synchronize(stream):
    assert cann.aclrtSynchronizeStream(stream) == 0
def free():
    assert cann.aclrtFree(at) == 0
def free_as_torch():
    padded = create(cann.aclrtMallocAlign32, C.c_size_t(96), 0)
    assert cann.aclrtSynchronizeDevice() == 0
    assert cann.aclrtFree(padded) == 0
def copy_to_host():
    assert cann.aclrtMemcpy(host, C.c_size_t(64), at, C.c_size_t(64), 2) == 0
def copy_from_host():
    assert cann.aclrtMemcpy(at, C.c_size_t(64), host, C.c_size_t(64), 1) == 0
def copy_in(stream, source=host, to=at):
    assert cann.aclrtMemcpyAsync(to, C.c_size_t(64), source, C.c_size_t(64), 1, stream) == 0
def copy_out(stream, to=host, source=other):
    assert cann.aclrtMemcpyAsync(to, C.c_size_t(64), source, C.c_size_t(64), 2, stream) == 0
def change(at=0):
    host[at] = 5
def set_at_once():
    assert cann.aclrtMemset(at, C.c_size_t(64), 3, C.c_size_t(64)) == 0
def zero(stream, strides, sizes=(3, 2), int8=2):
    shape, steps = (C.c_int64 * 2)(*sizes), (C.c_int64 * 2)(*strides)
    make, bytes_of_workspace, executor = cann.aclCreateTensor, C.c_uint64(), C.c_void_p()
    make.restype = C.c_void_p
    length = C.c_uint64(2)
    tensor = C.c_void_p(make(shape, length, int8, steps, C.c_int64(0), 2, shape, length, at))
    prepare = cann.aclnnInplaceZeroGetWorkspaceSize
    assert prepare(tensor, C.byref(bytes_of_workspace), C.byref(executor)) == 0
    workspace = create(cann.aclrtMalloc, C.c_size_t(max(bytes_of_workspace.value, 1)), 0)
    assert cann.aclnnInplaceZero(workspace, bytes_of_workspace, executor, stream) == 0
def free_pinned():
    assert cann.aclrtFreeHost(pinned) == 0
for line in sys.argv[2].split("; "):
    exec(line)
assert cann.aclrtSynchronizeDevice() == 0
"""
FILL, COPY = "aclrtMemsetAsync", "aclrtMemcpyAsync"


def conflict(later, earlier):
    """The message about two accesses, each with its actor and verb."""
    return f"{later} memory that {earlier}, and nothing orders them"


SOURCE = (
    f"the host changes the 64 bytes that stream 0's {COPY} reads, and it has not waited for the copy: "
    "synchronize stream 0 first."
)
# Work and the beginning of each message about a race.
ORDERS = {
    "fill(one); free()": [
        f"aclrtFree frees memory that stream 0's {FILL} writes, and the host has not waited for it: "
        "synchronize stream 0 first."
    ],
    "read(one, other); free()": [f"aclrtFree frees memory that stream 0's {COPY} reads"],
    "fill(one); synchronize(one); free()": [],
    "fill(one); read(two, other)": [conflict(f"stream 1's {COPY} reads", f"stream 0's {FILL} writes")],
    "read(one, other); fill(two)": [conflict(f"stream 1's {FILL} writes", f"stream 0's {COPY} reads")],
    "read(one, other); read(two, third)": [],
    "read(one, other); read(two, other)": [
        conflict(f"stream 1's {COPY} writes", f"stream 0's {COPY} writes")
    ],
    "fill(one); record(one); wait(two); fill(two)": [],
    "fill(one); synchronize(one); fill(two)": [],
    # A wait for an older event passes by each record that no reset has cleared.
    "fill(one); record(one, older); wait(two, older); fill(two)": [],
    "wait(two, older); fill(one); record(one, older); fill(two)": [],
    "record(one, older); fill(one); record(one, older); wait(two, older); fill(two)": [
        conflict(f"stream 1's {FILL} writes", f"stream 0's {FILL} writes")
    ],
    "reset_behind_wait(); fill(one); record(one, older); wait(two, older); fill(two)": [],
    "reset_behind_wait(); fill(one); record(one, older); wait(three, older); fill(three)": [
        conflict(f"stream 2's {FILL} writes", f"stream 0's {FILL} writes")
    ],
    "record(one, older); reset(two); fill(one); record(one, older); wait(two, older); fill(two)": [
        conflict(f"stream 1's {FILL} writes", f"stream 0's {FILL} writes")
    ],
    "record(one, older); reset(one); wait(two, older); fill(one); record(one, older); fill(two)": [
        conflict(f"stream 1's {FILL} writes", f"stream 0's {FILL} writes")
    ],
    # Parts of one allocation.
    "fill(one, at, 0, 32); fill(two, at, 32, 32)": [],
    "fill(one, at, 0, 33); fill(two, at, 32, 32)": [
        conflict(f"stream 1's {FILL} writes", f"stream 0's {FILL} writes")
    ],
    "fill(one, at, 32, 32); fill(two, at, 0, 32)": [],
    "fill(one, at, 32, 32); fill(two, at, 0, 33)": [
        conflict(f"stream 1's {FILL} writes", f"stream 0's {FILL} writes")
    ],
    # Views whose strides differ, with the same first and last byte.
    "zero(one, (8, 2)); zero(one, (7, 4)); fill(two, at, 8, 1)": [
        conflict(f"stream 1's {FILL} writes", "stream 0's aclnnInplaceZero writes")
    ],
    "zero(one, (8, 2)); zero(one, (7, 4)); fill(two, at, 12, 2)": [],
    # The later of two accesses of the same bytes counts.
    "fill(one); record(one); fill(one); wait(two); fill(two)": [
        conflict(f"stream 1's {FILL} writes", f"stream 0's {FILL} writes")
    ],
    "fill(one); record(one); read(one, other); wait(two); read(two, third)": [],
    "fill(one); record(one); read(one, other); wait(two); fill(two)": [
        conflict(f"stream 1's {FILL} writes", f"stream 0's {COPY} reads")
    ],
    # A read does not replace an earlier write.
    "fill(one); read(one, other); read(two, third)": [
        conflict(f"stream 1's {COPY} reads", f"stream 0's {FILL} writes")
    ],
    # The host.
    "fill(one); copy_to_host()": [conflict("the host's aclrtMemcpy reads", f"stream 0's {FILL} writes")],
    "read(one, other); copy_to_host()": [],
    "read(one, other); copy_from_host()": [
        conflict("the host's aclrtMemcpy writes", f"stream 0's {COPY} reads")
    ],
    "copy_from_host(); fill(one)": [],
    "fill(one); set_at_once()": [conflict("the host's aclrtMemset writes", f"stream 0's {FILL} writes")],
    # The host changes the source of a copy.
    "copy_in(one); change(); synchronize(one)": [SOURCE],
    "copy_in(one); change(63)": [SOURCE],
    "copy_in(one); synchronize(one); change()": [],
    "copy_in(one); synchronize(two); change(); synchronize(one)": [SOURCE],
    # A stream does: then a change does not prove a write by the host.
    "copy_in(one); copy_out(two); synchronize(two); synchronize(one)": [],
    "copy_out(two); copy_in(one); synchronize(two); synchronize(one)": [],
    # Accesses to pinned memory are compared like those to device memory.
    "copy_in(one, pinned); copy_out(two, pinned)": [
        conflict(f"stream 1's {COPY} writes", f"stream 0's {COPY} reads")
    ],
    "copy_in(one, pinned); copy_in(two, pinned, other)": [],
    "copy_out(one, pinned); record(one); wait(two); copy_in(two, pinned, third)": [],
}


@pytest.mark.parametrize("work", ORDERS)
def test_accesses_that_nothing_orders_are_reported(tmp_path, work):
    environment = {**os.environ, "ASCEND_SIM_SEED": "0", "ASCEND_SIM_REPORT_DIR": str(tmp_path)}
    command = [sys.executable, "-c", WORK_OF_TWO_STREAMS, str(folders.library("ascend_sim_cann")), work]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0 or "free()" in work, done.stderr
    report = session.read_reports(tmp_path, "Ascend910B2")
    assert report.race_count == len(ORDERS[work]), done.stderr
    for text in ORDERS[work]:
        assert f"simulated CANN: race: {text}" in done.stderr, done.stderr


@pytest.mark.parametrize(("uncached", "races"), [("1", 1), ("0", 0)])
def test_the_wait_of_torch_before_a_free_is_not_the_program_s(tmp_path, uncached, races):
    environment = {
        **os.environ,
        "ASCEND_SIM_SEED": "0",
        "ASCEND_SIM_REPORT_DIR": str(tmp_path),
        "PYTORCH_NO_NPU_MEMORY_CACHING": uncached,
    }
    work = "fill(one); free_as_torch(); copy_to_host()"
    command = [sys.executable, "-c", WORK_OF_TWO_STREAMS, str(folders.library("ascend_sim_cann")), work]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    text = conflict("the host's aclrtMemcpy reads", f"stream 0's {FILL} writes")
    assert done.stderr.count(f"simulated CANN: race: {text}") == races, done.stderr
    assert session.read_reports(tmp_path, "Ascend910B2").race_count == races


def test_the_report_counts_waits_of_the_host_and_the_work_that_is_left(tmp_path):
    environment = {**os.environ, "ASCEND_SIM_SEED": "0", "ASCEND_SIM_REPORT_DIR": str(tmp_path)}
    work = (
        "copy_in(one); copy_out(one); copy_to_host(); copy_from_host(); synchronize(one); read(one, other); "
    )
    work += "record(one); read(one, other); sys.exit()"
    command = [sys.executable, "-c", WORK_OF_TWO_STREAMS, str(folders.library("ascend_sim_cann")), work]
    subprocess.run(command, env=environment, check=True)
    report = session.read_reports(tmp_path, "Ascend910B2")
    waits = {"aclrtMemcpyAsync to the host": 1, "aclrtMemcpy to the host": 1, "aclrtSynchronizeStream": 1}
    assert (report.host_waits, report.work_left) == (waits, 2)


@pytest.mark.parametrize("is_early", [True, False])
def test_pinned_memory_is_freed_after_its_copy(tmp_path, is_early):
    environment = {**os.environ, "ASCEND_SIM_SEED": "0", "ASCEND_SIM_REPORT_DIR": str(tmp_path)}
    work = "copy_in(one, pinned); " + ("free_pinned()" if is_early else "synchronize(one); free_pinned()")
    command = [sys.executable, "-c", WORK_OF_TWO_STREAMS, str(folders.library("ascend_sim_cann")), work]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    text = f"aclrtFreeHost frees memory that stream 0's {COPY} uses, and the host has not waited for it."
    assert (text in done.stderr) == is_early, done.stderr
    assert len(session.read_reports(tmp_path, "Ascend910B2").freed_memory) == is_early
