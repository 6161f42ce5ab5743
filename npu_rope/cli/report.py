"""Write the results of ``npu-rope validate`` to the console, or as JSON, CSV or JUnit XML."""

from __future__ import annotations

import csv
import json
import math
import platform
import re
import shlex
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, TextIO
from xml.etree import ElementTree

from ascend_sim.files import stream_to
from rich.console import Console
from rich.markup import escape

from npu_rope import __version__, backends
from npu_rope.bench.machine import isa
from npu_rope.testing.bounds import TEST_BACKEND_OPS_NMSE
from npu_rope.testing.ggml import GgmlInfo
from npu_rope.testing.outcomes import FAIL, OK, UNSUPPORTED, CaseResult, Judgement

UNWRAPPED_WIDTH = 100_000  # characters


@dataclass
class ValidationReport:
    """A run and its results so far. ``ggml_lib`` is the value of ``--ggml-lib``, if any."""

    backends: list[str]
    ggml: GgmlInfo | None
    ggml_missing: str
    ggml_lib: str = ""
    terminal: Console | None = None  # the console of the printed lines, if it is a terminal
    results: list[CaseResult] = field(default_factory=list)

    def environment(self) -> dict[str, str]:
        """Return the versions that the figures depend on."""
        facts = {"npu_rope": __version__, "python": platform.python_version(), "machine": platform.machine()}
        facts["isa"] = isa()
        facts["ggml"] = (
            f"{self.ggml.version} ({self.ggml.commit}, {self.ggml.cpu_library})"
            if self.ggml
            else "not compared"
        )
        if self.ggml and self.ggml.device:
            facts["ggml device"] = f"{self.ggml.device} ({self.ggml.description})"
        return facts


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
            {"json": write_json, "csv": write_csv, "junit": write_junit}[format_](stream, report)


# ---- console -------------------------------------------------------------------------------------


def _number(value: float | None, format_spec: str = "8.1e") -> str:
    width = int(re.match(r"\d+", format_spec).group())  # type: ignore[union-attr]
    return "-".rjust(width) if value is None or math.isnan(value) else format(value, format_spec)


def _ratio(judgement: Judgement | None, format_spec: str) -> str:
    return _number(judgement.ratio if judgement else None, format_spec)


class Detail(Enum):
    """Amount of console output: failures and the last line; also the summary; also every case."""

    QUIET = 0
    SUMMARY = 1
    EVERY_CASE = 2


