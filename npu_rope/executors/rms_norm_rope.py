"""Executors of rms_norm_rope on arrays and tensors, by backend."""

from __future__ import annotations

import ctypes as C
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from ascend_sim import Options

from npu_rope import backends, native
from npu_rope.errors import bad_value
from npu_rope.executors import TENSOR, npu, rope, rules, sim
from npu_rope.executors.rope import check_device_positions, write_rows
from npu_rope.executors.tensors import (
    array_of,
    assign,
    c_tensor,
    empty_like,
    is_tensor,
    on_arrays,
    readable_array,
    readable_tensor,
    require_dense,
    round_to,
    rounded,
    spec_of,
    taken,
)
from npu_rope.optional_torch import torch
from npu_rope.reference import rms_norm_rope as reference
from npu_rope.rms_norm_rope_checks import OP, RmsNormRopeAttributes, RmsNormRopeTensors
from npu_rope.values import ANGLE_POLICIES

Tensors = RmsNormRopeTensors[Any]
Attributes = RmsNormRopeAttributes
Results = tuple[Any, ...]


def check(t: Tensors, a: Attributes) -> None:
    """Check every rule."""
    rules.check(t, a.rules)


def new_q_out(q: Any) -> Any:
    """Return memory for the queries of a call that writes its keys to a cache. A value that is neither a
    tensor nor an array comes back unchanged; the rules then reject it."""
    if is_tensor(q):
        require_dense(OP, "q", q)
        return empty_like(q)
    return empty_like(q) if hasattr(q, "strides") else q


# ---- reference -----------------------------------------------------------------------------------------


def on_reference(t: Tensors, a: Attributes) -> Results:
    """Run NumPy in float64. The results are rounded once, or after each step with intermediate rounding."""
    t = taken("reference", t)
    check(t, a)
    arrays = t.map(array_of)
    q, k = reference.rms_norm_rope(arrays, spec_of(t.xs["q"]).dtype, a)
    if arrays.rows is None:
        return rounded(t, (q, k))
    assign(t.outs["q_out"], round_to(q, t.xs["q"]))
    write_rows(t.outs["cache"], arrays.rows, k.reshape(arrays.rows.size, *k.shape[-2:]))
    return tuple(t.outs.values())


# ---- the C library -------------------------------------------------------------------------------------


@cache
def _entry(scatters: bool) -> Callable[..., None]:
    """Return ``npu_rope_rms_norm_rope`` or ``npu_rope_rms_norm_rope_set_rows``."""
    attributes = C.POINTER(native.CParams), C.c_double, C.c_int32, C.c_int32
    name, read = (f"{OP}_set_rows", 7) if scatters else (OP, 6)
    types = [*[TENSOR] * read, *attributes, TENSOR, TENSOR]
    return native.load().checked_entry(f"npu_rope_{name}", *types)


CAttributes = tuple[native.CParams, float, bool, int]


def as_c(a: Attributes) -> CAttributes:
    """Return the attributes as the C interface takes them."""
    return native.c_params(a.params), a.epsilon, a.intermediate_rounding, ANGLE_POLICIES.index(a.angle)


def as_schema(a: Attributes) -> dict[str, Any]:
    """Return the attributes by their names in torch's schemas."""
    named = rope.Attributes(a.params, True, a.angle).as_schema()
    del named["forward"]
    return {**named, "epsilon": a.epsilon, "intermediate_rounding": a.intermediate_rounding}


def launch(
    t: Tensors,
    results: Results,
    given: CAttributes,
    see: Callable[[Any], native.CTensor] | None = None,
) -> None:
    """Call the library's entry, on copies of the inputs that it cannot read in place.

    Args:
        t, results, given: of the call.
        see: makes the C struct of an array or tensor; by default it describes the array or tensor unchanged.
    """
    tensors = is_tensor(t.first[1])
    read = readable_tensor if tensors else readable_array
    see = see or (c_tensor if tensors else native.describe)
    # Copies live until the call is over.
    sources = [x if name in t.in_place else read(x) for name, x in t.xs.items()]
    sources += [read(b, unit_stride=name in t.scales) for name, b in t.beside().items()]
    inputs = [see(source) for source in sources] + ([] if t.freq_factors is not None else [None])
    _entry(t.scatters)(*inputs, *given, *[see(result) for result in results])


def on_cpu(t: Tensors, a: Attributes) -> Results:
    """Run the C library on arrays."""
    return on_arrays(t, lambda t, results: launch(t, results, as_c(a)))


