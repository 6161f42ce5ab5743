"""npu_rope's operators through the real torch_npu on the simulated CANN: scripts as users write them,
kernels with deliberate defects, bad calls, calls that a graph can capture, the import order of torch_npu,
the command line, and chips. `scripts/test.sh --npu` runs the tests of the operators (tests/ops,
tests/rope, …) on back end npu.
"""

import itertools
import json
import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest
from simulated_npu import TIMEOUT_SECONDS, checks_of

SCRIPTS = Path(__file__).parent / "scripts"
ROPE_OPERATORS = {"NpuRope", "NpuRopeQk", "NpuRopeSetRows"}


def slow(value):
    """Mark a parameter as slow: each run of torch_npu takes seconds."""
    return pytest.param(value, marks=pytest.mark.slow)


@pytest.mark.long
@pytest.mark.parametrize("queue", ["0", "1", "2"])
def test_a_port_agrees_with_float64(simulated, queue):
    done = simulated.run(SCRIPTS / "port.py", TASK_QUEUE_ENABLE=queue)
    found = done.json()
    assert len(found) == 15
    # In units of port.py's bounds: eps / 2 times the largest expected value.
    assert max(found.values()) < 4, found
    assert set(done.report.launches) >= ROPE_OPERATORS
    assert done.report.is_clean
    assert not done.report.not_simulated


@pytest.mark.parametrize("check", checks_of(SCRIPTS / "operators.py"))
@pytest.mark.parametrize("queue", ["0", "1", "2"])
def test_operators_on_npu_tensors(simulated, queue, check):
    assert simulated.checks(SCRIPTS / "operators.py", queue=queue)[check] == "ok"


@pytest.mark.parametrize("check", checks_of(SCRIPTS / "tables.py"))
@pytest.mark.parametrize("queue", ["0", "1"])
def test_given_tables_on_npu_tensors(simulated, queue, check):
    assert simulated.checks(SCRIPTS / "tables.py", queue=queue)[check] == "ok"


@pytest.mark.parametrize("check", checks_of(SCRIPTS / "qkv.py"))
@pytest.mark.parametrize("queue", ["0", slow("1")])
def test_qkv_norm_rope_cache_on_npu_tensors(simulated, queue, check):
    assert simulated.checks(SCRIPTS / "qkv.py", queue=queue)[check] == "ok"


@pytest.mark.parametrize("check", checks_of(SCRIPTS / "vllm_ascend_names.py"))
@pytest.mark.parametrize("queue", [slow("0"), "1"])
def test_vllm_ascend_s_names_on_npu_tensors(simulated, queue, check):
    assert simulated.checks(SCRIPTS / "vllm_ascend_names.py", queue=queue)[check] == "ok"


def test_a_function_with_vllm_ascend_s_name_is_one_launch(simulated):
    done = simulated.run(SCRIPTS / "vllm_ascend_names.py", "launches")
    assert len(done.stdout.split()) == 6, done.stderr
    # aclnnArange makes the numbers of the rows in the tables of three axes.
    assert done.report.launches == {"NpuQkvNormRopeCache": 6, "aclnnArange": 1}
    assert not done.report.fallbacks
    assert done.report.is_clean


KEYS_OF_LATENT_ATTENTION = """
import torch, torch_npu
from npu_rope import RopeParams, qkv_norm_rope_cache
k, v = torch.randn(9, 2, 192).bfloat16().npu(), torch.randn(9, 2, 128).bfloat16().npu()
k_cache, v_cache = torch.zeros(16, 2, 192, dtype=torch.int8).npu(), torch.zeros(16, 2, 128).bfloat16().npu()
named = {"slots": torch.arange(9).npu(), "k_cache": k_cache, "v_cache": v_cache}
factor = torch.full((1,), 20.0).npu()
for _ in range(5):
    q = torch.empty(9, 0, 192, dtype=torch.bfloat16, device="npu")
    positions, params = torch.arange(9).npu(), RopeParams(64, n_offs=128)
    qkv_norm_rope_cache(q, k, v, positions, params, k_quant_scale=factor, **named)
assert torch.equal(v_cache.cpu()[:9], v.cpu()) and k_cache.cpu()[:9].any()
"""


def test_a_call_without_queries_is_one_launch(simulated):
    """Values of another head size, and caches of two types, need no other launch and no copy."""
    done = simulated.code(KEYS_OF_LATENT_ATTENTION)
    assert done.status == 0, done.stderr
    assert done.report.launches["NpuQkvNormRopeCache"] == 5
    assert not done.report.fallbacks
    assert done.report.is_clean


