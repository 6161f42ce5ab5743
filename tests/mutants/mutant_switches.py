"""Put many mutants of a C++ source behind conditions, so that one build has all of them.

A mutant's region is the least text around it that can be written twice, such as a statement or a condition.
If the mutant with the number 7 changes ``return a + b;`` to ``return a - b;``, :func:`switched` writes::

    { if (chosen_mutant::is(7)) { return a - b; } else { return a + b; } }

The variable ``NPU_ROPE_MUTANT`` chooses a mutant when a process starts. The compiler refuses a condition in a
constant expression. In a constexpr function, and in the initial value of a member, the condition is false in
constant expressions.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

from source_mutants import Mutant, code_only, without_strings

VARIABLE = "NPU_ROPE_MUTANT"
# A static object of each file that includes it. Before it is initialised, no mutant is chosen.
HEADER = f"""\
#pragma once
#include <cstdlib>
namespace chosen_mutant {{
static const int number = [] {{
    const char* text = std::getenv("{VARIABLE}");
    return text ? std::atoi(text) : 0;
}}();
inline bool is(int wanted) {{ return __builtin_expect(number == wanted, 0); }}
constexpr bool is_at_run_time(int wanted) {{ return !__builtin_is_constant_evaluated() && is(wanted); }}
}}  // namespace chosen_mutant
"""


@dataclass(frozen=True)
class Region:
    """A text that is written once for each of its mutants, and once unchanged.

    Attributes:
        form: "value", "condition", "step" of a loop, or "statement" with its semicolon.
        begin, end: its offsets.
        may_be_constant: whether the compiler may evaluate it.
    """

    form: str
    begin: int
    end: int
    may_be_constant: bool = False


BEFORE_A_BLOCK = re.compile(
    r"(?:\)|\]|\b(?:else|do|try|const|noexcept|override|final|mutable)|->\s*[\w:<>&*\s]+)$"
)
HEAD_OF_A_TYPE = re.compile(r"\b(?:struct|class|union)\b[^;{}()]*$")
HEAD_OF_A_STATEMENT = re.compile(
    r"\s*(?:(?:case\s(?:[^:;]|::)*|default)\s*:(?!:)|else\b|do\b|\[\[\w+\]\]|(if|while|for|switch)\s*(?=\())\s*"
)
# Statements that cannot be inside a block of their own, or whose expression is constant.
FIXED = re.compile(
    r"(?:using|typedef|static_assert|constexpr|static constexpr|inline|template|struct|class|enum|union"
    r"|friend|goto|extern|namespace|public|private|protected|asm)\b"
)
DECLARATION = re.compile(
    r"(?!(?:return|throw|delete|co_return|new|else)\b)"
    r"(?:(?:const|static|volatile|unsigned|signed|thread_local|mutable)\s+)*"
    r"[\w:]+(?:<[^;]*?>)?(?:::\w+)?(?:\s*const)?(?:\s+[&*]*|[&*]+\s*)(?:const\s+)?(?:\[[^\]]*\]|\w+)(?:\[[^\]]*\])*\s*(?:=|\(|\{|;|,)"
)
ASSIGNED = re.compile(r"(?<![=!<>+\-*/%&|^])=(?!=)")
LAMBDA = re.compile(r"(?<![\w\])])\[[^\]\[]*\]\s*[({]")


class Layout:
    """The brackets of a source.

    Attributes:
        text: the source.
        code: it, with blanks for comments and preprocessor lines.
        plain: ``code``, with blanks for the contents of strings.
        inner: for each offset, the offset of the innermost bracket that is open there, or -1.
        partner: for the offset of a bracket, that of the bracket that closes or opens it. It may be wrong if
            alternative texts (``#if``) have brackets; then the compiler refuses the region.
    """

    def __init__(self, text: str) -> None:
        self.text, self.code = text, code_only(text)
        self.plain = without_strings(self.code)
        self.inner: list[int] = []
        self.partner: dict[int, int] = {}
        opened: list[int] = []
        for at, letter in enumerate(self.plain):
            if letter in ")]}" and opened:
                self.partner[at] = opened.pop()
                self.partner[self.partner[at]] = at
            self.inner.append(opened[-1] if opened else -1)
            if letter in "([{":
                opened.append(at)
        self.partner |= dict.fromkeys(opened, len(text))

    def is_block(self, opened: int) -> bool:
        """Return whether a brace opens statements, not a type, an enumeration, a namespace or values."""
        before = self.plain[max(0, opened - 200) : opened].rstrip()
        if BEFORE_A_BLOCK.search(before):
            return True
        outside = self.inner[opened]
        in_block = outside >= 0 and self.plain[outside] == "{" and self.is_block(outside)
        return in_block and before.endswith((";", "}", "{", ":"))

    def is_type(self, opened: int) -> bool:
        """Return whether a brace opens the members of a type."""
        return bool(HEAD_OF_A_TYPE.search(self.plain[max(0, opened - 200) : opened]))

    def at_level(self, pattern: re.Pattern[str], begin: int, end: int, level: int) -> list[int]:
        """Return the offsets of matches that are directly inside the bracket ``level``."""
        found = (m.start() for m in pattern.finditer(self.plain, begin, end))
        return [at for at in found if self.inner[at] == level]

    def region_of(self, mutant: Mutant) -> Region | None:
        """Return a mutant's region, or None if it cannot have a condition."""
        region = self._region_of(mutant)
        if region is None or not region.begin <= mutant.begin <= mutant.end <= region.end:
            return None
        line_begin = self.text.rfind("\n", 0, region.begin) + 1
        lines = self.text[line_begin : region.end]
        if re.search(r'^[ \t]*#|\\\n|\bR"', lines, re.MULTILINE) or self.text[:line_begin].endswith("\\\n"):
            return None  # a macro, a conditional text or a raw string
        return replace(region, may_be_constant=self.may_be_constant(mutant.begin))

    def may_be_constant(self, at: int) -> bool:
        """Return whether a place is in a constexpr function, or directly in a type."""
        inside, braces = self.inner[at], []
        while inside >= 0:
            braces += [inside] if self.plain[inside] == "{" else []
            inside = self.inner[inside]
        if braces and self.is_type(braces[0]):
            return True
        heads = (re.split(r"[;{}]", self.plain[max(0, b - 400) : b])[-1] for b in braces)
        return any(re.search(r"\bconstexpr\b(?!\s*\()", head) for head in heads)

    def _region_of(self, mutant: Mutant) -> Region | None:
        inside, top = self.inner[mutant.begin], mutant.begin
        argument = None
        while inside >= 0:
            if self.plain[inside] == "{" and (self.is_block(inside) or self.is_type(inside)):
                return self._statement(mutant, inside, top, argument)
            if self.plain[inside] == "(":
                word = re.search(r"\b(if constexpr|if|while|for|switch)\s*$", self.plain[:inside][-20:])
                if word:
                    return self._of_header(mutant, word[1], inside)
                argument = argument or self._argument(mutant, inside)
            top, inside = inside, self.inner[inside]
        return argument

    def _of_header(self, mutant: Mutant, word: str, opened: int) -> Region | None:
        """Return the region in the brackets after ``if``, ``for``, ``while`` or ``switch``."""
        if word == "if constexpr":
            return None
        index, last, begin, end = self._part_around(mutant.begin, ";", opened)
        if word == "switch":
            return Region("value", begin, end)
        if word == "for" and last == 0:
            colons = self.at_level(re.compile(r"(?<!:):(?!:)"), begin, end, opened)
            return self._value(*self._trimmed(colons[0] + 1, end)) if colons else None
        if word == "for" and index == 2:
            return Region("step", begin, end)
        if self.at_level(ASSIGNED, begin, end, opened):
            return self._initial_value(mutant, begin, end, opened)
        return Region("condition", begin, end) if index == (1 if word == "for" else last) else None

    def _part_around(self, at: int, separator: str, opened: int) -> tuple[int, int, int, int]:
        """Find the part between separators in a bracket that contains the offset ``at``.

        Returns:
            its index, the index of the last part, and its two offsets.
        """
        closed = self.partner[opened]
        bounds = [opened, *self.at_level(re.compile(separator), opened + 1, closed, opened), closed]
        index = next(i for i, (b, e) in enumerate(pairwise(bounds)) if b < at <= e)
        return index, len(bounds) - 2, *self._trimmed(bounds[index] + 1, bounds[index + 1])

    def _trimmed(self, begin: int, end: int) -> tuple[int, int]:
        part = self.code[begin:end]
        return begin + len(part) - len(part.lstrip()), end - (len(part) - len(part.rstrip()))

    def _initial_value(self, mutant: Mutant, begin: int, end: int, level: int) -> Region | None:
        """Return the value that a declaration assigns around the mutant."""
        assigned = [at for at in self.at_level(ASSIGNED, begin, end, level) if at < mutant.begin]
        if not assigned:
            return None
        commas = self.at_level(re.compile(","), mutant.end, end, level)
        return self._value(*self._trimmed(assigned[-1] + 1, min([*commas, end])))

    def _value(self, begin: int, end: int) -> Region | None:
        """Return the region of an expression, unless it can be written once only."""
        text = self.plain[begin:end]
        return None if text.startswith("{") or LAMBDA.search(text) else Region("value", begin, end)

    def _argument(self, mutant: Mutant, opened: int) -> Region | None:
        """Return the argument of a call around the mutant."""
        if not re.search(r"[\w>]$", self.plain[:opened][-1:]):
            return None
        *_, begin, end = self._part_around(mutant.begin, ",", opened)
        text = self.plain[begin:end]
        is_parameter = DECLARATION.match(text + ";") or ASSIGNED.search(text)
        return None if is_parameter else self._value(begin, end)

    def _statement(self, mutant: Mutant, opened: int, top: int, argument: Region | None) -> Region | None:
        """Return the region of a statement, or of a member, in the braces at ``opened``.

        Args:
            top: the mutant's place, or that of the outermost bracket around it inside these braces.
            argument: the region if the statement cannot be written twice, but its arguments can.
        """
        begin = top
        while begin - 1 > opened:
            letter = self.plain[begin - 1]
            if self.inner[begin - 1] == opened and letter == ";":
                break
            if letter == "}" and self.inner[begin - 1] == opened:
                brace = self.partner[begin - 1]
                if self.is_block(brace) or self.is_type(brace):
                    break
            begin -= 1
        while match := HEAD_OF_A_STATEMENT.match(self.plain, begin):
            begin = self.partner[match.end()] + 1 if match[1] else match.end()
        begin, _ = self._trimmed(begin, len(self.code))
        semicolons = self.at_level(re.compile(";"), begin, self.partner[opened], opened)
        if begin > mutant.begin or not semicolons:
            return argument
        end = semicolons[0] + 1
        text = self.plain[begin:end]
        if FIXED.match(text):
            return None
        if DECLARATION.match(text) or self.is_type(opened):
            return self._initial_value(mutant, begin, end - 1, opened) or argument
        return Region("statement", begin, end)


def lines_of(text: str, region: Region) -> range:
    """Return the lines of a region, counted from 1."""
    return range(text.count("\n", 0, region.begin) + 1, text.count("\n", 0, region.end) + 2)


def regions_of(text: str, mutants: Iterable[Mutant]) -> dict[Mutant, Region]:
    """Return the regions of the mutants of one file that can have a condition."""
    layout = Layout(text)
    found = ((mutant, layout.region_of(mutant)) for mutant in mutants)
    return {mutant: region for mutant, region in found if region is not None}


def switched(text: str, regions: Mapping[Mutant, Region], numbers: Mapping[Mutant, int], header: str) -> str:
    """Return a file's text with all mutants of ``regions``, none of which is chosen by default. Lines keep
    their numbers.

    Args:
        numbers: the value of ``NPU_ROPE_MUTANT`` that chooses a mutant, from 1.
        header: the path of a file with HEADER.
    """
    code = code_only(text)
    of_region: dict[Region, list[Mutant]] = {}
    for mutant, region in regions.items():
        of_region.setdefault(region, []).append(mutant)
    ordered = sorted(of_region, key=lambda r: (r.begin, -r.end))

    def parts(inside: Sequence[Region], begin: int, end: int) -> Iterator[str]:
        at = begin
        while inside:
            region, *rest = inside
            nested = [other for other in rest if other.end <= region.end]
            yield text[at : region.begin]
            yield alternatives(region, "".join(parts(nested, region.begin, region.end)))
            at, inside = region.end, rest[len(nested) :]
        yield text[at:end]

    def alternatives(region: Region, unchanged: str) -> str:
        changed = []
        for m in of_region[region]:
            alternative = code[region.begin : m.begin] + m.new + code[m.end : region.end]
            changed.append((numbers[m], " ".join(alternative.split("\n"))))
        test = "chosen_mutant::is_at_run_time" if region.may_be_constant else "chosen_mutant::is"
        if region.form == "statement":
            chosen = "".join(f"if ({test}({n})) {{ {new} }} else " for n, new in changed)
            return f"{{ {chosen}{{ {unchanged} }} }}"
        as_form = {"value": "({})", "condition": "static_cast<bool>({})", "step": "void({})"}[region.form]
        chosen = "".join(f"{test}({n}) ? {as_form.format(new)} : " for n, new in changed)
        return f"({chosen}{as_form.format(unchanged)})"

    return f'#include "{header}"\n#line 1\n' + "".join(parts(ordered, 0, len(text)))


class SwitchedSources:
    """The sources in a folder with mutants that a variable chooses.

    Args:
        folder: has the unchanged sources.
        numbers: the value of VARIABLE that chooses each mutant, from 1.
    """

    def __init__(self, folder: Path, numbers: Mapping[Mutant, int]) -> None:
        self._folder, self._numbers, self._header = folder, numbers, folder / "chosen_mutant.h"
        self._header.write_text(HEADER)
        self._texts: dict[str, str] = {}
        self._regions: dict[str, dict[Mutant, Region]] = {}
        for file in dict.fromkeys(mutant.file for mutant in numbers):
            if Path(file).suffix == ".def":  # a table of macros, which programs in Python read too
                continue
            self._texts[file] = (folder / file).read_text()
            self._regions[file] = regions_of(self._texts[file], (m for m in numbers if m.file == file))

    def mutants(self) -> list[Mutant]:
        """Return the mutants that are in the sources."""
        return [mutant for regions in self._regions.values() for mutant in regions]

    def write(self) -> bool:
        """Write the files that have changed; return whether there are any."""
        has_changed = False
        for file, regions in self._regions.items():
            text = switched(self._texts[file], regions, self._numbers, str(self._header))
            if (self._folder / file).read_text() != text:
                (self._folder / file).write_text(text)
                has_changed = True
        return has_changed

    def leave_out(self, errors: str, directory: Path) -> bool:
        """Leave out the mutants at the places of a compiler's errors; return whether there are any.

        If an error is at a place without mutants, a constant's value may be the cause: the values in the file
        of the error are left out, then all its mutants, then those of the files that the messages name.

        Args:
            directory: where the compiler ran.
        """
        files = {str(self._folder / file): file for file in self._regions}
        found = [
            (files[path], int(m[2]), bool(m[3]))
            for m in re.finditer(r"(\S+?):(\d+)(?::\d+)?(?:: (error)?|,)", errors)  # a comma: "inlined from"
            if (path := os.path.normpath(directory / m[1])) in files
        ]
        if not any(is_error for *_, is_error in found):  # the error is at a place without mutants
            found = [(file, line, True) for file, line, _ in found]
        refused = {
            m
            for file, line, is_error in found
            if is_error
            for m, region in self._regions[file].items()
            if line in lines_of(self._texts[file], region)
        }
        with_errors = {file for file, _, is_error in found if is_error and self._regions[file]}
        for file in (with_errors or {file for file, *_ in found}) if not refused else ():
            regions = self._regions[file]
            refused |= {m for m, region in regions.items() if region.form == "value"} or regions.keys()
        for m in refused:
            del self._regions[m.file][m]
        return bool(refused)
