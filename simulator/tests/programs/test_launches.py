"""Programs that launch their own kernels with <<<>>>."""

from __future__ import annotations

import re
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from ascend_sim.compiler import CompileFailed
from ascend_sim.launch_syntax import rewritten
from ascend_sim.programs.launches import build_program

SCALE = Path(__file__).resolve().parents[2] / "examples" / "scale.asc"
COMMAND = [sys.executable, "-m", "ascend_sim"]


def run(*command, **options):
    return subprocess.run(
        [*COMMAND, *map(str, command)], capture_output=True, text=True, timeout=300, **options
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("programs")


@pytest.fixture(scope="module")
def scale(folder):
    done = run("program", SCALE, "-o", folder / "scale")
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "scale"


def build_changed(folder, name, *changes):
    """Compile the example after changes of its text; return the program."""
    text = SCALE.read_text()
    for old, new in changes:
        assert text.count(old) == 1
        text = text.replace(old, new)
    source = folder / f"{name}.asc"
    source.write_text(text)
    return build_program([source], folder / name)


@pytest.mark.long
@pytest.mark.parametrize("streams", ["asynchronous", "immediate"])
def test_a_program_launches_its_kernel(scale, streams):
    done = run("run", "--soc", "Ascend910B1", "--streams", streams, "--", scale)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout == "8192 products are right.\n"
    assert "scale" in done.stderr


@pytest.mark.long
def test_a_program_of_two_files_with_kernels_runs(folder):
    other = folder / "other.asc"
    other.write_text(
        '#include "kernel_operator.h"\n'
        "__global__ __aicore__ void nothing(GM_ADDR x) { KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY); }\n"
    )
    done = run("run", "--", build_program([SCALE, other], folder / "two_files"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout == "8192 products are right.\n"


@pytest.mark.long
def test_a_broken_rule_is_reported_with_its_line_when_the_program_waits(folder):
    program = build_changed(folder, "broken", ("a = queue_in.DeQue<T>();", ""))
    done = run("run", "--", program)
    assert done.returncode == 1
    assert done.stdout == "aclrtSynchronizeStream: 507035\n"
    line = SCALE.read_text().splitlines().index("    AscendC::Muls(b, a, T(factor), kTile);") + 1
    assert re.search(rf"SIM-\w+-\d+ broken\.asc:{line}, core 0, Muls", done.stderr)
    assert "launches with rule violations: 1" in done.stderr
    assert "work that failed" not in done.stderr  # listed once


TWO_STEPS = (
    "    AscendC::Muls(b, a, T(factor), kTile);",
    "    AscendC::Muls(b, a, T(1), kTile); AscendC::Muls(b, b, T(factor), kTile);",
)


@pytest.mark.long
@pytest.mark.parametrize("auto_sync", [True, False])
def test_synchronisation_is_inserted_unless_the_program_forbids_it(folder, auto_sync):
    source = folder / "two_steps.asc"
    source.write_text(SCALE.read_text().replace(*TWO_STEPS))
    flag = [] if auto_sync else ["--no-auto-sync"]
    assert run("program", source, "-o", folder / "two_steps", *flag).returncode == 0
    done = run("run", "--", folder / "two_steps")
    assert (done.stdout == "8192 products are right.\n") == auto_sync
    assert ("PipeBarrier<PIPE_V> missing" in done.stderr) == (not auto_sync)


@pytest.mark.long
def test_the_host_s_memory_is_no_argument(folder):
    program = build_changed(folder, "host", ("(GM_ADDR)device_x, (GM_ADDR)", "(GM_ADDR)x.data(), (GM_ADDR)"))
    done = run("run", "--", program)
    assert done.returncode == 1
    assert "pointer 1 of the kernel's arguments points to no device memory" in done.stderr


def test_a_program_runs_on_chips_of_its_soc_only(scale):
    done = run("run", "--soc", "Ascend310P3", "--", scale)
    assert done.returncode == 1
    assert not re.search("products are right", done.stdout)
    refused = "the kernel must be compiled for Ascend310P3 but was not (ascend-sim program --soc)."
    assert f"scale: the launch was refused: {refused}\n" in done.stderr


@pytest.mark.long
def test_a_launch_without_blocks_is_refused(folder):
    """<<<>>> returns nothing, so the report is the only place that says it."""
    unseen = ("y[i] != 2.5f * x[i]", "false")
    launch = ("<<<kCores, nullptr", "<<<0, nullptr")
    done = run("run", "--", build_changed(folder, "no_blocks", launch, unseen))
    assert (done.returncode, done.stdout) == (1, "8192 products are right.\n")
    assert "launches with rule violations: 1\n" in done.stderr
    assert "scale: the launch was refused: numBlocks must be 1 to 65535 but got 0.\n" in done.stderr


def test_an_error_of_the_compiler_names_the_source(folder):
    source = folder / "wrong.asc"
    source.write_text('#include "acl/acl.h"\nint main() { return nothing; }\n')
    with pytest.raises(CompileFailed, match=rf"{source}:2:\d+: error:"):
        build_program([source], folder / "wrong")


def test_a_program_is_not_written_over_its_source(folder):
    source = folder / "main.asc"
    source.write_text("int main() { return 0; }\n")
    with pytest.raises(ValueError, match=rf"^\[sim\] output must differ from a source but got {source}\.$"):
        build_program([source], source)
    assert source.read_text() == "int main() { return 0; }\n"


@pytest.mark.parametrize("fault", ["no main", "no UTF-8", "no room", "no output"])
def test_a_program_that_is_not_made_leaves_the_earlier_one(folder, fault, monkeypatch):
    source, program, script = folder / "bad.asc", folder / "earlier", folder / "compile.sh"
    program.write_text("earlier")
    program.chmod(0o640)
    source.write_text("int main2() { return 0; }\n")
    error, message = CompileFailed, "undefined reference to `main'"
    if fault == "no UTF-8":
        source.write_bytes(b'#error "\xff\xfe"\n')
        message = "#error"
    elif fault != "no main":
        says = "ld: final link failed: No space left on device" if fault == "no room" else ""
        error, message = (OSError, "No space left") if says else (CompileFailed, "wrote no file")
        script.write_text(f"#!/bin/sh\necho '{says}' >&2\nexit {int(bool(says))}\n")
        script.chmod(0o755)
        monkeypatch.setenv("CXX", str(script))
    with pytest.raises(error, match=message):
        build_program([source], program)
    assert (program.read_text(), stat.S_IMODE(program.stat().st_mode)) == ("earlier", 0o640)
    assert not [path for path in folder.iterdir() if path.name.startswith(".")]


@pytest.mark.parametrize(
    ("text", "call"),
    [
        (
            "k<<<8, nullptr, s>>>(x)",
            '::ascend_sim::launch("k", (8), (nullptr), (s), [=](auto... a) { k(a...); }, x)',
        ),
        ("k<<<8, 0>>>()", '::ascend_sim::launch("k", (8), (0), (nullptr), [=](auto... a) { k(a...); })'),
        (
            "n::k<T<int>, 3> <<<f(1, 2), 0, s>>> (x, g(y, z))",
            '::ascend_sim::launch("n::k", (f(1, 2)), (0), (s), '
            "[=](auto... a) { n::k<T<int>, 3>(a...); }, x, g(y, z))",
        ),
    ],
)
def test_a_launch_becomes_a_call(text, call):
    assert rewritten(f"int a;\nreturn {text};\n") == f"int a;\nreturn {call};\n"


def test_lines_keep_their_numbers():
    text = "k<<<8,\n nullptr,\n s>>>(\n x,\n y);\nlast();\n"
    assert rewritten(text).splitlines().index("last();") == 5


@pytest.mark.parametrize(
    "text", ['"k<<<1, 2, 3>>>(x)"', "// k<<<1, 2, 3>>>(x)", "/* k<<<1, 2, 3>>>(x) */", 'R"(k<<<1>>>())"']
)
def test_comments_and_strings_stay(text):
    assert rewritten(text) == text


@pytest.mark.parametrize(
    "text", ["x = 1 <<< 2;", "k<<<1>>>(x);", "k<<<1, 2, 3>>>;", "k<<<1, 2, 3, 4>>>(x);", "k<<<1, 2"]
)
def test_an_incomplete_launch_is_refused(text):
    with pytest.raises(ValueError, match=r"^\[sim\] launch must .* at file\.asc:2\.$"):
        rewritten(f"\n{text}\n", "file.asc")


@pytest.mark.long
def test_the_command_refuses_what_it_cannot_use(folder):
    for arguments in (
        ["missing.asc", "-o", folder / "x"],
        [SCALE, "-o", folder],
        [SCALE, "-o", folder / "x", "--soc", "A1"],
    ):
        done = run("program", *arguments)
        assert done.returncode == 2
        assert done.stderr.startswith("[sim] ")
