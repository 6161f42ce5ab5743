"""scripts/check_docs.py runs the examples of a page and names the line of each that fails. It compares the
Chinese pages with the English ones."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "check_docs.py"


def check(tmp_path: Path, text: str, *, name: str = "page.md") -> tuple[int, str, str]:
    page = tmp_path / name
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


def test_the_name_of_a_page_is_printed_before_its_examples_run(tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    page = tmp_path / "page.md"
    page.write_text(
        f"""```python
import pathlib, time
for _ in range(100):
    if pathlib.Path({str(seen)!r}).exists():
        break
    time.sleep(0.1)
else:
    raise TimeoutError
```
"""
    )
    with subprocess.Popen([sys.executable, SCRIPT, page], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        name = process.stdout.read(len(f"{os.path.relpath(page, SCRIPT.parent.parent)}: "))
        seen.touch()
        rest = process.stdout.read()
    assert name.endswith(b"page.md: ")
    assert (rest, process.returncode) == (b"1 example(s), 0 failed\n", 0)


def test_help_describes_the_script_and_runs_nothing() -> None:
    done = subprocess.run([sys.executable, SCRIPT, "--help"], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    for words in ("usage: check_docs.py", "FILE", "Exit status"):
        assert words in done.stdout


def test_a_page_that_does_not_exist_is_bad_usage() -> None:
    done = subprocess.run([sys.executable, SCRIPT, "none.md"], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (2, "")
    assert "FILE must be a page but got" in done.stderr


ENGLISH = """# Page

[中文](page.zh.md)

Call `rope` within 10 µs, see [the
terms](terms.md#kernels) and [below](#limits).

```python
assert False, "only the examples of the English page run"
```

## Limits

| SoC | error |
|---|---|
| 310P | 2⁻²⁰ with `exact` |

![cores](cores.svg)
"""
CHINESE = """# 页面

[English](page.md)

参见[下文](#限制)和[术语](terms.zh.md#核函数)，`rope`的调用耗时在10 µs以内。

```python
assert False, "only the examples of the English page run"
```

## 限制

| SoC | 误差 |
|---|---|
| 310P | `exact`时为2⁻²⁰ |

![cores](cores.svg)
"""
# The text that an edit replaces in the Chinese page, the new text, and the message. There, P is a page's path
# without its suffix.
EDITS = {
    "level of a heading": (
        "## 限制",
        "### 限制",
        "P.zh.md:11: the heading must have level 2, as at P.md:12, but has level 3.",
    ),
    "heading": ("## 限制\n", "", "P.zh.md:12 must be a heading as at P.md:12 but is a row."),
    "code": ('assert False, "', "assert True, '", "P.zh.md:8 must be 'assert False, "),
    "language of code": (
        "```python",
        "```py",
        "P.zh.md:7 must be '```python' as at P.md:8 but is '```py'.",
    ),
    "picture": (
        "cores.svg",
        "核.svg",
        "P.zh.md:17: the picture must have cores.svg, as at P.md:18, but has 核.svg.",
    ),
    "number in a row": (
        "2⁻²⁰",
        "2⁻²¹",
        "P.zh.md:15: the row must have 2 cells with the code and numbers 2, 310, exact, ⁻²⁰, as at P.md:16, ",
    ),
    "code in a row": (
        "`exact`时",
        "精确时",
        "P.zh.md:15: the row must have 2 cells with the code and numbers ",
    ),
    "row": ("| 310P | `exact`时为2⁻²⁰ |\n", "", "P.zh.md:16 must be a row as at P.md:16 but is a picture."),
    "last part": ("![cores](cores.svg)\n", "", "only P.md has the picture at line 18."),
    "number": ("在10 µs", "在11 µs", "the section at P.zh.md:1 must have `10`, as the one at P.md:1 has"),
    "code in a sentence": (
        "`rope`",
        "rope",
        "the section at P.zh.md:1 must have `rope`, as the one at P.md:1 has",
    ),
    "link": (
        "[下文](#限制)",
        "下文",
        "the section at P.zh.md:1 must have a link to page.md#, as the one at P.md:1 has",
    ),
    "added link": (
        "![",
        "[图](x.svg)![",
        "the section at P.zh.md:11 must have no link to x.svg, because the one at P.md:12 ",
    ),
    "link to the English page": (
        "[English](page.md)",
        "",
        "P.zh.md must link to page.md above its first section",
    ),
}


def compare(tmp_path: Path, chinese: str) -> tuple[int, str, str]:
    (tmp_path / "page.md").write_text(ENGLISH)
    (tmp_path / "terms.zh.md").touch()  # therefore terms.zh.md and terms.md are one target, with any heading
    return check(tmp_path, chinese, name="page.zh.md")


def test_a_chinese_page_equals_the_english_one(tmp_path: Path) -> None:
    status, output, errors = compare(tmp_path, CHINESE)
    assert (status, errors) == (0, "")
    assert "page.zh.md: 0 difference(s) from the English page" in output


@pytest.mark.parametrize("name", EDITS)
def test_a_difference_between_languages_is_named(tmp_path: Path, name: str) -> None:
    old, new, message = EDITS[name]
    assert CHINESE.count(old) == 1
    status, _, errors = compare(tmp_path, CHINESE.replace(old, new))
    assert status == 1
    page = os.path.relpath(tmp_path / "page")
    assert message.replace("P.", f"{page}.") in errors


def test_a_chinese_page_needs_an_english_one(tmp_path: Path) -> None:
    status, _, errors = check(tmp_path, CHINESE, name="other.zh.md")
    assert status == 1
    assert "other.zh.md must have an English page other.md but there is none." in errors
