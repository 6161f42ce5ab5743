"""A thread keeps the tables of cos and sin of its last calls with one token in each batch. Their results are
those of a new thread, which has kept nothing."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest

from npu_rope import RopeParams, rms_norm_rope, rope, rope_qk, rope_set_rows

ml_dtypes = pytest.importorskip("ml_dtypes")

NORMAL, NEOX = RopeParams(64, "normal"), RopeParams(64, "neox")
# With AVX-512, rope rotates these heads by the kernels for AVX2, and rms_norm_rope by those for AVX-512.
# Their tables for bfloat16 have different orders.
UNEVEN = RopeParams(48, "neox")
VISION = RopeParams(64, "mrope", sections=(8, 8, 8, 8))
FACTORS = np.linspace(1, 4, 32, dtype=np.float32)
DTYPES = (np.float32, np.float16, ml_dtypes.bfloat16, np.float64)


def random(*shape, dtype=np.float32):
    return np.random.default_rng(5).standard_normal(shape).astype(dtype)


def tokens(*positions):
    """Return positions of one token in each batch."""
    return np.array(positions, np.int64)[:, None]


def call(positions, params=NORMAL, *, dtype=np.float32, **options):
    x = random(len(positions), 1, 3, 64, dtype=dtype)
    return lambda: rope(x, positions, params, **options)


def norm_call(positions, params, dtype):
    q, k = random(len(positions), 1, 3, 64, dtype=dtype), random(len(positions), 1, 2, 64, dtype=dtype)
    scale = random(64, dtype=dtype)
    return lambda: np.concatenate(rms_norm_rope(q, k, scale, scale, positions, params, epsilon=1e-6), axis=2)


def vision_call(*planes):
    positions = np.array(planes, np.int32).reshape(4, 1, 1)
    x = random(1, 1, 3, 64)
    return lambda: rope(x, positions, VISION)


def set_rows_call(rows):
    x, cache = random(2, 1, 3, 64), np.zeros((4, 3, 64), np.float32)
    return lambda: rope_set_rows(x, tokens(5, 6), np.array(rows)[:, None], cache.copy(), NORMAL)


def sequence_call(count):
    x = random(1, count, 3, 64)
    return lambda: rope(x, np.arange(count), NORMAL)


def pair_call(positions):
    q, k = random(len(positions), 1, 3, 64), random(len(positions), 1, 2, 64)
    return lambda: np.concatenate(rope_qk(q, k, positions, NORMAL), axis=2)


# Each sequence of calls differs in one respect from call to call.
SEQUENCES = {
    "positions": [call(tokens(p)) for p in (7, 8, 7, -7, 2**31 - 1, 7)],
    "direction": [call(tokens(7), forward=forward) for forward in (True, False, True)],
    "dtypes": [call(tokens(7), dtype=dtype) for dtype in (*DTYPES, *DTYPES[::-1])],
    "dtypes of halves": [call(tokens(7), NEOX, dtype=dtype) for dtype in (*DTYPES, *DTYPES[::-1])],
    "angle": [call(tokens(70001), angle=angle) for angle in ("exact", "f32", "ggml", "exact")],
    "backward by ggml": [call(tokens(7), angle="ggml", forward=forward) for forward in (True, False)],
    "batches": [call(tokens(*range(n)), params=NEOX) for n in (2, 1, 3, 64, 2, 65, 2)],
    "order of batches": [call(tokens(*order)) for order in ((1, 2, 3), (3, 2, 1), (3, 2, 1), (2, 2, 2))],
    "one position": [call(np.array([p])) for p in (4, 4, 5)],
    "shared position": [call(tokens(4, 4, 9)), call(np.broadcast_to(tokens(9), (3, 1)))],
    "parameters": [call(tokens(7), replace(NORMAL, freq_base=1e4 + i % 10)) for i in range(21)],
    "sign of zero": [call(tokens(7), replace(NORMAL, attn_factor=factor)) for factor in (0.0, -0.0, 0.0)],
    "window": [call(tokens(7), RopeParams(32, "normal", n_offs=offset)) for offset in (0, 16, 32)],
    "factors": [call(tokens(7), freq_factors=f * FACTORS) for f in (1, 2, 1)],
    "axes": [
        vision_call(1, 2, 3, 4),
        vision_call(1, 2, 3, 5),
        vision_call(4, 3, 2, 1),
        vision_call(1, 2, 3, 4),
    ],
    "operators": [call(tokens(5, 6)), norm_call(tokens(5, 6), NORMAL, np.float32), pair_call(tokens(5, 6))],
    "instruction sets": [
        call(tokens(5), UNEVEN, dtype=ml_dtypes.bfloat16),
        norm_call(tokens(5), UNEVEN, ml_dtypes.bfloat16),
        call(tokens(5), UNEVEN, dtype=ml_dtypes.bfloat16),
    ],
    "rows": [set_rows_call(rows) for rows in ((0, 1), (-1, 2), (3, -1))],
    "tokens": [sequence_call(3), call(tokens(0)), sequence_call(3), call(tokens(2)), sequence_call(2)],
}


def in_new_thread(run):
    with ThreadPoolExecutor(1) as executor:
        return executor.submit(run).result()


@pytest.mark.parametrize("sequence", SEQUENCES)
def test_results_do_not_depend_on_earlier_calls(sequence):
    calls = SEQUENCES[sequence]
    expected = [in_new_thread(run) for run in calls]

    def all_twice():
        return [[run() for run in calls] for _ in range(2)]

    for results in in_new_thread(all_twice):
        for i, (got, want) in enumerate(zip(results, expected, strict=True)):
            assert got.tobytes() == want.tobytes(), f"call {i}"
    assert len({result.tobytes() for result in expected}) > 1, "the calls do not differ"


def test_factors_that_change_in_place_are_read_again():
    x, factors = random(1, 1, 3, 64), FACTORS.copy()
    first = rope(x, tokens(7), NORMAL, factors)
    factors *= 2
    second = rope(x, tokens(7), NORMAL, factors)
    assert np.array_equal(second, in_new_thread(lambda: rope(x, tokens(7), NORMAL, factors)))
    assert not np.array_equal(first, second)


def test_results_are_those_of_more_tokens():
    x = random(1, 3, 2, 64)
    positions = np.array([9, 4, 700])
    whole = rope(x, positions, NORMAL)
    for i in (0, 1, 2, 1, 0):
        token = np.ascontiguousarray(x[:, i : i + 1])
        assert np.array_equal(rope(token, positions[i : i + 1], NORMAL), whole[:, i : i + 1])
