"""rms_norm_backward in torch's deterministic mode: the order of the cores does not change its results.

The simulator runs the cores in both orders. In this mode it compares all bits (SIM-CORE-04); otherwise it
permits sums of atomic copies to differ.
"""

from __future__ import annotations

from contextlib import contextmanager

import changed_kernel
import numpy as np
import pytest
import torch
from ascend_sim import library as simulator
from norm_cases import NUMPY_DTYPES

from npu_rope import rms_norm_backward
from npu_rope.errors import InternalError
from npu_rope.testing import norm_spec
from npu_rope.testing.bounds import worst_ratio

DEVICES = ("sim", "sim:ascend310p", "sim:ascend950")


@contextmanager
def deterministic(mode=True, **options):
    torch.use_deterministic_algorithms(mode, **options)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


def rows_of_ones(device, rows, n):
    """Return x and scale with rows that normalize to ones exactly, and the cores of a call of these sizes."""
    x, scale = np.ones((rows, n), np.float32), np.ones(n, np.float32)
    rms_norm_backward(np.zeros_like(x), x, scale, epsilon=0.0, backend=device)
    return x, scale, int(simulator.load().report()["summary"]["cores"])


def grad_with_one_row_for_each_core(rows, n, cores):
    """Return a gradient of y that is zero except in the first row of each core's share, and those rows."""
    groups, larger = divmod(rows, cores)
    first = [core * groups + min(core, larger) for core in range(cores)]
    grad = np.zeros((rows, n), np.float32)
    rng = np.random.default_rng(0)
    grad[first] = rng.standard_normal((cores, n)) * 2.0 ** rng.integers(-12, 12, (cores, n))
    return grad, grad[first]


def added_one_after_another(rows):
    total = np.zeros(rows.shape[1], np.float32)
    for row in rows:
        total += row
    return total


def added_as_a_tree(rows):
    """Add the second half of the rows to the first half, until one is left."""
    rows = rows.copy()
    while len(rows) > 1:
        half = 1 << (len(rows) - 1).bit_length() - 1
        rows[: len(rows) - half] += rows[half:]
        rows = rows[:half]
    return rows[0]


@pytest.mark.parametrize("device", DEVICES)
def test_the_cores_are_added_in_a_fixed_order_and_otherwise_in_the_order_in_which_they_finish(device):
    """Without the mode, the result has the bits of the order in which the simulator runs the cores, the
    ascending one. The reverse order has other bits."""
    rows, n = 1000, 1024  # the root of n is exact
    x, scale, cores = rows_of_ones(device, rows, n)
    assert cores > 4
    grad, of_cores = grad_with_one_row_for_each_core(rows, n, cores)
    _, dscale = rms_norm_backward(grad, x, scale, epsilon=0.0, backend=device)
    assert dscale.tobytes() == added_one_after_another(of_cores).tobytes()
    assert (dscale != added_one_after_another(of_cores[::-1])).sum() > n // 10
    with deterministic():
        _, dscale = rms_norm_backward(grad, x, scale, epsilon=0.0, backend=device)
    # The cores of Ascend310P add one after another, in ascending order.
    in_order = added_one_after_another if device == "sim:ascend310p" else added_as_a_tree
    assert dscale.tobytes() == in_order(of_cores).tobytes()


# Rows in one tile, rows in chunks whose sums stay in UB, and longer ones whose sums do not.
SIZES = {
    "short": (333, 64),
    "ragged": (200, 71),
    "odd": (97, 1003),
    "chunks": (19, 20001),
    "few": (7, 20001),  # a core adds more sums than its scratch memory has room for
    "long": (13, 70001),
    "wide": (3, 600001),  # more than 65,535 blocks between the sums of two cores
}


SLOWNESS = {"long": pytest.mark.slow, "wide": pytest.mark.long}


@pytest.mark.parametrize("size", [pytest.param(s, marks=SLOWNESS.get(s, ())) for s in SIZES])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("device", DEVICES)
def test_gradients_are_within_their_bounds(device, dtype, size):
    if (device, dtype) == ("sim:ascend310p", "bfloat16"):
        pytest.skip("Ascend310P has no bfloat16")
    shape = SIZES[size]
    rng = np.random.default_rng(1)
    x, grad = (rng.standard_normal(shape).astype(NUMPY_DTYPES[dtype]) for _ in range(2))
    scale = rng.standard_normal(shape[1]).astype(NUMPY_DTYPES[dtype])
    with deterministic():
        results = rms_norm_backward(grad, x, scale, backend=device)
        again = rms_norm_backward(grad, x, scale, backend=device)
    assert simulator.load().report()["summary"]["cores"] > 1
    call = norm_spec.NormCall(x.astype(float), scale.astype(float), dtype, dtype)
    expected = norm_spec.rms_norm_backward(call, grad.astype(float), device)
    for ours, second, (value, bound) in zip(results, again, expected, strict=True):
        assert worst_ratio(ours.astype(float), value, bound)[0] <= 1
        assert ours.tobytes() == second.tobytes()


def test_dx_on_a_device_does_not_depend_on_the_mode():
    rng = np.random.default_rng(2)
    x, grad = (rng.standard_normal((300, 256)).astype(np.float32) for _ in range(2))
    scale = rng.standard_normal(256).astype(np.float32)
    expected, _ = rms_norm_backward(grad, x, scale, backend="sim")
    with deterministic(warn_only=True):
        dx, _ = rms_norm_backward(grad, x, scale, backend="sim")
    assert dx.tobytes() == expected.tobytes()


def test_one_core_of_a_device_needs_no_order():
    x, scale = np.ones((2, 8), np.float32), np.ones(8, np.float32)
    with deterministic():
        _, dscale = rms_norm_backward(x, x, scale, epsilon=0.0, backend="sim")
    summary = simulator.load().report()["summary"]
    assert summary["cores"] == 1
    assert np.array_equal(dscale, np.full(8, 2, np.float32))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "rule"),
    [("order of the cores ignored", "SIM-CORE-04"), ("no wait for the other cores", "SIM-CORE-02")],
)
def test_a_kernel_whose_result_depends_on_the_order_of_the_cores_is_reported(
    change, rule, tmp_path, monkeypatch
):
    library = changed_kernel.build_backward(tmp_path, change)
    monkeypatch.setenv(changed_kernel.KERNELS_VARIABLE, str(library))
    rng = np.random.default_rng(4)
    x, grad = (rng.standard_normal((300, 256)).astype(np.float32) for _ in range(2))
    with deterministic(), pytest.raises(InternalError, match=rule):
        rms_norm_backward(grad, x, np.ones(256, np.float32), backend="sim")
