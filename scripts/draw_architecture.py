"""Draw docs/images/architecture.svg: the parts of the tree, and the includes and imports between them.

usage: draw_architecture.py [--check]

--check draws nothing and exits with 1 if the picture differs from the tree.
"""

from __future__ import annotations

import ast
import math
import re
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from graphlib import TopologicalSorter
from itertools import pairwise
from pathlib import Path

import check_layers
from pictures import TIP, draw_or_check

ROOT = Path(__file__).resolve().parent.parent
PICTURE = ROOT / "docs" / "images" / "architecture.svg"


@dataclass(frozen=True)
class Box:
    """A part of the tree: its place, its title, its description, and its files as glob patterns."""

    row: int
    column: int
    title: str
    about: str
    files: str


# Boxes with callers are in the upper rows; boxes that others use are in the lower rows.
BOXES = (
    Box(0, 0, "testing", "cases, bounds, peers", "npu_rope/testing/*"),
    Box(0, 1, "ops", "functions, schemas, gradients", "npu_rope/ops/*"),
    Box(0, 2, "integrations, compat", "other libraries", "npu_rope/integrations/* npu_rope/compat/*"),
    Box(0, 3, "cli, bench, hardware", "commands", "npu_rope/cli/* npu_rope/bench/* npu_rope/hardware/*"),
    Box(1, 0, "reference", "NumPy, float64", "npu_rope/reference/*"),
    Box(1, 1, "executors", "arrays and tensors, by back end", "npu_rope/executors/*"),
    Box(
        *(1, 2, "backends, native", "list of back ends; ctypes"),
        "npu_rope/backends.py npu_rope/native.py npu_rope/simulated_package.py",
    ),
    Box(
        *(1, 3, "params, calls", "attributes and rules"),
        "npu_rope/*params.py npu_rope/*_calls.py npu_rope/call_tensors.py npu_rope/errors.py"
        " npu_rope/rope_attributes.py npu_rope/values.py",
    ),
    Box(2, 0, "csrc/torch", "torch.ops on the CPU", "csrc/torch/*"),
    Box(2, 1, "csrc/capi", "the C interface", "csrc/capi/*"),
    Box(2, 2, "csrc/npu", "torch.ops on an NPU", "csrc/npu/*"),
    Box(2, 3, "simulator/ascend_sim", "Python: run, kernel, trace", "simulator/ascend_sim/*"),
    Box(3, 1, "csrc/cpu", "SIMD, threads", "csrc/cpu/*"),
    Box(3, 3, "simulator/cann", "CANN: runtime, aclnn, host", "simulator/cann/*"),
    Box(4, 1, "csrc/core", "rules, frequencies, types", "csrc/core/*"),
    Box(4, 2, "op_host", "definitions and tilings", "op_host/*"),
    Box(4, 3, "simulator/src", "the cores: order, time", "simulator/src/*"),
    Box(5, 2, "op_kernel", "AscendC kernels", "op_kernel/*"),
    Box(5, 3, "simulator/include", "CANN's kernel API", "simulator/include/*"),
)
# Frames around boxes: the name, and the beginnings of the boxes' files.
FRAMES = (("npu_rope", ("npu_rope/",)), ("csrc, op_*", ("csrc/", "op_")), ("ascend_sim", ("simulator/",)))
# Calls that no include or import shows: from, to, label.
CALLS = (
    ("ops", "csrc/torch", "cpu: torch.ops"),
    ("executors", "csrc/npu", "npu: torch.ops"),
    ("ops", "csrc/npu", "npu: torch.ops"),
    ("backends, native", "csrc/capi", "cpu, rules: ctypes"),
    ("csrc/torch", "csrc/capi", "C API"),
    ("simulator/ascend_sim", "simulator/cann", "sim: aclnn"),
    ("csrc/npu", "simulator/cann", "npu: aclnn"),
    ("simulator/ascend_sim", "simulator/src", "ctypes"),
    ("simulator/cann", "op_host", "definitions, tilings"),
    ("simulator/src", "op_kernel", "launches"),
    ("op_kernel", "simulator/include", "AscendC"),
)
WIDTH, HEIGHT, GAP_X, GAP_Y, LEFT, TOP = 200, 48, 64, 70, 36, 46
PORT, TRACK = 16, 11  # distance between the arrows of a box, and between parallel lines
BEND = 6  # radius of a bend
STYLE = (
    "text{font:13px sans-serif;fill:#1a1a1a}.about{font-size:11px;fill:#555}.how{font-size:11px;fill:#a35a05}"
    ".group{font-weight:bold;fill:#0b3c8c;text-anchor:end}.page{fill:#fff}.frame{fill:#f1f4fa}"
    ".box{fill:#fff;stroke:#0b3c8c}path{fill:none;stroke:#8794ad}"
    ".call{stroke:#d9801a;stroke-dasharray:5 3}.tip{fill:#6b7790;stroke:none}"
    "@media(prefers-color-scheme:dark){text{fill:#e6e9ef}.about{fill:#a9b1c0}.how{fill:#f0b060}"
    ".group{fill:#8fb4ff}.page{fill:#0d1117}.frame{fill:#151b25}.box{fill:#1f2937;stroke:#5f86d0}"
    "path{stroke:#7c889e}.call{stroke:#e08f2e}.tip{fill:#a3aec2;stroke:none}}"
)
Point = tuple[float, float]
Rectangle = tuple[float, float, float, float]  # left, top, right, bottom


