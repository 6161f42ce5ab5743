"""Code that rotary_mul, rotary_mul_qk and rotary_embedding share: schemas, gradients, dispatch, and the
registration with torch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from npu_rope import backends
from npu_rope.call_tensors import CallTensors
from npu_rope.errors import bad_type, bad_value
from npu_rope.executors import rotations as executors
from npu_rope.executors.tensors import is_tensor, spec_of, unpacked
from npu_rope.ops import calls, gradients, registrar
from npu_rope.ops.gradients import Gradient
from npu_rope.ops.registrar import Call, TorchOperator
from npu_rope.optional_torch import torch
from npu_rope.rotary_calls import (
    RotaryAttributes,
    RotarySizes,
    as_heads,
    is_onnx,
    lanes,
    rotary_embedding_tensors,
    rotary_mul_qk_tensors,
    rotary_mul_tensors,
    serves_all_batches,
    sizes_of,
    tables_of,
)

Tensors = CallTensors[Any]


def run(backend: str | None, call: Tensors, attributes: RotaryAttributes) -> tuple[Any, ...]:
    """Run a call on the back end of that name, by default on its tensors' device. Return the results."""
    chosen, x = backends.default_backend if backend is None else backend, call.first[1]
    if is_tensor(x) and (chosen is None or chosen == x.device.type):
        return _on_own_device(call, attributes)
    return calls.run_named(chosen, call, attributes, executors.run)


# ---- torch tensors on their own device ---------------------------------------------------------------


def have_schema_types(interleaved: Any, first: Any, second: Any) -> bool:
    """Return whether the attributes have exactly the schema's types (:func:`calls.try_hot_path`)."""
    return type(interleaved) is bool and type(first) is int and type(second) is int


def _on_own_device(call: Tensors, attributes: RotaryAttributes) -> tuple[Any, ...]:
    gradients.refuse_tangents(call.op, {**call.xs, **tables_of(call)})
    try:
        if (
            torch.compiler.is_compiling()
            or _needs_gradient(call)
            or not calls.is_plain_cpu_tensor(call.first[1])
        ):
            return _dispatched(call, attributes)
        with _below_autograd():  # without a gradient, skip the Autograd kernel
            return _dispatched(call, attributes)
    except (RuntimeError, ValueError, TypeError, IndexError, AttributeError) as error:
        raise calls.exception_of_call(error, partial(calls.check, call, attributes)) from error.__cause__


def _dispatched(call: Tensors, attributes: RotaryAttributes) -> tuple[Any, ...]:
    """Run torch's operator. Write its results into outs if the call has any."""
    xs, outs = tuple(call.xs.values()), tuple(call.outs.values())
    other_inputs, values = _other_inputs(call), _attributes_in_schema_order(call, attributes)
    # A compiled rotary_embedding copies its result to out: out may be X, and no schema declares that alias.
    operator_writes = not (is_onnx(call) and torch.compiler.is_compiling())
    if outs and operator_writes and not _needs_gradient(call):
        if len(call.in_place) == len(xs) and not is_onnx(call):
            getattr(_operators, f"{call.op}_").default(*xs, *other_inputs, *values)
        else:
            getattr(_operators, f"{call.op}_out").default(*xs, *other_inputs, *outs, *values)
        _increment_version(outs)
        return outs
    if outs:
        _check_outs(call, attributes)
        if torch.is_grad_enabled() and any(table.requires_grad for table in tables_of(call).values()):
            # The tables' gradients need the original inputs.
            xs = tuple(x.clone() if name in call.in_place else x for name, x in call.xs.items())
    ys = getattr(_operators, call.op).default(*xs, *other_inputs, *values)
    ys = ys if isinstance(ys, tuple) else (ys,)
    if outs:
        gradients.copy_results(call.op, call.outs, ys)
    return outs or ys


def _other_inputs(call: Tensors) -> tuple[Any, ...]:
    """Return the tensors after xs in the schemas."""
    return (*tables_of(call).values(), *([call.other_inputs.get("position_ids")] if is_onnx(call) else []))


