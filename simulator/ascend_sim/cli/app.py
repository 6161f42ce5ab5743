"""The commands, joined. Each lives in a module of its own name."""

from __future__ import annotations

from typing import Annotated

import typer

from ascend_sim import __version__
from ascend_sim.cli.doctor import doctor
from ascend_sim.cli.kernel import kernel
from ascend_sim.cli.run import run
from ascend_sim.cli.trace import trace

app = typer.Typer(
    name="ascend-sim",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"ascend-sim {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print it and stop.")
    ] = False,
) -> None:
    """An Ascend machine in software: run kernels and programs without an NPU."""


# All arguments after the program's name belong to the program, including options.
app.command(context_settings={"allow_interspersed_args": False})(run)
app.command()(kernel)
app.command()(trace)
app.command()(doctor)
