"""qkv_norm_rope_cache: the Python function, and the registration with torch.

The step of attention between the projection and the KV cache: split, norms of queries and keys, rotation, and
the stores into the caches, in one pass over memory.
"""

from __future__ import annotations

from functools import lru_cache, partial
from typing import Any

from npu_rope import backends
from npu_rope.call_tensors import CallTensors
from npu_rope.errors import BrokenRule, bad_type, bad_value
from npu_rope.executors import qkv_norm_rope_cache as executors
from npu_rope.executors import rules
from npu_rope.executors.tensors import as_arrays, empty_like, is_tensor, require_tensor_like, spec_of
from npu_rope.ops import calls, gradients, rms_norm, rotations
from npu_rope.ops.registrar import Call, TorchOperator, like_xs, register
from npu_rope.optional_torch import torch
from npu_rope.params import RopeParams
from npu_rope.qkv_norm_rope_cache_calls import (
    CACHES,
    OP,
    OTHERS,
    OUTS,
    XS,
    QkvAttributes,
    attributes_of,
    qkv_tensors,
)
from npu_rope.values import Angle, as_float32

Tensors = CallTensors[Any]


def qkv_norm_rope_cache(
    q: Any,
    k: Any,
    v: Any,
    positions: Any,
    params: RopeParams,
    freq_factors: Any = None,
    *,
    cos: Any = None,
    sin: Any = None,
    q_scale: Any = None,
    k_scale: Any = None,
    q_bias: Any = None,
    k_bias: Any = None,
    epsilon: float = 1e-5,
    scale_offset: float = 0.0,
    square_sums: Any = None,
    ranks: int = 1,
    slots: Any = None,
    k_cache: Any = None,
    v_cache: Any = None,
    k_quant_scale: Any = None,
    k_quant_offset: Any = None,
    v_quant_scale: Any = None,
    v_quant_offset: Any = None,
    out: Any = None,
    backend: str | None = None,
    angle: Angle = "exact",
) -> tuple[Any, Any, Any]:
    """Normalize and rotate queries and keys, and store keys and values into rows of caches, in one pass::

        y = rotate(x / sqrt(m + epsilon) * (scale + scale_offset) + bias)

    m is the mean square of a head, or of all heads of a token. Values are neither normalized nor rotated.
    Intermediate values are float32 (float64 for float64), and a result is rounded once.

    Args:
        q: ``[S,Nq,D]``, torch tensor or NumPy array; float32, float16, bfloat16 or float64. Any strides, so
            q, k and v may be views of one fused tensor; a non-unit last stride costs a copy.
        k: ``[S,Nk,D]``, of q's dtype.
        v: ``[S,Nv,Dv]``, of q's dtype, or None.
        positions: ``[S]``, int32 or int64, in the int32 range; in the modes with sections ``[3,S]``,
            ``[4,S]`` or ``[4*S]``. With tables: their rows; None means row s for token s.
        params: the rotation's attributes. With tables only n_dims, mode, n_offs and sections are used.
        freq_factors: ``[>= pairs]`` float32; pair i's frequency is divided by factor i. Not with tables.
        cos, sin: tables ``[P,W]`` in place of frequencies; of q's dtype or float32. W is the number of pairs,
            or twice that, with an entry for each lane. vLLM's cos_sin_cache ``[P,2*W]`` is passed as
            ``cos=cache[:, :W], sin=cache[:, W:]``.
        q_scale, k_scale: factors of the norm, of q's dtype or float32; None: not normalized. ``[D]``: each
            head is normalized; ``[N*D]`` with N > 1: all heads of a token together.
        q_bias, k_bias: added after the scale; of its shape; of q's dtype or float32.
        epsilon: added to the mean square: >= 0. Rounded to float32.
        scale_offset: added to the scales: 1 for Gemma, which stores them minus 1.
        square_sums: ``[S,2]`` float32 (float64 for float64), not negative: the sums of squares of each
            token's queries and keys over the heads of all ranks, for norms over all heads under tensor
            parallelism. NaN passes to the results. Values on an NPU are not checked.
        ranks: the number of these ranks, at most 65,536, each with as many heads as this call.
        slots: ``[S]``, int32 or int64: each token's row of the caches, or -1 to leave its k and v out. Two
            tokens must not have the same row.
        k_cache, v_cache: with slots: ``[rows,N,D]``, or ``[blocks,block_size,N,D]`` of any strides with unit
            stride in D, such as ``cache.transpose(1, 2)`` of a cache ``[blocks,N,block_size,D]``. The
            dtype is q's, float32, float16, bfloat16 or int8. Other rows keep their values.
        k_quant_scale, v_quant_scale: float32 factors of an int8 cache: ``[1]``, ``[N]`` or ``[N,D]``. The
            cache gets y * factor + offset, rounded half to even and limited to [-128, 127]. Only with slots,
            and for v only with v.
        k_quant_offset, v_quant_offset: float32, of the factor's shape, or None.
        out: where to write: (q_out, k_out, v_out) with the shapes and dtype of q, k and v; v_out is None
            without v. With caches only q_out. Each may be its own input, else it shares no memory with the
            arguments.
        backend: ``"reference"``, ``"cpu"``, ``"sim"``, ``"sim:<soc>"`` or ``"npu"``; None:
            ``NPU_ROPE_BACKEND``, else by q's device. On an NPU a norm over all heads has a limit
            (docs/ops/qkv_norm_rope_cache.md).
        angle: ``"exact"``, ``"f32"`` or ``"ggml"``, or 0, 1, 2 (numerics in docs/ops/rope.md).

    Returns:
        (q, k, v): the results; without caches and ``out`` v itself, unchanged. With caches: (q's result,
        k_cache, v_cache). Without caches and ``out``, gradients flow to q, k, scales, biases and
        ``square_sums``; the back ends reference, sim and npu refuse CPU tensors that need one.

    Raises:
        ValueError, TypeError: an argument breaks its rule; nothing was written.
        BackendUnavailable: the back end is unavailable or lacks this operator.

    >>> import numpy as np
    >>> qkv = np.arange(12, dtype=np.float32).reshape(1, 3, 4)  # one head each of q, k and v
    >>> cache = np.zeros((2, 1, 4), np.float16), np.zeros((2, 1, 4), np.float16)
    >>> q, k, v = qkv_norm_rope_cache(qkv[:, :1], qkv[:, 1:2], qkv[:, 2:], np.array([1]), RopeParams(2),
    ...     slots=np.array([1]), k_cache=cache[0], v_cache=cache[1])
    >>> q[0, 0].astype(float).round(3).tolist(), v[:, 0].tolist()
    ([-0.841, 0.54, 2.0, 3.0], [[0.0, 0.0, 0.0, 0.0], [8.0, 9.0, 10.0, 11.0]])
    """
    norm = q_scale, k_scale, q_bias, k_bias, square_sums
    quantization = k_quant_scale, k_quant_offset, v_quant_scale, v_quant_offset
    read = (*norm, positions, freq_factors, cos, sin, slots, *quantization)
    if (
        backend is None
        and type(params) is RopeParams
        and not (torch is None or torch.compiler.is_compiling())
    ):
        results = _on_hot_path(
            (q, k, v), read, (k_cache, v_cache), out, params, (epsilon, scale_offset, ranks, angle)
        )
        if results is not NotImplemented:
            hot: tuple[Any, Any, Any] = results
            return hot
    others = dict(zip(OTHERS, read, strict=True))
    require_tensor_like(OP, "q", q)
    if k is None:
        raise bad_type(OP, "k", "be a torch tensor or a NumPy array", "None")
    calls.require_params(OP, params)
    outs = _given_outputs((q, k, v), slots, (k_cache, v_cache), out)
    if slots is None:
        _refuse_quantization(others)
    call = qkv_tensors({"q": q, "k": k, "v": v if outs else None}, others, outs)
    attributes = attributes_of(params, epsilon, scale_offset, ranks, angle)
    if not (outs or _keeps_rule(v, q)):
        _check_returned(qkv_tensors({**call.xs, "v": v}, others, {}), attributes)
    chosen = backends.default_backend if backend is None else backend
    if is_tensor(q) and chosen in (None, q.device.type):
        results = _on_own_device(call, attributes)
    else:
        if outs and "q_out" not in outs:
            call = qkv_tensors(call.xs, others, {"q_out": empty_like(q), **outs})
        results = calls.run_named(chosen, call, attributes, executors.run)
    return results[0], results[1], (results[2] if len(results) > 2 else None) if outs else v


