"""``npu-rope hardware-report``: a report about npu_rope on a machine with an Ascend NPU."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer
from ascend_sim.files import replacing
from ascend_sim.termination import termination_as_interrupt
from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from npu_rope import backends
from npu_rope.cli.usage import require_writable, usage_error
from npu_rope.errors import BackendUnavailable
from npu_rope.hardware.calls import OPERATORS
from npu_rope.hardware.document import CORRECT, SIMULATED, WRONG, Document
from npu_rope.hardware.page import html_of
from npu_rope.hardware.privacy import Scrubber
from npu_rope.hardware.run import STEPS, HardwareRun, Plan

EXIT_NOT_CORRECT = 1  # exit status
JSON_FILE, HTML_FILE = "hardware-report.json", "hardware-report.html"

Operator = Enum("Operator", {name.upper(): name for name in OPERATORS}, type=str)  # type: ignore[misc]
Step = Enum("Step", {name.upper(): name for name in STEPS}, type=str)  # type: ignore[misc]


def hardware_report(
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Folder for both files; created if it is absent.")
    ] = Path("npu-rope-report"),
    quick: Annotated[bool, typer.Option("--quick", help="Few shapes and cases: a first look.")] = False,
    op: Annotated[
        list[Operator] | None, typer.Option(help="Check and time this operator only; repeatable.")
    ] = None,
    filter_: Annotated[
        str, typer.Option("--filter", "-p", help="Check and time only calls whose name contains this text.")
    ] = "",
    skip: Annotated[list[Step] | None, typer.Option(help="Leave a step out; repeatable.")] = None,
    seconds: Annotated[
        float,
        typer.Option(min=1, help="Longest time for a case or a call; a longer one is stopped and lost."),
    ] = 300,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a report in that folder.")] = False,
) -> None:
    """Check and time npu_rope on this machine's NPU, and write a report to send.

    It runs the steps below and writes hardware-report.json and
    hardware-report.html, which have the same content. The files are complete
    after each step, so that an interrupted run keeps its results.

    doctor: lists the installed parts.

    validate: runs every case of npu-rope validate on back end npu.

    calls: compares each operator at about a dozen shapes with float64.

    times: times the same calls on the device with CANN's profiler. If the
    profiler gives no result, events are used, which include the gaps between
    launches. The report names the method.

    predictions: runs the same calls on the simulator of this chip. The report
    compares both times, which shows the error of the timing model.

    The report has no host or user name, no serial number, and no path outside of
    the installation. Read it before you send it.

    Under npu-rope sim everything runs on a simulated machine. The report is then
    labelled SIMULATED in every section and contains no device times.

    Exit status: 0 every result is correct, 1 a result is wrong, a step failed or
    nothing was checked, 2 bad usage or no NPU.

    Examples:

      npu-rope hardware-report --quick

      npu-rope hardware-report --output report-910b3

      npu-rope hardware-report --op rope --op rms_norm --skip validate

      npu-rope sim -- python -m npu_rope.cli hardware-report --quick
    """
    plan = Plan(
        quick=quick,
        operators=[operator.value for operator in op] if op else OPERATORS,
        name_part=filter_,
        skip=[step.value for step in skip or []],
        seconds=seconds,
    )
    _check(plan)
    json_path, html_path = _files(output, overwrite)
    scrub = Scrubber()

    def write(document: Document) -> None:
        clean = scrub.clean(document)
        with replacing(json_path) as stream:
            json.dump(clean, stream, indent=1, allow_nan=False)
            stream.write("\n")
        with replacing(html_path) as stream:
            stream.write(html_of(clean))

    console = Console(stderr=True, highlight=False)
    if backends.simulated_soc() is not None:
        console.print(f"[yellow]{SIMULATED}.[/]", soft_wrap=True)
    try:
        with termination_as_interrupt(), _progress(console) as progress:
            document = HardwareRun(plan, progress, write).run_steps()
    except KeyboardInterrupt:
        print(f"The results so far are in {json_path} and {html_path}.", file=sys.stderr)
        raise
    _show(scrub.clean(document), json_path, html_path)
    raise typer.Exit(0 if document["verdict"]["status"] == CORRECT else EXIT_NOT_CORRECT)


def _check(plan: Plan) -> None:
    if "validate" in plan.skip and "calls" in plan.skip:
        raise usage_error("[hardware-report] skip must leave validate or calls but got both.")
    if not plan.calls():
        got = repr(plan.name_part)
        raise usage_error(f"[hardware-report] filter must be part of a call's name but got {got}.")
    try:
        backends.find("npu").require()
    except BackendUnavailable as error:
        raise usage_error(str(error)) from None


def _files(folder: Path, overwrite: bool) -> tuple[Path, Path]:
    """Return the paths of the two files to write."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        text = f"[hardware-report] output must be a writable folder but got {folder}: {error.strerror}."
        raise usage_error(text) from None
    paths = folder / JSON_FILE, folder / HTML_FILE
    for path in paths:
        if path.exists() and not overwrite:
            raise usage_error(
                f"[hardware-report] output must be a folder without a report but got {folder}, which has"
                f" {path.name}.\nName another folder, or replace it with --overwrite."
            )
        require_writable("hardware-report", output=path)
    return paths


