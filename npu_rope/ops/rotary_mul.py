"""rotary_mul and rotary_mul_qk: the Python functions. ``rotary.py`` registers the operators with torch."""

from __future__ import annotations

from typing import Any

from npu_rope import backends
from npu_rope.errors import BrokenRule, bad_type, bad_value, renamed
from npu_rope.executors import small_arrays
from npu_rope.executors.rotations import table_gradients
from npu_rope.executors.rules import check_layout
from npu_rope.executors.tensors import is_tensor, require_dense, require_tensor_like, spec_of
from npu_rope.ops import rotary
from npu_rope.ops.calls import require_pair, try_hot_path, try_hot_write, wrote_directly
from npu_rope.optional_torch import torch
from npu_rope.rotary_calls import attributes_of, rotary_mul_qk_tensors, rotary_mul_tensors, sizes_of


def rotary_mul(
    x: Any,
    cos: Any,
    sin: Any,
    *,
    interleaved: bool = False,
    rotary_dim: int = 0,
    offset: int = 0,
    out: Any = None,
    backend: str | None = None,
) -> Any:
    """Rotate heads by tables of cos and sin (torch_npu's npu_rotary_mul, without its limits).

    With the entries c1, s1 of its first lane and c2, s2 of its second, a pair (x1, x2) of a head becomes::

        (x1*c1 - x2*s1, x2*c2 + x1*s2)

    Args:
        x: ``[B,S,N,D]`` or ``[S,N,D]``, torch tensor or NumPy array; float32, float16, bfloat16 or
            float64. Any strides (other layouts are transposed views); a non-unit last stride costs a copy.
        cos, sin: ``[S,W]``, ``[B,S,W]`` or ``[B,S,1,W]``, where a B of 1 serves all batches; for x without
            batch ``[S,W]`` or ``[S,1,W]``. x's dtype or float32. W is ``rotary_dim/2`` (one entry per pair)
            or ``rotary_dim`` (one entry per lane). Values are not limited to [-1, 1].
        interleaved: pairs ``(x[2i], x[2i+1])`` rather than ``(x[i], x[i + rotary_dim/2])``.
        rotary_dim: number of rotated dimensions of the D, even; 0: all.
        offset: the first rotated dimension, even.
        out: where to write: x's shape and dtype, unit last stride; may be x itself (in place).
        backend: ``"reference"``, ``"cpu"``, ``"sim"``, ``"sim:<soc>"`` or ``"npu"``; None:
            ``NPU_ROPE_BACKEND``, else by x's device.

    Returns:
        A tensor or array, as x is, with x's shape and dtype; ``out`` if it was passed. Gradients flow to x,
        cos and sin.

    Raises:
        ValueError, TypeError: an argument breaks its rule; nothing was written.
        BackendUnavailable: the back end is unavailable or lacks this operator.

    >>> import numpy as np
    >>> x = np.array([[[1, 2, 3, 4]]], np.float32)
    >>> rotary_mul(x, np.float32([[0, 1]]), np.float32([[1, 0]]))
    array([[[-3.,  2.,  1.,  4.]]], dtype=float32)
    """
    if backend is None and rotary.have_schema_types(interleaved, rotary_dim, offset):
        given = interleaved, rotary_dim, offset, True
        if out is None:
            y = try_hot_path("rotary_mul", (x, cos, sin), given)
        elif wrote_directly("rotary_mul", (x, cos, sin), given, (out,)):
            return out
        elif out is x:
            y = try_hot_write("rotary_mul_", (x, cos, sin), given, (x,))
        else:
            y = try_hot_write("rotary_mul_out", (x, cos, sin, out), given, (out,))
        if y is not NotImplemented:
            return y if out is None else out
        if not is_tensor(x) and backends.default_backend in (None, "cpu"):
            outs = None if out is None else (out,)
            results = small_arrays.run("rotary_mul", (x,), (cos, sin), given, outs)
            if results is not None:
                return results[0]
    require_tensor_like("rotary_mul", "x", x)
    attributes = attributes_of("rotary_mul", interleaved, rotary_dim, offset)
    return rotary.run(backend, rotary_mul_tensors(x, cos, sin, out), attributes)[0]


def rotary_mul_(
    x: Any,
    cos: Any,
    sin: Any,
    *,
    interleaved: bool = False,
    rotary_dim: int = 0,
    offset: int = 0,
    backend: str | None = None,
) -> Any:
    """Apply :func:`rotary_mul` in place: x is overwritten and returned. Its last stride must be 1.

    >>> import numpy as np
    >>> x = np.ones((1, 1, 2), np.float32)
    >>> rotary_mul_(x, np.float32([[0]]), np.float32([[1]])) is x
    True
    """
    try:
        return rotary_mul(
            x, cos, sin, interleaved=interleaved, rotary_dim=rotary_dim, offset=offset, out=x, backend=backend
        )
    except BrokenRule as error:
        raise renamed(error, "rotary_mul_", {"out": "x"}) from error.__cause__


