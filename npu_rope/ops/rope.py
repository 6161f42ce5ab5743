"""rope: torch schemas, fake tensors, gradient, and the Python entry.

The backward of a rotation is the rotation by minus the angle, so every gradient here is
rope itself with ``forward`` flipped. freq_factors gets no gradient.
"""

from __future__ import annotations

import contextlib
from typing import Any

from npu_rope import backends
from npu_rope.checks import (
    TensorSpec,
    check_angle,
    check_freq_factors,
    check_out,
    check_positions,
    check_x,
)
from npu_rope.errors import bad_type, bad_value
from npu_rope.optional_torch import torch
from npu_rope.params import ANGLE_POLICIES, AnglePolicy, RopeParams

_ATTRIBUTES = (
    "*, int n_dims, int mode, int n_ctx_orig=0, float freq_base=10000.0, float freq_scale=1.0,"
    " float ext_factor=0.0, float attn_factor=1.0, float beta_fast=32.0, float beta_slow=1.0,"
    " int[]? sections=None, int n_offs=0, bool forward=True, int angle=0"
)
SCHEMAS = (
    f"rope(Tensor x, Tensor positions, Tensor? freq_factors=None, {_ATTRIBUTES}) -> Tensor",
    f"rope_(Tensor(a!) x, Tensor positions, Tensor? freq_factors=None, {_ATTRIBUTES}) -> ()",
    f"rope_out(Tensor x, Tensor positions, Tensor? freq_factors=None, {_ATTRIBUTES}, Tensor(a!) out) -> ()",
    # The hot path: attributes packed into one uint8 tensor (backends.packed_call). Without x in
    # place: a tensor argument costs as much as turning it. No gradient.
    "rope_packed_(Tensor(a!) out, Tensor? x, Tensor positions, Tensor packed, Tensor? freq_factors=None)"
    " -> ()",
)

_OUT_HAS_NO_GRADIENT = "out must be None or x itself where a gradient is needed but got another tensor."


def rope(
    x: Any,
    positions: Any,
    params: RopeParams,
    freq_factors: Any = None,
    *,
    backend: str | None = None,
    out: Any = None,
    forward: bool = True,
    angle: AnglePolicy = "exact",
) -> Any:
    """Rotary position embedding (``specs/ggml_rope_acltensor.txt``).

    A pair (x1, x2) of a head turns by ``theta = position * frequency``::

        (x1*cos - x2*sin, x1*sin + x2*cos)

    Args:
        x: ``[B,S,N,D]`` or ``[S,N,D]``, torch tensor or NumPy array; float32, float16, bfloat16
            or float64. Any strides; a non-unit last stride costs a copy.
        positions: ``[S]`` or ``[B,S]``, int32 or int64, in the int32 range; negative ones too.
        params: the attributes; ``params.n_offs + params.n_dims <= D``.
        freq_factors: ``[>= n_dims/2]`` float32; pair i's frequency is divided by factor i.
        backend: ``"reference"``, ``"cpu"``, ``"sim"``, ``"npu"``; None: ``NPU_ROPE_BACKEND``, else
            by x's device.
        out: where to write: x's shape and dtype, unit last stride; may be x itself (in place).
        forward: False turns by minus the angle.
        angle: ``"exact"`` (float32-correct at every position), ``"f32"`` or ``"ggml"``
            (numerics in docs/ops/rope.md).

    Returns:
        x's type, shape and dtype; ``out`` where it was given.

    Raises:
        ValueError, TypeError: an argument breaks its rule; nothing was written.
        BackendUnavailable: the backend asked for is not here.

    >>> import numpy as np
    >>> x = np.ones((1, 3, 1, 4), np.float32)
    >>> rope(x, np.arange(3), RopeParams(4, "neox"))[0, :, 0].round(3)
    array([[ 1.   ,  1.   ,  1.   ,  1.   ],
           [-0.301,  0.99 ,  1.382,  1.01 ],
           [-1.325,  0.98 ,  0.493,  1.02 ]], dtype=float32)
    """
    if isinstance(x, _Tensor):
        chosen = backend or backends.default_backend
        if chosen is None or chosen == x.device.type:
            return _rope_torch(x, positions, params, freq_factors, out, forward, angle)
        if chosen == "cpu":
            raise bad_value("rope", f"x must be on device cpu for backend cpu but got {x.device}.")
    else:
        backends.require_tensor_like("x", x)
        chosen = backend or backends.default_backend or "cpu"
    _require_params(params)
    executor = backends.find(chosen).require()
    assert executor.rope is not None
    return executor.rope(x, positions, params, freq_factors, out, forward, angle)


