"""The files of the wheels, and that the unpacked wheels work: with only NumPy, and with torch over ctypes."""

import json
import os
import re
import subprocess
import sys
import tarfile
import textwrap
import zipfile
from pathlib import Path

import numpy
import pytest
from ascend_sim.programs import stubs

from npu_rope import chips, operator_package, simulated_package

compiles = pytest.mark.slow
ROOT = Path(__file__).parents[2]
INTERFACE = "op_api/include/aclnn_npu_rope.h"  # of an operator package
WHEEL_SOC = "ascend310p"  # the kernels of one SoC are enough for these tests
OPERATORS = {path.name.removesuffix("_def.cpp") for path in (ROOT / "op_host").glob("*_def.cpp")}
BUNDLED = "npu_rope/lib/opp/vendors/npu_rope"


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory):
    """Both wheels, unpacked into one folder. They are built without torch and with an operator package, as
    after scripts/build_npu.sh."""
    folder = tmp_path_factory.mktemp("wheel")
    interface = folder / "npu_rope" / INTERFACE
    interface.parent.mkdir(parents=True)
    interface.write_text("/* what CANN generates */\n")
    options = [
        "--config-settings=cmake.define.NPU_ROPE_TORCH=OFF",
        f"--config-settings=cmake.define.NPU_ROPE_OPP={folder / 'npu_rope'}",
        f"--config-settings=cmake.define.NPU_ROPE_SIM_KERNELS={WHEEL_SOC}",
        # These two options save two thirds of the compile time.
        "--config-settings=cmake.define.ASCEND_SIM_KERNEL_OPTIMIZE=-O0",
        "--config-settings=cmake.build-type=Debug",
        "-w",
        str(folder),
        "-q",
    ]
    for project in (ROOT / "simulator", ROOT):
        build_options = [*options, f"--config-settings=build-dir={folder / f'build-{project.name}'}"]
        pip = [sys.executable, "-m", "pip", "wheel", str(project), "--no-deps", "--no-build-isolation"]
        built = subprocess.run([*pip, *build_options], capture_output=True, text=True, check=False)
        assert built.returncode == 0, built.stderr
    wheels = sorted(folder.glob("*.whl"))
    assert [wheel.name.split("-")[0] for wheel in wheels] == ["ascend_sim", "npu_rope"]
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as archive:
            packages = {name.split("/")[0].split("-")[0] for name in archive.namelist()}
            assert packages == {wheel.name.split("-")[0]}
            archive.extractall(folder / "site")
    return folder / "site"


def run(site, code):
    """Run code with the unpacked wheels first on the path."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("NPU_ROPE_", "ASCEND_SIM_"))}
    # -S keeps the import hook of the editable install out, and the site-packages, which follow here.
    installed = [p for p in sys.path if p.endswith("site-packages")]
    environment["PYTHONPATH"] = os.pathsep.join([str(site), *installed])
    return subprocess.run(
        [sys.executable, "-S", "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        env=environment,
        cwd=site,
        check=False,
    )


def files(site):
    return {str(p.relative_to(site)) for p in site.rglob("*") if p.is_file()}


def source_distribution(project, folder):
    """Make the source distribution of a project's folder."""
    code = f"from scikit_build_core.build import build_sdist; print(build_sdist({str(folder)!r}))"
    environment = {**os.environ, "SOURCE_DATE_EPOCH": "315532800"}
    command = [sys.executable, "-c", code]
    made = subprocess.run(
        command, cwd=project, env=environment, capture_output=True, text=True, check=False, umask=0o022
    )
    assert made.returncode == 0, made.stderr
    return folder / made.stdout.split()[-1]


@compiles
@pytest.mark.parametrize("project", [ROOT / "simulator", ROOT], ids=["ascend_sim", "npu_rope"])
def test_the_source_distribution_of_an_unpacked_one_has_the_same_bytes(project, tmp_path):
    folder = tmp_path / "Räder noch einmal"
    first = source_distribution(project, tmp_path)
    with tarfile.open(first) as archive:
        archive.extractall(folder, filter="data")
    (unpacked,) = folder.iterdir()
    second = source_distribution(unpacked, folder)
    assert second.read_bytes() == first.read_bytes()


