"""The areas beside the kernels, for mutate_kernels.py: their sources, builds, tests and equivalent mutants.

A part of an area has a copy of the sources below build/mutants, in which one mutant at a time is applied. Only
what the mutant changes is compiled again. Then the part's tests run, until one fails.
"""

# ruff: noqa: E501 - the keys of EQUIVALENT are lines of code
from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from source_mutants import ROOT, Mutant, changed, key_of, mutants_of

CAUGHT, SURVIVED, NOT_COMPILED, TIMEOUT = "caught", "SURVIVED", "does not compile", "timeout"

MOST_KILOBYTES = 8 << 20  # of a process's memory: a mutant may ask for all of it
SECONDS_OF_A_BUILD = 1800
# A test's time limit, from the time that it takes with the unchanged sources.
TIMES_OF_A_TEST, MORE_SECONDS = 5, 30

FROM_THE_COPY = '''"""Import the copied packages, not those of an editable install."""
import os
import sys

copied = {name for folder in os.environ.get("PYTHONPATH", "").split(os.pathsep) for name in os.listdir(folder or ".")}
sys.meta_path = [f for f in sys.meta_path if not copied & set(getattr(f, "known_source_files", ()))]
'''


class CannotBuild(Exception):
    """The unchanged sources cannot be built or do not pass a test."""


@dataclass(frozen=True)
class Check:
    """A command that detects mutants by its exit status.

    Attributes:
        command: its words. ``{build}`` is the build's folder, ``{source}`` that of the copied sources.
        targets: what the build makes for it.
        files: the built files that it runs. If a mutant changes none of their bytes, it is not run.
    """

    name: str
    command: tuple[str, ...]
    targets: tuple[str, ...] = ()
    files: tuple[str, ...] = ()


@dataclass(frozen=True)
class Recipe:
    """How the sources of a part are copied and built.

    Attributes:
        name: the folder below build/mutants. Parts with the same name share the copy and the build.
        copied: paths that are copied, relative to the root.
        project: the folder with CMakeLists.txt, relative to the root; None: nothing is compiled.
        options: CMake's options.
        environment: variables of the tests. ``{build}`` and ``{source}`` as in a test's command.
        prepare: called once with the copied sources and the build's folder.
    """

    name: str
    copied: tuple[str, ...]
    project: str | None = None
    options: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict, hash=False)
    prepare: Callable[[Path, Path], None] | None = None


@dataclass(frozen=True)
class Part:
    """Sources that one build compiles and the same tests detect."""

    recipe: Recipe
    patterns: tuple[str, ...]
    tests: tuple[Check, ...]
    without: tuple[str, ...] = ()
    root: Path = ROOT

    def sources(self) -> list[Path]:
        """Return the files that are changed."""
        without = {path for pattern in self.without for path in self.root.glob(pattern)}
        found = {path for pattern in self.patterns for path in self.root.glob(pattern) if path.is_file()}
        return sorted(found - without)


def run(command: Iterable[str], seconds: float, **options: object) -> tuple[int | None, str]:
    """Run a command; return its status, None after the time limit, and its output. All its processes end."""
    limited = ("sh", "-c", f'ulimit -v {MOST_KILOBYTES}; exec "$@"', "sh", *command)
    process = subprocess.Popen(
        limited,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        text=True,
        errors="replace",
        start_new_session=True,
        **options,  # type: ignore[call-overload]
    )
    try:
        output, _ = process.communicate(timeout=seconds)
        return process.returncode, output
    except subprocess.TimeoutExpired:
        return None, ""
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


