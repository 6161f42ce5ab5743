"""A launch: its cores, their orders, its options and its outputs."""

from __future__ import annotations

import ctypes as C
import re
import shlex
import shutil
import signal
import struct
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import ascend_sim
import mini_kernels
import numpy as np
import pytest
from ascend_sim import In, InOut, KernelBroken, Options, Out, Part, Sum, compiler, library
from mini_kernels import claims
from test_rules import launch

HAZARDS = [c for c in claims() if c.breaks and c.stem == "hazards" and c.rule.startswith("SIM-HAZARD")]


def floats(value=0.0, count=4096):
    return np.full(count, value, np.float32)


# ---- cores and orders ------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize("block_dim", [1, 2, 47, 48, 49, 200])
def test_every_block_runs_even_if_there_are_more_blocks_than_cores(compiled, block_dim):
    y = floats(count=8 * block_dim)
    compiled("reports", "number_of_each_core").run(In(floats()), Out(y), block_dim=block_dim)
    assert np.array_equal(y, np.repeat(np.arange(block_dim) + 1, 8))


def test_one_order_does_not_detect_that_the_result_depends_on_it(compiled):
    kernel = compiled("cores", "float_sum_of_three_cores")
    y = floats()
    kernel.run(In(floats()), InOut(y), block_dim=3, options=Options(one_order=True))
    assert (y[:9] == [1] * 8 + [0]).all()  # ascending: (1e8 - 1e8) + 1
    with pytest.raises(KernelBroken, match="SIM-CORE-04"):
        kernel.run(In(floats()), InOut(y), block_dim=3)


def test_a_sum_may_depend_on_the_order_of_cores_and_a_copy_may_not(compiled):
    y = floats()
    compiled("cores", "float_sum_of_three_cores").run(In(floats()), Sum(y), block_dim=3)
    assert (y[:9] == [1] * 8 + [0]).all()  # as in ascending order
    with pytest.raises(KernelBroken, match="SIM-CORE-01"):
        compiled("cores", "cores_write_over_each_other").run(In(floats()), Sum(y), block_dim=2)


@pytest.mark.long
def test_launches_do_not_affect_each_other(compiled):
    kernel = compiled("initialised", "reallocated_buffer")
    for _ in range(2):
        with pytest.raises(KernelBroken, match="SIM-INIT-01"):
            kernel.run(In(floats()), Out(floats()))
    compiled("initialised", "add_of_written_memory").run(In(floats()), Out(floats()))


def test_threads_launch_in_parallel_and_each_has_its_own_report(compiled):
    good, bad = compiled("reports", "number_of_each_core"), compiled("reports", "broken_on_core_two")

    def run_one(n):
        y = floats(count=8 * 64)
        if n % 2:
            return bad.run(In(floats()), Out(y), block_dim=3 + n, check=False).errors[0]["core"] == 2
        good.run(In(floats()), Out(y), block_dim=1 + n)
        return (y[: 8 * (1 + n)] == np.repeat(np.arange(1 + n) + 1, 8)).all()

    with ThreadPoolExecutor(4) as threads:
        assert all(threads.map(run_one, range(40)))


def test_a_scalar_read_of_what_the_first_instruction_of_a_thread_wrote_needs_an_invalid_cache(compiled):
    """Instructions are numbered by thread."""
    kernel = compiled("scalar_gm", "scalar_read_of_a_copy_of_unwritten_memory")
    options = Options(lenient=("SIM-INIT-01",))
    with ThreadPoolExecutor(1) as threads:
        found = threads.submit(kernel.run, In(floats()), Part(floats()), check=False, options=options)
    assert [e["rule"] for e in found.result().errors] == ["SIM-GM-03"]


# ---- kernels that do not return ---------------------------------------------------------------------------

