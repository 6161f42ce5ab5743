"""A child process that ends: how it ended, and the last lines that it printed."""

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


def test_the_last_part_of_a_long_output_is_kept(child):
    count = OUTPUT_BYTES // len("line 0000000\n") + 1000
    with pytest.raises(ChildEnded) as raised:
        child.call([f"for i in range({count}): print(f'line {{i:07}}')", "os.abort()"])
    lines = raised.value.output
    assert lines[-1] == f"line {count - 1:07}"
    assert len("\n".join(lines)) <= OUTPUT_BYTES
    assert len(lines) > OUTPUT_BYTES // len("line 0000000\n") - 2


def test_bytes_that_are_no_text_are_kept(child):
    with pytest.raises(ChildEnded) as raised:
        child.call([r"os.write(2, b'caf\xe9 \x00\n')", "os.abort()"])
    assert raised.value.output == ("caf\ufffd \x00",)