class ConsolePrinter:
    """Prints the environment, each failure in full, and a summary. ``detail`` adds or removes lines."""

    def __init__(self, stream: TextIO, report: ValidationReport, detail: Detail) -> None:
        # Do not wrap the lines of a file or pipe.
        width = None if stream.isatty() else UNWRAPPED_WIDTH
        self.console = Console(file=stream, highlight=False, width=width)
        if stream.isatty():
            report.terminal = self.console
        self.report = report
        self.detail = detail
        self.backends = report.backends

    def head(self) -> None:
        """Print the environment, and the column titles of the cases' lines."""
        if self.detail != Detail.QUIET:
            for name, value in self.report.environment().items():
                self.console.print(f"[dim]{name}:[/] {escape(value)}")
        if self.detail == Detail.EVERY_CASE:
            columns = [f"{'verdict':7}"]
            columns += [f"{b + ' err':>{_error_width(b)}} {'/bound':>6}" for b in self.backends]
            if "cpu" in self.backends:
                columns.append(f"{'ggml angles':>11}")
            if self.report.ggml:
                columns.append(f"{'ggml':>6} {'bits':>7} {'from exact':>10}")
            self.console.print("\n[bold]" + "  ".join(columns) + "  case[/]", soft_wrap=True)

    def add(self, result: CaseResult) -> None:
        """Add a finished case."""
        failed = result.verdict == FAIL
        if self.detail == Detail.EVERY_CASE or failed:
            self.console.print(self._line(result), soft_wrap=True)
        if failed:
            self._explain(result)

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

    def _explain(self, result: CaseResult) -> None:
        for judgement in result.judgements:
            if judgement.verdict == FAIL:
                self.console.print(
                    f"  [red]{judgement.executor}[/]: {escape(explain(judgement))}", soft_wrap=True
                )
        if result.note:
            self.console.print(f"  found: {escape(result.note)}", soft_wrap=True)
        self.console.print(f"  reproduce: {escape(reproducer(result, self.report))}", soft_wrap=True)
        ggml = result.by("ggml")
        if ggml and ggml.verdict == FAIL and (line := ggml_reproducer(result, self.report)):
            self.console.print(f"  reproduce: {escape(line)}", soft_wrap=True)

    def summary(self) -> None:
        """Print a table of suites, a line for each executor, the cases that ggml lacks, and the verdict."""
        results = self.report.results
        if self.detail != Detail.QUIET:
            executors = list(
                dict.fromkeys(judgement.executor for result in results for judgement in result.judgements)
            )
            self._table(executors)
            for executor in executors:
                line = _summary_line(executor, results, _ggml_device(self.report))
                self.console.print(escape(line), soft_wrap=True)
            if self.detail == Detail.EVERY_CASE:
                self._list_unsupported()
            if self.report.ggml is None:
                self.console.print(f"ggml: [yellow]not compared[/]: {escape(self.report.ggml_missing)}")
        failed = sum(result.verdict == FAIL for result in results)
        cases = sum(result.verdict != UNSUPPORTED for result in results)
        ran, refused = _counts_on_device(self.report)
        device = _ggml_device(self.report)
        nothing_ran = not cases or (device and not ran)
        verdict = "[bold yellow]NOT RUN[/]" if nothing_ran else "[bold green]OK[/]"
        verdict = "[bold red]FAIL[/]" if failed else verdict
        text = f"{cases - failed} of {cases} cases within their bounds"
        if cases < len(results):
            text += f"; {len(results) - cases} not run: unsupported"
        if device:
            on_device = f"{escape(device)}: {ran} of {ran + refused} run, {refused} refused"
            text = f"{text}; {on_device}" if ran else f"{on_device}; other back ends: {text}"
        self.console.print(f"{verdict}: {text}", soft_wrap=True)

    def _table(self, executors: list[str]) -> None:
        """Print a row for each suite: cases within bounds and worst ratio by back end, and the worst case."""
        columns = [(executor, max(len(executor), len("362/362  0.91"))) for executor in executors]
        heads = "  ".join([*(f"{executor:>{width}}" for executor, width in columns), "worst case"])
        self.console.print(f"\n[bold]{'cases, worst error / bound':<27}{heads}[/]", soft_wrap=True)
        suites = dict.fromkeys(result.case.suite for result in self.report.results)
        for suite in suites:
            results = [result for result in self.report.results if result.case.suite == suite]
            cells = [_table_cell(results, executor, width) for executor, width in columns]
            self.console.print(f"{suite:<27}{'  '.join(cells)}  {_worst_case(results)}", soft_wrap=True)
        self.console.print("")

    def _list_unsupported(self) -> None:
        """List the cases that ggml does not support, by reason."""
        reasons: dict[str, list[str]] = {}
        for result in self.report.results:
            judgement = result.by("ggml")
            if judgement is not None and judgement.verdict == UNSUPPORTED:
                reasons.setdefault(judgement.message, []).append(result.case.name)
        for reason, names in reasons.items():
            self.console.print(f"\n{escape(reason)}: {len(names)} cases", soft_wrap=True)
            for name in names:
                self.console.print(f"  {escape(name)}", soft_wrap=True)
        if reasons:
            self.console.print("")


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
    text = f"{passed}/{len(ran)}  {_number(worst, '4.2f')}".rjust(width)
    return text if passed == len(ran) else f"[bold red]{text}[/]"


def _worst_case(results: list[CaseResult]) -> str:
    ratios = [
        (judgement.ratio, judgement.executor, result.case.name)
        for result in results
        for judgement in result.judgements
    ]
    _, executor, name = max((entry for entry in ratios if not math.isnan(entry[0])), default=(0, "-", "-"))
    return escape(f"{executor}: {name}")


