"""Bytes that strided views touch: the basis of the overlap rules of the Python paths.

The native paths decide by the same steps in ``csrc/core/strided.cpp``.
"""

from __future__ import annotations

from dataclasses import dataclass

Dim = tuple[int, int]  # size, stride in bytes > 0


@dataclass(frozen=True)
class StridedView:
    """A view of memory: first element's address, element size, sizes, strides in bytes."""

    base: int
    item_bytes: int
    sizes: tuple[int, ...]
    strides: tuple[int, ...]

    def is_empty(self) -> bool:
        """Return whether the view has no elements."""
        return 0 in self.sizes

    def dims(self) -> list[Dim]:
        """Return the dimensions of more than one element, widest stride first."""
        dims = [(n, abs(s)) for n, s in zip(self.sizes, self.strides, strict=True) if n > 1]
        return sorted(dims, key=lambda dim: -dim[1])

    def span(self) -> tuple[int, int]:
        """Return the first byte, and the byte after the last."""
        reach = [(n - 1) * s for n, s in zip(self.sizes, self.strides, strict=True)]
        first = self.base + sum(r for r in reach if r < 0)
        return first, self.base + sum(r for r in reach if r > 0) + self.item_bytes


def is_injective(view: StridedView) -> bool:
    """Return whether no two elements share a byte. Strides that do not nest count as sharing."""
    return view.is_empty() or _nested(view.dims(), view.item_bytes)


def is_same_view(a: StridedView, b: StridedView) -> bool:
    """Return whether corresponding elements of two views are the same memory."""
    if (a.base, a.item_bytes, a.sizes) != (b.base, b.item_bytes, b.sizes):
        return False
    return all(n <= 1 or s == t for n, s, t in zip(a.sizes, a.strides, b.strides, strict=True))


def may_share_memory(a: StridedView, b: StridedView) -> bool:
    """Return whether the views may share a byte. The result is exact for two views whose strides nest when
    taken together (slices of one buffer, of any sizes)."""
    if a.is_empty() or b.is_empty():
        return False
    (first_a, end_a), (first_b, end_b) = a.span(), b.span()
    if end_a <= first_b or end_b <= first_a:
        return False
    if a.item_bytes != b.item_bytes:
        return True
    both = _merged(a.dims(), b.dims())
    if not _nested([(max(m, n), stride) for stride, m, n in both], a.item_bytes):
        return True
    return _reachable(both, first_b - first_a, a.item_bytes)


def _merged(a: list[Dim], b: list[Dim]) -> list[tuple[int, int, int]]:
    """Return the strides of both views, widest first: (stride, a's size, b's size)."""
    both, a, b = [], list(a), list(b)
    while a or b:
        stride = max(dims[0][1] for dims in (a, b) if dims)
        sizes = [dims.pop(0)[0] if dims and dims[0][1] == stride else 1 for dims in (a, b)]
        both.append((stride, sizes[0], sizes[1]))
    return both


def _nested(dims: list[Dim], item_bytes: int) -> bool:
    """Return whether each stride is at least as wide as the dimensions inside it."""
    inner = item_bytes
    for size, stride in reversed(dims):
        if stride < inner:
            return False
        inner += (size - 1) * stride
    return True


def _reachable(dims: list[tuple[int, int, int]], delta: int, item_bytes: int) -> bool:
    """Return whether some difference of an index of a and one of b moves by delta bytes, to within less than
    an element."""
    if not dims:
        return abs(delta) < item_bytes
    (stride, size_a, size_b), inner = dims[0], dims[1:]
    near = delta // stride
    return any(
        _reachable(inner, delta - d * stride, item_bytes) for d in (near, near + 1) if -size_b < d < size_a
    )


@dataclass(frozen=True)
class TensorSpec:
    """A tensor's properties that the rules check. Strides count elements."""

    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    def text(self) -> str:
        """Return the shape as the messages print it."""
        return str(list(self.shape))
