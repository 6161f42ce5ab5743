"""Suite ``qkv`` of ``npu-rope validate``: qkv_norm_rope_cache and qk_square_sums.

``qkv.py`` has their expected results and bounds. The case's name seeds the generator of its values. A form is
a kind of call; each form has a case for each dtype.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from npu_rope.call_tensors import CallTensors
from npu_rope.dtypes import bfloat16_bits, bfloat16_values
from npu_rope.executors import qk_square_sums, qkv_norm_rope_cache
from npu_rope.params import RopeParams
from npu_rope.qkv_norm_rope_cache_calls import CACHES, OUTS, XS, QkvAttributes, qkv_tensors
from npu_rope.testing.bits import run_on_bits
from npu_rope.testing.bounds import TABLE_ERROR_DEVICE, TABLE_ERROR_HOST, is_device
from npu_rope.testing.cases import SHORT, rounded
from npu_rope.testing.chip_types import lacks_type, rounded_for
from npu_rope.testing.ggml import GgmlProcess
from npu_rope.testing.norm_spec import FORMATS
from npu_rope.testing.norms import sizes_of
from npu_rope.testing.outcomes import CaseResult, Expectation, Judgement, compare_all, judge_each, unwritten
from npu_rope.testing.qkv import expected_results, in_cache, square_sums_expectation, token_rows

Array = npt.NDArray[Any]
DTYPES = ("float32", "float16", "bfloat16")
SOURCE = "docs/ops/qkv_norm_rope_cache.md"
BLOCK_SIZE = 16  # tokens of a block of the paged caches
RANKS = 2  # of calls with square_sums


@dataclass(frozen=True)
class QkvCase:
    """One call of qkv_norm_rope_cache.

    Attributes:
        name: unique within the suite.
        shape: of q, ``[S,N,D]``.
        keys: the number of heads of k and of v.
        value_size: the size of v's heads; 0: D.
        view: "separate" tensors; "fused" (q, k and v are views of one tensor); "gated" (a gate follows each
            head of q).
        norm: "none"; of each of the "heads"; of "all" heads of a token; with "sums" of squares of two ranks.
        bias: the norms have biases.
        wide: scales, biases and tables are float32.
        tables: "" (frequencies), or tables with an entry for "pairs" or for "lanes".
        by_token: token s reads row s of the tables; the call has no positions.
        start: the first token's position.
        planes: the number of axes of the positions in the modes with sections.
        index: the type of positions and slots.
        writes: "new" results, "given" memory, "in place", or "caches".
        layout: of the caches: "rows", "blocks", or "blocks of heads" (each head has a block's rows).
        k_cache, v_cache: the types of the caches; "": q's.
        quantized: int8 caches have a factor for each "tensor", "head" or "channel".
        quant_offset: they also have offsets.
        stores: two of three tokens are stored; otherwise none.
    """

    name: str
    dtype: str
    params: RopeParams
    shape: tuple[int, ...] = (9, 8, 128)
    keys: int = 2
    value_size: int = 0
    view: str = "separate"
    norm: str = "heads"
    bias: bool = False
    wide: bool = False
    epsilon: float = 1e-6
    scale_offset: float = 0.0
    freq_factors: bool = False
    tables: str = ""
    by_token: bool = False
    start: int = 1000
    planes: int = 4
    index: str = "int64"
    writes: str = "caches"
    layout: str = "blocks"
    k_cache: str = ""
    v_cache: str = ""
    quantized: str = "tensor"
    quant_offset: bool = False
    stores: bool = True
    suite: ClassVar[str] = "qkv"
    op: ClassVar[str] = "QKV_NORM_ROPE_CACHE"
    source: ClassVar[str] = SOURCE

    @property
    def cache_dtypes(self) -> dict[str, str]:
        """The types of the caches by their names; empty if the call has none."""
        types = (self.k_cache or self.dtype, self.v_cache or self.dtype)
        return dict(zip(CACHES, types, strict=True)) if self.writes == "caches" else {}

    @property
    def result_dtypes(self) -> dict[str, str]:
        """The types of the results by ``q``, ``k`` and ``v``."""
        caches = self.cache_dtypes
        return {x: caches.get(f"{x}_cache", self.dtype) for x in XS}

    def attributes(self, backend: str) -> QkvAttributes:
        """Return the attributes as the back end receives them."""
        params = rounded_for(self.params, backend)
        ranks = RANKS if self.norm == "sums" else 1
        return QkvAttributes(params, self.epsilon, self.scale_offset, ranks)


@dataclass(frozen=True)
class SquareSumsCase:
    """One call of qk_square_sums.

    Attributes:
        name, shape, keys, view: as of QkvCase.
        values: "rows" of different magnitudes, or "large" (their squares exceed float32, except float16's).
    """

    name: str
    dtype: str
    shape: tuple[int, ...] = (9, 8, 128)
    keys: int = 2
    view: str = "separate"
    values: str = "rows"
    suite: ClassVar[str] = "qkv"
    op: ClassVar[str] = "QK_SQUARE_SUMS"
    source: ClassVar[str] = SOURCE


# ---- the cases -----------------------------------------------------------------------------------------

_NEOX = RopeParams(128, "neox", freq_base=1e6)
_HALF = RopeParams(64, "neox", freq_base=1e6)
_MROPE = RopeParams(128, "mrope", freq_base=1e6, sections=(16, 24, 24, 0))
# With this number of tokens, a core of each SoC processes several of them at a time.
_PREFILL = (300, 8, 128)
# The name of a form, and its differences from the default of QkvCase.
_FORMS: dict[str, dict[str, Any]] = {
    "qwen3": {"params": _NEOX, "shape": _PREFILL, "view": "fused"},
    "qwen3-decode": {
        "params": _NEOX,
        "shape": (1, 32, 128),
        "keys": 8,
        "view": "fused",
        "start": 40_000,
        "index": "int32",
        "layout": "blocks of heads",
    },
    "qwen3-next": {
        "params": RopeParams(64, "neox", freq_base=1e7),
        "shape": (9, 4, 256),
        "view": "gated",
        "scale_offset": 1.0,
        "writes": "in place",
    },
    "gemma3": {
        "params": RopeParams(256, "neox", freq_base=1e6, freq_scale=0.125),
        "shape": (9, 4, 256),
        "scale_offset": 1.0,
        "wide": True,
        "writes": "given",
    },
    "glm-4.5": {
        "params": _HALF,
        "shape": (3, 96, 128),
        "keys": 8,
        "view": "fused",
        "bias": True,
        "writes": "new",
    },
    "olmo2": {
        "params": RopeParams(128, "neox", freq_base=5e5),
        "shape": _PREFILL,
        "keys": 8,
        "norm": "all",
        "layout": "rows",
    },
    "minimax-m2": {
        "params": RopeParams(64, "neox", freq_base=5e6),
        "shape": _PREFILL,
        "view": "fused",
        "norm": "sums",
    },
    "llama-yarn": {
        "params": RopeParams(128, "neox", n_ctx_orig=8192, freq_base=5e5, freq_scale=0.1, ext_factor=1.0),
        "view": "fused",
        "norm": "none",
        "start": 70_000,
        "layout": "rows",
        "k_cache": "float32",
        "v_cache": "float16",
    },
    "normal-middle": {
        "params": RopeParams(48, "normal", n_offs=40),
        "shape": _PREFILL,
        "bias": True,
        "freq_factors": True,
        "layout": "rows",
        "k_cache": "bfloat16",
        "v_cache": "bfloat16",
    },
    "mrope": {"params": _MROPE, "view": "fused", "planes": 3},
    "imrope": {
        "params": RopeParams(128, "imrope", freq_base=5e6, sections=(24, 20, 20, 0)),
        "view": "fused",
        "index": "int32",
        "writes": "in place",
    },
    "vision": {
        "params": RopeParams(40, "vision", sections=(20, 20, 0, 0)),
        "shape": (9, 4, 80),
        "keys": 4,
        "norm": "none",
        "writes": "new",
    },
    "tables": {
        "params": _NEOX,
        "shape": _PREFILL,
        "view": "fused",
        "tables": "pairs",
        "index": "int32",
    },
    "tables-of-lanes": {
        "params": RopeParams(32, "normal", n_offs=16),
        "shape": (9, 3, 80),
        "tables": "lanes",
        "by_token": True,
        "wide": True,
        "writes": "given",
    },
    "tables-mrope": {
        "params": _MROPE,
        "shape": _PREFILL,
        "tables": "pairs",
        "planes": 3,
        "writes": "new",
    },
    "int8-tensor": {
        "params": _NEOX,
        "value_size": 64,
        "layout": "rows",
        "k_cache": "int8",
        "v_cache": "int8",
    },
    "int8-head": {
        "params": _NEOX,
        "shape": _PREFILL,
        "view": "fused",
        "k_cache": "int8",
        "quantized": "head",
        "quant_offset": True,
    },
    "int8-channel": {
        "params": _HALF,
        "norm": "all",
        "layout": "blocks of heads",
        "k_cache": "int8",
        "v_cache": "int8",
        "quantized": "channel",
        "quant_offset": True,
    },
    "no-queries": {"params": _NEOX, "shape": (9, 0, 128)},
    "nothing-stored": {"params": _NEOX, "stores": False},
}
_SUMS_FORMS: dict[str, dict[str, Any]] = {
    "sums": {"shape": _PREFILL, "view": "fused"},
    "sums-decode": {"shape": (1, 64, 128), "keys": 8},
    "sums-large": {"values": "large"},
}
_FLOAT64_FORMS = ("qwen3", "olmo2", "int8-channel", "sums")


def qkv_cases() -> Iterator[QkvCase | SquareSumsCase]:
    """Yield every form of both operators in every dtype, some also in float64."""
    for forms, make in ((_FORMS, QkvCase), (_SUMS_FORMS, SquareSumsCase)):
        for form, differences in forms.items():
            for dtype in (*DTYPES, *(("float64",) if form in _FLOAT64_FORMS else ())):
                sizes = str(list(differences.get("shape", (9, 8, 128)))).replace(" ", "")
                yield make(f"{form}(type={SHORT[dtype]},shape={sizes})", dtype, **differences)


# ---- data ----------------------------------------------------------------------------------------------


@dataclass
class QkvData:
    """A case's arrays by name; bfloat16 as float32 values.

    Attributes:
        memory: the tensors of which q, k and v are views: ``qkv``, or each of them.
        others: the other inputs.
        caches: the memory of the caches before the call.
        dtypes: the types of all of them that are not indices.
    """

    memory: dict[str, Array] = field(default_factory=dict)
    others: dict[str, Array] = field(default_factory=dict)
    caches: dict[str, Array] = field(default_factory=dict)
    dtypes: dict[str, str] = field(default_factory=dict)

    def add(self, part: dict[str, Array], name: str, dtype: str, values: Array) -> None:
        """Add values, rounded to their type."""
        self.dtypes[name], part[name] = dtype, rounded(values, dtype)


def make_data(case: QkvCase) -> QkvData:
    """Return the case's values, rounded to their types."""
    generator, data = _generator(case), QkvData()
    _add_heads(case, generator, data, "none" if case.norm == "none" else "rows")
    _add_norm(case, generator, data)
    _add_angles(case, generator, data)
    if case.writes == "caches":
        _add_caches(case, generator, data)
    return data


def _generator(case: QkvCase | SquareSumsCase) -> np.random.Generator:
    return np.random.default_rng(zlib.crc32(f"{case.suite}/{case.name}".encode()))


def _add_heads(
    case: QkvCase | SquareSumsCase, generator: np.random.Generator, data: QkvData, sizes: str
) -> None:
    """Add the memory of q, k and v. ``sizes`` is as in :func:`.norms.sizes_of`; "none": numbers around 1."""
    S, N, D = case.shape

    def heads(count: int, size: int, sizes: str) -> Array:
        x = generator.standard_normal((S, count, size))
        if sizes == "none":
            return x
        largest = FORMATS[case.dtype][2]
        with np.errstate(over="ignore"):
            x = x * sizes_of(sizes, case.dtype, generator, (S, count, 1))
        return np.clip(x, -largest, largest)

    value_size = (case.value_size if isinstance(case, QkvCase) else 0) or D
    parts = [heads(N, D, sizes), heads(case.keys, D, sizes), heads(case.keys, value_size, "none")]
    if case.view == "gated":
        parts[0] = np.concatenate([parts[0], generator.standard_normal(parts[0].shape)], axis=2)
    if case.view == "fused":
        data.add(data.memory, "qkv", case.dtype, np.concatenate(parts, axis=1))
        return
    for name, part in zip(XS, parts, strict=True):
        data.add(data.memory, name, case.dtype, part)


def _add_norm(case: QkvCase, generator: np.random.Generator, data: QkvData) -> None:
    if case.norm == "none":
        return
    factor_dtype = "float32" if case.wide else case.dtype
    xs = views(case, data.memory)
    for name in "qk":
        _, N, D = xs[name].shape
        size = D if case.norm == "heads" else N * D
        data.add(data.others, f"{name}_scale", factor_dtype, generator.uniform(-2, 2, size))
        if case.bias:
            data.add(data.others, f"{name}_bias", factor_dtype, generator.standard_normal(size))
    if case.norm == "sums":
        own = square_sums_expectation([xs["q"], xs["k"]], case.dtype, "cpu").value
        of_all_ranks = own * generator.uniform(1, RANKS, own.shape)
        data.add(data.others, "square_sums", _type_of_sums(case.dtype), of_all_ranks)


def _add_angles(case: QkvCase, generator: np.random.Generator, data: QkvData) -> None:
    S, pairs = case.shape[0], case.params.pairs
    rows = case.start + S
    positions = case.start + np.arange(S)
    if case.params.rope_mode.has_sections:
        positions = np.stack([positions, *generator.integers(0, rows, (case.planes - 1, S))])
    if not case.by_token:
        data.others["positions"] = positions.astype(case.index)
    if case.freq_factors:
        data.add(data.others, "freq_factors", "float32", generator.uniform(0.5, 8, pairs))
    if case.tables:
        table_dtype = "float32" if case.wide else case.dtype
        width = 2 * pairs if case.tables == "lanes" else pairs
        for name in ("cos", "sin"):
            data.add(data.others, name, table_dtype, generator.uniform(-1, 1, (rows, width)))


def _add_caches(case: QkvCase, generator: np.random.Generator, data: QkvData) -> None:
    S = case.shape[0]
    blocks = -(-2 * S // BLOCK_SIZE)
    slots = generator.permutation(blocks * BLOCK_SIZE)[:S]
    slots[slice(2, None, 3) if case.stores else slice(None)] = -1
    data.others["slots"] = slots.astype(case.index)
    xs = views(case, data.memory)
    for name, dtype in case.cache_dtypes.items():
        _, N, D = xs[name[0]].shape
        shape = {
            "rows": (blocks * BLOCK_SIZE, N, D),
            "blocks": (blocks, BLOCK_SIZE, N, D),
            "blocks of heads": (blocks, N, BLOCK_SIZE, D),
        }[case.layout]
        if dtype != "int8":
            values = generator.standard_normal(shape)
            values.flat[::7] = -0.0
            data.add(data.caches, name, dtype, values)
            continue
        data.add(data.caches, name, dtype, generator.integers(-128, 128, shape))
        factors = {"tensor": (1,), "head": (N,), "channel": (N, D)}[case.quantized]
        data.add(data.others, f"{name[0]}_quant_scale", "float32", generator.uniform(10, 60, factors))
        if case.quant_offset:
            data.add(data.others, f"{name[0]}_quant_offset", "float32", generator.uniform(-10, 10, factors))


def _type_of_sums(dtype: str) -> str:
    return "float64" if dtype == "float64" else "float32"


# ---- the call ------------------------------------------------------------------------------------------


def views(case: QkvCase | SquareSumsCase, memory: Mapping[str, Any]) -> dict[str, Any]:
    """Return q, k and v, ``[S,N,D]`` each, as views of arrays or tensors with the names of QkvData.memory."""
    _, N, D = case.shape
    if case.view == "fused":
        qkv, first_value = memory["qkv"], N + case.keys
        return {"q": qkv[:, :N], "k": qkv[:, N:first_value], "v": qkv[:, first_value:]}
    return {"q": memory["q"][..., :D], "k": memory["k"], "v": memory["v"]}


def call_of(
    case: QkvCase,
    memory: Mapping[str, Any],
    others: Mapping[str, Any],
    caches: Mapping[str, Any],
    new_like: Callable[[Any], Any],
) -> CallTensors[Any]:
    """Return the case's call on arrays or tensors with the names in QkvData.

    Args:
        new_like: allocates an output of its argument's shape and type.
    """
    xs = views(case, memory)
    if case.writes == "new":
        return qkv_tensors({"q": xs["q"], "k": xs["k"]}, others, {})
    if case.writes == "caches":
        paged = {
            name: cache.swapaxes(1, 2) if case.layout == "blocks of heads" else cache
            for name, cache in caches.items()
        }
        return qkv_tensors(xs, others, {"q_out": new_like(xs["q"]), **paged})
    outs = xs.values() if case.writes == "in place" else [new_like(x) for x in xs.values()]
    return qkv_tensors(xs, others, dict(zip(OUTS, outs, strict=True)))


def expectation(case: QkvCase, data: QkvData, backend: str) -> list[Expectation]:
    """Return the results for q, k and v (or the caches), with the bounds of the back end's errors."""
    call = call_of(case, data.memory, data.others, data.caches, np.empty_like)
    table_error = TABLE_ERROR_DEVICE if is_device(backend) else TABLE_ERROR_HOST
    results = expected_results(call, case.attributes(backend), case.dtype, case.result_dtypes, table_error)
    for name in case.cache_dtypes:
        results[name[0]] = in_cache(call.outs[name], results[name[0]], data.others["slots"])
    return [Expectation(*result) for result in results.values()]


# ---- judging -------------------------------------------------------------------------------------------


def judge_qkv(
    case: QkvCase | SquareSumsCase, backends: list[str], ggml: GgmlProcess | None = None
) -> CaseResult:
    """Run and judge one case; ggml has no such operators."""
    if isinstance(case, SquareSumsCase):
        judge = partial(_judge_sums, case, make_heads(case))
        return judge_each(case, backends, lambda backend: lacks_type(backend, (case.dtype,)), judge)
    dtypes = (case.dtype, *case.cache_dtypes.values())
    judge = partial(_judge, case, make_data(case))
    return judge_each(case, backends, lambda backend: lacks_type(backend, dtypes), judge)


def _judge(case: QkvCase, data: QkvData, backend: str) -> Judgement:
    got, expected = _execute(case, data, backend), expectation(case, data, backend)
    return compare_all(backend, got, expected, [f"{name}'s index" for name in XS[: len(got)]])


def _execute(case: QkvCase, data: QkvData, backend: str) -> list[Array]:
    """Run a case. NumPy has no bfloat16, so native code receives bits, and the reference receives float32
    values."""
    memory, others, caches = (
        {name: _copied(array, data.dtypes.get(name), backend) for name, array in part.items()}
        for part in (data.memory, data.others, data.caches)
    )
    call = call_of(case, memory, others, caches, _filled_like)
    heads_before, caches_before = [({n: t.copy() for n, t in part.items()}) for part in (call.xs, call.outs)]
    with unwritten([*memory.values(), *others.values()]):
        results = _run(call, case.attributes(backend), backend)
        types = case.result_dtypes.values()
        values = [_values(result, dtype) for result, dtype in zip(results, types, strict=False)]
        for name in call.in_place:
            call.xs[name][...] = heads_before[name]
    for name in case.cache_dtypes:
        _check_other_rows(caches_before[name], call.outs[name], others["slots"])
    return values


def _copied(array: Array, dtype: str | None, backend: str) -> Array:
    return bfloat16_bits(array) if dtype == "bfloat16" and backend != "reference" else array.copy()


def _filled_like(array: Array) -> Array:
    """Allocate an output. Its contents differ from any earlier result in the same memory."""
    return np.full(array.shape, 7, array.dtype)


def _run(call: CallTensors[Array], attributes: Any, backend: str, results: tuple[Array, ...] = ()) -> Any:
    """Run a call and return its results: ``results``, or new arrays if it has no outputs."""
    executors: Any = qkv_norm_rope_cache if call.op == "qkv_norm_rope_cache" else qk_square_sums
    if backend == "reference":
        return executors.run(backend, call, attributes)
    results = results or tuple(call.outs.values()) or tuple(_filled_like(x) for x in call.xs.values())
    run_on_bits(backend, call, attributes, results)
    return results


def _values(result: Array, dtype: str) -> Array:
    """Return the values of a result; bfloat16's bits and the reference's float32 as bfloat16's values."""
    if result.dtype == np.uint16:
        return bfloat16_values(result)
    return rounded(result, dtype)


def _check_other_rows(before: Array, after: Array, slots: Array) -> None:
    """Raise AssertionError if a cache has changed bits in rows that received no token."""
    is_other = np.ones(before.shape[: before.ndim - 2], bool)
    is_other[token_rows(before, slots)] = False
    if before[is_other].tobytes() != after[is_other].tobytes():
        raise AssertionError("a row of the cache that no token belongs to was written")


def make_heads(case: SquareSumsCase) -> QkvData:
    """Return the values of a case of qk_square_sums, rounded to their type."""
    data = QkvData()
    _add_heads(case, _generator(case), data, case.values)
    return data


def sums_expectation(case: SquareSumsCase, data: QkvData, backend: str) -> list[Expectation]:
    """Return the sums with the bounds of the back end's errors."""
    xs = views(case, data.memory)
    return [Expectation(*square_sums_expectation([xs["q"], xs["k"]], case.dtype, backend))]


def sums_call(case: SquareSumsCase, memory: Mapping[str, Any]) -> CallTensors[Any]:
    """Return the case's call on arrays or tensors with the names in QkvData.memory."""
    xs = views(case, memory)
    return CallTensors("qk_square_sums", {"q": xs["q"], "k": xs["k"]})


def _judge_sums(case: SquareSumsCase, data: QkvData, backend: str) -> Judgement:
    memory = {name: _copied(array, case.dtype, backend) for name, array in data.memory.items()}
    sums = np.full((case.shape[0], 2), 7, _type_of_sums(case.dtype))
    with unwritten(memory.values()):
        results = _run(sums_call(case, memory), {}, backend, (sums,))
    return compare_all(backend, results, sums_expectation(case, data, backend), ["(token, q or k)"])
