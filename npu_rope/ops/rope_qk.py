"""rope_qk: the Python functions, and the registration with torch.

Queries and keys rotate by the same angles. One call computes one table of cos and sin for both, with one
dispatch and one launch. ``rotations.py`` has the code that it shares with rope.
"""

from __future__ import annotations

from typing import Any

from npu_rope import backends
from npu_rope.errors import BackendUnavailable, BrokenRule, renamed
from npu_rope.executors import rotations as executors
from npu_rope.executors import small_arrays
from npu_rope.ops import calls, gradients, rotations
from npu_rope.optional_torch import torch
from npu_rope.params import RopeParams
from npu_rope.rope_calls import rope_qk_tensors
from npu_rope.values import Angle, flag


def rope_qk(
    q: Any,
    k: Any,
    positions: Any,
    params: RopeParams,
    freq_factors: Any = None,
    *,
    backend: str | None = None,
    out: tuple[Any, Any] | None = None,
    forward: bool = True,
    angle: Angle = "exact",
) -> tuple[Any, Any]:
    """Apply rotary position embedding to queries and keys in one call. The results equal those of
    :func:`npu_rope.rope` bit for bit.

    Args:
        q: ``[B,S,Nq,D]`` or ``[S,Nq,D]``, torch tensor or NumPy array; float32, float16, bfloat16 or
            float64. Any strides, so that it may be a slice of a fused projection; a non-unit last
            stride costs a copy.
        k: ``[B,S,Nk,D]`` or ``[S,Nk,D]``, of q's dtype.
        positions: ``[S]`` or ``[B,S]``, int32 or int64, in the int32 range; in the modes with sections
            ``[4,S]``, ``[4*S]``, ``[4,B,S]``, ``[3,S]`` or ``[3,B,S]``, as for :func:`npu_rope.rope`.
            With B = 1 all batches have the same positions.
        params: the attributes; ``params.n_offs + params.n_dims <= D``.
        freq_factors: ``[>= pairs]`` float32; pair i's frequency is divided by factor i.
        backend: ``"reference"``, ``"cpu"``, ``"sim"``, ``"sim:<soc>"`` or ``"npu"``; None:
            ``NPU_ROPE_BACKEND``, else by q's device.
        out: where to write: a pair with q's and k's shapes and dtype, unit last strides. Each may be q or k
            itself (in place), else it shares no memory with any other argument.
        forward: True or False; False rotates by minus the angle.
        angle: ``"exact"``, ``"f32"`` or ``"ggml"``, or 0, 1, 2 (numerics in docs/ops/rope.md).

    Returns:
        The pair (rotated q, rotated k): tensors or arrays, as q is, with q's and k's shapes and dtype;
        ``out`` if it was passed.

    Raises:
        ValueError, TypeError: an argument breaks its rule; nothing was written.
        BackendUnavailable: the back end is unavailable.

    >>> import numpy as np
    >>> q, k = np.ones((1, 2, 2, 4), np.float32), np.ones((1, 2, 1, 4), np.float32)
    >>> q, k = rope_qk(q, k, np.array([0, 3]), RopeParams(4, "neox"))
    >>> q.shape, k.shape
    ((1, 2, 2, 4), (1, 2, 1, 4))
    >>> k[0, 1, 0].round(3)
    array([-1.131,  0.97 , -0.849,  1.03 ], dtype=float32)
    """
    if (
        type(q) in _ORDINARY
        and type(out) is tuple
        and len(out) == 2
        and _wrote_directly((q, k), positions, params, freq_factors, backend, out, forward, angle)
    ):
        return out
    return _run_usually(q, k, positions, params, freq_factors, backend, out, forward, angle)


