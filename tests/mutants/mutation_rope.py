"""The kernels of rope and rotary_mul, which differ only in their tables, for mutate_kernels.py: sources,
columns and equivalent mutants."""

# ruff: noqa: E501 - the keys below are lines of code
from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import ascend_sim
from ascend_sim import compiler

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Column:
    """A column of an operator and SoC: the types of the kernel's arguments."""

    op: str
    soc: str
    types: dict[str, str]

    @property
    def name(self) -> str:
        """The first tensor's dtype, as the calls name it."""
        first = next(iter(self.types.values()))
        return {"bfloat16_t": "bfloat16", "half": "float16", "float": "float32"}[first]

    @property
    def symbol(self) -> str:
        """The entry's name, as in cmake/NpuRopeSim.cmake."""
        return compiler.column_entry(f"npu_{self.op}", self.soc, self.types)


QKV_ARGUMENTS = (
    *("Q", "K", "V", "Q_SCALE", "K_SCALE", "Q_BIAS", "K_BIAS", "SQUARE_SUMS", "POSITIONS", "FREQ_FACTORS"),
    *("COS", "SIN", "SLOTS", "K_QUANT_SCALE", "K_QUANT_OFFSET", "V_QUANT_SCALE", "V_QUANT_OFFSET"),
)
QKV_OUTS = ("K_CACHE", "V_CACHE", "Q_OUT", "K_OUT", "V_OUT")


@dataclass(frozen=True)
class QkvColumn(Column):
    """A column of qkv_norm_rope_cache. The kernel reads the types of caches from the tiling data."""

    @property
    def name(self) -> str:
        """The dtypes of q and of its scale, as the calls name the column."""
        names = {"bfloat16_t": "bfloat16", "half": "float16", "float": "float32"}
        return f"{names[self.types['Q']]}/{names[self.types['Q_SCALE']]}"


def _rope(soc: str, x: str, positions: str) -> Column:
    return Column("rope", soc, {"X": x, "POSITIONS": positions, "FREQ_FACTORS": "float", "OUT": x})


def _rope_qk(soc: str, x: str, positions: str) -> Column:
    types = {"Q": x, "K": x, "POSITIONS": positions, "FREQ_FACTORS": "float", "Q_OUT": x, "K_OUT": x}
    return Column("rope_qk", soc, types)


def _rope_set_rows(soc: str, x: str, positions: str, cache: str) -> Column:
    types = {"X": x, "POSITIONS": positions, "ROWS": "int64_t", "FREQ_FACTORS": "float", "CACHE": cache}
    return Column("rope_set_rows", soc, types)


def _rotary_mul(soc: str, x: str, table: str) -> Column:
    types = {"X": x, "COS": table, "SIN": table, "POSITION_IDS": "int64_t", "OUT": x}
    return Column("rotary_mul", soc, types)


def _rotary_mul_qk(soc: str, x: str, table: str) -> Column:
    return Column("rotary_mul_qk", soc, {"Q": x, "K": x, "COS": table, "SIN": table, "Q_OUT": x, "K_OUT": x})


# A norm for the headers that norms and rotations share: its calls have tiles of rows shorter than a block.
SHORT_ROWS = Column("rms_norm", "ascend310p", {"X": "half", "SCALE": "half", "OUT": "half"})


def rms_norm_rope(soc: str, x: str, positions: str) -> Column:
    types = {"Q": x, "K": x, "Q_SCALE": x, "K_SCALE": x, "POSITIONS": positions, "ROWS": "int64_t"}
    return Column(
        "rms_norm_rope", soc, {**types, "FREQ_FACTORS": "float", "CACHE": x, "Q_OUT": x, "K_OUT": x}
    )


def qkv_norm_rope_cache(soc: str, x: str, parameter: str, positions: str) -> QkvColumn:
    types = dict.fromkeys((*QKV_ARGUMENTS, *QKV_OUTS), x)
    types |= dict.fromkeys(("Q_SCALE", "K_SCALE", "Q_BIAS", "K_BIAS", "COS", "SIN"), parameter)
    types |= dict.fromkeys(("SQUARE_SUMS", "FREQ_FACTORS", *QKV_ARGUMENTS[-4:]), "float")
    return QkvColumn("qkv_norm_rope_cache", soc, {**types, "POSITIONS": positions, "SLOTS": "int32_t"})


