"""Autograd kernels, gradients on named back ends, and the tracing of operators that write.

The backward of a rotation is the rotation by minus the angle: rope and rope_qk with ``forward`` flipped. One
call rotates the gradients of queries and keys. freq_factors get no gradient.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from npu_rope.call_tensors import CallTensors, given
from npu_rope.errors import GradientRefused, broken
from npu_rope.executors import rotations as executors
from npu_rope.optional_torch import torch
from npu_rope.rope_calls import RopeCallAttributes

_Tensor: Any = ()  # without torch isinstance(x, ()) is False
if torch is not None:
    _Tensor = torch.Tensor
    _operators = torch.ops.npu_rope
    _below_autograd = torch._C._AutoDispatchBelowAutograd
    _all_transforms = torch._C._functorch.get_interpreter_stack
    _forward_ad = torch.autograd.forward_ad
    _pyfunctorch = torch._functorch.pyfunctorch
    _increment_version = torch._C._increment_version
    _creation_of = torch._C._autograd._get_creation_meta
    _creation_kinds = torch._C._autograd.CreationMeta


def run_rope(xs: Sequence[Any], *rest: Any, **attributes: Any) -> tuple[Any, ...]:
    """Rotate one tensor with rope, or two with rope_qk."""
    if len(xs) == 1:
        return (_operators.rope.default(*xs, *rest, **attributes),)
    return tuple(_operators.rope_qk.default(*xs, *rest, **attributes))


def run_rope_in_place(xs: Sequence[Any], *rest: Any, **attributes: Any) -> None:
    """Rotate one tensor with rope, or two with rope_qk, in place."""
    operator = _operators.rope_ if len(xs) == 1 else _operators.rope_qk_
    operator.default(*xs, *rest, **attributes)


# ---- gradients and tangents of a call --------------------------------------------------------------


def has_tangent(x: Any) -> bool:
    """Return whether x carries a tangent of forward-mode differentiation."""
    if _forward_ad._current_level < 0:
        return False
    return _forward_ad.unpack_dual(x).tangent is not None


def refuse_tangents(op: str, tensors: Mapping[str, Any]) -> None:
    """Reject tangents for operators without forward-mode differentiation, whose tangents would silently be
    zero."""
    if torch.compiler.is_compiling() or _forward_ad._current_level < 0:
        return
    for name, x in tensors.items():
        if isinstance(x, torch.Tensor) and _carries_tangent(x):
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


def differentiates(op: str, name: str, x: Any) -> bool:
    """Return whether a gradient or a tangent flows through x. Reject nested transforms of torch.func."""
    _refuse_nested_transforms(op, name)
    return (torch.is_grad_enabled() and x.requires_grad) or has_tangent(x)


def _refuse_nested_transforms(op: str, name: str) -> None:
    """Reject nested gradient transforms of torch.func: one of the gradients would silently be zero."""
    levels = _all_transforms() or ()
    kinds = torch._C._functorch.TransformType
    nested = sum(level.key() in (kinds.Grad, kinds.Jvp) for level in levels)
    if nested > 1:
        raise NotImplementedError(
            f"[{op}] {name} must be under one torch.func gradient transform but got {nested} nested ones.\n"
            f"torch.autograd differentiates {op} any number of times: use grad(create_graph=True)."
        )


def refuse_in_place(x: Any) -> None:
    """Raise the errors that torch raises for in-place writes to x, before anything is written."""
    base, kind = x, "a leaf Variable"
    if x._is_view():
        base, kind = x._base, "a view of a leaf Variable"
    if base.is_leaf and base.requires_grad:
        raise RuntimeError(f"{kind} that requires grad is being used in an in-place operation.")
    if x._is_view() and _creation_of(x) != _creation_kinds.DEFAULT:
        x.narrow(-1, 0, 0).zero_()  # torch checks a write of no element as it checks any other


# ---- Autograd kernels of rope and rope_qk ----------------------------------------------------------


def rotate_under_autograd(call: CallTensors[Any], attributes: dict[str, Any]) -> tuple[Any, ...]:
    """Autograd kernel of rope and rope_qk. Return a result for each of xs."""
    differentiated = [differentiates(call.op, name, x) for name, x in call.xs.items()]
    if any(differentiated):
        with _single_level_allowed():
            rest = *_angles(call), attributes, differentiated, torch.is_grad_enabled()
            ys: tuple[Any, ...] = _Rotation.apply(*call.xs.values(), *rest)
        return ys
    with _below_autograd():
        return run_rope(tuple(call.xs.values()), *_angles(call), **attributes)


def _angles(call: CallTensors[Any]) -> tuple[Any, Any]:
    """Return positions, and freq_factors or None."""
    return call.other_inputs["positions"], call.other_inputs.get("freq_factors")


def rotate_in_place_under_autograd(call: CallTensors[Any], attributes: dict[str, Any]) -> tuple[()]:
    """Autograd kernel of rope and rope_qk in place. One call rotates both tensors, but each gets its own
    gradient function: queries and keys may be views, which torch supports only for functions of one
    result."""
    tensors = tuple(call.xs.values())
    differentiated = [x for name, x in call.xs.items() if differentiates(call.op, name, x)]
    for x in differentiated:
        if torch.is_grad_enabled():
            refuse_in_place(x)
    with _below_autograd():
        run_rope_in_place(tensors, *_angles(call), **attributes)
    for x in differentiated:
        with _single_level_allowed():
            _RotatedInPlace.apply(x, *_angles(call), attributes)
    # autograd must detect that tensors it saved for a gradient have changed.
    _increment_version(tensors)
    return ()


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
        if differentiates(call.op, name, tensor):
            argument, rule, value = error
            raise broken(GradientRefused, call.op, argument or name, rule, value)
    with _below_autograd():
        result = run()
    _increment_version(tuple(call.outs.values()))
    return result


def _single_level_function() -> tuple[Any, Any]:
    """Return the base class of the functions below, and the context in which they may be applied.

    torch.autograd.Function calls torch.func for its transforms. Here these transforms have been handled
    before an operator's Autograd kernel runs. So the base class is torch's private one, which does not call
    torch.func. A torch version without the private class gets the public one, which does not support
    torch.func here.
    """
    try:
        from torch._functorch.utils import enable_single_level_autograd_function as allowed

        return torch.autograd.function._SingleLevelFunction, allowed
    except (ImportError, AttributeError):
        return torch.autograd.Function, contextlib.nullcontext


def _make_functions(function: Any) -> tuple[Any, Any]:
    def save(ctx: Any, positions: Any, freq_factors: Any, attributes: dict[str, Any]) -> None:
        ctx.save_for_backward(positions, freq_factors)
        ctx.save_for_forward(positions, freq_factors)
        ctx.set_materialize_grads(False)
        ctx.attributes = attributes

    def rotate_present(ctx: Any, tensors: Sequence[Any], **attributes: Any) -> Iterator[Any]:
        """Rotate the tensors that are not None: only queries or only keys may have a gradient."""
        present = [tensor for tensor in tensors if tensor is not None]
        ys = iter(run_rope(present, *ctx.saved_tensors, **attributes) if present else ())
        return (None if tensor is None else next(ys) for tensor in tensors)

    def rotate_back(ctx: Any, gradients: Sequence[Any]) -> Iterator[Any]:
        back = not ctx.attributes.get("forward", True)
        return rotate_present(ctx, gradients, **{**ctx.attributes, "forward": back})

    class Rotation(function):  # type: ignore[misc]
        """Rotation of one tensor or two: apply(*xs, positions, freq_factors, attributes, differentiated,
        grad_mode).

        grad_mode tells whether the caller has gradients enabled. forward() runs in this mode, although
        apply() disables gradients: under torch.func, an outer level must record what forward() does."""

        @staticmethod
        def forward(ctx: Any, *arguments: Any) -> tuple[Any, ...]:
            *xs, positions, freq_factors, attributes, differentiated, grad_mode = arguments
            save(ctx, positions, freq_factors, attributes)
            with torch.set_grad_enabled(grad_mode), _below_autograd():
                ys = run_rope(xs, positions, freq_factors, **attributes)
            # Queries may need a gradient where keys need none.
            ctx.mark_non_differentiable(*[y for y, d in zip(ys, differentiated, strict=True) if not d])
            return ys

        @staticmethod
        def backward(ctx: Any, *gradients: Any) -> tuple[Any, ...]:
            return *rotate_back(ctx, gradients), None, None, None, None, None

        @staticmethod
        def jvp(ctx: Any, *tangents: Any) -> tuple[Any, ...]:
            return tuple(rotate_present(ctx, tangents[:-5], **ctx.attributes))

    class RotatedInPlace(function):  # type: ignore[misc]
        """Rotation of a tensor that was rotated in place: apply(x, positions, freq_factors, attributes)."""

        @staticmethod
        def forward(ctx: Any, x: Any, positions: Any, freq_factors: Any, attributes: dict[str, Any]) -> Any:
            save(ctx, positions, freq_factors, attributes)
            ctx.mark_dirty(x)
            return x

        @staticmethod
        def backward(ctx: Any, gradient: Any) -> tuple[Any, ...]:
            return *rotate_back(ctx, (gradient,)), None, None, None

        @staticmethod
        def jvp(ctx: Any, tangent: Any, *_: Any) -> Any:
            if tangent is not None:
                run_rope_in_place((tangent,), *ctx.saved_tensors, **ctx.attributes)
            return tangent

    return Rotation, RotatedInPlace


# ---- operators whose backward is another operator ------------------------------------------------------


@dataclass(frozen=True)
class Gradient:
    """The gradient of an operator without forward-mode differentiation.

    Attributes:
        backward: ``(ctx, *gradients)``; returns a gradient for each of the schema's arguments, or only for
            the first ones.
        setup_context: ``(ctx, arguments, output)``, with all arguments by name, in the schema's order.
        reads: for each of several results, the positions of the arguments that it depends on. If none of
            these needs a gradient, neither does the result.
    """

    backward: Callable[..., tuple[Any, ...]]
    setup_context: Callable[[Any, dict[str, Any], Any], None]
    reads: Sequence[Sequence[int]] = ()


def autograd_kernel_of(operator: Any, gradient: Gradient) -> Callable[..., Any]:
    """Return the Autograd kernel of an operator with this gradient. Unlike torch.library.register_autograd
    it supports torch.func.grad and rejects tangents."""
    op = operator._schema.name.partition("::")[2]
    defaults = {argument.name: argument.default_value for argument in operator._schema.arguments}
    names, count = list(defaults), len(defaults)
    positional = sum(not argument.kwarg_only for argument in operator._schema.arguments)

    class OperatorFunction(_function):  # type: ignore[misc,valid-type]
        """The operator's function: apply(*arguments, grad_mode), with grad_mode as in Rotation."""

        @staticmethod
        def forward(ctx: Any, *arguments_and_mode: Any) -> Any:
            *arguments, grad_mode = arguments_and_mode
            with torch.set_grad_enabled(grad_mode), _below_autograd():
                named = dict(zip(names[positional:], arguments[positional:], strict=True))
                output = operator(*arguments[:positional], **named)
            needed = ctx.needs_input_grad
            constant = [k for k, read in enumerate(gradient.reads) if not any(needed[i] for i in read)]
            ctx.mark_non_differentiable(*[output[k] for k in constant])
            gradient.setup_context(ctx, dict(zip(names, arguments, strict=True)), output)
            return output

        @staticmethod
        def backward(ctx: Any, *gradients: Any) -> tuple[Any, ...]:
            of_arguments = gradient.backward(ctx, *gradients)
            return *of_arguments, *(None,) * (count + 1 - len(of_arguments))

    def kernel(*args: Any, **kwargs: Any) -> Any:
        arguments = {**defaults, **dict(zip(names, args, strict=False)), **kwargs}
        tensors = {name: x for name, x in arguments.items() if isinstance(x, _Tensor)}
        refuse_tangents(op, tensors)
        if any(differentiates(op, name, x) for name, x in tensors.items()):
            with _single_level_allowed():
                return OperatorFunction.apply(*arguments.values(), torch.is_grad_enabled())
        with _below_autograd():
            return operator(*args, **kwargs)

    return kernel


