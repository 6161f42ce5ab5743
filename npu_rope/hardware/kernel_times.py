"""Durations of kernels on the device: by CANN's profiler, or by events where the profiler has no result.

The profiler is torch_npu's (``torch_npu.profiler.profile``), which controls CANN's. It writes one CSV file
per session, ``ASCEND_PROFILER_OUTPUT/kernel_details.csv``, which it makes from CANN's own
``mindstudio_profiler_output/op_summary_*.csv``. Both have one row per launch, with different column names
(Ascend/pytorch ``torch_npu/profiler/analysis/prof_common_func/_csv_headers.py``; the columns' meaning:
``docs/en/developer_notes/ascend_pytorch_profiler_user_guide.md``).
"""

from __future__ import annotations

import csv
import importlib
import os
import shutil
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

BY_PROFILER = "profiler"
BY_EVENTS = "events"
MEANING = {
    BY_PROFILER: "CANN's profiler: the kernel's own time on the device",
    BY_EVENTS: "events: includes launch gaps",
}
# Columns of kernel_details.csv, and of op_summary_*.csv.
_COLUMNS = (
    ("Name", "Type", "Start Time(us)", "Duration(us)"),
    ("Op Name", "OP Type", "Task Start Time(us)", "Task Duration(us)"),
)
_FILES = ("**/ASCEND_PROFILER_OUTPUT/kernel_details.csv", "**/mindstudio_profiler_output/op_summary_*.csv")
_NO_TYPE = ("", "N/A")
# If one of these is set, torch_npu's profiler collects nothing (its check_msprof_env).
_OTHER_PROFILERS = ("PROFILER_SAMPLECONFIG", "PROFILING_MODE")


class NoKernelTimes(Exception):
    """The profiler's result cannot be used; the text has the reason."""


@dataclass(frozen=True)
class KernelRun:
    """One launch, as the profiler lists it."""

    name: str
    type: str
    start_us: Decimal
    duration_us: float

    def is_of(self, kernel: str) -> bool:
        """Return whether it is a launch of the operator with this name in CANN.

        Low profiling levels have no type. Then the launch's name decides: ``aclnnNpuRope_NpuRope_NpuRope``.
        """
        if self.type not in _NO_TYPE:
            return self.type == kernel
        return self.name == kernel or self.name.rsplit("_", 1)[-1] == kernel


# ---- the profiler's files ----------------------------------------------------------------------------


def read_kernels(path: Path) -> list[KernelRun]:
    """Return the launches in a kernel_details.csv or an op_summary_*.csv, in the order of their start.

    Raises:
        NoKernelTimes: the file has other columns, or times that are not numbers.
    """
    with path.open(encoding="utf-8-sig", newline="") as stream:
        rows = list(csv.reader(stream))
    if not rows:
        raise NoKernelTimes(f"{path.name} is empty")
    header = [cell.strip() for cell in rows[0]]
    columns = next((names for names in _COLUMNS if set(names) <= set(header)), None)
    if columns is None:
        raise NoKernelTimes(f"{path.name} has other columns than documented: {', '.join(header)}")
    indices = [header.index(name) for name in columns]
    runs = [
        _parse_run(path, line_number, [row[i] for i in indices])
        for line_number, row in _complete_rows(rows, max(indices))
    ]
    return sorted(runs, key=lambda run: run.start_us)


def _complete_rows(rows: list[list[str]], last_index: int) -> list[tuple[int, list[str]]]:
    return [(line_number, row) for line_number, row in enumerate(rows[1:], 2) if len(row) > last_index]


def _parse_run(path: Path, line_number: int, cells: list[str]) -> KernelRun:
    name, type_, start, duration = (cell.strip() for cell in cells)  # start times end with a tab
    try:
        start_time, duration_us = Decimal(start), Decimal(duration)
    except InvalidOperation:
        start_time = duration_us = Decimal("NaN")
    if not start_time.is_finite() or not duration_us.is_finite():
        text = f"{path.name}, line {line_number}: times must be numbers but got {start!r} and {duration!r}"
        raise NoKernelTimes(text)
    return KernelRun(name, type_, start_time, float(duration_us))


