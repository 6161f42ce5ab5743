"""scripts/build_wheels.sh and scripts/test_wheels.sh say in a sentence what is wrong, and make nothing."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
MACHINE = platform.machine()
pytestmark = pytest.mark.skipif(platform.system() != "Linux", reason="wheels are made on Linux")
# What the scripts read; a copy of these files stands in for a checkout.
FILES = (*("scripts/build_wheels.sh", "scripts/test_wheels.sh", "scripts/lib.sh"), "pyproject.toml")


# The environment's Python: its module build makes empty wheels for this machine, and its auditwheel copies a
# wheel and replaces the tag linux by $REPAIRED.
BUILD_TOOLS = """#!/usr/bin/env bash
[ "$1" = -m ] || exit 0
while [ $# -gt 0 ]; do
  case "$1" in
    --outdir | --wheel-dir) folder="$2" ;;
    --wheel | --sdist | repair) kind="$1" ;;
  esac
  last="$1" && shift
done
name=npu_rope
[ "${last##*/}" != simulator ] || name=ascend_sim
case "${kind:-}" in
  --wheel) touch "$folder/$name-0.1.0-py3-none-linux_$(uname -m).whl" ;;
  --sdist) touch "$folder/$name-0.1.0.tar.gz" ;;
  repair) mkdir -p "$folder" && wheel="${last##*/}" && cp "$last" "$folder/${wheel/linux/$REPAIRED}" ;;
esac
"""


NOBODY = 65534  # the user and the group without rights


@pytest.fixture
def checkout() -> Iterator[Path]:
    """A folder with the scripts, in a path with spaces and umlauts. Every user can read it."""
    with tempfile.TemporaryDirectory() as temporary:
        Path(temporary).chmod(0o755)
        folder = Path(temporary) / "eine Straße für Räder"
        for name in FILES:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
        yield folder


def run(
    checkout: Path, script: str, *arguments: str, identity: dict[str, Any] | None = None, **environment: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(checkout / "scripts" / script), *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=checkout,
        **(identity or {}),
    )


def make_wheels(folder: Path, machine: str) -> None:
    """Make empty files with the names of both wheels."""
    folder.mkdir()
    for name in ("ascend_sim", "npu_rope"):
        (folder / f"{name}-0.1.0-py3-none-manylinux_2_34_{machine}.whl").touch()


def made(checkout: Path) -> set[str]:
    """Return the files and folders that a script has made in the checkout."""
    return {path.name for path in checkout.iterdir()} - {"scripts", "pyproject.toml"}


def build_with_stand_ins(checkout: Path, repaired: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run build_wheels.sh with an environment whose tools are stand-ins."""
    tools = checkout / ".venv-wheels" / "bin"
    tools.mkdir(parents=True)
    (tools / "python").write_text(BUILD_TOOLS)
    (tools / "python").chmod(0o755)
    (tools / "pip").write_text(f"#!{tools}/python\n")
    (tools / "compiler").write_text("#!/bin/sh\ncat >/dev/null\n")
    (tools / "compiler").chmod(0o755)
    (checkout / "build/npu/opp/packages/vendors/npu_rope").mkdir(parents=True)
    path = f"{tools}:{os.environ['PATH']}"
    return run(checkout, "build_wheels.sh", *arguments, CXX="compiler", PATH=path, REPAIRED=repaired)


def wheels_in(folder: Path) -> set[str]:
    return {path.name for path in folder.glob("*.whl")}


def wheels_with(tag: str) -> set[str]:
    return {f"{name}-0.1.0-py3-none-{tag}_{MACHINE}.whl" for name in ("ascend_sim", "npu_rope")}


def test_wheels_get_the_tag_of_auditwheel(checkout: Path) -> None:
    done = build_with_stand_ins(checkout, "manylinux_2_34")
    assert done.returncode == 0, done.stderr
    assert wheels_in(checkout / "dist") == wheels_with("manylinux_2_34")
    assert len(list((checkout / "dist").glob("*.tar.gz"))) == 2


def test_a_wheel_without_a_manylinux_tag_is_refused(checkout: Path) -> None:
    done = build_with_stand_ins(checkout, "linux")
    assert done.returncode == 1
    assert f"-linux_{MACHINE}.whl must have a manylinux tag." in done.stderr
    assert "the output folder did not change" in done.stderr
    assert not (checkout / "dist").exists()


def test_wheels_for_an_npu_keep_the_tag_linux(checkout: Path) -> None:
    done = build_with_stand_ins(checkout, "manylinux_2_34", "--npu")
    assert done.returncode == 0, done.stderr
    assert wheels_in(checkout / "dist/npu") == wheels_with("linux")


