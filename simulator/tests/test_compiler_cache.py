"""ascend_sim.build compiles a text once, and again if anything changes that the compiler reads."""

from __future__ import annotations

import ctypes
import fcntl
import multiprocessing
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import ascend_sim
import pytest
from ascend_sim import compiler

NEEDS_CLANG = pytest.mark.skipif(shutil.which("clang++-14") is None, reason="no clang++-14")
# A text that compiles in less time than a kernel.
SOURCE = """
#include "factor.h"
extern "C" __attribute__((visibility("default"))) int factor_of_this_library() {
    return FACTOR;
}
"""
FACTOR_2 = "#ifndef FACTOR\n#define FACTOR 2\n#endif\n"


def write_project(folder):
    (folder / "factor.cpp").write_text(SOURCE)
    (folder / "factor.h").write_text(FACTOR_2)
    return folder


@pytest.fixture
def project(tmp_path):
    return write_project(tmp_path)


def build(project, more=(), **options):
    return ascend_sim.build(project / "factor.cpp", folder=project / "out", flags=["-O0", *more], **options)


def factor_of(library):
    return ctypes.CDLL(str(library)).factor_of_this_library()


def test_the_same_text_is_compiled_once(project):
    library = build(project)
    written = library.stat().st_mtime_ns
    assert (build(project), library.stat().st_mtime_ns) == (library, written)


def compiler_that_runs(project, commands, monkeypatch, *, preprocesses=False):
    """Let a script compile kernels. It runs the compiler, then these commands of a shell: when it
    preprocesses, or when it compiles."""
    script, test = project / "compile.sh", "=" if preprocesses else "!="
    check = f'case " $* " in *" -E "*) p=1 ;; *) p=0 ;; esac\n[ $p {test} 1 ] || exit 0'
    script.write_text(f'#!/bin/sh\n{compiler.compiler()} "$@" || exit\n{check}\ncd {project}\n{commands}\n')
    script.chmod(0o755)
    monkeypatch.setenv("CXX", str(script))


@pytest.mark.parametrize("preprocesses", [True, False])
@pytest.mark.parametrize("name", ["factor.h", "factor.cpp"])
def test_a_file_that_is_saved_during_the_compilation_is_read_by_the_next_call(
    project, name, preprocesses, monkeypatch
):
    text = (project / name).read_text()
    (project / "saved").write_text(text.replace("FACTOR 2", "FACTOR 7").replace("FACTOR;", "7;"))
    commands = f"test -e done || {{ touch done; cp saved {name}; }}"
    compiler_that_runs(project, commands, monkeypatch, preprocesses=preprocesses)
    assert factor_of(build(project)) == 2
    assert (project / "done").exists()
    library = build(project)
    assert factor_of(library) == 7
    assert build(project) == library


@pytest.mark.parametrize("how", ["moved", "linked", "folder moved", "appeared"])
def test_another_file_that_takes_a_place_during_the_compilation_is_read_by_the_next_call(
    project, how, monkeypatch
):
    for number, factor in enumerate((FACTOR_2, "#define FACTOR 7\n"), 1):
        (project / f"v{number}").mkdir()
        (project / f"v{number}" / "factor.h").write_text(factor)
    (project / "factor.h").unlink()
    (project / "now").symlink_to("v1")
    (project / "empty").mkdir()
    times = project.stat().st_mtime - 100
    os.utime(project / "v2" / "factor.h", (times, times))
    changes = {
        "moved": "mv v2/factor.h v1/factor.h",
        "linked": "ln -sfn v2 now",
        "folder moved": "mv v1 v0; mv v2 v1",
        "appeared": "cp v2/factor.h empty/factor.h",
    }
    compiler_that_runs(project, f"test -e done || {{ touch done; {changes[how]}; }}", monkeypatch)
    include = [project / "empty", project / "now"]
    assert factor_of(build(project, include=include)) == 2
    assert factor_of(build(project, include=include)) == 7


def test_a_kernel_is_compiled_once(project, monkeypatch):
    compiler_that_runs(project, "echo x >>runs", monkeypatch)
    assert build(project) == build(project)
    assert (project / "runs").read_text() == "x\n"


