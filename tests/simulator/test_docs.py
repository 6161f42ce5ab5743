"""docs/simulator.md lists the rules that the simulator has."""

from __future__ import annotations

import os
import re
from pathlib import Path

from npu_rope import native_sim

PAGE = Path(__file__).resolve().parents[2] / "docs" / "simulator.md"
BEGIN, END = "<!-- rules: begin -->\n", "<!-- rules: end -->"


def table():
    rows = ["| rule | what must hold | basis |", "|---|---|---|"]
    for r in native_sim.load().rules():
        advice = " (warns)" if r["severity"] == "warning" else ""
        rows.append(f"| {r['rule']} | {r['text']}{advice} | {r['basis']} |")
    return "\n".join(rows) + "\n"


def test_the_page_lists_every_rule_as_the_simulator_says_it():
    """NPU_ROPE_UPDATE_DOCS=1 writes the table instead."""
    text = PAGE.read_text()
    if os.environ.get("NPU_ROPE_UPDATE_DOCS"):
        PAGE.write_text(re.sub(f"{BEGIN}.*?{END}", lambda _: BEGIN + table() + END, text, flags=re.DOTALL))
        text = PAGE.read_text()
    assert text.partition(BEGIN)[2].partition(END)[0] == table()
