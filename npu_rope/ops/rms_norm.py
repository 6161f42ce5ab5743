"""rms_norm and rms_norm_backward, ONNX's RMSNormalization, and rms_norm_rounded_last: the Python functions,
the gradients, and the registration with torch. ``add_rms_norm.py`` calls :func:`run` as well.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from npu_rope import backends
from npu_rope.call_tensors import CallTensors
from npu_rope.executors import rms_norm as executors
from npu_rope.executors import small_arrays
from npu_rope.executors.tensors import is_tensor, require_tensor_like, spec_of, unpacked
from npu_rope.ops import calls, gradients
from npu_rope.ops.registrar import PACKED, Call, TorchOperator, like_xs, register
from npu_rope.optional_torch import torch
from npu_rope.rms_norm_calls import (
    BACKWARD,
    BACKWARD_DX,
    FORWARD,
    ROUNDED_LAST,
    RmsNormAttributes,
    attributes_of,
    rms_norm_backward_tensors,
    rms_norm_rounded_last_tensors,
    rms_norm_tensors,
)

Tensors = CallTensors[Any]


def rms_norm(
    x: Any,
    scale: Any,
    *,
    axis: int = -1,
    epsilon: float = 1e-5,
    stash_type: int = 1,
    out: Any = None,
    backend: str | None = None,
) -> Any:
    """Divide rows by the root of their mean square, and multiply by scale: ONNX's RMSNormalization-23::

        y = (x / sqrt(mean(x^2) + epsilon), rounded to x's type) * scale

    Args:
        x: any shape of one dimension or more, torch tensor or NumPy array; float32, float16, bfloat16 or
            float64. Any strides; rows that are not contiguous cost a copy of x.
        scale: broadcastable to x's shape (each dimension, from the last on, is x's or 1), of any of these
            dtypes. Its dtype is the result's.
        axis: the first normalized dimension; a row has this dimension and all later ones. Negative: counted
            from the end.
        epsilon: added to the mean square: >= 0. Rounded to float32, as ONNX stores it.
        stash_type: the type to which x is rounded before the division, and the division's precision, by
            ONNX's number: 1 float32, 10 float16, 11 float64, 16 bfloat16. The squares overflow in none of
            these types.
        out: where to write: x's shape, scale's dtype, contiguous rows; may be x itself (in place).
        backend: ``"reference"``, ``"cpu"``, ``"sim"``, ``"sim:<soc>"`` or ``"npu"``; None:
            ``NPU_ROPE_BACKEND``, else by x's device.

    Returns:
        A tensor or array, as x is, with x's shape and scale's dtype; ``out`` if it was passed. Gradients flow
        to x and scale.

    Raises:
        ValueError, TypeError: an argument breaks its rule; nothing was written.
        BackendUnavailable: the back end is unavailable or lacks this operator.

    >>> import numpy as np
    >>> rms_norm(np.float32([[3, 4, 0, 0]]), np.float32([1, 10, 1, 1]), epsilon=0)
    array([[ 1.2, 16. ,  0. ,  0. ]], dtype=float32)
    """
    if backend is None and type(axis) is int is type(stash_type) and type(epsilon) is float:
        given = axis, epsilon, stash_type
        if out is None:
            y = calls.try_hot_path(FORWARD, (x, scale), given)
        elif calls.wrote_directly(FORWARD, (x, scale), given, (out,)):
            return out
        else:
            y = calls.try_hot_write(f"{FORWARD}_out", (x, scale, out), given, (out,))
        if y is not NotImplemented:
            return y if out is None else out
        if not is_tensor(x) and backends.default_backend in (None, "cpu"):
            outs = None if out is None else (out,)
            results = small_arrays.run(FORWARD, (x,), (scale,), given, outs, typed=scale)
            if results is not None:
                return results[0]
    require_tensor_like(FORWARD, "x", x)
    attributes = attributes_of(FORWARD, axis, epsilon, stash_type)
    return run(backend, rms_norm_tensors(x, scale, out), attributes)[0]


def rms_norm_rounded_last(x: Any, scale: Any, epsilon: float, scale_offset: float) -> Any:
    """Normalize the last dimension in float32, multiply by scale + scale_offset, and round once::

        y = (x / sqrt(mean(x^2) + epsilon) * (scale + scale_offset)), rounded to x's type

    Gemma, OLMo 2 and gpt-oss have this norm. Its conversions take most of the time of a decode-sized call. So
    a call on the CPU that needs no gradient uses an operator that reads x and scale in their types.

    Args:
        x, scale: tensors as rms_norm's. For float64, the arithmetic is in float64.
        epsilon: added to the mean square.
        scale_offset: added to the scale: 1 for Gemma, whose scales are stored minus 1.
    """
    is_narrow = x.dtype != torch.float64 != scale.dtype
    if is_narrow:
        y = calls.try_hot_path(ROUNDED_LAST, (x, scale), (-1, epsilon, scale_offset))
        if y is not NotImplemented:
            return y
    wide = torch.float32 if is_narrow else torch.float64
    scale = scale.to(wide) + scale_offset if scale_offset else scale.to(wide)
    return rms_norm(x.to(wide), scale, epsilon=epsilon).to(x.dtype)


def rms_norm_backward(
    grad: Any,
    x: Any,
    scale: Any,
    *,
    axis: int = -1,
    epsilon: float = 1e-5,
    stash_type: int = 1,
    backend: str | None = None,
) -> tuple[Any, Any]:
    """Return the gradients of :func:`rms_norm` for x and scale. The gradient of a rounding is the identity.

    Args:
        grad: the result's gradient: x's shape, scale's dtype.
        x, scale, axis, epsilon, stash_type, backend: the arguments of rms_norm.

    Returns:
        Gradients of the shapes and dtypes of x and scale. The latter is summed over the rows that share it:
        in float64, in an order that depends only on the shapes; on a device in float32, in any order.

    Raises:
        ValueError, TypeError: an argument breaks its rule.
        BackendUnavailable: the back end is unavailable or lacks this operator.

    >>> import numpy as np
    >>> x, scale = np.float32([[3, 4]]), np.float32([2, 2])
    >>> dx, dscale = rms_norm_backward(np.float32([[0, 1]]), x, scale, epsilon=0)
    >>> dx.round(4).tolist(), dscale.round(4).tolist()
    ([[-0.27149999141693115, 0.20360000431537628]], [0.0, 1.1313999891281128])
    """
    for name, value in (("grad", grad), ("x", x)):
        require_tensor_like(BACKWARD, name, value)
    attributes = attributes_of(BACKWARD, axis, epsilon, stash_type)
    dx, dscale = run(backend, rms_norm_backward_tensors(grad, x, scale), attributes)
    return dx, dscale


# ---- dispatch ------------------------------------------------------------------------------------------


def run(backend: str | None, call: Tensors, attributes: RmsNormAttributes) -> tuple[Any, ...]:
    """Run a call on the back end of that name, by default on the device of its tensors."""
    chosen = backends.default_backend if backend is None else backend
    if is_tensor(call.x):
        if call.op != BACKWARD:
            gradients.refuse_tangents(call.op, {**call.xs, "scale": call.scale})
        if chosen is None or chosen == call.x.device.type:
            try:
                return _dispatched(call, attributes)
            except (RuntimeError, ValueError, TypeError, IndexError, AttributeError) as error:
                raise calls.exception_of_call(error, partial(check, call, attributes)) from error.__cause__
    return calls.run_named(chosen, call, attributes, executors.run)


def _dispatched(call: Tensors, attributes: RmsNormAttributes) -> tuple[Any, ...]:
    """Run torch's operator. Write its results into outs if the call has any."""
    given = attributes.axis, attributes.epsilon, attributes.stash_type
    read = (call.xs["grad"], call.x) if call.op == BACKWARD else tuple(call.xs.values())
    outs = tuple(call.outs.values())
    if not outs:
        return _as_tuple(getattr(_operators, call.op).default(*read, call.scale, *given))
    if not (torch.is_grad_enabled() and any(v.requires_grad for v in (*read, call.scale))):
        getattr(_operators, f"{call.op}_out").default(*read, call.scale, *outs, *given)
        return outs
    if not torch.compiler.is_compiling():  # else the operator's fake and the copies raise the errors
        check(call, attributes)
        for out in outs:
            gradients.refuse_in_place(out)
        if calls.is_plain_cpu_tensor(call.x):
            executors.check(call, attributes)
    if call.op == FORWARD and (call.in_place or _share_address(outs[0], call.x)):
        read = (call.x.clone(),)  # the gradient needs the original x
    results = _as_tuple(getattr(_operators, call.op).default(*read, call.scale, *given))
    gradients.copy_results(call.op, call.outs, results)
    return outs


