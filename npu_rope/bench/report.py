"""Results as console tables, JSON, CSV and Markdown."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from pathlib import Path
from typing import Any, TextIO

from ascend_sim.files import is_number, json_of
from ascend_sim.texts import in_markdown, in_table
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from npu_rope.bench import (
    family_rows,
    gradient_rows,
    growth_rows,
    norm_rope_rows,
    norm_rows,
    patched_rows,
    qkv_rows,
)
from npu_rope.bench.run import SCHEMA, Results
from npu_rope.bench.targets import (
    Figures,
    TargetVerdict,
    format_microseconds,
    grouped,
    is_disturbed,
    measured_and_not,
    verdicts,
)

BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"
MOST_BYTES = 1 << 22  # of a run's JSON; a run of all rows has 1.4 MB
MOST_THREAD_COUNTS = 16  # of a run: each has columns of its own
# The marks of the groups of rows that have a part of their own in the page.
OWN_MARKS = {
    norm_rows.GROUP: ("<!-- measured norms: begin -->", "<!-- measured norms: end -->"),
    norm_rope_rows.GROUP: ("<!-- measured norm-rope: begin -->", "<!-- measured norm-rope: end -->"),
    qkv_rows.GROUP: ("<!-- measured qkv: begin -->", "<!-- measured qkv: end -->"),
    patched_rows.GROUP: ("<!-- measured patched: begin -->", "<!-- measured patched: end -->"),
    family_rows.GROUP: ("<!-- measured families: begin -->", "<!-- measured families: end -->"),
    gradient_rows.GROUP: ("<!-- measured gradients: begin -->", "<!-- measured gradients: end -->"),
    growth_rows.GROUP: ("<!-- measured growth: begin -->", "<!-- measured growth: end -->"),
}
LEGEND = (
    "us: median microseconds per call. spread: interquartile range / least sample. x floor: median over"
    " rounds of this time / the floor's time in the same round; the floor is the first line of a table, of a"
    " family of models, or of a size."
    " *: others used 10 % of a core or more meanwhile."
)
CSV_COLUMNS = (
    "row",
    "group",
    "shape",
    "dtype",
    "mode",
    "threads",
    "contestant",
    "kind",
    "status",
    "note",
    "median_us",
    "min_us",
    "spread",
    "samples",
    "ratio",
    "ratio_of_medians",
    "foreign_cores",
    "isa",
    "machine",
    "versions",
)
# The entries that --from needs in an earlier report and in each of its rows, with their types.
_DOCUMENT_TYPES = {
    "machine": str,
    "isa": str,
    "versions": dict,
    "seconds_per_row": float,
    "rows": list,
    "problems": list,
}
_ROW_TYPES = {
    **dict.fromkeys(("row", "group", "shape", "dtype", "mode", "contestant", "kind", "status", "note"), str),
    "threads": int,
}
_MEASURED_NUMBERS = {"median_us", "min_us", "spread"}
_POSITIVE_NUMBERS = ("median_us", "min_us", "ratio")
_STYLES = {"PASS": "bold green", "MISS": "bold red", "NOT MEASURED": "yellow"}


@dataclass
class BenchTable:
    """The figures of one shape, dtype and mode as text, with the thread counts side by side. A cell has the
    figures of several runs in their order. ``kinds`` holds the kind of each line's contestant."""

    title: str
    header: list[str]
    lines: list[list[str]]
    kinds: list[str]


def bench_tables(figures: Figures) -> Iterator[BenchTable]:
    """Yield the figures as tables of text."""
    by_title = grouped(figures, lambda f: f"{f['group']} {f['shape']} {f['dtype']} {f['mode']}")
    for title, table_figures in by_title.items():
        threads = sorted({figure["threads"] for figure in table_figures})
        header = ["contestant"]
        for count in threads:
            header += [f"{count}T us", "spread", "x floor"]
        bench_table = BenchTable(title, header, [], [])
        for name, of_contestant in grouped(table_figures, itemgetter("contestant")).items():
            cells = [cell for count in threads for cell in _cells_of_runs(of_contestant, count)]
            bench_table.lines.append([_labelled(name, of_contestant), *cells])
            bench_table.kinds.append(of_contestant[0]["kind"])
        yield bench_table


def _labelled(name: str, figures: Figures) -> str:
    """Return the contestant's name, with the reason if a figure is missing."""
    parts = dict.fromkeys(
        f"{figure['status']}: {figure['note']}" for figure in figures if figure["status"] != "ok"
    )
    return f"{name} ({'; '.join(parts)})" if parts else name


def _cells_of_runs(figures: Figures, threads: int) -> Iterator[str]:
    """Yield the cells of a thread count, each with the figures of all runs."""
    cells = [_cells(figure) for figure in figures if figure["threads"] == threads] or [["-", "-", "-"]]
    yield from (", ".join(of_runs) for of_runs in zip(*cells, strict=True))


