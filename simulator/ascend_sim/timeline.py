"""The printed summary of a launch: times, pipes, instructions, critical path."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ascend_sim.files import is_number
from ascend_sim.texts import printable

__all__ = ["NOT_HARDWARE", "show"]

PIPES = ("S", "V", "MTE2", "MTE3")
NOT_HARDWARE = "Simulated: a model of published rates, never fitted to hardware."

# The numbers that a summary must have.
SUMMARY_NUMBERS = (
    *("clock_ghz", "cycles", "microseconds", "roofline_share", "cores", "slowest_core"),
    *("bytes_read", "bytes_written"),
    *(f"busy_{pipe}" for pipe in PIPES),
    *(f"instructions_{pipe}" for pipe in PIPES),
)
# Numbers that the details of a span may have.
SPAN_NUMBERS = ("address", "bytes", "repeats", "uses")
MOST_MICROSECONDS = 1e12
# The texts, then the numbers, that each row of the lists "apis" and "critical_path.parts" must have.
INSTRUCTION_FIELDS = (("api", "pipe"), ("count", "repeats", "bytes", "cycles"))
PART_FIELDS = (("api", "pipe", "what"), ("count", "cycles"))


def missing_in(summary: dict[str, Any]) -> str | None:
    """Return the first value that a summary lacks for :func:`show`, such as ``"number cycles"``, or None."""
    path = summary.get("critical_path")
    numbers = (*SUMMARY_NUMBERS, "blocks") if "blocks" in summary else SUMMARY_NUMBERS
    return (
        _missing(summary, ("soc",), numbers)
        or _missing_in_rows(summary, "apis", *INSTRUCTION_FIELDS)
        or (None if isinstance(path, dict) else "object critical_path")
        or _missing(path, (), ("cycles",), "critical_path.")
        or _missing_in_rows(path, "parts", *PART_FIELDS, "critical_path.")
    )


def missing_in_events(contents: dict[str, Any]) -> str | None:
    """Return what a file lacks for a plot or a page, such as ``"number pid in traceEvents"``, or None."""
    events = contents.get("traceEvents")
    if (
        not isinstance(events, list)
        or not all(isinstance(e, dict) and "ph" in e for e in events)
        or all(e["ph"] != "X" for e in events)
    ):
        return "traceEvents to show"
    return next((f"{missing} in traceEvents" for missing in map(_missing_in_event, events) if missing), None)


def _missing_in_event(event: dict[str, Any]) -> str | None:
    """A span has a place, times and a name. The name of a thread has a place and a text."""
    details = event.get("args", {})
    if event["ph"] == "X":
        if not all(_is_time(event.get(name)) for name in ("ts", "dur")):
            return f"numbers ts and dur of at most {MOST_MICROSECONDS:g}"
        known = [name for name in SPAN_NUMBERS if name in details] if isinstance(details, dict) else None
        if known is None or ("address" in details and "bytes" not in details):
            return "complete object args"
        details = {"line": "", **details}
        return _missing(event, ("name",), ("pid", "tid")) or _missing(details, ("line",), known)
    if event.get("name") != "thread_name":
        return None
    return _missing(event, (), ("pid", "tid")) or (
        _missing(details, ("name",), (), "args.") if isinstance(details, dict) else "object args"
    )


def _is_time(value: Any) -> bool:
    return is_number(value) and abs(value) <= MOST_MICROSECONDS


def _missing_in_rows(
    contents: Any, name: str, texts: tuple[str, ...], numbers: tuple[str, ...], prefix: str = ""
) -> str | None:
    rows = contents.get(name)
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        return f"list {prefix}{name}"
    missing = (_missing(row, texts, numbers, f"{prefix}{name}.") for row in rows)
    return next((name for name in missing if name), None)


def _missing(contents: Any, texts: Sequence[str], numbers: Sequence[str], prefix: str = "") -> str | None:
    for name in texts:
        if not isinstance(contents.get(name), str):
            return f"text {prefix}{name}"
    return next((f"number {prefix}{name}" for name in numbers if not is_number(contents.get(name))), None)


def format_bandwidth(run: dict[str, Any]) -> str:
    """Return the rate of a launch's copies, such as ``1.23 TB/s``."""
    gigabytes = (run["bytes_read"] + run["bytes_written"]) / max(run["microseconds"], 1e-9) / 1e3
    return f"{gigabytes / 1e3:.2f} TB/s" if gigabytes >= 100 else f"{gigabytes:.2f} GB/s"


