"""Executors of rope, rope_qk and rope_set_rows on arrays and tensors, by backend.

A call carries the names of its tensors. The reference, the C library, the simulated core or an NPU runs it.
"""

from __future__ import annotations

import ctypes as C
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from ascend_sim import Options

from npu_rope import backends, native
from npu_rope.checks import RopeTensors
from npu_rope.errors import bad_value
from npu_rope.executors import npu, rules, sim
from npu_rope.executors.tensors import (
    Array,
    array_of,
    c_tensor,
    is_tensor,
    on_arrays,
    readable_array,
    readable_tensor,
    round_to,
    rounded,
    spec_of,
    taken,
    writing,
)
from npu_rope.optional_torch import torch
from npu_rope.params import RopeParams
from npu_rope.reference import rope as rope_reference
from npu_rope.reference import rope_qk as rope_qk_reference
from npu_rope.reference import rope_set_rows as rope_set_rows_reference
from npu_rope.values import ANGLE_POLICIES, Angle, AnglePolicy, angle_policy


@dataclass(slots=True)
class Attributes:
    """Arguments of a call besides its tensors."""

    params: RopeParams
    forward: bool
    angle: AnglePolicy

    def as_c(self) -> CAttributes:
        """Return the attributes as the C interface takes them."""
        return native.c_params(self.params), self.forward, self.angle

    def as_schema(self) -> dict[str, Any]:
        """Return the attributes by their names in torch's schemas."""
        p = self.params
        return {
            "n_dims": p.n_dims,
            "rope_mode": int(p.rope_mode),
            "n_ctx_orig": p.n_ctx_orig,
            "freq_base": p.freq_base,
            "freq_scale": p.freq_scale,
            "ext_factor": p.ext_factor,
            "attn_factor": p.attn_factor,
            "beta_fast": p.beta_fast,
            "beta_slow": p.beta_slow,
            "sections": list(p.sections) if any(p.sections) else None,
            "n_offs": p.n_offs,
            "forward": self.forward,
            "angle": ANGLE_POLICIES.index(self.angle),
        }

    def as_aclnn(self) -> dict[str, Any]:
        """Return the attributes by their names in the operators' definitions (op_host/rope_cann.cpp)."""
        named = self.as_schema()
        del named["angle"]
        mode = named.pop("rope_mode")
        return {**named, "mode": mode, "sections": list(self.params.sections)}


CAttributes = tuple[native.CParams, bool, AnglePolicy]
Tensors = RopeTensors[Any]
Results = tuple[Any, ...]  # the written tensors: one for each of xs, or the cache


def check(t: Tensors, a: Attributes) -> None:
    """Check every rule."""
    rules.check(t, {"params": a.params, "angle": a.angle})


# ---- reference ------------------------------------------------------------------------------------

# The float64 results for arrays: one for each output, or the new values of the cache's rows.
REFERENCES: dict[str, Callable[..., Any]] = {
    "rope": rope_reference.rope,
    "rope_qk": rope_qk_reference.rope_qk,
    "rope_set_rows": rope_set_rows_reference.rotated_tokens,
}


def on_reference(t: Tensors, a: Attributes) -> Results:
    """Run the reference on arrays, or on CPU torch tensors (no gradient flows through them)."""
    t = taken("reference", t)
    check(t, a)
    arrays = t.map(array_of)
    read: list[Array | None] = [*arrays.xs.values(), arrays.positions]
    if t.scatters:
        read += [arrays.rows, arrays.outs["cache"]]
    wide = REFERENCES[t.op](*read, a.params, arrays.freq_factors, forward=a.forward, angle=a.angle)
    if t.scatters:
        assert arrays.rows is not None
        write_rows(t.outs["cache"], arrays.rows, wide)
        return tuple(t.outs.values())
    return rounded(t, wide if isinstance(wide, tuple) else (wide,))


def write_rows(cache: Any, rows: Array, tokens: Array) -> None:
    """Write the rounded tokens into the cache at their rows. Other rows keep their values."""
    kept = rows.ravel() >= 0
    named = rows.ravel()[kept].astype(np.int64)
    with writing(cache):
        cache[torch.from_numpy(named) if is_tensor(cache) else named] = round_to(tokens[kept], cache)


# ---- cpu -------------------------------------------------------------------------------------------


def _launch(library: native.Native, t: Tensors, results: Results, a: CAttributes) -> None:
    """Call the library's entry of the operator, on copies of the inputs that it cannot read in place."""
    read, see = (readable_tensor, c_tensor) if is_tensor(t.first[1]) else (readable_array, native.describe)
    # Copies live until the call is over.
    sources = [x if name in t.in_place else read(x) for name, x in t.xs.items()]
    sources += [read(b, unit_stride=False) for b in t.beside().values()]
    inputs = [see(source) for source in sources] + ([] if t.freq_factors is not None else [None])
    getattr(library, t.op)(*inputs, *a, *[see(result) for result in results])


