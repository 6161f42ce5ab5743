"""scripts/build_npu.sh with a stand-in for CANN (cann_stand_in.py) that has the layout of CANN 9.0 or 9.1:
calls of tools, the number of parallel compiles, messages for missing pieces, and builds after failures.
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
REMOVED_VARIABLES = (
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


def restore_signals():
    """Restore the default handlers: a shell cannot trap signals that were ignored when it started."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


@dataclass
class Machine:
    """A folder with a stand-in for CANN, the commands on PATH, and the log of the stand-ins."""

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

    def run(self, *arguments, **options):
        running = self.start(*arguments, **options)
        stdout, stderr = running.communicate()
        return subprocess.CompletedProcess(running.args, running.returncode, stdout, stderr)

    def start(self, *arguments, script=SCRIPT, sourced=True, **variables):
        """Start the script in its own process group. A variable that is None is unset."""
        environment = {k: v for k, v in os.environ.items() if k not in REMOVED_VARIABLES}
        environment |= {
            "HOME": str(self.folder),
            "PATH": str(self.commands),
            "NPU_ROPE_PROGRESS_SECONDS": "0.2",
        }
        environment |= {"NPU_ROPE_STAND_IN_LOG": str(self.log)}
        if sourced:  # the variables that set_env.sh sets
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
            preexec_fn=restore_signals,
        )


@pytest.fixture
def machine(tmp_path):
    """A machine with CANN 9.1.0 and no NPU."""
    return Machine(tmp_path, stand_in.cann(tmp_path / "cann-9.1.0"), stand_in.commands(tmp_path / "commands"))


def refusal(done):
    """Require that a run ended with status 2, and return its messages."""
    assert done.returncode == 2, done.stdout + done.stderr
    assert all(line.startswith("[build_npu] ") for line in done.stderr.splitlines())
    return done.stderr


# ---- missing pieces ----------------------------------------------------------------------------------


@pytest.mark.skipif(Path("/usr/local/Ascend").exists(), reason="CANN is installed")
def test_without_cann_the_message_says_what_is_missing_and_where_to_get_it(machine):
    messages = refusal(machine.run(sourced=False))
    assert "CANN's toolkit must be installed but ASCEND_HOME_PATH is not set." in messages
    assert "Get CANN 9.1.0's toolkit from https://www.hiascend.com/cann" in messages


@pytest.mark.skipif(Path("/usr/local/Ascend").exists(), reason="CANN is installed")
def test_without_home_the_message_is_the_same(machine):
    assert "CANN's toolkit must be installed but" in refusal(machine.run(sourced=False, HOME=None))


@pytest.mark.parametrize("path", ["{home}/", "{home}//", "{home}/bin/.."])
def test_the_folder_of_cann_is_printed_normalised(machine, path):
    done = machine.run("--check", ASCEND_HOME_PATH=path.format(home=machine.home))
    assert done.returncode == 0, done.stderr
    assert f"[build_npu] CANN 9.1.0 in {machine.home}; SoCs:" in done.stdout
    assert f"op_build: {machine.home}/tools/opbuild/op_build;" in done.stdout


def test_an_ascend_home_path_that_is_no_folder_is_refused(machine):
    messages = refusal(machine.run(ASCEND_HOME_PATH="/nonexistent"))
    assert "ASCEND_HOME_PATH must be CANN's folder but /nonexistent is not a folder." in messages


def test_a_complete_machine_passes_the_check_and_nothing_is_built(machine):
    done = machine.run("--check", "ascend910b", "-j", "3")
    assert done.returncode == 0, done.stderr
    assert f"[build_npu] CANN 9.1.0 in {machine.home}; SoCs: ascend910b; 3 kernels at a time" in done.stdout
    assert machine.calls == []


