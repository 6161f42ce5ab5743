"""Arrays and CPU tensors on an NPU: copied there with the strides they have, and back what was written.
For validation and tests; who has NPU tensors calls the operators on them (``npu_rope/ops/``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from npu_rope.checks import CallTensors
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
C = TypeVar("C", bound=CallTensors[Any])


def run(
    t: C,
    check: Callable[[C], None],
    launch: Callable[[dict[str, Any], dict[str, Any], list[Any]], None],
    *,
    written_whole: bool = True,
    new_results: Callable[[C], tuple[Any, ...]] | None = None,
) -> tuple[Any, ...]:
    """Arrays, or torch tensors of the CPU without gradient, to the NPU and back.

    Args:
        check: every rule, of values, too: what the binding cannot see of NPU tensors and the host can.
        launch: the operator on the NPU's xs and what is read beside them, by name, into the list, or what it
            returns in the list's place.
        written_whole: the results are written whole; else outs keep what is not written.
        new_results: memory for them where the call names none; like xs if this is not given.
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
    beside = {name: to_device(b) for name, b in t.beside().items()}
    # What is written in place is one tensor there, too.
    twins = {id(x): sources[name] for name, x in t.xs.items() if written_whole}
    written = [twins.get(id(result), None) for result in results]
    written = [to_device(r) if w is None else w for r, w in zip(results, written, strict=True)]
    launch(sources, beside, written)
    for result, device in zip(results, written, strict=True):
        copy_back(device, result)
    if tensors and t.outs:
        torch.autograd.graph.increment_version(results)
    return results


def to_device(t: Any) -> Any:
    """A tensor of the NPU with an array's or CPU tensor's shape, strides and values."""
    t = t.detach().resolve_neg() if is_tensor(t) else tensor_of(t)
    if t.numel() == 0:
        return torch.empty(t.shape, dtype=t.dtype, device=DEVICE)
    last = sum((size - 1) * stride for size, stride in zip(t.shape, t.stride(), strict=True))
    return t.as_strided((last + 1,), (1,)).to(DEVICE).as_strided(t.shape, t.stride())


def copy_back(result: Any, out: Any) -> None:
    """What the NPU wrote, into the array or CPU tensor that was asked for."""
    result = result.cpu()
    if is_tensor(out):
        out.copy_(result)
    elif out.dtype.name == "bfloat16":
        out[...] = result.view(torch.int16).numpy().view(out.dtype)
    else:
        out[...] = result.numpy()


def tensor_of(a: Array) -> Any:
    """An array as a tensor of the CPU: on the same memory, or a copy where torch could not see it."""
    if any(s < 0 or s % a.itemsize for s in a.strides) or not a.flags.writeable or not a.dtype.isnative:
        a = np.array(a, a.dtype.newbyteorder("="), order="C")
    if a.dtype.name == "bfloat16":
        return torch.from_numpy(a.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(a)
