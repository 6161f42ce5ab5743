"""add_rms_norm: the Python function, the gradient, and the registration with torch."""

from __future__ import annotations

from typing import Any

from npu_rope.executors.tensors import require_tensor_like
from npu_rope.ops import gradients
from npu_rope.ops import rms_norm as norm
from npu_rope.ops.calls import require_pair, try_hot_path, try_hot_write, wrote_directly
from npu_rope.ops.registrar import Call, register
from npu_rope.rms_norm_calls import ADD, RmsNormAttributes, add_rms_norm_tensors, attributes_of


def add_rms_norm(
    x: Any,
    residual: Any,
    scale: Any,
    *,
    axis: int = -1,
    epsilon: float = 1e-5,
    stash_type: int = 1,
    out: tuple[Any, Any] | None = None,
    backend: str | None = None,
) -> tuple[Any, Any]:
    """Add a residual connection and normalize the sum, in one pass over memory::

        sum = x + residual
        y = rms_norm(sum, scale, axis=axis, epsilon=epsilon, stash_type=stash_type)

    The results equal those of the two separate operations bit for bit.

    Args:
        x: as for :func:`npu_rope.rms_norm`.
        residual: x's shape and dtype, any strides. float16 and bfloat16 are added in float32; the sum is
            rounded once, to x's dtype.
        scale, axis, epsilon, stash_type: as for rms_norm.
        out: the pair (y, sum) to write to: x's shape, contiguous rows; y has scale's dtype, sum has x's.
            Each may be x or residual itself, but y and sum must not share memory.
        backend: ``"reference"``, ``"cpu"``, ``"sim"``, ``"sim:<soc>"`` or ``"npu"``; None:
            ``NPU_ROPE_BACKEND``, else by x's device.

    Returns:
        The pair (y, sum): tensors or arrays, as x is, with x's shape; y has scale's dtype, sum has x's.
        ``out`` if it was passed. Gradients flow to x, residual and scale.

    Raises:
        ValueError, TypeError: an argument breaks its rule; nothing was written.
        BackendUnavailable: the back end is unavailable or lacks this operator.

    >>> import numpy as np
    >>> x, residual = np.float32([[1, 4, -1, 0]]), np.float32([[2, 0, 1, 0]])
    >>> y, total = add_rms_norm(x, residual, np.float32([1, 10, 1, 1]), epsilon=0)
    >>> y.tolist(), total.tolist()
    ([[1.2000000476837158, 16.0, 0.0, 0.0]], [[3.0, 4.0, 0.0, 0.0]])
    """
    if out is not None:
        require_pair(ADD, out, "(y, sum)")
    outs = tuple(out or ())
    if backend is None and type(axis) is int is type(stash_type) and type(epsilon) is float:
        given = axis, epsilon, stash_type
        if outs:
            if wrote_directly(ADD, (x, residual, scale), given, outs):
                return outs[0], outs[1]
            results = try_hot_write(f"{ADD}_out", (x, residual, scale, *outs), given, outs)
        else:
            results = try_hot_path(ADD, (x, residual, scale), given)
        if results is not NotImplemented:
            both: tuple[Any, Any] = results
            return both
    for name, value in (("x", x), ("residual", residual)):
        require_tensor_like(ADD, name, value)
    attributes = attributes_of(ADD, axis, epsilon, stash_type)
    y, total = norm.run(backend, add_rms_norm_tensors(x, residual, scale, outs), attributes)
    return y, total


# ---- gradients -----------------------------------------------------------------------------------------


def _save(ctx: Any, tensors: tuple[Any, ...], output: Any) -> tuple[Any, ...]:
    ctx.set_materialize_grads(False)
    return output[1], tensors[2]


def _backward(ctx: Any, y_gradient: Any, sum_gradient: Any) -> tuple[Any, ...]:
    dx, dscale = sum_gradient, None
    if y_gradient is not None:
        total, scale = ctx.saved_tensors
        needs_dscale = ctx.needs_input_grad[3]
        dx, dscale = norm.differentiate(y_gradient, total, scale, ctx.attributes, needs_dscale)
        dx = dx if sum_gradient is None else dx + sum_gradient
    return dx, dx, dscale


# ---- registration --------------------------------------------------------------------------------------


def _call(x: Any, residual: Any, scale: Any, *given: Any) -> Call:
    return add_rms_norm_tensors(x, residual, scale), RmsNormAttributes(*given)


def _call_out(x: Any, residual: Any, scale: Any, out: Any, total: Any, *given: Any) -> Call:
    return add_rms_norm_tensors(x, residual, scale, (out, total)), RmsNormAttributes(*given)


def _results(call: norm.Tensors) -> dict[str, Any]:
    x, scale = call.x, call.scale
    return {"out": x.new_empty(x.shape, dtype=scale.dtype), "sum": x.new_empty(x.shape)}


_TENSORS = "Tensor x, Tensor residual, Tensor scale"
register(
    norm.operator(
        f"add_rms_norm({_TENSORS}, {norm.ATTRIBUTES}) -> (Tensor, Tensor)",
        _call,
        results=_results,
        gradient=gradients.Gradient(_backward, _save, reads=((0, 1, 2), (0, 1))),
    ),
    norm.operator(
        f"add_rms_norm_out({_TENSORS}, Tensor(a!) out, Tensor(b!) sum, {norm.ATTRIBUTES}) -> ()", _call_out
    ),
)

__all__ = ["add_rms_norm"]
