"""Suite pmx: its cases, its judge's verdicts on correct and wrong results, and RopeParams.from_pmx."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from npu_rope import RopeParams
from npu_rope.testing import pmx
from npu_rope.testing.outcomes import FAIL, OK
from npu_rope.testing.pmx import PmxCase, judge_pmx, pmx_cases

CASES = {case.name: case for case in pmx_cases()}


def case_of(form, dtype="float32"):
    return next(c for c in CASES.values() if c.name.startswith(f"{form}(") and c.dtype == dtype)


def verdicts(case, backend="cpu"):
    """Return the verdict and the message of each judgement."""
    return [(j.verdict, j.message) for j in judge_pmx(case, [backend]).judgements]


def test_names_are_unique_and_every_form_has_every_type():
    cases = list(pmx_cases())
    assert len(CASES) == len(cases) == 66
    forms = {case.name.partition("(")[0] for case in cases}
    assert {(c.name.partition("(")[0], c.dtype) for c in cases} == {(f, d) for f in forms for d in pmx.DTYPES}


def test_the_forms_cover_the_operators_options():
    cases = list(CASES.values())
    assert {c.scaling[0] for c in cases} == {"", "linear", "dynamic"}
    assert {c.bypass_key for c in cases} == {True, False}
    assert any(s.first < 0 for c in cases for s in c.sequences())
    assert any(c.seqlens and 0 in c.seqlens for c in cases)
    assert any(c.key_heads not in (1, c.query_shape[-2]) for c in cases)
    stretched = [c for c in cases if c.scaling[0] == "dynamic"]
    ends = [{s.first + s.length > c.scaling[2] for s in c.sequences()} for c in stretched]
    assert all(kind in ends for kind in ({True}, {False}, {True, False}))


@pytest.mark.parametrize("form", ["gqa", "padded", "partial", "bypass", "linear", "dynamic-padded", "packed"])
def test_correct_results_pass(form, backend):
    assert verdicts(case_of(form), backend) == [(OK, "")]


KEY_IS_COPIED = "a key that is bypassed must be returned itself but another array was"
WRONG = {
    "another theta": ("gqa", {"theta": 10010.0}),
    "another width": ("partial", {"rotary_dim": 66}),
    "padding ignored": ("padded", {"pad_len": None}),
    "another start": ("packed", {"start_pos": (0, 500, 9, 34)}),
    "other lengths": ("packed", {"seqlens": (7, 2, 0, 17)}),
    "bypassed key rotated": ("bypass", {"bypass_key": False}),
    "scaling ignored": ("linear", {"scaling": ("", 1.0, 2048)}),
    "another scaling factor": ("dynamic-long", {"scaling": ("dynamic", 2.01, 2048)}),
    "another maximum": ("dynamic-padded", {"scaling": ("dynamic", 2.0, 2049)}),
}


@pytest.mark.parametrize("error", WRONG)
@pytest.mark.parametrize("dtype", pmx.DTYPES)
def test_wrong_results_fail(error, dtype, monkeypatch):
    form, change = WRONG[error]
    case, original = case_of(form, dtype), PmxCase.call
    if error == "another maximum" and dtype != "float32":
        change = {"scaling": ("dynamic", 2.0, 2400)}  # 2049 is within the rounding of 16-bit types
    monkeypatch.setattr(PmxCase, "call", lambda self, *args: original(replace(self, **change), *args))
    assert verdicts(case) == [(FAIL, KEY_IS_COPIED if case.bypass_key else "")]


def test_a_written_input_fails(monkeypatch):
    def call(self, query, key, backend):
        query[...] = 0
        return query, key

    monkeypatch.setattr(PmxCase, "call", call)
    assert verdicts(case_of("gqa")) == [(FAIL, "an input was written")]


def test_a_copied_bypassed_key_fails(monkeypatch):
    original = PmxCase.call

    def call(self, query, key, backend):
        y, z = original(self, query, key, backend)
        return y, z.copy()

    monkeypatch.setattr(PmxCase, "call", call)
    assert verdicts(case_of("bypass")) == [(FAIL, KEY_IS_COPIED)]


def test_the_worst_element_is_named(monkeypatch):
    original = PmxCase.call

    def call(self, query, key, backend):
        y, z = original(self, query, key, backend)
        y[3, 7, 2, 5] += 1
        return y, z

    monkeypatch.setattr(PmxCase, "call", call)
    worst = judge_pmx(case_of("padded"), ["cpu"]).judgements[0].worst
    assert worst.index == (3, 7, 2, 5)
    assert worst.position == 3 + 7 - 15
    assert worst.angle == pytest.approx(worst.position * 10000.0 ** (-4 / 128))
    assert worst.got == pytest.approx(worst.expected + 1)


# ---- RopeParams.from_pmx -------------------------------------------------------------------------------


def test_from_pmx_without_scaling():
    assert RopeParams.from_pmx(128) == RopeParams(128, "normal")
    assert RopeParams.from_pmx(128, rotary_dim=64, theta=5e5) == RopeParams(64, "normal", freq_base=5e5)
    assert RopeParams.from_pmx(128, rotary_dim=np.int64(64)).n_dims == 64


def test_from_pmx_linear_divides_positions():
    p = RopeParams.from_pmx(64, scaling_type="linear", scaling_factor=4)
    assert np.allclose(p.frequencies(), RopeParams(64).frequencies() / 4, rtol=1e-15)


def test_from_pmx_dynamic_stretches_theta_beyond_the_maximum():
    scaling = {"scaling_type": "dynamic", "scaling_factor": 2.0, "max_position_embeddings": 2048}
    for end in (0, 1, 2048):
        assert RopeParams.from_pmx(64, end=end, **scaling) == RopeParams(64, "normal")
    stretched = RopeParams.from_pmx(64, end=4096, **scaling).freq_base
    assert stretched == pytest.approx(10000 * 3 ** (64 / 62), rel=1e-14)
