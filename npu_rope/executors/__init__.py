"""Execute operators on arrays, one file per operator. This file holds the code that all of them share.

``rope.py`` holds the code that rope, rope_qk and rope_set_rows share; ``tensors.py`` handles arrays and
tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from npu_rope import backends, native
from npu_rope.errors import bad_type, bad_value
from npu_rope.optional_torch import torch

# ``const npu_rope_tensor *``
TENSOR = native.TENSOR


def c_entry(op: str, *argument_types: Any) -> Callable[..., None]:
    """The C entry ``npu_rope_<op>``; its status is raised as ValueError, TypeError or RuntimeError."""
    return native.load().checked_entry(f"npu_rope_{op}", *argument_types)


def run(op: str, executors: Mapping[str, Callable[..., Any]], backend: str, x: Any, *rest: Any) -> Any:
    """Run the backend's executor on x, an array or a CPU torch tensor. No gradient flows through a tensor.

    Raises:
        ValueError: the backend's name is unknown, or x is on another device.
        TypeError: x is neither an array nor a tensor.
        BackendUnavailable: the backend is unavailable or lacks this operator.
    """
    executor = backends.executor_of(op, executors, backend)
    if torch is not None and isinstance(x, torch.Tensor):
        if x.device.type != "cpu":
            raise bad_value(op, "x", f"be on device cpu for backend {backend}", x.device)
        return torch.from_numpy(executor(x.detach().numpy(), *rest))
    if not isinstance(x, np.ndarray):
        raise bad_type(op, "x", "be a torch tensor or a NumPy array", type(x).__name__)
    return executor(x, *rest)
