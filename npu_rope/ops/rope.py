"""rope: the Python functions, and the registration with torch.

``rotations.py`` has the code that it shares with rope_qk and rope_set_rows.
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
from npu_rope.rope_calls import rope_tensors
from npu_rope.values import Angle, flag


def rope(
    x: Any,
    positions: Any,
    params: RopeParams,
    freq_factors: Any = None,
    *,
    backend: str | None = None,
    out: Any = None,
    forward: bool = True,
    angle: Angle = "exact",
) -> Any:
    """Apply rotary position embedding, with the attributes and modes of ggml's ``rope_ext``.

    A pair (x1, x2) of a head rotates by ``theta = position * frequency``::

        (x1*cos - x2*sin, x1*sin + x2*cos)

    Args:
        x: ``[B,S,N,D]`` or ``[S,N,D]``, torch tensor or NumPy array; float32, float16, bfloat16
            or float64. Any strides; a non-unit last stride costs a copy.
        positions: ``[S]`` or ``[B,S]``, int32 or int64, in the int32 range; they may be negative. In the
            modes with sections a token has ggml's four positions (time, height, width, extra):
            ``[4,S]``, ggml's flat ``[4*S]`` or ``[4,B,S]``; or the first three: ``[3,S]`` or ``[3,B,S]``.
            With B = 1 all batches have the same positions. (transformers' four planes are
            (text, time, height, width): pass ``position_ids[-3:]``.)
        params: the attributes; ``params.n_offs + params.n_dims <= D``.
        freq_factors: ``[>= pairs]`` float32; pair i's frequency is divided by factor i.
        backend: ``"reference"``, ``"cpu"``, ``"sim"``, ``"sim:<soc>"`` or ``"npu"``; None:
            ``NPU_ROPE_BACKEND``, else by x's device.
        out: where to write: x's shape and dtype, unit last stride; may be x itself (in place).
        forward: True or False; False rotates by minus the angle.
        angle: ``"exact"`` (cos and sin within 2^-23; on an NPU within 2^-20 below 2^22), ``"f32"`` or
            ``"ggml"``, or their numbers 0, 1 and 2 (docs/ops/rope.md describes the numerics).

    Returns:
        A tensor or array, as x is, with x's shape and dtype; ``out`` if it was passed.

    Raises:
        ValueError, TypeError: an argument breaks its rule; nothing was written.
        BackendUnavailable: the back end is unavailable.

    >>> import numpy as np
    >>> x = np.ones((1, 3, 1, 4), np.float32)
    >>> rope(x, np.arange(3), RopeParams(4, "neox"))[0, :, 0].round(3)
    array([[ 1.   ,  1.   ,  1.   ,  1.   ],
           [-0.301,  0.99 ,  1.382,  1.01 ],
           [-1.325,  0.98 ,  0.493,  1.02 ]], dtype=float32)
    """
    if (
        out is not None
        and type(x) in _ORDINARY
        and _wrote_directly(x, positions, params, freq_factors, backend, out, forward, angle)
    ):
        return out
    return _run_usually(x, positions, params, freq_factors, backend, out, forward, angle)


def rope_(
    x: Any,
    positions: Any,
    params: RopeParams,
    freq_factors: Any = None,
    *,
    backend: str | None = None,
    forward: bool = True,
    angle: Angle = "exact",
) -> Any:
    """Apply :func:`rope` in place: x is overwritten and returned. Its last stride must be 1.

    >>> import numpy as np
    >>> x = np.ones((1, 1, 2), np.float32)
    >>> rope_(x, np.array([0]), RopeParams(2)) is x
    True
    """
    if type(x) in _ORDINARY and _wrote_directly(
        x, positions, params, freq_factors, backend, x, forward, angle
    ):
        return x
    try:
        return _run_usually(x, positions, params, freq_factors, backend, x, forward, angle)
    except BrokenRule as error:
        raise renamed(error, "rope_", {"out": "x"}) from error.__cause__


def _run_usually(
    x: Any,
    positions: Any,
    params: RopeParams,
    freq_factors: Any,
    backend: str | None,
    out: Any,
    forward: bool,
    angle: Angle,
) -> Any:
    """Run any call of rope."""
    if forward is not True and forward is not False:
        forward = flag("rope", "forward", forward)
    chosen = backends.default_backend if backend is None else backend
    if isinstance(x, _Tensor) and (chosen is None or chosen == x.device.type):
        return _on_own_device(x, positions, params, freq_factors, out, forward, angle)
    if chosen is None or chosen == "cpu":
        outs = None if out is None else (out,)
        results = executors.on_small_arrays(
            "rope", (x,), (positions, freq_factors), params, forward, angle, outs
        )
        if results is not None:
            return results[0]
    attributes = calls.attributes_of("rope", params, forward, angle)
    tensors = rope_tensors(x, positions, freq_factors, out)
    return calls.run_named(chosen, tensors, attributes, gradients.run_named)[0]


# ---- torch tensors on their own device -------------------------------------------------------------


def _wrote_directly(
    x: Any,
    positions: Any,
    params: RopeParams,
    freq_factors: Any,
    backend: str | None,
    out: Any,
    forward: bool,
    angle: Angle,
) -> bool:
    """Run a small call on an ordinary x without torch, which takes a third of the time of a decode-sized
    call. Return False for calls that need torch, and for calls with an error, which the usual path
    reports."""
    if (
        _is_dynamo_compiling()
        or (backends.default_backend if backend is None else backend) not in (None, "cpu")
        or (forward is not True and forward is not False)
        or _forward_ad._current_level >= 0
        or type(positions) not in _ORDINARY
        or (x.requires_grad and _is_grad_enabled())
    ):
        return False
    if out is not x and (type(out) not in _ORDINARY or (out.requires_grad and _is_grad_enabled())):
        return False
    if freq_factors is not None and type(freq_factors) not in _ORDINARY:
        return False
    try:
        try:
            packed = params.__dict__["_packed_bytes"][forward, angle]
        except KeyError:
            packed = small_arrays.packed_with_params("rope", params, forward, angle)
        if not _run_directly(packed, x, positions, freq_factors, out):
            return False
    except (AttributeError, TypeError, ValueError, IndexError, BackendUnavailable):
        return False
    # autograd must detect that a tensor it saved for a gradient has changed.
    _increment_version((out,))
    return True


def _on_own_device(
    x: Any, positions: Any, params: RopeParams, freq_factors: Any, out: Any, forward: bool, angle: Angle
) -> Any:
    try:
        needs_grad = (x.requires_grad or (out is not None and out.requires_grad)) and _is_grad_enabled()
        is_hot = not (needs_grad and out is not None) and not _is_compiling() and _tracing_state() is None
        if is_hot and calls.is_plain_cpu_tensor(x):
            if not needs_grad:
                return _hot_path(x, positions, params, freq_factors, out, forward, angle)
            try:  # a signal's handler may raise after any call
                _enable_grad(False)
                y = _hot_path(x, positions, params, freq_factors, None, forward, angle)
            finally:
                _enable_grad(True)
            return gradients.add_node["rope"]((y, (params, forward, angle)), x, positions, freq_factors)
        attributes = calls.attributes_of("rope", params, forward, angle).as_schema()
        if out is None:
            return torch.ops.npu_rope.rope.default(x, positions, freq_factors, **attributes)
        if out is x:
            torch.ops.npu_rope.rope_.default(x, positions, freq_factors, **attributes)
            return x
        torch.ops.npu_rope.rope_out.default(x, positions, freq_factors, **attributes, out=out)
        return out
    except (RuntimeError, ValueError, TypeError, IndexError, AttributeError) as error:
        tensors = rope_tensors(x, positions, freq_factors, out)
        raise calls.error_of_rope(error, tensors, params, angle) from error.__cause__


def _hot_path(
    x: Any, positions: Any, params: RopeParams, freq_factors: Any, out: Any, forward: bool, angle: Angle
) -> Any:
    """Call the kernel without checks in Python. The C++ checks report every error."""
    try:
        packed = params.__dict__["_packed"][forward, angle]
    except (KeyError, AttributeError):
        packed = calls.packed_of("rope", params, forward, angle)
    if out is None:
        if freq_factors is None:
            return _call_hot(x, positions, packed)
        return _call_hot(x, positions, packed, freq_factors.detach())  # they have no gradient
    factors = () if freq_factors is None else (freq_factors,)
    if out is x and not factors:
        _rotate_hot(x, positions, packed)
    else:
        _write_hot(out, x, positions, packed, *factors)
    # autograd must detect that a tensor it saved for a gradient has changed.
    _increment_version((out,))
    return out


rotations.register_rotation("rope", rope_tensors, ("x",), ("out",))


def _run_directly(*arguments: Any) -> bool:
    """Load the library at the first call. It has the function that replaces this one."""
    global _run_directly
    _run_directly = calls.direct_function("rope")
    return _run_directly(*arguments)


_Tensor: Any = ()  # without torch isinstance(x, ()) is False
_ORDINARY = calls.ORDINARY
if torch is not None:
    _Tensor, _forward_ad = torch.Tensor, torch.autograd.forward_ad
    _is_compiling, _is_grad_enabled = torch.compiler.is_compiling, torch.is_grad_enabled
    _is_dynamo_compiling = torch.compiler.is_dynamo_compiling  # for the reason in calls.py
    _call_hot = gradients.callable_of(torch.ops.npu_rope.rope_packed.default)
    _rotate_hot = gradients.callable_of(torch.ops.npu_rope.rope_packed_.default)
    _write_hot = gradients.callable_of(torch.ops.npu_rope.rope_packed_out.default)
    _enable_grad, _tracing_state = torch._C._set_grad_enabled, torch._C._get_tracing_state
    _increment_version = torch._C._increment_version

__all__ = ["rope", "rope_"]
