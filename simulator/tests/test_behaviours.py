"""The table "Behaviours of the real CANN" of docs/programs.md: each row has a source and a test."""

from __future__ import annotations

import ast
import re
from collections import Counter
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# Whether the whole repository is here. A copy of simulator/ alone lacks the tests under ../tests.
IS_IN_REPOSITORY = (ROOT.parent / "tests").is_dir()
CATEGORIES = {
    "virtual memory",
    "argument checks", "null and zero-length", "read once", "literals in generated code", "object lifetimes",
    "status codes", "stream state after an error", "workspace contents", "freed memory", "executor reuse",
    "streams", "graph capture", "devices", "collectives",
}  # fmt: skip


def rows():
    text = (ROOT / "docs" / "programs.md").read_text()
    section = text.split("## Behaviours of the real CANN")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("| ")]
    assert lines[0] == "| category | behaviour of the real one | source | test |"
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[1:]]


@cache
def functions(path):
    return {node.name for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef)}


def test_every_row_has_a_category_a_behaviour_a_source_and_a_test():
    assert len(rows()) >= 40
    for row in rows():
        assert len(row) == 4, row
        category, behaviour, source, _ = row
        assert category in CATEGORIES, row
        assert behaviour.endswith("."), row
        named = re.match(r"`[\w.-]+/[\w.-]+` `[\w./-]+\.(cpp|cc|c|h|hpp|py|md)`(.*)", source)
        assert named is not None, row
        # After a C or C++ file, the source names functions, macros, types or constants.
        if named[1] in ("cpp", "cc", "c", "h", "hpp"):
            assert re.match(r" `[A-Za-z]\w+(::\w+)*`(, `[A-Za-z]\w+(::\w+)*`)*( \(|$)", named[2]), row


def test_every_test_exists():
    for *_, tests in rows():
        for test in tests.split(", "):
            named = re.fullmatch(r"`((?:\.\./)?tests/[\w/]+\.py)::((?:test|check)_\w+)`", test)
            assert named is not None, test
            if IS_IN_REPOSITORY or not named[1].startswith("../"):
                assert named[2] in functions(ROOT / named[1]), test


def test_no_behaviour_is_named_twice():
    behaviours = [row[1] for row in rows()]
    assert len(set(behaviours)) == len(behaviours)


def test_every_category_has_at_least_three_behaviours():
    count = Counter(row[0] for row in rows())
    assert {c: count[c] for c in CATEGORIES if count[c] < 3} == {}
