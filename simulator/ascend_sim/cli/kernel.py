"""``ascend-sim kernel``: run a kernel of a source file on the simulated cores."""

from __future__ import annotations

import importlib
import json
import math
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.markup import escape

from ascend_sim import timeline
from ascend_sim.cli.application import usage_error
from ascend_sim.cli.arguments import KernelArgument, arguments_of, macros_of, tiling_of
from ascend_sim.cli.operator_arguments import call_of
from ascend_sim.compiler import CompileFailed, compile_soc
from ascend_sim.errors import Unavailable, bad_value
from ascend_sim.files import replacing, unreadable, unwritable
from ascend_sim.kernels import In, InOut, KernelBroken, Out, Part, Report, Sum, compile
from ascend_sim.library import DEFAULT_SOC, Options, figures_of
from ascend_sim.operator_host import HostCodeFailed
from ascend_sim.operator_sources import OperatorSources, Tiling
from ascend_sim.package import Refused

FAILED = 1


def kernel(
    source: Annotated[Path, typer.Argument(help="The kernel's .cpp file.", show_default=False)],
    entry: Annotated[
        str,
        typer.Argument(help="Its __global__ function; by default that of --definition.", show_default=False),
    ] = "",
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
    definition: Annotated[
        Path | None, typer.Option(help="The file with the operator's definition (OP_ADD).")
    ] = None,
    operator: Annotated[str, typer.Option(help="The operator, if the definition has several.")] = "",
    input_: Annotated[
        list[str] | None,
        typer.Option("--input", help="NAME=FILE.npy or NAME=DTYPE:SIZES, an input of the definition."),
    ] = None,
    output: Annotated[
        list[str] | None,
        typer.Option(help="NAME=DTYPE:SIZES, NAME=DTYPE:SIZES=FILE.npy or NAME=FILE.npy, an output."),
    ] = None,
    attr: Annotated[
        list[str] | None, typer.Option(help="NAME=VALUE, an attribute of the definition.")
    ] = None,
    block_dim: Annotated[int, typer.Option(min=1, help="Number of blocks, each on one core.")] = 1,
    tiling: Annotated[
        list[str] | None,
        typer.Option(
            help="Fields such as uint32_t=8,float=1.5; or hexadecimal digits; or @FILE. With --definition "
            "also a source file of the operator's tiling."
        ),
    ] = None,
    tiling_key: Annotated[int, typer.Option(min=0, help="The value that TILING_KEY_IS compares with.")] = 0,
    workspace: Annotated[int, typer.Option(min=0, help="Bytes of the workspace.")] = 0,
    define: Annotated[list[str] | None, typer.Option("--define", "-D", help="A macro, NAME=VALUE.")] = None,
    include: Annotated[
        list[Path] | None,
        typer.Option("--include", "-I", help="A folder of headers; with --definition for its host code."),
    ] = None,
    lenient: Annotated[str, typer.Option(help="Rules that only warn, such as SIM-COUNT-01; or all.")] = "",
    auto_sync: Annotated[
        bool | None,
        typer.Option(
            "--auto-sync/--no-auto-sync",
            help="Insert the synchronisation that CANN's compiler inserts; the default with --definition.",
            show_default=False,
        ),
    ] = None,
    figure: Annotated[
        list[str] | None,
        typer.Option("--figure", help="A figure of the timeline that replaces the chip's, NAME=VALUE."),
    ] = None,
    reference: Annotated[
        str, typer.Option(help="MODULE:FUNCTION that computes the expected outputs from the inputs.")
    ] = "",
    within: Annotated[float, typer.Option(min=0, help="Maximum difference from the reference.")] = 0.0,
    trace: Annotated[
        Path | None,
        typer.Option(help="Write the timeline, for ascend-sim trace, Perfetto or chrome://tracing."),
    ] = None,
    cores: Annotated[int, typer.Option(min=0, help="Number of cores in the timeline; 0: all.")] = 4,
    seed: Annotated[int, typer.Option(min=0, help="The seed of the random numbers in new inputs.")] = 0,
    json_: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Compile a kernel file, run one kernel on the simulated cores, check every rule.

    An argument is ROLE:FILE.npy, ROLE:DTYPE[SIZES], ROLE:DTYPE[SIZES]=FILE.npy or
    null. The role is in, out, inout, part (an output of which the kernel writes a
    part), or sum (sums of atomic copies, whose last bits depend on the order of the
    cores). New arrays hold random numbers, those with role out or part zeros;
    =FILE.npy writes the result. The reference gets the inputs in their order.

    With --definition the kernel is that of an operator, called by its definition:
    --input, --output and --attr have its names, and its own tiling, from the sources
    that --tiling and the definition name, gives blocks, key, tiling data and
    workspace. Fields in --tiling replace it. The reference gets inputs and attributes
    by name, and returns a dict: an array for each output, or an array and the largest
    permitted differences.

    A launch on several cores runs twice: with the cores in ascending, then in
    descending order. Outputs and the timeline are written only if the kernel broke
    no rule.

    Exit status: 0; 1 the kernel does not compile, broke a rule, or differs from
    the reference, or the tiling refuses the call; 2 bad usage, or a missing piece.

    Examples:

      ascend-sim kernel examples/add_custom.cpp add_custom 'in:float32[1003]'
      'in:float32[1003]' 'out:float32[1003]=z.npy' --block-dim 8
      --tiling uint32_t=1003,uint32_t=128 --reference numpy:add

      ascend-sim kernel gelu.cpp gelu in:x.npy 'out:float16[64,512]' -D DTYPE_X=half

      ascend-sim kernel examples/scaled_add/op_kernel/scaled_add.cpp
      --definition examples/scaled_add/op_host/scaled_add_def.cpp
      --tiling examples/scaled_add/op_host/scaled_add_tiling.cpp
      --input x=float16:8,100 --input y=float16:8,100 --attr scale=0.5
      --output z=float16:8,100
    """
    if must := unreadable(source):
        raise usage_error(f"[kernel] source {must}")
    if trace is not None and (must := unwritable(trace)):
        raise usage_error(f"[kernel] trace {must}")
    try:
        compare = _reference_of(reference)
        with tempfile.TemporaryDirectory() as folder:
            draft = Path(folder) / "trace.json"
            options = Options(
                soc=soc,
                lenient=tuple(rule for rule in lenient.split(",") if rule),
                auto_sync=bool(auto_sync),
                trace_path=None if trace is None else str(draft),
                trace_cores=cores,
                figures=figures_of(figure or ()),
            )
            if definition is not None:
                if arguments or define:
                    raise bad_value("arguments and macros must be those of --definition but got others.")
                outcome = _run_operator(
                    OperatorFiles(
                        source, entry, definition, operator, tuple(tiling or ()), tuple(include or ())
                    ),
                    (input_ or (), output or (), attr or (), seed),
                    Tiling(b"", tiling_key, block_dim, workspace),
                    replace(options, auto_sync=auto_sync is not False),
                    compare,
                )
            else:
                if not entry or input_ or output or attr or operator:
                    raise bad_value(
                        "definition must be given with names of tensors, or entry, but got neither."
                    )
                parsed = arguments_of(arguments or (), seed)
                compiled = compile(
                    source,
                    entry,
                    soc=compile_soc(soc),
                    defines=macros_of(define or ()),
                    include=include or (),
                )
                inputs = [
                    g.argument.array.copy()
                    for g in parsed
                    if g.argument and not isinstance(g.argument, Out | Part)
                ]
                report = compiled.run(
                    *[g.argument for g in parsed],
                    block_dim=block_dim,
                    tiling=_struct_of(tiling or ()),
                    tiling_key=tiling_key,
                    workspace_bytes=workspace,
                    options=options,
                )
                expected = None if compare is None else _in_order(compare(*inputs), parsed)
                outcome = _Outcome(f"{source.name}: {entry}", report, parsed, expected)
            if trace is not None:
                with draft.open("rb") as written, replacing(trace, "wb") as stream:
                    shutil.copyfileobj(written, stream)
        for argument in outcome.arguments:
            argument.write()
        difference, is_within = _difference(outcome, within)
    except (Refused, HostCodeFailed, KernelBroken, CompileFailed) as error:
        print(error, file=sys.stderr)
        raise typer.Exit(FAILED) from None
    except (ValueError, TypeError, Unavailable) as error:
        raise usage_error(str(error)) from None
    if json_:
        finite = difference if difference is None or math.isfinite(difference) else "infinite"
        more = {"warnings": outcome.report.warnings, "difference": finite, **outcome.more}
        print(json.dumps({**outcome.report.summary, **more}, indent=1))
    else:
        _show(outcome, trace)
    if difference is not None:
        verdict = "equal to" if difference == 0 else f"at most {difference:g} from"
        if not json_:
            print(f"{verdict} {reference}")
        if not is_within:
            most = f"at most {within:g}" if within or not outcome.has_tolerances else "within its tolerances"
            print(
                f"[kernel] difference from {reference} must be {most} but got {difference:g}.",
                file=sys.stderr,
            )
            raise typer.Exit(FAILED)


@dataclass
class _Outcome:
    """A run that kept every rule.

    ``expected`` has the reference's array and tolerance for each written array; None without a reference.
    """

    call: str
    report: Report
    arguments: list[KernelArgument]
    expected: list[tuple[Any, Any]] | None
    more: dict[str, Any] = field(default_factory=dict)
    has_tolerances: bool = False


@dataclass(frozen=True)
class OperatorFiles:
    """The files of ``--definition``."""

    source: Path
    entry: str
    definition: Path
    operator: str
    tiling: tuple[str, ...]
    include: tuple[Path, ...]

    def tiling_files(self) -> list[str]:
        """The values of ``--tiling`` that are source files; the others are fields."""
        return [text for text in self.tiling if Path(text).suffix in (".cpp", ".cc", ".cxx")]


def _run_operator(
    files: OperatorFiles,
    texts: tuple[Sequence[str], Sequence[str], Sequence[str], int],
    given: Tiling,
    options: Options,
    compare: Callable[..., Any] | None,
) -> _Outcome:
    sources = OperatorSources(
        files.source,
        definition=files.definition,
        tiling=files.tiling_files(),
        include=files.include,
        soc=options.soc or DEFAULT_SOC,
        operator=files.operator or None,
        entry=files.entry or None,
        auto_sync=False,
    )
    call = call_of(sources.definition, *texts)
    fields = [text for text in files.tiling if text not in files.tiling_files()]
    tiling = replace(given, data=_struct_of(fields)) if fields else None
    inputs = {name: np.copy(array) for name, array in call.inputs.items()}
    report = sources.run(
        call.inputs, call.outputs, attributes=call.attributes, options=options, tiling=tiling
    )
    used = report.tiling
    more = {"tiling_key": used.key, "block_dim": used.block_dim, "workspace_bytes": used.workspace_bytes}
    outcome = _Outcome(sources.definition.name, report, call.arguments, None, more)
    if compare is not None:
        found = compare(**inputs, **call.attributes)
        results = call.results()
        if not isinstance(found, dict) or set(found) != set(results):
            got = ", ".join(found) if isinstance(found, dict) else type(found).__name__
            raise bad_value(f"reference must return a dict of {', '.join(results)} but got {got}.")
        outcome.has_tolerances = any(isinstance(value, tuple) for value in found.values())
        outcome.expected = [
            found[name] if isinstance(found[name], tuple) else (found[name], None) for name in results
        ]
    return outcome


def _struct_of(texts: Sequence[str]) -> bytes:
    if len(texts) > 1:
        raise bad_value(f"tiling must be given once but got {texts[0]} and {texts[1]}.")
    return tiling_of(texts[0]) if texts else b""


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


def _in_order(expected: Any, arguments: list[KernelArgument]) -> list[tuple[Any, Any]]:
    """The results of a reference, one for each written argument."""
    count = sum(1 for g in arguments if g.argument and g.argument.role)
    results = expected if isinstance(expected, tuple) else (expected,)
    if len(results) != count:
        raise bad_value(f"reference must return {count} outputs but got {len(results)}.")
    return [(result, None) for result in results]


def _difference(outcome: _Outcome, within: float) -> tuple[float | None, bool]:
    """The largest absolute difference of an output from the reference, infinite if only one is NaN; and
    whether each difference is within its tolerance, or within ``within``."""
    if outcome.expected is None:
        return None, True
    outputs = [g.argument.array for g in outcome.arguments if g.argument and g.argument.role]
    largest, is_within = 0.0, True
    for (result, tolerance), output in zip(outcome.expected, outputs, strict=True):
        a, b = np.asarray(result, np.float64), output.astype(np.float64)
        if a.shape != b.shape:
            raise bad_value(f"reference must return shape {list(b.shape)} but got {list(a.shape)}.")
        with np.errstate(invalid="ignore"):  # inf - inf
            differences = np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0.0, np.abs(a - b))
        differences = np.where(np.isnan(differences), np.inf, differences)
        largest = max(largest, float(differences.max(initial=0.0)))
        limit = within if tolerance is None else np.maximum(np.asarray(tolerance, np.float64), within)
        is_within = is_within and bool((differences <= limit).all())
    return largest, is_within


def _show(outcome: _Outcome, trace: Path | None) -> None:
    for warning in outcome.report.warnings:
        print(f"warning: {warning['text']}")
    moved = {In: 1, Out: 1, Part: 1, InOut: 2, Sum: 2}  # reads and writes
    given = [g.argument for g in outcome.arguments if g.argument]
    minimum_bytes = sum(argument.array.nbytes * moved[type(argument)] for argument in given)
    timeline.show({**outcome.report.summary, "call": outcome.call}, minimum_bytes, Console(highlight=False))
    for name, value in outcome.more.items():
        print(f"{name.replace('_', ' ')} {value}")
    for written in outcome.arguments:
        if written.file is not None:
            print(f"{written.text.partition('=')[0]} written to {written.file}")
    if trace is not None:
        Console(highlight=False).print(f"timeline written to {escape(str(trace))}", soft_wrap=True)
