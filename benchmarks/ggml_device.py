"""Compare the time of ggml's rope cases on a device of ggml, such as a simulated CANN0, with that on its CPU.

usage: npu-rope sim -- python benchmarks/ggml_device.py --ggml-lib build/bin [--ggml-device CANN0]

A whole call allocates its buffer, copies the inputs, computes and reads the result back, on one thread. Its
computation is the call of ggml_backend_graph_compute, which waits for the device. CPU and device alternate.
The time of a case is the least over the rounds, so that other processes disturb it little. A case that the
device refuses is left out on both. With --test-backend-ops PATH, the script also runs ggml's
own test of ROPE on the device and on the CPU, as whole processes, and compares their CPU times: these contain
the random inputs and the CPU's reference. Ratios above the limit give exit status 1.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from npu_rope.testing.cases import RopeCase, ggml_cases, make_data
from npu_rope.testing.ggml import GgmlRefused, GgmlRope, GgmlUnavailable, find_library_dir
from npu_rope.testing.ggml_worker import Ggml
from npu_rope.testing.judge import ggml_call

LIMIT = 10.0
OPERATION = "ROPE"


def supported_calls(device: Ggml) -> list[tuple[RopeCase, GgmlRope]]:
    """Return the cases that the device supports. They have run once on it."""
    calls = []
    for case in ggml_cases():
        if case.op != OPERATION:
            continue
        call = ggml_call(case, make_data(case))
        try:
            device.rope(call)
        except GgmlRefused:
            continue
        calls.append((case, call))
    return calls


class Timed:
    """A backend of ggml that measures each call, and its computation alone."""

    def __init__(self, folder: Path, device: str) -> None:
        self.ggml = Ggml(folder, 1, device)
        self._compute = self.ggml.base["ggml_backend_graph_compute"]
        self.ggml.base["ggml_backend_graph_compute"] = self._timed_compute
        self._computation = 0.0

    def _timed_compute(self, *arguments: Any) -> int:
        begin = time.perf_counter()
        status: int = self._compute(*arguments)  # waits for the device
        self._computation = time.perf_counter() - begin
        return status

    def seconds(self, call: GgmlRope) -> tuple[float, float]:
        """Run a call; return its time and that of its computation."""
        begin = time.perf_counter()
        self.ggml.rope(call)
        return time.perf_counter() - begin, self._computation


def compare_calls(folder: Path, device_name: str, rounds: int) -> dict[str, float]:
    """Print the times of all calls; return the ratios of whole calls and of computations."""
    backends = {name: Timed(folder, name) for name in ("CPU", device_name)}
    calls = supported_calls(backends[device_name].ggml)
    least = {name: np.full((len(calls), 2), np.inf) for name in backends}
    for _ in range(rounds):
        for i, (_, call) in enumerate(calls):
            for name, backend in backends.items():
                least[name][i] = np.minimum(least[name][i], backend.seconds(call))
    ratios = {}
    for column, what in enumerate(("whole calls", "computations")):
        cpu, device = (least[name][:, column].sum() for name in ("CPU", device_name))
        print(f"{what} of {len(calls)} cases: CPU {cpu:.3f} s, {device_name} {device:.3f} s")
        ratios[what] = float(device / cpu)
    computations = least[device_name][:, 1]
    for i in np.argsort(-computations)[:3]:
        times = f"{computations[i] * 1e3:.2f} ms, CPU {least['CPU'][i, 1] * 1e3:.2f} ms"
        print(f"  slowest computation: {times}: {calls[i][0].name}")
    return ratios


def process_seconds(program: Path, device_name: str) -> float:
    """Run ggml's own test of rope on a device and return the CPU time of its process."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [str(program), "test", "-o", OPERATION, "-b", device_name]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    passed = next((line.strip() for line in done.stdout.splitlines() if " tests passed" in line), "")
    if not passed:
        sys.exit(f"{program} must test {OPERATION} on {device_name} but printed:\n{done.stdout[-2000:]}")
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(f"{program.name} -b {device_name}: {used:.1f} s of CPU time, {passed}")
    return used


def main() -> None:
    """Measure, print the ratios, and compare them with the limit."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--ggml-lib", help="folder with libggml, libggml-base and the backends")
    parser.add_argument("--ggml-device", default="CANN0", help="device of ggml's registry, by default CANN0")
    parser.add_argument(
        "--rounds", type=int, default=3, choices=range(1, 101), metavar="N", help="1 to 100 (3)"
    )
    parser.add_argument("--test-backend-ops", type=Path, help="ggml's own test program")
    given = parser.parse_args()
    program = given.test_backend_ops
    if program and not program.is_file():
        parser.error(f"--test-backend-ops must be a program but got {program}.")
    try:
        folder = find_library_dir(given.ggml_lib, registry=True)
        ratios = compare_calls(folder, given.ggml_device, given.rounds)
    except GgmlUnavailable as error:
        parser.error(str(error))
    if program:
        device, cpu = (process_seconds(program, name) for name in (given.ggml_device, "CPU"))
        ratios["test-backend-ops"] = device / cpu
    for name, ratio in ratios.items():
        print(f"{name}: {given.ggml_device} takes {ratio:.2f} x the time of the CPU; limit {LIMIT:g} x")
    if any(ratio > LIMIT for ratio in ratios.values()):
        sys.exit(1)


if __name__ == "__main__":
    main()
