"""A full disk under the files of each command: one sentence, exit status 2, the earlier file, no other file.

The disk is full, or the largest size of a file is limited, as with ``ulimit -f``: a write fails with EFBIG.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import without_torch
from full_disk import run_with_pages

pytest.importorskip("typer")
resource = pytest.importorskip("resource")

ROOT = Path(__file__).resolve().parents[2]
# npu-rope with the rest of the command line. Its files may have as many bytes as the first argument says.
LIMITED = """
import resource, signal, sys
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
limit = int(sys.argv.pop(1))
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
from npu_rope.cli import main
main()
"""
FULL = "[npu-rope] output must fit on the disk but got: File too large.\n"
NO_SPACE = FULL.replace("File too large", "No space left on device")
VALIDATE = ("validate", "--no-ggml", "--suite", "models", "--filter", "llama-3.1-8b/decode(type=f32")
BENCH = ("bench", "--from", "{run}")
COMMANDS = {
    "validate console": (*VALIDATE, "--backend", "cpu"),
    "validate json": (*VALIDATE, "--backend", "cpu", "--format", "json"),
    "validate csv": (*VALIDATE, "--backend", "cpu", "--format", "csv"),
    "validate junit": (*VALIDATE, "--backend", "cpu", "--format", "junit"),
    "validate html": (*VALIDATE, "--backend", "cpu", "--format", "html"),
    "bench console": BENCH,
    "bench json": (*BENCH, "--format", "json"),
    "bench csv": (*BENCH, "--format", "csv"),
    "bench html": (*BENCH, "--format", "html"),
}
FIGURE = {
    "row": "prefill f32 neox 1 thread",
    "group": "prefill",
    "shape": "[1,1,32,128]",
    "dtype": "f32",
    "mode": "neox",
    "threads": 1,
    "contestant": "npu_rope.rope(out=)",
    "kind": "ours",
    "status": "ok",
    "note": "",
    "foreign_cores": 0.0,
    "median_us": 1.0,
    "min_us": 1.0,
    "spread": 0.0,
    "samples": 5.0,
    "ratio": 1.0,
    "ratio_of_medians": 1.0,
}


@pytest.fixture
def bench_run(tmp_path_factory):
    """Return the path of an earlier benchmark's JSON."""
    from npu_rope.bench.run import Results

    facts = {"machine": "a machine", "isa": "baseline", "versions": {}, "seconds_per_row": 1.0}
    path = tmp_path_factory.mktemp("bench") / "run.json"
    path.write_text(json.dumps(Results(facts, [FIGURE], []).document()))
    return path


@pytest.fixture
def limited(run_python):
    """Return a function that runs npu-rope with files of at most ``limit`` bytes."""
    return lambda limit, *arguments: run_python("-c", LIMITED, str(limit), *map(str, arguments))


@pytest.mark.long
@pytest.mark.parametrize("name", COMMANDS)
def test_an_output_keeps_its_earlier_file(limited, bench_run, tmp_path, name):
    command = [word.format(run=bench_run) for word in COMMANDS[name]]
    (tmp_path / "old").write_text("earlier")
    for file in ("old", "new"):
        done = limited(100, *command, "--output", tmp_path / file)
        assert (done.returncode, done.stderr) == (2, FULL), done.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["old"]
    assert (tmp_path / "old").read_text() == "earlier"


@pytest.mark.long
def test_measurements_are_printed_if_their_file_does_not_fit(tmp_path):
    pytest.importorskip("torch")
    rows = ("--rows", r"^decode \[1,1", "--dtypes", "f32", "--threads", "1", "--peers", "none", "--quick")
    command = [
        sys.executable,
        "-c",
        LIMITED,
        "100",
        "bench",
        *rows,
        "--format",
        "json",
        "--output",
        "run.json",
    ]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, list(tmp_path.iterdir())) == (2, [])
    assert done.stderr.endswith(FULL)
    assert json.loads(done.stdout)["rows"]


@pytest.mark.long
@pytest.mark.parametrize("pages", [0, 1])
@pytest.mark.parametrize("name", COMMANDS)
def test_an_output_on_a_full_disk_keeps_its_earlier_file(bench_run, tmp_path, name, pages):
    words = [word.format(run=bench_run) for word in COMMANDS[name]]
    command = [sys.executable, *without_torch.module("npu_rope.cli"), *words]
    for file in ("old", "new"):
        done = run_with_pages(tmp_path, pages, [*command, "--output", tmp_path / file], {"old": "earlier"})
        if pages and done.returncode == 0:  # the output is no longer than a page
            assert len(done.files.pop(file)) <= 4096
            assert set(done.files) <= {"old"}
        else:
            assert (done.returncode, done.stderr, done.files) == (2, NO_SPACE, {"old": "earlier"})


@pytest.mark.long
def test_the_page_of_a_benchmark_keeps_its_text(limited, bench_run, tmp_path):
    page = tmp_path / "page.md"
    shutil.copy(ROOT / "docs" / "benchmarks.md", page)
    done = limited(100, "bench", "--from", bench_run, "--markdown", page)
    assert (done.returncode, done.stderr) == (2, FULL)
    assert page.read_text() == (ROOT / "docs" / "benchmarks.md").read_text()
    assert [path.name for path in tmp_path.iterdir()] == ["page.md"]


def test_a_page_that_does_not_fit_loses_no_measurement(limited, bench_run, tmp_path):
    """The results are written before the page."""
    page, saved = tmp_path / "page.md", tmp_path / "saved.json"
    shutil.copy(ROOT / "docs" / "benchmarks.md", page)
    files = ("--format", "json", "--output", saved, "--markdown", page)
    done = limited(100_000, "bench", "--from", bench_run, *files)
    assert done.returncode == 2
    assert done.stderr == f"report written to {saved}\n{FULL}"
    assert json.loads(saved.read_text())["rows"] == json.loads(bench_run.read_text())["rows"]
    assert page.read_text() == (ROOT / "docs" / "benchmarks.md").read_text()


@pytest.mark.parametrize("command", ["doctor", "sim -- true"])
def test_no_folder_for_temporary_files_is_one_sentence(run_python, command):
    """On a disk that cannot be written, tempfile finds no folder."""
    program = (
        "import tempfile\n"
        "tempfile._candidate_tempdir_list = lambda: ['/absent', '/missing']\n"
        "from npu_rope.cli import main\n"
        "main()\n"
    )
    done = run_python("-c", program, *command.split())
    rule = "temporary files must have a folder that can be written but got none of ['/absent', '/missing']."
    assert (done.returncode, done.stderr) == (2, f"[npu-rope] {rule}\nSet TMPDIR to such a folder.\n")


@pytest.mark.long
def test_a_timeline_that_fits_only_the_temporary_folder_leaves_no_page(limited, tmp_path):
    shape = ("trace", "rope", "--shape", "1,1,1,64", "--output", tmp_path / "timeline")
    assert limited(1 << 30, *shape).returncode == 0
    bytes_of_timeline = (tmp_path / "timeline").stat().st_size
    (tmp_path / "timeline").write_text("earlier")
    done = limited(bytes_of_timeline, *shape, "--format", "html")
    assert (done.returncode, done.stderr) == (2, FULL)
    # A full temporary folder is named.
    done = limited(300, *shape)  # the message fits
    assert done.returncode == 2
    assert done.stderr.startswith(
        "[rope] call must succeed but got [sim] launch must be possible but got cannot write /"
    )
    assert done.stderr.endswith("/trace.json: File too large.\n")
    assert [path.name for path in tmp_path.iterdir()] == ["timeline"]
    assert (tmp_path / "timeline").read_text() == "earlier"
