"""A folder laid out as an installed CANN toolkit: headers, libraries to link with, libraries to run with.

A C or C++ program for CANN's aclnn interface compiles and links against it with the flags for the real one.
The libraries have CANN's names and are links to libascend_sim_cann, which defines all symbols. A program
that is linked with them needs libascend_sim_cann alone at run time. A program that was linked with the real
CANN needs CANN's names, and finds the links.
The headers of ``aclnnop/`` are written from the table ``cann/opapi/functions.def``.
"""

from __future__ import annotations

import os
import re
import shutil
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from ascend_sim import folders
from ascend_sim.compiler import results_folder
from ascend_sim.errors import Unavailable, bad_value
from ascend_sim.files import cause_of, digest, locked
from ascend_sim.programs.stubs import Elf, cached_folder

# CANN's libraries for programs of acl and aclnn, by the names that a linker's -l takes: those that ggml and
# torch_npu link (ggml src/ggml-cann/CMakeLists.txt, Ascend/pytorch CMakeLists.txt), and those in the build
# files of hicann/ops-nn and of asc-devkit's samples. Functions of ge, graph and rt are not simulated.
LIBRARIES = (
    *("ascendcl", "acl_rt", "acl_op_compiler", "acl_tdt_channel", "runtime", "ascend_hal"),
    *("nnopbase", "opapi", "opapi_math", "opapi_nn", "opapi_cv", "opapi_transformer", "hccl", "hcomm"),
    *("graph", "graph_base", "metadef", "exe_graph", "register", "platform", "ge_runner", "ge_compiler"),
    *("unified_dlog", "ascendalog", "ascend_dump", "error_manager", "mmpa", "profapi", "msprofiler", "c_sec"),
)
# Subfolders of an installed CANN; torch_npu checks that they exist.
FOLDERS = ("bin", "compiler", "hccl", "include", "lib64", "opp", "runtime", "toolkit", "tools")
MARK = ".ascend-sim-toolkit"  # a file by which make() recognizes its folder
_WRITTEN = "Written by ascend-sim, which simulates CANN. The folder has no file of CANN itself."

# The variables of script/set_env.sh of CANN 8.1. bash has a sourced file's path in BASH_SOURCE, zsh in $0.
_SET_ENV = f"""\
# {_WRITTEN}
# Run programs with: ascend-sim run -- PROGRAM
ASCEND_TOOLKIT_HOME="$(cd "$(dirname "${{BASH_SOURCE:-$0}}")" && pwd)"
if [ ! -f "$ASCEND_TOOLKIT_HOME/{MARK}" ]; then
    echo "set_env.sh must be sourced by bash or zsh but the shell does not name the file." >&2
    unset ASCEND_TOOLKIT_HOME
    return 1
fi
export ASCEND_TOOLKIT_HOME
export ASCEND_HOME_PATH="$ASCEND_TOOLKIT_HOME"
export ASCEND_AICPU_PATH="$ASCEND_TOOLKIT_HOME"
export ASCEND_OPP_PATH="$ASCEND_TOOLKIT_HOME/opp"
export TOOLCHAIN_HOME="$ASCEND_TOOLKIT_HOME/toolkit"
export LD_LIBRARY_PATH="$ASCEND_TOOLKIT_HOME/lib64${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}"
export PATH="$ASCEND_TOOLKIT_HOME/bin:$PATH"
"""
# aclnnop/aclnn_util.h of CANN 8.1, which its headers of aclnnop include.
_ACLNN_UTIL = '#pragma once\n#define ACLNN_API __attribute__((visibility("default")))\n'

_ROW = re.compile(r"^(ACLNN|ACLNN_PLAIN)\((\w+\.h), (\w+), \((.*)\)\)$", re.MULTILINE)
_PHASE = "void* workspace, uint64_t workspaceSize, aclOpExecutor* executor, aclrtStream stream"
_EXECUTOR = "uint64_t* workspaceSize, aclOpExecutor** executor"


@dataclass(frozen=True)
class Function:
    """A function of libopapi: its header in aclnnop/, its name, and the parameters of its first phase."""

    header: str
    name: str
    parameters: str
    has_two_phases: bool

    def symbols(self) -> tuple[str, ...]:
        """Return the names of its C functions."""
        return (f"{self.name}GetWorkspaceSize", self.name) if self.has_two_phases else (self.name,)

    def declarations(self) -> str:
        """Return the C declarations of the function."""
        if not self.has_two_phases:
            return f"aclnnStatus {self.name}({self.parameters});"
        parameters = ", ".join(filter(None, (self.parameters, _EXECUTOR)))
        first = f"aclnnStatus {self.name}GetWorkspaceSize({parameters});"
        return f"{first}\naclnnStatus {self.name}({_PHASE});"


