"""The cases of suites ggml and models: names, parameters and data."""

import collections
import zlib

import numpy as np
import pytest

from npu_rope.params import RopeParams
from npu_rope.testing.cases import (
    FAR_4M,
    FAR_128K,
    ggml_cases,
    make_data,
    model_cases,
)
from npu_rope.testing.models import MODELS
from npu_rope.testing.suites import all_cases


def test_names_are_unique():
    names = [c.name for c in all_cases()]
    assert len(set(names)) == len(names)


# Number of cases that ggml's tests/test-backend-ops.cpp (d99724f) makes, by operation and number of the mode.
GGML_COUNTS = {
    ("ROPE", 0): 140,
    ("ROPE", 2): 142,
    ("ROPE", 8): 64,
    ("ROPE", 24): 48,
    ("ROPE", 40): 72,
    ("ROPE_BACK", 0): 128,
    ("ROPE_BACK", 2): 128,
    ("ROPE_BACK", 8): 52,
    ("ROPE_BACK", 24): 36,
    ("ROPE_BACK", 40): 60,
    ("ROPE_SET_ROWS", 0): 12,
    ("ROPE_SET_ROWS", 2): 12,
    ("ROPE_SET_ROWS", 8): 12,
    ("ROPE_SET_ROWS", 24): 12,
}
# crc32 of the 918 lines that it prints, in its order.
GGML_NAMES_CRC32 = 52964892


def test_ggml_suite_has_every_case_of_the_matrix():
    cases = list(ggml_cases())
    counted = collections.Counter((c.op, c.params.rope_mode.value) for c in cases)
    assert counted == GGML_COUNTS
    assert len(cases) == sum(GGML_COUNTS.values()) == 918


def test_ggml_names_are_those_of_test_backend_ops_in_its_order():
    assert zlib.crc32("\n".join(c.name for c in ggml_cases()).encode()) == GGML_NAMES_CRC32


@pytest.mark.parametrize(
    "name",
    [
        "ROPE(type=f32,ne_a=[128,32,2,1],n_dims=128,mode=0,n_ctx=512,fs=1.000000,ef=0.000000,"
        "af=1.000000,ff=0,v=0,inplace=0,n_offs=0)",
        "ROPE_BACK(type=f16,ne_a=[36,16,2457,1],n_dims=36,mode=2,n_ctx=512,fs=1.424500,ef=0.746500,"
        "af=1.424500,ff=1,v=2,inplace=0,n_offs=0)",
        "ROPE(type=f32,ne_a=[128,32,2,3],n_dims=128,mode=2,n_ctx=512,fs=1.424500,ef=0.746500,"
        "af=1.424500,ff=1,v=1,inplace=1,n_offs=0)",
        "ROPE(type=f32,ne_a=[80,16,2,1],n_dims=80,mode=24,n_ctx=512,fs=1.000000,ef=0.000000,"
        "af=1.000000,ff=0,v=0,inplace=0,n_offs=0)",
        "ROPE_BACK(type=f16,ne_a=[128,12,2,1],n_dims=24,mode=40,n_ctx=512,fs=1.424500,ef=0.746500,"
        "af=1.424500,ff=0,v=0,inplace=0,n_offs=32)",
        "ROPE_SET_ROWS(type=f16,type_idx=i64,ne_a=[128,32,512,3],mode=8)",
    ],
)
def test_ggml_suite_has_names_that_test_backend_ops_prints(name):
    assert name in {c.name for c in ggml_cases()}