TEMPLATE = "tools/op_project_templates/ascendc/customize"
PARTS = {
    f"{TEMPLATE}/cmake/func.cmake": f"{TEMPLATE}/cmake/func.cmake but this file is missing.",
    f"{TEMPLATE}/CMakeLists.txt": f"{TEMPLATE}/CMakeLists.txt but this file is missing.",
    "include": "include/register/op_def_registry.h but this file is missing.",
    "tools/opbuild/op_build": "CANN must have tools/opbuild/op_build but",
    "bin/opc": "opc must be on PATH but was not found. CANN compiles kernels with opc.",
    "tools/ccec_compiler/bin/bisheng": "bisheng must be on PATH but was not found.",
    "tools/ccec_compiler/bin/llvm-objdump": "llvm-objdump must be on PATH but was not found.",
}


@pytest.mark.parametrize("part", PARTS)
def test_each_part_of_cann_that_is_missing_is_named(machine, part):
    (machine.home / part).unlink()
    assert PARTS[part] in refusal(machine.run("--check"))


DEBIAN = {"cmake": "cmake", "make": "make", "python3": "python3", "cc": "gcc", "c++": "g++"}


@pytest.mark.parametrize("tool", DEBIAN)
def test_each_tool_of_the_system_that_is_missing_is_named(machine, tool):
    (machine.commands / tool).unlink()
    messages = refusal(machine.run("--check"))
    assert f"{tool} must be installed but is not on PATH." in messages
    assert f"on Debian and Ubuntu: apt-get install {DEBIAN[tool]}\n" in messages
    assert f"on openEuler: dnf install {DEBIAN[tool].replace('g++', 'gcc-c++')}\n" in messages


def test_a_compiler_that_a_variable_names_is_named_with_it(machine):
    messages = refusal(machine.run("--check", CXX="clang++-99 -O2"))
    assert "CXX must name a compiler but clang++-99 is not on PATH." in messages
    assert "Install it, or unset CXX to use c++." in messages
    assert "apt-get" not in messages


def test_everything_that_is_missing_is_named_at_once(machine):
    for tool in ("cmake", "c++"):
        (machine.commands / tool).unlink()
    (machine.home / "tools/opbuild/op_build").unlink()
    (machine.home / "bin/opc").unlink()
    (machine.home / "python/site-packages/scipy/__init__.py").write_text("raise ImportError\n")
    machine.npu_smi(A2.replace("910B3", "910A"))
    messages = refusal(machine.run("--check"))
    for part in (
        "cmake must be installed but is not on PATH.",
        "c++ must be installed but is not on PATH.",
        "apt-get install cmake g++\n",
        "CANN must have tools/opbuild/op_build but",
        "opc must be on PATH but was not found. CANN compiles kernels with opc.",
        "lacks scipy.",
        "CANN's tbe imports these modules, so the import of tbe was not checked.",
        "npu-smi reports Ascend910A, for which npu_rope has no kernels.",
    ):
        assert messages.count(part) == 1, messages


def test_without_cann_the_other_pieces_are_still_checked(machine):
    (machine.commands / "make").unlink()
    modules = machine.home / "python/site-packages"
    (modules / "cffi/__init__.py").write_text("raise ImportError\n")
    (modules / "tbe/__init__.py").write_text("raise AttributeError('np.float_')\n")
    messages = refusal(machine.run("--check", ASCEND_HOME_PATH="/nonexistent"))
    assert "make must be installed but is not on PATH." in messages
    assert "lacks cffi." in messages
    assert "CANN's folder was not found, so its files, tools and tbe were not checked." in messages
    assert "np.float_" not in messages


def test_a_build_with_a_missing_piece_ends_before_npu_smi_runs(machine):
    (machine.commands / "cmake").unlink()
    done = machine.run()
    assert "cmake must be installed" in refusal(done)
    assert "npu-smi" not in done.stdout


NUMPY, PROTOBUF = "'numpy>=1.26,<2'", "protobuf==3.20.3"
PACKAGES = {"attr": "attrs", "google.protobuf": PROTOBUF, "numpy": NUMPY, "yaml": "pyyaml"}


@pytest.mark.parametrize("module", [m for m in stand_in.MODULES if m != "tbe"])
def test_each_python_module_that_is_missing_is_named(machine, module):
    file = machine.home / "python/site-packages" / module.replace(".", "/") / "__init__.py"
    file.write_text("raise ImportError('absent')\n")
    package = PACKAGES.get(module, module)
    assert f"Install them: python3 -m pip install {package}\n" in refusal(machine.run("--check"))


