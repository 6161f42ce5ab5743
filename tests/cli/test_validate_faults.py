"""The faults that npu-rope validate prints: when they occur, what a process printed, and their commands."""

import csv
import io
import json
import re
import shlex
from xml.etree import ElementTree

import pytest
import without_torch
from rich.console import Console
from typer.testing import CliRunner

from npu_rope.cli import fault_report, report_files
from npu_rope.cli import validate as command
from npu_rope.cli.app import app
from npu_rope.cli.report import ConsolePrinter, Detail
from npu_rope.cli.validation_report import ValidationReport
from npu_rope.testing.ggml import GgmlInfo
from npu_rope.testing.outcomes import (
    AFTER,
    ALONE,
    FAIL,
    NOT_ALONE,
    SOMETIMES,
    CaseResult,
    Judgement,
    Occurrence,
)
from npu_rope.testing.suites import all_cases

CASES = {case.name: case for case in all_cases(("ggml",))}
# Cases with the freq_base 10000 in mode normal. Their freq_scale is 1, 1, 1.4245.
SMALL = [name for name in CASES if name.startswith("ROPE(type=f32,ne_a=[128,32,2,1],n_dims=128,mode=0,")]
FIRST, SECOND = SMALL[0], next(name for name in SMALL if "fs=1.424500" in name)


def invoke(*arguments):
    return CliRunner(env={"COLUMNS": "200"}).invoke(app, ["validate", *arguments])


@pytest.fixture
def stand_ins(monkeypatch):
    """Give ggml the devices of stand_in_devices.py."""
    monkeypatch.setattr(command.GgmlProcess, "worker", without_torch.STAND_INS)


def printed_command(output):
    """Return the arguments of the only npu-rope command in the output."""
    (line,) = re.findall(r"^  reproduce: npu-rope validate (.*)$", output, re.M)
    return shlex.split(line)


# ---- when a failure occurs -----------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.peer
@pytest.mark.usefixtures("stand_ins")
def test_a_stale_table_names_the_case_before_and_the_command_shows_it_again():
    ops = ["--op", SMALL[1], "--op", FIRST, "--op", SECOND]
    done = invoke("--suite", "ggml", *ops, "--ggml-device", "STALE0")
    assert done.exit_code == 1, done.output
    assert re.search(r"^1 +STALE0: wrong values +1 of 3 +\S+ +after another", done.stdout, re.M)
    assert f"  fails: only after {FIRST} (3 of 3 runs in new processes); alone it passes\n" in done.stdout
    assert "test-backend-ops test" not in done.stdout  # it would pass
    again = printed_command(done.stdout)
    assert [word for word in again if word.startswith("ROPE")] == [FIRST, SECOND]
    shown = invoke(*again)
    assert shown.exit_code == 1
    assert f"  example: {SECOND}\n" in shown.stdout
    for name in (FIRST, SECOND):
        assert invoke("--suite", "ggml", "--op", name, "--ggml-device", "STALE0").exit_code == 0


@pytest.mark.long
@pytest.mark.peer
@pytest.mark.usefixtures("stand_ins")
def test_a_failure_of_every_second_process_is_repeated_by_the_command(monkeypatch, tmp_path):
    processes = tmp_path / "processes"
    monkeypatch.setenv("ODD_FILE", str(processes))
    options = ["--suite", "ggml", "--op", FIRST, "--ggml-device", "ODD0"]
    done = invoke(*options)
    assert done.exit_code == 1, done.output
    assert re.search(r"^1 +ODD0: wrong values +1 of 1 +\S+ +sometimes", done.stdout, re.M)
    assert "  fails: only sometimes (1 of 3 runs," in done.stdout
    again = printed_command(done.stdout)
    assert int(again[again.index("--repeat") + 1]) > 5
    if len(processes.read_bytes()) % 2 == 0:
        processes.write_bytes(b".")  # the next process is right
    assert invoke(*options).exit_code == 0
    processes.write_bytes(b".")
    shown = invoke(*again)
    assert shown.exit_code == 1
    assert "FAIL: 0 of 1 cases within their bounds" in shown.stdout


