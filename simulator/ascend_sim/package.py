"""Call the operators of an operator package on the simulated cores, with tensors in the host's memory.

A package holds interfaces, tilings and kernels that were built from operator definitions (docs/programs.md).
A call runs aclnn's two phases, as on an NPU: the checks of aclnn, the operator's tiling, the kernel.
"""

from __future__ import annotations

import ctypes as C
import json
import os
import re
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ascend_sim import elf, folders
from ascend_sim.errors import Unavailable, bad_type, bad_value
from ascend_sim.kernels import KernelBroken, Report
from ascend_sim.library import DEFAULT_SOC, Launch, Library, Memory, Options, load

__all__ = ["Operator", "Package", "Refused", "Tensor"]

# The number of aclDataType and the bytes of an element, by NumPy's name of the type.
_TYPES = {
    "float32": (0, 4),
    "float16": (1, 2),
    "int8": (2, 1),
    "int32": (3, 4),
    "uint8": (4, 1),
    "int16": (6, 2),
    "uint16": (7, 2),
    "uint32": (8, 4),
    "int64": (9, 8),
    "uint64": (10, 8),
    "float64": (11, 8),
    "bool": (12, 1),
    "bfloat16": (27, 2),
}
_ND = 2  # aclFormat
_SUCCESS = 0  # aclnn's status
# The C types of attributes by their types in a definition; for a list also the acl type.
_SCALARS = {"int": C.c_int64, "float": C.c_double, "bool": C.c_bool}
_LISTS: dict[str, tuple[str, Any]] = {
    "listInt": ("IntArray", C.c_int64),
    "listFloat": ("FloatArray", C.c_float),
    "listBool": ("BoolArray", C.c_bool),
}


class Refused(ValueError):
    """A phase of aclnn failed. The text is aclGetRecentErrMsg's message, or why a launch was not possible.

    Attributes:
        status: aclnn's status, such as 561002 if the operator's tiling refuses the call.
    """

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


