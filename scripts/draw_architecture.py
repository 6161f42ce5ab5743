"""Draw docs/images/architecture.svg: the parts of the tree, and the includes and imports between them.

usage: draw_architecture.py [--check]

--check draws nothing and exits with 1 if the picture differs from the tree.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from graphlib import TopologicalSorter
from pathlib import Path
from xml.sax.saxutils import escape

import check_layers

ROOT = Path(__file__).resolve().parent.parent
PICTURE = ROOT / "docs" / "images" / "architecture.svg"


@dataclass(frozen=True)
class Box:
    """A part of the tree: its title, its description, and its files as glob patterns."""

    title: str
    about: str
    files: tuple[str, ...]


# Rows of boxes, from the callers at the top to the parts that others use.
ROWS: tuple[tuple[str, tuple[Box, ...]], ...] = (
    (
        "npu_rope",
        (
            Box(
                "cli, bench, hardware",
                "commands",
                ("npu_rope/cli/*", "npu_rope/bench/*", "npu_rope/hardware/*"),
            ),
            Box("testing", "cases, bounds, peers", ("npu_rope/testing/*",)),
            Box("integrations, compat", "other libraries", ("npu_rope/integrations/*", "npu_rope/compat/*")),
            Box("ops", "functions, schemas, gradients", ("npu_rope/ops/*",)),
        ),
    ),
    (
        "",
        (
            Box("executors", "arrays and tensors, by back end", ("npu_rope/executors/*",)),
            Box(
                "backends, native",
                "what is there; ctypes",
                ("npu_rope/backends.py", "npu_rope/native.py", "npu_rope/simulated_package.py"),
            ),
            Box("reference", "NumPy, float64", ("npu_rope/reference/*",)),
            Box(
                "params, calls",
                "attributes and rules",
                (
                    "npu_rope/*params.py",
                    "npu_rope/*_calls.py",
                    "npu_rope/call_tensors.py",
                    "npu_rope/errors.py",
                    "npu_rope/rope_attributes.py",
                    "npu_rope/values.py",
                ),
            ),
        ),
    ),
    (
        "csrc, op_*",
        (
            Box("csrc/torch", "torch.ops on the CPU", ("csrc/torch/*",)),
            Box("csrc/capi", "the C interface", ("csrc/capi/*",)),
            Box("csrc/npu", "torch.ops on an NPU", ("csrc/npu/*",)),
        ),
    ),
    (
        "",
        (
            Box("csrc/cpu", "SIMD, threads", ("csrc/cpu/*",)),
            Box("csrc/core", "what arguments mean", ("csrc/core/*",)),
            Box("op_host", "definitions and tilings", ("op_host/*",)),
            Box("op_kernel", "AscendC kernels", ("op_kernel/*",)),
        ),
    ),
    (
        "ascend_sim",
        (
            Box("simulator/ascend_sim", "Python: run, kernel, trace", ("simulator/ascend_sim/*",)),
            Box("simulator/cann", "CANN: runtime, aclnn, host", ("simulator/cann/*",)),
            Box("simulator/src", "the cores: order, time", ("simulator/src/*",)),
            Box("simulator/include", "CANN's kernel API", ("simulator/include/*",)),
        ),
    ),
)
# Calls that no include or import shows: from, to, mechanism.
LINKS = (
    ("backends, native", "csrc/capi", "ctypes"),
    ("simulator/ascend_sim", "op_host", "aclnn"),
    ("csrc/npu", "op_host", "aclnn"),
    ("simulator/ascend_sim", "simulator/src", "ctypes"),
)
WIDTH, HEIGHT, GAP_X, GAP_Y, LEFT, TOP = 205, 50, 30, 60, 110, 20
BOXES = [(box, row, column) for row, (_, boxes) in enumerate(ROWS) for column, box in enumerate(boxes)]


def files_of(box: Box) -> Iterator[Path]:
    for pattern in box.files:
        for path in sorted(ROOT.glob(pattern.replace("/*", "/**/*") if pattern.endswith("/*") else pattern)):
            if path.is_file() and not check_layers.BUILD_FOLDERS & set(path.parts):
                yield path


def dependencies_of(path: Path) -> Iterator[str]:
    """Yield the files, relative to the root, that a file includes or imports."""
    text = path.read_text(errors="replace")
    if path.suffix in check_layers.C_SUFFIXES:
        for name in re.findall(r'#\s*include\s*[<"]([^>"]+)[>"]', text):
            # CANN's headers count as external, although simulator/include has headers of these names.
            candidates = (
                ROOT / name,
                ROOT / "simulator" / name,
                ROOT / "op_kernel" / name,
                path.parent / name,
            )
            yield from (str(c.resolve().relative_to(ROOT)) for c in candidates if c.is_file())
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
    box_of = {str(path.relative_to(ROOT)): box.title for box, _, _ in BOXES for path in files_of(box)}
    found = {
        (box.title, box_of[name])
        for box, _, _ in BOXES
        for path in files_of(box)
        for name in dependencies_of(path)
        if box_of.get(name, box.title) != box.title
    }
    below: dict[str, set[str]] = {}
    for title in TopologicalSorter({a: {b for x, b in found if x == a} for a, _ in found}).static_order():
        nearest = {b for a, b in found if a == title}
        below[title] = nearest | {far for near in nearest for far in below[near]}
    return sorted((a, b) for a, b in found if not any(b in below[c] for x, c in found if x == a))


def place(row: int, column: int) -> tuple[int, int]:
    return LEFT + column * (WIDTH + GAP_X), TOP + row * (HEIGHT + GAP_Y)


def curve(start: tuple[int, int], end: tuple[int, int], style: str, rows: int) -> str:
    """Return the line to a box that is ``rows`` rows below; 0: in the same row."""
    (x1, y1), (x2, y2) = start, end
    half = GAP_Y // 2
    if rows <= 1:
        bend = GAP_Y * 0.5 if rows == 0 else GAP_Y * 0.8
        path = f"M{x1},{y1} C{x1},{y1 + bend:g} {x2},{y2 + (bend if rows == 0 else -bend):g} {x2},{y2}"
    else:  # between the columns
        column = min(x1, x2) + WIDTH // 2 + GAP_X // 2
        path = f"M{x1},{y1} C{x1},{y1 + half} {column},{y1} {column},{y1 + half} L{column},{y2 - half}"
        path += f" C{column},{y2} {x2},{y2 - half} {x2},{y2}"
    return f'<path d="{path}" class="{style}" marker-end="url(#tip)"/>'


def picture() -> str:
    """Return the picture as SVG."""
    at = {box.title: (row, column) for box, row, column in BOXES}
    width = LEFT + 4 * (WIDTH + GAP_X)
    height = TOP + len(ROWS) * (HEIGHT + GAP_Y)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}">',
        "<style>text{font:13px sans-serif;fill:#1a1a1a}.about{font-size:11px;fill:#555}"
        ".group{font-weight:bold;fill:#0b3c8c}rect{fill:#f4f6fa;stroke:#0b3c8c}"
        "path{fill:none;stroke:#9aa7bd}.link{stroke:#d9801a;stroke-dasharray:5 3}"
        ".how{font-size:10px;fill:#b0630a}</style>",
        '<rect width="100%" height="100%" style="fill:#fff;stroke:none"/>',
        '<marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0,0 8,4 0,8z" style="fill:#7a879d;stroke:none"/></marker>',
    ]
    drawn = [(a, b, "") for a, b in edges()] + list(LINKS)
    for a, b, how in drawn:
        (row, column), (row_b, column_b) = at[a], at[b]
        (x1, y1), (x2, y2) = place(row, column), place(row_b, column_b)
        shift = 14 * (column_b - column)
        start = (x1 + WIDTH // 2 + shift, y1 + HEIGHT)
        end = (x2 + WIDTH // 2 - shift, y2 + (HEIGHT if row == row_b else 0))
        parts.append(curve(start, end, "link" if how else "see", row_b - row))
        if how:
            x, y = (start[0] + end[0]) // 2 + 4, (start[1] + end[1]) // 2
            parts.append(f'<text class="how" x="{x}" y="{y}">{how}</text>')
    for row, (group, boxes) in enumerate(ROWS):
        _, y = place(row, 0)
        parts.append(
            f'<text class="group" x="8" y="{y + HEIGHT // 2 + 4}">{escape(group)}</text>' if group else ""
        )
        for column, box in enumerate(boxes):
            x, y = place(row, column)
            parts.append(f'<rect x="{x}" y="{y}" width="{WIDTH}" height="{HEIGHT}" rx="6"/>')
            parts.append(f'<text x="{x + 10}" y="{y + 22}">{escape(box.title)}</text>')
            parts.append(f'<text class="about" x="{x + 10}" y="{y + 40}">{escape(box.about)}</text>')
    return "\n".join(part for part in parts if part) + "\n</svg>\n"


def main() -> int:
    if sys.argv[1:] not in ([], ["--check"]):
        print(__doc__, file=sys.stderr)
        return 2
    drawn = picture()
    if not sys.argv[1:]:
        PICTURE.write_text(drawn)
        return 0
    if not PICTURE.is_file() or PICTURE.read_text() != drawn:
        print(
            f"{PICTURE.relative_to(ROOT)} differs from the tree: run scripts/draw_architecture.py",
            file=sys.stderr,
        )
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
