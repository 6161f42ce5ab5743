"""Gradients of operators, their Autograd kernels, gradients on named back ends, and the tracing of operators
that write.

A call is computed below autograd. If a gradient flows through it, ``add_node`` then adds its node to
autograd's graph. The Autograd kernels do so, and the hot path (``calls.py``), which calls no Autograd kernel.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from npu_rope.call_tensors import CallTensors, given
from npu_rope.errors import GradientRefused, bad_value, broken
from npu_rope.executors import rotations as executors
from npu_rope.optional_torch import torch
from npu_rope.rope_calls import RopeCallAttributes

_Tensor: Any = ()  # without torch isinstance(x, ()) is False
if torch is not None:
    _Tensor = torch.Tensor
    _operators = torch.ops.npu_rope
    _below_autograd = torch._C._AutoDispatchBelowAutograd
    _all_transforms = torch._C._functorch.get_interpreter_stack
    _innermost_transform = torch._C._functorch.peek_interpreter_stack
    _forward_ad = torch.autograd.forward_ad
    _pyfunctorch = torch._functorch.pyfunctorch
    _increment_version = torch._C._increment_version
    _creation_of = torch._C._autograd._get_creation_meta
    _creation_kinds = torch._C._autograd.CreationMeta


# ---- gradients and tangents of a call --------------------------------------------------------------


def has_tangent(x: Any) -> bool:
    """Return whether x is a tensor with a tangent of forward-mode differentiation."""
    if _forward_ad._current_level < 0 or not isinstance(x, _Tensor):
        return False
    return _forward_ad.unpack_dual(x).tangent is not None


def refuse_tangents(op: str, tensors: Mapping[str, Any]) -> None:
    """Reject tangents for operators without forward-mode differentiation, whose tangents would silently be
    zero."""
    if not torch.compiler.is_compiling() and _forward_ad._current_level >= 0:
        _refuse_tangents(op, tensors, _carries_tangent)


def _refuse_tangents(op: str, tensors: Mapping[str, Any], carries: Callable[[Any], bool]) -> None:
    for name, x in tensors.items():
        if isinstance(x, torch.Tensor) and carries(x):
            raise NotImplementedError(
                f"[{op}] {name} must carry no tangent but got one of forward-mode differentiation.\n"
                f"torch.autograd differentiates {op} backward: use backward() or torch.autograd.grad."
            )


def _carries_tangent(x: Any) -> bool:
    """Return whether x carries a tangent at any level of torch.func's transforms."""
    stack = _all_transforms()
    if not stack:
        return has_tangent(x)
    functorch, innermost = torch._C._functorch, stack[-1]
    if functorch.is_functorch_wrapped_tensor(x) and functorch.maybe_get_level(x) == innermost.level():
        if innermost.key() == functorch.TransformType.Jvp and has_tangent(x):
            return True
        x = functorch.get_unwrapped(x)
    with _pyfunctorch.temporarily_pop_interpreter_stack():
        return _carries_tangent(x)


def differentiates(x: Any) -> bool:
    """Return whether a gradient or a tangent flows through x."""
    return (torch.is_grad_enabled() and x.requires_grad) or has_tangent(x)


def refuse_in_place(x: Any) -> None:
    """Raise the errors that torch raises for in-place writes to x, before anything is written."""
    base, kind = x, "a leaf Variable"
    if x._is_view():
        base, kind = x._base, "a view of a leaf Variable"
    if base.is_leaf and (base.requires_grad or x.requires_grad):
        raise RuntimeError(f"{kind} that requires grad is being used in an in-place operation.")
    if x._is_view() and _creation_of(x) != _creation_kinds.DEFAULT:
        x.narrow(-1, 0, 0).zero_()  # torch checks a write of no element as it checks any other


def copy_results(op: str, outs: Mapping[str, Any], results: Sequence[Any]) -> None:
    """Copy results, of which some need a gradient, into given memory.

    torch refuses a copy into an inference tensor, and after a copy into a view of memory without a gradient
    one into another view of it. This is refused before anything is copied.
    """
    if not torch.compiler.is_compiling():
        bases: dict[int, str] = {}
        for (name, out), result in zip(outs.items(), results, strict=True):
            if out.is_inference() and not torch.is_inference_mode_enabled():
                raise bad_value(op, name, "be no inference tensor where a gradient is needed", "one")
            if out._is_view() and not out._base.requires_grad:
                if other := bases.get(id(out._base)):
                    rule = f"be no view of {other}'s tensor where {other} needs a gradient"
                    raise bad_value(op, name, rule, "one")
                if result.requires_grad:
                    bases[id(out._base)] = name
    for out, result in zip(outs.values(), results, strict=True):
        out.copy_(result)


