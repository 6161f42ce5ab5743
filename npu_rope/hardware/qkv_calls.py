"""The calls of qkv_norm_rope_cache and qk_square_sums in ``npu-rope hardware-report``.

The name of a call seeds the generator of its values.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from npu_rope.call_tensors import CallTensors
from npu_rope.params import RopeParams
from npu_rope.qkv_norm_rope_cache_calls import CACHES, QkvAttributes, qkv_tensors
from npu_rope.testing.bounds import TABLE_ERROR_DEVICE, square_sums_bound
from npu_rope.testing.cases import rounded
from npu_rope.testing.outcomes import Expectation
from npu_rope.testing.qkv import expected_results, in_cache

Array = npt.NDArray[Any]
BLOCK_SIZE = 16  # tokens of a block of the paged caches
TABLE_ROWS = 8192
RANKS = 2


def _generator(name: str) -> np.random.Generator:
    return np.random.default_rng(zlib.crc32(name.encode()))


class QkvCall:
    """A call with a norm of each head, and paged caches for keys and values.

    Attributes:
        arrays: the tensors by their names, bfloat16 as float32 values.
        dtypes: the names of their types.
        attributes: the attributes.
    """

    def __init__(
        self,
        name: str,
        dtype: str,
        shape: tuple[int, ...],
        keys: int,
        *,
        caches: str = "",
        tables: bool = False,
        all_heads: bool = False,
    ) -> None:
        """Draw the values.

        Args:
            name: the call's name.
            dtype: the type of q, k and v.
            shape: of q, ``[S,N,D]``.
            keys: the number of heads of k and of v.
            caches: the type of the caches; "": that of q.
            tables: whether tables are given, ``[P,D/2]`` each, in place of frequencies.
            all_heads: the norm covers all heads of a token, and ``square_sums`` of two ranks are given.
        """
        rng = _generator(name)
        S, N, D = shape
        self.dtypes: dict[str, str] = {}
        self.arrays: dict[str, Array] = {}
        for x, heads in (("q", N), ("k", keys), ("v", keys)):
            self._add(x, dtype, rng.standard_normal((S, heads, D)))
        for scale, heads in (("q_scale", N), ("k_scale", keys)):
            self._add(scale, dtype, 1 + 0.1 * rng.standard_normal(D * heads if all_heads else D))
        if all_heads:
            sums = np.stack([(self.arrays[x].astype(np.float64) ** 2).sum((1, 2)) for x in "qk"], axis=1)
            self._add("square_sums", "float32", RANKS * sums)
        if tables:
            angles = np.outer(np.arange(TABLE_ROWS), 1e6 ** -(np.arange(D // 2) / (D // 2)))
            self._add("cos", dtype, np.cos(angles))
            self._add("sin", dtype, np.sin(angles))
        self.arrays["positions"] = 1000 + np.arange(S, dtype=np.int32)
        self._add_caches(rng, caches or dtype, S, keys, D)
        params = RopeParams(D, "neox", freq_base=1e6)
        self.attributes = QkvAttributes(params, epsilon=1e-6, ranks=RANKS if all_heads else 1)

    def _add(self, name: str, dtype: str, values: Array) -> None:
        self.dtypes[name], self.arrays[name] = dtype, rounded(values, dtype)

    def _add_caches(self, rng: np.random.Generator, dtype: str, S: int, heads: int, D: int) -> None:
        blocks = -(-2 * S // BLOCK_SIZE)
        slots = rng.permutation(blocks * BLOCK_SIZE)[:S]
        slots[2::3] = -1  # every third token is left out
        self.arrays["slots"] = slots
        for cache in CACHES:
            shape = (blocks, BLOCK_SIZE, heads, D)
            if dtype == "int8":
                self.arrays[cache] = rng.integers(-128, 128, shape).astype(np.int8)
                self.dtypes[cache] = dtype
                self._add(f"{cache[0]}_quant_scale", "float32", 30 + rng.random(heads))
            else:
                self._add(cache, dtype, rng.standard_normal(shape))

    def tensors(self, values: Mapping[str, Any], q_out: Any) -> CallTensors[Any]:
        """Return the call on these values, which have the names of ``arrays``. It writes queries to q_out."""
        others = dict(values)
        xs = {x: others.pop(x) for x in "qkv"}
        outs = {"q_out": q_out, **{cache: others.pop(cache) for cache in CACHES}}
        return qkv_tensors(xs, others, outs)

    def expect(self) -> list[Expectation]:
        """Return the float64 results of q and the caches, with their bounds on an NPU."""
        call = self.tensors(self.arrays, None)
        out_dtypes = {"q": self.dtypes["q"], **{x: self.dtypes[f"{x}_cache"] for x in "kv"}}
        results = expected_results(call, self.attributes, self.dtypes["q"], out_dtypes, TABLE_ERROR_DEVICE)
        for x in "kv":
            results[x] = in_cache(self.arrays[f"{x}_cache"], results[x], self.arrays["slots"])
        return [Expectation(results[x].value, results[x].bound) for x in "qkv"]


class SquareSumsCall:
    """A call of qk_square_sums, with queries of this shape ``[S,N,D]`` and this number of heads of keys."""

    def __init__(self, name: str, dtype: str, shape: tuple[int, ...], keys: int) -> None:
        rng = _generator(name)
        S, N, D = shape
        self.dtype = dtype
        self.arrays = {
            x: rounded(rng.standard_normal((S, heads, D)), dtype) for x, heads in (("q", N), ("k", keys))
        }

    def expect(self) -> list[Expectation]:
        """Return the float64 sums with their bounds on an NPU."""
        sides = [x.astype(np.float64) for x in self.arrays.values()]
        sums = [(x**2).sum((1, 2)) for x in sides]
        bounds = [
            square_sums_bound(of_side, x[0].size, self.dtype, "npu")
            for of_side, x in zip(sums, sides, strict=True)
        ]
        return [Expectation(np.stack(sums, axis=1), np.stack(bounds, axis=1))]
