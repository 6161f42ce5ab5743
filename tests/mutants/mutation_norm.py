"""The norms' kernels, and rms_norm_rope's heads, for mutate_kernels.py: sources, columns and equivalent
mutants."""

# ruff: noqa: E501 - the keys below are lines of code
from __future__ import annotations

from pathlib import Path

from mutation_rope import NORM_HEADERS, QKV, ROOT, Column, build, rms_norm_rope

__all__ = ["EQUIVALENT", "build", "columns", "columns_for", "script_of", "sources"]

SOC_910B, SOC_310P = "ascend910b", "ascend310p"
BF16, F16, F32 = "bfloat16_t", "half", "float"


def _rms_norm(soc: str, x: str, scale: str) -> Column:
    return Column("rms_norm", soc, {"X": x, "SCALE": scale, "OUT": scale})


def _add_rms_norm(soc: str, x: str, scale: str) -> Column:
    return Column("add_rms_norm", soc, {"X": x, "RESIDUAL": x, "SCALE": scale, "OUT": scale, "SUM": x})


def _backward(soc: str, x: str, scale: str) -> Column:
    types = {"GRAD": scale, "X": x, "SCALE": scale, "DSCALE": "float", "DX": x}
    return Column("rms_norm_backward", soc, types)


columns = (
    _rms_norm(SOC_910B, F16, F16),
    _rms_norm(SOC_910B, BF16, F32),
    _rms_norm(SOC_910B, F32, F16),
    _rms_norm(SOC_310P, F16, F16),
    _rms_norm(SOC_310P, F32, F32),
    _add_rms_norm(SOC_910B, F16, F32),
    _add_rms_norm(SOC_910B, F32, F32),
    _add_rms_norm(SOC_310P, F16, F16),
    _add_rms_norm(SOC_310P, F32, F32),
    _backward(SOC_910B, BF16, BF16),
    _backward(SOC_910B, F32, F16),
    _backward(SOC_910B, F32, F32),
    _backward(SOC_310P, F16, F16),
    _backward(SOC_310P, F32, F32),
    rms_norm_rope(SOC_910B, BF16, "int32_t"),
    rms_norm_rope(SOC_910B, F16, "int64_t"),
    rms_norm_rope(SOC_910B, F32, "int32_t"),
    rms_norm_rope(SOC_310P, F16, "int32_t"),
    rms_norm_rope(SOC_310P, F32, "int64_t"),
    QKV,
)


def script_of(column: Column) -> str:
    """The script whose calls a column must compute correctly."""
    return "mutation_qkv_calls.py" if column.op == "qkv_norm_rope_cache" else "mutation_norm_calls.py"


def columns_for(file: str) -> list[Column]:
    """The columns that compile the file and test its code; for an operator's entry, only that operator's."""
    path = Path(file)
    if operators := NORM_HEADERS.get(f"{path.parent.name}/{path.name}"):
        return [c for c in columns if c.op in operators]
    return [c for c in columns if path.name == f"npu_{c.op}.cpp"]


def sources() -> list[Path]:
    """The kernels, their entries and the headers that only these kernels use."""
    entries = sorted((ROOT / "op_kernel").glob("npu_*rms_norm*.cpp"))
    return [*(ROOT / "op_kernel" / name for name in NORM_HEADERS), *entries]


