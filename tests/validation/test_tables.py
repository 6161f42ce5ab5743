"""Suites onnx and torch_npu: their cases, and their judge's verdicts on correct and wrong results."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from npu_rope.testing import tables
from npu_rope.testing.bounds import is_device
from npu_rope.testing.chip_types import chip_lacks
from npu_rope.testing.outcomes import FAIL, OK, UNSUPPORTED, Judgement
from npu_rope.testing.tables import TableCase, judge_tables, onnx_cases, torch_npu_cases

CASES = [*onnx_cases(), *torch_npu_cases()]


def case_of(form, dtype="float32", suite="torch_npu"):
    return next(c for c in CASES if c.name.startswith(f"{form}(") and (c.dtype, c.suite) == (dtype, suite))


def judgement_of(case, backend="cpu"):
    [judgement] = judge_tables(case, [backend]).judgements
    return judgement


def test_names_are_unique_and_every_form_has_every_type():
    assert len({(c.suite, c.name) for c in CASES}) == len(CASES) == 120
    types_by_form = Counter((c.suite, c.name.partition("(")[0], c.dtype) for c in CASES)
    forms = {(suite, form) for suite, form, _ in types_by_form}
    assert types_by_form == {(*form, dtype): 1 for form in forms for dtype in tables.DTYPES}


@pytest.mark.parametrize("case", CASES[::7], ids=lambda c: f"{c.suite}-{c.name}")
def test_correct_results_pass(case, backend):
    judgement = judgement_of(case, backend)
    lacks = is_device(backend) and chip_lacks(case.dtype, backend)
    assert (judgement.verdict, judgement.message) == ((UNSUPPORTED, lacks) if lacks else (OK, ""))
    assert (judgement.near_cpu is not None) == (is_device(backend) and case.dtype != "float32" and not lacks)


def test_a_16_bit_result_far_from_the_cpus_fails(monkeypatch):
    """The patched comparison accepts every result, so only the distance from the CPU's is judged."""
    original = tables._execute

    def execute(case, data, backend):
        results = original(case, data, backend)
        return results if backend == "cpu" else [y.astype(np.float32) * np.float32(1.002) for y in results]

    monkeypatch.setattr(tables, "_execute", execute)
    monkeypatch.setattr(tables.outcomes, "compare_all", lambda *_: Judgement("sim", OK))
    judgement = judgement_of(case_of("half", "float16"), "sim")
    assert judgement.verdict == FAIL
    assert "of the elements must be within one ulp of cpu's but" in judgement.message


WRONG = {
    "pairing": ("half-width", {"interleaved": True}),
    "pairing-interleaved": ("interleave-half-width", {"interleaved": False}),
    "width": ("partial", {"rotary_dim": 64, "offset": 2}),
    "window": ("window-interleave", {"offset": 12}),
    "direction": ("each-lane", {"forward": False}),
}


@pytest.mark.parametrize("error", WRONG)
@pytest.mark.parametrize("dtype", tables.DTYPES)
def test_wrong_results_fail(error, dtype, monkeypatch):
    form, change = WRONG[error]
    case, original = case_of(form, dtype), TableCase.attributes.fget
    changed = replace(original(case), **change)
    if error == "direction" and dtype == "bfloat16":  # run_on_bits has no backward: take another error
        changed = replace(original(case), offset=0, interleaved=True)
    monkeypatch.setattr(TableCase, "attributes", property(lambda self: changed))
    judgement = judgement_of(case)
    assert judgement.verdict == FAIL
    assert judgement.ratio > 1


@pytest.mark.parametrize("dtype", tables.DTYPES)
def test_a_wrong_row_of_the_caches_fails(dtype, monkeypatch):
    original = tables.call_of

    def off_by_one(case, xs, cos, sin, ids, outs):
        return original(case, xs, cos, sin, ids - 1, outs)

    monkeypatch.setattr(tables, "call_of", off_by_one)
    judgement = judgement_of(case_of("decode", dtype, "onnx"))
    assert judgement.verdict == FAIL
    assert judgement.worst.names == "(b, n, s, d)"


def test_a_written_input_fails(monkeypatch):
    original = tables.executors.run

    def run(backend, t, a):
        results = original(backend, t, a)
        next(iter(t.xs.values()))[...] = 0
        return results

    monkeypatch.setattr(tables.executors, "run", run)
    judgement = judgement_of(case_of("half"))
    assert (judgement.verdict, judgement.message) == (FAIL, "an input was written")


def test_one_wrong_element_is_named(monkeypatch):
    original = tables.executors.run

    def run(backend, t, a):
        results = original(backend, t, a)
        results[0][1, 7, 3, 5] += 1
        return results

    monkeypatch.setattr(tables.executors, "run", run)
    worst = judgement_of(case_of("half")).worst
    assert worst.index == (1, 7, 3, 5)
    assert worst.position is None
    assert worst.got == pytest.approx(worst.expected + 1)


def test_a_case_always_has_the_same_data():
    for case in CASES[::11]:
        a, b = tables.make_data(case), tables.make_data(case)
        assert all(np.array_equal(x, y) for x, y in zip(a.xs, b.xs, strict=True))
        for name in ("cos", "sin", "position_ids"):
            assert np.array_equal(getattr(a, name), getattr(b, name))
