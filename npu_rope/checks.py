"""Rules of rope's tensors for the Python paths (reference, fake tensors).

The native paths state the same rules in ``op_host/rope_check.cpp``; a test compares the words.
Works on anything that has a shape, strides in elements and a dtype name, so that arrays, torch
tensors and fake tensors are judged alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from npu_rope.errors import bad_type, bad_value
from npu_rope.params import ANGLE_POLICIES, MAX_FREQUENCY, RopeMode, RopeParams
from npu_rope.strided import StridedView, is_injective, is_same_view, may_share_memory

FLOAT_DTYPES = ("float32", "float16", "bfloat16", "float64")
INDEX_DTYPES = ("int32", "int64")


@dataclass(frozen=True)
class TensorSpec:
    """What the rules need to know of a tensor. Strides count elements."""

    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    def text(self) -> str:
        """The shape as the messages print it."""
        return str(list(self.shape))


def check_angle(angle: str) -> None:
    """One of the angle policies."""
    if angle not in ANGLE_POLICIES:
        raise bad_value("rope", f"angle must be exact (0), f32 (1) or ggml (2) but got {angle}.")


def check_x(x: TensorSpec, params: RopeParams, *, unit_stride: bool) -> None:
    """x's dtype, shape and room for the rotated window."""
    if x.dtype not in FLOAT_DTYPES:
        raise bad_type("rope", f"x must be float32, float16, bfloat16 or float64 but got {x.dtype}.")
    if len(x.shape) not in (3, 4):
        raise bad_value("rope", f"x must have shape [B,S,N,D] or [S,N,D] but got {x.text()}.")
    head = x.shape[-1]
    if params.n_dims > head:
        raise bad_value("rope", f"n_dims must be at most the head size {head} but got {params.n_dims}.")
    if params.n_offs + params.n_dims > head:
        end = params.n_offs + params.n_dims
        raise bad_value("rope", f"n_offs + n_dims must be at most the head size {head} but got {end}.")
    if params.rope_mode is RopeMode.VISION and 2 * params.n_dims != head:
        raise bad_value(
            "rope",
            f"n_dims must be half the head size in mode vision but got {params.n_dims} of {head}.",
        )
    if sum(params.sections) > head:
        raise bad_value(
            "rope",
            f"sections must add up to at most the head size {head} but got {list(params.sections)}.",
        )
    if unit_stride:
        check_unit_stride("x", x)


def check_unit_stride(name: str, t: TensorSpec) -> None:
    """The last dimension must be contiguous, where there is more than one element in it."""
    if 0 not in t.shape and t.shape[-1] > 1 and t.strides[-1] != 1:
        raise bad_value(
            "rope", f"{name} must have unit stride in its last dimension but got {t.strides[-1]}."
        )


def check_positions(positions: TensorSpec, x: TensorSpec, params: RopeParams) -> None:
    """int32 or int64; ``[S]``, or ``[B,S]`` where x has a batch. In the modes with sections four of
    each or three behind each other: ``[4,S]``, flat ``[4*S]``, ``[3,S]``, ``[4,B,S]`` or ``[3,B,S]``."""
    if positions.dtype not in INDEX_DTYPES:
        raise bad_type("rope", f"positions must be int32 or int64 but got {positions.dtype}.")
    batch, tokens = x.shape[0] if len(x.shape) == 4 else 0, x.shape[-3]
    allowed: Sequence[tuple[int, ...]]
    if params.rope_mode.has_sections:
        allowed = [(4 * tokens,), (4, tokens), (3, tokens)]
        rule = f"[4,S] = [4, {tokens}], [4*S], [3,S]"
        if len(x.shape) == 4:
            allowed += [(4, batch, tokens), (3, batch, tokens)]
            rule = f"[4,S] = [4, {tokens}], [4*S], [3,S], [4,B,S] = [4, {batch}, {tokens}] or [3,B,S]"
        rule += f" in mode {params.rope_mode.name.lower()}"
    elif len(x.shape) == 4:
        allowed = [(tokens,), (batch, tokens)]
        rule = f"[S] = [{tokens}] or [B, S] = [{batch}, {tokens}]"
    else:
        allowed = [(tokens,)]
        rule = f"[S] = [{tokens}]"
    if positions.shape not in allowed:
        raise bad_value("rope", f"positions must have shape {rule} but got {positions.text()}.")


