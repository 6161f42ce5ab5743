"""The functions of torch_npu that suite ``torch_npu`` calls: their arguments, limits and expectations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from npu_rope.testing import port_spec
from npu_rope.testing.cases import SHORT, rounded
from npu_rope.testing.outcomes import Expectation

Array = npt.NDArray[Any]
Arrays = dict[str, Array]
Shapes = dict[str, tuple[int, ...]]
Generator = np.random.Generator
EPSILON = 1e-5
CACHE_ROWS = 50


@dataclass(frozen=True)
class PortCase:
    """One call of a function that torch_npu and ``npu_rope.compat.torch_npu`` have.

    Attributes:
        function: the function's name.
        form: the name of this kind of call.
        shape: the shape of x, kv or query; of npu_mrope, _npu_rotary_embedding and
            npu_qkv_rms_norm_rope_cache ``[T, N, D]``.
        table: the shape of cos and sin, or of gamma; the width of npu_mrope's and _npu_rotary_embedding's
            cache.
        keys: the number of key's heads.
        mode: the pairs: half, interleave or quarter.
        layout: npu_apply_rotary_pos_emb's layout.
        sections: npu_mrope's sections.
        cache_mode: npu_mrope's assignment of pairs to kinds of positions; for stores, the layout of the
            caches.
        rows: the sizes of a store's caches: in mode Norm the rows of each batch, otherwise the blocks and the
            rows of a block.
        values: the width of npu_kv_rmsnorm_rope_cache's v; 0: no v.
        quantized: the tensors of an int8 cache: ``"scale"``, ``"scale, offset"``; empty: the cache has the
            type of x.
        outputs: whether a store also returns what it stores.
        wide: whether the tables or gamma are float32 for every dtype of x.
        limit: the documented limit of torch_npu's function that the call breaks; empty: none.
    """

    function: str
    form: str
    dtype: str
    shape: tuple[int, ...]
    table: tuple[int, ...]
    keys: int = 0
    mode: str = "half"
    layout: str = "BSND"
    sections: tuple[int, ...] = (0, 0, 0)
    cache_mode: str = "default"
    rows: tuple[int, ...] = ()
    values: int = 0
    quantized: str = ""
    outputs: bool = False
    wide: bool = False
    limit: str = ""
    suite: str = field(default="torch_npu", init=False)

    @property
    def name(self) -> str:
        """The name, unique within the suite."""
        sizes = str(list(self.shape)).replace(" ", "")
        return f"{self.function}/{self.form}(type={SHORT[self.dtype]},shape={sizes})"

    @property
    def op(self) -> str:
        """The name of the operation in reports."""
        return self.function.upper()

    @property
    def source(self) -> str:
        """The source of the formula."""
        return FUNCTIONS[self.function].source or f"documentation of torch_npu.{self.function}"


class Function:
    """A function of torch_npu.

    Attributes:
        tables: the arguments that are float32 in a ``wide`` case.
        indices: the arguments that are int64.
        results: the names of the results: the arguments that the function overwrites come first.
        written: the arguments that the function overwrites.
        returns_written: whether it returns these arguments.
        aclnn: CANN's function that torch_npu calls, or ATB's operation.
        source: the source of the formula; empty: torch_npu's page of the function.
        operators: npu_rope's operators that its function calls on an NPU.
        not_simulated: why the function does not run on the simulated CANN; empty if it does.
        not_on_310p: why the function does not run on Ascend310P; empty if its document lists that chip.
        invalid_on_310p: the results that are invalid there by that document.
        types: the types of x in that document.
    """

    tables: tuple[str, ...] = ()
    indices: tuple[str, ...] = ("positions",)
    results: tuple[str, ...] = ("y",)
    written: tuple[str, ...] = ()
    returns_written = True
    aclnn: str
    source = ""
    operators: tuple[str, ...] = ()
    not_simulated = ""
    not_on_310p = "its aclnn function does not run on Ascend310P"
    invalid_on_310p: tuple[str, ...] = ()
    types: tuple[str, ...] = ("float32", "float16", "bfloat16")

    def shapes(self, case: PortCase) -> Shapes:
        """Return the shape of each tensor by name, in the order of the arguments."""
        raise NotImplementedError

    def options(self, case: PortCase) -> dict[str, Any]:
        """Return the other arguments."""
        return {}

    def keywords(self, case: PortCase) -> tuple[str, ...]:
        """Return the tensors that are passed by name."""
        return ()

    def limit(self, case: PortCase) -> str:
        """Return the documented limit that the call breaks, besides its type; empty: none."""
        return case.limit

    def results_of(self, case: PortCase) -> tuple[str, ...]:
        """Return the names of the results of a case."""
        return self.results

    def dtype_of(self, case: PortCase, name: str) -> str:
        """Return the type of a tensor or a result."""
        if name in self.indices:
            return "int64"
        return "float32" if case.wide and name in self.tables else case.dtype

    def values(self, case: PortCase, name: str, shape: tuple[int, ...], generator: Generator) -> Array:
        """Return random values of a tensor, rounded to its type."""
        dtype = self.dtype_of(case, name)
        if dtype == "int64":
            return generator.integers(0, CACHE_ROWS, shape)
        if dtype == "int8":
            return generator.integers(-128, 128, shape).astype(np.int8)
        return rounded(generator.uniform(-2, 2, shape), dtype)

    def expected(self, case: PortCase, arrays: Arrays, backend: str) -> list[Expectation]:
        """Return the results' expectations for a back end; ``backend`` is empty for torch_npu itself."""
        raise NotImplementedError


