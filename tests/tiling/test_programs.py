"""The default suite compiles and runs these C++ tests of the tilings."""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PREFERENCES = "op_host/tile_preferences"
ROPE_TILING_SOURCES = (
    PREFERENCES,
    "op_host/rope_tile",
    "op_host/rope_tiling",
    "csrc/core/rope_check",
    "csrc/core/rope_frequency",
    "csrc/core/rotary_check",
    "csrc/core/strided",
)
RMS_NORM_TILING_SOURCES = (
    PREFERENCES,
    "op_host/rms_norm_tile",
    "op_host/rms_norm_tiling",
    "csrc/core/rms_norm_check",
    "csrc/core/strided",
)
SQUARE_SUMS_TILING_SOURCES = (
    PREFERENCES,
    "op_host/qk_square_sums_tiling",
    "csrc/core/qkv_norm_rope_cache_check",
    "csrc/core/rope_check",
    "csrc/core/rope_frequency",
    "csrc/core/strided",
)
QKV_TILING_SOURCES = (
    *ROPE_TILING_SOURCES,
    "op_host/qkv_norm_rope_cache_tiling",
    "csrc/core/qkv_norm_rope_cache_check",
)


@pytest.mark.long
@pytest.mark.parametrize(
    ("test", "tested_sources"),
    [
        ("test_rope_tile", ("op_host/rope_tile", PREFERENCES)),
        ("test_rope_tiling", ROPE_TILING_SOURCES),
        ("test_rms_norm_tile", ("op_host/rms_norm_tile", PREFERENCES)),
        ("test_rms_norm_tiling", RMS_NORM_TILING_SOURCES),
        ("test_qk_square_sums_tiling", SQUARE_SUMS_TILING_SOURCES),
        ("test_qkv_tiling", QKV_TILING_SOURCES),
    ],
)
def test_thousands_of_random_tilings_are_sound(test, tested_sources, tmp_path):
    program = tmp_path / test
    sources = [ROOT / f"tests/tiling/{test}.cpp", *(ROOT / f"{stem}.cpp" for stem in tested_sources)]
    compiler = [*shlex.split(os.environ.get("CXX", "c++")), "-std=c++17", "-O1"]
    include = [f"-I{ROOT}", f"-I{ROOT}/tests/tiling/host"]
    subprocess.run([*compiler, *include, *map(str, sources), "-o", str(program)], check=True)
    done = subprocess.run([program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith(" tests, 0 failure(s)\n")