def files_of(box: Box) -> Iterator[Path]:
    for pattern in box.files.split():
        for path in sorted(ROOT.glob(pattern.replace("/*", "/**/*") if pattern.endswith("/*") else pattern)):
            if path.is_file() and not check_layers.BUILD_FOLDERS & set(path.parts):
                yield path


def dependencies_of(path: Path) -> Iterator[str]:
    """Yield the files, relative to the root, that a file includes or imports."""
    text = path.read_text(errors="replace")
    if path.suffix in check_layers.C_SUFFIXES:
        for name in re.findall(r'#\s*include\s*[<"]([^>"]+)[>"]', text):
            # CANN's headers count as external, although simulator/include has headers with these names.
            candidates = (
                ROOT / name,
                ROOT / "simulator" / name,
                ROOT / "op_kernel" / name,
                path.parent / name,
            )
            yield from (str(file.resolve().relative_to(ROOT)) for file in candidates if file.is_file())
    elif path.suffix == ".py":
        base = ROOT / "simulator" if path.is_relative_to(ROOT / "simulator") else ROOT
        for _, name in check_layers.imported(ast.parse(text), path.relative_to(base).as_posix()):
            folder = ROOT / "simulator" if name.startswith("ascend_sim") else ROOT
            parts = name.split(".")
            while parts:
                module = folder.joinpath(*parts)
                if module.with_suffix(".py").is_file() or (module / "__init__.py").is_file():
                    found = module.with_suffix(".py")
                    yield str((found if found.is_file() else module / "__init__.py").relative_to(ROOT))
                    break
                parts.pop()


def edges() -> list[tuple[str, str]]:
    """Return the edges (from, to) by the boxes' titles, without those that other edges imply."""
    box_of = {str(path.relative_to(ROOT)): box.title for box in BOXES for path in files_of(box)}
    found = {
        (box.title, box_of[name])
        for box in BOXES
        for path in files_of(box)
        for name in dependencies_of(path)
        if box_of.get(name, box.title) != box.title
    }
    direct: dict[str, set[str]] = {user: set() for user, _ in found}
    for user, used in found:
        direct[user].add(used)
    reachable: dict[str, set[str]] = {}
    for title in TopologicalSorter(direct).static_order():
        uses = direct.get(title, set())
        reachable[title] = uses | {indirect for used in uses for indirect in reachable[used]}
    return sorted(
        (user, used) for user, used in found if not any(used in reachable[other] for other in direct[user])
    )


