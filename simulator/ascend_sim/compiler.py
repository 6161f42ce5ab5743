"""Compile AscendC kernels for the simulated cores."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import shlex
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from itertools import takewhile
from pathlib import Path

from ascend_sim import folders
from ascend_sim.errors import Unavailable, bad_value
from ascend_sim.files import cause_of, digest, is_own_folder, locked, unreadable
from ascend_sim.launch_syntax import kernel_source
from ascend_sim.library import DEFAULT_SOC, load

__all__ = ["CompileFailed", "build", "column_defines", "column_entry", "compile_soc"]

# The value of __CCE_AICORE__ for each SoC.
AICORE = {"ascend910b": 220, "ascend910_93": 220, "ascend310p": 200, "ascend950": 310}
FLAGS: tuple[str, ...] = ("-std=c++17", "-O2", "-fPIC", "-shared", "-fvisibility=hidden", "-ffp-contract=off")
FLAGS += ("-fno-strict-aliasing", "-fwrapv")
# The stack of a core has 32,768 bytes, unless an option of CANN's compiler gives it more. Source: the page of
# MindStudio on the detection of stack overflows (atlasopdev_16_0145).
FLAGS += ("-Wframe-larger-than=32768", "-Werror=frame-larger-than=32768")  # the second one is gcc's
# The value of ORIG_DTYPE_X for each element type.
ORIG_DTYPES = {
    "float": "DT_FLOAT",
    "half": "DT_FLOAT16",
    "bfloat16_t": "DT_BF16",
    "int32_t": "DT_INT32",
    "int64_t": "DT_INT64",
}
_SOURCES = (".c", ".cc", ".cpp", ".cxx", ".c++", ".C", ".ii", ".s", ".S")
_WITH_ARGUMENT = ("-D", "-U", "-I", "-include", "-imacros", "-isystem", "-iquote", "-idirafter")
# Options that read no file but those that the preprocessor reads, and write none but the result.
_KNOWN_OPTION = re.compile(
    r"-[DUI].*|-i(nclude|macros|system|quote|dirafter).*|-O\w*|-g\w*|-std=\S+|-w|-pthread|-shared"
    r"|-pedantic(-errors)?|-W[\w=+-]*|-m(?!.*native)[\w=.+-]+"
    r"|-f(fp-contract|visibility|sanitize|max-errors|template-depth|constexpr-[a-z-]+)=[\w+,-]+"
    r"|-f(?!auto|branch|callgraph|dump|memory|module|pass|plugin|profile|save|stack-usage|test|time|use|xray)[\w+-]+",
    re.DOTALL,
)
_ASSEMBLY = re.compile(
    rb'\b(?:__)?asm(?:__)?\b(?:\s|volatile\b|__volatile__\b|goto\b|inline\b)*\((?:[^")]|"(?:\\.|[^"\\])*")*',
    re.DOTALL,
)
# Variables of the environment that change what a compiler does with a preprocessed text.
_VARIABLES = ("CCC_OVERRIDE_OPTIONS", "COMPILER_PATH", "GCC_EXEC_PREFIX", "LIBRARY_PATH", "LD_RUN_PATH")
# Changes of the options for clang: it gets no option of gcc's, and no warning about one that has no effect in
# the preprocessor or after it. The character # keeps it from printing them.
_FOR_CLANG = "# x-Werror=frame-larger-than=32768 +-Wno-unused-command-line-argument"
_running: set[int] = set()  # process groups of compilers
COMPILER_REMEDY = "Install one (apt install g++) or name it: CXX=/path/to/g++."


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
        try:
            words = shlex.split(named)
        except ValueError as error:  # a quotation without its end
            raise Unavailable("C++ compiler", f"CXX is {named!r}: {error}", COMPILER_REMEDY) from None
        if not words or not shutil.which(words[0]):
            raise Unavailable("C++ compiler", f"CXX names no program: {named!r}", COMPILER_REMEDY)
        return named
    for name in ("g++", "clang++", "c++"):
        if shutil.which(name):
            return name
    raise Unavailable("C++ compiler", "none was found as g++, clang++ or c++", COMPILER_REMEDY)


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

    The folder caches the library: each combination of compiler, flags and preprocessed text is compiled once,
    also across processes. With flags or a text that may read further files, such as an object, ``@file``,
    ``-l`` or ``.incbin``, and with flags that ascend_sim does not know, it is compiled in every call.

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
    named = (word for word in _without_arguments(flags) if Path(word).suffix in _SOURCES)
    if another := next(filter(os.path.isfile, named), None):
        raise bad_value(f"flags must have no source but got {another}: include it in {Path(source).name}.")
    command = kernel_command(soc, defines=defines, include=include, flags=flags)
    # Do not resolve links: an include is found beside the link, not beside the file that it names.
    source = Path(os.path.abspath(source))
    folder = results_folder(folder)
    command += ["-iquote", str(source.parent)]
    text = kernel_source(source, folder)
    return compile_once(command, text, link_options(), f"{source.stem}-{soc.lower()}", ".so", source, folder)


def kernel_command(
    soc: str,
    *,
    defines: Mapping[str, str] | None = None,
    include: Sequence[str | os.PathLike[str]] = (),
    flags: Sequence[str] = (),
) -> list[str]:
    """Return the command that compiles a kernel for an SoC, without its files."""
    command = [*shlex.split(compiler()), *FLAGS, *flags, f"-D__CCE_AICORE__={AICORE[soc.lower()]}"]
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
    text: Path | None,
    link: Sequence[str],
    name: str,
    suffix: str,
    source: Path,
    folder: str | os.PathLike[str] | None = None,
) -> Path:
    """Compile a text and link the result, or return the earlier result of the same preprocessed text.

    The compiler preprocesses the text in every call, so that it finds the files that it includes today. It
    compiles what it has preprocessed: a file that is saved meanwhile belongs to the next call. With options
    or a text that may read further files, each call compiles.

    Args:
        command: the compiler and its options.
        text: the C++ source; None: there is nothing to compile.
        link: the rest of the command: objects, libraries and options of the linker.
        name, suffix: start and end of the result's name.
        source: the file that messages name.
        folder: of the results; by default this user's folder in the system's temporary folder.

    Raises:
        CompileFailed: the compiler failed.
        OSError: the disk is full.
        ValueError: the folder cannot be written.
        Unavailable: the compiler does not run.
    """
    target = results_folder(folder)
    with _unfinished_folder(target) as private:
        key, read, may_read_more = _state_of(command, link), [], not _is_known(command)
        key += [str(text), *(f"{name}={os.environ.get(name)}" for name in _VARIABLES)]
        if text is not None:
            preprocessed = Path(private) / f"{text.stem}.ii"
            original = ["-x", "c++", str(text), "-x", "none"]
            compile_into(preprocessed, [*command, "-E", *original], source)
            contents = preprocessed.read_bytes()
            key += [digest(contents)]
            read = ["-x", "c++-cpp-output", str(preprocessed), "-x", "none"]
            may_read_more = may_read_more or _may_read_more(contents)
        begin = f"{name}-{digest(chr(0).join(key).encode(errors='surrogateescape'))}-"
        with locked(target / f"{begin}.lock"):  # only one process at a time compiles a text
            if not may_read_more and (earlier := _whole_result(target, begin, suffix)):
                return earlier
            made = Path(private) / f"result{suffix}"
            try:
                compile_into(made, [*command, *read, *link], source)
            except CompileFailed:
                if text is None:
                    raise
                # Messages about macros need the text before the preprocessor.
                compile_into(made, [*command, *original, *link], source)
                # It has no error, so those of the preprocessed text were warnings: that a comparison out of a
                # macro has two pairs of parentheses, or that a case falls through, whose comment is gone.
                compile_into(made, [*command, "-w", *read, *link], source)
            # The digest of the result itself shows damage later.
            result = target / f"{begin}{digest(made.read_bytes())}{suffix}"
            made.replace(result)
    return result


@contextmanager
def _unfinished_folder(folder: Path) -> Iterator[str]:
    """Yield the folder of one compilation, and remove it at the end. Its process holds a lock of it, so that
    those of killed processes are known: the next compilation removes them."""
    begin = ".unfinished-"
    with ExitStack() as stack:
        with locked(folder / "unfinished.lock"):
            for path in folder.glob(f"{begin}*"):
                with suppress(OSError):  # another compilation holds its lock
                    shutil.rmtree(_locked_folder(path, stack), ignore_errors=True)
            made = tempfile.TemporaryDirectory(prefix=begin, dir=folder, ignore_cleanup_errors=True)
            private = stack.enter_context(made)
            _locked_folder(Path(private), stack)
        yield private


def _locked_folder(path: Path, stack: ExitStack) -> Path:
    descriptor = os.open(path, os.O_RDONLY)
    stack.callback(os.close, descriptor)
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    stack.callback(fcntl.flock, descriptor, fcntl.LOCK_UN)  # also of children, which have the descriptor
    return path


def _state_of(command: Sequence[str], link: Sequence[str]) -> list[str]:
    """Return a command's text, and texts that change with its files: the size and time of the compiler and
    of programs that call it, and the contents of the objects and archives to link. Shared libraries do not
    count, because the result has their names only."""
    found = [Path(path).stat() for word in _programs_of(command) if (path := shutil.which(word))]
    read = [Path(word) for word in link if not word.endswith(".so") and os.path.isfile(word)]
    states = [f"{status.st_size} {status.st_mtime_ns}" for status in found]
    return [repr([*command, *link]), *states, *(digest(path.read_bytes()) for path in read)]


def _programs_of(command: Sequence[str]) -> list[str]:
    return list(takewhile(lambda word: not word.startswith("-"), command))


def _is_known(command: Sequence[str]) -> bool:
    """Return whether the result of a command depends on its programs and on the preprocessed text only."""
    programs = _programs_of(command)
    options = _without_arguments(command[len(programs) :])
    return all(map(shutil.which, programs)) and all(map(_KNOWN_OPTION.fullmatch, options))


def _may_read_more(text: bytes) -> bool:
    """Return whether a compiler may read more files for a preprocessed text: a precompiled header, or those
    that an assembler's directive names, which begins with a dot, perhaps as an escape sequence."""
    lower = text.lower()
    if any(word in lower for word in (b"pch_preprocess", b"incbin", b".include")):
        return True
    without_places = re.sub(rb'^# \d+ "[^\n]*"[ \d]*\n', b"", text, flags=re.MULTILINE)
    return any(re.search(rb'[.\\]|R"', part[0]) for part in _ASSEMBLY.finditer(without_places))


