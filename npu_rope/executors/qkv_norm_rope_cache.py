"""Executors of qkv_norm_rope_cache on arrays and tensors, by back end."""

from __future__ import annotations

import ctypes as C
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from ascend_sim import Options

from npu_rope import native
from npu_rope.call_tensors import CallTensors
from npu_rope.executors import npu, rules, sim
from npu_rope.executors.rotations import check_device_positions, run_on_sim
from npu_rope.executors.tensors import (
    Array,
    accepted_call,
    array_of,
    assign,
    c_tensor,
    is_tensor,
    on_arrays,
    readable_inputs,
    round_to,
    spec_of,
    writing,
)
from npu_rope.optional_torch import torch
from npu_rope.qkv_norm_rope_cache_calls import CACHES, OTHERS, OUTS, XS, QkvAttributes
from npu_rope.reference import qkv_norm_rope_cache as reference
from npu_rope.values import ANGLE_POLICIES, Known

Tensors = CallTensors[Any]
Results = tuple[Any, ...]


class CInputs(C.Structure):
    """``npu_rope_qkv_inputs``."""

    _fields_ = [(name, native.TENSOR) for name in (*XS, *OTHERS)]


class COutputs(C.Structure):
    """``npu_rope_qkv_outputs``."""

    _fields_ = [(name, native.TENSOR) for name in OUTS]


def check(call: Tensors, attributes: QkvAttributes, chip: str | None = None, known: Known = "values") -> None:
    """Check every rule of a call on arrays or tensors. ``chip`` and ``known`` as in :func:`.rules.check`."""
    rules.check(call, attributes.checked, _readable, chip, known)


def _readable(call: Tensors) -> dict[str, Any]:
    """Return all inputs by name, copied where the C library cannot read them in place."""
    sources = readable_inputs(call)
    for name in sources:
        if "quant" in name:
            tensor = sources[name]
            sources[name] = tensor.contiguous() if is_tensor(tensor) else np.asarray(tensor, order="C")
    return sources


def _written(call: Tensors, results: Results) -> dict[str, Any]:
    """Return the results of a call by the names of its outputs."""
    return dict(zip(call.outs or OUTS, results, strict=False))


# ---- reference -------------------------------------------------------------------------------------


def on_reference(call: Tensors, attributes: QkvAttributes) -> Results:
    """Run NumPy in float64. Round the results once."""
    call = accepted_call("reference", call)
    check(call, attributes)
    arrays = call.map(array_of)
    wide = reference.qkv_norm_rope_cache(arrays, attributes)
    if not call.outs:
        return tuple(round_to(wide[name], x) for name, x in call.xs.items())
    for name, out_name in zip(XS, call.c_outs, strict=True):
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


def launch(
    call: Tensors,
    results: Results,
    attributes: QkvAttributes,
    as_c: Callable[[Any], native.CTensor] | None = None,
) -> None:
    """Call the C function, which checks the call first. ``as_c`` as in :func:`.rotations.launch`."""
    as_c = as_c or (c_tensor if is_tensor(call.first[1]) else native.describe)
    sources = _readable(call)  # keeps the copies in memory until the call ends
    inputs = {name: as_c(source) for name, source in sources.items()}
    outs = {name: as_c(result) for name, result in _written(call, results).items()}
    pointers = [
        [None if t is None else C.pointer(t) for t in tensors] for tensors in call.in_c_order(inputs, outs)
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
    return on_arrays(call, lambda call, results: launch(call, results, attributes))


def on_cpu_tensors(call: Tensors, attributes: QkvAttributes) -> None:
    """Run the C library on torch tensors, into outs. For builds without the C++ registration."""
    launch(call, tuple(call.outs.values()), attributes)


# ---- sim and npu -----------------------------------------------------------------------------------

# The inputs that have one type in the operator's definition: all are float32 if one of them is.
_PARAMETERS = ("q_scale", "k_scale", "q_bias", "k_bias", "cos", "sin")


def on_sim(options: Options, call: Tensors, attributes: QkvAttributes) -> Results:
    """Run the AscendC kernel on simulated cores, for arrays or CPU torch tensors without a gradient."""
    return run_on_sim(options, call, attributes, check, launch_on_sim)


def launch_on_sim(options: Options, call: Tensors, results: Results, attributes: QkvAttributes) -> None:
    """Launch the kernel for a call whose values were checked. A uint16 array holds bfloat16's bits.

    Raises:
        InvalidValue, InvalidType: the chip does not support the call; nothing was written.
    """
    rules.check_layout(call.map(sim.spec_of_launch), attributes.checked, sim.chip_of(options))
    named = _written(call, results)
    outs = dict(zip(OUTS, (named.get(name) for name in call.c_outs), strict=True))
    caches = {name: named.get(name) for name in CACHES}
    tensors: dict[str, Any] = {**dict.fromkeys((*XS, *OTHERS)), **_readable(call), **caches, **outs}
    q = tensors["q"]
    has = {name: tensors[name] is not None and 0 not in tensors[name].shape for name in XS}
    # aclnn takes no tensor without elements: the launch lacks the sides that have none.
    for name in (name for name in XS if not has[name]):
        tensors |= {part: None for part in tensors if part == name or part.startswith(f"{name}_")}
    parameters = [name for name in _PARAMETERS if tensors[name] is not None]
    if len({sim.spec_of_launch(tensors[name]).dtype for name in parameters}) > 1:
        tensors |= {name: sim.float32_of(tensors[name]) for name in parameters}
    given = {
        "normalizes_q": tensors["q_scale"] is not None,
        "has_positions": tensors["positions"] is not None,
        "has_q": has["q"],
        "has_k": has["k"],
    }
    if tensors["slots"] is not None:
        tensors["slots"] = sim.int32_of(tensors["slots"])
    # CANN needs a tensor for each required parameter of the definition; the kernel does not read these ones.
    if tensors["q_scale"] is None:
        tensors["q_scale"] = tensors[parameters[0]] if parameters else sim.new_like(q, 1)
    if tensors["positions"] is None:
        tensors["positions"] = np.zeros(1, np.int32)
    for name in (name for name in "qk" if not has[name]):
        tensors[name] = tensors[f"{name}_out"] = sim.new_like(q, 1, 1, q.shape[2])
    if not has["v"]:
        tensors["v_out"] = sim.new_like(q, 1)
    sim.launch(options, call.op, call.op, tensors, {**attributes.as_aclnn(), **given})


def on_npu(call: Tensors, attributes: QkvAttributes) -> Results:
    """Run the call on the NPU for arrays, or for CPU torch tensors without a gradient."""

    def check_all(call: Tensors) -> None:
        check(call, attributes)
        check_device_positions(call, attributes)

    def run_operator(xs: dict[str, Any], other_inputs: dict[str, Any], written: list[Any]) -> None:
        named = dict(
            zip(OUTS, (_written(call, tuple(written)).get(name) for name in call.c_outs), strict=True)
        )
        inputs = [{**xs, **other_inputs}.get(name) for name in (*XS, *OTHERS)]
        torch.ops.npu_rope.qkv_norm_rope_cache_out.default(*inputs, **attributes.as_schema(), **named)

    return npu.run(call, check_all, run_operator, written_whole="slots" not in call.other_inputs)


run = sim.by_backend(on_reference, on_cpu, on_npu, on_sim)
