"""npu-rope sim: the simulator's command with npu_rope's simulated package."""

import os
from unittest import mock

import pytest
from typer.testing import CliRunner

from npu_rope.cli.app import app


@pytest.fixture(autouse=True)
def environment():
    """The command changes the variables of this process, which other tests also use."""
    with mock.patch.dict(os.environ):
        yield


def sim(*arguments, **variables):
    return CliRunner(env=variables).invoke(app, ["sim", *map(str, arguments)])


def test_the_command_names_the_simulated_package_instead_of_the_bundled_one(monkeypatch, tmp_path):
    """The import of npu_rope adds the package that was built with CANN, if any, to the path."""
    bundled, simulated = tmp_path / "opp/vendors/npu_rope", tmp_path / "simulated_package"
    for folder in (bundled, simulated):
        folder.mkdir(parents=True)
    own = tmp_path / "own"
    interface = own / "op_api/include/aclnn_npu_rope.h"
    interface.parent.mkdir(parents=True)
    interface.touch()
    for before, after in (
        ("", f"{simulated}"),
        (f"{bundled}", f"{simulated}"),
        (f"{bundled}:/other", f"{simulated}:/other"),
        (f"{simulated}", f"{simulated}"),
        (f"{bundled}:/other:{own}", f"/other:{own}"),  # the user's package of npu_rope stays
    ):
        monkeypatch.setenv("NPU_ROPE_LIB_DIR", str(tmp_path))
        monkeypatch.setenv("LD_LIBRARY_PATH", "/libraries")
        monkeypatch.setenv("ASCEND_CUSTOM_OPP_PATH", before)
        assert sim().exit_code == 2  # it runs no command
        assert os.environ["ASCEND_CUSTOM_OPP_PATH"] == after
        added = "" if "own" in before else f"{simulated}/op_api/lib:"
        assert os.environ["LD_LIBRARY_PATH"] == f"{added}/libraries"


def test_without_a_simulated_package_the_bundled_one_is_removed(monkeypatch, tmp_path):
    bundled = tmp_path / "opp/vendors/npu_rope"
    bundled.mkdir(parents=True)
    monkeypatch.setenv("NPU_ROPE_LIB_DIR", str(tmp_path))
    for before, after in ((f"{bundled}:/other", "/other"), (f"{bundled}", None)):
        monkeypatch.setenv("ASCEND_CUSTOM_OPP_PATH", before)
        assert sim().exit_code == 2
        assert os.environ.get("ASCEND_CUSTOM_OPP_PATH") == after


def test_no_command_is_refused():
    done = sim()
    assert done.exit_code == 2
    assert done.stderr == (
        "[sim] command must be a program and its arguments but got nothing.\n"
        "Example: npu-rope sim -- python script.py\n"
    )


def test_help_explains_the_simulation_and_the_exit_status():
    done = sim("--help")
    assert done.exit_code == 0
    for words in ("simulated one", "HCCL", "guard zones", "Exit status", "npu-rope sim -- python train.py"):
        assert words in " ".join(done.stdout.split())
