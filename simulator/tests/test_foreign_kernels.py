"""Kernels in the style of AscendC's public samples, written from its API documentation: expected results
computed by hand, and the simulator's reports on kernels that lack one statement of synchronisation."""

from __future__ import annotations

import re
import struct

import ascend_sim
import mini_kernels
import numpy as np
import pytest
from ascend_sim import In, Out

# Statements that synchronise. The simulator must report a kernel that lacks one of them.
SYNCHRONISATION = re.compile(r"^ *(\w+\.(EnQue|FreeTensor)[<(]|PipeBarrier<|SetFlag<|WaitFlag<).*;$")


def tiling_of(*words):
    return struct.pack(f"<{len(words)}I", *words)


# ---- results -----------------------------------------------------------------------------------------


def add(compiled, x, y, *, block_dim, tile=128, **options):
    z = np.full_like(x, np.nan)
    report = compiled("add_custom", "add_custom").run(
        In(x), In(y), Out(z), block_dim=block_dim, tiling=tiling_of(len(x), tile), **options
    )
    return z, report


@pytest.mark.long
def test_sums_of_nine_pairs_computed_by_hand(compiled):
    x = np.array([1, -1, 0.5, 16777216, 3, 0, -0.0, 1e38, 100], np.float32)
    y = np.array([2, 1, 0.25, 1, -3, -7, 0.0, 3e38, 0.1], np.float32)
    # 2 ** 24 + 1 is halfway between two floats and rounds to the even one; 4e38 is beyond the largest float.
    z, _ = add(compiled, x, y, block_dim=1)
    assert z.tolist() == [3, 0, 0.75, 16777216, 0, -7, 0, np.inf, np.float32(100.1)]


@pytest.mark.parametrize("block_dim", [1, 2, 7, 48])
@pytest.mark.parametrize("length", [1, 127, 128, 129, 1003])
def test_an_elementwise_sum_on_any_number_of_cores(compiled, length, block_dim):
    x = np.arange(length, dtype=np.float32)
    z, report = add(compiled, x, 1000 - 2 * x, block_dim=block_dim)
    assert np.array_equal(z, 1000 - x)
    assert report.warnings == []


@pytest.mark.long
@pytest.mark.parametrize("block_dim", [1, 3])
def test_sums_of_nine_rows_computed_by_hand(compiled, block_dim):
    # Nine rows of seventy columns: the kernel handles 8 rows at a time, and a repeat has 64 floats.
    x = np.zeros((9, 70), np.float16)
    x[0] = np.arange(1, 71)  # 70 * 71 / 2
    x[1] = 1
    x[2, 0], x[2, 69] = -2.5, 2.25
    x[3] = 2048  # in half, 2048 + 1 would stay 2048
    x[3, 64:] = 1
    x[4] = np.where(np.arange(70) % 2, -1, 1)
    x[5, 63:65] = 60000  # half ends at 65504
    x[8] = -0.125
    y = np.full(9, np.nan, np.float32)
    compiled("row_sum_custom", "row_sum_custom").run(
        In(x), Out(y), block_dim=block_dim, tiling=tiling_of(9, 70)
    )
    assert y.tolist() == [2485, 70, -0.25, 64 * 2048 + 6, 0, 120000, 0, 0, -8.75]


@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (1, 64), (8, 63), (16, 65), (3, 1000)])
def test_sums_of_rows_of_any_length(compiled, rows, columns):
    x = np.add.outer(np.arange(rows), np.arange(columns) % 7).astype(np.float16)
    y = np.full(rows, np.nan, np.float32)
    tiling = tiling_of(rows, columns)
    compiled("row_sum_custom", "row_sum_custom").run(In(x), Out(y), block_dim=2, tiling=tiling)
    assert np.array_equal(y, x.sum(axis=1, dtype=np.float64))


@pytest.mark.long
@pytest.mark.parametrize("block_dim", [1, 2])
def test_a_gather_of_eleven_indices(compiled, block_dim):
    table = np.array([0, 1, 4, 9, 16, 25, 36, 49, 64, 81], np.float32)
    index = np.array([9, 0, 0, 3, 5, 5, 8, 1, 2, 7, 4], np.int32)
    y = np.full(11, np.nan, np.float32)
    kernel = compiled("gather_custom", "gather_custom")
    kernel.run(In(table), In(index), Out(y), block_dim=block_dim, tiling=tiling_of(10, 11))
    assert y.tolist() == [81, 0, 0, 9, 25, 25, 64, 1, 4, 49, 16]


