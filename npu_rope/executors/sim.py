"""Run calls on the simulated cores, for arrays and for CPU torch tensors: through definitions, tilings and
aclnn's two phases as on an NPU, but with the host's memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from ascend_sim import KernelBroken, Options
from ascend_sim.package import Refused, Tensor

from npu_rope import backends, simulated_package
from npu_rope.call_tensors import CallTensors, TensorSpec
from npu_rope.dtypes import bfloat16_values
from npu_rope.errors import InternalError, bad_value, broken
from npu_rope.executors import npu
from npu_rope.executors.tensors import (
    as_arrays,
    assign,
    check_tensors,
    check_whole_elements,
    empty_like,
    is_tensor,
    spec_of,
)
from npu_rope.optional_torch import torch

Call = CallTensors[Any]
Results = tuple[Any, ...]
Execute = Callable[[Call, Any], Results]


def by_backend(
    on_reference: Execute, on_cpu: Execute, on_npu: Execute, on_sim: Callable[[Options, Call, Any], Results]
) -> Callable[[str, Call, Any], Results]:
    """Return a function ``run(backend, call, attributes)`` that chooses an operator's executor by the back
    end's name."""
    executors: Mapping[str, Execute] = {
        "reference": on_reference,
        "cpu": on_cpu,
        "npu": on_npu,
        "sim": partial(on_sim, Options()),
        **{f"sim:{soc}": partial(on_sim, Options(soc)) for soc in backends.SIMULATED_SOCS},
    }

    def run(backend: str, call: Call, attributes: Any) -> Results:
        """Run a call with its attributes on the back end of that name. Return the written tensors.

        Raises:
            ValueError, TypeError: an argument breaks its rule; nothing was written.
            BackendUnavailable: the back end is unavailable or lacks this operator.
        """
        return backends.executor_of(call.op, executors, backend)(call, attributes)

    return run


def run(
    options: Options,
    call: Call,
    check: Callable[[Call], None],
    launch: Callable[[Call, Results], None],
    new_results: Callable[[Call], Results] | None = None,
) -> tuple[Any, ...]:
    """Check a call and launch the kernel, into outs or new memory. Tensors get no gradient.

    Args:
        check: checks every rule, including rules of element values, which a kernel cannot check.
        launch: launches the kernel for a call and its results.
        new_results: allocates the results of a call without outs; by default they are like xs.
    """
    simulated_package.load()
    tensors = is_tensor(call.first[1])
    if tensors:
        check_tensors("sim" if options.soc is None else f"sim:{options.soc}", call)
        for name, out in call.outs.items():
            if out.is_neg():
                raise bad_value(call.op, name, "hold its own values", "a view that negates them")
    else:
        call = as_arrays(call)
        check_whole_elements(call)
    check(call)
    launched = call if tensors else _with_positive_strides(call)
    allocate = new_results or (lambda call: tuple(empty_like(x) for x in call.xs.values()))
    results = tuple(launched.outs.values()) or allocate(call)
    if any(0 not in x.shape for x in launched.xs.values()):
        launch(launched, results)
    for out, result in zip(call.outs.values(), results, strict=False):
        if out is not result:
            assign(out, result)
    if tensors and call.outs:
        # Autograd must detect a write to a tensor that it saved for a gradient.
        torch.autograd.graph.increment_version(results)
    return tuple(call.outs.values()) or results


def _with_positive_strides(call: Call) -> Call:
    """Return the call with copies of arrays that have negative strides, which aclnn does not document."""
    copies: dict[int, Any] = {}

    def copy_if_negative(array: Any) -> Any:
        if all(step >= 0 for step in array.strides):
            return array
        return copies.setdefault(id(array), array.copy(order="C"))

    return call.map(copy_if_negative)


# The inputs that aclnn makes contiguous (AutoContiguous() in op_host/). The attribute `strides` does not list
# their strides.
_CONTIGUOUS = (
    *("q_scale", "k_scale", "q_bias", "k_bias", "freq_factors", "square_sums"),
    *("k_quant_scale", "k_quant_offset", "v_quant_scale", "v_quant_offset"),
)


