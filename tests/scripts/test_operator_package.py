"""npu_rope/operator_package.py finds faults in a package, and doctor reports them."""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import subprocess
from pathlib import Path

import cann_stand_in as stand_in
import pytest

from npu_rope import backends, operator_package
from npu_rope.cli import doctor

TBE = Path("op_impl/ai_core/tbe")
TILINGS = TBE / "op_tiling/lib/linux/x86_64/libcust_opmaster_rt2.0.so"
INTERFACE = Path("op_api/lib/libcust_opapi.so")
KERNEL = TBE / "kernel/ascend910b/npu_rope/NpuRope_1.o"
LIST = TBE / "kernel/config/ascend910b/binary_info_config.json"
SOCS = ("ascend910b", "ascend310p")
BUILD = "in a checkout: scripts/build_npu.sh && pip install --no-build-isolation ./simulator ."


@pytest.fixture
def package(tmp_path):
    """A complete package with two operators for two SoCs."""
    folder = tmp_path / "npu_rope"
    compiler = shlex.split(os.environ.get("CXX", "c++"))
    for library in (INTERFACE, TILINGS):
        (folder / library).parent.mkdir(parents=True)
        command = [*compiler, "-shared", "-x", "c++", "/dev/null", "-o", str(folder / library)]
        subprocess.run(command, check=True)
    for operator, name in (("npu_rope", "NpuRope_1"), ("npu_rms_norm", "NpuRmsNorm_1")):
        stand_in.write(folder / f"op_api/include/aclnn_{operator}.h", "\n")
        for soc in SOCS:
            code = f"code of {operator}"
            kernel = stand_in.write(folder / TBE / "kernel" / soc / operator / f"{name}.o", code)
            description = {"binFileName": name, "sha256": hashlib.sha256(code.encode()).hexdigest()}
            kernel.with_suffix(".json").write_text(json.dumps(description))
    for soc in SOCS:
        listed = {
            name: {"binaryList": [{"binPath": f"{soc}/{operator}/{name}_1.o"}]}
            for operator, name in (("npu_rope", "NpuRope"), ("npu_rms_norm", "NpuRmsNorm"))
        }
        stand_in.write(folder / TBE / f"kernel/config/{soc}/binary_info_config.json", json.dumps(listed))
    return folder


def test_a_complete_package_has_no_fault(package):
    assert operator_package.socs_of(package) == sorted(SOCS)
    assert [operator_package.fault_of(package, soc) for soc in (None, *SOCS)] == [None] * 3


def test_a_package_for_another_soc_is_a_fault(package):
    assert operator_package.fault_of(package, "ascend910_93") == (
        "the package must have kernels for ascend910_93 but has them for ascend310p, ascend910b"
    )


