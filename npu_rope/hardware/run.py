"""Run the steps of a report in order. Each step ends with a write; a failed step does not stop the next."""

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
DOCTOR_SECONDS = 300
FACTS_SECONDS = 300
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
        text: selects the calls whose id contains it.
        seconds: time limit of a case or a call.
    """

    quick: bool = False
    operators: Sequence[str] = calls.OPERATORS
    text: str = ""
    skip: Sequence[str] = ()
    seconds: float = 300

    def calls(self, *, bfloat16: bool = True) -> list[TimedCall]:
        """Return the selected calls."""
        return [
            call
            for operator in self.operators
            for call in calls.timed_calls(operator, bfloat16=bfloat16, quick=self.quick)
            if self.text in call.id
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
            "filter": self.text,
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
    """The making of one report.

    Attributes:
        write: writes the document to files; called after each step.
    """

    plan: Plan
    progress: Progress
    write: Callable[[Document], None]
    document: Document = field(init=False)
    begun: float = field(init=False)
    options: dict[str, Any] = field(init=False)

    def __post_init__(self) -> None:
        self.document = document.new(self.plan.as_json())
        self.begun = time.monotonic()
        self.options = {"quick": self.plan.quick}
        self._profile: str | None = None
        self._profile_note = "not chosen"
        self._lock = threading.Lock()

    def all(self) -> Document:
        """Run every step that is not skipped. Results are written even if a later step is interrupted."""
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
                    document.not_done(self.document, name, "skipped, as requested")
                    continue
                with self._guarded(name):
                    step()
            self.document["complete"] = True
        except KeyboardInterrupt:
            document.not_done(self.document, "the rest", "interrupted")
            raise
        finally:
            self._save()
        return self.document

    @contextmanager
    def _guarded(self, name: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            document.not_done(self.document, name, f"{type(error).__name__}: {error}", failed=True)
        finally:
            self.progress.end()
            self._save()

    def _save(self) -> None:
        d = self.document
        for call in document.all_calls(d):
            document.store_ratio(call)
        d["timing_model"] = document.timing_model(d, self._profile, self._profile_note)
        d["verdict"] = document.verdict(d)
        d["seconds"] = round(time.monotonic() - self.begun, 1)
        self.write(d)

    # ---- the steps ------------------------------------------------------------------------------------

    def _machine(self) -> None:
        self.progress.begin("machine", 1)
        d = self.document
        d["simulated"] = machine.is_simulated()
        d["label"] = document.SIMULATED if d["simulated"] else ""
        found: dict[str, Any] = {}
        self._work("facts", ["machine"], FACTS_SECONDS, lambda _, result: found.update(result))
        if why := found.get("lost") or found.get("failed"):
            d["machine"] = machine.software()
            document.not_done(d, "machine", f"the device does not answer: {why}", failed=True)
        else:
            d["machine"] = found
        chip = str(d["machine"].get("chip", machine.UNKNOWN))
        self.options["bfloat16"] = chips.has_bfloat16(chip)
        planned = self.plan.calls(bfloat16=self.options["bfloat16"])
        d["operators"] = document.operator_records(planned, simulated=d["simulated"])
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
        done = subprocess.run(DOCTOR, capture_output=True, text=True, timeout=DOCTOR_SECONDS, check=False)
        if done.returncode:
            raise RuntimeError(f"doctor ended with status {done.returncode}: {done.stderr.strip()[-500:]}")
        self.document["doctor"] = json.loads(done.stdout)

    def _validate(self) -> None:
        cases = self.plan.cases()
        self.progress.begin("validate", len(cases))
        results: dict[str, dict[str, Any]] = {}
        try:
            self._work(
                "validate", [f"{c.suite}/{c.name}" for c in cases], self.plan.seconds, results.__setitem__
            )
        finally:
            summary = document.validate_summary(cases, results)
            self.document["validate"] = {"simulated": self.document["simulated"], **summary}

    def _check(self) -> None:
        records = self._records()
        self.progress.begin("calls", len(records))
        arguments = (self.plan.seconds, lambda id_, result: document.store_check(records[id_], result))
        self._work("check", list(records), *arguments)

    def _time(self) -> None:
        """Time the calls that raised nothing, even if their results are wrong."""
        d = self.document
        by_operator = {
            operator["operator"]: ids
            for operator in d["operators"]
            if (ids := [call["id"] for call in operator["calls"] if not call["message"]])
        }
        self.progress.begin("times", len(by_operator))
        options = {**self.options, "time": by_operator}
        seconds = self.plan.seconds * 4  # an operator's calls, and the profiler's export
        self._work("time", list(by_operator), seconds, self._put_times, options)
        if d["simulated"]:
            document.not_done(d, "times on the device", document.NOT_MEASURED)

    def _put_times(self, operator: str, result: dict[str, Any]) -> None:
        if why := result.get("lost") or result.get("failed"):
            document.not_done(self.document, f"times of {operator}", why, failed=True)
            return
        if why := result["why_not_profiler"]:
            text = f"timed by events instead, which includes launch gaps: {why}"
            document.not_done(self.document, f"profile of {operator}", text)
        records = self._records()
        for id_, time_ in result["times"].items():
            records[id_] |= {"measured": time_, "measured_note": ""}

    def _predict(self) -> None:
        records = self._records()
        self.progress.begin("predictions", len(records))
        if self._profile is None:
            document.not_done(self.document, "predictions", self._profile_note)
            return
        profile = self._profile
        options = {**self.options, "profile": profile}

        def put(id_: str, result: dict[str, Any]) -> None:
            document.store_prediction(records[id_], result, profile)
            if "cycles" not in result:
                why = result.get("lost") or result.get("failed") or "no cycles"
                document.not_done(self.document, f"prediction of {id_}", why, failed=True)

        processes = max(1, min(MAX_SIMULATIONS, (cpu_count() or 1) // 2))
        parts = [list(records)[k::processes] for k in range(processes)]
        with ThreadPoolExecutor(processes) as pool:
            arguments = (self.plan.seconds, put, options)
            done = [pool.submit(self._work, "predict", part, *arguments) for part in parts if part]
        for part in done:
            part.result()

    def _records(self) -> dict[str, dict[str, Any]]:
        return {call["id"]: call for call in document.all_calls(self.document)}

    def _work(
        self,
        kind: str,
        units: Sequence[str],
        seconds: float,
        put: Callable[[str, dict[str, Any]], None],
        options: dict[str, Any] | None = None,
    ) -> None:
        def take(unit: str, result: dict[str, Any]) -> None:
            with self._lock:
                put(unit, result)
                self.progress.advance(unit)

        supervisor.run(Work(kind, units, self.options if options is None else options, seconds, take))