def _keeps_rule(v: Any, q: Any) -> bool:
    """Return whether v, which a call without outputs only returns, certainly keeps its rule. csrc/core has
    the rule. To ask it takes longer than a decode-sized call."""
    if v is None:
        return True
    if not (is_tensor(v) and is_tensor(q)) or (v.dtype, v.device, v.layout) != (q.dtype, q.device, q.layout):
        return False
    return bool(v.ndim == 3 and v.shape[:1] == q.shape[:1] and not v.is_nested)


def _check_returned(call: Tensors, attributes: QkvAttributes) -> None:
    """Check a call with v by the rules of a call that writes v."""
    if is_tensor(call.first[1]):
        calls.check_devices(call)
    else:
        call = as_arrays(call)
    rules.check_layout(call.map(spec_of), attributes.checked)


def _refuse_quantization(others: dict[str, Any]) -> None:
    """Reject factors and offsets of caches in a call without caches: torch's operator for it lacks them."""
    for name in OTHERS[_SLOTS + 1 :]:
        if others[name] is not None:
            raise bad_value(OP, name, "not be given without slots", "a tensor")


def _given_outputs(xs: tuple[Any, Any, Any], slots: Any, caches: tuple[Any, Any], out: Any) -> dict[str, Any]:
    """Return the outputs that the caller passed, by name. With caches, q_out may be missing."""
    if slots is None:
        for name, cache in zip(CACHES, caches, strict=True):
            if cache is not None:
                raise bad_value(OP, "slots", f"be given where {name} is", "None")
        if out is None:
            return {}
        if not isinstance(out, (tuple, list)) or len(out) != len(OUTS):
            is_sequence = isinstance(out, (tuple, list))
            got = f"a sequence of length {len(out)}" if is_sequence else type(out).__name__
            raise bad_value(OP, "out", "be (q_out, k_out, v_out)", got)
        for name, x_name, x, written in zip(OUTS, XS, xs, out, strict=True):
            if written is None and x is not None:
                raise bad_value(OP, name, f"be given where {x_name} is", "None")
        return dict(zip(OUTS, out, strict=True))
    for name, x, cache in zip(CACHES, xs[1:], caches, strict=True):
        x_name = name[0]
        if cache is None and x is not None:
            raise bad_value(OP, name, f"be given where slots and {x_name} are", "None")
        if x is None and cache is not None:
            raise bad_value(OP, name, f"not be given without {x_name}", "a cache")
    written = dict(zip(CACHES, caches, strict=True))
    return written if out is None else {"q_out": out, **written}