@pytest.mark.slow
@pytest.mark.parametrize("check", checks_of(SCRIPTS / "fused_llama.py"))
def test_fused_models_on_an_npu(simulated, check):
    assert simulated.checks(SCRIPTS / "fused_llama.py", queue="1")[check] == "ok"


@pytest.mark.long
def test_the_command_reports_launches_and_a_timeline(simulated, tmp_path):
    report = tmp_path / "report.json"
    done = simulated.sim("--report", report, "--", simulated.python, SCRIPTS / "port.py")
    assert done.returncode == 0, done.stderr
    assert "npu-rope sim: simulated microseconds of kernels: " in done.stderr
    found = json.loads(report.read_text())
    assert set(found["launches"]) >= ROPE_OPERATORS
    runs = found["timeline"]
    assert {run["operator"] for run in runs} == ROPE_OPERATORS
    assert len(runs) == sum(found["launches"][name] for name in ROPE_OPERATORS)
    for run, after in itertools.pairwise(runs):
        assert run["cycles"] > 500
        assert run["cores"] >= 1
        assert after["begin"] == pytest.approx(run["begin"] + run["microseconds"])


@pytest.mark.long
def test_a_llama_with_npu_rope_trains_and_decodes_as_on_the_cpu(simulated):
    done = simulated.run(SCRIPTS / "rope_llama.py", "npu")
    expected = simulated.llama_on_the_cpu()
    assert done.json()["losses"] == pytest.approx(expected["losses"], rel=1e-5)
    assert done.json()["tokens"] == expected["tokens"]
    assert done.report.launches["NpuRope"] >= 8 * 2 * 2 * 2  # steps, layers, q and k, forward and backward
    assert done.report.is_clean


# ---- deliberate defects ------------------------------------------------------------------------------

ONE_CALL = """
import torch, torch_npu, npu_rope
x = torch.randn(1, 6, 2, 64).npu()
y = npu_rope.rope(x, torch.arange(6, dtype=torch.int32).npu(), npu_rope.RopeParams(64, "neox"))
torch.npu.synchronize()
print(float(y.abs().sum()))
"""


# Without torch_npu's cache, a process whose tensors live until its end would end by a signal: torch_npu frees
# them after it has closed the device.
CACHED = {"PYTORCH_NO_NPU_MEMORY_CACHING": "0"}


def test_a_planted_race_is_reported_with_its_rule_and_line(simulated, changed_kernel):
    library = str(changed_kernel("no order of vector instructions"))
    done = simulated.code(ONE_CALL, ASCEND_SIM_KERNELS=library, TASK_QUEUE_ENABLE="0", **CACHED)
    assert done.status == 1
    rule = r"SIM-HAZARD-02 \w+\.h:\d+, core 0, \w+: "
    assert done.report.launches_with_violations == 1
    (violation, *_) = done.report.rule_violations
    assert re.match("NpuRope: " + rule, violation), violation
    assert violation.removeprefix("NpuRope: ")[:40] in done.stderr  # also in Python's exception
    assert not done.report.is_clean


@pytest.mark.long
def test_a_kernel_that_writes_too_much_is_reported(simulated, changed_kernel):
    library = str(changed_kernel("one element too many written"))
    done = simulated.code(ONE_CALL, ASCEND_SIM_KERNELS=library, TASK_QUEUE_ENABLE="0", **CACHED)
    assert done.status == 1
    assert "SIM-BOUNDS" in done.report.rule_violations[0]


@pytest.mark.long
def test_the_race_fails_the_command_whatever_the_script_does(simulated, changed_kernel):
    library = str(changed_kernel("no order of vector instructions"))
    source = f"try:\n    exec({ONE_CALL!r})\nexcept RuntimeError:\n    pass\n"
    done = simulated.sim("--", simulated.python, "-c", source, ASCEND_SIM_KERNELS=library)
    assert done.returncode == 1, done.stderr
    assert "npu-rope sim: launches with rule violations: 1" in done.stderr
    assert "npu-rope sim:   NpuRope: SIM-HAZARD-02 " in done.stderr