def _attributes_in_schema_order(call: Tensors, attributes: RotaryAttributes) -> tuple[Any, ...]:
    """Return the values of the attributes in the order of the schemas' arguments."""
    interleaved, width, forward = attributes.interleaved, attributes.rotary_dim, attributes.forward
    if is_onnx(call):
        return interleaved, attributes.num_heads, width, forward
    return interleaved, width, attributes.offset, forward


def _needs_gradient(call: Tensors) -> bool:
    tensors = *call.xs.values(), *tables_of(call).values(), *call.outs.values()
    return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)


def _check_outs(call: Tensors, attributes: RotaryAttributes) -> None:
    """Check the rules of the outputs, before anything is computed."""
    if torch.compiler.is_compiling():
        # The functional operator's fake checks the other arguments. A copy would convert and broadcast.
        for (name, out), (x_name, x) in zip(call.outs.items(), call.xs.items(), strict=True):
            if out.dtype != x.dtype:
                rule = f"have {x_name}'s dtype {spec_of(x).dtype}"
                raise bad_type(call.op, name, rule, spec_of(out).dtype)
            if out.shape != x.shape:
                raise bad_value(call.op, name, f"have {x_name}'s shape {list(x.shape)}", list(out.shape))
        return
    calls.check(call, attributes)
    if torch.is_grad_enabled():
        for out in call.outs.values():
            gradients.refuse_in_place(out)
    if calls.is_plain_cpu_tensor(call.first[1]):
        executors.check(call, attributes)


# ---- gradients -----------------------------------------------------------------------------------------


def table_gradients(
    call: Tensors, grads: Sequence[Any], attributes: RotaryAttributes, sizes: RotarySizes
) -> tuple[Any, Any]:
    """Return the gradients of cos and sin in the tables' shapes and dtypes (formula:
    ``reference/rotary.py``). They are summed over heads, and over batches and tokens that share an entry, in
    float32, or in float64 for float64 xs. The results are differentiable."""
    sums = [_lanewise(call, x, g, attributes, sizes) for x, g in zip(call.xs.values(), grads, strict=True)]
    lanewise_cos, lanewise_sin = (sum(parts[1:], parts[0]) for parts in zip(*sums, strict=True))
    cos, sin = tables_of(call).values()
    cos_gradient = _as_table(call, lanewise_cos, cos, attributes, sizes)
    return cos_gradient, _as_table(call, lanewise_sin, sin, attributes, sizes)


def _lanewise(
    call: Tensors, x: Any, grad: Any, attributes: RotaryAttributes, sizes: RotarySizes
) -> tuple[Any, Any]:
    """Return the contribution of one of xs to the gradient of each lane's cos and sin, ``[B,S,width]``."""
    wide = torch.float64 if x.dtype == torch.float64 else torch.float32
    x, g = (as_heads(call, v, sizes) for v in (x, grad))
    if sizes.width != x.shape[-1]:  # a slice of all would be an alias, for which vmap has no rule
        window = slice(attributes.offset, attributes.offset + sizes.width)
        x, g = x[..., window], g[..., window]
    x, g = x.to(wide), g.to(wide)
    first, second = lanes(sizes.width, attributes.interleaved)
    x1, x2, g1, g2 = x[..., first], x[..., second], g[..., first], g[..., second]
    s1, s2 = (-g1 * x2, g2 * x1) if attributes.forward else (-g2 * x1, g1 * x2)
    sin = torch.cat((s1, s2), -1)
    if attributes.interleaved:  # vmap has no rule for flatten
        sin = torch.stack((s1, s2), -1).reshape(sin.shape)
    return (g * x).sum(-2), sin.sum(-2)


def _as_table(
    call: Tensors, lanewise: Any, table: Any, attributes: RotaryAttributes, sizes: RotarySizes
) -> Any:
    if not sizes.has_entry_per_lane:
        first, second = lanes(sizes.width, attributes.interleaved)
        lanewise = lanewise[..., first] + lanewise[..., second]
    if is_onnx(call):
        lanewise = torch.nn.functional.pad(lanewise, (0, table.shape[-1] - lanewise.shape[-1]))
        if (ids := call.other_inputs.get("position_ids")) is not None:
            rows = torch.zeros(table.shape, dtype=lanewise.dtype, device=lanewise.device)
            # Clamp ids as the kernel does on a device: an id outside the table reads the nearest row.
            ids = ids.flatten().clamp(0, max(table.shape[0] - 1, 0))
            b, s, width = lanewise.shape
            lanewise = rows.index_add(0, ids, lanewise.reshape(b * s, width))
    elif serves_all_batches(call, table, sizes):
        lanewise = lanewise.sum(0)
    return lanewise.reshape(table.shape).to(table.dtype)