# ---- hot path --------------------------------------------------------------------------------------


def _on_hot_path(
    xs: tuple[Any, Any, Any],
    read: tuple[Any, ...],
    caches: tuple[Any, Any],
    out: Any,
    params: RopeParams,
    numbers: tuple[Any, Any, Any, Any],
) -> Any:
    """Return the results of a call with new results or given memory, or NotImplemented: see
    :func:`.calls.try_hot_path`."""
    q, k, v = xs
    named = _schema_of(params, *numbers)
    if named is None:
        return NotImplemented
    if read[_SLOTS] is None:
        if any(cache is not None for cache in caches):
            return NotImplemented
        if out is None:
            if any(tensor is not None for tensor in read[_SLOTS + 1 :]) or not _keeps_rule(v, q):
                return NotImplemented
            pair = calls.try_hot_path(OP, (q, k, *read[:_SLOTS]), (), named)
            return pair if pair is NotImplemented else (*pair, v)
        written = out
    else:
        if out is None:
            return NotImplemented
        written = (out, *caches)
    if type(written) is not tuple or len(written) != len(OUTS) or any(x is None for x in written[:2]):
        return NotImplemented
    if written[2] is None and v is not None:
        return NotImplemented
    outs = dict(zip(OUTS, written, strict=True))
    tensors = tuple(x for x in written if x is not None)
    done = calls.try_hot_write(f"{OP}_out", (q, k, v, *read), (), tensors, {**named, **outs})
    return done if done is NotImplemented else written


