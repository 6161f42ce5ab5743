"""Run an operator of somebody else from its sources: definition, tiling and kernel.

The operator's own definition gives the types of its kernels, its own tiling the tiling data, and its own
kernel runs on the simulated cores:

>>> op = OperatorSources("rms_norm/op_kernel/rms_norm.cpp",
...     definition="rms_norm/op_host/rms_norm_def.cpp",
...     tiling=["rms_norm/op_host/rms_norm_tiling.cpp"], include=["ops-nn/common/inc"])  # doctest: +SKIP
>>> report = op.run({"x": x, "gamma": gamma}, {"y": y, "rstd": rstd}, epsilon=1e-6)  # doctest: +SKIP

docs/operators.md explains how this differs from CANN's build.
"""

from __future__ import annotations

import ctypes as C
import json
import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ascend_sim import folders, template_arguments
from ascend_sim.compiler import (
    CompileFailed,
    compile_once,
    compile_soc,
    digest,
    kernel_command,
    own_temporary_folder,
)
from ascend_sim.errors import bad_type, bad_value
from ascend_sim.files import unreadable
from ascend_sim.kernels import In, InOut, Kernel, KernelBroken, Out, Report, Sum
from ascend_sim.library import DEFAULT_SOC, Options, load
from ascend_sim.operator_host import OperatorHost, build_host
from ascend_sim.operator_types import (
    BY_NUMBER,
    FORMATS,
    ND,
    Array,
    copy_back,
    device_array,
    name_of,
    type_of,
)
from ascend_sim.package import Refused
from ascend_sim.source_layout import Layout, lay_out

__all__ = ["OperatorReport", "OperatorSources", "Tiling"]

_REQUIRED, _DYNAMIC = 2, 3  # ops::Option
_TILING_FAILED = 561002  # aclnn's status
_ENTRY = "ascend_sim_entry"
_Path = str | os.PathLike[str]


@dataclass(frozen=True)
class Tiling:
    """What a tiling gives to its kernel.

    Attributes:
        data: the tiling struct's bytes, or a NumPy scalar of a structured dtype with its layout.
        key: the tiling key.
        block_dim: the number of blocks.
        workspace_bytes: bytes of the user's workspace, without the part that CANN reserves for itself.
        schedule_mode: 1 if all blocks must start at the same time.
    """

    data: bytes = b""
    key: int = 0
    block_dim: int = 1
    workspace_bytes: int = 0
    schedule_mode: int = 0

    def __post_init__(self) -> None:
        if isinstance(self.data, np.void | np.ndarray):
            object.__setattr__(self, "data", self.data.tobytes())


@dataclass(frozen=True)
class OperatorReport(Report):
    """Results of a call.

    Attributes:
        tiling: the tiling of the call.
        column: the type of each tensor, as the definition lists it for the kernel that ran.
    """

    tiling: Tiling = field(default_factory=Tiling)
    column: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Parameter:
    """An input or output of the definition for an SoC: one type and one format for each column."""

    name: str
    kind: int
    types: tuple[int, ...]
    formats: tuple[int, ...]
    reads_values: bool

    @property
    def is_list(self) -> bool:
        """Whether the parameter is a list of tensors."""
        return self.kind == _DYNAMIC

    def format_in(self, column: int) -> int:
        """The format in a column."""
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
    inputs: tuple[Parameter, ...]
    outputs: tuple[Parameter, ...]
    attributes: tuple[Attribute, ...]

    @property
    def columns(self) -> int:
        """The number of columns of types: kernels."""
        return len(self.inputs[0].types) if self.inputs else 0


@dataclass(frozen=True)
class _Tensors:
    """A parameter's arrays in one call: none if it is absent, several for a list."""

    parameter: Parameter
    arrays: tuple[Array, ...]
    is_list: bool = False


