"""Build libraries with the names of CANN's libraries, for the installed torch_npu.

torch_npu's libraries list the shared libraries that they need, and their undefined symbols. A symbol that
libascend_sim_cann lacks becomes a stub: a function that fails with an error when it is called. Each library
of CANN becomes an empty library that links to the stubs and to libascend_sim_cann. The C++ compiler builds
all of them once; they are cached below ``$XDG_CACHE_HOME/ascend-sim``.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import re
import shlex
import shutil
import tempfile
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ascend_sim.compiler import COMPILER_REMEDY, compiler, run_compiler
from ascend_sim.errors import Unavailable
from ascend_sim.files import cause_of, is_own_folder
from ascend_sim.programs.find_torch_npu import TorchNpu

# torch_npu loads these with dlopen, so its libraries do not list them.
LOADED_LATE = ("libhcomm.so", "libopapi.so", "libnnopbase.so")

# Libraries of every Linux system. All others that torch_npu lists and nothing else provides are CANN's.
_SYSTEM = re.compile(r"^(lib(c|m|dl|rt|pthread|util|gcc_s|stdc\+\+|gomp|z|python[\d.]+)\.so|ld-linux)")
_PYTHON_SYMBOL = re.compile(r"^_?Py")
_TORCH_SYMBOL = re.compile(r"^_ZNK?(2at|3c10|4c10d|5torch)")
# Tables of virtual functions, VTTs, type information and its names.
_DATA_SYMBOL = re.compile(r"^_ZT[VITS]")
# C functions that return a status: their stubs return an error, and torch_npu raises it. Other stubs throw.
_STATUS_SYMBOL = re.compile(r"^(acl(rt|mdl|op|prof|sys|dump)?(?!tdt)(?!Create|Get[A-Z]\w*Size)[A-Z]|Hccl)")

STUBS = "libascend_sim_cann_stubs.so"
COMPILE_SECONDS = 300
_LIST = ".files"  # of a folder of the cache: the sizes and names of its other files
_END_OF_LIST = "end\n"


@dataclass(frozen=True)
class Needs:
    """The libraries and symbols of CANN that an installed torch_npu needs."""

    sonames: tuple[str, ...]
    symbols: tuple[str, ...]


def needs_of(npu: TorchNpu) -> Needs:
    """Return the libraries and symbols of CANN that the libraries of ``npu`` list and do not define."""
    npu_elfs = [Elf.read(path) for path in npu.libraries()]
    all_elfs = [*npu_elfs, *(Elf.read(path) for path in npu.other_libraries())]
    defined = {name for elf in all_elfs for name in elf.defined}
    available = {elf.path.name for elf in all_elfs}
    sonames = {name for elf in npu_elfs for name in elf.needed if not _SYSTEM.match(name)} - available
    symbols = {name for elf in npu_elfs for name in elf.undefined if not _PYTHON_SYMBOL.match(name)} - defined
    system = _system_libraries(name for elf in npu_elfs for name in elf.needed if _SYSTEM.match(name))
    symbols = {name for name in symbols if not any(hasattr(library, name) for library in system)}
    if torch_symbols := sorted(filter(_TORCH_SYMBOL.match, symbols)):
        count, example = len(torch_symbols), torch_symbols[0]
        missing = f"it lacks {count} symbols of torch_npu {npu.version}, such as {example}"
        raise Unavailable("torch", missing, "Install the same version of torch and torch_npu.")
    return Needs(tuple(sorted(sonames | set(LOADED_LATE))), tuple(sorted(symbols)))


def _system_libraries(names: Iterable[str]) -> list[ctypes.CDLL]:
    """Open the system's libraries of these names, for a search of their symbols."""
    opened = []
    for name in sorted(set(names)):
        with suppress(OSError):
            opened.append(ctypes.CDLL(name))
    return opened


@dataclass(frozen=True)
class Elf:
    """The needed libraries and the dynamic symbols of one shared library."""

    path: Path
    needed: tuple[str, ...]
    defined: frozenset[str]
    strong: frozenset[str]  # those of the defined symbols that are not weak
    undefined: frozenset[str]  # without the weak ones

    @classmethod
    def read(cls, path: Path) -> Elf:
        """Read the file at ``path``; needs pyelftools."""
        try:
            from elftools.elf.elffile import ELFFile
        except ImportError:
            remedy = "Install it: pip install 'ascend-sim[run]'."
            raise Unavailable("pyelftools", "it is not installed", remedy) from None
        with path.open("rb") as stream:
            elf = ELFFile(stream)
            dynamic: Any = elf.get_section_by_name(".dynamic")
            needed = tuple(tag.needed for tag in dynamic.iter_tags("DT_NEEDED"))
            symbols: Any = elf.get_section_by_name(".dynsym")
            defined, strong, undefined = set(), set(), set()
            for symbol in symbols.iter_symbols():
                if symbol["st_shndx"] != "SHN_UNDEF":
                    defined.add(symbol.name)
                    if symbol["st_info"]["bind"] == "STB_GLOBAL":
                        strong.add(symbol.name)
                elif symbol.name and symbol["st_info"]["bind"] == "STB_GLOBAL":
                    undefined.add(symbol.name)
        return cls(path, needed, frozenset(defined), frozenset(strong), frozenset(undefined))


