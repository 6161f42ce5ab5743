"""Edits of a copy of the sources, with which the mutation tests break one place at a time.

An edit names the text to replace and no file. The text is searched in every source below the folders, and its
white space matches any other white space. So an edit still applies after a function moves to another file or
a line is wrapped. A text that is absent, or that occurs more than once, is an error:
``tests/mutants/test_source_edits.py`` reports it in the default suite, as soon as the sources change.
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
    """Where an edit applies: ``text[begin:end]`` of a file."""

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
    files = sorted(p for folder in folders for p in folder.rglob("*") if p.suffix in SUFFIXES)
    texts = {path: path.read_text() for path in files}
    places = [Place(path, *m.span()) for path, text in texts.items() for m in pattern.finditer(text)]
    if len(places) == 1:
        return places[0]
    names = ", ".join(f"{folder.name}/" for folder in folders)
    lines = [f"{p.path}:{texts[p.path].count(chr(10), 0, p.begin) + 1}" for p in places] or ["nowhere"]
    raise CannotApply(
        f"{names} must hold {edit.old!r} exactly once but got it at: {', '.join(lines)}.\n"
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
