"""``ascend-sim kernel``: run a kernel of a source file on the simulated cores."""

from __future__ import annotations

import importlib
import json
import math
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.markup import escape

from ascend_sim import timeline
from ascend_sim.cli.application import usage_error
from ascend_sim.cli.arguments import KernelArgument, arguments_of, macros_of, tiling_of
from ascend_sim.compiler import CompileFailed, compile_soc
from ascend_sim.errors import Unavailable, bad_value
from ascend_sim.files import replacing, unreadable, unwritable
from ascend_sim.kernels import In, InOut, KernelBroken, Out, Part, Report, Sum, compile
from ascend_sim.library import DEFAULT_SOC, Options, figures_of

FAILED = 1


def kernel(
    source: Annotated[Path, typer.Argument(help="The kernel's .cpp file.", show_default=False)],
    entry: Annotated[str, typer.Argument(help="Its __global__ function.", show_default=False)],
    arguments: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[ARGUMENT]...",
            help="The kernel's GM arguments in their order, before workspace and tiling.",
            show_default=False,
        ),
    ] = None,
    soc: Annotated[
        str, typer.Option(help="An SoC such as ascend910b, or a chip such as Ascend910B4.")
    ] = DEFAULT_SOC,
    block_dim: Annotated[int, typer.Option(min=1, help="Number of blocks, each on one core.")] = 1,
    tiling: Annotated[
        str, typer.Option(help="Fields such as uint32_t=8,float=1.5; or hexadecimal digits; or @FILE.")
    ] = "",
    tiling_key: Annotated[int, typer.Option(min=0, help="The value that TILING_KEY_IS compares with.")] = 0,
    workspace: Annotated[int, typer.Option(min=0, help="Bytes of the workspace.")] = 0,
    define: Annotated[list[str] | None, typer.Option("--define", "-D", help="A macro, NAME=VALUE.")] = None,
    include: Annotated[
        list[Path] | None, typer.Option("--include", "-I", help="A folder of headers.")
    ] = None,
    lenient: Annotated[str, typer.Option(help="Rules that only warn, such as SIM-COUNT-01; or all.")] = "",
    auto_sync: Annotated[
        bool, typer.Option("--auto-sync", help="Insert the synchronisation that CANN's compiler inserts.")
    ] = False,
    reference: Annotated[
        str, typer.Option(help="MODULE:FUNCTION that computes the expected outputs from the inputs.")
    ] = "",
    within: Annotated[float, typer.Option(min=0, help="Maximum difference from the reference.")] = 0.0,
    trace: Annotated[
        Path | None,
        typer.Option(help="Write the timeline, for ascend-sim trace, Perfetto or chrome://tracing."),
    ] = None,
    cores: Annotated[int, typer.Option(min=0, help="Number of cores in the timeline; 0: all.")] = 4,
    figure: Annotated[
        list[str] | None,
        typer.Option(
            help="NAME=NUMBER: replaces a figure of the chip's profile, such as read_latency_cycles=241."
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="The seed of the random numbers in new inputs.")] = 0,
    json_: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Compile a kernel file, run a kernel on simulated cores, check every rule.

    An argument is ROLE:FILE.npy, ROLE:DTYPE[SIZES], ROLE:DTYPE[SIZES]=FILE.npy or
    null. The role is in, out, part (an output of which the kernel leaves bytes
    unwritten), inout, or sum (sums of atomic copies, whose last bits depend on
    the order of the cores). New arrays hold random numbers, those with role out
    or part zeros; =FILE.npy writes the result.

    A launch on several cores runs twice: with the cores in ascending, then in
    descending order. Outputs and the timeline are written only if the kernel
    broke no rule.

    Exit status: 0; 1 the kernel does not compile, broke a rule, or differs from
    the reference; 2 bad usage, or a missing piece.

    Examples:

      ascend-sim kernel examples/add_custom.cpp add_custom 'in:float32[1003]' \\
      'in:float32[1003]' 'out:float32[1003]=z.npy' --block-dim 8 \\
      --tiling uint32_t=1003,uint32_t=128 --reference numpy:add

      ascend-sim kernel gelu.cpp gelu in:x.npy 'out:float16[64,512]' -D T=half
    """
    if must := unreadable(source):
        raise usage_error(f"[kernel] source {must}")
    if trace is not None and (must := unwritable(trace)):
        raise usage_error(f"[kernel] trace {must}")
    try:
        compare = _reference_of(reference)
        parsed = arguments_of(arguments or (), seed)
        tiling_bytes, macros = tiling_of(tiling), macros_of(define or ())
        compiled = compile(source, entry, soc=compile_soc(soc), defines=macros, include=include or ())
        inputs = [
            g.argument.array.copy() for g in parsed if g.argument and not isinstance(g.argument, Out | Part)
        ]
        with tempfile.TemporaryDirectory() as folder:
            draft = Path(folder) / "trace.json"
            options = Options(
                soc=soc,
                lenient=tuple(rule for rule in lenient.split(",") if rule),
                auto_sync=auto_sync,
                trace_path=None if trace is None else str(draft),
                trace_cores=cores,
                figures=figures_of(figure or ()),
            )
            report = compiled.run(
                *[g.argument for g in parsed],
                block_dim=block_dim,
                tiling=tiling_bytes,
                tiling_key=tiling_key,
                workspace_bytes=workspace,
                options=options,
            )
            if trace is not None:
                with draft.open("rb") as written, replacing(trace, "wb") as stream:
                    shutil.copyfileobj(written, stream)
        for argument in parsed:
            argument.write()
        difference = None if compare is None else _difference(compare(*inputs), parsed)
    except (ValueError, TypeError, Unavailable) as error:
        raise usage_error(str(error)) from None
    except (KernelBroken, CompileFailed) as error:
        print(error, file=sys.stderr)
        raise typer.Exit(FAILED) from None
    if json_:
        finite = difference if difference is None or math.isfinite(difference) else "infinite"
        print(json.dumps({**report.summary, "warnings": report.warnings, "difference": finite}, indent=1))
    else:
        _show(f"{source.name}: {entry}", report, parsed, trace)
    if difference is not None:
        verdict = "equal to" if difference == 0 else f"at most {difference:g} from"
        if not json_:
            print(f"{verdict} {reference}")
        if not difference <= within:
            print(
                f"[kernel] difference from {reference} must be at most {within:g} but got {difference:g}.",
                file=sys.stderr,
            )
            raise typer.Exit(FAILED)


def _reference_of(text: str) -> Callable[..., Any] | None:
    if not text:
        return None
    module, _, name = text.partition(":")
    sys.path.insert(0, os.getcwd())
    try:
        found: Callable[..., Any] = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise bad_value(f"reference must be MODULE:FUNCTION but got {text}: {error}.") from None
    return found


def _difference(expected: Any, arguments: list[KernelArgument]) -> float:
    """The largest absolute difference of an output from the reference; infinite if only one is NaN."""
    outputs = [g.argument.array for g in arguments if g.argument and g.argument.role]
    results = expected if isinstance(expected, tuple) else (expected,)
    if len(results) != len(outputs):
        raise bad_value(f"reference must return {len(outputs)} outputs but got {len(results)}.")
    largest = 0.0
    for result, output in zip(results, outputs, strict=True):
        a, b = np.asarray(result, np.float64), output.astype(np.float64)
        if a.shape != b.shape:
            raise bad_value(f"reference must return shape {list(b.shape)} but got {list(a.shape)}.")
        with np.errstate(invalid="ignore"):  # inf - inf
            differences = np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0.0, np.abs(a - b))
        largest = max(largest, float(np.where(np.isnan(differences), np.inf, differences).max(initial=0.0)))
    return largest


def _show(call: str, report: Report, arguments: list[KernelArgument], trace: Path | None) -> None:
    for warning in report.warnings:
        print(f"warning: {warning['text']}")
    moved = {In: 1, Out: 1, Part: 1, InOut: 2, Sum: 2}  # reads and writes
    minimum_bytes = sum(g.argument.array.nbytes * moved[type(g.argument)] for g in arguments if g.argument)
    timeline.show({**report.summary, "call": call}, minimum_bytes, Console(highlight=False))
    for argument in arguments:
        if argument.file is not None:
            print(f"{argument.text.partition('=')[0]} written to {argument.file}")
    if trace is not None:
        Console(highlight=False).print(f"timeline written to {escape(str(trace))}", soft_wrap=True)
