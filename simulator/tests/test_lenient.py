"""Lenient launches: a rule only warns, and the core continues."""

from __future__ import annotations

import ascend_sim
import numpy as np
import pytest
from ascend_sim import In, Part
from mini_kernels import broken_claims, claims
from test_rules import launch

# Entries with an error after which the core cannot continue, such as memory that does not exist, a wait
# without end, or a failed assertion.
CANNOT_CONTINUE = {
    "assertion_that_fails",
    "assertion_with_a_format_that_fails",
    "assertion_with_an_action_that_fails",
    "blocks_at_the_end_of_the_last_buffer",
    "blocks_of_no_buffer",
    "buffer_without_memory",
    "copy_out_to_nowhere",
    "cores_that_wait_for_each_other",
    "count_that_wraps",
    "deque_of_an_empty_queue",
    "element_4_gib_ahead",
    "endless_wait_for_a_flag",
    "exception_that_leaves",
    "fill_without_memory",
    "function_whose_buffers_fill_ub",
    "gap_in_ub_that_wraps",
    "gm_element_that_wraps",
    "gm_offset_that_wraps",
    "index_count_that_wraps",
    "more_cores_than_there_may_be",
    "more_tensors_than_buffers",
    "more_waiting_blocks_than_cores",
    "no_core",
    "no_pipe",
    "number_that_is_thrown",
    "one_core_does_not_come",
    "pool_without_memory",
    "queue_without_memory",
    "reference_before_the_first_byte",
    "round_without_free",
    "scalar_before_the_first_byte",
    "scalar_read_before_the_first_byte",
    "tensor_of_another_core",
    "tensor_without_a_buffer",
    "trap_that_is_reached",
    "turn_without_its_workspace",
    "upper_case_assertion_that_fails",
    "wait_without_a_signal",
}
# Entries whose core continues if all rules are lenient, and then uses memory that does not exist.
LEAVES_ITS_MEMORY = {
    "gathered_mask_that_wraps",
    "mask_count_that_wraps",
    "offset_2_gib_ahead",
    "offset_4_gib_ahead",
    "negative_gap",
    "offset_before_the_first_byte",
    "one_block_too_many",
    "padded_block_too_long",
    "tensor_before_its_buffer",
    "tensor_of_a_buffer_that_exceeds_ub",
}
BROKEN = [c for c in claims() if c.breaks]


def options(claim, *lenient):
    return ascend_sim.Options(soc=claim.soc, lenient=lenient)


@pytest.mark.long
@pytest.mark.parametrize("claim", broken_claims())
def test_a_lenient_rule_only_warns_unless_the_core_cannot_continue(compiled, claim):
    report = launch(compiled, claim, options=options(claim, claim.rule))
    still_errors = [e for e in report.errors if e["rule"] == claim.rule]
    assert bool(still_errors) == (claim.entry in CANNOT_CONTINUE), report
    if not still_errors:
        warning = next(w for w in report.warnings if w["rule"] == claim.rule)
        assert warning["line"] == claim.line
        assert claim.words in warning["text"]


@pytest.mark.long
@pytest.mark.parametrize("claim", broken_claims())
def test_if_all_rules_are_lenient_only_fatal_errors_remain(compiled, claim):
    report = launch(compiled, claim, options=options(claim, "all"))
    assert bool(report.errors) == (claim.entry in CANNOT_CONTINUE | LEAVES_ITS_MEMORY), report
    assert claim.rule in {e["rule"] for e in report.errors + report.warnings}


def test_a_rule_that_is_not_lenient_stays_an_error(compiled):
    claim = next(c for c in BROKEN if c.entry == "v_reads_what_v_writes")
    report = launch(compiled, claim, options=options(claim, "SIM-HAZARD-01", "SIM-HAZARD-03"))
    assert [e["rule"] for e in report.errors] == ["SIM-HAZARD-02"]


@pytest.mark.parametrize(
    ("entry", "rule", "text"),
    [
        ("scalar_over_a_copy_of_another_core", "SIM-CORE-01", "which core 0 wrote by DataCopy"),
        ("nine_freed_buffers", "SIM-EVENT-01", "V_MTE2 event 0 is set at"),
    ],
)
def test_the_rule_that_is_broken_next_stays_an_error(compiled, entry, rule, text):
    claim = next(c for c in BROKEN if c.entry == entry)
    (error,) = launch(compiled, claim, options=options(claim, claim.rule)).errors
    assert (error["rule"], error["line"]) == (rule, claim.line)
    assert text in error["text"]


def test_a_line_warns_once_however_often_it_runs(compiled):
    x, y = np.ones(4096, np.float32), np.zeros(4096, np.float32)
    report = compiled("reports", "unordered_in_a_loop").run(
        In(x), Part(y), options=ascend_sim.Options(lenient=("SIM-HAZARD-02",)), block_dim=2
    )
    assert [w["rule"] for w in report.warnings] == ["SIM-HAZARD-02"]


def test_results_of_a_lenient_launch_are_written(compiled):
    x, y = np.arange(4096, dtype=np.float32), np.zeros(4096, np.float32)
    kernel = compiled("reports", "copy_with_a_tail")
    kernel.run(In(x), Part(y), options=ascend_sim.Options(lenient=("SIM-COUNT-01",)))
    # The hardware copies whole blocks: eight of the twelve floats.
    assert np.array_equal(y[:8], x[:8])
    assert not y[8:].any()


def test_a_rule_that_does_not_exist_is_refused(compiled):
    kernel = compiled("reports", "copy_with_a_tail")
    x, y = np.ones(4096, np.float32), np.zeros(4096, np.float32)
    words = r"^\[sim\] options\.lenient must name rules or be all but got SIM-COUNT-99\.$"
    with pytest.raises(ValueError, match=words):
        kernel.run(In(x), Part(y), options=ascend_sim.Options(lenient=("SIM-COUNT-99",)))
