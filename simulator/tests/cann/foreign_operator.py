"""The package and the kernel of a foreign operator, built as cmake builds the project's own."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import aclnn
import ascend_sim
import numpy as np
from ascend_sim import folders

FOREIGN = Path(__file__).resolve().parent / "foreign"
MACHINE = folders.root()
LIBRARIES = folders.library("ascend_sim").parent
FLAGS = ["-std=c++17", "-O0", "-fPIC", "-fvisibility=hidden", "-Wall", "-Wextra", "-Werror"]
FLAGS += [f"-I{MACHINE}", f"-I{MACHINE / 'cann/include'}", f"-I{FOREIGN}"]
RUNTIME = [LIBRARIES / "libascend_sim.so", LIBRARIES / "libascend_sim_cann.so"]
HOST = [LIBRARIES / "libascend_sim_host.a"]
OP_BUILD = [LIBRARIES / "libascend_sim_op_build.a", *HOST]


def compiled(*sources: Path, output: Path, more: Any = ()) -> Path:
    compiler = shlex.split(os.environ.get("CXX", "c++"))
    subprocess.run([*compiler, *FLAGS, *map(str, sources), *map(str, more), "-o", str(output)], check=True)
    return output


def generate(definition: str, folder: Path) -> Path:
    """Run op_build on a definition's source text; it writes to a folder."""
    source = folder / "definition.cpp"
    source.write_text(definition)
    op_build = compiled(source, output=folder / "op_build", more=["-DOP_DEFINITIONS", *OP_BUILD])
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
    op_build = compiled(parts[0], output=folder / "op_build", more=OP_BUILD)
    subprocess.run([op_build, headers, folder], check=True)
    for described in headers.glob("aic-*-ops-info.json"):
        config = folder / "op_impl/ai_core/tbe/config" / described.name.split("-")[1]
        config.mkdir(parents=True)
        shutil.copy(described, config)
    tiling_library = ["-Wl,-u,npu_cann_tiling_library", LIBRARIES / "libascend_sim_tilings.a", *HOST]
    compiled(parts[2], output=tilings, more=["-shared", *tiling_library])
    compiled(
        headers / "aclnn_weighted_add.cpp",
        *parts[:2],
        output=libraries / "libcust_opapi.so",
        more=["-shared", f"-I{headers}", *HOST, *RUNTIME],
    )
    return folder


def build_kernel(folder: Path, source: Path = FOREIGN / "weighted_add.cpp", dtype: str = "float") -> Path:
    entry = f"weighted_add__ascend910b__{dtype}_{dtype}_{dtype}"
    defines = {"weighted_add": entry} | {f"DTYPE_{a}": dtype for a in "XYZ"}
    return ascend_sim.build(source, defines=defines, folder=folder, include=[FOREIGN])


def call(**changed: Any) -> dict[str, Any]:
    """A call's arguments; the result is out = alpha * x + 1.5 * y."""
    x = np.arange(21, dtype=np.float32).reshape(3, 7)
    made = {"x": x, "y": x[::-1].copy(), "out": np.zeros_like(x), "axes": [0], "alpha": 0.5, "adds": True}
    return made | {"shift": [0], "copies": 1} | changed


def expected(given: dict[str, Any]) -> Any:
    return np.float32(given["alpha"]) * given["x"] + np.float32(1.5) * given["y"]
