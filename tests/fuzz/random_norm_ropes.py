"""Random calls of rms_norm_rope, compared with its specification in long double (``norm_rope_spec.py``).

The draws vary modes, windows, dtypes, layouts, positions over all of int32, magnitudes over all of a dtype,
caches and intermediate_rounding. With intermediate_rounding and without a cache, the results must have the
bits of rms_norm followed by rope_qk.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from choices import Choices
from random_norm_calls import EPSILONS, rounded

from npu_rope.call_tensors import CallTensors
from npu_rope.executors import rms_norm as norm_executors
from npu_rope.executors import rotations as executors
from npu_rope.executors.rotations import DEVICE_POSITIONS
from npu_rope.params import RopeParams
from npu_rope.rms_norm_calls import RmsNormAttributes, rms_norm_tensors
from npu_rope.rms_norm_rope_calls import RmsNormRopeAttributes, rms_norm_rope_tensors, scales_of
from npu_rope.rope_calls import RopeCallAttributes, rope_qk_tensors
from npu_rope.testing.bounds import is_device, worst_ratio
from npu_rope.testing.chip_types import lacks_type
from npu_rope.testing.norm_ropes import expected_heads, in_rows
from npu_rope.testing.norm_spec import FORMATS
from npu_rope.testing.outcomes import Expectation, unwritten

Array = npt.NDArray[Any]
OP = "rms_norm_rope"
DTYPES = tuple(FORMATS)
SECTIONED = ("mrope", "imrope", "vision")
MODES = ("normal", "neox", *SECTIONED)
HEAD_SIZES = (2, 4, 6, 16, 30, 32, 34, 62, 64, 66, 80, 96, 128, 130, 192, 256)
NUMBERS = ("plain",) * 5 + ("zero heads",) + ("scaled heads",) * 3 + ("scaled numbers",)
STARTS = (0, 1, -5, 1000, 131_072, 1_000_000, 2**31 - 100, -(2**31))


@dataclass(frozen=True)
class NormRopeDraw:
    """A call with its arrays."""

    text: str
    t: CallTensors[Array]
    dtype: str
    attributes: RmsNormRopeAttributes


def draw(choices: Choices, op: str = OP, dtypes: tuple[str, ...] = DTYPES) -> NormRopeDraw:
    """Return one call."""
    values = choices.numbers()
    dtype, mode, head_size = choices.choice(dtypes), choices.choice(MODES), choices.choice(HEAD_SIZES)
    if mode in SECTIONED:  # four sections of 1 need D >= 4; vision needs an even D / 2
        head_size = max(4, head_size // 4 * 4)
    params = _params(choices, mode, head_size)
    batch, tokens = choices.choice((0, 1, 1, 2, 3)), choices.choice((1, 2, 5, 70, 0))  # 0: no batch dimension
    lead = (batch, tokens) if batch else (tokens,)
    most = 1_000_000 if choices.chance(0.02) else 8000  # elements of a tensor
    room = max(1, most // max(1, int(np.prod(lead)) * head_size))
    heads = [min(room, choices.choice((1, 2, 3, 9, 17))) for _ in range(2)]
    xs = [_heads(choices, values, (*lead, n, head_size), dtype) for n in heads]
    scales = [rounded(values.uniform(-2, 2, head_size), dtype) for _ in xs]
    a = RmsNormRopeAttributes(params, choices.choice(EPSILONS), choices.chance(0.5))
    positions = _positions(choices, values, params, lead)
    factors = values.uniform(0.5, 4, params.pairs).astype(np.float32) if choices.chance(0.2) else None
    rows, outs, out_kind = _outs(choices, values, xs, dtype, lead)
    t = rms_norm_rope_tensors(xs[0], xs[1], scales[0], scales[1], positions, factors, outs, rows)
    text = (
        f"{dtype} q{list(xs[0].shape)} k{list(xs[1].shape)} strides {list(xs[0].strides)}, {out_kind},"
        f" positions {list(positions.shape)}, {'' if factors is None else 'factors, '}{a}"
    )
    return NormRopeDraw(text, t, dtype, a)


def _params(choices: Choices, mode: str, head_size: int) -> RopeParams:
    n_dims, n_offs = head_size // 2 * 2, 0
    if mode == "vision":
        n_dims = head_size // 2
    elif choices.chance(0.5):
        n_dims -= 2 * choices.below(n_dims // 2)
        n_offs = 2 * choices.integer(0, (head_size - n_dims) // 2)
    pairs = n_dims if mode == "vision" else n_dims // 2
    sections = None
    if mode in SECTIONED:
        sections = [choices.integer(0, max(1, pairs // 3)) for _ in range(4)]
        sections[choices.below(3)] = max(1, pairs // 3)
    scaling: dict[str, Any] = {}
    if choices.chance(0.2):
        scaling = {"n_ctx_orig": 4096, "freq_scale": 0.25, "ext_factor": choices.choice((1.0, 0.5))}
    base = choices.choice((10_000.0, 1e6))
    return RopeParams(
        n_dims, mode, sections=sections or (0, 0, 0, 0), n_offs=n_offs, freq_base=base, **scaling
    )


def _positions(
    choices: Choices, values: np.random.Generator, params: RopeParams, lead: tuple[int, ...]
) -> Array:
    tokens, start = lead[-1], choices.choice(STARTS)
    shape = lead if choices.chance(0.3) else (tokens,)
    if params.rope_mode.has_sections:
        shape = (choices.choice((3, 4)), *shape)
    dtype = choices.choice((np.int32, np.int64))
    if not choices.chance(0.3):  # consecutive, as in text
        return np.broadcast_to(start + np.arange(tokens), shape).astype(dtype)
    return values.integers(-(2**31), 2**31, shape).astype(dtype)


def _heads(choices: Choices, values: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Array:
    """Return heads of a random layout. Half of the draws scale each head by 1e-2 to 1e2. The others scale
    each head or each number over the range of the dtype, or make heads zero."""
    per_head, kind = (*shape[:-1], 1), choices.choice(NUMBERS)
    bits, smallest, largest = FORMATS[dtype]
    x = values.standard_normal(shape)
    if kind == "plain":
        x = x * 10.0 ** values.uniform(-2, 2, per_head)
    elif kind == "zero heads":
        x = x * values.integers(0, 2, per_head)
    else:
        sizes = per_head if kind == "scaled heads" else shape
        exponents = values.uniform(smallest + bits // 2, np.log2(largest) - 3, sizes)
        with np.errstate(over="ignore", under="ignore"):
            x = np.clip(x * np.exp2(exponents), -largest, largest)
    heads = rounded(x, dtype)
    layout = choices.choice(("contiguous", "contiguous", "gaps", "heads-first", "non-unit"))
    if layout == "gaps":
        return np.concatenate((heads, heads[..., :3]), -1)[..., : shape[-1]]
    if layout == "heads-first":
        return heads.swapaxes(-2, -3).copy().swapaxes(-2, -3)
    if layout == "non-unit":
        return np.repeat(heads, 2, -1)[..., ::2]
    return heads


def _outs(
    choices: Choices, values: np.random.Generator, xs: list[Array], dtype: str, lead: tuple[int, ...]
) -> tuple[Array | None, tuple[Array, Array] | None, str]:
    """Return the cache's rows or None, the outputs (or q's and the cache) or None, and the kind of output."""
    out_kind = choices.choice(("new", "given", "in place", "cache", "cache"))
    # A tensor that is not contiguous gets a separate output.
    outs = [x if out_kind == "in place" and x.flags.c_contiguous else np.zeros(x.shape, x.dtype) for x in xs]
    if out_kind != "cache":
        return None, None if out_kind == "new" else (outs[0], outs[1]), out_kind
    count = int(np.prod(lead))
    rows = values.permutation(count + 3)[:count].reshape(lead)
    rows[values.random(lead) < 0.2] = -1
    cache = rounded(values.standard_normal((count + 3, *xs[1].shape[-2:])), dtype)
    return rows, (outs[0], cache), out_kind


def refused(call: NormRopeDraw, backend: str) -> bool:
    """Return whether the back end's device does not support the call."""
    if not is_device(backend):
        return False
    far = np.abs(call.t.other_inputs["positions"].astype(np.int64)).max(initial=0) >= DEVICE_POSITIONS
    return bool(lacks_type(backend, (call.dtype,))) or bool(far)


