"""A definition and a kernel that are not this project's go the same way: what executes definitions, writes
interfaces and runs calls knows no operator. Where ours are stricter than CANN asks, this one is not."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from pathlib import Path

import aclnn
import numpy as np
import pytest

from npu_rope import native_sim, simulator

ROOT = Path(__file__).resolve().parents[2]
FOREIGN = ROOT / "tests" / "cann" / "foreign"
HOST = ROOT / "simulator" / "cann" / "host"
FLAGS = ["-std=c++17", "-O0", "-fPIC", "-fvisibility=hidden", "-Wall", "-Wextra", "-Werror"]
FLAGS += [f"-I{aclnn.INCLUDE}", f"-I{ROOT}", f"-I{FOREIGN}"]
TYPES = {"X": "float", "Y": "float", "Z": "float"}


def compiled(*sources, output, more=()):
    compiler = shlex.split(os.environ.get("CXX", "c++"))
    subprocess.run([*compiler, *FLAGS, *map(str, more), *map(str, sources), "-o", str(output)], check=True)
    return output


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    """The operator's package, built as cmake/NpuRopeCannOp.cmake builds ours."""
    folder = tmp_path_factory.mktemp("foreign")
    libraries, headers = folder / "op_api/lib", folder / "op_api/include"
    libraries.mkdir(parents=True)
    headers.mkdir()
    parts = [
        compiled(FOREIGN / "weighted_add_def.cpp", output=folder / f"def{mode}.o", more=["-c", mode])
        for mode in ("-DOP_DEFINITIONS", "-DOP_PROTO_LIB", "-DOP_TILING_LIB")
    ]
    shared = [HOST / f"{s}.cpp" for s in ("contexts", "op_def", "registry")] + [
        ROOT / "simulator/src/profiles.cpp"
    ]
    objects = [compiled(s, output=folder / f"{s.stem}.o", more=["-c"]) for s in shared]
    op_build = compiled(HOST / "op_build.cpp", parts[0], *objects, output=folder / "op_build")
    subprocess.run([op_build, headers], check=True)
    calls = [HOST / f"{s}.cpp" for s in ("op_call", "op_launch", "device_view")]
    compiled(
        headers / "aclnn_weighted_add.cpp",
        *calls,
        *parts,
        *objects,
        native_sim.load().path,
        output=libraries / "libcust_opapi.so",
        more=["-shared", f"-I{headers}"],
    )
    return folder


@pytest.fixture(scope="module")
def kernel(tmp_path_factory):
    entry = "weighted_add__ascend910b__float_float_float"
    defines = {"weighted_add": entry} | {f"DTYPE_{a}": t for a, t in TYPES.items()}
    folder = tmp_path_factory.mktemp("kernel")
    return simulator.build(FOREIGN / "weighted_add.cpp", defines=defines, folder=folder)


@pytest.fixture
def device(runtime, package, kernel, monkeypatch):
    monkeypatch.setenv("NPU_ROPE_SIM_KERNELS", str(kernel))
    opened = aclnn.Device.open(runtime, package)
    opened.set_soc("Ascend910B4")
    yield opened
    opened.forget()


def call(**changed):
    x = np.arange(21, dtype=np.float32).reshape(3, 7)
    made = {"x": x, "y": x[::-1].copy(), "out": np.zeros_like(x), "axes": [0], "alpha": 0.5, "adds": True}
    made["shift"] = [0]
    return made | changed


def refused(device, given):
    with pytest.raises(aclnn.Refused) as caught:
        device.call("WeightedAdd", given)
    assert not given["out"].any()
    return caught.value.status, str(caught.value)


def test_its_interface_is_written(device):
    declared = [(p.type, p.name) for p in device.parameters("WeightedAdd")]
    assert declared == [
        ("const aclTensor*", "x"),
        ("const aclTensor*", "y"),
        ("double", "alpha"),
        ("char*", "kindOptional"),
        ("const aclFloatArray*", "weightsOptional"),
        ("const aclBoolArray*", "flagsOptional"),
        ("const aclIntArray*", "axes"),
        ("bool", "adds"),
        ("const aclIntArray*", "shiftOptional"),
        ("const aclTensor*", "out"),
        ("uint64_t*", "workspaceSize"),
        ("aclOpExecutor**", "executor"),
    ]


