"""A description of a call of rms_norm_rope, and the functions that run it and judge its results."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import numpy as np
import pytest
from norm_cases import NUMPY_DTYPES, bytes_of, to_torch, values_of
from rope_cases import Case as RopeCase
from rope_cases import factors_of, layout_strides, params_of, positions_of, refusal, table_error_of

from npu_rope import rms_norm, rms_norm_rope, rope_qk
from npu_rope.testing import norm_rope_spec
from npu_rope.testing.bounds import normalized_error_on, worst_ratio
from npu_rope.testing.norm_rope_spec import NormRopeCall
from npu_rope.testing.norm_ropes import in_rows
from npu_rope.testing.outcomes import Expectation


@dataclass(frozen=True)
class NormRopeSetup:
    """A call of rms_norm_rope, by default a plain one.

    FACTORS lists the values of all fields except ``sizes``.
    """

    dtype: str = "float32"
    rounding: bool = False
    mode: str = "neox"
    framework: str = "numpy"
    sizes: tuple[int, int, int, int] = (2, 5, 3, 64)  # B, S, Nq, D
    keys: int = 2  # heads of k
    rank: int = 4
    window: str = "full"
    freq_factors: str = "none"
    scaling: str = "none"
    positions: str = "ascending"
    layout: str = "contiguous"
    out: str = "new"  # "cache": k goes to a cache, q is new; "cache-given": q has a given out also
    epsilon: float = 1e-6
    numbers: str = "scaled-heads"
    scale_layout: str = "contiguous"

    def __str__(self):
        changed = [
            f"{f.name}={getattr(self, f.name)}" for f in fields(self) if getattr(self, f.name) != f.default
        ]
        return ",".join(changed).replace(" ", "") or "defaults"

    @property
    def rope(self):
        """The call of rope with the fields that both calls have."""
        names = ("mode", "sizes", "rank", "window", "freq_factors", "scaling", "positions")
        return RopeCase(**{name: getattr(self, name) for name in names})


FACTORS = {
    "dtype": ["float32", "float16", "bfloat16", "float64"],
    "rounding": [False, True],
    "mode": ["neox", "normal", "mrope", "imrope", "vision"],
    "framework": ["numpy", "torch"],
    "keys": [2, 1, 5],
    "rank": [4, 3],
    "window": ["full", "front", "middle", "back"],
    "freq_factors": ["none", "given", "strided"],
    "scaling": ["none", "linear", "yarn"],
    "positions": ["ascending", "int64", "per-batch", "one-row", "negative", "extreme"],
    "layout": ["contiguous", "bnsd", "fused-qkv", "gaps", "shared-batch", "non-unit", "reversed"],
    "out": ["new", "given", "in-place", "gaps", "cache", "cache-given"],
    "epsilon": [1e-6, 0.0, 1.0],
    "numbers": ["scaled-heads", "zeros", "large", "small", "inf-nan"],
    "scale_layout": ["contiguous", "gaps"],
}


def possible(call):
    """Return whether the values of the factors can occur together."""
    if call.framework == "torch" and call.layout == "reversed":
        return False
    if call.out == "in-place" and call.layout in ("shared-batch", "non-unit"):
        return False
    return call.mode != "vision" or (call.window == "full" and call.sizes[3] % 4 == 0)


@dataclass
class NormRopeArrays:
    """The arguments of a call. ``rows`` is None without a cache.

    ``outs`` is None if the call makes both results. Otherwise it has the arrays that the caller gives for q
    and k. In a call with rows these are q's array, which may be None, and the cache.
    """

    params: object
    xs: list
    scales: list
    positions: np.ndarray
    factors: np.ndarray | None
    rows: np.ndarray | None
    outs: tuple | None


def numbers_of(call, rng, shape):
    """Return values of q or k, of the kind that the call's ``numbers`` names."""
    x, per_head = rng.standard_normal(shape), (*shape[:-1], 1)
    limits = np.finfo(NUMPY_DTYPES[call.dtype]) if call.dtype != "bfloat16" else None
    # NumPy has no limits of bfloat16.
    largest, smallest = (3.3e38, 2.0**-133) if limits is None else (limits.max, limits.smallest_subnormal)
    largest, smallest = float(largest), float(smallest)
    values = {
        "scaled-heads": lambda: x * 10.0 ** rng.uniform(-3, 3, per_head),
        "zeros": lambda: x * rng.integers(0, 2, per_head),
        "large": lambda: np.clip(x, -1, 1) * largest,
        "small": lambda: x * 9 * smallest,
        "inf-nan": lambda: x,
    }[call.numbers]()
    if call.numbers == "inf-nan" and values.size:
        values.flat[0], values.flat[-1] = np.inf, np.nan
    return values


def filled(guarded, values, dtype, layout):
    array = guarded.empty(values.shape, dtype, layout_strides(layout, values.shape))
    with np.errstate(over="ignore", invalid="ignore"):
        array[...] = values.astype(dtype)
    return array


def rows_of(call, rng):
    """Return distinct indices of rows of the cache. Every fourth is -1: that token is not stored."""
    B, S = call.sizes[:2] if call.rank == 4 else (1, call.sizes[1])
    rows = rng.permutation(B * S + 3)[: B * S]
    rows[::4] = -1
    return rows.reshape((B, S) if call.rank == 4 else S)