def _share_address(out: Any, x: Any) -> bool:
    """Return whether both begin at the same address. False for tensors without memory."""
    has_memory = not torch.compiler.is_compiling() and calls.is_plain_cpu_tensor(x)
    return has_memory and out.data_ptr() == x.data_ptr()


def _as_tuple(results: Any) -> tuple[Any, ...]:
    return results if isinstance(results, tuple) else (results,)


def check(call: Tensors, attributes: RmsNormAttributes) -> None:
    """Check every rule that needs neither an element's value nor an address. Tensors may be fake."""
    calls.check_devices(call)
    executors.check_layout(call.map(spec_of), attributes)


# ---- gradients -----------------------------------------------------------------------------------------


def differentiate(
    grad: Any, x: Any, scale: Any, given: tuple[Any, ...], needs_dscale: bool
) -> tuple[Any, Any]:
    """Return the gradients of x and scale. If scale needs no gradient, do not compute it, and
    return None for it.

    Args:
        given: the values of rms_norm's attributes.
    """
    if not needs_dscale:
        return calls.run(BACKWARD_DX, (grad, x, scale), given), None
    both: tuple[Any, Any] = calls.run(BACKWARD, (grad, x, scale), given)
    return both


def _backward(ctx: Any, grad: Any) -> tuple[Any, Any]:
    x, scale = ctx.saved_tensors
    return differentiate(grad, x, scale, ctx.attributes, ctx.needs_input_grad[2])


