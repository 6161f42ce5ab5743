"""rms_norm_backward against the gradients in long double, and against torch's derivative of the formula."""

from __future__ import annotations

import platform
from dataclasses import replace

import numpy as np
import pytest
import torch
from guarded_memory import GuardedMemory
from hypothesis import given, settings
from hypothesis import strategies as st
from instruction_sets import SUPPORTED
from norm_cases import (
    NUMPY_DTYPES,
    NormSetup,
    bytes_of,
    judge_gradients,
    make_inputs,
    on_hosts,
    possible,
    spec_call,
    strides_of,
    to_torch,
)
from pairwise import pairwise
from together import together

from npu_rope import native, rms_norm, rms_norm_backward
from npu_rope.ops.rms_norm import differentiable_backward
from npu_rope.rms_norm_calls import RmsNormAttributes
from npu_rope.testing import norm_spec
from npu_rope.testing.bounds import worst_ratio

DTYPES = tuple(NUMPY_DTYPES)
FACTORS = {
    "dtype": DTYPES,
    "scale_dtype": ("own", *DTYPES),
    "framework": ("numpy", "torch"),
    "shape": ((3, 5, 40), (33,), (70, 130), (2, 3, 4, 17), (2, 3, 2, 2, 9), (0, 4), (4, 0), (1, 1)),
    "axis": (-1, -2, 0),
    "scale": ("normalized", "last", "one", "own", "tokens", "inner-one"),
    "epsilon": (1e-5, 0.0, 1.0),
    "stash_type": (1, 10, 11, 16),
    "layout": ("contiguous", "gaps", "non-unit", "reversed", "transposed"),
}


def is_valid(call):
    return -len(call.shape) <= call.axis and possible(call)


def for_each_valid(setups):
    return together("call", [c for c in setups if is_valid(c)], share=True)


BASES = [
    NormSetup(),
    NormSetup("bfloat16", "float32", framework="torch", shape=(70, 130)),
    NormSetup("float64", stash_type=11),
]
ONE_FACTOR = [
    replace(base, **{name: value}) for base in BASES for name, values in FACTORS.items() for value in values
]


@for_each_valid(dict.fromkeys(ONE_FACTOR))
def test_one_factor_changed_meets_the_bound(call, backend, guarded):
    judge_gradients(call, backend, guarded)


@for_each_valid(pairwise(FACTORS, NormSetup, is_valid))
def test_every_pair_of_factors_meets_the_bound(call, backend, guarded):
    judge_gradients(call, backend, guarded)


@settings(max_examples=20)
@given(
    call=st.builds(NormSetup, **{name: st.sampled_from(values) for name, values in FACTORS.items()}),
    n=st.integers(1, 200),
    seed=st.integers(0, 2**16),
)
def test_any_call_meets_the_bound(call, n, seed, backend):
    call = replace(call, shape=(*call.shape[:-1], n))
    call = call if is_valid(call) else replace(call, axis=-1, layout="gaps")
    judge_gradients(call, backend, GuardedMemory(), seed)


@pytest.mark.parametrize("isa", SUPPORTED)
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_instruction_set_meets_the_bound(isa, dtype, force_isa, guarded):
    force_isa(isa)
    for n in (1, 31, 33, 511, 512, 513, 1025):
        judge_gradients(
            NormSetup(dtype, shape=(6, n), stash_type=11 if dtype == "float64" else 1), "cpu", guarded
        )


