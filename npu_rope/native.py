"""The C library through ctypes, for NumPy arrays, the command line, and torch without the C++ registration.
If the library does not load, every use raises the same error, which names the cause.
"""

from __future__ import annotations

import contextlib
import ctypes as C
import os
import struct
import sys
import sysconfig
from collections.abc import Callable, Iterator, Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, cast, get_args

from ascend_sim.elf import check_whole, load_fault

from npu_rope import errors
from npu_rope.errors import BackendUnavailable, BrokenRule
from npu_rope.params import RopeParams
from npu_rope.values import ANGLE_POLICIES, AnglePolicy, Known

ABI_VERSION = 2
MAX_NDIM = 4
DTYPES = ("float32", "float16", "bfloat16", "float64", "int32", "int64", "int8")
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


def _text(part: bytes) -> str:
    """Return a part of an error. It may have the name of a file, whose bytes may be no UTF-8."""
    return part.decode(errors="backslashreplace")


class CError(C.Structure):
    """``npu_rope_error``."""

    _fields_ = [("status", C.c_int32)] + [
        (name, C.c_char_p) for name in ("op", "argument", "rule", "value", "message")
    ]

    def as_exception(self) -> BrokenRule:
        """Return the exception with these parts. The status must not be 0."""
        parts = self.op, self.argument, self.rule, self.value
        return errors.broken(errors.BY_STATUS[self.status], *[_text(part) for part in parts])


def c_params(params: RopeParams) -> CParams:
    """Return the parameters as a C struct, cached in ``params``."""
    try:
        cached: CParams = params.__dict__["_c_params"]
    except KeyError:
        cached = params.__dict__["_c_params"] = _make_c_params(params)
    return cached


def _make_c_params(params: RopeParams) -> CParams:
    converted = {"mode": int(params.rope_mode), "sections": params.sections}
    return CParams(
        *[converted[name] if name in converted else getattr(params, name) for name, *_ in CParams._fields_]
    )


def c_tensor(address: int, dtype: str, shape: tuple[int, ...], strides: tuple[int, ...]) -> CTensor:
    """Return the C struct of a tensor. Strides are in elements."""
    code = _DTYPE_CODE.get(dtype, _UNKNOWN_DTYPE)
    ndim = len(shape)
    if ndim != MAX_NDIM:
        shape, strides = (shape + _NO_DIMS)[:MAX_NDIM], (strides + _NO_DIMS)[:MAX_NDIM]
    # One pack call: setting the fields of a ctypes struct one by one takes several times as long.
    return CTensor.from_buffer_copy(_PACK(address, code, ndim, *shape, *strides))


_PACK = struct.Struct(f"@Pii{2 * MAX_NDIM}q").pack
_NO_DIMS = (0,) * MAX_NDIM


def library_folders() -> Iterator[Path]:
    """Yield the folders of the built libraries: ``NPU_ROPE_LIB_DIR`` alone, else those of the package."""
    if forced := os.environ.get("NPU_ROPE_LIB_DIR"):
        yield Path(forced).absolute()
        return
    import npu_rope

    for folder in npu_rope.__path__:
        yield Path(folder) / "lib"
    for scheme in ("platlib", "purelib"):  # an editable install keeps the binaries here
        yield Path(sysconfig.get_path(scheme)) / "npu_rope" / "lib"


def find_library(stem: str) -> Path | None:
    """Return the first ``lib<stem>`` in :func:`library_folders`, or None."""
    suffix = {"darwin": ".dylib"}.get(sys.platform, ".so")
    for folder in library_folders():
        for name in (f"lib{stem}{suffix}", f"lib{stem}.so"):
            if (folder / name).is_file():
                return folder / name
    return None


# The remedy for a missing library.
INSTALL = "Build it with 'pip install ./simulator .' in the project's folder (a C++17 compiler is needed)."

# ---- a loaded library -------------------------------------------------------------------------------

TENSOR = C.POINTER(CTensor)  # const npu_rope_tensor *