def source_of(symbols: Iterable[str]) -> str:
    """Return the stubs of these symbols, as C++. The stub of data is 32 zero words."""
    lines = [
        "#include <stdexcept>",
        "#include <string>",
        'extern "C" int simulated_cann_not_simulated(const char* call);',
        "static long refuse(const char* call) {",
        "    simulated_cann_not_simulated(call);",
        '    throw std::runtime_error(std::string("simulated CANN: ") + call + " is not simulated");',
        "}",
        'extern "C" {',
    ]
    for number, name in enumerate(symbols):
        if _DATA_SYMBOL.match(name):
            lines.append(f'extern long d{number}[32] __asm__("{name}"); long d{number}[32] = {{}};')
            continue
        action = "simulated_cann_not_simulated" if _STATUS_SYMBOL.match(name) else "refuse"
        lines.append(f'long f{number}() __asm__("{name}"); long f{number}() {{ return {action}("{name}"); }}')
    return "\n".join([*lines, "}", ""])


def cache_folder() -> Path:
    """Return the folder below which the libraries are cached."""
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if not base.is_absolute():  # empty, or one that the XDG Base Directory Specification ignores
        base = Path.home() / ".cache"
    return base / "ascend-sim"


def key_of(npu: TorchNpu, library: Path) -> str:
    """Return a cache key that depends on torch_npu, on libascend_sim_cann and on this file."""
    digest = hashlib.sha256()
    for path in (library, Path(__file__)):
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    for path in npu.libraries():
        digest.update(f"{path} {path.stat().st_size} {path.stat().st_mtime_ns}\n".encode())
    return f"{re.sub(r'[^0-9A-Za-z.+-]', '_', npu.version)}-{digest.hexdigest()[:16]}"


def prepare(npu: TorchNpu, library: Path) -> Path:
    """Return the folder with CANN's libraries for this torch_npu. Build them if the folder does not exist."""
    return cached_folder(key_of(npu, library), lambda folder: build(needs_of(npu), library, folder))


def cached_folder(name: str, make: Callable[[Path], None]) -> Path:
    """Return the cache's folder ``name``. If it does not exist or lacks files, ``make`` fills a new one.

    Raises:
        Unavailable: the cache cannot be written, or other users may write it.
    """
    folder = cache_folder() / name
    if folder.is_dir():
        _of_this_user(folder)
        if _is_whole(folder):
            return folder
    try:
        folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        unfinished = Path(tempfile.mkdtemp(prefix=".draft-", dir=folder.parent))
    except OSError as error:
        raise _no_cache(folder.parent, "made", error) from None
    try:
        make(unfinished)
        (unfinished / _LIST).write_text(_sizes_of_files(unfinished) + _END_OF_LIST)
        unfinished.chmod(0o755)
        if folder.is_dir() and not _is_whole(folder):
            damaged = unfinished.with_name(f"{unfinished.name}-damaged")
            with suppress(OSError):  # another process does the same
                folder.rename(damaged)
            shutil.rmtree(damaged, ignore_errors=True)
        with suppress(OSError):  # another process has made the folder; its contents are the same
            unfinished.rename(folder)
    except OSError as error:
        raise _no_cache(folder.parent, "written", error) from None
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    if not folder.is_dir():
        raise Unavailable("cache", f"{folder} cannot be made", "Name another folder: XDG_CACHE_HOME=PATH.")
    return _of_this_user(folder)


def _sizes_of_files(folder: Path) -> str:
    """Return a line for each file of a folder: its size and its name. A link has the size of its target."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return "".join(f"{path.stat().st_size} {path.relative_to(folder)}\n" for path in files)


def _is_whole(folder: Path) -> bool:
    """Return whether a folder of the cache has all files that it was made with. Programs that tidy up caches
    remove some of them."""
    try:
        text, whole, _ = (folder / _LIST).read_text().partition(_END_OF_LIST)
        listed = (line.split(" ", 1) for line in text.splitlines())
        return bool(whole) and all((folder / name).stat().st_size == int(size) for size, name in listed)
    except (OSError, ValueError):
        return False


def _no_cache(folder: Path, what: str, error: OSError) -> Unavailable:
    cause = f"{folder} cannot be {what}: {cause_of(error)}"
    return Unavailable("cache", cause, "Name a folder one may write in: XDG_CACHE_HOME=PATH.")


def _of_this_user(folder: Path) -> Path:
    """Return the cache's folder; refuse one that another user may have filled, because programs load it."""
    for path in (folder.parent, folder):
        if not is_own_folder(path.resolve()):
            remedy = f"Remove it, or chmod go-w '{path}', or name another folder: XDG_CACHE_HOME=PATH."
            raise Unavailable("cache", f"{path} is one that other users may write", remedy)
    return folder


def build(needs: Needs, library: Path, folder: Path) -> None:
    """Compile the stubs and the libraries that ``needs`` names into ``folder``."""
    missing = sorted(set(needs.symbols) - Elf.read(library).defined)
    source = folder / "stubs.cpp"
    source.write_text(source_of(missing))
    compile_so = [*shlex.split(compiler()), "-shared", "-fPIC", "-w"]
    cann_flags = [f"-L{library.parent}", "-Wl,--no-as-needed", f"-l:{library.name}"]
    flags = ["-O1", f"-Wl,-soname,{STUBS}", *cann_flags]
    _compile([*compile_so, str(source), *flags, "-o", str(folder / STUBS)], folder)
    empty = folder / "empty.cpp"
    empty.write_text("")
    for soname in needs.sonames:
        flags = [*cann_flags, f"-L{folder}", f"-l:{STUBS}"]
        command = [*compile_so, str(empty), f"-Wl,-soname,{soname}", *flags, "-o", str(folder / soname)]
        _compile(command, folder)
    empty.unlink()


def _compile(command: list[str], folder: Path) -> None:
    status, errors = run_compiler(command, folder, COMPILE_SECONDS)
    if status != 0:
        first = "\n".join(errors.strip().splitlines()[:5])
        raise Unavailable("C++ compiler", f"{command[0]} failed:\n{first}", COMPILER_REMEDY)