@pytest.mark.long
def test_a_compiler_that_was_ended_and_goes_on_changes_no_later_result(project, monkeypatch):
    """A compiler that gets no signal writes its result after the next call has begun."""
    started = project / "started"
    compiler_that_runs(project, f"touch {started}; sleep 3", monkeypatch)
    code = (
        "import sys, ascend_sim\n"
        "ascend_sim.build(sys.argv[1] + '/factor.cpp', folder=sys.argv[1] + '/out', flags=['-O0'])\n"
    )
    with subprocess.Popen([sys.executable, "-c", code, str(project)]) as process:
        while not started.exists():
            time.sleep(0.01)
        process.kill()
    (project / "factor.h").write_text("#define FACTOR 7\n")
    monkeypatch.delenv("CXX")
    assert factor_of(build(project)) == 7
    time.sleep(3)
    assert factor_of(build(project)) == 7


@pytest.mark.long
def test_an_interrupt_ends_the_compiler_and_leaves_no_file(project, monkeypatch):
    compiler_that_runs(project, "touch started; exec sleep 60", monkeypatch)
    command = [
        sys.executable,
        "-m",
        "ascend_sim",
        "kernel",
        str(project / "factor.cpp"),
        "factor",
        "out:float32[8]",
    ]
    environment = {**os.environ, "TMPDIR": str(project)}
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        (project / "started").unlink(missing_ok=True)
        with subprocess.Popen(
            command,
            env=environment,
            stderr=subprocess.PIPE,
            text=True,
            # A shell's background processes ignore interrupts, and their children do, too.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        ) as process:
            while not (project / "started").exists():
                time.sleep(0.01)
            process.send_signal(number)
            _, errors = process.communicate(timeout=30)
        assert (process.returncode, errors) == (130, "[ascend-sim] interrupted.\n")
        (results,) = project.glob("ascend_sim-*")
        assert {path.suffix for path in results.iterdir()} <= {".lock"}
    sleeping = subprocess.run(
        ["pgrep", "-f", "-x", "sleep 60"], capture_output=True, text=True
    ).stdout.split()
    assert not [pid for pid in sleeping if os.readlink(f"/proc/{pid}/cwd") == str(project)]


@pytest.mark.parametrize(
    "form",
    [
        "absolute",
        "has_include and a comment",
        "include from here",
        "options",
        "options in options",
        "compiler",
        "object",
        "object in options",
        "archive",
        "static library",
        "incbin",
        "incbin of an include folder",
        "incbin of a macro",
        "incbin in capitals",
        "incbin in parts",
        "incbin below a comment",
        "incbin after spaces",
        "incbin below a raw string",
        "incbin in octal digits",
        "include of the assembler",
    ],
)
def test_whatever_the_compiler_reads_gives_another_library(project, form, monkeypatch, tmp_path_factory):
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    monkeypatch.chdir(project)
    options = {}
    after = "#define FACTOR 3\n"
    if form == "absolute":
        (elsewhere / "all.h").write_text('#include "more.h"\n')
        (project / "more.h").write_text(FACTOR_2)
        (project / "factor.h").write_text(f'#include "{elsewhere}/all.h"\n')
        change = elsewhere / "more.h"
    elif form.startswith("has_include"):
        text = '#if __has_include /* here */ ("more.h")\n#include "more.h"\n#endif\n'
        (project / "factor.h").write_text(text + FACTOR_2)
        change = project / "more.h"
    elif form == "include from here":
        (elsewhere / "before.h").write_text("")
        options = {"more": ["-include", "before.h"], "include": [elsewhere]}
        change = project / "before.h"
    elif form.startswith("options"):
        change, after = project / "options", "-DFACTOR=3"
        change.write_text("-DFACTOR=2")
        (project / "outer").write_text(f"@{change}")
        options = {"more": ["@outer" if form == "options in options" else f"@{change}"]}
    elif form.startswith("inc"):
        change, after = (project if form == "incbin" else elsewhere) / "factor.txt", "3"
        file, options = r"\"factor.txt\"", {"include": [elsewhere]}
        if form == "include of the assembler":
            change, after, file = elsewhere / "factor.s", ".byte '3'", r"\"factor.s\""
        change.write_text(after.replace("3", "2"))
        directive = ".include" if after.startswith(".") else ".incbin"
        directive = {"incbin in capitals": ".INCBIN", "incbin in parts": '.inc" "bin'}.get(form, directive)
        assembler = rf'".section .rodata\nfactor: {directive} " FILE "\n.byte 0\n.text"'
        if form != "incbin of a macro":
            assembler = assembler.replace('" FILE "', file)
        if form == "incbin in octal digits":
            assembler = assembler.replace(".", r"\056")
        if form == "incbin below a comment":
            assembler = assembler.replace('"', "\n" + "// of the assembler\n" * 10 + '"', 1)
        if form == "incbin after spaces":
            assembler = assembler.replace('"', "\n" + " " * 200 + '"', 1)
        if form == "incbin below a raw string":
            assembler = 'R"(\n# of the assembler)" "\\n" ' + assembler
        hidden = '__attribute__((visibility("hidden")))'
        text = f'#define FILE "{file}"\n__asm__({assembler});\nextern "C" {hidden} const char factor[];\n'
        (project / "factor.h").write_text(f"{text}#define FACTOR (factor[0] - '0')\n")
    elif form.startswith(("object", "archive", "static")):
        (project / "factor.h").write_text("int factor();\n#define FACTOR factor()\n")
        kind = ".o" if form.startswith("object") else ".a"
        for number in (3, 2):
            (elsewhere / "factor.cpp").write_text(f"int factor() {{ return {number}; }}\n")
            command = [*shlex.split(compiler.compiler()), "-fPIC", "-c", "factor.cpp", "-o", f"{number}.o"]
            subprocess.run(command, cwd=elsewhere, check=True)
            subprocess.run(["ar", "rc", f"{number}.a", f"{number}.o"], cwd=elsewhere, check=True)
        change, after = project / f"libfactor{kind}", (elsewhere / f"3{kind}").read_bytes()
        shutil.copy(elsewhere / f"2{kind}", change)
        (project / "options").write_text(str(change))
        options = {
            "object": {"more": [str(change)]},
            "object in options": {"more": ["@options"]},
            "archive": {"more": [f"-Wl,--whole-archive,{change},--no-whole-archive"]},
            "static library": {
                "more": ["-Wl,--whole-archive", f"-L{project}", "-lfactor", "-Wl,--no-whole-archive"]
            },
        }[form]
    else:
        change = project / "compile.sh"
        after = f'#!/bin/sh\nexec {compiler.compiler()} "$@" -DFACTOR=3\n'
        change.write_text(after.replace("-DFACTOR=3", "-O0"))
        change.chmod(0o755)
        monkeypatch.setenv("CXX", str(change))
    assert factor_of(build(project, **options)) == 2
    change.write_bytes(after if isinstance(after, bytes) else after.encode())
    assert factor_of(build(project, **options)) == 3
    assert factor_of(build(project, **options)) == 3


@pytest.mark.parametrize("name", ["g++", pytest.param("clang++-14", marks=NEEDS_CLANG)])
@pytest.mark.parametrize("flags", [["-Xpreprocessor", "-DFACTOR=3"], ["-Werror", "-Wp,-DFACTOR=3"]])
def test_options_of_every_form_reach_both_steps(project, name, flags, monkeypatch):
    monkeypatch.setenv("CXX", name)
    assert factor_of(build(project, flags)) == 3


def test_a_source_among_the_flags_is_refused(project):
    (project / "more.cpp").write_text("")
    rule = r"\[sim\] flags must have no source but got .*more\.cpp: include it in factor\.cpp\."
    with pytest.raises(ValueError, match=rule):
        build(project, [str(project / "more.cpp")])


def test_an_error_in_a_macro_names_the_line_of_the_macro(project):
    (project / "factor.h").write_text("\n#define FACTOR undeclared\n")
    with pytest.raises(ascend_sim.CompileFailed, match=r"factor\.h:2:16: error: .*undeclared"):
        build(project)


def test_the_files_of_killed_compilations_are_removed(project):
    build(project)
    for name in ("killed", "running"):
        (project / "out" / f".unfinished-{name}").mkdir()
        (project / "out" / f".unfinished-{name}" / "scale.ii").write_text("")
    descriptor = os.open(project / "out" / ".unfinished-running", os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    build(project)
    os.close(descriptor)
    assert [path.name for path in (project / "out").glob(".unfinished-*")] == [".unfinished-running"]


@pytest.mark.parametrize(
    "name", ["a#b", "a$b", "a b", "tab\tx", "new\nline", "trail\\ x", "a:b", "%s", "é", "back\\slash"]
)
def test_a_change_is_seen_in_folders_of_every_name(name, tmp_path):
    project = tmp_path / name
    project.mkdir()
    write_project(project)
    assert factor_of(build(project)) == 2
    (project / "factor.h").write_text("#define FACTOR 5\n")
    assert factor_of(build(project)) == 5
    (project / "factor.cpp").write_text(SOURCE.replace("FACTOR", "11"))
    assert factor_of(build(project)) == 11


def test_a_header_in_a_folder_of_the_environment_gives_another_library(project, monkeypatch):
    (project / "factor.h").unlink()
    for number in (3, 4):
        (project / f"p{number}").mkdir()
        (project / f"p{number}" / "factor.h").write_text(f"#define FACTOR {number}\n")
        monkeypatch.setenv("CPATH", str(project / f"p{number}"))
        assert factor_of(build(project)) == number


@pytest.mark.parametrize("form", ["another folder", "has_include", "has_include of a macro", "system"])
def test_a_header_that_appears_gives_another_library(project, form):
    folders = [project / "first", project / "second"]
    for folder in folders:
        folder.mkdir()
    (project / "factor.h").unlink()
    asks = form.startswith("has_include")
    text = FACTOR_2
    if asks:
        name = "MORE" if "macro" in form else '"more.h"'
        text = f'#define MORE "more.h"\n#if __has_include({name})\n#include "more.h"\n#endif\n' + FACTOR_2
    (folders[1] / "factor.h").write_text(text)
    options = {"include": folders}
    if form == "system":
        options = {"more": [word for folder in folders for word in ("-isystem", str(folder))]}
    before = build(project, **options)
    assert factor_of(before) == 2
    (folders[0] / ("more.h" if asks else "factor.h")).write_text("#define FACTOR 3\n")
    after = build(project, **options)
    assert factor_of(after) == 3
    assert factor_of(build(project, **options)) == 3
    assert "macro" in form or factor_of(before) == 2


@pytest.mark.parametrize("damage", ["empty", "short", "zeros", "folder"])
def test_a_damaged_result_is_compiled_again(project, damage):
    library = build(project)
    contents = library.read_bytes()
    if damage == "folder":
        library.rename(library.with_name(f"{library.stem}0.so"))
        library.with_name(f"{library.stem}1.so").mkdir()
    else:
        library.write_bytes({"empty": b"", "short": contents[:3000], "zeros": bytes(len(contents))}[damage])
    assert factor_of(build(project)) == 2
    assert build(project) == library
    assert {path.suffix for path in (project / "out").iterdir()} == {".so", ".lock"}


def test_a_full_disk_during_a_compilation_leaves_nothing(project, monkeypatch):
    script = project / "full.sh"
    script.write_text("#!/bin/sh\necho 'cc1plus: fatal error: x.s: No space left on device' >&2\nexit 1\n")
    script.chmod(0o755)
    monkeypatch.setenv("CXX", str(script))
    with pytest.raises(OSError, match="No space left on device"):
        build(project)
    assert {path.suffix for path in (project / "out").iterdir()} == {".lock"}


def test_a_kernel_that_speaks_of_a_full_disk_does_not_compile(project):
    (project / "factor.h").write_text("#error No space left on device\n")
    with pytest.raises(ascend_sim.CompileFailed, match="#error No space left on device"):
        build(project)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (" ", r"C\+\+ compiler must be available but CXX names no program: ' '"),
        ("nosuch-compiler -O2", "CXX names no program: 'nosuch-compiler -O2'"),
        ("/etc", "CXX names no program: '/etc'"),
        ("true", r"true wrote no file: is it a C\+\+ compiler\?"),
        ("false", "false ended with status 1 and no message"),
        ("g++ 'x", 'CXX is "g\\+\\+ \'x": No closing quotation'),
        ("./text", "./text does not run: Exec format error"),
        ("./script", "./script does not run: No such file or directory"),
        ("./folder", "./folder wrote no file"),
    ],
)
def test_a_cxx_that_is_no_compiler_is_refused(project, name, message, monkeypatch):
    monkeypatch.setenv("CXX", name)
    monkeypatch.chdir(project)
    makes_a_folder = '#!/bin/sh\nfor last; do :; done\nmkdir "$last"\n'
    for file, text in (("text", "no program"), ("script", "#!/no/shell\n"), ("folder", makes_a_folder)):
        (project / file).write_text(text)
        (project / file).chmod(0o755)
    with pytest.raises((ascend_sim.Unavailable, ascend_sim.CompileFailed), match=message):
        build(project)
    assert not [path for path in (project / "out").rglob("*") if path.suffix != ".lock"]


