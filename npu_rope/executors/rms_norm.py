"""Executors of rms_norm, its backward and add_rms_norm on arrays and tensors, by back end, and of
rms_norm_rounded_last on the CPU."""

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
    ROUNDED_LAST,
    RmsNormAttributes,
    check_many_sizes,
    is_dense_from,
    joined_sizes,
    rms_norm_backward_tensors,
)

Tensors = CallTensors[Any]
Results = tuple[Any, ...]


def check(call: Tensors, attributes: RmsNormAttributes) -> int:
    """Check every rule. Return axis, counted from the front."""
    ndim = len(call.x.shape)
    axis = attributes.axis % max(ndim, 1)
    if ndim <= MAX_NATIVE_NDIM:
        rules.check(call, attributes.checked, lambda call: _readable_inputs(call, axis))
        return axis
    check_layout(call.map(spec_of), attributes)
    if call.outs:
        joinable, results = joinable_call(call, axis), tuple(call.outs.values())
        sources, written, first = _in_four_dimensions(joinable, results, axis)
        xs, outs = dict(zip(call.xs, sources, strict=False)), dict(zip(call.outs, written, strict=True))
        rules.check(
            CallTensors(call.op, xs, {"scale": sources[-1]}, outs, call.in_place),
            {**attributes.checked, "axis": first},
        )
    return axis


def check_layout(call: CallTensors[TensorSpec], attributes: RmsNormAttributes) -> None:
    """Check the rules that need neither an element's value nor an address."""
    if len(call.x.shape) <= MAX_NATIVE_NDIM:
        rules.check_layout(call, attributes.checked)
    elif not rules.has_symbolic_sizes(call):
        check_many_sizes(call, attributes)
        check_types_and_attributes(call, attributes)


def check_types_and_attributes(
    call: CallTensors[TensorSpec], attributes: RmsNormAttributes, chip: str | None = None
) -> None:
    """Check the rules that do not depend on the sizes. ``chip`` as in :func:`.rules.check`."""
    single_elements = call.map(lambda spec: TensorSpec(spec.dtype, (1,), (1,)))
    rules.check_layout(single_elements, {**attributes.checked, "axis": 0}, chip)


# ---- reference -----------------------------------------------------------------------------------------


def on_reference(call: Tensors, attributes: RmsNormAttributes) -> Results:
    """Run NumPy in float64 and round where the specification rounds."""
    call = accepted_call("reference", call)
    axis = check(call, attributes)
    arrays, specs = call.map(array_of), call.map(spec_of)
    dtypes = NormDtypes(specs.x.dtype, specs.scale.dtype)
    if call.op == BACKWARD:
        grad = arrays.xs["grad"]
        dx, dscale = reference.rms_norm_backward(grad, arrays.x, arrays.scale, dtypes, axis, attributes)
        return round_to(dx, call.x), round_to(dscale, call.scale)
    results: Results
    if call.op == ADD:
        y, total = add_rms_norm(arrays.x, arrays.xs["residual"], arrays.scale, dtypes, axis, attributes)
        results = round_to(y, call.scale), round_to(total, call.x)
    else:
        y = reference.rms_norm(arrays.x, arrays.scale, dtypes, axis, attributes)
        results = (round_to(y, call.scale),)
    for out, y in zip(call.outs.values(), results, strict=False):
        assign(out, y)
    return tuple(call.outs.values()) or results


# ---- the C library -------------------------------------------------------------------------------------


def _readable(tensor: Any, axis: int) -> Any:
    """Return the tensor itself, or a copy if its rows are not contiguous."""
    if is_tensor(tensor):
        tensor = tensor.detach().resolve_neg()
        return tensor if is_dense_from(axis, spec_of(tensor)) else tensor.contiguous()
    if not tensor.dtype.isnative:
        return tensor.astype(tensor.dtype.newbyteorder("="), order="C")
    if tensor.flags.c_contiguous:
        return tensor if tensor.flags.aligned else tensor.copy()
    return tensor if in_whole_elements(tensor) and is_dense_from(axis, spec_of(tensor)) else tensor.copy()


def _readable_inputs(call: Tensors, axis: int) -> dict[str, Any]:
    """Return the inputs of a call, by name, copied where their rows are not contiguous."""
    return {
        name: v if name in call.in_place else _readable(v, v.ndim if name == "scale" else axis)
        for name, v in call.inputs().items()
    }


