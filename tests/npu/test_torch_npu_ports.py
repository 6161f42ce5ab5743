"""Suite torch_npu of npu-rope validate with torch_npu's own functions on the simulated NPU."""

import json
import re
from collections import Counter
from pathlib import Path

import pytest

from npu_rope.testing.port_functions import FUNCTIONS
from npu_rope.testing.ports import limit_of, port_cases

SCRIPTS = Path(__file__).parent / "scripts"
CHIPS = ["Ascend910B2", pytest.param("Ascend310P3", marks=pytest.mark.slow)]
CASES = list(port_cases())


def validate(simulated, *options, sim_options=()):
    command = [simulated.python, "-m", "npu_rope.cli", "validate", "--suite", "torch_npu", "--no-ggml"]
    return simulated.sim(*sim_options, "--", *command, *options)


@pytest.mark.long
@pytest.mark.parametrize("chip", CHIPS)
def test_torch_npu_s_functions_are_within_their_bounds(simulated, chip, tmp_path):
    report = tmp_path / "report.json"
    sim_options = ("--soc", chip, "--report", report)
    done = validate(simulated, "-b", "torch_npu", "--format", "json", sim_options=sim_options)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["torch_npu_missing"] is None
    verdicts = {case["name"]: case["verdict"] for case in document["cases"]}
    runs = [case for case in CASES if not limit_of(case, chip) and not FUNCTIONS[case.function].not_simulated]
    expected = {case.name: "ok" if case in runs else "unsupported" for case in CASES}
    assert {name: verdicts[name] for name in expected} == expected
    # rotary_mul's cases call npu_rope's own operator.
    assert {verdict for name, verdict in verdicts.items() if name not in expected} == {"unsupported"}
    of_sim = json.loads(report.read_text())
    functions = {FUNCTIONS[case.function].aclnn for case in runs}
    assert functions - {"RopeOperation"} <= set(of_sim["launches"])  # ATB runs on the host
    assert not of_sim["rule_violations"]


@pytest.mark.long
def test_the_table_has_torch_npu_beside_the_back_ends(simulated):
    done = validate(simulated, "--filter", r"npu_(rotary_mul|rms_norm)/(half|row|quarter)\(type=f16")
    assert done.returncode == 0, done.stdout + done.stderr
    head, row = re.search(r"^(cases, .*)\n(torch_npu .*)$", done.stdout, re.M).groups()
    assert head.split()[-4:] == ["npu", "torch_npu", "worst", "case"]
    assert [cell for cell in row.split() if "/" in cell][:7] == ["3/3"] * 6 + ["2/2"]
    line = next(line for line in done.stdout.splitlines() if line.startswith("torch_npu's own functions"))
    assert line.startswith(
        "torch_npu's own functions (Ascend910B2, simulated) vs float64: 2 of 2 within bounds"
    )
    share = float(re.search(r"bit-equal to npu_rope.compat.torch_npu: (\S+)% of elements", line)[1])
    assert 50 < share < 100  # npu_rms_norm rounds x * rstd in npu_rope only
    assert line.endswith("; 1 unsupported (rotary_mode must be half or interleave)")


@pytest.mark.long
@pytest.mark.parametrize("chip", CHIPS)
def test_the_stores_run_on_npu_tensors(simulated, chip, tmp_path):
    """They copy nothing to the host. Some calls use operators of torch for their rows, parts of heads and
    divisors, which an NPU has kernels for and the simulated one runs on the host.
    """
    report = tmp_path / "report.json"
    names = "npu_(kv_rmsnorm|qkv_rms_norm)_rope_cache|_npu_rotary_embedding"
    options = ("-b", "npu", "--filter", names, "--format", "json")
    done = validate(simulated, *options, sim_options=("--soc", chip, "--report", report))
    assert done.returncode == 0, done.stderr
    verdicts = Counter(case["verdict"] for case in json.loads(done.stdout)["cases"])
    lacking = 26 if chip == "Ascend310P3" else 0  # bfloat16
    assert verdicts == Counter(ok=78 - lacking) + Counter(unsupported=lacking)
    of_sim = json.loads(report.read_text())
    assert of_sim["launches"]["NpuQkvNormRopeCache"] > 78 - lacking
    of_torch = ("where.self", "floor_divide.default", "cat.default", "reciprocal.default", "index.Tensor")
    assert set(of_sim["fallbacks"]) == {f"aten.{name}" for name in of_torch}
    assert not of_sim["rule_violations"]


