"""Why a program does not start: its architecture, its libraries, its symbols."""

from __future__ import annotations

import os
import re
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


def check_architecture(program: Path) -> None:
    """Raise :class:`Unavailable` if ``program`` is an ELF file for another machine than this one."""
    with program.open("rb") as stream:
        header = stream.read(_HEADER_BYTES)
    if header[:4] != b"\x7fELF" or len(header) < _HEADER_BYTES:
        return
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
