"""The arrays of an operator's call, in the forms that its tiling and its kernel take."""

from __future__ import annotations

import ctypes as C
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ascend_sim.errors import bad_type, bad_value
from ascend_sim.kernels import In, InOut, Out, Sum
from ascend_sim.operator_definition import REQUIRED, Definition, Parameter
from ascend_sim.operator_types import FORMATS, Array, copy_back, device_array, name_of, type_of


@dataclass(frozen=True)
class Tensors:
    """A parameter's arrays in one call: none if it is absent, several for a list."""

    parameter: Parameter
    arrays: tuple[Array, ...]
    is_list: bool = False


def tensors_of(
    definition: Definition, inputs: Mapping[str, Any], outputs: Mapping[str, Any]
) -> tuple[list[Tensors], list[Tensors]]:
    """Return the arrays of each input and of each output, in the definition's order.

    Raises:
        ValueError, TypeError: an argument is unknown, missing, or not an array of a type that CANN has.
    """
    in_place = definition.in_place
    input_names = {p.name for p in definition.inputs}
    output_names = {p.name for p in definition.outputs} - in_place
    for kind, names, arrays in (("inputs", input_names, inputs), ("outputs", output_names, outputs)):
        if unknown := sorted(set(arrays) - names):
            listed = ", ".join(p.name for p in definition.parameters if p.name in names) or "none"
            raise bad_value(f"{kind} must be {listed} but got {unknown[0]}.")
    input_tensors = [
        _checked_tensors(p, inputs.get(p.name), is_written=p.name in in_place) for p in definition.inputs
    ]
    output_tensors = []
    for p in definition.outputs:
        if p.name in in_place:
            output_tensors.append(next(t for t in input_tensors if t.parameter.name == p.name))
        else:
            output_tensors.append(_checked_tensors(p, outputs.get(p.name), is_written=True))
    return input_tensors, output_tensors


def column_of(definition: Definition, tensors: Sequence[Tensors], formats: Mapping[str, str]) -> int:
    """Return the first column that has the types of all given tensors, and the given formats.

    Raises:
        ValueError: no column has them.
        TypeError: CANN lacks a type.
    """
    format_numbers = {name: number for number, name in FORMATS.items()}
    for name, text in formats.items():
        if text not in format_numbers or name not in {p.name for p in definition.parameters}:
            raise bad_value(
                f"formats must name a tensor and one of {', '.join(format_numbers)} but got {name}={text}."
            )
    for column in range(definition.columns):
        if all(
            type_of(t.parameter.name, array).number == t.parameter.types[column]
            for t in tensors
            for array in t.arrays
        ) and all(
            p.name not in formats or p.format_in(column) == format_numbers[formats[p.name]]
            for p in definition.parameters
        ):
            return column
    got = ", ".join(f"{t.parameter.name} {t.arrays[0].dtype}" for t in tensors if t.arrays)
    columns = [
        "(" + ", ".join(f"{p.name} {name_of(p.types[c])}" for p in definition.parameters) + ")"
        for c in range(definition.columns)
    ]
    listed = ", ".join(dict.fromkeys(columns))
    raise bad_value(f"tensors must have the types of one of the kernels {listed} but got {got}.")


class KernelArguments:
    """The arguments of a kernel for a call.

    Args:
        inputs, outputs: their tensors, from :func:`tensors_of`.
        sums: the names of outputs whose role is Sum.
        written_inputs: the names of inputs that the kernel writes, besides those that are also outputs.
    """

    def __init__(
        self,
        inputs: Sequence[Tensors],
        outputs: Sequence[Tensors],
        sums: Sequence[str] = (),
        written_inputs: Sequence[str] = (),
    ) -> None:
        self._packed: list[tuple[Array, Array]] = []  # written int4 arrays, and their bytes on the device
        self._tensors = [*inputs, *outputs]
        written = {t.parameter.name for t in outputs}
        if unknown := sorted(set(sums) - written):
            raise bad_value(f"sums must be outputs but got {unknown[0]}.")
        for name in written_inputs:
            matching = [t for t in inputs if t.parameter.name == name]
            if not matching:
                raise bad_value(f"written_inputs must be inputs but got {name}.")
            for array in matching[0].arrays:
                check_can_be_written(name, array)
            written.add(name)
        arguments_by_name: dict[str, list[Any]] = {}
        self.arguments: list[Any] = []
        for t in self._tensors:
            name = t.parameter.name
            if name not in arguments_by_name:
                is_written = name in written
                in_place = is_written and any(other is t for other in inputs)
                role = Sum if name in sums else InOut if in_place else Out if is_written else In
                arrays = [self._device_array(array, is_written) for array in t.arrays]
                arguments_by_name[name] = [role(array, name) for array in arrays]
            self.arguments += arguments_by_name[name] if t.arrays or t.is_list else [None]

    def _device_array(self, array: Array, is_written: bool) -> Array:
        device = device_array(array)
        if device is not array and is_written:
            self._packed.append((array, device))
        return device

    def describe_lists(self) -> Any:
        """Return for each parameter -1 (one tensor), or the number and the shapes of a list's tensors.

        The reader is ``call_entry`` of include/ascend_sim_entry.h.
        """
        numbers: list[int] = []
        for t in self._tensors:
            if not t.is_list:
                numbers.append(-1)
                continue
            numbers.append(len(t.arrays))
            for array in t.arrays:
                numbers += [array.ndim, *array.shape]
        return (C.c_int64 * len(numbers))(*numbers)

    def unpack_results(self) -> None:
        """Copy results of type int4 to the caller's arrays."""
        for array, device in self._packed:
            copy_back(array, device)


def check_can_be_written(name: str, array: Array) -> None:
    """Raise ValueError if the array is not contiguous and writeable."""
    if not (array.flags.c_contiguous and array.flags.writeable):
        got = "a read-only array" if array.flags.c_contiguous else f"strides {array.strides}"
        raise bad_value(f"{name} must be contiguous and writeable but got {got}.")


def _checked_tensors(parameter: Parameter, value: Any, *, is_written: bool) -> Tensors:
    name = parameter.name
    if value is None:
        if parameter.kind == REQUIRED:
            raise bad_value(f"{name} must be given but got nothing.")
        return Tensors(parameter, (), parameter.is_list)
    is_list = parameter.is_list
    if is_list != isinstance(value, list | tuple):
        expected = "a list of arrays" if is_list else "an array"
        raise bad_type(f"{name} must be {expected} but got {type(value).__name__}.")
    arrays = []
    for array in value if is_list else [value]:
        if not isinstance(array, np.ndarray):
            raise bad_type(f"{name} must be an array but got {type(array).__name__}.")
        type_of(name, array)  # raises TypeError for a type that CANN lacks
        if is_written:
            check_can_be_written(name, array)
        arrays.append(array if array.flags.c_contiguous else np.ascontiguousarray(array))
    return Tensors(parameter, tuple(arrays), is_list)


def describe_tensors(tensors: Tensors, column: int) -> list[dict[str, Any]]:
    """Return the tensors of a parameter as the tiling's process reads them."""
    descriptions = []
    for array in tensors.arrays:
        description: dict[str, Any] = {
            "type": type_of(tensors.parameter.name, array).number,
            "format": tensors.parameter.format_in(column),
            "shape": list(array.shape),
        }
        if tensors.parameter.reads_values:
            description["values"] = device_array(array).tobytes().hex()
        descriptions.append(description)
    return descriptions
