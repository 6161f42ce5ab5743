"""Sequences of 8192 tokens, and batches of sequences longer than a tile, on every back end."""

from __future__ import annotations

import numpy as np
import pytest
from rope_cases import assert_within

from npu_rope import RopeParams, rope, rope_qk, rope_set_rows

LONG = 8192
PARAMS = {
    "normal": RopeParams(32, "normal"),
    "neox": RopeParams(24, "neox", n_offs=4),
    "mrope": RopeParams(32, "mrope", sections=(6, 5, 5, 0)),
    "imrope": RopeParams(32, "imrope", sections=(6, 5, 5, 0)),
    "vision": RopeParams(16, "vision", sections=(8, 8, 0, 0)),
}
every_mode = pytest.mark.parametrize("mode", PARAMS)


def normal(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def positions_of(mode, *rows):
    """Return positions that ascend in each row; in the modes with sections, three planes that differ."""
    positions = np.arange(rows[-1]) + 100_000 * np.arange(np.prod(rows[:-1], dtype=int)).reshape(
        *rows[:-1], 1
    )
    positions = positions.reshape(rows)
    return (
        np.stack([positions, positions // 64, positions % 64])
        if mode in ("mrope", "imrope", "vision")
        else positions
    )


@every_mode
def test_8192_tokens_meet_the_bound(mode, backend):
    x, positions = normal(1, LONG, 1, 32), positions_of(mode, LONG)
    y = rope(x, positions, PARAMS[mode], backend=backend)
    assert_within(y, x, positions, PARAMS[mode], dtype="float32", backend=backend)


@pytest.mark.long
@every_mode
def test_batches_of_thousands_of_tokens_meet_the_bound(mode, backend):
    x, positions = normal(3, 2731, 1, 32), positions_of(mode, 3, 2731)
    y = rope(x, positions, PARAMS[mode], backend=backend, forward=False)
    assert_within(y, x, positions, PARAMS[mode], dtype="float32", forward=False, backend=backend)


@pytest.mark.long
@every_mode
def test_8192_queries_and_keys_meet_the_bound(mode, backend):
    q, k, positions = normal(1, LONG, 2, 32), normal(1, LONG, 1, 32, seed=1), positions_of(mode, LONG)
    for y, x in zip(rope_qk(q, k, positions, PARAMS[mode], backend=backend), (q, k), strict=True):
        assert_within(y, x, positions, PARAMS[mode], dtype="float32", backend=backend)


@pytest.mark.long
@every_mode
def test_8192_tokens_written_to_a_cache_meet_the_bound(mode, backend):
    x, positions = normal(1, LONG, 1, 32), positions_of(mode, LONG)
    rows = np.random.default_rng(3).permutation(LONG + 5)[:LONG]
    cache = np.full((LONG + 5, 1, 32), 7, np.float32)
    rope_set_rows(x, positions, rows, cache, PARAMS[mode], backend=backend)
    assert_within(cache[rows][None], x, positions, PARAMS[mode], dtype="float32", backend=backend)
    assert np.all(np.delete(cache, rows, 0) == 7)
