"""Make the folders in which CANN's build compiles the kernels of an operator library.

CANN copies the folder ``op_kernel`` of each operator to a folder with the operator's name. Two folders beside
these hold common files: ``inc`` has those of ``common/inc/op_kernel``, and ``common`` has those of
hicann/opbase (ops-nn cmake/gen_ops_info.cmake). Kernels include each other by these paths, such as
``"../rms_norm/rms_norm_base.h"``. :func:`lay_out` makes these folders with links to the files.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_INCLUDE = re.compile(r'^\s*#\s*include\s*"(?:\.\./)+(\w+)/', re.MULTILINE)


@dataclass(frozen=True)
class Layout:
    """The files and folders with which a kernel is compiled.

    Attributes:
        source: the kernel's file, or a link to it.
        include: folders of headers.
        origins: pairs of a folder with links and the folder with the linked files.
    """

    source: Path
    include: tuple[Path, ...] = ()
    origins: tuple[tuple[Path, Path], ...] = ()

    @property
    def flags(self) -> list[str]:
        """Options with which the compiler writes the names of the library's own files into reports."""
        return [f"-ffile-prefix-map={folder}={origin}" for folder, origin in self.origins]

    def with_original_paths(self, text: str) -> str:
        """Return the text of a message with the names of the library's own files."""
        for folder, origin in self.origins:
            text = text.replace(f"{folder}{os.sep}", f"{origin}{os.sep}")
        return text


def lay_out(source: Path, include: Sequence[Path], folder: Path) -> Layout:
    """Return the layout of a kernel below ``<operator>/op_kernel``; another kernel stays where it is.

    Args:
        source: the kernel.
        include: folders of headers, of which ``op_common`` holds those of hicann/opbase.
        folder: receives the links.
    """
    kernel_folder = next((parent for parent in source.parents if parent.name == "op_kernel"), None)
    if kernel_folder is None:
        return Layout(source)
    operator = kernel_folder.parent
    origins = []
    pending, linked = [(operator.name, kernel_folder)], set()
    while pending:
        name, origin = pending.pop()
        if name in linked:
            continue
        linked.add(name)
        files = _link_files(origin, folder / name)
        origins.append((folder / name, origin))
        for path in files:
            for included_name in _INCLUDE.findall(path.read_text(errors="replace")):
                included_origin = _origin_of(included_name, operator)
                if included_origin is not None:
                    pending.append((included_name, included_origin))
    for root in include:
        for part in ("op_kernel", "atvoss"):
            if (root / "op_common" / part).is_dir():
                _link_files(root / "op_common" / part, folder / "common" / part)
                origins.append((folder / "common" / part, root / "op_common" / part))
    target = folder / operator.name / source.relative_to(kernel_folder)
    return Layout(target, (folder / "common",), tuple(origins))


def _origin_of(name: str, operator: Path) -> Path | None:
    """Return the folder whose files CANN's build copies to the folder ``name`` beside ``operator``."""
    category, library = operator.parent, operator.parent.parent
    candidates = [library / "common" / "inc" / "op_kernel"] if name == "inc" else []
    candidates += [category / name / "op_kernel", *sorted(library.glob(f"*/{name}/op_kernel"))]
    return next((folder for folder in candidates if folder.is_dir()), None)


def _link_files(origin: Path, target: Path) -> list[Path]:
    """Make ``target`` a folder with links to the files of ``origin``; return the files."""
    files = []
    for parent, _, names in os.walk(origin):
        links = target / Path(parent).relative_to(origin)
        links.mkdir(parents=True, exist_ok=True)
        for name in names:
            files.append(Path(parent) / name)
            with suppress(FileExistsError):
                (links / name).symlink_to(files[-1])
    return files
