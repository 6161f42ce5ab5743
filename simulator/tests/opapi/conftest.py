"""Fixtures: the stand-ins of libopapi on one chip of each family."""

import pytest
from aclnn import Device


@pytest.fixture(scope="session", params=["Ascend910B1", "Ascend310P3"])
def opapi(request):
    """Both phases of every function, on a chip of each family; ``opapi.is_310p`` tells which."""
    return Device.of_stand_ins(request.param)


@pytest.fixture(scope="session")
def opapi_910b():
    return Device.of_stand_ins("Ascend910B1")
