"""rms_norm_rope: the Python function, and the registration with torch.

Models with QK-norm normalize the heads of queries and keys and then rotate them. This operator does the work
of two ``rms_norm`` calls and ``rope_qk`` in one pass over memory.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache, partial
from typing import Any

from npu_rope import backends
from npu_rope.call_tensors import CallTensors
from npu_rope.errors import bad_value
from npu_rope.executors import rotations as executors
from npu_rope.executors import small_arrays
from npu_rope.executors.tensors import require_tensor_like, spec_of
from npu_rope.ops import calls, gradients, rms_norm, rotations
from npu_rope.ops.registrar import Call, TorchOperator, like_xs, register
from npu_rope.optional_torch import torch
from npu_rope.params import RopeParams
from npu_rope.rms_norm_rope_calls import (
    OP,
    RmsNormRopeAttributes,
    attributes_of,
    rms_norm_rope_tensors,
)
from npu_rope.values import Angle

Tensors = CallTensors[Any]


def rms_norm_rope(
    q: Any,
    k: Any,
    q_scale: Any,
    k_scale: Any,
    positions: Any,
    params: RopeParams,
    freq_factors: Any = None,
    *,
    epsilon: float = 1e-5,
    intermediate_rounding: bool = False,
    rows: Any = None,
    cache: Any = None,
    out: Any = None,
    backend: str | None = None,
    angle: Angle = "exact",
) -> tuple[Any, Any]:
    """Normalize each head of queries and keys by its RMS, then rotate it, in one pass: the QK-norm of Qwen3,
    Gemma 3 and GLM-4.5::

        y = rope(x / sqrt(mean(x^2) + epsilon) * scale)

    Lanes outside the rotated window are normalized and scaled, but not rotated.

    Args:
        q: ``[B,S,Nq,D]`` or ``[S,Nq,D]``, torch tensor or NumPy array; float32, float16, bfloat16 or
            float64. Any strides; a non-unit last stride costs a copy.
        k: ``[B,S,Nk,D]`` or ``[S,Nk,D]``, of q's dtype.
        q_scale, k_scale: ``[D]``, of q's dtype.
        positions: ``[S]`` or ``[B,S]``, int32 or int64, in the int32 range; in the modes with sections
            ``[4,S]``, ``[4*S]``, ``[4,B,S]``, ``[3,S]`` or ``[3,B,S]``, as for :func:`npu_rope.rope`.
            With B = 1 all batches have the same positions.
        params: the rotation's attributes; ``params.n_offs + params.n_dims <= D``.
        freq_factors: ``[>= pairs]`` float32; pair i's frequency is divided by factor i.
        epsilon: added to the mean square: >= 0. Rounded to float32.
        intermediate_rounding: False: intermediate values are float32 (float64 for float64), and a result is
            rounded once. True: the results equal :func:`npu_rope.rms_norm` of each, then
            :func:`npu_rope.rope_qk`, bit for bit, as models' own code rounds.
        rows: with ``cache``: ``[B,S]``, or ``[S]`` if B is 1; int32 or int64. Each is the index of a row of
            the cache, or -1 to skip the token's keys. Two tokens must not have the same row.
        cache: ``[R,Nk,D]`` of k's dtype, which receives k's heads instead of a new tensor; unit last stride,
            sharing no memory with any other argument. Other rows keep their values.
        out: where to write: a pair with q's and k's shapes and dtype, unit last strides; with a cache only
            q's tensor. Each may be q or k itself (in place), else it shares no memory with the arguments.
        backend: ``"reference"``, ``"cpu"``, ``"sim"``, ``"sim:<soc>"`` or ``"npu"``; None:
            ``NPU_ROPE_BACKEND``, else by q's device.
        angle: ``"exact"``, ``"f32"`` or ``"ggml"``, or 0, 1, 2 (numerics in docs/ops/rope.md).

    Returns:
        The pair of results: tensors or arrays, as q is, with q's and k's shapes and dtype; ``out`` if it was
        passed; with a cache (q's result, cache). Without ``out`` and ``cache`` gradients flow to q, k,
        q_scale and k_scale.

    Raises:
        ValueError, TypeError: an argument breaks its rule; nothing was written.
        BackendUnavailable: the back end is unavailable or lacks this operator.

    >>> import numpy as np
    >>> q, k, one = np.full((2, 2, 4), 3.0), np.full((2, 1, 4), -0.5), np.ones(4)
    >>> q, k = rms_norm_rope(q, k, one, one, np.array([0, 1]), RopeParams(2), epsilon=0)
    >>> q[:, 0].round(3).tolist()
    [[1.0, 1.0, 1.0, 1.0], [-0.301, 1.382, 1.0, 1.0]]
    >>> k[:, 0].round(3).tolist()
    [[-1.0, -1.0, -1.0, -1.0], [0.301, -1.382, -1.0, -1.0]]
    """
    written = _given_outputs(rows, cache, out)
    chosen = backends.default_backend if backend is None else backend
    if isinstance(q, _Tensor) and (chosen is None or chosen == q.device.type):
        return _on_own_device(
            (q, k, q_scale, k_scale, positions, freq_factors, written, rows),
            (params, epsilon, intermediate_rounding, angle),
        )
    if (
        not isinstance(q, _Tensor)
        and chosen in (None, "cpu")
        and rows is None
        and type(epsilon) is float
        and type(intermediate_rounding) is bool
    ):
        inputs = q_scale, k_scale, positions, freq_factors
        given = params, epsilon, intermediate_rounding, angle
        pair: Any = small_arrays.run(OP, (q, k), inputs, given, written)
        if pair is not None:
            return pair[0], pair[1]
    require_tensor_like(OP, "q", q)
    calls.require_params(OP, params)
    attributes = attributes_of(params, epsilon, intermediate_rounding, angle)
    if written is not None and written[0] is None:
        written = executors.new_q_out(q), cache
    call = rms_norm_rope_tensors(q, k, q_scale, k_scale, positions, freq_factors, written, rows)
    rotated_q, rotated_k = calls.run_named(chosen, call, attributes, executors.run)
    return rotated_q, rotated_k


def _given_outputs(rows: Any, cache: Any, out: Any) -> tuple[Any, Any] | None:
    """Return the outputs of q and k that the caller passed. With a cache q's may be None."""
    if (rows is None) != (cache is None):
        missing, other = ("rows", "cache") if rows is None else ("cache", "rows")
        raise bad_value(OP, missing, f"be given where {other} is", "None")
    if cache is not None:
        return out, cache
    if out is not None:
        calls.require_pair(OP, out)
        for name, one in zip(("q_out", "k_out"), out, strict=True):
            if one is None:  # a pair must have both
                require_tensor_like(OP, name, one)
        return out[0], out[1]
    return None


# ---- torch tensors on their own device -------------------------------------------------------------


def _on_own_device(tensors: tuple[Any, ...], given: tuple[Any, ...]) -> tuple[Any, Any]:
    """Run a call on its tensors' device.

    Args:
        tensors: the arguments of rms_norm_rope_tensors.
        given: params, epsilon, intermediate_rounding, angle.
    """
    q, k, q_scale, k_scale, positions, freq_factors, written, rows = tensors
    try:
        needs_grad = torch.is_grad_enabled() and _require_grad((q, k, q_scale, k_scale, *(written or ())))
        if (
            not (needs_grad and written is not None)
            and not torch.compiler.is_compiling()
            and not calls.records_calls()
            and calls.is_plain_cpu_tensor(q)
            and type(k) in calls.ORDINARY
        ):
            if not needs_grad:
                return _hot_path(tensors, given)
            if type(q_scale) in calls.ORDINARY and type(k_scale) in calls.ORDINARY:
                try:  # a signal's handler may raise after any call
                    _enable_grad(False)
                    pair = _hot_path(tensors, given)
                finally:
                    _enable_grad(True)
                both: tuple[Any, Any] = gradients.add_node[OP]((pair, given), *tensors[:6])
                return both
        floats = {"q": q, "k": k, "q_scale": q_scale, "k_scale": k_scale, "freq_factors": freq_factors}
        gradients.refuse_tangents(OP, floats)
        attributes = _schema_attributes(*given)
        inputs = q, k, q_scale, k_scale, positions
        if written is None:
            return tuple(_operators.rms_norm_rope.default(*inputs, freq_factors, **attributes))
        q_out, k_out = written
        if rows is None:
            outs = {"q_out": q_out, "k_out": k_out}
            _operators.rms_norm_rope_out.default(*inputs, freq_factors, **attributes, **outs)
        elif q_out is None:
            operator = _operators.rms_norm_rope_set_rows.default
            q_out = operator(*inputs, rows, k_out, freq_factors, **attributes)
        else:
            operator = _operators.rms_norm_rope_set_rows_out.default
            operator(*inputs, rows, k_out, freq_factors, **attributes, q_out=q_out)
        return q_out, k_out
    except (RuntimeError, ValueError, TypeError, IndexError, AttributeError) as error:
        raise calls.exception_of_call(error, partial(_check_call, tensors, given)) from error.__cause__


def _require_grad(tensors: tuple[Any, ...]) -> bool:
    return any(tensor is not None and tensor.requires_grad for tensor in tensors)


def _hot_path(tensors: tuple[Any, ...], given: tuple[Any, ...]) -> tuple[Any, Any]:
    """Call the kernel without checks in Python. The C++ checks report every error."""
    q, k, q_scale, k_scale, positions, freq_factors, written, rows = tensors
    params, epsilon, rounding, angle = given
    try:
        packed = params.__dict__["_packed_norm"][given[1:]]
        if type(epsilon) is not float or type(rounding) is not bool:  # 1 equals True but is not a bool
            packed = _packed_of(params, epsilon, rounding, angle)
    except (KeyError, AttributeError, TypeError):
        packed = _packed_of(params, epsilon, rounding, angle)
    if written is None:
        factors = () if freq_factors is None else (freq_factors.detach(),)  # they have no gradient
        pair: tuple[Any, Any] = _call_hot(q, k, q_scale, k_scale, positions, packed, *factors)
        return pair
    q_out, k_out = written
    given_outs = (k_out,) if q_out is None else (q_out, k_out)
    if q_out is None:
        q_out = torch.empty_like(q, memory_format=_contiguous)
    required = (q_out, k_out, q_scale, k_scale, positions, packed)
    if rows is None and freq_factors is None:
        if q_out is q and k_out is k:
            _write_hot(*required)
        else:
            _write_hot(*required, None if q_out is q else q, None if k_out is k else k)
    else:
        read_q, read_k = None if q_out is q else q, None if k_out is k else k
        _write_hot(*required, read_q, read_k, rows, freq_factors)
    # autograd must detect that tensors it saved for a gradient have changed.
    _increment_version(given_outs)
    return q_out, k_out


def _packed_of(params: Any, epsilon: Any, rounding: Any, angle: Any) -> Any:
    """Return the attributes as one uint8 tensor, cached in params."""
    calls.require_params(OP, params)
    attributes = attributes_of(params, epsilon, rounding, angle)
    key = attributes.epsilon, attributes.intermediate_rounding, attributes.angle
    packed = params.__dict__.get("_packed_norm", {}).get(key)
    if packed is None:
        packed = calls.keep_packed(params, "_packed_norm", key, backends.packed(OP, attributes))
    return packed


def _check_call(tensors: tuple[Any, ...], given: tuple[Any, ...]) -> None:
    """Check a call that failed. The arguments are those of :func:`_on_own_device`."""
    q, k, q_scale, k_scale, positions, freq_factors, written, rows = tensors
    if written is not None and written[0] is None:
        written = executors.new_q_out(q), written[1]
    calls.require_params(OP, given[0])
    call = rms_norm_rope_tensors(q, k, q_scale, k_scale, positions, freq_factors, written, rows)
    calls.check(call, attributes_of(*given))


# ---- attributes ------------------------------------------------------------------------------------

_ATTRIBUTES = f"{calls.PARAMS}, float epsilon=1e-5, bool intermediate_rounding=False, int angle=0"


def _schema_attributes(params: Any, epsilon: Any, rounding: Any, angle: Any) -> dict[str, Any]:
    """Return the attributes by their names in the schemas."""
    calls.require_params(OP, params)
    return attributes_of(params, epsilon, rounding, angle).as_schema()


def _attributes(named: dict[str, Any]) -> RmsNormRopeAttributes:
    """Return the attributes from the result of :func:`_schema_attributes`."""
    named = dict(named)
    epsilon, rounding = named.pop("epsilon", 1e-5), named.pop("intermediate_rounding", False)
    angle = named.pop("angle", 0)
    return attributes_of(calls.params_of_schema(named), epsilon, rounding, angle)


def _given_of_schema(**named: Any) -> tuple[Any, ...]:
    """Return params, epsilon, intermediate_rounding and angle from a schema's arguments."""
    return _given_of_key(calls.cache_key(named))


@lru_cache(maxsize=256)
def _given_of_key(key: tuple[tuple[str, Any], ...]) -> tuple[Any, ...]:
    a = _attributes(dict(key))
    return a.params, a.epsilon, a.intermediate_rounding, a.angle


# ---- gradient --------------------------------------------------------------------------------------


def _backward(ctx: Any, q_gradient: Any, k_gradient: Any) -> tuple[Any, ...]:
    """Differentiate through rope_qk, then through rms_norm. The gradient of a rounding is the identity."""
    q, k, q_scale, k_scale, *angles = ctx.saved_tensors
    attributes = attributes_of(*ctx.attributes)
    inverse = attributes.params, False, attributes.angle
    rotated_back = rotations.rotate((q_gradient, k_gradient), angles, inverse)
    needed = ctx.needs_input_grad
    given = -1, attributes.epsilon, attributes.norm_stash_type(spec_of(q).dtype)
    input_gradients: list[Any] = [None] * 4
    for side, (gradient, x, scale) in enumerate(zip(rotated_back, (q, k), (q_scale, k_scale), strict=True)):
        if needed[1 + side] or needed[3 + side]:
            both = rms_norm.differentiate(gradient, x, scale, given, needed[3 + side])
            input_gradients[side], input_gradients[2 + side] = both
    return tuple(input_gradients)


# ---- registration ----------------------------------------------------------------------------------


def _call(*read: Any, q_out: Any = None, k_out: Any = None, **attributes: Any) -> Call:
    out = None if q_out is None else (q_out, k_out)
    q, k, q_scale, k_scale, positions, factors = (*read, None)[:6]
    return rms_norm_rope_tensors(q, k, q_scale, k_scale, positions, factors, out), attributes


def _call_set_rows(*read: Any, q_out: Any = None, **attributes: Any) -> Call:
    q, k, q_scale, k_scale, positions, rows, cache, factors = (*read, None)[:8]
    call = rms_norm_rope_tensors(q, k, q_scale, k_scale, positions, factors, (q_out, cache), rows)
    if q_out is None:  # the operator allocates and returns it
        call = replace(call, outs={"cache": cache})
    return call, attributes


def _call_packed(
    q_out: Any, k_out: Any, q_scale: Any, k_scale: Any, positions: Any, packed: Any, *rest: Any
) -> Call:
    q, k, rows, factors = (*rest, None, None, None, None)[:4]
    q, k, outs = q_out if q is None else q, k_out if k is None else k, (q_out, k_out)
    return rms_norm_rope_tensors(q, k, q_scale, k_scale, positions, factors, outs, rows), packed


def _call_packed_new(
    q: Any, k: Any, q_scale: Any, k_scale: Any, positions: Any, packed: Any, factors: Any = None
) -> Call:
    return rms_norm_rope_tensors(q, k, q_scale, k_scale, positions, factors, None, None), packed


def _check_traced(call: Tensors, attributes: dict[str, Any]) -> None:
    calls.check(call, _attributes(attributes))


def _on_cpu(call: Tensors, attributes: dict[str, Any]) -> None:
    executors.on_cpu_tensors(call, _attributes(attributes))


_INPUTS = "Tensor q, Tensor k, Tensor q_scale, Tensor k_scale, Tensor positions"
_NEW = f"{_INPUTS}, Tensor? freq_factors=None, {_ATTRIBUTES}"
_ROWS = f"{_INPUTS}, Tensor rows, Tensor(a!) cache, Tensor? freq_factors=None, {_ATTRIBUTES}"
_operator = partial(TorchOperator, check=_check_traced, on_cpu=_on_cpu)
register(
    _operator(
        f"rms_norm_rope({_NEW}) -> (Tensor, Tensor)",
        _call,
        results=like_xs("q_out", "k_out"),
        gradient=gradients.Gradient(_backward, reads=((0, 2), (1, 3)), attributes=_given_of_schema),
    ),
    _operator(f"rms_norm_rope_out({_NEW}, Tensor(a!) q_out, Tensor(b!) k_out) -> ()", _call),
    _operator(f"rms_norm_rope_set_rows({_ROWS}) -> Tensor", _call_set_rows, results=like_xs("q_out")),
    _operator(f"rms_norm_rope_set_rows_out({_ROWS}, Tensor(b!) q_out) -> ()", _call_set_rows),
    rotations.packed_operator(
        f"rms_norm_rope_packed({_INPUTS}, Tensor packed, Tensor? freq_factors=None) -> (Tensor, Tensor)",
        _call_packed_new,
        results=like_xs("q_out", "k_out"),
    ),
    # If q or k is None, its output is the input as well. With rows, k_out is a cache.
    rotations.packed_operator(
        "rms_norm_rope_packed_(Tensor(a!) q_out, Tensor(b!) k_out, Tensor q_scale, Tensor k_scale,"
        " Tensor positions, Tensor packed, Tensor? q=None, Tensor? k=None, Tensor? rows=None,"
        " Tensor? freq_factors=None) -> ()",
        _call_packed,
    ),
)

_Tensor: Any = ()  # without torch isinstance(x, ()) is False
if torch is not None:
    _Tensor, _contiguous = torch.Tensor, torch.contiguous_format
    _operators = torch.ops.npu_rope
    _call_hot = gradients.callable_of(_operators.rms_norm_rope_packed.default)
    _write_hot = gradients.callable_of(_operators.rms_norm_rope_packed_.default)
    _enable_grad = torch._C._set_grad_enabled
    _increment_version = torch._C._increment_version

__all__ = ["rms_norm_rope"]
