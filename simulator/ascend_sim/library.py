"""libascend_sim through ctypes: the simulated cores, loaded on first use."""

from __future__ import annotations

import ctypes as C
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from ascend_sim import elf, folders
from ascend_sim.errors import Unavailable, bad_value

__all__ = ["DEFAULT_SOC", "Library", "Options", "figures_of", "load"]

ABI_VERSION = 2
# The ends of the names of a profile's figures. A caller can replace figures, but no other value of a profile.
_FIGURE_SUFFIXES = ("_cycles", "_per_cycle", "_share", "overhead_bytes", "line_bytes")
DEFAULT_SOC = "ascend910b"


@dataclass(frozen=True)
class Options:
    """Options of a kernel's run.

    Attributes:
        soc: ``"ascend910b"`` (Ascend910B1), ``"ascend310p"``, … or a chip such as ``"Ascend910B4"``.
            None: a kernel runs on the SoC it was compiled for, an operator on Ascend910B1.
        lenient: rules that only warn, such as ``("SIM-COUNT-01",)``; ``("all",)`` for all rules.
        trace_path: path of the timeline, a Chrome trace in JSON.
        auto_sync: insert the synchronisation that CANN's compiler inserts by default (V to V, and all
            pipes with S).
        saturate: half overflow clamps instead of becoming infinite.
        one_order: run the cores in ascending order only.
        trace_cores: number of cores in the written timeline, from the first; 0: all.
        figures: replaces figures of the chip's profile for the timeline, such as
            ``{"read_latency_cycles": 241}``.
        most_cores: maximum number of cores that an operator's tiling may use; 0: all cores of the chip.
        deterministic: the tilings of operators see CANN's deterministic mode (ACL_OPT_DETERMINISTIC).
    """

    soc: str | None = None
    lenient: tuple[str, ...] = ()
    trace_path: str | None = None
    auto_sync: bool = False
    saturate: bool = False
    one_order: bool = False
    trace_cores: int = 0
    figures: Mapping[str, float] = field(default_factory=dict)
    most_cores: int = 0
    deterministic: bool = False

    def __post_init__(self) -> None:
        if isinstance(self.lenient, str):
            object.__setattr__(self, "lenient", (self.lenient,))

    def as_launch(self) -> Launch:
        """Return a launch with these options, except ``soc``, ``most_cores`` and ``deterministic``."""
        return Launch(
            lenient=",".join(self.lenient).encode() or None,
            auto_sync=self.auto_sync,
            saturate=self.saturate,
            one_order=self.one_order,
            trace_path=None if self.trace_path is None else str(self.trace_path).encode(),
            trace_cores=self.trace_cores,
            figures=",".join(f"{name}={value:.17g}" for name, value in self.figures.items()).encode() or None,
        )


def figures_of(texts: Sequence[str]) -> dict[str, float]:
    """Return figures from texts such as ``read_latency_cycles=241``.

    Raises:
        ValueError: a text has no number.
    """
    figures = {}
    for text in texts:
        name, _, value = text.partition("=")
        try:
            figures[name] = float(value)
        except ValueError:
            raise bad_value(f"figure must be NAME=NUMBER but got {text}.") from None
    return figures


class Memory(C.Structure):
    """The C struct ``ascend_sim_memory``."""

    _fields_ = [("name", C.c_char_p), ("data", C.c_void_p), ("bytes", C.c_uint64), ("role", C.c_int32)]


class Launch(C.Structure):
    """The C struct ``ascend_sim_launch``."""

    _fields_ = [
        ("soc", C.c_char_p),
        ("block_dim", C.c_uint32),
        ("tiling_key", C.c_uint64),
        ("tiling", C.c_char_p),
        ("tiling_bytes", C.c_uint64),
        ("workspace_bytes", C.c_uint64),
        ("lenient", C.c_char_p),
        ("auto_sync", C.c_int32),
        ("saturate", C.c_int32),
        ("one_order", C.c_int32),
        ("trace_path", C.c_char_p),
        ("trace_cores", C.c_int32),
        ("figures", C.c_char_p),
    ]


