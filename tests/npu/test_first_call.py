"""npu_rope's operator package is found without a variable, and no operator falls back to the CPU. Damaged,
absent or late packages and libraries are named in the error.
"""

import dataclasses
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import torch
from ascend_sim.programs import session
from simulated_npu import run_command

from npu_rope import backends, operator_package
from npu_rope.native import library_folders
from npu_rope.ops.registrar import registered

SCRIPTS = Path(__file__).parent / "scripts"
# Operators that launch another operator's kernel.
KERNEL_OF = {
    "rotary_embedding": "rotary_mul",
    "rotary_position_embedding": "rope_qk",
    "rms_norm_backward_dx": "rms_norm_backward",
    "rms_norm_rope_set_rows": "rms_norm_rope",
    "qkv_norm_rope_cache_set_rows": "qkv_norm_rope_cache",
}


def kernels_of(name):
    """Return the kernels that a call of this operator launches: one, or none if it takes only CPU tensors."""
    if name in registered and not registered[name].on_npu:
        return []
    stem = re.sub(r"(_out|_)$", "", name)
    stem = KERNEL_OF.get(stem, stem)
    return ["Npu" + "".join(word.capitalize() for word in stem.split("_"))]


LISTED = {
    name.partition("::")[2] for name in torch._C._dispatch_get_all_op_names() if name.startswith("npu_rope::")
}


def slow(*values):
    return pytest.param(*values, marks=pytest.mark.slow)


