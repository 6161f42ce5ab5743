"""The machine that an ELF file, a program or a library of Linux, is for, and whether it is whole."""

from __future__ import annotations

import os
import struct
from pathlib import Path

__all__ = ["MAGIC", "check_whole", "load_fault", "other_machine"]

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


def check_whole(library: Path) -> None:
    """Require that a 64-bit ELF file has all bytes that the loader maps. Other files pass.

    The loader maps a truncated library, and a read of its missing part ends the process by SIGBUS.

    Raises:
        OSError: the file is truncated, cannot be read, or is a pipe or a device.
    """
    if library.exists() and not library.is_file():
        raise OSError(f"{library} is no regular file")
    with library.open("rb") as stream:
        header = stream.read(64)
        if len(header) < 64 or header[:5] != MAGIC + b"\x02":
            return  # the loader refuses it
        (begin,), (size, count) = struct.unpack_from("<Q", header, 32), struct.unpack_from("<HH", header, 54)
        stream.seek(begin)
        parts = stream.read(size * count)
        end = begin + size * count
        for at in range(0, len(parts) - 55, max(size, 56)):
            offset, bytes_in_file = struct.unpack_from("<Q16xQ", parts, at + 8)
            end = max(end, offset + bytes_in_file)
        found = stream.seek(0, os.SEEK_END)
    if end > found:
        raise OSError(f"{library} is truncated: it has {found} of at least {end} bytes")


def load_fault(library: Path, error: BaseException) -> str:
    """Return why a library does not load: its machine, or the text of the loader's error.

    The loader calls a library for another machine a missing file, and does not say why it cannot map a file.
    """
    try:
        with library.open("rb") as stream:
            machine = other_machine(stream.read(_MACHINE.stop))
    except OSError:
        machine = None
    if machine:
        return f"{library} is for {machine} and this machine is {os.uname().machine}"
    if "failed to map segment" in str(error):
        return f"{error} (too little memory, or a file system whose files may not be executed)"
    return str(error)
