"""The old name of :mod:`ascend_sim`, which is a package of its own: write ``import ascend_sim``."""

import warnings
from collections.abc import Mapping

from ascend_sim import *  # noqa: F403
from ascend_sim import __all__ as __all__
from ascend_sim import compiler as _compiler

warnings.warn("npu_rope.simulator is ascend_sim now: import ascend_sim.", DeprecationWarning, stacklevel=2)


def operator_defines(op: str, soc: str, types: Mapping[str, str]) -> dict[str, str]:
    """The old form of :func:`ascend_sim.compiler.column_defines`, which takes the kernel's name."""
    return _compiler.column_defines(f"npu_{op}", soc, types)
