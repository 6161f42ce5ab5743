"""Break the kernel of qkv_norm_rope_cache on purpose, one mistake at a time: its tests must detect
it.

``mutate_kernels.py --op qkv`` makes many more mutants and runs calls of its own. This file checks that tests
of the default suite detect a mistake.
"""

import os
import subprocess
import sys
from pathlib import Path

import mutate_kernels
import mutation_rope
import pytest
import source_edits
from source_edits import Edit

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
# The tests' positions are int64. Their float32 calls reach every statement that the edits change.
COLUMN = mutation_rope.qkv_norm_rope_cache("ascend910b", "float", "float", "int64_t")
SQUARE_SUMS = "TensorAt<float>(arguments_.square_sums, tile.side)"
ROUNDING = "AscendC::Cast(numbers, rows, AscendC::RoundMode::CAST_RINT"

CHANGES = {
    "bias forgotten": Edit("factors_.template Apply<RowOp::kAdd>(side.bias, rows, tile);", ""),
    "scale_offset forgotten": Edit("factors_.AddNumber(t.scale, qkv_->scale_offset);", ""),
    "norm of all heads taken of each head": Edit("side.norm_kind == kNormHead;", "true;"),
    "sums of q used for k": Edit(SQUARE_SUMS, SQUARE_SUMS.replace("tile.side", "0")),
    "offset of int8 forgotten": Edit(
        "factors_.template Apply<RowOp::kAdd>(side.quant_offset, rows, tile);", ""
    ),
    "int8 rounded towards zero": Edit(ROUNDING, ROUNDING.replace("CAST_RINT", "CAST_TRUNC")),
    "token without a slot stored": Edit(
        "if (row < 0 || row >= layout.rows) continue;", "if (row < 0 || row >= layout.rows) row = 0;"
    ),
    "first block of a paged cache": Edit("row_tile.batch = row / layout.block_size;", "row_tile.batch = 0;"),
    "factors of the first head": Edit(
        "OneRow(rows_[factors.at + tile.head * pitch])", "OneRow(rows_[factors.at])"
    ),
}  # fmt: skip


def operator_tests(folder: Path, edit: Edit | None) -> subprocess.CompletedProcess:
    """Run the operator's tests of arrays on Ascend910B with the edited kernel."""
    mutate_kernels.write_sources(None, folder)
    if edit:
        source_edits.apply(edit, [folder / "op_kernel"])
    library = mutation_rope.build(COLUMN, folder)
    environment = {**os.environ, "NPU_ROPE_TEST_BACKEND": "sim", "ASCEND_SIM_KERNELS": str(library)}
    tests = str(ROOT / "tests/norm/test_qkv_norm_rope_cache.py")
    options = ["-k", "random_calls and numpy or partial_sums or int8", "-x", "-q", "-p", "no:cacheprovider"]
    command = [sys.executable, "-m", "pytest", tests, *options]
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False, cwd=ROOT)


def test_the_unbroken_kernel_passes(tmp_path):
    done = operator_tests(tmp_path, None)
    assert done.returncode == 0, done.stdout
    assert "must have a kernel that this process ran" not in done.stderr


@pytest.mark.parametrize("name", CHANGES)
def test_mutant_is_caught(tmp_path, name):
    done = operator_tests(tmp_path, CHANGES[name])
    assert done.returncode == 1, done.stdout