# ---- operators that write -------------------------------------------------------------------------


def write_under_autograd(
    call: CallTensors[Any], error: tuple[str | None, str, str], run: Callable[[], Any]
) -> Any:
    """Autograd kernel of an operator that writes to other memory or to a cache, and has no gradient.

    Args:
        error: the argument, rule and value of the error for a call that needs a gradient. If the argument is
            None, the error names the tensor that needs it.
        run: calls the operator. Its result is returned.
    """
    for name, tensor in call.differentiable().items():
        if differentiates(tensor):
            argument, rule, value = error
            raise broken(GradientRefused, call.op, argument or name, rule, value)
    with _below_autograd():
        result = run()
    _increment_version(tuple(call.outs.values()))
    return result


# ---- operators with a gradient -------------------------------------------------------------------------


@dataclass(frozen=True)
class Gradient:
    """The gradient of an operator. Its schema takes all tensors, then the attributes.

    Attributes:
        backward: ``(ctx, *gradients)``; returns a gradient for each of the operator's tensors, or only for
            the first ones. ``ctx.attributes`` are the call's attributes. Element k + 1 of
            ``ctx.needs_input_grad`` tells whether tensor k needs a gradient.
        save: ``(ctx, tensors, output)``; returns the tensors that backward needs. None: the operator's.
        reads: for each result, the positions of the tensors through which a gradient flows to it. If none
            of these needs a gradient, neither does the result. Empty: one result, and all tensors.
        attributes: makes ``ctx.attributes`` from the schema's arguments after the tensors. None: their
            values as a tuple.
        jvp: ``(ctx, *tangents)``; returns the tangents of the results. None: the operator rejects tangents.
    """

    backward: Callable[..., Sequence[Any]]
    save: Callable[[Any, tuple[Any, ...], Any], tuple[Any, ...]] | None = None
    reads: Sequence[Sequence[int]] = ()
    attributes: Callable[..., Any] | None = None
    jvp: Callable[..., Any] | None = None


# By operator: a function that adds a call's node to autograd's graph: f((output, attributes), *tensors). It
# returns the output, which the operator has computed below autograd. attributes are ``ctx.attributes`` of the
# operator's Gradient. tensors are all tensors of the operator's schema, None for an absent one.
add_node: dict[str, Callable[..., Any]] = {}

# By operator: a function that calls its kernel without a gradient. An operator has one if it has no Autograd
# kernel, or if another operator (registrar.PACKED) computes the same without one. It takes the tensors and
# the packed attributes, if there are any. Such a call takes a third less time than one below autograd.
without_autograd: dict[str, Callable[..., Any]] = {}


def callable_of(overload: Any) -> Any:
    """Return ``_op`` of an OpOverload. ``OpOverload.__call__`` only calls ``_op``, but takes a third of the
    time of a decode-sized call."""
    return getattr(overload, "_op", overload)


def _single_level_function() -> tuple[Any, Any]:
    """Return the base class of the package's autograd functions, and the context for their apply().

    torch.autograd.Function calls torch.func for its transforms. Here these transforms have been handled
    before an operator's Autograd kernel runs. So the base class is torch's private one, which does not call
    torch.func and takes less time. A torch version without the private class gets the public one, which does
    not support torch.func here.
    """
    try:
        from torch._functorch.utils import enable_single_level_autograd_function as allowed

        return torch.autograd.function._SingleLevelFunction, allowed
    except (ImportError, AttributeError):
        return torch.autograd.Function, contextlib.nullcontext


