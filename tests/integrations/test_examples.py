"""The examples print what docs/porting.md shows."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "porting.md").read_text()
SHOWN = dict(re.findall(r"^`examples/(\w+\.\w+)`:.*\n\n```text\n((?:.*\n)*?)```$", PAGE, re.MULTILINE))


def test_the_page_shows_every_example():
    assert set(SHOWN) == {p.name for p in (ROOT / "examples").iterdir() if p.suffix in (".py", ".sh")}


@pytest.mark.long
@pytest.mark.peer
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.slow if n.startswith("train") else ()) for n in SHOWN]
)
def test_an_example_prints_the_output_on_the_page(name):
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    command = ["bash" if name.endswith(".sh") else sys.executable, str(ROOT / "examples" / name)]
    done = subprocess.run(
        command, env={**os.environ, "PATH": path}, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == SHOWN[name]
