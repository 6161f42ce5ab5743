"""Rotation with tables in a cache, and the update of the caches of latent attention, against float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from aclnn import RefusedPhase
from operands import INVALID, NULL, TYPES, assert_refused, prepared, strided

TILING, NOT_SIMULATED = 561002, 200001
TILING_BYTES = 512  # 32 bytes and CANN's padding
UNIT = {"float16": 2.0**-11, "bfloat16": 2.0**-8, "float32": 2.0**-24}  # largest relative error of a rounding
LEAST = 2.0**-24  # smallest float16; the other types have smaller numbers


def uniform(name: str, shape: Any, seed: int = 0) -> Any:
    return np.random.default_rng(seed).uniform(-1, 1, shape).astype(TYPES[name])


def changed(given: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return {**given, **changes}


def assert_within(got: Any, expected: Any, size: Any, roundings: int) -> None:
    """Allow one rounding to the type, and `roundings` of float32 relative to `size`."""
    allowed = UNIT[got.dtype.name] * np.abs(expected) + roundings * UNIT["float32"] * size + LEAST
    error = np.abs(got.astype(np.float64) - expected)
    assert np.all(error <= allowed), f"{np.max(error / allowed)} times the bound"


# ---- RopeWithSinCosCache --------------------------------------------------------------------------------


def cached_call(
    name: str, heads: tuple[int, int] = (3, 1), size: int = 64, width: int = 32, sections: Any = None
) -> dict[str, Any]:
    tokens, rows = 6, 11
    rng = np.random.default_rng(5)
    return {
        "positions": rng.integers(0, rows, (3, tokens) if sections else tokens),
        "query_in": uniform(name, (tokens, heads[0] * size)),
        "key_in": uniform(name, (tokens, heads[1] * size), 1),
        "cos_sin_cache": uniform(name, (rows, width), 2),
        "mrope_section": sections,
        "head_size": size,
        "is_neox_style": True,
        "query_out": np.ones((tokens, heads[0] * size), TYPES[name]),
        "key_out": np.ones((tokens, heads[1] * size), TYPES[name]),
    }


def assert_rotated_by_cache(given: dict[str, Any]) -> None:
    cache = given["cos_sin_cache"].astype(np.float64)
    tables = cache[given["positions"]]
    if given["positions"].ndim == 2:
        kinds = np.repeat(np.arange(3), given["mrope_section"])
        halves = np.split(tables, 2, axis=-1)
        cos, sin = (half[kinds, :, np.arange(len(kinds))].T for half in halves)
    else:
        cos, sin = np.split(tables, 2, axis=-1)
    width, size = cache.shape[1], given["head_size"]
    cos, sin = cos[:, None], sin[:, None]
    for x, y in ((given["query_in"], given["query_out"]), (given["key_in"], given["key_out"])):
        x = x.astype(np.float64).reshape(len(x), -1, size)
        y = y.reshape(x.shape)
        if given["is_neox_style"]:
            first, second = slice(0, width // 2), slice(width // 2, width)
        else:
            first, second = slice(0, width, 2), slice(1, width, 2)
        a, b = x[..., first], x[..., second]
        assert_within(y[..., first], a * cos - b * sin, np.abs(a * cos) + np.abs(b * sin), 3)
        assert_within(y[..., second], b * cos + a * sin, np.abs(b * cos) + np.abs(a * sin), 3)
        assert np.array_equal(y[..., width:].astype(np.float64), x[..., width:])


@pytest.mark.parametrize("name", ["float16", "float32", "bfloat16"])
@pytest.mark.parametrize("is_neox", [True, False])
def test_rope_with_sin_cos_cache_is_the_formula(opapi_910b, name, is_neox):
    calls = [
        cached_call(name), cached_call(name, width=64), cached_call(name, sections=[0, 0, 0]),
        cached_call(name, size=128, width=128, sections=[16, 24, 24]),
    ]  # fmt: skip
    for given in calls:
        given["is_neox_style"] = is_neox
        if given["mrope_section"] == [0, 0, 0]:  # torch_npu passes zeros for none
            given["positions"] = given["positions"][0].copy()
        opapi_910b.call("RopeWithSinCosCache", given)
        assert_rotated_by_cache(given)


def test_rope_with_sin_cos_cache_takes_rows_with_a_pitch(opapi_910b):
    given = cached_call("float32")
    wide = uniform("float32", (6, 500), 9)
    given["query_in"] = wide[:, 20 : 20 + 3 * 64]
    opapi_910b.call("RopeWithSinCosCache", given)
    assert_rotated_by_cache(given)


def test_rope_with_sin_cos_cache_fails_at_a_position_outside_the_cache(opapi_910b):
    for wrong in (-1, 11):
        given = cached_call("float32")
        given["positions"][2] = wrong
        with pytest.raises(RefusedPhase, match=f"positions must be in .0, 11. but got {wrong} in element 2"):
            opapi_910b.call("RopeWithSinCosCache", given)


def test_rope_with_sin_cos_cache_refusals(opapi):
    function = "RopeWithSinCosCache"
    given = cached_call("float16")
    if opapi.is_310p:
        assert_refused(opapi, function, given, "the chip must be", INVALID)
        return
    for name in ("positions", "query_in", "key_in", "cos_sin_cache", "query_out", "key_out"):
        assert_refused(opapi, function, changed(given, **{name: None}), f"{name} must not be null", NULL)
        wrong = changed(given, **{name: given[name].astype(np.int32)})
        assert_refused(opapi, function, wrong, f"{name} must be")
    for name in ("query_out", "key_out", "positions"):
        view = changed(given, **{name: strided(given[name])})
        assert_refused(opapi, function, view, f"{name} must be contiguous")
    view = changed(given, query_in=strided(given["query_in"]))
    assert_refused(opapi, function, view, "the last stride of query_in must be 1")
    sections = changed(given, mrope_section=[24, 20, 20])
    assert_refused(
        opapi, function, sections, r"mrope_section must be \[16,24,24\] or NULL but got \[24,20,20\]"
    )
    wrong_key = changed(given, key_out=np.ones((6, 32), np.float16))
    assert_refused(opapi, function, wrong_key, r"key_out must have the shape \[6,64\]")
    no_size = changed(given, head_size=0)
    assert_refused(opapi, function, no_size, "head_size must not be 0 but got 0")
    key = {name: given[name][:5].copy() for name in ("key_in", "key_out")}
    assert_refused(
        opapi, function, changed(given, **key), r"key_in must have the shape \[6,N\*64\] but got \[5,64\]"
    )
    tiling = [
        (cached_call("float16", size=48), "head_size must be a multiple of 32 from 16 to 128 but got 48"),
        (cached_call("float16", width=16), "the last dimension of cos_sin_cache must be a multiple of 32"),
        (cached_call("float32", size=16, width=32), "at most head_size but got 32"),
        (cached_call("float16", size=160), "head_size must be"),
        (changed(given, positions=given["positions"][:5].copy()), r"positions must have the shape \[6\]"),
        (cached_call("float16", sections=[16, 24, 24]), "be 128 with mrope_section but got 32"),
        (changed(given, head_size=128), r"query_in must have the shape \[6,N\*128\]"),
        (cached_call("float16", heads=(64, 8), size=128, width=128), "196608 bytes of UB"),
        (changed(given, cos_sin_cache=np.zeros((0, 32), np.float16)), "cos_sin_cache must have elements"),
    ]
    for call, message in tiling:
        assert_refused(opapi, function, call, message, TILING)


# ---- KvRmsNormRopeCache ---------------------------------------------------------------------------------

MODES = ["Norm", "PA", "PA_BNSD", "PA_BLK_BNSD", "PA_NZ", "PA_BLK_NZ"]
BATCHES, TOKENS, BLOCKS, BLOCK = 2, 5, 3, 32


CACHES = ("k_cache", "ckv_cache")


def kv_call(name: str, mode: str, quantized: tuple[str, ...] = ()) -> dict[str, Any]:
    caches = {}
    for key, size in (("k_cache", 64), ("ckv_cache", 512)):
        shape = (BATCHES, 1, 7, size) if mode == "Norm" else (BLOCKS, BLOCK, 1, size)
        caches[key] = np.full(shape, 9, TYPES["int8" if key in quantized else name])
    if mode == "Norm":
        index = np.stack([np.random.default_rng(seed).permutation(7)[:TOKENS] for seed in range(BATCHES)])
    elif "BLK" in mode:
        index = np.array([0 if "NZ" in mode else 2 * BLOCK, 0])
    else:
        index = np.random.default_rng(3).permutation(BLOCKS * BLOCK)[: BATCHES * TOKENS]
    index.flat[1 if "BLK" in mode else 3] = -1
    # Some token has the first row of a cache.
    if "BLK" not in mode and 0 not in (index[0] if mode == "Norm" else index):
        index.flat[0] = 0
    return {
        "kv": uniform(name, (BATCHES, 1, TOKENS, 576)), "gamma": uniform(name, 512, 1),
        "cos": uniform(name, (BATCHES, 1, TOKENS, 64), 2),
        "sin": uniform(name, (BATCHES, 1, TOKENS, 64), 3),
        "index": index, **caches,
        "k_rope_scale": np.full(64, 50, np.float32) if "k_cache" in quantized else None,
        "c_kv_scale": np.linspace(1, 40, 512, dtype=np.float32) if "ckv_cache" in quantized else None,
        "k_rope_offset": None, "c_kv_offset": None, "epsilon": 1e-5, "cache_mode": mode.encode(),
        "is_output_kv": True, "k_rope_out": np.ones((BATCHES, 1, TOKENS, 64), TYPES[name]),
        "c_kv_out": np.ones((BATCHES, 1, TOKENS, 512), TYPES[name]),
    }  # fmt: skip


def expected_rows(given: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    """The result of each token and the size of its terms, by the name of the cache."""
    kv = given["kv"].astype(np.float64)[:, 0]
    x, rope = kv[..., :512], kv[..., 512:]
    norm = x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-5) * given["gamma"].astype(np.float64)
    q = np.concatenate([rope[..., ::2], rope[..., 1::2]], -1)
    crossed = np.concatenate([-q[..., 32:], q[..., :32]], -1)
    cos, sin = (given[key].astype(np.float64)[:, 0] for key in ("cos", "sin"))
    rotated, size = q * cos + crossed * sin, np.abs(q * cos) + np.abs(crossed * sin)
    return {"k_cache": (rotated, size), "ckv_cache": (norm, np.abs(norm))}


def rows_of(cache: Any, mode: str) -> Any:
    """A cache as rows of tokens. In NZ a block's rows stand in columns of 32 bytes."""
    size = cache.shape[-1]
    if "NZ" not in mode:
        return cache.reshape(-1, size)
    width = 32 // cache.itemsize
    blocks = cache.reshape(BLOCKS, size // width, BLOCK, width)
    return blocks.transpose(0, 2, 1, 3).reshape(-1, size)


def token_rows(given: dict[str, Any], mode: str) -> Any:
    index = given["index"]
    if mode == "Norm":
        return np.where(index < 0, -1, index + 7 * np.arange(BATCHES)[:, None]).ravel()
    if "BLK" in mode:
        return np.concatenate([first + np.arange(TOKENS) if first >= 0 else [-1] * TOKENS for first in index])
    return index


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
@pytest.mark.parametrize(
    ("mode", "quantized"),
    [
        *((mode, ()) for mode in MODES),
        *((mode, CACHES) for mode in MODES[1:]),
        ("PA", CACHES[:1]),
        ("PA_BLK_NZ", CACHES[1:]),
    ],
)
def test_kv_rms_norm_rope_cache_writes_the_rows_of_index(opapi_910b, name, mode, quantized):
    given = kv_call(name, mode, quantized)
    opapi_910b.call("KvRmsNormRopeCache", given)
    rows = token_rows(given, mode)
    for key, (values, sizes) in expected_rows(given).items():
        cache = rows_of(given[key], mode)
        untouched = np.delete(cache, rows[rows >= 0], axis=0)
        assert np.all(untouched == 9)
        assert len(untouched) < len(cache)
        expected = values.reshape(-1, cache.shape[1])[rows >= 0]
        got = cache[rows[rows >= 0]]
        if key in quantized:
            scaled = expected * given["k_rope_scale" if key == "k_cache" else "c_kv_scale"].astype(np.float64)
            # Half a step, and the float32 error of a value up to 128.
            assert np.all(np.abs(got - np.clip(scaled, -128, 127)) <= 0.5 + 128 * 24 * UNIT["float32"])
        else:
            assert_within(got, expected, sizes.reshape(-1, cache.shape[1])[rows >= 0], 24)
        out = given["k_rope_out" if key == "k_cache" else "c_kv_out"]
        if mode == "Norm":  # is_output_kv is documented for the paged modes only
            assert np.all(out == 1)
        else:
            assert_within(out[:, 0], values, sizes, 24)


def test_kv_rms_norm_rope_cache_takes_a_row_as_scale_and_no_mode(opapi_910b):
    """Without a mode, it is Norm. In both cases, the call is the same as another one."""
    vectors, rows = (kv_call("float16", "PA", CACHES) for _ in range(2))
    rows |= {name: rows[name][None] for name in ("k_rope_scale", "c_kv_scale")}
    for one, other in (
        (vectors, rows),
        (kv_call("float16", "Norm"), kv_call("float16", "Norm") | {"cache_mode": None}),
    ):
        opapi_910b.call("KvRmsNormRopeCache", one)
        opapi_910b.call("KvRmsNormRopeCache", other)
        for name in (*CACHES, "k_rope_out", "c_kv_out"):
            assert np.array_equal(one[name], other[name])


def test_rotations_ask_for_the_workspace_of_their_tilings(opapi_910b):
    assert prepared(opapi_910b, "KvRmsNormRopeCache", kv_call("float16", "PA"))[0] == TILING_BYTES
    x, table = uniform("float16", (2, 3, 7, 64)), uniform("float16", (2, 1, 7, 64))
    given = {"x": x, "cos": table, "sin": table, "out": np.zeros_like(x)}
    assert prepared(opapi_910b, "InterleaveRope", given)[0] == TILING_BYTES


def test_kv_rms_norm_rope_cache_without_outputs_leaves_them(opapi_910b):
    given = changed(kv_call("float16", "PA"), is_output_kv=False)
    opapi_910b.call("KvRmsNormRopeCache", given)
    assert np.all(given["k_rope_out"] == 1)
    assert np.all(given["c_kv_out"] == 1)


def test_kv_rms_norm_rope_cache_fails_at_an_index_outside_or_repeated(opapi_910b):
    for mode, rows in (("Norm", 7), ("PA", BLOCKS * BLOCK), ("PA_BLK_NZ", BLOCKS * BLOCK)):
        for wrong, message in ((-2, "index must be in"), (rows, "index must be in")):
            given = kv_call("float16", mode)
            given["index"].flat[0] = wrong
            with pytest.raises(RefusedPhase, match=message):
                opapi_910b.call("KvRmsNormRopeCache", given)
        given = kv_call("float16", mode)
        given["index"].flat[1] = given["index"].flat[0]
        with pytest.raises(RefusedPhase, match="index must not repeat a row"):
            opapi_910b.call("KvRmsNormRopeCache", given)


def test_kv_rms_norm_rope_cache_refusals(opapi):
    function = "KvRmsNormRopeCache"
    given = kv_call("float16", "PA")
    if opapi.is_310p:
        assert_refused(opapi, function, given, "the chip must be", NULL)
        return
    for name in ("kv", "gamma", "cos", "sin", "index", "k_cache", "ckv_cache", "k_rope_out", "c_kv_out"):
        assert_refused(opapi, function, changed(given, **{name: None}), f"{name} must not be null", NULL)
        wrong = changed(given, **{name: given[name].astype(np.float64)})
        assert_refused(opapi, function, wrong, f"{name} must be")
    one_scale = changed(given, k_rope_scale=np.ones(64, np.float32))
    assert_refused(opapi, function, one_scale, "k_cache must be int8 but got float16")
    one_row = changed(given, **{name: uniform("float16", (2, 1, 1, 64)) for name in ("cos", "sin")})
    message = "one row of cos and sin for the tokens of a batch is not simulated"
    assert_refused(opapi, function, one_row, message, NOT_SIMULATED)
    for name in ("k_rope_out", "c_kv_out"):
        view = changed(given, **{name: strided(given[name])})
        assert_refused(opapi, function, view, f"{name} must be contiguous")
    offset = changed(given, c_kv_offset=np.ones(512, np.float32))
    assert_refused(opapi, function, offset, "c_kv_offset must be NULL")
    quantized = changed(kv_call("float16", "PA", CACHES), k_cache=given["k_cache"])
    assert_refused(opapi, function, quantized, "k_cache must be int8 but got float16")
    tiling = [
        (
            kv_call("float16", "Norm", CACHES),
            "cache_mode must be a paged mode with k_rope_scale or c_kv_scale but got Norm",
        ),
        (changed(given, cache_mode=b"PA_XX"), "cache_mode must be Norm, PA"),
        (changed(given, cache_mode=None), r"k_cache must have the shape \[2,1,1,64\]"),  # of the mode Norm
        (changed(given, kv=uniform("float16", (5, 576))), "kv must have 4 dimensions but got 2"),
        (
            changed(given, cos=uniform("float16", (1, 1, 1, 1, 1, 2, 1, 5, 64))),
            "cos must have 4 dimensions but got 9",
        ),
        (
            changed(given, gamma=uniform("float16", (1, 512))),
            r"gamma must have the shape \[512\] but got \[1,512\]",
        ),
        (
            changed(given, ckv_cache=np.ones((32, 512), np.float16)),
            "ckv_cache must have 4 dimensions but got 2",
        ),
        (changed(given, index=np.zeros((), np.int64)), r"index must have the shape \[10\]"),
        (
            changed(kv_call("float16", "PA", CACHES), c_kv_scale=np.ones((2, 512), np.float32)),
            r"c_kv_scale must have the shape \[512\]",
        ),
        (changed(given, kv=uniform("float16", (2, 2, 5, 576))), r"kv must have the shape \[2,1,5,576\]"),
        (changed(given, gamma=uniform("float16", 64)), r"gamma must have the shape \[512\]"),
        (changed(given, cos=uniform("float16", (2, 1, 1, 64))), r"cos must have the shape \[2,1,5,64\]"),
        (changed(given, index=np.zeros((2, 5), np.int64)), r"index must have the shape \[10\]"),
        (
            changed(given, k_cache=np.ones((3, 24, 1, 64), np.float16)),
            "block size of k_cache must be a multiple of 16",
        ),
        (changed(given, k_cache=np.ones((1, 32, 1, 64), np.float16)), "k_cache must have at least 2 blocks"),
        (
            changed(given, k_cache=np.ones((4, 32, 1, 64), np.float16)),
            r"k_cache must have the shape \[3,32,1,64\]",
        ),
        (changed(kv_call("float16", "Norm"), k_cache=np.ones((2, 1, 4, 64), np.float16)), "at least 5 rows"),
    ]
    for call, message in tiling:
        assert_refused(opapi, function, call, message, TILING)
