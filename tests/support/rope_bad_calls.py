"""Bad calls of rope as a table. A path is a way to call the operator. A row has a call with one wrong
argument, the error that it must raise, and the paths that can express the call. For example, paths that take
tensors cannot express a read-only output, because no tensor is read-only.
"""

from __future__ import annotations

import ctypes as C
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from rope_cases import to_torch

from npu_rope import RopeParams, native, rope
from npu_rope.native import CParams, c_tensor

SENTINEL = 99.0
B, S, N, D = 2, 3, 2, 8
DEFAULTS = {
    "n_dims": 8,
    "mode": 0,
    "n_ctx_orig": 0,
    "freq_base": 10000.0,
    "freq_scale": 1.0,
    "ext_factor": 0.0,
    "attn_factor": 1.0,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
    "sections": (0, 0, 0, 0),
    "n_offs": 0,
}


def sentinels(shape, dtype=np.float32):
    return np.full(shape, SENTINEL, dtype)


@dataclass
class RopeCall:
    """A call of rope, by default a correct one."""

    x: np.ndarray = field(default_factory=lambda: np.ones((B, S, N, D), np.float32))
    positions: Any = field(default_factory=lambda: np.arange(S, dtype=np.int32))
    factors: Any = None
    out: Any = field(default_factory=lambda: sentinels((B, S, N, D)))
    attributes: dict = field(default_factory=lambda: dict(DEFAULTS))
    angle: int = 0

    def with_attributes(self, **changed):
        self.attributes.update(changed)
        return self

    def arrays(self):
        return [a for a in (self.x, self.positions, self.factors, self.out) if isinstance(a, np.ndarray)]


# ---- the paths ---------------------------------------------------------------------------------

ANGLES = {0: "exact", 1: "f32", 2: "ggml"}


def through_python(backend, convert):
    def run(call):
        x = convert(call.x)
        out = x if call.out is call.x else convert(call.out)
        angle = ANGLES.get(call.angle, call.angle)
        params = RopeParams(**call.attributes)
        rope(x, convert(call.positions), params, convert(call.factors), backend=backend, out=out, angle=angle)

    return run


def tensor_of(array):
    return to_torch(array) if isinstance(array, np.ndarray) else array


def as_schema(attributes):
    """Return the arguments of RopeParams by their names in the operators' schemas."""
    attributes = {**attributes, "sections": list(attributes["sections"])}
    attributes["rope_mode"] = attributes.pop("mode")
    return attributes


def through_torch_ops(call):
    x, positions, factors = tensor_of(call.x), tensor_of(call.positions), tensor_of(call.factors)
    attributes = {**as_schema(call.attributes), "angle": call.angle}
    if call.out is call.x:
        torch.ops.npu_rope.rope_(x, positions, factors, **attributes)
    else:
        torch.ops.npu_rope.rope_out(x, positions, factors, **attributes, out=tensor_of(call.out))