@pytest.mark.long
@pytest.mark.peer
@pytest.mark.usefixtures("stand_ins")
def test_repeated_cases_that_pass_are_counted_once():
    done = invoke("--suite", "ggml", "--op", FIRST, "--op", SECOND, "--ggml-device", "CPU", "--repeat", "3")
    assert done.exit_code == 0
    assert done.stdout.endswith("OK: 2 of 2 cases within their bounds; CPU: 2 of 2 run, 0 refused\n")


class FailingBackend:
    """A double of the processes in which the back ends run: their last case fails after ``culprit``."""

    culprit = ""

    def __init__(self, ggml):
        pass

    def __call__(self, cases, executor):
        return self.culprit in [case.name for case in cases[:-1]]


def test_a_back_end_that_fails_only_after_another_case(monkeypatch):
    names = [case.name for case in all_cases(("models", "onnx"))]
    last = names[-1]

    def judge(case, backends, ggml):
        return CaseResult(case, [Judgement("cpu", FAIL if case.name == last else "ok", ratio=2.0)])

    monkeypatch.setattr(command, "judge", judge)
    monkeypatch.setattr(command, "NewProcesses", FailingBackend)
    monkeypatch.setattr(FailingBackend, "culprit", names[40])
    done = invoke("--suite", "onnx", "--suite", "models", "--backend", "cpu", "--no-ggml")
    assert done.exit_code == 1
    suite_of = {case.name: case.suite for case in all_cases(("models", "onnx"))}
    suites = [word for name in (names[40], last) for word in ("--suite", suite_of[name])]
    ops = ["--op", names[40], "--op", last]
    assert printed_command(done.stdout) == [*suites, *ops, "--backend", "cpu", "--no-ggml"]


def test_the_progress_of_the_reruns_names_their_limit(monkeypatch):
    monkeypatch.setattr(command, "PROGRESS_SECONDS", 0)
    monkeypatch.setattr(command, "NewProcesses", FailingBackend)
    monkeypatch.setattr(
        command, "judge", lambda case, backends, ggml: CaseResult(case, [Judgement("cpu", FAIL)])
    )
    options = ["--suite", "onnx", "--filter", "prefill", "--backend", "cpu", "--no-ggml"]
    done = invoke(*options, "--rerun-seconds", "20")
    lines = re.findall(r"^running failures again for 20 s at most: (\d of 3 cases)", done.stderr, re.M)
    assert lines == ["1 of 3 cases", "2 of 3 cases"]


def test_an_interruption_of_the_reruns_leaves_the_results(monkeypatch):
    class Interrupted(FailingBackend):
        def __call__(self, cases, executor):
            raise KeyboardInterrupt

    monkeypatch.setattr(command, "NewProcesses", Interrupted)
    monkeypatch.setattr(
        command, "judge", lambda case, backends, ggml: CaseResult(case, [Judgement("cpu", FAIL)])
    )
    done = invoke("--suite", "onnx", "--filter", "prefill", "--backend", "cpu", "--no-ggml")
    assert done.exit_code == 1
    assert "\n3 failures not run again: the time for this ended (--rerun-seconds), or" in done.stdout
    assert done.stdout.endswith("FAIL: 0 of 3 cases within their bounds\n")


