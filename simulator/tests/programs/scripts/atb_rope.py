"""torch_npu._npu_rotary_embedding (ATB): random calls against float64 NumPy, and calls that break a rule.

The arguments are the types of query and of the cache. One process has the tables of one cache.
"""

import sys
import warnings

import numpy as np
import torch
import torch_npu
from npu_functions import CALLS, Draw, assert_near, assert_refused, rotated, tensor, wide
from run_checks import run

DTYPE, TABLE_DTYPE = (getattr(torch, name) for name in sys.argv[1:3])
WIDTH, ROWS = 64, 50
CACHE = Draw(1).tensor(ROWS, WIDTH, dtype=TABLE_DTYPE)


def rotate(positions, query, key, head_size=WIDTH, cache=CACHE, is_neox=True):
    torch_npu._npu_rotary_embedding(positions.npu(), query, key, head_size, cache.npu(), is_neox)


def check_rotary_embedding():
    for seed in range(CALLS):
        draw = Draw(seed)
        tokens, ratio, is_neox = draw.size(1, 7), draw.size(1, 4), draw.of((False, True))
        key_heads = draw.size(1, 3)
        positions = torch.from_numpy(draw.rng.integers(0, ROWS, tokens))
        before = [draw.tensor(tokens, n * WIDTH, dtype=DTYPE) for n in (ratio * key_heads, key_heads)]
        if draw.of((False, True)):
            before[0] = before[0].view(1, tokens, -1, WIDTH)
        on_npu = [x.npu() for x in before]
        # A head is as wide as the cache, whatever head_size says, if halves are rotated.
        rotate(positions, *on_npu, WIDTH if not is_neox else draw.of((WIDTH, 32)), is_neox=is_neox)
        cos, sin = (half[positions.numpy()][:, None] for half in np.split(wide(CACHE), 2, -1))
        mode = "half" if is_neox else "interleave"
        tables = [np.concatenate([t, t], -1) if is_neox else t.repeat(2, -1) for t in (cos, sin)]
        in_float16 = DTYPE == TABLE_DTYPE == torch.float16  # two products and their sum are rounded
        for got, x in zip(on_npu, before, strict=True):
            heads = wide(x).reshape(tokens, -1, WIDTH)
            expected, size = rotated(heads, *tables, mode)
            assert_near(got.view(heads.shape), expected, size, roundings=2 if in_float16 else 1)


def check_the_tables_are_those_of_the_first_cache():
    positions, query, key = torch.arange(5), tensor(5, WIDTH, dtype=DTYPE), tensor(5, WIDTH, dtype=DTYPE)
    first, other = query.clone(), query.clone()
    rotate(positions, first, key.clone())
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        rotate(positions, other, key.clone(), cache=2 * CACHE)
    assert torch.equal(first.cpu(), other.cpu())
    assert "uses the cos_sin_cache of the first call" in str(caught[-1].message)


def check_calls_that_break_a_rule():
    positions, query, key = torch.arange(5), tensor(5, 2 * WIDTH, dtype=DTYPE), tensor(5, WIDTH, dtype=DTYPE)
    rotate(positions, query, key)
    refused = [
        ("query must be float16", lambda: rotate(positions, query.float(), key)),
        ("key must be", lambda: rotate(positions, query, key.float())),
        ("query must have 2 or 4 dimensions", lambda: rotate(positions, query.view(5, 2, WIDTH), key)),
        ("query must be contiguous", lambda: rotate(positions, tensor(2 * WIDTH, 5, dtype=DTYPE).t(), key)),
        ("query must have the 4 tokens of positions", lambda: rotate(positions[:4], query, key)),
        ("head_size must be 64", lambda: rotate(positions, query, key, 32, is_neox=False)),
        (
            "key must have rows of a multiple of 64",
            lambda: rotate(positions, query, tensor(5, 32, dtype=DTYPE)),
        ),
        (
            "query must have rows of a multiple of key's 192",
            lambda: rotate(positions, query, tensor(5, 192, dtype=DTYPE)),
        ),
    ]
    for message, work in refused:
        assert_refused(message, work)


if __name__ == "__main__":
    run(globals())
