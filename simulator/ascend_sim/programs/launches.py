"""Compile programs that launch their own kernels: ``kernel<<<blocks, l2ctrl, stream>>>(arguments)``."""

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

# Comments, strings and characters. The text <<< inside them is no launch.
_COMMENT_OR_STRING = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"(?P<d>[^(\s]*)\(.*?\)(?P=d)"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'', re.DOTALL
)
# A kernel's name, with namespaces and without template arguments, at the end of a text.
_NAME_AT_END = re.compile(r"(?:::)?[A-Za-z_]\w*(?:::[A-Za-z_]\w*)*\s*$")
_FLAGS = ("-std=c++17", "-O2", "-ffp-contract=off", "-fno-strict-aliasing", "-fwrapv", "-fPIE")
_OPENING_BRACKETS, _CLOSING_BRACKETS = "([{", ")]}"


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
        if fault := unreadable(source):
            raise bad_value(f"source {fault}")
    if fault := unwritable(output):
        raise bad_value(f"output {fault}")
    aicore = AICORE[compile_soc(soc)]
    libraries = [folders.library(stem) for stem in ("ascend_sim", "ascend_sim_cann")]
    root = folders.root()
    command = [*shlex.split(compiler()), *_FLAGS, f"-D__CCE_AICORE__={aicore}", "-DASCEND_SIM_PROGRAM"]
    command += [f"-DASCEND_SIM_AUTO_SYNC={int(auto_sync)}"]
    command += [f"-D{name}={value}" for name, value in (defines or {}).items()]
    source_folders = dict.fromkeys(source.resolve().parent for source in paths)
    include_folders = (*source_folders, *include, root / "cann/include", root / "include", root)
    command += [f"-I{path}" for path in include_folders]
    for header in ("tiling_prelude.h", "kernel_operator.h", "ascendc/launch.h"):
        command += ["-include", header]
    command += flags
    with tempfile.TemporaryDirectory() as folder:
        for number, source in enumerate(paths):
            copy = Path(folder) / f"{number}" / f"{source.stem}.cpp"
            copy.parent.mkdir()
            quoted_path = str(source.resolve()).replace("\\", r"\\").replace('"', r"\"")
            copy.write_text(
                f'#line 1 "{quoted_path}"\n' + rewritten(source.read_text(errors="replace"), source.name)
            )
            command.append(str(copy))
        command += ["-o", str(output), *map(str, libraries), f"-Wl,-rpath,{libraries[0].parent}", "-pthread"]
        completed = subprocess.run(command, capture_output=True, text=True)
    if completed.returncode != 0:
        raise CompileFailed(completed.stderr)
    return output


def rewritten(text: str, name: str = "source") -> str:
    """Replace each launch of a source text by a call of ``ascend_sim::launch``. Lines keep their numbers.

    Raises:
        ValueError: a launch without a kernel's name, without three parts, or without its end.

    >>> rewritten("scale<<<8, nullptr, s>>>(x, 2.0f);")
    '::ascend_sim::launch("scale", (8), (nullptr), (s), [=](auto... a) { scale(a...); }, x, 2.0f);'
    """
    # Blank comments and strings; every position stays the same.
    code = _COMMENT_OR_STRING.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), text)
    pieces, copied_end = [], 0
    for angles in _launch_positions(code):
        place = f"{name}:{code.count(chr(10), 0, angles) + 1}"
        begin = _kernel_begin(code, angles)
        if begin is None or begin < copied_end:
            raise bad_value(f"launch must follow a kernel's name but does not at {place}.")
        angles_end = code.find(">>>", angles)
        spans = [] if angles_end < 0 else _split_at_commas(code, angles + len("<<<"), angles_end)
        opening = re.compile(r"\s*\(").match(code, angles_end + len(">>>")) if spans else None
        closing = _closing_bracket(code, opening.end() - 1) if opening else None
        if len(spans) not in (2, 3) or opening is None or closing is None:
            raise bad_value(f"launch must be <<<blocks, l2ctrl, stream>>>(arguments) but is not at {place}.")
        kernel = text[begin:angles].rstrip()
        kernel_name = re.sub(r"<.*", "", kernel, flags=re.DOTALL).strip()
        values = [f"({text[first:end].strip()})" for first, end in spans]
        values += ["(nullptr)"] * (3 - len(values))  # the stream may be left out
        arguments = text[opening.end() : closing]
        launch = f'::ascend_sim::launch("{kernel_name}", {", ".join(values)}'
        call = f"{launch}, [=](auto... a) {{ {kernel}(a...); }}"
        newlines = "\n" * (text.count("\n", begin, opening.end()) - call.count("\n"))
        pieces += [text[copied_end:begin], call, ", " if arguments.strip() else "", newlines, arguments, ")"]
        copied_end = closing + 1
    return "".join(pieces) + text[copied_end:]


def _launch_positions(code: str) -> Iterator[int]:
    position = code.find("<<<")
    while position >= 0:
        yield position
        position = code.find("<<<", position + len("<<<"))


def _kernel_begin(code: str, angles: int) -> int | None:
    """Return the begin of the kernel's name before the ``<<<`` at position ``angles``."""
    end = len(code[:angles].rstrip())
    if code[:end].endswith(">"):  # template arguments
        depth = 0
        while end > 0:
            end -= 1
            depth += (code[end] == ">") - (code[end] == "<")
            if depth == 0:
                break
    # No name is longer than 400 characters; the limit keeps the search fast.
    found = _NAME_AT_END.search(code, max(0, end - 400), end)
    return found.start() if found and found.start() < found.end() else None


def _closing_bracket(code: str, opening: int) -> int | None:
    depth = 0
    for i in range(opening, len(code)):
        depth += (code[i] in _OPENING_BRACKETS) - (code[i] in _CLOSING_BRACKETS)
        if depth == 0:
            return i
    return None


def _split_at_commas(code: str, begin: int, end: int) -> list[tuple[int, int]]:
    """Return begin and end of each part between commas. A comma inside brackets does not separate."""
    parts, depth, first = [], 0, begin
    for i in range(begin, end):
        depth += (code[i] in _OPENING_BRACKETS) - (code[i] in _CLOSING_BRACKETS)
        if code[i] == "," and depth == 0:
            parts.append((first, i))
            first = i + 1
    return [*parts, (first, end)]
