"""npu-rope hardware-report with the real torch_npu on a simulated NPU: right and wrong results, no measured
times."""

import json
import shlex

import pytest

from npu_rope.hardware import calls

REPORT = ("-m", "npu_rope.cli", "hardware-report", "--quick")
FILES = ("hardware-report.json", "hardware-report.html")
PROFILER = """
import json, pathlib, sys
import torch, torch_npu, torch_npu.profiler
from npu_rope.hardware import kernel_times
made = kernel_times.session(torch_npu.profiler, pathlib.Path(sys.argv[1]))
made.stopped = True  # it was never started
settings = made.prof_if.experimental_config
print(json.dumps({
    "activities": sorted(str(a) for a in made.prof_if.activities),
    "level": settings._profiler_level,
    "counters": settings._aic_metrics,
    "export": settings.export_type,
}))
"""
DEVICE = """
import json
import torch
from npu_rope.hardware.device import NpuDevice
device = NpuDevice()
x = device.put(torch.arange(6.0).reshape(2, 3).t())
us = device.event_us(lambda: x + 1, 4)
print(json.dumps({
    "strides": list(x.stride()),
    "values": device.get(x).tolist(),
    "us": us,
    "failure": device.failure(),
    "facts": device.facts(),
}))
"""


def files_of(folder):
    return [(folder / name).read_text() for name in FILES]


@pytest.fixture(scope="module")
def quick(simulated):
    """The report of all operators as JSON and HTML, and the report and output of npu-rope sim."""

    def make():
        folder = simulated.folder / "hardware-report"
        report = simulated.folder / "hardware-report-run.json"
        command = (simulated.python, *REPORT, "--output", folder)
        done = simulated.sim("--report", report, "--", *command)
        assert done.returncode == 0, done.stdout + done.stderr
        return [*files_of(folder), json.loads(report.read_text()), done.stdout]

    text, page, run, printed = simulated.once("hardware-report", make)
    return json.loads(text), page, run, printed


@pytest.mark.slow
def test_all_operators_are_right_on_the_simulated_npu(quick):
    document, _, run, printed = quick
    assert document["verdict"]["status"] == "correct"
    assert document["complete"] is True
    assert {o["operator"] for o in document["operators"]} == set(calls.OPERATORS)
    for operator in document["operators"]:
        assert len(operator["calls"]) == 3
        assert all(call["correct"] and call["error_over_bound"] <= 1 for call in operator["calls"])
        # Each call runs in its check, in its warm-up and between two events.
        assert run["launches"][operator["kernel"]] >= 3 * len(operator["calls"])
    assert "SIMULATED Ascend910B2: correct" in printed


@pytest.mark.slow
def test_no_operator_ran_on_the_host_and_nothing_was_left_out(quick):
    _, _, run, _ = quick
    assert not [name for name in run["fallbacks"] if "npu_rope" in name]
    assert run["not_simulated"] == {}
    assert run["rule_violations"] == []
    assert run["processes_without_end"] == 0


@pytest.mark.slow
def test_validate_ran_on_backend_npu(quick):
    document, _, _, _ = quick
    found = document["validate"]
    assert found["cases"] >= 30
    assert found["correct"] == found["cases"] - found["unsupported"]
    assert set(found["unsupported_because"]) == {"no Ascend vector core computes in float64"}


@pytest.mark.slow
def test_the_numbers_are_present_and_labelled_as_simulated(quick):
    document, page, _, _ = quick
    assert document["simulated"] is True
    assert document["label"].startswith("SIMULATED")
    assert document["machine"]["chip"] == "Ascend910B2"
    assert document["machine"]["torch_npu"] == "2.13.0"
    assert document["machine"]["cann"] == "simulated"
    for operator in document["operators"]:
        for call in operator["calls"]:
            assert call["simulated"] is True
            assert call["measured"] is None
            assert call["measured_over_predicted"] is None
            assert call["measured_note"] == "n/a: simulated"
            assert call["predicted"]["cycles"] > 100
            assert call["predicted"]["profile"] == "Ascend910B2"
            assert f"{call['predicted']['cycles']:,.0f}" in page
    assert document["timing_model"]["all"] is None
    assert document["timing_model"]["note"] == "n/a: simulated"
    assert page.count("SIMULATED") > 30