def rope_(
    x: Any,
    positions: Any,
    params: RopeParams,
    freq_factors: Any = None,
    *,
    backend: str | None = None,
    forward: bool = True,
    angle: AnglePolicy = "exact",
) -> Any:
    """:func:`rope` in place: x is overwritten and returned. Its last stride must be 1.

    >>> import numpy as np
    >>> x = np.ones((1, 1, 2), np.float32)
    >>> rope_(x, np.array([0]), RopeParams(2)) is x
    True
    """
    return rope(x, positions, params, freq_factors, backend=backend, out=x, forward=forward, angle=angle)


def _require_params(params: Any) -> None:
    if not isinstance(params, RopeParams):
        raise bad_type("rope", f"params must be a RopeParams but got {type(params).__name__}.")


# ---- torch tensors on their own device -------------------------------------------------------------


def _attributes(params: RopeParams, forward: bool, angle: AnglePolicy) -> dict[str, Any]:
    if angle not in ANGLE_POLICIES:
        raise bad_value("rope", f"angle must be exact (0), f32 (1) or ggml (2) but got {angle}.")
    return {
        "n_dims": params.n_dims,
        "mode": int(params.rope_mode),
        "n_ctx_orig": params.n_ctx_orig,
        "freq_base": params.freq_base,
        "freq_scale": params.freq_scale,
        "ext_factor": params.ext_factor,
        "attn_factor": params.attn_factor,
        "beta_fast": params.beta_fast,
        "beta_slow": params.beta_slow,
        "sections": list(params.sections) if any(params.sections) else None,
        "n_offs": params.n_offs,
        "forward": forward,
        "angle": ANGLE_POLICIES.index(angle),
    }


def _packed(params: RopeParams, forward: bool, angle: AnglePolicy) -> Any:
    """The attributes as one uint8 tensor, kept with params."""
    _require_params(params)
    packed = torch.frombuffer(bytearray(backends.packed_call(params, forward, angle)), dtype=torch.uint8)
    params.__dict__.setdefault("_packed", {})[forward, angle] = packed
    return packed


def _is_plain(x: Any) -> bool:
    """An ordinary CPU tensor outside any tracing, dispatch mode, function transform or dual level."""
    return (
        type(x) is _Tensor
        and x.is_cpu
        and not _dispatch_modes()
        and _function_transforms() is None
        and _forward_ad._current_level < 0
    )


def _has_tangent(x: Any) -> bool:
    """x carries a tangent of forward-mode differentiation."""
    if _forward_ad._current_level < 0:
        return False
    return _forward_ad.unpack_dual(x).tangent is not None


def _rope_torch(
    x: Any, positions: Any, params: RopeParams, freq_factors: Any, out: Any, forward: bool, angle: AnglePolicy
) -> Any:
    try:
        needs_grad = (x.requires_grad or (out is not None and out.requires_grad)) and torch.is_grad_enabled()
        if not (needs_grad or torch.compiler.is_compiling()) and _is_plain(x):
            return _rope_packed(x, positions, params, freq_factors, out, forward, angle)
        if x.device.type == "npu":
            backends.find("npu").require()
        _require_params(params)
        attributes = _attributes(params, forward, angle)
        if out is None:
            return torch.ops.npu_rope.rope.default(x, positions, freq_factors, **attributes)
        if out is x:
            torch.ops.npu_rope.rope_.default(x, positions, freq_factors, **attributes)
            return x
        if needs_grad:
            raise bad_value("rope", _OUT_HAS_NO_GRADIENT)
        torch.ops.npu_rope.rope_out.default(x, positions, freq_factors, **attributes, out=out)
        return out
    except (RuntimeError, ValueError, TypeError, IndexError, AttributeError) as error:
        raise _explained(error, x, positions, params, freq_factors, out, angle) from error.__cause__


