"""Compare the speed of two installations of the simulator: launches per second and compile times.

Each interpreter has ascend_sim and npu_rope installed; PYTHON_AFTER is by default the one that runs this
script. The interpreters run alternately, so that the load of the machine affects both. The table has the
medians over the rounds, and the ratio of the median after the change to the one before it.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

ROUNDS = 5
SECONDS = 1.5  # of each launch in a round
COMPILATION = "seconds to compile add_custom.cpp"
KERNEL = Path(__file__).resolve().parents[1] / "simulator" / "examples" / "add_custom.cpp"


def launches() -> dict[str, Callable[[], Any]]:
    """Return calls of back end sim by name."""
    import numpy as np

    import npu_rope

    def values(*shape: int, dtype: str = "float16") -> Any:
        return np.random.default_rng(0).standard_normal(shape).astype(dtype)

    def rope(tokens: int, mode: str) -> Callable[[], Any]:
        x, positions = values(1, tokens, 32, 128), np.arange(tokens, dtype=np.int32)
        return partial(npu_rope.rope, x, positions, npu_rope.RopeParams(n_dims=128, mode=mode), backend="sim")

    x, scale, table = values(256, 4096), values(4096), values(256, 128, dtype="float32")
    rotated = values(1, 256, 32, 128, dtype="float32")
    return {
        "rope neox f16 [1,1,32,128]": rope(1, "neox"),
        "rope neox f16 [1,256,32,128]": rope(256, "neox"),
        "rope normal f16 [1,256,32,128]": rope(256, "normal"),
        "rotary_mul f32 [1,256,32,128]": partial(npu_rope.rotary_mul, rotated, table, table, backend="sim"),
        "rms_norm f16 [256,4096]": partial(npu_rope.rms_norm, x, scale, backend="sim"),
        "add_rms_norm f16 [256,4096]": partial(npu_rope.add_rms_norm, x, x.copy(), scale, backend="sim"),
    }


def measure() -> dict[str, float]:
    """Return the number of launches per second for each call, and the seconds of a compilation."""
    from ascend_sim import build

    rates = {}
    for name, launch in launches().items():
        launch()
        begin, count = time.perf_counter(), 0
        while (elapsed := time.perf_counter() - begin) < SECONDS or count < 2:
            launch()
            count += 1
        rates[name] = count / elapsed
    with tempfile.TemporaryDirectory() as folder:
        begin = time.perf_counter()
        build(KERNEL, folder=folder)
        return {**rates, COMPILATION: time.perf_counter() - begin}


def run(python: str) -> dict[str, float]:
    """Return what an interpreter measures."""
    command = [python, __file__, "--measure"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(f"{python} must have ascend_sim and npu_rope installed but ended with {done.returncode}.")
    rates: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return rates


def main() -> None:
    """Measure with both interpreters and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("before", nargs="?", metavar="PYTHON_BEFORE", help="with the earlier installation")
    parser.add_argument(
        "after", nargs="?", metavar="PYTHON_AFTER", default=sys.executable, help="with the later one"
    )
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.measure:
        print(json.dumps(measure()))
        return
    if given.before is None:
        parser.error("PYTHON_BEFORE is missing")
    rounds: list[tuple[dict[str, float], dict[str, float]]] = []
    for i in range(ROUNDS):
        print(f"round {i + 1} of {ROUNDS}", file=sys.stderr, flush=True)
        rounds.append((run(given.before), run(given.after)))
    print("| launches a second | before | after | ratio |\n|---|---:|---:|---:|")
    for name in rounds[0][1]:
        before, after = (statistics.median(pair[i][name] for pair in rounds) for i in range(2))
        print(f"| {name} | {before:.3g} | {after:.3g} | {after / before:.2f} |")


if __name__ == "__main__":
    main()
