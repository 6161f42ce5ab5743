"""The report as one HTML page without scripts, other files or network."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from typing import Any

from ascend_sim import pages

from npu_rope.hardware.document import CORRECT, NOT_MEASURED, SIMULATED, WRONG, Document
from npu_rope.hardware.kernel_times import MEANING
from npu_rope.hardware.page_plot import plot
from npu_rope.testing.cases import SHORT

Row = Sequence[str]  # cells, as HTML
LARGE_RATIO = 100  # ratios from here on are printed with three digits


def html_of(document: Document) -> str:
    """Return the page of the document, which is its only input."""
    return pages.document(
        f"{'SIMULATED: ' if document['simulated'] else ''}{_title(document)}", _page(document)
    )


def _title(document: Document) -> str:
    return f"npu_rope on {document['machine'].get('chip', 'unknown chip')}"


def _page(document: Document) -> Iterator[str]:
    title = _title(document)
    if document["simulated"]:
        yield f'<aside class="banner" aria-label="Origin">{SIMULATED}</aside>'
    yield "<header>"
    yield f"<h1>Hardware report: {escape(title)}{_badge(document)}</h1>"
    yield f'<p class="soft">{escape(_describe_run(document))}</p>'
    yield "</header>"
    sections = (
        ("verdict", "Verdict", _verdict),
        ("machine", "Machine", _machine),
        ("validate", "Correctness: validate", _validate),
        ("operators", "Operators", _operators),
        ("model", "Error of the timing model", _timing_model),
        ("missing", "What was not done", _missing_steps),
        ("left-out", "Left out of this report", _left_out),
        ("doctor", "Doctor", _doctor),
    )
    links = "".join(f'<li><a href="#{id_}">{name}</a></li>' for id_, name, _ in sections)
    yield f'<nav aria-label="Sections"><ul>{links}</ul></nav><main>'
    for id_, name, section in sections:
        yield f'<section aria-labelledby="{id_}"><h2 id="{id_}">{name}{_badge(document)}</h2>'
        yield from section(document)
        yield "</section>"
    yield (
        f"<footer>{escape(document['schema'])}, version {document['schema_version']}. The JSON file beside"
        " this page has these numbers and more.</footer>"
    )
    yield "</main>"


def _badge(document: Document) -> str:
    return ' <span class="mark warn">SIMULATED</span>' if document["simulated"] else ""


def _describe_run(document: Document) -> str:
    how = "quick: few shapes and cases" if document["options"].get("quick") else "full"
    state = "" if document["complete"] else "; not finished"
    return f"{document['created']}, {document['seconds']:g} seconds, {how}{state}"


# ---- pieces ------------------------------------------------------------------------------------------


def _table(
    caption: str, titles: Sequence[str], rows: Iterable[tuple[Row, bool]], numbers: Sequence[int]
) -> str:
    """Return a table. ``rows`` holds each row's cells and whether the row is wrong. ``numbers`` holds the
    indices of the columns with numbers."""
    marked_rows = ((row, "wrong" if is_wrong else "") for row, is_wrong in rows)
    return pages.table(caption, titles, marked_rows, numbers, _plain(caption))


def _plain(caption: str) -> str:
    return caption.replace('<span class="mark warn">', "").replace("</span>", "").strip()


def _number(value: Any, format_spec: str) -> str:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return "–" if value is None else escape(str(value))
    return format(value, format_spec)


def _ratio(value: Any) -> str:
    is_large = isinstance(value, (int, float)) and value >= LARGE_RATIO
    return _number(value, ".3g" if is_large else ".2f")


def _format_us(value: float) -> str:
    return f"{value:,.1f}" if value >= 100 else f"{value:.2f}"


# ---- sections ----------------------------------------------------------------------------------------


def _verdict(document: Document) -> Iterator[str]:
    summary = document["verdict"]
    kind = {CORRECT: "good", WRONG: "bad"}.get(summary["status"], "warn")
    machine, model = document["machine"], document["timing_model"] or {}
    error = model.get("all")
    cards = [
        ("Results", pages.mark(summary["status"], kind), escape(summary["text"])),
        (
            "Chip",
            escape(str(machine.get("chip", "unknown"))),
            f"CANN {escape(str(machine.get('cann', 'unknown')))}",
        ),
    ]
    if error:
        detail = f"worst {error['worst_ratio']:.2f}, {error['calls']} calls"
        cards.append(("Measured / predicted, median", f"{error['median_ratio']:.2f}", detail))
    else:
        note = escape(str(model.get("note") or "not measured"))
        cards.append(
            (
                "Measured / predicted",
                note,
                "the simulation has no device times" if document["simulated"] else "",
            )
        )
    yield '<div class="cards">'
    for name, value, detail in cards:
        yield f'<div class="card"><span class="soft">{name}</span><b>{value}</b><span>{detail}</span></div>'
    yield "</div>"


_FACT_NAMES = {
    "chip": "chip",
    "devices": "devices",
    "simulated": "simulated",
    "cann": "CANN",
    "driver": "driver",
    "firmware": "firmware",
    "npu_smi": "npu-smi",
    "npu_rope": "npu_rope",
    "npu_rope_revision": "npu_rope's revision",
    "python": "Python",
    "host": "host",
    "libc": "C library",
    "kernel": "Linux kernel",
    "total_memory": "device memory, bytes",
    "L2_cache_size": "L2 cache, bytes",
    "cube_core_num": "cube cores",
    "vector_core_num": "vector cores",
    "multi_processor_count": "processors",
}


def _machine(document: Document) -> Iterator[str]:
    facts = document["machine"]
    rows = []
    for key, value in facts.items():
        if key == "variables":
            continue
        text = {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)
        if isinstance(value, int) and not isinstance(value, bool):
            text = f"{value:,}"
        rows.append((_FACT_NAMES.get(key, key), escape(text)))
    rows += [(name, f"<code>{escape(value)}</code>") for name, value in facts.get("variables", {}).items()]
    yield pages.facts(f"Versions and settings{_badge(document)}", rows)


def _validate(document: Document) -> Iterator[str]:
    summary = document["validate"]
    if summary is None:
        yield "<p>Not run.</p>"
        return
    wrong = summary[WRONG] + summary["lost"]
    yield (
        f"<p>{summary[CORRECT]} of {summary['cases'] - summary['unsupported']} cases are within their bounds"
        f" around the float64 reference; {wrong} are not; {summary['unsupported']} are not supported on this"
        f" chip or by this operator{_not_run(summary)}.</p>"
    )
    rows = [
        (
            [
                escape(f"{suite_row['suite']}: {suite_row['op']}"),
                *(str(suite_row[name]) for name in ("cases", CORRECT, WRONG, "lost", "unsupported")),
                _ratio(suite_row["largest_error_over_bound"]),
            ],
            bool(suite_row[WRONG] + suite_row["lost"]),
        )
        for suite_row in summary["by_suite"]
    ]
    titles = ("suite", "cases", "correct", "wrong", "lost", "not supported", "largest error / bound")
    yield _table(f"Cases of npu-rope validate on back end npu{_badge(document)}", titles, rows, range(1, 7))
    for reason, count in summary["unsupported_because"].items():
        yield f'<p class="soft">{count} not supported: {escape(reason)}</p>'
    if summary["failures"]:
        yield f"<h3>Cases that are not correct: {len(summary['failures'])}{_badge(document)}</h3>"
    for failure in summary["failures"]:
        yield _failure(f"{failure['suite']}: {failure['name']}", failure["verdict"], failure)


def _not_run(summary: Mapping[str, Any]) -> str:
    return f"; {summary['not_run']} were not run" if summary["not_run"] else ""


def _failure(name: str, verdict: str, failure: Mapping[str, Any]) -> str:
    printed = failure.get("printed")
    printed_text = f"<p>The process printed:</p><pre>{escape(printed)}</pre>" if printed else ""
    return (
        f"<details open><summary>{pages.mark(verdict, 'bad')} {escape(name)}</summary>"
        f"<p>{escape(failure['message'])}</p>{printed_text}"
        f"<p>Repeat it with:</p><pre>{escape(failure['repeat'])}</pre></details>"
    )


_TITLES = (
    "call", "shape", "type", "result", "error / bound", "measured, us", "by", "predicted, us", "cycles",
    "cores", "measured / predicted",
)  # fmt: skip


def _operators(document: Document) -> Iterator[str]:
    calls = [call for operator in document["operators"] for call in operator["calls"]]
    methods = {call["measured"]["method"] for call in calls if call["measured"]}
    yield (
        "<p>Each call's result is compared with the float64 reference: an error / bound of at most 1 is"
        " correct. Measured: the median of the call's launches on the device. Predicted: the simulator's"
        " model of the same launch.</p>"
    )
    for method in sorted(methods):
        yield f"<p><b>{method}</b>: {escape(MEANING[method])}.</p>"
    for operator in document["operators"]:
        yield f"<h3>{escape(operator['operator'])}{_badge(document)}</h3>"
        rows = [(_call_row(call), call["correct"] is False) for call in operator["calls"]]
        caption = f"{escape(operator['operator'])}: kernel {escape(operator['kernel'])}{_badge(document)}"
        yield _table(caption, _TITLES, rows, (4, 5, 7, 8, 9, 10))
        for call in operator["calls"]:
            if call["correct"] is False:
                yield _failure(
                    call["id"], WRONG, {**call, "message": call["message"] or _describe_worst(call)}
                )


def _call_row(call: Mapping[str, Any]) -> Row:
    measured, predicted = call["measured"], call["predicted"]
    result = {
        None: pages.mark("not checked", "warn"),
        True: pages.mark(CORRECT, "good"),
        False: pages.mark(WRONG, "bad"),
    }
    note = f'<span class="soft">{escape(call["measured_note"])}</span>'
    return [
        escape(call["form"]),
        f'<span class="row">{escape("×".join(map(str, call["shape"])))}</span>',
        escape(SHORT[call["dtype"]]),
        result[call["correct"]],
        _ratio(call["error_over_bound"]),
        f"{_format_us(measured['us'])}<br>{_range(measured)}" if measured else note,
        escape(measured["method"]) if measured else "–",
        _format_us(predicted["microseconds"])
        if predicted
        else f'<span class="soft">{escape(call["predicted_note"])}</span>',
        f"{predicted['cycles']:,.0f}" if predicted else "–",
        f"{predicted['cores']:.0f}" if predicted else "–",
        _number(call["measured_over_predicted"], ".2f") if measured else note,
    ]


def _range(measured: Mapping[str, Any]) -> str:
    return f'<small class="soft">{_format_us(measured["min_us"])} to {_format_us(measured["max_us"])}</small>'


def _describe_worst(call: Mapping[str, Any]) -> str:
    worst = call["worst"]
    if not worst:
        return "no element could be compared"
    index = ", ".join(map(str, worst["index"]))
    error, ratio = (_number(call[name], ".3g") for name in ("max_error", "error_over_bound"))
    got, expected = (_number(worst[name], ".9g") for name in ("got", "expected"))
    return (
        f"error {error}, the worst element {ratio} times its bound: result {worst['result']}, index"
        f" ({index}): got {got}, expected {expected}"
    )


def _timing_model(document: Document) -> Iterator[str]:
    model = document["timing_model"] or {}
    if model.get("profile"):
        yield f"<p>Predicted with the simulator's profile of {escape(model['profile'])}.</p>"
    if model.get("profile_note"):
        yield f"<p>{escape(model['profile_note'])}.</p>"
    if not model.get("all"):
        yield f"<p>{pages.mark(str(model.get('note') or 'not measured'), 'warn')}</p>"
        if model.get("note") == NOT_MEASURED:
            yield "<p>A simulated machine's times are the model's own, or the host's. They show no error.</p>"
        return
    groups = [model["all"], *model["by_size"], *model["by_operator"]]
    rows = [
        (
            [
                escape(group["of"]),
                str(group["calls"]),
                f"{group['median_ratio']:.2f}",
                f"{group['worst_ratio']:.2f}",
                escape(group["worst_call"]),
                _format_us(group["median_difference_us"])
                if group["median_difference_us"] >= 0
                else f"{group['median_difference_us']:.2f}",
                escape(", ".join(f"{count} by {method}" for method, count in group["methods"].items())),
            ],
            False,
        )
        for group in groups
    ]
    titles = (
        "calls",
        "number",
        "median ratio",
        "worst ratio",
        "worst call",
        "median difference, us",
        "measured by",
    )
    yield _table("Measured time over predicted time", titles, rows, (1, 2, 3, 5))
    yield from plot(document)
    for caveat in model["caveats"]:
        yield f'<p class="soft">{escape(caveat)}</p>'


def _missing_steps(document: Document) -> Iterator[str]:
    if not document["not_done"]:
        yield "<p>Nothing: every step was done.</p>"
        return
    rows = [
        (
            [
                escape(step["what"]),
                pages.mark(*(("failed", "bad") if step["failed"] else ("not done", "warn"))),
                escape(step["why"]),
            ],
            step["failed"],
        )
        for step in document["not_done"]
    ]
    yield _table(f"Steps that are missing, and why{_badge(document)}", ("step", "", "why"), rows, ())


def _left_out(document: Document) -> Iterator[str]:
    yield "<p>Read the report before you send it. It leaves out or renames:</p><ul>"
    for text in document["left_out"]:
        yield f"<li>{escape(text)}</li>"
    yield "</ul>"


def _doctor(document: Document) -> Iterator[str]:
    if not document["doctor"]:
        yield "<p>Not run.</p>"
        return
    marks = {True: pages.mark("yes", "good"), False: pages.mark("no", "warn"), None: ""}
    for group in dict.fromkeys(finding["group"] for finding in document["doctor"]):
        findings_of_group = [finding for finding in document["doctor"] if finding["group"] == group]
        rows = [
            (
                finding["piece"],
                f"{marks[finding['present']]} {escape(finding['detail'])}"
                + (f'<br><span class="soft">{escape(finding["remedy"])}</span>' if finding["remedy"] else ""),
            )
            for finding in findings_of_group
        ]
        facts = pages.facts(_badge(document) or escape(group), rows)
        yield f"<details><summary>{escape(group)}</summary>{facts}</details>"
