"""Layout: stand-ins that repeat, permute, slice, roll and join tensors, against NumPy."""

import numpy as np
import pytest
from aclnn import Stored
from operands import (
    HALF_AND_FLOAT,
    INVALID,
    NULL,
    NUMBERS,
    REAL,
    TYPES,
    UNLISTED_CHIP,
    WIDE_UNSIGNED,
    assert_beyond_document,
    assert_refused,
    assert_same,
    check_types,
    random_of,
    strided,
)

INNER_NULLPTR = 561103


@pytest.mark.parametrize("repeats", [(2, 3), (1, 1), (4, 1, 2), (2, 3, 2, 2), (0, 2)])
@pytest.mark.parametrize("name", ["float32", "int8", "complex128"])
def test_repeat_tiles(opapi, name, repeats):
    x = strided(random_of(name, (3, 4)))
    expected = np.tile(x, repeats)
    out = strided(np.zeros_like(expected))
    opapi.call("Repeat", {"self": x, "repeats": list(repeats), "out": out})
    assert_same(out, expected)


def test_repeat_of_a_scalar_is_a_copy(opapi):
    out = np.array(0, np.int32)
    opapi.call("Repeat", {"self": np.array(7, np.int32), "repeats": [], "out": out})
    assert out == 7


def test_repeat_checks_its_arguments(opapi):
    x, out = np.zeros((2, 3), np.float32), np.zeros((2, 6), np.float32)
    given = {"self": x, "repeats": [1, 2], "out": out}
    for change, message in (
        ({"repeats": [2]}, "repeats must have 2 to 8 elements but got 1"),
        ({"repeats": [1, -2]}, "repeats must be at least 0 but got -2"),
        ({"repeats": [1] * 9}, "repeats must have 2 to 8 elements but got 9"),
        ({"repeats": [2, 2]}, r"out must have the shape \[4,6\]"),
        ({"out": out.astype(np.float16)}, "out must be float32"),
    ):
        assert_refused(opapi, "Repeat", given | change, message)
    assert_refused(opapi, "Repeat", given | {"repeats": None}, "repeats must not be null", NULL)
    check_types(
        opapi,
        "Repeat",
        lambda name: given | {"self": x.astype(TYPES[name]), "out": out.astype(TYPES[name])},
        NUMBERS + WIDE_UNSIGNED,
        ("bfloat16",),
    )


def test_repeat_refuses_more_than_three_repeated_dimensions_after_the_first(opapi):
    x = np.zeros((1, 1, 1, 1, 1), np.float32)
    for repeats, is_valid in (((2, 3, 1, 5, 6), True), ((1, 3, 1, 5, 6), True), ((2, 3, 4, 5, 6), False),
                              ((1, 3, 4, 5, 6), False), ((2, 2, 2, 2, 1), True),
                              ((1, 1, 1, 1, 1, 1, 1, 2), True), ((1, 1, 3, 3, 3, 0, 3), True)):  # fmt: skip
        given = {"self": x, "repeats": list(repeats), "out": np.zeros(repeats, np.float32)}
        if is_valid:
            opapi.call("Repeat", given)
        else:
            assert_refused(opapi, "Repeat", given, "repeat at most 3 dimensions", INNER_NULLPTR)


@pytest.mark.parametrize("dims", [(0, 1, 2), (2, 0, 1), (-1, 1, 0)])
@pytest.mark.parametrize("name", ["float32", "uint16", "bool", "complex128"])
def test_permute_moves_dimensions(opapi_910b, name, dims):
    x = strided(random_of(name, (2, 3, 4)))
    out = strided(np.zeros_like(np.transpose(x, dims)))
    opapi_910b.call("Permute", {"self": x, "dims": list(dims), "out": out})
    assert_same(out, np.transpose(x, dims))


def test_permute_checks_its_arguments(opapi):
    x, out = np.zeros((2, 3), np.float32), np.zeros((3, 2), np.float32)
    given = {"self": x, "dims": [1, 0], "out": out}
    if opapi.is_310p:
        assert_beyond_document(opapi, "Permute", given, UNLISTED_CHIP)
    for change, message in (
        ({"dims": [1]}, "dims must have 2 elements but got 1"),
        ({"dims": [1, 2]}, r"dims must be in \[-2, 2\) but got 2"),
        ({"dims": [1, -1]}, "dims must contain each dimension at most once"),
        ({"out": x.copy()}, r"out must have the shape \[3,2\]"),
    ):
        assert_refused(opapi, "Permute", given | change, message)


