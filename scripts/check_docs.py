"""Run the examples of the READMEs, CONTRIBUTING.md, docs/ and simulator/docs/, which must work as written.

In each file, the ```python blocks run in order in one namespace. Of the ```sh blocks, every command
that starts with `npu-rope`, `ascend-sim` or `python` runs; a fence ```sh exit=2 gives the exit status
of its commands. Other blocks are not run. The examples run in a folder that contains only a link to the
package's examples/.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RUN_COMMANDS = ("npu-rope ", "ascend-sim ", "python ")
SIMULATOR = ROOT / "simulator"
TIMEOUT_S = 300
EXIT_STATUS = "Exit status: 0 all examples work, 1 some do not, 2 bad usage."


@dataclass(frozen=True)
class CodeBlock:
    """One fenced block: its language, the rest of the fence's line, its text and its first line's number."""

    language: str
    info: str
    text: str
    line: int


def blocks(text: str) -> Iterator[CodeBlock]:
    for match in re.finditer(r"^```(\w+)[ \t]*(.*)\n((?:.*\n)*?)```[ \t]*$", text, re.MULTILINE):
        yield CodeBlock(match[1], match[2].strip(), match[3], text.count("\n", 0, match.start(3)) + 1)


def commands(block: CodeBlock) -> Iterator[tuple[int, str]]:
    """Yield (line number, command), with continuation lines joined."""
    line = block.line
    for joined in re.findall(r"(?:.*\\\n)*.*\n", block.text):
        if joined.startswith(RUN_COMMANDS):
            yield line, joined.replace("\\\n", " ").strip()
        line += joined.count("\n")


def expected_status(block: CodeBlock) -> int:
    status = re.search(r"exit=(\d+)", block.info)
    return int(status[1]) if status else 0


def run(arguments: list[str] | str, folder: str, code: str | None = None) -> tuple[int, str]:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    environment = {**os.environ, "PATH": path, "MPLBACKEND": "Agg"}
    try:
        done = subprocess.run(
            arguments,
            shell=isinstance(arguments, str),
            cwd=folder,
            env=environment,
            input=code or "",
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=TIMEOUT_S,
        )
    except subprocess.TimeoutExpired:
        return -1, f"still running after {TIMEOUT_S} s"
    return done.returncode, done.stdout


def run_python(path: Path, python: list[CodeBlock], folder: str) -> list[str]:
    """Run each block with its line numbers in the file, so that tracebacks point there."""
    if not python:
        return []
    steps = [f"exec(compile({chr(10) * (b.line - 1) + b.text!r}, {str(path)!r}, 'exec'))" for b in python]
    status, output = run([sys.executable, "-"], folder, "\n".join(steps))
    return [f"{path}: the python blocks failed\n{output}"] if status else []


def check(path: Path) -> tuple[int, list[str]]:
    """Return the number of examples and the failures."""
    found = list(blocks(path.read_text()))
    python = [b for b in found if b.language == "python"]
    count = len(python)
    with tempfile.TemporaryDirectory() as folder:
        package = SIMULATOR if path.is_relative_to(SIMULATOR) else ROOT
        (Path(folder) / "examples").symlink_to(package / "examples")
        failures = run_python(path, python, folder)
        for block in found:
            if block.language != "sh":
                continue
            for line, command in commands(block):
                count += 1
                status, output = run(command, folder)
                if status != expected_status(block):
                    failures.append(f"{path}:{line}: `{command}` ended with status {status}\n{output}")
    return count, failures


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, epilog=EXIT_STATUS
    )
    parser.add_argument("files", nargs="*", metavar="FILE", type=Path, help="a page; default: all pages")
    named = [path.resolve() for path in parser.parse_args().files]
    for path in named:
        if not path.is_file():
            parser.error(f"FILE must be a page but got {path}")
    folders = [ROOT / "docs", SIMULATOR / "docs"]
    pages = [page for folder in folders for page in sorted(folder.rglob("*.md"))]
    paths = named or [ROOT / "README.md", ROOT / "CONTRIBUTING.md", SIMULATOR / "README.md", *pages]
    failures: list[str] = []
    for path in paths:
        count, wrong = check(path)
        failures += wrong
        print(f"{os.path.relpath(path, ROOT)}: {count} example(s), {len(wrong)} failed")
    for failure in failures:
        print(f"\n{failure}", file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
