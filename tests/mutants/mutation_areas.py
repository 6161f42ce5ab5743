"""The areas beside the kernels, for mutate_kernels.py: their sources, builds, tests and equivalent mutants.

A part of an area has a copy of the sources below build/mutants, in which one mutant at a time is applied. Only
what the mutant changes is compiled again. Then the part's tests run, until one fails. Area.switch() compiles all
mutants of a sample at once instead, and a run of a test chooses one.
"""

# ruff: noqa: E501 - the keys of EQUIVALENT are lines of code
from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import platform
import re
import resource
import select
import shutil
import signal
import subprocess
import sys
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from mutant_switches import VARIABLE, SwitchedSources
from source_mutants import ROOT, Mutant, changed, key_of, mutants_of

sys.path.append(str(ROOT / "simulator" / "tests" / "programs"))

from fork_server import ForkServer

CAUGHT, SURVIVED, NOT_COMPILED, TIMEOUT = "caught", "SURVIVED", "does not compile", "timeout"
SAME = "same code"

MOST_KILOBYTES = 8 << 20  # of a process's memory: a mutant may ask for all of it
SECONDS_OF_A_BUILD = 1800
# A test's limit of processor time, from the time that it takes with the unchanged sources.
TIMES_OF_A_TEST, MORE_SECONDS = 5, 20
IDLE_SECONDS = 60  # limit for a test that waits
TIMES_OF_A_CLOCK = 20  # limit of a test's time on the clock, in limits of its processor time
QUICK_SECONDS = 10  # tests that run before the objects of Recipe.later are compiled
PYTEST = (sys.executable, "-m", "pytest")

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
        read: files and folders of the checkout that decide its outcome, beside the copied sources.
        written: files below the build's folder that its run with the unchanged sources writes, and that it compares
            in a run with a mutant.
    """

    name: str
    command: tuple[str, ...]
    targets: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    read: tuple[str, ...] = ()
    written: tuple[str, ...] = ()


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
        imported: modules that the tests' Python has imported before it runs a test.
        later: returns a regular expression. The objects whose paths match are not compiled for a mutant that a
            quick test detects without them.
    """

    name: str
    copied: tuple[str, ...]
    project: str | None = None
    options: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict, hash=False)
    prepare: Callable[[Path, Path], None] | None = None
    imported: tuple[str, ...] = ()
    later: Callable[[], str] | None = None


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
    output = ""

    def has_ended(timeout: float) -> bool:
        nonlocal output
        with contextlib.suppress(subprocess.TimeoutExpired):
            output, _ = process.communicate(timeout=timeout)
            return True
        return False

    try:
        return (process.returncode, output) if ends(has_ended, process.pid, seconds) else (None, "")
    finally:
        end_session(process.pid)
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def ends(has_ended: Callable[[float], bool], session: int, seconds: float) -> bool:
    """Wait for a session of processes; return whether it ends within its limits.

    On a busy machine, a test takes many times its usual time. The limit is therefore of processor time. A
    session that uses less than 5 % of a core for a minute waits without end; it may look for what it waits for
    from time to time. The clock is that of this loop, which may be stopped.
    """
    pause, used, clock, idle = 0.25, 0.0, 0.0, 0.0
    while not has_ended(pause):
        now = sum(processes_of(session).values()) / os.sysconf("SC_CLK_TCK")
        clock, idle = clock + pause, idle + pause
        if now >= used + 0.05 * idle:
            used, idle = now, 0.0
        if used > seconds or idle > IDLE_SECONDS or clock > TIMES_OF_A_CLOCK * seconds:
            return False
        pause = min(2 * pause, 4)
    return True


def processes_of(session: int) -> dict[int, int]:
    """Return the processes of a session, with the ticks that each and its ended children have used."""
    found = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = stat.read_text(errors="replace").rpartition(")")[2].split()
            if int(fields[3]) == session:
                found[int(stat.parent.name)] = sum(map(int, fields[11:15]))
    return found


def end_session(session: int) -> None:
    """End the processes of a session. Ninja's compilers are in groups of their own."""
    for process in processes_of(session):
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)


class PytestServer(ForkServer):  # type: ignore[misc]
    """Runs pytest in forks of a process that has imported the large modules."""

    CODE = """
import os, resource, runpy, sys
os.setsid()
resource.setrlimit(resource.RLIMIT_AS, (MOST_KILOBYTES << 10,) * 2)
runpy.run_module("pytest", run_name="__main__", alter_sys=True)
""".replace("MOST_KILOBYTES", str(MOST_KILOBYTES))

    def _wait(self, arguments: object, timeout: float) -> int:
        """Return the run's status. All its processes end, and after the time limit it ends itself."""
        child = self._receive()
        has_ended = lambda pause: bool(select.select([self._socket], [], [], pause)[0])  # noqa: E731
        has_status = False
        try:
            has_status = ends(has_ended, child, timeout)
            status = self._receive() if has_status else 0
        finally:  # also after an interrupt
            end_session(child)
        if not has_status:
            self._receive()
            raise subprocess.TimeoutExpired("pytest", timeout)
        return int(status)

    def test(self, options: Iterable[str], seconds: float, **places: object) -> tuple[int | None, str]:
        """Run pytest; return its status, None after the time limit, and its output."""
        try:
            done = self.run("-c", self.CODE, *options, timeout=seconds, **places)
        except subprocess.TimeoutExpired:
            return None, ""
        return done.returncode, done.stdout + done.stderr

    def seconds(self) -> float:
        """Return the processor time of all tests."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return sum(map(int, fields[13:15])) / os.sysconf("SC_CLK_TCK")


class Build:
    """A copy of a recipe's sources and its build. One worker changes it at a time."""

    def __init__(self, recipe: Recipe, name: str, processes: int, root: Path = ROOT) -> None:
        self.recipe, self.processes, self.root = recipe, processes, root
        folder = root / "build" / "mutants" / f"{recipe.name}-{name}"
        self.source, self.build = folder / "source", folder / "build"
        self.seconds: dict[str, float] = {}
        self.hashes: dict[str, str] = {}
        self._passes = folder / "passes.json"
        folder.mkdir(parents=True, exist_ok=True)
        lock = os.open(folder / "lock", os.O_CREAT | os.O_RDWR)
        weakref.finalize(self, os.close, lock)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise CannotBuild(f"another run uses {folder}") from None
        self._up_to_date: set[str] = set()
        self._contents: dict[Path, bytes] = {}
        self._servers: dict[int, PytestServer] = {}  # by worker
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

    def compile(self, targets: Iterable[str], *options: str) -> tuple[int | None, str]:
        """Build targets, with options of the program that runs the compiler; return the status and the output."""
        targets = tuple(target for target in targets if target not in self._up_to_date)
        if not targets:
            return 0, ""
        command = ["cmake", "--build", str(self.build), "--parallel", str(self.processes)]
        status, output = run([*command, "--target", *targets, "--", *options], SECONDS_OF_A_BUILD)
        if status == 0:
            self._up_to_date.update(targets)
        return status, output

    def _write(self, path: Path, text: str) -> None:
        """Change a source."""
        path.write_text(text)
        self._up_to_date.clear()

    def _fill(self, word: str) -> str:
        return word.replace("{build}", str(self.build)).replace("{source}", str(self.source))

    def test(
        self, test: Check, seconds: float, worker: int = 0, more: Mapping[str, str] | None = None
    ) -> tuple[int | None, str]:
        """Run a test with ``more`` variables; return its status, None after the time limit, and its output."""
        variables = {name: self._fill(value) for name, value in self.recipe.environment.items()}
        variables |= more or {}
        environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "2", **variables}
        command = [self._fill(word) for word in test.command]
        places: dict[str, object] = {"cwd": self.source, "env": environment}
        if command[: len(PYTEST)] != list(PYTEST):
            return run(command, seconds, **places)
        if worker not in self._servers:
            self._servers[worker] = PytestServer(sys.executable, self.recipe.imported, environment)
        return self._servers[worker].test(command[len(PYTEST) :], seconds, **places)

    def hash_of(self, test: Check) -> str:
        """Return the hash of the built files that a test runs."""
        digest = hashlib.sha256()
        for name in test.files:
            digest.update((self.build / name).read_bytes())
        return digest.hexdigest()

    def run_unchanged(self, tests: Iterable[Check]) -> None:
        """Build the unchanged sources and run the tests, to know their times. Tests that have passed with the
        same sources in an earlier run do not run again.

        Raises:
            CannotBuild: they do not compile or do not pass.
        """
        passes = json.loads(self._passes.read_text()) if self._passes.is_file() else {}
        for test in tests:
            if test.name in self.seconds:
                continue
            status, output = self.compile(test.targets)
            if status != 0:
                raise CannotBuild(f"the unchanged sources do not compile for {test.name}:\n{output[-3000:]}")
            self.hashes[test.name] = self.hash_of(test)
            state = self._state_of(test)
            if passes.get(test.name, {}).get("state") != state:
                for name in test.written:
                    (self.build / name).unlink(missing_ok=True)
                begin = self._processor_seconds()
                status, output = self.test(test, SECONDS_OF_A_BUILD)
                if status != 0:
                    raise CannotBuild(f"the unchanged sources do not pass {test.name}:\n{output[-3000:]}")
                passes[test.name] = {"state": state, "seconds": self._processor_seconds() - begin}
                self._passes.write_text(json.dumps(passes, indent=1))
            self.seconds[test.name] = passes[test.name]["seconds"]

    def _processor_seconds(self) -> float:
        """Return the processor time of the tests so far. Other processes that end at the same time count too."""
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return used.ru_utime + used.ru_stime + sum(server.seconds() for server in self._servers.values())

    def _state_of(self, test: Check) -> str:
        """Return the hash of all that decides a test's outcome: sources, built files, and the files of the test."""
        digest = hashlib.sha256(f"{test} {self.recipe.environment} {self.hashes[test.name]}".encode())
        reads_sources = not test.files or "{source}" in str(self.recipe.environment)
        for path in (*([self.source] if reads_sources else []), *(self.root / name for name in test.read)):
            if path not in self._contents:
                content = hashlib.sha256()
                for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
                    if file.is_file() and "__pycache__" not in file.parts:
                        content.update(file.read_bytes())
                self._contents[path] = content.digest()
            digest.update(self._contents[path])
        return digest.hexdigest()[:16]

    def judge(self, mutant: Mutant, tests: Iterable[Check]) -> tuple[str, str]:
        """Apply a mutant, run the tests until one fails, and restore the file; return the state and the reason."""
        path = self.source / mutant.file
        text = path.read_text()
        self._write(path, changed(text, mutant))
        self.differs = False
        tests = tuple(tests)
        try:
            state, by = self._judge(tests)
            if state == SURVIVED and not self.differs:
                self._write(path, changed(text, replace(mutant, new="@")))  # no C++
                if all(self.compile(test.targets)[0] == 0 for test in tests):
                    return NOT_COMPILED, "this machine's compiler does not compile this text"
                return SAME, "the compiler makes the same code of it"
            return state, by
        finally:
            self._write(path, text)

    def compile_first(self) -> tuple[int | None, str]:
        """Build the library without the objects that are compiled later, whose last versions are linked."""
        link = subprocess.run(
            ("ninja", "-C", str(self.build), "-t", "commands", "-s", LIBRARY["files"][0]),
            capture_output=True, text=True, check=True,
        ).stdout  # fmt: skip
        command = link[link.index("\n") + 1 :] if link.startswith("ninja:") else link
        inputs = [word for word in command.split() if word.endswith((".o", ".a"))]
        assert self.recipe.later is not None
        later = self.recipe.later()
        now = [word for word in inputs if not re.search(later, word)]
        status, output = run(
            ("ninja", "-C", str(self.build), "-j", str(self.processes), *now), SECONDS_OF_A_BUILD
        )
        return (
            (status, output)
            if status != 0
            else run(("sh", "-c", command), SECONDS_OF_A_BUILD, cwd=self.build)
        )

    def _judge(self, tests: Sequence[Check]) -> tuple[str, str]:
        # compile_first() links the library only, so a program with objects of its own would be an old one.
        library = LIBRARY["files"][0]
        quick = [test for test in tests if library in test.files and self.seconds[test.name] < QUICK_SECONDS]
        if quick and self.recipe.later is not None and shutil.which("ninja"):
            status, output = self.compile_first()
            if status != 0:
                return not_compiled(status, output)
            if found := self._first_failure(quick, lambda _: (0, "")):
                return found
        return self._first_failure(tests, lambda test: self.compile(test.targets)) or (SURVIVED, "")

    def _first_failure(
        self, tests: Iterable[Check], compile: Callable[[Check], tuple[int | None, str]]
    ) -> tuple[str, str] | None:
        """Compile what each test needs and run it, until one fails; return the state and the reason."""
        for test in tests:
            status, output = compile(test)
            if status != 0:
                return not_compiled(status, output)
            if test.files and self.hash_of(test) == self.hashes[test.name]:
                continue
            self.differs = True
            if failure := self._failure(test):
                return failure
        return None

    def _failure(
        self, test: Check, worker: int = 0, more: Mapping[str, str] | None = None
    ) -> tuple[str, str] | None:
        """Run a test; return the state and the reason if it fails."""
        limit = TIMES_OF_A_TEST * self.seconds[test.name] + MORE_SECONDS
        status, output = self.test(test, limit, worker, more)
        if status is None:
            return TIMEOUT, f"{test.name} | no end within {limit:.0f} s of the processor"
        if status != 0:
            reason = f"signal {-status}" if status < 0 else last_failure(output)
            return CAUGHT, f"{test.name} | {reason}"[:200]
        return None


