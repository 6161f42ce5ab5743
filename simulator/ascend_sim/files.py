"""Check the files of a command before its work, and write outputs completely or not at all."""

from __future__ import annotations

import hashlib
import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

_CHUNK_BYTES = 1 << 20

__all__ = ["bytes_of", "cause_of", "is_finite", "remove", "replacing", "stream_to", "unwritable"]


def cause_of(error: Exception) -> str:
    """Return the error's text, without the number and path of an error about a file."""
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def digest(data: bytes) -> str:
    """Return 16 hexadecimal digits that differ for different data."""
    return hashlib.sha256(data).hexdigest()[:16]


def unreadable(source: Path) -> str | None:
    """Return None if ``source`` is a file with text, else an error text without the argument's name."""
    try:
        if source.read_bytes().strip():
            return None
        return f"must have a kernel but got {source}, which is empty."
    except OSError as error:
        return f"must be a file that can be read but got {source}: {error.strerror}."


def unwritable(path: Path) -> str | None:
    """Return None if :func:`replacing` can write ``path``, else an error text without the argument's name."""
    if os.path.isdir(path) or not os.path.isdir(path.parent):
        return f"must be a file in an existing folder but got {path}."
    try:
        if _is_special(path):
            return None if os.access(path, os.W_OK) else f"must be a file one may write but got {path}."
        if path.exists() and not os.access(path, os.W_OK):
            return f"must be a file one may write but got {path}."
        temporary = _temporary_name(path)
        temporary.touch(exist_ok=False)
        temporary.unlink()
    except OSError as error:
        return f"must be a file one may write but got {path}: {error.strerror}."
    return None


def is_own_folder(path: Path) -> bool:
    """Return whether ``path`` is a folder that no other user may write, and not a link to one. Code that is
    loaded must be in such a folder. Folders of the superuser count as one's own."""
    status = path.lstat()
    others_may_write = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return stat.S_ISDIR(status.st_mode) and status.st_uid in (os.getuid(), 0) and not others_may_write


def bytes_of(path: Path, most_bytes: int) -> bytes:
    """Return the contents of a file that comes from elsewhere.

    No more than a limit is read, in chunks, so that a small file takes little memory.

    Raises:
        OSError: the file cannot be read.
        ValueError: it has more bytes than ``most_bytes``.
    """
    data = bytearray()
    with path.open("rb") as stream:
        while chunk := stream.read(_CHUNK_BYTES):
            data += chunk
            if len(data) > most_bytes:
                raise ValueError(f"it has more than {most_bytes} bytes")
    return bytes(data)


def is_finite(value: Any) -> bool:
    """Return whether an entry of a file is a number in the range of float64, which can be formatted."""
    return isinstance(value, int | float) and abs(value) <= sys.float_info.max


@contextmanager
def replacing(path: Path, mode: str = "w") -> Iterator[IO[Any]]:
    """Open a temporary file, which replaces ``path`` when complete; an exception removes it.

    Devices and pipes are written directly.
    """
    text_mode = {} if "b" in mode else {"encoding": "utf-8", "newline": ""}
    if _is_special(path):
        with path.open(mode, **text_mode) as stream:  # type: ignore[call-overload]
            yield stream
        return
    target = path.resolve()  # replace the file that a symbolic link names
    temporary = _temporary_name(target)
    try:
        with temporary.open(mode, **text_mode) as stream:  # type: ignore[call-overload]
            yield stream
        os.replace(temporary, target)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise


def remove(path: Path) -> None:
    """Remove the file that :func:`replacing` would replace, if it exists. Devices and pipes stay."""
    if not _is_special(path):
        path.resolve().unlink(missing_ok=True)


@contextmanager
def stream_to(output: Path | None) -> Iterator[Any]:
    """Yield standard output, or the file that :func:`replacing` opens."""
    if output is None:
        yield sys.stdout
    else:
        with replacing(output) as stream:
            yield stream


def _is_special(path: Path) -> bool:
    return path.exists() and not path.is_file()


def _temporary_name(path: Path) -> Path:
    target = path.resolve()
    return target.with_name(f".{target.name}.{os.getpid()}")