def test_the_table_of_faults_wraps_a_long_cause_unless_verbose(monkeypatch):
    cause = "ggml ended with SIGABRT: " + "out must lie inside its allocation " * 6
    failed = Judgement("cpu", FAIL, message=cause)
    monkeypatch.setattr(command, "judge", lambda case, backends, ggml: CaseResult(case, [failed]))
    options = ["--suite", "onnx", "--op", all_cases(("onnx",))[0].name, "--backend", "cpu", "--no-ggml"]
    for more, is_wrapped in (("--quiet", True), ("--verbose", False)):
        lines = invoke(*options, "--rerun-seconds", "0", more).stdout.splitlines()
        first = next(i for i, line in enumerate(lines) if re.match(r"# +fault +cases", line))
        table = lines[first : lines.index("", first)]
        assert (len(table) > 2) == is_wrapped
        assert (max(map(len, table)) <= 110) == is_wrapped
        words = " ".join(line[3:] for line in table[1:]).split()
        for word in cause.split():
            assert word in words


def test_the_seconds_for_reruns_may_be_none(monkeypatch):
    def unused(ggml):
        raise AssertionError

    monkeypatch.setattr(command, "NewProcesses", unused)
    monkeypatch.setattr(
        command, "judge", lambda case, backends, ggml: CaseResult(case, [Judgement("cpu", FAIL)])
    )
    options = ["--suite", "onnx", "--op", all_cases(("onnx",))[0].name, "--backend", "cpu", "--no-ggml"]
    done = invoke(*options, "--rerun-seconds", "0")
    assert done.exit_code == 1
    assert "  fails: in this run; it was not run again\n" in done.stdout


# ---- a process that ends -------------------------------------------------------------------------------


def _first_of_mode(number, count):
    names = [name for name in CASES if re.match(rf"ROPE\(type=f32,.*n_dims=128,mode={number},", name)]
    return names[:count]


ABORTING = _first_of_mode(40, 3)
PRINTED = [
    "EZ9999: Inner Error!",
    "        The block dimension must be at least 1 but got 0",
    "CANN error: EZ9999: Inner Error!",
    "  current device: 0, in function aclnn_rope",
    "ggml-cann.cpp:70: CANN error",
]


@pytest.fixture
def abort(stand_ins):
    """Return a function that runs cases of which those in mode imrope abort."""
    chosen = [word for name in (*_first_of_mode(2, 2), *ABORTING) for word in ("--op", name)]
    return lambda *options: invoke(
        "--suite", "ggml", *chosen, "--ggml-device", "ABORT0", "--rerun-seconds", "8", *options
    )


@pytest.mark.long
@pytest.mark.peer
def test_an_abort_shows_all_that_the_process_printed(abort):
    done = abort()
    assert done.exit_code == 1
    kind = "ABORT0: ended with SIGABRT: CANN error in aclnn_rope: EZ9999: Inner Error!"
    assert re.search(rf"^1 +{re.escape(kind)} +3 of 5 +- +alone", done.stdout, re.M)
    (example,) = re.findall(r"^  example: (.*)$", done.stdout, re.M)
    assert example in ABORTING
    lines = "".join(f"    {line}\n" for line in PRINTED)
    assert "  last lines of the process:\n" in done.stdout
    assert f"\n{lines}  reproduce: npu-rope validate " in done.stdout


# ---- the table -----------------------------------------------------------------------------------------

LIBRARY = "/home/user/llama.cpp/build/bin"
DEVICE = GgmlInfo("0.25", "abc", "libggml.so", device="CANN0", description="a device")


def _report(*occurrences, output=()):
    report = ValidationReport(
        ["cpu"], DEVICE, "", "/home/user/llama.cpp/build/bin", selection=["--suite", "ggml"]
    )
    cases = list(CASES.values())
    for case, occurrence in zip(cases, occurrences, strict=False):
        message = (
            ""
            if occurrence is None or occurrence.when == ALONE
            else f"ggml ended with SIGABRT: {occurrence.when}"
        )
        report.results.append(
            CaseResult(
                case,
                [
                    Judgement("cpu", "ok", ratio=0.5, max_error=1e-8),
                    Judgement(
                        "ggml",
                        FAIL,
                        ratio=1234567.0,
                        max_error=1.5,
                        message=message,
                        occurrence=occurrence,
                        output=output,
                    ),
                ],
            )
        )
    return report


