"""Remove private facts from the report: host and user names, and paths outside of the installation."""

from __future__ import annotations

import getpass
import os
import re
import socket
import sys
import sysconfig
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import npu_rope
from npu_rope import native

LEFT_OUT = (
    "the host's and the user's names",
    "paths outside of the installation, which become <path>, <home> or <temporary>; the installation's"
    " folders become <npu_rope>, <python>, <packages> and <CANN>",
    "serial numbers, addresses and other processes: they are never read",
    "environment variables, except those listed under Machine",
)
# A path that is the same on every machine.
_PUBLIC = re.compile(r"/dev/davinci\w*|/usr/local/Ascend(?=/|$)")
# Does not match a fraction, a division, "and/or", a web address or a path after a name like <CANN>.
_PATH = re.compile(r"(?<![\w/.>)\]\-+*%])/[\w.+@~=-]+(?:/[\w.+@~=,-]*)*")
_COMMON_NAMES = ("root", "localhost", "user", "ascend", "npu", "npu_rope", "cann")
_SHORTEST_NAME = 3


def installation() -> dict[str, str]:
    """Return the folders that have a name in the report, by path.

    The Python files and the libraries of an editable install are in different folders; both have the name
    ``<npu_rope>``.
    """
    folders = {
        **{os.path.abspath(folder): "<npu_rope>/lib" for folder in native.library_folders()},
        **{os.path.abspath(folder): "<npu_rope>" for folder in npu_rope.__path__},
        str(Path(__file__).parents[1]): "<npu_rope>",
        sysconfig.get_paths()["purelib"]: "<packages>",
        sysconfig.get_paths()["platlib"]: "<packages>",
        sys.prefix: "<python>",
        sys.base_prefix: "<python>",
        tempfile.gettempdir(): "<temporary>",
        str(Path.home()): "<home>",
    }
    for variable in ("ASCEND_HOME_PATH", "ASCEND_TOOLKIT_HOME"):
        if folder := os.environ.get(variable):
            folders[folder.rstrip("/")] = "<CANN>"
    folders |= {os.path.realpath(folder): name for folder, name in folders.items()}
    return {folder: name for folder, name in folders.items() if folder not in ("", "/")}


def private_names() -> list[str]:
    """Return the names of the host and the user, except short and common ones."""
    found = {socket.gethostname(), socket.getfqdn(), os.environ.get("HOSTNAME", "")}
    found |= {name.partition(".")[0] for name in found}
    with suppress(KeyError, OSError):  # a user without a name
        found.add(getpass.getuser())
    private = {name for name in found if len(name) >= _SHORTEST_NAME and name.lower() not in _COMMON_NAMES}
    return sorted(private, key=len, reverse=True)


class Scrubber:
    """Removes private facts from texts, and from lists and mappings of texts."""

    def __init__(self, folders: Mapping[str, str] | None = None, private: list[str] | None = None) -> None:
        self.folders = installation() if folders is None else dict(folders)
        private = private_names() if private is None else private
        self._names = (
            re.compile("|".join(rf"(?<!\w){re.escape(name)}(?!\w)" for name in private)) if private else None
        )

    def text(self, text: str) -> str:
        """Return the text with the names of the installation's folders, and without private facts."""
        for folder in sorted(self.folders, key=len, reverse=True):
            text = re.sub(rf"{re.escape(folder)}(?=/|[^\w.\-/]|$)", self.folders[folder], text)
        text = _PATH.sub(lambda match: match[0] if _PUBLIC.match(match[0]) else "<path>", text)
        return self._names.sub("<name>", text) if self._names else text

    def clean(self, value: Any) -> Any:
        """Clean a text, or all texts in lists and mappings; keys remain unchanged."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {key: self.clean(item) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.clean(item) for item in value]
        return value
