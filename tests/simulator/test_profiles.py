"""The tiling's chips (op_host/platform.h) and the simulator's (simulator/src/profiles.cpp) are the same."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from npu_rope import native_sim, simulator

ROOT = Path(__file__).resolve().parents[2]
# The simulator has one Ascend950, under the family's name.
PROFILE_NAMES = {"Ascend950PR_9599": "Ascend950"}
PROGRAM = """#include <cstdio>
#include "op_host/platform.h"
int main() {
    const char* separator = "[";
    for (const npu_rope::Platform& p : npu_rope::kPlatforms) {
        std::printf("%s{\\"name\\":\\"%s\\",\\"arch\\":%d,\\"cores\\":%d,\\"ub_bytes\\":%lld,\\"budget\\":%lld}",
                    separator, p.soc, p.arch, p.cores, static_cast<long long>(p.ub_bytes),
                    static_cast<long long>(npu_rope::ub_budget_bytes(p)));
        separator = ",";
    }
    std::puts("]");
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
    return {p["name"]: p for p in json.loads(said)}


def profiles():
    return {p["name"]: p for p in native_sim.load().profiles()}


def both(platforms):
    """Pairs of a chip as the tiling and as the simulator has it."""
    known = profiles()
    named = [(p, PROFILE_NAMES.get(name, name)) for name, p in platforms.items()]
    return [(p, known[name]) for p, name in named if name in known]


def test_the_tiling_knows_every_chip_that_is_simulated(platforms):
    assert {profile["name"] for _, profile in both(platforms)} == set(profiles())


@pytest.mark.parametrize("figure", ["arch", "cores", "ub_bytes"])
def test_both_say_the_same_of_every_chip_they_both_know(platforms, figure):
    assert [(p["name"], p[figure], q[figure]) for p, q in both(platforms) if p[figure] != q[figure]] == []


def test_a_tiling_leaves_the_bytes_alone_that_the_simulator_reserves(platforms):
    reserved = {p["name"]: min(q["ub_bytes"], q["reserved_from"]) for p, q in both(platforms)}
    assert {p["name"]: p["budget"] for p, _ in both(platforms)} == reserved
