"""Run a call whose uint16 arrays hold the bits of bfloat16 values, because NumPy has no bfloat16."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from ascend_sim import Options

from npu_rope import native
from npu_rope.call_tensors import CallTensors
from npu_rope.executors import qk_square_sums, qkv_norm_rope_cache, rms_norm, rotations
from npu_rope.optional_torch import torch
from npu_rope.rms_norm_calls import RmsNormAttributes
from npu_rope.testing.bounds import is_device
from npu_rope.testing.chip_types import soc_of

Array = npt.NDArray[Any]


def tensor_of_bits(array: Array) -> Any:
    """Return a torch tensor on an array's memory; uint16 is bfloat16's bits."""
    if array.dtype == np.uint16:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def c_tensor_of_bits(array: Array) -> native.CTensor:
    """Describe an array for the C library; uint16 is bfloat16's bits."""
    dtype = "bfloat16" if array.dtype == np.uint16 else array.dtype.name
    return native.c_tensor(
        array.ctypes.data, dtype, array.shape, tuple(stride // array.itemsize for stride in array.strides)
    )


_EXECUTORS = {"qkv_norm_rope_cache": qkv_norm_rope_cache, "qk_square_sums": qk_square_sums}


def run_on_bits(
    backend: str, tensors: CallTensors[Array], attributes: Any, results: tuple[Array, ...] = ()
) -> None:
    """Run a call by the C library, the simulator, or torch on an NPU. It writes ``tensors.outs``.

    Args:
        backend: any except ``reference``.
        tensors: the call's tensors.
        attributes: the call's attributes.
        results: the arrays that a call without outs writes.
    """
    is_norm = isinstance(attributes, RmsNormAttributes)
    executors: Any = rms_norm if is_norm else _EXECUTORS.get(tensors.op, rotations)
    arguments = (
        tensors,
        tuple(tensors.outs.values()) or results,
        attributes,
        *((attributes.axis % tensors.x.ndim,) if is_norm else ()),
    )
    if backend == "npu":
        made: dict[int, Any] = {}  # one tensor for each array: an output in place is its own input
        call = tensors.map(lambda array: made.setdefault(id(array), tensor_of_bits(array)))
        for result, computed in zip(results, executors.run(backend, call, attributes), strict=False):
            tensor_of_bits(result).copy_(computed)
    elif is_device(backend):
        executors.launch_on_sim(Options(soc_of(backend)), *arguments)
    else:
        executors.launch(*arguments, c_tensor_of_bits)