# A kernel with several planes of given tables, and with given sums of squares.
QKV = qkv_norm_rope_cache("ascend910b", "bfloat16_t", "bfloat16_t", "int32_t")

# The rotation's kernel with heads that are normalized first.
NORMED = rms_norm_rope("ascend910b", "half", "int64_t")

# The headers of op_kernel that only the norms' kernels use, and the operators that test each of them.
FORWARD, BACKWARD, HEADS = ("rms_norm", "add_rms_norm"), ("rms_norm_backward",), ("rms_norm_rope",)
NORM_HEADERS: dict[str, tuple[str, ...]] = {
    "norm/rms_norm_kernel.h": FORWARD,
    "norm/long_rms_norm_kernel.h": FORWARD,
    "norm/chunk_sums.h": (*FORWARD, *BACKWARD),
    "norm/stash_rows.h": (*FORWARD, *BACKWARD),
    "memory/row_pieces.h": (*FORWARD, *BACKWARD),
    "memory/tile_rows.h": (*FORWARD, *BACKWARD),
    "norm/scale_rows.h": (*FORWARD, *BACKWARD, *HEADS),
    "norm/row_norm.h": (*FORWARD, *BACKWARD, *HEADS, "qkv_norm_rope_cache"),
    "memory/row_steps.h": (*FORWARD, *BACKWARD, *HEADS),
    "norm/rms_norm_backward_kernel.h": BACKWARD,
    "norm/dscale_rows.h": BACKWARD,
    "norm/gradient_rows.h": BACKWARD,
    "norm/long_rms_norm_backward_kernel.h": BACKWARD,
    "norm/head_norm.h": HEADS,
}

# The headers of op_kernel whose lines are all used by the kernel of qkv_norm_rope_cache: mutation_qkv.py has them.
QKV_HEADERS = (
    *("rotation/qkv_kernel.h", "rotation/tile_loop.h", "rotation/tile_rotation.h"),
    *("norm/row_factors.h", "memory/cache_rows.h"),
)

columns = (
    _rope("ascend910b", "bfloat16_t", "int32_t"),
    _rope("ascend910b", "half", "int64_t"),
    _rope("ascend910b", "float", "int32_t"),
    _rope("ascend310p", "half", "int32_t"),
    _rope("ascend310p", "float", "int64_t"),
    _rope_qk("ascend910b", "half", "int32_t"),
    _rope_set_rows("ascend910b", "float", "int32_t", "half"),
    _rope_set_rows("ascend310p", "half", "int32_t", "half"),
    _rotary_mul("ascend910b", "bfloat16_t", "float"),
    _rotary_mul("ascend910b", "half", "half"),
    _rotary_mul("ascend910b", "float", "float"),
    _rotary_mul("ascend310p", "half", "half"),
    _rotary_mul("ascend310p", "float", "float"),
    _rotary_mul_qk("ascend910b", "half", "half"),
    SHORT_ROWS,
    NORMED,
    QKV,
)


def script_of(column: Column) -> str:
    """The script whose calls a column must compute correctly."""
    if column.op == "qkv_norm_rope_cache":
        return "mutation_qkv_calls.py"
    if column in (SHORT_ROWS, NORMED):
        return "mutation_norm_calls.py"
    return "mutation_rotary_calls.py" if column.op.startswith("rotary") else "mutation_rope_calls.py"


