"""Plot a run: a bar for each time divided by the memory floor's, grouped by dtype, on a logarithmic scale."""

from __future__ import annotations

import importlib
from typing import IO, Any

from npu_rope.bench import peers, rope_rows
from npu_rope.bench.peers_ggml import GGML
from npu_rope.bench.run import Results
from npu_rope.bench.targets import Figures, is_disturbed

# (contestant, its label, colour): npu_rope's in blues, peers distinct in colour and brightness.
BARS = (
    (rope_rows.OUT, "npu_rope out=", "#0b3c8c"),
    (rope_rows.IN_PLACE, "npu_rope in place", "#4f8fe0"),
    (rope_rows.PACKED, "npu_rope packed operator", "#a9cbf5"),
    (GGML, "ggml", "#d9801a"),
    (peers.ORT, "ONNX Runtime (tables given)", "#7b4fa3"),
    (peers.HF, "transformers eager (tables given)", "#9a9a9a"),
    (peers.HF_COMPILED, "transformers compiled (tables given)", "#5c5c5c"),
    (peers.VLLM_COMPILED, "vLLM's formula compiled (table given)", "#2f8f5b"),
)
INK = "#1a1a1a"
LOWEST, HIGHEST = 0.2, 150.0  # the least and the greatest end of a bar; its label has the exact ratio


def drawn_figures(results: Results) -> Figures:
    """Return the figures that a plot shows: those of mode neox, or else of mode normal."""
    by_mode = (
        [figure for figure in results.figures if figure["mode"] == mode] for mode in ("neox", "normal")
    )
    return next(filter(None, by_mode), [])


def draw(results: Results, stream: IO[bytes], kind: str) -> None:
    """Write the plot of results with drawn figures as png, svg or pdf."""
    matplotlib: Any = importlib.import_module("matplotlib")
    matplotlib.use("Agg")
    plt: Any = importlib.import_module("matplotlib.pyplot")
    figures = drawn_figures(results)
    shapes = list(dict.fromkeys((figure["group"], figure["shape"]) for figure in figures))
    threads = sorted({figure["threads"] for figure in figures})
    size = (6.6 * len(threads) + 0.6, 2.7 * len(shapes) + 1.5)
    image, axes = plt.subplots(len(shapes), len(threads), figsize=size, sharey=True, squeeze=False)
    for panel_row, (group, shape) in zip(axes, shapes, strict=True):
        for panel, count in zip(panel_row, threads, strict=True):
            key = (group, shape, count)
            shown = [
                figure for figure in figures if (figure["group"], figure["shape"], figure["threads"]) == key
            ]
            _draw_panel(panel, shown)
            plural = "" if count == 1 else "s"
            panel.set_title(
                f"{group} {shape}, {count} thread{plural}",
                color=INK,
                fontsize=10,
                loc="left",
                parse_math=False,
            )
        panel_row[0].set_ylabel("time / memory floor", color=INK, fontsize=9)
    legend_handles = [plt.Rectangle((0, 0), 1, 1, color=colour) for _, _, colour in BARS]
    labels = [label for _, label, _ in BARS]
    top = 1 - 0.85 / size[1]
    columns = 4 if len(threads) > 1 else 2
    image.legend(
        legend_handles,
        labels,
        loc="upper center",
        ncol=columns,
        frameon=False,
        fontsize=9,
        labelcolor=INK,
        bbox_to_anchor=(0.5, 1 - 0.3 / size[1]),
    )
    mode = figures[0]["mode"]
    image.suptitle(
        f"Rotary position embedding, mode {mode}: lower is better, 1 is a copy of the same bytes",
        color=INK,
        fontsize=12,
        y=1 - 0.1 / size[1],
        va="top",
    )
    image.tight_layout(rect=(0, 0, 1, top if columns == 4 else top - 0.5 / size[1]))
    image.savefig(stream, format=kind, dpi=130, facecolor="white")
    plt.close(image)


def _draw_panel(panel: Any, figures: Figures) -> None:
    dtypes = [dtype for dtype in rope_rows.DTYPES if any(figure["dtype"] == dtype for figure in figures)]
    width = 0.86 / len(BARS)
    for dtype_index, dtype in enumerate(dtypes):
        for i, (name, _, colour) in enumerate(BARS):
            for figure in figures:
                if figure["dtype"] == dtype and figure["contestant"] in (name, rope_rows.for_pairs(name)):
                    bar_centre = dtype_index + (i - (len(BARS) - 1) / 2) * width
                    _draw_bar(panel, bar_centre, width, figure, colour)
                    break
    panel.axhline(1, color=INK, linewidth=1)
    panel.set_yscale("log")
    panel.set_ylim(LOWEST, 700)
    panel.set_yticks([0.5, 1, 2, 5, 10, 20, 50, 100], ["0.5", "1", "2", "5", "10", "20", "50", "100"])
    panel.minorticks_off()
    panel.set_xticks(range(len(dtypes)), dtypes)
    panel.set_xlim(-0.55, len(dtypes) - 0.45)
    panel.tick_params(colors=INK, labelsize=9)
    panel.grid(axis="y", color="#dddddd", linewidth=0.6)
    panel.set_axisbelow(True)
    for side in ("top", "right"):
        panel.spines[side].set_visible(False)


def _draw_bar(panel: Any, bar_centre: float, width: float, figure: dict[str, Any], colour: str) -> None:
    if "ratio" in figure:
        height = min(max(figure["ratio"], LOWEST * 1.05), HIGHEST)
        panel.bar(bar_centre, height - LOWEST, width * 0.92, bottom=LOWEST, color=colour)
        text = _short_ratio(figure["ratio"]) + ("*" if is_disturbed(figure) else "")
    else:
        height, text = LOWEST, figure["status"]
    panel.annotate(
        text,
        (bar_centre, height),
        (0, 2),
        textcoords="offset points",
        ha="center",
        va="bottom",
        rotation=90,
        fontsize=7,
        color=INK,
        parse_math=False,
        bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 0.2},
    )


def _short_ratio(ratio: float) -> str:
    return f"{ratio:.2f}" if ratio < 1 else f"{ratio:.1f}" if ratio < 10 else f"{ratio:.0f}"
