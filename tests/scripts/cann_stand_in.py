"""A stand-in for CANN's toolkit with the layout of CANN 9.0 or 9.1 and tools that record their calls.

Sources of the layouts: hicann/runtime scripts/package/runtime/set_env.sh (PATH, PYTHONPATH, home) and
README.md (version file); asc-devkit scripts/package/asc-devkit/asc-devkit.xml (tools/opbuild/op_build);
asc-tools utils/templates (the project template: its functions, the tools they call, and its links to
../../../common/util). The text of the template is our own.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

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
    # As in CANN's template, a failing op_build is not fatal, and each operator is a target that calls make.
    "cmake/func.cmake": r"""
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
  add_custom_target(binary)
  file(GLOB kernels ${CMAKE_SOURCE_DIR}/op_kernel/npu_*.cpp)
  foreach(unit ${ASCEND_COMPUTE_UNIT})
    foreach(kernel ${kernels})
      get_filename_component(stem ${kernel} NAME_WE)
      add_custom_target(${stem}_${unit}
        COMMAND sh ${CMAKE_SOURCE_DIR}/cmake/util/compile_kernel.sh ${stem} ${unit} ${kernel}
                ${CMAKE_CURRENT_BINARY_DIR}/binary --build-tool=$(MAKE))
      add_dependencies(binary ${stem}_${unit})
    endforeach()
    set(list "{}")
    foreach(kernel ${kernels})
      get_filename_component(stem ${kernel} NAME_WE)
      string(JSON list SET "${list}" ${stem} "{\"binaryList\": [{\"binPath\": \"${unit}/${stem}/a.o\"}]}")
    endforeach()
    file(WRITE ${CMAKE_CURRENT_BINARY_DIR}/binary/config/${unit}/binary_info_config.json "${list}")
    foreach(part ${unit} config/${unit})
      install(DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/binary/${part}/
        DESTINATION packages/vendors/${vendor_name}/op_impl/ai_core/tbe/kernel/${part})
    endforeach()
  endforeach()
endfunction()
""",
    "scripts/install.sh": "",
}
# As in ascendc_compile_kernel.py, the working folder must not exist before, and it stays after an error.
COMPILE_KERNEL = """set -e
stem=$1 unit=$2 kernel=$3 binary=$4
mkdir "${stem}_$unit"
mkdir -p "$binary/$unit/$stem"
printf 'all: a b\\na b:\\n\\topc %s --soc_version=%s --output=%s/%s/%s --bin_filename=$@\\n' \\
  "$kernel" "$unit" "$binary" "$unit" "$stem" >"${stem}_$unit/Makefile"
make -f "${stem}_$unit/Makefile"
rm -r "${stem}_$unit"
"""
OP_BUILD = """#!/bin/sh
echo "op_build $*" >>"$NPU_ROPE_STAND_IN_LOG"
test -f "$1" || exit 1
test ! -e "$NPU_ROPE_STAND_IN_LOG.op_build_fails" || exit 1
echo 'int proto;' > "$2/op_proto.cc"; echo > "$2/op_proto.h"
for kernel in "$2"/../../op_kernel/npu_*.cpp; do
  stem=$(basename "$kernel" .cpp)
  echo "int api_of_$stem;" > "$2/aclnn_$stem.cpp"; echo > "$2/aclnn_$stem.h"
done
one='[NpuOne]\\ninput0.dtype=float16,float32\\ninput1.dtype=int32,int32\\n'
two='[NpuTwo]\\ninput0.dtype=float16\\n'
for soc in ascend910b ascend310p; do
  printf "$one$two" > "$2/aic-$soc-ops-info.ini"
done
"""
# It sleeps, so that the log shows which runs overlap.
OPC = """#!/bin/sh
echo "opc $*" >>"$NPU_ROPE_STAND_IN_LOG"
echo begin >>"$NPU_ROPE_STAND_IN_LOG.jobs"
sleep 0.1
test ! -e "$NPU_ROPE_STAND_IN_LOG.opc_waits" || sleep 1000
echo end >>"$NPU_ROPE_STAND_IN_LOG.jobs"
case "$1" in *"$(cat "$NPU_ROPE_STAND_IN_LOG.opc_fails" 2>/dev/null || echo none)"*) exit 1 ;; esac
for argument; do
  case "$argument" in --output=*) out="${argument#*=}" ;; --bin_filename=*) name="${argument#*=}" ;; esac
