"""Fixtures that compile kernels for the simulator, each file once for each SoC and test run."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

import ascend_sim
import mini_kernels
import pytest


@pytest.fixture(scope="session")
def kernel_folder(tmp_path_factory):
    """The folder of compiled kernels, shared by all workers of a session; a variable names one that stays."""
    if lasting := os.environ.get("ASCEND_SIM_TEST_KERNELS"):
        return Path(lasting)
    base = tmp_path_factory.getbasetemp()
    return (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "kernels"


@pytest.fixture(scope="session")
def compiled(kernel_folder):
    """A function that returns an entry of the mini kernels' file with a given stem, compiled on first use."""

    @cache
    def library_of(stem, soc):
        return ascend_sim.build(mini_kernels.source(stem), soc=soc, flags=["-O0"], folder=kernel_folder)

    @cache
    def entry_of(stem, entry, soc="ascend910b"):
        return ascend_sim.Kernel(library_of(stem, soc), entry, soc)

    return entry_of
