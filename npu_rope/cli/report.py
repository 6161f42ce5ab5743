"""Write the results of ``npu-rope validate``: to the console, or to a file in one of the formats."""

from __future__ import annotations

import math
import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import TextIO

from ascend_sim.files import stream_to
from rich.console import Console
from rich.markup import escape

from npu_rope import backends
from npu_rope.cli.fault_report import (
    counted,
    executor_name,
    explain,
    left_out_text,
    print_faults,
    print_wrapped,
    ratio_text,
)
from npu_rope.cli.report_files import write_csv, write_json, write_junit
from npu_rope.cli.validation_page import write_page
from npu_rope.cli.validation_report import ValidationReport
from npu_rope.testing.faults import general_kind_of, kind_of
from npu_rope.testing.outcomes import FAIL, OK, UNSUPPORTED, CaseResult, Judgement
from npu_rope.testing.ports import PEER

UNWRAPPED_WIDTH = 100_000  # characters
TABLE_WIDTH = 110  # characters of the table of faults; --verbose does not wrap it
SUMMARY_WIDTH = 120  # characters of the summary's lines without a terminal and COLUMNS
LEAST_NAME_WIDTH = 30  # characters of a case's name that are always printed


@contextmanager
def write_report(
    format_: str, output: Path | None, report: ValidationReport, detail: Detail
) -> Iterator[Callable[[CaseResult], None]]:
    """Yield the function that receives each result. At the end, write the summary or the file."""
    with stream_to(output) as stream:
        if format_ == "console":
            printer = ConsolePrinter(stream, report, detail)
            printer.head()
            yield printer.add
            printer.summary()
        else:
            yield lambda result: None
            writers = {"json": write_json, "csv": write_csv, "junit": write_junit, "html": write_page}
            writers[format_](stream, report)
    if output is not None:
        line = f"report written to {escape(str(output))}: {_verdict(report)}"
        Console(stderr=True, highlight=False).print(line, soft_wrap=True)


# ---- console -------------------------------------------------------------------------------------


def _number(value: float | None, format_spec: str = "8.1e") -> str:
    width = int(re.match(r"\d+", format_spec).group())  # type: ignore[union-attr]
    return "-".rjust(width) if value is None or math.isnan(value) else format(value, format_spec)


def _cut(name: str, width: int) -> str:
    """Return a name of at most that many characters."""
    return name if len(name) <= width else f"{name[: width - 3]}..."


def _ratio(judgement: Judgement | None, format_spec: str) -> str:
    return _number(judgement.ratio if judgement else None, format_spec)


class Detail(Enum):
    """Amount of console output: failures and the last line; also the summary; also every case."""

    QUIET = 0
    SUMMARY = 1
    EVERY_CASE = 2