def _schema_of(
    params: RopeParams, epsilon: Any, scale_offset: Any, ranks: Any, angle: Any
) -> dict[str, Any] | None:
    """Return the attributes by their names in the schemas, cached in params; None: they have other types than
    there, or break a rule."""
    key = epsilon, scale_offset, ranks, angle
    if (type(epsilon), type(scale_offset), type(ranks), type(angle)) != (float, float, int, str):
        return None
    schemas: dict[Any, dict[str, Any]] = params.__dict__.setdefault("_qkv_schemas", {})
    if key not in schemas:
        try:
            schemas[key] = attributes_of(params, *key).as_schema()
        except BrokenRule:
            return None
    return schemas[key]


_SLOTS = OTHERS.index("slots")


# ---- torch tensors on their own device -------------------------------------------------------------


def _on_own_device(call: Tensors, attributes: QkvAttributes) -> tuple[Any, ...]:
    """Run a call on its tensors' device."""
    inputs = [call.xs.get(name) for name in XS]
    others = {name: call.other_inputs.get(name) for name in OTHERS}
    named = attributes.as_schema()
    try:
        gradients.refuse_tangents(OP, {**call.xs, **call.other_inputs})
        if not call.outs:
            read = [others[name] for name in _NORM_AND_ANGLES]
            return tuple(_operators.qkv_norm_rope_cache.default(*inputs[:2], *read, **named))
        caches = [call.outs.get(name) for name in CACHES]
        if "slots" in call.other_inputs and "q_out" not in call.outs:
            operator = _operators.qkv_norm_rope_cache_set_rows.default
            return operator(*inputs, *others.values(), *caches, **named), *given_of(caches)
        written = {name: call.outs.get(name) for name in OUTS}
        if "slots" in call.other_inputs:
            written |= dict(zip(OUTS[1:], caches, strict=True))
        _operators.qkv_norm_rope_cache_out.default(*inputs, *others.values(), **named, **written)
        return given_of(written.values())
    except (RuntimeError, ValueError, TypeError, IndexError, AttributeError) as error:
        raise calls.exception_of_call(error, partial(_check, call, attributes)) from error.__cause__


def given_of(tensors: Any) -> tuple[Any, ...]:
    """Return those of the tensors that are not None."""
    return tuple(tensor for tensor in tensors if tensor is not None)


def _check(call: Tensors, attributes: QkvAttributes) -> None:
    """Check every rule that needs neither an element's value nor an address. Tensors may be fake."""
    calls.check_devices(call)
    rules.check_layout(call.map(spec_of), attributes.checked)


# ---- gradient --------------------------------------------------------------------------------------

_NORM_AND_ANGLES = OTHERS[:9]


def _backward(ctx: Any, q_gradient: Any, k_gradient: Any) -> tuple[Any, ...]:
    """Differentiate through the rotation, then through the norms. The gradient of a rounding is the
    identity."""
    q, k, *others = ctx.saved_tensors
    named = dict(zip(_NORM_AND_ANGLES, others, strict=True))
    attributes = _attributes_of_key(calls.cache_key(ctx.attributes))
    rotated_back = _rotated_back((q_gradient, k_gradient), named, attributes)
    needed = dict(zip(("q", "k", *_NORM_AND_ANGLES), ctx.needs_input_grad[1:], strict=False))
    sides = []
    for column, (side, x) in enumerate((("q", q), ("k", k))):
        given = rotated_back[column], x, named[f"{side}_scale"], named[f"{side}_bias"]
        sums = named["square_sums"]
        if sums is None:
            needs_scale = needed[f"{side}_scale"]
            sides.append((*_side_gradients(*given, attributes, needs_scale=needs_scale), None))
        else:
            sides.append(_side_gradients_by_sums(*given, sums[:, column], attributes))
    of_xs, of_scales, of_biases, of_sums = zip(*sides, strict=True)
    square_sums_gradient = None if named["square_sums"] is None else torch.stack(of_sums, dim=1)
    return *of_xs, *of_scales, *of_biases, square_sums_gradient


