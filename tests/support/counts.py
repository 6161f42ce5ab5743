"""Count the cases that pass, by back end. conftest.py counts them in one run, ``main`` adds up several runs.
A test that runs many cases (together.py) counts once for each case.

usage: counts.py FILE...     the files of several runs, which NPU_ROPE_TEST_COUNTS named in each run
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path

PROPERTY = "backend"
CASES = "cases"
NO_BACKEND = "no back end"
NODE_TEST = "node test"  # the property of a test that runs a node test of ONNX
NPU_FIXTURES = {"simulated", "npu_python"}  # fixtures that run torch_npu


def mark(item) -> None:
    """Add the test's back end and number of cases to its properties, which its report carries."""
    backend = getattr(item, "callspec", None) and item.callspec.params.get("backend")
    if not isinstance(backend, str):
        backend = "npu" if NPU_FIXTURES & set(getattr(item, "fixturenames", ())) else NO_BACKEND
    item.user_properties.append((PROPERTY, backend))
    count_cases = getattr(item.function, "count_cases", lambda backend: 1)  # of together.py
    item.user_properties.append((CASES, count_cases(backend)))


def passed(reports) -> Counter[str]:
    """Return the number of cases that passed, by back end."""
    counted: Counter[str] = Counter()
    for report in reports:
        if report.when == "call":
            properties = dict(report.user_properties)
            counted[properties.get(PROPERTY, NO_BACKEND)] += properties.get(CASES, 1)
    return counted


def line(counts: Counter[str]) -> str:
    """Return a line of counts by back end. Tests without one come last."""
    names = sorted(counts, key=lambda name: (name == NO_BACKEND, name))
    return "cases passed by back end: " + ", ".join(f"{name} {counts[name]:,}" for name in names)


def node_tests(reports) -> Counter[str]:
    """Return the number of ONNX's own node tests that passed, by operator and back end."""
    names = (dict(r.user_properties).get(NODE_TEST) for r in reports if r.when == "call")
    return Counter(name for name in names if name)


def node_test_line(counts: Counter[str]) -> str:
    """Return a line of counts, sorted by operator."""
    return "ONNX's own node tests passed: " + ", ".join(f"{name} {counts[name]}" for name in sorted(counts))


def write(path: str, reporter, seconds: float) -> None:
    """Write the counts of a run as JSON, for :func:`main`."""
    kinds = ("passed", "failed", "error", "skipped")
    outcomes = {kind: len(reporter.stats.get(kind, ())) for kind in kinds}
    reports = reporter.stats.get("passed", ())
    run = {"by_backend": passed(reports), "node_tests": node_tests(reports)}
    Path(path).write_text(json.dumps({"outcomes": outcomes, "seconds": seconds, **run}))


def main(paths: list[str]) -> None:
    total: Counter[str] = Counter()
    onnx_total: Counter[str] = Counter()
    for path in map(Path, paths):
        run = json.loads(path.read_text())
        total.update(run["by_backend"])
        onnx_total.update(run["node_tests"])
        outcomes = ", ".join(f"{count:,} {kind}" for kind, count in run["outcomes"].items() if count)
        print(f"{path.name}: {outcomes or 'no tests'} in {run['seconds']:.0f} s")
    print(line(total))
    if onnx_total:
        print(node_test_line(onnx_total))


if __name__ == "__main__":
    main(sys.argv[1:])
