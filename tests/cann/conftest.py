"""The simulated operator package, called through aclnn on memory with guards, once per process."""

from __future__ import annotations

import aclnn
import pytest

from npu_rope import simulated_package


@pytest.fixture(scope="session")
def package():
    """The package; its chip is set by each test."""
    return aclnn.Device.open(simulated_package.find())


@pytest.fixture
def device(package):
    """The package on Ascend910B1. Frees a test's memory and checks its guard zones."""
    package.set_soc("Ascend910B1")
    yield package
    package.forget()
