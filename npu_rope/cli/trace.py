"""``npu-rope trace``: one launch of a kernel on the simulated core, where its cycles go."""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from npu_rope import native, native_sim
from npu_rope.cli import trace_plot
from npu_rope.cli.files import replacing, unwritable
from npu_rope.dtypes import bfloat16_bits
from npu_rope.errors import BackendUnavailable, bad_value
from npu_rope.params import RopeParams

RULE_BROKEN, USAGE_ERROR = 1, 2
PIPES = ("S", "V", "MTE2", "MTE3")
NOT_HARDWARE = "Simulated: a model of published rates, never fitted to hardware."

app = typer.Typer(no_args_is_help=True, help="Where a kernel's cycles go, on the simulated core.")


class Dtype(str, Enum):
    """Element types of x."""

    F32 = "f32"
    F16 = "f16"
    BF16 = "bf16"


class Mode(str, Enum):
    """Which elements make a pair, and whose position turns it."""

    NEOX = "neox"
    NORMAL = "normal"
    MROPE = "mrope"
    VISION = "vision"
    IMROPE = "imrope"


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
    dtype: Annotated[
        Dtype | None, typer.Option(help="x's element type; default bf16, f16 on Ascend310P.")
    ] = None,
    mode: Annotated[Mode, typer.Option(help="Which elements make a pair.")] = Mode.NEOX,
    n_dims: Annotated[int | None, typer.Option(help="Rotated width; default D.")] = None,
    n_offs: Annotated[int, typer.Option(help="Where the rotated window starts.")] = 0,
    sections: Annotated[
        str | None,
        typer.Option(help="Pairs of each axis in modes mrope, vision and imrope; default four equal parts."),
    ] = None,
    layout: Annotated[
        Layout, typer.Option(help="bnsd: heads before tokens in memory, handed over as a view.")
    ] = Layout.BSND,
    backward: Annotated[bool, typer.Option("--backward", help="Rotate by minus the angle.")] = False,
    freq_factors: Annotated[
        bool, typer.Option("--freq-factors", help="With factors, divided on the device.")
    ] = False,
    in_place: Annotated[bool, typer.Option("--in-place", help="Write over x.")] = False,
    soc: Annotated[
        str, typer.Option(help="ascend910b, ascend310p, or a chip such as Ascend910B4.")
    ] = "ascend910b",
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Chrome trace JSON, for Perfetto or chrome://tracing."),
    ] = None,
    cores: Annotated[int, typer.Option(min=0, help="Cores in the trace, the first so many; 0: all.")] = 4,
    most_cores: Annotated[
        int, typer.Option(min=0, help="Cores that the kernel may use; 0: all of the chip's.")
    ] = 0,
    plot: Annotated[Path | None, typer.Option(help="Draw the timeline: .png, .svg or .pdf.")] = None,
    json_: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False,
) -> None:
    """Run rope's kernel once and say where its cycles go.

    The kernel and its tiling are the real ones; the time comes from a model:
    each instruction costs its issue and its repeats or bytes, the four pipes of
    a core overlap as far as the kernel's events allow, and the cores share the
    bandwidth of global memory. Nobody has compared it with hardware.

    Exit status: 0, 1 the kernel broke a rule of the simulator, 2 bad usage.

    Examples:

      npu-rope trace rope

      npu-rope trace rope --shape 1,1,32,128 --dtype f16 --mode normal

      npu-rope trace rope --mode mrope --sections 16,24,24,0

      npu-rope trace rope -o rope.json        (open it at ui.perfetto.dev)

      npu-rope trace rope --plot rope.png
    """
    sizes = _sizes(shape)
    for name, target in (("output", output), ("plot", plot)):
        if target is not None and (must := unwritable(target)):
            raise _usage_error(f"[trace] {name} {must}")
    if output is not None and output == plot:
        raise _usage_error(f"[trace] plot must differ from output but got {plot}.")
    if plot is not None and (must := trace_plot.refusal(plot)):
        raise _usage_error(f"[trace] plot {must}")
    try:
        dtype = dtype or _default_dtype(soc)
        params = _params(sizes[3], mode, n_dims, n_offs, sections)
        with tempfile.TemporaryDirectory() as folder:
            spans = Path(folder) / "trace.json"
            path = None if output is None and plot is None else str(spans)
            options = native_sim.SimOptions(
                soc=soc, trace_path=path, trace_cores=cores, one_order=True, most_cores=most_cores
            )
            run = _run(sizes, dtype, params, layout, not backward, freq_factors, in_place, options)
            if output is not None:
                with spans.open("rb") as source, replacing(output, "wb") as stream:
                    shutil.copyfileobj(source, stream)
            if plot is not None:
                with replacing(plot, "wb") as stream:
                    trace_plot.draw(spans, run, stream, plot.suffix[1:])
    except (ValueError, TypeError, BackendUnavailable) as error:
        raise _usage_error(str(error)) from None
    except RuntimeError as error:
        print(error, file=sys.stderr)
        raise typer.Exit(RULE_BROKEN) from None
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