ENDS = """
import sys, ascend_sim, numpy as np
kernel = ascend_sim.Kernel(sys.argv[1], sys.argv[2], "ascend910b")
print("launched", flush=True)
kernel.run(ascend_sim.Part(np.zeros(8, np.float32)), ascend_sim.Part(np.zeros(8, np.float32)), block_dim=3)
print("returned")
"""


@pytest.mark.long
@pytest.mark.parametrize(
    ("kernel", "function"),
    [
        ("exit_of_the_last_core", "exit"),
        ("exit_without_handlers_of_the_last_core", "_Exit"),
        ("exit_of_unix_of_the_last_core", "_exit"),
        ("quick_exit_of_the_last_core", "quick_exit"),
    ],
)
def test_a_kernel_that_calls_exit_does_not_end_the_process_as_if_it_had_succeeded(
    kernel, function, kernel_folder
):
    library = ascend_sim.build(mini_kernels.source("ends"), flags=["-O0"], folder=kernel_folder)
    command = [sys.executable, "-c", ENDS, str(library), kernel]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (1, "launched\n")
    # Both orders of the cores may reach it at the same time.
    (line,) = set(done.stderr.splitlines())
    text = f"kernel:0, core 2, kernel: the kernel {kernel} calls {function}: the process ends."
    assert line == f"[sim] SIM-END-01 {text}"


def test_a_kernel_that_aborts_ends_the_process_by_its_signal(kernel_folder):
    library = ascend_sim.build(mini_kernels.source("ends"), flags=["-O0"], folder=kernel_folder)
    command = [sys.executable, "-c", ENDS, str(library), "abort_of_the_last_core"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGABRT, "launched\n", "")


@pytest.mark.parametrize(
    ("kernel", "number", "core"),
    [
        ("division_by_zero_of_the_last_core", signal.SIGFPE, 2),
        ("endless_recursion", signal.SIGSEGV, None),
        ("address_outside_all_memory", signal.SIGSEGV, None),
    ],
)
@pytest.mark.parametrize("handler", ["", "import faulthandler; faulthandler.enable()\n"])
def test_a_kernel_that_faults_ends_the_process_after_a_message(kernel, number, core, handler, kernel_folder):
    library = ascend_sim.build(mini_kernels.source("ends"), flags=["-O0"], folder=kernel_folder)
    command = [sys.executable, "-c", handler + ENDS, str(library), kernel]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (-number, "launched\n")
    at = r"\d" if core is None else core
    cause = "a division of integers by zero"
    if number == signal.SIGSEGV:
        cause = "an address outside all memory or endless recursion"
    text = f"the kernel {kernel} faults ({number.name}, as by {cause}): the process ends."
    # A signal for which the program has a handler is the program's.
    message = rf"\[sim\] SIM-END-01 kernel:0, core {at}, kernel: {re.escape(text)}\n"
    assert (re.match(message, done.stderr) is None) == bool(handler)
    assert ("Fatal Python error" in done.stderr) == bool(handler)


