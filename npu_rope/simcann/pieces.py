"""Find the parts of a simulated run: a Python with torch_npu, npu_rope's library, a compiler."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from npu_rope import native

PROBE_SECONDS = 60

# Runs in the Python of the command, where npu_rope may be missing. It imports neither torch nor torch_npu,
# because torch would load torch_npu, and torch_npu would load CANN.
_PROBE = """
import importlib.metadata, importlib.util, json
found = {}
for name in ("torch", "torch_npu"):
    spec = importlib.util.find_spec(name)
    found[name] = list(spec.submodule_search_locations)[0] if spec else None
try:
    found["version"] = importlib.metadata.version("torch_npu")
except importlib.metadata.PackageNotFoundError:
    found["version"] = "unknown"
print(json.dumps(found))
"""


class MissingPiece(RuntimeError):
    """A part that a simulated run needs is missing."""

    def __init__(self, piece: str, missing: str, remedy: str) -> None:
        super().__init__(f"[sim] {piece} must be available but {missing}.\n{remedy}")


@dataclass(frozen=True)
class TorchNpu:
    """An installed torch_npu and its torch."""

    version: str
    folder: Path
    torch_folder: Path

    def libraries(self) -> list[Path]:
        """torch_npu's own shared libraries."""
        return sorted(self.folder.rglob("*.so"))

    def beside(self) -> list[Path]:
        """Libraries that torch_npu finds without CANN: torch's, and those in its wheel."""
        folders = [self.torch_folder / "lib", self.folder.parent / "torch_npu.libs"]
        return sorted(path for folder in folders if folder.is_dir() for path in folder.glob("*.so*"))


def python_of(command: list[str]) -> str:
    """The Python that runs ``command``: itself, that of its first line, else the first on the path."""
    program = shutil.which(command[0])
    if program is None:
        raise MissingPiece("command", f"there is no program {command[0]}", "Give its path, or install it.")
    if Path(command[0]).name.startswith("python"):
        return program
    with open(program, "rb") as stream:
        line = stream.readline(512)
    if line.startswith(b"#!"):
        words = line[2:].decode(errors="replace").split()
        named = [word for word in words if Path(word).name.startswith("python")]
        if named and (found := shutil.which(named[0])):
            return found
    return shutil.which("python") or shutil.which("python3") or sys.executable


def torch_npu_of(python: str) -> TorchNpu:
    """The torch_npu that this Python imports."""
    environment = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    try:
        done = subprocess.run(
            [python, "-c", _PROBE], capture_output=True, text=True, timeout=PROBE_SECONDS, env=environment
        )
        found = json.loads(done.stdout)
    except (OSError, ValueError, subprocess.TimeoutExpired):
        raise MissingPiece(
            "python", f"{python} does not run", "Name another: npu-rope sim -- PATH …"
        ) from None
    for name in ("torch", "torch_npu"):
        if found[name] is None:
            remedy = f"Install it there: {python} -m pip install torch torch_npu (the same version of both)."
            raise MissingPiece(name, f"{python} does not have it", remedy)
    return TorchNpu(found["version"], Path(found["torch_npu"]), Path(found["torch"]))


def cann_library() -> Path:
    """The path of libnpu_rope_cann."""
    found = native.find_library("npu_rope_cann")
    if found is None:
        remedy = "Reinstall npu-rope on Linux with a C++17 compiler there, without NPU_ROPE_CANN=OFF."
        raise MissingPiece("libnpu_rope_cann.so", "it was not built", remedy)
    return found


def compiler() -> str:
    """The C++ compiler: $CXX, or the first of the usual names."""
    for name in (os.environ.get("CXX"), "c++", "g++", "clang++"):
        if name and (found := shutil.which(name)):
            return found
    remedy = "Install one (apt install g++) or name it: CXX=/path/to/g++."
    raise MissingPiece("C++ compiler", "none was found as $CXX, c++, g++ or clang++", remedy)
