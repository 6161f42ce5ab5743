"""tests/fuzz/random_runs.py: planted faults that it must find and simplify, processes that end or hang,
states of interrupted runs, and its errors. Another process runs the program, because it forks.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import random_operators
import random_runs
from choices import Choices, simplified, without_final_zeros

import npu_rope

FUZZ = Path(random_runs.__file__).parent
SPARSE = ["rotary_mul", "qk_square_sums"]


def start(arguments, fault=""):
    """Start the program. fault: Python code that runs before."""
    code = f"import os, signal, sys, time, npu_rope, random_runs, random_workers\n{fault}\n"
    # A shell's background processes ignore interrupts.
    code += "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
    code += "sys.exit(random_runs.main(sys.argv[1:]))"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(FUZZ), os.environ.get("PYTHONPATH", "")))}
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )


def run(arguments, fault=""):
    """Run the program; return its status, its output and its errors."""
    process = start(arguments, fault)
    output, errors = process.communicate(timeout=300)
    # QEMU reports the end of an emulated process.
    errors = re.sub(r"^qemu: uncaught target signal .*\n", "", errors, flags=re.M)
    return process.returncode, output, errors


def state_of(path):
    """Return the totals in a state file without their times."""
    operators = json.loads(path.read_text())["operators"]
    return {op: {**totals, "seconds": 0} for op, totals in operators.items()}


# ---- calls -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("op", random_operators.OPERATORS)
@pytest.mark.parametrize("name", ["cpu", "reference"])
def test_some_calls_of_each_operator_are_within_their_bounds(op, name):
    for index in range(12):
        call, made = random_operators.draw(op, 77, index, name)
        verdict = random_operators.judge(op, call, name)
        assert not verdict.problem, (random_operators.text(call), made)


@pytest.mark.parametrize("op", random_operators.OPERATORS)
def test_some_calls_of_each_operator_on_simulated_cores_are_within_their_bounds(op):
    for name, kinds in (
        ("sim", {"float32", "float16", "bfloat16", "int8"}),
        ("sim:ascend310p", {"float32", "float16", "int8"}),
    ):
        for index in range(4):
            call, _ = random_operators.draw(op, 78, index, name)
            assert not random_operators.judge(op, call, name).problem, random_operators.text(call)
            assert random_operators.kind(call) in kinds


@pytest.mark.parametrize("op", random_operators.OPERATORS)
def test_the_choices_of_a_call_make_the_same_call(op):
    for index in range(5):
        call, made = random_operators.draw(op, 5, index, "cpu")
        again, same = random_operators.draw(op, 5, index, "cpu", made)
        assert random_operators.text(again) == random_operators.text(call)
        assert same == made
        other, _ = random_operators.draw(op, 6, index, "cpu")
        assert random_operators.text(other) != random_operators.text(call)


def test_every_operator_of_the_package_has_random_calls():
    in_place = {
        "rope_",
        "rope_qk_",
        "rotary_mul_",
        "rotary_mul_qk_",
    }  # drawn as the kind of output "in place"
    others = {"BackendUnavailable", "ModelRope", "RopeMode", "RopeParams", "__version__"}
    assert set(random_operators.OPERATORS) == set(npu_rope.__all__) - in_place - others


@pytest.mark.parametrize(
    ("op", "name", "change"),
    [
        ("rotary_mul", "rotary_mul", lambda y: y * 1.001),
        ("rotary_mul_qk", "rotary_mul_qk", lambda y: (y[0], y[1] * 1.001)),
        ("rotary_mul_backward", "rotary_mul_backward", lambda y: (y[0], y[1], -y[2])),
        ("rotary_mul_backward", "rotary_mul_backward", lambda y: (y[0], y[1] * 1.01, y[2])),
        ("rotary_embedding", "rotary_embedding", lambda y: y * 1.001),
        ("rotary_position_embedding", "rotary_position_embedding", lambda y: (y[1], y[0])),
        ("rotary_position_embedding", "rotary_position_embedding", lambda y: (y[0], y[1] * 1.02)),
    ],
)
def test_wrong_results_of_rotations_by_tables_are_found(op, name, change, monkeypatch):
    original = getattr(npu_rope, name)
    monkeypatch.setattr(npu_rope, name, lambda *args, **options: change(original(*args, **options)))
    found = 0
    for index in range(30):
        call, _ = random_operators.draw(op, 7, index, "cpu")
        found += bool(random_operators.judge(op, call, "cpu").problem)
    assert found > 20


# ---- simplification --------------------------------------------------------------------------------


def test_choices_are_simplified_to_the_smallest_ones_that_fail():
    def fails(given):
        choices = Choices("x", given)
        sizes = [choices.integer(1, 1000) for _ in range(choices.integer(1, 5))]
        flags = [choices.chance(0.5) for _ in range(10)]
        return choices.made if max(sizes) >= 300 and flags[7] else None

    for number in range(200):
        choices = Choices(f"x{number}")
        sizes = [choices.integer(1, 1000) for _ in range(choices.integer(1, 5))]
        flags = [choices.chance(0.5) for _ in range(10)]
        if max(sizes) >= 300 and flags[7]:
            assert simplified(choices.made, fails) == [0, 299, *[0] * 7, 1]


def test_final_zeros_are_implied():
    assert without_final_zeros([1, 0, 2, 0, 0]) == [1, 0, 2]
    assert Choices("x", [3]).integer(0, 2) == 2
    given = Choices("x", [])
    assert [given.choice("ab"), given.below(9), given.chance(0.9)] == ["a", 0, False]


# ---- runs with planted faults ----------------------------------------------------------------------

WRONG_KERNEL = """
rope = npu_rope.rope
def wrong(x, *args, **options):
    y = rope(x, *args, **options)
    if x.shape[-1] > 40 and x.shape[-3] > 1:
        y[..., -1, -1, -1] += 1
    return y
