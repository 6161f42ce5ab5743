"""Break the C++ sources on purpose, one mistake at a time: each must make validate fail.

Every mutant is a copy of the native sources with one edit, built as the C library only. ``npu-rope validate``
and, for some mutants, tests of rope run on the library.
"""

# ruff: noqa: E501 - the table has one mutant per line

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import source_edits
from source_edits import Edit

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
# Calls are small, and without optimization the compile takes a seventh of the time.
OPTIMIZE = "-O0"
EDITED = ("csrc", "op_host")  # the folders that the edits change
VERSION = "simulator/ascend_sim/__init__.py"
SOURCES = ("CMakeLists.txt", VERSION, "cmake", "simulator/cmake", "include", "op_kernel", *EDITED)

MUTANTS = {
    "sin sign": Edit("source_.forward ? constants_.mscale : -constants_.mscale", "source_.forward ? -constants_.mscale : constants_.mscale"),
    "pairing": Edit("NPU_ROPE_MODE_NORMAL ? kInterleaved : kHalfApart", "NPU_ROPE_MODE_NORMAL ? kHalfApart : kInterleaved"),
    "mscale forgotten": Edit("mscale *= 1.0 + 0.1", "mscale *= 1.0 + 0.0"),
    "one position off": Edit("fill(position_of(source_, call_.shape, b, s));", "TokenPosition p = position_of(source_, call_.shape, b, s); ++p.on_axis[0]; fill(p);"),
    "ramp direction": Edit("return 1 - std::min(T(1), std::max(T(0), y));", "return std::min(T(1), std::max(T(0), y));"),
    "n_offs ignored": Edit("heads_job.x = heads.x + offset;", "heads_job.x = heads.x;"),
    "freq_factors multiplied": Edit("unscaled /= freq_factors[i * factor_stride]", "unscaled *= freq_factors[i * factor_stride]"),
    "table of the previous token": Edit("if (!t.is_filled || !(position == t.position) || t.forward", "if (!t.is_filled || t.forward"),
    "step table's cos and sin exchanged": Edit("step_cos_, step_sin_, count", "step_sin_, step_cos_, count"),
    "rest of the head not copied": Edit("heads_job.bytes_after = in_place ? 0", "heads_job.bytes_after = true ? 0"),
    "ggml: factors applied after scaling twice": Edit("[pair.axis] / constants.freq_factors[i]", "[pair.axis] / constants.freq_factors[i] / constants.freq_factors[i]"),
    "all planes are time": Edit("at + shape.axis_offset[k])", "at)"),
    "vision's frequencies do not restart": Edit("if (restarted_axis >= 0) power[restarted_axis] = 0;", ""),
    "imrope's remaining pairs rotate by time": Edit("s[axis] ? axis : 3", "s[axis] ? axis : 0"),
    "another row of the cache": Edit("heads.y += row * call.shape", "heads.y += row / 2 * call.shape"),
    "second quarter's sign": Edit("(((q + 1) & 2) << 62)", "(((q + 2) & 2) << 62)"),
}  # fmt: skip


class EditableBuild:
    """A copy of the native sources and its build, in which one text at a time is replaced."""

    def __init__(self, folder: Path) -> None:
        self.source, self.build = folder / "src", folder / "build"
        for name in SOURCES:
            copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
            (self.source / name).parent.mkdir(parents=True, exist_ok=True)
            copy(ROOT / name, self.source / name)
        options = [
            "-DNPU_ROPE_TORCH=OFF",
            "-DNPU_ROPE_SIM=OFF",
            "-DCMAKE_BUILD_TYPE=Release",
            f"-DCMAKE_CXX_FLAGS_RELEASE={OPTIMIZE}",
        ]
        self._run("cmake", "-S", str(self.source), "-B", str(self.build), *options)
        self.compile()

    def _run(self, *command: str) -> None:
        done = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
        )
        assert done.returncode == 0, done.stdout

    def compile(self) -> Path:
        self._run("cmake", "--build", str(self.build), "-j2")
        return self.build

    @contextmanager
    def mutated(self, edit: Edit) -> Iterator[Path]:
        with source_edits.applied(edit, [self.source / folder for folder in EDITED]):
            yield self.compile()


@pytest.fixture(scope="module")
def editable_build(tmp_path_factory):
    return EditableBuild(tmp_path_factory.mktemp("editable_build"))


# Mutants that the tests of one changed factor must also catch.
CAUGHT_BY_OPERATOR_TESTS = tuple(MUTANTS)[:7]


def _validate(library: Path, *arguments: str) -> int:
    """Return the exit status of npu-rope validate with the library."""
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
    assert "Traceback" not in done.stderr
    return done.returncode


# Small cases with partial rotation, offsets, factors, YaRN, views, planes of positions and a cache.
FILTER = [
    "--filter",
    r"(n_dims=32,mode=|v=1,inplace=1|qwen2.5.*yarn.*(decode|prefill.type=f32)|phi-3.*/decode"
    r"|qwen3-vl.*/decode|SET_ROWS.*32,8,1.*mode=0)",
]


def _operator_tests(library: Path) -> int:
    """Return the exit status of the tests of one changed factor with the library."""
    options = ["-k", "one_factor and not reference", "-x", "-q", "-p", "no:cacheprovider"]
    environment = {**os.environ, "NPU_ROPE_LIB_DIR": str(library), "NPU_ROPE_TEST_BACKEND": "cpu"}
    command = [sys.executable, "-m", "pytest", str(ROOT / "tests/rope/test_rope.py"), *options]
    return subprocess.run(command, capture_output=True, env=environment, check=False, cwd=ROOT).returncode


def test_the_unbroken_library_passes(editable_build):
    assert _validate(editable_build.compile(), *FILTER) == 0
    assert _operator_tests(editable_build.build) == 0


@pytest.mark.parametrize("name", MUTANTS)
def test_mutant_is_caught(editable_build, name):
    with editable_build.mutated(MUTANTS[name]) as library:
        assert _validate(library, *FILTER) == 1
        if name in CAUGHT_BY_OPERATOR_TESTS:
            assert _operator_tests(library) == 1
