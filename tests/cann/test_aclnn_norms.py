"""NpuRmsNorm, NpuAddRmsNorm, NpuRmsNormRope and NpuQkSquareSums through aclnn's two phases, on the simulated
operator package. The results equal those of the back end sim bit for bit.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from aclnn import RefusedPhase, strides_of
from aclnn_calls import CHIPS, random_view

from npu_rope import RopeParams, add_rms_norm, qk_square_sums, rms_norm, rms_norm_rope
from npu_rope.qkv_norm_rope_cache_calls import CACHES, OTHERS, XS, QkvAttributes
from npu_rope.rope_calls import RopeCallAttributes

NORM = {"axis": -1, "epsilon": float(np.float32(1e-5)), "stash_type": 1}


def types_of(backend: str) -> list[Any]:
    return [np.float32, np.float16, *([np.dtype(ml_dtypes.bfloat16)] if backend == "sim" else [])]


def with_strides(arguments: dict[str, Any], *views: np.ndarray) -> dict[str, Any]:
    """Return the arguments, with the strides of these tensors if one is a view."""
    if all(v.flags.c_contiguous for v in views):
        return arguments
    return {**arguments, "strides": strides_of(*views)}


def bits(a: np.ndarray) -> bytes:
    return np.ascontiguousarray(a).tobytes()


@pytest.mark.parametrize("backend", CHIPS)
def test_random_norms_equal_the_simulators_bit_for_bit(device, backend):
    device.set_soc(CHIPS[backend])
    rng, types = np.random.default_rng(6), types_of(backend)
    for _ in range(60):
        dtype, scale_dtype = (types[rng.integers(len(types))] for _ in range(2))
        shape = (
            *(int(n) for n in rng.integers(1, 7, rng.integers(0, 3))),
            int(rng.choice([1, 3, 40, 128, 5000])),
        )
        axis = int(rng.integers(-len(shape), len(shape)))
        x = (
            random_view(rng, shape, dtype)
            if axis % len(shape) == len(shape) - 1
            else rng.random(shape).astype(dtype)
        )
        scale = rng.standard_normal(shape[axis:] if rng.random() < 0.7 else shape[-1:]).astype(scale_dtype)
        out = np.empty(shape, scale_dtype)
        options = {
            "axis": axis,
            "epsilon": float(np.float32(1e-6)),
            "stash_type": int(rng.choice([1, 1, 10])),
        }
        launches = device.launches()
        device.call(
            "NpuRmsNorm", with_strides({"x": x, "scale": scale, "out": out, **options}, x, scale, out)
        )
        assert device.launches() == launches + 1
        assert bits(out) == bits(rms_norm(x, scale, **options, backend=backend)), (shape, axis, scale.shape)


@pytest.mark.parametrize("backend", CHIPS)
def test_random_sums_and_their_norms_equal_the_simulators_bit_for_bit(device, backend):
    device.set_soc(CHIPS[backend])
    rng, types = np.random.default_rng(7), types_of(backend)
    for _ in range(40):
        dtype, scale_dtype = (types[rng.integers(len(types))] for _ in range(2))
        shape = (int(rng.integers(1, 7)), int(rng.choice([1, 3, 40, 128, 5000])))
        x, residual = (random_view(rng, shape, dtype) for _ in range(2))
        scale = rng.standard_normal(shape[-1:]).astype(scale_dtype)
        out, total = np.empty(shape, scale_dtype), np.empty(shape, dtype)
        arguments = {"x": x, "residual": residual, "scale": scale, "out_out": out, "sum_out": total, **NORM}
        device.call("NpuAddRmsNorm", with_strides(arguments, x, residual, scale, out, total))
        assert bits(total) == bits((x.astype(np.float32) + residual.astype(np.float32)).astype(dtype))
        expected = add_rms_norm(x, residual, scale, backend=backend)
        assert [bits(y) for y in (out, total)] == [bits(y) for y in expected], shape


@pytest.mark.long
@pytest.mark.parametrize("backend", CHIPS)
def test_random_norms_with_rotations_equal_the_simulators_bit_for_bit(device, backend):
    device.set_soc(CHIPS[backend])
    rng, types = np.random.default_rng(8), types_of(backend)
    for _ in range(40):
        dtype = types[rng.integers(len(types))]
        b, s, n, d = (int(rng.integers(1, limit)) for limit in (4, 30, 9, 70))
        d *= 2
        width = d if rng.random() < 0.5 else 2 * int(rng.integers(1, d // 2 + 1))
        params = RopeParams(width, "neox" if rng.random() < 0.5 else "normal")
        q, k = random_view(rng, (b, s, n, d), dtype), random_view(rng, (b, s, 2, d), dtype)
        scales = [rng.standard_normal(d).astype(dtype) for _ in range(2)]
        positions = rng.integers(0, 5000, (b, s)).astype(np.int32)
        rounds, cached = bool(rng.random() < 0.5), bool(rng.random() < 0.5)
        options = {"intermediate_rounding": rounds, "backend": backend}
        q_out, k_out = np.empty((b, s, n, d), dtype), np.empty((b, s, 2, d), dtype)
        arguments = {"q": q, "k": k, "q_scale": scales[0], "k_scale": scales[1], "positions": positions}
        arguments |= {"rows": None, "freq_factors": None, "cache": None}
        arguments |= {**RopeCallAttributes(params).as_schema(), "intermediate_rounding": rounds}
        arguments["mode"] = arguments.pop("rope_mode")  # CANN's name
        arguments["epsilon"] = NORM["epsilon"]
        views = [q, k, positions, q_out, k_out]
        if cached:
            k_out = rng.random((b * s + 2, 2, d)).astype(dtype)
            rows = rng.permutation(b * s + 2)[: b * s].reshape(b, s)
            rows.flat[0] = rng.choice([rows.flat[0], -1])
            expected = rms_norm_rope(
                q, k, *scales, positions, params, rows=rows, cache=k_out.copy(), **options
            )
            arguments |= {"rows": rows, "cache": k_out}
            views = [q, k, positions, rows, k_out, q_out, k_out]
        else:
            expected = rms_norm_rope(q, k, *scales, positions, params, **options)
        launches = device.launches()
        device.call(
            "NpuRmsNormRope", with_strides({**arguments, "q_out_out": q_out, "k_out_out": k_out}, *views)
        )
        assert device.launches() == launches + 1
        for y, e in zip((q_out, k_out), expected, strict=True):
            assert bits(y) == bits(e), (q.shape, width, rounds, cached)


@pytest.mark.long
@pytest.mark.parametrize("backend", CHIPS)
def test_random_sums_of_squares_equal_the_simulators_bit_for_bit(device, backend):
    device.set_soc(CHIPS[backend])
    rng, types = np.random.default_rng(9), types_of(backend)
    for _ in range(40):
        dtype = types[rng.integers(len(types))]
        tokens, size = int(rng.integers(1, 40)), int(rng.choice([1, 5, 40, 64, 128, 9000]))
        q, k = (random_view(rng, (tokens, int(rng.integers(1, 9)), size), dtype) for _ in "qk")
        out = np.empty((tokens, 2), np.float32)
        arguments = {"q": q, "k": k, "has_q": True, "has_k": True, "out": out}
        launches = device.launches()
        device.call("NpuQkSquareSums", with_strides(arguments, q, k, out))
        assert device.launches() == launches + 1
        assert bits(out) == bits(qk_square_sums(q, k, backend=backend)), (q.shape, k.shape)
        for name, sides in (("has_k", (q, k[:, :0])), ("has_q", (q[:, :0], k))):
            part = np.full_like(out, 7)
            device.call("NpuQkSquareSums", with_strides({**arguments, name: False, "out": part}, q, k, out))
            assert bits(part) == bits(qk_square_sums(*sides, backend=backend))


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"k_scale": np.ones(16, np.float32)}, "k_scale must have q_scale's dtype float16 on an NPU"),
        (
            {"slots": np.arange(4, dtype=np.int32), "k_cache": np.zeros((4, 2, 16), np.float32)},
            "k_out must have the cache's dtype float32 but got float16.",
        ),
    ],
)
def test_optional_tensors_of_qkv_norm_rope_cache_of_other_types_are_refused(device, changed, text):
    """CANN chooses a kernel by the types of the required tensors."""
    x = np.ones((4, 2, 16), np.float16)
    given = dict.fromkeys((*XS, *OTHERS, *CACHES))
    given |= {
        "q": x,
        "k": x.copy(),
        "q_scale": np.ones(16, np.float16),
        "positions": np.arange(4, dtype=np.int32),
    }
    given |= {"q_out_out": x.copy(), "k_out_out": x.copy(), "v_out_out": np.ones(1, np.float16)}
    given |= dict.fromkeys(("normalizes_q", "has_positions", "has_q", "has_k"), True)
    given |= QkvAttributes(RopeParams(16)).as_aclnn()
    device.call("NpuQkvNormRopeCache", given)
    with pytest.raises(RefusedPhase) as caught:
        device.call("NpuQkvNormRopeCache", given | changed)
    assert f"[qkv_norm_rope_cache] {text}" in str(caught.value)


def test_bad_sums_of_squares_are_refused(device):
    x, out = np.ones((4, 2, 8), np.float32), np.full((4, 2), 7, np.float32)
    wide = np.full((4, 3), 7, np.float32)
    given = {"q": x, "k": x.copy(), "has_q": True, "has_k": True, "out": out}
    for changed, text in (
        ({"k": np.ones((3, 2, 8), np.float32)}, "k must have q's shape [4, 2, 8] except for the heads"),
        ({"out": out.T.copy()}, "out must have shape [S,2] = [4, 2] but got [2, 4]"),
        ({"out": wide[:, :2]}, "out must be contiguous on an NPU but got strides [3, 1]"),
        ({"has_q": False, "has_k": False}, "q must have elements on an NPU but got shape [4, 2, 8]"),
    ):
        arguments = {**given, **changed}
        views = (arguments[name] for name in ("q", "k", "out"))
        with pytest.raises(RefusedPhase) as caught:
            device.call("NpuQkSquareSums", with_strides(arguments, *views))
        assert f"[qk_square_sums] {text}" in str(caught.value)
        assert np.all(out == 7)
        assert np.all(wide == 7)


def test_bad_calls_are_refused_with_the_operators_message_and_write_nothing(device):
    x, scale, out = np.ones((2, 8), np.float32), np.ones(8, np.float32), np.full((2, 8), 7, np.float32)
    for changed, text in (
        (
            {"scale": scale[:5].copy()},
            "[rms_norm] scale must be broadcastable to x's shape [2, 8] but got [5].",
        ),
        ({"axis": 2}, "[rms_norm] axis must be in [-2, 1] but got 2."),
        ({"epsilon": -1.0}, "[rms_norm] epsilon must be >= 0 and finite in float32 but got -1."),
        ({"stash_type": 11}, "[rms_norm] stash_type must be 1 (float32), 10 (float16) or 16 (bfloat16)"),
    ):
        with pytest.raises(RefusedPhase) as caught:
            device.call("NpuRmsNorm", {"x": x, "scale": scale, "out": out, **NORM, **changed})
        assert text in str(caught.value)
        assert np.all(out == 7)