def columns_for(file: str) -> list[Column]:
    """The columns that compile the file and test its code; for an operator's entry, only that operator's."""
    name = Path(file).name
    if name in ("packed_rows.h", "scalar_rows.h"):
        return [c for c in columns if c.soc == "ascend310p"]
    if name == "vector_steps.h":
        return [c for c in columns if c.op in ("rope", "rotary_mul") or c is SHORT_ROWS]
    if name.startswith("npu_"):
        return [c for c in columns if name == f"npu_{c.op}.cpp"]
    if name == "rope_kernel.h":
        return [c for c in columns if c not in (SHORT_ROWS, QKV)]
    if name == "tiles.h":
        return [c for c in columns if c is not SHORT_ROWS]  # QKV has a side that is not rotated
    if name == "given_table.h":
        return [c for c in columns if c.op == "rotary_mul" or c is QKV]
    if name == "row_numbers.h":
        return [c for c in columns if c.op in ("rotary_mul", "rope_set_rows") or c is QKV]  # 64 and 32 bits
    if name in ("lane_numbers.h", "pair_index.h", "row_bursts.h", "row_rotation.h"):
        return [c for c in columns if c.op in ("rope", "rotary_mul")]
    return [c for c in columns if c.op == "rope"]


def sources() -> list[Path]:
    """The kernel, its entries and shared headers."""
    # Skip polynomials.h, which a script writes and a test compares, and the files of mutation_norm.py
    # and mutation_qkv.py.
    kernels = ROOT / "op_kernel"
    skipped = {kernels / name for name in ("rotation/polynomials.h", *NORM_HEADERS, *QKV_HEADERS)}
    headers = sorted(p for folder in ("memory", "rotation") for p in (kernels / folder).glob("*.h"))
    entries = sorted(kernels.glob("npu_ro*.cpp"))
    return [*entries, *(p for p in headers if p not in skipped)]


def build(column: Column, folder: Path) -> Path:
    """The changed kernel's library of a column, below folder (not optimised: it runs once)."""
    return ascend_sim.build(
        folder / "op_kernel" / f"npu_{column.op}.cpp",
        soc=column.soc,
        defines=compiler.column_defines(f"npu_{column.op}", column.soc, column.types),
        # Keep the folder's name out of the library, so that equal code compiles to equal bytes. End the process
        # if an index is outside an array of the tiling data or of the kernel.
        flags=(
            "-O0",
            "-w",
            *("-fsanitize=bounds", "-fsanitize-undefined-trap-on-error"),
            f"-fmacro-prefix-map={folder}=.",
            "-include",
            str(folder / "mutant.h"),
        ),
        folder=folder,
    )