# The types of the attributes, by their names in the C functions.
_ATTRIBUTE_TYPES: dict[str, Any] = {
    "params": C.POINTER(CParams),
    **dict.fromkeys(("epsilon", "scale_offset"), C.c_double),
    **dict.fromkeys(("forward", "angle", "interleaved", "intermediate_rounding"), C.c_int32),
    **dict.fromkeys(("axis", "stash_type", "rotary_dim", "offset", "num_heads"), C.c_int64),
}
_ROPE, _TABLES = ("params", "forward", "angle"), ("interleaved", "rotary_dim", "offset", "forward")
_NORM, _NORM_ROPE = ("axis", "epsilon", "stash_type"), ("params", "epsilon", "intermediate_rounding", "angle")
# The C functions without their prefix: the number of inputs, the attributes, the number of outputs.
ENTRIES: dict[str, tuple[int, tuple[str, ...], int]] = {
    "rope": (3, _ROPE, 1),
    "rope_qk": (4, _ROPE, 2),
    "rope_set_rows": (4, _ROPE, 1),
    "rotary_mul": (3, _TABLES, 1),
    "rotary_mul_qk": (4, _TABLES, 2),
    "rotary_embedding": (4, ("interleaved", "num_heads", "rotary_dim", "forward"), 1),
    "rms_norm": (2, _NORM, 1),
    "rms_norm_rounded_last": (2, ("axis", "epsilon", "scale_offset"), 1),
    "rms_norm_backward": (3, _NORM, 2),
    "add_rms_norm": (3, _NORM, 2),
    "rms_norm_rope": (6, _NORM_ROPE, 2),
    "rms_norm_rope_set_rows": (7, _NORM_ROPE, 2),
}


# The functions of csrc/capi/python.cpp, without their prefix.
_SMALL_ENTRIES = ("rope", "rope_qk", "rotary_mul", "rms_norm", "add_rms_norm", "rms_norm_rope")


def attribute_values(op: str, attributes: Any) -> list[Any]:
    """Return the attributes of an object as the C function takes them."""
    given = [getattr(attributes, name) for name in ENTRIES[op][1]]
    if isinstance(given[0], RopeParams):
        given[0], given[-1] = c_params(given[0]), ANGLE_POLICIES.index(given[-1])
    return given


@cache
def packed_type(op: str) -> type[C.Structure]:
    """Return the struct from which the operator's packed schema reads its attributes."""
    types = {**_ATTRIBUTE_TYPES, "params": CParams}
    return type("PackedCall", (C.Structure,), {"_fields_": [(name, types[name]) for name in ENTRIES[op][1]]})


def packed(op: str, attributes: Any) -> bytes:
    """Return the attributes as the operator's packed schema reads them."""
    return bytes(packed_type(op)(*attribute_values(op, attributes)))


@lru_cache(maxsize=256)
def packed_values(op: str, *values: Any) -> bytes:
    """Return :func:`packed` for the values of attributes without a RopeParams, in the order of
    :data:`ENTRIES`.

    Raises:
        ValueError: an integer has more than 64 bits.
    """
    for value in values:
        if not -(2**63) <= value < 2**63 and value.__class__ is int:  # ctypes would take the lower bits
            raise ValueError(value)
    return bytes(packed_type(op)(*values))


class CCall(C.Structure):
    """``npu_rope_call``."""

    _fields_ = [
        ("op", C.c_char_p),
        ("known", C.c_int32),
        ("angle", C.c_int32),
        ("inputs", TENSOR * 17),
        ("outputs", TENSOR * 3),
        ("params", C.POINTER(CParams)),
        ("epsilon", C.c_double),
        ("scale_offset", C.c_double),
        ("ranks", C.c_int64),
        ("axis", C.c_int64),
        ("stash_type", C.c_int64),
        ("rotary_dim", C.c_int64),
        ("offset", C.c_int64),
        ("num_heads", C.c_int64),
    ]


def error_entry(lib: C.CDLL, name: str) -> Callable[[], CError]:
    """Return the library's function ``name``, which returns the last error of the calling thread."""
    entry: Any = getattr(lib, name)
    entry.restype = CError
    return cast(Callable[[], CError], entry)


