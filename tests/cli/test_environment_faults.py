"""What the user sees after a fault of the environment: variables with nonsense, truncated libraries."""

from __future__ import annotations

import ctypes
import errno
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import without_torch
from ascend_sim import elf, folders

from npu_rope import native, simulated_package
from npu_rope.testing import ggml

# A call of rope on the back end of the variable NPU_ROPE_BACKEND. Prints the error.
CALL = f"""
{without_torch.LINE}
import numpy as np
from npu_rope import RopeParams, rope
try:
    rope(np.ones((1, 1, 1, 16), np.float32), np.zeros(1, np.int32), RopeParams(n_dims=16))
except (RuntimeError, ValueError) as error:
    print(error)
"""
# A launch on several cores, which creates a thread for the second order of them. glibc gives the thread a
# stack of the default size, which is too large for the first launch. Prints the first error, and whether the
# results are as before it and right after the second launch.
THREADS = f"""
{without_torch.LINE}
import ctypes as C
import numpy as np
from npu_rope import rms_norm
libc = C.CDLL(None)
def set_stack(size):
    settings = C.create_string_buffer(64)
    assert libc.pthread_attr_init(settings) == 0
    assert libc.pthread_attr_setstacksize(settings, C.c_size_t(size)) == 0
    assert libc.pthread_setattr_default_np(settings) == 0
x, out = np.ones((64, 64), np.float32), np.full((64, 64), -1, np.float32)
set_stack(1 << 60)
try:
    rms_norm(x, np.ones(64, np.float32), out=out)
except (RuntimeError, ValueError) as error:
    print(error)
print((out == -1).all())
set_stack(1 << 20)
rms_norm(x, np.ones(64, np.float32), epsilon=0, out=out)
print((out == 1).all())
"""
# The simulated runtime alone. Ends with status 2 for a variable that it refuses.
RUNTIME = """
import ctypes as C, sys
cann = C.CDLL(sys.argv[1])
cann.aclrtGetSocName()
cann.aclrtSetDevice(0)
stream = C.c_void_p()
cann.aclrtCreateStream(C.byref(stream))
cann.aclrtDestroyStream(stream)
"""


def output_of(source: str, *arguments: str, **variables: str) -> tuple[int, str]:
    command = [sys.executable, "-c", source, *arguments]
    done = subprocess.run(
        command, env={**os.environ, **variables}, capture_output=True, text=True, check=False, timeout=300
    )
    return done.returncode, done.stdout + done.stderr


NONSENSE_OF_A_CALL = {
    "NPU_ROPE_BACKEND=gpu": "[rope] backend must be one of reference, cpu, sim, ",
    "NPU_ROPE_LIB_DIR=/nowhere": (
        "[cpu] backend must be available but its library libnpu_rope was not found in /nowhere.\n"
    ),
    "NPU_ROPE_BACKEND=sim ASCEND_SIM_LIB_DIR=/nowhere": (
        "[sim] backend must be available but libascend_sim.so cannot be used: it was not found in /nowhere.\n"
    ),
    "NPU_ROPE_BACKEND=sim ASCEND_SIM_KERNELS=/nowhere\udcff.so": (  # a name that is no UTF-8
        "must be in a library of simulated kernels but got /nowhere\\xff.so: cannot open shared object file: "
    ),
    "NPU_ROPE_BACKEND=sim ASCEND_SIM_KERNELS=/nowhere.so": (
        "must be in a library of simulated kernels but got /nowhere.so: cannot open shared object file: "
        "No such file or directory."
    ),
}


@pytest.mark.parametrize("setting", NONSENSE_OF_A_CALL)
def test_a_variable_with_nonsense_gives_a_sentence(setting: str) -> None:
    status, output = output_of(CALL, **dict(item.split("=") for item in setting.split()))
    assert status == 0
    assert NONSENSE_OF_A_CALL[setting] in output


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "pthread_setattr_default_np"), reason="glibc")
def test_a_launch_without_a_thread_gives_a_sentence_and_the_next_one_runs() -> None:
    status, output = output_of(THREADS, NPU_ROPE_BACKEND="sim")
    assert status == 0, output
    rule = "[sim] launch must be possible but got too little memory or too few threads: "
    text = f"[rms_norm] call must succeed but got {rule}{os.strerror(errno.EAGAIN)}."
    assert output == f"{text}\nTrue\nTrue\n"


