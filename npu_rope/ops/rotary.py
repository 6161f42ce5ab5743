"""Code that rotary_mul, rotary_mul_qk and rotary_embedding share as torch operators: schemas, fake tensors,
gradients and dispatch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from npu_rope import backends
from npu_rope.errors import bad_value
from npu_rope.executors import rotary as executors
from npu_rope.executors.tensors import is_tensor, spec_of_tensor
from npu_rope.ops import calls, gradients
from npu_rope.optional_torch import torch
from npu_rope.rotary_checks import (
    RotaryAttributes,
    RotarySizes,
    RotaryTensors,
    as_heads,
    check_call,
    lanes,
    rotary_embedding_tensors,
    rotary_mul_qk_tensors,
    rotary_mul_tensors,
    serves_all_batches,
)

Tensors = RotaryTensors[Any]
Call = tuple[Tensors, RotaryAttributes]


def run(backend: str | None, t: Tensors, a: RotaryAttributes) -> tuple[Any, ...]:
    """Run a call on the backend of that name, by default on its tensors' device. Return the written
    tensors."""
    first_name, first = t.first
    chosen = backend or backends.default_backend
    if not is_tensor(first):
        return executors.run(chosen or "cpu", t, a)
    if chosen is None or chosen == first.device.type:
        return _on_own_device(t, a)
    if chosen == "cpu":
        raise bad_value(t.op, f"{first_name} must be on device cpu for backend cpu but got {first.device}.")
    if torch.compiler.is_compiling():
        torch._dynamo.graph_break("npu_rope runs a named backend outside torch: compile without backend=")
        ys: tuple[Any, ...] = _uncompiled(chosen, t, a)
        return ys
    return executors.run(chosen, t, a)


# ---- torch tensors on their own device ---------------------------------------------------------------


def of_schema_s_types(interleaved: Any, first: Any, second: Any) -> bool:
    """Return whether the attributes have exactly the schema's types, as :func:`straight` requires."""
    return type(interleaved) is bool and type(first) is int and type(second) is int


def straight(
    op: str,
    tensors: tuple[Any, ...],
    attributes: tuple[Any, ...],
    outs: tuple[Any, ...] = (),
    *,
    written: tuple[Any, ...] = (),
) -> Any:
    """Hot path: call the kernel directly, for plain CPU tensors without a gradient. Return NotImplemented for
    other calls and for calls with an error, which :func:`run` then reports.

    Args:
        op: the operator. Its schema takes the tensors, then the attributes, then outs.
        attributes: of exactly the schema's types; torch would silently convert others.
        written: the tensors that an in-place operator writes.
    """
    if torch is None or torch.compiler.is_compiling() or backends.default_backend not in (None, "cpu"):
        return NotImplemented
    follows, ordinary = torch.is_grad_enabled(), calls.ORDINARY
    for t in (*tensors, *outs):
        if type(t) not in ordinary or (follows and t.requires_grad):
            return NotImplemented
    if not calls.is_plain(tensors[0]):
        return NotImplemented
    call = _callables.get(op)
    if call is None:
        call = _callables[op] = calls.callable_of(getattr(_operators, op).default)
    try:
        with _below():
            results = call(*tensors, *attributes, *outs)
    except (RuntimeError, TypeError, ValueError):
        return NotImplemented
    if outs or written:
        _increment_version(outs or written)
        return outs or written
    return results


def _on_own_device(t: Tensors, a: RotaryAttributes) -> tuple[Any, ...]:
    gradients.refuse_tangents(t.op, {**t.xs, **t.tables})
    try:
        if torch.compiler.is_compiling() or _needs_gradient(t) or not calls.is_plain(t.first[1]):
            return _dispatched(t, a)
        with _below():  # without a gradient, straight to the kernel
            return _dispatched(t, a)
    except (RuntimeError, ValueError, TypeError, IndexError, AttributeError) as error:
        raise _explained(error, t, a) from error.__cause__