def test_all_missing_python_modules_are_named_at_once(machine):
    for module in ("sympy", "attr", "numpy", "google/protobuf"):
        (machine.home / "python/site-packages" / module / "__init__.py").write_text("raise ImportError\n")
    messages = refusal(machine.run("--check"))
    assert "lacks numpy attrs sympy protobuf." in messages
    assert f"python3 -m pip install {NUMPY} attrs sympy {PROTOBUF}\n" in messages


def test_an_import_error_of_tbe_is_quoted(machine):
    file = machine.home / "python/site-packages/tbe/__init__.py"
    file.write_text("raise OSError('libplatform.so: cannot open')\n")
    messages = refusal(machine.run("--check"))
    assert "must import CANN's tbe but fails with OSError: libplatform.so: cannot open." in messages
    assert f"Source {machine.home}/set_env.sh" in messages


# Errors of a tbe that needs another NumPy or protobuf. Sources: runtime_ctypes.py of CANN 8.1 with NumPy 2,
# an extension module that was built for NumPy 1, and ge_ir_pb2.py of CANN 8.1 with protobuf 4 and 7.
OTHER_PACKAGES = {
    "AttributeError('`np.float_` was removed in the NumPy 2.0 release. Use `np.float64` instead.')": NUMPY,
    "AttributeError('np.float_')": NUMPY,
    "ImportError('numpy.core.multiarray failed to import')": NUMPY,
    "TypeError('Descriptors cannot be created directly.\\nIf this call came from a _pb2.py file')": PROTOBUF,
    "ImportError('cannot import name reflection from google.protobuf')": PROTOBUF,
}


@pytest.mark.parametrize("error", OTHER_PACKAGES)
def test_the_remedy_for_a_tbe_that_needs_another_package_is_that_package(machine, error):
    (machine.home / "python/site-packages/tbe/__init__.py").write_text(f"raise {error}\n")
    messages = refusal(machine.run("--check"))
    assert "must import CANN's tbe but fails with " in messages
    assert ".." not in messages
    assert f"works with: python3 -m pip install {OTHER_PACKAGES[error]}\n" in messages
    assert "Source " not in messages


@pytest.mark.parametrize("error", ["ModuleNotFoundError('inp.so')", "OSError('libsnp.so: cannot open')"])
def test_other_errors_of_tbe_are_not_blamed_on_numpy(machine, error):
    (machine.home / "python/site-packages/tbe/__init__.py").write_text(f"raise {error}\n")
    messages = refusal(machine.run("--check"))
    assert "Source " in messages
    assert "pip install" not in messages


def test_the_documentation_and_the_container_install_the_packages_that_the_script_names():
    for file in ("docs/npu.md", "docker/Dockerfile.npu"):
        lines = re.findall(r"^.*pip install.* sympy .*$", (ROOT / file).read_text(), re.M)
        assert len(lines) == 1
        words = shlex.split(lines[0].rstrip("\\"))
        for module in stand_in.MODULES[:-1]:
            assert shlex.split(PACKAGES.get(module, module))[0] in words


def test_an_environment_that_was_not_sourced_is_refused(machine):
    done = machine.run("--check", PATH=str(machine.commands), PYTHONPATH="")
    assert "opc must be on PATH but was not found. CANN compiles kernels with opc." in refusal(done)


@pytest.mark.parametrize("version", ["8.1.RC1", "8.3.RC1", "7.0.0"])
def test_a_cann_that_is_too_old_is_refused(tmp_path, version):
    machine = Machine(
        tmp_path, stand_in.cann(tmp_path / "cann", version), stand_in.commands(tmp_path / "commands")
    )
    messages = refusal(machine.run("--check"))
    assert f"CANN must be 8.5 or newer but {machine.home} is {version}" in messages
    assert "Get CANN 9.1.0's toolkit" in messages


