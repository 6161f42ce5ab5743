"""The norms' kernels on the simulated device: traffic, time, and types that a chip lacks."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from ascend_sim import Options
from ascend_sim import library as simulator

from npu_rope import (
    RopeParams,
    add_rms_norm,
    qkv_norm_rope_cache,
    rms_norm,
    rms_norm_backward,
    rms_norm_rope,
    rope_qk,
)
from npu_rope.executors import rms_norm as executors
from npu_rope.rms_norm_calls import RmsNormAttributes, rms_norm_tensors
from npu_rope.testing import norm_spec
from npu_rope.testing.bounds import device_normalized_error

on_each_device = pytest.mark.parametrize("device", ["sim", "sim:ascend310p"])
D = 128


def measure(run, least=0):
    """Run a call of one launch. ``least`` is the number of bytes that it must move.

    Returns:
        The cycles of the launch; the moved bytes divided by ``least``; the share of the cycles in which the
        memory can move ``least`` bytes.
    """
    library = simulator.load()
    before = library.launches()
    run()
    assert library.launches() == before + 1
    summary = library.report()["summary"]
    moved, cycles = summary["bytes_read"] + summary["bytes_written"], summary["cycles"]
    return cycles, moved / max(least, 1), least / summary["gm_bytes_per_cycle"] / cycles


def inputs_of(tokens, dtype):
    generator = torch.Generator().manual_seed(0)
    q, k = (torch.randn((1, tokens, n, D), generator=generator).to(dtype) for n in (32, 8))
    scales = [torch.rand(D, generator=generator).to(dtype) for _ in range(2)]
    return q, k, scales, torch.arange(tokens, dtype=torch.int32)


@pytest.mark.long
@pytest.mark.parametrize("mode", ["neox", "normal"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_the_fused_launch_moves_each_byte_once_and_is_faster_than_its_parts(dtype, mode):
    q, k, scales, positions = inputs_of(1024, dtype)
    params = RopeParams(D, mode)
    least = 2 * (q.nbytes + k.nbytes) + positions.nbytes + 2 * scales[0].nbytes
    fused, moved, _ = measure(lambda: rms_norm_rope(q, k, *scales, positions, params, backend="sim"), least)
    parts = [
        measure(run)[0]
        for run in (
            lambda: rms_norm(q, scales[0], backend="sim"),
            lambda: rms_norm(k, scales[1], backend="sim"),
            lambda: rope_qk(q, k, positions, params, backend="sim"),
        )
    ]
    assert moved <= 1.01
    # In mode normal the kernel normalizes 16-bit heads and their partners separately, so pipe V is the limit.
    # Pipe V also waits for banks of UB.
    assert fused <= (0.85 if mode == "normal" and dtype != torch.float32 else 0.6) * sum(parts)


@pytest.mark.parametrize(
    ("shape", "dtype", "least_share"),
    [
        ((2048, 4096), torch.bfloat16, 0.9),
        ((2048, 4096), torch.float16, 0.9),
        ((2048, 4096), torch.float32, 0.9),
        ((1024 * 32, 128), torch.bfloat16, 0.9),
        ((200, 16384), torch.float32, 0.6),
    ],
)
def test_rows_are_read_and_written_once(shape, dtype, least_share):
    x, scale = torch.ones(shape, dtype=dtype), torch.ones(shape[1], dtype=dtype)
    least = 2 * x.nbytes + 48 * scale.nbytes  # each core reads the scale
    _, moved, memory_share = measure(lambda: rms_norm(x, scale, backend="sim"), least)
    assert moved <= 1.001
    assert memory_share >= least_share


def test_rows_that_do_not_fit_into_ub_are_read_twice():
    x, scale = torch.ones((48, 200_000)), torch.ones(200_000)
    _, moved, _ = measure(lambda: rms_norm(x, scale, backend="sim"), 3 * x.nbytes + 48 * scale.nbytes)
    assert moved == pytest.approx(1, rel=0.01)


def test_add_rms_norm_moves_each_byte_once():
    x, scale = torch.ones((2048, 4096), dtype=torch.bfloat16), torch.ones(4096, dtype=torch.bfloat16)
    least = 4 * x.nbytes + 48 * scale.nbytes
    _, moved, memory_share = measure(lambda: add_rms_norm(x, x.clone(), scale, backend="sim"), least)
    assert moved <= 1.001
    assert memory_share >= 0.9


# ---- values ------------------------------------------------------------------------------------------


@on_each_device
@pytest.mark.parametrize("saturate", [False, True])
def test_no_float16_overflow_makes_a_nan(device, saturate):
    soc = "ascend310p" if device.endswith("310p") else "ascend910b"
    x = np.full((5, 4096), 65504, np.float16)
    t = rms_norm_tensors(x, np.ones(4096, np.float16))
    (y,) = executors.on_sim(Options(soc, saturate=saturate), t, RmsNormAttributes())
    assert np.all(y == 1)


@on_each_device
@pytest.mark.parametrize("cores", [1, 3])
@pytest.mark.parametrize("shape", [(37, 48), (5, 6, 7, 40), (3, 20_000)])
def test_the_split_among_cores_changes_no_bit(device, cores, shape):
    soc = "ascend310p" if device.endswith("310p") else "ascend910b"
    x = np.random.default_rng(0).standard_normal(shape, np.float32)
    t, a = rms_norm_tensors(x, np.ones(shape[-1], np.float32)), RmsNormAttributes()
    (limited,) = executors.on_sim(Options(soc, most_cores=cores), t, a)
    (unlimited,) = executors.on_sim(Options(soc), t, a)
    assert limited.tobytes() == unlimited.tobytes()


@on_each_device
@pytest.mark.parametrize("n", [2039, 2041, 2050])
def test_long_rows_of_a_size_without_whole_blocks_are_normalized(device, n):
    """On an Ascend310P the kernel pads these rows with zeros; the longer ones are further apart than a vector
    instruction's repeats can be."""
    generator = np.random.default_rng(n)
    x, residual, grad = (generator.uniform(-9, 9, (40, n)).astype(np.float32) for _ in range(3))
    scale = generator.uniform(0.5, 2, n).astype(np.float32)

    def within_bound(got, values):
        call = norm_spec.NormCall(values, scale, "float32", "float32")
        expected, bound = norm_spec.rms_norm(call, device_normalized_error(n))
        return bool((np.abs(got - expected) <= bound).all())

    assert within_bound(rms_norm(x, scale, backend=device), x)
    y, total = add_rms_norm(x, residual, scale, backend=device)
    assert within_bound(y, total)
    call = norm_spec.NormCall(x, scale, "float32", "float32")
    gradients = rms_norm_backward(grad, x, scale, backend=device)
    for got, (expected, bound) in zip(gradients, norm_spec.rms_norm_backward(call, grad, "sim"), strict=True):
        assert (np.abs(got - expected) <= bound).all()