@pytest.mark.parametrize("path", [INTERFACE, TILINGS])
def test_a_truncated_library_is_found(package, path):
    complete = (package / path).read_bytes()
    for length in (0, 3, 63, 64, len(complete) // 3, len(complete) // 2, len(complete) - 1):
        (package / path).write_bytes(complete[:length])
        fault = operator_package.fault_of(package)
        assert fault.startswith(f"{package / path} must "), (length, fault)
        assert "truncated" in fault


DESCRIPTION = KERNEL.with_suffix(".json")
FAULTS = {
    "no interface": (INTERFACE, None, f"{INTERFACE} must be there but is missing"),
    "no tilings": (TILINGS, None, f"{TBE}/op_tiling must hold {TILINGS.name} but does not"),
    "kernel missing": (
        KERNEL,
        None,
        f"{KERNEL} must be there, as {DESCRIPTION.name} describes it, but is missing",
    ),
    "kernel truncated": (KERNEL, "code", f"{KERNEL} must have the bytes that {DESCRIPTION.name} describes"),
    "kernel empty": (KERNEL, "", f"{KERNEL} must have the bytes that {DESCRIPTION.name} describes"),
    "no description": (
        DESCRIPTION,
        None,
        f"{KERNEL.parent} must hold the kernels of npu_rope but holds none",
    ),
    "description truncated": (
        DESCRIPTION,
        '{"binFile',
        f"{DESCRIPTION} must describe a kernel but is truncated",
    ),
    "no list": (LIST, None, f"{LIST} must list the kernels of ascend910b but is missing"),
    "list truncated": (
        LIST,
        '{"NpuRope": {',
        f"{LIST} must list the kernels of ascend910b but is truncated",
    ),
    "list without an operator": (
        LIST,
        '{"x": {"binPath": "ascend910b/npu_rope/NpuRope_1.o"}}',
        f"{LIST} must list the kernels of npu_rms_norm but lists none",
    ),
    "list of another kernel": (
        LIST,
        '{"x": {"binPath": "ascend910b/a.o"}}',
        f"{TBE}/kernel/ascend910b/a.o must be there, as {LIST.name} lists it, but is missing",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_each_fault_names_the_file_and_the_rule(package, name):
    path, text, message = FAULTS[name]
    if text is None:
        (package / path).unlink()
    else:
        (package / path).write_text(text)
    assert operator_package.fault_of(package, "ascend910b").startswith(f"{package}/{message}")


@pytest.mark.parametrize("name", [".opt/venv", "my.org", "proj.old/a"])
def test_a_path_at_which_cann_cuts_a_kernels_path_is_a_fault(package, tmp_path, name, capsys):
    """hicann/opbase indv_bininfo.cpp, NnopbaseGetKernelJsonPath. A build folder may have such a path."""
    moved = tmp_path / name / "npu_rope"
    moved.parent.mkdir(parents=True)
    package.rename(moved)
    fault = f"the path of the operator package must not contain .o but is {moved}: "
    for soc in (None, *SOCS):
        assert operator_package.fault_of(moved, soc).startswith(fault)
    assert operator_package.fault_of(moved).endswith("install npu_rope in another folder")
    assert operator_package.main([str(moved), *SOCS]) == 0
    (moved / INTERFACE).unlink()
    assert operator_package.main([str(moved), *SOCS]) == 1
    assert "must be there but is missing" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["my.json", "opt.venv", "a.ko", "o"])
def test_other_paths_are_no_fault(package, tmp_path, name):
    """CANN searches .json only in the paths of its own kernels: indv_bininfo.cpp, NnopbaseGetBinPath."""
    moved = package.rename(tmp_path / name)
    assert operator_package.fault_of(moved) is None


def test_a_link_hides_the_folder_from_cann(package, tmp_path):
    """hicann/opbase indv_collector.cpp, NnopbaseGetCustomOppPath does not resolve links."""
    moved = package.rename(tmp_path / "my.org")
    (tmp_path / "link").symlink_to(moved)
    (tmp_path / "link.o").symlink_to(tmp_path / "link")
    assert operator_package.fault_of(tmp_path / "link") is None
    assert operator_package.fault_of(tmp_path / "link.o") is not None


def test_the_remedy_for_a_path_fault_is_another_folder(package, tmp_path, monkeypatch):
    moved = package.rename(tmp_path / "my.org")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("ASCEND_SIM_SOC", raising=False)
    monkeypatch.setattr(backends, "bundled_package", lambda: str(moved))
    (found,) = doctor._npu_chip({"operators": str(moved), "device": None})
    assert (found.piece, found.present) == ("kernels", False)
    assert found.detail == operator_package.path_fault_of(moved)
    assert found.remedy == "Install npu_rope in an environment whose path does not contain .o"


def test_a_package_without_interfaces_is_found(package):
    for header in (package / "op_api/include").glob("*.h"):
        header.unlink()
    assert "must hold the interfaces aclnn_npu_*.h but holds none" in operator_package.fault_of(package)


def test_a_package_without_kernels_is_found(package):
    (package / TBE / "kernel").rename(package / "elsewhere")
    assert "must hold a folder of kernels for each SoC but holds none" in operator_package.fault_of(package)
    assert operator_package.socs_of(package) == []


NPU_SMI = """#!/bin/sh
case "$*" in
"info -l") echo "NPU ID : 0" ;;
*) printf 'Chip Type : Ascend\\nChip Name : 310P3\\n' ;;
esac
"""


def test_doctor_names_the_chip_and_a_package_for_another_one(package, tmp_path, monkeypatch):
    stand_in.executable(tmp_path / "bin/npu-smi", NPU_SMI)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.delenv("ASCEND_SIM_SOC", raising=False)
    pieces = {"operators": str(package), "device": "/dev/davinci0"}
    chip, kernels = doctor._npu_chip(pieces)
    assert (chip.present, chip.detail) == (True, "Ascend310P3: ascend310p")
    assert (kernels.present, kernels.detail) == (True, "kernels for ascend310p, ascend910b")
    (package / TBE / "kernel/ascend310p").rename(package / "elsewhere")
    kernels = doctor._npu_chip(pieces)[1]
    assert (kernels.present, kernels.detail) == (
        False,
        "the package must have kernels for ascend310p but has them for ascend910b",
    )
    # The package is not npu_rope's own; a build alone would not replace it.
    assert kernels.remedy.startswith(f"Remove {package}: CANN takes it before npu_rope's own package. ")
    monkeypatch.setenv("ASCEND_CUSTOM_OPP_PATH", f"/elsewhere{os.pathsep}{package}")
    remedy = doctor._npu_chip(pieces)[1].remedy
    assert remedy.startswith(f"Take {package} out of ASCEND_CUSTOM_OPP_PATH: CANN takes it before ")
    monkeypatch.setattr(backends, "bundled_package", lambda: None)
    assert doctor._npu_chip(pieces)[1].remedy.endswith(f"Then build it, {BUILD}")
    monkeypatch.setattr(backends, "bundled_package", lambda: "/own")
    assert doctor._npu_chip(pieces)[1].remedy.endswith("npu_rope then uses its own package, /own")
    monkeypatch.setattr(backends, "bundled_package", lambda: str(package))
    assert doctor._npu_chip(pieces)[1].remedy == f"Build it again, {BUILD}"


def test_doctor_reads_the_package_of_the_simulated_chip(package, monkeypatch, tmp_path):
    """npu-smi does not run: the machine may have another chip."""
    stand_in.executable(tmp_path / "bin/npu-smi", NPU_SMI)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    pieces = {"operators": str(package), "device": "Ascend910B2, simulated: no hardware"}

    def kernels_for(chip):
        monkeypatch.setenv("ASCEND_SIM_SOC", chip)
        (found,) = doctor._npu_chip(pieces)
        assert found.piece == "kernels"
        return found

    assert kernels_for("Ascend910B2").present is True
    assert kernels_for("Ascend310P2:5").detail == "kernels for ascend310p, ascend910b"
    assert kernels_for("Ascend910_9391").present is False
    (package / KERNEL).write_text("code")
    assert kernels_for("Ascend310P3").present is True
    damaged = kernels_for("Ascend910B2")
    assert (damaged.present, damaged.detail) == (
        False,
        operator_package.fault_of(package, "ascend910b"),
    )
    monkeypatch.setattr(backends, "bundled_package", lambda: str(package))
    assert kernels_for("Ascend910B2").remedy == (
        "Install npu_rope again: "
        "in a checkout: pip install --no-build-isolation --force-reinstall --no-deps ."
    )


@pytest.mark.parametrize("wrong", [("versions", "kernels"), ("kernels",), ()])
def test_the_npu_back_end_is_absent_if_its_pieces_do_not_match(package, tmp_path, monkeypatch, wrong):
    """torch_npu 2.13.0 needs CANN 9.1 but may have 9.0; the package may lack the kernels of the chip."""
    home = stand_in.cann(tmp_path / "cann", "9.0.0" if "versions" in wrong else "9.1.0")
    chip = "910B3" if not wrong else "310P3"
    stand_in.executable(tmp_path / "bin/npu-smi", NPU_SMI.replace("310P3", chip))
    (package / TBE / "kernel/ascend310p").rename(package / "elsewhere")
    stand_in.write(tmp_path / "site/torch_npu/__init__.py", "")
    stand_in.write(
        tmp_path / "site/torch_npu-2.13.0.dist-info/METADATA", "Name: torch_npu\nVersion: 2.13.0\n"
    )
    binding = stand_in.write(tmp_path / "binding.so", "[npu_rope] built for torch_npu 2.13.0")
    monkeypatch.syspath_prepend(tmp_path / "site")
    monkeypatch.delenv("ASCEND_SIM_SOC", raising=False)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("ASCEND_HOME_PATH", str(home))
    monkeypatch.setenv("ASCEND_OPP_PATH", str(home))
    monkeypatch.setenv("ASCEND_CUSTOM_OPP_PATH", str(package))
    monkeypatch.setattr(backends, "_device_names", lambda: ["davinci0"])
    monkeypatch.setattr(backends, "npu_binding", lambda: str(binding))
    assert backends._npu_missing() is None
    npu = doctor._npu()
    assert tuple(f.piece for f in npu if f.present is False) == wrong
    found = next(f for f in doctor._backends(npu) if f.piece == "npu")
    if wrong:
        assert (found.present, found.detail) == (False, f"not in order: {', '.join(wrong)}")
        assert found.remedy == "see NPU below"
    else:
        assert found.present is True


def test_only_a_numbered_device_counts(monkeypatch):
    """A container without --device /dev/davinci0 may have davinci_manager, which all NPUs share."""
    monkeypatch.delenv("ASCEND_SIM_SOC", raising=False)

    def device_among(*names):
        monkeypatch.setattr(backends.os, "listdir", lambda _folder: list(names))
        return next(piece for piece in backends.npu_pieces() if piece.name == "device")

    shared = ("davinci_manager", "davinci_manager_docker", "devmm_svm", "hisi_hdc")
    assert device_among(*shared).found is None
    assert "--device /dev/davinci0" in device_among(*shared).remedy
    assert device_among("davinci7", *shared, "davinci1").found == "/dev/davinci1, /dev/davinci7"


def test_doctor_reports_incompatible_versions(tmp_path, monkeypatch):
    monkeypatch.delenv("ASCEND_SIM_SOC", raising=False)
    monkeypatch.setattr(doctor, "version_of", lambda _package: "2.13.0")
    home = stand_in.cann(tmp_path / "cann", "9.0.0")
    (found,) = doctor._npu_versions({"torch_npu": "somewhere", "CANN": str(home), "binding": None})
    assert (found.piece, found.present) == ("versions", False)
    assert found.detail == "torch_npu 2.13.0 must have a CANN of 9.1 but CANN is 9.0.0"
    assert found.remedy.startswith("Install CANN 9.1.0")


def test_doctor_reports_why_the_chip_is_not_known(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("ASCEND_SIM_SOC", raising=False)
    (found,) = doctor._npu_chip({"operators": None, "device": "/dev/davinci0"})
    assert found.present is None
    assert found.detail == "not known: npu-smi, which comes with the NPU's driver, is not on PATH"


@pytest.mark.parametrize("named", [None, "/nonexistent"])
def test_doctor_reports_that_ascend_opp_path_is_missing(monkeypatch, named, tmp_path):
    if named is None:
        monkeypatch.delenv("ASCEND_OPP_PATH", raising=False)
    else:
        monkeypatch.setenv("ASCEND_OPP_PATH", named)
    (found,) = doctor._cann_environment({"CANN": "somewhere"})
    assert (found.piece, found.present) == ("ASCEND_OPP_PATH", False)
    assert found.detail == f"must be CANN's folder of operators but is {named or 'not set'}"
    monkeypatch.setenv("ASCEND_OPP_PATH", str(tmp_path))
    assert doctor._cann_environment({"CANN": "somewhere"}) == []
