"""Draw docs/images/rope_*.png: the pairs of lanes of a head, and the position that rotates each pair.

RopeParams gives the pairs, axes and powers (pair_lanes, axes, exponents), so that the pictures agree with the
operator.

usage: draw_rope_modes.py [--folder DIR]
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.patches import Arc, FancyBboxPatch, Rectangle

from npu_rope import RopeParams

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "images"
INK, GREY, PALE = "#1a1a1a", "#8a8a8a", "#ececec"
AXES = (
    ("t", "time", "#0b3c8c"),
    ("h", "height", "#d9801a"),
    ("w", "width", "#2f8f5b"),
    ("e", "extra", "#7b4fa3"),
)
INCHES_PER_LANE = 0.42
DPI = 130


@dataclass(frozen=True)
class Head:
    """One head, which a picture shows as a strip of lanes or as a row of pairs."""

    title: str
    lanes: int
    params: RopeParams

    @property
    def note(self) -> str:
        """The Python call that makes the parameters."""
        params = self.params
        options = f", sections={params.sections}" if params.rope_mode.has_sections else ""
        options += f", n_offs={params.n_offs}" if params.n_offs else ""
        return f"RopeParams({params.n_dims}, '{params.rope_mode.name.lower()}'{options})"


def head(
    lanes: int, title: str, n_dims: int, mode: str, sections: tuple[int, ...] = (0, 0, 0, 0), n_offs: int = 0
) -> Head:
    return Head(title, lanes, RopeParams(n_dims, mode, sections=sections, n_offs=n_offs))


PAIRS = (
    head(16, "normal: neighbours form pairs", 16, "normal"),
    head(16, "neox: lanes of the two halves form pairs", 16, "neox"),
    head(16, "normal in a window: the other lanes are copied", 8, "normal", n_offs=4),
    head(16, "neox in a window: the halves of the window", 8, "neox", n_offs=4),
)
SECTIONS = (
    head(24, "mrope: lanes as in neox, sections in order", 24, "mrope", (4, 4, 4, 0)),
    head(24, "imrope: lanes as in neox, the axes alternate", 24, "imrope", (4, 4, 4, 0)),
    head(
        24, "vision: n_dims = D/2 pairs; the powers start again with each section", 12, "vision", (6, 6, 0, 0)
    ),
    head(24, "mrope in a window: the other lanes are copied", 12, "mrope", (2, 2, 2, 0), 8),
)
_EXTRA_REPLACES = "from pair 3*20 on, e replaces h and w"
MODELS = (
    head(128, "mrope (16, 24, 24, 0), n_dims 128: Qwen2-VL", 128, "mrope", (16, 24, 24, 0)),
    head(
        128,
        f"imrope (24, 20, 20, 0), n_dims 128: Qwen3-VL; {_EXTRA_REPLACES}",
        128,
        "imrope",
        (24, 20, 20, 0),
    ),
    head(
        80,
        "vision (20, 20, 0, 0), n_dims 40 of a head of 80: Qwen2-VL's image encoder",
        40,
        "vision",
        (20, 20, 0, 0),
    ),
)
_EMPTY = "vision {0}: the empty {1} begins at the same pair as {2}; only the powers of {1} start again there"
EDGES = (
    head(48, "mrope (6, 0, 0, 0): one axis rotates every pair, as in neox", 48, "mrope", (6, 0, 0, 0)),
    head(
        48,
        "mrope (4, 3, 3, 0) over 24 pairs: sections that do not cover them repeat",
        48,
        "mrope",
        (4, 3, 3, 0),
    ),
    head(
        48,
        "mrope (16, 16, 16, 0) over 24 pairs: sections beyond them rotate nothing",
        48,
        "mrope",
        (16, 16, 16, 0),
    ),
    head(
        48, "imrope (8, 2, 6, 0): after the last pair of an axis, e replaces it", 48, "imrope", (8, 2, 6, 0)
    ),
    head(
        48,
        "vision (4, 4, 4, 0) over 24 pairs: repeated, and the powers start again each time",
        24,
        "vision",
        (4, 4, 4, 0),
    ),
    head(48, _EMPTY.format("(10, 0, 10, 0)", "h", "w"), 24, "vision", (10, 0, 10, 0)),
    head(48, _EMPTY.format("(0, 8, 4, 0)", "t", "h"), 24, "vision", (0, 8, 4, 0)),
)


def shade(pair: int, pairs: int) -> Any:
    """Return a dark colour for the fastest pair, a light one for the slowest."""
    return matplotlib.colormaps["Blues"](0.92 - 0.62 * pair / max(1, pairs - 1))


def colour_of(params: RopeParams, pair: int) -> Any:
    return AXES[params.axes()[pair]][2] if params.rope_mode.has_sections else shade(pair, params.pairs)


def ink_on(colour: Any) -> str:
    red, green, blue, _ = matplotlib.colors.to_rgba(colour)
    return "white" if 0.3 * red + 0.59 * green + 0.11 * blue < 0.55 else INK


def box(
    axis: Any, x: float, y: float, colour: Any, text: str = "", edge: str = "white", size: float = 8
) -> None:
    axis.add_patch(Rectangle((x, y), 1, 1, facecolor=colour, edgecolor=edge, linewidth=1))
    if text:
        axis.text(x + 0.5, y + 0.48, text, ha="center", va="center", fontsize=size, color=ink_on(colour))


def label(axis: Any, x: float, y: float, text: str, **options: Any) -> None:
    axis.text(x, y, text, **{"fontsize": 8, "color": INK, "ha": "center", "va": "center", **options})


def draw_strip(axis: Any, strip: Head) -> None:
    """Draw lanes as boxes, an arc from a pair's first lane to its second, and the pair's number below."""
    params = strip.params
    first, second = (range(*lanes.indices(strip.lanes)) for lanes in params.pair_lanes())
    pair_by_lane = {lane: i for lanes in (first, second) for i, lane in enumerate(lanes)}
    for lane in range(strip.lanes):
        rotates = lane in pair_by_lane
        box(axis, lane, 0, colour_of(params, pair_by_lane[lane]) if rotates else PALE, f"x{lane}")
        label(axis, lane + 0.5, -0.4, str(pair_by_lane[lane]) if rotates else "·")
        if params.rope_mode.has_sections and rotates:
            letter, _, colour = AXES[params.axes()[pair_by_lane[lane]]]
            label(axis, lane + 0.5, -0.95, letter, color=colour, fontweight="bold", fontsize=9)
            label(axis, lane + 0.5, -1.5, str(params.exponents()[pair_by_lane[lane]]))
    height = arc_height(params)
    for pair, (first_lane, second_lane) in enumerate(zip(first, second, strict=True)):
        middle, width = (first_lane + second_lane + 1) / 2, second_lane - first_lane
        arc = Arc(
            (middle, 1.04),
            width,
            2 * height,
            theta1=0,
            theta2=180,
            color=colour_of(params, pair),
            linewidth=1.5,
        )
        axis.add_patch(arc)
    left = -0.25
    label(axis, left, -0.4, "pair", ha="right", color=GREY)
    if params.rope_mode.has_sections:
        label(axis, left, -0.95, "rotated by", ha="right", color=GREY)
        label(axis, left, -1.5, "power", ha="right", color=GREY)
    axis.text(0, 1.25 + height, strip.title, fontsize=10.5, color=INK, fontweight="bold", va="bottom")
    axis.text(
        strip.lanes,
        1.25 + height,
        strip.note,
        fontsize=8,
        color=GREY,
        va="bottom",
        ha="right",
        family="monospace",
    )
    finish(axis, strip.lanes, *vertical_range(params))


def arc_height(params: RopeParams) -> float:
    first, second = params.pair_lanes()
    return 0.7 if second.start - first.start == 1 else 2.0


def vertical_range(params: RopeParams) -> tuple[float, float]:
    """Return the lowest and the highest point of a strip, in lanes."""
    return (-1.9 if params.rope_mode.has_sections else -0.9), 2.2 + arc_height(params)


def finish(axis: Any, lanes: float, bottom: float, top: float) -> None:
    axis.set_xlim(-2.6, lanes + 0.3)
    axis.set_ylim(bottom, top)
    axis.set_aspect("equal")
    axis.axis("off")


def draw_row(axis: Any, row: Head, widest: int, height: float, numbered: bool) -> None:
    """Draw each pair as a box with the letter of its axis, and below it the power of theta_scale in its
    frequency."""
    params = row.params
    exponents = params.exponents()
    for pair in range(params.pairs):
        letter, _, colour = AXES[params.axes()[pair]]
        box(axis, pair, 0, colour, letter, size=8 if widest < 40 else 7)
        if numbered or pair % 10 == 0 or exponents[pair] == 0:
            label(axis, pair + 0.5, -0.45, str(exponents[pair]), fontsize=7, color=INK if numbered else GREY)
    label(axis, -0.25, -0.45, "power", ha="right", color=GREY, fontsize=7)
    total = sum(params.sections)
    for start in range(total, params.pairs, total):
        axis.plot([start, start], [-0.1, 1.25], color=INK, linewidth=1.6)
    axis.text(0, 1.35, row.title, fontsize=9.5, color=INK, va="bottom")
    finish(axis, widest, -0.9, height - 0.9)


def legend(axis: Any, text: str) -> None:
    """Draw the names of the four axes in a line at the top."""
    axis.axis("off")
    axis.set_xlim(0, 100)
    axis.set_ylim(0, 1)
    for i, (letter, name, colour) in enumerate(AXES):
        left = 1 + 13 * i
        axis.add_patch(
            FancyBboxPatch(
                (left, 0.25), 2.2, 0.5, boxstyle="square,pad=0", facecolor=colour, edgecolor="none"
            )
        )
        label(axis, left + 1.1, 0.49, letter, color="white")
        label(axis, left + 3, 0.49, name, ha="left", fontsize=9)
    label(axis, 54, 0.49, text, ha="left", fontsize=9, color=GREY)


def save(canvas: Any, path: Path) -> None:
    # The file does not contain matplotlib's version, so that it is the same with each version.
    canvas.savefig(path, dpi=DPI, facecolor="white", metadata={"Software": None})
    plt.close(canvas)
    print(path)


def panels(heights: list[float], width: float) -> tuple[Any, Any]:
    canvas, axes = plt.subplots(
        len(heights),
        1,
        figsize=(width, sum(heights)),
        height_ratios=heights,
        squeeze=False,
        layout="constrained",
    )
    return canvas, axes[:, 0]


def draw_strips(path: Path, strips: tuple[Head, ...], legend_text: str) -> None:
    sectioned = strips[0].params.rope_mode.has_sections
    width = INCHES_PER_LANE * (strips[0].lanes + 3)
    heights = [
        INCHES_PER_LANE * (top - bottom) for bottom, top in (vertical_range(strip.params) for strip in strips)
    ]
    canvas, axes = panels([0.3, *heights], width)
    if sectioned:
        legend(axes[0], legend_text)
    else:
        axes[0].axis("off")
        axes[0].text(0.01, 0.4, legend_text, fontsize=9, color=GREY, va="center", transform=axes[0].transAxes)
    for axis, strip in zip(axes[1:], strips, strict=True):
        draw_strip(axis, strip)
    save(canvas, path)


def draw_rows(path: Path, rows: tuple[Head, ...], legend_text: str, inches_per_pair: float) -> None:
    widest = max(row.params.pairs for row in rows)
    height = 2.9 if inches_per_pair >= 0.3 else 3.7
    canvas, axes = panels([0.3, *[inches_per_pair * height] * len(rows)], inches_per_pair * (widest + 3))
    legend(axes[0], legend_text)
    for axis, row in zip(axes[1:], rows, strict=True):
        draw_row(axis, row, widest, height, numbered=widest < 40)
    save(canvas, path)


def main() -> None:
    parser = argparse.ArgumentParser(description="Draw docs/images/rope_*.png.")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where to write (default: docs/images)")
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    draw_strips(
        folder / "rope_pairs.png",
        PAIRS,
        "an arc joins the two lanes of a pair; strong blue rotates fast, weak blue slowly, grey not at all",
    )
    draw_strips(folder / "rope_sections.png", SECTIONS, "the letter: the position that rotates the pair")
    draw_rows(folder / "rope_models.png", MODELS, "one box for each pair", 0.2)
    draw_rows(
        folder / "rope_section_edges.png",
        EDGES,
        "one box for each pair; a line where the sections repeat",
        0.4,
    )


if __name__ == "__main__":
    main()