def test_permute_of_an_empty_tensor_takes_every_empty_out(opapi):
    given = {"self": np.zeros((2, 0), np.float32), "dims": [1, 0]}
    assert_refused(
        opapi, "Permute", given | {"out": np.zeros((3, 2), np.float32)}, "out must be empty", 561103
    )
    assert_refused(
        opapi, "Permute", given | {"out": np.zeros(0, np.float32)}, r"out must have the shape \[0,2\]"
    )
    reason = "its document requires the permuted shape for out"
    assert_beyond_document(opapi, "Permute", given | {"out": np.zeros((5, 0), np.float32)}, reason)


@pytest.mark.parametrize("part", [(0, 4, 1), (1, 9, 2), (-3, -1, 1), (3, 1, 1), (-9, 3, 3), (4, 9, 1)])
@pytest.mark.parametrize("dim", [1, -2])
def test_slice_takes_a_range(opapi_910b, part, dim):
    x = strided(random_of("int64", (3, 4, 5)))
    start, end, step = part
    expected = x[:, slice(*part)]
    out = strided(np.zeros_like(expected))
    opapi_910b.call("Slice", {"self": x, "dim": dim, "start": start, "end": end, "step": step, "out": out})
    assert_same(out, expected)


def test_slice_checks_its_arguments(opapi):
    x, out = np.zeros((3, 4), np.float32), np.zeros((3, 2), np.float32)
    given = {"self": x, "dim": 1, "start": 0, "end": 2, "step": 1, "out": out}
    if opapi.is_310p:
        assert_beyond_document(opapi, "Slice", given, UNLISTED_CHIP)
    for change, message in (
        ({"step": 0}, "step must be greater than 0 but got 0"),
        ({"dim": 2}, "dim must be in"),
        ({"end": 3}, r"out must have the shape \[3,3\]"),
    ):
        assert_refused(opapi, "Slice", given | change, message)
    check_types(
        opapi,
        "Slice",
        lambda name: given | {"self": x.astype(TYPES[name]), "out": out.astype(TYPES[name])},
        [*HALF_AND_FLOAT, "int8", "int32", "int64", "uint8", "bool"],
        ("bfloat16",),
        is_310p_unlisted=True,
    )


def test_expand_broadcasts(opapi):
    x = strided(random_of("int32", (3, 1)))
    out = strided(np.zeros((2, 3, 4), np.int32))
    opapi.call("Expand", {"self": x, "size": [2, 3, 4], "out": out})
    assert_same(out, np.broadcast_to(x, (2, 3, 4)))
    for size, message in (([2, 4, 4], "self must broadcast to"), ([2, -1, 4], "out must have the shape")):
        shape = [2, 4, 4] if size[1] == 4 else [2, 3, 4]
        given = {"self": x, "size": size, "out": np.zeros(shape, np.int32)}
        assert_refused(opapi, "Expand", given, message)


@pytest.mark.parametrize("dims", [(0,), (1, -1), ()])
def test_flip_reverses(opapi_910b, dims):
    x = strided(random_of("float16", (3, 4, 5)))
    out = np.zeros((3, 4, 5), np.float16)
    opapi_910b.call("Flip", {"self": x, "dims": list(dims), "out": out})
    assert_same(out, np.flip(x, dims))


def test_flip_in_place(opapi_910b):
    x = np.array([1, 2], np.float32)
    opapi_910b.call("Flip", {"self": x, "dims": [0], "out": x})
    assert x.tolist() == [2, 1]


@pytest.mark.parametrize(
    ("shifts", "dims"), [((1,), (2,)), ((2, -1), (0, -1)), ((7, 7), (0, 0)), ((-13,), (1,)), ((0,), (0,))]
)
def test_roll_moves_elements(opapi, shifts, dims):
    x = strided(random_of("float32", (3, 4, 5)))
    out = np.zeros((3, 4, 5), np.float32)
    opapi.call("Roll", {"x": x, "shifts": list(shifts), "dims": list(dims), "out": out})
    assert_same(out, np.roll(x, shifts, dims))


def test_roll_without_dims_moves_the_flat_elements(opapi):
    x, out = strided(random_of("int8", (3, 4))), np.zeros((3, 4), np.int8)
    opapi.call("Roll", {"x": x, "shifts": [5], "dims": [], "out": out})
    assert_same(out, np.roll(x, 5))