def _function_of(op: str, gradient: Gradient, count: int) -> Any:
    """Return the class of an operator's nodes. Its apply() is a function of ``add_node``.

    The caller has computed the output, because apply() disables gradients: under torch.func, an outer level
    must record the computation. The output is in a tuple, so that torch does not take it for an input.

    Args:
        count: the number of the operator's tensors.
    """
    save, jvp = gradient.save, gradient.jvp
    reads = gradient.reads if len(gradient.reads) > 1 else ()

    def forward(ctx: Any, call: tuple[Any, Any], *tensors: Any) -> Any:
        output, ctx.attributes = call
        saved = tensors if save is None else save(ctx, tensors, output)
        ctx.save_for_backward(*saved)
        needed = ctx.needs_input_grad[1:] if reads else ()
        if jvp is not None and _forward_ad._current_level >= 0:
            ctx.save_for_forward(*saved)
            ctx.tensors = tensors
            with _forward_ad._set_fwd_grad_enabled(True):  # apply() disables tangents
                needed = [need or has_tangent(x) for need, x in zip(needed, tensors, strict=False)]
        if reads:
            constant = _constant_results(output, reads, needed)
            if constant:
                ctx.mark_non_differentiable(*constant)
        return output

    def backward(ctx: Any, *gradients: Any) -> tuple[Any, ...]:
        of_tensors = gradient.backward(ctx, *gradients)
        return None, *of_tensors, *(None,) * (count - len(of_tensors))

    methods = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
    if jvp is not None:

        def tangents_of(ctx: Any, _: Any, *tangents: Any) -> Any:
            with _forward_ad._set_fwd_grad_enabled(True):
                return jvp(ctx, *tangents)

        methods["jvp"] = staticmethod(tangents_of)
    name = "".join(map(str.capitalize, op.split("_")))
    return type(base_function)(name, (base_function,), methods)


def _constant_results(
    results: Sequence[Any], reads: Sequence[Sequence[int]], needed: Sequence[bool]
) -> list[Any]:
    """Return the results that read no tensor that needs a gradient or has a tangent."""
    constant = []
    for y, read in zip(results, reads, strict=True):
        for k in read:
            if needed[k]:
                break
        else:
            constant.append(y)
    return constant


def autograd_kernel_of(operator: Any, gradient: Gradient) -> Callable[..., Any]:
    """Return the Autograd kernel of an operator with this gradient. Unlike torch.library.register_autograd
    it supports torch.func.grad and rejects tangents."""
    op = operator._schema.name.partition("::")[2]
    arguments = operator._schema.arguments
    names = [argument.name for argument in arguments if "Tensor" in str(argument.type)]
    count = len(names)
    sources = sorted({k for read in gradient.reads for k in read}) or range(count)
    defaults = tuple(argument.default_value for argument in arguments)
    make_attributes = gradient.attributes
    add = add_node[op] = _function_of(op, gradient, count).apply

    def kernel(*args: Any, **kwargs: Any) -> Any:
        needs_gradient = _needs_gradient(op, names, args, sources, gradient.jvp is not None)
        with _below_autograd():
            output = operator(*args, **kwargs)
        if not needs_gradient:
            return output
        if make_attributes is not None:
            attributes = make_attributes(*args[count:], **kwargs)
            tensors = args[:count] + defaults[len(args) : count]
        else:
            given = args + defaults[len(args) :]  # torch omits arguments that equal their defaults
            tensors, attributes = given[:count], given[count:]
        if _innermost_transform() is None:
            return add((output, attributes), *tensors)
        with single_level_allowed():
            return add((output, attributes), *tensors)

    return kernel


def _needs_gradient(
    op: str, names: Sequence[str], arguments: Sequence[Any], sources: Sequence[int], has_jvp: bool
) -> bool:
    """Return whether a gradient flows through the arguments at the positions ``sources``, or a tangent if the
    operator has a jvp. Otherwise reject tangents of all tensors."""
    if _innermost_transform() is None and _forward_ad._current_level < 0:
        if torch.is_grad_enabled():
            for k in sources:
                if k < len(arguments) and isinstance(arguments[k], _Tensor) and arguments[k].requires_grad:
                    return True
        return False
    if not has_jvp:
        # An outer level of torch.func calls this kernel again, for its own tangents.
        _refuse_tangents(op, dict(zip(names, arguments, strict=False)), has_tangent)
    given = [arguments[k] for k in sources if k < len(arguments) and isinstance(arguments[k], _Tensor)]
    return any(map(differentiates, given))


# ---- named back ends -------------------------------------------------------------------------------


