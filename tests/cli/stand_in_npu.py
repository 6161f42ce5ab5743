"""Run the hardware report's worker on the CPU instead of an NPU, with the faults that a variable names.

    NPU_ROPE_STAND_IN=FAULT:OPERATOR,... python stand_in_npu.py

Faults of an operator: ``wrong`` results, ``refused`` calls, ``crash`` of the process, and ``dead``: its calls
make the device fail. Faults of the machine (``FAULT:all``): ``lost-rows``: the profiler's file lacks the
first launch; ``simulated``: the device is a simulated one. The profiler is also a stand-in: it writes
kernel_details.csv as torch_npu does. A launch of an operator's call k takes about 10 * (k + 1) us.
"""

import csv
import os
import signal
from contextlib import contextmanager
from types import SimpleNamespace

from npu_rope.hardware import calls, kernel_times, worker

FAULTS = dict(part.split(":") for part in os.environ.get("NPU_ROPE_STAND_IN", "").split(",") if part)
COLUMNS = (
    "Device_id", "Model ID", "Task ID", "Stream ID", "Name", "Type", "OP State", "Accelerator Core",
    "Start Time(us)", "Duration(us)", "Wait Time(us)", "Block Num", "Mix Block Num", "HF32 Eligible",
    "Input Shapes", "Input Data Types", "Input Formats", "Output Shapes", "Output Data Types",
    "Output Formats", "Context ID",
)  # fmt: skip
EPOCH = 1_750_000_000_000_000
launched = []
run_without_fault = calls.run


def run(tensors, attributes):
    op = tensors.op
    launched.append(calls.KERNELS[op])
    if FAULTS.get("crash") == op:
        os.kill(os.getpid(), signal.SIGSEGV)
    if FAULTS.get("refused") == op:
        raise ValueError(f"[{op}] x must be another one but got this one.")
    if FAULTS.get("dead") == op:
        StandIn.dead = True
        raise RuntimeError("the device is gone: /home/somebody/secret/file.py line 7")
    results = run_without_fault(tensors, attributes)
    return (results[0] + 0.125, *results[1:]) if FAULTS.get("wrong") == op else results


class StandIn:
    backend = "sim"  # for the cases of validate
    simulated = "simulated" in FAULTS
    dead = False

    def put(self, tensor):
        return tensor.clone()

    def get(self, tensor):
        return tensor

    def synchronize(self):
        pass

    def failure(self):
        return "the device is gone" if self.dead else ""

    def event_us(self, run, launches):
        for _ in range(launches):
            run()
        return 123.0

    def facts(self):
        return {"chip": "Ascend910B2", "devices": 8, "total_memory": 2**36}


def kernel_row(number, kernel):
    """A row of kernel_details.csv. Start times end with a tab, as in real files."""
    name = f"aclnn{kernel}_{kernel}_{kernel}"
    call, launch = divmod(number, worker.LAUNCHES)
    start, duration = f"{EPOCH + 50 * number}.027\t", f"{10 * (call + 1) + launch % 3 - 1}.5"
    row = dict.fromkeys(COLUMNS, "N/A") | {"Device_id": 0, "Name": name, "Type": kernel, "Block Num": 48}
    return row | {"Accelerator Core": "AI_VECTOR_CORE", "Start Time(us)": start, "Duration(us)": duration}


@contextmanager
def session(folder, **_):
    launched.clear()
    yield
    output = folder / "host_1_20260101_ascend_pt" / "ASCEND_PROFILER_OUTPUT"
    output.mkdir(parents=True)
    recorded = launched[1:] if "lost-rows" in FAULTS else launched
    with (output / "kernel_details.csv").open("w", newline="") as stream:
        writer = csv.DictWriter(stream, COLUMNS)
        writer.writeheader()
        # Real files are not always in the order of the launches.
        writer.writerows(reversed([kernel_row(i, kernel) for i, kernel in enumerate(recorded)]))


if __name__ == "__main__":
    calls.run = run
    kernel_times.session = lambda profiler, folder: session(folder)
    kernel_times.require_profiler = SimpleNamespace
    worker.Device = StandIn
    worker.main()
