"""Run the steps of a hardware report in order, and write the report after each step.

After a failed step the next one still runs.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from os import cpu_count
from typing import Any, Protocol

from npu_rope import chips, simulated_package
from npu_rope.errors import BackendUnavailable
from npu_rope.hardware import calls, document, machine, supervisor
from npu_rope.hardware.calls import TimedCall
from npu_rope.hardware.document import Document
from npu_rope.hardware.supervisor import Work
from npu_rope.testing.suites import all_cases

DOCTOR = (sys.executable, "-m", "npu_rope.cli", "doctor", "--json")
DOCTOR_SECONDS = 300  # time limit
FACTS_SECONDS = 300  # time limit
MAX_SIMULATIONS = 4  # at the same time
STEPS = ("doctor", "validate", "calls", "times", "predictions")


class Progress(Protocol):
    """Receives the progress of the steps."""

    def begin(self, step: str, total: int) -> None:
        """A step with ``total`` units begins."""

    def advance(self, unit: str) -> None:
        """A unit is done."""

    def end(self) -> None:
        """The step is done."""


@dataclass
class Plan:
    """The selected work of a report.

    Attributes:
        operators: the selected operators.
        name_part: selects the calls with this text in their id.
        seconds: time limit of a case or a call.
    """

    quick: bool = False
    operators: Sequence[str] = calls.OPERATORS
    name_part: str = ""
    skip: Sequence[str] = ()
    seconds: float = 300

    def calls(self, *, bfloat16: bool = True) -> list[TimedCall]:
        """Return the selected calls."""
        return [
            call
            for operator in self.operators
            for call in calls.timed_calls(operator, bfloat16=bfloat16, quick=self.quick)
            if self.name_part in call.id
        ]

    def cases(self) -> list[Any]:
        """Return validate's cases: all, or with --quick the smallest of each suite, operation and dtype."""
        cases = all_cases()
        if not self.quick:
            return cases
        smallest: dict[tuple[str, str, str], Any] = {}
        for case in cases:
            key = (case.suite, case.op, case.dtype)
            if key not in smallest or _size(case) < _size(smallest[key]):
                smallest[key] = case
        return list(smallest.values())

    def as_json(self) -> dict[str, Any]:
        """Return the plan for the report."""
        return {
            "quick": self.quick,
            "operators": list(self.operators),
            "filter": self.name_part,
            "skip": list(self.skip),
            "seconds": self.seconds,
        }


def _size(case: Any) -> int:
    size = 1
    for length in case.shape:
        size *= length
    return size


