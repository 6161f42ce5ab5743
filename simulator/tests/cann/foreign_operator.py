"""The package and the kernels of WeightedAdd, built as cmake builds those of npu_rope's operators."""

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
SIMULATOR = folders.root()
LIBRARIES = folders.library("ascend_sim").parent
FLAGS = ["-std=c++17", "-O0", "-fPIC", "-fvisibility=hidden", "-Wall", "-Wextra", "-Werror"]
FLAGS += [f"-I{SIMULATOR}", f"-I{SIMULATOR / 'cann/include'}", f"-I{FOREIGN}"]
RUNTIME_LIBRARIES = [LIBRARIES / "libascend_sim.so", LIBRARIES / "libascend_sim_cann.so"]
HOST_LIBRARY = [LIBRARIES / "libascend_sim_host.a"]
OP_BUILD = [LIBRARIES / "libascend_sim_op_build.a", *HOST_LIBRARY]


def compile_files(*sources: Path, output: Path, more: Any = ()) -> Path:
    compiler = shlex.split(os.environ.get("CXX", "c++"))
    subprocess.run([*compiler, *FLAGS, *map(str, sources), *map(str, more), "-o", str(output)], check=True)
    return output


def generate(definition: str, folder: Path) -> Path:
    """Run op_build on the source text of a definition; return the folder with its output."""
    source = folder / "definition.cpp"
    source.write_text(definition)
    op_build = compile_files(source, output=folder / "op_build", more=["-DOP_DEFINITIONS", *OP_BUILD])
    subprocess.run([op_build, folder], check=True)
    return folder


def build_package(folder: Path) -> Path:
    libraries, headers, tilings = folder / "op_api/lib", folder / "op_api/include", folder / aclnn.TILINGS
    for parent in (libraries, headers, tilings.parent):
        parent.mkdir(parents=True)
    objects = [
        compile_files(FOREIGN / "weighted_add_def.cpp", output=folder / f"def{mode}.o", more=["-c", mode])
        for mode in ("-DOP_DEFINITIONS", "-DOP_PROTO_LIB", "-DOP_TILING_LIB")
    ]
    op_build = compile_files(objects[0], output=folder / "op_build", more=OP_BUILD)
    subprocess.run([op_build, headers, folder], check=True)
    for description in headers.glob("aic-*-ops-info.json"):
        config = folder / "op_impl/ai_core/tbe/config" / description.name.split("-")[1]
        config.mkdir(parents=True)
        shutil.copy(description, config)
    tiling_library = [
        "-Wl,-u,simulated_cann_tiling_library",
        LIBRARIES / "libascend_sim_tilings.a",
        *HOST_LIBRARY,
    ]
    compile_files(objects[2], output=tilings, more=["-shared", *tiling_library])
    compile_files(
        headers / "aclnn_weighted_add.cpp",
        *objects[:2],
        output=libraries / "libcust_opapi.so",
        more=["-shared", f"-I{headers}", *HOST_LIBRARY, *RUNTIME_LIBRARIES],
    )
    return folder


def build_kernel(folder: Path, source: Path = FOREIGN / "weighted_add.cpp", dtype: str = "float") -> Path:
    entry = f"weighted_add__ascend910b__{dtype}_{dtype}_{dtype}"
    defines = {"weighted_add": entry} | {f"DTYPE_{a}": dtype for a in "XYZ"}
    return ascend_sim.build(source, defines=defines, folder=folder, include=[FOREIGN], flags=["-O0"])


def call(**changed: Any) -> dict[str, Any]:
    """Arguments of a call. Unless `changed`, the result is out = 0.5 * x + 1.5 * y."""
    x = np.arange(21, dtype=np.float32).reshape(3, 7)
    given = {"x": x, "y": x[::-1].copy(), "out": np.zeros_like(x), "axes": [0], "alpha": 0.5, "adds": True}
    return given | {"shift": [0], "copies": 1} | changed


def expected(given: dict[str, Any]) -> Any:
    """The result of a call whose weight is 1.5."""
    return np.float32(given["alpha"]) * given["x"] + np.float32(1.5) * given["y"]
