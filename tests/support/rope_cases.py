"""A description of a call of rope, and the functions that run it and judge its result."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import ml_dtypes
import numpy as np
import pytest
import torch

from npu_rope import RopeParams, backends, rope, simulated_package
from npu_rope.reference import rope as reference
from npu_rope.testing.bounds import (
    TABLE_ERROR_DEVICE,
    TABLE_ERROR_HOST,
    is_device,
    rotation_bound,
    worst_ratio,
)
from npu_rope.testing.chip_types import has_bfloat16, soc_of

NUMPY_DTYPES = {
    "float32": np.dtype(np.float32),
    "float16": np.dtype(np.float16),
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
    "float64": np.dtype(np.float64),
}
INT32_MAX = 2**31 - 1
DEVICE_REACH = 2**22  # positions on a device have a magnitude below this
YARN = {"n_ctx_orig": 4096, "freq_scale": 0.25, "ext_factor": 1.0}


@dataclass(frozen=True)
class Case:
    """A call of rope, by default a plain one. FACTORS lists the values of all fields except ``sizes``."""

    dtype: str = "float32"
    mode: str = "normal"
    framework: str = "numpy"
    sizes: tuple[int, int, int, int] = (2, 5, 3, 64)  # B, S, N, D; a call of rank 3 has no B
    rank: int = 4
    window: str = "full"  # which part of the head is rotated
    sections: str = "cover"  # in the modes with sections
    planes: str = "four"  # the form of the positions in those modes
    freq_factors: str = "none"
    scaling: str = "none"
    attn_factor: float = 1.0
    freq_base: float = 10000.0
    forward: bool = True
    positions: str = "ascending"
    x_layout: str = "contiguous"
    out: str = "new"
    angle: str = "exact"

    def __str__(self):
        changed = [
            f"{f.name}={getattr(self, f.name)}" for f in fields(self) if getattr(self, f.name) != f.default
        ]
        return ",".join(changed).replace(" ", "") or "defaults"


FACTORS = {
    "dtype": ["float32", "float16", "bfloat16", "float64"],
    "mode": ["normal", "neox", "mrope", "imrope", "vision"],
    "framework": ["numpy", "torch"],
    "rank": [4, 3],
    "window": ["full", "front", "middle", "back"],
    "sections": ["cover", "repeat", "beyond", "empty", "no-time", "only-time"],
    "planes": ["four", "three", "flat"],
    "freq_factors": ["none", "given", "longer", "strided"],
    "scaling": ["none", "linear", "yarn", "half-yarn"],
    "attn_factor": [1.0, 1.3, -0.7],
    "freq_base": [10000.0, 500000.0, 0.5],
    "forward": [True, False],
    "positions": [
        "ascending",
        "int64",
        "random",
        "per-batch",
        "one-row",
        "negative",
        "strided",
        "equal-rows",
        "extreme",
    ],
    "x_layout": ["contiguous", "bnsd", "fused-qkv", "gaps", "shared-batch", "non-unit", "reversed"],
    "out": ["new", "given", "in-place", "gaps", "beside-x", "bnsd"],
    "angle": ["exact", "f32", "ggml"],
}


def possible(case):
    """Return whether the values of the factors can occur together."""
    if case.framework == "torch" and case.x_layout == "reversed":
        return False
    if case.out == "in-place" and case.x_layout in ("shared-batch", "non-unit"):
        return False
    if case.mode == "vision" and (case.window != "full" or case.sizes[3] % 4):
        return False
    if case.mode in ("normal", "neox") and (case.sections, case.planes) != ("cover", "four"):
        return False
    # Flat positions are contiguous, and the same in every batch.
    if case.planes == "flat" and case.positions in ("per-batch", "one-row", "equal-rows", "strided"):
        return False
    return case.x_layout == "contiguous" or case.out != "beside-x"


def params_of(case):
    width = case.sizes[3] // 2 * 2
    half = max(2, width // 4 * 2)
    rest = max(0, width - half) // 2 * 2
    n_dims, n_offs = {
        "full": (width, 0),
        "front": (half, 0),
        "middle": (half, rest // 4 * 2),
        "back": (half, rest),
    }[case.window]
    scaling = {
        "none": {},
        "linear": {"freq_scale": 0.25},
        "yarn": YARN,
        "half-yarn": {**YARN, "ext_factor": 0.5, "beta_fast": 16.0, "beta_slow": 2.0},
    }[case.scaling]
    if case.mode == "vision":
        n_dims //= 2
    return RopeParams(
        n_dims,
        case.mode,
        sections=sections_of(case, n_dims),
        freq_base=case.freq_base,
        attn_factor=case.attn_factor,
        n_offs=n_offs,
        **scaling,
    )


def sections_of(case, n_dims):
    """Return the number of pairs of each section. "repeat" has fewer pairs than the window, so the sections
    repeat; "beyond" has more."""
    if case.mode in ("normal", "neox"):
        return None
    pairs = n_dims if case.mode == "vision" else n_dims // 2
    third, fifth = max(1, pairs // 3), max(1, pairs // 5)
    if case.sizes[3] < 16:
        return (1, 0, 0, 0)
    return {
        "cover": (pairs - 2 * third, third, third, 0) if pairs >= 3 else (1, 0, 0, 0),
        "repeat": (fifth, fifth, 1, 1),
        "beyond": (third, pairs, 1, 0) if pairs >= 4 else (0, 1, 0, 0),
        "empty": (third, 0, third, 0),
        "no-time": (0, fifth, third, fifth),
        "only-time": (3 if n_dims >= 4 else 1, 0, 0, 0),
    }[case.sections]


def positions_of(case, rng):
    """Return the positions in the form that the call passes."""
    if case.mode in ("normal", "neox"):
        return plain_positions(case, rng)
    shifts = [3 * i if case.positions != "extreme" else 0 for i in range(4)]  # planes that differ
    planes = [plain_positions(case, rng) + shift for shift in shifts]
    if case.positions == "strided":  # every second element of a larger array
        spread = np.zeros((4, 2 * planes[0].size), planes[0].dtype)[:, ::2]
        spread[...] = planes
        return spread[:3] if case.planes == "three" else spread
    stacked = np.stack(planes)
    return {"four": stacked, "three": stacked[:3], "flat": stacked.reshape(-1)}[case.planes]


def plain_positions(case, rng):
    """Return the positions of one axis."""
    B, S = case.sizes[:2]
    ascending = np.arange(S, dtype=np.int32) + 1000
    batched = case.rank == 4
    extreme = rng.integers(-(2**31), 2**31, S)
    extreme[:2] = [-(2**31), INT32_MAX][:S]
    return {
        "ascending": lambda: ascending,
        "int64": lambda: ascending.astype(np.int64),
        "random": lambda: rng.integers(0, 2**20, S).astype(np.int32),
        "per-batch": lambda: rng.integers(0, 5000, (B, S) if batched else S),
        "one-row": lambda: ascending[None] if batched else ascending,
        "negative": lambda: -ascending,
        "strided": lambda: rng.integers(0, 5000, 3 * S + 1).astype(np.int32)[: 3 * S : 3],
        "equal-rows": lambda: np.broadcast_to(ascending, (B, S)).copy() if batched else ascending,
        "extreme": lambda: extreme,
    }[case.positions]()


def factors_of(case, params, rng):
    if case.freq_factors == "none":
        return None
    pairs = params.pairs
    count = pairs + 7 if case.freq_factors == "longer" else pairs
    factors = rng.uniform(0.8, 40, count).astype(np.float32)
    if case.freq_factors == "strided":
        factors = np.repeat(factors, 2)[::2]
    return factors


def shape_of(case):
    return case.sizes if case.rank == 4 else case.sizes[1:]


def layout_strides(layout, shape):
    """Return the strides of a layout, in elements, for rank 3 or 4."""
    *batch, S, N, D = shape
    if layout == "bnsd":
        inner = (D, S * D, 1)
    elif layout == "fused-qkv":
        inner = (3 * N * D, D, 1)
    elif layout == "gaps":
        inner = (N * (D + 3) + 5, D + 3, 1)
    elif layout == "non-unit":
        inner = (2 * N * D, 2 * D, 2)
    elif layout == "reversed":
        inner = (-N * D, -D, 1)
    else:
        inner = (N * D, D, 1)
    distance = max(abs(stride) * max(size, 1) for stride, size in zip(inner, (S, N, D), strict=True))
    batch_stride = 0 if layout == "shared-batch" else -distance if layout == "reversed" else distance
    return ((batch_stride,) if batch else ()) + inner


def to_torch(array):
    """Return a torch tensor that shares an array's memory."""
    if array is None:
        return None
    if array.dtype == NUMPY_DTYPES["bfloat16"]:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def values_of(result):
    """Return a result as a float64 array, which holds its elements exactly."""
    if isinstance(result, torch.Tensor):
        return result.detach().to(torch.float64).numpy()
    return np.asarray(result).astype(np.float64)


