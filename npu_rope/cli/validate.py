"""``npu-rope validate``: compare every back end with float64 and with a real ggml, case by case."""

from __future__ import annotations

import difflib
import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer
from ascend_sim.termination import termination_as_interrupt
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from npu_rope import backends
from npu_rope.cli.report import Detail, write_report
from npu_rope.cli.usage import require_writable, usage_error
from npu_rope.cli.validation_report import ValidationReport
from npu_rope.errors import BackendUnavailable
from npu_rope.testing.backend_process import ISOLATED, BackendProcess
from npu_rope.testing.faults import find_faults
from npu_rope.testing.ggml import ENVIRONMENT_VARIABLE, GgmlProcess, GgmlUnavailable
from npu_rope.testing.outcomes import FAIL, UNSUPPORTED, AnyCase, CaseResult
from npu_rope.testing.ports import PEER, peer_missing, require_peer
from npu_rope.testing.rerun import FailedCase, NewProcesses, Reruns, is_ggml
from npu_rope.testing.sequence_draw import DEFAULT_COUNT
from npu_rope.testing.sequences import EXAMPLE, parse
from npu_rope.testing.suites import (
    LONG_STEP,
    LONG_TOKENS,
    SUITES,
    all_cases,
    executors_of,
    judge,
    without_most_long_cases,
)

SEQUENCE = re.compile(r"rope(_back)?\(")  # the beginning of a sequence's name
RERUN_SECONDS = 120.0
PROGRESS_SECONDS = 15  # between lines of progress where there is no terminal
LEAST_SHARE_FOR_ESTIMATE = 0.1  # of the cases


