"""The NEON build: compiled if a cross compiler is installed, run if qemu is installed."""

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
COMPILER = "aarch64-linux-gnu"
EMULATOR = shutil.which("qemu-aarch64") or shutil.which("qemu-aarch64-static")

pytestmark = [
    pytest.mark.long,  # the build takes a minute
    pytest.mark.skipif(
        shutil.which(f"{COMPILER}-g++") is None,
        reason="no aarch64 cross compiler (Debian: apt install g++-aarch64-linux-gnu qemu-user)",
    ),
]


@pytest.fixture(scope="module")
def build(tmp_path_factory):
    """The folder of the build."""
    folder = tmp_path_factory.mktemp("aarch64")
    options = [
        "-DCMAKE_SYSTEM_NAME=Linux",
        "-DCMAKE_SYSTEM_PROCESSOR=aarch64",
        f"-DCMAKE_C_COMPILER={COMPILER}-gcc",
        f"-DCMAKE_CXX_COMPILER={COMPILER}-g++",
        "-DNPU_ROPE_TORCH=OFF",
        "-DNPU_ROPE_SIM=OFF",  # the simulated kernels contain no NEON code
        "-DNPU_ROPE_C_TESTS=ON",
        "-DNPU_ROPE_WERROR=ON",
    ]
    for command in (["cmake", "-S", ROOT, "-B", folder, *options], ["cmake", "--build", folder, "-j2"]):
        completed = subprocess.run(command, capture_output=True, text=True, check=False)
        assert completed.returncode == 0, completed.stdout[-3000:] + completed.stderr[-3000:]
    return folder


def test_the_library_compiles_to_neon_without_a_warning(build):
    disassembly = subprocess.run(
        [f"{COMPILER}-objdump", "-d", build / "libnpu_rope.so"], capture_output=True, text=True, check=True
    ).stdout
    assert "fmla" in disassembly  # vector multiply-adds
    assert "fcvtl" in disassembly  # the instruction that converts float16 to float32


@pytest.mark.skipif(EMULATOR is None, reason="no qemu-aarch64 to run it (Debian: apt install qemu-user)")
def test_the_c_tests_pass_on_neon(build):
    programs = sorted((build / "tests/capi").glob("test_capi_*"))
    assert programs
    for program in programs:
        command = [EMULATOR, "-L", f"/usr/{COMPILER}", program]
        completed = subprocess.run(command, capture_output=True, text=True, check=False)
        assert completed.returncode == 0, completed.stdout + completed.stderr