@dataclass
class HardwareRun:
    """Makes one report.

    Attributes:
        write: writes the document to files after each step.
        options: the workers' options.
    """

    plan: Plan
    progress: Progress
    write: Callable[[Document], None]
    document: Document = field(init=False)
    begun: float = field(init=False)
    options: dict[str, Any] = field(init=False)

    def __post_init__(self) -> None:
        self.document = document.new_document(self.plan.as_json())
        self.begun = time.monotonic()
        self.options = {"quick": self.plan.quick}
        self._profile: str | None = None
        self._profile_note = "not chosen"
        self._lock = threading.Lock()

    def run_steps(self) -> Document:
        """Run every step that is not skipped. An interrupt does not lose the results of earlier steps."""
        steps: dict[str, Callable[[], None]] = {
            "doctor": self._doctor,
            "validate": self._validate,
            "calls": self._check,
            "times": self._time,
            "predictions": self._predict,
        }
        try:
            with self._guarded("machine"):
                self._machine()
            for name, step in steps.items():
                if name in self.plan.skip:
                    document.add_not_done(self.document, name, "skipped, as requested")
                    continue
                with self._guarded(name):
                    step()
            self.document["complete"] = True
        except KeyboardInterrupt:
            document.add_not_done(self.document, "the rest", "interrupted")
            raise
        finally:
            self._save()
        return self.document

    @contextmanager
    def _guarded(self, name: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            document.add_not_done(self.document, name, f"{type(error).__name__}: {error}", failed=True)
        finally:
            self.progress.end()
            self._save()

    def _save(self) -> None:
        report = self.document
        for call in document.all_calls(report):
            document.store_ratio(call)
        report["timing_model"] = document.timing_model(report, self._profile, self._profile_note)
        report["verdict"] = document.verdict_summary(report)
        report["seconds"] = round(time.monotonic() - self.begun, 1)
        self.write(report)

    # ---- the steps ------------------------------------------------------------------------------------

    def _machine(self) -> None:
        self.progress.begin("machine", 1)
        report = self.document
        report["simulated"] = machine.is_simulated()
        report["label"] = document.SIMULATED if report["simulated"] else ""
        found: dict[str, Any] = {}
        self._run_units("facts", ["machine"], FACTS_SECONDS, lambda _, result: found.update(result))
        if reason := found.get("lost") or found.get("failed"):
            report["machine"] = machine.software()
            document.add_not_done(report, "machine", f"the device does not answer: {reason}", failed=True)
        else:
            report["machine"] = found
        chip = str(report["machine"].get("chip", machine.UNKNOWN))
        self.options["bfloat16"] = chips.has_bfloat16(chip)
        planned = self.plan.calls(bfloat16=self.options["bfloat16"])
        report["operators"] = document.operator_records(planned, simulated=report["simulated"])
        self._choose_profile(chip)

    def _choose_profile(self, chip: str) -> None:
        try:
            profiles = simulated_package.load().simulator.profiles()
        except BackendUnavailable as error:
            self._profile_note = str(error)
            return
        self._profile, self._profile_note = machine.nearest_profile(chip, profiles)

    def _doctor(self) -> None:
        self.progress.begin("doctor", 1)
        process = subprocess.run(DOCTOR, capture_output=True, text=True, timeout=DOCTOR_SECONDS, check=False)
        if process.returncode:
            raise RuntimeError(
                f"doctor ended with status {process.returncode}: {process.stderr.strip()[-500:]}"
            )
        self.document["doctor"] = json.loads(process.stdout)

    def _validate(self) -> None:
        cases = self.plan.cases()
        self.progress.begin("validate", len(cases))
        results: dict[str, dict[str, Any]] = {}
        try:
            self._run_units(
                "validate",
                [f"{case.suite}/{case.name}" for case in cases],
                self.plan.seconds,
                results.__setitem__,
            )
        finally:
            summary = document.validate_summary(cases, results)
            self.document["validate"] = {"simulated": self.document["simulated"], **summary}

    def _check(self) -> None:
        records = self._records()
        self.progress.begin("calls", len(records))
        arguments = (self.plan.seconds, lambda id_, result: document.store_check(records[id_], result))
        self._run_units("check", list(records), *arguments)

    def _time(self) -> None:
        """Time the calls that raised no error, even if their results are wrong."""
        report = self.document
        by_operator = {
            operator["operator"]: ids
            for operator in report["operators"]
            if (ids := [call["id"] for call in operator["calls"] if not call["message"]])
        }
        self.progress.begin("times", len(by_operator))
        options = {**self.options, "time": by_operator}
        seconds = self.plan.seconds * 4  # for all calls of an operator and the profiler's export
        self._run_units("time", list(by_operator), seconds, self._store_times, options)
        if report["simulated"]:
            document.add_not_done(report, "times on the device", document.NOT_MEASURED)

    def _store_times(self, operator: str, result: dict[str, Any]) -> None:
        if reason := result.get("lost") or result.get("failed"):
            document.add_not_done(self.document, f"times of {operator}", reason, failed=True)
            return
        if reason := result["why_not_profiler"]:
            text = f"timed by events instead, which includes launch gaps: {reason}"
            document.add_not_done(self.document, f"profile of {operator}", text)
        records = self._records()
        for id_, time_ in result["times"].items():
            records[id_] |= {"measured": time_, "measured_note": ""}

    def _predict(self) -> None:
        records = self._records()
        self.progress.begin("predictions", len(records))
        if self._profile is None:
            document.add_not_done(self.document, "predictions", self._profile_note)
            return
        profile = self._profile
        options = {**self.options, "profile": profile}

        def store(id_: str, result: dict[str, Any]) -> None:
            document.store_prediction(records[id_], result, profile)
            if "cycles" not in result:
                reason = result.get("lost") or result.get("failed") or "no cycles"
                document.add_not_done(self.document, f"prediction of {id_}", reason, failed=True)

        processes = max(1, min(MAX_SIMULATIONS, (cpu_count() or 1) // 2))
        groups = [list(records)[i::processes] for i in range(processes)]
        with ThreadPoolExecutor(processes) as pool:
            arguments = (self.plan.seconds, store, options)
            simulations = [
                pool.submit(self._run_units, "predict", group, *arguments) for group in groups if group
            ]
        for simulation in simulations:
            simulation.result()

    def _records(self) -> dict[str, dict[str, Any]]:
        return {call["id"]: call for call in document.all_calls(self.document)}

    def _run_units(
        self,
        kind: str,
        units: Sequence[str],
        seconds: float,
        store: Callable[[str, dict[str, Any]], None],
        options: dict[str, Any] | None = None,
    ) -> None:
        def store_and_advance(unit: str, result: dict[str, Any]) -> None:
            with self._lock:
                store(unit, result)
                self.progress.advance(unit)

        supervisor.run(
            Work(kind, units, self.options if options is None else options, seconds, store_and_advance)
        )
