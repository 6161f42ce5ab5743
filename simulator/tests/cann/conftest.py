"""The package and the kernels of WeightedAdd, an operator that is not one of npu_rope's."""

from __future__ import annotations

import aclnn
import foreign_operator
import pytest


@pytest.fixture(scope="session")
def foreign_package(tmp_path_factory):
    return foreign_operator.build_package(tmp_path_factory.mktemp("foreign"))


@pytest.fixture(scope="session")
def foreign_kernel(tmp_path_factory):
    return foreign_operator.build_kernel(tmp_path_factory.mktemp("kernel"))


@pytest.fixture(scope="session")
def foreign_half_kernel(tmp_path_factory):
    return foreign_operator.build_kernel(tmp_path_factory.mktemp("kernel"), dtype="half")


@pytest.fixture
def device(foreign_package, foreign_kernel, monkeypatch):
    """WeightedAdd's package on Ascend910B4, with the float kernel only."""
    monkeypatch.setenv("ASCEND_SIM_KERNELS", str(foreign_kernel))
    opened = aclnn.Device.open(foreign_package)
    opened.set_soc("Ascend910B4")
    yield opened
    opened.free_tensors()
