"""ascend-sim run without torch_npu: refusals, the command's exit status, the report, sitecustomize."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from ascend_sim import folders
from ascend_sim.cli.app import app
from ascend_sim.programs import find_torch_npu, session
from full_disk import run_with_pages
from typer.testing import CliRunner


def run_command(*arguments, **variables):
    return CliRunner(env=variables).invoke(app, ["run", *map(str, arguments)])


# ---- refusals ----------------------------------------------------------------------------------------


def test_no_command_is_refused():
    done = run_command()
    assert done.exit_code == 2
    assert done.stderr == (
        "[sim] command must be a program and its arguments but got nothing.\n"
        "Example: ascend-sim run -- python script.py\n"
    )


def test_a_listed_chip_takes_no_number_of_cores():
    done = run_command("--soc", "Ascend310P3:99", "--", "python")
    assert (done.exit_code, done.stderr) == (
        2,
        "[sim] soc must be Ascend310P3 without :CORES, which only a chip that is not listed has, but got "
        "Ascend310P3:99.\n",
    )


@pytest.mark.parametrize(
    ("soc", "nearest"),
    [
        ("310p", "Ascend310P3, Ascend310P1, Ascend310P5, Ascend310P7"),
        ("Ascend310p3", "Ascend310P3"),
        ("Ascent910B4", "Ascend910B4, Ascend910B4-1, Ascend910B3"),
    ],
)
def test_the_nearest_names_of_an_unknown_chip_are_printed(soc, nearest):
    done = run_command("--soc", soc, "--", "python")
    assert done.exit_code == 2
    assert done.stderr.splitlines()[-1] == f"The nearest names: {nearest}."


def test_an_unknown_chip_is_refused_with_the_known_chips():
    done = run_command("--soc", "Ascend9000", "--", "python")
    assert done.exit_code == 2
    assert done.stderr.startswith("[sim] soc must be one of Ascend910B2, Ascend910B1, ")
    assert done.stderr.endswith(
        ", or NAME:CORES for a chip that is not listed: a name of one of these families and its number of AI "
        "cores, but got Ascend9000.\n"
    )


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--streams", "eager", "[sim] streams must be one of asynchronous, immediate but got eager.\n"),
        ("--seed", "-1", "[sim] seed must be 0 to 2**64 - 1 but got -1.\n"),
        ("--seed", str(2**64), f"[sim] seed must be 0 to 2**64 - 1 but got {2**64}.\n"),
    ],
)
def test_a_wrong_value_of_an_option_is_refused(option, value, message):
    done = run_command(option, value, "--", "python")
    assert (done.exit_code, done.stderr) == (2, message)


def test_a_report_that_cannot_be_written_is_refused_before_the_command_runs(tmp_path):
    ran = tmp_path / "ran"
    done = run_command("--report", tmp_path / "no" / "r.json", "--", "touch", ran)
    assert done.exit_code == 2
    assert "[sim] report must be a file in an existing folder" in done.stderr
    assert not ran.exists()


@pytest.mark.parametrize(
    "arguments", [["--soc", "Ascend9000", "--", "true"], ["--", "no-such-program"], ["--seed", "-1"], []]
)
def test_the_report_of_an_earlier_run_is_removed_when_a_run_is_refused(tmp_path, arguments):
    report = tmp_path / "r.json"
    report.write_text("{}")
    done = run_command("--report", report, *arguments)
    assert done.exit_code == 2
    assert list(tmp_path.iterdir()) == []


def test_a_report_that_is_a_device_is_not_removed():
    done = run_command("--report", "/dev/null", "--", "no-such-program")
    assert done.exit_code == 2
    assert os.path.exists("/dev/null")


def test_a_program_that_does_not_exist_is_refused():
    done = run_command("--", "no-such-program")
    assert done.exit_code == 2
    assert done.stderr == (
        "[sim] command must be available but there is no program no-such-program.\n"
        "Give its path, or install it.\n"
    )


def refused(*command):
    done = run_command("--", *command)
    assert done.exit_code == 2
    return done.stderr


def test_a_file_that_is_not_executable_is_refused(tmp_path):
    program = tmp_path / "a script.py"
    program.touch()
    assert refused(program) == (
        f"[sim] command must be available but {program} is not executable.\n"
        f"Make it executable: chmod +x '{program}'. "
        f"For a script, name its interpreter: -- python '{program}'.\n"
    )


def test_a_folder_is_refused_as_a_program(tmp_path):
    assert refused(tmp_path) == (
        f"[sim] command must be available but {tmp_path} is a folder.\nName a program in it, by its path.\n"
    )


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("/no/such/python3", "'/no/such/python3'"),
        (" /no/such/sh -e", "'/no/such/sh'"),
        ("/bin/sh\r", r"'/bin/sh\r'"),
    ],
)
def test_a_script_whose_interpreter_is_missing_is_refused(tmp_path, line, shown):
    script = tmp_path / "script"
    script.write_text(f"#!{line}\n")
    script.chmod(0o755)
    assert refused(script) == (
        f"[sim] command must be available but the interpreter {shown} in the first line of {script} does not "
        "exist.\nCorrect the line, or install the interpreter.\n"
    )


@pytest.mark.parametrize(
    "line", ["/usr/bin/env no-such-interpreter", "/usr/bin/env -S no-such-interpreter -u"]
)
def test_a_script_whose_interpreter_env_does_not_find_is_refused(tmp_path, line):
    script = program_of(tmp_path, f"#!{line}\n".encode())
    assert refused(script) == (
        "[sim] command must be available but env does not find the interpreter 'no-such-interpreter' in the "
        f"first line of {script} on PATH.\nCorrect the line, or install the interpreter.\n"
    )


@pytest.mark.parametrize(
    "line", ["/usr/bin/env sh", "/usr/bin/env -S NAME=1 sh", "/usr/bin/env -S -u NAME sh"]
)
def test_a_script_whose_interpreter_env_finds_runs(tmp_path, line):
    script = program_of(tmp_path, f"#!{line}\nexit 7\n".encode())
    assert run_command("--", script).exit_code == 7


def program_of(folder, contents):
    program = folder / "program"
    program.write_bytes(contents)
    program.chmod(0o755)
    return program


def test_an_empty_program_is_refused(tmp_path):
    program = program_of(tmp_path, b"")
    assert refused(program) == (
        f"[sim] command must be available but {program} is empty.\nBuild it again, or copy it again.\n"
    )


@pytest.mark.parametrize("count", [20, 40, 64, 600, 5000])
@pytest.mark.skipif(sys.platform != "linux", reason="other systems have other formats of programs")
def test_a_program_that_is_cut_off_is_refused(tmp_path, count):
    whole = Path(sys.executable).read_bytes()
    program = program_of(tmp_path, whole[:count])
    cut_off = f"{program} is cut off: it has {count} bytes, and the system loads "
    assert refused(program).startswith(f"[sim] command must be available but {cut_off}")


@pytest.mark.parametrize("contents", [b"exit 7\n", b"\x01\x02\x03 neither"])
def test_a_program_of_no_known_format_is_refused(tmp_path, contents):
    program = program_of(tmp_path, contents)
    assert refused(program) == (
        f"[sim] command must be available but {program} is neither a program of this machine nor a script "
        f"with #! and an interpreter.\nFor a script, name its interpreter: -- sh {program}.\n"
    )


def made_up_python(folder, found):
    """Write a program python-made-up that prints `found` as JSON, the answer that find_torch_npu expects."""
    path = folder / "python-made-up"
    path.write_text(f"#!/bin/sh\necho '{json.dumps(found)}'\n")
    path.chmod(0o755)
    return path


def test_a_python_without_torch_npu_runs(tmp_path):
    python = made_up_python(tmp_path, {"torch": "/t", "torch_npu": None, "version": "unknown"})
    done = run_command("--", python, "script.py")
    assert done.exit_code == 0
    assert "no process used the simulated NPU" in done.stderr


def test_a_python_that_does_not_run_is_refused(tmp_path):
    python = made_up_python(tmp_path, {})
    python.write_text("#!/bin/sh\nexit 3\n")
    assert f"[sim] python must be available but {python} does not run" in run_command("--", python).stderr


def test_a_library_that_was_not_built_is_refused(tmp_path):
    python = made_up_python(tmp_path, {"torch": "/t", "torch_npu": "/n", "version": "1"})
    (tmp_path / "libascend_sim.so").symlink_to(folders.library("ascend_sim"))
    done = run_command("--", python, ASCEND_SIM_LIB_DIR=str(tmp_path))
    assert done.exit_code == 2
    assert f"[sim] libascend_sim_cann.so must be available but it was not found in {tmp_path}." in done.stderr
    assert len(done.stderr.splitlines()) == 2


def test_help_explains_the_simulation_and_the_exit_status():
    done = run_command("--help")
    assert done.exit_code == 0
    for words in ("simulated one", "HCCL", "guard zones", "Exit status", "ascend-sim run -- python train.py"):
        assert words in " ".join(done.stdout.split())


# ---- the command's Python ----------------------------------------------------------------------------


def test_the_python_is_the_command_s_own_or_that_on_the_path(tmp_path, monkeypatch):
    python = made_up_python(tmp_path, {})
    on_path = tmp_path / "python"
    on_path.symlink_to(sys.executable)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert find_torch_npu.python_of([str(python), "x.py"]) == str(python)
    assert find_torch_npu.python_of(["python-made-up"]) == str(python)
    script = tmp_path / "tool"
    for first, expected in (
        (f"#!{python}", str(python)),
        ("#!/usr/bin/env python-made-up", str(python)),
        ("#!/bin/sh", str(on_path)),
        ("\x7fELF", str(on_path)),
    ):
        script.write_text(first + "\n")
        script.chmod(0o755)
        assert find_torch_npu.python_of([str(script)]) == expected


# ---- the command's end -------------------------------------------------------------------------------


def end_of(*code):
    return session.run([sys.executable, "-c", *code], dict(os.environ))


def test_the_status_is_the_command_s():
    assert end_of("") == session.End(0, "")
    assert end_of("import sys; sys.exit(9)") == session.End(9, "")


@pytest.mark.parametrize("status", [130, 137])
def test_a_status_above_128_is_that_of_a_shell_whose_program_a_signal_ends(status):
    assert end_of(f"import sys; sys.exit({status})") == session.End(status, signal.Signals(status - 128).name)


def test_the_status_of_a_command_that_a_signal_ends_is_128_plus_its_number():
    killed = end_of("import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
    assert killed == session.End(128 + signal.SIGKILL, "SIGKILL")


@pytest.mark.parametrize(
    ("end", "expected"),
    [
        ("sys.exit(130)", "130 SIGTERM"),  # as npu-rope validate, which treats SIGTERM like Ctrl+C
        ("sys.exit(0)", "0 "),
        ("os.kill(os.getpid(), signal.SIGSEGV)", "139 SIGSEGV"),
    ],
)
def test_a_command_that_ends_at_a_forwarded_signal_was_ended_by_it(end, expected):
    child = (
        f"import os, signal, sys, time; signal.signal(signal.SIGTERM, lambda *_: {end});"
        "print('ready', flush=True); time.sleep(60)"
    )
    with run_in_process(child, "print(end.status, end.ended_by)") as process:
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGTERM)
        assert process.stdout.read() == expected + "\n"


def run_in_process(child, after):
    """Start a process that runs Python source as the command of a run, and then the statement `after`."""
    source = (
        "import os, sys; from ascend_sim.programs import session;"
        f"end = session.run([sys.executable, '-c', {child!r}], dict(os.environ)); {after}"
    )
    return subprocess.Popen(
        [sys.executable, "-c", source], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
    )


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1])
def test_a_signal_is_forwarded_and_the_run_waits_for_the_end(number):
    child = (
        f"import signal, sys, time; signal.signal({int(number)}, lambda *_: (time.sleep(0.2), sys.exit(33)));"
        "print('ready', flush=True); time.sleep(60)"
    )
    with run_in_process(child, "sys.exit(end.status)") as process:
        assert process.stdout.readline() == "ready\n"
        start = time.monotonic()
        process.send_signal(number)
        assert process.wait(60) == 33
        assert time.monotonic() - start < 30


@pytest.mark.long
@pytest.mark.parametrize("ignored", ["", "trap '' TERM; "])
@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not show the environment of processes")
def test_all_processes_of_the_command_end_with_a_run_that_is_killed(ignored):
    # Three generations; the last one is in a session of its own.
    sleeper = f"{ignored}echo ready; while true; do sleep 1; done"
    middle = f"import subprocess; subprocess.run(['sh', '-c', {sleeper!r}], start_new_session=True)"
    child = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {middle!r}])"
    with run_in_process(child, "") as process:
        assert process.stdout.readline() == "ready\n"
        start = time.monotonic()
        process.kill()
        assert process.stdout.read() == ""  # the pipe is open until the last of them ends
        assert time.monotonic() - start < 30


@pytest.mark.long
def test_processes_that_the_command_leaves_behind_run_on():
    source = "import subprocess; subprocess.Popen(['sh', '-c', 'sleep 1; echo late'])"
    with run_in_process(source, "print('end', flush=True)") as process:
        assert process.stdout.read() == "end\nlate\n"


# ---- the report --------------------------------------------------------------------------------------

RUNTIME = {
    "soc": "Ascend910B2", "ended": True, "launches": {"aclnnMul": 3}, "broken": [], "broken_launches": 0,
    "damage": [], "not_simulated": {}, "beyond_documents": {}, "bytes_not_freed": 10,
    "host_waits": {"aclrtSynchronizeStream": 2},
    "kernel_runs": [], "races": [], "race_count": 0, "freed": [], "failed_work": [],
    "failed_work_count": 0, "work_left": 0, "streams": "asynchronous", "seed": 7,
}  # fmt: skip


def report_of(folder, *processes, fallbacks=()):
    for number, found in enumerate(processes):
        (folder / f"{number}.runtime.json").write_text(json.dumps({**RUNTIME, **found}))
    for number, counted in enumerate(fallbacks):
        (folder / f"{number}.fallback.json").write_text(json.dumps({"fallbacks": counted}))
    return session.read_reports(folder, "Ascend910B2")


def lines_of(report):
    lines = []
    session.print_report(report, lines.append)
    return lines


def kernel(name, microseconds):
    return {"operator": name, "cores": 8, "cycles": 1850 * microseconds, "microseconds": microseconds}


def test_processes_are_added_up(tmp_path):
    broken = [{"operator": "Mine", "report": {"errors": [{"text": "UB-1 kernel.cpp:3, core 0: too far"}]}}]
    report = report_of(
        tmp_path,
        {"kernel_runs": [kernel("AddCustom", 1.5), kernel("AddQkCustom", 2.5), kernel("AddCustom", 2.5)]},
        {
            "launches": {"aclnnMul": 1, "Mine": 2},
            "broken": broken,
            "broken_launches": 2,
            "ended": False,
            "work_left": 5,
        },
        fallbacks=({"aten.exp.default": 2}, {"aten.exp.default": 3, "aten.mm.default": 1}),
    )
    assert report.launches == {"aclnnMul": 4, "Mine": 2}
    assert report.fallbacks == {"aten.exp.default": 5, "aten.mm.default": 1}
    assert not report.is_clean
    assert report.as_json()["bytes_not_freed"] == 20
    assert report.as_json()["host_waits"] == {"aclrtSynchronizeStream": 4}
    assert [(run["process"], run["begin"]) for run in report.timeline] == [(1, 0), (1, 1.5), (1, 4)]
    assert lines_of(report) == [
        "simulated Ascend910B2: nothing of this ran on hardware.",
        "processes: 2; seconds: 0.0",
        "1 of 2 processes ended without a final report.",
        "launches: 6 (aclnnMul 4, Mine 2)",
        "host fallbacks: 6 (aten.exp.default 5, aten.mm.default 1)",
        "queued work that never ran: 5; synchronize the device before the process ends",
        "simulated microseconds of kernels: 6.5 (AddCustom 4.0, AddQkCustom 2.5)",
        "launches with rule violations: 2",
        "  Mine: UB-1 kernel.cpp:3, core 0: too far",
        "streams: asynchronous, in a random order (--seed 7); races: none",
        "guard zones: no overrun seen; not checked at the end of every process",
    ]


def test_races_and_freed_memory_are_listed_and_not_clean(tmp_path):
    for number, found in enumerate(({"races": ["two streams"], "race_count": 3}, {"freed": ["too early"]})):
        folder = tmp_path / str(number)
        folder.mkdir()
        report = report_of(folder, found)
        assert not report.is_clean
        lines = lines_of(report)
        assert ("  two streams" in lines, "  too early" in lines) == (number == 0, number == 1)
        assert report.as_json()["race_count"] == (3 if number == 0 else 0)


def test_failed_work_is_listed_and_not_clean(tmp_path):
    texts = [f"aclnnIndexSelect: index must be in 0..3 but got {index}." for index in (9, 8)]
    failed = {"failed_work": texts, "failed_work_count": 300}
    report = report_of(tmp_path, failed, {"failed_work": ["HcclSend: failed."], "failed_work_count": 1})
    assert not report.is_clean
    lines = lines_of(report)
    first = lines.index("work that failed on a stream: 301")
    assert lines[first + 1 : first + 3] == [f"  {texts[0]} (1 more like it)", "  HcclSend: failed."]
    assert (report.as_json()["failed_work_count"], len(report.as_json()["failed_work"])) == (301, 3)


def test_errors_that_differ_in_numbers_are_listed_once(tmp_path):
    texts = [f"aclrtFree frees memory that stream {number}'s aclnnMul reads" for number in (3, 5, 6)]
    lines = lines_of(report_of(tmp_path, {"races": [*texts, "another race"], "race_count": 4}))
    races = lines[lines.index(next(line for line in lines if "races: 4" in line)) + 1 :][:2]
    assert races == [f"  {texts[0]} (2 more like it)", "  another race"]


def test_uses_of_freed_memory_are_one_line_for_each_function_that_uses_it_first(tmp_path):
    text = "{}: self is read from memory that was freed before the work ran (allocation {} of 64 bytes)."
    uses = [
        ("aclnnMul", 4),
        ("aclnnCos", 4),
        ("aclnnMul", 4),
        ("aclnnSin", 4),
        ("aclnnMul", 5),
        ("aclnnCos", 5),
    ]
    uses += [("aclnnSin", 5), ("aclnnExp", 6), ("aclnnMul", 7), ("aclnnTanh", 7), ("aclnnMul", 8)]
    lines = lines_of(report_of(tmp_path, {"freed": [text.format(*use) for use in uses]}))
    first = lines.index("uses of freed memory: 11")
    assert lines[first + 1 : first + 4] == [
        f"  {text.format('aclnnMul', 4)} Also used by aclnnCos, aclnnSin, aclnnTanh. (3 more like it)",
        f"  {text.format('aclnnExp', 6)}",
        "guard zones: intact",
    ]


def test_calls_beyond_the_documents_are_listed_and_clean(tmp_path):
    call = "aclnnExp on Ascend310P3: its document does not list the chip"
    report = report_of(tmp_path, {"beyond_documents": {call: 2}}, {"beyond_documents": {call: 1, "other": 1}})
    assert report.is_clean
    assert lines_of(report)[4:7] == [
        "calls beyond CANN's documents, which its sources accept: 4",
        f"  {call} (3 calls)",
        "  other (1 call)",
    ]
    assert report.as_json()["beyond_documents"] == {call: 3, "other": 1}


def test_memory_that_was_not_freed_is_no_error(tmp_path):
    report = report_of(tmp_path, {"bytes_not_freed": 4096})
    assert report.is_clean
    assert not any("4096" in line for line in lines_of(report))


def test_damage_is_listed_and_not_clean(tmp_path):
    report = report_of(tmp_path, {"damage": ["allocation 1 was overrun"]})
    assert not report.is_clean
    assert lines_of(report)[-2:] == ["guard zones: 1 overrun", "  allocation 1 was overrun"]


def test_long_lists_are_cut(tmp_path):
    report = report_of(tmp_path, {"launches": {f"op{n}": 20 - n for n in range(9)}})
    assert lines_of(report)[2] == "launches: 144 (op0 20, op1 19, op2 18, op3 17, op4 16, op5 15, and 3 more)"


def test_a_run_without_the_npu_is_reported_as_such(tmp_path):
    assert lines_of(report_of(tmp_path))[1:] == ["no process used the simulated NPU; seconds: 0.0"]


# ---- Python's start-up -------------------------------------------------------------------------------


def run_with_startup_folder(tmp_path, source, *folders):
    path = os.pathsep.join(map(str, [session.STARTUP, *folders]))
    environment = {**os.environ, "PYTHONPATH": path, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    return subprocess.run(
        [sys.executable, "-c", source],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )


def test_import_sitecustomize_gives_the_user_s_module(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "sitecustomize.py").write_text("mark = 5\n")
    source = (
        "import sys, sitecustomize; print(sitecustomize.mark, any(p.endswith('startup') for p in sys.path))"
    )
    done = run_with_startup_folder(tmp_path, source, tmp_path / "mine")
    assert (done.stdout, done.stderr) == ("5 False\n", "")


def test_an_error_in_the_user_s_sitecustomize_is_reported_as_by_python(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "sitecustomize.py").write_text("raise ValueError('mine')\n")
    done = run_with_startup_folder(tmp_path, "print('on')", tmp_path / "mine")
    assert done.stdout == "on\n"
    assert "ValueError: mine" in done.stderr


def test_the_fallback_is_installed_after_the_first_import_of_torch_npu(tmp_path):
    package = tmp_path / "site" / "torch_npu"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("print('torch_npu')\n")
    fake = tmp_path / "fake"
    fake.mkdir()
    (fake / "sitecustomize.py").write_text((session.STARTUP / "sitecustomize.py").read_text())
    (fake / "ascend_sim_fallback.py").write_text("def install(): print('installed')\n")
    source = "print('start'); import torch_npu; import torch_npu; print(torch_npu.__spec__.name)"
    environment = {**os.environ, "PYTHONPATH": f"{fake}:{tmp_path / 'site'}"}
    command = [sys.executable, "-c", source]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "start\ntorch_npu\ninstalled\ntorch_npu\n"


# ---- a full disk --------------------------------------------------------------------------------------

# Loads the runtime, and ends by its exit handlers. Its files have no room.
WITHOUT_ROOM = """
import ctypes, resource, signal, sys
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (10, 10))
ctypes.CDLL(sys.argv[1])
"""


@pytest.mark.parametrize("pages", [0, 2, 40])
def test_a_cache_without_room_is_named_and_left_empty(tmp_path, pages):
    """The program does not run."""
    command = [sys.executable, "-m", "ascend_sim.cli", "run", "--", sys.executable, "-c", "print(1)"]
    done = run_with_pages(tmp_path, pages, ["env", f"XDG_CACHE_HOME={tmp_path}", *command])
    assert (done.returncode, done.stdout, done.files) == (2, "", {"ascend-sim": ""})
    assert re.fullmatch(
        r"\[sim\] cache must be available but \S+/ascend-sim cannot be written: "
        r".*No space left on device.*\.\n"
        r"Name a folder one may write in: XDG_CACHE_HOME=PATH\.\n",
        done.stderr,
    ), done.stderr


def test_a_report_without_room_on_the_disk_makes_the_run_unclean(tmp_path):
    library = str(folders.library("ascend_sim_cann"))
    command = ("--report", tmp_path / "run.json", "--", sys.executable, "-c", WITHOUT_ROOM, library)
    done = subprocess.run(
        [sys.executable, "-m", "ascend_sim.cli", "run", *map(str, command)], capture_output=True, text=True
    )
    assert done.returncode == 1, done.stderr
    assert re.search(
        r"ASCEND_SIM_REPORT_DIR must be a folder one may write but got \S+: File too large\.", done.stderr
    )
    assert "reports that could not be written: 1; errors of their processes may be missing." in done.stderr
    report = json.loads((tmp_path / "run.json").read_text())
    assert (report["reports_lost"], report["processes"], report["exit_status"]) == (1, 0, 1)
    assert [path.name for path in tmp_path.iterdir()] == ["run.json"]
