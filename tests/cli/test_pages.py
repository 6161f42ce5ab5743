"""The pages of validate, bench and trace: their contents, their scripts in a browser, and errors."""

import html
import json
import os
import re

import html_pages
import pytest
from ascend_sim import pages
from html_pages import Page, check_page, run_script
from typer.testing import CliRunner

from npu_rope.bench import page as bench_page
from npu_rope.bench.run import Results
from npu_rope.cli import validate as command
from npu_rope.cli import validation_page
from npu_rope.cli.app import app
from npu_rope.testing import suites
from npu_rope.testing.cases import SHORT
from npu_rope.testing.outcomes import FAIL

CASES = ["--suite", "ggml", "--suite", "onnx", "--filter", "(prefill|ne_a=.128,32,2,1.,n_dims=32)"]
CPU = ["--backend", "cpu", "--backend", "reference", "--no-ggml", "--rerun-seconds", "0"]
MESSAGE = "</script><script>alert('1')</script> <b>bold</b>"
TRACE = ["trace", "rope", "--shape", "1,300,32,128"]
WIDTHS = [1280, 390]


def run(*arguments):
    return CliRunner(env={"COLUMNS": "200"}).invoke(app, arguments)


def judge_with_faults(case, names, process):
    """Two cases fail on cpu: one with a message, one with wrong values."""
    result = suites.judge(case, names, process)
    judgement = result.judgements[0]
    if case.suite == "onnx":
        judgement.verdict, judgement.message = FAIL, MESSAGE
    elif "mode=2," in case.name:
        judgement.verdict, judgement.ratio = FAIL, float("inf")
    return result


@pytest.fixture(scope="module")
def validated(tmp_path_factory):
    """Return the page and the JSON of one run with faults."""
    folder = tmp_path_factory.mktemp("validate")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(command, "judge", judge_with_faults)
        for kind in ("html", "json"):
            done = run("validate", *CASES, *CPU, "--format", kind, "--output", str(folder / kind))
            assert done.exit_code == 1, done.output
    return (folder / "html").read_text(), json.loads((folder / "json").read_text())


def figure_of(row, contestant, kind, median, ratio, status="ok"):
    entry = {"row": row, "contestant": contestant, "kind": kind, "status": status, "note": "because"}
    entry |= {
        "group": "prefill",
        "shape": "[1,2048,32,128]",
        "dtype": row.split()[1],
        "mode": "neox",
        "threads": 1,
    }
    measured = {"median_us": median, "min_us": 0.9 * median, "spread": 0.1, "ratio": ratio}
    return entry | {"foreign_cores": 0.0} | (measured if status == "ok" else {})


BENCH_FIGURES = [
    figure_of(f"prefill {dtype} neox 1 thread", *contestant)
    for dtype in ("f32", "bf16")
    for contestant in (
        ("memory floor", "floor", 100.0, 1.0),
        ("npu_rope.rope(out=)", "ours", 110.0, 1.1),
        ("rope_packed_", "ours", 108.0, 1.08),
        ("torch, eager", "peer", 900.0, 9.0),
        ("<b>ggml</b>", "peer", 0.0, 0.0, "not installed"),
    )
]
BENCH_FACTS = {
    "date": "2026-01-31 12:00",
    "machine": "2 cores",
    "isa": "avx2",
    "versions": {"python": "3.11"},
    "seconds_per_row": 1.0,
}


@pytest.fixture(scope="module")
def bench_run(tmp_path_factory):
    """Return the path of an earlier run's JSON."""
    path = tmp_path_factory.mktemp("bench") / "run.json"
    path.write_text(json.dumps(Results(BENCH_FACTS, BENCH_FIGURES, []).document()))
    return path


@pytest.fixture(scope="module")
def benched(bench_run):
    """Return the page and the document of an earlier run."""
    path, document = bench_run, json.loads(bench_run.read_text())
    done = run("bench", "--from", str(path), "--format", "html")
    assert done.exit_code == 0, done.output
    return done.stdout, document


