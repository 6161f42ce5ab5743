"""Executors of rms_norm, its backward and add_rms_norm on arrays and tensors, by back end."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from ascend_sim import Options

from npu_rope import native
from npu_rope.call_tensors import CallTensors, TensorSpec
from npu_rope.executors import npu, rules, sim
from npu_rope.executors.tensors import (
    accepted_call,
    array_of,
    as_arrays,
    assign,
    c_tensor,
    check_whole_elements,
    empty_like,
    in_whole_elements,
    is_tensor,
    round_to,
    spec_of,
)
from npu_rope.optional_torch import torch
from npu_rope.reference import rms_norm as reference
from npu_rope.reference.add_rms_norm import add_rms_norm
from npu_rope.reference.rms_norm import NormDtypes, summed_to
from npu_rope.rms_norm_calls import (
    ADD,
    BACKWARD,
    FORWARD,
    MAX_NATIVE_NDIM,
    RmsNormAttributes,
    check_many_sizes,
    is_dense_from,
    joined_sizes,
    rms_norm_backward_tensors,
)

Tensors = CallTensors[Any]
Results = tuple[Any, ...]


def check(t: Tensors, a: RmsNormAttributes) -> int:
    """Check every rule. Return axis, counted from the front."""
    ndim = len(t.x.shape)
    axis = a.axis % max(ndim, 1)
    if ndim <= MAX_NATIVE_NDIM:
        rules.check(t, a.arguments, lambda t: _readable_inputs(t, axis))
        return axis
    check_layout(t.map(spec_of), a)
    if t.outs:
        sources, written, first = _in_four_dimensions(joinable_call(t, axis), tuple(t.outs.values()), axis)
        xs, outs = dict(zip(t.xs, sources, strict=False)), dict(zip(t.outs, written, strict=True))
        rules.check(
            CallTensors(t.op, xs, {"scale": sources[-1]}, outs, t.in_place), {**a.arguments, "axis": first}
        )
    return axis


def check_layout(t: CallTensors[TensorSpec], a: RmsNormAttributes) -> None:
    """Check the rules that need neither an element's value nor an address."""
    if len(t.x.shape) <= MAX_NATIVE_NDIM:
        rules.check_layout(t, a.arguments)
    elif not rules.is_open(t):
        check_many_sizes(t, a)
        check_types_and_attributes(t, a)


def check_types_and_attributes(
    t: CallTensors[TensorSpec], a: RmsNormAttributes, chip: str | None = None
) -> None:
    """Check the rules that do not depend on the sizes. ``chip`` as in :func:`.rules.check`."""
    of_one = t.map(lambda spec: TensorSpec(spec.dtype, (1,), (1,)))
    rules.check_layout(of_one, {**a.arguments, "axis": 0}, chip)


# ---- reference -----------------------------------------------------------------------------------------


def on_reference(t: Tensors, a: RmsNormAttributes) -> Results:
    """Run NumPy in float64 and round where the specification rounds."""
    t = accepted_call("reference", t)
    axis = check(t, a)
    arrays, specs = t.map(array_of), t.map(spec_of)
    dtypes = NormDtypes(specs.x.dtype, specs.scale.dtype)
    if t.op == BACKWARD:
        both = reference.rms_norm_backward(arrays.xs["grad"], arrays.x, arrays.scale, dtypes, axis, a)
        return round_to(both[0], t.x), round_to(both[1], t.scale)
    results: Results
    if t.op == ADD:
        y, total = add_rms_norm(arrays.x, arrays.xs["residual"], arrays.scale, dtypes, axis, a)
        results = round_to(y, t.scale), round_to(total, t.x)
    else:
        results = (round_to(reference.rms_norm(arrays.x, arrays.scale, dtypes, axis, a), t.scale),)
    for out, y in zip(t.outs.values(), results, strict=False):
        assign(out, y)
    return tuple(t.outs.values()) or results


# ---- the C library -------------------------------------------------------------------------------------


def _readable(t: Any, axis: int) -> Any:
    """Return the tensor itself, or a copy if its rows are not contiguous."""
    if is_tensor(t):
        t = t.detach().resolve_neg()
        return t if is_dense_from(axis, spec_of(t)) else t.contiguous()
    if not t.dtype.isnative:
        return t.astype(t.dtype.newbyteorder("="), order="C")
    if t.flags.c_contiguous:
        return t if t.flags.aligned else t.copy()
    return t if in_whole_elements(t) and is_dense_from(axis, spec_of(t)) else t.copy()


def _readable_inputs(t: Tensors, axis: int) -> dict[str, Any]:
    """Return the inputs of a call, by name, copied where their rows are not contiguous."""
    return {
        name: v if name in t.in_place else _readable(v, v.ndim if name == "scale" else axis)
        for name, v in t.inputs().items()
    }


