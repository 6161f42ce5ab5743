"""The norms' kernels, and rms_norm_rope's heads, for mutate_kernels.py: sources, how they are compiled, and which
mutants are equivalent."""

# ruff: noqa: E501 - the keys below are lines of code
from __future__ import annotations

from pathlib import Path

from mutation_rope import NORMS_OWN, ROOT, Column, build

__all__ = ["EQUIVALENT", "build", "columns", "columns_for", "judge_of", "sources"]

A, P = "ascend910b", "ascend310p"
BF16, F16, F32 = "bfloat16_t", "half", "float"


def _rms_norm(soc: str, x: str, scale: str) -> Column:
    return Column("rms_norm", soc, {"X": x, "SCALE": scale, "OUT": scale})


def _add_rms_norm(soc: str, x: str, scale: str) -> Column:
    return Column("add_rms_norm", soc, {"X": x, "RESIDUAL": x, "SCALE": scale, "OUT": scale, "SUM": x})


def _backward(soc: str, x: str, scale: str) -> Column:
    types = {"GRAD": scale, "X": x, "SCALE": scale, "DSCALE": "float", "DX": x}
    return Column("rms_norm_backward", soc, types)


def _rope(soc: str, x: str, positions: str) -> Column:
    types = {"Q": x, "K": x, "Q_SCALE": x, "K_SCALE": x, "POSITIONS": positions, "ROWS": "int64_t"}
    return Column(
        "rms_norm_rope", soc, {**types, "FREQ_FACTORS": "float", "CACHE": x, "Q_OUT": x, "K_OUT": x}
    )


columns = (
    _rms_norm(A, F16, F16),
    _rms_norm(A, BF16, F32),
    _rms_norm(A, F32, F32),
    _rms_norm(P, F16, F16),
    _rms_norm(P, F32, F32),
    _add_rms_norm(A, F16, F32),
    _add_rms_norm(A, F32, F32),
    _add_rms_norm(P, F16, F16),
    _add_rms_norm(P, F32, F32),
    _backward(A, F16, BF16),
    _backward(A, F32, F32),
    _backward(P, F16, F16),
    _backward(P, F32, F32),
    _rope(A, BF16, "int32_t"),
    _rope(A, F16, "int64_t"),
    _rope(A, F32, "int32_t"),
    _rope(P, F16, "int32_t"),
    _rope(P, F32, "int64_t"),
)


def judge_of(_: Column) -> str:
    """The script whose calls a column must get right."""
    return "mutation_norm_calls.py"


def columns_for(file: str) -> list[Column]:
    """Those that compile the file and look at what is in it; entries only their own."""
    name = Path(file).name
    if name in NORMS_OWN:
        return [c for c in columns if c.op in NORMS_OWN[name]]
    return [c for c in columns if name == f"npu_{c.op}.cpp"]


def sources() -> list[Path]:
    """The kernels, their entries and what they alone share."""
    entries = sorted((ROOT / "op_kernel").glob("npu_*rms_norm*.cpp"))
    return [*(ROOT / "op_kernel" / "common" / name for name in NORMS_OWN), *entries]


# Mutants that compute the same, or are noticed elsewhere, and why; by mutate_kernels.key_of.
EQUIVALENT: dict[str, str] = {
    "rms_norm_kernel.h | queue depth | AscendC::TQue<AscendC::TPosition::VECIN, {1}> in_, residual_;": "the queue never holds more than one tensor between EnQue and DeQue",
    "rms_norm_kernel.h | queue depth | AscendC::TQue<AscendC::TPosition::VECOUT, {1}> out_, sum_;": "the queue never holds more than one tensor between EnQue and DeQue",
    "row_norm.h | a number + 1 | static constexpr uint32_t kLeast = {static_cast<uint32_t>(kBias - 100) << kMantissaBits}; // 2^-100": "a threshold with room on both sides: one bit of a float32 more or less",
    "row_norm.h | a number - 1 | static constexpr uint32_t kLeast = {static_cast<uint32_t>(kBias - 100) << kMantissaBits}; // 2^-100": "a threshold with room on both sides: one bit of a float32 more or less",
    "row_norm.h | a number + 1 | static constexpr uint32_t kMost = {static_cast<uint32_t>(kBias + 126) << kMantissaBits}; // 2^126": "a threshold with room on both sides: one bit of a float32 more or less",
    "row_norm.h | a number - 1 | static constexpr uint32_t kMost = {static_cast<uint32_t>(kBias + 126) << kMantissaBits}; // 2^126": "a threshold with room on both sides: one bit of a float32 more or less",
}
