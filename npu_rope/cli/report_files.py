"""Write the results of ``npu-rope validate`` to a file for other programs: JSON, CSV or JUnit XML."""

from __future__ import annotations

import csv
import json
import math
import re
from typing import Any, TextIO
from xml.etree import ElementTree

from npu_rope.cli.fault_report import (
    executor_name,
    explain,
    ggml_reproducer,
    occurrence_text,
    reproducer,
    reproducers,
)
from npu_rope.cli.validation_report import ValidationReport
from npu_rope.testing.faults import Fault, find_faults
from npu_rope.testing.outcomes import FAIL, OK, UNSUPPORTED, AnyCase, CaseResult, Judgement


def json_number(value: float | None) -> float | str | None:
    """Return the number for JSON, which has no NaN (here None) and no infinity (here ``"inf"``)."""
    if value is None or math.isnan(value):
        return None
    return value if math.isfinite(value) else "inf"


def _record(result: CaseResult, judgement: Judgement, report: ValidationReport) -> dict[str, Any]:
    """Return a judgement's properties for files. The properties up to ``error_message`` have the names that
    test-backend-ops uses, so that both programs' files can be joined."""
    case = result.case
    device = report.device if judgement.executor == "ggml" else ""
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
        "max_error": json_number(judgement.max_error),
        "error_over_bound": json_number(judgement.ratio),
        "bit_equal_share": json_number(judgement.bit_equal),
        "error_from_exact": json_number(judgement.exact_error),
        "near_cpu_share": json_number(judgement.near_cpu),
        "nmse": json_number(judgement.nmse),
        "source": case.source,
        "reproduce": (device and ggml_reproducer(result, judgement, report))
        or reproducer(result, judgement, report),
        "region": judgement.region,
        "fails": _when(result, judgement),
        "fails_after": "; ".join(case.name for case in _cases_before(judgement)),
        "output": "\n".join(judgement.output),
    }


def _when(result: CaseResult, judgement: Judgement) -> str:
    if judgement.occurrence:
        return judgement.occurrence.when
    return result.when if judgement.verdict == FAIL else ""


def _cases_before(judgement: Judgement) -> tuple[AnyCase, ...]:
    return judgement.occurrence.after if judgement.occurrence else ()


def _fault_record(fault: Fault, report: ValidationReport) -> dict[str, Any]:
    result, judgement = fault.example
    return {
        "backend_name": executor_name(fault.executor, report),
        "fault": fault.kind,
        "rule": list(fault.rule),
        "failed": len(fault.failed),
        "of": fault.total,
        "error_over_bound": json_number(fault.worst_ratio),
        "fails": fault.when,
        "example": result.case.name,
        "reproduce": reproducers(result, judgement, report),
        "cases": [result.case.name for result, _ in fault.failed],
    }


def write_json(stream: TextIO, report: ValidationReport) -> None:
    """Write one object: environment, faults, totals, and an object for each case with its judgements."""

    def judged(result: CaseResult, judgement: Judgement) -> dict[str, Any]:
        return {
            **_record(result, judgement, report),
            "verdict": judgement.verdict,
            "ggml_table": judgement.table or None,
            "fails_after": [case.name for case in _cases_before(judgement)],
            "failed_runs": judgement.occurrence.failed if judgement.occurrence else None,
            "runs": judgement.occurrence.runs if judgement.occurrence else None,
            "output": list(judgement.output),
            "by_position": [
                {
                    "first": errors.first,
                    "max_error": json_number(errors.max_error),
                    "error_over_bound": json_number(errors.ratio),
                }
                for errors in judgement.by_position
            ],
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
            "cause": result.cause or None,
            "like": result.like or None,
            "judgements": [judged(result, judgement) for judgement in result.judgements],
        }
        for result in report.results
    ]
    failed = sum(result.verdict == FAIL for result in report.results)
    document = {
        "environment": report.environment(),
        "ggml_missing": report.ggml_missing or None,
        "torch_npu_missing": report.torch_npu_missing or None,
        "faults": [_fault_record(fault, report) for fault in find_faults(report.results)],
        "not_rerun": report.not_rerun,
        "cases": cases,
        "total": len(cases),
        "failed": failed,
        "left_out": report.left_out,
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


def _xml_text(text: str) -> str:
    """Return the text without the characters that XML does not have."""
    return re.sub(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", "\ufffd", text)


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
            when = result.note or f"fails {occurrence_text(judgement)}"
            lines = [when, *reproducers(result, judgement, report)]
            ElementTree.SubElement(element, "failure", message=explain(judgement)).text = "\n".join(lines)
            if judgement.output:
                ElementTree.SubElement(element, "system-err").text = _xml_text("\n".join(judgement.output))
        elif judgement.verdict == UNSUPPORTED:
            ElementTree.SubElement(element, "skipped", message=judgement.message)
    ElementTree.indent(root)
    stream.write(ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n")