def _dispatched(t: Tensors, a: RotaryAttributes) -> tuple[Any, ...]:
    """Run torch's operator. Write its results into outs if the call has any."""
    xs, outs, rest = tuple(t.xs.values()), tuple(t.outs.values()), _rest(t, a)
    # Under compilation rotary_embedding writes into X by a copy, so that the compiler has two tensors.
    by_operator = not (t.onnx and torch.compiler.is_compiling())
    if outs and by_operator and not _needs_gradient(t):
        if len(t.in_place) == len(xs) and not t.onnx:
            getattr(_operators, f"{t.op}_").default(*xs, *rest)
        else:
            getattr(_operators, f"{t.op}_out").default(*xs, *rest, *outs)
        _increment_version(outs)
        return outs
    if outs:
        _check_outs(t, a)
        if torch.is_grad_enabled() and any(table.requires_grad for table in t.tables.values()):
            # The tables' gradients need the original inputs.
            xs = tuple(x.clone() if name in t.in_place else x for name, x in t.xs.items())
    ys = getattr(_operators, t.op).default(*xs, *rest)
    ys = ys if isinstance(ys, tuple) else (ys,)
    for out, y in zip(outs, ys, strict=False):
        out.copy_(y)
    return outs or ys


def _rest(t: Tensors, a: RotaryAttributes) -> tuple[Any, ...]:
    """Return the arguments after xs in the schemas."""
    if t.onnx:
        return (*t.tables.values(), t.position_ids, a.interleaved, a.num_heads, a.rotary_dim, a.forward)
    return (*t.tables.values(), a.interleaved, a.rotary_dim, a.offset, a.forward)


def _needs_gradient(t: Tensors) -> bool:
    return torch.is_grad_enabled() and any(v.requires_grad for v in (*t.xs.values(), *t.tables.values()))


def _check(t: Tensors, a: RotaryAttributes) -> RotarySizes:
    """Check every rule that needs neither an element's value nor an address. Tensors may be fake."""
    calls.check_devices(t)
    return check_call(t.map(spec_of_tensor), a)


def _check_outs(t: Tensors, a: RotaryAttributes) -> None:
    """Check the rules of the outputs' memory, before anything is computed."""
    _check(t, a)
    if torch.compiler.is_compiling():
        return
    if torch.is_grad_enabled():
        for out in t.outs.values():
            gradients.refuse_in_place(out)
    if calls.is_plain(t.first[1]):
        executors.check(t, a)


def _explained(error: Exception, t: Tensors, a: RotaryAttributes) -> Exception:
    """Convert an error of a C++ operator to its own class and text. torch reports all of them as
    RuntimeError."""
    try:
        _check(t, a)
    except (ValueError, TypeError) as said:
        return said
    return calls.in_own_words(error, t.op)


# ---- gradients -----------------------------------------------------------------------------------------


def table_gradients(
    t: Tensors, grads: Sequence[Any], a: RotaryAttributes, sizes: RotarySizes
) -> tuple[Any, Any]:
    """Return the gradients of cos and sin in the tables' shapes and dtypes (formula:
    ``reference/rotary.py``). They are summed over heads, and over batches and tokens that share an entry, in
    float32, or in float64 for float64. Differentiable."""
    sums = [_lanewise(t, x, g, a, sizes) for x, g in zip(t.xs.values(), grads, strict=True)]
    of_cos, of_sin = (sum(parts[1:], parts[0]) for parts in zip(*sums, strict=True))
    cos, sin = (
        _as_table(t, *pair, a, sizes) for pair in zip((of_cos, of_sin), t.tables.values(), strict=True)
    )
    return cos, sin


def _lanewise(t: Tensors, x: Any, grad: Any, a: RotaryAttributes, sizes: RotarySizes) -> tuple[Any, Any]:
    """Return the contribution of one of xs to the gradient of each lane's cos and sin, ``[B,S,width]``."""
    wide = torch.float64 if x.dtype == torch.float64 else torch.float32
    window = slice(a.offset, a.offset + sizes.width)
    x, g = (as_heads(t, v, sizes)[..., window].to(wide) for v in (x, grad))
    first, second = lanes(sizes.width, a.interleaved)
    x1, x2, g1, g2 = x[..., first], x[..., second], g[..., first], g[..., second]
    s1, s2 = (-g1 * x2, g2 * x1) if a.forward else (-g2 * x1, g1 * x2)
    sin = torch.stack((s1, s2), -1).flatten(-2) if a.interleaved else torch.cat((s1, s2), -1)
    return (g * x).sum(-2), sin.sum(-2)


