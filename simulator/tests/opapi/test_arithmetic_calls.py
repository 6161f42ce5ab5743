"""Arithmetic of libopapi's stand-ins through both phases: workspace and strides."""

import itertools

import numpy as np
import pytest
from aclnn import GUARD, RefusedPhase, Stored
from operands import TYPES, UNLISTED_CHIP, assert_refused, reasons_beyond_document, strided

TWO = np.float32(2)


def test_a_contiguous_call_needs_no_workspace(opapi):
    x, out = np.ones((3, 4), np.float32), np.zeros((3, 4), np.float32)
    size, executor = opapi.prepare("Muls", {"self": x, "other": TWO, "out": out})
    assert size == 0
    opapi.run("Muls", size, executor)
    opapi.download(out)
    assert np.array_equal(out, x * 2)
    opapi.free_tensors()


def test_a_strided_call_needs_a_workspace_and_refuses_a_smaller_one(opapi):
    x, out = np.arange(12, dtype=np.float32).reshape(3, 4), np.zeros((4, 3), np.float32)
    given = {"self": x.T, "other": TWO, "out": out}
    size, executor = opapi.prepare("Muls", given)
    assert size == 512
    with pytest.raises(RefusedPhase, match="workspace must have the 512 bytes") as refused:
        opapi.run("Muls", size, executor, missing_bytes=1)
    assert refused.value.status == 161002
    opapi.call("Muls", given)
    assert np.array_equal(out, x.T * 2)


# Views [3,4,5] whose rows continue each other in all, some or no dimensions.
VIEWS = {
    "contiguous": lambda: np.zeros((3, 4, 5), np.float32),
    "every second element": lambda: np.zeros((3, 4, 10), np.float32)[..., ::2],
    "gaps between rows": lambda: np.zeros((3, 4, 7), np.float32)[..., 1:6],
    "gaps between matrices": lambda: np.zeros((3, 6, 5), np.float32)[:, 1:5],
    "transposed": lambda: np.zeros((3, 5, 4), np.float32).transpose(0, 2, 1),
}


@pytest.mark.parametrize("out_view", VIEWS)
def test_views_of_several_rows(opapi, out_view):
    for first, second in itertools.product(VIEWS, VIEWS):
        x, y, out = VIEWS[first](), VIEWS[second](), VIEWS[out_view]()
        x[...], y[...] = np.arange(60).reshape(3, 4, 5), 100 * np.arange(60).reshape(3, 4, 5)
        opapi.call("Mul", {"self": x, "other": y, "out": out})
        assert np.array_equal(out, x * y), (first, second)
        gaps = out.base if out.base is not None else out
        assert gaps.sum(dtype=np.float64) == out.sum(dtype=np.float64), (first, second)


def test_a_null_workspace_is_refused(opapi):
    x, out = np.ones((3, 4), np.float32), np.zeros((4, 3), np.float32)
    size, executor = opapi.prepare("Muls", {"self": x.T, "other": TWO, "out": out})
    with pytest.raises(RefusedPhase, match="workspace must not be null") as refused:
        opapi.launch("Muls", None, size, executor)
    assert refused.value.status == 161001
    opapi.free_tensors()


@pytest.mark.parametrize(
    ("null", "message"),
    [
        (("workspace_size",), "aclnnMul: workspaceSize must not be null."),
        (("executor",), "aclnnMul: executor must not be null."),
        (("workspace_size", "executor"), "aclnnMul: workspaceSize must not be null."),
    ],
)
def test_a_null_result_of_the_first_phase_is_named(opapi, null, message):
    x = np.ones(3, np.float32)
    with pytest.raises(RefusedPhase) as refused:
        opapi.prepare("Mul", {"self": x, "other": x.copy(), "out": x.copy()}, null=null)
    assert (refused.value.status, str(refused.value)) == (161001, f"simulated CANN: {message}")
    opapi.free_tensors()