class OperatorSources:
    """An operator, compiled from its sources.

    Args:
        kernel: the file with the kernel's entry.
        definition: the file with the operator's definition (``OP_ADD``).
        tiling: the files that define and register its tiling, and those that these need to link. Without any,
            the definition's own files must have it, or :meth:`run` gets the tiling.
        include: folders of headers for definition and tiling: those of the operator's library, and those of
            hicann/opbase (``include``, ``include/op_common``, …). CANN's own headers are the simulator's.
        soc: an SoC such as ``ascend910b``, or a chip such as ``Ascend910B4``.
        operator: its name in the definition, such as ``"RmsNorm"``, if the files define several.
        entry: the kernel's function; by default the operator's name in snake case, as in CANN.
        auto_sync: insert synchronisation, as CANN's build does unless the operator's build file says
            ``AUTO_SYNC false``. The same option of :meth:`run` inserts it for one call.
        kernel_include: folders of headers for the kernel.
        flags, host_flags: for the compiler of the kernel, and of definition and tiling.
        folder: where compiled files go; by default this user's folder in the system's temporary folder.

    Raises:
        CompileFailed: definition or tiling does not compile or link.
        ValueError: a file cannot be read, or the definition has no such operator or SoC.
    """

    def __init__(
        self,
        kernel: _Path,
        *,
        definition: _Path,
        tiling: Sequence[_Path] = (),
        include: Sequence[_Path] = (),
        soc: str = DEFAULT_SOC,
        operator: str | None = None,
        entry: str | None = None,
        auto_sync: bool = True,
        kernel_include: Sequence[_Path] = (),
        flags: Sequence[str] = ("-Og",),
        host_flags: Sequence[str] = (),
        folder: _Path | None = None,
    ) -> None:
        for argument, files in (("kernel", [kernel]), ("definition", [definition]), ("tiling", tiling)):
            for file in files:
                if must := unreadable(Path(file)):
                    raise bad_value(f"{argument} {must}")
        self._chip, self.soc, self._auto_sync = soc, compile_soc(soc), auto_sync
        self._folder = own_temporary_folder() if folder is None else Path(os.path.abspath(folder))
        self._folder.mkdir(parents=True, exist_ok=True)
        self._include = [Path(os.path.abspath(root)) for root in include]
        self._kernel_include, self._flags = tuple(kernel_include), tuple(flags)
        sources = list(dict.fromkeys(Path(os.path.abspath(file)) for file in (definition, *tiling)))
        program = build_host(sources, self._include, tuple(host_flags), self._folder)
        self._host = OperatorHost(program)
        self.definition = self._read_definition(operator)
        self.entry = entry or self.definition.kernel
        self._source = Path(os.path.abspath(kernel))
        self._kernels: dict[tuple[str, ...], Kernel] = {}

    def _read_definition(self, operator: str | None) -> Definition:
        described = self._host.ask(do="describe", soc=self.soc)
        if operator is None and len(described) == 1:
            operator = next(iter(described))
        if operator not in described:
            raise bad_value(
                f"operator must be one of {', '.join(described) or 'those of the definition, which has none,'} "
                f"but got {operator}."
            )
        found = described[operator]
        if "inputs" not in found:
            socs = ", ".join(found["socs"])
            raise bad_value(f"soc must be one that {operator} is defined for, {socs}, but got {self.soc}.")

        def parameter(p: Mapping[str, Any]) -> Parameter:
            return Parameter(p["name"], p["kind"], tuple(p["types"]), tuple(p["formats"]), p["reads_values"])

        return Definition(
            operator,
            found["kernel"],
            tuple(map(parameter, found["inputs"])),
            tuple(map(parameter, found["outputs"])),
            tuple(Attribute(a["name"], a["type"], a["required"], a["default"]) for a in found["attrs"]),
        )

    def tile(
        self,
        inputs: Mapping[str, Any],
        outputs: Mapping[str, Any],
        *,
        formats: Mapping[str, str] | None = None,
        attributes: Mapping[str, Any] | None = None,
        options: Options | None = None,
        deterministic: bool = False,
        **more: Any,
    ) -> Tiling:
        """Return the tiling of a call, from the operator's own tiling function. :meth:`run` explains the
        arguments.

        Raises:
            Refused: the tiling refuses the call; the text is what it logged.
            HostCodeFailed: the tiling ended its process, or there is none.
        """
        given, taken = self._tensors(inputs, outputs)
        column = self._column(given, taken, formats or {})
        return self._tile(given, taken, column, {**(attributes or {}), **more}, options, deterministic)

    def run(
        self,
        inputs: Mapping[str, Any],
        outputs: Mapping[str, Any],
        *,
        tiling: Tiling | None = None,
        formats: Mapping[str, str] | None = None,
        attributes: Mapping[str, Any] | None = None,
        options: Options | None = None,
        deterministic: bool = False,
        sums: Sequence[str] = (),
        check: bool = True,
        **more: Any,
    ) -> OperatorReport:
        """Run the tiling, then the kernel on every core.

        Args:
            inputs: the arrays by the definition's names; a list of arrays for an input that is one; None, or
                nothing, for an optional input. An input that is also an output is written in place.
            outputs: likewise. Each array has the output's shape and type; it is written if no rule is broken.
            tiling: replaces the operator's tiling.
            formats: formats of tensors by name, if columns differ by them, such as ``{"x": "NHWC"}``.
            attributes, more: the attributes by name; those of the definition have defaults.
            options: chip, lenient rules, trace, number of cores.
            deterministic: the process asks for results that do not depend on the order of sums.
            sums: outputs whose sums of atomic copies may depend on the order of the cores.
            check: raise if a rule was broken; otherwise the report lists the violations.

        Raises:
            Refused: the tiling refuses the call; the text is what it logged.
            HostCodeFailed: the tiling ended its process, or there is none.
            CompileFailed: the kernel does not compile.
            KernelBroken: the kernel broke a rule of the simulator.
            ValueError, TypeError: an argument is missing or unknown, or its type has no kernel.
        """
        options = options or Options()
        given, taken = self._tensors(inputs, outputs)
        column = self._column(given, taken, formats or {})
        if tiling is None:
            named = {**(attributes or {}), **more}
            tiling = self._tile(given, taken, column, named, options, deterministic)
        kernel = self._kernel(column, tiling.key)
        launch = _Launch(given, taken, sums)
        auto_sync = self._auto_sync or options.auto_sync
        used = replace(options, soc=options.soc or self._chip, auto_sync=auto_sync)
        report = kernel.call(
            launch.arguments,
            launch.described(),
            block_dim=tiling.block_dim,
            tiling=tiling.data,
            tiling_key=tiling.key,
            workspace_bytes=tiling.workspace_bytes,
            options=used,
        )
        launch.finish()
        types = {p.name: name_of(p.types[column]) for p in self._parameters()}
        full = OperatorReport(report.errors, report.warnings, report.summary, tiling, types)
        if check and full.errors:
            raise KernelBroken(full)
        return full

    # ---- arguments -------------------------------------------------------------------------------------

    def _parameters(self) -> list[Parameter]:
        return [*self.definition.inputs, *self.definition.outputs]

    def _tensors(
        self, inputs: Mapping[str, Any], outputs: Mapping[str, Any]
    ) -> tuple[list[_Tensors], list[_Tensors]]:
        """The arrays of each input and of each output, in the definition's order."""
        known = {p.name for p in self.definition.inputs}
        in_place = {p.name for p in self.definition.outputs} & known
        own_outputs = [p.name for p in self.definition.outputs if p.name not in in_place]
        for kind, names, mapping in (("inputs", known, inputs), ("outputs", set(own_outputs), outputs)):
            if unknown := sorted(set(mapping) - names):
                listed = ", ".join(p.name for p in self._parameters() if p.name in names) or "none"
                raise bad_value(f"{kind} must be {listed} but got {unknown[0]}.")
        given = [
            _arrays_of(p, inputs.get(p.name), written=p.name in in_place) for p in self.definition.inputs
        ]
        taken = []
        for p in self.definition.outputs:
            if p.name in in_place:
                taken.append(next(t for t in given if t.parameter.name == p.name))
            else:
                taken.append(_arrays_of(p, outputs.get(p.name), written=True))
        return given, taken

    def _column(
        self, given: Sequence[_Tensors], taken: Sequence[_Tensors], formats: Mapping[str, str]
    ) -> int:
        """The first column that has the types of all tensors that are given."""
        numbers = {name: number for number, name in FORMATS.items()}
        for name, text in formats.items():
            if text not in numbers or name not in {p.name for p in self._parameters()}:
                raise bad_value(
                    f"formats must name a tensor and one of {', '.join(numbers)} but got {name}={text}."
                )
        for column in range(self.definition.columns):
            if all(
                type_of(t.parameter.name, array).number == t.parameter.types[column]
                for t in (*given, *taken)
                for array in t.arrays
            ) and all(
                p.name not in formats or p.format_in(column) == numbers[formats[p.name]]
                for p in self._parameters()
            ):
                return column
        got = ", ".join(f"{t.parameter.name} {t.arrays[0].dtype}" for t in (*given, *taken) if t.arrays)
        columns = [
            "(" + ", ".join(f"{p.name} {name_of(p.types[c])}" for p in self._parameters()) + ")"
            for c in range(self.definition.columns)
        ]
        listed = ", ".join(dict.fromkeys(columns))
        raise bad_value(f"tensors must have the types of one of the kernels {listed} but got {got}.")

    def _attributes(self, named: Mapping[str, Any]) -> list[dict[str, Any]]:
        known = {a.name: a for a in self.definition.attributes}
        if unknown := sorted(set(named) - set(known)):
            raise bad_value(f"attributes must be {', '.join(known) or 'none'} but got {unknown[0]}.")
        values = []
        for name, attribute in known.items():
            value = named.get(name)
            if value is None:
                if attribute.default is None:
                    raise bad_value(f"{name} must be given but got nothing.")
                value = _default_of(attribute)
            values.append({"type": attribute.type, "value": _attribute_value(attribute, value)})
        return values

    def _tile(
        self,
        given: Sequence[_Tensors],
        taken: Sequence[_Tensors],
        column: int,
        named: Mapping[str, Any],
        options: Options | None,
        deterministic: bool,
    ) -> Tiling:
        attributes = self._attributes(named)
        profile = self._profile((options and options.soc) or self._chip)
        most = options.most_cores if options else 0
        reply = self._host.ask(
            do="tile",
            op=self.definition.name,
            chip=profile["name"],
            cores=min(profile["cores"], most or profile["cores"]),
            deterministic=int(deterministic),
            inputs=[_described(t, column) for t in given],
            outputs=[_described(t, column) for t in taken],
            attrs=attributes,
        )
        if "refused" in reply:
            raise Refused(_TILING_FAILED, f"[{self.definition.name}] {reply['refused']}")
        needed = sum(map(int, reply["workspaces"]))
        library = int(reply["library_workspace"])
        return Tiling(
            bytes.fromhex(reply["tiling"]),
            int(reply["tiling_key"]),
            int(reply["block_dim"]),
            max(needed - library, 0),
            reply["schedule_mode"],
        )

    def _profile(self, chip: str) -> dict[str, Any]:
        for profile in load().profiles():
            if chip.lower() in (str(profile["name"]).lower(), profile["soc"]):
                if compile_soc(chip) == self.soc:
                    return profile
                break
        raise bad_value(f"options.soc must be a chip of {self.soc} but got {chip}.")

    # ---- the kernel ------------------------------------------------------------------------------------

    @cached_property
    def _layout(self) -> Layout:
        origin = digest(str(self._source).encode())
        return lay_out(self._source, self._include, self._folder / f"layout-{origin}")

    def _kernel(self, column: int, tiling_key: int) -> Kernel:
        """The kernel of a column, compiled for the tiling struct and the template arguments of the key."""
        header = self._host.ask(do="header", op=self.definition.name, tiling_key=str(tiling_key))["header"]
        arguments = self._template_arguments(column, tiling_key)
        key = (str(column), header, *arguments)
        if key not in self._kernels:
            library = self._build(column, header, arguments)
            self._kernels[key] = Kernel(library, _ENTRY, self.soc)
        return self._kernels[key]

    def _command(self, column: int) -> list[str]:
        layout = self._layout
        include = [*layout.include, *self._kernel_include]
        flags = [*self._flags, *layout.flags]
        return kernel_command(self.soc, defines=self._defines(column), include=include, flags=flags)

    def _defines(self, column: int) -> dict[str, str]:
        """The macros of a column (asc-devkit ascendc_impl_build.py, get_dtype_fmt_options)."""
        defines = {"DETERMINISTIC_MODE": "0"}
        inputs = {p.name for p in self.definition.inputs}
        for index, p in enumerate(self._parameters()):
            is_reference = index >= len(self.definition.inputs) and p.name in inputs
            name = p.name.upper() + ("_REF" if is_reference else "")
            kind = BY_NUMBER.get(p.types[column])
            if kind is None:
                raise bad_value(f"{p.name} must have a simulated type but got {name_of(p.types[column])}.")
            text = FORMATS.get(p.format_in(column), "ND")
            defines |= {f"DTYPE_{name}": kind.kernel, f"ORIG_DTYPE_{name}": kind.macro}
            defines[f"FORMAT_{name}"] = f"FORMAT_{text}"
        return defines

    def _template_arguments(self, column: int, tiling_key: int) -> tuple[str, ...]:
        declared = self._declarations(column)
        return () if declared is None else declared.decode(tiling_key).arguments

    def _declarations(self, column: int) -> template_arguments.Declarations | None:
        if not self._is_template:
            return None
        command = [*self._command(column), "-DASCENDC_TPL_PRE", "-E", "-P", str(self._layout.source)]
        done = subprocess.run(command, capture_output=True, text=True, errors="replace")
        if done.returncode != 0:
            raise CompileFailed(done.stderr)
        found = template_arguments.declarations(done.stdout)
        if found is None:
            raise bad_value(f"kernel must declare the arguments of {self.entry} (ASCENDC_TPL_ARGS_DECL).")
        return found

    @cached_property
    def _is_template(self) -> bool:
        text = re.sub(r"//[^\n]*|/\*.*?\*/", " ", self._source.read_text(errors="replace"), flags=re.DOTALL)
        entry = rf"\btemplate\s*<[^;{{}}]*>[^;{{}}]*\b__global__\b[^;{{}}()]*\b{re.escape(self.entry)}\s*\("
        return re.search(entry, text) is not None

    def _build(self, column: int, header: str, arguments: Sequence[str]) -> Path:
        """Compile the kernel, with a function that calls its entry."""
        formats = "".join(
            f"#ifndef FORMAT_{name}\n#define FORMAT_{name} {number}\n#endif\n"
            for number, name in FORMATS.items()
        )
        entry = self.entry + (f"<{', '.join(arguments)}>" if arguments else "")
        count = len(self._parameters()) + 2
        text = (
            f'{formats}#include "ascend_sim_entry.h"\n{header}#include "{self._layout.source}"\n'
            f'extern "C" __attribute__((visibility("default"))) void {_ENTRY}('
            "uint8_t* const* addresses, const void* described) {\n"
            f"    ascend_sim::call_entry<{count}>(&{entry}, addresses, static_cast<const int64_t*>(described));\n}}\n"
        ).replace("#pragma once\n", "")
        wrapper = self._folder / f"{self._source.stem}-{digest(text.encode())}.cpp"
        if not wrapper.is_file():
            draft = wrapper.with_suffix(f".{os.getpid()}")
            draft.write_text(text)
            draft.replace(wrapper)
        sim = load()
        command = [*self._command(column), str(wrapper), str(sim.path), f"-Wl,-rpath,{sim.path.parent}"]
        return compile_once(
            command, f"{self._source.stem}-{self.soc}", ".so", self._layout.source, self._folder
        )


