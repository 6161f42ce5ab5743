"""Break the sources in one place at a time and check that a test detects it; see --help.

This file has the mutants of kernels and the program. source_mutants.py has the mutants of all other sources,
and mutation_areas.py the builds and tests of the areas beside the kernels.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import queue
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

from ascend_sim import CompileFailed
from mutant_switches import VARIABLE, SwitchedSources
from mutation_areas import CAUGHT, NOT_COMPILED, SAME, SURVIVED, TIMEOUT, CannotBuild, areas
from source_mutants import ROOT, Maker, Mutant, changed, closing, code_only, key_of

sys.path.append(str(ROOT / "tests" / "fuzz"))

from state_file import BadUsage, StateFile

EXPLAINED = "equivalent"
RUN_SECONDS = 120
# Rounded down from the complete runs (docs/validation.md). Explained mutants count as not caught.
REQUIRED_SHARES = {"rope": 0.96, "norm": 0.93, "qkv": 0.98, "square_sums": 1.0}

HELP = """\
Break the sources in one place at a time and check that a test detects it.

A mutant is a source file with one operator, number, condition, choice or statement changed. It is caught if a
test fails, ends by a signal, or does not end in five times its usual time (a timeout). A mutant that no test
catches is a survivor. It needs a new test, or an entry in a table EQUIVALENT with the reason why it computes
the same.

areas of kernels, in op_kernel (rope, norm, qkv, square_sums): a mutant is compiled for one column of element
types after another and runs a list of calls. A rule of the simulator, a bound of the results or the time on
the timeline catches it. tests/mutants/mutation_*.py has the columns, the calls and EQUIVALENT.

other areas, of which a run usually takes a sample:

  tilings     op_host, without the definitions for CANN
  rules       the checks of arguments (csrc/core) and of kernels (simulator/src)
  cpu         the kernels for CPUs (csrc/cpu)
  simulator   the rest of simulator/src, and the instructions (simulator/include/ascendc)
  cann        the simulated CANN (simulator/cann): runtime and aclnn functions
  angles      the arithmetic of angles and norms, in C++ and in the reference (npu_rope/reference)

Each process has a copy of the sources below build/mutants. The first build takes minutes, and a later run
continues with it. For a mutant, only the changed file is compiled (-O1), and the tests that caught other
mutants of this file run first. With CMAKE_CXX_COMPILER_LAUNCHER=ccache, the previous mutant's file is not
compiled again.

With --switch, one build has all mutants of the sample, each behind a condition that a variable makes true.
With more than about fifty mutants, this is several times faster. The compiler refuses a condition in a
constant; such a mutant is compiled by itself. Judge the survivors again (--again) without --switch: some
mutants have no effect in constant expressions, and only its own compilation shows that a mutant has the same
code.
"""
EXAMPLES = """\
examples:

  mutate_kernels.py --area rope --jobs 2 --switch    all mutants of rope's kernels: half an hour
  mutate_kernels.py --area angles --count 500 --seed 30 --state tests/mutants/outcomes/angles.json
                                                     until Ctrl-C; run it again to continue
  mutate_kernels.py --area cpu --area rules --count 60 --minutes 30
  mutate_kernels.py --area cpu --count 500 --state cpu.json --again       the survivors, with new tests
  mutate_kernels.py --area rules --only 'strided.cpp:19:13 condition'   one mutant; a survivor's line has this
  mutate_kernels.py --area cann --list | wc -l

A sample depends on the area, the seed and the sources only; a larger --count continues it. It has --count
mutants that compile. If some lines of the sources change, the mutants of all other lines stay in the sample.
A state file belongs to a seed, and may hold any areas. A later run judges again the mutants of the files that
have changed. One run at a time may use it. tests/mutants/outcomes has those of the samples in
docs/validation.md: continue these. With --minutes 0, the program prints the table and judges nothing.

