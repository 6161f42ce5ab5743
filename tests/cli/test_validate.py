"""npu-rope validate on the command line: filters, formats, exit status."""

import csv
import functools
import io
import json
import math
import os
import re
import shlex
import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace
from xml.etree import ElementTree

import changed_kernel as changed
import pytest
import without_torch
from typer.testing import CliRunner

import npu_rope
from npu_rope import backends, simulated_package
from npu_rope.cli import fault_report, report
from npu_rope.cli import validate as command
from npu_rope.cli.app import app
from npu_rope.cli.report import _summary_line as summary_line
from npu_rope.cli.validate import FAIL
from npu_rope.cli.validation_report import ValidationReport
from npu_rope.testing import judge
from npu_rope.testing.ggml import GgmlInfo, GgmlUnavailable, find_library_dir
from npu_rope.testing.outcomes import ALONE, CaseResult, Judgement, Occurrence, Worst
from npu_rope.testing.suites import LONG_STEP, LONG_TOKENS, SUITES, all_cases

NINE_CASES = ["--suite", "ggml", "--filter", "type=f32,ne_a=[128,32,2,1],n_dims=32"]
NO_RERUNS = ["--rerun-seconds", "0"]
ONE_CASE = ["--suite", "models", "--filter", "llama-3.1-8b/decode(type=f32"]


@pytest.fixture
def validate(npu_rope_command):
    return functools.partial(npu_rope_command, "validate")


@pytest.mark.long
def test_cases_within_bounds_exit_0_and_print_a_line_each(validate):
    done = validate(*NINE_CASES, "--verbose")
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stdout.splitlines() if line.startswith("ok ")]
    assert len(lines) == 9
    assert "9 of 9 cases within their bounds" in done.stdout


@pytest.mark.long
def test_a_run_without_a_library_is_no_success(validate):
    done = validate("--filter", "llama-3.1-8b/decode(type=f32", "--no-ggml", NPU_ROPE_LIB_DIR="/nowhere")
    assert done.returncode == 2
    assert done.stdout.splitlines()[-1] == "NOT RUN: 0 of 0 cases within their bounds; 1 not run: unsupported"
    rule = "[validate] cases must run but none did: its library libnpu_rope was not found in /nowhere."
    assert done.stderr.splitlines()[-1] == rule


def test_the_summary_is_a_table_of_suites_by_back_ends(validate):
    done = validate(
        *("--suite", "pmx", "--suite", "onnx", "--backend", "cpu", "--backend", "reference", "--no-ggml"),
        COLUMNS="120",
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) <= 40
    head = next(n for n, line in enumerate(lines) if line.startswith("cases, worst error / bound"))
    assert lines[head].split()[-4:] == ["cpu", "reference", "worst", "case"]
    names = {suite: [case.name for case in all_cases((suite,))] for suite in ("onnx", "pmx")}
    cell = r"(\d+)/\1 +(?:0\.\d{2,6}|1\.00)"
    for row, suite in zip(lines[head + 1 : head + 3], ("onnx", "pmx"), strict=True):
        found = re.fullmatch(rf"{suite} +{cell} +{cell.replace('1', '2', 1)}  (?:cpu|reference): (.*)", row)
        assert found is not None, row
        assert found[1] == found[2] == str(len(names[suite]))
        assert len(row) <= 120
        assert any(name.startswith(found[3].removesuffix("...")) for name in names[suite])
    cpu_line = next(line for line in lines if line.startswith("cpu vs float64"))
    assert len(cpu_line) <= 120
    shown = re.search(r"largest error / bound \S+ \((.*)\)$", cpu_line)[1]
    assert any(name.startswith(shown.removesuffix("...")) for name in names["onnx"] + names["pmx"])


@pytest.mark.torch
def test_names_of_cases_are_cut_where_a_line_of_the_summary_ends(validate):
    name = "npu_rotary_mul/half(type=f32,shape=[2,16,8,128])"
    chosen = ("--suite", "torch_npu", "--op", name, "--backend", "cpu", "--no-ggml")
    assert f"cpu: {name}\n" in validate(*chosen).stdout
    long_name = next(case.name for case in all_cases(("ggml",)) if len(case.name) > 100)
    chosen = ("--suite", "ggml", "--op", long_name, "--backend", "cpu", "--no-ggml")
    lines = [line for line in validate(*chosen, COLUMNS="120").stdout.splitlines() if long_name[:20] in line]
    assert [len(line) for line in lines] == [120] * 3  # the table's row, and a line for each executor
    assert all(line.removesuffix(")").endswith("...") for line in lines)
    assert validate(*chosen, "--verbose").stdout.count(long_name) == 4


