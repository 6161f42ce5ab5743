"""The old name of :mod:`ascend_sim`, which is a package of its own: write ``import ascend_sim``."""

import warnings

from ascend_sim import *  # noqa: F403
from ascend_sim import __all__ as __all__

warnings.warn("npu_rope.simulator is ascend_sim now: import ascend_sim.", DeprecationWarning, stacklevel=2)
