"""The types and ranks that the stand-ins accept: each function on each chip, against the table in C++."""

import itertools
import json
import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
from simulated_npu import checks_of

from npu_rope.simcann import pieces, stubs

TABLE = Path(__file__).parents[2] / "simulator/cann/opapi/argument_types.cpp"
SOCS = ("Ascend910B2", "Ascend910_9391", "Ascend310P3")
OK, INVALID = 0, 161002
TYPES = {
    "kFloat": "float32", "kFloat16": "float16", "kInt8": "int8", "kInt32": "int32", "kUint8": "uint8",
    "kInt16": "int16", "kUint16": "uint16", "kUint32": "uint32", "kInt64": "int64", "kUint64": "uint64",
    "kDouble": "float64", "kBool": "bool", "kComplex64": "complex64", "kComplex128": "complex128",
    "kBfloat16": "bfloat16",
}  # fmt: skip


def read_table():
    """The rows by function: four sets of types, one per column of the table, and the source."""
    text = re.sub(r"//.*", "", TABLE.read_text())
    sets = {}

    def union(expression):
        return frozenset().union(*(sets[name.strip()] for name in expression.split("|")))

    for name, value in re.findall(r"constexpr uint32_t (k\w+) = (.*?);", text, re.S):
        listed = re.fullmatch(r"types\(\{(.*)\}\)", value, re.S)
        sets[name] = frozenset(TYPES[t.strip()] for t in listed[1].split(",")) if listed else union(value)
    body = text.split("kArgumentTypes[] = {")[1].split("};")[0]
    rows = [[cell.strip() for cell in row.split(",")] for row in re.findall(r"\{([^{}]*)\}", body)]
    return {
        function.strip('"'): ([union(cell) for cell in types], source.strip('"'))
        for function, *types, source in rows
    }


ROWS = read_table()
FUNCTIONS = sorted(
    name[len("aclnn") : -len("GetWorkspaceSize")]
    for name in stubs.Elf.read(pieces.cann_library()).defined
    if re.fullmatch(r"aclnn\w+GetWorkspaceSize", name)
)


def row_of(function):
    return function.removeprefix("Inplace")


def taken(function, soc):
    """The types of inputs, and those of outputs."""
    inputs, inputs_310p, outputs, outputs_310p = ROWS[row_of(function)][0]
    return (inputs_310p, outputs_310p) if soc.startswith("Ascend310P") else (inputs, outputs)


def arguments_of(function):
    """Name, kind and roles (i: input, o: output) of each argument, in the order of the C interface."""
    base = row_of(function)
    is_inplace = base != function
    own = {
        "Arange": [*((name, "scalar", "i") for name in ("start", "end", "step")), ("out", "tensor", "o")],
        "Cast": [("self", "tensor", "i"), ("dtype", "type of out", ""), ("out", "tensor", "o")],
        "Complex": [("real", "tensor", "i"), ("imag", "tensor", "i"), ("out", "tensor", "o")],
        "Copy": [("out", "tensor", "o"), ("src", "tensor", "i")],
        "FillScalar": [("self", "tensor", "o"), ("value", "scalar", "i")],
        "FillTensor": [("self", "tensor", "o"), ("value", "tensor", "i")],
        "One": [("self", "tensor", "o")],
        "Zero": [("self", "tensor", "o")],
    }  # fmt: skip
    if base in own:
        return own[base]
    found = [("self", "tensor", "io" if is_inplace else "i")]
    if base != "Neg":
        is_scalar = base in ("Adds", "Subs", "Muls", "Divs") or base.endswith("Scalar")
        found.append(("other", "scalar" if is_scalar else "tensor", "i"))
    if base in ("Add", "Adds", "Sub", "Subs"):
        found.append(("alpha", "scalar", "i"))
    return found if is_inplace else [*found, ("out", "tensor", "o")]


