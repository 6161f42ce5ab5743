"""A plot of a timeline: a row for each pipe of a core, with bars while it is busy."""

from __future__ import annotations

import importlib
from collections import defaultdict
from pathlib import Path
from typing import IO, Any

from ascend_sim.texts import printable

__all__ = ["draw", "refusal", "title_of", "undrawable"]

SUFFIXES = (".png", ".svg", ".pdf")
PIPES = ("S", "V", "MTE2", "MTE3")
COLOURS = {"S": "#9a9a9a", "V": "#0b3c8c", "MTE2": "#2f8f5b", "MTE3": "#d9801a"}
INK = "#1a1a1a"
# The pipes of the trace's rows 5, "MTE2 read latency", and 6, "MTE3 write latency".
PIPE_OF_LATENCY_ROW = {5: "MTE2", 6: "MTE3"}
MOST_CORES = 100  # in a plot; no chip has as many
PLOT_PIXELS = 1500  # the width; a pause shorter than a pixel is not drawn


def refusal(path: Path) -> str | None:
    """Return None if a plot can have this path, else an error text without the argument's name."""
    if path.suffix not in SUFFIXES:
        return f"must end in {', '.join(SUFFIXES)} but got {path}."
    try:
        importlib.import_module("matplotlib")
    except ImportError:
        return "must have matplotlib but got none: pip install 'ascend-sim[plot]'"
    return None


def _join_spans(spans: list[tuple[float, float]], shortest_pause: float) -> list[tuple[float, float]]:
    """Join the spans between which the pause is shorter than ``shortest_pause``."""
    joined: list[tuple[float, float]] = []
    for begin, end in sorted(spans):
        if joined and begin - joined[-1][1] < shortest_pause:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((begin, end))
    return joined


def title_of(run: dict[str, Any]) -> str:
    """Return the plot's title, from a report's summary with the title of the call as ``call``."""
    return (
        f"{printable(run['call'])} on {run['soc']}, simulated:"
        f" {run['microseconds']:.1f} us, {run['roofline_share']:.1%} of the memory roofline"
    )


def undrawable(events: list[dict[str, Any]]) -> str | None:
    """Return why a plot cannot show the events of a trace file, or None."""
    cores = len(_cores_in(events))
    return f"a plot has at most {MOST_CORES} cores, and it has {cores}" if cores > MOST_CORES else None


def _cores_in(events: list[dict[str, Any]]) -> list[float]:
    """Return the cores that have spans, in order."""
    return sorted({event["pid"] for event in events if event["ph"] == "X"})


def draw(events: list[dict[str, Any]], title: str, microseconds: float, stream: IO[bytes], kind: str) -> None:
    """Draw at most MOST_CORES cores of a trace file's ``traceEvents``, as png, svg or pdf."""
    matplotlib: Any = importlib.import_module("matplotlib")
    matplotlib.use("Agg")
    plt: Any = importlib.import_module("matplotlib.pyplot")
    spans: dict[tuple[float, float], list[tuple[float, float]]] = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            spans[event["pid"], event["tid"]].append((event["ts"], event["dur"]))
    cores = _cores_in(events)
    inches_per_core = min(1.1, max(0.75, 24 / len(cores)))
    size = (12, inches_per_core * len(cores) + 1.0)
    canvas, axes = plt.subplots(len(cores), 1, figsize=size, sharex=True, squeeze=False, layout="constrained")
    for axis, core in zip(axes[:, 0], cores, strict=True):
        for row, pipe in enumerate(PIPES):
            busy = [(begin, begin + length) for begin, length in spans[core, row]]
            bars = [(begin, end - begin) for begin, end in _join_spans(busy, microseconds / PLOT_PIXELS)]
            axis.broken_barh(bars, (len(PIPES) - 1 - row - 0.4, 0.8), facecolors=COLOURS[pipe], linewidth=0)
        for tid, pipe in PIPE_OF_LATENCY_ROW.items():
            place = (len(PIPES) - 1 - PIPES.index(pipe) - 0.4, 0.8)
            axis.broken_barh(
                spans[core, tid], place, facecolors=COLOURS[pipe], alpha=0.3, linewidth=0, zorder=0
            )
        axis.set_yticks(range(len(PIPES)), PIPES[::-1], fontsize=7)
        axis.set_ylabel(f"core {core}", fontsize=9, color=INK)
        axis.set_ylim(-0.6, len(PIPES) - 0.4)
        axis.set_xlim(0, microseconds)
        for side in ("top", "right"):
            axis.spines[side].set_visible(False)
    axes[-1, 0].set_xlabel(
        "microseconds (simulated, without the launch itself); light: transfers in progress",
        fontsize=9,
        color=INK,
    )
    axes[0, 0].set_title(title, fontsize=11, color=INK, pad=10, parse_math=False)
    canvas.savefig(stream, format=kind, dpi=130, facecolor="white")
    plt.close(canvas)