exit status: 0 every mutant is caught or explained, and the kernels' shares are reached; 1 some are not; 2 bad
usage, or the unchanged sources do not build or pass; 130 interrupted.
"""


@dataclass
class Outcome:
    """The result of one mutant."""

    label: str
    kind: str
    state: str
    by: str
    key: str
    source: str  # hash of the file


class Area(Protocol):
    """Sources, their mutants, and how these are judged."""

    EQUIVALENT: dict[str, str]
    root: Path

    def sources(self) -> list[Path]: ...
    def mutants(self) -> list[Mutant]: ...
    def key_of(self, mutant: Mutant) -> str: ...
    def switch(self, mutants: Sequence[Mutant], workers: int) -> None: ...
    def prepare(self, mutants: Sequence[Mutant], workers: int) -> None: ...
    def judge(self, mutant: Mutant, worker: int) -> tuple[str, str]: ...
    def learn(self, file: str, state: str, by: str) -> None: ...


# ---- reading calls in C++ -------------------------------------------------------------------------


def arguments(text: str, opened: int) -> list[tuple[int, int]]:
    """Return the offsets of the arguments of the call whose bracket is at ``opened``."""
    end, depth, begin, spans = closing(text, opened), 0, opened + 1, []
    for i in range(opened + 1, end):
        depth += (text[i] in "([{") - (text[i] in ")]}")
        if text[i] == "," and depth == 0:
            spans.append((begin, i))
            begin = i + 1
    spans.append((begin, end))
    return [(b + len(text[b:e]) - len(text[b:e].lstrip()), e) for b, e in spans if text[b:e].strip()]


def end_of_first_declarator(text: str, begin: int, end: int) -> int:
    """Return the offset of the end of the first of several declarators in text[begin:end]."""
    depth = 0
    for i in range(begin, end):
        depth += (text[i] in "([{") - (text[i] in ")]}")
        if text[i] == "," and depth == 0:
            return i
    return end


# ---- changes ----------------------------------------------------------------------------------------

REMOVED_CALLS = (
    r"\b(EnQue|FreeTensor|SetFlag|WaitFlag|PipeBarrier|DataCacheCleanAndInvalid|VectorBarrier|ReleaseEventID|"
    r"SyncPipes|SetAtomicAdd|SetAtomicNone)\b"
)
STATEMENT = re.compile(r"[^;{}]*?" + REMOVED_CALLS + r"(?:<[^;{}()]*>)?\([^;{}]*;")
VECTOR_CALL = re.compile(
    r"\b(?:AscendC::)?(Add|Sub|Mul|Div|Adds|Muls|Maxs|Mins|Axpy|MulAddDst|FusedMulAdd|And|Or|ShiftLeft|ShiftRight|"
    r"Cast|Abs|Max|Sqrt|WholeReduceSum|BlockReduceSum|Gather|GatherMask|Brcb|Duplicate|CreateVecIndex|DataCopy|DataCopyPad|Copy)(?:<[^;(){}]*>)?\("
)
OTHER_COMPARISON = {" < ": " <= ", " <= ": " < ", " > ": " >= ", " >= ": " > "}
OTHER_COMPARISON |= {" == ": " != ", " != ": " == "}
OTHER_ROUNDINGS = {
    "CAST_RINT": ("CAST_TRUNC", "CAST_CEIL"),
    "CAST_FLOOR": ("CAST_CEIL", "CAST_RINT"),
    "CAST_NONE": ("CAST_TRUNC",),
    "CAST_ROUND": ("CAST_TRUNC",),
}
NUMBER_DEFINITION = re.compile(
    r"\b(?:const(?:expr)?\s+)?(?:auto|u?int(?:8|16|32|64)_t)\s+\w+\s*=\s*([^;{}]+);"
)


def mutants_of(path: Path) -> Iterator[Mutant]:
    make = Maker(path)
    text = make.text
    code = code_only(text)

    for m in STATEMENT.finditer(code):
        begin = m.start() + len(m.group()) - len(m.group().lstrip())
        if "__aicore__" in m.group() or re.match(r"(?:if|for|while)\b", m.group().strip()):
            inner = re.search(r"[\w.:>-]*" + REMOVED_CALLS, m.group())
            begin = m.start() + inner.start()
        yield make(f"remove {m.group(1)}", begin, m.end() - 1, "")
    for m in re.finditer(r"\bDeQue\b", code):
        yield make("DeQue becomes AllocTensor", m.start(), m.end(), "AllocTensor")
    for m in re.finditer(r"InitBuffer\(\w+, (2)\b", code):
        yield make("one buffer instead of two", m.start(1), m.end(1), "1")
    for name, others in OTHER_ROUNDINGS.items():
        for m in re.finditer(rf"\b{name}\b", code):
            for other in others:
                yield make("rounding mode", m.start(), m.end(), other)
    for m in VECTOR_CALL.finditer(code):
        yield from _call_mutants(code, m, make)
    for m in NUMBER_DEFINITION.finditer(code):
        begin, end = m.start(1), end_of_first_declarator(code, *m.span(1))
        if re.fullmatch(r"\d+", code[begin:end]) or "InitBuffer" in m.group():
            continue
        for step in ("+ 1", "- 1"):
            yield make(f"a number {step}", begin, end, f"({text[begin:end]}) {step}")
    yield from _name_mutants(code, make)
    yield from _operator_mutants(code, make)


def _call_mutants(code: str, m: re.Match[str], make) -> Iterator[Mutant]:
    spans = arguments(code, m.end() - 1)
    for b, e in spans:
        argument = code[b:e]
        if re.search(r"^\w+(?:\.\w+)*\[", argument):  # an offset into a tensor
            opened = b + argument.index("[")
            index, tensor = (opened + 1, closing(code, opened)), code[b:opened].strip()
            for sign in "+-":
                yield make(
                    f"offset {sign} 32 bytes", *index, f"({code[slice(*index)]}) {sign} BLOCK_OF({tensor})"
                )
        elif (
            re.search(r"count|repeats|repeat_|length|bytes|_cast<uint", argument) and "params" not in argument
        ):
            yield make("count or repeat + 1", b, e, f"({argument}) + 1")
            yield make("count or repeat - 1", b, e, f"({argument}) - 1")
        elif re.fullmatch(r"mask", argument.strip()):
            yield make("mask off by a lane", b, e, "WIDER_MASK(mask)")
            yield make("mask off by a lane", b, e, "NARROWER_MASK(mask)")
    name = m.group(1)
    swapped = {"Add": "Sub", "Sub": "Add", "ShiftLeft": "ShiftRight", "ShiftRight": "ShiftLeft", "And": "Or"}
    if name in swapped:
        yield make("operation", m.start(1), m.end(1), swapped[name])


def _name_mutants(code: str, make) -> Iterator[Mutant]:
    pairs = [("sin_", "cos_"), ("sin", "cos"), ("Sin", "Cos"), ("kAdd", "kSub"), ("hi", "lo")]
    for one, other in pairs:
        for a, b in ((one, other), (other, one)):
            for m in re.finditer(rf"\b{a}\b", code):
                line = code[code.rfind("\n", 0, m.start()) + 1 : code.find("\n", m.end())]
                if not re.search(r"^\s*(?:LocalTensor|NestedRows|enum|float)\b", line):  # no declaration
                    yield make(f"{a} becomes {b}", m.start(), m.end(), b)


def _operator_mutants(code: str, make) -> Iterator[Mutant]:
    conditions = [(m.end(), closing(code, m.end() - 1)) for m in re.finditer(r"(?:if|while|for)\s*\(", code)]
    conditions += [m.span(1) for m in re.finditer(r" = ([^;{}?]+) \? ", code)]
    # A minimum or maximum of two values does not depend on the comparison at equality.
    minimum_or_maximum = (
        r"([\w.>-]+) [<>]=? ([\w.>-]+) \? \1 : \2|if \((\w+) [<>]=? ([\w.>-]+)\) (?:\3 = \4|\4 = \3);"
    )
    in_minimum_or_maximum = {i for m in re.finditer(minimum_or_maximum, code) for i in range(*m.span())}
    for begin, end in conditions:
        for op, new in OTHER_COMPARISON.items():
            for hit in re.finditer(re.escape(op), code[begin:end]):
                if begin + hit.start() not in in_minimum_or_maximum:
                    yield make("comparison", begin + hit.start(), begin + hit.end(), new)
    for m in re.finditer(r"\? ([\w.()>-]+) : ([\w.()>-]+);", code):
        yield make("choice swapped", m.start(1), m.end(2), f"{m.group(2)} : {m.group(1)}")


# ---- building and running one ------------------------------------------------------------------------

# Macros that a mutant may use in addition to the kernel's names.
PRELUDE = """
#define WIDER_MASK(m) ((m)[0] = ((m)[0] << 1 | 1), (m))
#define NARROWER_MASK(m) ((m)[0] >>= 1, (m))
#define BLOCK_OF(tensor) (32 / static_cast<int32_t>(sizeof((tensor).GetValue(0))))
"""


def write_sources(mutant: Mutant | None, folder: Path) -> None:
    """Write the kernels' sources with the mutant's change below ``folder``."""
    shutil.copytree(ROOT / "op_kernel", folder / "op_kernel")
    (folder / "mutant.h").write_text(PRELUDE)
    if mutant is None:
        return
    path = folder / mutant.file
    path.write_text(changed(path.read_text(), mutant))


def try_column(kernel, column, folder: Path, unchanged: Path) -> tuple[str, str]:
    """Compile one column of element types and run its calls; return the state and the reason.

    The folder ``unchanged`` holds the unchanged kernel's library and its calls' cycles, which the first run
    writes. If the mutant's library has the same bytes, the column does not compile the changed code.
    """
    try:
        library = kernel.build(column, folder)
    except CompileFailed as refused:
        return NOT_COMPILED, str(refused).splitlines()[0][:160]
    original = unchanged / f"{column.symbol}.so"
    if not original.exists():
        shutil.copy(library, original)
    elif library.read_bytes() == original.read_bytes():
        return SURVIVED, ""
    return run_calls(kernel, column, library, unchanged)


def run_calls(kernel, column, library: Path, unchanged: Path, chosen: str = "") -> tuple[str, str]:
    """Run the calls of a column with a library and the chosen mutant; return the state and the reason."""
    environment = {**os.environ, "ASCEND_SIM_KERNELS": str(library), "OMP_NUM_THREADS": "1", VARIABLE: chosen}
    environment["NPU_ROPE_MUTATION_CYCLES"] = str(unchanged / f"{column.symbol}.json")
    environment["PYTHONPATH"] = str(ROOT / "tests/fuzz")  # for mutation_norm_calls.py
    script = str(Path(__file__).resolve().parent / kernel.script_of(column))
    command = [sys.executable, script, column.op, column.soc, column.name]
    try:
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=RUN_SECONDS)
    except subprocess.TimeoutExpired:
        return TIMEOUT, f"no end within {RUN_SECONDS} s"
    if done.returncode == 0:
        return SURVIVED, ""
    if done.returncode < 0:
        return CAUGHT, f"signal {-done.returncode}"
    output_lines = (done.stdout.strip() or done.stderr.strip()).splitlines()
    return CAUGHT, output_lines[-1][:200] if output_lines else f"exit {done.returncode}"


class KernelArea:
    """The kernels of a module such as mutation_rope."""

    root = ROOT

    def __init__(self, kernel: Any) -> None:
        self.kernel, self.EQUIVALENT = kernel, kernel.EQUIVALENT
        self._unchanged: tempfile.TemporaryDirectory[str] | None = None
        self._last_catch: dict[str, Any] = {}  # by file
        self._numbers: dict[Mutant, int] = {}  # of the mutants in the libraries
        self._libraries: dict[str, Path] = {}  # by the symbol of a column

    def sources(self) -> list[Path]:
        """Return the files that are changed."""
        return self.kernel.sources()

    def mutants(self) -> list[Mutant]:
        """Return all mutants."""
        return [mutant for path in self.sources() for mutant in mutants_of(path)]

    def key_of(self, mutant: Mutant) -> str:
        """Return the mutant's name in EQUIVALENT."""
        return key_of(mutant)

    def prepare(self, mutants: Sequence[Mutant], workers: int) -> None:
        """Build every column of the unchanged kernels once, and write its library and its cycles.

        Raises:
            CannotBuild: a column does not pass.
        """
        if self._unchanged is not None:
            return
        self._unchanged = tempfile.TemporaryDirectory()

        def reason(column: Any) -> str:
            with tempfile.TemporaryDirectory() as name:
                write_sources(None, Path(name))
                state, by = try_column(self.kernel, column, Path(name), self._folder())
            return "" if state == SURVIVED else f"the unchanged kernel is not clean ({column.symbol}): {by}"

        with ThreadPoolExecutor(workers) as pool:
            if reasons := list(filter(None, pool.map(reason, self.kernel.columns))):
                raise CannotBuild("\n".join(reasons))

    def _folder(self) -> Path:
        assert self._unchanged is not None
        return Path(self._unchanged.name)

    def judge(self, mutant: Mutant, worker: int) -> tuple[str, str]:
        """Try the columns until one catches the mutant or does not compile it.

        The column that caught the file's previous mutant comes first.
        """
        columns = self.kernel.columns_for(mutant.file)
        if last := self._last_catch.get(mutant.file):
            columns = [last, *(c for c in columns if c is not last)]
        number = self._numbers.get(mutant)
        with tempfile.TemporaryDirectory() as name:
            if number is None:
                write_sources(mutant, Path(name))
            for column in columns:
                if number is None:
                    state, by = try_column(self.kernel, column, Path(name), self._folder())
                else:
                    library = self._libraries[column.symbol]
                    state, by = run_calls(self.kernel, column, library, self._folder(), str(number))
                if state == CAUGHT:
                    self._last_catch[mutant.file] = column
                if state != SURVIVED:
                    return state, by
        return SURVIVED, ""

    def switch(self, mutants: Sequence[Mutant], workers: int) -> None:
        """Compile all mutants that can be behind a condition at once, for each column.

        Raises:
            CannotBuild: a column does not pass with no mutant chosen.
        """
        self.prepare(mutants, workers)
        folder, numbers = self._folder() / "switched", {m: n for n, m in enumerate(self.mutants(), 1)}
        folder.mkdir()
        write_sources(None, folder)
        sources = SwitchedSources(folder, {m: numbers[m] for m in mutants})

        def result(column: Any) -> Path | str:
            try:
                return self.kernel.build(column, folder)
            except CompileFailed as refused:
                return str(refused)

        def reason(column: Any) -> str:
            state, by = run_calls(self.kernel, column, self._libraries[column.symbol], self._folder())
            return (
                "" if state == SURVIVED else f"the kernel with mutants is not clean ({column.symbol}): {by}"
            )

        with ThreadPoolExecutor(workers) as pool:
            while True:
                sources.write()
                results = list(pool.map(result, self.kernel.columns))
                errors = "\n".join(r for r in results if isinstance(r, str))
                if not errors:
                    break
                if not sources.leave_out(errors, folder):
                    raise CannotBuild(errors[-3000:])
            self._libraries = {c.symbol: r for c, r in zip(self.kernel.columns, results, strict=True)}
            if reasons := list(filter(None, pool.map(reason, self.kernel.columns))):
                raise CannotBuild("\n".join(reasons))
        self._numbers = {m: numbers[m] for m in sources.mutants()}

    def learn(self, file: str, state: str, by: str) -> None:
        """Learn nothing: an outcome does not name the column."""


