"""The launches in a source text: ``kernel<<<blocks, l2ctrl, stream>>>(arguments)``."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from ascend_sim.errors import bad_value
from ascend_sim.files import digest

__all__ = ["kernel_source", "line_directive", "rewritten"]

# Comments, strings and characters: <<< inside them begins no launch.
_SKIPPED = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"(?P<d>[^(\s]*)\(.*?\)(?P=d)"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'', re.DOTALL
)
# The end of a kernel's name, without its template arguments.
_NAME = re.compile(r"(?:::)?[A-Za-z_]\w*(?:::[A-Za-z_]\w*)*\s*$")
_OPENING, _CLOSING = "([{", ")]}"


def kernel_source(source: Path, folder: Path) -> Path:
    """Return a file to compile as a kernel: ``source``, or a copy whose launches are calls.

    A kernel file of an operator library may hold a host function that launches the kernel. The simulator
    never calls it. The copy needs the source's folder as ``-iquote``.

    Args:
        source: the kernel file.
        folder: receives the copy.
    """
    text = source.read_text(errors="replace")
    if (calls := rewritten(text, source.name)) == text:
        return source
    calls = f'#include "ascendc/launch_in_kernel.h"\n{line_directive(source)}{calls}'
    copy = folder / f"{source.stem}-{digest(calls.encode())}{source.suffix}"
    if not copy.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        draft = copy.with_suffix(f".{os.getpid()}")
        draft.write_text(calls)
        draft.replace(copy)
    return copy


def line_directive(source: Path) -> str:
    """Return the line that makes compiler and reports name ``source`` from here on."""
    place = str(source).replace("\\", r"\\").replace('"', r"\"")
    return f'#line 1 "{place}"\n'


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
