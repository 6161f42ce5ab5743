"""Compile AscendC kernels for the simulated cores."""

from __future__ import annotations

import errno
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

from ascend_sim import folders
from ascend_sim.errors import Unavailable, bad_value
from ascend_sim.files import digest, is_own_folder, locked, unreadable
from ascend_sim.launch_syntax import kernel_source
from ascend_sim.library import DEFAULT_SOC, load

__all__ = ["CompileFailed", "build", "column_defines", "column_entry", "compile_soc"]

# The value of __CCE_AICORE__ for each SoC.
AICORE = {"ascend910b": 220, "ascend910_93": 220, "ascend310p": 200, "ascend950": 310}
FLAGS: tuple[str, ...] = ("-std=c++17", "-O2", "-fPIC", "-shared", "-fvisibility=hidden", "-ffp-contract=off")
FLAGS += ("-fno-strict-aliasing", "-fwrapv")
# The stack of a core has 32,768 bytes, unless an option of CANN's compiler gives it more. Source: the page of
# MindStudio on the detection of stack overflows (atlasopdev_16_0145).
FLAGS += ("-Werror=frame-larger-than=32768",)
# The value of ORIG_DTYPE_X for each element type.
ORIG_DTYPES = {
    "float": "DT_FLOAT",
    "half": "DT_FLOAT16",
    "bfloat16_t": "DT_BF16",
    "int32_t": "DT_INT32",
    "int64_t": "DT_INT64",
}
_MOST_COMPILES = 5  # of a kernel whose files change during the compilation
# A question for a header, with its name, or with no name if a macro has it.
_HAS_INCLUDE = re.compile(rb"__has_include\s*\(\s*(?:[\"<]([^\">\n]+)|(?=\w))")
_SEARCHES = ("-I", "-iquote", "-isystem", "-idirafter")
_INCLUDE_PATHS = ("CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH")
_COMPILER_REMEDY = "Install one (apt install g++) or name it: CXX=/path/to/g++."


class CompileFailed(RuntimeError):
    """The compiler refused a kernel.

    The message holds the simulator's own errors first, such as
    ``add.cpp:12: Neg: this SoC does not have it``, then the whole compiler output.
    """


def compiler() -> str:
    """Return ``$CXX`` if it is set, else the first of g++, clang++ and c++ that is found.

    Raises:
        Unavailable: no compiler was found, or $CXX names none.
    """
    if named := os.environ.get("CXX", ""):
        words = named.split()
        if not words or not shutil.which(words[0]):
            raise Unavailable("C++ compiler", f"CXX names no program: {named!r}", _COMPILER_REMEDY)
        return named
    for name in ("g++", "clang++", "c++"):
        if shutil.which(name):
            return name
    raise Unavailable("C++ compiler", "none was found as g++, clang++ or c++", _COMPILER_REMEDY)


def column_entry(kernel: str, soc: str, types: Mapping[str, str]) -> str:
    """Return the name of a kernel's entry for one column of element types, as op_build generates it.

    >>> column_entry("add", "ascend910b", {"X": "half", "Y": "half"})
    'add__ascend910b__half_half'
    """
    return f"{kernel}__{soc}__{'_'.join(types.values())}"


def column_defines(kernel: str, soc: str, types: Mapping[str, str]) -> dict[str, str]:
    """Return macros for :func:`build` that CANN defines for one column of element types.

    Args:
        types: each argument's C type, in the kernel's order, such as ``{"X": "half", …}``.
    """
    defines = {kernel: column_entry(kernel, soc, types)}
    for argument, kind in types.items():
        defines |= {f"DTYPE_{argument}": kind, f"ORIG_DTYPE_{argument}": ORIG_DTYPES[kind]}
    return defines


def compile_soc(chip: str) -> str:
    """Return the SoC that kernels for a chip are compiled for.

    >>> compile_soc("Ascend910B4")
    'ascend910b'

    Raises:
        ValueError: there is no such SoC or chip.
    """
    known = {soc: soc for soc in AICORE} | {str(p["name"]).lower(): str(p["soc"]) for p in load().profiles()}
    if chip.lower() not in known:
        raise bad_value(f"soc must be one of {', '.join(AICORE)}, or a chip's name, but got {chip}.")
    return known[chip.lower()]


