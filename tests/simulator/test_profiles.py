"""The chips: the table op_host/chips.h, compared with CANN's documented platform files, the simulator's
profiles and the names in Python."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from npu_rope import chips, native_sim, simulator

ROOT = Path(__file__).resolve().parents[2]
# The simulator has one Ascend950, under the family's name.
PROFILE_NAMES = {"Ascend950PR_9599": "Ascend950"}
KEYS = ("name", "family", "arch", "cores", "ai", "vector", "ub_bytes", "budget", "l2_mib", "mhz")
PROGRAM = """#include <iostream>
#include "op_host/platform.h"
int main() {
    for (const ascend::Chip& chip : ascend::kChips) {
        const npu_rope::Platform p = npu_rope::find_platform(chip.name).value();
        std::cout << p.soc << ' ' << ascend::find_family(chip.name)->soc << ' ' << p.arch << ' ' << p.cores;
        std::cout << ' ' << chip.ai_cores << ' ' << chip.vector_cores << ' ' << p.ub_bytes;
        std::cout << ' ' << npu_rope::ub_budget_bytes(p) << ' ' << chip.l2_mib;
        std::cout << ' ' << chip.clock_ghz * 1000 << '\\n';
    }
}
"""
FAMILIES = """#include <cstdio>
#include "op_host/chips.h"
int main(int count, char** names) {
    for (int k = 1; k < count; ++k) {
        const ascend::Family* family = ascend::find_family(names[k]);
        std::puts(family ? family->soc : "none");
    }
}
"""


@pytest.fixture(scope="module")
def platforms(tmp_path_factory):
    """The tiling's chips, by name."""
    folder = tmp_path_factory.mktemp("platforms")
    (folder / "platforms.cpp").write_text(PROGRAM)
    command = [*simulator.compiler().split(), "-std=c++17", f"-I{ROOT}", str(folder / "platforms.cpp")]
    subprocess.run([*command, "-o", str(folder / "platforms")], check=True)
    said = subprocess.run([folder / "platforms"], check=True, capture_output=True, text=True).stdout
    rows = [dict(zip(KEYS, line.split(), strict=True)) for line in said.splitlines()]
    return {row["name"]: {k: int(v) if v.isdigit() else v for k, v in row.items()} for row in rows}


def profiles():
    return {p["name"]: p for p in native_sim.load().profiles()}


# The contents of CANN's platform_config/<name>.ini, transcribed independently to detect errors in the table:
# Short_SoC_version, ai_core_cnt, vector_core_cnt, ub_size, l2_size in MiB, cube_freq in MHz.
DOCUMENTED = """
Ascend910B1 ascend910b 24 48 196608 192 1850
Ascend910B2 ascend910b 24 48 196608 192 1800
Ascend910B2C ascend910b 24 48 196608 192 1800
Ascend910B3 ascend910b 20 40 196608 192 1800
Ascend910B4 ascend910b 20 40 196608 96 1500
Ascend910B4-1 ascend910b 20 40 196608 168 1500
Ascend910_9391 ascend910_93 24 48 196608 192 1850
Ascend910_9392 ascend910_93 24 48 196608 192 1850
Ascend910_9381 ascend910_93 24 48 196608 192 1800
Ascend910_9382 ascend910_93 24 48 196608 192 1800
Ascend910_9372 ascend910_93 20 40 196608 192 1800
Ascend910_9362 ascend910_93 20 40 196608 168 1500
Ascend910_9363 ascend910_93 20 40 196608 168 1500
Ascend310P1 ascend310p 10 8 262144 16 1060
Ascend310P3 ascend310p 8 7 262144 16 1060
Ascend310P5 ascend310p 8 7 262144 16 800
Ascend310P7 ascend310p 8 7 262144 16 550
Ascend950PR_9599 ascend950 32 64 253952 128 1650
"""


def test_the_table_says_what_cann_s_platform_files_say(platforms):
    keys = ("name", "family", "ai", "vector", "ub_bytes", "l2_mib", "mhz")
    table = "".join(" ".join(str(p[key]) for key in keys) + "\n" for p in platforms.values())
    assert table == DOCUMENTED.lstrip()


def test_kernels_run_on_the_ai_cores_of_310p_and_on_the_vector_cores_of_others(platforms):
    wrong = [p["name"] for p in platforms.values() if p["cores"] != p["ai" if p["arch"] == 200 else "vector"]]
    assert wrong == []


def test_python_has_the_same_chips_of_the_supported_socs(platforms):
    of_table = {soc: [p["name"] for p in platforms.values() if p["family"] == soc] for soc in chips.SOCS}
    assert {soc: list(names) for soc, names in chips.CHIPS.items()} == of_table
    assert [name for name in chips.NAMES if chips.soc_of(name) != platforms[name]["family"]] == []


NAMES_OF_NO_FAMILY = [
    "Ascend910B",
    "Ascend910A",
    "Ascend910_5591",
    "Ascend910_95",
    "Ascend310B1",
    "Ascend310",
    "",
]
NEW_NAMES = {"Ascend910B9": "ascend910b", "Ascend910_9399": "ascend910_93", "Ascend310P3Vir01": "ascend310p"}


def test_names_have_the_same_family_in_both_languages(tmp_path):
    names = [*NAMES_OF_NO_FAMILY, *NEW_NAMES, *chips.NAMES]
    (tmp_path / "families.cpp").write_text(FAMILIES)
    command = [*simulator.compiler().split(), "-std=c++17", f"-I{ROOT}", str(tmp_path / "families.cpp")]
    subprocess.run([*command, "-o", str(tmp_path / "families")], check=True)
    said = subprocess.run([tmp_path / "families", *names], check=True, capture_output=True, text=True).stdout
    assert said.splitlines() == [chips.soc_of(name) or "none" for name in names]
    assert [chips.soc_of(name) for name in NAMES_OF_NO_FAMILY] == [None] * len(NAMES_OF_NO_FAMILY)
    assert {name: chips.soc_of(name) for name in NEW_NAMES} == NEW_NAMES


def both(platforms):
    """Pairs of a chip's data in the tiling and in the simulator."""
    known = profiles()
    named = [(p, PROFILE_NAMES.get(name, name)) for name, p in platforms.items()]
    return [(p, known[name]) for p, name in named if name in known]


def test_every_chip_is_simulated(platforms):
    assert {PROFILE_NAMES.get(name, name) for name in platforms} == set(profiles())


@pytest.mark.parametrize("figure", ["arch", "cores", "ub_bytes"])
def test_both_say_the_same_of_every_chip_they_both_know(platforms, figure):
    assert [(p["name"], p[figure], q[figure]) for p, q in both(platforms) if p[figure] != q[figure]] == []


def test_a_tiling_leaves_the_bytes_alone_that_the_simulator_reserves(platforms):
    reserved = {p["name"]: min(q["ub_bytes"], q["reserved_from"]) for p, q in both(platforms)}
    assert {p["name"]: p["budget"] for p, _ in both(platforms)} == reserved
