"""ATB's rotary embedding, ``torch_npu._npu_rotary_embedding``, on the host.

torch_npu calls it through ATB's library, which is not simulated. Sources:

- op-plugin ``op_plugin/ops/atb/RopeAtb.cpp``: how torch_npu makes the tables and the parameters;
- hicann/ascend-transformer-boost ``rope_operation.cpp``, ``RopeOperation::DimCheck``, ``HiddenSizeCheck``
  and ``ParamCheck``, and the page of RopeOperation in ATB's reference (CANN 8.5, ``ascendtb_01_0075``): the
  limits.

As in torch_npu, the tables of the first call serve the whole process, whatever cache a later call passes, and
a head is as wide as the cache, whatever ``head_size`` says.
"""

from __future__ import annotations

import warnings
from typing import Any

import torch

OPERATOR = "_npu_rotary_embedding"
LEAST_HEAD_SIZE, MOST_HEAD_SIZE = 16, 4096


class _Tables:
    """Cosines and sines for each style, from the first cache of the process."""

    def __init__(self, cache: torch.Tensor) -> None:
        self.cache = cache.clone()
        cos, sin = cache.chunk(2, -1)
        self.by_style = {
            True: (cos.repeat(1, 2), sin.repeat(1, 2)),
            False: (cos.repeat_interleave(2, 1), sin.repeat_interleave(2, 1)),
        }


_tables: _Tables | None = None


def rotary_embedding(
    positions: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor,
    head_size: int,
    cos_sin_cache: torch.Tensor,
    is_neox_style: bool,
) -> None:
    """Rotate query and key, CPU views of device memory, in place."""
    cos, sin = _tables_of(cos_sin_cache).by_style[is_neox_style]
    rows = positions.flatten()
    cos, sin = cos.index_select(0, rows), sin.index_select(0, rows)
    _check(query, key, head_size, cos, is_neox_style)
    for tensor in (query, key):
        heads = tensor.view(cos.shape[0], -1, cos.shape[1])
        heads.copy_(_rotated(heads, cos[:, None], sin[:, None], is_neox_style))


def _tables_of(cache: torch.Tensor) -> _Tables:
    global _tables
    if _tables is None:
        _tables = _Tables(cache)
    elif not torch.equal(_tables.cache, cache):
        warnings.warn(
            f"{OPERATOR}: torch_npu uses the cos_sin_cache of the first call of the process; this call's "
            "cache has other values (simulated).",
            stacklevel=2,
        )
    return _tables


def _rotated(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, is_neox_style: bool) -> torch.Tensor:
    """Return x * cos + rotate(x) * sin. Without float32 tables, float16 is computed in float16."""
    if is_neox_style:
        first, second = x.chunk(2, -1)
        crossed = torch.cat((-second, first), -1)
    else:
        crossed = torch.stack((-x[..., 1::2], x[..., ::2]), -1).flatten(-2)
    if x.dtype == torch.float16 and cos.dtype == torch.float16:
        return x * cos + crossed * sin
    return (x.float() * cos.float() + crossed.float() * sin.float()).to(x.dtype)


def _check(query: Any, key: Any, head_size: int, cos: Any, is_neox_style: bool) -> None:
    types = (torch.float16,) if _is_310p() else (torch.float16, torch.bfloat16)
    for name, tensor in (("query", query), ("key", key)):
        _require(
            tensor.dtype in types, name, "be " + " or ".join(map(_name_of, types)), _name_of(tensor.dtype)
        )
        _require(tensor.dim() in (2, 4), name, "have 2 or 4 dimensions", tensor.dim())
        _require(tensor.is_contiguous(), name, "be contiguous", f"the strides {list(tensor.stride())}")
    tables = (query.dtype, torch.float32) if query.dtype == torch.float16 else (query.dtype,)
    _require(key.dtype == query.dtype, "key", f"be {_name_of(query.dtype)} like query", _name_of(key.dtype))
    rule = "be " + " or ".join(map(_name_of, tables))
    _require(cos.dtype in tables, "cos_sin_cache", rule, _name_of(cos.dtype))
    tokens, width = cos.shape
    for name, tensor in (("query", query), ("key", key)):
        rows = tensor.shape[: tensor.dim() // 2].numel()
        _require(rows == tokens, name, f"have the {tokens} tokens of positions", rows)
    is_size = LEAST_HEAD_SIZE <= width <= MOST_HEAD_SIZE
    _require(is_size, "the last dimension of cos_sin_cache", "be 16 to 4096", width)
    _require(
        is_neox_style or head_size == width, "head_size", f"be {width}, the last dimension of cos_sin_cache",
        head_size,
    )  # fmt: skip
    hidden = [tensor.shape[tensor.dim() // 2 :].numel() for tensor in (query, key)]
    _require(
        hidden[1] > 0 and hidden[1] % width == 0, "key", f"have rows of a multiple of {width}", hidden[1]
    )
    _require(hidden[0] % hidden[1] == 0, "query", f"have rows of a multiple of key's {hidden[1]}", hidden[0])


def _require(holds: bool, argument: str, rule: str, got: Any) -> None:
    if not holds:
        raise RuntimeError(f"[{OPERATOR}] {argument} must {rule} but got {got}. (ATB, simulated)")


def _name_of(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _is_310p() -> bool:
    return str(torch.npu.get_device_name()).startswith("Ascend310P")  # type: ignore[attr-defined]


def operator() -> Any:
    """Return torch.ops.atb._npu_rotary_embedding, or None if torch_npu did not load its ATB part."""
    if not torch._C._jit_get_schemas_for_operator(f"atb::{OPERATOR}"):
        return None
    return getattr(torch.ops.atb, OPERATOR).default
