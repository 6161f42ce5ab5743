"""``npu-rope trace``: one launch of a kernel on the simulated core, where its cycles go."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from npu_rope import native, native_sim
from npu_rope.cli import trace_plot
from npu_rope.cli.files import replacing, unwritable
from npu_rope.dtypes import bfloat16_bits
from npu_rope.errors import BackendUnavailable
from npu_rope.params import RopeParams

USAGE_ERROR = 2
PIPES = ("S", "V", "MTE2", "MTE3")
NOT_HARDWARE = "Simulated: a model of published rates, never fitted to hardware."

app = typer.Typer(no_args_is_help=True, help="Where a kernel's cycles go, on the simulated core.")


class Dtype(str, Enum):
    """Element types of x."""

    F32 = "f32"
    F16 = "f16"
    BF16 = "bf16"


class Mode(str, Enum):
    """Modes with a kernel."""

    NEOX = "neox"
    NORMAL = "normal"


class Layout(str, Enum):
    """How x lies in memory."""

    BSND = "bsnd"
    BNSD = "bnsd"


_NAMES = {Dtype.F32: "float32", Dtype.F16: "float16", Dtype.BF16: "bfloat16"}
_ITEM = {Dtype.F32: 4, Dtype.F16: 2, Dtype.BF16: 2}


@app.callback()
def _group() -> None:
    """Where a kernel's cycles go, on the simulated core."""


@app.command()
def rope(
    shape: Annotated[str, typer.Option(help="B,S,N,D of x.")] = "1,4096,32,128",
    dtype: Annotated[Dtype, typer.Option(help="x's element type.")] = Dtype.BF16,
    mode: Annotated[Mode, typer.Option(help="Which elements make a pair.")] = Mode.NEOX,
    n_dims: Annotated[int | None, typer.Option(help="Rotated width; default D.")] = None,
    n_offs: Annotated[int, typer.Option(help="Where the rotated window starts.")] = 0,
    layout: Annotated[
        Layout, typer.Option(help="bnsd: heads before tokens in memory, handed over as a view.")
    ] = Layout.BSND,
    backward: Annotated[bool, typer.Option(help="Rotate by minus the angle.")] = False,
    freq_factors: Annotated[bool, typer.Option(help="With factors, divided on the device.")] = False,
    in_place: Annotated[bool, typer.Option(help="Write over x.")] = False,
    soc: Annotated[
        str, typer.Option(help="ascend910b, ascend310p, or a chip such as Ascend910B4.")
    ] = "ascend910b",
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Chrome trace JSON, for Perfetto or chrome://tracing."),
    ] = None,
    cores: Annotated[int, typer.Option(min=0, help="Cores in the trace, the first so many; 0: all.")] = 4,
    plot: Annotated[Path | None, typer.Option(help="Draw the timeline: .png, .svg or .pdf.")] = None,
    json_: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False,
) -> None:
    """Run rope's kernel once and say where its cycles go.

    The kernel and its tiling are the real ones; the time comes from a model: each instruction costs its
    issue and its repeats or bytes, the four pipes of a core overlap as far as the kernel's events allow,
    and the cores share the bandwidth of global memory. Nobody has compared it with hardware.

    Examples:

      npu-rope trace rope

      npu-rope trace rope --shape 1,1,32,128 --dtype f16 --mode normal

      npu-rope trace rope -o rope.json        (open it at ui.perfetto.dev)

      npu-rope trace rope --plot rope.png
    """
    sizes = _sizes(shape)
    for name, target in (("output", output), ("plot", plot)):
        if target is not None and (must := unwritable(target)):
            raise _usage_error(f"[trace] {name} {must}")
    if plot is not None and (must := trace_plot.refusal(plot)):
        raise _usage_error(f"[trace] plot {must}")
    try:
        params = RopeParams(n_dims or sizes[3], mode.value, n_offs=n_offs)
        with _spans(output, plot) as path:
            options = native_sim.SimOptions(soc=soc, trace_path=path, trace_cores=cores, one_order=True)
            run = _run(sizes, dtype, params, layout, not backward, freq_factors, in_place, options)
            if plot is not None and path is not None:
                with replacing(plot, "wb") as stream:
                    trace_plot.draw(Path(path), run, stream, plot.suffix[1:])
    except (ValueError, TypeError, BackendUnavailable) as error:
        raise _usage_error(str(error)) from None
    if json_:
        print(json.dumps(run, indent=1))
    else:
        _print(run, output, plot)


def _usage_error(text: str) -> typer.Exit:
    print(text, file=sys.stderr)
    return typer.Exit(USAGE_ERROR)


def _sizes(text: str) -> tuple[int, int, int, int]:
    try:
        sizes = tuple(int(part) for part in text.split(","))
    except ValueError:
        sizes = ()
    if len(sizes) != 4 or min(sizes) < 1:
        raise _usage_error(f"[trace] shape must be four positive numbers B,S,N,D but got {text}.")
    b, s, n, d = sizes
    return b, s, n, d


