"""Run a call whose bfloat16 arrays hold bits in uint16, because NumPy has no bfloat16."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from ascend_sim import Options

from npu_rope import native
from npu_rope.call_tensors import CallTensors
from npu_rope.executors import rms_norm, rotations
from npu_rope.optional_torch import torch
from npu_rope.rms_norm_calls import RmsNormAttributes
from npu_rope.testing.bounds import is_device
from npu_rope.testing.chip_types import soc_of

Array = npt.NDArray[Any]


def tensor_of_bits(a: Array) -> Any:
    """Return a torch tensor on an array's memory; uint16 is bfloat16's bits."""
    if a.dtype == np.uint16:
        return torch.from_numpy(a.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(a)


def c_tensor_of_bits(a: Array) -> native.CTensor:
    """Describe an array for the C library; uint16 is bfloat16's bits."""
    dtype = "bfloat16" if a.dtype == np.uint16 else a.dtype.name
    return native.c_tensor(a.ctypes.data, dtype, a.shape, tuple(s // a.itemsize for s in a.strides))


def run_on_bits(backend: str, t: CallTensors[Array], a: Any) -> None:
    """Run a call by the C library, the simulator, or torch on an NPU; it writes ``t.outs``.

    Args:
        backend: any but ``reference``.
        t, a: the call's tensors and attributes.
    """
    is_norm = isinstance(a, RmsNormAttributes)
    executors: Any = rms_norm if is_norm else rotations
    arguments = t, tuple(t.outs.values()), a, *((a.axis % t.x.ndim,) if is_norm else ())
    if backend == "npu":
        executors.run(backend, t.map(tensor_of_bits), a)
    elif is_device(backend):
        executors.launch_on_sim(Options(soc_of(backend)), *arguments)
    else:
        executors.launch(*arguments, c_tensor_of_bits)
