"""rotary_mul, rotary_mul_qk and rotary_embedding in float64, formula first. Source:
``specs/onnx_rotary_embedding_23.txt``; for tables with an entry for each lane, torch_npu's npu_rotary_mul,
``x * cos + rotate(x) * sin``.

    (y1, y2) = (x1*c1 - x2*s1, x2*c2 + x1*s2)

with (x1, x2) = (x[i], x[i + width/2]), or interleaved (x[2i], x[2i+1]), where x begins at lane ``offset`` of
the head. c1 and s1 are the entries of the first lane, c2 and s2 those of the second. A table with an entry
for each pair has c1 = c2 and s1 = s2.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from npu_rope.call_tensors import CallTensors
from npu_rope.rotary_calls import (
    RotaryAttributes,
    RotarySizes,
    as_heads,
    is_onnx,
    lanes,
    serves_all_batches,
    sizes_of,
    tables_of,
)

Array = npt.NDArray[Any]
Wide = npt.NDArray[np.float64]


def token_table(
    call: CallTensors[Array], given: Array, attributes: RotaryAttributes, sizes: RotarySizes
) -> Wide:
    """Return cos or sin of every token as ``[B or 1, S, 1, width]``, an entry for each lane."""
    table = given.astype(np.float64)
    if is_onnx(call):
        table = table[..., : sizes.width // 2]
        if (ids := call.other_inputs.get("position_ids")) is not None:
            table = table[ids]
    table = (
        table.reshape(-1, sizes.tokens, 1, table.shape[-1])
        if table.size
        else np.zeros((1, sizes.tokens, 1, table.shape[-1]))
    )
    if sizes.has_entry_per_lane:
        return table
    first, second = lanes(sizes.width, attributes.interleaved)
    wide = np.empty((*table.shape[:-1], sizes.width))
    wide[..., first] = wide[..., second] = table
    return wide


def rotate(x: Array, cos: Wide, sin: Wide, attributes: RotaryAttributes) -> Wide:
    """Rotate ``[B,S,N,D]`` by tables of ``[B or 1, S, 1, width]``."""
    width = cos.shape[-1]
    first, second = lanes(width, attributes.interleaved)
    c1, c2, s1, s2 = cos[..., first], cos[..., second], sin[..., first], sin[..., second]
    if not attributes.forward:
        s1, s2 = -s2, -s1
    y = x.astype(np.float64)
    window = y[..., attributes.offset : attributes.offset + width]
    x1, x2 = window[..., first].copy(), window[..., second].copy()
    window[..., first] = x1 * c1 - x2 * s1
    window[..., second] = x2 * c2 + x1 * s2
    return y


def as_given(call: CallTensors[Array], y: Wide, like: Array) -> Wide:
    """Return y in the layout of ``like``."""
    return y.swapaxes(1, 2) if is_onnx(call) and like.ndim == 4 else y.reshape(like.shape)


def rotary(call: CallTensors[Array], attributes: RotaryAttributes) -> tuple[Wide, ...]:
    """Return the results of a call on arrays in float64, before any rounding, one for each of xs."""
    sizes = sizes_of(call, attributes)
    cos, sin = (token_table(call, table, attributes, sizes) for table in tables_of(call).values())
    heads = {name: as_heads(call, x, sizes) for name, x in call.xs.items()}
    return tuple(as_given(call, rotate(heads[name], cos, sin, attributes), x) for name, x in call.xs.items())


def table_gradients(
    call: CallTensors[Array], grads: tuple[Array, ...], attributes: RotaryAttributes
) -> tuple[Wide, Wide]:
    """Return the gradients of cos and sin in float64, in the tables' shapes: summed over the heads of all xs,
    and over the batches that share a table.

    Args:
        call: the forward call, which is not one of ONNX's operator.
        grads: the gradients of its results.
    """
    sizes = sizes_of(call, attributes)
    shape = (sizes.batch, sizes.tokens, sizes.width)
    lanewise_cos, lanewise_sin = np.zeros(shape), np.zeros(shape)
    first, second = lanes(sizes.width, attributes.interleaved)
    for x, grad in zip(call.xs.values(), grads, strict=True):
        window = slice(attributes.offset, attributes.offset + sizes.width)
        heads, g = (as_heads(call, v, sizes)[..., window].astype(np.float64) for v in (x, grad))
        lanewise_cos += (g * heads).sum(-2)
        x1, x2, g1, g2 = heads[..., first], heads[..., second], g[..., first], g[..., second]
        sin_products = np.empty_like(g)
        if not attributes.forward:  # the transposed rotation
            x1, x2, g1, g2 = x2, x1, g2, g1
        sin_products[..., first], sin_products[..., second] = -g1 * x2, g2 * x1
        lanewise_sin += sin_products.sum(-2)
    cos, sin = tables_of(call).values()
    cos_gradient = _as_table(call, lanewise_cos, cos, attributes, sizes)
    return cos_gradient, _as_table(call, lanewise_sin, sin, attributes, sizes)


def _as_table(
    call: CallTensors[Array], lanewise: Wide, table: Array, attributes: RotaryAttributes, sizes: RotarySizes
) -> Wide:
    """Sum ``[B,S,width]``, with an entry for each lane, to the table's shape."""
    if not sizes.has_entry_per_lane:
        first, second = lanes(sizes.width, attributes.interleaved)
        lanewise = lanewise[..., first] + lanewise[..., second]
    shared = serves_all_batches(call, table, sizes)
    return (lanewise.sum(0) if shared else lanewise).reshape(table.shape)
