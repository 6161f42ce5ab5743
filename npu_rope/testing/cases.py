"""The cases of ``npu-rope validate``, as data.

Suite ``ggml`` has every case of ROPE, ROPE_BACK and ROPE_SET_ROWS in ggml's own test-backend-ops, with the
same names and in the same order. Suite ``models`` has real models' parameters (models.py) at prefill shapes,
decode shapes and far positions. The case's name seeds the generator of positions and values, so that a case
is the same on every machine.
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
from npu_rope.params import RopeParams
from npu_rope.rope_attributes import AXES, RopeMode
from npu_rope.testing.models import MODELS, PublishedRope
from npu_rope.testing.outcomes import AnyCase

Suite = Literal["ggml", "models", "sequences"]

# ggml's test draws positions below this number.
GGML_N_CTX = 512
# The last position of a 128 Ki context, and the last one that a device supports.
FAR_128K = 131_071
FAR_4M = 4_194_303

# Short names of dtypes, in the names of cases.
SHORT = {"float32": "f32", "float16": "f16", "bfloat16": "bf16", "float64": "f64", "int8": "i8"}


@dataclass(frozen=True)
class RopeCase:
    """One call of rope, or of rope_set_rows where ``cache_rows`` is not 0.

    Attributes:
        name: unique within its suite; for ``ggml`` the string that test-backend-ops prints.
        dtype: of x.
        shape: ``(B, S, N, D)``.
        params: the parameters for npu_rope.
        ggml_n_ctx_orig: the n_ctx_orig for ggml. With YaRN, ggml's tests pass 0, which npu_rope refuses.
            ``params`` then has 1, which gives the same ramp (see :func:`ggml_cases`).
        factors: None, a tuple, or ``"random"`` for values in [0.9, 1.1).
        positions: the kind of the positions.
        view: the place of x in its buffer (ggml's v): 0 the whole buffer; 1 a corner of it; 2 the second half
            of each of its rows.
        cache_rows: R of the cache ``[R,N,D]`` that receives the tokens; 0: no cache.
        cache_dtype: of the cache.
        rows_dtype: of the row indices, which are the tokens' numbers in random order, as in ggml's test.
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
    cache_rows: int = 0
    cache_dtype: str = ""
    rows_dtype: Literal["int64", "int32"] = "int64"

    @property
    def op(self) -> str:
        """ggml's name of the operation."""
        if self.cache_rows:
            return "ROPE_SET_ROWS"
        return "ROPE" if self.forward else "ROPE_BACK"

    @property
    def result_dtype(self) -> str:
        """The dtype of the rotated values: the cache's, else x's."""
        return self.cache_dtype or self.dtype

    @property
    def last_position(self) -> int:
        """The largest position that the case may draw."""
        return {"random": GGML_N_CTX - 1, "far": FAR_4M}.get(self.positions, FAR_128K)


@dataclass
class CaseData:
    """A case's arrays.

    Attributes:
        x: ``[B,S,N,D]``, a view of ``parent``; float32 where NumPy has no such dtype (bfloat16,
            whose values are exact in it).
        parent: the buffer that x is a view of.
        positions: ``[S]`` or ``[B,S]``; ``[4,S]`` or ``[4,B,S]`` in the modes with sections.
        freq_factors: ``[pairs]`` or None.
        rows: ``[S]``, the cache row of each token, or None.
        cache: ``[R,N,D]`` before the call, or None.
    """

    x: npt.NDArray[Any]
    parent: npt.NDArray[Any]
    positions: npt.NDArray[np.int32]
    freq_factors: npt.NDArray[np.float32] | None
    rows: npt.NDArray[np.integer[Any]] | None = None
    cache: npt.NDArray[Any] | None = None


def view_of(parent: npt.NDArray[Any], case: RopeCase) -> npt.NDArray[Any]:
    """Return the case's ``[B,S,N,D]`` view of its parent buffer."""
    b, s, n, d = case.shape
    if case.view == 2:
        return parent[..., d:]
    return parent[:b, :s, :n, :d]


def parent_shape(case: RopeCase) -> tuple[int, int, int, int]:
    """Return the shape of the buffer that contains the case's view (ggml's v = 1 and v = 2)."""
    b, s, n, d = case.shape
    return {0: (b, s, n, d), 1: (b, 3 * s, 4 * n, 2 * d), 2: (b, s, n, 2 * d)}[case.view]


def generator_of(case: AnyCase) -> np.random.Generator:
    """Return the generator of a case's values. Its seed is the case's name."""
    return np.random.default_rng(zlib.crc32(f"{case.suite}/{case.name}".encode()))


def make_data(case: RopeCase) -> CaseData:
    """Return the case's input: values uniform in [-1, 1), rounded to the case's dtype."""
    generator = generator_of(case)
    parent = _values(generator, parent_shape(case), case.dtype)
    factors = _factors(case, generator)
    data = CaseData(view_of(parent, case), parent, _positions(case, generator), factors)
    if case.cache_rows:
        data.rows = generator.permutation(case.shape[1]).astype(case.rows_dtype)
        data.cache = _values(generator, (case.cache_rows, *case.shape[2:]), case.cache_dtype)
    return data


def _values(generator: np.random.Generator, shape: tuple[int, ...], dtype: str) -> npt.NDArray[Any]:
    return rounded(generator.random(shape, np.float32) * 2 - 1, dtype)


def rounded(values: npt.NDArray[Any], dtype: str) -> npt.NDArray[Any]:
    """Round to that dtype; return bfloat16, which NumPy lacks, as float32 values."""
    if dtype == "bfloat16":
        return bfloat16_values(bfloat16_bits(values))
    return values.astype(dtype)


def _factors(case: RopeCase, generator: np.random.Generator) -> npt.NDArray[np.float32] | None:
    if case.factors is None:
        return None
    if case.factors == "random":
        return generator.uniform(0.9, 1.1, case.params.pairs).astype(np.float32)
    return np.array(case.factors, np.float32)


def _positions(case: RopeCase, generator: np.random.Generator) -> npt.NDArray[np.int32]:
    time = _axis_positions(case, generator)
    if not case.params.rope_mode.has_sections:
        return time
    if case.positions == "random":
        return np.stack([time, *(_axis_positions(case, generator) for _ in range(AXES - 1))])
    # The other axes have the same positions in another order.
    return np.stack(
        [time, *(generator.permutation(time.reshape(-1)).reshape(time.shape) for _ in range(AXES - 1))]
    )


def _axis_positions(case: RopeCase, generator: np.random.Generator) -> npt.NDArray[np.int32]:
    batch, tokens = case.shape[:2]
    if case.positions == "random":
        return generator.integers(0, GGML_N_CTX, tokens).astype(np.int32)
    if case.positions == "decode":
        positions = generator.integers(0, FAR_128K + 1, (batch, tokens)).astype(np.int32)
        positions[-1, -1] = FAR_128K
        return positions
    # Half of the positions are consecutive, the others are spread over the whole context and include its end.
    last = FAR_4M if case.positions == "far" else FAR_128K
    consecutive = np.arange(tokens // 2) + (last // 3 if case.positions == "far" else 0)
    spread = np.linspace(0, last, tokens - tokens // 2)
    return np.concatenate([consecutive, spread]).astype(np.int32)


# ---- ggml's matrix -------------------------------------------------------------------------------


GgmlShape = tuple[int, int, int, int]  # ggml's order: D, N, S, B
_NORMAL, _NEOX, _MROPE, _VISION, _IMROPE = RopeMode
_MODES = (_NORMAL, _NEOX, _MROPE, _IMROPE, _VISION)
# freq_scale, ext_factor and attn_factor of the cases with a single scaling.
_SCALING = (1.4245, 0.7465, 1.4245)

# Additional float32 cases without scaling: (shape, n_dims, mode).
_UNSCALED_FLOAT32: tuple[tuple[GgmlShape, int, RopeMode], ...] = (
    ((128, 40, 2, 1), 128, _NORMAL),
    ((128, 52, 2, 1), 128, _NORMAL),
    ((128, 64, 2, 1), 128, _NORMAL),
    ((16, 16, 8192, 1), 16, _NORMAL),
    ((64, 1, 2, 1), 64, _NEOX),
    ((64, 71, 2, 1), 64, _NEOX),
    ((64, 8, 2, 1), 64, _NEOX),
    ((80, 32, 2, 1), 20, _NORMAL),
    ((80, 32, 2, 1), 32, _NORMAL),
    ((80, 32, 4, 1), 32, _NORMAL),
    ((80, 32, 2, 1), 20, _NEOX),
    ((80, 32, 2, 1), 32, _NEOX),
    ((80, 32, 4, 1), 32, _NEOX),
    ((16, 16, 8192, 1), 16, _NEOX),
    ((128, 12, 2, 1), 128, _MROPE),
    ((128, 28, 2, 1), 128, _MROPE),
    ((128, 12, 2, 1), 20, _MROPE),
    ((128, 28, 2, 1), 32, _MROPE),
    ((128, 12, 2, 1), 128, _IMROPE),
    ((128, 28, 2, 1), 128, _IMROPE),
    ((128, 12, 2, 1), 20, _IMROPE),
    ((128, 28, 2, 1), 32, _IMROPE),
    ((80, 16, 2, 1), 80, _VISION),
    ((128, 16, 2, 1), 128, _IMROPE),
    ((16, 16, 8192, 1), 16, _IMROPE),
)


def ggml_cases() -> Iterator[RopeCase]:
    """Yield test_rope_set_rows and test_rope of ggml's tests/test-backend-ops.cpp (ggml d99724f).

    ggml passes n_ctx_orig = 0 and beta_fast = beta_slow = 1. With log(0) = -inf, the limits of YaRN's ramp
    clamp so that only pair 0 is extrapolated. npu_rope refuses 0 with YaRN and therefore receives 1. Before
    they are clamped, its limits are negative for every n_dims, so they clamp to the same values.
    """
    yield from _ggml_set_rows_cases()
    scales = itertools.product((1.0, 1.4245), (0.0, 0.7465), (1.0, 1.4245))
    for forward, scaling, dtype in itertools.product((True, False), tuple(scales), ("float32", "float16")):
        is_unscaled_float32 = scaling == (1.0, 0.0, 1.0) and dtype == "float32"
        for has_freq_factors in (False, True):
            for view in (0, 1):
                yield _ggml_case(
                    dtype, (128, 32, 2, 1), 128, _NORMAL, scaling, has_freq_factors, view, forward
                )
                for shape, n_dims, mode in _UNSCALED_FLOAT32 if is_unscaled_float32 else ():
                    yield _ggml_case(dtype, shape, n_dims, mode, scaling, has_freq_factors, view, forward)
                yield _ggml_case(dtype, (64, 128, 2, 1), 64, _NEOX, scaling, has_freq_factors, view, forward)
            for mode in _MODES:
                yield _ggml_case(dtype, (36, 16, 2457, 1), 36, mode, scaling, has_freq_factors, 2, forward)
    for dtype, mode, has_freq_factors in itertools.product(("float32", "float16"), _MODES, (False, True)):
        for shape, view in (((128, 32, 2, 1), 0), ((128, 32, 2, 1), 1), ((128, 32, 2, 3), 1)):
            yield _ggml_case(dtype, shape, 128, mode, _SCALING, has_freq_factors, view, True, inplace=True)
    yield from _ggml_offset_cases()


def _ggml_offset_cases() -> Iterator[RopeCase]:
    wide, narrow = (128, 32, 2, 1), (128, 12, 2, 1)
    windows = ((wide, 32, _NORMAL), (wide, 32, _NEOX), (narrow, 24, _MROPE), (narrow, 24, _IMROPE))
    for dtype in ("float32", "float16"):
        for forward, has_freq_factors in itertools.product((True, False), (False, True)):
            for shape, n_dims, mode in windows:
                yield _ggml_case(
                    dtype, shape, n_dims, mode, _SCALING, has_freq_factors, 0, forward, n_offs=32
                )
        yield _ggml_case(dtype, wide, 32, _NEOX, _SCALING, False, 0, True, inplace=True, n_offs=32)


def _ggml_set_rows_cases() -> Iterator[RopeCase]:
    for mode, cache_dtype, tokens, cache_copies in itertools.product(
        (_NORMAL, _NEOX, _MROPE, _VISION), ("float16", "float32"), (1, 8, 512), (1, 3)
    ):
        # ggml's fourth dimension makes only the cache longer. Only the modes with sections are scaled.
        scaling = _SCALING if mode.has_sections else (1.0, 0.0, 1.0)
        yield RopeCase(
            suite="ggml",
            name=f"ROPE_SET_ROWS(type={SHORT[cache_dtype]},type_idx=i64,ne_a=[128,32,{tokens},{cache_copies}],"
            f"mode={mode.value})",
            dtype="float32",
            shape=(1, tokens, 32, 128),
            params=_ggml_params(128, mode, scaling),
            ggml_n_ctx_orig=0,
            positions="random",
            source="ggml tests/test-backend-ops.cpp, test_rope_set_rows",
            cache_rows=tokens * cache_copies,
            cache_dtype=cache_dtype,
        )


def _ggml_params(
    n_dims: int, mode: RopeMode, scaling: tuple[float, float, float], n_offs: int = 0
) -> RopeParams:
    """Return the parameters that test_rope passes to ggml. ``n_dims`` is the one in the case's name. In mode
    vision it is the head size, and ggml receives half of it."""
    freq_scale, ext_factor, attn_factor = scaling
    sections = (0, 0, 0, 0)
    if mode is _VISION:
        sections, n_dims = (n_dims // 4, n_dims // 4, 0, 0), n_dims // 2
    elif mode.has_sections:
        sections = (n_dims // 3, n_dims // 3, n_dims // 3, 0)
    return RopeParams(
        n_dims,
        mode,
        n_ctx_orig=1 if ext_factor else 0,
        freq_scale=freq_scale,
        ext_factor=ext_factor,
        attn_factor=attn_factor,
        beta_fast=1.0,
        beta_slow=1.0,
        sections=sections,
        n_offs=n_offs,
    )


def _ggml_case(
    dtype: str,
    shape: GgmlShape,
    n_dims: int,
    mode: RopeMode,
    scaling: tuple[float, float, float],
    has_freq_factors: bool,
    view: int,
    forward: bool,
    *,
    inplace: bool = False,
    n_offs: int = 0,
) -> RopeCase:
    freq_scale, ext_factor, attn_factor = scaling
    case_text = (
        f"type={SHORT[dtype]},ne_a=[{','.join(map(str, shape))}],n_dims={n_dims},mode={mode.value},"
        f"n_ctx={GGML_N_CTX},fs={freq_scale:.6f},ef={ext_factor:.6f},af={attn_factor:.6f},"
        f"ff={has_freq_factors:d},v={view},inplace={inplace:d},n_offs={n_offs}"
    )
    return RopeCase(
        suite="ggml",
        name=f"{'ROPE' if forward else 'ROPE_BACK'}({case_text})",
        dtype=dtype,
        shape=(shape[3], shape[2], shape[1], shape[0]),
        params=_ggml_params(n_dims, mode, scaling, n_offs),
        ggml_n_ctx_orig=0,
        positions="random",
        source="ggml tests/test-backend-ops.cpp, test_rope",
        factors="random" if has_freq_factors else None,
        forward=forward,
        inplace=inplace,
        view=view,
    )


# ---- real models -----------------------------------------------------------------------------------


def model_cases(models: tuple[PublishedRope, ...] = MODELS) -> Iterator[RopeCase]:
    """Yield for each model: prefill q in three dtypes and k in one, a decode batch in two, the gradient,
    and positions up to 4,194,303, the last one that a device supports.
    """
    for model in models:
        prefill = _model_case(model, "prefill", "prefill", "float32", (1, 128, model.n_heads, model.head_dim))
        yield prefill
        for dtype in ("float16", "bfloat16"):
            yield _model_case(model, "prefill", "prefill", dtype, prefill.shape)
        yield _model_case(
            model, "prefill-k", "prefill", "float32", (1, 128, model.n_kv_heads, model.head_dim)
        )
        yield _model_case(model, "decode", "decode", "float32", (8, 1, model.n_heads, model.head_dim))
        yield _model_case(model, "decode", "decode", "bfloat16", (8, 1, model.n_heads, model.head_dim))
        yield replace(_model_case(model, "back", "prefill", "float32", prefill.shape), forward=False)
        yield _model_case(model, "far", "far", "float32", (1, 64, model.n_heads, model.head_dim))


def _model_case(
    model: PublishedRope,
    kind: str,
    positions: Literal["prefill", "decode", "far"],
    dtype: str,
    shape: tuple[int, int, int, int],
) -> RopeCase:
    params = model.params
    name = f"{model.name}/{kind}(type={SHORT[dtype]},shape={list(shape)},mode={params.rope_mode.name.lower()}"
    case = RopeCase(
        suite="models",
        name="",
        dtype=dtype,
        shape=shape,
        params=params,
        ggml_n_ctx_orig=params.n_ctx_orig,
        positions=positions,
        source=model.source,
        factors=model.freq_factors,
    )
    return replace(case, name=f"{name},pos<={case.last_position})".replace(" ", ""))
