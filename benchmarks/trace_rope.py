"""Trace rope's and rotary_mul's kernels on the simulator: cycles, bytes, share of the memory roofline.

usage: trace_rope.py [--markdown docs/benchmarks.md]   (write the tables into this page)
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

from page import with_table

MARKS = {  # the lines of the page before and after each operator's table
    "rope": ("<!-- simulated: begin -->\n", "<!-- simulated: end -->"),
    "rotary_mul": ("<!-- simulated tables: begin -->\n", "<!-- simulated tables: end -->"),
}
PREFILL, DECODE, GQA_KEY = "1,4096,32,128", "1,1,32,128", "1,4096,8,128"
PAIR_WIDTH = ("--width", "pair")  # tables with one entry per pair
ROPE_CASES = (
    # SoC, shape, dtype, mode, more options
    ("ascend910b", PREFILL, "bf16", "neox"),
    ("ascend910b", PREFILL, "bf16", "normal"),
    ("ascend910b", PREFILL, "f16", "neox"),
    ("ascend910b", PREFILL, "f32", "neox"),
    ("ascend910b", PREFILL, "f32", "normal"),
    ("ascend910b", PREFILL, "bf16", "neox", "--layout", "bnsd"),
    ("ascend910b", PREFILL, "bf16", "neox", "--freq-factors"),
    ("ascend910b", GQA_KEY, "bf16", "neox"),
    ("ascend910b", GQA_KEY, "bf16", "normal"),
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
    ("ascend950", PREFILL, "bf16", "neox"),
    ("ascend950", PREFILL, "bf16", "normal"),
    ("ascend950", DECODE, "bf16", "neox"),
)
ROTARY_MUL_CASES = (
    # SoC, shape, dtype, more options. --rows: rows of the gathered tables
    ("ascend910b", PREFILL, "bf16"),
    ("ascend910b", PREFILL, "bf16", "--interleaved"),
    ("ascend910b", PREFILL, "bf16", *PAIR_WIDTH),
    ("ascend910b", PREFILL, "bf16", *PAIR_WIDTH, "--interleaved"),
    ("ascend910b", PREFILL, "bf16", "--table-dtype", "f32"),
    ("ascend910b", PREFILL, "bf16", "--interleaved", "--backward"),
    ("ascend910b", PREFILL, "f32"),
    ("ascend910b", PREFILL, "bf16", "--layout", "bnsd"),
    ("ascend910b", PREFILL, "bf16", *PAIR_WIDTH, "--rows", "8192"),
    ("ascend910b", PREFILL, "bf16", *PAIR_WIDTH, "--rows", "8192", "--layout", "bnsd"),
    ("ascend910b", GQA_KEY, "bf16"),
    ("ascend910b", GQA_KEY, "bf16", "--interleaved"),
    ("ascend910b", DECODE, "bf16"),
    ("ascend910b", DECODE, "bf16", "--most-cores", "1"),
    ("ascend910b", "32,1,32,128", "bf16", *PAIR_WIDTH, "--rows", "8192"),
    ("ascend310p", PREFILL, "f16"),
    ("ascend310p", PREFILL, "f16", "--interleaved"),
    ("ascend310p", PREFILL, "f16", *PAIR_WIDTH, "--rows", "8192"),
    ("ascend950", PREFILL, "bf16"),
    ("ascend950", PREFILL, "bf16", "--interleaved"),
)
CASES = {
    "rope": tuple((*case[:3], "--mode", *case[3:]) for case in ROPE_CASES),
    "rotary_mul": ROTARY_MUL_CASES,
}


def trace(op: str, case: tuple[str, ...]) -> dict:
    soc, shape, dtype, *more = case
    command = [str(Path(sys.executable).parent / "npu-rope"), "trace", op, "--json", "--soc", soc]
    command += ["--shape", shape, "--dtype", dtype, *more]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def markdown_table(op: str) -> str:
    rows = [
        "| chip | x | | cores | cycles | µs | bytes / least bytes | memory roofline | V busy |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for number, case in enumerate(CASES[op], 1):
        print(f"\r{op} {number}/{len(CASES[op])} {' '.join(case):70}", end="", file=sys.stderr)
        run = trace(op, case)
        moved_over_least = (run["bytes_read"] + run["bytes_written"]) / run["least_bytes"]
        options = " ".join(case[2:]).replace("--mode ", "")
        rows.append(
            f"| {run['soc']} | [{case[1]}] | {options} | {run['cores']:.0f} | {run['cycles']:,.0f}"
            f" | {run['microseconds']:.1f} | {moved_over_least:.3f} | {run['roofline_share']:.1%}"
            f" | {run['busy_V'] / run['cycles']:.0%} |"
        )
    print(file=sys.stderr)
    return "\n".join(rows) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--markdown", type=Path, help="write the tables between the marks of this page")
    options = parser.parse_args()
    tables = {op: markdown_table(op) for op in CASES}
    if options.markdown is None:
        print("\n".join(tables.values()), end="")
        return
    page = options.markdown.read_text()
    for op, table in tables.items():
        page = with_table(page, *MARKS[op], table, options.markdown)
    options.markdown.write_text(page)


if __name__ == "__main__":
    main()
