"""rms_norm against the specification in long double: every type of x and scale and every stash type, ranks,
axes, broadcasts and layouts; sizes around vectors and blocks; numbers at the ends of the types' ranges.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from guarded_memory import GuardedMemory, before_inaccessible_memory
from hypothesis import given, settings
from hypothesis import strategies as st
from instruction_sets import SUPPORTED
from norm_cases import (
    NUMPY_DTYPES,
    NormSetup,
    bytes_of,
    on_hosts,
    possible,
    run_and_judge,
    strides_of,
    to_torch,
    unless_refused,
)
from pairwise import pairwise
from together import together

from npu_rope import rms_norm

DTYPES = tuple(NUMPY_DTYPES)
FACTORS = {
    "dtype": DTYPES,
    "scale_dtype": ("own", *DTYPES),
    "framework": ("numpy", "torch"),
    "shape": (
        (3, 5, 40),
        (33,),
        (2, 130),
        (2, 3, 4, 17),
        (2, 3, 2, 2, 9),
        (2, 1, 3, 2, 2, 5),
        (3, 0, 4),
        (4, 0),
        (1, 1),
    ),
    "axis": (-1, -2, 0, 1),
    "scale": ("normalized", "last", "one", "own", "tokens", "inner-one"),
    "epsilon": (1e-5, 0.0, 1.0, 1e-12),
    "stash_type": (1, 10, 11, 16),
    "layout": ("contiguous", "gaps", "non-unit", "reversed", "transposed"),
    "out": ("new", "given", "in-place", "gaps"),
}


def is_valid(call):
    rank = len(call.shape)
    return -rank <= call.axis < rank and possible(call)


def for_each_valid(setups):
    return together("call", [c for c in setups if is_valid(c)], share=True)


BASES = [
    NormSetup(),
    NormSetup("float16", framework="torch", shape=(2, 3, 4, 17), axis=1),
    NormSetup("bfloat16", "float32", shape=(2, 130)),
    NormSetup("float64", stash_type=11, scale="tokens"),
]
ONE_FACTOR = [
    replace(base, **{name: value}) for base in BASES for name, values in FACTORS.items() for value in values
]


@for_each_valid(dict.fromkeys(ONE_FACTOR))
def test_one_factor_changed_meets_the_bound(call, backend, guarded):
    run_and_judge(call, backend, guarded)


@for_each_valid(pairwise(FACTORS, NormSetup, is_valid))
def test_every_pair_of_factors_meets_the_bound(call, backend, guarded):
    run_and_judge(call, backend, guarded)


@settings(max_examples=30)
@given(
    call=st.builds(NormSetup, **{name: st.sampled_from(values) for name, values in FACTORS.items()}),
    n=st.integers(1, 200),
    seed=st.integers(0, 2**16),
)
def test_any_call_meets_the_bound(call, n, seed, backend):
    call = replace(call, shape=(*call.shape[:-1], n))
    run_and_judge(
        call if is_valid(call) else replace(call, axis=-1, out="new", layout="gaps"),
        backend,
        GuardedMemory(),
        seed,
    )


@together("stash_type", [1, 10, 11, 16])
@together("scale_dtype", DTYPES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_combination_of_types_meets_the_bound(dtype, scale_dtype, stash_type, backend, guarded):
    for n in (1, 33, 600):
        run_and_judge(NormSetup(dtype, scale_dtype, shape=(4, n), stash_type=stash_type), backend, guarded)


# ---- sizes ---------------------------------------------------------------------------------------------

SIZES = (1, 2, 3, 31, 32, 33, 127, 129, 255, 257, 513, 4097, 16384)


@pytest.mark.parametrize("isa", SUPPORTED)
@pytest.mark.parametrize("scale_dtype", ["own", "float32"])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_every_instruction_set_meets_the_bound(isa, dtype, scale_dtype, force_isa, guarded):
    force_isa(isa)
    for n in SIZES:
        run_and_judge(NormSetup(dtype, scale_dtype, shape=(2, n)), "cpu", guarded)


@pytest.mark.parametrize(
    ("dtype", "stash_type"), [("float32", 1), pytest.param("float64", 11, marks=pytest.mark.slow)]
)
def test_a_row_of_a_million_elements_meets_the_bound(dtype, stash_type, guarded):
    """The bound grows with n only by log2(n) times 2^-53; a running float32 sum exceeds it."""
    run_and_judge(NormSetup(dtype, shape=(1, 1_000_003), stash_type=stash_type), "cpu", guarded)


def test_many_rows_on_several_threads_meet_the_bound(backend, guarded):
    run_and_judge(NormSetup("float16", shape=(7, 300, 96), out="in-place"), backend, guarded)
    run_and_judge(NormSetup(shape=(300, 7, 96), layout="transposed", out="gaps"), backend, guarded)


@pytest.mark.parametrize("isa", SUPPORTED)
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64"])
def test_rows_are_read_and_written_within_their_memory(isa, dtype, force_isa):
    """Rows around the sizes of a vector, of a group of rows and of a block of squares."""
    force_isa(isa)
    rng = np.random.default_rng(0)
    for n in (1, 7, 33, 100, 1030, 4096, 4100):
        x = rng.standard_normal((5, n)).astype(NUMPY_DTYPES[dtype])
        scale = rng.standard_normal(n).astype(NUMPY_DTYPES[dtype])
        within = [before_inaccessible_memory(a) for a in (x, scale, np.zeros_like(x))]
        rms_norm(*within[:2], out=within[2], backend="cpu")
        assert bytes_of(within[2]) == bytes_of(rms_norm(x, scale, backend="cpu"))


@pytest.mark.parametrize("isa", SUPPORTED)
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_a_rows_result_does_not_depend_on_its_neighbours(isa, dtype, force_isa):
    """Short rows are normalized in blocks, long ones by themselves. Some rows do not fit float32's sums. Many
    rows read a float16 scale as float32, one row does not."""
    force_isa(isa)
    rng = np.random.default_rng(0)
    for n in (1, 33, 128, 500, 1024, 1030):
        x = rng.standard_normal((70, n), np.float32).astype(NUMPY_DTYPES[dtype])
        scale = rng.standard_normal(n, np.float32).astype(NUMPY_DTYPES[dtype])
        if n > 1:
            scale[:4] = np.inf, np.nan, np.finfo(np.float16).smallest_subnormal, 0
        ordinary = rms_norm(x, scale, epsilon=0.0)
        x[5], x[40, 0], x[41, -1], x[66] = 0, np.inf, np.nan, np.finfo(np.float16).smallest_subnormal
        x[69] = np.ldexp(np.float32(1), 100 if dtype != "float16" else 15)
        together = rms_norm(x, scale, epsilon=0.0)
        for row in range(len(x)):
            alone = rms_norm(x[row : row + 1], scale, epsilon=0.0)
            assert bytes_of(together[row]) == bytes_of(alone[0]), (n, row)
            is_ordinary = row not in (5, 40, 41, 66, 69)
            assert not is_ordinary or bytes_of(together[row]) == bytes_of(ordinary[row]), (n, row)


@pytest.mark.parametrize("width", [4096, 2056, 128])
@pytest.mark.parametrize(
    ("dtype", "mebibytes_of_x_and_out"),
    [("float32", 38), ("float16", 38), ("bfloat16", 38), ("bfloat16", 24)],
)
def test_large_results_are_the_same_with_every_kind_of_store(dtype, mebibytes_of_x_and_out, width, guarded):
    """Stores past the caches and into prefetched lines, by one thread or two, give the bits of calls on a few
    rows. Some rows have squares beyond float32, or zeros if x is float16."""
    rng = np.random.default_rng(0)
    rows = mebibytes_of_x_and_out * 2**20 // (2 * width * np.dtype(NUMPY_DTYPES[dtype]).itemsize)
    x = rng.standard_normal((rows, width), np.float32).astype(NUMPY_DTYPES[dtype])
    x[[0, 1, 700, rows - 1]] *= np.asarray(1e25 if dtype != "float16" else 0, x.dtype)
    scale = rng.standard_normal(width).astype(x.dtype)
    expected = np.concatenate([rms_norm(x[k : k + 100], scale) for k in range(0, rows, 100)])
    threads = torch.get_num_threads()
    try:
        for count, layout in ((1, "contiguous"), (2, "contiguous"), (2, "gaps")):
            torch.set_num_threads(count)
            out = guarded.empty(x.shape, x.dtype, strides_of(layout, x.shape))
            rms_norm(x, scale, out=out)
            assert bytes_of(out) == bytes_of(expected), (count, layout)
    finally:
        torch.set_num_threads(threads)


def test_the_number_of_threads_changes_no_bit():
    x, scale = torch.randn(500, 1001), torch.randn(1001)
    threads, results = torch.get_num_threads(), []
    try:
        for count in (1, 2, 3):
            torch.set_num_threads(count)
            results.append(rms_norm(x, scale))
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(results[0], results[1])
    assert torch.equal(results[0], results[2])


@pytest.mark.parametrize("isa", SUPPORTED)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_a_product_in_float64_is_rounded_once(dtype, isa, force_isa):
    """Some products are so near to a tie that rounding to float32 first would give another result."""
    force_isa(isa)
    rng = np.random.default_rng(0)
    x, scale = rng.standard_normal((8192, 128)), np.ones(128)
    products = rms_norm(x, scale, stash_type=11)
    rounded = rms_norm(x, scale.astype(NUMPY_DTYPES[dtype]), stash_type=11)
    if dtype == "float16":
        expected = products.astype(np.float16)
    else:
        bits = 45  # of float64's fraction that bfloat16 does not have
        is_odd = products.view(np.int64) >> bits & 1
        up = products.view(np.int64) + 2 ** (bits - 1) - 1 + is_odd
        expected = (up >> bits << bits).view(np.float64).astype(NUMPY_DTYPES[dtype])
    assert bytes_of(rounded) == bytes_of(expected)
    assert bytes_of(rounded) != bytes_of(products.astype(np.float32).astype(NUMPY_DTYPES[dtype]))


@pytest.mark.parametrize("isa", SUPPORTED)
def test_the_last_bit_of_a_float64_decides_a_tie(isa, force_isa):
    """1 + 2^-11 is a tie of float16. With another 2^-52, the first element becomes 1 + 2^-10, not 1."""
    force_isa(isa)
    x = np.array([[1 + 2.0**-11 + 2.0**-52, 1.0]])
    for backend in ("reference", "cpu"):
        y = rms_norm(x, np.float64(1), epsilon=0.0, stash_type=10, backend=backend)
        assert y[0, 1] == 1 - 2.0**-11


# ---- numbers -------------------------------------------------------------------------------------------


def near_largest(dtype):
    return {"float32": 3.4e38, "float16": 65504.0, "bfloat16": 3.38e38, "float64": 1.79e308}[dtype]


def smallest(dtype):
    return {"float32": 2.0**-149, "float16": 2.0**-24, "bfloat16": 2.0**-133, "float64": 2.0**-1074}[dtype]


@pytest.mark.parametrize("stash_type", [1, 11])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("epsilon", [0.0, 1e-5])
def test_rows_of_the_largest_and_smallest_numbers_are_normalized(
    dtype, stash_type, epsilon, backend, guarded
):
    rng = np.random.default_rng(0)
    peaks = np.array(
        [near_largest(dtype), near_largest(dtype) / 1e3, smallest(dtype), 9 * smallest(dtype), 1e-19, 1e19]
    )
    if dtype == "float64" and stash_type == 1:
        peaks = np.array(
            [3.4e38, 1e30, 2.0**-149, 1e-40, 1e-300, 1.0]
        )  # the cast of larger numbers is infinite
    x = (
        rng.uniform(0.5, 1, (6, 70))
        * np.minimum(peaks, near_largest(dtype))[:, None]
        * rng.choice([-1, 1], (6, 70))
    )
    call = NormSetup(dtype, shape=(6, 70), stash_type=stash_type, epsilon=epsilon)
    y = run_and_judge(call, backend, guarded, x=x)
    if y is None:
        return
    y = np.asarray(y).astype(np.float64)
    assert np.all(np.isfinite(y[:2]))
    assert np.all(np.abs(y[:2]).max(-1) > 0.1)


def test_float32_rows_whose_squares_overflow_float32_are_normalized(backend):
    """The specification's result is finite. The squares are infinite in float32, so that float32 operations,
    such as torch's, give zeros."""
    x = np.full((2, 8), [[1e30], [-3e38]], np.float32)
    y = rms_norm(x, np.float32(1), backend=backend)
    assert np.allclose(y, np.sign(x), rtol=1e-6, atol=0)


