"""torch_npu's own functions of rotary position embedding, norms and gates on the simulated NPU."""

import json

import pytest
from simulated_npu import SCRIPTS, checks_of

FUNCTIONS, ATB = SCRIPTS / "npu_functions.py", SCRIPTS / "atb_rope.py"
LIMITS, ON_310P = SCRIPTS / "npu_function_limits.py", SCRIPTS / "npu_functions_310p.py"
QUERY_AND_TABLES = [("float16", "float16"), ("float16", "float32"), ("bfloat16", "bfloat16")]


@pytest.mark.long
@pytest.mark.parametrize("check", checks_of(FUNCTIONS))
def test_function(simulated, check):
    assert simulated.checks(FUNCTIONS)[check] == "ok"


@pytest.mark.parametrize("check", checks_of(LIMITS))
def test_a_broken_limit_is_refused(simulated, check):
    assert simulated.checks(LIMITS, queue="0")[check] == "ok"


@pytest.mark.long
@pytest.mark.parametrize("check", checks_of(ON_310P))
def test_function_on_ascend310p(simulated, check):
    assert simulated.checks(ON_310P, soc="Ascend310P3", queue="0")[check] == "ok"


@pytest.mark.long
@pytest.mark.parametrize("check", checks_of(ATB))
@pytest.mark.parametrize("types", QUERY_AND_TABLES, ids="-".join)
def test_atb_rotary_embedding(simulated, types, check):
    name = "-".join((ATB.stem, *types))
    results = simulated.once(name, lambda: simulated.run(ATB, *types).json())
    assert results[check] == "ok"


def test_atb_refuses_float32_tables_beside_bfloat16(simulated):
    results = json.loads(simulated.run(ATB, "bfloat16", "float32").stdout)
    assert "cos_sin_cache must be bfloat16 but got float32" in results["check_rotary_embedding"]


def test_the_report_counts_the_functions_and_no_fallback(simulated):
    source = (
        "import torch, torch_npu\n"
        "x, g = torch.ones(2, 32).npu().half(), torch.ones(32).npu().half()\n"
        "torch_npu.npu_rms_norm(x, g); torch_npu.npu_add_rms_norm(x, x, g)\n"
        "torch.npu.synchronize()"
    )
    report = simulated.code(source).report
    assert report.launches["aclnnRmsNorm"] == report.launches["aclnnAddRmsNorm"] == 1
    assert not report.fallbacks
    assert report.is_clean


def test_these_functions_are_captured_in_a_graph(simulated):
    source = (
        "import torch, torch_npu\n"
        "x, g = torch.rand(2, 32).npu(), torch.rand(32).npu()\n"
        "graph = torch.npu.NPUGraph()\n"
        "with torch.npu.graph(graph):\n"
        "    y = torch_npu.npu_rms_norm(x, g)[0]\n"
        "x.copy_(torch.rand(2, 32))\n"
        "graph.replay()\n"
        "print(torch.equal(y.cpu(), torch_npu.npu_rms_norm(x, g)[0].cpu()))"
    )
    done = simulated.code(source, PYTORCH_NO_NPU_MEMORY_CACHING="0")
    assert done.stdout.strip() == "True", done.stderr
