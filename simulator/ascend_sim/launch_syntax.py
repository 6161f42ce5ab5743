"""Replace the launches in a source text by calls: ``kernel<<<blocks, l2ctrl, stream>>>(arguments)``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from ascend_sim.errors import bad_value
from ascend_sim.files import text_file

# Comments, strings and characters. The text <<< inside them is no launch.
_COMMENT_OR_STRING = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"(?P<d>[^(\s]*)\(.*?\)(?P=d)"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'', re.DOTALL
)
# A kernel's name, with namespaces and without template arguments, at the end of a text.
_NAME_AT_END = re.compile(r"(?:::)?[A-Za-z_]\w*(?:::[A-Za-z_]\w*)*\s*$")
_OPENING_BRACKETS, _CLOSING_BRACKETS = "([{", ")]}"


def kernel_source(source: Path, folder: Path) -> Path:
    """Return a file to compile as a kernel: ``source``, or a copy whose launches are calls.

    A kernel file of an operator library may hold a host function that launches the kernel. The simulator
    never calls that function. The copy needs the source's folder as ``-iquote``.

    Args:
        source: the kernel file.
        folder: receives the copy.
    """
    text = source.read_text(errors="replace")
    if "<<<" not in text or (calls := rewritten(text, source.name)) == text:
        return source
    calls = f'#include "ascendc/launch_in_kernel.h"\n{line_directive(source)}{calls}'
    folder.mkdir(parents=True, exist_ok=True)
    return text_file(folder, source.stem, calls, source.suffix)


def line_directive(source: Path) -> str:
    """Return the line that makes compiler and reports name ``source`` from here on."""
    place = str(source).replace("\\", r"\\").replace('"', r"\"")
    return f'#line 1 "{place}"\n'


def rewritten(text: str, name: str = "source") -> str:
    """Replace each launch of a source text by a call of ``ascend_sim::launch``. Lines keep their numbers.

    Raises:
        ValueError: a launch without a kernel's name, without two or three parts, or without its end.

    >>> rewritten("scale<<<8, nullptr, s>>>(x, 2.0f);")
    '::ascend_sim::launch("scale", (8), (nullptr), (s), [=](auto... a) { scale(a...); }, x, 2.0f);'
    """
    # Blank comments and strings; every position stays the same.
    code = _COMMENT_OR_STRING.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), text)
    pieces, copied_end = [], 0
    for config_begin in _launch_positions(code):
        place = f"{name}:{code.count(chr(10), 0, config_begin) + 1}"
        begin = _kernel_begin(code, config_begin)
        if begin is None or begin < copied_end:
            raise bad_value(f"launch must follow a kernel's name but does not at {place}.")
        config_end = code.find(">>>", config_begin)
        spans = [] if config_end < 0 else _split_at_commas(code, config_begin + len("<<<"), config_end)
        opening = re.compile(r"\s*\(").match(code, config_end + len(">>>")) if spans else None
        closing = _closing_bracket(code, opening.end() - 1) if opening else None
        if len(spans) not in (2, 3) or opening is None or closing is None:
            raise bad_value(f"launch must be <<<blocks, l2ctrl, stream>>>(arguments) but is not at {place}.")
        kernel = text[begin:config_begin].rstrip()
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


def _kernel_begin(code: str, config_begin: int) -> int | None:
    """Return the start of the kernel's name before the ``<<<`` at position ``config_begin``."""
    end = len(code[:config_begin].rstrip())
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
    """Return start and end of each part between commas. A comma inside brackets does not separate."""
    parts, depth, first = [], 0, begin
    for i in range(begin, end):
        depth += (code[i] in _OPENING_BRACKETS) - (code[i] in _CLOSING_BRACKETS)
        if code[i] == "," and depth == 0:
            parts.append((first, i))
            first = i + 1
    return [*parts, (first, end)]
