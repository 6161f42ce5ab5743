"""All commands in one application. Each command has a module with its name."""

from __future__ import annotations

from ascend_sim import __version__
from ascend_sim.cli.application import application
from ascend_sim.cli.doctor import doctor
from ascend_sim.cli.kernel import kernel
from ascend_sim.cli.program import program
from ascend_sim.cli.run import run
from ascend_sim.cli.toolkit import toolkit
from ascend_sim.cli.trace import trace

app = application(
    "ascend-sim", __version__, "An Ascend machine in software: run kernels and programs without an NPU."
)
# All arguments after the program's name belong to the program, including options.
app.command(context_settings={"allow_interspersed_args": False})(run)
app.command()(toolkit)
app.command()(program)
app.command()(kernel)
app.command()(trace)
app.command()(doctor)