NONSENSE_OF_THE_RUNTIME = {
    "ASCEND_SIM_SOC=Ascend1": "ASCEND_SIM_SOC must be one of Ascend910B1, ",
    "ASCEND_SIM_SOC=Ascend910B1:99999999999": "ASCEND_SIM_SOC must be one of Ascend910B1, ",
    "ASCEND_SIM_DEVICES=many": "ASCEND_SIM_DEVICES must be 1 to 16 but got many.",
    "ASCEND_SIM_DEVICES=99999999999999999999": "ASCEND_SIM_DEVICES must be 1 to 16 but got 9",
    "ASCEND_SIM_STREAMS=some": "ASCEND_SIM_STREAMS must be asynchronous or immediate but got some.",
    "ASCEND_SIM_STREAMS=\x1b[31mred\x9b\x7f": (
        r"ASCEND_SIM_STREAMS must be asynchronous or immediate but got \x1b[31mred\xc2\x9b\x7f."
    ),
    "ASCEND_SIM_SEED=x": "ASCEND_SIM_SEED must be an integer of 0 to 2**64 - 1 but got x.",
    "ASCEND_SIM_SEED=-1": "ASCEND_SIM_SEED must be an integer of 0 to 2**64 - 1 but got -1.",
    "ASCEND_SIM_SEED=18446744073709551616": "ASCEND_SIM_SEED must be an integer of 0 to 2**64 - 1 but got 1",
}


@pytest.mark.parametrize("setting", NONSENSE_OF_THE_RUNTIME)
def test_the_simulated_runtime_refuses_a_variable_with_nonsense(setting: str) -> None:
    name, _, value = setting.partition("=")
    status, output = output_of(RUNTIME, str(folders.library("ascend_sim_cann")), **{name: value})
    assert status == 2
    assert f"simulated CANN: {NONSENSE_OF_THE_RUNTIME[setting]}" in output


@pytest.mark.parametrize("setting", NONSENSE_OF_THE_RUNTIME)
def test_back_end_sim_does_not_read_the_settings_of_the_runtime(setting: str) -> None:
    name, _, value = setting.partition("=")
    status, output = output_of(CALL, NPU_ROPE_BACKEND="sim", **{name: value})
    assert (status, "simulated CANN" in output) == (0, False), output


# Logs a line of each level from 0 to 3.
LOG = """
import ctypes, sys
log = ctypes.CDLL(sys.argv[1]).aclAppLog
for level in range(4):
    log(level, b"f", b"f.cpp", 1, b"text")
ctypes.CDLL(None).fflush(None)
"""


# CANN uses the default, level 3, for a text that is no level (hicann/runtime
# src/dfx/log/liblog/slog/dlog_level_env.c, DlogInitGlobalLogLevelByEnv).
@pytest.mark.parametrize(
    ("text", "first"),
    [("0", 0), ("2", 2), *((text, 3) for text in ("", "-1", "9" * 30, "debug", "1x", "\udcff"))],
)
def test_a_log_level_that_is_none_is_the_default(text: str, first: int) -> None:
    library = str(folders.library("ascend_sim_cann"))
    variables = {"ASCEND_GLOBAL_LOG_LEVEL": text, "ASCEND_SLOG_PRINT_TO_STDOUT": "1"}
    status, output = output_of(LOG, library, **variables)
    assert status == 0
    assert re.findall(r"log (\d)\]", output) == [str(level) for level in range(first, 4)]


