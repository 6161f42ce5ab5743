"""Commands of ``npu-rope trace`` for the RMSNorm kernels."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Annotated, Any

import numpy as np
import typer
from ascend_sim import Options

from npu_rope.call_tensors import CallTensors
from npu_rope.cli import trace
from npu_rope.cli.trace import Dtype, DtypeOption, Launch, Mode
from npu_rope.cli.usage import numbers, usage_error
from npu_rope.errors import bad_value
from npu_rope.executors import qk_square_sums as square_sums
from npu_rope.executors import qkv_norm_rope_cache as qkv
from npu_rope.executors import rms_norm as norms
from npu_rope.executors import rotations
from npu_rope.params import RopeParams
from npu_rope.qkv_norm_rope_cache_calls import QkvAttributes, qkv_tensors
from npu_rope.rms_norm_calls import (
    RmsNormAttributes,
    add_rms_norm_tensors,
    rms_norm_backward_tensors,
    rms_norm_tensors,
)
from npu_rope.rms_norm_rope_calls import RmsNormRopeAttributes, rms_norm_rope_tensors


def _random_values(sizes: tuple[int, ...], dtype: Dtype) -> Any:
    return trace.rounded_to(trace.random_values(sizes), dtype)


RowsOption = Annotated[str, typer.Option(help="R,N: number of rows, elements of a row.")]

app = trace.app  # the import of this module adds the commands below


def _add_command(
    op: str, make: Callable[[Any, Any], tuple[CallTensors[Any], tuple[Any, ...]]], help_text: str
) -> Callable[..., Launch]:
    """Register the trace command of a norm. ``make(x, scale)`` returns the tensors and the results."""

    @trace.command(op, help_text)
    def make_launch(shape: RowsOption = "2048,4096", dtype: DtypeOption = None) -> Launch:
        sizes = _parse_rows(shape)

        def launch(options: Options) -> dict[str, Any]:
            element_type = dtype or trace.default_dtype(options)
            x, scale = (_random_values(shape, element_type) for shape in (sizes, sizes[1:]))
            tensors, results = make(x, scale)
            norms.launch_on_sim(options, tensors, results, RmsNormAttributes(), axis=1)
            properties = {"op": op, "shape": list(sizes), "dtype": element_type.value}
            least_bytes = sum(array.nbytes for array in (*tensors.xs.values(), tensors.scale, *results))
            return trace.summary_of(
                f"{op} [{sizes[0]},{sizes[1]}] {element_type.value}", least_bytes, properties
            )

        return launch

    return make_launch


def _backward_tensors(x: Any, scale: Any) -> tuple[CallTensors[Any], tuple[Any, ...]]:
    sums = np.zeros(scale.shape, np.float32)
    return rms_norm_backward_tensors(x.copy(), x, scale), (np.empty_like(x), sums)


rms_norm = _add_command(
    "rms_norm",
    lambda x, scale: (rms_norm_tensors(x, scale), (np.empty_like(x),)),
    """Run rms_norm's kernel once and show the use of its cycles.

    The kernel processes several rows at a time if they fit, and longer rows in
    chunks, in two passes. A row that does not fit UB is read twice.

    The time model is that of npu-rope trace rope.

    Exit status: 0 success; 1 the kernel broke a rule of the simulator; 2 bad
    usage.

    Examples:

      npu-rope trace rms_norm

      npu-rope trace rms_norm --shape 131072,128

      npu-rope trace rms_norm --shape 48,1000003 --dtype f32
    """,
)
add_rms_norm = _add_command(
    "add_rms_norm",
    lambda x, scale: (add_rms_norm_tensors(x, x.copy(), scale), (np.empty_like(x), np.empty_like(x))),
    """Run add_rms_norm's kernel once and show the use of its cycles.

    One launch adds x and the residual, writes the sum, and normalizes it.

    The time model is that of npu-rope trace rope.

    Exit status: 0 success; 1 the kernel broke a rule of the simulator; 2 bad
    usage.

    Examples:

      npu-rope trace add_rms_norm

      npu-rope trace add_rms_norm --shape 32,4096 --dtype f16
    """,
)
rms_norm_backward = _add_command(
    "rms_norm_backward",
    _backward_tensors,
    """Run rms_norm_backward's kernel once and show the use of its cycles.

    Each core sums the scale's gradient over its rows, and adds its sums to those
    of the other cores in global memory. If the sums do not fit UB, the core
    adds each chunk of each row in global memory.

    The time model is that of npu-rope trace rope.

    Exit status: 0 success; 1 the kernel broke a rule of the simulator; 2 bad
    usage.

    Examples:

      npu-rope trace rms_norm_backward

      npu-rope trace rms_norm_backward --shape 16,100000
    """,
)


@trace.command("rms_norm_rope")
def rms_norm_rope(
    shape: trace.ShapeOption = "1,4096,32,128",
    keys: Annotated[int, typer.Option(min=1, help="Heads of k; N in --shape is q's.")] = 8,
    dtype: DtypeOption = None,
    mode: Annotated[Mode, typer.Option(help="How elements form pairs: neox or normal.")] = Mode.NEOX,
    n_dims: Annotated[int | None, typer.Option(help="Rotated lanes; default D.")] = None,
    intermediate_rounding: Annotated[
        bool, typer.Option("--intermediate-rounding", help="Round like rms_norm followed by rope.")
    ] = False,
    cache: Annotated[bool, typer.Option("--cache", help="Write k to rows of a KV cache.")] = False,
) -> Launch:
    """Run rms_norm_rope's kernel once and show the use of its cycles.

    One launch normalizes queries and keys head by head, scales and rotates them.

    The time model is that of npu-rope trace rope.

    Exit status: 0 success; 1 the kernel broke a rule of the simulator; 2 bad
    usage.

    Examples:

      npu-rope trace rms_norm_rope

      npu-rope trace rms_norm_rope --shape 1,1,32,128 --cache

      npu-rope trace rms_norm_rope --intermediate-rounding --mode normal
    """
    b, s, n, d = trace.parse_shape(shape)

    def launch(options: Options) -> dict[str, Any]:
        element_type = dtype or trace.default_dtype(options)
        params: RopeParams = trace.params_of(d, mode, n_dims, 0, None)
        if params.rope_mode.has_sections:
            raise bad_value("trace", "mode", "be neox or normal for rms_norm_rope", mode.value)
        q, k = (_random_values((b, s, heads, d), element_type) for heads in (n, keys))
        scales = [_random_values((d,), element_type) for _ in range(2)]
        positions, cache_rows = np.arange(s, dtype=np.int32), np.arange(b * s, dtype=np.int64).reshape(b, s)
        results = np.empty_like(q), np.empty_like(k).reshape(b * s, keys, d) if cache else np.empty_like(k)
        tensors = rms_norm_rope_tensors(
            q, k, scales[0], scales[1], positions, None, results, cache_rows if cache else None
        )
        attributes = RmsNormRopeAttributes(params, intermediate_rounding=intermediate_rounding)
        rotations.launch_on_sim(options, tensors, results, attributes)
        properties = {
            "op": "rms_norm_rope",
            "shape": [b, s, n, d],
            "keys": keys,
            "dtype": element_type.value,
            "mode": mode.value,
            "n_dims": params.n_dims,
            "intermediate_rounding": intermediate_rounding,
            "cache": cache,
        }
        details = [f"{keys} heads of keys"]
        details += [] if params.n_dims == d else [f"n_dims {params.n_dims}"]
        details += ["intermediate rounding"] if intermediate_rounding else []
        details += ["keys to a cache"] if cache else []
        # The indices of the cache's rows are not counted, because the scalar unit reads them.
        least_bytes = 2 * (q.nbytes + k.nbytes) + 2 * scales[0].nbytes + positions.nbytes
        return trace.summary_of(trace.call_text(properties, mode.value, details), least_bytes, properties)

    return launch


HeadsOption = Annotated[str, typer.Option(help="T,Nq,Nk,D: tokens, heads of q, heads of k and v, head size.")]


def _parse_heads(text: str) -> tuple[int, int, int, int]:
    sizes = numbers(text)
    if len(sizes) != 4 or min(sizes) < 1:
        raise usage_error(f"[trace] shape must be four positive numbers T,Nq,Nk,D but got {text}.")
    return sizes[0], sizes[1], sizes[2], sizes[3]


@trace.command("qk_square_sums")
def qk_square_sums(shape: HeadsOption = "4096,32,8,128", dtype: DtypeOption = None) -> Launch:
    """Run qk_square_sums' kernel once and show the use of its cycles.

    One launch sums the squares of each token's queries and keys. q and k are
    views of the fused projection, which also has values.

    The time model is that of npu-rope trace rope.

    Exit status: 0 success; 1 the kernel broke a rule of the simulator; 2 bad
    usage.

    Examples:

      npu-rope trace qk_square_sums

      npu-rope trace qk_square_sums --shape 1,128,8,128
    """
    t, n, keys, d = _parse_heads(shape)

    def launch(options: Options) -> dict[str, Any]:
        element_type = dtype or trace.default_dtype(options)
        fused = _random_values((t, n + 2 * keys, d), element_type)
        q, k, _ = np.split(fused, [n, n + keys], axis=1)
        out = np.empty((t, 2), np.float32)
        call = CallTensors("qk_square_sums", {"q": q, "k": k})
        square_sums.launch_on_sim(options, call, (out,), {})
        properties = {"op": "qk_square_sums", "shape": [t, n, keys, d], "dtype": element_type.value}
        text = f"qk_square_sums [{t},{n},{keys},{d}] {element_type.value}"
        return trace.summary_of(text, q.nbytes + k.nbytes + out.nbytes, properties)

    return launch


class QkvNorm(str, Enum):
    """The elements that a norm covers."""

    NONE = "none"
    HEAD = "head"
    TOKEN = "token"


class QkvCache(str, Enum):
    """Where keys and values go."""

    NONE = "none"
    SAME = "same"
    INT8 = "int8"


@trace.command("qkv_norm_rope_cache")
def qkv_norm_rope_cache(
    shape: HeadsOption = "4096,32,8,128",
    dtype: DtypeOption = None,
    mode: Annotated[Mode, typer.Option(help="How elements form pairs: neox or normal.")] = Mode.NEOX,
    n_dims: Annotated[int | None, typer.Option(help="Rotated lanes; default D.")] = None,
    norm: Annotated[
        QkvNorm, typer.Option(help="Elements of a norm: head, token (all heads), none.")
    ] = QkvNorm.HEAD,
    cache: Annotated[QkvCache, typer.Option(help="The type of the caches: same, int8; none: no cache.")] = (
        QkvCache.SAME
    ),
    tables: Annotated[
        bool, typer.Option("--tables", help="Pass cosines and sines, as vLLM keeps them.")
    ] = False,
) -> Launch:
    """Run qkv_norm_rope_cache's kernel once and show the use of its cycles.

    One launch takes queries, keys and values from the fused projection,
    normalizes and rotates queries and keys, and stores keys and values into
    rows of caches.

    The time model is that of npu-rope trace rope.

    Exit status: 0 success; 1 the kernel broke a rule of the simulator; 2 bad
    usage.

    Examples:

      npu-rope trace qkv_norm_rope_cache

      npu-rope trace qkv_norm_rope_cache --shape 32,32,8,128 --cache int8

      npu-rope trace qkv_norm_rope_cache --norm token --tables
    """
    t, n, keys, d = _parse_heads(shape)

    def launch(options: Options) -> dict[str, Any]:
        element_type = dtype or trace.default_dtype(options)
        params: RopeParams = trace.params_of(d, mode, n_dims, 0, None)
        if params.rope_mode.has_sections:
            raise bad_value("trace", "mode", "be neox or normal for qkv_norm_rope_cache", mode.value)
        fused = _random_values((t, n + 2 * keys, d), element_type)
        xs = dict(zip("qkv", np.split(fused, [n, n + keys], axis=1), strict=True))
        others: dict[str, Any] = {"positions": np.arange(t, dtype=np.int32)}
        for name, heads in (("q", n), ("k", keys)):
            lengths = {QkvNorm.NONE: 0, QkvNorm.HEAD: d, QkvNorm.TOKEN: heads * d}
            if norm is not QkvNorm.NONE:
                others[f"{name}_scale"] = _random_values((lengths[norm],), element_type)
        if tables:
            table = _random_values((t, params.n_dims), element_type)
            others |= {"cos": table[:, : params.pairs], "sin": table[:, params.pairs :]}
        outs = {"q_out": np.empty((t, n, d), fused.dtype)}
        if cache is not QkvCache.NONE:
            others["slots"] = np.arange(t, dtype=np.int32)
            cache_type = np.int8 if cache is QkvCache.INT8 else fused.dtype
            outs |= {f"{name}_cache": np.zeros((t, keys, d), cache_type) for name in "kv"}
            if cache is QkvCache.INT8:
                others |= {f"{name}_quant_scale": np.full((keys, d), 10, np.float32) for name in "kv"}
        else:
            outs |= {f"{name}_out": np.empty((t, keys, d), fused.dtype) for name in "kv"}
        tensors = qkv_tensors(xs, others, outs)
        qkv.launch_on_sim(options, tensors, tuple(outs.values()), QkvAttributes(params))
        properties = {
            "op": "qkv_norm_rope_cache",
            "shape": [t, n, keys, d],
            "dtype": element_type.value,
            "mode": mode.value,
            "n_dims": params.n_dims,
            "norm": norm.value,
            "cache": cache.value,
            "tables": tables,
        }
        details = [f"norm {norm.value}", f"cache {cache.value}", *(["tables"] if tables else [])]
        details += [] if params.n_dims == d else [f"n_dims {params.n_dims}"]
        # The slots are not counted, because the scalar unit reads them.
        counted = [fused, *outs.values(), *(x for name, x in others.items() if name != "slots")]
        least_bytes = sum(array.nbytes for array in counted)
        return trace.summary_of(trace.call_text(properties, mode.value, details), least_bytes, properties)

    return launch


def _parse_rows(text: str) -> tuple[int, int]:
    sizes = numbers(text)
    if len(sizes) != 2 or min(sizes) < 1:
        raise usage_error(f"[trace] shape must be two positive numbers R,N but got {text}.")
    return sizes[0], sizes[1]
