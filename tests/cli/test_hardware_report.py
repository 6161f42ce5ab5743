"""npu-rope hardware-report on a stand-in for the NPU, with correct, wrong and lost results."""

import fcntl
import io
import json
import math
import os
import re
import socket
import sys
from pathlib import Path
from statistics import median
from types import SimpleNamespace

import pytest
from html_pages import Page
from rich.console import Console
from rich.progress import Progress
from typer.testing import CliRunner

import npu_rope
from npu_rope import backends, chips
from npu_rope.cli import hardware_report
from npu_rope.cli.app import app
from npu_rope.hardware import calls, document, machine, run, supervisor
from npu_rope.hardware.page import html_of
from npu_rope.hardware.privacy import Scrubber

pytestmark = pytest.mark.torch
STAND_IN = (sys.executable, str(Path(__file__).parent / "stand_in_npu.py"))
CANN_NAMES = {op: "Npu" + "".join(word.title() for word in op.split("_")) for op in calls.OPERATORS}


def start(folder, *arguments, faults=""):
    """Run the command on the stand-in for the NPU and return click's result."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(supervisor, "WORKER", STAND_IN)
        patch.setitem(backends.BACKENDS, "npu", backends.Backend("npu", "a stand-in", lambda: None))
        patch.setenv("NPU_ROPE_STAND_IN", faults)
        if "simulated" in faults:
            patch.setenv("ASCEND_SIM_SOC", "Ascend910B2")
        done = CliRunner().invoke(app, ["hardware-report", "--output", str(folder), *arguments])
    return done


def files_of(folder):
    text, page = (folder / f"hardware-report.{kind}" for kind in ("json", "html"))
    return json.loads(text.read_text()), page.read_text()


def report(folder, *arguments, faults="", status=0):
    done = start(folder, *arguments, faults=faults)
    assert done.exit_code == status, (done.output, done.exception)
    data, page = files_of(folder)
    return SimpleNamespace(data=data, page=page, printed=done.output, calls=calls_of(data))


def calls_of(data):
    return {call["id"]: call for call in document.all_calls(data)}


def two_calls(found, operator):
    """The operator's two calls in the report `faulty`, by their names."""
    of_operator = {id_: call for id_, call in found.calls.items() if id_.startswith(f"{operator}/")}
    assert len(of_operator) == 2
    return of_operator


