"""The C library through ctypes: for NumPy arrays, the command line, and torch where its C++
registration was not built. A load failure is kept and raised, with its cause, on first use.
"""

from __future__ import annotations

import ctypes as C
import os
import struct
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from npu_rope.errors import BackendUnavailable
from npu_rope.params import ANGLE_POLICIES, RopeParams

ABI_VERSION = 1
MAX_NDIM = 4
DTYPES = ("float32", "float16", "bfloat16", "float64", "int32", "int64")
_DTYPE_CODE = {name: code for code, name in enumerate(DTYPES)}
_UNKNOWN_DTYPE = -1


class CTensor(C.Structure):
    """``npu_rope_tensor``."""

    _fields_ = [
        ("data", C.c_void_p),
        ("dtype", C.c_int32),
        ("ndim", C.c_int32),
        ("shape", C.c_int64 * MAX_NDIM),
        ("stride", C.c_int64 * MAX_NDIM),
    ]


class CParams(C.Structure):
    """``npu_rope_params``."""

    _fields_ = [
        ("n_dims", C.c_int32),
        ("mode", C.c_int32),
        ("n_ctx_orig", C.c_int32),
        ("n_offs", C.c_int32),
        ("freq_base", C.c_double),
        ("freq_scale", C.c_double),
        ("ext_factor", C.c_double),
        ("attn_factor", C.c_double),
        ("beta_fast", C.c_double),
        ("beta_slow", C.c_double),
        ("sections", C.c_int32 * 4),
    ]


class PackedCall(C.Structure):
    """What ``torch.ops.npu_rope.rope_packed_`` reads its attributes from."""

    _fields_ = [("params", CParams), ("forward", C.c_int32), ("angle", C.c_int32)]


def c_params(p: RopeParams) -> CParams:
    """``p`` as the C library takes it; made once and kept with p."""
    try:
        kept: CParams = p.__dict__["_c_params"]
    except KeyError:
        kept = p.__dict__["_c_params"] = _make_c_params(p)
    return kept


def _make_c_params(p: RopeParams) -> CParams:
    return CParams(
        p.n_dims,
        int(p.rope_mode),
        p.n_ctx_orig,
        p.n_offs,
        p.freq_base,
        p.freq_scale,
        p.ext_factor,
        p.attn_factor,
        p.beta_fast,
        p.beta_slow,
        (C.c_int32 * 4)(*p.sections),
    )


def c_tensor(address: int, dtype: str, shape: tuple[int, ...], strides: tuple[int, ...]) -> CTensor:
    """A view the C library can read. Strides count elements."""
    code = _DTYPE_CODE.get(dtype, _UNKNOWN_DTYPE)
    sizes, steps = (shape + _NO_DIMS)[:MAX_NDIM], (strides + _NO_DIMS)[:MAX_NDIM]
    # Packed in one go: setting the fields of a ctypes struct one by one takes several times as long.
    return CTensor.from_buffer_copy(_PACK(address, code, len(shape), *sizes, *steps))


_PACK = struct.Struct(f"@Pii{2 * MAX_NDIM}q").pack
_NO_DIMS = (0,) * MAX_NDIM


def library_folders() -> Iterator[Path]:
    """Where the built libraries may lie: ``NPU_ROPE_LIB_DIR``, then beside the package."""
    if forced := os.environ.get("NPU_ROPE_LIB_DIR"):
        yield Path(forced)
        return
    import npu_rope

    for folder in npu_rope.__path__:
        yield Path(folder) / "lib"
    for scheme in ("platlib", "purelib"):  # an editable install keeps the binaries here
        yield Path(sysconfig.get_path(scheme)) / "npu_rope" / "lib"


def find_library(stem: str) -> Path | None:
    """The first ``lib<stem>`` among :func:`library_folders`, or None."""
    suffix = {"darwin": ".dylib"}.get(sys.platform, ".so")
    for folder in library_folders():
        for name in (f"lib{stem}{suffix}", f"lib{stem}.so"):
            if (folder / name).is_file():
                return folder / name
    return None


