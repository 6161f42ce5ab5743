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
# The types of x, parameters and positions of random calls that reach every statement that the edits change.
COLUMNS = [
    mutation_rope.qkv_norm_rope_cache("ascend910b", *types)
    for types in (("bfloat16_t", "float", "int64_t"), ("float", "float", "int64_t"))
]
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


def operator_tests(folder: Path, edit: Edit | None) -> subprocess.CompletedProcess:
    """Run the operator's tests of arrays on Ascend910B with the edited kernel."""
    mutate_kernels.write_sources(None, folder)
    if edit:
        source_edits.apply(edit, [folder / "op_kernel"])
    libraries = [str(mutation_rope.build(column, folder)) for column in COLUMNS]
    environment = {**os.environ, "NPU_ROPE_TEST_BACKEND": "sim", "ASCEND_SIM_KERNELS": ":".join(libraries)}
    tests = [ROOT / "tests/norm" / name for name in ("test_qkv_norm_rope_cache.py", "test_qk_square_sums.py")]
    options = ["-k", "random_calls and numpy or partial_sums or int8", "-x", "-q", "-p", "no:cacheprovider"]
    command = [sys.executable, "-m", "pytest", *map(str, tests), *options]
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False, cwd=ROOT)


def test_the_unbroken_kernel_passes(tmp_path):
    done = operator_tests(tmp_path, None)
    assert done.returncode == 0, done.stdout
    assert "must have a kernel that this process ran" not in done.stderr


@pytest.mark.parametrize("name", CHANGES)
def test_mutant_is_caught(tmp_path, name):
    done = operator_tests(tmp_path, CHANGES[name])
    assert done.returncode == 1, done.stdout
