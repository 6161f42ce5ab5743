"""Run AscendC kernels on the simulated cores: compile a kernel, launch it on arrays.

docs/kernels.md describes the checks and the report.
"""

from __future__ import annotations

import ctypes as C
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from ascend_sim import elf
from ascend_sim.compiler import AICORE, build, results_folder
from ascend_sim.entry_parameters import EntryParameter, before_tiling, entry_parameters, packed_number
from ascend_sim.errors import Unavailable, bad_type, bad_value
from ascend_sim.files import text_file
from ascend_sim.launch_syntax import kernel_source
from ascend_sim.library import DEFAULT_SOC, Memory, Options, load


class KernelBroken(RuntimeError):
    """A kernel broke a rule of the simulator. ``report`` has every error and warning.

    Attributes:
        rule: the rule's identifier, such as ``"SIM-HAZARD-01"``.
        line: the line of the kernel's source; 0 if it is not known.
    """

    def __init__(self, report: Report) -> None:
        self.report = report
        self.rule = report.errors[0]["rule"]
        self.line = int(report.errors[0]["line"])
        super().__init__(report.errors[0]["text"])


@dataclass(frozen=True)
class Report:
    """Results of a launch.

    Attributes:
        errors, warnings: dictionaries with ``rule``, ``text``, ``file``, ``line``, ``core``.
        summary: the timeline's totals (cycles, bytes, instructions by pipe, …).
    """

    errors: list[dict[str, Any]] = field(default_factory=list)
    warnings: list[dict[str, Any]] = field(default_factory=list)
    summary: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, found: Mapping[str, Any]) -> Report:
        """Make a report from the result of :meth:`ascend_sim.library.Library.report`.

        Raises:
            ValueError: the launch was not possible.
        """
        if "message" in found:
            raise bad_value(f"launch must be possible but got {found['message']}.")
        return cls(found["errors"], found["warnings"], found.get("summary", {}))


Array = npt.NDArray[Any]


@dataclass(frozen=True)
class _ArrayArgument:
    array: Array
    name: str = ""
    role: ClassVar[int]


class In(_ArrayArgument):
    """An argument the kernel reads."""

    role = 0


class Out(_ArrayArgument):
    """An argument the kernel writes; the kernel must not read it first."""

    role = 1


class Part(_ArrayArgument):
    """An :class:`Out` of which the kernel may leave bytes unwritten, such as gaps between rows."""

    role = 4


class InOut(_ArrayArgument):
    """An argument the kernel reads and writes."""

    role = 2


class Sum(_ArrayArgument):
    """An :class:`InOut` whose sums of atomic float copies may depend on the order of the cores."""

    role = 3


ArrayArgument = In | Out | Part | InOut | Sum
Argument = ArrayArgument | float | None  # a number is for a parameter that is no address


class _CArgument(C.Structure):
    """``ascend_sim_arg``: an offset in one of the launch's memories; -1 is a null pointer."""

    _fields_ = [("memory", C.c_int32), ("offset", C.c_int64)]


_PlacedArgument = tuple[ArrayArgument, int]  # an argument and the index of its memory


