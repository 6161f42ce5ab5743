"""The types and ranks that the stand-ins accept, on one chip of each SoC."""

import itertools
import json
import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
from ascend_sim import folders
from ascend_sim.programs import toolkit
from simulated_npu import SCRIPTS, checks_of

TABLE = Path(__file__).parents[2] / "cann/opapi/argument_types.cpp"
SOCS = ("Ascend910B2", "Ascend910_9391", "Ascend310P3")
OK, INVALID = 0, 161002
ARITHMETIC = ("Add", "Adds", "Sub", "Subs", "Mul", "Muls", "Div", "Divs", "Neg")


def types(text):
    return frozenset(text.split())


# The types of inputs and of outputs that a function takes on every chip, from its source and documentation in
# hicann/ops-math. The lists are independent of the table in C++, so that they detect its mistakes.
REAL = types("float16 float32 float64 int8 uint8 int16 int32 int64 bool")
COMPLEX = types("complex64 complex128")
NUMBER = REAL | COMPLEX
SIGNED = types("float16 float32 float64 int8 int32 int64") | COMPLEX
UINT16, UINT32_64, BFLOAT16 = types("uint16"), types("uint32 uint64"), types("bfloat16")
WIDE = UINT16 | UINT32_64
TYPES = NUMBER | WIDE | BFLOAT16
LISTS = {
    "Add Adds Sub Subs Mul Muls Div Divs": (NUMBER, NUMBER),
    "Neg": (SIGNED, SIGNED),
    "EqTensor EqScalar NeTensor NeScalar": (NUMBER, NUMBER),
    "LtTensor LtScalar": (REAL | WIDE, REAL | WIDE),
    "LeTensor LeScalar": (REAL | UINT16, REAL | UINT16),
    "GtTensor GtScalar GeTensor GeScalar": (REAL | WIDE, NUMBER | WIDE),
    "Arange": (REAL, types("float16 float32 float64 int32 int64")),
    "Cast Copy": (NUMBER | WIDE, NUMBER | WIDE),
    "Complex": (types("float16 float32 float64"), COMPLEX),
    "FillScalar FillTensor": (NUMBER, NUMBER),
    "One": (REAL, REAL),
    "Zero": (NUMBER | UINT16, NUMBER | UINT16),
}
TAKEN = {name: lists for names, lists in LISTS.items() for name in names.split()}
# The types that a function takes in addition, on Ascend310P and on the other SoCs.
MORE_ON_310P = {"EqTensor": UINT32_64, "Copy": BFLOAT16, "Zero": BFLOAT16}
MORE_ON_910B = {
    name: {"Complex": types(""), "FillScalar": WIDE | BFLOAT16}.get(name, BFLOAT16) for name in TAKEN
}
BOOL, INTEGER, FRACTION, COMPLEX_NUMBER = range(4)
KINDS = dict.fromkeys(TYPES, INTEGER) | {"bool": BOOL}
KINDS |= dict.fromkeys(types("float16 float32 float64 bfloat16"), FRACTION)
KINDS |= dict.fromkeys(COMPLEX, COMPLEX_NUMBER)
FUNCTIONS = sorted(
    name.removeprefix("aclnn")
    for name in toolkit.simulated()
    if name.removeprefix("aclnn").removeprefix("Inplace") in TAKEN
)


def row_of(function):
    return function.removeprefix("Inplace")


def taken(function, soc):
    """The types of inputs and the types of outputs."""
    base = row_of(function)
    soc_types = (MORE_ON_310P if soc.startswith("Ascend310P") else MORE_ON_910B).get(base, frozenset())
    inputs, outputs = TAKEN[base]
    return inputs | soc_types, outputs | soc_types