# ---- a run ----------------------------------------------------------------------------------------

VERSION = 3
MOST_LETTERS = 60  # of a reason in a state file
GROUP = 24  # mutants that are sorted by file
MOST_JOBS_PER_CORE = 8


def hash_of(text: str | bytes) -> str:
    """Return a hash of some bytes."""
    return hashlib.sha256(text.encode() if isinstance(text, str) else text).hexdigest()[:16]


def sampled(mutants: Sequence[Mutant], key_of: Callable[[Mutant], str], seed: int) -> list[Mutant]:
    """Return the mutants in the order of a sample. A mutant's place depends on its key and on the number of
    earlier mutants with this key, so it stays when other lines change."""
    seen: Counter[str] = Counter()
    places = {}
    for mutant in mutants:
        key = key_of(mutant)
        places[mutant] = hash_of(f"{seed} {key} {seen[key]}")
        seen[key] += 1
    return sorted(mutants, key=places.__getitem__)


@dataclass
class SavedFile:
    """The outcomes of the mutants of one file in a state file.

    Attributes:
        source: the hash of the file.
        outcomes: state and reason, by the mutant's label without the file's name.
    """

    source: str
    outcomes: dict[str, str] = field(default_factory=dict)


Saved = dict[str, dict[str, SavedFile]]  # by area and file