def judge(call: NormRopeDraw, backend: str, *, parts: bool = True) -> float:
    """Return the largest error divided by its bound. With ``parts``, raise AssertionError if the bits
    differ from rms_norm followed by rope_qk (where they must not). Also raise it if an input was written."""
    t, a = call.t, call.attributes
    expected = _expected(call, backend)
    compares_bits = parts and a.intermediate_rounding and not t.scatters
    separate = _norm_then_rope(call, backend) if compares_bits else None
    read = [x for name, x in t.xs.items() if name not in t.in_place] + list(t.other_inputs.values())
    with unwritten(read):
        results = executors.run(backend, t, a)
    if separate is not None and [y.tobytes() for y in results] != [y.tobytes() for y in separate]:
        raise AssertionError("the results do not have the bits of rms_norm followed by rope_qk")
    ratios = [worst_ratio(y, e.value, e.bound)[0] for y, e in zip(results, expected, strict=True)]
    return max(ratios)


def _expected(call: NormRopeDraw, backend: str) -> list[Expectation]:
    t, a = call.t, call.attributes
    sides = zip(t.xs.values(), scales_of(t), strict=True)
    heads = ((x.astype(np.float64), scale.astype(np.float64)) for x, scale in sides)
    q, k = expected_heads(
        heads, t.other_inputs["positions"], t.other_inputs.get("freq_factors"), call.dtype, a, backend
    )
    return [q, in_rows(k, t.other_inputs["rows"], t.outs["cache"]) if t.scatters else k]


def _norm_then_rope(call: NormRopeDraw, backend: str) -> tuple[Array, ...]:
    """Run rms_norm on q and k, then rope_qk."""
    t, a = call.t, call.attributes
    norm = RmsNormAttributes(-1, a.epsilon, 1)
    q, k = (
        norm_executors.run(backend, rms_norm_tensors(x, scale), norm)[0]
        for x, scale in zip(t.xs.values(), scales_of(t), strict=True)
    )
    rope = rope_qk_tensors(q, k, t.other_inputs["positions"], t.other_inputs.get("freq_factors"), None)
    return executors.run(backend, rope, RopeCallAttributes(a.params, angle=a.angle))