class SwitchedBuild(Build):
    """A build that has many mutants, none of which is chosen by default. All workers run its tests."""

    def __init__(self, recipe: Recipe, numbers: Mapping[Mutant, int], root: Path = ROOT) -> None:
        super().__init__(recipe, "switched", len(os.sched_getaffinity(0)), root)
        self._numbers, self._switched = numbers, SwitchedSources(self.source, numbers)

    def make(self, tests: Sequence[Check]) -> list[Mutant]:
        """Compile the mutants without those that the compiler refuses, and run the tests with none chosen; return
        the mutants.

        Raises:
            CannotBuild: the sources without mutants do not compile or do not pass.
        """
        keep_going = ("-k", "0") if (self.build / "build.ninja").is_file() else ("-k",)
        targets = dict.fromkeys(target for test in tests for target in test.targets)
        while True:
            if self._switched.write():
                for known in (self._up_to_date, self.seconds, self.hashes, self._contents):
                    known.clear()
            status, output = self.compile(targets, *keep_going)
            if status == 0:
                try:
                    self.run_unchanged(tests)
                    return self._switched.mutants()
                except CannotBuild as failure:  # some tests compile sources
                    output = str(failure)
            if not self._switched.leave_out(output, self.build):
                raise CannotBuild(output[-3000:])

    def judge_chosen(self, mutant: Mutant, tests: Iterable[Check], worker: int) -> tuple[str, str]:
        """Choose a mutant and run the tests until one fails; return the state and the reason."""
        more = {VARIABLE: str(self._numbers[mutant])}
        failures = (self._failure(test, worker, more) for test in tests)
        return next((failure for failure in failures if failure), (SURVIVED, ""))


def not_compiled(status: int | None, output: str) -> tuple[str, str]:
    """Return the state and the reason of a mutant whose compilation failed."""
    if status is None:
        return NOT_COMPILED, f"the compiler does not end within {SECONDS_OF_A_BUILD} s of the processor"
    errors = [line for line in output.splitlines() if "error" in line or "undefined" in line]
    return NOT_COMPILED, (errors or ["failed"])[0][-160:]


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
        self._judged: Counter[str] = Counter()
        self._builds: dict[tuple[str, int], Build] = {}
        self._switched: dict[Mutant, SwitchedBuild] = {}
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
        for part in dict.fromkeys(self._part_of[m.file] for m in mutants if m not in self._switched):
            for worker in range(workers):
                key = part.recipe.name, worker
                if key not in self._builds:
                    processes = max(1, len(os.sched_getaffinity(0)) // workers)
                    self._builds[key] = Build(part.recipe, str(worker), processes, self.root)
                self._builds[key].run_unchanged(part.tests)

    def switch(self, mutants: Sequence[Mutant], workers: int) -> None:
        """Compile all mutants that can be behind a condition at once. All workers use that build.

        Raises:
            CannotBuild: the unchanged sources do not compile or do not pass.
        """
        numbers = {mutant: number for number, mutant in enumerate(self.mutants(), 1)}
        for recipe in dict.fromkeys(part.recipe for part in self.parts if part.recipe.project is not None):
            parts = [part for part in self.parts if part.recipe == recipe]
            chosen = {m: numbers[m] for m in mutants if self._part_of[m.file] in parts}
            if not chosen:
                continue
            build = SwitchedBuild(recipe, chosen, self.root)
            made = build.make(list(dict.fromkeys(test for part in parts for test in part.tests)))
            self._switched |= dict.fromkeys(made, build)

    def judge(self, mutant: Mutant, worker: int) -> tuple[str, str]:
        """Return a mutant's state and the reason."""
        part, switched_build = self._part_of[mutant.file], self._switched.get(mutant)
        build = switched_build or self._builds[part.recipe.name, worker]

        def worth(test: Check) -> float:
            """Return the estimated probability that the test detects the mutant, per second of the test."""
            expected = 1.0 if words_of(mutant.file) & words_of(test.name) else 0.3
            caught = self._kills[mutant.file, test.name] + expected
            return caught / (self._judged[mutant.file] + 2) / (build.seconds[test.name] + 1)

        tests = sorted(part.tests, key=worth, reverse=True)
        if switched_build is not None:
            state, by = switched_build.judge_chosen(mutant, tests, worker)
        else:
            state, by = build.judge(mutant, tests)
        self.learn(mutant.file, state, by)
        return state, by

    def learn(self, file: str, state: str, by: str) -> None:
        """Note which test detected a mutant of a file."""
        self._judged[file] += 1
        if state in (CAUGHT, TIMEOUT):
            self._kills[file, by.partition(" | ")[0]] += 1


def words_of(path: str) -> set[str]:
    """Return the words in a path's stem that name an operator or a subject."""
    return set(re.findall(r"[a-z0-9]{2,}", Path(path).stem)) - {"test", "kernels", "errors", "check"}


# ---- builds -----------------------------------------------------------------------------------------


def pytest_of(
    name: str,
    *paths: str,
    targets: tuple[str, ...] = (),
    files: tuple[str, ...] = (),
    marks: str = "not slow",
    only: str = "",
    read: tuple[str, ...] = (),
) -> Check:
    """Return the test that runs files of pytest until one fails: those with the marks, and ``only`` those names."""
    options = ("-x", "-q", "-n", "0", "-p", "no:cacheprovider", "-m", marks, *(("-k", only) if only else ()))
    options += ("--rootdir", str(ROOT), "-c", str(ROOT / "pyproject.toml"))
    options += ("-W", "ignore:Module already imported:pytest.PytestAssertRewriteWarning")  # of PytestServer
    return Check(
        name,
        (*PYTEST, *options, *(str(ROOT / path) for path in paths)),
        targets,
        files,
        (*paths, *SUPPORT, *read),
    )


def pytests_of(*paths: str, **options: Any) -> tuple[Check, ...]:
    """Return a test for each file of pytest."""
    return tuple(pytest_of(path, path, **options) for path in paths)


# What tests import.
SUPPORT = (
    "tests/conftest.py",
    "tests/support",
    "npu_rope",
    "simulator/ascend_sim",
    "simulator/tests/conftest.py",
)


def add_installed(_: Path, build: Path) -> None:
    """Put the registration of torch and the simulated package of the installation beside the built library."""
    from npu_rope import native

    for path in native.load().path.parent.iterdir():
        beside = build / path.name
        if path.is_dir() and not beside.exists():
            beside.symlink_to(path)
        elif path.is_file() and path.name != "libnpu_rope.so":
            # Not a link: the loader would find the installation's libnpu_rope.so beside its target.
            beside.unlink(missing_ok=True)
            shutil.copy(path, beside)


def other_instruction_sets() -> str:
    """Return the pattern of the kernels' objects that this machine does not run by default."""
    from npu_rope import native

    isa = native.load().isa().replace("_", "")
    used = f"{isa}|avx512bf16" if isa == "avx512fp16" else isa  # not all kernels have code for avx512_fp16
    return rf"_(?!({used})\.)(baseline|avx2|avx512|avx512bf16|avx512fp16)\.dir/"


# The large modules that tests import. npu_rope loads its library when it is imported.
IMPORTED = ("pytest", "hypothesis", "numpy", "torch")
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
    imported=IMPORTED,
    later=other_instruction_sets,
)
LIBRARY: dict[str, Any] = {"targets": ("npu_rope",), "files": ("libnpu_rope.so",)}


def c_test(name: str, target: str, folder: str) -> Check:
    """Return the test that runs a built program."""
    program = f"{folder}/{target}"
    files = (program, "libnpu_rope.so") if folder == "tests/capi" else (program,)
    return Check(name, (f"{{build}}/{program}",), (target,), files)


C_TESTS = tuple(
    c_test(f"C/{n}", f"test_capi_{n}", "tests/capi")
    for n in ("rope", "rotary", "rms_norm", "rms_norm_rope", "qkv_norm_rope_cache")
)
RULES_TESTS = (
    *C_TESTS,
    # Rules that only the NPU's paths reach.
    *(
        c_test(name, f"test_{name}", "tests/tiling")
        for name in ("norm_dims", "strided", "rope_tiling", "rms_norm_tiling")
    ),
    *pytests_of(
        "tests/rope/test_rope_errors.py",
        *("tests/rope/test_rope_qk_errors.py", "tests/rope/test_rope_set_rows_errors.py"),
        *("tests/rotary/test_rotary_errors.py", "tests/rotary/test_rotary_position_embedding_errors.py"),
        *("tests/norm/test_rms_norm_errors.py", "tests/norm/test_rms_norm_rope_errors.py"),
        *("tests/norm/test_qkv_norm_rope_cache_errors.py", "tests/norm/test_qkv_norm_rope_cache_limits.py"),
        *("tests/ops/test_in_place_errors.py", "tests/ops/test_error_parts.py", "tests/capi/test_check.py"),
        # Valid calls: a rule must not refuse them.
        *(
            "tests/rope/test_rope_layouts.py",
            "tests/rope/test_rope_qk.py",
            "tests/rope/test_rope_set_rows.py",
        ),
        *("tests/rotary/test_rotary_mul.py", "tests/rotary/test_rotary_position_embedding.py"),
        *(
            "tests/norm/test_rms_norm.py",
            "tests/norm/test_add_rms_norm.py",
            "tests/norm/test_qk_square_sums.py",
        ),
        *("tests/norm/test_rms_norm_rope.py", "tests/norm/test_qkv_norm_rope_cache.py"),
        **LIBRARY,
    ),
)
SHARED_C_TESTS = (
    c_test("C/threads", "test_capi_threads", "tests/capi"),
    c_test("C/no_memory", "test_capi_no_memory", "tests/capi"),
    c_test("C/mul_add", "test_cpu_mul_add", "tests/cpu"),
)
CALLS_OF_ALL = pytests_of(
    *("tests/ops/test_small_norms_and_tables.py", "tests/ops/test_over_ctypes.py"),
    "tests/ops/test_mixed_frameworks.py",
    **LIBRARY,
)
ROTATION_TESTS = (
    *C_TESTS[:2],
    *pytests_of(
        *("tests/rope/test_rope.py", "tests/rope/test_rope_angles.py", "tests/rope/test_rope_kernels.py"),
        "tests/rope/test_kept_tables.py",
        *(
            "tests/rope/test_rope_layouts.py",
            "tests/rope/test_rope_positions.py",
            "tests/rope/test_rope_qk.py",
        ),
        *(
            "tests/rope/test_rope_long.py",
            "tests/rope/test_rope_passes.py",
            "tests/rope/test_rope_set_rows.py",
        ),
        *(
            "tests/rope/test_small_arrays.py",
            "tests/rope/test_rope_torch.py",
            "tests/rope/test_rope_qk_torch.py",
        ),
        *("tests/rope/test_rope_arguments.py", "tests/rope/test_rope_set_rows_torch.py"),
        *("tests/rotary/test_rotary_mul.py", "tests/rotary/test_rotary_position_embedding.py"),
        "tests/integrations/test_onnx_backend.py",
        **LIBRARY,
    ),
)
NORM_TESTS = (
    C_TESTS[2],
    *pytests_of(
        *(
            "tests/norm/test_rms_norm.py",
            "tests/norm/test_rms_norm_backward.py",
            "tests/norm/test_add_rms_norm.py",
        ),
        *("tests/norm/test_norm_gradients_torch.py", "tests/norm/test_rms_norm_torch.py"),
        "tests/norm/test_rms_norm_rounded_last.py",
        **LIBRARY,
    ),
)
HEADS_TESTS = (
    *C_TESTS[3:],
    *pytests_of(
        *("tests/norm/test_rms_norm_rope.py", "tests/norm/test_qkv_norm_rope_cache.py"),
        "tests/norm/test_qk_square_sums.py",
        *("tests/norm/test_rms_norm_rope_torch.py", "tests/norm/test_qkv_norm_rope_cache_torch.py"),
        **LIBRARY,
    ),
)
RESULT_TESTS = (*ROTATION_TESTS, *NORM_TESTS, *HEADS_TESTS, *CALLS_OF_ALL)
# Sources of norms of rows, and of heads that are normalized before they are rotated.
NORM_SOURCES = ("csrc/cpu/rms_norm.*", "csrc/cpu/rms_norm_job.h", "csrc/cpu/rms_norm_backward*")
HEADS_SOURCES = ("csrc/cpu/rms_norm_rope*", "csrc/cpu/qkv_norm_rope_cache*", "csrc/cpu/normalized_heads.h")

# The folder of the tilings that the simulated CANN loads. The kernels are those of the installation.
TILING_LIBRARY = "simulated_package/op_impl/ai_core/tbe/op_tiling/lib/linux"


def add_kernels(_: Path, build: Path) -> None:
    """Put the installation's registration of torch and its simulated package, without the tilings, beside the built
    library. They are copies, because CANN knows a package by its real path."""
    from npu_rope import native

    installed = native.load().path.parent
    for path in installed.rglob("*"):
        if path.is_file() and path.name != "libnpu_rope.so" and TILING_LIBRARY not in str(path):
            place = build / path.relative_to(installed)
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, place)


TILINGS = Recipe(
    "tilings",
    (
        *("CMakeLists.txt", "simulator", "cmake", "include", "op_kernel", "csrc", "op_host", "examples"),
        *("tests/capi", "tests/cpu", "tests/cann", "tests/tiling", "tests/fuzz/coverage"),
    ),
    project=".",
    options=("-DNPU_ROPE_TORCH=OFF", "-DNPU_ROPE_C_TESTS=ON"),
    environment={
        "NPU_ROPE_LIB_DIR": "{build}",
        "NPU_ROPE_TEST_BACKEND": "sim,sim:ascend310p",
        # Each of the simulator's threads reserves 4 GiB of addresses for a moment: two may exceed MOST_KILOBYTES.
        "OMP_NUM_THREADS": "1",
        "CI": "1",
    },
    prepare=add_kernels,
    imported=IMPORTED,
)
KERNELS = ("op_kernel", "simulator")  # sources of the installed kernels and of the simulator
SIMULATED: dict[str, Any] = {
    "targets": ("npu_rope", "npu_rope_opmaster"),
    "files": ("libnpu_rope.so", f"{TILING_LIBRARY}/{platform.machine()}/libcust_opmaster_rt2.0.so"),
    "read": KERNELS,
}


def calls_of(kernel: str) -> Check:
    """Return the test that runs a kernel's calls, none of which may take longer than with the unchanged tilings."""
    script, cycles = f"tests/mutants/mutation_{kernel}_calls.py", f"{kernel}_cycles.json"
    variables = (f"NPU_ROPE_MUTATION_CYCLES={{build}}/{cycles}", f"PYTHONPATH={ROOT / 'tests/fuzz'}")
    command = ("env", *variables, sys.executable, str(ROOT / script))
    read = ("tests/mutants", "tests/fuzz", *SUPPORT, *KERNELS)
    return Check(f"{kernel} calls", command, SIMULATED["targets"], SIMULATED["files"], read, (cycles,))


