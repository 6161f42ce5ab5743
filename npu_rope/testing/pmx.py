"""Suite ``pmx`` of ``npu-rope validate``: PMX's RotaryPositionEmbedding.

``pmx_spec.py`` computes the specification's loop in float64. The types are the specification's (float32,
float16, int8). The forms of calls are the specification's and those that PMX's Python operators add: scaling
and packed sequences. The case's name seeds the generator of its values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

import npu_rope
from npu_rope.params import RopeParams
from npu_rope.testing import outcomes, pmx_spec
from npu_rope.testing.bounds import (
    TABLE_ERROR_DEVICE,
    TABLE_ERROR_HOST,
    int8_expectation,
    is_device,
    rotation_bound,
)
from npu_rope.testing.cases import SHORT, generator_of
from npu_rope.testing.ggml import GgmlProcess
from npu_rope.testing.outcomes import CaseResult, Expectation, Judgement

Array = npt.NDArray[Any]
DTYPES = ("float32", "float16", "int8")


@dataclass(frozen=True)
class PmxCase:
    """One call of rotary_position_embedding.

    Attributes:
        name: unique within the suite.
        query_shape: ``(B, S, Nq, D)``. For packed sequences, ``(T, Nq, D)``, where T is the sum of
            ``seqlens``.
        key_heads: the number of the key's heads.
        start_pos: the first position. For packed sequences, the first position of each one.
        pad_len: the padding of each batch, or None.
        seqlens: the lengths of packed sequences, or None.
        scaling: ``(scaling_type, scaling_factor, max_position_embeddings)``.
    """

    name: str
    dtype: str
    query_shape: tuple[int, ...]
    key_heads: int
    start_pos: int | tuple[int, ...] = 0
    pad_len: tuple[int, ...] | None = None
    seqlens: tuple[int, ...] | None = None
    rotary_dim: int = 0
    theta: float = 10000.0
    bypass_key: bool = False
    scaling: tuple[str, float, int] = ("", 1.0, 2048)

    suite: ClassVar[str] = "pmx"
    op: ClassVar[str] = "ROTARY_POSITION_EMBEDDING"
    source: ClassVar[str] = "PMX RotaryPositionEmbedding; PMX torch_function for scaling and packing"

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of query and key, concatenated along the heads."""
        return (*self.query_shape[:-2], self.query_shape[-2] + self.key_heads, self.query_shape[-1])

    def sequences(self) -> list[pmx_spec.PmxSequence]:
        """Return the first position and the length of each sequence."""
        if self.seqlens is not None:
            assert isinstance(self.start_pos, tuple)
            return [
                pmx_spec.PmxSequence(*sequence) for sequence in zip(self.start_pos, self.seqlens, strict=True)
            ]
        assert isinstance(self.start_pos, int)
        paddings = self.pad_len or (0,) * self.query_shape[0]
        return [pmx_spec.PmxSequence(self.start_pos - pad, self.query_shape[1]) for pad in paddings]

    def call(self, query: Array, key: Array, backend: str) -> tuple[Array, Array]:
        """Run the call on one of npu_rope's back ends."""
        starts = None if self.seqlens is None else np.cumsum((0, *self.seqlens))
        kind, factor, longest = self.scaling
        rotated_query, rotated_key = npu_rope.rotary_position_embedding(
            query,
            key,
            self.start_pos,
            None if self.pad_len is None else np.array(self.pad_len),
            rotary_dim=self.rotary_dim,
            theta=self.theta,
            bypass_key=self.bypass_key,
            max_position_embeddings=longest,
            scaling_type=kind,
            scaling_factor=factor,
            seqstarts=starts,
            backend=backend,
        )
        return rotated_query, rotated_key


# ---- the cases -------------------------------------------------------------------------------------

