"""The simulated operator package on a runtime of the tests' own, once a process."""

from __future__ import annotations

import sys
from pathlib import Path

import aclnn
import pytest

sys.path.append(str(Path(__file__).resolve().parents[1] / "ops"))  # the tables of bad calls


@pytest.fixture(scope="session")
def runtime(tmp_path_factory):
    """The library of the tests' runtime: one a process."""
    return aclnn.build_double(tmp_path_factory.mktemp("double"))


@pytest.fixture(scope="session")
def package(runtime):
    """The package; its chip is set by each test."""
    return aclnn.Device.open(runtime)


@pytest.fixture
def device(package):
    """The package on Ascend910B1. A test's memory is freed, and its guards are looked at."""
    package.set_soc("Ascend910B1")
    yield package
    package.forget()
