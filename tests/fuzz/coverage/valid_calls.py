"""Print the valid calls of simulator/tests/opapi/neighbours.txt as a C++ list, for fuzz_aclnn.cpp.

An entry is ``{function, {argument, ...}}``, with the arguments in the order of the function's declaration. An
argument is ``{tensors, numbers, type of a scalar, text}``, a tensor ``{type, sizes, strides, format}``.

CMake runs this program, perhaps by a Python without NumPy. So it cannot import neighbours.py, which reads the
same file.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

SIMULATOR = Path(__file__).parents[3] / "simulator"
TYPES = {  # the numbers of aclDataType
    "float32": 0, "float16": 1, "int8": 2, "int32": 3, "uint8": 4, "int16": 6, "uint16": 7, "uint32": 8,
    "int64": 9, "uint64": 10, "float64": 11, "bool": 12, "complex64": 16, "complex128": 17, "bfloat16": 27,
}  # fmt: skip
ND = 2  # the number of aclFormat


def parameters() -> dict[str, list[str]]:
    """Return the names of each function's parameters, in snake case and without "_optional" and "_ref"."""
    text = (SIMULATOR / "cann/opapi/functions.def").read_text(encoding="utf-8")
    found = {}
    for name, inside in re.findall(r"^ACLNN\([^,]+, (\w+), \(([^)]*)\)\)", text, re.M):
        names = (one.split()[-1] for one in inside.split(", "))
        snake = (re.sub(r"(?<=.)([A-Z])", r"_\1", one).lower() for one in names)
        found[name] = [re.sub(r"_(optional|ref)$", "", one) for one in snake]
    return found


def calls() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each function with the arguments of a valid call."""
    text = (SIMULATOR / "tests/opapi/neighbours.txt").read_text(encoding="utf-8")
    for functions, arguments in re.findall(r"^(\w+(?:, \w+)*) (\{.*\})$", text, re.M):
        for function in functions.split(", "):
            yield function, json.loads(arguments)


def braces(values: Any) -> str:
    return "{" + ", ".join(map(str, values)) + "}"


def tensor(text: str) -> str:
    """Return the initializer of a tensor such as ``float16[3,4] strides 8,2 format 29``."""
    found = re.fullmatch(r"(\w+)\[([\d,]*)\](?: strides ([\d,]*))?(?: format (\d+))?", text)
    if found is None:
        raise ValueError(f"{text!r} is no tensor")
    sizes = [int(n) for n in found[2].split(",") if n]
    strides = [int(n) for n in (found[3] or "").split(",") if n]
    number = TYPES.get(found[1], found[1])
    return f"{{{number}, {braces(sizes)}, {braces(strides)}, {found[4] or ND}}}"


def argument(value: Any) -> str:
    """Return the initializer of an argument."""
    tensors, numbers, type_, text = [], [], -1, ""
    items = value if isinstance(value, list) else [value]
    if isinstance(value, dict):
        text = value.get("text", "")
        type_, items = TYPES.get(value.get("scalar", ""), -1), [value["value"]] if "scalar" in value else []
    for item in items:
        if isinstance(item, str):
            tensors.append(tensor(item))
        elif item is not None:
            numbers.append(repr(float(item)))
    return f'{{{braces(tensors)}, {braces(numbers)}, {type_}, "{text}"}}'


def main() -> None:
    names_of = parameters()
    for function, arguments in calls():
        names = names_of[function]  # functions that share a line may lack some of the arguments
        print(f'{{"{function}", {braces(argument(arguments.get(name)) for name in names)}}},')


if __name__ == "__main__":
    main()