def _without_arguments(options: Sequence[str]) -> list[str]:
    """Return the options without the words that are arguments of the word before them."""
    words = iter(options)
    return [word for word in words if word not in _WITH_ARGUMENT or next(words, "")]


def _whole_result(folder: Path, begin: str, suffix: str) -> Path | None:
    """Return an earlier result whose bytes have the digest in its name."""
    for name in os.listdir(folder):
        contents = name[len(begin) : len(name) - len(suffix)]
        with suppress(OSError):  # no file, or one that cannot be read
            if name == f"{begin}{contents}{suffix}" and digest((folder / name).read_bytes()) == contents:
                return folder / name
    return None


def compile_into(result: Path, command: Sequence[str], source: Path | None = None) -> None:
    """Run a compiler that writes ``result``, beside which its temporary files lie.

    Args:
        source: the file in which a message about a failed static assertion names a line.

    Raises:
        CompileFailed: it failed, or wrote no file.
        OSError: the disk is full.
        Unavailable: it does not run.
    """
    status, errors = run_compiler([*command, "-o", str(result)], result.parent)
    if status != 0:
        failed = f"{command[0]} ended with status {status} and no message"
        assertions = _failed_assertions(errors, source) if source else []
        raise CompileFailed("\n".join([*assertions, errors.strip() or failed]))
    if not result.is_file() or not result.stat().st_size:
        raise CompileFailed(f"{command[0]} wrote no file: is it a C++ compiler?")


