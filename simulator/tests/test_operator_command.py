"""`ascend-sim kernel --definition`: an operator by its definition, with its own tiling."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from ascend_sim import compiler
from ascend_sim.cli.app import app
from typer.testing import CliRunner

EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "scaled_add"
KERNEL = EXAMPLE / "op_kernel/scaled_add.cpp"
DEFINITION = ("--definition", EXAMPLE / "op_host/scaled_add_def.cpp")
TILING = ("--tiling", EXAMPLE / "op_host/scaled_add_tiling.cpp")
INPUTS = ("--input", "x=float32:8,100", "--input", "y=float32:8,100")
OUTPUT = ("--output", "z=float32:8,100")
NEGATED = Path(__file__).resolve().parent / "cann/sources/ops/negated"


@pytest.fixture(autouse=True)
def in_temporary_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(EXAMPLE))


def command(*arguments):
    return CliRunner(env={"COLUMNS": "200"}).invoke(app, ["kernel", *map(str, arguments)])


def scaled_add(*arguments):
    return command(KERNEL, *DEFINITION, *TILING, *arguments)


def write(name, text):
    Path(name).write_text(text)


@pytest.mark.long
def test_an_operator_is_compared_with_its_reference():
    done = scaled_add(*INPUTS, *OUTPUT, "--attr", "scale=0.5", "--reference", "reference:scaled_add")
    assert (done.exit_code, done.stderr) == (0, "")
    assert "ScaledAdd on Ascend910B1, simulated" in done.stdout
    lines = done.stdout.splitlines()
    assert lines[-2] == "blocks 25, tiling key 0, workspace bytes 0"
    assert lines[-1].endswith("from reference:scaled_add")


def test_results_are_written_and_the_report_is_json():
    x, y = np.arange(9, dtype=np.float32), np.full(9, 2, np.float32)
    np.save("x.npy", x)
    np.save("y.npy", y)
    np.save("z.npy", np.full(9, np.nan, np.float32))
    done = scaled_add(
        "--input", "x=x.npy", "--input", "y=y.npy", "--input", "bias=x.npy", "--output", "z=z.npy",
        "--attr", "scale=3", "--json", "--trace", "trace.json", "--soc", "Ascend910B4",
    )  # fmt: skip
    assert done.exit_code == 0, done.stderr
    report = json.loads(done.stdout)
    assert np.array_equal(np.load("z.npy"), 2 * x + 6)
    assert (report["soc"], report["blocks"], report["tiling_key"]) == ("Ascend910B4", 1, 1)
    assert (report["difference"], report["warnings"]) == (None, [])
    assert json.loads(Path("trace.json").read_text())["traceEvents"]


def test_a_new_output_can_be_written():
    done = scaled_add(*INPUTS, "--output", "z=float32:8,100=z.npy", "--seed", 3)
    assert done.exit_code == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "z written to z.npy"
    assert np.load("z.npy").shape == (8, 100)


def test_the_reference_gets_inputs_and_attributes_by_name():
    write("seen.py", "def f(**given): return {'z': given['x'] + given['scale'] * given['y']}")
    done = scaled_add(*INPUTS, *OUTPUT, "--attr", "scale=2.0", "--reference", "seen:f")
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1] == "equal to seen:f"


@pytest.mark.parametrize(
    ("result", "more", "message"),
    [
        ("x + y + 1", (), "must be at most 0 but got 1."),
        ("x + y + 1", ("--within", 2), ""),
        ("(x + y + 1, 0.5)", ("--within", 2), "must be within its tolerances but got 1."),
        ("(x + y + 1, 2.0)", (), ""),
    ],
)
def test_a_difference_beyond_the_permitted_one_is_an_error(result, more, message):
    np.save("x.npy", np.ones(8, np.float32))
    module = f"other_{len(result)}_{len(more)}"  # Python imports a module once
    write(f"{module}.py", f"def f(x, y): return {{'z': {result}}}")
    given = ("--input", "x=x.npy", "--input", "y=x.npy", "--output", "z=float32:8")
    done = scaled_add(*given, *more, "--reference", f"{module}:f")
    expected = f"[sim] difference from {module}:f {message}\n" if message else ""
    assert (done.exit_code, done.stderr) == (int(bool(message)), expected)


def test_a_refusal_of_the_tiling_is_printed():
    done = scaled_add("--input", "x=float32:8", "--input", "y=float32:9", "--output", "z=float32:8")
    text = "x and y must have equal shapes but have 8 and 9 elements."
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr == f"[ScaledAdd] [ScaledAdd] {text}\n"


@pytest.mark.long
def test_a_tiling_struct_replaces_the_tiling():
    """An operator without a tiling, which writes its input in place."""
    x = np.arange(16, dtype=np.float32)
    np.save("x.npy", x)
    done = command(
        NEGATED / "op_kernel/negated.cpp", "--definition", NEGATED / "op_host/negated_def.cpp",
        "--operator", "Negated", "--input", "x=x.npy=y.npy", "--tiling", "uint32_t=16", "--tiling-key", 5,
    )  # fmt: skip
    assert (done.exit_code, done.stderr) == (0, "")
    assert np.array_equal(np.load("y.npy"), -x)


def test_a_file_with_bfloat16_has_its_type():
    np.save("x.npy", np.ones(8, ml_dtypes.bfloat16))
    done = scaled_add("--input", "x=x.npy", "--input", "y=float32:8", "--output", "z=float32:8")
    assert done.exit_code == 2
    assert done.stderr.endswith("but got x bfloat16, y float32, z float32.\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--input", "x"), "input must be NAME=FILE.npy, NAME=DTYPE:SIZES or NAME="),
        (("--input", "x=float32:a"), "sizes must be numbers such as 4,256 but got x=float32:a."),
        (("--input", "x=float31:8"), "dtype must be one of float16,"),
        (("--input", "x=none.npy"), "argument must be a .npy file or DTYPE:SIZES but got none.npy:"),
        (("--input", "x=float32:8=x.npy"), "input must be one that the operator writes if it names a file"),
        ((*INPUTS, "--input", "y=float32:8"), "y must be given once, because it is no list"),
        ((*INPUTS, "--output", "z=float32:8=no/z.npy"), "argument must be"),
        ((*INPUTS, *OUTPUT, "--attr", "scale"), "attr must be NAME=VALUE but got scale."),
        ((*INPUTS, *OUTPUT, "--attr", "scale=x"), "attr must be a number, true, false or a list but got"),
        ((*INPUTS, *OUTPUT, "--attr", "scale=" + "[" * 100_000), "attr must be a number, true, "),
        ((*INPUTS, *OUTPUT, "--attr", "scale=1", "--attr", "scale=2"), "attr scale must be given once but"),
        ((*INPUTS, *OUTPUT, "--block-dim", "4"), "block_dim must be that of the operator's tiling but got"),
        ((*INPUTS, *OUTPUT, "--tiling-key", "5"), "tiling_key must be that of the operator's tiling but"),
        ((*INPUTS, *OUTPUT, "--workspace", "9"), "workspace must be that of the operator's tiling but got"),
        ((*INPUTS, *OUTPUT, "--include", "none"), "include must be a folder but got none."),
        ((*INPUTS, *OUTPUT, "--sum", "x"), "sums must be outputs but got x."),
        ((*INPUTS, *OUTPUT, "-D", "A=1"), "definition must replace arguments and macros but got A=1:"),
        (("scaled_add", "in:x.npy"), "definition must replace arguments and macros but got in:x.npy:"),
        ((*INPUTS, *OUTPUT, "--tiling", "none.cpp"), "tiling must be a file that can be read but got"),
    ],
)  # fmt: skip
def test_an_argument_that_does_not_fit_is_named(arguments, message):
    done = scaled_add(*arguments)
    assert (done.exit_code, done.stdout) == (2, "")
    assert message in done.stderr
    assert done.stderr.startswith("[sim] ")
    assert list(Path().iterdir()) == []


def test_names_of_tensors_need_a_definition():
    done = command(KERNEL, *INPUTS)
    text = "[sim] definition must be given for names of tensors but got only x=float32:8,100.\n"
    assert (done.exit_code, done.stderr) == (2, text)


def test_a_reference_must_return_the_outputs():
    write("bad.py", "def f(x, y): return x")
    done = scaled_add(*INPUTS, *OUTPUT, "--reference", "bad:f")
    assert done.stderr == "[sim] reference must return a dict of z but got ndarray.\n"


def handle_interrupts():
    """A shell's background processes ignore interrupts, and their children do, too."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.mark.parametrize("step", ["preprocesses", "compiles"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_the_compilers_of_the_host_code(number, step, tmp_path):
    script, started = tmp_path / "compile.sh", tmp_path / "started"
    preprocess = f'case " $* " in *" -E "*) exec {compiler.compiler()} "$@" ;; esac\n'
    before = preprocess if step == "compiles" else ""
    script.write_text(f"#!/bin/sh\n{before}touch {started}\nexec sleep 60\n")
    script.chmod(0o755)
    command = [sys.executable, "-m", "ascend_sim", "kernel", KERNEL, *DEFINITION, *TILING, *INPUTS, *OUTPUT]
    environment = {**os.environ, "CXX": str(script), "TMPDIR": str(tmp_path)}
    command = list(map(str, command))
    with subprocess.Popen(
        command, env=environment, stderr=subprocess.PIPE, text=True, preexec_fn=handle_interrupts
    ) as process:
        while not started.exists():
            time.sleep(0.01)
        process.send_signal(number)
        _, errors = process.communicate(timeout=30)
    assert (process.returncode, errors) == (130, "[ascend-sim] interrupted.\n")
    (results,) = tmp_path.glob("ascend_sim-*")
    assert {path.suffix for path in results.iterdir()} <= {".lock"}