@pytest.mark.parametrize("version", ["8.5.0", "9.0.0", "9.1.0", "9.1.RC2"])
def test_a_supported_cann_is_named_with_its_version(tmp_path, version):
    machine = Machine(
        tmp_path, stand_in.cann(tmp_path / "cann", version), stand_in.commands(tmp_path / "commands")
    )
    done = machine.run("--check")
    assert done.returncode == 0, done.stderr
    assert f"[build_npu] CANN {version} in {machine.home};" in done.stdout


@pytest.mark.skipif(Path("/usr/local/Ascend").exists(), reason="CANN is installed")
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
    messages = refusal(machine.run("ascend910"))
    assert "SOC must be ascend910b, ascend910_93, ascend310p or ascend950 but got ascend910." in messages


@pytest.mark.parametrize("version", ["8.5.0", "9.0.0"])
def test_ascend950_needs_a_cann_that_knows_it(tmp_path, version):
    machine = Machine(
        tmp_path, stand_in.cann(tmp_path / "cann", version), stand_in.commands(tmp_path / "commands")
    )
    messages = refusal(machine.run("--check", "ascend310p", "ascend950"))
    assert f"CANN must be 9.1 or newer to compile kernels for ascend950 but {machine.home} is {version}." in (
        messages
    )
    done = machine.run("--check", "--all")
    assert done.returncode == 0, done.stderr
    assert "; SoCs: ascend910b ascend910_93 ascend310p;" in done.stdout


@pytest.mark.parametrize("arguments", [("ascend910b", "--all"), ("--all", "ascend910b")])
def test_a_soc_together_with_all_is_refused(machine, arguments):
    messages = refusal(machine.run("--check", *arguments))
    assert messages == "[build_npu] SOC must not be named beside --all but got ascend910b.\n"


@pytest.mark.parametrize("jobs", ["0", "x", "-3", "1.5", "", "1000", "9" * 20, "--check"])
def test_an_invalid_number_of_jobs_is_refused(machine, jobs):
    assert f"JOBS must be a number from 1 to 999 but got '{jobs}'." in refusal(machine.run("-j", jobs))


@pytest.mark.parametrize("arguments", [("-j", "999"), ("-j999",)])
def test_the_largest_number_of_jobs_is_accepted(machine, arguments):
    done = machine.run("--check", *arguments)
    assert done.returncode == 0, done.stderr
    assert "; 999 kernels at a time" in done.stdout


def test_jobs_without_a_number_are_refused(machine):
    assert "-j must be followed by a number of jobs." in refusal(machine.run("-j"))


def test_the_help_names_options_and_exit_status(machine):
    done = machine.run("--help", sourced=False)
    assert done.returncode == 0
    for word in (
        "ascend910_93",
        "--all",
        "-j JOBS",
        "--check",
        "npu-smi",
        "set_env.sh",
        "Exit status: 0: built",
    ):
        assert word in done.stdout


# ---- the chip ----------------------------------------------------------------------------------------