def corner(row: int, column: int) -> tuple[int, int]:
    return LEFT + column * (WIDTH + GAP_X), TOP + row * (HEIGHT + GAP_Y)


def gaps(upper: Box, lower: Box) -> tuple[str, ...]:
    """Return the gaps between boxes through which a line runs from ``upper`` to ``lower``.

    "y3" is the gap above row 3, "x3" the gap to the left of column 3.
    """
    taken = {box.column for box in BOXES if upper.row < box.row < lower.row}
    if upper.row == lower.row:
        return () if abs(upper.column - lower.column) == 1 else (f"y{upper.row}",)
    if upper.column not in taken:
        return () if upper.column == lower.column else (f"y{lower.row}",)
    if lower.column not in taken:
        return (f"y{upper.row + 1}",)
    return f"y{upper.row + 1}", f"x{upper.column + (lower.column >= upper.column)}", f"y{lower.row}"


def lines(pairs: list[tuple[str, str]]) -> Iterator[list[Point]]:
    """Yield the corners of the line of each pair of boxes."""
    boxes = {box.title: box for box in BOXES}
    ends = [sorted((boxes[start], boxes[end]), key=lambda box: box.row) for start, end in pairs]
    ports: Counter[tuple[Box, bool, int]] = Counter()
    tracks: dict[str, list[list[Point]]] = {}  # the spans of the lines in each track of a gap

    def port(box: Box, other: Box, is_straight: bool) -> Point:
        """Return the next free point at a box's side. Points at upper and lower sides differ in x."""
        (x, y), below = corner(box.row, box.column), other.row > box.row
        if is_straight and other.row == box.row:
            return x + WIDTH * (other.column > box.column), y + HEIGHT / 2
        direction = 0 if is_straight else 1 if other.column >= box.column else -1
        ports[box, below, direction] += 1
        distance = PORT * (ports[box, below, direction] + 0.5 * (not below))
        return x + WIDTH / 2 + direction * distance, y + HEIGHT * below

    def track(gap: str, start: float, end: float) -> float:
        """Return the coordinate of the first track of a gap that is free from start to end."""
        low, high = min(start, end) - TRACK, max(start, end) + TRACK
        spans = tracks.setdefault(gap, [])
        free = (n for n, span in enumerate(spans) if all(high < x or y < low for x, y in span))
        number = next(free, len(spans))
        if number == len(spans):
            spans.append([])
        spans[number].append((low, high))
        x, y = corner(int(gap[1:]), int(gap[1:]))
        return y - 24 - TRACK * number if gap[0] == "y" else x - GAP_X + 12 + TRACK * number

    starts = [port(upper, lower, not gaps(upper, lower)) for upper, lower in ends]
    stops = [port(lower, upper, not gaps(upper, lower)) for upper, lower in reversed(ends)][::-1]
    for pair, (upper, lower), (x1, y1), (x2, y2) in zip(pairs, ends, starts, stops, strict=True):
        line, via = [(x1, y1), (x2, y2)], gaps(upper, lower)
        x = track(via[1], y1, y2) if len(via) > 1 else x2
        if via:
            y = track(via[0], x1, x)
            line[1:1] = [(x1, y), (x, y)]
        if len(via) > 1:
            y = track(via[2], x, x2)
            line[3:3] = [(x, y), (x2, y)]
        yield line if pair[0] == upper.title else line[::-1]


def path_of(line: list[Point]) -> str:
    """Return a line with round bends as a path of SVG."""

    def towards(start: Point, end: Point) -> Point:
        part = min(BEND / math.dist(start, end), 0.5)
        return start[0] + part * (end[0] - start[0]), start[1] + part * (end[1] - start[1])

    path = "M{:g},{:g}".format(*line[0])
    for before, bend, after in zip(line, line[1:], line[2:], strict=False):
        points = *towards(bend, before), *bend, *towards(bend, after)
        path += " L{:g},{:g} Q{:g},{:g} {:g},{:g}".format(*points)
    return path + " L{:g},{:g}".format(*line[-1])


