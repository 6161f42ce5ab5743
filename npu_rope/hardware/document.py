"""The hardware report as one JSON document, and the values that are derived from its parts.

docs/hardware_report.md describes the schema. A lost case or call is one whose process ended or was stopped.
"""

from __future__ import annotations

import math
import shlex
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timezone
from typing import Any

from npu_rope.backends import command_line
from npu_rope.hardware.calls import KERNELS, TimedCall, json_number
from npu_rope.hardware.privacy import LEFT_OUT
from npu_rope.testing.outcomes import FAIL, OK, UNSUPPORTED

Document = dict[str, Any]
SCHEMA, SCHEMA_VERSION = "npu-rope-hardware-report", 1
SIMULATED = "SIMULATED: nothing of this ran on hardware"
NOT_MEASURED = "n/a: simulated"
CORRECT, WRONG, UNFINISHED = "correct", "wrong", "unfinished"
LOST = "lost"
# Arguments that repeat a call and write another report.
REPEAT_ARGUMENTS = "hardware-report --output repeated --overwrite --skip validate"
# The timing model leaves out the start of a kernel, which is a large part of a time below this one.
SHORT_CALL_US = 20.0
CAVEATS = (
    "The model's times leave out the start of a kernel on its cores.",
    "A call is launched several times on the same tensors, which may then lie in the L2 cache. The model has"
    " no such cache.",
)


def new_document(options: Mapping[str, Any]) -> Document:
    """Return an empty report."""
    return {
        "schema": SCHEMA,
        "schema_version": SCHEMA_VERSION,
        "label": "",
        "simulated": False,
        "complete": False,
        "created": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "seconds": 0.0,
        "options": dict(options),
        "verdict": {},
        "machine": {},
        "doctor": [],
        "validate": None,
        "operators": [],
        "timing_model": None,
        "not_done": [],
        "left_out": list(LEFT_OUT),
    }


def add_not_done(document: Document, step_name: str, reason: str, *, failed: bool = False) -> None:
    """Record a missing step. ``failed`` is false if it was not available or not requested."""
    document["not_done"].append({"what": step_name, "why": reason, "failed": failed})


# ---- validate ----------------------------------------------------------------------------------------


