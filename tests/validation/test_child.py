"""A child process that ends: how it ended, and the last lines that it printed."""

import os
import sys

import pytest

from npu_rope.testing.child import OUTPUT_BYTES, Child, ChildEnded

# Answers the length of a list of Python statements after it has run them.
_SCRIPT = """
import ctypes, os, signal, sys
sys.modules["torch"] = None  # its import takes a second
from npu_rope.testing.child import answer_pipe, receive, send
answers = answer_pipe()
libc = ctypes.CDLL(None)
while True:
    statements = receive(sys.stdin.buffer)
    for statement in statements:
        exec(statement)
    send(answers, len(statements))
"""
PRINT_IN_C = "libc.printf(b'from C\\n')"
PRINT = "print('from Python')"
PRINT_ERROR = "print('to stderr', file=sys.stderr)"


@pytest.fixture
def child(monkeypatch):
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)  # it has an effect on C's stdout too
    with Child(["-c", _SCRIPT]) as process:
        yield process


def test_a_child_answers_and_keeps_what_it_prints_apart(child):
    assert child.call([PRINT_IN_C, PRINT, PRINT_ERROR]) == 3
    assert child.output_of_call() == ("from C", "from Python", "to stderr")
    assert child.call([PRINT]) == 1
    assert child.output_of_call() == ("from Python",)


@pytest.mark.native
@pytest.mark.parametrize(
    ("statement", "end"),
    [
        ("os.abort()", "SIGABRT"),
        ("os._exit(3)", "exit status 3"),
        ("os.kill(os.getpid(), signal.SIGKILL)", "SIGKILL"),
        ("ctypes.string_at(0)", "SIGSEGV"),
    ],
)
def test_the_end_has_its_name_and_the_order_of_the_lines(child, statement, end):
    child.call([PRINT])
    with pytest.raises(ChildEnded, match=f"^{end}: from C$") as raised:
        child.call([PRINT_ERROR, PRINT, PRINT_IN_C, statement])
    assert raised.value.output == ("from Python", "to stderr", "from Python", "from C")


def test_a_line_of_an_earlier_request_is_not_the_reason(child):
    child.call([PRINT])
    with pytest.raises(ChildEnded, match=r"^exit status 0: without output$") as raised:
        child.call(["os._exit(0)"])
    assert raised.value.output == ("from Python",)


def test_a_child_that_fails_to_start_says_why():
    process = Child(["-c", "raise SystemExit('no such library')"])
    with pytest.raises(ChildEnded, match=r"^exit status 1: no such library$"):
        process.call([])


@pytest.mark.native
def test_the_last_part_of_a_long_output_is_kept(child):
    count = OUTPUT_BYTES // len("line 0000000\n") + 1000
    with pytest.raises(ChildEnded) as raised:
        child.call([f"for i in range({count}): print(f'line {{i:07}}')", "os.abort()"])
    lines = raised.value.output
    assert lines[-1] == f"line {count - 1:07}"
    assert len("\n".join(lines)) <= OUTPUT_BYTES
    assert len(lines) > OUTPUT_BYTES // len("line 0000000\n") - 2


@pytest.mark.native
def test_bytes_that_are_no_text_are_kept(child):
    with pytest.raises(ChildEnded) as raised:
        child.call([r"os.write(2, b'caf\xe9 \x00\n')", "os.abort()"])
    assert raised.value.output == ("caf\ufffd \x00",)


# ---- a worker that forks -------------------------------------------------------------------------------

# Runs a list of statements, and answers the number of its calls, its process and the parent of it.
_FORKING_SCRIPT = """
import atexit, ctypes, os, signal, sys
sys.modules["torch"] = None
from npu_rope.testing import child
libc = ctypes.CDLL(None)
def start():
    calls = 0
    def answer(statements):
        nonlocal calls
        calls += 1
        for statement in statements:
            exec(statement)
        return calls, os.getpid(), os.getppid()
    return answer
child.serve(start)
"""
only_with_forks = pytest.mark.skipif(sys.platform != "linux", reason="only Linux forks")


@pytest.fixture
def forking():
    with Child(["-c", _FORKING_SCRIPT]) as process:
        yield process


@only_with_forks
@pytest.mark.native
@pytest.mark.parametrize(
    ("statement", "end"),
    [("os.abort()", "SIGABRT"), ("os._exit(0)", "exit status 0"), ("ctypes.string_at(0)", "SIGSEGV")],
)
def test_another_fork_answers_after_one_that_ended(forking, statement, end):
    count, first, worker = forking.call([PRINT])
    assert count == 1
    with pytest.raises(ChildEnded, match=f"^{end}: to stderr$") as raised:
        forking.call([PRINT_ERROR, statement])
    assert raised.value.output == ("from Python", "to stderr")
    assert forking.is_open
    count, second, same_worker = forking.call([PRINT_IN_C])
    assert (count, same_worker) == (1, worker)
    assert second != first
    assert forking.output_of_call() == ("from C",)
    with pytest.raises(ChildEnded) as raised:
        forking.call([statement])
    assert raised.value.output == ("from C",)


@only_with_forks
def test_a_fork_is_ended_and_runs_its_exit_functions(forking, tmp_path):
    file = tmp_path / "ended"
    forking.end()  # nothing has begun
    begin, _, worker = forking.call([f"atexit.register(open, {str(file)!r}, 'w')"])
    assert forking.call([])[0] == begin + 1
    assert not file.exists()
    forking.end()
    assert file.exists()
    forking.end()
    assert forking.call(["os.write(2, b'x')"])[::2] == (1, worker)
    assert forking.output_of_call() == ("x",)


@only_with_forks
def test_the_end_of_the_input_ends_the_worker_and_its_fork(forking):
    _, fork, worker = forking.call([])
    forking.close()
    assert not forking.is_open
    for process in (fork, worker):
        with pytest.raises(ProcessLookupError):
            os.kill(process, 0)


@only_with_forks
def test_the_end_of_the_worker_itself_is_reported(forking):
    with pytest.raises(ChildEnded, match=r"^SIGKILL: without output$"):
        forking.call(["os.kill(os.getppid(), signal.SIGKILL)", "os._exit(0)"])
    assert not forking.is_open


def test_a_worker_that_does_not_fork_is_closed_by_its_end():
    with Child(
        ["-c", _FORKING_SCRIPT.replace("child.serve", "child._FORKS = False; child.serve")]
    ) as process:
        count, _, parent = process.call([])
        assert (count, parent) == (1, os.getpid())
        process.end()
        assert not process.is_open
