"""``ascend_sim_add_package`` of AscendSimFunctions.cmake, in a project of its own."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from foreign_operator import FOREIGN

PROJECT = """
cmake_minimum_required(VERSION 3.20)
project(foreign LANGUAGES CXX)
set(CMAKE_CXX_STANDARD 17)
set(ASCEND_SIM_LIB "{libraries}")
include("{functions}")
include_directories("{foreign}")
file(GLOB definitions CONFIGURE_DEPENDS *_def.cpp)
list(TRANSFORM definitions REPLACE ".*/(.+)_def[.]cpp" "\\\\1" OUTPUT_VARIABLE operators)
ascend_sim_add_package(foreign FOLDER "${{CMAKE_BINARY_DIR}}/package" OPERATORS ${{operators}} SOCS ascend910b
  DEFINITIONS ${{definitions}} KERNELS "{foreign}")
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project of two operators, WeightedAdd and a copy of it, ScaledAdd."""
    command = [sys.executable, "-m", "ascend_sim", "--cmake"]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    functions, libraries = printed.splitlines()
    text = PROJECT.format(libraries=libraries, functions=functions, foreign=FOREIGN)
    (tmp_path / "CMakeLists.txt").write_text(text)
    definition = (FOREIGN / "weighted_add_def.cpp").read_text()
    (tmp_path / "weighted_add_def.cpp").write_text(definition)
    copy = re.sub(r"WeightedAdd(?!TilingData)", "ScaledAdd", definition)
    (tmp_path / "scaled_add_def.cpp").write_text(copy)
    return tmp_path


def package_of(project: Path) -> Path:
    """The package's generated files, made again."""
    build = project / "build"
    subprocess.run(["cmake", "-S", project, "-B", build], check=True, stdout=subprocess.DEVNULL)
    target = ["--target", "foreign_op_build_files"]
    subprocess.run(["cmake", "--build", build, *target], check=True, stdout=subprocess.DEVNULL)
    return build / "package"


@pytest.mark.long
@pytest.mark.skipif(shutil.which("cmake") is None, reason="needs cmake")
def test_a_removed_operator_leaves_the_package(project: Path) -> None:
    tbe = Path("op_impl/ai_core/tbe")
    description = tbe / "config/ascend910b/aic-ascend910b-ops-info.json"
    package = package_of(project)
    assert "ScaledAdd" in (package / description).read_text()
    interface, stale = package / "op_api/include/aclnn_scaled_add.h", package / tbe / "config/ascend910_93"
    assert interface.is_file()
    stale.mkdir()  # of an SoC that the project no longer names

    (project / "scaled_add_def.cpp").unlink()
    assert package_of(project) == package
    assert not interface.exists()
    assert (package / "op_api/include/aclnn_weighted_add.h").is_file()
    assert "ScaledAdd" not in (package / description).read_text()
    assert not stale.exists()
    assert not any("scaled_add" in str(path) for path in package.rglob("*"))
