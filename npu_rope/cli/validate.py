"""``npu-rope validate``: compare every back end with float64 and with a real ggml, case by case."""

from __future__ import annotations

import difflib
import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from npu_rope import backends
from npu_rope.cli.report import Detail, ValidationReport, write_report
from npu_rope.cli.usage import require_writable, usage_error
from npu_rope.errors import BackendUnavailable
from npu_rope.testing.ggml import ENVIRONMENT_VARIABLE, GgmlProcess, GgmlUnavailable
from npu_rope.testing.outcomes import FAIL, AnyCase, CaseResult
from npu_rope.testing.sequence_draw import DEFAULT_COUNT
from npu_rope.testing.sequences import EXAMPLE, parse
from npu_rope.testing.suites import SUITES, all_cases, judge

SEQUENCE = re.compile(r"rope(_back)?\(")  # the beginning of a sequence's name
PROGRESS_SECONDS = 15  # between lines of progress where there is no terminal


class ReportFormat(str, Enum):
    """Output formats."""

    CONSOLE = "console"
    JSON = "json"
    CSV = "csv"
    JUNIT = "junit"


# A member for each suite of cases.
SuiteName = Enum("SuiteName", {name.upper(): name for name in SUITES}, type=str)  # type: ignore[misc]
_SUITES = "; ".join(f"{name}: {suite.about}" for name, suite in SUITES.items())


def validate(
    suite: Annotated[
        list[SuiteName] | None, typer.Option(help=f"Which cases; repeatable. {_SUITES}. Default: all.")
    ] = None,
    filter_: Annotated[
        str,
        typer.Option(
            "--filter",
            "-p",
            help="Only cases whose name contains this text, or matches it as a regex if no name contains it.",
        ),
    ] = "",
    op: Annotated[
        str, typer.Option("--op", "-o", help="One operation (named above), or a whole case string.")
    ] = "",
    seed: Annotated[
        int | None, typer.Option(min=0, help="The seed of the drawn cases of suite sequences. Default: 0.")
    ] = None,
    count: Annotated[
        int | None,
        typer.Option(
            "--cases", min=1, help=f"The number of drawn cases of suite sequences. Default: {DEFAULT_COUNT}."
        ),
    ] = None,
    backend: Annotated[
        list[str] | None,
        typer.Option(
            "--backend",
            "-b",
            help="reference, cpu, sim (ascend910b; sim:ascend910_93 runs the same kernels),"
            " sim:ascend310p, npu; repeatable. Default: all available.",
        ),
    ] = None,
    ggml: Annotated[bool, typer.Option(help="Compare with a real ggml where one is found.")] = True,
    ggml_lib: Annotated[
        str | None, typer.Option(help="Folder with libggml-base and libggml-cpu, which must exist.")
    ] = None,
    ggml_device: Annotated[
        str,
        typer.Option(
            help="Run ggml on a device of its registry: CPU, CANN0, ... npu_rope then runs cpu only,"
            " unless --backend names others."
        ),
    ] = "",
    format_: Annotated[ReportFormat, typer.Option("--format", help="Output format.")] = ReportFormat.CONSOLE,
    output: Annotated[
        Path | None, typer.Option(help="Write the results here instead of standard output.")
    ] = None,
    list_: Annotated[bool, typer.Option("--list", help="Print the cases' names and stop.")] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Print a line for every case on the console.")
    ] = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Print only failures and the last line on the console.")
    ] = False,
) -> None:
    """Compare npu_rope with a float64 reference and with a real ggml, case by case.

    Exact: every back end against float64. cos and sin may be off by 2^-23
    (2^-20 on sim, sim:ascend310p and npu); the rest of the bound is rounding.

    ggml: policy 'ggml' and the real ggml library, each against ggml's own
    float32 angles; only the rotation may round. 'bits' is the share of
    bit-equal elements, 'from exact' the largest error of ggml against float64.

    sequences: calls one after another, in one graph and in several, judged like
    suite ggml. They are drawn from --seed; one that fails is simplified, and --op
    repeats what is printed. ggml:CPU is the CPU of the library of --ggml-device.

    onnx, torch_npu, norm, pmx: every back end against the suite's specification,
    in float64 or wider.

    Operations: ROPE, ROPE_BACK, ROPE_SET_ROWS (suites ggml and models),
    ROTARY_EMBEDDING (onnx), ROTARY_MUL (torch_npu), RMS_NORM, RMS_NORM_BACK,
    ADD_RMS_NORM, RMS_NORM_ROPE (norm), ROTARY_POSITION_EMBEDDING (pmx),
    ROPE_SEQUENCE (sequences).

    Exit status: 0 all results are within their bounds, 1 some are not, 2 bad
    usage or a named back end is absent.

    Examples:

      npu-rope validate

      npu-rope validate --suite models --filter llama-3.1

      npu-rope validate -o ROPE_BACK -b cpu --format junit

      npu-rope validate --ggml-lib ~/llama.cpp/build/bin

      npu-rope validate --suite ggml --ggml-lib ~/llama/bin --ggml-device CANN0

      npu-rope validate --suite sequences --seed 1 --cases 2000 -b cpu
    """
    suites = tuple(name for name in SUITES if suite is None or name in [chosen.value for chosen in suite])
    for option, value in (("seed", seed), ("cases", count)):
        if value is not None and not any(SUITES[name].is_drawn for name in suites):
            raise usage_error(
                f"[validate] {option} must come with --suite sequences but got {', '.join(suites)}."
            )
    drawn = {"seed": seed or 0, "count": count or DEFAULT_COUNT}
    cases = _choose_cases(suites, drawn, filter_, op)
    if list_:
        for case in cases:
            print(case.name)
        return
    if quiet and verbose:
        raise usage_error("[validate] verbose must come without --quiet but got both.")
    names = _choose_backends(backend, ["cpu"] if ggml_device else None)
    require_writable("validate", output=output)
    for option, given in (("ggml-lib", ggml_lib is not None), ("ggml-device", bool(ggml_device))):
        if given and not ggml:
            raise usage_error(f"[validate] {option} must come without --no-ggml but got both.")
    errors = Console(stderr=True, highlight=False)
    ggml_process, missing_reason = _open_ggml(ggml, ggml_lib, ggml_device)
    if missing_reason and ggml:
        errors.print(f"[yellow]ggml is not compared:[/] {escape(missing_reason)}", soft_wrap=True)
    report = ValidationReport(
        names, ggml_process.info if ggml_process else None, missing_reason, ggml_lib or ""
    )
    try:
        detail = Detail.EVERY_CASE if verbose else Detail.QUIET if quiet else Detail.SUMMARY
        with write_report(format_.value, output, report, detail) as add:
            # One console prints both the lines and the progress bar. Two consoles would mix them.
            for result in _run(cases, names, ggml_process, report.terminal or errors):
                report.results.append(result)
                add(result)
    finally:
        if ggml_process is not None:
            ggml_process.close()
    raise typer.Exit(1 if any(result.verdict == FAIL for result in report.results) else 0)


