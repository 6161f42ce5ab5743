"""Run operators on an NPU for arrays and CPU tensors: copy the inputs with their strides, then copy the
results back. This is for validation and tests; ``npu_rope/ops`` runs calls on NPU tensors without it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from npu_rope import backends
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


def run(
    t: Call,
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
    tensors = is_tensor(t.first[1])
    if tensors:
        check_tensors("npu", t)
    else:
        t = as_arrays(t)
        check_whole_elements(t)
    check(t)
    make = new_results or (lambda t: tuple(empty_like(x) for x in t.xs.values()))
    results = tuple(t.outs.values()) or make(t)
    sources = {name: to_device(x) for name, x in t.xs.items()}
    other_inputs = {name: to_device(b) for name, b in t.other_inputs.items()}
    # An input that the call writes in place has one copy on the NPU, not one as input and one as output.
    copies = {id(x): sources[name] for name, x in t.xs.items() if written_whole}
    written = [copies.get(id(result), None) for result in results]
    written = [to_device(r) if w is None else w for r, w in zip(results, written, strict=True)]
    try:
        launch(sources, other_inputs, written)
    except (ValueError, TypeError, RuntimeError) as error:
        raise backends.raised_by_torch(str(error)) or error from error.__cause__
    for result, device in zip(results, written, strict=True):
        copy_back(device, result)
    if tensors and t.outs:
        torch.autograd.graph.increment_version(results)
    return results


def to_device(t: Any) -> Any:
    """Return an NPU tensor with the shape, strides and values of an array or a CPU tensor."""
    t = t.detach().resolve_neg() if is_tensor(t) else tensor_of(t)
    if t.numel() == 0:
        return torch.empty(t.shape, dtype=t.dtype, device=DEVICE)
    last = sum((size - 1) * stride for size, stride in zip(t.shape, t.stride(), strict=True))
    return t.as_strided((last + 1,), (1,)).to(DEVICE).as_strided(t.shape, t.stride())


def copy_back(result: Any, out: Any) -> None:
    """Copy an NPU result into the array or CPU tensor of the call."""
    result = result.cpu()
    if is_tensor(out):
        out.copy_(result)
    elif out.dtype.name == "bfloat16":
        out[...] = result.view(torch.int16).numpy().view(out.dtype)
    else:
        out[...] = result.numpy()


def tensor_of(a: Array) -> Any:
    """Return an array as a CPU tensor on its memory, or on a copy if torch cannot represent that memory."""
    if any(s < 0 or s % a.itemsize for s in a.strides) or not a.flags.writeable or not a.dtype.isnative:
        a = np.array(a, a.dtype.newbyteorder("="), order="C")
    if a.dtype.name == "bfloat16":
        return torch.from_numpy(a.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(a)
