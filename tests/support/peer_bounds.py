"""The bound of another library's norm."""

from __future__ import annotations

from npu_rope.testing.bounds import UNIT_ROUNDOFF


def peer_normalized_error(n, precision):
    """Return :func:`npu_rope.testing.bounds.normalized_error` for squares that are added in any order.

    A square rounds once and passes at most ``n - 1`` additions; 1/n, the mean and its sum with epsilon round
    once each. The root halves these ``n + 3`` units. The root, its inverse and the product with x round once
    each: in total ``(n + 3) / 2 + 3`` units. Half a unit more covers second-order errors (up to n = 4096 in
    float32).

    Args:
        n: elements of a row.
        precision: type of the library's computation, float32 or float64.
    """
    return ((n + 4) / 2 + 3) * UNIT_ROUNDOFF[precision]
