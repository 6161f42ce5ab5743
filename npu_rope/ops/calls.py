"""Code that rope, rope_qk and rope_set_rows share as torch operators: their attributes, by the names of a
schema and packed; the rules for real and fake tensors; torch's errors, converted to the operators' errors.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from npu_rope import backends
from npu_rope.checks import CallTensors, RopeTensors, check_cache, check_call, check_out
from npu_rope.errors import BackendUnavailable, bad_type, bad_value
from npu_rope.executors import rope as executors
from npu_rope.executors.tensors import require_dense, spec_of_tensor
from npu_rope.ops.gradients import trace_write
from npu_rope.optional_torch import load_torch_npu, torch
from npu_rope.params import RopeParams
from npu_rope.values import Angle, AnglePolicy, angle_policy

# The attributes of every schema, after its tensors.
ATTRIBUTES = (
    "*, int n_dims, int mode, int n_ctx_orig=0, float freq_base=10000.0, float freq_scale=1.0,"
    " float ext_factor=0.0, float attn_factor=1.0, float beta_fast=32.0, float beta_slow=1.0,"
    " int[]? sections=None, int n_offs=0, bool forward=True, int angle=0"
)


def require_params(op: str, params: Any) -> None:
    """Raise TypeError if params is not a RopeParams."""
    if not isinstance(params, RopeParams):
        raise bad_type(op, f"params must be a RopeParams but got {type(params).__name__}.")


def attributes_of(op: str, params: RopeParams, forward: bool, angle: Angle) -> dict[str, Any]:
    """Return the attributes by their names in a schema."""
    require_params(op, params)
    return executors.Attributes(params, forward, angle_policy(op, angle)).as_schema()


def params_of(op: str, attributes: dict[str, Any]) -> tuple[RopeParams, bool, AnglePolicy]:
    """Return the arguments of :func:`attributes_of` from its result."""
    attributes = dict(attributes)
    forward = attributes.pop("forward", True)
    policy = angle_policy(op, attributes.pop("angle", 0))
    return RopeParams(**attributes), forward, policy


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
            raise bad_type(
                t.op, f"{name} must be a torch tensor like {first_name} but got {type(tensor).__name__}."
            )
        require_dense(t.op, name, tensor)
        if tensor.device != first.device:
            raise bad_value(
                t.op, f"{name} must be on {first_name}'s device {first.device} but got {tensor.device}."
            )


def check_tensors(t: RopeTensors[Any], params: RopeParams, angle: Angle) -> None:
    """Check every rule that needs neither an element's value nor an address."""
    check_devices(t)
    check_call(t.map(spec_of_tensor), params, angle)


def check_traced(t: RopeTensors[Any], attributes: dict[str, Any]) -> None:
    """Check every rule of :func:`check_tensors`, for a call with a schema's attributes."""
    params, _, angle = params_of(t.op, attributes)
    check_tensors(t, params, angle)


def check_packed(t: RopeTensors[Any]) -> None:
    """Check a call whose attributes are bytes in a tensor, as far as fake tensors allow."""
    check_devices(t)
    specs = t.map(spec_of_tensor)
    for (name, out), (x_name, x) in zip(specs.outs.items(), specs.xs.items(), strict=True):
        if name == "cache":
            check_cache(out, x, op=t.op, x_name=x_name, narrower=t.narrower)
        else:
            check_out(out, x, op=t.op, name=name, x_name=x_name)


def explained(error: Exception, t: RopeTensors[Any], params: Any, angle: Angle) -> Exception:
    """Convert an error of a C++ operator to its own class and text. torch reports all of them as
    RuntimeError."""
    require_params(t.op, params)
    try:
        check_tensors(t, params, angle)
    except (ValueError, TypeError) as said:
        return said
    return in_own_words(error, t.op)


def in_own_words(error: Exception, op: str) -> Exception:
    """Return the error of an operator's C++ checks, with their text and their class."""
    text = str(error)
    if isinstance(error, NotImplementedError):
        return error
    for begin in (f"[{op}] ", "[rope] "):  # errors of params name rope
        if begin in text:
            kind = TypeError if isinstance(error, TypeError) else ValueError
            return kind(text[text.index(begin) :].split("\n")[0])
    return error


# ---- registration ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Operator:
    """A torch operator of this package.

    Attributes:
        schema: as torch reads it.
        fake: its kernel for fake and meta tensors.
        over_ctypes: its CPU kernel in builds without the C++ registration: a slower call.
        autograd: its Autograd kernel.
        traced: replaces an operator that writes under compilation.
    """

    schema: str
    fake: Callable[..., Any]
    over_ctypes: Callable[..., Any]
    autograd: Callable[..., Any] | None = None
    traced: Callable[..., Any] | None = None


