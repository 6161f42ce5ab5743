"""Calls of qkv_norm_rope_cache whose parameters, or whose norms over all heads, need much of UB."""

from __future__ import annotations

import math
import re
from pathlib import Path

import numpy as np
import pytest
from random_qkv import NUMPY, QkvCase, run, values, worst

from npu_rope import RopeParams, native, qkv_norm_rope_cache
from npu_rope.executors import qkv_norm_rope_cache as executors
from npu_rope.qkv_norm_rope_cache_calls import qkv_tensors

PAGE = Path(__file__).parents[2] / "docs/ops/qkv_norm_rope_cache.md"
CHIPS = {"Ascend910B": "Ascend910B1", "Ascend310P": "Ascend310P3", "Ascend950": "Ascend950PR_9599"}
FEWER = "cover fewer elements on an NPU"
SOCS = ("sim", "sim:ascend310p", "sim:ascend950")


def call_of(heads, dtype="float16", *, D=128, norm="all", bias=False, scale=None, **named):
    """Return a call with caches. heads: of q and of k and v. norm: of q and k, by name, or of both. scale:
    the type of scales. named: tokens, seed, mode, and quantized, the shape of the factors of int8 caches and
    whether they have offsets; and other arguments of the call."""
    tokens, quantized, seed = named.pop("tokens", 3), named.pop("quantized", ()), named.pop("seed", 0)
    rng = np.random.default_rng(seed)
    N, K = heads
    xs = {name: values(rng, (tokens, n, D), dtype) for name, n in zip("qkv", (N, K, K), strict=True)}
    case = QkvCase(dtype, RopeParams(D, named.pop("mode", "neox")), xs, writes="caches")
    norms = norm if isinstance(norm, dict) else dict.fromkeys("qk", norm)
    for name, kind in norms.items():
        size = xs[name].shape[1] * D if kind == "all" else D
        for part in ("scale", "bias")[: 1 + bias]:
            case.named[f"{name}_{part}"] = values(rng, (size,), scale or dtype)
    case.named |= {"positions": rng.integers(0, 4000, tokens), "slots": rng.permutation(15)[:tokens], **named}
    for name in "kv":
        case.named[f"{name}_cache"] = np.zeros((15, K, D), np.int8 if quantized else NUMPY[dtype])
        for part in ("scale", "offset")[: len(quantized)]:
            case.named[f"{name}_quant_{part}"] = values(rng, quantized[0], "float32", 30)
    return case


def sums_of(case, ranks=2):
    squares = [np.square(case.xs[name].astype(np.float64)).sum((1, 2)) for name in "qk"]
    return {"square_sums": (ranks * np.stack(squares, 1)).astype(np.float32), "ranks": ranks}


def check(case, chip, has_q_out=True):
    outs = {n: t for n, t in case.named.items() if "cache" in n}
    if has_q_out:
        outs["q_out"] = np.empty_like(case.xs["q"])
    executors.check(qkv_tensors(case.xs, case.tensors, outs), case.attributes(), chip)


# ---- rows of parameters and of caches -----------------------------------------------------------------


@pytest.mark.parametrize("backend", SOCS)
def test_more_rows_of_factors_than_a_dma_copies(backend):
    """An instruction copies at most 4095 rows. The rows of seven elements are padded."""
    rng = np.random.default_rng(4)
    q, k = (values(rng, (2, n, 7), "float32") for n in (1, 4200))
    factors = values(rng, (4200, 7), "float32", 30)
    caches = {}
    for name in ("cpu", backend):
        caches[name] = np.zeros((3, 4200, 7), np.int8)
        given = {"slots": np.array([2, 0]), "k_cache": caches[name], "k_quant_scale": factors}
        qkv_norm_rope_cache(q, k, None, np.array([5, 9]), RopeParams(6, "neox"), backend=name, **given)
    assert np.abs(caches["cpu"].astype(int) - caches[backend]).max() <= 1  # of two rounded values
    assert np.abs(caches["cpu"][[0, 2], 4100:]).max() > 10


@pytest.mark.parametrize("without", ["k", "v"])
def test_a_cache_may_have_offsets_if_the_other_has_none(without):
    case = call_of((2, 2), norm="head", quantized=((2,), True))
    del case.named[f"{without}_quant_offset"]
    ratios = worst(case, run(case, "sim"), "sim")
    assert max(ratios.values()) <= 1, ratios


