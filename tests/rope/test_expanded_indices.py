"""Indices of stride 0, longer than any memory, in calls without heads: each value is read at most twice."""

from __future__ import annotations

from contextlib import nullcontext

import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided

from npu_rope import RopeParams, qkv_norm_rope_cache, rope, rope_set_rows, rotary_embedding

TOKENS = 2**40
NO_HEADS = np.empty((TOKENS, 0, 8), np.float32)


def expanded(value, *shape):
    """Return an array of this shape, all elements of which share the memory of one."""
    return as_strided(np.full(1, value, np.int64), shape, (0,) * len(shape))


def refusal(message):
    """Expect an error with this message, or none if it is None."""
    return nullcontext() if message is None else pytest.raises(ValueError, match=message)


def test_positions():
    assert rope(NO_HEADS, expanded(7, TOKENS), RopeParams(8), backend="cpu").shape == NO_HEADS.shape
    with pytest.raises(ValueError, match=r"positions must be in the int32 range but got 2147483648"):
        rope(NO_HEADS, expanded(2**31, TOKENS), RopeParams(8), backend="cpu")


@pytest.mark.parametrize(
    ("row", "message"), [(-1, None), (3, "3 twice"), (4, "be -1 or a row of the cache's 4")]
)
def test_rows(row, message):
    cache = np.zeros((4, 0, 8), np.float32)
    with refusal(message):
        rope_set_rows(
            NO_HEADS, expanded(0, TOKENS), expanded(row, TOKENS), cache, RopeParams(8), backend="cpu"
        )


def test_position_ids():
    x, table = np.empty((1, 0, TOKENS, 8), np.float32), np.zeros((5, 4), np.float32)
    assert rotary_embedding(x, table, table, expanded(4, 1, TOKENS), backend="cpu").shape == x.shape
    with pytest.raises(ValueError, match="position_ids must be rows 0 to 4 of cos_cache but got 5"):
        rotary_embedding(x, table, table, expanded(5, 1, TOKENS), backend="cpu")


@pytest.mark.parametrize(("slot", "message"), [(-1, None), (3, "3 twice"), (4, "be -1 or a row of")])
def test_slots(slot, message):
    k_cache, v_cache = (np.zeros((4, 0, 8), np.float32) for _ in range(2))
    options = {"slots": expanded(slot, TOKENS), "k_cache": k_cache, "v_cache": v_cache, "backend": "cpu"}
    with refusal(message):
        qkv_norm_rope_cache(*[NO_HEADS] * 3, expanded(0, TOKENS), RopeParams(8), **options)
