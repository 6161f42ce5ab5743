"""The errors of a judgement at each position."""

import numpy as np
import pytest

from npu_rope.testing import judge
from npu_rope.testing.outcomes import Expectation, compare_all
from npu_rope.testing.suites import all_cases


def test_errors_are_grouped_by_powers_of_two_of_the_position():
    positions = np.array([[0, 1, 2, 3], [4, 7, 8, -5]])
    error = np.arange(1, 9, dtype=np.float64).reshape(2, 4, 1, 1) * np.array([1, 0, 0.5]).reshape(1, 1, 1, 3)
    bound = np.full(error.shape, 10.0)
    judgement = compare_all("cpu", [error], [Expectation(error * 0, bound)], ["(b, s, n, d)"], positions)
    found = [(at.first, at.max_error, at.ratio) for at in judgement.by_position]
    assert found == [(0, 1, 0.1), (1, 2, 0.2), (2, 4, 0.4), (4, 8, 0.8), (8, 7, 0.7)]


def test_a_value_that_is_not_a_number_has_an_infinite_error():
    got = np.full((1, 1, 1, 2), np.nan)
    expected = Expectation(np.zeros(got.shape), np.ones(got.shape))
    (at,) = compare_all("cpu", [got], [expected], ["(b, s, n, d)"], np.array([[5]])).by_position
    assert (at.first, at.max_error, at.ratio) == (4, np.inf, np.inf)


CASES = {case.op + case.name: case for case in all_cases(("ggml",)) if case.dtype == "float32"}
NAMES = [
    next(name for name in CASES if text in name) for text in ("ROPE(", "mode=8", "ROPE_SET_ROWS", "ROPE_BACK")
]


@pytest.mark.parametrize("case", [CASES[name] for name in NAMES], ids=NAMES)
def test_the_largest_error_is_at_one_of_the_case_s_positions(case):
    result = judge.judge(case, ["cpu"], None)
    positions = np.abs(judge.make_data(case).positions)
    for judgement in result.judgements:
        errors = judgement.by_position
        assert max(at.ratio for at in errors) == judgement.ratio
        assert max(at.max_error for at in errors) == judgement.max_error
        assert [at.first for at in errors] == sorted({at.first for at in errors})
        assert errors[-1].first <= positions.max() < max(2 * errors[-1].first, 1)
