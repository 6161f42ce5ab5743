"""npu-rope trace on the command line: its output, its files and its errors."""

import json
import re
from itertools import pairwise
from pathlib import Path

import changed_kernel as changed
import numpy as np
import pytest
from ascend_sim import timeline_plot
from typer.testing import CliRunner

from npu_rope import simulated_package
from npu_rope.cli.app import app

SMALL = ["--shape", "1,40,6,64"]
FLOAT = [*SMALL, "--dtype", "f32"]


def run(*arguments, width=80, op="rope"):
    return CliRunner(env={"COLUMNS": str(width)}).invoke(app, ["trace", op, *arguments])


def summary(*arguments, op="rope"):
    done = run(*arguments, "--json", op=op)
    assert done.exit_code == 0, done.stderr
    return json.loads(done.stdout)


# ---- printed output ----------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("shape", ["1,1,1,2", "1,300,32,128"])
def test_no_line_wraps_or_is_longer_than_80_characters(shape, width):
    done = run("--shape", shape, width=width)
    assert done.exit_code == 0, done.stderr
    lines = done.stdout.splitlines()
    assert max(map(len, lines)) <= 80
    starts = r"rope|Simulated|time|memory|roofline|cores|pipe|S|V|MTE2|MTE3|instruction|critical path"
    starts += r"|\w+(::\w+)?  |$"
    assert all(re.match(starts, line) for line in lines), done.stdout


def test_the_output_names_the_call_and_says_simulated():
    done = run(*SMALL, "--mode", "normal", "--n-dims", "20", "--n-offs", "6", "--in-place", "--backward")
    first, second, *_ = done.stdout.splitlines()
    assert first.startswith(
        "rope [1,40,6,64] bf16 normal, n_dims 20 from 6, backward, in_place on Ascend910B"
    )
    assert first.endswith(", simulated")
    assert "never fitted to hardware" in second


def test_the_shares_are_of_the_slowest_cores_time():
    found = summary(*SMALL)
    for line in run(*SMALL).stdout.splitlines():
        if match := re.match(r"(MTE2|MTE3|V) +([\d,]+) +([\d.]+)% ", line):
            pipe, busy, share = match.groups()
            assert int(busy.replace(",", "")) == round(found[f"busy_{pipe}"])
            assert float(share) == pytest.approx(100 * found[f"busy_{pipe}"] / found["cycles"], abs=0.06)


def test_json_is_the_summary_of_the_launch():
    found = summary(*SMALL, "--freq-factors")
    assert (found["op"], found["shape"], found["dtype"]) == ("rope", [1, 40, 6, 64], "bf16")
    assert found["freq_factors"] is True
    assert found["bytes_written"] == 40 * 6 * 64 * 2
    assert found["least_bytes"] == 2 * found["bytes_written"] + 4 * 40 + 4 * 32
    assert 0 < found["roofline_share"] <= 1
    assert found["cycles"] == pytest.approx(found["microseconds"] * 1e3 * found["clock_ghz"])
    assert sum(api["bytes"] for api in found["apis"]) > 0
    assert "never fitted to hardware" in found["note"]


@pytest.mark.parametrize(
    "options",
    [
        ["--dtype", "f16"],
        ["--mode", "normal"],
        ["--mode", "vision"],
        ["--mode", "imrope", "--n-dims", "48"],
        ["--mode", "mrope", "--sections", "16,8,8,0"],
        ["--most-cores", "3"],
        ["--n-dims", "32", "--n-offs", "16"],
        ["--layout", "bnsd"],
        ["--backward"],
        ["--freq-factors"],
        ["--in-place"],
        ["--in-place", "--layout", "bnsd"],
        ["--soc", "ascend310p"],
        ["--soc", "Ascend910B4"],
        ["--soc", "ascend950"],
        ["--cores", "0"],
    ],
    ids=" ".join,
)
def test_every_option_but_cores_changes_the_summary(options):
    found, default = summary(*SMALL, *options), summary(*SMALL)
    assert (found != default) == (options != ["--cores", "0"])
    assert found["bytes_written"] == default["bytes_written"] or "--n-dims" in options


@pytest.mark.parametrize("limit", [1, 3, 5])
def test_most_cores_limits_the_cores_and_fewer_take_longer(limit):
    limited, unlimited = summary(*SMALL, "--most-cores", str(limit)), summary(*SMALL)
    assert limited["cores"] == limit < unlimited["cores"]
    assert limited["cycles"] > unlimited["cycles"]