# ---- named back ends -------------------------------------------------------------------------------


def run_named(backend: str, call: CallTensors[Any], attributes: RopeCallAttributes) -> tuple[Any, ...]:
    """Run a call of rope, rope_qk or rope_set_rows on the back end of that name. Outside torch.func,
    gradients flow through results that the call allocates."""
    x = call.first[1]
    if call.outs or not isinstance(x, _Tensor) or not torch.is_grad_enabled():
        return executors.run(backend, call, attributes)
    needs_gradient = any(isinstance(x, _Tensor) and x.requires_grad for x in call.xs.values())
    if not needs_gradient or torch._C._functorch.peek_interpreter_stack() is not None:
        return executors.run(backend, call, attributes)

    def run(xs: Sequence[Any], positions: Any, freq_factors: Any, forward: bool) -> tuple[Any, ...]:
        # If only queries or only keys have a gradient, rope rotates it.
        op, names = (call.op, tuple(call.xs)) if len(xs) == len(call.xs) else ("rope", ("x",))
        other_inputs = {"positions": positions, **given(freq_factors=freq_factors)}
        part = CallTensors(op, dict(zip(names, xs, strict=True)), other_inputs)
        return executors.run(backend, part, replace(attributes, forward=forward))

    ys: tuple[Any, ...] = _RotationNamed.apply(*call.xs.values(), *_angles(call), run, attributes.forward)
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
    _function, _single_level_allowed = _single_level_function()
    _Rotation, _RotatedInPlace = _make_functions(_function)
    _RotationNamed = _make_named_function()
