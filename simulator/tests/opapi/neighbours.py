"""Calls that differ from a valid one in one respect, and what the first phase answers; see --help."""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

sys.path.append(str(Path(__file__).resolve().parents[1] / "cann"))

from aclnn import TYPES as NUMBER_OF_TYPE
from aclnn import Device, RefusedPhase, Stored
from operands import TYPES, prepared

ANSWERS = Path(__file__).with_name("neighbours.txt")
CHIPS = ("Ascend910B1", "Ascend310P3")
HELP = """\
Ask the first phase of the stand-ins of libopapi about the neighbours of valid calls; write neighbours.txt.

A neighbour differs from a call in one argument (another type, a dimension more or less, another size, other
strides, another format, NULL, another number), or in all tensors of one type or shape, or two of its tensors
share memory. neighbours.txt has the calls and the answers of both chips: accepted, with the bytes of
workspace and the ways in which the call goes beyond the function's document, or the status and the rule that
refuses it. test_neighbours.py compares.

After a change of a rule, run this program and read the difference line by line: each line is a claim about
CANN, whose source is named in simulator/cann/opapi. To add a call, add a line with the function and its
arguments.
"""
NCHW, ND, FRACTAL_NZ = 0, 2, 29
OTHER_NUMBERS = (-1, 0, 1, 2, 9, 2**31)


@dataclass(frozen=True)
class Tensor:
    """The description of a tensor: type (of NumPy, or a number of aclDataType), sizes, strides, format."""

    type: str
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None = None  # in elements; None: contiguous
    format: int = ND

    @classmethod
    def of(cls, text: str) -> Tensor:
        """Return the tensor that a text such as ``float16[3,4] strides 8,2 format 29`` describes."""
        found = re.fullmatch(r"(\w+)\[([\d,]*)\](?: strides ([\d,]*))?(?: format (\d+))?", text)
        if found is None:
            raise ValueError(f"a tensor must be such as float16[3,4] strides 8,2 format 29 but got {text!r}")
        numbers = lambda part: tuple(int(n) for n in part.split(",") if n)  # noqa: E731
        strides = None if found[3] is None else numbers(found[3])
        return cls(found[1], numbers(found[2]), strides, int(found[4] or ND))

    def __str__(self) -> str:
        strides = "" if self.strides is None else f" strides {','.join(map(str, self.strides))}"
        form = "" if self.format == ND else f" format {self.format}"
        return f"{self.type}[{','.join(map(str, self.shape))}]{strides}{form}"

    def contiguous_strides(self) -> tuple[int, ...]:
        """Return the strides of packed elements."""
        return tuple(prod(max(size, 1) for size in self.shape[i + 1 :]) for i in range(len(self.shape)))

    def bytes(self) -> int:
        """Return a number of bytes that holds the elements. A fractal has whole blocks."""
        strides = self.strides or self.contiguous_strides()
        last = sum(max(size - 1, 0) * step for size, step in zip(self.shape, strides, strict=True))
        item = np.dtype(TYPES[self.type]).itemsize if self.type in TYPES else 4
        return (last + 1) * item if self.format != FRACTAL_NZ else 64 * (last + 16) * item

    def stored(self, memory: Any) -> Stored:
        """Return the argument of a call, with this memory."""
        number = NUMBER_OF_TYPE[self.type] if self.type in NUMBER_OF_TYPE else int(self.type)
        return Stored(memory, number, self.shape, self.strides or self.contiguous_strides(), self.format)


Given = dict[str, Any]


@dataclass(frozen=True)
class Call:
    """A function's name without ``aclnn``, its arguments, and the two of them that share memory.

    An argument is a Tensor, a list of Tensors, a number or a list of numbers, None, ``{"text": "half"}``, or
    ``{"scalar": "float32", "value": 2}``.
    """

    op: str
    given: Given
    shared: tuple[str, ...] = ()

    def answer(self, device: Device) -> str:
        """Return what the first phase answers."""
        tensors = {n: v for n, v in self.given.items() if isinstance(v, Tensor)}

        def memory_of(size: int) -> Any:
            memory = np.zeros(1, np.uint8)
            device.claim(memory, size)
            return memory

        memory = memory_of(max((tensors[n].bytes() for n in self.shared), default=1))
        given: Given = {}
        for name, value in self.given.items():
            if isinstance(value, Tensor):
                given[name] = value.stored(memory if name in self.shared else memory_of(value.bytes()))
            elif isinstance(value, list) and any(isinstance(item, Tensor) for item in value):
                given[name] = [item.stored(memory_of(item.bytes())) for item in value]
            elif isinstance(value, dict):
                given[name] = value["text"].encode() if "text" in value else scalar_of(value)
            else:
                given[name] = value
        try:
            size, beyond = prepared(device, self.op, given)
        except RefusedPhase as refused:
            return f"{refused.status} {rule_of(str(refused), self.op)}"
        return ", ".join([f"accepted, {size} bytes", *(f"although {reason}" for reason in beyond)])