class _RotaryMul(Function):
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


class _ApplyRotaryPosEmb(Function):
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


class _InterleaveRope(Function):
    aclnn = "aclnnInterleaveRope"
    types = ("float16", "bfloat16")

    def shapes(self, case: PortCase) -> Shapes:
        return {"x": case.shape, "cos": case.table, "sin": case.table}

    def expected(self, case: PortCase, arrays: Arrays, backend: str) -> list[Expectation]:
        x = port_spec.evens_first(arrays["x"])
        return [port_spec.rotation(x, arrays["cos"], arrays["sin"], "half", case.dtype)]


class _Mrope(Function):
    results = ("query", "key")
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

    def expected(self, case: PortCase, arrays: Arrays, backend: str) -> list[Expectation]:
        tokens, _, head_size = case.shape
        cos, sin = port_spec.rows_of_cache(
            arrays["cos_sin_cache"], arrays["positions"], case.sections, case.cache_mode, case.mode
        )
        found = []
        for name in ("query", "key"):
            heads = arrays[name].reshape(tokens, -1, head_size)
            by_head = port_spec.rotation(heads, cos, sin, case.mode, case.dtype)
            found.append(Expectation(by_head.value.reshape(tokens, -1), by_head.bound.reshape(tokens, -1)))
        return found


class _RotaryEmbedding(Function):
    tables = ("cos_sin_cache",)
    results = ("query", "key")
    written = ("query", "key")
    returns_written = False
    aclnn = "RopeOperation"
    source = "op-plugin op_plugin/ops/atb/RopeAtb.cpp"
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

    def expected(self, case: PortCase, arrays: Arrays, backend: str) -> list[Expectation]:
        tokens, _, size = case.shape
        one_kind = (0, 0, 0)
        cos, sin = port_spec.rows_of_cache(
            arrays["cos_sin_cache"], arrays["positions"], one_kind, "default", case.mode
        )
        found = []
        for name in self.written:
            heads = arrays[name].reshape(tokens, -1, size)
            by_head = port_spec.rotation(heads, cos, sin, case.mode, case.dtype)
            shape = arrays[name].shape
            found.append(Expectation(by_head.value.reshape(shape), by_head.bound.reshape(shape)))
        return found


class _RmsNorm(Function):
    tables = ("gamma",)
    results: tuple[str, ...] = ("y", "rstd")
    aclnn = "aclnnRmsNorm"
    not_on_310p = ""

    def shapes(self, case: PortCase) -> Shapes:
        return {"input": case.shape, "gamma": case.table}

    def options(self, case: PortCase) -> dict[str, Any]:
        return {"epsilon": EPSILON}

    def expected(self, case: PortCase, arrays: Arrays, backend: str) -> list[Expectation]:
        return port_spec.rms_norm(_norm_of(case, arrays["input"], arrays["gamma"]), backend)


class _GemmaRmsNorm(_RmsNorm):
    aclnn = "aclnnGemmaRmsNorm"
    not_on_310p = Function.not_on_310p

    def expected(self, case: PortCase, arrays: Arrays, backend: str) -> list[Expectation]:
        return port_spec.gemma_rms_norm(_norm_of(case, arrays["input"], arrays["gamma"]), backend)


class _AddRmsNorm(_RmsNorm):
    results = ("y", "rstd", "x")
    aclnn = "aclnnAddRmsNorm"
    invalid_on_310p = ("rstd",)

    def shapes(self, case: PortCase) -> Shapes:
        return {"x1": case.shape, "x2": case.shape, "gamma": case.table}

    def expected(self, case: PortCase, arrays: Arrays, backend: str) -> list[Expectation]:
        norm = _norm_of(case, arrays["x1"], arrays["gamma"])
        return port_spec.add_rms_norm(norm, arrays["x2"].astype(np.float64), backend)


class _Store(Function):
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
        of_norm = port_spec.normalized(_norm_of(case, x, gamma), backend)
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
    source = "documentation of aclnnQkvRmsNormRopeCache"
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
            port_spec.rotated(port_spec.normalized(_norm_of(case, x, arrays[gamma]), backend), cos, sin)
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


def _norm_of(case: PortCase, x: Array, gamma: Array) -> port_spec.Norm:
    gamma_dtype = "float32" if case.wide else case.dtype
    return port_spec.Norm(x.astype(np.float64), gamma.astype(np.float64), case.dtype, gamma_dtype, EPSILON)


FUNCTIONS: Mapping[str, Function] = {
    "_npu_rotary_embedding": _RotaryEmbedding(),
    "npu_kv_rmsnorm_rope_cache": _KvRmsNormRopeCache(),
    "npu_qkv_rms_norm_rope_cache": _QkvRmsNormRopeCache(),
    "npu_rotary_mul": _RotaryMul(),
    "npu_apply_rotary_pos_emb": _ApplyRotaryPosEmb(),
    "npu_interleave_rope": _InterleaveRope(),
    "npu_mrope": _Mrope(),
    "npu_rms_norm": _RmsNorm(),
    "npu_gemma_rms_norm": _GemmaRmsNorm(),
    "npu_add_rms_norm": _AddRmsNorm(),
}
