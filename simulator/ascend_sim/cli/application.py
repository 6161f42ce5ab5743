"""The command line of a program, to which its commands are added.

typer evaluates annotations outside the function that has them, so they are not postponed here.
"""

import sys
from typing import Annotated

import typer

from ascend_sim.texts import printable

__all__ = ["application", "usage_error"]

USAGE_ERROR = 2


def application(name: str, version_number: str, about: str) -> typer.Typer:
    """Return a program without commands, with the option ``--version``.

    Args:
        name: of the program.
        version_number: of the program.
        about: its purpose, shown by ``--help``.
    """
    app = typer.Typer(
        name=name, no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, help=about
    )

    def print_version(is_requested: bool) -> None:
        if is_requested:
            print(f"{name} {version_number}")
            raise typer.Exit

    @app.callback()
    def options(
        version: Annotated[
            bool,
            typer.Option("--version", callback=print_version, is_eager=True, help="Print the version."),
        ] = False,
    ) -> None:
        pass

    return app


def usage_error(text: str) -> typer.Exit:
    """Print the error in a command's usage, which may quote a file; return the exit to raise."""
    print("\n".join(map(printable, text.split("\n"))), file=sys.stderr)
    return typer.Exit(USAGE_ERROR)