# For each mutant, named as by mutate_kernels.key_of: why it computes the same, or which test catches it.
EQUIVALENT: dict[str, str] = {
    "tiles.h | comparison | tile->opens_block = opens_block && side_{ < }kRopeRotatedSides ? 1 : 0;": "angles for a block of values alone, which it does not use; cores with rotated heads take longer",
    "lane_frequencies.h | comparison | for (int32_t k = 0; k{ < }kTurnParts; ++k) part_[k] = lanes.Take(width_);": "sets the tensor that follows the array, which the kernel sets afterwards",
    "rope_kernel.h | count or repeat + 1 | AscendC::Cast(rows_, narrow, AscendC::RoundMode::CAST_NONE, {static_cast<uint32_t>(element_count_)});": "a lane after the rows, which is not read",
    "rope_kernel.h | count or repeat - 1 | AscendC::Cast(rows_, narrow, AscendC::RoundMode::CAST_NONE, {static_cast<uint32_t>(element_count_)});": "the last lane is a row's padding",
    "packed_rows.h | count or repeat - 1 | {static_cast<uint32_t>(count * tiling_->row_pitch)});": "the last lane is a row's padding",
    "packed_rows.h | a number + 1 | int32_t elements = {RoundUp(tiling_->gather_rows * tiling_->head_size, kBlockFloats)};": "an offset that no Gather uses",
    "packed_rows.h | comparison | if (aligned{ < }plan.run_elements)": "copies 32 more bytes, which are not read, while the vector instructions run",
    "lane_frequencies.h | operation | AscendC::{Add}(hi, quotient, error, pairs_);": "lo is computed from hi, so that hi + lo is the same sum",
    "pair_index.h | count or repeat - 1 | AscendC::Maxs(dst, dst, 0.0f, {count});": "the last lane is not before the window",
    "lane_frequencies.h | comparison | for (int32_t i = aligned; i{ < }pairs_; ++i) dst.SetValue(i, i < count ? source.GetValue(i) : 1.0f);": "a 1 where a temporary begins",
    "lane_numbers.h | comparison | for (int32_t k = 0; k{ < }kRopeSetupLaneTemps; ++k) lane_[k] = temps.Take(count_);": "the additional temporary goes to the next member, which is set next",
    "lane_frequencies.h | comparison | for (int32_t k = 0; k{ < }kRopeSetupPairTemps; ++k) pair_temp_[k] = temps.Take(pairs_);": "the additional temporary goes to the next member, which is set next",
    "row_rotation.h | comparison | if (heads{ > }1 && !FitsRepeatStride(head_step)) return false;": "with one head, one of the two steps is a row's, which an instruction reaches",
    "row_rotation.h | comparison | if (tokens_{ > }1 && !FitsRepeatStride(token_step_)) return true;": "with one token, repeating over heads takes no more instructions",
    "vector_steps.h | count or repeat - 1 | down.template ReinterpretCast<uint16_t>(), {count});": "the last half word is already correct where dst is up",
    "vector_steps.h | comparison | int32_t from = lanes.first{ > }first_lane ? lanes.first - first_lane : 0;": "at equality the difference is 0",
    "sine_table.h | sin_ becomes cos_ | Round(temp_[2], temp_[2], {sin_}, count);": "a temporary, and neither of the two has contents yet",
    "row_rotation.h | a number + 1 | int32_t over_heads = {tokens_ * ((heads + kMaxRepeats - 1) / kMaxRepeats)};": "another order of the same number of instructions",
    "row_rotation.h | a number - 1 | int32_t over_tokens = {heads * ((tokens_ + kMaxRepeats - 1) / kMaxRepeats)};": "another order of the same number of instructions",
    "vector_steps.h | rounding mode | constexpr AscendC::RoundMode kExactToFloat = AscendC::RoundMode::{CAST_RINT};": "float32 holds every one of these integers",
    "vector_steps.h | rounding mode | AscendC::Cast(dst.ReinterpretCast<int32_t>(), numbers, AscendC::RoundMode::{CAST_RINT}, static_cast<uint32_t>(count));": "the floats are whole numbers",
    "positions.h | comparison | if (aligned{ < }count) LoadOneByOne(source, plane, aligned, count);": "one more synchronization, for no positions, while the core waits for its loads",
    "given_table.h | cos becomes sin | row_queue_.EnQue({cos});": "both are parts of one buffer, and the queue takes any part as the buffer",
    "given_table.h | cos becomes sin | row_queue_.FreeTensor({cos});": "both are parts of one buffer, and the queue takes any part as the buffer",
    "given_table.h | comparison | if (row{ >= }table_tiling_->table_rows) row = table_tiling_->table_rows - 1;": "the host refuses such a row; tests/tiling/test_unchecked_rows.cpp, which has no host checks, catches it",
    "row_bursts.h | comparison | if (plan.inner_count{ <= }kMaxDmaRuns && FitsOneInstruction(plan)) {": "a tile of 4095 rows exceeds UB, because a row has at least 32 bytes, in an input and in an output buffer",
    "given_table.h | a number + 1 | int32_t pitch = {table_tiling_->row_pitch};": "the pitch is a multiple of 8, and the instructions get an eighth of it",
    "given_table.h | comparison | for (int32_t lane = lanes.first; lane{ < }lanes.end; lane += kRepeatFloats) {": "the mask of no lane is 0, and such a mask is skipped",
    "given_table.h | comparison | if (chunk{ >= }kRopeMaxChunks) return 0;": "the bits of a chunk after the last belong to lanes after the range, which its mask does not have",
    "scalar_rows.h | remove SyncPipes | } {SyncPipes<AscendC::HardEvent::S_V>()};": "redundant after loads: the following store or setup also synchronizes the pipes",
    "lane_frequencies.h | remove SyncPipes | for (int32_t i = aligned; i < pairs_; ++i) dst.SetValue(i, i < count ? source.GetValue(i) : 1.0f); {SyncPipes<AscendC::HardEvent::S_V>()};": "redundant: the lanes' index, which the scalar unit begins, is computed after it and ordered before the vector instructions",
}
