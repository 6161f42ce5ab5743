"""Operators in processes with threads, interrupts, and an interpreter that ends while threads call.

Each test runs a program in a process of its own, so that its first calls are the first ones of the process.
"""

import signal
import subprocess
import sys

import pytest

pytestmark = pytest.mark.long

WITH_TORCH = pytest.param("torch", marks=pytest.mark.torch)
KINDS = ["numpy", WITH_TORCH, "sim"]  # what calls: NumPy or torch on the CPU, or NumPy on the simulator
# At exit, torch removes the operators that Python registered (_del_library of torch.library). A thread that
# calls one at this time ends the process by a segmentation fault, so a program must join its threads before.
KINDS_WITH_DAEMONS = ["numpy", "sim"]

DEFINITIONS = """
import itertools, os, signal, sys, threading, time
kind = sys.argv[1]
if kind == "torch":
    import torch
else:
    sys.modules["torch"] = None
import numpy as np
from npu_rope import RopeParams, rms_norm, rope, rope_set_rows

TOKENS, HEADS, D = (8, 2, 64) if kind == "sim" else (512, 8, 64)
BACKEND = "sim" if kind == "sim" else "cpu"
PARAMS = RopeParams(D)

def given(array):
    return torch.from_numpy(array) if kind == "torch" else array

x = given(np.sin(np.arange(TOKENS * HEADS * D, dtype=np.float32)).reshape(TOKENS, HEADS, D))
positions, scale = given(np.arange(TOKENS)), given(np.ones(D, np.float32))

def call():
    rotated = rope(x, positions, PARAMS, backend=BACKEND)
    return np.asarray(rms_norm(rotated, scale, backend=BACKEND)).tobytes()
"""


def run(kind, program, timeout=120):
    """Run the program and return its standard output. It must end with status 0 and print no error."""
    command = [sys.executable, "-W", "error", "-c", DEFINITIONS + program, kind]
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.mark.parametrize("kind", KINDS)
def test_threads_that_make_the_first_calls_at_once_get_the_same_results(kind):
    program = """
results, start = [], threading.Barrier(8)
def first_call():
    start.wait()
    results.append(call())
threads = [threading.Thread(target=first_call) for _ in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(len(results), set(results) == {call()})
"""
    assert run(kind, program) == "8 True\n"


@pytest.mark.parametrize("kind", KINDS)
def test_an_error_is_that_of_its_own_thread(kind):
    """Threads with wrong arguments run beside threads whose calls succeed."""
    program = """
wrong, start = [], threading.Barrier(4)
def call_repeatedly(number):
    start.wait()
    for _ in range(20):
        try:
            rope(x, positions[:TOKENS - number], PARAMS, backend=BACKEND)
            message = ""
        except ValueError as error:
            message = str(error)
        expected = f"[{TOKENS - number}]" if number else ""
        if expected not in message or bool(expected) != bool(message):
            wrong.append(message)
threads = [threading.Thread(target=call_repeatedly, args=[number]) for number in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(wrong)
"""
    assert run(kind, program) == "[]\n"


@pytest.mark.parametrize("repeat", range(3))
@pytest.mark.parametrize("kind", KINDS_WITH_DAEMONS)
def test_the_interpreter_ends_while_daemon_threads_call(kind, repeat):
    program = """
called = threading.Semaphore(0)
def call_forever():
    while True:
        call()
        called.release()
for _ in range(4): threading.Thread(target=call_forever, daemon=True).start()
for _ in range(12): called.acquire()
print("end")
"""
    assert run(kind, program) == "end\n"


@pytest.mark.parametrize("kind", KINDS)
def test_calls_after_the_end_of_the_main_thread_and_in_exit_handlers_succeed(kind):
    program = """
import atexit
expected = call()
atexit.register(lambda: print("exit handler", call() == expected))
def call_later():
    threading.main_thread().join()
    print("thread", all(call() == expected for _ in range(5)))
threading.Thread(target=call_later).start()
"""
    assert run(kind, program) == "thread True\nexit handler True\n"


