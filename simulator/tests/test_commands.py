"""The commands of ascend-sim: help, output, exit status, and refusals, which write nothing."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
import tracemalloc
from pathlib import Path

import ascend_sim
import numpy as np
import pytest
import typer
from ascend_sim import folders
from ascend_sim.cli.app import app
from ascend_sim.cli.arguments import new_array, read_array, tiling_of
from ascend_sim.programs import session
from typer.testing import CliRunner

ADD = Path(__file__).parents[1] / "examples" / "add_custom.cpp"
VECTORS = ("in:float32[1003]", "in:float32[1003]", "out:float32[1003]")
TILING = ("--tiling", "uint32_t=1003,uint32_t=128")
WITH_REFERENCE = (*VECTORS, *TILING, "--block-dim", 8, "--reference", "numpy:add")


def ascend_sim_command(*arguments, **variables):
    return CliRunner(env={"COLUMNS": "200", **variables}).invoke(app, [*map(str, arguments)])


def add(*arguments):
    return ascend_sim_command("kernel", ADD, "add_custom", *arguments)


def files():
    return sorted(str(path) for path in Path().rglob("*"))


@pytest.fixture(autouse=True)
def in_temporary_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def timeline(tmp_path_factory):
    """The timeline of a launch on two cores."""
    file = tmp_path_factory.mktemp("timeline") / "add.json"
    done = add(*WITH_REFERENCE, "--trace", file, "--cores", 2)
    assert done.exit_code == 0, done.stderr
    return file


# ---- help and usage ----------------------------------------------------------------------------------

HELP = {
    (): ("run", "kernel", "trace", "doctor", "--version"),
    ("run",): ("--soc", "--streams", "--seed", "--report", "Exit status", "ascend-sim run -- python"),
    ("kernel",): (
        "ROLE:DTYPE[SIZES]",
        "--block-dim",
        "--tiling",
        "--reference",
        "--definition",
        "Exit status",
    ),
    ("program",): ("--output", "--auto-sync", "Exit status", "ascend-sim program add.asc"),
    ("toolkit",): ("set_env.sh", "securec.h", "Exit status", "ascend-sim toolkit cann"),
    ("trace",): ("critical path", "--plot", "--json", "Exit status"),
    ("doctor",): ("how to get the missing ones", "Exit status"),
}


@pytest.mark.parametrize("command", HELP, ids=" ".join)
def test_help_names_options_and_exit_status(command):
    done = ascend_sim_command(*command, "--help")
    assert (done.exit_code, done.stderr) == (0, "")
    assert f"Usage: ascend-sim {' '.join(command)}".strip() in done.stdout
    assert [words for words in HELP[command] if words not in done.stdout] == []


@pytest.mark.parametrize("command", HELP, ids=" ".join)
def test_a_terminal_of_80_columns_shows_the_lines_of_help_as_written(command):
    described = typer.main.get_command(app)
    for name in command:
        described = described.commands[name]
    done = ascend_sim_command(*command, "--help", COLUMNS="80")
    shown = {line.strip() for line in done.stdout.splitlines()}
    assert [line for line in described.help.splitlines() if line.strip() not in shown] == []


def test_missing_typer_is_named_with_a_remedy():
    code = "import sys; sys.modules['typer'] = None; from ascend_sim.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "pip install 'ascend-sim[cli]'" in done.stderr


@pytest.mark.parametrize("module", ["ascend_sim", "ascend_sim.cli"])
def test_the_app_and_the_module_print_the_version(module):
    command = [sys.executable, "-m", module, "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == ascend_sim_command("--version").stdout == f"ascend-sim {ascend_sim.__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nosuch"], "No such command 'nosuch'"),
        (["kernel"], "Missing argument 'source'"),
        (["kernel", ADD], "[sim] entry must name the __global__ function but got nothing."),
        (["kernel", ADD, "add_custom", "--block-dim", 0], "'--block-dim'"),
        (["kernel", ADD, "add_custom", "--nosuch"], "No such option: --nosuch"),
        (["trace"], "Missing argument 'file'"),
        (["trace", "a.json", "b.json"], "unexpected extra argument"),
        (["doctor", "extra"], "unexpected extra argument"),
        (["run", "--nosuch"], "No such option: --nosuch"),
    ],
    ids=lambda value: "" if isinstance(value, list) else value,
)
def test_wrong_usage_is_reported_on_standard_error(arguments, words):
    done = ascend_sim_command(*arguments)
    assert (done.exit_code, done.stdout) == (2, "")
    assert words in done.stderr
    assert files() == []


# ---- kernel ------------------------------------------------------------------------------------------


@pytest.mark.long
def test_a_kernel_is_compared_with_its_reference():
    done = add(*WITH_REFERENCE)
    assert (done.exit_code, done.stderr) == (0, ""), done.stderr
    assert "add_custom.cpp: add_custom" in done.stdout
    assert done.stdout.splitlines()[-1] == "equal to numpy:add"
    assert files() == []


@pytest.mark.parametrize(
    ("block_dim", "line"),
    [(1, "1\n"), (8, "8; the slowest is core "), (50, "48, which run 50 blocks; the slowest is block ")],
)
def test_cores_and_blocks_are_counted(block_dim, line):
    done = add(*VECTORS, *TILING, "--block-dim", block_dim)
    assert (done.exit_code, done.stderr) == (0, "")
    assert f"cores     {line}" in done.stdout


def test_results_are_written_and_the_report_is_json():
    x, y = np.arange(1003, dtype=np.float32), np.ones(1003, np.float32)
    np.save("x.npy", x)
    np.save("y.npy", y)
    done = add("in:x.npy", "in:y.npy", "out:float32[1003]=z.npy", *TILING, "--json")
    assert done.exit_code == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["cycles"] > 0
    assert (report["warnings"], report["difference"]) == ([], None)
    assert np.array_equal(np.load("z.npy"), x + y)
    assert files() == ["x.npy", "y.npy", "z.npy"]


IDENTITY = """
#include "kernel_operator.h"
using namespace AscendC;
extern "C" __global__ __aicore__ void same(GM_ADDR x, GM_ADDR y, GM_ADDR workspace, GM_ADDR tiling) {
    TPipe pipe;
    TBuf<> buffer;
    pipe.InitBuffer(buffer, 512);
    LocalTensor<TYPE> t = buffer.Get<TYPE>();
    GlobalTensor<TYPE> in, out;
    in.SetGlobalBuffer((__gm__ TYPE*)x, 64);
    out.SetGlobalBuffer((__gm__ TYPE*)y, 64);
    DataCopy(t, in, 64);
    PipeBarrier<PIPE_ALL>();
    DataCopy(out, t, 64);
}
"""


def test_a_full_disk_during_a_compilation_is_named(tmp_path):
    script = tmp_path / "full.sh"
    script.write_text("#!/bin/sh\necho 'cc1plus: fatal error: x.s: No space left on device' >&2\nexit 1\n")
    script.chmod(0o755)
    command = [sys.executable, "-m", "ascend_sim", "kernel", ADD, "add_custom", *VECTORS, *TILING]
    done = subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, "CXX": str(script)}, check=False
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "[ascend-sim] output must fit on the disk but got: No space left on device.\n"


@pytest.mark.long
@pytest.mark.parametrize("dtype", ["int64", "uint64"])
@pytest.mark.parametrize("difference", [0, 1])
def test_integers_of_64_bits_are_compared_exactly(dtype, difference, monkeypatch):
    monkeypatch.syspath_prepend(".")
    Path("same.cpp").write_text(IDENTITY)
    Path("exact.py").write_text(f"def {dtype}_{difference}(x): return x + x.dtype.type({difference})\n")
    np.save("x.npy", np.full(64, np.iinfo(dtype).max - 1, dtype))
    sys.modules.pop("exact", None)
    done = ascend_sim_command(
        "kernel", "same.cpp", "same", "in:x.npy", f"out:{dtype}[64]", "-D", f"TYPE={dtype}_t", "--reference",
        f"exact:{dtype}_{difference}",
    )  # fmt: skip
    assert done.exit_code == difference, done.stderr
    assert not difference or "must be at most 0 but got 1." in done.stderr


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (
            "def f(x, y) return x",
            "must be MODULE:FUNCTION but bad_reference raises SyntaxError: expected ':'",
        ),
        ("1 / 0", "must be MODULE:FUNCTION but bad_reference raises ZeroDivisionError: division by zero."),
        ("import sys\nsys.exit(0)", "must be MODULE:FUNCTION but bad_reference exits with 0."),
        ("def f(x, y): raise SystemExit", "must return its results but exits with None."),
        ("def f(x, y): return int('a')", "must return its results but raises ValueError: invalid literal "),
        ("def f(x): return x", "must return its results but raises TypeError: f() takes 1 positional"),
        ("def f(x, y): return x + 1j", "must return real numbers but got complex64."),
        ("def f(x, y): return [['a'] * 1003]", "must return real numbers but got <U1."),
        ("def f(x, y): return [['7'] * 1003]", "must return real numbers but got <U1."),
        ("def f(x, y): return x.astype('M8[D]')", "must return real numbers but got datetime64[D]."),
        ("def f(x, y): return {}['z']", "must return its results but raises KeyError: 'z' ("),
    ],
)
def test_a_reference_that_returns_no_numbers_is_refused(code, message, monkeypatch):
    monkeypatch.syspath_prepend(".")
    Path("bad_reference.py").write_text(code)
    sys.modules.pop("bad_reference", None)
    done = add(*VECTORS, *TILING, "--reference", "bad_reference:f")
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith(f"[sim] reference {message}")


def test_outputs_are_all_written_or_none():
    """The disk has room for the first output and not for the second one."""
    Path("two.cpp").write_text(IDENTITY.replace("void same(GM_ADDR x,", "void two(GM_ADDR x, GM_ADDR more,"))
    np.save("x.npy", np.ones(64, np.float32))
    for name in ("first.npy", "second.npy", "trace.json"):
        Path(name).write_text("earlier")
    code = (
        "import resource, signal, sys\nfrom ascend_sim.cli import main\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\nlimit = resource.RLIMIT_FSIZE\n"
        "from ascend_sim.cli import arguments\nwrite = arguments.KernelArgument.write\n"
        "def limited(self, stream):\n    resource.setrlimit(limit, (2000, resource.getrlimit(limit)[1]))\n"
        "    write(self, stream)\narguments.KernelArgument.write = limited\nmain()\n"
    )
    command = [
        sys.executable,
        "-c",
        code,
        "kernel",
        "two.cpp",
        "two",
        "in:x.npy",
        "part:float32[64]=first.npy",
    ]
    command += ["part:float32[4096]=second.npy", "-D", "TYPE=float", "--trace", "trace.json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    assert done.stderr == "[ascend-sim] output must fit on the disk but got: File too large.\n"
    assert {Path(name).read_text() for name in ("first.npy", "second.npy", "trace.json")} == {"earlier"}
    assert not list(Path().glob(".*.npy.*"))


def test_results_are_written_to_two_pipes_whose_reader_reads_one_after_the_other():
    for name in ("first", "second"):
        os.mkfifo(name)
    command = [sys.executable, "-m", "ascend_sim", "kernel", "two.cpp", "two", "in:float32[64]"]
    command += ["out:float32[64]=first", "part:float32[64]=second", "-D", "TYPE=float"]
    Path("two.cpp").write_text(
        IDENTITY.replace("GM_ADDR y,", "GM_ADDR y, GM_ADDR more,").replace("same", "two")
    )
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        lengths = [len(Path(name).read_bytes()) for name in ("first", "second")]
    assert (process.returncode, lengths) == (0, [384, 384])


def test_a_result_is_written_to_a_pipe():
    command = [sys.executable, "-m", "ascend_sim", "kernel", ADD, "add_custom", *VECTORS[:2]]
    command += ["out:float32[1003]=/dev/stdout", *TILING, "--json"]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    np.testing.assert_array_equal(np.load(io.BytesIO(done.stdout)).shape, (1003,))


def test_a_result_is_not_written_over_the_module_of_the_reference():
    Path("own_reference.py").write_text("def f(x, y): return x + y\n")
    done = add(*VECTORS[:-1], VECTORS[-1] + "=own_reference.py", *TILING, "--reference", "own_reference:f")
    assert (done.exit_code, done.stderr) == (
        2, "[sim] argument 2 must differ from reference but got own_reference.py.\n"
    )  # fmt: skip
    assert Path("own_reference.py").read_text() == "def f(x, y): return x + y\n"


def test_a_result_unlike_the_reference_gives_exit_status_1():
    done = add(*VECTORS, *TILING, "--reference", "numpy:subtract")
    assert done.exit_code == 1
    assert re.fullmatch(
        r"\[sim\] difference from numpy:subtract must be at most 0 but got [0-9.]+\.\n", done.stderr
    )


@pytest.mark.long
def test_a_broken_rule_gives_exit_status_1_and_writes_nothing():
    Path("broken.cpp").write_text(re.sub(r"\w+\.FreeTensor\(\w+\);", "", ADD.read_text()))
    arguments = (*VECTORS[:2], "out:float32[1003]=z.npy", *TILING, "--trace", "t.json")
    done = ascend_sim_command("kernel", "broken.cpp", "add_custom", *arguments)
    assert (done.exit_code, done.stdout) == (1, "")
    assert re.match(r"SIM-\w+-\d+ broken\.cpp:\d+, ", done.stderr), done.stderr
    assert files() == ["broken.cpp"]


def test_a_file_is_not_written_twice_or_over_the_source():
    Path("add.cpp").write_bytes(ADD.read_bytes())
    for arguments, fault in (
        ((*VECTORS, "--trace", "add.cpp"), "trace must differ from source but got add.cpp."),
        (
            (*VECTORS[:2], "out:float32[1003]=z.json", "--trace", "z.json"),
            "argument 2 must differ from trace but got z.json.",
        ),
    ):
        done = ascend_sim_command("kernel", "add.cpp", "add_custom", *arguments, *TILING)
        assert (done.exit_code, done.stdout, done.stderr) == (2, "", f"[sim] {fault}\n")
    assert files() == ["add.cpp"]
    assert Path("add.cpp").read_bytes() == ADD.read_bytes()


def test_a_compile_error_gives_exit_status_1_and_the_compiler_s_message():
    Path("wrong.cpp").write_text("int f() { return nosuch; }\n")
    done = ascend_sim_command("kernel", "wrong.cpp", "f")
    assert (done.exit_code, done.stdout) == (1, "")
    assert "wrong.cpp:1:" in done.stderr
    assert "nosuch" in done.stderr


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("nope.cpp", "must be a file that can be read but got nope.cpp: No such file or directory."),
        ("folder", "must be a file that can be read but got folder: Is a directory."),
        ("empty.cpp", "must have a kernel but got empty.cpp, which is empty."),
    ],
)
def test_a_source_without_a_kernel_is_refused(source, message):
    Path("folder").mkdir()
    Path("empty.cpp").write_text("\n")
    done = ascend_sim_command("kernel", source, "f", "out:float32[8]=y.npy")
    assert (done.exit_code, done.stdout, done.stderr) == (2, "", f"[sim] source {message}\n")
    assert files() == ["empty.cpp", "folder"]


SOCS = "ascend910b, ascend910_93, ascend310p, ascend950"
REFUSED = {
    "soc": (["--soc", "ascend1"], f"[sim] soc must be one of {SOCS}, or a chip's name, but got ascend1."),
    "trace": (
        ["--trace", "no/t.json"],
        "[sim] trace must be a file in an existing folder but got no/t.json.",
    ),
    "result": (
        ["out:float32[8]=no/y.npy"],
        "[sim] argument must be a file in an existing folder but got no/y.npy.",
    ),
    "role": (
        ["x.npy"],
        "[sim] argument must be ROLE:FILE.npy, ROLE:DTYPE[SIZES] or ROLE:DTYPE[SIZES]=FILE.npy",
    ),
    "file": (
        ["in:x.npy"],
        "[sim] argument must be a .npy file or DTYPE[SIZES] but got x.npy: No such file or directory.",
    ),
    "size that overflows beside a size of 0": (
        [f"in:float32[0,{10**24}]"],
        f"[sim] argument must have at most 4 GiB but got in:float32[0,{10**24}].",
    ),
    "dimensions": (
        [f"in:float32[{','.join('1' * 33)}]"],
        "[sim] argument must have at most 32 dimensions but got in:float32[1,1,",
    ),
    "tiling without an end": (
        ["--tiling", "@/dev/zero"],
        "[sim] tiling must be a file that can be read but got @/dev/zero: it has more than 1048576 bytes.",
    ),
    "dtype": (["in:float31[8]"], "[sim] dtype must be one of float16, float32, "),
    "negative size": (
        ["in:float32[-8]"],
        "[sim] argument must have sizes that are not negative but got in:float32[-8].",
    ),
    "size": (
        ["in:float32[2000000000]"],
        "[sim] argument must have at most 4 GiB but got in:float32[2000000000].",
    ),
    "input's file": (
        ["in:float32[8]=x.npy"],
        "[sim] argument with the role in must not name a result file but got ",
    ),
    "tiling": (["--tiling", "zz"], "[sim] tiling must be @FILE, hexadecimal digits or fields such as "),
    "tiling file": (
        ["--tiling", "@no"],
        "[sim] tiling must be a file that can be read but got @no: No such ",
    ),
    "tiling field": (["--tiling", "int9_t=1"], "[sim] tiling must have fields of int8_t, "),
    "tiling number": (["--tiling", "uint8_t=256"], "[sim] tiling must have a uint8_t but got uint8_t=256."),
    "reference": (["--reference", "nosuch:f"], "[sim] reference must be MODULE:FUNCTION but got nosuch:f: "),
    "no reference": ([*VECTORS, "--within", "3"], "[sim] within must have a reference but got only 3."),
    "sum": ([*VECTORS, "--sum", "z"], "[sim] definition must be given for names of tensors but got only z."),
    "aclnn": (
        [*VECTORS, "--generated-aclnn"],
        "[sim] definition must be given for generated_aclnn but got none.",
    ),
    "no file": (["out:float32[8]="], "[sim] argument must name a file after = but got out:float32[8]=."),
    "lenient": (
        [*VECTORS, "--lenient", "SIM-NO-01"],
        "[sim] lenient must name rules or be all but got SIM-NO-01.",
    ),
    "figure": ([*VECTORS, "--figure", "nosuch=1"], "[sim] figure must name "),
    "figure's number": (
        [*VECTORS, "--figure", "read_latency_cycles=-1"],
        "[sim] figure must have read_latency_cycles of at least 0 but got -1.0.",
    ),
}


def npy(shape):
    """Return a .npy file of float32 with sizes in its header, and three bytes of data."""
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}}}".ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode() + b"abc"


HOSTILE_ARRAYS = {
    "of 4 TiB in its header": npy((2**40,)),
    "of more than 64 bits in its header": npy((2**70,)),
    "of a negative size": npy((-8,)),
    "with code in its header": npy("(print('run'),)"),
    "of Python objects": npy((8,)).replace(b"<f4", b"|O1"),
    "that ends in its header": npy((8,))[:40],
    "with a bracket that does not end": npy((8,)).replace(b"(8,)", b"(8,("),
    "that is a pickle": b"\x80\x04N.",
    "that is an archive": None,
}


@pytest.mark.parametrize("name", HOSTILE_ARRAYS)
def test_a_hostile_array_is_refused_before_memory_is_asked_for(name):
    if HOSTILE_ARRAYS[name] is None:
        np.savez("x.npz", x=np.ones(8, np.float32))
        Path("x.npz").rename("x.npy")
    else:
        Path("x.npy").write_bytes(HOSTILE_ARRAYS[name])
    tracemalloc.start()
    done = add("in:x.npy", *VECTORS[1:], *TILING)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 16 << 20
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith("[sim] argument must be a .npy file or DTYPE[SIZES] but got x.npy: ")
    assert "unsafe" not in done.stderr


@pytest.mark.parametrize(
    "dtype", ["<U1", "<M8[s]", "<c8", "<f16", "|V3", [("a", "<f4"), ("b", "<f4")]], ids=str
)
def test_a_dtype_that_no_kernel_has_is_refused(dtype):
    np.save("x.npy", np.zeros(48, dtype))
    done = add("in:x.npy", *VECTORS[1:], *TILING)
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr == (
        "[sim] argument must have a dtype of float32, float16, int8, int32, uint8, int16, uint16, uint32, "
        f"int64, uint64, float64, bool, bfloat16, int4 but got {np.dtype(dtype)} in x.npy.\n"
    )
    assert files() == ["x.npy"]


@pytest.mark.parametrize("dtype", [">f4", ">f2", ">i8", "<u2"])
def test_an_array_of_another_byte_order_has_the_same_values(dtype):
    values = np.arange(-3, 45).astype(dtype)
    np.save("x.npy", values)
    array = read_array("x.npy")
    assert array.dtype == values.dtype.newbyteorder("=")
    assert array.dtype.isnative
    np.testing.assert_array_equal(array, values)


def test_random_integers_of_an_array_need_little_memory():
    tracemalloc.start()
    new_array("int8", str(1 << 24), np.random.default_rng(0), "")
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 3 << 24


def test_an_array_of_empty_elements_is_refused():
    """A copy of its 2**62 elements would not end."""
    Path("x.npy").write_bytes(npy((2**62,)).replace(b"<f4", b"|V0"))
    done = add("in:x.npy", *VECTORS[1:], *TILING)
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.endswith("but got |V0 in x.npy.\n")


def test_an_array_above_4_gib_is_refused_before_it_is_read():
    with open("x.npy", "wb") as stream:
        stream.write(npy((2**30 + 1,)))
        stream.truncate(2**32 + 2**12)  # no data: the file has holes
    done = add("in:x.npy", *VECTORS[1:], *TILING)
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr == "[sim] argument must have at most 4 GiB but got x.npy.\n"


@pytest.mark.parametrize(
    "array", [np.zeros((0, 3), np.float16), np.float32(5), np.asfortranarray(np.eye(3)[:2])], ids=repr
)
def test_an_array_of_a_file_is_a_copy_that_can_be_written(array):
    np.save("x.npy", array)
    found = read_array("x.npy")
    assert type(found) is np.ndarray
    assert found.flags.c_contiguous
    assert found.flags.writeable
    assert np.array_equal(found, np.ascontiguousarray(array))
    assert found.dtype == array.dtype


@pytest.mark.parametrize("name", REFUSED)
def test_a_bad_option_is_refused_and_nothing_is_written(name):
    arguments, message = REFUSED[name]
    done = add(*arguments)
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith(message), done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert files() == []


@pytest.mark.parametrize("count", [0, 1, 5])
def test_a_wrong_number_of_arguments_is_refused(count):
    done = add(*[VECTORS[0]] * count, *TILING)
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr == f"[sim] arguments must be 3 (x, y, z) but got {count}.\n"


def test_an_entry_that_does_not_exist_is_refused():
    done = ascend_sim_command("kernel", ADD, "nosuch", *VECTORS)
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr == "[sim] entry must be a __global__ function but got nosuch.\n"


@pytest.mark.parametrize(
    ("fields", "struct"),
    [
        ("uint64_t=1,uint32_t=2", "01 00 00 00 00 00 00 00 02 00 00 00 00 00 00 00"),
        ("uint8_t=1,uint16_t=2,uint8_t=3", "01 00 02 00 03 00"),
        ("uint32_t=1,uint32_t=2", "01 00 00 00 02 00 00 00"),
    ],
)
def test_tiling_fields_have_the_bytes_of_a_c_struct(fields, struct):
    assert tiling_of(fields) == bytes.fromhex(struct)


# ---- trace -------------------------------------------------------------------------------------------


def test_a_timeline_is_shown_with_its_pipes_and_instructions(timeline):
    done = ascend_sim_command("trace", timeline)
    assert (done.exit_code, done.stderr) == (0, "")
    for words in ("add.json", "MTE2", "MTE3", "Add", "cycles"):
        assert words in done.stdout


def test_the_summary_is_json(timeline):
    done = ascend_sim_command("trace", timeline, "--json")
    assert done.exit_code == 0, done.stderr
    summary = json.loads(done.stdout)
    written = json.loads(timeline.read_text())["otherData"]["summary"]
    assert summary == {"call": "add.json", **written}


def test_a_plot_is_drawn(timeline):
    done = ascend_sim_command("trace", timeline, "--plot", "add.svg")
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1] == "plot written to add.svg"
    assert Path("add.svg").read_text().startswith("<?xml")


@pytest.mark.parametrize(
    ("file", "cause"),
    [
        ("nope.json", "No such file or directory."),
        ("folder", "Is a directory."),
        ("empty.json", "Expecting value: "),
        ("deep.json", "maximum recursion depth exceeded"),
        ("list.json", "it has no otherData."),
        ("other.json", "it has no otherData."),
        ("foreign.json", "it has no summary."),
    ],
)
def test_a_file_that_is_no_timeline_is_refused(file, cause):
    Path("folder").mkdir()
    Path("empty.json").write_text("")
    Path("list.json").write_text("[]")
    Path("other.json").write_text("{}")
    Path("deep.json").write_text("[" * 100_000)
    Path("foreign.json").write_text('{"otherData": {"version": "1"}}')
    before = files()
    done = ascend_sim_command("trace", file, "--plot", "plot.png")
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith(f"[trace] file must be a timeline of ascend_sim but got {file}: {cause}")
    assert files() == before


LACKING = {
    "bytes_read": (lambda s: s.pop("bytes_read"), "number bytes_read"),
    "cycles": (lambda s: s.update(cycles="x"), "number cycles"),
    "blocks": (lambda s: s.update(blocks="x"), "number blocks"),
    "infinite": (lambda s: s.update(cycles=float("inf")), "number cycles"),
    "beyond int64": (lambda s: s.update(microseconds=10**300), "number microseconds"),
    "beyond int64 as a float": (lambda s: s.update(bytes_read=1e308), "number bytes_read"),
    "soc": (lambda s: s.update(soc=1), "text soc"),
    "apis": (lambda s: s.update(apis={}), "list apis"),
    "api": (lambda s: s["apis"][0].pop("repeats"), "number apis.repeats"),
    "path": (lambda s: s.update(critical_path=None), "object critical_path"),
    "part": (lambda s: s["critical_path"]["parts"][0].pop("what"), "text critical_path.parts.what"),
}


@pytest.mark.parametrize("name", LACKING)
def test_a_summary_that_lacks_a_value_is_refused_with_the_value_s_name(timeline, name):
    change, missing = LACKING[name]
    contents = json.loads(timeline.read_text())
    change(contents["otherData"]["summary"])
    Path("lacking.json").write_text(json.dumps(contents))
    done = ascend_sim_command("trace", "lacking.json")
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr == (
        f"[trace] file must be a timeline of ascend_sim but got lacking.json: its summary has no {missing}.\n"
    )


SPAN = {"ph": "X", "pid": 0, "tid": 1, "ts": 0, "dur": 1, "name": "Add"}
TITLE = {"ph": "M", "pid": 0, "tid": 1, "name": "thread_name"}
LACKING_EVENTS = {
    "place": ([SPAN | {"pid": {}}], "number pid in traceEvents"),
    "time": ([SPAN | {"ts": "1"}], "numbers ts and dur of at most 1e+12 in traceEvents"),
    "far time": ([SPAN | {"dur": 1e308}], "numbers ts and dur of at most 1e+12 in traceEvents"),
    "name": ([SPAN | {"name": []}], "text name in traceEvents"),
    "details": ([SPAN | {"args": 1}], "complete object args in traceEvents"),
    "size": ([SPAN | {"args": {"address": 0}}], "complete object args in traceEvents"),
    "bytes": ([SPAN | {"args": {"bytes": None}}], "number bytes in traceEvents"),
    "line": ([SPAN | {"args": {"line": 1}}], "text line in traceEvents"),
    "title": ([SPAN, TITLE | {"args": {}}], "text args.name in traceEvents"),
    "title's place": ([SPAN, TITLE | {"tid": {}, "args": {"name": "S"}}], "number tid in traceEvents"),
    "title's details": ([SPAN, TITLE | {"args": []}], "object args in traceEvents"),
}


@pytest.mark.parametrize("name", LACKING_EVENTS)
@pytest.mark.parametrize("picture", [("--plot", "plot.png"), ("--page", "page.html")])
def test_an_event_that_lacks_an_entry_is_refused_with_its_name(timeline, name, picture):
    events, missing = LACKING_EVENTS[name]
    Path("lacking.json").write_text(json.dumps(json.loads(timeline.read_text()) | {"traceEvents": events}))
    done = ascend_sim_command("trace", "lacking.json", *picture)
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.endswith(f"but got lacking.json: it has no {missing}.\n")
    assert files() == ["lacking.json"]


@pytest.mark.parametrize("text", ["\x1b[31mred", "half \ud800", "\x9b", "\x00"], ids=ascii)
@pytest.mark.parametrize("where", ["soc", "key", "event"])
@pytest.mark.parametrize(
    "picture", [(), ("--plot", "plot.svg"), ("--page", "page.html"), ("--json",)], ids=str
)
def test_a_text_that_controls_a_terminal_or_has_no_encoding_is_refused(timeline, text, where, picture):
    contents = json.loads(timeline.read_text())
    if where == "soc":
        contents["otherData"]["summary"]["soc"] = text
    elif where == "key":
        contents["otherData"][text] = 1
    else:
        contents["traceEvents"] = [SPAN | {"name": text}]
    Path("hostile.json").write_text(json.dumps(contents))
    done = ascend_sim_command("trace", "hostile.json", *picture)
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr == (
        "[trace] file must be a timeline of ascend_sim but got hostile.json: one of its texts has the "
        f"character U+{ord(next(c for c in text if not c.isprintable())):04X}.\n"
    )
    assert files() == ["hostile.json"]


def test_a_text_of_a_plot_is_no_formula(timeline):
    contents = json.loads(timeline.read_text())
    contents["otherData"]["summary"]["soc"] = r"$\undefined{$ and $x$"
    Path("formula $x$.json").write_text(json.dumps(contents))
    done = ascend_sim_command("trace", "formula $x$.json", "--plot", "plot.svg")
    assert (done.exit_code, done.stderr) == (0, "")
    assert r"formula $x$.json on $\undefined{$ and $x$" in Path("plot.svg").read_text()


def test_the_name_of_a_file_controls_no_terminal(timeline):
    name = "evil\x1b[31m.json"
    Path(name).write_text(timeline.read_text())
    done = ascend_sim_command("trace", name, "--page", "page.html")
    assert (done.exit_code, done.stderr) == (0, "")
    Path(name).write_text("{")
    refused = ascend_sim_command("trace", name)
    assert refused.exit_code == 2
    for text in (done.stdout, refused.stderr):
        assert "\x1b" not in text
        assert r"evil\x1b[31m.json" in text


def test_a_plot_has_a_limit_of_cores(timeline):
    contents = json.loads(timeline.read_text()) | {"traceEvents": [SPAN | {"pid": i} for i in range(101)]}
    Path("many.json").write_text(json.dumps(contents))
    done = ascend_sim_command("trace", "many.json", "--plot", "plot.png")
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.endswith("but got many.json: a plot has at most 100 cores, and it has 101.\n")
    assert ascend_sim_command("trace", "many.json", "--page", "page.html").exit_code == 0


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="RLIMIT_AS limits memory on Linux only")
def test_a_small_timeline_takes_little_memory(timeline):
    program = (
        "import resource, sys\n"
        "from ascend_sim.files import bytes_of\n"
        "from pathlib import Path\n"
        "used = int(open('/proc/self/statm').read().split()[0]) * resource.getpagesize()\n"
        "resource.setrlimit(resource.RLIMIT_AS, (used + (64 << 20), resource.RLIM_INFINITY))\n"
        "assert bytes_of(Path(sys.argv[1]), 1 << 30) == Path(sys.argv[1]).read_bytes()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, timeline], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("events", [None, [], [{"ph": "M", "pid": 0}], [1]])
def test_a_timeline_without_spans_is_shown_but_not_plotted(timeline, events):
    contents = json.loads(timeline.read_text()) | {"traceEvents": events}
    Path("bare.json").write_text(json.dumps(contents))
    assert ascend_sim_command("trace", "bare.json").exit_code == 0
    done = ascend_sim_command("trace", "bare.json", "--plot", "plot.png")
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.endswith("bare.json: it has no traceEvents to show.\n")
    assert files() == ["bare.json"]


@pytest.mark.parametrize(
    ("plot", "message"),
    [
        ("no/add.png", "must be a file in an existing folder but got no/add.png."),
        ("add.txt", "must end in .png, .svg, .pdf but got add.txt."),
        (".", "must be a file in an existing folder but got .."),
    ],
)
def test_a_plot_that_cannot_be_written_is_refused(timeline, plot, message):
    done = ascend_sim_command("trace", timeline, "--plot", plot)
    assert (done.exit_code, done.stdout, done.stderr) == (2, "", f"[trace] plot {message}\n")
    assert files() == []


# ---- program -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("option", "message"),
    [
        (["-I", "nosuch"], "include must be a folder but got nosuch."),
        (["-D", "=3"], "define must be a macro, NAME=VALUE, but got =3."),
        (["-D", "A B=3"], "define must be a macro, NAME=VALUE, but got A B=3."),
    ],
)
def test_a_bad_option_of_a_program_is_refused(option, message):
    Path("main.asc").write_text("int main() { return 0; }\n")
    done = ascend_sim_command("program", "main.asc", "-o", "main", *option)
    assert (done.exit_code, done.stdout, done.stderr) == (2, "", f"[sim] {message}\n")
    assert files() == ["main.asc"]


# ---- run (programs/test_run_command.py has more tests of it) -----------------------------------------


def test_a_program_that_does_not_exist_is_refused():
    done = ascend_sim_command("run", "--report", "report.json", "--", "nosuch-program")
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith("[sim] command must be available but there is no program nosuch-program.\n")
    assert files() == []


# ---- doctor ------------------------------------------------------------------------------------------


def test_doctor_lists_the_installed_pieces():
    done = ascend_sim_command("doctor")
    assert (done.exit_code, done.stderr) == (0, "")
    found = dict(re.findall(r"^  (\w+(?: \w+)*)  +(.*)$", done.stdout, re.M))
    assert found["library"] == str(folders.library("ascend_sim"))
    assert found["headers"] == str(folders.include())
    assert found["its chips"] == ", ".join(session.chips())
    assert "missing" not in found["compiler"]


def test_doctor_without_a_compiler_gives_exit_status_1_and_prints_how_to_get_one():
    done = ascend_sim_command("doctor", PATH="/nonexistent", CXX="")
    assert (done.exit_code, done.stderr) == (1, "")
    assert "compiler        missing: none was found as g++, clang++ or c++" in done.stdout
    assert "Install one (apt install g++)" in done.stdout
