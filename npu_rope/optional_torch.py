"""torch if it is installed and loads; otherwise None, with the cause and its remedy for ``doctor``."""

from __future__ import annotations

import importlib
import platform
from typing import Any

from npu_rope.errors import BackendUnavailable

torch: Any = None
cause: str = ""
remedy: str = ""

try:
    import torch as _torch

    torch = _torch
except ImportError as error:
    cause, remedy = f"torch is not installed ({error})", "pip install torch"
    if (platform.system(), platform.machine()) == ("Linux", "x86_64"):  # PyPI's torch has CUDA there
        remedy += " --index-url https://download.pytorch.org/whl/cpu"
except (OSError, RuntimeError) as error:
    # torch loads device back ends automatically: with torch_npu but without CANN, importing torch fails.
    cause = f"torch does not load: {str(error).rstrip('.')}."
    remedy = (
        "With torch_npu but without CANN: source CANN's set_env.sh, or set TORCH_DEVICE_BACKEND_AUTOLOAD=0."
    )


def load_torch_npu() -> None:
    """Load torch_npu, also if torch does not load device back ends automatically.

    Raises:
        BackendUnavailable: torch_npu does not load.
    """
    try:
        importlib.import_module("torch_npu")
    except (ImportError, OSError, RuntimeError) as error:
        raise BackendUnavailable(
            "npu", f"torch_npu does not load: {error}", "See npu-rope doctor, and docs/npu.md."
        ) from error
