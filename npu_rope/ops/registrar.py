"""Registration of npu_rope's torch operators.

An operator's file describes each of its schemas by a :class:`TorchOperator`. :func:`register` defines the
schema and registers its kernels: fake tensors, CPU tensors without the C++ registration, autograd,
functionalisation and placeholders for NPU tensors. The C++ kernels are in ``csrc/torch`` (CPU) and
``csrc/npu`` (NPU).
"""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

from ascend_sim.elf import check_whole, load_fault

from npu_rope import backends
from npu_rope.errors import BackendUnavailable
from npu_rope.executors.tensors import require_no_negation
from npu_rope.ops import gradients
from npu_rope.optional_torch import load_torch_npu, torch

Call = tuple[Any, Any]  # a call's tensors (call_tensors.CallTensors) and its attributes
NoGradient = tuple[str | None, str, str]  # argument, rule and value of an error message
Results = Mapping[str, Any]  # tensors, by their names in CallTensors.outs


@dataclass(frozen=True)
class TorchOperator:
    """A torch operator of this package.

    Attributes:
        schema: the schema in torch's syntax. Its defaults are those of the Python function.
        call: returns a call's tensors and attributes from the schema's arguments. torch omits arguments that
            equal their defaults.
        check: raises an error if a call breaks a rule. The tensors may be fake.
        on_cpu: runs a call through ctypes, into its outs: the CPU kernel without the C++ registration.
        results: allocates the tensors that the operator returns.
        autograd: the Autograd kernel. None: a kernel made from ``gradient``, or one that rejects gradients.
        gradient: the gradient of an operator whose backward is another operator.
        no_gradient: the error of an operator that writes, if a tensor needs a gradient. If its argument is
            None, the error names that tensor.
        functional: the name of the operator without writes that replaces this one under functionalisation.
            None: torch's own replacement, which writes in place.
        hot_path: the operator has no Autograd kernel; its callers exclude gradients.
        on_npu: ``csrc/npu`` has the kernel for NPU tensors. False: NPU tensors are rejected.
    """

    schema: str
    call: Callable[..., Call]
    check: Callable[[Any, Any], Any]
    on_cpu: Callable[[Any, Any], Any]
    results: Callable[[Any], Results] = lambda call: {}
    autograd: Callable[[Any, Any], Any] | None = None
    gradient: gradients.Gradient | None = None
    no_gradient: NoGradient = (None, "not need a gradient where memory is given", "one that does")
    functional: str | None = None
    hot_path: bool = False
    on_npu: bool = True

    @property
    def name(self) -> str:
        """The operator's name in the namespace npu_rope."""
        return self.schema.partition("(")[0]


registered: dict[str, TorchOperator] = {}  # by name

PACKED = "_packed"  # ends the name of an operator with packed attributes, which has no Autograd kernel


def like_xs(*names: str) -> Callable[[Any], Results]:
    """Return ``TorchOperator.results`` for outputs of these names, with the shapes and dtypes of xs."""
    return lambda call: {name: x.new_empty(x.shape) for name, x in zip(names, call.xs.values(), strict=False)}


def schema_of_inputs(names: tuple[str, ...]) -> str:
    """Return the part of a schema that declares tensors that the operator reads."""
    return ", ".join(f"Tensor {name}" for name in names)


def schema_of_outputs(names: tuple[str, ...]) -> str:
    """Return the part of a schema that declares tensors that the operator writes."""
    return ", ".join(f"Tensor({alias}!) {name}" for alias, name in zip("ab", names, strict=False))


def one_or_all(tensors: tuple[Any, ...]) -> Any:
    """Return the tensor of a tuple of one, and any other tuple unchanged."""
    return tensors[0] if len(tensors) == 1 else tensors


def register(*operators: TorchOperator) -> None:
    """Define operators and register their kernels with torch. Does nothing without torch."""
    if torch is None:
        return
    path = backends.torch_registration()
    by_ctypes = path is None or bool(registration_error(path))
    needs_placeholders = not _try_binding()
    for operator in operators:
        name = operator.name
        registered[name] = operator
        _library.define(operator.schema, tags=(torch.Tag.pt2_compliant_tag,))
        overload = getattr(torch.ops.npu_rope, name).default
        # The fake runs if any tensor is a meta or fake tensor.
        torch.library.register_fake(f"npu_rope::{name}", _kernel(operator, operator.check), lib=_library)
        if by_ctypes:
            _library.impl(name, _kernel(operator, operator.on_cpu), "CPU")
        if operator.hot_path:
            gradients.without_autograd[name.removesuffix(PACKED)] = gradients.callable_of(overload)
            if operator.schema.endswith("-> ()"):  # torch's own kernel does nothing for it
                _library.impl(name, torch.library.fallthrough_kernel, "Autograd")
        else:
            _library.impl(name, _autograd(operator, overload), "Autograd")
        if "!)" in operator.schema:
            _library.impl(name, _negation(operator, overload), "Negative")
        if operator.functional is not None:
            gradients.trace_as(overload, operator.functional)
        if not operator.on_npu:
            _library.impl(name, _npu_refusal(name), "PrivateUse1")
        elif needs_placeholders:
            _placeholders.impl(name, _placeholder(name), "PrivateUse1")