def rotary_mul_qk(
    q: Any,
    k: Any,
    cos: Any,
    sin: Any,
    *,
    interleaved: bool = False,
    rotary_dim: int = 0,
    offset: int = 0,
    out: tuple[Any, Any] | None = None,
    backend: str | None = None,
) -> tuple[Any, Any]:
    """Apply :func:`rotary_mul` to queries and keys in one call, which reads the tables once.

    Args:
        q, k: as rotary_mul's x, of one dtype and with the same sizes except for the number of heads.
        cos, sin, interleaved, rotary_dim, offset, backend: as for rotary_mul.
        out: where to write: a pair, as rotary_mul's out for q and for k.

    Raises:
        ValueError, TypeError: an argument breaks its rule; nothing was written.
        BackendUnavailable: the back end is unavailable or lacks this operator.

    >>> import numpy as np
    >>> q, k = np.ones((1, 2, 2), np.float32), np.ones((1, 1, 2), np.float32)
    >>> rotary_mul_qk(q, k, np.float32([[0]]), np.float32([[1]]))[1]
    array([[[-1.,  1.]]], dtype=float32)
    """
    if out is not None:
        require_pair("rotary_mul_qk", out)
    if backend is None and rotary.have_schema_types(interleaved, rotary_dim, offset):
        given = interleaved, rotary_dim, offset, True
        if out is None:
            pair = try_hot_path("rotary_mul_qk", (q, k, cos, sin), given)
        elif out[0] is q and out[1] is k:
            pair = try_hot_write("rotary_mul_qk_", (q, k, cos, sin), given, (q, k))
        else:
            pair = try_hot_write("rotary_mul_qk_out", (q, k, cos, sin, *out), given, tuple(out))
        if pair is not NotImplemented:
            both: tuple[Any, Any] = pair
            return both
    require_tensor_like("rotary_mul_qk", "q", q)
    require_tensor_like("rotary_mul_qk", "k", k)
    attributes = attributes_of("rotary_mul_qk", interleaved, rotary_dim, offset)
    rotated_q, rotated_k = rotary.run(backend, rotary_mul_qk_tensors(q, k, cos, sin, out), attributes)
    return rotated_q, rotated_k


def rotary_mul_qk_(
    q: Any,
    k: Any,
    cos: Any,
    sin: Any,
    *,
    interleaved: bool = False,
    rotary_dim: int = 0,
    offset: int = 0,
    backend: str | None = None,
) -> tuple[Any, Any]:
    """Apply :func:`rotary_mul_qk` in place: q and k are overwritten and returned."""
    try:
        return rotary_mul_qk(
            q,
            k,
            cos,
            sin,
            interleaved=interleaved,
            rotary_dim=rotary_dim,
            offset=offset,
            out=(q, k),
            backend=backend,
        )
    except BrokenRule as error:
        raise renamed(error, "rotary_mul_qk_", {"q_out": "q", "k_out": "k"}) from error.__cause__


def rotary_mul_backward(
    grad: Any,
    x: Any,
    cos: Any,
    sin: Any,
    *,
    interleaved: bool = False,
    rotary_dim: int = 0,
    offset: int = 0,
    backend: str | None = None,
) -> tuple[Any, Any, Any]:
    """Return the gradients of :func:`rotary_mul` for x, cos and sin.

    Args:
        grad: the result's gradient, of x's shape and dtype.
        x, cos, sin, interleaved, rotary_dim, offset, backend: the arguments of rotary_mul.

    Returns:
        Gradients of the shapes and dtypes of x, cos and sin. The tables' gradients are summed over heads and
        over batches that share a table, in float64 (torch tensors up to float32: in float32).

    Raises:
        ValueError, TypeError: an argument breaks its rule.
        BackendUnavailable: the back end is unavailable or lacks this operator.

    >>> import numpy as np
    >>> x, cos, sin = np.float32([[[1, 2]]]), np.float32([[3]]), np.float32([[4]])
    >>> [g.tolist() for g in rotary_mul_backward(np.float32([[[1, 10]]]), x, cos, sin)]
    [[[[43.0, 26.0]]], [[21.0]], [[8.0]]]
    """
    for name, value in (("grad", grad), ("x", x), ("cos", cos), ("sin", sin)):
        require_tensor_like("rotary_mul", name, value)
        if is_tensor(value):
            require_dense("rotary_mul", name, value)
    attributes = attributes_of("rotary_mul", interleaved, rotary_dim, offset)
    call = rotary_mul_tensors(x, cos, sin, None)
    back = attributes_of("rotary_mul", interleaved, rotary_dim, offset, forward=False)
    check_layout(call.map(spec_of), attributes.checked)
    grad_spec, x_spec = spec_of(grad), spec_of(x)
    if grad_spec.dtype != x_spec.dtype:
        raise bad_type("rotary_mul", "grad", f"have x's dtype {x_spec.dtype}", grad_spec.dtype)
    if grad_spec.shape != x_spec.shape:
        raise bad_value("rotary_mul", "grad", f"have x's shape {x_spec.text()}", grad_spec.text())
    if is_tensor(grad) != is_tensor(x):
        kind = "a torch tensor" if is_tensor(x) else "a NumPy array"
        raise bad_type("rotary_mul", "grad", f"be {kind} like x", type(grad).__name__)
    if is_tensor(x) and grad.device != x.device:
        raise bad_value("rotary_mul", "grad", f"be on x's device {x.device}", grad.device)
    dx = rotary.run(backend, rotary_mul_tensors(grad, cos, sin, None), back)[0]
    if is_tensor(x):
        with torch.no_grad():
            return dx, *rotary.table_gradients(call, (grad,), attributes, sizes_of(call, attributes))
    return dx, *table_gradients(call, (grad,), attributes)


__all__ = ["rotary_mul", "rotary_mul_", "rotary_mul_backward", "rotary_mul_qk", "rotary_mul_qk_"]
