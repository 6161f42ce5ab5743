"""Code that the operators' files share: rope's attributes as a schema's arguments and as packed bytes, rules
for real and fake tensors, conversion of torch's errors, named back ends, and the hot path.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, lru_cache
from typing import Any

from npu_rope import backends
from npu_rope.call_tensors import CallTensors
from npu_rope.errors import BackendUnavailable, BrokenRule, GradientRefused, bad_type, bad_value, broken
from npu_rope.executors import rules, sim, small_arrays
from npu_rope.executors.tensors import (
    is_tensor,
    require_dense,
    require_no_negation,
    require_tensor_like,
    spec_of,
)
from npu_rope.ops.gradients import add_node, callable_of, without_autograd
from npu_rope.optional_torch import torch
from npu_rope.params import RopeParams
from npu_rope.rope_calls import RopeCallAttributes
from npu_rope.values import Angle, Known, angle_policy, as_float32

if torch is not None:
    # Compiled code may make a RopeParams. torch.compiler.assume_constant_result sets this attribute, but it
    # imports the compiler, which takes longer than the import of npu_rope.
    as_float32._dynamo_marked_constant = True  # type: ignore[attr-defined]

# RopeParams in the schemas of rope, rope_qk, rope_set_rows and rms_norm_rope, after the tensors.
PARAMS = (
    "*, int n_dims, int rope_mode=0, int n_ctx_orig=0, float freq_base=10000.0, float freq_scale=1.0,"
    " float ext_factor=0.0, float attn_factor=1.0, float beta_fast=32.0, float beta_slow=1.0,"
    " int[]? sections=None, int n_offs=0"
)
# All attributes in the schemas of rope, rope_qk and rope_set_rows.
ATTRIBUTES = f"{PARAMS}, bool forward=True, int angle=0"


def records_calls() -> bool:
    """Return whether torch.jit.trace records calls. It would record a node of autograd's graph as a constant,
    and operators with packed attributes, which have no gradient."""
    return _tracing_state() is not None


def require_params(op: str, params: Any) -> None:
    """Raise TypeError if params is not a RopeParams."""
    if not isinstance(params, RopeParams):
        raise bad_type(op, "params", "be a RopeParams", type(params).__name__)


def attributes_of(op: str, params: RopeParams, forward: bool, angle: Angle) -> RopeCallAttributes:
    """Return the attributes of a Python function's call.

    Raises:
        TypeError: params is not a RopeParams.
        ValueError: the angle policy is unknown.
    """
    require_params(op, params)
    return RopeCallAttributes(params, forward, angle_policy(op, angle))


def attributes_of_schema(op: str, attributes: dict[str, Any]) -> RopeCallAttributes:
    """Return the attributes of a schema's call from its arguments by name."""
    attributes = dict(attributes)
    forward = attributes.pop("forward", True)
    policy = angle_policy(op, attributes.pop("angle", 0))
    return RopeCallAttributes(params_of_schema(attributes), forward, policy)


