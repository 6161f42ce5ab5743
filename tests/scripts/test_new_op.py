"""The files that scripts/new_op.py makes: they keep the layers, build, and pass their tests, which fail on a
broken kernel.
"""

from __future__ import annotations

import ast
import importlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from simulated_npu import find_python

ROOT = Path(__file__).resolve().parents[2]
NAME = "shifted_copy"
CLANG_FORMAT = Path(sysconfig.get_path("scripts"), "clang-format")


def tracked_files() -> list[str]:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, timeout=60)
    if listed.returncode != 0:
        pytest.fail("this test copies what git tracks, and must run in a checkout")
    return [file for file in listed.stdout.splitlines() if (ROOT / file).is_file()]


def run(*command: str | Path, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        cwd=cwd,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=900,
    )


def require(done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]


def copy_of_checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("checkout")
    for file in tracked_files():
        target = folder / file
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / file, target)
    return folder


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copy_of_checkout(tmp_path_factory)


@pytest.fixture(scope="module")
def generated(copy: Path) -> Path:
    """A copy with the new operator in it."""
    require(run(sys.executable, "scripts/new_op.py", NAME, cwd=copy))
    return copy


def build(copy: Path) -> None:
    """Build the C library, and the registration if torch is installed. No kernel is simulated."""
    if not (copy / "build").exists():
        flags = [f"-DPython_EXECUTABLE={sys.executable}", "-DNPU_ROPE_WERROR=ON", "-DNPU_ROPE_SIM=OFF"]
        require(run("cmake", "-S", ".", "-B", "build", *flags, cwd=copy))
    require(run("cmake", "--build", "build", "--parallel", "2", cwd=copy))


# Import the copy: an editable install of this checkout would otherwise come before PYTHONPATH.
IMPORT_COPY = """
import sys
sys.meta_path[:] = [f for f in sys.meta_path if "editable" not in type(f).__module__]
import npu_rope
assert npu_rope.__file__.startswith(sys.argv[1]), npu_rope.__file__
del sys.argv[1]
"""
PYTEST = f"{IMPORT_COPY}import pytest\nsys.exit(pytest.main(sys.argv[1:]))\n"
COMMAND = f"{IMPORT_COPY}from npu_rope.cli import main\nmain()\n"


def environment_of(copy: Path) -> dict[str, str]:
    return {"PYTHONPATH": f"{copy}:{copy / 'simulator'}", "NPU_ROPE_LIB_DIR": str(copy / "build")}


def run_tests(copy: Path, *selection: str) -> subprocess.CompletedProcess[str]:
    """Run tests of the copy with the copy's package and library."""
    arguments = ("-q", "-p", "no:cacheprovider", *selection)
    return run(sys.executable, "-c", PYTEST, str(copy), *arguments, cwd=copy, **environment_of(copy))


def run_tests_on_npu(copy: Path, *selection: str) -> subprocess.CompletedProcess[str]:
    """Run tests of the copy on back end npu: torch_npu on the simulated CANN, with the copy's binding."""
    command = (sys.executable, "-c", COMMAND, str(copy), "sim", "--", find_python(), "-c", PYTEST, str(copy))
    backend = {"NPU_ROPE_TEST_BACKEND": "npu"}
    arguments = ("-q", "-p", "no:cacheprovider", *selection)
    return run(*command, *arguments, cwd=copy, **environment_of(copy), **backend)


def test_every_layer_has_a_file_of_the_operator(generated: Path) -> None:
    made = {path.relative_to(generated).as_posix() for path in generated.rglob(f"*{NAME}*") if path.is_file()}
    assert {
        f"csrc/capi/{NAME}.cpp",
        f"csrc/cpu/{NAME}.cpp",
        f"csrc/cpu/{NAME}.h",
        f"csrc/torch/{NAME}.cpp",
        f"csrc/core/{NAME}_check.cpp",
        f"csrc/core/{NAME}_check.h",
        f"npu_rope/ops/{NAME}.py",
        f"npu_rope/reference/{NAME}.py",
        f"tests/ops/test_{NAME}.py",
        f"docs/ops/{NAME}.md",
    } <= made


