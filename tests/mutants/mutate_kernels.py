"""Break a kernel in one place at a time and check that the simulator or a result detects it.

Every mutant is the kernel with one statement removed or one number, operand, operation or mode changed. It
is compiled for one column of element types after another, and run on a list of calls. It is caught if

* it breaks a rule of the simulator,
* a result exceeds its bound,
* a call becomes slower on the timeline, or
* it crashes or does not end.

Every mutant that is not caught must have an entry in EQUIVALENT, which explains why it computes the same.

A run takes hours. It updates the file of --json after every mutant; with --resume it skips the mutants
that the file lists as caught or not compiled, unless the kernels have changed.

usage: python tests/mutants/mutate_kernels.py [--op rope|norm|qkv|square_sums] [--jobs N] [--only REGEX]
                                              [--list] [--believe] [--json FILE [--resume]]
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

from ascend_sim import CompileFailed

ROOT = Path(__file__).resolve().parents[2]

CAUGHT, SURVIVED, NOT_COMPILED, EXPLAINED = "caught", "SURVIVED", "does not compile", "equivalent"
RUN_SECONDS = 120
# Rounded down from the complete runs (docs/validation.md). Explained mutants count as not caught.
REQUIRED_SHARES = {"rope": 0.96, "norm": 0.94, "qkv": 0.98, "square_sums": 0.98}


@dataclass(frozen=True)
class Mutant:
    """One change: text[begin:end] of a file becomes ``new``."""

    kind: str
    file: str
    line: int
    begin: int
    end: int
    old: str
    new: str

    def label(self) -> str:
        show = lambda t: " ".join(t.split())[:70]  # noqa: E731
        return f"{self.file}:{self.line} {self.kind}: {show(self.old)} -> {show(self.new) or '(nothing)'}"


@dataclass
class Outcome:
    """The result of one mutant."""

    label: str
    kind: str
    state: str
    by: str


# ---- reading C++ ----------------------------------------------------------------------------------


def code_only(text: str) -> str:
    """Return the text with blanks for comments, preprocessor lines and static_assert, at the same offsets."""
    blank = lambda m: re.sub(r"[^\n]", " ", m.group())  # noqa: E731
    text = re.sub(r"//[^\n]*|/\*.*?\*/", blank, text, flags=re.DOTALL)
    return re.sub(r"^[ \t]*#[^\n]*|^static_assert\([^\n]*", blank, text, flags=re.MULTILINE)


def closing(text: str, opened: int) -> int:
    """Return the offset of the bracket that closes the one at ``opened``."""
    depth = 0
    for i in range(opened, len(text)):
        depth += (text[i] in "([{") - (text[i] in ")]}")
        if depth == 0:
            return i
    raise ValueError("unbalanced brackets")


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
    text = path.read_text()
    code = code_only(text)

    def make(kind: str, begin: int, end: int, new: str) -> Mutant:
        line = text.count("\n", 0, begin) + 1
        return Mutant(kind, str(path.relative_to(ROOT)), line, begin, end, text[begin:end], new)

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
    text = path.read_text()
    assert text[mutant.begin : mutant.end] == mutant.old
    lines = "\n" * mutant.old.count("\n")  # keep the line numbers of the following text
    path.write_text(text[: mutant.begin] + mutant.new + lines + text[mutant.end :])


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
    environment = {**os.environ, "ASCEND_SIM_KERNELS": str(library), "OMP_NUM_THREADS": "1"}
    environment["NPU_ROPE_MUTATION_CYCLES"] = str(unchanged / f"{column.symbol}.json")
    environment["PYTHONPATH"] = str(ROOT / "tests/fuzz")  # for mutation_norm_calls.py
    script = str(Path(__file__).resolve().parent / kernel.script_of(column))
    command = [sys.executable, script, column.op, column.soc, column.name]
    try:
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=RUN_SECONDS)
    except subprocess.TimeoutExpired:
        return CAUGHT, f"no end within {RUN_SECONDS} s"
    if done.returncode == 0:
        return SURVIVED, ""
    if done.returncode < 0:
        return CAUGHT, f"signal {-done.returncode}"
    output_lines = (done.stdout.strip() or done.stderr.strip()).splitlines()
    return CAUGHT, output_lines[-1][:200] if output_lines else f"exit {done.returncode}"


def judge(kernel, mutant: Mutant, unchanged: Path) -> Outcome:
    """Try the columns in order until one catches the mutant or does not compile it."""
    with tempfile.TemporaryDirectory() as name:
        write_sources(mutant, Path(name))
        for column in kernel.columns_for(mutant.file):
            state, by = try_column(kernel, column, Path(name), unchanged)
            if state != SURVIVED:
                return Outcome(mutant.label(), mutant.kind, state, by)
    why = kernel.EQUIVALENT.get(key_of(mutant))
    return Outcome(mutant.label(), mutant.kind, EXPLAINED if why else SURVIVED, why or "")


def unchanged_is_clean(kernel, unchanged: Path, pool: ThreadPoolExecutor) -> bool:
    """Return whether every column of the unchanged kernels passes; write its library and its cycles."""

    def passes(column) -> bool:
        with tempfile.TemporaryDirectory() as name:
            write_sources(None, Path(name))
            state, by = try_column(kernel, column, Path(name), unchanged)
        if state != SURVIVED:
            print(f"the unchanged kernel is not clean ({column.symbol}): {by}", file=sys.stderr)
        return state == SURVIVED

    return all(list(pool.map(passes, kernel.columns)))


def key_of(mutant: Mutant) -> str:
    """Return a mutant's name without line numbers: file, kind and the line with the changed text in braces.
    If a removed text begins the line, the line before is included."""
    text = (ROOT / mutant.file).read_text()
    begin = text.rfind("\n", 0, mutant.begin) + 1
    if not text[begin : mutant.begin].strip() and mutant.new == "":
        begin = text.rfind("\n", 0, begin - 1) + 1
    end = text.find("\n", mutant.end)
    marked = f"{text[begin : mutant.begin]}{{{mutant.old}}}{text[mutant.end : end]}"
    return f"{Path(mutant.file).name} | {mutant.kind} | {' '.join(marked.split())}"


def sources_hash() -> str:
    """Return the hash of the kernels from which the mutants are made."""
    digest = hashlib.sha256()
    for path in sorted((ROOT / "op_kernel").rglob("*.*")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def caught_before(path: Path) -> dict[str, Outcome]:
    """Return the mutants that an earlier run of the same kernels caught or could not compile."""
    saved = json.loads(path.read_text()) if path.is_file() else {}
    if saved.get("sources") != sources_hash():
        return {}
    outcomes = [Outcome(**o) for o in saved["outcomes"]]
    return {o.label: o for o in outcomes if o.state in (CAUGHT, NOT_COMPILED)}


def write_outcomes(path: Path, outcomes: list[Outcome]) -> None:
    text = json.dumps({"sources": sources_hash(), "outcomes": [asdict(o) for o in outcomes]}, indent=1)
    path.with_suffix(".new").write_text(text)
    path.with_suffix(".new").replace(path)


def report(outcomes: list[Outcome], required_share: float) -> int:
    """Print the results; return 1 for a mutant that survived unexplained or for too small a share, else 0."""
    compiled = [o for o in outcomes if o.state != NOT_COMPILED]
    caught = sum(o.state == CAUGHT for o in compiled)
    print()
    for kind in dict.fromkeys(o.kind for o in outcomes):
        count = Counter(o.state for o in outcomes if o.kind == kind)
        print(f"{kind:34} " + ", ".join(f"{n} {state}" for state, n in count.items()))
    for title, state in (("equivalent", EXPLAINED), ("survived", SURVIVED)):
        found = [o for o in outcomes if o.state == state]
        print(f"\n{title}:" if found else f"\n{title}: none")
        for o in found:
            print(f"  {o.label}" + (f"\n      {o.by}" if o.by else ""))
    share = caught / max(len(compiled), 1)
    print(
        f"\n{caught} of {len(compiled)} mutants caught ({share:.1%});"
        f" {sum(o.state == EXPLAINED for o in compiled)} equivalent,"
        f" {sum(o.state == SURVIVED for o in compiled)} survived unexplained;"
        f" {len(outcomes) - len(compiled)} more do not compile"
    )
    return 0 if share >= required_share and not any(o.state == SURVIVED for o in compiled) else 1


def main() -> int:
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
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--op", default="rope", choices=kernels, help="the operators whose kernels are changed (rope)"
    )
    parser.add_argument(
        "--jobs", type=int, default=os.cpu_count() or 1, help="number of mutants that run at a time"
    )
    parser.add_argument("--only", default="", help="run only the mutants whose label matches")
    parser.add_argument("--list", action="store_true", help="print the mutants and stop")
    parser.add_argument("--json", type=Path, help="the file for all outcomes")
    parser.add_argument(
        "--resume", action="store_true", help="skip what --json lists as caught or not compiled"
    )
    parser.add_argument(
        "--believe",
        action="store_true",
        help="do not run the mutants in EQUIVALENT; count them as not caught",
    )
    options = parser.parse_args()
    if options.resume and not options.json:
        parser.error("--resume must have --json")
    kernel = kernels[options.op]
    mutants = [m for path in kernel.sources() for m in mutants_of(path) if re.search(options.only, m.label())]
    if options.list:
        print("\n".join(m.label() for m in mutants))
        return 0
    keys = {key_of(m) for path in kernel.sources() for m in mutants_of(path)}
    if stale := [key for key in kernel.EQUIVALENT if key not in keys]:
        parser.error("EQUIVALENT must name mutants but got " + "\n  ".join(stale))
    with tempfile.TemporaryDirectory() as name, ThreadPoolExecutor(options.jobs) as pool:
        unchanged = Path(name)
        if not unchanged_is_clean(kernel, unchanged, pool):
            return 2
        before = caught_before(options.json) if options.resume else {}
        outcomes = [before[m.label()] for m in mutants if m.label() in before]
        mutants = [m for m in mutants if m.label() not in before]
        if options.believe:
            explained = {m: kernel.EQUIVALENT[key_of(m)] for m in mutants if key_of(m) in kernel.EQUIVALENT}
            outcomes += [Outcome(m.label(), m.kind, EXPLAINED, why) for m, why in explained.items()]
            mutants = [m for m in mutants if m not in explained]
        begin = time.monotonic()
        for done, outcome in enumerate(pool.map(lambda m: judge(kernel, m, unchanged), mutants), 1):
            outcomes.append(outcome)
            left = (time.monotonic() - begin) / done * (len(mutants) - done)
            place = f"[{done}/{len(mutants)}, {left / 60:.0f} min left]"
            print(f"{place} {outcome.state:16} {outcome.label} | {outcome.by}")
            sys.stdout.flush()
            if options.json:
                write_outcomes(options.json, outcomes)
    # A share is required only if all mutants run.
    return report(outcomes, 0.0 if options.only else REQUIRED_SHARES[options.op])


if __name__ == "__main__":
    sys.exit(main())