def _gradient_of(op: str, make: Callable[..., Call], n_xs: int) -> Gradient:
    """Return the gradient of an operator.

    Args:
        make: returns a call from the operator's arguments.
        n_xs: the number of its rotated tensors.
    """

    def save(ctx: Any, tensors: tuple[Any, ...], output: Any) -> tuple[Any, ...]:
        # Only the tables' gradients need xs. Otherwise xs are not saved and may be overwritten.
        needed = ctx.needs_input_grad
        ctx.saves_xs = needed[1 + n_xs] or needed[2 + n_xs]
        return tensors if ctx.saves_xs else tensors[n_xs:]

    def backward(ctx: Any, *grads: Any) -> tuple[Any, ...]:
        saved = ctx.saved_tensors
        x_gradients: tuple[Any, ...] = (None,) * n_xs
        if any(ctx.needs_input_grad[1 : 1 + n_xs]):
            *attributes, forward = ctx.attributes
            other_inputs = saved[n_xs:] if ctx.saves_xs else saved
            rotated = calls.run(op, (*grads, *other_inputs), (*attributes, not forward))
            x_gradients = rotated if isinstance(rotated, tuple) else (rotated,)
        if not ctx.saves_xs:
            return x_gradients
        call, given = make(*saved, *ctx.attributes)
        return *x_gradients, *table_gradients(call, grads, given, sizes_of(call, given))

    return Gradient(backward, save, ((0, 2, 3), (1, 2, 3)) if n_xs == 2 else ())


# ---- registration --------------------------------------------------------------------------------------


def _attributes_of(
    interleaved: bool = False, rotary_dim: int = 0, offset: int = 0, forward: bool = True
) -> RotaryAttributes:
    return RotaryAttributes(interleaved, rotary_dim, offset, 0, forward)


def _call_onnx_out(x: Any, cos: Any, sin: Any, ids: Any, out: Any, *given: Any) -> Call:
    values: Any = (*given, *(False, 0, 0, True)[len(given) :])
    interleaved, num_heads, rotary_dim, forward = values
    attributes = RotaryAttributes(interleaved, rotary_dim, 0, num_heads, forward)
    return rotary_embedding_tensors(x, cos, sin, ids, out), attributes


def _call_onnx(x: Any, cos: Any, sin: Any, ids: Any = None, *given: Any) -> Call:
    return _call_onnx_out(x, cos, sin, ids, None, *given)


# Outputs precede the attributes: a keyword-only argument would take a tenth of a decode-sized call's time.
_ATTRIBUTES = "bool interleaved=False, int rotary_dim=0, int offset=0, bool forward=True"
_TABLES = "Tensor cos, Tensor sin"
_CACHES = "Tensor X, Tensor cos_cache, Tensor sin_cache, Tensor? position_ids"
_ONNX = "bool interleaved=False, int num_heads=0, int rotary_embedding_dim=0, bool forward=True"
_operator = partial(TorchOperator, check=calls.check, on_cpu=executors.on_cpu_tensors)


