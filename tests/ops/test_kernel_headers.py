"""The kernels' headers in subfolders: each compiles alone, and its names are in its folder's namespace."""

import os
import re
import subprocess
from functools import cache
from pathlib import Path

import pytest
from ascend_sim import compiler, folders
from ascend_sim.files import locked

KERNELS = Path(__file__).parents[2] / "op_kernel"
FOLDERS = ("memory", "norm", "rotation")
HEADERS = sorted(
    str(path.relative_to(KERNELS)) for folder in FOLDERS for path in (KERNELS / folder).glob("*.h")
)


@cache
def included(path):
    """Return the names in the #include lines of a file and of the headers of op_kernel/ that it includes."""
    names = re.findall(r'^#include "([^"]+)"', path.read_text(), re.MULTILINE)
    paths = [folder / name for name in names for folder in (path.parent, KERNELS)]
    return {*names, *(name for found in paths if found.is_file() for name in included(found))}


def command_for(soc):
    command = [*compiler.compiler().split(), *compiler.FLAGS, f"-D__CCE_AICORE__={compiler.AICORE[soc]}"]
    command += [f"-I{folders.include()}", f"-I{KERNELS}"]
    return [*command, "-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter"]


@pytest.fixture(scope="session")
def precompiled(tmp_path_factory):
    """Return a function that precompiles kernel_operator.h for an SoC and returns the options that use it."""
    base = tmp_path_factory.getbasetemp()  # with xdist, one folder per worker; all workers share its parent
    folder = (base.parent if os.environ.get("PYTEST_XDIST_WORKER") else base) / "precompiled"

    def options(soc):
        folder.mkdir(exist_ok=True)
        result = folder / f"{soc}.h.gch"
        with locked(folder / f"{soc}.lock"):
            if not result.is_file():
                command = [*command_for(soc), "-include", "kernel_operator.h", "-x", "c++-header", os.devnull]
                subprocess.run([*command, "-o", str(result)], check=True)
        return ["-include", str(result.with_suffix(""))]

    return options


def test_every_header_of_a_subfolder_is_in_a_listed_folder():
    found = {str(path.relative_to(KERNELS)) for path in KERNELS.glob("*/**/*.h")}
    assert found == set(HEADERS)
    assert len(HEADERS) > 20


@pytest.mark.long
@pytest.mark.parametrize(
    "soc", ["ascend910b", *(pytest.param(s, marks=pytest.mark.slow) for s in ("ascend310p", "ascend950"))]
)
@pytest.mark.parametrize("header", HEADERS)
def test_a_header_compiles_alone(header, soc, precompiled, tmp_path):
    source = tmp_path / "alone.cpp"
    source.write_text(f'#include "{header}"\n')
    command = [*command_for(soc), "-fsyntax-only"]
    if "kernel_operator.h" in included(KERNELS / header):
        command += precompiled(soc)
    command += ["-include", "tiling_prelude.h", str(source)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("header", HEADERS)
def test_a_header_does_not_depend_on_the_types_of_a_column(header):
    """All columns of a kernel are compiled together, after one inclusion of its headers."""
    assert not re.search("DTYPE_", (KERNELS / header).read_text())


@pytest.mark.parametrize("header", HEADERS)
def test_a_header_opens_only_the_namespace_of_its_folder(header):
    text = (KERNELS / header).read_text()
    assert re.findall(r"^namespace (\w+)", text, re.MULTILINE) == [Path(header).parent.name]