npu_rope.rope = wrong
"""
ENDS = """
rotary_mul, rotary_embedding = npu_rope.rotary_mul, npu_rope.rotary_embedding
def crash(x, *args, **options):
    if options["interleaved"] and x.shape[-2] == 3:
        os.kill(os.getpid(), signal.SIGSEGV)
    return rotary_mul(x, *args, **options)
npu_rope.rotary_mul = crash
def leave(x, *args, **options):
    if x.ndim == 3:
        os._exit(3)
    return rotary_embedding(x, *args, **options)
npu_rope.rotary_embedding = leave
"""
HANGS = """
random_workers.MOST_SECONDS = 10
rotary_mul_qk = npu_rope.rotary_mul_qk
def hang(q, *args, **options):
    if q.shape[-1] == 200:
        time.sleep(1000)
    return rotary_mul_qk(q, *args, **options)
npu_rope.rotary_mul_qk = hang
"""


@pytest.mark.long
def test_a_wrong_kernel_is_found_and_its_call_is_simplified():
    status, output, errors = run(["--op", "rope", "--count", 100, "--jobs", 2], WRONG_KERNEL)
    assert (status, errors) == (1, "")
    assert "WRONG rope" in output
    assert "times its bound at" in output
    simplest = re.search(r"^simplest: (.*)$\n.*\n  python (\S+) (.*)$", output, re.M)
    # 48 is the first head size above 40
    assert re.match(r"rope \[2, 1, 48\] float32, RopeParams\(n_dims=48.*mode=normal", simplest[1]), simplest[
        1
    ]
    assert simplest[1].endswith("positions [S] int32 run, numpy")
    assert Path(simplest[2]).name == "random_runs.py"
    status, output, _ = run(simplest[3].split(), WRONG_KERNEL)
    assert status == 1
    assert simplest[1] in output
    assert run(simplest[3].split())[0] == 0


def calls_with(op, condition, count):
    """Return the indexes of the first calls that meet the condition, which takes x or q and the options."""
    drawn = [random_operators.draw(op, 0, index, "cpu")[0] for index in range(count)]
    return [index for index, call in enumerate(drawn) if condition(call.xs[0], call.options)]


@pytest.mark.long
def test_calls_that_end_their_process_are_violations_and_do_not_stop_the_run(tmp_path):
    path, ops = tmp_path / "state", ["rotary_mul", "rotary_embedding"]
    arguments = [*(f"--op={op}" for op in ops), "--count", 60, "--jobs", 2, "--state", path]
    status, output, errors = run(arguments, ENDS)
    assert (status, errors) == (1, "")
    crashes = calls_with("rotary_mul", lambda x, o: o["interleaved"] and x.shape[-2] == 3, 60)
    exits = calls_with("rotary_embedding", lambda x, o: x.ndim == 3, 60)
    for op, indexes, problem in (
        ("rotary_mul", crashes, "signal SIGSEGV ended the process"),
        ("rotary_embedding", exits, "the process ended with status 3"),
    ):
        totals = state_of(path)[op]
        assert totals["next"] == 60
        assert totals["kinds"]["no result"] == len(indexes) > 2
        assert [failure["index"] for failure in totals["failures"]] == indexes
        assert {failure["problem"] for failure in totals["failures"]} == {problem}
        assert f"WRONG {op} {indexes[0]}: {problem}" in output
    simplest = re.findall(r"^simplest: (.*)$", output, re.M)
    first = "rotary_mul float32 [[1, 1, 3, 2]] dense, tables float32[1, 1] dense, out new"
    assert simplest[0].startswith(first), simplest[0]


PAUSES = """
from types import SimpleNamespace
clock = SimpleNamespace(seconds=0.0)
random_workers.time = SimpleNamespace(monotonic=lambda: clock.seconds)
def waits(*steps):
    worker = random_workers.Worker("cpu", 0, [])
    worker.is_ready, worker.job, worker.at.value = True, object(), 7
    worker._replace = lambda problem: problem
    for seconds in (0.1, *steps):
        clock.seconds += seconds
        found = worker._hang()
    worker.process.kill()
    return found