class _Launch:
    """The arguments of a kernel for a call."""

    def __init__(self, given: Sequence[_Tensors], taken: Sequence[_Tensors], sums: Sequence[str]) -> None:
        self._copies: list[tuple[Array, Array]] = []  # int4 arrays and their bytes
        self._tensors = [*given, *taken]
        written = {t.parameter.name for t in taken}
        if unknown := sorted(set(sums) - written):
            raise bad_value(f"sums must be outputs but got {unknown[0]}.")
        made: dict[str, list[Any]] = {}
        self.arguments: list[Any] = []
        for t in self._tensors:
            name = t.parameter.name
            if name not in made:
                in_place = name in written and any(other is t for other in given)
                role = Sum if name in sums else InOut if in_place else Out if name in written else In
                made[name] = [role(self._device(array, name in written), name) for array in t.arrays]
            self.arguments += made[name] if t.arrays or t.is_list else [None]

    def _device(self, array: Array, written: bool) -> Array:
        device = device_array(array)
        if device is not array and written:
            self._copies.append((array, device))
        return device

    def described(self) -> Any:
        """For each of the kernel's parameters -1, or a list's tensors (include/ascend_sim_entry.h)."""
        numbers: list[int] = []
        for t in self._tensors:
            if not t.is_list:
                numbers.append(-1)
                continue
            numbers.append(len(t.arrays))
            for array in t.arrays:
                numbers += [array.ndim, *array.shape]
        return (C.c_int64 * len(numbers))(*numbers)

    def finish(self) -> None:
        """Copy results of packed types to the caller's arrays."""
        for array, device in self._copies:
            copy_back(array, device)


