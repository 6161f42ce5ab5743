"""``npu-rope trace``: the use of cycles in one launch of a kernel on the simulated core."""

from __future__ import annotations

import inspect
import json
import shutil
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from ascend_sim import Options, timeline, timeline_page, timeline_plot
from ascend_sim.cli.application import Application
from ascend_sim.files import replacing
from ascend_sim.library import figures_of
from rich.console import Console
from rich.markup import escape

from npu_rope import simulated_package
from npu_rope.cli.usage import numbers, require_writable, usage_error
from npu_rope.dtypes import bfloat16_bits
from npu_rope.errors import BackendUnavailable, InternalError, bad_value
from npu_rope.executors import rotations
from npu_rope.params import RopeParams
from npu_rope.rope_calls import RopeCallAttributes, rope_tensors
from npu_rope.rotary_calls import RotaryAttributes, rotary_embedding_tensors, rotary_mul_tensors

EXIT_RULE_BROKEN = 1  # exit status

app = Application(no_args_is_help=True, help="Show the use of a kernel's cycles on the simulated core.")


class Dtype(str, Enum):
    """Element types of the input."""

    F32 = "f32"
    F16 = "f16"
    BF16 = "bf16"


class Mode(str, Enum):
    """How elements form pairs, and which position rotates each pair."""

    NEOX = "neox"
    NORMAL = "normal"
    MROPE = "mrope"
    VISION = "vision"
    IMROPE = "imrope"


class MemoryOrder(str, Enum):
    """The memory layouts of x."""

    BSND = "bsnd"
    BNSD = "bnsd"


class TableWidth(str, Enum):
    """Whether a given table has an entry for each pair or for each lane."""

    PAIR = "pair"
    LANE = "lane"


class TableDtype(str, Enum):
    """Element types of given tables."""

    OWN = "own"
    F32 = "f32"


class TraceFormat(str, Enum):
    """Formats of the timeline's file."""

    CHROME = "chrome"
    HTML = "html"


ShapeOption = Annotated[str, typer.Option(help="B,S,N,D of x.")]
DtypeOption = Annotated[Dtype | None, typer.Option(help="x's element type; default bf16, f16 on Ascend310P.")]
LayoutOption = Annotated[
    MemoryOrder, typer.Option(help="bnsd: heads before tokens in memory, passed as a view [B,S,N,D].")
]
InPlaceOption = Annotated[bool, typer.Option("--in-place", help="Write over x.")]
Launch = Callable[[Options], dict[str, Any]]  # runs the kernel once and returns the summary
MakeLaunch = Callable[..., Launch]  # a command's function; it takes the command's own options


