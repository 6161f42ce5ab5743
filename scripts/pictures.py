"""The command line and the elements of the scripts that draw a picture from other files of the tree."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def draw_or_check(usage: str, draw: Callable[[], str], picture: Path, source: str) -> int:
    """Draw a picture, or compare it with its file if the option is --check. Return the exit status.

    Args:
        usage: the text for other options.
        draw: returns the picture as SVG.
        picture: the file of the picture.
        source: what the picture shows, for the message of --check.
    """
    if sys.argv[1:] not in ([], ["--check"]):
        print(usage, file=sys.stderr)
        return 2
    drawn = draw()
    if not sys.argv[1:]:
        picture.write_text(drawn)
        return 0
    if not picture.is_file() or picture.read_text() != drawn:
        script = Path(sys.argv[0]).name
        print(f"{picture.relative_to(ROOT)} differs from {source}: run scripts/{script}", file=sys.stderr)
        return 1
    return 0


# The head of an arrow, for marker-end="url(#tip)".
TIP = (
    '<marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
    '<path class="tip" d="M0,0 8,4 0,8z"/></marker>'
)


def start(css: str, width: float, height: float) -> list[str]:
    """Return the first elements of a picture: its size, its styles, and its page."""
    return [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}">',
        f"<style>{css}</style>",
        rectangle("page", 0, 0, width, height),
    ]


def text(style: str, x: float, y: float, words: str) -> str:
    """Return a line of text at (x, y)."""
    return f'<text class="{style}" x="{x:g}" y="{y:g}">{words}</text>'


def rectangle(style: str, x: float, y: float, width: float, height: float) -> str:
    """Return a rectangle by its upper left corner."""
    return f'<rect class="{style}" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}"/>'
