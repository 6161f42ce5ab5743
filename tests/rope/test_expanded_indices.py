"""Indices of stride 0, longer than any memory, in calls without heads: each value is read at most twice."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided

from npu_rope import RopeParams, qkv_norm_rope_cache, rope, rope_set_rows, rotary_embedding

TOKENS = 2**40
NO_HEADS = np.empty((TOKENS, 0, 8), np.float32)


def expanded(value, *shape, dtype=np.int64):
    """Return an array of this shape in which one element stands for all."""
    return as_strided(np.full(1, value, dtype), shape, (0,) * len(shape))


def test_positions():
    assert rope(NO_HEADS, expanded(7, TOKENS), RopeParams(8), backend="cpu").shape == NO_HEADS.shape
    with pytest.raises(ValueError, match=r"positions must be in the int32 range but got 2147483648"):
        rope(NO_HEADS, expanded(2**31, TOKENS), RopeParams(8), backend="cpu")


@pytest.mark.parametrize(
    ("row", "message"), [(-1, None), (3, "3 twice"), (4, "be -1 or a row of the cache's 4")]
)
def test_rows(row, message):
    def call():
        cache = np.zeros((4, 0, 8), np.float32)
        return rope_set_rows(
            NO_HEADS, expanded(0, TOKENS), expanded(row, TOKENS), cache, RopeParams(8), backend="cpu"
        )

    if message is None:
        call()
    else:
        with pytest.raises(ValueError, match=message):
            call()


def test_position_ids():
    x, table = np.empty((1, 0, TOKENS, 8), np.float32), np.zeros((5, 4), np.float32)
    assert rotary_embedding(x, table, table, expanded(4, 1, TOKENS), backend="cpu").shape == x.shape
    with pytest.raises(ValueError, match="position_ids must be rows 0 to 4 of cos_cache but got 5"):
        rotary_embedding(x, table, table, expanded(5, 1, TOKENS), backend="cpu")


@pytest.mark.parametrize(("slot", "message"), [(-1, None), (3, "3 twice"), (4, "be -1 or a row of")])
def test_slots(slot, message):
    def call():
        caches = [np.zeros((4, 0, 8), np.float32) for _ in range(2)]
        return qkv_norm_rope_cache(
            *[NO_HEADS] * 3,
            expanded(0, TOKENS),
            RopeParams(8),
            slots=expanded(slot, TOKENS),
            k_cache=caches[0],
            v_cache=caches[1],
            backend="cpu",
        )

    if message is None:
        call()
    else:
        with pytest.raises(ValueError, match=message):
            call()
