"""The faults of ``npu-rope validate`` on the console: a table, the details of each fault, and its command."""

from __future__ import annotations

import math
import os
import shlex
import textwrap

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from npu_rope import backends
from npu_rope.cli.validation_report import ValidationReport
from npu_rope.testing.bounds import TEST_BACKEND_OPS_NMSE
from npu_rope.testing.faults import Fault, find_faults, short_kinds
from npu_rope.testing.outcomes import AFTER, ALONE, NOT_ALONE, SOMETIMES, CaseResult, Judgement
from npu_rope.testing.rerun import is_ggml
from npu_rope.testing.suites import SUITES

LARGE_RATIO = 1000  # from here on, ratios have an exponent
TERMINAL_LINES = 12  # lines of a process's output on a terminal; a file has all lines
MOST_REPEATS = 1000
# When a sequence fails, by CaseResult.when.
_OF_SEQUENCE = {ALONE: "alone", AFTER: "only after another call", SOMETIMES: "only sometimes"}
_CONFIDENCE = 0.99  # probability that the repeats of a printed command show the failure


def print_faults(console: Console, report: ValidationReport, table_width: int) -> None:
    """Print the table of faults, and a block for each one; nothing if there is none.

    Args:
        table_width: the largest width of the table, in characters. Its column of faults wraps.
    """
    faults = find_faults(report.results)
    if not faults:
        return
    cases = sum(any(j.verdict == "FAIL" for j in result.judgements) for result in report.results)
    console.print(f"\n[bold]{counted(len(faults), 'fault')} in {counted(cases, 'case')}[/]")
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    table.add_column("#", justify="right")
    table.add_column("fault", overflow="fold")
    for title in ("cases", "error / bound", "fails"):
        table.add_column(title, justify="left" if title == "fails" else "right", no_wrap=True)
    for number, (fault, kind) in enumerate(zip(faults, short_kinds(faults), strict=True), 1):
        ratio = "-" if math.isnan(fault.worst_ratio) else f"{fault.worst_ratio:.3g}"
        cases_cell = f"{len(fault.failed)} of {fault.total}"
        table.add_row(str(number), escape(title_of(fault, report, kind)), cases_cell, ratio, _when(fault))
    console.print(table, width=min(table_width, console.width))
    for number, fault in enumerate(faults, 1):
        _print_fault(console, number, fault, report)
    if report.not_rerun:
        text = f"{counted(report.not_rerun, 'failure')} not run again: the time for this ended"
        print_wrapped(console, "", "")
        print_wrapped(console, f"{text} (--rerun-seconds), or it was interrupted.", "")
    console.print("")


def ratio_text(ratio: float) -> str:
    """Return the largest ratio of an error to its bound. A ratio near 1 gets more digits, up to six, so that
    the text shows its distance from 1."""
    if math.isnan(ratio):
        return "   -"
    text = format(ratio, "4.2f" if not ratio >= LARGE_RATIO else "4.3g")
    if text != "1.00" or ratio == 1:
        return text
    return f"{ratio:.{min(6, 1 + math.ceil(-math.log10(abs(1 - ratio))))}f}"


def counted(number: int, noun: str) -> str:
    """Return a number with a noun, in the plural unless the number is 1."""
    return f"{number} {noun}" + ("s" if number != 1 else "")


def left_out_text(report: ValidationReport) -> str:
    """Return the end of the verdict that counts the long cases left out; empty if all ran."""
    return f"; {counted(report.left_out, 'long case')} left out, which --all runs" if report.left_out else ""


def title_of(fault: Fault, report: ValidationReport, kind: str = "") -> str:
    """Return a fault's title: the back end, the kind (by default the fault's own) and the broken rule."""
    rule = f" ({', '.join(fault.rule)})" if fault.rule else ""
    return f"{executor_name(fault.executor, report)}: {kind or fault.kind}{rule}"


def fails_text(fault: Fault) -> str:
    """Return when a fault's example fails, in words; empty for a suite that does not look for it."""
    result, judgement = fault.example
    if SUITES[result.case.suite].reruns:
        return occurrence_text(judgement)
    return _OF_SEQUENCE[result.when] if result.when else ""


def executor_name(executor: str, report: ValidationReport) -> str:
    """Return the name of an executor: the device's instead of ``ggml`` if there is one."""
    return report.device or executor if executor == "ggml" else executor


def _when(fault: Fault) -> str:
    reruns = SUITES[fault.failed[0][0].case.suite].reruns
    return fault.when or ("not run again" if reruns else "-")


def _print_fault(console: Console, number: int, fault: Fault, report: ValidationReport) -> None:
    result, judgement = fault.example
    console.print(f"\n[bold]{number}[/]  [red]{escape(title_of(fault, report))}[/]", soft_wrap=True)
    _print_item(console, "example", result.case.name)
    _print_item(console, executor_name(fault.executor, report), explain(judgement))
    if result.note:
        _print_item(console, "found", result.note)
    if fails := fails_text(fault):
        _print_item(console, "fails", fails)
    _print_output(console, judgement)
    for command in reproducers(result, judgement, report):
        # Print each command on one line, so that users can copy it.
        console.print(f"  reproduce: {escape(command)}", soft_wrap=True)


def _print_item(console: Console, name: str, text: str) -> None:
    print_wrapped(console, f"  {name}: {text}", "    ", f"  {name}:")


