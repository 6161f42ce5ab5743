"""All rules are on by default. A mini kernel that breaks a rule is reported at the marked line; one that
keeps it passes."""

from __future__ import annotations

import re

import mini_kernels
import numpy as np
import pytest
from ascend_sim import In, InOut, Out, Part, library
from mini_kernels import broken_claims, claims

BYTES = 16384
# A message has the rule and a sentence. Between them it has the place, the core and the instruction, if the
# report can name a line.
MESSAGE = re.compile(
    r"(?P<rule>SIM-[A-Z]+-\d\d) (?:(?P<place>\w+\.cpp:\d+), core \d+, [~\w:(). ]+: )?\S.*[^ .]\."
)

# Entries that keep their own rule but cause a warning of another rule.
OTHER_WARNINGS = {
    "as_many_cores_as_there_may_be": {"SIM-CORE-06"},
    "zero_elements": {"SIM-COUNT-05"},
    "no_repeat": {"SIM-COUNT-05"},
    "no_block": {"SIM-COUNT-05"},
    "sum_of_unwritten_workspace_that_is_dropped": {"SIM-INIT-06", "SIM-INIT-07"},
}

# The launches that differ from the default: one core, an input x and an output y, each of BYTES bytes.
LAUNCHES = {
    "each_core_writes_its_own": {"block_dim": 2},
    "cores_write_over_each_other": {"block_dim": 2},
    "cores_add_to_the_same": {"block_dim": 2, "y": InOut},
    "cores_copy_in_turn": {"block_dim": 2, "y": InOut},
    "cores_read_their_neighbour": {"block_dim": 2, "y": InOut},
    "core_reads_what_another_wrote": {"block_dim": 2, "y": InOut},
    "core_writes_what_another_read": {"block_dim": 2, "y": InOut},
    "scalars_of_two_cores_in_two_lines": {"block_dim": 2},
    "scalars_of_two_cores_in_one_line": {"block_dim": 2},
    "scalar_beside_a_copy_of_another_core": {"block_dim": 2},
    "scalar_over_a_copy_of_another_core": {"block_dim": 2},
    "store_through_a_reference_over_a_copy_of_another_core": {"block_dim": 2},
    "float_sum_of_three_cores": {"block_dim": 3, "y": InOut},
    "exact_sum_of_three_cores": {"block_dim": 3, "y": InOut},
    "as_many_cores_as_there_may_be": {"block_dim": 65535},
    "more_cores_than_there_may_be": {"block_dim": 65536},
    "no_core": {"block_dim": 0},
    "as_many_blocks_as_cores": {"block_dim": 48},
    "more_blocks_than_cores": {"block_dim": 1000},
    "struct_of_the_hosts_macros": {"tiling": bytes(24)},
    "struct_shorter_than_the_data": {"tiling": bytes(64)},
    "struct_read_by_a_pointer_of_its_own": {"tiling": bytes(64)},
    "part_of_the_data_by_a_copy": {"tiling": bytes(32)},
    "part_past_the_data": {"tiling": bytes(32)},
    "written_after_the_read": {"y": InOut},
    "written_during_the_read": {"y": InOut},
    "written_during_the_copy_and_after_the_scalar_read": {"y": InOut},
    "written_during_the_copy_and_the_scalar_read": {"y": InOut},
    "most_blocks": {"bytes": 131072},
    "output_with_every_byte_written": {"y": Out},
    "output_with_a_gap": {"y": Out},
    "output_that_no_core_writes": {"y": Out},
    "output_whose_address_no_core_takes": {"y": Out},
    **{
        entry: {"block_dim": 2, "y": InOut}
        for entry in (
            "read_after_sync_all",
            "scalar_read_again_after_another_cores_copy",
            "read_after_software_sync_all",
            "read_after_a_flag",
            "read_after_a_flag_of_another_pipe",
            "read_after_a_pair_signal",
            "read_after_the_second_pair_signal",
            "cores_in_turn",
            "all_cores_meet",
            "one_core_does_not_come",
            "wait_without_a_signal",
            "cores_that_wait_for_each_other",
            "type_with_the_scheduler",
            "type_without_the_scheduler",
            "fifteen_signals",
            "sixteen_signals",
            "flag_past_the_last",
            "flag_without_a_wait",
            "flag_that_one_core_sets",
            "signal_memory_that_is_not_0",
            "turn_without_its_workspace",
            "flags_beside_sync_all",
            "first_flag_of_sync_all",
            "flags_of_sync_all",
            "cores_write_the_same_values",
            "cores_write_their_own",
        )
    },
    "type_of_the_key_without_the_scheduler": {"block_dim": 2, "tiling_key": 2},
    "as_many_waiting_blocks_as_cores": {"block_dim": 48},
    "more_waiting_blocks_than_cores": {"block_dim": 49},
    "key_with_a_branch": {"tiling_key": 2},
    "key_without_a_branch": {"tiling_key": 2},
}