LISTING = """case "$*" in
"info -l") printf '\\tTotal Count         : 1\\n\\n\\tNPU ID              : 4\\n' ;;"""
# Outputs of npu-smi on an A2, on an A3 and on an Ascend950.
A2 = f"""{LISTING}
"info -t board -i 4") printf '\\tNPU ID              : 4\\n\\tModel               : x\\n' ;;
"info -t board -i 4 -c 0") printf '\\tChip Type           : Ascend\\n\\tChip Name           : 910B3\\n' ;;
*) exit 3 ;; esac"""
A3 = f"""{LISTING}
"info -t board -i 4") printf '\\tNPU ID : 4\\n' ;;
"info -t board -i 4 -c 0") printf '\\tChip Name : Ascend910\\n\\tNPU Name : 9392\\n' ;;
*) exit 3 ;; esac"""
A5 = f"""{LISTING}
"info -t board -i 4") printf '\\tChip Name : Ascend950PR\\n\\tNPU Name : 9589\\n' ;;
*) exit 3 ;; esac"""
CHIPS = {
    "Ascend950PR_9589": (A5, "ascend950"),
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
def test_the_chip_name_of_another_a2_firmware_is_recognised(machine, kind):
    machine.npu_smi(A2.replace("Type           : Ascend", f"Type : {kind}").replace("910B3", "A2G3"))
    done = machine.run("--check")
    assert done.returncode == 0, done.stderr
    assert "[build_npu] npu-smi reports Ascend910B1: building for ascend910b." in done.stdout


def test_waiting_for_npu_smi_is_reported(machine):
    machine.npu_smi("sleep 1000")
    running = machine.start("--check")
    line = running.stdout.readline()
    assert running.poll() is None
    os.killpg(running.pid, signal.SIGKILL)
    running.communicate(timeout=60)
    assert (
        line == f"[build_npu] Waiting for npu-smi, for at most {chips.NPU_SMI_SECONDS} s for each command.\n"
    )


@pytest.mark.parametrize("chip", ["310B1", "910A", "910B"])
def test_a_chip_without_kernels_is_refused(machine, chip):
    machine.npu_smi(A2.replace("910B3", chip))
    messages = refusal(machine.run("--check"))
    assert f"npu-smi reports Ascend{chip}, for which npu_rope has no kernels." in messages
    assert "name its SoC: ascend910b ascend910_93 ascend310p ascend950." in messages


ALL = "SoCs: ascend910b ascend910_93 ascend310p ascend950;"


def test_without_npu_smi_it_builds_for_all_socs_and_explains_how_to_choose(machine):
    done = machine.run("--check")
    assert done.returncode == 0, done.stderr
    assert "not known: npu-smi, which comes with the NPU's driver, is not on PATH." in done.stdout
    assert "To build for one, name it: scripts/build_npu.sh ascend910b" in done.stdout
    assert ALL in done.stdout


REASONS = {
    "echo 'dcmi module failed' >&2; exit 255": "failed with status 255: dcmi module failed.",
    "echo nothing": "npu-smi info -l must list an NPU ID but lists none.",
    f"{LISTING} *) echo ;; esac": "npu-smi info -t board -i 4 must have a Chip Name but has none.",
}


@pytest.mark.parametrize("text", REASONS)
def test_the_reason_why_npu_smi_names_no_chip_is_printed(machine, text):
    machine.npu_smi(text)
    done = machine.run("--check")
    assert done.returncode == 0, done.stderr
    assert REASONS[text] in done.stdout
    assert ALL in done.stdout


@pytest.mark.parametrize("arguments", [("ascend310p",), ("--all",)])
def test_npu_smi_does_not_run_if_the_soc_is_named(machine, arguments):
    machine.npu_smi("exit 1")
    done = machine.run("--check", *arguments)
    assert done.returncode == 0, done.stderr
    assert "npu-smi" not in done.stdout
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
    """A copy of the sources in which a build may write."""
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
        return self.machine.run(*arguments, **self.options())

    def options(self):
        compiler = stand_in.recording_compiler(self.machine.folder / "compiler")
        return {"script": self.clone / "scripts/build_npu.sh", "CXX": str(compiler)}

    @property
    def opp(self):
        return self.clone / "build/npu/opp"

    @property
    def outputs(self):
        """Return the files of a build that an install of npu_rope or a user would use."""
        folder = self.clone / "build/npu"
        return sorted(p.name for p in folder.glob("*") if p.name.startswith(("opp.", "custom_opp"))) + (
            ["opp"] if self.opp.exists() else []
        )

    def inject(self, fault, text=""):
        """Give a stand-in the named fault."""
        Path(f"{self.machine.log}.{fault}").write_text(text)

    def remove(self, fault):
        Path(f"{self.machine.log}.{fault}").unlink()

    def most_jobs(self):
        """Return the largest number of runs of opc at the same time."""
        steps = Path(f"{self.machine.log}.jobs").read_text().split()
        return max(itertools.accumulate(1 if step == "begin" else -1 for step in steps))


@pytest.fixture
def build(request, tmp_path, clone):
    """A build with CANN 9.1.0, or with the version of the test's parameter."""
    version = getattr(request, "param", VERSIONS[-1])
    home = stand_in.cann(tmp_path / f"cann-{version}", version)
    stand_in.add_libraries(home)
    return Build(Machine(tmp_path, home, stand_in.commands(tmp_path / "commands")), clone)


needs_make = pytest.mark.skipif(shutil.which("make") is None, reason="CANN's template builds with make")


@pytest.mark.long
@needs_make
@pytest.mark.parametrize(
    "build", [*(pytest.param(v, marks=pytest.mark.slow) for v in VERSIONS[:-1]), VERSIONS[-1]], indirect=True
)
def test_a_build_calls_cann_s_tools_and_compiles_kernels_in_parallel(build):
    socs = ("ascend910b", "ascend310p" if build.machine.home.name == "cann-9.0.0" else "ascend950")
    done = build.run(*socs, "-j", "4")
    assert done.returncode == 0, done.stdout + done.stderr
    out = build.clone / "build/npu/opp_project/build_out"
    assert (out / "compute_units").read_text() == ";".join(socs)
    calls = build.machine.calls
    library = out / "autogen/libascend_all_ops.so"
    assert [c for c in calls if c.startswith("op_build")] == [f"op_build {library} {out / 'autogen'}"]
    kernels = out / "op_kernel/binary"
    expected = [
        f"opc {build.clone}/build/npu/opp_project/op_kernel/{stem}.cpp --soc_version={soc}"
        f" --output={kernels}/{soc}/{stem} --bin_filename={name}"
        for soc in socs
        for stem in STEMS
        for name in "ab"
    ]
    assert sorted(c for c in calls if c.startswith("opc")) == sorted(expected)
    assert 2 <= build.most_jobs() <= 4
    # CANN compiles our sources once for op_build and once for each of two libraries. All compiles have our
    # root as an include folder, and those for the libraries are C++17.
    folders = [build.clone / "op_host", build.clone / "csrc/core"]
    host_compiles = [c for c in calls if c.startswith("c++") and any(f"{folder}/" in c for folder in folders)]
    sources = [source for folder in folders for source in sorted(folder.glob("*.cpp"))]
    op_build_compiles = [c for c in host_compiles if "-o " + str(library) in c]
    compiled = [c for c in host_compiles if " -c " in c]
    assert (len(op_build_compiles), len(compiled)) == (1, 2 * len(sources))
    assert all(str(source) in op_build_compiles[0] for source in sources)
    assert all(f"-I{build.clone} " in c for c in op_build_compiles + compiled)
    assert all("-std=c++17" in c and "-std=c++11" not in c for c in compiled)
    for compile_call in op_build_compiles + compiled:
        assert ("-DNPU_ROPE_ASCEND950" in compile_call) == ("ascend950" in socs)
    for definition in ("-DOP_PROTO_LIB", "-DOP_TILING_LIB"):
        assert len([c for c in compiled if definition in c]) == len(sources)
    tbe = build.opp / "packages/vendors/npu_rope/op_impl/ai_core/tbe"
    assert len(list((tbe / "kernel").rglob("*.o"))) == len(expected)
    assert build.outputs == ["custom_opp_test.run", "opp"]
    assert done.stdout.splitlines()[-1] == "build/npu/custom_opp_test.run"
    assert f"[build_npu] built {len(expected)} kernels in " in done.stdout


@needs_make
@pytest.mark.slow
def test_one_job_compiles_one_kernel_at_a_time_and_progress_is_shown(build):
    done = build.run("ascend310p", "-j", "1")
    assert done.returncode == 0, done.stdout + done.stderr
    assert build.most_jobs() == 1
    progress = [line for line in done.stdout.splitlines() if " of 3 kernels, 0 min" in line]
    assert len(progress) >= 2, done.stdout  # op_build describes three kernels for each of two SoCs


@pytest.mark.slow
@needs_make
def test_a_failed_build_leaves_no_output_and_the_next_one_succeeds(build):
    assert build.run("ascend310p").returncode == 0
    build.inject("opc_fails", STEMS[-1])
    failed = build.run("ascend310p")
    assert failed.returncode == 1
    assert "[build_npu] The build failed; nothing was installed." in failed.stderr
    assert build.outputs == []
    working = build.clone / f"build/npu/opp_project/build_out/op_kernel/{STEMS[-1]}_ascend310p"
    assert working.is_dir(), "the stand-in must leave what CANN's script leaves"
    build.remove("opc_fails")
    again = build.run("ascend310p")
    assert again.returncode == 0, again.stdout + again.stderr
    assert build.outputs == ["custom_opp_test.run", "opp"]


def kill_script(running, number):
    os.kill(running.pid, number)


def kill_group(running, number):
    os.killpg(running.pid, number)


@pytest.mark.long
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
    build.inject("opc_waits")
    running = build.machine.start("ascend310p", "-j", "2", **build.options())
    deadline = time.monotonic() + 120
    while sum(call.startswith("opc ") for call in build.machine.calls) < 2:
        assert running.poll() is None, running.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.05)
    kill(running, number)
    _, stderr = running.communicate(timeout=60)  # returns once no process has its output open
    assert running.returncode == -number
    assert stderr.splitlines()[-1] == "[build_npu] The build was interrupted; nothing was installed."
    with pytest.raises(ProcessLookupError):
        os.killpg(running.pid, 0)
    assert build.outputs == []
    build.remove("opc_waits")
    assert build.run("ascend310p", "-j", "16").returncode == 0


