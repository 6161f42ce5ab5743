"""Runs of scripts on the simulated NPU, for tests: in a Python with torch_npu, each way once."""

from __future__ import annotations

import ast
import fcntl
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from npu_rope.simcann import session

SCRIPTS = Path(__file__).parent / "scripts"
COMMAND = [sys.executable, "-m", "npu_rope.cli", "sim"]
SECONDS = 300


def checks_of(script):
    """The names of a script's checks, without running it."""
    tree = ast.parse((SCRIPTS / f"{script}.py").read_text())
    return [node.name for node in tree.body if isinstance(node, ast.FunctionDef) and "check_" in node.name]


@dataclass
class Run:
    """What a command under the simulated NPU gave."""

    status: int
    stdout: str
    stderr: str
    report: session.Report

    def json(self):
        """The last line of its standard output."""
        assert self.status == 0, self.stderr
        return json.loads(self.stdout.splitlines()[-1])


@dataclass
class Simulated:
    """A Python with torch_npu, and a folder that all workers of a test run share."""

    python: str
    folder: Path
    environments: dict = field(default_factory=dict)

    @property
    def cache(self):
        """For XDG_CACHE_HOME."""
        return self.folder / "cache"

    def environment(self, soc):
        """As npu-rope sim sets it, with the caches of these tests."""
        if soc not in self.environments:
            before = os.environ.copy()
            os.environ["XDG_CACHE_HOME"] = str(self.cache)
            try:
                self.environments[soc] = session.environment([self.python], soc, self.folder)
            finally:
                os.environ.clear()
                os.environ.update(before)
        return self.environments[soc]

    def run(self, *arguments, soc=session.SOCS[0], **variables):
        """The Python with torch_npu and these arguments."""
        with tempfile.TemporaryDirectory(dir=self.folder) as reports:
            done = subprocess.run(
                [self.python, *map(str, arguments)],
                env={**self.environment(soc), **variables, "NPU_ROPE_SIM_REPORT_DIR": reports},
                cwd=self.folder,
                capture_output=True,
                text=True,
                timeout=SECONDS,
                check=False,
            )
            report = session.read_reports(Path(reports), soc)
        return Run(done.returncode, done.stdout, done.stderr, report)

    def code(self, source, *arguments, **how):
        """A program of a few lines."""
        return self.run("-c", source, *arguments, **how)

    def checks(self, script, soc=session.SOCS[0], queue="1"):
        """What became of every check of a script, by name. The first worker to ask runs it."""
        kept = self.folder / f"{script}-{soc}-{queue}.json"
        with open(kept.with_suffix(".lock"), "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not kept.exists():
                found = self.run(SCRIPTS / f"{script}.py", soc=soc, TASK_QUEUE_ENABLE=queue).json()
                kept.write_text(json.dumps(found))
        return json.loads(kept.read_text())

    def command(self, *arguments, **variables):
        """npu-rope sim itself, started: ends when the caller communicates with it."""
        return subprocess.Popen(
            [*COMMAND, *map(str, arguments)],
            env={**os.environ, "XDG_CACHE_HOME": str(self.cache), **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
