"""Stubs for a small fake torch_npu: its needs, the built libraries, a stub's failure. Needs a compiler."""

import ctypes
import os
import re
import resource
import stat
import subprocess
import sys

import pytest
from ascend_sim import compiler, folders
from ascend_sim.errors import Unavailable
from ascend_sim.programs import find_torch_npu, stubs

# The source of a library that links libascendcl and libatb. Its undefined symbols are functions of CANN in C
# and C++, of the C library, of Python, of torch and of the wheel's libraries, and a weak symbol that no
# library has.
TORCH_NPU = """
extern "C" {
int aclrtMadeUp(int); int aclrtMalloc(void**, unsigned long, int); void* acltdtCreateMadeUp();
int getpid(); void* PyList_New(long); int of_torch(); int of_wheel();
__attribute__((weak)) int weak_and_undefined();
}
namespace ge { struct Graph { int MadeUp(); }; }
extern "C" int use() {
    ge::Graph graph;
    return aclrtMadeUp(1) + aclrtMalloc(0, 0, 0) + (acltdtCreateMadeUp() != 0)
        + getpid() + (PyList_New(0) != 0)
        + of_torch() + of_wheel() + graph.MadeUp() + (weak_and_undefined ? 1 : 0);
}
"""


def build_library(folder, name, source, *needed):
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"lib{name}.so"
    command = [compiler.compiler(), "-shared", "-fPIC", "-x", "c++", "-", "-x", "none"]
    command += [f"-Wl,-soname,{path.name}", "-o", str(path), "-Wl,--no-as-needed", *map(str, needed)]
    subprocess.run(command, input=source, text=True, check=True)
    return path


@pytest.fixture(scope="module")
def torch_npu(tmp_path_factory):
    site = tmp_path_factory.mktemp("site")
    cann = [build_library(site / "absent", name, "") for name in ("ascendcl", "atb")]
    torch = build_library(site / "torch" / "lib", "torch", 'extern "C" int of_torch() { return 0; }')
    wheel = build_library(site / "torch_npu.libs", "gomp-1234", 'extern "C" int of_wheel() { return 0; }')
    build_library(site / "torch_npu" / "lib", "torch_npu", TORCH_NPU, *cann, torch, wheel)
    return find_torch_npu.TorchNpu("9.9.9", site / "torch_npu", site / "torch")


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "ascend-sim"


@pytest.fixture(scope="module")
def library():
    return folders.library("ascend_sim_cann")


def test_needs_are_only_cann_s(torch_npu):
    needs = stubs.needs_of(torch_npu)
    assert needs.sonames == (
        "libascendcl.so",
        "libatb.so",
        "libhcomm.so",
        "libnnopbase.so",
        "libopapi.so",
    )
    assert needs.symbols == ("_ZN2ge5Graph6MadeUpEv", "aclrtMadeUp", "aclrtMalloc", "acltdtCreateMadeUp")


def test_a_torch_of_another_version_is_refused(tmp_path):
    source = "namespace at { int gone(); }\nint use() { return at::gone(); }"
    build_library(tmp_path / "torch_npu", "torch_npu", source)
    npu = find_torch_npu.TorchNpu("9.9.9", tmp_path / "torch_npu", tmp_path / "torch")
    with pytest.raises(Unavailable) as e:
        stubs.needs_of(npu)
    assert str(e.value) == (
        "[sim] torch must be available but it lacks 1 symbols of torch_npu 9.9.9, such as _ZN2at4goneEv.\n"
        "Install the same version of torch and torch_npu."
    )