def dtype_name(array):
    return str(array.dtype).removeprefix("torch.")


# ---- calls that a back end does not support ---------------------------------------------------------------


def chip_of(backend):
    """Return the name of a device's chip, as errors print it."""
    if backend == "npu":
        return backends.simulated_soc()
    return simulated_package.load().chip(soc_of(backend))["name"]


def refusal(backend, dtype="float32", *, positions=(), angle="exact", size=1, name="[rope] x"):
    """Return the class and the message of the error if a device does not support such a call, else None."""
    if not is_device(backend):
        return None
    chip = chip_of(backend)
    if angle != "exact":
        return ValueError, f"[rope] angle must be exact (0) on an NPU but got {angle}."
    if not has_bfloat16(backend) and dtype in ("float64", "bfloat16"):
        return TypeError, f"{name} must be float32 or float16 on {chip} but got {dtype}."
    if dtype == "float64":
        return TypeError, f"{name} must be float32, float16 or bfloat16 on {chip} but got float64."
    out_of_reach = [int(p) for p in np.ravel(positions) if not -DEVICE_REACH < p < DEVICE_REACH]
    if out_of_reach and size:
        rule = "positions must be between -4194303 and 4194303 on the device"
        return ValueError, f"[rope] {rule} but got {out_of_reach[0]}."
    return None


