"""Run a command with a small file system mounted over a folder, in a namespace of its own.

The kernel of the machine may refuse such namespaces; then the test is skipped.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

PAGE = 4096  # bytes: the unit in which tmpfs gives room to files
PAGES = 256
NAMESPACE = ("unshare", "--user", "--map-root-user", "--mount")

# It mounts the file system, writes the earlier files to it and fills the rest. Then it runs the command, and
# prints how the command ended and which files there are.
INSIDE = """
import json, os, subprocess, sys
folder, pages, earlier, command = json.loads(sys.argv[1])
subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={PAGES * PAGE}", "none", folder], check=True)
for name, text in earlier.items():
    with open(os.path.join(folder, name), "w") as file:
        file.write(text)
filler = os.open(os.path.join(folder, "filler"), os.O_WRONLY | os.O_CREAT)
free = os.statvfs(folder).f_bavail
os.posix_fallocate(filler, 0, (free - pages) * PAGE)
os.close(filler)
assert os.statvfs(folder).f_bavail == pages
done = subprocess.run(command, capture_output=True, text=True, cwd=folder)
os.unlink(os.path.join(folder, "filler"))
files = {}
for root, folders, names in os.walk(folder):
    for name in folders + names:
        path = os.path.join(root, name)
        with open(path if name in names else os.devnull, errors="replace") as file:
            files[os.path.relpath(path, folder)] = file.read()
print(json.dumps([done.returncode, done.stdout, done.stderr, files]))
""".replace("PAGES", str(PAGES)).replace("PAGE", str(PAGE))


@dataclass
class Done:
    """How a command ended, and the files and folders of the small file system by their paths."""

    returncode: int
    stdout: str
    stderr: str
    files: dict[str, str]


@cache
def _refusal() -> str:
    """Return why there is no such namespace, or nothing."""
    if not shutil.which("unshare"):
        return "unshare (util-linux) is missing"
    command = (*NAMESPACE, "mount", "-t", "tmpfs", "none", "/mnt")
    done = subprocess.run(command, capture_output=True, text=True)
    return (done.stderr.strip() or f"exit status {done.returncode}") if done.returncode else ""


def run_with_pages(
    folder: Path, pages: int, command: Sequence[str], earlier: Mapping[str, str] | None = None
) -> Done:
    """Run a command in an empty folder whose file system has room for ``pages`` more pages.

    Args:
        earlier: files that the folder has before, by their names.
    """
    if reason := _refusal():
        pytest.skip(f"this machine mounts no small file system for a test: {reason}")
    request = json.dumps([str(folder), pages, dict(earlier or {}), list(map(str, command))])
    inside = (*NAMESPACE, sys.executable, "-c", INSIDE, request)
    done = subprocess.run(inside, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return Done(*json.loads(done.stdout))