def test_a_changed_header_gives_another_library_in_the_same_process(project):
    before = build(project)
    assert factor_of(before) == 2
    (project / "factor.h").write_text("#define FACTOR 5\n")
    after = build(project)
    assert factor_of(after) == 5
    (project / "factor.h").write_text(FACTOR_2)
    assert build(project) == before


def test_another_macro_or_chip_gives_another_library(project):
    libraries = {build(project), build(project, defines={"FACTOR": "7"}), build(project, soc="ascend310p")}
    assert len(libraries) == 3
    assert factor_of(build(project, defines={"FACTOR": "7"})) == 7


@pytest.mark.long
def test_two_threads_compile_a_kernel_once(project, monkeypatch):
    compiler_that_runs(project, "echo x >>runs; sleep 1", monkeypatch)
    with ThreadPoolExecutor(2) as threads:
        first, second = threads.map(build, [project] * 2)
    assert first == second
    assert (project / "runs").read_text() == "x\n"


@NEEDS_CLANG
def test_options_in_clangs_variable_give_another_library(project, monkeypatch):
    monkeypatch.setenv("CXX", "clang++-14 -DFACTOR=3")
    before = build(project)
    monkeypatch.setenv("CCC_OVERRIDE_OPTIONS", "# x-O0 +-O1")  # no other preprocessed text
    assert build(project) != before
    monkeypatch.delenv("CCC_OVERRIDE_OPTIONS")
    assert build(project) == before