STORE_INTO_BFLOAT16 = """
import torch, torch_npu
from npu_rope.compat import torch_npu as compat
kv, gamma, tables = torch.ones(1, 1, 2, 48), torch.ones(32), torch.ones(2, 1, 1, 2, 16)
caches = torch.full((1, 4, 1, 16), 9.0).bfloat16().npu(), torch.full((1, 4, 1, 32), 9.0).npu()
given = kv.npu(), gamma.npu(), *tables.npu(), torch.arange(2).npu()
try:
    compat.npu_kv_rmsnorm_rope_cache(*given, *caches, cache_mode="PA")
except TypeError as error:
    print(error)
print([bool((cache.cpu() == 9).all()) for cache in caches])
"""


@pytest.mark.long
def test_a_chip_refuses_the_type_of_a_cache_before_the_other_one_is_written(simulated):
    done = simulated.code(STORE_INTO_BFLOAT16, soc="Ascend310P3")
    assert done.stdout.splitlines() == [
        "[npu_kv_rmsnorm_rope_cache] k_cache must be float32 or float16 on Ascend310P3 but got bfloat16.",
        "[True, True]",
    ], done.stderr


@pytest.mark.long
@pytest.mark.parametrize("chip", CHIPS)
def test_torch_npu_refuses_the_calls_that_break_its_limits(simulated, chip):
    found = simulated.run(SCRIPTS / "port_limits.py", soc=chip, TASK_QUEUE_ENABLE="0").json()
    assert {name: limit for name, (limit, _) in found.items()} == {
        case.name: limit for case in CASES if (limit := limit_of(case, chip))
    }
    # On Ascend310P, npu_rotary_mul calls an aclop, or other operators. CANN's sources accept
    # aclnnApplyRotaryPosEmbV2 there, beyond its document.
    accepted = () if chip == "Ascend910B2" else ("npu_rotary_mul", "npu_apply_rotary_pos_emb")
    refused = {name: error for name, (_, error) in found.items() if not name.startswith(accepted)}
    from_aclnn = r"simulated CANN: aclnn\w+: .* (must .* but got |is not simulated\.$)"
    from_torch_npu = r"should be half or interleave, but got quarter|requires aclnnRopeWithSinCosCacheV2"
    from_atb = r"^\[_npu_rotary_embedding\] .* must .* but got .* \(ATB, simulated\)$"
    absent = r"^aclnnQkvRmsNormRopeCache or .* not in libopapi.so"  # not simulated
    sources = {"aclnn": from_aclnn, "torch_npu": from_torch_npu, "ATB": from_atb, "absent": absent}
    kinds = Counter(
        next((source for source, text in sources.items() if re.search(text, error)), error)
        for error in refused.values()
    )
    assert set(kinds) <= {*sources}
    assert kinds["aclnn"] > 30


NORMS = """
import torch, torch_npu
from npu_rope.compat import torch_npu as compat
x, gamma = torch.randn(3, 64).npu(), torch.randn(64).npu()
results = [*compat.npu_rms_norm(x, gamma), *compat.npu_gemma_rms_norm(x, gamma)]
print({str(y.dtype) for y in (*results, *compat.npu_add_rms_norm(x, x, gamma))})
"""


def test_the_norms_of_compat_need_no_double_on_an_npu(simulated):
    """aclnnLinalgVectorNorm has no double, but the host fallback of that operator has."""
    done = simulated.code(NORMS)
    assert done.stdout.strip() == "{'torch.float32'}", done.stderr
    assert "aten.linalg_vector_norm.default" not in done.report.fallbacks
