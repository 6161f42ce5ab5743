"""Each operator that torch lists in the namespace npu_rope: its kernels, its defaults and its C++ code."""

import dataclasses
import inspect
import re
from pathlib import Path

import pytest
import torch

import npu_rope
from npu_rope.ops.registrar import registered
from npu_rope.params import RopeParams
from npu_rope.rms_norm_calls import RmsNormAttributes
from npu_rope.rms_norm_rope_calls import RmsNormRopeAttributes
from npu_rope.rope_attributes import RopeMode
from npu_rope.rotary_calls import RotaryAttributes
from npu_rope.values import ANGLE_POLICIES

ROOT = Path(__file__).resolve().parents[2]
# Attributes of a schema that have another name in Python.
PYTHON_NAMES = {"rope_mode": "mode"}
OPERATORS = sorted(
    name.partition("::")[2] for name in torch._C._dispatch_get_all_op_names() if name.startswith("npu_rope::")
)
COMPOSITES = {"rotary_position_embedding"}


def schema_of(name):
    return getattr(torch.ops.npu_rope, name).default._schema


def is_tensor(argument):
    return "Tensor" in str(argument.type)


def attributes_of(name):
    return [argument for argument in schema_of(name).arguments if not is_tensor(argument)]


def test_the_registrar_registered_every_operator():
    assert set(OPERATORS) == registered.keys() | COMPOSITES


# ---- kernels -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", OPERATORS)
def test_every_operator_has_every_kernel(name):
    keys = {"CPU", "Meta", "PrivateUse1"}
    if name in COMPOSITES:
        keys = {"CompositeImplicitAutograd"}
    elif not registered[name].hot_path:
        keys.add("Autograd")
    has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key
    assert {key for key in keys if not has_kernel(f"npu_rope::{name}", key)} == set()


# ---- defaults ----------------------------------------------------------------------------------------


def python_defaults(name):
    """Return the defaults of an operator's Python parameters and of the classes of attributes."""
    stem = re.sub(r"(_heads_first|_to_halves|_rounded_last|_packed|_out|_dx|_)$", "", name)
    function = getattr(npu_rope, stem if hasattr(npu_rope, stem) else stem.removesuffix("_set_rows"))
    found = {
        field.name: field.default
        for kind in (RotaryAttributes, RopeParams, RmsNormAttributes)
        for field in dataclasses.fields(kind)
    }
    found |= {p.name: p.default for p in inspect.signature(function).parameters.values()}
    return {name: value for name, value in found.items() if value is not inspect.Parameter.empty}


def as_in_schema(name, value):
    """Return a default of Python as a schema has it."""
    if name == "mode":
        return int(RopeMode(value))
    if name == "angle":
        return ANGLE_POLICIES.index(value)
    if name == "sections":
        assert RopeParams(2, sections=None).sections == tuple(value)
        return None
    return value


@pytest.mark.parametrize("name", [name for name in OPERATORS if attributes_of(name)])
def test_attributes_have_the_defaults_of_the_python_function(name):
    defaults = python_defaults(name)
    for attribute in attributes_of(name):
        python_name = PYTHON_NAMES.get(attribute.name, attribute.name)
        default = defaults.get(python_name, dataclasses.MISSING)
        assert attribute.has_default_value() == (default is not dataclasses.MISSING), attribute.name
        if attribute.has_default_value():
            assert attribute.default_value == as_in_schema(python_name, default), attribute.name


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("rms_norm", RmsNormAttributes),
        ("rms_norm_rope", RmsNormRopeAttributes),
        ("rotary_mul", RotaryAttributes),
        ("rotary_embedding", RotaryAttributes),
    ],
)
def test_attribute_classes_have_the_defaults_of_the_schema(name, kind):
    defaults = {field.name: field.default for field in dataclasses.fields(kind)}
    compared = [attribute for attribute in attributes_of(name) if attribute.name in defaults]
    assert len(compared) >= 3
    for attribute in compared:
        assert attribute.default_value == as_in_schema(attribute.name, defaults[attribute.name])


@pytest.mark.parametrize("needs_grad", [False, True])
def test_an_attribute_that_is_omitted_has_its_default(needs_grad):
    ops, x = torch.ops.npu_rope, torch.randn(1, 3, 2, 8).requires_grad_(needs_grad)
    positions, scale, table = torch.arange(3), torch.rand(8), torch.rand(3, 8)
    cache = torch.rand(1, 3, 4)
    given = x.transpose(1, 2), cache, cache
    params = npu_rope.RopeParams(8)
    for raw, expected in (
        (ops.rope(x, positions, n_dims=8), npu_rope.rope(x, positions, params)),
        (ops.rms_norm(x, scale), npu_rope.rms_norm(x, scale)),
        (
            ops.rms_norm_rope(x, x, scale, scale, positions, n_dims=8)[1],
            npu_rope.rms_norm_rope(x, x, scale, scale, positions, params)[1],
        ),
        (ops.rotary_mul(x, table, table), npu_rope.rotary_mul(x, table, table)),
        (ops.rotary_embedding(*given), npu_rope.rotary_embedding(*given)),
    ):
        assert torch.equal(raw, expected)
        if needs_grad:
            found = [torch.autograd.grad(y.square().sum(), x)[0] for y in (raw, expected)]
            assert torch.equal(*found)


# ---- the C++ registrations ---------------------------------------------------------------------------


def sources(folder):
    return {path: path.read_text() for path in sorted((ROOT / "csrc" / folder).glob("*.cpp"))}


def implemented(folder):
    return sorted(re.findall(r'm\.impl\("(\w+)"', "".join(sources(folder).values())))


def test_c_plus_plus_has_a_kernel_for_every_operator():
    assert implemented("torch") == sorted(registered)
    assert implemented("npu") == sorted(name for name, operator in registered.items() if operator.on_npu)


def test_cpu_kernels_list_their_arguments_in_the_schema_s_order():
    """A comment above each kernel lists its arguments, with "attributes" for those that are no tensors."""
    listed = {}
    for text in sources("torch").values():
        one_line = re.sub(r",\n// ", ", ", text)  # a long list continues on the next line
        listed |= dict(re.findall(r"^// (\w+)\(([\w, ]+)\)$", one_line, re.MULTILINE))
    assert listed.keys() == registered.keys()
    for name, arguments in listed.items():
        names = [
            argument.name if is_tensor(argument) else "attributes" for argument in schema_of(name).arguments
        ]
        assert arguments.split(", ") == list(dict.fromkeys(names)), name


@pytest.mark.parametrize(
    ("file", "macro", "name"),
    [
        ("rope_call.h", "NPU_ROPE_ATTRIBUTE_PARAMETERS", "rope"),
        ("rms_norm_rope.cpp", "NPU_ROPE_CALL_PARAMETERS", "rms_norm_rope"),
    ],
)
def test_npu_kernels_take_the_attributes_in_the_schema_s_order(file, macro, name):
    text = (ROOT / "csrc" / "npu" / file).read_text()
    parameters = re.search(rf"#define {macro}((?:.*\\\n)+.*\n)", text)[1].replace("\\\n", " ")
    names = [parameter.split()[-1] for parameter in parameters.split(",")]
    assert names == [attribute.name for attribute in attributes_of(name)]


def test_the_documentation_states_the_schema_of_rope():
    text = (ROOT / "docs" / "ops" / "rope.md").read_text()
    stated = re.search(r"^(npu_rope::rope\(.*?) *\n(?=npu_rope::rope_\()", text, re.MULTILINE | re.DOTALL)[1]
    assert torch._C.parse_schema(" ".join(stated.split())) == schema_of("rope")