_LINEAR, _DYNAMIC = ("linear", 4.0, 2048), ("dynamic", 2.0, 2048)
# The name of a case, and its differences from (1, 16, 32, 128) with 32 key heads at position 0.
_FORMS: dict[str, dict[str, Any]] = {
    "prefill": {},
    "gqa": {"key_heads": 8, "start_pos": 77},
    "decode": {"query_shape": (4, 1, 32, 128), "start_pos": 131_071},
    "mqa-d64": {"query_shape": (2, 9, 71, 64), "key_heads": 1, "start_pos": 5},
    "d80": {"query_shape": (2, 9, 8, 80), "key_heads": 8, "start_pos": 5},
    "d256": {"query_shape": (1, 9, 16, 256), "key_heads": 1, "theta": 1e6},
    "d2": {"query_shape": (2, 9, 3, 2), "key_heads": 3},
    "far": {"query_shape": (1, 16, 4, 128), "key_heads": 4, "start_pos": 4_000_000, "theta": 5e5},
    "padded": {"query_shape": (4, 16, 8, 128), "key_heads": 2, "start_pos": 3, "pad_len": (0, 3, 7, 15)},
    "negative": {"query_shape": (2, 16, 8, 128), "key_heads": 8, "pad_len": (2000, 100_000)},
    "partial": {"query_shape": (2, 16, 8, 128), "rotary_dim": 64, "start_pos": 9},
    "partial-d80": {"query_shape": (2, 16, 8, 80), "rotary_dim": 20, "pad_len": (1, 0)},
    "bypass": {"query_shape": (2, 16, 8, 128), "key_heads": 2, "bypass_key": True, "start_pos": 9},
    "linear": {"query_shape": (2, 16, 8, 128), "scaling": _LINEAR, "start_pos": 3000, "pad_len": (0, 11)},
    "dynamic-short": {"query_shape": (2, 16, 8, 128), "scaling": _DYNAMIC, "start_pos": 2032},
    "dynamic-long": {"query_shape": (2, 16, 8, 128), "scaling": _DYNAMIC, "start_pos": 9000},
    "dynamic-padded": {
        "query_shape": (4, 16, 8, 128),
        "scaling": _DYNAMIC,
        "start_pos": 2040,
        "pad_len": (0, 0, 20, 3),
        "rotary_dim": 96,
    },
    "packed": {
        "query_shape": (26, 32, 128),
        "key_heads": 8,
        "seqlens": (7, 1, 0, 18),
        "start_pos": (0, 500, 9, 33),
    },
    "packed-decode": {
        "query_shape": (6, 32, 128),
        "seqlens": (1,) * 6,
        "start_pos": (0, 7, 131_071, 5, 5, 2048),
    },
    "packed-bypass": {"query_shape": (9, 8, 64), "seqlens": (4, 5), "start_pos": (1, 90), "bypass_key": True},
    "packed-linear": {"query_shape": (9, 8, 64), "seqlens": (4, 5), "start_pos": (1, 90), "scaling": _LINEAR},
    "packed-dynamic": {
        "query_shape": (20, 8, 128),
        "seqlens": (4, 0, 5, 8, 3),
        "start_pos": (4000, 1, 4000, 3995, 10),
        "scaling": _DYNAMIC,
        "rotary_dim": 64,
    },
}


def pmx_cases() -> Iterator[PmxCase]:
    """Yield every form in every type."""
    for form, differences in _FORMS.items():
        query_shape = differences.get("query_shape", (1, 16, 32, 128))
        for dtype in DTYPES:
            fields = {"key_heads": query_shape[-2], **differences, "query_shape": query_shape}
            case = PmxCase("", dtype, **fields)
            shape = f"{list(query_shape)},key_heads={case.key_heads}".replace(" ", "")
            yield replace(case, name=f"{form}(type={SHORT[dtype]},shape={shape})")


def make_data(case: PmxCase) -> tuple[Array, Array]:
    """Return query and key: uniform in [-1, 1), or any int8."""
    generator = generator_of(case)

    def values(heads: int) -> Array:
        shape = (*case.query_shape[:-2], heads, case.query_shape[-1])
        if case.dtype == "int8":
            return generator.integers(-128, 128, shape, np.int8)
        return generator.uniform(-1, 1, shape).astype(case.dtype)

    return values(case.query_shape[-2]), values(case.key_heads)