def print_wrapped(console: Console, text: str, indent: str, bold: str = "", style: str = "") -> None:
    """Print a text, in several lines if it is wider than the console. Lines after the first have this
    indent.

    Args:
        bold: the beginning of the text that is printed bold.
    """
    lines = [text]
    if len(text) > console.width:
        lines = textwrap.wrap(
            text, console.width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
        )
    for line in lines:
        head = bold if line is lines[0] else ""
        shown = f"[bold]{escape(head)}[/]" if head else ""
        console.print(shown + escape(line.removeprefix(head)), soft_wrap=True, style=style)


def _print_output(console: Console, judgement: Judgement) -> None:
    lines = list(judgement.output)
    if not lines:
        return
    hidden = max(0, len(lines) - TERMINAL_LINES) if console.is_terminal else 0
    earlier = f" ({hidden} earlier ones are written with --output FILE)" if hidden else ""
    console.print(f"  [bold]last lines of the process[/]{earlier}:", soft_wrap=True)
    for line in lines[hidden:]:
        print_wrapped(console, f"    {line}", "      ", style="dim")


def occurrence_text(judgement: Judgement) -> str:
    """Return when a failure occurs, in words."""
    found = judgement.occurrence
    if found is None:
        return "in this run; it was not run again"
    runs = f"{found.failed} of {counted(found.runs, 'run')}"
    if found.when == ALONE:
        return f"alone ({runs} in new processes)"
    if found.when == AFTER:
        names = " and ".join(case.name for case in found.after)
        return f"only after {names} ({runs} in new processes); alone it passes"
    if found.when == SOMETIMES:
        return f"only sometimes ({runs}, with and without the cases before it)"
    return "not alone; the time ended before the cases that must run before it were found"


def explain(judgement: Judgement) -> str:
    """Return why a judgement failed, with its worst element."""
    if judgement.message:
        return judgement.message
    worst = judgement.worst
    # A result that is not finite has neither an error nor a ratio.
    is_finite = worst is None or math.isfinite(worst.got)
    text = (
        f"error {judgement.max_error:.3g}, worst element {judgement.ratio:.3g} times its bound"
        if is_finite
        else "worst element"
    )
    if worst is not None:
        place = ""
        if worst.position is not None:
            axis = f" ({worst.axis})" if worst.axis else ""
            place = f", position {worst.position}{axis}, angle {worst.angle:.9g}"
        text += f" at {worst.names} = {worst.index}{place}"
        text += f": got {worst.got:.9g}, expected {worst.expected:.9g}"
    if judgement.region:
        text += f"; beyond the bound: {judgement.region}"
    if judgement.nmse is not None and is_finite:
        allowed = "within" if judgement.nmse <= TEST_BACKEND_OPS_NMSE else "above"
        text += f"; NMSE {judgement.nmse:.3g}, {allowed} test-backend-ops' limit of {TEST_BACKEND_OPS_NMSE:g}"
    return text


# ---- commands --------------------------------------------------------------------------------------


def reproducers(result: CaseResult, judgement: Judgement, report: ValidationReport) -> list[str]:
    """Return the commands that show a failure again: npu_rope's, and ggml's own test if it has the case."""
    commands = [reproducer(result, judgement, report)]
    if judgement.executor == "ggml" and (command := ggml_reproducer(result, judgement, report)):
        commands.append(command)
    return commands


def reproducer(result: CaseResult, judgement: Judgement, report: ValidationReport) -> str:
    """Return npu_rope's command for a failure: the case, after those that must run before it."""
    found = judgement.occurrence
    cases = [*(found.after if found else ()), result.case]
    words = []
    if found is not None and found.when == NOT_ALONE:
        words += report.selection
    else:
        for suite in dict.fromkeys(case.suite for case in cases):
            words += ["--suite", suite]
        for case in cases:
            words += ["--op", case.name]
    if found is not None and found.when == SOMETIMES:
        words += ["--repeat", str(_repeats(found.failed, found.runs))]
    device = report.device
    if not is_ggml(judgement.executor):
        words += ["--backend", judgement.executor.removesuffix(":ggml"), "--no-ggml"]
    else:
        words += [] if device else ["--backend", "cpu"]
        words += ["--ggml-lib", report.ggml_lib] if report.ggml_lib else []
        words += ["--ggml-device", device] if device else []
    command = f"{backends.command_line()} validate {shlex.join(words)}"
    return f"{_ggml_variables()}{command}" if is_ggml(judgement.executor) else command


def _ggml_variables() -> str:
    """Return the variables of this process that ggml reads, such as ``GGML_CANN_ACL_GRAPH=off``, before a
    command; empty if there are none."""
    names = sorted(name for name in os.environ if name.startswith("GGML_"))
    return "".join(f"{name}={shlex.quote(os.environ[name])} " for name in names)


def _repeats(failed: int, runs: int) -> int:
    """Return the number of runs of which one fails almost surely, if this share of the runs failed."""
    passing_share = 1 - failed / runs
    if passing_share <= 0:
        return 1
    return min(MOST_REPEATS, math.ceil(math.log(1 - _CONFIDENCE) / math.log(passing_share)))


def ggml_reproducer(result: CaseResult, judgement: Judgement, report: ValidationReport) -> str:
    """Return the command of ggml's own test for the case on the device; empty if it has no such case, or if
    the case passes alone."""
    found = judgement.occurrence
    if result.case.suite != "ggml" or not (device := report.device):
        return ""
    if found is not None and found.when != ALONE:
        return ""
    command = f"test-backend-ops test -b {shlex.quote(device)} -o '{result.case.name}'"
    return f"{_ggml_variables()}{backends.simulation()}{command}"