TILING_TESTS = (
    *(
        c_test(name, f"test_{name}", "tests/tiling")
        for name in (
            *("rope_tile", "rope_tiling", "rms_norm_tile", "rms_norm_tiling"),
            *("qk_square_sums_tiling", "qkv_tiling"),
        )
    ),
    # The simulated kernels with these tilings, and the refusals of the chips.
    *map(calls_of, ("rope", "rotary", "norm", "square_sums", "qkv")),
    *pytests_of(
        *(
            "tests/rope/test_rope_device.py",
            "tests/rotary/test_rotary_device.py",
            "tests/norm/test_norm_device.py",
        ),
        only="refused",
        **SIMULATED,
    ),
    *pytests_of(
        *("tests/norm/test_rms_norm_errors.py", "tests/norm/test_rms_norm_rope_errors.py"),
        *("tests/norm/test_qkv_norm_rope_cache_errors.py", "tests/norm/test_qkv_norm_rope_cache_limits.py"),
        *("tests/rope/test_rope_errors.py", "tests/rotary/test_rotary_errors.py"),
        **SIMULATED,
    ),
    pytest_of(
        "tests/ops/test_compat_torch_npu_caches.py",
        "tests/ops/test_compat_torch_npu_caches.py",
        only="limit",
        **SIMULATED,
    ),
)

ROTATION_ANGLES = ("csrc/core/rope_frequency.*", "csrc/cpu/rope_angle.*", "csrc/cpu/rope_table.h")
SHARED_DOUBLES = ("csrc/cpu/doubles.h", "csrc/cpu/soft_fma.h")
ANGLES = (*ROTATION_ANGLES, *SHARED_DOUBLES, "csrc/cpu/rms_norm_row.h")

SIMULATOR = Recipe(
    "simulator",
    ("simulator",),
    project="simulator",
    # End the process if an index is outside a vector or an array.
    options=(
        "-DASCEND_SIM_C_TESTS=ON",
        "-DCMAKE_CXX_FLAGS=-D_GLIBCXX_ASSERTIONS -fsanitize=bounds -fsanitize-undefined-trap-on-error",
    ),
    environment={
        "ASCEND_SIM_LIB_DIR": "{build}",
        "PYTHONPATH": "{source}:{source}/simulator",
        "ASCEND_SIM_TEST_KERNELS": "{build}/kernels",
        "CI": "1",
    },
    imported=("pytest", "hypothesis", "numpy"),
)
CORES: dict[str, Any] = {"targets": ("ascend_sim",), "files": ("libascend_sim.so",)}


def instruction_test(name: str, target: str = "") -> Check:
    """Return a test of instructions on Ascend910B."""
    target = target or f"test_simulator_{name}_ascend910b"
    files = (f"tests/{target}", "libascend_sim.so")
    return Check(f"C/{name}", (f"{{build}}/tests/{target}",), (target,), files)


def runtime_test(name: str, target: str, *variables: str) -> Check:
    """Return a test of the simulated CANN's runtime, with variables of the environment."""
    program = f"tests/{target}"
    command = ("env", *variables, f"{{build}}/{program}")
    return Check(f"C/{name}", command, (target,), (program, "libascend_sim_cann.so"))


CORE_TESTS = (
    *map(
        instruction_test,
        (
            *("memory", "instructions", "movement", "scalars", "reductions", "conversions", "compound"),
            *("library", "threads"),
        ),
    ),
    instruction_test("shadow", "test_simulator_shadow"),
    *pytests_of(
        *(
            "simulator/tests/test_rules.py",
            "simulator/tests/test_behaviours.py",
            "simulator/tests/test_timeline.py",
        ),
        *(
            "simulator/tests/test_order.py",
            "simulator/tests/test_launch.py",
            "simulator/tests/test_reports.py",
        ),
        *("simulator/tests/test_profiles.py", "simulator/tests/test_lenient.py"),
        *("simulator/tests/test_timeline_page.py", "simulator/tests/test_published.py"),
        "simulator/tests/test_docs.py",
        **CORES,
    ),
    pytest_of("endless wait", "simulator/tests/test_rules.py", marks="", only="endless_wait", **CORES),
)
CHECKS = (
    *("simulator/src/order.cpp", "simulator/src/memory.cpp", "simulator/src/queues.cpp"),
    *("simulator/src/global_memory.cpp", "simulator/src/ub_contents.*", "simulator/src/leftovers.cpp"),
    *("simulator/src/shadow.h", "simulator/src/banks.cpp"),
)
INSTRUCTIONS = (
    *("instructions", "conversions", "movement", "reductions", "compound", "sorting", "transpose", "memory"),
    *("scalars", "library", "library_rows", "library_norms", "library_more_norms", "library_reductions"),
    *("library_quant", "library_sort", "library_moves", "library_refusals"),
)
INSTRUCTION_TESTS = (
    *map(instruction_test, INSTRUCTIONS),
    *(
        instruction_test(f"{name} on {soc}", f"test_simulator_{name}_{soc}")
        for soc in ("ascend310p", "ascend950")
        for name in INSTRUCTIONS
    ),
    instruction_test("library_tilings", "test_simulator_library_tilings"),
    *pytests_of(
        *("simulator/tests/test_refusals.py", "simulator/tests/test_availability.py"),
        "simulator/tests/test_docs.py",
        **CORES,
    ),
    pytest_of("signals between cores", "simulator/tests/test_rules.py", only="signals", **CORES),
)
CANN: dict[str, Any] = {"targets": ("ascend_sim", "ascend_sim_cann"), "files": ("libascend_sim_cann.so",)}
FUNCTION_TESTS = tuple(
    test
    for path in sorted((ROOT / "simulator/tests/opapi").glob("test_*.py"))
    for test in pytests_of(str(path.relative_to(ROOT)), **CANN)
) + pytests_of("simulator/tests/programs/test_argument_types.py", marks="not slow and not long", **CANN)
RUNTIME_TESTS = (
    # Its tests are slow because of what they do to a process, not because of their time.
    pytest_of(
        "simulator/tests/programs/test_runtime_library.py",
        "simulator/tests/programs/test_runtime_library.py",
        marks="",
        **CANN,
    ),
    runtime_test("streams", "test_simulator_stream_threads"),
    runtime_test("streams immediately", "test_simulator_stream_threads", "ASCEND_SIM_STREAMS=immediate"),
    runtime_test("no_memory_runtime", "test_simulator_no_memory_runtime"),
    *(
        pytest_of(
            f"simulator/tests/programs/test_{name}.py",
            f"simulator/tests/programs/test_{name}.py",
            marks="",
            **CANN,
        )
        for name in ("c_programs", "streams", "races", "run_command")
    ),
    *pytests_of(
        "simulator/tests/opapi/test_shared_memory.py",
        "simulator/tests/opapi/test_arithmetic_calls.py",
        **CANN,
    ),
    pytest_of("devices", "simulator/tests/programs/test_hccl.py", only="rule_of_devices", **CANN),
)

PYTHON = Recipe(
    "python",
    ("npu_rope",),
    environment={
        "PYTHONPATH": "{source}",
        "NPU_ROPE_LIB_DIR": "{build}",
        "NPU_ROPE_TEST_BACKEND": "reference,cpu",
        "CI": "1",
    },
    imported=IMPORTED,
    prepare=lambda _, build: copy_installed(build),
)


def copy_installed(build: Path) -> None:
    """Copy the installed libraries, because the copied package has none."""
    from npu_rope import native

    shutil.copytree(native.load().path.parent, build, dirs_exist_ok=True)


PYTHON_TESTS = (
    *pytests_of("tests/reference/test_params.py", "tests/reference/test_rope_reference.py"),
    *pytests_of(
        *("tests/rope/test_rope.py", "tests/rope/test_rope_angles.py", "tests/rope/test_rope_errors.py"),
        *(
            "tests/rope/test_rope_qk.py",
            "tests/rope/test_rope_set_rows.py",
            "tests/rope/test_rope_arguments.py",
        ),
        *("tests/rotary/test_rotary_mul.py", "tests/rotary/test_rotary_position_embedding.py"),
        *(
            "tests/norm/test_rms_norm.py",
            "tests/norm/test_rms_norm_backward.py",
            "tests/norm/test_add_rms_norm.py",
        ),
        *("tests/norm/test_rms_norm_rope.py", "tests/norm/test_qkv_norm_rope_cache.py"),
        "tests/norm/test_qk_square_sums.py",
        *("tests/integrations/test_onnx_backend.py", "tests/integrations/test_random_onnx.py"),
    ),
)

