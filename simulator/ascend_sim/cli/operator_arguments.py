"""An operator's call on a command line: ``--input x=x.npy``, ``--attr epsilon=1e-6``, ``--output y=float16:4,256``."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ascend_sim.cli.arguments import KernelArgument, new_array, read_array
from ascend_sim.errors import bad_value
from ascend_sim.files import unwritable
from ascend_sim.kernels import In, InOut, Out
from ascend_sim.operator_sources import Definition


@dataclass
class OperatorCall:
    """The arguments of a call, by their names in the definition."""

    inputs: dict[str, Any] = field(default_factory=dict)
    outputs: dict[str, Any] = field(default_factory=dict)
    attributes: dict[str, Any] = field(default_factory=dict)
    arguments: list[KernelArgument] = field(default_factory=list)  # all arrays, and the files of results

    def results(self) -> dict[str, Any]:
        """The arrays that the operator writes."""
        return {a.text: a.argument.array for a in self.arguments if a.argument and a.argument.role}


def call_of(
    definition: Definition,
    inputs: Sequence[str],
    outputs: Sequence[str],
    attributes: Sequence[str],
    seed: int,
) -> OperatorCall:
    """Read the texts of a call. New inputs hold random numbers.

    Raises:
        ValueError: a text has another form, a file cannot be read or written, or a name is unknown.
    """
    call, random = OperatorCall(), np.random.default_rng(seed)
    in_place = {p.name for p in definition.outputs} & {p.name for p in definition.inputs}
    lists = {p.name for p in definition.inputs if p.is_list}
    for text in inputs:
        name, source, file = _parts(text, "input")
        if file is not None and name not in in_place:
            raise bad_value(f"input must be written in place to get a file but got {text}.")
        array = _array(source, random, text)
        role = InOut if name in in_place else In
        call.arguments.append(KernelArgument(name, role(array, name), file))
        if name in lists:
            call.inputs.setdefault(name, []).append(array)
        elif name in call.inputs:
            raise bad_value(f"input must be given once but got {name} again.")
        else:
            call.inputs[name] = array
    for text in outputs:
        name, source, file = _parts(text, "output")
        if Path(source).suffix == ".npy":  # its shape and type, and the file of the result
            array, file = np.zeros_like(read_array(source)), Path(source)
        else:
            array = _array(source, None, text)
        call.outputs[name] = array
        call.arguments.append(KernelArgument(name, Out(array, name), file))
    for argument in call.arguments:
        if argument.file is not None and (must := unwritable(argument.file)):
            raise bad_value(f"argument {must}")
    types = {a.name: a.type for a in definition.attributes}
    for text in attributes:
        name, equals, value = text.partition("=")
        if not equals:
            raise bad_value(f"attr must be NAME=VALUE but got {text}.")
        call.attributes[name] = value if types.get(name) == "str" else _json(value, text)
    return call


def _parts(text: str, kind: str) -> tuple[str, str, Path | None]:
    """Split NAME=SOURCE or NAME=SOURCE=FILE."""
    name, equals, rest = text.partition("=")
    source, has_file, file = rest.partition("=")
    if not name or not equals or not source or (has_file and not file):
        raise bad_value(
            f"{kind} must be NAME=FILE.npy, NAME=DTYPE:SIZES or NAME=DTYPE:SIZES=FILE.npy but got {text}."
        )
    return name, source, Path(file) if has_file else None


def _array(source: str, random: np.random.Generator | None, text: str) -> Any:
    dtype, colon, sizes = source.partition(":")
    if colon and Path(source).suffix != ".npy" and all(part.isdigit() for part in sizes.split(",") if part):
        return new_array(dtype, sizes, random, text)
    return read_array(source)


def _json(value: str, text: str) -> Any:
    try:
        return json.loads(value)
    except ValueError:
        raise bad_value(f"attr must be a number, true, false or a list but got {text}.") from None
