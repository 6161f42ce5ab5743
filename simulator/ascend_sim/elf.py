"""The machine that an ELF file, a program or a library of Linux, is for."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["MAGIC", "load_fault", "other_machine"]

MAGIC = b"\x7fELF"
_MACHINE = slice(18, 20)  # e_machine
_MACHINES = {3: "i386", 40: "arm", 62: "x86_64", 183: "aarch64", 243: "riscv64"}


def other_machine(header: bytes) -> str | None:
    """Return the name of the machine that an ELF file is for, if it is not this one.

    Args:
        header: the file's first 20 bytes or more.

    Returns:
        None for this machine, for a machine without a name here and for other files.
    """
    if header[:4] != MAGIC or len(header) < _MACHINE.stop:
        return None
    machine = _MACHINES.get(int.from_bytes(header[_MACHINE], "little"))
    return None if machine == os.uname().machine else machine


def load_fault(library: Path, error: BaseException) -> str:
    """Return why a library does not load: its machine, or the text of the loader's error.

    The loader calls a library for another machine a missing file.
    """
    try:
        with library.open("rb") as stream:
            machine = other_machine(stream.read(_MACHINE.stop))
    except OSError:
        machine = None
    return f"{library} is for {machine} and this machine is {os.uname().machine}" if machine else str(error)
