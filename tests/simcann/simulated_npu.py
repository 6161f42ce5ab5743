"""Run scripts on the simulated NPU for tests, in a Python with torch_npu; each configuration runs once."""

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

from ascend_sim.programs import session
from fork_server import ForkServer

SCRIPTS = Path(__file__).parent / "scripts"
COMMAND = [sys.executable, "-m", "npu_rope.cli", "sim"]
SECONDS = 300


def checks_of(script):
    """The names of a script's checks, without running it."""
    tree = ast.parse((SCRIPTS / f"{script}.py").read_text())
    return [node.name for node in tree.body if isinstance(node, ast.FunctionDef) and "check_" in node.name]


@dataclass
class Run:
    """The result of a command under the simulated NPU."""

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
    npu_rope: Callable  # its command
    environments: dict = field(default_factory=dict)
    servers: dict = field(default_factory=dict)

    @property
    def cache(self):
        """For XDG_CACHE_HOME."""
        return self.folder / "cache"

    def environment(self, soc):
        """The environment of npu-rope sim, with the caches of these tests.

        torch_npu's cache of memory is off, so that every tensor has its own guard zones.
        """
        if soc not in self.environments:
            before = os.environ.copy()
            os.environ["XDG_CACHE_HOME"] = str(self.cache)
            try:
                made = session.environment([self.python], soc, self.folder)
                self.environments[soc] = made | {"PYTORCH_NO_NPU_MEMORY_CACHING": "1"}
            finally:
                os.environ.clear()
                os.environ.update(before)
        return self.environments[soc]

    def run(self, *arguments, soc=session.DEFAULT_CHIP, fresh=False, **variables):
        """Run the Python with torch_npu and these arguments, as a fork after `import torch_npu` or fresh."""
        with tempfile.TemporaryDirectory(dir=self.folder) as reports:
            env = {**self.environment(soc), **variables, "ASCEND_SIM_REPORT_DIR": reports}
            start = self._start if fresh else self._server(soc).run
            done = start(*map(str, arguments), env=env, cwd=self.folder, timeout=SECONDS)
            report = session.read_reports(Path(reports), soc)
        return Run(done.returncode, done.stdout, done.stderr, report)

    def _start(self, *arguments, **how):
        return subprocess.run([self.python, *arguments], **how, capture_output=True, text=True, check=False)

    def _server(self, soc):
        """The server of a chip: the runtime reads the chip when it is loaded, so each chip needs a server."""
        if soc not in self.servers:
            self.servers[soc] = ForkServer(self.python, ["torch_npu"], self.environment(soc))
        return self.servers[soc]

    def close(self):
        """End the servers."""
        for server in self.servers.values():
            server.close()

    def code(self, source, *arguments, **how):
        """Run a program of a few lines."""
        return self.run("-c", source, *arguments, **how)

    def checks(self, script, soc=session.DEFAULT_CHIP, queue="1"):
        """The result of every check of a script, by name."""
        how = {"soc": soc, "TASK_QUEUE_ENABLE": queue}
        return self.once(f"{script}-{soc}-{queue}", lambda: self.run(SCRIPTS / f"{script}.py", **how).json())

    def once(self, name, make):
        """The result of make(), which runs only in the first worker that needs it."""
        kept = self.folder / f"{name}.json"
        with open(kept.with_suffix(".lock"), "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not kept.exists():
                kept.write_text(json.dumps(make()))
        return json.loads(kept.read_text())

    @staticmethod
    def last_json(done):
        """The last line of a command's standard output."""
        return json.loads(done.stdout.splitlines()[-1])

    def sim(self, *arguments, **variables):
        """Run npu-rope sim."""
        return self.npu_rope("sim", *map(str, arguments), XDG_CACHE_HOME=str(self.cache), **variables)

    def command(self, *arguments, **variables):
        """Start npu-rope sim; it ends when the caller communicates with it."""
        return subprocess.Popen(
            [*COMMAND, *map(str, arguments)],
            env={**os.environ, "XDG_CACHE_HOME": str(self.cache), **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )


def run_checks(simulated, script, soc, queue):
    """Results of a script's checks with torch_npu's cache of memory, which graphs need."""
    how = {"soc": soc, "TASK_QUEUE_ENABLE": queue, "PYTORCH_NO_NPU_MEMORY_CACHING": "0"}
    return simulated.once(
        f"{script}-{soc}-{queue}-cached", lambda: simulated.run(SCRIPTS / f"{script}.py", **how).json()
    )
