"""Definition, interface and calls of WeightedAdd, which is not one of npu_rope's operators.

WeightedAdd checks only what CANN requires; npu_rope's operators check more.
"""

from __future__ import annotations

import json
import re
import subprocess

import aclnn
import ascend_sim
import numpy as np
import pytest
from ascend_sim.programs import stubs
from foreign_operator import FOREIGN, call, generate


@pytest.fixture
def package(foreign_package):
    return foreign_package


def refused(device, given):
    with pytest.raises(aclnn.RefusedPhase) as caught:
        device.call("WeightedAdd", given)
    assert not given["out"].any()
    return caught.value.status, str(caught.value)


def test_the_interface_has_every_parameter(device):
    assert [(p.type, p.name) for p in device.parameters("WeightedAdd")] == [
        ("const aclTensor*", "x"),
        ("const aclTensor*", "y"),
        ("double", "alpha"),
        ("char*", "kindOptional"),
        ("const aclFloatArray*", "weightsOptional"),
        ("const aclBoolArray*", "flagsOptional"),
        ("const aclIntArray*", "axes"),
        ("bool", "adds"),
        ("const aclIntArray*", "shiftOptional"),
        ("int64_t", "copies"),
        ("const aclTensor*", "out"),
        ("uint64_t*", "workspaceSize"),
        ("aclOpExecutor**", "executor"),
    ]


def test_the_description_has_types_and_defaults(package):
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
    # The default of AddConfig(soc) without a configuration.
    assert described["dynamicCompileStatic"] == {"flag": "true"}


def test_a_call_uses_the_defaults_of_its_attributes(device):
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
        ({"copies": 3}, 4.5),
        ({"kind": b"plain"}, 1.5),
    ],
)
def test_every_kind_of_attribute_arrives(device, changed, weight):
    given = call(**changed, alpha=2.0)
    device.call("WeightedAdd", given)
    assert np.array_equal(given["out"], 2 * given["x"] + np.float32(weight) * given["y"])


def test_a_call_runs_in_place(device):
    given = call()
    given["out"] = given["x"]
    expected = 0.5 * given["x"] + np.float32(1.5) * given["y"]
    device.call("WeightedAdd", given)
    assert np.array_equal(given["x"], expected)


def test_the_workspace_includes_16_mib_for_the_library(device):
    assert device.prepare("WeightedAdd", call())[0] == 16 * 1024 * 1024 + 64


def test_a_refusal_without_a_message_is_reported(device):
    message = "[WeightedAdd] tiling must succeed but got a failure that it does not explain."
    assert refused(device, call(kind=b"other")) == (561002, message)


def test_a_required_list_must_be_given(device):
    assert refused(device, call(axes=None)) == (161001, "[WeightedAdd] axes must be given but got NULL.")


@pytest.mark.parametrize("name", ["axes", "shift", "weights", "flags"])
def test_a_list_without_elements_is_refused(device, name):
    """aclnn allocates no memory for an empty list, and an attribute's address must not be null."""
    message = f"[WeightedAdd] {name} must have elements but got an empty list."
    assert refused(device, call(**{name: []})) == (561103, message)


def test_an_empty_default_is_one_element_of_undefined_memory(device):
    assert refused(device, call(shift=None))[0] == 561002


def test_generated_defaults_are_literals_of_the_definition(package):
    text = (package / "op_api/include/aclnn_weighted_add.cpp").read_text()
    assert "weightsOptionalDef[] = {1.5,2};" in text
    assert "call.attr(weightsOptionalDef, 2);" in text
    assert "flagsOptionalDef[] = {true,false};" in text
    # A length of 1 for an empty list, because CANN's generator counts commas.
    assert "shiftOptionalDef[] = {simulated_cann::kAfterEmptyInts};" in text
    assert "call.attr(shiftOptionalDef, 1);" in text


