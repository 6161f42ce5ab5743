"""Draw docs/images/simulator_checks.svg: the parts of a simulated core, and what its checks catch in each.

The rules are those of simulator/docs/kernels.md.

usage: draw_simulator_checks.py [--check]

--check draws nothing and exits with 1 if the picture differs from this script, or a rule does not exist.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from pictures import ROOT, TIP, draw_or_check, rectangle, start, text

PICTURE = ROOT / "docs" / "images" / "simulator_checks.svg"
RULES = ROOT / "simulator" / "docs" / "kernels.md"
WIDTH, HEIGHT = 1040, 640
LINE = 21  # the distance of the lines of the list
STYLE = (
    "text{font:13px sans-serif;fill:#1a1a1a}.title{font-size:15px;font-weight:bold}.head{font-weight:bold}"
    ".note{fill:#555}.rule{font:11px monospace;fill:#a0300a}.middle{text-anchor:middle}.page{fill:#fff}"
    ".frame{fill:#f1f4fa;stroke:#b5bccb}.memory{fill:#fff;stroke:#0b3c8c}.pipe{fill:#0b3c8c}"
    ".on{fill:#fff;font-weight:bold}"
    ".tile{fill:#cfdcf5;stroke:#0b3c8c}.guard{fill:#f3c9a4}path{fill:none;stroke:#44516b;stroke-width:2}"
    ".tip{fill:#44516b;stroke:none}.mark{fill:#a0300a}"
    ".number{font:bold 11px sans-serif;fill:#fff;text-anchor:middle}"
    "@media(prefers-color-scheme:dark){text{fill:#e6e9ef}.note{fill:#a9b1c0}.rule{fill:#ffb38a}.page{fill:#0d1117}"
    ".frame{fill:#151b25;stroke:#4a5468}.memory{fill:#0d1117;stroke:#8fb4ff}.pipe{fill:#8fb4ff}.on{fill:#0d1117}"
    ".tile{fill:#2b3c5e;stroke:#8fb4ff}.guard{fill:#6b4420}path{stroke:#a9b1c0}.tip{fill:#a9b1c0}.mark{fill:#ffb38a}"
    ".number{fill:#0d1117}}"
)


@dataclass(frozen=True)
class Check:
    """What is checked at a numbered place: the mark's place, the text, and the (fault, rule) pairs."""

    x: float
    y: float
    title: str
    faults: tuple[tuple[str, str], ...]


CHECKS = (
    Check(
        *(88, 98, "Global memory"),
        (
            ("a copy leaves its tensor", "BOUNDS-03"),
            ("a write into a guard zone", "BOUNDS-04"),
            ("an input is written", "GM-01"),
            ("a byte of an output is never written", "INIT-03"),
        ),
    ),
    Check(
        *(230, 184, "Copies: MTE2, MTE3"),
        (
            ("an address that is not aligned", "ALIGN-01"),
            ("a size that is no multiple of 32 bytes", "COUNT-01"),
            ("two copies to the same bytes, no barrier", "HAZARD-04"),
        ),
    ),
    Check(
        *(404, 176, "Order between pipes"),
        (
            ("V reads before the copy has arrived", "HAZARD-01"),
            ("a flag is waited for, but never set", "EVENT-02"),
            ("a queue without a free buffer", "QUEUE-03"),
            ("a freed tensor is used", "QUEUE-06"),
        ),
    ),
    Check(
        *(490, 112, "Vector instructions: V"),
        (
            ("two on the same bytes, no barrier", "HAZARD-02"),
            ("a mask selects too many lanes", "MASK-01"),
            ("source and destination overlap in part", "OVERLAP-01"),
            ("a type or a round mode that the chip lacks", "ROUND-01"),
        ),
    ),
    Check(
        *(560, 300, "Unified buffer: UB"),
        (
            ("bytes outside the tensor or its buffer", "BOUNDS-01"),
            ("bytes that nothing has written", "INIT-01"),
            ("bytes that a longer copy left", "INIT-04"),
            ("buffers larger than UB", "BUFFER-02"),
        ),
    ),
    Check(
        *(888, 300, "Between cores"),
        (
            ("two cores write the same bytes", "CORE-01"),
            ("a core reads what another one writes", "CORE-02"),
            ("the result depends on the cores' order", "CORE-04"),
            ("a core waits for a signal that never comes", "SYNC-01"),
        ),
    ),
)
COLUMNS, COLUMN, FIRST, ROW = 3, 340, 396, 118  # the list below the picture


