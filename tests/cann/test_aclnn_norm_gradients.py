"""NpuRmsNormBackward through aclnn, on the simulated operator package. dx equals that of the back end sim
bit for bit. The kernel adds to dscale in an order that depends on the tiling, so dscale meets its bound.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from aclnn import RefusedPhase, strides_of
from aclnn_calls import CHIPS, random_view

from npu_rope import rms_norm_backward
from npu_rope.testing import norm_spec
from npu_rope.testing.bounds import worst_ratio
from npu_rope.testing.norm_spec import NormCall

OP, ORDER = "NpuRmsNormBackward", ("grad", "x", "scale", "dscale", "dx_out")


def launch(device: Any, arguments: dict[str, Any]) -> None:
    """Run the operator, with the strides of all tensors if one is a view."""
    arguments = {"axis": -1, "epsilon": 1e-5, "stash_type": 1, **arguments}
    views = [arguments[name] for name in ORDER]
    if not all(v.flags.c_contiguous for v in views):
        arguments["strides"] = strides_of(*views)
    device.call(OP, arguments)


@pytest.mark.long
@pytest.mark.parametrize("backend", CHIPS)
def test_random_calls_have_the_simulators_dx_and_a_dscale_within_its_bound(device, backend):
    device.set_soc(CHIPS[backend])
    rng, dtypes = np.random.default_rng(5), [np.dtype(np.float32), np.dtype(np.float16)]
    if backend == "sim":
        dtypes.append(np.dtype(ml_dtypes.bfloat16))
    for _ in range(60):
        dtype, scale_dtype = (dtypes[rng.integers(len(dtypes))] for _ in range(2))
        shape = tuple(int(rng.integers(1, limit)) for limit in (4, 40, 9, 90))
        axis = -1 if rng.random() < 0.7 else 2
        options = {
            "epsilon": float(np.float32(rng.choice([0, 1e-5, 1]))),
            "stash_type": int(rng.choice([1, 10])),
        }
        x, grad, dx = (
            random_view(rng, shape, t) if axis == -1 else rng.standard_normal(shape).astype(t)
            for t in (dtype, scale_dtype, dtype)
        )
        scale = rng.standard_normal(shape[axis:]).astype(scale_dtype)
        sums = np.zeros(scale.shape, np.float32)
        dx_of_sim, _ = rms_norm_backward(grad, x, scale, axis=axis, **options, backend=backend)
        tensors = {"grad": grad, "x": x, "scale": scale, "dscale": sums, "dx_out": dx}
        launch(device, {**tensors, "axis": axis, **options})
        assert np.ascontiguousarray(dx).tobytes() == dx_of_sim.tobytes(), (shape, dtype, scale_dtype, options)
        x64, scale64, grad64 = (a.astype(np.float64) for a in (x, scale, grad))
        spec = NormCall(x64, scale64, dtype.name, scale_dtype.name, axis, **options)
        _, (value, bound) = norm_spec.rms_norm_backward(spec, grad64, "sim")
        assert worst_ratio(sums.astype(scale_dtype).astype(np.float64), value, bound)[0] <= 1


@pytest.mark.parametrize("n", [5, 33])
@pytest.mark.parametrize("backend", CHIPS)
def test_sums_are_added_to_the_values_of_dscale(device, backend, n):
    device.set_soc(CHIPS[backend])
    x, sums = np.random.default_rng(0).random((2, n), np.float32), np.zeros(n, np.float32)
    tensors = {"grad": x, "x": x.copy(), "scale": np.ones(n, np.float32), "dscale": sums, "dx_out": x.copy()}
    launch(device, tensors)
    first = sums.copy()
    launch(device, tensors)
    assert first.all()
    assert (sums == 2 * first).all()


def test_bad_calls_are_refused_with_the_operators_message_and_write_nothing(device):
    x, sums, dx = np.ones((2, 3, 8), np.float32), np.zeros(8, np.float32), np.full((2, 3, 8), 7, np.float32)
    scales = np.ones((3, 8), np.float32)
    for changed, text in (
        ({"dscale": np.zeros(7, np.float32)}, "dscale must have scale's shape [8] but got [7]."),
        ({"grad": x[:1]}, "grad must have x's shape [2, 3, 8] but got [1, 3, 8]."),
        (
            {"scale": scales, "dscale": 0 * scales},
            "scale must have the elements of one row, [8], for all rows",
        ),
        ({"stash_type": 11}, "stash_type must be 1 (float32), 10 (float16) or 16 (bfloat16) on Ascend910B"),
    ):
        tensors = {"grad": x, "x": x.copy(), "scale": sums.copy(), "dscale": sums, "dx_out": dx}
        with pytest.raises(RefusedPhase) as caught:
            launch(device, {**tensors, **changed})
        message = f"[rms_norm_backward] {text}"
        assert (caught.value.status, message in str(caught.value)) == (561002, True), str(caught.value)
        assert (dx == 7).all()
        assert not sums.any()
