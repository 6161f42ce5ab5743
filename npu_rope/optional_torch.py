"""torch where it is installed and loads; otherwise None, with the cause kept for ``doctor``."""

from __future__ import annotations

from typing import Any

torch: Any = None
cause: str = ""
remedy: str = ""

try:
    import torch as _torch

    torch = _torch
except ImportError as error:
    cause, remedy = f"torch is not installed ({error})", "pip install torch"
except (OSError, RuntimeError) as error:
    # torch autoloads device back ends: with torch_npu but no CANN, importing torch itself fails.
    cause = f"torch does not load: {str(error).rstrip('.')}."
    remedy = (
        "With torch_npu but without CANN: source CANN's set_env.sh, or set TORCH_DEVICE_BACKEND_AUTOLOAD=0."
    )