def run_command(
    launch: Launch,
    soc: Annotated[
        str, typer.Option(help="ascend910b, ascend310p, ascend950, or a chip such as Ascend910B4.")
    ] = "ascend910b",
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Write the timeline here."),
    ] = None,
    format_: Annotated[
        TraceFormat,
        typer.Option(
            "--format",
            help="chrome: JSON, for Perfetto or chrome://tracing; html: a page that needs no other program.",
        ),
    ] = TraceFormat.CHROME,
    cores: Annotated[int, typer.Option(min=0, help="Number of cores in the trace; 0: all.")] = 4,
    core_limit: Annotated[
        int, typer.Option("--most-cores", min=0, help="Cores that the kernel may use; 0: all of the chip's.")
    ] = 0,
    profile_figures: Annotated[
        list[str] | None,
        typer.Option(
            "--figure",
            help="NAME=NUMBER: replaces a figure of the chip's profile, such as read_latency_cycles=241.",
        ),
    ] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw the timeline: .png, .svg or .pdf.")] = None,
    json_: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False,
) -> None:
    """Run a command's launch; show and write its results. All commands have the parameters after ``launch``
    as options."""
    require_writable("trace", output=output, plot=plot)
    if format_ is TraceFormat.HTML and output is None:
        raise usage_error("[trace] output must name a file for --format html but got nothing.")
    if plot is not None and (reason := timeline_plot.refusal(plot)):
        raise usage_error(f"[trace] plot {reason}")
    try:
        with tempfile.TemporaryDirectory() as folder:
            trace_file = Path(folder) / "trace.json"
            trace_path = None if output is None and plot is None else str(trace_file)
            options = Options(
                soc=soc,
                trace_path=trace_path,
                trace_cores=cores,
                one_order=True,
                figures=figures_of(profile_figures or ()),
                most_cores=core_limit,
            )
            summary = launch(options)
            is_page = output is not None and format_ is TraceFormat.HTML
            events = _events_of(trace_file) if is_page or plot is not None else []
            if output is not None and is_page:
                with replacing(output) as stream:
                    timeline_page.write(events, summary, summary["least_bytes"], stream)
            elif output is not None:
                with trace_file.open("rb") as source, replacing(output, "wb") as stream:
                    shutil.copyfileobj(source, stream)
            if plot is not None:
                with replacing(plot, "wb") as stream:
                    timeline_plot.draw(
                        events,
                        timeline_plot.title_of(summary),
                        summary["microseconds"],
                        stream,
                        plot.suffix[1:],
                    )
    except (ValueError, TypeError, BackendUnavailable) as error:
        raise usage_error(str(error)) from None
    except RuntimeError as error:
        if isinstance(error, InternalError) and error.argument == "call":  # the kernel did not run
            raise usage_error(str(error)) from None
        print(error, file=sys.stderr)
        raise typer.Exit(EXIT_RULE_BROKEN) from None
    if json_:
        print(json.dumps(summary, indent=1))
    else:
        console = Console(highlight=False)
        timeline.show(summary, summary["least_bytes"], console)
        for name, file in (("timeline", output), ("plot", plot)):
            if file is not None:
                console.print(f"{name} written to {escape(str(file))}", soft_wrap=True)


def command(name: str, help_text: str | None = None) -> Callable[[MakeLaunch], MakeLaunch]:
    """Return a decorator that registers a command.

    The decorated function takes the command's own options and returns its launch. The command also has the
    options of :func:`run_command`. The default of ``help_text`` is the function's docstring.
    """
    _, *shared_parameters = inspect.signature(run_command, eval_str=True).parameters.values()

    def register(make_launch: MakeLaunch) -> MakeLaunch:
        own_parameters = inspect.signature(make_launch, eval_str=True).parameters.values()

        def run(**option_values: Any) -> None:
            shared_values = {p.name: option_values.pop(p.name) for p in shared_parameters}
            run_command(make_launch(**option_values), **shared_values)

        run.__signature__ = inspect.Signature([*own_parameters, *shared_parameters])  # type: ignore[attr-defined]
        run.__annotations__ = {p.name: p.annotation for p in (*own_parameters, *shared_parameters)}
        app.command(name, help=help_text or inspect.getdoc(make_launch))(run)
        return make_launch

    return register


