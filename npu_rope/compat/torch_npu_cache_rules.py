"""The rules of torch_npu's functions that store into KV caches. All of them are checked before a write."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from npu_rope.call_tensors import CallTensors
from npu_rope.compat.arguments import integers
from npu_rope.compat.torch_npu_cache_layouts import Target
from npu_rope.errors import BrokenRule, bad_type, bad_value, renamed
from npu_rope.executors import qkv_norm_rope_cache as executors
from npu_rope.executors import rules
from npu_rope.executors.tensors import spec_of
from npu_rope.ops import calls, gradients
from npu_rope.optional_torch import torch
from npu_rope.params import RopeParams
from npu_rope.qkv_norm_rope_cache_calls import OTHERS, QkvAttributes, qkv_tensors

UNROTATED = RopeParams(2, "neox")  # with positions 0


def check_tensors(op: str, inputs: Mapping[str, Any], written: Mapping[str, Any]) -> None:
    """Check what all arguments have in common, before the first launch: they are tensors on one device, none
    needs a gradient, and those that are written share no memory with another one.

    Args:
        inputs: the tensors that are read.
        written: the caches and outputs.
    """
    tensors = {**inputs, **written}
    calls.require_tensors(op, **tensors)
    calls.check_devices(CallTensors(op, inputs, outs=written))
    gradients.refuse_tangents(op, tensors)
    for name, tensor in tensors.items():
        if torch.is_grad_enabled() and tensor.requires_grad:
            remedy = "Call it under torch.no_grad(), or detach the tensor: this function has no gradient."
            raise bad_value(op, name, "not need a gradient", "one that does", remedy=remedy)
    if any(calls.known_of(tensor) == "layout" for tensor in tensors.values()):
        return
    others = {name: np.asarray(_Memory(tensor)) for name, tensor in tensors.items()}
    for name in reversed(list(written)):
        memory = others.pop(name)
        for other_name, other in others.items():
            if _may_share_memory(memory, other, max_work=_OVERLAP_WORK):
                raise bad_value(op, name, f"share no memory with {other_name}", "overlapping memory")


# Views of one buffer take NumPy less. Beyond it, they count as views that share memory.
_OVERLAP_WORK = 10_000
_may_share_memory: Any = np.may_share_memory  # NumPy's type stubs have no max_work above 0


class _Memory:
    """The addresses of a tensor for NumPy, which compares them and does not read them: they may be those of
    an NPU."""

    def __init__(self, tensor: Any) -> None:
        size = tensor.element_size()
        self.__array_interface__ = {
            "version": 3,
            "typestr": f"|V{size}",
            "shape": tuple(tensor.shape),
            "strides": tuple(n * size for n in tensor.stride()),
            "data": (tensor.data_ptr(), True),
        }


def check_stores(
    op: str,
    names: Mapping[str, str],
    xs: Sequence[Any],
    targets: Sequence[Target],
    slots: Any,
    q: Any = None,
    q_out: Any = None,
) -> None:
    """Check the rules of both caches in one call, so that nothing is written if either breaks one or if the
    chip does not support it. Rules of values are checked for CPU tensors only, and compiled calls not at all.
    The calls that follow check all rules again.

    Args:
        names: the caller's names of qkv_norm_rope_cache's arguments.
        xs: the values to store, ``[T,N,D]``.
        q, q_out: ``[T,N,D]`` and where its result is written, or None.
    """
    if torch.compiler.is_compiling():
        return
    k, v = (target.as_stored(x) for x, target in zip(xs, targets, strict=True))
    known = calls.known_of(k)
    no_heads = k[:, :0], k.new_empty((len(k), 0, k.shape[2]))
    with_q = no_heads if q is None else [x.flatten(1).unflatten(1, (-1, k.shape[2])) for x in (q, q_out)]
    # A launch that fills positions would be of no use where values are not read.
    positions = torch.zeros_like(slots) if known == "values" else torch.empty_like(slots)
    others: dict[str, Any] = {**dict.fromkeys(OTHERS), "slots": slots, "positions": positions}
    outs = {"q_out": with_q[1]}
    for name, target in zip("kv", targets, strict=True):
        arguments = target.named(name)
        outs[f"{name}_cache"] = arguments.pop(f"{name}_cache")
        others |= arguments
    call = qkv_tensors({"q": with_q[0], "k": k, "v": v}, others, outs)
    heads = qkv_tensors({"q": xs[0], "k": xs[0][:, :0], "v": xs[1]}, {"positions": positions}, {})
    chip, attributes = calls.chip_of(k), QkvAttributes(UNROTATED)
    try:
        for each in (call, heads):
            if known == "layout":
                rules.check_layout(each.map(spec_of), attributes.checked, chip)
            else:
                executors.check(each, attributes, chip, known)
    except BrokenRule as error:
        raise renamed(error, op, names) from None


def check_kv(op: str, kv: Any, gamma: Any, cos: Any, sin: Any, v: Any) -> None:
    """Check the shapes and dtypes of npu_kv_rmsnorm_rope_cache's inputs but index and factors."""
    if kv.dim() != 4:
        raise bad_value(op, "kv", "have shape [B,N,S,D]", list(kv.shape))
    if kv.shape[1] == 0:
        raise bad_value(op, "kv", "have at least one head", list(kv.shape))
    if gamma.dim() != 1:
        raise bad_value(op, "gamma", "have one dimension", list(gamma.shape))
    batches, heads, tokens, size = kv.shape
    normalized = gamma.shape[0]
    wanted = ((1, batches), (1, heads), (1, tokens))
    if cos.dim() != 4 or any(n not in allowed for n, allowed in zip(cos.shape, wanted, strict=False)):
        rule = f"have shape [{batches} or 1, {heads} or 1, {tokens} or 1, W]"
        raise bad_value(op, "cos", rule, list(cos.shape))
    width = cos.shape[3]
    if width < 2 or width % 2:
        raise bad_value(op, "cos", "have an even number of at least two entries in a row", width)
    if v is None:
        if normalized < 2 or normalized + width != size:
            rule = f"have {normalized} + {width} elements in a row, those of gamma and of cos"
            raise bad_value(op, "kv", rule, size)
    else:
        if v.dim() != 4 or v.shape[:3] != kv.shape[:3]:
            raise bad_value(op, "v", f"have shape [{batches}, {heads}, {tokens}, Dv]", list(v.shape))
        if normalized != size or width > size:
            rule = f"have gamma's {normalized} elements in a row and at least cos's {width}, where v is given"
            raise bad_value(op, "kv", rule, size)
    for name, tensor in (("gamma", gamma), ("cos", cos)):
        check_factor(op, name, tensor, kv)
    _check_sin(op, cos, sin)
    if v is not None and v.dtype != kv.dtype:
        raise bad_type(op, "v", f"have kv's dtype {str(kv.dtype)[6:]}", str(v.dtype)[6:])


