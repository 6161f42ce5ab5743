"""npu-rope doctor reports the present parts and how to get the absent ones."""

import json
import os
import re
import subprocess
import sys

import pytest

from npu_rope import backends, native
from npu_rope.cli import doctor


@pytest.fixture(scope="module")
def findings(npu_rope_command):
    return json.loads(npu_rope_command("doctor", "--json").stdout)


def test_doctor_exits_0_and_lists_every_back_end(npu_rope_command):
    result = npu_rope_command("doctor")
    assert result.returncode == 0, result.stderr
    for name in ("reference", "cpu", "sim", "sim:ascend310p", "sim:ascend950", "npu"):
        assert re.search(rf"^ *(yes|no) +{name} ", result.stdout, re.MULTILINE), name
    assert not re.search(" $", result.stdout, re.MULTILINE)


def test_absent_parts_have_a_remedy(findings):
    absent = [f for f in findings if f["present"] is False and f["group"] in ("back ends", "NPU", "peers")]
    assert absent
    assert all(f["remedy"] for f in absent)


def test_the_library_and_its_instruction_set_are_reported(findings):
    by_name = {(f["group"], f["piece"]): f for f in findings}
    assert by_name["npu_rope", "C library"]["present"] is True
    assert by_name["npu_rope", "instruction set"]["detail"].split()[0] in (
        "avx512_fp16",
        "avx512_bf16",
        "avx512",
        "avx2",
        "baseline",
        "neon",
    )


def test_the_simulator_is_described(findings):
    found = {f["piece"]: f for f in findings if f["group"] == "simulator"}
    assert found["library"]["present"] is True
    assert "libascend_sim" in found["library"]["detail"]
    assert found["kernels for"]["detail"] == "ascend310p, ascend910_93, ascend910b, ascend950"
    assert found["kernels"]["present"] is True
    assert found["kernels"]["detail"].startswith("ascend310p, ascend910b, ascend950 in ")
    assert {"Ascend910B1", "Ascend310P3"} <= set(found["chips"]["detail"].split(", "))
    assert int(found["rules"]["detail"].split(",")[0]) > 40
    assert found["kernel headers"]["present"] is True


@pytest.mark.long
def test_an_absent_simulator_has_a_remedy(tmp_path):
    """The folder of the libraries holds only the C library. A wheel's libgomp is where it finds it."""
    installed, folder = native.load().path, tmp_path / "npu_rope" / "lib"
    folder.mkdir(parents=True)
    (folder / "libnpu_rope.so").symlink_to(installed)
    (tmp_path / "npu_rope.libs").symlink_to(installed.parents[2] / "npu_rope.libs")
    command = [sys.executable, "-m", "npu_rope.cli", "doctor", "--json"]
    environment = {**os.environ, "NPU_ROPE_LIB_DIR": str(folder), "NPU_ROPE_GGML_LIB": str(folder)}
    found = json.loads(subprocess.run(command, env=environment, capture_output=True, check=True).stdout)
    by_name = {(f["group"], f["piece"]): f for f in found}
    for key in (("back ends", "sim"), ("back ends", "sim:ascend310p"), ("simulator", "library")):
        finding = by_name[key]
        assert finding["present"] is False
        assert finding["detail"] == f"its operator package simulated_package was not found in {folder}"
        assert "pip install" in finding["remedy"]
    assert by_name["back ends", "cpu"]["present"] is True


@pytest.mark.long
def test_a_library_for_another_machine_is_named_as_such(tmp_path):
    """The dynamic loader calls such a file a missing one."""
    other, number = ("x86_64", 62) if os.uname().machine == "aarch64" else ("aarch64", 183)
    code = bytearray(native.load().path.read_bytes())
    code[18:20] = number.to_bytes(2, "little")  # e_machine of ELF
    library = tmp_path / "libnpu_rope.so"
    library.write_bytes(code)
    command = [sys.executable, "-m", "npu_rope.cli", "doctor", "--json"]
    environment = {**os.environ, "NPU_ROPE_LIB_DIR": str(tmp_path)}
    found = json.loads(subprocess.run(command, env=environment, capture_output=True, check=True).stdout)
    (finding,) = (f for f in found if (f["group"], f["piece"]) == ("back ends", "cpu"))
    assert finding["present"] is False
    expected = f"{library} is for {other} and this machine is {os.uname().machine}"
    assert finding["detail"] == f"its library does not load: {expected}"