# ---- graphs ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("queue", [slow("0"), "1", "2"])
def test_the_host_never_waits_for_a_call(simulated, queue):
    """Captured calls must neither wait for the device nor read from it."""
    waits = []
    for calls in ("1", "40"):
        # Without the cache each free waits for the device.
        done = simulated.run(SCRIPTS / "captured.py", calls, TASK_QUEUE_ENABLE=queue, **CACHED)
        assert done.status == 0, done.stderr
        assert done.report.launches["NpuRope"] == 2 * int(calls)
        waits.append(done.report.host_waits)
    assert waits[0] == waits[1]


# ---- bad calls ---------------------------------------------------------------------------------------

BAD_CALLS = """
import json, torch, torch_npu, npu_rope
from npu_rope import RopeParams, rope, rope_, rope_qk, rope_set_rows
x, at, p = torch.randn(1, 4, 2, 64).npu(), torch.arange(4).npu(), RopeParams(64, "neox")
cache, slots = torch.zeros(8, 2, 64).npu(), torch.arange(4).npu()[None]
scale, beyond_int32 = torch.ones(64).npu(), dict(n_dims=64, rope_mode=2, angle=2**32)
calls = {
    "positions on the CPU": lambda: rope(x, at.cpu(), p),
    "x on the CPU": lambda: rope(x.cpu(), at, p),
    "dtype": lambda: rope(x.int(), at, p),
    "positions' dtype": lambda: rope(x, at.to(torch.int16), p),
    "overlap": lambda: rope_(x[:, :1].expand(1, 4, 2, 64), at, p),
    "partial overlap": lambda: rope(x[:, :3], at[:3], p, out=x[:, 1:]),
    "last stride": lambda: rope_(x.transpose(2, 3)[..., :2], at, RopeParams(2)),
    "head too large": lambda: rope(torch.zeros(1, 1, 1, 65536).npu(), at[:1], RopeParams(64, "neox")),
    "angle policy": lambda: rope(x, at, p, angle="ggml"),
    "cache": lambda: rope_set_rows(x, at, slots, cache.cpu(), p),
    "k": lambda: rope_qk(x, x.half(), at, p),
    "an operator": lambda: torch.ops.npu_rope.rope(x, at[:3], None, n_dims=64, rope_mode=2),
    "an angle policy beyond int32": lambda: torch.ops.npu_rope.rms_norm_rope(
        x, x, scale, scale, at, None, **beyond_int32
    ),
}
torch.npu.synchronize()
found = {}
for name, call in calls.items():
    try:
        call()
        found[name] = "no error"
    except Exception as error:
        kind = next(c for c in (ValueError, TypeError, Exception) if isinstance(error, c))
        found[name] = f"{kind.__name__}: {error}"
y = rope(x, at, p)
found["after"] = bool((y.cpu() - rope(x.cpu(), at.cpu(), p)).abs().max() < 1e-6)
print(json.dumps(found))
"""
REFUSED = {
    "positions on the CPU": "ValueError: [rope] positions must be on x's device npu:0 but got cpu.",
    "x on the CPU": "ValueError: [rope] positions must be on x's device cpu but got npu:0.",
    "dtype": "TypeError: [rope] x must be float32, float16, bfloat16 or float64 but got int32.",
    "positions' dtype": "TypeError: [rope] positions must be int32 or int64 but got int16.",
    "overlap": "ValueError: [rope_] x must not overlap itself but got strides [512, 0, 64, 1].",
    "partial overlap": "ValueError: [rope] out must be x itself or share no memory with x but got ",
    "last stride": "ValueError: [rope_] x must have unit stride in its last dimension",
    "head too large": "ValueError: [rope] x must have a head size of at most 1024 on an NPU but got 65536.",
    "angle policy": "ValueError: [rope] angle must be exact (0) on an NPU but got ggml.",
    "cache": "ValueError: [rope_set_rows] cache must be on x's device npu:0 but got cpu.",
    "k": "TypeError: [rope_qk] k must have q's dtype float32 but got float16.",
    "an operator": "ValueError: [rope] positions must have shape ",
    "an angle policy beyond int32": "ValueError: [rope] angle must be in the int32 range but got 4294967296.",
}


