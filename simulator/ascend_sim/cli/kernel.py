"""``ascend-sim kernel``: run a kernel of a source file on the simulated cores."""

from __future__ import annotations

import importlib
import json
import os
import shutil
import sys
import tempfile
import traceback
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import IO, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from ascend_sim.cli.application import usage_error
from ascend_sim.cli.arguments import KernelArgument, arguments_of, headers_of, macros_of, struct_of
from ascend_sim.cli.operator_call import CallTexts, OperatorFiles, run_operator
from ascend_sim.cli.outcome import Outcome
from ascend_sim.compiler import CompileFailed, compile_soc
from ascend_sim.errors import Unavailable, bad_value
from ascend_sim.files import shared, unreadable, unwritable, write_together
from ascend_sim.kernels import ArrayArgument, Kernel, KernelBroken, Out, Part, compile
from ascend_sim.library import DEFAULT_SOC, Options, figures_of
from ascend_sim.operator_host import HostCodeFailed
from ascend_sim.operator_sources import Tiling
from ascend_sim.package import Refused
from ascend_sim.termination import termination_as_interrupt

FAILED = 1
TRACED_CORES = 4
_PANEL = "An operator by its definition"


def kernel(
    source: Annotated[Path, typer.Argument(help="The kernel's .cpp file.", show_default=False)],
    entry: Annotated[
        str,
        typer.Argument(help="The __global__ function; by default that of --definition.", show_default=False),
    ] = "",
    arguments: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[ARGUMENT]...",
            help="The kernel's arguments in their order, before workspace and tiling: ROLE:FILE.npy, "
            "ROLE:DTYPE[SIZES], value:NUMBER or null.",
            show_default=False,
        ),
    ] = None,
    soc: Annotated[
        str, typer.Option(help="An SoC such as ascend910b, or a chip such as Ascend910B4.")
    ] = DEFAULT_SOC,
    definition: Annotated[
        Path | None,
        typer.Option(help="The file with the operator's definition (OP_ADD).", rich_help_panel=_PANEL),
    ] = None,
    operator: Annotated[
        str, typer.Option(help="The operator, if the definition has several.", rich_help_panel=_PANEL)
    ] = "",
    input_: Annotated[
        list[str] | None,
        typer.Option(
            "--input",
            help="NAME=FILE.npy or NAME=DTYPE:SIZES, an input of the definition.",
            rich_help_panel=_PANEL,
        ),
    ] = None,
    output: Annotated[
        list[str] | None,
        typer.Option(
            help="NAME=DTYPE:SIZES, NAME=DTYPE:SIZES=FILE.npy or NAME=FILE.npy, an output.",
            rich_help_panel=_PANEL,
        ),
    ] = None,
    attr: Annotated[
        list[str] | None,
        typer.Option(help="NAME=VALUE, an attribute of the definition.", rich_help_panel=_PANEL),
    ] = None,
    sum_: Annotated[
        list[str] | None,
        typer.Option(
            "--sum",
            help="An output that atomic copies add to. Its last bits depend on the order of the cores.",
            rich_help_panel=_PANEL,
        ),
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
        typer.Option(
            "--include", "-I", help="A folder of headers; with --definition, for the operator's host code."
        ),
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
    generated_aclnn: Annotated[
        bool,
        typer.Option(
            help="With --definition: CANN generates the operator's aclnn function (ACLNNTYPE aclnn). An "
            "absent optional input then keeps its index in the tiling."
        ),
    ] = False,
    figure: Annotated[
        list[str] | None,
        typer.Option(
            "--figure",
            help="NAME=NUMBER: replaces a figure of the chip's profile, such as read_latency_cycles=241.",
        ),
    ] = None,
    reference: Annotated[
        str, typer.Option(help="MODULE:FUNCTION that computes the expected outputs from the inputs.")
    ] = "",
    within: Annotated[float, typer.Option(min=0, help="Maximum difference from the reference.")] = 0.0,
    trace: Annotated[
        Path | None,
        typer.Option(help="Write the timeline, for ascend-sim trace, Perfetto or chrome://tracing."),
    ] = None,
    cores: Annotated[
        int | None, typer.Option(min=0, help="Number of cores in the timeline; 0: all; default 4.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="The seed of the random numbers in new inputs.")] = 0,
    json_: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Compile a kernel file, run a kernel on simulated cores, check every rule.

    An argument is ROLE:FILE.npy, ROLE:DTYPE[SIZES], ROLE:DTYPE[SIZES]=FILE.npy or
    null. The role is in, out, part (an output that the kernel may leave partly
    unwritten), inout, or sum (sums of atomic copies, whose last bits depend on
    the order of the cores). New arrays hold random numbers; with role out or part
    they hold zeros. =FILE.npy writes the result. The reference gets the inputs in
    their order.

    With --definition the kernel is that of an operator. The definition determines
    the types. The files of --tiling determine the blocks, the key, the tiling
    data and the workspace. --input, --output and --attr use the names of the
    definition. A tensor is NAME=FILE.npy or NAME=DTYPE:SIZES; =FILE.npy after an
    output writes it. Leave out optional inputs; repeat --input for a list of
    tensors. The reference gets inputs and attributes by name. It returns a dict
    with an entry for each output: an array, or a pair of an array and the largest
    permitted differences.

    A launch on several cores runs twice: with the cores in ascending, then in
    descending order. Outputs and the timeline are written only if the kernel
    broke no rule.

    Exit status: 0 success; 1 the kernel does not compile, broke a rule, or
    differs from the reference, or the tiling refuses the call; 2 bad usage, or a
    missing piece. A kernel that faults, for example by a division by zero, ends
    the command by a signal, after a message.

    Examples:

      ascend-sim kernel examples/add_custom.cpp add_custom 'in:float32[1003]' \\
      'in:float32[1003]' 'out:float32[1003]=z.npy' --block-dim 8 \\
      --tiling uint32_t=1003,uint32_t=128 --reference numpy:add

      ascend-sim kernel gelu.cpp gelu in:x.npy 'out:float16[64,512]' -D TYPE=half

      ascend-sim kernel op_kernel/scaled_add.cpp \\
      --reference reference:scaled_add \\
      --definition op_host/scaled_add_def.cpp \\
      --tiling op_host/scaled_add_tiling.cpp --input x=float16:8,100 \\
      --input y=float16:8,100 --attr scale=0.5 --output z=float16:8,100=z.npy
    """
    if fault := unreadable(source):
        raise usage_error(f"[sim] source {fault}")
    if trace is not None and (fault := unwritable(trace)):
        raise usage_error(f"[sim] trace {fault}")
    sources = [("source", source), *([("definition", definition)] if definition else [])]
    sources += [("tiling", Path(text.removeprefix("@"))) for text in tiling or ()]
    if fault := shared(sources, trace=trace):
        raise usage_error(f"[sim] {fault}")
    if cores is not None and trace is None:
        raise usage_error(f"[sim] cores must be those of a timeline (--trace) but got {cores} without one.")
    try:
        headers = headers_of(include)
        reference_function = _reference_of(reference)
        if of_reference := getattr(sys.modules.get(reference.partition(":")[0]), "__file__", None):
            sources.append(("reference", Path(of_reference)))
        tiling_values = Tiling(b"", tiling_key, block_dim, workspace)
        # A signal that ends a kernel's endless loop would leave the folder.
        with nullcontext("") if trace is None else tempfile.TemporaryDirectory() as folder:
            unfinished_trace = Path(folder) / "trace.json"
            options = Options(
                soc=soc,
                lenient=tuple(rule for rule in lenient.split(",") if rule),
                # As in CANN: on for an operator's kernel, off for a kernel without a definition.
                auto_sync=definition is not None if auto_sync is None else auto_sync,
                trace_path=None if trace is None else str(unfinished_trace),
                trace_cores=TRACED_CORES if cores is None else cores,
                figures=figures_of(figure or ()),
            )
            if within > 0 and reference_function is None:
                raise bad_value(f"within must have a reference but got only {within:g}.")
            if definition is not None:
                replaced = [*([entry] if ":" in entry else ()), *(arguments or ()), *(define or ())]
                if replaced:
                    raise bad_value(
                        f"definition must replace arguments and macros but got {replaced[0]}: name tensors "
                        "with --input and --output."
                    )
                files = OperatorFiles(
                    source, entry, definition, operator, tiling or (), headers, generated_aclnn
                )
                call = CallTexts(input_ or (), output or (), attr or (), sum_ or (), seed)
                outcome = run_operator(files, call, tiling_values, options, reference_function)
            else:
                operator_texts = (*(input_ or ()), *(output or ()), *(attr or ()), *(sum_ or ()), operator)
                if name := next(filter(None, operator_texts), ""):
                    raise bad_value(f"definition must be given for names of tensors but got only {name}.")
                if generated_aclnn:
                    raise bad_value("definition must be given for generated_aclnn but got none.")
                if not entry:
                    raise bad_value("entry must name the __global__ function but got nothing.")
                with termination_as_interrupt():
                    compiled = compile(
                        source,
                        entry,
                        soc=compile_soc(soc),
                        defines=macros_of(define or ()),
                        include=headers,
                    )
                tiling_values = replace(tiling_values, data=struct_of(tiling or ()))
                kernel_arguments = arguments_of(arguments or (), seed)
                outcome = _run_entry(compiled, kernel_arguments, tiling_values, options, reference_function)
                outcome.call = f"{source.name}: {entry}"
            results = {f"argument {n}": argument.file for n, argument in enumerate(outcome.arguments)}
            if fault := shared(sources, trace=trace, **results):
                raise bad_value(fault)
            difference = outcome.difference(within)
            outputs = [(each.file, each.write) for each in outcome.arguments if each.file is not None]
            if trace is not None:
                outputs.append((trace, lambda stream: _copy(unfinished_trace, stream)))
            write_together(outputs)
    except KernelBroken as error:
        if json_:
            report = error.report
            print(
                json.dumps({**report.summary, "errors": report.errors, "warnings": report.warnings}, indent=1)
            )
        for text in (str(error), *(f"warning: {warning['text']}" for warning in error.report.warnings)):
            print(text, file=sys.stderr)
        raise typer.Exit(FAILED) from None
    except (Refused, HostCodeFailed, CompileFailed) as error:
        print(error, file=sys.stderr)
        raise typer.Exit(FAILED) from None
    except (ValueError, TypeError, Unavailable) as error:
        # Fields of Options have the names of the command's options, except figures.
        text = str(error).replace("[sim] options.figures ", "[sim] figure ")
        raise usage_error(text.replace("[sim] options.", "[sim] ")) from None
    if json_:
        print(json.dumps(outcome.as_json(difference), indent=1))
    else:
        outcome.show()
        if trace is not None:
            Console(highlight=False).print(f"timeline written to {escape(str(trace))}", soft_wrap=True)
    if difference is None:
        return
    if not json_:
        relation = "equal to" if difference.largest == 0 else f"at most {difference.largest:g} from"
        print(f"{relation} {reference}")
    if not difference.is_within:
        rule = "within its tolerances" if outcome.has_tolerances else f"at most {within:g}"
        print(
            f"[sim] difference from {reference} must be {rule} but got {difference.largest:g}.",
            file=sys.stderr,
        )
        raise typer.Exit(FAILED)


def _copy(path: Path, stream: IO[bytes]) -> None:
    with path.open("rb") as written:
        shutil.copyfileobj(written, stream)


def _run_entry(
    kernel: Kernel,
    arguments: list[KernelArgument],
    tiling: Tiling,
    options: Options,
    reference_function: Callable[..., Any] | None,
) -> Outcome:
    """Run an entry with arguments in its order."""
    inputs = [
        item.argument.array.copy() if isinstance(item.argument, ArrayArgument) else item.argument
        for item in arguments
        if item.argument is not None and not isinstance(item.argument, Out | Part)
    ]
    report = kernel.run(
        *[item.argument for item in arguments],
        block_dim=tiling.block_dim,
        tiling=tiling.data,
        tiling_key=tiling.key,
        workspace_bytes=tiling.workspace_bytes,
        options=options,
    )
    outcome = Outcome("", report, arguments)
    if reference_function is not None:
        expected = reference_function(*inputs)
        results = expected if isinstance(expected, tuple | list) else (expected,)
        if len(results) != len(outcome.written):
            raise bad_value(f"reference must return {len(outcome.written)} outputs but got {len(results)}.")
        outcome.expected = [(result, None) for result in results]
    return outcome


def _reference_of(text: str) -> Callable[..., Any] | None:
    if not text:
        return None
    module, _, name = text.partition(":")
    if not module or not name:
        raise bad_value(f"reference must be MODULE:FUNCTION but got {text}.")
    sys.path.insert(0, os.getcwd())
    try:
        found: Callable[..., Any] = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise bad_value(f"reference must be MODULE:FUNCTION but got {text}: {error}.") from None
    except Exception as error:  # of the module's own code
        cause = f"{type(error).__name__}: {error}"
        raise bad_value(f"reference must be MODULE:FUNCTION but {module} raises {cause}.") from error
    except SystemExit as ended:
        raise bad_value(f"reference must be MODULE:FUNCTION but {module} exits with {ended.code}.") from None

    def checked(*arguments: Any, **named: Any) -> Any:
        try:
            return found(*arguments, **named)
        except SystemExit as ended:
            raise bad_value(f"reference must return its results but exits with {ended.code}.") from None
        except Exception as error:
            last = traceback.extract_tb(error.__traceback__)[-1]
            cause = f"{type(error).__name__}: {error} ({last.filename}:{last.lineno})"
            raise bad_value(f"reference must return its results but raises {cause}.") from error

    return checked
