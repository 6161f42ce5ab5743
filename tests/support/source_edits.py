"""Edits of a copy of the sources. With one edit a mutation test breaks one place.

An edit names the text to replace and no file. The text is searched in every source below the folders, and its
white space matches any other white space. So an edit still applies after a function moves to another file or
a line is wrapped. It is an error if the text is absent or occurs more than once.
``tests/mutants/test_source_edits.py`` reports this in the default suite.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

SUFFIXES = {".c", ".cpp", ".h", ".inl"}


class CannotApply(AssertionError):
    """An edit does not name exactly one place of the sources."""


class Edit(NamedTuple):
    """Replace one text of the sources.

    Attributes:
        old: the text to replace. It must occur exactly once.
        new: its replacement.
    """

    old: str
    new: str


@dataclass(frozen=True)
class Place:
    """The place that an edit replaces: ``text[begin:end]`` of a file."""

    path: Path
    begin: int
    end: int


def find(edit: Edit, folders: Iterable[Path]) -> Place:
    """Return the only place below the folders that has the edit's old text.

    Raises:
        CannotApply: the text is absent, or occurs more than once; the message lists the places.
    """
    pattern = re.compile(r"\s+".join(map(re.escape, edit.old.split())))
    folders = list(folders)
    files = sorted(path for folder in folders for path in folder.rglob("*") if path.suffix in SUFFIXES)
    texts = {path: path.read_text() for path in files}
    places = [Place(path, *match.span()) for path, text in texts.items() for match in pattern.finditer(text)]
    if len(places) == 1:
        return places[0]
    names = ", ".join(f"{folder.name}/" for folder in folders)
    numbers = [texts[place.path].count("\n", 0, place.begin) + 1 for place in places]
    lines = [f"{place.path}:{number}" for place, number in zip(places, numbers, strict=True)]
    raise CannotApply(
        f"{names} must hold {edit.old!r} exactly once but got it at: {', '.join(lines or ['nowhere'])}.\n"
        "The sources have changed: replace the text in the edit's table entry by the current one."
    )


def apply(edit: Edit, folders: Iterable[Path]) -> tuple[Path, str]:
    """Apply an edit; return the changed file and its previous content."""
    place = find(edit, folders)
    original = place.path.read_text()
    place.path.write_text(original[: place.begin] + edit.new + original[place.end :])
    return place.path, original


@contextmanager
def applied(edit: Edit, folders: Iterable[Path]) -> Iterator[None]:
    """Apply an edit for the time of the block."""
    path, original = apply(edit, folders)
    try:
        yield
    finally:
        path.write_text(original)
