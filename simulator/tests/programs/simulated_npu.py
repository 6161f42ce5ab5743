"""Run scripts of tests on the simulated NPU, in a Python with torch_npu.

ASCEND_SIM_NPU_PYTHON names that Python. By default it is that of .venv-npu in the nearest parent folder.
"""

from __future__ import annotations

import ast
import fcntl
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import pytest
from ascend_sim.programs import session
from fork_server import ForkServer

SCRIPTS = Path(__file__).parent / "scripts"
COMMAND = [sys.executable, "-m", "ascend_sim.cli", "run"]
TIMEOUT_SECONDS = 300


def functions_of(script):
    """The names of a script's functions, without running it."""
    return [node.name for node in ast.parse(script.read_text()).body if isinstance(node, ast.FunctionDef)]


def checks_of(script):
    """The names of a script's checks."""
    return [name for name in functions_of(script) if name.startswith("check_")]


def find_python():
    """Return the path of a Python with torch_npu, or skip the test."""
    if named := os.environ.get("ASCEND_SIM_NPU_PYTHON"):
        return named
    for folder in Path(__file__).parents:
        if (python := folder / ".venv-npu/bin/python").exists():
            return str(python)
    pytest.skip("no Python with torch_npu: scripts/test.sh --npu makes .venv-npu")


def run_command(*arguments, **environment):
    """Run ascend-sim run."""
    return subprocess.run(
        [*COMMAND, *arguments], env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )


def shared_folder(factory, name):
    """Return a folder of this test run, which all its workers share."""
    base = factory.getbasetemp()  # this worker's; all workers share its parent
    folder = (base.parent if os.environ.get("PYTEST_XDIST_WORKER") else base) / name
    folder.mkdir(exist_ok=True)
    return folder


@dataclass
class Run:
    """The result of a command on the simulated NPU."""

    status: int
    stdout: str
    stderr: str
    report: session.SessionReport

    def json(self):
        """Parse the last line of the standard output as JSON."""
        assert self.status == 0, self.stderr
        return json.loads(self.stdout.splitlines()[-1])


@dataclass
class Simulated:
    """A Python with torch_npu, a folder that all workers of a test run share, and the command under test."""

    python: str
    folder: Path
    command: Callable = run_command
    environments: dict = field(default_factory=dict)
    servers: ClassVar = {}  # by Python, folder and chip, for every object of a process

    @property
    def cache(self):
        """The value of XDG_CACHE_HOME."""
        return self.folder / "cache"

    def environment(self, soc):
        """The environment of ascend-sim run, with these tests' XDG_CACHE_HOME, and the scripts as modules.

        torch_npu's cache of memory is off, so that every tensor has its own guard zones.
        """
        if soc not in self.environments:
            before = os.environ.copy()
            os.environ["XDG_CACHE_HOME"] = str(self.cache)
            try:
                base = session.environment([self.python], soc, self.folder)
                modules = os.pathsep.join([base["PYTHONPATH"], str(SCRIPTS)])
                self.environments[soc] = base | {"PYTORCH_NO_NPU_MEMORY_CACHING": "1", "PYTHONPATH": modules}
            finally:
                os.environ.clear()
                os.environ.update(before)
        return self.environments[soc]

    def run(self, *arguments, soc=session.DEFAULT_CHIP, fresh=False, **variables):
        """Run the Python with torch_npu and these arguments, as a fork after `import torch_npu` or fresh."""
        with tempfile.TemporaryDirectory(dir=self.folder) as reports:
            env = {**self.environment(soc), **variables, "ASCEND_SIM_REPORT_DIR": reports}
            start = self._start if fresh else self._server(soc).run
            done = start(*map(str, arguments), env=env, cwd=self.folder, timeout=TIMEOUT_SECONDS)
            report = session.read_reports(Path(reports), soc)
        return Run(done.returncode, done.stdout, done.stderr, report)

    def _start(self, *arguments, **options):
        return subprocess.run(
            [self.python, *arguments], **options, capture_output=True, text=True, check=False
        )

    def _server(self, soc):
        """The server of a chip: the runtime reads the chip when it is loaded, so each chip needs a server."""
        key = (self.python, self.folder, soc)
        if key not in self.servers:
            self.servers[key] = ForkServer(self.python, ["torch_npu"], self.environment(soc))
        return self.servers[key]

    def close(self):
        """End the servers of this process."""
        while self.servers:
            self.servers.popitem()[1].close()

    def code(self, source, *arguments, **options):
        """Run Python source."""
        return self.run("-c", source, *arguments, **options)

    def checks(self, script, soc=session.DEFAULT_CHIP, queue="1", cached=False):
        """The result of every check of a script, by name. A script runs once for each configuration.

        cached: whether torch_npu's cache of memory is on, which graphs need.
        """
        variables = {"TASK_QUEUE_ENABLE": queue, "PYTORCH_NO_NPU_MEMORY_CACHING": "0" if cached else "1"}
        name = f"{script.stem}-{soc}-{queue}" + ("-cached" if cached else "")
        return self.once(name, lambda: self.run(script, soc=soc, **variables).json())

    def once(self, name, make):
        """The result of make(), which runs only in the first worker that needs it."""
        file = self.folder / f"{name}.json"
        with open(file.with_suffix(".lock"), "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not file.exists():
                file.write_text(json.dumps(make()))
        return json.loads(file.read_text())

    def llama_on_the_cpu(self):
        """The losses and the tokens of llama.py without an NPU."""

        def run():
            environment = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
            done = self._start(SCRIPTS / "llama.py", "cpu", env=environment)
            return json.loads(done.stdout)

        return self.once("llama-on-the-cpu", run)

    @staticmethod
    def last_json(done):
        """Parse the last line of a command's standard output as JSON."""
        return json.loads(done.stdout.splitlines()[-1])

    def sim(self, *arguments, **variables):
        """Run ascend-sim run, or the command that replaces it."""
        return self.command(*map(str, arguments), **{**self._test_variables(), **variables})

    def start(self, *arguments, **variables):
        """Start ascend-sim run and return the process."""
        return subprocess.Popen(
            [*COMMAND, *map(str, arguments)],
            env={**os.environ, **self._test_variables(), **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def _test_variables(self):
        return {"XDG_CACHE_HOME": str(self.cache), "PYTHONPATH": str(SCRIPTS)}