def _differentiable(op: str, call: Tensors, attributes: RmsNormAttributes) -> tuple[Any, ...]:
    """Autograd kernel of rms_norm_backward and of rms_norm_backward_dx. It runs torch's operations if an
    input needs a gradient or has a tangent, or if the rows have different scales on an NPU."""
    tensors = grad, x, scale = call.xs["grad"], call.x, call.scale
    differentiated = torch.is_grad_enabled() and any(v.requires_grad for v in tensors)
    differentiated = differentiated or any(map(gradients.has_tangent, tensors))
    if differentiated or (x.device.type == "npu" and _scale_varies(x, scale, attributes.axis)):
        check(call, attributes)
        both = differentiable_backward(grad, x, scale, attributes)
        return both if op == BACKWARD else both[:1]
    with torch._C._AutoDispatchBelowAutograd():
        given = attributes.axis, attributes.epsilon, attributes.stash_type
        return _as_tuple(getattr(_operators, op).default(grad, x, scale, *given))


def _scale_varies(x: Any, scale: Any, axis: int) -> bool:
    """Return whether rows have different scales. The call may be unchecked."""
    row_ndim = x.dim() - axis % max(x.dim(), 1)
    return any(size != 1 for size in scale.shape[: max(scale.dim() - row_ndim, 0)])


def differentiable_backward(grad: Any, x: Any, scale: Any, attributes: RmsNormAttributes) -> tuple[Any, Any]:
    """Compute rms_norm_backward with torch's operations in float64, or on an NPU in float32 except for a
    float64 stash type (formula: ``reference/rms_norm.py``)."""
    stash = getattr(torch, attributes.stash_dtype)
    wide = torch.float32 if x.device.type == "npu" and stash != torch.float64 else torch.float64
    axes = tuple(range(attributes.axis % x.dim(), x.dim()))
    stashed = _rounded(x.to(wide), stash)
    epsilon = torch.tensor(attributes.epsilon, dtype=torch.float32).to(stash).to(wide)
    power = _power_of_rows(stashed, axes, attributes.epsilon) if stash == torch.float64 else None
    if power is not None:
        stashed, epsilon = stashed * power, epsilon * power * power
    inverse = (stashed.square().mean(axes, keepdim=True) + epsilon).rsqrt()
    normalized = stashed * inverse
    g = grad.to(wide) * scale.to(wide)
    dx = inverse * (g - normalized * (g * normalized).mean(axes, keepdim=True))
    if power is not None:
        dx = dx * power
    normalized = _rounded(_rounded(normalized, stash), x.dtype)
    dscale = (grad.to(wide) * normalized).sum_to_size(scale.shape)
    return dx.to(x.dtype), dscale.to(scale.dtype)


def _rounded(wide: Any, dtype: Any) -> Any:
    """Round to dtype, with the identity as gradient (torch's cast would also round gradients)."""
    if wide.dtype == dtype:
        return wide
    constant = wide.detach()
    return constant.to(dtype).to(wide.dtype) + (wide - constant).nan_to_num()


_PEAK = 16  # exponent of a row's largest element after scaling, as in reference/rms_norm.py


