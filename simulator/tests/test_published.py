"""The timeline beside published measurements of the same loops. docs/figures.md has the table."""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass, field
from pathlib import Path

import ascend_sim
import numpy as np
import pytest
from ascend_sim import In, Part

PAGE = Path(__file__).resolve().parents[1] / "docs" / "figures.md"
BEGIN, END = "<!-- published: begin -->\n", "<!-- published: end -->"
# The folders of asc-devkit's samples, below examples/01_simd_cpp_api/05_best_practices/.
BANKS, COPIES, SUMS = "bank_conflict_ub", "data_copy", "add_high_performance"
SIZES = ("rows", "row_bytes", "pitch_bytes", "count", "first", "second", "result")
MATRIX_BYTES, MATRIX_SUMS = 12288 * 12288 * 2, 8192 * 8192  # bytes to copy; number of sums of halves


@dataclass(frozen=True)
class Loop:
    """A measured loop, as an entry of kernels/published.cpp.

    Attributes:
        cycles: measured, of one round of the loop.
        tolerance: largest difference of the model, as a share of the measured cycles.
        sizes: the fields of the struct in published.cpp that are not 0.
    """

    sample: str
    case: int
    text: str
    entry: str
    cycles: float
    tolerance: float
    soc: str = "ascend910b"
    cores: int = 1
    sizes: dict[str, int] = field(default_factory=dict)
    strides: tuple[int, int] = (1, 8)  # in blocks, of an Add's first operand

    def __str__(self) -> str:
        return f"{self.soc}-{self.sample}-{self.case}"


def add(case, text, ticks, tolerance, first, second, result, strides=(1, 8)):
    """``ticks``: the published duration of 1,000 Adds of 64 repeats, in units of 20 ns at 1.8 GHz."""
    addresses = {"first": first, "second": second, "result": result}
    cycles = ticks * 36 / 1000
    return Loop(BANKS, case, text, "sums_in_ub", cycles, tolerance, sizes=addresses, strides=strides)


def copy(case, text, microseconds, rows, row_bytes, soc="ascend910b", unaligned=False):
    """All cores read a matrix of 302 MB, with rows of 24,576 or, unaligned, 24,574 bytes."""
    cores, megahertz = (48, 1850) if soc == "ascend910b" else (64, 1650)
    pitch = 24576 - 2 * unaligned
    sizes = {"rows": rows, "row_bytes": row_bytes, "pitch_bytes": pitch, "first": pitch * unaligned}
    cycles = microseconds * megahertz / (MATRIX_BYTES / cores / (rows * row_bytes))
    return Loop(COPIES, case, text, "copies", cycles, 0.03, soc, cores, sizes)


def sum_of_tensors(case, text, microseconds, tolerance, cores, count, soc="ascend910b"):
    """z = x + y for 67 million halves, in tiles of ``count``."""
    megahertz, buffer_distance = (1850, 32768) if soc == "ascend910b" else (1650, 43680)
    cycles = microseconds * megahertz / (MATRIX_SUMS / cores / count)
    sizes = {"count": count, "second": buffer_distance, "result": 2 * buffer_distance}
    return Loop(SUMS, case, text, "sums", cycles, tolerance, soc, cores, sizes)