# For each mutant, named as by mutate_kernels.key_of: why it computes the same.
EQUIVALENT: dict[str, str] = {
    "dscale_rows.h | remove VectorBarrier | AddRows(scratch, static_cast<int32_t>(loaded), width); {VectorBarrier()};": "redundant: the synchronizations with the next load, or with the store, also order the sums",
    "dscale_rows.h | remove SyncPipes | __aicore__ inline void AddFewToDscale(AscendC::GlobalTensor<float> target, int32_t count) { {SyncPipes<AscendC::HardEvent::V_S>()};": "the store of dx waits for the vector unit: the scalar unit stores rows of fewer than 8 elements",
    "dscale_rows.h | comparison | int64_t loaded = cores - core{ < }most ? cores - core : most;": "a minimum: at equality both are the same",
    "dscale_rows.h | a number - 1 | int32_t most = {MinOf(width_, static_cast<int32_t>(scratch.GetSize()) / kBlockFloats * kBlockFloats)};": "another size of the pieces: the same sums, and no call becomes slower",
    "dscale_rows.h | remove VectorBarrier | AscendC::Duplicate(sums_, 0.0f, width); {VectorBarrier()};": "redundant: the synchronizations before and after the load also order the zeros before the sums",
    "head_norm.h | a number - 1 | int32_t slots = {source_.tiling->stats_bytes / (kRowNormStats * static_cast<int32_t>(sizeof(float)))};": "each part of the statistics is rounded up to as many slots, and all slots that are read were written",
    "row_norm.h | a number + 1 | static constexpr uint32_t kSmallestSum = {static_cast<uint32_t>(kBias - 100) << kMantissaBits}; // 2^-100": "changes a threshold by one bit; near it, both ways are correct",
    "row_norm.h | a number - 1 | static constexpr uint32_t kSmallestSum = {static_cast<uint32_t>(kBias - 100) << kMantissaBits}; // 2^-100": "changes a threshold by one bit; near it, both ways are correct",
    "row_norm.h | a number + 1 | static constexpr uint32_t kLargestSum = {static_cast<uint32_t>(kBias + 126) << kMantissaBits}; // 2^126": "changes a threshold by one bit; near it, both ways are correct",
    "row_norm.h | a number - 1 | static constexpr uint32_t kLargestSum = {static_cast<uint32_t>(kBias + 126) << kMantissaBits}; // 2^126": "changes a threshold by one bit; near it, both ways are correct",
    "rms_norm_kernel.h | count or repeat + 1 | AscendC::Cast(narrow, rows, NarrowMode<T>(), {static_cast<uint32_t>(element_count_)});": "a lane after the rows, which is not read",
    "rms_norm_kernel.h | count or repeat + 1 | AscendC::Cast(rows, narrow, AscendC::RoundMode::CAST_NONE, {static_cast<uint32_t>(element_count_)});": "a lane after the rows, which is not read",
    "rms_norm_kernel.h | count or repeat - 1 | AscendC::Cast(rows, narrow, AscendC::RoundMode::CAST_NONE, {static_cast<uint32_t>(element_count_)});": "the last lane is a row's padding, 0 either way",
    "long_rms_norm_kernel.h | count or repeat + 1 | AscendC::Cast(y, piece_, NarrowMode<ScaleT>(), {static_cast<uint32_t>(lanes)});": "a lane after the piece, which is not stored",
    "row_pieces.h | a number + 1 | auto fill = {static_cast<uint8_t>(RoundUp(count, kBlockItems) - count)};": "a zero after the piece, where padding follows or lanes that are cleared",
    "chunk_sums.h | comparison | if (width{ < }kRepeatFloats) AscendC::Duplicate(numbers[width], 0.0f, kRepeatFloats - width);": "an instruction without lanes",
    "row_norm.h | count or repeat + 1 | AscendC::Add(sum_, sum_, temp_, {count});": "a slot that belongs to no row",
    "row_norm.h | a number + 1 | uint32_t magnitude_bits = {bits.GetValue(i)}; // non-negative floats compare like their bits": "one bit of a magnitude; only its exponent is used",
    "row_norm.h | a number + 1 | int32_t exponent = {static_cast<int32_t>(largest_bits >> kMantissaBits) - kBias};": "scales by a factor of two more or less; the squares stay in range",
    "row_norm.h | a number - 1 | int32_t exponent = {static_cast<int32_t>(largest_bits >> kMantissaBits) - kBias};": "scales by a factor of two more or less; the squares stay in range",
    "row_norm.h | comparison | if (repeat_sums.GetValue(static_cast<uint32_t>(i)){ >= }kLargestSum) return true;": "affects one value at a threshold; there, both ways are correct",
    "row_norm.h | comparison | if (row_sums.GetValue(static_cast<uint32_t>(i)){ < }kSmallestSum) return true;": "affects one value at a threshold; there, both ways are correct",
    "row_steps.h | count or repeat + 1 | AscendC::BlockReduceSum(sums, blocks, {(count + kBlockFloats - 1) / kBlockFloats}, kRepeatFloats, 1, 1,": "sums in slots that belong to no row",
    "row_steps.h | count or repeat + 1 | AscendC::Duplicate(rows[row * pitch + first_lane], 0.0f, mask, {static_cast<uint8_t>(repeats)}, 1,": "the padding of a row after those of the tile, which is not read",
    "row_steps.h | count or repeat + 1 | AscendC::Cast(dst[row * dst_pitch], src[row * src_pitch], NarrowMode<OutT>(), {static_cast<uint32_t>(width)});": "a lane after the row: the next row overwrites it, or it is not read",
    "row_steps.h | mask off by a lane | {mask}, static_cast<uint8_t>(repeats), step);": "a lane after the row, which is padding",
    "row_steps.h | a number + 1 | int32_t chunks = {(width + kRepeatFloats - 1) / kRepeatFloats};": "chooses between two ways to the same result; no call becomes slower",
    "row_steps.h | a number - 1 | int32_t instructions_along = {rows * (width % kRepeatFloats == 0 ? 1 : 2)};": "chooses between two ways to the same result; no call becomes slower",
    "row_steps.h | choice swapped | __aicore__ inline int32_t MaxOf(int32_t a, int32_t b) { return a > b ? {a : b}; }": "the required reach of an instruction: all pitches of these rows are within it",
    "row_steps.h | a number + 1 | int32_t repeats = {MinOf(count - row, kMaxRepeats)};": "the padding of a row after those of the tile, which is not read",
    "row_steps.h | comparison | for (int32_t first_lane = 0; first_lane{ < }width; first_lane += kRepeatFloats) {": "a row of whole repeats does not come here, because its pitches are equal",
    "rms_norm_backward_kernel.h | count or repeat + 1 | AscendC::Cast(rows, narrow, AscendC::RoundMode::CAST_NONE, {static_cast<uint32_t>(element_count_)});": "a lane after the rows, which is not read",
    "rms_norm_backward_kernel.h | count or repeat - 1 | AscendC::Cast(rows, narrow, AscendC::RoundMode::CAST_NONE, {static_cast<uint32_t>(element_count_)});": "the last lane is a row's padding, which is cleared next",
    "gradient_rows.h | count or repeat + 1 | AscendC::Muls(mean_, mean_, inverse_n_, {count});": "a slot that belongs to no row",
    "gradient_rows.h | count or repeat + 1 | AscendC::Muls(inverses, inverses, kScaleUp, {count * kBlockFloats});": "a slot that belongs to no row",
    "long_rms_norm_backward_kernel.h | count or repeat + 1 | AscendC::Cast(dx, temp_, NarrowMode<T>(), {static_cast<uint32_t>(lanes)});": "a lane after the piece, which is not stored",
    "row_norm.h | count or repeat - 1 | AscendC::Abs(squares, rows, {count * pitch});": "the last slot still contains a square, which is as large where it matters",
    "row_steps.h | comparison | for (int32_t row = 0; row{ < }rows; row += kMaxRepeats) {": "an instruction without repeats",
    "row_steps.h | comparison | for (int32_t i = 0; i{ < }repeats; i += kMaxRepeats) {": "an instruction without repeats",
    "row_steps.h | comparison | for (int32_t row = 0; row{ < }count; row += kMaxRepeats) {": "an instruction without repeats",
    "long_rms_norm_backward_kernel.h | one buffer instead of two | pipe->InitBuffer(out_, {2}, static_cast<uint32_t>(tiling->common.queue_bytes));": "the vector instructions take longer than a store: the timeline changes by less than half a percent",
}
