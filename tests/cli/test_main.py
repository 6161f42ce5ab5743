"""Output and exit status of npu-rope: --version, a closed pipe, a full disk, Ctrl-C, a missing typer."""

import ast
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

import npu_rope
from npu_rope.cli.app import app

COMMAND = [sys.executable, "-m", "npu_rope.cli"]


@pytest.mark.parametrize("module", ["npu_rope", "npu_rope.cli"])
def test_version_prints_the_packages_version(run_python, module):
    done = run_python("-m", module, "--version")
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"npu-rope {npu_rope.__version__}\n"


def commands_of(group, *names):
    """Yield a pair for each command: the words of its name, and the command."""
    yield names, group
    for name, command in getattr(group, "commands", {}).items():
        yield from commands_of(command, *names, name)


COMMANDS = dict(commands_of(typer.main.get_command(app)))


@pytest.mark.parametrize("names", COMMANDS, ids=" ".join)
def test_a_terminal_of_80_columns_shows_the_lines_of_help_as_written(names):
    done = CliRunner(env={"COLUMNS": "80"}).invoke(app, [*names, "--help"])
    shown = {line.strip() for line in done.stdout.splitlines()}
    assert [line for line in COMMANDS[names].help.splitlines() if line.strip() not in shown] == []


@pytest.mark.parametrize(
    "arguments",
    [["validate", "--list"], ["--help"], ["--version"], ["doctor"], ["doctor", "--json"]],
    ids=" ".join,
)
def test_a_closed_pipe_is_quiet_and_exits_141(npu_rope_command, arguments):
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = npu_rope_command(*arguments, stdout=writer, NPU_ROPE_GGML_LIB="/nonexistent")
    finally:
        os.close(writer)
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.parametrize(
    ("arguments", "output"),
    [
        (["trace", "rope", "--shape", "1,1,1,64", "--output", "/dev/full"], os.devnull),
        (["validate", "--list"], "/dev/full"),
    ],
    ids=["a file", "standard output"],
)
def test_a_full_disk_is_reported_in_one_line(npu_rope_command, arguments, output):
    with open(output, "w") as stdout:
        done = npu_rope_command(*arguments, stdout=stdout.fileno(), NPU_ROPE_GGML_LIB="/nonexistent")
    assert done.stderr == "[npu-rope] output must fit on the disk but got: No space left on device.\n"
    assert done.returncode == 2


def restore_interrupts():
    """Restore the default handler: a shell's background processes and their children ignore interrupts."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test_ctrl_c_exits_130_with_one_line():
    command = [*COMMAND, "validate", "--verbose", "--no-ggml", "--backend", "cpu"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=restore_interrupts
    ) as process:
        # Wait for the first case: Python may lose an interrupt during its imports.
        assert any(line.startswith("ok") for line in iter(process.stdout.readline, ""))
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert errors == "[npu-rope] interrupted.\n"


def test_missing_typer_is_named_with_a_remedy():
    code = "import sys; sys.modules['typer'] = None; from npu_rope.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "pip install 'npu-rope[cli]'" in done.stderr


ROOT = Path(__file__).resolve().parents[2]
PYTHON_SOURCES = [*(ROOT / "npu_rope").rglob("*.py"), *(ROOT / "simulator" / "ascend_sim").rglob("*.py")]


def test_errors_name_options_without_dashes():
    wrong = [path for path in PYTHON_SOURCES if re.search(r"\[[a-z_-]+\] --[a-z]", path.read_text())]
    assert wrong == []


def test_only_declarations_of_options_are_called_with_a_name_with_dashes():
    """A function that writes an error gets the option's name as an argument."""
    wrong = [
        (path, argument.value)
        for path in PYTHON_SOURCES
        for call in ast.walk(ast.parse(path.read_text()))
        if isinstance(call, ast.Call) and ast.unparse(call.func) != "typer.Option"
        for argument in (*call.args, *(keyword.value for keyword in call.keywords))
        if isinstance(argument, ast.Constant) and re.match("--[a-z]", str(argument.value))
    ]
    assert wrong == []
