"""Executors of qkv_norm_rope_cache on arrays and tensors, by back end."""

from __future__ import annotations

import ctypes as C
from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np

from npu_rope import backends, native
from npu_rope.call_tensors import CallTensors, TensorSpec
from npu_rope.errors import BrokenRule
from npu_rope.executors import rules
from npu_rope.executors.tensors import (
    Array,
    accepted_call,
    array_of,
    assign,
    c_tensor,
    check_whole_elements,
    empty_like,
    is_tensor,
    readable_inputs,
    round_to,
    spec_of,
    with_actual_value,
    writing,
)
from npu_rope.optional_torch import torch
from npu_rope.qkv_norm_rope_cache_calls import (
    CACHES,
    OTHERS,
    OUTS,
    XS,
    QkvAttributes,
    in_c_order,
)
from npu_rope.reference import qkv_norm_rope_cache as reference
from npu_rope.values import ANGLE_POLICIES

Tensors = CallTensors[Any]
Results = tuple[Any, ...]


class CInputs(C.Structure):
    """``npu_rope_qkv_inputs``."""

    _fields_ = [(name, native.TENSOR) for name in (*XS, *OTHERS)]


class COutputs(C.Structure):
    """``npu_rope_qkv_outputs``."""

    _fields_ = [(name, native.TENSOR) for name in OUTS]


def out_names(call: CallTensors[Any]) -> tuple[str, ...]:
    """Return the names of q's, k's and v's outputs in this call."""
    return (OUTS[0], *CACHES) if "slots" in call.other_inputs else OUTS


# ---- rules -----------------------------------------------------------------------------------------


def check(call: Tensors, attributes: QkvAttributes) -> None:
    """Check every rule of a call on arrays or CPU tensors.

    Raises:
        InvalidValue, InvalidType: an argument breaks its rule.
    """
    tensors = is_tensor(call.first[1])
    if not tensors:
        check_whole_elements(call)
    sources = _readable(call)  # keeps the copies in memory until the check ends
    as_c = c_tensor if tensors else native.describe
    inputs = {name: as_c(source) for name, source in sources.items()}
    outs = {name: as_c(out) for name, out in call.outs.items()}
    _check_by_c(call, lambda: call.map(spec_of), "values", inputs, outs, attributes)


def check_layout(call: CallTensors[TensorSpec], attributes: QkvAttributes) -> None:
    """Check the rules that need neither an element's value nor an address, as :func:`.rules.check_layout`."""
    if not rules.has_symbolic_sizes(call):
        _check_by_c(call, lambda: call, "layout", *rules.layouts(call), attributes)


def _check_by_c(
    call: CallTensors[Any],
    specs: Any,
    known: native.Known,
    inputs: Mapping[str, native.CTensor],
    outs: Mapping[str, native.CTensor],
    attributes: QkvAttributes,
) -> None:
    in_order = in_c_order(inputs, (*XS, *OTHERS)), in_c_order(outs, out_names(call))
    rules.check_by_c(call.op, specs, known, *in_order, attributes.checked)


def _readable(call: Tensors) -> dict[str, Any]:
    """Return all inputs by name, copied where the C library cannot read them in place."""
    sources = readable_inputs(call)
    for name in sources:
        if "quant" in name:
            tensor = sources[name]
            sources[name] = tensor.contiguous() if is_tensor(tensor) else np.ascontiguousarray(tensor)
    return sources


# ---- reference -------------------------------------------------------------------------------------


def on_reference(call: Tensors, attributes: QkvAttributes) -> Results:
    """Run NumPy in float64. Round the results once."""
    call = accepted_call("reference", call)
    check(call, attributes)
    arrays = call.map(array_of)
    wide = reference.qkv_norm_rope_cache(arrays, attributes)
    if not call.outs:
        return tuple(round_to(wide[name], x) for name, x in call.xs.items())
    for name, out_name in zip(XS, out_names(call), strict=True):
        if out_name not in call.outs:
            continue
        out, y = call.outs[out_name], wide[name]
        if out_name in CACHES:
            _write_slots(arrays, name, out, y)
        else:
            assign(out, round_to(y, out))
    return tuple(call.outs.values())


def _write_slots(arrays: CallTensors[Array], name: str, cache: Any, y: reference.Wide) -> None:
    """Write the tokens of k or v, rounded or quantized, into their rows of the cache."""
    slots = arrays.other_inputs["slots"].astype(np.int64)
    used = slots >= 0
    if spec_of(cache).dtype == "int8":
        factor, offset = (arrays.other_inputs.get(f"{name}_quant_{part}") for part in ("scale", "offset"))
        assert factor is not None  # the rules demand it
        int8 = reference.quantized(y[used], factor, offset)
        rows: Any = torch.from_numpy(int8) if is_tensor(cache) else int8
    else:
        rows = round_to(y[used], cache)
    index: tuple[Array, ...] = (slots[used],)
    if cache.ndim == 4:
        index = np.divmod(slots[used], max(cache.shape[1], 1))
    with writing(cache):
        cache[tuple(torch.from_numpy(i) for i in index) if is_tensor(cache) else index] = rows


# ---- cpu -------------------------------------------------------------------------------------------


@cache
def _entry() -> Any:
    return native.load().checked_entry(
        "npu_rope_qkv_norm_rope_cache",
        C.POINTER(CInputs),
        C.POINTER(native.CParams),
        C.c_double,
        C.c_double,
        C.c_int64,
        C.c_int32,
        C.POINTER(COutputs),
    )


def launch(call: Tensors, results: Mapping[str, Any], attributes: QkvAttributes) -> None:
    """Call the C function, which checks the call first.

    Args:
        results: the outputs, by name.
    """
    as_c = c_tensor if is_tensor(call.first[1]) else native.describe
    sources = _readable(call)  # keeps the copies in memory until the call ends
    inputs = {name: as_c(source) for name, source in sources.items()}
    outs = {name: as_c(result) for name, result in results.items()}
    pointers = [
        [None if t is None else C.pointer(t) for t in tensors]
        for tensors in (in_c_order(inputs, (*XS, *OTHERS)), in_c_order(outs, out_names(call)))
    ]
    a = attributes
    _entry()(
        C.byref(CInputs(*pointers[0])),
        C.byref(native.c_params(a.params)),
        a.epsilon,
        a.scale_offset,
        a.ranks,
        ANGLE_POLICIES.index(a.angle),
        C.byref(COutputs(*pointers[1])),
    )


def on_cpu(call: Tensors, attributes: QkvAttributes) -> Results:
    """Run the C library on arrays, into outs or new arrays."""
    call = accepted_call("cpu", call)
    check_whole_elements(call)
    results = call.outs or {
        out_name: empty_like(call.xs[name])
        for name, out_name in zip(XS, OUTS, strict=True)
        if name in call.xs
    }
    try:
        launch(call, results, attributes)
    except BrokenRule as error:
        raise with_actual_value(error, call.map(spec_of)) from None
    return tuple(results.values())


def on_cpu_tensors(call: Tensors, attributes: QkvAttributes) -> None:
    """Run the C library on torch tensors, into outs. For builds without the C++ registration."""
    launch(call, call.outs, attributes)


EXECUTORS = {"reference": on_reference, "cpu": on_cpu}


def run(backend: str, call: Tensors, attributes: QkvAttributes) -> Results:
    """Run a call on the back end of that name.

    Raises:
        ValueError, TypeError: an argument breaks its rule; nothing was written.
        BackendUnavailable: the back end is unavailable or lacks this operator.
    """
    return backends.executor_of(call.op, EXECUTORS, backend)(call, attributes)