def test_outputs_have_the_inferred_shape_and_type(device):
    status, message = refused(device, call(out=np.zeros((7, 3), np.float32)))
    assert (status, message) == (161002, "[WeightedAdd] z must have shape [3, 7] but got [7, 3].")
    status, message = refused(device, call(out=np.zeros((3, 7), np.float16)))
    assert (status, message) == (
        161002,
        "[WeightedAdd] tensors must have the types of one of its kernels on ascend910b but got "
        "x float32, y float32, z float16.",
    )


def test_a_view_is_refused_without_a_policy_for_views(device):
    status, message = refused(device, call(y=np.ones((7, 3), np.float32).T))
    assert (status, message) == (
        561000,
        "[WeightedAdd] y must be contiguous, or declared AutoContiguous() or IgnoreContiguous(), "
        "but got a view.",
    )


def test_a_chip_that_it_is_not_defined_for_is_refused(device):
    device.set_soc("Ascend310P3")
    status, message = refused(device, call())
    assert status == 161001
    assert message == "[WeightedAdd] soc must be one that the operator is defined for but got ascend310p."


def test_a_column_without_a_compiled_kernel_is_refused(device):
    half = {name: np.ones((3, 7), np.float16) for name in ("x", "y")}
    status, message = refused(device, call(**half, out=np.zeros((3, 7), np.float16)))
    assert status == 561003
    entry = "weighted_add__ascend910b__half_half_half"
    rule = f"[WeightedAdd] kernel {entry} must be in a library of simulated kernels but got "
    assert message.startswith(rule)


DEFINITION = """
#include "register/op_def_registry.h"
namespace ops {
class HTTPScaleV2 : public OpDef {
public:
    explicit HTTPScaleV2(const char* name) : OpDef(name) {
        auto all = {ge::DT_FLOAT};
        this->Input("X_in").ParamType(REQUIRED).DataType(all).Format({ge::FORMAT_ND});
        this->Input("kv_cache").ParamType(REQUIRED).DataType(all).Format({ge::FORMAT_ND});
        this->Input("state").ParamType(OPTIONAL).DataType(all).Format({ge::FORMAT_ND});
        this->Output("kv_cache").ParamType(REQUIRED).DataType(all).Format({ge::FORMAT_ND});
        this->Output("state").ParamType(OPTIONAL).DataType(all).Format({ge::FORMAT_ND});
        this->Output("sum").ParamType(REQUIRED).DataType(all).Format({ge::FORMAT_ND});
        this->AICore().AddConfig("ascend910b");
    }
};
OP_ADD(HTTPScaleV2);
}  // namespace ops
"""


def defined_for(soc: str) -> str:
    """Return the definition with this SoC as a second one."""
    only = 'AddConfig("ascend910b")'
    return DEFINITION.replace(only, f'{only}.AddConfig("{soc}")')


@pytest.mark.long
def test_the_name_of_an_optional_input_that_is_written_has_both_suffixes(tmp_path):
    """Only parameters whose names end in Ref are not const."""
    header = (generate(DEFINITION, tmp_path) / "aclnn_http_scale_v2.h").read_text()
    parameters = aclnn.parameters_of(header, "aclnnHTTPScaleV2GetWorkspaceSize")
    assert [(p.type, p.name) for p in parameters[:4]] == [
        ("const aclTensor*", "xIn"),
        ("aclTensor*", "kvCacheRef"),
        ("const aclTensor*", "stateRefOptional"),
        ("const aclTensor*", "sumOut"),
    ]


def test_the_source_of_kernels_defines_each_argument_of_a_column_once(tmp_path):
    """Two SoCs of one instruction set share the kernel."""
    source = (generate(defined_for("ascend910_93"), tmp_path) / "kernels_ascend910b.cpp").read_text()
    names = ("X_IN", "KV_CACHE", "STATE", "SUM")
    types = [(f"DTYPE_{name}", "float") for name in names]
    numbers = [(f"ORIG_DTYPE_{name}", "DT_FLOAT") for name in names]
    kernel = ("http_scale_v2", "http_scale_v2__ascend910b__float_float_float_float")
    assert sorted(re.findall(r"#define (\S+) (\S+)", source)) == sorted(
        [("__CCE_AICORE__", "220"), kernel, *types, *numbers]
    )
    assert source.count('#include "http_scale_v2.cpp"\n') == 1


