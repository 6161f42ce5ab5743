"""``ascend-sim doctor``: list the installed pieces, and how to get the missing ones."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import shlex
import shutil
import sys
from collections.abc import Callable

import typer

from ascend_sim import __version__, folders
from ascend_sim.compiler import compiler
from ascend_sim.errors import Unavailable
from ascend_sim.library import load
from ascend_sim.programs import session

MISSING = 1


def doctor() -> None:
    """List the simulator's installed pieces, and how to get the missing ones.

    Exit status: 0 success; 1 a piece that every kernel needs is missing.
    """
    print(f"ascend-sim {__version__}, Python {sys.version.split()[0]}\n")
    needed = [
        _piece("library", lambda: str(load().path)),
        _piece("headers", lambda: str(folders.include())),
        _piece("compiler", lambda: shutil.which(shlex.split(compiler())[0]) or ""),
    ]
    _piece("chips", lambda: ", ".join(dict.fromkeys(str(p["name"]) for p in load().profiles())))
    print("\nfor ascend-sim run:")
    _piece("simulated CANN", lambda: str(folders.library("ascend_sim_cann")))
    _piece("its chips", lambda: ", ".join(session.chips()))
    _piece("pyelftools", lambda: _installed("elftools", "pyelftools", "pip install 'ascend-sim[run]'"))
    _piece(
        "torch_npu", lambda: _installed("torch_npu", "torch_npu", "pip install torch_npu (torch's version)")
    )
    print("\nfor --plot:")
    _piece("matplotlib", lambda: _installed("matplotlib", "matplotlib", "pip install 'ascend-sim[plot]'"))
    raise typer.Exit(0 if all(needed) else MISSING)


def _piece(name: str, find: Callable[[], str]) -> bool:
    """Print a piece's line; return whether it was found."""
    try:
        print(f"  {name:<15} {find()}")
    except Unavailable as error:
        print(f"  {name:<15} missing: {error.missing}\n  {'':<15} {error.remedy}")
        return False
    return True


def _installed(module: str, package: str, remedy: str) -> str:
    if importlib.util.find_spec(module) is None:
        raise Unavailable(package, "this Python does not have it", remedy)
    return importlib.metadata.version(package)
