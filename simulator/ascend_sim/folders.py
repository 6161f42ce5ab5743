"""The folders of an installed ascend_sim: libraries, headers, CMake functions."""

from __future__ import annotations

import os
import sysconfig
from collections.abc import Iterator
from pathlib import Path

from ascend_sim import elf
from ascend_sim.errors import Unavailable

__all__ = ["include", "library", "library_folders", "root"]

_PACKAGE = Path(__file__).resolve().parent
_REMEDY = "Install it: pip install ./simulator in the project's folder (a C++17 compiler is needed)."


def root() -> Path:
    """The folder that holds ``include/``, ``cann/`` and ``cmake/``.

    It is the package's folder, or in an editable install the folder ``simulator/`` of the checkout.

    Raises:
        Unavailable: the headers are not installed.
    """
    for folder in (_PACKAGE.parent, _PACKAGE, *_installed()):
        if (folder / "include" / "kernel_operator.h").is_file():
            return folder
    raise Unavailable("headers", "they were not found", _REMEDY)


def include() -> Path:
    """The folder with ``kernel_operator.h``: ``-I`` for a kernel's compiler."""
    return root() / "include"


def library_folders() -> Iterator[Path]:
    """The folders of libraries: ``ASCEND_SIM_LIB_DIR`` alone, else those of the installation."""
    if forced := os.environ.get("ASCEND_SIM_LIB_DIR"):
        yield Path(forced).absolute()
        return
    yield from (folder / "lib" for folder in dict.fromkeys((_PACKAGE, *_installed())))


def library(stem: str) -> Path:
    """The path of ``lib<stem>.so``, which is whole.

    Raises:
        Unavailable: it was not built, or is truncated.
    """
    path = _find(f"lib{stem}.so")
    try:
        elf.check_whole(path)
    except OSError as cause:
        raise Unavailable(path.name, f"it does not load: {cause}", "Install ascend-sim again.") from None
    return path


def archive(stem: str) -> Path:
    """The path of ``lib<stem>.a``.

    Raises:
        Unavailable: it was not built.
    """
    return _find(f"lib{stem}.a")


def _find(name: str) -> Path:
    for folder in library_folders():
        if (folder / name).is_file():
            return folder / name
    searched = ", ".join(map(str, library_folders()))
    raise Unavailable(name, f"it was not found in {searched}", _REMEDY)


def _installed() -> Iterator[Path]:
    """Folders in which an editable install keeps the files that CMake installs."""
    import ascend_sim

    schemes = (Path(sysconfig.get_path(scheme)) / "ascend_sim" for scheme in ("platlib", "purelib"))
    yield from dict.fromkeys((*map(Path, ascend_sim.__path__), *schemes))
