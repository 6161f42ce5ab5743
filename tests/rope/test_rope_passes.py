"""Vector repeats of the device's kernels for each rotated head, and views that no call copies.

One repeat processes 64 float32 lanes. The difference between calls with many and with few heads excludes the
cost of the table.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
import torch
from ascend_sim import library as simulator
from head_repeats import (
    DEVICES,
    FEW_HEADS,
    MANY_HEADS,
    MODES,
    SECTIONS,
    count_repeats,
    params_of,
    positions_of,
    repeats_by_instruction,
)

from npu_rope import rope, rope_qk, rope_qk_, rope_set_rows

HALVES = ("neox", *SECTIONS)
# The repeats of a head by instruction, for each way to rotate: by halves, or with partners that shifts or
# Gather exchange. Heads that are widened to float32, and those that are shifted, have 16-bit types.
HALVES_WIDENED = {"Cast": 4, "Mul": 4, "Sub": 1, "Add": 1}
HALVES_FLOAT32 = {"Mul": 4, "Sub": 1, "Add": 1}
SHIFTED = {"Cast": 6, "Mul": 4, "Add": 2, "ShiftLeft": 1, "ShiftRight": 1, "Or": 1}
GATHERED_WIDENED, GATHERED = {"Cast": 4, "Mul": 4, "Add": 2, "Gather": 2}, {"Mul": 4, "Add": 2, "Gather": 2}
# Repeats of 64 lanes for a head of 128 lanes (two repeats are a full pass), as in docs/benchmarks.md.
REPEATS = [
    *[("sim", dtype, mode, HALVES_WIDENED) for dtype in (ml_dtypes.bfloat16, np.float16) for mode in HALVES],
    *[("sim:ascend310p", np.float16, mode, HALVES_WIDENED) for mode in HALVES],
    *[(backend, np.float32, mode, HALVES_FLOAT32) for backend in DEVICES for mode in HALVES],
    ("sim", ml_dtypes.bfloat16, "normal", SHIFTED),
    ("sim", np.float16, "normal", SHIFTED),
    ("sim:ascend310p", np.float16, "normal", GATHERED_WIDENED),
    *[(backend, np.float32, "normal", GATHERED) for backend in DEVICES],
]


@pytest.mark.parametrize(
    ("backend", "dtype", "mode", "expected"),
    REPEATS,
    ids=[f"{backend}-{np.dtype(dtype).name}-{mode}" for backend, dtype, mode, _ in REPEATS],
)
def test_a_rotated_head_costs_the_expected_repeats(backend, dtype, mode, expected):
    head, by_instruction = repeats_by_instruction(dtype, mode, backend)
    assert head == pytest.approx(sum(expected.values()), abs=0.01)
    assert by_instruction == pytest.approx(expected, abs=0.05)


def test_every_device_type_and_mode_is_counted():
    columns = [("sim", t) for t in (ml_dtypes.bfloat16, np.float16, np.float32)]
    columns += [("sim:ascend310p", t) for t in (np.float16, np.float32)]
    expected = {(*column, mode) for column in columns for mode in MODES}
    assert {row[:3] for row in REPEATS} == expected


def test_bfloat16_pairs_are_shifted_not_gathered():
    few, many = (
        count_repeats(ml_dtypes.bfloat16, "normal", heads, "sim")[1] for heads in (FEW_HEADS, MANY_HEADS)
    )
    assert few["Gather"] == many["Gather"] <= 8  # the setup gathers the four parts of the frequencies
    assert many["ShiftLeft"] > few["ShiftLeft"] > 0


def test_halves_are_addressed_not_swapped():
    _, apis = count_repeats(ml_dtypes.bfloat16, "neox", MANY_HEADS, "sim")
    assert not {"Gather", "Copy", "GatherMask", "ShiftLeft"} & set(apis)


VIEWS = {
    "heads before tokens": lambda d: np.ones((1, 32, 200, d), np.float16).transpose(0, 2, 1, 3),
    "q of a fused projection": lambda d: np.ones((1, 200, 48, d), np.float16)[:, :, :32],
    "a corner of a larger tensor": lambda d: np.ones((1, 300, 40, 2 * d), np.float16)[:, :200, :32, :d],
    "the second half of wider rows": lambda d: np.ones((1, 200, 32, 2 * d), np.float16)[..., d:],
    "one batch for two": lambda d: np.broadcast_to(np.ones((1, 100, 32, d), np.float16), (2, 100, 32, d)),
}


# Every mode, forward and backward, with the full window and, except in mode vision, a narrower one.
FORMS = [(mode, n_offs, forward) for mode in MODES for n_offs in (0, 6) for forward in (True, False)]
FORMS = [form for form in FORMS if form[:2] != ("vision", 6)]
HEAD_SIZES = {True: 64, False: 36}  # forward heads fill whole blocks of 32 bytes, backward heads do not
every_form = pytest.mark.parametrize(("mode", "n_offs", "forward"), FORMS)


def assert_moved_once(xs, tokens, d, backend):
    """Require that the launch read each element of xs from GM and wrote each result to GM once."""
    summary = simulator.load().report()["summary"]
    size = sum(x.size for x in xs) * 2
    # On 310P, which has no DMA with padding, the last block of a run may move twice if d is not 64.
    limit = size * (1 if d == 64 or backend == "sim" else 2)
    overhead = 48 * 4096 + 4 * 8 * tokens * 48  # each core reads positions and the tiling's frequencies
    assert size <= summary["bytes_read"] <= limit + overhead
    assert size <= summary["bytes_written"] <= limit


@pytest.mark.parametrize("backend", DEVICES)
@pytest.mark.parametrize("name", VIEWS)
@every_form
def test_a_view_is_read_and_written_without_a_copy(mode, n_offs, forward, name, backend):
    d = HEAD_SIZES[forward]
    x = VIEWS[name](d)
    out = np.empty(x.shape, x.dtype)
    before = simulator.load().launches()
    params, positions = params_of(mode, d, n_offs), positions_of(mode, x.shape[1])
    rope(x, positions, params, backend=backend, out=out, forward=forward)
    assert simulator.load().launches() == before + 1
    assert_moved_once([x], x.shape[1], d, backend)


PROJECTIONS = {
    "slices of a fused projection": lambda d: np.split(np.ones((1, 200, 48, d), np.float16), [32, 40], 2)[:2],
    "heads before tokens": lambda d: [
        np.ones((2, n, 100, d), np.float16).transpose(0, 2, 1, 3) for n in (32, 8)
    ],
    "one batch for two": lambda d: [
        np.broadcast_to(np.ones((1, 100, n, d), np.float16), (2, 100, n, d)) for n in (32, 8)
    ],
    "one head for all": lambda d: [
        np.broadcast_to(np.ones((1, 200, 1, d), np.float16), (1, 200, n, d)) for n in (32, 8)
    ],
}


@pytest.mark.parametrize("backend", DEVICES)
@pytest.mark.parametrize("name", PROJECTIONS)
@every_form
def test_views_of_queries_and_keys_are_read_and_written_without_a_copy(mode, n_offs, forward, name, backend):
    d = HEAD_SIZES[forward]
    xs = PROJECTIONS[name](d)
    outs = tuple(np.empty(x.shape, x.dtype) for x in xs)
    before = simulator.load().launches()
    params, positions = params_of(mode, d, n_offs), positions_of(mode, xs[0].shape[1])
    rope_qk(*xs, positions, params, backend=backend, out=outs, forward=forward)
    assert simulator.load().launches() == before + 1
    assert_moved_once(xs, xs[0].shape[1], d, backend)


MAX_ALLOCATED = 4096  # bytes, fewer than any tensor of this test has


@every_form
@pytest.mark.parametrize("name", [n for n in VIEWS if n != "one batch for two"])
def test_a_torch_call_on_a_view_allocates_no_tensor(mode, n_offs, forward, name):
    x = torch.from_numpy(VIEWS[name](64))
    q, k = torch.split(x, [x.shape[2] - 8, 8], dim=2)
    out, params = torch.empty(x.shape, dtype=x.dtype), params_of(mode, 64, n_offs)
    positions = torch.from_numpy(positions_of(mode, x.shape[1]))
    cache, rows = torch.zeros(x.shape[1], 32, 64, dtype=x.dtype), torch.arange(x.shape[1])
    calls = [
        lambda: rope(x, positions, params, out=out, forward=forward),
        lambda: rope(x, positions, params, out=x, forward=forward),
        lambda: rope_qk_(q, k, positions, params, forward=forward),
        lambda: rope_set_rows(x, positions, rows, cache, params, forward=forward),
    ]
    for call in calls:
        call()
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True
    ) as profile:
        for call in calls:
            call()
    assert sum(max(0, e.self_cpu_memory_usage) for e in profile.key_averages()) < MAX_ALLOCATED