@pytest.mark.parametrize(
    ("device", "stash_type", "text"),
    [
        ("sim", 11, "1 (float32), 10 (float16) or 16 (bfloat16) on Ascend910B1 but got 11 (float64)"),
        ("sim:ascend310p", 16, "1 (float32) or 10 (float16) on Ascend310P3 but got 16 (bfloat16)"),
    ],
)
def test_stash_types_that_a_chip_lacks_are_refused(device, stash_type, text):
    x = np.ones((2, 8), np.float32)
    with pytest.raises(ValueError, match="stash_type") as caught:
        rms_norm(x, x[0], stash_type=stash_type, backend=device)
    assert str(caught.value) == f"[rms_norm] stash_type must be {text}."


@on_each_device
def test_an_epsilon_above_2_to_the_64_is_refused(device):
    x, positions = np.ones((1, 2, 1, 8), np.float32), np.arange(2)
    params, scale = RopeParams(8, "neox"), np.ones(8, np.float32)
    for run in (
        lambda epsilon: rms_norm(x, scale, epsilon=epsilon, backend=device),
        lambda epsilon: rms_norm_rope(x, x, scale, scale, positions, params, epsilon=epsilon, backend=device),
        lambda epsilon: qkv_norm_rope_cache(
            x[0], x[0], None, positions, params, q_scale=scale, epsilon=epsilon, backend=device
        ),
    ):
        run(2.0**64)
        with pytest.raises(
            ValueError, match=r"epsilon must be at most 2\^64 on the device but got 3.68935e\+19"
        ):
            run(2.0**65)


@on_each_device
def test_float64_is_refused(device):
    x = np.ones((2, 8))
    with pytest.raises(TypeError, match=r"\[rms_norm\] x must be float32.* but got float64"):
        rms_norm(x, x[0], backend=device)


@on_each_device
def test_a_scale_that_must_be_expanded_has_a_gradient_of_its_shape(device):
    """The dimensions form five groups, of which two are broadcast; a launch supports fewer."""
    rng = np.random.default_rng(0)
    grad, x = rng.standard_normal((2, 2, 3, 2, 3, 2), np.float32)
    scale = rng.standard_normal((2, 1, 2, 1, 2), np.float32)
    ours, expected = (rms_norm_backward(grad, x, scale, axis=0, backend=b) for b in (device, "reference"))
    for a, b in zip(ours, expected, strict=True):
        assert a.shape == b.shape
        assert np.abs(a - b).max() < 1e-5
