"""The simulated NPU in tests: a Python with torch_npu, named by NPU_ROPE_NPU_PYTHON, and runs in it."""

import ast
import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import pytest

from npu_rope.simcann import session

SCRIPTS = Path(__file__).parent / "scripts"
COMMAND = [sys.executable, "-m", "npu_rope.cli", "sim"]
SECONDS = 300


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
    """Runs scripts on the simulated NPU, each way once."""

    python: str
    folder: Path
    environments: dict = field(default_factory=dict)

    def environment(self, soc):
        """As npu-rope sim sets it, with the caches of these tests."""
        if soc not in self.environments:
            kept = os.environ.get("XDG_CACHE_HOME")
            os.environ["XDG_CACHE_HOME"] = str(self.folder / "cache")
            try:
                self.environments[soc] = session.environment([self.python], soc, self.folder)
            finally:
                os.environ.pop("XDG_CACHE_HOME")
                if kept is not None:
                    os.environ["XDG_CACHE_HOME"] = kept
        return self.environments[soc]

    def run(self, *arguments, soc=session.SOCS[0], **variables):
        """The Python with torch_npu and these arguments."""
        number = len(list(self.folder.glob("reports*")))
        reports = self.folder / f"reports{number}"
        reports.mkdir()
        e = {**self.environment(soc), **variables, "NPU_ROPE_SIM_REPORT_DIR": str(reports)}
        command = [self.python, *map(str, arguments)]
        done = subprocess.run(
            command, env=e, capture_output=True, text=True, timeout=SECONDS, check=False, cwd=self.folder
        )
        return Run(done.returncode, done.stdout, done.stderr, session.read_reports(reports, soc))

    def code(self, source, **how):
        """A program of a few lines."""
        return self.run("-c", source, **how)

    @cache  # noqa: B019
    def checks(self, script, soc=session.SOCS[0], queue="1"):
        """What became of every check of a script, by name."""
        return self.run(SCRIPTS / f"{script}.py", soc=soc, TASK_QUEUE_ENABLE=queue).json()

    __hash__ = object.__hash__


def checks_of(script):
    """The names of a script's checks, without running it."""
    tree = ast.parse((SCRIPTS / f"{script}.py").read_text())
    return [node.name for node in tree.body if isinstance(node, ast.FunctionDef) and "check_" in node.name]


@pytest.fixture(scope="session")
def npu_python():
    python = os.environ.get("NPU_ROPE_NPU_PYTHON")
    if not python:
        pytest.skip("NPU_ROPE_NPU_PYTHON names no Python with torch_npu")
    return python


@pytest.fixture(scope="session")
def simulated(npu_python, tmp_path_factory):
    return Simulated(npu_python, tmp_path_factory.mktemp("simulated"))