def _ggml_device(report: ValidationReport) -> str:
    return report.ggml.device if report.ggml else ""


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
    "sim": "sim (Ascend910B, simulated) vs float64 (exact)",
    "sim:ascend310p": "sim:ascend310p (simulated) vs float64 (exact)",
    "cpu:ggml": "cpu, policy ggml, vs ggml's angles",
    "ggml": "ggml vs ggml's angles",
}


def _share_of_elements(cases: list[tuple[int, float]]) -> float:
    """Return the mean of the cases' shares, weighted by their numbers of elements."""
    return sum(n * share for n, share in cases) / sum(n for n, _ in cases)


def _summary_line(executor: str, results: list[CaseResult], device: str = "") -> str:
    judged = [(result, judgement) for result in results if (judgement := result.by(executor)) is not None]
    unsupported = [judgement for _, judgement in judged if judgement.verdict == UNSUPPORTED]
    ran = [(result, judgement) for result, judgement in judged if judgement.verdict != UNSUPPORTED]
    failed = sum(judgement.verdict == FAIL for _, judgement in ran)
    title = f"ggml {device} vs ggml's angles" if device and executor == "ggml" else ""
    if executor == "npu":
        soc = backends.simulated_soc()
        title = f"npu ({f'{soc}, simulated' if soc else 'hardware'}; float32 attributes) vs float64 (exact)"
    title = title or _TITLES.get(executor, executor)
    text = f"{title}: {len(ran) - failed} of {len(ran)} within bounds"
    finite = [
        (judgement.ratio, result.case.name) for result, judgement in ran if not math.isnan(judgement.ratio)
    ]
    if finite:
        ratio, worst = max(finite)
        text += f", largest error / bound {ratio:.2f} ({worst})"
    compared = [
        (math.prod(result.case.shape), judgement.bit_equal)
        for result, judgement in ran
        if judgement.bit_equal is not None
    ]
    if compared:
        text += f"; bit-equal to policy ggml: {100 * _share_of_elements(compared):.3f}% of elements"
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
            counted = "; ".join(f"{count}: {reason}" for reason, count in sorted(reasons.items()))
            text += f"; {len(unsupported)} unsupported ({counted})"
    return text


def explain(judgement: Judgement) -> str:
    """Return why a judgement failed, with its worst element."""
    if judgement.message:
        return judgement.message
    text = f"error {judgement.max_error:.3g}, worst element {judgement.ratio:.3g} times its bound"
    if judgement.worst is not None:
        worst = judgement.worst
        place = ""
        if worst.position is not None:
            axis = f" ({worst.axis})" if worst.axis else ""
            place = f", position {worst.position}{axis}, angle {worst.angle:.9g}"
        text += f" at {worst.names} = {worst.index}{place}"
        text += f": got {worst.got:.9g}, expected {worst.expected:.9g}"
    if judgement.nmse is not None:
        allowed = "within" if judgement.nmse <= TEST_BACKEND_OPS_NMSE else "above"
        text += f"; NMSE {judgement.nmse:.3g}, {allowed} test-backend-ops' limit of {TEST_BACKEND_OPS_NMSE:g}"
    return text


def reproducer(result: CaseResult, report: ValidationReport) -> str:
    """Return a command line that runs this case alone."""
    line = f"{backends.command_line()} validate --suite {result.case.suite} --op '{result.case.name}'"
    if report.ggml and report.ggml_lib:
        line += f" --ggml-lib {shlex.quote(report.ggml_lib)}"
    if device := _ggml_device(report):
        line += f" --ggml-device {shlex.quote(device)}"
    return line


def ggml_reproducer(result: CaseResult, report: ValidationReport) -> str:
    """Return the command line of ggml's own test for the case on the device; empty if it has no such case."""
    if result.case.suite != "ggml" or not (device := _ggml_device(report)):
        return ""
    return f"test-backend-ops test -b {shlex.quote(device)} -o '{result.case.name}'"


# ---- files ---------------------------------------------------------------------------------------