def test_it_is_described(package):
    described = json.loads((package / "op_api/include/aic-ascend910b-ops-info.json").read_text())[
        "WeightedAdd"
    ]
    assert described["input1"]["dtype"] == "float32,float16"
    assert described["attr_weights"] == {
        "type": "listFloat", "value": "all", "paramType": "optional", "defaultValue": "[1.5,2]",
    }  # fmt: skip
    assert described["attr_flags"]["defaultValue"] == "[true,false]"
    assert described["attr_kind"]["defaultValue"] == "plain"
    assert "defaultValue" not in described["attr_axes"]
    # What AddConfig(soc) without a configuration says.
    assert described["dynamicCompileStatic"] == {"flag": "true"}


def test_it_runs_with_its_defaults(device):
    given = call()
    device.call("WeightedAdd", given)
    assert np.array_equal(given["out"], 0.5 * given["x"] + np.float32(1.5) * given["y"])


@pytest.mark.parametrize(
    ("changed", "weight"),
    [
        ({"axes": [1]}, 2.0),
        ({"weights": [3.0]}, 3.0),
        ({"flags": [False]}, 0.0),
        ({"adds": False}, 0.0),
        ({"kind": b"plain"}, 1.5),
    ],
)
def test_every_kind_of_attribute_arrives(device, changed, weight):
    given = call(**changed, alpha=2.0)
    device.call("WeightedAdd", given)
    assert np.array_equal(given["out"], 2 * given["x"] + np.float32(weight) * given["y"])


def test_it_runs_in_place(device):
    given = call()
    given["out"] = given["x"]
    expected = 0.5 * given["x"] + np.float32(1.5) * given["y"]
    device.call("WeightedAdd", given)
    assert np.array_equal(given["x"], expected)


def test_its_own_workspace_comes_on_top_of_the_librarys(device):
    assert device.prepare("WeightedAdd", call())[0] == 16 * 1024 * 1024 + 64


def test_a_refusal_without_a_word_is_told_so(device):
    said = "[WeightedAdd] tiling must succeed but got a failure that it does not explain."
    assert refused(device, call(kind=b"other")) == (561002, said)


def test_a_required_list_must_be_given(device):
    assert refused(device, call(axes=None)) == (161001, "[WeightedAdd] axes must be given but got NULL.")


@pytest.mark.parametrize("name", ["axes", "shift", "weights", "flags"])
def test_a_list_without_elements_is_refused(device, name):
    """aclnn keeps no memory for it, and an attribute's address must not be null."""
    said = f"[WeightedAdd] {name} must have elements but got an empty list."
    assert refused(device, call(**{name: []})) == (561103, said)


def test_an_empty_default_is_one_element_of_undefined_memory(device):
    assert refused(device, call(shift=None))[0] == 561002


def test_generated_defaults_are_literals_of_the_definition(package):
    text = (package / "op_api/include/aclnn_weighted_add.cpp").read_text()
    assert "weightsOptionalDef[] = {1.5,2};" in text
    assert "call.attr(weightsOptionalDef, 2);" in text
    assert "flagsOptionalDef[] = {true,false};" in text
    # One element, though there is none: CANN's generator counts commas.
    assert "shiftOptionalDef[] = {npu_cann::kBehindEmptyInts};" in text
    assert "call.attr(shiftOptionalDef, 1);" in text


def test_outputs_have_the_shape_and_the_type_that_follow(device):
    status, said = refused(device, call(out=np.zeros((7, 3), np.float32)))
    assert (status, said) == (161002, "[WeightedAdd] z must have shape [3, 7] but got [7, 3].")
    status, said = refused(device, call(out=np.zeros((3, 7), np.float16)))
    assert (status, said) == (161002, "[WeightedAdd] z must be float32 but got float16.")


def test_a_view_is_refused_where_nothing_is_said_of_views(device):
    status, said = refused(device, call(y=np.ones((7, 3), np.float32).T))
    assert (status, said) == (161002, "[WeightedAdd] y must be contiguous but got strides [1, 3].")


def test_a_chip_that_it_is_not_defined_for_is_refused(device):
    device.set_soc("Ascend310P3")
    status, said = refused(device, call())
    assert status == 561003
    assert said == "[WeightedAdd] soc must be one that the operator is defined for but got ascend310p."


def test_a_column_without_a_compiled_kernel_is_refused(device):
    half = {name: np.ones((3, 7), np.float16) for name in ("x", "y")}
    status, said = refused(device, call(**half, out=np.zeros((3, 7), np.float16)))
    assert status == 561003
    assert said.startswith("[WeightedAdd] kernel must be compiled but got none (")
    assert "weighted_add__ascend910b__half_half_half" in said
