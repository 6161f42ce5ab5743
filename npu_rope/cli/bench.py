"""``npu-rope bench``: compare the times of npu_rope with a memory copy and with other libraries."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable
from dataclasses import replace
from enum import Enum
from pathlib import Path
from typing import IO, Annotated, Any, TextIO

import typer
from ascend_sim import timeline_plot
from ascend_sim.files import cause_of, replacing, stream_to
from ascend_sim.termination import termination_as_interrupt
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from npu_rope import backends, native, optional_torch
from npu_rope.bench import growth_plot, growth_rows, report
from npu_rope.bench import page as bench_page
from npu_rope.bench import plot as plotting
from npu_rope.bench.peers import is_wanted
from npu_rope.bench.rope_rows import DTYPES, MODES
from npu_rope.bench.run import PEERS, BenchOptions, Results, run
from npu_rope.bench.targets import Figures
from npu_rope.cli.usage import numbers, require_writable, usage_error
from npu_rope.errors import BackendUnavailable
from npu_rope.testing.ggml import ENVIRONMENT_VARIABLE, GgmlUnavailable, find_library_dir

MOST_PANELS = 100  # of a plot: a shape with a thread count has one
MOST_SECONDS = 3600  # per row
MOST_THREADS = 1024  # of a call; torch crashes with some larger numbers
# The parameters of a measurement.
_MEASURING = ("rows", "threads", "dtypes", "modes", "peers", "seconds", "ggml_lib", "isa", "quick")
_NOTHING_TO_DRAW = (
    "[bench] rows must include mode neox or normal, or measured rows of growth, for --plot but got neither."
)
WAITING = "waiting for other programs to use less of the processor"


class BenchFormat(str, Enum):
    """Output formats."""

    CONSOLE = "console"
    JSON = "json"
    CSV = "csv"
    HTML = "html"


def bench(
    ctx: typer.Context,
    quick: Annotated[
        bool, typer.Option("--quick", help="A tenth of a second per row, mode neox only: a first look.")
    ] = False,
    rows: Annotated[
        str | None, typer.Option(help="Only rows whose name matches, e.g. 'prefill.*bf16' or '^decode'.")
    ] = None,
    threads: Annotated[str, typer.Option(help="Thread counts, one process each.")] = "1,2",
    dtypes: Annotated[str, typer.Option(help="Some of f32,f16,bf16.")] = ",".join(DTYPES),
    modes: Annotated[
        str | None, typer.Option(help="Some of neox,normal; forms have modes of their own.")
    ] = None,
    peers: Annotated[
        str | None, typer.Option(help="Only peers whose name matches, e.g. 'ggml|onnx'; none: no peers.")
    ] = None,
    seconds: Annotated[
        float | None,
        typer.Option(help="Measuring time per row, above 0, default 1; --quick: 0.1."),
    ] = None,
    format_: Annotated[BenchFormat, typer.Option("--format", help="Output format.")] = BenchFormat.CONSOLE,
    output: Annotated[
        Path | None, typer.Option(help="Write the results here instead of standard output.")
    ] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw the ratios: .png, .svg or .pdf.")] = None,
    markdown: Annotated[
        Path | None,
        typer.Option(
            help="Put the tables between the marks of this file, as in docs/benchmarks.md. "
            "A new or empty file gets the marks, too."
        ),
    ] = None,
    earlier: Annotated[
        list[Path] | None,
        typer.Option(
            "--from",
            help="Show an earlier run's JSON instead of measuring. Give it twice to compare two runs.",
        ),
    ] = None,
    ggml_lib: Annotated[
        str | None, typer.Option(help="Folder with libggml-base and libggml-cpu, which must exist.")
    ] = None,
    isa: Annotated[
        str | None,
        typer.Option(help="Instruction set of npu_rope's kernels, e.g. avx2; default: the widest."),
    ] = None,
) -> None:
    """Measure operators against a copy of the same bytes and other libraries.

    The implementations in a row run alternately in small batches, so that a
    disturbance affects all of them. Each result is first compared with the
    float64 reference; a wrong one is reported and not timed. A peer that is
    not installed is shown with the command that installs it.

    Rows: prefill [1,2048,32,128], decode [1,1,32,128] and [32,1,32,128],
    and gqa: q and k (8 heads) of the first two, in modes neox and normal; forms:
    every mode and partly rotated heads, with NeoX on the same bytes; norm:
    rms_norm and add_rms_norm of [2048,4096], [32,4096] and [1,4096], with
    torch, transformers, ONNX Runtime and ggml; norm-rope: rms_norm_rope,
    with its parts and transformers' Qwen3; qkv: qkv_norm_rope_cache, with
    the chains of torch, transformers and ONNX Runtime; patched: a norm, decode
    steps and a prefill after apply_npu_rope, also with fused attention modules;
    gradient: rms_norm, rope and rotary_mul under autograd, for a decoded token
    and a batch in training.
    All in f32, f16, bf16, with 1 and 2 threads.
    Rows that are measured only if --rows names them: patched families,
    apply_npu_rope on 15 families of models, in f32 and bf16 (more than an hour);
    growth: 1 to 1,000,000 tokens, 1 to 256 heads, heads of 16 to 1024,
    beside a copy (half an hour), with a --plot of their own.
    The others need torch and take 10 to 30 minutes. Run them on an otherwise
    idle machine; a * marks disturbed rows. While other programs are busy, the
    command waits up to two minutes for each thread count (--quick: not at all).

    Exit status: 0 measured; 1 npu_rope gave a wrong result or failed, or a
    process ended early; 2 bad usage; 130 interrupted by Ctrl+C or
    SIGTERM, and then nothing is written. A missed target does not change
    it, because that depends on the machine.

    Examples:

      npu-rope bench --quick

      npu-rope bench --rows '^decode' --dtypes f32 --peers 'ggml|onnx' --threads 1

      npu-rope bench --format json --output run.json --plot run.png

      npu-rope bench --from run.json --format html --output run.html

      npu-rope bench --from run.json --markdown docs/benchmarks.md

      npu-rope bench --from run.json --from again.json

      npu-rope bench --rows '^growth' --peers none --plot growth.svg

      npu-rope bench --rows '^prefill' --peers none --isa avx2
    """
    read = [("from", path) for path in earlier or ()]
    require_writable("bench", read, output=output, plot=plot, markdown=markdown)
    if plot is not None and (reason := timeline_plot.refusal(plot.with_suffix(plot.suffix.lower()))):
        raise usage_error(f"[bench] plot {reason}")
    page = "" if markdown is None else _page(markdown)
    if earlier:
        for name in _MEASURING:
            source = ctx.get_parameter_source(name)
            if source is not None and source.name == "COMMANDLINE":
                given = f"{name.replace('_', '-')} must come without --from but got {ctx.params[name]}"
                raise usage_error(f"[bench] {given}.")
        runs = _read_all(earlier)
        if len(runs) > 1 and (format_ is not BenchFormat.CONSOLE or plot is not None):
            given = "plot" if format_ is BenchFormat.CONSOLE else f"format {format_.value}"
            raise usage_error(f"[bench] from must be one run for {given} but got {len(runs)} of them.")
        if plot is not None:
            _drawing(runs[0])  # refuse before anything is written
        _require_marks(markdown, page, (f["group"] for run in runs for f in run.figures))
    else:
        options = _options(quick, rows, threads, dtypes, modes, peers, seconds, ggml_lib, isa)
        if plot is not None:
            _require_panels(options)
        chosen = (row for count in options.threads for row in options.chosen_rows(count))
        _require_marks(markdown, page, (row.group for row in chosen))
        with termination_as_interrupt():
            runs = [_measure(options)]
    results = runs[0]
    writer = {
        BenchFormat.JSON: report.write_json,
        BenchFormat.CSV: report.write_csv,
        BenchFormat.HTML: bench_page.write_page,
    }

    def write(stream: TextIO) -> None:
        if format_ in writer:
            writer[format_](results, stream)
        else:
            report.write_console(runs, stream)

    try:
        with stream_to(output) as stream:
            write(stream)
    except OSError:
        if output is not None and not earlier:
            write(sys.stdout)  # the measurements are not lost with the file
        raise
    if output is not None:
        print(f"report written to {output}", file=sys.stderr)
    if markdown is not None:
        with replacing(markdown) as stream:
            stream.write(report.into_page(runs, page))
    if plot is not None:
        draw = _drawing(results)
        with replacing(plot, "wb") as stream:
            draw(results, stream, plot.suffix[1:].lower())
    bad = any(f["kind"] == "ours" and f["status"] in ("wrong", "failed") for run in runs for f in run.figures)
    raise typer.Exit(1 if bad or any(run.problems for run in runs) else 0)


def _require_panels(options: BenchOptions) -> None:
    """Raise a usage error if _drawing() refuses the rows, all of which are measured."""
    rows = [row for count in options.threads for row in options.chosen_rows(count)]
    kinds = [[row for row in rows if row.mode == mode] for mode in MODES]
    kinds.append([row for row in rows if row.group == growth_rows.GROUP])
    drawn = next(filter(None, kinds), [])
    _require_drawable([{"group": r.group, "shape": r.shape, "threads": r.threads} for r in drawn])


def _require_drawable(figures: Figures) -> None:
    """Raise a usage error if a plot has no panel or too many."""
    panels = len({(figure["group"], figure["shape"], figure["threads"]) for figure in figures})
    if panels == 0:
        raise usage_error(_NOTHING_TO_DRAW)
    if panels > MOST_PANELS:
        raise usage_error(f"[bench] rows must have at most {MOST_PANELS} panels but got {panels}.")


def _drawing(results: Results) -> Callable[[Results, IO[bytes], str], None]:
    """Return the function that draws the results."""
    draw, shown = plotting.draw, plotting.drawn_figures(results)
    if not shown:
        draw, shown = growth_plot.draw, growth_plot.drawn_figures(results)
    _require_drawable(shown)
    return draw


def _read_all(paths: list[Path]) -> list[Results]:
    runs = [_read(path) for path in paths]
    try:
        report.require_alike(runs)
    except ValueError as error:
        names = ", ".join(map(str, paths))
        raise usage_error(
            f"[bench] from must be runs of the same rows on one machine but got {names}: {error}."
        ) from None
    return runs


def _read(path: Path) -> Results:
    try:
        return report.read_json(path)
    except (OSError, ValueError) as error:
        cause = cause_of(error).rstrip(".")
        raise usage_error(f"[bench] from must be a file of --format json but got {path}: {cause}.") from None


def _page(path: Path) -> str:
    """Return the present text of the Markdown file."""
    try:
        return path.read_text(encoding="utf-8") if path.is_file() else ""
    except (OSError, ValueError) as error:
        raise usage_error(
            f"[bench] markdown must be a text file but got {path}: {cause_of(error)}."
        ) from None


def _require_marks(path: Path | None, page: str, groups: Iterable[str]) -> None:
    """Raise a usage error if the page has no marks for a group of rows."""
    if rule := report.missing_marks(page, groups):
        raise usage_error(f"[bench] markdown must be a new file or {rule} but got {path}.")


def _some_of(name: str, text: str, known: tuple[str, ...]) -> tuple[str, ...]:
    chosen = tuple(word.strip() for word in text.split(",") if word.strip())
    if not chosen or any(word not in known for word in chosen):
        raise usage_error(f"[bench] {name} must be some of {','.join(known)} but got {text or 'nothing'}.")
    return chosen


def _pattern(name: str, text: str | None) -> str | None:
    try:
        re.compile(text or "")
    except re.error as error:
        raise usage_error(f"[bench] {name} must be a regular expression but got {text}: {error}.") from None
    return text


def _threads(text: str) -> tuple[int, ...]:
    counts = numbers(text)
    if not counts or min(counts) < 1 or max(counts) > MOST_THREADS:
        raise usage_error(
            f"[bench] threads must be numbers of 1 to {MOST_THREADS} like 1,2 but got {text or 'nothing'}."
        )
    return counts


def _isa(name: str | None) -> str | None:
    if name is None:
        return None
    try:
        library = native.load()
    except BackendUnavailable as error:
        raise usage_error(str(error)) from None
    widest = library.isa()
    try:
        library.force_isa(name)
    except ValueError:
        raise usage_error(
            f"[bench] isa must be an instruction set that this machine runs, such as {widest},"
            f" but got {name}."
        ) from None
    library.force_isa(None)
    return name


def _options(
    quick: bool,
    rows: str | None,
    threads: str,
    dtypes: str,
    modes: str | None,
    peers: str | None,
    seconds: float | None,
    ggml_lib: str | None,
    isa: str | None,
) -> BenchOptions:
    if (backend := os.environ.get(backends.ENVIRONMENT_VARIABLE)) not in (None, "", "cpu"):
        raise usage_error(f"[bench] {backends.ENVIRONMENT_VARIABLE} must be cpu or unset but got {backend}.")
    if optional_torch.torch is None:
        raise usage_error(
            f"[bench] torch must be importable but {optional_torch.cause}.\n{optional_torch.remedy}"
        )
    if ggml_lib is not None or os.environ.get(ENVIRONMENT_VARIABLE):
        try:
            find_library_dir(ggml_lib)
        except GgmlUnavailable as error:
            raise usage_error(str(error)) from None
    options = BenchOptions(
        rows=_pattern("rows", rows),
        threads=_threads(threads),
        dtypes=_some_of("dtypes", dtypes, tuple(DTYPES)),
        modes=_some_of("modes", modes or ("neox" if quick else ",".join(MODES)), MODES),
        peers=_pattern("peers", peers),
        ggml_lib=ggml_lib,
        isa=_isa(isa),
    )
    if quick:
        options = replace(options, seconds=0.1, min_rounds=5, attempts=1, quiet_seconds=0.0)
    if seconds is not None:
        if not 0 < seconds <= MOST_SECONDS:
            raise usage_error(
                f"[bench] seconds must be above 0 and at most {MOST_SECONDS} but got {seconds:g}."
            )
        options = replace(options, seconds=seconds)
    if peers not in (None, "none") and not any(is_wanted(name, peers) for name in PEERS):
        raise usage_error(f"[bench] peers must match a peer's name, or be none, but got {peers}.")
    if not any(options.chosen_rows(count) for count in options.threads):
        raise usage_error(f"[bench] rows must match a row's name but got {rows}.")
    return options


def _measure(options: BenchOptions) -> Results:
    total = sum(len(options.chosen_rows(count)) for count in options.threads)
    errors = Console(stderr=True, highlight=False)
    with Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=errors,
        disable=not errors.is_terminal,
        transient=True,
        refresh_per_second=1,  # drawing disturbs the measurement
    ) as progress:
        task = progress.add_task("starting", total=total)
        has_waited = False

        def on_event(event: dict[str, Any]) -> None:
            nonlocal has_waited
            if event["event"] == "start":
                progress.update(task, description=event["row"])
            elif event["event"] == "wait":
                progress.update(task, description=f"{event['row']}: {WAITING}")
                if not errors.is_terminal and not has_waited:
                    text = f"{WAITING}, at most {options.quiet_seconds:.0f} s for each thread count"
                    errors.print(text, soft_wrap=True)
                has_waited = True
            else:
                progress.advance(task)

        return run(options, on_event)
