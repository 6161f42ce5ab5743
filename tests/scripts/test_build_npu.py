"""scripts/build_npu.sh: what it says where CANN is missing, and that the project it lays out builds, with a
stand-in for CANN: its headers are simulator/cann/include, its project template is written here."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts" / "build_npu.sh"
STEMS = sorted(p.stem for p in (ROOT / "op_kernel").glob("npu_*.cpp"))


def run(*arguments, cann=None, script=SCRIPT):
    environment = {k: v for k, v in os.environ.items() if k != "ASCEND_HOME_PATH"}
    environment |= {"HOME": "/nonexistent"} | ({"ASCEND_HOME_PATH": str(cann)} if cann else {})
    return subprocess.run([script, *arguments], env=environment, capture_output=True, text=True)


@pytest.mark.skipif(Path("/usr/local/Ascend/ascend-toolkit/latest").exists(), reason="CANN is here")
def test_without_cann_it_says_what_is_missing_and_where_to_get_it():
    done = run()
    assert done.returncode == 2
    assert "[build_npu] CANN's toolkit must be installed but ASCEND_HOME_PATH is not set." in done.stderr
    assert "Ascend-cann-toolkit 8.1.RC1 from https://www.hiascend.com/cann" in done.stderr


def test_a_folder_without_the_template_is_named(tmp_path):
    done = run(cann=tmp_path)
    assert done.returncode == 2
    assert f"op_project_templates/ascendc/customize/cmake/func.cmake but {tmp_path} has not" in done.stderr


def test_an_unknown_soc_is_refused():
    done = run("ascend950")
    assert done.returncode == 2
    assert "SOC must be ascend910b, ascend910_93 or ascend310p but got ascend950." in done.stderr


TEMPLATE = {
    "CMakeLists.txt": """
cmake_minimum_required(VERSION 3.16)
project(opp)
include(cmake/config.cmake)
include(cmake/func.cmake)
include(cmake/intf.cmake)
add_subdirectory(op_host)
add_subdirectory(op_kernel)
add_custom_target(package COMMAND ${CMAKE_COMMAND} --install ${CMAKE_BINARY_DIR}
  COMMAND ${CMAKE_COMMAND} -E touch ${CMAKE_BINARY_DIR}/custom_opp_test.run)
add_dependencies(package cust_op_proto cust_optiling cust_opapi optiling_compat)
""",
    "cmake/config.cmake": """
set(ASCEND_AUTOGEN_PATH ${CMAKE_BINARY_DIR}/autogen)
file(MAKE_DIRECTORY ${ASCEND_AUTOGEN_PATH})
""",
    "cmake/intf.cmake": """
add_library(intf_pub INTERFACE)
target_compile_options(intf_pub INTERFACE -fPIC -fvisibility=hidden $<$<COMPILE_LANGUAGE:CXX>:-std=c++11>)
target_include_directories(intf_pub INTERFACE ${ASCEND_CANN_PACKAGE_PATH}/include)
target_link_directories(intf_pub INTERFACE ${ASCEND_CANN_PACKAGE_PATH}/lib64)
""",
    "cmake/func.cmake": """
function(opbuild)
  cmake_parse_arguments(B "" "OUT_DIR" "OPS_SRC" ${ARGN})
  execute_process(COMMAND ${CMAKE_CXX_COMPILER} -fPIC -shared -std=c++11 ${B_OPS_SRC}
    -I ${ASCEND_CANN_PACKAGE_PATH}/include -o ${B_OUT_DIR}/libascend_all_ops.so RESULT_VARIABLE failed)
  if(failed)
    message(FATAL_ERROR "opbuild run failed!")
  endif()
  execute_process(COMMAND ${ASCEND_CANN_PACKAGE_PATH}/toolkit/tools/opbuild/op_build
    ${B_OUT_DIR}/libascend_all_ops.so ${B_OUT_DIR})
endfunction()
function(add_kernels_compile)
  file(WRITE ${CMAKE_BINARY_DIR}/compute_units "${ASCEND_COMPUTE_UNIT}")
  add_custom_target(binary COMMAND ls ${CMAKE_SOURCE_DIR}/op_kernel > ${CMAKE_BINARY_DIR}/kernels)
endfunction()
""",
    "scripts/install.sh": "",
}
OP_BUILD = """#!/bin/sh
test -f "$1" || exit 1
echo 'int proto;' > "$2/op_proto.cc"; echo > "$2/op_proto.h"
echo 'int api;' > "$2/aclnn_op.cpp"; echo > "$2/aclnn_op.h"
"""


def stand_in(folder):
    template = folder / "tools/op_project_templates/ascendc/customize"
    for name, text in TEMPLATE.items():
        path = template / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (folder / "include").symlink_to(ROOT / "simulator/cann/include")
    tool = folder / "toolkit/tools/opbuild/op_build"
    tool.parent.mkdir(parents=True)
    tool.write_text(OP_BUILD)
    tool.chmod(0o755)
    (folder / "lib64").mkdir()
    compiler = shlex.split(os.environ.get("CXX", "c++"))
    for library in ("exe_graph", "register", "tiling_api", "nnopbase", "ascendcl", "rt2_registry"):
        target = folder / "lib64" / f"lib{library}.so"
        subprocess.run([*compiler, "-shared", "-x", "c++", "/dev/null", "-o", str(target)], check=True)
    return folder


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("make") is None, reason="CANN's template builds with make")
def test_the_project_builds_from_our_sources_with_a_stand_in_for_cann(tmp_path):
    clone = tmp_path / "clone"
    for part in ("CMakeLists.txt", "CMakePresets.json", "pyproject.toml", "LICENSE"):
        clone.mkdir(exist_ok=True)
        shutil.copy(ROOT / part, clone)
    for part in ("cmake", "csrc", "include", "op_host", "op_kernel", "scripts", "simulator"):
        shutil.copytree(ROOT / part, clone / part)
    done = run(
        "ascend910b", "ascend310p", cann=stand_in(tmp_path / "cann"), script=clone / "scripts/build_npu.sh"
    )
    assert done.returncode == 0, done.stdout + done.stderr
    out = clone / "build/npu/opp_project/build_out"
    assert done.stdout.splitlines()[-1] == str((out / "custom_opp_test.run").relative_to(clone))
    assert (out / "compute_units").read_text() == "ascend910b;ascend310p"
    kernels = (out / "kernels").read_text().split()
    assert [k.removesuffix(".cpp") for k in kernels if k.endswith(".cpp")] == STEMS
    vendor = clone / "build/npu/opp/packages/vendors/npu_rope"  # where an install of npu_rope takes it from
    built = sorted(p.name for p in vendor.rglob("*.so"))
    assert built == [
        "libcust_opapi.so",
        "libcust_opmaster_rt2.0.so",
        "libcust_opsproto_rt2.0.so",
        "liboptiling.so",
    ]
    tilings = next(vendor.rglob("libcust_opmaster_rt2.0.so"))
    undefined = subprocess.run(
        ["nm", "-DCu", str(tilings)], capture_output=True, text=True, check=True
    ).stdout
    ours = [line for line in undefined.splitlines() if "npu_rope" in line]
    assert not ours, "sources of ours are missing from the library"
