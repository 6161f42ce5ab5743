"""qkv_norm_rope_cache and qk_square_sums: sizes around 65,536, and strides beyond 2**31 elements."""

from __future__ import annotations

import numpy as np
import pytest
import random_qkv
from far_sizes import BORDERS, FAR_ROWS, far_ones, far_runs, normal_values, refuses_head, rows_of, two_of
from random_qkv import QkvCase, worst
from random_square_sums import SquareSumsCase, ratio_of

from npu_rope import RopeParams, qk_square_sums, qkv_norm_rope_cache
from npu_rope.testing.bounds import is_device

UNWRITTEN = 7  # the values of a cache before the call


# ---- qkv_norm_rope_cache -------------------------------------------------------------------------------


def qkv_case(*, S=3, heads=(2, 1, 1), D=16, Dv=16, caches=(), rows=0, seed=0):
    """Return a call with norms of each head.

    caches: the first dimensions of the caches, by default rows for all tokens and two more. rows: those of
    tables of cos and sin, if there are any.
    """
    rng = np.random.default_rng(seed)
    xs = {
        name: random_qkv.values(rng, (S, N, d), "float16")
        for name, N, d in zip("qkv", heads, (D, D, Dv), strict=True)
    }
    case = QkvCase("float16", RopeParams(D // 2 * 2, "neox"), xs, writes="caches")
    caches = caches or (S + 2,)
    case.named["slots"] = rows_of(S, int(np.prod(caches)))
    for name in "kv":
        case.named[f"{name}_cache"] = np.full((*caches, *xs[name].shape[1:]), UNWRITTEN, np.float16)
    for name in "qk":
        case.named[f"{name}_scale"] = random_qkv.values(rng, (D,), "float16")
    case.named["positions"] = rows_of(S, rows) if rows else np.arange(S)
    if rows:
        case.named |= {name: random_qkv.values(rng, (rows, D // 2), "float16") for name in ("cos", "sin")}
    return case


def over_all_heads(case, **sums):
    """Give the case a norm over all heads, and the sums of squares of these heads, if sums are passed."""
    for name in "qk":
        _, N, D = case.xs[name].shape
        case.named[f"{name}_scale"] = normal_values((N * D,), "float16")
    if sums:
        squares = [np.square(case.xs[name].astype(np.float64)).sum((1, 2)) for name in "qk"]
        case.named |= {"square_sums": (sums["ranks"] * np.stack(squares, 1)).astype(np.float32), **sums}
    return case


QKV_CASES = {
    "tokens": lambda size: qkv_case(S=size),
    "queries": lambda size: qkv_case(heads=(size, 1, 1)),
    "keys": lambda size: qkv_case(heads=(1, size, 1)),
    "values": lambda size: qkv_case(heads=(1, 1, size)),
    "D": lambda size: qkv_case(D=size),
    "D of values": lambda size: qkv_case(Dv=size),
    "rows": lambda size: qkv_case(S=6, caches=(size,)),
    "blocks": lambda size: qkv_case(S=6, caches=(size, 2)),
    "tokens of a block": lambda size: qkv_case(S=6, caches=(2, size)),
    "rows of tables": lambda size: qkv_case(S=6, rows=size),
    "queries under given sums": lambda size: over_all_heads(qkv_case(heads=(size, 2, 1)), ranks=2),
    "keys under given sums": lambda size: over_all_heads(qkv_case(heads=(2, size, 1)), ranks=2),
}
REFUSED_HEADS = {"D": "q", "D of values": "v"}


@pytest.mark.slow
@pytest.mark.parametrize("size", BORDERS)
@pytest.mark.parametrize("dimension", QKV_CASES)
def test_a_step_of_attention_of_each_size(dimension, size, backend):
    case, name = QKV_CASES[dimension](size), REFUSED_HEADS.get(dimension)

    def run():
        return random_qkv.run(case, backend)

    if not (name and refuses_head(run, "qkv_norm_rope_cache", name, size, backend)):
        ratios = worst(case, run(), backend)
        assert max(ratios.values()) <= 1, ratios


@pytest.mark.long
@pytest.mark.parametrize("side", ["q", "k"])
def test_a_norm_over_each_number_of_heads(side, backend):
    for size in BORDERS:
        case = over_all_heads(qkv_case(heads=(size, 2, 1) if side == "q" else (2, size, 1)))
        if is_device(backend):
            rule = f"{side}_scale must cover at most 512 heads on an NPU, or be given with square_sums"
            with pytest.raises(ValueError, match=rf"^\[qkv_norm_rope_cache\] {rule} but got {size}\.$"):
                random_qkv.run(case, backend)
            continue
        ratios = worst(case, random_qkv.run(case, backend), backend)
        assert max(ratios.values()) <= 1, ratios


@pytest.mark.parametrize("ranks", BORDERS)
def test_the_sums_of_65536_ranks_are_the_most(ranks, backend):
    case = over_all_heads(qkv_case(heads=(2, 2, 1)), ranks=ranks)
    if ranks > 65536:
        rule = rf"^\[qkv_norm_rope_cache\] ranks must be in \[1, 65536\] but got {ranks}\.$"
        with pytest.raises(ValueError, match=rule):
            random_qkv.run(case, backend)
        return
    ratios = worst(case, random_qkv.run(case, backend), backend)
    assert max(ratios.values()) <= 1, ratios


@pytest.mark.slow
@pytest.mark.parametrize("per_lane", [False, True])
def test_factors_of_each_number_of_heads(per_lane, backend):
    """The cache of the keys is int8. The simulator needs seconds for a call on Ascend310P."""
    for size in BORDERS:
        case = qkv_case(S=1, heads=(1, size, 1))
        cache = case.named["k_cache"]
        case.named["k_cache"] = np.full(cache.shape, UNWRITTEN, np.int8)
        shape = (size, 16) if per_lane else (size,)
        case.named["k_quant_scale"] = 30 * normal_values(shape, "float32")
        case.named["k_quant_offset"] = 10 * normal_values(shape, "float32", 1)
        ratios = worst(case, random_qkv.run(case, backend), backend)
        assert max(ratios.values()) <= 1, ratios


FAR_STEPS = {
    "rows of caches and tables": {"S": 2, "caches": (2,), "rows": 2},
    "blocks": {"S": 2, "caches": (2, 1)},
    "tokens of a block": {"S": 2, "caches": (1, 2)},
    "queries": {"S": 1, "heads": (2, 1, 1), "caches": (1,)},
    "keys": {"S": 1, "heads": (1, 2, 1), "caches": (1,)},
    "values": {"S": 1, "heads": (1, 1, 2), "caches": (1,)},
}


@pytest.mark.slow
@far_runs(*FAR_STEPS)
def test_a_step_of_attention_with_strides_beyond_2_31_elements(dimension, backend):
    """Queries, keys, values, caches, tables and the result have them."""
    case = qkv_case(**{"heads": (1, 1, 1), "D": 128, "Dv": 128, **FAR_STEPS[dimension]})
    named = dict(case.named)
    positions, q = named.pop("positions"), case.xs["q"]
    names = [name for name in ("k_cache", "v_cache", "cos", "sin") if name in named]
    named |= zip(names, far_ones([named[name] for name in names], backend), strict=True)
    xs, (out,) = far_ones(case.xs.values(), backend), far_ones([np.zeros(q.shape, q.dtype)], backend)
    named["out"] = out
    results = qkv_norm_rope_cache(*xs, positions, case.params, backend=backend, **named)
    assert results[0] is out
    ratios = worst(case, dict(zip("qkv", results, strict=True)), backend)
    assert max(ratios.values()) <= 1, ratios


@pytest.mark.slow
def test_caches_and_tables_of_more_than_2_31_elements():
    """Four of 4 GiB, of which only the chosen rows take memory."""
    case = qkv_case(S=FAR_ROWS.size, heads=(1, 1, 1), D=256, Dv=128, rows=FAR_ROWS.size)
    case.named |= {"k_cache": case.named["k_cache"][: FAR_ROWS.size], "slots": np.arange(FAR_ROWS.size)}
    case.named["v_cache"] = case.named["v_cache"][: FAR_ROWS.size]
    named, rows = dict(case.named), FAR_ROWS.max() + 2
    for name in ("k_cache", "v_cache", "cos", "sin"):
        small = case.named[name]
        named[name] = np.zeros((rows, *small.shape[1:]), np.float16)
        named[name][FAR_ROWS] = small
    named["slots"], positions = FAR_ROWS, FAR_ROWS[named.pop("positions")]
    q, k, v = qkv_norm_rope_cache(*case.xs.values(), positions, case.params, backend="cpu", **named)
    ratios = worst(case, {"q": q, "k": k[FAR_ROWS], "v": v[FAR_ROWS]}, "cpu")
    assert max(ratios.values()) <= 1, ratios


# ---- qk_square_sums ------------------------------------------------------------------------------------

SUMS_SHAPES = {
    "tokens": lambda size: ((size, 2, 8), (size, 1, 8)),
    "queries": lambda size: ((2, size, 8), (2, 1, 8)),
    "keys": lambda size: ((2, 1, 8), (2, size, 8)),
    "D": lambda size: ((2, 2, size), (2, 1, size)),
}


def judge_sums(xs, arrays, backend):
    """Require the sums of arrays that have the values xs to meet their bound."""
    case = SquareSumsCase(xs[0].dtype.name, "", *xs)
    ratio = ratio_of(case, qk_square_sums(*arrays, backend=backend), backend)
    assert ratio <= 1, (ratio, case.text)


@pytest.mark.slow
@pytest.mark.parametrize("size", BORDERS)
@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("dimension", SUMS_SHAPES)
def test_sums_of_squares_of_each_size(dimension, dtype, size, backend):
    xs = [normal_values(shape, dtype) for shape in SUMS_SHAPES[dimension](size)]
    judge_sums(xs, xs, backend)


@pytest.mark.slow
@far_runs("S", "N")
def test_sums_of_squares_with_strides_beyond_2_31_elements(dimension, backend):
    xs = [normal_values(two_of(dimension, "SN"), "float16", seed) for seed in range(2)]
    judge_sums(xs, far_ones(xs, backend), backend)
