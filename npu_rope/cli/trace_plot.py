"""A timeline as a picture: a row for each pipe of a core, a bar for each instruction."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import IO, Any

SUFFIXES = (".png", ".svg", ".pdf")
PIPES = ("S", "V", "MTE2", "MTE3")
COLOURS = {"S": "#9a9a9a", "V": "#0b3c8c", "MTE2": "#2f8f5b", "MTE3": "#d9801a"}
INK = "#1a1a1a"


def refusal(path: Path) -> str | None:
    """None where a plot can be written to ``path``, else what it must be."""
    if path.suffix not in SUFFIXES:
        return f"must end in {', '.join(SUFFIXES)} but got {path}."
    try:
        importlib.import_module("matplotlib")
    except ImportError:
        return "must have matplotlib but got none: pip install 'npu-rope[plot]'"
    return None


def draw(spans: Path, run: dict[str, Any], stream: IO[bytes], kind: str) -> None:
    """Write the timeline of the trace's cores as png, svg or pdf."""
    matplotlib: Any = importlib.import_module("matplotlib")
    matplotlib.use("Agg")
    plt: Any = importlib.import_module("matplotlib.pyplot")
    events = json.loads(spans.read_text())["traceEvents"]
    events = [e for e in events if e["ph"] == "X"]
    cores = sorted({e["pid"] for e in events})
    height = 1.1 * len(cores) + 1.2
    canvas, axes = plt.subplots(len(cores), 1, figsize=(12, height), sharex=True, squeeze=False)
    for axis, core in zip(axes[:, 0], cores, strict=True):
        for row, pipe in enumerate(PIPES):
            own = [(e["ts"], e["dur"]) for e in events if e["pid"] == core and e["tid"] == row]
            axis.broken_barh(own, (len(PIPES) - 1 - row - 0.4, 0.8), facecolors=COLOURS[pipe], linewidth=0)
        axis.set_yticks(range(len(PIPES)), PIPES[::-1], fontsize=8)
        axis.set_ylabel(f"core {core}", fontsize=9, color=INK)
        axis.set_ylim(-0.6, len(PIPES) - 0.4)
        for side in ("top", "right"):
            axis.spines[side].set_visible(False)
    axes[-1, 0].set_xlabel("microseconds (simulated, without the launch itself)", fontsize=9, color=INK)
    shape = ",".join(str(size) for size in run["shape"])
    canvas.suptitle(
        f"{run['op']} [{shape}] {run['dtype']} {run['mode']} on {run['soc']}, simulated:"
        f" {run['microseconds']:.1f} us, {run['roofline_share']:.0%} of the memory roofline",
        fontsize=11,
        color=INK,
    )
    canvas.tight_layout()
    canvas.savefig(stream, format=kind, dpi=130, facecolor="white")
    plt.close(canvas)
