"""scripts/build_npu.sh with a stand-in for CANN (cann_stand_in.py) that has the layout of CANN 9.0 and 9.1:
its calls, the number of parallel compiles, its messages for missing pieces, builds after failed ones.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

import cann_stand_in as stand_in
import pytest

from npu_rope import chips

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts" / "build_npu.sh"
STEMS = sorted(p.stem for p in (ROOT / "op_kernel").glob("npu_*.cpp"))
CLONED = ("cmake", "csrc", "include", "op_host", "op_kernel", "scripts", "simulator", "npu_rope")
VERSIONS = ("9.0.0", "9.1.0")
ENVIRONMENT = (
    "ASCEND_HOME_PATH",
    "PYTHONPATH",
    "PYTHONHOME",
    "MAKEFLAGS",
    "CXX",
    "CC",
    "CXXFLAGS",
    "LDFLAGS",
    "CMAKE_C_COMPILER_LAUNCHER",
    "CMAKE_CXX_COMPILER_LAUNCHER",
)


def as_in_a_terminal():
    """Signals that the tests' own shell ignores, as in the background, could not be trapped."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


@dataclass
class Machine:
    """A folder with a CANN, the commands of a machine, and the log of the stand-ins."""

    folder: Path
    home: Path
    commands: Path

    @property
    def log(self) -> Path:
        return self.folder / "log"

    @property
    def calls(self) -> list[str]:
        return self.log.read_text().splitlines() if self.log.exists() else []

    def npu_smi(self, text: str) -> None:
        stand_in.executable(self.commands / "npu-smi", f"#!/bin/sh\n{text}\n")

    def run(self, *arguments, **how):
        running = self.start(*arguments, **how)
        stdout, stderr = running.communicate()
        return subprocess.CompletedProcess(running.args, running.returncode, stdout, stderr)

    def start(self, *arguments, script=SCRIPT, sourced=True, **variables):
        """The script in a process group of its own. A variable that is None is not set."""
        environment = {k: v for k, v in os.environ.items() if k not in ENVIRONMENT}
        environment |= {
            "HOME": str(self.folder),
            "PATH": str(self.commands),
            "NPU_ROPE_PROGRESS_SECONDS": "0.2",
        }
        environment |= {"NPU_ROPE_STAND_IN_LOG": str(self.log)}
        if sourced:  # as set_env.sh leaves it
            environment["ASCEND_HOME_PATH"] = str(self.home)
            tools = (self.home / "bin", self.home / "tools/ccec_compiler/bin", self.commands)
            environment["PATH"] = os.pathsep.join(map(str, tools))
            environment["PYTHONPATH"] = str(self.home / "python/site-packages")
        command = [str(self.commands / "bash"), str(script), *arguments]
        return subprocess.Popen(
            command,
            env={k: v for k, v in (environment | variables).items() if v is not None},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            preexec_fn=as_in_a_terminal,
        )


@pytest.fixture
def machine(tmp_path):
    """A machine with CANN 9.1.0 and no NPU."""
    return Machine(tmp_path, stand_in.cann(tmp_path / "cann-9.1.0"), stand_in.commands(tmp_path / "commands"))


def refused(done):
    """Return the text of a run that ends with status 2."""
    assert done.returncode == 2, done.stdout + done.stderr
    assert all(line.startswith("[build_npu] ") for line in done.stderr.splitlines())
    return done.stderr


# ---- missing pieces ----------------------------------------------------------------------------------


@pytest.mark.skipif(Path("/usr/local/Ascend").exists(), reason="CANN is here")
def test_without_cann_it_says_what_is_missing_and_where_to_get_it(machine):
    said = refused(machine.run(sourced=False))
    assert "CANN's toolkit must be installed but ASCEND_HOME_PATH is not set." in said
    assert "Get CANN 9.1.0's toolkit from https://www.hiascend.com/cann" in said