class Native:
    """The loaded library with its signatures declared."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lib = lib = C.CDLL(str(path))
        lib.npu_rope_abi_version.restype = C.c_int32
        found = lib.npu_rope_abi_version()
        if found != ABI_VERSION:
            raise OSError(
                f"{path} has ABI version {found}, this package needs {ABI_VERSION}: reinstall npu-rope"
            )
        for name in ("npu_rope_version", "npu_rope_last_error", "npu_rope_isa"):
            getattr(lib, name).restype = C.c_char_p
        lib.npu_rope_num_threads.restype = C.c_int32
        lib.npu_rope_force_isa.restype = C.c_int32
        lib.npu_rope_force_isa.argtypes = [C.c_char_p]
        self._rope = lib.npu_rope_rope
        self._rope.restype = C.c_int32
        tensor = C.POINTER(CTensor)
        self._rope.argtypes = [tensor, tensor, tensor, C.POINTER(CParams), C.c_int32, C.c_int32, tensor]

    def version(self) -> str:
        """The library's version."""
        return str(self.lib.npu_rope_version().decode())

    def isa(self) -> str:
        """The instruction set the kernels run with."""
        return str(self.lib.npu_rope_isa().decode())

    def num_threads(self) -> int:
        """How many threads a large call may use."""
        return int(self.lib.npu_rope_num_threads())

    def force_isa(self, name: str | None) -> None:
        """Run with a narrower instruction set (None: the widest again)."""
        self._raise_on(self.lib.npu_rope_force_isa(None if name is None else name.encode()))

    def _raise_on(self, status: int) -> None:
        if status == 0:
            return
        text = self.lib.npu_rope_last_error().decode()
        raise {1: ValueError, 2: TypeError}.get(status, RuntimeError)(text)

    def rope(
        self,
        x: CTensor,
        positions: CTensor,
        freq_factors: CTensor | None,
        params: CParams,
        forward: bool,
        angle: str,
        out: CTensor,
    ) -> None:
        """``npu_rope_rope``, its status raised as ValueError or TypeError."""
        factors = None if freq_factors is None else C.byref(freq_factors)
        code = ANGLE_POLICIES.index(angle)
        self._raise_on(
            self._rope(
                C.byref(x), C.byref(positions), factors, C.byref(params), bool(forward), code, C.byref(out)
            )
        )


_loaded: Native | BackendUnavailable | None = None


def load() -> Native:
    """The library, loaded once.

    Raises:
        BackendUnavailable: it is not there or does not load; the cause is in the message.
    """
    global _loaded
    if _loaded is None:
        _loaded = _try_load()
    if isinstance(_loaded, BackendUnavailable):
        raise _loaded
    return _loaded


def _try_load() -> Native | BackendUnavailable:
    remedy = "Build it with 'pip install .' in the project's folder (a C++17 compiler is needed)."
    path = find_library("npu_rope")
    if path is None:
        looked = ", ".join(str(p) for p in library_folders())
        return BackendUnavailable("cpu", f"its library libnpu_rope was not found in {looked}", remedy)
    try:
        return Native(path)
    except OSError as cause:
        return BackendUnavailable("cpu", f"its library does not load: {cause}", remedy)


def describe(a: Any) -> CTensor:
    """A NumPy array (bfloat16 through ml_dtypes included) as the C library sees it. Its strides
    must be whole elements."""
    dtype = a.dtype
    size = dtype.itemsize or 1
    # The name of a dtype is put together in Python each time it is asked for; its hash is not.
    name = _dtype_names.get(dtype)
    if name is None:
        name = _dtype_names[dtype] = dtype.name
    address = a.__array_interface__["data"][0]
    return c_tensor(address, name, a.shape, tuple([s // size for s in a.strides]))


_dtype_names: dict[Any, str] = {}