def on_cpu(t: Tensors, a: Attributes) -> Results:
    """Run the C library on arrays. (For tensors: csrc/torch, or :func:`on_cpu_tensors`.)"""
    library = native.load()
    return on_arrays(t, lambda t, results: _launch(library, t, results, a.as_c()))


def on_cpu_tensors(t: Tensors, a: Attributes) -> None:
    """Run the C library on torch tensors, into outs. For builds without the C++ registration."""
    _launch(native.load(), t, tuple(t.outs.values()), a.as_c())


def on_cpu_packed(t: Tensors, packed: Any) -> None:
    """Run :func:`on_cpu_tensors` with the attributes in a tensor, made by
    :func:`npu_rope.backends.packed_call`."""
    held = packed.numpy().tobytes()
    size = C.sizeof(native.PackedCall)
    if packed.dim() != 1 or len(held) != size:
        raise bad_value(t.op, "packed", f"be the {size} contiguous bytes of packed_call", "another tensor")
    call = native.PackedCall.from_buffer_copy(held)
    attributes = (call.params, bool(call.forward), ANGLE_POLICIES[call.angle])
    _launch(native.load(), t, tuple(t.outs.values()), attributes)


# ---- sim -------------------------------------------------------------------------------------------


def on_sim(options: Options, t: Tensors, a: Attributes) -> Results:
    """Run the AscendC kernel on the simulated core, for arrays or CPU torch tensors without a gradient."""

    def check_all(t: Tensors) -> None:
        check(t, a)
        sim.check_angle(t.op, a.angle)
        sim.check_types(options, t.op, t.op, {**t.xs, **t.outs})
        check_device_positions(t, a)

    return sim.run(options, t, check_all, lambda t, results: launch_on_sim(options, t, results, a))


def launch_on_sim(options: Options, t: Tensors, results: Results, a: Attributes) -> None:
    """Launch the kernel for a checked call; bfloat16 may be its bits in uint16 (:func:`.sim.launch`)."""
    read = readable_tensor if is_tensor(t.first[1]) else readable_array
    xs = {name: x if name in t.in_place else read(x) for name, x in t.xs.items()}
    tensors: dict[str, Any] = {**xs, "positions": read(t.positions, unit_stride=False)}
    if t.scatters:
        tensors["rows"] = sim.rows_of(t.rows)
    tensors["freq_factors"] = None if t.freq_factors is None else read(t.freq_factors, unit_stride=False)
    written = dict(zip(t.outs or NEW_OUTS[t.op], results, strict=True))
    sim.launch(options, t.op, t.op, {**tensors, **written}, a.as_aclnn())


# ---- npu -------------------------------------------------------------------------------------------


# Beyond it the kernel's split of a position is not exact.
DEVICE_POSITIONS = 2**22


def check_device_positions(t: Any, a: Any) -> None:
    """Check that the device can rotate by the positions of a checked call. The host can read them; the
    binding cannot read the elements of NPU tensors."""
    arrays = t.map(array_of)
    far = arrays.positions[np.abs(arrays.positions.astype(np.int64)) >= DEVICE_POSITIONS]
    takes = spec_of(t.first[1]).dtype != "float64" and a.angle == "exact"  # else the binding raises the error
    if far.size and takes and any(x.size for x in arrays.xs.values()):
        most = DEVICE_POSITIONS - 1
        raise bad_value(t.op, "positions", f"be between -{most} and {most} on the device", far.flat[0])


NEW_OUTS = {"rope": ("out",), "rope_qk": ("q_out", "k_out")}


def on_npu(t: Tensors, a: Attributes) -> Results:
    """Run the call on the NPU for arrays, or for CPU torch tensors without a gradient."""

    def check_all(t: Tensors) -> None:
        check(t, a)
        check_device_positions(t, a)

    def launch(xs: dict[str, Any], beside: dict[str, Any], written: list[Any]) -> None:
        named = dict(zip(t.outs or NEW_OUTS[t.op], written, strict=True))
        operator = getattr(torch.ops.npu_rope, t.op if t.scatters else f"{t.op}_out")
        operator.default(**xs, **beside, **named, **a.as_schema())

    return npu.run(t, check_all, launch, written_whole=not t.scatters)


# ---- by backend ------------------------------------------------------------------------------------

EXECUTORS: Mapping[str, Callable[[Tensors, Attributes], Results]] = {
    "reference": on_reference,
    "cpu": on_cpu,
    "npu": on_npu,
    **sim.by_soc(on_sim),
}


def run(backend: str, t: Tensors, params: RopeParams, forward: bool, angle: Angle) -> Results:
    """Run a call of rope, rope_qk or rope_set_rows on the backend of that name.

    Raises:
        ValueError, TypeError: an argument breaks its rule; nothing was written.
        BackendUnavailable: the backend is unavailable or lacks this operator.
    """
    executor = backends.executor_of(t.op, EXECUTORS, backend)
    return executor(t, Attributes(params, forward, angle_policy(t.op, angle)))
