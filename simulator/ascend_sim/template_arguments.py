"""Template arguments of a kernel in its tiling key: ``ASCENDC_TPL_ARGS_DECL`` and ``ASCENDC_TPL_SEL``.

CANN compiles a kernel once for each combination of arguments that ``ASCENDC_TPL_SEL`` lists, and a tiling key
names one of them (page 模板参数定义; asc-devkit template_tiling.py in
tools/build/asc_op_compile_base/asc_op_compiler). :func:`declarations` reads both declarations from
the preprocessed source.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from dataclasses import dataclass

from ascend_sim.errors import bad_value

_RANGE, _LIST, _MIX = 0, 1, 2  # ASCENDC_TPL_UI_*
_FIRST_INDEX = 100000000  # ASCENDC_TPL_INPUT(0); from here on a number is the type of an input, and no value
_C_TYPES = {
    "FLOAT": 0, "FLOAT16": 1, "INT8": 2, "INT32": 3, "UINT8": 4, "INT16": 6, "UINT16": 7, "UINT32": 8,
    "INT64": 9, "UINT64": 10, "DOUBLE": 11, "BOOL": 12, "BF16": 27, "INT4": 29,
}  # fmt: skip
_C_FORMATS = {"NCHW": 0, "NHWC": 1, "ND": 2, "NDHWC": 27, "FRACTAL_NZ": 29, "NCDHW": 30}
_NAMES = {f"C_DT_{name}": number for name, number in _C_TYPES.items()}
_NAMES |= {f"C_FORMAT_{name}": number for name, number in _C_FORMATS.items()}
_VALUE_KINDS = ("DTYPE", "DATATYPE", "FORMAT", "UINT", "BOOL", "SHARED_KERNEL_TYPE")
_PARAMETER = re.compile(r'@ ?(\w+) "(\w*)" (\w+)\(')


@dataclass(frozen=True)
class Parameter:
    """A template parameter, or another property of a combination (kernel type, tiling struct)."""

    kind: str
    name: str
    bits: int
    values: tuple[int, ...]
    text: str


@dataclass(frozen=True)
class Chosen:
    """The arguments of one tiling key.

    Attributes:
        arguments: as C++ text, in the declaration's order.
        tiling_struct: the struct that GET_TILING_DATA reads if it names none; empty if the combination has
            none.
    """

    arguments: tuple[str, ...]
    tiling_struct: str = ""


@dataclass(frozen=True)
class Declarations:
    """A kernel's template parameters, and the combinations that it is compiled for."""

    parameters: tuple[Parameter, ...]
    combinations: tuple[tuple[Parameter, ...], ...]

    def decode(self, tiling_key: int) -> Chosen:
        """Return the arguments of a key.

        Raises:
            ValueError: CANN compiles no kernel for this key.
        """
        rest, values = tiling_key, []
        for parameter in self.parameters:
            value = rest & ((1 << parameter.bits) - 1)
            rest >>= parameter.bits
            if parameter.kind == "UINT":
                value = parameter.values[value] if value < len(parameter.values) else -1
            values.append(value)
        for combination in self.combinations:
            selected = {p.name: p for p in combination if p.kind in _VALUE_KINDS}
            if rest == 0 and all(
                p.name in selected and value in selected[p.name].values
                for p, value in zip(self.parameters, values, strict=True)
            ):
                structs = [p.text.strip() for p in combination if p.kind == "TILING_STRUCT"]
                pairs = zip(self.parameters, values, strict=True)
                return Chosen(tuple(_argument(p, value) for p, value in pairs), "".join(structs[:1]))
        named = ", ".join(f"{p.name} {value}" for p, value in zip(self.parameters, values, strict=True))
        raise bad_value(f"tiling key must be one of ASCENDC_TPL_SEL but got {tiling_key}: {named}.")


def declarations(text: str) -> Declarations | None:
    """Read the declarations from a source that was preprocessed with ASCENDC_TPL_PRE; None if it has none."""
    declared = re.search(r"@declared\b(.*?)@end", text, re.DOTALL)
    if declared is None:
        return None
    selected = re.search(r"@selected\b(.*?)@end", text, re.DOTALL)
    combinations = selected[1].split("@combination")[1:] if selected else []
    parameters = tuple(_parameters(declared[1]))
    return Declarations(parameters, tuple(tuple(_parameters(part)) for part in combinations))


def _argument(parameter: Parameter, value: int) -> str:
    return f"typename TypeFromId<{value}>::type" if parameter.kind == "DATATYPE" else str(value)


def _parameters(text: str) -> list[Parameter]:
    found = []
    for match in _PARAMETER.finditer(text):
        depth, end = 1, match.end()
        while depth and end < len(text):
            depth += {"(": 1, ")": -1}.get(text[end], 0)
            end += 1
        body = text[match.end() : end - 1]
        kind, name = match[1], match[2]
        # For these kinds CANN takes each run of digits as a value, and does not resolve names (extract_num).
        numbers = [int(digits) for digits in re.findall(r"\d+", body)] if kind in ("UINT", "BOOL") else None
        values = numbers if numbers is not None else _values(body) if kind in _VALUE_KINDS else []
        bits = _number(match[3])
        found.append(Parameter(kind, name, bits, tuple(_listed(kind, values)), body))
    return found


def _listed(kind: str, values: list[int]) -> list[int]:
    """The values that a parameter may have. For UINT, the mode is left out and ranges are expanded."""
    if kind != "UINT":
        return [value for value in values if value < _FIRST_INDEX]
    if not values or values[0] == _LIST:
        return values[1:]
    ranges = values[1] if len(values) > 1 else 0
    listed = [number for i in range(ranges) for number in range(values[2 + 2 * i], values[3 + 2 * i] + 1)]
    return listed + (values[2 + 2 * ranges :] if values[0] == _MIX else [])


def _values(text: str) -> list[int]:
    parts: Sequence[str] = re.split(r",(?![^()]*\))", text)
    return [_number(part) for part in parts if part.strip()]


def _number(text: str) -> int:
    name = text.strip().split("::")[-1]
    if name in _NAMES:
        return _NAMES[name]
    try:
        return _evaluated(ast.parse(re.sub(r"\b(\d+)[uUlL]+\b", r"\1", text.strip()), mode="eval").body)
    except (SyntaxError, ValueError):
        raise bad_value(f"ASCENDC_TPL value must be a number but got {text.strip()}.") from None


def _evaluated(node: ast.expr) -> int:
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return int(node.value)
    if isinstance(node, ast.BinOp):
        left, right = _evaluated(node.left), _evaluated(node.right)
        for kind, result in (
            (ast.Add, left + right),
            (ast.Sub, left - right),
            (ast.Mult, left * right),
            (ast.BitOr, left | right),
        ):
            if isinstance(node.op, kind):
                return result
    raise ValueError
