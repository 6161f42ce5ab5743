"""Calls of an operator package through ctypes: device memory, aclTensors and the two phases. A call passes
arguments by name; the functions' parameters are read from the generated headers.
"""

from __future__ import annotations

import ctypes as C
import functools
import json
import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from ascend_sim import Options, library
from ascend_sim.package import HostCalls, cann
from ascend_sim.programs import toolkit

TILINGS = f"op_impl/ai_core/tbe/op_tiling/lib/linux/{os.uname().machine}/libcust_opmaster_rt2.0.so"
TYPES = {
    "float32": 0, "float16": 1, "int8": 2, "int32": 3, "uint8": 4, "int16": 6, "uint16": 7, "uint32": 8,
    "int64": 9, "uint64": 10, "float64": 11, "bool": 12, "complex64": 16, "complex128": 17, "bfloat16": 27,
}  # fmt: skip
NUMBERS = {
    "int64_t": C.c_int64, "int32_t": C.c_int32, "int": C.c_int, "int8_t": C.c_int8, "uint64_t": C.c_uint64,
    "double": C.c_double, "float": C.c_float, "bool": C.c_bool, "aclDataType": C.c_int,
}  # fmt: skip
OK = 0


class RefusedPhase(Exception):
    """A phase that failed: its status, its message, and the executor of a first phase."""

    def __init__(self, status: int, message: str, executor: int | None = None) -> None:
        super().__init__(message)
        self.status, self.executor = status, executor


@dataclass(frozen=True)
class Parameter:
    type: str
    name: str


@functools.cache
def parameters_of(header: str, function: str) -> list[Parameter]:
    """The parameters with which a header declares a function. Do not change the list: the cache has it."""
    found = re.search(rf"\b{function}\(\s*(.*?)\)\s*;", header, re.DOTALL)
    assert found is not None, f"{function} is not declared"
    parameters = []
    for part in found[1].split(","):
        type_, name = re.fullmatch(r"\s*(.*?)\s*(\w+)\s*", part, re.DOTALL).groups()  # type: ignore[union-attr]
        parameters.append(Parameter(re.sub(r"\s*\*", "*", type_), name))
    return parameters


def snake_case(name: str) -> str:
    return re.sub(r"(?<=.)([A-Z])", r"_\1", name).lower()


@dataclass
class Stored:
    """A tensor that is not a NumPy view: its memory, and its type, shape, strides and format."""

    memory: Any
    dtype: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    format: int = 2


GUARD, GUARD_BYTE = 512, 0xA5
CLAIMED_BYTES = 1 << 46


