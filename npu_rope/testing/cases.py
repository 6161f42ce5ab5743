"""The cases ``npu-rope validate`` runs, as data.

Suite ``ggml``: the normal and NeoX cases of ROPE and ROPE_BACK in ggml's own test-backend-ops,
under its names. Suite ``models``: real models' parameters (models.py) at prefill and decode
shapes and far positions. Positions and values are drawn from a generator seeded by the case's
name, so that a case is the same on every machine.
"""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from npu_rope.dtypes import bfloat16_bits, bfloat16_values
from npu_rope.params import RopeMode, RopeParams
from npu_rope.testing.models import MODELS, ModelRope

Suite = Literal["ggml", "models"]
SUITES: tuple[Suite, ...] = ("ggml", "models")

# ggml's test draws positions below this.
GGML_N_CTX = 512
# The last position of a 128 Ki context, and of a 1 Mi one.
FAR_128K = 131_071
FAR_1M = 1_048_575

_SHORT = {"float32": "f32", "float16": "f16", "bfloat16": "bf16", "float64": "f64"}


@dataclass(frozen=True)
class RopeCase:
    """One call of rope.

    Attributes:
        name: unique within its suite; for ``ggml`` the string test-backend-ops prints.
        shape: ``(B, S, N, D)``.
        params: what npu_rope runs with.
        ggml_n_ctx_orig: what ggml gets as n_ctx_orig (its tests pass 0 with YaRN on, which we
            refuse: 1 gives the same ramp, see :func:`ggml_cases`).
        factors: None, a tuple, or ``"random"`` for values in [0.9, 1.1).
        positions: how they are drawn.
        view: 0 contiguous; 1 a corner of a larger tensor; 2 the second half of wider rows.
    """

    suite: Suite
    name: str
    dtype: str
    shape: tuple[int, int, int, int]
    params: RopeParams
    ggml_n_ctx_orig: int
    positions: Literal["random", "prefill", "decode", "far"]
    source: str
    factors: tuple[float, ...] | Literal["random"] | None = None
    forward: bool = True
    inplace: bool = False
    view: int = 0

    @property
    def op(self) -> str:
        """ggml's name of the operation."""
        return "ROPE" if self.forward else "ROPE_BACK"

    @property
    def last_position(self) -> int:
        """The largest position the case uses."""
        return {"random": GGML_N_CTX - 1, "far": FAR_1M}.get(self.positions, FAR_128K)


@dataclass
class CaseData:
    """A case's arrays. ``parent`` is the buffer that ``x`` is a view of; ``x`` holds the values
    in float32 or float64 where NumPy has no bfloat16 (exact), ``bits`` then its bfloat16 bits.
    """

    x: npt.NDArray[Any]
    parent: npt.NDArray[Any]
    positions: npt.NDArray[np.int32]
    freq_factors: npt.NDArray[np.float32] | None


def view_of(parent: npt.NDArray[Any], case: RopeCase) -> npt.NDArray[Any]:
    """The case's ``[B,S,N,D]`` view of its parent buffer."""
    b, s, n, d = case.shape
    if case.view == 2:
        return parent[..., d:]
    return parent[:b, :s, :n, :d]


def parent_shape(case: RopeCase) -> tuple[int, int, int, int]:
    """Shape of the buffer the case's view is cut from (ggml's v = 1 and v = 2)."""
    b, s, n, d = case.shape
    return {0: (b, s, n, d), 1: (b, 3 * s, 4 * n, 2 * d), 2: (b, s, n, 2 * d)}[case.view]


def make_data(case: RopeCase) -> CaseData:
    """The case's input. Values uniform in [-1, 1), rounded to the case's dtype."""
    rng = np.random.default_rng(zlib.crc32(f"{case.suite}/{case.name}".encode()))
    values = rng.random(parent_shape(case), np.float32) * 2 - 1
    if case.dtype == "bfloat16":
        parent: npt.NDArray[Any] = bfloat16_values(bfloat16_bits(values))
    else:
        parent = values.astype(case.dtype)
    factors = _factors(case, rng)
    return CaseData(view_of(parent, case), parent, _positions(case, rng), factors)