@pytest.mark.parametrize("queue", ["0", "1"])
def test_bad_calls_are_refused_before_any_launch_and_the_stream_stays_usable(simulated, queue):
    done = simulated.code(BAD_CALLS, TASK_QUEUE_ENABLE=queue, **CACHED)
    found = done.json()
    assert found.pop("after") is True
    assert found.keys() == REFUSED.keys()
    wrong = {name: found[name] for name, words in REFUSED.items() if not found[name].startswith(words)}
    assert not wrong
    assert done.report.launches["NpuRope"] == 1  # the last call's
    assert "NpuRopeQk" not in done.report.launches
    assert "NpuRopeSetRows" not in done.report.launches
    assert "NpuRmsNormRope" not in done.report.launches
    assert done.report.is_clean


MIXED = """
import json, torch, torch_npu, npu_rope
from npu_rope import RopeParams, rope, rope_, rope_qk, rope_qk_, rope_set_rows
p, x, at = RopeParams(64, "neox"), torch.randn(1, 4, 2, 64), torch.arange(4)
cache, slots, factors = torch.zeros(8, 2, 64), torch.arange(4)[None], torch.ones(32)
packed = torch.zeros(8, dtype=torch.uint8)
npu = lambda t: t.clone().npu()
calls = {
    "rope_ positions": lambda: rope_(x, npu(at), p),
    "rope_ factors": lambda: rope_(x, at, p, npu(factors)),
    "out positions": lambda: rope(x.clone(), npu(at), p, out=x),
    "out": lambda: rope(x, at, p, out=npu(x)),
    "out and positions": lambda: rope(x, npu(at), p, out=npu(x)),
    "rope positions": lambda: rope(x, npu(at), p),
    "rope_qk positions": lambda: rope_qk_(x, x.clone(), npu(at), p),
    "rope_qk k": lambda: rope_qk_(x, npu(x), at, p),
    "rope_qk out": lambda: rope_qk(x, x, at, p, out=(npu(x), npu(x))),
    "rows": lambda: rope_set_rows(x, at, npu(slots), cache, p),
    "rows positions": lambda: rope_set_rows(x, npu(at), slots, cache, p),
    "rows factors": lambda: rope_set_rows(x, at, slots, cache, p, npu(factors)),
    "cache": lambda: rope_set_rows(x, at, slots, npu(cache), p),
    "packed": lambda: torch.ops.npu_rope.rope_packed_(npu(x), npu(at), packed),
}
before = x.clone()
found = {}
for name, call in calls.items():
    try:
        call()
        found[name] = "no error"
    except (ValueError, RuntimeError) as error:
        found[name] = str(error)
    if not torch.equal(x, before) or cache.any():
        found[name] += " (written)"
print(json.dumps(found))
"""


@pytest.mark.parametrize("queue", ["0", "1"])
def test_tensors_of_two_devices_are_refused_and_nothing_is_written(simulated, queue):
    done = simulated.code(MIXED, TASK_QUEUE_ENABLE=queue)
    found = done.json()
    for name, message in found.items():
        assert re.fullmatch(r"\[rope\w*\] \w+ must be on .*device cpu.* but got .*\.", message), (
            name,
            message,
        )
    assert "fall back" not in done.stderr
    assert not ROPE_OPERATORS & set(done.report.launches)


VIEWS = """
import json, torch, torch_npu, npu_rope
from npu_rope import RopeParams, rope, rope_qk, rope_set_rows
p, at = RopeParams(64, "neox"), torch.empty(4, dtype=torch.int64, device="npu")
x = torch.empty(1, 4, 2, 128, device="npu")[..., ::2]
cache, factors = torch.empty(9, 2, 64, device="npu"), torch.empty(62, device="npu")[::2]
calls = {
    "rope": lambda: rope(x, at[:3], p),
    "rope_qk": lambda: rope_qk(x, x[:, :, :1], at[:3], p),
    "rope_set_rows": lambda: rope_set_rows(x, at[:3], at[None], cache, p),
    "factors": lambda: rope(x, at, p, factors),
    "in place": lambda: npu_rope.rope_(x, at, p),
}
found = {}
for name, call in calls.items():
    try:
        call()
        found[name] = "no error"
    except ValueError as error:
        found[name] = str(error)
torch.npu.synchronize()
print(json.dumps(found))
"""


def test_a_refused_call_does_not_even_copy_a_view(simulated):
    done = simulated.code(VIEWS)
    found = done.json()
    shape = "positions must have shape [S] = [4] or [B, S] = [1, 4] but got [3]."
    assert found == {
        "rope": f"[rope] {shape}",
        "rope_qk": f"[rope_qk] {shape}",
        "rope_set_rows": f"[rope_set_rows] {shape}",
        "factors": "[rope] freq_factors must have one dimension of at least n_dims/2 = 32 elements"
        " but got shape [31].",
        "in place": "[rope_] x must have unit stride in its last dimension but got 2.",
    }
    assert not done.report.launches