class Library:
    """A loaded libascend_sim."""

    def __init__(self, path: Path) -> None:
        # RTLD_GLOBAL, because libraries of kernels use its functions.
        self.path, self.lib = path, C.CDLL(str(path), C.RTLD_GLOBAL)
        found = self.lib.ascend_sim_abi_version()
        if found != ABI_VERSION:
            raise OSError(f"{path} has ABI version {found}, this package needs {ABI_VERSION}")
        for name in ("report", "message", "rules", "profiles", "instructions", "conversions"):
            getattr(self.lib, f"ascend_sim_{name}").restype = C.c_char_p
        self.lib.ascend_sim_launches.restype = C.c_uint64

    def _rows(self, name: str) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = json.loads(getattr(self.lib, f"ascend_sim_{name}")())
        return rows

    def report(self) -> dict[str, Any]:
        """Return errors, warnings and summary of this thread's last launch, or the message of a bad call."""
        report: dict[str, Any] = json.loads(self.lib.ascend_sim_report() or "{}")
        return report

    def launches(self) -> int:
        """Return the number of kernels that this thread has launched."""
        return int(self.lib.ascend_sim_launches())

    def check_options(self, options: Options) -> None:
        """Check ``lenient``, ``figures``, ``most_cores`` and ``trace_path``.

        Raises:
            ValueError: an unknown rule or figure, a negative number of cores, a trace that cannot be written.
        """
        known = {"all", *(rule["rule"] for rule in self.rules())} if options.lenient else ()
        if unknown := [rule for rule in options.lenient if rule not in known]:
            raise bad_value(f"options.lenient must name rules or be all but got {unknown[0]}.")
        for name, value in options.figures.items():
            figures = [figure for figure in self.profiles()[0] if figure.endswith(_FIGURE_SUFFIXES)]
            if name not in figures:
                raise bad_value(f"options.figures must name {', '.join(figures)} but got {name}.")
            minimum = 1 if name.endswith(("_per_cycle", "line_bytes")) else 0
            if not (math.isfinite(value) and value >= minimum):
                raise bad_value(f"options.figures must have {name} of at least {minimum} but got {value}.")
        if options.most_cores < 0:
            got = options.most_cores
            raise bad_value(f"options.most_cores must be 0 (all) or a number of cores but got {got}.")
        path = options.trace_path
        if path is not None and not self.lib.ascend_sim_may_write(str(path).encode()):
            raise bad_value(f"options.trace_path must be a file one may write but got {path}.")

    def rules(self) -> list[dict[str, Any]]:
        """Return every rule: ``rule``, ``severity``, ``text``, ``basis``."""
        return self._rows("rules")

    @cached_property
    def _profiles(self) -> list[dict[str, Any]]:
        return self._rows("profiles")

    def profiles(self) -> list[dict[str, Any]]:
        """Return every simulated chip's sizes and rates."""
        return self._profiles

    def instructions(self) -> list[dict[str, Any]]:
        """Return every instruction: ``instruction``, ``source``, and its element types by instruction set
        (``"220"``: Ascend910B and 910_93, ``"200"``: Ascend310P, ``"310"``: Ascend950)."""
        return self._rows("instructions")

    def conversions(self) -> list[dict[str, Any]]:
        """Return every conversion of Cast: ``from``, ``to``, and its round modes by instruction set."""
        return self._rows("conversions")


@cache
def load() -> Library:
    """Return the library. Once it is loaded, further calls return the same object.

    Raises:
        Unavailable: the library is missing or does not load; the message has the cause.
    """
    path = folders.library("ascend_sim")
    try:
        return Library(path)
    except (OSError, AttributeError) as cause:  # AttributeError: it lacks a function
        fault = elf.load_fault(path, cause)
        remedy = "Install ascend-sim again."
        raise Unavailable("libascend_sim.so", f"it does not load: {fault}", remedy) from None