def on_cpu_tensors(t: Tensors, a: Attributes) -> None:
    """Run the C library on torch tensors, into outs. For builds without the C++ registration."""
    launch(t, tuple(t.outs.values()), as_c(a))


# ---- attributes in a tensor ------------------------------------------------------------------------------


class PackedCall(C.Structure):
    """Struct from which ``torch.ops.npu_rope.rms_norm_rope_packed_`` reads its attributes."""

    _fields_ = [
        ("params", native.CParams),
        ("epsilon", C.c_double),
        ("intermediate_rounding", C.c_int32),
        ("angle", C.c_int32),
    ]


def packed_call(a: Attributes) -> bytes:
    """Return the attributes as the packed schema reads them."""
    return bytes(PackedCall(*as_c(a)))


def on_cpu_packed(t: Tensors, packed: Any) -> None:
    """Run :func:`on_cpu_tensors` with the attributes of :func:`packed_call`."""
    held, size = packed.numpy().tobytes(), C.sizeof(PackedCall)
    if packed.dim() != 1 or len(held) != size:
        raise bad_value(t.op, "packed", f"be the {size} contiguous bytes of packed_call", "another tensor")
    call = PackedCall.from_buffer_copy(held)
    given = call.params, call.epsilon, bool(call.intermediate_rounding), call.angle
    launch(t, tuple(t.outs.values()), given)


# ---- the kernel --------------------------------------------------------------------------------------------


def on_sim(options: Options, t: Tensors, a: Attributes) -> Results:
    """Run the AscendC kernel on the simulated core, for arrays or CPU torch tensors without a gradient."""

    def check_for_sim(t: Tensors) -> None:
        check(t, a)
        sim.check_angle(t.op, a.angle)
        sim.check_types(options, t.op, t.op, t.xs)
        check_device_positions(t, a)

    return sim.run(options, t, check_for_sim, lambda t, results: launch_on_sim(options, t, results, a))


def launch_on_sim(options: Options, t: Tensors, results: Results, a: Attributes) -> None:
    """Launch the kernel for a checked call; bfloat16 may be its bits in uint16 (:func:`.sim.launch`)."""
    read = readable_tensor if is_tensor(t.first[1]) else readable_array
    xs = {name: x if name in t.in_place else read(x) for name, x in t.xs.items()}
    scales = {name: read(scale) for name, scale in t.scales.items()}
    factors = None if t.freq_factors is None else read(t.freq_factors, unit_stride=False)
    q_out, k_out = results
    beside = {
        "positions": read(t.positions, unit_stride=False),
        "rows": sim.rows_of(t.rows),
        "freq_factors": factors,
        "cache": k_out if t.scatters else None,
    }
    attributes = rope.Attributes(a.params, True, a.angle).as_aclnn()
    attributes |= {"epsilon": a.epsilon, "intermediate_rounding": a.intermediate_rounding}
    tensors = {**xs, **scales, **beside, "q_out": q_out, "k_out": k_out}
    sim.launch(options, OP, OP, tensors, attributes)


def on_npu(t: Tensors, a: Attributes) -> Results:
    """Run the call on the NPU for arrays, or for CPU torch tensors without a gradient."""

    def run_operator(xs: dict[str, Any], beside: dict[str, Any], written: list[Any]) -> None:
        named = dict(zip(t.outs or ("q_out", "k_out"), written, strict=True))
        operators = torch.ops.npu_rope
        operator = operators.rms_norm_rope_set_rows_out if t.scatters else operators.rms_norm_rope_out
        operator.default(**xs, **beside, **named, **as_schema(a))

    def check_all(t: Tensors) -> None:
        check(t, a)
        check_device_positions(t, a)

    return npu.run(t, check_all, run_operator, written_whole=not t.scatters)


# ---- by backend ----------------------------------------------------------------------------------------

EXECUTORS: Mapping[str, Callable[[Tensors, Attributes], Results]] = {
    "reference": on_reference,
    "cpu": on_cpu,
    "npu": on_npu,
    **sim.by_soc(on_sim),
}


def run(backend: str, t: Tensors, a: Attributes) -> Results:
    """Run a call on the backend of that name. Return the tensors that it wrote.

    Raises:
        ValueError, TypeError: an argument breaks its rule; nothing was written.
        BackendUnavailable: the backend is unavailable or lacks this operator.
    """
    executor = backends.executor_of(t.op, EXECUTORS, backend)
    return executor(t, a)