def _as_table(t: Tensors, lanewise: Any, table: Any, a: RotaryAttributes, sizes: RotarySizes) -> Any:
    if not sizes.full:
        first, second = lanes(sizes.width, a.interleaved)
        lanewise = lanewise[..., first] + lanewise[..., second]
    if t.onnx:
        lanewise = torch.nn.functional.pad(lanewise, (0, table.shape[-1] - lanewise.shape[-1]))
        if t.position_ids is not None:
            rows = torch.zeros(table.shape, dtype=lanewise.dtype, device=lanewise.device)
            # As the kernel reads them: on a device an id outside the table is clamped to the nearest row.
            ids = t.position_ids.flatten().clamp(0, max(table.shape[0] - 1, 0))
            lanewise = rows.index_add(0, ids, lanewise.flatten(0, 1))
    elif serves_all_batches(t, table, sizes):
        lanewise = lanewise.sum(0)
    return lanewise.reshape(table.shape).to(table.dtype)


def _backward(ctx: Any, make: Callable[..., Call], *grads: Any) -> tuple[Any, ...]:
    xs = len(grads)
    tensors = ctx.saved_tensors if ctx.kept else (*grads, *ctx.saved_tensors)
    t, a = make(*tensors, *ctx.rest)
    of_xs: tuple[Any, ...] = (None,) * xs
    if any(ctx.needs_input_grad[:xs]):
        back = RotaryAttributes(a.interleaved, a.rotary_dim, a.offset, a.num_heads, not a.forward)
        of_xs = getattr(_operators, t.op).default(*grads, *_rest(t, back))
        of_xs = of_xs if isinstance(of_xs, tuple) else (of_xs,)
    of_tables: tuple[Any, Any] = (None, None)
    if any(ctx.needs_input_grad[xs : xs + 2]):
        of_tables = table_gradients(t, grads, a, check_call(t.map(spec_of_tensor), a))
    return (*of_xs, *of_tables, *(None,) * (len(tensors) - xs - 2 + len(ctx.rest)))


# ---- registration --------------------------------------------------------------------------------------


def _attributes(interleaved: bool, rotary_dim: int, offset: int, forward: bool) -> RotaryAttributes:
    return RotaryAttributes(interleaved, rotary_dim, offset, 0, forward)


def _mul_call(x: Any, cos: Any, sin: Any, *given: Any, out: Any = None) -> Call:
    return rotary_mul_tensors(x, cos, sin, out), _attributes(*given)


def _qk_call(q: Any, k: Any, cos: Any, sin: Any, *given: Any, out: Any = None) -> Call:
    return rotary_mul_qk_tensors(q, k, cos, sin, out), _attributes(*given)


def _embedding_call(
    x: Any,
    cos: Any,
    sin: Any,
    ids: Any,
    interleaved: bool,
    num_heads: int,
    rotary_dim: int,
    forward: bool,
    out: Any = None,
) -> Call:
    attributes = RotaryAttributes(interleaved, rotary_dim, 0, num_heads, forward)
    return rotary_embedding_tensors(x, cos, sin, ids, out), attributes


def _mul_in_place(*arguments: Any) -> Call:
    return _mul_call(*arguments, out=arguments[0])


def _mul_into(*arguments: Any) -> Call:
    return _mul_call(*arguments[:-1], out=arguments[-1])


def _qk_in_place(*arguments: Any) -> Call:
    return _qk_call(*arguments, out=arguments[:2])


def _qk_into(*arguments: Any) -> Call:
    return _qk_call(*arguments[:-2], out=arguments[-2:])


def _fake(make: Callable[..., Call]) -> Callable[..., Any]:
    def fake(*arguments: Any) -> Any:
        t, a = make(*arguments)
        _check(t, a)
        made = tuple(x.new_empty(x.shape) for x in t.xs.values())
        return made if len(made) > 1 else made[0]

    return fake


def _over_ctypes(make: Callable[..., Call]) -> Callable[..., Any]:
    def kernel(*arguments: Any) -> Any:
        t, a = make(*arguments)
        made = tuple(x.new_empty(x.shape) for x in t.xs.values())
        t.outs = dict(zip(executors.OUTS[t.op], made, strict=True))
        executors.on_cpu_tensors(t, a)
        return made if len(made) > 1 else made[0]

    return kernel


_ATTRIBUTES = "bool interleaved, int rotary_dim, int offset, bool forward"
_OF_ONNX = (
    "Tensor X, Tensor cos_cache, Tensor sin_cache, Tensor? position_ids, bool interleaved, int num_heads,"
    " int rotary_embedding_dim, bool forward"
)


