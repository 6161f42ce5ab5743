"""Run an operator of another project from its sources: definition, tiling and kernel.

The operator's definition determines the types of its kernels. Its tiling computes the tiling data, and its
kernel runs on the simulated cores:

>>> op = OperatorSources("rms_norm/op_kernel/rms_norm.cpp",
...     definition="rms_norm/op_host/rms_norm_def.cpp",
...     tiling=["rms_norm/op_host/rms_norm_tiling.cpp"], include=["ops-nn/common/inc"])  # doctest: +SKIP
>>> report = op.run({"x": x, "gamma": gamma}, {"y": y, "rstd": rstd}, epsilon=1e-6)  # doctest: +SKIP

docs/operators.md explains how this differs from CANN's build.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ascend_sim import template_arguments
from ascend_sim.compiler import (
    CompileFailed,
    compile_once,
    compile_soc,
    kernel_command,
    link_options,
    results_folder,
)
from ascend_sim.errors import bad_value
from ascend_sim.files import digest, text_file, unreadable
from ascend_sim.kernels import Kernel, KernelBroken, Report
from ascend_sim.launch_syntax import kernel_source
from ascend_sim.library import DEFAULT_SOC, Options, load
from ascend_sim.operator_definition import read_definition
from ascend_sim.operator_host import OperatorHost, build_host
from ascend_sim.operator_tensors import KernelArguments, Tensors, column_of, describe_tensors, tensors_of
from ascend_sim.operator_types import BY_NUMBER, FORMATS, name_of
from ascend_sim.package import Refused
from ascend_sim.source_layout import Layout, lay_out

__all__ = ["OperatorReport", "OperatorSources", "Tiling"]

_TILING_FAILED = 561002  # aclnn's status for a call that the tiling refuses
_WRAPPER = "ascend_sim_entry"  # a generated function that calls the kernel's entry
_Path = str | os.PathLike[str]


@dataclass(frozen=True)
class Tiling:
    """The data and the launch that a tiling returns for its kernel.

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