@pytest.mark.skipif(Path("/usr/local/Ascend").exists(), reason="CANN is here")
def test_without_a_home_it_says_the_same(machine):
    assert "CANN's toolkit must be installed but" in refused(machine.run(sourced=False, HOME=None))


@pytest.mark.parametrize("path", ["{home}/", "{home}//", "{home}/bin/.."])
def test_the_folder_of_cann_is_named_without_what_it_does_not_need(machine, path):
    done = machine.run("--check", ASCEND_HOME_PATH=path.format(home=machine.home))
    assert done.returncode == 0, done.stderr
    assert f"[build_npu] CANN 9.1.0 in {machine.home}; SoCs:" in done.stdout
    assert f"op_build: {machine.home}/tools/opbuild/op_build;" in done.stdout


def test_a_folder_that_is_none_is_named(machine):
    said = refused(machine.run(ASCEND_HOME_PATH="/nonexistent"))
    assert "ASCEND_HOME_PATH must be CANN's folder but /nonexistent is not a folder." in said


def test_a_complete_machine_passes_the_check_and_nothing_is_built(machine):
    done = machine.run("--check", "ascend910b", "-j", "3")
    assert done.returncode == 0, done.stderr
    assert f"[build_npu] CANN 9.1.0 in {machine.home}; SoCs: ascend910b; 3 kernels at a time" in done.stdout
    assert machine.calls == []


PARTS = {
    "tools/op_project_templates/ascendc/customize/cmake/func.cmake": "Is it the toolkit, and is it whole?",
    "tools/op_project_templates/ascendc/customize/CMakeLists.txt": "Is it the toolkit, and is it whole?",
    "include": "include/register/op_def_registry.h but has not",
    "tools/opbuild/op_build": "CANN must have tools/opbuild/op_build but",
    "bin/opc": "opc, which CANN compiles kernels with, must be on PATH but is not.",
    "tools/ccec_compiler/bin/bisheng": "bisheng, which CANN compiles kernels with, must be on PATH",
    "tools/ccec_compiler/bin/llvm-objdump": "llvm-objdump, which CANN compiles kernels with, must be on PATH",
}


@pytest.mark.parametrize("part", PARTS)
def test_each_part_of_cann_that_is_missing_is_named(machine, part):
    (machine.home / part).unlink()
    assert PARTS[part] in refused(machine.run("--check"))


DEBIAN = {"cmake": "cmake", "make": "make", "python3": "python3", "cc": "gcc", "c++": "g++"}


@pytest.mark.parametrize("tool", DEBIAN)
def test_each_tool_of_the_system_that_is_missing_is_named(machine, tool):
    (machine.commands / tool).unlink()
    said = refused(machine.run("--check"))
    assert f"{tool} must be installed but is not on PATH." in said
    assert f"on Debian and Ubuntu: apt-get install {DEBIAN[tool]}\n" in said
    assert f"on openEuler: dnf install {DEBIAN[tool].replace('g++', 'gcc-c++')}\n" in said


def test_a_compiler_that_a_variable_names_is_named_with_it(machine):
    said = refused(machine.run("--check", CXX="clang++-99 -O2"))
    assert "CXX must name a compiler but clang++-99 is not on PATH." in said
    assert "Install it, or unset CXX to use c++." in said
    assert "apt-get" not in said


def test_everything_that_is_missing_is_named_at_once(machine):
    for tool in ("cmake", "c++"):
        (machine.commands / tool).unlink()
    (machine.home / "tools/opbuild/op_build").unlink()
    (machine.home / "bin/opc").unlink()
    (machine.home / "python/site-packages/scipy/__init__.py").write_text("raise ImportError\n")
    machine.npu_smi(A2.replace("910B3", "910A"))
    said = refused(machine.run("--check"))
    for part in (
        "cmake must be installed but is not on PATH.",
        "c++ must be installed but is not on PATH.",
        "apt-get install cmake g++\n",
        "CANN must have tools/opbuild/op_build but",
        "opc, which CANN compiles kernels with, must be on PATH but is not.",
        "lacks scipy.",
        "CANN's tbe imports these modules and was not tried without them.",
        "npu-smi reports Ascend910A, for which npu_rope has no kernels.",
    ):
        assert said.count(part) == 1, said