def validate_summary(cases: Sequence[Any], results: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return counts by suite and operation, and all cases that are wrong or lost.

    Args:
        cases: all planned cases.
        results: worker.py's results, by ``suite/name``. A case without a result was not run.
    """
    rows_by_suite: dict[tuple[str, str], dict[str, Any]] = {}
    failures, reason_counts = [], Counter[str]()
    for case in cases:
        result = results.get(f"{case.suite}/{case.name}")
        row = rows_by_suite.setdefault((case.suite, case.op), _new_suite_row(case))
        row["cases"] += 1
        if result is None:
            continue
        verdict = _verdict_of(result)
        row[{OK: CORRECT, FAIL: WRONG}.get(verdict, verdict)] += 1
        if verdict == UNSUPPORTED:
            reason_counts[result["message"]] += 1
        elif verdict != OK:
            failures.append(_failure_record(case, verdict, result))
        ratio = float(result.get("error_over_bound", "nan"))
        if ratio > float(row["largest_error_over_bound"]):  # false for NaN, which means no result
            row["largest_error_over_bound"] = json_number(ratio)
    suite_rows = list(rows_by_suite.values())
    counts = ("cases", CORRECT, WRONG, UNSUPPORTED, LOST)
    totals = {name: sum(row[name] for row in suite_rows) for name in counts}
    return {
        **totals,
        "not_run": totals["cases"] - sum(totals[name] for name in (CORRECT, WRONG, UNSUPPORTED, LOST)),
        "by_suite": suite_rows,
        "unsupported_because": dict(reason_counts.most_common()),
        "failures": failures,
    }


def _new_suite_row(case: Any) -> dict[str, Any]:
    counts = dict.fromkeys(("cases", CORRECT, WRONG, UNSUPPORTED, LOST), 0)
    return {"suite": case.suite, "op": case.op, **counts, "largest_error_over_bound": 0.0}


def _verdict_of(result: Mapping[str, Any]) -> str:
    if "lost" in result:
        return LOST
    return FAIL if "failed" in result else str(result["verdict"])


def _failure_record(case: Any, verdict: str, result: Mapping[str, Any]) -> dict[str, Any]:
    message = result.get("lost") or result.get("failed") or result.get("message") or ""
    printed = {"printed": result["printed"]} if result.get("printed") else {}
    name = shlex.quote(case.name)
    return {
        "suite": case.suite,
        "name": case.name,
        "op": case.op,
        "verdict": {FAIL: WRONG}.get(verdict, verdict),
        "message": message,
        **printed,
        "repeat": f"{command_line()} validate --backend npu --no-ggml --suite {case.suite} --op {name}",
    }


# ---- operators ---------------------------------------------------------------------------------------


def call_record(call: TimedCall, *, simulated: bool) -> dict[str, Any]:
    """Return the record of a call that has no results yet."""
    name = call.id.partition("/")[2]
    return {
        "id": call.id,
        "form": call.form,
        "shape": list(call.shape),
        "dtype": call.dtype,
        "options": dict(call.options),
        "simulated": simulated,
        "correct": None,
        "max_error": None,
        "error_over_bound": None,
        "worst": None,
        "message": "",
        "measured": None,
        "measured_note": NOT_MEASURED if simulated else "not measured",
        "predicted": None,
        "predicted_note": "not predicted",
        "measured_over_predicted": None,
        "repeat": f"{command_line()} {REPEAT_ARGUMENTS} --op {call.operator} --filter {shlex.quote(name)}",
    }


def operator_records(calls: Iterable[TimedCall], *, simulated: bool) -> list[dict[str, Any]]:
    """Return the record of every operator with its calls."""
    records: dict[str, dict[str, Any]] = {}
    for call in calls:
        new_record = {"operator": call.operator, "kernel": KERNELS[call.operator], "calls": []}
        record = records.setdefault(call.operator, new_record)
        record["calls"].append(call_record(call, simulated=simulated))
    return list(records.values())


def all_calls(document: Document) -> list[dict[str, Any]]:
    """Return the calls of all operators."""
    return [call for operator in document["operators"] for call in operator["calls"]]


def store_check(record: dict[str, Any], result: Mapping[str, Any]) -> None:
    """Store a call's correctness from worker.py; a lost call is not correct."""
    record["correct"] = bool(result.get("correct", False))
    for name in ("max_error", "error_over_bound", "worst"):
        record[name] = result.get(name)
    record["message"] = result.get("lost") or result.get("failed") or result.get("message") or ""
    if result.get("printed"):
        record["printed"] = result["printed"]


def store_prediction(record: dict[str, Any], result: Mapping[str, Any], profile: str) -> None:
    """Store a call's simulated cycles from worker.py."""
    if "cycles" in result:
        record["predicted"] = {**result, "profile": profile}
        record["predicted_note"] = ""
    else:
        record["predicted_note"] = f"failed: {result.get('lost') or result.get('failed')}"


def store_ratio(record: dict[str, Any]) -> None:
    """Store the ratio of measured to predicted time if both exist; never on a simulated machine."""
    measured, predicted = record["measured"], record["predicted"]
    record["measured_over_predicted"] = None
    if not record["simulated"] and measured and predicted and measured["us"] and predicted["microseconds"]:
        record["measured_over_predicted"] = measured["us"] / predicted["microseconds"]


# ---- the timing model --------------------------------------------------------------------------------


def timing_model(document: Document, profile: str | None, profile_note: str) -> dict[str, Any]:
    """Return the differences between the simulator's times and the measured ones."""
    common_fields = {
        "simulated": document["simulated"],
        "profile": profile,
        "profile_note": profile_note,
        "caveats": list(CAVEATS),
    }
    if document["simulated"]:
        return {**common_fields, "note": NOT_MEASURED, "all": None, "by_size": [], "by_operator": []}
    compared_calls = [call for call in all_calls(document) if call["measured_over_predicted"] is not None]
    if not compared_calls:
        return {
            **common_fields,
            "note": "no call has both times",
            "all": None,
            "by_size": [],
            "by_operator": [],
        }
    short_calls = [call for call in compared_calls if call["predicted"]["microseconds"] < SHORT_CALL_US]
    long_calls = [call for call in compared_calls if call["predicted"]["microseconds"] >= SHORT_CALL_US]
    groups_by_size = (
        (f"predicted below {SHORT_CALL_US:g} us", short_calls),
        (f"predicted {SHORT_CALL_US:g} us or more", long_calls),
    )
    groups_by_operator = [
        (operator["operator"], [call for call in operator["calls"] if call in compared_calls])
        for operator in document["operators"]
    ]
    return {
        **common_fields,
        "note": "",
        "all": _ratio_statistics("all calls", compared_calls),
        "by_size": [_ratio_statistics(name, group) for name, group in groups_by_size if group],
        "by_operator": [_ratio_statistics(name, group) for name, group in groups_by_operator if group],
    }


def _ratio_statistics(name: str, calls: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    worst_call = max(calls, key=lambda call: abs(math.log(call["measured_over_predicted"])))
    differences = [call["measured"]["us"] - call["predicted"]["microseconds"] for call in calls]
    return {
        "of": name,
        "calls": len(calls),
        "median_ratio": statistics.median(call["measured_over_predicted"] for call in calls),
        "worst_ratio": worst_call["measured_over_predicted"],
        "worst_call": worst_call["id"],
        "median_difference_us": statistics.median(differences),
        "methods": dict(Counter(call["measured"]["method"] for call in calls)),
    }


# ---- the verdict -------------------------------------------------------------------------------------


def verdict_summary(document: Document) -> dict[str, Any]:
    """Return the report's status, and a summary of its checks."""
    checked = [call for call in all_calls(document) if call["correct"] is not None]
    wrong_calls = sum(not call["correct"] for call in checked)
    cases = document["validate"] or dict.fromkeys(("cases", CORRECT, WRONG, UNSUPPORTED, LOST, "not_run"), 0)
    wrong_cases = cases[WRONG] + cases[LOST]
    failed = [step["what"] for step in document["not_done"] if step["failed"]]
    sentences = []
    if cases["cases"]:
        sentences.append(f"validate: {cases[CORRECT]} of {cases['cases'] - cases[UNSUPPORTED]} cases correct")
    if checked:
        sentences.append(f"calls: {len(checked) - wrong_calls} of {len(checked)} correct")
    if failed:
        sentences.append(f"failed: {', '.join(failed)}")
    status = CORRECT if checked or cases[CORRECT] else UNFINISHED
    if not document["complete"]:
        status = UNFINISHED
    if wrong_calls or wrong_cases or failed:
        status = WRONG
    return {"status": status, "text": "; ".join(sentences) or "nothing was checked"}
