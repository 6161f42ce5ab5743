"""A report's fields and messages, the first error and its core, and the list of rules."""

from __future__ import annotations

import json
import re

import ascend_sim
import mini_kernels
import numpy as np
import pytest
from ascend_sim import In, Part, library
from mini_kernels import claims
from test_rules import launch

SUMMARY = """
    soc blocks cores cycles microseconds bytes_read bytes_written vector_repeats slowest_core clock_ghz
    memory_roofline_cycles gm_bytes_per_cycle apis instructions_S instructions_V instructions_MTE2
    instructions_MTE3 busy_S busy_V busy_MTE2 busy_MTE3"""


def run(compiled, entry, **options):
    x, y = np.arange(4096, dtype=np.float32), np.zeros(4096, np.float32)
    return compiled("reports", entry).run(In(x, "x"), Part(y, "y"), check=False, **options)


def line_of(entry, text):
    """The first line of the entry in kernels/reports.cpp that contains this text."""
    lines = mini_kernels.source("reports").read_text().splitlines()
    start = lines.index(f"KERNEL({entry}) {{")
    return next(n for n, line in enumerate(lines[start:], start + 1) if text in line)


# The complete messages of entries that break a rule.
MESSAGES = {
    "add_from_inside_a_block": """
        SIM-ALIGN-01 alignment.cpp:{line}, core 0, Add: `src0` starts at UB byte 16, which is no multiple of
        32.""",
    "copy_in_past_the_end": """
        SIM-BOUNDS-03 bounds.cpp:{line}, core 0, DataCopy: `src` touches bytes [16352, 16416) of GM tensor
        `x`, which has 16384.""",
    "mte3_reads_what_v_writes": """
        SIM-HAZARD-01 hazards.cpp:{line}, core 0, DataCopy: MTE3 read of `src` (UB bytes [0, 256)) at
        hazards.cpp:{line} is not ordered after the V write by Duplicate at hazards.cpp:{before}:
        V_MTE3 event missing.""",
    "v_writes_what_v_reads": """
        SIM-HAZARD-02 hazards.cpp:{line}, core 0, Adds: V write of `dst` (UB bytes [0, 256)) at
        hazards.cpp:{line} is not ordered after the V read by Adds at hazards.cpp:{before}:
        PipeBarrier<PIPE_V> missing.""",
    "round_without_free": """
        SIM-QUEUE-03 queues.cpp:{line}, core 0, AllocTensor: all 2 buffers are taken, one since
        queues.cpp:{line}: FreeTensor missing, the core would wait for ever.""",
    "wait_for_another_kind": """
        SIM-EVENT-02 events.cpp:{line}, core 0, WaitFlag: waits for V_MTE2 event 2, which was not
        set before.""",
    "cores_write_over_each_other": """
        SIM-CORE-01 cores.cpp:{line}, core 1, DataCopy: `dst` writes bytes [224, 256) of GM `y`, which
        core 0 wrote by DataCopy at cores.cpp:{line}.""",
    "filler_of_a_padded_copy": """
        SIM-INIT-01 initialised.cpp:{line}, core 0, Add: `src0` is read at UB bytes [12, 32) (from byte 12
        of the tensor on): bytes that the copy at initialised.cpp:{copy} left undefined, and a result
        depends on it.""",
}


@pytest.mark.parametrize("entry", MESSAGES)
def test_a_broken_rule_has_this_message(compiled, entry):
    claim = next(c for c in claims() if c.entry == entry and c.breaks)
    (error,) = launch(compiled, claim).errors
    words = MESSAGES[entry].format(line=claim.line, before=claim.line - 1, copy=claim.line - 2).split()
    assert error["text"] == " ".join(words)


def test_a_report_has_these_fields(compiled):
    report = run(compiled, "copy_with_a_tail", options=ascend_sim.Options(lenient=("SIM-COUNT-01",)))
    (warning,) = report.warnings
    line = line_of("copy_with_a_tail", "t, 12);")
    assert warning.pop("text").startswith(f"SIM-COUNT-01 reports.cpp:{line}, core 0, DataCopy: ")
    file = str(mini_kernels.source("reports"))
    assert warning == {"rule": "SIM-COUNT-01", "file": file, "line": line, "core": 0}
    assert set(SUMMARY.split()) <= report.summary.keys()


def test_the_library_s_report_is_json_with_a_status(compiled):
    run(compiled, "copy_with_a_tail")
    found = library.load().report()
    assert (found["status"], [e["rule"] for e in found["errors"]]) == ("broken rule", ["SIM-COUNT-01"])
    run(compiled, "number_of_each_core")
    assert json.loads(json.dumps(library.load().report()))["status"] == "ok"


def test_the_core_that_breaks_a_rule_is_named(compiled):
    (error,) = run(compiled, "broken_on_core_two", block_dim=4).errors
    assert (error["rule"], error["core"], error["line"]) == (
        "SIM-ALIGN-01",
        2,
        line_of("broken_on_core_two", "Adds("),
    )


def test_the_first_error_ends_the_launch_unless_it_is_made_a_warning(compiled):
    (error,) = run(compiled, "broken_twice").errors
    assert error["line"] == line_of("broken_twice", "Adds(t[12], t,")
    report = run(compiled, "broken_twice", options=ascend_sim.Options(lenient=("SIM-ALIGN-01",)))
    assert len(report.warnings) == 2


def test_a_reference_that_is_not_used_is_checked(compiled):
    report = run(compiled, "reference_past_what_the_buffer_was_given")
    assert [e["rule"] for e in report.errors] == ["SIM-EVENT-03"]
    (warning,) = report.warnings
    assert (warning["rule"], warning["line"]) == (
        "SIM-BOUNDS-05",
        line_of("reference_past_what_the_buffer_was_given", "(8);"),
    )


def test_reads_of_the_system_counter_are_instructions(compiled):
    summary = run(compiled, "two_reads_of_the_system_counter").summary
    (total,) = [t for t in summary["apis"] if t["api"] == "GetSystemCycle"]
    assert (total["pipe"], total["count"]) == ("S", 2)


def test_rules_have_an_identifier_a_sentence_and_a_basis():
    rules = library.load().rules()
    assert len({rule["rule"] for rule in rules}) == len(rules)
    for rule in rules:
        assert re.fullmatch(r"SIM-[A-Z]+-\d\d", rule["rule"])
        assert rule["text"]
        assert not rule["text"].endswith(".")
        assert rule["basis"]
