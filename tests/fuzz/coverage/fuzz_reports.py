"""Fuzz the readers of files that a user may have from somewhere else.

These are the timelines of ``ascend-sim trace``, the runs of ``npu-rope bench --from``, the configurations of
``npu-rope inspect``, and the ``.npy`` files, sizes, attributes and tiling structs of ``ascend-sim kernel``.

The bytes change a complete file in a few places, or make a file of any content. Properties of every call:

- It succeeds, or ends with the message "[name] argument must RULE but got VALUE." The commands ``trace``,
  ``bench`` and ``inspect`` then end with exit status 2.
- A page or a plot is written completely or not at all, and no temporary file stays.
- No printed or written text has a control character, and no page has the markup of a file.
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
        "ascend_sim.cli.operator_call",
        "ascend_sim.texts",
        "ascend_sim.timeline",
        "ascend_sim.timeline_page",
        "ascend_sim.timeline_plot",
        "npu_rope.bench.growth_plot",
        "npu_rope.bench.page",
        "npu_rope.bench.plot",
        "npu_rope.bench.report",
        "npu_rope.cli.inspect",
        "npu_rope.cli.inspect_model",
        "npu_rope.hf_config",
    ]
):
    from ascend_sim import texts, timeline, timeline_page, timeline_plot
    from ascend_sim.cli import arguments, operator_call
    from ascend_sim.cli.trace import trace

    from npu_rope import hf_config
    from npu_rope.bench import growth_plot, growth_rows, report
    from npu_rope.bench import page as bench_page
    from npu_rope.bench import plot as bench_plot
    from npu_rope.bench.rope_rows import OUT
    from npu_rope.cli import inspect_model
    from npu_rope.cli.bench import BenchFormat, bench
    from npu_rope.cli.inspect import inspect

import matplotlib.pyplot  # noqa: F401  # its memory is not that of a call
import numpy as np
import transformers.models.auto.configuration_auto  # noqa: F401
import typer

MEMORY_BYTES = 1 << 29
ERROR = re.compile(r"\[(sim|trace|bench|inspect|rope)\] .+ must .+ but got .*\.", re.DOTALL)
CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff]")
HOSTILE = [0, -1, 1, 2, 7, 2**31, 2**63, 10**400, -0.5, 1e308, 5e-324, float("nan"), float("inf"), True, None,
           10**300, "", "x", "\u2028", "</script><b>", "[red]", "\x1b[31m", "\x9b", "\ud800", "$x$", r"$\x{$",
           "=1+1", "a | b", [], {}, [[]], [{}], {"x": [1]}]  # fmt: skip

COMMANDS = typer.Typer()
COMMANDS.command()(bench)
CONTEXT = typer.Context(typer.main.get_command(COMMANDS))  # of a command line that no option is given on

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


def a_configuration(data: atheris.FuzzedDataProvider) -> dict[str, Any]:
    """Return the configuration of a model that transformers knows, or of another."""
    kind = data.PickValueInList(["llama", "qwen2", "gpt_neo", "gemma3_text", "deepseek_v3", "x"])
    sizes = {"hidden_size": 64, "num_attention_heads": 1, "head_dim": 64, "num_hidden_layers": 2}
    rope = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 2.0}
    more: dict[str, Any] = {"max_position_embeddings": 64, "rope_parameters": rope}
    if data.ConsumeBool():
        more["rope_parameters"] = {"full_attention": rope, "sliding_attention": {"rope_type": "default"}}
        more["layer_types"] = ["full_attention", "sliding_attention"]
    if kind == "gpt_neo":
        more["attention_types"] = [[["global", "local"], 1]]
    return {"model_type": kind, **sizes, **more}


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
path, other_path, page, plot, table = (
    Path(folder.name) / name for name in ("given", "other", "page.html", "plot.svg", "table.md")
)
# The last text of a complete file.
ENDS = {page: "</html>\n", plot: "</svg>\n", table: "<!-- measured: end -->\n"}


def show_timeline(data: atheris.FuzzedDataProvider) -> None:
    """Print the summary of a timeline, and write its page or its plot, which takes longer."""
    writes_page, as_json = data.ConsumeBool(), data.ConsumeBool()
    draws = data.ConsumeIntInRange(0, 15) == 0
    path.write_bytes(file_of(data, a_timeline()))
    trace(path, plot=plot if draws else None, page=page if writes_page else None, json_=as_json)


def show_runs(data: atheris.FuzzedDataProvider) -> None:
    """Print or write one run or two in a format."""
    form = data.PickValueInList(list(BenchFormat))
    paths = [path, other_path][: data.ConsumeIntInRange(1, 2 if form is BenchFormat.CONSOLE else 1)]
    output = page if form is BenchFormat.HTML else None
    draws = len(paths) == 1 and data.ConsumeIntInRange(0, 15) == 0
    markdown = table if data.ConsumeBool() else None
    for each in paths:
        contents = a_run()
        kind = data.PickValueInList(["drawn", "growth", "other"])
        for row in contents["rows"]:
            if kind == "drawn":
                row["mode"] = "neox"
            elif kind == "growth":
                name = OUT if row["kind"] == "ours" else growth_rows.FLOOR
                row |= {"group": growth_rows.GROUP, "mode": growth_rows.TOKENS, "shape": "[1,64,32,128]"}
                row |= {"contestant": f"S=64: {name}", "dtype": "f16"}
        each.write_bytes(file_of(data, contents))
    options = {
        **dict.fromkeys(("rows", "modes", "peers", "seconds", "ggml_lib", "isa")),
        "quick": False,
        "threads": "1",
        "dtypes": "f32",
        "format_": form,
        "output": output,
        "plot": plot if draws else None,
        "markdown": markdown,
        "earlier": paths,
    }
    bench(CONTEXT, **options)


def show_configuration(data: atheris.FuzzedDataProvider) -> None:
    """Print the rope of a model's configuration."""
    as_json, pairs = data.ConsumeBool(), data.ConsumeBool()
    draws = data.ConsumeIntInRange(0, 15) == 0
    path.write_bytes(file_of(data, a_configuration(data)))
    inspect(
        path,
        layer_type=None,
        layer=None,
        n_ctx=None,
        pairs=pairs,
        json_=as_json,
        plot=plot if draws else None,
    )


