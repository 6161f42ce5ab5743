"""Programs that launch their own kernels: ``kernel<<<blocks, l2ctrl, stream>>>(arguments)``."""

from __future__ import annotations

import re
import shlex
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from ascend_sim import folders
from ascend_sim.compiler import AICORE, CompileFailed, compile_soc, compiler
from ascend_sim.errors import bad_value
from ascend_sim.files import unreadable, unwritable

__all__ = ["build_program", "rewritten"]

# Comments, strings and characters: <<< inside them begins no launch.
_SKIPPED = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"(?P<d>[^(\s]*)\(.*?\)(?P=d)"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'', re.DOTALL
)
# The end of a kernel's name, without its template arguments.
_NAME = re.compile(r"(?:::)?[A-Za-z_]\w*(?:::[A-Za-z_]\w*)*\s*$")
_FLAGS = ("-std=c++17", "-O2", "-ffp-contract=off", "-fno-strict-aliasing", "-fwrapv", "-fPIE")
_OPENING, _CLOSING = "([{", ")]}"


def build_program(
    sources: Sequence[str | Path],
    output: str | Path,
    soc: str = "ascend910b",
    *,
    defines: Mapping[str, str] | None = None,
    include: Sequence[str | Path] = (),
    flags: Sequence[str] = (),
    auto_sync: bool = True,
) -> Path:
    """Compile a program whose files hold host code and kernels, such as the ``.asc`` files of asc-devkit.

    The program links with the simulated CANN. ``ascend-sim run -- PROGRAM`` runs it.

    Args:
        sources: C++ files; each launch with ``<<<>>>`` must be in one of these.
        output: the program.
        soc: the SoC of the kernels, such as ``"ascend910b"``, or a chip.
        defines: macros.
        include: more folders of headers; each source's own folder is one.
        flags: more flags for the compiler and the linker.
        auto_sync: insert synchronisation in the kernels, as CANN's compiler does for such programs without
            ``--cce-auto-sync=off`` (asc-devkit, page PipeBarrier).

    Returns:
        The program's path.

    Raises:
        CompileFailed: the compiler failed; the message holds its output.
        ValueError: a source cannot be read, a launch is incomplete, or there is no such SoC.
    """
    output = Path(output)
    paths = [Path(source) for source in sources]
    for source in paths:
        if must := unreadable(source):
            raise bad_value(f"source {must}")
    if must := unwritable(output):
        raise bad_value(f"output {must}")
    aicore = AICORE[compile_soc(soc)]
    libraries = [folders.library(stem) for stem in ("ascend_sim", "ascend_sim_cann")]
    root = folders.root()
    command = [*shlex.split(compiler()), *_FLAGS, f"-D__CCE_AICORE__={aicore}", "-DASCEND_SIM_PROGRAM"]
    command += [f"-DASCEND_SIM_AUTO_SYNC={int(auto_sync)}"]
    command += [f"-D{name}={value}" for name, value in (defines or {}).items()]
    own = dict.fromkeys(source.resolve().parent for source in paths)
    command += [f"-I{f}" for f in (*own, *include, root / "cann/include", root / "include", root)]
    command += [
        "-include",
        "tiling_prelude.h",
        "-include",
        "kernel_operator.h",
        "-include",
        "ascendc/launch.h",
    ]
    command += flags
    with tempfile.TemporaryDirectory() as folder:
        for number, source in enumerate(paths):
            copy = Path(folder) / f"{number}" / f"{source.stem}.cpp"
            copy.parent.mkdir()
            place = str(source.resolve()).replace("\\", r"\\").replace('"', r"\"")
            copy.write_text(
                f'#line 1 "{place}"\n' + rewritten(source.read_text(errors="replace"), source.name)
            )
            command.append(str(copy))
        command += ["-o", str(output), *map(str, libraries), f"-Wl,-rpath,{libraries[0].parent}", "-pthread"]
        done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise CompileFailed(done.stderr)
    return output


def rewritten(text: str, name: str = "source") -> str:
    """Replace each launch of a source text by a call of ``ascend_sim::launch``. Lines keep their numbers.

    Raises:
        ValueError: a launch without a kernel's name, without three parts, or without its end.

    >>> rewritten("scale<<<8, nullptr, s>>>(x, 2.0f);")
    '::ascend_sim::launch("scale", (8), (nullptr), (s), [=](auto... a) { scale(a...); }, x, 2.0f);'
    """
    code = _SKIPPED.sub(lambda m: re.sub(r"[^\n]", " ", m[0]), text)  # the same length
    parts, done = [], 0
    for at in _launches(code):
        where = f"{name}:{code.count(chr(10), 0, at) + 1}"
        begin = _kernel_begin(code, at)
        if begin is None or begin < done:
            raise bad_value(f"launch must follow a kernel's name but does not at {where}.")
        end = code.find(">>>", at)
        options = [] if end < 0 else _split(code, at + 3, end)
        opening = re.compile(r"\s*\(").match(code, end + 3) if end >= 0 else None
        closing = _closing(code, opening.end() - 1) if opening else None
        if len(options) not in (2, 3) or opening is None or closing is None:
            raise bad_value(f"launch must be <<<blocks, l2ctrl, stream>>>(arguments) but is not at {where}.")
        kernel = text[begin:at].rstrip()
        plain = re.sub(r"<.*", "", kernel, flags=re.DOTALL).strip()
        given = [f"({text[a:b].strip()})" for a, b in options]
        given += ["(nullptr)"] * (3 - len(given))
        arguments = text[opening.end() : closing]
        call = f'::ascend_sim::launch("{plain}", {", ".join(given)}, [=](auto... a) {{ {kernel}(a...); }}'
        newlines = text.count("\n", begin, opening.end()) - call.count("\n")
        parts += [text[done:begin], call, ", " if arguments.strip() else "", "\n" * newlines, arguments, ")"]
        done = closing + 1
    return "".join(parts) + text[done:]


def _launches(code: str) -> Iterator[int]:
    at = code.find("<<<")
    while at >= 0:
        yield at
        at = code.find("<<<", at + 3)


def _kernel_begin(code: str, at: int) -> int | None:
    """Where the kernel's name before ``<<<`` begins."""
    end = len(code[:at].rstrip())
    if code[:end].endswith(">"):  # template arguments
        depth = 0
        while end > 0:
            end -= 1
            depth += (code[end] == ">") - (code[end] == "<")
            if depth == 0:
                break
    found = _NAME.search(code, max(0, end - 400), end)
    return found.start() if found and found.start() < found.end() else None


def _closing(code: str, opening: int) -> int | None:
    depth = 0
    for i in range(opening, len(code)):
        depth += (code[i] in _OPENING) - (code[i] in _CLOSING)
        if depth == 0:
            return i
    return None


def _split(code: str, begin: int, end: int) -> list[tuple[int, int]]:
    """The parts between commas that are in no brackets."""
    parts, depth, first = [], 0, begin
    for i in range(begin, end):
        depth += (code[i] in _OPENING) - (code[i] in _CLOSING)
        if code[i] == "," and depth == 0:
            parts.append((first, i))
            first = i + 1
    return [*parts, (first, end)]