def call(function, types=None, ranks=None):
    """A valid call except for the given types and ranks, of one argument or of all inputs."""
    types, ranks = types or {}, ranks or {}
    base = row_of(function)
    plain_out = "bool" if base.endswith(("Tensor", "Scalar")) and not base.startswith("Fill") else "float32"
    if base == "Complex":
        plain_out = "complex64"
    chosen = {
        name: types.get(name, types.get("inputs", "float32") if "i" in roles else plain_out)
        for name, _, roles in arguments_of(function)
    }
    made = []
    for name, kind, _ in arguments_of(function):
        dtype = chosen["out" if kind == "type of out" else name]
        made.append([kind, dtype, ranks.get(name, ranks.get("all", 1)), 0 if name == "start" else 1])
    return [function, made]


RUN = r"""
import ctypes as C, json, struct, sys
cann = C.CDLL(sys.argv[1])
cann.aclGetRecentErrMsg.restype = C.c_char_p
for name in ("aclCreateTensor", "aclCreateScalar"):
    getattr(cann, name).restype = C.c_void_p
NUMBERS = {"float32": (0, "f"), "float16": (1, "e"), "int8": (2, "b"), "int32": (3, "i"), "uint8": (4, "B"),
           "int16": (6, "h"), "uint16": (7, "H"), "uint32": (8, "I"), "int64": (9, "q"), "uint64": (10, "Q"),
           "float64": (11, "d"), "bool": (12, "?"), "complex64": (16, "ff"), "complex128": (17, "dd"),
           "bfloat16": (27, "H")}
assert cann.aclrtSetDevice(0) == 0
memory = C.c_void_p()
assert cann.aclrtMalloc(C.byref(memory), C.c_size_t(4096), 0) == 0
C.memset(memory, 0, 4096)

def made(kind, dtype, rank, value, at):
    number, form = NUMBERS[dtype]
    if kind == "type of out":
        return number
    if kind == "scalar":
        value = 0x3F80 * value if dtype == "bfloat16" else value
        values = [value, 0] if "complex" in dtype else [value]
        value = C.create_string_buffer(struct.pack(form, *values), 16)
        return C.c_void_p(cann.aclCreateScalar(value, number))
    dims = (C.c_int64 * rank)(*[1] * rank)
    rank = C.c_uint64(rank)
    address = C.c_void_p(memory.value + 64 * at)
    return C.c_void_p(cann.aclCreateTensor(dims, rank, number, None, C.c_int64(0), 2, dims, rank, address))

answers = []
for function, arguments in json.load(sys.stdin):
    workspace, executor = C.c_uint64(), C.c_void_p()
    given = [made(*one, at) for at, one in enumerate(arguments)]
    status = getattr(cann, f"aclnn{function}GetWorkspaceSize")(*given, C.byref(workspace), C.byref(executor))
    text = (cann.aclGetRecentErrMsg() or b"").decode()
    if status == 0:
        status = getattr(cann, f"aclnn{function}")(None, C.c_uint64(0), executor, None)
    answers.append([status, text])
assert cann.aclrtSynchronizeDevice() == 0
print(json.dumps(answers))
"""