def check_position_values(positions: npt.NDArray[np.integer]) -> None:
    """Every position must fit int32."""
    outside = positions[(positions < -(2**31)) | (positions >= 2**31)]
    if outside.size:
        raise bad_value("rope", f"positions must be in the int32 range but got {outside.flat[0]}.")


def check_freq_factors(factors: TensorSpec, params: RopeParams) -> None:
    """``[>= pairs]`` float32."""
    if factors.dtype != "float32":
        raise bad_type("rope", f"freq_factors must be float32 but got {factors.dtype}.")
    pairs = params.pairs
    if len(factors.shape) != 1 or factors.shape[0] < pairs:
        raise bad_value(
            "rope",
            f"freq_factors must have one dimension of at least {_pairs_rule(params)} elements"
            f" but got shape {factors.text()}.",
        )


def _pairs_rule(params: RopeParams) -> str:
    return f"n_dims{'' if params.pairs == params.n_dims else '/2'} = {params.pairs}"


def check_freq_factor_values(factors: npt.NDArray[np.float32], params: RopeParams) -> None:
    """The factors that are read must be positive and finite, and so must what follows from them."""
    used = np.asarray(factors[: params.pairs], np.float64)
    wrong = np.flatnonzero(~(np.isfinite(used) & (used > 0)))
    if wrong.size:
        at = int(wrong[0])
        raise bad_value(
            "rope", f"freq_factors must be positive and finite but got {used[at]:g} at index {at}."
        )


def check_frequencies(frequencies: npt.NDArray[np.float64]) -> None:
    """No pair may turn faster than its angle can be followed."""
    wrong = np.flatnonzero(~(np.abs(frequencies) <= MAX_FREQUENCY))
    if wrong.size:
        at = int(wrong[0])
        raise bad_value(
            "rope",
            "frequencies must be at most 1e+09 radians per position"
            f" but got {abs(frequencies[at]):g} for pair {at}.",
        )


def check_out(out: TensorSpec, x: TensorSpec) -> None:
    """out: x's dtype and shape, unit last stride. (What needs addresses: :func:`check_out_memory`.)"""
    if out.dtype != x.dtype:
        raise bad_type("rope", f"out must have x's dtype {x.dtype} but got {out.dtype}.")
    if out.shape != x.shape:
        raise bad_value("rope", f"out must have x's shape {x.text()} but got {out.text()}.")
    check_unit_stride("out", out)


def check_aligned(name: str, t: StridedView) -> None:
    """Every element must lie at a multiple of its size."""
    whole = all(s % t.item_bytes == 0 for n, s in zip(t.sizes, t.strides, strict=True) if n > 1)
    if not t.is_empty() and not (t.base % t.item_bytes == 0 and whole):
        raise bad_value(
            "rope",
            f"{name} must be aligned to its {t.item_bytes}-byte elements but got an address that is not.",
        )


def check_out_memory(out: StridedView, x: StridedView, others: dict[str, StridedView]) -> None:
    """out must be aligned, must not overlap itself, and is x itself or apart from all inputs."""
    check_aligned("out", out)
    if not is_injective(out):
        strides = [s // out.item_bytes for s in out.strides]
        raise bad_value("rope", f"out must not overlap itself but got strides {strides}.")
    inputs = others if is_same_view(out, x) else {"x": x, **others}
    for name, view in inputs.items():
        if may_share_memory(out, view):
            raise bad_value(
                "rope",
                f"out must be x itself or share no memory with {name} but got memory shared in part.",
            )