def test_the_default_type_is_one_that_the_chip_has():
    assert summary(*SMALL)["dtype"] == "bf16"
    assert summary(*SMALL, "--soc", "Ascend950PR_9599")["dtype"] == "bf16"
    for soc in ("ascend310p", "Ascend310P3"):
        assert summary(*SMALL, "--soc", soc)["dtype"] == "f16"


# ---- rotary_mul ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ([], "rotary_mul [1,40,6,64] bf16 half, bf16 tables, one entry per lane"),
        (["--width", "pair"], "half, bf16 tables, one entry per pair"),
        (["--table-dtype", "f32"], "half, f32 tables, one entry per lane"),
        (["--interleaved", "--dtype", "f16"], "f16 interleaved, f16 tables"),
        (["--rotary-dim", "32", "--offset", "8"], "one entry per lane, rotary_dim 32 from 8"),
        (["--layout", "bnsd", "--backward", "--in-place"], "one entry per lane, bnsd, backward, in_place"),
        (["--rows", "90", "--width", "pair"], "rotary_embedding [1,40,6,64] bf16 half"),
        (["--rows", "90", "--width", "pair", "--layout", "bnsd"], "one entry per pair, 90 rows, bnsd"),
    ],
)
def test_given_tables_are_traced_with_the_options_of_the_call(options, expected):
    found = summary(*SMALL, *options, op="rotary_mul")
    assert expected in found["call"]
    assert found["bytes_written"] == 40 * 6 * 64 * 2
    # The launch reads x once, and a token's row of cos and sin once for each unit with some of its heads.
    assert found["least_bytes"] <= found["bytes_read"] + found["bytes_written"] <= 1.3 * found["least_bytes"]
    first, *_ = run(*SMALL, *options, op="rotary_mul").stdout.splitlines()
    assert first.startswith(found["call"])


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--rows", "9"], "[trace] width must be pair where rows are given but got lane."),
        (
            ["--rows", "9", "--width", "pair", "--rotary-dim", "8", "--offset", "8"],
            "[trace] offset must be 0 where rows are given but got 8.",
        ),
        (["--rotary-dim", "7"], "[rotary_mul] rotary_dim must be 0 or an even number up to the head size 64"),
        (
            ["--dtype", "bf16", "--soc", "ascend310p"],
            "[rotary_mul] x must be float32 or float16 on Ascend310P3",
        ),
    ],
)
def test_a_bad_call_of_rotary_mul_exits_2(options, expected):
    done = run(*SMALL, *options, op="rotary_mul")
    assert done.exit_code == 2
    assert done.stderr.startswith(expected)


# ---- written files -------------------------------------------------------------------------------------


def spans_of(path):
    return [e for e in json.loads(path.read_text())["traceEvents"] if e["ph"] == "X"]


def test_the_timeline_is_chrome_trace_json(tmp_path):
    path = tmp_path / "t.json"
    done = run(*SMALL, "-o", str(path), "--cores", "2")
    assert done.exit_code == 0, done.stderr
    assert f"timeline written to {path}" in done.stdout
    events = json.loads(path.read_text())["traceEvents"]
    names = {(e["pid"], e.get("tid")): e["args"]["name"] for e in events if e["ph"] == "M"}
    assert {names[core, tid] for core in (0, 1) for tid in range(4)} == {"S", "V", "MTE2", "MTE3"}
    assert [names[core, None] for core in (0, 1)] == ["core 0", "core 1"]
    spans = spans_of(path)
    assert {e["pid"] for e in spans} == {0, 1}
    assert all(e["dur"] > 0 and e["ts"] >= 0 and e["name"] and e["args"]["line"] for e in spans)
    end = max(e["ts"] + e["dur"] for e in spans)
    assert end <= summary(*SMALL)["microseconds"] * 1.001


def test_instructions_of_one_pipe_do_not_overlap(tmp_path):
    run(*SMALL, "-o", str(tmp_path / "t.json"))
    rows = {}
    for e in spans_of(tmp_path / "t.json"):
        rows.setdefault((e["pid"], e["tid"]), []).append((e["ts"], e["ts"] + e["dur"]))
    for row in rows.values():
        row.sort()
        assert all(after[0] >= before[1] - 2e-3 for before, after in pairwise(row))


@pytest.mark.parametrize(("suffix", "magic"), [("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")])
def test_the_plot_has_the_format_of_its_suffix(suffix, magic, tmp_path):
    path = tmp_path / f"t.{suffix}"
    done = run(*SMALL, "--plot", str(path))
    assert done.exit_code == 0, done.stderr
    assert f"plot written to {path}" in done.stdout
    assert path.read_bytes().startswith(magic)
    assert list(tmp_path.iterdir()) == [path]


