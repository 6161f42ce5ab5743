"""The tiling's C++ program in the default suite: compiled with the available compiler and run."""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HOST = ("op_host/rope_tiling", "csrc/core/rope_check", "csrc/core/rope_frequency", "csrc/core/strided")


def test_thousands_of_random_tilings_are_sound(tmp_path):
    program = tmp_path / "test_rope_tiling"
    sources = [ROOT / "tests/tiling/test_rope_tiling.cpp", *(ROOT / f"{stem}.cpp" for stem in HOST)]
    compiler = [*shlex.split(os.environ.get("CXX", "c++")), "-std=c++17", "-O1"]
    include = [f"-I{ROOT}", f"-I{ROOT}/tests/tiling/host"]
    subprocess.run([*compiler, *include, *map(str, sources), "-o", str(program)], check=True)
    done = subprocess.run([program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith(" tests, 0 failure(s)\n")
