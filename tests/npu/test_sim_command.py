"""npu-rope sim: the simulator's command with npu_rope's simulated package."""

import os

from typer.testing import CliRunner

from npu_rope.cli.app import app


def sim(*arguments, **variables):
    return CliRunner(env=variables).invoke(app, ["sim", *map(str, arguments)])


def test_the_command_removes_npu_rope_s_own_package_from_the_path(monkeypatch, tmp_path):
    """The import of npu_rope adds the package that was built with CANN, if any, to the path."""
    bundled = tmp_path / "opp/vendors/npu_rope"
    bundled.mkdir(parents=True)
    for before, after in ((f"{bundled}:/own", "/own"), (str(bundled), None), ("/own:/other", "/own:/other")):
        monkeypatch.setenv("NPU_ROPE_LIB_DIR", str(tmp_path))
        monkeypatch.setenv("ASCEND_CUSTOM_OPP_PATH", before)
        assert sim().exit_code == 2  # it runs no command
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
