"""The real torch_npu on the simulated CANN: checks of scripts, and tests with processes of their own."""

import json
import os
import re
import signal
import time

import pytest
from ascend_sim import folders
from ascend_sim.programs import find_torch_npu, session, stubs
from simulated_npu import SCRIPTS, TIMEOUT_SECONDS, checks_of

QUEUES = ("0", "1", "2")
# A line of torch_npu's own log, such as of the thread of its queue.
TORCH_NPU_LOG = re.compile(r"[IWEF]\d{4} .*\.cpp:\d+\]")


@pytest.mark.parametrize("check", checks_of(SCRIPTS / "arithmetic.py"))
@pytest.mark.parametrize("soc", ["Ascend910B2", "Ascend310P3"])
def test_stand_ins(simulated, soc, check):
    assert simulated.checks(SCRIPTS / "arithmetic.py", soc)[check] == "ok"


@pytest.mark.parametrize("check", checks_of(SCRIPTS / "fallback.py"))
def test_host_fallback(simulated, check):
    assert simulated.checks(SCRIPTS / "fallback.py")[check] == "ok"


@pytest.mark.parametrize("check", checks_of(SCRIPTS / "runtime.py"))
@pytest.mark.parametrize("queue", QUEUES)
def test_runtime(simulated, queue, check):
    assert simulated.checks(SCRIPTS / "runtime.py", "Ascend910_9391", queue)[check] == "ok"


@pytest.mark.parametrize("queue", QUEUES[1:])
def test_a_small_llama_trains_and_decodes_as_on_the_cpu(simulated, queue):
    done = simulated.run(SCRIPTS / "llama.py", "npu", TASK_QUEUE_ENABLE=queue)
    expected = simulated.llama_on_the_cpu()
    assert done.json()["losses"] == pytest.approx(expected["losses"], rel=1e-5)
    assert done.json()["tokens"] == expected["tokens"]
    assert done.report.is_clean
    assert done.report.processes == 1
    assert done.report.launches["aclnnMul"] > 100
    assert done.report.fallbacks["aten.mm.default"] > 100
    assert not done.report.not_simulated


def test_an_aclnn_function_that_is_missing_is_explained(simulated):
    source = "import torch, torch_npu; x = torch.ones(1, 2, 8, 16).npu().half()\n"
    done = simulated.code(source + "torch_npu.npu_fusion_attention(x, x, x, 2, 'BNSD')")
    assert done.status == 1
    lines = [line for line in done.stderr.splitlines() if not TORCH_NPU_LOG.match(line)]
    assert lines[-1] == (
        "simulated CANN: aclnnFlashAttentionScoreGetWorkspaceSize is not simulated. The page "
        "simulator/docs/aclnn.md lists the functions that are. Report it to the project, or contribute it in "
        "simulator/cann/opapi/."
    )


def test_the_report_names_an_aclnn_function_that_torch_npu_s_queue_called(simulated):
    source = "import torch, torch_npu; torch_npu.npu_fast_gelu(torch.ones(4).npu()); torch.npu.synchronize()"
    done = simulated.code(source, TASK_QUEUE_ENABLE="2")
    assert done.report.not_simulated == {"aclnnFastGeluGetWorkspaceSize": 1}
    assert not done.report.is_clean


# ---- guard zones -------------------------------------------------------------------------------------

OVERRUN = """
import ctypes, torch
x = torch.ones(10, device="npu")
torch.npu.synchronize()
ctypes.memset(x.data_ptr() + 40, 0, 4)
"""


def test_an_overrun_is_an_error_when_the_device_is_synchronized(simulated):
    done = simulated.code(OVERRUN + "torch.npu.synchronize()")
    assert done.status == 1
    message = "of 40 bytes has damage at bytes 1 to 4 behind its end"
    assert "RuntimeError" in done.stderr
    assert done.stderr.count(message) == 2  # once when the damage is found, once in the exception
    assert message in done.report.guard_damage[0]
    assert not done.report.is_clean


@pytest.mark.parametrize("then", ["del x", "import builtins; builtins.kept = x"], ids=["freed", "kept"])
def test_an_overrun_without_a_later_check_is_reported_once(simulated, then):
    done = simulated.code(OVERRUN + then)
    assert done.status == 0  # no code can catch an exception at this point; ascend-sim run returns 1
    assert len(done.report.guard_damage) == 1
    assert "of 40 bytes has damage at bytes 1 to 4 behind its end" in done.report.guard_damage[0]


# ---- ascend-sim run ----------------------------------------------------------------------------------


def test_a_run_prints_its_report_and_returns_the_script_s_status(simulated, tmp_path):
    source = "import torch, sys; print((torch.ones(3).npu() + 1).exp().sum().item()); sys.exit(7)"
    report = tmp_path / "report.json"
    options = ["--soc", "Ascend310P3", "--report", report]
    done = simulated.sim(*options, "--", simulated.python, "-c", source)
    assert done.returncode == 7, done.stderr
    assert done.stdout == "22.16716766357422\n"
    report_lines = [line for line in done.stderr.splitlines() if line.startswith("ascend-sim run: ")]
    assert report_lines[0] == "ascend-sim run: simulated Ascend310P3: nothing of this ran on hardware."
    assert "ascend-sim run: host fallbacks: 2 (aten.exp.default 1, aten.sum.default 1)" in report_lines
    assert "ascend-sim run: guard zones: intact" in report_lines
    found = json.loads(report.read_text())
    assert found["simulated"] is True
    assert found["exit_status"] == 7
    assert found["fallbacks"] == {"aten.exp.default": 1, "aten.sum.default": 1}
    assert found["launches"]["aclnnAdds"] == 1