def _params(head: int, mode: Mode, n_dims: int | None, n_offs: int, sections: str | None) -> RopeParams:
    """n_dims is all of the head, halved in mode vision, whose pairs are n_dims apart."""
    if n_dims is None:
        n_dims = head // 2 if mode is Mode.VISION else head
    if sections is None:
        if mode in (Mode.NEOX, Mode.NORMAL):
            return RopeParams(n_dims, mode.value, n_offs=n_offs)
        pairs = n_dims if mode is Mode.VISION else n_dims // 2
        parts = [(pairs + 3 - k) // 4 for k in range(4)]
        return RopeParams(n_dims, mode.value, n_offs=n_offs, sections=parts)
    try:
        axes = [int(part) for part in sections.split(",")]
    except ValueError:
        axes = []
    if len(axes) != 4:
        raise bad_value("trace", f"sections must be four numbers such as 16,24,24,0 but got {sections}.")
    return RopeParams(n_dims, mode.value, n_offs=n_offs, sections=axes)


def _default_dtype(soc: str) -> Dtype:
    """bfloat16, where the chip has it."""
    chips = native_sim.load().profiles()
    lacking = {name.lower() for p in chips if p["arch"] == 200 for name in (p["soc"], p["name"])}
    return Dtype.F16 if soc.lower() in lacking else Dtype.BF16


def _values(sizes: tuple[int, ...]) -> Any:
    try:
        return np.random.default_rng(0).standard_normal(sizes, dtype=np.float32)
    except (ValueError, MemoryError):
        text = ",".join(str(size) for size in sizes)
        raise bad_value("trace", f"shape must fit into memory but got {text}.") from None


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
    values = _values((b, n, s, d) if layout is Layout.BNSD else sizes)
    x: Any = values
    if dtype is not Dtype.F32:
        x = values.astype(np.float16) if dtype is Dtype.F16 else bfloat16_bits(values)
    out = x if in_place else np.empty_like(x)
    positions = np.arange(s, dtype=np.int32)
    if params.rope_mode.has_sections:
        positions = np.tile(positions, (4, 1))
    factors = np.linspace(1, 8, params.pairs, dtype=np.float32) if with_factors else None
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
        "n_dims": params.n_dims,
        "n_offs": params.n_offs,
        "sections": list(params.sections),
        "layout": layout.value,
        "forward": forward,
        "freq_factors": with_factors,
        "in_place": in_place,
        **summary,
        "least_bytes": least,
        "roofline_cycles": roofline,
        "roofline_share": roofline / summary["cycles"] if summary["cycles"] else 0.0,
        "note": NOT_HARDWARE,
    }


# ---- what is printed -----------------------------------------------------------------------------


def _bandwidth(run: dict[str, Any]) -> str:
    gigabytes = (run["bytes_read"] + run["bytes_written"]) / max(run["microseconds"], 1e-9) / 1e3
    return f"{gigabytes / 1e3:.2f} TB/s" if gigabytes >= 100 else f"{gigabytes:.2f} GB/s"


def _print(run: dict[str, Any], output: Path | None, plot: Path | None) -> None:
    console = Console(highlight=False)
    moved = run["bytes_read"] + run["bytes_written"]
    excess = moved / run["least_bytes"]
    slowest = f"the slowest is core {run['slowest_core']:.0f}, below" if run["cores"] > 1 else "below"
    for line in (
        f"[bold]{trace_plot.call_of(run)}[/] on {run['soc']}, simulated",
        f"[dim]{NOT_HARDWARE}[/]",
        "",
        f"time      {run['cycles']:,.0f} cycles = {run['microseconds']:.2f} us, without the launch itself",
        f"memory    {moved:,.0f} bytes moved ({excess:.3f} x the least), {_bandwidth(run)}",
        f"roofline  {run['roofline_share']:.1%} of what the memory allows",
        f"cores     {run['cores']:.0f}; {slowest}",
        "",
    ):
        console.print(line, soft_wrap=True)
    console.print(_pipes(run))
    console.print()
    console.print(_instructions(run))
    console.print()
    console.print(_critical_path(run))
    if output or plot:
        console.print()
    for what, path in (("timeline", output), ("plot", plot)):
        if path is not None:
            console.print(f"{what} written to {escape(str(path))}", soft_wrap=True)


def _table(*titles: str, left: tuple[str, ...]) -> Table:
    table = Table(box=None, pad_edge=False)
    for title in titles:
        table.add_column(title, justify="left" if title in left else "right", no_wrap=True)
    return table


def _pipes(run: dict[str, Any]) -> Table:
    table = _table("pipe", "busy cycles", "of its time", "instructions of all cores", left=("pipe",))
    for pipe in PIPES:
        busy = run[f"busy_{pipe}"]
        share = busy / max(run["cycles"], 1e-9)
        table.add_row(pipe, f"{busy:,.0f}", f"{share:.1%}", f"{run[f'instructions_{pipe}']:,.0f}")
    return table


LONGEST_PARTS = 12


def _critical_path(run: dict[str, Any]) -> Table:
    """What the slowest core's end waited for, the longest part first."""
    table = _table("critical path", "pipe", "spent on", "steps", "cycles", "share", left=("critical path",))
    path = run["critical_path"]
    for part in path["parts"][:LONGEST_PARTS]:
        share = part["cycles"] / max(path["cycles"], 1e-9)
        numbers = [f"{part['count']:,.0f}", f"{part['cycles']:,.0f}", f"{share:.1%}"]
        table.add_row(part["api"], part["pipe"], part["what"], *numbers)
    return table


def _instructions(run: dict[str, Any]) -> Table:
    titles = ("instruction", "pipe", "count", "repeats", "bytes", "cycles", "of its time")
    table = _table(*titles, left=("instruction", "pipe"))
    for api in sorted(run["apis"], key=lambda a: -float(a["cycles"])):
        share = api["cycles"] / max(run["cycles"], 1e-9)
        numbers = [f"{api[name]:,.0f}" for name in ("count", "repeats", "bytes", "cycles")]
        table.add_row(api["api"], api["pipe"], *numbers, f"{share:.1%}")
    return table