@compiles
def test_wheel_holds_the_library_its_header_and_the_licence(unpacked):
    names = files(unpacked)
    assert {"npu_rope/lib/libnpu_rope.so", "npu_rope/include/npu_rope.h", "npu_rope/ops/rope.py"} <= names
    assert any(n.endswith("dist-info/licenses/LICENSE") for n in names)
    assert not any("libnpu_rope_torch" in n for n in names)


@compiles
def test_wheel_holds_the_simulator_its_headers_and_every_kernel(unpacked):
    names = files(unpacked)
    assert "ascend_sim/lib/libascend_sim.so" in names
    headers = {
        str(p.relative_to(ROOT / "simulator/include")) for p in (ROOT / "simulator/include").rglob("*.h")
    }
    assert {"kernel_operator.h", "tiling_prelude.h", "ascend_sim.h", "ascendc/tensor.h"} <= headers
    assert {f"ascend_sim/include/{name}" for name in headers} <= names
    package = unpacked / "npu_rope/lib/simulated_package"
    assert kernels_in(package / "sim_kernels") == every_kernel(package, WHEEL_SOC)


def test_an_install_has_every_kernel():
    """The environment of the tests has the simulated kernels of three SoCs."""
    package = simulated_package.load().folder
    found = kernels_in(package / "sim_kernels")
    assert found == set().union(
        *(every_kernel(package, soc) for soc in ("ascend910b", "ascend310p", "ascend950"))
    )


@compiles
def test_wheel_holds_the_simulated_operator_package(unpacked):
    folder = "npu_rope/lib/simulated_package/"
    names = {n.removeprefix(folder) for n in files(unpacked) if n.startswith(folder)}
    headers = {f"op_api/include/aclnn_npu_{stem}.h" for stem in OPERATORS}
    config = "op_impl/ai_core/tbe/config"
    described = {f"{config}/{soc}/aic-{soc}-ops-info.json" for soc in chips.SOCS}
    tilings = f"op_impl/ai_core/tbe/op_tiling/lib/linux/{os.uname().machine}/libcust_opmaster_rt2.0.so"
    kernels = {n for n in names if n.startswith(("op_impl/ai_core/tbe/kernel/", "sim_kernels/"))}
    assert names - kernels == {"op_api/lib/libcust_opapi.so", tilings} | headers | described
    package = unpacked / folder
    for soc in chips.SOCS:
        assert operator_package.fault_of(package, soc) is None


@compiles
def test_the_wheel_contains_the_operator_package_and_the_import_sets_its_path_for_cann(unpacked, tmp_path):
    assert f"{BUNDLED}/{INTERFACE}" in files(unpacked)
    own = tmp_path / "own"
    (own / INTERFACE).parent.mkdir(parents=True)
    (own / INTERFACE).touch()
    foreign = tmp_path / "foreign"
    done = run(
        unpacked,
        f"""
        import os, sys
        sys.modules["torch"] = None
        import npu_rope
        from npu_rope import backends
        first = os.environ.pop("ASCEND_CUSTOM_OPP_PATH")
        for path in ("{foreign}", "{foreign}:{own}"):
            os.environ["ASCEND_CUSTOM_OPP_PATH"] = path
            backends.offer_operator_package()
            print(os.environ["ASCEND_CUSTOM_OPP_PATH"])
        print(first)
        print([name for name in sys.modules if name.split(".")[0] in ("torch_npu", "acl")])
        mapped = open("/proc/self/maps").read().lower()
        print([name for name in ("ascend", "simulated_package") if name in mapped])
        """,
    )
    assert done.returncode == 0, done.stderr
    bundled = f"{unpacked}/{BUNDLED}"
    assert done.stdout.splitlines() == [f"{bundled}:{foreign}", f"{foreign}:{own}", bundled, "[]", "[]"]


def kernels_in(folder):
    """Return the entries of all kernels, each from the library of its SoC."""
    found = set()
    for library in folder.iterdir():
        entries = {name for name in stubs.Elf.read(library).defined if f"__{library.stem}__" in name}
        assert entries, library
        found |= entries
    return found


def every_kernel(package, soc):
    """Return the entries of an SoC's kernels that the package lists. The build made the list from the
    definitions: op_build writes <operator>_<types>.o for each column of types."""
    listed = package / f"op_impl/ai_core/tbe/kernel/config/{soc}/binary_info_config.json"
    operators = json.loads(listed.read_text())
    assert {f"npu_{stem}" for stem in OPERATORS} == {
        Path(rows["binaryList"][0]["binPath"]).parent.name for rows in operators.values()
    }
    objects = [Path(row["binPath"]) for rows in operators.values() for row in rows["binaryList"]]
    kernels = {f"{path.parent.name}__{soc}__{path.stem.partition('_')[2]}" for path in objects}
    assert {
        f"npu_rope__{soc}__half_int32_t_float_half",
        f"npu_add_rms_norm__{soc}__float_float_half_half_float",
    } <= kernels
    return kernels


