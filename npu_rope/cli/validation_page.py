"""The results of ``npu-rope validate`` as one HTML page without other files or network."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator
from html import escape
from pathlib import Path
from typing import Any, TextIO

from ascend_sim import pages

from npu_rope import backends
from npu_rope.bench.machine import machine
from npu_rope.cli import doctor
from npu_rope.cli.fault_report import (
    counted,
    executor_name,
    explain,
    fails_text,
    left_out_text,
    ratio_text,
    reproducers,
    title_of,
)
from npu_rope.cli.report_files import json_number
from npu_rope.cli.validation_report import ValidationReport
from npu_rope.hardware.privacy import Scrubber
from npu_rope.testing.faults import Fault, find_faults
from npu_rope.testing.outcomes import FAIL, OK, UNSUPPORTED, CaseResult, Judgement

SCRIPT = Path(__file__).with_suffix(".js")
VERDICTS = (OK, FAIL, UNSUPPORTED)  # their indices are in the page's data


def write_page(stream: TextIO, report: ValidationReport) -> None:
    """Write the page. It has every judgement as JSON, and without scripts the summary and the failures."""
    about = f"{time.strftime('%Y-%m-%d %H:%M')}, {machine()}"
    body = [
        pages.header("npu-rope validate", about),
        *pages.sections(_sections(report)),
        pages.data_element(_data(report)),
    ]
    stream.write(pages.document("npu-rope validate", body, SCRIPT))


def _sections(report: ValidationReport) -> Iterator[tuple[str, str, Iterable[str]]]:
    yield "summary", "Summary", [_cards(report), _by_suite(report), _equal_bits(report)]
    yield "failures", "Failures", _failures(report)
    has_positions = any(j.by_position for result in report.results for j in result.judgements)
    yield "charts", "Errors", [_CHARTS, *[_POSITION_CHART] * has_positions]
    yield "cases", "Cases", ['<div id="case-table"></div>', _LEGEND]
    yield "environment", "Environment", _environment(report)


_CHARTS = """<div class="filters" id="filters"></div>
<p id="count" class="soft" role="status"></p>
<h3>Error / bound of each case</h3>
<figure><div id="ratios"></div><figcaption>
The largest error of a case divided by the bound of its element. 1 or less is within the bound. Cases are in
the order of the run.
</figcaption></figure>"""
_POSITION_CHART = """<h3>Error at each position</h3>
<div class="filters" id="measure"></div>
<figure><div id="positions"></div><figcaption>
The largest value among the tokens at positions 0, 1, 2 to 3, 4 to 7 and so on, of the cases of rope (suites
ggml and models). In the modes with sections, a token counts at the largest of its four positions.
</figcaption></figure>"""
_LEGEND = """<p class="soft">
Equal bits: the share of elements that are equal to those of cpu, with policy ggml for ggml. Near cpu: the
share of 16-bit elements at most one unit in the last place from cpu's.</p>"""


# ---- summary ---------------------------------------------------------------------------------------


def _judged(report: ValidationReport, executor: str, suite: str = "") -> list[tuple[CaseResult, Judgement]]:
    """Return the judgements of an executor on the cases that it ran."""
    found = [(result, result.by(executor)) for result in report.results if suite in ("", result.case.suite)]
    return [(result, j) for result, j in found if j is not None and j.verdict != UNSUPPORTED]


def _executors(report: ValidationReport) -> list[str]:
    return list(dict.fromkeys(j.executor for result in report.results for j in result.judgements))


def _cards(report: ValidationReport) -> str:
    failed = sum(result.verdict == FAIL for result in report.results)
    ran = sum(result.verdict != UNSUPPORTED for result in report.results)
    word, kind = ("FAIL", "bad") if failed else ("OK", "good") if ran else ("NOT RUN", "warn")
    faults = len(find_faults(report.results))
    not_run = len(report.results) - ran
    cards = [
        (
            "Result",
            pages.mark(word, kind),
            f"{ran - failed} of {counted(ran, 'case')} within bounds"
            + (f"; {not_run} not run: unsupported" if not_run else "")
            + left_out_text(report),
        ),
        (
            "Failures",
            str(failed),
            f'{counted(faults, "fault")}, <a href="#failures">with their commands</a>' if faults else "none",
        ),
        ("Largest error / bound", *_largest_ratio(report)),
        (
            "ggml",
            escape(report.ggml.version) if report.ggml else "not compared",
            escape(report.ggml.commit if report.ggml else report.ggml_missing.splitlines()[0]),
        ),
    ]
    return (
        '<div class="cards">'
        + "".join(
            f'<div class="card"><span class="soft">{name}</span><b>{value}</b><span>{detail}</span></div>'
            for name, value, detail in cards
        )
        + "</div>"
    )


def _largest_ratio(report: ValidationReport) -> tuple[str, str]:
    ratios = [
        (judgement.ratio, judgement.executor, result.case.name)
        for result in report.results
        for judgement in result.judgements
        if not math.isnan(judgement.ratio)
    ]
    if not ratios:
        return "–", ""
    ratio, executor, name = max(ratios)
    return ratio_text(ratio).strip(), f"{escape(executor_name(executor, report))}: {pages.breakable(name)}"


def _by_suite(report: ValidationReport) -> str:
    executors = _executors(report)
    suites = list(dict.fromkeys(result.case.suite for result in report.results))
    rows = []
    for suite in suites:
        judged = [[j for _, j in _judged(report, executor, suite)] for executor in executors]
        rows.append(([escape(suite), *map(_suite_cell, judged)], ""))
    titles = ["suite", *(executor_name(executor, report) for executor in executors)]
    caption = "Cases within their bounds of the cases run, and the largest error / bound"
    return pages.table(caption, titles, rows, range(1, len(titles)))