def overlap(one: Rectangle, other: Rectangle) -> bool:
    return other[0] < one[2] and one[0] < other[2] and other[1] < one[3] and one[1] < other[3]


def label_beside(line: list[Point], text: str, taken: list[Rectangle]) -> Rectangle:
    """Return the rectangle of a line's label, beside the line and with as few overlaps as possible."""
    width, height, found = 6.2 * len(text), 12, []
    # Horizontal pieces first, and long ones.
    for (x1, y1), (x2, y2) in sorted(
        pairwise(line), key=lambda piece: (piece[0][1] != piece[1][1], -math.dist(*piece))
    ):
        for part in (0.5, 0.4, 0.6, 0.3, 0.7, 0.2, 0.8):
            x, y = x1 + part * (x2 - x1), y1 + part * (y2 - y1)
            flat = [(x - width / 2, y - height - 2), (x - width / 2, y + 2)]
            for left, top in flat if y1 == y2 else [(x + 5, y - height / 2), (x - 5 - width, y - height / 2)]:
                place = (left, top, left + width, top + height)
                found.append((sum(overlap(place, other) for other in taken), place))
    return min(found, key=lambda place: place[0])[1]


def rectangle(style: str, x: float, y: float, width: float, height: float) -> str:
    return f'<rect class="{style}" x="{x}" y="{y}" width="{width}" height="{height}" rx="6"/>'


def picture() -> str:
    """Return the picture as SVG."""
    x, y = corner(1 + BOXES[-1].row, 1 + BOXES[-1].column)
    width, height = x - GAP_X + LEFT, y - GAP_Y + 32
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}">',
        f"<style>{STYLE}</style>",
        rectangle("page", 0, 0, width, height),
        TIP,
    ]
    texts, taken = [], []
    for name, files in FRAMES:
        inside = (corner(box.row, box.column) for box in BOXES if box.files.startswith(files))
        xs, ys = zip(*inside, strict=True)
        x, y, right, bottom = min(xs), min(ys), max(xs) + WIDTH, max(ys) + HEIGHT
        parts.append(rectangle("frame", x - 20, y - 28, right - x + 40, bottom - y + 42))
        texts.append(f'<text class="group" x="{right}" y="{y - 8}">{name}</text>')
        taken.append((right - 8 * len(name), y - 19, right, y - 4))
    for box in BOXES:
        x, y = corner(box.row, box.column)
        parts.append(rectangle("box", x, y, WIDTH, HEIGHT))
        texts.append(f'<text x="{x + 10}" y="{y + 20}">{box.title}</text>')
        texts.append(f'<text class="about" x="{x + 10}" y="{y + 38}">{box.about}</text>')
        taken.append((x, y, x + WIDTH, y + HEIGHT))
    drawn = [(user, used, "") for user, used in edges()] + list(CALLS)
    routes = list(lines([(start, end) for start, end, _ in drawn]))
    for line, (_, _, label) in zip(routes, drawn, strict=True):
        style = "call" if label else "use"
        parts.append(f'<path class="{style}" d="{path_of(line)}" marker-end="url(#tip)"/>')
        for (x1, y1), (x2, y2) in pairwise(line):
            taken.append((min(x1, x2) - 3, min(y1, y2) - 1, max(x1, x2) + 3, max(y1, y2) + 1))
    for line, (_, _, label) in zip(routes, drawn, strict=True):
        if label:
            taken.append(label_beside(line, label, taken))
            texts.append(f'<text class="how" x="{taken[-1][0]:g}" y="{taken[-1][3] - 2:g}">{label}</text>')
    return "\n".join(parts + texts) + "\n</svg>\n"


if __name__ == "__main__":
    sys.exit(draw_or_check(__doc__, picture, PICTURE, "the tree"))