LOOPS = (
    add(1, "Add, sources in different bank groups", 2390, 0.001, 0, 0x10100, 0x20000),
    add(2, "Add, sources in the same banks", 4167, 0.001, 0, 0x4000, 0x10000),
    add(3, "Add, sources in the same bank groups", 4167, 0.001, 0, 0x10000, 0x14100),
    add(4, "Add, source and result begin in the same bank", 2389, 0.001, 0, 0x10100, 0x4000),
    add(5, "Add, result begins in the bank after the source's", 3751, 0.37, 0, 0x10100, 0x4020),
    add(
        7,
        "Add, a source of one block a repeat, in bank groups of the other source",
        3584,
        0.09,
        0,
        0x10100,
        0x10100,
        (0, 1),
    ),
    add(
        8,
        "Add, a source of one block a repeat, never in bank groups of the other source",
        2389,
        0.001,
        0,
        0x10100,
        0x10100,
        (0, 8),
    ),
    copy(1, "copies of 128 B", 548.161, 1, 128),
    copy(2, "copies of 64 rows of 128 B", 220.772, 64, 128),
    copy(3, "copies of 64 rows of 2 KiB", 202.657, 64, 2048),
    copy(4, "copies of 64 rows of 2 KiB, not aligned", 259.047, 64, 2048, unaligned=True),
    sum_of_tensors(1, "x + y, one core, 8 KiB copies", 6909.14, 0.03, 1, 4096),
    sum_of_tensors(2, "x + y, all cores, 8 KiB copies", 297.14, 0.03, 48, 4096),
    sum_of_tensors(3, "x + y, all cores, 32 KiB copies", 261.5, 0.1, 48, 16384),
    copy(1, "copies of 128 B", 881.13, 1, 128, "ascend950"),
    copy(2, "copies of 64 rows of 128 B", 205.99, 64, 128, "ascend950"),
    copy(3, "copies of 64 rows of 2 KiB", 185.66, 64, 2048, "ascend950"),
    copy(4, "copies of 64 rows of 2 KiB, not aligned", 189.16, 64, 2048, "ascend950", unaligned=True),
    sum_of_tensors(1, "x + y, one core, 8 KiB copies", 8924.021, 0.04, 1, 4096, "ascend950"),
    sum_of_tensors(2, "x + y, all cores, 8 KiB copies", 310.489, 0.13, 64, 4096, "ascend950"),
    sum_of_tensors(3, "x + y, all cores, 43 KiB copies", 251.684, 0.04, 64, 21760, "ascend950"),
)


def cycles_of_a_round(compiled, loop):
    """The model's cycles for a round, from the difference between launches of 8 and of 4 rounds."""
    cycles = []
    for times in (4, 8):
        sizes = [loop.sizes.get(name, 0) for name in SIZES]
        out = max(1, loop.cores * times * loop.sizes.get("count", 0))
        report = compiled("published", loop.entry, loop.soc).run(
            In(np.zeros(1 << 20, np.float16), "x"),
            Part(np.zeros(out, np.float16), "y"),
            tiling=struct.pack("<10I", times, *sizes, *loop.strides),
            block_dim=loop.cores,
            options=ascend_sim.Options(soc=loop.soc, lenient=("all",), one_order=True),
        )
        cycles.append(report.summary["cycles"])
    return (cycles[1] - cycles[0]) / 4


@pytest.mark.long
@pytest.mark.parametrize("loop", LOOPS, ids=str)
def test_a_measured_loop_takes_about_as_long_in_the_model(compiled, loop):
    assert cycles_of_a_round(compiled, loop) == pytest.approx(loop.cycles, rel=loop.tolerance)


@pytest.mark.long
def test_the_page_has_the_measured_and_the_simulated_cycles(compiled):
    """ASCEND_SIM_UPDATE_DOCS=1 writes the table instead."""
    rows = ["| chip | sample | case | loop | measured | model | difference |"]
    rows.append("|---|---|---|---|---|---|---|")
    for loop in LOOPS:
        model = cycles_of_a_round(compiled, loop)
        chip = "Ascend910B" if loop.soc == "ascend910b" else "Ascend950"
        rows.append(
            f"| {chip} | {loop.sample} | {loop.case} | {loop.text}"
            f" | {loop.cycles:,.1f} | {model:,.1f} | {model / loop.cycles - 1:+.1%} |"
        )
    table, text = "\n".join(rows) + "\n", PAGE.read_text()
    before, _, rest = text.partition(BEGIN)
    found, _, after = rest.partition(END)
    if os.environ.get("ASCEND_SIM_UPDATE_DOCS"):
        PAGE.write_text(before + BEGIN + table + END + after)
        found = table
    assert found == table