@pytest.mark.parametrize("chip", CHIPS.values())
@pytest.mark.parametrize("cache", [(2**31, 1, 8), (2**24, 128, 1, 8)])
def test_a_cache_has_as_many_rows_as_slots_of_32_bits_name(chip, cache):
    q, one = native.c_tensor(0, "float16", (1, 1, 8), (8, 8, 1)), native.c_tensor(0, "int64", (1,), (1,))
    absent = [None] * 5

    def check(shape):
        strides = [math.prod(shape[k + 1 :]) for k in range(len(shape))]
        written = native.c_tensor(0, "float16", shape, tuple(strides))
        inputs = [q, q, None, *absent, one, None, None, None, one]
        native.load().check(
            "qkv_norm_rope_cache", inputs, [q, written], "layout", chip=chip, params=RopeParams(8), ranks=1
        )

    check(cache)
    more = (cache[0] + 1, *cache[1:])
    with pytest.raises(ValueError, match=r"k_cache must have at most 2\^31 rows on an NPU but got \d"):
        check(more)


@pytest.mark.parametrize("chip", CHIPS.values())
def test_values_longer_than_a_kernel_supports_are_refused_beside_fewer_keys(chip):
    case = call_of((1, 1), norm={})
    case.xs["v"] = np.ones((3, 2, 1026), np.float16)
    case.named["v_cache"] = np.zeros((15, 2, 1026), np.float16)
    with pytest.raises(ValueError, match="v must have a head size of at most 1024 on an NPU but got 1026"):
        check(case, chip)


# ---- parameters that do not fit UB --------------------------------------------------------------------

HEAVY = {
    "sums and biases": {"heads": (128, 96), "bias": True, "scale_offset": 1.0, "sums": True},
    "sums and everything": {
        "heads": (96, 64), "bias": True, "scale_offset": 1.0, "sums": True, "quantized": ((64, 128), True),
        "tokens": 12,
    },
    "sums, float32 and pairs of neighbours": {
        "heads": (128, 96), "dtype": "float32", "bias": True, "sums": True, "mode": "normal"
    },
    "sums and scales of float32": {
        "heads": (200, 16), "scale": "float32", "bias": True, "sums": True, "scale_offset": -0.5
    },
    "sums and unaligned heads": {"heads": (600, 60), "D": 42, "bias": True, "sums": True},
    "sums, unaligned heads and scales of float32": {
        "heads": (600, 60), "D": 42, "scale": "float32", "bias": True, "sums": True, "tokens": 2
    },
    "norms of heads and a number for each head": {
        "heads": (2, 150), "norm": "head", "bias": True, "quantized": ((150,), True)
    },
    "norms of heads and factors of each element": {
        "heads": (2, 130), "norm": "head", "bias": True, "quantized": ((130, 128), True)
    },
    "no norms": {"heads": (1, 128), "norm": {}, "quantized": ((128, 128), True)},
    "norms over all heads": {"heads": (60, 60), "bias": True, "quantized": ((60, 128), True)},
    "k alone": {"heads": (96, 2), "dtype": "float32", "norm": {"k": "all"}},
    "k alone, with many heads of q": {"heads": (600, 40), "norm": {"k": "all"}, "bias": True},
    "q alone": {"heads": (8, 200), "norm": {"q": "all"}, "quantized": ((200, 128), True)},
}  # fmt: skip


@pytest.mark.parametrize("soc", SOCS)
@pytest.mark.parametrize("name", HEAVY)
def test_parameters_that_do_not_fit_ub_are_loaded_for_each_tile(name, soc):
    named = dict(HEAVY[name])
    has_sums = named.pop("sums", False)
    case = call_of(**named)
    case.named |= sums_of(case) if has_sums else {}
    ratios = worst(case, run(case, soc), soc)
    assert max(ratios.values()) <= 1, ratios


# ---- norms over all heads -------------------------------------------------------------------------------


def limits():
    """Return the page's limits: chip, mode, heads of q and of k, dtype, whether it has all parameters."""
    table = PAGE.read_text().split("<!-- limits: begin -->")[1].split("<!-- limits: end -->")[0]
    for line in table.strip().splitlines()[2:]:
        name, *numbers = re.findall(r"[^|]+", line)
        chip, mode = name.strip().split(", ")
        sizes = [int(number.replace(",", "")) for number in numbers]
        yield chip, mode, "float16", sizes[0], 8, False
        yield chip, mode, "float16", sizes[1], None, True
        for keys, has_all in ((8, False), (None, False), (None, True)):
            yield chip, mode, "float32", sizes[2], keys, has_all