@pytest.mark.parametrize("isa", SUPPORTED)
@pytest.mark.parametrize("stash_type", [1, 16])
@pytest.mark.parametrize("dtype", DTYPES)
def test_the_bits_of_dx_depend_only_on_its_row(dtype, stash_type, isa, library, force_isa):
    """They are the same on every instruction set, beside other rows, and without the scale's gradient. Some
    calls have more rows than a block, and an incomplete last block."""
    for n, rows in ((1, 6), (31, 37), (33, 6), (128, 37), (513, 23)):
        inputs = make_inputs(NormSetup(dtype, shape=(rows, n)), GuardedMemory())
        attributes = RmsNormAttributes(-1, 1e-5, stash_type)

        def run(rows, inputs=inputs, attributes=attributes, needs_dscale=True):
            results = np.empty_like(inputs.x[rows]), np.empty_like(inputs.scale)
            sources = [native.describe(a) for a in (inputs.grad[rows], inputs.x[rows], inputs.scale)]
            outs = [native.describe(results[0]), native.describe(results[1]) if needs_dscale else None]
            library.call("rms_norm_backward", sources, attributes, outs)
            return [result.tobytes() for result in results]

        library.force_isa("neon" if platform.machine() == "aarch64" else "baseline")
        expected = run(slice(0, rows))
        force_isa(isa)
        assert run(slice(0, rows)) == expected
        assert run(slice(0, rows), needs_dscale=False)[0] == expected[0]
        assert b"".join(run(slice(k, k + 1))[0] for k in range(rows)) == expected[0]


@pytest.mark.parametrize("isa", SUPPORTED)
@pytest.mark.parametrize("n", [3, 33, 128, 513, 1025])  # 3: its sums are in double
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_rows_that_do_not_fit_float32_beside_usual_ones(dtype, n, isa, library, force_isa):
    """They are computed in double. Their bits and those of the other rows are those of calls on one row."""
    force_isa(isa)
    rng, wide = np.random.default_rng(0), NUMPY_DTYPES[dtype]
    x, grad = rng.uniform(0.5, 1, (37, n)), rng.standard_normal((37, n))
    x[:: 1 if n == 513 else 3] *= 2.0**-14  # 513: all rows of a block
    x[2::11] *= 2.0**-9.5  # near the limit of the inverse
    if dtype == "bfloat16":
        x[::7] *= 2.0**66
        x[::7, 0] *= 2.0**26  # its gradient is a small difference of two terms
        grad[2::5] *= 2.0**70
        x[4::9] *= 2.0**-70
        grad[4::9] *= 2.0**-75  # products with x lose bits in float32
    x, grad, scale = (a.astype(wide) for a in (x, grad, rng.uniform(-2, 2, n)))
    call = norm_spec.NormCall(x.astype(float), scale.astype(float), dtype, dtype, -1, 0.0, 1)

    def run(rows):
        results = np.empty_like(x[rows]), np.empty_like(scale)
        sources = [native.describe(a) for a in (grad[rows], x[rows], scale)]
        library.call(
            "rms_norm_backward", sources, RmsNormAttributes(-1, 0.0, 1), list(map(native.describe, results))
        )
        return results

    expected = norm_spec.rms_norm_backward(call, grad.astype(float))
    results = run(slice(0, 37))
    for ours, (value, bound) in zip(results, expected, strict=True):
        assert worst_ratio(ours.astype(float), value, bound)[0] <= 1
    alone = [run(slice(k, k + 1))[0] for k in range(37)]
    assert b"".join(bytes_of(row) for row in alone) == bytes_of(results[0])
    x[5, 1], grad[8, 2] = np.nan, np.inf  # they change no other row
    changed = run(slice(0, 37))[0]
    assert np.isnan(changed[5].astype(float)).all()
    kept = [k for k in range(37) if k not in (5, 8)]
    assert bytes_of(changed[kept]) == bytes_of(results[0][kept])


@pytest.mark.parametrize("isa", SUPPORTED)
@pytest.mark.parametrize("row", [0, 3, 7])
def test_one_row_that_does_not_fit_float32(row, isa, force_isa):
    """It is the only one of its block. The bits of dx are those of calls on one row."""
    force_isa(isa)
    rng = np.random.default_rng(row)
    x, grad = (rng.uniform(0.5, 1, (8, 128)).astype(np.float16) for _ in range(2))
    scale = np.ones(128, np.float16)
    x[row] *= np.float16(2.0**-14)
    dx, _ = rms_norm_backward(grad, x, scale, epsilon=0, backend="cpu")
    alone = [
        rms_norm_backward(grad[k : k + 1], x[k : k + 1], scale, epsilon=0, backend="cpu")[0] for k in range(8)
    ]
    assert bytes_of(dx) == b"".join(map(bytes_of, alone))