@needs_make
@pytest.mark.slow
def test_cann_s_folder_may_have_a_space_in_its_name(build):
    home = build.machine.home.rename(build.machine.folder / "CANN 9.1")
    build.machine.home = home
    done = build.run("ascend310p")
    assert done.returncode == 0, done.stdout + done.stderr
    assert build.outputs == ["custom_opp_test.run", "opp"]


@pytest.mark.long
@needs_make
def test_truncated_kernels_are_found_and_nothing_is_installed(build):
    build.inject("opc_truncates")
    failed = build.run("ascend310p", "-j", "16")
    assert failed.returncode == 1
    kernel = f"opp.new/packages/vendors/npu_rope/op_impl/ai_core/tbe/kernel/ascend310p/{STEMS[0]}/a.o"
    assert f"{kernel} must have the bytes that a.json describes but is truncated or changed." in failed.stderr
    assert build.outputs == []


@pytest.mark.long
@needs_make
def test_a_failing_op_build_ends_the_build_with_a_message(build):
    build.inject("op_build_fails")
    failed = build.run("ascend310p", "-j", "2")
    assert failed.returncode == 1
    messages = " ".join((failed.stdout + failed.stderr).split())
    assert "CANN's op_build must write aclnn_*.cpp and op_proto.cc to" in messages
    assert build.outputs == []


