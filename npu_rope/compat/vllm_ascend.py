"""vllm-ascend's operators between the projection and attention, by their names, on ``qkv_norm_rope_cache``.

    from npu_rope.compat import vllm_ascend

    vllm_ascend.register()  # torch.ops.vllm.qkv_rmsnorm_rope and the others now run npu_rope
    q, k, v = torch.ops.vllm.qkv_rmsnorm_rope(qkv, cache, positions, wq, wk, 4096, 1024, 128, 1e-6)

Signatures and shapes: vllm-project/vllm-ascend, ``vllm_ascend/ops/triton/linearnorm`` and
``vllm_ascend/ops/rotary_embedding.py``, November 2026; ``vllm_ascend/device/device_op.py`` has the calls of
``qkv_rmsnorm_rope`` and, on Ascend950, of ``qkv_rmsnorm_rope_simt``. A result is rounded once; vllm-ascend's
kernels also round after the norm. The functions ran on the CPU and on the simulated NPU;
docs/ops/qkv_norm_rope_cache.md has the launches of each.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from npu_rope.compat.arguments import integer_or_symbol
from npu_rope.compat.vllm_ascend_arguments import (
    PARAMETERS,
    Three,
    as_heads,
    by_token,
    halves_of,
    norm_of_heads,
    require_shape,
    rotated_width,
    sections_of,
    split_heads,
)
from npu_rope.errors import BrokenRule, bad_type, bad_value, broken, renamed
from npu_rope.ops import calls
from npu_rope.ops.qk_square_sums import qk_square_sums
from npu_rope.ops.qkv_norm_rope_cache import qkv_norm_rope_cache
from npu_rope.optional_torch import torch
from npu_rope.params import RopeParams
from npu_rope.values import flag


def qkv_rmsnorm_rope(
    input: Any,
    cos_sin_cache: Any,
    positions: Any,
    q_weight: Any,
    k_weight: Any,
    q_hidden_size: int,
    kv_hidden_size: int,
    head_dim: int,
    eps: float,
    q_bias: Any = None,
    k_bias: Any = None,
) -> Three:
    """Split a fused projection, normalize each head of queries and keys, and rotate them by rows of a cache.

    Args:
        input: ``[T, q_hidden_size + 2 * kv_hidden_size]``.
        cos_sin_cache: ``[rows, W]``: cos of W/2 pairs, then sin; pairs are ``(x[i], x[i + W/2])`` of the
            first W dimensions of a head. input's dtype or float32.
        positions: ``[T]``, int32 or int64: rows of the cache.
        q_weight, k_weight, q_bias, k_bias: ``[head_dim]``, of input's dtype or float32.
        q_hidden_size, kv_hidden_size: multiples of head_dim.
        eps: added to the mean square.

    Returns:
        q ``[T, q_hidden_size]``, k and v ``[T, kv_hidden_size]``, contiguous, of input's dtype.

    Raises:
        ValueError, TypeError: an argument breaks its rule.

    >>> import torch
    >>> one, cache = torch.ones(2), torch.tensor([[0.0, 1.0]])  # a quarter of a turn
    >>> qkv, positions = torch.tensor([[3.0, 3, 5, 5, 7, 7]]), torch.tensor([0])
    >>> q, k, v = qkv_rmsnorm_rope(qkv, cache, positions, one, one, 2, 2, 2, 0.0)
    >>> q.tolist(), k.tolist(), v.tolist()
    ([[-1.0, 1.0]], [[-1.0, 1.0]], [[7.0, 7.0]])
    """
    named = input, cos_sin_cache, positions, q_weight, k_weight, q_hidden_size, kv_hidden_size, head_dim, eps
    return _qkv_rmsnorm_rope("qkv_rmsnorm_rope", *named, q_bias, k_bias)


def qkv_rmsnorm_rope_simt(
    input: Any,
    cos_sin_cache: Any,
    positions: Any,
    q_weight: Any,
    k_weight: Any,
    q_hidden_size: int,
    kv_hidden_size: int,
    head_dim: int,
    eps: float,
    q_bias: Any = None,
    k_bias: Any = None,
) -> Three:
    """As :func:`qkv_rmsnorm_rope`, which vllm-ascend calls by this name on Ascend950 (A5)."""
    named = input, cos_sin_cache, positions, q_weight, k_weight, q_hidden_size, kv_hidden_size, head_dim, eps
    return _qkv_rmsnorm_rope("qkv_rmsnorm_rope_simt", *named, q_bias, k_bias)


def _qkv_rmsnorm_rope(
    op: str,
    input: Any,
    cos_sin_cache: Any,
    positions: Any,
    q_weight: Any,
    k_weight: Any,
    q_hidden_size: int,
    kv_hidden_size: int,
    head_dim: int,
    eps: float,
    q_bias: Any,
    k_bias: Any,
) -> Three:
    """Run the function that is called ``op`` in its errors."""
    sizes = {"q_hidden_size": q_hidden_size, "kv_hidden_size": kv_hidden_size}
    xs = split_heads(op, "input", input, sizes, "head_dim", head_dim)
    calls.require_tensors(op, positions=positions)
    cos, sin = halves_of(op, cos_sin_cache)
    norm = norm_of_heads(op, "head_dim", head_dim, q_weight, k_weight, q_bias, k_bias, eps)
    names = _CACHE_NAMES | {"q": "input", "n_dims": "the width of cos_sin_cache"}
    return _fused(op, names, xs, positions, 2 * cos.shape[-1], "neox", cos=cos, sin=sin, **norm)


def triton_split_qkv_rmsnorm_mrope(
    qkv: Any,
    q_weight: Any,
    k_weight: Any,
    cos_sin: Any,
    num_q_heads: int,
    num_kv_heads: int,
    head_size: int,
    eps: float,
    mrope_section: list[int],
    is_interleaved: bool,
    rope_dim: int | None = None,
    q_bias: Any = None,
    k_bias: Any = None,
    has_gate: bool = False,
) -> tuple[Any, Any, Any, Any]:
    """As :func:`qkv_rmsnorm_rope`, with a position of its own for time, height and width.

    Args:
        qkv: ``[T, q_size + 2 * kv_size]``, with q_size = num_q_heads * head_size. With a gate, each head of
            queries is followed by its gate: ``[T, 2 * q_size + 2 * kv_size]``.
        q_weight, k_weight, q_bias, k_bias: ``[head_size]``.
        cos_sin: ``[3, T, rope_dim]``: for each axis and token cos of rope_dim/2 pairs, then sin.
        mrope_section: the pairs of time, height and width; they add up to rope_dim/2.
        is_interleaved: the axes alternate from pair to pair (Qwen3-VL); otherwise they follow each other.
        rope_dim: the rotated width; None: head_size.
        has_gate: qkv has a gate.

    Returns:
        q, k, v, and the gate ``[T, q_size]``, which is ``[T, 0]`` without one.

    Raises:
        ValueError, TypeError: an argument breaks its rule.
    """
    op = "triton_split_qkv_rmsnorm_mrope"
    has_gate, is_interleaved = flag(op, "has_gate", has_gate), flag(op, "is_interleaved", is_interleaved)
    head_size = integer_or_symbol(op, "head_size", head_size)
    num_q_heads = integer_or_symbol(op, "num_q_heads", num_q_heads)
    num_kv_heads = integer_or_symbol(op, "num_kv_heads", num_kv_heads)
    sizes = {
        "num_q_heads * head_size": num_q_heads * head_size * (1 + has_gate),
        "num_kv_heads * head_size": num_kv_heads * head_size,
    }
    q, k, v = split_heads(op, "qkv", qkv, sizes, "head_size", head_size)
    tokens = len(qkv)
    named_width = ("head_size", head_size) if rope_dim is None else ("rope_dim", rope_dim)
    width = rotated_width(op, *named_width)
    require_shape(op, "cos_sin", cos_sin, (3, tokens, width), "[3, T, rope_dim]")
    sections = *sections_of(op, mrope_section, width // 2), 0
    gate = qkv.new_empty((tokens, 0))
    if has_gate:
        both = q.unflatten(1, (num_q_heads, 2))
        q, gate = both[:, :, 0], both[:, :, 1].clone(memory_format=torch.contiguous_format).flatten(1)
    cos, sin = cos_sin.reshape(3 * tokens, width).chunk(2, dim=-1)
    rows = torch.arange(3 * tokens, device=qkv.device).view(3, tokens)
    mode = "imrope" if is_interleaved else "mrope"
    norm = norm_of_heads(op, "head_size", head_size, q_weight, k_weight, q_bias, k_bias, eps)
    names = {
        "q": "qkv",
        "cos": "cos_sin",
        "sin": "cos_sin",
        "n_dims": "rope_dim",
        "sections": "mrope_section",
    }
    results = _fused(op, names, (q, k, v), rows, width, mode, sections, cos=cos, sin=sin, **norm)
    return *results, gate


def split_qkv_tp_rmsnorm_rope(
    input: Any,
    q_weight: Any,
    k_weight: Any,
    q_hidden_size: int,
    kv_hidden_size: int,
    head_dim: int,
    rotary_dim: int,
    eps: float,
    tp_world: int,
    cos: Any,
    sin: Any,
    *,
    all_reduce: Callable[[Any], Any] | None = None,
) -> Three:
    """As :func:`qkv_rmsnorm_rope`, but all heads of a token are normalized together, those of all ranks.

    Args:
        input: ``[T, q_hidden_size + 2 * kv_hidden_size]``, this rank's part.
        q_weight, k_weight: ``[q_hidden_size]`` and ``[kv_hidden_size]``, this rank's part.
        rotary_dim: the rotated width.
        tp_world: the number of ranks: >= 1.
        cos, sin: ``[T, rotary_dim/2]``, or ``[T, rotary_dim]``, of which the first half is used. There may
            be dimensions of size 1, as in ``[1, T, 1, rotary_dim]``, which vllm-ascend passes.
        all_reduce: adds ``[T,2]`` over the ranks and returns the sum, which may be the same tensor. Needed
            for tp_world > 1; vllm-ascend calls ``tensor_model_parallel_all_reduce``.

    Returns:
        q, k and v, as of :func:`qkv_rmsnorm_rope`.

    Raises:
        ValueError, TypeError: an argument breaks its rule.
    """
    op = "split_qkv_tp_rmsnorm_rope"
    sizes = {"q_hidden_size": q_hidden_size, "kv_hidden_size": kv_hidden_size}
    q, k, v = split_heads(op, "input", input, sizes, "head_dim", head_dim)
    rotary_dim = rotated_width(op, "rotary_dim", rotary_dim)
    ranks = integer_or_symbol(op, "tp_world", tp_world)
    if ranks < 1:
        raise bad_value(op, "tp_world", "be >= 1", ranks)
    if not (all_reduce is None or callable(all_reduce)):
        raise bad_type(op, "all_reduce", "be a function", type(all_reduce).__name__)
    cos, sin = (by_token(op, *named, len(input), rotary_dim) for named in (("cos", cos), ("sin", sin)))
    require_shape(op, "q_weight", q_weight, (q_hidden_size,), "[q_hidden_size]")
    require_shape(op, "k_weight", k_weight, (kv_hidden_size,), "[kv_hidden_size]")
    norm: dict[str, Any] = {"q_scale": q_weight, "k_scale": k_weight, "epsilon": eps}
    if ranks > 1:
        if all_reduce is None:
            all_reduce = _all_reduce_of_vllm(op)
        sums = all_reduce(qk_square_sums(q, k))
        calls.require_tensors(op, **{"the result of all_reduce": sums})
        norm |= {"square_sums": sums, "ranks": ranks}
    names = {
        "q": "input",
        "n_dims": "rotary_dim",
        "ranks": "tp_world",
        "square_sums": "the result of all_reduce",
    }
    return _fused(op, names, (q, k, v), None, rotary_dim, "neox", cos=cos, sin=sin, **norm)


def npu_rotary_embedding(
    positions: Any,
    query: Any,
    key: Any,
    cos_sin_cache: Any,
    head_size: int,
    rotary_dim: int,
    is_neox_style: bool,
    offsets: Any = None,
) -> tuple[Any, Any]:
    """Rotate queries and keys by rows of a cache, into new tensors.

    Args:
        positions: ``[T]``, int32 or int64: rows of the cache.
        query, key: ``[T, N*head_size]`` or ``[T, N, head_size]``.
        cos_sin_cache: ``[rows, rotary_dim]``: cos of rotary_dim/2 pairs, then sin.
        is_neox_style: True: pairs are ``(x[i], x[i + rotary_dim/2])``; False: ``(x[2i], x[2i+1])``.
        offsets: must be None, as on an NPU in vllm-ascend.

    Returns:
        The rotated tensors, with the shapes of query and key.

    Raises:
        NotImplementedError: offsets is given.
        ValueError, TypeError: an argument breaks its rule.
    """
    named = positions, query, key, cos_sin_cache, head_size, rotary_dim, is_neox_style, offsets
    return _rotary_embedding("npu_rotary_embedding", *named)


def rope_forward_oot(
    positions: Any,
    query: Any,
    key: Any,
    cos_sin_cache: Any,
    head_size: int,
    rotary_dim: int,
    is_neox_style: bool,
    offsets: Any = None,
) -> tuple[Any, Any]:
    """As :func:`npu_rotary_embedding`."""
    named = positions, query, key, cos_sin_cache, head_size, rotary_dim, is_neox_style, offsets
    return _rotary_embedding("rope_forward_oot", *named)


def _rotary_embedding(
    op: str,
    positions: Any,
    query: Any,
    key: Any,
    cos_sin_cache: Any,
    head_size: int,
    rotary_dim: int,
    is_neox_style: bool,
    offsets: Any,
) -> tuple[Any, Any]:
    """Run the function that is called ``op`` in its errors."""
    if offsets is not None:
        raise NotImplementedError(f"[{op}] offsets must be None but got a tensor.")
    heads = as_heads(op, "query", query, head_size), as_heads(op, "key", key, head_size)
    neox, rotary_dim = flag(op, "is_neox_style", is_neox_style), rotated_width(op, "rotary_dim", rotary_dim)
    calls.require_tensors(op, positions=positions, cos_sin_cache=cos_sin_cache)
    if cos_sin_cache.ndim != 2 or cos_sin_cache.shape[1] != rotary_dim:
        rule = f"be [rows, rotary_dim] = [rows, {rotary_dim}]"
        raise bad_value(op, "cos_sin_cache", rule, list(cos_sin_cache.shape))
    try:
        params = RopeParams(int(rotary_dim), "neox" if neox else "normal")
        cos, sin = cos_sin_cache.chunk(2, dim=-1)
        q, k, _ = qkv_norm_rope_cache(*heads, None, positions, params, cos=cos, sin=sin)
    except BrokenRule as error:
        names = {"q": "query", "k": "key", "n_dims": "rotary_dim"}
        raise renamed(error, op, _NAMES | _CACHE_NAMES | names) from None
    return q.view(query.shape), k.view(key.shape)


# ---- registration ------------------------------------------------------------------------------------

_OPERATORS: dict[str, Callable[..., Any]] = {
    "qkv_rmsnorm_rope": qkv_rmsnorm_rope,
    "qkv_rmsnorm_rope_simt": qkv_rmsnorm_rope_simt,
    "triton_split_qkv_rmsnorm_mrope": triton_split_qkv_rmsnorm_mrope,
    "split_qkv_tp_rmsnorm_rope": split_qkv_tp_rmsnorm_rope,
    "npu_rotary_embedding": npu_rotary_embedding,
}
_ANGLES = "Tensor cos_sin_cache, Tensor positions"
_WEIGHTS = "Tensor q_weight, Tensor k_weight"
_SIZES = "SymInt q_hidden_size, SymInt kv_hidden_size, SymInt head_dim"
_BIASES = "Tensor? q_bias=None, Tensor? k_bias=None"
_THREE = "(Tensor, Tensor, Tensor)"
_PER_HEAD = f"(Tensor input, {_ANGLES}, {_WEIGHTS}, {_SIZES}, float eps, {_BIASES}) -> {_THREE}"
# The schemas that vllm infers from the signatures.
_SCHEMAS = {
    "qkv_rmsnorm_rope": _PER_HEAD,
    "qkv_rmsnorm_rope_simt": _PER_HEAD,
    "triton_split_qkv_rmsnorm_mrope": (
        f"(Tensor qkv, {_WEIGHTS}, Tensor cos_sin, SymInt num_q_heads, SymInt num_kv_heads, SymInt head_size,"
        f" float eps, SymInt[] mrope_section, bool is_interleaved, SymInt? rope_dim=None, {_BIASES},"
        " bool has_gate=False) -> (Tensor, Tensor, Tensor, Tensor)"
    ),
    "split_qkv_tp_rmsnorm_rope": (
        f"(Tensor input, {_WEIGHTS}, {_SIZES}, SymInt rotary_dim, float eps, SymInt tp_world, Tensor cos,"
        f" Tensor sin) -> {_THREE}"
    ),
    "npu_rotary_embedding": (
        "(Tensor positions, Tensor query, Tensor key, Tensor cos_sin_cache, SymInt head_size,"
        " SymInt rotary_dim, bool is_neox_style, Tensor? offsets=None) -> (Tensor, Tensor)"
    ),
}
_libraries: list[Any] = []  # a kernel stays registered as long as its Library object exists


def register(namespace: str = "vllm") -> list[str]:
    """Register these functions as torch operators with vllm-ascend's names, on CPU and NPU tensors.

    An operator that exists already, because vllm-ascend has defined it, gets these functions as its kernels.

    Args:
        namespace: the operators' namespace.

    Returns:
        The names of the operators.

    >>> register("npu_rope_example")[0]
    'npu_rope_example::qkv_rmsnorm_rope'
    """
    library = torch.library.Library(namespace, "FRAGMENT")
    _libraries.append(library)
    for name, function in _OPERATORS.items():
        if not hasattr(getattr(torch.ops, namespace), name):
            library.define(name + _SCHEMAS[name])
            torch.library.register_fake(f"{namespace}::{name}", function, lib=library)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # "Overriding a previously registered kernel"
            for key in ("CPU", "PrivateUse1"):
                library.impl(name, function, key, allow_override=True)
    return [f"{namespace}::{name}" for name in _OPERATORS]


# ---- parts of the functions --------------------------------------------------------------------------


# Names of qkv_norm_rope_cache's arguments and sizes that these functions give other names.
_NAMES = {theirs: ours for ours, theirs in PARAMETERS.items()} | {"epsilon": "eps", "S": "T"}
_CACHE_NAMES = {"cos": "cos_sin_cache", "sin": "cos_sin_cache"}


def _fused(
    op: str,
    names: Mapping[str, str],
    xs: Three,
    positions: Any,
    width: int,
    mode: str,
    sections: tuple[int, ...] = (0, 0, 0, 0),
    **named: Any,
) -> Three:
    """Run qkv_norm_rope_cache into new contiguous tensors. Return them as ``[T, hidden]``.

    Args:
        op, names: the function, and its names of the arguments of qkv_norm_rope_cache, for errors.
        width, mode, sections: of the rotation. In a trace with symbolic sizes width becomes a constant.
    """
    try:
        params = RopeParams(int(width), mode, sections=tuple(int(n) for n in sections))
        out = tuple(x.new_empty(x.shape) for x in xs)
        q, k, v = qkv_norm_rope_cache(*xs, positions, params, out=out, **named)
    except BrokenRule as error:
        error = renamed(error, op, {**_NAMES, **names})
        if "not need a gradient" not in error.rule:
            raise error from None
        remedy = "Call it under torch.no_grad(), or detach the tensor: this function has no gradient."
        raise broken(type(error), op, error.argument, "not need a gradient", error.value, remedy) from None
    return q.flatten(1), k.flatten(1), v.flatten(1)


def _all_reduce_of_vllm(op: str) -> Callable[[Any], Any]:
    """Return vllm's sum over the ranks of its tensor parallelism."""
    try:
        reduce: Callable[[Any], Any] = import_module("vllm.distributed").tensor_model_parallel_all_reduce
    except ImportError:
        rule = "be given where tp_world is above 1 and vllm is not installed"
        raise bad_value(op, "all_reduce", rule, "None") from None
    return reduce


__all__ = [
    "npu_rotary_embedding",
    "qkv_rmsnorm_rope",
    "qkv_rmsnorm_rope_simt",
    "register",
    "rope_forward_oot",
    "split_qkv_tp_rmsnorm_rope",
    "triton_split_qkv_rmsnorm_mrope",
]