class Build:
    """A copy of a recipe's sources and its build. One worker uses it at a time."""

    def __init__(self, recipe: Recipe, worker: int, processes: int, root: Path = ROOT) -> None:
        self.recipe, self.processes, self.root = recipe, processes, root
        folder = root / "build" / "mutants" / f"{recipe.name}-{worker}"
        self.source, self.build = folder / "source", folder / "build"
        self.seconds: dict[str, float] = {}
        self.hashes: dict[str, str] = {}
        self._copy()
        if recipe.project is not None:
            self._configure()
        if recipe.prepare is not None:
            self.build.mkdir(parents=True, exist_ok=True)
            recipe.prepare(self.source, self.build)

    def _copy(self) -> None:
        """Copy the sources. A file with the same content keeps its time, so that it is not compiled again."""
        wanted: dict[Path, Path] = {}
        for name in self.recipe.copied:
            path = self.root / name
            for file in path.rglob("*") if path.is_dir() else [path]:
                if file.is_file() and not {"__pycache__", "build"} & set(file.relative_to(self.root).parts):
                    wanted[self.source / file.relative_to(self.root)] = file
        for old in [p for p in self.source.rglob("*") if p.is_file() and p not in wanted]:
            old.unlink()
        for new, file in wanted.items():
            if not new.is_file() or new.read_bytes() != file.read_bytes():
                new.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(file, new)
                shutil.copymode(file, new)
        (self.source / "sitecustomize.py").write_text(FROM_THE_COPY)

    def _configure(self) -> None:
        project = self.source / (self.recipe.project or "")
        # Compile each file by itself, so that a mutant costs one file.
        for file in (project / "CMakeLists.txt", project / "cmake" / "ProjectSettings.cmake"):
            if file.is_file() and "UNITY_BUILD ON" in (text := file.read_text()):
                file.write_text(text.replace("UNITY_BUILD ON", "UNITY_BUILD OFF"))
        command = ["cmake", "-S", str(project), "-B", str(self.build)]
        if not (self.build / "CMakeCache.txt").is_file() and shutil.which("ninja"):
            command += ["-G", "Ninja"]
        command += ["-DCMAKE_BUILD_TYPE=Debug", "-DCMAKE_CXX_FLAGS_DEBUG=", *self.recipe.options]
        status, output = run(command, SECONDS_OF_A_BUILD)
        if status != 0:
            raise CannotBuild(output[-3000:])

    def compile(self, targets: Iterable[str]) -> tuple[int | None, str]:
        """Build targets; return the status and the output."""
        targets = tuple(targets)
        if not targets:
            return 0, ""
        command = ["cmake", "--build", str(self.build), "--parallel", str(self.processes)]
        return run([*command, "--target", *targets], SECONDS_OF_A_BUILD)

    def _fill(self, word: str) -> str:
        return word.replace("{build}", str(self.build)).replace("{source}", str(self.source))

    def test(self, test: Check, seconds: float) -> tuple[int | None, str]:
        """Run a test; return its status, None after the time limit, and its output."""
        variables = {name: self._fill(value) for name, value in self.recipe.environment.items()}
        environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "2", **variables}
        command = [self._fill(word) for word in test.command]
        return run(command, seconds, cwd=self.source, env=environment)

    def hash_of(self, test: Check) -> str:
        """Return the hash of the built files that a test runs."""
        digest = hashlib.sha256()
        for name in test.files:
            digest.update((self.build / name).read_bytes())
        return digest.hexdigest()

    def run_unchanged(self, tests: Iterable[Check]) -> None:
        """Build the unchanged sources and run the tests, to know their times.

        Raises:
            CannotBuild: they do not compile or do not pass.
        """
        for test in tests:
            if test.name in self.seconds:
                continue
            status, output = self.compile(test.targets)
            if status != 0:
                raise CannotBuild(f"the unchanged sources do not compile for {test.name}:\n{output[-3000:]}")
            begin = time.monotonic()
            status, output = self.test(test, SECONDS_OF_A_BUILD)
            if status != 0:
                raise CannotBuild(f"the unchanged sources do not pass {test.name}:\n{output[-3000:]}")
            self.seconds[test.name] = time.monotonic() - begin
            self.hashes[test.name] = self.hash_of(test)

    def judge(self, mutant: Mutant, tests: Iterable[Check]) -> tuple[str, str]:
        """Apply a mutant, run the tests until one fails, and restore the file; return the state and the reason."""
        path = self.source / mutant.file
        text = path.read_text()
        path.write_text(changed(text, mutant))
        try:
            return self._judge(tests)
        finally:
            path.write_text(text)

    def _judge(self, tests: Iterable[Check]) -> tuple[str, str]:
        for test in tests:
            status, output = self.compile(test.targets)
            if status is None:
                return TIMEOUT, f"the compiler takes {SECONDS_OF_A_BUILD} s"
            if status != 0:
                errors = [line for line in output.splitlines() if "error" in line or "undefined" in line]
                return NOT_COMPILED, (errors or ["failed"])[0][-160:]
            if test.files and self.hash_of(test) == self.hashes[test.name]:
                continue
            limit = TIMES_OF_A_TEST * self.seconds[test.name] + MORE_SECONDS
            status, output = self.test(test, limit)
            if status is None:
                return TIMEOUT, f"{test.name}: no end within {limit:.0f} s"
            if status != 0:
                reason = f"signal {-status}" if status < 0 else last_failure(output)
                return CAUGHT, f"{test.name}: {reason}"[:200]
        return SURVIVED, ""


