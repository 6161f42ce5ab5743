"""Run the C++ tests of rope's tiling also in the default suite, compiled with the available compiler."""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TILING = (
    "op_host/rope_tile",
    "op_host/rope_tiling",
    "csrc/core/rope_check",
    "csrc/core/rope_frequency",
    "csrc/core/strided",
)


@pytest.mark.parametrize(("test", "stems"), [("test_rope_tile", TILING[:1]), ("test_rope_tiling", TILING)])
def test_thousands_of_random_tilings_are_sound(test, stems, tmp_path):
    program = tmp_path / test
    sources = [ROOT / f"tests/tiling/{test}.cpp", *(ROOT / f"{stem}.cpp" for stem in stems)]
    compiler = [*shlex.split(os.environ.get("CXX", "c++")), "-std=c++17", "-O1"]
    include = [f"-I{ROOT}", f"-I{ROOT}/tests/tiling/host"]
    subprocess.run([*compiler, *include, *map(str, sources), "-o", str(program)], check=True)
    completed = subprocess.run([program], capture_output=True, text=True)
    assert completed.returncode == 0, completed.stderr
    assert completed.stdout.endswith(" tests, 0 failure(s)\n")
