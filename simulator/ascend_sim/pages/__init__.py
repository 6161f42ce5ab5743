"""HTML pages that need no other file and no network: the skeleton, the style, and pieces of pages.

``page.css`` is the style of all pages, and ``page.js`` has the functions that their scripts share.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from html import escape
from pathlib import Path
from typing import Any

__all__ = ["breakable", "data_element", "document", "facts", "header", "mark", "sections", "table"]

Row = Sequence[str]  # cells, as HTML
_CONTINUES = '<div class="continues"></div>'  # shows that a table continues behind an edge; page.css


def document(title: str, body: Iterable[str], script: Path | None = None) -> str:
    """Return a page. Its policy of contents forbids every access to a network, and other scripts than its
    own.

    Args:
        title: plain text.
        body: pieces of HTML, in their order.
        script: a file with the page's script, which follows ``page.js``. None: a page without scripts.
    """
    code = "" if script is None else _file("page.js") + script.read_text(encoding="utf-8")
    policy = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
    if code:
        policy += f"; script-src 'sha256-{base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()}'"
    pieces = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
        f"<title>{escape(title)}</title>",
        f"<style>{_file('page.css')}</style></head><body>",
        *body,
        f"<script>{code}</script></body></html>" if code else "</body></html>",
    ]
    return "\n".join(pieces) + "\n"


@cache
def _file(name: str) -> str:
    return Path(__file__).with_name(name).read_text(encoding="utf-8")


def data_element(data: Any) -> str:
    """Return an element with the data as JSON, which scripts read by its id, ``data``.

    Raises:
        ValueError: the data have a number that is not finite, which JSON lacks.
    """
    text = json.dumps(data, separators=(",", ":"), allow_nan=False, ensure_ascii=False)
    text = text.replace("<", "\\u003c")  # no text can end the element
    return f'<script type="application/json" id="data">{text}</script>'


def table(
    caption: str,
    titles: Sequence[str],
    rows: Iterable[tuple[Row, str]],
    numbers: Sequence[int],
    plain_caption: str | None = None,
) -> str:
    """Return a table that scrolls sideways if it is wider than the page.

    Args:
        caption: HTML.
        titles: of the columns, plain text.
        rows: each row's cells as HTML, and its CSS class, which may be empty.
        numbers: indices of the columns with numbers, which are aligned to the right.
        plain_caption: the caption without elements; the default is the caption.
    """
    css_classes = [' class="n"' if i in numbers else "" for i in range(len(titles))]
    title_cells = "".join(
        f'<th scope="col"{css}>{escape(title)}</th>' for title, css in zip(titles, css_classes, strict=True)
    )
    body = []
    for row, kind in rows:
        cells = f'<th scope="row">{row[0]}</th>'
        cells += "".join(f"<td{css}>{cell}</td>" for cell, css in zip(row[1:], css_classes[1:], strict=True))
        row_class = f' class="{kind}"' if kind else ""
        body.append(f"<tr{row_class}>{cells}</tr>")
    # A region that scrolls sideways must be reachable by keyboard.
    label = escape(plain_caption if plain_caption is not None else caption)
    return (
        f'<div class="scroll" role="region" tabindex="0" aria-label="{label}">{_CONTINUES}<table>'
        f"<caption>{caption}</caption><thead><tr>{title_cells}</tr></thead><tbody>{''.join(body)}</tbody></table></div>"
    )


def facts(caption: str, rows: Mapping[str, str] | Iterable[tuple[str, str]]) -> str:
    """Return a table of names (plain text) and values (HTML), with a caption as HTML."""
    pairs = rows.items() if isinstance(rows, Mapping) else rows
    body = "".join(f'<tr><th scope="row">{escape(name)}</th><td>{value}</td></tr>' for name, value in pairs)
    table_element = f'<table class="facts"><caption>{caption}</caption><tbody>{body}</tbody></table>'
    return f'<div class="scroll">{_CONTINUES}{table_element}</div>'


def breakable(text: str) -> str:
    """Return a name as HTML, with the places where a line may break, as ``breakable`` in page.js."""
    return re.sub(r"(?<=[,/(])|(?<=_)(?=[^=,.]*[/(])", "<wbr>", escape(text))


def mark(text: str, kind: str) -> str:
    """Return a highlighted text: ``kind`` is good, bad or warn."""
    return f'<span class="mark {kind}">{escape(text)}</span>'


def header(title: str, about: str) -> str:
    """Return the head of a page with scripts: its title, a sentence (both plain text), and the place of the
    button for light and dark."""
    return (
        f'<header><div class="bar"><h1>{escape(title)}</h1>'
        '<button type="button" id="theme" hidden>Theme: system</button></div>'
        f'<p class="soft">{escape(about)}</p></header>'
        "<noscript><p>Filters and charts need scripts, which this browser does not run. The rest of the page"
        " does not need them.</p></noscript>"
    )


def sections(parts: Iterable[tuple[str, str, Iterable[str]]]) -> Iterable[str]:
    """Yield the links to sections, and the sections: the id, the title and the content of each."""
    named = [(id_, title, list(content)) for id_, title, content in parts]
    links = "".join(f'<li><a href="#{id_}">{escape(title)}</a></li>' for id_, title, _ in named)
    yield f'<nav aria-label="Sections"><ul>{links}</ul></nav><main>'
    for id_, title, content in named:
        yield f'<section aria-labelledby="{id_}"><h2 id="{id_}">{escape(title)}</h2>'
        yield from content
        yield "</section>"
    yield "</main>"
