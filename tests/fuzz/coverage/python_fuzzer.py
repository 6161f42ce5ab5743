"""The parts that the fuzz programs in Python share. Import it before the modules under test.

Options of a program are libFuzzer's. ``--lines FOLDER...`` runs the files of the folders and prints the
number of lines of the modules under test that they reach; ``--keep NEW FOLDER...`` copies those that reach
new lines. scripts/fuzz.sh uses both.
"""

from __future__ import annotations

import os
import resource
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

import atheris

ROOT = Path(__file__).parents[3]
# atheris cannot instrument what the finder of an editable install imports, so import from the checkout.
sys.meta_path = [finder for finder in sys.meta_path if type(finder).__module__[:9] != "_editable"]
sys.path[:0] = [str(ROOT), str(ROOT / "simulator")]


def _lines_of(code: CodeType) -> set[int]:
    own = {line for _, _, line in code.co_lines() if line}
    return own.union(*(_lines_of(inner) for inner in code.co_consts if isinstance(inner, CodeType)))


def _files_of(folders: list[str]) -> list[Path]:
    files = [file for each in folders for file in Path(each).iterdir()]
    return sorted(files, key=lambda file: (file.stat().st_size, file.name))


class Program:
    """A fuzz program. ``test`` runs the modules on an input, and raises if a property does not hold. It may
    return a text that names the outcome. A call may take at most ``memory_bytes``. ``mended`` has the outcome
    of each input ``mended-*`` of the corpus, which is another one after a change of the order of choices."""

    def __init__(
        self,
        test: Callable[[bytes], str | None],
        modules: Sequence[ModuleType],
        memory_bytes: int,
        mended: Mapping[str, str] | None = None,
    ) -> None:
        self.test, self.modules, self.memory_bytes = test, modules, memory_bytes
        self.mended = mended or {}

    def main(self) -> None:
        """Fuzz, or do what ``--lines`` or ``--keep`` asks for."""
        if sys.argv[1:2] == ["--lines"]:
            return self._print_lines(sys.argv[2:])
        if sys.argv[1:2] == ["--keep"]:
            return self._keep_files(sys.argv[2], sys.argv[3:])
        for folder in (Path(word) for word in sys.argv[1:] if os.path.isdir(word)):
            if folder.parent == ROOT / "tests/fuzz/coverage/corpus":
                self._check_mended(folder)
        atheris.Setup(sys.argv, self._limited_test)
        atheris.Fuzz()

    def _check_mended(self, folder: Path) -> None:
        """End the program if an input of a mended fault is missing, or means another call now."""
        for name, expected in self.mended.items():
            file = folder / name
            print(f"mended: {file}", file=sys.stderr)
            outcome = self.test(file.read_bytes()) if file.exists() else "that of no file"
            if outcome != expected:
                sys.exit(f"broken: {name} must end with {expected!r} but its outcome is {outcome!r}")

    def _limited_test(self, content: bytes) -> None:
        """Run the test with at most ``memory_bytes`` more than the process has, which grows with inputs."""
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + self.memory_bytes, resource.RLIM_INFINITY))
        self.test(content)

    def _reached_lines(self, names: list[Path]) -> Iterator[tuple[Path, dict[str, set[int]], str | None]]:
        """Run each file. Yield it, the lines of the modules that it reaches, and its outcome."""
        reached: dict[str, set[int]] = {}

        def trace(frame: Any, event: str, _: Any) -> Any:
            lines = reached.get(frame.f_code.co_filename)
            if lines is None:
                return None
            lines.add(frame.f_lineno)
            return trace

        for name in names:
            reached = {str(module.__file__): set() for module in self.modules}
            sys.settrace(trace)
            outcome = self.test(name.read_bytes())
            sys.settrace(None)
            yield name, reached, outcome

    def _print_lines(self, folders: list[str]) -> None:
        total: dict[str, set[int]] = {str(module.__file__): set() for module in self.modules}
        for _, reached, _ in self._reached_lines(_files_of(folders)):
            for file, lines in reached.items():
                total[file] |= lines
        for file, lines in total.items():
            # The lines of the module itself ran when it was imported.
            source = compile(Path(file).read_text(encoding="utf-8"), file, "exec")
            known = _lines_of(source) - {line for _, _, line in source.co_lines() if line}
            share = 100 * len(lines & known) / len(known)
            print(f"{len(lines & known)} of {len(known)} lines of {os.path.basename(file)}, {share:.1f} %")

    def _keep_files(self, new_folder: str, folders: list[str]) -> None:
        """Copy each file that reaches a line or an outcome which no smaller file reaches. (atheris has no
        -merge.)"""
        known: set[tuple[str | None, int]] = set()
        for name, reached, outcome in self._reached_lines(_files_of(folders)):
            lines = {(file, line) for file, of_file in reached.items() for line in of_file} | {(outcome, 0)}
            if not lines <= known:
                known |= lines
                shutil.copy(name, new_folder)
