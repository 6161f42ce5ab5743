"""Breaks the C++ sources on purpose, one mistake at a time: each must make validate fail.

Every mutant is a copy of the native sources with one text replaced, built as the C library alone
and handed to ``npu-rope validate`` and to a slice of the operator's tests.
"""

# ruff: noqa: E501 - the table of mutants reads best a line each

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
SOURCES = ("CMakeLists.txt", "pyproject.toml", "cmake", "csrc", "include", "op_host")

# name: (file, text, what replaces it)
MUTANTS = {
    "sin sign": ("csrc/cpu/rope.cpp", "call.forward ? a_.mscale : -a_.mscale", "call.forward ? -a_.mscale : a_.mscale"),
    "pairing": ("csrc/cpu/rope.cpp", "== NPU_ROPE_MODE_NEOX ? kHalf : kInterleaved", "!= NPU_ROPE_MODE_NEOX ? kHalf : kInterleaved"),
    "mscale forgotten": ("csrc/cpu/rope_angle.cpp", "a->mscale *= 1.0 + 0.1", "a->mscale *= 1.0 + 0.0"),
    "one position off": ("csrc/cpu/rope.cpp", "table.fill(position_at(c, b, s))", "table.fill(position_at(c, b, s) + 1)"),
    "ramp direction": ("csrc/cpu/rope_angle.cpp", "return 1 - std::min(T(1), std::max(T(0), y));", "return std::min(T(1), std::max(T(0), y));"),
    "n_offs ignored": ("csrc/cpu/rope.cpp", "heads.x = x + c.n_offs * job.item_bytes", "heads.x = x + 0 * job.item_bytes"),
    "freq_factors multiplied": ("csrc/cpu/rope_angle.cpp", "own /= factors[i * factor_stride]", "own *= factors[i * factor_stride]"),
    "table not made anew for the next token": ("csrc/cpu/rope.cpp", "if (filled_ && position == position_) return;", "if (filled_) return;"),
    "step table's cos and sin exchanged": ("csrc/cpu/rope.cpp", "step_c_, step_s_, static_cast<int>", "step_s_, step_c_, static_cast<int>"),
    "rest of the head not copied": ("csrc/cpu/rope.cpp", "if (after) std::memcpy", "if (false) std::memcpy"),
    "ggml: factors applied after scaling twice": ("csrc/cpu/rope_angle.cpp", "theta / a.freq_factors[i]", "theta / a.freq_factors[i] / a.freq_factors[i]"),
    "second quarter's sign": ("csrc/cpu/rope_kernels.inl", "(((q + 1) & 2) << 62)", "(((q + 2) & 2) << 62)"),
}  # fmt: skip


def _build(folder: Path, mutant: tuple[str, str, str] | None) -> Path:
    source, build = folder / "src", folder / "build"
    source.mkdir()
    for name in SOURCES:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, source / name)
        else:
            shutil.copy(ROOT / name, source / name)
    if mutant is not None:
        file, text, replacement = mutant
        original = (source / file).read_text()
        flat = " ".join(text.split())
        assert original.count(text) == 1, f"{file} must hold {flat!r} once; mend this test with the source"
        (source / file).write_text(original.replace(text, replacement))
    configure = [
        "cmake",
        "-S",
        str(source),
        "-B",
        str(build),
        "-DNPU_ROPE_TORCH=OFF",
        "-DCMAKE_BUILD_TYPE=Release",
    ]
    for command in (configure, ["cmake", "--build", str(build), "-j2"]):
        subprocess.run(command, check=True, capture_output=True)
    return build


def _validate(library: Path, *arguments: str) -> int:
    command = [
        sys.executable,
        "-m",
        "npu_rope.cli",
        "validate",
        "--no-ggml",
        "--backend",
        "cpu",
        "--quiet",
        *arguments,
    ]
    environment = {**os.environ, "NPU_ROPE_LIB_DIR": str(library)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode in (0, 1), done.stderr
    return done.returncode


# Small cases that between them use every attribute: partial, offset, factors, YaRN, views.
FILTER = [
    "--filter",
    r"(n_dims=32,mode=|v=1,inplace=1|qwen2.5.*yarn.*(decode|prefill.type=f32)|phi-3.*/decode)",
]


def test_the_unbroken_library_passes(tmp_path):
    assert _validate(_build(tmp_path, None), *FILTER) == 0


@pytest.mark.parametrize("name", MUTANTS)
def test_mutant_fails_validate(tmp_path, name):
    assert _validate(_build(tmp_path, MUTANTS[name]), *FILTER) == 1


@pytest.mark.parametrize("name", list(MUTANTS)[:7])
def test_mutant_fails_the_operator_tests(tmp_path, name):
    library = _build(tmp_path, MUTANTS[name])
    tests = [str(ROOT / "tests/ops/test_rope.py"), "-k", "one_change or one_factor or pairwise or back"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *tests],
        capture_output=True,
        text=True,
        env={**os.environ, "NPU_ROPE_LIB_DIR": str(library), "NPU_ROPE_TEST_BACKEND": "cpu"},
        check=False,
        cwd=ROOT,
    )
    assert done.returncode == 1, done.stdout[-2000:]