def rope_qk_(
    q: Any,
    k: Any,
    positions: Any,
    params: RopeParams,
    freq_factors: Any = None,
    *,
    backend: str | None = None,
    forward: bool = True,
    angle: Angle = "exact",
) -> tuple[Any, Any]:
    """Apply :func:`rope_qk` in place: q and k are overwritten and returned. Their last strides must be 1.

    >>> import numpy as np
    >>> q, k = np.ones((1, 2, 2)), np.ones((1, 1, 2))
    >>> rotated_q, rotated_k = rope_qk_(q, k, np.array([0]), RopeParams(2))
    >>> rotated_q is q and rotated_k is k
    True
    """
    if type(q) in _ORDINARY and _wrote_directly(
        (q, k), positions, params, freq_factors, backend, (q, k), forward, angle
    ):
        return q, k
    try:
        return _run_usually(q, k, positions, params, freq_factors, backend, (q, k), forward, angle)
    except BrokenRule as error:
        raise renamed(error, "rope_qk_", {"q_out": "q", "k_out": "k"}) from error.__cause__


def _run_usually(
    q: Any,
    k: Any,
    positions: Any,
    params: RopeParams,
    freq_factors: Any,
    backend: str | None,
    out: Any,
    forward: bool,
    angle: Angle,
) -> tuple[Any, Any]:
    """Run any call of rope_qk."""
    if forward is not True and forward is not False:
        forward = flag("rope_qk", "forward", forward)
    if out is not None:
        calls.require_pair("rope_qk", out)
    chosen = backends.default_backend if backend is None else backend
    if isinstance(q, _Tensor) and (chosen is None or chosen == q.device.type):
        return _on_own_device(q, k, positions, params, freq_factors, out, forward, angle)
    if chosen is None or chosen == "cpu":
        others = positions, freq_factors
        pair: Any = executors.on_small_arrays("rope_qk", (q, k), others, params, forward, angle, out)
        if pair is not None:
            return pair[0], pair[1]
    attributes = calls.attributes_of("rope_qk", params, forward, angle)
    tensors = rope_qk_tensors(q, k, positions, freq_factors, out)
    rotated_q, rotated_k = calls.run_named(chosen, tensors, attributes, gradients.run_named)
    return rotated_q, rotated_k


# ---- torch tensors on their own device -------------------------------------------------------------


def _wrote_directly(
    xs: tuple[Any, Any],
    positions: Any,
    params: RopeParams,
    freq_factors: Any,
    backend: str | None,
    outs: tuple[Any, Any],
    forward: bool,
    angle: Angle,
) -> bool:
    """Run a small call without torch. Return False for calls that need torch, and for calls with an error,
    which the usual path reports.

    rope has the same conditions for its one tensor. To loop over tensors and to unpack them would take a
    fifth of the time of its call.
    """
    if (
        _is_dynamo_compiling()
        or (backends.default_backend if backend is None else backend) not in (None, "cpu")
        or (forward is not True and forward is not False)
        or _forward_ad._current_level >= 0
        or type(positions) not in _ORDINARY
        or (freq_factors is not None and type(freq_factors) not in _ORDINARY)
    ):
        return False
    grad = _is_grad_enabled()
    for x in xs if outs[0] is xs[0] and outs[1] is xs[1] else (*xs, *outs):
        if type(x) not in _ORDINARY or (grad and x.requires_grad):
            return False
    try:
        try:
            packed = params.__dict__["_packed_bytes"][forward, angle]
        except KeyError:
            packed = small_arrays.packed_with_params("rope_qk", params, forward, angle)
        if not _run_directly(packed, *xs, positions, freq_factors, *outs):
            return False
    except (AttributeError, TypeError, ValueError, IndexError, BackendUnavailable):
        return False
    # autograd must detect that tensors it saved for a gradient have changed.
    _increment_version(outs)
    return True


