"""The calls at which CANN reads the files of an operator package, and the effects of damaged files."""

import os
import shutil
import subprocess
import sys

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
        (".json", b'{"binFileName": "Weigh', 561108, "which is not JSON."),
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


# ---- kernels that replace those of the package -----------------------------------------------------


def test_a_replacement_that_does_not_load_is_an_error(device, monkeypatch, tmp_path):
    monkeypatch.setenv("ASCEND_SIM_KERNELS", f"{tmp_path}/none.so")
    status, message = failure_of(device)
    assert status == 561003
    assert f"{tmp_path}/none.so: cannot open shared object file" in message


ONE_LOOK_UP = """
import sys
from ascend_sim import library
find = library.load().lib.ascend_sim_find_kernel
find(b"/nonexistent", sys.argv[1].encode())
"""


def test_replacements_without_a_kernel_that_ran_are_reported(foreign_kernel):
    """A kernel that the libraries lack comes from the package, which is no error."""

    def stderr_of(entry, kernels):
        command = [sys.executable, "-c", ONE_LOOK_UP, entry]
        environment = os.environ | {"ASCEND_SIM_KERNELS": kernels}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        return done.stderr

    kernels = str(foreign_kernel)
    assert stderr_of("gelu__ascend910b__float", kernels) == (
        "[sim] ASCEND_SIM_KERNELS must have a kernel that this process ran, such as gelu__ascend910b__float, "
        f"but got {kernels}.\n"
    )
    assert stderr_of("weighted_add__ascend910b__float_float_float", kernels) == ""
    assert stderr_of("gelu__ascend910b__float", "") == ""
