"""Executors of the operators that rotate heads, on arrays and tensors, by back end: rope, rope_qk and
rope_set_rows, rotary_mul, rotary_mul_qk and rotary_embedding, rms_norm_rope.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from ascend_sim import Options

from npu_rope import native
from npu_rope.call_tensors import CallTensors
from npu_rope.errors import bad_value
from npu_rope.executors import npu, rules, sim, small_arrays
from npu_rope.executors.tensors import (
    Array,
    accepted_call,
    array_of,
    c_tensor,
    empty_like,
    is_tensor,
    on_arrays,
    readable_inputs,
    require_dense,
    round_to,
    rounded,
    spec_of,
    unpacked,
)
from npu_rope.optional_torch import torch
from npu_rope.reference import rms_norm_rope as norm_rope_reference
from npu_rope.reference import rope as rope_reference
from npu_rope.reference import rotary as rotary_reference
from npu_rope.rms_norm_rope_calls import RmsNormRopeAttributes
from npu_rope.rope_calls import RopeCallAttributes
from npu_rope.rotary_calls import RotaryAttributes, is_onnx, tables_of

Tensors = CallTensors[Any]
Attributes = RopeCallAttributes | RotaryAttributes | RmsNormRopeAttributes
Results = tuple[Any, ...]  # the written tensors, one for each of xs; a cache is the last

# The outputs by their names in the definitions and in the schemas.
OUTS: Mapping[str, tuple[str, ...]] = {
    "rope": ("out",),
    "rope_qk": ("q_out", "k_out"),
    "rope_set_rows": ("cache",),
    "rotary_mul": ("out",),
    "rotary_mul_qk": ("q_out", "k_out"),
    "rotary_embedding": ("Y",),
    "rms_norm_rope": ("q_out", "k_out"),
}


def check(call: Tensors, attributes: Attributes, chip: str | None = None) -> None:
    """Check every rule. ``chip`` as in :func:`.rules.check`."""
    rules.check(call, attributes.checked, chip=chip)


def new_q_out(q: Any) -> Any:
    """Allocate the queries' output of a call that writes its keys to a cache. If q is neither a tensor nor an
    array, return q itself, which the rules reject."""
    if is_tensor(q):
        require_dense("rms_norm_rope", "q", q)
        return empty_like(q)
    return empty_like(q) if hasattr(q, "strides") else q


# ---- reference ------------------------------------------------------------------------------------


def on_reference(call: Tensors, attributes: Attributes) -> Results:
    """Run NumPy in float64. Round the results once; with ``intermediate_rounding``, after each step."""
    call = accepted_call("reference", call)
    check(call, attributes)
    arrays = call.map(array_of)
    if isinstance(attributes, RotaryAttributes):
        return rounded(call, rotary_reference.rotary(arrays, attributes))
    if isinstance(attributes, RmsNormRopeAttributes):
        dtype = spec_of(call.first[1]).dtype
        return rounded(call, norm_rope_reference.rms_norm_rope(arrays, dtype, attributes))
    options: dict[str, Any] = {"forward": attributes.forward, "angle": attributes.angle}
    xs = arrays.xs.values()
    return rounded(call, tuple(rope_reference.rotated(x, arrays, attributes.params, **options) for x in xs))


def table_gradients(call: Tensors, grads: Results, attributes: RotaryAttributes) -> tuple[Any, Any]:
    """Return the tables' gradients of a call on arrays, summed in float64 and rounded once to their type."""
    wide = rotary_reference.table_gradients(call.map(array_of), tuple(array_of(g) for g in grads), attributes)
    cos, sin = (round_to(w, table) for w, table in zip(wide, tables_of(call).values(), strict=True))
    return cos, sin


# ---- cpu -------------------------------------------------------------------------------------------


def launch(
    call: Tensors, results: Results, attributes: Any, as_c: Callable[[Any], native.CTensor] | None = None
) -> None:
    """Call the library's entry of the operator, on copies of the inputs that it cannot read in place.

    Args:
        call, results, attributes: the call, its results and its attributes.
        as_c: makes the C struct of an array or tensor; by default it describes the array or tensor unchanged.
    """
    as_c = as_c or (c_tensor if is_tensor(call.first[1]) else native.describe)
    sources = readable_inputs(call)  # keeps the copies in memory until the call ends
    outs = [as_c(result) for result in results]
    native.load().call(call.entry, [as_c(source) for source in sources.values()], attributes, outs)


def on_cpu(call: Tensors, attributes: Attributes) -> Results:
    """Run the C library on arrays. (For tensors: csrc/torch, or :func:`on_cpu_tensors`.)"""
    return on_arrays(call, lambda call, results: launch(call, results, attributes))


def on_small_arrays(
    op: str,
    xs: tuple[Any, ...],
    other_inputs: tuple[Any, ...],
    params: Any,
    forward: bool,
    angle: Any,
    outs: Any,
) -> Results | None:
    """Run :func:`.small_arrays.run` for a call of rope or rope_qk."""
    return small_arrays.run(op, xs, other_inputs, (params, forward, angle), outs)


def on_cpu_tensors(call: Tensors, attributes: Any) -> None:
    """Run the C library on torch tensors, into outs. For builds without the C++ registration."""
    launch(call, tuple(call.outs.values()), attributes)


def on_cpu_packed(call: Tensors, packed: Any) -> None:
    """Run :func:`on_cpu_tensors` with the attributes in a tensor, made by :func:`npu_rope.native.packed`."""
    on_cpu_tensors(call, unpacked(call, packed))


# ---- sim -------------------------------------------------------------------------------------------

# The optional inputs of the definitions.
_OPTIONAL: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("rope", "rope_qk", "rope_set_rows"), ("freq_factors",)),
    "rotary_mul": ("position_ids",),
    "rms_norm_rope": ("rows", "freq_factors", "cache"),
}


