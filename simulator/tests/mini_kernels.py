"""The mini kernels of kernels/*.cpp and the claims in their comments.

At a line that ends in ``// breaks SIM-ALIGN-01: words`` the simulator must report that rule with these
words. ``// keeps SIM-ALIGN-01`` marks the same place in a kernel that must pass. ``// warns`` replaces
``// breaks`` for a rule that only warns. In the words, ``@`` is the marked line as ``file:line``, ``@-1`` the
line before, ``@+1`` the next; ``(no line)`` means that the report cannot name a line.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).with_name("kernels")
EXAMPLES = Path(__file__).parents[1] / "examples"
SOCS = {"ascend310p": "ascend310p", "ascend950": "ascend950"}  # by stem; the other files use ascend910b

ENTRY = re.compile(r"^KERNEL\((\w+)\)")
CLAIM = re.compile(r"// (breaks|warns|keeps) (SIM-\w+-\d+)( \(no line\))?(?:: (.*))?$")
PLACE = re.compile(r"@([-+]\d+)?")


@dataclass(frozen=True)
class Claim:
    """The claim of one marked line of an entry. ``line`` is 0 if the report cannot name a line."""

    stem: str
    entry: str
    verb: str
    rule: str
    line: int
    words: str

    @property
    def breaks(self) -> bool:
        return self.verb == "breaks"

    @property
    def warns(self) -> bool:
        return self.verb == "warns"

    @property
    def keeps(self) -> bool:
        return self.verb == "keeps"

    @property
    def soc(self) -> str:
        return SOCS.get(self.stem, "ascend910b")

    def __str__(self) -> str:
        return f"{self.rule}-{self.stem}-{self.entry}"


@cache
def claims() -> tuple[Claim, ...]:
    return tuple(claim for path in sorted(FOLDER.glob("*.cpp")) for claim in _claims_of(path))


def broken_claims() -> list[Any]:
    """The parameters of tests that run each kernel that breaks a rule. An endless loop takes 3 GiB and ten
    seconds until it reaches the simulator's limit."""
    return [
        pytest.param(claim, id=str(claim), marks=[pytest.mark.slow] if claim.rule == "SIM-END-02" else [])
        for claim in claims()
        if claim.breaks
    ]


def source(stem: str) -> Path:
    """The file of this stem in kernels/, else in simulator/examples/."""
    path = FOLDER / f"{stem}.cpp"
    return path if path.is_file() else EXAMPLES / path.name


def _claims_of(path: Path) -> list[Claim]:
    found, entry = [], ""
    for number, text in enumerate(path.read_text().splitlines(), 1):
        if start := ENTRY.match(text):
            entry = start[1]
        if claim := CLAIM.search(text):
            verb, rule, no_line, words = claim.groups()
            line, words = 0 if no_line else number, _with_places(words or "", path.name, number)
            found.append(Claim(path.stem, entry, verb, rule, line, words))
    return found


def _with_places(words: str, name: str, line: int) -> str:
    return PLACE.sub(lambda match: f"{name}:{line + int(match[1] or 0)}", words)