@pytest.mark.parametrize("n", [128, 1024, 16384, pytest.param(1_000_003, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("dtype", "stash_type"), [("float32", 1), ("bfloat16", 1), ("float64", 11)])
def test_small_numbers_in_a_row_with_a_huge_one_keep_their_bits(dtype, stash_type, n, backend, guarded):
    """A row whose squares overflow is rescaled. No number with a normal result may become subnormal there."""
    rng = np.random.default_rng(0)
    top, far = (1000, 1016) if dtype == "float64" else (120, 120)
    x = rng.uniform(1, 2, (3, n)) * 2.0 ** (top - far - rng.integers(-3, 13, (3, n)))
    x[:, 0] = 2.0 ** np.array([top, top - 20, top - 40])
    x[1:] *= 2.0**-10
    run_and_judge(NormSetup(dtype, shape=(3, n), stash_type=stash_type), backend, guarded, x=x)


def test_float16_squares_never_overflow(backend):
    x = np.full((1, 5000), 65504, np.float16)
    assert np.all(rms_norm(x, np.float16(1), backend=backend) == 1)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [1, 40, 1000])
def test_rows_of_zeros_give_zeros_or_nans(dtype, n, backend, guarded):
    """Rows of zeros give zeros with epsilon and NaNs without."""
    x = np.zeros((3, n))
    x[1] = 2
    y = run_and_judge(NormSetup(dtype, shape=(3, n)), backend, guarded, x=x)
    if y is None:
        return
    assert np.all(y[[0, 2]] == 0)
    y = run_and_judge(NormSetup(dtype, shape=(3, n), epsilon=0.0), backend, guarded, x=x)
    assert np.all(np.isnan(y[[0, 2]].astype(np.float64)))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("stash_type", [1, 10, 11, 16])
def test_infinities_and_nans_stay_in_their_rows(dtype, stash_type, backend, guarded):
    x = np.random.default_rng(0).standard_normal((4, 37))
    x[1, 3], x[2, 5] = np.inf, np.nan
    y = run_and_judge(NormSetup(dtype, shape=(4, 37), stash_type=stash_type), backend, guarded, x=x)
    if y is None:
        return
    y = y.astype(np.float64)
    assert np.isnan(y[1, 3])
    assert np.all(np.delete(y[1], 3) == 0)
    assert np.all(np.isnan(y[2]))
    assert np.all(np.isfinite(y[[0, 3]]))


@on_hosts
def test_numbers_beyond_the_stash_type_become_infinite(backend):
    """x is cast first: 1e300 is infinite in float32, 70000 in float16."""
    for x, stash_type in ((1e300, 1), (70000.0, 10)):
        y = rms_norm(np.array([[x, 1.0]]), np.float64(1), stash_type=stash_type, backend=backend)
        assert np.isnan(y[0, 0])
        assert y[0, 1] == 0


def test_nan_payloads_do_not_become_numbers(backend):
    """If all bits of a NaN's mantissa are set, rounding it to bfloat16 must not carry into its sign."""
    x = np.array([[1, 2], [1, 2]], np.float32)
    x.view(np.uint32)[1, 1] = 0x7FFFFFFF
    scale = np.ones(2, NUMPY_DTYPES["bfloat16"])
    y = unless_refused(backend, ["bfloat16"], lambda: rms_norm(x, scale, backend=backend))
    assert y is None or np.all(np.isnan(y[1].astype(np.float32)))


@pytest.mark.parametrize("isa", SUPPORTED)
def test_a_row_of_nans_with_low_bits_stays_one(isa, force_isa):
    force_isa(isa)
    x = np.ones((1, 32), np.float32)
    x.view(np.uint32)[0, 3] = 0x7FFFFFFF
    y = rms_norm(x, np.ones(32, NUMPY_DTYPES["bfloat16"]), backend="cpu")
    assert np.all(np.isnan(y.astype(np.float32)))


@on_hosts
def test_epsilon_is_rounded_to_float32_as_in_onnx(backend):
    x = np.full((1, 1), 1e-9)
    y = rms_norm(x, np.float64(1), epsilon=1e-5, stash_type=11, backend=backend)
    assert abs(y[0, 0] * np.sqrt(1e-18 + float(np.float32(1e-5))) / 1e-9 - 1) < 1e-15
    assert abs(y[0, 0] * np.sqrt(1e-18 + 1e-5) / 1e-9 - 1) > 1e-9


def test_the_normalized_x_is_rounded_to_the_type_of_x(backend):
    """The result is rounded twice. A wider type of the scale shows the first rounding."""
    x = np.random.default_rng(0).standard_normal((1, 999)).astype(np.float16)
    y = rms_norm(x, np.float32(1), backend=backend)
    assert np.array_equal(y, y.astype(np.float16))


@on_hosts
def test_the_scale_may_be_a_list_if_x_is_an_array(backend):
    y = rms_norm(np.float32([[2, 2]]), [1.0, 3.0], epsilon=0, backend=backend)
    assert y.tolist() == [[1, 3]]


@pytest.mark.parametrize("shape", [(3, 4, 17), (1, 3, 4, 17)])
def test_a_scale_may_lack_the_first_normalized_dimension(shape, backend):
    rng = np.random.default_rng(0)
    x, scale = rng.standard_normal((2, 3, 4, 17), np.float32), rng.standard_normal(shape, np.float32)
    repeated = np.broadcast_to(scale, x.shape).copy()
    y = rms_norm(x, scale, axis=0, backend=backend)
    assert bytes_of(y) == bytes_of(rms_norm(x, repeated, axis=0, backend=backend))


def test_a_scale_may_have_any_strides():
    rng = np.random.default_rng(0)
    x, memory = (
        rng.standard_normal((3, 4, 6)).astype(np.float32),
        rng.standard_normal((9, 8)).astype(np.float32),
    )
    for scale in (memory[0, ::-1][:6], memory[:6, 1], memory[:4, ::-1][:, :6], memory.T[:4, :6]):
        axis = -scale.ndim
        expected = rms_norm(x, scale.copy(), axis=axis)
        assert np.array_equal(rms_norm(x, scale, axis=axis), expected)
        if min(scale.strides) > 0:
            assert np.array_equal(rms_norm(to_torch(x), to_torch(scale), axis=axis).numpy(), expected)
