"""Draw docs/images/qkv_bytes.svg: the bytes of a token that a chain of single launches reads and writes,
beside those of qkv_norm_rope_cache in one launch.

benchmarks/trace_qkv_chain.py has the launches and their bytes, and tests/bench/test_qkv_chain.py compares
them with the bytes that the simulator counts.

usage: draw_qkv_bytes.py [--check]

--check draws nothing and exits with 1 if the picture differs from the launches.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from pictures import draw_or_check, rectangle, start, text

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "benchmarks"))

from trace_qkv_chain import Sizes, Traffic, chain_traffic, one_launch_traffic  # noqa: E402

PICTURE = ROOT / "docs" / "images" / "qkv_bytes.svg"
SIZES = Sizes(tokens=1)
WIDTH, MIDDLE, BARS = 900, 480, 310  # the right edge, the middle, the longest bar
TOP, ROW, BAR = 104, 34, 24  # the first bar, the distance of the rows, the height of a bar
GAP = 1  # between the parts of a bar
STYLE = (
    "text{font:13px sans-serif;fill:#1a1a1a}.title{font-size:15px;font-weight:bold}.note{fill:#555}"
    ".number,.end{font-variant-numeric:tabular-nums}.end{text-anchor:end}.in{font-size:11px;text-anchor:middle}"
    ".in{fill:#fff}.page{fill:#fff}.line{stroke:#b5bccb}.q{fill:#0b3c8c}.k{fill:#a8560a}.v{fill:#1f7a4a}"
    "@media(prefers-color-scheme:dark){text{fill:#e6e9ef}.note{fill:#a9b1c0}.in{fill:#0d1117}.page{fill:#0d1117}"
    ".line{stroke:#4a5468}.q{fill:#8fb4ff}.k{fill:#f0b060}.v{fill:#6fcf97}}"
)


def bar(moved: Mapping[str, int], start: float, y: float, longest: int) -> Iterator[str]:
    """Yield the parts of a bar from `start` to the right, one for each tensor."""
    for name, count in moved.items():
        width = count * BARS / longest
        yield rectangle(name, start, y, width - GAP, BAR)
        label = f"{name} {count:,}" if width > 45 else name
        yield text("in", start + (width - GAP) / 2, y + 16, label)
        start += width


def row(traffic: Traffic, y: float, longest: int) -> Iterator[str]:
    """Yield a launch: its name, the bar of its reads, and the bar of its writes."""
    yield text("name", 16, y + 16, traffic.name)
    yield from bar(traffic.reads, MIDDLE - sum(traffic.reads.values()) * BARS / longest, y, longest)
    yield from bar(traffic.writes, MIDDLE + GAP, y, longest)


def picture() -> str:
    """Return the picture as SVG."""
    chain, one = chain_traffic(SIZES), one_launch_traffic(SIZES)
    chain_total, longest = sum(launch.total for launch in chain), sum(one.reads.values())
    q_heads, k_heads, v_heads = SIZES.heads.values()
    model = f"{q_heads} + {k_heads} + {v_heads} heads of {SIZES.head_size}, {SIZES.dtype.value}"
    share = f"{one.total:,}: {one.total / chain_total:.0%} of the chain"
    below = TOP + len(chain) * ROW  # the line under the chain
    height = below + 2 * ROW + 66
    parts = [
        *start(STYLE, WIDTH, height),
        text("title", 16, 30, f"Bytes that a token moves between memory and the cores ({model})"),
        text("note", 16, 54, "Queries q, keys k and values v. Scales, positions and slots are left out."),
        text("end", MIDDLE - 8, 90, "read"),
        text("number", MIDDLE + 8, 90, "written"),
        text("end", WIDTH - 16, 90, "sum"),
    ]
    for i, launch in enumerate(chain):
        parts += row(launch, TOP + i * ROW, longest)
        parts.append(text("end", WIDTH - 16, TOP + i * ROW + 16, f"{launch.total:,}"))
    parts += [
        text("title", 16, below + 20, f"chain: {len(chain)} launches"),
        text("title end", WIDTH - 16, below + 20, f"{chain_total:,}"),
        f'<path class="line" d="M16,{below + 40} H{WIDTH - 16}"/>',
        *row(one, below + 56, longest),
        text("title", 16, below + 106, "one launch"),
        text("title end", WIDTH - 16, below + 106, share),
        f'<path class="line" d="M{MIDDLE},{TOP - 22} V{below - 6} M{MIDDLE},{below + 50} V{below + 86}"/>',
    ]
    return "\n".join(parts) + "\n</svg>\n"


if __name__ == "__main__":
    sys.exit(draw_or_check(__doc__, picture, PICTURE, "the launches"))