@pytest.fixture(scope="session")
def make_once(tmp_path_factory):
    """Make a report once for all workers of a test run; the first worker that needs it makes it."""
    base = tmp_path_factory.getbasetemp()  # one folder per worker; all workers share its parent
    shared = (base.parent if os.environ.get("PYTEST_XDIST_WORKER") else base) / "hardware-reports"
    shared.mkdir(exist_ok=True)

    def report_once(name, *arguments, **options):
        folder, printed = shared / name, shared / f"{name}.txt"
        with open(shared / f"{name}.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not printed.exists():
                printed.write_text(report(folder, "--overwrite", "--quick", *arguments, **options).printed)
        data, page = files_of(folder)
        return SimpleNamespace(data=data, page=page, printed=printed.read_text(), calls=calls_of(data))

    return report_once


@pytest.fixture(scope="module")
def good(make_once):
    return make_once("good")


FAULTS = "wrong:rope_qk,refused:rotary_mul,crash:rms_norm,dead:add_rms_norm"
FAULTY = [
    "--filter=f16",
    *(f"--op={op}" for op in ("rope", "rope_qk", "rotary_mul", "rms_norm", "add_rms_norm")),
]


@pytest.fixture(scope="module")
def faulty(make_once):
    return make_once("faulty", "--skip=validate", "--skip=doctor", *FAULTY, faults=FAULTS, status=1)


@pytest.fixture(scope="module")
def simulated(make_once):
    return make_once(
        "simulated",
        "--op=rope",
        "--filter=decode",
        "--skip=doctor",
        "--skip=validate",
        faults="simulated:all",
    )


# ---- the calls ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("operator", calls.OPERATORS)
def test_every_operator_has_at_least_twelve_calls_of_all_types(operator):
    made = list(calls.timed_calls(operator))
    assert len(made) >= 12
    assert len({call.id for call in made}) == len(made)
    assert {call.dtype for call in made} == {"float32", "float16", "bfloat16"}
    assert {"decode", "batch", "prefill"} <= {call.form for call in made}
    assert 2 <= len(list(calls.timed_calls(operator, quick=True))) <= 4


@pytest.mark.parametrize("operator", calls.OPERATORS)
def test_a_chip_without_bfloat16_gets_no_call_with_it(operator):
    made = list(calls.timed_calls(operator, bfloat16=False))
    assert "bfloat16" not in {call.dtype for call in made}
    assert len({call.id for call in made}) == len(made)


def test_the_kernel_names_are_names_of_definitions():
    definitions = Path(__file__).parents[2] / "op_host"
    defined = set(re.findall(r"OP_ADD\((\w+)", "".join(p.read_text() for p in definitions.glob("*_def.cpp"))))
    assert set(calls.KERNELS.values()) <= defined
    assert {op for op in calls.OPERATORS if calls.KERNELS[op] != CANN_NAMES[op]} == {"rotary_embedding"}


@pytest.mark.parametrize("operator", calls.OPERATORS)
def test_an_error_of_three_times_the_bound_is_found(operator):
    """The error is in the last element of each result."""
    (call, *_) = calls.timed_calls(operator, quick=True)
    prepared = calls.prepare(call)
    outputs = calls.run(prepared.tensors, prepared.attributes)
    results = prepared.to_values(tuple(t.clone() for t in outputs))
    expected = prepared.expect()
    assert calls.compare(results, expected)["correct"]
    for result, e in zip(results, expected, strict=True):
        original = result.flat[-1]
        wrong = float(e.value.flat[-1]) + 3 * float(e.bound.flat[-1]) + 2.0**-10
        result.flat[-1] = wrong
        found = calls.compare(results, expected)
        assert found["correct"] is False
        assert float(found["error_over_bound"]) > 1
        result.flat[-1] = original


# ---- a report of correct results ---------------------------------------------------------------------------


@pytest.mark.long
def test_a_report_of_correct_results_exits_0_and_prints_correct(good):
    assert good.data["verdict"]["status"] == "correct"
    assert good.data["complete"] is True
    assert good.data["not_done"] == []
    assert (good.data["schema"], good.data["schema_version"]) == ("npu-rope-hardware-report", 1)
    assert "Ascend910B2: correct" in good.printed


@pytest.mark.long
def test_a_report_contains_the_machine_and_the_findings_of_doctor(good):
    facts = good.data["machine"]
    assert facts["chip"] == "Ascend910B2"
    assert facts["devices"] == 8
    assert {"cann", "driver", "torch", "torch_npu", "npu_rope", "npu_rope_revision", "python"} <= set(facts)
    assert {"npu_rope", "simulator", "torch", "NPU"} <= {f["group"] for f in good.data["doctor"]}


@pytest.mark.long
def test_a_report_contains_the_counts_of_validate(good):
    found = good.data["validate"]
    assert found["cases"] == len(run.Plan(quick=True).cases()) >= 30
    assert found["correct"] + found["unsupported"] == found["cases"]
    assert found["failures"] == []
    suites = {row["suite"] for row in found["by_suite"]}
    assert suites == {"ggml", "models", "onnx", "torch_npu", "norm", "qkv", "pmx", "sequences"}
    assert sum(row["cases"] for row in found["by_suite"]) == found["cases"]
    judged = [row for row in found["by_suite"] if row["unsupported"] < row["cases"]]
    assert {row["op"] for row in found["by_suite"] if row not in judged} <= {
        "NPU_KV_RMSNORM_ROPE_CACHE",
        "NPU_QKV_RMS_NORM_ROPE_CACHE",
    }
    assert [row for row in judged if not 0 < row["largest_error_over_bound"] <= 1] == []


@pytest.mark.long
def test_every_call_has_a_verdict_a_time_and_a_prediction(good):
    assert {o["operator"] for o in good.data["operators"]} == set(calls.OPERATORS)
    assert len(good.calls) == 3 * len(calls.OPERATORS)
    for call in good.calls.values():
        assert call["correct"] is True
        assert 0 <= call["error_over_bound"] <= 1
        assert call["measured"]["method"] == "profiler"
        assert call["measured"]["launches"] == 20
        assert call["predicted"]["cycles"] > 100
        assert call["predicted"]["profile"] == "Ascend910B2"
        ratio = call["measured"]["us"] / call["predicted"]["microseconds"]
        assert math.isclose(call["measured_over_predicted"], ratio)


@pytest.mark.long
def test_a_call_has_the_times_of_its_own_launches(good):
    """The stand-in's profile gives an operator's call k about 10 * (k + 1) microseconds."""
    for operator in good.data["operators"]:
        assert [call["measured"]["us"] for call in operator["calls"]] == [10.5, 20.5, 30.5]
        assert [call["measured"]["min_us"] for call in operator["calls"]] == [9.5, 19.5, 29.5]


@pytest.mark.long
def test_a_prediction_equals_the_figures_of_trace_for_the_same_call(good, npu_rope_command):
    options = "--shape 1,128,32,128 --dtype f16 --mode neox --soc Ascend910B2 --json"
    traced = json.loads(npu_rope_command("trace", "rope", *options.split()).stdout)
    predicted = good.calls["rope/prefill-1x128x32x128-f16"]["predicted"]
    assert predicted["cycles"] == traced["cycles"]
    assert predicted["microseconds"] == traced["microseconds"]


@pytest.mark.long
def test_the_timing_models_error_is_the_median_and_the_worst_of_the_ratios(good):
    model = good.data["timing_model"]
    ratios = {id_: call["measured_over_predicted"] for id_, call in good.calls.items()}
    assert model["all"]["calls"] == len(ratios)
    assert math.isclose(model["all"]["median_ratio"], median(ratios.values()))
    worst = max(ratios, key=lambda id_: abs(math.log(ratios[id_])))
    assert model["all"]["worst_call"] == worst
    assert model["all"]["worst_ratio"] == ratios[worst]
    assert {row["of"] for row in model["by_operator"]} == set(calls.OPERATORS)
    assert sum(row["calls"] for row in model["by_size"]) == len(ratios)


@pytest.mark.long
def test_a_report_of_an_npu_is_not_labelled_as_simulated(good):
    assert good.data["simulated"] is False
    assert "SIMULATED" not in good.page
    assert "SIMULATED" not in json.dumps(good.data)


# ---- wrong, refused and lost results -----------------------------------------------------------------------


@pytest.mark.long
def test_a_wrong_result_is_shown_with_its_element_and_how_to_repeat_it(faulty):
    for id_, call in two_calls(faulty, "rope_qk").items():
        assert call["correct"] is False
        assert call["error_over_bound"] > 1000
        assert abs(call["worst"]["got"] - call["worst"]["expected"]) > 0.1
        assert call["measured"] is not None  # the call ran, with a wrong result
        assert f"wrong {id_}" in faulty.printed
        assert call["repeat"] in faulty.page
    assert faulty.data["verdict"]["status"] == "wrong"


@pytest.mark.long
def test_the_command_that_repeats_a_call_names_it_alone(faulty):
    for id_, call in faulty.calls.items():
        words = call["repeat"].split()
        assert words[:2] == ["npu-rope", "hardware-report"]
        operator, text = (words[words.index(option) + 1] for option in ("--op", "--filter"))
        assert [c.id for c in run.Plan(operators=[operator], name_part=text).calls()] == [id_]
        assert "--overwrite" in words
        assert words[words.index("--output") + 1] not in (".", "npu-rope-report")


@pytest.mark.parametrize(
    ("variables", "options"),
    [
        ({}, ""),
        ({"ASCEND_SIM_STREAMS": "asynchronous", "ASCEND_SIM_SEED": "0"}, ""),
        (
            {"ASCEND_SIM_STREAMS": "immediate", "ASCEND_SIM_SEED": "7"},
            " --streams immediate --seed 7",
        ),
    ],
)
def test_the_repeat_command_of_a_simulated_run_simulates_again(monkeypatch, variables, options):
    for name in ("ASCEND_SIM_STREAMS", "ASCEND_SIM_SEED"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {"ASCEND_SIM_SOC": "Ascend310P3", **variables}.items():
        monkeypatch.setenv(name, value)
    begin = f"npu-rope sim --soc Ascend310P3{options} -- python -m npu_rope.cli"
    (call, *_) = calls.timed_calls("rope")
    record = document.call_record(call, simulated=True)
    assert record["repeat"].startswith(f"{begin} hardware-report --output repeated ")
    (case, *_) = run.Plan().cases()
    summary = document.validate_summary([case], {f"{case.suite}/{case.name}": {"lost": "signal"}})
    assert summary["failures"][0]["repeat"].startswith(f"{begin} validate --backend npu ")


@pytest.mark.long
def test_every_repeat_command_of_a_simulated_report_simulates(simulated):
    for call in simulated.calls.values():
        assert call["repeat"].startswith(
            "npu-rope sim --soc Ascend910B2 -- python -m npu_rope.cli hardware-rep"
        )


@pytest.mark.long
def test_a_refused_call_has_the_operators_message(faulty):
    call = faulty.calls["rotary_mul/decode-1x1x32x128-bf16"]
    assert call["correct"] is False
    assert call["message"] == "ValueError: [rotary_mul] x must be another one but got this one."
    assert call["measured"] is None
    assert call["message"].replace("'", "&#x27;") in faulty.page


@pytest.mark.long
def test_each_crash_loses_one_call_and_its_signal_is_named(faulty):
    for call in two_calls(faulty, "rms_norm").values():
        assert call["correct"] is False
        assert call["message"] == "its process was ended by signal SIGSEGV"


@pytest.mark.long
def test_a_device_that_failed_is_opened_again_for_the_next_call(faulty):
    for call in two_calls(faulty, "add_rms_norm").values():
        assert call["message"].startswith("RuntimeError: the device is gone")


@pytest.mark.long
def test_an_operator_without_faults_is_checked_and_timed_and_all_calls_are_predicted(faulty):
    for call in two_calls(faulty, "rope").values():
        assert call["correct"] is True
        assert call["measured"]["us"] > 0
    assert all(call["predicted"]["cycles"] > 100 for call in faulty.calls.values())
    assert "calls: 2 of 10 correct" in faulty.data["verdict"]["text"]


def test_a_wrong_case_of_validate_has_its_repeat_command():
    (case, *_) = run.Plan().cases()
    id_ = f"{case.suite}/{case.name}"
    wrong = {"verdict": "FAIL", "message": "error 3", "error_over_bound": 7.0}
    summary = document.validate_summary([case], {id_: wrong})
    (failure,) = summary["failures"]
    assert summary["wrong"] == 1
    assert summary["by_suite"][0]["largest_error_over_bound"] == 7.0
    assert failure["repeat"].startswith(
        f"npu-rope validate --backend npu --no-ggml --suite {case.suite} --op '"
    )
    data = document.new_document({}) | {"validate": summary, "complete": True}
    assert document.verdict_summary(data)["status"] == "wrong"
    for lost in ({"lost": "its process ended with status 3"}, {"failed": "KeyError: 'x'"}):
        again = document.validate_summary([case], {id_: lost})
        assert again["correct"] == 0
        assert len(again["failures"]) == 1


# ---- times by events, no times -----------------------------------------------------------------------------


@pytest.mark.slow
def test_without_a_profile_times_come_from_events(tmp_path):
    only = ["--op=rope", "--filter=decode", "--skip=doctor", "--skip=validate"]
    found = report(tmp_path, "--quick", *only, faults="lost-rows:all")
    (call,) = found.calls.values()
    assert call["measured"]["method"] == "events"
    assert call["measured"]["us"] == 123.0
    (missing,) = (n for n in found.data["not_done"] if n["what"] == "profile of rope")
    assert "the launches of NpuRope must be 20 but the profiler lists 19" in missing["why"]
    assert not missing["failed"]
    assert "events: includes launch gaps" in found.page
    assert found.data["timing_model"]["all"]["methods"] == {"events": 1}


@pytest.mark.long
def test_a_simulated_machine_has_no_times_and_no_error_of_the_model(simulated):
    assert simulated.data["simulated"] is True
    assert simulated.data["label"] == "SIMULATED: nothing of this ran on hardware"
    for call in simulated.calls.values():
        assert call["correct"] is True
        assert call["measured"] is None
        assert call["measured_note"] == "n/a: simulated"
        assert call["measured_over_predicted"] is None
        assert call["predicted"]["cycles"] > 100
    assert simulated.data["timing_model"]["all"] is None
    assert simulated.data["timing_model"]["note"] == "n/a: simulated"


@pytest.mark.long
def test_a_simulated_machine_is_labelled_in_every_part(simulated):
    body = simulated.page.partition("<body>")[2]
    assert "<title>SIMULATED: " in simulated.page
    sections = body.split("<section")[1:]
    assert len(sections) == 8
    for part in sections:
        assert "SIMULATED" in part
    for table in body.split("<table")[1:]:
        assert "SIMULATED" in table.partition("</caption>")[0]
    assert "SIMULATED Ascend910B2" in simulated.printed


# ---- guarded steps -----------------------------------------------------------------------------------------


def test_without_a_terminal_each_quarter_of_a_step_prints_a_line():
    console = Console(file=io.StringIO(), width=100)
    with Progress(console=console, disable=True) as bar:
        progress = hardware_report._Bar(console, bar)
        progress.begin("calls", 8)
        for _ in range(8):
            progress.advance("x")
        progress.end()
    lines = console.file.getvalue().splitlines()
    assert [line.partition(" done")[0] for line in lines] == [
        "calls: 8 to do", "calls: 2 of 8", "calls: 4 of 8", "calls: 6 of 8",
    ]  # fmt: skip
    assert all(re.search(r"about \d+ s left$", line) for line in lines[1:])


# The name of each step in a report, by its method.
STEPS = {
    "_machine": "machine", "_doctor": "doctor", "_validate": "validate",
    "_check": "calls", "_time": "times", "_predict": "predictions",
}  # fmt: skip


class SilentProgress:
    def begin(self, step, total):
        pass

    def advance(self, unit):
        pass

    def end(self):
        pass


def run_with_steps(monkeypatch, **steps):
    """Return a run whose steps are `steps` or empty, and the list of documents that it writes."""
    for name in STEPS:
        monkeypatch.setattr(run.HardwareRun, name, steps.get(name, lambda self: None))
    written = []

    def write(data):
        written.append(json.loads(json.dumps(data)))

    return run.HardwareRun(run.Plan(quick=True), SilentProgress(), write), written


def fail(error):
    def step(self):
        raise error

    return step


@pytest.mark.parametrize("step", STEPS)
def test_a_step_that_fails_is_named_and_the_next_ones_run(monkeypatch, step):
    report_run, written = run_with_steps(monkeypatch, **{step: fail(OSError("no such thing"))})
    data = report_run.run_steps()
    assert data["not_done"] == [{"what": STEPS[step], "why": "OSError: no such thing", "failed": True}]
    assert data["complete"] is True
    assert data["verdict"]["status"] == "wrong"
    assert len(written) == 7


def test_an_interrupted_run_leaves_an_unfinished_report(monkeypatch):
    def validate(self):
        self.document["doctor"] = [{"group": "g", "piece": "p", "present": True, "detail": "", "remedy": ""}]
        raise KeyboardInterrupt

    report_run, written = run_with_steps(monkeypatch, _validate=validate)
    with pytest.raises(KeyboardInterrupt):
        report_run.run_steps()
    last = written[-1]
    assert last["doctor"][0]["group"] == "g"
    assert last["complete"] is False
    assert last["not_done"] == [{"what": "the rest", "why": "interrupted", "failed": False}]
    assert last["verdict"]["status"] == "unfinished"
    assert "not finished" in html_of(last)


def test_a_run_that_checked_nothing_is_unfinished(monkeypatch):
    report_run, _ = run_with_steps(monkeypatch)
    assert report_run.run_steps()["verdict"] == {"status": "unfinished", "text": "nothing was checked"}


SLOW = """
import json, sys, time
for unit in json.load(sys.stdin)["units"]:
    print(json.dumps({"begin": unit}), flush=True)
    if unit == "endless":
        print("still here", file=sys.stderr, flush=True)
        time.sleep(600)
    print(json.dumps({"unit": unit, "result": {"correct": True}}), flush=True)
print(json.dumps({"end": True}), flush=True)
"""


@pytest.mark.long
def test_a_call_that_does_not_end_is_stopped_and_the_next_ones_run(monkeypatch):
    monkeypatch.setattr(supervisor, "WORKER", (sys.executable, "-c", SLOW))
    results = {}
    units = ["first", "endless", "last"]
    supervisor.run(supervisor.Work("check", units, {}, 2, results.__setitem__))
    correct = {"correct": True}
    lost = {"lost": "stopped after 2 seconds without an answer", "printed": "still here"}
    assert results == {"first": correct, "endless": lost, "last": correct}


CUT_OFF = """
import json, sys
unit = json.load(sys.stdin)["units"][0]
print(json.dumps({"begin": unit}), flush=True)
print(json.dumps({"unit": unit, "result": {"correct": True}})[:20], end="", flush=True)
"""


def test_a_result_that_is_cut_off_is_lost(monkeypatch):
    monkeypatch.setattr(supervisor, "WORKER", (sys.executable, "-c", CUT_OFF))
    results = {}
    supervisor.run(supervisor.Work("check", ["first"], {}, 5, results.__setitem__))
    assert results["first"]["lost"] == "its process ended while it wrote a result"


def test_a_worker_that_does_not_start_loses_all_units_in_bounded_time(monkeypatch):
    monkeypatch.setattr(supervisor, "WORKER", (sys.executable, "-c", "raise SystemExit('no CANN here')"))
    results = {}
    units = [f"unit {k}" for k in range(40)]
    supervisor.run(supervisor.Work("check", units, {}, 5, results.__setitem__))
    assert list(results) == units
    assert results["unit 0"] == {"lost": "its process ended with status 1", "printed": "no CANN here"}
    assert results["unit 39"]["lost"] == "not tried: the device or its process was lost 8 times"


# ---- bad usage ---------------------------------------------------------------------------------------------


def test_without_an_npu_it_exits_2_and_names_what_is_missing(npu_rope_command, tmp_path):
    done = npu_rope_command("hardware-report", "--output", str(tmp_path / "report"))
    assert done.returncode == 2
    assert "[npu] backend must be available but it lacks " in done.stderr
    assert "torch_npu" in done.stderr
    assert not (tmp_path / "report").exists()


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--filter", "nonsense"], "filter must be part of a call's name but got 'nonsense'."),
        (["--skip", "validate", "--skip", "calls"], "skip must leave validate or calls but got both."),
    ],
)
def test_bad_usage_exits_2(tmp_path, arguments, text):
    done = start(tmp_path / "report", *arguments)
    assert done.exit_code == 2
    assert f"[hardware-report] {text}" in done.output
    assert not (tmp_path / "report").exists()


