"""Fuzz the readers of files that a user may have from somewhere else.

These are the timelines of ``ascend-sim trace``, the runs of ``npu-rope bench --from``, and the ``.npy``
files, sizes and tiling structs of ``ascend-sim kernel``.

The bytes change a complete file in a few places, or make a file of any content. Properties of every call:

- It succeeds, or ends with the message "[name] argument must RULE but got VALUE." The commands ``trace`` and
  ``bench`` then end with exit status 2.
- A page of a timeline is written completely or not at all, and no temporary file stays.
- A call takes at most MEMORY_BYTES. The option -timeout of libFuzzer limits its time.

scripts/fuzz.sh runs this program. Options: python_fuzzer.py.
"""

from __future__ import annotations

import io
import json
import os
import re
import sys
import tempfile
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import atheris
from python_fuzzer import Program

with atheris.instrument_imports(
    include=[
        "ascend_sim.cli.trace",
        "ascend_sim.cli.arguments",
        "ascend_sim.timeline",
        "ascend_sim.timeline_page",
        "npu_rope.bench.report",
    ]
):
    from ascend_sim import timeline, timeline_page
    from ascend_sim.cli import arguments
    from ascend_sim.cli.trace import trace

    from npu_rope.bench import report
    from npu_rope.cli import bench

import numpy as np
import typer

MEMORY_BYTES = 1 << 29
ERROR = re.compile(r"\[(sim|trace|bench)\] .+ must .+ but got .*\.", re.DOTALL)
HOSTILE = [0, -1, 1, 2, 7, 2**31, 2**63, 10**400, -0.5, 1e308, 5e-324, float("nan"), float("inf"), True, None,
           "", "x", "\u2028", "</script><b>", "[red]", [], {}, [[]], [{}], {"x": [1]}]  # fmt: skip

# ---- complete files --------------------------------------------------------------------------------------


def a_timeline() -> dict[str, Any]:
    """Return the contents of a timeline with an instruction."""
    numbers = dict.fromkeys(timeline.SUMMARY_NUMBERS, 2.0)
    instruction = {"api": "Add", "pipe": "V", "count": 1, "repeats": 8, "bytes": 0, "cycles": 20}
    part = {"api": "Add", "pipe": "V", "what": "instruction", "count": 1, "cycles": 20}
    path = {"cycles": 20, "parts": [part]}
    summary = {**numbers, "soc": "Ascend910B1", "clock_ghz": 1.85, "blocks": 2, "apis": [instruction]}
    span = {"ph": "X", "pid": 0, "tid": 1, "ts": 0.5, "dur": 0.25, "name": "Add", "args": {"repeats": 8}}
    name = {"ph": "M", "pid": 0, "tid": 0, "name": "thread_name", "args": {"name": "S"}}
    critical = {**span, "tid": timeline_page.CRITICAL}
    events = [name, span, critical]
    return {"traceEvents": events, "otherData": {"summary": {**summary, "critical_path": path}}}


def a_run() -> dict[str, Any]:
    """Return the contents of a run of ``npu-rope bench`` with a contestant and the floor."""
    names = ("row", "group", "shape", "dtype", "mode", "contestant", "kind", "status", "note")
    row = {**dict.fromkeys(names, "rope"), "threads": 1, "status": "ok"}
    measured = {
        "median_us": 2.0,
        "min_us": 1.5,
        "spread": 0.1,
        "ratio": 1.25,
        "samples": 9,
        "foreign_cores": 0.0,
    }
    rows = [row | measured | {"kind": "floor"}, row | measured | {"kind": "ours", "contestant": "npu_rope"}]
    facts = {"machine": "a machine", "isa": "avx2", "versions": {"numpy": "2.0"}, "seconds_per_row": 0.5}
    return {"schema": report.SCHEMA, "date": "2026-01-01", **facts, "rows": rows, "problems": []}


# ---- from bytes to files ---------------------------------------------------------------------------------


def change(data: atheris.FuzzedDataProvider, contents: Any) -> Any:
    """Return the contents with one entry replaced or removed, at any depth."""
    if not isinstance(contents, (dict, list)) or not contents or data.ConsumeIntInRange(0, 7) == 0:
        return data.PickValueInList(HOSTILE)
    keys: list[Any] = list(contents) if isinstance(contents, dict) else list(range(len(contents)))
    key = data.PickValueInList(keys)
    copy = contents.copy()
    if data.ConsumeIntInRange(0, 7) == 0:
        del copy[key]
    else:
        copy[key] = change(data, contents[key])
    return copy


def file_of(data: atheris.FuzzedDataProvider, contents: Any) -> bytes:
    """Return a JSON file with these contents, changed in a few places; seldom with other bytes inside."""
    for _ in range(data.ConsumeIntInRange(0, 3)):
        contents = change(data, contents)
    text = json.dumps(contents).encode()
    if data.ConsumeIntInRange(0, 7):
        return text
    at = data.ConsumeIntInRange(0, len(text))
    return text[:at] + data.ConsumeBytes(64) + (text[at:] if data.ConsumeBool() else b"")


