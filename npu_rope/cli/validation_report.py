"""A run of ``npu-rope validate``: its options and its results."""

from __future__ import annotations

import platform
from dataclasses import dataclass, field

from rich.console import Console

from npu_rope import __version__
from npu_rope.bench.machine import isa
from npu_rope.testing.ggml import GgmlInfo
from npu_rope.testing.outcomes import CaseResult


@dataclass
class ValidationReport:
    """A run and its results so far. ``ggml_lib`` is the folder of ggml that the user named, if any."""

    backends: list[str]
    ggml: GgmlInfo | None
    ggml_missing: str
    ggml_lib: str = ""
    terminal: Console | None = None  # the console of the printed lines, if it is a terminal
    selection: list[str] = field(default_factory=list)  # the options that chose the cases
    torch_npu_missing: str = ""  # why torch_npu's own functions are not compared in cases that call them
    not_rerun: int = 0  # failures that were not run again
    not_reached: int = 0  # cases that an interruption left out
    left_out: int = 0  # long cases that only --all runs
    results: list[CaseResult] = field(default_factory=list)

    @property
    def device(self) -> str:
        """The requested device of ggml; empty if there is none."""
        return self.ggml.device if self.ggml else ""

    def environment(self) -> dict[str, str]:
        """Return the versions that the figures depend on."""
        facts = {"npu_rope": __version__, "python": platform.python_version(), "machine": platform.machine()}
        facts["isa"] = isa()
        facts["ggml"] = (
            f"{self.ggml.version} ({self.ggml.commit}, {self.ggml.cpu_library})"
            if self.ggml
            else "not compared"
        )
        if self.ggml and self.device:
            facts["ggml device"] = f"{self.device} ({self.ggml.description})"
        return facts