def test_an_unwritable_output_folder_exits_2(tmp_path):
    (tmp_path / "file").write_text("")
    done = start(tmp_path / "file")
    assert done.exit_code == 2
    assert "output must be a writable folder" in done.output


@pytest.mark.long
def test_an_existing_report_stays_without_the_option_overwrite(tmp_path):
    for name in ("hardware-report.json", "hardware-report.html"):
        (tmp_path / name).write_text("old")
    skipped = ["doctor", "validate", "times", "predictions"]
    only = ["--quick", "--op=rope", "--filter=decode", *(f"--skip={step}" for step in skipped)]
    done = start(tmp_path, *only)
    assert done.exit_code == 2
    assert "--overwrite" in done.output
    assert (tmp_path / "hardware-report.json").read_text() == "old"
    found = report(tmp_path, "--overwrite", *only)
    assert found.data["verdict"]["status"] == "correct"
    assert [n["what"] for n in found.data["not_done"]] == skipped


# ---- the page ----------------------------------------------------------------------------------------------


@pytest.mark.long
def test_the_page_loads_nothing_and_closes_its_elements(good, faulty, simulated):
    for each in (good, faulty, simulated):
        page = Page(each.page)
        assert page.loading_tags == []
        assert len(page.ids) == len(set(page.ids))
        assert {link.removeprefix("#") for link in page.links} <= set(page.ids)
        assert "url(" not in each.page
        assert "default-src 'none'" in each.page


