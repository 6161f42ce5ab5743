"""Load the installed ggml, the adapter and the simulated CANN runtime, and run nodes and graphs through the
adapter. The command line has their paths: ADAPTER CANN OPAPI.
"""

from __future__ import annotations

import ctypes as C
import sys
from typing import Any

import numpy as np

from npu_rope.testing import ggml
from npu_rope.testing.ggml_functions import BASE, ROPES, InitParams, declare

POINTER, WHY_BYTES = C.c_void_p, 400
TO_DEVICE, TO_HOST = 1, 2
FAILED = -1  # of npu_rope_ggml_compute_fused


class GgmlTensor(C.Structure):
    """``ggml_tensor``, as the adapter declares it."""

    _fields_ = [
        ("type", C.c_int),
        ("buffer", POINTER),
        ("ne", C.c_int64 * 4),
        ("nb", C.c_size_t * 4),
        ("op", C.c_int),
        ("op_params", C.c_int32 * 16),
        ("flags", C.c_int32),
        ("src", POINTER * 10),
        ("view_src", POINTER),
        ("view_offs", C.c_size_t),
        ("data", POINTER),
        ("name", C.c_char * 64),
        ("extra", POINTER),
        ("padding", C.c_char * 8),
    ]


ALLOCATE = C.CFUNCTYPE(POINTER, POINTER, C.c_uint64)


class Target(C.Structure):
    """``npu_rope_ggml_target``."""

    _fields_ = [
        ("has_bfloat16", C.c_int),
        ("stream", POINTER),
        ("one", POINTER),
        ("allocate", ALLOCATE),
        ("allocate_context", POINTER),
    ]


_SIZE, _INT64, _FLOAT = C.c_size_t, C.c_int64, C.c_float
NORMS: dict[str, tuple[Any, list[Any]]] = {
    "ggml_rms_norm": (POINTER, [POINTER, POINTER, _FLOAT]),
    "ggml_rms_norm_inplace": (POINTER, [POINTER, POINTER, _FLOAT]),
    "ggml_mul": (POINTER, [POINTER, POINTER, POINTER]),
    "ggml_add": (POINTER, [POINTER, POINTER, POINTER]),
    "ggml_add_inplace": (POINTER, [POINTER, POINTER, POINTER]),
    "ggml_reshape_2d": (POINTER, [POINTER, POINTER, _INT64, _INT64]),
    "ggml_set_output": (None, [POINTER]),
    "ggml_graph_n_nodes": (C.c_int, [POINTER]),
    "ggml_graph_node": (POINTER, [POINTER, C.c_int]),
}

adapter_path, cann_path, opapi_path = sys.argv[1:]
folder = ggml.find_library_dir()
base = C.CDLL(str(min(folder.glob("libggml-base*"), key=lambda p: len(p.name))), C.RTLD_GLOBAL)
functions = declare({**BASE, **ROPES, **NORMS}, base)
cann = C.CDLL(cann_path, C.RTLD_GLOBAL)
opapi = C.CDLL(opapi_path, C.RTLD_GLOBAL)
adapter = C.CDLL(adapter_path)
adapter.npu_rope_ggml_supports.argtypes = [POINTER, C.c_int, C.c_char_p, C.c_size_t]
adapter.npu_rope_ggml_compute.argtypes = [POINTER, C.POINTER(Target), C.c_char_p, C.c_size_t]
adapter.npu_rope_ggml_compute_fused.argtypes = [
    POINTER,
    C.c_int,
    C.POINTER(Target),
    C.c_char_p,
    C.c_size_t,
]


def acl(name: str, *arguments: Any) -> None:
    status = getattr(cann, name)(*arguments)
    assert status == 0, (name, status)


def fields_of(pointer: int) -> GgmlTensor:
    return GgmlTensor.from_address(pointer)


acl("aclInit", None)
acl("aclrtSetDevice", 0)
stream = POINTER()
acl("aclrtCreateStream", C.byref(stream))
memories: list[Any] = []


def allocate(size: int) -> Any:
    memory = POINTER()
    acl("aclrtMalloc", C.byref(memory), C.c_size_t(max(size, 1)), 0)
    memories.append(memory)
    return memory


def write(memory: Any, values: np.ndarray) -> None:
    """Copy an array to device memory."""
    size = C.c_size_t(values.nbytes)
    acl("aclrtMemcpy", memory, size, C.c_void_p(values.ctypes.data), size, TO_DEVICE)


def copy_to_device(pointer: int, values: np.ndarray) -> Any:
    """Give a tensor device memory with these values, as a backend does."""
    memory = allocate(values.nbytes)
    write(memory, values)
    fields_of(pointer).data = memory.value
    return memory


def fetch(memory: Any, like: np.ndarray) -> np.ndarray:
    """Return device memory as an array like another one."""
    values = np.empty_like(like)
    size = C.c_size_t(values.nbytes)
    acl("aclrtMemcpy", C.c_void_p(values.ctypes.data), size, memory, size, TO_HOST)
    return values


def place_view(pointer: int) -> None:
    """Give a view the address in the memory of its source."""
    view = fields_of(pointer)
    view.data = fields_of(view.view_src).data + view.view_offs


def new_context() -> Any:
    return functions["ggml_init"](InitParams(1 << 20, None, True))


one = allocate(32)
write(one, np.ones(1, np.float32))
workspaces = ALLOCATE(lambda _, size: allocate(size).value)


def target(bfloat16: int = 1) -> Target:
    return Target(bfloat16, stream, one, workspaces, None)


def compute(node: int | None, bfloat16: int = 1) -> tuple[int, str]:
    """Return the status of npu_rope_ggml_compute and its reason."""
    why = C.create_string_buffer(WHY_BYTES)
    status = adapter.npu_rope_ggml_compute(node, target(bfloat16), why, WHY_BYTES)
    return status, why.value.decode()


def supports(node: int | None, bfloat16: int = 1) -> tuple[int, str]:
    """Return the status of npu_rope_ggml_supports and its reason."""
    why = C.create_string_buffer(WHY_BYTES)
    status = adapter.npu_rope_ggml_supports(node, bfloat16, why, WHY_BYTES)
    return status, why.value.decode()


def compute_fused(graph: int, index: int, bfloat16: int = 1) -> tuple[int, str]:
    """Return the number of nodes that npu_rope_ggml_compute_fused launched and its reason."""
    why = C.create_string_buffer(WHY_BYTES)
    count = adapter.npu_rope_ggml_compute_fused(graph, index, target(bfloat16), why, WHY_BYTES)
    return count, why.value.decode()


def finish() -> None:
    for memory in memories:
        acl("aclrtFree", memory)
    acl("aclrtDestroyStream", stream)
    acl("aclFinalize")