def _register() -> Any:
    library = torch.library.Library("npu_rope", "FRAGMENT")
    built = backends.torch_registration() is not None
    tags = (torch.Tag.pt2_compliant_tag,)
    functional: dict[str, tuple[str, Callable[..., Any], int]] = {
        "rotary_mul": (f"Tensor x, Tensor cos, Tensor sin, {_ATTRIBUTES}) -> Tensor", _mul_call, 3),
        "rotary_mul_qk": (
            f"Tensor q, Tensor k, Tensor cos, Tensor sin, {_ATTRIBUTES}) -> (Tensor, Tensor)",
            _qk_call,
            4,
        ),
        "rotary_embedding": (
            f"{_OF_ONNX}) -> Tensor",
            _embedding_call,
            4,
        ),
    }
    for name, (schema, make, count) in functional.items():
        library.define(f"{name}({schema}", tags=tags)
        torch.library.register_fake(f"npu_rope::{name}", _fake(make), lib=library)
        _register_gradient(library, name, make, count)
        if not built:
            library.impl(name, _over_ctypes(make), "CPU")
    tables = "Tensor cos, Tensor sin"
    writing: dict[str, tuple[str, Callable[..., Any]]] = {
        "rotary_mul_": (f"Tensor(a!) x, {tables}, {_ATTRIBUTES}", _mul_in_place),
        "rotary_mul_out": (f"Tensor x, {tables}, {_ATTRIBUTES}, Tensor(a!) out", _mul_into),
        "rotary_mul_qk_": (f"Tensor(a!) q, Tensor(b!) k, {tables}, {_ATTRIBUTES}", _qk_in_place),
        "rotary_mul_qk_out": (
            f"Tensor q, Tensor k, {tables}, {_ATTRIBUTES}, Tensor(a!) q_out, Tensor(b!) k_out",
            _qk_into,
        ),
        "rotary_embedding_out": (f"{_OF_ONNX}, Tensor(a!) Y", _embedding_call),
    }
    for name, (schema, make) in writing.items():
        library.define(f"{name}({schema}) -> ()", tags=tags)
        torch.library.register_fake(f"npu_rope::{name}", _fake_write(make), lib=library)
        library.impl(name, _write_over_autograd(name, make), "Autograd")
        if not built:
            library.impl(name, _write_over_ctypes(make), "CPU")
    calls.expect_npu_kernels([*functional, *writing])
    return library


def _register_gradient(library: Any, name: str, make: Callable[..., Any], count: int) -> None:
    def setup(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        # Only the tables' gradients need xs. Otherwise xs are not saved and may be overwritten.
        xs = 2 if make is _qk_call else 1
        ctx.kept = xs if any(ctx.needs_input_grad[xs : xs + 2]) else 0
        ctx.save_for_backward(*inputs[xs - ctx.kept : count])
        ctx.rest = inputs[count:]

    def backward(ctx: Any, *grads: Any) -> tuple[Any, ...]:
        return _backward(ctx, make, *grads)

    reads = ((0, 2, 3), (1, 2, 3)) if make is _qk_call else ()
    gradients.register(library, name, backward, setup, reads)


def _fake_write(make: Callable[..., Any]) -> Callable[..., None]:
    def fake(*arguments: Any) -> None:
        t, a = make(*arguments)
        _check(t, a)

    return fake


def _write_over_ctypes(make: Callable[..., Any]) -> Callable[..., None]:
    def kernel(*arguments: Any) -> None:
        executors.on_cpu_tensors(*make(*arguments))

    return kernel


def _write_over_autograd(name: str, make: Callable[..., Any]) -> Callable[..., None]:
    """Return the Autograd kernel of the raw operator, which has no gradient. For a gradient :func:`run` calls
    the functional operator and copies its results."""

    def kernel(*arguments: Any) -> None:
        t, _ = make(*arguments)
        operator = getattr(_operators, name).default
        rule = "{name} must not need a gradient in the raw operator but got one that does."
        gradients.write(t, rule, lambda: operator(*arguments))

    return kernel


if torch is not None:
    _operators = torch.ops.npu_rope
    _library = _register()
    _increment_version = torch._C._increment_version
    _callables: dict[str, Any] = {}
    _below = torch._C._AutoDispatchBelowAutograd
    _uncompiled: Any = torch._disable_dynamo(executors.run)