EACH = [
    Occurrence(ALONE, 3, 3),
    Occurrence(AFTER, 3, 3, (CASES[FIRST],)),
    Occurrence(SOMETIMES, 1, 3),
    Occurrence(NOT_ALONE, 0, 3),
]


def _printed(report, columns, is_terminal=True):
    stream = io.StringIO()
    console = Console(
        file=stream, width=columns, force_terminal=is_terminal, color_system=None, highlight=False
    )
    fault_report.print_faults(console, report, console.width)
    return stream.getvalue()


@pytest.mark.parametrize("columns", [80, 120])
def test_the_lines_of_faults_fit_a_terminal(columns):
    text = _printed(_report(*EACH, output=("word " * 60,) * 30), columns)
    # The names of cases and the commands are not broken, so that they can be copied.
    wide = [
        line
        for line in text.splitlines()
        if len(line) > columns and not line.startswith("  reproduce: ") and "ROPE(" not in line
    ]
    assert wide == []
    assert text.count("  reproduce: npu-rope validate") == 4
    assert "(18 earlier ones are written with --output FILE)" in text


def test_a_file_has_all_lines_of_a_process():
    text = _printed(_report(EACH[0], output=("line",) * 300), 100_000, is_terminal=False)
    assert sum(line == "    line" for line in text.splitlines()) == 300


def _file(writer, report):
    stream = io.StringIO()
    writer(stream, report)
    return stream.getvalue()


def test_files_have_the_faults_and_what_the_processes_printed():
    report = _report(*EACH, output=tuple(PRINTED))
    printed = "\n".join(PRINTED)
    document = json.loads(_file(report_files.write_json, report))
    assert [fault["fails"] for fault in document["faults"]] == [o.when for o in EACH]
    assert all(fault["backend_name"] == "CANN0" for fault in document["faults"])
    assert [fault["cases"] for fault in document["faults"]] == [[name] for name in list(CASES)[:4]]
    on_device = [case["judgements"][1] for case in document["cases"]]
    assert all(judgement["output"] == PRINTED for judgement in on_device)
    assert [judgement["fails_after"] for judgement in on_device] == [[], [FIRST], [], []]
    rows = list(csv.DictReader(io.StringIO(_file(report_files.write_csv, report))))[1::2]
    assert [(row["fails"], row["fails_after"], row["output"]) for row in rows] == [
        (o.when, FIRST if o.after else "", printed) for o in EACH
    ]
    root = ElementTree.fromstring(_file(report_files.write_junit, report))
    assert [element.text for element in root.iter("system-err")] == [printed] * 4
    first_lines = [element.text.splitlines()[0] for element in root.iter("failure")]
    assert first_lines[1] == f"fails only after {FIRST} (3 of 3 runs in new processes); alone it passes"


def test_junit_has_only_characters_of_xml():
    text = _file(report_files.write_junit, _report(EACH[0], output=("\x1b[31mred\x00",)))
    assert next(ElementTree.fromstring(text).iter("system-err")).text == "\ufffd[31mred\ufffd"


def test_each_occurrence_has_its_words_and_its_command():
    text = _printed(_report(*EACH), 100_000, is_terminal=False)
    case = list(CASES)
    device = f"--ggml-lib {LIBRARY} --ggml-device CANN0"
    assert re.search(r"^1 +CANN0: wrong values +1 of 4 +1\.23e\+06 +alone *$", text, re.M)
    for expected in (
        "fails: alone (3 of 3 runs in new processes)",
        f"reproduce: npu-rope validate --suite ggml --op '{case[0]}' {device}",
        f"reproduce: test-backend-ops test -b CANN0 -o '{case[0]}'",
        f"fails: only after {FIRST} (3 of 3 runs in new processes); alone it passes",
        f"reproduce: npu-rope validate --suite ggml --op '{FIRST}' --op '{case[1]}' {device}",
        "fails: only sometimes (1 of 3 runs, with and without the cases before it)",
        f"reproduce: npu-rope validate --suite ggml --op '{case[2]}' --repeat 12 {device}",
        "fails: not alone; the time ended before the cases that must run before it were found",
        f"reproduce: npu-rope validate --suite ggml {device}",
    ):
        assert f"\n  {expected}\n" in text
    assert text.count("test-backend-ops test") == 1