@pytest.mark.long
def test_elements_that_scroll_sideways_can_be_reached_by_keyboard(good):
    page = Page(good.page)
    assert len(page.scrolling) >= 12
    assert all(a["tabindex"] == "0" and a["role"] == "region" and a["aria-label"] for a in page.scrolling)


@pytest.mark.long
def test_the_page_is_light_and_dark_and_fits_a_phone(good):
    assert "color-scheme: light dark" in good.page
    assert 'name="viewport" content="width=device-width' in good.page


@pytest.mark.long
def test_markup_in_messages_and_facts_is_escaped_on_the_page(good):
    data = json.loads(json.dumps(good.data))
    call = document.all_calls(data)[0]
    call["correct"], call["message"] = False, "<script>alert(1)</script>"
    data["machine"]["chip"] = "<b>chip</b>"
    data["doctor"][0]["detail"] = "<img src=x>"
    page = html_of(data)
    assert Page(page).loading_tags == []
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert "<b>chip</b>" not in page


@pytest.mark.long
def test_the_page_has_each_calls_numbers(good):
    for call in good.calls.values():
        assert f"{call['predicted']['cycles']:,.0f}" in good.page
        assert f"{call['measured_over_predicted']:.2f}" in good.page


# ---- nothing private ---------------------------------------------------------------------------------------


