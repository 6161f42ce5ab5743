"""rms_norm_rope compared with its specification in long double: modes, windows, types, layouts, caches, both
roundings, and numbers at the ends of the types' ranges. With intermediate rounding, the bits are those of
rms_norm followed by rope_qk.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from guarded_memory import GuardedMemory, before_inaccessible_memory
from hypothesis import given, settings
from hypothesis import strategies as st
from instruction_sets import SUPPORTED
from norm_cases import NUMPY_DTYPES, bytes_of, on_hosts, unless_refused
from norm_rope_cases import (
    FACTORS,
    NormRopeSetup,
    expectations,
    make_inputs,
    parts_of,
    possible,
    replace,
    run_and_judge,
    run_call,
)
from pairwise import pairwise
from rope_cases import refusal
from together import together

from npu_rope import RopeParams, rms_norm, rms_norm_rope, rope_qk, rope_set_rows
from npu_rope.reference import rope as rope_reference
from npu_rope.testing.bounds import is_device
from npu_rope.testing.chip_types import lacks_type

DTYPES = tuple(FACTORS["dtype"])
ROUNDINGS = (False, True)


def for_each_valid(setups):
    return together("call", [c for c in dict.fromkeys(setups) if possible(c)], share=True)


BASES = [
    NormRopeSetup(),
    NormRopeSetup("bfloat16", mode="normal", framework="torch", window="middle"),
    NormRopeSetup("float16", rounding=True, layout="gaps", out="cache"),
]
ONE_FACTOR = [
    replace(base, **{name: value}) for base in BASES for name, values in FACTORS.items() for value in values
]


@for_each_valid(ONE_FACTOR)
def test_one_factor_changed_meets_the_bound(call, backend, guarded):
    run_and_judge(call, backend, guarded)


@for_each_valid(pairwise(FACTORS, NormRopeSetup, possible))
def test_every_pair_of_factors_meets_the_bound(call, backend, guarded):
    run_and_judge(call, backend, guarded)


ANY_CALL = st.builds(NormRopeSetup, **{name: st.sampled_from(values) for name, values in FACTORS.items()})
ANY_SIZES = st.tuples(st.integers(0, 2), st.integers(0, 70), st.integers(1, 19), st.integers(2, 140))


@settings(max_examples=60)
@given(call=ANY_CALL, sizes=ANY_SIZES, seed=st.integers(0, 2**16))
def test_any_call_meets_the_bound(call, sizes, seed, backend):
    call = replace(call, sizes=sizes)
    run_and_judge(call if possible(call) else replace(call, mode="neox", layout="gaps", out="new"), backend,
                  GuardedMemory(), seed)  # fmt: skip


# ---- sizes ---------------------------------------------------------------------------------------------

SIZES = (2, 6, 8, 14, 16, 30, 32, 34, 48, 62, 64, 66, 80, 96, 126, 128, 130, 192, 256, 514)


@pytest.mark.parametrize("isa", SUPPORTED)
@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("mode", ["neox", "normal"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_instruction_set_meets_the_bound(isa, dtype, mode, rounding, force_isa, guarded):
    force_isa(isa)
    for i, head in enumerate(SIZES):
        # Two of the four combinations of mode and rounding rotate the full head, two a part of it.
        window = "middle" if (i + (mode == "neox") + (rounding == ROUNDINGS[0])) % 2 else "full"
        run_and_judge(
            NormRopeSetup(dtype, rounding, mode, sizes=(1, 3, 2, head), window=window), "cpu", guarded
        )


def test_heads_longer_than_a_block_of_squares_meet_the_bound(guarded):
    for dtype in DTYPES:
        run_and_judge(NormRopeSetup(dtype, sizes=(1, 2, 2, 4500), window="front"), "cpu", guarded)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("sizes", [(0, 5, 3, 8), (2, 0, 3, 8), (1, 1, 0, 8)])
def test_empty_tensors_give_empty_results(sizes, dtype, backend, guarded):
    run_and_judge(NormRopeSetup(dtype, sizes=sizes, keys=0), backend, guarded)
    run_and_judge(NormRopeSetup(dtype, sizes=sizes, out="cache"), backend, guarded)


# ---- the separate operators ----------------------------------------------------------------------------


@settings(max_examples=80)
@given(
    call=ANY_CALL,
    sizes=ANY_SIZES,
    angle=st.sampled_from(["exact", "f32", "ggml"]),
    seed=st.integers(0, 2**16),
)
def test_with_intermediate_rounding_the_bits_are_those_of_the_separate_operators(
    call, sizes, angle, seed, backend
):
    call = replace(call, sizes=sizes, rounding=True, framework="numpy", out="new")
    call = call if possible(call) else replace(call, mode="neox", layout="gaps")
    angle = "exact" if is_device(backend) else angle
    inputs = make_inputs(call, GuardedMemory(), seed)
    if refusal(backend, call.dtype, positions=inputs.positions):
        return
    ours, parts = run_call(call, inputs, backend, angle=angle), parts_of(call, inputs, backend, angle=angle)
    assert [bytes_of(y) for y in ours] == [bytes_of(y) for y in parts]


@pytest.mark.parametrize("isa", SUPPORTED)
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_instruction_set_has_the_bits_of_the_separate_operators(isa, dtype, force_isa, guarded):
    force_isa(isa)
    for mode in ("neox", "normal"):
        for head in SIZES:
            call = NormRopeSetup(dtype, True, mode, sizes=(1, 70, 2, head), positions="int64")
            inputs = make_inputs(call, guarded)
            ours, parts = run_call(call, inputs, "cpu"), parts_of(call, inputs, "cpu")
            assert [bytes_of(y) for y in ours] == [bytes_of(y) for y in parts]


@pytest.mark.parametrize("numbers", FACTORS["numbers"])
def test_intermediate_rounding_does_not_change_float32(numbers, guarded):
    call = NormRopeSetup(sizes=(2, 70, 3, 66), mode="normal", window="middle", numbers=numbers)
    inputs = make_inputs(call, guarded)
    rounded_once, rounded_twice = (run_call(replace(call, rounding=r), inputs, "cpu") for r in ROUNDINGS)
    assert [bytes_of(y) for y in rounded_once] == [bytes_of(y) for y in rounded_twice]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_without_intermediate_rounding_16_bit_results_are_more_accurate(dtype, guarded):
    call = NormRopeSetup(dtype, sizes=(2, 70, 3, 128))
    inputs = make_inputs(call, guarded)
    exact = expectations(replace(call, dtype="float64"), inputs, "cpu")[0].value
    error_once, error_twice = (
        np.abs(run_call(replace(call, rounding=r), inputs, "cpu")[0].astype(np.float64) - exact).mean()
        for r in ROUNDINGS
    )
    assert error_once < 0.8 * error_twice


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_cache_gets_the_rows_of_normalized_and_rotated_keys(dtype, backend, guarded):
    call = NormRopeSetup(dtype, True, sizes=(2, 9, 3, 64), out="cache-given", numbers="zeros")
    if lacks_type(backend, [dtype]):
        return
    inputs = make_inputs(call, guarded)
    cache = inputs.outs[1].copy()
    run_call(call, inputs, backend)
    keys = rms_norm(inputs.xs[1], inputs.scales[1], epsilon=call.epsilon, backend=backend)
    written = inputs.rows >= 0
    assert np.any(~written)
    options = {"params": inputs.params, "backend": backend}
    separate = rope_set_rows(keys, inputs.positions, inputs.rows, cache.copy(), **options)
    rotated = rope_qk(keys, keys, inputs.positions, **options)[1]
    cache[inputs.rows[written]] = rotated[written]
    assert bytes_of(inputs.outs[1]) == bytes_of(cache) == bytes_of(separate)


# ---- angles ----------------------------------------------------------------------------------------------


@on_hosts
@pytest.mark.parametrize("angle", ["f32", "ggml"])
@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_other_angle_policies_meet_the_bound(dtype, rounding, angle, backend, guarded):
    """The expectation has the reference's table of that policy; ggml's may differ from it by 2^-22."""
    call = NormRopeSetup(dtype, rounding, sizes=(1, 7, 3, 64))
    inputs = make_inputs(call, guarded)
    table = rope_reference.cos_sin(inputs.positions, inputs.params, policy=angle)
    q, k = run_call(call, inputs, backend, angle=angle)
    for y, e in zip((q, k), expectations(call, inputs, backend, table=table), strict=True):
        assert np.all(np.abs(y.astype(np.float64) - e.value) <= 2 * e.bound)


# ---- threads and large tensors ----------------------------------------------------------------------------


@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_the_number_of_threads_changes_no_bit(dtype, rounding):
    torch_dtype = getattr(torch, dtype)
    q, k = (torch.randn(1, 150, heads, 64).to(torch_dtype) for heads in (32, 3))
    scale, positions, params = torch.randn(64).to(torch_dtype), torch.arange(150), RopeParams(64, "neox")
    threads, results = torch.get_num_threads(), []
    try:
        for count in (1, 2, 3):
            torch.set_num_threads(count)
            given = q, k, scale, scale, positions, params
            results.append(rms_norm_rope(*given, intermediate_rounding=rounding))
    finally:
        torch.set_num_threads(threads)
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))


@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize(("dtype", "tokens"), [("float32", 1100), ("float16", 2200), ("bfloat16", 2200)])
def test_large_results_equal_those_of_small_calls(dtype, tokens, rounding, guarded):
    """The bits equal those of calls on chunks of tokens, which stay in the caches."""
    rng = np.random.default_rng(0)
    shape = (tokens, 31, 128)
    q = rng.standard_normal(shape, np.float32).astype(NUMPY_DTYPES[dtype])
    scale, params = rng.standard_normal(128).astype(q.dtype), RopeParams(64, "neox", n_offs=32)
    positions = np.arange(tokens)

    def run(part, out=None):
        given = q[part], q[part, :1], scale, scale, positions[part], params
        return rms_norm_rope(*given, intermediate_rounding=rounding, out=out)[0]

    expected = np.concatenate([run(slice(at, at + 64)) for at in range(0, tokens, 64)])
    outs = guarded.empty(shape, q.dtype), guarded.empty((tokens, 1, 128), q.dtype)
    assert bytes_of(run(slice(None), outs)) == bytes_of(expected)


@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("isa", SUPPORTED)
@pytest.mark.parametrize("dtype", DTYPES)
def test_heads_are_read_within_their_memory(dtype, isa, rounding, force_isa):
    """Heads around the size of a block of squares, and more heads than a block has."""
    force_isa(isa)
    rng = np.random.default_rng(0)
    params = RopeParams(64, "neox")
    for heads, lanes in ((5, 4096), (5, 4100), (19, 72)):
        q, k = (rng.standard_normal((2, n, lanes)).astype(NUMPY_DTYPES[dtype]) for n in (heads, 1))
        scale, positions = rng.standard_normal(lanes).astype(q.dtype), np.arange(2)
        given = q, k, scale, scale, positions
        within = [before_inaccessible_memory(a) for a in given]
        expected = rms_norm_rope(*given, params, intermediate_rounding=rounding, backend="cpu")
        results = rms_norm_rope(*within, params, intermediate_rounding=rounding, backend="cpu")
        assert [bytes_of(r) for r in results] == [bytes_of(e) for e in expected]


# ---- numbers -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_heads_whose_squares_exceed_float32_are_normalized(dtype, rounding, backend):
    """The formula gives 1 in every lane."""
    largest = {"float16": 65504.0, "float64": 1e38}.get(dtype, 3e38)
    smallest = {"float16": 2.0**-24, "float64": 1e-40}.get(dtype, 2.0**-133)
    q = np.array([largest, smallest, 1e-19 if dtype != "float16" else 1e-7])[:, None, None]
    q = np.broadcast_to(q, (3, 2, 64)).astype(NUMPY_DTYPES[dtype])
    scale = np.ones(64, q.dtype)
    given = q, q, scale, scale, np.zeros(3, np.int64), RopeParams(64)
    options = {"epsilon": 0, "intermediate_rounding": rounding, "backend": backend}
    results = unless_refused(backend, [dtype], lambda: rms_norm_rope(*given, **options))
    if results is None:
        return
    y = results[0]
    assert np.all(np.abs(y.astype(np.float64) - 1) < 1e-6)


@pytest.mark.parametrize("rounding", ROUNDINGS)
def test_the_largest_number_of_a_long_head_is_in_any_block(rounding):
    """A power of two, from the largest number, scales a bfloat16 head whose squares exceed float32."""
    for block in range(3):
        q = np.full((1, 1, 3 * 512), 2.0**-100, NUMPY_DTYPES["bfloat16"])
        q[..., 512 * block : 512 * (block + 1)] = 2.0**70
        scale, options = np.ones(q.shape[-1], q.dtype), {"epsilon": 0, "intermediate_rounding": rounding}
        y, _ = rms_norm_rope(
            q, q, scale, scale, np.zeros(1, np.int64), RopeParams(64), backend="cpu", **options
        )
        expected = np.where(q > 1, 3**0.5, 0)
        assert np.abs(y.astype(np.float64) - expected).max() <= 2.0**-8 * 3**0.5


@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_infinities_and_nans_stay_in_their_heads(dtype, rounding, backend, guarded):
    """A head with a NaN is all NaN; an infinity makes its pair NaN, and the rest 0."""
    call = NormRopeSetup(dtype, rounding, numbers="inf-nan", mode="normal", sizes=(1, 3, 2, 8))
    results = run_and_judge(call, backend, guarded)
    if results is None:
        return
    q, k = (np.asarray(y).astype(np.float64) for y in results)
    assert np.isnan(q[0, 0, 0, :2]).all()
    assert (q[0, 0, 0, 2:] == 0).all()
    assert np.isnan(q[0, 2, 1]).all()
    assert np.isfinite(q[0, 1]).all()
    assert np.isnan(k[0, 2, 1]).all()


def test_far_positions_meet_the_bound(backend, guarded):
    run_and_judge(NormRopeSetup(positions="extreme", sizes=(1, 40, 2, 128)), backend, guarded)
    run_and_judge(NormRopeSetup("bfloat16", positions="extreme", sizes=(1, 40, 2, 128)), backend, guarded)