# ---- judging ---------------------------------------------------------------------------------------


def angles_of(case: PmxCase, round_attribute: Callable[[float], float] = float) -> Array:
    """Return the angles of every token, ``[..., 1, pivot/2]``, by :func:`pmx_spec.angles`."""
    pivot = case.rotary_dim or case.query_shape[-1]
    angles = pmx_spec.angles(case.sequences(), pivot, case.theta, case.scaling, round_attribute)
    return angles.reshape((*case.query_shape[:-2], 1, pivot // 2))


def expectation(case: PmxCase, query: Array, key: Array, angles: Array, table_error: float) -> Expectation:
    """Return the specification's result for query and key, concatenated along the heads, and the bound of an
    executor's error."""
    cos, sin = np.cos(angles), np.sin(angles)
    params = RopeParams(2 * angles.shape[-1], "normal")
    compute = "float32" if case.dtype == "int8" else case.dtype
    expectations = []
    for x, is_bypassed in ((query, False), (key, case.bypass_key)):
        values = x.astype(np.float64)
        value = values if is_bypassed else pmx_spec.rotate(values, cos, sin)
        bound = rotation_bound(values, cos, sin, value, params, compute, table_error)
        expectations.append(Expectation(value, np.zeros_like(value) if is_bypassed else bound))
    value = np.concatenate([part.value for part in expectations], -2)
    bound = np.concatenate([part.bound for part in expectations], -2)
    return Expectation(*int8_expectation(value, bound)) if case.dtype == "int8" else Expectation(value, bound)


def compare(case: PmxCase, executor: str, got: Array, expected: Expectation, angles: Array) -> Judgement:
    """Compare a result with its expectation."""
    names = "(b, s, n, d)" if case.seqlens is None else "(t, n, d)"
    judgement = outcomes.compare_all(executor, [got], [expected], [names])
    if (worst := judgement.worst) is not None:
        *token, _, lane = worst.index
        worst.position = int(pmx_spec.positions(case.sequences()).reshape(case.query_shape[:-2])[(*token,)])
        token_angles, pair = angles[(*token, 0)], lane // 2
        is_rotated = pair < len(token_angles)
        worst.angle = float(token_angles[pair]) if is_rotated else 0.0
    return judgement


def judge_pmx(case: PmxCase, backends: list[str], ggml: GgmlProcess | None = None) -> CaseResult:
    """Run and judge one case; ggml has no such operator."""
    query, key = make_data(case)
    return outcomes.judge_each(case, backends, lambda backend: "", partial(_judge_backend, case, query, key))


def _execute(case: PmxCase, query: Array, key: Array, backend: str) -> Array:
    inputs = query.copy(), key.copy()
    with outcomes.unwritten(inputs):
        rotated_query, rotated_key = case.call(*inputs, backend)
    if case.bypass_key and rotated_key is not inputs[1]:
        raise AssertionError("a key that is bypassed must be returned itself but another array was")
    return np.concatenate([rotated_query, rotated_key], -2)


def _in_float32(value: float) -> float:
    return float(np.float32(value))


def _judge_backend(case: PmxCase, query: Array, key: Array, backend: str) -> Judgement:
    on_device = is_device(backend)
    got = _execute(case, query, key, backend)
    # The attributes of a CANN operator are float32, so a device rounds a scaled theta.
    angles = angles_of(case, _in_float32 if on_device else float)
    expected = expectation(case, query, key, angles, TABLE_ERROR_DEVICE if on_device else TABLE_ERROR_HOST)
    judgement = compare(case, backend, got, expected, angles)
    # The CPU does not round the theta of dynamic scaling, so its result may differ more.
    if on_device and case.dtype == "float16" and case.scaling[0] != "dynamic":
        outcomes.require_near_cpu(judgement, got, _execute(case, query, key, "cpu"), case.dtype)
    return judgement
