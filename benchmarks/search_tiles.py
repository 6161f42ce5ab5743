"""Compare the tiles that the host chooses with others, over the published ranges of the chip's figures.

The cases and settings are those of sensitivity.py. Settings that change a launch by less than 1 % are left
out. The script copies the simulated package of an editable build. In the copy it links the tilings with
preferences that it can change. The kernels are the same.

usage: search_tiles.py [--markdown docs/sensitivity.md]   (write the table into this page)
"""

from __future__ import annotations

import argparse
import ctypes
import itertools
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from ascend_sim.package import Package
from page import with_table
from sensitivity import CASES, CHIPS, Case, Figures, settings

from npu_rope import simulated_package

ROOT = Path(__file__).resolve().parents[1]
TILING_LIBRARY = Path("op_impl/ai_core/tbe/op_tiling/lib/linux/x86_64/libcust_opmaster_rt2.0.so")
# The members of TilePreferences.
PREFERENCE_NAMES = re.findall(r"int64_t (\w+) =", (ROOT / "op_host" / "tile_preferences.h").read_text())
Preferences = dict[str, int]
KIB = 1024
SMALL_EFFECT = 0.01  # share of a launch's cycles; settings that change less are left out


def alternatives(case: Case) -> Iterator[Preferences]:
    """Yield the preferences whose tiles are compared. Empty preferences are the host's own."""
    yield {}
    for tile_kib, tokens in itertools.product((2, 4, 8, 12, 24, 32, 48), (4, 8, 16, 64)):
        yield {"tile_bytes": tile_kib * KIB, "min_tile_bytes": min(tile_kib, 4) * KIB, "block_tokens": tokens}
    for tokens in (1, 2, 4, 8, 32, 64):
        yield {"block_tokens": tokens, "block_rows": 0}
    for tiles in (1, 2, 8):
        yield {"tiles_per_core": tiles}
    if case.splits:
        return
    for core, heads, tiles in itertools.product((256, 1024, 2048, 4096, 8192), (1, 2, 4, 8, 16), (1, 4)):
        yield {"min_core_bytes": core, "min_heads": heads, "tiles_per_core": tiles}


class Search:
    """The simulated package with tilings whose preferences can be set."""

    def __init__(self, build: Path, folder: Path) -> None:
        shutil.copytree(build / "simulated_package", folder, dirs_exist_ok=True)
        rule = (build / "build.ninja").read_text().partition(f"build simulated_package/{TILING_LIBRARY}: ")[2]
        objects = rule.split(" | ")[0].split()[1:]
        libraries = re.search(r"LINK_LIBRARIES = (.*)", rule)
        assert libraries
        command = [
            "g++",
            "-std=c++17",
            "-shared",
            "-fPIC",
            f"-I{ROOT}",
            "-Wl,-u,simulated_cann_tiling_library",
        ]
        command += ["-fvisibility=hidden", str(ROOT / "benchmarks" / "search_tiles.cpp"), *objects]
        command += [*libraries[1].split(), "-o", str(folder / TILING_LIBRARY)]
        subprocess.run(command, check=True, cwd=build)
        os.environ["ACLNN_CACHE_LIMIT"] = "0"  # else a tiling runs once for each call
        package = Package(folder)
        simulated_package._load.cache_clear()
        simulated_package.load = lambda: package
        self.library = ctypes.CDLL(str(folder / TILING_LIBRARY))

    def prefer(self, preferences: Preferences) -> None:
        self.library.npu_rope_prefer(-1, ctypes.c_int64(0))
        for name, value in preferences.items():
            self.library.npu_rope_prefer(PREFERENCE_NAMES.index(name), ctypes.c_int64(value))

    def cycles(self, case: Case, preferences: Preferences, figures: Figures) -> float:
        self.prefer(preferences)
        return case.cycles(figures)


def rows_of(search: Search, case: Case) -> Iterator[tuple[float, str, Preferences, float, float]]:
    """Yield for each setting: the host's cycles divided by the best cycles, the setting, the best
    preferences, the host's cycles, and the best cycles."""
    distinct: dict[float, Preferences] = {}  # by their cycles with the profile's figures
    for preferences in alternatives(case):
        distinct.setdefault(search.cycles(case, preferences, {}), preferences)
    profile_cycles = search.cycles(case, {}, {})
    for text, figures in settings(case.chip):
        host = search.cycles(case, {}, figures)
        if figures and abs(host / profile_cycles - 1) < SMALL_EFFECT:
            continue
        best, preferences = min(
            ((search.cycles(case, p, figures), p) for p in distinct.values()), key=lambda found: found[0]
        )
        yield host / best, text, preferences, host, best


def table(search: Search) -> str:
    rows = [
        "| chip | case | settings | host / best, the profile's figures | worst | at | best there |",
        "|---|---|---|---|---|---|---|",
    ]
    for case in CASES:
        print(f"\r{case.chip} {case.name:40}", end="", file=sys.stderr)
        found = list(rows_of(search, case))
        ratio, text, preferences, _, _ = max(found, key=lambda row: row[0])
        names = ", ".join(f"{name} {value}" for name, value in preferences.items()) or "the host's"
        profile_ratio = found[0][0]
        ratios = f"{profile_ratio:.3f} | {ratio:.3f}"
        rows.append(f"| {case.chip} | {case.name} | {len(found)} | {ratios} | {text} | {names} |")
    print(file=sys.stderr)
    return "\n".join(rows) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--markdown", type=Path, help="write the table between the marks of this page")
    parser.add_argument("--build", type=Path, help="the build folder (default: the newest in build/)")
    options = parser.parse_args()
    newest = max(ROOT.glob("build/*/build.ninja"), key=lambda path: path.stat().st_mtime, default=None)
    build = options.build or (newest and newest.parent)
    if build is None:
        sys.exit("build must have an editable build of npu_rope: scripts/test.sh makes one")
    assert set(CHIPS) == {case.chip for case in CASES}
    with tempfile.TemporaryDirectory() as folder:
        text = table(Search(build.resolve(), Path(folder)))
    if options.markdown is None:
        print(text, end="")
        return
    page = options.markdown.read_text()
    marks = "<!-- tiles: begin -->\n", "<!-- tiles: end -->"
    options.markdown.write_text(with_table(page, *marks, text, options.markdown))


if __name__ == "__main__":
    main()