class ReportFormat(str, Enum):
    """Output formats."""

    CONSOLE = "console"
    JSON = "json"
    CSV = "csv"
    JUNIT = "junit"
    HTML = "html"


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
        list[str] | None,
        typer.Option(
            "--op",
            "-o",
            help="One operation (named above), or a whole case string; repeatable: they run in this order.",
        ),
    ] = None,
    seed: Annotated[
        int | None, typer.Option(min=0, help="The seed of the drawn cases of suite sequences. Default: 0.")
    ] = None,
    count: Annotated[
        int | None,
        typer.Option(
            "--cases", min=1, help=f"The number of drawn cases of suite sequences. Default: {DEFAULT_COUNT}."
        ),
    ] = None,
    all_: Annotated[
        bool,
        typer.Option(
            "--all",
            help="Run every case. Without --suite, --filter, --op and --all, one in"
            f" {LONG_STEP} of the long cases runs (of {LONG_TOKENS:,} tokens or more).",
        ),
    ] = False,
    backend: Annotated[
        list[str] | None,
        typer.Option(
            "--backend",
            "-b",
            help="reference, cpu, sim (ascend910b; sim:ascend910_93 runs the same kernels),"
            " sim:ascend310p, sim:ascend950, npu, and torch_npu for its own functions in suite torch_npu;"
            " repeatable. Default: all available.",
        ),
    ] = None,
    ggml: Annotated[bool, typer.Option(help="Compare with a real ggml where one is found.")] = True,
    ggml_lib: Annotated[
        str | None,
        typer.Option(help="Folder with libggml-base and libggml-cpu, in it or below it; it must exist."),
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
    rerun_seconds: Annotated[
        float,
        typer.Option(
            min=0, help="How long failing cases are run again in new processes, to find when they fail."
        ),
    ] = RERUN_SECONDS,
    repeat: Annotated[
        int,
        typer.Option(
            min=1,
            help="Run the cases up to this often until one fails, each time in new processes of ggml, npu.",
        ),
    ] = 1,
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
    (2^-20 on sim, sim:<soc> and npu); the rest of the bound is rounding.

    ggml: policy 'ggml' and the real ggml library, each against ggml's own
    float32 angles; only the rotation may round. 'bits' is the share of
    bit-equal elements, 'from exact' the largest error of ggml against float64.

    sequences: calls one after another, in one graph and in several, judged like
    suite ggml. They are drawn from --seed. A sequence that fails is simplified
    and printed as a value for --op. ggml:CPU is the CPU of the library of
    --ggml-device.

    onnx, torch_npu, norm, qkv, pmx: every back end against the suite's
    specification, in float64 or wider. In suite torch_npu,
    npu_rope.compat.torch_npu and torch_npu's own functions run the same calls.
    The latter need torch_npu and an NPU, which npu-rope sim simulates.

    Operations: ROPE, ROPE_BACK, ROPE_SET_ROWS (suites ggml and models),
    ROTARY_EMBEDDING (onnx), ROTARY_MUL, NPU_ROTARY_MUL, NPU_APPLY_ROTARY_POS_EMB,
    NPU_INTERLEAVE_ROPE, NPU_MROPE, NPU_RMS_NORM, NPU_GEMMA_RMS_NORM,
    NPU_ADD_RMS_NORM, NPU_KV_RMSNORM_ROPE_CACHE, NPU_QKV_RMS_NORM_ROPE_CACHE,
    _NPU_ROTARY_EMBEDDING (torch_npu), RMS_NORM, RMS_NORM_BACK, ADD_RMS_NORM,
    RMS_NORM_ROPE (norm), QKV_NORM_ROPE_CACHE, QK_SQUARE_SUMS (qkv),
    ROTARY_POSITION_EMBEDDING (pmx), ROPE_SEQUENCE (sequences).

    A case that fails is run again, alone and after the cases before it, in new
    processes. The report says whether it fails alone, after which other case, or
    only sometimes. Failures for one reason are one row of its table of faults.

    Ctrl+C and SIGTERM end the cases, and the console shows the results so far.

    Exit status: 0 all results are within their bounds, 1 some are not, 2 bad
    usage, a named back end is absent or no case ran, 130 interrupted before the
    last case.

    Examples:

      npu-rope validate

      npu-rope validate --all

      npu-rope validate --suite models --filter llama-3.1

      npu-rope validate -o ROPE_BACK -b cpu --format junit

      npu-rope validate --format html --output report.html

      npu-rope validate --ggml-lib ~/llama.cpp/build/bin

      npu-rope validate --suite ggml --ggml-lib ~/llama/bin --ggml-device CANN0

      npu-rope validate --suite sequences --seed 1 --cases 2000 -b cpu

      npu-rope sim -- npu-rope validate --suite torch_npu
    """
    suites = tuple(name for name in SUITES if suite is None or name in [chosen.value for chosen in suite])
    for option, value in (("seed", seed), ("cases", count)):
        if value is not None and not any(SUITES[name].is_drawn for name in suites):
            raise usage_error(
                f"[validate] {option} must come with --suite sequences but got {', '.join(suites)}."
            )
    drawn = {"seed": seed or 0, "count": count or DEFAULT_COUNT}
    cases = _choose_cases(suites, drawn, filter_, op or [])
    number_of_all = len(cases)
    if not (all_ or suite or filter_ or op):
        cases = without_most_long_cases(cases)
    if list_:
        if format_ is not ReportFormat.CONSOLE or output is not None:
            raise usage_error("[validate] list must come without --format and --output but got one of them.")
        for case in cases:
            print(case.name)
        return
    if quiet and verbose:
        raise usage_error("[validate] verbose must come without --quiet but got both.")
    names, torch_npu_missing = _choose_executors(backend, ["cpu"] if ggml_device else None, cases)
    require_writable("validate", output=output)
    for option, given in (("ggml-lib", ggml_lib is not None), ("ggml-device", bool(ggml_device))):
        if given and not ggml:
            raise usage_error(f"[validate] {option} must come without --no-ggml but got both.")
    errors = Console(stderr=True, highlight=False)
    ggml_process, missing_reason = _open_ggml(ggml, ggml_lib, ggml_device)
    # The head of the console's report has the reasons too.
    is_quiet = quiet or output is not None or format_ is not ReportFormat.CONSOLE
    if missing_reason and ggml and is_quiet:
        errors.print(f"[yellow]ggml is not compared:[/] {escape(missing_reason)}", soft_wrap=True)
    if torch_npu_missing and is_quiet:
        errors.print(f"[yellow]torch_npu is not compared:[/] {escape(torch_npu_missing)}", soft_wrap=True)
    report = ValidationReport(
        names,
        ggml_process.info if ggml_process else None,
        missing_reason,
        ggml_lib or os.environ.get(ENVIRONMENT_VARIABLE, ""),
        selection=_selection(suite, filter_, op or [], all_=all_),
        torch_npu_missing=torch_npu_missing,
        left_out=number_of_all - len(cases),
    )
    executors = _Executors(names, ggml_process)
    try:
        detail = Detail.EVERY_CASE if verbose else Detail.QUIET if quiet else Detail.SUMMARY
        with termination_as_interrupt(), write_report(format_.value, output, report, detail) as add:
            # One console prints both the lines and the progress bar. Two consoles would mix them.
            console = report.terminal or errors
            is_interrupted = False
            try:
                for result in _run(cases, executors, console, repeat):
                    report.results.append(result)
                    add(result)
            except KeyboardInterrupt:
                # The console gets the results so far. A file stays as it was.
                if output is not None or format_ is not ReportFormat.CONSOLE or not report.results:
                    raise
                is_interrupted = True
                report.not_reached = len(cases) - len(report.results)
            executors.end()  # frees the devices for the new processes
            seconds = 0.0 if is_interrupted else rerun_seconds
            report.not_rerun = _run_again(executors, report.results, console, seconds)
    finally:
        executors.end()
    if report.not_reached:
        raise KeyboardInterrupt
    if all(result.verdict == UNSUPPORTED for result in report.results):
        reasons = dict.fromkeys(j.message for result in report.results for j in result.judgements)
        raise usage_error(f"[validate] cases must run but none did: {'; '.join(reasons)}.")
    raise typer.Exit(1 if any(result.verdict == FAIL for result in report.results) else 0)


def _selection(suite: list[SuiteName] | None, filter_: str, ops: list[str], *, all_: bool) -> list[str]:
    """Return the options that choose the cases."""
    words = ["--all"] if all_ else []
    words += [word for chosen in suite or [] for word in ("--suite", chosen.value)]
    words += ["--filter", filter_] if filter_ else []
    return words + [word for op in ops for word in ("--op", op)]


def _choose_cases(
    suites: tuple[str, ...], drawn: dict[str, int], filter_: str, ops: list[str]
) -> list[AnyCase]:
    cases = all_cases(suites, **drawn)
    if ops:
        chosen = []
        for op in ops:
            if "sequences" in suites and SEQUENCE.match(op):
                chosen.append(_parsed(op))
                continue
            found = [case for case in cases if op in (case.name, case.op)]
            if not found:
                raise _no_case("op", op, cases)
            chosen += found
        cases = list({(case.suite, case.name): case for case in chosen}.values())
    if filter_ and not (found := _matching(cases, filter_)):
        if filter_ in {case.op for case in cases}:
            raise usage_error(
                f"[validate] filter must be part of a case's name but got the operator {filter_!r}.\n"
                f"Choose its cases with --op {filter_}."
            )
        raise _no_case("filter", filter_, all_cases(suites, **drawn))
    return found if filter_ else cases


def _no_case(option: str, text: str, cases: list[AnyCase]) -> typer.Exit:
    close = difflib.get_close_matches(text, [case.name for case in cases], n=3, cutoff=0.3)
    hint = "".join(f"\n  {name}" for name in close)
    return usage_error(
        f"[validate] {option} must match a case but got {text!r}.\n"
        f"See 'npu-rope validate --list --all'{'; similar names:' + hint if hint else '.'}"
    )


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


def _choose_executors(
    named: list[str] | None, default: list[str] | None, cases: list[AnyCase]
) -> tuple[list[str], str]:
    """Return the names of the executors, and why torch_npu is not one of them although no back end is named.
    torch_npu is one of them if it is named, or if no back end is named and it can run some cases."""
    names = list(named or ([backends.default_backend] if backends.default_backend else []))
    names = list(dict.fromkeys(names or default or []))
    try:
        for name in names:
            if name == PEER:
                require_peer()
            else:
                backends.find(name, op="validate").require()
    except (BackendUnavailable, ValueError) as error:
        raise usage_error(str(error)) from None
    if names or not any(executors_of(case, [PEER]) for case in cases):
        return names or backends.available(), ""
    missing = peer_missing()
    return [*backends.available(), *([] if missing else [PEER])], missing


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


class _Executors:
    """The processes in which cases run: ggml's, those of isolated back ends, and this one."""

    def __init__(self, backends: list[str], ggml: GgmlProcess | None) -> None:
        self.ggml = ggml
        self.backends = backends
        self.isolated = {name: BackendProcess(name) for name in backends if name in ISOLATED}
        self.failures: list[FailedCase] = []
        self._here: list[AnyCase] = []  # the cases that have run in this process

    def judge(self, case: AnyCase) -> CaseResult:
        """Run and judge a case, and note its failures."""
        names = executors_of(case, self.backends)
        isolated = {name: process for name, process in self.isolated.items() if name in names}
        if not SUITES[case.suite].reruns:
            isolated = {}
        before = {name: list(process.cases) for name, process in isolated.items()}
        if self.ggml is not None:
            before["ggml"] = list(self.ggml.cases)
            self.ggml.cases.append(case)
        result = judge(case, [name for name in names if name not in isolated], self.ggml)
        for name, process in isolated.items():
            result.judgements[(i := names.index(name)) : i] = process.judge(case).judgements
        for judgement in result.judgements:
            if judgement.verdict == FAIL:
                process_name = "ggml" if is_ggml(judgement.executor) else judgement.executor
                ran_before = before[process_name] if process_name in before else self._here[:]
                self.failures.append(FailedCase(result, judgement, ran_before))
        self._here.append(case)
        return result

    def end(self) -> None:
        """End the processes. The next case starts others."""
        for process in (self.ggml, *self.isolated.values()):
            if process is not None:
                process.close()


def _run(cases: list[AnyCase], executors: _Executors, console: Console, repeat: int) -> Iterator[CaseResult]:
    """Yield the results of the cases. If the cases are repeated, yield the results of the first repeat in
    which a case fails, or of the last repeat."""
    with _progress(console, len(cases) * repeat) as advance:
        for remaining in reversed(range(repeat)):
            results = []
            for case in cases:
                results.append(executors.judge(case))
                advance()
                if repeat == 1:
                    yield results[-1]
            if executors.failures or not remaining:
                break
            executors.end()
        if repeat > 1:
            yield from results


def _run_again(executors: _Executors, results: list[CaseResult], console: Console, seconds: float) -> int:
    """Run failing cases again in new processes. Return the number of those that were not run again."""
    failures = [failure for failure in executors.failures if SUITES[failure.result.case.suite].reruns]
    if not failures or not seconds:
        return 0
    by_judgement = {id(failure.judgement): failure for failure in failures}
    groups = [
        [by_judgement[id(judgement)] for _, judgement in fault.failed if id(judgement) in by_judgement]
        for fault in find_faults(results)
    ]
    reruns = Reruns(NewProcesses(executors.ggml), seconds)
    # The limit is known before the first case ends, and no run begins after it.
    activity = f"running failures again for {seconds:g} s at most"
    # An interruption ends these runs, but not the report of the results.
    with suppress(KeyboardInterrupt), _progress(console, len(failures), activity) as advance:
        reruns.examine(groups, advance)
    return sum(failure.judgement.occurrence is None for failure in failures)


@contextmanager
def _progress(console: Console, total: int, activity: str = "validating") -> Iterator[Callable[[], None]]:
    """Show a bar on a terminal; elsewhere print a line every PROGRESS_SECONDS on standard error."""
    if console.is_terminal:
        done_columns = TextColumn(activity), BarColumn(), MofNCompleteColumn(), TextColumn("cases,")
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
            left = (now - began) / done * (total - done)
            # The first cases take longest: they load the back ends.
            estimate = f", about {left:.0f} s left" if done >= LEAST_SHARE_FOR_ESTIMATE * total else ""
            console.print(f"{activity}: {done} of {total} cases{estimate}")

    yield advance
