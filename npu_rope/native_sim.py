"""libnpu_rope_sim through ctypes: the operators on the simulated cores of ascend_sim, loaded on first use."""

from __future__ import annotations

import ctypes as C
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ascend_sim
from ascend_sim import library
from ascend_sim.library import DEFAULT_SOC

from npu_rope.errors import BackendUnavailable
from npu_rope.native import Library, find_library, load_or_say_why


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
class SimOptions(ascend_sim.Options):
    """:class:`ascend_sim.Options`, as the C interface takes them."""

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
        self.simulator = library.load()
        super().__init__(path, "npu_rope_sim_", more=[C.POINTER(CSimOptions)])
        self.text_entry("npu_rope_sim_socs")

    @property
    def kernel_folder(self) -> Path:
        """The folder of the operators' kernels, one library for each operator and SoC."""
        return self.path.parent / "simcann_opp" / "sim_kernels"

    def socs(self) -> list[str]:
        """The SoCs that the operators' kernels were compiled for."""
        return str(self.lib.npu_rope_sim_socs().decode()).split(",")

    def report(self) -> dict[str, Any]:
        """Results of this thread's last launch: errors, warnings, summary of the timeline."""
        return self.simulator.report()

    def launches(self) -> int:
        """Number of kernels that this thread has launched."""
        return self.simulator.launches()

    def profiles(self) -> list[dict[str, Any]]:
        """Every simulated chip's sizes and rates."""
        return self.simulator.profiles()


_loaded: NativeSim | BackendUnavailable | None = None


def load() -> NativeSim:
    """The library, loaded once.

    Raises:
        BackendUnavailable: the library is missing or does not load; the message has the cause.
    """
    global _loaded
    if _loaded is None:
        try:
            _loaded = load_or_say_why("sim", "npu_rope_sim", find_library("npu_rope_sim"), NativeSim)
        except ascend_sim.Unavailable as error:
            _loaded = BackendUnavailable("sim", f"{error.piece}: {error.missing}", error.remedy)
    if isinstance(_loaded, BackendUnavailable):
        raise _loaded
    return _loaded