def _json_number(value: float | None) -> float | str | None:
    if value is None or math.isnan(value):
        return None
    return value if math.isfinite(value) else "inf"


def _record(result: CaseResult, judgement: Judgement, report: ValidationReport) -> dict[str, Any]:
    """Return a judgement's properties for files. The properties up to ``error_message`` have the names that
    test-backend-ops uses, so that both programs' files can be joined."""
    case = result.case
    device = _ggml_device(report) if judgement.executor == "ggml" else ""
    _, _, rest = case.name.partition("(")
    return {
        "backend_name": device or judgement.executor,
        "op_name": case.op,
        "op_params": rest.removesuffix(")") if case.suite == "ggml" else case.name,
        "test_mode": "test",
        "supported": judgement.verdict != UNSUPPORTED,
        "passed": judgement.verdict == OK,
        "error_message": "" if judgement.verdict == OK else explain(judgement),
        "suite": case.suite,
        "angle_policy": "ggml" if judgement.executor in ("cpu:ggml", "ggml") else "exact",
        "max_error": _json_number(judgement.max_error),
        "error_over_bound": _json_number(judgement.ratio),
        "bit_equal_share": _json_number(judgement.bit_equal),
        "error_from_exact": _json_number(judgement.exact_error),
        "near_cpu_share": _json_number(judgement.near_cpu),
        "nmse": _json_number(judgement.nmse),
        "source": case.source,
        "reproduce": (device and ggml_reproducer(result, report)) or reproducer(result, report),
    }


def write_json(stream: TextIO, report: ValidationReport) -> None:
    """Write one object: environment, totals, and an object for each case with its judgements."""

    def judged(result: CaseResult, judgement: Judgement) -> dict[str, Any]:
        return {
            **_record(result, judgement, report),
            "verdict": judgement.verdict,
            "ggml_table": judgement.table or None,
        }

    cases = [
        {
            "suite": result.case.suite,
            "name": result.case.name,
            "dtype": result.case.dtype,
            "shape": list(result.case.shape),
            "source": result.case.source,
            "verdict": result.verdict,
            "note": result.note or None,
            "judgements": [judged(result, judgement) for judgement in result.judgements],
        }
        for result in report.results
    ]
    failed = sum(result.verdict == FAIL for result in report.results)
    document = {
        "environment": report.environment(),
        "ggml_missing": report.ggml_missing or None,
        "cases": cases,
        "total": len(cases),
        "failed": failed,
    }
    json.dump(document, stream, indent=1)
    stream.write("\n")


def write_csv(stream: TextIO, report: ValidationReport) -> None:
    """Write a row for each case and executor."""
    records = [
        _record(result, judgement, report) for result in report.results for judgement in result.judgements
    ]
    writer = csv.DictWriter(stream, records[0] if records else ())
    writer.writeheader()
    writer.writerows(records)


def write_junit(stream: TextIO, report: ValidationReport) -> None:
    """Write JUnit XML: a test case for each case and executor. Unsupported ones are marked as skipped."""
    judged = [(result, judgement) for result in report.results for judgement in result.judgements]
    root = ElementTree.Element(
        "testsuite",
        name="npu-rope validate",
        tests=str(len(judged)),
        failures=str(sum(judgement.verdict == FAIL for _, judgement in judged)),
        skipped=str(sum(judgement.verdict == UNSUPPORTED for _, judgement in judged)),
        errors="0",
    )
    properties = ElementTree.SubElement(root, "properties")
    for name, value in report.environment().items():
        ElementTree.SubElement(properties, "property", name=name, value=value)
    for result, judgement in judged:
        element = ElementTree.SubElement(
            root, "testcase", classname=f"{result.case.suite}.{judgement.executor}", name=result.case.name
        )
        if judgement.verdict == FAIL:
            ElementTree.SubElement(element, "failure", message=explain(judgement)).text = _record(
                result, judgement, report
            )["reproduce"]
        elif judgement.verdict == UNSUPPORTED:
            ElementTree.SubElement(element, "skipped", message=judgement.message)
    ElementTree.indent(root)
    stream.write(ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n")
