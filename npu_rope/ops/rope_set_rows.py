"""rope_set_rows: the Python function, and the registration with torch.

One call rotates keys and writes them into their rows of a cache, rounded to its dtype. ggml uses ROPE, VIEW
and SET_ROWS for this. A write into a cache has no gradient.
"""

from __future__ import annotations

from typing import Any

from npu_rope import backends
from npu_rope.errors import bad_value
from npu_rope.ops import calls, gradients, rotations
from npu_rope.ops.calls import ATTRIBUTES
from npu_rope.ops.registrar import Call, register
from npu_rope.optional_torch import torch
from npu_rope.params import RopeParams
from npu_rope.rope_calls import rope_set_rows_tensors
from npu_rope.values import Angle, flag

_NO_GRADIENT = "not need a gradient", "one that does"


def rope_set_rows(
    x: Any,
    positions: Any,
    rows: Any,
    cache: Any,
    params: RopeParams,
    freq_factors: Any = None,
    *,
    backend: str | None = None,
    forward: bool = True,
    angle: Angle = "exact",
) -> Any:
    """Rotate tokens as :func:`npu_rope.rope` does, and write each into its row of a cache, as ggml's SET_ROWS
    does: ``cache[rows[b, s]] = rope(x)[b, s]``, rounded to the cache's dtype.

    Args:
        x: ``[B,S,N,D]`` or ``[S,N,D]``, torch tensor or NumPy array; float32, float16, bfloat16 or
            float64. Any strides; a non-unit last stride costs a copy.
        positions: ``[S]`` or ``[B,S]``, int32 or int64, in the int32 range; in the modes with sections
            ``[4,S]``, ``[4*S]``, ``[4,B,S]``, ``[3,S]`` or ``[3,B,S]``, as for :func:`npu_rope.rope`.
            With B = 1 all batches have the same positions.
        rows: ``[B,S]``, or ``[S]`` if B is 1; int32 or int64. Each is the index of a row of the cache, or -1
            to skip the token. Two tokens must not have the same row.
        cache: ``[R,N,D]``, x's dtype, or float16 or bfloat16 for float32 x; unit last stride, sharing
            no memory with the inputs. Pass a cache of several layers or blocks as a view of this shape. Other
            rows keep their values.
        params: the attributes; ``params.n_offs + params.n_dims <= D``.
        freq_factors: ``[>= pairs]`` float32; pair i's frequency is divided by factor i.
        backend: ``"reference"``, ``"cpu"``, ``"sim"``, ``"sim:<soc>"`` or ``"npu"``; None:
            ``NPU_ROPE_BACKEND``, else by x's device.
        forward: True or False; False rotates by minus the angle.
        angle: ``"exact"``, ``"f32"`` or ``"ggml"``, or 0, 1, 2 (numerics in docs/ops/rope.md).

    Returns:
        The cache.

    Raises:
        ValueError, TypeError: an argument breaks its rule, or the call would need a gradient; nothing was
            written.
        BackendUnavailable: the back end is unavailable.

    >>> import numpy as np
    >>> keys, cache = np.ones((3, 1, 2), np.float32), np.zeros((4, 1, 2), np.float16)
    >>> rope_set_rows(keys, np.arange(3), np.array([2, -1, 0]), cache, RopeParams(2))[:, 0]
    array([[-1.325 ,  0.4932],
           [ 0.    ,  0.    ],
           [ 1.    ,  1.    ],
           [ 0.    ,  0.    ]], dtype=float16)
    """
    if forward is not True and forward is not False:
        forward = flag("rope_set_rows", "forward", forward)
    chosen = backends.default_backend if backend is None else backend
    if isinstance(x, _Tensor) and (chosen is None or chosen == x.device.type):
        return _on_own_device(x, positions, rows, cache, params, freq_factors, forward, angle)
    attributes = calls.attributes_of("rope_set_rows", params, forward, angle)
    tensors = rope_set_rows_tensors(x, positions, rows, freq_factors, cache)
    return calls.run_named(chosen, tensors, attributes, gradients.run_named)[0]


# ---- torch tensors on their own device -------------------------------------------------------------


def _on_own_device(
    x: Any,
    positions: Any,
    rows: Any,
    cache: Any,
    params: RopeParams,
    freq_factors: Any,
    forward: bool,
    angle: Angle,
) -> Any:
    try:
        if torch.is_grad_enabled():
            for name, tensor in (("x", x), ("cache", cache)):
                if tensor.requires_grad:
                    raise bad_value("rope_set_rows", name, *_NO_GRADIENT)
        if (
            not torch.compiler.is_compiling()
            and calls.is_plain_cpu_tensor(x)
            and type(cache) in calls.ORDINARY
        ):
            # Hot path: call the kernel without checks in Python. The C++ checks report every error.
            try:
                packed = params.__dict__["_packed"][forward, angle]
            except (KeyError, AttributeError):
                packed = calls.packed_of("rope_set_rows", params, forward, angle)
            if freq_factors is None:
                _call_hot(x, positions, rows, cache, packed)
            else:
                _call_hot(x, positions, rows, cache, packed, freq_factors)
            # autograd must detect that a cache it saved for a gradient has changed.
            _increment_version((cache,))
            return cache
        attributes = calls.attributes_of("rope_set_rows", params, forward, angle).as_schema()
        operator = torch.ops.npu_rope.rope_set_rows.default
        operator(x, positions, rows, cache, freq_factors, **attributes)
        return cache
    except (RuntimeError, ValueError, TypeError, IndexError, AttributeError) as error:
        tensors = rope_set_rows_tensors(x, positions, rows, freq_factors, cache)
        raise calls.error_of_rope(error, tensors, params, angle) from error.__cause__


# ---- registration ----------------------------------------------------------------------------------


def _call(x: Any, positions: Any, rows: Any, cache: Any, freq_factors: Any = None, **attributes: Any) -> Call:
    return rope_set_rows_tensors(x, positions, rows, freq_factors, cache), attributes


def _call_packed(
    x: Any, positions: Any, rows: Any, cache: Any, packed: Any, freq_factors: Any = None
) -> Call:
    return rope_set_rows_tensors(x, positions, rows, freq_factors, cache), packed


_INPUTS = "Tensor x, Tensor positions, Tensor rows, Tensor(a!) cache"
register(
    # No functional operator: it would copy the whole cache to write a few rows.
    rotations.rope_operator(
        f"rope_set_rows({_INPUTS}, Tensor? freq_factors=None, {ATTRIBUTES}) -> ()",
        _call,
        no_gradient=(None, *_NO_GRADIENT),
    ),
    rotations.packed_operator(
        f"rope_set_rows_packed_({_INPUTS}, Tensor packed, Tensor? freq_factors=None) -> ()", _call_packed
    ),
)

_Tensor: Any = ()  # without torch isinstance(x, ()) is False
if torch is not None:
    _Tensor = torch.Tensor
    _call_hot = gradients.callable_of(torch.ops.npu_rope.rope_set_rows_packed_.default)
    _increment_version = torch._C._increment_version

__all__ = ["rope_set_rows"]
