"""The toolkit folder, and C programs that are compiled with it and run on the simulated CANN."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from ascend_sim.cli.app import app
from ascend_sim.programs import toolkit
from full_disk import run_with_pages
from typer.testing import CliRunner

C99 = ("cc", "-std=c99", "-Wall", "-Werror")
CPP11 = ("c++", "-std=c++11", "-Wall", "-Werror")


def ascend_sim(*arguments, **variables):
    return CliRunner(env=variables).invoke(app, [*map(str, arguments)])


def run_command(*arguments):
    return ascend_sim("run", *arguments)


def machine():
    return os.uname().machine


# ---- the folder --------------------------------------------------------------------------------------


@pytest.mark.parametrize("compiler", [C99, CPP11], ids=["c", "c++"])
def test_every_header_compiles(tmp_path, compiler):
    folder = tmp_path / "cann"
    assert ascend_sim("toolkit", folder).stdout.splitlines() == [str(folder)]
    headers = sorted(path.relative_to(folder / "include") for path in (folder / "include").rglob("*.h"))
    assert len(headers) > 1000
    assert Path("securec.h") in headers
    source = tmp_path / ("all.c" if compiler is C99 else "all.cpp")
    source.write_text("".join(f'#include "{header}"\n' for header in headers))
    subprocess.run([*compiler, "-fsyntax-only", f"-I{folder}/include", source], check=True)


def test_the_folder_is_written_again_but_not_over_other_files(tmp_path):
    folder = tmp_path / "cann"
    assert ascend_sim("toolkit", folder).exit_code == 0
    assert ascend_sim("toolkit", folder).exit_code == 0
    other = tmp_path / "other"
    other.mkdir()
    (other / "file").touch()
    refused = ascend_sim("toolkit", other)
    assert refused.exit_code == 2
    assert refused.stderr == f"[sim] folder must be new, empty or an earlier toolkit but got {other}.\n"
    assert [path.name for path in other.iterdir()] == ["file"]


def test_two_commands_at_once_both_write_the_folder(tmp_path):
    command = [sys.executable, "-m", "ascend_sim", "toolkit", str(tmp_path / "cann")]
    alone = tmp_path / "alone"
    assert ascend_sim("toolkit", alone).exit_code == 0
    running = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    assert [(process.communicate()[1], process.returncode) for process in running] == [("", 0)] * 2
    names = [
        sorted(path.relative_to(root) for path in root.rglob("*")) for root in (tmp_path / "cann", alone)
    ]
    assert names[0] == names[1]


def test_a_folder_without_a_name_is_refused_and_the_current_one_is_named(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.chdir(tmp_path)
    for folder, message in (
        ("", "must be a path but got an empty text."),
        (".", f"must be new, empty or an earlier toolkit but got {tmp_path}."),
    ):
        refused = ascend_sim("toolkit", folder)
        assert (refused.exit_code, refused.stderr) == (2, f"[sim] folder {message}\n")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_folder_that_cannot_be_written_is_refused(tmp_path):
    (tmp_path / "file").touch()
    refused = ascend_sim("toolkit", tmp_path / "file" / "cann")
    assert refused.exit_code == 2
    assert "[sim] folder must be one that can be written but got " in refused.stderr


@pytest.mark.parametrize("pages", [0, 1, 20])
@pytest.mark.parametrize("folder", ["cann", "."])
def test_a_toolkit_without_room_on_the_disk_is_removed(tmp_path, folder, pages):
    command = [sys.executable, "-m", "ascend_sim.cli", "toolkit", folder]
    if folder == ".":  # an empty folder, which stays; in the other folder is the file that fills the disk
        command = ["sh", "-c", 'mkdir empty && cd empty && exec "$@"', "sh", *command]
        pages += 1  # the folder itself
    done = run_with_pages(tmp_path, pages, command)
    assert (done.returncode, done.stdout, list(done.files)) == (2, "", ["empty"] if folder == "." else [])
    assert "[sim] folder must be one that can be written but got " in done.stderr
    assert "No space left on device" in done.stderr


def test_the_signatures_are_those_of_the_definitions():
    """Every function of the table is defined, and no definition is missing in the table."""
    defined = {name for name in toolkit.defined() if name.startswith("aclnn")} - {
        "aclnnInit",
        "aclnnFinalize",
    }
    declared = {name for function in toolkit.functions() for name in function.symbols()}
    assert defined == declared


def test_the_page_has_a_row_for_every_function_that_is_simulated():
    page = (Path(__file__).parents[2] / "docs" / "aclnn.md").read_text()
    first_cells = [line.split(" | ")[0] for line in page.splitlines() if line.startswith("| ")]
    listed = {f"aclnn{name}" for name in re.findall(r"\w+", " ".join(first_cells))}
    assert toolkit.simulated() <= listed


# ---- programs ----------------------------------------------------------------------------------------


def test_a_program_for_another_architecture_is_refused(tmp_path):
    program = tmp_path / "program"
    other = 62 if machine() == "aarch64" else 183  # e_machine
    program.write_bytes(b"\x7fELF\x02\x01\x01".ljust(18, b"\0") + other.to_bytes(2, "little"))
    program.chmod(0o755)
    done = run_command("--", program)
    assert done.exit_code == 2
    assert f"{program} is a program for " in done.stderr
    assert f"this machine is {machine()}." in done.stderr


def compiled(folder, source, *flags):
    """Compile a C program against the toolkit folder."""
    path, program = folder / "program.c", folder / "program"
    path.write_text(source)
    home = toolkit.cached()
    flags = (*flags, f"-I{home}/include", f"-L{home}/lib64", *(f"-l{name}" for name in toolkit.LIBRARIES))
    subprocess.run(
        ["cc", "-std=c99", path, *flags, f"-Wl,-rpath-link,{home}/lib64", "-o", program], check=True
    )
    return program


def test_a_missing_symbol_is_named(tmp_path):
    newer = tmp_path / "newer"
    newer.mkdir()
    (newer / "newer.c").write_text("int aclrtNewer(void) { return 0; }")
    library = newer / "libascendcl.so"
    subprocess.run(
        ["cc", "-shared", newer / "newer.c", "-Wl,-soname,libascendcl.so", "-o", library], check=True
    )
    program = compiled(
        tmp_path, "int aclrtNewer(void); int main(void) { return aclrtNewer(); }", f"-L{newer}"
    )
    done = run_command("--", program)
    assert done.exit_code == 2
    assert f"{program} needs symbols that no library has: aclrtNewer" in done.stderr


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("libother.so", "Name their folders in LD_LIBRARY_PATH, or build the program again."),
        (
            "libcust_opapi.so",
            "libcust_opapi.so is the library of an operator package. For npu_rope's, use npu-rope sim "
            "instead of ascend-sim run; for another one, name its folder op_api/lib in LD_LIBRARY_PATH.",
        ),
    ],
)
def test_a_missing_library_is_named_with_its_remedy(tmp_path, name, remedy):
    (tmp_path / "other.c").write_text("int other(void) { return 0; }")
    library = tmp_path / name
    shared = ["cc", "-shared", tmp_path / "other.c", f"-Wl,-soname,{name}", "-o", library]
    subprocess.run(shared, check=True)
    program = compiled(tmp_path, "int other(void); int main(void) { return other(); }", str(library))
    library.unlink()
    done = run_command("--", program)
    assert done.exit_code == 2
    missing = f"{program} needs libraries that were not found: {name}"
    assert done.stderr.endswith(f"[sim] command must be available but {missing}.\n{remedy}\n")


def test_a_library_that_is_no_library_is_named(tmp_path):
    (tmp_path / "other.c").write_text("int other(void) { return 0; }")
    library = tmp_path / "libother.so"
    subprocess.run(["cc", "-shared", tmp_path / "other.c", "-o", library], check=True)
    program = compiled(tmp_path, "int other(void); int main(void) { return other(); }", str(library))
    library.write_bytes(b"")
    done = run_command("--", program)
    assert done.exit_code == 2
    assert f"[sim] command must be available but {program} does not load: {library}: " in done.stderr


LAZY = """
#include <stdint.h>
#include "acl/acl.h"
#include "aclnnop/aclnn_mul.h"
int not_there(void);
int main(void) {
    const int64_t size[1] = {8}, stride[1] = {1};
    void* x;
    uint64_t bytes;
    aclOpExecutor* executor;
    aclInit(0);
    aclrtSetDevice(0);
    aclrtMalloc(&x, 32, ACL_MEM_MALLOC_HUGE_FIRST);
    aclrtMemset(x, 32, 0, 32);
    aclTensor* t = aclCreateTensor(size, 1, ACL_FLOAT, stride, 0, ACL_FORMAT_ND, size, 1, x);
    if (aclnnMulGetWorkspaceSize(t, t, t, &bytes, &executor)) return 1;
    if (aclnnMul(0, bytes, executor, 0)) return 2;
    if (aclrtSynchronizeDevice()) return 3;
    return not_there();
}
"""


def test_a_symbol_that_is_missing_at_its_first_call_keeps_the_report(tmp_path):
    report, library = tmp_path / "report.json", tmp_path / "libother.so"

    def compiled_with(binding):
        for source in ("int not_there(void) { return 0; }", "int other;"):
            (tmp_path / "other.c").write_text(source)
            subprocess.run(["cc", "-shared", tmp_path / "other.c", "-o", library], check=True)
            if source.startswith("int not_there"):
                program = compiled(tmp_path, LAZY, str(library), f"-Wl,-z,{binding}")
        return program

    program = compiled_with("lazy")
    done = run_command("--report", report, "--", program)
    missing = f"{program} needs symbols that no library has: not_there"
    assert done.exit_code == 2
    assert "ascend-sim run: launches: 1 (aclnnMul 1)\n" in done.stderr
    assert f"[sim] command must be available but {missing}.\n" in done.stderr
    found = json.loads(report.read_text())
    assert (found["launches"], found["not_loaded"], found["exit_status"]) == ({"aclnnMul": 1}, missing, 2)
    # Without lazy binding nothing runs, so there is nothing to report.
    report.unlink()
    done = run_command("--report", report, "--", compiled_with("now"))
    assert (done.exit_code, report.exists()) == (2, False)
    assert done.stderr.startswith(f"[sim] command must be available but {missing}.\n")


SECURE_MEMORY = """
#include DECLARATIONS
static int failures;
static void expect(int holds, int number) { if (!holds) { failures = 1; printf("%d\\n", number); } }
int main(void) {
    char to[8] = "", text[] = " a,b", *rest = 0;
    expect(memcpy_s(to, 8, "1234567", 8) == 0 && to[6] == '7', 1);
    expect(memcpy_s(to, 8, to + 1, 4) == 182 && to[7] == 0 && to[0] == 0, 2);
    expect(memmove_s(to, 4, "12345", 5) == 162 && memmove_s(to, 0, to, 1) == 34, 3);
    expect(memset_s(to, 8, 'x', 9) == 162 && to[7] == 'x', 4);
    expect(strcat_s(to, 8, "y") == 150 && to[0] == 0, 5);
    expect(strncpy_s(to, 8, "abcdefghi", 3) == 0 && !strcmp(to, "abc"), 6);
    expect(strncat_s(to, 8, "xyz", 2) == 0 && !strcmp(to, "abcxy"), 13);
    expect(strcat_s(to, 8, "xyz") == 162 && strcpy_s(to, 8, 0) == 150 && strcpy_s(0, 8, "a") == 22, 7);
    expect(strcpy_s(to, 8, "12345678") == 162 && strcpy_s(to, 8, "1234567") == 0, 8);
    expect(snprintf_s(to, 8, 3, "%d", 12345) == -1 && !strcmp(to, "123"), 9);
    expect(snprintf_s(to, 8, 7, "%d", 1234567) == 7 && sprintf_s(to, 8, "%d", 12345678) == -1 && !to[0], 10);
    expect(!strcmp(strtok_s(text, " ,", &rest), "a") && !strcmp(strtok_s(0, " ,", &rest), "b"), 11);
    expect(strtok_s(0, " ,", &rest) == 0, 12);
    return failures;
}
"""
# A program that was built against CANN's own header calls the library.
OTHER_DECLARATIONS = """
#include <stddef.h>
#include <stdio.h>
#include <string.h>
int memcpy_s(void*, size_t, const void*, size_t);
int memmove_s(void*, size_t, const void*, size_t);
int memset_s(void*, size_t, int, size_t);
int strcpy_s(char*, size_t, const char*);
int strncpy_s(char*, size_t, const char*, size_t);
int strcat_s(char*, size_t, const char*);
int strncat_s(char*, size_t, const char*, size_t);
int sprintf_s(char*, size_t, const char*, ...);
int snprintf_s(char*, size_t, size_t, const char*, ...);
char* strtok_s(char*, const char*, char**);
"""


@pytest.mark.parametrize("header", ["securec.h", "other.h"])
def test_the_functions_of_libc_sec(tmp_path, header, capfd):
    (tmp_path / "other.h").write_text(OTHER_DECLARATIONS)
    source = SECURE_MEMORY.replace("DECLARATIONS", f'"{header}"')
    done = run_command("--", compiled(tmp_path, source, f"-I{tmp_path}"))
    assert (done.exit_code, capfd.readouterr().out) == (0, "")


OPTIONS = """
#include <stdio.h>
#include "acl/acl_op_compiler.h"
#include "aclnnop/aclnn_util.h"
ACLNN_API int main(void) {
    char value[16];
    aclopAttr* attr;
    if (aclInit(0) || aclrtSetDevice(0)) return 1;
    if (aclSetCompileopt(ACL_OP_JIT_COMPILE, "enable")) return 2;
    if (aclGetCompileopt(ACL_OP_JIT_COMPILE, value, aclGetCompileoptSize(ACL_OP_JIT_COMPILE))) return 3;
    attr = aclopCreateAttr();
    if (aclopSetAttrInt(attr, "axis", 1)) return 4;
    printf("%s %d %s\\n", value, aclopLoad(0, 0), aclGetRecentErrMsg());
    aclopDestroyAttr(attr);
    return 0;
}
"""


def test_aclop_and_its_options(tmp_path):
    """The options of the compiler are stored; a function of aclop that is not simulated fails by its name."""
    report = tmp_path / "report.json"
    done = run_command("--report", report, "--", compiled(tmp_path, OPTIONS))
    assert done.exit_code == 1, done.stderr
    assert json.loads(report.read_text())["not_simulated"] == {"aclopLoad": 1}


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_a_shell_that_sources_set_env_compiles_and_runs(tmp_path, shell):
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell}")
    folder = tmp_path / "a folder" / "cann"
    folder.parent.mkdir()
    assert ascend_sim("toolkit", folder).exit_code == 0
    (tmp_path / "program.c").write_text(MULTIPLY)
    libraries = " ".join(f"-l{name}" for name in toolkit.LIBRARIES)
    script = f"""
        source "{folder}/set_env.sh" || exit 1
        cc -std=c99 program.c -I"$ASCEND_HOME_PATH/include" -L"$ASCEND_HOME_PATH/lib64" {libraries} -o program
        ./program || exit 1
        echo "$ASCEND_TOOLKIT_HOME:$ASCEND_OPP_PATH:$ASCEND_AICPU_PATH:$TOOLCHAIN_HOME"
        echo "$LD_LIBRARY_PATH" "$PATH"
    """
    environment = {"PATH": os.environ["PATH"], "LD_LIBRARY_PATH": "/other"}
    done = subprocess.run(
        [shell, "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    *products, variables, paths = done.stdout.splitlines()
    assert done.stderr == (
        "simulated CANN: this is ascend_sim, nothing runs on hardware; ascend-sim run -- PROGRAM prints a "
        "report.\n"
    )
    assert products == ["2 8", "4 10", "6 12"]
    assert variables == f"{folder}:{folder}/opp:{folder}:{folder}/toolkit"
    assert paths.startswith(f"{folder}/lib64:/other {folder}/bin:")


def test_set_env_is_refused_by_a_shell_that_does_not_name_it(tmp_path):
    if shutil.which("dash") is None:
        pytest.skip("no dash")
    folder = tmp_path / "cann"
    assert ascend_sim("toolkit", folder).exit_code == 0
    script = f". {folder}/set_env.sh; echo $? ${{ASCEND_TOOLKIT_HOME:-unset}}"
    done = subprocess.run(["dash", "-c", script], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout == "1 unset\n"
    assert done.stderr == "set_env.sh must be sourced by bash or zsh but the shell does not name the file.\n"


CRASH = """
#include "acl/acl.h"
int main(void) { aclInit(0); aclrtSetDevice(0); *(volatile int*)8 = 1; return 0; }
"""


def test_a_crash_keeps_the_report(tmp_path):
    report = tmp_path / "report.json"
    done = run_command("--report", report, "--", compiled(tmp_path, CRASH))
    assert done.exit_code == 128 + signal.SIGSEGV
    assert "ended by SIGSEGV" in done.stderr
    assert "1 of 1 processes ended without a final report" in done.stderr
    assert json.loads(report.read_text())["ended_by"] == "SIGSEGV"


LAUNCHES_THEN_CRASH = """
#include <stdint.h>
#include "acl/acl.h"
#include "aclnnop/aclnn_relu.h"
int main(void) {
    int64_t size[1] = {8}, stride[1] = {1};
    void* x;
    aclrtStream stream;
    aclInit(0);
    aclrtSetDevice(0);
    aclrtCreateStream(&stream);
    aclrtMalloc(&x, 32, ACL_MEM_MALLOC_HUGE_FIRST);
    aclTensor* t = aclCreateTensor(size, 1, ACL_FLOAT, stride, 0, ACL_FORMAT_ND, size, 1, x);
    for (int i = 0; i < 3; ++i) {
        uint64_t bytes;
        aclOpExecutor* executor;
        if (aclnnInplaceReluGetWorkspaceSize(t, &bytes, &executor)) return 1;
        if (aclnnInplaceRelu(0, bytes, executor, stream)) return 2;
    }
    aclrtSynchronizeStream(stream);
    *(volatile int*)8 = 1;
    return 0;
}
"""


def test_a_crash_keeps_the_launches_before_it(tmp_path):
    report = tmp_path / "report.json"
    done = run_command("--report", report, "--", compiled(tmp_path, LAUNCHES_THEN_CRASH))
    assert done.exit_code == 128 + signal.SIGSEGV
    assert json.loads(report.read_text())["launches"] == {"aclnnInplaceRelu": 3}
    assert "guard zones: no overrun seen; not checked at the end of every process" in done.stderr


ABSENT = """
#include <stdio.h>
#include "acl/acl.h"
#include "aclnnop/aclnn_erfinv.h"
int main(void) {
    uint64_t bytes; aclOpExecutor* executor;
    int status = aclnnErfinvGetWorkspaceSize(0, 0, &bytes, &executor);
    printf("%d %s\\n", status, aclGetRecentErrMsg());
    return 0;
}
"""


def test_a_function_that_is_not_simulated_links_and_fails_with_its_name(tmp_path):
    done = run_command("--", compiled(tmp_path, ABSENT))
    assert done.exit_code == 1
    assert "calls that are not simulated: 1 (aclnnErfinvGetWorkspaceSize 1)" in done.stderr


EXP = """
#include "acl/acl.h"
#include "aclnnop/aclnn_exp.h"
int main(void) {
    int64_t shape[] = {4}, stride[] = {1};
    void *in, *out; uint64_t bytes; aclOpExecutor* executor;
    aclInit(0); aclrtSetDevice(0);
    aclrtMalloc(&in, 16, ACL_MEM_MALLOC_HUGE_FIRST); aclrtMemset(in, 16, 0, 16);
    aclrtMalloc(&out, 16, ACL_MEM_MALLOC_HUGE_FIRST);
    aclTensor* x = aclCreateTensor(shape, 1, ACL_FLOAT, stride, 0, ACL_FORMAT_ND, shape, 1, in);
    aclTensor* y = aclCreateTensor(shape, 1, ACL_FLOAT, stride, 0, ACL_FORMAT_ND, shape, 1, out);
    float values[4];
    for (int i = 0; i < 3; ++i) {
        if (aclnnExpGetWorkspaceSize(x, y, &bytes, &executor)) return 2;
        if (aclnnExp(0, bytes, executor, 0)) return 3;
    }
    aclrtSynchronizeDevice();
    aclrtMemcpy(values, 16, out, 16, ACL_MEMCPY_DEVICE_TO_HOST);
    return values[3] == 1 ? 0 : 4;
}
"""


def test_a_call_beyond_the_documents_runs_and_is_reported(tmp_path):
    """The document of Exp does not list Ascend310P, for which CANN has a kernel."""
    report = tmp_path / "report.json"
    program = compiled(tmp_path, EXP)
    done = run_command("--soc", "Ascend310P3", "--report", report, "--", program)
    assert done.exit_code == 0, done.stderr
    call = "aclnnExp on Ascend310P3: its document does not list the chip"
    assert json.loads(report.read_text())["beyond_documents"] == {call: 3}
    assert "calls beyond CANN's documents, which its sources accept: 3\n" in done.stderr
    assert f"ascend-sim run:   {call} (3 calls)\n" in done.stderr
    done = run_command("--report", report, "--", program)
    assert json.loads(report.read_text())["beyond_documents"] == {}
    assert "beyond" not in done.stderr


SOURCES = Path(__file__).parent / "sources"
MULTIPLY = (Path(__file__).parents[2] / "examples" / "muls.c").read_text()


@pytest.mark.parametrize("chip", ["Ascend910B2", "Ascend310P3"])
def test_a_program_of_aclnn_runs(tmp_path, chip):
    report = tmp_path / "report.json"
    done = run_command("--soc", chip, "--report", report, "--", compiled(tmp_path, MULTIPLY))
    assert done.exit_code == 0, done.stderr
    found = json.loads(report.read_text())
    assert found["launches"] == {"aclnnMuls": 1}
    assert found["seconds"] > 0


def test_a_program_of_the_real_names_finds_them(tmp_path):
    """A library with one of CANN's names that the program was linked with is found in the toolkit."""
    program = compiled(tmp_path, MULTIPLY)
    text = program.read_bytes()
    assert text.count(b"libascend_sim_cann.so\0") == 1
    program.write_bytes(text.replace(b"libascend_sim_cann.so\0", b"libascendcl.so\0".ljust(22, b"\0")))
    assert run_command("--", program).exit_code == 0