def show(run: dict[str, Any], least_bytes: int, console: Console) -> None:
    """Print times, pipes, instructions, and the critical path.

    Args:
        run: a report's summary, with the title as ``call``.
        least_bytes: bytes that any kernel must move for this call.
        console: receives the text.
    """
    moved_bytes = run["bytes_read"] + run["bytes_written"]
    excess = moved_bytes / max(least_bytes, 1)
    blocks, cores = f"{run.get('blocks', run['cores']):.0f}", f"{run['cores']:.0f}"
    core_text = cores if blocks == cores else f"{cores}, which run {blocks} blocks"
    kind = "core" if blocks == cores else "block"
    slowest = "" if blocks == "1" else f"; the slowest is {kind} {run['slowest_core']:.0f}, below"
    for line in (
        f"[bold]{escape(printable(run['call']))}[/] on {escape(run['soc'])}, simulated",
        f"[dim]{NOT_HARDWARE}[/]",
        "",
        f"time      {run['cycles']:,.0f} cycles = {run['microseconds']:.2f} us, without the launch itself",
        f"memory    {moved_bytes:,.0f} bytes moved ({excess:.3f} x the least), {format_bandwidth(run)}",
        f"roofline  {run['roofline_share']:.1%} of what the memory allows",
        f"cores     {core_text}{slowest}",
        "",
    ):
        console.print(line, soft_wrap=True)
    for table in (_pipe_table(run), _instruction_table(run), _critical_path_table(run)):
        console.print(table)
        console.print()


def _new_table(*titles: str, left: tuple[str, ...]) -> Table:
    table = Table(box=None, pad_edge=False)
    for title in titles:
        table.add_column(title, justify="left" if title in left else "right", no_wrap=True)
    return table


def _pipe_table(run: dict[str, Any]) -> Table:
    table = _new_table("pipe", "busy cycles", "share", "instructions of all cores", left=("pipe",))
    for pipe in PIPES:
        busy = run[f"busy_{pipe}"]
        share = busy / max(run["cycles"], 1e-9)
        table.add_row(pipe, f"{busy:,.0f}", f"{share:.1%}", f"{run[f'instructions_{pipe}']:,.0f}")
    return table


MAX_PRINTED_STEPS = 12


def _critical_path_table(run: dict[str, Any]) -> Table:
    """Return a table of the steps that delayed the slowest core's end, the longest first."""
    titles = ("critical path", "pipe", "spent on", "steps", "cycles", "share")
    table = _new_table(*titles, left=("critical path",))
    path = run["critical_path"]
    for part in path["parts"][:MAX_PRINTED_STEPS]:
        share = part["cycles"] / max(path["cycles"], 1e-9)
        numbers = [f"{part['count']:,.0f}", f"{part['cycles']:,.0f}", f"{share:.1%}"]
        table.add_row(part["api"], part["pipe"], part["what"], *numbers)
    return table


def _instruction_table(run: dict[str, Any]) -> Table:
    titles = ("instruction", "pipe", "count", "repeats", "bytes", "cycles", "share")
    table = _new_table(*titles, left=("instruction", "pipe"))
    for api in sorted(run["apis"], key=lambda api: -float(api["cycles"])):
        share = api["cycles"] / max(run["cycles"], 1e-9)
        numbers = [f"{api[name]:,.0f}" for name in ("count", "repeats", "bytes", "cycles")]
        table.add_row(api["api"], api["pipe"], *numbers, f"{share:.1%}")
    return table
