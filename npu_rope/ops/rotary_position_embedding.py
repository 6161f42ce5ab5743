"""rotary_position_embedding: PMX's operator, for padded batches and for packed sequences, on rope's kernels.

PMX passes a start position and paddings. This operator computes the positions and calls rope_qk, or rope for
the query alone. It has no kernel and no C function of its own; in torch it is a composite operator.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from npu_rope import backends
from npu_rope.errors import BrokenRule, broken
from npu_rope.executors import rotary_position_embedding as plan
from npu_rope.executors.tensors import is_tensor, spec_of
from npu_rope.ops.registrar import register_composite
from npu_rope.ops.rope import rope
from npu_rope.ops.rope_qk import rope_qk
from npu_rope.optional_torch import torch
from npu_rope.params import RopeParams
from npu_rope.values import flag

_OP = plan.OP


def rotary_position_embedding(
    query: Any,
    key: Any,
    start_pos: Any,
    pad_len: Any = None,
    *,
    rotary_dim: int = 0,
    theta: float = 10000.0,
    bypass_key: bool = False,
    max_position_embeddings: int = 2048,
    scaling_type: str = "",
    scaling_factor: float = 1.0,
    seqstarts: Any = None,
    backend: str | None = None,
) -> tuple[Any, Any]:
    """Apply PMX's RotaryPositionEmbedding, with the scaling and the packed form of PMX's Python operators.

    Token s of batch b is at position ``m = start_pos + s - pad_len[b]``, which may be negative. Pair
    ``(x[2i], x[2i+1])`` of a head rotates by ``m * theta ** (-2i / rotary_dim)``.

    Args:
        query: ``[B,S,Nq,D]``; with ``seqstarts`` ``[T,Nq,D]``, the concatenated tokens of all sequences.
            Torch tensor or NumPy array; float32, float16 or int8; bfloat16 and float64 extend the
            specification. int8 is widened to float32, rotated, rounded half to even and saturated.
        key: like query except for its number of heads.
        start_pos: an integer, or an integer tensor of one element; with ``seqstarts`` ``[B]``. Positions
            are in the int32 range; on a device their magnitude is below 2^22.
        pad_len: ``[B]`` integers or None (no padding); not with ``seqstarts``.
        rotary_dim: number of rotated dimensions of the D, even; 0: all.
        theta: base of the frequencies.
        bypass_key: return ``key`` itself, the same object on the same memory.
        max_position_embeddings, scaling_type, scaling_factor: as for :meth:`npu_rope.RopeParams.from_pmx`;
            the type is ``""``, ``"linear"`` or ``"dynamic"``. With ``"dynamic"`` theta depends on each
            sequence's end. Sequences with different ends beyond the maximum then need a launch each. The host
            then reads ``start_pos``, ``pad_len`` and ``seqstarts``, and waits for a device that holds them.
        seqstarts: ``[B+1]`` integers: the first token of each sequence, and T.
        backend: ``"reference"``, ``"cpu"``, ``"sim"``, ``"sim:<soc>"`` or ``"npu"``; None:
            ``NPU_ROPE_BACKEND``, else by the query's device.

    Returns:
        The pair (rotated query, rotated key): tensors or arrays, as query is, with query's and key's shapes
        and dtype. Gradients flow through the floating-point types.

    Raises:
        ValueError, TypeError: an argument breaks its rule.
        BackendUnavailable: the back end is unavailable.

    >>> import numpy as np
    >>> query, key = np.ones((2, 3, 1, 2), np.float32), np.ones((2, 3, 1, 2), np.float32)
    >>> query, _ = rotary_position_embedding(query, key, 0, np.array([0, 2]))
    >>> query[1, :, 0].round(3)  # positions -2, -1, 0
    array([[ 0.493, -1.325],
           [ 1.382, -0.301],
           [ 1.   ,  1.   ]], dtype=float32)
    """
    scaling = {
        "rotary_dim": rotary_dim,
        "theta": theta,
        "max_position_embeddings": max_position_embeddings,
        "scaling_type": scaling_type,
        "scaling_factor": scaling_factor,
    }
    run = _rotary_position_embedding
    if torch is not None and torch.compiler.is_compiling():
        if backend is None and scaling_type != "dynamic":
            return _compiled(query, key, start_pos, pad_len, seqstarts, bypass_key, scaling)
        # A named back end runs outside torch, and dynamic scaling reads values.
        torch._dynamo.graph_break("npu_rope reads values for dynamic scaling and named backends")
        run = _uncompiled
    return run(query, key, start_pos, pad_len, seqstarts, bypass_key, backend, scaling)


def _rotary_position_embedding(
    query: Any,
    key: Any,
    start_pos: Any,
    pad_len: Any,
    seqstarts: Any,
    bypass_key: bool,
    backend: str | None,
    attributes: dict[str, Any],
) -> tuple[Any, Any]:
    bypass_key = flag(_OP, "bypass_key", bypass_key)
    packed = seqstarts is not None
    parts, positions, scaling = plan.plan_call(query, key, start_pos, pad_len, seqstarts, attributes)

    def rotate(part: plan.FrequencyGroup) -> tuple[Any, Any]:
        part_positions = positions[part.span] if packed or len(positions.shape) == 2 else positions
        pair = (query, key) if len(parts) == 1 else (query[part.span], key[part.span])
        return _rotate(*pair, part_positions, scaling.params(part.end), bypass_key, backend)

    own_names = _NAMES | {"positions": plan.position_formula(packed=packed)}
    pairs = [_with_own_names(rotate, part, own_names) for part in parts]
    if len(pairs) == 1:
        return pairs[0]
    return plan.joined([q for q, _ in pairs]), key if bypass_key else plan.joined([k for _, k in pairs])


# ---- rotation --------------------------------------------------------------------------------------


def _rotate(
    query: Any, key: Any, positions: Any, params: RopeParams, bypass_key: bool, backend: str | None
) -> tuple[Any, Any]:
    is_int8 = spec_of(query).dtype == "int8"
    chosen = backends.default_backend if backend is None else backend
    q, k = (plan.widened(tensor, chosen) if is_int8 else tensor for tensor in (query, key))
    if bypass_key:
        rotated_q = rope(q, positions, params, backend=backend)
        return plan.narrowed(rotated_q) if is_int8 else rotated_q, key
    rotated = rope_qk(q, k, positions, params, backend=backend)
    return (plan.narrowed(rotated[0]), plan.narrowed(rotated[1])) if is_int8 else rotated


# This operator's names for the arguments of rope and rope_qk.
_NAMES = {"x": "query", "q": "query", "k": "key"}
_X_IN_RULE = re.compile(r"\b[qx]('s\b|$)")  # x or q in the text of a rule


def _with_own_names(
    rotate: Callable[[plan.FrequencyGroup], tuple[Any, Any]],
    part: plan.FrequencyGroup,
    own_names: dict[str, str],
) -> tuple[Any, Any]:
    """Rotate a part. Convert an error of rope to this operator's name and argument names."""
    try:
        return rotate(part)
    except BrokenRule as error:
        if error.op not in ("rope", "rope_qk"):
            raise
        argument, rule = own_names.get(error.argument, error.argument), _X_IN_RULE.sub(r"query\1", error.rule)
        raise broken(type(error), _OP, argument, rule, error.value) from error.__cause__