@pytest.mark.parametrize("argument", ["self", "other", "out"])
@pytest.mark.parametrize(("dtype", "name"), [(29, "int4"), (36, "aclDataType 36")])
def test_a_type_that_cann_lacks_is_refused_before_it_is_read(opapi, argument, dtype, name):
    """int4, and float8_e4m3fn: a number above 31."""
    x = np.ones(4, np.float32)
    given = {"self": x, "other": x.copy(), "out": x.copy()}
    given[argument] = Stored(np.zeros(4, np.int8), dtype, (4,), (1,))
    message = f"aclnnMul: {argument} must be float32, float16, int8, .* on {opapi.soc} but got {name}[.]$"
    assert_refused(opapi, "Mul", given, message)


def refusal_of_a_view(device, spans, count):
    """Prepare a call on floats from an address on. The memories are spans of bytes, relative to it."""
    x = np.zeros(count, np.float32)
    address = x.ctypes.data
    device.memories[address] = address
    device.calls.set_memory([(address + offset, size) for offset, size in spans])
    try:
        device.prepare("InplaceOne", {"self": x})
    except RefusedPhase as refused:
        return str(refused)
    finally:
        device.memories.clear()
        device.free_tensors()
    return None


OUTSIDE = "self must be in device memory but its address is not the simulated device's."


@pytest.mark.parametrize(
    ("spans", "count", "message"),
    [
        ([(0, 64)], 16, None),
        ([(0, 64)], 17, "self must lie inside its allocation of 64 bytes but reaches byte 68."),
        ([(-64, 64)], 1, OUTSIDE),
        ([(4, 64)], 1, OUTSIDE),
        ([], 1, OUTSIDE),
        ([(-64, 68)], 1, None),
        ([(-64, 68)], 2, "self must lie inside its allocation of 68 bytes but reaches byte 72."),
        ([(0, 64), (0, 128)], 32, None),
        ([(0, 128), (0, 64)], 32, None),
        ([(-64, 128), (0, 32)], 16, None),
        (
            [(0, 128), (-64, 192)],
            33,
            "self must lie inside its allocation of 128 bytes but reaches byte 132.",
        ),
        (
            [(-64, 192), (0, 128)],
            33,
            "self must lie inside its allocation of 192 bytes but reaches byte 196.",
        ),
        ([(-64, 64), (0, 8)], 2, None),
    ],
)
def test_an_address_belongs_to_the_memory_that_ends_last(opapi, spans, count, message):
    """Views of one array are overlapping memories."""
    found = refusal_of_a_view(opapi, spans, count)
    assert found == (message and f"simulated CANN: aclnnInplaceOne: {message}")


def test_memory_that_is_not_counted_is_not_found(opapi):
    x = np.zeros(4, np.float32)
    opapi.upload(x)
    opapi.calls.memory_count -= 1
    assert_refused(opapi, "InplaceOne", {"self": x}, "its address is not the simulated device's")


def test_an_executor_runs_once(opapi):
    x, out = np.ones((3, 4), np.float32), np.zeros((3, 4), np.float32)
    size, executor = opapi.prepare("Muls", {"self": x, "other": TWO, "out": out})
    opapi.run("Muls", size, executor)
    rule = "aclnnMuls: executor must come from a first phase and run only once"
    with pytest.raises(RefusedPhase, match=rule) as refused:
        opapi.run("Muls", size, executor)
    assert refused.value.status == 161002
    opapi.free_tensors()


def test_a_refused_workspace_leaves_the_executor(opapi):
    x, out = np.ones((3, 4), np.float32), np.zeros((4, 3), np.float32)
    size, executor = opapi.prepare("Muls", {"self": x.T, "other": TWO, "out": out})
    with pytest.raises(RefusedPhase):
        opapi.launch("Muls", None, size, executor)
    opapi.run("Muls", size, executor)
    opapi.download(out)
    assert np.array_equal(out, x.T * 2)
    opapi.free_tensors()