@pytest.mark.parametrize(
    "name", ["add_more", "rotary_norm", "zeros"]
)  # the import before rotary_norm has several lines
def test_its_import_is_in_alphabetical_order(monkeypatch, name: str) -> None:
    monkeypatch.syspath_prepend(ROOT / "scripts")
    text = importlib.import_module("new_op").add_to_package((ROOT / "npu_rope/__init__.py").read_text(), name)
    imported = [
        n.module for n in ast.parse(text).body if isinstance(n, ast.ImportFrom) and "ops" in str(n.module)
    ]
    assert f"npu_rope.ops.{name}" in imported
    assert imported == sorted(imported)


def test_it_changes_four_shared_files(generated: Path) -> None:
    changed = [
        file for file in tracked_files() if (generated / file).read_bytes() != (ROOT / file).read_bytes()
    ]
    assert changed == ["CMakeLists.txt", "csrc/capi/check.cpp", "include/npu_rope.h", "npu_rope/__init__.py"]


@pytest.mark.long
def test_the_layers_are_kept(generated: Path) -> None:
    require(run(sys.executable, "scripts/check_layers.py", str(generated), cwd=generated))


def require_tidy(folder: Path, name: str = NAME) -> None:
    """Check the format of the files of an operator in a copy, and of the shared files, as CI does."""
    made = [p for p in folder.rglob(f"*{name}*") if not p.is_relative_to(folder / "build")]
    python = [p for p in made if p.suffix == ".py"] + [folder / "npu_rope" / "__init__.py"]
    for tool in (["ruff", "check"], ["ruff", "format", "--check"]):
        require(run(sys.executable, "-m", *tool, *python, cwd=folder))
    cpp = [p for p in made if p.suffix in (".cpp", ".h")]
    cpp += [folder / "include/npu_rope.h", folder / "csrc/capi/check.cpp"]
    require(run(CLANG_FORMAT, "--dry-run", "-Werror", *cpp, cwd=folder))


def require_declarations(folder: Path) -> None:
    """Parse the operator's C++ files that need neither torch nor CANN. Whole builds are in the slow tests."""
    folders = [folder / layer for layer in ("csrc/core", "csrc/cpu", "csrc/capi", "op_host")]
    files = [path for layer in folders for path in layer.glob(f"{NAME}*.cpp") if "_def" not in path.name]
    assert len(files) >= 3
    compiler = [*shlex.split(os.environ.get("CXX", "c++")), "-std=c++17", "-fsyntax-only", f"-I{folder}"]
    require(run(*compiler, *files, cwd=folder))


@pytest.mark.long
def test_the_generated_files_call_what_is_declared(generated: Path) -> None:
    require_declarations(generated)


def test_the_generated_files_are_tidy(generated: Path) -> None:
    require_tidy(generated)


@pytest.mark.long
def test_the_script_formats_the_files_of_a_long_name(tmp_path_factory) -> None:
    folder, name = copy_of_checkout(tmp_path_factory), "scaled_copy_of_every_second_row"
    require(run(sys.executable, "scripts/new_op.py", name, "--kernel", cwd=folder))
    require_tidy(folder, name)


@pytest.mark.parametrize("kernel", [False, True], ids=["", "kernel"])
@pytest.mark.parametrize("name", ["q", "add_more", "shifted_copy", "zeros_of_ab_chars"])
def test_the_cpp_files_of_a_short_name_need_no_formatter(
    monkeypatch, tmp_path, name: str, kernel: bool
) -> None:
    monkeypatch.syspath_prepend(ROOT / "scripts")
    made = importlib.import_module("new_op").texts_of(name, kernel)
    for path in (".clang-format", "include/.clang-format"):
        (tmp_path / path).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / path, tmp_path / path)
    files = {tmp_path / p.relative_to(ROOT): text for p, text in made.items() if p.suffix in (".cpp", ".h")}
    for file, text in files.items():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    assert len(files) == (14 if kernel else 8)
    require(run(CLANG_FORMAT, "--dry-run", "-Werror", *files, cwd=tmp_path))