def load_state(file: StateFile, seed: int) -> Saved:
    """Return the outcomes of an earlier run.

    Raises:
        BadUsage: the file is of another seed, or of another program.
    """
    if not (text := file.read()):
        return {}
    try:
        content = json.loads(text)
        found = {"version": content["version"], "seed": content["seed"]}
        if found == {"version": VERSION, "seed": seed}:
            return {
                name: {path: SavedFile(**of_file) for path, of_file in of_area.items()}
                for name, of_area in content["areas"].items()
            }
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise file.unreadable(error) from None
    name, value = ("version", VERSION) if found["version"] != VERSION else ("seed", seed)
    raise BadUsage(f"--state must be a file of a run with {name} {value} but {file.path} has {found[name]}")


def saved(outcomes: dict[str, dict[str, Outcome]], saved_before: Saved) -> Saved:
    """Return the content of a state file. The areas that this run does not judge keep theirs."""
    areas = dict(saved_before)
    for name, of_area in outcomes.items():
        areas[name] = {}
        for o in of_area.values():
            path, _, place = o.label.partition(":")
            # The test that detected it. A survivor's reason is that in EQUIVALENT, which may change.
            reason = o.by.partition(" | ")[0][:MOST_LETTERS] if o.state in (CAUGHT, TIMEOUT) else ""
            of_file = areas[name].setdefault(path, SavedFile(o.source))
            of_file.outcomes[place] = f"{o.state} | {reason}"
    return areas