def joinable_call(call: Tensors, axis: int) -> Tensors:
    """Return the call if its dimensions join to four or fewer. If not, expand the scale to x's shape; in the
    backward also widen scale and grad to float64, because the scale's gradient must still be summed."""
    shape = tuple(call.x.shape)
    if (
        len(shape) <= MAX_NATIVE_NDIM
        or len(joined_sizes(shape, tuple(call.scale.shape), axis)[0]) <= MAX_NATIVE_NDIM
    ):
        return call
    scale: Any = call.scale.expand(shape) if is_tensor(call.scale) else np.broadcast_to(call.scale, shape)
    if call.op != BACKWARD:
        return replace(call, other_inputs={"scale": scale})
    scale, grad = (v.double() if is_tensor(v) else v.astype(np.float64) for v in (scale, call.xs["grad"]))
    return rms_norm_backward_tensors(grad, call.x, scale)


def launch(
    call: Tensors,
    results: Results,
    attributes: RmsNormAttributes,
    axis: int,
    as_c: Callable[[Any], native.CTensor] | None = None,
) -> None:
    """Call the library's entry of the operator, on copies of the inputs that it cannot read in place.

    Args:
        call, results, attributes: the call, its allocated results and its attributes. The backward's second
            result may be missing; it is then not computed.
        axis: counted from the front.
        as_c: makes the C struct of an array or tensor; by default it describes the array or tensor unchanged.
    """
    as_c = as_c or (c_tensor if is_tensor(call.x) else native.describe)
    # `sources` keeps the copies in memory until the call ends.
    sources, written, axis = _in_four_dimensions(call, results, axis)
    outs = [as_c(result) for result in written]
    absent = [None] * (native.ENTRIES[call.op][2] - len(outs))
    sources_as_c = [as_c(source) for source in sources]
    native.load().call(call.op, sources_as_c, replace(attributes, axis=axis), [*outs, *absent])


def _in_four_dimensions(call: Tensors, results: Results, axis: int) -> tuple[list[Any], list[Any], int]:
    """Return the inputs as the kernels read them, views of the results, and axis.

    More than four dimensions are joined to four or fewer (:func:`npu_rope.rms_norm_calls.joined_sizes`).
    Joined inputs must be contiguous.
    """
    rows = [call.xs["grad"], call.x] if call.op == BACKWARD else list(call.xs.values())
    if len(call.x.shape) <= MAX_NATIVE_NDIM:
        sources = [*(_readable(x, axis) for x in rows), _readable(call.scale, call.scale.ndim)]
        return sources, list(results), axis
    x_sizes, scale_sizes, first = joined_sizes(tuple(call.x.shape), tuple(call.scale.shape), axis)
    sources = [_readable(x, 0).reshape(x_sizes) for x in rows]
    sources.append(_readable(call.scale, 0).reshape(scale_sizes))
    shapes = (x_sizes, scale_sizes) if call.op == BACKWARD else (x_sizes,) * len(results)
    return sources, [r.reshape(s) for r, s in zip(results, shapes, strict=False)], first


def _new_results(call: Tensors) -> Results:
    if call.op == BACKWARD:
        return empty_like(call.x), empty_like(call.scale)
    if call.op == ROUNDED_LAST:
        return (empty_like(call.x),)
    sum_result = (empty_like(call.x),) if call.op == ADD else ()
    if is_tensor(call.x):
        return call.x.new_empty(call.x.shape, dtype=call.scale.dtype), *sum_result
    return np.empty(call.x.shape, call.scale.dtype.newbyteorder("=")), *sum_result


def on_cpu(call: Tensors, attributes: RmsNormAttributes) -> Results:
    """Run the C library on arrays."""
    call = as_arrays(call)
    check_whole_elements(call)
    return on_cpu_tensors(call, attributes)


def on_cpu_tensors(call: Tensors, attributes: RmsNormAttributes, *, needs_dscale: bool = True) -> Results:
    """Run the C library on arrays or tensors, into outs or new ones. The backward returns only dx if dscale
    is not needed."""
    axis = check(call, attributes)
    joinable = joinable_call(call, axis)
    results = tuple(call.outs.values()) or _new_results(joinable)
    results = results if needs_dscale else results[:1]
    launch(joinable, results, attributes, axis)
    if call.op != BACKWARD or joinable is call or not needs_dscale:
        return results
    return results[0], _summed(results[1], call.scale)


def _summed(dscale: Any, scale: Any) -> Any:
    """Return the gradient of a scale that was expanded, summed to the scale's shape."""
    if is_tensor(scale):
        return torch.Tensor.sum_to_size(dscale, scale.shape).to(scale.dtype)
    return round_to(summed_to(dscale, scale.shape), scale)


def on_sim(options: Options, call: Tensors, attributes: RmsNormAttributes) -> Results:
    """Run the AscendC kernel on simulated cores."""

    def run(call: Tensors, results: Results) -> None:
        axis = check(call, attributes)
        if call.op == BACKWARD:
            differentiate_on_sim(options, call, results, attributes, axis)
        else:
            launch_on_sim(options, joinable_call(call, axis), results, attributes, axis)

    def check_for_sim(call: Tensors) -> None:
        check(call, attributes)
        check_types_and_attributes(call.map(spec_of), attributes, sim.chip_of(options))

    allocate = _new_sums if call.op == BACKWARD else _new_results
    results = sim.run(options, call, check_for_sim, run, allocate)
    return results if call.op != BACKWARD else (results[0], _rounded_sums(results[1], call.scale))