READ_VIEWS = """
import torch, torch_npu
from npu_rope import RopeParams, rope, rotary_mul
x, at, tables = torch.ones(2, 3, 5, 64).npu().transpose(1, 2), torch.arange(5).npu(), torch.ones(5, 128).npu()
rope(x, at, RopeParams(64))
rope(x[:, :, 1:, :32], at, RopeParams(32))
rotary_mul(x, tables[:, :64], tables[:, 64:])
torch.npu.synchronize()
"""


def test_views_are_read_without_a_copy(simulated):
    assert simulated.code(READ_VIEWS).report.launches == {"NpuRope": 2, "NpuRotaryMul": 1}


# ---- the import of torch_npu, and the binding --------------------------------------------------------

# A script that imports npu_rope before it imports torch_npu.
LATE = """
import os
os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
import json, sys, npu_rope, torch
assert "torch_npu" not in sys.modules
import torch_npu
from npu_rope import RopeParams, rope
p, x, at = RopeParams(64, "neox"), torch.randn(1, 4, 2, 64), torch.arange(4)
x_npu, cache, slots = x.npu(), torch.zeros(8, 2, 64), torch.arange(4)[None]
op, attributes = torch.ops.npu_rope, {"n_dims": 64, "rope_mode": 2}
calls = {
    "rope": lambda: op.rope(x_npu, at.npu(), None, **attributes),
    "compiled": lambda: torch.compile(lambda x: rope(x, at.npu(), p), backend="aot_eager")(x_npu),
    "called": lambda: rope(x_npu, at.npu(), p),
    "positions": lambda: op.rope_(x_npu, at, None, **attributes),
    "cache": lambda: op.rope_set_rows(x_npu, at.npu(), slots.npu(), cache, None, **attributes),
}
expected = rope(x, at, p)
first = sys.argv[1]
found = {}
for name in (first, *(name for name in calls if name != first)):
    try:
        y = calls[name]()
        found[name] = y.device.type == "npu" and bool((y.cpu() - expected).abs().max() < 1e-6)
    except ValueError as error:
        found[name] = str(error)
found["unchanged"] = torch.equal(x_npu.cpu(), x) and not cache.any()
print(json.dumps(found))
"""


@pytest.mark.long
@pytest.mark.parametrize("first", ["rope", slow("compiled"), slow("positions"), "cache"])
def test_torch_npu_may_come_after_npu_rope(simulated, first):
    done = simulated.code(LATE, first, fresh=True)
    assert done.json() == {
        "rope": True,
        "compiled": True,
        "called": True,
        "positions": "[rope] positions must be on x's device npu:0 but got cpu.",
        "cache": "[rope_set_rows] cache must be on x's device npu:0 but got cpu.",
        "unchanged": True,
    }
    assert "fall back" not in done.stderr
    assert "previously registered" not in done.stderr
    assert done.report.launches["NpuRope"] == 3


NOT_IMPORTED = """
import os
os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
import sys, numpy as np, npu_rope
assert "torch_npu" not in sys.modules
x, at, params = np.ones((1, 4, 2, 64), np.float32), np.arange(4), npu_rope.RopeParams(64)
y = npu_rope.rope(x, at, params, backend="npu")
print(np.abs(y - npu_rope.rope(x, at, params)).max() < 1e-6)
sys.modules["torch_npu"] = None  # as if it did not load
try:
    npu_rope.rope(x, at, params, backend="npu")
except npu_rope.BackendUnavailable as error:
    print(str(error))
"""


@pytest.mark.long
def test_the_back_end_imports_torch_npu_if_torch_did_not(simulated):
    done = simulated.code(NOT_IMPORTED, fresh=True)
    right, refused, *_ = done.stdout.splitlines()
    assert right == "True", done.stderr
    assert refused.startswith("[npu] backend must be available but ")
    assert done.report.launches["NpuRope"] == 1


