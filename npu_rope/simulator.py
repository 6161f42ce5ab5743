"""The old name of :mod:`ascend_sim`, which is a package of its own: write ``import ascend_sim``."""

from __future__ import annotations

import warnings

from ascend_sim import (
    CompileFailed,
    In,
    InOut,
    Kernel,
    KernelBroken,
    Out,
    Report,
    Sum,
    build,
    compile,
    conversions,
    instructions,
)

warnings.warn("npu_rope.simulator is ascend_sim now: import ascend_sim.", DeprecationWarning, stacklevel=2)

__all__ = [
    "CompileFailed",
    "In",
    "InOut",
    "Kernel",
    "KernelBroken",
    "Out",
    "Report",
    "Sum",
    "build",
    "compile",
    "conversions",
    "instructions",
]