def test_virtual_memory(tmp_path):
    done = run_command("--", compiled(tmp_path, (SOURCES / "virtual_memory.c").read_text()))
    assert done.exit_code == 0, done.stdout


def test_memory_of_a_capture(tmp_path):
    program = compiled(tmp_path, (SOURCES / "captured_memory.c").read_text())
    done = run_command("--soc", "Ascend910B2", "--", program)
    # The last replay uses freed memory, so the run fails. The program itself finds no fault.
    assert (done.exit_code, done.stdout) == (1, "")
    assert "uses of freed memory: 1\n" in done.stderr


def test_collectives_between_the_devices_of_one_program(tmp_path, capfd):
    program = compiled(tmp_path, (SOURCES / "all_reduce.c").read_text())
    done = run_command("--devices", "2", "--", program)
    assert done.exit_code == 0, done.stderr
    assert "simulated 2 devices Ascend910B2" in done.stderr
    assert capfd.readouterr().out == "4\n4\n"


# ---- work that fails on a stream, in a program that ignores the error ----------------------------------


@pytest.fixture(scope="module")
def failing_program(tmp_path_factory):
    folder = tmp_path_factory.mktemp("failing")
    return compiled(folder, (SOURCES / "failed_work.c").read_text())


def failed_work_of(program, kind, tmp_path, *options):
    """Run a program whose work fails. Return the lines of the report and the contents of its file."""
    report = tmp_path / "report.json"
    done = run_command(*options, "--report", report, "--", program, kind)
    found = json.loads(report.read_text())
    assert (done.exit_code, found["exit_status"], done.stdout) == (1, 1, "")
    return done.stderr.splitlines(), found