@pytest.mark.parametrize("kind", KINDS)
def test_an_interrupt_leaves_a_whole_result_and_calls_continue(kind):
    """A KeyboardInterrupt comes between two calls of the library, never in the middle of a result.

    Each call writes its number into all elements of the cache. After an interrupt, they are the result of one
    call. The interrupts come at different times after the begin of the calls.
    """
    program = """
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background processes ignore interrupts
cache, rows = given(np.zeros((TOKENS, HEADS, D), np.float32)), given(np.arange(TOKENS))
zeros, ones = given(np.zeros(TOKENS, np.int64)), given(np.ones((TOKENS, HEADS, D), np.float32))
expected = call()
interrupts = 0
for delay in range(20):
    timer = threading.Timer(0.002 + delay * 0.0007, os.kill, (os.getpid(), signal.SIGINT))
    calls = 0
    try:
        timer.start()
        for calls in itertools.count(1):
            rope_set_rows(ones * calls, zeros, rows, cache, PARAMS, backend=BACKEND)
    except KeyboardInterrupt:
        interrupts += 1
    timer.join()
    values = set(np.unique(np.asarray(cache)).tolist())
    assert len(values) == 1 and values <= {calls - 1, calls}, (values, calls)
    assert call() == expected
    np.asarray(cache)[:] = 0
print(interrupts)
"""
    assert run(kind, program) == "20\n"


@pytest.mark.parametrize("kind", KINDS_WITH_DAEMONS)
def test_an_interrupt_that_nothing_handles_ends_the_process_beside_other_threads(kind):
    program = """
for _ in range(2): threading.Thread(target=lambda: [call() for _ in itertools.count()], daemon=True).start()
call()
print("ready", flush=True)
while True: call()
"""
    command = [sys.executable, "-c", DEFINITIONS + program, kind]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    ) as process:
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert errors.endswith("KeyboardInterrupt\n")
    assert process.returncode == -signal.SIGINT


@pytest.mark.parametrize("kind", ["numpy", WITH_TORCH])
def test_a_signal_handler_may_call(kind):
    """The handler runs between two instructions of Python, also of those inside a call.

    The simulator is left out: it does not nest calls (ascend_sim_begin_host_calls), so the outer call fails.
    """
    program = """
expected, in_handler = call(), []
def handle(*_): in_handler.append(call() == expected)
signal.signal(signal.SIGALRM, handle)
right = []
for number in range(20):
    signal.setitimer(signal.ITIMER_REAL, 0.0002 * (number + 1))
    right.append(call() == expected)
    while len(in_handler) <= number: time.sleep(0.001)
print(all(right), all(in_handler), len(in_handler))
"""
    assert run(kind, program) == "True True 20\n"


@pytest.mark.torch
@pytest.mark.parametrize("name", ["rope", "rope_qk", "rms_norm", "rms_norm_rope", "rotary_mul"])
def test_an_interrupt_leaves_gradients_enabled(name):
    """If a function disables gradients before the statement that enables them again, 20 of 1,000 interrupts
    leave them disabled."""
    program = f"""
from npu_rope import rms_norm_rope, rope_qk, rotary_mul
signal.signal(signal.SIGALRM, signal.default_int_handler)
q, w = torch.ones(1, 1, 2, 64, requires_grad=True), torch.ones(64, requires_grad=True)
one, ones = torch.arange(1), torch.ones(1, 64)
calls = {{
    "rope": lambda: rope(q, one, PARAMS),
    "rope_qk": lambda: rope_qk(q, q, one, PARAMS),
    "rms_norm": lambda: rms_norm(q, w),
    "rms_norm_rope": lambda: rms_norm_rope(q, q, w, w, one, PARAMS),
    "rotary_mul": lambda: rotary_mul(q, ones, ones),
}}
call = calls["{name}"]
call()
enabled = 0
for number in range(1000):
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.0001 + number % 100 * 2e-6)
        while True: call()
    except KeyboardInterrupt:
        enabled += torch.is_grad_enabled()
        torch.set_grad_enabled(True)
print(enabled)
"""
    assert run("torch", program) == "1000\n"