def test_without_cann_the_rest_is_looked_for(machine):
    (machine.commands / "make").unlink()
    modules = machine.home / "python/site-packages"
    (modules / "cffi/__init__.py").write_text("raise ImportError\n")
    (modules / "tbe/__init__.py").write_text("raise AttributeError('np.float_')\n")
    said = refused(machine.run("--check", ASCEND_HOME_PATH="/nonexistent"))
    assert "make must be installed but is not on PATH." in said
    assert "lacks cffi." in said
    assert "CANN's parts, its tools on PATH and its tbe were not looked for without its folder." in said
    assert "np.float_" not in said


def test_a_build_that_lacks_something_ends_before_npu_smi_is_asked(machine):
    (machine.commands / "cmake").unlink()
    done = machine.run()
    assert "cmake must be installed" in refused(done)
    assert "npu-smi" not in done.stdout


NUMPY, PROTOBUF = "'numpy>=1.26,<2'", "protobuf==3.20.3"
PACKAGES = {"attr": "attrs", "google.protobuf": PROTOBUF, "numpy": NUMPY, "yaml": "pyyaml"}


@pytest.mark.parametrize("module", [m for m in stand_in.MODULES if m != "tbe"])
def test_each_python_module_that_is_missing_is_named(machine, module):
    file = machine.home / "python/site-packages" / module.replace(".", "/") / "__init__.py"
    file.write_text("raise ImportError('absent')\n")
    package = PACKAGES.get(module, module)
    assert f"Install them: python3 -m pip install {package}\n" in refused(machine.run("--check"))


def test_all_missing_python_modules_are_named_at_once(machine):
    for module in ("sympy", "attr", "numpy", "google/protobuf"):
        (machine.home / "python/site-packages" / module / "__init__.py").write_text("raise ImportError\n")
    said = refused(machine.run("--check"))
    assert "lacks numpy attrs sympy protobuf." in said
    assert f"python3 -m pip install {NUMPY} attrs sympy {PROTOBUF}\n" in said


def test_a_tbe_that_does_not_load_is_named_with_its_words(machine):
    file = machine.home / "python/site-packages/tbe/__init__.py"
    file.write_text("raise OSError('libplatform.so: cannot open')\n")
    said = refused(machine.run("--check"))
    assert "must import CANN's tbe but says OSError: libplatform.so: cannot open." in said
    assert f"Source {machine.home}/set_env.sh" in said


# Errors of a tbe that needs another NumPy or protobuf: of runtime_ctypes.py of CANN 8.1 with NumPy 2, of an
# extension module that was built for NumPy 1, and of ge_ir_pb2.py of CANN 8.1 with protobuf 4 and 7.
OTHER_PACKAGES = {
    "AttributeError('`np.float_` was removed in the NumPy 2.0 release. Use `np.float64` instead.')": NUMPY,
    "AttributeError('np.float_')": NUMPY,
    "ImportError('numpy.core.multiarray failed to import')": NUMPY,
    "TypeError('Descriptors cannot be created directly.\\nIf this call came from a _pb2.py file')": PROTOBUF,
    "ImportError('cannot import name reflection from google.protobuf')": PROTOBUF,
}


@pytest.mark.parametrize("error", OTHER_PACKAGES)
def test_a_tbe_that_needs_another_package_gets_that_remedy(machine, error):
    (machine.home / "python/site-packages/tbe/__init__.py").write_text(f"raise {error}\n")
    said = refused(machine.run("--check"))
    assert "must import CANN's tbe but says " in said
    assert ".." not in said
    assert f"works with: python3 -m pip install {OTHER_PACKAGES[error]}\n" in said
    assert "Source " not in said