@dataclass
class Device:
    """An operator package with simulated device memory: host memory with guard bytes around it."""

    cann: C.CDLL
    opapi: C.CDLL
    headers: str
    calls: HostCalls
    allocations: dict[int, Any] = field(default_factory=dict)  # the bytes with both guards, by first address
    memories: dict[int, int] = field(default_factory=dict)  # device address, by the array owner's address
    claims: dict[int, int] = field(default_factory=dict)  # bytes that no memory backs, by first address
    format: int = 2  # of the created tensors; 2 is ND

    @classmethod
    def open(cls, package: Path) -> Device:
        package = package.resolve()
        folder = package / "op_api"
        library.load()  # once per process, before the package that needs it
        runtime = cann().lib
        opapi = C.CDLL(str(folder / "lib" / "libcust_opapi.so"))
        headers = "".join(p.read_text() for p in sorted((folder / "include").glob("*.h")))
        return cls(runtime, opapi, headers, HostCalls("Ascend910B1", package, 48, Options()))

    @classmethod
    def of_stand_ins(cls, chip: str) -> Device:
        """The functions of libopapi that have stand-ins, on a chip by CANN's name."""
        library.load()
        runtime = cann().lib
        for handle in ("Scalar", "TensorList"):
            getattr(runtime, f"aclCreate{handle}").restype = C.c_void_p
        headers = "\n".join(function.declarations() for function in toolkit.functions())
        return cls(runtime, runtime, headers, HostCalls(chip, Path("no package"), 48, Options()))

    def set_soc(self, name: str) -> None:
        """Select a chip. A chip that ascend_sim's table lacks gets fewer cores than any chip of the table."""
        cores = {profile["name"]: profile["cores"] for profile in library.load().profiles()}
        self.calls.chip, self.calls.cores = name.encode(), cores.get(name, 6)

    @property
    def soc(self) -> str:
        return bytes(self.calls.chip).decode()

    @property
    def is_310p(self) -> bool:
        return self.soc.startswith("Ascend310P")

    def calls_beyond_documents(self) -> dict[str, int]:
        """The numbers of calls that CANN's sources accept and its documents exclude, in this process."""
        counts = self.cann.simulated_cann_calls_beyond_documents
        counts.restype = C.c_char_p
        return dict(json.loads(counts()))

    def tiling_library(self) -> C.CDLL:
        return C.CDLL(str(Path(self.opapi._name).parents[2] / TILINGS))

    def report(self) -> dict[str, Any]:
        return library.load().report()

    def launches(self) -> int:
        return library.load().launches()

    # ---- memory ----------------------------------------------------------------------------------

    def allocate(self, size: int) -> int:
        block = np.full(size + 3 * GUARD, GUARD_BYTE, np.uint8)
        first = (block.ctypes.data + 2 * GUARD - 1) // GUARD * GUARD
        self.allocations[first] = block[first - GUARD - block.ctypes.data :][: size + 2 * GUARD]
        self._pass_memory_to_calls()
        return first

    def free(self, memory: int) -> None:
        assert self.guards_are_intact(memory), "written outside an allocation"
        del self.allocations[memory]
        self._pass_memory_to_calls()

    def guards_are_intact(self, memory: int) -> bool:
        guarded = self.allocations[memory]
        return bool(np.all(guarded[:GUARD] == GUARD_BYTE) and np.all(guarded[-GUARD:] == GUARD_BYTE))

    def _pass_memory_to_calls(self) -> None:
        spans = [(first, len(data) - 2 * GUARD) for first, data in self.allocations.items()]
        self.calls.set_memory([*spans, *self.claims.items()])

    def claim(self, array: Any, size: int) -> None:
        """Give an array's owner an address of `size` bytes without memory. Only first phases may use it."""
        address = CLAIMED_BYTES * (len(self.claims) + 1)
        assert size <= CLAIMED_BYTES
        self.memories[owner_of(array).ctypes.data] = address
        self.claims[address] = size
        self._pass_memory_to_calls()

    def upload(self, array: Any) -> int:
        """Copy the memory of an array's owner to device memory, once per owner."""
        owner = owner_of(array)
        key = owner.ctypes.data
        if key not in self.memories:
            self.memories[key] = self.allocate(max(owner.nbytes, 1))
            C.memmove(self.memories[key], key, owner.nbytes)
        return self.memories[key]

    def download(self, array: Any) -> None:
        owner = owner_of(array)
        key = owner.ctypes.data
        C.memmove(key, self.memories[key], owner.nbytes)

    def free_tensors(self) -> None:
        for memory in self.memories.values():
            if memory not in self.claims:
                self.free(memory)
        self.memories.clear()
        self.claims.clear()
        self._pass_memory_to_calls()

    def tensor(self, array: Any) -> int:
        """Create the aclTensor of an array's copy in device memory; return its handle."""
        if isinstance(array, Stored):
            count = sum((size - 1) * step for size, step in zip(array.shape, array.strides, strict=True)) + 1
            sizes, strides, storage = map(int64_array, (array.shape, array.strides, [count]))
            return self.cann.aclCreateTensor(
                sizes, C.c_uint64(len(array.shape)), array.dtype, strides, C.c_int64(0), array.format,
                storage, C.c_uint64(1), C.c_void_p(self.upload(array.memory)),
            )  # fmt: skip
        owner, memory = owner_of(array), self.upload(array)
        item = array.itemsize
        offset = (array.ctypes.data - owner.ctypes.data) // item
        sizes, strides = int64_array(array.shape), int64_array([s // item for s in array.strides])
        storage = int64_array([owner.nbytes // item])
        return self.cann.aclCreateTensor(
            sizes, C.c_uint64(array.ndim), TYPES[array.dtype.name], strides, C.c_int64(offset), self.format,
            storage, C.c_uint64(1), C.c_void_p(memory),
        )  # fmt: skip

    def scalar(self, value: Any) -> C.c_void_p:
        """Create an aclScalar of a NumPy scalar, or NULL for None."""
        if value is None:
            return C.c_void_p()
        array = np.asarray(value)
        return C.c_void_p(self.cann.aclCreateScalar(C.c_void_p(array.ctypes.data), TYPES[array.dtype.name]))

    def tensor_list(self, arrays: Any) -> C.c_void_p:
        """Create an aclTensorList, which owns the aclTensors of the arrays, or NULL for None."""
        if arrays is None:
            return C.c_void_p()
        handles = [self.tensor(array) for array in arrays]
        return C.c_void_p(
            self.cann.aclCreateTensorList((C.c_void_p * len(handles))(*handles), C.c_uint64(len(handles)))
        )

    def array(self, kind: str, values: Any) -> C.c_void_p:
        """Create an aclIntArray, aclFloatArray or aclBoolArray; return NULL for None."""
        if values is None:
            return C.c_void_p()
        item = {"Int": C.c_int64, "Float": C.c_float, "Bool": C.c_bool}[kind]
        create = getattr(self.cann, f"aclCreate{kind}Array")
        return C.c_void_p(create((item * len(values))(*values), C.c_uint64(len(values))))

    # ---- calls -----------------------------------------------------------------------------------

    def parameters(self, op: str) -> list[Parameter]:
        return parameters_of(self.headers, f"aclnn{op}GetWorkspaceSize")

    def prepare(
        self, op: str, given: dict[str, Any], *, null: tuple[str, ...] = ()
    ) -> tuple[int, C.c_void_p]:
        """Run the first phase; return the workspace's size and the executor. `null` names NULL outputs."""
        size, executor = C.c_uint64(), C.c_void_p()
        arguments: list[Any] = []
        created: list[tuple[str, C.c_void_p]] = []
        for p in self.parameters(op):
            name = re.sub(r"_(optional|ref)$", "", snake_case(p.name))
            if name == "workspace_size":
                arguments.append(None if name in null else C.byref(size))
            elif name == "executor":
                arguments.append(None if name in null else C.byref(executor))
            elif p.type.endswith("aclTensorList*"):
                created.append(("TensorList", self.tensor_list(given[name])))
                arguments.append(created[-1][1])
            elif p.type.endswith("aclScalar*"):
                created.append(("Scalar", self.scalar(given[name])))
                arguments.append(created[-1][1])
            elif p.type.endswith("aclTensor*"):
                array = given[name]
                created.append(("Tensor", C.c_void_p(None if array is None else self.tensor(array))))
                arguments.append(created[-1][1])
            elif kind := re.search(r"acl(Int|Float|Bool)Array\*$", p.type):
                created.append((f"{kind[1]}Array", self.array(kind[1], given.get(name))))
                arguments.append(created[-1][1])
            elif p.type in ("char*", "const char*"):
                arguments.append(C.c_char_p(given.get(name)))
            else:
                arguments.append(NUMBERS[p.type.removeprefix("const ")](given[name]))
        with self.calls:
            status = getattr(self.opapi, f"aclnn{op}GetWorkspaceSize")(*arguments)
        for kind, handle in created:  # the second phase does not need them
            getattr(self.cann, f"aclDestroy{kind}")(handle)
        if status != OK:
            raise RefusedPhase(status, self.calls.error, executor.value)
        return size.value, executor

    def run(self, op: str, size: int, executor: C.c_void_p, *, missing_bytes: int = 0) -> None:
        """Run the second phase with its own workspace, `missing_bytes` shorter than `size`."""
        workspace = self.allocate(size)
        try:
            self.launch(op, workspace, size - missing_bytes, executor)
        finally:
            self.free(workspace)

    def launch(self, op: str, workspace: int | None, size: int, executor: C.c_void_p) -> None:
        with self.calls:
            status = getattr(self.opapi, f"aclnn{op}")(
                C.c_void_p(workspace), C.c_uint64(size), executor, C.c_void_p()
            )
        if status != OK:
            raise RefusedPhase(status, self.calls.error)

    def call(self, op: str, given: dict[str, Any]) -> None:
        """Run both phases on copies of the NumPy views in device memory; then copy the memory back."""
        try:
            self.run(op, *self.prepare(op, given))
            for value in given.values():
                for array in value if isinstance(value, list) else [value]:
                    if isinstance(array, Stored):
                        array = array.memory
                    if isinstance(array, np.ndarray):
                        self.download(array)
            assert all(map(self.guards_are_intact, self.allocations))
        finally:
            self.free_tensors()


def owner_of(array: Any) -> Any:
    """The array that owns the memory. A view of as_strided has NumPy's DummyArray as base."""
    while array.base is not None:
        array = array.base
    return array


def int64_array(values: Any) -> Any:
    return (C.c_int64 * len(values))(*values)


def strides_of(*arrays: Any) -> list[int]:
    """The attribute `strides` for these tensors."""
    return [s // a.itemsize for a in arrays for s in a.strides]
