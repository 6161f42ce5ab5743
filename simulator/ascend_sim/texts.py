"""Texts of files that come from elsewhere, for a terminal, a table and a page of Markdown."""

from __future__ import annotations

import re

__all__ = ["in_markdown", "in_table", "printable"]


def printable(text: str) -> str:
    """Escape the characters that control a terminal, such as ESC as ``\\x1b``."""
    return text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def in_table(text: str) -> str:
    """Return the text for a CSV file: a spreadsheet evaluates a cell that begins with one of ``=+-@``.

    Source: owasp.org, CSV Injection.
    """
    return f"'{text}" if text.startswith(("=", "+", "-", "@", "\t", "\r")) else text


def in_markdown(text: str) -> str:
    """Return the text for a line of Markdown, outside ``code``: it holds no HTML, no link and no cell."""
    text = printable(text).replace("&", "&amp;").replace("<", "&lt;")
    return re.sub(r"[\\`*|]|(?<=\])\(", r"\\\g<0>", text)
