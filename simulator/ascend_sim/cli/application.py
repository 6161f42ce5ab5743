"""The command line of a program, to which its commands are added: for ``ascend-sim`` and ``npu-rope``.

typer evaluates annotations outside the function that has them, so they are not postponed here.
"""

from typing import Annotated

import typer


def application(name: str, number: str, about: str) -> typer.Typer:
    """Return a program without commands, with the option ``--version``.

    Args:
        name: of the program.
        number: its version.
        about: what it is for, in ``--help``.
    """
    app = typer.Typer(
        name=name, no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, help=about
    )

    def print_version(wanted: bool) -> None:
        if wanted:
            print(f"{name} {number}")
            raise typer.Exit

    @app.callback()
    def options(
        version: Annotated[
            bool,
            typer.Option("--version", callback=print_version, is_eager=True, help="Print it and stop."),
        ] = False,
    ) -> None:
        pass

    return app
