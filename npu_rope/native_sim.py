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
    """Options of a kernel's run.

    Attributes:
        soc: ``"ascend910b"`` (its B1), ``"ascend310p"``, … or a chip's name such as ``"Ascend910B4"``.
            None: a kernel runs on the SoC it was compiled for, an operator on Ascend910B.
        lenient: rules that only warn, such as ``("SIM-COUNT-01",)``; ``("all",)`` for all rules.
        trace_path: path of the timeline, a Chrome trace in JSON.
        auto_sync: insert the synchronisation that CANN's compiler inserts by default (V to V, scalar).
        saturate: half overflow clamps instead of becoming infinite.
        one_order: run the cores in ascending order only.
        trace_cores: number of cores in the written timeline, from the first; 0: all.
        most_cores: maximum number of cores that the tiling may use; 0: all cores of the chip.
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
    """libnpu_rope_sim, whose operators have one more argument: :class:`CSimOptions`."""

    def __init__(self, path: Path) -> None:
        # RTLD_GLOBAL, because libraries of users' kernels link with it.
        super().__init__(path, "npu_rope_sim_", C.RTLD_GLOBAL, [C.POINTER(CSimOptions)])
        for name in ("npu_rope_sim_socs", "npu_sim_report", "npu_sim_rules", "npu_sim_profiles"):
            self.text_entry(name)
        for name in ("npu_sim_instructions", "npu_sim_conversions"):
            self.text_entry(name)
        self.lib.npu_sim_launches.restype = C.c_uint64

    @property
    def kernel_folder(self) -> Path:
        """The folder of the operators' kernels, one library for each operator and SoC."""
        return self.path.parent / "npu_rope_sim_kernels"

    def socs(self) -> list[str]:
        """The SoCs that the operators' kernels were compiled for."""
        return str(self.lib.npu_rope_sim_socs().decode()).split(",")

    def report(self) -> dict[str, Any]:
        """Results of this thread's last launch: errors, warnings, summary of the timeline."""
        report: dict[str, Any] = json.loads(self.lib.npu_sim_report().decode() or "{}")
        return report

    def launches(self) -> int:
        """Number of kernels that this thread has launched."""
        return int(self.lib.npu_sim_launches())

    def rules(self) -> list[dict[str, str]]:
        """Every rule: ``rule``, ``severity``, ``text``, ``basis``."""
        rules: list[dict[str, str]] = json.loads(self.lib.npu_sim_rules().decode())
        return rules

    def profiles(self) -> list[dict[str, Any]]:
        """Every simulated chip's sizes and rates."""
        profiles: list[dict[str, Any]] = json.loads(self.lib.npu_sim_profiles().decode())
        return profiles

    def instructions(self) -> list[dict[str, Any]]:
        """Every instruction: ``instruction``, ``source``, and its element types by instruction set
        (``"220"``: Ascend910B and 910_93, ``"200"``: Ascend310P, ``"310"``: Ascend950)."""
        rows: list[dict[str, Any]] = json.loads(self.lib.npu_sim_instructions().decode())
        return rows

    def conversions(self) -> list[dict[str, Any]]:
        """Every conversion of Cast: ``from``, ``to``, and its round modes by instruction set."""
        rows: list[dict[str, Any]] = json.loads(self.lib.npu_sim_conversions().decode())
        return rows


_loaded: NativeSim | BackendUnavailable | None = None


def load() -> NativeSim:
    """The library, loaded once.

    Raises:
        BackendUnavailable: the library is missing or does not load; the message has the cause.
    """
    global _loaded
    if _loaded is None:
        _loaded = load_or_say_why("sim", "npu_rope_sim", find_library("npu_rope_sim"), NativeSim)
    if isinstance(_loaded, BackendUnavailable):
        raise _loaded
    return _loaded