@compiles
def test_libraries_need_neither_torch_nor_python_and_find_each_other(unpacked):
    libraries = list((unpacked / "npu_rope/lib").rglob("*.so"))
    # The kernels of WHEEL_SOC, the CPU's library, the operator package and its tiling.
    assert len(libraries) == 4
    libraries += (unpacked / "ascend_sim/lib").glob("*.so")  # the cores, and the simulated CANN
    assert len(libraries) == 6
    for library in libraries:
        needed = subprocess.run(["ldd", str(library)], capture_output=True, text=True, check=True).stdout
        for absent in ("torch", "python", "not found"):
            assert absent not in needed
        if library.parent.name == "sim_kernels" or library.name == "libcust_opapi.so":
            found = re.search(r"libascend_sim\.so => (\S+)", needed)
            assert Path(found[1]).resolve() == (unpacked / "ascend_sim/lib/libascend_sim.so").resolve()


@compiles
def test_numpy_works_without_torch(unpacked):
    done = run(
        unpacked,
        """
        import sys
        sys.modules["torch"] = None  # as if it were not installed
        import numpy as np, npu_rope
        from npu_rope import native
        y = npu_rope.rope(np.ones((1, 1, 2), np.float32), np.array([0]), npu_rope.RopeParams(2))
        print(native.load().path.parent.parent.parent, y.tolist())
        """,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [str(unpacked), "[[[1.0,", "1.0]]]"]


# ---- a virtual environment with only NumPy -----------------------------------------------------------


@pytest.fixture(scope="module")
def numpy_only(unpacked, tmp_path_factory):
    """The Python of a virtual environment with the wheels and NumPy in it."""
    folder = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder / "venv")], check=True)
    packages = folder / "packages"
    packages.mkdir()
    installed = Path(numpy.__file__).parents[1]
    for name in ("numpy", "numpy.libs"):
        if (installed / name).exists():
            (packages / name).symlink_to(installed / name)
    (site,) = (folder / "venv").glob("lib/python*/site-packages")
    (site / "wheel.pth").write_text(f"{unpacked}\n{packages}\n")
    return folder / "venv/bin/python"


def run_in(python, code, folder):
    """Run code with this Python in a folder, and return its output."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("NPU_ROPE_", "PYTHON"))}
    environment["TMPDIR"] = str(folder)
    done = subprocess.run(
        [str(python), "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        env=environment,
        cwd=folder,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@compiles
def test_the_environment_has_only_numpy(numpy_only, unpacked, tmp_path):
    output = run_in(
        numpy_only,
        """
        import importlib.util as u, npu_rope
        others = ("torch", "typer", "rich", "matplotlib", "ml_dtypes", "pytest")
        print(npu_rope.__path__, [name for name in others if u.find_spec(name)])
        """,
        tmp_path,
    )
    assert output == f"['{unpacked}/npu_rope'] []\n"


@compiles
def test_simulated_devices_run_with_only_numpy(numpy_only, tmp_path):
    output = run_in(
        numpy_only,
        """
        import numpy as np, npu_rope
        from npu_rope import backends
        assert backends.available() == ["reference", "cpu", "sim", "sim:ascend310p", "sim:ascend950"]
        params = npu_rope.RopeParams(64, "neox", freq_base=500000.0)
        for dtype in (np.float32, np.float16):
            x = np.random.default_rng(0).standard_normal((2, 9, 3, 80)).astype(dtype)
            for positions in (np.arange(9, dtype=np.int32), np.arange(18).reshape(2, 9)):
                expected = npu_rope.rope(x, positions, params, backend="reference").astype(float)
                for name in ("cpu", "sim:ascend310p"):
                    y = npu_rope.rope(x, positions, params, backend=name).astype(float)
                    assert np.abs(y - expected).max() < (1e-5 if dtype is np.float32 else 5e-3), name
        try:
            npu_rope.rope(x, positions + 2**22, params, backend="sim:ascend310p")
        except ValueError as error:
            print(error)
        """,
        tmp_path,
    )
    assert output.startswith("[rope] positions must be between -4194303 and 4194303 on the device but got ")


KERNEL = """
#include "kernel_operator.h"
using namespace AscendC;