@pytest.mark.parametrize("error", ["ModuleNotFoundError('inp.so')", "OSError('libsnp.so: cannot open')"])
def test_another_error_of_tbe_is_not_taken_for_numpy_s(machine, error):
    (machine.home / "python/site-packages/tbe/__init__.py").write_text(f"raise {error}\n")
    said = refused(machine.run("--check"))
    assert "Source " in said
    assert "pip install" not in said


def test_the_documentation_and_the_container_install_the_packages_that_the_script_names():
    for file in ("docs/npu.md", "docker/Dockerfile.npu"):
        lines = re.findall(r"^.*pip install.* sympy .*$", (ROOT / file).read_text(), re.M)
        assert len(lines) == 1
        words = shlex.split(lines[0].rstrip("\\"))
        for module in stand_in.MODULES[:-1]:
            assert shlex.split(PACKAGES.get(module, module))[0] in words


def test_an_environment_that_was_not_sourced_is_refused(machine):
    done = machine.run("--check", PATH=str(machine.commands), PYTHONPATH="")
    assert "opc, which CANN compiles kernels with, must be on PATH but is not." in refused(done)


@pytest.mark.parametrize("version", ["8.1.RC1", "8.3.RC1", "7.0.0"])
def test_a_cann_that_is_too_old_is_refused(tmp_path, version):
    machine = Machine(
        tmp_path, stand_in.cann(tmp_path / "cann", version), stand_in.commands(tmp_path / "commands")
    )
    said = refused(machine.run("--check"))
    assert f"CANN must be 8.5 or newer but {machine.home} is {version}" in said
    assert "Get CANN 9.1.0's toolkit" in said


@pytest.mark.parametrize("version", ["8.5.0", "9.0.0", "9.1.0", "9.1.RC2"])
def test_a_supported_cann_is_named_with_its_version(tmp_path, version):
    machine = Machine(
        tmp_path, stand_in.cann(tmp_path / "cann", version), stand_in.commands(tmp_path / "commands")
    )
    done = machine.run("--check")
    assert done.returncode == 0, done.stderr
    assert f"[build_npu] CANN {version} in {machine.home};" in done.stdout


@pytest.mark.skipif(Path("/usr/local/Ascend").exists(), reason="CANN is here")
@pytest.mark.parametrize("place", ["Ascend/cann", "Ascend/ascend-toolkit/latest"])
def test_a_cann_in_its_default_place_is_found_and_sourced(machine, place):
    (machine.folder / place).parent.mkdir(parents=True)
    (machine.folder / place).symlink_to(machine.home)
    done = machine.run("--check", sourced=False)
    assert done.returncode == 0, done.stderr
    setter = machine.folder / place / "set_env.sh"
    assert f"[build_npu] ASCEND_HOME_PATH is not set: sourcing {setter}" in done.stdout
    assert f"opc: {machine.folder / place}/bin/opc" in done.stdout


# ---- arguments ---------------------------------------------------------------------------------------


def test_an_unknown_soc_is_refused(machine):
    said = refused(machine.run("ascend950"))
    assert "SOC must be ascend910b, ascend910_93 or ascend310p but got ascend950." in said


@pytest.mark.parametrize("arguments", [("ascend910b", "--all"), ("--all", "ascend910b")])
def test_a_soc_beside_all_is_refused(machine, arguments):
    said = refused(machine.run("--check", *arguments))
    assert said == "[build_npu] SOC must not be named beside --all but got ascend910b.\n"


@pytest.mark.parametrize("jobs", ["0", "x", "-3", "1.5", "", "1000", "9" * 20, "--check"])
def test_a_number_of_jobs_that_is_none_is_refused(machine, jobs):
    assert f"JOBS must be a number from 1 to 999 but got '{jobs}'." in refused(machine.run("-j", jobs))


@pytest.mark.parametrize("arguments", [("-j", "999"), ("-j999",)])
def test_the_greatest_number_of_jobs_is_taken(machine, arguments):
    done = machine.run("--check", *arguments)
    assert done.returncode == 0, done.stderr
    assert "; 999 kernels at a time" in done.stdout