def _choose_cases(suites: tuple[str, ...], drawn: dict[str, int], filter_: str, op: str) -> list[AnyCase]:
    if "sequences" in suites and SEQUENCE.match(op):
        return [_parsed(op)]
    cases = all_cases(suites, **drawn)
    if op:
        cases = [case for case in cases if op in (case.name, case.op)]
    if filter_:
        cases = _matching(cases, filter_)
    if not cases:
        names = [case.name for case in all_cases(suites, **drawn)]
        close = difflib.get_close_matches(filter_ or op, names, n=3, cutoff=0.3)
        hint = "".join(f"\n  {name}" for name in close)
        raise usage_error(
            f"[validate] {'filter' if filter_ else 'op'} must match a case but got {filter_ or op!r}.\n"
            f"See 'npu-rope validate --list'{'; near it:' + hint if hint else '.'}"
        )
    return cases


def _parsed(op: str) -> AnyCase:
    try:
        return parse(op)
    except (ValueError, TypeError) as error:
        raise usage_error(
            f"[validate] op must be a sequence such as '{EXAMPLE}' but got {op!r}: {str(error).rstrip('.')}."
        ) from None


def _matching(cases: list[AnyCase], text: str) -> list[AnyCase]:
    found = [case for case in cases if text in case.name]
    if found:
        return found
    try:
        pattern = re.compile(text)
    except re.error as error:
        raise usage_error(f"[validate] filter must be a text or a regex but got {text!r}: {error}.") from None
    return [case for case in cases if pattern.search(case.name)]


def _choose_backends(named: list[str] | None, default: list[str] | None) -> list[str]:
    names = list(named or ([backends.default_backend] if backends.default_backend else []))
    names = names or default or []
    try:
        for name in names:
            backends.find(name, op="validate").require()
    except (BackendUnavailable, ValueError) as error:
        raise usage_error(str(error)) from None
    return list(dict.fromkeys(names)) or backends.available()


def _open_ggml(is_wanted: bool, given_folder: str | None, device: str) -> tuple[GgmlProcess | None, str]:
    if not is_wanted:
        return None, "switched off with --no-ggml"
    named_folder = given_folder or os.environ.get(ENVIRONMENT_VARIABLE)
    try:
        return GgmlProcess(named_folder, device=device), ""
    except (GgmlUnavailable, RuntimeError) as error:
        if named_folder or device:
            raise usage_error(str(error)) from None
        return None, str(error)


def _run(
    cases: list[AnyCase], names: list[str], ggml_process: GgmlProcess | None, console: Console
) -> Iterator[CaseResult]:
    with _progress(console, len(cases)) as advance:
        for case in cases:
            result = judge(case, names, ggml_process)
            advance()
            yield result


@contextmanager
def _progress(console: Console, total: int) -> Iterator[Callable[[], None]]:
    """Show a bar on a terminal; elsewhere print a line every PROGRESS_SECONDS on standard error."""
    if console.is_terminal:
        done_columns = TextColumn("validating"), BarColumn(), MofNCompleteColumn(), TextColumn("cases,")
        left_columns = TimeRemainingColumn(), TextColumn("left")
        with Progress(*done_columns, *left_columns, console=console, transient=True) as bar:
            task = bar.add_task("validate", total=total)
            yield lambda: bar.advance(task)
        return
    began = printed = time.monotonic()
    done = 0

    def advance() -> None:
        nonlocal done, printed
        done += 1
        now = time.monotonic()
        if now - printed >= PROGRESS_SECONDS and done < total:
            printed = now
            seconds = (now - began) / done * (total - done)
            console.print(f"validating: {done} of {total} cases, about {seconds:.0f} s left")

    yield advance