@pytest.mark.slow
def test_the_generated_tests_pass_and_fail_on_a_broken_kernel(generated: Path) -> None:
    build(generated)
    documented = (f"npu_rope/ops/{NAME}.py", f"npu_rope/reference/{NAME}.py")
    tests = (f"tests/ops/test_{NAME}.py", "tests/ops/test_registrar.py")
    require(run_tests(generated, "--doctest-modules", *tests, *documented))

    kernel = generated / "csrc" / "cpu" / f"{NAME}.cpp"
    right = kernel.read_text()
    wrong = right.replace("job.x[i] + job.epsilon", "job.x[i] - job.epsilon")
    assert wrong != right
    kernel.write_text(wrong)
    build(generated)
    kernel.write_text(right)
    done = run_tests(generated, f"tests/ops/test_{NAME}.py", "-k", "meets_the_bound")
    assert done.returncode == 1, done.stdout
    assert "test_array_meets_the_bound[cpu-" in done.stdout
    assert "test_array_meets_the_bound[reference-" not in done.stdout


@pytest.fixture(scope="module")
def generated_with_kernel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy with the new operator and its kernel, built as far as the operator's tests need it."""
    folder = copy_of_checkout(tmp_path_factory)
    require(run(sys.executable, "scripts/new_op.py", NAME, "--kernel", cwd=folder))
    torch_npu = next(Path(find_python()).parents[1].glob("lib/python3*/site-packages/torch_npu"))
    flags = [f"-DPython_EXECUTABLE={sys.executable}", "-DNPU_ROPE_WERROR=ON"]
    flags += ["-DNPU_ROPE_TORCH_NPU=ON", f"-DNPU_ROPE_TORCH_NPU_DIR={torch_npu}"]
    require(run("cmake", "-S", ".", "-B", "build", *flags, cwd=folder))
    build_with_kernel(folder)
    return folder


def build_with_kernel(folder: Path) -> None:
    kernels = [f"npu_rope_kernels__{soc}" for soc in ("ascend910b", "ascend310p", "ascend950")]
    libraries = ["npu_rope", "npu_rope_torch", "npu_rope_torch_npu", "npu_rope_opapi", "npu_rope_opmaster"]
    require(run("cmake", "--build", "build", "--target", *libraries, *kernels, "--parallel", "2", cwd=folder))


@pytest.mark.long
def test_the_files_of_a_kernel_keep_the_layers_and_change_the_same_shared_files(tmp_path_factory) -> None:
    folder = copy_of_checkout(tmp_path_factory)
    require(run(sys.executable, "scripts/new_op.py", NAME, "--kernel", cwd=folder))
    require(run(sys.executable, "scripts/check_layers.py", str(folder), cwd=folder))
    changed = [file for file in tracked_files() if (folder / file).read_bytes() != (ROOT / file).read_bytes()]
    assert changed == ["CMakeLists.txt", "csrc/capi/check.cpp", "include/npu_rope.h", "npu_rope/__init__.py"]
    made = {path.relative_to(folder).as_posix() for path in folder.rglob(f"*{NAME}*") if path.is_file()}
    assert {
        f"csrc/npu/{NAME}.cpp",
        f"op_host/{NAME}_def.cpp",
        f"op_host/{NAME}_tiling.cpp",
        f"op_kernel/npu_{NAME}.cpp",
        f"tests/cann/test_{NAME}_package.py",
    } <= made
    require_tidy(folder)
    require_declarations(folder)