def test_a_workspace_has_junk_after_the_call(opapi):
    x, out = np.ones((3, 4), np.float32), np.zeros((4, 3), np.float32)
    size, executor = opapi.prepare("Muls", {"self": x.T, "other": TWO, "out": out})
    workspace = opapi.allocate(size)
    opapi.launch("Muls", workspace, size, executor)
    assert set(opapi.allocations[workspace][GUARD:-GUARD]) == {0xFF}
    opapi.free(workspace)
    opapi.free_tensors()


def test_a_destroyed_executor_does_not_run(opapi):
    x = np.ones(3, np.float32)
    size, executor = opapi.prepare("Muls", {"self": x, "other": TWO, "out": x})
    assert opapi.cann.aclDestroyAclOpExecutor(executor) == 0
    with pytest.raises(RefusedPhase, match="executor must come from a first phase"):
        opapi.launch("Muls", None, size, executor)
    opapi.free_tensors()


def test_a_function_without_a_stand_in_fails_with_its_name(opapi):
    with pytest.raises(RefusedPhase, match="aclnnErfinv"):
        opapi.prepare("Erfinv", {"self": np.ones(3, np.float32), "out": np.ones(3, np.float32)})
    opapi.free_tensors()


@pytest.mark.parametrize(
    ("name", "is_listed"),
    [
        *((name, False) for name in ("Add", "Sub", "Div", "EqTensor", "NeTensor", "LtTensor")),
        *((name, False) for name in ("Divs", "EqScalar", "NeScalar", "LtScalar", "Neg")),
        *((name, True) for name in ("Adds", "Subs", "Mul", "Muls", "LeTensor", "GtScalar", "GeTensor")),
    ],
)
@pytest.mark.parametrize("form", ["", "Inplace"])
def test_chips_that_a_document_does_not_list_are_reported(opapi, name, is_listed, form):
    x = np.ones(3, np.float32)
    has_scalar = name in ("Adds", "Subs", "Muls", "Divs") or name.endswith("Scalar")
    given = {"self": x, "other": TWO if has_scalar else x.copy()}
    if name == "Neg":
        given = {"self": x}
    if name[:3] in ("Add", "Sub"):
        given["alpha"] = TWO
    if not form:
        given["out"] = np.ones(3, np.bool_ if name.endswith(("Tensor", "Scalar")) else np.float32)
    expected = [UNLISTED_CHIP] if opapi.is_310p and not is_listed else []
    assert reasons_beyond_document(opapi, form + name, given) == expected


def converts(source, target):
    return f"its document does not convert {source} to {target}"


@pytest.mark.parametrize(
    ("name", "self", "other", "out", "reasons"),
    [
        (
            "Divs",
            "float32",
            "complex64",
            "float32",
            [converts("complex64, the type of the result,", "float32")],
        ),
        ("Divs", "int32", "int64", "int32", [converts("float32, the type of the result,", "int32")]),
        ("Divs", "int32", "int64", "float16", []),
        ("Divs", "float16", "float64", "float16", []),
        (
            "Muls",
            "complex64",
            "float32",
            "float32",
            [converts("complex64, the type of the result,", "float32")],
        ),
        ("Muls", "float32", "float32", "int8", [converts("float32, the type of the result,", "int8")]),
        ("Muls", "int32", "int64", "int8", []),
        ("InplaceMuls", "int32", "float32", None, []),
        ("InplaceDivs", "int32", "float32", None, []),
    ],
)
def test_results_that_a_document_does_not_convert_are_reported(opapi_910b, name, self, other, out, reasons):
    given = {"self": np.ones(3, TYPES[self]), "other": TYPES[other](2)}
    if out:
        given["out"] = np.ones(3, TYPES[out])
    assert reasons_beyond_document(opapi_910b, name, given) == reasons