@pytest.mark.long
def test_the_source_of_a_socs_kernels_has_every_operator_that_is_defined_for_it(tmp_path):
    folder = generate(DEFINITION + defined_for("ascend310p").replace("HTTPScaleV2", "Other"), tmp_path)
    sources = {path.stem: path.read_text() for path in folder.glob("kernels_*.cpp")}
    assert {name: re.findall(r'#include "(\w+)\.cpp"', text) for name, text in sources.items()} == {
        "kernels_ascend310p": ["other"],
        "kernels_ascend910b": ["http_scale_v2", "other"],
    }


@pytest.mark.long
def test_the_source_of_kernels_compiles_to_an_entry_for_each_column(package, tmp_path):
    source = package / "op_api/include/kernels_ascend910b.cpp"
    library = ascend_sim.build(source, include=[FOREIGN], folder=tmp_path, flags=["-O0"])
    compiled = {name for name in stubs.Elf.read(library).defined if name.startswith("weighted_add")}
    assert compiled == {f"weighted_add__ascend910b__{t}_{t}_{t}" for t in ("float", "half")}


@pytest.mark.long
def test_files_that_would_not_change_are_left_as_they_are(tmp_path):
    """A build does not compile unchanged files again."""
    folder = generate(DEFINITION, tmp_path)
    before = {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}
    subprocess.run([folder / "op_build", folder], check=True)
    assert {path.name: path.stat().st_mtime_ns for path in folder.iterdir()} == before
    generate(DEFINITION.replace("{ge::DT_FLOAT}", "{ge::DT_FLOAT16}"), folder)
    after = {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}
    assert after["aclnn_http_scale_v2.h"] == before["aclnn_http_scale_v2.h"]
    assert after["kernels_ascend910b.cpp"] != before["kernels_ascend910b.cpp"]


def test_every_description_names_its_core_and_its_pattern(package):
    described = json.loads((package / "op_api/include/aic-ascend910b-ops-info.json").read_text())
    assert described["WeightedAdd"]["coreType"] == {"value": "AiCore"}
    assert described["WeightedAdd"]["prebuildPattern"] == {"value": "Opaque"}


TWO_POLICIES = (".DataType(all)", ".DataType(all).AutoContiguous().IgnoreContiguous()")
TWO_OPTIONALS = (
    'Input("state").ParamType(OPTIONAL).DataType(all).Format({ge::FORMAT_ND})',
    'Input("state").ParamType(OPTIONAL).DataType({ge::DT_FLOAT, ge::DT_FLOAT16})'
    ".Format({ge::FORMAT_ND, ge::FORMAT_ND})",
)


@pytest.mark.long
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ([TWO_POLICIES], "X_in must not have both AutoContiguous() and IgnoreContiguous()"),
        (
            [
                TWO_OPTIONALS,
                ("auto all = {ge::DT_FLOAT}", "auto all = {ge::DT_FLOAT, ge::DT_FLOAT}"),
                ("{ge::FORMAT_ND}", "{ge::FORMAT_ND, ge::FORMAT_ND}"),
            ],
            "columns must differ in a required tensor on ascend910b but got two of X_in float32 ND",
        ),
    ],
    ids=["policies", "columns"],
)
def test_a_definition_that_cann_cannot_use_is_refused(tmp_path, capfd, changes, message):
    text = DEFINITION
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    with pytest.raises(subprocess.CalledProcessError):
        generate(text, tmp_path)
    assert message in capfd.readouterr().err