# For each mutant, named as by source_mutants.key_of: why it computes the same.
EQUIVALENT: dict[str, dict[str, str]] = {
    "tilings": {
        "rotary_tiling.cpp | number + 1 | std::copy(shape.sin_stride, shape.sin_stride + {2}, in.tables.sin_stride);": "it also sets the first stride of the ids, which is set next, or not read without ids",
        "qk_square_sums_tiling.cpp | comparison | for (int k = 0; k {<} 2; ++k) {": "sets the tile of a third side, which this kernel does not have",
        "qk_square_sums_tiling.cpp | number + 1 | for (int k = 0; k < {2}; ++k) {": "sets the tile of a third side, which this kernel does not have",
        "qk_square_sums_tiling.cpp | arithmetic | for (int64_t tokens = rows / most_heads; tokens > 1; tokens = tokens {*} 3 / 4)": "the first tile of several tokens fits UB, so the next ones are not tried",
        "qk_square_sums_tiling.cpp | arithmetic | for (int64_t tokens = rows / most_heads; tokens > 1; tokens = tokens * 3 {/} 4)": "the first tile of several tokens fits UB, so the next ones are not tried; the loop ends when the product is negative",
        "qk_square_sums_tiling.cpp | arithmetic | for (int64_t heads = std::min(rows, most_heads); heads >= 1; heads = heads {*} 3 / 4) tiles.push_back({1, heads});": "the first tile of these fits UB, or none of them does",
        "qk_square_sums_tiling.cpp | number + 1 | int64_t levels = 0, gather_rows = 0, setup_lanes = 0, tail_offset = 0, temp_offset = {0};": "both layouts set it",
        "qk_square_sums_tiling.cpp | number + 1 | for (int k = 0; k < {2}; ++k)": "the array has two elements, so the compiler ends the loop there",
        "qk_square_sums_tiling.cpp | statement removed | data_.head_elements = in_.D; {common_.copy_mode = kCopyBursts};": "new tiling data has this mode, 0",
        "qk_square_sums_tiling.cpp | comparison | if (head_bytes() {>=} kUbBlockBytes) return true;": "a head of one block is copied by bursts, and is not asked about",
        "qk_square_sums_tiling.cpp | statement removed | layout->outputs.bytes = 2 * (4 * round_up(2 * common_.block_tokens, 8) + kUbBlockBytes); {layout->levels = 1};": "the loop counts from 0 to at least 1, because there is a chunk",
        "rms_norm_tile.h | number + 1 | int64_t n = {0}; // elements of a row": "the tiling sets it",
        "rms_norm_tile.cpp | comparison | for (; rows >= 1; rows = rows {>} 4 ? rows * 3 / 4 : rows - 1) {": "4 * 3 / 4 is 4 - 1",
        "rms_norm_tiling.cpp | comparison | if (s.outer[k] {>} 1 && !s.scale_is_shared[k]) return false;": "along a dimension of size 1 the scale has size 1 too, so all rows share it",
        "rope_tile.cpp | comparison | if (side >= kRopeRotatedSides && call.value_size {>} 0)": "a call with a third side has values with elements",
        "rope_tile.cpp | number + 1 | if (call.factors.streamed_head_bytes > {0}) { // the factors of a tile, beside its rows and the next table": "a row has at least 32 bytes",
        "rope_tile.cpp | number + 1 | if (call.entry_bytes > {0}) {": "an entry has 2 or 4 bytes",
        "rope_tile.cpp | number + 1 | const int64_t max_gather_lanes = common.row_pitch <= 256 ? 2048 : {1024};": "the pitch is a multiple of 8, and only an odd one divides 1025",
        "rope_tiling.h | number + 1 | int64_t rows = {0}; // with position_ids: rows of the tables": "the kernel reads it with position_ids only, and then the caller sets it",
        "rms_norm_tiling.cpp | logic | common_.tokens_inner = common_.heads > 1 && stride[1] == call_.n {&&} stride[2] != call_.n;": "another order of rows of which none are adjacent, or of one head",
        "rms_norm_tile.h | comparison | return a.chunk != b.chunk ? a.chunk > b.chunk : a.rows() {>} b.rows();": "tiles of one chunk size, or of as many whole rows, are the same tile",
        "rope_tile.cpp | number + 1 | parts = heads == 1 ? all_heads + {1} : ceil_div(all_heads, heads - 1);": "the loop ends with any number above all_heads",
        "rms_norm_tile.h | name | bool adds = false, backward = {false}; // add_rms_norm, rms_norm_backward": "the tiling sets it",
        "rms_norm_tiling.h | name | bool deterministic = {false}; // rms_norm_backward: dscale does not depend on the order of the cores": "check_and_tile_rms_norm sets it, whose default is the same",
        "rope_tile.h | number + 1 | int64_t ub_bytes = {0}; // bytes that the kernel may allocate": "the tiling sets it",
        "rope_tile.h | number + 1 | int64_t item_bytes = {0}, out_bytes = 0; // bytes of an element of x, and of out": "the tiling sets it",
        "rope_tile.h | number + 1 | int64_t position_bytes = {0}; // bytes of a token's positions on all planes": "the tiling sets it if the tables are computed, and only then it is read",
        "qk_square_sums_tiling.cpp | comparison | for (int64_t tokens = rows / most_heads; tokens {>} 1; tokens = tokens * 3 / 4)": "the next statement adds the same tile of one token",
        "rms_norm_tiling.cpp | comparison | if (in_.shape.n {<=} kLongestWholeRow) {": "no chip has UB for a whole row of 16,384 elements",
        "rope_tile.cpp | number + 1 | const int64_t max_gather_lanes = common.row_pitch <= 256 ? {2048} : 1024;": "the pitch is a multiple of 8, and only an odd one divides 2049",
        "rotary_tiling.cpp | number + 1 | std::fill(in.shape.pos_stride, in.shape.pos_stride + {2}, 0);": "the next member is axis_offset[0], which is 0 without sections",
        "rms_norm_tiling.cpp | number + 1 | common_.tokens_inner = common_.heads > 1 && stride[1] == call_.n && stride[{2}] != call_.n;": "if both strides are n, there is one token",
        "rope_tile.h | number + 1 | int64_t block_tokens = 0, token_slots = 0, gather_rows = {0}, setup_lanes = 0;": "layout_of() sets it",
        "qk_square_sums_tiling.cpp | comparison | is_packed() && head_bytes() {<} kUbBlockBytes && layout->tile.heads < std::max(in_.N[0], in_.N[1]);": "a head of one block is not packed",
        "rope_tile.h | number + 1 | int64_t tail_offset = {0}; // in an input or output buffer, in bytes": "layout_of() sets it",
        "rms_norm_tile.cpp | statement removed | layout.tile = tile; {layout.levels = 1};": "the loop counts from 0 to at least 1, because there is a chunk",
        "rope_tiling.cpp | number + 1 | stride[1] = common->seq == 1 ? {0} : stride[s.S == 1 ? 0 : 1];": "the stride of a single token has no effect",
        "rope_tiling.h | name | bool ids_int64 = {false};": "it is read with position_ids only, and then the caller sets it",
        "rope_tiling.h | number + 1 | int64_t cos_stride[2] = {}, sin_stride[{2}] = {}, id_stride[2] = {};": "a longer array",
        "ub_layout.h | number + 1 | int64_t offset = {0}, bytes = 0;": "place_regions() sets it",
        "rope_tile.h | number + 1 | int32_t key = {0}; // the tiling key: kRopeHalves, ...": "the tiling sets it",
        "rope_tile.h | number + 1 | int64_t item_bytes = 0, out_bytes = {0}; // bytes of an element of x, and of out": "the tiling sets it",
        "rope_tile.h | number + 1 | int64_t buffers = {2}; // number of input buffers, and of output buffers": "layout_of() sets that of a layout, and the tiling that of a call that has more",
        "rms_norm_tile.h | name | bool scale_shared = {true}; // all rows have one scale": "the tiling sets it",
        "rope_tile.cpp | comparison | if (unit.whole_heads > 0 && unit.whole_heads {<} all_heads && unit.whole_heads * row_bytes >= min_bytes)": "the statements above have added the tile of all heads",
        "rope_tiling.cpp | comparison | if (!layout && call_.whole_heads {>} 0) return refuse_norm();": "every other call has a tile that fits",
        "rope_tiling.cpp | comparison | for (int k = 0; k {<} shape_.sides; ++k)": "a side that does not exist has no heads; behind the third is pos_stride[0], which is 0 in qkv_norm_rope_cache",
        "qk_square_sums_tiling.cpp | number + 1 | WorkSplit best = split_work(in_.S, 1, all, head_bytes(), platform_.cores, all, {0});": "the heads have one part, so that the cost of a token changes no choice",
        "row_factors_tiling.h | number + 1 | is_converted ? to_int32(staging_bytes) : -{1}};": "the kernel asks for a number below 0",
        "qk_square_sums_tiling.cpp | number + 1 | constexpr int64_t kMaxRows = {4095}; // of a tile: a DMA instruction copies at most 4095 rows": "tiles of 4095 and of 4096 rows exceed UB, because a row has at least 32 bytes",
        "qk_square_sums_tiling.cpp | number + 1 | constexpr int64_t kMaxGatherLanes = {2048}; // lanes of one Gather, unless a row is longer": "the pitch is a multiple of 8, and only an odd one divides 2049",
        "qk_square_sums_tiling.cpp | number + 1 | int64_t levels = {0}, gather_rows = 0, setup_lanes = 0, tail_offset = 0, temp_offset = 0;": "both layouts set it",
        "qk_square_sums_tiling.cpp | comparison | for (int k = 0; k {<} 2; ++k)": "the array has two elements, so the compiler ends the loop there",
        "qk_square_sums_tiling.cpp | number + 1 | for (int k = 0; k < 2; ++k) std::copy(in_.x_stride[k], in_.x_stride[k] + {2}, common_.side[k].x_stride + 1);": "it also sets out_stride[0], which this kernel does not read",
        "qk_square_sums_tiling.cpp | comparison | bool can_store(int64_t rest) const { return !is_310p() || in_.S {<} kLeastStoredTokens || !is_too_few(rest); }": "4 tokens are one share and one block on Ascend310P, without a rest",
        "qk_square_sums_tiling.cpp | number + 1 | for (int64_t tokens = rows / most_heads; tokens > 1; tokens = tokens * 3 / {4})": "the first tile of several tokens fits UB, so the next ones are not tried",
        "qk_square_sums_tiling.cpp | comparison | if (most_heads {<=} kMaxRows) tiles.push_back({1, most_heads});": "a tile of 4095 heads exceeds UB, because a head has at least 32 bytes",
        "qk_square_sums_tiling.cpp | number + 1 | for (int64_t heads = std::min(rows, most_heads); heads >= 1; heads = heads * 3 / {4}) tiles.push_back({1, heads});": "the first tile of these fits UB, or none of them does",
        "qk_square_sums_tiling.cpp | number + 1 | const int64_t parts = common_.head_parts > 1 ? common_.head_parts * round_up(2 * common_.block_tokens, 8) : {0};": "4 bytes are fewer than kLeastBytes",
        "qk_square_sums_tiling.cpp | name | bool is_long_ = {false};": "run() sets it before it is read",
        "qk_square_sums_tiling.h | number + 1 | int64_t S = {0}, D = 0;": "the callers set it",
        "qk_square_sums_tiling.h | number + 1 | int64_t S = 0, D = {0};": "the callers set it",
        "qk_square_sums_tiling.h | number + 1 | int64_t N[{2}] = {}; // heads of q and k": "a longer array",
        "qk_square_sums_tiling.h | number + 1 | int64_t x_stride[{2}][2] = {}; // of q and k, by token and head, in elements": "a longer array",
        "qk_square_sums_tiling.h | number + 1 | int64_t x_stride[2][{2}] = {}; // of q and k, by token and head, in elements": "a longer array",
        "rope_tile.cpp | number + 1 | constexpr int64_t kRunBytes = 8 * {1024}; // preferred bytes of a run of one head's tokens, if they are adjacent in GM": "a row has a multiple of 32 bytes, and none of 8193 to 8200 is one",
        "rope_tile.cpp | number + 1 | int64_t heads, max_tokens, max_heads = {0};": "some side has a head, because a call without heads is not tiled",
        "rope_tile.cpp | comparison | if (common.copy_mode == kCopyPacked && heads {>} 0 && run * common.head_size * call.item_bytes < kUbBlockBytes)": "a tile that is too small for a side without heads is too small for the side that has heads",
        "rope_tile.cpp | number + 1 | if (unit.whole_heads > {0} && unit.whole_heads < all_heads && unit.whole_heads * row_bytes >= min_bytes)": "one head is also the last of the equal parts",
        "rope_tile.cpp | number + 1 | const int64_t half_bytes = call.key == kRopeHalves ? call.common->n_dims / 2 * 4 : {0};": "neither 0 nor 1 is half a period",
        "rope_tile.cpp | number + 1 | const int64_t max_gather_lanes = common.row_pitch <= {256} ? 2048 : 1024;": "the pitch is a multiple of 8, so it is never 257",
        "rope_tile.cpp | number + 1 | const int64_t min_bytes = table_tokens == 1 ? {0} : p.min_tile_bytes;": "every tile has at least 32 bytes",
        "rope_tile.h | number + 1 | int32_t sides = {1}; // tensors of heads": "the tiling sets it",
        "rope_tile.h | number + 1 | int64_t entry_bytes = 0, entry_pitch = {0}; // given tables: bytes of an entry; entries from one row to the next": "the tiling sets it if the tables are given; otherwise the value that follows from it is overwritten",
        "rope_tile.h | number + 1 | int64_t value_size = {0}; // the head size of values; 0: the call has none": "a value of one element is never longer than a rotated head, and a call with values sets it",
        "rope_tile.h | number + 1 | int64_t max_head_size() const { return std::max<int64_t>(has_rotated_heads() ? common->head_size : {0}, value_size); }": "a call without rotated heads has values with elements",
        "rope_tile.h | number + 1 | return std::max<int64_t>(has_rotated_heads() ? common->row_pitch : {0}, value_pitch());": "a call without rotated heads has values, whose row has at least 8 elements",
        "rope_tile.h | number + 1 | int64_t tokens = {0}, heads = 0; // of a tile of side 0": "every tile is made with its three numbers",
        "rope_tile.h | number + 1 | int64_t tokens = 0, heads = {0}; // of a tile of side 0": "every tile is made with its three numbers",
        "rope_tile.h | number + 1 | int64_t table_tokens = {0}; // minimum number of tokens of one table, unless a unit has fewer": "every tile is made with its three numbers",
        "rope_tile.h | number + 1 | int64_t block_tokens = {0}, token_slots = 0, gather_rows = 0, setup_lanes = 0;": "layout_of() sets it",
        "rope_tile.h | number + 1 | int64_t block_tokens = 0, token_slots = {0}, gather_rows = 0, setup_lanes = 0;": "layout_of() sets it",
        "rope_tile.h | number + 1 | int64_t block_tokens = 0, token_slots = 0, gather_rows = 0, setup_lanes = {0};": "layout_of() sets it",
        "rope_tile.h | number + 1 | int64_t temp_offset = {0}; // in `work`, in bytes": "layout_of() sets it",
        "rope_tile.h | number + 1 | int64_t staging_offset = {0}; // in `work`, in bytes: behind the scratch memory of constants and tables": "layout_of() sets it",
        "rope_tile.h | number + 1 | int64_t cos_offset = {0}; // in `table`, in bytes": "layout_of() sets it",
        "rope_tile.h | comparison | return a.table_tokens != b.table_tokens ? a.table_tokens {>} b.table_tokens : a.rows() > b.rows();": "the two numbers differ there",
        "rope_tile.h | comparison | return a.table_tokens != b.table_tokens ? a.table_tokens > b.table_tokens : a.rows() {>} b.rows();": "candidates with one table size and as many rows are the same tile",
        "rope_tiling.cpp | number + 1 | if (merged) stride[0] = {0};": "a call with merged batches has one batch, number 0",
        "rope_tiling.cpp | number + 1 | if (is_empty) return computed_ ? check_rope_frequencies(rope_frequencies(in_.params, nullptr, {0})) : Check{};": "there are no factors, whose stride it is",
        "rope_tiling.cpp | number + 1 | if (!layout && call_.whole_heads > {0}) return refuse_norm();": "a norm over the only head counts as a norm of each head, so this number is never 1",
        "rope_tiling.cpp | logic | if (!planes_ {||} !rope_has_sections(in_.params.mode)) return;": "without sections all lanes have plane 0 at offset 0, and the masks of a single plane are not read",
        "rope_tiling.cpp | statement removed | for (int axis = 0; axis < kRopeAxes; ++axis) { {plane_of[axis] = -1};": "no pair has an axis that does not rotate, so its plane is not read",
        "rope_tiling.cpp | number + 1 | plane_of[axis] = -{1};": "no pair has an axis that does not rotate, so its plane is not read",
        "rope_tiling.cpp | statement removed | void set_copy_mode() { {common_.copy_mode = kCopyBursts};": "new tiling data has this mode, 0",
        "rope_tiling.cpp | comparison | head_bytes() {>=} kUbBlockBytes || (heads_adjacent_ && min_heads * head_bytes() >= kUbBlockBytes);": "a head of one block is copied by bursts, or the call has a cache and is not packed",
        "rope_tiling.cpp | comparison | if (head_bytes() {<} kUbBlockBytes) common_.tokens_inner = 0;": "a head of one block is copied by bursts, or the call has a cache, so that this is 0 already",
        "rope_tiling.cpp | comparison | for (int k = 0; k {<} shape_.sides && common_.copy_mode == kCopyPacked && heads_adjacent_; ++k) {": "a side that does not exist has no heads and strides of 0, so its granule is 1",
        "rope_tiling.cpp | number + 1 | common_.copy_mode == kCopyPacked || call_.whole_heads > {0} ? heads() : tile_preferences().min_heads,": "a norm over the only head counts as a norm of each head, so this number is never 1",
        'rope_tiling.cpp | statement removed | {static_assert(kOutFloat32 == NPU_ROPE_FLOAT32 && kOutFloat16 == NPU_ROPE_FLOAT16, "out_type has these numbers")};': "a check at compile time",
        'rope_tiling.cpp | logic | static_assert(kOutFloat32 == NPU_ROPE_FLOAT32 {&&} kOutFloat16 == NPU_ROPE_FLOAT16, "out_type has these numbers");': "a check at compile time, which holds",
        'rope_tiling.cpp | statement removed | static_assert(kOutFloat32 == NPU_ROPE_FLOAT32 && kOutFloat16 == NPU_ROPE_FLOAT16, "out_type has these numbers"); {static_assert(kOutBfloat16 == NPU_ROPE_BFLOAT16 && kOutInt8 == NPU_ROPE_INT8, "out_type has these numbers")};': "a check at compile time",
        'rope_tiling.cpp | logic | static_assert(kOutBfloat16 == NPU_ROPE_BFLOAT16 {&&} kOutInt8 == NPU_ROPE_INT8, "out_type has these numbers");': "a check at compile time, which holds",
        "rope_tiling.cpp | comparison | for (int k = 0; k {<} shape_.sides; ++k) {": "a side that does not exist has no heads; behind the third is pos_stride[0], which is 0 in qkv_norm_rope_cache",
        "rope_tiling.cpp | number + 1 | const int64_t rows = is_per_head ? 1 : s.N, head_stride = is_per_head ? {0} : shape_.D;": "a single row has no next one",
        "rope_tiling.cpp | number + 1 | to.scale = place(scale[k], rows, head_stride, {1});": "the kernel asks only whether it is 0",
        "rope_tiling.cpp | number + 1 | to.bias = place(bias[k], rows, head_stride, {1});": "the kernel asks only whether it is 0",
        "rope_tiling.cpp | number + 1 | std::vector<Quad> frequencies = rope_frequencies(in_.params, nullptr, {0});": "there are no factors, whose stride it is",
        "rope_tiling.cpp | name | bool heads_adjacent_ = {false}; // in every tensor, the heads of a token are adjacent in GM": "set_shape() sets it before it is read",
        "rope_tiling.h | name | bool entry_per_lane = {false};": "it is read with given tables only, and then the caller sets it",
        "rope_tiling.h | name | bool has_ids = {false};": "it is read with given tables only, and then the caller sets it",
        "rope_tiling.h | number + 1 | int64_t cos_stride[{2}] = {}, sin_stride[2] = {}, id_stride[2] = {};": "a longer array; the copy of its last element is overwritten by that of sin_stride",
        "rope_tiling.h | number + 1 | int64_t cos_stride[2] = {}, sin_stride[2] = {}, id_stride[{2}] = {};": "a longer array; the copy of its last element is overwritten by table_rows",
        "rope_tiling.h | number + 1 | double epsilon = {0};": "only rms_norm_rope reads it, and it sets it",
        "rope_tiling.h | name | bool intermediate_rounding = {false}; // round as a call of rms_norm and a call of rope do": "only rms_norm_rope reads it, and it sets it",
        "rope_tiling.h | name | bool positions_int64 = {false};": "it is read with computed tables only, and then the caller sets it",
        "rope_tiling.h | name | bool rows_int64 = {false};": "it is read with a cache only, and then the caller sets it",
        "rope_tiling.h | comparison | bool scatters_side(int side) const { return scatters && (qkv ? side {>} 0 : side == shape.sides - 1); }": "qkv_norm_rope_cache has no batches, so that the strides of q_out are already those of the tiling",
        "rotary_tiling.cpp | number + 1 | std::copy(shape.cos_stride, shape.cos_stride + {2}, in.tables.cos_stride);": "the next member is sin_stride[0], which the next statement sets",
        "rotary_tiling.cpp | number + 1 | std::copy(shape.rope.pos_stride, shape.rope.pos_stride + {2}, in.tables.id_stride);": "it copies axis_offset[0], 0, to the next member, the epsilon of a norm, which is 0",
        "rotary_tiling.cpp | statement removed | std::copy(shape.rope.pos_stride, shape.rope.pos_stride + 2, in.tables.id_stride); {std::fill(in.shape.pos_stride, in.shape.pos_stride + 2, 0)};": "kernels with given tables do not read positions, and the strides are those of the ids",
        "work_split.h | number + 1 | double min_work = {0};": "the first number of parts sets it",
        "rms_norm_tile.cpp | number + 1 | constexpr int64_t kMaxRows = {512}; // rows of a tile; each row needs memory for its statistics": "a tile of 16 KiB has at most 512 rows, because a row has at least 32 bytes",
        "rms_norm_tile.cpp | number + 1 | constexpr int64_t kMaxGatherLanes = {2048}; // lanes of one Gather, unless a row is longer": "the pitch is a multiple of 8, and only an odd one divides 2049",
        "rms_norm_tile.cpp | comparison | const bool may_keep_row = call.n {<=} call.ub_bytes; // larger sizes may overflow": "UB has no room for a float32 row of that size",
        "rms_norm_tile.h | number + 1 | int64_t ub_bytes = {0}; // bytes that the kernel may allocate": "the tiling sets it",
        "rms_norm_tile.h | number + 1 | int64_t x_bytes = {0}, out_bytes = 0; // bytes of an element of x; of scale, out and grad": "the tiling sets it",
        "rms_norm_tile.h | number + 1 | int64_t x_bytes = 0, out_bytes = {0}; // bytes of an element of x; of scale, out and grad": "the tiling sets it",
        "rms_norm_tile.h | name | bool adds = {false}, backward = false; // add_rms_norm, rms_norm_backward": "the tiling sets it",
        "rms_norm_tile.h | number + 1 | int64_t scale_pitch = {0}; // distance in UB from the scale of a row to the next one, in elements": "the tiling sets it for whole rows, and chunks do not use it",
        "rms_norm_tile.h | number + 1 | int64_t tokens = {1}, heads = 1;": "row_tiles() and chunk_tiles() set it",
        "rms_norm_tile.h | number + 1 | int64_t tokens = 1, heads = {1};": "row_tiles() and chunk_tiles() set it",
        "rms_norm_tile.h | name | bool keeps_row = {false}; // UB keeps a row between its passes; in rms_norm_backward: the sums of dscale": "chunk_tiles() sets it, and the kernels of whole rows do not read it",
        "rms_norm_tile.h | name | bool keeps_scale = {false}; // UB keeps the scale after its first load": "chunk_tiles() sets it, and the kernels of whole rows do not read it",
        "rms_norm_tile.h | number + 1 | int64_t g_offset = 0, temp_offset = {0}; // in `work`, in bytes": "layouts of whole rows set it, and the kernels of chunks do not read it",
        "rms_norm_tile.h | comparison | return a.chunk != b.chunk ? a.chunk {>} b.chunk : a.rows() > b.rows();": "the chunks differ",
        "rms_norm_tiling.cpp | number + 1 | constexpr int64_t kLongestWholeRow = {16384};": "no chip has UB for a whole row of 16,385 elements",
        "rms_norm_tiling.cpp | statement removed | bool whole_blocks = n * x_bytes % kUbBlockBytes == 0 && n * out_bytes % kUbBlockBytes == 0; {common_.copy_mode = kCopyBursts};": "new tiling data has this mode, 0",
        "rms_norm_tiling.cpp | comparison | common_.copy_mode = n * std::min(x_bytes, out_bytes) {<} kUbBlockBytes ? kCopyScalar : kCopyPacked;": "a row of 32 bytes has whole blocks in both types",
        "rms_norm_tiling.cpp | number + 1 | common_.tile_tokens[{1}] = common_.block_tokens = to_int32(layout.tile.tokens);": "the tiles are of side 0 only",
        "rms_norm_tiling.h | name | bool adds = {false}; // add_rms_norm": "rms_norm_tiling_input() sets it",
        "rms_norm_tiling.h | name | TilingResult<RmsNormTilingData>* tiled, bool deterministic = {false});": "callers that use the default read only the check and whether there are elements",
        "row_factors_tiling.h | number + 1 | int64_t rows = {0}; // 1 for all heads, or one for each head": "place_factors() sets it",
        "row_factors_tiling.h | number + 1 | int64_t item_bytes = {0};": "place_factors() sets it",
        "row_factors_tiling.h | number + 1 | int64_t head_stride = {0}, lane_stride = 0;": "place_factors() sets it",
        "row_factors_tiling.h | number + 1 | int64_t head_stride = 0, lane_stride = {0};": "place_factors() sets it",
        "row_factors_tiling.h | name | bool streams = {false}; // rows of which each head has its own are loaded for each tile": "place_factors() sets it",
        "row_norm_tiling.h | comparison | t.epsilon_exponent = epsilon {>} 0 ? std::ilogb(std::sqrt(epsilon)) : -127;": "the exponent of 0 is below -111 too, and the kernel takes at least 16 - 127 = -111",
        "row_norm_tiling.h | number + 1 | t.epsilon_exponent = epsilon > 0 ? std::ilogb(std::sqrt(epsilon)) : -{127};": "the kernel takes at least 16 - 127 = -111",
        "qkv_norm_rope_cache_tiling.cpp | number + 1 | std::copy(from.x_stride, from.x_stride + {2}, to.x_stride + 1);": "the statements below set out_stride[0], which is the next member",
        "qkv_norm_rope_cache_tiling.cpp | statement removed | std::copy(from.x_stride, from.x_stride + 2, to.x_stride + 1); {to.x_stride[0] = 0};": "there is one batch, and merge_batches() sets its strides to 0",
        "qkv_norm_rope_cache_tiling.cpp | number + 1 | to.x_stride[0] = {0};": "there is one batch, and merge_batches() sets its strides to 0",
        "qkv_norm_rope_cache_tiling.cpp | number + 1 | std::copy(from.out_stride, from.out_stride + {3}, to.out_stride);": "the next member is in_place, which the tiling does not read",
        "qkv_norm_rope_cache_tiling.cpp | statement removed | } else { {to.out_stride[0] = 0};": "there is one batch, and merge_batches() sets its strides to 0",
        "qkv_norm_rope_cache_tiling.cpp | number + 1 | to.out_stride[{0}] = 0;": "the next statement sets out_stride[1], and out_stride[0] is that of the only batch",
        "qkv_norm_rope_cache_tiling.cpp | number + 1 | to.out_stride[0] = {0};": "there is one batch, and merge_batches() sets its strides to 0",
        "qkv_norm_rope_cache_tiling.cpp | number + 1 | if (tables.has_ids) std::copy(shape.rope.pos_stride, shape.rope.pos_stride + {2}, tables.id_stride);": "the next member is norm.epsilon, which only rms_norm_rope reads",
    },
    "cann": {
        "elements.cpp | comparison | reason.size() {>} ending.size() && reason.compare(reason.size() - ending.size(), ending.size(), ending) == 0;": "a reason begins with the name of an argument, so it is longer than its ending",
        "sorting.cpp | comparison | for (size_t i = 0; i {<} values.size(); ++i)": "one index more is a multiple of a row's size, which the loop skips",
        "allocations.cpp | number + 1 | uint64_t number = {0};": "no caller reads the number of a place without memory",
        "binary.cpp | number + 1 | if (call.is_other_scalar && scalar_dtype >= {0}) scalar = rounded_to(scalar_dtype, scalar);": "the type 0, float32, is that of the computation, so the scalar has it already",
        "rms_norms.cpp | number + 1 | float epsilon = {0};": "both functions set it",
        "rope_pairs.cpp | number + 1 | int64_t head_size = {0};": "the only function that uses it sets it",
        "objects.h | number + 1 | int64_t item_bytes = {1};": "every access sets it",
        "images.cpp | number + 1 | const Operand to_row = narrow(out, height, y, 1), row = narrow(from, height, nearest(height, y), {1});": "a copy has the size of its target, which is one element",
        "graphs.h | number + 1 | enum CaptureMode : int32_t { kGlobal = 0, kThreadLocal = 1, kRelaxed = 2, kNoCapture = {3} };": "CANN has no such number; the calls refuse 3 and 4",
        "own_kernels.cpp | number + 1 | return launch(nullptr, {0}, std::move(executor), kernel->stream);": "a launch without a workspace does not read its size",
        "report.cpp | number + 1 | bool is_written = file && std::fputs(json.done().c_str(), file) >= {0};": "the C library returns 1 or EOF",
        "report.cpp | statement removed | const std::string cause = std::strerror(errno); {std::rename(draft_path.c_str(), lost_path.c_str())};": "test_run_command.py counts the lost reports of a run",
        "scheduler_state.h | name | bool has_device_wait = {false};": "the clock of this wait is empty",
        "add_product.cpp | number + 1 | float beta = {1}, alpha = 1;": "every function sets it",
        "padding.cpp | number + 1 | const int64_t shift = std::min(std::max(diagonal, -out.shape[rows] - {1}), size + 1);": "a diagonal below all rows clears the same elements",
        "padding.cpp | number + 1 | int64_t before = 0, after = {0}; // negative if elements are removed": "a dimension without padding copies all elements with a positive number behind them too",
        "events.cpp | number + 1 | int64_t first = 0, last = {0};": "record_time() sets it, or the call ends",
        "host_memory.cpp | name | if (!read_host(words.data(), static_cast<const char*>(first) + done, count)) return {false};": "a copy from memory that cannot be read fails, and its source is not compared",
        "convolution.cpp | number + 1 | int64_t groups = {1};": "the function sets it",
        'own_kernels.cpp | name | {"pointer", static_cast<char*>(first), {static_cast<int64_t>(bytes)}, {1}, 1, {true}, true});': "an access that writes conflicts with every other one",
        "argument_types.h | number + 1 | int32_t self = 0, other = 0, alpha = -{1}, out = 0;": "every number below 0 means that there is no alpha",
        "virtual_memory.cpp | number + 1 | if (file >= {0}) close(file);": "a process has its standard input, so that another file has a larger number",
        "host_memory.cpp | comparison | if (count {<=} 0) {": "the system call returns 0 for 0 bytes only",
        "images.cpp | number + 1 | const TypesByChip types = with_undocumented(by_chip(on_310p | kBf16 | kFloatType, on_310p), {0}, kFloatType);": "1 is the set of float32 alone, which the document lists for these chips",
        "rotary_embedding.cpp | name | fits_any_layout = fits_any_layout || fits_layout(layout, mode, x.shape, {cos}.shape);": "a check before it requires that cos and sin have the same shape",
        "rotation.cpp | arithmetic | more.reserve(rows.size() {*} static_cast<size_t>(x_shape[dim]));": "a hint of the vector's size, and no size of x is 0 here",
        "allocations.cpp | number + 1 | padding > {0}};": "the padding is 0 or 32",
        "memory.cpp | number + 1 | uint64_t bytes = {0};": "it is set if an allocation is found, and not read",
        "allocations.cpp | arithmetic | if (bytes > kDeviceBytes {-} device_bytes_in_use(device)) return nullptr;": "tests have 8 GiB of addresses, so that the host's allocation fails first, with the same status and text",
        "callbacks.cpp | number + 1 | constexpr std::chrono::seconds kMaxWait({20}); // time in which the subscribed thread must call the callback": "a longer limit of time",
    },
    "cpu": {
        "qkv_norm_rope_cache.cpp | number + 1 | rotation::rotate_heads(call.rope, call.rotation, kRealType<Real>, table, {bytes, bytes, 1, {0}, 0},": "one head needs no stride",
        "rms_norm_rope.cpp | comparison | for (int64_t first = 0; first {<} heads.count; first += kHeadsPerBlock) {": "a block without heads computes nothing",
        "normalized_heads.h | statement removed | if (call.dtype != NPU_ROPE_BFLOAT16) return scale; {kernels.widen[NPU_ROPE_FLOAT32](scale.data(), scale.data(), static_cast<int64_t>(scale.size()))};": "a product with a NaN is a NaN of bfloat16 too",
        "qkv_norm_rope_cache.cpp | number + 1 | int64_t item_bytes = 0, ranks = {1};": "set for each call",
        'isa.cpp | logic | bool has_avx512bf16() { return has_avx512() {&&} __builtin_cpu_supports("avx512bf16"); }': "this processor has both; on one that has not, the test of the widest set detects it",
        "rms_norm_kernels.cpp | comparison | for (; i + W {<=} count; i += W) normalize_vector(i);": "the last vector is normalized with the rest, with the same bits",
        "rms_norm_backward_kernels.cpp | arithmetic | for (int k = 0; k < kDoublesPerVector && first {+} k < rows; ++k)": "factors of rows that the block does not have",
        "qkv_norm_rope_cache.cpp | number + 1 | if (fits_floats(mean)) return {{{1}, 1 / std::sqrt(mean)}, true};": "nothing reads the power of such factors",
        "qkv_norm_rope_cache.cpp | number + 1 | const int threads = threads_for(S * (q->shape[{1}] + k->shape[1]) * q->shape[2]);": "another number of threads",
        "parallel.cpp | number + 1 | if (threads <= {1}) return body(0, n, PartMemory(Parts(bytes).address()), job);": "the work of two threads is done by one, which is only slower",
        "parallel.h | number + 1 | size_t used_ = {0};": "memory that is not aligned, which the sanitized C tests detect",
        "rotation.h | arithmetic | return address_bits {%} kStreamAlignBytes == 0;": "another way to store the same result",
        "rms_norm_backward_kernels.cpp | comparison | for (int k = 0; k < kDoublesPerVector && first + k {<} rows; ++k)": "factors of a row that the block does not have",
        "qkv_norm_rope_cache.cpp | assignment | for (const Side<Real>& side : call->side) elements {+=} side.shape.N * side.shape.D;": "another number of threads, and another way to store",
        "rms_norm_rope.cpp | number + 1 | const double power = peak > 0 && std::isfinite(peak) ? std::ldexp(1.0, kPeakExponent - std::ilogb(peak)) : {1};": "x is 0, infinite or NaN, and so is its double",
        "isa.cpp | number + 1 | return has_avx512bf16() && __get_cpuid_count(7, {0}, &a, &b, &c, &d) && (d & kFp16Bit);": "this processor has no AVX512-FP16, and the bit is 0 there too",
        "rms_norm_kernels.cpp | name | if (kStream) put<{true}>(streamed + i, v);": "another way to store the same result",
        "rms_norm.cpp | number + 1 | constexpr int64_t kMaxEarlyRowBytes = int64_t{{8}} << 10;": "the mean square of a row is computed earlier or later",
        "rms_norm.cpp | comparison | const bool computes_next_early = row_bytes {<=} kMaxEarlyRowBytes;": "the mean square of a row is computed earlier or later",
        "rms_norm.cpp | condition negated | if ({has_next}) x_ahead = residual_ahead = job.x + next_offsets.x * job.format.x_bytes + distance;": "another address of a prefetch",
        "rms_norm_backward.cpp | number + 1 | if (unfit > 0) rows_at_ = -{1};": "another number that is no column",
        "rms_norm_backward.cpp | comparison | for (int r = 0; r {<} rows_; ++r) squares[r].add(sums.squares[r]), products[r].add(sums.products[r]);": "sums of a row that the block does not have",
        "rms_norm_backward.cpp | comparison | for (int r = 0; r {<} rows_; ++r)": "sums of a row that the block does not have",
        "rope_kernels.cpp | arithmetic | prefetch_bytes(reinterpret_cast<const char*>(x) + prefetch_distance, 2 * pairs {*} int64_t{sizeof(T)});": "another size of a prefetch",
        "rope_kernels.cpp | arithmetic | prefetch_bytes(reinterpret_cast<const char*>(x) {+} prefetch_distance, 2 * pairs * int64_t{sizeof(T)});": "another address of a prefetch",
        "rotation.h | number + 1 | int64_t prefetch_distance = {0}; // HeadsJob's": "another address of a prefetch",
        "rope_kernels.cpp | comparison | for (; i {<} count; ++i) dst[i] = with_bf16_nan(Element::to_float(from[i]));": "a number after the table, which the sanitized Python tests detect",
        "rotation.h | arithmetic | const int64_t item_bytes = dtype_bytes(call.dtype), bytes = 2 {*} elements * item_bytes;": "another way to store the same result, and another prefetch",
        "rope_kernels.cpp | name | outside.template copy_before<{false}>(x, y);": "another way to store the same result",
        "rms_norm.cpp | arithmetic | residual_ahead = job.residual {+} next_offsets.residual * job.format.x_bytes + distance;": "another address of a prefetch",
        "rms_norm.cpp | arithmetic | residual_ahead = job.residual + next_offsets.residual * job.format.x_bytes {+} distance;": "another address of a prefetch",
        "rms_norm.cpp | comparison | if (job.storing {==} StoreMode::kStreamed || job.stream_sum) std::atomic_thread_fence(std::memory_order_seq_cst);": "no test reads a result from another thread before the stores of this one are done",
        "rms_norm.cpp | number + 1 | constexpr int64_t kMaxVectorFloats = {16};": "another way to store the same result",
        "rms_norm.cpp | arithmetic | const int64_t total_bytes = s.rows * s.n * (x_typed_tensors * job.format.x_bytes {+} job.format.y_bytes());": "another way to store the same result",
        "rms_norm.cpp | number + 1 | (s.n % kMaxVectorFloats == {0} || s.n * item_bytes >= kMinStreamedRowBytes);": "another way to store the same result",
        "rms_norm.cpp | logic | (s.n % kMaxVectorFloats == 0 {||} s.n * item_bytes >= kMinStreamedRowBytes);": "another way to store the same result",
        "rms_norm.cpp | number + 1 | constexpr int64_t kMaxCachedSumBytes = int64_t{{256}} << 10;": "another way to store the same result",
        "rms_norm_backward.cpp | comparison | for (int r = 0; r {<} rows_; ++r) {": "addresses of a row that the block does not have; tests/capi/test_rms_norm.c with the address sanitizer detects its index",
        "rms_norm_backward.cpp | number + 1 | rows_at_ = -{1};": "no block begins at this column",
        "rms_norm_backward.cpp | statement removed | row_[r].dx = from.dx + at * x_bytes; {row_[r].x_ahead = from.x + (at + ahead_) * x_bytes};": "another address of a prefetch",
        "rms_norm_backward.cpp | arithmetic | row_[r].x_ahead = from.x {+} (at + ahead_) * x_bytes;": "another address of a prefetch",
        "rms_norm_backward.cpp | statement removed | row_[r].x_ahead = from.x + (at + ahead_) * x_bytes; {row_[r].grad_ahead = from.grad + (at + ahead_) * scale_bytes};": "another address of a prefetch",
        "rms_norm_backward.cpp | number + 1 | const int64_t of_rows = std::max<int64_t>(kLongBlockElements / std::max<int64_t>(n, 1), {4});": "another number of rows at a time",
        "rms_norm_backward_kernels.cpp | arithmetic | __builtin_prefetch(rows[r].x_ahead {+} i * kBytes);": "another address of a prefetch",
        "rms_norm_backward_kernels.h | number + 1 | const DifferentiateFn (*differentiate[{3}])[2];": "more memory than is needed",
        "rms_norm_job.h | statement removed | }); {gathered_from_ = from};": "the scale is gathered again for each row, which is only slower",
        "normalized_heads.h | number + 1 | constexpr int64_t kBlockBytes = int64_t{{8}} << 10;": "other blocks of heads, with the same bits",
        "qkv_norm_rope_cache_kernels.h | number + 1 | void (*widen[{3}])(const WidenHeadJob&); // by x's npu_rope_dtype": "more memory than is needed",
        "rms_norm_rope_kernels.cpp | name | job.stream ? rotate_stream<Element, Rotator, kPairing, kPerLaneTable, {true}>(job)": "another way to store the same result",
        "given_table.h | number + 1 | const int64_t elements = {4} * table_floats(2 * format.pairs);": "more memory than is needed",
        "given_table.h | statement removed | } {is_ordered_ = true};": "the tables are put in order again, which is only slower",
        "parallel.cpp | comparison | if (n {<=} 0) return;": "a part without elements computes nothing",
        "parallel.cpp | statement removed | if (n <= 0) return; {threads = static_cast<int>(std::min<int64_t>(threads, n))};": "a part without elements computes nothing",
        "rms_norm_kernels.cpp | number + 1 | for (; i + {8} * kLanes <= count; i += 8 * kLanes) {": "the last group is added with the rest, within the same bounds",
        "rms_norm_kernels.cpp | number + 1 | for (; i + {8} * kLanes <= count; i += 8 * kLanes) add_bf16_group<4>(p + i, sums); // for example, a head of 128": "the last group is added with the rest, within the same bounds",
        "rms_norm_kernels.cpp | arithmetic | if (next_residual_ != next_x_) __builtin_prefetch(next_residual_ + i {*} sizeof(X));": "another address of a prefetch",
        "rms_norm_kernels.cpp | comparison | if (storing {==} StoreMode::kPrefetched)": "another address of a prefetch",
        "rms_norm_kernels.cpp | arithmetic | __builtin_prefetch(reinterpret_cast<const char*>(y {+} i) + kAheadBytes, 1);": "another address of a prefetch",
        "rms_norm_kernels.cpp | statement removed | for (; i + kLine <= count; i += kLine) { {prefetcher.at(i, x, y)};": "nothing is prefetched",
        "rms_norm_kernels.h | number + 1 | void (*widen[{4}])(const void* from, double* to, int64_t count);": "more memory than is needed",
        "rope_kernels.cpp | name | job.stream ? rotate_fixed<Element, Rotator, kRotators, {true}, kExtraVector>(job)": "another way to store the same result",
        "rope_kernels.cpp | arithmetic | if (job.pairs % Rotator::kPairs == W) switch (job.pairs {/} Rotator::kPairs) {": "the loop for all sizes rotates such heads, with the same bits",
        "rope_kernels.h | number + 1 | if (active_isa() >= Isa::kAvx512 && has_16_pairs && pairs % {16} >= 8) return rope_kernels_avx2();": "other kernels, with the same bits",
        "rope_kernels.h | number + 1 | return {2} * ((pairs + kPadding - 1) / kPadding * kPadding);": "more memory than is needed",
        "rope_kernels.h | arithmetic | return 2 * ((pairs + kPadding {-} 1) / kPadding * kPadding);": "more memory than is needed",
        "rotation.h | arithmetic | constexpr int64_t kThreadsStreamHalvesFromBytes = kCacheBytes {/} 8 * 9;": "another way to store the same result",
        "rotation.h | comparison | const int64_t size_of_threads = item_bytes {==} 2 ? kThreadsStreamHalvesFromBytes : kCacheBytes;": "another way to store the same result",
        "streaming.h | comparison | return threads {==} 1 ? total_bytes > kCacheBytes / 2 : total_bytes >= size_of_threads;": "another way to store the same result",
        "vec.h | comparison | for (int64_t at = 0; at {<} bytes; at += kCacheLineBytes) __builtin_prefetch(p + at);": "one cache line more is prefetched",
        "vec.h | bits | return (DoubleVec)_mm512_roundscale_pd((__m512d)t, _MM_FROUND_TO_NEAREST_INT {|} _MM_FROUND_NO_EXC);": "the instruction also sets the flags of exceptions, which nothing reads",
        "rms_norm.cpp | number + 1 | const int64_t x_typed_tensors = job.residual ? 3 : job.grad ? 2 : {1};": "how results are stored decides the time only",
        "rms_norm.cpp | logic | if (to == job.x || to == job.residual {||} total_bytes <= kLargeAboveBytes) return StoreMode::kPlain;": "how results are stored decides the time only",
        "rms_norm_backward.cpp | number + 1 | static constexpr int64_t kBlockElements = 8 * kSumBlock, kLongBlockElements = int64_t{{32}} << 10;": "the number of rows in a block decides the time only",
        "rms_norm_backward.cpp | comparison | for (size_t j = 0; j {<} n; ++j) sums[j] += sums[static_cast<size_t>(group) * n + j];": "the sum of one more column is not read; tests/capi/test_rms_norm.c with the address sanitizer detects its address",
        "rms_norm_backward.cpp | statement removed | const int64_t max_groups = std::max<int64_t>(kMaxGroups / backward.scales, 1); {backward.groups = std::clamp<int64_t>(backward.rows_per_scale / kMinRowsPerGroup, 1, max_groups)};": "one group is the work of one thread, which decides the time only",
        "rms_norm_rope.cpp | arithmetic | prefetch_head(head + kHeadsPerBlock {*} step, D * job.item_bytes);": "a prefetch decides the time only",
        "vec.h | comparison | Int64Vec small = ((DoubleVec)((Int64Vec)t & INT64_MAX)) {<} (DoubleVec{} + 0x1p52);": "2^52 is an integer, and both ways return it",
    },
    "angles": {
        "rope_frequency.cpp | number + 1 | for (int step = {0}; step < 2; ++step) root *= 1 + (1 - power(root, p.n_dims) * p.freq_base * p.freq_base) / p.n_dims;": "one step gives 98 correct bits of a frequency with n_dims 512; an error of an angle of 2^31 turns is then below 2^-58 turns, which no result shows",
        "rms_norm_row.h | condition negated | if ({format.n <= kSquaresBlock})": "the same sums from other calls; only a longer row's sum has another order, whose error is as far below the bound",
        "rms_norm_row.h | number + 1 | round_to(kernels, stash_dtype, &epsilon, {1});": "a number beside epsilon, which the sanitized C tests detect",
        "rope_angle.cpp | comparison | for (int i = 0; i {<} constants->pairs; ++i)": "an element beyond the vectors, which the sanitized C tests detect",
        "rope_table.h | comparison | for (int k = 1; k {<} kRopeAxes; ++k)": "it writes behind an array: the sanitized C test capi_rope detects it",
        "rope_frequency.cpp | number + 1 | std::vector<Quad> powers(static_cast<size_t>(largest) + {1}, Quad(1));": "a longer vector",
        "rope_angle.cpp | number + 1 | thread_local int oldest = {0};": "another entry of the empty cache is filled first",
        "rope_angle.h | number + 1 | float theta_scale = 1, freq_scale = 1, ext_factor = 0, mscale_f32 = {1}, ramp_low = 0, ramp_high = 0;": "the policy ggml sets it, and only it reads it",
        "rope_angle.cpp | statement removed | for (int i = 0; freq_factors && i < rope_pairs(p); ++i) entry.factors.push_back(freq_factors[i * factor_stride]); {entry.is_filled = true};": "each call computes its constants again, which is only slower",
        "rope_table.h | name | bool moves = {false};": "a step to the same position is not asked about: the tables are kept",
        "rope_table.h | logic | if (on_axis != 0 {&&} on_axis != 1) return false;": "no table is computed by a step, which is only slower",
        "rope_table.h | statement removed | kernels_.reorder(order, constants_.pairs, t.natural_cos, t.natural_sin, t.ordered_cos, t.ordered_sin); {t.ordered_by = &kernels_};": "the tables are ordered again, with the same result",
        "rope_table.h | name | bool is_stepping_ = {false}; // the tables were computed by a step": "tables that are kept would be computed again, with the same result",
        "rope_table.h | number + 1 | : position.on_axis[{0}];": "without sections only the first axis is read; the others decide whether a step is used",
        "rope_frequency.cpp | comparison | for (int32_t axis = 0; axis {<} 3; ++axis)": "a pair of the last section and a pair behind all sections have the fourth axis",
        "soft_fma.h | comparison | Words in_range = (Words)(magnitude(a) {<} 0x1p990) & (Words)(magnitude(b) < 0x1p990) &": "the range is narrower than needed, and at its limit both ways are exact",
        "soft_fma.h | comparison | Words in_range = (Words)(magnitude(a) < 0x1p990) & (Words)(magnitude(b) {<} 0x1p990) &": "the range is narrower than needed, and at its limit both ways are exact",
        "soft_fma.h | number + 1 | if (__builtin_expect((in_range[0] & in_range[1]) == 0, {0}))": "a hint to the compiler, which changes no result",
        "soft_fma.h | comparison | in_range &= is_zero | (Words)(magnitude(product) {>} 0x1p-900);": "the range is narrower than needed, and at its limit both ways are exact",
        "rms_norm_row.h | number + 1 | constexpr int kPeakExponent = {16};": "another power of two, by which the row is multiplied and divided exactly",
        "rms_norm_row.h | number + 1 | if (power != {1}) kernels_.scale_by(to, power, count);": "the power is never 2: only a row whose squares leave float64's range has one, and multiplying by 1 changes nothing",
        "rms_norm_row.h | number + 1 | float scale_offset = {0};": "only rms_norm_rounded_last reads it, and it sets it",
        "rms_norm_row.h | comparison | for (int64_t at = 0; at {<} n; at += kBlock) f(at, std::min(kBlock, n - at));": (
            "an empty block has no element"
        ),
        "rms_norm.py | number + 1 | is_extreme = np.isfinite(peak) & ((peak > 2.0**500) | ((peak < 2.0**-{450}) & (peak > 0) & (epsilon == 0)))": "the squares of the rows between both limits are far inside float64's range",
        "rope_angle.cpp | number + 1 | bits &= ~((uint64_t{{1}} << kClearedBits) - 1);": "one more bit moves from hi to lo, and the products with hi stay exact",
        "rms_norm_rope.py | sign or not removed | norm = RmsNormAttributes({-}1, attributes.epsilon, attributes.norm_stash_type(dtype))": "the axis is passed beside the attributes",
        "rope.py | number + 1 | return positions if len(positions) == AXES else np.concatenate([positions, positions[:{1}]])": "a fifth plane, which no pair reads",
        "rope_attributes.py | number + 1 | ones = np.ones((AXES, {1}) if self.rope_mode.has_sections else 1, np.int64)": "the angles of the second token are not used",
        "rope_attributes.py | number + 1 | ones = np.ones((AXES, 1) if self.rope_mode.has_sections else {1}, np.int64)": "the angles of the second token are not used",
        "rope_set_rows.py | name | for token, row in zip(y.reshape(rows.size, *y.shape[-2:]), rows.ravel(), strict={True}):": "the checks of a call make both as long",
        "soft_fma.h | bits | Words is_zero = (Words)(a == 0.0) {|} (Words)(b == 0.0); // then the plain sum is exact, with the right sign": "with one zero, the product is below the range, so that the C library computes the same",
        "rms_norm.py | number + 1 | shift = np.where(power == 1, 1, {2.0}**PEAK)": "a product and a quotient by another scale, which differ in float64's last bit",
        "rope_table.h | statement removed | } {t.is_filled = may_step_ = true};": "tables are computed from the position again, within the same bounds",
        "rope_frequency.cpp | number + 1 | for (int32_t axis = 0; axis < {3}; ++axis)": "a pair of the last section and a pair behind all sections have the fourth axis",
        "rope_frequency.cpp | number + 1 | pairs[i] = {0, i, -{1}};": "a number below 0 means that no section begins",
        "doubles.h | bits | return !any_nan_or_without(as_float(~as_bits(v) {&} kExponent), kExponent);": "no vector counts as finite, so the terms of each row are added lane by lane, which is only slower",
        "doubles.h | number + 1 | constexpr int64_t kLastBit = int64_t{{1}} << (53 - 16), kLostBits = kLastBit - 1; // a double has 53 bits": "15 significant bits are kept, and 13 are enough",
        "rope_table.h | comparison | moves |= on_axis {==} 1;": "a step of 1 on every axis is not used, which is only slower",
        "soft_fma.h | comparison | (Words)(magnitude(c) {<} 0x1p1000) & (Words)(magnitude(product) < 0x1p1000);": "the range is narrower than needed, and at its limit both ways are exact",
        "soft_fma.h | number + 1 | Words is_zero = (Words)(a == 0.0) | (Words)(b == {0.0}); // then the plain sum is exact, with the right sign": "a product with 1 is exact too, and with 0 the C library computes the same",
        "rope_frequency.cpp | number + 1 | return -{1};": "every number below 0 means that no section begins",
        "rope_frequency.cpp | assignment | for (int32_t section : p.sections) sector_count {+=} section;": "a remainder has the sign of the dividend, so a negative divisor gives the same one",
        "rope_angle.cpp | name | bool is_filled = {false};": "an empty entry has n_dims 0, which no call has",
        "rope_angle.h | number + 1 | static constexpr int64_t kMostBytes = {128} << 10;": "more tables are kept, with the same results",
        "rope_angle.cpp | comparison | if (tokens {<=} static_cast<int64_t>(tokens_.size())) return tokens_.data();": "the tables of each call are computed again, which is only slower",
        "rope_angle.cpp | number + 1 | const int64_t floats = table_floats(pairs), bytes_of_token = {4} * floats * int64_t{sizeof(float)};": "more memory than the tables need",
        "rope_angle.cpp | arithmetic | memory_.assign(static_cast<size_t>(tokens * bytes_of_token) {/} sizeof(CacheLine), {});": "more memory than the tables need",
        "rope_angle.cpp | comparison | if (tokens {>} kMostBytes / bytes_of_token) return nullptr;": "fewer tables are kept, with the same results",
        "rope_angle.cpp | condition negated | if ({tokens <= static_cast<int64_t>(tokens_.size())}) return tokens_.data();": "no tables are kept, which is only slower",
        "rope_angle.h | number + 1 | int calls = {0}; // that use them": "no tables are kept, which is only slower",
        "rope_angle.h | number + 1 | return constants_->calls == {1} ? constants_->kept.of(tokens, constants_->pairs) : nullptr;": "no tables are kept, which is only slower",
        "rope_angle.h | statement removed | use(constants.get()); {own_ = std::move(constants)};": "the call reads constants that are freed, which the sanitized C tests detect",
        "rope_angle.h | name | bool forward = {true};": "it is set when tables are filled, and not read before",
        "rope_angle.cpp | number + 1 | constants->turns_lo.assign(padded, {0.0});": "no rotation reads the entries of the padding",
        "rope_angle.cpp | statement removed | CacheEntry& entry = entries[oldest]; {oldest = (oldest + 1) % kEntries};": "the cache then keeps one entry, and computes the others again, which is only slower",
        "rope_angle.h | number + 1 | float theta_scale = 1, freq_scale = {1}, ext_factor = 0, mscale_f32 = 1, ramp_low = 0, ramp_high = 0;": "the policy ggml sets it, and only it reads it",
        "rope_table.h | name | t.is_filled = may_step_ = {true};": "tables are computed from the position again, within the same bounds",
        "rope_table.h | statement removed | } {std::fill(pair_multipliers_ + constants_.pairs, pair_multipliers_ + job.count, 0.0)};": "no rotation reads the entries of the padding",
        "rope_table.h | logic | if (follows {&&} !(is_stepping_ && is_same_step)) {": "each step begins again from a table of the previous position, within the same bounds",
        "rope_table.h | statement removed | if (!is_same_step) fill_unscaled(step, step_cos_, step_sin_); {has_step_ = true};": "the tables of a step are computed again, which is only slower",
        "rope_table.h | comparison | for (int i = 0; i {<} constants_.pairs; ++i) sin[i] = -sin[i];": "an entry of the padding, which no rotation reads",
        "rope_table.h | name | bool may_step_ = {false}; // the last token is of this segment": "begin_segment() sets it before the first token",
        "soft_fma.h | comparison | Words inexact = (Words)(error != 0.0), opposite = (Words)((error {>} 0.0) != (sum > 0.0));": "a sum without an error is exact, and is not changed",
        "qkv_norm_rope_cache.py | comparison | usable = (peak {>} 0) & np.isfinite(peak)": "the power is 1 for a peak of 0 too, because frexp gives the exponent 0",
        "rms_norm.py | comparison | is_extreme = np.isfinite(peak) & ((peak {>} 2.0**500) | ((peak < 2.0**-450) & (peak > 0) & (epsilon == 0)))": "the squares of a row at the limit are far inside the range of float64",
        "rms_norm.py | comparison | is_extreme = np.isfinite(peak) & ((peak > 2.0**500) | ((peak {<} 2.0**-450) & (peak > 0) & (epsilon == 0)))": "the squares of a row at the limit are far inside the range of float64",
        "rms_norm.py | number + 1 | exponent = np.where(is_extreme, np.minimum(PEAK - np.frexp(np.where(is_extreme, peak, {1.0}))[1], 1000), 0)": "the exponent of such a row is not used",
        "rms_norm.py | number + 1 | exponent = np.where(is_extreme, np.minimum(PEAK - np.frexp(np.where(is_extreme, peak, 1.0))[1], {1000}), 0)": "another power of two, by which the row is multiplied and divided exactly",
        "rotary.py | number + 1 | table.reshape(-{1}, sizes.tokens, 1, table.shape[-1])": "NumPy takes any negative size as the unknown one",
        "rotary.py | sign or not removed | lanewise_sin += sin_products.sum({-}2)": "the heads have four dimensions, so both numbers name the same one",
        "rope_attributes.py | number + 1 | if self.n_dims <= {0} or self.n_dims % 2:": "1 is odd, and is refused as such",
        "rope_attributes.py | number + 1 | starts = [0, *np.cumsum(self.sections[:{3}])]": "the sector of a pair is below the sum of the sections",
        "rope_attributes.py | number + 1 | low, high = ggml_corr_dims(params) if ext_factor != 0 else (f({0}), f(0))": "without YaRN, no pair reads the ends of the ramp",
        "rms_norm_row.h | number + 1 | RowFactors factors_of(const char* x, int64_t rows = {1}, int64_t row_bytes = 0) const {": "the same row twice has the same mean square; a sum that overflows is computed again with a power of two",
    },
    "rules": {
        "qkv_norm_rope_cache_check.cpp | comparison | for (int axis = 0; axis {<} axes; ++axis)": "reads plane 0 twice or, with four axes, an index beyond the array, which the sanitized Python tests detect",
        "qkv_norm_rope_cache_check.h | number + 1 | QkvSide side[{3}];": "a longer array",
        "qkv_norm_rope_cache_check.h | logic | return rope.S == 0 {||} (side[0].N * side[0].D == 0 && side[1].N * side[1].D == 0 && side[2].N * side[2].D == 0);": "on the CPU a call without elements computes nothing; tests of the simulated kernels detect its launch",
        "qkv_norm_rope_cache_check.h | number + 1 | return rope.S == 0 || (side[0].N * side[0].D == 0 && side[1].N * side[1].D == {0} && side[2].N * side[2].D == 0);": "on the CPU a call without elements computes nothing; tests of the simulated kernels detect its launch",
        "rope_check.cpp | number + 1 | side_of_cache.out_stride[{0}] = 0;": "no stride of a batch addresses a cache, and the next statement sets the other one",
        "queues.cpp | number + 1 | return {offset, 0, -{1}, 0};": "a negative number means no buffer",
        "queues.cpp | number + 1 | return {offset, {0}, -1, 0};": "a view without a buffer is refused before its bytes are read",
        "rope_check.h | number + 1 | int sides = {1}; // 2: queries and keys; 3: also values, which are not rotated": "check_rope and check_rotary set it, and qkv_norm_rope_cache does not read it",
        "check.h | statement removed | std::vsnprintf(text, sizeof text, format, args); {va_end(args)};": "va_end does nothing in the ABIs of x86-64 and AArch64",
        "dtype.h | number + 1 | constexpr int64_t dtype_bytes(int32_t d) { return is_known_dtype(d) ? kDtypes[d].bytes : {0}; }": "every caller asks for the size of a type that a check has accepted",
        'qkv_norm_rope_cache_check.cpp | number + 1 | constexpr const char *kXName[3] = {"q", "k", "v"}, *kOutName[{3}] = {"q_out", "k_out", "v_out"},': "a longer array",
        'qkv_norm_rope_cache_check.cpp | number + 1 | *kCacheName[{3}] = {"q_out", "k_cache", "v_cache"}, *kScaleName[2] = {"q_scale", "k_scale"},': "a longer array",
        "qkv_norm_rope_cache_check.cpp | name | side.given = {true};": "only whether v is given is read",
        "qkv_norm_rope_cache_check.cpp | name | got_shape({cos}));": "sin has the same shape, by the rule above",
        "qkv_norm_rope_cache_check.cpp | number + 1 | s.out_stride[1] = is_paged ? used_stride(cache, 1) : {0};": "a block of such a cache has one row, so that the place in it is 0",
        "qkv_norm_rope_cache_check.cpp | comparison | if (offset->ndim < 1 || offset->ndim {>} NPU_ROPE_MAX_NDIM || !same_shape(*offset, *scale))": "a factor has at most two dimensions, so that an offset with four is refused by its shape",
        'qkv_norm_rope_cache_check.cpp | comparison | const char* cache = k_rows == v_rows ? "the cache" : k_rows {<} v_rows ? kCacheName[1] : kCacheName[2];': "equal numbers are handled before",
        "qkv_norm_rope_cache_check.h | number + 1 | int64_t N = {0}, D = 0;": "q and k are set, and without v its D is 0, so that its heads have no elements",
        "qkv_norm_rope_cache_check.h | number + 1 | int64_t N = 0, D = {0};": "q and k are set, and without v its N is 0",
        "qkv_norm_rope_cache_check.h | number + 1 | int64_t table_rows = {0}, cos_stride = 0, sin_stride = 0;": "it is read in calls with tables only, whose check sets it",
        "rms_norm_dims.h | number + 1 | int64_t axis = {0};": "join_norm_dims() sets it, and other calls do not read it",
        "rope_check.cpp | comparison | const npu_rope_tensor* like = side {>} 0 ? tensors_.x[0] : nullptr;": "x has its own type and its own sizes",
        "rope_check.cpp | number + 1 | for (int axis = {0}; axis < kRopeAxes; ++axis)": "the offset of axis 0 is 0, as in a new shape",
        "rope_check.cpp | number + 1 | side_of_cache.out_stride[0] = {0};": "the rows of a cache have no batch: no kernel multiplies this stride by anything but 0",
        "rope_check.cpp | statement removed | std::vector<int64_t> seen; {seen.reserve(static_cast<size_t>(B * S))};": "the vector grows as it is filled, which only takes longer",
        "rotary_check.cpp | comparison | int64_t half = shape_.rotary_dim / 2, W = t.ndim {>=} 1 && t.ndim <= 4 ? t.shape[t.ndim - 1] : -1;": "a table of one dimension is refused with either width",
        "rotary_check.cpp | number + 1 | int64_t half = shape_.rotary_dim / 2, W = t.ndim >= {1} && t.ndim <= 4 ? t.shape[t.ndim - 1] : -1;": "a table of one dimension is refused with either width",
        "rotary_check.cpp | number + 1 | int64_t half = shape_.rotary_dim / 2, W = t.ndim >= 1 && t.ndim <= 4 ? t.shape[t.ndim - 1] : -{1};": "a width is positive, so that no negative number is one",
        "rotary_check.cpp | statement removed | pairs = static_cast<LongLong>(shape_.rotary_dim / 2); {shape_.entry_per_lane = false};": "a new shape has this value",
        "strided.cpp | number + 1 | if (distance % dims[{0}].stride < 0) --quotient;": "if the remainder is 0, only the quotient itself can be right, because the strides are nested",
        "strided.cpp | number + 1 | MergedDim both[{2} * kMaxDims];": "a longer array",
        "strided.cpp | comparison | for (int k = 0; k {<} n; ++k) widest[k] = {std::max(both[k].size_a, both[k].size_b), both[k].stride};": "fills an element that is not used; only two views without a common stride need the whole array",
        "strided.cpp | name | if (a.size[k] != b.size[k]) return {false};": "the callers have compared the shapes",
        "tensor_rules.h | arithmetic | stride[1] = used_stride(t, is_batched {+} 0, empty);": "x - 0 is x + 0",
        "tensor_rules.h | number + 1 | const npu_rope_tensor* out[{2}];": "a longer array",
        "tensor_rules.h | name | bool extent_fits = {true};": "the constructor sets it",
        "tensor_rules.h | comparison | if (size {<=} 1) continue;": "a size of 1 adds no byte",
        "tensor_rules.h | comparison | int64_t* end = span {<} 0 ? &low : &high;": "a span of 0 moves no end",
        "banks.cpp | comparison | bool is_dense(const UbLines& lines) { return lines.block_stride {<=} kBankLineBytes; }": "a dense operand has at most 8 blocks in a repeat, in different groups: both ways count each once",
        "banks.cpp | number + 1 | std::array<uint32_t, {24}> more_than_; // more_than_[n]: the set of the groups with more than n accesses": "a longer array",
        "global_memory.cpp | comparison | if (loaded != m.loaded_lines.end() && loaded->second {<} writer)": "an access of this core has another number than a write of another core",
        "leftovers.cpp | comparison | if (behind.begin {>=} behind.end) return;": "an empty range has no stretches",
        "order.cpp | statement removed | flag.clock = m.clock[int(from)]; {flag.clock.join(m.clock[int(Pipe::S)])}; // the scalar unit also issues the flag": "every later instruction joins the scalar unit's clock when it starts",
        "order.cpp | statement removed | Clock known = clock[from]; {known.join(clock[int(Pipe::S)])};": "the running instruction has joined the scalar unit's clock at its start",
        "queues.cpp | number + 1 | const int32_t b = add_buffer(-{1}, bytes, pool, site);": "every number below 0 means that no queue has the buffer",
        "queues.cpp | number + 1 | if (b >= {0}) machine().buffers[b].state = BufferState::Occupied;": "nothing reads the state of a TBuf",
        "queues.cpp | number + 1 | push_buffer(-{1}, m.ub_used, end - m.ub_used, site).state = BufferState::Occupied;": "every number below 0 means that no queue has the buffer",
        'queues.cpp | statement removed | release_event(b.filled_by, b.filled_for, b.filled_event, "DeQue", site); {b.filled_event = -1};': "EnQue sets it before the next DeQue reads it",
        "shadow.h | arithmetic | if (end {%} kBlock && last >= first) fill_part(std::max(begin, last * kBlock), end, word);": "behind the last whole block the part is empty",
    },
    "simulator": {
        "arithmetic.h | comparison | constexpr uint32_t kWidest = sizeof(T) {>} sizeof(U) ? sizeof(T) : sizeof(U);": "types of the same size give the same number",
        "convert.h | bits | const bool is_too_large = value >= kTooLarge, is_inside = (value >= kLowest) {&} (value < kTooLarge);": "a value outside is replaced by a limit, and NaN is on neither side",
        "cores.h | number + 1 | std::memset(ascend_sim::ub() + all.begin, {0}, ub_bytes);": "no page defines the contents of the workspace",
        "exponential.h | number + 1 | steps.select(tmp[3], tmp[2], tmp[{3}], kNan);": "it reads behind an array: the sanitized test simulator_library_ascend910b fails",
        "quant.h | comparison | for (uint32_t i = 0; i {<} n; ++i) dst.data()[i] = words.data()[2 * i];": "the element behind the scales is padding, or the first one of x, which is written before it is read",
        "lanes.h | logic | if (counter_mode_ {||} leading_lanes_ != kHasGaps) {": "the loop for gaps finds the same groups",
        "runtime.h | number + 1 | __attribute__((format(printf, 4, {5})));": "the attribute makes warnings only",
        "pass.cpp | condition negated | if ({m.next_number > kLargestNumber}) {": "a launch with new memory and numbers has the same results; the limit is beyond the instructions of a test",
        "cast.h | comparison | if (distance != 0 && distance < int64_t(src_bytes) && -distance {<} int64_t(extent_of(lanes, layouts[0]))) {": "at the limit the operands do not overlap, and a copy of the source has the same values",
        "convert.h | number + 1 | if (shift > {40}) return sign | uint16_t(round_units(0, mantissa != 0, 2, negative, mode));": "with a shift of 41 both ways have 0 units and a remainder below half a unit",
        "dequant.h | comparison | value = (value > 255 ? 255 : value {<} -256 ? -256 : value) + lane_parameters.offset;": "at the limit both branches give -256",
        "extremes.h | number + 1 | } while (round_output > {2});": "the number is even",
        "gather.h | number + 1 | is_indexed.assign(elements + {1}, 0);": "a longer list",
        "gather.h | number + 1 | std::memcpy(&offset, memory + offsets_addr + layout_offsets[1] + i * 4, {4});": "a byte behind a variable, which the compiler's warnings detect; the sanitized build has none",
        "tmp_sizes.h | number + 1 | constexpr TmpArrays kNone{0, 0, {0}, false};": "Silu and Swish have no form that overwrites its source, and only such a form reads the number",
        "init_memory.h | number + 1 | finish_vector((uint32_t(bytes) + kRepeatBytes - {1}) / kRepeatBytes, cycles_of(Cost::Repeat),": "the size is a multiple of 32 bytes",
        "lanes.h | comparison | if (lanes.low_mask_ == low_ones(lane_count {<} 64 ? lane_count : 64) &&": "both branches give 64 at the limit",
        "lanes.h | number + 1 | if (lanes.low_mask_ == low_ones(lane_count < {64} ? lane_count : 64) &&": "both branches give 64 for 64 lanes",
        "lanes.h | number + 1 | if (lanes.low_mask_ == low_ones(lane_count < 64 ? lane_count : {64}) &&": "low_ones gives all bits for 64 and more",
        "lanes.h | number + 1 | lanes.high_mask_ == low_ones(lane_count < 64 ? 0 : lane_count - {64}))": "the loop for gaps finds the same groups",
        "queue.h | number + 1 | int32_t buffer_ = -{1};": "every negative number means that there is no buffer",
        "reduce.h | number + 1 | : ascend_sim::kIs950 && bytes >= 256 && bytes <= {1024} ? RepeatOrder::LaneByLane": "the number of bytes is even",
        "runtime.h | number + 1 | uint32_t generation = {0}; // of the buffer when the tensor was taken from it; a later use has another one": "a view without a buffer is refused before its generation is compared",
        "transpose.h | comparison | if (to.end {<=} from.begin || from.end <= to.begin) return;": "ranges that only touch: the check of each repeat finds no overlap either",
        "norm_steps.h | number + 1 | AscendC::Add<float, false>(src, src[i], src, kMaskRegister, {1},": "counter mode ignores repeatTime",
        "norm_tiling.h | comparison | else if (rows {>} 255)": "255 rows stay 255 rows",
        "quant.h | number + 1 | ASCEND_SIM_QUANT(nullptr, scale, nullptr, offset, {0}, 0, memory, calCount); \\": "without scales nothing reads the number of columns",
        "root_mean_square.h | number + 1 | for (uint32_t i = {0}; i < rows * h; ++i) dst.data()[i] = dst.data()[i / h * h];": "the first element is copied to itself",
        'root_mean_square.h | arithmetic | run_instruction("Adds", steps.site(), first_elements("dst", dst, rows {*} h),': "the instruction also reads these bytes, and the next one writes them",
        "softmax_tiling.h | comparison | if (!only_basic_block && rows < m && rows {>} kTile) rows = rows / kTile * kTile;": "8 rows are a multiple of 8",
        "core.h | number + 1 | int64_t core = -{1};": "every report has its core",
        'core.h | number + 1 | Site set_at{"", 0}, allocated_at{"", {0}};': "alloc_event() sets it",
        "core.h | name | bool auto_sync = false, saturate = {false};": "every pass sets it",
        "core.h | number + 1 | int64_t blocks = {1};": "every pass sets it",
        "core.h | number + 1 | int32_t memory_above_buffers = -{1}; // index of the buffer with the rest of UB above the TPipe's buffers": "every negative number means that there is none",
        "pass.cpp | number + 1 | if (attempt > 0) std::this_thread::sleep_for(std::chrono::microseconds({100}));": "the pause decides the time of the host only",
        "pass.cpp | number + 1 | const uintptr_t aligned = (begin + kAlignment - {1}) / kAlignment * kAlignment;": "mmap returns a multiple of the page size",
        "pass.cpp | statement removed | where((*other)->wait.site); {ends_waits_ = true};": "the next round sets it, because there is an error now",
        'timeline.cpp | number + 1 | j.field(("busy_" + name), timeline.cores.empty() ? {0.0} : timeline.cores[slowest].busy[p]);': "a launch has at least one core",
        "timeline.h | number + 1 | int64_t critical_core = -{1};": "every pass sets it",
    },
}


