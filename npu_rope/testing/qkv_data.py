"""The values, calls and expected results of suite ``qkv``'s cases.

``qkv.py`` has the formulas and bounds of the results. The case's name seeds the generator of its values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from npu_rope.call_tensors import CallTensors
from npu_rope.qkv_norm_rope_cache_calls import OUTS, XS, qkv_tensors
from npu_rope.testing.bounds import TABLE_ERROR_DEVICE, TABLE_ERROR_HOST, is_device
from npu_rope.testing.cases import generator_of, rounded
from npu_rope.testing.norm_spec import FORMATS
from npu_rope.testing.norms import sizes_of
from npu_rope.testing.outcomes import Expectation
from npu_rope.testing.qkv import expected_results, in_cache, square_sums_expectation
from npu_rope.testing.qkv_cases import RANKS, QkvCase, SquareSumsCase

Array = npt.NDArray[Any]
BLOCK_SIZE = 16  # tokens of a block of the paged caches


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
    generator, data = generator_of(case), QkvData()
    _add_heads(case, generator, data, "none" if case.norm == "none" else "rows")
    _add_norm(case, generator, data)
    _add_angles(case, generator, data)
    if case.writes == "caches":
        _add_caches(case, generator, data)
    return data


def make_heads(case: SquareSumsCase) -> QkvData:
    """Return the values of a case of qk_square_sums, rounded to their type."""
    data = QkvData()
    _add_heads(case, generator_of(case), data, case.values)
    return data


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
        data.add(data.others, "square_sums", type_of_sums(case.dtype), of_all_ranks)


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


def type_of_sums(dtype: str) -> str:
    """Return the type of sums of squares of values of a type."""
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


def sums_call(case: SquareSumsCase, memory: Mapping[str, Any]) -> CallTensors[Any]:
    """Return the case's call on arrays or tensors with the names in QkvData.memory."""
    xs = views(case, memory)
    return CallTensors("qk_square_sums", {"q": xs["q"], "k": xs["k"]})


# ---- expected results --------------------------------------------------------------------------------


def expectation(case: QkvCase, data: QkvData, backend: str) -> list[Expectation]:
    """Return the results for q, k and v (or the caches), with the bounds of the back end's errors."""
    call = call_of(case, data.memory, data.others, data.caches, np.empty_like)
    table_error = TABLE_ERROR_DEVICE if is_device(backend) else TABLE_ERROR_HOST
    results = expected_results(call, case.attributes(backend), case.dtype, case.result_dtypes, table_error)
    for name in case.cache_dtypes:
        results[name[0]] = in_cache(call.outs[name], results[name[0]], data.others["slots"])
    return [Expectation(*result) for result in results.values()]


def sums_expectation(case: SquareSumsCase, data: QkvData, backend: str) -> list[Expectation]:
    """Return the sums with the bounds of the back end's errors."""
    xs = views(case, data.memory)
    return [Expectation(*square_sums_expectation([xs["q"], xs["k"]], case.dtype, backend))]