def test_the_plot_has_bars_of_every_pipe_that_works(tmp_path):
    """Count the pixels of each pipe's colour in the picture."""
    import matplotlib.image

    run(*SMALL, "--plot", str(tmp_path / "t.png"), "--cores", "3")
    pixels = matplotlib.image.imread(tmp_path / "t.png")[..., :3]
    for pipe, code in timeline_plot.COLOURS.items():
        colour = [int(code[k : k + 2], 16) / 255 for k in (1, 3, 5)]
        drawn = np.count_nonzero(np.abs(pixels - colour).max(-1) < 0.01)
        assert drawn > 500 or pipe == "S"  # the scalar unit may have nothing to do


def test_gaps_below_a_pixel_are_not_drawn():
    spans = [(5.0, 6.0), (0.0, 1.0), (1.0001, 2.0), (3.0, 4.0), (3.5, 3.7)]
    assert timeline_plot._join_spans(spans, 0.01) == [(0.0, 2.0), (3.0, 4.0), (5.0, 6.0)]


def test_timeline_and_plot_can_be_written_together(tmp_path):
    done = run(*SMALL, "-o", str(tmp_path / "a.json"), "--plot", str(tmp_path / "a.svg"))
    assert done.exit_code == 0
    assert {p.name for p in tmp_path.iterdir()} == {"a.json", "a.svg"}


# ---- errors --------------------------------------------------------------------------------------------

SHAPE = "[trace] shape must be four positive numbers B,S,N,D but got"
FOLDER = "must be a file in an existing folder but got"
BAD_USAGE = {
    "three sizes": (["--shape", "1,2,3"], f"{SHAPE} 1,2,3."),
    "a word": (["--shape", "1,2,3,x"], f"{SHAPE} 1,2,3,x."),
    "zero": (["--shape", "1,0,3,8"], f"{SHAPE} 1,0,3,8."),
    "huge": (
        ["--shape", "999999,999999,9999,8"],
        "[trace] shape must fit into memory but got 999999,999999,9999,8.",
    ),
    "odd head": (["--shape", "1,2,3,7"], "[rope] n_dims must be a positive even number but got 7."),
    "wide head": (
        ["--shape", "1,2,3,2048"],
        "[rope] x must have a head size of at most 1024 on an NPU but got 2048.",
    ),
    "n_dims 0": (["--n-dims", "0"], "[rope] n_dims must be a positive even number but got 0."),
    "window": (["--n-dims", "200"], "[rope] n_dims must be at most the head size 64 but got 200."),
    "n_offs": (["--n-offs", "3"], "[rope] n_offs must be an even number >= 0 but got 3."),
    "soc": (["--soc", "ascend1"], "[sim] soc must be one of Ascend910B1, "),
    "bfloat16": (
        ["--soc", "ascend310p", "--dtype", "bf16"],
        "[rope] x must be float32 or float16 on Ascend310P3 but got bfloat16.",
    ),
    "dtype": (["--dtype", "f64"], "'f64' is not one of"),
    "two sections": (
        ["--mode", "mrope", "--sections", "1,2"],
        "[trace] sections must be four integers such as 16,24,24,0 but got 1,2.",
    ),
    "no sections": (
        ["--mode", "imrope", "--sections", "0,0,0,0"],
        "[rope] sections must name time, height or width in mode imrope but got [0, 0, 0, 0].",
    ),
    "sections of neox": (
        ["--sections", "1,2,3,4"],
        "[rope] sections must be [0, 0, 0, 0] in mode neox but got [1, 2, 3, 4].",
    ),
    "most cores": (["--most-cores", "-1"], "Invalid value for '--most-cores'"),
    "cores": (["--cores", "-1"], "Invalid value for '--cores'"),
    "output": (["-o", "/nonexistent/t.json"], f"[trace] output {FOLDER} /nonexistent/t.json."),
    "folder": (["-o", "/"], f"[trace] output {FOLDER} /."),
    "plot": (["--plot", "/nonexistent/t.png"], f"[trace] plot {FOLDER} /nonexistent/t.png."),
    "suffix": (["--plot", "t.gif"], "[trace] plot must end in .png, .svg, .pdf but got t.gif."),
    "one file": (["--plot", "t.png", "-o", "t.png"], "[trace] plot must differ from output but got t.png."),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD_USAGE)