def find_kernels(folder: Path) -> list[KernelRun]:
    """Return the launches of the one session whose files are below the folder.

    Raises:
        NoKernelTimes: there is no such file, or it cannot be read.
    """
    for pattern in _FILES:
        paths = sorted(folder.glob(pattern))
        if paths:
            return sorted((run for path in paths for run in read_kernels(path)), key=lambda run: run.start_us)
    raise NoKernelTimes("the profiler wrote neither kernel_details.csv nor op_summary_*.csv")


def durations_of(runs: Sequence[KernelRun], kernel: str, launches: Sequence[int]) -> list[list[float]]:
    """Return the durations of each call in microseconds, in the order of the calls. Call i has
    ``launches[i]`` of them.

    Raises:
        NoKernelTimes: the profiler lists another number of launches, which cannot be attributed to the calls.
    """
    durations = [run.duration_us for run in runs if run.is_of(kernel)]
    if len(durations) != sum(launches):
        others = sorted({run.type if run.type not in _NO_TYPE else run.name for run in runs})
        listed = ", ".join(others[:8]) or "nothing"
        raise NoKernelTimes(
            f"the launches of {kernel} must be {sum(launches)} but the profiler lists {len(durations)}"
            f" (it lists {listed})"
        )
    remaining = iter(durations)
    return [[next(remaining) for _ in range(count)] for count in launches]


# ---- a session ---------------------------------------------------------------------------------------


def require_profiler() -> Any:
    """Return torch_npu's profiler module.

    Raises:
        NoKernelTimes: the profiler does not work here.
    """
    set_variables = [name for name in _OTHER_PROFILERS if os.environ.get(name)]
    if set_variables:
        raise NoKernelTimes(f"{set_variables[0]} is set: torch_npu's profiler then collects nothing")
    if shutil.which("msprof") is None:
        raise NoKernelTimes("msprof is not on PATH; it exports the profile: source CANN's set_env.sh")
    try:
        return importlib.import_module("torch_npu.profiler")
    except (ImportError, OSError, RuntimeError) as error:
        raise NoKernelTimes(f"torch_npu.profiler does not load: {error}") from error


def session(profiler: Any, folder: Path) -> Any:
    """Make a profile of CPU and NPU at level 1 (operators with types), exported as text below the folder.

    The kernels' hardware counters are off, because reading them takes time on the device.
    """
    config = profiler._ExperimentalConfig(
        profiler_level=profiler.ProfilerLevel.Level1,
        aic_metrics=profiler.AiCMetrics.AiCoreNone,
        export_type=profiler.ExportType.Text,
        data_simplification=False,
    )
    return profiler.profile(
        activities=[profiler.ProfilerActivity.CPU, profiler.ProfilerActivity.NPU],
        on_trace_ready=profiler.tensorboard_trace_handler(str(folder)),
        experimental_config=config,
    )


def profile(
    profiler: Any,
    folder: Path,
    kernel: str,
    runs: Sequence[Callable[[], object]],
    launches: int,
    synchronize: Callable[[], None],
) -> list[list[float]]:
    """Profile all runs in one session and return each run's durations in microseconds.

    Raises:
        NoKernelTimes: the profiler fails, or its result cannot be used.
    """
    try:
        with session(profiler, folder):
            for run in runs:
                for _ in range(launches):
                    run()
                synchronize()
    except (AttributeError, TypeError, ValueError, RuntimeError, OSError) as error:
        raise NoKernelTimes(f"torch_npu's profiler failed: {type(error).__name__}: {error}") from error
    return durations_of(find_kernels(folder), kernel, [launches] * len(runs))


def summary_of(durations: Sequence[float], method: str) -> dict[str, Any]:
    """Return a call's time in the report's format."""
    return {
        "us": statistics.median(durations),
        "min_us": min(durations),
        "max_us": max(durations),
        "launches": len(durations),
        "method": method,
    }
