"""An operator's definition: its inputs, outputs and attributes for an SoC."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ascend_sim.errors import bad_type, bad_value
from ascend_sim.operator_host import OperatorHost
from ascend_sim.operator_types import ND

REQUIRED, DYNAMIC = 2, 3  # ops::Option
# The host program reads a bool as a number and a float as text.
_TO_HOST_VALUE: dict[str, Callable[[Any], Any]] = {
    "int": int,
    "float": lambda value: repr(float(value)),
    "bool": lambda value: int(bool(value)),
}


@dataclass(frozen=True)
class Parameter:
    """An input or output of the definition for an SoC.

    Attributes:
        kind: REQUIRED, DYNAMIC (a list of tensors) or another value of ops::Option.
        types, formats: numbers of ge::DataType and ge::Format, one for each column.
        reads_values: whether the tiling reads the tensor's elements.
    """

    name: str
    kind: int
    types: tuple[int, ...]
    formats: tuple[int, ...]
    reads_values: bool

    @property
    def is_list(self) -> bool:
        """Whether the parameter is a list of tensors."""
        return self.kind == DYNAMIC

    def format_in(self, column: int) -> int:
        """Return the parameter's format in a column."""
        return self.formats[column] if column < len(self.formats) else ND


@dataclass(frozen=True)
class Attribute:
    """An attribute of the definition; ``default`` is the text of the definition, or None."""

    name: str
    type: str
    required: bool
    default: str | None


@dataclass(frozen=True)
class Definition:
    """An operator's definition for an SoC."""

    name: str
    kernel: str
    kernel_file: str  # the kernel's file for the SoC, without its suffix; "": the definition names none
    inputs: tuple[Parameter, ...]
    outputs: tuple[Parameter, ...]
    attributes: tuple[Attribute, ...]

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """Inputs and outputs, in the kernel's order."""
        return (*self.inputs, *self.outputs)

    @property
    def in_place(self) -> set[str]:
        """The inputs that are also outputs."""
        return {p.name for p in self.outputs} & {p.name for p in self.inputs}

    @property
    def columns(self) -> int:
        """The number of columns. Each column has its own kernel."""
        return len(self.inputs[0].types) if self.inputs else 0

    def attribute_values(self, values_by_name: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return the values of all attributes, as the host program reads them.

        Raises:
            ValueError, TypeError: an attribute is unknown, missing, or has another type.
        """
        known = {a.name: a for a in self.attributes}
        if unknown := sorted(set(values_by_name) - set(known)):
            raise bad_value(f"attributes must be {', '.join(known) or 'none'} but got {unknown[0]}.")
        values = []
        for name, attribute in known.items():
            value = values_by_name.get(name)
            if value is None:
                if attribute.default is None:
                    raise bad_value(f"{name} must be given but got nothing.")
                value = _default_of(attribute)
            values.append({"type": attribute.type, "value": _host_value(attribute, value)})
        return values


def read_definition(host: OperatorHost, soc: str, operator: str | None) -> Definition:
    """Read an operator's definition for an SoC.

    Raises:
        ValueError: several operators exist and none was named, or no operator has this name or this SoC.
    """
    described = host.ask(do="describe", soc=soc)
    if operator is None and len(described) == 1:
        operator = next(iter(described))
    if operator not in described:
        listed = ", ".join(described) or "those of the definition, which has none,"
        raise bad_value(f"operator must be one of {listed} but got {operator}.")
    found = described[operator]
    if "inputs" not in found:
        socs = ", ".join(found["socs"])
        raise bad_value(f"soc must be one that {operator} is defined for, {socs}, but got {soc}.")

    def make_parameter(entry: Mapping[str, Any]) -> Parameter:
        types, formats = tuple(entry["types"]), tuple(entry["formats"])
        return Parameter(entry["name"], entry["kind"], types, formats, entry["reads_values"])

    return Definition(
        operator,
        found["kernel"],
        found["items"].get("opFile.value", ""),
        tuple(map(make_parameter, found["inputs"])),
        tuple(map(make_parameter, found["outputs"])),
        tuple(Attribute(a["name"], a["type"], a["required"], a["default"]) for a in found["attrs"]),
    )


def _default_of(attribute: Attribute) -> Any:
    text = attribute.default or ""
    return text if attribute.type == "str" else json.loads(text)


def _host_value(attribute: Attribute, value: Any) -> Any:
    kind, got = attribute.type, type(value).__name__
    if kind == "str":
        if not isinstance(value, str):
            raise bad_type(f"{attribute.name} must be a str but got {got}.")
        return value
    convert = _TO_HOST_VALUE[kind.removeprefix("list").lower()]
    if kind.startswith("list"):
        if not isinstance(value, Sequence | np.ndarray) or isinstance(value, str):
            raise bad_type(f"{attribute.name} must be a list but got {got}.")
        return [convert(_checked_number(attribute, item)) for item in value]
    return convert(_checked_number(attribute, value))


def _checked_number(attribute: Attribute, value: Any) -> Any:
    if not isinstance(value, int | float | np.number | np.bool_):
        raise bad_type(f"{attribute.name} must be a number but got {type(value).__name__}.")
    if attribute.type.lower().endswith("int") and not (-(2**63) <= value < 2**63 and value == int(value)):
        raise bad_value(f"{attribute.name} must be an integer in the int64 range but got {value}.")
    return value