def build(
    source: str | os.PathLike[str],
    *,
    soc: str = DEFAULT_SOC,
    defines: Mapping[str, str] | None = None,
    include: Sequence[str | os.PathLike[str]] = (),
    flags: Sequence[str] = (),
    folder: str | os.PathLike[str] | None = None,
) -> Path:
    """Compile a kernel source for an SoC into a shared library.

    The folder caches the library: each combination of flags, source text and header texts is compiled once,
    also across processes. A header that appears in an include folder, where another or none was found before,
    is another combination.

    Args:
        source: the ``.cpp`` file, with one or more entries.
        soc: ``"ascend910b"``, ``"ascend910_93"``, ``"ascend310p"`` or ``"ascend950"``. An instruction that
            the SoC lacks does not compile.
        defines: macros, such as ``{"DTYPE_X": "half", "ORIG_DTYPE_X": "DT_FLOAT16"}``.
        include: more include folders.
        flags: more flags for the compiler, such as ``("-g", "-O0")`` for a debugger.
        folder: where the library goes; by default this user's folder in the system's temporary folder.

    Raises:
        CompileFailed: the compiler failed; the message holds its output.
        ValueError: there is no such SoC, the source cannot be read or is empty, or the folder cannot be
            written.
        Unavailable: there is no compiler, or no temporary folder that one may write.
    """
    if soc.lower() not in AICORE:
        raise bad_value(f"soc must be one of {', '.join(AICORE)} but got {soc}.")
    if fault := unreadable(Path(source)):
        raise bad_value(f"source {fault}")
    command = kernel_command(soc, defines=defines, include=include, flags=flags)
    # Do not resolve links: an include is found beside the link, not beside the file that it names.
    source = Path(os.path.abspath(source))
    folder = results_folder(folder)
    command += ["-iquote", str(source.parent), str(kernel_source(source, folder)), *link_options()]
    return compile_once(command, f"{source.stem}-{soc.lower()}", ".so", source, folder)


def kernel_command(
    soc: str,
    *,
    defines: Mapping[str, str] | None = None,
    include: Sequence[str | os.PathLike[str]] = (),
    flags: Sequence[str] = (),
) -> list[str]:
    """Return the command that compiles a kernel for an SoC, without its files."""
    command = [*compiler().split(), *FLAGS, *flags, f"-D__CCE_AICORE__={AICORE[soc.lower()]}"]
    command += [f"-D{name}={value}" for name, value in (defines or {}).items()]
    command += [f"-I{root}" for root in (folders.include(), *include)]
    return [*command, "-include", "tiling_prelude.h"]


def link_options() -> list[str]:
    """Return the options that link a library of kernels with the simulator, also as
    cmake/AscendSimFunctions.cmake has them. The end of src/pass.cpp has the functions that a kernel calls
    instead of those of --wrap."""
    library = load().path
    wrapped = (f"-Wl,--wrap={function}" for function in ("_exit", "_Exit", "quick_exit"))
    return [str(library), f"-Wl,-rpath,{library.parent}", *wrapped]


def compile_once(
    command: Sequence[str],
    stem: str,
    suffix: str,
    source: Path,
    folder: str | os.PathLike[str] | None = None,
) -> Path:
    """Run a compiler, or return its earlier result if neither the command nor any file has changed.

    Args:
        command: the compiler and its arguments, except those of the output.
        stem, suffix: start and end of the result's name.
        source: the file that messages name.
        folder: of the results; by default this user's folder in the system's temporary folder.

    Raises:
        CompileFailed: the compiler failed.
        ValueError: the folder cannot be written.
    """
    target = results_folder(folder)
    searched = _searched_folders(command)
    key = [repr(list(command)), *(os.environ.get(name, "") for name in _INCLUDE_PATHS)]
    stem = f"{stem}-{digest(''.join(key).encode(errors='surrogateescape'))}"
    dependencies = target / f"{stem}.d"
    with locked(target / f"{stem}.lock"):  # only one process at a time compiles a file
        files = _digest_of_files(dependencies, searched)
        if files is not None and (earlier := _whole_result(target, f"{stem}-{files}-", suffix)):
            return earlier
        unfinished, listed = target / f"{stem}.tmp", target / f"{stem}.d.tmp"
        outputs = ["-MD", "-MF", str(listed), "-MT", "library", "-o", str(unfinished)]
        try:
            for _ in range(_MOST_COMPILES):
                before = _digest_of_files(listed, searched) if listed.is_file() else None
                unfinished.touch()
                begin = unfinished.stat().st_mtime_ns  # by the clock of the files
                _run_compiler([*command, *outputs], source, unfinished)
                files = _digest_of_files(listed, searched)
                # The result may have the old text of a file that was saved meanwhile.
                if (files is not None and files == before) or not _changed_since(begin, listed):
                    break
            else:
                raise CompileFailed(f"{source}: its files changed during {_MOST_COMPILES} compilations")
            # The digest of the result itself shows damage later.
            contents = digest(unfinished.read_bytes())
            result = target / f"{stem}-{files or 'unknown'}-{contents}{suffix}"
            unfinished.replace(result)
            if listed.is_file():  # a linker lists none
                listed.replace(dependencies)
        finally:
            for left in (unfinished, listed):
                left.unlink(missing_ok=True)
    return result


def _whole_result(folder: Path, begin: str, suffix: str) -> Path | None:
    """Return an earlier result whose bytes have the digest in its name."""
    for name in os.listdir(folder):
        contents = name[len(begin) : len(name) - len(suffix)]
        if name == f"{begin}{contents}{suffix}" and digest((folder / name).read_bytes()) == contents:
            return folder / name
    return None