def run_named(backend: str, call: CallTensors[Any], attributes: RopeCallAttributes) -> tuple[Any, ...]:
    """Run a call of rope, rope_qk or rope_set_rows on the back end of that name. Outside torch.func,
    gradients flow through results that the call allocates."""
    x = call.first[1]
    if call.outs or not isinstance(x, _Tensor) or not torch.is_grad_enabled():
        return executors.run(backend, call, attributes)
    needs_gradient = any(isinstance(x, _Tensor) and x.requires_grad for x in call.xs.values())
    if not needs_gradient or _innermost_transform() is not None:
        return executors.run(backend, call, attributes)

    def run(xs: Sequence[Any], positions: Any, freq_factors: Any, forward: bool) -> tuple[Any, ...]:
        # If only queries or only keys have a gradient, rope rotates it.
        op, names = (call.op, tuple(call.xs)) if len(xs) == len(call.xs) else ("rope", ("x",))
        other_inputs = {"positions": positions, **given(freq_factors=freq_factors)}
        part = CallTensors(op, dict(zip(names, xs, strict=True)), other_inputs)
        return executors.run(backend, part, replace(attributes, forward=forward))

    angles = call.other_inputs["positions"], call.other_inputs.get("freq_factors")
    ys: tuple[Any, ...] = _RotationNamed.apply(*call.xs.values(), *angles, run, attributes.forward)
    return ys


def _make_named_function() -> Any:
    class RotationNamed(torch.autograd.Function):  # type: ignore[misc]
        """Rotation on a named backend: apply(*xs, positions, freq_factors, run, forward)."""

        @staticmethod
        def forward(ctx: Any, *arguments: Any) -> tuple[Any, ...]:
            *xs, positions, freq_factors, run, is_forward = arguments
            ctx.run, ctx.is_forward = run, is_forward
            ys: tuple[Any, ...] = run(xs, positions, freq_factors, is_forward)
            ctx.save_for_backward(positions, freq_factors)
            ctx.set_materialize_grads(False)
            needed = ctx.needs_input_grad
            ctx.mark_non_differentiable(*[y for y, need in zip(ys, needed, strict=False) if not need])
            return ys

        @staticmethod
        def backward(ctx: Any, *gradients: Any) -> tuple[Any, ...]:
            present = [g for g in gradients if g is not None]
            back: Any = ()
            if present:
                back = RotationNamed.apply(*present, *ctx.saved_tensors, ctx.run, not ctx.is_forward)
            rotated_back = iter(back)
            return *(None if g is None else next(rotated_back) for g in gradients), None, None, None, None

    return RotationNamed


# ---- tracing of operators that write ---------------------------------------------------------------


def trace_as(operator: Any, functional: str) -> None:
    """Under functionalisation, run the functional operator of that name instead of an operator that writes,
    then replace the written arguments by its results.

    torch's own replacement of a write has no translation to ONNX. A torch version without the modules below
    keeps its own replacement.
    """
    try:
        from torch._higher_order_ops.utils import has_user_subclass
        from torch._subclasses import FakeTensor
        from torch._subclasses import functional_tensor as functional_tensors
    except ImportError:
        return
    has_subclass: Any = has_user_subclass
    ours = (FakeTensor, functional_tensors.FunctionalTensor)
    arguments = operator._schema.arguments
    names = [argument.name for argument in arguments]
    aliases = {argument.name: argument.alias_info for argument in arguments}
    written = [name for name, alias in aliases.items() if alias is not None and alias.is_write]
    outs = [argument.name for argument in arguments if argument.kwarg_only and argument.name in written]

    def run_functional(active: Any, *args: Any, **attributes: Any) -> Any:
        if has_subclass((args, attributes), allowed_subclasses=ours):
            return NotImplemented
        api = functional_tensors.PythonFunctionalizeAPI(active)
        named = {**dict(zip(names, args, strict=False)), **attributes}
        attributes = {name: value for name, value in attributes.items() if name not in outs}
        with api.redispatch_to_next():
            ys = getattr(_operators, functional).default(*api.unwrap_tensors(args), **attributes)
        ys = ys if isinstance(ys, tuple) else (ys,)
        for name, y in zip(written, ys, strict=True):
            api.replace(named[name], y)
            api.commit_update(named[name])
            api.sync(named[name])
        return None

    operator.py_impl(functional_tensors.FunctionalTensorMode)(run_functional)


if torch is not None:
    base_function, single_level_allowed = _single_level_function()
    _RotationNamed = _make_named_function()