def launch(compiled, claim, **options):
    """The report of the entry, launched as in LAUNCHES."""
    settings = dict(LAUNCHES.get(claim.entry, {}))
    count = settings.pop("bytes", BYTES) // 4
    y = settings.pop("y", Part)
    return compiled(claim.stem, claim.entry, claim.soc).run(
        In(np.arange(count, dtype=np.float32), "x"),
        y(np.zeros(BYTES // 4, np.float32), "y"),
        check=False,
        **{"tiling": bytes(16), "workspace_bytes": BYTES, **settings},
        **options,
    )


@pytest.mark.parametrize("claim", broken_claims())
def test_a_broken_rule_is_reported_at_its_line(compiled, claim):
    report = launch(compiled, claim)
    assert [e["rule"] for e in report.errors] == [claim.rule], report
    check_report(claim, report.errors[0])


@pytest.mark.parametrize("claim", [c for c in claims() if c.warns], ids=str)
def test_a_rule_that_only_warns_is_reported_and_the_launch_continues(compiled, claim):
    report = launch(compiled, claim)
    assert (report.errors, [w["rule"] for w in report.warnings]) == ([], [claim.rule])
    check_report(claim, report.warnings[0])


def check_report(claim, error):
    assert error["line"] == claim.line, error
    parsed = MESSAGE.fullmatch(error["text"])
    assert claim.words in error["text"].split(parsed["place"] or parsed["rule"], 1)[1], error["text"]
    assert parsed["rule"] == claim.rule
    if claim.line:
        assert error["file"] == str(mini_kernels.source(claim.stem))
        assert parsed["place"] == f"{claim.stem}.cpp:{claim.line}"


@pytest.mark.long
@pytest.mark.parametrize("claim", [c for c in claims() if c.keeps], ids=str)
def test_a_kernel_that_keeps_the_rule_passes(compiled, claim):
    report = launch(compiled, claim)
    assert report.errors == []
    assert {w["rule"] for w in report.warnings} == OTHER_WARNINGS.get(claim.entry, set())


def test_the_bytes_of_a_report_do_not_depend_on_earlier_launches(compiled):
    of_entry = {claim.entry: claim for claim in claims() if claim.stem == "initialised"}
    read = of_entry["unwritten_lanes_that_are_dropped"]
    for earlier in of_entry.values():
        launch(compiled, earlier)
        check_report(read, launch(compiled, read).warnings[0])


def test_every_rule_has_a_kernel_that_breaks_it_and_one_that_keeps_it():
    rules = {severity: set() for severity in ("error", "warning")}
    for rule in library.load().rules():
        rules[rule["severity"]].add(rule["rule"])
    assert {c.rule for c in claims() if c.breaks} == rules["error"]
    assert {c.rule for c in claims() if c.warns} == rules["warning"]
    assert {c.rule for c in claims() if c.keeps} == rules["error"] | rules["warning"]
