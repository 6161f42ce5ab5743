"""The kernel of qk_square_sums, for mutate_kernels.py: sources, columns and equivalent mutants."""

from __future__ import annotations

from pathlib import Path

from mutation_rope import ROOT, Column, build

__all__ = ["EQUIVALENT", "build", "columns", "columns_for", "script_of", "sources"]


def qk_square_sums(soc: str, x: str) -> Column:
    return Column("qk_square_sums", soc, {"Q": x, "K": x, "OUT": "float"})


columns = (
    qk_square_sums("ascend910b", "float"),
    qk_square_sums("ascend910b", "half"),
    qk_square_sums("ascend910b", "bfloat16_t"),
    qk_square_sums("ascend310p", "half"),
    qk_square_sums("ascend310p", "float"),
)


def script_of(_: Column) -> str:
    """The script whose calls a column must compute correctly."""
    return "mutation_square_sums_calls.py"


def columns_for(_: str) -> list[Column]:
    """The columns that compile the file and test its code: all of them."""
    return list(columns)


def sources() -> list[Path]:
    """The kernel and its entry. mutation_norm.py has the headers that the norms' kernels use too."""
    kernels = ROOT / "op_kernel"
    return [kernels / "norm/square_sums_kernel.h", kernels / "npu_qk_square_sums.cpp"]


# For each mutant, named as by mutate_kernels.key_of: why it computes the same, or which test catches it.
EQUIVALENT: dict[str, str] = {}
