"""Code that rope, rope_qk and rope_set_rows share: their gradient, calls in place under autograd, and the
registration with torch.

The backward of a rotation is the rotation by minus the angle: rope and rope_qk with ``forward`` flipped. One
call rotates the gradients of queries and keys. freq_factors get no gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache, partial
from typing import Any

from npu_rope.call_tensors import CallTensors
from npu_rope.errors import bad_value
from npu_rope.executors import rotations as executors
from npu_rope.ops import calls, gradients, registrar
from npu_rope.ops.gradients import Gradient
from npu_rope.ops.registrar import Call, TorchOperator
from npu_rope.optional_torch import torch
from npu_rope.params import RopeParams
from npu_rope.values import Angle

Attributes = tuple[RopeParams, bool, Angle]  # params, forward, angle

# ---- calls of any number of tensors ----------------------------------------------------------------


def rotate(xs: Sequence[Any], angles: Iterable[Any], attributes: Attributes) -> tuple[Any, ...]:
    """Rotate one tensor with rope, or two with rope_qk. Plain CPU tensors without a gradient go straight to
    the kernel.

    Args:
        angles: positions, and freq_factors or None.
        attributes: the attributes of a call that succeeded, or their inverse.
    """
    positions, freq_factors = angles
    op = _OPS[len(xs)]
    needs_gradient = torch.is_grad_enabled() and any(x.requires_grad for x in xs)
    if (
        not (needs_gradient or torch.compiler.is_compiling())
        and calls.is_plain_cpu_tensor(xs[0])
        and type(xs[-1]) in calls.ORDINARY
    ):
        factors = () if freq_factors is None else (freq_factors.detach(),)  # they have no gradient
        packed = calls.packed_of(op, *attributes)
        return _as_tuple(calls.callable_named(f"{op}_packed")(*xs, positions, packed, *factors))
    schema = calls.attributes_of(op, *attributes).as_schema()
    return _as_tuple(getattr(torch.ops.npu_rope, op).default(*xs, positions, freq_factors, **schema))


def _as_tuple(results: Any) -> tuple[Any, ...]:
    return results if isinstance(results, tuple) else (results,)


_OPS = {1: "rope", 2: "rope_qk"}


# ---- gradient --------------------------------------------------------------------------------------


def _rotate_present(tensors: Sequence[Any], angles: Iterable[Any], attributes: Attributes) -> tuple[Any, ...]:
    """Rotate the tensors that are not None: only queries or only keys may have a gradient."""
    present = [tensor for tensor in tensors if tensor is not None]
    ys = iter(rotate(present, angles, attributes) if present else ())
    return tuple(None if tensor is None else next(ys) for tensor in tensors)


def _save_angles(ctx: Any, tensors: tuple[Any, ...], output: Any) -> tuple[Any, ...]:
    if len(tensors) > 3:  # only one of two results may get a gradient
        ctx.set_materialize_grads(False)
    return tensors[-2:]


def _backward(ctx: Any, *gradients: Any) -> tuple[Any, ...]:
    params, forward, angle = ctx.attributes
    return _rotate_present(gradients, ctx.saved_tensors, (params, not forward, angle))


def _jvp(ctx: Any, *tangents: Any) -> Any:
    ys = _rotate_present(tangents[:-2], ctx.saved_tensors, ctx.attributes)
    # A result that needs a gradient must have a tangent if another result has one.
    needed = ctx.needs_input_grad[1:]
    tangents = tuple(
        torch.zeros_like(x) if y is None and need else y
        for y, x, need in zip(ys, ctx.tensors, needed, strict=False)
    )
    return registrar.one_or_all(tangents)


def _attributes_of_schema(**attributes: Any) -> Attributes:
    """Return the attributes of a schema's call from its arguments by name."""
    return _attributes_of_key(calls.cache_key(attributes))


@lru_cache(maxsize=256)
def _attributes_of_key(key: tuple[tuple[str, Any], ...]) -> Attributes:
    attributes = calls.attributes_of_schema("rope", dict(key))
    return attributes.params, attributes.forward, attributes.angle


def _gradient_of(n: int) -> Gradient:
    """Return the gradient of rope or rope_qk, which rotate n tensors."""
    reads = tuple((k,) for k in range(n))
    return Gradient(_backward, _save_angles, reads, _attributes_of_schema, _jvp)


# ---- calls in place under autograd -----------------------------------------------------------------


def _rotate_in_place_under_autograd(call: CallTensors[Any], attributes: dict[str, Any]) -> tuple[()]:
    """Autograd kernel of rope and rope_qk in place. One call rotates both tensors, but each gets its own
    gradient function: queries and keys may be views, which torch supports only for functions of one
    result."""
    tensors = tuple(call.xs.values())
    angles = call.other_inputs["positions"], call.other_inputs.get("freq_factors")
    differentiated = [x for x in call.xs.values() if gradients.differentiates(x)]
    if torch.is_grad_enabled() and any(x.requires_grad for x in differentiated):
        for name, saved in call.other_inputs.items():
            if saved is not None and saved.is_inference():  # torch refuses to save it after x is rotated
                raise bad_value(call.op, name, "be no inference tensor where a gradient is needed", "one")
        for x in differentiated:
            gradients.refuse_in_place(x)
    with torch._C._AutoDispatchBelowAutograd():
        getattr(torch.ops.npu_rope, f"{_OPS[len(tensors)]}_").default(*tensors, *angles, **attributes)
    failures = []
    for x in differentiated:
        try:
            with gradients.single_level_allowed():
                _RotatedInPlace.apply(x, *angles, _attributes_of_schema(**attributes))
        except Exception as error:  # of a hook of saved tensors: the other tensor is rotated, too
            failures.append(error)
    # autograd must detect that tensors it saved for a gradient have changed.
    torch._C._increment_version(tensors)
    if failures:
        raise failures[0]
    return ()


