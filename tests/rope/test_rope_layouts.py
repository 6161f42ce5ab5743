"""rope on strided memory: it touches no other memory, and copies x only if its last stride is not 1."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from rope_cases import (
    NUMPY_DTYPES,
    assert_within,
    layout_strides,
    to_torch,
    try_rope,
    values_of,
)
from together import together

from npu_rope import RopeParams, native, rope
from npu_rope.executors import rotations as executors
from npu_rope.native import CTensor
from npu_rope.rope_calls import RopeCallAttributes, rope_tensors

DTYPES = list(NUMPY_DTYPES)
MODES = ["normal", "neox"]
SHAPE = (2, 6, 3, 40)
PARAMS = {m: RopeParams(32, m, n_offs=4) for m in MODES}


def normal(shape, dtype, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(NUMPY_DTYPES[dtype])


@together("x_layout", ["contiguous", "bnsd", "fused-qkv", "gaps", "reversed", "shared-batch"])
@together("out_layout", ["contiguous", "bnsd", "fused-qkv", "gaps", "reversed"])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_x_and_out_may_have_any_strides_of_b_s_n(dtype, mode, x_layout, out_layout, backend, guarded):
    values = normal(SHAPE, dtype)
    if x_layout == "shared-batch":
        values[...] = values[:1]
    x = guarded.input(values, layout_strides(x_layout, SHAPE))
    out = guarded.empty(SHAPE, values.dtype, layout_strides(out_layout, SHAPE))
    positions = np.arange(6) * 1000
    if try_rope(x, positions, PARAMS[mode], out=out, backend=backend) is not None:
        assert_within(out, values, positions, PARAMS[mode], dtype=dtype, backend=backend)


@together("layout", ["bnsd", "fused-qkv", "gaps", "reversed"])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_in_place_works_with_any_strides(dtype, mode, layout, backend, guarded):
    values = normal(SHAPE, dtype)
    x = guarded.empty(SHAPE, values.dtype, layout_strides(layout, SHAPE))
    x[...] = values
    if try_rope(x, np.arange(6), PARAMS[mode], out=x, backend=backend) is not None:
        assert_within(x, values, np.arange(6), PARAMS[mode], dtype=dtype, backend=backend)


# Strides that one instruction of the device cannot encode: rows of a copy that are 2 MiB apart, rows of a
# vector instruction more than 255 blocks apart. Values: shape, dtype, strides of B, S and N, n_dims.
WIDE_STRIDES = {
    "rows 2 MiB apart": ((1, 20, 1, 128), "float32", (0, 2**19 + 64, 128), 128),
    "heads before tokens": ((60, 2, 16, 1024), "float16", (2 * 16 * 1024, 1024, 2 * 1024), 1024),
    "wide token rows": ((1, 200, 2, 1024), "float16", (0, 2 * 1024, 1024), 512),
    "many wide heads": ((1, 30, 40, 64), "float16", (0, 40 * 64, 64), 32),
}


@pytest.mark.parametrize("name", WIDE_STRIDES)
def test_strides_that_one_instruction_cannot_encode_are_supported(name, backend):
    shape, dtype, strides, n_dims = WIDE_STRIDES[name]
    values, item = normal(shape, dtype), NUMPY_DTYPES[dtype].itemsize
    reach = sum((n - 1) * s for n, s in zip(shape, (*strides, 1), strict=True)) + 1
    x, out = (
        np.lib.stride_tricks.as_strided(np.zeros(reach, dtype), shape, [item * s for s in (*strides, 1)])
        for _ in range(2)
    )
    x[...] = values
    positions, params = np.arange(shape[1]), RopeParams(n_dims, "neox")
    try_rope(x, positions, params, out=out, backend=backend)
    assert_within(out, values, positions, params, dtype=dtype, backend=backend)


@pytest.mark.parametrize("framework", ["numpy", "torch"])
def test_x_with_unit_last_stride_is_not_copied(framework, monkeypatch):
    """The C library gets the address and the strides of x."""
    calls = []
    original = native.Native.call

    def record(self, op, inputs, *rest):
        calls.append((inputs[0].data, list(inputs[0].stride)))
        return original(self, op, inputs, *rest)

    monkeypatch.setattr(native.Native, "call", record)
    monkeypatch.setattr(executors, "on_small_arrays", lambda *arguments: None)  # it makes no copies
    x = normal((2, 3, 6, 40), "float32").transpose(0, 2, 1, 3)
    out = np.empty(SHAPE, np.float32)
    if framework == "numpy":
        rope(x, np.arange(6), PARAMS["neox"], out=out, backend="cpu")
        assert calls == [(x.ctypes.data, [720, 40, 240, 1])]
        return
    t = to_torch(x)
    tensors = rope_tensors(t, torch.arange(6), None, to_torch(out))
    executors.on_cpu_tensors(tensors, RopeCallAttributes(PARAMS["neox"], True, "exact"))
    assert calls == [(t.data_ptr(), [720, 40, 240, 1])]


def test_a_torch_call_on_a_strided_view_allocates_no_second_tensor():
    """The call has an out, so a copy of x would be the only large allocation."""
    x = torch.randn(512, 64, 128).transpose(0, 1)
    out, positions = torch.empty(x.shape), torch.arange(x.shape[0])
    params = RopeParams(128, "neox")
    rope(x, positions, params, out=out)
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True
    ) as profile:
        rope(x, positions, params, out=out)
    allocated = sum(max(0, e.self_cpu_memory_usage) for e in profile.key_averages())
    assert allocated < 4096
    assert_within(out, x.numpy(), positions.numpy(), params, dtype="float32")


@pytest.mark.parametrize("dtype", DTYPES)
def test_non_unit_last_stride_works_by_a_copy(dtype, backend):
    x = to_torch(normal((2, 5, 3, 64), dtype))[..., ::2]
    before, positions, params = values_of(x).copy(), torch.arange(5), RopeParams(32)
    out = torch.zeros(x.shape, dtype=x.dtype)
    for got in (
        try_rope(x, positions, params, backend=backend),
        try_rope(x, positions, params, backend=backend, out=out),
        torch.ops.npu_rope.rope(x, positions, n_dims=32, rope_mode=0) if backend == "cpu" else None,
    ):
        if got is not None:
            assert got.is_contiguous()
            assert_within(got, before, positions.numpy(), params, dtype=dtype, backend=backend)
    assert np.array_equal(values_of(x), before)


@pytest.mark.parametrize("split", ["heads", "tokens", "batch", "dims"])
def test_out_and_x_may_interleave_in_one_buffer(split, backend, guarded):
    axis = {"batch": 0, "tokens": 1, "heads": 2, "dims": 3}[split]
    shape = [2, 6, 4, 48]
    shape[axis] *= 2
    buffer = guarded.empty(tuple(shape), np.float32)
    buffer[...] = normal(shape, "float32")
    index = [slice(None)] * 4
    half = shape[axis] // 2
    index[axis] = slice(0, half) if split == "dims" else slice(0, None, 2)
    x = buffer[tuple(index)]
    index[axis] = slice(half, None) if split == "dims" else slice(1, None, 2)
    out = buffer[tuple(index)]
    before, params = x.copy(), RopeParams(48, "neox")
    positions = np.arange(x.shape[1])
    rope(x, positions, params, out=out, backend=backend)
    assert_within(out, before, positions, params, dtype="float32", backend=backend)
    assert np.array_equal(x, before)


@pytest.mark.parametrize("dtype", DTYPES)
def test_nothing_after_a_head_of_odd_size_is_written(dtype, backend, guarded):
    """Heads of odd size with a gap of one element: a wider store would change the gap or a guard byte."""
    for pairs in range(1, 41):
        D = 2 * pairs + 1
        shape = (2, 2, D)
        x = guarded.input(normal(shape, dtype, pairs))
        out = guarded.empty(shape, x.dtype, (2 * (D + 1), D + 1, 1))
        for mode in MODES:
            out[...] = 99
            params = RopeParams(2 * pairs, mode)
            if try_rope(x, np.array([3, 4]), params, out=out, backend=backend) is not None:
                assert_within(out, x, np.array([3, 4]), params, dtype=dtype, backend=backend)
        guarded.check()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("mode", MODES)
def test_any_alignment_to_the_element_size_is_supported(dtype, mode, backend, guarded):
    item = NUMPY_DTYPES[dtype].itemsize
    values, positions = normal((3, 2, 64), dtype), np.arange(3)
    for step in (1, 3, 7):
        x = guarded.input(values, misalign=step * item)
        out = guarded.empty(values.shape, values.dtype, misalign=(step + 1) * item)
        if try_rope(x, positions, RopeParams(64, mode), out=out, backend=backend) is not None:
            assert_within(out, values, positions, RopeParams(64, mode), dtype=dtype, backend=backend)


def test_positions_may_have_any_strides(backend, guarded):
    x = normal((2, 6, 2, 16), "float32")
    params = RopeParams(16)
    for dtype in (np.int32, np.int64):
        values = np.arange(12, dtype=dtype).reshape(2, 6)
        for strides in [(6, 1), (1, 2), (-6, -1), (20, 3)]:
            positions = guarded.input(values, strides)
            y = rope(x, positions, params, backend=backend)
            assert_within(y, x, values, params, dtype="float32", backend=backend)
        shared = np.broadcast_to(values[0], (2, 6))
        y = rope(x, shared, params, backend=backend)
        assert_within(y, x, shared, params, dtype="float32", backend=backend)


def test_positions_and_factors_need_no_alignment_in_numpy(backend):
    raw = np.zeros(49, np.uint8)[1:]
    positions, factors = raw[:24].view(np.int32), raw[24:].view(np.float32)
    positions[...], factors[...] = np.arange(6), 2
    x, params = normal((6, 1, 12), "float32"), RopeParams(12)
    y = rope(x, positions, params, factors, backend=backend)
    factors = np.full(6, 2, np.float32)
    assert_within(y, x, np.arange(6), params, factors, dtype="float32", backend=backend)


def test_the_c_tensor_struct_has_the_offsets_of_the_header():
    assert CTensor.shape.offset == 16
    assert CTensor.stride.offset == 48


@pytest.mark.parametrize("swapped", ["x", "positions", "freq_factors"])
def test_arrays_of_the_other_byte_order_give_the_same_result(swapped, backend):
    arrays = {
        "x": np.random.default_rng(0).standard_normal((1, 3, 2, 8)).astype(np.float32),
        "positions": np.arange(3, dtype=np.int32) + 7,
        "freq_factors": np.linspace(0.9, 1.1, 4, dtype=np.float32),
    }
    params = RopeParams(8)
    expected = rope(arrays["x"], arrays["positions"], params, arrays["freq_factors"], backend=backend)
    arrays[swapped] = np.asfortranarray(arrays[swapped]).astype(arrays[swapped].dtype.newbyteorder())
    got = rope(arrays["x"], arrays["positions"], params, arrays["freq_factors"], backend=backend)
    np.testing.assert_array_equal(got, expected)


def test_an_out_of_the_other_byte_order_is_refused_and_not_written(backend):
    x = np.ones((1, 3, 2, 8), np.float32)
    out = np.full_like(x, 5).astype(x.dtype.newbyteorder())
    with pytest.raises(TypeError, match="out must be in the machine's byte order but got"):
        rope(x, np.arange(3), RopeParams(8), out=out, backend=backend)
    assert (out == 5).all()