def loaded(area: Area, of_area: dict[str, SavedFile], sources: dict[str, str]) -> dict[str, Outcome]:
    """Return the outcomes of an area, by label, of the files that have not changed."""
    outcomes = {}
    for mutant in area.mutants() if of_area else ():
        label = mutant.label()
        of_file = of_area.get(mutant.file)
        if of_file is None or of_file.source != sources[mutant.file]:
            continue
        if (found := of_file.outcomes.get(label.partition(":")[2])) is not None:
            state, _, by = found.partition(" | ")
            outcomes[label] = Outcome(
                label, mutant.kind, state, by, area.key_of(mutant), sources[mutant.file]
            )
    return outcomes


class Run:
    """Judge the mutants of some areas, and keep the state up to date."""

    def __init__(self, options: argparse.Namespace, chosen: dict[str, Area], file: StateFile) -> None:
        self.options, self.chosen, self.file = options, chosen, file
        self.deadline = time.monotonic() + 60 * options.minutes
        self.saved = load_state(file, options.seed)
        self.sources: dict[str, str] = {}
        self.outcomes: dict[str, dict[str, Outcome]] = {}
        for name, area in chosen.items():
            for path in area.sources():
                self.sources[str(path.relative_to(area.root))] = hash_of(path.read_bytes())
            self.outcomes[name] = loaded(area, self.saved.get(name, {}), self.sources)
        self.workers: queue.Queue[int] = queue.Queue()
        for worker in range(options.jobs):
            self.workers.put(worker)

    def save(self) -> None:
        """Write the state."""
        areas = saved(self.outcomes, self.saved)
        content = {"version": VERSION, "seed": self.options.seed, "areas": areas}
        self.file.save(json.dumps(content, indent=1, default=asdict) + "\n")

    def sample(self, name: str, order: list[Mutant]) -> list[Mutant]:
        """Return the first mutants of the order, --count of which compile as far as it is known."""
        of_area, compiled, chosen = self.outcomes[name], 0, []
        for mutant in order:
            if compiled == self.options.count:
                break
            known = of_area.get(mutant.label())
            compiled += known is None or known.state != NOT_COMPILED
            chosen.append(mutant)
        return chosen

    def judge(self, name: str) -> list[Outcome]:
        """Judge an area's mutants, or those that are begun before the deadline; return their outcomes."""
        area, of_area = self.chosen[name], self.outcomes[name]
        order = area.mutants()
        if self.options.count is not None:
            order = sampled(order, area.key_of, self.options.seed)
        order = [m for m in order if re.search(self.options.only, m.label())]
        if self.options.again:
            for mutant in order:
                if (known := of_area.get(mutant.label())) and known.state in (SURVIVED, EXPLAINED):
                    del of_area[known.label]
        for outcome in of_area.values():
            area.learn(outcome.label.partition(":")[0], outcome.state, outcome.by)
        prepared: list[Mutant] = []
        if self.options.switch:
            believed = area.EQUIVALENT if self.options.believe else {}
            whole = [m for m in self.sample(name, order) if area.key_of(m) not in believed]
            if not all(m.label() in of_area for m in whole):
                area.switch(whole, self.options.jobs)
        begin, done = time.monotonic(), 0
        total = len([m for m in self.sample(name, order) if m.label() not in of_area])
        with ThreadPoolExecutor(self.options.jobs) as pool:
            while time.monotonic() < self.deadline:
                missing = [m for m in self.sample(name, order) if m.label() not in of_area]
                if not missing:
                    break
                # Mutants of a file follow each other, to compile it less often. The groups are small: a run
                # that ends early has judged the beginning of the sample.
                group = sorted(missing[:GROUP], key=lambda m: (m.file, m.begin))
                new = [m for m in group if m not in prepared]
                area.prepare(new, self.options.jobs)
                prepared += new
                for outcome in pool.map(lambda m: self._judge_one(area, m), group):
                    if outcome is None:
                        continue
                    of_area[outcome.label] = outcome
                    done += 1
                    left = (time.monotonic() - begin) / done * (total - done)
                    place = f"[{name} {done}/{total}, {left / 60:.0f} min left]"
                    print(f"{place} {outcome.state:16} {outcome.label} | {outcome.by}", flush=True)
                    self.save()
        chosen = [of_area[m.label()] for m in self.sample(name, order) if m.label() in of_area]
        for outcome in chosen:  # EQUIVALENT may have changed since the outcome was saved
            if outcome.state in (SURVIVED, EXPLAINED):
                why = area.EQUIVALENT.get(outcome.key)
                outcome.state, outcome.by = (EXPLAINED, why) if why else (SURVIVED, "")
        if self.options.minutes > 0:
            self.save()
        return chosen

    def _judge_one(self, area: Area, mutant: Mutant) -> Outcome | None:
        if time.monotonic() >= self.deadline:
            return None
        key = area.key_of(mutant)
        why = area.EQUIVALENT.get(key)
        if why and self.options.believe:
            return Outcome(mutant.label(), mutant.kind, EXPLAINED, why, key, self.sources[mutant.file])
        worker = self.workers.get()
        try:
            state, by = area.judge(mutant, worker)
        finally:
            self.workers.put(worker)
        if state == SURVIVED and why:
            state, by = EXPLAINED, why
        return Outcome(mutant.label(), mutant.kind, state, by, key, self.sources[mutant.file])