@pytest.mark.long
@pytest.mark.parametrize(
    ("order", "queue"),
    [
        ("npu_rope,torch_npu", "1"),
        ("torch,npu_rope", "2"),
        *(slow("npu_rope,torch_npu", queue) for queue in "02"),
        *(slow("torch,npu_rope", queue) for queue in "01"),
        *(slow("torch_npu,npu_rope", queue) for queue in "012"),
        *(slow("npu_rope", queue) for queue in "012"),
    ],
)
def test_every_operator_is_a_launch_as_the_first_call(simulated, tmp_path, order, queue, monkeypatch):
    monkeypatch.delenv("ASCEND_CUSTOM_OPP_PATH", raising=False)
    # npu-rope sim names the package; ascend-sim run does not.
    done = dataclasses.replace(simulated, command=run_command).sim(
        "--", simulated.python, SCRIPTS / "first_call.py", order, tmp_path, TASK_QUEUE_ENABLE=queue
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = simulated.last_json(done)
    assert found.keys() == LISTED
    assert {name: message for name, message in found.items() if message != "ok"} == {}
    for name in found:
        report = session.read_reports(tmp_path / name, "Ascend910B2")
        assert [k for k in report.launches if k.startswith("Npu")] == kernels_of(name), name
        assert sum(n for k, n in report.launches.items() if k.startswith("Npu")) == len(kernels_of(name))
        assert not report.fallbacks, name
        assert report.is_clean


def test_the_binding_does_not_use_torch_npu_s_search():
    binding = backends.npu_binding()
    if binding is None:
        pytest.skip("the binding of torch_npu was not built: no torch_npu")
    wanted = subprocess.run(["nm", "-D", "-C", binding], capture_output=True, text=True, check=True).stdout
    assert re.search(r" U GetOpApiFuncAddr\(", wanted)  # both functions are torch_npu's
    assert not re.search(r" U GetApiFunc\(", wanted)


ONE_CALL = """
import os, sys
order = sys.argv[1:]
for module in order:
    __import__(module)
import torch, torch_npu, npu_rope
x, at = torch.ones(1, 4, 2, 16), torch.arange(4)
p = npu_rope.RopeParams(16, "neox")
y = npu_rope.rope(x.npu(), at.npu(), p).cpu()
assert (y - npu_rope.rope(x, at, p)).abs().max() < 1e-6
print([line.split()[-1] for line in open("/proc/self/maps") if line.rstrip().endswith("libcust_opapi.so")][0])
"""


@pytest.fixture(scope="session")
def package(tmp_path_factory):
    """A copy of the simulated package with a name different from that of npu_rope's bundled package."""
    bundled = next(f for f in library_folders() if (f / "simulated_package").is_dir())
    folder = tmp_path_factory.mktemp("package") / "lib" / "own"
    shutil.copytree(bundled / "simulated_package", folder)
    for library in bundled.glob("*.so"):
        (folder.parent / library.name).symlink_to(library)
    return folder


def test_a_package_that_the_user_names_is_used(simulated, package):
    done = simulated.code(ONE_CALL, "npu_rope", fresh=True, ASCEND_CUSTOM_OPP_PATH=f"/nonexistent:{package}")
    assert done.status == 0, done.stderr
    assert done.stdout.splitlines()[-1] == f"{package}/op_api/lib/libcust_opapi.so"


@pytest.mark.long
@pytest.mark.parametrize("size", [0, 3000, 300_000])
def test_a_truncated_package_of_the_user_is_named_at_the_import(simulated, package, tmp_path, size):
    """torch_npu opens the package at its first operator, and a truncated library ends the process."""
    own = tmp_path / "own"
    shutil.copytree(package, own, symlinks=True)
    os.truncate(own / "op_api/lib/libcust_opapi.so", size)
    done = simulated.code("import npu_rope", fresh=True, ASCEND_CUSTOM_OPP_PATH=str(own))
    assert done.status == 0, done.stderr
    assert "RuntimeWarning: [npu] operator package must be whole but " in done.stderr
    assert f"{own}/op_api/lib/libcust_opapi.so must " in done.stderr
    assert "take its folder out of ASCEND_CUSTOM_OPP_PATH" in done.stderr


@pytest.mark.long
@pytest.mark.parametrize(
    "config",
    [
        "load_priority=another,npu_rope\n",
        "# priority=another\n  the priority of vendors =npu_rope\nload_priority=another\n",
        "load_priority=npu_rope\r\n",
    ],
    ids=["plain", "any line with priority", "carriage return"],
)
def test_a_package_installed_into_cann_comes_before_the_bundled_one(simulated, package, tmp_path, config):
    """hicann/opbase indv_collector.cpp, NnopbaseReadConfigFile."""
    (tmp_path / "vendors").mkdir()
    (tmp_path / "vendors" / "npu_rope").symlink_to(package)
    (tmp_path / "vendors" / "config.ini").write_bytes(config.encode())
    done = simulated.code(ONE_CALL, "torch", fresh=True, ASCEND_OPP_PATH=str(tmp_path))
    assert done.status == 0, done.stderr
    assert done.stdout.splitlines()[-1] == f"{package}/op_api/lib/libcust_opapi.so"


def error_of(done):
    """Return the error output of a failed run as one line."""
    assert done.status != 0, done.stdout
    return " ".join(done.stderr.split())


def half(library):
    library.write_bytes(library.read_bytes()[: library.stat().st_size // 2])


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (half, "be whole but got {library}, which is absent or truncated."),
        (lambda library: library.unlink(), "be whole but got {library}, which is absent or truncated."),
        (lambda library: library.write_text("no library"), "be whole but got {library}, which is absent"),
    ],
    ids=["half", "absent", "text"],
)
def test_a_damaged_package_is_named(simulated, package, tmp_path, damage, words):
    broken = tmp_path / "broken"
    shutil.copytree(package, broken)
    library = broken / "op_api/lib/libcust_opapi.so"
    damage(library)
    message = error_of(simulated.code(ONE_CALL, ASCEND_CUSTOM_OPP_PATH=str(broken)))
    assert f"[npu] operator package must {words.format(library=library)}" in message
    assert "scripts/build_npu.sh" in message


TBE = "op_impl/ai_core/tbe"
LIST = f"{TBE}/kernel/config/ascend910b/binary_info_config.json"
TILINGS = f"{TBE}/op_tiling/lib/linux/*/libcust_opmaster_rt2.0.so"
KERNELS = f"{TBE}/kernel/ascend910b/npu_rope/*"


def cut(length):
    return lambda file: file.write_bytes(file.read_bytes()[:length])


def remove(path):
    shutil.rmtree(path) if path.is_dir() else path.unlink()


# By name: the files, the damage, the status of the first phase, and the part of the message about the file.
DAMAGES = {
    "no op_impl": ("op_impl", remove, 161001, f"{LIST}, which is absent or not JSON."),
    "another chip's package": (f"{TBE}/kernel/*/ascend910b", remove, 161001, f"{LIST}, which is absent"),
    "list cut": (LIST, cut(100), 161001, f"{LIST}, which is absent or not JSON."),
    "list without kernels": (
        LIST,
        lambda f: f.write_text("{}"),
        161001,
        f"{LIST}, which lists none of them.",
    ),
    "list of another JSON type": (
        LIST,
        lambda f: f.write_text("[1]"),
        161001,
        f"{LIST}, which is absent or no",
    ),
    "no tilings": (TILINGS, remove, 561002, "libcust_opmaster_rt2.0.so, which is absent or truncated."),
    "tilings cut": (TILINGS, half, 561002, "libcust_opmaster_rt2.0.so, which is absent or truncated."),
    "no kernels": (f"{KERNELS}.o", remove, 561113, ".o, which is absent."),
    "kernels empty": (f"{KERNELS}.o", cut(0), 561113, ".o, which is empty."),
    "kernels cut": (f"{KERNELS}.o", half, 361001, ".o, which is truncated"),
    "no descriptions": (f"{KERNELS}.json", remove, 561108, ".json, which is absent."),
    "descriptions cut": (f"{KERNELS}.json", half, 561108, ".json, which is not JSON."),
}


def test_doctor_finds_no_fault_in_the_simulated_package(package):
    for soc in ("ascend910b", "ascend910_93", "ascend310p"):
        assert operator_package.fault_of(package, soc) is None


@pytest.mark.long
@pytest.mark.parametrize("queue", ["0", "1"])
@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_part_of_a_package_is_explained_at_the_call(simulated, package, tmp_path, name, queue):
    """hicann/opbase indv_collector.cpp reads the lists and the tilings, indv_executor.cpp the kernels."""
    where, damage, status, words = DAMAGES[name]
    broken = tmp_path / "lib" / "broken"
    shutil.copytree(package.parent, broken.parent, symlinks=True)
    (broken.parent / package.name).rename(broken)
    damaged = sorted(broken.glob(where))
    assert damaged
    for path in damaged:
        damage(path)
    message = error_of(simulated.code(ONE_CALL, ASCEND_CUSTOM_OPP_PATH=str(broken), TASK_QUEUE_ENABLE=queue))
    assert f"must be one that CANN runs on this chip but got status {status} for the package" in message
    assert f"[NpuRope] operator package must {'list' if words.startswith(LIST) else 'have'}" in message
    assert words in message
    assert "a part of it is absent or truncated (build it again)" in message
    assert "remove that folder from ASCEND_CUSTOM_OPP_PATH or CANN's vendors." in message
    assert "path of the package contains .o" not in message
    assert operator_package.fault_of(broken, "ascend910b") is not None


@pytest.mark.parametrize("queue", ["0", "1"])
@pytest.mark.parametrize("name", ["my.org/broken", "link.o"])
def test_a_path_with_the_ending_of_a_kernel_is_explained_at_the_call(
    simulated, package, tmp_path, name, queue
):
    """hicann/opbase indv_bininfo.cpp, NnopbaseGetKernelJsonPath cuts the given path and resolves no links."""
    moved = tmp_path / name
    if name == "link.o":
        moved.symlink_to(package)
    else:
        shutil.copytree(package.parent, moved.parent, symlinks=True)
        (moved.parent / package.name).rename(moved)
    message = error_of(simulated.code(ONE_CALL, ASCEND_CUSTOM_OPP_PATH=str(moved), TASK_QUEUE_ENABLE=queue))
    assert f"got status 561108 for the package {moved}." in message
    described = str(moved)[: str(moved).index(".o")] + ".json"
    assert f"must have a description of each kernel but got {described}, which is absent." in message
    assert f"CANN cuts the path at the first .o of {moved}/" in message
    assert "(install npu_rope in another folder)" in message
    assert operator_package.fault_of(moved, "ascend910b") == operator_package.path_fault_of(moved)


def test_a_link_hides_a_folder_whose_name_has_the_ending_of_a_kernel(simulated, package, tmp_path):
    """hicann/opbase indv_collector.cpp, NnopbaseGetCustomOppPath does not resolve links."""
    moved = shutil.copytree(package.parent, tmp_path / "my.org", symlinks=True)
    (tmp_path / "link").symlink_to(moved / package.name)
    done = simulated.code(ONE_CALL, ASCEND_CUSTOM_OPP_PATH=str(tmp_path / "link"))
    assert done.status == 0, done.stderr


@pytest.mark.long
def test_a_chip_that_the_package_has_no_list_for_is_explained_at_the_call(simulated, package, tmp_path):
    broken = tmp_path / "broken"
    shutil.copytree(package, broken)
    shutil.rmtree(broken / TBE / "kernel/config/ascend310p")
    message = error_of(simulated.code(ONE_CALL, ASCEND_CUSTOM_OPP_PATH=str(broken), soc="Ascend310P3"))
    assert "got status 161001" in message
    assert "must list the operator's kernels for ascend310p" in message


def test_without_any_list_cann_does_not_begin(simulated, package, tmp_path):
    """hicann/opbase indv_collector.cpp, NnopbaseCollectorWork returns 561108. NnopbaseCreateExecutorSpace
    turns it into 361001."""
    broken = tmp_path / "broken"
    shutil.copytree(package, broken)
    (broken / LIST).unlink()
    source = "import os, torch_npu\nos.environ.pop('ASCEND_OPP_PATH')\n" + ONE_CALL
    message = error_of(simulated.code(source, fresh=True, ASCEND_CUSTOM_OPP_PATH=str(broken)))
    assert "got status 361001" in message
    assert f"{LIST}, which is absent or not JSON." in message


LATE = """
import os, torch, torch_npu, npu_rope
own = os.environ["ASCEND_CUSTOM_OPP_PATH"]
os.environ["ASCEND_CUSTOM_OPP_PATH"] = "/tmp"  # another package
import ctypes
cann = ctypes.CDLL("libascend_sim_cann.so")
getattr(cann, "_ZN14simulated_cann17operator_packagesEv")()  # as the first operator of another package does
os.environ["ASCEND_CUSTOM_OPP_PATH"] = own
npu_rope.rope(torch.ones(1, 4, 2, 16).npu(), torch.arange(4).npu(), npu_rope.RopeParams(16))
"""


@pytest.mark.long
@pytest.mark.parametrize("queue", ["0", "1"])
def test_a_variable_that_cann_read_too_early_is_explained_at_the_call(simulated, queue):
    message = error_of(simulated.code(LATE, fresh=True, TASK_QUEUE_ENABLE=queue))
    assert "[npu] operator package must be one that CANN runs on this chip but got status 161001" in message
    assert "CANN read ASCEND_CUSTOM_OPP_PATH before npu_rope was imported" in message


@pytest.mark.long
@pytest.mark.parametrize(
    "config",
    [None, "load_priority=another\n", "priority\nload_priority=npu_rope\n"],
    ids=["no config.ini", "not listed", "no names"],
)
def test_a_folder_that_cann_does_not_read_is_no_installed_package(simulated, package, tmp_path, config):
    """hicann/opbase indv_collector.cpp, NnopbaseReadConfigFile: vendors/config.ini lists the packages."""
    (tmp_path / "vendors").mkdir()
    (tmp_path / "vendors" / "npu_rope").symlink_to(package)
    if config:
        (tmp_path / "vendors" / "config.ini").write_text(config)
    done = simulated.code(ONE_CALL, "torch", fresh=True, ASCEND_OPP_PATH=str(tmp_path))
    assert done.status == 0, done.stderr
    assert str(package) not in done.stdout.splitlines()[-1]
    assert done.stdout.splitlines()[-1].endswith("/simulated_package/op_api/lib/libcust_opapi.so")


COPY_THEN_CALL = """
import torch, torch_npu
x = torch.ones(1, 4, 2, 16).npu(){}
torch.npu.synchronize()
import npu_rope
npu_rope.rope(x, torch.arange(4).npu(), npu_rope.RopeParams(16))
"""


def test_cann_s_own_operators_are_also_a_package(simulated):
    """If one of them is the process's first operator, a path that is set later is not read."""
    message = error_of(simulated.code(COPY_THEN_CALL.format(" + 1"), fresh=True))
    assert "got status 161001" in message
    assert "CANN read ASCEND_CUSTOM_OPP_PATH before npu_rope was imported" in message


@pytest.mark.long
def test_copies_are_no_operators_of_a_package(simulated):
    done = simulated.code(COPY_THEN_CALL.format(""), fresh=True)
    assert done.status == 0, done.stderr


@pytest.mark.long
@pytest.mark.parametrize("queue", ["0", "1"])
def test_without_cann_s_own_folder_the_last_package_has_no_tiling(simulated, queue):
    """hicann/opbase indv_collector.cpp, NnopbaseLoadTilingSo: the last folder counts as CANN's own."""
    source = "import os, torch_npu\nos.environ.pop('ASCEND_OPP_PATH')\n" + ONE_CALL
    message = error_of(simulated.code(source, fresh=True, TASK_QUEUE_ENABLE=queue))
    assert "got status 561002" in message
    assert "ASCEND_OPP_PATH is not set (source CANN's set_env.sh)" in message


@pytest.mark.long
def test_cann_s_own_folder_may_be_opp_latest(simulated, tmp_path):
    """hicann/opbase indv_collector.cpp, GetBuiltInBasePath."""
    (tmp_path / "opp_latest").mkdir()
    source = "import os, torch_npu\nos.environ.pop('ASCEND_OPP_PATH')\n"
    source += f"os.environ['ASCEND_HOME_PATH'] = {str(tmp_path)!r}\n"
    done = simulated.code(source + ONE_CALL, fresh=True)
    assert done.status == 0, done.stderr


# ---- a binding that does not load --------------------------------------------------------------------


@pytest.fixture
def broken_libraries(tmp_path):
    """npu_rope's libraries, one of which is not a valid library."""

    def make(name):
        complete = next(f for f in library_folders() if (f / "simulated_package").is_dir())
        for library in complete.iterdir():
            (tmp_path / library.name).symlink_to(library)
        (tmp_path / name).unlink()
        (tmp_path / name).write_text("no library")
        return str(tmp_path)

    return make


WITHOUT_BINDING = """
import torch, torch_npu, npu_rope
x, at, p = torch.ones(1, 4, 2, 16), torch.arange(4), npu_rope.RopeParams(16)
assert npu_rope.rope(x, at, p).shape == x.shape
for _ in range(2):
    try:
        torch.ops.npu_rope.rope(x.npu(), at.npu(), n_dims=16, rope_mode=2)
    except npu_rope.BackendUnavailable as error:
        print(error)
"""


@pytest.mark.long
def test_a_binding_that_does_not_load_is_reported_at_the_first_call_and_by_doctor(
    simulated, broken_libraries
):
    folder = broken_libraries("libnpu_rope_torch_npu.so")
    done = simulated.code(WITHOUT_BINDING, fresh=True, NPU_ROPE_LIB_DIR=folder)
    assert done.status == 0, done.stderr
    assert done.stdout.count("npu_rope's binding of torch_npu does not load: ") == 2
    assert f"{folder}/libnpu_rope_torch_npu.so" in done.stdout
    assert done.stdout.count("Install npu_rope again, from a checkout, with the installed torch and") == 2
    doctor = simulated.run("-m", "npu_rope.cli", "doctor", fresh=True, NPU_ROPE_LIB_DIR=folder)
    assert "Traceback" not in doctor.stderr + doctor.stdout
    assert re.search(r"^ +no +binding for +it does not load: .*file too short", doctor.stdout, re.M), (
        doctor.stdout
    )


@pytest.mark.long
def test_kernels_of_cpu_tensors_that_do_not_load_are_reported(simulated, broken_libraries):
    folder = broken_libraries("libnpu_rope_torch.so")
    source = "import torch, npu_rope\nx = torch.ones(1, 4, 2, 16)\n"
    source += "print(npu_rope.rope(x, torch.arange(4), npu_rope.RopeParams(16)).sum().item())"
    done = simulated.code(source, fresh=True, NPU_ROPE_LIB_DIR=folder)
    assert done.status == 0, done.stderr
    assert f"RuntimeWarning: [npu_rope] {folder}/libnpu_rope_torch.so must load but got " in done.stderr
    complete = simulated.code(source, fresh=True)
    assert done.stdout == complete.stdout
