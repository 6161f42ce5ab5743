#!/usr/bin/env python3
"""Run ``npu-rope bench``: compare operators with a memory copy and with other libraries.

python benchmarks/bench_rope.py --quick
python benchmarks/bench_rope.py --format json --output run.json --plot run.png
"""

import typer

from npu_rope.cli.bench import bench

if __name__ == "__main__":
    typer.run(bench)
