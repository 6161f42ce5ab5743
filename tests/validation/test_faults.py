"""Failing cases that fail for one reason are one fault, with the attributes that they share."""

import dataclasses
import itertools
import math
import re

import numpy as np
import pytest

from npu_rope.rope_attributes import RopeMode
from npu_rope.testing import case_rules
from npu_rope.testing.faults import KIND_LENGTH, find_faults, kind_of, short_kinds
from npu_rope.testing.outcomes import (
    AFTER,
    ALONE,
    FAIL,
    NOT_ALONE,
    OK,
    SOMETIMES,
    UNSUPPORTED,
    CaseResult,
    Expectation,
    Judgement,
    Occurrence,
    Worst,
    compare_all,
)
from npu_rope.testing.suites import SUITES, all_cases

CASES = all_cases(("ggml",))


def _results(judgement_of):
    return [CaseResult(case, [judgement_of(case)]) for case in CASES]


def _judge(is_failing, message="", executor="ggml", when=None):
    def judgement_of(case):
        if not is_failing(case):
            return Judgement(executor, OK, ratio=0.5)
        occurrence = Occurrence(when, 3, 3) if when else None
        return Judgement(executor, FAIL, ratio=100.0, message=message, occurrence=occurrence)

    return judgement_of


def _is_neox_f16(case):
    return case.params.rope_mode is RopeMode.NEOX and case.dtype == "float16"


def _is_scaled_outside_vision(case):
    return case.params.freq_scale != 1 and case.params.rope_mode is not RopeMode.VISION


@pytest.mark.parametrize(
    ("is_failing", "rule"),
    [
        (lambda case: True, set()),
        (_is_neox_f16, {"mode=neox", "type=f16"}),
        (lambda case: case.op == "ROPE_BACK" and case.params.n_offs != 0, {"op=ROPE_BACK", "n_offs≠0"}),
        (_is_scaled_outside_vision, {"freq_scale≠1", "mode≠vision"}),
        (lambda case: case.factors is not None, {"factors=random"}),
        (lambda case: case.shape[3] == 80, {"D=80"}),
    ],
)
def test_cases_with_common_attributes_are_one_fault(is_failing, rule):
    (fault,) = find_faults(_results(_judge(is_failing)))
    count = sum(map(bool, map(is_failing, CASES)))
    assert (len(fault.failed), fault.total) == (count, count)
    assert set(fault.rule) == rule


def test_two_reasons_are_two_faults():
    faults = find_faults(_results(_judge(lambda case: case.view == 2 or case.shape[3] == 80)))
    in_views = sum(case.view == 2 for case in CASES)
    wide = sum(case.shape[3] == 80 and case.view != 2 for case in CASES)
    assert [len(fault.failed) for fault in faults] == [in_views, wide]
    assert faults[0].rule in (("view=2",), ("view≠0", "view=2"))
    assert faults[1].rule == ("D=80",)


def test_two_ways_of_failing_are_two_faults():
    def judgement_of(case):
        message = "ggml ended with SIGABRT: /src/ops.cpp:12: CANN error" if _is_neox_f16(case) else ""
        return _judge(lambda case: case.dtype == "float16", message)(case)

    first, second = find_faults(_results(judgement_of))
    assert (first.kind, set(first.rule)) == ("wrong values", {"type=f16", "mode≠neox"})
    assert (second.kind, set(second.rule)) == (
        "ended with SIGABRT: ops.cpp:12: CANN error",
        {"type=f16", "mode=neox"},
    )


def test_cases_without_a_common_attribute_are_one_fault_of_a_part():
    failing = set(CASES[3::10])
    (fault,) = find_faults(_results(_judge(lambda case: case in failing)))
    assert (fault.rule, len(fault.failed), fault.total) == ((), len(failing), len(CASES))


def test_few_cases_get_no_rule_by_chance():
    (fault,) = find_faults(_results(_judge(lambda case: case in CASES[7:300:97])))
    assert fault.rule == ()
    cases = all_cases(("onnx",))
    # Only these two have type=f32, rows=0 and num_heads=0.
    group, *others = case_rules.split([cases[6], cases[9]], [*cases[:6], *cases[7:9], *cases[10:]])
    assert (group.rule, group.members, others) == ((), (0, 1), [])


def test_executors_and_occurrences_are_separate_and_the_largest_fault_is_first():
    def judgements(case):
        when = AFTER if case.dtype == "float16" else ALONE
        on_cpu = _judge(lambda case: case.view == 1, executor="cpu", when=ALONE)(case)
        return [on_cpu, _judge(lambda case: True, when=when)(case), Judgement("npu", UNSUPPORTED)]

    faults = find_faults(CaseResult(case, judgements(case)) for case in CASES)
    assert [(fault.executor, fault.when) for fault in faults] == [
        ("ggml", ALONE),
        ("ggml", AFTER),
        ("cpu", ALONE),
    ]
    sizes = [len(fault.failed) for fault in faults]
    assert sizes == sorted(sizes, reverse=True)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ([ALONE, None], [ALONE]),
        ([SOMETIMES, NOT_ALONE, None], [SOMETIMES]),
        ([ALONE, NOT_ALONE], [ALONE, NOT_ALONE]),
        ([ALONE, SOMETIMES, None], [ALONE, SOMETIMES, ""]),
        ([None, None], [""]),
    ],
)
def test_a_failure_that_was_not_run_again_takes_the_occurrence_of_its_kind(found, expected):
    results = [
        CaseResult(case, [Judgement("ggml", FAIL, ratio=5.0, occurrence=when and Occurrence(when, 1, 2))])
        for case, when in zip(CASES, found, strict=False)
    ]
    assert {fault.when for fault in find_faults(results)} == set(expected)