def c_view(array):
    strides = tuple(s // array.itemsize for s in array.strides)
    return c_tensor(array.ctypes.data, array.dtype.name, array.shape, strides)


def c_arguments(call):
    sections = (C.c_int32 * 4)(*call.attributes["sections"])
    params = CParams(**{**call.attributes, "sections": sections})
    x, positions, out = (C.byref(c_view(t)) for t in (call.x, call.positions, call.out))
    factors = None if call.factors is None else C.byref(c_view(call.factors))
    return x, positions, factors, C.byref(params), 1, call.angle, out


def through_c(call):
    library = native.load()
    library._raise_on(library.lib.npu_rope_rope(*c_arguments(call)))


PATHS: dict[str, Callable[[RopeCall], None]] = {
    "numpy-reference": through_python("reference", lambda a: a),
    "numpy-cpu": through_python("cpu", lambda a: a),
    "torch-reference": through_python("reference", tensor_of),
    "torch-cpu": through_python("cpu", tensor_of),
    "torch-default": through_python(None, tensor_of),
    "numpy-sim": through_python("sim", lambda a: a),
    "torch-sim": through_python("sim", tensor_of),
    "numpy-sim:ascend310p": through_python("sim:ascend310p", lambda a: a),
    "torch-ops": through_torch_ops,
    "c": through_c,
}
C_PATHS = ("c",)
PYTHON = tuple(p for p in PATHS if p not in ("torch-ops", *C_PATHS))
NUMPY = tuple(p for p in PATHS if p.startswith("numpy"))


# ---- the table -----------------------------------------------------------------------------------


@dataclass
class BadRope:
    """A call with one wrong argument, and the error that it must raise."""

    name: str
    make: Callable[[], RopeCall]
    text: str
    kind: type = ValueError
    paths: tuple[str, ...] = tuple(PATHS)


def attribute(name, text, *, paths=tuple(PATHS), kind=ValueError, **changed):
    """Return the row of a call with changed attributes."""
    return BadRope(name, lambda: RopeCall().with_attributes(**changed), text, kind, paths)


def argument(name, text, *, paths=tuple(PATHS), kind=ValueError, **changed):
    """Return the row of a call with changed arguments. Each is a function that makes the argument."""
    return BadRope(name, lambda: RopeCall(**{n: make() for n, make in changed.items()}), text, kind, paths)


YARN = {"ext_factor": 1.0, "n_ctx_orig": 4096}
N_DIMS = "n_dims must be a positive even number but got"
N_OFFS = "n_offs must be an even number >= 0 but got"
MODES = "mode must be one of normal (0), neox (2), mrope (8), vision (24), imrope (40) but got"
NO_SECTIONS = "sections must name time, height or width in mode"
FACTORS_SHAPE = "freq_factors must have one dimension of at least n_dims/2 = 4 elements but got shape"
VISION_FACTORS_SHAPE = "freq_factors must have one dimension of at least n_dims = 4 elements but got shape"
PLANES = (
    "positions must have shape [4,S] = [4, 3], [4*S], [3,S], [4,B,S] = [4, 2, 3], [3,B,S], [4,1,S] or [3,1,S]"
)
WITH_YARN = "when ext_factor is not 0"


def sectioned_call(*shape, factors=None, mode=8, n_dims=8):
    """Return a function that makes a call in a mode with sections, with positions of ``shape``."""

    def make():
        divisors = None if factors is None else np.ones(factors, np.float32)
        call = RopeCall(positions=np.ones(shape, np.int32), factors=divisors)
        return call.with_attributes(mode=mode, sections=(1, 1, 1, 0), n_dims=n_dims)

    return make


def far_plane_call():
    call = sectioned_call(4, S)()
    call.positions = np.ones((4, S), np.int64)
    call.positions[2, 1] = 2**31
    return call


ATTRIBUTES = [
    attribute("n_dims-odd", f"{N_DIMS} 7.", n_dims=7),
    attribute("n_dims-zero", f"{N_DIMS} 0.", n_dims=0),
    attribute("n_dims-negative", f"{N_DIMS} -2.", n_dims=-2),
    attribute("n_dims-too-wide", "n_dims must be at most the head size 8 but got 10.", n_dims=10),
    attribute("n_offs-odd", f"{N_OFFS} 1.", n_offs=1, n_dims=4),
    attribute("n_offs-negative", f"{N_OFFS} -2.", n_offs=-2, n_dims=4),
    attribute("n_offs-too-far", "n_offs + n_dims must be at most the head size 8 but got 10.", n_offs=2),
    attribute(
        "n_offs-huge", "n_offs + n_dims must be at most the head size 8 but got 2147483654.", n_offs=2**31 - 2
    ),
    attribute("mode-unknown", f"{MODES} 3.", mode=3),
    attribute("sections-none", f"{NO_SECTIONS} mrope but got [0, 0, 0, 0].", mode=8),
    attribute(
        "sections-extra", f"{NO_SECTIONS} imrope but got [0, 0, 0, 4].", mode=40, sections=(0, 0, 0, 4)
    ),
    attribute(
        "sections-too-wide",
        "sections must add up to at most the head size 8 but got [3, 3, 3, 0].",
        mode=8,
        sections=(3, 3, 3, 0),
    ),
    attribute(
        "vision-n_dims",
        "n_dims must be half the head size in mode vision but got 6 of 8.",
        mode=24,
        sections=(1, 1, 0, 0),
        n_dims=6,
    ),
    attribute(
        "vision-n_offs",
        "n_offs must be 0 in mode vision but got 2.",
        mode=24,
        sections=(1, 1, 0, 0),
        n_dims=4,
        n_offs=2,
    ),
    BadRope("mrope-positions", sectioned_call(S), f"{PLANES} in mode mrope but got [3]."),
    BadRope("mrope-positions-2", sectioned_call(2, S), f"{PLANES} in mode mrope but got [2, 3]."),
    BadRope("mrope-positions-flat", sectioned_call(3 * S), f"{PLANES} in mode mrope but got [9]."),
    BadRope("mrope-positions-batch", sectioned_call(4, 3, S), f"{PLANES} in mode mrope but got [4, 3, 3]."),
    BadRope("mrope-positions-batch-2", sectioned_call(2, 1, S), f"{PLANES} in mode mrope but got [2, 1, 3]."),
    BadRope("mrope-positions-one-plane", sectioned_call(1, S), f"{PLANES} in mode mrope but got [1, 3]."),
    BadRope("mrope-factors", sectioned_call(4, S, factors=3), f"{FACTORS_SHAPE} [3]."),
    BadRope(
        "vision-factors", sectioned_call(4, S, factors=3, mode=24, n_dims=4), f"{VISION_FACTORS_SHAPE} [3]."
    ),
    BadRope("mrope-far", far_plane_call, "positions must be in the int32 range but got 2147483648."),
    attribute("freq_base-zero", "freq_base must be positive and finite but got 0.", freq_base=0.0),
    attribute("freq_base-negative", "freq_base must be positive and finite but got -2.5.", freq_base=-2.5),
    attribute("freq_base-nan", "freq_base must be positive and finite but got nan.", freq_base=float("nan")),
    attribute(
        "freq_base-minus-nan", "freq_base must be positive and finite but got nan.", freq_base=-float("nan")
    ),
    attribute("freq_base-inf", "freq_base must be positive and finite but got inf.", freq_base=float("inf")),
    attribute("freq_scale-zero", "freq_scale must be positive and finite but got 0.", freq_scale=0.0),
    attribute("freq_scale-negative", "freq_scale must be positive and finite but got -1.", freq_scale=-1.0),
    attribute("ext_factor-nan", "ext_factor must be finite but got nan.", ext_factor=float("nan")),
    attribute("attn_factor-inf", "attn_factor must be finite but got -inf.", attn_factor=-float("inf")),
    attribute("n_ctx_orig-negative", "n_ctx_orig must be >= 0 but got -1.", n_ctx_orig=-1),
    attribute("yarn-n_ctx_orig", f"n_ctx_orig must be positive {WITH_YARN} but got 0.", ext_factor=1.0),
    attribute(
        "yarn-freq_base", f"freq_base must differ from 1 {WITH_YARN} but got 1.", **YARN, freq_base=1.0
    ),
    attribute(
        "yarn-beta_fast",
        f"beta_fast must be positive and finite {WITH_YARN} but got 0.",
        **YARN,
        beta_fast=0.0,
    ),
    attribute(
        "yarn-beta_slow",
        f"beta_slow must be positive and finite {WITH_YARN} but got -1.",
        **YARN,
        beta_slow=-1.0,
    ),
    attribute(
        "sections-given",
        "sections must be [0, 0, 0, 0] in mode neox but got [1, 2, 3, 0].",
        sections=(1, 2, 3, 0),
        mode=2,
    ),
    attribute(
        "sections-negative",
        "sections must be four integers >= 0 but got [0, -1, 0, 0].",
        sections=(0, -1, 0, 0),
    ),
    attribute(
        "sections-one-negative",
        "sections must be four integers >= 0 but got [1, 2, -3, 4].",
        sections=(1, 2, -3, 4),
    ),
    attribute(
        "sections-three",
        "sections must be four integers >= 0 but got 3 integers.",
        sections=(0, 0, 0),
        paths=(*PYTHON, "torch-ops"),
    ),
    attribute(
        "frequency-too-fast",
        "frequencies must be at most 1e+09 radians per position but got 2e+09 for pair 0.",
        freq_scale=2e9,
    ),
    BadRope(
        "angle-unknown", lambda: RopeCall(angle=3), "angle must be exact (0), f32 (1) or ggml (2) but got 3."
    ),
]

X_TYPE = "x must be float32, float16, bfloat16 or float64 but got"
X_SHAPE = "x must have shape [B,S,N,D] or [S,N,D] but got"
POSITIONS_SHAPE = "positions must have shape [S] = [3], [B, S] = [2, 3] or [1, S] but got"
POSITIONS_TYPE = "positions must be int32 or int64 but got"
POSITIONS_RANGE = "positions must be in the int32 range but got"
FACTORS_VALUE = "freq_factors must be positive and finite but got"
NAMED = (*PYTHON, "torch-ops")  # paths whose errors name every dtype


def make_factors(*values, dtype=np.float32):
    return lambda: np.array(values, dtype)


def meta_positions():
    return torch.zeros(S, dtype=torch.int32, device="meta")


INPUTS = [
    argument("x-int32", f"{X_TYPE} int32.", kind=TypeError, x=lambda: np.ones((B, S, N, D), np.int32)),
    argument(
        "x-int16", f"{X_TYPE} int16.", kind=TypeError, x=lambda: np.ones((B, S, N, D), np.int16), paths=NAMED
    ),
    argument("x-bool", f"{X_TYPE} bool.", kind=TypeError, x=lambda: np.ones((B, S, N, D), bool), paths=NAMED),
    argument("x-2d", f"{X_SHAPE} [3, 8].", x=lambda: np.ones((3, 8), np.float32)),
    argument(
        "x-5d", f"{X_SHAPE} [1, 2, 3, 2, 8].", x=lambda: np.ones((1, B, S, N, D), np.float32), paths=PYTHON
    ),
    argument("positions-long", f"{POSITIONS_SHAPE} [4].", positions=lambda: np.arange(4)),
    argument(
        "positions-transposed", f"{POSITIONS_SHAPE} [3, 2].", positions=lambda: np.zeros((3, 2), np.int32)
    ),
    argument("positions-scalar", f"{POSITIONS_SHAPE} [].", positions=lambda: np.array(1)),
    argument(
        "positions-other-batch", f"{POSITIONS_SHAPE} [3, 3].", positions=lambda: np.zeros((3, 3), np.int32)
    ),
    argument(
        "positions-no-batch", f"{POSITIONS_SHAPE} [0, 3].", positions=lambda: np.zeros((0, 3), np.int32)
    ),
    argument(
        "positions-3d", f"{POSITIONS_SHAPE} [1, 2, 3].", positions=lambda: np.zeros((1, 2, 3), np.int64)
    ),
    argument(
        "positions-for-a-batch-of-one",
        "positions must have shape [S] = [3] or [B, S] = [1, 3] but got [4].",
        positions=lambda: np.arange(4),
        x=lambda: np.ones((1, S, N, D), np.float32),
        out=lambda: sentinels((1, S, N, D)),
    ),
    argument(
        "positions-batched-without-batch",
        "positions must have shape [S] = [3] but got [2, 3].",
        positions=lambda: np.zeros((2, 3), np.int32),
        x=lambda: np.ones((S, N, D), np.float32),
        out=lambda: sentinels((S, N, D)),
    ),
    argument(
        "positions-for-all-without-batch",
        "positions must have shape [S] = [3] but got [1, 3].",
        positions=lambda: np.zeros((1, 3), np.int32),
        x=lambda: np.ones((S, N, D), np.float32),
        out=lambda: sentinels((S, N, D)),
    ),
    argument(
        "positions-float",
        f"{POSITIONS_TYPE} float32.",
        kind=TypeError,
        positions=lambda: np.zeros(3, np.float32),
    ),
    argument(
        "positions-int16",
        f"{POSITIONS_TYPE} int16.",
        kind=TypeError,
        positions=lambda: np.zeros(3, np.int16),
        paths=NAMED,
    ),
    argument("positions-above", f"{POSITIONS_RANGE} 2147483648.", positions=lambda: np.array([0, 2**31, 5])),
    argument(
        "positions-below", f"{POSITIONS_RANGE} -2147483649.", positions=lambda: np.array([0, 1, -(2**31) - 1])
    ),
    argument(
        "positions-on-meta",
        "positions must be on x's device cpu but got meta.",
        positions=meta_positions,
        paths=("torch-cpu", "torch-default", "torch-ops"),
    ),
    argument("factors-short", f"{FACTORS_SHAPE} [3].", factors=make_factors(1, 1, 1)),
    argument("factors-2d", f"{FACTORS_SHAPE} [1, 4].", factors=make_factors([1, 1, 1, 1])),
    argument(
        "factors-float64",
        "freq_factors must be float32 but got float64.",
        kind=TypeError,
        factors=make_factors(1, 1, 1, 1, dtype=np.float64),
    ),
    argument("factors-zero", f"{FACTORS_VALUE} 0 at index 2.", factors=make_factors(1, 1, 0, 1)),
    argument("factors-nan", f"{FACTORS_VALUE} nan at index 0.", factors=make_factors(np.nan, 1, 0, 1)),
    argument("factors-inf", f"{FACTORS_VALUE} inf at index 3.", factors=make_factors(1, 1, 1, np.inf, 0)),
    argument("factors-negative", f"{FACTORS_VALUE} -2.5 at index 1.", factors=make_factors(1, -2.5, 1, 1)),
]


def strided_out(shape, strides):
    """Return a function that returns an array of sentinels with any strides (in elements)."""
    memory = sentinels(1000)
    return lambda: np.lib.stride_tricks.as_strided(memory, shape, [4 * s for s in strides])


def overlapping_call(x_from, out_from):
    """Return a function that makes a call whose x and out begin at these elements of one array."""

    def make():
        memory = sentinels(400)
        shape, count = (B, S, N, D), B * S * N * D
        return RopeCall(
            x=memory[x_from:][:count].reshape(shape), out=memory[out_from:][:count].reshape(shape)
        )

    return make


def call_with_input_in_out(name):
    """Return a function that makes a call whose positions or factors lie in out."""

    def make():
        call = RopeCall(factors=np.ones(4, np.float32))
        inside = call.out.ravel()[5:9]
        if name == "positions":
            call.positions = inside.view(np.int32)[:S]
            call.positions[...] = 1
        else:
            call.factors = inside
            inside[...] = 1
        return call

    return make


def read_only_out():
    out = sentinels((B, S, N, D))
    out.flags.writeable = False
    return out


def unaligned_out():
    raw = np.zeros(4 * B * S * N * D + 1, np.uint8)
    return raw[1:].view(np.float32).reshape(B, S, N, D)


def spaced_call():
    x = np.ones((B, S, N, 2 * D), np.float32)[..., ::2]
    return RopeCall(x=x, out=x)


OVERLAP = "out must share no memory with {} but got overlapping memory."
PARTIAL_OVERLAP = "out must be x itself or share no memory with x but got overlapping memory."
UNIT_STRIDE = "must have unit stride in its last dimension but got"
OUTPUTS = [
    argument(
        "out-shape",
        "out must have x's shape [2, 3, 2, 8] but got [2, 3, 2, 6].",
        out=lambda: sentinels((B, S, N, 6)),
    ),
    argument(
        "out-rank",
        "out must have x's shape [2, 3, 2, 8] but got [6, 2, 8].",
        out=lambda: sentinels((6, N, D)),
    ),
    argument(
        "out-dtype",
        "out must have x's dtype float32 but got float16.",
        kind=TypeError,
        out=lambda: sentinels((B, S, N, D), np.float16),
    ),
    argument(
        "out-read-only", "out must be writeable but got a read-only array.", out=read_only_out, paths=NUMPY
    ),
    argument("out-spaced", f"out {UNIT_STRIDE} 2.", out=strided_out((B, S, N, D), (96, 32, 16, 2))),
    argument(
        "out-backwards",
        f"out {UNIT_STRIDE} -1.",
        out=lambda: sentinels((B, S, N, D))[..., ::-1],
        paths=(*NUMPY, *C_PATHS),
    ),
    argument("out-zero-stride", f"out {UNIT_STRIDE} 0.", out=strided_out((B, S, N, D), (48, 16, 8, 0))),
    argument(
        "out-folded-heads",
        "out must not overlap itself but got strides [48, 16, 4, 1].",
        out=strided_out((B, S, N, D), (48, 16, 4, 1)),
    ),
    argument(
        "out-shared-batch",
        "out must not overlap itself but got strides [0, 16, 8, 1].",
        out=strided_out((B, S, N, D), (0, 16, 8, 1)),
    ),
    BadRope("out-overlaps-x-after", overlapping_call(0, 8), PARTIAL_OVERLAP),
    BadRope("out-overlaps-x-before", overlapping_call(1, 0), PARTIAL_OVERLAP),
    BadRope("out-overlaps-x-by-one", overlapping_call(95, 0), PARTIAL_OVERLAP),
    BadRope("out-overlaps-positions", call_with_input_in_out("positions"), OVERLAP.format("positions")),
    BadRope("out-overlaps-factors", call_with_input_in_out("freq_factors"), OVERLAP.format("freq_factors")),
    argument(
        "out-unaligned",
        "out must be aligned to its 4-byte elements but got an address that is not.",
        out=unaligned_out,
    ),
    BadRope("x-spaced-in-place", spaced_call, f"x {UNIT_STRIDE} 2."),
]
