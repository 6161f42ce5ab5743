"""qkv_norm_rope_cache on arrays and tensors, against float64 with derived bounds: norms, tables, layouts,
caches, quantization, instruction sets, and numbers at the ends of the types' ranges.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
import torch
from instruction_sets import SUPPORTED
from random_qkv import DTYPES, NUMPY, QkvCase, as_numpy, as_torch, case_of, refused, run, worst

from npu_rope import RopeParams, qkv_norm_rope_cache, rms_norm_rope, rope_qk
from npu_rope.executors import qkv_norm_rope_cache as executors
from npu_rope.testing.bounds import is_device
from npu_rope.testing.chip_types import lacks_type


def judge(case, backend, framework="numpy"):
    if refused(case, backend):
        return
    ratios = worst(case, run(case, backend, framework), backend)
    assert max(ratios.values()) <= 1, (ratios, case)


def skip_if_lacking(backend, dtype):
    if reason := lacks_type(backend, (dtype,)):
        pytest.skip(reason)


@pytest.mark.parametrize("framework", ["numpy", "torch"])
@pytest.mark.parametrize("first_seed", range(0, 200, 25))
def test_random_calls_meet_the_bound(first_seed, framework, backend):
    for seed in range(first_seed, first_seed + 25):
        judge(case_of(seed), backend, framework)


@pytest.mark.parametrize("isa", SUPPORTED)
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_instruction_set_meets_the_bound(isa, dtype, force_isa):
    force_isa(isa)
    for seed in range(40):
        judge(case_of(1000 + seed, dtype=dtype), "cpu")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("exponent", [-900, -120, -60, 60, 120, 900])
def test_numbers_at_the_ends_of_the_range_meet_the_bound(dtype, exponent, backend):
    limits = {"float16": 12, "float32": 120, "bfloat16": 120, "float64": 1000}
    if abs(exponent) > limits[dtype]:
        exponent = int(np.sign(exponent)) * limits[dtype]
    for seed in range(10):
        case = case_of(2000 + seed, dtype=dtype, norm="head" if seed % 2 else "all", writes="new")
        for name, x in case.xs.items():
            case.xs[name] = np.ldexp(x.astype(np.float64), exponent).astype(x.dtype)
        case.named |= {"epsilon": 0.0, "scale_offset": 0.0}
        judge(case, backend)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_numbers_whose_inverse_root_exceeds_float32_meet_the_bound(dtype):
    for seed in range(10):
        case = case_of(2000 + seed, dtype=dtype, norm="head" if seed % 2 else "all", writes="new")
        for name, x in case.xs.items():
            case.xs[name] = np.ldexp(x.astype(np.float64), -132).astype(x.dtype)
        case.named |= {"epsilon": 0.0, "scale_offset": 0.0}
        judge(case, "cpu")


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_a_kernel_skips_a_slot_outside_the_caches(backend, dtype, monkeypatch):
    """As on an NPU, where the host cannot read the slots."""
    if not backend.startswith("sim"):
        pytest.skip("the host reads the slots of an array; tests/npu/scripts/qkv.py has tensors on an NPU")
    check = executors.check
    unread = lambda call, attributes, chip: check(call, attributes, chip, "addresses")  # noqa: E731
    monkeypatch.setattr(executors, "check", unread)
    far = [2**31 - 1, -(2**31), -7]
    slots = np.array([8, *far, 4, -2], dtype)
    qkv, caches = np.ones((6, 3, 32), np.float32), np.zeros((2, 8, 1, 32), np.float32)
    named = {"slots": slots, "k_cache": caches[0], "v_cache": caches[1], "backend": backend}
    qkv_norm_rope_cache(*np.split(qkv, 3, axis=1), np.arange(6), RopeParams(32), **named)
    written = np.flatnonzero(caches[0].any(axis=(1, 2))), np.flatnonzero(caches[1].any(axis=(1, 2)))
    assert [rows.tolist() for rows in written] == [[4], [4]]


def fused_call(dtype="bfloat16", tokens=7):
    """Return a fused tensor and its views q, k and v."""
    fused = np.random.default_rng(3).standard_normal((tokens, 8, 64)).astype(NUMPY[dtype])
    return fused, (fused[:, :4], fused[:, 4:6], fused[:, 6:])


@pytest.mark.parametrize("dtype", DTYPES)
def test_views_of_a_fused_tensor_are_rotated_in_place(dtype, backend):
    skip_if_lacking(backend, dtype)
    fused, (q, k, v) = fused_call(dtype)
    scale = np.linspace(0.5, 2, 64).astype(q.dtype)
    arguments = np.arange(7), RopeParams(64, mode=2)
    named = {"q_scale": scale, "k_scale": scale, "backend": backend}
    expected = qkv_norm_rope_cache(q, k, v, *arguments, **named)
    values = v.copy()
    written = qkv_norm_rope_cache(q, k, v, *arguments, **named, out=(q, k, v))
    assert all(y is x for y, x in zip(written, (q, k, v), strict=True))
    np.testing.assert_array_equal(
        fused[:, :6].view(np.uint8), np.concatenate(expected[:2], axis=1).view(np.uint8)
    )
    np.testing.assert_array_equal(v.astype(np.float64), values.astype(np.float64))


def normed_call(dtype, tokens, heads=(5, 3, 2), D=64, seed=4):
    """Return q, k and v as views of one tensor, and the named arguments of a norm of each head."""
    rng = np.random.default_rng(seed)
    fused = rng.standard_normal((tokens, sum(heads), D)).astype(NUMPY[dtype])
    scale = np.linspace(0.5, 2, D).astype(fused.dtype)
    return np.split(fused, np.cumsum(heads)[:2], axis=1), {"q_scale": scale, "k_scale": scale}


def assert_same_bits(got, expected):
    for y, x in zip(got, expected, strict=True):
        np.testing.assert_array_equal(y.view(np.uint8), x.view(np.uint8))


@pytest.mark.parametrize("tokens", [1, 200])
@pytest.mark.parametrize("norm", ["none", "head"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("D", [64, 96])
def test_the_bits_are_those_of_the_separate_operators(D, dtype, norm, tokens):
    (q, k, _), scales = normed_call(dtype, tokens, D=D)
    q, k, scale = q.copy(), k.copy(), scales["q_scale"]
    params, positions = RopeParams(32, n_offs=16), np.arange(tokens)
    if norm == "none":
        expected = rope_qk(q, k, positions, params)
        got = qkv_norm_rope_cache(q, k, None, positions, params)
    else:
        expected = rms_norm_rope(q, k, scale, scale, positions, params)
        got = qkv_norm_rope_cache(q, k, None, positions, params, q_scale=scale, k_scale=scale)
    assert_same_bits(got[:2], expected)
    assert got[2] is None


@pytest.mark.parametrize("mode", ["neox", "normal"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_head_has_the_same_bits_alone_and_among_others(dtype, mode):
    (q, k, v), scales = normed_call(dtype, 3, heads=(37, 9, 1))
    q[:, 1], q[1, 34:], k[:, 8] = 0, np.inf, 0
    q[0, 2:20:3] *= q.dtype.type(2.0**-12 if dtype == "float16" else 2.0**-80)
    q[2, 36, 5] = np.nan
    arguments = np.arange(3) * 7, RopeParams(64, mode=mode)
    named = {**scales, "epsilon": 0.0}
    together = qkv_norm_rope_cache(q, k, v, *arguments, **named)
    for head in range(37):
        key = min(head, 8)
        alone = qkv_norm_rope_cache(
            q[:, head : head + 1].copy(), k[:, key : key + 1].copy(), v, *arguments, **named
        )
        expected = together[0][:, head : head + 1], together[1][:, key : key + 1]
        assert_same_bits(alone[:2], [np.ascontiguousarray(y) for y in expected])


@pytest.mark.parametrize("norm", [False, True])
@pytest.mark.parametrize("mode", ["neox", "normal"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_a_wider_cache_has_the_bits_before_the_last_rounding(dtype, mode, norm):
    xs, scales = normed_call(dtype, 7)
    results = []
    for cache_dtype in (dtype, "float32"):
        caches = [np.zeros((9, x.shape[1], 64), NUMPY[cache_dtype]) for x in xs[1:]]
        named = {"slots": np.arange(7) + 2, "k_cache": caches[0], "v_cache": caches[1]}
        named |= scales if norm else {}
        results.append(qkv_norm_rope_cache(*xs, np.arange(7), RopeParams(48, mode=mode, n_offs=8), **named))
    same_type, wider = results
    assert_same_bits(same_type, [y.astype(NUMPY[dtype]) for y in wider])


@pytest.mark.parametrize("offset", [0, 1])  # of the outputs, in elements: aligned or not
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_outputs_larger_than_the_caches_have_the_same_bits(dtype, offset):
    tokens = 720 if dtype == "float32" else 1400  # twice the tensors exceed the 32 MiB of streaming.h
    (q, k, v), scales = normed_call(dtype, tokens, heads=(32, 8, 8), D=128)
    slots = np.random.default_rng(6).permutation(tokens)
    arguments = RopeParams(128, freq_base=1e6)
    shapes = [x.shape for x in (q, k, v)]

    def run(start, stop, written):
        q_out, k_cache, v_cache = written
        part = slice(start, stop)
        named = {**scales, "slots": slots[part], "k_cache": k_cache, "v_cache": v_cache, "out": q_out[part]}
        qkv_norm_rope_cache(q[part], k[part], v[part], np.arange(start, stop), arguments, **named)

    whole, parts = (
        [np.zeros(np.prod(shape) + 1, q.dtype)[offset:][: np.prod(shape)].reshape(shape) for shape in shapes]
        for _ in range(2)
    )
    run(0, tokens, whole)
    for start in range(0, tokens, 64):  # a segment each: the tables are computed in the same way
        run(start, min(start + 64, tokens), parts)
    assert_same_bits(whole, parts)
    np.testing.assert_array_equal(whole[2][slots].view(np.uint8), np.ascontiguousarray(v).view(np.uint8))


def test_a_skipped_token_changes_no_row(backend):
    _, (q, k, v) = fused_call("float16")
    caches = [np.full((10, 2, 64), 7, np.float32) for _ in "kv"]
    slots = np.array([3, -1, 5, -1, 0, -1, 9])
    qkv_norm_rope_cache(
        q,
        k,
        v,
        np.arange(7),
        RopeParams(64),
        slots=slots,
        k_cache=caches[0],
        v_cache=caches[1],
        backend=backend,
    )
    for cache in caches:
        unwritten = np.setdiff1d(np.arange(10), slots)
        assert (cache[unwritten] == 7).all()
        assert (cache[slots[slots >= 0]] != 7).all()


def test_int8_rounds_half_to_even_saturates_and_turns_nan_into_zero(backend):
    v = np.float32([[[0.5, 1.5, -2.5, 126.5, 127.5, 1e9, -1e9, np.nan, np.inf, -np.inf]]])
    q = np.zeros((1, 1, 2), np.float32)
    caches = np.zeros((1, 1, 2), np.float32), np.full((1, 1, 10), 9, np.int8)
    one = np.ones(1, np.float32)
    for dtype in (np.float32, np.float64)[: 1 if is_device(backend) else 2]:
        named = {"slots": np.array([0]), "k_cache": caches[0], "v_cache": caches[1], "v_quant_scale": one}
        xs = (x.astype(dtype) for x in (q, q, v))
        qkv_norm_rope_cache(*xs, np.array([0]), RopeParams(2), **named, backend=backend)
        assert caches[1].ravel().tolist() == [0, 2, -2, 126, 127, 127, -128, 0, 127, -128]


@pytest.mark.parametrize(("heads", "tokens"), [(0, 3), (2, 0)])
def test_empty_tensors_give_empty_results(heads, tokens, backend):
    q, k = np.zeros((tokens, heads, 8), np.float32), np.zeros((tokens, 1, 8), np.float32)
    results = qkv_norm_rope_cache(q, k, k, np.arange(tokens), RopeParams(8), backend=backend)
    assert [r.shape for r in results] == [q.shape, k.shape, k.shape]


def test_tables_without_rows_are_enough_for_no_tokens(backend):
    x, table = np.zeros((0, 1, 8), np.float32), np.zeros((0, 4), np.float32)
    named = {"cos": table, "sin": table, "backend": backend}
    q, k, v = qkv_norm_rope_cache(x, x, None, np.arange(0), RopeParams(8), **named)
    assert (q.shape, k.shape, v) == (x.shape, x.shape, None)


def test_a_single_value_without_queries_and_keys_is_copied(backend):
    no_heads, v = np.zeros((1, 0, 8), np.float32), np.full((1, 1, 1), 5, np.float32)
    out = no_heads.copy(), no_heads.copy(), np.full_like(v, 7)
    qkv_norm_rope_cache(no_heads, no_heads, v, np.arange(1), RopeParams(8), out=out, backend=backend)
    assert out[2] == v


LACKING = [
    tuple(side for side in "qkv" if side not in kept) for kept in ("", "q", "k", "v", "qk", "qv", "kv")
]


@pytest.mark.parametrize("Dv", [64, 24, 160])
@pytest.mark.parametrize("lacking", LACKING, ids="".join)
def test_sides_without_heads_do_not_change_the_others(lacking, Dv, backend):
    """The other sides have the bits that they have beside heads; the caches have two types."""
    rng = np.random.default_rng(8)
    tokens, sizes = 70, {"q": 64, "k": 64, "v": Dv}
    xs = {name: rng.standard_normal((tokens, 3, D)).astype(np.float16) for name, D in sizes.items()}
    scale, slots = np.linspace(0.5, 2, 64, dtype=np.float16), rng.permutation(90)[:tokens]
    slots[4] = -1

    def run(lacking):
        sides = {name: x[:, :0] if name in lacking else x for name, x in xs.items()}
        k_cache = np.full((90, sides["k"].shape[1], 64), 7, np.int8)
        v_cache = np.full((90, sides["v"].shape[1], Dv), 7, np.float32)
        named = {"k_quant_scale": np.full(1, 30, np.float32), "k_cache": k_cache, "v_cache": v_cache}
        scales = {f"{name}_scale": scale for name in "qk" if name not in lacking}
        arguments = np.arange(tokens), RopeParams(32, "neox", n_offs=8)
        results = qkv_norm_rope_cache(
            *sides.values(), *arguments, slots=slots, **named, **scales, backend=backend
        )
        assert results[1] is k_cache
        return dict(zip("qkv", results, strict=True))

    alone, beside = run(lacking), run(())
    for name in "qkv":
        if name in lacking:
            assert alone[name].size == 0
        else:
            assert_same_bits([alone[name]], [beside[name]])


@pytest.mark.parametrize(("D", "Dv"), [(128, 32), (32, 128)])
def test_many_values_of_another_size_fit_the_buffers(D, Dv, backend):
    """A tile may have more tokens of short values than of keys, as far as both buffers have memory. Here a
    core has many tokens, and a value that is stored is longer than one that is loaded."""
    rng = np.random.default_rng(10)
    tokens, scale = 8000, np.linspace(0.5, 2, D, dtype=np.float16)
    k, v = (rng.standard_normal((tokens, 1, size)).astype(np.float16) for size in (D, Dv))
    slots, caches = rng.permutation(tokens), {}
    for name in ("cpu", backend):
        caches[name] = np.zeros((tokens, 1, D), np.int8), np.zeros((tokens, 1, Dv), np.float32)
        named = {"k_cache": caches[name][0], "v_cache": caches[name][1], "backend": name}
        named |= {"slots": slots, "k_quant_scale": np.full(1, 30, np.float32), "k_scale": scale}
        qkv_norm_rope_cache(k[:, :0], k, v, np.arange(tokens), RopeParams(16), **named)
    stored = np.empty_like(caches[backend][1])
    stored[slots] = v
    np.testing.assert_array_equal(caches[backend][1], stored)
    difference = np.abs(caches[backend][0].astype(int) - caches["cpu"][0])
    assert difference.max() <= 1
    assert (difference != 0).mean() < 1e-3


def test_sums_of_squares_need_no_scale_of_a_side_without_heads(backend):
    rng = np.random.default_rng(9)
    q, scale = rng.standard_normal((5, 4, 32)).astype(np.float32), np.ones(128, np.float32)
    sums = np.stack([(q**2).sum((1, 2))] * 2, axis=1)
    arguments = None, np.arange(5), RopeParams(32)
    got, k, _ = qkv_norm_rope_cache(q, q[:, :0], *arguments, q_scale=scale, square_sums=sums, backend=backend)
    expected = qkv_norm_rope_cache(q, q, *arguments, q_scale=scale, backend=backend)[0]
    assert k.shape == (5, 0, 32)
    np.testing.assert_allclose(got, expected, 3e-6, 3e-6)


def test_the_number_of_threads_does_not_change_a_bit():
    case = case_of(7, dtype="bfloat16", norm="all", writes="new")
    rng = np.random.default_rng(1)
    case.xs = {name: rng.standard_normal((90, 8, 64)).astype(ml_dtypes.bfloat16) for name in "qkv"}
    case = QkvCase("bfloat16", RopeParams(64), case.xs, {"positions": np.arange(90)})
    case.named |= {f"{name}_scale": np.linspace(1, 2, 512).astype(np.float32) for name in "qk"}
    tensors = [as_torch(x) for x in case.xs.values()]
    named = {name: torch.from_numpy(t) for name, t in case.named.items()}
    before = torch.get_num_threads()
    results = []
    try:
        for threads in (1, 2, 5):
            torch.set_num_threads(threads)
            positions = named.get("positions")
            others = {name: t for name, t in named.items() if name != "positions"}
            results.append(qkv_norm_rope_cache(*tensors, positions, case.params, **others))
    finally:
        torch.set_num_threads(before)
    for result in results[1:]:
        for y, first in zip(result, results[0], strict=True):
            np.testing.assert_array_equal(as_numpy(y), as_numpy(first))