def test_the_example_is_small_and_was_run_again_most_often():
    small, large = sorted(CASES, key=lambda case: math.prod(case.shape))[:: len(CASES) - 1]
    results = [
        CaseResult(small, [Judgement("ggml", FAIL, occurrence=Occurrence(ALONE, 1, 1))]),
        CaseResult(large, [Judgement("ggml", FAIL, occurrence=Occurrence(ALONE, 3, 3))]),
        CaseResult(CASES[0], [Judgement("ggml", FAIL)]),
    ]
    (fault,) = find_faults(results)
    assert fault.example[0].case is large


def test_messages_that_differ_in_numbers_are_one_kind():
    messages = iter(f"ggml ended with SIGSEGV: at 0x{i:x} of {i}.5e-3" for i in range(len(CASES)))
    (fault,) = find_faults(_results(lambda case: Judgement("ggml", FAIL, message=next(messages))))
    assert fault.kind == "ended with SIGSEGV: at 0x0 of 0.5e-3"


def test_errors_of_cann_are_distinguished_by_their_text_and_function():
    def judgement_of(case):
        function, code = ("aclnn_sin", "EZ9999") if case.dtype == "float16" else ("aclnn_cos", "EZ1001")
        output = (
            f"new pool for device {case.shape[1]}",
            f"CANN error: {code}: Inner Error {case.shape[1]}",
            f"  current device: 0, in function {function} at aclnn_ops.cpp:280",
            "ggml-cann.cpp:70: CANN error",
        )
        message = f"ggml ended with SIGABRT: {output[-1]}"
        return Judgement("ggml", FAIL, message=message, output=output)

    faults = find_faults(_results(judgement_of))
    assert {re.sub(r"\d+$", "#", fault.kind) for fault in faults} == {
        "ended with SIGABRT: CANN error in aclnn_sin: EZ9999: Inner Error #",
        "ended with SIGABRT: CANN error in aclnn_cos: EZ1001: Inner Error #",
    }
    assert len(faults) == 2


def _error_of_freed_memory(function):
    output = (
        f"CANN error: simulated CANN: {function}: self is read from memory that was freed before "
        "the work ran (allocation 7 of 64 bytes).",
        f"  current device: 0, in function ggml_cann_{function} at aclnn_ops.cpp:280",
        "ggml-cann.cpp:70: CANN error",
    )
    return Judgement("ggml", FAIL, message=f"ggml ended with SIGABRT: {output[-1]}", output=output)


def test_functions_that_use_freed_memory_are_one_fault():
    """Also of drawn sequences, which have a note."""
    functions = itertools.cycle(("aclnnMul", "aclnnRepeat", "aclnnCos"))
    results = _results(lambda case: _error_of_freed_memory(next(functions)))
    for note in ("", "sequence 4"):
        for result in results:
            result.note = note
        (fault,) = find_faults(results)
        assert fault.kind == "freed memory is used by aclnnMul, aclnnRepeat, aclnnCos"
        assert len(fault.failed) == len(CASES)


def test_one_function_that_uses_freed_memory_has_a_title_as_several_have():
    """The title of a command that reproduces one case is then like that of the run that found it."""
    (fault,) = find_faults(_results(lambda case: _error_of_freed_memory("aclnnMul")))
    assert fault.kind == "freed memory is used by aclnnMul"


@pytest.mark.parametrize("difference", ["", "a", "b"])
def test_kinds_are_cut_only_if_they_still_differ(difference):
    ends = itertools.cycle(("x", difference or "x"))
    message = "must hold but " + "long " * 40
    faults = find_faults(_results(lambda case: Judgement("cpu", FAIL, message=message + next(ends))))
    kinds = short_kinds(faults)
    assert len(kinds) == len(set(kinds)) == (2 if difference else 1)
    if difference:
        assert sorted(kinds) == sorted([message + "x", message + difference])
    else:
        assert kinds == [message[: KIND_LENGTH - 1] + "…"]


def test_rules_of_the_simulator_are_different_kinds():
    rules = iter([f"[rope] kernel broke SIM-SYNC-0{i % 2}" for i in range(len(CASES))])
    faults = find_faults(_results(lambda case: Judgement("sim", FAIL, message=next(rules))))
    assert {fault.kind[-2:] for fault in faults} == {"00", "01"}


def test_a_value_that_is_no_number_is_a_kind_of_its_own():
    worst = Worst((0,), None, math.nan, math.nan, 1.0)
    assert kind_of(Judgement("cpu", FAIL, worst=worst)) == "wrong values: NaN or infinity"
    assert kind_of(Judgement("cpu", FAIL, worst=dataclasses.replace(worst, got=3.0))) == "wrong values"


@pytest.mark.parametrize("suite", SUITES)
def test_every_suites_cases_have_terms(suite):
    for case in all_cases((suite,)):
        terms = case_rules.terms(case)
        assert any(term.startswith("op=") for term in terms)
        assert any(term.startswith("type=") for term in terms)


# ---- the elements beyond their bound ---------------------------------------------------------------


def _region(got, names="(b, s, n, d)"):
    expected = Expectation(np.zeros(got.shape), np.full(got.shape, 1e-3))
    return compare_all("cpu", [got], [expected], [names]).region


def test_the_region_of_wrong_elements_is_a_box():
    got = np.zeros((2, 4, 3, 8))
    got[1, 1:3, :, 4] = 1
    assert _region(got) == "3.12% of the elements, all at b = 1, s = 1..2, d = 4"
    got[0, 0, 0, 0] = np.nan
    got[1, 3, 2, 7] = np.inf
    assert _region(got) == "4.17% of the elements"
    assert _region(got.reshape(-1), "index") == "4.17% of the elements"


def test_a_result_within_its_bounds_has_no_region():
    assert _region(np.zeros((1, 2, 3, 4))) == ""
