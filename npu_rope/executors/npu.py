"""Run operators on an NPU for arrays and CPU tensors: copy the inputs with their strides, then copy the
results back. This is for validation and tests; ``npu_rope/ops`` runs calls on NPU tensors without it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from npu_rope import backends, chips
from npu_rope.call_tensors import CallTensors
from npu_rope.executors.tensors import (
    Array,
    as_arrays,
    check_tensors,
    check_whole_elements,
    empty_like,
    is_tensor,
)
from npu_rope.optional_torch import load_torch_npu, torch

DEVICE = "npu"
Call = CallTensors[Any]


def chip() -> str | None:
    """Return CANN's name of this process's NPU, or of another chip of its SoC if chips.py lacks that name;
    None if no SoC of chips.py has it."""
    name = torch.npu.get_device_name()
    soc = chips.soc_of(name)
    if soc is None:
        return None
    return name if name in chips.CHIPS[soc] else chips.CHIPS[soc][0]


def run(
    call: Call,
    check: Callable[[Call], object],
    launch: Callable[[dict[str, Any], dict[str, Any], list[Any]], None],
    *,
    written_whole: bool = True,
    new_results: Callable[[Call], tuple[Any, ...]] | None = None,
) -> tuple[Any, ...]:
    """Run a call on the NPU for arrays, or for CPU torch tensors without a gradient.

    Args:
        check: checks every rule, including rules of element values, which the binding cannot read from NPU
            tensors.
        launch: runs the operator on the NPU tensors of xs and of the other inputs, both by name. It writes
            into the tensors of the list, or replaces the list's elements by the operator's results.
        written_whole: the operator writes every element of its results. Otherwise the elements of outs that
            it does not write keep their values.
        new_results: allocates the results of a call without outs; by default they are like xs.
    """
    load_torch_npu()
    tensors = is_tensor(call.first[1])
    if tensors:
        check_tensors("npu", call)
    else:
        call = as_arrays(call)
        check_whole_elements(call)
    check(call)
    make = new_results or (lambda call: tuple(empty_like(x) for x in call.xs.values()))
    results = tuple(call.outs.values()) or make(call)
    sources = {name: to_device(x) for name, x in call.xs.items()}
    other_inputs = {name: to_device(value) for name, value in call.other_inputs.items()}
    # An input that the call writes in place has one copy on the NPU, not one as input and one as output.
    copies = {id(x): sources[name] for name, x in call.xs.items() if written_whole}
    written = [copies.get(id(result)) for result in results]
    written = [to_device(r) if copy is None else copy for r, copy in zip(results, written, strict=True)]
    try:
        launch(sources, other_inputs, written)
    except (ValueError, TypeError, RuntimeError) as error:
        raise backends.raised_by_torch(str(error)) or error from error.__cause__
    for result, on_device in zip(results, written, strict=True):
        copy_back(on_device, result)
    if tensors and call.outs:
        torch.autograd.graph.increment_version(results)
    return results


def to_device(tensor: Any) -> Any:
    """Return an NPU tensor with the shape, strides and values of an array or a CPU tensor."""
    tensor = tensor.detach().resolve_neg() if is_tensor(tensor) else tensor_of(tensor)
    if tensor.numel() == 0:
        return torch.empty(tensor.shape, dtype=tensor.dtype, device=DEVICE)
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.as_strided((last + 1,), (1,)).to(DEVICE).as_strided(tensor.shape, tensor.stride())


def copy_back(result: Any, out: Any) -> None:
    """Copy an NPU result into the array or CPU tensor of the call."""
    result = result.cpu()
    if is_tensor(out):
        out.copy_(result)
    elif out.dtype.name == "bfloat16":
        out[...] = result.view(torch.int16).numpy().view(out.dtype)
    else:
        out[...] = result.numpy()


def tensor_of(array: Array) -> Any:
    """Return an array as a CPU tensor on its memory, or on a copy if torch cannot represent that memory."""
    torch_supports_strides = all(step >= 0 and step % array.itemsize == 0 for step in array.strides)
    if not (torch_supports_strides and array.flags.writeable and array.dtype.isnative):
        array = np.array(array, array.dtype.newbyteorder("="), order="C")
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)
