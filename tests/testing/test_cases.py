"""The case list: complete, named as ggml names it, the same on every machine."""

import numpy as np
import pytest

from npu_rope.params import RopeMode, RopeParams
from npu_rope.testing.cases import (
    FAR_1M,
    FAR_128K,
    all_cases,
    ggml_cases,
    make_data,
    model_cases,
    parent_shape,
)
from npu_rope.testing.models import MODELS


def test_names_are_unique():
    names = [c.name for c in all_cases()]
    assert len(set(names)) == len(names)


def test_ggml_suite_has_every_normal_and_neox_case_of_the_matrix():
    # Counted from the loops of test_rope: per direction 8 scalings x 2 types x 2 ff x (2 views x 2
    # shapes + 2 modes), plus 14 more shapes for the first scaling in f32; then inplace and offsets.
    matrix = 2 * (8 * 2 * 2 * (2 * 2 + 2) + 14 * 2 * 2)
    inplace = 2 * 2 * 2 * 3
    offsets = 2 * (2 * 2 * 2 + 1)
    cases = list(ggml_cases())
    assert len(cases) == matrix + inplace + offsets
    assert {c.params.rope_mode for c in cases} == {RopeMode.NORMAL, RopeMode.NEOX}


@pytest.mark.parametrize(
    "name",
    [
        "ROPE(type=f32,ne_a=[128,32,2,1],n_dims=128,mode=0,n_ctx=512,fs=1.000000,ef=0.000000,"
        "af=1.000000,ff=0,v=0,inplace=0,n_offs=0)",
        "ROPE_BACK(type=f16,ne_a=[36,16,2457,1],n_dims=36,mode=2,n_ctx=512,fs=1.424500,ef=0.746500,"
        "af=1.424500,ff=1,v=2,inplace=0,n_offs=0)",
        "ROPE(type=f32,ne_a=[128,32,2,3],n_dims=128,mode=2,n_ctx=512,fs=1.424500,ef=0.746500,"
        "af=1.424500,ff=1,v=1,inplace=1,n_offs=0)",
    ],
)
def test_ggml_names_are_what_test_backend_ops_prints(name):
    assert name in {c.name for c in ggml_cases()}


def test_n_ctx_orig_1_has_the_ramp_that_ggml_gets_from_0():
    # ggml: log(0) = -inf, so low = max(0, -inf) = 0 and high = min(n - 1, -inf); the width of the
    # ramp is 0.001 either way: pair 0 keeps its frequency, every other is interpolated.
    for n_dims in (2, 4, 16, 20, 32, 36, 64, 80, 128):
        low, high = RopeParams(n_dims, n_ctx_orig=1, beta_fast=1.0, beta_slow=1.0).corr_dims()
        assert low == 0
        assert high - low <= 0.001


def test_every_model_is_run_near_131071_and_1048575():
    for model in MODELS:
        cases = list(model_cases((model,)))
        last = {int(make_data(c).positions.max()) for c in cases}
        assert {FAR_128K, FAR_1M} <= last
        assert {c.dtype for c in cases} == {"float32", "float16", "bfloat16"}


def test_a_case_draws_the_same_data_every_time():
    case = next(ggml_cases())
    first, second = make_data(case), make_data(case)
    np.testing.assert_array_equal(first.parent, second.parent)
    np.testing.assert_array_equal(first.positions, second.positions)


def test_views_are_cut_from_their_parent_as_ggml_cuts_them():
    for case in ggml_cases():
        if case.view and case.shape[1] < 100:
            data = make_data(case)
            assert data.parent.shape == parent_shape(case)
            assert data.x.shape == case.shape
            assert np.shares_memory(data.x, data.parent)
            assert data.x.strides[-1] == data.x.itemsize