def bytes_of(array):
    return (values_of(array) if isinstance(array, torch.Tensor) else array).tobytes()


def try_rope(x, positions, params, factors=None, *, backend, out=None, forward=True, angle="exact"):
    """Return rope's result, or None if the back end does not support the call.

    In that case require the error of refusal(), and unchanged x and out.
    """

    def run():
        return rope(x, positions, params, factors, backend=backend, out=out, forward=forward, angle=angle)

    refused = refusal(backend, dtype_name(x), positions=positions, angle=angle, size=np.prod(x.shape))
    if refused is None:
        return run()
    error_class, message = refused
    tensors = [tensor for tensor in (x, out) if tensor is not None]
    before = list(map(bytes_of, tensors))
    with pytest.raises(error_class) as caught:
        run()
    assert str(caught.value) == message
    assert list(map(bytes_of, tensors)) == before
    return None


# ---- judgements of results -------------------------------------------------------------------------


def table_error_of(backend):
    """Return the bound of the errors of cos and sin on a back end."""
    return TABLE_ERROR_DEVICE if is_device(backend) else TABLE_ERROR_HOST


def expected_and_bound(
    x, positions, params, factors, *, dtype, forward=True, angle="exact", table_error=TABLE_ERROR_HOST
):
    """Return the float64 result and the bound of each element's error."""
    planes = reference.position_planes(positions, params)
    cos, sin = reference.cos_sin(planes, params, factors, forward=forward, policy=angle)
    cos, sin = cos[..., None, :], sin[..., None, :]
    wide = np.asarray(x).astype(np.float64)
    expected = reference.rotate(wide, cos, sin, params)
    return expected, rotation_bound(wide, cos, sin, expected, params, dtype, table_error)