@pytest.mark.slow
def test_the_report_lists_doctor_s_pieces_without_folders(quick, simulated):
    document, page, _, _ = quick
    pieces = {f["piece"]: f for f in document["doctor"] if f["group"] == "NPU"}
    assert pieces["torch_npu"]["present"] is True
    assert pieces["binding"]["present"] is True
    assert str(simulated.folder) not in page
    assert str(simulated.folder) not in json.dumps(document)


@pytest.mark.slow
def test_a_wrong_kernel_is_reported_as_wrong(simulated, changed_kernel, tmp_path):
    library = str(changed_kernel("sine's sign"))
    only = ["--op", "rope", "--filter", "f32", "--output", tmp_path]
    skip = [f"--skip={step}" for step in ("doctor", "validate", "times", "predictions")]
    command = (simulated.python, *REPORT, *only, *skip)
    done = simulated.sim("--", *command, ASCEND_SIM_KERNELS=library)
    assert done.returncode == 1, done.stdout + done.stderr
    text, page = files_of(tmp_path)
    document = json.loads(text)
    ((call,),) = [o["calls"] for o in document["operators"]]
    assert call["id"] == "rope/batch-64x1x32x128-f32"
    assert call["correct"] is False
    assert call["error_over_bound"] > 1000
    assert call["worst"]["got"] != call["worst"]["expected"]
    assert document["verdict"]["status"] == "wrong"
    assert '<tr class="wrong">' in page
    assert "wrong rope/batch-64x1x32x128-f32" in done.stdout
    # Run the command that repeats the call, with this machine's Python.
    words = shlex.split(call["repeat"])
    end = words.index("--")
    assert words[:2] == ["npu-rope", "sim"]
    assert words[end + 1] in ("python", "<python>/bin/python")  # the report has no paths of this machine
    again = words[end + 2 :]
    again[again.index("repeated")] = str(tmp_path / "repeated")
    options = (*words[2:end], "--", simulated.python)
    done = simulated.sim(*options, *again, *skip, ASCEND_SIM_KERNELS=library)
    assert done.returncode == 1, done.stdout + done.stderr
    document = json.loads((tmp_path / "repeated" / FILES[0]).read_text())
    ((repeated,),) = [o["calls"] for o in document["operators"]]
    assert (repeated["id"], repeated["correct"]) == (call["id"], False)


@pytest.mark.slow
def test_a_kernel_that_breaks_a_rule_is_reported_with_the_rule(simulated, changed_kernel, tmp_path):
    library = str(changed_kernel("one element too many written"))
    only = ["--op", "rope", "--filter", "f32", "--output", tmp_path]
    skip = [f"--skip={step}" for step in ("doctor", "validate", "times", "predictions")]
    variables = {"ASCEND_SIM_KERNELS": library, "TASK_QUEUE_ENABLE": "0"}
    done = simulated.sim("--", simulated.python, *REPORT, *only, *skip, **variables)
    assert done.returncode == 1, done.stdout + done.stderr
    document = json.loads(files_of(tmp_path)[0])
    ((call,),) = [o["calls"] for o in document["operators"]]
    assert call["correct"] is False
    assert "SIM-BOUNDS" in call["message"]


def test_the_real_profiler_accepts_our_settings(simulated, tmp_path):
    """CANN's profiler is not simulated, so the session is not started."""
    found = simulated.code(PROFILER, tmp_path).json()
    assert found["activities"] == ["ProfilerActivity.CPU", "ProfilerActivity.NPU"]
    assert found["level"] == "Level1"
    assert found["counters"] == "ACL_AICORE_NONE"
    assert found["export"] == ["text"]


def test_the_device_as_the_report_uses_it(simulated):
    found = simulated.code(DEVICE).json()
    assert found["strides"] == [1, 3]
    assert found["values"] == [[0.0, 3.0], [1.0, 4.0], [2.0, 5.0]]
    assert found["us"] > 0
    assert found["failure"] == ""
    assert found["facts"]["chip"] == "Ascend910B2"
    assert found["facts"]["vector_core_num"] == 48
