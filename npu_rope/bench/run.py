"""Run one process for each number of threads, and receive its rows one by one.

Thread counts are fixed when the OpenMP, ONNX Runtime and torch pools start. Therefore each count has its
own process, started with ``OMP_NUM_THREADS`` set.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from contextlib import closing
from dataclasses import asdict, dataclass
from typing import Any

from npu_rope.bench import (
    family_rows,
    form_rows,
    gradient_rows,
    growth_rows,
    machine,
    norm_rope_rows,
    norm_rows,
    patched_rows,
    peers,
    qkv_rows,
)
from npu_rope.bench.peers_ggml import GGML
from npu_rope.bench.rope_rows import DTYPES, MODES, Row, rows

SCHEMA = 1
# The names of all peers, for ``--peers``.
PEERS: tuple[str, ...] = (
    GGML,
    peers.ORT,
    peers.HF,
    peers.HF_COMPUTED_TABLES,
    peers.HF_COMPILED,
    peers.VLLM_COMPILED,
)
PEERS += (peers.HF_COMPILED_COMPUTED_TABLES, norm_rows.TORCH, norm_rows.HF, norm_rows.ORT, norm_rows.GGML)
PEERS += (norm_rope_rows.TRANSFORMERS, qkv_rows.TORCH, qkv_rows.COMPILED, qkv_rows.TRANSFORMERS)
PEERS += (qkv_rows.COMPILED_TRANSFORMERS, qkv_rows.ORT)


@dataclass(frozen=True)
class BenchOptions:
    """The rows to measure and the duration."""

    rows: str | None = None
    threads: tuple[int, ...] = (1, 2)
    dtypes: tuple[str, ...] = tuple(DTYPES)
    modes: tuple[str, ...] = MODES
    peers: str | None = None
    seconds: float = 1.0
    min_rounds: int = 9
    attempts: int = 3
    quiet_seconds: float = 120.0
    """The longest total wait of a process until other programs use little CPU."""
    ggml_lib: str | None = None
    isa: str | None = None
    """The instruction set of npu_rope's kernels; None: the widest that the machine has."""

    def chosen_rows(self, threads: int) -> list[Row]:
        """Return the rows of one process."""
        forms: list[Row] = [form_rows.row(dtype, threads) for dtype in self.dtypes]
        forms += norm_rows.rows(self.dtypes, threads)
        forms += [norm_rope_rows.row(dtype, threads) for dtype in self.dtypes]
        forms += [qkv_rows.row(dtype, threads) for dtype in self.dtypes]
        forms += patched_rows.rows(self.dtypes, threads)
        forms += gradient_rows.rows(self.dtypes, threads)
        if self.rows is not None:  # they take too long to be measured unasked
            forms += family_rows.rows(self.dtypes, threads) + growth_rows.rows(self.dtypes, threads)
        chosen = rows(self.dtypes, self.modes, threads, self.rows)
        return chosen + [row for row in forms if self.rows is None or re.search(self.rows, row.name)]


@dataclass
class Results:
    """A run: facts about it, a flat dictionary for each figure, and the errors."""

    facts: dict[str, Any]
    figures: list[dict[str, Any]]
    problems: list[str]

    def document(self) -> dict[str, Any]:
        """Return the document that ``--format json`` writes."""
        from npu_rope.bench.targets import verdicts

        judged = [asdict(verdict) for verdict in verdicts(self.figures)]
        return {
            "schema": SCHEMA,
            **self.facts,
            "problems": self.problems,
            "targets": judged,
            "rows": self.figures,
        }


def facts(options: BenchOptions) -> dict[str, Any]:
    """Return the date, in local time, and descriptions of the machine and the versions."""
    return {
        "date": time.strftime("%Y-%m-%d %H:%M"),
        "machine": machine.machine(),
        "isa": options.isa or machine.isa(),
        "versions": machine.versions(options.ggml_lib),
        "seconds_per_row": options.seconds,
    }


def run(options: BenchOptions, on_event: Callable[[dict[str, Any]], None]) -> Results:
    """Measure everything that the options select.

    Args:
        on_event: called with ``{"event": "start", "row": name}``, with ``{"event": "wait", "row": name}`` if
            the row waits for other programs, and per finished row ``{"event": "row", "figures": [...]}``.
    """
    run_facts = facts(options)
    versions = ", ".join(f"{name} {version}" for name, version in run_facts["versions"].items())
    results = Results(run_facts, [], [])
    for threads in options.threads:
        expected = {row.name for row in options.chosen_rows(threads)}
        with closing(_events(options, threads, results.problems)) as events:  # an interrupt ends the process
            for event in events:
                if event["event"] == "row":
                    for figure in event["figures"]:
                        figure.update(machine=run_facts["machine"], versions=versions)
                        results.figures.append(figure)
                        expected.discard(figure["row"])
                on_event(event)
        if expected:
            results.problems.append(f"not measured, the process ended early: {'; '.join(sorted(expected))}")
    return results


def _events(
    options: BenchOptions, threads: int, problems: list[str]
) -> Generator[dict[str, Any], None, None]:
    count = str(threads)
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": count,
        "MKL_NUM_THREADS": count,
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "HF_HUB_OFFLINE": "1",
        "GGML_NO_BACKTRACE": "1",
    }
    command = [
        sys.executable,
        "-W",
        "ignore",
        "-m",
        "npu_rope.bench.worker",
        count,
        json.dumps(asdict(options)),
    ]
    # A separate session: only this process receives Ctrl-C, and ends the other one without a traceback.
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, env=environment, text=True, start_new_session=True
    ) as process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                yield json.loads(line)
        except BaseException:
            process.kill()  # it has nothing to clean up
            process.wait()  # after an interrupt, Popen waits for a quarter of a second only
            raise
    if process.returncode != 0:
        code = process.returncode
        end = signal.Signals(-code).name if code < 0 else f"exit status {code}"
        problems.append(f"the process with thread count {threads} ended with {end}")
