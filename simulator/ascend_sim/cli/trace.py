"""``ascend-sim trace``: show how a launch spent its cycles, from its timeline."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from ascend_sim import timeline, timeline_page, timeline_plot
from ascend_sim.cli.application import usage_error
from ascend_sim.files import cause_of, json_of, replacing, shared, unwritable
from ascend_sim.texts import printable

MOST_BYTES = 1 << 28  # of a timeline: a launch with a million instructions has one of this size


def trace(
    file: Annotated[Path, typer.Argument(help="A timeline that a run has written.", show_default=False)],
    plot: Annotated[Path | None, typer.Option(help="Draw the timeline to a .png, .svg or .pdf file.")] = None,
    page: Annotated[
        Path | None, typer.Option(help="Write the timeline as an HTML page, which needs no network.")
    ] = None,
    json_: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False,
) -> None:
    """Show how a launch spent its cycles: pipes, instructions, critical path.

    The time comes from a model. An instruction takes a fixed time for its issue
    and a time for each repeat or byte. The four pipes of a core overlap as far as
    the kernel's events allow. The cores share the bandwidth of global memory. The
    model has not been compared with hardware.

    Exit status: 0 success; 2 bad usage.

    Examples:

      ascend-sim kernel gelu.cpp gelu in:x.npy 'out:float16[99]' --trace gelu.json

      ascend-sim trace gelu.json --plot gelu.png

      ascend-sim trace gelu.json --page gelu.html
    """
    if plot is not None and (fault := unwritable(plot) or timeline_plot.refusal(plot)):
        raise usage_error(f"[trace] plot {fault}")
    if page is not None and (fault := unwritable(page)):
        raise usage_error(f"[trace] page {fault}")
    if fault := shared([("file", file)], plot=plot, page=page):
        raise usage_error(f"[trace] {fault}")
    try:
        contents = json_of(file, MOST_BYTES)
        summary = {"call": file.name, **_summary_of(contents)}
        if (plot or page) and (missing := timeline.missing_in_events(contents)):
            raise ValueError(f"it has no {missing}")
        if plot and (fault := timeline_plot.undrawable(contents["traceEvents"])):
            raise ValueError(fault)
    except (OSError, ValueError) as error:
        cause = cause_of(error)
        raise usage_error(f"[trace] file must be a timeline of ascend_sim but got {file}: {cause}.") from None
    if plot is not None:
        with replacing(plot, "wb") as stream:
            timeline_plot.draw(
                contents["traceEvents"],
                timeline_plot.title_of(summary),
                summary["microseconds"],
                stream,
                plot.suffix[1:],
            )
    moved_bytes = int(summary["bytes_read"] + summary["bytes_written"])
    if page is not None:
        with replacing(page) as stream:
            timeline_page.write(contents["traceEvents"], summary, moved_bytes, stream)
    if json_:
        print(json.dumps(summary, indent=1))
        return
    timeline.show(summary, moved_bytes, Console(highlight=False))
    if plot is not None:
        print(f"plot written to {printable(str(plot))}")
    if page is not None:
        print(f"page written to {printable(str(page))}")


def _summary_of(contents: Any) -> dict[str, Any]:
    """Return the summary from the contents of a timeline's file."""
    for key in ("otherData", "summary"):
        if not isinstance(contents, dict) or not isinstance(contents.get(key), dict):
            raise ValueError(f"it has no {key}")
        contents = contents[key]
    summary: dict[str, Any] = contents
    if missing := timeline.missing_in(summary):
        raise ValueError(f"its summary has no {missing}")
    return summary