@pytest.mark.long
def test_paths_in_error_messages_do_not_get_into_the_files(faulty):
    for text in (faulty.page, json.dumps(faulty.data), faulty.printed.replace("\n", "")):
        assert "somebody" not in text
    lost = faulty.calls["add_rms_norm/decode-1x4096-bf16"]["message"]
    assert lost == "RuntimeError: the device is gone: <path> line 7"


@pytest.mark.long
def test_folders_and_names_of_this_machine_do_not_get_into_the_files(good):
    here = str(Path(__file__).parents[2])
    for text in (good.page, json.dumps(good.data)):
        assert here not in text
        assert str(Path(sys.prefix)) not in text
        if len(socket.gethostname()) > 8:
            assert socket.gethostname() not in text


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("/opt/venv/lib/site-packages/npu_rope/lib/x.so", "<npu_rope>/lib/x.so"),
        ("found in /opt/venv/bin, and /opt/venv2/bin", "found in <python>/bin, and <path>"),
        ("/home/ann/work/x.py:17: error", "<path>:17: error"),
        ("ann@box-17.example.org said: no", "<name>@<name>.example.org said: no"),
        ("/dev/davinci0, /dev/davinci1", "/dev/davinci0, /dev/davinci1"),
        ("/usr/local/Ascend/ascend-toolkit/latest", "/usr/local/Ascend/ascend-toolkit/latest"),
        ("x / RMS and 1/2, and/or a/b", "x / RMS and 1/2, and/or a/b"),
        ("https://example.org/a/b", "https://example.org/a/b"),
        ("'/secret/place'", "'<path>'"),
        ("PATH=/secret/a:/secret/b", "PATH=<path>:<path>"),
        ("annotated, planned", "annotated, planned"),
    ],
)
def test_private_folders_and_names_are_replaced(text, clean):
    folders = {"/opt/venv": "<python>", "/opt/venv/lib/site-packages/npu_rope": "<npu_rope>"}
    scrub = Scrubber(folders, ["box-17", "ann"])
    assert scrub.text(text) == clean
    assert scrub.clean({"a": [text, 1, None]}) == {"a": [clean, 1, None]}