@pytest.fixture(scope="module")
def traced(tmp_path_factory):
    """Return the page and the Chrome trace of a launch."""
    folder = tmp_path_factory.mktemp("trace")
    for kind in ("html", "chrome"):
        done = run(*TRACE, "--format", kind, "--output", str(folder / kind))
        assert done.exit_code == 0, done.output
        assert f"timeline written to {folder / kind}" in done.stdout
    return (folder / "html").read_text(), json.loads((folder / "chrome").read_text())


@pytest.fixture(params=["validated", "benched", "traced"])
def each(request):
    """Return each page."""
    return request.getfixturevalue(request.param)[0]


# ---- contents ----------------------------------------------------------------------------------------------


def test_a_page_loads_nothing_and_runs_only_its_own_script(each):
    check_page(Page(each))


def test_the_page_of_validate_has_every_judgement(validated):
    text, document = validated
    data = Page(text).data()
    expected = [(case, judgement) for case in document["cases"] for judgement in case["judgements"]]
    assert len(data["results"]) == len(expected) > 40
    for found, (case, judgement) in zip(data["results"], expected, strict=True):
        index, executor, verdict, error, ratio, equal, near, message, positions = found
        assert data["cases"][index][:2] == [case["suite"], case["name"]]
        assert data["executors"][executor] == judgement["backend_name"]
        assert ["ok", "FAIL", "unsupported"][verdict] == judgement["verdict"]
        assert (error, ratio) == (judgement["max_error"], judgement["error_over_bound"])
        assert (equal, near) == (judgement["bit_equal_share"], judgement["near_cpu_share"])
        assert message == judgement["error_message"]
        of_json = [
            tuple(at[name] for name in ("first", "max_error", "error_over_bound"))
            for at in judgement["by_position"]
        ]
        assert [tuple(at) for at in positions] == of_json
        assert bool(of_json) == (case["suite"] == "ggml")


def test_every_failing_case_has_its_command(validated):
    text, document = validated
    failed = [
        j["reproduce"] for case in document["cases"] for j in case["judgements"] if j["verdict"] == FAIL
    ]
    commands = Page(text).commands
    assert sorted(commands) == sorted(failed)
    assert len(failed) > 3
    assert all(line.startswith("npu-rope validate --suite ") for line in failed)


def test_a_line_of_a_case_s_name_ends_where_a_word_ends(validated):
    """Not in the name of a parameter, such as n_dims."""
    text, document = validated
    assert pages.breakable("npu_rope_cache/BSND(n_dims=2,v<1)") == (
        "npu_<wbr>rope_<wbr>cache/<wbr>BSND(<wbr>n_dims=2,<wbr>v&lt;1)"
    )
    examples = re.findall(r"Example: <code>(.*?)</code>", text)
    names = {case["name"] for case in document["cases"]}
    assert {html.unescape(example.replace("<wbr>", "")) for example in examples} <= names
    assert examples
    assert all(",<wbr>" in example for example in examples)


def test_the_page_of_validate_names_the_machine_and_the_faults(validated):
    text, document = validated
    page = Page(text)
    assert len([h for h in page.headings if re.match(r"\d+\. cpu: ", h)]) == len(document["faults"]) == 2
    for value in document["environment"].values():
        assert f"<td>{value}</td>" in text
    assert "C library" in text
    assert os.path.expanduser("~/") not in text


def test_only_the_cells_with_failures_are_marked(validated):
    text, document = validated
    table = text[text.index("Cases within their bounds") :].partition("</table>")[0]
    lines = re.findall(r'<tr>(<th scope="row".*?)</tr>', table)
    rows = [re.findall(r"<td[^>]*>(.*?)</td>", line) for line in lines]
    marked = sum('class="mark bad"' in cell for row in rows for cell in row)
    failing = {
        (case["suite"], j["backend_name"])
        for case in document["cases"]
        for j in case["judgements"]
        if j["verdict"] == FAIL
    }
    assert 0 < marked == len(failing) < sum(cell != "–" for row in rows for cell in row)
    assert 'class="wrong"' not in table