@cache
def _answers(soc, calls):
    command = [sys.executable, "-c", RUN, str(pieces.cann_library())]
    environment = {**os.environ, "NPU_ROPE_SIM_SOC": soc}
    done = subprocess.run(command, input=calls, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def answers(soc, calls):
    """Status and message of every call, from one process of this chip."""
    return zip(calls, _answers(soc, json.dumps(calls)), strict=True)


def test_every_stand_in_has_a_row_and_every_row_a_stand_in_and_a_source():
    assert {row_of(name) for name in FUNCTIONS} == set(ROWS)
    for types, source in ROWS.values():
        assert len(types) == 4
        assert all("float32" in one or one == {"complex64", "complex128"} for one in types)
        assert re.fullmatch(r"(math|conversion)/\w+/op_api/aclnn_\w+\.cpp", source)


def calls_of_types(function, soc):
    """Calls that the table allows: one for each type of all inputs, one for each type of the output."""
    inputs, outputs = taken(function, soc)
    base = row_of(function)
    ((out, roles),) = ((name, roles) for name, _, roles in arguments_of(function) if "o" in roles)
    if base == "Complex":  # complex32, with parts in float16, is not simulated
        parts = {"float32": "complex64", "float64": "complex128"}
        assert set(parts) < inputs
        assert set(parts.values()) == outputs
        return [call(function, {"inputs": part, out: whole}) for part, whole in parts.items()]
    if roles == "io":
        return [call(function, {"inputs": dtype}) for dtype in sorted(inputs & outputs)]
    filled = {out: "float32"} if base.startswith("Fill") else {}
    calls = [call(function, {"inputs": dtype, **filled}) for dtype in sorted(inputs)]
    return calls + [call(function, {out: dtype}) for dtype in sorted(outputs)]


@pytest.mark.parametrize("soc", SOCS)
def test_types_of_the_table_are_taken(soc):
    calls = [one for function in FUNCTIONS for one in calls_of_types(function, soc)]
    assert len(calls) > 800
    assert [(one, got) for one, got in answers(soc, calls) if got[0] != OK] == []


@pytest.mark.parametrize("soc", SOCS)
def test_other_types_are_refused_and_named(soc):
    calls, named = [], []
    for function in FUNCTIONS:
        inputs, outputs = taken(function, soc)
        for name, kind, roles in arguments_of(function):
            allowed = {"i": inputs, "o": outputs, "io": inputs & outputs}.get(
                roles, frozenset(TYPES.values())
            )
            for dtype in sorted(set(TYPES.values()) - allowed):
                calls.append(call(function, {name: dtype}))
                named.append((name, kind, dtype))
    assert len(calls) > 300
    for (one, (status, text)), (name, _, dtype) in zip(answers(soc, calls), named, strict=True):
        assert status == INVALID, (one, text)
        where = rf"simulated CANN: aclnn{one[0]}: {name} must be .* on {soc} but got {dtype}\."
        assert re.fullmatch(where, text), (one, text)


@pytest.mark.parametrize("soc", SOCS[1:])
def test_eight_dimensions_are_taken_and_nine_are_refused(soc):
    vectors = {("Arange", "out"), ("InplaceFillTensor", "value")}
    eight, nine = [], []
    for function in FUNCTIONS:
        tensors = [name for name, kind, _ in arguments_of(function) if kind == "tensor"]
        ranks = {name: 1 if (function, name) in vectors else 8 for name in tensors}
        eight.append(call(function, None, ranks))
        nine += [call(function, None, {**ranks, name: 9}) for name in tensors]
    assert [(one, got) for one, got in answers(soc, eight) if got[0] != OK] == []
    for one, (status, text) in answers(soc, nine):
        assert status == INVALID, one
        assert text.endswith(" must have at most 8 dimensions but got 9."), (one, text)


@pytest.mark.parametrize("soc", SOCS[1:])
def test_wide_unsigned_types_have_a_common_type_with_themselves_alone(soc):
    functions = ["LtTensor", "GtTensor", "GeTensor", "LeTensor", "GtScalar", "LeScalar"]
    pairs = [("uint16", "int32"), ("int64", "uint16"), ("uint16", "float32")]
    calls = [call(f, {"self": a, "other": b}) for f, (a, b) in itertools.product(functions, pairs)]
    for one, (status, text) in answers(soc, calls):
        assert status == INVALID, one
        assert "self and other must have a common type but got " in text


def test_real_and_imaginary_parts_have_the_parts_type():
    changes = [{"real": "float64"}, {"imag": "float16"}, {"out": "complex128"}]
    (_, real), (_, imag), (_, out) = answers(SOCS[0], [call("Complex", types) for types in changes])
    rule = "simulated CANN: aclnnComplex: real and imag must be {}, as the parts of out, but got {} and {}."
    assert real == [INVALID, rule.format("float32", "float64", "float32")]
    assert imag == [INVALID, rule.format("float32", "float32", "float16")]
    assert out == [INVALID, rule.format("float64", "float32", "float32")]


def test_the_tensor_that_fills_another_has_at_most_one_dimension():
    ((_, (status, text)),) = answers(SOCS[0], [call("InplaceFillTensor", ranks={"value": 2})])
    assert status == INVALID
    assert text.endswith("value must have one element and at most one dimension but got 1 in 2.")


@pytest.mark.parametrize("check", checks_of("refused_types"))
@pytest.mark.parametrize("soc", ["Ascend910B2", "Ascend310P3"])
def test_torch_reports_what_the_chip_refuses(simulated, soc, check):
    assert simulated.checks("refused_types", soc, "0")[check] == "ok"
