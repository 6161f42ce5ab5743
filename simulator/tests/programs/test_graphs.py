"""torch.npu.NPUGraph with the real torch_npu on the simulated runtime."""

import pytest
from simulated_npu import SCRIPTS, checks_of

GRAPHS, RULES = SCRIPTS / "graphs.py", SCRIPTS / "graph_rules.py"


@pytest.mark.long
@pytest.mark.parametrize("check", checks_of(GRAPHS))
@pytest.mark.parametrize("queue", [pytest.param("0", marks=pytest.mark.slow), "1"])
def test_graph(simulated, queue, check):
    assert simulated.checks(GRAPHS, queue=queue, cached=True)[check] == "ok"


@pytest.mark.parametrize("check", checks_of(RULES))
def test_rule_of_captures(simulated, check):
    assert simulated.checks(RULES, queue="0", cached=True)[check] == "ok"
