"""Compile and run the C++ tests of the definitions, and the example that calls the operator through aclnn."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from ascend_sim import folders

from npu_rope import simulated_package

ROOT = Path(__file__).resolve().parents[2]
COMPILER = shlex.split(os.environ.get("CXX", "c++"))
SIMULATOR = folders.root()
FLAGS = ["-std=c++17", "-O0", "-Wall", "-Wextra", "-Werror", "-DNPU_ROPE_ASCEND950"]
FLAGS += [f"-I{SIMULATOR}", f"-I{SIMULATOR / 'cann/include'}", f"-I{ROOT}"]
DEFINITIONS = sorted(ROOT.glob("op_host/*_def.cpp"))
DEFINITION_TESTS = sorted(ROOT.glob("tests/cann/test_*definitions.cpp"))
HOST = [*sorted(set(ROOT.glob("op_host/*.cpp")) - set(DEFINITIONS)), *sorted(ROOT.glob("csrc/core/*.cpp"))]
HOST_LIBRARY = folders.library("ascend_sim").with_name("libascend_sim_host.a")


def compile_(*sources, output, flags=()):
    command = [*COMPILER, *FLAGS, *map(str, flags), *map(str, sources), "-o", str(output)]
    subprocess.run(command, check=True)
    return output


@pytest.mark.slow  # more than forty compilations
def test_the_cpp_tests_of_the_definitions_pass(tmp_path):
    """Each definition is compiled three times, as CANN compiles it."""
    modes = ("-DOP_DEFINITIONS", "-DOP_PROTO_LIB", "-DOP_TILING_LIB")
    objects = {tmp_path / f"{p.stem}{mode}.o": (p, ["-c", mode]) for p in DEFINITIONS for mode in modes}
    others = [*DEFINITION_TESTS, *HOST]
    objects |= {tmp_path / f"{path.stem}.o": (path, ["-c"]) for path in others}
    assert len(objects) == 3 * len(DEFINITIONS) + len(others)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(lambda o: compile_(objects[o][0], output=o, flags=objects[o][1]), objects))
    program = compile_(*objects, HOST_LIBRARY, output=tmp_path / "program")
    completed = subprocess.run([program], capture_output=True, text=True)
    assert completed.returncode == 0, completed.stderr
    assert completed.stdout.endswith(" tests, 0 failure(s)\n")


@pytest.mark.long
def test_the_commands_in_the_example_run_it_on_the_simulated_runtime(tmp_path):
    text = (ROOT / "examples/aclnn_rope.cpp").read_text()
    _, _, without_cann = text.partition("// Without CANN")
    commands = [line[5:] for line in without_cann.splitlines() if line.startswith("//   ")]
    assert len(commands) == 6
    script = "set -e\n" + "\n".join(commands).replace("-o aclnn_rope", f"-o {tmp_path}/aclnn_rope")
    script = script.replace("./aclnn_rope", f"{tmp_path}/aclnn_rope")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    completed = subprocess.run(
        ["bash", "-c", script], cwd=ROOT, capture_output=True, text=True, env={**os.environ, "PATH": path}
    )
    assert completed.returncode == 0, completed.stderr
    assert completed.stdout.startswith("64 elements rotated, largest error ")


def test_the_example_runs_on_the_package_that_a_variable_names(tmp_path):
    folder = simulated_package.find()
    libraries = [folder / "op_api/lib", folder.parent]
    flags = [f"-I{folder / 'op_api/include'}", *(f"-Wl,-rpath,{path}" for path in libraries)]
    sim = folders.library("ascend_sim").parent
    flags += [f"-Wl,-rpath-link,{sim}", f"-Wl,-rpath,{sim}"]
    program = compile_(
        ROOT / "examples/aclnn_rope.cpp",
        folder / "op_api/lib/libcust_opapi.so",
        sim / "libascend_sim_cann.so",
        output=tmp_path / "aclnn_rope",
        flags=flags,
    )
    environment = {**os.environ, "ASCEND_CUSTOM_OPP_PATH": str(folder), "ASCEND_OPP_PATH": str(tmp_path)}
    completed = subprocess.run([program], capture_output=True, text=True, env=environment)
    assert completed.returncode == 0, completed.stderr
    assert completed.stdout.startswith("64 elements rotated, largest error ")