class Kernel:
    """A compiled kernel: one entry function of a source file, for one SoC.

    Args:
        library: the result of :func:`build`.
        entry: the function's name.
        soc: the SoC that it was compiled for.
        arguments: the names of its arguments before workspace and tiling. If they are not None,
            :meth:`run` checks their number.
        caller: the function of the library that calls the entry with addresses and numbers; "": the entry
            takes addresses only, and is ``extern "C"``.
        parameters: the entry's parameters, for a ``caller``.
    """

    def __init__(
        self,
        library: Path,
        entry: str,
        soc: str,
        *,
        arguments: Sequence[str] | None = None,
        caller: str = "",
        parameters: Sequence[EntryParameter] = (),
    ) -> None:
        self.soc, self.entry, self.arguments = soc, entry, arguments
        self._parameters = tuple(parameters)
        self._sim = load()
        try:
            elf.check_whole(Path(library))
            self._library = C.CDLL(str(library))
        except OSError as cause:
            raise Unavailable("kernel", f"its library does not load: {cause}", "Compile it again.") from None
        try:
            self._address = C.cast(getattr(self._library, caller or entry), C.c_void_p)
        except AttributeError:
            raise bad_value(f"entry must be a __global__ function but got {entry}.") from None

    def run(
        self,
        *arguments: Argument,
        block_dim: int = 1,
        tiling: bytes = b"",
        tiling_key: int = 0,
        workspace_bytes: int = 0,
        options: Options | None = None,
        check: bool = True,
    ) -> Report:
        """Run every core; several cores run in ascending and in descending order.

        Args:
            arguments: the kernel's arguments before workspace and tiling: an array, None for a null pointer,
                or a number for a parameter of a number's type.
                Arrays must be contiguous; a written one must not overlap another. Pass InOut of the same
                array twice to a kernel that works in place. Outputs are written only if no rule was broken.
            block_dim: number of blocks, 1 .. 65535, each on one core.
            tiling: the tiling struct's bytes.
            tiling_key: the value that TILING_KEY_IS compares with.
            workspace_bytes: size of the workspace argument.
            options: lenient rules, trace, …; its soc may name any chip with the instruction set that this
                kernel was compiled for.
            check: raise if a rule was broken; otherwise the report lists the violations.

        Raises:
            KernelBroken: the kernel broke a rule.
            ValueError, TypeError: an argument or option breaks its rule.
        """
        report = self.call(
            arguments,
            block_dim=block_dim,
            tiling=tiling,
            tiling_key=tiling_key,
            workspace_bytes=workspace_bytes,
            options=options,
        )
        if check and report.errors:
            raise KernelBroken(report)
        return report

    def call(
        self,
        arguments: Sequence[Argument],
        context: Any = None,
        *,
        block_dim: int,
        tiling: bytes,
        tiling_key: int,
        workspace_bytes: int,
        options: Options | None,
    ) -> Report:
        """Run every core and return the report. :meth:`run` explains the arguments.

        Args:
            context: if it is not None, the entry is an ``ascend_sim_call`` (include/ascend_sim.h), and
                ``context`` becomes its argument.
        """
        if not 0 <= block_dim < 2**32:  # a uint32 in the launch; SIM-CORE-05 reports the other bad numbers
            raise bad_value(f"block_dim must be 1 .. 65535 but got {block_dim}.")
        for name, number, maximum in (
            ("tiling_key", tiling_key, 2**64 - 1),
            ("workspace_bytes", workspace_bytes, 2**32),
        ):
            if not 0 <= number <= maximum:
                raise bad_value(f"{name} must be 0 .. {maximum} but got {number}.")
        if self.arguments is not None and len(arguments) != len(self.arguments):
            expected = f"{len(self.arguments)} ({', '.join(self.arguments)})"
            raise bad_value(f"arguments must be {expected} but got {len(arguments)}.")
        try:
            tiling = bytes(memoryview(tiling))
        except TypeError:
            raise bad_type(f"tiling must be bytes but got {type(tiling).__name__}.") from None
        if self._parameters:
            context, arguments = self._split_numbers(arguments)
        memories, c_arguments = _memories_of(arguments)
        options = options or Options()
        soc = self.soc if options.soc is None else options.soc
        self._sim.check_options(options)
        if soc.lower() not in (known := _architectures()):
            chips = [str(p["name"]) for p in self._sim.profiles() if p["arch"] == AICORE[self.soc]]
            raise bad_value(f"options.soc must be one of {', '.join(chips)} but got {soc}.")
        if known[soc.lower()] != AICORE[self.soc]:
            raise bad_value(f"options.soc must run code of {self.soc} but got {soc}.")
        launch = options.as_launch()
        launch.soc, launch.block_dim, launch.workspace_bytes = soc.encode(), block_dim, workspace_bytes
        launch.tiling_key, launch.tiling, launch.tiling_bytes = tiling_key, tiling, len(tiling)
        c_memories = (Memory * len(memories))(*memories)
        c_array = (_CArgument * len(c_arguments))(*c_arguments)
        tensors = c_memories, len(memories), c_array, len(c_arguments)
        if context is None:
            self._sim.lib.ascend_sim_run(self._address, *tensors, C.byref(launch))
        else:
            self._sim.lib.ascend_sim_run_call(self._address, context, *tensors, C.byref(launch))
        return Report.of(self._sim.report())

    def _split_numbers(self, arguments: Sequence[Argument]) -> tuple[Any, list[ArrayArgument | None]]:
        """Return the numbers as ``call_with_values`` reads them, and the other arguments."""
        packed, others = b"", list[ArrayArgument | None]()
        for parameter, argument in zip(before_tiling(self._parameters), arguments, strict=True):
            if isinstance(argument, ArrayArgument) or argument is None:
                if parameter.is_number:
                    got = "None" if argument is None else "an array"
                    raise bad_type(f"{parameter.name} must be a number ({parameter.type}) but got {got}.")
                others.append(argument)
            elif not parameter.is_number or not isinstance(argument, int | float | np.number | np.bool_):
                expected = f"a number ({parameter.type})" if parameter.is_number else "In, Out, … or None"
                raise bad_type(f"{parameter.name} must be {expected} but got {type(argument).__name__}.")
            else:
                packed += packed_number(parameter, argument)
        return C.create_string_buffer(packed, max(len(packed), 1)), others