def stale_keys(area: Area) -> list[str]:
    """Return the keys of EQUIVALENT that name no mutant."""
    names = {key.partition(" | ")[0] for key in area.EQUIVALENT}
    if not names:
        return []
    keys = {area.key_of(m) for m in area.mutants() if Path(m.file).name in names}
    return [key for key in area.EQUIVALENT if key not in keys]


def command_of(name: str, outcome: Outcome) -> str:
    """Return the command that repeats a mutant."""
    only = shlex.quote(f"^{re.escape(outcome.label)}$")
    return f"python tests/mutants/mutate_kernels.py --area {name} --only {only}"


def report(judged: dict[str, list[Outcome]]) -> None:
    """Print kinds, explained mutants, each survivor with the command that repeats it, and the table."""
    for name, outcomes in judged.items():
        print(f"\n{name}:")
        for kind in dict.fromkeys(o.kind for o in outcomes):
            count = Counter(o.state for o in outcomes if o.kind == kind)
            print(f"  {kind:34} " + ", ".join(f"{n} {state}" for state, n in count.items()))
        for o in outcomes:
            if o.state == EXPLAINED:
                print(f"  equivalent {o.label}\n      {o.by}")
        for o in outcomes:
            if o.state == SURVIVED:
                print(f"  SURVIVED {o.label}\n      {o.key}\n      {command_of(name, o)}")
    print(
        "\n| area | mutants | caught | timeouts | equivalent | survivors | same code | share | not compiled |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    for name, outcomes in judged.items():
        compiled = [o for o in outcomes if o.state != NOT_COMPILED]
        count = Counter(o.state for o in compiled)
        counts = (len(compiled), *(count[state] for state in (CAUGHT, TIMEOUT, EXPLAINED, SURVIVED, SAME)))
        cells = (name, *counts, f"{share_of(outcomes):.1%}", len(outcomes) - len(compiled))
        print(f"| {' | '.join(map(str, cells))} |")


def share_of(outcomes: Sequence[Outcome]) -> float:
    """Return the share of the mutants that compile which a test detects. An explained one is not detected."""
    compiled = [o for o in outcomes if o.state != NOT_COMPILED]
    return sum(o.state in (CAUGHT, TIMEOUT) for o in compiled) / max(len(compiled), 1)


def all_areas() -> dict[str, Area]:
    """Return the areas by their names."""
    import mutation_norm
    import mutation_qkv
    import mutation_rope
    import mutation_square_sums

    kernels = {
        "rope": mutation_rope,
        "norm": mutation_norm,
        "qkv": mutation_qkv,
        "square_sums": mutation_square_sums,
    }
    return {**{name: KernelArea(kernel) for name, kernel in kernels.items()}, **areas()}


def arguments_of(given: Sequence[str] | None, names: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="mutate_kernels.py",
        description=HELP,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    cores = len(os.sched_getaffinity(0))
    add("--area", action="append", choices=names, help="break these sources (rope); repeatable")
    add("--count", type=int, metavar="N", help="a sample of N mutants that compile (all mutants)")
    add("--seed", type=int, default=0, metavar="N", help="seed of the sample (0)")
    add(
        "--jobs",
        type=int,
        default=cores,
        metavar="N",
        help=f"mutants at a time (the machine's cores: {cores})",
    )
    add("--minutes", type=float, default=float("inf"), metavar="M", help="begin no mutant after M minutes")
    add("--state", type=Path, metavar="FILE", help="continue the run in this file, and keep it up to date")
    add("--again", action="store_true", help="judge the survivors of --state again")
    add("--believe", action="store_true", help="do not run the mutants in EQUIVALENT")
    add("--switch", action="store_true", help="compile all mutants at once and choose one for each run")
    add("--only", default="", metavar="REGEX", help="only the mutants whose label matches")
    add("--list", action="store_true", help="print the mutants and stop")
    options = parser.parse_args(given)
    for name in ("count", "jobs"):
        if getattr(options, name) is not None and getattr(options, name) < 1:
            parser.error(f"--{name} must be at least 1 but got {getattr(options, name)}")
    if options.jobs > MOST_JOBS_PER_CORE * cores:  # each has a build
        parser.error(
            f"--jobs must be at most {MOST_JOBS_PER_CORE * cores} on {cores} cores but got {options.jobs}"
        )
    if not options.minutes >= 0:  # nor nan
        parser.error(f"--minutes must be at least 0 but got {options.minutes:g}")
    try:
        re.compile(options.only)
    except re.error as error:
        parser.error(f"--only must be a regular expression but got {options.only} ({error})")
    if options.again and options.state is None:
        parser.error("--again must come with --state")
    return options


def main(given: Sequence[str] | None = None, known: Callable[[], dict[str, Area]] = all_areas) -> int:
    known_areas = known()
    options = arguments_of(given, list(known_areas))
    chosen = {name: known_areas[name] for name in options.area or ["rope"]}
    file = None
    judged: dict[str, list[Outcome]] = {}
    try:
        for name, area in chosen.items():
            if stale := stale_keys(area):
                raise BadUsage(f"EQUIVALENT of {name} must name mutants but got " + "\n  ".join(stale))
            if options.list:
                found = [m.label() for m in area.mutants() if re.search(options.only, m.label())]
                print("\n".join(found))
        if options.list:
            return 0
        file = StateFile(options.state)
        run = Run(options, chosen, file)
        if options.minutes > 0:
            run.save()  # an unwritable file ends the run here
        for name in chosen:
            judged[name] = run.judge(name)
    except KeyboardInterrupt:
        return 130
    except (BadUsage, CannotBuild, OSError) as error:
        print(f"mutate_kernels.py: {error}", file=sys.stderr)
        return 2
    finally:
        if file is not None:
            file.close()
    report(judged)
    if not any(judged.values()):
        labels = (m.label() for area in chosen.values() for m in area.mutants())
        is_any = any(re.search(options.only, label) for label in labels)
        rule = "no mutant was judged" if is_any else f"--only must match a mutant but got {options.only}"
        print(f"mutate_kernels.py: {rule}", file=sys.stderr)
        return 2
    is_whole = not options.only and options.count is None  # a share is required only if all mutants run
    reached = all(share_of(o) >= REQUIRED_SHARES.get(name, 0) for name, o in judged.items()) or not is_whole
    return 0 if reached and not any(o.state == SURVIVED for of in judged.values() for o in of) else 1


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as after Ctrl-C
    sys.exit(main())
