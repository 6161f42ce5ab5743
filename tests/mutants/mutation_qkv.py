"""The kernel of qkv_norm_rope_cache, for mutate_kernels.py: sources, columns and equivalent mutants."""

# ruff: noqa: E501 - the keys below are lines of code
from __future__ import annotations

from pathlib import Path

from mutation_rope import QKV, QKV_HEADERS, ROOT, Column, build, qkv_norm_rope_cache

__all__ = ["EQUIVALENT", "build", "columns", "columns_for", "script_of", "sources"]

columns = (
    qkv_norm_rope_cache("ascend910b", "half", "float", "int64_t"),
    QKV,
    qkv_norm_rope_cache("ascend910b", "float", "float", "int32_t"),
    qkv_norm_rope_cache("ascend310p", "half", "half", "int32_t"),
    qkv_norm_rope_cache("ascend310p", "float", "float", "int32_t"),
)


def script_of(_: Column) -> str:
    """The script whose calls a column must compute correctly."""
    return "mutation_qkv_calls.py"


def columns_for(_: str) -> list[Column]:
    """The columns that compile the file and test its code: all of them."""
    return list(columns)


def sources() -> list[Path]:
    """The kernel, its entry and the headers whose lines the kernel uses."""
    kernels = ROOT / "op_kernel"
    return [*(kernels / name for name in QKV_HEADERS), kernels / "npu_qkv_norm_rope_cache.cpp"]


# For each mutant, named as by mutate_kernels.key_of: why it computes the same, or which test catches it.
EQUIVALENT: dict[str, str] = {
    "qkv_kernel.h | a number - 1 | static constexpr int32_t kLowestInt8 = {-128}, kHighestInt8 = 127;": "Cast to int8 saturates",
    "qkv_kernel.h | comparison | for (int32_t side = 0; side{ < }kRopeMaxSides; ++side) has_padding |= "
    "HeadOf(side).pitch != HeadOf(side).size;": "a side after the values has the head of the queries",
    "qkv_kernel.h | count or repeat + 1 | {static_cast<uint32_t>(head_.size)});": "an element of the row's padding, which is not stored",
}
