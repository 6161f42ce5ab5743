"""scripts/draw_architecture.py draws every arrow once, and nothing over anything else."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"
SVG = "{http://www.w3.org/2000/svg}"
CHARACTER = {"group": 8.0, "how": 6.0, "about": 6.0, "": 7.2}  # width of a text's characters, on average

Rectangle = tuple[float, float, float, float]  # left, top, right, bottom


@pytest.fixture(scope="module")
def script() -> Iterator[Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(SCRIPTS))
        yield importlib.import_module("draw_architecture")


@pytest.fixture(scope="module")
def drawn(script: Any) -> ElementTree.Element:
    return ElementTree.fromstring(script.picture())


def boxes(drawn: ElementTree.Element) -> list[Rectangle]:
    found = []
    for rect in drawn.iterfind(f"{SVG}rect[@class='box']"):
        x, y, width, height = (float(rect.attrib[name]) for name in ("x", "y", "width", "height"))
        found.append((x, y, x + width, y + height))
    return found


def texts(drawn: ElementTree.Element, *styles: str) -> Iterator[tuple[str, Rectangle]]:
    for text in drawn.iterfind(f"{SVG}text"):
        words, style = text.text or "", text.attrib.get("class", "")
        if style in styles:
            x, y, width = float(text.attrib["x"]), float(text.attrib["y"]), CHARACTER[style] * len(words)
            left = x - width if style == "group" else x  # CSS: its x is the end
            yield words, (left, y - 9, left + width, y + 2)


def lines(drawn: ElementTree.Element) -> list[list[tuple[float, float]]]:
    """Return the points of each line. A bend's control point is its corner."""
    found = []
    for path in drawn.iterfind(f"{SVG}path"):
        numbers = [float(n) for n in re.findall(r"-?[\d.]+", path.attrib["d"])]
        found.append(list(zip(numbers[::2], numbers[1::2], strict=True)))
    return found


def pieces(line: list[tuple[float, float]]) -> list[Rectangle]:
    return [(min(a, c), min(b, d), max(a, c), max(b, d)) for (a, b), (c, d) in pairwise(line)]


def overlap(a: Rectangle, b: Rectangle) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


def grown(a: Rectangle, by: float) -> Rectangle:
    return a[0] - by, a[1] - by, a[2] + by, a[3] + by


@pytest.mark.long
def test_each_arrow_is_drawn_from_its_box_to_its_box(script: Any, drawn: ElementTree.Element) -> None:
    titles = dict(zip(boxes(drawn), (words for words, _ in texts(drawn, "")), strict=True))

    def box_at(x: float, y: float) -> str:
        (found,) = (title for box, title in titles.items() if overlap(grown(box, 1), (x, y, x, y)))
        return found

    arrows = [(box_at(*line[0]), box_at(*line[-1])) for line in lines(drawn)]
    assert arrows == [*script.edges(), *((a, b) for a, b, _ in script.CALLS)]
    assert [words for words, _ in texts(drawn, "how")] == [label for _, _, label in script.CALLS]


def test_no_line_crosses_a_box(drawn: ElementTree.Element) -> None:
    crossed = [
        (piece, box)
        for line in lines(drawn)
        for piece in pieces(line)
        for box in boxes(drawn)
        if overlap(grown(piece, 0.1), grown(box, -1))
    ]
    assert not crossed


def test_lines_only_cross_each_other_at_right_angles(drawn: ElementTree.Element) -> None:
    for one, other in combinations(lines(drawn), 2):
        for a in pieces(one):
            assert a[0] == a[2] or a[1] == a[3]
            for b in pieces(other):
                parallel = (a[0] == a[2]) == (b[0] == b[2])
                assert not (parallel and overlap(grown(a, 1.5), grown(b, 1.5))), (one, other)


def test_labels_are_on_no_box_line_or_other_label(drawn: ElementTree.Element) -> None:
    labels = list(texts(drawn, "how", "group"))
    covered = [a for (a, at), (_, other) in combinations(labels, 2) if overlap(at, other)]
    parts = [*boxes(drawn), *(grown(piece, 0.5) for line in lines(drawn) for piece in pieces(line))]
    covered += [label for label, at in labels if any(overlap(at, part) for part in parts)]
    assert not covered


def test_texts_fit_in_their_boxes_and_are_drawn_last(drawn: ElementTree.Element) -> None:
    for words, (left, top, right, bottom) in texts(drawn, "", "about"):
        fits = [b for b in boxes(drawn) if b[0] < left and b[1] < top and right < b[2] and bottom < b[3]]
        assert len(fits) == 1, words
    tags = [child.tag for child in drawn]
    assert set(tags[tags.index(f"{SVG}text") :]) == {f"{SVG}text"}
