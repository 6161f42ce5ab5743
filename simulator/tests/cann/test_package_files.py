"""The time at which an operator package's files are read, and the effects of damaged files."""

import shutil

import aclnn
import pytest
from foreign_operator import call

OP = "WeightedAdd"
KERNEL = "op_impl/ai_core/tbe/kernel/ascend910b/weighted_add/WeightedAdd_float_float_float"
LIST = "op_impl/ai_core/tbe/kernel/config/ascend910b/binary_info_config.json"


@pytest.fixture
def package(foreign_package, tmp_path):
    """A copy of the package that CANN has not read."""
    folder = tmp_path / "package"
    shutil.copytree(foreign_package, folder)
    return folder


@pytest.fixture
def device(package, foreign_kernel, monkeypatch):
    monkeypatch.setenv("ASCEND_SIM_KERNELS", str(foreign_kernel))
    opened = aclnn.Device.open(package)
    opened.set_soc("Ascend910B4")
    return opened


def status_of(device):
    with pytest.raises(aclnn.RefusedPhase) as caught:
        device.call(OP, call())
    return caught.value.status, str(caught.value)


@pytest.mark.parametrize(
    ("suffix", "text", "status", "words"),
    [
        (".o", None, 561113, "which is absent."),
        (".o", b"", 561113, "which is empty."),
        (".o", b"\x7fELF", 361001, "which is truncated"),
        (".json", None, 561108, "which is absent."),
        (".json", b'{"binFileName": "Weigh', 561108, "which is no JSON."),
    ],
)
def test_a_kernel_is_read_at_its_first_call(device, package, suffix, text, status, words):
    file = package / f"{KERNEL}{suffix}"
    contents = file.read_bytes()
    file.unlink() if text is None else file.write_bytes(text)
    for _ in range(2):
        got, message = status_of(device)
        assert got == status
        assert f"{file.name}, {words}" in message
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
    file = package / LIST
    contents = file.read_text()
    file.write_text(text)
    assert status_of(device)[0] == 161001
    file.write_text(contents)
    assert status_of(device)[0] == 161001


def test_a_list_without_the_types_has_no_kernel(device, package):
    file = package / LIST
    file.write_text(file.read_text().replace("WeightedAdd/d=0,p=0/0,2", "WeightedAdd/d=0,p=0/28,2"))
    got, message = status_of(device)
    assert got == 561003
    assert "which has no simplifiedKey WeightedAdd/d=0,p=0/0,2/" in message


def test_text_behind_the_list_is_ignored(device, package):
    with open(package / LIST, "a") as stream:
        stream.write("}} no JSON")
    device.call(OP, call())