def read_operator(data: atheris.FuzzedDataProvider) -> None:
    """Read an input, an output and an attribute of an operator."""
    path.write_bytes(npy_file(data))
    form = data.PickValueInList(
        ["x=float32:4,2", f"x={path}", f"x={path}={other_path}", "x=", "", "x=int8:2,", "="]
    )
    name, source, _ = operator_call._split_text(form, "input")
    operator_call._read_or_make_array(source, None, f"{name}={source}")
    operator_call._parse_json(
        data.PickValueInList(["1", "[1,2]", "true", "x", "[" * 9999, "1" * 9999]), "a=x"
    )


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
    show_configuration,
    read_argument,
    read_operator,
    read_tiling,
]
COMMANDS = (show_timeline, show_runs, show_configuration)


def test(content: bytes) -> None:
    """Read and judge."""
    data = atheris.FuzzedDataProvider(content)
    call = data.PickValueInList(CALLS)
    output, errors = io.StringIO(), io.StringIO()
    for name in os.listdir(folder.name):
        os.unlink(os.path.join(folder.name, name))
    message = None
    try:
        with redirect_stdout(output), redirect_stderr(errors), np.errstate(all="ignore"):
            call(data)
    except typer.Exit as exit_:
        if exit_.exit_code == 2:
            message = errors.getvalue().strip()
        elif call is not show_runs or exit_.exit_code not in (0, 1):  # 1: a run with a failed row
            raise
    except ValueError as error:
        if call in COMMANDS:
            raise
        message = str(error)
    if message is not None and not ERROR.fullmatch(message):
        raise AssertionError(f"the message must have the project's form but it is {message!r}")
    written = [each for each in ENDS if each.exists()]
    if message is not None and written:
        raise AssertionError("a refused call must write no page and no plot")
    shown = [output.getvalue(), errors.getvalue()] if call in COMMANDS else []
    for each in written:
        shown.append(each.read_text(encoding="utf-8"))
        if not shown[-1].endswith(ENDS[each]):
            raise AssertionError(f"{each.name} must be complete")
        if each != plot and "</script><b>" in shown[-1]:
            raise AssertionError("a page must not have the markup of a file")
    for text in shown:
        if found := CONTROL.search(text):
            raise AssertionError(f"no text must have a control character but one has {found[0]!r}")
    if extra := {*os.listdir(folder.name)} - {each.name for each in (path, other_path, *ENDS)}:
        raise AssertionError(f"no temporary file must stay but {extra} did")


if __name__ == "__main__":
    Program(
        test,
        (
            *(sys.modules[command.__module__] for command in (trace, inspect)),
            *(arguments, operator_call, texts, timeline, timeline_page, timeline_plot),
            *(bench_page, bench_plot, growth_plot, report, inspect_model, hf_config),
        ),
        MEMORY_BYTES,
    ).main()
