"""The folders of an installation: libraries, headers, CMake functions."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from ascend_sim import Unavailable, folders


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
