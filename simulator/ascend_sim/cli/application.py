"""The command line of a program, to which its commands are added.

typer evaluates annotations outside the function that has them, so they are not postponed here.
"""

import sys
from collections.abc import Callable
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from ascend_sim.texts import printable

__all__ = ["Application", "application", "usage_error"]

USAGE_ERROR = 2


class _Command(TyperCommand):
    """A command that refuses an option with one value that is given twice."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        given: list[Any] = self.make_parser(ctx).parse_args(args=[*args])[2]
        for parameter in given:
            has_one_value = parameter.param_type_name == "option" and not (
                parameter.multiple or parameter.is_flag or parameter.count
            )
            if has_one_value and given.count(parameter) > 1:
                raise typer.BadParameter("it must be given once.", ctx, parameter)
        return super().parse_args(ctx, args)


class Application(typer.Typer):
    """Commands that refuse an option with one value that is given twice."""

    def command(self, *arguments: Any, **options: Any) -> Callable[..., Any]:
        """Add a command, as typer does."""
        return super().command(*arguments, cls=_Command, **options)


def application(name: str, version_number: str, about: str) -> Application:
    """Return a program without commands, with the option ``--version``.

    Args:
        name: of the program.
        version_number: of the program.
        about: its purpose, shown by ``--help``.
    """
    app = Application(
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
