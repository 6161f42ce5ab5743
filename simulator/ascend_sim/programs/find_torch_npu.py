"""Find the torch_npu, if any, of a program that is to run on the simulated CANN."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from ascend_sim.errors import Unavailable
from ascend_sim.programs import executables

PROBE_SECONDS = 60

# The probe runs in the Python of the command, where ascend_sim may be missing. It imports neither torch nor
# torch_npu, because torch would load torch_npu, and torch_npu would load CANN.
_PROBE = """
import importlib.metadata, importlib.util, json, sys
del sys.path[0]  # the current folder, which is not on the path of the command
found = {}
for name in ("torch", "torch_npu"):
    spec = importlib.util.find_spec(name)
    folders = list(spec.submodule_search_locations or ()) if spec else []
    found[name] = folders[0] if folders else None
try:
    found["version"] = importlib.metadata.version("torch_npu")
except importlib.metadata.PackageNotFoundError:
    found["version"] = "unknown"
print(json.dumps(found))
"""


@dataclass(frozen=True)
class TorchNpu:
    """An installed torch_npu and its torch."""

    version: str
    folder: Path
    torch_folder: Path

    def libraries(self) -> list[Path]:
        """Return torch_npu's own shared libraries."""
        return sorted(self.folder.rglob("*.so"))

    def other_libraries(self) -> list[Path]:
        """Return the libraries that torch_npu finds without CANN: torch's, and those of its wheel."""
        folders = [self.torch_folder / "lib", self.folder.parent / "torch_npu.libs"]
        return sorted(path for folder in folders if folder.is_dir() for path in folder.glob("*.so*"))


def python_of(command: list[str]) -> str:
    """Return the Python that runs ``command``.

    It is the command itself, or the one that its ``#!`` line names, else the first ``python`` or ``python3``
    on ``PATH``, else this process's own.
    """
    program = str(executables.find(command[0]))
    if Path(command[0]).name.startswith("python"):
        return program
    with open(program, "rb") as stream:
        line = stream.readline(512)
    if line.startswith(b"#!"):
        words = line[2:].decode(errors="replace").split()
        pythons = [word for word in words if Path(word).name.startswith("python")]
        if pythons and (found := shutil.which(pythons[0])):
            return found
    return shutil.which("python") or shutil.which("python3") or sys.executable


def torch_npu_of(python: str) -> TorchNpu | None:
    """Return the torch_npu that this Python imports, or None if torch or torch_npu is not installed there."""
    remedy = "Name another: ascend-sim run -- PATH …"
    try:
        probe = subprocess.run([python, "-c", _PROBE], capture_output=True, text=True, timeout=PROBE_SECONDS)
    except (OSError, subprocess.TimeoutExpired):
        raise Unavailable("python", f"{python} does not run", remedy) from None
    try:
        found = json.loads(probe.stdout.splitlines()[-1])
    except (ValueError, IndexError):
        cause = "".join(f": {line}" for line in probe.stderr.splitlines()[-1:])
        raise Unavailable("python", f"{python} does not run a program{cause}", remedy) from None
    if found["torch"] is None or found["torch_npu"] is None:
        return None
    return TorchNpu(found["version"], Path(found["torch_npu"]), Path(found["torch"]))