def known_rules() -> set[str]:
    return set(re.findall(r"^\| (SIM-\w+-\d+) \|", RULES.read_text(), re.MULTILINE))


def arrow(*points: tuple[float, float]) -> str:
    return '<path marker-end="url(#tip)" d="M' + " L".join(f"{x:g},{y:g}" for x, y in points) + '"/>'


def pipe(x: float, y: float, name: str, about: str) -> Iterator[str]:
    yield rectangle("pipe", x, y, 84, 34)
    yield text("on middle", x + 42, y + 22, name)
    yield text("note middle", x + 42, y - 8, about)


def mark(number: int, x: float, y: float) -> Iterator[str]:
    yield f'<circle class="mark" cx="{x:g}" cy="{y:g}" r="10"/>'
    yield text("number", x, y + 4, str(number))


def core() -> Iterator[str]:
    """Yield global memory, a core with its pipes and its buffer, and the frames of further cores."""
    yield rectangle("memory", 24, 84, 128, 232)
    yield text("head middle", 88, 128, "GM")
    for y, name in ((146, "x"), (230, "y")):
        yield rectangle("guard", 36, y - 8, 104, 72)
        yield rectangle("tile", 36, y, 104, 56)
        yield text("middle", 88, y + 33, f"tensor {name}")
    for shift in (16, 8, 0):
        yield rectangle("frame", 200 + shift, 72 + shift, 672, 268)
    yield text("head", 216, 92, "a core, and the others")
    yield from pipe(236, 196, "MTE2", "copies in")
    yield from pipe(500, 124, "V", "computes")
    yield from pipe(764, 196, "MTE3", "copies out")
    yield rectangle("memory", 346, 196, 392, 128)
    yield text("head", 358, 314, "UB")
    for x, name in ((366, "queue VECIN"), (586, "queue VECOUT")):
        yield rectangle("tile", x, 212, 64, 34)
        yield rectangle("tile", x + 68, 212, 64, 34)
        yield text("note middle", x + 66, 264, name)
    yield arrow((140, 174), (180, 174), (180, 213), (234, 213))
    yield arrow((320, 213), (364, 213))
    yield arrow((432, 210), (432, 141), (498, 141))
    yield arrow((584, 141), (652, 141), (652, 210))
    yield arrow((718, 213), (762, 213))
    yield arrow((806, 230), (806, 332), (180, 332), (180, 258), (142, 258))


def picture() -> str:
    """Return the picture as SVG."""
    unknown = {f"SIM-{rule}" for check in CHECKS for _, rule in check.faults} - known_rules()
    if unknown:
        raise SystemExit(
            f"{RULES.relative_to(ROOT)} must have the picture's rules but lacks {sorted(unknown)}"
        )
    parts = [
        *start(STYLE, WIDTH, HEIGHT),
        TIP,
        text("title", 16, 30, "What the simulator checks while a kernel runs"),
        text(
            "note",
            16,
            52,
            "It knows the last writer and the readers of each byte. The list has examples of its rules.",
        ),
        *core(),
    ]
    for number, check in enumerate(CHECKS, 1):
        parts += mark(number, check.x, check.y)
        x, y = 24 + COLUMN * ((number - 1) % COLUMNS), FIRST + ROW * ((number - 1) // COLUMNS)
        parts += mark(number, x + 4, y - 5)
        parts.append(text("head", x + 22, y, check.title))
        for i, (fault, rule) in enumerate(check.faults, 1):
            parts.append(text("rule", x, y + i * LINE, rule))
            parts.append(text("fault", x + 78, y + i * LINE, fault))
    return "\n".join(parts) + "\n</svg>\n"


if __name__ == "__main__":
    sys.exit(draw_or_check(__doc__, picture, PICTURE, "the rules"))