@pytest.mark.parametrize(
    ("ratio", "text"),
    [
        (0.5, "0.50"),
        (0.994, "0.99"),
        (0.9987, "0.9987"),
        (0.99998, "0.999980"),
        (1 - 1e-12, "1.000000"),
        (1.0, "1.00"),
        (1.0012, "1.0012"),
        (3.25, "3.25"),
        (12345.0, "1.23e+04"),
        (math.inf, " inf"),
        (math.nan, "   -"),
    ],
)
def test_a_ratio_near_1_shows_its_distance_from_1(ratio, text):
    assert report.ratio_text(ratio) == text


def judge_with(verdict, ratio=0.5):
    """Return a judge whose verdict on each case is `verdict`."""
    return lambda case, names, process: CaseResult(
        case, [Judgement("cpu", verdict, ratio=ratio, max_error=1.0)]
    )


def test_failures_are_one_fault_and_counted_in_the_table(monkeypatch):
    monkeypatch.setattr(command, "judge", judge_with(FAIL, 3.25))
    options = ["--suite", "onnx", "--filter", "prefill", "--no-ggml", "--backend", "cpu", *NO_RERUNS]
    done = invoke(*options)
    assert done.exit_code == 1
    (first,) = re.findall(r"^FAIL +(\S+)\n  cpu: wrong values$", done.stdout, re.M)
    assert re.search(r"^onnx +0/3  3\.25  cpu: (\S+)$", done.stdout, re.M)[1] == first
    assert re.search(r"^1 +cpu: wrong values +3 of 3 +3\.25 +not run again", done.stdout, re.M)
    assert done.stdout.count("  reproduce: ") == 1
    quiet = invoke(*options, "--quiet").stdout
    assert "onnx  " not in quiet
    assert "FAIL   " not in quiet
    assert re.search(rf"reproduce: .* --op '{re.escape(first)}' ", quiet)
    verbose = invoke(*options, "--verbose").stdout
    assert (
        len(re.findall(r"^FAIL .*\n  cpu: error 1, worst element 3.25 times its bound$", verbose, re.M)) == 3
    )


@pytest.mark.long
def test_quiet_leaves_the_last_line(validate):
    done = validate(*NINE_CASES, "--quiet", "--no-ggml")
    assert done.stdout == "OK: 9 of 9 cases within their bounds\n"
    done = validate(*NINE_CASES, "--quiet", "--verbose")
    assert done.returncode == 2
    assert done.stderr == "[validate] verbose must come without --quiet but got both.\n"


def test_progress_is_printed_without_a_terminal(monkeypatch):
    monkeypatch.setattr(command, "PROGRESS_SECONDS", 0)
    monkeypatch.setattr(command, "LEAST_SHARE_FOR_ESTIMATE", 0.3)
    monkeypatch.setattr(command, "judge", judge_with("ok"))
    done = invoke(*NINE_CASES, "--no-ggml", "--backend", "cpu")
    lines = [line for line in done.stderr.splitlines() if line.startswith("validating: ")]
    assert len(lines) == 8  # no line after the last case
    assert lines[:2] == ["validating: 1 of 9 cases", "validating: 2 of 9 cases"]
    assert all(re.fullmatch(r"validating: \d of 9 cases, about \d+ s left", line) for line in lines[2:])


@pytest.mark.peer
def test_ggml_has_a_line_in_the_summary(validate):
    done = validate(*ONE_CASE)
    assert "ggml vs ggml's angles: 1 of 1 within bounds" in done.stdout
    assert "bit-equal to policy ggml" in done.stdout


def test_without_ggml_the_summary_says_so(validate):
    done = validate("--no-ggml", *ONE_CASE)
    assert done.returncode == 0
    assert "ggml: not compared: switched off with --no-ggml" in done.stdout


TWO_HALVES = ["--suite", "torch_npu", "--filter", r"(^|npu_rotary_mul/)half\(type=f32", "--no-ggml"]


@pytest.mark.long
def test_the_summary_says_why_torch_npu_is_not_compared(validate):
    arguments = [*TWO_HALVES, "--backend", "cpu"]
    assert "torch_npu: not" not in validate(*arguments).stdout  # the user has named a back end
    done = validate(*TWO_HALVES)
    assert done.returncode == 0
    (line,) = re.findall(r"^torch_npu: not compared: it lacks the torch_npu package; .*", done.stdout, re.M)
    assert line.endswith("simulate one: npu-rope sim -- npu-rope validate --suite torch_npu.")
    assert line.removeprefix("torch_npu: ") not in done.stderr  # said once
    document = json.loads(validate(*TWO_HALVES, "--format", "json").stdout)
    assert document["torch_npu_missing"] in line
    assert "torch_npu" not in validate(*ONE_CASE, "--no-ggml").stdout