def test_bad_usage_exits_2_with_one_line_and_writes_nothing(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    arguments, expected = BAD_USAGE[name]
    files = [] if "-o" in arguments else ["-o", "new.json"]
    files += [] if "--plot" in arguments else ["--plot", "new.png"]
    small = [] if "--shape" in arguments else SMALL
    done = run(*small, *files, *arguments)
    assert done.exit_code == 2
    assert expected in done.stderr
    if expected.startswith("["):
        assert done.stderr.count("\n") == 1
    assert done.stdout == ""
    assert list(tmp_path.iterdir()) == []


def test_a_missing_simulator_exits_2_with_its_remedy(monkeypatch):
    monkeypatch.setattr(simulated_package, "load", simulated_package.load.__wrapped__)
    monkeypatch.setattr(simulated_package, "find", lambda: None)
    done = run(*SMALL)
    assert done.exit_code == 2
    assert "[sim] backend must be available but its operator package simulated_package was" in done.stderr
    assert "Build it with" in done.stderr


def test_a_missing_matplotlib_is_reported_before_the_launch(run_python, tmp_path):
    code = "import sys; sys.modules['matplotlib'] = None; from npu_rope.cli import main; main()"
    done = run_python("-c", code, "trace", "rope", *SMALL, "--plot", tmp_path / "t.png")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "[trace] plot must have matplotlib but got none: pip install 'ascend-sim[plot]'\n"


@pytest.mark.long
def test_a_kernel_that_breaks_a_rule_exits_1_with_the_rule_and_keeps_the_earlier_file(
    changed_kernel, monkeypatch, tmp_path
):
    monkeypatch.setenv(changed.KERNELS_VARIABLE, str(changed_kernel("no order of vector instructions")))
    path = tmp_path / "t.json"
    path.write_text("earlier")
    done = run(*FLOAT, "-o", str(path))
    assert done.exit_code == 1
    assert done.stdout == ""
    assert re.match(r"\[rope\] kernel must keep the simulator's rules but got SIM-HAZARD-02 ", done.stderr)
    assert path.read_text() == "earlier"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.long
def test_a_rebuilt_unchanged_kernel_gives_the_same_summary(changed_kernel, monkeypatch):
    before = summary(*FLOAT)
    library = Path(changed_kernel("nothing"))
    # A list of libraries. One that does not load is an error.
    monkeypatch.setenv(changed.KERNELS_VARIABLE, f":{library}")
    assert summary(*FLOAT) == before
    monkeypatch.setenv(changed.KERNELS_VARIABLE, f"/nonexistent.so:{library}")
    assert "/nonexistent.so: cannot open shared object file" in run(*FLOAT).stderr


# ---- the norms -----------------------------------------------------------------------------------------

ROWS, N = 96, 256
# The number of inputs and outputs that have all the rows.
ROW_TENSORS = {"rms_norm": 2, "add_rms_norm": 4, "rms_norm_backward": 3}


@pytest.mark.parametrize(("dtype", "size"), [("bf16", 2), ("f32", 4)])
@pytest.mark.parametrize("op", ROW_TENSORS)
def test_a_norm_moves_its_tensors_once(op, dtype, size):
    found = summary("--shape", f"{ROWS},{N}", "--dtype", dtype, "--most-cores", "1", op=op)
    assert (found["op"], found["shape"], found["dtype"]) == (op, [ROWS, N], dtype)
    sums = 4 * N if op == "rms_norm_backward" else 0
    least = ROW_TENSORS[op] * ROWS * N * size + N * size + sums
    assert found["bytes_read"] + found["bytes_written"] == pytest.approx(least, rel=0.01)


@pytest.mark.parametrize("op", ROW_TENSORS)
def test_a_norm_refuses_a_size_of_zero(op):
    done = run("--shape", "0,8", op=op)
    assert done.exit_code == 2
    assert "shape must be two positive numbers R,N but got 0,8." in done.stderr


def test_the_sums_of_squares_read_their_tensors_once():
    found = summary("--shape", "96,8,2,64", "--dtype", "bf16", op="qk_square_sums")
    assert (found["op"], found["shape"], found["dtype"]) == ("qk_square_sums", [96, 8, 2, 64], "bf16")
    assert found["bytes_read"] == pytest.approx(96 * 10 * 64 * 2, rel=0.01)
    assert found["bytes_written"] == 96 * 2 * 4
    done = run("--shape", "96,8,64", op="qk_square_sums")
    assert done.exit_code == 2
    assert "shape must be four positive numbers T,Nq,Nk,D but got 96,8,64." in done.stderr
