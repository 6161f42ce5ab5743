"""A plot of each pair's wavelength before and after scaling, and of the context."""

from __future__ import annotations

import importlib
from typing import IO, Any

import numpy as np

from npu_rope.cli.inspect_model import Rope

BEFORE, AFTER, CONTEXT, INK = "#9a9a9a", "#0b3c8c", "#d9801a", "#1a1a1a"
LONGEST_TITLE = 80
VISIBLE_SCALING = 0.02  # a smaller relative change of a wavelength is not visible in the plot


def draw(title: str, ropes: list[Rope], stream: IO[bytes], kind: str) -> None:
    """Write the plot as png, svg or pdf, with a panel for each rope."""
    matplotlib: Any = importlib.import_module("matplotlib")
    matplotlib.use("Agg")
    plt: Any = importlib.import_module("matplotlib.pyplot")
    canvas, axes = plt.subplots(
        1, len(ropes), figsize=(7.5 * len(ropes), 4.8), sharey=True, squeeze=False, layout="constrained"
    )
    for axis, r in zip(axes[0], ropes, strict=True):
        _panel(axis, r)
    axes[0, 0].set_ylabel("wavelength in tokens", color=INK)
    canvas.suptitle(_shortened(title), fontsize=12, color=INK, parse_math=False)
    canvas.savefig(stream, format=kind, dpi=130, facecolor="white")
    plt.close(canvas)


def _shortened(text: str) -> str:
    """Shorten the text to fit above a panel."""
    return text if len(text) <= LONGEST_TITLE else f"{text[: LONGEST_TITLE - 3]}..."


def _panel(axis: Any, r: Rope) -> None:
    pairs = np.arange(r.params.pairs)
    before, after, rotating = 2 * np.pi / r.before(), 2 * np.pi / r.after(), r.rotating()
    scaled = bool(np.any(np.abs(after / before - 1)[rotating] > VISIBLE_SCALING))
    if scaled:
        axis.plot(pairs, before, color=BEFORE, linewidth=1.5, linestyle="--", label="before scaling")
    shown = np.where(rotating, after, np.nan)
    label = "as it is" if not scaled else "after scaling"
    if not rotating.all():
        label += f"; {np.count_nonzero(~rotating)} pairs do not rotate"
    axis.plot(pairs, shown, color=AFTER, linewidth=2, marker=".", markersize=4, label=label)
    for tokens, label, style in (
        (r.session, f"session, {r.session} tokens", "-"),
        (r.context, f"context, {r.context} tokens", "-" if r.session is None else "--"),
        (None if r.trained == r.context else r.trained, f"trained with {r.trained}", ":"),
    ):
        if tokens is not None:
            axis.axhline(tokens, color=CONTEXT, linewidth=1.2, linestyle=style, label=label)
    axis.set_yscale("log")
    axis.set_xlabel("pair", color=INK)
    axis.set_title(_shortened(r.layers), fontsize=10, color=INK, parse_math=False)
    axis.grid(True, which="major", color="#e4e4e4", linewidth=0.6)
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)
    axis.legend(frameon=False, fontsize=9, loc="upper left")
