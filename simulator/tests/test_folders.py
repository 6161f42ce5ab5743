"""The folders of an installation: libraries, headers, CMake functions."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from ascend_sim import Unavailable, elf, folders


def test_cmake_projects_get_the_file_to_include_and_the_libraries():
    command = [sys.executable, "-m", "ascend_sim", "--cmake"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    include, libraries = map(Path, done.stdout.splitlines())
    assert include.name == "AscendSim.cmake"
    assert include.is_file()
    assert (libraries / "libascend_sim.so").is_file()
    assert done.stderr == ""


def test_headers_are_below_the_root_folder():
    root = folders.root()
    for file in ("include/kernel_operator.h", "include/ascend_sim.h", "cann/include/register/op_def.h"):
        assert (root / file).is_file()


def test_the_folder_that_ascend_sim_lib_dir_names_is_the_only_one(monkeypatch, tmp_path):
    monkeypatch.setenv("ASCEND_SIM_LIB_DIR", str(tmp_path))
    assert list(folders.library_folders()) == [tmp_path]
    with pytest.raises(Unavailable) as missing:
        folders.library("ascend_sim")
    assert missing.value.missing == f"it was not found in {tmp_path}"
    assert "pip install ./simulator" in missing.value.remedy


def test_no_folder_of_libraries_is_listed_twice():
    listed = list(folders.library_folders())
    assert len(listed) == len(set(listed))


# ---- a library for another machine ---------------------------------------------------------------------


def header_for(machine):
    """Return the start of an ELF file for a machine, by its number in e_machine."""
    return b"\x7fELF\x02\x01\x01".ljust(18, b"\0") + machine.to_bytes(2, "little")


def test_other_machine_names_every_machine_but_this_one():
    names = {62: "x86_64", 183: "aarch64"}
    own = os.uname().machine
    assert own in names.values()
    assert {elf.other_machine(header_for(number)) for number in names} == {None, *names.values()} - {own}
    assert elf.other_machine(header_for(9999)) is None
    assert elf.other_machine(header_for(183)[:19]) is None
    assert elf.other_machine(b"#!/bin/sh\n".ljust(20)) is None


def test_a_library_for_another_machine_is_named_as_such(tmp_path):
    other, number = ("x86_64", 62) if os.uname().machine == "aarch64" else ("aarch64", 183)
    library = tmp_path / "libascend_sim.so"
    code = bytearray(folders.library("ascend_sim").read_bytes())
    code[18:20] = number.to_bytes(2, "little")
    library.write_bytes(code)
    program = "import ascend_sim; ascend_sim.conversions()"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "ASCEND_SIM_LIB_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    expected = f"it does not load: {library} is for {other} and this machine is {os.uname().machine}."
    assert f"[sim] libascend_sim.so must be available but {expected}\n" in done.stderr
