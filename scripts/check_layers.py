"""Check who sees whom: the layer table of docs/architecture.md, as data, against the tree.

A layer is a folder (or a file pattern). For C and C++ the #include lines are judged, for Python
the imports, wherever in the file they stand. The first row of a table that matches a file is its
layer; a file that no row matches is not judged.

usage: check_layers.py [ROOT]
"""

from __future__ import annotations

from dataclasses import dataclass

C_STD = "<std>"  # any standard header: <name> without slash or extension, or C's own <name.h>
C_HEADERS = ("stdint.h", "stddef.h", "stdio.h", "stdlib.h", "string.h", "math.h", "stdbool.h", "float.h")


@dataclass(frozen=True)
class Layer:
    """Files of one layer, and patterns of what they may see."""

    files: tuple[str, ...]
    may_see: tuple[str, ...]
    never: tuple[str, ...] = ()  # C and C++: regular expressions; Python: modules
    names_no_operator: bool = False


CPP_LAYERS = (
    Layer(("include/*",), ("stdint.h",)),
    Layer(("op_kernel/*_tiling_data.h",), ("cstdint",)),
    Layer(
        ("op_kernel/*",),
        ("kernel_operator.h", "*_tiling_data.h", "op_kernel/common/*", "common/*"),
        never=(r"#\s*if.*(?:SIMULATOR|ASCENDC_CPU_DEBUG)",),
    ),
    Layer(("op_host/*_def.cpp",), ("*",), never=(r'#\s*include\s*[<"](?:torch|ATen|c10|simulator)/',)),
    Layer(("op_host/*",), (C_STD, "op_host/*", "op_kernel/*_tiling_data.h", "include/npu_rope.h")),
    Layer(("simulator/cann/*",), (C_STD, "simulator/*", "acl/*", "aclnn/*"), names_no_operator=True),
    Layer(
        ("simulator/*",),
        (C_STD, "simulator/*", "ascendc/*", "kernel_operator.h"),
        names_no_operator=True,
    ),
    Layer(
        ("csrc/cpu/*",),
        (C_STD, "omp.h", "immintrin.h", "arm_neon.h", "csrc/cpu/*", "op_host/*", "include/npu_rope.h"),
    ),
    Layer(("csrc/capi/*",), (C_STD, "csrc/capi/*", "csrc/cpu/*", "op_host/*", "include/npu_rope.h")),
    Layer(
        ("csrc/torch/*",),
        (C_STD, "torch/csrc/stable/*", "torch/headeronly/*", "csrc/torch/*", "include/npu_rope.h"),
        never=(r"\b(?:at|c10)::",),
    ),
    Layer(
        ("csrc/npu/*",),
        (
            C_STD,
            "torch/*",
            "ATen/*",
            "c10/*",
            "torch_npu/*",
            "acl/*",
            "aclnn*",
            "csrc/npu/*",
            "include/npu_rope.h",
        ),
    ),
)

PY_STD = "<std>"
PACKAGE = "npu_rope"
# What needs nothing but NumPy.
PURE = ("npu_rope.params", "npu_rope.checks", "npu_rope.*_checks", "npu_rope.strided", "npu_rope.errors")
