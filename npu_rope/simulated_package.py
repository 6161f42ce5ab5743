"""The simulated operator package, with definitions, tilings and kernels. It is loaded on first use."""

from __future__ import annotations

import os
import warnings
from functools import cache
from pathlib import Path

from ascend_sim import Unavailable
from ascend_sim.package import Package

from npu_rope.errors import BackendUnavailable
from npu_rope.native import INSTALL, library_folders

FOLDER = "simulated_package"
# Environment variables that had other names before ascend_sim was a package of its own.
OLD_VARIABLES = {
    f"NPU_ROPE_SIM_{name}": f"ASCEND_SIM_{name}" for name in ("SOC", "STREAMS", "SEED", "KERNELS")
}


def warn_of_old_variables() -> None:
    """Warn if a variable is set by its old name, which nothing reads."""
    for old, new in OLD_VARIABLES.items():
        if old in os.environ:
            warnings.warn(f"{old} is {new} now, and is ignored: set {new}.", FutureWarning, stacklevel=3)


def find() -> Path | None:
    """Return the first package in the library folders, or None."""
    return next((folder / FOLDER for folder in library_folders() if (folder / FOLDER).is_dir()), None)


@cache
def load() -> Package:
    """Return the package. Once it is loaded, further calls return the same object.

    Raises:
        BackendUnavailable: the package or the simulator is missing or does not load; the message has the
            cause.
    """
    warn_of_old_variables()
    folder = find()
    if folder is None:
        searched = ", ".join(str(f) for f in library_folders())
        missing = f"its operator package {FOLDER} was not found in {searched}"
        raise BackendUnavailable("sim", missing, INSTALL)
    try:
        return Package(folder)
    except Unavailable as error:
        cause = f"{error.piece} cannot be used: {error.missing}"
        raise BackendUnavailable("sim", cause, error.remedy) from None