@pytest.mark.parametrize(("chip", "mode", "dtype", "size", "keys", "has_all"), tuple(limits()))
def test_the_pages_limit_is_the_largest_norm_over_all_heads(chip, mode, dtype, size, keys, has_all):
    for more in (0, 1):
        N = size // 128 + more
        K = keys or N
        parameters = {"bias": True, "quantized": ((K, 128), True)} if has_all else {}
        case = call_of((N, K), dtype, mode=mode, tokens=1, **parameters)
        if not more:
            check(case, CHIPS[chip])
            check(case, CHIPS[chip], has_q_out=False)  # before q_out is allocated
            continue
        with pytest.raises(
            ValueError, match=f"[qk]_scale must {FEWER}, or be given .* but got {N * 128}, which"
        ):
            check(case, CHIPS[chip])


@pytest.mark.parametrize("backend", SOCS)
@pytest.mark.parametrize("side", ["q", "k"])
@pytest.mark.parametrize("has_values", [True, False])
def test_a_refusal_offers_sums_only_where_both_sides_may_have_them(has_values, side, backend):
    heads = (200, 2) if side == "q" else (2, 200)
    case = call_of(heads, norm={side: "all"})
    if not has_values:
        case.xs["v"] = None
        del case.named["v_cache"]
    with pytest.raises(ValueError, match=f"{side}_scale must {FEWER} but got 25600, which"):
        run(case, backend)
    assert not case.named["k_cache"].any()


@pytest.mark.parametrize("backend", SOCS)
def test_a_refusal_offers_sums_if_the_other_side_has_no_heads(backend):
    q, scale = np.ones((3, 200, 128), np.float16), np.ones(25600, np.float16)
    no_heads = np.ones((3, 0, 128), np.float16)
    with pytest.raises(ValueError, match=f"q_scale must {FEWER}, or be given with square_sums but got 25600"):
        qkv_norm_rope_cache(
            q, no_heads, None, np.arange(3), RopeParams(128, "neox"), q_scale=scale, backend=backend
        )


def test_random_heavy_calls_fit_or_have_a_norm_over_all_heads():
    """No other call is refused: the tiling raises InternalError, which is no ValueError."""
    refused = 0
    for seed in range(150):
        rng = np.random.default_rng(seed)
        N, K = (int(rng.choice([2, 8, 40, 96, 200])) for _ in range(2))
        D = int(rng.choice([8, 34, 128, 256, 1022, 1024]))
        norm = rng.choice(["all", "head", "sums"])
        shape = [(1,), (K,), (K, D)][rng.integers(3)]
        case = call_of(
            (N, K), str(rng.choice(["float16", "float32"])), D=D, norm="head" if norm == "head" else "all",
            bias=bool(rng.integers(2)), scale=rng.choice([None, "float32"]), tokens=1, seed=seed,
            quantized=[(), (shape,), (shape, True)][rng.integers(3)],
        )  # fmt: skip
        case.named |= sums_of(case) if norm == "sums" else {}
        for chip in CHIPS.values():
            try:
                check(case, chip)
            except ValueError as error:
                if norm != "all" or f"_scale must {FEWER}, or" not in str(error):
                    raise
                refused += 1
    assert refused > 20


def test_more_than_512_heads_need_sums():
    q, k = np.ones((1, 513, 2), np.float16), np.ones((1, 2, 2), np.float16)
    named = {"q_scale": np.ones(1026, np.float16), "k_scale": np.ones(4, np.float16), "backend": "sim"}
    text = r"q_scale must cover at most 512 heads on an NPU, or be given with square_sums but got 513\.$"
    with pytest.raises(ValueError, match=text):
        qkv_norm_rope_cache(q, k, None, np.arange(1), RopeParams(2), **named)
    sums = np.array([[513 * 2, 4]], np.float32)
    named |= {"square_sums": sums, "epsilon": 0.0}
    q_out, k_out, _ = qkv_norm_rope_cache(q, k, None, np.zeros(1, int), RopeParams(2), **named)
    assert (q_out == 1).all()
    assert (k_out == 1).all()