@pytest.mark.torch
def test_torch_npu_has_a_column_and_a_process_of_its_own(monkeypatch):
    monkeypatch.setattr(command, "peer_missing", lambda: "")
    monkeypatch.setattr(command.backends, "available", lambda: ["cpu"])
    abort = "import os, sys; print('the device is gone', file=sys.stderr, flush=True); os.abort()"
    monkeypatch.setattr(command.BackendProcess, "worker", ("-c", abort))
    done = invoke(*TWO_HALVES)
    assert done.exit_code == 1, done.output
    head, row = re.search(r"^(cases, .*)\n(torch_npu .*)$", done.stdout, re.M).groups()
    assert head.split()[-4:] == ["cpu", "torch_npu", "worst", "case"]
    # The other case calls npu_rope's own operator.
    assert re.match(r"torch_npu +2/2 +\S+ +0/1 +-  cpu: ", row)
    name = "npu_rotary_mul/half(type=f32,shape=[2,16,8,128])"
    fault = r"torch_npu: ended with SIGABRT: the device is gone +1 of 1 +- +alone"
    assert re.search(rf"^1 +{fault}", done.stdout, re.M)
    reproducer = f"reproduce: npu-rope validate --suite torch_npu --op '{name}' --backend torch_npu --no-ggml"
    assert reproducer in done.stdout


@pytest.mark.long
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--backend", "npu"], "but it lacks the torch_npu package"),
        (
            ["--backend", "torch_npu"],
            "[torch_npu] backend must be available but it lacks the torch_npu package",
        ),
        (["--backend", "sim:ascend910"], "[validate] backend must be one of reference, cpu"),
        (["--backend", "gpu"], "[validate] backend must be one of reference, cpu"),
        (["--filter", "no such case"], "filter must match a case"),
        (["--filter", "no such [case"], "filter must be a text or a regex"),
        (["--ggml-lib", "/nonexistent"], "library must be a folder with libggml-base"),
        (
            ["--no-ggml", "--ggml-lib", "/x"],
            "[validate] ggml-lib must come without --no-ggml but got both.",
        ),
        (
            ["--no-ggml", "--ggml-device", "CPU"],
            "[validate] ggml-device must come without --no-ggml but got both.",
        ),
        (
            ["--ggml-lib", "/nonexistent", "--ggml-device", "CPU"],
            "library must be a folder with libggml-base* and libggml.so (the registry of devices) but got",
        ),
        (
            ["--output", "/nonexistent/x"],
            "[validate] output must be a file in an existing folder but got /non",
        ),
        (["--output", "/"], "[validate] output must be a file in an existing folder but got /."),
    ],
)
def test_bad_usage_exits_2_and_says_what_is_wrong(validate, arguments, message):
    done = validate(*arguments)
    assert done.returncode == 2
    assert message in done.stderr
    assert done.stdout == ""


def test_ggml_named_by_environment_and_absent_exits_2_and_names_it(validate):
    done = validate(*ONE_CASE, NPU_ROPE_GGML_LIB="/nonexistent")
    assert done.returncode == 2
    assert "[ggml] library must be a folder" in done.stderr
    assert "but got /nonexistent." in done.stderr
    assert validate("--no-ggml", *ONE_CASE, NPU_ROPE_GGML_LIB="/nonexistent").returncode == 0


def test_messages_with_brackets_are_printed_unchanged(monkeypatch):
    def absent(library, device):
        raise GgmlUnavailable("[ggml] library must be here.")

    monkeypatch.setattr(command, "GgmlProcess", absent)
    monkeypatch.delenv("NPU_ROPE_GGML_LIB", raising=False)
    outcome = invoke(*ONE_CASE)
    assert outcome.exit_code == 0
    assert outcome.stdout.count("ggml: not compared: [ggml] library must be here.\n") == 1
    assert outcome.stderr == ""
    outcome = invoke(*ONE_CASE, "--quiet")
    assert outcome.stderr == "ggml is not compared: [ggml] library must be here.\n"
    assert "library" not in outcome.stdout


@pytest.mark.parametrize("form", ["console", "html", "json", "csv", "junit"])
def test_a_report_in_a_file_is_named_with_its_verdict(form, tmp_path):
    path = tmp_path / "report"
    outcome = invoke(*ONE_CASE, "--no-ggml", "--format", form, "--output", str(path))
    assert outcome.exit_code == 0
    assert outcome.stdout == ""
    assert outcome.stderr.endswith(f"report written to {path}: OK: 1 of 1 cases within their bounds\n")
    assert path.stat().st_size > 0


def test_an_interrupted_run_leaves_the_earlier_report_as_it_was(monkeypatch, tmp_path):
    def interrupted(case, names, process):
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "judge", interrupted)
    path = tmp_path / "out.json"
    path.write_text("earlier")
    outcome = invoke("--no-ggml", "--output", str(path), *ONE_CASE)
    assert outcome.exit_code != 0
    assert path.read_text() == "earlier"
    assert list(tmp_path.iterdir()) == [path]


def test_bit_equal_elements_are_counted_not_cases():
    small, large = (SimpleNamespace(shape=shape) for shape in ((1, 1, 1, 2), (1, 2, 3, 1)))
    results = [
        CaseResult(small, [Judgement("ggml", "ok", bit_equal=0.0)]),
        CaseResult(large, [Judgement("ggml", "ok", bit_equal=1.0)]),
    ]
    assert "bit-equal to policy ggml: 75.000% of elements" in summary_line("ggml", results, 1000)


