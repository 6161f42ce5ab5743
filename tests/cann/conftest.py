"""The simulated operator package, loaded once per process and called through aclnn on guarded memory."""

from __future__ import annotations

import aclnn
import pytest

from npu_rope import simulated_package


@pytest.fixture(scope="session")
def package():
    """The package. Each test sets its chip."""
    return aclnn.Device.open(simulated_package.find())


@pytest.fixture
def device(package):
    """The package on Ascend910B1. Frees a test's memory and checks its guard zones."""
    package.set_soc("Ascend910B1")
    yield package
    package.free_tensors()
