"""Arrays for native code, with guard bytes around them.

Every array has a separate buffer that is filled with a pattern. ``check()`` requires that no byte outside the
array's elements has changed, including the gaps between strided rows, and that no input has changed.
"""

from __future__ import annotations

import ctypes
import mmap

import numpy as np

GUARD_BYTES = 192
ALIGNMENT = 64
PATTERN = 0xA5


class GuardedMemory:
    def __init__(self):
        self._watched = []

    def empty(self, shape, dtype, strides=None, *, misalign=0):
        """Return an array to be written. Strides are in elements, misalign in bytes past a multiple of 64."""
        dtype = np.dtype(dtype)
        if strides is None:
            strides = contiguous_strides(shape)
        # The offset in bytes of each dimension's last element from its first.
        offsets = [
            (size - 1) * stride * dtype.itemsize if size else 0
            for size, stride in zip(shape, strides, strict=True)
        ]
        low = sum(min(offset, 0) for offset in offsets)
        high = sum(max(offset, 0) for offset in offsets) + dtype.itemsize
        raw = np.full(high - low + 2 * GUARD_BYTES + ALIGNMENT, PATTERN, np.uint8)
        start = GUARD_BYTES + (-(raw.ctypes.data + GUARD_BYTES)) % ALIGNMENT + misalign - low
        view = np.ndarray(
            shape, dtype, raw.data, offset=start, strides=tuple(s * dtype.itemsize for s in strides)
        )
        self._watched.append((raw, _outside(raw, shape, dtype, start, strides)))
        return view

    def input(self, values, strides=None, *, misalign=0):
        """Return a copy of values that must not change. A stride of zero shares one row of memory."""
        values = np.asarray(values)
        array = self.empty(values.shape, values.dtype, strides, misalign=misalign)
        array[...] = values
        raw, outside = self._watched.pop()
        self._watched.append((raw, np.ones_like(outside), raw.copy()))
        return array

    def check(self):
        """Raise AssertionError if a guard byte, a gap or an input has changed."""
        for raw, guarded, *copy in self._watched:
            before = copy[0] if copy else PATTERN
            changed = np.flatnonzero(guarded & (raw != before))
            assert changed.size == 0, f"{changed.size} guarded bytes changed, first at offset {changed[0]}"


def before_inaccessible_memory(values):
    """Return a copy of values whose last byte is the last of a page. A read behind it ends the process."""
    values = np.asarray(values)
    size = -(-values.nbytes // mmap.PAGESIZE) * mmap.PAGESIZE
    pages = mmap.mmap(-1, size + mmap.PAGESIZE)
    inaccessible = ctypes.addressof(ctypes.c_char.from_buffer(pages)) + size
    protect = ctypes.CDLL(None, use_errno=True).mprotect
    assert protect(ctypes.c_void_p(inaccessible), ctypes.c_size_t(mmap.PAGESIZE), 0) == 0
    array = np.frombuffer(pages, values.dtype, values.size, offset=size - values.nbytes).reshape(values.shape)
    array[...] = values
    return array


def contiguous_strides(shape):
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


def _outside(raw, shape, dtype, start, strides):
    """Return a mask of the bytes that belong to no element."""
    outside = np.ones(raw.size, bool)
    if 0 in shape:
        return outside
    steps = (*(s * dtype.itemsize for s in strides), 1)
    np.ndarray((*shape, dtype.itemsize), bool, outside.data, start, steps)[...] = False
    return outside