@pytest.mark.parametrize("text", ["-1", "nonsense", "9" * 30, "x" * 5000, "/dev/null", "\udcff"])
def test_a_ggml_folder_that_is_none_is_named(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv(ggml.ENVIRONMENT_VARIABLE, text)
    with pytest.raises(ggml.GgmlUnavailable) as caught:
        ggml.find_library_dir()
    message = str(caught.value).split("\n")[0]
    assert message == f"[ggml] library must be a folder with libggml-base* and libggml-cpu* but got {text}."


@pytest.mark.parametrize("command", ["validate --backend cpu --filter llama-3.1-8b/decode", "bench --quick"])
def test_a_command_with_a_ggml_folder_that_is_none_ends_with_status_2(
    npu_rope_command: Callable[..., subprocess.CompletedProcess[str]], command: str
) -> None:
    pytest.importorskip("typer")
    if command.startswith("bench"):
        pytest.importorskip("torch")
    done = npu_rope_command(*command.split(), **{ggml.ENVIRONMENT_VARIABLE: "nonsense"})
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    rule = "[ggml] library must be a folder with libggml-base* and libggml-cpu* but got nonsense."
    assert done.stderr.split("\n")[0] == rule


@pytest.mark.long
@pytest.mark.parametrize("text", ["", "0", "-1", "x" * 5000, "\udcff"])
def test_a_run_replaces_the_number_of_an_outer_run(text: str) -> None:
    command = [sys.executable, "-c", "import os; print(ascii(os.environ['ASCEND_SIM_RUN']))"]
    run = [sys.executable, "-m", "ascend_sim.cli", "run", "--", *command]
    done = subprocess.run(
        run,
        env={**os.environ, "ASCEND_SIM_RUN": text},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(r"'\d+-\d+'\n", done.stdout), done.stdout


def test_a_report_folder_that_cannot_be_written_is_named_once() -> None:
    library = str(folders.library("ascend_sim_cann"))
    status, output = output_of(RUNTIME, library, ASCEND_SIM_REPORT_DIR="/dev/null")
    assert status == 0
    rule = "ASCEND_SIM_REPORT_DIR must be a folder one may write but got /dev/null: Not a directory.\n"
    assert output.count(f"simulated CANN: {rule}") == 1


LIBRARIES = {
    "NPU_ROPE_LIB_DIR": (native.find_library("npu_rope"), "cpu"),
    "ASCEND_SIM_LIB_DIR": (folders.library("ascend_sim"), "sim"),
    "ASCEND_SIM_LIB_DIR of the runtime": (folders.library("ascend_sim_cann"), "sim"),
}


@pytest.mark.skipif(sys.platform != "linux", reason="ELF files")
@pytest.mark.parametrize("name", LIBRARIES)
@pytest.mark.parametrize("part", [0, 0.0001, 0.3, 0.9])
def test_a_truncated_library_does_not_end_the_process(tmp_path: Path, name: str, part: float) -> None:
    library, backend = LIBRARIES[name]
    variable = name.split()[0]
    assert library is not None
    for other in library.parent.glob("*.so"):
        shutil.copy(other, tmp_path)
    size = int(part * library.stat().st_size)
    os.truncate(tmp_path / library.name, size)
    status, output = output_of(CALL, **{variable: str(tmp_path), "NPU_ROPE_BACKEND": backend})
    assert status == 0, output
    assert output.startswith(f"[{backend}] backend must be available but ")
    cause = f"{library.name} is truncated: it has {size} of at least " if size >= 64 else "file too short"
    assert cause in output


@pytest.mark.long
@pytest.mark.parametrize("part", [0, 0.3, "another library"])
def test_doctor_names_a_faulty_library_of_torch_operators(tmp_path: Path, part: float | str) -> None:
    library = native.find_library("npu_rope_torch")
    assert library is not None
    for other in library.parent.glob("*.so"):
        shutil.copy(other, tmp_path)
    cut = tmp_path / library.name
    if isinstance(part, str):
        shutil.copy(library.parent / "libnpu_rope.so", cut)
    else:
        os.truncate(cut, int(part * library.stat().st_size))
    environment = {**os.environ, "NPU_ROPE_LIB_DIR": str(tmp_path)}
    command = [sys.executable, "-W", "ignore", "-m", "npu_rope", "doctor", "--json"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    found = {finding["piece"]: finding for finding in json.loads(done.stdout)}["C++ registration"]
    assert found["present"] is False
    assert "it does not load: " in found["detail"]
    assert str(cut) in found["detail"]
    assert ("it is no registration of npu_rope" in found["detail"]) == isinstance(part, str)
    assert found["remedy"].startswith("Install npu_rope again")


@pytest.mark.parametrize("part", [0.001, 0.3, 0.9])
def test_a_truncated_library_of_kernels_does_not_end_the_process(tmp_path: Path, part: float) -> None:
    package = simulated_package.find()
    assert package is not None
    kernels = shutil.copy(package / "sim_kernels" / "ascend910b.so", tmp_path)
    os.truncate(kernels, int(part * os.path.getsize(kernels)))
    status, output = output_of(CALL, ASCEND_SIM_KERNELS=str(kernels), NPU_ROPE_BACKEND="sim")
    assert status == 0, output
    assert "must be in a library of simulated kernels but got a library that is truncated." in output


def test_whole_libraries_are_whole_and_a_cut_is_found_anywhere(tmp_path: Path) -> None:
    library = folders.library("ascend_sim")
    elf.check_whole(library)
    data = library.read_bytes()
    for size in range(64, len(data) - (64 << 10), len(data) // 50):
        (tmp_path / "cut.so").write_bytes(data[:size])
        with pytest.raises(OSError, match=f"cut.so is truncated: it has {size} of at least "):
            elf.check_whole(tmp_path / "cut.so")


def test_a_pipe_in_the_place_of_a_library_is_not_opened(tmp_path: Path) -> None:
    """An open of it would wait for a writer."""
    os.mkfifo(tmp_path / "pipe.so")
    with pytest.raises(OSError, match=r"pipe\.so is no regular file$"):
        elf.check_whole(tmp_path / "pipe.so")


@pytest.mark.parametrize(
    ("variable", "backend"), [("NPU_ROPE_LIB_DIR", "cpu"), ("ASCEND_SIM_LIB_DIR", "sim")]
)
def test_a_relative_folder_of_libraries_is_named_with_its_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str, backend: str
) -> None:
    monkeypatch.chdir(tmp_path)
    _, output = output_of(CALL, **{variable: ".", "NPU_ROPE_BACKEND": backend})
    assert f"was not found in {tmp_path}." in output