UNBOUND = """
import os
os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
import npu_rope, torch, torch_npu
npu_rope.backends.npu_binding = lambda: None  # as if npu_rope was installed before torch_npu
x, at, attributes = torch.ones(1, 4, 2, 64), torch.arange(4), {"n_dims": 64, "rope_mode": 2}
for call in (
    lambda: torch.ops.npu_rope.rope_(x.npu(), at.npu(), **attributes),
    lambda: torch.ops.npu_rope.rope_set_rows(x.npu(), at.npu(), at[None].npu(), x[0], **attributes),
    lambda: npu_rope.rope(x.npu(), at.npu(), npu_rope.RopeParams(64)),
):
    try:
        print(call())
    except npu_rope.BackendUnavailable as error:
        print(str(error).partition(";")[0].partition("\\n")[0], bool((x == 1).all()))
"""


def test_without_the_binding_nothing_falls_back_to_the_cpu(simulated):
    done = simulated.code(UNBOUND, fresh=True)
    message = "[npu] backend must be available but it lacks npu_rope's binding of torch_npu"
    assert [line.partition(". ")[0] for line in done.stdout.splitlines()] == [message] * 3
    assert all(line.endswith(" True") for line in done.stdout.splitlines())
    assert "fall back" not in done.stderr


# ---- the command line --------------------------------------------------------------------------------


@pytest.mark.long
def test_validate_runs_its_cases_on_npu(simulated):
    arguments = ["-m", "npu_rope.cli", "validate", "--backend", "npu", "--no-ggml", "--filter", r"ne_a=\[64"]
    done = simulated.sim("--", simulated.python, *arguments)
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    assert "npu (Ascend910B2, simulated; float32 attributes) vs float64 (exact): 152 of 152" in done.stdout
    assert "npu-rope sim: launches with rule violations: none" in done.stderr


def test_doctor_finds_a_simulated_npu(simulated):
    command = ["--", simulated.python, "-m", "npu_rope.cli", "doctor"]
    # No ggml, because its process would also import torch_npu.
    done = simulated.sim(*command, NPU_ROPE_GGML_LIB="/nonexistent")
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^ yes  npu +torch_npu, simulated CANN and Ascend910B2 *$", done.stdout, re.M)
    assert re.search(r"^ yes  device +Ascend910B2, simulated: no hardware *$", done.stdout, re.M)
    kernels = "kernels for ascend310p, ascend910_93, ascend910b, ascend950"
    assert re.search(rf"^ yes  kernels +{kernels} *$", done.stdout, re.M)


def test_doctor_lists_the_missing_pieces_with_torch_npu_but_without_cann(npu_python):
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("ASCEND", "NPU_ROPE"))}
    environment["NPU_ROPE_GGML_LIB"] = "/nonexistent"
    command = [npu_python, "-m", "npu_rope.cli", "doctor"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=TIMEOUT_SECONDS)
    assert "Traceback" not in done.stderr
    assert done.returncode == 0
    text = " ".join(done.stdout.split())
    assert (
        "no npu it lacks CANN (ASCEND_HOME_PATH); an Ascend device (/dev/davinci0 or another number);" in text
    )
    assert "no CANN CANN (ASCEND_HOME_PATH) is absent install the CANN toolkit, then: source " in text
    assert "no torch torch does not load: " in text
    assert "With torch_npu but without CANN: source CANN's set_env.sh" in text


# ---- deterministic mode ------------------------------------------------------------------------------

DETERMINISTIC = """
import torch, torch_npu, npu_rope
torch.manual_seed(0)
x, scale, grad = torch.randn(300, 256), torch.randn(256), torch.randn(300, 256)

def gradient_of_scale(**mode):
    torch.use_deterministic_algorithms(**mode)
    leaf, weight = x.npu().requires_grad_(), scale.npu().requires_grad_()
    npu_rope.rms_norm(leaf, weight).backward(grad.npu())
    torch.npu.synchronize()
    torch.use_deterministic_algorithms(False)
    return weight.grad.cpu()

usual = gradient_of_scale(mode=False)
ordered = gradient_of_scale(mode=True)
warned = gradient_of_scale(mode=True, warn_only=True)
torch.use_deterministic_algorithms(True)
_, expected = npu_rope.rms_norm_backward(grad, x, scale, backend="sim")
torch.use_deterministic_algorithms(False)
assert torch.equal(ordered, expected) and torch.equal(warned, expected)
assert not torch.equal(usual, expected) and torch.allclose(usual, expected, rtol=1e-4, atol=1e-4)
assert torch.equal(gradient_of_scale(mode=False), usual)
"""