@pytest.mark.parametrize(
    ("name", "n_dims", "pairs", "sections"),
    [
        ("ne_a=[128,12,2,1],n_dims=20,mode=8,", 20, 10, (6, 6, 6, 0)),
        ("ne_a=[128,28,2,1],n_dims=128,mode=40,", 128, 64, (42, 42, 42, 0)),
        ("ne_a=[80,16,2,1],n_dims=80,mode=24,", 40, 40, (20, 20, 0, 0)),
        ("ne_a=[36,16,2457,1],n_dims=36,mode=24,", 18, 18, (9, 9, 0, 0)),
        ("ne_a=[128,32,512,1],mode=24)", 64, 64, (32, 32, 0, 0)),
        ("ne_a=[128,32,512,1],mode=2)", 128, 64, (0, 0, 0, 0)),
    ],
)
def test_sections_follow_from_the_names_n_dims_as_in_test_rope(name, n_dims, pairs, sections):
    found = [c.params for c in ggml_cases() if name in c.name]
    assert found
    assert {(p.n_dims, p.pairs, tuple(p.sections)) for p in found} == {(n_dims, pairs, sections)}


def test_tokens_of_the_modes_with_sections_have_four_positions_each():
    for case in [*ggml_cases(), *model_cases()]:
        if case.shape[1] > 512 or case.cache_rows:
            continue
        positions = make_data(case).positions
        if not case.params.rope_mode.has_sections:
            assert positions.shape in (case.shape[1:2], case.shape[:2])
            continue
        assert len(positions) == 4
        assert positions.shape[1:] in (case.shape[1:2], case.shape[:2])
        if positions[0].size >= 8:  # the axes differ
            assert len({axis.tobytes() for axis in positions}) == 4


def test_rows_of_a_cache_are_a_shuffle_and_the_cache_is_not_empty():
    cases = [c for c in ggml_cases() if c.op == "ROPE_SET_ROWS"]
    assert {(c.dtype, c.result_dtype) for c in cases} == {("float32", "float32"), ("float32", "float16")}
    shuffled = 0
    for case in cases:
        data, tokens = make_data(case), case.shape[1]
        assert sorted(data.rows) == list(range(tokens))
        assert data.rows.dtype == np.int64
        assert data.cache.shape == (case.cache_rows, *case.shape[2:])
        assert data.cache.dtype == case.cache_dtype
        assert case.cache_rows in (tokens, 3 * tokens)
        assert np.count_nonzero(data.cache) > data.cache.size // 2
        shuffled += list(data.rows) != list(range(tokens))
    assert shuffled >= len(cases) // 2


def test_n_ctx_orig_1_has_the_ramp_that_ggml_gets_from_0():
    # In ggml log(0) = -inf, so low = max(0, -inf) = 0 and high = min(n - 1, -inf). In both cases the width of
    # the ramp is 0.001: pair 0 keeps its frequency, and every other frequency is interpolated.
    for n_dims in (2, 4, 16, 18, 20, 24, 32, 36, 40, 64, 80, 128):
        low, high = RopeParams(n_dims, n_ctx_orig=1, beta_fast=1.0, beta_slow=1.0).corr_dims()
        assert low == 0
        assert high - low <= 0.001


def test_every_model_has_cases_up_to_131071_and_4194303_and_three_types():
    for model in MODELS:
        cases = list(model_cases((model,)))
        last_positions = {int(make_data(c).positions.max()) for c in cases}
        assert {FAR_128K, FAR_4M} <= last_positions
        assert {c.dtype for c in cases} == {"float32", "float16", "bfloat16"}


def test_a_case_draws_the_same_data_every_time():
    case = next(ggml_cases())
    first, second = make_data(case), make_data(case)
    np.testing.assert_array_equal(first.parent, second.parent)
    np.testing.assert_array_equal(first.positions, second.positions)


@pytest.mark.parametrize(("view", "growth", "offset"), [(1, (1, 3, 4, 2), 0), (2, (1, 1, 1, 2), 36)])
def test_views_have_the_parent_and_offset_that_ggml_gives_them(view, growth, offset):
    case = next(c for c in ggml_cases() if c.view == view)
    data = make_data(case)
    assert data.x.shape == case.shape
    assert data.parent.shape == tuple(np.multiply(case.shape, growth))
    assert data.x.strides == data.parent.strides
    assert data.x.ctypes.data == data.parent.ctypes.data + offset * data.x.itemsize