class OperatorSources:
    """An operator, compiled from its sources.

    Args:
        kernel: the file with the kernel's entry.
        definition: the file with the operator's definition (``OP_ADD``).
        tiling: the files that define and register its tiling, and the files that these need to link. Without
            these files, the definition's file must contain the tiling, or :meth:`run` must get it.
        include: folders of headers for definition and tiling: those of the operator's library, and those of
            hicann/opbase (``include``, ``include/op_common``, …). CANN's own headers are the simulator's.
        soc: an SoC such as ``ascend910b``, or a chip such as ``Ascend910B4``.
        operator: its name in the definition, such as ``"RmsNorm"``, if the files define several.
        entry: the kernel's function; by default the operator's name in snake case, as in CANN.
        auto_sync: insert synchronisation, as CANN's build does unless the operator's build file says
            ``AUTO_SYNC false``, or a table of the library turns it off. The options of :meth:`run` can insert
            it for one call.
        generated_aclnn: calls come from the aclnn function that CANN generates for the operator (``ACLNNTYPE
            aclnn`` in its build file). Then an absent optional input keeps its index in ``GetInputShape`` and
            similar functions of the tiling. In calls of an aclnn function written by hand, and in a graph, it
            has no index, and the inputs after it have lower ones.
        kernel_include: folders of headers for the kernel.
        flags, host_flags: options of the compiler for the kernel, and for definition and tiling.
        folder: where compiled files go; by default this user's folder in the system's temporary folder.

    Raises:
        CompileFailed: definition or tiling does not compile or link.
        ValueError: a file cannot be read, the folder cannot be written, or the definition has no such
            operator or SoC.
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
        generated_aclnn: bool = False,
        kernel_include: Sequence[_Path] = (),
        flags: Sequence[str] = ("-Og",),
        host_flags: Sequence[str] = (),
        folder: _Path | None = None,
    ) -> None:
        for argument, files in (("kernel", [kernel]), ("definition", [definition]), ("tiling", tiling)):
            for file in files:
                if fault := unreadable(Path(file)):
                    raise bad_value(f"{argument} {fault}")
        self._chip, self.soc, self._auto_sync = soc, compile_soc(soc), auto_sync
        self._generated_aclnn = generated_aclnn
        self._folder = Path(os.path.abspath(results_folder(folder)))
        self._include = [Path(os.path.abspath(root)) for root in include]
        self._kernel_include, self._flags = tuple(kernel_include), tuple(flags)
        sources = list(dict.fromkeys(Path(os.path.abspath(file)) for file in (definition, *tiling)))
        program = build_host(sources, self._include, tuple(host_flags), self._folder)
        self._host = OperatorHost(program)
        self.definition = read_definition(self._host, self.soc, operator)
        self.entry = entry or self.definition.kernel
        self._source = Path(os.path.abspath(kernel))
        named = self.definition.kernel_file
        if named and named != self._source.stem:
            raise bad_value(
                f"kernel must be {named}.cpp, which the definition names for {self.soc}, but got {kernel}."
            )
        self._kernels: dict[tuple[str, ...], Kernel] = {}

    def tile(
        self,
        inputs: Mapping[str, Any],
        outputs: Mapping[str, Any],
        *,
        formats: Mapping[str, str] | None = None,
        attributes: Mapping[str, Any] | None = None,
        options: Options | None = None,
        **more: Any,
    ) -> Tiling:
        """Return the tiling of a call, from the operator's own tiling function. :meth:`run` explains the
        arguments.

        Raises:
            Refused: the tiling refuses the call; the text is what it logged.
            HostCodeFailed: the tiling ended its process, or there is none.
        """
        input_tensors, output_tensors = tensors_of(self.definition, inputs, outputs)
        column = column_of(self.definition, [*input_tensors, *output_tensors], formats or {})
        values = {**(attributes or {}), **more}
        return self._tile(input_tensors, output_tensors, column, values, options)

    def run(
        self,
        inputs: Mapping[str, Any],
        outputs: Mapping[str, Any],
        *,
        tiling: Tiling | None = None,
        formats: Mapping[str, str] | None = None,
        attributes: Mapping[str, Any] | None = None,
        options: Options | None = None,
        sums: Sequence[str] = (),
        written_inputs: Sequence[str] = (),
        check: bool = True,
        **more: Any,
    ) -> OperatorReport:
        """Run the tiling, then the kernel on every core.

        Args:
            inputs: the arrays by the definition's names. An input that is a list takes a list of arrays. An
                optional input may be None or missing. An input that is also an output is written in place.
            outputs: likewise. Each array has the output's shape and type; it is written if no rule is broken.
            tiling: replaces the operator's tiling.
            formats: formats of tensors by name, if columns differ by them, such as ``{"x": "NHWC"}``.
            attributes, more: the attributes by name; those of the definition have defaults.
            options: chip, lenient rules, trace, number of cores, deterministic mode.
            sums: outputs whose sums of atomic copies may depend on the order of the cores.
            written_inputs: inputs that the kernel writes, although the definition does not list them as
                outputs.
            check: raise if a rule was broken; otherwise the report lists the violations.

        Raises:
            Refused: the tiling refuses the call; the text is what it logged.
            HostCodeFailed: the tiling ended its process, or there is none.
            CompileFailed: the kernel does not compile.
            KernelBroken: the kernel broke a rule of the simulator.
            ValueError, TypeError: an argument is missing or unknown, or its type has no kernel.
        """
        options = options or Options()
        input_tensors, output_tensors = tensors_of(self.definition, inputs, outputs)
        column = column_of(self.definition, [*input_tensors, *output_tensors], formats or {})
        if tiling is None:
            values = {**(attributes or {}), **more}
            tiling = self._tile(input_tensors, output_tensors, column, values, options)
        kernel = self._kernel(column, tiling.key)
        arguments = KernelArguments(input_tensors, output_tensors, sums, written_inputs)
        auto_sync = self._auto_sync or options.auto_sync
        options = replace(options, soc=options.soc or self._chip, auto_sync=auto_sync)
        launch_report = kernel.call(
            arguments.arguments,
            arguments.describe_lists(),
            block_dim=tiling.block_dim,
            tiling=tiling.data,
            tiling_key=tiling.key,
            workspace_bytes=tiling.workspace_bytes,
            options=options,
        )
        arguments.unpack_results()
        types = {p.name: name_of(p.types[column]) for p in self.definition.parameters}
        errors, warnings, summary = launch_report.errors, launch_report.warnings, launch_report.summary
        report = OperatorReport(errors, warnings, summary, tiling, types)
        if check and errors:
            raise KernelBroken(report)
        return report

    # ---- the tiling ---------------------------------------------------------------------------------------

    def _tile(
        self,
        inputs: Sequence[Tensors],
        outputs: Sequence[Tensors],
        column: int,
        attribute_values: Mapping[str, Any],
        options: Options | None,
    ) -> Tiling:
        attributes = self.definition.attribute_values(attribute_values)
        profile = self._profile((options and options.soc) or self._chip)
        most_cores = (options.most_cores if options else 0) or profile["cores"]
        reply = self._host.ask(
            do="tile",
            op=self.definition.name,
            chip=profile["name"],
            cores=min(profile["cores"], most_cores),
            deterministic=int(bool(options and options.deterministic)),
            generated_aclnn=int(self._generated_aclnn),
            inputs=[describe_tensors(tensors, column) for tensors in inputs],
            outputs=[describe_tensors(tensors, column) for tensors in outputs],
            attrs=attributes,
        )
        if "refused" in reply:
            raise Refused(_TILING_FAILED, f"[{self.definition.name}] {reply['refused']}")
        workspace_bytes = sum(map(int, reply["workspaces"]))
        library_bytes = int(reply["library_workspace"])  # the part that CANN reserves for itself
        return Tiling(
            bytes.fromhex(reply["tiling"]),
            int(reply["tiling_key"]),
            int(reply["block_dim"]),
            max(workspace_bytes - library_bytes, 0),
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
        path_digest = digest(str(self._source).encode())
        return lay_out(self._source, self._include, self._folder / f"layout-{path_digest}")

    def _kernel(self, column: int, tiling_key: int) -> Kernel:
        """Return the kernel of a column, compiled for the template arguments of the key."""
        arguments = self._template_arguments(column, tiling_key)
        key = (str(column), *arguments)
        if key not in self._kernels:
            self._kernels[key] = Kernel(self._build(column, arguments), _WRAPPER, self.soc)
        return self._kernels[key]

    @cached_property
    def _tiling_structs(self) -> str:
        """The text of a header with the tiling structs that the host code registers."""
        header: str = self._host.ask(do="header", op=self.definition.name)["header"]
        return header

    def _command(self, column: int) -> list[str]:
        layout = self._layout
        include = [*layout.include, *self._kernel_include]
        flags = [*self._flags, *layout.flags]
        return kernel_command(self.soc, defines=self._defines(column), include=include, flags=flags)

    def _defines(self, column: int) -> dict[str, str]:
        """Return the macros of a column (asc-devkit ascendc_impl_build.py, get_dtype_fmt_options)."""
        defines = {"DETERMINISTIC_MODE": "0"}
        input_names = {p.name for p in self.definition.inputs}
        for index, p in enumerate(self.definition.parameters):
            # CANN adds _REF to the name of an output that is also an input.
            is_reference = index >= len(self.definition.inputs) and p.name in input_names
            name = p.name.upper() + ("_REF" if is_reference else "")
            element_type = BY_NUMBER.get(p.types[column])
            if element_type is None:
                raise bad_value(f"{p.name} must have a simulated type but got {name_of(p.types[column])}.")
            format_name = FORMATS.get(p.format_in(column), "ND")
            defines[f"DTYPE_{name}"] = element_type.kernel_type
            defines[f"ORIG_DTYPE_{name}"] = element_type.enumerator
            defines[f"FORMAT_{name}"] = f"FORMAT_{format_name}"
        return defines

    def _template_arguments(self, column: int, tiling_key: int) -> tuple[str, ...]:
        declarations = self._declarations(column)
        return () if declarations is None else declarations.decode(tiling_key).arguments

    def _declarations(self, column: int) -> template_arguments.Declarations | None:
        if not self._is_template:
            return None
        command = [*self._command(column), "-DASCENDC_TPL_PRE", "-E", "-P", str(self._layout.source)]
        preprocessed = subprocess.run(command, capture_output=True, text=True, errors="replace")
        if preprocessed.returncode != 0:
            raise CompileFailed(self._layout.with_original_paths(preprocessed.stderr))
        declarations = template_arguments.read_declarations(preprocessed.stdout)
        if declarations is None:
            raise bad_value(f"kernel must declare the arguments of {self.entry} (ASCENDC_TPL_ARGS_DECL).")
        return declarations

    @cached_property
    def _is_template(self) -> bool:
        text = re.sub(r"//[^\n]*|/\*.*?\*/", " ", self._source.read_text(errors="replace"), flags=re.DOTALL)
        entry = rf"\btemplate\s*<[^;{{}}]*>[^;{{}}]*\b__global__\b[^;{{}}()]*\b{re.escape(self.entry)}\s*\("
        return re.search(entry, text) is not None

    def _build(self, column: int, arguments: Sequence[str]) -> Path:
        """Compile the kernel, with a function that calls its entry."""
        format_macros = "".join(
            f"#ifndef FORMAT_{name}\n#define FORMAT_{name} {number}\n#endif\n"
            for number, name in FORMATS.items()
        )
        entry = self.entry + (f"<{', '.join(arguments)}>" if arguments else "")
        argument_count = len(self.definition.parameters) + 2  # workspace and tiling come last
        source = self._layout.source
        included = kernel_source(source, self._folder)
        wrapper_text = (
            f'{format_macros}#include "ascend_sim_entry.h"\n{self._tiling_structs}#include "{included}"\n'
            f'extern "C" __attribute__((visibility("default"))) void {_WRAPPER}('
            "uint8_t* const* addresses, const void* described) {\n"
            f"    ascend_sim::call_entry<{argument_count}>(&{entry}, addresses, "
            "static_cast<const int64_t*>(described));\n}\n"
        ).replace("#pragma once\n", "")
        wrapper = text_file(self._folder, self._source.stem, wrapper_text)
        command = [*self._command(column), "-iquote", str(source.parent)]
        name = f"{self._source.stem}-{self.soc}"
        try:
            return compile_once(command, wrapper, link_options(), name, ".so", source, self._folder)
        except CompileFailed as error:
            raise CompileFailed(self._layout.with_original_paths(str(error))) from None
