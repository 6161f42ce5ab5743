"""The simulated operator package, loaded once per process and called through aclnn on guarded memory."""

from __future__ import annotations

import aclnn
import pytest

from npu_rope import simulated_package


@pytest.fixture(scope="session")
def package():
    """The package. Its chip is the one that was set last."""
    return aclnn.Device.open(simulated_package.find())


@pytest.fixture
def device(package):
    """The package on Ascend910B1. After the test, its memory is freed and the guard zones are checked."""
    package.set_soc("Ascend910B1")
    yield package
    package.free_tensors()