def test_the_summary_fits_a_narrow_terminal(monkeypatch):
    executors = ["cpu", "reference", "sim", "sim:ascend310p", "cpu:ggml", "ggml"]
    report = ValidationReport(["cpu"], None, "none")
    names = list(CASES)[:3]
    for name in names:
        report.results.append(CaseResult(CASES[name], [Judgement(e, "ok", ratio=0.5) for e in executors]))
    stream = io.StringIO()
    printer = ConsolePrinter(stream, report, Detail.SUMMARY)
    printer.console = Console(file=stream, width=80, force_terminal=True, color_system=None, highlight=False)
    printer.summary()
    lines = stream.getvalue().splitlines()
    assert [line for line in lines if len(line) > 80 and "ROPE(" not in line] == []
    heads = [line.split() for line in lines if re.match(r" {12} +\S", line)]
    assert [executor for head in heads for executor in head] == executors


# ---- options -------------------------------------------------------------------------------------------


def test_named_cases_run_in_the_order_of_the_options(monkeypatch):
    ran = []

    def judge(case, backends, ggml):
        ran.append(case.name)
        return CaseResult(case, [Judgement("cpu", "ok")])

    monkeypatch.setattr(command, "judge", judge)
    invoke("--op", SECOND, "--op", FIRST, "--no-ggml", "--backend", "cpu")
    invoke("--op", FIRST, "--op", SECOND, "--no-ggml", "--backend", "cpu")
    assert ran == [SECOND, FIRST, FIRST, SECOND]


def test_each_name_must_match_a_case():
    done = invoke("--op", FIRST, "--op", "ROPER", "--no-ggml")
    assert done.exit_code == 2
    assert "[validate] op must match a case but got 'ROPER'." in done.stderr


# ---- sequences -----------------------------------------------------------------------------------------


def test_options_of_drawn_cases_need_their_suite():
    done = invoke("--suite", "ggml", "--seed", "1")
    assert done.exit_code == 2
    assert "[validate] seed must come with --suite sequences but got ggml." in done.stderr


@pytest.mark.long
@pytest.mark.peer
@pytest.mark.usefixtures("stand_ins")
@pytest.mark.parametrize(
    ("device", "fault"),
    [
        ("STALE0", "STALE0: wrong values (calls that differ in freq_scale)"),
        pytest.param(
            "FREES0",
            "FREES0: ended with SIGABRT: CANN error in aclnn_rope: EZ9999: Inner Error!",
            marks=pytest.mark.slow,  # each run that fails ends a process
        ),
    ],
)
def test_the_command_repeats_the_two_calls_of_a_fault(device, fault):
    drawn = ["--suite", "sequences", "--seed", "48", "--cases", "2", "--backend", "cpu"]
    done = invoke(*drawn, "--ggml-device", device, "--verbose")  # which does not wrap the rows of faults
    assert done.exit_code == 1, done.output
    row = rf"^1 +{re.escape(fault)} +1 of 2 +\S+ +after another\s*$"
    assert re.search(row, done.stdout, re.M), done.stdout
    again = printed_command(done.stdout)
    name = again[again.index("--op") + 1]
    first, second = name.split(" + ")
    assert first.count("rope(") == second.count("rope(") == 1
    assert invoke(*again).exit_code == 1
    for call in (first, second):
        assert invoke("--suite", "sequences", "--op", call, "--ggml-device", device).exit_code == 0
