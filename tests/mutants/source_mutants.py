"""Mutants of C++ and Python sources: one operator, number, condition, choice or statement changed.

``mutate_kernels.py`` has the mutants of kernels: changes that only AscendC has, such as a removed barrier.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Mutant:
    """One change: text[begin:end] of a file becomes ``new``. Lines and columns count from 1."""

    kind: str
    file: str
    line: int
    column: int
    begin: int
    end: int
    old: str
    new: str

    def label(self) -> str:
        show = lambda t: " ".join(t.split())[:70]  # noqa: E731
        place = f"{self.file}:{self.line}:{self.column}"
        return f"{place} {self.kind}: {show(self.old)} -> {show(self.new) or '(nothing)'}"


class Maker:
    """Makes the mutants of one file."""

    def __init__(self, path: Path, root: Path = ROOT) -> None:
        self.file, self.text = str(path.relative_to(root)), path.read_text()

    def __call__(self, kind: str, begin: int, end: int, new: str) -> Mutant:
        line = self.text.count("\n", 0, begin) + 1
        column = begin - self.text.rfind("\n", 0, begin)
        return Mutant(kind, self.file, line, column, begin, end, self.text[begin:end], new)


def key_of(mutant: Mutant, root: Path = ROOT) -> str:
    """Return a mutant's name without line numbers: file, kind and the line with the changed text in braces.
    If a removed text begins the line, the line before is included."""
    text = (root / mutant.file).read_text()
    begin = text.rfind("\n", 0, mutant.begin) + 1
    if not text[begin : mutant.begin].strip() and mutant.new == "":
        begin = text.rfind("\n", 0, begin - 1) + 1
    end = text.find("\n", mutant.end)
    marked = f"{text[begin : mutant.begin]}{{{mutant.old}}}{text[mutant.end : end]}"
    return f"{Path(mutant.file).name} | {mutant.kind} | {' '.join(marked.split())}"


def changed(text: str, mutant: Mutant) -> str:
    """Return a file's text with the mutant's change. The lines after it keep their numbers."""
    assert text[mutant.begin : mutant.end] == mutant.old
    lines = "\n" * (mutant.old.count("\n") - mutant.new.count("\n"))
    return text[: mutant.begin] + mutant.new + lines + text[mutant.end :]


# ---- C++ ------------------------------------------------------------------------------------------


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


def without_strings(text: str) -> str:
    """Return the text with blanks in string and character literals, at the same offsets."""
    literal = re.compile(r"""(?<![\w'])'(?:\\.|[^'\\\n])+'|"(?:\\.|[^"\\\n])*\"""")
    return literal.sub(lambda m: " " * len(m.group()), text)


# clang-format puts blanks around a binary operator, and around no other use of these characters.
OTHER_OPERATORS = {
    "comparison": {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "=="},
    "logic": {"&&": "||", "||": "&&"},
    "arithmetic": {"+": "-", "-": "+", "*": "/", "/": "*", "%": "*"},
    "bits": {"<<": ">>", ">>": "<<", "&": "|", "|": "&"},
    "assignment": {"+=": "-=", "-=": "+=", "*=": "/=", "/=": "*=", "|=": "&=", "&=": "|="},
}
OTHER_NAMES = {
    "true": "false",
    "false": "true",
    "std::min": "std::max",
    "std::max": "std::min",
    "cos": "sin",
    "sin": "cos",
}
CPP_OPERATOR = re.compile(r"(?<= )(?:[-+*/|&]=|[<>=!]=|<<|>>|&&|\|\||[-+*/%<>&|])(?= |\n)")
CPP_NUMBER = re.compile(r"(?<![\w.'])\d[\d']*(?:\.\d*)?(?:[eE][-+]?\d+)?(?![\w.'\"])")
# A call or an assignment that is a statement of its own, in one line and without a declaration.
CPP_STATEMENT = re.compile(
    r"^[ \t]+((?!return\b|delete\b|case\b|using\b)(?:\*|\+\+|--)?[\w:.\[\]>-]+"
    r"(?:\([^;{}]*\)| [-+*/|&]?= [^;{}]+|\+\+|--));",
    re.MULTILINE,
)
CPP_CONDITION = re.compile(r"\bif (?:constexpr )?\(")
CPP_CHOICE = re.compile(r"(?<= )\? ([\w.()>:\[\]-]+) : ([\w.()>:\[\]-]+)(?=[;,)])")
CPP_NAME = re.compile(rf"(?<![\w.:>])(?:{'|'.join(OTHER_NAMES)})\b")


def cpp_mutants_of(path: Path, root: Path = ROOT) -> Iterator[Mutant]:
    """Yield the mutants of a C++ file that is formatted by clang-format."""
    make = Maker(path, root)
    code = without_strings(code_only(make.text))
    for m in CPP_OPERATOR.finditer(code):
        for kind, others in OTHER_OPERATORS.items():
            if new := others.get(m.group()):
                yield make(kind, *m.span(), new)
    for m in CPP_NUMBER.finditer(code):
        yield make("number + 1", *m.span(), f"({m.group()} + 1)")
    for m in CPP_CONDITION.finditer(code):
        end = closing(code, m.end() - 1)
        if ";" not in code[m.end() : end]:  # no declaration in the condition
            yield make("condition negated", m.end(), end, f"!({make.text[m.end() : end]})")
    for m in CPP_CHOICE.finditer(code):
        one, other = (make.text[slice(*m.span(group))] for group in (1, 2))
        if one != other:
            yield make("choice swapped", m.start(1), m.end(2), f"{other} : {one}")
    for m in CPP_NAME.finditer(code):
        yield make("name", *m.span(), OTHER_NAMES[m.group()])
    for m in CPP_STATEMENT.finditer(code):
        yield make("statement removed", *m.span(1), "")


# ---- Python ---------------------------------------------------------------------------------------

OTHER_PYTHON = {**OTHER_OPERATORS, "arithmetic": {**OTHER_OPERATORS["arithmetic"], "//": "*", "**": "*"}}
OTHER_PYTHON["logic"] = {"and": "or", "or": "and", "not": ""}
OTHER_PYTHON["name"] = {"True": "False", "False": "True", "cos": "sin", "sin": "cos"}
OTHER_PYTHON["name"] |= {"minimum": "maximum", "maximum": "minimum", "min": "max", "max": "min"}


def python_mutants_of(path: Path, root: Path = ROOT) -> Iterator[Mutant]:
    """Yield the mutants of a Python file. Annotations, docstrings and texts are not changed."""
    make = Maker(path, root)
    lines = [0]  # the offset of each line, in bytes as ast counts
    for line in make.text.encode().splitlines(keepends=True):
        lines.append(lines[-1] + len(line))
    content = make.text.encode()

    def at(line: int, column: int) -> int:
        return len(content[: lines[line - 1] + column].decode())

    def span(node: ast.AST) -> tuple[int, int]:
        return at(node.lineno, node.col_offset), at(node.end_lineno, node.end_col_offset)  # type: ignore[attr-defined]

    def between(left: ast.AST, right: ast.AST) -> Iterator[Mutant]:
        begin, end = span(left)[1], span(right)[0]
        gap = re.sub(r"#[^\n]*", lambda m: " " * len(m.group()), make.text[begin:end])
        for m in re.finditer(r"[-+*/%<>=!&|]+|\b(?:and|or)\b", gap):
            for kind, others in OTHER_PYTHON.items():
                if new := others.get(m.group()):
                    yield make(kind, begin + m.start(), begin + m.end(), new)

    skipped: set[ast.AST] = set()
    for node in ast.walk(ast.parse(make.text)):
        for annotation in (getattr(node, name, None) for name in ("annotation", "returns")):
            if annotation is not None:
                skipped.update(ast.walk(annotation))
        if node in skipped:
            continue
        if isinstance(node, ast.BinOp):
            yield from between(node.left, node.right)
        elif isinstance(node, ast.BoolOp):
            for left, right in zip(node.values, node.values[1:], strict=False):
                yield from between(left, right)
        elif isinstance(node, ast.Compare):
            for left, right in zip([node.left, *node.comparators], node.comparators, strict=False):
                yield from between(left, right)
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.Not, ast.USub)):
            yield make("sign or not removed", span(node)[0], span(node.operand)[0], "")
        elif isinstance(node, ast.Constant) and type(node.value) in (int, float):
            yield make("number + 1", *span(node), f"({ast.get_source_segment(make.text, node)} + 1)")
        elif isinstance(node, ast.Constant) and type(node.value) is bool:
            yield make("name", *span(node), str(not node.value))
        elif isinstance(node, ast.Attribute) and node.attr in OTHER_PYTHON["name"]:
            end = span(node)[1]
            yield make("name", end - len(node.attr), end, OTHER_PYTHON["name"][node.attr])
        elif isinstance(node, (ast.If, ast.IfExp)):
            begin, end = span(node.test)
            yield make("condition negated", begin, end, f"(not ({make.text[begin:end]}))")
        elif isinstance(node, ast.AugAssign) or (
            isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
        ):
            yield make("statement removed", *span(node), "pass")


def mutants_of(path: Path, root: Path = ROOT) -> list[Mutant]:
    """Return the mutants of a file in the order of their places."""
    of_language = python_mutants_of if path.suffix == ".py" else cpp_mutants_of
    return sorted(of_language(path, root), key=lambda m: (m.begin, m.end, m.kind))
