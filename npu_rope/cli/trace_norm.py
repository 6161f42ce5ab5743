"""``npu-rope trace`` of the norms' kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import numpy as np
import typer
from ascend_sim import Options

from npu_rope.call_tensors import CallTensors
from npu_rope.cli import trace
from npu_rope.cli.trace import Dtype, DtypeOption, Launch, Mode
from npu_rope.cli.usage import numbers, usage_error
from npu_rope.errors import bad_value
from npu_rope.executors import rms_norm as norms
from npu_rope.executors import rotations
from npu_rope.params import RopeParams
from npu_rope.rms_norm_calls import (
    RmsNormAttributes,
    add_rms_norm_tensors,
    rms_norm_backward_tensors,
    rms_norm_tensors,
)
from npu_rope.rms_norm_rope_calls import RmsNormRopeAttributes, rms_norm_rope_tensors


def _values(sizes: tuple[int, ...], dtype: Dtype) -> Any:
    return trace.rounded_to(trace.values_of(sizes), dtype)


RowsOption = Annotated[str, typer.Option(help="Rows and their elements: R,N.")]

app = trace.app  # the norms' commands join those of the rotations


def _add_command(
    op: str, call: Callable[[Any, Any], tuple[CallTensors[Any], tuple[Any, ...]]], text: str
) -> None:
    """Add the command of a norm. call: returns the tensors of a call on x and a scale, and its results."""

    @trace.command(op, text)
    def launch_of(shape: RowsOption = "2048,4096", dtype: DtypeOption = None) -> Launch:
        sizes = _rows(shape)

        def launch(options: Options) -> dict[str, Any]:
            own = dtype or trace.default_dtype(options)
            t, outs = call(_values(sizes, own), _values(sizes[1:], own))
            norms.launch_on_sim(options, t, outs, RmsNormAttributes(), 1)
            about = {"op": op, "shape": list(sizes), "dtype": own.value}
            least = sum(a.nbytes for a in (*t.xs.values(), t.scale, *outs))
            return trace.summary_of(f"{op} [{sizes[0]},{sizes[1]}] {own.value}", least, about)

        return launch


def _backward(x: Any, scale: Any) -> tuple[CallTensors[Any], tuple[Any, ...]]:
    sums = np.zeros(scale.shape, np.float32)
    return rms_norm_backward_tensors(x.copy(), x, scale), (np.empty_like(x), sums)


_add_command(
    "rms_norm",
    lambda x, scale: (rms_norm_tensors(x, scale), (np.empty_like(x),)),
    """Run rms_norm's kernel once and show the use of its cycles.

    The kernel processes several rows at a time if they fit, and longer rows in
    chunks. Chunks that do not stay on the core between its two passes are read
    twice. Otherwise as npu-rope trace rope.

    Exit status: 0, 1 the kernel broke a rule of the simulator, 2 bad usage.

    Examples:

      npu-rope trace rms_norm

      npu-rope trace rms_norm --shape 131072,128

      npu-rope trace rms_norm --shape 48,1000003 --dtype f32
    """,
)
_add_command(
    "add_rms_norm",
    lambda x, scale: (add_rms_norm_tensors(x, x.copy(), scale), (np.empty_like(x), np.empty_like(x))),
    """Run add_rms_norm's kernel once and show the use of its cycles.

    x and the residual are added, and their sum, which is a result itself, is
    normalized, in one launch. Otherwise as npu-rope trace rms_norm.

    Exit status: 0, 1 the kernel broke a rule of the simulator, 2 bad usage.

    Examples:

      npu-rope trace add_rms_norm

      npu-rope trace add_rms_norm --shape 32,4096 --dtype f16
    """,
)
_add_command(
    "rms_norm_backward",
    _backward,
    """Run rms_norm_backward's kernel once and show the use of its cycles.

    Each core sums the scale's gradient over its rows, and adds its sums to those
    of the other cores in memory. Otherwise as npu-rope trace rms_norm.

    Exit status: 0, 1 the kernel broke a rule of the simulator, 2 bad usage.

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
    mode: Annotated[Mode, typer.Option(help="Which elements make a pair.")] = Mode.NEOX,
    n_dims: Annotated[int | None, typer.Option(help="Rotated width; default D.")] = None,
    intermediate_rounding: Annotated[
        bool, typer.Option("--intermediate-rounding", help="Round like rms_norm followed by rope.")
    ] = False,
    cache: Annotated[bool, typer.Option("--cache", help="k goes to rows of a cache.")] = False,
) -> Launch:
    """Run rms_norm_rope's kernel once and show the use of its cycles.

    Queries and keys are normalized head by head, scaled and rotated in one
    launch. Otherwise as npu-rope trace rope.

    Exit status: 0, 1 the kernel broke a rule of the simulator, 2 bad usage.

    Examples:

      npu-rope trace rms_norm_rope

      npu-rope trace rms_norm_rope --shape 1,1,32,128 --cache

      npu-rope trace rms_norm_rope --intermediate-rounding --mode normal
    """
    b, s, n, d = trace.sizes_of_text(shape)

    def launch(options: Options) -> dict[str, Any]:
        own = dtype or trace.default_dtype(options)
        params: RopeParams = trace.params_of(d, mode, n_dims, 0, None)
        if params.rope_mode.has_sections:
            raise bad_value("trace", "mode", "be neox or normal here", mode.value)
        q, k = (_values((b, s, heads, d), own) for heads in (n, keys))
        scales = [_values((d,), own) for _ in range(2)]
        positions, rows = np.arange(s, dtype=np.int32), np.arange(b * s, dtype=np.int64).reshape(b, s)
        outs = np.empty_like(q), np.empty_like(k).reshape(b * s, keys, d) if cache else np.empty_like(k)
        t = rms_norm_rope_tensors(q, k, scales[0], scales[1], positions, None, outs, rows if cache else None)
        a = RmsNormRopeAttributes(params, intermediate_rounding=intermediate_rounding)
        rotations.launch_on_sim(options, t, outs, a)
        about = {
            "op": "rms_norm_rope",
            "shape": [b, s, n, d],
            "keys": keys,
            "dtype": own.value,
            "mode": mode.value,
            "n_dims": params.n_dims,
            "intermediate_rounding": intermediate_rounding,
            "cache": cache,
        }
        said = [f"{keys} heads of keys"]
        said += [] if params.n_dims == d else [f"n_dims {params.n_dims}"]
        said += ["intermediate rounding"] if intermediate_rounding else []
        said += ["keys to a cache"] if cache else []
        # The bytes do not include the scalar unit's reads of rows.
        least = 2 * (q.nbytes + k.nbytes) + 2 * scales[0].nbytes + positions.nbytes
        return trace.summary_of(trace.call_text(about, mode.value, said), least, about)

    return launch


def _rows(text: str) -> tuple[int, int]:
    sizes = numbers(text)
    if len(sizes) != 2 or min(sizes) < 1:
        raise usage_error(f"[trace] shape must be two positive numbers R,N but got {text}.")
    return sizes[0], sizes[1]