def run_compiler(
    command: Sequence[str], scratch: str | os.PathLike[str], seconds: float | None = None
) -> tuple[int, str]:
    """Run a compiler; return its status and its messages.

    An exception, such as an interrupt, ends the compiler with the programs that it has started.

    Args:
        scratch: a folder for its temporary files.
        seconds: how long it may run; None: without a limit.

    Raises:
        OSError: the disk is full.
        Unavailable: the compiler does not run, or takes too long.
    """
    environment = {**os.environ, "LC_ALL": "C", "TMPDIR": str(scratch)}
    environment.setdefault("CCC_OVERRIDE_OPTIONS", _FOR_CLANG)
    try:
        process = subprocess.Popen(
            command,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            env=environment,
            start_new_session=True,
        )
    except OSError as error:
        cause = f"{command[0]} does not run: {cause_of(error)}"
        raise Unavailable("C++ compiler", cause, COMPILER_REMEDY) from None
    with process:
        _running.add(process.pid)
        try:
            _, errors = process.communicate(timeout=seconds)
        except BaseException as error:
            _end(process.pid)
            if isinstance(error, subprocess.TimeoutExpired):
                took = f"{command[0]} takes more than {seconds} seconds"
                raise Unavailable("C++ compiler", took, COMPILER_REMEDY) from None
            raise
        finally:
            _running.discard(process.pid)
    for number in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        if process.returncode != 0 and re.search(rf": {os.strerror(number)}$", errors, re.MULTILINE):
            raise OSError(number, os.strerror(number), os.fspath(scratch))
    return process.returncode, errors


def end_compilers() -> None:
    """End all compilers, those of other threads too: the command ends."""
    for group in tuple(_running):
        _end(group)


def _end(group: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)


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