@pytest.mark.long
def test_damage_changes_the_exit_status_from_0_to_1(simulated):
    source = OVERRUN + "del x"
    done = simulated.sim("--", simulated.python, "-c", source, PYTORCH_NO_NPU_MEMORY_CACHING="1")
    assert done.returncode == 1
    assert "ascend-sim run: guard zones: 1 overrun" in done.stderr


@pytest.mark.slow
def test_two_first_runs_at_once_succeed_and_leave_one_set_of_libraries(simulated, tmp_path):
    source = "import torch; print(torch.ones(2).npu().exp().cpu().tolist())"
    arguments = ["--", simulated.python, "-c", source]
    both = [simulated.start(*arguments, XDG_CACHE_HOME=str(tmp_path)) for _ in range(2)]
    for process in both:
        out, err = process.communicate(timeout=TIMEOUT_SECONDS)
        assert process.returncode == 0, err
        assert out == "[2.7182817459106445, 2.7182817459106445]\n"
    stand_ins, toolkit = sorted(path.name for path in (tmp_path / "ascend-sim").iterdir())
    assert toolkit.startswith("toolkit-")
    assert not stand_ins.startswith("toolkit-")


def test_a_signal_reaches_the_script(simulated):
    source = (
        "import signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(42))\n"
        "print('ready', flush=True)\n"
        "time.sleep(60)\n"
    )
    process = simulated.start("--", simulated.python, "-c", source)
    assert process.stdout.readline() == "ready\n"
    start = time.monotonic()
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 42
    assert time.monotonic() - start < 30
    assert "no process used the simulated NPU" in err


def test_the_users_own_sitecustomize_runs_too(simulated, tmp_path):
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.was_mine = True\n")
    source = (
        "import sys, sitecustomize, torch\n"
        "print(sys.was_mine, sitecustomize.__file__, 'ascend_sim_fallback' in sys.modules)"
    )
    environment = simulated.environment("Ascend910B2")
    path = os.pathsep.join([environment["PYTHONPATH"], str(tmp_path)])
    done = simulated.code(source, fresh=True, PYTHONPATH=path)
    assert done.stdout == f"True {tmp_path / 'sitecustomize.py'} True\n", done.stderr


@pytest.mark.long
def test_processes_that_a_script_starts_are_simulated_too(simulated):
    done = simulated.run(SCRIPTS / "two_processes.py")
    assert done.json() == [[0.0, 1.0], [1.0, 2.0]]
    assert done.report.processes == 3
    assert done.report.fallbacks["aten.exp.default"] == 2


def test_the_generated_libraries_fit_the_installed_torch_npu(simulated):
    simulated.environment(session.DEFAULT_CHIP)
    folders_of_torch_npu = (simulated.cache / "ascend-sim").glob("[!t]*")  # without toolkit-...
    (folder,) = folders_of_torch_npu
    stems = "ascendcl hccl acl_op_compiler ge_runner graph acl_tdt_channel atb fmk_parser ascend_protobuf"
    names = {path.name for path in folder.iterdir()}
    assert {f"lib{name}.so" for name in [*stems.split(), "opapi", "nnopbase"]} <= names
    npu = find_torch_npu.torch_npu_of(simulated.python)
    needed = set(stubs.needs_of(npu).symbols)
    stubbed = stubs.Elf.read(folder / stubs.STUBS).defined
    in_library = stubs.Elf.read(folders.library("ascend_sim_cann")).defined
    assert needed <= stubbed | in_library
    assert not stubbed & in_library
    assert {"dlopen", "pthread_create", "PyList_New"}.isdisjoint(stubbed)


OUT_OF_MEMORY = """
import torch, torch_npu
try:
    torch.empty(1 << 45, dtype=torch.uint8, device="npu")
except torch.OutOfMemoryError as error:
    print(error)
"""


def test_too_much_memory_is_torch_s_own_error_if_its_cache_is_on(simulated):
    done = simulated.code(OUT_OF_MEMORY, PYTORCH_NO_NPU_MEMORY_CACHING="0")
    assert done.status == 0, done.stderr
    assert done.stdout.startswith("NPU out of memory. Tried to allocate 32768.00 GiB")


FORK_AFTER_USE = """
import multiprocessing, torch, torch_npu

def child():
    try:
        torch.npu.synchronize()
    except RuntimeError as error:
        print(error, flush=True)

x = torch.ones(4).npu() + 1
other = multiprocessing.get_context("fork").Process(target=child)
other.start()
other.join()
print(x.cpu().sum().item(), other.exitcode)
"""


@pytest.mark.long
def test_torch_npu_refuses_a_fork_of_a_process_that_used_the_npu(simulated):
    """See Ascend/pytorch torch_npu/npu/__init__.py, _lazy_init and _after_fork."""
    done = simulated.code(FORK_AFTER_USE, fresh=True)
    assert done.status == 0, done.stderr
    refusal, result = done.stdout.splitlines()
    assert refusal.startswith("Cannot re-initialize NPU in forked subprocess")
    assert result == "8.0 0"
    assert done.report.processes == 1
    assert done.report.launches["aclnnAdds"] + done.report.launches["aclnnAdd"] == 1