def register(operators: Sequence[Operator]) -> Any:
    """Define the operators and their kernels with torch. The caller must keep the result alive."""
    library = torch.library.Library("npu_rope", "FRAGMENT")
    path = backends.torch_registration()
    for operator in operators:
        name = operator.schema.partition("(")[0]
        library.define(operator.schema, tags=(torch.Tag.pt2_compliant_tag,))
        torch.library.register_fake(f"npu_rope::{name}", operator.fake, lib=library)
        if operator.autograd is not None:
            library.impl(name, operator.autograd, "Autograd")
        if operator.traced is not None:
            trace_write(getattr(torch.ops.npu_rope, name).default, operator.traced)
        if "_packed_" in name:
            library.impl(name, refuses_devices(name), "PrivateUse1")
    if path is None or not loads_registration(path):
        for operator in operators:
            library.impl(operator.schema.partition("(")[0], operator.over_ctypes, "CPU")
    names = [operator.schema.partition("(")[0] for operator in operators]
    expect_npu_kernels([name for name in names if "_packed_" not in name])
    return library


@cache
def loads_registration(path: str) -> bool:
    """Load the operators' kernels of CPU tensors. If the library does not load, a warning names it. Calls
    then go through ctypes, with the same results."""
    try:
        torch.ops.load_library(path)
    except OSError as error:
        text = f"[npu_rope] {path} must load but got {error.__cause__ or error}. Calls on tensors are slower."
        text += f" {REINSTALL}"
        warnings.warn(text, RuntimeWarning, stacklevel=2)
        return False
    return True


def expect_npu_kernels(names: Sequence[str]) -> None:
    """Load the binding's kernels of these operators, or register placeholders if torch_npu is not loaded
    yet."""
    if "torch_npu" in sys.modules:
        load_npu_binding()
    if _binding_is_loaded:
        return
    until_loaded = torch.library.Library("npu_rope", "IMPL")
    for name in names:
        until_loaded.impl(name, _loads_binding(name), "PrivateUse1")
    _until_loaded.append(until_loaded)


# Placeholder kernels that load the binding on first use, so the import order of npu_rope and torch_npu does
# not matter. torch_npu's own fallback would run the operators on the CPU, and write before it fails.
_until_loaded: list[Any] = []
_binding_is_loaded = False
_binding_error = ""
REINSTALL = (
    "Install npu_rope again with the installed torch and torch_npu: "
    "pip install --no-build-isolation --force-reinstall --no-deps . "
    "(npu-rope doctor shows which versions are compatible.)"
)


def _loads_binding(name: str) -> Callable[..., Any]:
    def load_and_call(*arguments: Any, **named: Any) -> Any:
        require_npu()
        return getattr(torch.ops.npu_rope, name).default(*arguments, **named)

    return load_and_call


def refuses_devices(name: str) -> Callable[..., None]:
    """Return a kernel that rejects NPU tensors, for operators that support only CPU tensors. Without it
    torch_npu would copy an NPU's tensors to the host and write there."""

    def refuse(*_: Any, **__: Any) -> None:
        op = name.removesuffix("_packed_")
        raise RuntimeError(f"[{op}] tensors must be on device cpu in {name} but got some of an NPU.")

    return refuse


@cache
def load_npu_binding() -> None:
    """Load the kernels of NPU tensors if they were built. torch_npu and CANN must be loaded before."""
    global _binding_is_loaded, _binding_error
    path = backends.npu_binding()
    if path is None:
        return
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*Overriding a previously registered kernel")  # the placeholders
        try:
            torch.ops.load_library(path)
        except OSError as error:  # built for another torch or torch_npu; the CPU does not need it
            _binding_error = f"{path}: {error.__cause__ or error}"  # the cause is the loader's message
            return
    _binding_is_loaded = True


def npu_binding_error() -> str:
    """Return why the torch_npu binding did not load; empty if it did, or if no call has loaded it yet."""
    return _binding_error


@cache
def require_npu() -> None:
    """Load the backend of NPU tensors, or raise BackendUnavailable."""
    backends.find("npu").require()
    load_torch_npu()
    load_npu_binding()
    if error := npu_binding_error():
        raise BackendUnavailable("npu", f"npu_rope's binding of torch_npu does not load: {error}", REINSTALL)


def callable_of(overload: Any) -> Any:
    """Return ``_op`` of an OpOverload. Its ``__call__`` only calls ``_op``, and takes a third of the time of
    a decode-sized call."""
    return getattr(overload, "_op", overload)


def on_cpu(t: RopeTensors[Any], attributes: dict[str, Any]) -> None:
    """Run a schema's call through ctypes, into the call's outs."""
    params, forward, angle = params_of(t.op, attributes)
    executors.on_cpu_tensors(t, executors.Attributes(params, forward, angle))


# Types without their own dispatch. torch.nn.Parameter is one of them: requires_grad is checked separately,
# and torch.nn.Parameter(x) of a subclass has the subclass as its type.
ORDINARY: frozenset[Any] = frozenset()
if torch is not None:
    ORDINARY = frozenset({torch.Tensor, torch.nn.Parameter})
    _dispatch_modes = torch._C._len_torch_dispatch_stack
    _function_transforms = torch._C._functorch.peek_interpreter_stack
    _forward_ad = torch.autograd.forward_ad


def require_pair(op: str, out: Any, names: str = "(q_out, k_out)") -> None:
    """Raise TypeError or ValueError if out is not a pair."""
    if not isinstance(out, (tuple, list)):
        raise bad_type(op, f"out must be a pair {names} but got {type(out).__name__}.")
    if len(out) != 2:
        raise bad_value(op, f"out must be a pair {names} but got {len(out)} elements.")