def npy_file(data: atheris.FuzzedDataProvider) -> bytes:
    """Return a ``.npy`` file with a header of any types and sizes."""
    kinds = [
        "<f4",
        "<f2",
        "|i1",
        "<i8",
        "|O",
        "|V2",
        "<U9",
        "?",
        "<M8[s]",
        ">f8",
        "<f4,<f4",
        "f",
        "x",
        "<c16",
        "|V0",
    ]
    sizes = [0, 1, 2, 3, 2**16, 2**31, 2**62, -1, 10**30]
    shape = tuple(data.PickValueInList(sizes) for _ in range(data.ConsumeIntInRange(0, 4)))
    header = {"descr": data.PickValueInList(kinds), "fortran_order": data.ConsumeBool(), "shape": shape}
    text = str(header).encode()
    if data.ConsumeIntInRange(0, 3) == 0:
        at = data.ConsumeIntInRange(0, len(text))
        text = text[:at] + data.ConsumeBytes(16) + text[at:]
    version = data.PickValueInList([1, 2, 3, 0, 255])
    count = len(text) if data.ConsumeIntInRange(0, 7) else data.PickValueInList([0, 1, 2**16 - 1, 2**32 - 1])
    length = count.to_bytes(4, "little")[: 2 if version == 1 else 4]
    return b"\x93NUMPY" + bytes([version, 0]) + length + text + bytes(data.ConsumeIntInRange(0, 64))


def array_text(data: atheris.FuzzedDataProvider) -> str:
    """Return a kernel's argument. Its sizes are small, or far beyond the limit."""
    sizes = [data.PickValueInList(["0", "1", "2", "17", str(2**40), "", "-3", "x"]) for _ in range(4)]
    dtype = data.PickValueInList([*arguments.DTYPES, "float64", ""])
    role = data.PickValueInList([*arguments.ROLES, "value", "null", "x", ""])
    array = f"{dtype}[{','.join(sizes[: data.ConsumeIntInRange(0, 4)])}]"
    return f"{role}:{array}" if data.ConsumeBool() else f"{role}:{data.ConsumeUnicodeNoSurrogates(24)}"


def tiling_text(data: atheris.FuzzedDataProvider) -> str:
    """Return a tiling struct: hexadecimal digits, or fields."""
    if data.ConsumeBool():
        return data.ConsumeUnicodeNoSurrogates(32)
    types = ["int8_t", "uint8_t", "int16_t", "int64_t", "uint64_t", "float", "double", "x", ""]
    values = ["0", "1", "-1", "0x10", "1e39", "1.5", "nan", str(2**64), ""]
    fields = [
        f"{data.PickValueInList(types)}={data.PickValueInList(values)}"
        for _ in range(data.ConsumeIntInRange(0, 5))
    ]
    return ",".join(fields)


# ---- calls -----------------------------------------------------------------------------------------------

folder = tempfile.TemporaryDirectory(prefix="npu_rope_fuzz")
path, other_path, page = (Path(folder.name) / name for name in ("given", "other", "page.html"))


def show_timeline(data: atheris.FuzzedDataProvider) -> None:
    """Print the summary of a timeline, and write its page."""
    writes_page, as_json = data.ConsumeBool(), data.ConsumeBool()
    path.write_bytes(file_of(data, a_timeline()))
    trace(path, plot=None, page=page if writes_page else None, json_=as_json)
    if writes_page and not page.read_text(encoding="utf-8").endswith("</html>\n"):
        raise AssertionError("the page must be complete")


def show_runs(data: atheris.FuzzedDataProvider) -> None:
    """Print one run or two in each format."""
    paths = [path, other_path][: data.ConsumeIntInRange(1, 2)]
    for each in paths:
        each.write_bytes(file_of(data, a_run()))
    runs = bench._read_all(paths)
    report.write_console(runs, sys.stdout)
    report.markdown(runs)
    report.write_csv(runs[0], sys.stdout)
    report.write_json(runs[0], sys.stdout)


def read_argument(data: atheris.FuzzedDataProvider) -> None:
    """Read an array from a file or from a text."""
    if data.ConsumeBool():
        path.write_bytes(npy_file(data))
        arguments.arguments_of([f"in:{path}"], 0)
    else:
        arguments.arguments_of([array_text(data)], 0)


def read_tiling(data: atheris.FuzzedDataProvider) -> None:
    """Read a tiling struct from a file or from a text."""
    if data.ConsumeBool():
        path.write_bytes(data.ConsumeBytes(64))
        arguments.tiling_of(f"@{path}")
    else:
        arguments.tiling_of(tiling_text(data))


CALLS: list[Callable[[atheris.FuzzedDataProvider], None]] = [
    show_timeline,
    show_runs,
    read_argument,
    read_tiling,
]


def test(content: bytes) -> None:
    """Read and judge."""
    data = atheris.FuzzedDataProvider(content)
    call = data.PickValueInList(CALLS)
    errors = io.StringIO()
    for name in os.listdir(folder.name):
        os.unlink(os.path.join(folder.name, name))
    message = None
    try:
        with redirect_stdout(io.StringIO()), redirect_stderr(errors), np.errstate(all="ignore"):
            call(data)
    except typer.Exit as exit_:
        if exit_.exit_code != 2:
            raise
        message = errors.getvalue().strip()
    except ValueError as error:
        if call in (show_timeline, show_runs):
            raise
        message = str(error)
    if message is not None and not ERROR.fullmatch(message):
        raise AssertionError(f"the message must have the project's form but it is {message!r}")
    if message is not None and page.exists():
        raise AssertionError("a refused call must write no page")
    if extra := {*os.listdir(folder.name)} - {path.name, other_path.name, page.name}:
        raise AssertionError(f"no temporary file must stay but {extra} did")


if __name__ == "__main__":
    Program(
        test, (sys.modules[trace.__module__], arguments, timeline, timeline_page, report), MEMORY_BYTES
    ).main()
