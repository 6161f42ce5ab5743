"""A Sphinx directive that documents a C header from its comments.

    .. c-header:: include/npu_rope.h

The path is relative to the root of the project. The directive writes each declaration for Sphinx's own C
domain, with the comment above it, and the members and enumerators of a type with the comments beside them. A
declaration without a comment belongs to the last comment above it.

Hawkmoth and sphinx-c-autodoc do the same with a C parser. They need libclang, clang of the same version, and
other comments. The comments of this project have paragraphs, and lists whose lines are indented:

      name, name   text of the names
                   that continues

A page in Markdown has the directive in a block ``eval-rst``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Group:
    """Declarations and the comment above the first of them."""

    comment: str
    declarations: list[str]


def text_of(comment: str) -> str:
    """Return a comment's text without the stars at the beginning of its lines."""
    return "\n".join(re.sub(r"^ ?\* ?", "", line).rstrip() for line in comment.strip("* \n").splitlines())


def groups(header: str) -> Iterator[Group]:
    """Yield the parts of a header in their order, first the comment about the whole file."""
    about, _, rest = header.partition("*/")
    yield Group(text_of(about.removeprefix("/*")), [])
    # Leave out directives of the preprocessor, except macros that are numbers, and the braces of extern "C".
    rest = re.sub(r"^#(?!define \w+ \d).*\n", "", rest, flags=re.MULTILINE)
    rest = re.sub(r'^extern "C" \{\n|^\}\n', "", rest, flags=re.MULTILINE)
    for part in re.split(r"^(?=/\*)", rest, flags=re.MULTILINE):
        comment = re.match(r"/\*(.*?)\*/", part, re.DOTALL)
        code = part[comment.end() :] if comment else part
        found = re.findall(r"#define .*|(?!struct \w+;)[^{};\s][^{};]*(?:\{[^}]*\}[^;]*)?;", code)
        if found:
            yield Group(text_of(comment[1]) if comment else "", found)


def escaped(text: str) -> str:
    """Return the text of a comment as reStructuredText, with code and with references to functions."""
    parts = []
    for part in re.split(r"(`[^`]*`|\b(?:npu_rope|ascend_sim)_\w+\(\))", text):
        if part.startswith("`"):
            parts.append(f"``{part[1:-1]}``")
        elif part.endswith("()") and part[:-2].isidentifier():
            parts.append(f":c:func:`{part[:-2]}`")
        else:
            parts.append(re.sub(r"[\\*`|]|_\b", lambda found: "\\" + found[0], part))
    return "".join(parts)


def described(comment: str) -> Iterator[str]:
    """Yield the lines of a comment as reStructuredText: its paragraphs, and its lists as definition lists."""
    entries: list[tuple[str, list[str]]] = []  # of the current list: names, lines of text
    base = 0  # the indentation of its names
    for line in [*comment.splitlines(), ""]:
        indent = len(line) - len(line.lstrip())
        if indent:
            name, _, text = line.strip().partition("  ")
            base = base or indent
            if indent > base:
                entries[-1][1].append(line.strip())
            elif entries and entries[-1][0].endswith(","):  # the names are on several lines
                names, texts = entries.pop()
                entries.append((f"{names} {name}", [*texts, text.strip()]))
            else:
                entries.append((name, [text.strip()]))
            continue
        if entries:
            yield ""
        for names, texts in entries:
            yield escaped(names) if any(texts) else f"- {escaped(names)}"
            if any(texts):
                yield f"   {escaped(' '.join(texts))}"
        if entries:
            yield ""
        entries, base = [], 0
        yield escaped(line)


def members(kind: str, body: str) -> Iterator[tuple[str, str]]:
    """Yield the (declaration, comment) pairs in the body of a struct or an enum."""
    end = "," if kind == "enum" else ";"
    # A comment is above its declaration, or in the same line after it.
    pattern = rf"(?:/\*(.*?)\*/\s*)?([^{end}/]*\w[^{end}/]*){end}?[ \t]*(?:/\*(.*?)\*/)?"
    for before, declaration, after in re.findall(pattern, body, re.DOTALL):
        comment = " ".join(text_of(before or after).split())
        first, *others = declaration.strip().split(",")
        type_name = re.sub(r"\**\w+(\[\w+\])*$", "", first)
        for declarator in (first, *(type_name + other.strip() for other in others)):
            yield declarator, comment


def directive(declaration: str) -> tuple[str, str, str]:
    """Return a declaration's directive of the C domain, its argument, and the body of a struct or an enum."""
    words = re.sub(r"\b(?:NPU_ROPE_API|ASCEND_SIM_EXPORT|typedef|extern)\s+", "", declaration.rstrip(";"))
    if macro := re.match(r"#define (\w+)", words):
        return "macro", macro[1], ""
    if compound := re.match(r"(struct|enum) (\w+) \{(.*)\}", words, re.DOTALL):
        return compound[1], compound[2], compound[3]
    kind = "type" if declaration.startswith("typedef") else "function" if "(" in words else "var"
    return kind, " ".join(words.split()), ""


def lines_of(group: Group) -> Iterator[str]:
    """Yield a group as reStructuredText. Its first function or declaration has the comment."""
    found = [directive(declaration) for declaration in group.declarations]
    owner = next((i for i, (kind, _, _) in enumerate(found) if kind == "function"), 0)
    text = list(described(group.comment))
    if not found:
        yield from text
    for i, (kind, argument, body) in enumerate(found):
        yield ""
        yield f".. c:{kind}:: {argument}"
        yield ""
        if i == owner:
            yield from (f"   {line}" for line in text)
        for member, comment in members(kind, body):
            yield f"   .. c:{'enumerator' if kind == 'enum' else 'member'}:: {member}"
            yield ""
            yield f"      {escaped(comment)}" if comment else ""
            yield ""


class CHeader(SphinxDirective):
    """The directive ``c-header``."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Return the nodes of the header's documentation."""
        path = ROOT / self.arguments[0]
        if not path.is_file():
            raise self.error(f"c-header must name a file of the project but got {self.arguments[0]}")
        self.env.note_dependency(str(path))
        text = "\n".join(line for group in groups(path.read_text()) for line in lines_of(group))
        return self.parse_text_to_nodes(text)


def setup(app: Sphinx) -> dict[str, Any]:
    """Add the directive to Sphinx."""
    app.add_directive("c-header", CHeader)
    return {"version": "1", "parallel_read_safe": True}