def test_a_run_without_rope_has_no_chart_of_positions(validated):
    done = run("validate", "--suite", "onnx", "--filter", "prefill", *CPU, "--format", "html")
    assert done.exit_code == 0, done.output
    assert "Error at each position" not in done.stdout
    assert "Error at each position" in validated[0]


@pytest.mark.long
def test_a_run_without_rope_is_drawn_in_a_browser(tmp_path):
    text = run("validate", "--suite", "onnx", "--filter", "prefill", *CPU, "--format", "html").stdout
    script = """
        clear.click();
        return [byId("count").textContent, ...[0.99702, 1, 0.5, Infinity].map(ratioText)];
    """
    count, *ratios = run_script(text, script, tmp_path)
    assert re.match(r"[1-9]\d* results of [1-9]\d* cases match", count)
    assert ratios == ["0.997", "1", "0.5", "infinite"]


def test_the_page_of_bench_has_the_date_and_explains_verdicts_in_doubt(benched, tmp_path):
    text, document = benched
    assert f'<p class="soft">{BENCH_FACTS["date"]}, 2 cores</p>' in text
    assert '<th scope="row">date</th><td>2026-01-31 12:00</td>' in text
    assert "PASS? and MISS?" not in text
    path = tmp_path / "run.json"
    rows = [row | {"foreign_cores": 1.0} for row in document["rows"]]
    path.write_text(json.dumps({k: v for k, v in document.items() if k != "date"} | {"rows": rows}))
    done = run("bench", "--from", str(path), "--format", "html")
    assert done.exit_code == 0, done.output
    assert re.search(r'class="mark good">PASS\?<', done.stdout)
    assert "PASS? and MISS?" in done.stdout
    assert '<p class="soft">2 cores</p>' in done.stdout  # an earlier version's report has no date


def test_markup_in_messages_is_text(validated):
    page = Page(validated[0])
    assert MESSAGE not in page.text
    assert MESSAGE in {result[7] for result in page.data()["results"]}


def test_the_page_of_bench_has_every_figure_and_target(benched):
    text, document = benched
    figures = Page(text).data()["figures"]
    assert [(f["row"], f["contestant"], f.get("median_us")) for f in figures] == [
        (row["row"], row["contestant"], row.get("median_us")) for row in document["rows"]
    ]
    for row in {figure["row"] for figure in figures}:
        ratios = [f["to_ours"] for f in figures if f["row"] == row and f["kind"] == "ours" and "to_ours" in f]
        assert min(ratios) == 1
    for target in document["targets"]:
        assert target["target"].replace("'", "&#x27;") in text


def test_targets_that_were_not_measured_are_one_line(benched, bench_run):
    text, document = benched
    names = {True: [], False: []}
    for target in document["targets"]:
        names[target["outcome"] != "NOT MEASURED"].append(html.escape(target["target"]))
    title = f"Targets whose rows this run lacks: {len(names[False])}"
    folded = (
        f"<details><summary>{title}</summary><ul><li>{'</li><li>'.join(names[False])}</li></ul></details>"
    )
    assert len(names[False]) > 3
    assert folded in text
    assert re.findall(r"<div><b>(.*?)</b>", text) == names[True] != []
    done = run("bench", "--from", str(bench_run))
    assert done.exit_code == 0, done.output
    lines = re.findall(r"^(NOT MEASURED .*|PASS.*|MISS.*)$", done.stdout, re.MULTILINE)
    assert lines[-1] == f"NOT MEASURED targets whose rows this run lacks: {len(names[False])}"
    assert len(lines) == len(names[True]) + 1