@pytest.mark.slow
def test_a_kernel_passes_the_tests_on_all_back_ends_and_a_broken_one_fails(
    generated_with_kernel: Path,
) -> None:
    folder = generated_with_kernel
    documented = (f"npu_rope/ops/{NAME}.py", f"npu_rope/reference/{NAME}.py")
    tests = (f"tests/ops/test_{NAME}.py", f"tests/cann/test_{NAME}_package.py", "tests/ops/test_registrar.py")
    require(run_tests(folder, "--doctest-modules", *tests, *documented))
    on_npu = run_tests_on_npu(folder, tests[0])
    require(on_npu)
    assert "NpuShiftedCopy" in on_npu.stdout + on_npu.stderr

    source = folder / f"op_kernel/npu_{NAME}.cpp"
    right = source.read_text()
    source.write_text(right.replace("Adds(result, tile, static", "Muls(result, tile, static"))
    assert source.read_text() != right
    build_with_kernel(folder)
    done = run_tests(folder, *tests[:2], "-k", "epsilon or meets_the_bound")
    assert done.returncode == 1, done.stdout
    for case in ("test_array_meets_the_bound[sim-", "test_tensor_meets_the_bound[sim:ascend310p-"):
        assert case in done.stdout
    assert "test_epsilon_is_added_to_every_element[" in done.stdout
    assert "test_array_meets_the_bound[cpu-" not in done.stdout
    on_npu = run_tests_on_npu(folder, tests[0], "-k", "meets_the_bound")
    assert "test_tensor_meets_the_bound[npu-" in on_npu.stdout


@pytest.mark.parametrize("name", ["rms-norm", "rope"])
def test_bad_names_are_refused_and_nothing_is_written(copy: Path, name: str) -> None:
    before = {path: path.stat().st_mtime_ns for path in copy.rglob("*") if path.is_file()}
    done = run(sys.executable, "scripts/new_op.py", name, cwd=copy)
    assert done.returncode == 2
    assert "[new_op] NAME must" in done.stderr
    assert {path: path.stat().st_mtime_ns for path in copy.rglob("*") if path.is_file()} == before


SNAKE_CASE = "be snake case (a-z, 0-9, single _ before a letter) but got "
TAKEN = {
    **{name: f"{SNAKE_CASE}{name!r}" for name in ("RmsNorm", "2d", "a__b", "", "scale_", "_scale", "norm_2")},
    **{f: f"be free but include/npu_rope.h has npu_rope_{f}" for f in ("rms_norm_rope_set_rows", "check")},
    "rms_norm_out": "be free but include/npu_rope.h has npu_rope_rms_norm",
    **{word: f"be free but Python or C uses {word!r}" for word in ("class", "int", "abs", "sum", "exp")},
    **{word: f"be free but C++ uses {word!r}" for word in ("operator", "new", "union", "register")},
    **{
        word: f"be free but C uses {word!r}"
        for word in ("memcpy", "printf", "free", "main", "null", "size_t", "uint8_t", "linux")
    },
    **{word: rf"be free but .* uses {word!r}" for word in ("double", "template", "void", "x", "epsilon")},
    "native": "be free but npu_rope/native.py exists",
    "testing": "be free but npu_rope/testing exists",
    "common": "be free but 'common' is reserved",
}


@pytest.mark.parametrize("name", TAKEN)
def test_a_name_that_is_taken_or_impossible_is_refused(monkeypatch, name: str) -> None:
    monkeypatch.syspath_prepend(ROOT / "scripts")
    new_op = importlib.import_module("new_op")
    with pytest.raises(new_op.CannotGenerate) as refused:
        new_op.check_name(name)
    pattern = TAKEN[name] if ".*" in TAKEN[name] else re.escape(TAKEN[name])
    assert re.fullmatch(rf"NAME must {pattern}\.", str(refused.value))


def test_each_formatter_that_is_missing_is_named_once(monkeypatch, capsys) -> None:
    monkeypatch.syspath_prepend(ROOT / "scripts")
    new_op = importlib.import_module("new_op")
    monkeypatch.setattr(new_op.shutil, "which", lambda name, path: None)
    new_op.format_files([])
    lines = capsys.readouterr().err.splitlines()
    assert [line.partition(" ")[0] for line in lines] == ["ruff", "clang-format"]


def test_ordinary_names_are_free(monkeypatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "scripts")
    new_op = importlib.import_module("new_op")
    for name in ("scale", "gelu", "layer_norm", "rope_norm", "shifted_copy", "add"):
        new_op.check_name(name)


def test_a_name_that_is_taken_is_refused(generated: Path) -> None:
    done = run(sys.executable, "scripts/new_op.py", NAME, cwd=generated)
    assert done.returncode == 2
    assert f"NAME must be free but include/npu_rope.h has npu_rope_{NAME}." in done.stderr