@pytest.mark.parametrize("n", [3, 16, 19, 33])
@pytest.mark.parametrize("isa", SUPPORTED)
def test_a_product_with_the_scale_beyond_float32_where_x_is_0(n, isa, force_isa):
    force_isa(isa)
    x, grad, scale = np.full((1, n), 2.0**40), np.ones((1, n)), np.ones(n)
    x[0, -1], grad[0, -1], scale[-1] = 0, 2.0**100, 2.0**30
    arrays = [a.astype(NUMPY_DTYPES["bfloat16"]) for a in (grad, x, scale)]
    dx, _ = rms_norm_backward(*arrays, epsilon=0, backend="cpu")
    expected, _ = rms_norm_backward(grad, x, scale, epsilon=0, stash_type=11)
    np.testing.assert_allclose(dx.astype(float), expected, rtol=2.0**-7, atol=2.0**-60)


def test_the_bits_of_dscale_depend_on_no_instruction_set(library):
    """The sum of these terms depends on the order, in vectors and behind them, also beside an overflow."""
    bf16 = NUMPY_DTYPES["bfloat16"]
    for n in (16, 20, 24, 31, 40):
        for overflows in (False, True):
            x, grad, results = np.ones((5, n)), np.ones((5, n)), set()
            grad[:] = np.array([[1], [2.0**-8], [2.0**-40], [0], [0]])
            if overflows:
                grad[:4, 0], x[:, 0] = [2.0**127, 2.0**127, -(2.0**127), -(2.0**127)], 4
            scale = np.where(np.arange(n) == 0, 0, 1)
            arrays = [a.astype(bf16) for a in (grad, x, scale)]
            for isa in SUPPORTED:
                library.force_isa(isa)
                results.add(bytes_of(rms_norm_backward(*arrays, epsilon=0, backend="cpu")[1]))
            library.force_isa(None)
            assert len(results) == 1, (n, overflows)


@pytest.mark.parametrize("isa", SUPPORTED)
def test_a_mean_of_products_beyond_float32_times_normalized(isa, force_isa):
    """N times the mean of g N is larger than float32's largest number, and dx is not."""
    force_isa(isa)
    x, grad = np.full((1, 1 << 20), 16.0), np.full((1, 1 << 20), 1.5 * 2.0**119)
    x[0, 0], grad[0, 0] = 12_800, 0
    arrays = (grad, x, np.ones(1 << 20))
    dx, _ = rms_norm_backward(*(a.astype(NUMPY_DTYPES["bfloat16"]) for a in arrays), epsilon=0, backend="cpu")
    expected, _ = rms_norm_backward(*arrays, epsilon=0, stash_type=11)
    np.testing.assert_allclose(dx.astype(float), expected, rtol=2.0**-7)


@pytest.mark.parametrize("isa", SUPPORTED)
def test_terms_of_dscale_beyond_float32_cancel(isa, force_isa):
    """Their sum over four rows, and a term itself, are larger than float32's largest number."""
    force_isa(isa)
    bf16 = NUMPY_DTYPES["bfloat16"]
    x, scale = np.ones((5, 40), bf16), np.ones(40, bf16)
    x[:, 3], scale[3] = 4, 0
    grad = np.full((5, 40), 2.0**-10, bf16)
    grad[:, 3] = np.array([2.0**127, 2.0**127, -(2.0**127), -(2.0**127), 2.0**10]).astype(bf16)
    dx, dscale = rms_norm_backward(grad, x, scale, epsilon=0, backend="cpu")
    expected = rms_norm_backward(*(a.astype(np.float64) for a in (grad, x, scale)), epsilon=0, stash_type=11)
    assert np.isfinite(dscale.astype(float)).all()
    np.testing.assert_allclose(dscale.astype(float), expected[1], rtol=2.0**-6)
    np.testing.assert_allclose(dx.astype(float), expected[0], rtol=2.0**-6, atol=2.0**-20)