def _rope_packed(
    x: Any, positions: Any, params: RopeParams, freq_factors: Any, out: Any, forward: bool, angle: AnglePolicy
) -> Any:
    """The hot path: nothing but the call. Whatever is wrong, the C++ checks say."""
    try:
        packed = params.__dict__["_packed"][forward, angle]
    except (KeyError, AttributeError):
        packed = _packed(params, forward, angle)
    given = out
    if out is None:
        out = torch.empty_like(x, memory_format=_contiguous)
    elif out is x:
        x = None
    if freq_factors is None:
        _call_packed(out, x, positions, packed)
    else:
        _call_packed(out, x, positions, packed, freq_factors)
    if given is not None:
        # Who saved this tensor for a gradient must learn that it changed.
        _increment_version((out,))
    return out


def _explained(
    error: Exception,
    x: Any,
    positions: Any,
    params: RopeParams,
    freq_factors: Any,
    out: Any,
    angle: AnglePolicy,
) -> Exception:
    """torch reports every failure of a C++ operator as RuntimeError; give it its own class and words."""
    _require_params(params)
    try:
        _check_tensors(x, positions, params, freq_factors, out, angle)
    except (ValueError, TypeError) as explained:
        return explained
    text = str(error)
    if "[rope] " not in text or isinstance(error, NotImplementedError):
        return error
    return ValueError(text[text.index("[rope] ") :].split("\n")[0])


def _check_devices(x: Any, positions: Any, freq_factors: Any, out: Any) -> None:
    for name, t in (("positions", positions), ("freq_factors", freq_factors), ("out", out)):
        if t is None and name != "positions":
            continue
        if not isinstance(t, torch.Tensor):
            raise bad_type("rope", f"{name} must be a torch tensor like x but got {type(t).__name__}.")
        if t.device != x.device:
            raise bad_value("rope", f"{name} must be on x's device {x.device} but got {t.device}.")


def _check_tensors(
    x: Any, positions: Any, params: RopeParams, freq_factors: Any, out: Any, angle: str
) -> None:
    """Every rule that needs no element's value, on tensors real or fake."""
    _check_devices(x, positions, freq_factors, out)
    check_angle(angle)
    spec = backends.spec_of_tensor(x)
    check_x(spec, params, unit_stride=out is x)
    check_positions(backends.spec_of_tensor(positions), spec, params)
    if freq_factors is not None:
        check_freq_factors(backends.spec_of_tensor(freq_factors), params)
    if out is not None:
        check_out(backends.spec_of_tensor(out), spec)


# ---- registration ----------------------------------------------------------------------------------


def _params_of(attributes: dict[str, Any]) -> tuple[RopeParams, bool, AnglePolicy]:
    attributes = dict(attributes)
    forward = attributes.pop("forward", True)
    code = attributes.pop("angle", 0)
    if not 0 <= code < len(ANGLE_POLICIES):
        raise bad_value("rope", f"angle must be exact (0), f32 (1) or ggml (2) but got {code}.")
    return RopeParams(**attributes), forward, ANGLE_POLICIES[code]


def _fake_rope(x: Any, positions: Any, freq_factors: Any = None, **attributes: Any) -> Any:
    params, _, angle = _params_of(attributes)
    _check_tensors(x, positions, params, freq_factors, None, angle)
    return x.new_empty(x.shape)


def _fake_rope_inplace(x: Any, positions: Any, freq_factors: Any = None, **attributes: Any) -> None:
    params, _, angle = _params_of(attributes)
    _check_tensors(x, positions, params, freq_factors, x, angle)


def _fake_rope_out(x: Any, positions: Any, freq_factors: Any = None, *, out: Any, **attributes: Any) -> None:
    params, _, angle = _params_of(attributes)
    _check_tensors(x, positions, params, freq_factors, out, angle)


def _fake_rope_packed(out: Any, x: Any, positions: Any, packed: Any, freq_factors: Any = None) -> None:
    # Reached by meta and fake tensors, a single one among real ones included.
    x = out if x is None else x
    _check_devices(x, positions, freq_factors, out)
    check_out(backends.spec_of_tensor(out), backends.spec_of_tensor(x))


def _refuse_leaf(x: Any) -> None:
    """torch's own refusal, but before anything is written."""
    base, what = x, "a leaf Variable"
    if x._is_view():
        base, what = x._base, "a view of a leaf Variable"
    if base.is_leaf and base.requires_grad:
        raise RuntimeError(f"{what} that requires grad is being used in an in-place operation.")


