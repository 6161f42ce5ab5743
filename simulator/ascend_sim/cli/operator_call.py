"""An operator on a command line: ``--input x=x.npy --attr epsilon=1e-6 --output y=float16:4,256``."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from ascend_sim.cli.arguments import KernelArgument, new_array, read_array, struct_of
from ascend_sim.cli.outcome import Outcome
from ascend_sim.errors import bad_value
from ascend_sim.files import unreadable, unwritable
from ascend_sim.kernels import ArrayArgument, In, InOut, Out, Sum
from ascend_sim.library import DEFAULT_SOC, Options
from ascend_sim.operator_definition import Definition
from ascend_sim.operator_sources import OperatorSources, Tiling
from ascend_sim.termination import termination_as_interrupt

_SOURCE_SUFFIXES = (".cpp", ".cc", ".cxx")


@dataclass(frozen=True)
class OperatorFiles:
    """The files of an operator, and the functions in them."""

    source: Path
    entry: str
    definition: Path
    operator: str
    tiling: Sequence[str]  # source files, or the text of a tiling struct
    include: Sequence[Path]
    generated_aclnn: bool


@dataclass(frozen=True)
class CallTexts:
    """The options that describe a call."""

    inputs: Sequence[str]
    outputs: Sequence[str]
    attributes: Sequence[str]
    sums: Sequence[str]
    seed: int


def run_operator(
    files: OperatorFiles,
    texts: CallTexts,
    tiling_values: Tiling,
    options: Options,
    reference_function: Callable[..., Any] | None,
) -> Outcome:
    """Compile an operator and run one call.

    Args:
        files: of the operator.
        texts: the call.
        tiling_values: block count, key and workspace for a tiling struct that is given as text.
        options: of the run.
        reference_function: computes the expected outputs.

    Raises:
        ValueError, TypeError: an option is wrong, or the reference returns something else.
        Refused, HostCodeFailed, CompileFailed, KernelBroken: see :class:`OperatorSources`.
    """
    for root in files.include:
        if not root.is_dir():
            raise bad_value(f"include must be a folder but got {root}.")
    tilings = [text for text in files.tiling if Path(text).suffix in _SOURCE_SUFFIXES]
    structs = [text for text in files.tiling if text not in tilings]
    if not structs:
        given = {"block_dim": (tiling_values.block_dim, 1), "tiling_key": (tiling_values.key, 0)}
        given["workspace"] = (tiling_values.workspace_bytes, 0)
        for name, (value, default) in given.items():
            if value != default:
                raise bad_value(
                    f"{name} must be that of the operator's tiling but got {value}: --tiling decides it."
                )
    for name, file in (("definition", files.definition), *(("tiling", Path(text)) for text in tilings)):
        if fault := unreadable(file):
            raise bad_value(f"{name} {fault}")
    with termination_as_interrupt():
        sources = OperatorSources(
            files.source,
            definition=files.definition,
            tiling=tilings,
            include=files.include,
            soc=options.soc or DEFAULT_SOC,
            operator=files.operator or None,
            entry=files.entry or None,
            auto_sync=False,  # options.auto_sync of the run decides
            generated_aclnn=files.generated_aclnn,
        )
    call = _call_of(sources.definition, texts)
    inputs = {name: _copy_of(value) for name, value in call.inputs.items()}
    report = sources.run(
        call.inputs,
        call.outputs,
        attributes=call.attributes,
        options=options,
        tiling=replace(tiling_values, data=struct_of(structs)) if structs else None,
        sums=texts.sums,
    )
    used = report.tiling
    entries = {"blocks": used.block_dim, "tiling_key": used.key, "workspace_bytes": used.workspace_bytes}
    outcome = Outcome(sources.definition.name, report, call.arguments, None, entries)
    if reference_function is not None:
        names = [
            item.text
            for item in call.arguments
            if isinstance(item.argument, ArrayArgument) and item.argument.role
        ]
        outcome.expected = _expected_results(reference_function(**inputs, **call.attributes), names)
    return outcome


def _expected_results(results: Any, names: Sequence[str]) -> list[tuple[Any, Any]]:
    """Return the reference's results, each with its tolerances or None, in the order of the arguments."""
    if not isinstance(results, dict) or set(results) != set(names):
        got = (
            (", ".join(map(str, results)) or "an empty one")
            if isinstance(results, dict)
            else type(results).__name__
        )
        raise bad_value(f"reference must return a dict of {', '.join(names)} but got {got}.")
    return [results[name] if isinstance(results[name], tuple) else (results[name], None) for name in names]


