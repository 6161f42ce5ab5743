"""The simulated NPU in tests. NPU_ROPE_NPU_PYTHON names a Python with torch_npu; else it is .venv-npu's."""

import json
import os
import subprocess
from pathlib import Path

import pytest
from simulated_npu import SCRIPTS, Simulated


@pytest.fixture(scope="session")
def npu_python():
    if named := os.environ.get("NPU_ROPE_NPU_PYTHON"):
        return named
    made = Path(__file__).parents[2] / ".venv-npu/bin/python"
    if not made.exists():
        pytest.skip("no Python with torch_npu: scripts/test.sh without arguments makes .venv-npu")
    return str(made)


@pytest.fixture(scope="session")
def simulated(npu_python, npu_rope_command, tmp_path_factory):
    base = tmp_path_factory.getbasetemp()  # this worker's folder; all workers share its parent
    folder = (base.parent if os.environ.get("PYTEST_XDIST_WORKER") else base) / "simulated-npu"
    folder.mkdir(exist_ok=True)
    made = Simulated(npu_python, folder, npu_rope_command)
    yield made
    made.close()


@pytest.fixture(scope="session")
def llama_on_the_cpu(npu_python, simulated):
    def run():
        environment = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
        command = [npu_python, str(SCRIPTS / "llama.py"), "cpu"]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        return json.loads(done.stdout)

    return simulated.once("llama-on-the-cpu", run)
