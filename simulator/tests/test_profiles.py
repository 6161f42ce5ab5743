"""The table of chips, src/chips.h, compared with CANN's platform files and with the profiles."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from ascend_sim import compiler, library

ROOT = Path(__file__).resolve().parents[1]
KEYS = ("name", "family", "arch", "cores", "ai", "vector", "ub_bytes", "l2_mib", "mhz")
PROGRAM = """#include <iostream>
#include "src/chips.h"
using namespace ascend_sim;
int main() {
    for (const Chip& chip : kChips) {
        const Family& family = *find_family(chip.name);
        std::cout << chip.name << ' ' << family.soc << ' ' << family.arch;
        std::cout << ' ' << kernel_cores(family.arch, chip.ai_cores, chip.vector_cores);
        std::cout << ' ' << chip.ai_cores << ' ' << chip.vector_cores << ' ' << family.ub_bytes;
        std::cout << ' ' << chip.l2_mib << ' ' << chip.clock_ghz * 1000 << '\\n';
    }
}
"""


@pytest.fixture(scope="module")
def chips(tmp_path_factory):
    """The table's chips, by name."""
    folder = tmp_path_factory.mktemp("chips")
    (folder / "chips.cpp").write_text(PROGRAM)
    command = [*compiler.compiler().split(), "-std=c++17", f"-I{ROOT}", str(folder / "chips.cpp")]
    subprocess.run([*command, "-o", str(folder / "chips")], check=True)
    output = subprocess.run([folder / "chips"], check=True, capture_output=True, text=True).stdout
    rows = [dict(zip(KEYS, line.split(), strict=True)) for line in output.splitlines()]
    return {row["name"]: {k: int(v) if v.isdigit() else v for k, v in row.items()} for row in rows}


def profiles():
    return {p["name"]: p for p in library.load().profiles()}


# The contents of CANN's platform_config/<name>.ini, transcribed independently to detect errors in the table:
# Short_SoC_version, ai_core_cnt, vector_core_cnt, ub_size, l2_size in MiB, cube_freq in MHz.
DOCUMENTED = """
Ascend910B1 ascend910b 24 48 196608 192 1850
Ascend910B2 ascend910b 24 48 196608 192 1800
Ascend910B2C ascend910b 24 48 196608 192 1800
Ascend910B3 ascend910b 20 40 196608 192 1800
Ascend910B4 ascend910b 20 40 196608 96 1500
Ascend910B4-1 ascend910b 20 40 196608 168 1500
Ascend910_9392 ascend910_93 24 48 196608 192 1850
Ascend910_9391 ascend910_93 24 48 196608 192 1850
Ascend910_9381 ascend910_93 24 48 196608 192 1800
Ascend910_9382 ascend910_93 24 48 196608 192 1800
Ascend910_9372 ascend910_93 20 40 196608 192 1800
Ascend910_9362 ascend910_93 20 40 196608 168 1500
Ascend910_9363 ascend910_93 20 40 196608 168 1500
Ascend310P3 ascend310p 8 7 262144 16 1060
Ascend310P1 ascend310p 10 8 262144 16 1060
Ascend310P5 ascend310p 8 7 262144 16 800
Ascend310P7 ascend310p 8 7 262144 16 550
Ascend950PR_9589 ascend950 32 64 253952 128 1650
Ascend950PR_9599 ascend950 36 72 253952 128 1800
"""


def test_the_table_equals_cann_s_platform_files(chips):
    keys = ("name", "family", "ai", "vector", "ub_bytes", "l2_mib", "mhz")
    table = "".join(" ".join(str(p[key]) for key in keys) + "\n" for p in chips.values())
    assert table == DOCUMENTED.lstrip()


def test_kernels_run_on_the_ai_cores_of_310p_and_on_the_vector_cores_of_others(chips):
    wrong = [p["name"] for p in chips.values() if p["cores"] != p["ai" if p["arch"] == 200 else "vector"]]
    assert wrong == []


def table_and_profile_pairs(chips):
    """Pairs of a chip's data in the table and in its profile."""
    by_name = profiles()
    return [(p, by_name[name]) for name, p in chips.items()]


def test_every_chip_of_the_table_has_a_profile(chips):
    assert set(chips) == set(profiles())


@pytest.mark.parametrize("figure", ["arch", "cores", "ub_bytes"])
def test_table_and_profile_agree_on_every_chip(chips, figure):
    assert [
        (p["name"], p[figure], q[figure]) for p, q in table_and_profile_pairs(chips) if p[figure] != q[figure]
    ] == []