@command("rope")
def rope(
    shape: ShapeOption = "1,4096,32,128",
    dtype: DtypeOption = None,
    mode: Annotated[Mode, typer.Option(help="How elements form pairs.")] = Mode.NEOX,
    n_dims: Annotated[
        int | None, typer.Option(help="Rotated lanes (vision: half of them); default all.")
    ] = None,
    n_offs: Annotated[int, typer.Option(help="The first lane of the rotated window.")] = 0,
    sections: Annotated[
        str | None,
        typer.Option(help="Pairs of each axis in modes mrope, vision and imrope; default four equal parts."),
    ] = None,
    layout: LayoutOption = MemoryOrder.BSND,
    backward: Annotated[bool, typer.Option("--backward", help="Rotate by minus the angle.")] = False,
    freq_factors: Annotated[
        bool,
        typer.Option(
            "--freq-factors", help="Pass freq_factors, by which the device divides the frequencies."
        ),
    ] = False,
    in_place: InPlaceOption = False,
) -> Launch:
    """Run rope's kernel once and show the use of its cycles.

    The kernel and its tiling are the real ones; the time comes from a model.
    An instruction takes a fixed time for its issue and a time for each repeat or
    byte. The four pipes of a core overlap as far as the kernel's events allow.
    The cores share the bandwidth of global memory. The model has not been
    compared with hardware.

    Exit status: 0 success; 1 the kernel broke a rule of the simulator; 2 bad
    usage.

    Examples:

      npu-rope trace rope

      npu-rope trace rope --shape 1,1,32,128 --dtype f16 --mode normal

      npu-rope trace rope --mode mrope --sections 16,24,24,0

      npu-rope trace rope -o rope.json        (open it at ui.perfetto.dev)

      npu-rope trace rope --format html -o rope.html

      npu-rope trace rope --plot rope.png
    """
    sizes = parse_shape(shape)

    def launch(options: Options) -> dict[str, Any]:
        params = params_of(sizes[3], mode, n_dims, n_offs, sections)
        element_type = dtype or default_dtype(options)
        x, out = _x_and_out(sizes, element_type, layout, in_place)
        positions = np.arange(sizes[1], dtype=np.int32)
        if params.rope_mode.has_sections:
            positions = np.tile(positions, (4, 1))
        factors = np.linspace(1, 8, params.pairs, dtype=np.float32) if freq_factors else None
        tensors = rope_tensors(view_of(x, layout), positions, factors, None)
        attributes = RopeCallAttributes(params, not backward, "exact")
        rotations.launch_on_sim(options, tensors, (view_of(out, layout),), attributes)
        properties: dict[str, Any] = {
            "op": "rope",
            "shape": list(sizes),
            "dtype": element_type.value,
            "mode": params.rope_mode.name.lower(),
            "n_dims": params.n_dims,
            "n_offs": params.n_offs,
            "sections": list(params.sections),
            "layout": layout.value,
            "forward": not backward,
            "freq_factors": freq_factors,
            "in_place": in_place,
        }
        details = [] if params.n_dims == sizes[3] else [f"n_dims {params.n_dims} from {params.n_offs}"]
        details += [f"sections {properties['sections']}"] if any(params.sections) else []
        details += _common_details(properties) + (["freq_factors"] if freq_factors else [])
        call = call_text(properties, properties["mode"], details)
        least_bytes = 2 * x.nbytes + positions.nbytes + (0 if factors is None else factors.nbytes)
        return summary_of(call, least_bytes, properties)

    return launch