done
echo kernel >"$out/$name.o"
hash=$(sha256sum "$out/$name.o" | cut -d' ' -f1)
printf '{"binFileName": "%s", "binFileSuffix": ".o", "sha256": "%s"}' "$name" "$hash" >"$out/$name.json"
test ! -e "$NPU_ROPE_STAND_IN_LOG.opc_truncates" || printf k >"$out/$name.o"
"""
# The host compiler records its call and compiles one empty file instead of the sources of the operators.
COMPILER = """#!/bin/sh
echo "c++ $*" >>"$NPU_ROPE_STAND_IN_LOG"
sources=
for argument; do
  shift
  case "$argument" in
    */op_host/*.cpp | */csrc/core/*.cpp) test -n "$sources" || set -- "$@" EMPTY; sources=yes ;;
    *) set -- "$@" "$argument" ;;
  esac
done
exec REAL "$@"
"""
# As hicann/runtime scripts/package/runtime/set_env.sh does, it sets -e, searches install.info for a line that
# may be absent, and reads variables that may be unset.
SET_ENV = """
set -e
export ASCEND_HOME_PATH="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
driver="$(grep -iw driver_install_path_param "$ASCEND_HOME_PATH/install.info" | cut -d= -f2-)"
export PATH="$ASCEND_HOME_PATH/bin:$ASCEND_HOME_PATH/tools/ccec_compiler/bin:$PATH"
export PYTHONPATH="$ASCEND_HOME_PATH/python/site-packages:$PYTHONPATH"
set +e
"""
# Modules that python3 must import. The stand-ins are empty and hide the modules of the tests' Python.
MODULES = ("numpy", "attr", "decorator", "sympy", "scipy", "psutil", "google.protobuf", "cffi", "yaml", "tbe")
LIBRARIES = ("exe_graph", "register", "tiling_api", "nnopbase", "ascendcl", "rt2_registry")


def write(path: Path, text: str, mode: int = 0o644) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)
    return path


def executable(path: Path, text: str = "#!/bin/sh\n") -> Path:
    return write(path, text, 0o755)


def cann(home: Path, version: str = "9.1.0") -> Path:
    """Make a stand-in for CANN in a folder.

    CANN 9.0 and older have a link toolkit/tools, and the version in ascend_toolkit_install.info. CANN 9.1 has
    neither. Its template has a link, and its version is in share/info/runtime/version.info.
    """
    template = home / "tools/op_project_templates/ascendc"
    for name, text in TEMPLATE.items():
        write(template / "customize" / name, text)
    script = template / "customize/cmake/util/compile_kernel.sh"
    executable(home / "tools/opbuild/op_build", OP_BUILD)
    if version.startswith("9.1"):
        write(template / "common/util/compile_kernel.sh", COMPILE_KERNEL)
        script.parent.mkdir(parents=True)
        script.symlink_to("../../../common/util/compile_kernel.sh")
        write(home / "share/info/runtime/version.info", f"Version={version}\nversion_dir=cann-{version}\n")
    else:
        write(script, COMPILE_KERNEL)
        (home / "toolkit").mkdir()
        (home / "toolkit/tools").symlink_to("../tools")
        text = f"package_name=Ascend-cann-toolkit\nversion={version}\ninnerversion=V100R001C99\n"
        write(home / "x86_64-linux/ascend_toolkit_install.info", text)
    (home / "include").symlink_to(ROOT / "simulator/cann/include")
    executable(home / "bin/opc", OPC)
    for tool in ("bisheng", "llvm-objdump"):
        executable(home / "tools/ccec_compiler/bin" / tool)
    for module in MODULES:
        write(home / "python/site-packages" / module.replace(".", "/") / "__init__.py", "")
    write(home / "set_env.sh", SET_ENV)
    write(home / "install.info", "UserName=HwHiAiUser\n")
    (home / "lib64").mkdir()
    return home


def add_libraries(home: Path) -> None:
    """Add empty libraries to link with."""
    compiler = shlex.split(os.environ.get("CXX", "c++"))
    for library in LIBRARIES:
        target = home / "lib64" / f"lib{library}.so"
        subprocess.run([*compiler, "-shared", "-x", "c++", "/dev/null", "-o", str(target)], check=True)


# Commands that scripts/build_npu.sh and CMake call besides CANN's tools.
COMMANDS = """
ar as awk basename bash c++ cat cc chmod cmake cp cut dirname env find g++ grep head id kill ld ln ls make
mkdir mktemp mv nm nproc printf python3 ranlib rm sed sh sha256sum sleep sort strip tail touch tr true uname
wc which
"""


def commands(folder: Path) -> Path:
    """Make a folder for PATH that has links to COMMANDS and nothing else."""
    folder.mkdir(parents=True)
    for name in COMMANDS.split():
        # python3 on PATH may be a launcher that needs other variables.
        found = os.path.realpath(sys.executable) if name == "python3" else shutil.which(name)
        if found:
            (folder / name).symlink_to(found)
    return folder


def recording_compiler(folder: Path) -> Path:
    """Make a C++ compiler for CXX that records its calls."""
    empty = write(folder / "empty.cpp", "")
    text = COMPILER.replace("EMPTY", str(empty)).replace("REAL", shutil.which("c++") or "c++")
    return executable(folder / "recording-c++", text)