def raised_by_torch(message: str) -> BrokenRule | None:
    """Return the error that a C++ operator raised in this thread, or None. Torch passes on the message
    only, with other text around it; the operator's library keeps the parts."""
    found = [load().last_error()]
    for name in ("npu_rope_torch", "npu_rope_torch_npu"):
        if path := find_library(name):
            with contextlib.suppress(OSError):  # the library is not loaded
                library = C.CDLL(str(path), mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
                found.append(error_entry(library, f"{name}_last_error_parts")())
    for error in found:
        if error.status != 0 and _text(error.message) in message:
            return error.as_exception()
    return None


def is_torch_registration(path: str) -> bool:
    """Return whether a library that torch has loaded is npu_rope's registration of CPU operators."""
    return hasattr(C.CDLL(path), "npu_rope_torch_last_error_parts")


# Functions and objects of Python, in the order of the struct Python of csrc/capi/python.cpp.
_OF_PYTHON = (
    "PyObject_GetBuffer",
    "PyBuffer_Release",
    "PyBytes_AsStringAndSize",
    "PyCFunction_NewEx",
    "Py_IncRef",
    "Py_DecRef",
    "PyObject_CallNoArgs",
    "PyObject_CallFunctionObjArgs",
    "PyObject_IsTrue",
    "PyErr_Clear",
)


def small_entries(
    path: Path, tensor: Any = None, watchers: Sequence[Callable[[], Any]] = ()
) -> dict[str, Callable[..., bool]]:
    """Return the functions that run operators on small arrays, with the interpreter's lock held.

    They take the attributes as :func:`packed` returns them, the inputs, None for absent ones, and the
    outputs. They return True, or False for a call that they do not run. The dictionary is empty if the
    interpreter lacks a function that they need.

    Args:
        path: the library's file.
        tensor: the class ``torch.Tensor``: the functions take tensors instead of arrays. The caller excludes
            subclasses. The dictionary is empty if torch lacks DLPack's exchange interface, or has a version
            of it that the library does not know.
        watchers: functions of torch. The library runs no call on tensors while one of them returns a true
            object.
    """
    try:
        of_python = [getattr(C.pythonapi, name) for name in _OF_PYTHON]
        pointer = C.pythonapi.PyCapsule_GetPointer
    except AttributeError:
        return {}
    library = C.PyDLL(str(path))
    objects = [C.c_void_p(id(one)) for one in (None, True, False)]
    given = [C.cast(function, C.c_void_p) for function in of_python] + objects
    library.npu_rope_python_use((C.c_void_p * len(given))(*given))
    if tensor is not None:
        capsule = getattr(tensor, "__dlpack_c_exchange_api__", None)
        if capsule is None:
            return {}
        pointer.restype, pointer.argtypes = C.c_void_p, [C.py_object, C.c_char_p]
        exchange = C.c_void_p(pointer(capsule, b"dlpack_exchange_api"))
        addresses = (C.c_void_p * len(watchers))(*map(id, watchers))
        use = library.npu_rope_python_use_torch
        if not use(exchange, C.c_void_p(id(tensor.is_neg)), addresses, C.c_size_t(len(watchers))):
            return {}
    library.npu_rope_python_function.restype = C.py_object
    return {op: library.npu_rope_python_function(op.encode(), tensor is not None) for op in _SMALL_ENTRIES}


class Native:
    """A loaded libnpu_rope. Its calls raise an exception for a nonzero status."""

    def __init__(self, path: Path) -> None:
        check_whole(path)
        self.path, self.lib = path, C.CDLL(str(path))
        found = self.status_entry("npu_rope_abi_version")()
        if found != ABI_VERSION:
            raise OSError(
                f"{path} has ABI version {found}, this package needs {ABI_VERSION}: reinstall npu-rope"
            )
        self.last_error = error_entry(self.lib, "npu_rope_last_error_parts")
        self._entries = {
            op: self.checked_entry(
                f"npu_rope_{op}",
                *[TENSOR] * read,
                *[_ATTRIBUTE_TYPES[name] for name in attributes],
                *[TENSOR] * written,
            )
            for op, (read, attributes, written) in ENTRIES.items()
        }
        self._version, self._isa = self.text_entry("npu_rope_version"), self.text_entry("npu_rope_isa")
        self._num_threads = self.status_entry("npu_rope_num_threads")
        self._force_isa = self.status_entry("npu_rope_force_isa", C.c_char_p)
        self.small_entries = small_entries(path)
        self._check = self.checked_entry("npu_rope_check", C.POINTER(CCall))
        self._check_on_chip = self.checked_entry("npu_rope_check_on_chip", C.POINTER(CCall), C.c_char_p)

    def text_entry(self, name: str) -> Any:
        """Return the function ``name``, which takes no arguments and returns a string."""
        entry = getattr(self.lib, name)
        entry.restype = C.c_char_p
        return entry

    def status_entry(self, name: str, *argument_types: Any) -> Any:
        """Return the function ``name``, which returns a status or a number."""
        entry = getattr(self.lib, name)
        entry.restype, entry.argtypes = C.c_int32, list(argument_types)
        return entry

    def checked_entry(self, name: str, *argument_types: Any) -> Callable[..., None]:
        """Return the function ``name``; it raises an error for a nonzero status, as :meth:`call`."""
        entry = self.status_entry(name, *argument_types)

        def call(*arguments: Any) -> None:
            self._raise_on(entry(*arguments))

        return call

    def _raise_on(self, status: int) -> None:
        if status != 0:
            raise self.last_error().as_exception()

    def call(
        self, op: str, inputs: Sequence[CTensor], attributes: Any, outputs: Sequence[CTensor | None]
    ) -> None:
        """Call ``npu_rope_<op>``; a nonzero status is raised as ValueError, TypeError or RuntimeError.

        Args:
            op: a key of :data:`ENTRIES`.
            inputs: in the order of the function's arguments. The last ones, if optional, may be left out.
            attributes: an object with attributes of the names in :data:`ENTRIES`.
            outputs: in the order of the function's arguments; None for one that is not needed.
        """
        absent = [None] * (ENTRIES[op][0] - len(inputs))
        self._entries[op](*inputs, *absent, *attribute_values(op, attributes), *outputs)

    def version(self) -> str:
        """Return the library's version."""
        return str(self._version().decode())

    def isa(self) -> str:
        """Return the instruction set that the kernels use."""
        return str(self._isa().decode())

    def num_threads(self) -> int:
        """Return the largest number of threads of a call."""
        return int(self._num_threads())

    def check(
        self,
        op: str,
        inputs: Sequence[CTensor | None],
        outputs: Sequence[CTensor | None],
        known: Known,
        *,
        chip: str | None = None,
        params: RopeParams | None = None,
        angle: AnglePolicy = "exact",
        **numbers: float,
    ) -> None:
        """Check a call and compute nothing; raises as :meth:`call`.

        Args:
            op: the name of the C function without its prefix.
            inputs, outputs: in the order of the function's arguments; None or left out: absent.
            known: what the library may read.
            chip: CANN's name of a chip whose kernels must support the call; None: any back end.
            params, angle, numbers: the arguments besides tensors, as far as they have rules.
        """
        call = CCall(op=op.encode(), angle=ANGLE_POLICIES.index(angle), **numbers)
        call.known = get_args(Known).index(known)
        for array, tensors in ((call.inputs, inputs), (call.outputs, outputs)):
            for k, tensor in enumerate(tensors):
                if tensor is not None:
                    array[k] = C.pointer(tensor)
        if params is not None:
            call.params = C.pointer(c_params(params))
        if chip is None:
            self._check(C.byref(call))
        else:
            self._check_on_chip(C.byref(call), chip.encode())

    def force_isa(self, name: str | None) -> None:
        """Use a narrower instruction set (None: the widest)."""
        self._raise_on(self._force_isa(None if name is None else name.encode()))


@cache
def load() -> Native:
    """Return the library. Once it is loaded, further calls return the same object.

    Raises:
        BackendUnavailable: the library is missing or does not load; the message has the cause.
    """
    path = find_library("npu_rope")
    if path is None:
        folders = ", ".join(str(p) for p in library_folders())
        raise BackendUnavailable("cpu", f"its library libnpu_rope was not found in {folders}", INSTALL)
    try:
        return Native(path)
    except (OSError, AttributeError) as cause:  # AttributeError: it lacks a function
        fault = f"its library does not load: {load_fault(path, cause)}"
        raise BackendUnavailable("cpu", fault, INSTALL) from None


# ---- arrays -------------------------------------------------------------------------------------------


def describe(array: Any) -> CTensor:
    """Return the C struct of a NumPy array (also of ml_dtypes' bfloat16). The strides must be multiples of
    the element size."""
    size = array.dtype.itemsize or 1
    try:
        address = C.addressof(C.c_char.from_buffer(array))  # takes a third of the time of __array_interface__
    except (TypeError, ValueError):  # read-only, strided, empty or of a dtype without buffers
        address = array.__array_interface__["data"][0]
    return c_tensor(address, dtype_name(array.dtype), array.shape, tuple([s // size for s in array.strides]))


@cache
def dtype_name(dtype: Any) -> str:
    """Return the name of a NumPy dtype, cached because NumPy builds it in Python at every access."""
    return str(dtype.name)