extern "C" __global__ __aicore__ void twice(GM_ADDR x, GM_ADDR y, GM_ADDR workspace, GM_ADDR tiling) {
    GlobalTensor<float> in, out;
    in.SetGlobalBuffer((__gm__ float*)x + GetBlockIdx() * 64, 64);
    out.SetGlobalBuffer((__gm__ float*)y + GetBlockIdx() * 64, 64);
    TPipe pipe;
    TQue<TPosition::VECIN, 1> arriving;
    TQue<TPosition::VECOUT, 1> leaving;
    pipe.InitBuffer(arriving, 1, 256);
    pipe.InitBuffer(leaving, 1, 256);
    LocalTensor<float> a = arriving.AllocTensor<float>();
    DataCopy(a, in, 64);
    arriving.EnQue(a);
    a = arriving.DeQue<float>();
    LocalTensor<float> b = leaving.AllocTensor<float>();
    Add(b, a, a, 64);
    arriving.FreeTensor(a);
    leaving.EnQue(b);
    b = leaving.DeQue<float>();
    DataCopy(out, b, 64);
    leaving.FreeTensor(b);
}
"""


@compiles
@pytest.mark.parametrize("soc", ["ascend910b", "ascend310p", "ascend950"])
def test_a_users_kernel_compiles_and_runs_with_only_numpy(soc, numpy_only, tmp_path):
    (tmp_path / "twice.cpp").write_text(KERNEL)
    order = "    arriving.EnQue(a);\n    a = arriving.DeQue<float>();\n"
    assert order in KERNEL
    (tmp_path / "broken.cpp").write_text(KERNEL.replace(order, ""))
    (tmp_path / "nonsense.cpp").write_text("nonsense")
    output = run_in(
        numpy_only,
        f"""
        import numpy as np
        import ascend_sim
        x, y = np.arange(256, dtype=np.float32), np.zeros(256, np.float32)
        kernel = ascend_sim.compile("twice.cpp", "twice", soc="{soc}")
        report = kernel.run(ascend_sim.In(x), ascend_sim.Out(y), block_dim=4)
        assert np.array_equal(y, 2 * x)
        print(report.summary["bytes_read"], end=" ")
        y[:] = 7
        try:
            ascend_sim.compile("broken.cpp", "twice", soc="{soc}").run(
                ascend_sim.In(x), ascend_sim.Out(y), block_dim=4
            )
        except ascend_sim.KernelBroken as error:
            print(error.rule, end=" ")
        assert np.all(y == 7)
        try:
            ascend_sim.compile("nonsense.cpp", "twice", soc="{soc}")
        except ascend_sim.CompileFailed as error:
            print("nonsense.cpp" in str(error))
        """,
        tmp_path,
    )
    assert output == "1024 SIM-HAZARD-01 True\n"


@compiles
def test_torch_works_over_ctypes_without_the_registration(unpacked):
    done = run(
        unpacked,
        """
        import torch, npu_rope
        from npu_rope import backends
        from npu_rope.reference.rope import rope as reference
        assert backends.torch_registration() is None
        params, positions = npu_rope.RopeParams(4, "neox"), torch.arange(3)
        x = torch.randn(2, 3, 5, 4, dtype=torch.float64, requires_grad=True)
        y = npu_rope.rope(x, positions, params)
        expected = torch.from_numpy(reference(x.detach().numpy(), positions.numpy(), params))
        assert (y - expected).abs().max() < 1e-12
        y.square().sum().backward()  # a rotation keeps lengths: the gradient is 2 x
        assert (x.grad - 2 * x).abs().max() < 1e-12
        z = x.detach().clone()
        npu_rope.rope_(z, positions, params)
        assert torch.equal(z, y)
        torch.ops.npu_rope.rope_(z, positions, n_dims=4, rope_mode=2, forward=False)
        assert (z - x).abs().max() < 1e-12
        try:
            npu_rope.rope(x.detach(), positions[:2], params)
        except ValueError as error:
            print(error)
        """,
    )
    assert done.returncode == 0, done.stderr
    assert "[rope] positions must have shape [S] = [3]" in done.stdout
