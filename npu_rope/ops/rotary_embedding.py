"""rotary_embedding: the Python function of ONNX's RotaryEmbedding. ``rotary.py`` registers it with torch."""

from __future__ import annotations

from typing import Any

from npu_rope.executors.tensors import require_tensor_like
from npu_rope.ops import calls, rotary
from npu_rope.rotary_calls import attributes_of, rotary_embedding_tensors


def rotary_embedding(
    X: Any,
    cos_cache: Any,
    sin_cache: Any,
    position_ids: Any = None,
    *,
    interleaved: int = 0,
    num_heads: int = 0,
    rotary_embedding_dim: int = 0,
    out: Any = None,
    backend: str | None = None,
) -> Any:
    """Apply ONNX's RotaryEmbedding of opset 23.

    A pair (x1, x2) of a head becomes ``(x1*cos - x2*sin, x1*sin + x2*cos)``, with cos and sin from the
    token's row of the caches.

    Args:
        X: ``[B,N,S,D]``, or ``[B,S,N*D]`` with ``num_heads``; torch tensor or NumPy array; float32, float16
            or bfloat16; float64 extends the specification. Any strides; a non-unit last stride costs a copy.
        cos_cache, sin_cache: with ``position_ids`` ``[rows,W]``, without ``[B,S,W]``;
            ``W >= rotary_embedding_dim/2``, of which the first ``rotary_embedding_dim/2`` are read. X's
            dtype; float32 for X of another dtype extends the specification.
        position_ids: ``[B,S]`` int64 (or int32): each token's row of the caches.
        interleaved: 0: pairs ``(x[i], x[i + rotary_embedding_dim/2])``; 1: ``(x[2i], x[2i+1])``.
        num_heads: N for X of shape ``[B,S,N*D]``; otherwise ignored.
        rotary_embedding_dim: number of rotated dimensions, even; 0: all.
        out: where to write: X's shape and dtype, unit last stride; may be X itself (in place).
        backend: ``"reference"``, ``"cpu"``, ``"sim"``, ``"sim:<soc>"`` or ``"npu"``; None:
            ``NPU_ROPE_BACKEND``, else by X's device.

    Returns:
        A tensor or array, as X is, with X's shape and dtype; ``out`` if it was passed. Gradients flow to X
        and to the caches.

    Raises:
        ValueError, TypeError: an argument breaks its rule, for example a position is outside the caches;
            nothing was written.
        BackendUnavailable: the back end is unavailable or lacks this operator.

    >>> import numpy as np
    >>> X = np.ones((1, 1, 2, 2), np.float32)
    >>> cos, sin = np.float32([[1], [0]]), np.float32([[0], [1]])
    >>> rotary_embedding(X, cos, sin, np.array([[1, 0]])).tolist()
    [[[[-1.0, 1.0], [1.0, 1.0]]]]
    """
    op = "rotary_embedding"
    as_bool = bool(interleaved) if type(interleaved) is int and interleaved in (0, 1) else interleaved
    if backend is None and out is None and rotary.have_schema_types(as_bool, num_heads, rotary_embedding_dim):
        given = as_bool, num_heads, rotary_embedding_dim, True
        y = calls.try_hot_path(op, (X, cos_cache, sin_cache, position_ids), given)
        if y is not NotImplemented:
            return y
    require_tensor_like(op, "X", X)
    attributes = attributes_of(op, interleaved, rotary_embedding_dim, num_heads=num_heads)
    tensors = rotary_embedding_tensors(X, cos_cache, sin_cache, position_ids, out)
    return rotary.run(backend, tensors, attributes)[0]


__all__ = ["rotary_embedding"]