def _cells(figure: dict[str, Any]) -> list[str]:
    if "median_us" not in figure:
        return ["-", "-", "-"]
    ratio = f"{figure['ratio']:.2f}" if "ratio" in figure else "-"
    disturbed_mark = "*" if is_disturbed(figure) else ""
    return [format_microseconds(figure["median_us"]), f"{figure['spread']:.0%}", ratio + disturbed_mark]


def head(runs: Sequence[Results]) -> list[str]:
    """Return lines about the machine, the software and the number of the runs."""
    facts = runs[0].facts
    versions = ", ".join(f"{name} {version}" for name, version in facts["versions"].items())
    lines = [f"Machine: {facts['machine']}. Kernels: {facts['isa']}.", f"Versions: {versions}."]
    dates = " and ".join(run.facts.get("date", "a day that its file does not name") for run in runs)
    return lines if len(runs) == 1 else [*lines, f"Each cell has the figures of {len(runs)} runs: {dates}."]


def require_alike(runs: Sequence[Results]) -> None:
    """Check that several runs can stand in one table.

    Raises:
        ValueError: they differ in the machine, the kernels, the versions, the measuring time of a row, or in
            their rows.
    """
    facts_of = [
        {
            **{name: run.facts[name] for name in ("machine", "isa", "versions", "seconds_per_row")},
            "rows": sorted({figure["row"] for figure in run.figures}),
        }
        for run in runs
    ]
    for other in facts_of[1:]:
        for name, fact in facts_of[0].items():
            if other[name] == fact:
                continue
            if name == "rows":
                raise ValueError(f"only one of them has row {min({*fact} ^ {*other[name]})}")
            raise ValueError(f"one has {name} {fact}, another {other[name]}")


def _verdicts_of_runs(runs: Sequence[Results]) -> tuple[list[TargetVerdict], list[TargetVerdict]]:
    """Return the verdicts on measured targets, by target, and on the targets whose rows all runs lack."""
    by_target: dict[str, list[TargetVerdict]] = {}
    for run in runs:
        for verdict in verdicts(run.figures):
            by_target.setdefault(verdict.target, []).append(verdict)
    measured: list[TargetVerdict] = []
    not_measured: list[TargetVerdict] = []
    for of_target in by_target.values():
        of_runs, _ = measured_and_not(of_target)
        measured += of_runs
        not_measured += [] if of_runs else of_target[:1]
    return measured, not_measured


def _figures_of_runs(runs: Sequence[Results]) -> Figures:
    return [figure for run in runs for figure in run.figures]


def write_console(runs: Sequence[Results], stream: TextIO) -> None:
    """Write tables and verdicts of one run or several as text."""
    console = Console(file=stream, highlight=False, width=None if stream.isatty() else 118)
    for fact in head(runs):
        console.print(escape(fact))
    for bench_table in bench_tables(_figures_of_runs(runs)):
        table = Table(title=escape(bench_table.title), title_justify="left", title_style="bold", box=None)
        for name in bench_table.header:
            table.add_column(
                name, justify="left" if name == "contestant" else "right", no_wrap=name != "contestant"
            )
        for line, kind in zip(bench_table.lines, bench_table.kinds, strict=True):
            table.add_row(
                *map(escape, line), style={"ours": "bold", "floor": "dim", "call": "dim"}.get(kind, "")
            )
        console.print()
        console.print(table)
    console.print()
    console.print(LEGEND)
    console.print()
    measured, not_measured = _verdicts_of_runs(runs)
    for verdict in measured:
        style = _STYLES[verdict.outcome.rstrip("?")]
        console.print(f"[{style}]{verdict.outcome}[/] {escape(verdict.target)}")
        console.print(f"     {escape(verdict.detail)}")
    if not_measured:
        text = f"targets whose rows this run lacks: {len(not_measured)}"
        console.print(f"[{_STYLES['NOT MEASURED']}]NOT MEASURED[/] {text}")
    for problem in _problems(runs):
        console.print(f"[bold red]{escape(problem)}[/]")


def _problems(runs: Sequence[Results]) -> list[str]:
    return [problem for run in runs for problem in run.problems]


def write_json(results: Results, stream: TextIO) -> None:
    """Write the whole document."""
    json.dump(results.document(), stream, indent=1)
    stream.write("\n")


