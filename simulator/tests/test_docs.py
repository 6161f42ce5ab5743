"""docs/kernels.md lists the simulator's rules, instructions and conversions."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from ascend_sim import library

PAGE = Path(__file__).resolve().parents[1] / "docs" / "kernels.md"
ARCHS = {"220": "Ascend910B, 910_93", "200": "Ascend310P", "310": "Ascend950"}


def rules():
    rows = ["| rule | what must hold | basis |", "|---|---|---|"]
    for r in library.load().rules():
        advice = " (warns)" if r["severity"] == "warning" else ""
        rows.append(f"| {r['rule']} | {r['text']}{advice} | {r['basis']} |")
    return "\n".join(rows) + "\n"


def instructions():
    """Adjacent instructions with the same types share a row; the source is listed if it is another page."""
    shared = []
    for row in library.load().instructions():
        name, cells = row["instruction"], [row[arch] for arch in ARCHS]
        source = "" if row["source"] == name else row["source"]
        if shared and shared[-1][1:] == (cells, source):
            shared[-1][0].append(name)
        else:
            shared.append(([name], cells, source))
    rows = [f"| instruction | {' | '.join(ARCHS.values())} | page |", "|---|---|---|---|---|"]
    for names, cells, source in shared:
        types = " | ".join(", ".join(cell) or "—" for cell in cells)
        rows.append(f"| {', '.join(names)} | {types} | {source or 'its own'} |")
    return "\n".join(rows) + "\n"


def conversions():
    rows = [f"| from | to | {' | '.join(ARCHS.values())} |", "|---|---|---|---|---|"]
    for row in library.load().conversions():
        modes = (", ".join(m.removeprefix("CAST_") for m in row[arch]) or "—" for arch in ARCHS)
        rows.append(f"| {row['from']} | {row['to']} | {' | '.join(modes)} |")
    return "\n".join(rows) + "\n"


@pytest.mark.parametrize("table", [rules, instructions, conversions], ids=lambda table: table.__name__)
def test_the_page_lists_every_row_as_the_simulator_says_it(table):
    """ASCEND_SIM_UPDATE_DOCS=1 writes the table instead."""
    begin, end = f"<!-- {table.__name__}: begin -->\n", f"<!-- {table.__name__}: end -->"
    text = PAGE.read_text()
    if os.environ.get("ASCEND_SIM_UPDATE_DOCS"):
        PAGE.write_text(re.sub(f"{begin}.*?{end}", lambda _: begin + table() + end, text, flags=re.DOTALL))
        text = PAGE.read_text()
    assert text.partition(begin)[2].partition(end)[0] == table()