def _memories_of(arguments: Sequence[Argument]) -> tuple[list[Memory], list[_CArgument]]:
    memories: list[Memory] = []
    c_arguments: list[_CArgument] = []
    placed: list[_PlacedArgument] = []
    for index, argument in enumerate(arguments):
        if argument is None:
            c_arguments.append(_CArgument(-1, 0))
            continue
        if not isinstance(argument, ArrayArgument):
            got = type(argument).__name__
            raise bad_type(f"argument {index} must be In, Out, Part, InOut, Sum or None but got {got}.")
        array = argument.array
        if not isinstance(array, np.ndarray):
            raise bad_type(f"argument {index} must hold an array but got {type(array).__name__}.")
        if array.dtype.hasobject:
            raise bad_type(f"argument {index} must be an array of numbers but got {array.dtype}.")
        if not array.dtype.isnative:
            raise bad_type(f"argument {index} must be in the machine's byte order but got {array.dtype.str}.")
        if not array.flags.c_contiguous:
            raise bad_value(f"argument {index} must be contiguous but got strides {array.strides}.")
        if argument.role and not array.flags.writeable:
            raise bad_value(f"argument {index} must be writeable but got a read-only array.")
        memory = _shared_memory(argument, index, placed)
        if memory is None:
            memory = len(memories)
            name = (argument.name or f"argument {index}").encode()
            memories.append(Memory(name, array.ctypes.data, array.nbytes, argument.role))
        c_arguments.append(_CArgument(memory, 0))
        placed.append((argument, memory))
    return memories, c_arguments


def _shared_memory(argument: ArrayArgument, index: int, placed: list[_PlacedArgument]) -> int | None:
    """Return the memory of an earlier argument with the same array, or None. Only inputs may overlap."""
    array = argument.array
    for other, memory in placed:
        if not (argument.role or other.role) or not np.may_share_memory(array, other.array):
            continue
        is_identical = (array.ctypes.data, array.nbytes) == (other.array.ctypes.data, other.array.nbytes)
        if is_identical and argument.role == other.role and isinstance(argument, InOut | Sum):
            return memory
        raise bad_value(
            f"argument {index} must share no memory with an earlier one but got an array that overlaps one.",
        )
    return None


def _architectures() -> dict[str, int]:
    """Return the value of ``__CCE_AICORE__`` by the name of each SoC and chip, in lower case."""
    profiles = load().profiles()
    return {str(p[key]).lower(): int(p["arch"]) for p in profiles for key in ("name", "soc")}


def _instruction_set(chip: str) -> str:
    """Return the instruction set of an SoC or chip, as :meth:`Library.instructions` names it."""
    known = _architectures() | AICORE
    if chip.lower() not in known:
        raise bad_value(f"soc must be one of {', '.join(sorted(known))} but got {chip}.")
    return str(known[chip.lower()])


