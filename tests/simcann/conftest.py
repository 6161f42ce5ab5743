"""The simulated NPU in tests; NPU_ROPE_NPU_PYTHON names a Python that has torch_npu."""

import os

import pytest
from simulated_npu import Simulated


@pytest.fixture(scope="session")
def npu_python():
    python = os.environ.get("NPU_ROPE_NPU_PYTHON")
    if not python:
        pytest.skip("NPU_ROPE_NPU_PYTHON names no Python with torch_npu")
    return python


@pytest.fixture(scope="session")
def simulated(npu_python, tmp_path_factory):
    base = tmp_path_factory.getbasetemp()  # of this worker; its parent is all workers'
    folder = (base.parent if os.environ.get("PYTEST_XDIST_WORKER") else base) / "simulated-npu"
    folder.mkdir(exist_ok=True)
    return Simulated(npu_python, folder)
