"""Suite qkv: its cases, and its judge's verdicts on correct and wrong results."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from npu_rope import RopeMode
from npu_rope.testing import qkv_cases, qkv_data, qkv_judge
from npu_rope.testing.bounds import error_ratios
from npu_rope.testing.chip_types import lacks_type
from npu_rope.testing.qkv import square_sums_expectation
from npu_rope.testing.qkv_cases import QkvCase
from npu_rope.testing.qkv_judge import judge_qkv
from npu_rope.testing.suites import all_cases

CASES = {case.name.partition(",")[0] + ")": case for case in all_cases(("qkv",))}
QKV_CASES = {name: case for name, case in CASES.items() if isinstance(case, QkvCase)}


def judged(case, backend="cpu"):
    return judge_qkv(case, [backend]).judgements[0]


def test_names_are_unique_and_both_operators_have_their_cases():
    assert len(CASES) == len(all_cases(("qkv",)))
    assert Counter(case.op for case in CASES.values()) == {"QKV_NORM_ROPE_CACHE": 63, "QK_SQUARE_SUMS": 10}


def test_cases_cover_each_item_of_the_operator():
    """The values of each field of the cases in each dtype of a device."""
    for dtype in qkv_cases.DTYPES:
        cases = [case for case in QKV_CASES.values() if case.dtype == dtype]

        def values(name, cases=cases):
            return {getattr(case, name) for case in cases}

        assert values("view") == {"separate", "fused", "gated"}
        assert values("norm") == {"none", "heads", "all", "sums"}
        assert values("tables") == {"", "pairs", "lanes"}
        assert values("writes") == {"new", "given", "in place", "caches"}
        assert values("planes") == {3, 4}
        assert values("index") == {"int32", "int64"}
        for name in ("bias", "wide", "freq_factors", "by_token", "quant_offset", "stores"):
            assert values(name) == {False, True}
        assert {case.scale_offset for case in cases} == {0, 1}
        assert {case.params.rope_mode for case in cases} == set(RopeMode)
        assert {bool(case.params.n_offs) for case in cases} == {False, True}
        assert {bool(case.params.ext_factor) for case in cases} == {False, True}
        assert {2 * case.params.pairs < case.shape[2] for case in cases} == {False, True}
        stored = [case for case in cases if case.writes == "caches"]
        assert {case.layout for case in stored} == {"rows", "blocks", "blocks of heads"}
        assert {t for c in stored for t in c.cache_dtypes.values()} == {*qkv_cases.DTYPES, "int8"}
        int8 = [case for case in stored if "int8" in case.cache_dtypes.values()]
        assert {case.quantized for case in int8} == {"tensor", "head", "channel"}


@pytest.mark.long
def test_every_case_is_within_its_bound(backend):
    results = {case: judged(case, backend) for case in CASES.values()}
    for case, judgement in results.items():
        dtypes = (case.dtype, *(case.cache_dtypes.values() if isinstance(case, QkvCase) else ()))
        reason = lacks_type(backend, dtypes)
        wanted = ("unsupported", reason) if reason else ("ok", "")
        assert (judgement.verdict, judgement.message) == wanted, (case.name, judgement.ratio)


@pytest.mark.long
@pytest.mark.parametrize("name", QKV_CASES)
def test_a_wrong_element_of_any_result_fails_its_case(name, monkeypatch):
    case, run = CASES[name], qkv_judge._execute
    expected = qkv_data.expectation(case, qkv_data.make_data(case), "cpu")
    results = [i for i, result in enumerate(expected) if result.value.size]
    for i in results:
        index = np.unravel_index(int(np.argmax(np.abs(expected[i].value))), expected[i].value.shape)

        def wrong(case, data, backend, i=i, index=index):
            ys = run(case, data, backend)
            ys[i][index] = 0
            return ys

        monkeypatch.setattr(qkv_judge, "_execute", wrong)
        judgement = judged(case)
        assert (judgement.verdict, judgement.worst.index) == ("FAIL", index)
        assert judgement.worst.names == f"{'qkv'[i]}'s index"


@pytest.mark.parametrize("name", [n for n, c in CASES.items() if not isinstance(c, QkvCase)])
def test_a_wrong_sum_fails_its_case(name, monkeypatch):
    run = qkv_judge._run

    def wrong(*arguments):
        results = run(*arguments)
        results[0][0, 1] = np.float32(results[0][0, 1]) * 1.001 if np.isfinite(results[0][0, 1]) else 1.0
        return results

    monkeypatch.setattr(qkv_judge, "_run", wrong)
    judgement = judged(CASES[name])
    assert (judgement.verdict, judgement.worst.index) == ("FAIL", (0, 1))


@pytest.mark.parametrize("name", [n for n, c in QKV_CASES.items() if c.cache_dtypes and not c.v_cache])
def test_a_changed_sign_of_a_zero_beside_the_stored_rows_fails_its_case(name, monkeypatch):
    run = qkv_judge.run_on_bits

    def wrong(backend, call, attributes, results):
        run(backend, call, attributes, results)
        cache, slots = call.outs["v_cache"], call.other_inputs["slots"]
        others = np.setdiff1d(np.arange(np.prod(cache.shape[:-2])), slots)
        row = others[0] if cache.ndim == 3 else np.divmod(others[0], cache.shape[1])
        values = cache[row]
        sign = 0x8000 if cache.dtype == np.uint16 else -0.0
        zeros = values == sign if cache.dtype == np.uint16 else (values == 0) & np.signbit(values)
        assert zeros.any()
        values[zeros] = 0
        cache[row] = values

    monkeypatch.setattr(qkv_judge, "run_on_bits", wrong)
    judgement = judged(CASES[name])
    assert judgement.message == "a row of the cache that no token belongs to was written"


@pytest.mark.parametrize(
    ("name", "changed"),
    [
        ("qwen3-next(type=f16)", lambda call: call.xs["q"].base),  # the gate's last element
        ("imrope(type=bf16)", lambda call: call.other_inputs["q_scale"]),
        ("gemma3(type=f32)", lambda call: call.xs["v"]),
    ],
)
def test_a_changed_input_fails_its_case(name, changed, monkeypatch):
    """The gate beside queries that rotate in place keeps its bits, and so does every other input."""
    run = qkv_judge.run_on_bits

    def wrong(backend, call, attributes, results):
        run(backend, call, attributes, results)
        array = changed(call)
        array[(-1,) * array.ndim] += 1

    monkeypatch.setattr(qkv_judge, "run_on_bits", wrong)
    judgement = judged(CASES[name])
    assert (judgement.verdict, judgement.message) == ("FAIL", "an input was written")


def test_sums_beyond_float32_are_infinite_and_no_finite_result_is_within_their_bound():
    x = np.full((1, 1, 4), 2.0**100, np.float32)
    expected = square_sums_expectation([x, x], "float32", "sim")
    assert np.all(np.isinf(expected.value))
    assert np.all(error_ratios(np.array([[np.inf, 3e38]]), *expected)[1] == [[0, np.inf]])
