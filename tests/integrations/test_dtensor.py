"""Sharding rules, with two gloo processes on the CPU: results and gradients are those of whole tensors."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.peer  # a model of transformers
SCRIPT = Path(__file__).parent / "scripts" / "sharded.py"


def test_two_processes_give_what_one_gives():
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone"]
    done = subprocess.run(
        [*command, str(SCRIPT), "operators", "llama"],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    said = done.stdout.splitlines()[-2:]
    assert said == ["operators: 46 cases, 2 processes", "llama: 2 cases, 2 processes"]