def _refuse_nested_transforms() -> None:
    """This gradient follows one torch.func transform; of a second it would silently be zero."""
    levels = _all_transforms() or ()
    kinds = torch._C._functorch.TransformType
    nested = sum(level.key() in (kinds.Grad, kinds.Jvp) for level in levels)
    if nested > 1:
        raise NotImplementedError(
            f"[rope] x must be under one torch.func gradient transform but got {nested} nested ones.\n"
            "torch.autograd differentiates rope any number of times: use grad(create_graph=True)."
        )


def _single_level_function() -> tuple[Any, Any]:
    """torch.autograd.Function without its detour through torch.func, whose transforms have been
    dealt with before an operator's Autograd kernel runs; and what allows its use. Where a torch
    lacks them, the public class does, without torch.func."""
    try:
        from torch._functorch.utils import enable_single_level_autograd_function as allowed

        return torch.autograd.function._SingleLevelFunction, allowed
    except (ImportError, AttributeError):
        return torch.autograd.Function, contextlib.nullcontext


def _register_autograd(library: Any) -> None:
    below, operators = torch._C._AutoDispatchBelowAutograd, torch.ops.npu_rope
    function, allowed = _single_level_function()

    class Rotation(function):  # type: ignore[misc,valid-type]
        @staticmethod
        def forward(
            ctx: Any,
            x: Any,
            positions: Any,
            freq_factors: Any,
            attributes: dict[str, Any],
            in_place: bool,
        ) -> Any:
            ctx.save_for_backward(positions, freq_factors)
            ctx.save_for_forward(positions, freq_factors)
            ctx.attributes, ctx.in_place = attributes, in_place
            with below():
                if not in_place:
                    return operators.rope.default(x, positions, freq_factors, **attributes)
                operators.rope_.default(x, positions, freq_factors, **attributes)
            ctx.mark_dirty(x)
            return x

        @staticmethod
        def backward(ctx: Any, grad: Any) -> tuple[Any, None, None, None, None]:
            positions, freq_factors = ctx.saved_tensors
            attributes = {**ctx.attributes, "forward": not ctx.attributes.get("forward", True)}
            turned = operators.rope.default(grad, positions, freq_factors, **attributes)
            return turned, None, None, None, None

        @staticmethod
        def jvp(ctx: Any, tangent: Any, *_: Any) -> Any:
            positions, freq_factors = ctx.saved_tensors
            if not ctx.in_place:
                return operators.rope.default(tangent, positions, freq_factors, **ctx.attributes)
            operators.rope_.default(tangent, positions, freq_factors, **ctx.attributes)
            return tangent

    def differentiates(x: Any) -> bool:
        _refuse_nested_transforms()
        return (torch.is_grad_enabled() and x.requires_grad) or _has_tangent(x)

    def rope(x: Any, positions: Any, freq_factors: Any = None, **attributes: Any) -> Any:
        if differentiates(x):
            with allowed():
                return Rotation.apply(x, positions, freq_factors, attributes, False)
        with below():
            return operators.rope.default(x, positions, freq_factors, **attributes)

    def rope_inplace(x: Any, positions: Any, freq_factors: Any = None, **attributes: Any) -> None:
        if differentiates(x):
            if torch.is_grad_enabled():
                _refuse_leaf(x)
            with allowed():
                Rotation.apply(x, positions, freq_factors, attributes, True)
            return
        with below():
            operators.rope_.default(x, positions, freq_factors, **attributes)
        torch.autograd.graph.increment_version(x)

    def rope_out(x: Any, positions: Any, freq_factors: Any = None, *, out: Any, **attributes: Any) -> None:
        if differentiates(x) or differentiates(out):
            raise RuntimeError(f"[rope] {_OUT_HAS_NO_GRADIENT}")
        with below():
            operators.rope_out.default(x, positions, freq_factors, **attributes, out=out)
        torch.autograd.graph.increment_version(out)

    library.impl("rope", rope, "Autograd")
    library.impl("rope_", rope_inplace, "Autograd")
    library.impl("rope_out", rope_out, "Autograd")