@pytest.mark.long
@needs_make
def test_a_changed_compiler_is_used_by_the_next_build(build):
    build.inject("op_build_fails")  # CMake has chosen the compiler before op_build runs
    script = build.clone / "scripts/build_npu.sh"
    for name in ("first", "second"):
        compiler = stand_in.recording_compiler(build.machine.folder / name)
        assert build.machine.run("ascend310p", script=script, CXX=str(compiler)).returncode == 1
        cache = (build.clone / "build/npu/CMakeCache.txt").read_text()
        assert re.findall(r"^CMAKE_CXX_COMPILER:\w+=(.*)$", cache, re.M) == [str(compiler)]


@needs_make
@pytest.mark.slow
@pytest.mark.parametrize("build", VERSIONS, indirect=True)
def test_our_definitions_compile_in_the_template(build):
    """The compiler is a real one; the headers of CANN are those of simulator/cann/include."""
    done = build.machine.run("ascend910b", script=build.clone / "scripts/build_npu.sh")
    assert done.returncode == 0, done.stdout + done.stderr
    vendor = build.opp / "packages/vendors/npu_rope"  # an install of npu_rope copies this folder
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
    own_symbols = [line for line in undefined.splitlines() if "npu_rope" in line]
    assert not own_symbols, "the library lacks sources of this project"
