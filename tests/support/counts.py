"""Cases by back end: counted in conftest.py's runs, and added up over several. A test of many (together.py)
counts as all of them.

usage: counts.py FILE...     each what a run wrote where NPU_ROPE_TEST_COUNTS said
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path

PROPERTY = "backend"
CASES = "cases"
NO_BACKEND = "no back end"
NODE_TEST = "node test"  # the property of a test that runs one of ONNX's own
ON_NPU = {"simulated", "npu_python"}  # fixtures that run torch_npu


def mark(item) -> None:
    """Note which back end a test is about: its report carries it to where the counting is done."""
    backend = getattr(item, "callspec", None) and item.callspec.params.get("backend")
    if not isinstance(backend, str):
        backend = "npu" if ON_NPU & set(getattr(item, "fixturenames", ())) else NO_BACKEND
    item.user_properties.append((PROPERTY, backend))
    item.user_properties.append((CASES, getattr(item.function, "cases", 1)))


def passed(reports) -> Counter[str]:
    """How many cases passed, by back end."""
    counted: Counter[str] = Counter()
    for report in reports:
        if report.when == "call":
            told = dict(report.user_properties)
            counted[told.get(PROPERTY, NO_BACKEND)] += told.get(CASES, 1)
    return counted


def line(counts: Counter[str]) -> str:
    """One line, the back ends first."""
    names = sorted(counts, key=lambda name: (name == NO_BACKEND, name))
    return "cases passed by back end: " + ", ".join(f"{name} {counts[name]:,}" for name in names)


def node_tests(reports) -> Counter[str]:
    """ONNX's own node tests that passed, by operator and back end."""
    named = (dict(r.user_properties).get(NODE_TEST) for r in reports if r.when == "call")
    return Counter(name for name in named if name)


def node_test_line(counts: Counter[str]) -> str:
    """One line, in the operators' order."""
    return "ONNX's own node tests passed: " + ", ".join(f"{name} {counts[name]}" for name in sorted(counts))


def write(path: str, reporter, seconds: float) -> None:
    """For :func:`main`, when the run is over."""
    kinds = ("passed", "failed", "error", "skipped")
    found = {kind: len(reporter.stats.get(kind, ())) for kind in kinds}
    reports = reporter.stats.get("passed", ())
    run = {"by_backend": passed(reports), "node_tests": node_tests(reports)}
    Path(path).write_text(json.dumps({"found": found, "seconds": seconds, **run}))


def main(paths: list[str]) -> None:
    total: Counter[str] = Counter()
    of_onnx: Counter[str] = Counter()
    for path in map(Path, paths):
        run = json.loads(path.read_text())
        total.update(run["by_backend"])
        of_onnx.update(run["node_tests"])
        found = ", ".join(f"{n:,} {kind}" for kind, n in run["found"].items() if n)
        print(f"{path.name}: {found or 'no tests'} in {run['seconds']:.0f} s")
    print(line(total))
    if of_onnx:
        print(node_test_line(of_onnx))


if __name__ == "__main__":
    main(sys.argv[1:])