def last_failure(output: str) -> str:
    """Return the line that names a failed test, or the last line."""
    lines = [line for line in output.splitlines() if line.strip()]
    named = [line for line in lines if line.startswith(("FAILED", "ERROR", "E  "))]
    return " ".join((named or lines or ["no output"])[-1].split())


class Area:
    """Sources of several parts, their mutants and their tests."""

    def __init__(
        self, name: str, parts: tuple[Part, ...], equivalent: dict[str, str] | None = None, root: Path = ROOT
    ) -> None:
        self.name, self.parts, self.root = name, parts, root
        self.EQUIVALENT = equivalent or {}
        self._kills: Counter[tuple[str, str]] = Counter()
        self._builds: dict[tuple[str, int], Build] = {}
        self._part_of = {str(p.relative_to(root)): part for part in parts for p in part.sources()}

    def sources(self) -> list[Path]:
        """Return the files that are changed."""
        return [self.root / name for name in self._part_of]

    def mutants(self) -> list[Mutant]:
        """Return all mutants."""
        return [mutant for path in self.sources() for mutant in mutants_of(path, self.root)]

    def key_of(self, mutant: Mutant) -> str:
        """Return the mutant's name in EQUIVALENT."""
        return key_of(mutant, self.root)

    def prepare(self, mutants: Iterable[Mutant], workers: int) -> None:
        """Build the parts of some mutants for each worker, and run their tests.

        Raises:
            CannotBuild: the unchanged sources do not compile or do not pass.
        """
        for part in dict.fromkeys(self._part_of[mutant.file] for mutant in mutants):
            for worker in range(workers):
                key = part.recipe.name, worker
                if key not in self._builds:
                    processes = max(1, len(os.sched_getaffinity(0)) // workers)
                    self._builds[key] = Build(part.recipe, worker, processes, self.root)
                self._builds[key].run_unchanged(part.tests)

    def judge(self, mutant: Mutant, worker: int) -> tuple[str, str]:
        """Return a mutant's state and the reason. Tests that caught mutants of the same file run first."""
        part = self._part_of[mutant.file]
        tests = sorted(part.tests, key=lambda test: -self._kills[mutant.file, test.name])
        state, by = self._builds[part.recipe.name, worker].judge(mutant, tests)
        if state in (CAUGHT, TIMEOUT):
            self._kills[mutant.file, by.partition(":")[0]] += 1
        return state, by


# ---- builds -----------------------------------------------------------------------------------------


def pytest_of(name: str, *paths: str, targets: tuple[str, ...] = (), files: tuple[str, ...] = ()) -> Check:
    """Return the test that runs files of pytest without their slow tests, until one fails."""
    options = ("-x", "-q", "-n", "0", "-p", "no:cacheprovider", "-m", "not slow")
    options += ("--rootdir", str(ROOT), "-c", str(ROOT / "pyproject.toml"))
    words = [str(ROOT / path) if path.split("/")[0] in ("tests", "simulator") else path for path in paths]
    return Check(name, (sys.executable, "-m", "pytest", *options, *words), targets, files)


def add_installed(_: Path, build: Path) -> None:
    """Put the registration of torch and the simulated package of the installation beside the built library."""
    from npu_rope import native

    for path in native.load().path.parent.iterdir():
        if path.name != "libnpu_rope.so" and not (build / path.name).exists():
            (build / path.name).symlink_to(path)


CSRC = Recipe(
    "csrc",
    (
        *("CMakeLists.txt", "simulator/ascend_sim/__init__.py", "cmake", "simulator/cmake", "include"),
        *("op_kernel", "csrc", "op_host", "tests/capi", "tests/cpu", "tests/tiling"),
        "tests/fuzz/coverage/choices.h",
    ),
    project=".",
    options=("-DNPU_ROPE_TORCH=OFF", "-DNPU_ROPE_SIM=OFF", "-DNPU_ROPE_C_TESTS=ON"),
    environment={"NPU_ROPE_LIB_DIR": "{build}", "NPU_ROPE_TEST_BACKEND": "cpu", "CI": "1"},
    prepare=add_installed,
)
LIBRARY = {"targets": ("npu_rope",), "files": ("libnpu_rope.so",)}


def of_library(name: str, *paths: str) -> Check:
    """Return the test that runs files of pytest with the built library."""
    return pytest_of(name, *paths, **LIBRARY)


def c_test(name: str, target: str, folder: str) -> Check:
    """Return the test that runs a built program."""
    program = f"{folder}/{target}"
    files = (program, "libnpu_rope.so") if folder == "tests/capi" else (program,)
    return Check(name, (f"{{build}}/{program}",), (target,), files)


RULES_TESTS = (
    of_library("rope's errors", "tests/rope/test_rope_errors.py"),
    of_library(
        "errors",
        *("tests/rope/test_rope_qk_errors.py", "tests/rope/test_rope_set_rows_errors.py"),
        *("tests/rotary/test_rotary_errors.py", "tests/rotary/test_rotary_position_embedding_errors.py"),
        *("tests/norm/test_rms_norm_errors.py", "tests/norm/test_rms_norm_rope_errors.py"),
        *("tests/norm/test_qkv_norm_rope_cache_errors.py", "tests/norm/test_qkv_norm_rope_cache_limits.py"),
        *("tests/ops/test_in_place_errors.py", "tests/ops/test_error_parts.py", "tests/capi/test_check.py"),
    ),
    *(c_test(f"C: {n}", f"test_capi_{n}", "tests/capi") for n in ("rope", "rotary", "rms_norm")),
    *(c_test(f"C: {n}", f"test_capi_{n}", "tests/capi") for n in ("rms_norm_rope", "qkv_norm_rope_cache")),
)
RESULT_TESTS = (
    of_library("rope", "tests/rope/test_rope.py", "tests/rope/test_rope_angles.py"),
    of_library("norm", "tests/norm/test_rms_norm.py", "tests/norm/test_rms_norm_backward.py"),
    of_library(
        "fused", "tests/norm/test_rms_norm_rope.py", "tests/norm/test_qkv_norm_rope_cache.py", "tests/rotary"
    ),
    of_library(
        "other norms",
        *("tests/norm/test_add_rms_norm.py", "tests/norm/test_qk_square_sums.py"),
        "tests/norm/test_deterministic.py",
    ),
    of_library("all of rope", "tests/rope"),
)
TILING_TESTS = tuple(
    c_test(name, f"test_{name}", "tests/tiling")
    for name in ("rope_tile", "rope_tiling", "rms_norm_tile", "rms_norm_tiling", "qk_square_sums_tiling")
)

ANGLES = (
    *("csrc/core/rope_frequency.*", "csrc/cpu/rope_angle.*", "csrc/cpu/doubles.h", "csrc/cpu/soft_fma.h"),
    *("csrc/cpu/rope_table.h", "csrc/cpu/rms_norm_row.h"),
)

SIMULATOR = Recipe(
    "simulator",
    ("simulator",),
    project="simulator",
    options=("-DASCEND_SIM_C_TESTS=ON",),
    environment={"ASCEND_SIM_LIB_DIR": "{build}", "PYTHONPATH": "{source}:{source}/simulator", "CI": "1"},
)
CORES = {"targets": ("ascend_sim",), "files": ("libascend_sim.so",)}


def instruction_test(name: str) -> Check:
    """Return a test of instructions on Ascend910B."""
    target = f"test_simulator_{name}_ascend910b"
    files = (f"tests/{target}", "libascend_sim.so")
    return Check(f"C: {name}", (f"{{build}}/tests/{target}",), (target,), files)


CORE_TESTS = (
    *map(instruction_test, ("memory", "instructions", "movement", "scalars")),
    pytest_of("kernels", "simulator/tests/test_rules.py", "simulator/tests/test_behaviours.py", **CORES),
    pytest_of("timeline", "simulator/tests/test_timeline.py", "simulator/tests/test_order.py", **CORES),
    pytest_of("launches", "simulator/tests/test_launch.py", "simulator/tests/test_reports.py", **CORES),
    pytest_of("profiles", "simulator/tests/test_profiles.py", "simulator/tests/test_lenient.py", **CORES),
)
CHECKS = (
    *("simulator/src/order.cpp", "simulator/src/memory.cpp", "simulator/src/queues.cpp"),
    *("simulator/src/global_memory.cpp", "simulator/src/ub_contents.*", "simulator/src/leftovers.cpp"),
    *("simulator/src/shadow.h", "simulator/src/banks.cpp"),
)
INSTRUCTION_TESTS = tuple(
    map(
        instruction_test,
        (
            *("instructions", "conversions", "movement", "reductions", "compound", "sorting", "transpose"),
            *("memory", "scalars", "library", "library_rows", "library_norms", "library_more_norms"),
            *("library_reductions", "library_quant", "library_sort", "library_moves", "library_refusals"),
        ),
    )
)
CANN = {"targets": ("ascend_sim", "ascend_sim_cann"), "files": ("libascend_sim_cann.so",)}
CANN_TESTS = (
    pytest_of("functions", "simulator/tests/opapi", **CANN),
    pytest_of("programs", "simulator/tests/programs/test_c_programs.py", **CANN),
    pytest_of("runtime", "simulator/tests/programs/test_runtime_library.py", **CANN),
)

PYTHON = Recipe(
    "python",
    ("npu_rope",),
    environment={"PYTHONPATH": "{source}", "NPU_ROPE_LIB_DIR": "{build}", "CI": "1"},
    prepare=lambda _, build: copy_installed(build),
)


def copy_installed(build: Path) -> None:
    """Copy the installed libraries, because the copied package has none."""
    from npu_rope import native

    shutil.copytree(native.load().path.parent, build, dirs_exist_ok=True)


PYTHON_TESTS = (
    pytest_of("reference", "tests/reference"),
    pytest_of("rope", "tests/rope/test_rope.py", "tests/rope/test_rope_angles.py", "-k", "reference or cpu"),
    pytest_of("norms", "tests/norm", "tests/rotary", "-k", "(reference or cpu) and not sim"),
)

# For each mutant, named as by source_mutants.key_of: why it computes the same.
EQUIVALENT: dict[str, dict[str, str]] = {
    "rules": {
        "check.h | statement removed | std::vsnprintf(text, sizeof text, format, args); {va_end(args)};": "va_end does nothing in the ABIs of x86-64 and AArch64",
    },
}


def areas() -> dict[str, Area]:
    """Return the areas by their names."""
    parts = {
        "tilings": (Part(CSRC, ("op_host/*_til*.*", "op_host/ub_layout.h", "op_host/work_split.h"), TILING_TESTS),),
        "rules": (
            Part(CSRC, ("csrc/core/*.cpp", "csrc/core/*.h"), RULES_TESTS, without=ANGLES),
            Part(SIMULATOR, CHECKS, CORE_TESTS),
        ),
        "cpu": (Part(CSRC, ("csrc/cpu/*.cpp", "csrc/cpu/*.h"), RESULT_TESTS, without=ANGLES),),
        "simulator": (
            Part(SIMULATOR, ("simulator/src/*.*",), CORE_TESTS, without=CHECKS),
            Part(SIMULATOR, ("simulator/include/ascendc/**/*.h",), INSTRUCTION_TESTS),
        ),
        "cann": (Part(SIMULATOR, ("simulator/cann/opapi/*.*", "simulator/cann/runtime/*.*"), CANN_TESTS),),
        "angles": (
            Part(CSRC, ANGLES, RESULT_TESTS),
            Part(PYTHON, ("npu_rope/reference/*.py", "npu_rope/rope_attributes.py"), PYTHON_TESTS),
        ),
    }  # fmt: skip
    return {name: Area(name, of_area, EQUIVALENT.get(name)) for name, of_area in parts.items()}
