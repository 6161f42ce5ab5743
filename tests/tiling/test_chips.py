"""The chips of op_host/chips.h, compared with the simulator's chips and the names in Python."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from ascend_sim import compiler, library

from npu_rope import chips

ROOT = Path(__file__).resolve().parents[2]
KEYS = ("name", "arch", "cores", "ub_bytes", "budget")
PROGRAM = """#include <iostream>
#include "op_host/platform.h"
using namespace npu_rope;
int main(int count, char** names) {
    for (const Chip& chip : kChips) {
        const Platform p = find_platform(chip.name).value();
        std::cout << p.soc << ' ' << p.arch << ' ' << p.cores << ' ' << p.ub_bytes << ' ';
        std::cout << ub_budget_bytes(p) << '\\n';
    }
    for (int k = 1; k < count; ++k) {
        const Family* family = family_of(names[k]);
        std::cout << (family ? family->prefix : "none") << '\\n';
    }
}
"""
NAMES_OF_NO_FAMILY = [
    "Ascend910B",
    "Ascend910A",
    "Ascend910_5591",
    "Ascend910_95",
    "Ascend950",
    "Ascend9509589",
    "Ascend310B1",
    "Ascend310",
    "",
]
NEW_CHIPS = {
    "Ascend910B9": "ascend910b",
    "Ascend910_9399": "ascend910_93",
    "Ascend310P3Vir01": "ascend310p",
    "Ascend950PR_957bx": "ascend950",
    "Ascend950DT_95A1": "ascend950",
}
KNOWN_CHIPS = [name for names in chips.CHIPS.values() for name in names]
NAMES = [*NAMES_OF_NO_FAMILY, *NEW_CHIPS, *KNOWN_CHIPS]


@pytest.fixture(scope="module")
def program_lines(tmp_path_factory):
    folder = tmp_path_factory.mktemp("platforms")
    (folder / "platforms.cpp").write_text(PROGRAM)
    command = [*compiler.compiler().split(), "-std=c++17", f"-I{ROOT}", str(folder / "platforms.cpp")]
    subprocess.run([*command, "-o", str(folder / "platforms")], check=True)
    run = subprocess.run([folder / "platforms", *NAMES], check=True, capture_output=True, text=True)
    return run.stdout.splitlines()


@pytest.fixture(scope="module")
def platforms(program_lines):
    """The chips of op_host/chips.h, by name."""
    rows = [dict(zip(KEYS, line.split(), strict=True)) for line in program_lines[: -len(NAMES)]]
    return {row["name"]: {k: int(v) if v.isdigit() else v for k, v in row.items()} for row in rows}


def test_python_has_the_same_chips(platforms):
    assert set(KNOWN_CHIPS) == set(platforms)


def test_names_have_the_same_family_in_both_languages(program_lines):
    prefixes = chips.PREFIXES | {"none": "none"}
    assert [prefixes[line] for line in program_lines[-len(NAMES) :]] == [
        chips.soc_of(name) or "none" for name in NAMES
    ]
    assert [chips.soc_of(name) for name in NAMES_OF_NO_FAMILY] == [None] * len(NAMES_OF_NO_FAMILY)
    assert {name: chips.soc_of(name) for name in NEW_CHIPS} == NEW_CHIPS


def simulated_chips():
    return {profile["name"]: profile for profile in library.load().profiles()}


def test_the_simulator_has_the_same_chips_and_families(platforms):
    simulated = simulated_chips()
    assert set(platforms) == set(simulated)
    assert [name for name in KNOWN_CHIPS if simulated[name]["soc"] != chips.soc_of(name)] == []


@pytest.mark.parametrize("figure", ["arch", "cores", "ub_bytes"])
def test_the_simulator_has_the_same_figures(platforms, figure):
    simulated = simulated_chips()
    for name, chip in platforms.items():
        assert chip[figure] == simulated[name][figure], name


def test_a_tilings_budget_excludes_the_bytes_that_the_simulator_reserves(platforms):
    simulated = simulated_chips()
    for name, chip in platforms.items():
        profile = simulated[name]
        assert chip["budget"] == min(profile["ub_bytes"], profile["reserved_from"]), name
