"""npu_rope's operators in graphs, on streams with deliberate races, and in processes that fork."""

from pathlib import Path

import pytest
from simulated_npu import checks_of

SCRIPTS = Path(__file__).parent / "scripts"
GRAPHS, RACES = SCRIPTS / "operator_graphs.py", SCRIPTS / "operator_races.py"
LLAMA = SCRIPTS / "llama_graph.py"
SEEDS = range(10)


@pytest.mark.long
@pytest.mark.parametrize("check", checks_of(GRAPHS))
@pytest.mark.parametrize("queue", [pytest.param("0", marks=pytest.mark.slow), "1"])
def test_graph(simulated, queue, check):
    assert simulated.checks(GRAPHS, queue=queue, cached=True)[check] == "ok"


@pytest.mark.long
@pytest.mark.parametrize("level", ["tables", pytest.param("positions", marks=pytest.mark.slow)])
def test_a_replayed_decoding_step_of_a_llama_gives_the_tokens_of_single_operators(simulated, level):
    pytest.importorskip("transformers")
    done = simulated.run(LLAMA, "npu", level, PYTORCH_NO_NPU_MEMORY_CACHING="0")
    on_npu = done.json()
    assert on_npu["graph"] == on_npu["eager"]
    on_cpu = simulated.run(LLAMA, "cpu", level).json()
    assert len(on_cpu["eager"]["tokens"]) == 32
    assert on_npu["eager"]["tokens"] == on_cpu["eager"]["tokens"]
    assert on_npu["eager"]["logits"] == pytest.approx(on_cpu["eager"]["logits"], rel=1e-4, abs=1e-4)
    # Prefills, 32 single steps, a warm-up and 32 replays, each with two layers and five norms.
    steps = 2 + 32 + 1 + 32
    rotations = {"tables": "NpuRotaryMulQk", "positions": "NpuRopeQk"}[level]
    assert done.report.launches["NpuRmsNorm"] == 5 * steps
    assert done.report.launches[rotations] >= 2 * (steps - 2)
    assert done.report.is_clean, done.stderr


RACE_NAMES = ["missing_wait_after_a_kernel", "missing_wait_before_a_kernel"]


def race(simulated, seed, *arguments):
    variables = {"ASCEND_SIM_SEED": str(seed), "PYTORCH_NO_NPU_MEMORY_CACHING": "0"}
    return simulated.run(RACES, *arguments, **variables)


@pytest.mark.parametrize("name", RACE_NAMES)
def test_a_race_is_reported(simulated, name):
    assert race(simulated, 0, name).report.races


@pytest.mark.parametrize("seed", [*SEEDS[:3], *(pytest.param(s, marks=pytest.mark.slow) for s in SEEDS[3:])])
def test_the_programs_with_their_waits_are_correct_and_clean(simulated, seed):
    done = race(simulated, seed, "with-waits")
    assert done.json() == dict.fromkeys(RACE_NAMES, True)
    assert done.report.is_clean, done.stderr


# ---- processes that fork ------------------------------------------------------------------------------

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


@pytest.mark.long
@pytest.mark.parametrize("parent_launches", [pytest.param(False, marks=pytest.mark.slow), True])
def test_every_fork_that_uses_the_npu_reports_its_own_work(simulated, parent_launches):
    ends = ["exit", "idle", "_exit", "exit"]
    source = FORKS.format(ends=ends, parent_launches=parent_launches)
    done = simulated.code(source, fresh=True)
    assert done.status == 0, done.stderr
    report = done.report
    assert report.processes == 4  # without the idle one
    assert report.processes_without_end == 1
    assert report.launches["NpuRope"] == 3 + parent_launches
    assert len(report.timeline) == 3 + parent_launches
    assert (
        report.fallbacks["aten.cumsum.default"] == 2 + parent_launches
    )  # os._exit loses those of its process
    assert report.is_clean


RACE_IN_A_FORK = """
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


@pytest.mark.long
def test_a_rule_violation_in_a_fork_fails_the_command(simulated, changed_kernel):
    library = str(changed_kernel("no order of vector instructions"))
    done = simulated.sim("--", simulated.python, "-c", RACE_IN_A_FORK, ASCEND_SIM_KERNELS=library)
    assert done.returncode == 1, done.stderr
    assert "npu-rope sim: launches with rule violations: 1" in done.stderr
    assert "npu-rope sim:   NpuRope: SIM-HAZARD-02 " in done.stderr
