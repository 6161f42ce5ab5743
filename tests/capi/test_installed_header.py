"""A C or C++ program that includes the installed header and links the installed library."""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest

from npu_rope import native

PROGRAM = r"""
#include <npu_rope.h>
#include <stdio.h>

int main(void) {
    float x[4] = {1, 0, 3, 4}, y[4];
    int32_t position = 0;
    npu_rope_tensor tx = {x, NPU_ROPE_FLOAT32, 3, {1, 1, 4}, {4, 4, 1}};
    npu_rope_tensor ty = {y, NPU_ROPE_FLOAT32, 3, {1, 1, 4}, {4, 4, 1}};
    npu_rope_tensor tp = {&position, NPU_ROPE_INT32, 1, {1}, {1}};
    npu_rope_params params = npu_rope_default_params(4, NPU_ROPE_MODE_NEOX);
    if (npu_rope_abi_version() != NPU_ROPE_ABI_VERSION) return 2;
    if (npu_rope_rope(&tx, &tp, NULL, &params, 1, NPU_ROPE_ANGLE_EXACT, &ty) != NPU_ROPE_OK) return 3;
    printf("%s: %g %g %g %g\n", npu_rope_version(), y[0], y[1], y[2], y[3]);
    params.n_dims = 5;
    if (npu_rope_rope(&tx, &tp, NULL, &params, 1, 0, &ty) != NPU_ROPE_INVALID_VALUE) return 4;
    printf("%s\n", npu_rope_last_error());
    return 0;
}
"""


def compiler(names):
    available = next((c for c in names if c and shutil.which(c)), None)
    assert available, "a C and a C++ compiler are needed, as for building the package"
    return available


@pytest.mark.parametrize("language", ["c99", "c++17"])
def test_a_program_builds_and_runs_against_the_installed_package(language, tmp_path):
    library = native.load().path
    header = library.parent.parent / "include" / "npu_rope.h"
    assert header.is_file()
    is_c = language == "c99"
    source = tmp_path / ("program.c" if is_c else "program.cpp")
    source.write_text(PROGRAM)
    cc = compiler(
        [os.environ.get("CC"), "cc", "gcc", "clang"] if is_c else [os.environ.get("CXX"), "c++", "g++"]
    )
    command = [cc, f"-std={language}", "-Wall", "-Wextra", "-Werror", f"-I{header.parent}", str(source)]
    command += [str(library), f"-Wl,-rpath,{library.parent}", "-o", str(tmp_path / "program")]
    built = subprocess.run(command, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    ran = subprocess.run([tmp_path / "program"], capture_output=True, text=True)
    assert (ran.returncode, ran.stderr) == (0, "")
    first, second = ran.stdout.splitlines()
    assert first == f"{native.load().version()}: 1 0 3 4"
    assert second == "[rope] n_dims must be a positive even number but got 5."