@pytest.mark.parametrize("isa", ["avx2", None])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_large_gradients_are_the_same_with_every_kind_of_store(dtype, isa, library, force_isa, guarded):
    """Stores past the caches and into prefetched lines, by one thread or two, give the bits of calls on a few
    rows."""
    force_isa(isa)
    rng = np.random.default_rng(0)
    width = 1032 if dtype == "float32" else 128  # 1032: the last vector of AVX-512 is incomplete
    rows = 33 * 2**20 // (3 * width * np.dtype(NUMPY_DTYPES[dtype]).itemsize)
    x = rng.standard_normal((rows, width), np.float32).astype(NUMPY_DTYPES[dtype])
    grad, scale = np.roll(x, 1), x[7].copy()

    def run(grad, x, dx, needs_dscale=False):
        dscale = np.empty_like(scale)
        read = [native.describe(a) for a in (grad, x, scale)]
        written = [native.describe(dx), native.describe(dscale) if needs_dscale else None]
        library.call("rms_norm_backward", read, RmsNormAttributes(-1, 1e-5, 1), written)
        return dscale.tobytes() if needs_dscale else b""

    expected = np.empty_like(x)
    for k in range(0, rows, 100):
        part = slice(k, k + 100)
        run(grad[part], x[part], expected[part])
    threads, dscales = torch.get_num_threads(), set()
    try:
        for count, layout in ((1, "contiguous"), (2, "contiguous"), (2, "gaps")):
            torch.set_num_threads(count)
            for needs_dscale in (False, True):
                dx = guarded.empty(x.shape, x.dtype, strides_of(layout, x.shape))
                dscales.add(run(grad, x, dx, needs_dscale))
                assert bytes_of(dx) == bytes_of(expected), (count, layout, needs_dscale)
    finally:
        torch.set_num_threads(threads)
    assert len(dscales - {b""}) == 1


@pytest.mark.parametrize("scale", ["normalized", "one", "tokens", "second"])
def test_a_scale_shared_by_many_rows_meets_the_bound(scale, backend, guarded):
    shape = (8, 5, 60, 33) if scale == "second" else (40, 60, 33)
    judge_gradients(NormSetup(shape=shape, scale=scale), backend, guarded)


def test_a_scale_shared_inside_rows_of_four_dimensions_meets_the_bound(backend, guarded):
    judge_gradients(NormSetup(shape=(3, 2, 4, 17), axis=0, scale="inner-one"), backend, guarded)


@pytest.mark.parametrize("peak", [1e30, 1e-30, 2.0**-149])
def test_rows_of_very_large_and_small_numbers_meet_the_bound(peak, backend, guarded):
    x = np.random.default_rng(0).uniform(0.5, 1, (3, 40)) * peak
    judge_gradients(NormSetup(shape=(3, 40)), backend, guarded, x=x)
    judge_gradients(NormSetup("float64", shape=(3, 40), stash_type=11, epsilon=0.0), backend, guarded, x=x**8)


# Lengths around those of vectors and DMA blocks; rows in UB and rows in chunks; dscale's sums in UB and
# outside it.
@together("n", [1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 33, 63, 65, 129, 4096, 5000, 16_384, 100_003])
@pytest.mark.parametrize("scale_dtype", ["float32", "float16"])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_rows_of_any_length_meet_the_bound(dtype, scale_dtype, n, backend, guarded):
    judge_gradients(NormSetup(dtype, scale_dtype, shape=(5 if n < 9999 else 2, n)), backend, guarded)


@pytest.mark.long
# Squares beyond float32's range, in complete rows and in chunks.
@together("n", [40, 20_000])
@together("epsilon", [0.0, 1e-5])
@together("peak", [3e38, 1e30, 1e-30, 1e-38, 2.0**-149, 0.0])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_rows_at_the_ends_of_float32s_range_meet_the_bound(dtype, peak, epsilon, n, backend, guarded):
    x = np.random.default_rng(0).uniform(0.5, 1, (3, n)) * np.array([[peak], [1], [peak]])
    judge_gradients(NormSetup(dtype, shape=(3, n), epsilon=epsilon), backend, guarded, x=x)