@pytest.mark.parametrize("script", ["build_wheels.sh", "test_wheels.sh"])
def test_help_names_the_architectures_and_the_exit_status(checkout: Path, script: str) -> None:
    done = run(checkout, script, "--help")
    assert done.returncode == 0
    assert "x86_64 or aarch64" in done.stdout
    assert "Exit status: 0" in done.stdout


@pytest.mark.parametrize(
    ("script", "arguments", "sentence"),
    [
        ("build_wheels.sh", ("arm64",), "ARCH must be x86_64 or aarch64 but got arm64."),
        ("build_wheels.sh", ("--output",), "--output must be followed by a folder."),
        ("build_wheels.sh", ("--npu",), "--npu must find the operator package but "),
        ("test_wheels.sh", ("riscv64",), "ARCH must be x86_64 or aarch64 but got riscv64."),
        (
            "test_wheels.sh",
            ("--wheels", "/nonexistent"),
            "--wheels must be followed by a folder but got '/nonexistent'.",
        ),
        ("test_wheels.sh", (), f"dist must have a wheel of ascend_sim for {MACHINE} but has none."),
    ],
    ids=str,
)
def test_a_wrong_argument_is_refused(
    checkout: Path, script: str, arguments: tuple[str, ...], sentence: str
) -> None:
    done = run(checkout, script, *arguments)
    assert done.returncode == 2
    assert sentence in done.stderr
    assert made(checkout) == set()


def test_a_wheel_for_another_architecture_is_not_taken(checkout: Path) -> None:
    other = "aarch64" if MACHINE == "x86_64" else "x86_64"
    make_wheels(checkout / "dist", other)
    done = run(checkout, "test_wheels.sh")
    assert done.returncode == 2
    assert f"must have a wheel of ascend_sim for {MACHINE} but has none. Make it: " in done.stderr


def test_an_output_that_is_no_folder_is_refused(checkout: Path, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    done = run(checkout, "build_wheels.sh", "--output", str(file / "wheels"))
    assert done.returncode == 1
    assert f"must be a folder that this user can write, but {file} is not." in done.stderr
    assert "--output DIR" in done.stderr
    assert made(checkout) == set()


@pytest.mark.parametrize("script", ["build_wheels.sh", "test.sh", "test_wheels.sh", "validate.sh"])
def test_a_read_only_checkout_is_refused(checkout: Path, script: str) -> None:
    """Root can write everywhere, so root runs the script as another user, who can read the checkout."""
    for name in ("test.sh", "validate.sh"):
        shutil.copy(ROOT / "scripts" / name, checkout / "scripts" / name)
    make_wheels(checkout / "dist", MACHINE)
    checkout.chmod(0o555)
    others = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if os.geteuid() == 0 else {}
    done = run(checkout, script, identity=others)
    checkout.chmod(0o755)
    assert done.returncode == 1
    assert f"error: {checkout} must be a folder that this user can write.\n" in done.stderr
    assert "Copy the checkout to such a folder and run the " in done.stderr
    assert made(checkout) == {"dist"}


def test_python_3_9_is_refused(checkout: Path, tmp_path: Path) -> None:
    """Every Python that find_python tries is one that says that it is too old."""
    folder = tmp_path / "path"
    folder.mkdir()
    for tool in ("bash", "cat", "cut", "date", "dirname", "flock", "git", "mkdir", "sed", "uname"):
        if found := shutil.which(tool):
            (folder / tool).symlink_to(found)
    compiler = shutil.which("c++")
    if compiler is None:
        pytest.skip("no compiler")
    (folder / "python3").write_text("#!/bin/sh\nexit 1\n")
    (folder / "python3").chmod(0o755)
    done = run(checkout, "build_wheels.sh", PATH=str(folder), CXX=compiler, PYTHON="")
    assert done.returncode == 1
    assert "no Python 3.10 or newer was found" in done.stderr
    assert made(checkout) == set()


@pytest.mark.long
def test_an_environment_of_an_interrupted_set_up_is_made_again(checkout: Path) -> None:
    """The environment has no pip, as after an interrupted set-up; the tools then cannot be installed."""
    (checkout / ".venv-wheels" / "bin").mkdir(parents=True)
    (checkout / ".venv-wheels" / "bin" / "python").touch()
    done = run(checkout, "build_wheels.sh", PIP_NO_INDEX="1", PIP_FIND_LINKS=str(checkout / "none"))
    assert done.returncode == 1
    assert "making .venv-wheels with Python 3" in done.stdout
    assert "the tools could not be installed." in done.stderr
    assert "Is a package registry reachable?" in done.stderr
    assert made(checkout) == {".venv-wheels"}
    assert (checkout / ".venv-wheels" / "bin" / "pip").exists()
