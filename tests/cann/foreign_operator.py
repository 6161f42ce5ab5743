"""The package and the kernel of a foreign operator, built as cmake builds the project's own."""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path
from typing import Any

import aclnn
import numpy as np

from npu_rope import native_sim, simulator

ROOT = Path(__file__).resolve().parents[2]
FOREIGN = ROOT / "tests" / "cann" / "foreign"
HOST = ROOT / "simulator" / "cann" / "host"
FLAGS = ["-std=c++17", "-O0", "-fPIC", "-fvisibility=hidden", "-Wall", "-Wextra", "-Werror"]
FLAGS += [f"-I{aclnn.INCLUDE}", f"-I{ROOT}", f"-I{FOREIGN}"]
EVERY_PART = ("contexts", "kernel_file", "kernel_names", "op_def", "registry")
OP_BUILD = ("op_build", "package_writer")
CALLS = ("op_call", "op_launch", "device_view", "call_tensors", "executors", "tiling_cache")
CALLS += ("json_reader", "package_files")


def compiled(*sources: Path, output: Path, more: Any = ()) -> Path:
    compiler = shlex.split(os.environ.get("CXX", "c++"))
    subprocess.run([*compiler, *FLAGS, *map(str, more), *map(str, sources), "-o", str(output)], check=True)
    return output


def generate(definition: str, folder: Path) -> Path:
    """Run op_build on a definition's source text; it writes to a folder."""
    source = folder / "definition.cpp"
    source.write_text(definition)
    parts = [HOST / f"{s}.cpp" for s in (*OP_BUILD, *EVERY_PART)] + [ROOT / "simulator/src/profiles.cpp"]
    op_build = compiled(source, *parts, output=folder / "op_build", more=["-DOP_DEFINITIONS"])
    subprocess.run([op_build, folder], check=True)
    return folder


def build_package(folder: Path) -> Path:
    libraries, headers, tilings = folder / "op_api/lib", folder / "op_api/include", folder / aclnn.TILINGS
    for made in (libraries, headers, tilings.parent):
        made.mkdir(parents=True)
    parts = [
        compiled(FOREIGN / "weighted_add_def.cpp", output=folder / f"def{mode}.o", more=["-c", mode])
        for mode in ("-DOP_DEFINITIONS", "-DOP_PROTO_LIB", "-DOP_TILING_LIB")
    ]
    shared = [HOST / f"{s}.cpp" for s in EVERY_PART] + [ROOT / "simulator/src/profiles.cpp"]
    objects = [compiled(s, output=folder / f"{s.stem}.o", more=["-c"]) for s in shared]
    op_build = compiled(
        *[HOST / f"{s}.cpp" for s in OP_BUILD], parts[0], *objects, output=folder / "op_build"
    )
    subprocess.run([op_build, headers, folder], check=True)
    compiled(
        HOST / "tiling_library.cpp",
        parts[2],
        *objects,
        output=tilings,
        more=["-shared"],
    )
    compiled(
        headers / "aclnn_weighted_add.cpp",
        *[HOST / f"{s}.cpp" for s in CALLS],
        *parts[:2],
        *objects,
        native_sim.load().path,
        output=libraries / "libcust_opapi.so",
        more=["-shared", f"-I{headers}"],
    )
    return folder


def build_kernel(folder: Path, source: Path = FOREIGN / "weighted_add.cpp", dtype: str = "float") -> Path:
    entry = f"weighted_add__ascend910b__{dtype}_{dtype}_{dtype}"
    defines = {"weighted_add": entry} | {f"DTYPE_{a}": dtype for a in "XYZ"}
    return simulator.build(source, defines=defines, folder=folder, include=[FOREIGN])


def call(**changed: Any) -> dict[str, Any]:
    """A call's arguments; the result is out = alpha * x + 1.5 * y."""
    x = np.arange(21, dtype=np.float32).reshape(3, 7)
    made = {"x": x, "y": x[::-1].copy(), "out": np.zeros_like(x), "axes": [0], "alpha": 0.5, "adds": True}
    return made | {"shift": [0], "copies": 1} | changed


def expected(given: dict[str, Any]) -> Any:
    return np.float32(given["alpha"]) * given["x"] + np.float32(1.5) * given["y"]
