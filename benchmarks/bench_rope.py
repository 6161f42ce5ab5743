#!/usr/bin/env python3
"""Measure rope against the memory floor and its peers, like ``npu-rope bench``.

python benchmarks/bench_rope.py --quick
python benchmarks/bench_rope.py --format json --output run.json --plot run.png
"""

import typer

from npu_rope.cli.bench import bench

if __name__ == "__main__":
    typer.run(bench)
