"""When CANN reads the files of an operator package, and the effects of damaged files."""

import shutil

import aclnn
import pytest
from foreign_operator import call

OP = "WeightedAdd"
KERNEL_STEM = "op_impl/ai_core/tbe/kernel/ascend910b/weighted_add/WeightedAdd_float_float_float"
KERNEL_LIST = "op_impl/ai_core/tbe/kernel/config/ascend910b/binary_info_config.json"


@pytest.fixture
def package(foreign_package, tmp_path):
    """A copy of WeightedAdd's package that CANN has not read."""
    folder = tmp_path / "package"
    shutil.copytree(foreign_package, folder)
    return folder


@pytest.fixture
def device(package, foreign_kernel, monkeypatch):
    monkeypatch.setenv("ASCEND_SIM_KERNELS", str(foreign_kernel))
    opened = aclnn.Device.open(package)
    opened.set_soc("Ascend910B4")
    return opened


def failure_of(device):
    with pytest.raises(aclnn.RefusedPhase) as caught:
        device.call(OP, call())
    return caught.value.status, str(caught.value)


@pytest.mark.parametrize(
    ("suffix", "damaged", "status", "message"),
    [
        (".o", None, 561113, "which is absent."),
        (".o", b"", 561113, "which is empty."),
        (".o", b"\x7fELF", 361001, "which is truncated"),
        (".json", None, 561108, "which is absent."),
        (".json", b'{"binFileName": "Weigh', 561108, "which is no JSON."),
    ],
)
def test_a_kernel_is_read_at_its_first_call(device, package, suffix, damaged, status, message):
    file = package / f"{KERNEL_STEM}{suffix}"
    contents = file.read_bytes()
    file.unlink() if damaged is None else file.write_bytes(damaged)
    for _ in range(2):
        found_status, found_message = failure_of(device)
        assert found_status == status
        assert f"{file.name}, {message}" in found_message
    file.write_bytes(contents)  # a failure is not cached
    device.call(OP, call())


def test_a_package_that_was_read_is_not_read_again(device, package):
    device.call(OP, call())
    shutil.rmtree(package / "op_impl")
    device.call(OP, call(alpha=0.25))


@pytest.mark.parametrize(
    "text", ["", "{", '{"WeightedAdd": 1}', '{"WeightedAdd": {"binaryList": [{}]}}', "[1]"]
)
def test_a_list_that_does_not_name_the_operator_is_cached(device, package, text):
    file = package / KERNEL_LIST
    contents = file.read_text()
    file.write_text(text)
    assert failure_of(device)[0] == 161001
    file.write_text(contents)
    assert failure_of(device)[0] == 161001


def test_a_list_without_the_types_has_no_kernel(device, package):
    file = package / KERNEL_LIST
    file.write_text(file.read_text().replace("WeightedAdd/d=0,p=0/0,2", "WeightedAdd/d=0,p=0/28,2"))
    status, message = failure_of(device)
    assert status == 561003
    assert "which has no simplifiedKey WeightedAdd/d=0,p=0/0,2/" in message


def test_text_after_the_list_is_ignored(device, package):
    with open(package / KERNEL_LIST, "a") as stream:
        stream.write("}} no JSON")
    device.call(OP, call())