def joinable_call(t: Tensors, axis: int) -> Tensors:
    """Return the call if its dimensions join to four or fewer. If not, expand the scale to x's shape; in the
    backward also widen scale and grad to float64, because the scale's gradient must still be summed."""
    shape = tuple(t.x.shape)
    if (
        len(shape) <= MAX_NATIVE_NDIM
        or len(joined_sizes(shape, tuple(t.scale.shape), axis)[0]) <= MAX_NATIVE_NDIM
    ):
        return t
    scale: Any = t.scale.expand(shape) if is_tensor(t.scale) else np.broadcast_to(t.scale, shape)
    if t.op != BACKWARD:
        return replace(t, other_inputs={"scale": scale})
    scale, grad = (v.double() if is_tensor(v) else v.astype(np.float64) for v in (scale, t.xs["grad"]))
    return rms_norm_backward_tensors(grad, t.x, scale)


def launch(
    t: Tensors,
    results: Results,
    a: RmsNormAttributes,
    axis: int,
    as_c: Callable[[Any], native.CTensor] | None = None,
) -> None:
    """Call the library's entry of the operator, on copies of the inputs that it cannot read in place.

    Args:
        t, results, a: the call, its results (allocated) and its attributes.
        axis: counted from the front.
        as_c: makes the C struct of an array or tensor; by default it describes the array or tensor unchanged.
    """
    as_c = as_c or (c_tensor if is_tensor(t.x) else native.describe)
    sources, written, axis = _in_four_dimensions(t, results, axis)  # keeps the copies until the call ends
    outs = [as_c(result) for result in written]
    native.load().call(t.op, [as_c(source) for source in sources], replace(a, axis=axis), outs)


def _in_four_dimensions(t: Tensors, results: Results, axis: int) -> tuple[list[Any], list[Any], int]:
    """Return the inputs as the kernels read them, views of the results, and axis.

    More than four dimensions are joined to four or fewer (:func:`npu_rope.rms_norm_calls.joined_sizes`).
    Joined inputs must be contiguous.
    """
    rows = [t.xs["grad"], t.x] if t.op == BACKWARD else list(t.xs.values())
    if len(t.x.shape) <= MAX_NATIVE_NDIM:
        return [_readable(v, axis) for v in rows] + [_readable(t.scale, t.scale.ndim)], list(results), axis
    x_sizes, scale_sizes, first = joined_sizes(tuple(t.x.shape), tuple(t.scale.shape), axis)
    sources = [_readable(v, 0).reshape(x_sizes) for v in rows] + [_readable(t.scale, 0).reshape(scale_sizes)]
    shapes = (x_sizes, scale_sizes) if t.op == BACKWARD else (x_sizes,) * len(results)
    return sources, [r.reshape(s) for r, s in zip(results, shapes, strict=True)], first


def _new_results(t: Tensors) -> Results:
    if t.op == BACKWARD:
        return empty_like(t.x), empty_like(t.scale)
    of_sum = (empty_like(t.x),) if t.op == ADD else ()
    if is_tensor(t.x):
        return t.x.new_empty(t.x.shape, dtype=t.scale.dtype), *of_sum
    return np.empty(t.x.shape, t.scale.dtype.newbyteorder("=")), *of_sum


def on_cpu(t: Tensors, a: RmsNormAttributes) -> Results:
    """Run the C library on arrays."""
    t = as_arrays(t)
    check_whole_elements(t)
    return on_cpu_tensors(t, a)


def on_cpu_tensors(t: Tensors, a: RmsNormAttributes) -> Results:
    """Run the C library on arrays or tensors, into outs or new ones."""
    axis = check(t, a)
    joinable = joinable_call(t, axis)
    results = tuple(t.outs.values()) or _new_results(joinable)
    launch(joinable, results, a, axis)
    return results if t.op != BACKWARD or joinable is t else (results[0], _summed(results[1], t.scale))


def _summed(dscale: Any, scale: Any) -> Any:
    """Return the gradient of a scale that was expanded, summed to the scale's shape."""
    if is_tensor(scale):
        return torch.Tensor.sum_to_size(dscale, scale.shape).to(scale.dtype)
    return round_to(summed_to(dscale, scale.shape), scale)