@pytest.mark.parametrize("forced", [False, True], ids=["of an editable install", "NPU_ROPE_LIB_DIR"])
def test_the_folder_of_the_libraries_is_named_where_the_python_files_lie_elsewhere(
    monkeypatch, tmp_path, forced
):
    """With `.venv-npu/bin/python` in a checkout, neither folder is among this Python's packages."""
    source, installed = tmp_path / "checkout" / "npu_rope", tmp_path / "other" / "site-packages" / "npu_rope"
    monkeypatch.setattr(npu_rope, "__path__", [str(installed), str(source)])
    libraries = tmp_path / "built" if forced else installed / "lib"
    if forced:
        monkeypatch.setenv("NPU_ROPE_LIB_DIR", str(libraries))
    else:
        monkeypatch.delenv("NPU_ROPE_LIB_DIR", raising=False)
    scrub = Scrubber(private=[])
    assert scrub.text(f"found {libraries}/simulated_package") == "found <npu_rope>/lib/simulated_package"
    assert scrub.text(f"{libraries}/x.so, {source}/a.py") == "<npu_rope>/lib/x.so, <npu_rope>/a.py"


# ---- the machine -------------------------------------------------------------------------------------------

PROFILES = ("Ascend910B1", "Ascend910B2", "Ascend910B2-1", "Ascend910_9392", "Ascend310P3")
CHIPS = [{"name": name} for name in PROFILES]