def test_the_page_of_trace_has_the_spans_of_the_trace(traced):
    text, trace = traced
    data = Page(text).data()
    spans = [e for e in trace["traceEvents"] if e["ph"] == "X"]
    found = [
        (
            lane["core"],
            data["names"][lane["names"][i]],
            data["lines"][lane["lines"][i]],
            lane["begin"][i],
            lane["length"][i],
        )
        for lane in data["lanes"]
        for i in range(len(lane["begin"]))
    ]
    expected = [
        (e["pid"], e["name"], e["args"]["line"], round(e["ts"] * 10_000), round(e["dur"] * 10_000))
        for e in spans
    ]
    assert sorted(found) == sorted(expected)
    kinds = [lane["kind"] for lane in data["lanes"]]
    assert kinds.count("pipe") == 16
    assert kinds.count("critical") == 1
    assert kinds.count("ub") >= 16
    assert "never fitted to hardware" in text
    assert re.search(r"<span>\d+ blocks; the slowest is core&nbsp;\d+</span>", text)


# ---- in a browser ------------------------------------------------------------------------------------------

VALIDATE_SCRIPT = """
const rows = () => [...document.querySelectorAll("#case-table tbody tr")];
const firsts = (n) => rows().map((row) => row.cells[n].textContent);
const found = { shown: rows().length, count: byId("count").textContent };
found.points = document.querySelectorAll("#ratios .points").length;
found.positions = document.querySelectorAll("#positions .curve").length;
const choose = (select, value) => { select.value = value; select.dispatchEvent(new Event("change")); };
found.counts = [];
for (const [key, select] of Object.entries({ suite, backend, dtype, verdict })) {
  for (const value of [...select.options].map((option) => option.value).filter(Boolean)) {
    choose(select, value);
    found.counts.push([key, value, byId("count").textContent]);
    choose(select, "");
  }
}
const pairs = (points) => points.map(([at, value]) => [at, value]);
found.errors = positionSpec(ROWS).series.map(({ name, points }) => [name, pairs(points)]);
choose(verdict, "FAIL");
found.failing = byId("count").textContent;
choose(verdict, "");
words.value = "MODE=2,";
words.dispatchEvent(new Event("input"));
found.searched = new Set(firsts(0));
found.searched = [...found.searched];
found.breaks = rows()[0].cells[0].innerHTML;
clear.click();
const titles = [...document.querySelectorAll("#case-table th button")];
const sorter = titles.find((title) => title.textContent === "error / bound");
sorter.focus();
sorter.click();
found.sorted = sorter.parentElement.getAttribute("aria-sort");
found.ratios = firsts(4);
const picture = document.querySelector("#ratios svg");
picture.focus();
found.focused = document.activeElement === picture;
picture.dispatchEvent(new KeyboardEvent("keydown", { key: "Home", bubbles: true }));
const first = document.querySelector("#ratios .readout").textContent;
picture.dispatchEvent(new KeyboardEvent("keydown", { key: "ArrowRight", bubbles: true }));
found.readouts = [first, document.querySelector("#ratios .readout").textContent];
byId("theme").click(); byId("theme").click();
found.theme = [document.documentElement.dataset.theme, getComputedStyle(document.body).backgroundColor];
return found;
"""


@pytest.mark.long
def test_filters_sorting_charts_and_themes_work_in_a_browser(validated, tmp_path):
    text, document = validated
    judgements = [(case, j) for case in document["cases"] for j in case["judgements"]]
    found = run_script(text, VALIDATE_SCRIPT, tmp_path)
    assert found["shown"] == min(100, len(judgements))
    cases = len(document["cases"])
    assert found["count"] == f"{len(judgements):,} results of {cases:,} cases match."
    assert found["points"] == 3
    assert found["positions"] == 3
    values = {
        "suite": lambda case, _: case["suite"],
        "backend": lambda _, j: j["backend_name"],
        "dtype": lambda case, _: re.search(r"type=(\w+)", case["name"])[1],
        "verdict": lambda _, j: j["verdict"],
    }
    assert {key for key, _, _ in found["counts"]} == set(values)
    for key, value, text in found["counts"]:
        value = SHORT.get(value, value)
        number = sum(values[key](case, j) == value for case, j in judgements)
        assert text.startswith(f"{number} results of "), (key, value, text, number)
    most = {}
    for _, j in judgements:
        for errors in j["by_position"]:
            at = j["backend_name"], errors["first"] or 0.5
            most[at] = max(most.get(at, 0), errors["error_over_bound"])
    assert most
    assert {(name, at): value for name, points in found["errors"] for at, value in points} == most
    failing = sum(j["verdict"] == FAIL for _, j in judgements)
    assert found["failing"].startswith(f"{failing} results of ")
    assert found["searched"]
    assert all("mode=2," in name for name in found["searched"])
    assert found["breaks"].startswith(
        "ROPE(<wbr>type=f32,<wbr>ne_a=[128,<wbr>32,<wbr>2,<wbr>1],<wbr>n_dims=32,"
    )
    assert found["sorted"] == "descending"
    assert found["ratios"][0] == "infinite"
    numbers = [float(r) for r in found["ratios"] if r != "infinite"]
    assert numbers == sorted(numbers, reverse=True)
    assert found["focused"]
    assert found["readouts"][0] != found["readouts"][1]
    assert found["theme"] == ["dark", "rgb(15, 19, 24)"]