def scalar_of(value: dict[str, Any]) -> Any:
    """Return the NumPy scalar of an argument. A negative integer wraps in an unsigned type."""
    with np.errstate(over="ignore"):
        return np.asarray(value["value"]).astype(TYPES[value["scalar"]])[()]


def rule_of(message: str, op: str) -> str:
    """Return the rule that a message states, without the function and the value that it got."""
    rule = message.removeprefix("simulated CANN: ").removeprefix(f"aclnn{op}GetWorkspaceSize: ")
    return rule.removeprefix(f"aclnn{op}: ").partition(" but got ")[0].replace("\n", " ")


# ---- neighbours -----------------------------------------------------------------------------------------


def neighbours(call: Call) -> Iterator[tuple[str, Call]]:
    """Yield the neighbours of a call, each with its name."""

    def other(name: str, value: Any) -> Call:
        return replace(call, given={**call.given, name: value})

    for name, value in call.given.items():
        if isinstance(value, Tensor):
            for what, changed in other_tensors(value):
                yield f"{name}:{what}", other(name, changed)
            yield f"{name}:null", other(name, None)
        elif isinstance(value, list) and value and isinstance(value[0], Tensor):
            for i, item in enumerate(value):
                for what, changed in other_tensors(item):
                    yield f"{name}.{i}:{what}", other(name, [*value[:i], changed, *value[i + 1 :]])
            for what, items in (("shorter", value[:-1]), ("longer", [*value, value[-1]]), ("null", None)):
                yield f"{name}:{what}", other(name, items)
        else:
            for what, changed in other_values(value):
                yield f"{name}={what}", other(name, changed)
    yield from neighbours_in_several(call)


def neighbours_in_several(call: Call) -> Iterator[tuple[str, Call]]:
    """Yield the neighbours that differ in all tensors of a type or shape, and those that share memory."""
    tensors = {name: value for name, value in call.given.items() if isinstance(value, Tensor)}
    for what, group in groups(tensors):
        if len(group) > 1:
            of_each = [dict(other_tensors(tensors[name])) for name in group]
            for change in of_each[0]:
                if (change in TYPES) == (what in TYPES) and all(change in others for others in of_each):
                    changed = {name: others[change] for name, others in zip(group, of_each, strict=True)}
                    yield f"all {what}:{change}", replace(call, given={**call.given, **changed})
    names = list(tensors)
    for i, one in enumerate(names):
        for another in names[i + 1 :]:
            yield f"{one} in {another}", replace(call, shared=(one, another))


def groups(tensors: dict[str, Tensor]) -> Iterator[tuple[str, list[str]]]:
    """Yield each type and each shape with the tensors that have it."""
    for type_ in dict.fromkeys(tensor.type for tensor in tensors.values()):
        yield type_, [name for name, tensor in tensors.items() if tensor.type == type_]
    for shape in dict.fromkeys(tensor.shape for tensor in tensors.values()):
        same = [name for name, tensor in tensors.items() if tensor.shape == shape]
        yield f"[{','.join(map(str, shape))}]", same