def areas() -> dict[str, Area]:
    """Return the areas by their names."""
    parts = {
        "tilings": (Part(TILINGS, ("op_host/*_til*.*", "op_host/ub_layout.h", "op_host/work_split.h"), TILING_TESTS),),
        "rules": (
            Part(CSRC, ("csrc/core/*.cpp", "csrc/core/*.h"), RULES_TESTS, without=ANGLES),
            Part(SIMULATOR, CHECKS, CORE_TESTS),
        ),
        "cpu": (
            Part(CSRC, NORM_SOURCES, (*NORM_TESTS, *CALLS_OF_ALL)),
            Part(CSRC, HEADS_SOURCES, (*HEADS_TESTS, *CALLS_OF_ALL)),
            Part(
                CSRC, ("csrc/cpu/*.cpp", "csrc/cpu/*.h"), (*SHARED_C_TESTS, *RESULT_TESTS),
                without=(*ANGLES, *NORM_SOURCES, *HEADS_SOURCES),
            ),
        ),
        "simulator": (
            Part(SIMULATOR, ("simulator/src/*.*",), CORE_TESTS, without=CHECKS),
            Part(SIMULATOR, ("simulator/include/ascendc/**/*.h",), INSTRUCTION_TESTS),
        ),
        "cann": (
            Part(SIMULATOR, ("simulator/cann/opapi/*.*",), FUNCTION_TESTS),
            Part(SIMULATOR, ("simulator/cann/runtime/*.*",), RUNTIME_TESTS),
        ),
        "angles": (
            Part(CSRC, ("csrc/cpu/rms_norm_row.h",), (*NORM_TESTS, *HEADS_TESTS, *CALLS_OF_ALL)),
            Part(CSRC, SHARED_DOUBLES, (*SHARED_C_TESTS, *RESULT_TESTS)),
            Part(CSRC, ROTATION_ANGLES, (*ROTATION_TESTS, *HEADS_TESTS)),
            Part(PYTHON, ("npu_rope/reference/*.py", "npu_rope/rope_attributes.py"), PYTHON_TESTS),
        ),
    }  # fmt: skip
    return {name: Area(name, of_area, EQUIVALENT.get(name)) for name, of_area in parts.items()}
