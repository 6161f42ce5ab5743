"""The commands, joined. Each lives in a module of its own name."""

from __future__ import annotations

import typer

from npu_rope.cli.bench import bench
from npu_rope.cli.doctor import doctor
from npu_rope.cli.validate import validate

app = typer.Typer(
    name="npu-rope",
    help="Rotary position embedding for Ascend NPUs: validate it, measure it, see what is installed.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command()(validate)
app.command()(doctor)
app.command()(bench)
