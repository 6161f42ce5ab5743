"""A timeline as an HTML page without other files or network: lanes of pipes, critical path, buffers in UB."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from html import escape
from pathlib import Path
from typing import IO, Any

from ascend_sim import pages
from ascend_sim.timeline import NOT_HARDWARE, PIPES, format_bandwidth

__all__ = ["write"]

SCRIPT = Path(pages.__file__).with_name("timeline.js")
TICKS = 10_000  # in a microsecond; the trace has four decimals
CRITICAL, READ_LATENCY, WRITE_LATENCY = 4, 5, 6  # rows of a core in the trace, after those of the pipes


def write(events: list[dict[str, Any]], run: dict[str, Any], least_bytes: int, stream: IO[str]) -> None:
    """Write the page.

    Args:
        events: the ``traceEvents`` of a trace file with spans.
        run: a report's summary, with the title as ``call``.
        least_bytes: bytes that any kernel must move for this call.
        stream: receives the page.
    """
    title = f"{run['call']} on {run['soc']}, simulated"
    data = _data(events, run)
    body = [
        f'<aside class="banner" aria-label="Origin">{escape(NOT_HARDWARE)}</aside>',
        pages.header(
            title, f"{run['cycles']:,.0f} cycles at {run['clock_ghz']:g} GHz, without the launch itself"
        ),
        *pages.sections(_sections(run, least_bytes)),
        pages.data_element(data),
    ]
    stream.write(pages.document(title, body, SCRIPT))


def _sections(run: dict[str, Any], least_bytes: int) -> Iterator[tuple[str, str, Iterable[str]]]:
    yield "summary", "Summary", [_cards(run, least_bytes)]
    yield "timeline", "Timeline", [_TIMELINE]
    yield "path", "Critical path", [_critical_path(run)]
    yield "pipes", "Pipes", [_pipes(run)]
    yield "instructions", "Instructions", [_instructions(run)]
    yield "view", "Spans in view", ['<div id="span-table"></div>']


_TIMELINE = """<div class="filters" id="controls"></div>
<figure><canvas id="lanes" class="lanes" tabindex="0" role="img" aria-describedby="keys" aria-label="Timeline
with a lane for each pipe of a core and for each buffer in UB. The table of spans in view has the same data.">
</canvas><p class="readout" id="span" role="status"></p>
<figcaption id="keys">A red outline or line marks instructions on the critical path. In the lanes of MTE2
and MTE3, light bars are transfers in progress. In the lanes of buffers in UB, a span lasts from the first
write of its contents to their last use, and every second span is lighter. Keys, when the timeline has the
focus: + and - zoom, Left and Right move, Up and Down choose a lane, comma and full stop choose the span
before or after, Home shows everything. Drag to move; after a click on the timeline, the wheel
zooms.</figcaption></figure>"""


def _cards(run: dict[str, Any], least_bytes: int) -> str:
    moved = run["bytes_read"] + run["bytes_written"]
    cores = f"{run['cores']:.0f}"
    blocks = f"{run.get('blocks', run['cores']):.0f}"
    cards = [
        ("Time", f"{run['microseconds']:.2f} µs", f"{run['cycles']:,.0f} cycles"),
        ("Roofline", f"{run['roofline_share']:.1%}", "of what the memory allows"),
        (
            "Memory",
            format_bandwidth(run),
            f"{moved:,.0f} bytes moved, {moved / max(least_bytes, 1):.3f}&nbsp;x&nbsp;the&nbsp;least",
        ),
        ("Cores", cores, f"{blocks} blocks; the slowest is core&nbsp;{run['slowest_core']:.0f}"),
    ]
    parts = (
        f'<div class="card"><span class="soft">{name}</span><b>{value}</b><span>{detail}</span></div>'
        for name, value, detail in cards
    )
    return f'<div class="cards">{"".join(parts)}</div>'


def _pipes(run: dict[str, Any]) -> str:
    rows = [
        (
            [
                pipe,
                f"{run[f'busy_{pipe}']:,.0f}",
                f"{run[f'busy_{pipe}'] / max(run['cycles'], 1e-9):.1%}",
                f"{run[f'instructions_{pipe}']:,.0f}",
            ],
            "",
        )
        for pipe in PIPES
    ]
    titles = ("pipe", "busy cycles", "share", "instructions of all cores")
    return pages.table("Use of the slowest core's pipes", titles, rows, range(1, 4))


def _critical_path(run: dict[str, Any]) -> str:
    path = run["critical_path"]
    rows = [
        (
            [
                escape(part["api"]),
                escape(part["pipe"]),
                escape(part["what"]),
                f"{part['count']:,.0f}",
                f"{part['cycles']:,.0f}",
                f"{part['cycles'] / max(path['cycles'], 1e-9):.1%}",
            ],
            "",
        )
        for part in path["parts"]
    ]
    titles = ("instruction", "pipe", "spent on", "steps", "cycles", "share")
    caption = "The steps that delayed the slowest core's end, the longest first"
    return pages.table(caption, titles, rows, range(3, 6))


def _instructions(run: dict[str, Any]) -> str:
    rows = [
        (
            [
                escape(api["api"]),
                escape(api["pipe"]),
                *(f"{api[name]:,.0f}" for name in ("count", "repeats", "bytes", "cycles")),
                f"{api['cycles'] / max(run['cycles'], 1e-9):.1%}",
            ],
            "",
        )
        for api in sorted(run["apis"], key=lambda api: -float(api["cycles"]))
    ]
    titles = ("instruction", "pipe", "count", "repeats", "bytes", "cycles", "share")
    return pages.table("Instructions of the slowest core", titles, rows, range(2, 7))


# ---- data ------------------------------------------------------------------------------------------


def _data(events: list[dict[str, Any]], run: dict[str, Any]) -> dict[str, Any]:
    """Return lanes with their spans as columns. Times are in ticks; names and lines are indices."""
    names: dict[str, int] = {}
    lines: dict[str, int] = {}
    lanes: dict[tuple[int, int], dict[str, Any]] = {}
    titles = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e.get("name") == "thread_name"}
    for event in sorted((e for e in events if e["ph"] == "X"), key=lambda e: float(e["ts"])):
        key, details = (event["pid"], event["tid"]), event.get("args", {})
        if key not in lanes:
            lanes[key] = {"core": key[0], "name": titles.get(key, ""), "kind": _kind_of(event)}
            lanes[key] |= {column: [] for column in ("begin", "length", "names", "lines", "bytes", "count")}
            if "address" in details:
                lanes[key] |= {"address": details["address"], "size": details["bytes"]}
        lane = lanes[key]
        lane["begin"].append(round(event["ts"] * TICKS))
        lane["length"].append(round(event["dur"] * TICKS))
        lane["names"].append(names.setdefault(event["name"], len(names)))
        lane["lines"].append(lines.setdefault(details.get("line", ""), len(lines)))
        lane["bytes"].append(details.get("bytes", 0))
        lane["count"].append(details.get("uses", details.get("repeats", 0)))
    order = sorted(lanes, key=lambda key: (key[0], lanes[key].get("address", -1), key[1]))
    return {
        "ticks": TICKS,
        "clock": run["clock_ghz"],
        "slowest": run["slowest_core"],
        "names": list(names),
        "lines": list(lines),
        "lanes": [lanes[key] for key in order],
    }


def _kind_of(event: dict[str, Any]) -> str:
    """Return pipe, critical, read, write or ub."""
    if event.get("cat") == "ub":
        return "ub"
    return {CRITICAL: "critical", READ_LATENCY: "read", WRITE_LATENCY: "write"}.get(event["tid"], "pipe")