@command("rotary_mul")
def rotary_mul(
    shape: ShapeOption = "1,4096,32,128",
    dtype: DtypeOption = None,
    table_dtype: Annotated[
        TableDtype, typer.Option(help="dtype of cos and sin: x's own, or f32.")
    ] = TableDtype.OWN,
    width: Annotated[
        TableWidth, typer.Option(help="cos and sin have an entry for each pair, or each lane.")
    ] = TableWidth.LANE,
    rows: Annotated[
        int, typer.Option(min=0, help="Table rows, selected by position_ids; 0: each token has its own.")
    ] = 0,
    interleaved: Annotated[bool, typer.Option("--interleaved", help="Pairs of neighbours.")] = False,
    rotary_dim: Annotated[int, typer.Option(help="Rotated lanes; 0: D.")] = 0,
    offset: Annotated[int, typer.Option(help="The first lane of the rotated window.")] = 0,
    layout: LayoutOption = MemoryOrder.BSND,
    backward: Annotated[bool, typer.Option("--backward", help="Apply the transposed rotation.")] = False,
    in_place: InPlaceOption = False,
) -> Launch:
    """Run rotary_mul's kernel once and show the use of its cycles.

    With --rows the operator is rotary_embedding: the kernel gathers random rows
    of tables with that many rows.

    The time model is that of npu-rope trace rope.

    Exit status: 0 success; 1 the kernel broke a rule of the simulator; 2 bad
    usage.

    Examples:

      npu-rope trace rotary_mul

      npu-rope trace rotary_mul --width pair --interleaved --table-dtype f32

      npu-rope trace rotary_mul --rows 8192 --width pair --layout bnsd
    """
    sizes = parse_shape(shape)

    def launch(options: Options) -> dict[str, Any]:
        element_type = dtype or default_dtype(options)
        b, s, n, d = sizes
        x, out = _x_and_out(sizes, element_type, layout, in_place)
        table_type = Dtype.F32 if table_dtype is TableDtype.F32 else element_type
        lanes = rotary_dim or d
        entries_per_row = lanes if width is TableWidth.LANE else lanes // 2
        cos, sin = (rounded_to(random_values((rows or s, entries_per_row)), table_type) for _ in range(2))
        attributes = RotaryAttributes(interleaved, rotary_dim, offset, 0, not backward)
        table_bytes = 2 * cos.nbytes
        table_properties = {"table_dtype": table_type.value, "width": width.value}
        if rows:
            _check_rows(width, offset)
            ids = np.random.default_rng(0).integers(0, rows, (b, s))
            # ONNX's layouts: [B,N,S,D], or [B,S,N*D].
            is_flat = layout is MemoryOrder.BSND
            views = [v.reshape(*v.shape[:2], -1) if is_flat else v for v in (x, out)]
            tensors = rotary_embedding_tensors(views[0], cos, sin, ids, None)
            attributes = replace(attributes, num_heads=n if is_flat else 0)
            # position_ids are not counted, because the scalar unit reads them.
            table_bytes = 2 * b * s * cos[0].nbytes
        else:
            views = [view_of(v, layout) for v in (x, out)]
            tensors = rotary_mul_tensors(views[0], cos, sin, None)
        rotations.launch_on_sim(options, tensors, (views[1],), attributes)
        properties = {
            "op": "rotary_embedding" if rows else "rotary_mul",
            "shape": list(sizes),
            "dtype": element_type.value,
            **table_properties,
            "rows": rows,
            "interleaved": interleaved,
            "rotary_dim": lanes,
            "offset": offset,
            "layout": layout.value,
            "forward": not backward,
            "in_place": in_place,
        }
        details = [f"{table_type.value} tables, one entry per {width.value}"]
        details += [] if lanes == d else [f"rotary_dim {lanes} from {offset}"]
        details += [f"{rows} rows"] if rows else []
        call = call_text(
            properties, "interleaved" if interleaved else "half", details + _common_details(properties)
        )
        return summary_of(call, 2 * x.nbytes + table_bytes, properties)

    return launch


def parse_shape(text: str) -> tuple[int, int, int, int]:
    """Return B, S, N and D of --shape."""
    sizes = numbers(text)
    if len(sizes) != 4 or min(sizes) < 1:
        raise usage_error(f"[trace] shape must be four positive numbers B,S,N,D but got {text}.")
    b, s, n, d = sizes
    return b, s, n, d