def instructions(soc: str = DEFAULT_SOC) -> dict[str, tuple[str, ...]]:
    """Return the element types that each instruction takes on an SoC, or a chip such as ``"Ascend910B4"``.

    A tuple is empty if the SoC lacks the instruction, and ``("any",)`` if the type does not matter. Every
    SoC supports the calls not listed (queues, flags, masks). docs/kernels.md has the table with sources.

    >>> instructions("ascend310p")["Adds"]
    ('int16', 'half', 'int32', 'float')
    >>> instructions("ascend310p")["Gatherb"]
    ()

    Raises:
        ValueError: there is no such SoC or chip.
        Unavailable: the simulator is not installed.
    """
    arch = _instruction_set(soc)
    return {row["instruction"]: tuple(row[arch]) for row in load().instructions()}


def conversions(soc: str = DEFAULT_SOC) -> dict[tuple[str, str], tuple[str, ...]]:
    """Return the round modes that Cast has on an SoC or chip, from one element type to another.

    A tuple is empty if the SoC does not convert these types.

    >>> conversions("ascend310p")["float", "half"]
    ('CAST_NONE', 'CAST_ODD')
    >>> conversions("ascend310p")["bfloat16", "float"]
    ()

    Raises:
        ValueError: there is no such SoC or chip.
        Unavailable: the simulator is not installed.
    """
    arch = _instruction_set(soc)
    return {(row["from"], row["to"]): tuple(row[arch]) for row in load().conversions()}


def compile(
    source: str | os.PathLike[str],
    entry: str,
    *,
    soc: str = DEFAULT_SOC,
    defines: Mapping[str, str] | None = None,
    include: Sequence[str | os.PathLike[str]] = (),
    flags: Sequence[str] = (),
    folder: str | os.PathLike[str] | None = None,
) -> Kernel:
    """:func:`build` the source, then load the kernel ``entry`` from the library.

    >>> kernel = compile("add.cpp", "add")  # doctest: +SKIP
    >>> kernel.run(In(x), In(y), Out(z), block_dim=8)  # doctest: +SKIP

    The entry may be a C++ function, or a template with its arguments such as ``"scale<float>"``, if the
    source's text has its one definition. A parameter may be a number, such as ``float`` or ``uint32_t``.
    """
    settings: dict[str, Any] = {"soc": soc, "defines": defines, "include": include, "folder": folder}
    library = build(source, flags=flags, **settings)
    parameters = entry_parameters(source, _name_in_source(entry, defines or {}))
    if parameters is None:
        return Kernel(library, entry, soc.lower())
    names = [p.name for p in before_tiling(parameters)]
    if any(p.is_number for p in parameters) or not hasattr(C.CDLL(str(library)), entry):
        caller_source = _write_caller(Path(source), entry, folder)
        flags = [*flags, "-iquote", os.path.dirname(os.path.abspath(source))]
        library = build(caller_source, flags=flags, **settings)
        return Kernel(library, entry, soc.lower(), arguments=names, caller=_CALLER, parameters=parameters)
    # An entry without a tiling parameter may take any number of addresses.
    has_tiling = len(names) < len(parameters)
    return Kernel(library, entry, soc.lower(), arguments=names if has_tiling else None)


_CALLER = "ascend_sim_call_with_values"


def _write_caller(source: Path, entry: str, folder: str | os.PathLike[str] | None) -> Path:
    """Write a source that includes the kernel's and has a function that calls its entry."""
    target = results_folder(folder)
    included = kernel_source(Path(os.path.abspath(source)), target)
    text = (
        f'#include "ascend_sim_entry.h"\n#include "{included}"\n'
        f'extern "C" __attribute__((visibility("default"))) void {_CALLER}('
        "uint8_t* const* addresses, const void* values) {\n"
        f"    ascend_sim::call_with_values(&{entry}, addresses, static_cast<const uint8_t*>(values));\n}}\n"
    )
    return text_file(target, source.stem, text)


def _name_in_source(entry: str, defines: Mapping[str, str]) -> str:
    """Return the macro that renames the entry, or the entry if there is none."""
    return next((name for name, value in defines.items() if value == entry), entry)
