"""Plot each pair's wavelength before and after scaling, and the context lengths."""

from __future__ import annotations

import importlib
from typing import IO, Any

import numpy as np

from npu_rope.cli.inspect_model import LayerRope

BEFORE, AFTER, CONTEXT, INK = "#9a9a9a", "#0b3c8c", "#d9801a", "#1a1a1a"
LONGEST_TITLE = 80  # characters
# A larger relative change of a wavelength is plotted as scaling.
VISIBLE_SCALING = 0.02


def draw(title: str, ropes: list[LayerRope], stream: IO[bytes], kind: str) -> None:
    """Write the plot to the stream, with a panel for each rope. ``kind`` is png, svg or pdf."""
    matplotlib: Any = importlib.import_module("matplotlib")
    matplotlib.use("Agg")
    plt: Any = importlib.import_module("matplotlib.pyplot")
    figure, panels = plt.subplots(
        1, len(ropes), figsize=(7.5 * len(ropes), 4.8), sharey=True, squeeze=False, layout="constrained"
    )
    for panel, layer_rope in zip(panels[0], ropes, strict=True):
        _draw_panel(panel, layer_rope)
    panels[0, 0].set_ylabel("wavelength in tokens", color=INK)
    figure.suptitle(_shortened(title), fontsize=12, color=INK, parse_math=False)
    figure.savefig(stream, format=kind, dpi=130, facecolor="white")
    plt.close(figure)


def _shortened(text: str) -> str:
    """Truncate the title of the plot or of a panel to LONGEST_TITLE."""
    return text if len(text) <= LONGEST_TITLE else f"{text[: LONGEST_TITLE - 3]}..."


def _draw_panel(panel: Any, layer_rope: LayerRope) -> None:
    pairs = np.arange(layer_rope.params.pairs)
    unscaled = 2 * np.pi / layer_rope.unscaled_frequencies()
    scaled = 2 * np.pi / layer_rope.scaled_frequencies()
    rotating = layer_rope.rotating_pairs()
    is_scaled = bool(np.any(np.abs(scaled / unscaled - 1)[rotating] > VISIBLE_SCALING))
    if is_scaled:
        panel.plot(pairs, unscaled, color=BEFORE, linewidth=1.5, linestyle="--", label="before scaling")
    wavelengths = np.where(rotating, scaled, np.nan)
    label = "as it is" if not is_scaled else "after scaling"
    if not rotating.all():
        label += f"; pairs that do not rotate: {np.count_nonzero(~rotating)}"
    panel.plot(pairs, wavelengths, color=AFTER, linewidth=2, marker=".", markersize=4, label=label)
    for tokens, label, style in (
        (layer_rope.session, f"session, {layer_rope.session} tokens", "-"),
        (
            layer_rope.context,
            f"context, {layer_rope.context} tokens",
            "-" if layer_rope.session is None else "--",
        ),
        (
            None if layer_rope.trained == layer_rope.context else layer_rope.trained,
            f"trained with {layer_rope.trained}",
            ":",
        ),
    ):
        if tokens is not None:
            panel.axhline(tokens, color=CONTEXT, linewidth=1.2, linestyle=style, label=label)
    panel.set_yscale("log")
    panel.set_xlabel("pair", color=INK)
    panel.set_title(_shortened(layer_rope.layers), fontsize=10, color=INK, parse_math=False)
    panel.grid(True, which="major", color="#e4e4e4", linewidth=0.6)
    for side in ("top", "right"):
        panel.spines[side].set_visible(False)
    panel.legend(frameon=False, fontsize=9, loc="upper left")