def _register_functionalization() -> None:
    """Under compilation a write becomes the functional op and a replacement of what was written.

    torch would do so by itself, but its helpers have an argument called ``mode``, as our operators
    have (torch 2.13: redirect_to_mode, py_functionalize_impl). A torch without these parts keeps
    its own way: then rope compiles, rope_ may not.
    """
    try:
        from torch._higher_order_ops import utils
        from torch._subclasses import FakeTensor
        from torch._subclasses import functional_tensor as functional
    except ImportError:
        return

    operators = torch.ops.npu_rope
    has_user_subclass: Any = utils.has_user_subclass

    def replace(active: Any, /, *args: Any, **attributes: Any) -> Any:
        if has_user_subclass(
            (args, attributes), allowed_subclasses=(FakeTensor, functional.FunctionalTensor)
        ):
            return NotImplemented
        api = functional.PythonFunctionalizeAPI(active)
        written = attributes.pop("out", args[0])
        with api.redispatch_to_next():
            y = operators.rope.default(*api.unwrap_tensors(args), **attributes)
        api.replace(written, y)
        api.commit_update(written)
        api.sync(written)
        return None

    for operator in (operators.rope_.default, operators.rope_out.default):
        operator.py_impl(functional.FunctionalTensorMode)(replace)


def _over_ctypes(library: Any) -> None:
    """The CPU kernels without the C++ registration: the same schema, a slower call."""
    run = backends.rope_cpu_tensors

    def readable(x: Any, out: Any) -> Any:
        unit = x.dim() == 0 or x.shape[-1] <= 1 or x.stride(-1) == 1
        return x if unit or x.data_ptr() == out.data_ptr() else x.contiguous()

    def rope_cpu(x: Any, positions: Any, freq_factors: Any = None, **attributes: Any) -> Any:
        out = x.new_empty(x.shape)
        run(readable(x, out), positions, freq_factors, out, *_params_of(attributes))
        return out

    def rope_inplace_cpu(x: Any, positions: Any, freq_factors: Any = None, **attributes: Any) -> None:
        run(x, positions, freq_factors, x, *_params_of(attributes))

    def rope_out_cpu(
        x: Any, positions: Any, freq_factors: Any = None, *, out: Any, **attributes: Any
    ) -> None:
        run(readable(x, out), positions, freq_factors, out, *_params_of(attributes))

    def rope_packed_cpu(out: Any, x: Any, positions: Any, packed: Any, freq_factors: Any = None) -> None:
        source = out if x is None else readable(x, out)
        backends.rope_cpu_packed(out, source, positions, packed, freq_factors)

    library.impl("rope", rope_cpu, "CPU")
    library.impl("rope_", rope_inplace_cpu, "CPU")
    library.impl("rope_out", rope_out_cpu, "CPU")
    library.impl("rope_packed_", rope_packed_cpu, "CPU")


def register() -> Any:
    """Define the operators and their kernels with torch; returns what must be kept alive."""
    library = torch.library.Library("npu_rope", "FRAGMENT")
    for schema in SCHEMAS:
        library.define(schema, tags=(torch.Tag.pt2_compliant_tag,))
    torch.library.register_fake("npu_rope::rope", _fake_rope, lib=library)
    torch.library.register_fake("npu_rope::rope_", _fake_rope_inplace, lib=library)
    torch.library.register_fake("npu_rope::rope_out", _fake_rope_out, lib=library)
    torch.library.register_fake("npu_rope::rope_packed_", _fake_rope_packed, lib=library)
    _register_autograd(library)
    _register_functionalization()
    path = backends.torch_registration()
    if path is not None:
        torch.ops.load_library(path)
    else:
        _over_ctypes(library)
    return library


_Tensor: Any = ()  # an instance of nothing
if torch is not None:
    _Tensor, _contiguous = torch.Tensor, torch.contiguous_format
    _library = register()
    _overload = torch.ops.npu_rope.rope_packed_.default
    # OpOverload.__call__ does nothing but call _op; a third of a decode-sized call is spent there.
    _call_packed = getattr(_overload, "_op", _overload)
    _dispatch_modes = torch._C._len_torch_dispatch_stack
    _function_transforms = torch._C._functorch.peek_interpreter_stack
    _all_transforms = torch._C._functorch.get_interpreter_stack
    _increment_version = torch._C._increment_version
    _forward_ad = torch.autograd.forward_ad

__all__ = ["SCHEMAS", "TensorSpec", "rope", "rope_"]
