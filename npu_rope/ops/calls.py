"""Code that the operators' files share: rope's attributes, by the names of a schema and packed; the rules for
real and fake tensors; the hot path; torch's errors, converted to the operators' errors.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any

from npu_rope import backends
from npu_rope.checks import CallTensors, RopeTensors
from npu_rope.errors import BrokenRule, GradientRefused, bad_type, bad_value
from npu_rope.executors import rope as executors
from npu_rope.executors import rules
from npu_rope.executors.tensors import require_dense, spec_of
from npu_rope.ops.registrar import Operator
from npu_rope.optional_torch import torch
from npu_rope.params import RopeParams
from npu_rope.values import Angle, AnglePolicy, angle_policy

# The attributes of the schemas of rope, rope_qk and rope_set_rows, after their tensors.
ATTRIBUTES = (
    "*, int n_dims, int rope_mode=0, int n_ctx_orig=0, float freq_base=10000.0, float freq_scale=1.0,"
    " float ext_factor=0.0, float attn_factor=1.0, float beta_fast=32.0, float beta_slow=1.0,"
    " int[]? sections=None, int n_offs=0, bool forward=True, int angle=0"
)


def require_params(op: str, params: Any) -> None:
    """Raise TypeError if params is not a RopeParams."""
    if not isinstance(params, RopeParams):
        raise bad_type(op, "params", "be a RopeParams", type(params).__name__)


def attributes_of(op: str, params: RopeParams, forward: bool, angle: Angle) -> dict[str, Any]:
    """Return the attributes by their names in a schema."""
    require_params(op, params)
    return executors.Attributes(params, forward, angle_policy(op, angle)).as_schema()


def params_of(op: str, attributes: dict[str, Any]) -> tuple[RopeParams, bool, AnglePolicy]:
    """Return the arguments of :func:`attributes_of` from its result."""
    attributes = dict(attributes)
    forward = attributes.pop("forward", True)
    policy = angle_policy(op, attributes.pop("angle", 0))
    mode = attributes.pop("rope_mode", 0)
    return RopeParams(mode=mode, **attributes), forward, policy


def packed_of(op: str, params: RopeParams, forward: bool, angle: Angle) -> Any:
    """Return the attributes as one uint8 tensor, cached in params: unpacking thirteen attributes would take
    most of the time of a decode-sized call."""
    require_params(op, params)
    angle = angle_policy(op, angle)
    try:
        return params.__dict__["_packed"][forward, angle]
    except KeyError:
        pass
    call = backends.packed_call(params, forward, angle, op=op)
    packed = torch.frombuffer(bytearray(call), dtype=torch.uint8)
    params.__dict__.setdefault("_packed", {})[forward, angle] = packed
    return packed


def is_plain(x: Any) -> bool:
    """Return whether x is an ordinary CPU tensor outside any tracing, dispatch mode, function transform or
    dual level."""
    return (
        type(x) in ORDINARY
        and x.is_cpu
        and not _dispatch_modes()
        and _function_transforms() is None
        and _forward_ad._current_level < 0
    )


# ---- rules of tensors, real or fake ----------------------------------------------------------------


def check_devices(t: CallTensors[Any]) -> None:
    """Check that all tensors are torch tensors on one device."""
    first_name, first = t.first
    for name, tensor in {**t.xs, **t.beside(), **t.outs}.items():
        if not isinstance(tensor, torch.Tensor):
            raise bad_type(t.op, name, f"be a torch tensor like {first_name}", type(tensor).__name__)
        require_dense(t.op, name, tensor)
        if tensor.device != first.device:
            raise bad_value(t.op, name, f"be on {first_name}'s device {first.device}", tensor.device)


def check_tensors(t: RopeTensors[Any], params: RopeParams, angle: Angle) -> None:
    """Check every rule that needs neither an element's value nor an address."""
    check_devices(t)
    rules.check_layout(t.map(spec_of), {"params": params, "angle": angle_policy(t.op, angle)})


def check_traced(t: RopeTensors[Any], attributes: dict[str, Any]) -> None:
    """Check every rule of :func:`check_tensors`, for a call with a schema's attributes."""
    params, _, angle = params_of(t.op, attributes)
    check_tensors(t, params, angle)


def check_packed(t: RopeTensors[Any], packed: Any) -> None:
    """Check a call whose attributes are bytes in a tensor, which a fake tensor does not have."""
    check_devices(t)


