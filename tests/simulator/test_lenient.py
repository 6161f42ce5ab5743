"""Lenient: a rule that only warns, and a core that goes on."""

from __future__ import annotations

import numpy as np
import pytest
from mini_kernels import claims
from test_rules import launch

from npu_rope import native_sim
from npu_rope.simulator import In, Out

# Where nothing sensible can come next: memory that is not there, or a core that waits for ever.
CANNOT_GO_ON = {
    "buffer_without_memory",
    "copy_out_to_nowhere",
    "deque_of_an_empty_queue",
    "more_cores_than_there_may_be",
    "more_tensors_than_buffers",
    "no_core",
    "no_pipe",
    "queue_without_memory",
    "round_without_free",
    "tensor_without_a_buffer",
}
# Goes on, into memory that is not there.
GOES_ASTRAY = {"negative_gap", "one_block_too_many", "padded_block_too_long"}
BROKEN = [c for c in claims() if c.breaks]


def options(claim, *lenient):
    return native_sim.SimOptions(soc=claim.soc, lenient=lenient)


@pytest.mark.parametrize("claim", BROKEN, ids=str)
def test_a_lenient_rule_warns_and_the_core_goes_on(compiled, claim):
    report = launch(compiled, claim, options=options(claim, claim.rule))
    still_errors = [e for e in report.errors if e["rule"] == claim.rule]
    assert bool(still_errors) == (claim.entry in CANNOT_GO_ON), report
    if not still_errors:
        warning = next(w for w in report.warnings if w["rule"] == claim.rule)
        assert warning["line"] == claim.line
        assert claim.words in warning["text"]


@pytest.mark.parametrize("claim", BROKEN, ids=str)
def test_lenient_about_everything_leaves_only_what_cannot_go_on(compiled, claim):
    report = launch(compiled, claim, options=options(claim, "all"))
    assert bool(report.errors) == (claim.entry in CANNOT_GO_ON | GOES_ASTRAY), report
    assert claim.rule in {e["rule"] for e in report.errors + report.warnings}


def test_another_rule_stays_an_error(compiled):
    claim = next(c for c in BROKEN if c.entry == "v_reads_what_v_writes")
    report = launch(compiled, claim, options=options(claim, "SIM-HAZARD-01", "SIM-HAZARD-03"))
    assert [e["rule"] for e in report.errors] == ["SIM-HAZARD-02"]


def test_a_line_warns_once_however_often_it_runs(compiled):
    x, y = np.ones(4096, np.float32), np.zeros(4096, np.float32)
    report = compiled("reports", "unordered_in_a_loop").run(
        In(x), Out(y), options=native_sim.SimOptions(lenient=("SIM-HAZARD-02",)), block_dim=2
    )
    assert [w["rule"] for w in report.warnings] == ["SIM-HAZARD-02"]


def test_what_a_lenient_launch_computed_is_written(compiled):
    x, y = np.arange(4096, dtype=np.float32), np.zeros(4096, np.float32)
    kernel = compiled("reports", "copy_with_a_tail")
    kernel.run(In(x), Out(y), options=native_sim.SimOptions(lenient=("SIM-COUNT-01",)))
    # The hardware copies whole blocks: of twelve floats, eight.
    assert np.array_equal(y[:8], x[:8])
    assert not y[8:].any()


def test_a_rule_that_does_not_exist_is_refused(compiled):
    kernel = compiled("reports", "copy_with_a_tail")
    x, y = np.ones(4096, np.float32), np.zeros(4096, np.float32)
    with pytest.raises(
        ValueError, match=r"^\[simulator\] launch must be possible but got no rule SIM-COUNT-99\.$"
    ):
        kernel.run(In(x), Out(y), options=native_sim.SimOptions(lenient=("SIM-COUNT-99",)))