print(waits(*[9.0] * 60, 5000.0), waits(*[9.0] * 67))
sys.exit()
"""


@pytest.mark.long
def test_time_in_which_the_run_itself_is_stopped_does_not_count():
    """A pause of 5,000 seconds counts as 10."""
    _, output, errors = run([], PAUSES)
    assert errors == ""
    assert output == "None no result after 600 seconds\n"


@pytest.mark.long
def test_a_call_that_hangs_is_a_violation_and_does_not_stop_the_run(tmp_path):
    path = tmp_path / "state"
    indexes = calls_with("rotary_mul_qk", lambda q, o: q.shape[-1] == 200, 30)
    status, output, errors = run(
        ["--op", "rotary_mul_qk", "--count", 30, "--jobs", 2, "--state", path], HANGS
    )
    assert (status, errors) == (1, "")
    failures = state_of(path)["rotary_mul_qk"]["failures"]
    assert [failure["index"] for failure in failures] == indexes
    assert indexes
    assert {failure["problem"] for failure in failures} == {"no result after 10 seconds"}
    assert "not simplified" in output


STARTS_SLOWLY = """
find = random_workers.backends.find
random_workers.backends.find = lambda name: time.sleep(0.5) or find(name)
worker = random_workers.Worker("cpu", 0, [])
worker.pipe.close()
worker.process.join(60)
sys.exit(worker.process.exitcode)
"""


@pytest.mark.long
def test_a_process_that_is_no_longer_needed_when_it_is_ready_ends_without_a_word():
    assert run([], STARTS_SLOWLY) == (0, "", "")


ENDS_BETWEEN_CALLS = """
import random_operators
give, ends = random_workers.Worker.give, []
def kill_first(self, job):
    if self.is_ready and job.begin == 50 and len(ends) < COUNT:
        ends.append(job)
        self.process.kill()
        self.process.join()
    give(self, job)
random_workers.Worker.give = kill_first
"""
NEVER_BEGINS = """
def leave(*arguments):
    os._exit(3)
