"""The results of ``npu-rope bench`` as one HTML page without other files or network."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from html import escape
from pathlib import Path
from typing import Any, TextIO

from ascend_sim import pages

from npu_rope.bench.run import Results
from npu_rope.bench.targets import by_row, fastest, is_disturbed, measured_and_not, verdicts

SCRIPT = Path(__file__).with_suffix(".js")
MARKS = {"PASS": "good", "MISS": "bad"}


def write_page(results: Results, stream: TextIO) -> None:
    """Write the page. It has every figure as JSON, and the targets' verdicts also without scripts."""
    facts = results.facts
    body = [
        pages.header("npu-rope bench", ", ".join(filter(None, (facts.get("date"), facts["machine"])))),
        *pages.sections(_sections(results)),
        pages.data_element(_data(results)),
    ]
    stream.write(pages.document("npu-rope bench", body, SCRIPT))


def _sections(results: Results) -> Iterator[tuple[str, str, Iterable[str]]]:
    if results.problems:
        yield "problems", "Not complete", (f"<p>{escape(problem)}</p>" for problem in results.problems)
    yield "targets", "Targets", [_targets(results)]
    yield "chart", "Times", [_CHART]
    yield "figures", "Figures", ['<div id="figure-table"></div>', _LEGEND]
    yield "machine", "Machine", [_machine(results)]


_CHART = """<div class="filters" id="filters"></div>
<p id="count" class="soft" role="status"></p>
<figure><div id="ratios"></div><figcaption>
Time divided by the time of the memory floor in the same rounds: a copy of the same bytes, or transformers'
own code in the rows named patched. Rows are in the order of the run.
</figcaption></figure>"""
_LEGEND = """<p class="soft">
Median: µs per call. Spread: interquartile range / least sample. A bar shows the median on a scale
of its row, with a line for the interquartile range. Ratio to ours: median / the least median of npu_rope in
the row. *: others used 10 % of a core or more meanwhile.</p>"""

_VERDICTS = "PASS: this run met the target. MISS: it did not."
_DOUBT = (
    "PASS? and MISS?: other programs used 10 % of a core or more during the measurement, so the verdict is in"
    " doubt. Measure again when the machine is idle."
)


def _targets(results: Results) -> str:
    judged = verdicts(results.figures)
    measured, not_measured = measured_and_not(judged)
    items = "".join(
        f"<li>{pages.mark(verdict.outcome, MARKS[verdict.outcome.rstrip('?')])}"
        f"<div><b>{escape(verdict.target)}</b><br>{escape(verdict.detail)}</div></li>"
        for verdict in measured
    )
    doubt = any(verdict.outcome.endswith("?") for verdict in judged)
    legend = f'<p class="soft">{_DOUBT}</p>' if doubt else ""
    shown = f'<p class="soft">{_VERDICTS}</p>{legend}<ul class="verdicts">{items}</ul>' if measured else ""
    names = "".join(f"<li>{escape(verdict.target)}</li>" for verdict in not_measured)
    title = f"Targets whose rows this run lacks: {len(not_measured)}"
    return shown + (f"<details><summary>{title}</summary><ul>{names}</ul></details>" if not_measured else "")


def _machine(results: Results) -> str:
    facts = results.facts
    rows = {"date": facts["date"]} if facts.get("date") else {}
    rows |= {"machine": facts["machine"], "kernels": facts["isa"], **facts["versions"]}
    rows["measuring time of a row"] = f"{facts['seconds_per_row']:g} s"
    return pages.facts("Machine and versions", {name: escape(str(value)) for name, value in rows.items()})


def _data(results: Results) -> dict[str, Any]:
    names = ("row", "group", "shape", "dtype", "mode", "threads", "contestant", "kind", "status", "note")
    numbers = ("median_us", "min_us", "spread", "ratio")
    figures = []
    for row in by_row(results.figures).values():
        ours = fastest(row, kind="ours")
        for figure in row:
            entry = {name: figure[name] for name in names}
            entry |= {name: figure[name] for name in numbers if name in figure}
            entry["disturbed"] = is_disturbed(figure)
            if ours is not None and "median_us" in figure:
                entry["to_ours"] = figure["median_us"] / ours["median_us"]
            figures.append(entry)
    return {"figures": figures}