def cache_key(attributes: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    """Return a schema's arguments as a key: a list becomes a tuple."""
    return tuple((name, tuple(v) if isinstance(v, list) else v) for name, v in attributes.items())


def params_of_schema(attributes: dict[str, Any]) -> RopeParams:
    """Return the parameters of a schema's call. An error names ``rope_mode``, as the schema does."""
    try:
        return RopeParams(
            **{"mode" if name == "rope_mode" else name: value for name, value in attributes.items()}
        )
    except BrokenRule as error:
        if error.argument != "mode":
            raise
        raise broken(type(error), error.op, "rope_mode", error.rule, error.value) from None


def packed_of(op: str, params: RopeParams, forward: bool, angle: Angle) -> Any:
    """Return the attributes as one uint8 tensor, cached in params. If torch converted thirteen separate
    attributes instead, this would take most of the time of a decode-sized call."""
    require_params(op, params)
    angle = angle_policy(op, angle)
    try:
        return params.__dict__["_packed"][forward, angle]
    except KeyError:
        pass
    call = backends.packed_call(params, forward, angle, op=op)
    return keep_packed(params, "_packed", (forward, angle), call)


def keep_packed(params: RopeParams, cache: str, key: tuple[Any, ...], attributes: bytes) -> Any:
    """Return packed attributes as a uint8 tensor, and keep it in params under the name of a cache and a key.

    params also keeps a view of the tensor, because the view has a reference in C++ to the tensor. When the
    last such reference ends, torch 2.13 takes the interpreter's lock to release the tensor's Python object.
    It would do so in each call, which takes a twentieth of the time of a decode-sized call.
    """
    packed, view = _as_tensor(attributes)
    params.__dict__.setdefault(cache, {}).update({key: packed, ("view of", key): view})
    return packed


def _as_tensor(attributes: bytes) -> tuple[Any, Any]:
    """Return packed attributes as a uint8 tensor, and a view of it. A trace has both as constants."""
    recorder = _tracing_state()
    torch._C._set_tracing_state(None)
    try:
        with torch.inference_mode(False):  # in inference mode a view has no reference to its tensor
            packed = torch.frombuffer(bytearray(attributes), dtype=torch.uint8)
            return packed, packed.view(-1)
    finally:
        torch._C._set_tracing_state(recorder)


def is_plain_cpu_tensor(x: Any) -> bool:
    """Return whether x is an ordinary CPU tensor outside dispatch modes (fake tensors, make_fx), torch.func's
    transforms and forward-mode autograd's dual levels. Such a tensor may go straight to the C++ kernel. The
    callers check torch.compiler.is_compiling() themselves."""
    return (
        type(x) in ORDINARY
        and x.is_cpu
        and not _dispatch_modes()
        and _function_transforms() is None
        and _forward_ad._current_level < 0
    )


@cache
def direct_function(op: str) -> Callable[..., bool]:
    """Return the function that runs an operator on small CPU tensors, with the arguments of
    :func:`.small_arrays.functions_on_tensors`.

    It returns False for calls that it does not run: also while a mode, a transform, a trace or a profiler of
    torch waits for calls, and for each call if torch or the library lacks what it needs. Its caller excludes
    calls that torch compiles or that have tangents or gradients, and tensors of other types than ORDINARY.
    """
    return _direct_functions().get(op, lambda *arguments: False)


@cache
def _direct_functions() -> dict[str, Callable[..., bool]]:
    """Return the functions of all operators, which the library makes together."""
    return small_arrays.functions_on_tensors(torch.Tensor, _WATCHERS)


def _is_plain(x: Any) -> bool:
    """As :func:`is_plain_cpu_tensor`, for any device. A call of it would slow down the hot path."""
    return (
        type(x) in ORDINARY
        and not _dispatch_modes()
        and _function_transforms() is None
        and _forward_ad._current_level < 0
    )


def known_of(x: Any) -> Known:
    """Return what the host can read of x besides its layout: elements, only the address, or neither."""
    if torch.compiler.is_compiling() or x.is_meta or not _is_plain(x):
        return "layout"
    return "values" if x.is_cpu else "addresses"


def has_values(x: Any) -> bool:
    """Return whether the host can read the elements of x."""
    return known_of(x) == "values"


def chip_of(x: Any) -> str | None:
    """Return CANN's name of the chip that runs calls with x, or None if no chip runs them."""
    return sim.chip_of_backend(backends.default_backend or x.device.type)


# ---- rules of tensors, real or fake ----------------------------------------------------------------


def require_tensors(op: str, **named: Any) -> None:
    """Raise TypeError if one of the arguments is not a dense torch tensor."""
    for name, tensor in named.items():
        if torch is None or not isinstance(tensor, torch.Tensor):
            raise bad_type(op, name, "be a torch tensor", type(tensor).__name__)
        require_dense(op, name, tensor)


def check_devices(call: CallTensors[Any]) -> None:
    """Check that all tensors are torch tensors on one device."""
    first_name, first = call.first
    for name, tensor in {**call.xs, **call.other_inputs, **call.outs}.items():
        if not isinstance(tensor, torch.Tensor):
            raise bad_type(call.op, name, f"be a torch tensor like {first_name}", type(tensor).__name__)
        require_dense(call.op, name, tensor)
        if tensor.device != first.device:
            raise bad_value(call.op, name, f"be on {first_name}'s device {first.device}", tensor.device)
    for name, tensor in call.outs.items():  # torch's own error for these names no argument
        if type(tensor) in ORDINARY and not _is_compiling():
            require_no_negation(call.op, name, tensor)


def check(call: CallTensors[Any], attributes: Any) -> None:
    """Check every rule that needs neither an element's value nor an address. Tensors may be fake; a call with
    symbolic sizes is checked when it runs."""
    check_devices(call)
    rules.check_layout(call.map(spec_of), attributes.checked)


def check_traced(call: CallTensors[Any], attributes: dict[str, Any]) -> None:
    """Run :func:`check` for a schema's call of rope, rope_qk or rope_set_rows."""
    check(call, attributes_of_schema(call.op, attributes))


def check_packed(call: CallTensors[Any], packed: Any) -> None:
    """Check types and devices only. The attributes are the contents of ``packed``, which may be a fake tensor
    without contents."""
    check_devices(call)
    name, first = call.first
    if packed.device != first.device:
        raise bad_value(call.op, "packed", f"be on {name}'s device {first.device}", packed.device)


def exception_of_call(error: Exception, check: Callable[[], object]) -> Exception:
    """Return the exception to raise for a call that failed with ``error``: the one that ``check`` raises,
    else the broken rule in torch's RuntimeError from the C++ operator, else ``error``."""
    try:
        check()
    except BrokenRule as found:
        return found
    if isinstance(error.__cause__, BrokenRule):  # torch wrapped it in an error of its own, as DTensor does
        return error.__cause__
    if isinstance(error, GradientRefused):
        return bad_value(error.op, error.argument, error.rule, error.value)
    if isinstance(error, (BrokenRule, NotImplementedError)):
        return error
    return backends.raised_by_torch(str(error)) or error


def error_of_rope(error: Exception, call: CallTensors[Any], params: Any, angle: Angle) -> Exception:
    """Return :func:`exception_of_call` for rope, rope_qk and rope_set_rows."""
    require_params(call.op, params)
    return exception_of_call(error, lambda: check(call, attributes_of(call.op, params, True, angle)))


def require_pair(op: str, out: Any, names: str = "(q_out, k_out)") -> None:
    """Raise TypeError or ValueError if out is not a pair."""
    if not isinstance(out, (tuple, list)):
        raise bad_type(op, "out", f"be a pair {names}", type(out).__name__)
    if len(out) != 2:
        raise bad_value(op, "out", f"be a pair {names}", f"{len(out)} elements")


# ---- named back ends -------------------------------------------------------------------------------

Execute = Callable[[str, CallTensors[Any], Any], tuple[Any, ...]]


def run_named(backend: str | None, call: CallTensors[Any], attributes: Any, run: Execute) -> tuple[Any, ...]:
    """Run a call on arrays, or on tensors by a named back end. torch.compile cannot trace the executors, so
    it breaks the graph here.

    Args:
        backend: its name; None: ``NPU_ROPE_BACKEND``, else ``cpu`` for arrays.
        call, attributes: the call's tensors and attributes.
        run: runs a call on a back end: ``run(backend, call, attributes)``.
    """
    chosen = backends.default_backend if backend is None else backend
    name, x = call.first
    if not is_tensor(x):
        require_tensor_like(call.op, name, x)
        return run("cpu" if chosen is None else chosen, call, attributes)
    assert chosen is not None  # otherwise the tensors' own device runs the call
    if chosen == "cpu":
        raise bad_value(call.op, name, "be on device cpu for backend cpu", x.device)
    if torch.compiler.is_compiling():
        torch._dynamo.graph_break(
            "npu_rope runs a call with backend= outside torch: remove backend= from the call"
        )
        ys: tuple[Any, ...] = _uncompiled(run, chosen, call, attributes)
        return ys
    return run(chosen, call, attributes)


# ---- hot path --------------------------------------------------------------------------------------


def packed_attributes(op: str, attributes: tuple[Any, ...]) -> Any:
    """Return an operator's attributes, which are numbers, as a uint8 tensor. To convert them, torch takes a
    fourth of the time of a decode-sized call for the first, and a tenth for each other one."""
    return _packed_attributes(op, attributes)[0]


@lru_cache(maxsize=256)
def _packed_attributes(op: str, attributes: tuple[Any, ...]) -> tuple[Any, Any]:
    """Return the tensor, and a view of it, for the reason in :func:`keep_packed`."""
    return _as_tensor(backends.packed_values(op.removesuffix("_heads_first"), *attributes))


@cache
def callable_named(op: str) -> Any:
    """Return :func:`callable_of` for the operator of that name."""
    return callable_of(getattr(torch.ops.npu_rope, op).default)


def try_hot_path(
    op: str,
    tensors: tuple[Any, ...],
    attributes: tuple[Any, ...],
    named: Mapping[str, Any] | None = None,
) -> Any:
    """Call the kernel without autograd's, for plain CPU tensors, and add the node for their gradient.
    Return NotImplemented for other calls, and for calls with an error, which the operator's file reports.

    Args:
        op: the operator. Its schema takes the tensors, then the attributes.
        tensors: its tensors; None is an absent one. A call without the first is not made.
        attributes: values of exactly the schema's types; torch would silently convert others.
        named: the attributes that the schema takes by name.
    """
    # After a model's matrix products, each access to a module's attributes and each call of a function waits
    # for memory. So names are bound below, and the conditions of is_plain_cpu_tensor() are repeated.
    if (
        torch is None
        or _is_compiling()
        or backends.default_backend not in (None, "cpu")
        or _dispatch_modes()
        or _function_transforms() is not None
        or _forward_ad._current_level >= 0
        or _tracing_state() is not None  # torch.jit.trace records the operator that has a gradient
    ):
        return NotImplemented
    needs_gradient = False
    for tensor in tensors:
        if tensor is None:
            continue
        if type(tensor) not in ORDINARY:
            return NotImplemented
        if tensor.requires_grad and _is_grad_enabled():
            needs_gradient = True
    first = tensors[0]
    if first is None or not first.is_cpu or (needs_gradient and op not in add_node):
        return NotImplemented
    try:
        hot = None if needs_gradient or named else without_autograd.get(op)
        if hot is not None:
            return hot(*tensors, _packed_attributes(op, attributes)[0]) if attributes else hot(*tensors)
        function = callable_named(op)
        with _below_autograd():
            # Python copies named arguments for a call, even if there are none.
            results = function(*tensors, *attributes, **named) if named else function(*tensors, *attributes)
    except (RuntimeError, TypeError, ValueError):
        return NotImplemented
    if needs_gradient:
        return add_node[op]((results, named or attributes), *tensors)
    return results


def try_hot_write(
    op: str,
    tensors: tuple[Any, ...],
    attributes: tuple[Any, ...],
    written: tuple[Any, ...],
    named: Mapping[str, Any] | None = None,
) -> Any:
    """Call an operator that writes as :func:`try_hot_path` does, and return the written tensors. Also return
    NotImplemented if a tensor needs a gradient, as such an operator has none.

    Args:
        op, tensors, attributes: as in try_hot_path.
        written: the tensors that the operator writes.
        named: the written tensors and the attributes that the schema takes by name.
    """
    if named and any(type(t) not in ORDINARY or (t.requires_grad and _is_grad_enabled()) for t in written):
        return NotImplemented
    if try_hot_path(op, tensors, attributes, named) is NotImplemented:
        return NotImplemented
    _increment_version(written)
    return written


def wrote_directly(
    op: str, tensors: tuple[Any, ...], attributes: tuple[Any, ...], written: tuple[Any, ...]
) -> bool:
    """Run a small call into given memory without torch, on ordinary CPU tensors. Return False for calls that
    need torch, and for calls with an error, which the usual path reports.

    Args:
        op: a key of :func:`.small_arrays.functions_on_tensors`.
        tensors, attributes: as in try_hot_path.
        written: the tensors that the operator writes.
    """
    if (
        torch is None
        or _is_dynamo_compiling()
        or backends.default_backend not in (None, "cpu")
        or _forward_ad._current_level >= 0
    ):
        return False
    grad = _is_grad_enabled()
    for tensor in (*tensors, *written):
        if type(tensor) not in ORDINARY or (grad and tensor.requires_grad):
            return False
    try:
        if not direct_function(op)(backends.packed_values(op, *attributes), *tensors, *written):
            return False
    except (TypeError, ValueError, BackendUnavailable):
        return False
    _increment_version(written)
    return True


def run(op: str, tensors: tuple[Any, ...], attributes: tuple[Any, ...]) -> Any:
    """Run an operator on the hot path if the call supports it, else through torch."""
    results = try_hot_path(op, tensors, attributes)
    if results is NotImplemented:
        results = getattr(torch.ops.npu_rope, op).default(*tensors, *attributes)
    return results


# Tensor types without their own dispatch. torch.nn.Parameter is one of them: requires_grad is checked
# separately, and torch.nn.Parameter(x) has the type of x if x is of a subclass of torch.Tensor.
ORDINARY: frozenset[Any] = frozenset()
if torch is not None:
    ORDINARY = frozenset({torch.Tensor, torch.nn.Parameter})
    _tracing_state = torch._C._get_tracing_state  # which the compiler traces, but not the faster _is_tracing
    _is_compiling, _is_grad_enabled = torch.compiler.is_compiling, torch.is_grad_enabled
    # Other parts of the compiler and torch.export have a dispatch mode or tensors of other types.
    _is_dynamo_compiling = torch.compiler.is_dynamo_compiling
    _dispatch_modes = torch._C._len_torch_dispatch_stack
    _function_transforms = torch._C._functorch.peek_interpreter_stack
    _forward_ad = torch.autograd.forward_ad
    _below_autograd = torch._C._AutoDispatchBelowAutograd
    _increment_version = torch._C._increment_version
    # Each returns a false object unless it has to see calls of operators.
    _WATCHERS = (
        _dispatch_modes,
        torch._C._len_torch_function_stack,
        _function_transforms,
        torch._C._is_tracing,
        torch.autograd._profiler_enabled,
    )
    # torch.compiler.disable would import the compiler with npu_rope.
    _uncompiled: Any = torch._disable_dynamo(
        lambda run, backend, call, attributes: run(backend, call, attributes)
    )
