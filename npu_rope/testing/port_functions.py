"""The functions of torch_npu that suite ``torch_npu`` calls, by their names.

Here are the rotations and the RMS norms; :mod:`.port_stores` has the functions that store into KV caches.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from npu_rope.testing import port_spec
from npu_rope.testing.cases import rounded
from npu_rope.testing.outcomes import Expectation
from npu_rope.testing.port_case import (
    CACHE_ROWS,
    EPSILON,
    Array,
    Arrays,
    Generator,
    PortCase,
    PortFunction,
    Shapes,
    norm_of,
)
from npu_rope.testing.port_stores import STORES


class _RotaryMul(PortFunction):
    tables = ("r1", "r2")
    aclnn = "aclnnRotaryPositionEmbedding"
    # op-plugin RotaryMulKernelNpuOpApi.cpp
    not_on_310p = "it calls the aclop RotaryMul on Ascend310P, whose roundings have no source"

    def shapes(self, case: PortCase) -> Shapes:
        return {"input": case.shape, "r1": case.table, "r2": case.table}

    def options(self, case: PortCase) -> dict[str, Any]:
        return {"rotary_mode": case.mode}

    def expected(self, case: PortCase, arrays: Arrays, backend: str) -> list[Expectation]:
        cos, sin = arrays["r1"], arrays["r2"]
        if not backend:  # torch_npu converts the tables to the dtype of input
            cos, sin = (rounded(table.astype(np.float64), case.dtype) for table in (cos, sin))
        return [port_spec.rotation(arrays["input"], cos, sin, case.mode, case.dtype)]


class _ApplyRotaryPosEmb(PortFunction):
    results = ("query", "key")
    written = ("query", "key")
    aclnn = "aclnnApplyRotaryPosEmbV2"

    def shapes(self, case: PortCase) -> Shapes:
        heads = case.layout.index("N")
        key = (*case.shape[:heads], case.keys, *case.shape[heads + 1 :])
        return {"query": case.shape, "key": key, "cos": case.table, "sin": case.table}

    def options(self, case: PortCase) -> dict[str, Any]:
        return {"layout": case.layout, "rotary_mode": case.mode}

    def expected(self, case: PortCase, arrays: Arrays, backend: str) -> list[Expectation]:
        compute = "float16" if case.dtype == "float16" and not backend else ""
        cos, sin = arrays["cos"], arrays["sin"]
        return [
            port_spec.rotation(arrays[name], cos, sin, case.mode, case.dtype, compute)
            for name in self.written
        ]


class _InterleaveRope(PortFunction):
    aclnn = "aclnnInterleaveRope"
    types = ("float16", "bfloat16")

    def shapes(self, case: PortCase) -> Shapes:
        return {"x": case.shape, "cos": case.table, "sin": case.table}

    def expected(self, case: PortCase, arrays: Arrays, backend: str) -> list[Expectation]:
        x = port_spec.evens_first(arrays["x"])
        return [port_spec.rotation(x, arrays["cos"], arrays["sin"], "half", case.dtype)]


class _CacheRotation(PortFunction):
    """A rotation of query and key by the rows of cos_sin_cache at the positions."""

    results = ("query", "key")

    def expected(self, case: PortCase, arrays: Arrays, backend: str) -> list[Expectation]:
        tokens, _, size = case.shape
        cos, sin = port_spec.rows_of_cache(
            arrays["cos_sin_cache"], arrays["positions"], case.sections, case.cache_mode, case.mode
        )
        found = []
        for name in self.results:
            heads, shape = arrays[name].reshape(tokens, -1, size), arrays[name].shape
            by_head = port_spec.rotation(heads, cos, sin, case.mode, case.dtype)
            found.append(Expectation(by_head.value.reshape(shape), by_head.bound.reshape(shape)))
        return found


class _Mrope(_CacheRotation):
    aclnn = "aclnnRopeWithSinCosCache"

    def shapes(self, case: PortCase) -> Shapes:
        tokens, heads, size = case.shape
        positions = (len(case.sections), tokens) if any(case.sections) else (tokens,)
        query, key = (tokens, heads * size), (tokens, case.keys * size)
        return {
            "positions": positions,
            "query": query,
            "key": key,
            "cos_sin_cache": (CACHE_ROWS, *case.table),
        }

    def options(self, case: PortCase) -> dict[str, Any]:
        # Without mrope_section, torch_npu 2.13 passes numbers from memory that is no longer valid.
        return {
            "head_size": case.shape[2],
            "mrope_section": list(case.sections),
            "rotary_mode": case.mode,
            "cache_mode": case.cache_mode,
        }


class _RotaryEmbedding(_CacheRotation):
    tables = ("cos_sin_cache",)
    written = ("query", "key")
    returns_written = False
    aclnn = "RopeOperation"
    types = ("float16", "bfloat16")
    not_on_310p = ""

    def shapes(self, case: PortCase) -> Shapes:
        tokens, heads, size = case.shape
        query = (1, *case.shape) if case.layout == "BSND" else (tokens, heads * size)
        cache = (CACHE_ROWS, *case.table)
        return {
            "positions": (tokens,),
            "query": query,
            "key": (tokens, case.keys * size),
            "cos_sin_cache": cache,
        }

    def values(self, case: PortCase, name: str, shape: tuple[int, ...], generator: Generator) -> Array:
        if name == "cos_sin_cache":  # torch_npu uses the cache of the process's first call in all of them
            generator = np.random.default_rng(0)
        return super().values(case, name, shape, generator)

    def keywords(self, case: PortCase) -> tuple[str, ...]:
        return ("cos_sin_cache",)

    def limit(self, case: PortCase) -> str:
        is_refused = case.dtype == "bfloat16" and case.wide
        return "cos_sin_cache must have the dtype of query in bfloat16" if is_refused else case.limit

    def options(self, case: PortCase) -> dict[str, Any]:
        return {"head_size": case.shape[2], "is_neox_style": case.mode == "half"}


class _RmsNorm(PortFunction):
    tables = ("gamma",)
    results: tuple[str, ...] = ("y", "rstd")
    aclnn = "aclnnRmsNorm"
    not_on_310p = ""

    def shapes(self, case: PortCase) -> Shapes:
        return {"input": case.shape, "gamma": case.table}

    def options(self, case: PortCase) -> dict[str, Any]:
        return {"epsilon": EPSILON}

    def expected(self, case: PortCase, arrays: Arrays, backend: str) -> list[Expectation]:
        return port_spec.rms_norm(norm_of(case, arrays["input"], arrays["gamma"]), backend)


class _GemmaRmsNorm(_RmsNorm):
    aclnn = "aclnnGemmaRmsNorm"
    not_on_310p = PortFunction.not_on_310p

    def expected(self, case: PortCase, arrays: Arrays, backend: str) -> list[Expectation]:
        return port_spec.gemma_rms_norm(norm_of(case, arrays["input"], arrays["gamma"]), backend)


class _AddRmsNorm(_RmsNorm):
    results = ("y", "rstd", "x")
    aclnn = "aclnnAddRmsNorm"
    invalid_on_310p = ("rstd",)

    def shapes(self, case: PortCase) -> Shapes:
        return {"x1": case.shape, "x2": case.shape, "gamma": case.table}

    def expected(self, case: PortCase, arrays: Arrays, backend: str) -> list[Expectation]:
        norm = norm_of(case, arrays["x1"], arrays["gamma"])
        return port_spec.add_rms_norm(norm, arrays["x2"].astype(np.float64), backend)


FUNCTIONS: Mapping[str, PortFunction] = {
    "_npu_rotary_embedding": _RotaryEmbedding(),
    **STORES,
    "npu_rotary_mul": _RotaryMul(),
    "npu_apply_rotary_pos_emb": _ApplyRotaryPosEmb(),
    "npu_interleave_rope": _InterleaveRope(),
    "npu_mrope": _Mrope(),
    "npu_rms_norm": _RmsNorm(),
    "npu_gemma_rms_norm": _GemmaRmsNorm(),
    "npu_add_rms_norm": _AddRmsNorm(),
}
