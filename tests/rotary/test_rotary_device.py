"""The operators with given tables on the device: their cost on the simulator, values, a refused call."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from ascend_sim import library as simulator
from head_repeats import repeats_by_instruction as rope_repeats_by_instruction
from rope_cases import NUMPY_DTYPES, values_of

from npu_rope import rotary_embedding, rotary_mul, rotary_mul_qk
from npu_rope.testing import rotary_spec
from npu_rope.testing.bounds import table_bound, worst_ratio

SHAPE = (1, 4096, 32, 128)
FORMS = [(width, interleaved) for width in ("half", "full") for interleaved in (False, True)]
forms = pytest.mark.parametrize(("width", "interleaved"), FORMS)


def tables(tokens, D, width, dtype=torch.bfloat16):
    generator = torch.Generator().manual_seed(0)
    return torch.rand((2, tokens, D if width == "full" else D // 2), generator=generator).to(dtype)


def share_of_roofline(necessary_bytes):
    """Return the last launch's share of the roofline, and its moved bytes over the necessary ones."""
    summary = simulator.load().report()["summary"]
    moved = summary["bytes_read"] + summary["bytes_written"]
    return necessary_bytes / summary["gm_bytes_per_cycle"] / summary["cycles"], moved / necessary_bytes


@forms
def test_prefill_moves_only_the_necessary_bytes_and_is_bound_by_the_memory(width, interleaved):
    x, (cos, sin) = torch.ones(SHAPE, dtype=torch.bfloat16), tables(4096, 128, width)
    rotary_mul(x, cos, sin, interleaved=interleaved, backend="sim")
    share, moved_ratio = share_of_roofline(2 * x.nbytes + cos.nbytes + sin.nbytes)
    assert share >= 0.95
    assert moved_ratio <= 1.001


@pytest.mark.parametrize("interleaved", [0, 1])
def test_gathered_rows_are_read_once_each(interleaved):
    x, (cos, sin) = torch.ones((1, 4096, 32 * 128), dtype=torch.bfloat16), tables(9000, 128, "half")
    ids = torch.randint(0, 9000, (1, 4096), generator=torch.Generator().manual_seed(0))
    rotary_embedding(x, cos, sin, ids, num_heads=32, interleaved=interleaved, backend="sim")
    share, moved_ratio = share_of_roofline(2 * x.nbytes + 2 * 4096 * cos[0].nbytes)
    assert share >= 0.85
    assert moved_ratio <= 1.05


def test_queries_and_keys_share_their_tables():
    q, k = (torch.ones((1, 4096, n, 128), dtype=torch.bfloat16) for n in (32, 8))
    cos, sin = tables(4096, 128, "full")
    before = simulator.load().launches()
    rotary_mul_qk(q, k, cos, sin, backend="sim")
    assert simulator.load().launches() == before + 1
    share, moved_ratio = share_of_roofline(2 * (q.nbytes + k.nbytes) + cos.nbytes + sin.nbytes)
    assert share >= 0.95
    assert moved_ratio <= 1.001


def count_repeats(dtype, heads, width, interleaved, backend):
    """Run rotary_mul and return the vector repeats of all cores."""
    x, (cos, sin) = (
        np.ones((1, 240, heads, 128), dtype),
        np.ones((2, 240, 128 if width == "full" else 64), dtype),
    )
    rotary_mul(x, cos, sin, interleaved=interleaved, backend=backend)
    summary = simulator.load().report()["summary"]
    return summary["vector_repeats"]


@forms
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("device", ["sim", "sim:ascend310p"])
def test_a_head_costs_as_many_repeats_as_in_rope(dtype, width, interleaved, device):
    few, many = (count_repeats(dtype, n, width, interleaved, device) for n in (32, 64))
    expected, _ = rope_repeats_by_instruction(dtype, "normal" if interleaved else "neox", device)
    assert (many - few) / (240 * 32) == pytest.approx(expected, rel=1e-6)


# ---- values ------------------------------------------------------------------------------------------


@forms
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("D", [128, 72, 18])
def test_every_bit_equals_the_cpus(dtype, D, width, interleaved):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((1, 300, 8, D)).astype(NUMPY_DTYPES[dtype])
    cos, sin = rng.standard_normal((2, 300, D if width == "full" else D // 2)).astype(NUMPY_DTYPES[dtype])
    on_device, on_cpu = (
        rotary_mul(x, cos, sin, interleaved=interleaved, backend=name) for name in ("sim", "cpu")
    )
    assert on_device.tobytes() == on_cpu.tobytes()


@pytest.mark.parametrize("device", ["sim", "sim:ascend310p"])
def test_a_result_beyond_the_range_of_float16_is_infinite(device):
    x, table = np.full((1, 1, 1, 4), 60000, np.float16), np.float16([[1, 1]])
    with np.errstate(over="ignore"):
        y = rotary_mul(x, table, table, backend=device)
        assert np.array_equal(y, rotary_mul(x, table, table, backend="cpu"))
    assert y.ravel()[2:].tolist() == [np.inf, np.inf]


@pytest.mark.parametrize("device", ["sim", "sim:ascend310p"])
def test_cos_and_sin_may_be_strided_views(device):
    rng = np.random.default_rng(0)
    x, memory = (rng.standard_normal(s).astype(np.float32) for s in ((1, 40, 3, 64), (40, 2, 64)))
    for cos, sin in (
        (memory[:, 0], memory[:, 1]),
        (memory[::-1, 1], memory[:, 1]),
        (np.broadcast_to(memory[:1, 0], (40, 64)), memory[:, 0]),
    ):
        value, magnitude = rotary_spec.rotary_mul(x, cos, sin, interleaved=False)
        y = rotary_mul(x, cos, sin, backend=device)
        assert worst_ratio(values_of(y), value, table_bound(magnitude, value, "float32"))[0] <= 1


@pytest.mark.parametrize("device", ["sim", "sim:ascend310p"])
def test_a_head_size_above_the_kernels_limit_is_refused(device):
    x, table = np.zeros((1, 1, 1, 1026), np.float32), np.zeros((1, 1026), np.float32)
    limit = r"must have a head size of at most 1024 on an NPU but got 1026\.$"
    with pytest.raises(ValueError, match=rf"^\[rotary_mul\] x {limit}"):
        rotary_mul(x, table, table, backend=device)
    with pytest.raises(ValueError, match=rf"^\[rotary_mul_qk\] q {limit}"):
        rotary_mul_qk(x, x, table, table, backend=device)
