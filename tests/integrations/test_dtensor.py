"""Sharding rules with two gloo processes on the CPU: results and gradients equal those of full tensors."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.peer  # the script needs transformers
SCRIPT = Path(__file__).parent / "scripts" / "sharded.py"


@pytest.mark.long
def test_two_processes_give_the_results_of_one():
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone"]
    done = subprocess.run(
        [*command, str(SCRIPT), "operators", "qkv", "llama"],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    counts = {"operators": 46, "qkv": 41, "llama": 2}
    lines = [f"{name}: {count} cases, 2 processes" for name, count in counts.items()]
    assert done.stdout.splitlines()[-3:] == lines