BENCH_SCRIPT = """
const rows = () => [...document.querySelectorAll("#figure-table tbody tr")];
const names = () => rows().map((row) => row.cells[0].textContent);
const found = { all: names().length, bars: document.querySelectorAll("svg.bar-cell").length };
kind.value = "npu_rope";
kind.dispatchEvent(new Event("change"));
found.ours = names();
return found;
"""


@pytest.mark.long
def test_figures_have_bars_and_can_be_filtered_in_a_browser(benched, tmp_path):
    text, document = benched
    found = run_script(text, BENCH_SCRIPT, tmp_path)
    assert found["all"] == min(100, len(document["rows"]))
    assert found["bars"] == sum("median_us" in row for row in document["rows"][:100])
    assert found["ours"] == [row["contestant"] for row in document["rows"] if row["kind"] == "ours"]


TRACE_SCRIPT = """
const canvas = byId("lanes");
const press = (key) => canvas.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
const drawn = () => { const pixels = pen.getImageData(0, 0, canvas.width, canvas.height).data; let n = 0;
  for (let i = 3; i < pixels.length; i += 4) n += pixels[i] > 0; return n; };
canvas.focus();
const found = { focused: document.activeElement === canvas, whole: [...view], drawn: drawn() };
press("+"); press("+");
found.zoomed = [...view];
press("ArrowRight");
found.moved = [...view];
press("-"); press("-"); press("-");
found.back = [...view];
canvas.dispatchEvent(new WheelEvent("wheel", { deltaY: -100, clientX: 600, clientY: 60, cancelable: true }));
found.wheeled = [...view];
press("Home");
press("ArrowDown"); press("ArrowDown"); press(".");
found.first = byId("span").textContent;
press(".");
found.second = byId("span").textContent;
nextCritical();
found.critical = byId("span").textContent;
await new Promise((done) => setTimeout(done, 500));
found.rows = document.querySelectorAll("#span-table tbody tr").length;
const begin = performance.now();
for (let i = 0; i < 10; ++i) { showWhole(); }
found.milliseconds = (performance.now() - begin) / 10;
found.spans = lanes.reduce((sum, lane) => sum + lane.begin.length, 0);
return found;
"""


@pytest.mark.long
def test_the_timeline_is_drawn_and_used_by_keyboard_in_a_browser(traced, tmp_path):
    found = run_script(traced[0], TRACE_SCRIPT, tmp_path)
    whole = found["whole"]
    assert found["focused"]
    assert found["drawn"] > 10_000
    assert found["zoomed"][1] - found["zoomed"][0] == pytest.approx((whole[1] - whole[0]) / 4)
    assert found["moved"][0] > found["zoomed"][0]
    assert found["back"] == whole
    assert found["wheeled"][1] - found["wheeled"][0] == pytest.approx(0.8 * (whole[1] - whole[0]))
    assert re.match(r"Core 0, V: \w+; \w+\.h:\d+; from [\d.]+ µs, [\d.]+ µs = [\d,]+ cycles", found["first"])
    assert found["second"] != found["first"]
    assert found["critical"].startswith("Core 0, critical path: ")
    assert found["rows"] > 0


