"""Calls of rope, rope_qk and rope_set_rows through the operator package, on NumPy views, with the arguments
that a binding passes. CANN stores real attributes in float32, even if a caller passes float64.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from aclnn import Device, strides_of

from npu_rope import RopeParams

CHIPS = {"sim": "Ascend910B1", "sim:ascend310p": "Ascend310P3"}
OPERATORS = {"rope": "NpuRope", "rope_qk": "NpuRopeQk", "rope_set_rows": "NpuRopeSetRows"}
# Tensors whose strides the attribute `strides` holds, in this order.
VIEWS = {
    "rope": ("x", "positions", "out"),
    "rope_qk": ("q", "k", "positions", "q_out", "k_out"),
    "rope_set_rows": ("x", "positions", "rows", "cache"),
}
FLOATS = ("freq_base", "freq_scale", "ext_factor", "attn_factor", "beta_fast", "beta_slow")


def in_float32(params: RopeParams) -> RopeParams:
    """Return the parameters, rounded to float32."""
    return replace(params, **{name: float(np.float32(getattr(params, name))) for name in FLOATS})


def attributes(params: RopeParams, forward: bool = True) -> dict[str, Any]:
    return {
        "n_dims": params.n_dims,
        "mode": int(params.rope_mode),
        "n_ctx_orig": params.n_ctx_orig,
        **{name: getattr(params, name) for name in FLOATS},
        "sections": params.sections,
        "forward": forward,
        "n_offs": params.n_offs,
    }


def arguments(op: str, tensors: dict[str, Any], attributes: dict[str, Any]) -> dict[str, Any]:
    """Return tensors and attributes by the interface's names, with strides if a tensor is not contiguous."""
    by_name = {"freq_factors": None, **tensors, **attributes}
    views = [by_name[name] for name in VIEWS[op]]
    if not all(v.flags.c_contiguous for v in views):
        by_name.setdefault("strides", strides_of(*views))
    if op == "rope_qk":
        by_name["q_out_out"], by_name["k_out_out"] = by_name.pop("q_out"), by_name.pop("k_out")
    return by_name


def call(
    device: Device, op: str, tensors: dict[str, Any], params: RopeParams, *, forward: bool = True
) -> None:
    """Run the operator on NumPy views, and write its results to them."""
    device.call(OPERATORS[op], arguments(op, tensors, attributes(params, forward)))


def random_view(rng: np.random.Generator, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """Return random values in a random layout: contiguous, with gaps, or with tokens and heads exchanged."""
    layout = rng.integers(3)
    if layout == 0 or len(shape) < 3:
        return rng.standard_normal(shape).astype(dtype)
    if layout == 1:
        return rng.standard_normal((*shape[:-1], shape[-1] + 3)).astype(dtype)[..., : shape[-1]]
    swapped = (*shape[:-3], shape[-2], shape[-3], shape[-1])
    return rng.standard_normal(swapped).astype(dtype).swapaxes(-2, -3)