def _operators_of(
    op: str, make: Callable[..., Tensors], xs: tuple[str, ...], outs: tuple[str, ...]
) -> tuple[TorchOperator, ...]:
    """Return three operators: with new results, in place, and into given memory. ``make`` returns a call's
    tensors from xs, cos, sin and the output."""
    n, inputs = len(xs), len(xs) + 2

    def call(*given: Any) -> Call:
        return make(*given[:inputs], None), _attributes_of(*given[inputs:])

    def call_in_place(*given: Any) -> Call:
        return make(*given[:inputs], registrar.one_or_all(given[:n])), _attributes_of(*given[inputs:])

    def call_into(*given: Any) -> Call:
        out, attributes = given[inputs : inputs + n], given[inputs + n :]
        return make(*given[:inputs], registrar.one_or_all(out)), _attributes_of(*attributes)

    read, result = registrar.schema_of_inputs(xs), "Tensor" if n == 1 else "(Tensor, Tensor)"
    return (
        _operator(
            f"{op}({read}, {_TABLES}, {_ATTRIBUTES}) -> {result}",
            call,
            results=registrar.like_xs(*outs),
            gradient=_gradient_of(op, call, n),
        ),
        _operator(f"{op}_({registrar.schema_of_outputs(xs)}, {_TABLES}, {_ATTRIBUTES}) -> ()", call_in_place),
        _operator(
            f"{op}_out({read}, {_TABLES}, {registrar.schema_of_outputs(outs)}, {_ATTRIBUTES}) -> ()",
            call_into,
        ),
    )


def _transposed(call: Tensors) -> Tensors:
    """Exchange heads and tokens of queries, keys and their results."""
    transposed = call.map(lambda x: x.transpose(-3, -2) if x.ndim > 2 else x)
    return replace(transposed, other_inputs=call.other_inputs)


def _call_heads_first(q: Any, k: Any, cos: Any, sin: Any, packed: Any = None) -> Call:
    return rotary_mul_qk_tensors(q, k, cos, sin, None), packed


def _on_cpu_heads_first(call: Tensors, packed: Any) -> None:
    given = unpacked(call, packed)
    interleaved, forward = bool(given.interleaved), bool(given.forward)
    attributes = _attributes_of(interleaved, given.rotary_dim, given.offset, forward)
    executors.on_cpu_tensors(_transposed(call), attributes)


def neighbours_to_halves(x: Any) -> Any:
    """Return the first lanes of all pairs ``(x[2i], x[2i+1])``, then their second lanes."""
    return x.unflatten(-1, (x.shape[-1] // 2, 2)).transpose(-1, -2).flatten(-2)


def _to_halves(call: Tensors) -> Tensors:
    """Return the call of rotary_mul_qk that computes a call of rotary_mul_qk_to_halves."""
    even = all(x.shape[-1] % 2 == 0 for x in call.xs.values())  # rotary_mul_qk rejects odd sizes
    return _transposed(
        replace(call, xs={n: neighbours_to_halves(x) for n, x in call.xs.items()}) if even else call
    )


# Make a TorchOperator of queries and keys [B,N,S,D].
_heads_first_operator = partial(
    TorchOperator,
    call=_call_heads_first,
    results=registrar.like_xs("q_out", "k_out"),
    hot_path=True,
    on_npu=False,
)
registrar.register(
    *_operators_of("rotary_mul", rotary_mul_tensors, ("x",), ("out",)),
    *_operators_of("rotary_mul_qk", rotary_mul_qk_tensors, ("q", "k"), ("q_out", "k_out")),
    _heads_first_operator(
        f"rotary_mul_qk_heads_first(Tensor q, Tensor k, {_TABLES}, Tensor packed) -> (Tensor, Tensor)",
        check=calls.check_packed,
        on_cpu=_on_cpu_heads_first,
    ),
    _heads_first_operator(
        f"rotary_mul_qk_to_halves(Tensor q, Tensor k, {_TABLES}) -> (Tensor, Tensor)",
        check=lambda call, _: calls.check(_transposed(call), _attributes_of()),
        on_cpu=lambda call, _: executors.on_cpu_tensors(_to_halves(call), _attributes_of()),
    ),
    _operator(
        f"rotary_embedding({_CACHES}=None, {_ONNX}) -> Tensor",
        _call_onnx,
        results=registrar.like_xs("Y"),
        gradient=_gradient_of("rotary_embedding", _call_onnx, 1),
    ),
    _operator(f"rotary_embedding_out({_CACHES}, Tensor(a!) Y, {_ONNX}) -> ()", _call_onnx_out),
)

if torch is not None:
    _operators = torch.ops.npu_rope
    _increment_version = torch._C._increment_version
    _below_autograd = torch._C._AutoDispatchBelowAutograd