def test_roll_checks_its_arguments(opapi):
    x, out = np.zeros((3, 4), np.float32), np.zeros((3, 4), np.float32)
    given = {"x": x, "shifts": [1], "dims": [1], "out": out}
    for change, message in (
        ({"shifts": [1, 2]}, r"shifts must have 1 element\(s\) but got 2"),
        ({"shifts": [1, 2], "dims": []}, r"shifts must have 1 element\(s\) but got 2"),
        ({"dims": [2]}, r"dims must be in \[-2, 2\) but got 2"),
        ({"out": out.T}, r"out must have the shape \[3,4\]"),
    ):
        assert_refused(opapi, "Roll", given | change, message)
    check_types(
        opapi,
        "Roll",
        lambda name: given | {"x": x.astype(TYPES[name]), "out": out.astype(TYPES[name])},
        [*HALF_AND_FLOAT, "int8", "uint8", "int32", "uint32", "int64", "bool"],
        ("bfloat16", "int16"),
    )


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_cat_joins(opapi, dim):
    x = random_of("float32", (3, 4, 5))
    parts = [strided(part) for part in np.split(x, [1, 1], dim)]
    out = np.zeros_like(x)
    opapi.call("Cat", {"tensors": parts, "dim": dim, "out": out})
    assert_same(out, x)


def test_strided_outputs_go_beyond_the_documents(opapi):
    """The sources of Roll, Cat and Flip copy the result to an out of any strides."""
    x = random_of("float32", (3, 4))
    for op, given, expected in (
        ("Roll", {"x": x, "shifts": [5], "dims": []}, np.roll(x, 5)),
        ("Roll", {"x": x, "shifts": [1], "dims": [1]}, np.roll(x, 1, 1)),
        ("Cat", {"tensors": [x, x + 1], "dim": 0}, np.concatenate([x, x + 1])),
        ("Flip", {"self": x, "dims": [0]}, np.flip(x, 0)),
    ):
        out = strided(np.zeros_like(expected))
        reason = "its document requires a contiguous out"
        assert_beyond_document(opapi, op, given | {"out": out}, reason)
        opapi.call(op, given | {"out": out})
        assert_same(np.ascontiguousarray(out), expected)


def test_cat_promotes_types(opapi):
    parts = [np.array([1, 2], np.int32), np.array([0.5], np.float16)]
    out = np.zeros(3, np.float32)
    opapi.call("Cat", {"tensors": parts, "dim": 0, "out": out})
    assert_same(out, np.array([1, 2, 0.5], np.float32))
    given = {"tensors": parts, "dim": 0, "out": np.zeros(3, np.int32)}
    assert_refused(opapi, "Cat", given, "out must have a type to which float16 converts but got int32")


def test_cat_checks_its_arguments(opapi):
    x, out = np.zeros((2, 3), np.float32), np.zeros((4, 3), np.float32)
    given = {"tensors": [x, x.copy()], "dim": 0, "out": out}
    for change, message in (
        ({"dim": 2}, "dim must be in"),
        (
            {"tensors": [x, np.zeros((2, 4), np.float32)]},
            r"tensors must have the shape \[2,3\] except in dim 0",
        ),
        ({"tensors": [x, np.zeros(3, np.float32)]}, "tensors must have the shape"),
        ({"dim": 1}, r"out must have the shape \[2,6\]"),
    ):
        assert_refused(opapi, "Cat", given | change, message)
    check_types(
        opapi,
        "Cat",
        lambda name: {"tensors": [x.astype(TYPES[name])] * 2, "dim": 0, "out": out.astype(TYPES[name])},
        [*REAL, "complex64"],
        ("bfloat16",),
    )


def test_cat_has_tensors_of_one_format(opapi):
    nd, nchw = 2, 0

    def tensor(rows, number):
        return Stored(np.zeros((rows, 3), np.float32), 0, (rows, 3), (3, 1), number)

    for first, second, out, message in (
        (nchw, nchw, nchw, ""),
        (nd, nchw, nd, "tensors must have the format 2 of the first tensor but got 0"),
        (nchw, nd, nchw, "tensors must have the format 0 of the first tensor but got 2"),
        (nd, nd, nchw, "out must have the format 2 of the first tensor but got 0"),
    ):
        given = {"tensors": [tensor(2, first), tensor(2, second)], "dim": 0, "out": tensor(4, out)}
        if message:
            assert_refused(opapi, "Cat", given, message)
        else:
            opapi.prepare("Cat", given)
            opapi.free_tensors()


