"""qk_square_sums on arrays and tensors, against float64 with derived bounds: sizes, views, tokens and heads
beyond UB, empty sides, the order of the sums, and the norm that reads them.
"""

from __future__ import annotations

import numpy as np
import pytest
import random_qkv
import torch
from ascend_sim import library as simulator
from choices import Choices
from random_qkv import DTYPES, NUMPY, as_numpy, as_torch
from random_square_sums import LONGEST_WHOLE_HEAD, SquareSumsCase, draw, judge, ratio_of, refused

from npu_rope import RopeParams, qk_square_sums, qkv_norm_rope_cache
from npu_rope.testing.bounds import is_device
from npu_rope.testing.chip_types import lacks_type


def skip_if_lacking(backend, dtype):
    if reason := lacks_type(backend, (dtype,)):
        pytest.skip(reason)


def heads_of(dtype, tokens, heads, size, seed=0):
    """Return q and k, views of one fused tensor."""
    rng = np.random.default_rng(seed)
    fused = rng.standard_normal((tokens, sum(heads), size)).astype(NUMPY[dtype])
    return fused[:, : heads[0]], fused[:, heads[0] :]


def assert_within_bound(q, k, dtype, backend):
    case = SquareSumsCase(dtype, "", q, k)
    ratio = ratio_of(case, qk_square_sums(q, k, backend=backend), backend)
    assert ratio <= 1, (ratio, case.text)


@pytest.mark.parametrize("first_index", range(0, 240, 30))
def test_random_calls_meet_the_bound(first_index, backend):
    for index in range(first_index, first_index + 30):
        case = draw(Choices(f"{index}"))
        if refused(case, backend):
            continue
        ratio = judge(case, backend)
        assert ratio <= 1, (index, ratio, case.text)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", [1, 7, 8, 63, 64, 65, 128, 136])
def test_sizes_around_the_vector_width(size, dtype, backend):
    skip_if_lacking(backend, dtype)
    for tokens in (1, 3, 4, 9):
        assert_within_bound(*heads_of(dtype, tokens, (5, 2), size), dtype, backend)


@pytest.mark.parametrize("tokens", [*range(1, 9), 11, 31, 33, 47, 49, 191, 255, 257, 259, 1027, 2049])
def test_every_number_of_tokens(tokens, backend):
    assert_within_bound(*heads_of("float16", tokens, (3, 1), 32), "float16", backend)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("heads", [(700, 3), (3, 700), (701, 699)])
def test_tokens_that_do_not_fit_ub(heads, dtype, backend):
    for tokens in (1, 5):
        q, k = heads_of(dtype, tokens, heads, 132)
        assert_within_bound(q[:, :, 4:], k[:, :, :128], dtype, backend)


@pytest.mark.parametrize(("tokens", "heads", "size"), [(96, (200, 190), 128), (96, (1, 2), 8200)])
def test_a_core_has_several_tokens_in_parts(tokens, heads, size, backend):
    assert_within_bound(*heads_of("float32", tokens, heads, size), "float32", backend)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("more", [0, 1, 9, 8193, 41_000])
def test_heads_that_do_not_fit_ub(more, dtype, backend):
    assert_within_bound(*heads_of(dtype, 5, (2, 1), LONGEST_WHOLE_HEAD + more), dtype, backend)


def test_a_wrong_result_exceeds_the_bound():
    q, k = heads_of("float32", 4, (3, 2), 64)
    case = SquareSumsCase("float32", "", q, k)
    sums = qk_square_sums(q, k)
    assert ratio_of(case, sums, "sim") <= 1
    assert ratio_of(case, sums[:, ::-1], "sim") > 1
    without_an_element = sums - np.array([q[0, 0, 5] ** 2, 0], np.float32)
    assert ratio_of(case, without_an_element, "sim") > 1


@pytest.mark.parametrize("heads", [(0, 3), (3, 0), (0, 0)])
def test_a_side_without_heads_has_sums_of_0(heads, backend):
    q, k = heads_of("float16", 9, heads, 40)
    sums = qk_square_sums(q, k, backend=backend)
    assert_within_bound(q, k, "float16", backend)
    for side, count in enumerate(heads):
        assert sums[:, side].any() == (count > 0)


@pytest.mark.parametrize("shape", [(0, 2, 8), (3, 2, 0), (2, 2**40, 0)])
def test_tensors_without_elements(shape, backend):
    x = np.zeros(shape, np.float32)
    np.testing.assert_array_equal(qk_square_sums(x, x, backend=backend), np.zeros((shape[0], 2), np.float32))


@pytest.mark.parametrize("dtype", DTYPES)
def test_tensors_have_the_bits_of_arrays(dtype, backend):
    skip_if_lacking(backend, dtype)
    q, k = heads_of(dtype, 6, (3, 1), 40)
    for view in (slice(None), slice(None, None, 2)):
        arrays = q[:, :, view], k[:, :, view]
        on_tensors = qk_square_sums(*(as_torch(x) for x in arrays), backend=backend)
        assert isinstance(on_tensors, torch.Tensor)
        np.testing.assert_array_equal(on_tensors.numpy(), qk_square_sums(*arrays, backend=backend))


def test_squares_that_float32_cannot_represent(backend):
    q = np.ldexp(np.ones((2, 1, 16), np.float32), np.int32([[[70]], [[-80]]]))
    sums = qk_square_sums(q, q[:, :, ::-1].copy(), backend=backend)
    np.testing.assert_array_equal(sums, np.float32([[np.inf] * 2, [0.0] * 2]))