random_workers.run = leave
"""


@pytest.mark.long
def test_a_process_that_ends_between_calls_is_replaced(tmp_path):
    path = tmp_path / "state"
    fault = (
        ENDS_BETWEEN_CALLS.replace("COUNT", "1") + "import atexit\natexit.register(lambda: print(len(ends)))"
    )
    status, output, errors = run(["--op", "rotary_mul", "--count", 100, "--jobs", 1, "--state", path], fault)
    assert (status, errors) == (0, "")
    assert "OK: 100 calls on cpu, seed 0: 0 violations\n1\n" in output
    assert state_of(path)["rotary_mul"]["failures"] == []


@pytest.mark.long
@pytest.mark.parametrize("arguments", [["--count", "100"], ["--only", "3"]])
def test_a_run_ends_if_no_process_begins_a_call(arguments):
    status, _, errors = run(["--op", "rotary_mul", "--jobs", 1, *arguments], NEVER_BEGINS)
    assert status == 2
    problem = "the process ended with status 3 before a call, 3 times in a row"
    assert errors == f"random_runs.py: {problem}\n"


# ---- states ----------------------------------------------------------------------------------------

OFTEN = "random_runs.SECONDS_BETWEEN_SAVES = 0.05"


@pytest.mark.long
def test_an_interrupted_run_ends_with_the_totals_of_one_run(tmp_path):
    one, pieces = tmp_path / "one", tmp_path / "pieces"
    ops = [f"--op={op}" for op in SPARSE]
    assert run([*ops, "--count", 400, "--jobs", 1, "--state", one])[0] == 0
    process = start([*ops, "--count", 400, "--jobs", 3, "--state", pieces], OFTEN)
    while process.poll() is None:
        is_written = pieces.exists() and pieces.stat().st_size > 0
        if is_written and any(totals["next"] for totals in state_of(pieces).values()):
            process.send_signal(signal.SIGINT)
            break
        time.sleep(0.01)
    output, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (130, "")
    left = int(re.search(r"([\d,]+) calls are left", output)[1].replace(",", ""))
    assert 0 < sum(totals["next"] for totals in state_of(pieces).values()) == 800 - left < 800
    status, output, _ = run([*ops, "--count", 300, "--minutes", 0, "--state", pieces])
    assert status == 0
    status, output, _ = run([*ops, "--count", 400, "--jobs", 2, "--state", pieces])
    assert status == 0
    assert "OK: 800 calls on cpu, seed 0: 0 violations\n" in output
    assert state_of(pieces) == state_of(one)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["one", "pieces"]


def a_state(path, **changed):
    settings = {"backend": "cpu", "seed": 0, "arrays": list(random_operators.ARRAYS)}
    settings["draws"] = random_runs.version_of_draws()
    totals = random_runs.Totals(next=3, kinds={"float32": 3}, worst=0.5, worst_at=1)
    path.write_text(random_runs.State({**settings, **changed}, {"rope": totals}).text())
    return path


def test_a_run_that_ended_before_its_first_save_is_continued(tmp_path):
    path = tmp_path / "state"
    path.touch()
    status, output, errors = run(["--op", "rope", "--count", 2, "--jobs", 1, "--state", path])
    assert (status, errors) == (0, "")
    assert state_of(path)["rope"]["next"] == 2
    assert "2 calls" in output


BROKEN = {
    "torn": (lambda text: text[: len(text) // 2], "must be a file of an earlier run"),
    "blank": (lambda text: "\n", "must be a file of an earlier run"),
    "of another program": (lambda text: "[]", "must be a file of an earlier run"),
    "without a field": (
        lambda text: text.replace('"worst_at"', '"worst_as"'),
        "must be a file of an earlier run",
    ),
    "with other totals": (lambda text: text.replace('"next": 3', '"next": 4'), "the totals of rope"),
    "of an unknown operator": (lambda text: text.replace('"rope"', '"rape"'), "the totals of rape"),
    "of another version": (
        lambda text: text.replace('"version": 2', '"version": 1'),
        "must be a file of a run with version 2 but",
    ),
    "of another seed": (lambda text: text.replace('"seed": 0', '"seed": 2'), "with seed 0 but"),
    "of another back end": (lambda text: text.replace('"cpu"', '"sim"'), "with backend cpu but"),
    "with settings that are a list": (
        lambda text: re.sub(r'"settings": {.*?}', '"settings": ["cpu"]', text, flags=re.DOTALL),
        "must be a file of an earlier run",
    ),
    "with operators that are a list": (
        lambda text: re.sub(r'"operators": {.*}', '"operators": [1]}', text, flags=re.DOTALL),
        "must be a file of an earlier run",
    ),
    "with failures that are numbers": (
        lambda text: text.replace('"failures": []', '"failures": [1]'),
        "must be a file of an earlier run",
    ),
    "with a failure without a problem": (
        lambda text: text.replace('"failures": []', '"failures": [{"index": 1, "call": "", "choices": []}]'),
        "must be a file of an earlier run",
    ),
    "with a text as the worst ratio": (
        lambda text: text.replace('"worst": 0.5', '"worst": "0.5"'),
        "must be a file of an earlier run",
    ),
    "with a number of calls that is no integer": (
        lambda text: text.replace(": 3", ": 3.0"),
        "the totals of rope",
    ),
    "with a ratio that is not finite": (lambda text: text.replace("0.5", "NaN"), "the totals of rope"),
    "with nested lists": (lambda text: "[" * 100_000, "must be a file of an earlier run"),
    "of other draws": (lambda text: re.sub('"draws": "..', '"draws": "zz', text), "with draws "),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_or_foreign_state_is_refused_and_kept(name, tmp_path, capsys):
    change, message = BROKEN[name]
    path = a_state(tmp_path / "state")
    path.write_text(change(path.read_text()))
    before = path.read_text()
    assert random_runs.main(["--op", "rope", "--count", "3", "--state", str(path)]) == 2
    assert message in capsys.readouterr().err
    assert path.read_text() == before


@pytest.mark.long
def test_an_earlier_violation_still_counts_and_is_judged_again(tmp_path):
    path = a_state(tmp_path / "state")
    content = json.loads(path.read_text())
    failure = {"index": 2, "problem": "1.5 times its bound", "call": "rope", "choices": [0]}
    content["operators"]["rope"]["failures"].append(failure)
    path.write_text(json.dumps(content))
    status, output, errors = run(["--op", "rope", "--count", 5, "--state", path])
    assert (status, errors) == (1, "")
    assert "not simplified: alone, the call does not fail" in output
    assert "FAIL: 5 calls on cpu, seed 0: 1 violations\n" in output


def test_a_correct_state_is_read(tmp_path):
    path = a_state(tmp_path / "state")
    settings = json.loads(path.read_text())["settings"]
    file = random_runs.StateFile(path)
    assert random_runs.load_state(file, settings).operators["rope"].next == 3
    file.close()


def test_a_state_that_is_no_regular_file_is_refused(capsys):
    assert random_runs.main(["--state", "/dev/zero"]) == 2
    assert "--state must be a regular file but got /dev/zero\n" in capsys.readouterr().err


def test_a_planted_link_is_not_written_through(tmp_path):
    """The name of the file that replaces the state cannot be guessed."""
    path, victim = tmp_path / "state", tmp_path / "victim"
    victim.write_text("kept")
    path.touch(mode=0o640)
    (tmp_path / f"state.{os.getpid()}").symlink_to(victim)
    file = random_runs.StateFile(path)
    file.save("{}")
    file.close()
    assert (victim.read_text(), path.read_text()) == ("kept", "{}")
    assert not path.is_symlink()
    assert path.stat().st_mode & 0o777 == 0o640


@pytest.mark.long
def test_a_second_run_with_the_same_state_is_refused(tmp_path):
    path = tmp_path / "state"
    first = start(["--op", "rope", "--count", 10**6, "--jobs", 1, "--state", path], OFTEN)
    try:
        while first.poll() is None and not (path.exists() and path.stat().st_size):
            time.sleep(0.01)
        for _ in range(3):  # the first run replaces the file meanwhile
            status, output, errors = run(["--op", "rope", "--count", 3, "--state", path])
            assert (status, output) == (2, "")
            assert errors == f"random_runs.py: --state must be a file that no other run uses but got {path}\n"
        first.send_signal(signal.SIGINT)
        output, errors = first.communicate(timeout=60)
        assert (first.returncode, errors) == (130, "")
    finally:
        first.kill()
        first.communicate()
    done = state_of(path)["rope"]["next"]
    assert f" {done:,} calls on cpu" in output
    assert run(["--op", "rope", "--count", done + 3, "--state", path])[0] == 0
    assert [found.name for found in tmp_path.iterdir()] == ["state"]


@pytest.mark.long
def test_a_state_that_does_not_fit_on_the_disk_is_refused_and_the_old_one_is_kept(tmp_path):
    path = tmp_path / "state"
    small = "import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))\n"
    small += "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)"
    for before in (None, a_state(tmp_path / "old").read_text()):
        if before is not None:
            path.write_text(before)
        status, output, errors = run(["--op", "rope", "--count", 3, "--state", path], small)
        wanted = f"--state must be a file that one may write but {path} gave: File too large"
        assert (status, output, errors) == (2, "", f"random_runs.py: {wanted}\n")
        assert (path.read_text() if path.exists() else None) == before
    assert sorted(found.name for found in tmp_path.iterdir()) == ["old", "state"]


@pytest.mark.parametrize("folder", ["none", "file"])
def test_a_state_in_a_missing_folder_is_refused(folder, tmp_path, capsys):
    (tmp_path / "file").touch()
    path = tmp_path / folder / "state"
    assert random_runs.main(["--state", str(path)]) == 2
    assert f"--state must be in a folder that exists but got {path}\n" in capsys.readouterr().err


def test_a_state_that_is_a_link_to_nothing_is_refused(tmp_path, capsys):
    path = tmp_path / "state"
    path.symlink_to(tmp_path / "nothing")
    assert random_runs.main(["--state", str(path)]) == 2
    assert f"--state must be no link that leads nowhere but got {path}\n" in capsys.readouterr().err


# ---- usage -----------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize(("name", "message"), [("abacus", "backend must be one of"), ("npu", "npu")])
def test_a_back_end_that_is_unknown_or_unavailable_ends_with_2(name, message):
    status, output, errors = run(["--backend", name, "--count", 3])
    assert (status, output) == (2, "")
    assert message in errors
    assert "Traceback" not in errors


@pytest.mark.parametrize(
    "arguments",
    [
        ["--count", "-1"],
        ["--only", "3"],
        ["--only", "3", "--op", "rope", "--op", "rope_qk"],
        ["--only", "3", "--op", "rope", "--state", "x"],
        ["--only", "3", "--op", "rope", "--choices", "1,x"],
        ["--only", "3", "--op", "rope", "--choices", "1,-1"],
        ["--only", "3", "--op", "rope", "--choices", "1,"],
        ["--only", "3", "--op", "rope", "--choices", "9" * 19],
        ["--choices", "1"],
        ["--jobs", "0"],
        ["--jobs", "100000"],
        ["--minutes", "nan"],
        ["--minutes", "-1"],
        ["--op", "norm"],
        ["--cou", "3"],
    ],
)
def test_invalid_options_end_with_2(arguments, capsys):
    with pytest.raises(SystemExit) as ended:
        random_runs.main(arguments)
    assert ended.value.code == 2
    assert "usage: random_runs.py" in capsys.readouterr().err


def test_help_has_examples_and_the_exit_status(capsys):
    with pytest.raises(SystemExit) as ended:
        random_runs.main(["--help"])
    assert ended.value.code == 0
    output = capsys.readouterr().out
    assert "--count 1000000 --state cpu.json" in output
    assert "exit status" in output


def test_numbers_do_not_depend_on_the_choices():
    first, second = Choices("a"), Choices("a", [])
    assert np.array_equal(first.numbers().random(5), second.numbers().random(5))
    assert not np.array_equal(first.numbers().random(5), Choices("b").numbers().random(5))