def test_a_child_that_is_forked_during_a_compilation_blocks_no_later_one(project, monkeypatch):
    compiler_that_runs(project, "touch started; sleep 0.5", monkeypatch)
    with ThreadPoolExecutor(1) as threads:
        compilation = threads.submit(build, project)
        while not (project / "started").exists():
            time.sleep(0.01)
        child = multiprocessing.get_context("fork").Process(target=time.sleep, args=(60,))
        child.start()
        library = compilation.result()
    (project / "started").unlink()
    with ThreadPoolExecutor(1) as threads:
        again = threads.submit(build, project)
        try:
            assert again.result(timeout=10) == library
        finally:
            child.kill()
            child.join()


FALLS_THROUGH = """
inline int more(int n) {
    switch (n) {
        case 1:
            ++n;
            // fall through
        case 2:
            return n;
    }
    return 0;
}
"""
COMPARES = """
#define IS(a, b) ((a) == (b))
inline int more(int n) {
    if (IS(n, 1)) return 2;
    return 3;
}
"""


@pytest.mark.parametrize(
    ("name", "warning", "text"),
    [
        ("g++", "-Wimplicit-fallthrough", FALLS_THROUGH),
        pytest.param("clang++-14", "-Wparentheses-equality", COMPARES, marks=NEEDS_CLANG),
    ],
)
def test_the_preprocessor_causes_no_warning_that_is_an_error(project, name, warning, text, monkeypatch):
    """The comment is gone in the preprocessed text, and the parentheses are not those of a macro."""
    (project / "factor.h").write_text(f"{text}#define FACTOR 3 + more(1)\n")
    for error in (["-Werror", warning], [f"-Werror={warning[2:]}"]):
        monkeypatch.setenv("CXX", shlex.join([name, *error]))
        assert factor_of(build(project)) == 5
    (project / "factor.h").write_text("inline int more(int n) { n == 1; return n; }\n#define FACTOR 5\n")
    monkeypatch.setenv("CXX", f"{name} -Wall -Werror")
    with pytest.raises(ascend_sim.CompileFailed, match="unused"):
        build(project)


def test_a_language_among_the_flags_does_not_reach_the_libraries(project):
    assert factor_of(build(project, ["-x", "c++"])) == 2


@pytest.mark.parametrize(
    ("option", "is_known"),
    [
        ("-fsanitize=address,undefined", True),
        ("-fno-inline", True),
        ("-march=x86-64-v3", True),
        ("-fsanitize-coverage-allowlist=allow", False),
        ("-fxray-attr-list=list", False),
        ("-fprofile-use", False),
        ("-fdump-tree-optimized", False),
        ("-Wl,-rpath,here", False),
        ("-fplugin=x", False),
    ],
)
def test_only_known_options_let_a_result_be_kept(option, is_known):
    assert compiler._is_known(["g++", *compiler.FLAGS, option, "-include", "x.cpp"]) == is_known


def test_a_source_may_be_included_by_an_option(project):
    (project / "before.cpp").write_text("#define FACTOR 3\n")
    assert factor_of(build(project, ["-include", str(project / "before.cpp")])) == 3