def _copy_of(value: Any) -> Any:
    return [array.copy() for array in value] if isinstance(value, list) else value.copy()


@dataclass
class _CallArguments:
    """The arguments of a call, by their names in the definition."""

    inputs: dict[str, Any] = field(default_factory=dict)
    outputs: dict[str, Any] = field(default_factory=dict)
    attributes: dict[str, Any] = field(default_factory=dict)
    arguments: list[KernelArgument] = field(default_factory=list)  # all arrays, and the files of results


def _call_of(definition: Definition, texts: CallTexts) -> _CallArguments:
    """Read the texts of a call. New inputs hold random numbers."""
    call, random = _CallArguments(), np.random.default_rng(texts.seed)
    in_place = definition.in_place
    lists = {p.name for p in definition.parameters if p.is_list}
    for text in texts.inputs:
        name, source, file = _split_text(text, "input")
        if file is not None and name not in in_place:
            raise bad_value(f"input must be one that the operator writes if it names a file but got {text}.")
        array = _read_or_make_array(source, random, text)
        role: Any = Sum if name in texts.sums else InOut if name in in_place else In
        call.arguments.append(KernelArgument(name, role(array, name), file))
        _add_array(call.inputs, name, array, is_list=name in lists)
    for text in texts.outputs:
        name, source, file = _split_text(text, "output")
        array = _read_or_make_array(source, None, text)
        if Path(source).suffix == ".npy" and file is None:
            # The file gives the shape and the type, and receives the result.
            array, file = np.zeros_like(array), Path(source)
        role = Sum if name in texts.sums else Out
        call.arguments.append(KernelArgument(name, role(array, name), file))
        _add_array(call.outputs, name, array, is_list=name in lists)
    for argument in call.arguments:
        if argument.file is not None and (fault := unwritable(argument.file)):
            raise bad_value(f"argument {fault}")
    attribute_types = {a.name: a.type for a in definition.attributes}
    for text in texts.attributes:
        name, equals, value = text.partition("=")
        if not equals:
            raise bad_value(f"attr must be NAME=VALUE but got {text}.")
        if name in call.attributes:
            raise bad_value(f"attr {name} must be given once but got it again.")
        call.attributes[name] = value if attribute_types.get(name) == "str" else _parse_json(value, text)
    return call


def _add_array(arrays: dict[str, Any], name: str, array: Any, *, is_list: bool) -> None:
    if is_list:
        arrays.setdefault(name, []).append(array)
    elif name in arrays:
        raise bad_value(f"{name} must be given once, because it is no list, but got it again.")
    else:
        arrays[name] = array


def _split_text(text: str, kind: str) -> tuple[str, str, Path | None]:
    """Split NAME=SOURCE or NAME=SOURCE=FILE."""
    name, equals, rest = text.partition("=")
    source, has_file, file = rest.partition("=")
    if not name or not equals or not source or (has_file and not file):
        raise bad_value(
            f"{kind} must be NAME=FILE.npy, NAME=DTYPE:SIZES or NAME=DTYPE:SIZES=FILE.npy but got {text}."
        )
    return name, source, Path(file) if has_file else None


def _read_or_make_array(source: str, random: np.random.Generator | None, text: str) -> Any:
    dtype, colon, sizes = source.partition(":")
    if colon and Path(source).suffix != ".npy":
        if not all(part.isdigit() for part in sizes.split(",") if part):
            raise bad_value(f"sizes must be numbers such as 4,256 but got {text}.")
        return new_array(dtype, sizes, random, text)
    array = read_array(source, "DTYPE:SIZES")
    if array.dtype == "V2":  # NumPy writes ml_dtypes' bfloat16 as two bytes without a type
        return array.view(new_array("bfloat16", "0", None, text).dtype)
    return array


def _parse_json(value: str, text: str) -> Any:
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        raise bad_value(f"attr must be a number, true, false or a list but got {text}.") from None
