"""The bounds of other libraries' frequencies and norms."""

from __future__ import annotations

from npu_rope.testing.bounds import UNIT_ROUNDOFF

# transformers computes frequencies in float32: base**(2i/n_dims), its reciprocal and up to two products,
# about 8 roundings of 2**-24 together.
FREQUENCY_RTOL = 1e-6


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
