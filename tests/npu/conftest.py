"""The simulated NPU in tests of npu_rope: the simulator's fixture, with the command npu-rope sim."""

import functools

import pytest
from simulated_npu import Simulated, find_python, shared_folder


@pytest.fixture(scope="session")
def npu_python():
    """The Python that has torch_npu."""
    return find_python()


@pytest.fixture(scope="session")
def simulated(npu_python, npu_rope_command, tmp_path_factory):
    folder = shared_folder(tmp_path_factory, "simulated-npu")
    made = Simulated(npu_python, folder, functools.partial(npu_rope_command, "sim"))
    yield made
    made.close()