@pytest.mark.long
def test_libraries_are_made_once_and_link_to_stubs_and_runtime(torch_npu, library, cache):
    folder = stubs.prepare(torch_npu, library)
    assert folder.parent == cache
    assert re.fullmatch(r"9\.9\.9-[0-9a-f]{16}", folder.name)
    names = {path.name for path in folder.iterdir() if path.suffix == ".so"}
    assert names == {*stubs.needs_of(torch_npu).sonames, stubs.STUBS}
    assert stubs.Elf.read(folder / "libatb.so").needed[:2] == (library.name, stubs.STUBS)
    defined = stubs.Elf.read(folder / stubs.STUBS).defined
    assert {"aclrtMadeUp", "acltdtCreateMadeUp", "_ZN2ge5Graph6MadeUpEv"} <= defined
    assert "aclrtMalloc" not in defined  # the runtime has it
    before = (folder / stubs.STUBS).stat().st_mtime_ns
    assert stubs.prepare(torch_npu, library) == folder
    assert (folder / stubs.STUBS).stat().st_mtime_ns == before
    assert list(cache.iterdir()) == [folder]


@pytest.mark.long
def test_the_wheel_s_symbols_are_all_found_through_the_made_libraries(torch_npu, library, cache):
    folder = stubs.prepare(torch_npu, library)
    use = torch_npu.folder / "lib" / "libtorch_npu.so"
    source = f"import ctypes; ctypes.CDLL({str(use)!r}, mode=2)  # RTLD_NOW"
    paths = [
        folder,
        library.parent,
        torch_npu.torch_folder / "lib",
        torch_npu.folder.parent / "torch_npu.libs",
    ]
    environment = {**os.environ, "LD_LIBRARY_PATH": ":".join(map(str, paths))}
    subprocess.run([sys.executable, "-c", source], env=environment, check=True)


def test_a_status_stub_returns_an_error_that_names_the_missing_function(torch_npu, library, cache, capfd):
    folder = stubs.prepare(torch_npu, library)
    cann = ctypes.CDLL(str(library))
    cann.aclGetRecentErrMsg.restype = ctypes.c_char_p
    assert ctypes.CDLL(str(folder / stubs.STUBS)).aclrtMadeUp(1) == 200001
    message = (
        "simulated CANN: aclrtMadeUp is not simulated. Report it to the project, or contribute it in "
        "simulator/cann/runtime/."
    )
    assert cann.aclGetRecentErrMsg().decode() == message
    assert capfd.readouterr().err == message + "\n"


@pytest.mark.parametrize(
    ("symbol", "message"),
    [("_ZN2ge5Graph6MadeUpEv", "ge::Graph::MadeUp()"), ("acltdtCreateMadeUp", "acltdtCreateMadeUp")],
)
def test_any_other_stub_throws(torch_npu, library, cache, symbol, message):
    stub = stubs.prepare(torch_npu, library) / stubs.STUBS
    source = f"import ctypes; ctypes.CDLL({str(stub)!r}).{symbol}()"
    environment = {**os.environ, "LD_LIBRARY_PATH": str(library.parent)}
    done = subprocess.run([sys.executable, "-c", source], env=environment, capture_output=True, text=True)
    assert done.returncode == -6  # an uncaught exception; torch would make it a Python exception
    assert f"{message} is not simulated" in done.stderr


def test_another_library_has_another_key(torch_npu, library, tmp_path):
    other = tmp_path / library.name
    other.write_bytes(library.read_bytes() + b" ")
    assert stubs.key_of(torch_npu, library) != stubs.key_of(torch_npu, other)
    assert stubs.key_of(torch_npu, library) == stubs.key_of(torch_npu, library)