@pytest.mark.parametrize(
    "sends", ["os.kill(os.getpid(), {})", "signal.raise_signal({})", "os.abort() if {} else 0"]
)
def test_a_signal_that_is_sent_after_a_launch_ends_the_process(sends, kernel_folder):
    library = ascend_sim.build(mini_kernels.source("ends"), flags=["-O0"], folder=kernel_folder)
    number = signal.SIGABRT if "abort" in sends else signal.SIGSEGV
    code = ENDS + "import os, signal\n" + sends.format(int(number)) + "\nprint('survived')\n"
    command = [sys.executable, "-c", code, str(library), "exit_of_no_core"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (-number, "launched\nreturned\n", "")


def test_a_fault_is_reported_after_the_handlers_were_replaced(kernel_folder):
    """Also inside malloc(), whose lock the thread holds, and at the second launch."""
    library = ascend_sim.build(mini_kernels.source("ends"), flags=["-O0"], folder=kernel_folder)
    code = ENDS.replace("kernel.run", "first.run", 1) + (
        "import signal\nfor n in (signal.SIGSEGV, signal.SIGFPE): signal.signal(n, signal.SIG_DFL)\n"
        "kernel.run(ascend_sim.Part(np.zeros(8, np.float32)), ascend_sim.Part(np.zeros(8, np.float32)))\n"
    )
    code = code.replace(
        "print(", 'first = ascend_sim.Kernel(sys.argv[1], "exit_of_no_core", "ascend910b")\nprint(', 1
    )
    for kernel, number in (
        ("fault_inside_malloc_of_the_kernel", signal.SIGSEGV),
        ("endless_recursion", signal.SIGSEGV),
    ):
        command = [sys.executable, "-c", code, str(library), kernel]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert (done.returncode, done.stdout) == (-number, "launched\nreturned\n"), done.stderr
        assert done.stderr.startswith("[sim] SIM-END-01 kernel:0, core 0, kernel: the kernel ")


def test_a_fault_inside_malloc_of_another_thread_ends_the_process(kernel_folder):
    library = ascend_sim.build(mini_kernels.source("ends"), flags=["-O0"], folder=kernel_folder)
    command = [sys.executable, "-c", ENDS, str(library), "fault_inside_malloc_of_a_thread"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGSEGV, "launched\n", "")


# A handler that calls the one that was there before it.
CALLING_HANDLER = """
#include <csignal>
#include <unistd.h>
static struct sigaction previous;
static void handle(int number, siginfo_t* info, void* context) {
    if (write(2, "handled\\n", 8) < 0) return;
    if (previous.sa_flags & SA_SIGINFO) previous.sa_sigaction(number, info, context);
    else sigaction(number, &previous, nullptr);
}
extern "C" void install(int number) {
    struct sigaction own = {};
    own.sa_sigaction = handle;
    own.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigaction(number, &own, &previous);
}
"""


@pytest.mark.parametrize("launches_again", [False, True])
@pytest.mark.parametrize("handler", ["faulthandler", "of C"])
def test_a_handler_that_was_installed_after_a_launch_runs_once(
    handler, launches_again, kernel_folder, tmp_path
):
    library = ascend_sim.build(mini_kernels.source("ends"), flags=["-O0"], folder=kernel_folder)
    install, handled = "import faulthandler; faulthandler.enable()", "Fatal Python error"
    if handler == "of C":
        (tmp_path / "handler.cpp").write_text(CALLING_HANDLER)
        command = [*shlex.split(compiler.compiler()), "-shared", "-fPIC", "handler.cpp", "-o", "handler.so"]
        subprocess.run(command, cwd=tmp_path, check=True)
        install = f"import ctypes; ctypes.CDLL('{tmp_path}/handler.so').install({int(signal.SIGSEGV)})"
        handled = "handled\n"
    first = 'ascend_sim.Kernel(sys.argv[1], "exit_of_no_core", "ascend910b").run(*map(ascend_sim.Part, X))'
    code = f"import sys, ascend_sim, numpy as np\nX = np.zeros((2, 8), np.float32)\n{first}\n{install}\n"
    # One core is launched once. Of two orders of several cores, both would fault.
    code += f"{first}\n" * launches_again + ENDS.replace("block_dim=3", "block_dim=1")
    command = [sys.executable, "-c", code, str(library), "address_outside_all_memory"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (-signal.SIGSEGV, "launched\n")
    message = "[sim] SIM-END-01 kernel:0, core 0, kernel: the kernel address_outside_all_memory faults"
    # That of Python raises the signal again, after which nothing tells whose fault it was.
    assert (done.stderr.count(message), done.stderr.count(handled)) == (handler == "of C", 1)


FORKS = """
import os, sys, threading, ascend_sim, numpy as np
def run(name, **options):
    kernel = ascend_sim.Kernel(sys.argv[1], name, "ascend910b")
    kernel.run(*map(ascend_sim.Part, np.zeros((2, 8), np.float32)), **options)
run("exit_of_no_core")
thread = threading.Thread(target=run, args=["second_without_instructions"])
thread.start()
if child := os.fork():
    thread.join()
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
else:
    for blocks in (1, 2, 3):
        run("exit_of_no_core", block_dim=blocks)
        other = threading.Thread(target=run, args=["exit_of_no_core"])
        other.start()
        other.join()
    run(sys.argv[2])
    os._exit(7)
"""


@pytest.mark.parametrize(
    ("kernel", "status"), [("exit_of_no_core", 7), ("address_outside_all_memory", -signal.SIGSEGV)]
)
def test_a_fork_while_a_kernel_runs_launches_and_reports_faults(kernel, status, kernel_folder):
    library = ascend_sim.build(mini_kernels.source("ends"), flags=["-O0"], folder=kernel_folder)
    command = [sys.executable, "-W", "ignore", "-c", FORKS, str(library), kernel]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, f"{status}\n"), done.stderr
    assert done.stderr.count("faults (SIGSEGV") == (status < 0)


# A handler that installs itself over every other, and then installs the other again for it.
INSISTING_HANDLER = """
#include <csignal>
static struct sigaction previous;
static void handle(int number, siginfo_t*, void*) { sigaction(number, &previous, nullptr); }
extern "C" void ensure() {
    struct sigaction current = {};
    sigaction(SIGSEGV, nullptr, &current);
    if (current.sa_sigaction == handle) return;
    previous = current;
    struct sigaction own = {};
    own.sa_sigaction = handle;
    own.sa_flags = SA_SIGINFO;
    sigaction(SIGSEGV, &own, nullptr);
}
extern "C" void fault() { *reinterpret_cast<volatile int*>(16) = 1; }
"""


def test_a_handler_that_insists_does_not_loop_with_the_simulators(kernel_folder, tmp_path):
    library = ascend_sim.build(mini_kernels.source("ends"), flags=["-O0"], folder=kernel_folder)
    (tmp_path / "handler.cpp").write_text(INSISTING_HANDLER)
    command = [*shlex.split(compiler.compiler()), "-shared", "-fPIC", "handler.cpp", "-o", "handler.so"]
    subprocess.run(command, cwd=tmp_path, check=True)
    code = (
        "import ctypes, sys, ascend_sim, numpy as np\nhandler = ctypes.CDLL(sys.argv[2])\n"
        'kernel = ascend_sim.Kernel(sys.argv[1], "exit_of_no_core", "ascend910b")\n'
        "for _ in range(3):\n"
        "    kernel.run(*map(ascend_sim.Part, np.zeros((2, 8), np.float32)))\n    handler.ensure()\n"
        "handler.fault()\n"
    )
    command = [sys.executable, "-c", code, str(library), str(tmp_path / "handler.so")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGSEGV, "", "")


# A handler that maps memory at the address of the fault and returns, as those of garbage collectors do.
MENDING_HANDLER = """
#include <csignal>
#include <cstdint>
#include <sys/mman.h>
static void handle(int, siginfo_t* info, void*) {
    volatile char more_than_the_stack_for_faults[200000];
    more_than_the_stack_for_faults[0] = more_than_the_stack_for_faults[199999] = 1;
    void* const page = reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(info->si_addr) & ~uintptr_t(4095));
    mmap(page, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
}
extern "C" void install() {
    struct sigaction own = {};
    own.sa_sigaction = handle;
    own.sa_flags = SA_SIGINFO;
    sigaction(SIGSEGV, &own, nullptr);
}
extern "C" int write_to_a_page_that_faults() {
    void* const page = mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return *static_cast<volatile int*>(page) = 7;
}
"""
MENDS = """
import ctypes, signal, sys, threading, ascend_sim, numpy as np
handler = ctypes.CDLL(sys.argv[3])
if sys.argv[4] == "before":
    handler.install()
def run(name):
    kernel = ascend_sim.Kernel(sys.argv[1], name, "ascend910b")
    kernel.run(*map(ascend_sim.Part, np.zeros((2, 8), np.float32)))
run("exit_of_no_core")
if sys.argv[4] == "after":
    handler.install()
    run("exit_of_no_core")
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
signal.pthread_kill(threading.get_ident(), signal.SIGTERM)
for _ in range(3):
    print(handler.write_to_a_page_that_faults(), flush=True)
print(signal.sigwait({signal.SIGTERM}).name, flush=True)
run(sys.argv[2])
print("returned")
"""


@pytest.mark.parametrize("installed", ["before", "after"])
def test_faults_that_a_program_handles_are_its_own(installed, kernel_folder, tmp_path):
    """Its other signals are pending meanwhile, and its handler uses much of its stack."""
    kernel = "division_by_zero_of_the_last_core"
    library = ascend_sim.build(mini_kernels.source("ends"), flags=["-O0"], folder=kernel_folder)
    (tmp_path / "handler.cpp").write_text(MENDING_HANDLER)
    command = [*shlex.split(compiler.compiler()), "-shared", "-fPIC", "handler.cpp", "-o", "handler.so"]
    subprocess.run(command, cwd=tmp_path, check=True)
    command = [sys.executable, "-c", MENDS, str(library), kernel, str(tmp_path / "handler.so"), installed]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert (done.returncode, done.stdout) == (-signal.SIGFPE, "7\n7\n7\nSIGTERM\n"), done.stderr
    message = f"the kernel {kernel} faults (SIGFPE, as by"
    assert (done.stderr.count(message), done.stderr.count("\n")) == (1, 1)


EXITING_HANDLER = """
#include <csignal>
#include <cstdlib>
static void handle(int) { std::exit(3); }
extern "C" void install() {
    struct sigaction own = {};
    own.sa_handler = handle;
    own.sa_flags = SA_ONSTACK;
    sigaction(SIGTERM, &own, nullptr);
}
"""


def test_a_handler_may_end_the_process_after_a_launch(kernel_folder, tmp_path):
    library = ascend_sim.build(mini_kernels.source("ends"), flags=["-O0"], folder=kernel_folder)
    (tmp_path / "handler.cpp").write_text(EXITING_HANDLER)
    command = [*shlex.split(compiler.compiler()), "-shared", "-fPIC", "handler.cpp", "-o", "handler.so"]
    subprocess.run(command, cwd=tmp_path, check=True)
    code = "import ctypes, signal\n" + ENDS + "ctypes.CDLL(sys.argv[3]).install()\n"
    code += "signal.pthread_kill(__import__('threading').get_ident(), signal.SIGTERM)\n"
    command = [sys.executable, "-c", code, str(library), "exit_of_no_core", str(tmp_path / "handler.so")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert (done.returncode, done.stderr) == (3, "")


def test_sigterm_ends_a_loop_without_instructions(kernel_folder):
    """Python handles Ctrl+C when the launch returns, so a signal without a handler must end it."""
    library = ascend_sim.build(mini_kernels.source("ends"), flags=["-O0"], folder=kernel_folder)
    command = [sys.executable, "-c", ENDS, str(library), "loop_without_instructions"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "launched\n"
        time.sleep(0.5)  # until the launch
        process.send_signal(signal.SIGINT)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(1)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == -signal.SIGTERM


def test_an_exception_of_one_core_ends_the_others_and_the_next_launch_works(compiled):
    y = floats(7)
    with pytest.raises(KernelBroken, match=r"core 1, .*an exception leaves the kernel exception_of_core_one"):
        compiled("ends", "exception_of_core_one").run(In(floats()), InOut(y), block_dim=3)
    assert (y == 7).all()
    z = floats(count=8 * 3)
    compiled("reports", "number_of_each_core").run(In(floats()), Out(z), block_dim=3)
    assert np.array_equal(z, np.repeat(np.arange(3) + 1, 8))


# ---- outputs ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("role", [Out, InOut, Sum])
def test_a_broken_rule_leaves_outputs_as_they_were(compiled, role):
    y = floats(7)
    with pytest.raises(KernelBroken, match="SIM-EVENT-05"):
        compiled("reports", "broken_after_its_output").run(In(floats()), role(y))
    assert (y == 7).all()


def test_unwritten_elements_of_an_output_keep_their_values(compiled):
    y = floats(7)
    compiled("reports", "number_of_each_core").run(In(floats()), Out(y))
    assert y[:9].tolist() == [1] * 8 + [7]


def test_bytes_behind_an_output_keep_their_values(compiled):
    whole = floats(7, count=16)
    compiled("reports", "number_of_each_core").run(In(floats()), Out(whole[:8]))
    assert whole.tolist() == [1] * 8 + [7] * 8


def test_each_output_with_unwritten_bytes_is_reported(compiled):
    """One line may have written the last bytes of several outputs."""
    report = compiled("initialised", "part_of_two_outputs").run(Out(floats(), "x"), Out(floats(), "y"))
    assert [re.search(r"GM `(\w)`", w["text"])[1] for w in report.warnings] == ["x", "y"]
    assert {(w["rule"], w["core"]) for w in report.warnings} == {("SIM-INIT-03", 0)}


def test_a_gap_in_an_output_names_the_core_that_wrote_before_it(compiled):
    y = floats(count=8 * 40)
    report = compiled("initialised", "gap_of_one_core").run(In(floats()), Out(y, "y"), block_dim=3)
    assert [(w["rule"], w["core"]) for w in report.warnings] == [("SIM-INIT-03", 1)]


def test_inputs_do_not_change(compiled):
    x, y = floats(7), floats()
    report = compiled("scalar_gm", "input_written").run(
        In(x), Out(y), check=False, options=Options(lenient=("SIM-GM-01",))
    )
    assert report.errors == []
    assert (x == 7).all()


# ---- tiling and workspace ------------------------------------------------------------------------------


def test_the_kernel_reads_the_tiling_struct(compiled):
    y = floats()
    compiled("tiling", "fill_by_tiling").run(In(floats()), Out(y), tiling=struct.pack("<IfQ", 40, 2.5, 0))
    assert (y[:41] == [2.5] * 40 + [0]).all()


@pytest.mark.parametrize("passed", [0, 15, 17, 64])
def test_a_tiling_struct_must_have_the_size_that_the_host_passed(compiled, passed):
    with pytest.raises(
        KernelBroken, match=rf"SIM-TILING-01 .* the struct has 16 bytes but the host passed {passed}\."
    ):
        compiled("tiling", "fill_by_tiling").run(In(floats()), Out(floats()), tiling=bytes(passed))


def test_the_workspace_has_the_size_of_the_launch(compiled):
    y = floats()
    kernel = compiled("tiling", "through_the_workspace")
    kernel.run(In(floats()), Out(y), block_dim=4, workspace_bytes=4 * 32)
    assert (y[:32] == np.repeat(np.arange(4), 8)).all()
    with pytest.raises(
        KernelBroken, match=r"SIM-BOUNDS-03 .* \[96, 128\) of GM tensor `workspace`, which has 96\."
    ):
        kernel.run(In(floats()), Out(y), block_dim=4, workspace_bytes=96)


@pytest.mark.long
def test_elements_of_ub_are_read_and_written_by_reference(compiled):
    y = floats()
    compiled("scalars", "scalars_of_all_sorts").run(In(floats()), Out(y), workspace_bytes=64)
    assert y[:8].tolist() == [1, 2, 0, 3, 1.5, 24, 0, 1]


def test_elements_of_gm_are_read_and_written_by_reference(compiled):
    y, x = floats(), np.arange(1, 1 + floats().size, dtype=np.float32)
    compiled("scalars", "global_elements_by_reference").run(In(x), Out(y), workspace_bytes=64)
    assert y[:10].tolist() == [*(2 * x[:8]).tolist(), 64, 1]
    assert y[10:11].view(np.float16).tolist() == [3, 0]


def test_a_store_by_reference_of_the_value_that_the_element_already_has_is_a_write(compiled):
    y = np.zeros(64, np.int32)
    compiled("scalars", "references_to_fresh_elements").run(In(floats()), Out(y))
    assert y[:9].tolist() == [0] * 9


# ---- switches --------------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize("claim", HAZARDS, ids=str)
def test_auto_sync_inserts_only_the_compiler_s_synchronisation(compiled, claim):
    inserted = (
        claim.rule in {"SIM-HAZARD-02", "SIM-HAZARD-03"} or claim.entry == "read_of_what_a_scalar_writes"
    )
    report = launch(compiled, claim, options=Options(auto_sync=True))
    assert [e["rule"] for e in report.errors] == ([] if inserted else [claim.rule])


def test_a_launch_with_auto_sync_computes_its_result(compiled):
    x, y = np.arange(4096, dtype=np.float32), floats()
    kernel = compiled("reports", "written_for_auto_sync")
    kernel.run(In(x), Out(y), options=Options(auto_sync=True))
    assert y[:64].tolist() == [102, *range(2, 128, 2)]
    with pytest.raises(KernelBroken, match="SIM-HAZARD-02"):
        kernel.run(In(x), Out(y))


@pytest.mark.parametrize(("saturate", "end"), [(False, -np.inf), (True, -65504)])
def test_half_overflows_or_saturates(compiled, saturate, end):
    y = np.zeros(8192, np.float16)
    compiled("reports", "half_overflow").run(In(floats()), Out(y), options=Options(saturate=saturate))
    assert (y[:64] == end).all()
    assert (y[64:128] == 40000).all()


# ---- kernels by the names of their entries ---------------------------------------------------------------


@pytest.fixture(scope="module")
def two_entries(tmp_path_factory):
    """A library with the entries sum and sum__ascend910b__float_half."""
    folder = tmp_path_factory.mktemp("entries")
    names = ("sum", "sum__ascend910b__float_half")
    (folder / "sum.cpp").write_text("".join(f'extern "C" void {name}() {{}}\n' for name in names))
    command = [*compiler.compiler().split(), "-shared", "-fPIC", str(folder / "sum.cpp")]
    subprocess.run([*command, "-o", str(folder / "entries.so")], check=True)
    return folder / "entries.so"


def found_kernel(folder, entry):
    find = library.load().lib["ascend_sim_find_kernel"]
    find.restype = C.c_void_p
    return find(str(folder).encode(), entry.encode())


def address_in(path, entry):
    return C.cast(C.CDLL(str(path))[entry], C.c_void_p).value


@pytest.mark.parametrize(
    ("entry", "name"), [("sum__ascend910b__float_half", "ascend910b.so"), ("sum", "sum.so")]
)
def test_a_kernel_is_found_in_its_soc_s_library(two_entries, monkeypatch, tmp_path, entry, name):
    monkeypatch.delenv("ASCEND_SIM_KERNELS", raising=False)
    assert found_kernel(tmp_path, entry) is None
    shutil.copy(two_entries, tmp_path / name)
    assert found_kernel(tmp_path, entry) == address_in(tmp_path / name, entry)


def test_an_empty_part_of_the_list_of_replacements_names_no_library(two_entries, monkeypatch, tmp_path):
    monkeypatch.setenv("ASCEND_SIM_KERNELS", f":{two_entries}")
    assert found_kernel(tmp_path, "sum") == address_in(two_entries, "sum")
