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
from ascend_sim import command_line
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


def test_the_help_of_sim_says_what_differs_from_ascend_sim_run():
    help_ = " ".join(COMMANDS["sim",].help.split())
    assert "This is ascend-sim run with one difference: npu_rope's operator package is installed" in help_
    assert help_.count("ascend-sim") == 1


@pytest.mark.parametrize("names", COMMANDS, ids=" ".join)
def test_a_terminal_of_80_columns_shows_the_lines_of_help_as_written(names):
    done = CliRunner(env={"COLUMNS": "80"}).invoke(app, [*names, "--help"])
    shown = {line.strip() for line in done.stdout.splitlines()}
    assert [line for line in COMMANDS[names].help.splitlines() if line.strip() not in shown] == []


@pytest.mark.parametrize("names", COMMANDS, ids=" ".join)
def test_an_option_with_one_value_is_refused_if_it_is_given_twice(names):
    for option in COMMANDS[names].params:
        if option.param_type_name == "option" and not (option.is_flag or option.multiple):
            done = CliRunner().invoke(app, [*names, *(option.opts[0], "1") * 2])
            said = " ".join(re.findall(r"[\w.:'-]+", done.stderr))
            assert done.exit_code == 2
            rule = rf"Invalid value for [^:]*{option.opts[0]}[^:]*: it must be given once\."
            assert re.search(rule, said), said


@pytest.mark.long
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


@pytest.mark.long
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


def test_a_closed_standard_output_is_refused(capsys, monkeypatch):
    """A file that is opened next would get its number, and a program that is started would write into it."""
    monkeypatch.setattr(sys, "stdout", None)
    with pytest.raises(SystemExit) as caught:
        command_line.main("npu-rope", lambda: pytest.fail("the command runs"))
    assert caught.value.code == 2
    expected = "[npu-rope] standard output must be open but got none: use >/dev/null.\n"
    assert capsys.readouterr().err == expected


def test_too_little_memory_is_reported_in_one_line(capsys):
    def run():
        try:
            raise MemoryError("Unable to allocate 9.00 TiB")
        finally:
            print("output before it")

    with pytest.raises(SystemExit) as caught:
        command_line.main("npu-rope", run)
    assert caught.value.code == 2
    captured = capsys.readouterr()
    assert captured.out == "output before it\n"
    message = "memory must suffice for the command but did not: Unable to allocate 9.00 TiB."
    assert captured.err == f"[npu-rope] {message}\n"


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="RLIMIT_AS limits memory on Linux only")
def test_a_command_without_enough_memory_gives_exit_status_2(tmp_path):
    """The timeline takes 20 MB as a file, and more as objects than the limit allows."""
    file = tmp_path / "large.json"
    file.write_text("[" + "[0]," * 5_000_000 + "0]")
    program = (
        "import resource\n"
        "from ascend_sim.cli import app, main\n"
        "used = int(open('/proc/self/statm').read().split()[0]) * resource.getpagesize()\n"
        "resource.setrlimit(resource.RLIMIT_AS, (used + (200 << 20), resource.RLIM_INFINITY))\n"
        "main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, "trace", str(file)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "[ascend-sim] memory must suffice for the command but did not.\n"


def restore_interrupts():
    """Restore the default handlers: a shell's background processes and their children ignore interrupts."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.mark.long
@pytest.mark.parametrize(
    "number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=["Ctrl+C", "SIGTERM", "SIGHUP"]
)
def test_an_interrupt_exits_130_after_the_results_so_far(number):
    command = [*COMMAND, "validate", "--verbose", "--no-ggml", "--backend", "cpu"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=restore_interrupts
    ) as process:
        # Wait for the first case: Python may lose an interrupt during its imports.
        assert any(line.startswith("ok") for line in iter(process.stdout.readline, ""))
        process.send_signal(number)
        output, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert errors == "[npu-rope] interrupted.\n"
    last = r"INTERRUPTED: (\d+) of \1 cases within their bounds; interrupted before the other \d+ cases; "
    last += r"317 long cases left out, which --all runs\n"
    assert re.search(f"\n{last}$", output), output[-500:]


@pytest.mark.long
@pytest.mark.torch
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["Ctrl+C", "SIGTERM"])
def test_an_interrupt_of_bench_ends_its_process_too(number):
    code = (
        "from npu_rope.cli import bench, main\n"
        "from npu_rope.bench import run\n"
        "import subprocess, threading\n"
        "popen = subprocess.Popen\n"
        "def printing(*arguments, **options):\n"
        "    process = popen(*arguments, **options)\n"
        "    if 'npu_rope.bench.worker' in arguments[0]:\n"
        "        # Half a second later, when bench reads the worker's results.\n"
        "        threading.Timer(0.5, print, [process.pid], {'flush': True}).start()\n"
        "    return process\n"
        "run.subprocess.Popen = printing\n"
        "main()\n"
    )
    command = [sys.executable, "-c", code, "bench", "--rows", "^decode", "--peers", "none"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=restore_interrupts
    ) as process:
        worker = int(process.stdout.readline())
        process.send_signal(number)
        output, errors = process.communicate(timeout=60)
    assert (process.returncode, output, errors) == (130, "", "[npu-rope] interrupted.\n")
    with pytest.raises(ProcessLookupError):
        os.kill(worker, 0)


@pytest.mark.long
def test_sigterm_during_the_reruns_leaves_the_faults():
    """The whole group gets the signal, as from timeout(1). A second one comes while the report is printed."""
    code = (
        "from npu_rope.cli import main, validate\n"
        "from npu_rope.cli.report import ConsolePrinter\n"
        "from npu_rope.testing.outcomes import FAIL, CaseResult, Judgement\n"
        "from npu_rope.testing.rerun import Reruns\n"
        "import os, signal, time\n"
        "validate.judge = lambda case, *rest: CaseResult(case, [Judgement('cpu', FAIL)])\n"
        "def examine(self, groups, advance):\n"
        "    os.killpg(0, signal.SIGTERM)\n"
        "    time.sleep(60)\n"
        "Reruns.examine = examine\n"
        "summary = ConsolePrinter.summary\n"
        "def second_signal(self):\n"
        "    os.killpg(0, signal.SIGTERM)\n"
        "    summary(self)\n"
        "ConsolePrinter.summary = second_signal\n"
        "main()\n"
    )
    options = ["validate", "--suite", "onnx", "--filter", "prefill", "--backend", "cpu", "--no-ggml"]
    done = subprocess.run(
        [sys.executable, "-c", code, *options],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        start_new_session=True,
    )
    assert done.returncode == 1, done.stderr
    assert "\n1 fault in 3 cases\n" in done.stdout
    assert done.stdout.endswith("FAIL: 0 of 3 cases within their bounds\n")


@pytest.mark.long
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
