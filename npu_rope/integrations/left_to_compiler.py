"""Decide whether torch.compile keeps the model's own code for a call of a patched model.

The compiler fuses the model's own code with the code around it, and cannot fuse an operator. The functions
are for calls while :func:`is_compiling`, which callers ask first. torch.jit.trace always gets the model's own
code, so that its program has only torch's operators (:func:`npu_rope.ops.calls.records_calls`).
"""

from __future__ import annotations

import torch

# The time of a compiled Llama of 4 layers of 512 with our rotations and norms, divided by that with its own
# code: 1.10 to 1.15 for 1 token, 1.00 to 1.02 for 128. With 512 tokens and our rotations alone, six families
# take 0.99 to 1.01.
MOST_ROTATED_ELEMENTS_LEFT_TO_COMPILER = 128 * 512


# Names of this module: torch.compile would guard each attribute of torch in each graph.
is_compiling = torch.compiler.is_compiling
_is_exporting = torch.compiler.is_exporting


def is_norm_left_to_compiler(x: torch.Tensor) -> bool:
    """Return whether a norm that torch.compile or torch.export traces is on the CPU. Models of 512 with our
    norms take 0.99 to 1.04 of the time with their own, for 512 and for 2,048 tokens."""
    return x.is_cpu


def is_rotation_left_to_compiler(x: torch.Tensor) -> bool:
    """Return whether a traced rotation on the CPU is exported, because an exported program has only torch's
    operators, or is small, because the call of an operator then takes more time than the operator saves."""
    return x.is_cpu and (_is_exporting() or x.numel() <= MOST_ROTATED_ELEMENTS_LEFT_TO_COMPILER)