def _suite_cell(judgements: list[Judgement]) -> str:
    if not judgements:
        return "–"
    within = sum(j.verdict == OK for j in judgements)
    worst = max((j.ratio for j in judgements if not math.isnan(j.ratio)), default=math.nan)
    text = "–" if math.isnan(worst) else ratio_text(worst).strip()
    cases = f"{within} / {len(judgements)}"
    if any(j.verdict == FAIL for j in judgements):
        cases = pages.mark(cases, "bad")
    return f'{cases}<br><small class="soft">{text}</small>'


def _equal_bits(report: ValidationReport) -> str:
    """Return a table of the shares of equal elements, by executor; empty if nothing was compared."""
    rows = []
    for executor in _executors(report):
        for values, text in (
            ("bit_equal", "npu_rope.compat.torch_npu" if executor == "torch_npu" else "cpu with policy ggml"),
            ("near_cpu", "cpu, or one unit in the last place from it (16-bit results)"),
        ):
            shares = [
                (math.prod(result.case.shape), share)
                for result, judgement in _judged(report, executor)
                if (share := getattr(judgement, values)) is not None
            ]
            if not shares:
                continue
            elements = sum(count for count, _ in shares)
            mean = sum(count * share for count, share in shares) / elements if elements else 1.0
            cells = [
                escape(executor_name(executor, report)),
                escape(f"equal to {text}"),
                f"{len(shares):,}",
                f"{elements:,}",
                f"{100 * mean:.4f} %",
                f"{100 * min(share for _, share in shares):.4f} %",
            ]
            rows.append((cells, ""))
    if not rows:
        return "<p>No results were compared bit for bit in this run.</p>"
    titles = ("back end", "its elements are", "cases", "elements", "share", "least share of a case")
    return pages.table("Share of equal bits", titles, rows, range(2, 6))


# ---- failures --------------------------------------------------------------------------------------


def _failures(report: ValidationReport) -> Iterator[str]:
    faults = find_faults(report.results)
    if not faults:
        yield "<p>No case failed.</p>"
    for number, fault in enumerate(faults, 1):
        yield from _fault(number, fault, report)


def _fault(number: int, fault: Fault, report: ValidationReport) -> Iterator[str]:
    result, judgement = fault.example
    cases = f"{len(fault.failed)} of {counted(fault.total, 'case')}"
    yield f"<h3>{number}. {escape(title_of(fault, report))}</h3>"
    yield f"<p>{cases}. Example: <code>{pages.breakable(result.case.name)}</code></p>"
    yield f"<p>{escape(explain(judgement))}</p>"
    if result.note:
        yield f"<p>{escape(result.note)}</p>"
    if fails := fails_text(fault):
        yield f"<p>Fails {escape(fails)}.</p>"
    if judgement.output:
        lines = escape("\n".join(judgement.output))
        yield f"<details><summary>Last lines of the process</summary><pre>{lines}</pre></details>"
    yield "<p>Repeat it with:</p>"
    yield from (_command(command) for command in reproducers(result, judgement, report))
    others = [failed for failed in fault.failed if failed[1] is not judgement]
    if others:
        yield f"<details><summary>The other {counted(len(others), 'case')}</summary>"
        for other_result, other in others:
            yield f"<p><code>{pages.breakable(other_result.case.name)}</code>: {escape(explain(other))}</p>"
            yield from (_command(command) for command in reproducers(other_result, other, report))
        yield "</details>"


def _command(command: str) -> str:
    return f'<pre class="command">{escape(command)}</pre>'


# ---- environment -----------------------------------------------------------------------------------


def _environment(report: ValidationReport) -> Iterator[str]:
    versions = {name: escape(value) for name, value in report.environment().items()}
    soc = backends.simulated_soc()
    versions |= {"NPU": escape(f"{soc}, simulated")} if soc else {}
    yield pages.facts("Versions that the figures depend on", versions)
    scrubber = Scrubber()
    found = doctor.find_all()
    rows = [
        (
            [
                escape(finding.group),
                escape(finding.piece),
                {True: pages.mark("yes", "good"), False: pages.mark("no", "warn"), None: ""}[finding.present],
                escape(scrubber.clean(finding.detail)),
            ],
            "",
        )
        for finding in found
    ]
    yield "<details><summary>Findings of npu-rope doctor</summary>"
    yield pages.table("The parts on this machine", ("group", "part", "present", "detail"), rows, ())
    yield "</details>"


# ---- data ------------------------------------------------------------------------------------------


def _data(report: ValidationReport) -> dict[str, Any]:
    """Return the page's data. Each result refers to a case and an executor by their indices."""
    executors = _executors(report)
    cases, results = [], []
    for i, result in enumerate(report.results):
        case = result.case
        cases.append([case.suite, case.name, case.op, case.dtype, "×".join(map(str, case.shape))])
        for j in result.judgements:
            results.append(
                [
                    i,
                    executors.index(j.executor),
                    VERDICTS.index(j.verdict),
                    json_number(j.max_error),
                    json_number(j.ratio),
                    json_number(j.bit_equal),
                    json_number(j.near_cpu),
                    "" if j.verdict == OK else explain(j),
                    [[at.first, json_number(at.max_error), json_number(at.ratio)] for at in j.by_position],
                ]
            )
    names = [executor_name(executor, report) for executor in executors]
    return {"executors": names, "verdicts": ["ok", "FAIL", "not run"], "cases": cases, "results": results}
