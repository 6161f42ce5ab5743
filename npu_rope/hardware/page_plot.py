"""The report's chart: measured over predicted times, as SVG."""

from __future__ import annotations

import math
from collections.abc import Iterator
from html import escape

from npu_rope.hardware.document import Document

# In the units of the picture: its size, and the edges of the plotted area.
WIDTH, HEIGHT = 560, 400
LEFT, RIGHT, TOP, BOTTOM = 60, WIDTH - 20, 20, 350


def plot(document: Document) -> Iterator[str]:
    """Yield the plot of each call's measured time over its predicted time, both axes logarithmic."""
    points = [
        (call["predicted"]["microseconds"], call["measured"]["us"], call["id"])
        for operator in document["operators"]
        for call in operator["calls"]
        if call["measured_over_predicted"] is not None
    ]
    times = [time for predicted, measured, _ in points for time in (predicted, measured)]
    low, high = math.floor(math.log10(min(times))), math.ceil(math.log10(max(times)))
    high = max(high, low + 1)

    def scale(time: float, begin: float, end: float) -> float:
        return begin + (math.log10(time) - low) / (high - low) * (end - begin)

    def x_of(time: float) -> float:
        return scale(time, LEFT, RIGHT)

    def y_of(time: float) -> float:
        return scale(time, BOTTOM, TOP)

    label = "Measured over predicted time of each call"
    yield f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{label}">'
    for power in range(low, high + 1):
        x, y, text = x_of(10.0**power), y_of(10.0**power), f"{10.0**power:g}"
        yield f'<line class="axis" x1="{x:.1f}" y1="{TOP}" x2="{x:.1f}" y2="{BOTTOM}"/>'
        yield f'<line class="axis" x1="{LEFT}" y1="{y:.1f}" x2="{RIGHT}" y2="{y:.1f}"/>'
        yield f'<text x="{x:.1f}" y="{BOTTOM + 18}" text-anchor="middle">{text}</text>'
        yield f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{text}</text>'
    x1, x2 = x_of(10.0**low), x_of(10.0**high)
    y1, y2 = y_of(10.0**low), y_of(10.0**high)
    yield f'<line class="equal" x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}"/>'
    for predicted, measured, id_ in points:
        text = escape(f"{id_}: predicted {predicted:.2f} us, measured {measured:.2f} us")
        place = f'cx="{x_of(predicted):.1f}" cy="{y_of(measured):.1f}"'
        yield f'<circle {place} r="4"><title>{text}</title></circle>'
    middle = (LEFT + RIGHT) / 2
    yield f'<text x="{middle}" y="{HEIGHT - 8}" text-anchor="middle">predicted, us</text>'
    centre = (TOP + BOTTOM) / 2
    rotation = f'transform="rotate(-90 14 {centre})"'
    yield f'<text x="14" y="{centre}" text-anchor="middle" {rotation}>measured, us</text></svg>'
