"""The operator package: its interface has the arguments of the specification, its description lists the
compiled kernels, and each kernel has a definition and an interface."""

from __future__ import annotations

import json
import re
from pathlib import Path

import aclnn
import pytest
from ascend_sim.programs import stubs

from npu_rope import simulated_package

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = simulated_package.load().folder
STEMS = sorted(p.stem.removeprefix("npu_") for p in (ROOT / "op_kernel").glob("*.cpp"))
SOCS = ("ascend910b", "ascend910_93", "ascend310p")
# By the SoC for which a kernel is compiled: the SoCs that run the kernel.
SOCS_THAT_RUN = {
    "ascend910b": ("ascend910b", "ascend910_93"),
    "ascend310p": ("ascend310p",),
    "ascend950": ("ascend950",),
}
KERNELS = [(stem, soc) for stem in STEMS for soc in SOCS_THAT_RUN]
# A kernel's type by its name in the description.
KERNEL_TYPES = {
    "float16": "half",
    "bfloat16": "bfloat16_t",
    "float32": "float",
    "int32": "int32_t",
    "int64": "int64_t",
    "int8": "int8_t",
}
# The attributes in the table of specs/ggml_rope_acltensor.txt, in its order. ADDED has those that it lacks.
TENSOR, INT, FLOAT, BOOL, INTS = "const aclTensor*", "int64_t", "double", "bool", "const aclIntArray*"
SPECIFIED = [
    ("n_dims", INT), ("mode", INT), ("n_ctx_orig", INT), ("freq_base", FLOAT), ("freq_scale", FLOAT),
    ("ext_factor", FLOAT), ("attn_factor", FLOAT), ("beta_fast", FLOAT), ("beta_slow", FLOAT),
    ("sections", INTS), ("forward", BOOL),
]  # fmt: skip
ADDED = [("n_offs", INT), ("strides", INTS)]
PHASES = [("workspace_size", "uint64_t*"), ("executor", "aclOpExecutor**")]
READ = {
    "rope": [("x", TENSOR), ("positions", TENSOR), ("freq_factors", TENSOR)],
    "rope_qk": [("q", TENSOR), ("k", TENSOR), ("positions", TENSOR), ("freq_factors", TENSOR)],
    "rope_set_rows": [
        ("x", TENSOR), ("positions", TENSOR), ("rows", TENSOR), ("freq_factors", TENSOR),
        ("cache", "aclTensor*"),
    ],
}  # fmt: skip
WRITTEN = {
    "rope": [("out", TENSOR)],
    "rope_qk": [("q_out_out", TENSOR), ("k_out_out", TENSOR)],
    "rope_set_rows": [],
}


def op_type(stem: str) -> str:
    return "Npu" + "".join(part.capitalize() for part in stem.split("_"))


def interface(stem: str) -> list[tuple[str, str]]:
    """Return the names and types of the first phase's arguments."""
    header = PACKAGE / "op_api" / "include" / f"aclnn_npu_{stem}.h"
    parameters = aclnn.parameters_of(header.read_text(), f"aclnn{op_type(stem)}GetWorkspaceSize")
    return [(re.sub(r"_(optional|ref)$", "", aclnn.snake_case(p.name)), p.type) for p in parameters]


def description(soc: str) -> dict[str, dict[str, dict[str, str]]]:
    path = PACKAGE / "op_impl" / "ai_core" / "tbe" / "config" / soc / f"aic-{soc}-ops-info.json"
    described: dict[str, dict[str, dict[str, str]]] = json.loads(path.read_text())
    return described


def tensors(stem: str, soc: str) -> tuple[list[dict[str, str]], list[dict[str, str]]]:
    """Return the inputs and outputs in the description."""
    described = description(soc)[op_type(stem)]
    inputs = [described[key] for key in described if re.fullmatch(r"input\d+", key)]
    return inputs, [described[key] for key in described if re.fullmatch(r"output\d+", key)]


def entries(stem: str, soc: str) -> set[str]:
    """Return the names of the described columns: the types of all arguments."""
    inputs, outputs = tensors(stem, soc)
    read = {i["name"] for i in inputs}
    arguments = inputs + [o for o in outputs if o["name"] not in read]
    types = [[KERNEL_TYPES[t] for t in a["dtype"].split(",")] for a in arguments]
    return {"_".join(column) for column in zip(*types, strict=True)}


def compiled(library: Path) -> set[str]:
    """Return the names of the kernels in a library."""
    return {name for name in stubs.Elf.read(library).defined if f"__{library.stem}__" in name}


