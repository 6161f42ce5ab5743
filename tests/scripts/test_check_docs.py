"""scripts/check_docs.py: examples that do not work are found, and where."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "check_docs.py"


def check(tmp_path: Path, text: str) -> tuple[int, str, str]:
    page = tmp_path / "page.md"
    page.write_text(text)
    done = subprocess.run([sys.executable, SCRIPT, page], capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout, done.stderr


RIGHT = {
    "blocks share their names": "```python\na = 1\n```\nand\n```python\nassert a == 1\n```\n",
    "command": "```sh\npython -c 'print(1)'\n```\n",
    "continued command": "```sh\npython -c \\\n  'print(1)'\n```\n",
    "command with the exit status it says": "```sh exit=3\npython -c 'exit(3)'\n```\n",
    "text is not run": "```text\npython -c 'exit(3)'\n```\n",
    "other commands are not run": "```sh\nfalse\n```\n",
}
WRONG = {
    "exception": ("```python\na = 1\n\nassert a == 2\n```\n", 'page.md", line 4'),
    "second block": ("```python\na = 1\n```\n\n```python\nassert a == 2\n```\n", 'page.md", line 6'),
    "command": ("# Head\n\n```sh\npython -c 'print(1)'\npython -c 'exit(1)'\n```\n", "page.md:5: "),
    "other exit status": ("```sh exit=2\npython -c 'exit(1)'\n```\n", "ended with status 1"),
    "unknown option": ("```sh\npython --no-such-option\n```\n", "ended with status 2"),
}


@pytest.mark.parametrize("name", RIGHT)
def test_what_works_passes(tmp_path: Path, name: str) -> None:
    status, said, wrong = check(tmp_path, RIGHT[name])
    assert (status, wrong) == (0, "")
    assert "0 failed" in said


@pytest.mark.parametrize("name", WRONG)
def test_what_fails_is_named(tmp_path: Path, name: str) -> None:
    text, said = WRONG[name]
    status, _, wrong = check(tmp_path, text)
    assert status == 1
    assert said in wrong
