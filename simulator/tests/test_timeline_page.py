"""The contents of UB in a trace, and the page of a timeline."""

from __future__ import annotations

import json
import re

import pytest
from ascend_sim.cli.app import app
from test_timeline import run
from typer.testing import CliRunner

BYTES = 512 * 4


def traced(compiled, tmp_path, entry="add_tiles", **amounts):
    """Return the spans of the pipes and the contents of UB, of core 0."""
    path = tmp_path / "trace.json"
    run(compiled, entry, trace_path=str(path), **{"count": 512, "tiles": 5, **amounts})
    spans = [e for e in json.loads(path.read_text())["traceEvents"] if e["ph"] == "X" and e["pid"] == 0]
    contents = {}
    for span in spans:
        if span.get("cat") == "ub":
            contents.setdefault((span["args"]["address"], span["args"]["bytes"]), []).append(span)
    return [span for span in spans if "cat" not in span], contents


def end(span):
    return pytest.approx(span["ts"] + span["dur"], abs=2e-4)


def test_the_contents_of_a_queue_s_buffer_last_from_the_copy_to_the_last_use(compiled, tmp_path):
    spans, contents = traced(compiled, tmp_path, buffers=2)
    copies, sums, stores = ([s for s in spans if s["tid"] == row] for row in (2, 1, 3))
    assert sorted(contents) == [(i * BYTES, BYTES) for i in range(4)]
    for place, first, last in ((0, copies, sums), (1, copies, sums), (2, sums, stores), (3, sums, stores)):
        found = contents[place * BYTES, BYTES]
        tiles = range(place % 2, 5, 2)
        assert [span["ts"] for span in found] == [first[tile]["ts"] for tile in tiles]
        assert [span["ts"] + span["dur"] for span in found] == [end(last[tile]) for tile in tiles]
        assert {span["name"] for span in found} == {first[0]["name"]}
        assert {span["args"]["uses"] for span in found} == {2}
        assert {span["args"]["line"] for span in found} == {first[0]["args"]["line"]}


def test_a_sum_in_place_keeps_the_contents(compiled, tmp_path):
    _, contents = traced(compiled, tmp_path, "sums_and_scalar", count=4096)
    (((address, _), found),) = contents.items()
    assert address == 0
    assert [span["args"]["uses"] for span in found] == [4]  # a fill, two sums, a scalar read


def test_tensors_at_addresses_have_places_of_their_own(compiled, tmp_path):
    _, contents = traced(compiled, tmp_path, "tensors_at_addresses", count=512)
    assert sorted(contents) == [(0, 4096), (4096, 2048)]
    assert [(s["name"], s["args"]["uses"]) for s in contents[0, 4096]] == [("Duplicate", 2), ("Duplicate", 1)]
    assert [(s["name"], s["args"]["uses"]) for s in contents[4096, 2048]] == [("Adds", 1)]


def test_a_write_through_a_reference_has_the_reference_s_time(compiled, tmp_path):
    spans, contents = traced(compiled, tmp_path, "reference_to_ub")
    (reference,) = [s for s in spans if (s["name"], s["tid"]) == ("LocalTensor()", 0)]
    ((found,),) = contents.values()
    assert (found["name"], found["args"]["uses"]) == ("LocalTensor()", 2)
    assert found["ts"] == end(reference)


def test_each_place_has_a_named_row(compiled, tmp_path):
    traced(compiled, tmp_path, buffers=2, block_dim=3)
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    names = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    for span in events:
        if span.get("cat") == "ub":
            address, size = span["args"]["address"], span["args"]["bytes"]
            assert names[span["pid"], span["tid"]] == f"UB [{address}, {address + size})"
    assert len({core for core, row in names if row >= 7}) == 3


# ---- the page ----------------------------------------------------------------------------------------------


def command(*arguments):
    return CliRunner().invoke(app, ["trace", *map(str, arguments)])


def test_the_command_writes_a_page_with_every_span(compiled, tmp_path):
    traced(compiled, tmp_path)
    page = tmp_path / "trace.html"
    done = command(tmp_path / "trace.json", "--page", page)
    assert done.exit_code == 0, done.output
    assert f"page written to {page}" in done.stdout
    text = page.read_text()
    data = json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', text)[1])
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert sum(len(lane["begin"]) for lane in data["lanes"]) == sum(e["ph"] == "X" for e in events)
    assert "default-src 'none'" in text
    assert "<html lang=" in text
    assert "never fitted to hardware" in text


def test_a_page_that_cannot_be_written_is_refused(compiled, tmp_path):
    traced(compiled, tmp_path)
    done = command(tmp_path / "trace.json", "--page", tmp_path / "missing" / "x.html")
    assert done.exit_code == 2
    assert done.stderr.startswith("[trace] page must be a file in an existing folder but got ")
    both = tmp_path / "x.svg"
    done = command(tmp_path / "trace.json", "--page", both, "--plot", both)
    assert (done.exit_code, done.stderr) == (2, f"[trace] page must differ from plot but got {both}.\n")
    text = (tmp_path / "trace.json").read_text()
    done = command(tmp_path / "trace.json", "--page", tmp_path / "." / "trace.json")
    assert (done.exit_code, done.stderr) == (
        2,
        f"[trace] page must differ from file but got {tmp_path / 'trace.json'}.\n",
    )
    assert (tmp_path / "trace.json").read_text() == text
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    done = command(loop, "--page", tmp_path / "x.html")
    assert done.exit_code == 2
    assert done.stderr.startswith(f"[trace] file must be a timeline of ascend_sim but got {loop}: ")
    loop.unlink()
    contents = json.loads(text)
    del contents["traceEvents"]
    (tmp_path / "no-spans.json").write_text(json.dumps(contents))
    done = command(tmp_path / "no-spans.json", "--page", tmp_path / "x.html")
    assert done.exit_code == 2
    assert done.stderr.endswith("it has no traceEvents to show.\n")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["no-spans.json", "trace.json"]
