"""Break the kernels of qkv_norm_rope_cache and qk_square_sums on purpose, one mistake at a time: their tests
must detect it.

``mutate_kernels.py --area qkv`` and ``--area square_sums`` make many more mutants and run calls of their own.
This file checks that tests of the default suite detect a mistake.
"""

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import mutate_kernels
import mutation_rope
import mutation_square_sums
import pytest
import source_edits
from source_edits import Edit

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
SQUARE_SUMS = "TensorAt<float>(arguments_.square_sums, tile.side)"
ROUNDING = "AscendC::Cast(numbers, rows, AscendC::RoundMode::CAST_RINT"
OUTSIDE = "if (row < 0 || row >= layout.rows) "

CHANGES = {
    "bias forgotten": Edit("Apply<RowOp::kAdd>(side.bias,", "Apply<RowOp::kAdd>(RowFactorsTiling{},"),
    "scale_offset forgotten": Edit("factors_.AddNumber(t.scale,", "factors_.AddNumber(RowFactorsTiling{},"),
    "mean square of one head instead of all": Edit("side.norm_kind == kNormHead;", "true;"),
    "sums of q used for k": Edit(SQUARE_SUMS, SQUARE_SUMS.replace("tile.side", "0")),
    "offset of int8 forgotten": Edit(
        "Apply<RowOp::kAdd>(side.quant_offset,", "Apply<RowOp::kAdd>(RowFactorsTiling{},"
    ),
    "int8 rounded towards zero": Edit(ROUNDING, ROUNDING.replace("CAST_RINT", "CAST_TRUNC")),
    "token without a slot stored": Edit(OUTSIDE + "continue;", OUTSIDE + "row = 0;"),
    "first block of a paged cache": Edit("row_tile.batch = row / layout.block_size;", "row_tile.batch = 0;"),
}  # fmt: skip

LOAD = "Load<T>(factors, memory, rows); "
LOADED = "SyncPipes<AscendC::HardEvent::MTE2_V>();"

STREAMED_CHANGES = {
    "factors of the first heads for every tile": Edit("static_cast<int64_t>(rows.first) *", "int64_t{0} *"),
    "numbers of the first heads for every tile": Edit("(rows.first + row) * factors", "row * factors"),
    "scale_offset not added for a tile": Edit("Add(factors, number, rows.count);", ""),
    "factors of a tile used before they are loaded": Edit(LOAD + LOADED, LOAD),
}  # fmt: skip


SUM = "(tile.table_row + row) + tile.side]"
ZEROS = "AscendC::Duplicate(sums_, 0.0f, kSums * block_tokens_);"
NEW_TREE = "if (!continues) chunk_ = 0;"
PARTS = "AddRowsAsTree(rows_, common_->head_parts, width);"
SHARE = "Share own = ShareOf(kSums * common_->rows,"
PADDING = "ClearLanes(rows_, common_->row_pitch, tile.tokens * tile.heads,"
WRITE_BACK = "AscendC::DataCacheCleanAndInvalid<float, AscendC::CacheLine::ENTIRE_DATA_CACHE>(target);"
FREE = "out_.FreeTensor(sums_);"

SQUARE_SUMS_CHANGES = {
    "sums of q and k exchanged": Edit(SUM, SUM.replace("tile.side", "1 - tile.side")),
    "sums of a side without heads not set": Edit(ZEROS, ""),
    "tiles of a token added to those of the previous one": Edit(NEW_TREE, ""),
    "only the last tile of a token": Edit(NEW_TREE, "chunk_ = 0;"),
    "the first chunk of a head several times": Edit(" + piece * tiling_->chunk;", ";"),
    "parts added before other cores have stored them": Edit("AscendC::SyncAll(); " + SHARE, SHARE),
    "parts of all cores in one place": Edit("part_ * tiling_->part_pitch + first", "first"),
    "last part forgotten": Edit(PARTS, PARTS.replace("head_parts", "head_parts - 1")),
}  # fmt: skip
SQUARE_SUMS_CHANGES_ON_310P = {
    "padding of rows added": Edit(PADDING, PADDING.replace("tile.tokens * tile.heads", "0")),
    "sums after the last whole block not stored": Edit("sum_pieces_.CopyToTail(sums_, count);", ""),
    "few sums not written back": Edit(WRITE_BACK + " " + FREE, FREE),
}  # fmt: skip


@dataclass(frozen=True)
class Suite:
    """Tests of an operator on a simulated chip: the columns that they run, pytest's expression, and changes
    of the kernel that they must detect."""

    backend: str
    columns: list[mutation_rope.Column]
    expression: str
    changes: dict[str, Edit]


def square_sums(backend: str, soc: str, changes: dict[str, Edit]) -> Suite:
    columns = [mutation_square_sums.qk_square_sums(soc, x) for x in ("half", "float")]
    tests = "test_qk_square_sums and (random_calls or fit_ub or without_heads)"
    return Suite(backend, columns, tests, changes)


SUITES = {
    "qkv": Suite(
        "sim",
        # The types of x, parameters and positions of calls that reach every statement that CHANGES edits.
        [
            mutation_rope.qkv_norm_rope_cache("ascend910b", *types)
            for types in (("bfloat16_t", "float", "int64_t"), ("float", "float", "int64_t"))
        ],
        "random_calls and numpy or partial_sums or int8",
        CHANGES,
    ),
    "streamed factors": Suite(
        "sim",
        [mutation_rope.qkv_norm_rope_cache("ascend910b", "half", "half", "int64_t")],
        "loaded_for_each_tile and (everything or number) and not ascend",
        STREAMED_CHANGES,
    ),
    "square sums": square_sums("sim", "ascend910b", SQUARE_SUMS_CHANGES),
    "square sums, 310P": square_sums("sim:ascend310p", "ascend310p", SQUARE_SUMS_CHANGES_ON_310P),
}


def operator_tests(folder: Path, suite: Suite, edit: Edit | None) -> subprocess.CompletedProcess:
    """Run the operator's tests with the edited kernel."""
    mutate_kernels.write_sources(None, folder)
    if edit:
        source_edits.apply(edit, [folder / "op_kernel"])
    libraries = [str(mutation_rope.build(column, folder)) for column in suite.columns]
    environment = {**os.environ, "NPU_ROPE_TEST_BACKEND": suite.backend}
    environment["ASCEND_SIM_KERNELS"] = ":".join(libraries)
    names = ("qkv_norm_rope_cache", "qkv_norm_rope_cache_limits", "qk_square_sums")
    tests = [ROOT / f"tests/norm/test_{name}.py" for name in names]
    options = ["-k", suite.expression, "-x", "-q", "-p", "no:cacheprovider"]
    command = [sys.executable, "-m", "pytest", *map(str, tests), *options]
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False, cwd=ROOT)


@pytest.mark.parametrize("suite", SUITES.values(), ids=SUITES)
def test_the_unbroken_kernel_passes(suite, tmp_path):
    done = operator_tests(tmp_path, suite, None)
    assert done.returncode == 0, done.stdout
    assert "must have a kernel that this process ran" not in done.stderr


@pytest.mark.parametrize(
    ("suite", "change"), [(name, change) for name, suite in SUITES.items() for change in suite.changes]
)
def test_mutant_is_caught(suite, change, tmp_path):
    done = operator_tests(tmp_path, SUITES[suite], SUITES[suite].changes[change])
    assert done.returncode == 1, done.stdout
