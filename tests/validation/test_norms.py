"""The judge of rms_norm rejects slightly wrong results, in its cases and in random calls."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter

import numpy as np
import pytest
import random_norm_calls
import random_operators
from choices import Choices
from peer_bounds import peer_normalized_error

from npu_rope.dtypes import rounded_to
from npu_rope.testing import norm_spec, norms
from npu_rope.testing.bounds import worst_ratio
from npu_rope.testing.norm_spec import NormCall
from npu_rope.testing.suites import SUITES

RNG = np.random.default_rng(0)
X = RNG.standard_normal((40, 100))


def ratio_of(y, call):
    value, bound = norm_spec.rms_norm(call)
    return worst_ratio(np.asarray(y, np.float64), value, bound)[0]


def by_hand(call, *, epsilon=None, casts=True, mean=np.mean):
    """Return the formula in float64, correct or with one error. Without `casts`, the normalized x is not
    rounded to the stash type and to the type of x."""
    x = rounded_to(call.x.astype(np.float64), call.stash)
    squares = mean(np.square(x), axis=-1, keepdims=True)
    normalized = x / np.sqrt(squares + float(np.float32(call.epsilon if epsilon is None else epsilon)))
    if casts:
        normalized = rounded_to(rounded_to(normalized, call.stash), call.x_dtype)
    return rounded_to(normalized * call.scale, call.scale_dtype)


@pytest.mark.parametrize("scale_dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("x_dtype", ["float32", "float16", "bfloat16"])
def test_the_judge_accepts_only_the_formula(x_dtype, scale_dtype):
    x, scale = rounded_to(X, x_dtype), rounded_to(RNG.uniform(1, 2, 100), scale_dtype)
    call = NormCall(x, scale, x_dtype, scale_dtype)
    correct = by_hand(call)
    assert ratio_of(correct, call) <= 1
    assert ratio_of(by_hand(call, epsilon=1e-3), call) > 1
    assert ratio_of(by_hand(call, mean=lambda s, **k: np.mean(s[:, 1:], **k)), call) > 1
    assert ratio_of(np.roll(correct, 1, 0), call) > 1
    assert ratio_of(correct * (1 + 2.0**-20), call) > 1
    if x_dtype != "float32":  # with float32, the bound of the division also covers a missing cast
        assert ratio_of(by_hand(call, casts=False), call) > 1


def test_the_judge_rejects_the_neighbours_of_a_16_bit_result():
    """The bound is 0 where no rounding is near a tie."""
    x, scale = rounded_to(X, "float16"), np.ones(100)
    call = NormCall(x, scale, "float16", "float16")
    value, bound = norm_spec.rms_norm(call)
    neighbour = np.nextafter(value.astype(np.float16), np.float16(np.inf)).astype(np.float64)
    assert np.mean(bound == 0) > 0.9
    assert np.mean(np.abs(neighbour - value) > bound) > 0.9


def test_casts_equal_those_of_numpy_and_ml_dtypes():
    import ml_dtypes

    values = RNG.standard_normal(20_000) * 10.0 ** RNG.uniform(-50, 45, 20_000)
    values = np.concatenate(
        [values, [0.0, -0.0, np.inf, -np.inf, 65519.99, 65520, 2.0**-25, 3.5e38, 1 + 2.0**-11]]
    )
    with np.errstate(all="ignore"):
        for dtype, kind in (("float32", np.float32), ("float16", np.float16), ("float64", np.float64)):
            cast = norm_spec.cast(values.astype(np.longdouble), dtype)
            assert np.array_equal(cast.astype(np.float64), values.astype(kind).astype(np.float64))
        # Round to float32 first, so that ml_dtypes rounds only once.
        narrow = values.astype(np.float32)
        cast = norm_spec.cast(narrow.astype(np.longdouble), "bfloat16").astype(np.float64)
        assert np.array_equal(cast, narrow.astype(ml_dtypes.bfloat16).astype(np.float64))


@pytest.mark.parametrize("dtype", norm_spec.FORMATS)
def test_casts_round_once(dtype):
    """A value beside a tie goes to the nearer side, also where float64 cannot tell it from the tie."""
    bits, smallest, _ = norm_spec.FORMATS[dtype]
    # x86's long double has 64 significant bits. More are rounded away when the value is made.
    beside = np.longdouble(2) ** (1 - np.finfo(np.longdouble).nmant)
    for exponent in (0, -1, 7, smallest + bits):
        unit = np.longdouble(2) ** (exponent + 1 - bits)
        even = np.longdouble(2) ** exponent
        tie = even + unit / 2
        values = np.array([tie, tie * (1 + beside), tie * (1 - beside), tie + unit], np.longdouble)
        expected = np.array([even, even + unit, even, even + 2 * unit])
        assert np.array_equal(norm_spec.cast(values, dtype), expected), exponent
        assert np.array_equal(norm_spec.cast(-values, dtype), -expected), exponent
    # Halves of the smallest subnormal number.
    tiny = np.longdouble(2) ** smallest
    values = np.array([tiny / 2, tiny / 2 * (1 + beside), tiny * 1.5, tiny * 1.5 * (1 - beside)])
    assert np.array_equal(norm_spec.cast(values, dtype) / tiny, [0, 1, 2, 1])


def test_sums_equal_those_of_torch():
    torch = pytest.importorskip("torch")
    x, residual = RNG.standard_normal((2, 5000)) * 10.0 ** RNG.uniform(-6, 4.5, (2, 5000))
    for dtype in norm_spec.FORMATS:
        a, b = (torch.from_numpy(v).to(getattr(torch, dtype)) for v in (x, residual))
        total = norm_spec.add(a.double().numpy(), b.double().numpy(), dtype)
        assert np.array_equal(total, (a + b).double().numpy())


GRADIENTS_WITHOUT_TORCH = """
import json, sys
sys.modules["torch"] = None
from npu_rope.testing.norms import judge_norms, norm_cases
cases = [case for case in norm_cases() if case.backward]
judged = [(case, judge_norms(case, ["cpu", "sim"]).judgements) for case in cases]
print(json.dumps([[case.dtype, j.executor, j.verdict] for case, all in judged for j in all]))
"""


@pytest.mark.long
def test_gradients_are_judged_without_torch():
    command = [sys.executable, "-c", GRADIENTS_WITHOUT_TORCH]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    verdicts = Counter(map(tuple, json.loads(done.stdout)))
    assert {verdict for _, _, verdict in verdicts} <= {"ok", "unsupported"}
    for dtype in norms.DTYPES:
        assert min(verdicts[dtype, "cpu", "ok"], verdicts[dtype, "sim", "ok"]) > 5


def test_a_peers_bound_is_at_least_ours_and_rejects_wrong_results():
    call = NormCall(rounded_to(X, "float16"), np.ones(100), "float16", "float16")
    ours, theirs = (norm_spec.rms_norm(call, e)[1] for e in (None, peer_normalized_error(100, "float32")))
    assert np.all(ours <= theirs)
    assert np.mean(theirs == 0) > 0.8
    y = by_hand(call)
    assert np.any(np.abs(by_hand(call, epsilon=1e-3) - y) > theirs)
    neighbour = np.nextafter(y.astype(np.float16), np.float16(np.inf)).astype(np.float64)
    assert np.mean(np.abs(neighbour - y) > theirs) > 0.8


def test_names_are_unique_and_every_operation_has_its_cases():
    cases = list(SUITES["norm"].cases())
    counts = Counter(case.op for case in cases)
    assert len({case.name for case in cases}) == len(cases)
    assert counts == {"RMS_NORM": 79, "RMS_NORM_BACK": 32, "ADD_RMS_NORM": 79, "RMS_NORM_ROPE": 172}


@pytest.mark.parametrize("case", [c for c in norms.norm_cases() if "model" in c.name], ids=lambda c: c.name)
def test_a_wrong_result_fails_its_case(case, monkeypatch):
    run = norms._execute
    result = norms.judge_norms(case, ["reference", "cpu"])
    assert [j.verdict for j in result.judgements] == ["ok", "ok"]

    def wrong(case, data, backend):
        ys = run(case, data, backend)
        ys[-1].flat[7] *= 1.01
        return ys

    monkeypatch.setattr(norms, "_execute", wrong)
    judgement = norms.judge_norms(case, ["cpu"]).judgements[0]
    assert judgement.verdict == "FAIL"
    assert judgement.worst.index == np.unravel_index(
        7, norms.expectation(case, norms.make_data(case))[-1].value.shape
    )


def test_a_seed_and_a_number_always_draw_the_same_call():
    first, again = (random_operators.draw("rms_norm", 3, 7, "cpu")[0] for _ in range(2))
    assert first.text == again.text
    assert first.x.tobytes() == again.x.tobytes()


def test_a_wrong_operator_is_found_by_random_calls(monkeypatch):
    run = random_norm_calls.executors.run
    monkeypatch.setattr(
        random_norm_calls.executors, "run", lambda b, t, a: run(b, t, type(a)(a.axis, 1e-4, a.stash_type))
    )
    found = [
        random_norm_calls.judge(random_norm_calls.draw(Choices(f"{k}"), "rms_norm"), "cpu") > 1
        for k in range(40)
    ]
    assert sum(found) > 10
