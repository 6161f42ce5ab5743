"""Template arguments of a kernel in its tiling key: ``ASCENDC_TPL_ARGS_DECL`` and ``ASCENDC_TPL_SEL``.

CANN compiles a kernel once for each combination of arguments that ``ASCENDC_TPL_SEL`` lists. A tiling key
selects one combination (page 模板参数定义; asc-devkit template_tiling.py in
tools/build/asc_op_compile_base/asc_op_compiler). :func:`read_declarations` reads both macros from the
preprocessed source.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from dataclasses import dataclass

from ascend_sim.errors import bad_value

# ASCENDC_TPL_UI_LIST and ASCENDC_TPL_UI_MIX, the modes that list values.
_LIST_MODE, _MIXED_MODE = 1, 2
# ASCENDC_TPL_INPUT(0). A number from here on refers to the type of an input or output and is no value.
_FIRST_TENSOR_REFERENCE = 100000000
# ge::DataType by name.
_DATA_TYPES = {
    "FLOAT": 0, "FLOAT16": 1, "INT8": 2, "INT32": 3, "UINT8": 4, "INT16": 6, "UINT16": 7, "UINT32": 8,
    "INT64": 9, "UINT64": 10, "DOUBLE": 11, "BOOL": 12, "BF16": 27, "INT4": 29,
}  # fmt: skip
# ge::Format by name.
_FORMATS = {"NCHW": 0, "NHWC": 1, "ND": 2, "NDHWC": 27, "FRACTAL_NZ": 29, "NCDHW": 30}
_CONSTANTS = {f"C_DT_{name}": number for name, number in _DATA_TYPES.items()}
_CONSTANTS |= {f"C_FORMAT_{name}": number for name, number in _FORMATS.items()}
# The kinds whose values are part of the key.
_VALUE_KINDS = ("DTYPE", "DATATYPE", "FORMAT", "UINT", "BOOL", "SHARED_KERNEL_TYPE")
# The beginning of @kind "name" bits(values), as ASCEND_SIM_TPL in tiling/template_argument.h writes it.
_ENTRY_BEGIN = re.compile(r'@ ?(\w+) "(\w*)" (\w+)\(')


@dataclass(frozen=True)
class TemplateEntry:
    """A template parameter, or another property of a combination (kernel type, tiling struct).

    Attributes:
        kind: such as ``UINT`` for ASCENDC_TPL_UINT_DECL and ASCENDC_TPL_UINT_SEL.
        name: of the template parameter; empty for the other properties.
        bits: its width in the tiling key; 0 in a combination.
        values: the values that it may have.
        text: the macro's other arguments, as in the source.
    """

    kind: str
    name: str
    bits: int
    values: tuple[int, ...]
    text: str


@dataclass(frozen=True)
class KeyArguments:
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

    parameters: tuple[TemplateEntry, ...]
    combinations: tuple[tuple[TemplateEntry, ...], ...]

    def decode(self, tiling_key: int) -> KeyArguments:
        """Return the arguments of a key. The first parameter has the key's lowest bits.

        Raises:
            ValueError: CANN compiles no kernel for this key.
        """
        remaining_bits, values = tiling_key, []
        for parameter in self.parameters:
            value = remaining_bits & ((1 << parameter.bits) - 1)
            remaining_bits >>= parameter.bits
            if parameter.kind == "UINT":  # the key has the index of the value
                value = parameter.values[value] if value < len(parameter.values) else -1
            values.append(value)
        for combination in self.combinations:
            permitted = {entry.name: entry.values for entry in combination if entry.kind in _VALUE_KINDS}
            if remaining_bits == 0 and all(
                value in permitted.get(parameter.name, ())
                for parameter, value in zip(self.parameters, values, strict=True)
            ):
                structs = [entry.text.strip() for entry in combination if entry.kind == "TILING_STRUCT"]
                arguments = map(_argument_text, self.parameters, values)
                return KeyArguments(tuple(arguments), "".join(structs[:1]))
        named = ", ".join(f"{p.name} {value}" for p, value in zip(self.parameters, values, strict=True))
        raise bad_value(f"tiling key must be one of ASCENDC_TPL_SEL but got {tiling_key}: {named}.")


def read_declarations(source_text: str) -> Declarations | None:
    """Read the declarations from a source that was preprocessed with ASCENDC_TPL_PRE; None if it has none."""
    declared = re.search(r"@declared\b(.*?)@end", source_text, re.DOTALL)
    if declared is None:
        return None
    selected = re.search(r"@selected\b(.*?)@end", source_text, re.DOTALL)
    combinations = selected[1].split("@combination")[1:] if selected else []
    parameters = tuple(_read_entries(declared[1]))
    return Declarations(parameters, tuple(tuple(_read_entries(part)) for part in combinations))


def _argument_text(parameter: TemplateEntry, value: int) -> str:
    return f"typename TypeFromId<{value}>::type" if parameter.kind == "DATATYPE" else str(value)


def _read_entries(text: str) -> list[TemplateEntry]:
    entries = []
    for match in _ENTRY_BEGIN.finditer(text):
        open_parentheses, end = 1, match.end()
        while open_parentheses and end < len(text):
            open_parentheses += {"(": 1, ")": -1}.get(text[end], 0)
            end += 1
        body = text[match.end() : end - 1]
        kind, name, bits = match[1], match[2], _number_of(match[3])
        numbers = []
        if kind in ("UINT", "BOOL"):
            # CANN takes each run of digits as a value here, and does not resolve names (extract_num).
            numbers = [int(digits) for digits in re.findall(r"\d+", body)]
        elif kind in _VALUE_KINDS:
            numbers = _numbers_of(body)
        entries.append(TemplateEntry(kind, name, bits, tuple(_permitted_values(kind, numbers)), body))
    return entries


def _permitted_values(kind: str, numbers: list[int]) -> list[int]:
    """Return the values that a parameter may have.

    The first number of UINT is a mode. In mode list, the values follow. In the other modes, the number of
    ranges follows, then the first and the last value of each range. In mode mixed, further values follow.
    """
    if kind != "UINT":
        return [number for number in numbers if number < _FIRST_TENSOR_REFERENCE]
    if not numbers or numbers[0] == _LIST_MODE:
        return numbers[1:]
    range_count = numbers[1] if len(numbers) > 1 else 0
    ranges_end = 2 + 2 * range_count
    values = [value for i in range(2, ranges_end, 2) for value in range(numbers[i], numbers[i + 1] + 1)]
    return values + (numbers[ranges_end:] if numbers[0] == _MIXED_MODE else [])


def _numbers_of(text: str) -> list[int]:
    """Return the numbers between commas. A comma inside parentheses does not separate."""
    parts: Sequence[str] = re.split(r",(?![^()]*\))", text)
    return [_number_of(part) for part in parts if part.strip()]


def _number_of(text: str) -> int:
    """Return the value of a constant's name or of an expression. Suffixes such as u and UL are ignored."""
    name = text.strip().split("::")[-1]
    if name in _CONSTANTS:
        return _CONSTANTS[name]
    try:
        return _evaluate(ast.parse(re.sub(r"\b(\d+)[uUlL]+\b", r"\1", text.strip()), mode="eval").body)
    except (SyntaxError, ValueError):
        raise bad_value(f"ASCENDC_TPL value must be a number but got {text.strip()}.") from None


def _evaluate(node: ast.expr) -> int:
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return int(node.value)
    if isinstance(node, ast.BinOp):
        left, right = _evaluate(node.left), _evaluate(node.right)
        for operation, result in (
            (ast.Add, left + right),
            (ast.Sub, left - right),
            (ast.Mult, left * right),
            (ast.BitOr, left | right),
        ):
            if isinstance(node.op, operation):
                return result
    raise ValueError