def result_converts(function, self, other, out):
    """Whether arithmetic on these types may have an output of that type, as CanCast of hicann/opbase.

    A type converts to types of its kind and of higher kinds. The kinds are, from low to high, BOOL, INTEGER,
    FRACTION and COMPLEX_NUMBER.
    """
    base = row_of(function)
    kind = KINDS[self] if base in ("Divs", "Neg") else max(KINDS[self], KINDS[other])
    return base == "Muls" or kind <= KINDS[out]


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
    """A call that is valid except for the given types and ranks.

    Each has an entry for an argument unlike the default. The key "inputs" of types means all inputs.
    """
    types, ranks = types or {}, ranks or {}
    base = row_of(function)
    default_out = "bool" if base.endswith(("Tensor", "Scalar")) and not base.startswith("Fill") else "float32"
    if base == "Complex":
        default_out = "complex64"
    chosen = {
        name: types.get(name, types.get("inputs", "float32") if "i" in roles else default_out)
        for name, _, roles in arguments_of(function)
    }
    arguments = []
    for name, kind, _ in arguments_of(function):
        dtype = chosen["out" if kind == "type of out" else name]
        arguments.append([kind, dtype, ranks.get(name, 1), 0 if name == "start" else 1])
    return [function, arguments]


PROGRAM = r"""
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

def argument(kind, dtype, rank, value, number_in_call):
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
    address = C.c_void_p(memory.value + 64 * number_in_call)
    return C.c_void_p(cann.aclCreateTensor(dims, rank, number, None, C.c_int64(0), 2, dims, rank, address))

results = []
for function, arguments in json.load(sys.stdin):
    workspace, executor = C.c_uint64(), C.c_void_p()
    given = [argument(*one, n) for n, one in enumerate(arguments)]
    status = getattr(cann, f"aclnn{function}GetWorkspaceSize")(*given, C.byref(workspace), C.byref(executor))
    text = (cann.aclGetRecentErrMsg() or b"").decode()
    if status == 0:
        status = getattr(cann, f"aclnn{function}")(None, C.c_uint64(0), executor, None)
    results.append([status, text])
assert cann.aclrtSynchronizeDevice() == 0
print(json.dumps(results))
"""


