"""libnpu_rope_sim through ctypes: the AscendC kernels on the simulated core, loaded on first use."""

from __future__ import annotations

import ctypes as C
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from npu_rope.errors import BackendUnavailable
from npu_rope.native import Library, find_library, load_or_say_why

DEFAULT_SOC = "ascend910b"


class CSimOptions(C.Structure):
    """``npu_rope_sim_options``."""

    _fields_ = [
        ("soc", C.c_char_p),
        ("lenient", C.c_char_p),
        ("trace_path", C.c_char_p),
        ("auto_sync", C.c_int32),
        ("saturate", C.c_int32),
        ("one_order", C.c_int32),
        ("trace_cores", C.c_int32),
        ("most_cores", C.c_int32),
    ]


@dataclass(frozen=True)
class SimOptions:
    """How a kernel is run.

    Attributes:
        soc: ``"ascend910b"`` (its B1), ``"ascend310p"``, … or a chip's name such as ``"Ascend910B4"``.
            None: a kernel runs on the SoC it was compiled for, an operator on Ascend910B.
        lenient: rules that only warn, such as ``("SIM-COUNT-01",)``; ``("all",)``.
        trace_path: where to write the timeline as Chrome trace JSON.
        auto_sync: insert the order that CANN's compiler inserts by default (V to V, scalar).
        saturate: half overflow clamps instead of becoming infinite.
        one_order: run the cores in ascending order only.
        trace_cores: write the timeline of the first so many cores only; 0: of all.
        most_cores: the tiling may use so many cores; 0: all that the chip has.
    """

    soc: str | None = None
    lenient: tuple[str, ...] = ()
    trace_path: str | None = None
    auto_sync: bool = False
    saturate: bool = False
    one_order: bool = False
    trace_cores: int = 0
    most_cores: int = 0

    def __post_init__(self) -> None:
        if isinstance(self.lenient, str):
            object.__setattr__(self, "lenient", (self.lenient,))

    def as_c(self) -> CSimOptions:
        """``npu_rope_sim_options``."""
        return CSimOptions(
            (DEFAULT_SOC if self.soc is None else self.soc).encode(),
            ",".join(self.lenient).encode() or None,
            None if self.trace_path is None else str(self.trace_path).encode(),
            self.auto_sync,
            self.saturate,
            self.one_order,
            self.trace_cores,
            self.most_cores,
        )


class NativeSim(Library):
    """libnpu_rope_sim: the operators take :class:`CSimOptions` as well."""

    def __init__(self, path: Path) -> None:
        # RTLD_GLOBAL: kernels of one's own link with it.
        super().__init__(path, "npu_rope_sim_", C.RTLD_GLOBAL, [C.POINTER(CSimOptions)])
        for name in ("npu_rope_sim_socs", "npu_sim_report", "npu_sim_rules", "npu_sim_profiles"):
            self.text_entry(name)
        for name in ("npu_sim_instructions", "npu_sim_conversions"):
            self.text_entry(name)
        self.lib.npu_sim_launches.restype = C.c_uint64

    @property
    def kernel_folder(self) -> Path:
        """Where the operators' kernels lie, each a library of its own."""
        return self.path.parent / "npu_rope_sim_kernels"

    def socs(self) -> list[str]:
        """The SoCs that the operators' kernels were compiled for."""
        return str(self.lib.npu_rope_sim_socs().decode()).split(",")

    def report(self) -> dict[str, Any]:
        """What the last launch of this thread found: errors, warnings, summary of the timeline."""
        report: dict[str, Any] = json.loads(self.lib.npu_sim_report().decode() or "{}")
        return report

    def launches(self) -> int:
        """How many kernels this thread has launched so far."""
        return int(self.lib.npu_sim_launches())

    def rules(self) -> list[dict[str, str]]:
        """Every rule: ``rule``, ``text``, ``basis``."""
        rules: list[dict[str, str]] = json.loads(self.lib.npu_sim_rules().decode())
        return rules

    def profiles(self) -> list[dict[str, Any]]:
        """Every simulated chip's sizes and rates."""
        profiles: list[dict[str, Any]] = json.loads(self.lib.npu_sim_profiles().decode())
        return profiles

    def instructions(self) -> list[dict[str, Any]]:
        """Every instruction: ``instruction``, ``source``, and by instruction set (``"220"``: Ascend910B and
        910_93, ``"200"``: Ascend310P, ``"310"``: Ascend950) the element types it takes there."""
        rows: list[dict[str, Any]] = json.loads(self.lib.npu_sim_instructions().decode())
        return rows

    def conversions(self) -> list[dict[str, Any]]:
        """Every conversion that Cast has: ``from``, ``to``, and by instruction set the round modes."""
        rows: list[dict[str, Any]] = json.loads(self.lib.npu_sim_conversions().decode())
        return rows


_loaded: NativeSim | BackendUnavailable | None = None


def load() -> NativeSim:
    """The library, loaded once.

    Raises:
        BackendUnavailable: it is not there or does not load; the cause is in the message.
    """
    global _loaded
    if _loaded is None:
        _loaded = load_or_say_why("sim", "npu_rope_sim", find_library("npu_rope_sim"), NativeSim)
    if isinstance(_loaded, BackendUnavailable):
        raise _loaded
    return _loaded