def test_without_a_compiler_the_error_has_a_remedy(torch_npu, library, cache, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(
        Unavailable, match=r"\[sim\] C\+\+ compiler must be available but none was found"
    ) as e:
        stubs.prepare(torch_npu, library)
    assert "apt install g++" in str(e.value)
    assert not list(cache.iterdir())


def test_a_compiler_that_fails_is_quoted_and_leaves_nothing(torch_npu, library, cache, monkeypatch, tmp_path):
    compiler = tmp_path / "g++"
    compiler.write_text("#!/bin/sh\necho no such thing as C++ >&2\nexit 1\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    with pytest.raises(Unavailable, match="no such thing as C"):
        stubs.prepare(torch_npu, library)
    assert not list(cache.iterdir())


def test_a_cache_that_cannot_be_written_is_named(torch_npu, library, monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(Unavailable, match="XDG_CACHE_HOME=PATH"):
        stubs.prepare(torch_npu, library)


def test_the_later_of_two_builds_uses_the_first_one_s_libraries(torch_npu, library, cache, monkeypatch):
    real_build = stubs.build

    def build_while_another_is_first(needs, lib, folder):
        real_build(needs, lib, folder)
        stubs.cached_folder(stubs.key_of(torch_npu, library), lambda winner: (winner / "first").touch())

    monkeypatch.setattr(stubs, "build", build_while_another_is_first)
    folder = stubs.prepare(torch_npu, library)
    assert (folder / "first").exists()
    assert list(cache.iterdir()) == [folder]


@pytest.mark.parametrize(
    "damage",
    ["no file", "a shorter file", "a link to nothing", "no list", "an empty list", "a shorter list"],
)
def test_a_damaged_folder_is_made_again(cache, damage, tmp_path):
    (tmp_path / "library").write_text("library")

    def make(folder):
        (folder / "lib").mkdir()
        (folder / "lib" / "a").write_text("a file")
        (folder / "link").symlink_to(tmp_path / "library")

    folder = stubs.cached_folder("made", make)
    assert stubs.cached_folder("made", None) == folder
    if damage == "no file":
        (folder / "lib" / "a").unlink()
    elif damage == "a shorter file":
        (folder / "lib" / "a").write_text("")
    elif damage == "a link to nothing":
        (folder / "link").unlink()
        (folder / "link").symlink_to(tmp_path / "nothing")
    elif damage == "no list":
        (folder / ".files").unlink()
    else:
        (folder / "link").unlink()
        kept = {"an empty list": 0, "a shorter list": 1}[damage]
        lines = (folder / ".files").read_text().splitlines(keepends=True)
        (folder / ".files").write_text("".join(lines[:kept]))
    assert stubs.cached_folder("made", make) == folder
    assert (folder / "lib" / "a").read_text() == "a file"
    assert (folder / "link").read_text() == "library"
    assert list(cache.iterdir()) == [folder]


@pytest.mark.parametrize("place", ["the cache", "the folder in it"])
def test_a_cache_that_others_may_write_is_refused(cache, place):
    folder = stubs.cached_folder("made", lambda folder: (folder / "x.so").touch())
    assert stat.S_IMODE(cache.stat().st_mode) == 0o700
    assert stubs.cached_folder("made", lambda folder: pytest.fail("it is cached")) == folder
    path = cache if place == "the cache" else folder
    path.chmod(0o777)
    with pytest.raises(
        Unavailable, match=f"cache must be available but {path} is one that other users may write"
    ):
        stubs.cached_folder("made", lambda folder: None)


# ---- a full disk --------------------------------------------------------------------------------------


@pytest.fixture
def small_files():
    """Limit files to 100 bytes. A larger write fails with EFBIG, as one on a full disk with ENOSPC."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_cache_without_room_keeps_no_draft(small_files, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(Unavailable, match=r"cache must be .* cannot be written: File too large"):
        stubs.cached_folder("made", lambda folder: (folder / "x.so").write_text("x" * 1000))
    assert list((tmp_path / "ascend-sim").iterdir()) == []


def test_a_compiler_without_room_keeps_no_draft_and_is_named(small_files, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    needs = stubs.Needs(sonames=(), symbols=())
    monkeypatch.setattr(stubs, "source_of", lambda symbols: "int x[99];")
    library = folders.library("ascend_sim_cann")
    with pytest.raises(Unavailable, match=r"\[sim\] C\+\+ compiler must be available but .* failed:"):
        stubs.cached_folder("made", lambda folder: stubs.build(needs, library, folder))
    assert list((tmp_path / "ascend-sim").iterdir()) == []


@pytest.mark.parametrize("value", ["", "relative/cache", "."])
def test_a_relative_folder_of_caches_is_ignored(monkeypatch, tmp_path, value):
    """XDG Base Directory Specification, section 2."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", value)
    assert stubs.cache_folder() == tmp_path / ".cache" / "ascend-sim"