def other_tensors(tensor: Tensor) -> Iterator[tuple[str, Tensor]]:
    """Yield tensors that differ from one in its type, shape, strides or format."""
    for type_ in TYPES:
        if type_ != tensor.type:
            yield type_, replace(tensor, type=type_)
    shape, rank = tensor.shape, len(tensor.shape)
    packed = replace(tensor, strides=None)
    yield "rank+1", replace(packed, shape=(1, *shape))
    yield "rank 9", replace(packed, shape=(1,) * (9 - rank) + shape)
    if rank:
        yield "rank-1", replace(packed, shape=shape[1:])
        yield "rank 0", replace(packed, shape=())
    for i, size in enumerate(shape):
        for new in dict.fromkeys((0, 1, size + 1, 2 * size)):
            if new != size:
                yield f"{i}={new}", replace(packed, shape=(*shape[:i], new, *shape[i + 1 :]))
    if rank:
        gapped = tuple(2 * step for step in packed.contiguous_strides())
        yield "gaps", replace(tensor, strides=gapped)
    if rank > 1:
        steps = packed.contiguous_strides()
        row = shape[-1] + 8
        padded = (*(step // max(shape[-1], 1) * row for step in steps[:-1]), 1)
        yield "rows apart", replace(tensor, strides=padded)
        transposed = (*steps[:-2], 1, max(shape[-2], 1))
        yield "transposed", replace(tensor, strides=transposed)
        yield "overlapping rows", replace(tensor, strides=(*steps[:-2], 0, 1))
    if tensor.format == ND:
        yield "nchw", replace(tensor, format=NCHW)
    yield (
        "nz" if tensor.format != FRACTAL_NZ else "nd",
        replace(packed, format=FRACTAL_NZ if tensor.format != FRACTAL_NZ else ND),
    )


def other_values(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield values that differ from an argument that is no tensor, each with its text."""
    if isinstance(value, dict) and "scalar" in value:
        yield from ((type_, {**value, "scalar": type_}) for type_ in TYPES if type_ != value["scalar"])
        yield from ((str(n), {**value, "value": n}) for n in (-1, 0, 2) if n != value["value"])
        yield "null", None
        return
    others: list[Any] = []
    if isinstance(value, bool):
        others = [not value]
    elif isinstance(value, int):
        others = [value - 1, value + 1, *OTHER_NUMBERS]
    elif isinstance(value, float):
        others = [-1.0, 0.0, 0.5, float("inf"), float("nan")]
    elif isinstance(value, list):
        others = [value[:-1], [*value, value[-1] if value else 0], None]
        if not any(isinstance(n, (bool, float)) for n in value):
            for i, n in enumerate(value):
                others += [[*value[:i], new, *value[i + 1 :]] for new in (n - 1, n + 1, 0, -1)]
    elif isinstance(value, dict):
        text = value["text"]
        others = [None, *({"text": other} for other in ("", f"{text}2", text.lower(), text.upper()))]
    different = {shown(other): other for other in others if other != value}
    yield from different.items()


# ---- neighbours.txt ---------------------------------------------------------------------------------------


def shown(value: Any) -> str:
    """Return an argument as JSON."""
    return json.dumps(value, separators=(",", ":"), default=str)


def call_of(op: str, arguments: str) -> Call:
    """Return the call of a function with these arguments, as neighbours.txt has them."""

    def argument(value: Any) -> Any:
        if isinstance(value, str):
            return Tensor.of(value)
        return [argument(v) for v in value] if isinstance(value, list) else value

    return Call(op, {name: argument(value) for name, value in json.loads(arguments).items()})


def answers(call: Call, device: Device) -> dict[str, str]:
    """Return the answers to a call, ``-``, and to its neighbours, by their names."""
    return {name: neighbour.answer(device) for name, neighbour in [("-", call), *neighbours(call)]}


def lines_of(found: dict[str, str], usual: dict[str, str]) -> list[str]:
    """Return a line for each answer, with the neighbours for which it is not the usual one."""
    names: dict[str, dict[str, list[str]]] = {}
    for name, answer in found.items():
        if answer != usual.get(name):
            argument, sign, change = re.fullmatch(r"([^:=]*)([:=]?)(.*)", name).groups()  # type: ignore[union-attr]
            names.setdefault(answer, {}).setdefault(argument + sign, []).append(change)
    lines = []
    for answer, of_answer in names.items():
        parts = (
            f"{argument} {', '.join(shorter(changes))}".strip() for argument, changes in of_answer.items()
        )
        lines.append(f"  {answer} <- {'; '.join(parts)}")
    return lines


def shorter(changes: list[str]) -> list[str]:
    """Return the changes with most types named by those that are missing."""
    missing = [type_ for type_ in TYPES if type_ not in changes]
    if len(missing) > len(TYPES) // 2:
        return changes
    return [f"types but {' '.join(missing)}", *(change for change in changes if change not in TYPES)]


def text_of(call: Call, devices: list[Device]) -> str:
    """Return the text of a call's section of neighbours.txt.

    For each chip it has the call's own answer, and the neighbours with another one. If the call has the same
    answer on two chips, the second has only what differs from the first.
    """
    lines: list[str] = []
    first: dict[str, str] = {}
    for device in devices:
        found = answers(call, device)
        is_same = first.get("-") == found["-"]
        lines += [f" {device.soc}: {'the same' if is_same else found['-']}"]
        lines += lines_of(found, first if is_same else dict.fromkeys(found, found["-"]))
        first = first or found
    return "\n".join(lines)


def known() -> dict[tuple[str, str], str]:
    """Return the texts of neighbours.txt by function and arguments. Functions may share a section."""
    found = {}
    for section in ANSWERS.read_text().split("\n\n"):
        first, _, text = section.strip("\n").partition("\n")
        ops, _, arguments = first.partition(" {")
        found.update({(op, f"{{{arguments}"): text for op in ops.split(", ")})
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=HELP, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.parse_args()
    devices = [Device.of_stand_ins(chip) for chip in CHIPS]
    shared: dict[tuple[str, str], list[str]] = {}
    for op, arguments in sorted(known()):
        shared.setdefault((arguments, text_of(call_of(op, arguments), devices)), []).append(op)
    sections = [f"{', '.join(ops)} {arguments}\n{text}" for (arguments, text), ops in shared.items()]
    ANSWERS.write_text("\n\n".join(sections) + "\n")


if __name__ == "__main__":
    main()