def test_jobs_without_a_number_are_refused(machine):
    assert "-j must be followed by a number of jobs." in refused(machine.run("-j"))


def test_the_help_teaches(machine):
    done = machine.run("--help", sourced=False)
    assert done.returncode == 0
    for word in (
        "ascend910_93",
        "--all",
        "-j JOBS",
        "--check",
        "npu-smi",
        "set_env.sh",
        "Exit status: 0 built",
    ):
        assert word in done.stdout


# ---- the chip ----------------------------------------------------------------------------------------

LIST = """case "$*" in
"info -l") printf '\\tTotal Count         : 1\\n\\n\\tNPU ID              : 4\\n' ;;"""
A2 = f"""{LIST}
"info -t board -i 4") printf '\\tNPU ID              : 4\\n\\tModel               : x\\n' ;;
"info -t board -i 4 -c 0") printf '\\tChip Type           : Ascend\\n\\tChip Name           : 910B3\\n' ;;
*) exit 3 ;; esac"""
A3 = f"""{LIST}
"info -t board -i 4") printf '\\tNPU ID : 4\\n' ;;
"info -t board -i 4 -c 0") printf '\\tChip Name : Ascend910\\n\\tNPU Name : 9392\\n' ;;
*) exit 3 ;; esac"""
CHIPS = {
    "Ascend910B3": (A2, "ascend910b"),
    "Ascend910B2C": (A2.replace("910B3", "910B2C"), "ascend910b"),
    "Ascend910_9392": (A3, "ascend910_93"),
    "Ascend310P3": (A2.replace("910B3", "310P3"), "ascend310p"),
    "Ascend910B9": (A2.replace("910B3", "910B9"), "ascend910b"),
}


@pytest.mark.parametrize("chip", CHIPS)
def test_the_package_is_built_for_the_chip_of_the_machine(machine, chip):
    text, soc = CHIPS[chip]
    machine.npu_smi(text)
    done = machine.run("--check")
    assert done.returncode == 0, done.stderr
    assert (
        f"[build_npu] npu-smi reports {chip}: building for {soc}. (--all builds for all SoCs.)" in done.stdout
    )
    assert f"; SoCs: {soc};" in done.stdout


@pytest.mark.parametrize("kind", ["Ascend", ""])
def test_the_name_that_another_firmware_of_a2_has_is_known(machine, kind):
    machine.npu_smi(A2.replace("Type           : Ascend", f"Type : {kind}").replace("910B3", "A2G3"))
    done = machine.run("--check")
    assert done.returncode == 0, done.stderr
    assert "[build_npu] npu-smi reports Ascend910B1: building for ascend910b." in done.stdout


def test_an_npu_smi_that_hangs_is_named_while_it_is_waited_for(machine):
    machine.npu_smi("sleep 1000")
    running = machine.start("--check")
    said = running.stdout.readline()
    assert running.poll() is None
    os.killpg(running.pid, signal.SIGKILL)
    running.communicate(timeout=60)
    assert said == f"[build_npu] Waiting for npu-smi, for at most {chips.NPU_SMI_SECONDS} s a command.\n"


@pytest.mark.parametrize("chip", ["310B1", "910A", "910B"])
def test_a_chip_without_kernels_is_refused(machine, chip):
    machine.npu_smi(A2.replace("910B3", chip))
    said = refused(machine.run("--check"))
    assert f"npu-smi reports Ascend{chip}, for which npu_rope has no kernels." in said
    assert "name its SoC: ascend910b ascend910_93 ascend310p." in said


ALL = "SoCs: ascend910b ascend910_93 ascend310p;"


def test_without_npu_smi_it_builds_for_all_and_says_how_to_build_for_one(machine):
    done = machine.run("--check")
    assert done.returncode == 0, done.stderr
    assert "not known: npu-smi, which comes with the NPU's driver, is not on PATH." in done.stdout
    assert "To build for one, name it: scripts/build_npu.sh ascend910b" in done.stdout
    assert ALL in done.stdout


