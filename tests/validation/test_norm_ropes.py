"""The judge of rms_norm_rope rejects slightly wrong results, in its cases and in random calls."""

from __future__ import annotations

import math

import numpy as np
import pytest
import random_norm_ropes
import random_operators
from choices import Choices

from npu_rope import RopeParams
from npu_rope.dtypes import rounded_to
from npu_rope.rms_norm_rope_calls import RmsNormRopeAttributes
from npu_rope.testing import norm_rope_spec, norm_ropes, spec
from npu_rope.testing.bounds import worst_ratio
from npu_rope.testing.norm_rope_spec import NormRopeCall
from npu_rope.testing.suites import SUITES, judge

RNG = np.random.default_rng(0)
X, SCALE, POSITIONS = RNG.standard_normal((12, 4, 64)), RNG.uniform(1, 2, 64), np.arange(90, 102)
PARAMS = RopeParams(48, "neox", n_offs=8)


def call_of(dtype, rounding):
    return NormRopeCall(
        rounded_to(X, dtype),
        rounded_to(SCALE, dtype),
        POSITIONS,
        PARAMS,
        dtype,
        intermediate_rounding=rounding,
    )


def by_hand(call, *, epsilon=1e-5, shift=0, sign=1, rounds=None, scale=None, offset=8, mean=np.mean):
    """Return the formula in float64, correct or with one error. `rounds` rounds the intermediate values."""
    rounds = call.intermediate_rounding if rounds is None else rounds
    cast = (lambda v: rounded_to(v, call.dtype)) if rounds else (lambda v: v)
    square = mean(np.square(call.x), axis=-1, keepdims=True)
    y = cast(
        cast(call.x / np.sqrt(square + float(np.float32(epsilon)))) * (call.scale if scale is None else scale)
    )
    angle = (POSITIONS + shift)[:, None, None] * 10000.0 ** (-2 * np.arange(24) / 48)
    c, s = np.cos(angle), sign * np.sin(angle)
    first, second = y[..., offset : offset + 24], y[..., offset + 24 : offset + 48]
    rotated = y.copy()
    rotated[..., offset : offset + 24] = first * c - second * s
    rotated[..., offset + 24 : offset + 48] = first * s + second * c
    return rounded_to(rotated, call.dtype)


def ratio_of(y, call):
    return worst_ratio(y, *norm_rope_spec.rms_norm_rope(call))[0]


WRONG = {
    "another epsilon": {"epsilon": 1e-2},
    "one position off": {"shift": 1},
    "sign of sin": {"sign": -1},
    "no scale": {"scale": 1.0},
    "window moved": {"offset": 6},
    "a lane left out of the mean": {"mean": lambda s, **k: np.mean(s[..., 1:], **k)},
}