@cache
def _results(soc, calls):
    command = [sys.executable, "-c", PROGRAM, str(folders.library("ascend_sim_cann"))]
    environment = {**os.environ, "ASCEND_SIM_SOC": soc}
    done = subprocess.run(command, input=calls, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def results(soc, calls):
    """Pair each call with its status and message, all from one process of this chip."""
    return zip(calls, _results(soc, json.dumps(calls)), strict=True)


def test_every_stand_in_has_a_row_and_every_row_a_stand_in_and_a_source():
    rows = re.findall(
        r'\{"(\w+)", "(?:math|conversion)/\w+/op_api/aclnn_\w+\.cpp",\s+[^{}"]*\}', TABLE.read_text()
    )
    assert {row_of(name) for name in FUNCTIONS} == set(TAKEN) == set(rows)
    assert len(rows) == len(set(rows))


def calls_of_types(function, soc):
    """Calls that the lists allow, with each type of the inputs and each type of the output."""
    inputs, outputs = taken(function, soc)
    base = row_of(function)
    ((out, roles),) = ((name, roles) for name, _, roles in arguments_of(function) if "o" in roles)
    if base == "Complex":  # complex32, with parts in float16, is not simulated
        parts = {"float32": "complex64", "float64": "complex128"}
        assert set(parts) < inputs
        assert set(parts.values()) == outputs
        return [call(function, {"inputs": part, out: dtype}) for part, dtype in parts.items()]
    if roles == "io":
        return [call(function, {"inputs": dtype}) for dtype in sorted(inputs & outputs)]
    if base in ARITHMETIC:
        assert inputs == outputs
        return [call(function, {"inputs": dtype, out: dtype}) for dtype in sorted(inputs)]
    if base.startswith("Fill"):  # a wide unsigned type has a common type only with itself
        calls = [call(function, {"inputs": dtype, out: "float32"}) for dtype in sorted(inputs - WIDE)]
        return calls + [call(function, {"inputs": dtype, out: dtype}) for dtype in sorted(inputs & outputs)]
    calls = [call(function, {"inputs": dtype}) for dtype in sorted(inputs)]
    return calls + [call(function, {out: dtype}) for dtype in sorted(outputs)]


@pytest.mark.parametrize("soc", SOCS)
def test_listed_types_are_taken(soc):
    calls = [one for function in FUNCTIONS for one in calls_of_types(function, soc)]
    assert len(calls) > 700
    assert [(one, got) for one, got in results(soc, calls) if got[0] != OK] == []


@pytest.mark.parametrize("soc", SOCS)
def test_other_types_are_refused_and_named(soc):
    calls, named = [], []
    for function in FUNCTIONS:
        inputs, outputs = taken(function, soc)
        for name, kind, roles in arguments_of(function):
            allowed = {"i": inputs, "o": outputs, "io": inputs & outputs}.get(roles, TYPES)
            for dtype in sorted(TYPES - allowed):
                calls.append(call(function, {name: dtype}))
                named.append((name, kind, dtype))
    assert len(calls) > 300
    for (one, (status, text)), (name, _, dtype) in zip(results(soc, calls), named, strict=True):
        assert status == INVALID, (one, text)
        where = rf"simulated CANN: aclnn{one[0]}: {name} must be .* on {soc} but got {dtype}\."
        assert re.fullmatch(where, text), (one, text)


@pytest.mark.parametrize("soc", SOCS[1:])
def test_results_are_not_converted_to_a_lesser_kind_of_type(soc):
    kinds = ("bool", "uint8", "int64", "float16", "float32", "complex64")
    calls, expected = [], []
    for function in FUNCTIONS:
        if row_of(function) not in ARITHMETIC or row_of(function) == "Neg":
            continue
        is_inplace = row_of(function) != function
        for self, other, out in itertools.product(kinds, repeat=3):
            if not is_inplace or out == self:
                own = {"alpha": "bool", "self": self, "other": other} | ({} if is_inplace else {"out": out})
                calls.append(call(function, own))
                expected.append(result_converts(function, self, other, out))
    for self, out in itertools.product(set(kinds) & SIGNED, kinds):
        if out in SIGNED:
            calls.append(call("Neg", {"self": self, "out": out}))
            expected.append(result_converts("Neg", self, self, out))
    assert expected.count(True) > 500
    assert expected.count(False) > 500
    for (one, (status, text)), is_taken in zip(results(soc, calls), expected, strict=True):
        assert status == (OK if is_taken else INVALID), (one, text)
        assert is_taken or re.search(r": out must have a type to which .* converts but got ", text), text


@pytest.mark.parametrize("function", ["Add", "InplaceAdds", "Sub", "InplaceSubs"])
def test_alpha_converts_to_the_common_type(function):
    cases = {
        ("bool", "bool"): True, ("bool", "int64"): True, ("bool", "float32"): False, ("int32", "int64"): True,
        ("int32", "float64"): False, ("float16", "float64"): True, ("float32", "complex64"): False,
        ("complex64", "complex128"): True,
    }  # fmt: skip
    calls = [
        call(function, {"inputs": one, "alpha": alpha} | ({} if "Inplace" in function else {"out": one}))
        for one, alpha in cases
    ]
    for (one, (status, text)), is_taken in zip(results(SOCS[0], calls), cases.values(), strict=True):
        assert status == (OK if is_taken else INVALID), (one, text)
        assert is_taken or ": alpha must " in text


@pytest.mark.parametrize("soc", SOCS[1:])
def test_outputs_have_the_shape_that_the_inputs_broadcast_to(soc):
    calls = []
    for function in FUNCTIONS:
        names = [name for name, kind, _ in arguments_of(function) if kind == "tensor"]
        if function.startswith("InplaceFill") or len(names) == 1 or function == "Arange":
            continue
        longer = "src" if function == "InplaceCopy" else "other" if function.startswith("Inplace") else "out"
        calls.append(call(function, None, {longer: 2}))
    assert len(calls) > 30
    for one, (status, text) in results(soc, calls):
        assert status == INVALID, (one, text)
        assert re.search(
            r": (out must have the shape|src must broadcast to) \[1(,1)?\] but got \[1(,1)?\]\.$", text
        ), text


@pytest.mark.parametrize("soc", SOCS[1:])
def test_eight_dimensions_are_taken_and_nine_are_refused(soc):
    rank_1_arguments = {("Arange", "out"), ("InplaceFillTensor", "value")}
    eight, nine = [], []
    for function in FUNCTIONS:
        tensors = [name for name, kind, _ in arguments_of(function) if kind == "tensor"]
        ranks = {name: 1 if (function, name) in rank_1_arguments else 8 for name in tensors}
        eight.append(call(function, None, ranks))
        nine += [call(function, None, {**ranks, name: 9}) for name in tensors]
    assert [(one, got) for one, got in results(soc, eight) if got[0] != OK] == []
    for one, (status, text) in results(soc, nine):
        assert status == INVALID, one
        assert text.endswith(" must have at most 8 dimensions but got 9."), (one, text)


@pytest.mark.parametrize("soc", SOCS[1:])
def test_wide_unsigned_types_have_a_common_type_with_themselves_alone(soc):
    functions = ["LtTensor", "GtTensor", "GeTensor", "LeTensor", "GtScalar", "LeScalar"]
    pairs = [("uint16", "int32"), ("int64", "uint16"), ("uint16", "float32")]
    calls = [call(name, {"self": a, "other": b}) for name, (a, b) in itertools.product(functions, pairs)]
    for one, (status, text) in results(soc, calls):
        assert status == INVALID, one
        assert "self and other must have a common type but got " in text


def test_wide_unsigned_types_have_a_common_type_with_complex_numbers_in_one_order():
    calls = [
        call("EqTensor", {"self": a, "other": b})
        for a, b in (("uint32", "complex64"), ("complex64", "uint32"))
    ]
    (_, taken_one), (_, refused_one) = results("Ascend310P3", calls)
    assert taken_one[0] == OK, taken_one
    rule = (
        "simulated CANN: aclnnEqTensor: self and other must have a common type but got complex64 and uint32."
    )
    assert refused_one == [INVALID, rule]


def test_real_and_imaginary_parts_have_the_parts_type():
    changes = [{"real": "float64"}, {"imag": "float16"}, {"out": "complex128"}]
    (_, real), (_, imag), (_, out) = results(SOCS[0], [call("Complex", types) for types in changes])
    rule = "simulated CANN: aclnnComplex: real and imag must be {}, as the parts of out, but got {} and {}."
    assert real == [INVALID, rule.format("float32", "float64", "float32")]
    assert imag == [INVALID, rule.format("float32", "float32", "float16")]
    assert out == [INVALID, rule.format("float64", "float32", "float32")]


def test_the_tensor_that_fills_another_has_at_most_one_dimension():
    ((_, (status, text)),) = results(SOCS[0], [call("InplaceFillTensor", ranks={"value": 2})])
    assert status == INVALID
    rule = "value must have one element and at most one dimension"
    assert text.endswith(f"{rule} but got 1 element(s) in 2 dimension(s).")


@pytest.mark.long
@pytest.mark.parametrize("check", checks_of(SCRIPTS / "refused_types.py"))
@pytest.mark.parametrize("soc", ["Ascend910B2", "Ascend310P3", "Ascend950PR_9589"])
def test_torch_reports_what_the_chip_refuses(simulated, soc, check):
    assert simulated.checks(SCRIPTS / "refused_types.py", soc, "0")[check] == "ok"