def launch(
    options: Options,
    op: str,
    kernel: str,
    tensors: Mapping[str, Any],
    attributes: Mapping[str, Any],
) -> None:
    """Launch an operator of the package once, for a call that was checked for the options' chip.

    torch's deterministic mode (``torch.use_deterministic_algorithms``) is passed on as torch_npu does.

    Args:
        options: the simulator's options.
        op: the operator's name in messages.
        kernel: the stem of the launched operator.
        tensors: arrays or CPU tensors in the definition's order, by its names; None for an absent one.
            uint16 arrays are bfloat16's bits.
        attributes: by the definition's names, without ``strides``.

    Raises:
        InternalError: the operator refused the call, the kernel broke a rule of the simulator, or the machine
            has too little memory.
    """
    package = simulated_package.load()
    if torch is not None and torch.are_deterministic_algorithms_enabled():
        options = replace(options, deterministic=True)
    given = {name: None if tensor is None else described(tensor) for name, tensor in tensors.items()}
    views = [v for name, v in given.items() if v is not None and name not in _CONTIGUOUS]
    try:
        package.call(type_of(kernel), {**given, **attributes, "strides": _strides_of(views)}, options)
    except KernelBroken as error:
        violations = str(error).removesuffix(".")
        raise broken(InternalError, op, "kernel", "keep the simulator's rules", violations) from error
    except Refused as error:
        raise broken(InternalError, op, "call", "succeed", str(error).removesuffix(".")) from error


def chip_of(options: Options) -> str:
    """Return CANN's name of the options' chip.

    Raises:
        ValueError: there is no such chip.
    """
    return str(simulated_package.load().chip(options.soc)["name"])


def chip_of_backend(name: str) -> str | None:
    """Return CANN's name of the chip of a back end, or None if no chip runs its calls."""
    if name == npu.DEVICE:
        return npu.chip()
    backend, _, soc = name.partition(":")
    return chip_of(Options(soc or None)) if backend == "sim" else None


def type_of(kernel: str) -> str:
    """Return the operator's type in CANN: ``NpuRopeQk`` for rope_qk."""
    return "Npu" + "".join(word.capitalize() for word in kernel.split("_"))


def described(tensor: Any) -> Tensor:
    """Describe the memory of an array or a tensor to aclnn; a uint16 array holds bfloat16's bits."""
    if is_tensor(tensor):
        spec = spec_of(tensor)
        return Tensor(tensor.data_ptr(), spec.dtype, spec.shape, spec.strides)
    return Tensor.of(tensor, dtype="bfloat16" if tensor.dtype == np.uint16 else None)


def spec_of_launch(tensor: Any) -> TensorSpec:
    """Return the spec of an array or a tensor as :func:`launch` takes it: a uint16 array is bfloat16."""
    launched = described(tensor)
    return TensorSpec(launched.dtype, tuple(launched.shape), tuple(launched.strides))


def _strides_of(views: list[Tensor]) -> list[int]:
    """Return the attribute ``strides``: the views' strides, or one 0 if all are dense (op_host/cann.h)."""
    if all(view.is_contiguous() for view in views):
        return [0]
    return [step for view in views for step in view.strides]


def int64_of(numbers: Any) -> Any:
    """Return row numbers as int64, their type in the definitions."""
    return numbers.long() if is_tensor(numbers) else numbers.astype(np.int64, copy=False)


def int32_of(numbers: Any) -> Any:
    """Return numbers that int32 holds as int32."""
    return numbers.int() if is_tensor(numbers) else numbers.astype(np.int32, copy=False)


def float32_of(values: Any) -> Any:
    """Return values as float32. A uint16 array holds bfloat16's bits."""
    if is_tensor(values):
        return values.float()
    return bfloat16_values(values) if values.dtype == np.uint16 else values.astype(np.float32)


def new_like(tensor: Any, *shape: int) -> Any:
    """Allocate memory of the same type."""
    return tensor.new_empty(shape) if is_tensor(tensor) else np.empty(shape, tensor.dtype)