@pytest.mark.parametrize(
    ("chip", "profile", "note"),
    [
        ("Ascend910B2", "Ascend910B2", ""),
        ("Ascend910B2C", "Ascend910B2", "whose sizes may differ"),
        ("Ascend910B2-1X", "Ascend910B2-1", "whose sizes may differ"),
        ("Ascend910B4-1", "Ascend910B1", "whose sizes may differ"),
        ("Ascend910_9363", "Ascend910_9392", "whose sizes may differ"),
        ("Ascend310P1", "Ascend310P3", "whose sizes may differ"),
        ("Ascend910A", None, "the simulator has no profile of Ascend910A"),
    ],
)
def test_the_nearest_profile_is_found_with_a_note_if_it_is_another_chips(chip, profile, note):
    found, message = machine.nearest_profile(chip, CHIPS)
    assert found == profile
    assert note in message
    assert bool(message) == bool(note)


@pytest.mark.parametrize("chip", ["Ascend310P1", "Ascend310P7", "Ascend910B2", "Ascend910_9392"])
def test_only_ascend310p_has_no_bfloat16(chip):
    assert chips.has_bfloat16(chip) is ("310P" not in chip)


def test_only_the_version_of_npu_smi_is_kept(tmp_path, monkeypatch):
    tool = tmp_path / "npu-smi"
    tool.write_text(
        "#!/bin/sh\necho '| npu-smi 24.1.rc2        Version: 24.1.rc2    |'\necho 'Serial 12345'\n"
    )
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    assert machine.npu_smi_version() == "24.1.rc2"