@pytest.mark.parametrize("streams", ["asynchronous", "immediate"])
def test_an_index_outside_its_tensor_is_in_the_report(failing_program, tmp_path, streams):
    lines, found = failed_work_of(failing_program, "index", tmp_path, "--streams", streams)
    text = "aclnnIndexSelect: index must be in [0, 8) but got {} in element 0."
    assert found["failed_work"] == [text.format(index) for index in (11, 21, 31)]
    assert found["failed_work_count"] == 3
    assert found["launches"] == {"aclnnIndexSelect": 1}
    title = lines.index("ascend-sim run: work that failed on a stream: 3")
    assert lines[title + 1] == f"ascend-sim run:   {text.format(11)} (2 more like it)"


def test_collectives_that_differ_are_in_the_report(failing_program, tmp_path):
    lines, found = failed_work_of(failing_program, "collective", tmp_path, "--devices", "2")
    assert found["failed_work_count"] == 2
    calls = [f"HcclAllReduce of {count} float32, sum on rank {rank}" for rank, count in enumerate((4, 5))]
    for text in found["failed_work"]:
        assert text.startswith("HcclAllReduce: ranks must make the same call but got ")
        assert all(call in text for call in calls)
    assert "ascend-sim run: work that failed on a stream: 2" in lines


def test_a_use_of_freed_memory_is_listed_once(failing_program, tmp_path):
    lines, found = failed_work_of(failing_program, "freed", tmp_path)
    assert (len(found["freed_memory"]), found["failed_work"], found["failed_work_count"]) == (1, [], 0)
    assert "ascend-sim run: uses of freed memory: 1" in lines
    assert not any("work that failed" in line for line in lines)
