"""ggml's C functions: the types of their results and arguments, declared for ctypes."""

from __future__ import annotations

import ctypes as C
from typing import Any

# enum ggml_type
GGML_TYPES = {"float32": 0, "float16": 1, "int32": 26, "int64": 27, "bfloat16": 30}
CONTEXT_BYTES = 4 << 20  # for descriptions of tensors; the data are in the backend's buffer

_POINTER, _INT, _FLOAT, _SIZE, _INT64 = C.c_void_p, C.c_int, C.c_float, C.c_size_t, C.c_int64


class InitParams(C.Structure):
    """``ggml_init_params``."""

    _fields_ = [("mem_size", C.c_size_t), ("mem_buffer", C.c_void_p), ("no_alloc", C.c_bool)]


# The types of each function's result and arguments. Older versions lack some functions (GgmlInfo.missing).
BASE: dict[str, tuple[Any, list[Any]]] = {
    "ggml_init": (_POINTER, [InitParams]),
    "ggml_free": (None, [_POINTER]),
    "ggml_new_tensor_4d": (_POINTER, [_POINTER, _INT, _INT64, _INT64, _INT64, _INT64]),
    "ggml_new_tensor_1d": (_POINTER, [_POINTER, _INT, _INT64]),
    "ggml_view_4d": (_POINTER, [_POINTER, _POINTER, *[_INT64] * 4, *[_SIZE] * 4]),
    "ggml_view_2d": (_POINTER, [_POINTER, _POINTER, _INT64, _INT64, _SIZE, _SIZE]),
    "ggml_op_desc": (C.c_char_p, [_POINTER]),
    "ggml_new_graph": (_POINTER, [_POINTER]),
    "ggml_build_forward_expand": (None, [_POINTER, _POINTER]),
    "ggml_backend_alloc_ctx_tensors": (_POINTER, [_POINTER, _POINTER]),
    "ggml_backend_buffer_free": (None, [_POINTER]),
    "ggml_backend_tensor_set": (None, [_POINTER, _POINTER, _SIZE, _SIZE]),
    "ggml_backend_tensor_get": (None, [_POINTER, _POINTER, _SIZE, _SIZE]),
    "ggml_backend_supports_op": (C.c_bool, [_POINTER, _POINTER]),
    "ggml_backend_graph_compute": (_INT, [_POINTER, _POINTER]),
    "ggml_backend_free": (None, [_POINTER]),
}
_SCALING = [_FLOAT] * 6  # freq_base, freq_scale, ext_factor, attn_factor, beta_fast, beta_slow
# The context, x, the positions, freq_factors; n_dims, mode, n_ctx_orig.
_ROPE = (_POINTER, [*[_POINTER] * 4, _INT, _INT, _INT, *_SCALING])
# Also the sections, after n_dims.
_MULTI = (_POINTER, [*[_POINTER] * 4, _INT, _POINTER, _INT, _INT, *_SCALING])
ROPES: dict[str, tuple[Any, list[Any]]] = {
    "ggml_rope_ext": _ROPE,
    "ggml_rope_ext_inplace": _ROPE,
    "ggml_rope_ext_back": _ROPE,
    "ggml_rope_multi": _MULTI,
    "ggml_rope_multi_inplace": _MULTI,
    "ggml_rope_multi_back": _MULTI,
    "ggml_rope_set_offset": (_POINTER, [_POINTER, _INT]),
    "ggml_set_rows": (_POINTER, [_POINTER, _POINTER, _POINTER, _POINTER]),
}
CPU: dict[str, tuple[Any, list[Any]]] = {
    "ggml_cpu_init": (None, []),
    "ggml_backend_cpu_init": (_POINTER, []),
    "ggml_backend_cpu_set_n_threads": (None, [_POINTER, _INT]),
}
DEVICES: dict[str, tuple[Any, list[Any]]] = {
    "ggml_backend_load_all_from_path": (None, [C.c_char_p]),
    "ggml_backend_dev_count": (_SIZE, []),
    "ggml_backend_dev_get": (_POINTER, [_SIZE]),
    "ggml_backend_dev_by_name": (_POINTER, [C.c_char_p]),
    "ggml_backend_dev_name": (C.c_char_p, [_POINTER]),
    "ggml_backend_dev_description": (C.c_char_p, [_POINTER]),
    "ggml_backend_dev_init": (_POINTER, [_POINTER, C.c_char_p]),
    "ggml_backend_dev_backend_reg": (_POINTER, [_POINTER]),
    "ggml_backend_reg_get_proc_address": (_POINTER, [_POINTER, C.c_char_p]),
}


def declare(functions: dict[str, tuple[Any, list[Any]]], *libraries: C.CDLL) -> dict[str, Any]:
    """Return the functions that one of the libraries has, with their signatures declared."""
    found = {}
    for name, (result, arguments) in functions.items():
        function = next((getattr(library, name) for library in libraries if hasattr(library, name)), None)
        if function is not None:
            function.restype, function.argtypes = result, arguments
            found[name] = function
    return found