def _run_compiler(command: Sequence[str], source: Path, result: Path) -> None:
    """Run a compiler that writes ``result``.

    Raises:
        CompileFailed: it failed, or wrote no file.
        OSError: the disk is full.
    """
    completed = subprocess.run(command, capture_output=True, text=True, errors="replace")
    if completed.returncode != 0:
        errors, full = completed.stderr, os.strerror(errno.ENOSPC)
        if full in errors:
            raise OSError(errno.ENOSPC, full, str(result.parent))
        failed = f"{command[0]} ended with status {completed.returncode} and no message"
        raise CompileFailed("\n".join([*_failed_assertions(errors, source), errors.strip() or failed]))
    if not result.stat().st_size:
        raise CompileFailed(f"{command[0]} wrote no file: is it a C++ compiler?")


def _failed_assertions(errors: str, source: Path) -> list[str]:
    """Return the messages of failed static assertions, each with the line of ``source`` that caused it."""
    own_line = re.compile(rf"^(?:In file included from )?{re.escape(str(source))}:(\d+)")
    assertion = re.compile(r"static assertion failed(?: due to requirement '.*')?: \"?(.*?)\"?$")
    number, messages = "", []
    for line in errors.splitlines():
        if match := own_line.match(line):
            number = f":{match[1]}"
        if match := assertion.search(line):
            messages.append(f"{source.name}{number}: {match[1]}")
    return list(dict.fromkeys(messages))


def results_folder(folder: str | os.PathLike[str] | None) -> Path:
    """Return the folder of a compiler's results, which exists and can be written.

    Args:
        folder: None: this user's folder in the system's temporary folder.

    Raises:
        ValueError: the folder cannot be made or written.
        Unavailable: no temporary folder can be written.
    """
    if folder is None:
        return own_temporary_folder()
    path = Path(folder)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise bad_value(f"folder must be one that can be written but got {path}: {error.strerror}.") from None
    if not os.access(path, os.W_OK | os.X_OK):
        raise bad_value(f"folder must be one that can be written but got {path}.")
    return path


def own_temporary_folder() -> Path:
    """Return a folder that only this user may write. The folder holds code that is loaded."""
    try:
        temporary = tempfile.gettempdir()
    except FileNotFoundError:
        raise Unavailable("temporary folder", "none can be written", "Name one: TMPDIR=PATH.") from None
    folder = Path(temporary) / f"ascend_sim-{os.getuid()}"
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not is_own_folder(folder):
        raise bad_value(f"{folder} must be a folder that only this user may write; pass folder=.")
    return folder


def _files_of(dependencies: Path) -> list[Path] | None:
    """Return the files that a make rule lists, in its order. None: the rule is not whole, or a file is
    missing, for example because its name has a character that the rule cannot have."""
    if not dependencies.is_file():
        return []  # of a linker
    _, colon, text = dependencies.read_text(errors="surrogateescape").partition(":")
    if not colon:
        return None
    words = re.findall(r"(?:\\.|[^\\\s])+", text.replace("\\\n", " "))
    files = [Path(re.sub(r"\\([\s#\\])", r"\1", word).replace("$$", "$")) for word in words]
    return files if files and all(path.is_file() for path in files) else None


def _changed_since(begin: int, dependencies: Path) -> bool:
    """Return whether a file of a make rule, or a link to it, may have been saved or moved since a time."""
    files = _files_of(dependencies) or []
    links = {parent for path in files for parent in (path, *path.parents) if parent.is_symlink()}
    found = [*(path.stat() for path in files), *(link.lstat() for link in links)]
    return any(max(status.st_mtime_ns, status.st_ctime_ns) > begin for status in found)


def _searched_folders(command: Sequence[str]) -> list[Path]:
    """Return the folders in which a command and its environment let the compiler search headers."""
    following = [Path(folder) for option, folder in pairwise(command) if option in _SEARCHES]
    joined = [Path(word[len(o) :]) for word in command for o in _SEARCHES if word.startswith(o) and word != o]
    paths = [os.environ.get(name, "").split(os.pathsep) for name in _INCLUDE_PATHS]
    return [*following, *joined, *(Path(folder) for path in paths for folder in path if folder)]


def _digest_of_files(dependencies: Path, searched: Sequence[Path]) -> str | None:
    """Return a digest of the files that a make rule lists, in its order. It includes their contents, and the
    places of files that the compiler may find for the same names or for ``__has_include``. None: they are not
    known."""
    listed = _files_of(dependencies)
    if listed is None:
        return None
    contents = {path: path.read_bytes() for path in listed}
    own = [path for path in contents if any(path.is_relative_to(folder) for folder in searched)]
    names = {
        str(path.relative_to(folder)) for path in own for folder in searched if path.is_relative_to(folder)
    }
    for path in own:
        asked = _HAS_INCLUDE.findall(contents[path])
        if any(not name for name in asked):
            return None
        names |= {os.fsdecode(name) for name in asked}
    places = sorted({path.parent for path in own} | set(searched))
    found = [f"{folder / name}" for name in sorted(names) for folder in places if (folder / name).is_file()]
    hashes = b"".join(hashlib.sha256(text).digest() for text in contents.values())
    return digest(hashes + "\n".join(found).encode(errors="surrogateescape"))