@pytest.mark.parametrize("queue", ["0", "1", "2"])
def test_the_deterministic_mode_of_torch_orders_the_sums_of_the_scale_s_gradient(simulated, queue):
    """torch_npu passes the mode to CANN, and the tiling reads it there. The sums equal those of back end sim,
    bit for bit."""
    done = simulated.code(DETERMINISTIC, TASK_QUEUE_ENABLE=queue)
    assert done.status == 0, done.stderr
    assert done.report.rule_violations == []


# ---- chips -------------------------------------------------------------------------------------------

CALL = """
import ctypes, os, sys
if sys.argv[1:]:
    # library_in_front: loaded first, so its functions replace CANN's.
    ctypes.CDLL(sys.argv[1], ctypes.RTLD_GLOBAL)
import torch, torch_npu, npu_rope
torch.npu.synchronize()
os.environ.update(argument.split("=") for argument in sys.argv[2:])
x, positions = torch.randn(1, 200, 4, 64).half(), torch.arange(200)
params = npu_rope.RopeParams(64)
rotated = npu_rope.rope(x.npu(), positions.npu(), params)
assert (rotated.cpu() - npu_rope.rope(x, positions, params)).abs().max() < 4e-3
"""


@pytest.mark.long
@pytest.mark.parametrize(
    ("soc", "cores"),
    [
        ("Ascend310P2:5", 5),
        ("Ascend910B2C", 48),
        ("Ascend910_9363", 40),
        ("Ascend950PR_9599", 72),
        ("Ascend950DT_95A1:6", 12),
    ],
)
def test_a_chip_of_a_known_family_computes_with_all_its_cores(simulated, soc, cores):
    """CANN's platform files do not contain Ascend310P2. The project's table does not contain
    Ascend950DT_95A1. The number after ":" is what aclGetDeviceCapability returns for the AI cores."""
    # If its cache is off, torch_npu frees a workspace before the call runs. The simulated CANN permits this
    # for allocations with padding. On Ascend950, torch_npu adds no padding, so the cache must be on.
    done = simulated.code(CALL, soc=soc, fresh=True, **(CACHED if "950" in soc else {}))
    assert done.status == 0, done.stderr
    assert [(run["operator"], run["cores"]) for run in done.report.timeline] == [("NpuRope", cores)]


@pytest.fixture(scope="module")
def library_in_front(tmp_path_factory):
    """A library that replaces two functions of CANN. The variable CHIP of the environment names the chip; if
    CORES is set, the query of the chip's cores fails."""
    folder = tmp_path_factory.mktemp("front")
    (folder / "front.c").write_text("""
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>
static void* real(const char* name) { return dlsym(dlopen("libascend_sim_cann.so", RTLD_NOW), name); }
const char* aclrtGetSocName(void) {
    return getenv("CHIP") ? getenv("CHIP") : ((const char* (*)(void))real("aclrtGetSocName"))();
}
int aclGetDeviceCapability(uint32_t device, int what, int64_t* value) {
    if (getenv("CORES")) return 100000;
    return ((int (*)(uint32_t, int, int64_t*))real("aclGetDeviceCapability"))(device, what, value);
}
""")
    compiler = [*shlex.split(os.environ.get("CC", "cc")), "-shared", "-fPIC"]
    subprocess.run([*compiler, str(folder / "front.c"), "-o", str(folder / "front.so"), "-ldl"], check=True)
    return str(folder / "front.so")


REFUSED_CHIPS = {
    (
        "CHIP=Ascend310B1",
    ): "[rope] soc must be an Ascend910B, Ascend910_93, Ascend950 or Ascend310P but got Ascend310B1.",
    ("CHIP=Ascend910B9", "CORES=none"): (
        "[rope] soc must be a chip whose number of cores CANN reports but got Ascend910B9, for which CANN "
        "reports none."
    ),
}


@pytest.mark.long
@pytest.mark.parametrize("arguments", REFUSED_CHIPS)
def test_a_chip_without_kernels_or_known_cores_is_refused_by_name(simulated, library_in_front, arguments):
    done = simulated.code(CALL, library_in_front, *arguments, fresh=True)
    assert done.status == 1
    assert f"InvalidValue: {REFUSED_CHIPS[arguments]}" in done.stderr
    assert not done.report.launches


def test_a_new_chip_runs_if_cann_reports_its_cores(simulated, library_in_front):
    done = simulated.code(CALL, library_in_front, "CHIP=Ascend910B9", fresh=True)
    assert done.status == 0, done.stderr
    assert done.report.launches["NpuRope"] == 1
