"""Run the examples of the READMEs, CONTRIBUTING.md, docs/ and simulator/docs/, which must work as written.

In each file, the ```python blocks run in order in one namespace. In ```sh blocks, every command that starts
with `npu-rope`, `ascend-sim`, `python` or `cc` runs. A fence such as ```sh exit=2 gives the expected exit
status of the commands. Other blocks are not run. The examples run in a folder that contains only a link to
the package's examples/.
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
RUN_COMMANDS = ("npu-rope ", "ascend-sim ", "python ", "cc ")
SIMULATOR = ROOT / "simulator"
TIMEOUT_S = 300
EXIT_STATUS = "Exit status: 0 all examples work, 1 some do not, 2 bad usage."


@dataclass(frozen=True)
class CodeBlock:
    """One fenced block: its language, the rest of the fence's line, its text, and the number of its first
    line."""

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
        completed_process = subprocess.run(
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
    return completed_process.returncode, completed_process.stdout


def run_python(path: Path, python: list[CodeBlock], folder: str) -> list[str]:
    """Run each block with its line numbers in the file, so that tracebacks point there."""
    if not python:
        return []
    # The blocks have a separate namespace, because they may define a name such as `compile`.
    steps = ["names = {'__name__': '__main__'}"]
    for block in python:
        source = "\n" * (block.line - 1) + block.text
        steps.append(f"exec(compile({source!r}, {str(path)!r}, 'exec'), names)")
    status, output = run([sys.executable, "-"], folder, "\n".join(steps))
    return [f"{path}: the python blocks failed\n{output}"] if status else []


def check(path: Path) -> tuple[int, list[str]]:
    """Return the number of examples and the failures."""
    all_blocks = list(blocks(path.read_text()))
    python = [block for block in all_blocks if block.language == "python"]
    count = len(python)
    with tempfile.TemporaryDirectory() as folder:
        package = SIMULATOR if path.is_relative_to(SIMULATOR) else ROOT
        (Path(folder) / "examples").symlink_to(package / "examples")
        failures = run_python(path, python, folder)
        for block in all_blocks:
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
    given_paths = [path.resolve() for path in parser.parse_args().files]
    for path in given_paths:
        if not path.is_file():
            parser.error(f"FILE must be a page but got {path}")
    folders = [ROOT / "docs", SIMULATOR / "docs"]
    pages = [page for folder in folders for page in sorted(folder.rglob("*.md"))]
    paths = given_paths or [ROOT / "README.md", ROOT / "CONTRIBUTING.md", SIMULATOR / "README.md", *pages]
    failures: list[str] = []
    for path in paths:
        count, page_failures = check(path)
        failures += page_failures
        print(f"{os.path.relpath(path, ROOT)}: {count} example(s), {len(page_failures)} failed")
    for failure in failures:
        print(f"\n{failure}", file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
