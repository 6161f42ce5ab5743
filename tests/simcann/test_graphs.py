"""torch.npu.NPUGraph with the real torch_npu on the simulated runtime."""

import pytest
from simulated_npu import checks_of, run_checks

SOC = "Ascend910B2"


@pytest.mark.parametrize("check", checks_of("graphs"))
@pytest.mark.parametrize("queue", [pytest.param("0", marks=pytest.mark.slow), "1"])
def test_graph(simulated, queue, check):
    assert run_checks(simulated, "graphs", SOC, queue)[check] == "ok"


@pytest.mark.parametrize("check", checks_of("graph_rules"))
def test_rule_of_captures(simulated, check):
    assert run_checks(simulated, "graph_rules", SOC, "0")[check] == "ok"