def test_nan_and_infinity_stay_in_their_sums(backend):
    q, k = heads_of("float32", 6, (2, 2), 24)
    q[2, 1, 3], k[4, 0, 7] = np.nan, -np.inf
    sums = qk_square_sums(q, k, backend=backend)
    assert np.argwhere(~np.isfinite(sums)).tolist() == [[2, 0], [4, 1]]
    assert np.isnan(sums[2, 0])
    assert sums[4, 1] == np.inf


@pytest.mark.parametrize("call", [(33, (8, 2), 64), (1, (400, 100), 256), (3, (2, 1), 30_000)])
def test_the_sums_have_the_same_bits_in_every_run(call, backend):
    """The simulator runs the cores in both orders and compares the results bit for bit."""
    tokens, heads, size = call
    q, k = heads_of("float32", tokens, heads, size)
    first = qk_square_sums(q, k, backend=backend)
    torch.use_deterministic_algorithms(True)
    try:
        second = qk_square_sums(q, k, backend=backend)
    finally:
        torch.use_deterministic_algorithms(False)
    np.testing.assert_array_equal(first, second)


def cores_of(soc, tokens, heads, size, dtype="float16"):
    """Return the number of cores that a launch uses on that chip."""
    q, k = heads_of(dtype, tokens, heads, size)
    assert_within_bound(q, k, dtype, f"sim:{soc}")
    return int(simulator.load().report()["summary"]["cores"])


def test_tokens_and_long_tokens_use_all_cores_of_a_device():
    assert cores_of("ascend910b", 96, (32, 8), 128) == 48
    assert cores_of("ascend910b", 50, (32, 8), 128) >= 25
    assert cores_of("ascend950", 128, (32, 8), 128) == 64
    assert cores_of("ascend310p", 64, (32, 8), 128) == 8
    # The heads of a token go to several cores if the token is long enough.
    assert cores_of("ascend910b", 1, (2000, 400), 128) == 48
    assert cores_of("ascend910b", 3, (2000, 400), 128) == 48
    assert cores_of("ascend910b", 1, (32, 8), 128) == 1


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_the_norm_over_all_heads_reads_the_sums(dtype, backend):
    """The results meet the bound of a norm that adds the squares itself."""
    skip_if_lacking(backend, dtype)
    for seed in range(12):
        case = random_qkv.case_of((77, seed), dtype=dtype, norm="all", writes="new")
        if case.xs["q"].shape[1] == 1 or case.xs["k"].shape[1] == 1:
            continue  # scales [D] are those of a norm of each head
        sums = qk_square_sums(case.xs["q"], case.xs["k"], backend=backend)
        expected = random_qkv.expectation(case, backend)
        case.named["square_sums"] = sums
        results = random_qkv.run(case, backend)
        for name in "qk":
            ratio = random_qkv.worst_ratio(results[name], *expected[name])[0]
            assert ratio <= 1, (seed, name, ratio, case.text)


@pytest.mark.parametrize("dtype", DTYPES)
def test_partial_sums_of_two_ranks_give_the_norm_over_all_heads(dtype, backend):
    skip_if_lacking(backend, dtype)
    rng = np.random.default_rng(5)
    q, k = (rng.standard_normal((9, heads, 32)).astype(NUMPY[dtype]) for heads in (8, 4))
    scales = {"q_scale": rng.standard_normal(256), "k_scale": rng.standard_normal(128)}
    scales = {name: scale.astype(np.float32) for name, scale in scales.items()}
    arguments = np.arange(9), RopeParams(32)
    whole = qkv_norm_rope_cache(q, k, None, *arguments, **scales, backend=backend)
    parts = (q[:, :4], k[:, :2]), (q[:, 4:], k[:, 2:])
    sums = sum(qk_square_sums(*part, backend=backend) for part in parts)
    assert sums.dtype == (np.float64 if dtype == "float64" else np.float32)
    for rank in range(2):
        part = {name: np.split(scale, 2)[rank] for name, scale in scales.items()}
        xs = (np.split(x, 2, axis=1)[rank] for x in (q, k))
        got = qkv_norm_rope_cache(*xs, None, *arguments, **part, square_sums=sums, ranks=2, backend=backend)
        for y, x in zip(got[:2], whole[:2], strict=True):
            expected = np.split(x, 2, axis=1)[rank].astype(np.float64)
            rounding = {"float32": 2e-6, "float16": 2e-3, "bfloat16": 1.6e-2, "float64": 1e-14}[dtype]
            np.testing.assert_allclose(as_numpy(y), expected, rounding, rounding)


def test_bad_calls_are_refused(backend):
    q = np.zeros((2, 3, 4), np.float32)
    with pytest.raises(ValueError, match=r"\[qk_square_sums\] q must have shape \[S,N,D\] but got \[3, 4\]"):
        qk_square_sums(q[0], q, backend=backend)
    with pytest.raises(TypeError, match="k must have q's dtype float32 but got float16"):
        qk_square_sums(q, q.astype(np.float16), backend=backend)
    with pytest.raises(ValueError, match="k must have q's shape"):
        qk_square_sums(torch.from_numpy(q), torch.zeros(1, 3, 4), backend=backend)
    if not is_device(backend):
        return
    with pytest.raises(TypeError, match=r"\[qk_square_sums\] q must be float32.*float16.* but got float64"):
        qk_square_sums(q.astype(np.float64), q.astype(np.float64), backend=backend)
    if lacks_type(backend, ("bfloat16",)):
        with pytest.raises(TypeError, match="q must be float32 or float16 on Ascend310P3 but got bfloat16"):
            qk_square_sums(*(x.astype(NUMPY["bfloat16"]) for x in (q, q)), backend=backend)