def _check_sin(op: str, cos: Any, sin: Any) -> None:
    if sin.shape != cos.shape:
        raise bad_value(op, "sin", f"have cos's shape {list(cos.shape)}", list(sin.shape))
    if sin.dtype != cos.dtype:
        raise bad_type(op, "sin", f"have cos's dtype {str(cos.dtype)[6:]}", str(sin.dtype)[6:])


def check_factor(op: str, name: str, factor: Any, x: Any) -> None:
    """Check that a factor has x's dtype or float32."""
    if factor.dtype not in (x.dtype, torch.float32):
        rule = " or ".join(dict.fromkeys((str(x.dtype)[6:], "float32")))
        raise bad_type(op, name, f"be {rule}", str(factor.dtype)[6:])


def check_qkv(
    op: str,
    qkv: Any,
    cos: Any,
    sin: Any,
    index: Any,
    q_out: Any,
    qkv_size: Sequence[int],
    head_nums: Sequence[int],
) -> tuple[int, int, int, int]:
    """Check the shapes. Return Nq, Nk, Nv and D."""
    qkv_size = integers(op, "qkv_size", qkv_size, "four")
    head_nums = integers(op, "head_nums", head_nums, "three")
    for name, numbers, count in (("qkv_size", qkv_size, 4), ("head_nums", head_nums, 3)):
        if len(numbers) != count or min(numbers) < 1:
            raise bad_value(op, name, f"be {count} numbers of at least 1", numbers)
    batches, tokens, heads, size = qkv_size
    if sum(head_nums) != heads:
        raise bad_value(op, "head_nums", f"add up to the {heads} heads of qkv_size", list(head_nums))
    rows = batches * tokens
    if tuple(qkv.shape) != (rows, heads * size):
        raise bad_value(op, "qkv", f"have shape [{rows}, {heads * size}]", list(qkv.shape))
    if cos.dim() != 2 or cos.shape[0] != rows or cos.shape[1] % 2 or not 2 <= cos.shape[1] <= size:
        raise bad_value(op, "cos", f"have shape [{rows}, W] with an even W up to {size}", list(cos.shape))
    check_factor(op, "cos", cos, qkv)
    _check_sin(op, cos, sin)
    if tuple(index.shape) != (rows,):
        raise bad_value(op, "index", f"have shape [{rows}]", list(index.shape))
    if tuple(q_out.shape) != (rows, head_nums[0] * size):
        raise bad_value(op, "q_out", f"have shape [{rows}, {head_nums[0] * size}]", list(q_out.shape))
    return head_nums[0], head_nums[1], head_nums[2], size
