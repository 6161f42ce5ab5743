"""rope's kernel on the simulated timeline: cycles, bytes and share of the memory roofline, case by case.

usage: trace_rope.py [--markdown docs/benchmarks.md]   (put the table between the page's marks)
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

BEGIN, END = "<!-- simulated: begin -->\n", "<!-- simulated: end -->"
PREFILL, DECODE, GQA = "1,4096,32,128", "1,1,32,128", "1,4096,8,128"
CASES = (
    # SoC, shape, dtype, mode, more options
    ("ascend910b", PREFILL, "bf16", "neox"),
    ("ascend910b", PREFILL, "bf16", "normal"),
    ("ascend910b", PREFILL, "f16", "neox"),
    ("ascend910b", PREFILL, "f32", "neox"),
    ("ascend910b", PREFILL, "f32", "normal"),
    ("ascend910b", PREFILL, "bf16", "neox", "--layout", "bnsd"),
    ("ascend910b", PREFILL, "bf16", "neox", "--freq-factors"),
    ("ascend910b", GQA, "bf16", "neox"),
    ("ascend910b", GQA, "bf16", "normal"),
    ("ascend910b", "1,4096,32,80", "bf16", "neox", "--n-dims", "32"),
    ("ascend910b", PREFILL, "bf16", "mrope", "--sections", "16,24,24,0"),
    ("ascend910b", PREFILL, "bf16", "vision"),
    ("ascend910b", DECODE, "bf16", "neox"),
    ("ascend910b", DECODE, "bf16", "neox", "--most-cores", "1"),
    ("ascend910b", DECODE, "bf16", "mrope", "--sections", "16,24,24,0"),
    ("ascend910b", DECODE, "bf16", "normal"),
    ("ascend910b", "32,1,32,128", "bf16", "neox"),
    ("ascend310p", PREFILL, "f16", "neox"),
    ("ascend310p", PREFILL, "f16", "normal"),
    ("ascend310p", DECODE, "f16", "neox"),
    ("ascend310p", DECODE, "f16", "neox", "--most-cores", "1"),
)


def trace(case: tuple[str, ...]) -> dict:
    soc, shape, dtype, mode, *more = case
    command = [str(Path(sys.executable).parent / "npu-rope"), "trace", "rope", "--json", "--soc", soc]
    command += ["--shape", shape, "--dtype", dtype, "--mode", mode, *more]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def table() -> str:
    rows = [
        "| chip | x | | cores | cycles | µs | bytes / least | memory roofline | V busy |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for number, case in enumerate(CASES, 1):
        print(f"\r{number}/{len(CASES)} {' '.join(case):70}", end="", file=sys.stderr)
        run = trace(case)
        moved = (run["bytes_read"] + run["bytes_written"]) / run["least_bytes"]
        what = f"{case[2]} {case[3]} {' '.join(case[4:])}".strip()
        rows.append(
            f"| {run['soc']} | [{case[1]}] | {what} | {run['cores']:.0f} | {run['cycles']:,.0f}"
            f" | {run['microseconds']:.1f} | {moved:.3f} | {run['roofline_share']:.1%}"
            f" | {run['busy_V'] / run['cycles']:.0%} |"
        )
    print(file=sys.stderr)
    return "\n".join(rows) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--markdown", type=Path, help="put the table between the marks of this page")
    options = parser.parse_args()
    text = table()
    if options.markdown is None:
        print(text, end="")
        return
    page = options.markdown.read_text()
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        sys.exit(f"{options.markdown} must have the marks {BEGIN.strip()} and {END}")
    options.markdown.write_text(before + begin + text + end + after)


if __name__ == "__main__":
    main()