def on_sim(options: Options, call: Tensors, attributes: Attributes) -> Results:
    """Run the AscendC kernel on simulated cores, for arrays or CPU torch tensors without a gradient."""
    return run_on_sim(options, call, attributes, check, launch_on_sim)


def run_on_sim(
    options: Options,
    call: Tensors,
    attributes: Any,
    check: Callable[[Tensors, Any, str], Any],
    launch: Callable[[Options, Tensors, Results, Any], None],
) -> Results:
    """Check a call with positions and launch its kernel on simulated cores.

    Args:
        check: checks a call with its attributes for a chip.
        launch: launches the kernel for a call, its results and its attributes.
    """

    def check_all(call: Tensors) -> None:
        check(call, attributes, sim.chip_of(options))
        check_device_positions(call, attributes)

    return sim.run(options, call, check_all, lambda call, results: launch(options, call, results, attributes))


def launch_on_sim(options: Options, call: Tensors, results: Results, attributes: Attributes) -> None:
    """Launch the kernel for a call whose values were checked. A uint16 array holds bfloat16's bits.

    Raises:
        InvalidValue, InvalidType: the chip does not support the call; nothing was written.
    """
    rules.check_layout(call.map(sim.spec_of_launch), attributes.checked, sim.chip_of(options))
    tensors: dict[str, Any] = readable_inputs(call)
    for name in ("rows", "position_ids"):
        if name in tensors:
            tensors[name] = sim.int64_of(tensors[name])
    written = dict(zip(OUTS[call.op], results, strict=True))
    if isinstance(attributes, RotaryAttributes) and is_onnx(call):
        _launch_rotary_mul(options, call.op, tensors, written["Y"], attributes)
        return
    if call.scatters and call.op == "rms_norm_rope":
        tensors["cache"] = written["k_out"]
    for name in _OPTIONAL.get(call.op, ()):
        tensors.setdefault(name, None)
    sim.launch(options, call.op, call.op, {**tensors, **written}, attributes.as_aclnn())


def _launch_rotary_mul(
    options: Options, op: str, tensors: Mapping[str, Any], y: Any, attributes: RotaryAttributes
) -> None:
    """Launch rotary_mul for rotary_embedding, on views: heads in their own dimension, and the entries that
    the rotation reads."""
    x, y = (_with_heads(v, attributes.num_heads) for v in (tensors["X"], y))
    half = (attributes.rotary_dim or x.shape[-1]) // 2
    cos, sin = (tensors[name][..., :half] for name in ("cos_cache", "sin_cache"))
    named = {"x": x, "cos": cos, "sin": sin, "position_ids": tensors.get("position_ids"), "out": y}
    sim.launch(options, op, "rotary_mul", named, attributes.as_aclnn())


def _with_heads(x: Any, num_heads: int) -> Any:
    """Return the view ``[B,S,N,D]`` of ``[B,N,S,D]``, or of ``[B,S,N*D]``."""
    if x.ndim == 4:
        return x.swapaxes(1, 2)
    return x.reshape(*x.shape[:2], num_heads, x.shape[2] // num_heads)


# ---- npu -------------------------------------------------------------------------------------------


# The kernels' error bound (op_kernel/rotation/sine_table.h) holds for positions of smaller magnitude only.
DEVICE_POSITIONS = 2**22


def check_device_positions(call: Tensors, attributes: Any) -> None:
    """Check that the device can rotate by the positions of a checked call, if it has any. The positions of a
    call with tables are rows. The binding has no such check, because it cannot read the elements of NPU
    tensors."""
    if "positions" not in call.other_inputs or "cos" in call.other_inputs:
        return
    positions: Array = array_of(call.other_inputs["positions"])
    far = positions[np.abs(positions.astype(np.int64)) >= DEVICE_POSITIONS]
    # An unsupported dtype or angle policy is the error of a later check.
    is_supported = spec_of(call.first[1]).dtype != "float64" and attributes.angle == "exact"
    if far.size and is_supported and any(0 not in x.shape for x in call.xs.values()):
        limit = DEVICE_POSITIONS - 1
        raise bad_value(call.op, "positions", f"be between -{limit} and {limit} on the device", far.flat[0])


def on_npu(call: Tensors, attributes: Attributes) -> Results:
    """Run the call on the NPU for arrays, or for CPU torch tensors without a gradient."""

    def check_all(call: Tensors) -> None:
        check(call, attributes)
        check_device_positions(call, attributes)

    def run_operator(xs: dict[str, Any], other_inputs: dict[str, Any], written: list[Any]) -> None:
        if is_onnx(call):
            other_inputs.setdefault("position_ids", None)
        named = dict(zip(call.outs or OUTS[call.op], written, strict=True))
        name = call.op if call.op == "rope_set_rows" else f"{call.entry}_out"
        arguments = {**xs, **other_inputs, **named, **schema_attributes(call, attributes)}
        getattr(torch.ops.npu_rope, name).default(**arguments)

    return npu.run(call, check_all, run_operator, written_whole=not call.scatters)


def schema_attributes(call: Tensors, attributes: Attributes) -> dict[str, Any]:
    """Return the attributes by their names in torch's schemas."""
    if not isinstance(attributes, RotaryAttributes):
        return attributes.as_schema()
    named: dict[str, Any] = {"interleaved": attributes.interleaved, "forward": attributes.forward}
    if is_onnx(call):
        return {**named, "num_heads": attributes.num_heads, "rotary_embedding_dim": attributes.rotary_dim}
    return {**named, "rotary_dim": attributes.rotary_dim, "offset": attributes.offset}


run = sim.by_backend(on_reference, on_cpu, on_npu, on_sim)
