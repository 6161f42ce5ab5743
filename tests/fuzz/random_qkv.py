"""Random calls of qkv_norm_rope_cache, compared with float64 (``npu_rope/testing/qkv.py``).

The draws vary types, modes, windows, norms, tables, strides, caches and their layouts, and quantization. Some
calls have sides without heads, or values of another head size.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np
from choices import Choices
from random_calls import ARRAYS

from npu_rope import RopeMode, RopeParams, qkv_norm_rope_cache
from npu_rope.optional_torch import torch
from npu_rope.qkv_norm_rope_cache_calls import QkvAttributes, qkv_tensors
from npu_rope.testing.bounds import TABLE_ERROR_DEVICE, TABLE_ERROR_HOST, is_device, worst_ratio
from npu_rope.testing.chip_types import lacks_type
from npu_rope.testing.qkv import Expected, expected_results, in_cache

OP = "qkv_norm_rope_cache"
DTYPES = ("float32", "float16", "bfloat16", "float64")
NUMPY = {
    "float32": np.float32,
    "float16": np.float16,
    "bfloat16": ml_dtypes.bfloat16,
    "float64": np.float64,
    "int8": np.int8,
}


@dataclass
class QkvCase:
    """A call: the arguments of the Python function besides out, and how it writes."""

    dtype: str
    params: RopeParams
    xs: dict[str, Any]
    named: dict[str, Any] = field(default_factory=dict)  # other tensors, and numbers
    writes: str = "new"  # or "out", "in place", "caches"

    @property
    def text(self) -> str:
        """The call in words."""
        shapes = {name: list(x.shape) for name, x in {**self.xs, **self.tensors}.items()}
        caches = {n: f"{t.dtype}{list(t.shape)}" for n, t in self.named.items() if "cache" in n}
        numbers = {n: t for n, t in self.named.items() if not isinstance(t, np.ndarray)}
        return f"{self.dtype} {self.writes} {self.params} {shapes} {caches} {numbers}"

    @property
    def tensors(self) -> dict[str, Any]:
        return {
            name: t for name, t in self.named.items() if isinstance(t, np.ndarray) and "cache" not in name
        }

    def attributes(self) -> QkvAttributes:
        numbers = {n: v for n, v in self.named.items() if n in ("epsilon", "scale_offset", "ranks")}
        return QkvAttributes(self.params, **numbers)


def values(rng, shape, dtype, size=1.0):
    return (rng.standard_normal(shape) * size).astype(NUMPY[dtype])


def case_of(seed: int | tuple[int, ...], **fixed: Any) -> QkvCase:
    """Return the call of a seed. fixed: values of dtype, mode, norm, tables or writes."""
    return draw(Choices(f"qkv {seed}"), **fixed)


def draw(choices: Choices, op: str = OP, dtypes: tuple[str, ...] = DTYPES, **fixed: Any) -> QkvCase:
    """Return one call. fixed: as for case_of."""
    rng = choices.numbers()

    def choose(name, options):
        return fixed.get(name, choices.choice(options))

    dtype = choose("dtype", dtypes)
    mode = RopeMode[choose("mode", ("normal", "neox", "neox", "mrope", "imrope", "vision")).upper()]
    S, heads = choices.choice((1, 1, 2, 2, 5, 5, 11, 70)), [choices.choice((1, 2, 3, 8)) for _ in range(3)]
    if choices.chance(0.2):
        heads = [0 if choices.chance(0.5) else N for N in heads]
    D = choices.choice((4, 8, 16, 34, 64, 96, 128))
    if mode is RopeMode.VISION:
        D -= D % 4
    n_dims = D // 2 if mode is RopeMode.VISION else choices.choice((D, max(2, D // 4 * 2)))
    n_offs = 0 if mode is RopeMode.VISION else choices.integer(0, (D - n_dims) // 2) * 2
    sections = (1, 1, 1, 1) if mode.has_sections else (0, 0, 0, 0)
    params = RopeParams(
        n_dims, mode=mode, n_offs=n_offs, sections=sections, attn_factor=choices.choice((1.0, 0.8))
    )
    Dv = choices.choice((D, 24, 6, 160))
    case = QkvCase(dtype, params, views(choices, rng, dtype, S, heads, D, Dv))
    _add_norm(choices, rng, case, choose("norm", ("none", "head", "all", "sums", "bias")), heads, D)
    _add_angles(choices, rng, case, choose("tables", (None, "pair", "lane", "row")), S)
    case.writes = choose("writes", ("new", "out", "in place", "caches", "caches"))
    if case.writes == "caches":
        _add_caches(choices, rng, case, S, heads, D, Dv, dtypes)
    return case


def views(choices, rng, dtype, S, heads, D, Dv):
    """Return q, k and v: views of one fused tensor, or tensors with gaps between tokens and heads."""
    if Dv == D and not choices.chance(0.5):
        fused = values(rng, (S, sum(heads), D), dtype)
        splits = np.cumsum(heads)
        return dict(zip("qkv", np.split(fused, splits[:2], axis=1), strict=True))
    return {
        name: values(rng, (S, N + 1, d + 2), dtype)[:, :N, 2:]
        for name, N, d in zip("qkv", heads, (D, D, Dv), strict=True)
    }


def _add_norm(choices, rng, case, norm, heads, D):
    if norm == "none":
        return
    scale_dtype = choices.choice((case.dtype, "float32"))
    for name, N in zip("qk", heads[:2], strict=True):
        if N == 0 and choices.chance(0.5):
            continue
        size = D if norm in ("head", "bias") else N * D
        case.named[f"{name}_scale"] = values(rng, (size,), scale_dtype)
        if norm == "bias":
            case.named[f"{name}_bias"] = values(rng, (size,), scale_dtype)
    case.named |= {"epsilon": choices.choice((0.0, 1e-6, 1e-3)), "scale_offset": choices.choice((0.0, 1.0))}
    if norm == "sums":
        ranks, sums = choices.choice((1, 4)), np.float64 if case.dtype == "float64" else np.float32
        case.named["square_sums"] = (rng.random((len(case.xs["q"]), 2)) * ranks * 50 + 1).astype(sums)
        case.named["ranks"] = ranks


def _add_angles(choices, rng, case, tables, S):
    pairs, index = case.params.pairs, choices.choice((np.int32, np.int64))
    planes = case.params.rope_mode.has_sections
    shape = (choices.choice((3, 4)), S) if planes else (S,)
    if tables is None:
        case.named["positions"] = rng.integers(-5, 4000, shape).astype(index)
        if choices.chance(0.5):
            case.named["freq_factors"] = (rng.random(pairs) + 0.5).astype(np.float32)
        return
    rows, width = 90, 2 * pairs if tables == "lane" else pairs
    table = choices.choice((case.dtype, "float32"))
    case.named |= {name: values(rng, (rows, width), table) for name in ("cos", "sin")}
    if tables != "row" or planes:
        case.named["positions"] = rng.integers(0, rows, shape).astype(index)


def _add_caches(choices, rng, case, S, heads, D, Dv, dtypes):
    block = choices.choice((1, 4, 16))
    blocks = S // block + 2
    slots = rng.permutation(block * blocks)[:S].astype(choices.choice((np.int32, np.int64)))
    slots[rng.random(S) < 0.2] = -1
    case.named["slots"] = slots
    narrow = [dtype for dtype in ("float16", "bfloat16") if dtype in dtypes]
    for name, N, d in zip("kv", heads[1:], (D, Dv), strict=True):
        dtype = choices.choice((case.dtype, *narrow, "float32", "int8"))
        layout = choices.choice(("slots", "heads first", "blocks"))
        if dtype == "int8":
            cache = rng.integers(-128, 128, (blocks, block, N, d)).astype(np.int8)
            shape = choices.choice(((1,), (N,), (N, d)))
            case.named[f"{name}_quant_scale"] = values(rng, shape, "float32", 30)
            if choices.chance(0.5):
                case.named[f"{name}_quant_offset"] = values(rng, shape, "float32", 10)
        else:
            cache = values(rng, (blocks, block, N, d), dtype)
        if layout == "slots":
            cache = cache.reshape(blocks * block, N, d)
        elif layout == "heads first":
            cache = np.ascontiguousarray(cache.swapaxes(1, 2)).swapaxes(1, 2)
        case.named[f"{name}_cache"] = cache


# ---- runs ----------------------------------------------------------------------------------------------


def as_torch(array):
    if array.dtype == NUMPY["bfloat16"]:
        bits = np.ascontiguousarray(array).view(np.int16)
        return torch.from_numpy(bits.copy()).view(torch.bfloat16)
    return torch.from_numpy(array)


def as_numpy(result):
    if isinstance(result, np.ndarray):
        return result.astype(np.float64)
    return result.detach().double().numpy()


def run(case: QkvCase, backend: str, framework: str = "numpy") -> dict[str, Any]:
    """Run the call on copies of its tensors; return the results by q, k and v, in float64."""
    results = results_of(case, backend, framework)
    return {name: as_numpy(result) for name, result in zip("qkv", results, strict=True)}


def results_of(case: QkvCase, backend: str, framework: str = "numpy") -> Any:
    """Run the call on copies of its tensors; return the results of q, k and v in their types."""
    copies = {name: _copied(t) for name, t in {**case.xs, **case.named}.items()}
    if framework == "torch":
        copies = {name: _torch_copy(t) if isinstance(t, np.ndarray) else t for name, t in copies.items()}
    xs = {name: copies.pop(name) for name in "qkv"}
    positions = copies.pop("positions", None)
    if case.writes == "out":
        copies["out"] = tuple(_new_like(x) for x in xs.values())
    if case.writes == "in place":
        copies["out"] = tuple(xs.values())
    chosen = None if framework == "torch" and backend == "cpu" else backend
    return qkv_norm_rope_cache(*xs.values(), positions, case.params, backend=chosen, **copies)


def _copied(value):
    """Return a copy of an array, with its order of strides."""
    return value.copy(order="K") if isinstance(value, np.ndarray) else value


def _torch_copy(array):
    order = np.argsort([-s for s in array.strides], kind="stable")
    dense = np.ascontiguousarray(array.transpose(order))
    return as_torch(dense).permute(*np.argsort(order).tolist())


def _new_like(x):
    if isinstance(x, np.ndarray):
        return np.full(x.shape, 7, x.dtype)
    return torch.full(x.shape, 7, dtype=x.dtype)


def expectation(case: QkvCase, backend: str) -> dict[str, Expected]:
    """Return the expectation for q, k and v, or the caches, on that back end."""

    def wide(t):
        return t.astype(np.float32) if t.dtype == NUMPY["bfloat16"] else t

    others = {name: wide(t) for name, t in case.tensors.items()}
    call = qkv_tensors({name: wide(x) for name, x in case.xs.items()}, others, {})
    caches = {name: case.named.get(f"{name}_cache") for name in "kv"}
    dtypes = {name: case.dtype if caches.get(name) is None else str(caches[name].dtype) for name in "qkv"}
    table_error = TABLE_ERROR_DEVICE if is_device(backend) else TABLE_ERROR_HOST
    results = expected_results(call, case.attributes(), case.dtype, dtypes, table_error)
    for name, cache in caches.items():
        if cache is not None:
            results[name] = in_cache(wide(cache), results[name], case.named["slots"])
    return results


def worst(case: QkvCase, results: dict[str, Any], backend: str = "cpu") -> dict[str, float]:
    """Return the largest ratio of an error to its bound for q, k and v."""
    expected = expectation(case, backend)
    return {name: worst_ratio(results[name], *expected[name])[0] for name in "qkv"}


# ---- judgement -----------------------------------------------------------------------------------------


def refused(call: QkvCase, backend: str) -> bool:
    """Return whether the back end's device lacks a type of the call. Caches without heads have any type."""
    caches = [call.named[name] for name in ("k_cache", "v_cache") if name in call.named]
    return bool(lacks_type(backend, (call.dtype, *(str(cache.dtype) for cache in caches if cache.size))))


def judge(call: QkvCase, backend: str) -> float:
    """Run the call on arrays and on tensors; return the largest ratio of an error to its bound."""
    frameworks = ARRAYS if backend == "cpu" else ("numpy",)
    return max(ratio for f in frameworks for ratio in worst(call, run(call, backend, f), backend).values())