def _arrays_of(parameter: Parameter, value: Any, *, written: bool) -> _Tensors:
    name = parameter.name
    if value is None:
        if parameter.kind == _REQUIRED:
            raise bad_value(f"{name} must be given but got nothing.")
        return _Tensors(parameter, (), parameter.is_list)
    is_list = parameter.is_list
    if is_list != isinstance(value, list | tuple):
        expected = "a list of arrays" if is_list else "an array"
        raise bad_type(f"{name} must be {expected} but got {type(value).__name__}.")
    arrays = []
    for array in value if is_list else [value]:
        if not isinstance(array, np.ndarray):
            raise bad_type(f"{name} must be an array but got {type(array).__name__}.")
        type_of(name, array)
        if written and not (array.flags.c_contiguous and array.flags.writeable):
            raise bad_value(f"{name} must be contiguous and writeable but got strides {array.strides}.")
        arrays.append(array if array.flags.c_contiguous else np.ascontiguousarray(array))
    return _Tensors(parameter, tuple(arrays), is_list)


def _described(tensors: _Tensors, column: int) -> list[dict[str, Any]]:
    """The tensors of a parameter for the tiling."""
    described = []
    for array in tensors.arrays:
        one: dict[str, Any] = {
            "type": type_of(tensors.parameter.name, array).number,
            "format": tensors.parameter.format_in(column),
            "shape": list(array.shape),
        }
        if tensors.parameter.reads_values:
            one["values"] = device_array(array).tobytes().hex()
        described.append(one)
    return described


def _default_of(attribute: Attribute) -> Any:
    text = attribute.default or ""
    return text if attribute.type == "str" else json.loads(text)


def _attribute_value(attribute: Attribute, value: Any) -> Any:
    """The value as the host program reads it; a bool is a number."""
    kind, got = attribute.type, type(value).__name__
    if kind == "str":
        if not isinstance(value, str):
            raise bad_type(f"{attribute.name} must be a str but got {got}.")
        return value
    convert = {"Int": int, "Float": lambda v: repr(float(v)), "Bool": lambda v: int(bool(v))}[
        kind.removeprefix("list").capitalize()
    ]
    if kind.startswith("list"):
        if not isinstance(value, Sequence | np.ndarray) or isinstance(value, str):
            raise bad_type(f"{attribute.name} must be a list but got {got}.")
        return [convert(item) for item in value]
    if not isinstance(value, int | float | np.number | np.bool_):
        raise bad_type(f"{attribute.name} must be a number but got {got}.")
    if kind == "int" and not -(2**63) <= value < 2**63:
        raise bad_value(f"{attribute.name} must be in the int64 range but got {value}.")
    return convert(value)