def _on_own_device(
    q: Any,
    k: Any,
    positions: Any,
    params: RopeParams,
    freq_factors: Any,
    out: Any,
    forward: bool,
    angle: Angle,
) -> tuple[Any, Any]:
    q_out: Any
    k_out: Any
    q_out, k_out = (None, None) if out is None else out
    try:
        needs_grad = _is_grad_enabled() and (
            q.requires_grad
            or k.requires_grad
            or (out is not None and (q_out.requires_grad or k_out.requires_grad))
        )
        is_hot = not (needs_grad and out is not None) and not _is_compiling() and _tracing_state() is None
        if is_hot and calls.is_plain_cpu_tensor(q) and type(k) in calls.ORDINARY:
            if not needs_grad:
                return _hot_path(q, k, positions, params, freq_factors, out, forward, angle)
            try:  # a signal's handler may raise after any call
                _enable_grad(False)
                pair = _hot_path(q, k, positions, params, freq_factors, None, forward, angle)
            finally:
                _enable_grad(True)
            call = pair, (params, forward, angle)
            both: tuple[Any, Any] = gradients.add_node["rope_qk"](call, q, k, positions, freq_factors)
            return both
        attributes = calls.attributes_of("rope_qk", params, forward, angle).as_schema()
        operators = torch.ops.npu_rope
        if out is None:
            return tuple(operators.rope_qk.default(q, k, positions, freq_factors, **attributes))
        if q_out is q and k_out is k:
            operators.rope_qk_.default(q, k, positions, freq_factors, **attributes)
            return q, k
        outs = {"q_out": q_out, "k_out": k_out}
        operators.rope_qk_out.default(q, k, positions, freq_factors, **attributes, **outs)
        return q_out, k_out
    except (RuntimeError, ValueError, TypeError, IndexError, AttributeError) as error:
        tensors = rope_qk_tensors(q, k, positions, freq_factors, out)
        raise calls.error_of_rope(error, tensors, params, angle) from error.__cause__


def _hot_path(
    q: Any,
    k: Any,
    positions: Any,
    params: RopeParams,
    freq_factors: Any,
    out: Any,
    forward: bool,
    angle: Angle,
) -> tuple[Any, Any]:
    """Call the kernel without checks in Python. The C++ checks report every error."""
    try:
        packed = params.__dict__["_packed"][forward, angle]
    except (KeyError, AttributeError):
        packed = calls.packed_of("rope_qk", params, forward, angle)
    if out is None:
        factors = () if freq_factors is None else (freq_factors.detach(),)  # they have no gradient
        both: tuple[Any, Any] = _call_hot(q, k, positions, packed, *factors)
        return both
    q_out, k_out = out
    factors = () if freq_factors is None else (freq_factors,)
    if q_out is q and k_out is k and not factors:
        _rotate_hot(q, k, positions, packed)
    else:
        _write_hot(q_out, k_out, q, k, positions, packed, *factors)
    # autograd must detect that tensors it saved for a gradient have changed.
    _increment_version((q_out, k_out))
    return q_out, k_out


rotations.register_rotation("rope_qk", rope_qk_tensors, ("q", "k"), ("q_out", "k_out"))


def _run_directly(*arguments: Any) -> bool:
    """Load the library at the first call. It has the function that replaces this one."""
    global _run_directly
    _run_directly = calls.direct_function("rope_qk")
    return _run_directly(*arguments)


_Tensor: Any = ()  # without torch isinstance(x, ()) is False
_ORDINARY = calls.ORDINARY
if torch is not None:
    _Tensor, _forward_ad = torch.Tensor, torch.autograd.forward_ad
    _is_compiling, _is_grad_enabled = torch.compiler.is_compiling, torch.is_grad_enabled
    _is_dynamo_compiling = torch.compiler.is_dynamo_compiling  # for the reason in calls.py
    _call_hot = gradients.callable_of(torch.ops.npu_rope.rope_qk_packed.default)
    _rotate_hot = gradients.callable_of(torch.ops.npu_rope.rope_qk_packed_.default)
    _write_hot = gradients.callable_of(torch.ops.npu_rope.rope_qk_packed_out.default)
    _enable_grad, _tracing_state = torch._C._set_grad_enabled, torch._C._get_tracing_state
    _increment_version = torch._C._increment_version

__all__ = ["rope_qk", "rope_qk_"]