def functions() -> list[Function]:
    """Return all functions of CANN's libopapi, in the order of their names."""
    table = folders.root() / "cann" / "opapi" / "functions.def"
    if not table.is_file():
        raise Unavailable("functions.def", f"{table} does not exist", "Install ascend_sim again.")
    rows = _ROW.findall(table.read_text())
    return [
        Function(header, f"aclnn{name}", parameters, kind == "ACLNN")
        for kind, header, name, parameters in rows
    ]


def defined() -> frozenset[str]:
    """Return all symbols that the simulated CANN defines. Needs pyelftools."""
    return Elf.read(folders.library("ascend_sim_cann")).defined


def simulated() -> set[str]:
    """Return the names of the functions of libopapi that have a stand-in. Needs pyelftools."""
    strong = Elf.read(folders.library("ascend_sim_cann")).strong
    return {function.name for function in functions() if function.name in strong}


def make(folder: Path) -> None:
    """Write the toolkit to ``folder``, which must not exist or must be an earlier toolkit.

    If it cannot be written, a new folder is as it was before.

    Raises:
        ValueError: the folder holds other files, or it cannot be written.
        Unavailable: the library or the headers are not installed.
    """
    try:
        name = digest(os.fsencode(folder.resolve()))
        with locked(results_folder(None) / f"toolkit-{name}.lock"):
            _make(folder)
    except OSError as error:
        raise bad_value(
            f"folder must be one that can be written but got {folder}: {cause_of(error)}."
        ) from None


def _make(folder: Path) -> None:
    is_earlier, is_absent = (folder / MARK).is_file(), not folder.exists()
    if folder.is_dir() and any(folder.iterdir()) and not is_earlier:
        raise bad_value(f"folder must be new, empty or an earlier toolkit but got {folder.resolve()}.")
    try:
        _write(folder)
    except BaseException:
        if not is_earlier and folder.is_dir():
            _empty(folder)
            if is_absent:
                folder.rmdir()
        raise


def _empty(folder: Path) -> None:
    for path in folder.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


def _write(folder: Path) -> None:
    library = folders.library("ascend_sim_cann")
    includes = folders.root() / "cann" / "include"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / MARK).write_text(f"{_WRITTEN}\n")
    (folder / "set_env.sh").write_text(_SET_ENV)
    for name in FOLDERS:
        (folder / name).mkdir(exist_ok=True)
    for part in ("acl", "aclnn", "hccl"):
        shutil.copytree(includes / part, folder / "include" / part, dirs_exist_ok=True)
    shutil.copy2(includes / "securec.h", folder / "include")
    _write_headers(folder / "include" / "aclnnop")
    for name in LIBRARIES:
        _link(folder / "lib64" / f"lib{name}.so", library)
    _link(folder / "lib64" / library.name, library)
    _link(folder / "lib64" / folders.library("ascend_sim").name, folders.library("ascend_sim"))


def cached() -> Path:
    """Return a toolkit in the cache. Make it if it is missing or was made for another library."""
    library = folders.library("ascend_sim_cann")
    stat = library.stat()
    return cached_folder(f"toolkit-{digest(f'{library} {stat.st_ino} {stat.st_mtime_ns}'.encode())}", _write)


def _link(path: Path, target: Path) -> None:
    path.unlink(missing_ok=True)
    path.symlink_to(target.resolve())


def _write_headers(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "level2").mkdir(parents=True)
    by_header: dict[str, list[Function]] = defaultdict(list)
    for function in functions():
        by_header[function.header].append(function)
    (folder / "aclnn_util.h").write_text(_ACLNN_UTIL)
    (folder / "level2" / "aclnn_util.h").write_text('#pragma once\n#include "aclnnop/aclnn_util.h"\n')
    for header, declared in by_header.items():
        body = "\n\n".join(function.declarations() for function in declared)
        text = (
            "// Declared by ascend_sim, which simulates CANN.\n#pragma once\n\n"
            '#include "aclnn/aclnn_base.h"\n\n#ifdef __cplusplus\nextern "C" {\n#endif\n\n'
            f"{body}\n\n#ifdef __cplusplus\n}}\n#endif\n"
        )
        (folder / header).write_text(text)
        (folder / "level2" / header).write_text(f'#pragma once\n#include "aclnnop/{header}"\n')
