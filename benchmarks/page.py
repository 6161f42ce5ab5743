"""Replace the tables that documents have between marks."""

from __future__ import annotations

import sys
from pathlib import Path


def with_table(page: str, begin_mark: str, end_mark: str, table: str, path: Path) -> str:
    """Return the text of the page with the table between the marks; exit if the page has no marks."""
    before, begin, rest = page.partition(begin_mark)
    _, end, after = rest.partition(end_mark)
    if not begin or not end:
        sys.exit(f"{path} must have the marks {begin_mark.strip()} and {end_mark}")
    return before + begin + table + end + after
