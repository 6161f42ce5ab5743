"""NpuRotaryMul and NpuRotaryMulQk through aclnn's two phases, on the simulated operator package. The results
equal those of the back end sim bit for bit.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from aclnn import RefusedPhase, strides_of
from aclnn_calls import CHIPS, random_view

from npu_rope import rotary_embedding, rotary_mul, rotary_mul_qk

ORDER = ("x", "q", "k", "cos", "sin", "position_ids", "out", "q_out", "k_out")


def launch(device: Any, tensors: dict[str, Any], **attributes: Any) -> None:
    """Run the operator, with the strides of all tensors if one is a view."""
    views = [tensors[name] for name in ORDER if tensors.get(name) is not None]
    arguments = {"interleaved": False, "rotary_dim": 0, "offset": 0, "forward": True, **attributes}
    if not all(v.flags.c_contiguous for v in views):
        arguments.setdefault("strides", strides_of(*views))
    if "q" in tensors:
        outputs = {"q_out_out": tensors["q_out"], "k_out_out": tensors["k_out"]}
        inputs = {name: t for name, t in tensors.items() if not name.endswith("_out")}
        device.call("NpuRotaryMulQk", {**inputs, **outputs, **arguments})
    else:
        device.call("NpuRotaryMul", {"position_ids": None, **tensors, **arguments})


@pytest.mark.long
@pytest.mark.parametrize("backend", CHIPS)
def test_random_calls_equal_the_simulators_bit_for_bit(device, backend):
    device.set_soc(CHIPS[backend])
    rng, dtypes = np.random.default_rng(5), [np.float32, np.float16]
    if backend == "sim":
        dtypes.append(np.dtype(ml_dtypes.bfloat16))
    for _ in range(100):
        dtype = dtypes[rng.integers(len(dtypes))]
        b, s, n, d = (int(rng.integers(1, limit)) for limit in (4, 30, 9, 90))
        d *= 2
        width = d if rng.random() < 0.5 else 2 * int(rng.integers(1, d // 2 + 1))
        options = {
            "rotary_dim": width,
            "offset": 2 * int(rng.integers(0, (d - width) // 2 + 1)),
            "interleaved": bool(rng.random() < 0.5),
        }
        table = np.float32 if rng.random() < 0.5 else dtype
        entries = width if rng.random() < 0.5 else width // 2
        lead = [(s,), (b, s), (1, s, 1)][rng.integers(3)]
        x, k = random_view(rng, (b, s, n, d), dtype), random_view(rng, (b, s, 2, d), dtype)
        cos, sin = random_view(rng, (*lead, entries), table), random_view(rng, (*lead, entries), table)
        launches = device.launches()
        if rng.random() < 0.5:
            out = random_view(rng, (b, s, n, d), dtype)
            launch(device, {"x": x, "cos": cos, "sin": sin, "out": out}, **options)
            assert device.launches() == launches + 1
            got, expected = (out,), (rotary_mul(x, cos, sin, **options, backend=backend),)
        else:
            got = (random_view(rng, (b, s, n, d), dtype), random_view(rng, (b, s, 2, d), dtype))
            launch(
                device, {"q": x, "k": k, "cos": cos, "sin": sin, "q_out": got[0], "k_out": got[1]}, **options
            )
            assert device.launches() == launches + 1
            expected = rotary_mul_qk(x, k, cos, sin, **options, backend=backend)
        for y, e in zip(got, expected, strict=True):
            assert np.ascontiguousarray(y).tobytes() == e.tobytes(), (x.shape, cos.shape, options)


@pytest.mark.parametrize("backend", CHIPS)
def test_rows_are_gathered_and_row_numbers_out_of_range_are_clamped(device, backend):
    device.set_soc(CHIPS[backend])
    rng = np.random.default_rng(0)
    for width in (64, 36):  # whole blocks of 32 bytes, and incomplete ones
        x, (cos, sin) = rng.random((2, 4, 3, width), np.float32), rng.random((2, 9, width // 2), np.float32)
        ids = np.array([[0, 8, 3, 3], [-1, 9, 2**40, -(2**63)]])
        out = np.empty_like(x)
        launch(device, {"x": x, "cos": cos, "sin": sin, "position_ids": ids, "out": out})
        X = x.swapaxes(1, 2)
        Y = rotary_embedding(X, cos, sin, np.clip(ids, 0, 8), backend=backend)
        assert np.array_equal(out, Y.swapaxes(1, 2))


@pytest.mark.parametrize("backend", CHIPS)
def test_the_transposed_rotation_undoes_a_rotation(device, backend):
    device.set_soc(CHIPS[backend])
    rng = np.random.default_rng(0)
    x, angles = rng.random((2, 5, 3, 64), np.float32), rng.random((5, 32), np.float32)
    tables = {"cos": np.cos(angles), "sin": np.sin(angles)}
    rotated, back = np.empty_like(x), np.empty_like(x)
    launch(device, {"x": x, **tables, "out": rotated})
    launch(device, {"x": rotated, **tables, "out": back}, forward=False)
    assert np.allclose(back, x, atol=1e-6)


def test_bad_calls_are_refused_with_the_operators_message_and_write_nothing(device):
    x, table = np.ones((1, 5, 2, 8), np.float32), np.ones((5, 4), np.float32)
    out = np.full_like(x, 7)
    for changed, text in (
        ({"cos": table[:4]}, "[rotary_mul] cos must have shape [S,W], [B,S,W] or [B,S,1,W] with S = 5"),
        ({"rotary_dim": 7}, "[rotary_mul] rotary_dim must be 0 or an even number up to the head size 8"),
        ({"offset": -2}, "[rotary_mul] offset must be an even number >= 0 but got -2."),
        (
            {"position_ids": np.zeros((2, 5), np.int64)},
            "[rotary_mul] position_ids must have shape [B, S] = [1, 5]",
        ),
    ):
        arguments = {"x": x, "cos": table, "sin": table.copy(), "out": out, **changed}
        tensors = {
            name: arguments.pop(name) for name in list(arguments) if isinstance(arguments[name], np.ndarray)
        }
        with pytest.raises(RefusedPhase) as caught:
            launch(device, tensors, **arguments)
        assert (caught.value.status, text in str(caught.value)) == (561002, True), str(caught.value)
        assert (out == 7).all()
