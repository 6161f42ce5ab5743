"""Why a program does not start: its architecture, its libraries, its symbols."""

from __future__ import annotations

import errno
import os
import re
import shlex
import shutil
import struct
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

from ascend_sim import elf
from ascend_sim.errors import Unavailable

NOT_LOADED = 127  # the dynamic loader's exit status if a library or a symbol is missing
LDD_SECONDS = 60
MAX_NAMES = 5

_ELF_64_LITTLE_ENDIAN = elf.MAGIC + b"\x02\x01"
_HEADER_BYTES = 64  # of an ELF file of 64 bits
_SEGMENT = struct.Struct("<I4xQ16xQ")  # p_type, p_offset and p_filesz of ELF's Elf64_Phdr
_PT_LOAD = 1
_BUILD_AGAIN = "Build it again, or copy it again."
PACKAGE_LIBRARY = "libcust_opapi.so"  # of an operator package, in its op_api/lib
_LINE_BYTES = 512


def find(name: str) -> Path:
    """Return the program that a shell finds by this name or path.

    Raises:
        Unavailable: there is none, or it is a folder or a file that cannot be executed.
    """
    if found := shutil.which(name):
        return Path(found)
    if os.path.isdir(name):
        raise Unavailable("command", f"{name} is a folder", "Name a program in it, by its path.")
    if os.path.dirname(name) and os.path.exists(name):
        remedy = f"Make it executable: chmod +x {shlex.quote(name)}. For a script, name its interpreter: "
        raise Unavailable("command", f"{name} is not executable", f"{remedy}-- python {shlex.quote(name)}.")
    raise Unavailable("command", f"there is no program {name}", "Give its path, or install it.")


def check(program: Path, path: str | None = None) -> None:
    """Check that the system can start ``program``.

    Args:
        path: the folders in which ``env`` looks for an interpreter, as in ``PATH``.

    Raises:
        Unavailable: it is empty, an ELF file for another machine than this one, an ELF file that is cut off,
            or a script whose interpreter is missing.
    """
    try:
        with program.open("rb") as stream:
            header = stream.read(_HEADER_BYTES)
            line = (header + stream.readline(_LINE_BYTES)).split(b"\n")[0]
            needed = _bytes_to_load(stream, header)
            size = os.fstat(stream.fileno()).st_size
    except PermissionError:
        return  # it can be executed and not read
    if not size:
        raise Unavailable("command", f"{program} is empty", _BUILD_AGAIN)
    if line.startswith(b"#!"):
        _check_interpreter(program, line[2:].strip(b" \t").decode(errors="replace"), path)
    if machine := elf.other_machine(header):
        own = os.uname().machine
        remedy = f"Build it on this machine, against the folder of ascend-sim toolkit, for {own}."
        raise Unavailable(
            "command", f"{program} is a program for {machine} and this machine is {own}", remedy
        )
    if size < needed:
        missing = f"{program} is cut off: it has {size} bytes, and the system loads {needed}"
        raise Unavailable("command", missing, _BUILD_AGAIN)


def _bytes_to_load(stream: BinaryIO, header: bytes) -> int:
    """Return the number of bytes that an ELF file of 64 bits must have at least; 0 for other files."""
    if header[:6] != _ELF_64_LITTLE_ENDIAN:
        return 0
    if len(header) < _HEADER_BYTES:
        return _HEADER_BYTES
    begin, entry_bytes, count = (
        *struct.unpack_from("<Q", header, 32),
        *struct.unpack_from("<HH", header, 54),
    )
    stream.seek(begin)
    table = stream.read(entry_bytes * count)
    needed: int = begin + entry_bytes * count
    for i in range(len(table) // entry_bytes if entry_bytes >= _SEGMENT.size else 0):
        segment_type, offset, file_bytes = _SEGMENT.unpack_from(table, i * entry_bytes)
        if segment_type == _PT_LOAD:
            needed = max(needed, offset + file_bytes)
    return needed


def not_started(program: Path, error: OSError) -> Unavailable:
    """Return the error for a program that :func:`check` accepts and the system does not start."""
    if error.errno != errno.ENOEXEC:
        remedy = "Name a program that runs: -- python script.py."
        return Unavailable("command", f"{program} does not start: {error.strerror}", remedy)
    missing = f"{program} is neither a program of this machine nor a script with #! and an interpreter"
    return Unavailable(
        "command", missing, f"For a script, name its interpreter: -- sh {shlex.quote(str(program))}."
    )


def _check_interpreter(program: Path, line: str, path: str | None) -> None:
    interpreter, *arguments = re.split("[ \t]+", line)
    where, remedy = f"in the first line of {program}", "Correct the line, or install the interpreter."
    # repr() shows a carriage return, which ends the line of a file from Windows.
    if interpreter and not os.path.exists(interpreter):
        raise Unavailable("command", f"the interpreter {interpreter!r} {where} does not exist", remedy)
    if os.path.basename(interpreter) != "env":
        return
    name = next((word for word in arguments if word != "-S"), "")
    is_plain = name and not name.startswith("-") and "=" not in name
    if is_plain and not shutil.which(name, path=path):
        raise Unavailable("command", f"env does not find the interpreter {name!r} {where} on PATH", remedy)


def not_loaded(program: str, environment: Mapping[str, str], status: int) -> Unavailable | None:
    """Return the error for a program that the loader ended with this exit status, or None.

    A library or a symbol was missing, or a file is not a library. The loader looks for most symbols at a
    program's start, but for some at their first call.
    """
    path, ldd = shutil.which(program), shutil.which("ldd")
    if status != NOT_LOADED or path is None or ldd is None:
        return None
    try:
        done = subprocess.run(
            [ldd, "-r", path], env=dict(environment), capture_output=True, text=True, timeout=LDD_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    text = done.stdout + done.stderr
    if libraries := sorted(set(re.findall(r"^\s*(\S+) => not found", text, re.MULTILINE))):
        return Unavailable(
            "command",
            f"{program} needs libraries that were not found: {_listed(libraries)}",
            _how_to_find(libraries),
        )
    if symbols := sorted(set(re.findall(r"undefined symbol: (\w+)", text))):
        remedy = "A symbol of acl or aclnn that is missing here is newer than the simulated CANN: report it."
        missing = f"{program} needs symbols that no library has: {_listed(symbols)}"
        return Unavailable("command", missing, remedy)
    if broken := re.search(r"error while loading shared libraries: ([^\n]+)", text):
        return Unavailable("command", f"{program} does not load: {broken[1]}", _BUILD_AGAIN)
    return None


def _how_to_find(libraries: list[str]) -> str:
    """Return the remedy for libraries that were not found."""
    if PACKAGE_LIBRARY in libraries:
        return (
            f"{PACKAGE_LIBRARY} is the library of an operator package. For npu_rope's, use npu-rope sim "
            "instead of ascend-sim run; for another one, name its folder op_api/lib in LD_LIBRARY_PATH."
        )
    return "Name their folders in LD_LIBRARY_PATH, or build the program again."


def _listed(names: list[str]) -> str:
    more = len(names) - MAX_NAMES
    return ", ".join(names[:MAX_NAMES]) + (f" and {more} more" if more > 0 else "")