class ConsolePrinter:
    """Prints the environment, a line for a new kind of failure, a summary, and the faults. ``detail`` adds or
    removes lines."""

    def __init__(self, stream: TextIO, report: ValidationReport, detail: Detail) -> None:
        # Do not wrap the lines of a file or pipe.
        width = None if stream.isatty() else UNWRAPPED_WIDTH
        self.console = Console(file=stream, highlight=False, width=width)
        if stream.isatty():
            report.terminal = self.console
        self.report = report
        self.detail = detail
        self.backends = report.backends
        self.summary_width = self.console.width
        if not stream.isatty():
            self.summary_width = shutil.get_terminal_size((SUMMARY_WIDTH, 24)).columns  # or that of COLUMNS
        if detail == Detail.EVERY_CASE:
            self.summary_width = UNWRAPPED_WIDTH  # names of cases are complete
        self.kinds: set[tuple[str, str, str]] = set()  # executor, way and cause of the failures so far

    def head(self) -> None:
        """Print the environment, and the column titles of the cases' lines."""
        if self.detail != Detail.QUIET:
            for name, value in self.report.environment().items():
                reason = f": {self.report.ggml_missing}" if name == "ggml" and not self.report.ggml else ""
                self.console.print(f"[dim]{name}:[/] {escape(value + reason)}", soft_wrap=True)
            if reason := self.report.torch_npu_missing:
                print_wrapped(self.console, f"torch_npu: not compared: {reason}", "  ")
        if self.detail == Detail.EVERY_CASE:
            columns = [f"{'verdict':7}"]
            columns += [f"{b + ' err':>{_error_width(b)}} {'/bound':>6}" for b in self.backends]
            if "cpu" in self.backends:
                columns.append(f"{'ggml angles':>11}")
            if self.report.ggml:
                columns.append(f"{'ggml':>6} {'bits':>7} {'from exact':>10}")
            self.console.print("\n[bold]" + "  ".join(columns) + "  case[/]", soft_wrap=True)

    def add(self, result: CaseResult) -> None:
        """Print a finished case: every one, or the first one that fails in a new way."""
        failed = [judgement for judgement in result.judgements if judgement.verdict == FAIL]
        kinds = {(judgement.executor, general_kind_of(judgement), result.cause) for judgement in failed}
        new = kinds - self.kinds if not result.like else set()
        self.kinds |= kinds
        if self.detail == Detail.EVERY_CASE or (self.detail == Detail.SUMMARY and new):
            self.console.print(self._line(result), soft_wrap=True)
            for judgement in failed:
                name = executor_name(judgement.executor, self.report)
                text = explain(judgement) if self.detail == Detail.EVERY_CASE else kind_of(judgement)
                self.console.print(f"  [red]{escape(name)}[/]: {escape(text)}", soft_wrap=True)

    def _line(self, result: CaseResult) -> str:
        """Return the verdict, the figures and the name. The name is last, so that it is never cut."""
        colour = {OK: "green", FAIL: "bold red", UNSUPPORTED: "yellow"}[result.verdict]
        verdict = "not run" if result.verdict == UNSUPPORTED else result.verdict
        cells = [f"[{colour}]{verdict:7}[/]"]
        if self.detail == Detail.EVERY_CASE:
            for backend in self.backends:
                cells.append(_our_cells(result.by(backend), _error_width(backend)))
            if "cpu" in self.backends:
                cells.append(_ratio(result.by("cpu:ggml"), "11.2f"))
            if self.report.ggml:
                cells.append(_ggml_cells(result.by("ggml")))
        return "  ".join(cells) + "  " + escape(result.case.name)

    def summary(self) -> None:
        """Print a table of suites, a line for each executor, the cases that ggml lacks, and the verdict."""
        results = self.report.results
        if self.detail != Detail.QUIET:
            executors = list(
                dict.fromkeys(judgement.executor for result in results for judgement in result.judgements)
            )
            self._table(executors)
            for executor in executors:
                line = _summary_line(executor, results, self.summary_width, self.report.device)
                print_wrapped(self.console, line, "  ")
            if self.detail == Detail.EVERY_CASE:
                self._list_unsupported()
        is_wide = self.detail == Detail.EVERY_CASE
        print_faults(self.console, self.report, self.console.width if is_wide else TABLE_WIDTH)
        self.console.print(_verdict(self.report), soft_wrap=True)

    def _table(self, executors: list[str]) -> None:
        """Print a row for each suite: cases within bounds and worst ratio by back end, and the worst case.

        On a narrow terminal, print several tables without the worst case. The lines below the tables name it.
        """
        columns = [(executor, max(len(executor), len("362/362  1.23e+04"))) for executor in executors]
        title, head_width = "cases, worst error / bound", 27
        width = head_width + sum(2 + width for _, width in columns)
        table_width = min(self.summary_width, self.console.width)
        name_width = table_width - width
        if name_width >= LEAST_NAME_WIDTH:
            if self.detail == Detail.EVERY_CASE:
                name_width = UNWRAPPED_WIDTH
            self._columns(title, head_width, columns, name_width)
            self.console.print("")
            return
        self.console.print(f"\n[bold]{title}[/]", end="")
        head_width = 12
        at_once = max(1, (table_width - head_width) // (2 + max(width for _, width in columns)))
        for i in range(0, len(columns), at_once):
            self._columns("", head_width, columns[i : i + at_once])
        self.console.print("")

    def _columns(
        self, title: str, head_width: int, columns: list[tuple[str, int]], name_width: int = 0
    ) -> None:
        """Print a table. ``name_width``: characters of the worst case's column; 0: it has no such column."""
        has_worst = name_width > 0
        heads = [*(f"{executor:>{width}}" for executor, width in columns), *["worst case"] * has_worst]
        self.console.print(f"\n[bold]{title:<{head_width}}{'  '.join(heads)}[/]", soft_wrap=True)
        suites = dict.fromkeys(result.case.suite for result in self.report.results)
        for suite in suites:
            results = [result for result in self.report.results if result.case.suite == suite]
            cells = [_table_cell(results, executor, width) for executor, width in columns]
            cells += [_worst_case(results, name_width)] * has_worst
            self.console.print(f"{suite:<{head_width}}{'  '.join(cells)}", soft_wrap=True)

    def _list_unsupported(self) -> None:
        """List the cases that ggml does not support, by reason."""
        reasons: dict[str, list[str]] = {}
        for result in self.report.results:
            judgement = result.by("ggml")
            if judgement is not None and judgement.verdict == UNSUPPORTED:
                reasons.setdefault(judgement.message, []).append(result.case.name)
        for reason, names in reasons.items():
            self.console.print(f"\n{escape(reason)}: {counted(len(names), 'case')}", soft_wrap=True)
            for name in names:
                self.console.print(f"  {escape(name)}", soft_wrap=True)
        if reasons:
            self.console.print("")


def _verdict(report: ValidationReport) -> str:
    """Return the last line of a report: the verdict and the numbers of cases, with rich's markup."""
    results = report.results
    failed = sum(result.verdict == FAIL for result in results)
    cases = sum(result.verdict != UNSUPPORTED for result in results)
    ran, refused = _counts_on_device(report)
    device = report.device
    nothing_ran = not cases or (device and not ran)
    verdict = "[bold yellow]NOT RUN[/]" if nothing_ran else "[bold green]OK[/]"
    verdict = "[bold yellow]INTERRUPTED[/]" if report.not_reached else verdict
    verdict = "[bold red]FAIL[/]" if failed else verdict
    text = f"{cases - failed} of {cases} cases within their bounds"
    if cases < len(results):
        text += f"; {len(results) - cases} not run: unsupported"
    if device:
        on_device = f"{escape(device)}: {ran} of {ran + refused} run, {refused} refused"
        text = f"{text}; {on_device}" if ran else f"{on_device}; other back ends: {text}"
    if report.not_reached:
        text += f"; interrupted before the other {counted(report.not_reached, 'case')}"
    return f"{verdict}: {text}{left_out_text(report)}"


def _table_cell(results: list[CaseResult], executor: str, width: int) -> str:
    ran = [
        judgement
        for result in results
        if (judgement := result.by(executor)) is not None and judgement.verdict != UNSUPPORTED
    ]
    if not ran:
        return "-".rjust(width)
    passed = sum(judgement.verdict == OK for judgement in ran)
    worst = max((judgement.ratio for judgement in ran if not math.isnan(judgement.ratio)), default=math.nan)
    text = f"{passed}/{len(ran)}  {ratio_text(worst)}".rjust(width)
    return text if passed == len(ran) else f"[bold red]{text}[/]"


def _worst_case(results: list[CaseResult], width: int) -> str:
    ratios = [
        (judgement.ratio, judgement.executor, result.case.name)
        for result in results
        for judgement in result.judgements
    ]
    _, executor, name = max((entry for entry in ratios if not math.isnan(entry[0])), default=(0, "-", "-"))
    return escape(_cut(f"{executor}: {name}", width))


def _counts_on_device(report: ValidationReport) -> tuple[int, int]:
    """Return the number of cases that ggml ran, and the number of cases that it refused."""
    verdicts = [
        judgement.verdict for result in report.results if (judgement := result.by("ggml")) is not None
    ]
    refused = verdicts.count(UNSUPPORTED)
    return len(verdicts) - refused, refused


def _error_width(backend: str) -> int:
    """Return the width of a back end's error column."""
    return max(13 if backend == "reference" else 8, len(backend) + len(" err"))


def _our_cells(judgement: Judgement | None, width: int) -> str:
    if judgement is not None and judgement.verdict == UNSUPPORTED:
        return f"{'unsupported':>{width}} {'-':>6}" if width >= 11 else f"{'unsupp.':>{width}} {'-':>6}"
    return f"{_number(judgement.max_error if judgement else None, f'{width}.1e')} {_ratio(judgement, '6.2f')}"


def _ggml_cells(judgement: Judgement | None) -> str:
    if judgement is None or judgement.verdict == UNSUPPORTED:
        return f"{'unsupp.' if judgement else '-':>6} {'-':>7} {'-':>10}"
    share = "-" if judgement.bit_equal is None else f"{100 * judgement.bit_equal:.2f}%"
    return f"{_number(judgement.ratio, '6.2f')} {share:>7} {_number(judgement.exact_error, '10.1e')}"


_TITLES = {
    "reference": "reference vs float64 (exact)",
    "cpu": "cpu vs float64 (exact)",
    "sim": "sim (Ascend910B, simulated; float32 attributes) vs float64 (exact)",
    "sim:ascend310p": "sim:ascend310p (simulated; float32 attributes) vs float64 (exact)",
    "sim:ascend950": "sim:ascend950 (simulated, against headers only; float32 attributes) vs float64 (exact)",
    "cpu:ggml": "cpu, policy ggml, vs ggml's angles",
    "ggml": "ggml vs ggml's angles",
}


def _share_of_elements(cases: list[tuple[int, float]]) -> float:
    """Return the mean of the cases' shares, weighted by their numbers of elements."""
    return sum(n * share for n, share in cases) / sum(n for n, _ in cases)


def _summary_line(executor: str, results: list[CaseResult], width: int, device: str = "") -> str:
    """Return an executor's line. The name of its worst case is cut where it passes that width."""
    judged = [(result, judgement) for result in results if (judgement := result.by(executor)) is not None]
    unsupported = [judgement for _, judgement in judged if judgement.verdict == UNSUPPORTED]
    ran = [(result, judgement) for result, judgement in judged if judgement.verdict != UNSUPPORTED]
    failed = sum(judgement.verdict == FAIL for _, judgement in ran)
    title = f"ggml {device} vs ggml's angles" if device and executor == "ggml" else ""
    soc = backends.simulated_soc()
    machine = f"{soc}, simulated" if soc else "hardware"
    if executor == "npu":
        title = f"npu ({machine}; float32 attributes) vs float64 (exact)"
    if executor == PEER:
        title = f"torch_npu's own functions ({machine}) vs float64"
    title = title or _TITLES.get(executor, executor)
    text = f"{title}: {len(ran) - failed} of {len(ran)} within bounds"
    finite = [
        (judgement.ratio, result.case.name) for result, judgement in ran if not math.isnan(judgement.ratio)
    ]
    if finite:
        ratio, worst = max(finite)
        text += f", largest error / bound {ratio_text(ratio)}"
        text += f" ({_cut(worst, max(LEAST_NAME_WIDTH, width - len(text) - len(' ()')))})"
    compared = [
        (math.prod(result.case.shape), judgement.bit_equal)
        for result, judgement in ran
        if judgement.bit_equal is not None
    ]
    if compared:
        other = "npu_rope.compat.torch_npu" if executor == PEER else "policy ggml"
        text += f"; bit-equal to {other}: {100 * _share_of_elements(compared):.3f}% of elements"
    own_angles = sum(judgement.table == "float32" and judgement.verdict == OK for _, judgement in ran)
    if own_angles:
        text += f"; {own_angles} with float32 angles of its own"
    yarn = [judgement for _, judgement in ran if judgement.table not in ("", "float32")]
    if yarn:
        fused = sum(judgement.table == "fused" for judgement in yarn)
        text += f"; {fused} of {len(yarn)} YaRN cases agree with one multiply-add of the angle fused"
    distances = [judgement.exact_error for _, judgement in ran if judgement.exact_error is not None]
    if distances:
        text += f"; up to {max(distances):.1e} from exact"
    near_cpu_counts = [
        (math.prod(result.case.shape), judgement.near_cpu)
        for result, judgement in ran
        if judgement.near_cpu is not None
    ]
    if near_cpu_counts:
        share = _share_of_elements(near_cpu_counts)
        text += f"; {100 * share:.3f}% of 16-bit elements within one ulp of cpu's"
        text += f" (least in a case {100 * min(part for _, part in near_cpu_counts):.2f}%)"
    if unsupported:
        reasons = Counter(judgement.message for judgement in unsupported)
        if len(reasons) == 1:
            text += f"; {len(unsupported)} unsupported ({unsupported[0].message})"
        else:
            counts = "; ".join(f"{count}: {reason}" for reason, count in sorted(reasons.items()))
            text += f"; {len(unsupported)} unsupported ({counts})"
    return text