@pytest.mark.parametrize("scale", ["normalized", "one", "tokens", "own"])
def test_the_number_of_threads_changes_no_bit(scale):
    """The shape alone determines the groups in which the scale's gradient is summed."""
    inputs = make_inputs(NormSetup(shape=(50, 40, 301), scale=scale), GuardedMemory())
    tensors = [to_torch(np.array(a)) for a in (inputs.grad, inputs.x, inputs.scale)]
    threads, results = torch.get_num_threads(), []
    try:
        for count in (1, 2, 3):
            torch.set_num_threads(count)
            results.append(rms_norm_backward(*tensors))
    finally:
        torch.set_num_threads(threads)
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))


def test_a_scale_without_rows_has_a_gradient_of_zeros(backend):
    for shape, scale in (((0, 4), (4,)), ((4, 0), (4, 1)), ((4, 0), ())):
        x = np.zeros(shape, np.float32)
        dx, dscale = rms_norm_backward(x, x, np.ones(scale, np.float32), backend=backend)
        assert dx.shape == shape
        assert np.array_equal(dscale, np.zeros(scale))


# ---- torch ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", ["normalized", "last", "one", "own", "tokens", "inner-one"])
@pytest.mark.parametrize(("shape", "axis"), [((3, 4), -1), ((2, 3, 4), 1), ((2, 1, 2, 2, 3), 3)])
def test_gradients_have_gradients(shape, axis, scale):
    call = NormSetup("float64", shape=shape, axis=axis, scale=scale, stash_type=11, epsilon=0.25)
    inputs = make_inputs(call, GuardedMemory(), x=np.random.default_rng(0).standard_normal(shape))
    given = [to_torch(np.array(a)).requires_grad_() for a in (inputs.x, inputs.scale)]

    def run(x, scale):
        return rms_norm(x, scale, **call.attributes)

    assert torch.autograd.gradcheck(run, given)
    assert torch.autograd.gradgradcheck(run, given)