def _power_of_rows(rows: Any, axes: tuple[int, ...], epsilon: float) -> Any:
    """Return a power of two for each float64 row. Scaling the row by it keeps the squares in range. In
    gradients of gradients it also keeps the third and fifth powers of 1 / RMS in range. A positive epsilon
    bounds 1 / RMS, so then only large rows are scaled."""
    peak = rows.detach().abs().amax(axes, keepdim=True) if rows.numel() else rows.new_ones(())
    one = torch.ones_like(peak)
    exponent = torch.frexp(torch.where(peak.isfinite() & (peak > 0), peak, one))[1]
    return torch.ldexp(one, (_PEAK - exponent).clamp(max=1000 if epsilon == 0 else 0))


# ---- registration --------------------------------------------------------------------------------------


def _call(x: Any, scale: Any, *given: Any) -> Call:
    return rms_norm_tensors(x, scale), RmsNormAttributes(*given)


def _call_out(x: Any, scale: Any, out: Any, *given: Any) -> Call:
    return rms_norm_tensors(x, scale, out), RmsNormAttributes(*given)


def _call_packed(x: Any, scale: Any, packed: Any) -> Call:
    return rms_norm_tensors(x, scale), packed


def _call_rounded_last(x: Any, scale: Any, packed: Any) -> Call:
    return rms_norm_rounded_last_tensors(x, scale), packed


def _on_cpu_packed(call: Tensors, packed: Any) -> None:
    given = unpacked(call, packed)
    last = (
        {"scale_offset": given.scale_offset} if call.op == ROUNDED_LAST else {"stash_type": given.stash_type}
    )
    executors.on_cpu_tensors(call, RmsNormAttributes(given.axis, given.epsilon, **last))


def _call_backward(grad: Any, x: Any, scale: Any, *given: Any) -> Call:
    return rms_norm_backward_tensors(grad, x, scale), RmsNormAttributes(*given)


def _results(call: Tensors) -> dict[str, Any]:
    return {"out": call.x.new_empty(call.x.shape, dtype=call.scale.dtype)}


def _results_backward(call: Tensors) -> dict[str, Any]:
    return {"dx": call.x.new_empty(call.x.shape), "dscale": call.scale.new_empty(call.scale.shape)}


def _check_backward(call: Tensors, attributes: RmsNormAttributes) -> None:
    # Without outs: the rules demand x's shape of an out, but dscale has scale's. The operator allocated both.
    check(replace(call, outs={}), attributes)


def _backward_on_cpu(call: Tensors, attributes: RmsNormAttributes) -> None:
    """Run rms_norm_backward through ctypes. The executor may compute dscale in another shape and sum it, so
    it returns results of its own, which are copied to the call's outs."""
    needs_dscale = "dscale" in call.outs
    results = executors.on_cpu_tensors(replace(call, outs={}), attributes, needs_dscale=needs_dscale)
    for out, y in zip(call.outs.values(), results, strict=True):
        out.copy_(y)


ATTRIBUTES = "int axis=-1, float epsilon=1e-5, int stash_type=1"
operator = partial(TorchOperator, check=check, on_cpu=executors.on_cpu_tensors)
_packed_operator = partial(
    TorchOperator, check=calls.check_packed, on_cpu=_on_cpu_packed, hot_path=True, on_npu=False
)
_backward_operator = partial(
    TorchOperator, call=_call_backward, check=_check_backward, on_cpu=_backward_on_cpu
)
register(
    operator(
        f"rms_norm(Tensor x, Tensor scale, {ATTRIBUTES}) -> Tensor",
        _call,
        results=_results,
        gradient=gradients.Gradient(_backward),
    ),
    _packed_operator(
        f"rms_norm{PACKED}(Tensor x, Tensor scale, Tensor packed) -> Tensor", _call_packed, results=_results
    ),
    _packed_operator(
        "rms_norm_rounded_last(Tensor x, Tensor scale, Tensor packed) -> Tensor",
        _call_rounded_last,
        results=like_xs("out"),
    ),
    operator(f"rms_norm_out(Tensor x, Tensor scale, Tensor(a!) out, {ATTRIBUTES}) -> ()", _call_out),
    _backward_operator(
        f"rms_norm_backward(Tensor grad, Tensor x, Tensor scale, {ATTRIBUTES}) -> (Tensor, Tensor)",
        results=_results_backward,
        autograd=partial(_differentiable, BACKWARD),
    ),
    _backward_operator(
        f"rms_norm_backward_dx(Tensor grad, Tensor x, Tensor scale, {ATTRIBUTES}) -> Tensor",
        results=like_xs("dx"),
        autograd=partial(_differentiable, BACKWARD_DX),
    ),
)

if torch is not None:
    _operators = torch.ops.npu_rope

__all__ = ["rms_norm", "rms_norm_backward"]
