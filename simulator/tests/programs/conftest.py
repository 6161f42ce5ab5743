"""Fixtures: a Python with torch_npu, and the simulated NPU that it uses."""

import pytest
from simulated_npu import Simulated, find_python, shared_folder


@pytest.fixture(scope="session")
def npu_python():
    return find_python()


@pytest.fixture(scope="session")
def simulated(npu_python, tmp_path_factory):
    made = Simulated(npu_python, shared_folder(tmp_path_factory, "simulated-npu"))
    yield made
    made.close()
