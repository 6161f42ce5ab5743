"""Processes that fork: each reports its own work, and no work is lost."""

import pytest

FORKS = """
import os, sys
import torch, torch_npu, npu_rope

def launch():
    x, at = torch.ones(1, 4, 2, 16), torch.arange(4)
    p = npu_rope.RopeParams(16, "neox")
    y = npu_rope.rope(x.npu(), at.npu(), p).cpu()
    assert (y - npu_rope.rope(x, at, p)).abs().max() < 1e-6
    torch.ones(8).npu().cumsum(0)  # on the host

ends = {ends!r}
for end in ends:
    child = os.fork()
    if child == 0:
        if end != "idle":
            launch()
        (os._exit if end == "_exit" else sys.exit)(0)
    assert os.waitpid(child, 0)[1] == 0
if {parent_launches}:
    launch()
"""


@pytest.mark.parametrize("parent_launches", [pytest.param(False, marks=pytest.mark.slow), True])
def test_every_fork_that_uses_the_npu_reports_its_own_work(simulated, parent_launches):
    ends = ["exit", "idle", "_exit", "exit"]
    source = FORKS.format(ends=ends, parent_launches=parent_launches)
    done = simulated.code(source, fresh=True)
    assert done.status == 0, done.stderr
    report = done.report
    assert report.processes == 4  # without the idle one
    assert report.without_end == 1
    assert report.launches["NpuRope"] == 3 + parent_launches
    assert len(report.timeline) == 3 + parent_launches
    assert report.fallbacks["aten.cumsum.default"] == 2 + parent_launches  # written at a process's end
    assert report.is_clean


BROKEN = """
import os, torch, torch_npu, npu_rope
child = os.fork()
if child == 0:
    x, at = torch.ones(1, 6, 2, 64), torch.arange(6, dtype=torch.int32)
    try:
        npu_rope.rope(x.npu(), at.npu(), npu_rope.RopeParams(64, "neox")).cpu()
    finally:
        os._exit(0)
os.waitpid(child, 0)
"""


def test_a_rule_violation_in_a_fork_fails_the_command(simulated, changed_kernel):
    library = str(changed_kernel("no order of vector instructions"))
    done = simulated.sim("--", simulated.python, "-c", BROKEN, ASCEND_SIM_KERNELS=library)
    assert done.returncode == 1, done.stderr
    assert "npu-rope sim: rule violations: 1" in done.stderr
    assert "npu-rope sim:   NpuRope: SIM-HAZARD-02 " in done.stderr


AFTER_USE = """
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


def test_torch_npu_refuses_a_fork_of_a_process_that_used_the_npu(simulated):
    """Ascend/pytorch torch_npu/npu/__init__.py, _lazy_init and _after_fork. The fork does no work."""
    done = simulated.code(AFTER_USE, fresh=True)
    assert done.status == 0, done.stderr
    refusal, result = done.stdout.splitlines()
    assert refusal.startswith("Cannot re-initialize NPU in forked subprocess")
    assert result == "8.0 0"
    assert done.report.processes == 1
    assert done.report.launches["aclnnAdds"] + done.report.launches["aclnnAdd"] == 1
