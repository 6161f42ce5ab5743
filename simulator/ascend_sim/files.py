"""Check the files of a command before its work, and write outputs completely or not at all."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import secrets
import shutil
import stat
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO, Any

_CHUNK_BYTES = 1 << 20
_ACCESS_LIST = "system.posix_acl_access"
_MOST_SOURCE_BYTES = 1 << 26  # of a kernel's or tiling's source
# Control characters but tab and line feed, and halves of surrogate pairs, which no encoding has.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
# Whether a JSON file can have such a character in a text: escaped, or, above 126, as it is.
_MAY_HAVE_CONTROL = re.compile(r"\\[ubfr]|[\x7f-\x9f]")

__all__ = [
    "bytes_of",
    "cause_of",
    "is_number",
    "json_of",
    "remove",
    "replacing",
    "shared",
    "stream_to",
    "unwritable",
]


def cause_of(error: Exception) -> str:
    """Return the error's text, without the number and path of an error about a file."""
    if isinstance(error, shutil.Error) and isinstance(error.args[0], list):  # of shutil.copytree()
        _, _, cause = error.args[0][0]
        return str(cause)
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def digest(data: bytes) -> str:
    """Return 16 hexadecimal digits that differ for different data."""
    return hashlib.sha256(data).hexdigest()[:16]


def unreadable(source: Path) -> str | None:
    """Return None if ``source`` is a file with text, else an error text without the argument's name."""
    try:
        if bytes_of(source, _MOST_SOURCE_BYTES).strip():
            return None
        return f"must have a kernel but got {source}, which is empty."
    except (OSError, ValueError) as error:
        return f"must be a file that can be read but got {source}: {cause_of(error)}."


def unwritable(path: Path) -> str | None:
    """Return None if :func:`replacing` can write ``path``, else an error text without the argument's name."""
    if os.path.isdir(path) or not os.path.isdir(path.parent):
        return f"must be a file in an existing folder but got {path}."
    try:
        with suppress(FileNotFoundError):
            path.stat()  # an endless chain of links is refused, as a shell refuses it
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


def shared(read: Sequence[tuple[str, Path]], **written: Path | None) -> str | None:
    """Return None if no written file is also read or written as another, else an error text that begins with
    its name. None is no file, and devices and pipes may be shared."""
    names = {os.path.realpath(path): name for name, path in read}
    for name, path in written.items():
        if path is not None and not _is_special(path):
            other = names.setdefault(os.path.realpath(path), name)
            if other != name:
                return f"{name} must differ from {other} but got {path}."
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


def json_of(path: Path, most_bytes: int) -> Any:
    """Return the contents of a JSON file that comes from elsewhere. Its texts can be encoded, and control no
    terminal.

    Raises:
        OSError: the file cannot be read.
        ValueError: it has more bytes than ``most_bytes``, is not JSON, or has a text with a control character
            or with half of a surrogate pair.
    """
    text = bytes_of(path, most_bytes).decode("utf-8")
    try:
        contents = json.loads(text)
    except RecursionError as error:
        raise ValueError(str(error)) from None
    if _MAY_HAVE_CONTROL.search(text) and (character := _control_character_in(contents)):
        raise ValueError(f"one of its texts has the character U+{ord(character):04X}")
    return contents


def _control_character_in(contents: Any) -> str | None:
    """Return a control character of a text or of a key, at any depth, or None."""
    parts = [contents]
    while parts:
        part = parts.pop()
        if isinstance(part, str) and (found := _CONTROL.search(part)):
            return found[0]
        if isinstance(part, dict):
            parts += part
            parts += part.values()
        elif isinstance(part, list):
            parts += part
    return None


def is_number(value: Any) -> bool:
    """Return whether an entry of a file is a number between -2^63 and 2^63, with which one can compute."""
    return isinstance(value, int | float) and -(2**63) <= value < 2**63


@contextmanager
def replacing(path: Path, mode: str = "w") -> Iterator[IO[Any]]:
    """Open a temporary file, which replaces ``path`` when complete; an exception removes it.

    Its name is new and random, so that in a folder that others may write, a link of theirs with this name is
    never followed. It gets the permissions of the file that it replaces. Devices and pipes are written
    directly.
    """
    text_mode = {} if "b" in mode else {"encoding": "utf-8", "newline": ""}
    if _is_special(path):
        with path.open(mode, **text_mode) as stream:  # type: ignore[call-overload]
            yield stream
        return
    target = Path(os.path.realpath(path))  # replace the file that a symbolic link names
    temporary = _temporary_name(target)
    stream = temporary.open(mode.replace("w", "x"), **text_mode)  # type: ignore[call-overload]
    try:
        with stream:
            _copy_permissions(target, stream.fileno())
            yield stream
        os.replace(temporary, target)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise


def write_together(outputs: Sequence[tuple[Path, Callable[[IO[bytes]], None]]]) -> None:
    """Write files, each by its function: all or, if one cannot be written, none.

    Devices and pipes follow, one after the other, because their readers may wait for the end of one.
    """
    with ExitStack() as files:
        for path, write in outputs:
            if not _is_special(path):
                stream = files.enter_context(replacing(path, "wb"))
                write(stream)
                stream.flush()
    for path, write in outputs:
        if _is_special(path):
            with replacing(path, "wb") as stream:
                write(stream)


def _copy_permissions(target: Path, file: int) -> None:
    """Give a new file the permissions of the one that it will replace, if both have one owner."""
    if not target.exists() or (status := target.stat()).st_uid != os.geteuid():
        return
    try:
        access = os.getxattr(target, _ACCESS_LIST)
    except OSError:  # it has no access control list, but the new file may have one from its folder
        with suppress(OSError):
            os.removexattr(file, _ACCESS_LIST)
    else:
        os.setxattr(file, _ACCESS_LIST, access)
    os.fchmod(file, stat.S_IMODE(status.st_mode) & 0o777)


def text_file(folder: Path, stem: str, text: str, suffix: str = ".cpp") -> Path:
    """Return a file of an existing folder that has this text. Its name has the text's digest; a file of this
    name with another text is replaced."""
    path, data = folder / f"{stem}-{digest(text.encode())}{suffix}", text.encode()
    if not path.is_file() or path.read_bytes() != data:
        with replacing(path, "wb") as stream:
            stream.write(data)
    return path


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Let one process at a time run the block that holds the lock file ``path``."""
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(lock, fcntl.LOCK_UN)  # a child that was forked meanwhile holds it, too


def remove(path: Path) -> None:
    """Remove the file that :func:`replacing` would replace, if it exists. Devices and pipes stay."""
    if not _is_special(path):
        Path(os.path.realpath(path)).unlink(missing_ok=True)


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
    target = Path(os.path.realpath(path))
    begin = os.fsdecode(os.fsencode(target.name)[:200])  # a name has at most 255 bytes
    return target.with_name(f".{begin}.{secrets.token_hex(4)}")