def make_inputs(call, guarded, seed=0):
    rng, dtype = np.random.default_rng(seed), NUMPY_DTYPES[call.dtype]
    params = params_of(call.rope)
    B, S, N, D = call.sizes
    token_shape = (B, S) if call.rank == 4 else (S,)
    shapes = [(*token_shape, heads, D) for heads in (N, call.keys)]
    xs = [filled(guarded, numbers_of(call, rng, shape), dtype, call.layout) for shape in shapes]
    scales = [guarded.input(rng.uniform(-2, 2, D).astype(dtype)) for _ in xs]
    if call.scale_layout == "gaps":
        scales = [guarded.input(np.asarray(s), (3,)) for s in scales]
    positions, factors = positions_of(call.rope, rng), factors_of(call.rope, params, rng)

    def blank(shape, layout):
        return filled(guarded, np.full(shape, 3.0), dtype, layout)

    outs = {
        "new": lambda: None,
        "given": lambda: tuple(blank(shape, "contiguous") for shape in shapes),
        "gaps": lambda: tuple(blank(shape, "gaps") for shape in shapes),
        "in-place": lambda: tuple(xs),
    }.get(call.out)
    if outs is None:
        rows = rows_of(call, rng)
        cache = filled(guarded, rng.standard_normal((rows.size + 3, call.keys, D)), dtype, "gaps")
        q_out = None if call.out == "cache" else blank(shapes[0], "gaps")
        return NormRopeArrays(params, xs, scales, positions, factors, rows, (q_out, cache))
    return NormRopeArrays(params, xs, scales, positions, factors, None, outs())


def expectations(call, inputs, backend, **changed):
    """Return the specification's expectations of both outputs: q, and k or the cache."""
    expected = [
        Expectation(
            *norm_rope_spec.rms_norm_rope(
                NormRopeCall(
                    x.astype(np.float64),
                    scale.astype(np.float64),
                    inputs.positions,
                    inputs.params,
                    call.dtype,
                    inputs.factors,
                    call.epsilon,
                    call.rounding,
                    table_error=table_error_of(backend),
                    error=normalized_error_on(backend, x.shape[-1]),
                    **changed,
                )
            )
        )
        for x, scale in zip(inputs.xs, inputs.scales, strict=True)
    ]
    if inputs.rows is not None:
        expected[1] = in_rows(expected[1], inputs.rows, inputs.outs[1])
    return expected


def assert_within(result, expected, dtype):
    assert str(result.dtype).removeprefix("torch.") == dtype
    assert tuple(result.shape) == expected.value.shape
    ratio, at = worst_ratio(values_of(result), expected.value, expected.bound)
    assert ratio <= 1, f"error is {ratio:.3g} of its bound at {at}: {values_of(result)[at]!r}"


def run_call(call, inputs, backend, **more):
    """Run a call on arrays or tensors. An array that is passed twice becomes one tensor."""
    tensors = {}

    def convert(array):
        if array is None or call.framework == "numpy":
            return array
        return tensors.setdefault(id(array), to_torch(array))

    xs, scales = [convert(x) for x in inputs.xs], [convert(s) for s in inputs.scales]
    outs = None if inputs.outs is None else tuple(convert(o) for o in inputs.outs)
    destinations = {} if outs is None else {"out": outs}
    if inputs.rows is not None:
        destinations = {"rows": convert(inputs.rows), "cache": outs[1], "out": outs[0]}
    rotation = convert(inputs.positions), inputs.params, convert(inputs.factors)
    options = {"epsilon": call.epsilon, "intermediate_rounding": call.rounding, "backend": backend, **more}
    results = rms_norm_rope(*xs, *scales, *rotation, **destinations, **options)
    for result, out in zip(results, outs or (), strict=False):
        assert out is None or result is out
    return results


def run_and_judge(call, backend, guarded, seed=0):
    """Return the results after a check of their bounds and of the memory around them; None if the back end
    must refuse the call."""
    inputs = make_inputs(call, guarded, seed)
    expected = expectations(call, inputs, backend)
    before = [x.copy() for x in (*inputs.xs, *inputs.scales)]
    size = inputs.xs[0].size + inputs.xs[1].size
    refused = refusal(backend, call.dtype, positions=inputs.positions, size=size, name="[rms_norm_rope] q")
    if refused:
        with pytest.raises(refused[0]) as caught:
            run_call(call, inputs, backend)
        assert str(caught.value) == refused[1].replace("[rope]", "[rms_norm_rope]")
        guarded.check()
        return None
    results = run_call(call, inputs, backend)
    guarded.check()
    if call.out != "in-place":
        after = [*inputs.xs, *inputs.scales]
        assert list(map(bytes_of, after)) == list(map(bytes_of, before))
    for result, expectation in zip(results, expected, strict=True):
        assert_within(result, expectation, call.dtype)
    return results


def parts_of(call, inputs, backend, **more):
    """Return the result of the separate operators: rms_norm of each side, then rope_qk."""
    q, k = (
        rms_norm(x, scale, epsilon=call.epsilon, backend=backend)
        for x, scale in zip(inputs.xs, inputs.scales, strict=True)
    )
    return rope_qk(q, k, inputs.positions, inputs.params, inputs.factors, backend=backend, **more)


__all__ = [
    "FACTORS",
    "NormRopeSetup",
    "expectations",
    "make_inputs",
    "parts_of",
    "possible",
    "replace",
    "run_and_judge",
    "run_call",
]