def read_json(path: Path) -> Results:
    """Read a run written by :func:`write_json`.

    Raises:
        ValueError: the file has other content.
    """
    document = json_of(path, MOST_BYTES)
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        raise ValueError(f"its schema is not {SCHEMA}")
    _require(document, _DOCUMENT_TYPES, "the report")
    if not all(isinstance(problem, str) for problem in document["problems"]):
        raise ValueError("the report's problems are not texts")
    for row in document["rows"]:
        _require(row, _ROW_TYPES, "a row")
        if row["group"] == growth_rows.GROUP and not growth_rows.has_size(row):
            raise ValueError("a row of growth has no size")
        cores = row.get("foreign_cores", "")
        if cores is not None and not is_number(cores):
            raise ValueError("a row has no foreign_cores, or it is not a number")
        if _MEASURED_NUMBERS & set(row):
            _require(row, dict.fromkeys(_MEASURED_NUMBERS, float), "a measured row")
        if "ratio" in row:
            _require(row, {"ratio": float}, "a measured row")
        for name in _POSITIVE_NUMBERS:
            if name in row and row[name] <= 0:
                raise ValueError(f"{name} of a measured row is not positive")
    if len({row["threads"] for row in document["rows"]}) > MOST_THREAD_COUNTS:
        raise ValueError(f"its rows have more than {MOST_THREAD_COUNTS} thread counts")
    _require({"date": "", **document}, {"date": str}, "the report")  # earlier versions wrote no date
    names = ("date", "machine", "isa", "versions", "seconds_per_row")
    facts = {name: document[name] for name in names if name in document}
    return Results(facts, document["rows"], document["problems"])


def _require(entries: Any, types: dict[str, type], description: str) -> None:
    if not isinstance(entries, dict):
        raise ValueError(f"{description} is not an object")
    for name, kind in types.items():
        entry = entries.get(name)
        if not (is_number(entry) if kind is float else isinstance(entry, kind)):
            raise ValueError(f"{description} has no {name}, or it is not of type {kind.__name__}")


def write_csv(results: Results, stream: TextIO) -> None:
    """Write one line for each figure."""
    writer = csv.DictWriter(stream, CSV_COLUMNS, restval="", extrasaction="ignore")
    writer.writeheader()
    for figure in results.figures:
        writer.writerow({name: in_table(v) if isinstance(v, str) else v for name, v in figure.items()})


def markdown(runs: Sequence[Results]) -> str:
    """Return the results as one generated part of ``docs/benchmarks.md``, with the targets of its rows."""
    lines = [in_markdown(line) for line in head(runs)]
    measured, _ = _verdicts_of_runs(runs)
    if measured:
        lines += ["", "| target | | measured |", "|---|---|---|"]
        for verdict in measured:
            lines.append(_markdown_line([verdict.target, verdict.outcome, in_markdown(verdict.detail)]))
    lines += ["", LEGEND.replace("*:", "\\*:")]
    for bench_table in bench_tables(_figures_of_runs(runs)):
        lines += ["", f"### {in_markdown(bench_table.title)}", "", _markdown_line(bench_table.header)]
        lines.append("|---|" + "---:|" * (len(bench_table.header) - 1))
        for cells, kind in zip(bench_table.lines, bench_table.kinds, strict=True):
            name, *figures = map(in_markdown, cells)
            lines.append(_markdown_line([f"**{name}**" if kind == "ours" else name, *figures]))
    lines += [f"\nNot complete: {in_markdown(problem)}" for problem in _problems(runs)]
    return "\n".join(lines) + "\n"


def _markdown_line(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def missing_marks(page: str, groups: Iterable[str]) -> str | None:
    """Return the rule of an error if a page that is not empty has no marks for a group of rows, else None."""
    if page.strip() and not _has(page, BEGIN, END):
        for group in groups:
            if not _has(page, *OWN_MARKS.get(group, (BEGIN, END))):
                return f"have the marks {BEGIN} and {END}"
    return None


def _has(page: str, begin: str, end: str) -> bool:
    return 0 <= page.find(begin) < page.find(end)


def into_page(runs: Sequence[Results], page: str) -> str:
    """Return the page with the results between its marks, or a new page for an empty text.

    A group with marks of its own in the page goes between them. If the runs have only such groups, the other
    parts of the page stay unchanged.

    Raises:
        ValueError: the page has no marks for some results (:func:`missing_marks`).
    """
    if rule := missing_marks(page, (f["group"] for run in runs for f in run.figures)):
        raise ValueError(f"page must {rule}")
    for group, (begin, end) in OWN_MARKS.items():
        of_group = _of_group(runs, group)
        if of_group and _has(page, begin, end):
            page = _between(page, begin, end, of_group)
            runs = _of_group(runs, group, others=True)
    if not runs:
        return page
    if _has(page, BEGIN, END):
        return _between(page, BEGIN, END, runs)
    return f"{BEGIN}\n\n{markdown(runs)}\n{END}\n"


def _of_group(runs: Sequence[Results], group: str, *, others: bool = False) -> list[Results]:
    """Return the runs that have figures of the group, or of others, with these figures only."""
    kept = [[f for f in run.figures if (f["group"] == group) != others] for run in runs]
    return [replace(run, figures=figures) for run, figures in zip(runs, kept, strict=True) if figures]


def _between(page: str, begin: str, end: str, runs: Sequence[Results]) -> str:
    generated = f"{begin}\n\n{markdown(runs)}\n{end}"
    return page[: page.index(begin)] + generated + page[page.index(end) + len(end) :]