def assert_within(
    got, x, positions, params, factors=None, *, dtype, forward=True, angle="exact", backend="cpu"
):
    """Require a back end's result to meet the bounds."""
    table_error = table_error_of(backend)
    expected, bound = expected_and_bound(
        x, positions, params, factors, dtype=dtype, forward=forward, angle=angle, table_error=table_error
    )
    ratio, at = worst_ratio(values_of(got), expected, bound)
    assert ratio <= 1, f"error is {ratio:.3g} of its bound at {at}"


@dataclass
class RopeArrays:
    """A case's arrays in guarded memory."""

    params: RopeParams
    x: np.ndarray
    positions: np.ndarray
    factors: np.ndarray | None
    out: np.ndarray | None


def element_strides(array):
    return tuple(s // array.itemsize for s in array.strides)


def make_inputs(case, guarded, seed=0):
    rng = np.random.default_rng(seed)
    params, shape, dtype = params_of(case), shape_of(case), NUMPY_DTYPES[case.dtype]
    positions = positions_of(case, rng)
    factors = factors_of(case, params, rng)
    values = rng.standard_normal(shape).astype(dtype)
    if case.x_layout == "shared-batch" and case.rank == 4:
        values[...] = values[:1]
    strides = layout_strides(case.x_layout, shape)
    x, out = None, None
    if case.out == "in-place":
        x = out = guarded.empty(shape, dtype, strides)
    elif case.out == "beside-x":  # the heads of x and out alternate in one buffer
        *token_shape, N, D = shape
        both = guarded.empty((*token_shape, N, 2, D), dtype)
        x, out = both[..., 0, :], both[..., 1, :]
    if x is None:
        x = guarded.input(values, strides)
    else:
        x[...] = values
    if case.out == "given":
        out = guarded.empty(shape, dtype)
    elif case.out in ("gaps", "bnsd"):
        out = guarded.empty(shape, dtype, layout_strides(case.out, shape))
    positions = guarded.input(positions, element_strides(positions))
    if factors is not None:
        factors = guarded.input(factors, element_strides(factors))
    return RopeArrays(params, x, positions, factors, out)


def call(case, inputs, backend):
    x, positions, factors, out = inputs.x, inputs.positions, inputs.factors, inputs.out
    if case.framework == "torch":
        tensor = to_torch(x)
        out = tensor if out is x else to_torch(out)
        x, positions, factors = tensor, to_torch(positions), to_torch(factors)
    return try_rope(
        x,
        positions,
        inputs.params,
        factors,
        backend=backend,
        out=out,
        forward=case.forward,
        angle=case.angle,
    )


def run_and_judge(case, backend, guarded, seed=0):
    """Run a case in guarded memory and require its result to meet the bounds, or the error of refusal()."""
    inputs = make_inputs(case, guarded, seed)
    before = inputs.x.copy()
    got = call(case, inputs, backend)
    if got is None:
        guarded.check()
        return
    if inputs.out is not None:
        written = to_torch(inputs.out) if case.framework == "torch" else inputs.out
        assert np.array_equal(values_of(got), values_of(written), equal_nan=True)
    assert_within(
        got,
        before,
        inputs.positions,
        inputs.params,
        inputs.factors,
        dtype=case.dtype,
        forward=case.forward,
        angle=case.angle,
        backend=backend,
    )
    guarded.check()


def with_sizes(case, B, S, N, D):
    return replace(case, sizes=(B, S, N, D))