def register_composite(schema: str, kernel: Callable[..., Any]) -> None:
    """Define an operator that calls other operators on every device. Does nothing without torch."""
    if torch is not None:
        _library.define(schema, tags=(torch.Tag.pt2_compliant_tag,))
        _library.impl(schema.partition("(")[0], kernel, "CompositeImplicitAutograd")


# ---- kernels ---------------------------------------------------------------------------------------


def _returned(results: tuple[Any, ...]) -> Any:
    """Return results as torch expects them of a kernel."""
    return results if len(results) > 1 else results[0] if results else None


def _kernel(operator: TorchOperator, run: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    """Return a kernel that allocates the results and passes the whole call to ``run``."""

    def kernel(*args: Any, **kwargs: Any) -> Any:
        call, attributes = operator.call(*args, **kwargs)
        results = operator.results(call)
        run(replace(call, outs={**results, **call.outs}) if results else call, attributes)
        return _returned(tuple(results.values()))

    return kernel


def _autograd(operator: TorchOperator, overload: Any) -> Callable[..., Any]:
    if operator.gradient is not None:
        return gradients.autograd_kernel_of(overload, operator.gradient)

    def kernel(*args: Any, **kwargs: Any) -> Any:
        call, attributes = operator.call(*args, **kwargs)
        if operator.autograd is not None:
            return _returned(operator.autograd(call, attributes))
        return gradients.write_under_autograd(call, operator.no_gradient, partial(overload, *args, **kwargs))

    return kernel


def _negation(operator: TorchOperator, overload: Any) -> Callable[..., Any]:
    """Return the kernel for calls with a tensor that torch negates lazily. If such a tensor is to be written,
    torch's own kernel runs the operator and then fails, because the operator does not return the tensor."""

    def kernel(*args: Any, **kwargs: Any) -> Any:
        call, _ = operator.call(*args, **kwargs)
        for name, tensor in call.outs.items():
            require_no_negation(call.op, name, tensor)
        return overload(*map(_resolved, args), **{name: _resolved(value) for name, value in kwargs.items()})

    return kernel


def _resolved(value: Any) -> Any:
    return value.resolve_neg() if isinstance(value, torch.Tensor) else value


@cache
def registration_error(path: str) -> str:
    """Load the C++ kernels for CPU tensors. Return "", or why they do not load, with a warning. Without them,
    calls go through ctypes, with the same results."""
    try:
        for library in Path(path).parent.glob("libnpu_rope*.so"):  # it is linked with libnpu_rope
            check_whole(library)
        torch.ops.load_library(path)
        if not backends.is_torch_registration(path):
            raise OSError(f"{path}: it is no registration of npu_rope")
    except OSError as error:
        fault = load_fault(Path(path), error.__cause__ or error)
        text = f"[npu_rope] {path} must load but got {fault}. Calls on tensors are slower."
        text += f" {REINSTALL}"
        warnings.warn(text, RuntimeWarning, stacklevel=2)
        return fault
    return ""


# ---- NPU tensors -----------------------------------------------------------------------------------

REINSTALL = (
    "Install npu_rope again, from a checkout, with the installed torch and torch_npu: "
    "pip install --no-build-isolation --force-reinstall --no-deps . "
    "(npu-rope doctor shows which versions are compatible.)"
)
_binding_is_loaded = False
_binding_error = ""


def _placeholder(name: str) -> Callable[..., Any]:
    """Return a kernel for NPU tensors that loads the binding on first use, so the import order of npu_rope
    and torch_npu does not matter. Without it torch_npu's fallback would run the operator on the CPU, and
    write before it fails."""

    def load_and_call(*arguments: Any, **named: Any) -> Any:
        require_npu()
        return getattr(torch.ops.npu_rope, name).default(*arguments, **named)

    return load_and_call


def _npu_refusal(name: str) -> Callable[..., None]:
    """Return a kernel that rejects NPU tensors. Without it torch_npu would copy them to the host and write
    to the copies."""

    def refuse(*_: Any, **__: Any) -> None:
        op = re.sub(rf"({PACKED}(_|_out)?|_heads_first|_to_halves)$", "", name)
        raise RuntimeError(f"[{op}] tensors must be on device cpu in {name} but got npu.")

    return refuse


def _try_binding() -> bool:
    """Load the binding if torch_npu is loaded already. Return whether the binding is loaded."""
    if "torch_npu" in sys.modules:
        _load_binding()
    return _binding_is_loaded


@cache
def _load_binding() -> None:
    """Load the kernels for NPU tensors if they were built. torch_npu and CANN must be loaded before."""
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
    """Return why the binding did not load; empty if it did, or if nothing has tried to load it yet."""
    return _binding_error


@cache
def require_npu() -> None:
    """Load torch_npu and the binding, or raise BackendUnavailable."""
    backends.find("npu").require()
    load_torch_npu()
    _load_binding()
    if error := npu_binding_error():
        raise BackendUnavailable("npu", f"npu_rope's binding of torch_npu does not load: {error}", REINSTALL)


if torch is not None:
    # A kernel stays registered as long as its Library object exists.
    _library = torch.library.Library("npu_rope", "FRAGMENT")
    _placeholders = torch.library.Library("npu_rope", "IMPL")