def on_sim(options: Options, t: Tensors, a: RmsNormAttributes) -> Results:
    """Run the AscendC kernel on simulated cores."""

    def run(t: Tensors, results: Results) -> None:
        axis = check(t, a)
        if t.op == BACKWARD:
            _differentiate_on_sim(options, t, results, a, axis)
        else:
            launch_on_sim(options, joinable_call(t, axis), results, a, axis)

    def check_for_sim(t: Tensors) -> None:
        check(t, a)
        check_types_and_attributes(t.map(spec_of), a, sim.chip_of(options))

    allocate = _new_sums if t.op == BACKWARD else _new_results
    results = sim.run(options, t, check_for_sim, run, allocate)
    return results if t.op != BACKWARD else (results[0], _rounded_sums(results[1], t.scale))


# The kernels' tensors in the definitions' order, except that the backward's dscale, an input, is last.
_PARAMETERS: Mapping[str, tuple[str, ...]] = {
    FORWARD: ("x", "scale", "out"),
    ADD: ("x", "residual", "scale", "out", "sum"),
    BACKWARD: ("grad", "x", "scale", "dx", "dscale"),
}


def launch_on_sim(options: Options, t: Tensors, results: Results, a: RmsNormAttributes, axis: int) -> None:
    """Launch the kernel for a call whose values were checked. A uint16 array holds bfloat16's bits.

    Raises:
        InvalidValue, InvalidType: the chip does not support the call; nothing was written.
    """
    sources, written, axis = _in_four_dimensions(t, results, axis)
    tensors = dict(zip(_PARAMETERS[t.op], (*sources, *written), strict=True))
    if t.op == BACKWARD:
        tensors["dx"] = tensors.pop("dx")  # to the end, behind dscale
    attributes = {"axis": axis, "epsilon": a.epsilon, "stash_type": a.stash_type}
    specs = {name: sim.spec_of_launch(tensor) for name, tensor in tensors.items()}
    launched = CallTensors(t.op, {name: specs[name] for name in t.xs}, {"scale": specs["scale"]})
    rules.check_layout(launched, {**a.arguments, "axis": axis}, sim.chip_of(options))
    sim.launch(options, t.op, t.op, tensors, attributes)


def _differentiate_on_sim(
    options: Options, t: Tensors, results: Results, a: RmsNormAttributes, axis: int
) -> None:
    """Run the backward on simulated cores. The kernel takes one row of scale for all rows of x. If the scale
    has several rows, launch it once for each of them. Expand a row of scale that lacks elements."""
    shape = tuple(t.x.shape)
    dx, sums = results

    def differentiate(grad: Any, x: Any, scale: Any) -> Results:
        part = rms_norm_backward_tensors(grad, x, scale)
        made = _new_sums(part)
        launch_on_sim(options, part, made, a, axis)
        return made

    aligned = (1,) * (len(shape) - t.scale.ndim) + tuple(t.scale.shape)
    scales, sums = t.scale.reshape(aligned), sums.reshape(aligned)
    for index in np.ndindex(aligned[:axis]):
        rows = tuple(slice(k, k + 1) if n > 1 else slice(None) for k, n in zip(index, aligned, strict=False))
        made = differentiate(t.xs["grad"][rows], t.x[rows], _expanded(scales[index], shape[axis:]))
        dx[rows], sums[index] = made[0], _summed(made[1], sums[index])


def _expanded(scale: Any, shape: tuple[int, ...]) -> Any:
    if is_tensor(scale):
        return scale.expand(shape).contiguous()
    return np.ascontiguousarray(np.broadcast_to(scale, shape))


def _new_sums(t: Tensors) -> Results:
    """Allocate the backward's results; the kernel adds the scale's gradient to float32 zeros."""
    if is_tensor(t.x):
        return empty_like(t.x), t.scale.new_zeros(t.scale.shape, dtype=torch.float32)
    return empty_like(t.x), np.zeros(t.scale.shape, np.float32)


def _rounded_sums(sums: Any, scale: Any) -> Any:
    return sums.to(scale.dtype) if is_tensor(sums) else round_to(sums.astype(np.float64), np.asarray(scale))


def on_npu(t: Tensors, a: RmsNormAttributes) -> Results:
    """Run the call on the NPU for arrays, or for CPU torch tensors without a gradient."""

    def run(xs: dict[str, Any], other_inputs: dict[str, Any], written: list[Any]) -> None:
        if t.op == BACKWARD:
            given = xs["grad"], xs["x"], other_inputs["scale"], a.axis, a.epsilon, a.stash_type
            written[:] = torch.ops.npu_rope.rms_norm_backward.default(*given)
            return
        operator = getattr(torch.ops.npu_rope, f"{t.op}_out").default
        operator(*xs.values(), *other_inputs.values(), *written, a.axis, a.epsilon, a.stash_type)

    return npu.run(t, lambda t: check(t, a), run, new_results=_new_results)


run = sim.by_backend(on_reference, on_cpu, on_npu, on_sim)