@pytest.mark.parametrize("rounding", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64"])
def test_the_judge_accepts_only_the_formula(dtype, rounding):
    call = call_of(dtype, rounding and dtype != "float64")
    correct = by_hand(call)
    assert ratio_of(correct, call) <= 1
    for error in WRONG.values():
        assert ratio_of(by_hand(call, **error), call) > 1
    assert ratio_of(np.roll(correct, 1, 0), call) > 1
    assert ratio_of(correct * (1 + 2.0**-4), call) > 1


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_each_rounding_is_rejected_where_the_other_is_required(dtype):
    once, between = (call_of(dtype, rounding) for rounding in (False, True))
    assert ratio_of(by_hand(once), once) <= 1 < ratio_of(by_hand(between), once)
    assert ratio_of(by_hand(between), between) <= 1 < ratio_of(by_hand(once), between)


def test_lanes_outside_the_window_are_rounded_only_once():
    """Their bound is the error of one rounding. Almost half of the results one step above the nearest float16
    exceed it."""
    call = call_of("float16", False)
    value, bound = norm_rope_spec.rms_norm_rope(call)
    nearest = value.astype(np.float16)
    neighbour = np.nextafter(nearest, np.float16(np.inf)).astype(np.float64)
    outside = np.r_[0:8, 56:64]
    too_far = np.abs(neighbour - value) > bound
    assert np.mean(too_far[..., outside]) > 0.45
    assert np.all(np.abs(nearest - value) <= bound)


@pytest.mark.parametrize(
    "params",
    [
        RopeParams(32, "normal", n_offs=4),
        RopeParams(32, "neox", freq_base=1e6, freq_scale=0.25, ext_factor=1.0, n_ctx_orig=4096),
        RopeParams(32, "mrope", sections=(4, 5, 6, 1)),
        RopeParams(32, "imrope", sections=(6, 5, 5, 0)),
        RopeParams(20, "vision", sections=(7, 5, 0, 8)),
    ],
    ids=str,
)
def test_the_table_equals_the_scalar_formula(params):
    """The formula is that of testing/spec.py, which also judges the reference of rope."""
    axes = 4 if params.rope_mode.has_sections else 1
    positions = RNG.integers(-5000, 5000, (axes, 3))
    factors = RNG.uniform(1, 3, params.pairs).astype(np.float32)
    c, s = norm_rope_spec.exact_table(positions if axes == 4 else positions[0], params, factors)
    for token in range(3):
        for pair in range(params.pairs):
            axis, power = spec.axis_and_power(params, pair)
            at = int(positions[axis, token])
            angle, scale = spec.theta(params, at, pair, power, float(factors[pair]))
            assert abs(float(c[token, pair]) - math.cos(angle) * scale) < 1e-11
            assert abs(float(s[token, pair]) - math.sin(angle) * scale) < 1e-11


def test_case_names_are_unique_and_cases_cover_every_mode():
    cases = [case for case in SUITES["norm"].cases() if case.op == "RMS_NORM_ROPE"]
    assert len({case.name for case in cases}) == len(cases) == 172
    assert {case.params.rope_mode.name for case in cases} == {"NORMAL", "NEOX", "MROPE", "IMROPE", "VISION"}
    assert sum(case.set_rows for case in cases) == 14


@pytest.mark.parametrize(
    "case",
    [c for c in norm_ropes.norm_rope_cases() if "qwen3(" in c.name or "set-rows(" in c.name],
    ids=lambda c: c.name,
)
def test_a_wrong_result_fails_its_case(case, monkeypatch):
    run = norm_ropes._execute
    result = judge(case, ["reference", "cpu"], None)
    assert [j.verdict for j in result.judgements] == ["ok", "ok"]

    def wrong(case, data, backend):
        ys = run(case, data, backend)
        ys[1].flat[7] = ys[1].flat[7] * 1.1 + 1e-3
        return ys

    monkeypatch.setattr(norm_ropes, "_execute", wrong)
    judgement = norm_ropes.judge_norm_ropes(case, ["cpu"]).judgements[0]
    assert judgement.verdict == "FAIL"
    assert judgement.worst.names == "k's index"


def test_a_seed_and_a_number_always_draw_the_same_call():
    first, again = (random_operators.draw("rms_norm_rope", 3, 7, "cpu")[0] for _ in range(2))
    assert first.text == again.text
    assert first.t.xs["q"].tobytes() == again.t.xs["q"].tobytes()


@pytest.mark.parametrize("changed", ["epsilon", "position", "rounding"])
def test_a_wrong_operator_is_found_by_random_calls(changed, monkeypatch):
    run = random_norm_ropes.executors.run

    def wrong(backend, t, a):
        if not isinstance(a, RmsNormRopeAttributes):
            return run(backend, t, a)
        params, epsilon, rounding = a.params, a.epsilon, a.intermediate_rounding
        if changed == "epsilon":
            epsilon = 0.5
        if changed == "rounding":
            rounding = not rounding
        if changed == "position":
            t.other_inputs["positions"] = t.other_inputs["positions"] ^ 1
        return run(backend, t, type(a)(params, epsilon, rounding))

    monkeypatch.setattr(random_norm_ropes.executors, "run", wrong)
    found = 0
    for k in range(40):
        try:
            found += random_norm_ropes.judge(random_norm_ropes.draw(Choices(f"{k}")), "cpu") > 1
        except AssertionError:
            found += 1
    assert found > 8