def _make_function_in_place() -> Any:
    class RotatedInPlace(gradients.base_function):  # type: ignore[misc,valid-type]
        """Rotation of a tensor that was rotated in place: apply(x, positions, freq_factors, attributes)."""

        @staticmethod
        def forward(ctx: Any, x: Any, positions: Any, freq_factors: Any, attributes: Attributes) -> Any:
            ctx.attributes = attributes
            ctx.save_for_backward(positions, freq_factors)
            ctx.save_for_forward(positions, freq_factors)
            ctx.mark_dirty(x)
            return x

        @staticmethod
        def backward(ctx: Any, gradient: Any) -> tuple[Any, ...]:
            return *_backward(ctx, gradient), None, None, None

        @staticmethod
        def jvp(ctx: Any, tangent: Any, *_: Any) -> Any:
            if tangent is not None:
                schema = calls.attributes_of("rope", *ctx.attributes).as_schema()
                with torch.autograd.forward_ad._set_fwd_grad_enabled(True):
                    torch.ops.npu_rope.rope_.default(tangent, *ctx.saved_tensors, **schema)
            return tangent

    return RotatedInPlace


# ---- registration ----------------------------------------------------------------------------------


def on_cpu(call: CallTensors[Any], attributes: dict[str, Any]) -> None:
    """Run a schema's call through ctypes, into the call's outs."""
    executors.on_cpu_tensors(call, calls.attributes_of_schema(call.op, attributes))


# Make a TorchOperator of rope, rope_qk or rope_set_rows.
rope_operator = partial(TorchOperator, check=calls.check_traced, on_cpu=on_cpu)
# Make the TorchOperator of their hot path, whose attributes are packed into one uint8 tensor (packed_of).
# Optional tensors are last, where a call leaves them out: None takes torch a tenth of the time of a
# decode-sized call, as a tensor does. The operators in place have none, because torch takes half of that time
# for a default.
packed_operator = partial(
    TorchOperator, check=calls.check_packed, on_cpu=executors.on_cpu_packed, hot_path=True, on_npu=False
)


def register_rotation(
    op: str, make: Callable[..., CallTensors[Any]], xs: tuple[str, ...], outs: tuple[str, ...]
) -> None:
    """Register rope or rope_qk: with new results, in place, into given memory, and its hot path.

    Args:
        make: returns the call's tensors from xs, positions, freq_factors and the output.
        xs, outs: the names of the rotated tensors and of the results.
    """
    n = len(xs)

    def call(*given: Any, **attributes: Any) -> Call:
        out = tuple(attributes.pop(name) for name in outs if name in attributes)
        return make(
            *given, *[None] * (n + 2 - len(given)), registrar.one_or_all(out) if out else None
        ), attributes

    def call_in_place(*given: Any, **attributes: Any) -> Call:
        return make(*given, *[None] * (n + 2 - len(given)), registrar.one_or_all(given[:n])), attributes

    def call_packed(out: tuple[Any, ...], given: tuple[Any, ...]) -> Call:
        positions, packed, *factors = given[n:]
        factor = factors[0] if factors else None
        return make(*given[:n], positions, factor, registrar.one_or_all(out) if out else None), packed

    def call_packed_new(*given: Any) -> Call:
        return call_packed((), given)

    def call_packed_out(*given: Any) -> Call:
        return call_packed(given[:n], given[n:])

    def call_packed_in_place(*given: Any) -> Call:
        return call_packed(given[:n], given)

    read, angles = registrar.schema_of_inputs(xs), "Tensor positions, Tensor? freq_factors=None"
    packed_angles = "Tensor positions, Tensor packed, Tensor? freq_factors=None"
    result = "Tensor" if n == 1 else "(Tensor, Tensor)"
    accepted, refused = ("x itself", "another tensor") if n == 1 else ("(q, k)", "other tensors")
    registrar.register(
        rope_operator(
            f"{op}({read}, {angles}, {calls.ATTRIBUTES}) -> {result}",
            call,
            results=registrar.like_xs(*outs),
            gradient=_gradient_of(n),
        ),
        rope_operator(
            f"{op}_({registrar.schema_of_outputs(xs)}, {angles}, {calls.ATTRIBUTES}) -> ()",
            call_in_place,
            autograd=_rotate_in_place_under_autograd,
            functional=op,
        ),
        rope_operator(
            f"{op}_out({read}, {angles}, {calls.ATTRIBUTES}, {registrar.schema_of_outputs(outs)}) -> ()",
            call,
            no_gradient=("out", f"be None or {accepted} where a gradient is needed", refused),
            functional=op,
        ),
        packed_operator(
            f"{op}_packed({read}, {packed_angles}) -> {result}",
            call_packed_new,
            results=registrar.like_xs(*outs),
        ),
        packed_operator(
            f"{op}_packed_({registrar.schema_of_outputs(xs)}, Tensor positions, Tensor packed) -> ()",
            call_packed_in_place,
        ),
        packed_operator(
            f"{op}_packed_out({registrar.schema_of_outputs(outs)}, {read}, {packed_angles}) -> ()",
            call_packed_out,
        ),
    )


if torch is not None:
    _RotatedInPlace = _make_function_in_place()