@contextmanager
def _spans(output: Path | None, plot: Path | None) -> Iterator[str | None]:
    """Where the spans are written: the output, a file that goes away after the plot, or nowhere."""
    if output is not None:
        yield str(output)
    elif plot is None:
        yield None
    else:
        with tempfile.TemporaryDirectory() as folder:
            yield str(Path(folder) / "trace.json")


def _run(
    sizes: tuple[int, int, int, int],
    dtype: Dtype,
    params: RopeParams,
    layout: Layout,
    forward: bool,
    with_factors: bool,
    in_place: bool,
    options: native_sim.SimOptions,
) -> dict[str, Any]:
    b, s, n, d = sizes
    rng = np.random.default_rng(0)
    memory = (b, n, s, d) if layout is Layout.BNSD else sizes
    values = rng.standard_normal(memory, dtype=np.float32)
    x: Any = values
    if dtype is not Dtype.F32:
        x = values.astype(np.float16) if dtype is Dtype.F16 else bfloat16_bits(values)
    out = x if in_place else np.empty_like(x)
    positions = np.arange(s, dtype=np.int32)
    factors = rng.uniform(1, 8, params.n_dims // 2).astype(np.float32) if with_factors else None
    simulator = native_sim.load()

    def tensor(a: Any) -> native.CTensor:
        view = a.transpose(0, 2, 1, 3) if layout is Layout.BNSD else a
        item = _ITEM[dtype]
        return native.c_tensor(
            a.ctypes.data, _NAMES[dtype], view.shape, tuple(step // item for step in view.strides)
        )

    simulator.rope(
        tensor(x),
        native.describe(positions),
        None if factors is None else native.describe(factors),
        native.c_params(params),
        forward,
        "exact",
        tensor(out),
        options,
    )
    summary: dict[str, Any] = simulator.report()["summary"]
    least = 2 * x.nbytes + positions.nbytes + (0 if factors is None else factors.nbytes)
    roofline = least / summary["gm_bytes_per_cycle"]
    return {
        "op": "rope",
        "shape": list(sizes),
        "dtype": dtype.value,
        "mode": params.rope_mode.name.lower(),
        **summary,
        "least_bytes": least,
        "roofline_cycles": roofline,
        "roofline_share": roofline / summary["cycles"] if summary["cycles"] else 0.0,
        "note": NOT_HARDWARE,
    }


# ---- what is printed -----------------------------------------------------------------------------


def _print(run: dict[str, Any], output: Path | None, plot: Path | None) -> None:
    console = Console(highlight=False)
    shape = ",".join(str(size) for size in run["shape"])
    console.print(
        f"[bold]rope [{shape}] {run['dtype']} {run['mode']} on {run['soc']}[/], simulated", markup=True
    )
    console.print(f"[dim]{NOT_HARDWARE}[/]")
    moved = run["bytes_read"] + run["bytes_written"]
    per_second = moved / max(run["microseconds"], 1e-9) / 1e6
    console.print(
        f"time      {run['cycles']:,.0f} cycles = {run['microseconds']:.2f} us, without the launch itself"
    )
    console.print(
        f"memory    {moved:,.0f} bytes moved ({moved / run['least_bytes']:.3f} x the least),"
        f" {per_second:.2f} TB/s; {run['roofline_share']:.1%} of the memory roofline"
    )
    console.print(
        f"cores     {run['cores']:.0f}, the slowest is core {run['slowest_core']:.0f}; of its time:"
    )
    table = Table(box=None, pad_edge=False)
    for title in ("pipe", "busy cycles", "share", "instructions (all cores)"):
        table.add_column(title, justify="left" if title == "pipe" else "right")
    for pipe in PIPES:
        busy = run[f"busy_{pipe}"]
        share = busy / max(run["cycles"], 1e-9)
        table.add_row(pipe, f"{busy:,.0f}", f"{share:.1%}", f"{run[f'instructions_{pipe}']:,.0f}")
    console.print(table)
    table = Table(box=None, pad_edge=False)
    for title in ("instruction", "pipe", "count", "repeats", "bytes", "cycles", "share"):
        table.add_column(title, justify="left" if title in ("instruction", "pipe") else "right")
    for api in sorted(run["apis"], key=lambda a: -float(a["cycles"])):
        share = api["cycles"] / max(run["cycles"], 1e-9)
        table.add_row(
            api["api"],
            api["pipe"],
            f"{api['count']:,.0f}",
            f"{api['repeats']:,.0f}",
            f"{api['bytes']:,.0f}",
            f"{api['cycles']:,.0f}",
            f"{share:.1%}",
        )
    console.print(table)
    for what, path in (("timeline", output), ("plot", plot)):
        if path is not None:
            console.print(f"{what} written to {path}", soft_wrap=True)
