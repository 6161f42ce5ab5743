"""Every case of ggml's matrix is within its bounds on the CPU, the simulator and an installed ggml."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter

import pytest

BACKENDS = ("cpu", "sim", "sim:ascend310p")
CASES = 918
TIMEOUT_SECONDS = 2_700  # six minutes on an idle machine with two cores
# The only reasons for which ggml may not support a case: its version is too old.
TOO_OLD = r"ggml \S+ has no (ggml_rope_set_offset|ggml_rope_multi(_inplace)?|ggml_set_rows|mode imrope)"


@pytest.mark.slow
@pytest.mark.peer
def test_no_case_of_ggmls_matrix_fails():
    command = [sys.executable, "-m", "npu_rope.cli", "validate", "--suite", "ggml", "--format", "json"]
    for backend in BACKENDS:
        command += ["--backend", backend]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_SECONDS)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert (document["total"], document["failed"], document["ggml_missing"]) == (CASES, 0, None)
    judged = [j for case in document["cases"] for j in case["judgements"]]
    verdicts = Counter((j["backend_name"], j["verdict"]) for j in judged)
    assert {name for name, _ in verdicts} == {*BACKENDS, "cpu:ggml", "ggml"}
    for name in (*BACKENDS, "cpu:ggml"):
        assert verdicts[name, "ok"] == CASES
    assert verdicts["ggml", "ok"] + verdicts["ggml", "unsupported"] == CASES
    assert verdicts["ggml", "ok"] > 0
    unsupported = {j["error_message"] for j in judged if j["verdict"] == "unsupported"}
    assert all(re.fullmatch(TOO_OLD, message) for message in unsupported), unsupported
