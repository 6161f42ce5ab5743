"""Bad calls of qkv_norm_rope_cache have the same message for arrays, tensors and C, and write nothing."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
import torch

from npu_rope import RopeParams, qkv_norm_rope_cache

S, N, K, D, R = 3, 4, 2, 8, 9
half = np.float16


def ones(*shape, dtype=np.float32):
    return np.ones(shape, dtype)


CORRECT = {
    "q": ones(S, N, D),
    "k": ones(S, K, D),
    "v": ones(S, K, 6),
    "positions": np.arange(S),
    "params": RopeParams(D, "neox"),
}
CACHES = {"slots": np.arange(S), "k_cache": ones(R, K, D), "v_cache": ones(R, K, 6)}
INT8 = {"k_cache": ones(R, K, D, dtype=np.int8), "k_quant_scale": ones(K)}
MROPE = RopeParams(D, "mrope", sections=(1, 1, 1, 1))
TABLES = {"cos": ones(S, D // 2), "sin": ones(S, D // 2)}

BAD = {
    # name of the case: (text of the error, type, changed arguments)
    "batch": ("q must have shape [S,N,D] but got [1, 3, 4, 8]", ValueError, {"q": ones(1, S, N, D)}),
    "k's type": (
        "k must have q's dtype float32 but got float16",
        TypeError,
        {"k": ones(S, K, D, dtype=half)},
    ),
    "k's head": (
        "k must have q's shape [3, 4, 8] except for the heads but got [3, 2, 6]",
        ValueError,
        {"k": ones(S, K, 6)},
    ),
    "v's tokens": (
        "v must have shape [S,N,D] = [3,N,D] but got [2, 2, 6]",
        ValueError,
        {**CACHES, "v": ones(2, K, 6)},
    ),
    "v's type": (
        "v must have q's dtype float32 but got float64",
        TypeError,
        {**CACHES, "v": ones(S, K, 6, dtype=float)},
    ),
    "v's tokens without caches": (
        "v must have shape [S,N,D] = [3,N,D] but got [2, 2, 6]",
        ValueError,
        {"v": ones(2, K, 6)},
    ),
    "v's dimensions without caches": (
        "v must have shape [S,N,D] = [3,N,D] but got [3]",
        ValueError,
        {"v": ones(S)},
    ),
    "v's type without caches": (
        "v must have q's dtype float32 but got float16",
        TypeError,
        {"v": ones(S, K, 6, dtype=half)},
    ),
    "a text as v": ("like q but got str", TypeError, {"v": "text"}),
    "a number as v": ("like q but got float", TypeError, {"v": 3.0}),
    "no k": ("k must be a torch tensor or a NumPy array but got None", TypeError, {"k": None}),
    "positions": ("positions must have shape [S] = [3] but got [4]", ValueError, {"positions": np.arange(4)}),
    "one plane": (
        "positions must have shape [4,S] = [4, 3], [4*S] or [3,S] in mode mrope but got [3]",
        ValueError,
        {"params": MROPE},
    ),
    "scale": (
        "q_scale must have shape [D] = [8] or [N*D] = [32] but got [16]",
        ValueError,
        {"q_scale": ones(16)},
    ),
    "scale's type": (
        "k_scale must have q's dtype float32 but got float16",
        TypeError,
        {"k_scale": ones(D, dtype=half)},
    ),
    "bias alone": (
        "q_bias must not be given without q_scale but got a tensor",
        ValueError,
        {"q_bias": ones(D)},
    ),
    "bias": (
        "k_bias must have k_scale's shape [8] but got [16]",
        ValueError,
        {"k_scale": ones(D), "k_bias": ones(2 * D)},
    ),
    "epsilon": ("epsilon must be >= 0 and finite in float32 but got -1", ValueError, {"epsilon": -1.0}),
    "offset": (
        "scale_offset must be finite in float32 but got inf",
        ValueError,
        {"scale_offset": float("inf")},
    ),
    "ranks": ("ranks must be 1 without square_sums but got 2", ValueError, {"ranks": 2}),
    "no ranks": ("ranks must be in [1, 65536] but got 0", ValueError, {"ranks": 0}),
    "too many ranks": ("ranks must be in [1, 65536] but got 65537", ValueError, {"ranks": 65537}),
    "sums of heads": (
        "square_sums must be given with scales [N*D] of q and k only but got [D] as q_scale",
        ValueError,
        {"q_scale": ones(D), "k_scale": ones(K * D), "square_sums": ones(S, 2)},
    ),
    "sums": (
        "square_sums must have shape [S,2] = [3, 2] but got [3]",
        ValueError,
        {"q_scale": ones(N * D), "k_scale": ones(K * D), "square_sums": ones(S)},
    ),
    "a negative sum": (
        "square_sums must not be negative but got -0.5 at index [1, 0]",
        ValueError,
        {
            "q_scale": ones(N * D),
            "k_scale": ones(K * D),
            "square_sums": np.float32([[1, 2], [-0.5, 3], [4, 5]]),
        },
    ),
    "a negative sum of keys in a cache's call": (
        "square_sums must not be negative but got -inf at index [2, 1]",
        ValueError,
        {
            **CACHES,
            "q_scale": ones(N * D),
            "k_scale": ones(K * D),
            "square_sums": np.float32([[1, 2], [np.nan, np.inf], [-0.0, -np.inf]]),
            "ranks": 2,
        },
    ),
    "a negative sum of float64": (
        "square_sums must not be negative but got -1e-300 at index [0, 1]",
        ValueError,
        {
            **{x: ones(S, heads, D, dtype=float) for x, heads in (("q", N), ("k", K), ("v", K))},
            "q_scale": ones(N * D, dtype=float),
            "k_scale": ones(K * D, dtype=float),
            "square_sums": np.array([[1, -1e-300], [3, 4], [5, 6]]),
        },
    ),
    "cos alone": ("sin must be given with cos but got None", ValueError, {"cos": TABLES["cos"]}),
    "cos": (
        "cos must have shape [P,W] with W = 4 or 8 but got [3, 5]",
        ValueError,
        {"cos": ones(3, 5), "sin": ones(3, 5)},
    ),
    "sin": ("sin must have cos's shape [3, 4] but got [3, 8]", ValueError, {**TABLES, "sin": ones(3, 8)}),
    "sin's dtype": (
        "sin must have cos's dtype float32 but got float16",
        TypeError,
        {**TABLES, "sin": ones(S, D // 2).astype(np.float16)},
    ),
    "factors": (
        "freq_factors must not be given with cos and sin but got a tensor",
        ValueError,
        {**TABLES, "freq_factors": ones(4)},
    ),
    "row of a table": (
        "positions must be rows 0 to 2 of cos but got 3",
        ValueError,
        {**TABLES, "positions": np.array([0, 3, 1])},
    ),
    "rows": (
        "cos must have a row for each of 3 tokens but got [2, 4]",
        ValueError,
        {"cos": ones(2, 4), "sin": ones(2, 4), "positions": None},
    ),
    "rows and sections": (
        "positions must be given in mode mrope but got None",
        ValueError,
        {**TABLES, "positions": None, "params": MROPE},
    ),
    "no positions": (
        "positions must be given without cos and sin but got None",
        ValueError,
        {"positions": None},
    ),
    "slots": ("slots must have shape [S] = [3] but got [2]", ValueError, {**CACHES, "slots": np.arange(2)}),
    "slots' type": ("slots must be int32 or int64 but got float32", TypeError, {**CACHES, "slots": ones(S)}),
    "slot": (
        "slots must be -1 or a row of the cache's 9 but got 9",
        ValueError,
        {**CACHES, "slots": np.array([0, 9, 1])},
    ),
    "slot below": (
        "slots must be -1 or a row of the cache's 9 but got -2",
        ValueError,
        {**CACHES, "slots": np.array([0, -2, 1])},
    ),
    "slot of v": (
        "slots must be -1 or a row of v_cache's 5 but got 7",
        ValueError,
        {**CACHES, "v_cache": ones(5, K, 6), "slots": np.array([0, 7, 1])},
    ),
    "slot of k": (
        "slots must be -1 or a row of k_cache's 2 but got 2",
        ValueError,
        {**CACHES, "k_cache": ones(2, K, D)},
    ),
    "same slot": (
        "slots must differ from each other but got 4 twice",
        ValueError,
        {**CACHES, "slots": np.array([4, -1, 4])},
    ),
    "same slot 0": (
        "slots must differ from each other but got 0 twice",
        ValueError,
        {**CACHES, "slots": np.array([0, -1, 0])},
    ),
    "cache": (
        "k_cache must have shape [rows,N,D] = [rows, 2, 8] or [blocks, block_size, 2, 8] but got [9, 3, 8]",
        ValueError,
        {**CACHES, "k_cache": ones(R, 3, D)},
    ),
    "cache's type": (
        "k_cache must be float32, float16, bfloat16 or int8 but got int32",
        TypeError,
        {**CACHES, "k_cache": ones(R, K, D, dtype=np.int32)},
    ),
    "cache overlaps itself": (
        "k_cache must not overlap itself but got strides [0, 8, 1]",
        ValueError,
        {**CACHES, "k_cache": np.lib.stride_tricks.as_strided(ones(K, D), (R, K, D), (0, 32, 4))},
    ),
    "no cache": (
        "k_cache must be given where slots and k are but got None",
        ValueError,
        {**CACHES, "k_cache": None},
    ),
    "no v_cache": (
        "v_cache must be given where slots and v are but got None",
        ValueError,
        {**CACHES, "v_cache": None},
    ),
    "no v": ("v_cache must not be given without v but got a cache", ValueError, {**CACHES, "v": None}),
    "no slots": (
        "slots must be given where k_cache is but got None",
        ValueError,
        {"k_cache": CACHES["k_cache"]},
    ),
    "int8 without a scale": (
        "k_quant_scale must be given for an int8 k_cache but got None",
        ValueError,
        {**CACHES, **INT8, "k_quant_scale": None},
    ),
    "scale without int8": (
        "v_quant_scale must be given for an int8 v_cache only but got float32",
        ValueError,
        {**CACHES, "v_quant_scale": ones(1)},
    ),
    "offset without int8": (
        "v_quant_offset must be given for an int8 v_cache only but got float32",
        ValueError,
        {**CACHES, "v_quant_offset": ones(1)},
    ),
    "quant shape": (
        "k_quant_scale must have shape [1], [N] = [2] or [N,D] = [2, 8] but got [8]",
        ValueError,
        {**CACHES, **INT8, "k_quant_scale": ones(D)},
    ),
    "quant type": (
        "k_quant_scale must be float32 but got float16",
        TypeError,
        {**CACHES, **INT8, "k_quant_scale": ones(1, dtype=half)},
    ),
    "quant offset": (
        "k_quant_offset must have k_quant_scale's shape [2] but got [1]",
        ValueError,
        {**CACHES, **INT8, "k_quant_offset": ones(1)},
    ),
    "out": (
        "out must be (q_out, k_out, v_out) but got a sequence of length 1",
        ValueError,
        {"out": (ones(S, N, D),)},
    ),
    "q_out": (
        "q_out must have q's shape [3, 4, 8] but got [3, 4, 7]",
        ValueError,
        {"out": (ones(S, N, 7), ones(S, K, D), ones(S, K, 6))},
    ),
    "no k_out": (
        "k_out must be given where k is but got None",
        ValueError,
        {"out": (ones(S, N, D), None, ones(S, K, 6))},
    ),
    "no v_out": (
        "v_out must be given where v is but got None",
        ValueError,
        {"out": (ones(S, N, D), ones(S, K, D), None)},
    ),
    **{
        f"{name} without slots, {where}": (
            f"{name} must not be given without slots but got a tensor",
            ValueError,
            {name: factor, **written},
        )
        for name in ("k_quant_scale", "k_quant_offset", "v_quant_scale", "v_quant_offset")
        for where, factor, written in (
            ("new results", ones(1), {}),
            ("no values", ones(7, dtype=half), {"v": None}),
            ("out", ones(1), {"out": (ones(S, N, D), ones(S, K, D), ones(S, K, 6))}),
        )
    },
    **{
        f"{name} without v": (
            f"{name} must not be given without v but got a tensor",
            ValueError,
            {**CACHES, "v": None, "v_cache": None, name: ones(1)},
        )
        for name in ("v_quant_scale", "v_quant_offset")
    },
    "quantization scale without dimensions": (
        "k_quant_scale must have shape [1], [N] = [2] or [N,D] = [2, 8] but got []",
        ValueError,
        {**CACHES, **INT8, "k_quant_scale": np.array(1, np.float32)},
    ),
}


def call(changed, backend, framework):
    arguments = {**CORRECT, **changed}
    if framework == "torch":
        arguments = {n: torch.from_numpy(t) if isinstance(t, np.ndarray) else t for n, t in arguments.items()}
        if "out" in arguments:
            arguments["out"] = tuple(None if t is None else torch.from_numpy(t) for t in arguments["out"])
    xs = [arguments.pop(name) for name in ("q", "k", "v", "positions", "params")]
    written = {n: t for n, t in arguments.items() if "cache" in n and t is not None}
    written |= {f"out[{i}]": t for i, t in enumerate(arguments.get("out", ())) if t is not None}
    before = {n: t.copy() if isinstance(t, np.ndarray) else t.clone() for n, t in written.items()}
    try:
        qkv_norm_rope_cache(*xs, **arguments, backend=None if framework == "torch" else backend)
    finally:
        for name, tensor in written.items():
            assert (tensor == before[name]).all()


@pytest.mark.parametrize("name", BAD)
def test_a_bad_call_is_refused_and_writes_nothing(name, backend):
    text, kind, changed = BAD[name]
    for framework in ("numpy", "torch") if backend == "cpu" else ("numpy",):
        with pytest.raises(kind) as caught:
            call(changed, backend, framework)
        message = str(caught.value)
        assert message.startswith("[qkv_norm_rope_cache] ") or "params" in message
        assert text in message, (backend, framework)


@pytest.mark.parametrize("shared", ["q", "positions", "q_scale", "slots"])
def test_a_cache_shares_no_memory_with_an_input(shared, backend):
    memory = np.zeros(1000, np.float32)
    cache = memory[: R * K * D].reshape(R, K, D)
    changed = {**CACHES, "k_cache": cache}
    changed |= {
        "q": {"q": memory[: S * N * D].reshape(S, N, D)},
        "positions": {"positions": memory.view(np.int64)[:S]},
        "q_scale": {"q_scale": memory[:D]},
        "slots": {"slots": np.add(memory.view(np.int64)[:S], np.arange(S), out=memory.view(np.int64)[:S])},
    }[shared]
    with pytest.raises(ValueError, match=f"k_cache must share no memory with {shared} but got"):
        call(changed, backend, "numpy")


def test_caches_share_no_memory():
    memory = np.zeros((R, K, D), np.float32)
    with pytest.raises(ValueError, match="v_cache must share no memory with k_cache but got overlapping"):
        call({**CACHES, "v": ones(S, K, D), "k_cache": memory, "v_cache": memory}, "cpu", "numpy")


HEADS = (("q", N), ("k", K))
DEVICE_LIMITS = {
    "long values": (
        "v must have a head size of at most 1024 on an NPU but got 1026",
        {**CACHES, "v": ones(S, K, 1026), "v_cache": np.zeros((R, K, 1026), np.float32)},
    ),
    "a cache of float64": (
        "v_cache must be float32, float16, bfloat16 or int8 but got float64",
        {**CACHES, "v_cache": np.zeros((R, K, 6))},
    ),
    "float64": (
        "q must be float32",
        {"v": ones(S, K, 6, dtype=float), **{name: ones(S, n, D, dtype=float) for name, n in HEADS}},
    ),
    "an angle policy": ("angle must be exact (0) on an NPU but got f32", {"angle": "f32"}),
    "a far position": ("positions must be between", {"positions": np.arange(S) + 2**22}),
}


@pytest.mark.parametrize("soc", ["sim", "sim:ascend310p"])
@pytest.mark.parametrize("name", DEVICE_LIMITS)
def test_what_a_device_does_not_support_is_refused(name, soc):
    text, changed = DEVICE_LIMITS[name]
    with pytest.raises((ValueError, TypeError)) as caught:
        call(changed, soc, "numpy")
    assert str(caught.value).startswith(f"[qkv_norm_rope_cache] {text}")


def test_a_chip_without_bfloat16_has_no_cache_of_it():
    with pytest.raises(TypeError, match=r"v_cache must be .*310P"):
        call({**CACHES, "v_cache": np.zeros((R, K, 6), ml_dtypes.bfloat16)}, "sim:ascend310p", "numpy")


def test_a_cache_without_heads_may_have_a_type_that_the_chip_lacks():
    no_heads = {"v": ones(S, 0, 6), "v_cache": np.zeros((R, 0, 6), ml_dtypes.bfloat16)}
    arguments = {**CORRECT, **CACHES, **no_heads, "k_cache": np.zeros((R, K, D), np.float32)}
    qkv_norm_rope_cache(**arguments, backend="sim:ascend310p")
    assert arguments["k_cache"][:S].any(axis=-1).all()


@pytest.mark.parametrize("side", ["q", "k"])
def test_a_norm_that_does_not_fit_a_device_is_refused(side):
    long = np.ones((1, 512, 128), np.float32)
    q, k = (long, long[:, :1]) if side == "q" else (long[:, :1], long)
    named = {f"{side}_scale": np.ones(512 * 128, np.float32), "backend": "sim"}
    with pytest.raises(ValueError, match=f"{side}_scale must cover fewer .* but got 65536, which do not fit"):
        qkv_norm_rope_cache(q, k, None, np.array([0]), RopeParams(128), **named)
