"""A process of the hardware report that runs a list of units and reports the result of each.

``supervisor.py`` starts it, so that a crash, or a call that never ends, loses only one result. A unit is a
case of ``npu-rope validate``, a call, an operator or the machine's facts.

The worker reads one JSON object from standard input, ``{"kind", "units", "options"}``. It writes one JSON
object per line: for each unit ``{"begin": unit}`` and ``{"unit", "result"}``, then ``{"end": true}``. It
writes ``{"stop": reason}`` if the device failed and a new process must continue. All other output goes to
standard error.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TextIO

import ascend_sim
from ascend_sim import library

from npu_rope.cli.fault_report import explain
from npu_rope.hardware import calls, kernel_times, machine
from npu_rope.hardware.calls import PreparedCall, TimedCall
from npu_rope.hardware.device import NpuDevice
from npu_rope.hardware.kernel_times import NoKernelTimes
from npu_rope.testing.outcomes import FAIL
from npu_rope.testing.suites import all_cases, judge

Options = Mapping[str, Any]
Device: Callable[[], Any] = NpuDevice
WARM_UP_LAUNCHES, LAUNCHES = 5, 20  # of each call that is timed
EVENT_SAMPLES = 3  # times of LAUNCHES launches, if events measure
# Errors that count as a wrong result: a refused call, or an unexpected write to memory.
CALL_ERRORS = (ValueError, TypeError, AssertionError, RuntimeError, NotImplementedError)


def chosen_calls(options: Options) -> dict[str, TimedCall]:
    """Return the calls that the options select, by id."""
    selection = {"bfloat16": options.get("bfloat16", True), "quick": options.get("quick", False)}
    return {
        call.id: call for operator in calls.OPERATORS for call in calls.timed_calls(operator, **selection)
    }


class Worker:
    """Runs units of one kind. The first unit that needs the device opens it."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.calls = chosen_calls(options)
        self._device: Any = None
        self.cases: dict[tuple[str, str], Any] = {}

    @property
    def device(self) -> Any:
        """The device, opened once."""
        if self._device is None:
            self._device = Device()
        return self._device

    def facts(self, _: str) -> dict[str, Any]:
        """Return the facts about the machine."""
        return machine.facts(self.device)

    def validate(self, unit: str) -> dict[str, Any]:
        """Run a case of ``npu-rope validate``, given by its suite and name."""
        suite, _, name = unit.partition("/")
        if not self.cases:
            self.cases = {(case.suite, case.name): case for case in all_cases()}
        result = judge(self.cases[suite, name], [self.device.backend], None)
        judgement = result.by(self.device.backend)
        assert judgement is not None
        return {
            "verdict": judgement.verdict,
            "op": result.case.op,
            "max_error": calls.json_number(judgement.max_error),
            "error_over_bound": calls.json_number(judgement.ratio),
            "message": explain(judgement) if judgement.verdict == FAIL else judgement.message,
        }

    def check(self, unit: str) -> dict[str, Any]:
        """Compare a call's results on the device with float64."""
        call = calls.prepare(self.calls[unit])
        try:
            results = self._run(call)
            return calls.compare(results, call.expect())
        except CALL_ERRORS as error:
            return {"correct": False, "message": f"{type(error).__name__}: {error}"}

    def _run(self, call: PreparedCall) -> list[Any]:
        device = self.device
        results = calls.run(call.tensors.map(device.put), call.attributes)
        device.synchronize()
        return call.to_values(tuple(device.get(result) for result in results))

    def time(self, unit: str) -> dict[str, Any]:
        """Return the times of an operator's calls on the device, by call.

        On a simulated device, launches and events are tried, but no times are reported.
        """
        wanted = [self.calls[call_id] for call_id in self.options["time"][unit]]
        prepared = [calls.prepare(call) for call in wanted]
        on_device = [(call.tensors.map(self.device.put), call.attributes) for call in prepared]
        runs: list[Callable[[], object]] = [
            partial(calls.run, tensors, attributes) for tensors, attributes in on_device
        ]
        for run in runs:
            for _ in range(1 if self.device.simulated else WARM_UP_LAUNCHES):
                run()
        self.device.synchronize()
        if self.device.simulated:
            for run in runs:
                self.device.event_us(run, 1)
            return {"times": {}, "why_not_profiler": "", "simulated": True}
        times, why_not = self._times(wanted[0].kernel, runs)
        return {
            "times": {call.id: time for call, time in zip(wanted, times, strict=True)},
            "why_not_profiler": why_not,
        }

    def _times(self, kernel: str, runs: list[Callable[[], object]]) -> tuple[list[dict[str, Any]], str]:
        device, summary_of = self.device, kernel_times.summary_of
        try:
            profiler = kernel_times.require_profiler()
            with tempfile.TemporaryDirectory(prefix="npu-rope-profile-") as folder:
                arguments = (kernel, runs, LAUNCHES, device.synchronize)
                durations = kernel_times.profile(profiler, Path(folder), *arguments)
            return [summary_of(call_durations, kernel_times.BY_PROFILER) for call_durations in durations], ""
        except NoKernelTimes as error:
            durations = [[device.event_us(run, LAUNCHES) for _ in range(EVENT_SAMPLES)] for run in runs]
            times = [summary_of(call_durations, kernel_times.BY_EVENTS) for call_durations in durations]
            return [{**time, "launches": EVENT_SAMPLES * LAUNCHES} for time in times], str(error)

    def predict(self, unit: str) -> dict[str, Any]:
        """Return a call's cycles on the simulated chip."""
        simulator = library.load()
        before = simulator.launches()
        options = ascend_sim.Options(soc=self.options["profile"], one_order=True)
        calls.simulate(calls.prepare(self.calls[unit]), options)
        if (launches := simulator.launches() - before) != 1:
            raise RuntimeError(f"the simulator must launch one kernel but launched {launches}")
        summary = simulator.report()["summary"]
        return {name: summary[name] for name in ("cycles", "microseconds", "cores")}

    def device_failure(self) -> str:
        """Return why the device failed, so that a new process must continue; empty if it did not."""
        return "" if self._device is None else str(self._device.failure())


KINDS: Mapping[str, Callable[[Worker, str], dict[str, Any]]] = {
    "facts": Worker.facts,
    "validate": Worker.validate,
    "check": Worker.check,
    "time": Worker.time,
    "predict": Worker.predict,
}


def is_good(result: dict[str, Any]) -> bool:
    """Return whether nothing failed, so that no test of the device is necessary."""
    return "failed" not in result and not result.get("message")


def serve(stream: TextIO, request: dict[str, Any]) -> None:
    """Run the units and report each result."""

    def send(**event: Any) -> None:
        stream.write(json.dumps(event) + "\n")
        stream.flush()

    worker = Worker(request["options"])
    for unit in request["units"]:
        send(begin=unit)
        try:
            result = KINDS[request["kind"]](worker, unit)
        except Exception as error:
            result = {"failed": f"{type(error).__name__}: {error}"}
        send(unit=unit, result=result)
        if not is_good(result) and (reason := worker.device_failure()):
            send(stop=reason)
            return
    send(end=True)


def main() -> None:
    """Serve the request on standard input. Only results go to standard output; libraries may print there."""
    results = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    serve(results, json.load(sys.stdin))


if __name__ == "__main__":
    main()