# ---- torch -----------------------------------------------------------------------------------------

_SCHEMA = (
    f"{_OP}(Tensor query, Tensor key, Tensor start_pos, Tensor? pad_len=None, Tensor? seqstarts=None, *,"
    " int rotary_dim=0, float theta=10000.0, bool bypass_key=False, int max_position_embeddings=2048,"
    " str scaling_type='', float scaling_factor=1.0) -> (Tensor, Tensor)"
)


def _composite(*tensors: Any, **attributes: Any) -> tuple[Any, Any]:
    """Run the composite operator as calls of rope's operators. Its results are always new tensors."""
    schema = torch.ops.npu_rope.rotary_position_embedding.default._schema
    keywords = (argument for argument in schema.arguments if argument.kwarg_only)
    scaling = {keyword.name: keyword.default_value for keyword in keywords} | attributes
    bypass_key = scaling.pop("bypass_key")
    query, key, start_pos, pad_len, seqstarts = (*tensors, None, None)[:5]
    arguments = query, key, start_pos, pad_len, seqstarts, bypass_key, None, scaling
    rotated_query, rotated_key = _rotary_position_embedding(*arguments)
    return rotated_query, rotated_key.clone() if bypass_key else rotated_key


def _compiled(
    query: Any,
    key: Any,
    start_pos: Any,
    pad_len: Any,
    seqstarts: Any,
    bypass_key: bool,
    scaling: dict[str, Any],
) -> tuple[Any, Any]:
    if not is_tensor(start_pos):
        start_pos = torch.full((), start_pos, dtype=torch.int64)
    operator = torch.ops.npu_rope.rotary_position_embedding.default
    tensors = query, key, start_pos, pad_len, seqstarts
    rotated_query, rotated_key = operator(*tensors, bypass_key=bypass_key, **scaling)
    return rotated_query, key if bypass_key else rotated_key


register_composite(_SCHEMA, _composite)
if torch is not None:
    _uncompiled: Any = torch._disable_dynamo(_rotary_position_embedding)

__all__ = ["rotary_position_embedding"]