def test_a_gather_of_several_tiles_on_several_cores(compiled):
    table = np.arange(1000, dtype=np.float32) * 3
    index = (np.arange(333) * 7 % 1000).astype(np.int32)
    y = np.full(333, np.nan, np.float32)
    compiled("gather_custom", "gather_custom").run(
        In(table), In(index), Out(y), block_dim=4, tiling=tiling_of(1000, 333)
    )
    assert np.array_equal(y, index * 3.0)


@pytest.mark.parametrize("index", [16, -1], ids=["past-the-last-block", "before-the-first-block"])
def test_an_index_outside_the_table_is_caught(compiled, index):
    table, indices, y = np.ones(10, np.float32), np.array([3, index], np.int32), np.zeros(2, np.float32)
    kernel = compiled("gather_custom", "gather_custom")
    with pytest.raises(ascend_sim.KernelBroken) as caught:
        kernel.run(In(table), In(indices), Out(y), tiling=tiling_of(10, 2))
    assert caught.value.rule == "SIM-INDEX-01"


def test_the_filler_behind_the_table_is_its_first_element(compiled):
    """Without padding parameters, DataCopyPad fills the block behind the table with the first element. An
    index past the table's end thus reads a defined value, which is no violation."""
    table, indices, y = (
        np.arange(7, 17, dtype=np.float32),
        np.array([3, 10], np.int32),
        np.zeros(2, np.float32),
    )
    compiled("gather_custom", "gather_custom").run(In(table), In(indices), Out(y), tiling=tiling_of(10, 2))
    assert list(y) == [10, 7]


# ---- a missing synchronisation -------------------------------------------------------------------------


def variants(stem):
    """The numbers of the lines that synchronise, and a source with copies that each lack one of them."""
    lines = mini_kernels.source(stem).read_text().splitlines()
    body_start = next(n for n, line in enumerate(lines) if line.startswith("using namespace")) + 1
    places = [n for n, line in enumerate(lines) if SYNCHRONISATION.match(line)]
    text = lines[:body_start]
    for place in places:
        remaining = [line for n, line in enumerate(lines) if n != place]
        body = "\n".join(remaining[body_start:]).replace(f" {stem}(", f" {stem}_without_line_{place + 1}(")
        text += [f"namespace without_{place + 1} {{", body, "}"]
    return [place + 1 for place in places], "\n".join(text) + "\n"


def launches():
    x = np.arange(1003, dtype=np.float32)
    rows = np.ones((20, 130), np.float16)
    index = (np.arange(300) % 50).astype(np.int32)
    return {
        "add_custom": ([In(x), In(x), Out(np.zeros_like(x))], tiling_of(1003, 128)),
        "row_sum_custom": ([In(rows), Out(np.zeros(20, np.float32))], tiling_of(20, 130)),
        "gather_custom": ([In(x[:50]), In(index), Out(np.zeros(300, np.float32))], tiling_of(50, 300)),
    }


REMOVED_LINES = [(stem, line) for stem in launches() for line in variants(stem)[0]]


@pytest.mark.parametrize("stem", launches())
def test_the_complete_kernel_keeps_every_rule(compiled, stem):
    arguments, tiling = launches()[stem]
    assert compiled(stem, stem).run(*arguments, tiling=tiling, block_dim=2).warnings == []


@pytest.mark.long
@pytest.mark.parametrize(
    ("stem", "line"), REMOVED_LINES, ids=[f"{stem}-{line}" for stem, line in REMOVED_LINES]
)
def test_a_missing_synchronisation_is_caught(kernel_folder, stem, line):
    kernel_folder.mkdir(exist_ok=True)
    source = kernel_folder / f"{stem}_cut.cpp"
    if not source.exists():
        unfinished = kernel_folder / f"{stem}_cut_{line}.tmp"
        unfinished.write_text(variants(stem)[1])
        unfinished.replace(source)
    kernel = ascend_sim.compile(source, f"{stem}_without_line_{line}", flags=["-O0"], folder=kernel_folder)
    arguments, tiling = launches()[stem]
    report = kernel.run(*arguments, tiling=tiling, block_dim=2, check=False)
    assert [e["rule"][:-3] for e in report.errors] in (["SIM-HAZARD"], ["SIM-QUEUE"], ["SIM-EVENT"])
