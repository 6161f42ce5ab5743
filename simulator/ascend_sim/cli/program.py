"""``ascend-sim program``: compile a program that launches its own kernels."""

# typer evaluates annotations, so they are not postponed here.

import sys
from pathlib import Path
from typing import Annotated

import typer

from ascend_sim.cli.application import usage_error
from ascend_sim.cli.arguments import headers_of, macros_of
from ascend_sim.compiler import CompileFailed
from ascend_sim.errors import Unavailable
from ascend_sim.library import DEFAULT_SOC
from ascend_sim.programs.launches import build_program
from ascend_sim.termination import termination_as_interrupt

FAILED = 1


def program(
    sources: Annotated[list[Path], typer.Argument(help="C++ files, such as add.asc.", show_default=False)],
    output: Annotated[Path, typer.Option("--output", "-o", help="The program to write.", show_default=False)],
    soc: Annotated[
        str, typer.Option(help="An SoC such as ascend910b, or a chip such as Ascend910B4.")
    ] = DEFAULT_SOC,
    define: Annotated[list[str] | None, typer.Option("--define", "-D", help="A macro, NAME=VALUE.")] = None,
    include: Annotated[
        list[Path] | None, typer.Option("--include", "-I", help="A folder of headers.")
    ] = None,
    auto_sync: Annotated[
        bool, typer.Option(help="Insert synchronisation in the kernels, as CANN's compiler does by default.")
    ] = True,
) -> None:
    """Compile a program that launches its own kernels with <<<>>>.

    The files hold host code and kernels, as the .asc files of asc-devkit do.
    Every launch kernel<<<blocks, l2ctrl, stream>>>(arguments) in them becomes a
    call of the simulated CANN. Run the program with ascend-sim run, on a chip of
    this SoC.

    Exit status: 0 success; 1 the compiler failed; 2 bad usage or a missing piece.

    Examples:

      ascend-sim program add.asc -o add

      ascend-sim run --soc Ascend910B1 -- ./add
    """
    try:
        macros = macros_of(define or ())
        headers = headers_of(include)
        with termination_as_interrupt():
            build_program(sources, output, soc, defines=macros, include=headers, auto_sync=auto_sync)
    except CompileFailed as error:
        print(error, file=sys.stderr)
        raise typer.Exit(FAILED) from None
    except (ValueError, Unavailable) as error:
        raise usage_error(str(error)) from None