@pytest.mark.parametrize("stash_type", [1, 10, 11, 16])
@pytest.mark.parametrize("dtype", DTYPES)
def test_torchs_operations_agree_with_the_kernel(dtype, stash_type):
    """torch's operations replace the kernel where a second gradient is needed."""
    call = NormSetup(dtype, shape=(5, 40), stash_type=stash_type)
    inputs = make_inputs(call, GuardedMemory(), x=np.random.default_rng(0).standard_normal((5, 40)))
    tensors = [to_torch(np.array(a)) for a in (inputs.grad, inputs.x, inputs.scale)]
    by_torch = differentiable_backward(*tensors, RmsNormAttributes(**call.attributes))
    kernel = rms_norm_backward(*tensors, **call.attributes)
    for a, b in zip(by_torch, kernel, strict=True):
        assert a.dtype == b.dtype
        torch.testing.assert_close(a.double(), b.double(), rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("needs", [(True, False), (False, True), (True, True)])
def test_x_or_scale_or_both_may_need_a_gradient(needs):
    x, scale, grad = torch.randn(4, 6), torch.randn(6), torch.randn(4, 6)
    x.requires_grad_(needs[0])
    scale.requires_grad_(needs[1])
    rms_norm(x, scale).backward(grad)
    expected = rms_norm_backward(grad, x.detach(), scale.detach())
    for t, need, wanted in zip((x, scale), needs, expected, strict=True):
        assert (t.grad is not None) == need
        assert not need or torch.equal(t.grad, wanted)


def test_gradients_flow_through_a_result_in_given_memory():
    grads = []
    for in_place in (False, True):
        leaf, scale = torch.linspace(-1, 1, 12).view(3, 4).requires_grad_(), torch.ones(4, requires_grad=True)
        x = leaf * 2
        y = rms_norm(x, scale, out=x if in_place else torch.empty(3, 4))
        y.pow(3).sum().backward()
        grads.append((leaf.grad, scale.grad))
    assert all(torch.equal(a, b) for a, b in zip(*grads, strict=True))


@pytest.mark.parametrize(("backend", "units"), [("cpu", 2), ("sim", 200), ("sim:ascend950", 220)])
def test_the_judge_rejects_slightly_wrong_gradients(backend, units):
    call = NormSetup(shape=(6, 40))
    inputs = make_inputs(call, GuardedMemory())
    grad = inputs.grad.astype(np.float64)
    expected = norm_spec.rms_norm_backward(spec_call(call, inputs), grad, backend)
    for value, bound in expected:
        y = value.astype(np.float32)
        assert worst_ratio(y, value, bound)[0] <= 1
        wrong = y + units * np.spacing(np.abs(y))
        assert worst_ratio(wrong, value, bound)[0] > 1
        assert worst_ratio(-y, value, bound)[0] > 1


def judge_rescaled(backend, dtype, stash_type, n, size, grad_size, epsilon):
    """Require gradients within their bounds for an x and a gradient of y of these magnitudes."""
    rng = np.random.default_rng(0)
    x = (rng.uniform(1, 2, (2, n)) * size).astype(dtype)
    grad, scale = (rng.standard_normal((2, n)) * grad_size).astype(dtype), np.ones(n, dtype)
    call = norm_spec.NormCall(x.astype(float), scale.astype(float), dtype, dtype, -1, epsilon, stash_type)
    expected = norm_spec.rms_norm_backward(call, grad.astype(float), backend)
    results = rms_norm_backward(grad, x, scale, epsilon=epsilon, stash_type=stash_type, backend=backend)
    for ours, (value, bound) in zip(results, expected, strict=True):
        assert worst_ratio(ours.astype(float), value, bound)[0] <= 1


@pytest.mark.parametrize("n", [64, 20_000])
@pytest.mark.parametrize(
    ("size", "grad_size", "epsilon"), [(1e-30, 1e-36, 0.0), (1e-22, 1e-34, 1e-42), (1e25, 1e30, 1e-6)]
)
def test_gradients_of_rescaled_rows_meet_the_bound(size, grad_size, epsilon, n, backend):
    """Inputs and results are in float32's range; intermediate values must not leave it."""
    judge_rescaled(backend, "float32", 1, n, size, grad_size, epsilon)


@on_hosts
@pytest.mark.parametrize(("size", "grad_size"), [(1e-160, 2e-307), (1e-200, 1e-306), (1e200, 1e100)])
def test_gradients_of_rescaled_float64_rows_meet_the_bound(size, grad_size, backend):
    judge_rescaled(backend, "float64", 11, 64, size, grad_size, 0.0)


@pytest.mark.parametrize("n", [4000, 20_000])
@pytest.mark.parametrize(("dtype", "stash_type", "top"), [("float32", 1, 120), ("float64", 11, 1000)])
def test_gradients_of_small_numbers_in_a_row_with_a_huge_one_meet_the_bound(
    dtype, stash_type, top, n, backend, guarded
):
    """The scale's gradient keeps the bits of numbers that are subnormal in the rescaled row."""
    smallest = -126 if dtype == "float32" else -1022
    x = np.random.default_rng(0).uniform(1, 2, (1, n)) * 2.0 ** (top + smallest + 1) / n**0.5
    x[0, n // 2] = 2.0**top
    call = NormSetup(dtype, shape=(1, n), scale="last", stash_type=stash_type, epsilon=0.0)
    judge_gradients(call, backend, guarded, x=x)


@on_hosts
def test_a_tiny_gradient_of_a_tiny_row_keeps_its_bits(backend):
    """The row is scaled. Its gradient is proportional to the gradient of y, down to the smallest numbers."""
    x, scale, grad = np.full((1, 2), 3e-200), np.ones(2), np.array([[1.5, 1.0]])
    dx, tiny = (
        rms_norm_backward(grad * factor, x, scale, epsilon=0.0, stash_type=11, backend=backend)[0]
        for factor in (1, 2.0**-1018)
    )
    assert dx.any()
    assert np.array_equal(tiny, dx * 2.0**-1018)


@pytest.mark.parametrize("scale", [np.float32(3), np.ones(1, np.float32)], ids=["scalar", "one element"])
def test_no_rows_need_no_memory_for_a_row(scale):
    x = np.empty((0, 2**50), np.float32)
    dx, dscale = rms_norm_backward(x, x, np.asarray(scale), backend="cpu")
    assert dx.shape == x.shape
    np.testing.assert_array_equal(dscale, np.zeros_like(scale))