BROKEN = {
    "echo 'dcmi module failed' >&2; exit 255": "failed with status 255: dcmi module failed.",
    "echo nothing": "npu-smi info -l must list an NPU ID but lists none.",
    f"{LIST} *) echo ;; esac": "npu-smi info -t board -i 4 must have a Chip Name but has none.",
}


@pytest.mark.parametrize("text", BROKEN)
def test_an_npu_smi_that_names_no_chip_is_quoted(machine, text):
    machine.npu_smi(text)
    done = machine.run("--check")
    assert done.returncode == 0, done.stderr
    assert BROKEN[text] in done.stdout
    assert ALL in done.stdout


@pytest.mark.parametrize("arguments", [("ascend310p",), ("--all",)])
def test_npu_smi_is_not_asked_where_the_soc_is_named(machine, arguments):
    machine.npu_smi("exit 1")
    done = machine.run("--check", *arguments)
    assert done.returncode == 0, done.stderr
    assert "not known" not in done.stdout
    assert ("SoCs: ascend310p;" if arguments[0] == "ascend310p" else ALL) in done.stdout


# ---- the container -----------------------------------------------------------------------------------


def test_every_command_of_the_container_has_cann_s_environment(machine):
    text = (ROOT / "docker/Dockerfile.npu").read_text()
    entry_point = json.loads(re.search(r"^ENTRYPOINT (.*)$", text, re.M)[1])
    setter = "/usr/local/Ascend/cann/set_env.sh"
    assert sum(setter in word for word in entry_point) == 1
    entry_point = [word.replace(setter, str(machine.home / "set_env.sh")) for word in entry_point]
    code = "import os, sys; print(os.environ['ASCEND_HOME_PATH'], sys.argv[1:]); sys.exit(3)"
    command = [*entry_point, "python3", "-c", code, "two words", "$HOME"]
    environment = {"PATH": str(machine.commands)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (3, "")
    assert done.stdout == f"{machine.home} ['two words', '$HOME']\n"


# ---- builds ------------------------------------------------------------------------------------------


@pytest.fixture
def clone(tmp_path):
    """The sources, where a build may write."""
    folder = tmp_path / "clone"
    folder.mkdir()
    for part in ("CMakeLists.txt", "CMakePresets.json", "pyproject.toml", "LICENSE"):
        shutil.copy(ROOT / part, folder)
    for part in CLONED:
        shutil.copytree(ROOT / part, folder / part, ignore=shutil.ignore_patterns("__pycache__", "lib"))
    return folder


@dataclass
class Build:
    """A machine and the sources on it."""

    machine: Machine
    clone: Path

    def run(self, *arguments):
        return self.machine.run(*arguments, **self.how())

    def how(self):
        compiler = stand_in.recording_compiler(self.machine.folder / "compiler")
        return {"script": self.clone / "scripts/build_npu.sh", "CXX": str(compiler)}

    @property
    def opp(self):
        return self.clone / "build/npu/opp"

    @property
    def left(self):
        """Return the files of a build that an install of npu_rope or a user would use."""
        folder = self.clone / "build/npu"
        return sorted(p.name for p in folder.glob("*") if p.name.startswith(("opp.", "custom_opp"))) + (
            ["opp"] if self.opp.exists() else []
        )

    def breaks(self, what, text=""):
        """Make a stand-in fail."""
        Path(f"{self.machine.log}.{what}").write_text(text)

    def mends(self, what):
        Path(f"{self.machine.log}.{what}").unlink()

    def most_jobs(self):
        """How many runs of opc there were at a time, at most."""
        steps = Path(f"{self.machine.log}.jobs").read_text().split()
        return max(itertools.accumulate(1 if step == "begin" else -1 for step in steps))


@pytest.fixture
def build(request, tmp_path, clone):
    """On CANN 9.1.0, or on the version that the test is parametrised with."""
    version = getattr(request, "param", VERSIONS[-1])
    home = stand_in.cann(tmp_path / f"cann-{version}", version)
    stand_in.add_libraries(home)
    return Build(Machine(tmp_path, home, stand_in.commands(tmp_path / "commands")), clone)


needs_make = pytest.mark.skipif(shutil.which("make") is None, reason="CANN's template builds with make")


@needs_make
@pytest.mark.parametrize(
    "build", [*(pytest.param(v, marks=pytest.mark.slow) for v in VERSIONS[:-1]), VERSIONS[-1]], indirect=True
)
def test_a_build_calls_cann_s_tools_and_compiles_kernels_side_by_side(build):
    done = build.run("ascend910b", "ascend310p", "-j", "4")
    assert done.returncode == 0, done.stdout + done.stderr
    out = build.clone / "build/npu/opp_project/build_out"
    assert (out / "compute_units").read_text() == "ascend910b;ascend310p"
    calls = build.machine.calls
    library = out / "autogen/libascend_all_ops.so"
    assert [c for c in calls if c.startswith("op_build")] == [f"op_build {library} {out / 'autogen'}"]
    kernels = out / "op_kernel/binary"
    expected = [
        f"opc {build.clone}/build/npu/opp_project/op_kernel/{stem}.cpp --soc_version={soc}"
        f" --output={kernels}/{soc}/{stem} --bin_filename={name}"
        for soc in ("ascend910b", "ascend310p")
        for stem in STEMS
        for name in "ab"
    ]
    assert sorted(c for c in calls if c.startswith("opc")) == sorted(expected)
    assert 2 <= build.most_jobs() <= 4
    # The definitions are compiled for op_build and for two of CANN's libraries: C++17, from our root.
    folders = [build.clone / "op_host", build.clone / "csrc/core"]
    host = [c for c in calls if c.startswith("c++") and any(f"{folder}/" in c for folder in folders)]
    sources = [source for folder in folders for source in sorted(folder.glob("*.cpp"))]
    of_op_build = [c for c in host if "-o " + str(library) in c]
    compiled = [c for c in host if " -c " in c]
    assert (len(of_op_build), len(compiled)) == (1, 2 * len(sources))
    assert all(str(source) in of_op_build[0] for source in sources)
    assert all(f"-I{build.clone} " in c for c in of_op_build + compiled)
    assert all("-std=c++17" in c and "-std=c++11" not in c for c in compiled)
    for library_of_cann in ("-DOP_PROTO_LIB", "-DOP_TILING_LIB"):
        assert len([c for c in compiled if library_of_cann in c]) == len(sources)
    tbe = build.opp / "packages/vendors/npu_rope/op_impl/ai_core/tbe"
    assert len(list((tbe / "kernel").rglob("*.o"))) == len(expected)
    assert build.left == ["custom_opp_test.run", "opp"]
    assert done.stdout.splitlines()[-1] == "build/npu/custom_opp_test.run"
    assert f"[build_npu] built {len(expected)} kernels in " in done.stdout


@needs_make
@pytest.mark.slow
def test_one_job_compiles_one_kernel_at_a_time_and_progress_is_shown(build):
    done = build.run("ascend310p", "-j", "1")
    assert done.returncode == 0, done.stdout + done.stderr
    assert build.most_jobs() == 1
    shown = [line for line in done.stdout.splitlines() if " of 3 kernels, 0 min" in line]
    assert len(shown) >= 2, done.stdout  # op_build describes three kernels for each of two SoCs


@pytest.mark.slow
@needs_make
def test_a_failed_build_leaves_nothing_and_the_next_one_succeeds(build):
    assert build.run("ascend310p").returncode == 0
    build.breaks("opc_fails", STEMS[-1])
    failed = build.run("ascend310p")
    assert failed.returncode == 1
    assert "[build_npu] The build failed; nothing was installed." in failed.stderr
    assert build.left == []
    working = build.clone / f"build/npu/opp_project/build_out/op_kernel/{STEMS[-1]}_ascend310p"
    assert working.is_dir(), "the stand-in must leave what CANN's script leaves"
    build.mends("opc_fails")
    again = build.run("ascend310p")
    assert again.returncode == 0, again.stdout + again.stderr
    assert build.left == ["custom_opp_test.run", "opp"]


def kill_script(running, number):
    os.kill(running.pid, number)


def kill_group(running, number):
    os.killpg(running.pid, number)


@needs_make
@pytest.mark.parametrize(
    ("kill", "number"),
    [
        (kill_group, signal.SIGINT),  # Control-C
        pytest.param(kill_group, signal.SIGHUP, marks=pytest.mark.slow),  # the terminal is closed
        pytest.param(kill_script, signal.SIGTERM, marks=pytest.mark.slow),
        pytest.param(kill_script, signal.SIGHUP, marks=pytest.mark.slow),
    ],
)
def test_an_interrupted_build_leaves_no_process_and_nothing_to_install(build, kill, number):
    build.breaks("opc_waits")
    running = build.machine.start("ascend310p", "-j", "2", **build.how())
    until = time.monotonic() + 120
    while sum(call.startswith("opc ") for call in build.machine.calls) < 2:
        assert running.poll() is None, running.communicate()
        assert time.monotonic() < until
        time.sleep(0.05)
    kill(running, number)
    _, stderr = running.communicate(timeout=60)  # ends when no process holds its output
    assert running.returncode == -number
    assert stderr.splitlines()[-1] == "[build_npu] The build was interrupted; nothing was installed."
    with pytest.raises(ProcessLookupError):
        os.killpg(running.pid, 0)
    assert build.left == []
    build.mends("opc_waits")
    assert build.run("ascend310p").returncode == 0


@needs_make
@pytest.mark.slow
def test_cann_s_folder_may_have_a_space_in_its_name(build):
    home = build.machine.home.rename(build.machine.folder / "CANN 9.1")
    build.machine.home = home
    done = build.run("ascend310p")
    assert done.returncode == 0, done.stdout + done.stderr
    assert build.left == ["custom_opp_test.run", "opp"]


@needs_make
def test_kernels_that_are_truncated_are_found_and_nothing_is_installed(build):
    build.breaks("opc_truncates")
    failed = build.run("ascend310p")
    assert failed.returncode == 1
    kernel = f"opp.new/packages/vendors/npu_rope/op_impl/ai_core/tbe/kernel/ascend310p/{STEMS[0]}/a.o"
    assert f"{kernel} must have the bytes that a.json describes but is truncated or changed." in failed.stderr
    assert build.left == []


@needs_make
def test_an_op_build_that_fails_ends_the_build_with_a_sentence(build):
    build.breaks("op_build_fails")
    failed = build.run("ascend310p", "-j", "2")
    assert failed.returncode == 1
    said = " ".join((failed.stdout + failed.stderr).split())
    assert "CANN's op_build must write aclnn_*.cpp and op_proto.cc to" in said
    assert build.left == []


@needs_make
@pytest.mark.slow
@pytest.mark.parametrize("build", VERSIONS, indirect=True)
def test_our_definitions_compile_in_the_template(build):
    """With a real compiler; CANN's headers are simulator/cann/include."""
    done = build.machine.run("ascend910b", script=build.clone / "scripts/build_npu.sh")
    assert done.returncode == 0, done.stdout + done.stderr
    vendor = build.opp / "packages/vendors/npu_rope"  # where an install of npu_rope takes it from
    built = sorted(p.name for p in vendor.rglob("*.so"))
    libraries = [
        "libcust_opapi.so",
        "libcust_opmaster_rt2.0.so",
        "libcust_opsproto_rt2.0.so",
        "liboptiling.so",
    ]
    assert built == libraries
    tilings = next(vendor.rglob("libcust_opmaster_rt2.0.so"))
    undefined = subprocess.run(
        ["nm", "-DCu", str(tilings)], capture_output=True, text=True, check=True
    ).stdout
    ours = [line for line in undefined.splitlines() if "npu_rope" in line]
    assert not ours, "sources of ours are missing from the library"
