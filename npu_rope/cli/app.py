"""All commands in one application. Each command is in the module of its name."""

from __future__ import annotations

from ascend_sim.cli.application import application

from npu_rope import __version__
from npu_rope.cli import trace_norm
from npu_rope.cli.bench import bench
from npu_rope.cli.doctor import doctor
from npu_rope.cli.hardware_report import hardware_report
from npu_rope.cli.inspect import inspect
from npu_rope.cli.sim import sim
from npu_rope.cli.validate import validate

app = application(
    "npu-rope",
    __version__,
    "Rotary position embedding for Ascend NPUs: validate, measure, list the parts.",
)
app.command()(validate)
app.command()(doctor)
app.command()(bench)
app.command()(inspect)
app.command()(hardware_report)
app.add_typer(trace_norm.app, name="trace")
# All arguments after the program's name belong to the program, including options.
app.command("sim", context_settings={"allow_interspersed_args": False})(sim)