@pytest.mark.parametrize(("dtype", "name"), [(29, "int4"), (36, "aclDataType 36")])
def test_cat_refuses_types_that_cann_lacks_with_its_list(opapi, dtype, name):
    """ggml's CANN backend passes a quantized tensor as int4. 36 is float8_e4m3fn: a number above 31."""
    packed = Stored(np.zeros(8, np.int8), dtype, (2, 4), (4, 1))
    given = {"tensors": [packed, packed], "dim": 0, "out": np.zeros((4, 4), np.float32)}
    message = f"tensors must be float32, float16, int8, .* on {opapi.soc} but got {name}[.]$"
    assert_refused(opapi, "Cat", given, message)


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_stack_adds_a_dimension(opapi, dim):
    parts = [strided(random_of("int16", (3, 4), seed)) for seed in range(3)]
    expected = np.stack(parts, dim)
    out = strided(np.zeros_like(expected))
    opapi.call("Stack", {"tensors": parts, "dim": dim, "out": out})
    assert_same(out, expected)


def test_stack_promotes_types_and_has_an_own_status_for_null(opapi):
    parts = [np.array([1, 2], np.float64), np.array([1j, 3], np.complex64)]
    out = np.zeros((2, 2), np.complex128)
    given = {"tensors": parts, "dim": 0, "out": out}
    opapi.call("Stack", given)
    assert_same(out, np.stack(parts))
    for name in ("tensors", "out"):
        assert_refused(opapi, "Stack", given | {name: None}, f"{name} must not be null", INNER_NULLPTR)
    # The rule of Cat for such a common type is none of Stack.
    assert_refused(
        opapi, "Cat", given | {"out": np.zeros(4, np.complex64)}, "common type other than complex128"
    )


def test_split_tensor_cuts_parts(opapi):
    x = strided(random_of("float64", (3, 5)))
    expected = np.split(x, [2, 4], 1)
    out = [strided(np.zeros_like(part)) for part in expected]
    opapi.call("SplitTensor", {"self": x, "split_sections": 2, "dim": 1, "out": out})
    for got, part in zip(out, expected, strict=True):
        assert_same(got, part)
    for change, message in (
        ({"split_sections": 0}, "splitSections must be greater than 0"),
        ({"split_sections": 3}, r"out must have 2 element\(s\) but got 3"),
        ({"dim": 2}, "dim must be in"),
    ):
        given = {"self": x, "split_sections": 2, "dim": 1, "out": out} | change
        assert_refused(opapi, "SplitTensor", given, message, INVALID)

    def of_type(name):
        parts = [random_of(name, (3, n)) for n in (2, 2, 1)]
        return {"self": random_of(name, (3, 5)), "split_sections": 2, "dim": 1, "out": parts}

    check_types(opapi, "SplitTensor", of_type, NUMBERS, ("bfloat16",))


def test_split_tensor_converts_to_one_type(opapi):
    x = random_of("int32", (3, 5))
    expected = np.split(x.astype(np.float16), [2, 4], 1)
    given = {"self": x, "split_sections": 2, "dim": 1, "out": [np.zeros_like(part) for part in expected]}
    opapi.call("SplitTensor", given)
    for got, part in zip(given["out"], expected, strict=True):
        assert_same(got, part)
    mixed = [*given["out"][:2], np.zeros((3, 1), np.float32)]
    assert_refused(opapi, "SplitTensor", given | {"out": mixed}, "out must be float16 but got float32")
    whole = {"self": x, "split_sections": 5, "dim": 1, "out": [np.zeros((3, 4), np.int32)]}
    assert_refused(opapi, "SplitTensor", whole, r"out must have the shape \[3,5\]", INNER_NULLPTR)
    wrong = given | {"self": x.astype(np.float32), "out": [part.astype(np.int32) for part in expected]}
    message = "out must have a type to which float32 converts but got int32"
    assert_refused(opapi, "SplitTensor", wrong, message)


def test_a_part_that_is_the_output_is_refused(opapi):
    memory = np.arange(8, dtype=np.float32)
    given = {"tensors": [memory[4:], memory[:4]], "dim": 0, "out": memory}
    assert_refused(opapi, "Cat", given, "share no memory with it but got memory that overlaps", INVALID)


@pytest.mark.parametrize(("count", "status"), [(1, 561103), (2, INVALID)])
def test_a_wrong_output_of_a_cat_of_one_tensor_is_an_error_of_the_copy(opapi, count, status):
    tensors = [np.ones((2, 3), np.float32)] * count + [np.ones((0, 3), np.float32)]
    given = {"tensors": tensors, "dim": 0, "out": np.ones((7, 3), np.float32)}
    message = rf"out must have the shape \[{2 * count},3\] but got \[7,3\]"
    assert_refused(opapi, "Cat", given, message, status)
