"""ascend_sim: an Ascend machine in software.

AscendC kernels run unmodified on simulated cores, which check the documented rules of the hardware:

>>> import numpy as np
>>> from ascend_sim import In, Out, compile
>>> kernel = compile("add_custom.cpp", "add_custom")  # doctest: +SKIP
>>> report = kernel.run(In(x), In(y), Out(z), block_dim=8)  # doctest: +SKIP

Programs of torch_npu run unmodified on a simulated CANN: ``ascend-sim run -- python script.py``.
"""

from ascend_sim.compiler import CompileFailed, build
from ascend_sim.errors import Unavailable
from ascend_sim.kernels import (
    In,
    InOut,
    Kernel,
    KernelBroken,
    Out,
    Part,
    Report,
    Sum,
    compile,
    conversions,
    instructions,
)
from ascend_sim.library import Options
from ascend_sim.operator_sources import OperatorReport, OperatorSources, Tiling

# The version of both distributions of this repository. Their pyproject.toml and CMakeLists.txt read it here.
__version__ = "0.1.0"

__all__ = [
    "CompileFailed",
    "In",
    "InOut",
    "Kernel",
    "KernelBroken",
    "OperatorReport",
    "OperatorSources",
    "Options",
    "Out",
    "Part",
    "Report",
    "Sum",
    "Tiling",
    "Unavailable",
    "__version__",
    "build",
    "compile",
    "conversions",
    "instructions",
]
