"""Plot the growth rows of a run: the time of rope and of the copy, and their ratio, against the size."""

from __future__ import annotations

import importlib
from typing import IO, Any

from npu_rope.bench import growth_rows
from npu_rope.bench.rope_rows import DTYPES, OUT
from npu_rope.bench.run import Results
from npu_rope.bench.targets import Figures

COLOURS = {"f32": "#0b3c8c", "f16": "#d9801a", "bf16": "#2f8f5b"}
INK = "#1a1a1a"
EXPLAINED_RATIO = 1.3  # docs/benchmarks.md explains each place with a larger ratio
LOWEST, HIGHEST = 0.5, 16.0  # of the ratios


def drawn_figures(results: Results) -> Figures:
    """Return the measured figures of the growth rows."""
    return [f for f in results.figures if f["group"] == growth_rows.GROUP and "ratio" in f]


def draw(results: Results, stream: IO[bytes], kind: str) -> None:
    """Write the plot as png, svg or pdf: two rows of panels for each number of threads."""
    matplotlib: Any = importlib.import_module("matplotlib")
    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "growth"
    plt: Any = importlib.import_module("matplotlib.pyplot")
    figures = drawn_figures(results)
    threads = sorted({figure["threads"] for figure in figures})
    modes = [mode for mode in growth_rows.MODES if any(figure["mode"] == mode for figure in figures)]
    size = (4.3 * len(modes) + 0.4, 4.9 * len(threads) + 0.9)
    ratios = [3, 2] * len(threads)
    image, axes = plt.subplots(
        2 * len(threads), len(modes), figsize=size, squeeze=False, sharey="row", height_ratios=ratios
    )
    for i, count in enumerate(threads):
        for j, mode in enumerate(modes):
            shown = [f for f in figures if (f["threads"], f["mode"]) == (count, mode)]
            if not any(_curve(shown, dtype, OUT, "ratio")[0] for dtype in DTYPES):
                for panel in (axes[2 * i][j], axes[2 * i + 1][j]):  # a logarithmic scale needs values
                    panel.set_axis_off()
                continue
            _draw_times(axes[2 * i][j], shown, f"{shown[0]['shape']}, {_threads(count)}")
            _draw_ratios(axes[2 * i + 1][j], shown, growth_rows.SYMBOLS[mode], mode)
        axes[2 * i][0].set_ylabel("time [µs]", color=INK, fontsize=9)
        axes[2 * i + 1][0].set_ylabel("rope / copy", color=INK, fontsize=9)
    lines = [plt.Line2D([], [], color=COLOURS[dtype], label=f"rope {dtype}") for dtype in _dtypes(figures)]
    lines.append(plt.Line2D([], [], color=INK, linestyle="--", label="copy of the same bytes, same colours"))
    top = 1 - 0.55 / size[1]
    image.legend(
        handles=lines,
        loc="upper center",
        ncol=4,
        frameon=False,
        fontsize=9,
        labelcolor=INK,
        bbox_to_anchor=(0.5, 1 - 0.3 / size[1]),
    )
    title = "How the time of rope grows: tokens, heads and the size of a head"
    image.suptitle(title, color=INK, fontsize=12, y=1 - 0.1 / size[1], va="top")
    image.tight_layout(rect=(0, 0, 1, top), h_pad=0.6)
    image.savefig(
        stream, format=kind, dpi=110, facecolor="white", metadata={"Date": None} if kind == "svg" else None
    )
    plt.close(image)


def _threads(count: int) -> str:
    return f"{count} thread" if count == 1 else f"{count} threads"


def _dtypes(figures: Figures) -> list[str]:
    return [dtype for dtype in DTYPES if any(figure["dtype"] == dtype for figure in figures)]


def _curve(figures: Figures, dtype: str, contestant: str, entry: str) -> tuple[list[int], list[float]]:
    """Return the sizes and the values of one contestant."""
    points = [
        (growth_rows.size_of(figure), figure[entry])
        for figure in figures
        if figure["dtype"] == dtype and figure["contestant"].endswith(f": {contestant}")
    ]
    return [size for size, _ in sorted(points)], [value for _, value in sorted(points)]


def _draw_times(panel: Any, figures: Figures, title: str) -> None:
    for dtype in _dtypes(figures):
        panel.plot(*_curve(figures, dtype, OUT, "median_us"), color=COLOURS[dtype], linewidth=1.6)
        copies = _curve(figures, dtype, growth_rows.FLOOR, "median_us")
        panel.plot(*copies, color=COLOURS[dtype], linewidth=1, linestyle="--")
    panel.set_yscale("log")
    panel.set_title(title, color=INK, fontsize=10, loc="left", parse_math=False)
    _finish(panel)
    panel.tick_params(labelbottom=False)


def _draw_ratios(panel: Any, figures: Figures, symbol: str, mode: str) -> None:
    for dtype in _dtypes(figures):
        sizes, ratios = _curve(figures, dtype, OUT, "ratio")
        shown = [min(max(ratio, LOWEST), HIGHEST) for ratio in ratios]
        panel.plot(sizes, shown, color=COLOURS[dtype], marker="o", markersize=2.8, linewidth=1.2)
    panel.axhline(1, color=INK, linewidth=0.9)
    panel.axhline(EXPLAINED_RATIO, color=INK, linewidth=0.9, linestyle=":")
    panel.set_yscale("log")
    panel.set_ylim(LOWEST, HIGHEST)
    panel.set_yticks([0.5, 1, 1.3, 2, 4, 8, 16], ["0.5", "1", "1.3", "2", "4", "8", "16"])
    panel.set_xlabel(f"{mode} {symbol}", color=INK, fontsize=9)
    _finish(panel)


def _finish(panel: Any) -> None:
    panel.set_xscale("log", base=2)
    panel.minorticks_off()
    panel.tick_params(colors=INK, labelsize=8)
    panel.grid(color="#dddddd", linewidth=0.6)
    panel.set_axisbelow(True)
    for side in ("top", "right"):
        panel.spines[side].set_visible(False)
