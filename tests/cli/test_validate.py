"""npu-rope validate as a user runs it: filters, formats, exit status."""

import csv
import io
import json
import os
import subprocess
import sys
from types import SimpleNamespace
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

import npu_rope
from npu_rope.cli import validate as command
from npu_rope.cli.app import app
from npu_rope.cli.report import _summary_line as summary_line
from npu_rope.cli.validate import FAIL
from npu_rope.testing import judge
from npu_rope.testing.ggml import GgmlUnavailable
from npu_rope.testing.judge import CaseResult, Judgement

FEW = ["--suite", "ggml", "--filter", "type=f32,ne_a=[128,32,2,1],n_dims=32"]
ONE = ["--suite", "models", "--filter", "llama-3.1-8b/decode(type=f32"]


def run(*arguments, **environment):
    return subprocess.run(
        [sys.executable, "-m", "npu_rope.cli", *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, "COLUMNS": "200", **environment},
        check=False,
    )


def test_cases_within_bounds_exit_0_and_are_each_a_line():
    done = run("validate", *FEW)
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stdout.splitlines() if line.startswith("ok ")]
    assert len(lines) == 9
    assert "9 of 9 cases within their bounds" in done.stdout


@pytest.mark.peer
def test_ggml_is_among_the_columns():
    done = run("validate", *ONE)
    assert "ggml vs ggml's angles: 1 of 1 within bounds" in done.stdout
    assert "bit-equal to policy ggml" in done.stdout


def test_without_ggml_the_summary_says_so():
    done = run("validate", "--no-ggml", *ONE)
    assert done.returncode == 0
    assert "ggml: not compared: switched off with --no-ggml" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--backend", "npu"], "missing: the torch_npu package"),
        (["--backend", "sim"], "the Ascend simulator and its kernels are not part of this version"),
        (["--backend", "gpu"], "backend must be one of reference, cpu"),
        (["--filter", "no such case"], "filter must match a case"),
        (["--filter", "no such [case"], "filter must be a text or a regex"),
        (["--ggml-lib", "/nonexistent"], "library must be a folder with libggml-base"),
        (
            ["--no-ggml", "--ggml-lib", "/x"],
            "[validate] --ggml-lib must come without --no-ggml but got both.",
        ),
        (
            ["--output", "/nonexistent/x"],
            "[validate] output must be a file in an existing folder but got /non",
        ),
        (["--output", "/"], "[validate] output must be a file in an existing folder but got /."),
    ],
)
def test_bad_usage_exits_2_and_says_what_is_wrong(arguments, said):
    done = run("validate", *arguments)
    assert done.returncode == 2
    assert said in done.stderr
    assert done.stdout == ""


def test_ggml_named_by_environment_and_absent_exits_2_and_names_it():
    done = run("validate", *ONE, NPU_ROPE_GGML_LIB="/nonexistent")
    assert done.returncode == 2
    assert "[ggml] library must be a folder" in done.stderr
    assert "but got /nonexistent." in done.stderr
    assert run("validate", "--no-ggml", *ONE, NPU_ROPE_GGML_LIB="/nonexistent").returncode == 0


def test_messages_keep_their_brackets(monkeypatch):
    def absent(library):
        raise GgmlUnavailable("[ggml] library must be here.")

    monkeypatch.setattr(command, "GgmlProcess", absent)
    monkeypatch.delenv("NPU_ROPE_GGML_LIB", raising=False)
    outcome = CliRunner().invoke(app, ["validate", *ONE])
    assert outcome.exit_code == 0
    assert "ggml is not among the columns: [ggml] library must be here." in outcome.stderr
    assert "ggml: not compared: [ggml] library must be here." in outcome.stdout


def test_an_interrupted_run_leaves_the_earlier_report_as_it_was(monkeypatch, tmp_path):
    def interrupted(case, names, process):
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "judge", interrupted)
    path = tmp_path / "out.json"
    path.write_text("earlier")
    outcome = CliRunner().invoke(app, ["validate", "--no-ggml", "--output", str(path), *ONE])
    assert outcome.exit_code != 0
    assert path.read_text() == "earlier"
    assert list(tmp_path.iterdir()) == [path]


def test_bit_equal_elements_are_counted_not_cases():
    small, large = (SimpleNamespace(shape=shape) for shape in ((1, 1, 1, 2), (1, 2, 3, 1)))
    results = [
        CaseResult(small, [Judgement("ggml", "ok", bit_equal=0.0)]),
        CaseResult(large, [Judgement("ggml", "ok", bit_equal=1.0)]),
    ]
    assert "bit-equal to policy ggml: 75.000% of elements" in summary_line("ggml", results)


def test_backend_forced_by_environment_and_absent_exits_2():
    done = run("validate", *ONE, NPU_ROPE_BACKEND="npu")
    assert done.returncode == 2


def test_json_has_every_judgement(tmp_path):
    path = tmp_path / "out.json"
    done = run("validate", "--format", "json", "--output", str(path), *ONE)
    document = json.loads(path.read_text())
    assert done.stdout == ""
    assert document["total"] == 1
    assert document["failed"] == 0
    (case,) = document["cases"]
    executors = {j["backend_name"]: j for j in case["judgements"]}
    assert {"reference", "cpu", "cpu:ggml"} <= set(executors)
    assert 0 < executors["cpu"]["error_over_bound"] <= 1


def test_csv_rows_have_test_backend_ops_columns():
    done = run("validate", "--format", "csv", "--no-ggml", *FEW)
    rows = list(csv.DictReader(io.StringIO(done.stdout)))
    assert {r["backend_name"] for r in rows} == {"reference", "cpu", "cpu:ggml"}
    assert all(r["op_params"].startswith("type=f32,ne_a=[128,32,2,1]") for r in rows)
    assert {r["passed"] for r in rows} == {"True"}


def test_junit_counts_its_cases():
    done = run("validate", "--format", "junit", "--no-ggml", *ONE)
    root = ElementTree.fromstring(done.stdout)
    assert root.get("tests") == str(len(root.findall("testcase"))) == "3"
    assert root.get("failures") == "0"


def test_list_prints_names_only():
    done = run("validate", "--list", "--suite", "ggml", "--op", "ROPE_BACK")
    assert done.returncode == 0
    assert all(line.startswith("ROPE_BACK(") for line in done.stdout.splitlines())


def test_a_wrong_result_exits_1_with_its_worst_element_and_a_reproducer(monkeypatch, capsys):
    right = npu_rope.rope

    def wrong(x, positions, params, factors=None, *, backend, forward=True, **rest):
        return right(
            x, positions, params, factors, backend=backend, forward=forward ^ (backend == "cpu"), **rest
        )

    monkeypatch.setattr(judge.npu_rope, "rope", wrong)
    outcome = CliRunner().invoke(app, ["validate", "--no-ggml", *ONE])
    assert outcome.exit_code == 1
    assert FAIL in outcome.output
    assert "worst element" in outcome.output
    assert "position" in outcome.output
    assert "reproduce: npu-rope validate --suite models --op 'llama-3.1-8b/decode" in outcome.output