@pytest.mark.parametrize(
    ("shapes", "is_reported"),
    [(((0, 5), (1, 5)), True), (((0, 5), (0, 5)), False), (((2, 5), (1, 5)), False)],
)
def test_one_empty_tensor_of_an_inplace_comparison_is_reported(opapi_910b, shapes, is_reported):
    given = dict(zip(("self", "other"), (np.ones(shape, np.float32) for shape in shapes), strict=True))
    reason = "its document does not allow one empty tensor of selfRef and other"
    assert reasons_beyond_document(opapi_910b, "InplaceEqTensor", given) == [reason] * is_reported
    assert reasons_beyond_document(opapi_910b, "InplaceNeTensor", given) == []


@pytest.mark.parametrize("op", ["InplaceFillScalar", "InplaceFillTensor"])
@pytest.mark.parametrize(
    ("self", "value", "is_reported"),
    [
        ("int32", "complex64", True),
        ("float32", "complex64", True),
        ("int32", "float32", True),
        ("bool", "int64", True),
        ("bool", "bool", False),
        ("int8", "int64", False),
        ("float16", "float32", False),
    ],
)
def test_values_that_a_document_does_not_convert_are_reported(opapi_910b, op, self, value, is_reported):
    number = TYPES[value](1)
    given = {"self": np.ones(3, TYPES[self]), "value": number if "Scalar" in op else np.asarray(number)}
    reason = f"its document does not convert a value of {value} to {self}"
    assert (reason in reasons_beyond_document(opapi_910b, op, given)) == is_reported


@pytest.mark.parametrize("name", ["float64", "complex64", "complex128"])
def test_types_that_the_document_of_a_fill_does_not_list_are_reported(opapi_910b, name):
    given = {"self": np.ones(3, TYPES[name]), "value": np.asarray(np.float32(1))}
    reason = f"its document does not list {name} for self"
    assert reasons_beyond_document(opapi_910b, "InplaceFillTensor", given) == [reason]
    given["value"] = np.float32(1)
    assert reasons_beyond_document(opapi_910b, "InplaceFillScalar", given) == []


@pytest.mark.parametrize(
    ("name", "is_reported"), [("bool", True), ("complex64", True), ("complex128", True), ("float32", False)]
)
def test_a_cast_of_a_strided_tensor_is_reported(opapi_910b, name, is_reported):
    x = strided(np.ones((2, 3), TYPES[name]))
    given = {"self": x, "dtype": 16, "out": np.ones((2, 3), np.complex64)}  # ACL_COMPLEX64
    reason = f"its document requires a contiguous self of {name}"
    assert reasons_beyond_document(opapi_910b, "Cast", given) == [reason] * is_reported
    assert reasons_beyond_document(opapi_910b, "Cast", given | {"self": np.ascontiguousarray(x)}) == []


def test_copies_beyond_the_document_are_reported(opapi_910b):
    for self, src, reasons in (
        (np.ones((), np.float32), np.ones((), np.float32), ["its document requires 1 to 8 dimensions"]),
        (np.ones(3, np.float32), np.ones((), np.float32), ["its document requires 1 to 8 dimensions"]),
        (
            strided(np.ones(3, np.complex64)),
            np.ones(3, np.complex64),
            ["its document requires a contiguous selfRef for complex numbers"],
        ),
        (strided(np.ones(3, np.complex64)), np.ones(3, np.float32), []),
        (np.ones(3, np.int32), np.ones(3, np.complex64), [converts("complex64", "int32")]),
        (np.ones(3, np.bool_), np.ones(3, np.float32), [converts("float32", "bool")]),
        (np.ones(3, np.float16), np.ones(3, np.float32), []),
    ):
        assert reasons_beyond_document(opapi_910b, "InplaceCopy", {"self": self, "src": src}) == reasons


@pytest.mark.parametrize("shape", [(5,), (1, 5)])
def test_a_range_of_several_dimensions_is_reported(opapi_910b, shape):
    given = {"start": np.int64(0), "end": np.int64(5), "step": np.int64(1), "out": np.ones(shape, np.float32)}
    reasons = ["its document describes an out of one dimension"] * (len(shape) > 1)
    assert reasons_beyond_document(opapi_910b, "Arange", given) == reasons
