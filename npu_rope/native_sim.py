"""The old name of :mod:`ascend_sim.library`: write ``import ascend_sim.library``."""

import warnings

from ascend_sim.library import Options as SimOptions
from ascend_sim.library import load

__all__ = ["SimOptions", "load"]

warnings.warn(
    "npu_rope.native_sim is ascend_sim.library now: import ascend_sim.library.",
    DeprecationWarning,
    stacklevel=2,
)