@pytest.mark.long
def test_a_timeline_of_100000_spans_stays_usable_in_a_browser(traced, tmp_path):
    page = Page(traced[0])
    data = page.data()
    for lane in data["lanes"]:
        copies = -(-12_000 // len(lane["begin"])) if lane["core"] == 0 else 1
        end = max(b + n for b, n in zip(lane["begin"], lane["length"], strict=True))
        lane["begin"] = [b + i * end for i in range(copies) for b in lane["begin"]]
        for column in ("length", "names", "lines", "bytes", "count"):
            lane[column] *= copies
    text = page.text.replace(page.scripts[0], json.dumps(data).replace("<", "\\u003c"))
    found = run_script(text, TRACE_SCRIPT, tmp_path)
    assert found["spans"] > 100_000
    assert found["rows"] > 0
    assert found["milliseconds"] < 500


@pytest.mark.long
@pytest.mark.parametrize("width", WIDTHS)
def test_a_page_is_not_wider_than_the_window(each, width, tmp_path):
    script = "return [document.documentElement.scrollWidth, innerWidth];"
    content, window = run_script(each, script, tmp_path, width)
    assert window == width
    assert content <= window


SHADOWS = {
    ("validated", 390): [[False, True], [True, True], [True, False]],
    ("benched", 390): [[False, True], [True, True], [True, False]],
    ("benched", 1280): [[False, False]] * 3,
}


@pytest.mark.long
@pytest.mark.parametrize(("page", "width"), SHADOWS)
def test_a_shadow_shows_where_a_table_continues(page, width, request, tmp_path):
    text = request.getfixturevalue(page)[0]
    script = html_pages.shadows_script("document.querySelector('.scroll.tall')")
    assert run_script(text, script, tmp_path, width) == SHADOWS[page, width]


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", WIDTHS)
def test_axe_finds_no_fault(each, width, dark, tmp_path):
    html_pages.browser()
    theme = f"document.documentElement.dataset.theme = '{'dark' if dark else 'light'}';"
    assert html_pages.faults_of_access(each, tmp_path, width, theme) == []


# ---- bad input ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("arguments", [["validate", *CASES, *CPU], ["bench"], TRACE])
def test_a_page_that_cannot_be_written_is_refused_before_the_work(arguments, tmp_path):
    path = tmp_path / "missing" / "page.html"
    done = run(*arguments, "--format", "html", "--output", str(path))
    assert done.exit_code == 2
    expected = f"[{arguments[0]}] output must be a file in an existing folder but got {path}.\n"
    assert done.stderr == expected
    assert done.stdout == ""
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("arguments", [["validate", *CASES, *CPU], ["bench"], TRACE])
def test_an_unknown_format_is_refused(arguments, tmp_path):
    path = tmp_path / "page"
    done = run(*arguments, "--format", "pdf", "--output", str(path))
    assert done.exit_code == 2
    assert "'pdf' is not one of" in done.stderr
    assert "html" in done.stderr
    assert not path.exists()


def test_trace_needs_a_file_for_the_page():
    done = run(*TRACE, "--format", "html")
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr == "[trace] output must name a file for --format html but got nothing.\n"


@pytest.mark.parametrize("module", [validation_page, bench_page])
def test_an_error_while_a_page_is_written_leaves_the_earlier_file(module, bench_run, monkeypatch, tmp_path):
    path = tmp_path / "page.html"
    path.write_text("earlier")

    def fail(*arguments):
        raise OSError("no space left")

    monkeypatch.setattr(module, "_data", fail)
    arguments = {
        validation_page: ["validate", "--suite", "onnx", "--filter", "prefill", *CPU],
        bench_page: ["bench", "--from", str(bench_run)],
    }[module]
    with pytest.raises(OSError, match="no space left"):
        CliRunner().invoke(
            app, [*arguments, "--format", "html", "--output", str(path)], catch_exceptions=False
        )
    assert path.read_text() == "earlier"
    assert list(tmp_path.iterdir()) == [path]
