"""Compare a page's Chinese version `X.zh.md` with the English page `X.md`.

Both must have the same levels of headings, code blocks, pictures and rows of tables, in one order. A row must
have the same numbers and code. A section must have the same targets of links, and the numbers and code of the
English section. The pages must link to each other above their first section.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

CHINESE = ".zh.md"

_FENCE = re.compile(r"\s*(`{3,}|~{3,})")
_CODE = re.compile(r"(`+)(.+?)\1")
_LINK = re.compile(r"(!?)\[(?:[^\[\]]|\[[^\]]*\])*\]\(([^()\s]+)\)")
_AUTOMATIC_LINK = re.compile(r"<(https?://[^>]+)>")
_NUMBER = re.compile(r"\d+(?:[.,]\d+)*|[⁻⁰¹²³⁴-⁹]+")


@dataclass(frozen=True)
class Part:
    """A part of a page that the other page must have at the same place: its kind, contents and first line."""

    kind: str
    contents: str
    line: int


@dataclass
class Section:
    """A heading and the text up to the next one."""

    line: int
    links: Counter[str] = field(default_factory=Counter)
    words: Counter[str] = field(default_factory=Counter)  # code and numbers outside of tables


@dataclass
class Page:
    path: Path
    parts: list[Part] = field(default_factory=list)
    sections: list[Section] = field(default_factory=lambda: [Section(1)])


def english_of(path: Path) -> Path:
    return path.with_name(path.name.removesuffix(CHINESE) + ".md")


def differences(chinese: Path) -> list[str]:
    """Return a sentence for each difference between a Chinese page and its English page."""
    english = english_of(chinese)
    if not english.is_file():
        return [f"{_shown(chinese)} must have an English page {english.name} but there is none."]
    pages = _read(english), _read(chinese)
    return [*_differences_of_parts(*pages), *_differences_of_sections(*pages), *_missing_links(*pages)]


def _shown(path: Path) -> str:
    return os.path.relpath(path)


# ---- reading a page ------------------------------------------------------------------------------------


def _read(path: Path) -> Page:
    page = Page(path)
    for line, text in _blocks(path.read_text()):
        if _FENCE.match(text):
            page.parts.append(Part("code block", text, line))
        elif heading := re.match(r"(#+) ", text):
            page.parts.append(Part("heading", f"level {len(heading[1])}", line))
            page.sections.append(Section(line))
        else:
            _add_text(page, line, text)
    return page


def _blocks(text: str) -> Iterator[tuple[int, str]]:
    """Yield (line number, text) of each code block, heading, row of a table and paragraph.

    The lines of a paragraph are joined, because a link or code may begin on one line and end on the next.
    """
    begin, block, fence = 0, list[str](), ""
    for number, line in enumerate([*text.splitlines(), ""], 1):
        opening = _FENCE.match(line)
        if not fence and (opening or line.startswith(("#", "|")) or not line.strip()):
            if block:
                yield begin, " ".join(block)
            block = []
            if not opening and line.strip():
                yield number, line
                continue
        if not block:
            begin = number
        if opening and not fence:
            fence = opening[1]
        elif fence and line.strip() == fence:
            yield begin, "\n".join([*block, line])
            fence, block = "", []
            continue
        if line.strip() or fence:
            block.append(line)


def _add_text(page: Page, line: int, text: str) -> None:
    section = page.sections[-1]
    code = Counter(match[2] for match in _CODE.finditer(text))
    rest = _CODE.sub(" ", text)
    for match in _LINK.finditer(rest):
        if match[1]:
            page.parts.append(Part("picture", match[2], line))
        else:
            section.links[_target(page.path, match[2])] += 1
    section.links.update(_AUTOMATIC_LINK.findall(rest))
    numbers = Counter(_NUMBER.findall(_AUTOMATIC_LINK.sub(" ", _LINK.sub(_words_of_link, rest))))
    if text.startswith("|"):
        cells = rest.count("|") - 1
        words = ", ".join(sorted((code + numbers).elements()))
        page.parts.append(Part("row", f"{cells} cells with the code and numbers {words}", line))
    else:
        section.words += code + numbers


def _words_of_link(match: re.Match[str]) -> str:
    return match[0][: match[0].rindex("](")]


def _target(page: Path, target: str) -> str:
    """Return the target without the part of it that differs between languages: the suffix of a Chinese page,
    and the heading in a page that has a Chinese version."""
    if "://" in target:
        return target
    file, _, heading = target.partition("#")
    if not file:
        return page.name.replace(CHINESE, ".md") + "#"
    english = file.removesuffix(CHINESE) + ".md" if file.endswith(CHINESE) else file
    has_chinese = english.endswith(".md") and (page.parent / english.replace(".md", CHINESE)).is_file()
    return english if has_chinese or not heading else f"{english}#{heading}"


# ---- comparing two pages -------------------------------------------------------------------------------


def _differences_of_parts(english: Page, chinese: Page) -> Iterator[str]:
    """Stop after a difference in kind: all later parts would differ too."""
    for wanted, found in zip(english.parts, chinese.parts, strict=False):
        where = f"{_shown(chinese.path)}:{found.line}"
        source = f"{_shown(english.path)}:{wanted.line}"
        if wanted.kind != found.kind:
            yield f"{where} must be a {wanted.kind} as at {source} but is a {found.kind}."
            return
        if wanted.contents == found.contents:
            continue
        if wanted.kind == "code block":
            offset, here, there = _first_difference(wanted.contents, found.contents)
            yield (
                f"{_shown(chinese.path)}:{found.line + offset} must be {there!r} as at "
                f"{_shown(english.path)}:{wanted.line + offset} but is {here!r}."
            )
        else:
            must = f"must have {wanted.contents}, as at {source}, but has {found.contents}"
            yield f"{where}: the {found.kind} {must}."
    more = len(english.parts) - len(chinese.parts)
    if more:
        page, other = (english, chinese) if more > 0 else (chinese, english)
        part = page.parts[len(other.parts)]
        yield (
            f"{_shown(chinese.path)} must have as many headings, code blocks, pictures and rows as "
            f"{_shown(english.path)}, but only {_shown(page.path)} has the {part.kind} at line {part.line}."
        )


def _first_difference(wanted: str, found: str) -> tuple[int, str, str]:
    """Return the first line that differs: its number from 0, the found one and the wanted one."""
    ours, theirs = found.splitlines(), wanted.splitlines()
    length = min(len(ours), len(theirs))
    number = next((n for n in range(length) if ours[n] != theirs[n]), length)
    here, there = (lines[number] if number < len(lines) else "" for lines in (ours, theirs))
    return number, here, there


def _differences_of_sections(english: Page, chinese: Page) -> Iterator[str]:
    """Yield nothing if a page lacks a heading, because its sections would be compared with other ones."""
    if len(english.sections) != len(chinese.sections):
        return
    for wanted, found in zip(english.sections, chinese.sections, strict=True):
        where = f"the section at {_shown(chinese.path)}:{found.line}"
        source = f"the one at {_shown(english.path)}:{wanted.line}"
        for target in (wanted.links - found.links).elements():
            yield f"{where} must have a link to {target}, as {source} has, but has none or fewer."
        for target in (found.links - wanted.links).elements():
            yield f"{where} must have no link to {target}, because {source} has none or fewer, but has one."
        for word in (wanted.words - found.words).elements():
            yield f"{where} must have `{word}`, as {source} has, but has it less often."


def _missing_links(english: Page, chinese: Page) -> Iterator[str]:
    for page, other in ((english, chinese), (chinese, english)):
        top = page.path.read_text().partition("\n## ")[0]
        if f"]({other.path.name})" not in top:
            yield f"{_shown(page.path)} must link to {other.path.name} above its first section but does not."