def params_of(
    head_size: int, mode: Mode, n_dims: int | None, n_offs: int, sections: str | None
) -> RopeParams:
    """Return the parameters. The default n_dims is the head size. In mode vision it is half the head size,
    because the lanes of a pair are n_dims apart."""
    if n_dims is None:
        n_dims = head_size // 2 if mode is Mode.VISION else head_size
    if sections is None:
        if mode in (Mode.NEOX, Mode.NORMAL):
            return RopeParams(n_dims, mode.value, n_offs=n_offs)
        pairs = n_dims if mode is Mode.VISION else n_dims // 2
        # Four sections that differ by at most one pair.
        equal_sections = [(pairs + 3 - i) // 4 for i in range(4)]
        return RopeParams(n_dims, mode.value, n_offs=n_offs, sections=equal_sections)
    pairs_by_axis = numbers(sections)
    if len(pairs_by_axis) != 4:
        raise bad_value("trace", "sections", "be four integers such as 16,24,24,0", sections)
    return RopeParams(n_dims, mode.value, n_offs=n_offs, sections=pairs_by_axis)


def default_dtype(options: Options) -> Dtype:
    """Return bfloat16 if the chip has it, else float16."""
    profiles = simulated_package.load().simulator.profiles()
    # Architecture 200, of Ascend310P, has no bfloat16.
    chips_without_bfloat16 = {
        name.lower()
        for profile in profiles
        if profile["arch"] == 200
        for name in (profile["soc"], profile["name"])
    }
    return Dtype.F16 if str(options.soc).lower() in chips_without_bfloat16 else Dtype.BF16


def random_values(sizes: tuple[int, ...]) -> Any:
    """Return random float32 values of these sizes."""
    try:
        return np.random.default_rng(0).standard_normal(sizes, dtype=np.float32)
    except (ValueError, MemoryError):
        text = ",".join(str(size) for size in sizes)
        raise bad_value("trace", "shape", "fit into memory", text) from None


def rounded_to(values: Any, dtype: Dtype) -> Any:
    """Return the values rounded to the dtype; bfloat16 as its bits."""
    if dtype is Dtype.F32:
        return values
    return values.astype(np.float16) if dtype is Dtype.F16 else bfloat16_bits(values)


def view_of(array: Any, layout: MemoryOrder) -> Any:
    """Return the view ``[B,S,N,D]`` of an array whose memory has the layout."""
    return array.transpose(0, 2, 1, 3) if layout is MemoryOrder.BNSD else array


def _x_and_out(sizes: tuple[int, ...], dtype: Dtype, layout: MemoryOrder, in_place: bool) -> tuple[Any, Any]:
    b, s, n, d = sizes
    x = rounded_to(random_values((b, n, s, d) if layout is MemoryOrder.BNSD else sizes), dtype)
    return x, x if in_place else np.empty_like(x)


def summary_of(call: str, least_bytes: int, properties: dict[str, Any]) -> dict[str, Any]:
    """Summarize the last launch.

    Args:
        least_bytes: the number of bytes that every kernel for the call must move.
        properties: the call's properties, which the summary repeats.
    """
    summary: dict[str, Any] = simulated_package.load().simulator.report()["summary"]
    roofline = least_bytes / summary["gm_bytes_per_cycle"]
    return {
        "call": call,
        **properties,
        **summary,
        "least_bytes": least_bytes,
        "roofline_cycles": roofline,
        "roofline_share": roofline / summary["cycles"] if summary["cycles"] else 0.0,
        "note": timeline.NOT_HARDWARE,
    }


def _common_details(properties: dict[str, Any]) -> list[str]:
    """Describe the layout, direction and in_place where they differ from the defaults."""
    details = [] if properties["layout"] == "bsnd" else [properties["layout"]]
    details += [] if properties["forward"] else ["backward"]
    return details + (["in_place"] if properties["in_place"] else [])


def call_text(properties: dict[str, Any], kind: str, details: list[str]) -> str:
    """Describe a call in a line: operator, shape and dtype, then its other properties."""
    shape = ",".join(str(size) for size in properties["shape"])
    return ", ".join([f"{properties['op']} [{shape}] {properties['dtype']} {kind}", *details])


def _check_rows(width: TableWidth, offset: int) -> None:
    if width is not TableWidth.PAIR:
        raise bad_value("trace", "width", "be pair where rows are given", "lane")
    if offset:
        raise bad_value("trace", "offset", "be 0 where rows are given", offset)


def _events_of(trace_file: Path) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = json.loads(trace_file.read_text(encoding="utf-8"))["traceEvents"]
    return events