def _rotated_back(
    grads: tuple[Any, Any], named: dict[str, Any], attributes: QkvAttributes
) -> tuple[Any, ...]:
    """Rotate the gradients of both results by minus the angle."""
    params, positions = attributes.params, named["positions"]
    if named["cos"] is None:
        angles = positions, named["freq_factors"]
        return rotations.rotate(grads, angles, (params, False, attributes.angle))
    cos, sin = (_rows_of(named[name], positions, grads[0].shape[0], params) for name in ("cos", "sin"))
    interleaved = not params.rope_mode.has_sections and params.rope_mode.value == 0
    given = interleaved, 2 * params.pairs, params.n_offs, False
    return tuple(calls.run("rotary_mul_qk", (*grads, cos, sin), given))


def _rows_of(table: Any, positions: Any, tokens: int, params: RopeParams) -> Any:
    """Return the entries of each token, ``[S,W]``: in the modes with sections, each from its axis's row."""
    if positions is None:
        return table[:tokens]
    if not params.rope_mode.has_sections:
        return table[positions.long()]
    planes = (positions if positions.ndim == 2 else positions.reshape(4, tokens)).long()
    if len(planes) == 3:
        planes = torch.cat([planes, planes[:1]])
    axes = torch.as_tensor(params.axes(), device=table.device)
    axes = axes.repeat(table.shape[1] // params.pairs)
    lanes = torch.arange(table.shape[1], device=table.device)
    return table[planes[axes].T, lanes]


def _side_gradients(
    gradient: Any, x: Any, scale: Any, bias: Any, attributes: QkvAttributes, *, needs_scale: bool
) -> tuple[Any, Any, Any]:
    """Return the gradients of q or k, of its scale and of its bias. If the scale needs none, do not
    compute it, and return None for it."""
    if scale is None:
        return gradient, None, None
    if scale.shape[0] == 0:
        return gradient, *_no_gradients(scale, bias)
    rows = (-1, scale.shape[0])
    by_row = gradient.reshape(rows)
    bias_gradient = None if bias is None else by_row.sum(0, dtype=_sum_type(x)).to(bias.dtype)
    factor = scale.to(_sum_type(x)) + attributes.scale_offset
    stash = 11 if spec_of(x).dtype == "float64" else 1
    tensors = by_row.to(factor.dtype), x.reshape(rows), factor
    dx, dscale = rms_norm.differentiate(*tensors, (-1, attributes.epsilon, stash), needs_scale)
    return dx.reshape(x.shape), None if dscale is None else dscale.to(scale.dtype), bias_gradient


def _no_gradients(scale: Any, bias: Any) -> tuple[Any, Any]:
    """Return the gradients of the scale and the bias of a side without heads."""
    of_scale, of_bias = (None if factor is None else torch.zeros_like(factor) for factor in (scale, bias))
    return of_scale, of_bias


def _side_gradients_by_sums(
    gradient: Any, x: Any, scale: Any, bias: Any, sums: Any, attributes: QkvAttributes
) -> tuple[Any, Any, Any, Any]:
    """Return the gradients of q or k, of its scale, of its bias and of the given sums of squares ``[S]``."""
    if x.shape[1] == 0:
        return gradient, *_no_gradients(scale, bias), torch.zeros_like(sums)
    by_row = gradient.flatten(1).to(sums.dtype)
    factor = scale.to(sums.dtype) + as_float32(attributes.scale_offset)
    # A DTensor has the heads of all ranks.
    ranks = 1 if hasattr(x, "placements") else attributes.ranks
    elements = ranks * x.shape[1] * x.shape[2]
    inverse = (sums / elements + as_float32(attributes.epsilon)).rsqrt()
    scaled = by_row * inverse[:, None]
    of_scale = scaled * x.flatten(1)
    of_x = (scaled * factor).to(x.dtype).reshape(x.shape)
    of_bias = None if bias is None else by_row.sum(0).to(bias.dtype)
    of_sums = (of_scale * factor).sum(1) * inverse * inverse * (-0.5 / elements)
    return of_x, of_scale.sum(0).to(scale.dtype), of_bias, of_sums


def _sum_type(x: Any) -> Any:
    return torch.float64 if x.dtype == torch.float64 else torch.float32


# ---- registration ----------------------------------------------------------------------------------

_ATTRIBUTES = f"{calls.PARAMS}, float epsilon=1e-5, int angle=0, float scale_offset=0.0, int ranks=1"


def _attributes(named: dict[str, Any]) -> QkvAttributes:
    """Return the attributes from a schema's arguments."""
    named = dict(named)
    own = {"epsilon": 1e-5, "scale_offset": 0.0, "ranks": 1, "angle": 0}
    values = {name: named.pop(name, default) for name, default in own.items()}
    return attributes_of(calls.params_of_schema(named), **values)


_attributes_of_key = lru_cache(maxsize=256)(lambda key: _attributes(dict(key)))


def _call_new(*read: Any, **attributes: Any) -> Call:
    names = (*XS[:2], *_NORM_AND_ANGLES)
    given = dict(zip(names, read, strict=False))
    xs = {name: given.pop(name) for name in XS[:2]}
    return qkv_tensors(xs, given, {}), attributes


def _call_set_rows(*read: Any, **attributes: Any) -> Call:
    names = (*XS, *OTHERS, *CACHES)
    given = dict(zip(names, read, strict=False))
    xs = {name: given.pop(name) for name in XS}
    caches = {name: given.pop(name, None) for name in CACHES}
    return qkv_tensors(xs, given, caches), attributes


def _call_out(*read: Any, q_out: Any, k_out: Any, v_out: Any = None, **attributes: Any) -> Call:
    given = dict(zip((*XS, *OTHERS), read, strict=False))
    xs = {name: given.pop(name) for name in XS}
    names = (OUTS[0], *CACHES) if given.get("slots") is not None else OUTS
    return qkv_tensors(xs, given, dict(zip(names, (q_out, k_out, v_out), strict=True))), attributes


def _check_traced(call: Tensors, attributes: dict[str, Any]) -> None:
    _check(call, _attributes(attributes))


def _on_cpu(call: Tensors, attributes: dict[str, Any]) -> None:
    executors.on_cpu_tensors(call, _attributes(attributes))


def _optional(names: tuple[str, ...]) -> str:
    return ", ".join(f"Tensor? {name}=None" for name in names)


_NEW = f"Tensor q, Tensor k, {_optional(_NORM_AND_ANGLES)}"
_ALL = f"Tensor q, Tensor k, Tensor? v, {', '.join(f'Tensor? {name}' for name in OTHERS)}"
_operator = partial(TorchOperator, check=_check_traced, on_cpu=_on_cpu)
register(
    _operator(
        f"qkv_norm_rope_cache({_NEW}, {_ATTRIBUTES}) -> (Tensor, Tensor)",
        _call_new,
        results=like_xs("q_out", "k_out"),
        gradient=gradients.Gradient(_backward, reads=((0, 2, 4, 6), (1, 3, 5, 6)), attributes=dict),
    ),
    _operator(
        f"qkv_norm_rope_cache_set_rows({_ALL}, Tensor(a!) k_cache, Tensor(b!)? v_cache, {_ATTRIBUTES})"
        " -> Tensor",
        _call_set_rows,
        results=like_xs("q_out"),
    ),
    _operator(
        f"qkv_norm_rope_cache_out({_ALL}, {_ATTRIBUTES}, Tensor(a!) q_out, Tensor(b!) k_out,"
        " Tensor(c!)? v_out=None) -> ()",
        _call_out,
    ),
)
if torch is not None:
    _operators = torch.ops.npu_rope