def _factors(case: RopeCase, rng: np.random.Generator) -> npt.NDArray[np.float32] | None:
    if case.factors is None:
        return None
    if case.factors == "random":
        return rng.uniform(0.9, 1.1, case.params.n_dims // 2).astype(np.float32)
    return np.array(case.factors, np.float32)


def _positions(case: RopeCase, rng: np.random.Generator) -> npt.NDArray[np.int32]:
    batch, tokens = case.shape[:2]
    if case.positions == "random":
        return rng.integers(0, GGML_N_CTX, tokens).astype(np.int32)
    if case.positions == "decode":
        drawn = rng.integers(0, FAR_128K + 1, (batch, tokens)).astype(np.int32)
        drawn[-1, -1] = FAR_128K
        return drawn
    # Half a run of consecutive tokens, half spread over the whole context, its end included.
    last = FAR_1M if case.positions == "far" else FAR_128K
    run = np.arange(tokens // 2) + (last // 3 if case.positions == "far" else 0)
    spread = np.linspace(0, last, tokens - tokens // 2)
    return np.concatenate([run, spread]).astype(np.int32)


# ---- ggml's matrix -------------------------------------------------------------------------------


def ggml_cases() -> Iterator[RopeCase]:
    """The normal and NeoX part of test_rope in ggml's tests/test-backend-ops.cpp.

    ggml passes n_ctx_orig = 0 and beta_fast = beta_slow = 1: with log(0) = -inf both ramp limits
    clamp so that only pair 0 is extrapolated. n_ctx_orig = 1 clamps to the same (its d(beta) is
    negative for every n_dims), and is what npu_rope runs with, since it refuses 0 with YaRN on.
    """
    normal, neox = RopeMode.NORMAL, RopeMode.NEOX
    first_only: tuple[tuple[tuple[int, int, int, int], int, RopeMode], ...] = (
        ((128, 40, 2, 1), 128, normal),
        ((128, 52, 2, 1), 128, normal),
        ((128, 64, 2, 1), 128, normal),
        ((16, 16, 8192, 1), 16, normal),
        ((64, 1, 2, 1), 64, neox),
        ((64, 71, 2, 1), 64, neox),
        ((64, 8, 2, 1), 64, neox),
        ((80, 32, 2, 1), 20, normal),
        ((80, 32, 2, 1), 32, normal),
        ((80, 32, 4, 1), 32, normal),
        ((80, 32, 2, 1), 20, neox),
        ((80, 32, 2, 1), 32, neox),
        ((80, 32, 4, 1), 32, neox),
        ((16, 16, 8192, 1), 16, neox),
    )
    scales = itertools.product((1.0, 1.4245), (0.0, 0.7465), (1.0, 1.4245))
    for forward, (fs, ef, af), dtype in itertools.product(
        (True, False), tuple(scales), ("float32", "float16")
    ):
        everything = (fs, ef, af, dtype) == (1.0, 0.0, 1.0, "float32")
        for ff in (False, True):
            for v in (0, 1):
                yield _ggml(dtype, (128, 32, 2, 1), 128, normal, fs, ef, af, ff, v, forward)
                for ne, n_dims, mode in first_only if everything else ():
                    yield _ggml(dtype, ne, n_dims, mode, fs, ef, af, ff, v, forward)
                yield _ggml(dtype, (64, 128, 2, 1), 64, neox, fs, ef, af, ff, v, forward)
            for mode in (normal, neox):
                yield _ggml(dtype, (36, 16, 2457, 1), 36, mode, fs, ef, af, ff, 2, forward)
    for dtype, mode, ff in itertools.product(("float32", "float16"), (normal, neox), (False, True)):
        for ne, v in (((128, 32, 2, 1), 0), ((128, 32, 2, 1), 1), ((128, 32, 2, 3), 1)):
            yield _ggml(dtype, ne, 128, mode, 1.4245, 0.7465, 1.4245, ff, v, True, inplace=True)
    yield from _ggml_offset_cases()


def _ggml_offset_cases() -> Iterator[RopeCase]:
    ne, scaling = (128, 32, 2, 1), (1.4245, 0.7465, 1.4245)
    for dtype in ("float32", "float16"):
        for forward, ff in itertools.product((True, False), (False, True)):
            for mode in (RopeMode.NORMAL, RopeMode.NEOX):
                yield _ggml(dtype, ne, 32, mode, *scaling, ff, 0, forward, n_offs=32)
        yield _ggml(dtype, ne, 32, RopeMode.NEOX, *scaling, False, 0, True, inplace=True, n_offs=32)


def _ggml(
    dtype: str,
    ne: tuple[int, int, int, int],
    n_dims: int,
    mode: RopeMode,
    fs: float,
    ef: float,
    af: float,
    ff: bool,
    v: int,
    forward: bool,
    *,
    inplace: bool = False,
    n_offs: int = 0,
) -> RopeCase:
    variables = (
        f"type={_SHORT[dtype]},ne_a=[{','.join(map(str, ne))}],n_dims={n_dims},mode={mode.value},"
        f"n_ctx={GGML_N_CTX},fs={fs:.6f},ef={ef:.6f},af={af:.6f},ff={ff:d},v={v},"
        f"inplace={inplace:d},n_offs={n_offs}"
    )
    params = RopeParams(
        n_dims,
        mode,
        n_ctx_orig=1 if ef else 0,
        freq_scale=fs,
        ext_factor=ef,
        attn_factor=af,
        beta_fast=1.0,
        beta_slow=1.0,
        n_offs=n_offs,
    )
    return RopeCase(
        suite="ggml",
        name=f"{'ROPE' if forward else 'ROPE_BACK'}({variables})",
        dtype=dtype,
        shape=(ne[3], ne[2], ne[1], ne[0]),
        params=params,
        ggml_n_ctx_orig=0,
        positions="random",
        source="ggml tests/test-backend-ops.cpp, test_rope",
        factors="random" if ff else None,
        forward=forward,
        inplace=inplace,
        view=v,
    )


# ---- real models -----------------------------------------------------------------------------------


def model_cases(models: tuple[ModelRope, ...] = MODELS) -> Iterator[RopeCase]:
    """Per model: prefill q in three dtypes and k in one, a decode batch, the gradient, and
    positions up to 1,048,575.
    """
    for m in models:
        prefill = _model(m, "prefill", "prefill", "float32", (1, 128, m.n_heads, m.head_dim))
        yield prefill
        for dtype in ("float16", "bfloat16"):
            yield _model(m, "prefill", "prefill", dtype, prefill.shape)
        yield _model(m, "prefill-k", "prefill", "float32", (1, 128, m.n_kv_heads, m.head_dim))
        yield _model(m, "decode", "decode", "float32", (8, 1, m.n_heads, m.head_dim))
        yield _model(m, "decode", "decode", "bfloat16", (8, 1, m.n_heads, m.head_dim))
        yield replace(_model(m, "back", "prefill", "float32", prefill.shape), forward=False)
        yield _model(m, "far", "far", "float32", (1, 64, m.n_heads, m.head_dim))


def _model(
    m: ModelRope,
    what: str,
    positions: Literal["prefill", "decode", "far"],
    dtype: str,
    shape: tuple[int, int, int, int],
) -> RopeCase:
    p = m.params
    described = f"{m.name}/{what}(type={_SHORT[dtype]},shape={list(shape)},mode={p.rope_mode.name.lower()}"
    case = RopeCase(
        suite="models",
        name="",
        dtype=dtype,
        shape=shape,
        params=p,
        ggml_n_ctx_orig=p.n_ctx_orig,
        positions=positions,
        source=m.source,
        factors=m.freq_factors,
    )
    return replace(case, name=f"{described},pos<={case.last_position})".replace(" ", ""))


def all_cases(suites: tuple[Suite, ...] = SUITES) -> list[RopeCase]:
    """Every case of the suites, in a fixed order, once each."""
    makers = {"ggml": ggml_cases, "models": model_cases}
    seen: dict[tuple[str, str], RopeCase] = {}
    for suite in suites:
        for case in makers[suite]():
            seen.setdefault((case.suite, case.name), case)
    return list(seen.values())
