"""scripts/check_docs.py runs the examples of a page and names the line of each that fails."""

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


PRINTS_2, PRINTED = "```python\nprint(2)\n```\n", "```text printed\n{}\n```\n"
PASSING = {
    "blocks share their names": "```python\na = 1\n```\nand\n```python\nassert a == 1\n```\n",
    "blocks define any name": "```python\ncompile = None\n```\nand\n```python\nassert compile is None\n```\n",
    "command": "```sh\npython -c 'print(1)'\n```\n",
    "continued command": "```sh\npython -c \\\n  'print(1)'\n```\n",
    "command with its expected exit status": "```sh exit=3\npython -c 'exit(3)'\n```\n",
    "printed text": "```python\nprint('a')\nprint('b')\n```\n\n```text printed\na\nb\n```\n",
    "printed text of the second block": "```python\nprint(1)\n```\n" + PRINTS_2 + PRINTED.format(2),
    "printed text of commands": "```sh\npython -c 'print(1)'\npython -c 'print(2)'\n```\n"
    + PRINTED.format("1\n2"),
    "text and lines left out": "```python\nprint('a b c\\n1\\n2\\nend')\n```\n"
    + PRINTED.format("a ... c\n...\nend"),
    "another number of seconds": "```python\nprint('took 3.2 s')\n```\n" + PRINTED.format("took 4.7 s"),
    "file": "```sh\npython one.py\n```\n```python file=one.py\nimport sys\nsys.exit(0)\n```\n",
    "file of another language": "```text file=a.txt\nyes\n```\n```python\nassert open('a.txt').read()\n```\n",
    "text is not run": "```text\npython -c 'exit(3)'\n```\n",
    "other commands are not run": "```sh\nfalse\n```\n",
}
FAILING = {
    "other printed text": (
        PRINTS_2 + PRINTED.format(3),
        "page.md:2: the block printed another text than line 5:\n2",
    ),
    "less printed text": (
        PRINTS_2 + PRINTED.format("2\n...\n3"),
        "page.md:2: the block printed",
    ),
    "more printed text": (
        PRINTS_2 + PRINTED.format(""),
        "page.md:2: the block printed",
    ),
    "other printed text of a command": (
        "# Head\n```sh\npython -c 'print(1)'\n```\n" + PRINTED.format(2),
        "page.md:3: the block printed",
    ),
    "exception": ("```python\na = 1\n\nassert a == 2\n```\n", 'page.md", line 4'),
    "second block": ("```python\na = 1\n```\n\n```python\nassert a == 2\n```\n", 'page.md", line 6'),
    "command": ("# Head\n\n```sh\npython -c 'print(1)'\npython -c 'exit(1)'\n```\n", "page.md:5: "),
    "other exit status": (
        "```sh exit=2\npython -c 'exit(1)'\n```\n",
        "page.md:2: `python -c 'exit(1)'` ended with status 1",
    ),
    "unknown option": (
        "```sh\npython --no-such-option\n```\n",
        "page.md:2: `python --no-such-option` ended with status 2",
    ),
}


@pytest.mark.parametrize("name", PASSING)
def test_working_examples_pass(tmp_path: Path, name: str) -> None:
    status, output, errors = check(tmp_path, PASSING[name])
    assert (status, errors) == (0, "")
    assert "0 failed" in output


@pytest.mark.parametrize("name", FAILING)
def test_a_failing_example_is_named(tmp_path: Path, name: str) -> None:
    text, message = FAILING[name]
    status, _, errors = check(tmp_path, text)
    assert status == 1
    assert message in errors


def test_help_describes_the_script_and_runs_nothing() -> None:
    done = subprocess.run([sys.executable, SCRIPT, "--help"], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    for words in ("usage: check_docs.py", "FILE", "Exit status"):
        assert words in done.stdout


def test_a_page_that_does_not_exist_is_bad_usage() -> None:
    done = subprocess.run([sys.executable, SCRIPT, "none.md"], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (2, "")
    assert "FILE must be a page but got" in done.stderr
