"""Sharding rules, with two gloo processes on the CPU: results and gradients are those of whole tensors."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.peer  # a model of transformers
SCRIPT = Path(__file__).parent / "scripts" / "sharded.py"


@pytest.mark.parametrize(("what", "cases"), [("operators", 46), ("llama", 2)])
def test_two_processes_give_what_one_gives(what, cases):
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone"]
    done = subprocess.run(
        [*command, str(SCRIPT), what],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == f"{cases} cases, 2 processes"
