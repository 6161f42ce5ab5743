"""Who executes an operator on arrays, one file an operator; here is what they share.

rope's own executors are in ``npu_rope/backends.py``.
"""

from __future__ import annotations

import ctypes as C
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from npu_rope import native
from npu_rope.backends import BACKENDS
from npu_rope.errors import BackendUnavailable, bad_type, bad_value
from npu_rope.optional_torch import torch

# ``const npu_rope_tensor *``
TENSOR = C.POINTER(native.CTensor)
_STATUS_ERRORS = {1: ValueError, 2: TypeError}


def c_entry(op: str, *argument_types: Any) -> Callable[..., None]:
    """The C entry ``npu_rope_<op>``; its status is raised as ValueError, TypeError or RuntimeError."""
    library = native.load().lib
    entry = getattr(library, f"npu_rope_{op}")
    entry.restype, entry.argtypes = C.c_int32, list(argument_types)

    def call(*arguments: Any) -> None:
        status = entry(*arguments)
        if status != 0:
            error = _STATUS_ERRORS.get(status, RuntimeError)
            raise error(library.npu_rope_last_error().decode())

    return call


def run(op: str, executors: Mapping[str, Callable[..., Any]], backend: str, x: Any, *rest: Any) -> Any:
    """The executor of that backend on x, an array or a torch tensor in the CPU's memory (through
    which no gradient flows).

    Raises:
        ValueError: there is no such backend, or x is on another device.
        TypeError: x is neither an array nor a tensor.
        BackendUnavailable: the backend is not here, or does not have this operator.
    """
    if backend not in BACKENDS:
        raise bad_value(op, f"backend must be one of {', '.join(BACKENDS)} but got {backend}.")
    BACKENDS[backend].require()
    if backend not in executors:
        raise BackendUnavailable(backend, f"it does not have {op}", f"Use one of: {', '.join(executors)}.")
    if torch is not None and isinstance(x, torch.Tensor):
        if x.device.type != "cpu":
            raise bad_value(op, f"x must be on device cpu for backend {backend} but got {x.device}.")
        return torch.from_numpy(executors[backend](x.detach().numpy(), *rest))
    if not isinstance(x, np.ndarray):
        raise bad_type(op, f"x must be a torch tensor or a NumPy array but got {type(x).__name__}.")
    return executors[backend](x, *rest)
