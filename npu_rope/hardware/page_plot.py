"""The report's chart: measured over predicted times, as SVG."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from html import escape

from npu_rope.hardware.document import Document

WIDTH, HEIGHT, LEFT, BOTTOM, TOP = 560, 400, 60, 350, 20


def plot(d: Document) -> Iterator[str]:
    """Yield the plot of each call's measured time over its predicted time, both axes logarithmic."""
    points = [
        (call["predicted"]["microseconds"], call["measured"]["us"], call["id"])
        for operator in d["operators"]
        for call in operator["calls"]
        if call["measured_over_predicted"] is not None
    ]
    values = [value for x, y, _ in points for value in (x, y)]
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    high = max(high, low + 1)

    def scale(value: float, begin: float, end: float) -> float:
        return begin + (math.log10(value) - low) / (high - low) * (end - begin)

    x: Callable[[float], float] = lambda value: scale(value, LEFT, WIDTH - 20)  # noqa: E731
    y: Callable[[float], float] = lambda value: scale(value, BOTTOM, TOP)  # noqa: E731
    label = "Measured over predicted time of each call"
    yield f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{label}">'
    for power in range(low, high + 1):
        at, text = 10.0**power, f"{10.0**power:g}"
        yield f'<line class="axis" x1="{x(at):.1f}" y1="{TOP}" x2="{x(at):.1f}" y2="{BOTTOM}"/>'
        yield f'<line class="axis" x1="{LEFT}" y1="{y(at):.1f}" x2="{WIDTH - 20}" y2="{y(at):.1f}"/>'
        yield f'<text x="{x(at):.1f}" y="{BOTTOM + 18}" text-anchor="middle">{text}</text>'
        yield f'<text x="{LEFT - 8}" y="{y(at) + 4:.1f}" text-anchor="end">{text}</text>'
    ends = 10.0**low, 10.0**high
    yield f'<line class="equal" x1="{x(ends[0])}" y1="{y(ends[0])}" x2="{x(ends[1])}" y2="{y(ends[1])}"/>'
    for predicted, measured, id_ in points:
        text = escape(f"{id_}: predicted {predicted:.2f} us, measured {measured:.2f} us")
        place = f'cx="{x(predicted):.1f}" cy="{y(measured):.1f}"'
        yield f'<circle {place} r="4"><title>{text}</title></circle>'
    middle = (LEFT + WIDTH - 20) / 2
    yield f'<text x="{middle}" y="{HEIGHT - 8}" text-anchor="middle">predicted, us</text>'
    centre = (TOP + BOTTOM) / 2
    rotation = f'transform="rotate(-90 14 {centre})"'
    yield f'<text x="14" y="{centre}" text-anchor="middle" {rotation}>measured, us</text></svg>'
