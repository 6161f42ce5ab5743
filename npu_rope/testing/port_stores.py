"""The functions of torch_npu that store into KV caches, as suite ``torch_npu`` calls them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from npu_rope.testing import port_spec
from npu_rope.testing.cases import rounded
from npu_rope.testing.outcomes import Expectation
from npu_rope.testing.port_case import (
    EPSILON,
    Array,
    Arrays,
    Generator,
    PortCase,
    PortFunction,
    Shapes,
    norm_of,
)


class _Store(PortFunction):
    """A function that stores into caches.

    Attributes:
        caches: the prefixes of the tensors of an int8 cache, by cache.
    """

    caches: Mapping[str, str]
    indices = ("index",)
    operators = ("qkv_norm_rope_cache",)
    types = ("float16", "bfloat16")

    def column(self, case: PortCase) -> int:
        """Return the elements of a column of the layout NZ."""
        return 32 if case.quantized else 8 if case.dtype == "float32" else 16

    def keywords(self, case: PortCase) -> tuple[str, ...]:
        parts = [part for part in ("scale", "offset") if part in case.quantized]
        return tuple(f"{prefix}_{part}" for part in parts for prefix in self.caches.values())

    def dtype_of(self, case: PortCase, name: str) -> str:
        if name.endswith(("_scale", "_offset")):
            return "float32"
        return "int8" if case.quantized and name in self.caches else super().dtype_of(case, name)

    def values(self, case: PortCase, name: str, shape: tuple[int, ...], generator: Generator) -> Array:
        if name.endswith("_scale"):
            return self.scale(rounded(generator.uniform(20, 60, shape), "float32"))
        if name.endswith("_offset"):
            return rounded(generator.uniform(-10, 10, shape), "float32")
        if name != "index":
            return super().values(case, name, shape, generator)
        index = self.index(case, generator)
        index.flat[0] = -1
        return index.reshape(shape)

    def scale(self, factor: Array) -> Array:
        """Return the argument for a factor."""
        return factor

    def index(self, case: PortCase, generator: Generator) -> Array:
        """Return a row for each token."""
        raise NotImplementedError

    def factors(self, arrays: Arrays, cache: str) -> list[Any]:
        """Return factor and offset of a cache as ``[N,1,D]``; None for those that are absent."""
        given = (arrays.get(f"{self.caches[cache]}_{part}") for part in ("scale", "offset"))
        return [None if t is None else np.atleast_2d(t.astype(np.float64))[:, None] for t in given]


class _KvRmsNormRopeCache(_Store):
    caches: Mapping[str, str] = {"k_cache": "k_rope", "ckv_cache": "c_kv"}
    results = ("k_cache", "ckv_cache", "k_embed_out", "y_out")
    written = ("k_cache", "ckv_cache")
    aclnn = "aclnnKvRmsNormRopeCache"

    def sizes(self, case: PortCase) -> tuple[int, int]:
        """Return the widths of the two caches."""
        size = case.shape[-1]
        return (size, case.values) if case.values else (case.table[-1], size - case.table[-1])

    def shapes(self, case: PortCase) -> Shapes:
        batches, heads, tokens, size = case.shape
        is_norm, sizes = case.cache_mode == "Norm", self.sizes(case)
        blocks = -(-tokens // case.rows[-1]) if "BLK" in case.cache_mode else tokens
        outer = (batches, heads, case.rows[0]) if is_norm else (*case.rows, heads)
        shapes = {
            "kv": case.shape,
            "gamma": (size if case.values else sizes[1],),
            "cos": case.table,
            "sin": case.table,
            "index": (batches, tokens) if is_norm else (batches * blocks,),
            "k_cache": (*outer, sizes[0]),
            "ckv_cache": (*outer, sizes[1]),
        }
        for name in self.keywords(case):
            cache_size = sizes[name.startswith("c_kv")]
            shapes[name] = (cache_size,) if heads == 1 else (heads, cache_size)
        return shapes | ({"v": (*case.shape[:3], case.values)} if case.values else {})

    def keywords(self, case: PortCase) -> tuple[str, ...]:
        return (*super().keywords(case), *(("v",) if case.values else ()))

    def options(self, case: PortCase) -> dict[str, Any]:
        named = {"cache_mode": case.cache_mode, "is_output_kv": case.outputs}
        return {"epsilon": EPSILON, **named}

    def results_of(self, case: PortCase) -> tuple[str, ...]:
        return self.results if case.outputs else self.written

    def index(self, case: PortCase, generator: Generator) -> Array:
        batches, _, tokens, _ = case.shape
        if case.cache_mode == "Norm":
            return np.stack([generator.permutation(case.rows[0])[:tokens] for _ in range(batches)])
        blocks, block_size = case.rows
        if "BLK" in case.cache_mode:
            return block_size * generator.permutation(blocks)[: batches * -(-tokens // block_size)]
        return generator.permutation(blocks * block_size)[: batches * tokens]

    def expected(self, case: PortCase, arrays: Arrays, backend: str) -> list[Expectation]:
        kv, cos, sin = (arrays[name] for name in ("kv", "cos", "sin"))
        gamma, width = arrays["gamma"], case.table[-1]
        x, rest = (kv, None) if case.values else (kv[..., : len(gamma)], kv[..., len(gamma) :])
        of_norm = port_spec.normalized(norm_of(case, x, gamma), backend)
        to_rotate = of_norm if rest is None else port_spec.exact(rest)
        order = [*range(0, width, 2), *range(1, width, 2), *range(width, to_rotate.value.shape[-1])]
        reordered = Expectation(to_rotate.value[..., order], to_rotate.bound[..., order])
        k = port_spec.rotated(reordered, cos, sin)
        tokens = {"k_cache": k, "ckv_cache": port_spec.exact(arrays["v"]) if case.values else of_norm}
        caches = []
        for name, y in tokens.items():
            rows = port_spec.stored(y, case.dtype, *self.factors(arrays, name))
            place = arrays["index"], case.rows[-1], case.cache_mode, self.column(case)
            caches.append(port_spec.in_rows(arrays[name], rows, *place))
        return [*caches, *(port_spec.stored(y, case.dtype) for y in tokens.values())]


class _QkvRmsNormRopeCache(_Store):
    caches: Mapping[str, str] = {"k_cache": "k", "v_cache": "v"}
    results = ("q_out", "k_cache", "v_cache", "q", "k", "v")
    written = ("q_out", "k_cache", "v_cache")
    returns_written = False
    aclnn = "aclnnQkvRmsNormRopeCache"
    not_simulated = "aclnnQkvRmsNormRopeCache is not simulated"

    def shapes(self, case: PortCase) -> Shapes:
        tokens, heads, size = case.shape
        queries, (blocks, block_size), width = heads - 2 * case.keys, case.rows, self.column(case)
        cache = (blocks, case.keys * size // width, block_size, width)
        shapes = {
            "qkv": (tokens, heads * size),
            "q_gamma": (size,),
            "k_gamma": (size,),
            "cos": case.table,
            "sin": case.table,
            "index": (tokens,),
            "q_out": (tokens, queries * size),
            "k_cache": cache,
            "v_cache": cache,
        }
        return shapes | dict.fromkeys(self.keywords(case), (case.keys, size))

    def options(self, case: PortCase) -> dict[str, Any]:
        tokens, heads, size = case.shape
        sizes = {"qkv_size": [tokens, 1, heads, size]}
        sizes["head_nums"] = [heads - 2 * case.keys, case.keys, case.keys]
        return {**sizes, "epsilon": EPSILON, "cache_mode": case.cache_mode, "is_output_qkv": case.outputs}

    def results_of(self, case: PortCase) -> tuple[str, ...]:
        return self.results if case.outputs else self.written

    def scale(self, factor: Array) -> Array:
        return (1 / factor).astype(np.float32)  # a divisor

    def factors(self, arrays: Arrays, cache: str) -> list[Any]:
        divisor, offset = super().factors(arrays, cache)
        return [None if divisor is None else 1 / divisor, offset]

    def index(self, case: PortCase, generator: Generator) -> Array:
        return generator.permutation(case.rows[0] * case.rows[1])[: case.shape[0]]

    def expected(self, case: PortCase, arrays: Arrays, backend: str) -> list[Expectation]:
        tokens, heads, size = case.shape
        by_head = arrays["qkv"].reshape(tokens, heads, size).transpose(1, 0, 2)  # [N,T,D]
        queries = heads - 2 * case.keys
        q, k, v = np.split(by_head, [queries, queries + case.keys])
        cos, sin = arrays["cos"], arrays["sin"]
        rotated = [
            port_spec.rotated(port_spec.normalized(norm_of(case, x, arrays[gamma]), backend), cos, sin)
            for x, gamma in ((q, "q_gamma"), (k, "k_gamma"))
        ]
        parts = [*rotated, port_spec.exact(v)]
        caches = []
        for name, y in zip(self.caches, parts[1:], strict=True):
            rows = port_spec.stored(y, case.dtype, *self.factors(arrays, name))
            batch = Expectation(rows.value[None], rows.bound[None])
            place = arrays["index"], case.rows[1], case.cache_mode, self.column(case)
            caches.append(port_spec.in_rows(arrays[name], batch, *place))
        flat = [
            Expectation(*(t.transpose(1, 0, 2).reshape(tokens, -1) for t in (y.value, y.bound)))
            for y in (port_spec.stored(y, case.dtype) for y in parts)
        ]
        return [flat[0], *caches, *flat]


STORES: Mapping[str, PortFunction] = {
    "npu_kv_rmsnorm_rope_cache": _KvRmsNormRopeCache(),
    "npu_qkv_rms_norm_rope_cache": _QkvRmsNormRopeCache(),
}
