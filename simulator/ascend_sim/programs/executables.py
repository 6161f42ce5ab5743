"""Why a program does not start: its architecture, its libraries, its symbols."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from ascend_sim.errors import Unavailable

NOT_LOADED = 127  # the dynamic loader's exit status if a library or a symbol is missing
LDD_SECONDS = 60
MAX_NAMES = 5

_MACHINES = {3: "i386", 40: "arm", 62: "x86_64", 183: "aarch64", 243: "riscv64"}  # e_machine of ELF
_HEADER_BYTES = 20
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


def check(program: Path) -> None:
    """Check that the system can start ``program``.

    Raises:
        Unavailable: it is an ELF file for another machine than this one, or a script whose interpreter is
            missing.
    """
    try:
        with program.open("rb") as stream:
            header = stream.read(_HEADER_BYTES)
            line = (header + stream.readline(_LINE_BYTES)).split(b"\n")[0]
    except PermissionError:
        return  # it can be executed and not read
    if line.startswith(b"#!"):
        _check_interpreter(program, line[2:].strip(b" \t").decode(errors="replace"))
    if header[:4] == b"\x7fELF" and len(header) == _HEADER_BYTES:
        _check_architecture(program, header)


def _check_interpreter(program: Path, line: str) -> None:
    interpreter = re.split("[ \t]", line, maxsplit=1)[0]
    if not interpreter or os.path.exists(interpreter):
        return
    # repr() shows a carriage return, which ends the line of a file from Windows.
    missing = f"the interpreter {interpreter!r} in the first line of {program} does not exist"
    raise Unavailable("command", missing, "Correct the line, or install the interpreter.")


def _check_architecture(program: Path, header: bytes) -> None:
    number = int.from_bytes(header[18:20], "little")
    machine, own = _MACHINES.get(number, f"machine {number}"), os.uname().machine
    if machine != own and number in _MACHINES:
        remedy = f"Build it on this machine, against the folder of ascend-sim toolkit, for {own}."
        raise Unavailable(
            "command", f"{program} is a program for {machine} and this machine is {own}", remedy
        )


def missing_pieces(program: str, environment: Mapping[str, str]) -> str | None:
    """Return a text about the libraries or symbols that the loader does not find, or None."""
    path, ldd = shutil.which(program), shutil.which("ldd")
    if path is None or ldd is None:
        return None
    try:
        done = subprocess.run(
            [ldd, "-r", path], env=dict(environment), capture_output=True, text=True, timeout=LDD_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    text = done.stdout + done.stderr
    libraries = sorted(set(re.findall(r"^\s*(\S+) => not found", text, re.MULTILINE)))
    symbols = sorted(set(re.findall(r"undefined symbol: (\w+)", text)))
    if libraries:
        return f"{program} needs libraries that were not found: {_listed(libraries)}"
    if symbols:
        return f"{program} needs symbols that no library has: {_listed(symbols)}"
    return None


def _listed(names: list[str]) -> str:
    more = len(names) - MAX_NAMES
    return ", ".join(names[:MAX_NAMES]) + (f" and {more} more" if more > 0 else "")
