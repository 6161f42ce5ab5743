"""The kernels' headers in subfolders: each compiles alone, and its names are in its folder's namespace."""

import re
import subprocess
from pathlib import Path

import pytest
from ascend_sim import compiler, folders

KERNELS = Path(__file__).parents[2] / "op_kernel"
FOLDERS = ("memory", "norm", "rotation")
HEADERS = sorted(
    str(path.relative_to(KERNELS)) for folder in FOLDERS for path in (KERNELS / folder).glob("*.h")
)


def test_every_header_of_a_subfolder_is_in_a_listed_folder():
    found = {str(path.relative_to(KERNELS)) for path in KERNELS.glob("*/**/*.h")}
    assert found == set(HEADERS)
    assert len(HEADERS) > 20


@pytest.mark.parametrize(
    "soc", ["ascend910b", *(pytest.param(s, marks=pytest.mark.slow) for s in ("ascend310p", "ascend950"))]
)
@pytest.mark.parametrize("header", HEADERS)
def test_a_header_compiles_alone(header, soc, tmp_path):
    source = tmp_path / "alone.cpp"
    source.write_text(f'#include "{header}"\n')
    command = [*compiler.compiler().split(), *compiler.FLAGS, "-fsyntax-only"]
    command += [f"-D__CCE_AICORE__={compiler.AICORE[soc]}", "-include", "tiling_prelude.h"]
    command += [f"-I{folders.include()}", f"-I{KERNELS}"]
    command += ["-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter", str(source)]
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
