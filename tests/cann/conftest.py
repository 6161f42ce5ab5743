"""The simulated operator package, called through aclnn on memory with guards, once per process."""

from __future__ import annotations

import aclnn
import foreign_operator
import pytest


@pytest.fixture(scope="session")
def package():
    """The package; its chip is set by each test."""
    return aclnn.Device.open()


@pytest.fixture
def device(package):
    """The package on Ascend910B1. Frees a test's memory and checks its guard zones."""
    package.set_soc("Ascend910B1")
    yield package
    package.forget()


@pytest.fixture(scope="session")
def foreign_package(tmp_path_factory):
    """The package of a foreign operator."""
    return foreign_operator.build_package(tmp_path_factory.mktemp("foreign"))


@pytest.fixture(scope="session")
def foreign_kernel(tmp_path_factory):
    return foreign_operator.build_kernel(tmp_path_factory.mktemp("kernel"))


@pytest.fixture(scope="session")
def foreign_half_kernel(tmp_path_factory):
    return foreign_operator.build_kernel(tmp_path_factory.mktemp("kernel"), dtype="half")


@pytest.fixture
def foreign(foreign_package, foreign_kernel, monkeypatch):
    """The foreign operator's package on Ascend910B4."""
    monkeypatch.setenv("ASCEND_SIM_KERNELS", str(foreign_kernel))
    opened = aclnn.Device.open(foreign_package)
    opened.set_soc("Ascend910B4")
    yield opened
    opened.forget()