def test_every_kernel_has_its_definition_its_interface_and_its_place_in_the_package():
    for stem in STEMS:
        definition = (ROOT / f"op_host/{stem}_def.cpp").read_text()
        assert f"OP_ADD({op_type(stem)});" in definition
        assert interface(stem)
        for soc in SOCS:
            assert description(soc)[op_type(stem)]["opFile"]["value"] == f"npu_{stem}"
    definitions = {p.stem.removesuffix("_def") for p in (ROOT / "op_host").glob("*_def.cpp")}
    assert definitions == set(STEMS)
    # The binding may be absent; otherwise it has every operator.
    bindings = {p.stem for p in (ROOT / "csrc/npu").glob("*.cpp")}
    assert not bindings or set(STEMS) <= bindings


@pytest.mark.parametrize("stem", READ)
def test_the_interface_has_the_arguments_of_the_specification(stem):
    assert interface(stem) == READ[stem] + SPECIFIED + ADDED + WRITTEN[stem] + PHASES


@pytest.mark.parametrize("stem", READ)
def test_optional_arguments_have_optional_in_their_names(stem):
    header = (PACKAGE / "op_api" / "include" / f"aclnn_npu_{stem}.h").read_text()
    optional = {
        p.name
        for p in aclnn.parameters_of(header, f"aclnn{op_type(stem)}GetWorkspaceSize")
        if "Optional" in p.name
    }
    assert optional == {"freqFactorsOptional", "sectionsOptional", "stridesOptional"}


@pytest.mark.parametrize("soc", SOCS)
def test_no_optional_list_is_empty_by_default(soc):
    """CANN's generated code passes one element of undefined memory for an empty default."""
    defaults = {
        f"{op}.{name}": fields["defaultValue"]
        for op, described in description(soc).items()
        for name, fields in described.items()
        if fields.get("type", "").startswith("list") and fields["paramType"] == "optional"
    }
    assert sum(name.endswith(".attr_strides") for name in defaults) == len(description(soc))
    assert {name: value for name, value in defaults.items() if value == "[]"} == {}


@pytest.mark.parametrize(("stem", "soc"), KERNELS)
def test_a_kernel_is_compiled_for_every_column_of_the_definition_and_no_other(stem, soc):
    described = {entry for each in SOCS_THAT_RUN[soc] for entry in entries(stem, each)}
    kernel = f"npu_{stem}__{soc}__"
    found = {name for name in compiled(PACKAGE / f"sim_kernels/{soc}.so") if name.startswith(kernel)}
    assert found == {kernel + entry for entry in described}


def test_every_compiled_library_belongs_to_an_soc():
    assert {path.name for path in (PACKAGE / "sim_kernels").iterdir()} == {
        f"{soc}.so" for soc in SOCS_THAT_RUN
    }


@pytest.mark.parametrize("soc", SOCS)
def test_every_kernel_that_the_package_names_is_compiled(soc):
    kernels = PACKAGE / "op_impl/ai_core/tbe/kernel" / soc
    named = [json.loads(path.read_text())["kernelName"] for path in kernels.rglob("*.json")]
    libraries = {entry.split("__")[1] for entry in named}
    assert set(named) == {
        entry for library in libraries for entry in compiled(PACKAGE / f"sim_kernels/{library}.so")
    }
    assert len(named) == sum(len(entries(stem, soc)) for stem in STEMS)


@pytest.mark.parametrize(("stem", "soc"), [(stem, soc) for stem in STEMS for soc in SOCS])
def test_a_tensor_that_is_read_and_written_has_one_type_in_each_column(stem, soc):
    inputs, outputs = tensors(stem, soc)
    types = {i["name"]: i["dtype"] for i in inputs}
    assert [o["dtype"] for o in outputs] == [types.get(o["name"], o["dtype"]) for o in outputs]


@pytest.mark.parametrize("stem", STEMS)
def test_a_kernels_entry_has_every_argument_of_the_definition(stem):
    """Its arguments are the inputs, the outputs (a cache is both), the workspace and the tiling."""
    source = (ROOT / f"op_kernel/npu_{stem}.cpp").read_text()
    entry = re.search(rf"void npu_{stem}\((.*?)\)", source, re.DOTALL)
    assert entry is not None
    described = description("ascend910b")[op_type(stem)]
    count = sum(re.fullmatch(r"(in|out)put\d+", key) is not None for key in described)
    assert len(entry[1].split(",")) == count + 2


@pytest.mark.parametrize("soc", SOCS)
def test_the_description_declares_kernels_for_dynamic_shapes(soc):
    for described in description(soc).values():
        assert described["dynamicCompileStatic"] == {"flag": "false"}
        assert described["dynamicShapeSupport"] == {"flag": "true"}


def test_attributes_are_described_in_the_interfaces_order_with_their_defaults():
    for stem in READ:
        described = description("ascend910b")[op_type(stem)]
        names = [name for name, _ in SPECIFIED + ADDED]
        assert described["attr"]["list"] == ",".join(names)
        required = [n for n in names if described[f"attr_{n}"]["paramType"] == "required"]
        assert required == ["n_dims", "mode"]
        assert float(described["attr_freq_base"]["defaultValue"]) == 10000
        assert described["attr_sections"]["defaultValue"] == "[0,0,0,0]"