def explained(error: Exception, check: Callable[[], object]) -> Exception:
    """Return the error of a call as the class of its rule: the one that ``check`` raises, else the one that
    the C++ operator reported, which torch raises as RuntimeError, else the error itself."""
    try:
        check()
    except BrokenRule as broken:
        return broken
    if isinstance(error.__cause__, BrokenRule):  # torch has added its own text, as DTensor does
        return error.__cause__
    if isinstance(error, GradientRefused):
        return bad_value(error.op, error.argument, error.rule, error.value)
    if isinstance(error, (BrokenRule, NotImplementedError)):
        return error
    return backends.raised_by_torch(str(error)) or error


def explained_rope(error: Exception, t: RopeTensors[Any], params: Any, angle: Angle) -> Exception:
    """Convert an error of rope, rope_qk or rope_set_rows as :func:`explained` does."""
    require_params(t.op, params)
    return explained(error, partial(check_tensors, t, params, angle))


def require_pair(op: str, out: Any, names: str = "(q_out, k_out)") -> None:
    """Raise TypeError or ValueError if out is not a pair."""
    if not isinstance(out, (tuple, list)):
        raise bad_type(op, "out", f"be a pair {names}", type(out).__name__)
    if len(out) != 2:
        raise bad_value(op, "out", f"be a pair {names}", f"{len(out)} elements")


# ---- hot path --------------------------------------------------------------------------------------


def callable_of(overload: Any) -> Any:
    """Return ``_op`` of an OpOverload. Its ``__call__`` only calls ``_op``, and takes a third of the time of
    a decode-sized call."""
    return getattr(overload, "_op", overload)


@cache
def _callable(op: str) -> Any:
    return callable_of(getattr(torch.ops.npu_rope, op).default)


def straight(
    op: str, tensors: tuple[Any, ...], attributes: tuple[Any, ...], *, written: tuple[Any, ...] = ()
) -> Any:
    """Call the kernel directly, for plain CPU tensors without a gradient. Return NotImplemented for other
    calls and for calls with an error, which the operator's file then reports.

    Args:
        op: the operator. Its schema takes the tensors, then the attributes.
        attributes: of exactly the schema's types; torch would silently convert others.
        written: the tensors that the operator writes; returned then.
    """
    if torch is None or torch.compiler.is_compiling() or backends.default_backend not in (None, "cpu"):
        return NotImplemented
    follows, ordinary = torch.is_grad_enabled(), ORDINARY
    for t in tensors:
        if type(t) not in ordinary or (follows and t.requires_grad):
            return NotImplemented
    if not is_plain(tensors[0]):
        return NotImplemented
    try:
        with _below():
            results = _callable(op)(*tensors, *attributes)
    except (RuntimeError, TypeError, ValueError):
        return NotImplemented
    if written:
        _increment_version(written)
        return written
    return results


# ---- registration ----------------------------------------------------------------------------------


def on_cpu(t: RopeTensors[Any], attributes: dict[str, Any]) -> None:
    """Run a schema's call through ctypes, into the call's outs."""
    params, forward, angle = params_of(t.op, attributes)
    executors.on_cpu_tensors(t, executors.Attributes(params, forward, angle))


# Makes an Operator of rope, rope_qk or rope_set_rows.
rope_operator = partial(Operator, check=check_traced, on_cpu=on_cpu)
# Makes the Operator of their hot path, whose attributes are packed into one uint8 tensor
# (backends.packed_call). In place x is omitted: a tensor argument costs as much time as its rotation.
packed_operator = partial(
    Operator, check=check_packed, on_cpu=executors.on_cpu_packed, hot_path=True, on_npu=False
)

# Types without their own dispatch. torch.nn.Parameter is one of them: requires_grad is checked separately,
# and torch.nn.Parameter(x) of a subclass has the subclass as its type.
ORDINARY: frozenset[Any] = frozenset()
if torch is not None:
    ORDINARY = frozenset({torch.Tensor, torch.nn.Parameter})
    _dispatch_modes = torch._C._len_torch_dispatch_stack
    _function_transforms = torch._C._functorch.peek_interpreter_stack
    _forward_ad = torch.autograd.forward_ad
    _below = torch._C._AutoDispatchBelowAutograd
    _increment_version = torch._C._increment_version
