"""The state file of a long run that can be interrupted and continued."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import tempfile
from pathlib import Path
from typing import TextIO


class BadUsage(Exception):
    """An error that ends the program with status 2."""


class StateFile:
    """The file with a run's state, locked until it is closed. With path None there is no file.

    Forked processes do not inherit the lock, which is one of fcntl. It belongs to the file and not to the
    name, so each new file is locked before it gets the name.

    Raises:
        BadUsage: another run uses the file, or it is no regular file.
        OSError: the file cannot be opened or made.
    """

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self._file: TextIO | None = None
        if path is None:
            return
        while True:
            try:
                file = path.open("r+")
            except (FileNotFoundError, NotADirectoryError):
                if not path.parent.is_dir():
                    raise BadUsage(f"--state must be in a folder that exists but got {path}") from None
                if path.is_symlink():
                    raise BadUsage(f"--state must be no link that leads nowhere but got {path}") from None
                with contextlib.suppress(FileExistsError):  # another run has just made it
                    path.open("x").close()
                continue
            except IsADirectoryError:
                raise BadUsage(f"--state must be a regular file but got {path}") from None
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                file.close()
                raise BadUsage(f"--state must be a regular file but got {path}")
            try:
                fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                file.close()
                if error.errno not in (errno.EACCES, errno.EAGAIN):
                    raise
                raise BadUsage(f"--state must be a file that no other run uses but got {path}") from None
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(file.fileno()), path.stat()):
                    # A run that ended before its first save leaves an empty file.
                    self._file, self._is_new = file, os.fstat(file.fileno()).st_size == 0
                    return
            file.close()  # another run has replaced the file since it was opened

    def read(self) -> str:
        """Return the content that an earlier run saved, or an empty text."""
        return "" if self._file is None or self._is_new else self._file.read()

    def unreadable(self, error: Exception) -> BadUsage:
        """Return the error for a file that no earlier run saved; ``error`` is what its reader raised."""
        cause = f"{type(error).__name__}: {error}"
        return BadUsage(f"--state must be a file of an earlier run but got {self.path} ({cause})")

    def save(self, text: str) -> None:
        """Replace the file: after an interruption it holds the old or the new content."""
        if self.path is None:
            return
        file: TextIO | None = None
        temporary: Path | None = None
        try:
            # The name is random, so nobody can have planted a link of this name.
            descriptor, name = tempfile.mkstemp(prefix=f"{self.path.name}.", dir=self.path.parent)
            file, temporary = os.fdopen(descriptor, "w+"), Path(name)
            os.fchmod(descriptor, stat.S_IMODE(self.path.stat().st_mode))
            file.write(text)
            file.flush()
            fcntl.lockf(file, fcntl.LOCK_EX)
            os.replace(temporary, self.path)
        except BaseException as error:
            if temporary is not None:
                temporary.unlink(missing_ok=True)
            if self._is_new:  # and empty
                self.path.unlink(missing_ok=True)
            with contextlib.suppress(OSError):  # it writes again what did not fit on the disk
                if file is not None:
                    file.close()
            if isinstance(error, OSError):
                text = f"--state must be a file that one may write but {self.path} gave: {error.strerror}"
                raise BadUsage(text) from None
            raise
        self.close()
        self._file, self._is_new = file, False

    def close(self) -> None:
        """Unlock the file."""
        if self._file is not None:
            self._file.close()
