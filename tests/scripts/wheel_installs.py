"""A program for an environment with npu_rope's wheels: their licenses, pip's refusals, and an unusual folder.

The metadata of a wheel with libgomp must name the license of libgomp, and that of another wheel must not. The
program checks what pip prints for another architecture and for Python 3.9, and that pip installs nothing.
It installs the wheels into a folder whose path has spaces and umlauts, and runs wheel_calls.py from there.
scripts/test_wheels.sh runs it with the paths of the wheels.
"""

from __future__ import annotations

import email
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

OTHER = {"x86_64": "aarch64", "aarch64": "x86_64"}


def pip(*arguments: object) -> subprocess.CompletedProcess[str]:
    """Run a command of pip without a registry."""
    command = [sys.executable, "-m", "pip", *map(str, arguments), "--no-index", "--no-deps"]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def refused(name: str, sentence: str, folder: Path, *arguments: object) -> None:
    """Require that a command of pip ends with this sentence and leaves nothing in the folder."""
    done = pip(*arguments)
    assert done.returncode == 1, (name, done.stdout, done.stderr)
    assert sentence in done.stderr, (name, done.stderr)
    assert not folder.exists() or not list(folder.iterdir()), name
    print(f"{name}: {done.stderr.strip()}")


def check_license(wheel: Path) -> None:
    """Require the license expression of the wheel's contents, and a text for each license."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (metadata,) = (name for name in names if name.endswith(".dist-info/METADATA"))
        expression = email.message_from_bytes(archive.read(metadata))["License-Expression"]
    has_libgomp = any(".libs/libgomp" in name for name in names)
    libgomp = " AND GPL-3.0-or-later WITH GCC-exception-3.1" if has_libgomp else ""
    assert expression == f"Apache-2.0{libgomp}", (wheel.name, expression)
    for text in ["LICENSE", "LICENSE.libgomp"][: 1 + has_libgomp]:
        assert any(name.endswith(f"dist-info/licenses/{text}") for name in names), (wheel.name, text)
    print(f"{wheel.name}: {expression}")


def main(wheels: list[Path]) -> None:
    machine = platform.machine()
    for wheel in wheels:
        check_license(wheel)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for wheel in wheels:
            # pip reads the architecture in the name.
            other = Path(shutil.copy(wheel, folder / wheel.name.replace(machine, OTHER[machine])))
            sentence = f"{other.name} is not a supported wheel on this platform."
            made = folder / "made"
            refused("another architecture", sentence, made, "install", "--target", made, other)
            # "pip install --python-version" compares the wheel with the Python that runs pip.
            older = ("download", "--dest", made, "--python-version", "3.9", "--only-binary", ":all:", wheel)
            refused("Python 3.9", "requires a different Python: 3.9.0 not in '>=3.10'", made, *older)
        target = folder / "Räder für alle" / "site-packages"
        done = pip("install", "--target", target, *wheels)
        assert done.returncode == 0, done.stderr
        calls = subprocess.run(
            [sys.executable, str(Path(__file__).with_name("wheel_calls.py"))],
            env={**os.environ, "PYTHONPATH": str(target)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert calls.returncode == 0, calls.stderr
        assert str(target) in calls.stdout, calls.stdout
        print(f"installed and used in {target}")


main([Path(name) for name in sys.argv[1:]])