def test_the_name_of_a_folder_does_not_control_the_terminal():
    command = [sys.executable, "-m", "npu_rope.cli", "doctor"]
    environment = {**os.environ, "NPU_ROPE_LIB_DIR": "/red\x1b[31m\nyes  C library"}
    output = subprocess.run(command, env=environment, capture_output=True, check=True, text=True).stdout
    assert "was not found in /red\\x1b[31m\\nyes  C library" in output
    assert "\x1b[31m" not in output


def test_absent_kernels_are_reported(tmp_path):
    finding = doctor._kernels(tmp_path)
    assert (finding.present, finding.detail) == (False, f"none in {tmp_path}")
    assert finding.remedy


def test_no_arguments_print_help(npu_rope_command):
    result = npu_rope_command()
    assert "validate" in result.stdout + result.stderr
    assert "doctor" in result.stdout + result.stderr


# ---- the last line -----------------------------------------------------------------------------------------


def test_the_last_line_names_the_next_command(npu_rope_command):
    last = npu_rope_command("doctor").stdout.splitlines()[-1]
    assert last == (
        "This machine runs npu_rope on the CPU, and its NPU kernels on the simulator; it has no NPU."
        " Next: npu-rope validate"
    )


def changed(findings, **present):
    """Return the findings with other values of ``present``, by the piece's name."""
    return [
        doctor.Finding(**f | ({"present": present[f["piece"]]} if f["piece"] in present else {}))
        for f in findings
    ]


@pytest.mark.parametrize("chosen", ["gpu", "npu"])
def test_a_default_that_is_absent_is_named(chosen, monkeypatch):
    monkeypatch.setattr(backends, "default_backend", chosen)
    found = {finding.piece: finding for finding in doctor.find_all() if finding.group == "back ends"}
    assert found["default"].present is False
    assert found["default"].detail == f"NPU_ROPE_BACKEND={chosen} is absent here"
    assert "unset NPU_ROPE_BACKEND, or set it to one of reference, cpu" in found["default"].remedy
    expected = f"Calls without backend= fail: NPU_ROPE_BACKEND={chosen} is absent here. Next: unset "
    assert doctor.next_step(doctor.find_all()).startswith(expected)


@pytest.mark.parametrize(
    ("present", "simulated", "expected"),
    [
        ({"C library": False}, None, r"This machine computes only the float64 reference, .*\. Next: "),
        (
            {"sim": False},
            None,
            r"This machine runs npu_rope on the CPU only, .* Next: npu-rope validate --backend cpu$",
        ),
        (
            {"npu": True, "device": True},
            None,
            r"This machine runs npu_rope on its NPU\. Next: npu-rope hardware-report --quick$",
        ),
        (
            {"device": True, "torch_npu": True, "CANN": False},
            None,
            r"This machine has an NPU that npu_rope cannot use yet: CANN is not in order\. Next: install",
        ),
        (
            {"npu": True},
            "Ascend910B2",
            r"This process runs npu_rope on a simulated Ascend910B2\."
            r" Next: npu-rope sim --soc Ascend910B2 -- python -m npu_rope\.cli validate --backend npu$",
        ),
    ],
)
def test_the_last_line_depends_on_the_parts(present, simulated, expected, findings, monkeypatch):
    monkeypatch.setattr(doctor.backends, "simulated_soc", lambda: simulated)
    assert re.match(expected, doctor.next_step(changed(findings, **present)))
