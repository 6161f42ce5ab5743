"""Run the examples of the READMEs, CONTRIBUTING.md, docs/ and simulator/docs/, which must work as written.

In each file, the ```python blocks run in order in one namespace. In ```sh blocks, every command that starts
with `npu-rope`, `ascend-sim`, `python` or `cc` runs. A fence such as ```sh exit=2 gives the expected exit
status of the commands. Commands of a fence ```sh npu run with the Python of .venv-npu, which has torch_npu;
without that environment they are not run. A block of a fence such as ```cpp file=scale.cpp is a file of this
name for all examples of the page. Other blocks are not run. The examples run in a folder that contains only
these files and a link to the package's examples/.

The text of a fence ```text printed is what the block before it printed. "..." in it is any text, and a line
of "..." any lines. Numbers of seconds may differ.

The Chinese version of X.md is X.zh.md. Its examples are not run: it is compared with X.md (page_pairs.py) and
must have the same ones.
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
from itertools import pairwise
from pathlib import Path

import page_pairs

ROOT = Path(__file__).resolve().parent.parent
RUN_COMMANDS = ("npu-rope ", "ascend-sim ", "python ", "cc ")
SIMULATOR = ROOT / "simulator"
TIMEOUT_S = 300
NPU_PYTHON = ROOT / ".venv-npu" / "bin"
MARK = "check_docs: block at line"  # printed before the output of a block
EXIT_STATUS = "Exit status: 0 all examples work and all page pairs agree, 1 some do not, 2 bad usage."


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


def matches(printed: str, shown: str) -> bool:
    """Return whether a page shows what was printed, with "..." for text that it leaves out."""
    pattern = ""
    for line in shown.rstrip().splitlines():
        # A number before "s" or "seconds" is a time.
        parts = [re.escape(part) for part in re.sub(r"\b[\d.]+(?= s(econds)?\b)", "...", line).split("...")]
        pattern += r"(?:.*\n)*?" if line.strip() == "..." else r"[^\n]*".join(parts) + r"[ \t]*\n"
    return re.fullmatch(pattern, f"{printed.rstrip()}\n") is not None


def compared(path: Path, block: CodeBlock, printed: str, shown: CodeBlock | None) -> list[str]:
    """Return the failure of a block that did not print the text that the page shows after it."""
    if shown is None or matches(printed, shown.text):
        return []
    return [f"{path}:{block.line}: the block printed another text than line {shown.line}:\n{printed}"]


def run(arguments: list[str], folder: str, code: str | None = None, on_npu: bool = False) -> tuple[int, str]:
    folders = [*([NPU_PYTHON] if on_npu else []), Path(sys.executable).parent, os.environ.get("PATH", "")]
    path = os.pathsep.join(map(str, folders))
    environment = {**os.environ, "PATH": path, "MPLBACKEND": "Agg"}
    try:
        completed_process = subprocess.run(
            arguments,
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


def run_python(
    path: Path, python: list[CodeBlock], shown: dict[CodeBlock, CodeBlock], folder: str
) -> list[str]:
    """Run each block with its line numbers in the file, so that tracebacks point there."""
    if not python:
        return []
    # The blocks have a separate namespace, because they may define a name such as `compile`.
    steps = ["names = {'__name__': '__main__'}"]
    for block in python:
        source = "\n" * (block.line - 1) + block.text
        steps.append(f"print({MARK!r}, {block.line}, flush=True)")
        steps.append(f"exec(compile({source!r}, {str(path)!r}, 'exec'), names)")
    status, output = run([sys.executable, "-"], folder, "\n".join(steps))
    if status:
        output = re.sub(rf"^{MARK} \d+\n", "", output, flags=re.MULTILINE)
        return [f"{path}: the python blocks failed\n{output}"]
    printed = re.split(rf"^{MARK} \d+\n", output, flags=re.MULTILINE)[1:]
    return [
        failure
        for block, text in zip(python, printed, strict=True)
        for failure in compared(path, block, text, shown.get(block))
    ]


def check(path: Path) -> tuple[int, int, list[str]]:
    """Return the number of examples, the number of those that cannot run here, and the failures."""
    all_blocks = list(blocks(path.read_text()))
    shown = {
        block: after
        for block, after in pairwise(all_blocks)
        if after.info == "printed" and block.info != "printed"
    }
    files = {block: name[1] for block in all_blocks if (name := re.search(r"file=(\S+)", block.info))}
    python = [block for block in all_blocks if block.language == "python" and block not in files]
    count, left_out = len(python), 0
    with tempfile.TemporaryDirectory() as folder:
        package = SIMULATOR if path.is_relative_to(SIMULATOR) else ROOT
        (Path(folder) / "examples").symlink_to(package / "examples")
        for block, name in files.items():
            (Path(folder) / name).write_text(block.text)
        failures = run_python(path, python, shown, folder)
        for block in all_blocks:
            if block.language != "sh":
                continue
            on_npu, printed = "npu" in block.info.split(), ""
            for line, command in commands(block):
                count += 1
                if on_npu and not NPU_PYTHON.is_dir():
                    left_out += 1
                    continue
                status, output = run(["sh", "-c", command], folder, on_npu=on_npu)
                printed += output
                if status != expected_status(block):
                    failures.append(f"{path}:{line}: `{command}` ended with status {status}\n{output}")
            if printed:
                failures += compared(path, block, printed, shown.get(block))
    return count, left_out, failures


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
    named = [ROOT / "README.md", ROOT / "README.zh.md", ROOT / "CONTRIBUTING.md", SIMULATOR / "README.md"]
    failures: list[str] = []
    for path in given_paths or [*named, *pages]:
        print(f"{os.path.relpath(path, ROOT)}: ", end="", flush=True)  # shows which page is checked now
        if path.name.endswith(page_pairs.CHINESE):
            differences = page_pairs.differences(path)
            failures += differences
            print(f"{len(differences)} difference(s) from the English page")
            continue
        count, left_out, page_failures = check(path)
        failures += page_failures
        not_run = f", {left_out} not run without .venv-npu" if left_out else ""
        print(f"{count} example(s), {len(page_failures)} failed{not_run}")
    for failure in failures:
        print(f"\n{failure}", file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