# The kernels' tensors in the definitions' order, except that the backward's dscale, an input, is last.
_PARAMETERS: Mapping[str, tuple[str, ...]] = {
    FORWARD: ("x", "scale", "out"),
    ADD: ("x", "residual", "scale", "out", "sum"),
    BACKWARD: ("grad", "x", "scale", "dx", "dscale"),
}


def launch_on_sim(
    options: Options, call: Tensors, results: Results, attributes: RmsNormAttributes, axis: int
) -> None:
    """Launch the kernel for a call whose values were checked. A uint16 array holds bfloat16's bits.

    Raises:
        InvalidValue, InvalidType: the chip does not support the call; nothing was written.
    """
    sources, written, axis = _in_four_dimensions(call, results, axis)
    tensors = dict(zip(_PARAMETERS[call.op], (*sources, *written), strict=True))
    if call.op == BACKWARD:
        tensors["dx"] = tensors.pop("dx")  # to the end, behind dscale
    arguments = {"axis": axis, "epsilon": attributes.epsilon, "stash_type": attributes.stash_type}
    specs = {name: sim.spec_of_launch(tensor) for name, tensor in tensors.items()}
    launched = CallTensors(call.op, {name: specs[name] for name in call.xs}, {"scale": specs["scale"]})
    rules.check_layout(launched, {**attributes.checked, "axis": axis}, sim.chip_of(options))
    sim.launch(options, call.op, call.op, tensors, arguments)


def differentiate_on_sim(
    options: Options, call: Tensors, results: Results, attributes: RmsNormAttributes, axis: int
) -> None:
    """Run the backward on simulated cores, into dx and float32 zeros for dscale. A uint16 array holds
    bfloat16's bits.

    The kernel takes one row of scale for all rows of x. If the scale has several rows, launch it once for
    each of them. Expand a row of scale that lacks elements.
    """
    shape = tuple(call.x.shape)
    dx, sums = results

    def differentiate(grad: Any, x: Any, scale: Any) -> Results:
        part = rms_norm_backward_tensors(grad, x, scale)
        part_results = _new_sums(part)
        launch_on_sim(options, part, part_results, attributes, axis)
        return part_results

    aligned = (1,) * (len(shape) - call.scale.ndim) + tuple(call.scale.shape)
    scales, sums = call.scale.reshape(aligned), sums.reshape(aligned)
    for index in np.ndindex(aligned[:axis]):
        rows = tuple(slice(k, k + 1) if n > 1 else slice(None) for k, n in zip(index, aligned, strict=False))
        part_scale = _expanded(scales[index], shape[axis:])
        dx[rows], part_sums = differentiate(call.xs["grad"][rows], call.x[rows], part_scale)
        sums[index] = _summed(part_sums, sums[index])


def _expanded(scale: Any, shape: tuple[int, ...]) -> Any:
    if is_tensor(scale):
        return scale.expand(shape).contiguous()
    return np.ascontiguousarray(np.broadcast_to(scale, shape))


def _new_sums(call: Tensors) -> Results:
    """Allocate the backward's results; the kernel adds the scale's gradient to float32 zeros."""
    if is_tensor(call.x):
        return empty_like(call.x), call.scale.new_zeros(call.scale.shape, dtype=torch.float32)
    return empty_like(call.x), np.zeros(call.scale.shape, np.float32)


def _rounded_sums(sums: Any, scale: Any) -> Any:
    return sums.to(scale.dtype) if is_tensor(sums) else round_to(sums.astype(np.float64), np.asarray(scale))


def on_npu(call: Tensors, attributes: RmsNormAttributes) -> Results:
    """Run the call on the NPU for arrays, or for CPU torch tensors without a gradient."""

    def run(xs: dict[str, Any], other_inputs: dict[str, Any], written: list[Any]) -> None:
        values = attributes.axis, attributes.epsilon, attributes.stash_type
        if call.op == BACKWARD:
            given = xs["grad"], xs["x"], other_inputs["scale"], *values
            written[:] = torch.ops.npu_rope.rms_norm_backward.default(*given)
            return
        operator = getattr(torch.ops.npu_rope, f"{call.op}_out").default
        operator(*xs.values(), *other_inputs.values(), *written, *values)

    return npu.run(call, lambda call: check(call, attributes), run, new_results=_new_results)


run = sim.by_backend(on_reference, on_cpu, on_npu, on_sim)