class _Bar:
    """The progress of the steps: a bar on a terminal, elsewhere lines at the start and after each quarter."""

    def __init__(self, console: Console, bar: Progress) -> None:
        self.console, self.bar = console, bar
        self.step, self.total, self.done = "", 0, 0
        self.task: Any = None
        self.begun = 0.0

    def begin(self, step: str, total: int) -> None:
        self.step, self.total, self.done, self.begun = step, total, 0, time.monotonic()
        self.task = self.bar.add_task(step, total=total)
        if not self.console.is_terminal:
            self.console.print(f"{step}: {total} to do", soft_wrap=True)

    def advance(self, unit: str) -> None:
        self.done += 1
        self.bar.advance(self.task)
        ends_quarter = 4 * self.done // self.total > 4 * (self.done - 1) // self.total
        if ends_quarter and self.done < self.total and not self.console.is_terminal:
            left = (time.monotonic() - self.begun) / self.done * (self.total - self.done)
            text = f"{self.step}: {self.done} of {self.total} done, about {left:.0f} s left"
            self.console.print(text, soft_wrap=True)

    def end(self) -> None:
        if self.task is None:
            return
        self.bar.update(self.task, completed=self.total)
        self.bar.stop_task(self.task)
        self.task = None


@contextmanager
def _progress(console: Console) -> Iterator[_Bar]:
    columns = (
        TextColumn("{task.description:11}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("passed,"),
        TimeRemainingColumn(),
        TextColumn("left"),
    )
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        yield _Bar(console, bar)


def _show(document: Document, json_path: Path, html_path: Path) -> None:
    """Print the verdict, each fault, the error of the timing model, missing parts, and the files' names."""
    console = Console(highlight=False)

    def print_line(line: str) -> None:
        console.print(line, soft_wrap=True)

    label = "[yellow]SIMULATED[/] " if document["simulated"] else ""
    status = document["verdict"]["status"]
    colour = {CORRECT: "bold green", WRONG: "bold red"}.get(status, "bold yellow")
    print_line(
        f"{label}{escape(str(document['machine'].get('chip', 'unknown chip')))}: [{colour}]{status}[/]"
    )
    print_line(f"{label}{escape(document['verdict']['text'])}")
    for failure in (document["validate"] or {}).get("failures", []):
        print_line(f"  [red]{failure['verdict']}[/] {escape(failure['repeat'])}")
    for operator in document["operators"]:
        for call in operator["calls"]:
            if call["correct"] is False:
                print_line(f"  [red]wrong[/] {escape(call['id'])}; repeat: {escape(call['repeat'])}")
    model = document["timing_model"]
    if model["all"]:
        errors = model["all"]
        print_line(
            f"measured / predicted: median {errors['median_ratio']:.2f}, worst {errors['worst_ratio']:.2f}"
            f" ({escape(errors['worst_call'])}), {errors['calls']} calls"
        )
    else:
        print_line(f"{label}measured / predicted: {escape(model['note'])}")
    for missing in document["not_done"]:
        print_line(f"not done: {escape(missing['what'])}: {escape(missing['why'])}")
    print_line(f"written: {escape(str(json_path))}, {escape(str(html_path))}")
    print_line("Read them before you send them; docs/hardware_report.md describes how.")