@pytest.mark.long
def test_backend_forced_by_environment_and_absent_exits_2():
    forced = {**os.environ, "NPU_ROPE_BACKEND": "npu"}  # read at the import of npu_rope
    arguments = [sys.executable, "-m", "npu_rope.cli", "validate", *ONE_CASE]
    done = subprocess.run(arguments, env=forced, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "but it lacks the torch_npu package" in done.stderr


def test_json_has_every_judgement(validate, tmp_path):
    path = tmp_path / "out.json"
    done = validate("--format", "json", "--output", str(path), *ONE_CASE)
    document = json.loads(path.read_text())
    assert done.stdout == ""
    assert document["total"] == 1
    assert document["failed"] == 0
    (case,) = document["cases"]
    executors = {j["backend_name"]: j for j in case["judgements"]}
    assert {"reference", "cpu", "cpu:ggml", "sim", "sim:ascend310p"} <= set(executors)
    assert 0 < executors["cpu"]["error_over_bound"] <= 1


def test_csv_rows_have_test_backend_ops_columns(validate):
    done = validate("--format", "csv", "--no-ggml", *NINE_CASES)
    rows = list(csv.DictReader(io.StringIO(done.stdout)))
    columns = "backend_name op_name op_params test_mode supported passed error_message"
    assert list(rows[0])[:7] == columns.split()
    names = {r["backend_name"] for r in rows}
    assert names == {"reference", "cpu", "cpu:ggml", "sim", "sim:ascend310p", "sim:ascend950"}
    assert all(r["op_params"].startswith("type=f32,ne_a=[128,32,2,1]") for r in rows)
    assert {r["passed"] for r in rows} == {"True"}


def test_junit_counts_its_cases(validate):
    done = validate("--format", "junit", "--no-ggml", *ONE_CASE)
    root = ElementTree.fromstring(done.stdout)
    assert root.get("tests") == str(len(root.findall("testcase"))) == "6"
    assert root.get("failures") == "0"


def test_list_prints_names_only(validate):
    done = validate("--list", "--suite", "ggml", "--op", "ROPE_BACK")
    assert done.returncode == 0
    names = [case.name for case in all_cases(("ggml",)) if case.op == "ROPE_BACK"]
    assert done.stdout.splitlines() == names


@pytest.mark.parametrize("option", ["format", "output"])
def test_a_list_has_no_format_and_no_file(option, tmp_path):
    outcome = invoke("--list", f"--{option}", {"format": "json", "output": tmp_path / "list"}[option])
    assert outcome.exit_code == 2
    assert outcome.stderr == (
        "[validate] list must come without --format and --output but got one of them.\n"
    )
    assert not any(tmp_path.iterdir())


@pytest.mark.long
def test_most_long_cases_run_only_with_all(validate):
    every, default = (validate("--list", *more).stdout.splitlines() for more in (["--all"], []))
    assert every == [case.name for case in all_cases()]
    assert len(every) - len(default) == len(set(every) - set(default)) == 317
    assert all(re.search(r"ne_a=\[\d+,16,(2457|8192),1\]", name) for name in set(every) - set(default))
    cases = all_cases(("ggml",))
    assert validate("--list", "--suite", "ggml").stdout.splitlines() == [case.name for case in cases]
    kept = [case for case in cases if case.name in default and case.shape[1] >= LONG_TOKENS]
    for kind in (
        lambda case: case.op,
        lambda case: case.dtype,
        lambda case: case.params.rope_mode,
        lambda case: case.factors is None,
        lambda case: (case.params.freq_scale, case.params.ext_factor, case.params.attn_factor),
    ):
        assert {kind(case) for case in kept} == {kind(case) for case in cases if case.shape[1] >= LONG_TOKENS}


@pytest.mark.long
def test_the_last_line_and_the_files_count_the_cases_left_out(monkeypatch):
    long = [case for case in all_cases(("ggml",)) if case.shape[1] >= LONG_TOKENS][: 2 * LONG_STEP]
    monkeypatch.setattr(command, "_choose_cases", lambda *_: long)
    options = ("--backend", "cpu", "--no-ggml")
    text = "2 of 2 cases within their bounds; 24 long cases left out, which --all runs"
    assert invoke(*options).output.splitlines()[-1] == f"OK: {text}"
    assert json.loads(invoke(*options, "--format", "json").output)["left_out"] == 24
    assert text.replace("their ", "") in invoke(*options, "--format", "html").output
    assert "left out" not in invoke(*options, "--quiet", "--filter", "x").output


def test_a_wrong_result_exits_1_with_its_worst_element_and_a_reproducer(monkeypatch):
    correct_rope = npu_rope.rope

    def wrong(x, positions, params, factors=None, *, backend, forward=True, **rest):
        return correct_rope(
            x, positions, params, factors, backend=backend, forward=forward ^ (backend == "cpu"), **rest
        )

    monkeypatch.setattr(judge.npu_rope, "rope", wrong)
    outcome = invoke("--no-ggml", *ONE_CASE, *NO_RERUNS)
    assert outcome.exit_code == 1
    assert re.search(
        r"  cpu: error \S+, worst element \S+ times its bound at .*, position \d+", outcome.output
    )
    assert "reproduce: npu-rope validate --suite models --op 'llama-3.1-8b/decode" in outcome.output
    monkeypatch.setenv("ASCEND_SIM_SOC", "Ascend910B2")
    outcome = invoke("--no-ggml", "--backend", "cpu", *ONE_CASE, *NO_RERUNS)
    simulated = "npu-rope sim --soc Ascend910B2 -- python -m npu_rope.cli validate --suite models --op "
    assert f"reproduce: {simulated}'llama-3.1-8b/decode" in outcome.output


# ---- simulated devices -----------------------------------------------------------------------------

SIMULATED = ["--backend", "sim", "--backend", "sim:ascend310p", "--no-ggml", "--suite", "models"]
THREE_DTYPES = [*SIMULATED, "--filter", r"llama-3.1-8b/(decode|prefill\(type=f16)"]  # f32, f16, bf16
NO_BFLOAT16 = "Ascend310P has no bfloat16"


def invoke(*arguments):
    return CliRunner(env={"COLUMNS": "200"}).invoke(app, ["validate", *arguments])


def test_the_console_lists_what_a_device_does_not_support():
    done = invoke(*THREE_DTYPES, "--verbose")
    assert done.exit_code == 0, done.output
    lines = {line.split("/")[-1]: line for line in done.stdout.splitlines() if line.startswith("ok ")}
    assert len(lines) == 3
    for name, line in lines.items():
        assert ("unsupported" in line) == ("type=bf16" in name)
    on_910b, on_310p = (line for line in done.stdout.splitlines() if line.startswith("sim"))
    assert on_910b.startswith(
        "sim (Ascend910B, simulated; float32 attributes) vs float64 (exact): 3 of 3 within bounds"
    )
    assert on_310p.startswith(
        "sim:ascend310p (simulated; float32 attributes) vs float64 (exact): 2 of 2 within bounds"
    )
    for line in (on_910b, on_310p):
        assert re.search(r"; 9\d\.\d+%|; 100\.000% of 16-bit elements within one ulp of cpu's", line)
    assert f"1 unsupported ({NO_BFLOAT16})" in on_310p
    assert "unsupported" not in on_910b


def test_json_has_each_device_and_its_agreement_with_the_cpu():
    document = json.loads(invoke(*THREE_DTYPES, "--format", "json").stdout)
    assert (document["total"], document["failed"]) == (3, 0)
    for case in document["cases"]:
        on_910b, on_310p = case["judgements"]
        assert (on_910b["backend_name"], on_310p["backend_name"]) == ("sim", "sim:ascend310p")
        assert on_910b["verdict"] == "ok"
        assert 0 < on_910b["error_over_bound"] <= 1
        assert on_910b["angle_policy"] == "exact"
        assert (on_910b["near_cpu_share"] is None) == (case["dtype"] == "float32")
        assert case["dtype"] == "float32" or on_910b["near_cpu_share"] >= 0.995
        supported = case["dtype"] != "bfloat16"
        assert on_310p["supported"] is supported
        assert (on_310p["verdict"], on_310p["error_message"]) == (
            ("ok", "") if supported else ("unsupported", NO_BFLOAT16)
        )


def test_csv_has_the_share_near_the_cpu_and_the_reason():
    rows = list(csv.DictReader(io.StringIO(invoke(*THREE_DTYPES, "--format", "csv").stdout)))
    assert [r["backend_name"] for r in rows] == ["sim", "sim:ascend310p"] * 3
    for r in rows:
        bfloat16 = "type=bf16" in r["op_params"]
        unsupported = bfloat16 and r["backend_name"] == "sim:ascend310p"
        assert r["supported"] == str(not unsupported)
        assert r["error_message"] == (NO_BFLOAT16 if unsupported else "")
        judged_near = not unsupported and "type=f32" not in r["op_params"]
        assert bool(r["near_cpu_share"]) == judged_near


def test_junit_skips_what_a_device_does_not_support():
    root = ElementTree.fromstring(invoke(*THREE_DTYPES, "--format", "junit").stdout)
    assert (root.get("tests"), root.get("failures"), root.get("skipped")) == ("6", "0", "1")
    (skipped,) = (case for case in root.findall("testcase") if case.find("skipped") is not None)
    assert skipped.get("classname") == "models.sim:ascend310p"
    assert skipped.find("skipped").get("message") == NO_BFLOAT16


@pytest.fixture
def simulate_change(changed_kernel, monkeypatch):
    """Return a function that makes the simulator run rope's float32 kernel with the named change."""
    return lambda name: monkeypatch.setenv(changed.KERNELS_VARIABLE, str(changed_kernel(name)))


DECODE_ON_910B = [*SIMULATED[:2], *SIMULATED[4:], "--filter", "llama-3.1-8b/decode(type=f32"]
RULE = "[rope] kernel must keep the simulator's rules but got SIM-HAZARD-02 "


@pytest.mark.long
@pytest.mark.parametrize("format_", ["console", "json", "csv", "junit"])
def test_a_kernel_that_breaks_a_rule_fails_with_the_rule(format_, simulate_change):
    simulate_change("no order of vector instructions")
    done = invoke(*DECODE_ON_910B, "--format", format_)
    assert done.exit_code == 1
    if format_ == "console":
        assert f"  sim: {RULE}" in done.stdout
        assert (
            "sim (Ascend910B, simulated; float32 attributes) vs float64 (exact): 0 of 1 within bounds"
            in done.stdout
        )
        assert "reproduce: npu-rope validate --suite models --op 'llama-3.1-8b/decode" in done.stdout
        assert "FAIL: 0 of 1 cases within their bounds" in done.stdout
    elif format_ == "json":
        (judgement,) = json.loads(done.stdout)["cases"][0]["judgements"]
        assert judgement["verdict"] == FAIL
        assert judgement["error_message"].startswith(RULE)
        assert judgement["supported"] is True
    elif format_ == "csv":
        (row,) = csv.DictReader(io.StringIO(done.stdout))
        assert row["passed"] == "False"
        assert row["error_message"].startswith(RULE)
    else:
        root = ElementTree.fromstring(done.stdout)
        assert root.get("failures") == "1"
        assert root.find("testcase/failure").get("message").startswith(RULE)


@pytest.mark.long
def test_a_kernel_with_a_wrong_sign_fails_with_its_worst_element(simulate_change):
    simulate_change("sine's sign")
    done = invoke(*DECODE_ON_910B)
    assert done.exit_code == 1
    assert re.search(r"  sim: error \S+, worst element \S+ times its bound at \(b, s, n, d\) = ", done.stdout)
    simulate_change("nothing")
    assert invoke(*DECODE_ON_910B).exit_code == 0


def test_a_missing_simulator_exits_2_only_if_it_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(simulated_package, "load", simulated_package.load.__wrapped__)  # not cached
    monkeypatch.setattr(simulated_package, "find", lambda: None)
    done = invoke(*DECODE_ON_910B)
    assert done.exit_code == 2
    assert "[sim] backend must be available but its operator package simulated_package was" in done.stderr
    done = invoke("--no-ggml", "--suite", "models", "--filter", "llama-3.1-8b/decode(type=f32")
    assert done.exit_code == 0
    assert "simulated" not in done.stdout


# ---- ggml's devices --------------------------------------------------------------------------------

FOUR_CASES = ["--suite", "ggml", "--filter", r"^ROPE(_BACK)?\(type=f32,ne_a=\[80,16,2,1\].*v=0"]


@pytest.fixture
def stand_ins(monkeypatch):
    """Give ggml a device that refuses ROPE_BACK (CANN0) and one with wrong results (SHIFT0)."""
    monkeypatch.setattr(command.GgmlProcess, "worker", without_torch.STAND_INS)


@pytest.mark.peer
def test_an_unknown_device_exits_2_and_names_the_devices(validate):
    done = validate(*FOUR_CASES, "--ggml-device", "CANN0")
    assert done.returncode == 2
    assert "[ggml] device must be one of CPU but got CANN0." in done.stderr
    assert done.stdout == ""


@pytest.mark.long
@pytest.mark.peer
def test_a_device_is_compared_only_with_the_cpu_unless_others_are_named(validate):
    done = validate(*FOUR_CASES, "--ggml-device", "CPU")
    assert done.returncode == 0, done.stdout
    assert "ggml device: CPU (" in done.stdout
    assert "ggml CPU vs ggml's angles: 4 of 4 within bounds" in done.stdout
    assert "cpu vs float64 (exact): 4 of 4" in done.stdout
    assert "sim (" not in done.stdout
    done = validate(*FOUR_CASES, "--ggml-device", "CPU", "--backend", "reference")
    assert "reference vs float64 (exact): 4 of 4" in done.stdout
    assert "cpu vs" not in done.stdout


@pytest.mark.peer
@pytest.mark.usefixtures("stand_ins")
def test_refused_cases_are_listed_by_reason_and_do_not_fail():
    done = invoke(*FOUR_CASES, "--ggml-device", "CANN0", "--verbose")
    assert done.exit_code == 0, done.output
    assert "ggml CANN0 vs ggml's angles: 2 of 2 within bounds" in done.stdout
    assert "2 unsupported (CANN0 refuses ROPE_BACK, but supports the call if it is forward)" in done.stdout
    _, _, listed = done.stdout.partition(
        "\nCANN0 refuses ROPE_BACK, but supports the call if it is forward: 2 cases\n"
    )
    names = [line.strip() for line in listed.splitlines() if line.startswith("  ROPE_BACK(")]
    assert [re.search(r"ff=\d", name).group() for name in names] == ["ff=0", "ff=1"]
    last = done.stdout.splitlines()[-1]
    assert last == "OK: 4 of 4 cases within their bounds; CANN0: 2 of 4 run, 2 refused"
    brief = invoke(*FOUR_CASES, "--ggml-device", "CANN0").stdout
    assert "  ROPE_BACK(" not in brief
    assert "2 unsupported (CANN0 refuses ROPE_BACK, but supports the call if it is forward)" in brief


@pytest.mark.long
@pytest.mark.peer
@pytest.mark.usefixtures("stand_ins")
def test_a_device_that_refuses_everything_is_not_ok():
    done = invoke(
        "--suite", "ggml", "--filter", r"^ROPE_BACK\(type=f32,ne_a=\[64", "--ggml-device", "CANN0", "--quiet"
    )
    assert done.exit_code == 0, done.output
    expected = (
        r"NOT RUN: CANN0: 0 of (\d+) run, \1 refused; other back ends: \1 of \1 cases within their bounds"
    )
    assert re.fullmatch(expected, done.stdout.splitlines()[-1])
    shift = invoke(*FOUR_CASES, "--ggml-device", "SHIFT0").stdout.splitlines()[-1]
    assert shift == "FAIL: 0 of 4 cases within their bounds; SHIFT0: 4 of 4 run, 0 refused"


def test_help_names_every_operator_and_suite():
    help_ = " ".join(invoke("--help").stdout.replace("│", " ").split())
    for op in {case.op for case in all_cases()}:
        assert re.search(rf"\b{op}\b", help_)
    for suite in SUITES:
        assert f"{suite}: " in help_


@pytest.mark.long
@pytest.mark.peer
@pytest.mark.usefixtures("stand_ins")
def test_a_failing_device_gets_a_reproducer_for_each_tool(monkeypatch):
    monkeypatch.delenv("NPU_ROPE_GGML_LIB", raising=False)
    library_dir = find_library_dir()
    done = invoke(*FOUR_CASES, "--ggml-lib", str(library_dir), "--ggml-device", "SHIFT0")
    assert done.exit_code == 1
    assert "ggml SHIFT0 vs ggml's angles: 0 of 4 within bounds" in done.stdout
    assert re.search(
        r"  SHIFT0: error \S+, worst element \S+ times its bound at \(b, s, n, d\) = \(0, \d, \d+, \d+\),"
        r" position \d+ \((time|height|width|extra)\), angle \S+: got \S+, expected \S+;"
        r" beyond the bound: \S+% of the elements; NMSE \S+, above test-backend-ops' limit of 1e-07\n",
        done.stdout,
    )
    (name,) = re.findall(r"^  example: (.*)$", done.stdout, re.M)
    own_line, ggml_line = (line for line in done.stdout.splitlines() if f"'{name}" in line)
    assert own_line.startswith(f"  reproduce: npu-rope validate --suite ggml --op '{name}")
    assert own_line.endswith(f"' --ggml-lib {library_dir} --ggml-device SHIFT0")
    assert ggml_line.startswith(f"  reproduce: test-backend-ops test -b SHIFT0 -o '{name}")
    again = invoke(*shlex.split(own_line.partition("validate ")[2]))
    assert again.exit_code == 1
    assert "ggml SHIFT0 vs ggml's angles: 0 of 1 within bounds" in again.stdout


def test_both_reproducers_run_as_this_process_does(monkeypatch):
    for name in [name for name in os.environ if name.startswith("GGML_")]:
        monkeypatch.delenv(name)
    case = all_cases(("ggml",))[0]
    judgement = Judgement("ggml", FAIL, occurrence=Occurrence(ALONE, 3, 3))
    info = GgmlInfo("1", "", "libggml.so", device="CANN0")
    report = ValidationReport(["cpu"], info, "", "build/bin")
    options = f"--suite ggml --op '{case.name}' --ggml-lib build/bin --ggml-device CANN0"
    own = f"test-backend-ops test -b CANN0 -o '{case.name}'"
    commands = fault_report.reproducers(CaseResult(case), judgement, report)
    assert commands == [f"npu-rope validate {options}", own]
    for name, value in (("SOC", "Ascend310P3"), ("DEVICES", "2"), ("STREAMS", "immediate"), ("SEED", "3")):
        monkeypatch.setenv(f"ASCEND_SIM_{name}", value)
    monkeypatch.setenv("GGML_CANN_ACL_GRAPH", "off")
    simulated = (
        "GGML_CANN_ACL_GRAPH=off npu-rope sim --soc Ascend310P3 --devices 2 --streams immediate --seed 3 --"
    )
    commands = fault_report.reproducers(CaseResult(case), judgement, report)
    assert commands == [f"{simulated} python -m npu_rope.cli validate {options}", f"{simulated} {own}"]


@pytest.mark.parametrize("on_path", ["nothing", "other programs"])
def test_commands_have_paths_where_the_environment_is_not_active(tmp_path, monkeypatch, on_path):
    names = ("npu-rope", "python", "python3")
    other = tmp_path / "other"
    for folder in (other, tmp_path / "environment"):
        folder.mkdir()
        for name in names:
            (folder / name).touch(mode=0o755)
    monkeypatch.setenv("PATH", str(other) if on_path == "other programs" else str(tmp_path))
    own = tmp_path / "environment"
    monkeypatch.setattr(backends.sys, "executable", str(own / "python3"))
    monkeypatch.delenv("ASCEND_SIM_SOC", raising=False)
    assert backends.command_line() == f"{own}/npu-rope"
    monkeypatch.setenv("ASCEND_SIM_SOC", "Ascend910B3")
    simulation = f"{own}/npu-rope sim --soc Ascend910B3 -- "
    assert backends.simulation() == simulation
    assert backends.command_line() == f"{simulation}{own}/python3 -m npu_rope.cli"
    monkeypatch.setenv("PATH", os.pathsep.join([str(own), str(other)]))
    assert backends.command_line() == "npu-rope sim --soc Ascend910B3 -- python -m npu_rope.cli"


def test_the_text_of_a_result_that_is_not_finite_has_neither_error_nor_nmse():
    worst = Worst((0, 0, 0, 0), None, 0.0, float("nan"), 1.5)
    judgement = Judgement(
        "ggml", FAIL, ratio=float("inf"), worst=worst, region="25% of the elements", nmse=float("nan")
    )
    text = fault_report.explain(judgement)
    assert text == (
        "worst element at (b, s, n, d) = (0, 0, 0, 0): got nan, expected 1.5; "
        "beyond the bound: 25% of the elements"
    )
    finite = replace(judgement, ratio=3.0, max_error=0.5, worst=replace(worst, got=1.0), nmse=0.1)
    assert fault_report.explain(finite).startswith(
        "error 0.5, worst element 3 times its bound at (b, s, n, d)"
    )
    assert "; NMSE 0.1, above" in fault_report.explain(finite)


def test_a_filter_that_is_an_operator_names_the_option_for_operators():
    outcome = invoke("--filter", "NPU_MROPE", "--list")
    assert outcome.exit_code == 2
    assert "filter must be part of a case's name but got the operator 'NPU_MROPE'" in outcome.output
    assert "Choose its cases with --op NPU_MROPE." in outcome.output


@pytest.mark.long
@pytest.mark.peer
@pytest.mark.usefixtures("stand_ins")
def test_files_name_the_device_and_distinguish_refused_from_failed():
    rows = list(
        csv.DictReader(io.StringIO(invoke(*FOUR_CASES, "--ggml-device", "CANN0", "--format", "csv").stdout))
    )
    device = [r for r in rows if r["backend_name"] == "CANN0"]
    assert [(r["op_name"], r["supported"], r["passed"]) for r in device] == [
        ("ROPE", "True", "True"),
        ("ROPE", "True", "True"),
        ("ROPE_BACK", "False", "False"),
        ("ROPE_BACK", "False", "False"),
    ]
    assert all(r["reproduce"].startswith("test-backend-ops test -b CANN0 -o 'ROPE") for r in device)
    assert float(device[0]["nmse"]) <= 1e-7
    assert device[2]["error_message"] == "CANN0 refuses ROPE_BACK, but supports the call if it is forward"
    document = json.loads(invoke(*FOUR_CASES, "--ggml-device", "SHIFT0", "--format", "json").stdout)
    assert document["environment"]["ggml device"].startswith("SHIFT0 (")
    assert document["failed"] == 4
    root = ElementTree.fromstring(invoke(*FOUR_CASES, "--ggml-device", "SHIFT0", "--format", "junit").stdout)
    failures = [e.find("failure") for e in root.findall("testcase") if e.find("failure") is not None]
    assert len(failures) == 4
    assert all("test-backend-ops test -b SHIFT0" in f.text for f in failures)


def test_cases_that_an_old_ggml_lacks_are_listed_and_do_not_fail(monkeypatch):
    def too_old(case, names, process):
        message = "ggml 0.9.0 has no ggml_set_rows"
        return CaseResult(case, [Judgement("cpu", "ok"), Judgement("ggml", "unsupported", message=message)])

    monkeypatch.setattr(command, "judge", too_old)
    done = invoke("--no-ggml", "--suite", "ggml", "--op", "ROPE_SET_ROWS", "--verbose")
    assert done.exit_code == 0
    assert "ggml vs ggml's angles: 0 of 0 within bounds; 48 unsupported" in done.stdout
    _, _, listed = done.stdout.partition("\nggml 0.9.0 has no ggml_set_rows: 48 cases\n")
    assert listed.count("  ROPE_SET_ROWS(") == 48
