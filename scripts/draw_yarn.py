"""Draw docs/images/yarn.svg: YaRN's ramp, and the wavelength of each pair before and after it.

RopeParams gives the ends of the ramp and the frequencies, so that the picture agrees with the operator.

usage: draw_yarn.py [--check]

--check draws nothing and exits with 1 if the picture differs from RopeParams.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Iterator

from pictures import ROOT, draw_or_check, rectangle, start, text

from npu_rope import RopeParams

PICTURE = ROOT / "docs" / "images" / "yarn.svg"
FACTOR, CONTEXT = 16, 4096
YARN = RopeParams(128, "neox", n_ctx_orig=CONTEXT, freq_base=10_000.0, freq_scale=1 / FACTOR, ext_factor=1.0)
PLAIN = RopeParams(128, "neox", freq_base=10_000.0)
WIDTH, HEIGHT = 900, 620
LEFT, RIGHT = 84, 884  # of both plots
RAMP_TOP, RAMP_BOTTOM = 96, 196
TOP, BOTTOM = 244, 560
LOWEST, HIGHEST = 0.5, 6.5  # powers of ten of the wavelengths
STYLE = (
    "text{font:13px sans-serif;fill:#1a1a1a}.title{font-size:15px;font-weight:bold}.note{fill:#555}"
    ".end{text-anchor:end}.middle{text-anchor:middle}.page{fill:#fff}.zone{fill:#eef2fb}"
    "path{fill:none;stroke-width:2}.axis{stroke:#b5bccb;stroke-width:1}.context{stroke:#a8560a;stroke-width:1}"
    ".before{stroke:#6b7280}.linear{stroke:#1f7a4a;stroke-dasharray:6 4}.after{stroke:#0b3c8c;stroke-width:3}"
    ".orange{fill:#a8560a}.green{fill:#1f7a4a}.blue{fill:#0b3c8c}"
    "@media(prefers-color-scheme:dark){text{fill:#e6e9ef}.note{fill:#a9b1c0}.page{fill:#0d1117}.zone{fill:#1a2333}"
    ".axis{stroke:#4a5468}.context{stroke:#f0b060}.before{stroke:#a9b1c0}.linear{stroke:#6fcf97}"
    ".after{stroke:#8fb4ff}.orange{fill:#f0b060}.green{fill:#6fcf97}.blue{fill:#8fb4ff}}"
)


def across(pair: float) -> float:
    """Return the x of a pair."""
    return LEFT + pair * (RIGHT - LEFT) / (PLAIN.pairs - 1)


def up(wavelength: float) -> float:
    """Return the y of a wavelength."""
    return BOTTOM - (math.log10(wavelength) - LOWEST) / (HIGHEST - LOWEST) * (BOTTOM - TOP)


def line(style: str, points: Iterable[tuple[float, float]]) -> str:
    return f'<path class="{style}" d="M' + " L".join(f"{x:.1f},{y:.1f}" for x, y in points) + '"/>'


def ramp(pair: float) -> float:
    """Return the share of the unscaled frequency: 1 below the ramp, 0 above it."""
    low, high = YARN.corr_dims()
    return 1 - min(1.0, max(0.0, (pair - low) / max(0.001, high - low)))


def shares() -> Iterator[float]:
    """Yield the share of the unscaled frequency in each pair's frequency, from the frequencies themselves."""
    for before, after in zip(PLAIN.frequencies(), YARN.frequencies(), strict=True):
        yield (after / before * FACTOR - 1) / (FACTOR - 1)


def picture() -> str:
    """Return the picture as SVG."""
    low, high = YARN.corr_dims()
    assert all(abs(ramp(pair) - share) < 1e-6 for pair, share in enumerate(shares()))
    before, after = ([2 * math.pi / f for f in params.frequencies()] for params in (PLAIN, YARN))
    zone = across(low), across(high) - across(low)
    middle = zone[0] + zone[1] / 2

    def ramp_y(share: float) -> float:
        return RAMP_BOTTOM - share * (RAMP_BOTTOM - RAMP_TOP)

    parts = [
        *start(STYLE, WIDTH, HEIGHT),
        text("title", 16, 28, f"YaRN extends a context of {CONTEXT:,} tokens by a factor of {FACTOR}"),
        text(
            "note", 16, 50, f"Heads of 128 elements, freq_base 10,000; ext_factor 1, freq_scale 1/{FACTOR}."
        ),
        rectangle("zone", zone[0], RAMP_TOP - 22, zone[1], BOTTOM - RAMP_TOP + 22),
        text("middle", (LEFT + zone[0]) / 2, RAMP_TOP - 8, "kept"),
        text("middle", middle, RAMP_TOP - 8, f"ramp: pairs {low:g} to {high:g}"),
        text("middle", (zone[0] + zone[1] + RIGHT) / 2, RAMP_TOP - 8, f"divided by {FACTOR}"),
        line("axis", [(LEFT, RAMP_TOP), (LEFT, RAMP_BOTTOM), (RIGHT, RAMP_BOTTOM)]),
        line("after", [(across(pair), ramp_y(share)) for pair, share in enumerate(shares())]),
        text("end note", LEFT - 8, RAMP_TOP + 5, "1"),
        text("end note", LEFT - 8, RAMP_BOTTOM + 4, "0"),
        text(
            "note",
            LEFT,
            RAMP_BOTTOM + 24,
            "share of the unchanged frequency; the rest is the divided one",
        ),
        line("axis", [(LEFT, TOP), (LEFT, BOTTOM), (RIGHT, BOTTOM)]),
        line("context", [(LEFT, up(CONTEXT)), (RIGHT, up(CONTEXT))]),
        text("orange", LEFT + 8, up(CONTEXT) - 6, f"context of training: {CONTEXT:,} tokens"),
        line("before", [(across(pair), up(value)) for pair, value in enumerate(before)]),
        line("linear", [(across(pair), up(value * FACTOR)) for pair, value in enumerate(before)]),
        line("after", [(across(pair), up(value)) for pair, value in enumerate(after)]),
        text("end green", across(16), up(before[16] * FACTOR) - 12, "linear scaling: every pair divided"),
        text("note", across(40), up(before[40]) + 26, "before"),
        text("blue", across(8), up(before[8]) + 26, "YaRN"),
    ]
    for power in range(1, 7):
        parts.append(text("end note", LEFT - 8, up(10**power) + 4, f"{10**power:,}"))
    for pair in range(0, PLAIN.pairs, 8):
        parts.append(text("middle note", across(pair), BOTTOM + 20, str(pair)))
    parts.append(
        text("note", LEFT, HEIGHT - 16, "pair of lanes; above: its wavelength in tokens, 2π / frequency")
    )
    return "\n".join(parts) + "\n</svg>\n"


if __name__ == "__main__":
    sys.exit(draw_or_check(__doc__, picture, PICTURE, "RopeParams"))