@dataclass(frozen=True)
class Tensor:
    """A tensor in the host's memory.

    Attributes:
        address: of the first element.
        dtype: NumPy's name of the type, or ``bfloat16``.
        shape: the sizes.
        strides: in elements; they may be 0 or negative.
    """

    address: int
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @classmethod
    def of(cls, array: Any, dtype: str | None = None) -> Tensor:
        """Return an array's tensor. The array must outlive the tensor.

        Args:
            dtype: another type of the same size.
        """
        item_bytes, address = array.itemsize, array.__array_interface__["data"][0]
        if any(stride % item_bytes for stride in array.strides):
            raise bad_value(f"array must have strides of whole elements but got {array.strides}.")
        strides = tuple(stride // item_bytes for stride in array.strides)
        return cls(address, dtype or array.dtype.name, array.shape, strides)

    def is_contiguous(self) -> bool:
        """Return whether the elements follow each other in order."""
        if 0 in self.shape:
            return True
        step = 1
        for size, stride in zip(reversed(self.shape), reversed(self.strides), strict=True):
            if size != 1 and stride != step:
                return False
            step *= size
        return True

    def span(self) -> tuple[int, int]:
        """Return the lowest address, and the number of bytes from the lowest element to the highest."""
        if 0 in self.shape:
            return self.address, 0
        # The offset of each dimension's last element from its first.
        offsets = [(size - 1) * stride for size, stride in zip(self.shape, self.strides, strict=True)]
        lowest, highest = sum(min(n, 0) for n in offsets), sum(max(n, 0) for n in offsets)
        _, item_bytes = _TYPES[self.dtype]
        return self.address + lowest * item_bytes, (highest - lowest + 1) * item_bytes


@dataclass(frozen=True)
class Operator:
    """An operator of a package, as its definition describes it for an SoC.

    Attributes:
        inputs, outputs: each tensor's types by its name, one type for each column.
        attributes: the type of each attribute by its name: int, float, bool, str, listInt, ...
    """

    inputs: Mapping[str, tuple[str, ...]]
    attributes: Mapping[str, str]
    outputs: Mapping[str, tuple[str, ...]]

    @classmethod
    def of(cls, described: Mapping[str, Any]) -> Operator:
        """Make the operator from its entry in ``aic-<soc>-ops-info.json``."""

        def tensors(kind: str) -> dict[str, tuple[str, ...]]:
            entries = (entry for key, entry in described.items() if re.fullmatch(rf"{kind}\d+", key))
            return {entry["name"]: tuple(entry["dtype"].split(",")) for entry in entries}

        names = [name for name in described.get("attr", {}).get("list", "").split(",") if name]
        types = {name: described[f"attr_{name}"]["type"] for name in names}
        return cls(tensors("input"), types, tensors("output"))

    def parameters(self) -> list[str]:
        """Return the first phase's parameters, in order. An output that is also an input appears once."""
        outputs = [name for name in self.outputs if name not in self.inputs]
        return [*self.inputs, *self.attributes, *outputs]


_active = threading.local()


class HostCalls(C.Structure):
    """``ascend_sim_host_calls``: a context in which this thread's calls of aclnn use a chip, a package and
    the host's memory. At its end ``error`` becomes the message of the last call that failed, or empty."""

    _fields_ = [
        ("chip", C.c_char_p),
        ("package", C.c_char_p),
        ("cores", C.c_int32),
        ("memories", C.POINTER(Memory)),
        ("memory_count", C.c_int32),
        ("options", C.POINTER(Launch)),
        ("deterministic", C.c_int32),
    ]
    error = ""

    def __init__(self, chip: str, package: Path, cores: int, options: Options) -> None:
        launch = C.pointer(options.as_launch())
        super().__init__(
            chip=chip.encode(),
            package=str(package).encode(),
            cores=cores,
            options=launch,
            deterministic=options.deterministic,
        )

    def set_memory(self, spans: Sequence[tuple[int, int]]) -> None:
        """Set the memory that calls may access, as pairs of a first address and a number of bytes."""
        self.memories = (Memory * len(spans))(*[Memory(None, low, size, 0) for low, size in spans])
        self.memory_count = len(spans)

    def __enter__(self) -> None:
        _active.calls = self  # the library keeps the address, also if an interrupt skips __exit__
        cann().lib.ascend_sim_begin_host_calls(C.byref(self))

    def __exit__(self, *_: object) -> None:
        # It may have the name of a file, whose bytes may be no UTF-8.
        self.error = cann().lib.ascend_sim_end_host_calls().decode(errors="backslashreplace")


class Cann:
    """A loaded libascend_sim_cann."""

    def __init__(self) -> None:
        path = folders.library("ascend_sim_cann")
        try:
            self.lib = C.CDLL(str(path))
            self.lib.ascend_sim_end_host_calls.restype = C.c_char_p
            for kind in ("Tensor", "IntArray", "FloatArray", "BoolArray"):
                getattr(self.lib, f"aclCreate{kind}").restype = C.c_void_p
        except (OSError, AttributeError) as cause:  # AttributeError: it lacks a function
            remedy = "Install ascend-sim again."
            fault = elf.load_fault(path, cause)
            raise Unavailable("libascend_sim_cann.so", f"it does not load: {fault}", remedy) from None

    def tensor(self, tensor: Tensor) -> C.c_void_p:
        """Create an aclTensor."""
        low, size = tensor.span()
        (type_number, item_bytes), rank = _TYPES[tensor.dtype], len(tensor.shape)
        array_type = C.c_int64 * rank
        sizes, strides = array_type(*tensor.shape), array_type(*tensor.strides)
        offset, storage_elements = (C.c_int64(n // item_bytes) for n in (tensor.address - low, size))
        view = sizes, C.c_uint64(rank), type_number, strides, offset
        memory = C.byref(storage_elements), C.c_uint64(1), C.c_void_p(low)
        return C.c_void_p(self.lib.aclCreateTensor(*view, _ND, *memory))

    def array(self, kind: str, c_type: Any, values: Sequence[Any]) -> C.c_void_p:
        """Create an aclIntArray, aclFloatArray or aclBoolArray."""
        c_values = (c_type * len(values))(*values)
        return C.c_void_p(getattr(self.lib, f"aclCreate{kind}")(c_values, C.c_uint64(len(values))))

    def destroy(self, handles: Sequence[tuple[str, C.c_void_p]]) -> None:
        """Destroy handles, each given with its kind."""
        for kind, handle in handles:
            getattr(self.lib, f"aclDestroy{kind}")(handle)


@cache
def cann() -> Cann:
    """Return libascend_sim_cann, which is loaded once.

    Raises:
        Unavailable: it is missing or does not load.
    """
    return Cann()


class Package:
    """An operator package.

    Args:
        folder: the package, with ``op_api/`` and ``op_impl/``; its kernels are compiled for the simulator.

    Raises:
        Unavailable: the simulator or the package is not installed.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder).resolve()
        self.simulator: Library = load()
        self._cann = cann()
        interface = self.folder / "op_api" / "lib" / "libcust_opapi.so"
        remedy = "Build the package for the simulator: docs/programs.md."
        for piece in (interface, self._descriptions()):
            if not piece.exists():
                raise Unavailable("operator package", f"{piece} was not found", remedy)
        try:
            elf.check_whole(interface)
            self._interface = C.CDLL(str(interface))
        except OSError as cause:
            fault = elf.load_fault(interface, cause)
            raise Unavailable("operator package", f"it does not load: {fault}", remedy) from None
        self._operators: dict[str, dict[str, Operator]] = {}

    @cached_property
    def socs(self) -> tuple[str, ...]:
        """The SoCs that the operators are defined for, such as ``ascend910b``."""
        return tuple(sorted(folder.name for folder in self._descriptions().iterdir()))

    def operators(self, soc: str) -> Mapping[str, Operator]:
        """Return the operators that are defined for an SoC, by their names.

        Raises:
            ValueError: the package has none for it.
        """
        if soc not in self.socs:
            raise bad_value(f"soc must be one of {', '.join(self.socs)} but got {soc}.")
        if soc not in self._operators:
            path = self._descriptions() / soc / f"aic-{soc}-ops-info.json"
            described = json.loads(path.read_text(encoding="utf-8"))
            self._operators[soc] = {name: Operator.of(entry) for name, entry in described.items()}
        return self._operators[soc]

    def _descriptions(self) -> Path:
        return self.folder / "op_impl" / "ai_core" / "tbe" / "config"

    def chip(self, soc: str | None) -> dict[str, Any]:
        """Return the profile of a chip or SoC by its name, or of Ascend910B1 for None.

        Raises:
            ValueError: there is no such chip, or the package has no operators for it.
        """
        wanted, known = (DEFAULT_SOC if soc is None else soc).lower(), self.simulator.profiles()
        supported = [p for p in known if p["soc"] in self.socs]
        for profile in known:
            if wanted in (str(profile["name"]).lower(), profile["soc"]):
                if profile in supported:
                    return profile
                soc = f"{soc}, for which the package has no operators"
                break
        names = ", ".join(str(p["name"]) for p in supported)
        raise bad_value(f"soc must be one of {names} but got {soc}.")

    def call(self, op: str, given: Mapping[str, Any], options: Options | None = None) -> Report:
        """Run both phases of an operator.

        Args:
            op: the operator's name, such as ``"AddCustom"``.
            given: its inputs, attributes and outputs by their names in the definition: arrays or
                :class:`Tensor`, numbers, lists; None for an optional tensor that is absent. An output that
                has the name of an input is that input.
            options: chip, lenient rules, trace, number of cores.

        Raises:
            Refused: aclnn or the operator's tiling refuses the call, or the kernel cannot be launched.
                Nothing was written.
            KernelBroken: the kernel broke a rule of the simulator; its outputs were not written.
            ValueError, TypeError: an argument is missing or unknown, or has a type that CANN lacks.
        """
        options = options or Options()
        profile = self.chip(options.soc)
        self.simulator.check_options(options)
        operators = self.operators(str(profile["soc"]))
        if op not in operators:
            raise bad_value(f"op must be one of {', '.join(operators)} but got {op}.")
        operator = operators[op]
        tensors = {
            name: _as_tensor(name, value, is_written=name in operator.outputs)
            for name, value in given.items()
            if isinstance(value, Tensor | np.ndarray)
        }
        cores = min(profile["cores"], options.most_cores or profile["cores"])
        calls = HostCalls(str(profile["name"]), self.folder, cores, options)
        calls.set_memory([tensor.span() for tensor in tensors.values()])
        launches_before = self.simulator.launches()
        with calls:
            status = self._run_phases(op, operator, {**given, **tensors}, calls)
        has_launched = self.simulator.launches() != launches_before
        try:
            report = Report.of(self.simulator.report()) if has_launched else Report()
        except ValueError as error:
            raise Refused(status, str(error)) from None
        if report.errors:
            raise KernelBroken(report)
        if status != _SUCCESS:
            raise Refused(status, calls.error)
        return report

    def _run_phases(self, op: str, operator: Operator, given: Mapping[str, Any], calls: HostCalls) -> int:
        size, executor = C.c_uint64(), C.c_void_p()
        handles: list[tuple[str, C.c_void_p]] = []
        try:
            arguments = self._arguments(op, operator, given, handles)
            prepare = getattr(self._interface, f"aclnn{op}GetWorkspaceSize")
            status = int(prepare(*arguments, C.byref(size), C.byref(executor)))
        finally:
            self._cann.destroy(handles)  # the second phase does not need them
        second_phase_began = False
        try:
            if status == _SUCCESS:
                workspace = np.empty(size.value, np.uint8)
                address = workspace.ctypes.data if size.value else None
                spans = [value.span() for value in given.values() if isinstance(value, Tensor)]
                calls.set_memory([*spans, (address or 0, size.value)])
                second_phase_began = True
                launch = getattr(self._interface, f"aclnn{op}")
                status = int(launch(C.c_void_p(address), size, executor, None))
        finally:
            if not second_phase_began and executor.value:  # the second phase releases the executor itself
                self._cann.lib.aclDestroyAclOpExecutor(executor)
        return status

    def _arguments(
        self, op: str, operator: Operator, given: Mapping[str, Any], handles: list[tuple[str, C.c_void_p]]
    ) -> list[Any]:
        """Return the first phase's arguments except the last two. ``handles`` receives the acl objects that
        the caller must destroy."""
        known = operator.parameters()
        if unknown := set(given) - set(known):
            raise bad_value(f"arguments of {op} must be {', '.join(known)} but got {sorted(unknown)[0]}.")
        arguments: list[Any] = []
        for name in known:
            if name not in given:
                raise bad_value(f"arguments of {op} must have all of {', '.join(known)} but got no {name}.")
            value, attribute_type = given[name], operator.attributes.get(name)
            _check_python_type(name, value, attribute_type)
            if value is None:
                arguments.append(None)
            elif attribute_type is None:
                handles.append(("Tensor", self._cann.tensor(value)))
                arguments.append(handles[-1][1])
            elif attribute_type in _LISTS:
                kind, c_type = _LISTS[attribute_type]
                handles.append((kind, self._cann.array(kind, c_type, value)))
                arguments.append(handles[-1][1])
            elif attribute_type == "str":
                arguments.append(C.c_char_p(str(value).encode()))
            else:
                arguments.append(_SCALARS[attribute_type](value))
        return arguments


def _check_python_type(name: str, value: Any, attribute_type: str | None) -> None:
    """Check the Python type of an argument. ``attribute_type`` is None for a tensor."""
    got = type(value).__name__
    if attribute_type is None:
        if value is not None and not isinstance(value, Tensor):
            raise bad_type(f"{name} must be an array, a Tensor or None but got {got}.")
    elif attribute_type in _LISTS:
        if value is not None and not isinstance(value, Sequence):
            raise bad_type(f"{name} must be a list or None but got {got}.")
    elif attribute_type != "str":
        if not isinstance(value, int | float | np.number | np.bool_):
            raise bad_type(f"{name} must be a number but got {got}.")
        if attribute_type == "int" and not -(2**63) <= value < 2**63:
            raise bad_value(f"{name} must be in the int64 range but got {value}.")


def _as_tensor(name: str, value: Any, *, is_written: bool) -> Tensor:
    if isinstance(value, np.ndarray):
        if not value.dtype.isnative:
            raise bad_type(f"{name} must be in the machine's byte order but got {value.dtype.str}.")
        if not value.flags.aligned:
            raise bad_value(f"{name} must be aligned to its elements but got an address that is not.")
        if is_written and not value.flags.writeable:
            raise bad_value(f"{name} must be writeable but got a read-only array.")
        value = Tensor.of(value)
    tensor: Tensor = value
    if tensor.dtype not in _TYPES:
        raise bad_type(f"{name} must be {', '.join(_TYPES)} but got {tensor.dtype}.")
    return tensor
